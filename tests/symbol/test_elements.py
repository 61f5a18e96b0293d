"""Elements of symbols: keys, assignment, the transpose, against arrays; shapes by what is known."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.symbol as sym
from weft.base.errors import GraphError, ShapeError

X = np.arange(24.0, dtype="float32").reshape(2, 3, 4)

KEYS = [
    np.s_[1:],
    np.s_[...],
    np.s_[..., -1],
    np.s_[0, ..., None, 1:3],
    np.s_[:, ::-2],
    np.s_[1, 2, 3],
    np.s_[:, None],
    np.s_[5:],
]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_keys(key):
    y = sym.var("x")[key]
    want = X[key]
    for each in (y, sym.from_json(y.to_json())):
        assert each.eval(x=X)[0].numpy().tolist() == want.tolist()
        assert each.infer_shape(x=X.shape)[1] == [want.shape]
    assert y.infer_type(x="int8")[1] == [wf.int8]
    dx = y.grad("x").eval(x=X)[0].numpy()
    ones = np.zeros_like(X)
    ones[key] = 1
    assert dx.tolist() == ones.tolist()


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_assignment(key):
    x, v = sym.var("x"), sym.var("v")
    y = x * 2
    before = y + 0
    y[key] = v
    want = X * 2
    want[key] = 7
    both = sym.group([before, y])
    for each in (both, sym.from_json(both.to_json())):
        old, new = each.eval(x=X, v=7.0)
        assert old.numpy().tolist() == (X * 2).tolist()
        assert new.numpy().tolist() == want.tolist()
    assert y.infer_shape(x=X.shape, v=())[1] == [X.shape]
    dx, dv = y.grad(["x", "v"]).eval(x=X, v=7.0)
    kept = np.full_like(X, 2)
    kept[key] = 0
    assert dx.numpy().tolist() == kept.tolist()
    assert dv.item() == X[key].size


def test_symbols_of_integers_are_indices():
    x, i = sym.var("x"), sym.var("i", dtype="int64")
    y = x[i, 1:]
    want = X[[1, 0, 1], 1:]
    assert y.eval(x=X, i=[1, 0, 1])[0].numpy().tolist() == want.tolist()
    assert y.infer_shape(x=(2, 3, 4), i=(3,))[1] == [(3, 2, 4)]
    assert x[i].infer_type(x="float64")[0][1] is wf.int64
    z = x + 0
    z[:, i] = 0.0
    changed = X.copy()
    changed[:, [2, 0]] = 0
    assert z.eval(x=X, i=[2, 0])[0].numpy().tolist() == changed.tolist()


def test_partial_shapes():
    x = sym.var("x")
    assert x[0, :, None].infer_shape_partial(x=(5, None, 3))[1] == [(None, 1, 3)]
    assert x[1:].infer_shape_partial(x=(None, 3))[1] == [(None, 3)]
    assert x.T.infer_shape_partial(x=(None, 3, 2))[1] == [(2, 3, None)]
    product = F.matmul(sym.var("w", shape=(4, 3)), x.T)
    assert product.infer_shape_partial(x=(None, None))[0] == [(4, 3), (None, 3)]
    with pytest.raises(ShapeError, match="too many indices: 2 for 1"):
        x[1:, 1:].infer_shape(x=(3,))
    with pytest.raises(IndexError, match="out of bounds"):
        x[3, ...].infer_shape(x=(3,))


def test_transpose():
    x = sym.var("x")
    assert x.T.eval(x=X)[0].numpy().tolist() == X.T.tolist()
    assert x.T.grad("x").infer_shape(x=(2, 5))[1] == [(2, 5)]
    assert (x.T @ x).eval(x=X[0])[0].numpy().tolist() == (X[0].T @ X[0]).tolist()


def test_assignment_inside_of_functions():
    def step(x, h):
        h[0:1] = x
        return h, h

    _, last = sym.foreach(step, sym.var("x"), sym.var("h"))
    assert last.eval(x=[1.0, 2.0], h=[0.0, 5.0])[0].numpy().tolist() == [2.0, 5.0]
    outer = sym.var("outer") * 1

    def wrong(x, h):
        outer[...] = x
        return h, h

    with pytest.raises(GraphError, match=r"a function assigns elements of multiply\d+, which is not its own"):
        sym.foreach(wrong, sym.var("x"), sym.var("h"))


def test_executors_of_before_keep_what_they_had():
    y = sym.var("x") + 1
    exe = y.bind(args=[wf.tensor([1.0, 2.0])])
    y[:1] = 0.0
    assert exe.forward()[0].numpy().tolist() == [2.0, 3.0]
    assert y.bind(args=[wf.tensor([1.0, 2.0])]).forward()[0].numpy().tolist() == [0.0, 3.0]


def test_training_through_an_assignment():
    x = sym.var("x")
    y = x * x
    y[1:] = x[:1] * 3
    exe = y.sum().bind(args=[wf.tensor([2.0, 5.0])], args_grad=[wf.zeros(2)])
    exe.forward(is_train=True)
    exe.backward()
    assert exe.grad_arrays[0].numpy().tolist() == [7.0, 0.0]


@pytest.mark.parametrize(
    ("use", "error", "words"),
    [
        (lambda x: x["1"], GraphError, "no output '1'"),
        (lambda x: x[1.5], TypeError, "chooses outputs by int or name"),
        (lambda x: x[True], TypeError, "chooses outputs"),
        (lambda x: x[[1, 2]], TypeError, "chooses outputs"),
        (lambda x: x["a":"b"], TypeError, "a slice is of integers"),
        (lambda x: x.__setitem__(0, 1.0), TypeError, r"\[0\] is an output; \[0, ...\] = ... assigns"),
        (lambda x: x.__setitem__((0, ...), "1"), TypeError, "expected a symbol, a number or an array"),
    ],
)
def test_what_is_no_key(use, error, words):
    with pytest.raises(error, match=words):
        use(sym.var("x"))
