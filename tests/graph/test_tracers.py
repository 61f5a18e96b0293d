"""What a recorded function holds is a Tracer, which answers as a Tensor; a Value is equal to itself only."""

import copy

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft import _core
from weft.graph.capture import Capture
from weft.ops.node import Tracer, Value, input_value, traced, value_of
from weft.ops.types import TensorType

VECTOR = TensorType((2,), wf.float32)


def recorded(function):
    """What a function of one array gives while it is recorded."""
    seen = []

    def body(x):
        seen.append(function(x))
        return x

    wf.vmap(body)(wf.ones((3, 2)))
    return seen[0]


def test_values_are_compared_by_identity_whatever_is_recorded():
    x, y = input_value(VECTOR), input_value(VECTOR)
    capture = Capture("example")
    seen = []
    capture.run(lambda: seen.extend([x == x, x == y, x != y, x in [y], {x: 1, y: 2}[x]]) or [])
    assert seen == [True, False, True, False, 1]
    assert all(type(v) in (bool, int) for v in seen)


def test_a_value_has_no_truth():
    with pytest.raises(TypeError, match="truth of a value in a graph"):
        bool(input_value(VECTOR) > 0)


def test_a_tracer_is_a_tensor_whoever_asks():
    namespace = {}
    # As a file of the package, whose own code is not the user's.
    exec(compile("def asks(x, kind): return isinstance(x, kind)", wf.__file__, "exec"), namespace)
    asks = namespace["asks"]
    assert recorded(lambda x: (asks(x, wf.Tensor), asks(x, Tracer), asks(x, Value))) == (True, True, False)
    assert not asks(input_value(VECTOR), wf.Tensor)


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x + 1,
        lambda x: 1 - x,
        lambda x: x == x,
        lambda x: F.concat([x, x]),
        lambda x: F.topk(x, k=1)[0],
        lambda x: x[0],
        lambda x: x.T,
        lambda x: x.sum(),
        lambda x: x.detach(),
        lambda x: x.copy(),
        lambda x: copy.deepcopy(x),
        lambda x: np.sin(x),
        lambda x: wf.asarray([x[0], x[1]]),
        lambda x: wf.zeros(2) + x,
        lambda x: wf.grad(lambda t: (t * t).sum())(x),
        lambda x: wf.cond(x.sum() > 0, lambda: x, lambda: -x),
        lambda x: wf.foreach(lambda a, s: (a, s + a), x, wf.tensor(0.0))[1],
        lambda x: wf.while_loop(lambda t: t.sum() < 9, lambda t: t + 1, x),
        lambda x: wf.vmap(lambda t: t * 2)(x),
        lambda x: wf.jvp(wf.sin, (x,), (x,))[1],
        lambda x: wf.vjp(wf.sin, x)[1](x)[0],
        lambda x: wf.random.permutation(x),
    ],
)
def test_what_operations_give_of_tracers_are_tracers(operation):
    result = recorded(lambda x: (operation(x), operation(x)))
    assert all(type(y) is type(traced(input_value(VECTOR))) for y in result)
    assert all(isinstance(value_of(y), Value) for y in result)


def test_equality_of_a_tracer_is_one_of_elements():
    def function(x):
        y = x + 0
        return wf.where(x == y, x, -x) + (x != y).astype("float32")

    x = wf.tensor([[1.0, float("nan")]])
    y = wf.vmap(function)(x).numpy()
    assert y[0, 0] == 1
    assert np.isnan(y[0, 1])


def test_operators_and_graphs_hold_values_only():
    """Nothing that a function holds gets into what is recorded: each node reads Values, and gives them."""

    def function(x):
        y = x * 2
        y[0] = 3
        return wf.cond(y.sum() > 0, lambda: F.softmax(y, axis=0), lambda: y)

    traced_function = wf.trace(function, dynamic={"x": 0})
    traced_function(wf.ones(3))
    graph = traced_function.programs[0].graph
    for node in graph.nodes:
        assert all(type(v) is Value for v in (*node.reads, *node.outputs))
    assert all(type(v) is Value for v in (*graph.inputs, *graph.outputs))


def test_a_mixed_call_of_a_value_and_a_tracer_gives_a_tracer():
    outer = input_value(VECTOR)
    capture = Capture("example")
    x = capture.input(VECTOR)
    held = traced(x)
    seen = []

    def run():
        seen.extend([outer * held, held * outer])
        return seen

    outputs = capture.run(run).outputs
    assert all(isinstance(y, Tracer) for y in seen)
    assert [type(v) for v in outputs] == [Value, Value]
    assert capture.captures[0] is outer
    assert _core.capture() is None


def test_nothing_that_outlives_a_recording_keeps_a_tracer():
    """Buffers, optimizers and attached tensors are arrays with memory."""

    class Keeps(wf.module.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", wf.zeros(2))

        def forward(self, x):
            self.kept = x
            return x

    for keep in (
        Keeps(),
        lambda x: wf.module.Module().register_buffer("kept", x),
        lambda x: wf.optimizer.SGD([x], lr=1.0),
        lambda x: wf.GradManager().attach([x]),
    ):
        with pytest.raises(TypeError):
            recorded(keep)
