"""Gradients of graphs: every node's vjp, from the outputs back to the inputs."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from weft.base.table import Table
from weft.base.typing import Any
from weft.graph.graph import Graph, in_order
from weft.ops import functions as F
from weft.ops import registry
from weft.ops.node import Node, Value, input_value
from weft.ops.op import Op, parameters
from weft.ops.sizes import are_guarded

__all__ = ["backward_graph", "gradients", "joint_graph", "node_gradient", "reaching", "recorded_gradients"]


def backward_graph(graph: Graph, needs_gradient: Sequence[bool], has_cotangent: Sequence[bool]) -> Graph:
    """The graph of the gradients of `graph`.

    needs_gradient: of each input; has_cotangent: for each output whether its gradient is an input of the new graph.
    Inputs of the new graph: the inputs, the outputs, then the gradients of outputs. Outputs: the gradients of the
    inputs that need one, None where it is zero everywhere.
    """
    cotangents: dict[Value, Value] = {}
    replaced: dict[Value, Value] = {}
    outputs = [v for v in graph.outputs if v is not None]
    stand_ins = [input_value(v.type, f"y{k}") for k, v in enumerate(outputs)]
    for value, stand_in in zip(outputs, stand_ins, strict=True):
        if value.node.op is not None:  # an input that is also an output is read as the input
            replaced.setdefault(value, stand_in)
    upstream = []
    for k, (value, has_dy) in enumerate(zip(outputs, has_cotangent, strict=True)):
        if has_dy:
            dy = input_value(value.type, f"dy{k}")
            upstream.append(dy)
            _add(cotangents, value, dy)
    _propagate(graph, needs_gradient, cotangents, _Recomputed(replaced))
    dxs = [cotangents.get(v) for v, is_needed in zip(graph.inputs, needs_gradient, strict=True) if is_needed]
    return Graph([*graph.inputs, *stand_ins, *upstream], dxs)


class _Recomputed:
    """The values of the forward graph in the backward one: outputs are given, the others are computed again."""

    def __init__(self, new_values: dict[Value, Value]) -> None:
        self.new_values = new_values

    def __call__(self, value: Value | None) -> Value | None:
        if value is None or self._is_available(value):
            return self._new_value(value)
        waiting = [value.node]  # not a recursion: graphs are long
        while waiting:
            node = waiting[-1]
            missing = [v.node for v in node.reads if not self._is_available(v)]
            waiting.extend(missing)
            if missing:
                continue
            waiting.pop()
            if all(v in self.new_values for v in node.outputs):
                continue
            copy = Node(
                node.op,
                [self._new_value(v) for v in node.inputs],
                [v.type for v in node.outputs],
                {k: self.new_values.get(v, v) for k, v in node.runtime.items()},
            )
            for old, new in zip(node.outputs, copy.outputs, strict=True):
                self.new_values.setdefault(old, new)
        return self.new_values[value]

    def _is_available(self, value: Value) -> bool:
        return value.node.op is None or value in self.new_values

    def _new_value(self, value: Value | None) -> Value | None:
        return None if value is None else self.new_values.get(value, value)


def node_gradient(node: Node, cotangents: dict[Value, Value], read: Any) -> Sequence[Value | None]:
    """The gradients of a node's inputs by its operator's vjp, which gets the values that its parameters name."""
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
    dys = [cotangents.get(value) for value in node.outputs]
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
    gradients = [result] if result is None or isinstance(result, Value) else list(result)
    if variadic is not None and len(gradients) == len(names) and isinstance(gradients[-1], list | tuple):
        gradients = [*gradients[:-1], *gradients[-1]]
    if len(gradients) != len(node.inputs):
        raise TypeError(f"{op.name}: vjp gave {len(gradients)} gradients for {len(node.inputs)} inputs")
    for value, cotangent in zip(node.inputs, gradients, strict=True):
        if value is not None and cotangent is not None and cotangent.shape != value.shape:
            raise TypeError(f"{op.name}: the gradient of {value.type} came out as {cotangent.type}")
    return gradients


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
    cotangents: dict[Value, Value] = {}
    for output, dy in zip(outputs, dys, strict=True):
        if output is not None and dy is not None:
            _add(cotangents, output, dy)
    fixed = {k for k, spec in enumerate(op.inputs) if spec.name in op.fixed}
    floats = [
        v.dtype.is_differentiable and not v.type.weak and k not in fixed
        for k, v in enumerate(stand_ins)
        if v is not None
    ]
    values = {s: v for s, v in zip(stand_ins, inputs, strict=True) if s is not None and v is not None}
    _propagate(graph, floats, cotangents, _Recomputed(values))
    return [None if v is None else cotangents.get(v) for v in stand_ins]


def joint_graph(graph: Graph, needs_gradient: Sequence[bool], has_cotangent: Sequence[bool]) -> Graph:
    """As backward_graph, but the values that the gradients read are computed inside.

    Inputs: those of the graph, then the gradients of outputs. So its gradient is the second one.
    """
    ys = [(k, v) for k, (v, has_dy) in enumerate(zip(graph.outputs, has_cotangent, strict=True)) if has_dy]
    pairs = [(v, input_value(v.type, f"dy{k}")) for k, v in ys if v is not None]
    xs = [v for v, is_needed in zip(graph.inputs, needs_gradient, strict=True) if is_needed]
    dys = [dy for _, dy in pairs]
    return Graph([*graph.inputs, *dys], gradients([y for y, _ in pairs], xs, dys))


def gradients(
    ys: Sequence[Value],
    xs: Sequence[Value],
    dys: Sequence[Value | None] | None = None,
    constant: Container[Node] = (),
) -> list[Value | None]:
    """The gradients of values with respect to others that they were computed from; None where it is zero everywhere.

    dys: the gradients of ys, None for zero; by default 1 for every element. They read the very values that ys were
    computed from, so that a graph of both computes nothing twice. constant: nodes that have no gradient.
    """
    seeds = [F.filled_like(y, value=1.0) for y in ys] if dys is None else list(dys)
    cotangents: dict[Value, Value] = {}
    for y, dy in zip(ys, seeds, strict=True):
        if dy is not None:
            _add(cotangents, y, dy)
    _propagate(Graph(xs, ys), [True] * len(xs), cotangents, lambda value: value, constant)
    return [cotangents.get(x) for x in xs]


class _Rule:
    """The gradients of one graph, to be made again for others of its key: inputs stand for its values, then for dys."""

    def __init__(
        self, values: Sequence[Value], dys: Sequence[Value | None], dxs: Sequence[Value | None]
    ) -> None:
        self.inputs = [*values, *(dy for dy in dys if dy is not None)]
        self.dxs, self.nodes = list(dxs), _between(self.inputs, dxs)

    def __call__(self, values: Sequence[Value], dys: Sequence[Value | None]) -> list[Value | None]:
        inputs = [*values, *(dy for dy in dys if dy is not None)]
        new = dict(zip(self.inputs, inputs, strict=True))
        for node in self.nodes:
            copy = Node(
                node.op,
                [None if v is None else new.get(v, v) for v in node.inputs],
                [v.type for v in node.outputs],
                {name: new.get(v, v) for name, v in node.runtime.items()},
            )
            new.update((old, each) for old, each in zip(node.outputs, copy.outputs, strict=True))
        return [None if dx is None else new.get(dx, dx) for dx in self.dxs]


def _between(inputs: Sequence[Value], outputs: Sequence[Value | None]) -> list[Node]:
    """The nodes that compute outputs from inputs, each after those that it reads; constants are none of them."""
    ends = set(inputs)
    nodes: dict[Node, None] = {}  # in order: several nodes may have one Node.order
    given: dict[Node, None] = {}
    stack = [v for v in outputs if v is not None]
    while stack:
        value = stack.pop()
        if value in ends or value.node.op is None:
            given[value.node] = None
        elif value.node not in nodes:
            nodes[value.node] = None
            stack.extend(value.node.reads)
    return in_order(nodes, given)


_rules: Table[_Rule] = Table(1024)
registry.clear_when_made_again(_rules.clear)


def recorded_gradients(
    ys: Sequence[Value], xs: Sequence[Value], dys: Sequence[Value | None], constant: Container[Node] = ()
) -> list[Value | None]:
    """As gradients, for functions that are recorded again and again: for a graph of a key that was met, no rule runs.

    Operators' rules are pure, so the nodes that they make depend on the graph's key alone; they are made again from
    those of the first time. Where sizes answer comparisons they depend on the answers, too, and rules run each time.
    """
    if are_guarded():
        return gradients(ys, xs, dys, constant)
    nodes = Graph((), [*ys, *xs]).nodes
    leaves = [v for node in nodes if node.op is None and not (v := node.outputs[0]).is_constant]
    graph = Graph(leaves, [*ys, *xs])
    computed = [node for node in nodes if node.op is not None]
    values = [*leaves, *(v for node in computed for v in node.outputs)]
    stops = tuple([k for k, node in enumerate(computed) if node in constant])
    types = tuple([None if dy is None else dy.type.__weft_key__ for dy in dys])

    def make() -> _Rule:
        stand_ins = [None if dy is None else input_value(dy.type, "dy") for dy in dys]
        return _Rule(values, stand_ins, gradients(ys, xs, stand_ins, constant))

    return _rules.get((graph.key, len(ys), types, stops), make)(values, dys)


def _propagate(
    graph: Graph,
    needs_gradient: Sequence[bool],
    cotangents: dict[Value, Value],
    read: Callable[[Value | None], Value | None],
    constant: Container[Node] = (),
) -> None:
    """Adds to cotangents, the gradients of values, those of what the graph's outputs were computed from."""
    needed = reaching(graph, needs_gradient, constant)
    for node in reversed(graph.nodes):
        if node.op is None or node not in needed or not any(v in cotangents for v in node.outputs):
            continue
        for value, cotangent in zip(node.inputs, node_gradient(node, cotangents, read), strict=True):
            if value is not None and cotangent is not None and value.node in needed:
                _add(cotangents, value, cotangent)


def _add(cotangents: dict[Value, Value], value: Value, cotangent: Value) -> None:
    """Integers, such as indices that a program gives besides its result, have no gradient."""
    if not value.dtype.is_differentiable:
        return
    sum_before = cotangents.get(value)
    cotangents[value] = cotangent if sum_before is None else F.add(sum_before, cotangent)


def reaching(graph: Graph, needs_gradient: Sequence[bool], constant: Container[Node] = ()) -> set[Node]:
    """The nodes that an input that needs a gradient has an influence on."""
    reached = {v.node for v, is_needed in zip(graph.inputs, needs_gradient, strict=True) if is_needed}
    for node in graph.nodes:
        stops = node in constant or (node.op is not None and node.op.stops_gradient)
        if not stops and any(v is not None and v.node in reached for v in node.inputs):
            reached.add(node)
    return reached
