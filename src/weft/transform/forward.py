"""Tangents: the derivative of a graph along a direction, forwards (jvp).

>>> from weft.base.dtype import float32
>>> from weft.ops.node import input_value
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> x, dx = (input_value(TensorType((2,), float32), name) for name in ("x", "dx"))
>>> tangents([F.exp(x)], [x], [dx])[0].type
f32[2]@cpu:0

No operator has a rule for this. An element-wise one of real numbers multiplies a tangent by the same derivative that
its vjp multiplies a gradient by. For any other the vjp, a linear function of the output's gradient, is transposed: that
is the gradient of the gradient, and of a linear operator it is the operator itself. Only control flow is done once
more, with the tangents as further states, so that a while_loop needs no bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.graph.gradient import gradients, node_gradient
from weft.graph.graph import Graph
from weft.graph.subgraph import Subgraph
from weft.ops import functions as F
from weft.ops.node import Node, Value, input_value, make_node
from weft.ops.pointwise import Pointwise, PointwiseGradient
from weft.ops.types import broadcast_shapes
from weft.transform.batching import changed

__all__ = ["tangents"]

Dots = Sequence["Value | None"]


def tangents(ys: Sequence[Value], xs: Sequence[Value], dxs: Sequence[Value | None]) -> list[Value | None]:
    """The derivatives of ys along dxs, the tangents of xs; None where it is zero everywhere."""
    tangent_of: dict[Value, Value] = {x: dx for x, dx in zip(xs, dxs, strict=True) if dx is not None}
    for node in Graph(xs, ys).nodes:
        if node.op is None or node.op.stops_gradient or all(v in tangent_of for v in node.outputs):
            continue
        dots = [None if v is None else tangent_of.get(v) for v in node.inputs]
        if any(dot is not None for dot in dots):
            for value, dot in zip(node.outputs, _of_node(node, dots), strict=True):
                if dot is not None:
                    tangent_of[value] = dot
    return [tangent_of.get(y) for y in ys]


def _of_node(node: Node, dots: Dots) -> Sequence[Value | None]:
    """The tangents of a node's outputs, given those of its inputs."""
    op = node.op
    assert op is not None
    if (special := _CONTROL.get(op.name)) is not None:
        return special(node, dots)
    is_complex = any(v is not None and v.dtype.is_complex for v in (*node.inputs, *node.outputs))
    if (
        isinstance(op, Pointwise | PointwiseGradient) and not is_complex
    ):  # whose vjp multiplies by the conjugate
        elementwise = _of_elements(node, dots)
        if elementwise is not None:
            return elementwise
    return _transposed(node, dots)


def _of_elements(node: Node, dots: Dots) -> Sequence[Value | None] | None:
    """Of an element-wise operator: its vjp, of operands that have the result's shape; None where they cannot."""
    (y,) = node.outputs
    if not y.dtype.is_differentiable:
        return [None]
    assert node.op is not None
    operands = {f"x{k}": v.type for k, v in enumerate(node.inputs) if v is not None}
    if broadcast_shapes(node.op.name, operands) != y.shape:  # a loss, which is a sum
        return None
    wide = [
        v if v is None or v.type.weak or v.shape == y.shape else F.broadcast_like(v, y) for v in node.inputs
    ]
    wide_node = make_node(node.op, wide, node.runtime, like=node)
    wide_y, total = wide_node.outputs[0], None
    for k, dot in enumerate(dots):
        if dot is None:
            continue
        cotangent = dot if dot.dtype is y.dtype else F.cast(dot, dtype=y.dtype)
        cotangent = cotangent if cotangent.shape == y.shape else F.broadcast_like(cotangent, y)
        part = node_gradient(wide_node, {wide_y: cotangent}, lambda v: y if v is wide_y else v)[k]
        if part is None:
            continue
        part = part if part.dtype is y.dtype else F.cast(part, dtype=y.dtype)
        total = part if total is None else F.add(total, part)
    return [total]


def _transposed(node: Node, dots: Dots) -> Sequence[Value | None]:
    """By the gradient of the gradient: the vjp is linear in the outputs' gradients, whatever those are."""
    floats = [v for v in node.outputs if v.dtype.is_differentiable]
    ups = [F.filled_like(v, value=0.0) for v in floats]
    if not ups:
        return [None] * len(node.outputs)
    cotangents = dict(zip(floats, ups, strict=True))
    input_gradients = node_gradient(node, cotangents, lambda value: value)
    pairs = [
        (cotangent, dot)
        for cotangent, dot in zip(input_gradients, dots, strict=True)
        if cotangent is not None and dot is not None
    ]
    if not pairs:
        return [None] * len(node.outputs)
    transposed = iter(gradients([cotangent for cotangent, _ in pairs], ups, [dot for _, dot in pairs]))
    return [next(transposed) if v.dtype.is_differentiable else None for v in node.outputs]


# Control flow.


def _with_tangents(graph: Graph, flags: Sequence[bool]) -> tuple[list[Value], list[Value | None]]:
    """Inputs for the tangents of those inputs of a body that have one, and the tangents of its outputs."""
    dots = [input_value(v.type) if flag else None for v, flag in zip(graph.inputs, flags, strict=True)]
    outputs = [v for v in graph.outputs if v is not None]
    return [dot for dot in dots if dot is not None], tangents(outputs, graph.inputs, dots)


