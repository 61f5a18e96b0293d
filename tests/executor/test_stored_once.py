"""Values that several passes over a row need: computed once and stored in a result's memory.

Elements have the bits that computing again gives; sums of them are added up in another order.
"""

import numpy as np
import pytest
import tests.ops.material  # noqa: F401  (references of operators)

import weft as wf
import weft.ops.functions as F
from weft import _core
from weft.base.dtype import as_dtype
from weft.executor import stored_once
from weft.executor.planner import loops_of, make_plan
from weft.executor.stored_once import ROW_BYTES
from weft.expr import scalar as e
from weft.expr.kernel import parts
from weft.graph.graph import Graph, graph_of, interpret
from weft.ops.types import TensorType


def softmax(x, axis=-1):
    powers = F.exp(x - F.max(x, axis=axis, keepdims=True))
    return powers / F.sum(powers, axis=axis, keepdims=True)


def with_powers(x):
    powers = F.exp(x - F.max(x, axis=-1, keepdims=True))
    return powers / F.sum(powers, axis=-1, keepdims=True), powers


def times_itself(x):
    """Reads x again in the last pass, when the result's memory holds the exponentials."""
    return softmax(x) * x + x


def tanh_normalized(x):
    """Two sums of one function: passes for the mean, the variance and the result."""
    y = F.tanh(x)
    apart = y - F.mean(y, axis=-1, keepdims=True)
    return apart * F.rsqrt(F.mean(apart * apart, axis=-1, keepdims=True) + 1e-5)


def two_functions(x):
    """Two values that are needed twice and two results that can hold them."""
    a, b = F.exp(x), F.sin(x)
    return a / F.sum(a, axis=-1, keepdims=True), b / F.sum(b * b + 1.0, axis=-1, keepdims=True)


def two_axes(x):
    powers = F.exp(x)
    return powers / F.sum(powers, axis=(-2, -1), keepdims=True)


def half_result(x):
    return F.cast(softmax(x), dtype="float16")


STORED = [softmax, with_powers, times_itself, tanh_normalized, two_functions]


def graph(function, shape=(20, 30), dtype="float32"):
    return graph_of(function, [TensorType(shape, as_dtype(dtype), wf.as_device(None))])


def calls(function, **types):
    """How many functions all passes of a graph's loops compute for an element."""
    found = 0
    for code in loops_of(graph(function, **types), "test"):
        for stage in code.stages:
            nodes = e.walk(*(part.value for part in parts(stage)))
            found += sum(n.op in e.FUNCTIONS and any(a.op == "load" for a in e.walk(n)) for n in nodes)
    return found


def run(function, x):
    plan = make_plan(graph(function, x.shape, x.dtype.name), "test", exact=True)
    return [y.numpy() for y in _core.run_plan(plan, [wf.tensor(x)])], plan


@pytest.fixture
def computed_again(monkeypatch):
    """A switch: afterwards every pass computes what it needs by itself."""

    def switch():
        monkeypatch.setattr(stored_once, "store_once", lambda shape, axes, stages, inputs, outputs: stages)

    return switch


@pytest.mark.parametrize("function", [*STORED, two_axes])
def test_functions_are_computed_once(function, computed_again):
    shape = (6, 20, 30) if function is two_axes else (20, 30)
    once = calls(function, shape=shape)
    computed_again()
    again = calls(function, shape=shape)
    assert once == (2 if function is two_functions else 1)
    assert again > once


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 17), (70, 300), (2, 5, 33)])
@pytest.mark.parametrize("function", [*STORED, two_axes])
def test_values_are_those_of_computing_again(function, shape, dtype, computed_again):
    x = np.random.default_rng(3).normal(0, 3, shape).astype(dtype)
    stored, plan = run(function, x)
    computed_again()
    again, plain = run(function, x)
    for a, b in zip(stored, again, strict=True):
        near = 1e-6 if dtype == "float32" else 1e-14
        np.testing.assert_allclose(a, b, rtol=near, atol=near)
    if function is with_powers:
        np.testing.assert_array_equal(stored[1], again[1])
    for a, b in zip(stored, interpret(graph(function, shape, dtype), [x]), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
    assert len(plan.info.steps) == len(plain.info.steps)
    assert plan.info.memory_report().arena_bytes == plain.info.memory_report().arena_bytes


@pytest.mark.parametrize("function", [softmax, times_itself])
def test_special_values(function, computed_again):
    x = np.array([[0.0, np.inf, 1.0], [np.nan, 1.0, 2.0], [-np.inf] * 3, [1e38, -1e38, 0.0]], "float32")
    stored, _ = run(function, x)
    computed_again()
    np.testing.assert_array_equal(stored[0], run(function, x)[0][0])


@pytest.mark.parametrize(
    ("function", "types"),
    [
        (lambda x: softmax(x, 0), {}),  # rows that lie side by side are shared by threads pass by pass
        (half_result, {}),  # the result cannot hold a float32
        (softmax, {"shape": (4, ROW_BYTES)}),  # the row leaves the cache before it is read again
        (lambda x: F.sum(softmax(x) * x, axis=-1), {}),  # there is no result of that size
    ],
)
def test_where_it_is_not_done(function, types):
    """The loops are those that computing again gives: none of them reads what it stored."""
    for code in loops_of(graph(function, **types), "test"):
        for stage in code.stages:
            loads = [n for n in e.walk(*(p.value for p in parts(stage))) if n.op == "load"]
            assert all(n.value < code.inputs for n in loads), code.stages


def test_cheap_values_are_computed_again():
    def normalized(x):
        apart = x - F.mean(x, axis=-1, keepdims=True)
        return apart / F.sum(apart * apart, axis=-1, keepdims=True)

    (code,) = loops_of(graph(normalized), "test")
    assert len(code.stages) == 3


def test_the_content_of_an_input_is_replaced(computed_again):
    """x becomes its own softmax: the program may compute it in x's memory, but not while it reads x."""
    x = np.random.default_rng(0).normal(size=(40, 50)).astype("float32")

    def replaced():
        made = graph(times_itself, x.shape)
        plan = make_plan(Graph(made.inputs, made.outputs, {0: 0}), "test", visible=0, exact=True)
        tensor = wf.tensor(x)
        _core.run_plan(plan, [tensor])
        return tensor.numpy()

    stored = replaced()
    np.testing.assert_allclose(stored, interpret(graph(times_itself, x.shape), [x])[0], rtol=2e-4, atol=2e-5)
    computed_again()
    np.testing.assert_allclose(stored, replaced(), rtol=1e-6, atol=1e-6)
