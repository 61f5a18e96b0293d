"""Graphs as JSON: round trips of forward and backward graphs, and documents that are broken or hostile."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft as wf
import weft.ops.functions as F
from weft import _core
from weft.base.errors import GraphError
from weft.executor.planner import make_plan
from weft.graph.gradient import backward_graph
from weft.graph.graph import Graph, graph_of
from weft.graph.subgraph import Subgraph
from weft.graph.text import from_json, to_json
from weft.ops.node import constant, input_value, make_node
from weft.ops.sizes import input_size
from weft.ops.types import TensorType

X = TensorType((4, 3), wf.float32)


def program(x, w):
    y = F.matmul(x, w) * 2.5 + constant(1.0, wf.float32)
    z = F.softmax(F.clip(y, float("-inf"), 3.0), axis=0)
    return z, F.cast(F.sum(z, axis=1), dtype="float16"), None, *F.split(x, (1, 3), 0)


def forward():
    graph = graph_of(program, [X, TensorType((3, 3), wf.float32)])
    new = F.add(graph.inputs[0], 1)
    return Graph(graph.inputs, [*graph.outputs, new], {len(graph.outputs): 0})


def backward():
    graph = graph_of(lambda x, w: F.sum(F.relu(F.conv2d(x, w, padding=1)) ** 2), [
        TensorType((1, 2, 4, 4), wf.float32), TensorType((3, 2, 3, 3), wf.float32)
    ])  # fmt: skip
    return backward_graph(graph, [True, True], [True])


@pytest.mark.parametrize("make", [forward, backward])
def test_round_trip(make):
    graph = make()
    text = to_json(graph)
    again = from_json(text)
    assert str(again) == str(graph)
    assert to_json(again) == text
    assert again.writes == graph.writes


def test_what_was_read_computes_the_same():
    graph = forward()
    rng = np.random.default_rng(0)
    arrays = [wf.tensor(rng.standard_normal(v.shape, "float32")) for v in graph.inputs]
    results = [
        _core.run_plan(make_plan(g, "test", exact=True), [x.copy() for x in arrays])
        for g in (graph, from_json(to_json(graph)))
    ]
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_graphs_inside_operators():
    from weft.executor.control import CondBranch

    then, otherwise = (graph_of(f, [X]) for f in (lambda x: x * 2, lambda x: x - 1))
    op = CondBranch(then=Subgraph(then), otherwise=Subgraph(otherwise))
    pred, x = input_value(TensorType((), wf.bool), "pred"), input_value(X, "x")
    graph = Graph([pred, x], make_node(op, [pred, x]).outputs)
    text = to_json(graph)
    assert str(from_json(text)) == str(graph)
    assert to_json(from_json(text)) == text
    with pytest.raises(GraphError, match=r"then\.graph\.nodes"):
        from_json(text.replace('"op": "multiply"', '"op": "mutiply"'))


def test_numbers_given_at_run_time():
    x, number = input_value(X, "x"), input_value(constant(1.0).type, "number")
    graph = Graph([x, number], [F.multiply(x, number)])
    assert str(from_json(to_json(graph))) == str(graph)


def test_graphs_of_a_pattern_cannot_be_written():
    graph = graph_of(F.exp, [TensorType((input_size(0),), wf.float32)])
    with pytest.raises(GraphError, match="for all sizes"):
        to_json(graph)


def node_of(d, name):
    return next(n for n in d["nodes"] if n.get("op") == name)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda d: d.update(version=2), "version 2; this program reads version 1"),
        (lambda d: d.update(format="weft.symbol"), "format 'weft.symbol'"),
        (lambda d: d.update(inputs=1), "the first 1 nodes are the inputs"),
        (lambda d: d.update(inputs=99), "expected 0"),
        (lambda d: d["nodes"].append(d["nodes"][0]), "the first 2 nodes are the inputs"),
        (lambda d: d["nodes"].pop(), "expected 0"),
        (lambda d: d["outputs"].append([0]), "a node's number and an output's"),
        (lambda d: d.update(writes=[[0, 1]]), "cannot become the content of"),
        (lambda d: d.update(writes=[[2, 0]]), "each output becomes"),
        (lambda d: d["writes"].append(d["writes"][0]), "each array once"),
        (lambda d: d["writes"].append([0, 9]), "found 9"),
        (lambda d: node_of(d, "matmul").update(op="os.system"), "no operator is called"),
        (lambda d: node_of(d, "matmul").update(inputs=[[0, 0]]), "from_json: .*nodes"),
        (lambda d: node_of(d, "matmul").update(inputs=[[0, 0], [0, 0]]), "ShapeError: matmul"),
        (lambda d: node_of(d, "matmul").update(inputs=[[2, 0], [2, 0]]), "expected 0"),
        (lambda d: node_of(d, "matmul").update(types=[]), "makes .* the document says"),
        (lambda d: node_of(d, "softmax")["attributes"].update(axis=7), "IndexError"),
        (lambda d: node_of(d, "softmax").update(runtime={"axis": [0, 0]}), "is not a number given"),
        (lambda d: node_of(d, "softmax")["attributes"].update(axis={"device": "float32"}), "DeviceError"),
        (lambda d: d["nodes"][0]["type"].update(dtype="object"), "dtype"),
        (lambda d: d["nodes"][0]["type"].update(device="tpu:0"), "device"),
        (lambda d: d["nodes"][0]["type"].update(shape=[1 << 40, 1 << 40]), "too large"),
        (lambda d: d["nodes"][0]["type"].update(weak=1), "true or false"),
        (lambda d: d["nodes"][0]["type"].update(weak=True), "a number has no dimensions"),
    ],
)
def test_broken_documents(edit, words):
    content = json.loads(to_json(forward()))
    edit(content)
    with pytest.raises(GraphError, match=words):
        from_json(json.dumps(content))


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 9), st.integers(), st.floats(), st.text(max_size=6),
    st.lists(st.integers(-2, 9), max_size=3), st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)  # fmt: skip


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from places(part, (*path, key))


TEXTS = [to_json(forward()), to_json(backward())]
PLACES = [[p for p in places(json.loads(text)) if p] for text in TEXTS]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_hostile_edits(data):
    which = data.draw(st.integers(0, 1))
    content = json.loads(TEXTS[which])
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(PLACES[which]))
        parent = content
        try:
            for key in path[:-1]:
                parent = parent[key]
            if data.draw(st.booleans()):
                parent[path[-1]] = data.draw(VALUES)
            else:
                del parent[path[-1]]
        except (KeyError, IndexError, TypeError):
            continue
    try:
        graph = from_json(json.dumps(content))
    except GraphError as error:
        assert "from_json" in str(error)  # noqa: PT017 - any edit may leave a document that is right
    else:
        assert to_json(from_json(to_json(graph))) == to_json(graph)
