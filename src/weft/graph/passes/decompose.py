"""Replaces operators without kernels of their own by their decompositions, so that other passes see the parts.

The planner would do the same later. Operators that it would choose kernels for are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.graph.inner import Again
from weft.graph.rewrite import Rewriting, from_operands
from weft.kernels import first_choice
from weft.ops.node import Node, Value
from weft.ops.op import Op

__all__ = ["decompose"]


@from_operands
def decompose(node: Node, graph: Rewriting) -> Sequence[Value] | None:
    """The values of a node's decomposition, if its operator offers no kernel for these operands."""
    op = node.op
    assert op is not None
    if (
        op.random
        or isinstance(op, Again)
        or type(op).decompose is Op.decompose
        or first_choice(node) is not None
    ):
        return None
    bound = op.with_runtime({name: graph.new(v) for name, v in node.runtime.items()})
    outputs: Any = bound.decompose(*(None if v is None else graph.new(v) for v in node.inputs))
    if outputs is NotImplemented:
        return None
    return outputs if isinstance(outputs, tuple | list) else (outputs,)
