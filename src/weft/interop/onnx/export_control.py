"""Loops and branches as If, Loop and Scan of ONNX: their graphs read values of the graphs around them by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtype import bool_, int64
from weft.interop.onnx.writer import Writer, exports
from weft.ops.node import Node, Value
from weft.ops.types import TensorType

__all__: list[str] = []


def _scope(writer: Writer, values: Sequence[Value], names: Sequence[str | None]) -> Writer:
    """A writer of nodes inside of those of another one, for a graph whose inputs have these names, None if unused."""
    scope = Writer(writer.opset, writer.axes, outer=writer)
    scope.line = writer.line
    scope.give_names(values, names)
    return scope


def _inputs(scope: Writer, types: Sequence[TensorType], wish: str) -> tuple[list[str], list[Any]]:
    """New names of inputs of a graph, and their descriptions."""
    names = [scope.name(wish) for _ in types]
    return names, [scope.info(name, t) for name, t in zip(names, types, strict=True)]


def _graph(scope: Writer, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
    """The graph of what was written. outputs: (name, type); each is the output of a node of its own."""
    infos = []
    for content, t in outputs:
        result = scope.add("Identity", content)
        infos.append(scope.info(result, t))
    return scope.onnx.helper.make_graph(scope.nodes, scope.name(name), list(inputs), infos)


@exports("cond_branch")
def cond_branch(writer: Writer, node: Node, predicate: str, *names: str) -> list[str]:
    op: Any = node.op
    graphs = []
    for subgraph, name in ((op.then, "then"), (op.otherwise, "otherwise")):
        scope = _scope(writer, subgraph.graph.inputs, names)
        written = scope.write(subgraph.graph.outputs)
        graphs.append(_graph(scope, name, [], [*zip(written, subgraph.types, strict=True)]))
    return writer.add_several(
        "If", len(node.outputs), predicate, then_branch=graphs[0], else_branch=graphs[1]
    )


@exports("foreach_loop")
def foreach_loop(writer: Writer, node: Node, *names: str) -> list[str | None]:
    """Scan. What each run began with is among what is scanned where something reads it."""
    op: Any = node.op
    given: Any = node.inputs
    if op.counted:
        raise writer.refuse(node, "the gradient of a while_loop is not exported")
    graph, types = op.body.graph, op.body.types
    sequences, states, rest = op.parts(names)
    visible = op.states + op.items
    saved = [k for k in range(op.states) if node.outputs[visible + k] in writer.reads]
    if given[0].shape[0] == 0:  # Scan needs a slice
        stacks = [writer.constant(np.zeros(v.shape, v.type.dtype.numpy)) for v in node.outputs[op.states :]]
        return [*states, *stacks]
    scope = _scope(writer, (), ())
    carried = len(sequences) + len(states)
    inputs, infos = _inputs(scope, [v.type for v in graph.inputs[:carried]], "item")
    befores = inputs[len(sequences) :]
    scope.give_names(graph.inputs, (*inputs, *rest))
    written = [
        *zip(scope.write(graph.outputs), types, strict=True),
        *((befores[k], given[len(sequences) + k].type) for k in saved),
    ]
    items = op.items + len(saved)
    directions = [1] * len(sequences), [1] * items
    outputs: list[str | None] = [
        *writer.add_several(
            "Scan",
            op.states + items,
            *states,
            *sequences,
            body=_graph(scope, "body", [*infos[len(sequences) :], *infos[: len(sequences)]], written),
            num_scan_inputs=len(sequences),
            scan_input_directions=directions[0] if op.reverse else None,
            scan_output_directions=directions[1] if op.reverse and items else None,
        )
    ]
    stacks_of_states: list[str | None] = [None] * op.states
    for k, name in zip(saved, outputs[visible:], strict=True):
        stacks_of_states[k] = name
    return [*outputs[:visible], *stacks_of_states]


@exports("while_loop")
def while_loop(writer: Writer, node: Node, *names: str) -> list[str]:
    """Loop, whose body ends with the condition of the next run."""
    op: Any = node.op
    if any(v in writer.reads for v in node.outputs[op.states :]):
        raise writer.refuse(node, "the gradient of a while_loop is not exported")
    states, rest = names[: op.states], names[op.states :]

    def condition(around: Writer, values: Sequence[str]) -> str:
        scope = _scope(around, op.condition.graph.inputs, (*values, *rest))
        scope.nodes = around.nodes
        (name,) = scope.write(op.condition.graph.outputs)
        assert name is not None
        return name

    scope = _scope(writer, (), ())
    integer, boolean = TensorType((), int64), TensorType((), bool_)
    inputs, infos = _inputs(scope, [integer, boolean, *op.body.types], "state")
    scope.give_names(op.body.graph.inputs, (*inputs[2:], *rest))
    after: Any = scope.write(op.body.graph.outputs)
    written = [(condition(scope, after), boolean), *zip(after, op.body.types, strict=True)]
    limit = None if op.limit is None else writer.constant(np.array(op.limit, np.int64))
    return writer.add_several(
        "Loop",
        op.states,
        limit,
        condition(writer, states),
        *states,
        body=_graph(scope, "body", infos, written),
    )
