"""Operators between tensors and NumPy's arrays and scalars: tensors, with gradients, on either side."""

import operator

import numpy as np
import pytest

import weft as wf
import weft.functional as F

OPERATORS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "pow": operator.pow,
}
COMPARISONS = [operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge]
OTHERS = {
    "float64": np.float64(1.5),
    "float32": np.float32(1.5),
    "int64": np.int64(2),
    "array": np.array([0.5, 1.5, 2.5], "float32"),
    "wide": np.array([0.5, 1.5, 2.5]),
    "row": np.array([[1.0], [2.0]], "float32"),
    "0d": np.array(1.5, "float32"),
}


def data():
    return wf.tensor([1.0, 2.0, 3.0])


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_give_tensors_with_gradients(name, other):
    function, y = OPERATORS[name], OTHERS[other]
    own = y.item() if isinstance(y, np.generic) else wf.asarray(y)
    for left in (False, True):

        def compute(x, y, left=left):
            return function(y, x) if left else function(x, y)

        found, expected = compute(data(), y), compute(data(), own)
        assert type(found) is wf.Tensor
        assert found.dtype is expected.dtype
        assert found.numpy().tolist() == expected.numpy().tolist()
        if name in ("add", "subtract", "multiply", "divide", "pow"):
            slopes = [wf.grad(lambda x, z=z: compute(x, z).sum())(data()).numpy().tolist() for z in (y, own)]
            assert slopes[0] == slopes[1] != [0, 0, 0]


@pytest.mark.parametrize("other", OTHERS)
def test_comparisons_give_tensors(other):
    y = OTHERS[other]
    for function in COMPARISONS:
        for a, b in ((data(), y), (y, data())):
            found = function(a, b)
            assert type(found) is wf.Tensor
            assert found.numpy().tolist() == function(np.asarray(a), np.asarray(b)).tolist()


def test_products():
    x, a = wf.ones((2, 3)), np.arange(6, dtype="float32").reshape(3, 2)
    for found, expected in ((x @ a, np.ones((2, 3)) @ a), (a @ x, a @ np.ones((2, 3)))):
        assert type(found) is wf.Tensor
        assert found.numpy().tolist() == expected.tolist()
    assert wf.grad(lambda x: (a @ x).sum())(x).numpy().tolist() == [[6, 6, 6], [9, 9, 9]]


@pytest.mark.parametrize("other", [k for k in OTHERS if k != "row"])
@pytest.mark.parametrize("function", [operator.iadd, operator.isub, operator.imul, operator.itruediv])
def test_in_place_writes_the_tensor(function, other):
    y = OTHERS[other]
    x = data()
    expected = function(x.numpy().astype("float64").copy(), y)
    alias, same = x, x[:]
    x = function(x, y)
    assert x is alias
    assert np.allclose(same.numpy(), expected)


def test_in_place_on_an_array_stays_the_array():
    a = np.ones(3)
    alias = a
    a += data()
    assert a is alias
    assert a.tolist() == [2, 3, 4]


def test_gradients_of_a_mixed_loss():
    w = wf.tensor([1.0, 2.0])
    gm = wf.GradManager().attach(w)
    with gm:
        gm.backward((w * w).sum() + (np.float64(0.5) * w).sum() + (np.ones(2, "float32") * w).sum())
    assert w.grad.numpy().tolist() == [3.5, 5.5]


def test_functions_take_arrays():
    a = np.array([[1.0, 2.0]], "float32")
    assert F.linear(a, wf.ones((3, 2))).numpy().tolist() == [[3, 3, 3]]
    assert F.add(np.float32(1), data()).numpy().tolist() == [2, 3, 4]
    assert F.where(np.array([True, False, True]), data(), 0.0).numpy().tolist() == [1, 0, 3]


