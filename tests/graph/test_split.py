"""A graph in two parts: the first keeps what the second reads, and nothing is computed twice but views."""

import numpy as np
import tests.ops.material  # noqa: F401  (references of operators)

import weft as wf
import weft.ops.functions as F
from weft.graph.gradient import gradients
from weft.graph.graph import Graph, interpret
from weft.graph.split import split
from weft.ops.families.creation import Stepped
from weft.ops.node import apply, input_value
from weft.ops.types import TensorType

X = TensorType((3, 4), wf.float32)


def names(graph):
    return [node.op.name for node in graph.nodes if node.op is not None]


def test_both_parts_compute_what_the_whole_does():
    x, w, dy = (input_value(X, name) for name in ("x", "w", "dy"))
    h = F.exp(F.permute_dims(x, axes=(1, 0)))
    y = F.permute_dims(F.tanh(h), axes=(1, 0)) * w
    found = gradients([y], [x, w], [dy])
    kept, second = split([y], found)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((3, 4), "float32") for _ in range(3)]
    first = interpret(Graph([x, w], [y, *kept.values()]), arrays[:2])
    rest = interpret(Graph([x, w, dy, *kept], second), [*arrays, *first[1:]])
    whole = interpret(Graph([x, w, dy], found), arrays)
    for a, b in zip(rest, whole, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert not {"exp", "tanh"} & set(names(Graph((), second)))


def test_views_are_made_again_instead_of_kept():
    x, dy = input_value(X, "x"), input_value(X.like((4, 3)), "dy")
    y = F.sin(F.permute_dims(F.exp(x), axes=(1, 0)))
    kept, _ = split([y], gradients([y], [x], [dy]))
    assert [value.node.op.name for value in kept.values()] == ["exp"]


def test_what_numbers_make_is_made_again_where_it_has_no_device():
    """A kept value would have the device of the first part, and what reads it none."""
    x, dy = input_value(X, "x"), input_value(X, "dy")
    steps = F.reshape(apply(Stepped, (), {"shape": (4,)}), shape=(1, 4))
    assert steps.node.device is None
    y = x * steps
    kept, (dx,) = split([y, steps], gradients([y], [x], [dy]))
    assert not kept
    assert {"stepped", "reshape"} <= set(names(Graph((), [dx])))


def test_inputs_are_read_where_they_are():
    x, dy = input_value(X, "x"), input_value(X, "dy")
    y = x * x
    kept, (dx,) = split([y], gradients([y], [x], [dy]))
    assert not kept
    assert interpret(Graph([x, dy], [dx]), [np.full((3, 4), 3.0), np.ones((3, 4))])[0][0, 0] == 6


def test_long_chains_need_no_recursion():
    x, dy = input_value(X, "x"), input_value(X, "dy")
    y = x
    for _ in range(3000):
        y = F.sin(y)
    kept, _ = split([y], gradients([y], [x], [dy]))
    assert len(kept) == 2999