def _settled(
    graph: Graph, sequences: Sequence[bool], states: Sequence[bool], constants: Sequence[bool]
) -> list[bool]:
    """Which states of a body have tangents once it has run often enough."""
    flags = list(states)
    while True:
        _, dots = _with_tangents(graph, [*sequences, *flags, *constants])
        grown = [a or b is not None for a, b in zip(flags, dots, strict=False)]
        if grown == flags:
            return flags
        flags = grown


def _selected(values: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    return [v for v, flag in zip(values, flags, strict=True) if flag]


def _dense(values: Sequence[Any], dots: Dots, flags: Sequence[bool]) -> list[Any]:
    """The tangents of those with a flag, zeros where there is none."""
    return [
        F.filled_like(v, value=0.0) if dot is None else dot
        for v, dot, flag in zip(values, dots, flags, strict=True)
        if flag
    ]


def _of_foreach(node: Node, dots: Dots) -> Sequence[Value | None]:
    op: Any = node.op
    body = op.body.graph
    (sequences, states, constants), (of_sequences, of_states, of_constants) = (
        op.parts(node.inputs),
        op.parts(dots),
    )
    has_sequence, has_constant = ([dot is not None for dot in part] for part in (of_sequences, of_constants))
    has_state = _settled(body, has_sequence, [dot is not None for dot in of_states], has_constant)
    ups, output_dots = _with_tangents(body, [*has_sequence, *has_state, *has_constant])
    first, second = sum(has_sequence), sum(has_sequence) + sum(has_state)
    number = len(states)
    news = _dense(body.outputs[:number], output_dots[:number], has_state)
    has_item = [dot is not None for dot in output_dots[number:]]
    items = _selected(output_dots[number:], has_item)
    inputs, count = body.inputs, len(sequences)
    graph = Graph(
        [
            *inputs[:count],
            *ups[:first],
            *inputs[count : count + number],
            *ups[first:second],
            *inputs[count + number :],
            *ups[second:],
        ],
        [*body.outputs[:number], *news, *body.outputs[number:], *items],
    )
    loop = changed(op, body=Subgraph(graph), sequences=count + first, states=number + sum(has_state))
    outputs = make_node(
        loop,
        [
            *(node.inputs[:1] if op.counted else ()),
            *sequences,
            *_selected(of_sequences, has_sequence),
            *states,
            *_dense(states, of_states, has_state),
            *constants,
            *_selected(of_constants, has_constant),
        ],
        like=node,
    ).outputs
    after = iter(outputs[number : number + sum(has_state)])
    dots_of: list[Value | None] = [next(after) if flag else None for flag in has_state]
    begin = number + sum(has_state) + len(has_item)
    stacks = iter(outputs[begin : begin + len(items)])
    dots_of += [next(stacks) if flag else None for flag in has_item]
    saved = iter(outputs[begin + len(items) + number :])
    return [*dots_of, *(next(saved) if flag else None for flag in has_state)]


def _of_while(node: Node, dots: Dots) -> Sequence[Value | None]:
    op: Any = node.op
    body, condition, number = op.body.graph, op.condition.graph, op.states
    states, constants = node.inputs[:number], node.inputs[number:]
    has_constant = [dot is not None for dot in dots[number:]]
    has_state = _settled(body, [], [dot is not None for dot in dots[:number]], has_constant)
    ups, output_dots = _with_tangents(body, [*has_state, *has_constant])
    extra = sum(has_state)
    news = _dense(body.outputs, output_dots, has_state)
    step = Graph(
        [*body.inputs[:number], *ups[:extra], *body.inputs[number:], *ups[extra:]], [*body.outputs, *news]
    )
    unread = [input_value(v.type) for v in ups]
    test = Graph(
        [*condition.inputs[:number], *unread[:extra], *condition.inputs[number:], *unread[extra:]],
        condition.outputs,
    )
    loop = changed(op, body=Subgraph(step), condition=Subgraph(test), states=number + extra)
    outputs = make_node(
        loop,
        [
            *states,
            *_dense(states, dots[:number], has_state),
            *constants,
            *_selected(dots[number:], has_constant),
        ],
        like=node,
    ).outputs
    after = iter(outputs[number : number + extra])
    result: list[Value | None] = [next(after) if flag else None for flag in has_state]
    if op.limit is not None:
        saved = iter(outputs[number + extra + 1 + number :])
        result += [None, *(next(saved) if flag else None for flag in has_state)]
    return result


def _of_cond(node: Node, dots: Dots) -> Sequence[Value | None]:
    op: Any = node.op
    flags = [dot is not None for dot in dots[1:]]
    branches = []
    for body in (op.then, op.otherwise):
        ups, output_dots = _with_tangents(body.graph, flags)
        branches.append((body.graph, ups, output_dots))
    has = [
        any(output_dots[k] is not None for _, _, output_dots in branches) for k in range(len(node.outputs))
    ]
    graphs = [
        Subgraph(Graph([*graph.inputs, *ups], _dense(graph.outputs, output_dots, has)))
        for graph, ups, output_dots in branches
    ]
    branch = changed(op, then=graphs[0], otherwise=graphs[1])
    branch_outputs = iter(make_node(branch, [*node.inputs, *_selected(dots[1:], flags)], like=node).outputs)
    return [next(branch_outputs) if flag else None for flag in has]


_CONTROL: dict[str, Callable[[Node, Dots], Sequence[Value | None]]] = {
    "foreach_loop": _of_foreach,
    "while_loop": _of_while,
    "cond_branch": _of_cond,
}
