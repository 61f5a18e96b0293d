"""Pointwise operators that the kernel before them can do before it writes: matrix products, convolutions, rows.

No operator is named here: which kernels take which steps is for the kernels of weft.ops.families.epilogue to say
(weft/kernels/cpu/epilogue.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.graph.rewrite import Rewriting
from weft.kernels import first_choice
from weft.ops.families.epilogue import Epilogue, Step
from weft.ops.kernels import Loop, Native, View
from weft.ops.node import Node, Value, make_node
from weft.ops.pointwise import Pointwise

__all__ = ["epilogues"]


def epilogues(node: Node, graph: Rewriting) -> Sequence[Value | None] | Value | None:
    """A node and the pointwise ones after it, each the only reader of what comes before, as one Epilogue.

    It replaces the last reader, since that may read what comes after the node; if other outputs of the node are read,
    too, it replaces the node.
    """
    if id(node) in graph.notes:
        output: Value = graph.notes[id(node)]
        return output
    if any(graph.is_read(v) for v in node.outputs[1:]):
        return _with_readers(node, graph)
    if not isinstance(node.op, Pointwise):
        return None
    operands = [v for v in node.inputs if v is not None and _ends_with(v, node, graph)]
    for value in sorted(operands, key=lambda v: _steps(graph.new(v).node)):
        epilogue = _fused(graph.new(value).node, value, node, graph)
        if epilogue is not None:
            return epilogue.outputs[0]
    return None


def _with_readers(node: Node, graph: Rewriting) -> Sequence[Value] | None:
    epilogue, value, readers = node, node.outputs[0], list[Node]()
    while (reader := graph.reader(value)) is not None and (longer := _fused(epilogue, value, reader, graph)):
        epilogue, value = longer, reader.outputs[0]
        readers.append(reader)
    graph.notes.update((id(reader), epilogue.outputs[0]) for reader in readers)
    return epilogue.outputs if readers else None


def _ends_with(value: Value, reader: Node, graph: Rewriting) -> bool:
    """Whether a node may do the work of one that reads its first output: nothing else reads any output of it."""
    if graph.reader(value) is not reader or id(value.node) in graph.notes:
        return False
    return not any(graph.is_read(v) for v in value.node.outputs[1:])


def _steps(node: Node) -> int:
    """The number of steps of an Epilogue: of the nodes that could do a step, the one with the fewest is tried first."""
    steps: Any = node.op.steps if isinstance(node.op, Epilogue) else ()
    return len(steps)


def _keeps_type(reader: Node, value: Value, own_kernel: Any) -> bool:
    """Whether a step may follow: native kernels can change the type of elements, where they take the step at all."""
    old, new = value.type, reader.outputs[0].type
    return old == new or (isinstance(own_kernel, Native) and old.like(dtype=new.dtype) == new)


def _fused(node: Node, value: Value, reader: Node, graph: Rewriting) -> Node | None:
    """The Epilogue of a node and its reader; None if no kernel does both, or not all that it reads is made yet.

    value: what the reader reads in the old graph, for which the first output of the node stands.
    """
    op, step = node.op, reader.op
    if op is None or op.random or op.fixed_device() is not None:
        return None
    own_kernel = first_choice(node)
    if isinstance(own_kernel, View) or (isinstance(own_kernel, Loop) and not own_kernel.axes):
        return None  # the planner joins pointwise loops by itself, so no Epilogue is made in vain
    if any(spec.variadic and not isinstance(op, Epilogue) for spec in op.inputs):
        return None
    if not isinstance(step, Pointwise) or reader.runtime or not _keeps_type(reader, value, own_kernel):
        return None
    position = next(k for k, v in enumerate(reader.inputs) if v is value)
    extras = [v for v in reader.inputs if v is not value]
    if not all(v is None or graph.is_made(v) for v in extras):
        return None
    node_inputs = list(node.inputs)
    runtime: list[Value | None] = list(node.runtime.values())
    steps: tuple[Step, ...] = ((step, position, len(reader.inputs)),)
    names = tuple(node.runtime)
    if isinstance(op, Epilogue):
        earlier_steps: Any = op.steps
        steps, names = earlier_steps + steps, op.runtime
        count = len(node_inputs) - len(names)
        node_inputs, runtime = node_inputs[:count], node_inputs[count:]
        op = op.of  # type: ignore[assignment]
    epilogue = make_node(
        Epilogue(of=op, steps=steps, runtime=names),
        [None if v is None else graph.new(v) for v in (*node_inputs, *extras, *runtime)],
        like=reader,
    )
    # A line in a module, if there is one: the gradient of a layer may be added to an earlier one outside of it.
    epilogue.where = next(
        (line for line in (reader.where, node.where) if getattr(line, "module", None)), reader.where
    )
    kernel = first_choice(epilogue)
    return epilogue if kernel is not None and isinstance(kernel, type(own_kernel)) else None
