"""Writes and reads graphs and symbols as JSON: operators by name, typed attributes, values by their node's index.

A node is an input, a constant or an operator, ``{"op": "exp", ...}``. In a symbol it is a variable,
``{"variable": "x", ...}``, or an operator that also has a name and the user's attributes, and no types; numbers among
its inputs are written where they are read. An operator refers to nodes before it only.

Reading trusts nothing: every part is checked, types are inferred again, and nothing of what was read is run.

>>> from weft.base.dtype import float32
>>> from weft.graph.graph import graph_of
>>> from weft.ops.types import PartialType, TensorType
>>> import weft.ops.functions as F
>>> graph = graph_of(lambda x: F.sum(x * 2, axis=0), [TensorType((2, 3), float32)])
>>> str(from_json(to_json(graph))) == str(graph)
True
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from weft.base.device import Device, as_device
from weft.base.dtype import DType, as_dtype
from weft.base.errors import GraphError
from weft.graph.constant_array import Elements
from weft.graph.graph import Graph
from weft.graph.subgraph import Subgraph
from weft.graph.symbols import (
    TRAINING,
    SymbolNode,
    body,
    check_names,
    check_written,
    is_partial,
)
from weft.ops import registry
from weft.ops.node import Node, Value, constant, input_value, make_node
from weft.ops.op import Op
from weft.ops.sizes import COMPUTED, Size, axis_size
from weft.ops.types import PartialType, TensorType

__all__ = [
    "JsonSource",
    "checked",
    "decode",
    "decode_integer",
    "decode_size",
    "document",
    "encode",
    "from_json",
    "symbol_from_json",
    "symbol_to_json",
    "to_json",
]

T = TypeVar("T")

GRAPH, SYMBOL, VERSION = "weft.graph", "weft.symbol", 1
CONTENT = ("inputs", "outputs", "writes", "nodes")
MOST = 1 << 62  # elements of an array
MOST_OUTPUTS = 1 << 16  # of an operator in a symbol
MOST_AXES = 1 << 10  # dynamic sizes of a graph


# Writing.


def _document_text(format: str, content: dict[str, Any]) -> str:
    """A document of a format. One line for each node, so that versions of it can be compared."""
    nodes = ",\n  ".join(json.dumps(node, allow_nan=False) for node in content["nodes"])
    rest = {key: value for key, value in content.items() if key != "nodes"}
    head = json.dumps({"format": format, "version": VERSION, **rest}, allow_nan=False)
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
    if isinstance(value, Size):
        return {"size": _encode_size(value)}
    if isinstance(value, Elements):
        t = value.type
        return {"elements": value.to_text(), "shape": list(t.shape), "dtype": t.dtype.name}
    if isinstance(value, Subgraph):
        graph = value.graph
        if not is_partial(graph.outputs[0] if graph.outputs else None):
            return {"graph": _content(graph)}
        names = [v.node.name for v in graph.inputs]
        return {"symbol": {"inputs": names, **_symbol_content([v for v in graph.outputs if v is not None])}}
    raise GraphError(f"to_json: an attribute cannot be written: {value!r}")


def encode_op(op: Op, skip: tuple[str, ...] = ()) -> dict[str, Any]:
    """An operator and its attributes."""
    return {
        "op": op.name,
        "attributes": {name: encode(value) for name, value in op.values().items() if name not in skip},
    }


def _encode_size(size: Size) -> list[Any]:
    """What a size is computed from, each part once and behind its operands, and itself, the last.

    A part is the number of a dynamic axis, or an operation with two operands: numbers, or [index of a part].
    """
    if not size.is_of_axes:
        raise GraphError(f"to_json: a graph for all sizes of a pattern cannot be written: {size}")
    parts = size.parts()
    index = {id(part): k for k, part in enumerate(parts)}
    return [
        part.args[0]
        if part.op == "axis"
        else [part.op, *([index[id(arg)]] if isinstance(arg, Size) else arg for arg in part.args)]
        for part in parts
    ]


def _encode_type(t: TensorType) -> dict[str, Any]:
    content = {
        "shape": [encode(n) for n in t.shape],
        "dtype": t.dtype.name,
        "device": str(t.device),
        "weak": t.weak,
    }
    return content if t.storage == "dense" else {**content, "storage": t.storage}


def to_json(graph: Graph) -> str:
    """The text form of a graph, whose sizes may depend on dynamic axes. Raises GraphError for what has none."""
    return _document_text(GRAPH, _content(graph))


def symbol_to_json(values: Sequence[Value]) -> str:
    """The text form of symbols. Raises GraphError if two variables have one name."""
    return _document_text(SYMBOL, _symbol_content(values))


def _content(graph: Graph) -> dict[str, Any]:
    """The content of a document of a graph."""
    others = [node for node in graph.nodes if all(node is not v.node for v in graph.inputs)]
    nodes = [*(v.node for v in graph.inputs), *others]
    index = {id(node): k for k, node in enumerate(nodes)}
    return {
        "inputs": len(graph.inputs),
        "outputs": [_reference(v, index) for v in graph.outputs],
        "writes": [[k, i] for k, i in graph.writes.items()],
        "nodes": [_encode_node(node, index) for node in nodes],
    }


def _symbol_content(values: Sequence[Value]) -> dict[str, Any]:
    """The content of a document of symbols; nodes are in the order of the program that made them."""
    nodes = [node for node in Graph((), values).nodes if isinstance(node, SymbolNode)]
    check_names(nodes)
    index = {id(node): k for k, node in enumerate(nodes)}
    return {
        "outputs": [_reference(v, index) for v in values],
        "nodes": [_encode_symbol_node(node, index) for node in nodes],
    }


def _reference(value: Value | None, index: dict[int, int]) -> Any:
    """[node, output]; a number for a constant that is not a node of the document, null for nothing."""
    if value is None:
        return None
    number = index.get(id(value.node))
    return encode(value.node.value) if number is None else [number, value.index]


def _encode_node(node: Node, index: dict[int, int]) -> dict[str, Any]:
    if node.op is None and node.value is None:
        return {"input": node.name, "type": _encode_type(node.outputs[0].type)}
    if node.op is None:
        t = node.outputs[0].type
        return {"value": encode(node.value), "dtype": None if t.weak else t.dtype.name}
    return {
        **encode_op(node.op),
        "inputs": [_reference(v, index) for v in node.inputs],
        "runtime": {name: _reference(v, index) for name, v in node.runtime.items()},
        "types": [_encode_type(v.type) for v in node.outputs[: len(node.outputs) - node.op.hidden]],
    }


def _encode_symbol_node(node: SymbolNode, index: dict[int, int]) -> dict[str, Any]:
    if node.op is None:
        shape, dtype = node.outputs[0].type.shape, node.outputs[0].type.dtype
        return {
            "variable": node.name,
            "shape": None if shape is None else list(shape),
            "dtype": None if dtype is None else dtype.name,
            "init": node.init,
            "attrs": node.attrs,
        }
    counted = node.op.count_outputs(len(node.inputs)) is not None
    return {
        "name": node.name,
        **encode_op(node.op, skip=(TRAINING,) if node.is_open else ()),
        "inputs": [_reference(v, index) for v in node.inputs],
        "attrs": node.attrs,
        **({} if counted else {"count": len(node.outputs)}),
    }


# Reading.


class JsonSource:
    """A part of a document, and its position there, for messages."""

    def __init__(self, value: Any, where: str) -> None:
        self.value, self.where = value, where

    def fail(self, fact: str) -> GraphError:
        return GraphError(f"from_json: {self.where}: {fact}")

    def is_a(self, kind: type[T], word: str) -> T:
        if not isinstance(self.value, kind) or (kind is int and isinstance(self.value, bool)):
            raise self.fail(f"expected {word}, found {_short(self.value)}")
        return self.value

    def text(self) -> str:
        return self.is_a(str, "a text")

    def integer(self, low: int, high: int) -> int:
        """An int of low ... high - 1."""
        number = self.is_a(int, "an integer")
        if not low <= number < high:
            raise self.fail(f"expected {low}..{high - 1}, found {number}")
        return number

    def items(self) -> list[JsonSource]:
        return [JsonSource(each, f"{self.where}[{k}]") for k, each in enumerate(self.is_a(list, "a list"))]

    def reference(self, nodes: Sequence[Node]) -> Value:
        """A value of one of the nodes before."""
        pair = self.items()
        if len(pair) != 2:
            raise self.fail("expected a node's number and an output's")
        if not nodes:
            raise self.fail("there is no node before")
        outputs = nodes[pair[0].integer(0, len(nodes))].outputs
        return outputs[pair[1].integer(0, len(outputs))]

    def entries(self) -> Iterator[tuple[str, JsonSource]]:
        for name, value in self.is_a(dict, "an object").items():
            yield name, JsonSource(value, f"{self.where}.{_short(name)[1:-1]}")

    def __getitem__(self, name: str) -> JsonSource:
        members = self.is_a(dict, "an object")
        if name not in members:
            raise self.fail(f"has no {name!r}")
        return JsonSource(members[name], f"{self.where}.{name}")

    def __contains__(self, name: str) -> bool:
        return isinstance(self.value, dict) and name in self.value

    def only(self, *names: str) -> None:
        """Raise GraphError for entries of other names."""
        for name, part in self.entries():
            if name not in names:
                raise part.fail(f"is not known; there are: {', '.join(names)}")


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."


def document(text: str | bytes, format: str, *versions: int) -> JsonSource:
    """The document in a text. Raises GraphError unless it is JSON of this format and one of these versions."""
    versions = versions or (VERSION,)

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    def no_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            raise ValueError("a name occurs twice in one object")
        return members

    if not isinstance(text, str | bytes):
        raise GraphError(f"from_json: expected a text, got {type(text).__name__}")
    try:
        value = json.loads(text, parse_constant=refuse, object_pairs_hook=no_repetition)
    except (ValueError, RecursionError) as error:
        raise GraphError(f"from_json: no JSON: {error}") from None
    source = JsonSource(value, format)
    if (found_format := source["format"].text()) != format:
        raise source.fail(f"is a document of format {_short(found_format)}")
    if (found_version := source["version"].integer(0, 1 << 31)) not in versions:
        raise source.fail(
            f"is of version {found_version}; this program reads version {', '.join(map(str, versions))}"
        )
    return source


def decode(source: JsonSource) -> Any:
    """The value that encode was given; lists come as tuples."""
    value = source.value
    if isinstance(value, list):
        return tuple(decode(item) for item in source.items())
    if not isinstance(value, dict):
        return value
    if "op" in source:
        return decode_op(source)
    for kind, read in _GRAPHS.items():
        if kind in source and len(value) == 1:
            return read(source[kind])
    if "size" in source and len(value) == 1:
        return decode_size(source["size"])
    if "elements" in source:
        return _decode_elements(source)
    kinds: dict[str, Callable[[Any], Any]] = {"float": float, "dtype": as_dtype, "device": as_device}
    for kind, make in kinds.items():
        if kind in source and len(value) == 1:
            return checked(source, functools.partial(make, source[kind].text()))
    raise source.fail(f"expected one of {', '.join((*kinds, *_GRAPHS))}, size, elements, op")


def _decode_elements(source: JsonSource) -> Elements:
    """The elements of an array that encode was given."""
    source.only("elements", "shape", "dtype")
    shape = tuple(n.integer(0, MOST) for n in source["shape"].items())
    dtype = checked(source, lambda: as_dtype(source["dtype"].text()))
    text = source["elements"].text()
    return checked(source, lambda: Elements.from_text(TensorType(shape, dtype), text))


def decode_size(source: JsonSource, axes: int = MOST_AXES) -> Size:
    """The size that _encode_size was given; axes: how many there are."""
    parts: list[Size] = []
    for part in source.items():
        if isinstance(part.value, int):
            parts.append(axis_size(part.integer(0, axes)))
            continue
        op, *operands = part.items()
        if op.value not in COMPUTED or len(operands) != 2:
            raise part.fail(f"expected one of {', '.join(COMPUTED)}, and two operands")
        values: list[Any] = []
        for each in operands:
            if isinstance(each.value, int):
                values.append(each.integer(-MOST, MOST))
            else:
                (index,) = each.items() if len(each.items()) == 1 else [each]
                values.append(parts[index.integer(0, len(parts))])
        if not any(isinstance(value, Size) for value in values):
            raise part.fail("is a number")
        parts.append(Size(op.text(), *values))
    if not parts:
        raise source.fail("is empty")
    return parts[-1]


def decode_integer(source: JsonSource, low: int, high: int) -> int | Size:
    """An int of low ... high - 1, or a size that depends on dynamic axes."""
    return decode_size(source["size"]) if "size" in source else source.integer(low, high)


def decode_op(source: JsonSource) -> Op:
    """The operator that encode_op was given."""
    name = source["op"].text()
    values = {key: decode(part) for key, part in source["attributes"].entries()}
    if name in _RENAMED:
        name, slices = _RENAMED[name]
        values[slices] = values.pop("slices", 0)
        values.pop("", None)
        if isinstance(body := values.get("body"), Subgraph):
            values.setdefault("states", len(body.graph.outputs))
    try:
        cls = registry.get(name)
    except AttributeError:
        raise source.fail(f"no operator is called {_short(name)}") from None
    return checked(source, lambda: cls(**values))


# Operators that have another name in older documents: the name now, and that of the attribute slices, if any.
_RENAMED = {
    "symbol_foreach": ("foreach_loop", "sequences"),
    "symbol_while": ("while_loop", ""),
    "symbol_cond": ("cond_branch", ""),
    "symbol_function": ("custom_vjp", ""),
    "own_gradient": ("custom_vjp", ""),
    "no_own_gradient": ("no_custom_vjp", ""),
}


def checked(source: JsonSource, make: Callable[[], T]) -> T:
    """make(), whose errors become those of the document, since another program may have written it."""
    try:
        return make()
    except Exception as error:
        raise source.fail(f"{type(error).__name__}: {error}") from None


def _decode_type(source: JsonSource) -> TensorType:
    is_dense = "storage" not in source
    source.only("shape", "dtype", "device", "weak", *(() if is_dense else ("storage",)))
    shape = [decode_integer(part, 0, MOST) for part in source["shape"].items()]
    if math.prod(n for n in shape if isinstance(n, int)) >= MOST:
        raise source.fail(f"an array of the shape {shape} is too large")
    dtype = checked(source, lambda: as_dtype(source["dtype"].text()))
    device = checked(source, lambda: as_device(source["device"].text()))
    weak = source["weak"].is_a(bool, "true or false")
    if weak and shape:
        raise source.fail("a number has no dimensions")
    if is_dense:
        return TensorType(shape, dtype, device, weak)
    return checked(source, lambda: TensorType(shape, dtype, device, weak, source["storage"].text()))


def from_json(text: str | bytes) -> Graph:
    """The graph of a text that to_json made. Raises GraphError for anything else."""
    source = document(text, GRAPH)
    source.only("format", "version", *CONTENT)
    del source.value["format"], source.value["version"]
    return _bounded(source, _read)


def symbol_from_json(text: str | bytes) -> tuple[Value, ...]:
    """The values that symbol_to_json was given. Raises GraphError for anything else."""
    source = document(text, SYMBOL)
    source.only("format", "version", "outputs", "nodes")
    return _bounded(source, _read_symbol)


def _bounded(source: JsonSource, read: Callable[[JsonSource], Any]) -> Any:
    try:
        return read(source)
    except RecursionError:
        raise source.fail("is nested too deeply") from None


def _read(source: JsonSource) -> Graph:
    source.only(*CONTENT)
    nodes: list[Node] = []
    node_parts = source["nodes"].items()
    count = source["inputs"].integer(0, len(node_parts) + 1)
    for k, part in enumerate(node_parts):
        if ("input" in part) != (k < count):
            raise part.fail(f"the first {count} nodes are the inputs")
        nodes.append(_read_node(part, nodes))
    outputs = [_value(part, nodes) for part in source["outputs"].items()]
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


def _value(part: JsonSource, nodes: Sequence[Node]) -> Value | None:
    return None if part.value is None else part.reference(nodes)


def _read_node(part: JsonSource, nodes: Sequence[Node]) -> Node:
    if "input" in part:
        part.only("input", "type")
        return input_value(_decode_type(part["type"]), part["input"].text()).node
    if "value" in part:
        part.only("value", "dtype")
        number = decode(part["value"])
        if not isinstance(number, bool | int | float | Size):
            raise part.fail(f"expected a number, found {_short(number)}")
        dtype = None
        if part["dtype"].value is not None:
            dtype = checked(part, lambda: as_dtype(part["dtype"].text()))
        return constant(number, dtype).node
    part.only("op", "attributes", "inputs", "runtime", "types")
    op = decode_op(part)
    inputs = [_value(each, nodes) for each in part["inputs"].items()]
    allowed = op.runtime_names()
    runtime: dict[str, Value] = {}
    for name, each in part["runtime"].entries():
        value = _value(each, nodes)
        if name not in allowed or value is None or value.shape != ():
            raise each.fail(f"is not a number given when {op.name} runs")
        runtime[name] = value
    node = checked(part, lambda: make_node(op, inputs, runtime))
    types = [_decode_type(each) for each in part["types"].items()]
    inferred = [v.type for v in node.outputs[: len(node.outputs) - op.hidden]]
    if types != inferred:
        raise part.fail(f"{op.name} makes {inferred}, the document says {types}")
    return node


# Symbols.


def _read_symbol(source: JsonSource) -> tuple[Value, ...]:
    nodes: list[SymbolNode] = []
    for part in source["nodes"].items():
        nodes.append(_read_variable(part) if "variable" in part else _read_symbol_node(part, nodes))
    outputs = tuple(part.reference(nodes) for part in source["outputs"].items())
    if not outputs:
        raise source.fail("has no outputs")
    try:
        check_names(nodes)
    except GraphError as error:
        raise source.fail(str(error)) from None
    return outputs


def _read_body(source: JsonSource) -> Subgraph:
    source.only("inputs", "outputs", "nodes")
    names = [part.text() for part in source["inputs"].items()]
    values = _read_symbol(source)
    return checked(source, lambda: body(values, names))


def _attrs(part: JsonSource) -> dict[str, str]:
    return {name: each.text() for name, each in part["attrs"].entries()}


def _name(part: JsonSource) -> str:
    if not (name := part.text()):
        raise part.fail("a name is not empty")
    return name


def _read_variable(part: JsonSource) -> SymbolNode:
    part.only("variable", "shape", "dtype", "init", "attrs")
    shape, dtype, init = part["shape"], part["dtype"], part["init"]
    sizes = None
    if shape.value is not None:
        sizes = tuple(None if n.value is None else n.integer(0, MOST) for n in shape.items())
    kind = None if dtype.value is None else checked(dtype, lambda: as_dtype(dtype.text()))
    return SymbolNode(
        None,
        (),
        _name(part["variable"]),
        _attrs(part),
        type=PartialType(sizes, kind),
        init=None if init.value is None else init.text(),
    )


def _read_symbol_node(part: JsonSource, nodes: Sequence[SymbolNode]) -> SymbolNode:
    part.only("name", "op", "attributes", "inputs", "attrs", "count")
    op = decode_op(part)
    inputs = [_operand(each, nodes) for each in part["inputs"].items()]
    _check_count(part, op, inputs)
    for value in op.values().values():
        if isinstance(value, Subgraph) and not is_partial(value.graph.outputs[0]):
            raise part.fail(f"{op.name}: a graph inside of a symbol is one of symbols")
    is_open = any(a.name == TRAINING for a in op.attributes) and TRAINING not in part["attributes"]
    name, attrs = _name(part["name"]), _attrs(part)
    count = None
    if "count" in part:
        count = part["count"].integer(0, MOST_OUTPUTS)
        if op.count_outputs(len(inputs)) is not None:
            raise part["count"].fail(f"is what {op.name} says itself")
    node = checked(part, lambda: SymbolNode(op, inputs, name, attrs, is_open=is_open, count=count))
    checked(part, lambda: check_written(node))
    return node


def _check_count(part: JsonSource, op: Op, inputs: Sequence[Any]) -> None:
    """An operator has all inputs it must have, and no more than it can have."""
    many = bool(op.inputs) and op.inputs[-1].variadic
    fixed = [spec for spec in op.inputs if not spec.variadic]
    if len(inputs) < len(fixed) or (len(inputs) > len(fixed) and not many):
        raise part.fail(f"{op.name} takes {len(fixed)} inputs, not {len(inputs)}")
    for k, x in enumerate(inputs):
        if x is None and (k >= len(fixed) or not fixed[k].optional):
            raise part.fail(f"{op.name}: input {k} must be given")


def _operand(part: JsonSource, nodes: Sequence[SymbolNode]) -> Value | bool | int | float | None:
    if isinstance(part.value, list):
        return part.reference(nodes)
    value = decode(part)
    if value is None or isinstance(value, bool | int | float):
        return value
    raise part.fail("expected [node, output], a number or null")


# The names of attributes that are graphs, and how they are read.
_GRAPHS: dict[str, Callable[[JsonSource], Subgraph]] = {
    "graph": lambda source: Subgraph(_read(source)),
    "symbol": _read_body,
}
