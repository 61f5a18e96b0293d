"""Symbols as nodes of MXNet: the writer that rules of operators are given.

An operator that MXNet's files became (weft.interop.mxnet.operators) is written as it was read. Any other is written by
its rule (weft.interop.mxnet.export_rules); without one, where shapes are known, as what it decomposes to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.base.errors import GraphError
from weft.graph.symbols import SymbolNode, is_partial, nodes_of
from weft.ops.node import Node, Value, input_value
from weft.ops.op import Op
from weft.ops.types import TensorType
from weft.symbol.inference import Inference

__all__ = ["RULES", "Entry", "Writer", "checked_heads", "exports"]

# A rule is a function (writer, node, *inputs) -> its outputs, or None where what the operator decomposes to has to do.
# Inputs are entries, numbers, or None for those that are missing; so are outputs.
Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}
# MXNet's numbers of dtypes, which attributes of variables have.
DTYPES = {
    "float32": 0,
    "float64": 1,
    "float16": 2,
    "uint8": 3,
    "int32": 4,
    "int8": 5,
    "int64": 6,
}


def exports(*operators: str) -> Callable[[Rule], Rule]:
    """Adds a rule for these operators."""

    def add(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(operators, rule))
        return rule

    return add


class Entry(NamedTuple):
    """Output `output` of node number `node` of the file."""

    node: int
    output: int


class Writer:
    """The nodes of one file. arrays: what nodes read beside the symbol's variables, by name.

    inference: what is known of the symbol's values.
    """

    def __init__(self, values: Sequence[Value], inference: Inference) -> None:
        self.inference = inference
        self.nodes: list[dict[str, Any]] = []
        self.arrays: dict[str, Any] = {}
        self.entries: dict[Value, Any] = {}
        self.symbol_nodes = nodes_of(values)
        self.readers = Counter(v for node in self.symbol_nodes for v in node.inputs if v is not None)
        self.readers.update(values)
        self.name = ""  # of the node of the symbol that is written
        self._taken = {node.name for node in self.symbol_nodes}

    # ---- Nodes

    def unique(self, wish: str) -> str:
        """A name that nothing has: this one, or with a number behind."""
        name, k = wish, 0
        while name in self._taken:
            name, k = f"{wish}{k}", k + 1
        self._taken.add(name)
        return name

    def add(self, operator: str, *inputs: Entry | None, **attributes: Any) -> Entry:
        """The first output of a new node. Attributes of None are left out, and so are missing inputs."""
        described: dict[str, Any] = {"op": operator, "name": self.unique(f"{self.name}_{operator.lower()}")}
        texts = {key: shown(value) for key, value in attributes.items() if value is not None}
        if texts:
            described["attrs"] = texts
        described["inputs"] = [[*entry, 0] for entry in inputs if entry is not None]
        self.nodes.append(described)
        return Entry(len(self.nodes) - 1, 0)

    def add_variable(self, name: str, attributes: dict[str, str]) -> Entry:
        """A node for an array that is given by name."""
        described: dict[str, Any] = {"op": "null", "name": name}
        if attributes:
            described["attrs"] = attributes
        described["inputs"] = []
        self.nodes.append(described)
        return Entry(len(self.nodes) - 1, 0)

    def array(self, suffix: str, x: Any) -> Entry:
        """A variable for an array that the file of arrays holds."""
        name = self.unique(f"{self.name}_{suffix}")
        self.arrays[name] = x
        return self.add_variable(name, {})

    def filled(self, suffix: str, size: int, number: float, like: Value) -> Entry:
        """A variable of `size` equal elements, in the dtype of another value."""
        t = self.type(like)
        dtype = "float32" if t is None else t.dtype.name
        return self.array(suffix, np.full(size, number, dtype))

    # ---- What is known

    def type(self, value: Value) -> TensorType | None:
        """The type of a value; None if it is not known."""
        return self.inference.type_of(value) if is_partial(value) else value.type

    def shape(self, node: Node, k: int) -> tuple[int, ...]:
        """The shape of input k. Raises GraphError if it is not known."""
        value = node.inputs[k]
        assert value is not None
        t = self.type(value)
        if t is None:
            raise self.refuse(node, f"the shape of input {k} is needed: give shapes= of the inputs")
        return tuple(map(int, t.shape))

    def converted(self, node: Node, inputs: Sequence[Any]) -> list[Any]:
        """Inputs in the dtype of the output: MXNet has no operators of several dtypes."""
        wanted = self.type(node.outputs[0])
        result = []
        for value, x in zip(node.inputs, inputs, strict=True):
            t = None if value is None or not isinstance(x, Entry) else self.type(value)
            is_other = t is not None and wanted is not None and t.dtype is not wanted.dtype
            result.append(self.add("Cast", x, dtype=self.dtype(node, wanted)) if is_other else x)
        return result

    def dtype(self, node: Node, type: Any) -> str:
        """The name of a dtype that MXNet has."""
        name: str = getattr(type, "dtype", type).name
        if name not in DTYPES:
            raise self.refuse(node, f"MXNet has no {name}")
        return name

    def states(self) -> set[str]:
        """The names of the variables that BatchNorm writes: auxiliary states in MXNet."""
        written = [node["inputs"][3:] for node in self.nodes if node["op"] == "BatchNorm"]
        return {self.nodes[entry[0]]["name"] for entries in written for entry in entries}

    # ---- Writing

    def write_symbol(self, values: Sequence[Value]) -> list[Entry]:
        """The entries of a symbol's outputs, after all nodes."""
        for node in self.symbol_nodes:
            self.name = node.name
            if node.op is None:
                self.entries[node.outputs[0]] = self.add_variable(node.name, self._hidden(node))
            else:
                self.write_node(node)
        heads = [self.read(value) for value in values]
        return checked_heads(heads)

    def _hidden(self, node: SymbolNode) -> dict[str, str]:
        """The attributes of a variable: what is declared of it."""
        texts = {key: text for key, text in node.attrs.items() if key.startswith("__") and key.endswith("__")}
        declared: Any = node.outputs[0].type
        if declared.shape is not None:
            texts["__shape__"] = shown(tuple(n or 0 for n in declared.shape))
        if declared.dtype is not None and declared.dtype.name in DTYPES:
            texts["__dtype__"] = str(DTYPES[declared.dtype.name])
        if node.init is not None:
            texts["__init__"] = node.init
        return texts

    def read(self, value: Value | None) -> Any:
        """What a value is in the file: an entry, a number, or None."""
        if value is None:
            return None
        if value.is_constant:
            return value.node.value
        return self.entries[value]

    def write_node(self, node: Node) -> None:
        """The nodes of MXNet for one of a graph."""
        assert node.op is not None
        start = len(self.nodes)
        rule = RULES.get(node.op.name)
        outputs = None if rule is None else rule(self, node, *map(self.read, node.inputs))
        if outputs is None:
            outputs = self.decomposed(node)
        outputs = outputs if isinstance(outputs, list) else [outputs]
        for value, entry in zip(node.outputs, outputs, strict=False):
            self.entries[value] = entry
        if isinstance(node, SymbolNode):
            self._take_name(node, outputs, start)

    def _take_name(self, node: SymbolNode, outputs: Sequence[Any], start: int) -> None:
        """Give the node that has the outputs the name of the symbol's."""
        entry = outputs[0]
        if not isinstance(entry, Entry):
            return
        if entry.node < start:  # it is a node that was there before
            sole = [
                v
                for v in node.inputs
                if v is not None and self.entries.get(v) == entry and self.readers[v] == 1
            ]
            if not sole or sole[0].node.op is None:
                if len(outputs) == 1:
                    self.entries[node.outputs[0]] = entry = self.add("_copy", entry)
                else:
                    return
        described = self.nodes[entry.node]
        if described["name"] in self.arrays:
            self.arrays[node.name] = self.arrays.pop(described["name"])
        described["name"] = node.name
        described.setdefault("attrs", {}).update(
            (key, text) for key, text in node.attrs.items() if key.startswith("__") and key.endswith("__")
        )
        if not described["attrs"]:
            del described["attrs"]

    def decomposed(self, node: Node) -> list[Any]:
        """By what the operator decomposes to, which takes the shapes of its inputs."""
        op = node.resolved(False) if isinstance(node, SymbolNode) else node.bound()
        if type(op).decompose is Op.decompose or op.random or op.writes_by_index(len(node.inputs)):
            raise self.refuse(node, "there is no rule for it")
        stand_ins: list[Any] = []
        for k, value in enumerate(node.inputs):
            if value is None or not is_partial(value):
                stand_ins.append(value)
                continue
            self.shape(node, k)
            t = self.type(value)
            assert t is not None
            stand_in = input_value(t, f"input {k}")
            self.entries[stand_in] = self.entries[value]
            stand_ins.append(stand_in)
        results = op.decompose(*stand_ins)
        if results is NotImplemented:
            raise self.refuse(node, "there is no rule for it")
        return list(self.written(results if isinstance(results, tuple | list) else (results,)))

    def written(self, values: Sequence[Value | None]) -> Iterator[Any]:
        """What values of a graph are in the file, after the nodes that they need."""
        stack = [v.node for v in values if v is not None][::-1]
        while stack:
            node = stack[-1]
            if node.op is None or all(v in self.entries for v in node.outputs):
                stack.pop()
                continue
            missing = [v.node for v in node.reads if not v.is_constant and v not in self.entries]
            if missing:
                stack += missing[::-1]
                continue
            stack.pop()
            self.write_node(node)
        return map(self.read, values)

    def refuse(self, node: Node, fact: str) -> GraphError:
        """The error of a node that cannot be written, to be raised."""
        assert node.op is not None
        types = ", ".join("None" if v is None else str(self.type(v) or "?") for v in node.inputs)
        name = f" {self.name!r}" if self.name else ""
        line = f"\n  at {node.where}" if node.where else ""
        return GraphError(f"mxnet.save: {node.op.name}{name}: {fact}: {node.op!r} of {types}{line}")


def checked_heads(heads: Sequence[Any]) -> list[Entry]:
    """The entries of outputs. Raises GraphError for numbers."""
    for head in heads:
        if not isinstance(head, Entry):
            raise GraphError(f"mxnet.save: an output is the number {head}, which MXNet's symbols cannot be")
    return list(heads)


def shown(value: Any) -> str:
    """An attribute as MXNet's text."""
    if isinstance(value, tuple | list):
        numbers = [shown(n) for n in value]
        return f"({numbers[0]},)" if len(numbers) == 1 else f"({', '.join(numbers)})"
    if isinstance(value, float):
        return repr(value)
    return str(value)
