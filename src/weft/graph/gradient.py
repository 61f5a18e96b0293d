"""Gradients of graphs: every node's vjp, from the outputs back to the inputs."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from weft.base.typing import Any
from weft.graph.graph import Graph
from weft.ops import functions as F
from weft.ops.node import Node, Value, input_value
from weft.ops.op import Op, parameters

__all__ = ["backward_graph", "gradients", "joint_graph", "node_gradient", "reaching"]


def backward_graph(graph: Graph, wanted: Sequence[bool], given: Sequence[bool]) -> Graph:
    """The graph of the gradients of `graph`.

    wanted: for each input whether its gradient is wanted; given: for each output whether its gradient comes in.
    Inputs of the new graph: the inputs, the outputs, then the gradients of the given outputs. Outputs: the gradients of
    the wanted inputs, None where it is zero everywhere.
    """
    cotangents: dict[int, Value] = {}
    replaced: dict[int, Value] = {}
    outputs = [v for v in graph.outputs if v is not None]
    stand_ins = [input_value(v.type, f"y{k}") for k, v in enumerate(outputs)]
    for value, stand_in in zip(outputs, stand_ins, strict=True):
        if value.node.op is not None:  # an input that is also an output is read as the input
            replaced.setdefault(id(value), stand_in)
    upstream = []
    for k, (value, is_given) in enumerate(zip(outputs, given, strict=True)):
        if is_given:
            dy = input_value(value.type, f"dy{k}")
            upstream.append(dy)
            _add(cotangents, value, dy)
    _propagate(graph, wanted, cotangents, _Recomputed(replaced))
    results = [cotangents.get(id(v)) if want else None for v, want in zip(graph.inputs, wanted, strict=True)]
    return Graph(
        [*graph.inputs, *stand_ins, *upstream],
        [result for result, want in zip(results, wanted, strict=True) if want],
    )


class _Recomputed:
    """What the backward graph reads of the forward one: an output where it is one, else the value computed again."""

    def __init__(self, replaced: dict[int, Value]) -> None:
        self.known = replaced

    def __call__(self, value: Value | None) -> Value | None:
        if value is None or self._is_known(value):
            return self._now(value)
        waiting = [value.node]  # not a recursion: graphs are long
        while waiting:
            node = waiting[-1]
            missing = [v.node for v in node.reads if not self._is_known(v)]
            waiting.extend(missing)
            if missing:
                continue
            waiting.pop()
            if all(id(v) in self.known for v in node.outputs):
                continue
            copy = Node(
                node.op,
                [self._now(v) for v in node.inputs],
                [v.type for v in node.outputs],
                {k: self.known.get(id(v), v) for k, v in node.runtime.items()},
            )
            for old, new in zip(node.outputs, copy.outputs, strict=True):
                self.known.setdefault(id(old), new)
        return self.known[id(value)]

    def _is_known(self, value: Value) -> bool:
        return value.node.op is None or id(value) in self.known

    def _now(self, value: Value | None) -> Value | None:
        return None if value is None else self.known.get(id(value), value)


def node_gradient(node: Node, cotangents: dict[int, Value], read: Any) -> Sequence[Value | None]:
    """The gradients of a node's inputs by its operator's vjp, which is given what its parameters name."""
    op = node.bound()
    arguments: dict[str, Any] = {}
    variadic: list[Any] | None = None
    names = [spec.name for spec in op.inputs]
    inputs = [read(v) for v in node.inputs]
    if op.inputs and op.inputs[-1].variadic:
        variadic = inputs[len(names) - 1 :]
        arguments |= dict(zip(names[:-1], inputs, strict=False)) | {names[-1]: variadic}
    else:
        arguments |= dict(zip(names, inputs, strict=True))
    outputs = [read(value) for value in node.outputs]
    dys = [cotangents.get(id(value)) for value in node.outputs]
    if op.outputs[0].startswith("*"):
        arguments |= {op.outputs[0][1:]: outputs, f"d{op.outputs[0][1:]}": dys}
    else:
        arguments |= dict(zip(op.outputs, outputs, strict=True))
        arguments |= {f"d{name}": dy for name, dy in zip(op.outputs, dys, strict=True)}
    if type(op).vjp is Op.vjp and type(op).decompose is not Op.decompose:
        return _gradient_of_decomposition(op, inputs, dys)
    reads = parameters(type(op).vjp)
    if any(p.variadic for p in reads):
        result = op.vjp(*inputs, *outputs, *dys)
    else:
        unknown = [p.name for p in reads if p.name not in arguments]
        if unknown:
            raise TypeError(f"{op.name}: vjp names {', '.join(unknown)}; there are: {', '.join(arguments)}")
        result = op.vjp(**{p.name: arguments[p.name] for p in reads})
    if result is NotImplemented:
        return _gradient_of_decomposition(op, inputs, dys)
    listed = [result] if result is None or isinstance(result, Value) else list(result)
    if variadic is not None and len(listed) == len(names) and isinstance(listed[-1], list | tuple):
        listed = [*listed[:-1], *listed[-1]]
    if len(listed) != len(node.inputs):
        raise TypeError(f"{op.name}: vjp gave {len(listed)} gradients for {len(node.inputs)} inputs")
    for value, cotangent in zip(node.inputs, listed, strict=True):
        if value is not None and cotangent is not None and cotangent.shape != value.shape:
            raise TypeError(f"{op.name}: the gradient of {value.type} came out as {cotangent.type}")
    return listed


def _gradient_of_decomposition(
    op: Op, inputs: Sequence[Value | None], dys: Sequence[Value | None]
) -> Sequence[Value | None]:
    """The gradients of a node's inputs through what its operator decomposes to."""
    stand_ins = [None if v is None else input_value(v.type, "x") for v in inputs]
    results = op.decompose(*stand_ins)
    outputs = results if isinstance(results, tuple | list) else (results,)
    if len(outputs) != len(dys):
        raise TypeError(f"{op.name}: decomposes to {len(outputs)} outputs, not {len(dys)}")
    graph = Graph([v for v in stand_ins if v is not None], outputs)
    cotangents: dict[int, Value] = {}
    for output, dy in zip(outputs, dys, strict=True):
        if output is not None and dy is not None:
            _add(cotangents, output, dy)
    floats = [v.dtype.is_differentiable and not v.type.weak for v in graph.inputs]
    values = {id(s): v for s, v in zip(stand_ins, inputs, strict=True) if s is not None and v is not None}
    _propagate(graph, floats, cotangents, _Recomputed(values))
    return [None if v is None else cotangents.get(id(v)) for v in stand_ins]


