"""Restricts operators that support it to the results that are read, and lets them accumulate into an array.

Users' kernels get such requests for gradients: what an executor's grad_req "null" leaves unread is not computed, and
"add" adds to the array that holds the gradient (Op.without, Op.adding).
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.graph.rewrite import Rewriting
from weft.ops.families.arithmetic import Add
from weft.ops.node import Node, Value, make_node
from weft.ops.op import Op

__all__ = ["requests"]


def requests(node: Node, graph: Rewriting) -> Sequence[Value | None] | None:
    """A node that leaves out what nothing reads, or adds an output to an input of the graph that it was added to."""
    op = node.op
    assert op is not None
    if isinstance(op, Add) and (accumulated := graph.notes.get(id(node))) is not None:
        return [accumulated]
    if type(op).without is not Op.without:
        unread = [k for k, value in enumerate(node.outputs) if not graph.is_read(value)]
        if unread and (restricted := op.without(unread)) is not None:
            results = iter(_applied(restricted, node, graph))
            return [None if k in unread else next(results) for k in range(len(node.outputs))]
    if type(op).adding is not Op.adding:
        for k, value in enumerate(node.outputs):
            reader = graph.reader(value)
            target = None if reader is None else _target(reader, value)
            if reader is None or target is None or (accumulating := op.adding(k)) is None:
                continue
            outputs = _applied(accumulating, node, graph, [graph.new(target)])
            graph.notes[id(reader)] = outputs[k]
            return outputs
    return None


def _applied(op: Op, node: Node, graph: Rewriting, extra_inputs: Sequence[Value] = ()) -> Sequence[Value]:
    inputs = [None if v is None else graph.new(v) for v in node.inputs]
    runtime = {name: graph.new(v) for name, v in node.runtime.items()}
    return make_node(op, [*inputs, *extra_inputs], runtime, like=node).outputs


def _target(reader: Node, value: Value) -> Value | None:
    """The input of the graph that this reader adds a value to; it is there before anything runs."""
    if not isinstance(reader.op, Add):
        return None
    target = next((v for v in reader.inputs if v is not value), None)
    if target is None or target.node.op is not None or target.is_constant or target.type.weak:
        return None
    return target if target.type == value.type == reader.outputs[0].type else None
