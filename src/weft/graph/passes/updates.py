"""Splits an update of many parameters into one for each, so that each can run as soon as its gradient is final."""

from __future__ import annotations

from collections.abc import Sequence

from weft.graph.rewrite import Rewriting, local
from weft.ops.families.optimizer import Update
from weft.ops.node import Node, Value, make_node

__all__ = ["updates"]


@local(Update)
def updates(node: Node, graph: Rewriting) -> Sequence[Value] | None:
    """The outputs of an optimizer's updates, one node for each parameter."""
    op = node.op
    if not isinstance(op, Update):
        return None
    groups = op.groups(len(node.inputs))
    if len(groups) < 2:
        return None
    inputs = [None if v is None else graph.new(v) for v in node.inputs]
    shared = inputs[: len(op.scalars)]
    runtime = {name: graph.new(v) for name, v in node.runtime.items()}
    outputs: dict[int, Value] = {}
    for input_indices, output_indices in groups:
        update = make_node(op, [*shared, *(inputs[k] for k in input_indices)], runtime, like=node)
        outputs |= dict(zip(output_indices, update.outputs, strict=True))
    return [outputs[k] for k in sorted(outputs)]