def joint_graph(graph: Graph, wanted: Sequence[bool], given: Sequence[bool]) -> Graph:
    """As backward_graph, but the values that the gradients read are computed inside.

    Inputs: those of the graph, then the gradients of the given outputs. So its own gradient is the second one.
    """
    cotangents: dict[int, Value] = {}
    upstream = []
    for k, (value, is_given) in enumerate(zip(graph.outputs, given, strict=True)):
        if value is not None and is_given:
            upstream.append(input_value(value.type, f"dy{k}"))
            _add(cotangents, value, upstream[-1])
    _propagate(graph, wanted, cotangents, lambda value: value)
    results = [cotangents.get(id(v)) for v, want in zip(graph.inputs, wanted, strict=True) if want]
    return Graph([*graph.inputs, *upstream], results)


def gradients(
    ys: Sequence[Value],
    xs: Sequence[Value],
    dys: Sequence[Value | None] | None = None,
    constant: Container[int] = (),
) -> list[Value | None]:
    """The gradients of values with respect to others that they were computed from; None where it is zero everywhere.

    dys: the gradients of ys, None for zero; by default 1 for every element. They read the very values that ys were
    computed from, so that a graph of both computes nothing twice. constant: nodes, by id, that have no gradient.
    """
    seeds = [F.filled_like(y, value=1.0) for y in ys] if dys is None else list(dys)
    cotangents: dict[int, Value] = {}
    for y, dy in zip(ys, seeds, strict=True):
        if dy is not None:
            _add(cotangents, y, dy)
    _propagate(Graph(xs, ys), [True] * len(xs), cotangents, lambda value: value, constant)
    return [cotangents.get(id(x)) for x in xs]


def _propagate(
    graph: Graph,
    wanted: Sequence[bool],
    cotangents: dict[int, Value],
    read: Callable[[Value | None], Value | None],
    constant: Container[int] = (),
) -> None:
    """Adds to cotangents, the gradients of values by id, those of what the graph's outputs were computed from."""
    needed = reaching(graph, wanted, constant)
    for node in reversed(graph.nodes):
        if node.op is None or id(node) not in needed or not any(id(v) in cotangents for v in node.outputs):
            continue
        for value, cotangent in zip(node.inputs, node_gradient(node, cotangents, read), strict=True):
            if value is not None and cotangent is not None and id(value.node) in needed:
                _add(cotangents, value, cotangent)


def _add(cotangents: dict[int, Value], value: Value, cotangent: Value) -> None:
    sum_before = cotangents.get(id(value))
    cotangents[id(value)] = cotangent if sum_before is None else F.add(sum_before, cotangent)


def reaching(graph: Graph, wanted: Sequence[bool], constant: Container[int] = ()) -> set[int]:
    """The nodes that a wanted input has an influence on."""
    reached = {id(v.node) for v, want in zip(graph.inputs, wanted, strict=True) if want}
    for node in graph.nodes:
        stops = id(node) in constant or (node.op is not None and node.op.stops_gradient)
        if not stops and any(v is not None and id(v.node) in reached for v in node.inputs):
            reached.add(id(node))
    return reached
