"""Gradients of graphs: every node's vjp, from the outputs back to the inputs."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from weft.graph.graph import Graph, _sorted
from weft.ops import functions as F
from weft.ops.node import Node, Value, input_value
from weft.ops.op import Op

__all__ = ["backward_graph"]


def backward_graph(graph: Graph, wanted: Sequence[bool], given: Sequence[bool]) -> Graph:
    """The graph of the gradients of `graph`.

    wanted: for each input whether its gradient is wanted; given: for each output whether its gradient comes in.
    Inputs of the new graph: the inputs, the outputs, then the gradients of the given outputs. Outputs: the gradients of
    the wanted inputs, None where it is zero everywhere.
    """
    slopes: dict[int, Value] = {}
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
            _add(slopes, value, dy)
    needed = _reaching(graph, wanted)
    again = _Recomputed(replaced)
    for node in reversed(graph.nodes):
        if node.op is None or id(node) not in needed or not any(id(v) in slopes for v in node.outputs):
            continue
        for value, slope in zip(node.inputs, node_gradient(node, slopes, again), strict=True):
            if value is not None and slope is not None and id(value.node) in needed:
                _add(slopes, value, slope)
    results = [slopes.get(id(v)) if want else None for v, want in zip(graph.inputs, wanted, strict=True)]
    return Graph(
        [*graph.inputs, *stand_ins, *upstream],
        [result for result, want in zip(results, wanted, strict=True) if want],
    )


class _Recomputed:
    """What the backward graph reads of the forward one: an output where it is one, else the value computed again."""

    def __init__(self, replaced: dict[int, Value]) -> None:
        self.known = replaced

    def __call__(self, value: Value | None) -> Value | None:
        if value is None or value.node.op is None:
            return value
        found = self.known.get(id(value))
        if found is None:
            node = value.node
            made = Node(
                node.op,
                [self(v) for v in node.inputs],
                [v.type for v in node.outputs],
                {k: v if (r := self(v)) is None else r for k, v in node.runtime.items()},
            )
            for old, new in zip(node.outputs, made.outputs, strict=True):
                self.known.setdefault(id(old), new)
            found = self.known[id(value)]
        return found


def node_gradient(node: Node, slopes: dict[int, Value], read: Any) -> Sequence[Value | None]:
    """The gradients of a node's inputs by its operator's vjp, which is given what its parameters name."""
    op = node.bound()
    if op.by_parts():
        return _gradient_by_parts(op, node, slopes, read)
    arguments: dict[str, Any] = {}
    variadic: list[Any] | None = None
    names = [spec.name for spec in op.inputs]
    inputs = [read(v) for v in node.inputs]
    if op.inputs and op.inputs[-1].variadic:
        variadic = inputs[len(names) - 1 :]
        arguments |= dict(zip(names[:-1], inputs, strict=False)) | {names[-1]: variadic}
    else:
        arguments |= dict(zip(names, inputs, strict=True))
    for name, value in zip(op.outputs, node.outputs, strict=True):
        arguments[name] = read(value)
        dy = slopes.get(id(value))
        arguments[f"d{name}"] = dy
    parameters = inspect.signature(op.vjp).parameters
    if any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
        found = op.vjp(
            *inputs, *(arguments[n] for n in op.outputs), *(arguments[f"d{n}"] for n in op.outputs)
        )
    else:
        unknown = [name for name in parameters if name not in arguments]
        if unknown:
            raise TypeError(f"{op.name}: vjp names {', '.join(unknown)}; there are: {', '.join(arguments)}")
        found = op.vjp(**{name: arguments[name] for name in parameters})
    listed = [found] if found is None or isinstance(found, Value) else list(found)
    if variadic is not None and len(listed) == len(names) and isinstance(listed[-1], list | tuple):
        listed = [*listed[:-1], *listed[-1]]
    if len(listed) != len(node.inputs):
        raise TypeError(f"{op.name}: vjp gave {len(listed)} gradients for {len(node.inputs)} inputs")
    for value, slope in zip(node.inputs, listed, strict=True):
        if value is not None and slope is not None and slope.shape != value.shape:
            raise TypeError(f"{op.name}: the gradient of {value.type} came out as {slope.type}")
    return listed


def _gradient_by_parts(op: Op, node: Node, slopes: dict[int, Value], read: Any) -> Sequence[Value | None]:
    """The gradients of what the operator decomposes into."""
    inputs = [read(v) for v in node.inputs]
    made = op.decompose(*inputs)
    given = [(value, slopes.get(id(old))) for value, old in zip(_listed(made), node.outputs, strict=True)]
    inner: dict[int, Value] = {}
    for value, slope in given:
        if slope is not None:
            _add(inner, value, slope)
    stop = {id(v.node) for v in inputs if v is not None}
    order = _sorted([value for value, slope in given if slope is not None], stop)
    for part in reversed(order):
        if part.op is None or id(part) in stop or not any(id(v) in inner for v in part.outputs):
            continue
        for value, slope in zip(part.inputs, node_gradient(part, inner, lambda v: v), strict=True):
            if value is not None and slope is not None:
                _add(inner, value, slope)
    return [None if v is None or v.dtype.kind != "float" else inner.pop(id(v), None) for v in inputs]


def _listed(made: Any) -> list[Value]:
    return [made] if isinstance(made, Value) else list(made)


def _add(slopes: dict[int, Value], value: Value, slope: Value) -> None:
    known = slopes.get(id(value))
    slopes[id(value)] = slope if known is None else F.add(known, slope)


def _reaching(graph: Graph, wanted: Sequence[bool]) -> set[int]:
    """The nodes that a wanted input has an influence on."""
    found = {id(v.node) for v, want in zip(graph.inputs, wanted, strict=True) if want}
    for node in graph.nodes:
        if any(v is not None and id(v.node) in found for v in node.inputs):
            found.add(id(node))
    return found


__all__ += ["Op", "node_gradient"]
