"""Python numbers that are written to arrays of integers: cut to integers, and refused where they do not fit."""

import math

import pytest

import weft as wf
import weft.functional as F

KEYS = {"basic": slice(0, 1), "list": [0], "all": slice(None), "mask": None, "integers": ([0], [1])}


def array(rank=1):
    x = wf.tensor([1, 2, -3], dtype="int8")
    return x if rank == 1 else wf.broadcast_to(x, (2, 3)).copy()


def put(key, value):
    x = array(2 if key == "integers" else 1)
    x[x > 0 if KEYS[key] is None else KEYS[key]] = value
    return x


@pytest.mark.parametrize("key", KEYS)
def test_assignment(key):
    for value in (300, -129, 1e9, [300] if key != "mask" else 300):
        with pytest.raises(OverflowError, match="out of bounds for int8"):
            put(key, value)
    with pytest.raises(ValueError, match="NaN"):
        put(key, math.nan)
    assert 7 in put(key, 7.9).numpy()
    assert -128 in put(key, -128).numpy()


FUNCTIONS = {
    "index_put": lambda x, s: F.index_put(x, s, wf.tensor([0]), axes=(0,)),
    "index_add": lambda x, s: F.index_put(x, s, wf.tensor([0]), axes=(0,), mode="add"),
    "put_along_axis": lambda x, s: F.put_along_axis(x, wf.tensor([0]), s, axis=0),
    "masked_fill": lambda x, s: F.masked_fill(x, x > 1, s),
    "assigned": lambda x, s: (x.__setitem__([0], s), x)[1],
}
GRAPHS = {
    "eager": lambda f: f,
    "trace": lambda f: wf.trace(f, strict=True),
    "lazy": lambda f: wf.trace(f, strict=True, lazy=True),
}


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, graph):
    function = FUNCTIONS[name]
    traced = GRAPHS[graph](function)
    for _ in range(2):
        assert traced(array(), 3.2).numpy().tolist() == function(array(), 3).numpy().tolist()
        with pytest.raises(OverflowError):
            traced(array(), 300.0)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "assigned"])
def test_functions_of_values(name):
    function = FUNCTIONS[name]
    traced = wf.trace(lambda x: function(x, 3.2), dynamic={"x": 0})
    assert traced(array()).numpy().tolist() == function(array(), 3).numpy().tolist()
    with pytest.raises(OverflowError):
        wf.trace(lambda x: function(x, 300), dynamic={"x": 0})(array())


def test_float_arguments_of_programs():
    traced = wf.trace(lambda s: wf.full(2, s, dtype="int32"), strict=True)
    assert [traced(s).numpy().tolist() for s in (1.5, 2.5, 1.0)] == [[1, 1], [2, 2], [1, 1]]
    with pytest.raises(OverflowError):
        traced(3e9)
