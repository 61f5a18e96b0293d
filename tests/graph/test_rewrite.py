"""Rebuilding graphs: what is kept, what is shared, and which rewrites are not taken."""

import random

import pytest

from weft.base.dtype import float32, int32
from weft.graph.graph import Graph, graph_of
from weft.graph.passes import PASSES
from weft.graph.rewrite import Rewriting, complete, counters, from_operands, local, rewrite
from weft.kernels import first_choice
from weft.ops import functions as F
from weft.ops.families.arithmetic import Add, Multiply, Positive
from weft.ops.families.elementary import Exp, Log
from weft.ops.families.random import Dropout
from weft.ops.node import constant, input_value, make_node
from weft.ops.types import TensorType

X = TensorType((2, 3), float32)


def first_input(node, graph):
    """A rule that leaves out positive and add."""
    return graph.new(node.inputs[0]) if isinstance(node.op, Positive | Add) else None


def test_what_does_not_change_is_shared():
    graph = graph_of(lambda x, y: (F.exp(F.positive(F.log(x))), F.exp(y)), [X, X])
    assert rewrite(graph, lambda node, graph: None) is graph
    made = rewrite(graph, first_input)
    assert made.inputs == graph.inputs
    assert made.outputs[1] is graph.outputs[1]
    assert [type(n.op) for n in made.nodes if n.op] == [Log, Exp, Exp]
    assert len(graph.nodes) == 6, "the old graph stays as it was"


def test_places_and_lines_are_taken_over():
    x = input_value(X)
    middle = F.positive(F.exp(x))
    last = F.log(middle)
    for k, value in enumerate((middle.node.inputs[0], middle, last)):
        value.node.where = f"model.py:{k}"

    def two(node, graph):
        if isinstance(node.op, Positive):
            return graph.new(node.inputs[0]) * 2 + 1
        return None

    made = rewrite(Graph([x], [last]), two)
    nodes = [n for n in made.nodes if n.op]
    assert [n.where for n in nodes] == ["model.py:0", "model.py:1", "model.py:1", "model.py:2"]
    assert [n.order for n in nodes] == [
        middle.node.inputs[0].node.order,
        middle.node.order,
        middle.node.order,
        last.node.order,
    ]


def test_other_types_are_not_taken():
    for function, types in (
        (lambda x: F.exp(x + 1.5), [TensorType((2,), int32)]),  # promotion
        (lambda x, y: F.exp(x + y), [TensorType((3,), float32), X]),  # broadcasting
        (lambda x: F.exp(F.add(1, x)), [X]),  # a Python number
    ):
        graph = graph_of(function, types)
        assert rewrite(graph, first_input) is graph


def test_memory_of_their_own():
    """A result that callers may write does not become a view of what they gave."""
    x = input_value(X)
    for output in (F.positive(x), F.reshape(F.positive(x), shape=(6,)), F.split(F.positive(x), 2)[0]):
        assert rewrite(Graph([x], [output]), first_input).outputs == (output,)
    inside = Graph([x], [F.sum(F.positive(x))])
    assert len(rewrite(inside, first_input).nodes) == 2
    of_result = Graph([x], [F.positive(F.exp(x))])
    assert len(rewrite(of_result, first_input).nodes) == 2


def test_random_numbers_are_drawn():
    def second(node, graph):
        return graph.new(node.inputs[1]) if isinstance(node.op, Multiply) else None

    x = input_value(X)
    dropped = make_node(Dropout(), [x]).outputs[0]
    for graph in (Graph([x], [F.exp(dropped * x)]), Graph([x], [F.exp(F.exp(dropped) * x)])):
        assert rewrite(graph, second) is graph
    both = Graph([x], [F.exp(dropped * x) + dropped])
    assert rewrite(both, second) is both
    kept = Graph([x], [F.exp(dropped * F.log(dropped))])
    assert len(rewrite(kept, second).nodes) == 4


def test_constants_and_runtime_values_are_replaced():
    x, p = input_value(X), input_value(TensorType((), float32, weak=True), "p")
    out = F.leaky_relu(F.positive(F.exp(x)), negative_slope=p)
    made = rewrite(Graph([x, p], [out]), first_input)
    (node,) = [n for n in made.nodes if n.op and n.runtime]
    assert node.runtime == {"negative_slope": p}
    assert str(made).count("Positive") == 0


def test_readers():
    seen = {}

    def look(node, graph):
        seen[type(node.op)] = graph.reader(node.outputs[0]), graph.is_read(node.outputs[0])

    x = input_value(X)
    a = F.exp(x)
    b = F.log(a)
    graph = Graph([x], [b * b, F.split(a, 1)[1]])
    rewrite(graph, look)
    assert seen[Exp] == (None, True)
    assert seen[Log] == (None, True)
    assert seen[Multiply] == (None, True)


