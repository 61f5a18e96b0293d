"""Whole segments computed again: what is kept, how much memory is left, how often nodes run, the same numbers."""

from collections import Counter

import numpy as np
import pytest
import tests.ops.material  # noqa: F401  (references of operators)

import weft.ops.functions as F
from weft.base.dtype import float32
from weft.executor.planner import make_plan
from weft.graph.gradient import joint_graph
from weft.graph.graph import Graph, interpret
from weft.graph.passes import optimize
from weft.graph.passes.recompute import is_view, rematerialize
from weft.graph.passes.segments import SegmentSearch
from weft.graph.verify import same_interface, verify
from weft.ops.node import input_value
from weft.ops.types import TensorType

ROWS, WIDTH = 64, 16


def t(*shape):
    return TensorType(shape, float32)


def deep(layers, layer):
    """A training step of a chain of layers, optimized; layer(x, weight)."""
    x = input_value(t(ROWS, WIDTH), "x")
    weights = [input_value(t(WIDTH, WIDTH), f"w{k}") for k in range(layers)]
    y = x
    for weight in weights:
        y = layer(y, weight)
    loss = F.mean(y * y)
    joint = joint_graph(Graph([x, *weights], [loss]), [False, *[True] * layers], [True])
    updates = [w - 0.1 * dw for w, dw in zip(weights, joint.outputs, strict=True)]
    return optimize(Graph(joint.inputs, [loss, *updates], {1 + k: 1 + k for k in range(layers)}))


def plain_layer(x, weight):
    return F.tanh(F.matmul(x, weight))


def residual(x, weight):
    return x + F.relu(F.matmul(F.tanh(F.matmul(x, weight)), weight))


def viewed(x, weight):
    """Through views of what is computed again, and of those."""
    y = F.reshape(F.matmul(x, weight), shape=(ROWS // 2, 2, WIDTH))
    y = F.permute_dims(F.exp(-y * y), (1, 0, 2))
    return F.reshape(F.permute_dims(y, (1, 0, 2)), shape=(ROWS, WIDTH))


def several_outputs(x, weight):
    return F.layer_norm(F.matmul(x, weight), WIDTH) + F.softmax(x, axis=1)


def again(graph, share):
    segments = SegmentSearch(graph)
    chosen = segments.select(share * segments.saved_bytes)
    assert chosen, share
    made = rematerialize(graph, chosen)
    verify(made)
    same_interface(graph, made, "segments")
    return made


def arena(graph):
    return make_plan(graph, "step", exact=True).info.memory_report().arena_bytes


@pytest.mark.parametrize("layer", [plain_layer, residual, viewed, several_outputs])
@pytest.mark.parametrize("share", [0.75, 0.5])
def test_the_same_numbers_in_less_memory(layer, share):
    graph = deep(16, layer)
    made = again(graph, share)
    assert arena(made) < arena(graph)
    draw = np.random.default_rng(0)
    arrays = [draw.standard_normal(v.shape, dtype="float32") * 0.2 for v in graph.inputs]
    for a, b in zip(interpret(graph, arrays), interpret(made, arrays), strict=True):
        np.testing.assert_array_equal(a, b)


def test_nodes_run_twice_at_most():
    graph = deep(24, plain_layer)
    before = Counter(node.op.name for node in graph.nodes if node.op is not None and not is_view(node))
    made = again(graph, 0.4)
    after = Counter(node.op.name for node in made.nodes if node.op is not None and not is_view(node))
    forward = 24
    assert 0 < after["epilogue"] - before["epilogue"] <= forward
    assert {name for name in after if after[name] != before[name]} == {"epilogue"}  # a product with its tanh


def test_a_larger_budget_computes_less_again():
    graph = deep(32, plain_layer)
    counts = [len(again(graph, share).nodes) for share in (0.9, 0.7, 0.5, 0.4)]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_the_square_root_law():
    """What a chain of n layers needs at the least grows as the square root of n."""

    def least(layers):
        segments = SegmentSearch(deep(layers, plain_layer))
        size = segments.saved_bytes
        shares = (k / 256 for k in range(1, 257))
        return next(share * size for share in shares if segments.select(share * size) is not None)

    small, large = least(32), least(512)
    assert large < 5 * small
    assert large < 16 * small / 3


def test_cheap_units_come_first():
    """Elementwise layers are computed again, products before them are not."""
    x = input_value(t(64, 256), "x")
    weights = [input_value(t(256, 256), f"w{k}") for k in range(8)]
    y = x
    for weight in weights:
        y = plain_layer(y, weight)
    for _ in range(8):
        y = F.erf(F.exp(F.sin(y)))
    joint = joint_graph(Graph([x, *weights], [F.mean(y)]), [False, *[True] * 8], [True])
    graph = optimize(Graph(joint.inputs, joint.outputs))
    counts = [
        Counter(n.op.name for n in each.nodes if n.op is not None) for each in (graph, again(graph, 0.75))
    ]
    assert counts[1]["epilogue"] == counts[0]["epilogue"]
    assert counts[1]["erf"] > counts[0]["erf"] or counts[1]["exp"] > counts[0]["exp"]


def test_no_choice_where_nothing_is_enough():
    assert SegmentSearch(deep(4, plain_layer)).select(0) is None
