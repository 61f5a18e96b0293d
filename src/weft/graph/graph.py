"""A Graph: inputs, outputs, and the nodes between. Immutable; nodes are found from the outputs.

>>> from weft.base.dtype import float32
>>> from weft.graph.graph import graph_of
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> print(graph_of(lambda x: F.exp(x) + 1, [TensorType((2,), float32)]))
graph(x0: f32[2]@cpu:0)
  v0 = Exp()(x0): f32[2]@cpu:0
  v1 = Add()(v0, 1): f32[2]@cpu:0
  return v1
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from weft.base.exact import Key, Same, exact
from weft.base.typing import Any
from weft.kernels import choices
from weft.ops.kernels import Loop
from weft.ops.node import Node, Value, input_value
from weft.ops.op import Op
from weft.ops.types import TensorType

__all__ = ["Graph", "graph_of", "in_order", "interpret", "ordered"]


class Graph:
    """A functional program.

    inputs: Values from outside; outputs: Values, None for an absent one. writes: index of an output -> index of the
    input that it becomes the new content of; nothing else is ever written, so a graph has no other side effect than
    these, at its end. stable_inputs: indices of inputs whose content seldom changes between runs, such as parameters
    that are only read. nodes: those that the outputs need, each after those that it reads, else by Node.order.
    """

    __slots__ = ("_key", "inputs", "nodes", "outputs", "stable_inputs", "writes")

    _key: Key

    def __init__(
        self,
        inputs: Sequence[Value],
        outputs: Sequence[Value | None],
        writes: Mapping[int, int] | None = None,
        stable_inputs: Iterable[int] = (),
    ) -> None:
        self.inputs, self.outputs, self.writes = tuple(inputs), tuple(outputs), dict(writes or {})
        self.stable_inputs = frozenset(stable_inputs) - set(self.writes.values())
        self.nodes = _sorted(self.outputs)

    @property
    def key(self) -> Key:
        """Equal for graphs that compute the same by the same operators, in the same order, on inputs of the same types.

        It has the operators' classes and exact attributes, which values they read, types, constants with their bits,
        writes and outputs, but neither names nor users' lines. The text of a graph is for people: it has the names of
        classes, which several may have.
        """
        try:
            return self._key
        except AttributeError:
            self._key = Key(_structure_of(self))
            return self._key

    def __str__(self) -> str:
        names: dict[Value, str] = {}
        for k, value in enumerate(self.inputs):
            names[value] = f"x{k}"
        lines = [f"graph({', '.join(f'x{k}: {v.type}' for k, v in enumerate(self.inputs))})"]

        def name(value: Value | None) -> str:
            if value is None:
                return "None"
            return names.get(value) or (repr(value.node.value) if value.is_constant else "?")

        for node in self.nodes:
            if node.op is None:
                continue
            output_names = []
            for output in node.outputs:
                names[output] = f"v{len(names) - len(self.inputs)}"
                output_names.append(names[output])
            runtime = "".join(f", {k}={name(v)}" for k, v in node.runtime.items())
            types = ", ".join(str(output.type) for output in node.outputs)
            lines.append(
                f"  {', '.join(output_names)} = {node.op!r}({', '.join(map(name, node.inputs))}{runtime}): {types}"
            )
        lines += [f"  x{target} <- {name(self.outputs[output])}" for output, target in self.writes.items()]
        results = [v for k, v in enumerate(self.outputs) if k not in self.writes]
        return "\n".join([*lines, f"  return {', '.join(map(name, results))}"])


def _structure_of(graph: Graph) -> tuple[Any, ...]:
    """What Graph.key is equal by."""
    numbers = {value: k for k, value in enumerate(graph.inputs)}

    def read(value: Value | None) -> Any:
        number = None if value is None else numbers.get(value)
        if number is not None or value is None:
            return number
        if value.is_constant:
            return (exact(value.node.value), value.type.__weft_key__)
        return Same(value)  # given from outside, and no input

    parts: list[Any] = [v.type.__weft_key__ for v in graph.inputs]
    for node in graph.nodes:
        if node.op is None:
            continue
        runtime = [(name, read(v)) for name, v in node.runtime.items()]
        types = [v.type.__weft_key__ for v in node.outputs]
        parts.append((node.op.__weft_key__, tuple(map(read, node.inputs)), *runtime, *types))
        for value in node.outputs:
            numbers[value] = len(numbers)
    outputs = tuple(map(read, graph.outputs))
    writes, stable_inputs = tuple(graph.writes.items()), tuple(sorted(graph.stable_inputs))
    return (len(graph.inputs), *parts, outputs, writes, stable_inputs)


def ordered(outputs: Iterable[Value | None]) -> list[Node]:
    """The nodes that outputs need, each after those it reads, otherwise in the order in which they are needed."""
    finished: dict[Node, None] = {}
    begun: set[Node] = set()
    stack = [value.node for value in outputs if value is not None][::-1]
    while stack:
        node = stack[-1]
        if node in begun:  # all that it reads has been popped since, or it is done
            finished.setdefault(stack.pop())
        else:
            begun.add(node)
            stack.extend(v.node for v in reversed(node.reads) if v.node not in begun)
    return list(finished)


def _sorted(outputs: Sequence[Value | None]) -> tuple[Node, ...]:
    """The nodes that outputs need, each after those it reads; of those that could come next, the first by order."""
    nodes: dict[Node, None] = {}  # in order: several nodes may have one Node.order
    stack = [value.node for value in reversed(outputs) if value is not None]
    while stack:
        node = stack.pop()
        if node not in nodes:
            nodes[node] = None
            for v in reversed(node.reads):
                if v.node not in nodes:
                    stack.append(v.node)
    return tuple(in_order(nodes))


_order = operator.attrgetter("order")


def in_order(found: Collection[Node], given: Collection[Node] = ()) -> list[Node]:
    """Nodes sorted by Node.order, where nodes that took over the order of an earlier one come after what they read.

    Such a node waits until all that it reads is there, and then comes next: its order is before that of all the rest.
    given: what is there already, and not among the nodes that are returned.
    """
    nodes = sorted(found, key=_order)
    finished: dict[Node, None] = dict.fromkeys(given)
    waits: dict[int, int] = {}  # how many reads of a waiting node are of nodes that are not done
    readers: dict[Node, list[int]] = {}  # indices of nodes that wait for a node, once for each read
    ready: list[int] = []  # a heap of indices of nodes that have waited
    for k, node in enumerate(nodes):
        missing: list[Node] = []
        for v in node.reads:
            if v.node not in finished:
                missing.append(v.node)
        if missing:
            waits[k] = len(missing)
            for key in missing:
                readers.setdefault(key, []).append(k)
            continue
        finished[node] = None
        if node not in readers:
            continue
        import heapq  # graphs of one operator are in order

        while True:
            for j in readers.pop(node, ()):
                waits[j] -= 1
                if not waits[j]:
                    heapq.heappush(ready, j)
            if not ready:
                break
            node = nodes[heapq.heappop(ready)]
            finished[node] = None
    return list(finished)[len(given) :]


def graph_of(function: Callable[..., Any], types: Sequence[TensorType | None]) -> Graph:
    """The graph of a function called with Values of these types; it returns one Value or several.

    A None is passed on as None, a missing optional input.
    """
    values = [None if t is None else input_value(t, f"x{k}") for k, t in enumerate(types)]
    results = function(*values)
    return Graph(
        [v for v in values if v is not None], results if isinstance(results, tuple | list) else (results,)
    )


def interpret(graph: Graph, arrays: Sequence[Any]) -> list[Any]:
    """The outputs, computed by the operators' references on NumPy arrays; slow, for tests.

    Every result is converted to the type that infer gives.
    """
    import numpy as np

    contents: dict[Value, Any] = dict(zip(graph.inputs, arrays, strict=True))
    for node in graph.nodes:
        if node.op is None:
            if node.value is not None:
                contents[node.outputs[0]] = node.value
            continue
        bound = node.op.with_runtime({k: contents[v] for k, v in node.runtime.items()})
        operands = [None if v is None else contents[v] for v in node.inputs]
        results = reference_of(bound, node, operands)
        for output, result in zip(node.outputs, results, strict=True):
            contents[output] = np.asarray(result, output.type.dtype.numpy)
    return [None if v is None else contents[v] for v in graph.outputs]


def reference_of(op: Op, node: Node, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """An operator's outputs by its reference; without one by its definition."""
    if type(op).reference is not Op.reference:
        result = op.reference(*arrays)
        return result if isinstance(result, tuple) else (result,)
    return definition_of(op, node, arrays)


def definition_of(op: Op, node: Node, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """An operator's outputs in NumPy by its loop; without one by what it decomposes to."""
    import numpy as np

    from weft.ops.evaluate import evaluate_loop

    types = [None if v is None else v.type for v in node.inputs]
    operands = [
        None if v is None else np.asarray(a, v.type.dtype.numpy)
        for a, v in zip(arrays, node.inputs, strict=True)
    ]
    loop = next((choice for choice in choices(op, types) if isinstance(choice, Loop)), None)
    if loop is not None:
        results = evaluate_loop(loop, operands, [o.type.dtype.numpy for o in node.outputs])
        return tuple(np.reshape(a, o.shape) for a, o in zip(results, node.outputs, strict=True))
    if type(op).decompose is not Op.decompose:
        return tuple(interpret(graph_of(op.decompose, types), [a for a in operands if a is not None]))
    raise NotImplementedError(f"{op.name}: no reference")
