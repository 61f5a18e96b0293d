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
    graph = exe._plans.forward(exe._signature, False, False).plan.info.graph
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


class Clipped(wf.Function):
    """x w, w + 1, whose gradients are others."""

    def forward(self, x, w, factor=1.0):
        self.x, self.power = x, F.exp(w)
        return x * self.power * factor, w + 1

    def backward(self, dy, dz):
        return F.clip(dy * self.power, -1, 1), dy * self.x * self.x + 5 * dz


def test_of_ones_own():
    """Function on symbols: values, gradients, second ones, inference and files as on arrays."""

    def loss(x, w):
        y, z = Clipped()(x, w, 2.0)
        return (y * y).sum() + (y * z).sum()

    x, w = wf.tensor([0.5, -2.0, 0.01]), wf.tensor([0.1, 0.2, -0.3])
    want = wf.grad(loss, argnums=(0, 1))(x, w)
    y = loss(sym.var("x"), sym.var("w"))
    assert y.list_arguments() == ["x", "w"]
    assert y.infer_shape(x=(3,))[0] == [(3,), (3,)]
    assert y.infer_type(w="float64")[0][1] is wf.float64
    for each in (y, sym.from_json(y.to_json())):
        near(each.eval(x=x, w=w)[0], loss(x, w))
        for got, right in zip(each.grad(["x", "w"]).eval(x=x, w=w), want, strict=True):
            near(got, right)
    exe = y.simple_bind(x=(3,), w=(3,), grad_req={"w": "write"})
    exe.forward(is_train=True, x=x, w=w)
    exe.backward()
    near(exe.grad_dict["w"], want[1])
    second = wf.grad(lambda w: wf.grad(loss, argnums=1)(x, w).sum())(w)
    near(y.grad("w").grad("w").eval(x=x, w=w)[0], second)
    assert wf.recompute(F.exp, sym.var("x")).eval(x=x)[0].shape == (3,)

    class Short(Clipped):
        def backward(self, dy, dz):
            return dy

    with pytest.raises(ValueError, match="Short: backward gave 1 gradients for 2 inputs"):
        Short()(sym.var("x"), sym.var("w"))


def test_training_through_a_gradient():
    """The executor differentiates a symbol that holds a gradient."""
    x = sym.var("x")
    penalty = (F.exp(x).grad("x") ** 2).sum()
    exe = penalty.bind(args=[wf.tensor([0.5])], args_grad=[wf.zeros(1)])
    exe.forward(is_train=True)
    exe.backward()
    assert exe.grad_arrays[0].item() == pytest.approx(2 * np.exp(1.0), rel=1e-5)
