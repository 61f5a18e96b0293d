"""The verifier: what is wrong with a graph is said with the operator, the value and the numbers."""

import pytest

from weft.base.dtype import float32, float64, int64
from weft.base.errors import GraphError
from weft.graph.graph import Graph, graph_of
from weft.graph.verify import same_interface, verify
from weft.ops import functions as F
from weft.ops.families.arithmetic import Add
from weft.ops.families.elementary import Exp
from weft.ops.families.random import Dropout
from weft.ops.families.sorting import Searchsorted
from weft.ops.node import Node, Value, constant, input_value
from weft.ops.types import TensorType

X = TensorType((2, 3), float32)


def inputs(*names):
    return [input_value(X, name) for name in names]


def test_sound_graphs():
    x, y = inputs("x", "y")
    total = x + y * 2
    verify(Graph([x, y], [total, None, x, constant(2.0)], {0: 1}))
    verify(graph_of(lambda x: F.split(x, 2, axis=1), [X]))


def wrong(words, graph):
    with pytest.raises(GraphError) as caught:
        verify(graph, "here")
    assert words in str(caught.value)
    assert str(caught.value).startswith("here: ")


def test_foreign_values():
    x, y = inputs("x", "y")
    wrong("Add() reads y, f32[2,3]@cpu:0, which is neither an input", Graph([x], [x + y]))
    wrong("output 0, f32[2,3]@cpu:0, is neither an input", Graph([x], [y]))


def test_inputs():
    x, y = inputs("x", "y")
    wrong("input 1, x, is there twice", Graph([x, x], [x]))
    wrong("input 0 is not given from outside", Graph([x + y], [x]))
    wrong("input 0 is not given from outside, it is 2", Graph([constant(2)], []))


def test_types():
    x, y = inputs("x", "y")
    made = Node(Add(), [x, y], [TensorType((2, 3), float64)]).outputs[0]
    wrong("has the types f64[2,3]@cpu:0, inferred are f32[2,3]@cpu:0", Graph([x, y], [made]))


def test_operands():
    x, y = inputs("x", "y")
    made = Node(Searchsorted(), [x, y], [TensorType((2, 3), int64)]).outputs[0]
    wrong("has 2 of 3 operands; None stands for one left out", Graph([x, y], [made]))


def test_runtime():
    (x,) = inputs("x")
    made = Node(Exp(), [x], [X], {"p": constant(1.0)}).outputs[0]
    wrong("Exp() has no Runtime attribute p", Graph([x], [made]))


def test_values_of_no_node():
    (x,) = inputs("x")
    stray = Value((x + x).node, 1, X)
    wrong("reads a value that is not an output of its node", Graph([x], [F.exp(stray)]))


def test_order():
    (x,) = inputs("x")
    graph = Graph([x], [F.exp(F.exp(x))])
    graph.nodes = tuple(reversed(graph.nodes))
    wrong("which is made after it, or by no node of the graph", graph)
    graph.nodes = (graph.nodes[-1], graph.nodes[-1])
    wrong("is there twice", graph)


def test_writes():
    x, y = inputs("x", "y")
    number = input_value(TensorType((), float32, weak=True), "n")
    wrong("output 2 is written to input 0, but there are 1 outputs and 1 inputs", Graph([x], [x + x], {2: 0}))
    wrong("f64[2,3]@cpu:0 to f32[2,3]@cpu:0", Graph([x], [F.cast(x, dtype="float64")], {0: 0}))
    wrong("nothing to f32[2,3]@cpu:0", Graph([x], [None], {0: 0}))
    wrong("input 0 is written twice", Graph([x, y], [x + y, y + 1], {0: 0, 1: 0}))
    wrong("is a number, which cannot be written", Graph([number], [number], {0: 0}))


def test_same_interface():
    x, y = inputs("x", "y")
    before = Graph([x, y], [x + y], {0: 0})
    same_interface(before, Graph([x, y], [y + x], {0: 0}))
    for words, after in (
        ("inputs are others", Graph([x], [x + x], {0: 0})),
        ("writes {}, before {0: 0}", Graph([x, y], [x + y])),
        ("gives bool[2,3]@cpu:0, before f32[2,3]@cpu:0", Graph([x, y], [x > y], {0: 0})),
        ("draws random numbers", Graph([x, y], [Node(Dropout(), [x], [X, X]).outputs[0]], {0: 0})),
    ):
        with pytest.raises(GraphError, match="here: ") as caught:
            same_interface(before, after, "here")
        assert words in str(caught.value)
