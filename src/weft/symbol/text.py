"""Symbols as JSON: what weft.graph.text does for graphs, without types and with names.

A node is a variable, ``{"variable": "x", ...}``, or an operator. Its inputs are [node, output], a number, or null; an
operator refers to nodes before it only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.dtype import as_dtype
from weft.base.errors import GraphError
from weft.graph.text import (
    MOST,
    Source,
    checked,
    codec,
    decode,
    decode_op,
    document,
    encode,
    encode_op,
    written,
)
from weft.ops import registry
from weft.ops.op import Op
from weft.symbol.control import CONTROL, Body
from weft.symbol.gradient import SymbolGradient
from weft.symbol.node import OPEN, Entry, Operand, SymbolNode, check_names, check_written, ordered

__all__ = ["from_json", "to_json"]

FORMAT, VERSION = "weft.symbol", 1


def to_json(entries: Sequence[Entry]) -> str:
    """The text form of symbols. Raises GraphError if two variables have one name."""
    return written(FORMAT, VERSION, _content(entries))


def _content(entries: Sequence[Entry]) -> dict[str, Any]:
    nodes = ordered(entries)
    check_names(nodes)
    number = {id(node): k for k, node in enumerate(nodes)}

    def operand(x: Operand) -> Any:
        return [number[id(x[0])], x[1]] if isinstance(x, tuple) else encode(x)

    def encoded(node: SymbolNode) -> dict[str, Any]:
        if node.op is None:
            return {
                "variable": node.name,
                "shape": None if node.shape is None else list(node.shape),
                "dtype": None if node.dtype is None else node.dtype.name,
                "init": node.init,
                "attrs": node.attrs,
            }
        return {
            "name": node.name,
            **encode_op(node.op, skip=(OPEN,) if node.is_open else ()),
            "inputs": [operand(x) for x in node.inputs],
            "attrs": node.attrs,
        }

    return {"outputs": [operand(e) for e in entries], "nodes": [encoded(node) for node in nodes]}


def from_json(text: str | bytes) -> tuple[Entry, ...]:
    """What to_json was given. Raises GraphError for anything else."""
    source = document(text, FORMAT, VERSION)
    try:
        return _read(source)
    except RecursionError:
        raise source.fail("is nested too deeply") from None


def _encode_body(body: Body) -> dict[str, Any]:
    return {"inputs": list(body.inputs), **_content(body.entries)}


def _decode_body(source: Source) -> Body:
    source.only("inputs", "outputs", "nodes")
    names = [part.text() for part in source["inputs"].items()]
    entries = _read_entries(source)
    body: Body = checked(source, lambda: Body(entries, names))
    return body


codec("symbol", Body, _encode_body, _decode_body)


def _read(source: Source) -> tuple[Entry, ...]:
    source.only("format", "version", "outputs", "nodes")
    return _read_entries(source)


def _read_entries(source: Source) -> tuple[Entry, ...]:
    nodes: list[SymbolNode] = []
    for part in source["nodes"].items():
        nodes.append(_variable(part) if "variable" in part else _operator(part, nodes))
    outputs = [_entry(part, nodes) for part in source["outputs"].items()]
    if not outputs:
        raise source.fail("has no outputs")
    try:
        check_names(nodes)
    except GraphError as error:
        raise source.fail(str(error)) from None
    return tuple(outputs)


def _attrs(part: Source) -> dict[str, str]:
    return {name: each.text() for name, each in part["attrs"].entries()}


def _name(part: Source) -> str:
    if not (name := part.text()):
        raise part.fail("a name is not empty")
    return name


def _variable(part: Source) -> SymbolNode:
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
        shape=sizes,
        dtype=kind,
        init=None if init.value is None else init.text(),
    )


def _find(name: str) -> type[Op]:
    own: dict[str, type[Op]] = {SymbolGradient.name: SymbolGradient, **CONTROL}
    return own[name] if name in own else registry.get(name)


def _operator(part: Source, nodes: Sequence[SymbolNode]) -> SymbolNode:
    part.only("name", "op", "attributes", "inputs", "attrs")
    op = decode_op(part, _find)
    inputs = [_operand(each, nodes) for each in part["inputs"].items()]
    _check_count(part, op, inputs)
    is_open = any(a.name == OPEN for a in op.attributes) and OPEN not in part["attributes"]
    name, attrs = _name(part["name"]), _attrs(part)
    node: SymbolNode = checked(part, lambda: SymbolNode(op, inputs, name, attrs, is_open=is_open))
    checked(part, lambda: check_written(node))
    return node


def _check_count(part: Source, op: Op, inputs: Sequence[Operand]) -> None:
    """An operator has all inputs it must have, and no more than it can have."""
    many = bool(op.inputs) and op.inputs[-1].variadic
    fixed = [spec for spec in op.inputs if not spec.variadic]
    if len(inputs) < len(fixed) or (len(inputs) > len(fixed) and not many):
        raise part.fail(f"{op.name} takes {len(fixed)} inputs, not {len(inputs)}")
    for k, x in enumerate(inputs):
        if x is None and (k >= len(fixed) or not fixed[k].optional):
            raise part.fail(f"{op.name}: input {k} must be given")
    if isinstance(op, SymbolGradient):
        variables = inputs[len(inputs) - len(op.names) :]
        if not op.names or len(inputs) <= len(op.names) or not all(isinstance(x, tuple) for x in variables):
            raise part.fail(f"{op.name}: {len(inputs)} inputs for {len(op.names)} gradients")


def _entry(part: Source, nodes: Sequence[SymbolNode]) -> Entry:
    node, output = part.reference(nodes)
    return node, output.integer(0, node.count)


def _operand(part: Source, nodes: Sequence[SymbolNode]) -> Operand:
    if isinstance(part.value, list):
        return _entry(part, nodes)
    found = decode(part)
    if found is None or isinstance(found, bool | int | float):
        return found
    raise part.fail("expected [node, output], a number or null")
