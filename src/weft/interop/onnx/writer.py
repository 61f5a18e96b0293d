"""Values of a graph as nodes of ONNX: the writer that rules of operators are given.

An operator is written by its rule (weft.interop.onnx.export_rules); without one as what it decomposes to; without that
as the loop or the view that it is (weft.interop.onnx.export_loops). So each operator needs a rule only where ONNX has
one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.errors import GraphError
from weft.graph.subgraph import Subgraph
from weft.interop.onnx.elementwise import DTYPES
from weft.kernels import choices
from weft.ops.node import Node, Value
from weft.ops.op import Op
from weft.ops.sizes import Size
from weft.ops.types import TensorType

__all__ = ["CODES", "KERNELS", "RULES", "Writer", "exports"]

CODES = {name: code for code, name in DTYPES.items()}
# A rule is a function (writer, node, *names of inputs) -> the names of its outputs, of the first ones at least, or None
# where what the operator decomposes to has to do.
Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}
# How kernels of a type are written: a function (writer, node, kernel) -> names, or None for one that cannot be.
KERNELS: dict[type, Rule] = {}


def exports(*operators: str) -> Callable[[Rule], Rule]:
    """Adds a rule for these operators."""

    def add(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(operators, rule))
        return rule

    return add


def needed(node: Node) -> Sequence[Value]:
    """The values that a node reads; of control flow without captured values that its graphs do not use.

    The last inputs are those of the graphs; the first of them are sequences and states, which are always read.
    """
    op: Any = node.op
    graphs = [] if op is None else [x.graph for x in op.values().values() if isinstance(x, Subgraph)]
    if not graphs:
        return node.reads
    used: set[int] = set()
    for graph in graphs:
        reached: set[Value] = set()
        stack = [v for v in graph.outputs if v is not None]
        while stack:
            value = stack.pop()
            if value not in reached:
                reached.add(value)
                stack += needed(value.node)
        first = len(node.inputs) - len(graph.inputs)
        always = first + getattr(op, "sequences", 0) + getattr(op, "states", 0)
        used |= {*range(always), *(first + k for k, v in enumerate(graph.inputs) if v in reached)}
    return [v for k in sorted(used) if (v := node.inputs[k]) is not None]


def _may_be_negative(size: Any) -> bool:
    """Whether a number that sizes are computed with may be below 0."""
    if not isinstance(size, Size):
        return bool(size < 0)
    return size.op == "sub" or (size.op != "axis" and any(_may_be_negative(arg) for arg in size.args))


class Writer:
    """Nodes and constants of one graph of ONNX. axes: for each dynamic size the name of an input, its axis and name.

    outer: the writer of the graph around this one, which has the constants, and whose values this graph reads by name.
    reads: the values that something reads, of what is written or will be.
    """

    def __init__(
        self, opset: int, axes: Sequence[tuple[str, int, str]] = (), outer: Writer | None = None
    ) -> None:
        import onnx

        self.onnx, self.opset, self.axes, self.outer = onnx, opset, axes, outer
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.names: dict[Value, str] = {}
        self.reads: set[Value] = set()
        self._walked: set[Node] = set()
        self.line = ""  # the user's, of what is written
        self._constant_names: dict[Any, str] = {}
        self._sizes: dict[int, str] = {}  # by id: equal sizes are one object
        self._taken: set[str] = set() if outer is None else outer._taken

    # ---- Names, nodes, constants

    def name(self, wish: str) -> str:
        """A name that nothing has: this one, or with a number behind."""
        name, k = wish, 0
        while name in self._taken:
            k += 1
            name = f"{wish}_{k}"
        self._taken.add(name)
        return name

    def add(self, operator: str, *inputs: str | None, **attributes: Any) -> str:
        """The output of a new node."""
        return self.add_several(operator, 1, *inputs, **attributes)[0]

    def add_several(self, operator: str, count: int, *inputs: str | None, **attributes: Any) -> list[str]:
        """The outputs of a new node; None is an input that is missing."""
        given = ["" if name is None else name for name in inputs]
        while given and not given[-1]:
            given.pop()
        outputs = [self.name(operator.lower()) for _ in range(count)]
        attributes = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(
            self.onnx.helper.make_node(operator, given, outputs, self.name(f"{operator}_node"), **attributes)
        )
        return outputs

    def constant(self, array: Any, wish: str = "constant") -> str:
        """The name of an initializer of these elements; equal small ones are one."""
        if self.outer is not None:
            return self.outer.constant(array, wish)
        array = np.asarray(array)
        key = (array.dtype.str, array.dtype.name, array.shape, array.tobytes()) if array.size <= 64 else None
        if key is not None and key in self._constant_names:
            return self._constant_names[key]
        name = self.name(wish)
        self.constants[name] = array
        if key is not None:
            self._constant_names[key] = name
        return name

    def constant_of(self, name: str) -> Any:
        """The elements of an initializer; None for another value."""
        return self.constants.get(name) if self.outer is None else self.outer.constant_of(name)

    def cast(self, name: str, dtype: str, to: str) -> str:
        """A value in another element type."""
        return name if dtype == to else self.add("Cast", name, to=self.code(to))

    def code(self, dtype: str) -> int:
        """The number of TensorProto.DataType."""
        if dtype not in CODES:
            raise GraphError(f"onnx export: ONNX has no element type {dtype}")
        return CODES[dtype]

    # ---- Sizes

    def integers(self, numbers: Sequence[Any]) -> str:
        """An int64 vector of numbers and sizes."""
        if not any(isinstance(n, Size) for n in numbers):
            return self.constant(np.array(numbers, np.int64).reshape(-1))
        parts = [self.size(n) for n in numbers]
        return parts[0] if len(parts) == 1 else self.add("Concat", *parts, axis=0)

    def size(self, size: Any) -> str:
        """An int64 vector of one size."""
        if not isinstance(size, Size):
            return self.constant(np.array([size], np.int64))
        if id(size) not in self._sizes:
            if size.op == "axis":
                name, axis, _ = self.axes[size.args[0]]
                self._sizes[id(size)] = self.add("Shape", name, start=axis, end=axis + 1)
            elif size.op in ("add", "sub", "mul", "div"):
                operator = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div"}[size.op]
                a, b = (self.size(arg) for arg in size.args)
                if size.op == "div" and any(_may_be_negative(arg) for arg in size.args):
                    a = self.add("Sub", a, self.add("Mod", a, b))  # Div rounds towards zero, Mod has b's sign
                self._sizes[id(size)] = self.add(operator, a, b)
            else:
                raise GraphError(f"onnx export: the size {size} is not computed from dynamic axes")
        return self._sizes[id(size)]

    def reshaped(self, name: str, shape: Sequence[Any]) -> str:
        """A value in another shape."""
        is_empty = any(not isinstance(n, Size) and n == 0 for n in shape)
        return self.add("Reshape", name, self.integers(shape), allowzero=1 if is_empty else None)

    def info(self, name: str, t: TensorType) -> Any:
        """The description of an input or an output of a graph."""
        shape = [
            (self.axes[n.args[0]][2] if n.op == "axis" else None) if isinstance(n, Size) else n
            for n in t.shape
        ]
        return self.onnx.helper.make_tensor_value_info(name, self.code(t.dtype.name), shape)

    # ---- Values

    def read(self, value: Value | None) -> str | None:
        """The name of a value that was written, or of a number."""
        if value is None:
            return None
        writer: Writer | None = self
        while writer is not None:
            if value in writer.names:
                return writer.names[value]
            writer = writer.outer
        if value.is_constant:
            return self.constant(np.asarray(value.node.value, value.type.dtype.numpy))
        raise GraphError(
            f"onnx export: {value.node!r}: output {value.index} is not there in ONNX, but something reads it"
        )

    def read_as(self, value: Value, dtype: str) -> str:
        """The same in an element type."""
        name = self.read(value)
        assert name is not None
        return self.cast(name, value.type.dtype.name, dtype)

    def is_written(self, value: Value) -> bool:
        writer: Writer | None = self
        while writer is not None:
            if value in writer.names:
                return True
            writer = writer.outer
        return value.is_constant

    def write(self, values: Sequence[Value | None]) -> list[str | None]:
        """The names of values, after the nodes that they need."""
        finished: set[Node] = set()
        self._note_reads(values)
        stack = [v.node for v in values if v is not None and not self.is_written(v)][::-1]
        while stack:
            node = stack[-1]
            missing = [v.node for v in needed(node) if not self.is_written(v) and v.node not in finished]
            if missing:
                stack += missing[::-1]
                continue
            stack.pop()
            if node not in finished:
                finished.add(node)
                self.write_node(node)
        return [self.read(v) for v in values]

    def _note_reads(self, values: Sequence[Value | None]) -> None:
        """Everything that these values are computed from is read."""
        stack = [v for v in values if v is not None]
        while stack:
            value = stack.pop()
            self.reads.add(value)
            if value.node not in self._walked:
                self._walked.add(value.node)
                stack += needed(value.node)

    def write_node(self, node: Node) -> None:
        """The nodes of ONNX for one of a graph."""
        self.line = node.where or self.line
        if node.op is None:
            raise GraphError(
                f"onnx export: {node.name or 'an array'} is read, but is no input of the function"
            )
        if node.op.random:
            raise self.refuse(node, "it draws random numbers, which the model would not; call eval() first")
        rule = RULES.get(node.op.name)
        reads = needed(node)
        inputs = [self.read(v) if v in reads else None for v in node.inputs]
        names = None if rule is None else rule(self, node, *inputs)
        if names is None:
            names = self.decomposed(node)
        if names is None:
            names = self.by_kernel(node)
        self.give_names(node.outputs, [names] if isinstance(names, str) else names)

    def give_names(self, values: Sequence[Value], names: Sequence[str | None]) -> None:
        """Note what values are called; None: they cannot be read."""
        self.names.update((v, name) for v, name in zip(values, names, strict=False) if name is not None)

    def decomposed(self, node: Node) -> Sequence[str | None] | None:
        """By what the operator decomposes to; None if it does not."""
        op = node.bound()
        if type(op).decompose is Op.decompose:
            return None
        results = op.decompose(*node.inputs)
        if results is NotImplemented:
            return None
        return self.write(results if isinstance(results, tuple | list) else (results,))

    def by_kernel(self, node: Node) -> Sequence[str | None]:
        """By the loop, or the view, that the operator is."""
        for choice in choices(node.bound(), [None if v is None else v.type for v in node.inputs]):
            writing = KERNELS.get(type(choice))
            names: Sequence[str | None] | None = None if writing is None else writing(self, node, choice)
            if names is not None:
                return names
        raise self.refuse(node, "there is no rule for it")

    def refuse(self, node: Node, fact: str) -> GraphError:
        """The error of a node that cannot be written, to be raised."""
        assert node.op is not None
        types = ", ".join("None" if v is None else str(v.type) for v in node.inputs)
        line = f"\n  at {self.line}" if self.line else ""
        return GraphError(f"onnx export: {node.op.name}: {fact}: {node.op!r} of {types}{line}")