def test_numpys_functions_are_wefts():
    x = data()
    assert type(np.exp(x)) is wf.Tensor
    assert type(np.maximum(x, 2)) is wf.Tensor
    assert np.allclose(np.arctan2(x, 2.0).numpy(), np.arctan2(x.numpy(), 2.0))
    assert wf.grad(lambda x: np.exp(x).sum())(x).numpy().tolist() == F.exp(x).numpy().tolist()
    out = wf.zeros(3)
    assert np.add(x, 1, out=out) is out
    assert out.numpy().tolist() == [2, 3, 4]
    assert isinstance(np.add.reduce(x), np.float32 | np.ndarray)
    assert np.add.reduce(x) == 6
    assert np.spacing(x).tolist() == np.spacing(x.numpy()).tolist()  # weft has no such function


def test_numpys_own_functions_refuse_what_is_recorded():
    w = data()
    gm = wf.GradManager().attach(w)
    with gm:
        y = w * 2
        with pytest.raises(TypeError, match=r"numpy.spacing.*gradients end.*detach"):
            np.spacing(y)
        with pytest.raises(TypeError, match=r"numpy.add.*gradients end"):
            np.add(y, 1, out=np.zeros(3))
        assert np.spacing(y.detach()).shape == (3,)
        assert y.numpy().tolist() == [2, 4, 6]  # looking detaches
        gm.backward(y.sum())
    assert w.grad.numpy().tolist() == [2, 2, 2]


BOX = {"scalar": np.float32(2), "wide": np.float64(2), "array": np.array([1.0, 2.0], "float32")}
GRAPHS = {
    "trace": lambda f: wf.trace(f, strict=True),
    "dynamic": lambda f: wf.trace(f, dynamic={"x": 0}),
    "foreach": lambda f: wf.trace(lambda x: wf.foreach(lambda v, c: (f(v), c), x, ())[0], strict=True),
    "cond": lambda f: wf.trace(lambda x: wf.cond(x.sum() > 0, lambda: f(x), lambda: x), strict=True),
    "lazy": lambda f: wf.trace(f, lazy=True, strict=True),
}


@pytest.mark.filterwarnings("ignore::weft.TraceWarning")
@pytest.mark.parametrize("other", BOX)
@pytest.mark.parametrize("graph", GRAPHS)
def test_operators_in_graphs(graph, other):
    y = BOX[other]
    for f in (lambda x: x * y + 1, lambda x: y * x + 1, lambda x: y - x / y, lambda x: (y > x) * 1.0):
        g, x = GRAPHS[graph](f), wf.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        expected = f(x)
        for _ in range(2):
            found = g(x)
            assert type(found) is wf.Tensor
            assert found.dtype is expected.dtype
            assert found.numpy().tolist() == expected.numpy().tolist()


@pytest.mark.parametrize(
    "container", [lambda a: {"a": a}, lambda a: [a], lambda a: (1, (a,)), lambda a: {0: [a]}]
)
def test_arrays_in_containers_are_read_at_each_call(container):
    array = np.zeros(2, "float32")
    box = container(array)
    f = wf.trace(lambda x: x + wf.tensor(next(y for y in leaves(box) if y is array)), strict=True)
    with pytest.warns(
        wf.TraceWarning, match="an element of a (dict|list|tuple) is a NumPy array that is no argument"
    ):
        f(wf.zeros(2))
    for k in range(3):
        array[:] = k
        assert f(wf.zeros(2)).tolist() == [k, k]
    assert len(f.programs) == 1


def leaves(x):
    """What is in nested containers."""
    if isinstance(x, dict):
        x = list(x.values())
    return [y for each in x for y in leaves(each)] if isinstance(x, list | tuple) else [x]


@pytest.mark.filterwarnings("ignore::weft.TraceWarning")
def test_gradients_in_graphs():
    a = np.array([1.0, 2.0], "float32")
    step = wf.trace(wf.grad(lambda x: (a * x * np.float64(0.5)).sum()), strict=True)
    assert [step(wf.ones(2)).numpy().tolist() for _ in range(3)] == [[0.5, 1]] * 3
