"""Symbols of gradients against eager ones, to higher orders, beside their functions."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.symbol as sym
from weft.base.errors import DTypeError, GraphError


def near(a, b):
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)


def test_against_eager():
    rng = np.random.default_rng(0)
    x, w = (wf.tensor(rng.standard_normal((3, 3), "float32")) for _ in range(2))

    def f(x, w):
        return F.softmax(F.tanh(x @ w) * x, axis=0)

    y = f(sym.var("x"), sym.var("w"))
    dw, dx = y.grad(["w", "x"]).eval(x=x, w=w)
    weighted = F.mse_loss(y, sym.zeros((3, 3))).grad("w").eval(x=x, w=w)[0]
    near(dx, wf.grad(lambda x: f(x, w).sum())(x))
    near(dw, wf.grad(lambda w: f(x, w).sum())(w))
    near(weighted, wf.grad(lambda w: F.mse_loss(f(x, w), wf.zeros((3, 3))))(w))


def test_twice():
    x = sym.var("x")
    y = x * x * x
    d2 = y.grad("x").grad("x")
    assert d2.eval(x=wf.tensor([2.0]))[0].item() == 12.0
    both = sym.group([y, y.grad("x", name="dx"), d2])
    assert [v.item() for v in both.eval(x=wf.tensor([2.0]))] == [8.0, 12.0, 12.0]
    assert both.list_outputs()[1] == "dx_output"


def test_names_of_several():
    dy = (sym.var("a") * sym.var("b")).grad(["a", "b"], name="g")
    assert dy.list_outputs() == ["g_a_grad", "g_b_grad"]
    assert dy["g_b_grad"].eval(a=wf.tensor([3.0]), b=wf.tensor([5.0]))[0].item() == 3.0


def test_a_function_and_its_gradient_are_computed_once():
    x = sym.var("x")
    y = F.exp(x)
    exe = sym.group([y, y.grad("x")]).bind(args=[wf.tensor([1.0])])
    exe.forward()
    graph = exe._plans.forward(exe._signature, False, False).plan.recipe.graph
    assert str(graph).count("= Exp()") == 1


def test_zero_and_unknown():
    y = F.exp(sym.var("x")) + 0 * sym.var("z")
    assert sym.group([y]).grad("z").eval(x=wf.ones(2), z=wf.ones(2))[0].numpy().tolist() == [0.0, 0.0]
    unused = F.argmax(sym.var("x")) * 1
    with pytest.raises(GraphError, match="no variable 'w'; there are: x"):
        unused.grad("w")
    with pytest.raises(GraphError, match="needs the names"):
        unused.grad([])
    indices = sym.var("i", dtype="int64")
    with pytest.raises(DTypeError, match="only floating-point values have gradients"):
        F.embedding(indices, num_embeddings=3, embedding_dim=2).grad("i").infer_shape(i=(2,))


def test_training_through_a_gradient():
    """The executor differentiates a symbol that holds a gradient."""
    x = sym.var("x")
    penalty = (F.exp(x).grad("x") ** 2).sum()
    exe = penalty.bind(args=[wf.tensor([0.5])], args_grad=[wf.zeros(1)])
    exe.forward(is_train=True)
    exe.backward()
    assert exe.grad_arrays[0].item() == pytest.approx(2 * np.exp(1.0), rel=1e-5)
