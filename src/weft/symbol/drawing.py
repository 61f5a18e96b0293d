"""Symbols as text, in Graphviz's language, and as boxes for weft.graph.drawing."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft.graph.drawing import Box, Edge, boxes_of, svg
from weft.graph.symbols import SymbolNode, is_partial, is_variable, nodes_of
from weft.ops.node import Value
from weft.ops.op import Op
from weft.ops.shapes import shown

__all__ = ["listing", "summary", "to_dot", "to_svg"]


def listing(values: Sequence[Value]) -> str:
    """One line for each operator: ``fc1 = linear(data, fc1_weight, fc1_bias, out_features=10)``."""

    def shown_value(x: Value | None) -> str:
        if x is None or not is_partial(x):
            return repr(None if x is None else x.node.value)
        return x.node.name if len(x.node.outputs) == 1 else f"{x.node.name}[{x.index}]"

    def inputs(node: SymbolNode) -> list[str]:
        last = max((k for k, x in enumerate(node.inputs) if x is not None), default=-1)
        return [shown_value(x) for x in node.inputs[: last + 1]]

    lines = [
        f"{node.name} = {node.op.name}({', '.join([*inputs(node), *_attributes(node)])})"
        for node in nodes_of(values)
        if node.op is not None
    ]
    return "\n".join([*lines, f"return {', '.join(map(shown_value, values))}"])


def _attributes(node: SymbolNode) -> list[str]:
    """The attributes that are not their defaults."""
    assert node.op is not None
    values = node.op.values()
    return [f"{name}={value!r}" for name, value in values.items() if not _is_default(node.op, name)]


def _is_default(op: Op, name: str) -> bool:
    try:
        return type(op)(**{key: value for key, value in op.values().items() if key != name}) == op
    except (TypeError, ValueError):  # it must be given, or the others need it
        return False


def _picture(
    values: Sequence[Value], shape_of: Callable[[Value], Any] | None
) -> tuple[list[Box], list[Edge]]:
    """Boxes and edges; variables that belong to one operator are named in its box."""
    nodes = nodes_of(values)
    readers: dict[int, list[SymbolNode]] = {}
    for node in nodes:
        for value in node.sources:
            readers.setdefault(id(value.node), []).append(node)
    parameters: dict[int, list[SymbolNode]] = {}  # by id of the operator's node
    for node in nodes:
        mine = readers.get(id(node), [])
        if node.op is None and len(mine) == 1 and node.name.startswith(f"{mine[0].name}_"):
            parameters.setdefault(id(mine[0]), []).append(node)
    hidden = {id(node) for each in parameters.values() for node in each}

    def size(value: Value) -> str:
        return "" if shape_of is None else shown(shape_of(value))

    def box(node: Any) -> Box:
        if node.op is None:
            return Box((node.name,), "", round=True)
        parts = [node.name if node.name.startswith(node.op.name) else f"{node.name}: {node.op.name}"]
        parts += _folded(_attributes(node))
        parts += _folded(
            f"{v.name.removeprefix(node.name + '_')} {size(v.outputs[0])}".strip()
            for v in parameters.get(id(node), [])
        )
        return Box(tuple(parts), node.op.family or node.op.name)

    return boxes_of([node for node in nodes if id(node) not in hidden], box, size)


def _folded(texts: Iterable[str], width: int = 36) -> list[str]:
    """Texts with commas between them, in lines of about this width."""
    lines: list[str] = []
    for text in texts:
        if lines and len(lines[-1]) + len(text) + 2 <= width:
            lines[-1] += f", {text}"
        else:
            lines.append(text)
    return lines


def summary(values: Sequence[Value], shape_of: Callable[[Value], Any]) -> str:
    """A table of operators: output, learnable parameters, what is read; the parameters in all below it."""
    heads = ["name", "operator", "output", "parameters", "reads"]
    rows, total = [heads], 0
    counted: set[int] = set()
    unknown = False
    for node in nodes_of(values):
        if node.op is None:
            continue
        parameters = [
            value
            for spec, value in zip(node.op.inputs, node.inputs, strict=False)
            if spec.name in node.op.learnable and value is not None and is_variable(value)
        ]
        sizes = [shape_of(each) for each in parameters]
        is_open = any(s is None or None in s for s in sizes)
        count = 0 if is_open else sum(math.prod(s) for s in sizes)
        uncounted = [(each, s) for each, s in zip(parameters, sizes, strict=True) if id(each) not in counted]
        counted.update(id(each) for each, _ in uncounted)
        unknown |= is_open
        total += 0 if is_open else sum(math.prod(s) for _, s in uncounted)
        reads = [v.node.name for v in node.sources if id(v) not in {id(each) for each in parameters}]
        outputs = " ".join(shown(shape_of(v)) for v in node.outputs)
        rows.append([node.name, node.op.name, outputs, "?" if is_open else f"{count:,}", ", ".join(reads)])
    wide = [max(len(row[k]) for row in rows) for k in range(len(heads))]
    lines = [
        "  ".join(
            f"{c:>{w}}" if k == 3 else f"{c:{w}}" for k, (c, w) in enumerate(zip(row, wide, strict=True))
        )
        for row in rows
    ]
    lines.insert(1, "-" * len(lines[0]))
    lines += [
        "-" * len(lines[0]),
        f"{total:,} parameters" + (", and those of unknown shape" if unknown else ""),
    ]
    return "\n".join(line.rstrip() for line in lines)


def to_svg(values: Sequence[Value], shape_of: Callable[[Value], Any] | None = None) -> str:
    """A drawing. shape_of: what to write beside the edges."""
    return svg(*_picture(values, shape_of))


def to_dot(values: Sequence[Value]) -> str:
    """A drawing in Graphviz's language."""
    boxes, edges = _picture(values, None)
    lines = ["digraph symbol {", '  node [shape=box, style=rounded, fontname="monospace"];']
    for k, box in enumerate(boxes):
        shape = ", shape=oval" if box.round else ""
        lines.append(f"  n{k} [label={json.dumps(chr(10).join(box.lines))}{shape}];")
    lines += [f"  n{edge.source} -> n{edge.target};" for edge in edges]
    return "\n".join([*lines, "}\n"])
