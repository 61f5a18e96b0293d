"""A smaller graph that fails as well: outputs, writes and nodes are left out as long as the check still fails."""

import numpy as np

from weft.graph.graph import Graph
from weft.ops.node import Node, input_value

from .checking import evaluated


def shrunk(graph, arrays, check):
    """(graph, arrays) of a part that makes check(graph, arrays) raise the same kind of error."""

    def error(candidate):
        try:
            check(*candidate)
        except Exception as found:
            return type(found)
        return None

    wanted = error((graph, arrays))
    assert wanted is not None, "the check does not fail"
    while True:
        for candidate in smaller(graph, arrays):
            if error(candidate) is wanted:
                graph, arrays = candidate
                break
        else:
            return graph, arrays


def smaller(graph, arrays):
    for k in range(len(graph.outputs)):
        rest = [v for j, v in enumerate(graph.outputs) if j != k]
        writes = {j - (j > k): into for j, into in graph.writes.items() if j != k}
        if rest:
            yield without_unread(Graph(graph.inputs, rest, writes), arrays)
    for k in graph.writes:
        yield Graph(graph.inputs, graph.outputs, {j: i for j, i in graph.writes.items() if j != k}), arrays
    for node in reversed(graph.nodes):
        if node.op is not None:
            yield from cut(graph, arrays, node)


def without_unread(graph, arrays):
    """Inputs that nobody reads are left out."""
    read = {id(n) for n in graph.nodes}
    kept = [k for k, v in enumerate(graph.inputs) if id(v.node) in read or k in graph.writes.values()]
    places = {k: j for j, k in enumerate(kept)}
    writes = {j: places[into] for j, into in graph.writes.items()}
    return Graph([graph.inputs[k] for k in kept], graph.outputs, writes), [arrays[k] for k in kept]


def cut(graph, arrays, node):
    """The graph with inputs in the places of a node's outputs."""
    if {id(v) for v in node.outputs} & {id(v) for v in graph.outputs}:
        return
    values = evaluated(Graph(graph.inputs, node.outputs), arrays)
    stand_ins = [input_value(v.type) for v in node.outputs]
    known = dict(zip(map(id, node.outputs), stand_ins, strict=True))

    def new(value):
        return value if value is None else known.get(id(value), value)

    for old in graph.nodes:
        if old.op is None or old is node:
            continue
        made = Node(
            old.op, [new(v) for v in old.inputs], [v.type for v in old.outputs], old.runtime, like=old
        )
        known.update(zip(map(id, old.outputs), made.outputs, strict=True))
    inputs = [*graph.inputs, *stand_ins]
    yield without_unread(
        Graph(inputs, [new(v) for v in graph.outputs], graph.writes), [*arrays, *map(np.asarray, values)]
    )
