"""Graphs as JSON: operators by name, attributes as they are typed, values by the number of their node.

The same pieces write and read symbols. Reading trusts nothing: every part is checked, types are inferred again, and
nothing of what was read is run.

>>> from weft.base.dtype import float32
>>> from weft.graph.graph import graph_of
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> graph = graph_of(lambda x: F.sum(x * 2, axis=0), [TensorType((2, 3), float32)])
>>> str(from_json(to_json(graph))) == str(graph)
True
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from weft.base.device import Device, as_device
from weft.base.dtype import DType, as_dtype
from weft.base.errors import GraphError
from weft.graph.graph import Graph
from weft.graph.subgraph import Subgraph
from weft.ops import registry
from weft.ops.node import Node, Value, constant, input_value, make_node
from weft.ops.op import Op
from weft.ops.types import TensorType

__all__ = [
    "Source",
    "codec",
    "decode",
    "decode_op",
    "document",
    "encode",
    "encode_op",
    "from_json",
    "to_json",
    "written",
]

N = TypeVar("N")
FORMAT, VERSION = "weft.graph", 1
CONTENT = ("inputs", "outputs", "writes", "nodes")
MOST = 1 << 62  # elements of an array
_CODECS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Source], Any]]] = {}


def codec(kind: str, cls: type, to_text: Callable[[Any], Any], from_text: Callable[[Source], Any]) -> None:
    """Attributes of this class are objects of one entry, {kind: to_text(value)}."""
    _CODECS[kind] = cls, to_text, from_text


# Writing.


def written(format: str, version: int, content: dict[str, Any]) -> str:
    """A document of a format. One line for each node, so that versions of it can be compared."""
    nodes = ",\n  ".join(json.dumps(node, allow_nan=False) for node in content["nodes"])
    rest = {key: value for key, value in content.items() if key != "nodes"}
    head = json.dumps({"format": format, "version": version, **rest}, allow_nan=False)
    return f'{head[:-1]}, "nodes": [\n  {nodes}\n]}}\n'


def encode(value: Any) -> Any:
    """An attribute's value as JSON has it; what JSON has no word for is an object of one entry.

    >>> encode((1, (2.0, float("inf")), None, as_dtype("int8")))
    [1, [2.0, {'float': 'inf'}], None, {'dtype': 'int8'}]
    """
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, Device):
        return {"device": str(value)}
    if isinstance(value, Op):
        return encode_op(value)
    for kind, (cls, to_text, _) in _CODECS.items():
        if isinstance(value, cls):
            return {kind: to_text(value)}
    raise GraphError(f"to_json: an attribute cannot be written: {value!r}")


def encode_op(op: Op, skip: tuple[str, ...] = ()) -> dict[str, Any]:
    """An operator and its attributes."""
    return {
        "op": op.name,
        "attributes": {name: encode(value) for name, value in op.values().items() if name not in skip},
    }


def _encode_type(t: TensorType) -> dict[str, Any]:
    if not all(isinstance(n, int) for n in t.shape):
        raise GraphError(f"to_json: a graph for all sizes of a pattern cannot be written: {t}")
    written = {"shape": list(t.shape), "dtype": t.dtype.name, "device": str(t.device), "weak": t.weak}
    return written if t.storage == "dense" else {**written, "storage": t.storage}


def to_json(graph: Graph) -> str:
    """The text form of a graph of exact sizes. Raises GraphError for attributes that have none."""
    return written(FORMAT, VERSION, _content(graph))


def _content(graph: Graph) -> dict[str, Any]:
    """What stands in a document of a graph."""
    others = [node for node in graph.nodes if all(node is not v.node for v in graph.inputs)]
    nodes = [*(v.node for v in graph.inputs), *others]
    number = {id(node): k for k, node in enumerate(nodes)}

    def place(value: Value | None) -> list[int] | None:
        return None if value is None else [number[id(value.node)], value.index]

    def encoded(node: Node) -> dict[str, Any]:
        if node.op is None and node.value is None:
            return {"input": node.name, "type": _encode_type(node.outputs[0].type)}
        if node.op is None:
            t = node.outputs[0].type
            return {"value": encode(node.value), "dtype": None if t.weak else t.dtype.name}
        return {
            **encode_op(node.op),
            "inputs": [place(v) for v in node.inputs],
            "runtime": {name: place(v) for name, v in node.runtime.items()},
            "types": [_encode_type(v.type) for v in node.outputs[: len(node.outputs) - node.op.hidden]],
        }

    return {
        "inputs": len(graph.inputs),
        "outputs": [place(v) for v in graph.outputs],
        "writes": [[k, i] for k, i in graph.writes.items()],
        "nodes": [encoded(node) for node in nodes],
    }


# Reading.


class Source:
    """A part of a document, and where it stands, for messages."""

    def __init__(self, value: Any, where: str) -> None:
        self.value, self.where = value, where

    def fail(self, fact: str) -> GraphError:
        return GraphError(f"from_json: {self.where}: {fact}")

    def is_a(self, kind: type, word: str) -> Any:
        if not isinstance(self.value, kind) or (kind is int and isinstance(self.value, bool)):
            raise self.fail(f"expected {word}, found {_short(self.value)}")
        return self.value

    def text(self) -> str:
        found: str = self.is_a(str, "a text")
        return found

    def integer(self, low: int, high: int) -> int:
        """An int of low ... high - 1."""
        found: int = self.is_a(int, "an integer")
        if not low <= found < high:
            raise self.fail(f"expected {low}..{high - 1}, found {found}")
        return found

    def items(self) -> list[Source]:
        return [Source(each, f"{self.where}[{k}]") for k, each in enumerate(self.is_a(list, "a list"))]

    def reference(self, nodes: Sequence[N]) -> tuple[N, Source]:
        """One of the nodes so far, and the part that says which of its outputs."""
        pair = self.items()
        if len(pair) != 2:
            raise self.fail("expected a node's number and an output's")
        if not nodes:
            raise self.fail("there is no node before")
        return nodes[pair[0].integer(0, len(nodes))], pair[1]

    def entries(self) -> Iterator[tuple[str, Source]]:
        for name, value in self.is_a(dict, "an object").items():
            yield name, Source(value, f"{self.where}.{_short(name)[1:-1]}")

    def __getitem__(self, name: str) -> Source:
        found = self.is_a(dict, "an object")
        if name not in found:
            raise self.fail(f"has no {name!r}")
        return Source(found[name], f"{self.where}.{name}")

    def __contains__(self, name: str) -> bool:
        return isinstance(self.value, dict) and name in self.value

    def only(self, *names: str) -> None:
        """Raise GraphError for entries of other names."""
        for name, part in self.entries():
            if name not in names:
                raise part.fail(f"is not known; there are: {', '.join(names)}")


def _short(value: Any) -> str:
    shown = repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def document(text: str | bytes, format: str, version: int) -> Source:
    """The document in a text. Raises GraphError unless it is JSON of this format and version."""

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is no JSON")

    def no_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name stands twice in one object")
        return found

    if not isinstance(text, str | bytes):
        raise GraphError(f"from_json: expected a text, got {type(text).__name__}")
    try:
        value = json.loads(text, parse_constant=refuse, object_pairs_hook=no_repetition)
    except (ValueError, RecursionError) as error:
        raise GraphError(f"from_json: no JSON: {error}") from None
    found = Source(value, format)
    if (named := found["format"].text()) != format:
        raise found.fail(f"is a document of format {_short(named)}")
    if (number := found["version"].integer(0, 1 << 31)) != version:
        raise found.fail(f"is of version {number}; this program reads version {version}")
    return found


def decode(source: Source) -> Any:
    """What encode was given; lists come as tuples."""
    value = source.value
    if isinstance(value, list):
        return tuple(decode(item) for item in source.items())
    if not isinstance(value, dict):
        return value
    if "op" in source:
        return decode_op(source)
    for kind, (_, _, from_text) in _CODECS.items():
        if kind in source and len(value) == 1:
            return from_text(source[kind])
    kinds: dict[str, Callable[[Any], Any]] = {"float": float, "dtype": as_dtype, "device": as_device}
    for kind, make in kinds.items():
        if kind in source and len(value) == 1:
            try:
                return make(source[kind].text())
            except (TypeError, ValueError) as error:
                raise source.fail(str(error)) from None
    raise source.fail(f"expected one of {', '.join((*kinds, *_CODECS))}, op")


def decode_op(source: Source, find: Callable[[str], type[Op]] = registry.get) -> Op:
    """The operator that encode_op was given; find: from names to classes."""
    name = source["op"].text()
    try:
        cls = find(name)
    except AttributeError:
        raise source.fail(f"no operator is called {_short(name)}") from None
    values = {key: decode(part) for key, part in source["attributes"].entries()}
    return checked(source, lambda: cls(**values))


def checked(source: Source, make: Callable[[], Any]) -> Any:
    """make(), whose errors are those of the document: its rules get what somebody else has written."""
    try:
        return make()
    except Exception as error:
        raise source.fail(f"{type(error).__name__}: {error}") from None


def _decode_type(source: Source) -> TensorType:
    is_dense = "storage" not in source
    source.only("shape", "dtype", "device", "weak", *(() if is_dense else ("storage",)))
    shape = [part.integer(0, MOST) for part in source["shape"].items()]
    if math.prod(shape) >= MOST:
        raise source.fail(f"an array of the shape {shape} is too large")
    dtype = checked(source, lambda: as_dtype(source["dtype"].text()))
    device = checked(source, lambda: as_device(source["device"].text()))
    weak: bool = source["weak"].is_a(bool, "true or false")
    if weak and shape:
        raise source.fail("a number has no dimensions")
    if is_dense:
        return TensorType(shape, dtype, device, weak)
    return checked(source, lambda: TensorType(shape, dtype, device, weak, source["storage"].text()))


def from_json(text: str | bytes) -> Graph:
    """The graph of a text that to_json made. Raises GraphError for anything else."""
    source = document(text, FORMAT, VERSION)
    source.only("format", "version", *CONTENT)
    del source.value["format"], source.value["version"]
    try:
        return _read(source)
    except RecursionError:
        raise source.fail("is nested too deeply") from None


def _read(source: Source) -> Graph:
    source.only(*CONTENT)
    nodes: list[Node] = []

    def value(part: Source) -> Value | None:
        if part.value is None:
            return None
        node, output = part.reference(nodes)
        return node.outputs[output.integer(0, len(node.outputs))]

    given = source["nodes"].items()
    count = source["inputs"].integer(0, len(given) + 1)
    for k, part in enumerate(given):
        is_input = "input" in part
        if is_input != (k < count):
            raise part.fail(f"the first {count} nodes are the inputs")
        nodes.append(_read_node(part, value))
    outputs = [value(part) for part in source["outputs"].items()]
    writes: dict[int, int] = {}
    for part in source["writes"].items():
        pair = part.items()
        if len(pair) != 2:
            raise part.fail("expected an output's number and an input's")
        k, i = pair[0].integer(0, len(outputs)), pair[1].integer(0, count)
        result, target = outputs[k], nodes[i].outputs[0]
        if k in writes or i in writes.values() or result is None or target.type.weak:
            raise part.fail("each output becomes the content of one array, each array once")
        if (result.shape, result.dtype) != (target.shape, target.dtype):
            raise part.fail(f"{result.type} cannot become the content of {target.type}")
        writes[k] = i
    return Graph([node.outputs[0] for node in nodes[:count]], outputs, writes)


def _read_node(part: Source, value: Callable[[Source], Value | None]) -> Node:
    if "input" in part:
        part.only("input", "type")
        return input_value(_decode_type(part["type"]), part["input"].text()).node
    if "value" in part:
        part.only("value", "dtype")
        number = decode(part["value"])
        if not isinstance(number, bool | int | float):
            raise part.fail(f"expected a number, found {_short(number)}")
        dtype = None
        if part["dtype"].value is not None:
            dtype = checked(part, lambda: as_dtype(part["dtype"].text()))
        return constant(number, dtype).node
    part.only("op", "attributes", "inputs", "runtime", "types")
    op = decode_op(part)
    inputs = [value(each) for each in part["inputs"].items()]
    allowed = op.runtime_names()
    runtime: dict[str, Value] = {}
    for name, each in part["runtime"].entries():
        found = value(each)
        if name not in allowed or found is None or found.shape != ():
            raise each.fail(f"is no number given when {op.name} runs")
        runtime[name] = found
    node: Node = checked(part, lambda: make_node(op, inputs, runtime))
    types = [_decode_type(each) for each in part["types"].items()]
    shown = [v.type for v in node.outputs[: len(node.outputs) - op.hidden]]
    if types != shown:
        raise part.fail(f"{op.name} makes {shown}, the document says {types}")
    return node


codec("graph", Subgraph, lambda subgraph: _content(subgraph.graph), lambda source: Subgraph(_read(source)))