def test_rules_that_undo_each_other():
    def turn(node, graph):
        return F.add(*map(graph.new, reversed(node.inputs))) if isinstance(node.op, Add) else None

    graph = graph_of(lambda x, y: F.exp(x + y), [X, X])
    with pytest.raises(AssertionError, match="without an end"):
        rewrite(graph, turn)


def test_outputs_must_be_as_many():
    graph = graph_of(lambda x: F.split(x, 2), [X])
    with pytest.raises(AssertionError, match="1 outputs, replaced by 2"):
        rewrite(graph_of(F.exp, [X]), lambda node, _: [constant(1.0)] * 2)
    assert rewrite(graph, lambda node, _: None) is graph


def test_local_rules_see_their_operators_only():
    seen = []

    @local(Exp)
    def look(node, graph):
        seen.append(type(node.op))

    graph = graph_of(lambda x, y: (F.exp(F.log(x)), F.positive(y)), [X, X])
    assert rewrite(graph, look) is graph
    assert seen == [Exp]
    rewrite(graph_of(F.log, [X]), look)
    assert seen == [Exp]


def test_dropped_rewrites_are_counted_and_shown():
    def other_type(node, graph):
        return F.cast(graph.new(node.inputs[0]), dtype=int32) if isinstance(node.op, Exp) else None

    graph, shown, before = graph_of(F.exp, [X]), [], dict(counters)
    assert rewrite(graph, other_type, drop=shown.append) is graph
    assert counters["dropped"] == before["dropped"] + 1
    assert counters["rewritten"] == before["rewritten"]
    assert len(shown) == 1
    assert shown[0].startswith("Exp()(f32[2,3]@cpu:0) -> Cast(")


def halved(node, graph):
    """exp of exp of a value for its exp: one of four nodes in each round."""
    inner = node.inputs[0].node if node.inputs and node.inputs[0] is not None else None
    if isinstance(node.op, Exp) and inner is not None and isinstance(inner.op, Exp):
        return make_node(Exp(), [graph.new(inner.inputs[0])], like=node).outputs[0]
    return None


def exponentials(count):
    x = input_value(X)
    y = F.tanh(x)
    for _ in range(20):
        y = F.tanh(y)
    for _ in range(count):
        y = F.exp(y)
    return Graph([x], [y])


def test_nodes_that_did_not_change_are_not_asked_about_again():
    """The tanh nodes are the same objects in all rounds; rules that only look at operands have said what they say."""
    asked, every = [], exponentials(8)

    def counted(node, graph):
        asked.append(node.op.name)
        return halved(node, graph)

    plain = rewrite(every, counted)
    rounds = asked.count("tanh") // 21
    assert rounds > 2
    asked.clear()
    again = rewrite(every, from_operands(counted))
    assert asked.count("tanh") == 21
    assert str(again) == str(plain)


def test_a_complete_rule_has_one_round():
    asked = []

    def counted(node, graph):
        asked.append(node)
        return halved(node, graph)

    graph = exponentials(8)
    rewrite(graph, complete(counted))
    assert len(asked) == len(graph.nodes) - 1


@pytest.mark.parametrize("rule", [each.rule for each in PASSES if getattr(each.rule, "is_complete", False)])
def test_complete_rules_find_nothing_in_what_they_give(rule):
    x = input_value(X)
    parts = [F.tanh(F.exp(F.sin(x))) * F.exp(F.sin(x)) for _ in range(3)]
    once = rewrite(Graph([x], [parts[0] + parts[1] * parts[2]]), rule)
    assert Rewriting(once).run(rule, None) is once


def test_the_order_of_nodes_that_took_over_places():
    """Of the nodes that could come next always the first by place, whatever places they have."""
    rng = random.Random(7)
    for _ in range(50):
        values = [input_value(X)]
        for _ in range(30):
            node = make_node(Add(), [rng.choice(values), rng.choice(values)])
            node.order = rng.choice(values).node.order if rng.random() < 0.4 else node.order
            values.append(node.outputs[0])
        graph = Graph(values[:1], values[-5:])
        done = []
        while len(done) < len(graph.nodes):
            ready = [n for n in graph.nodes if n not in done and all(v.node in done for v in n.reads)]
            assert graph.nodes[len(done)].order == min(n.order for n in ready)
            done.append(graph.nodes[len(done)])
            assert done[-1] in ready


def test_nodes_on_other_values_keep_what_follows_from_types():
    x, y = input_value(X), input_value(X)
    node = F.multiply(F.exp(x), 2.0).node
    kernel = first_choice(node)
    made = node.reading(lambda v: y if v is node.inputs[0] else v)
    assert made.inputs == (y, node.inputs[1])
    assert made.choice is kernel
    assert (made.op, made.order, made.where, made.device) == (node.op, node.order, node.where, node.device)
    assert [v.type for v in made.outputs] == [v.type for v in node.outputs]
    assert all(v.node is made for v in made.outputs)
