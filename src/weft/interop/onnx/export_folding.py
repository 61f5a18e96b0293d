"""What follows from constants alone is computed when a model is written, by the conversions that read models.

A node is folded where it makes the file no larger than SMALL bytes: its result takes no more than the large constants
that it alone reads, which the file then does not have. So a matrix of weights that is also read by another node, such
as tied embeddings, stays, and is transposed by the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from weft.interop.onnx.calls import CONVERSIONS, Call, Known
from weft.interop.onnx.drawn import DRAWN
from weft.interop.onnx.room import result_size
from weft.interop.onnx.writer import Writer

__all__ = ["fold", "names_read"]

SMALL = 4096
QUANTIZATION = ("DequantizeLinear", "QuantizeLinear")  # pairs say that what reads them computes with integers


def names_read(nodes: Iterable[Any]) -> Iterator[str]:
    """The names that nodes read, and nodes of graphs in them."""
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            yield from names_read(attribute.g.node)


def fold(writer: Writer, outputs: Iterable[str]) -> None:
    """Replace nodes of constants by constants. outputs: names that stay outputs of nodes."""
    readers = Counter(names_read(writer.nodes))
    writer.nodes = _rest(writer, writer.nodes, set(outputs), readers)


def _rest(writer: Writer, nodes: Iterable[Any], outputs: set[str], readers: Counter[str]) -> list[Any]:
    """The nodes that are not folded, with graphs that have no others."""
    rest = []
    for node in nodes:
        for attribute in node.attribute:
            if attribute.g.node:
                graph = attribute.g
                inner = _rest(writer, graph.node, {each.name for each in graph.output}, readers)
                del graph.node[:]
                graph.node.extend(inner)
        if outputs & set(node.output) or not _is_folded(writer, node, readers):
            rest.append(node)
    return rest


def _is_folded(writer: Writer, node: Any, readers: Counter[str]) -> bool:
    """Whether the outputs of a node are constants of the writer now."""
    operator = node.op_type
    is_open = operator in (*DRAWN, *QUANTIZATION) or operator not in CONVERSIONS
    if is_open or not all(name in writer.constants for name in node.input if name):
        return False
    arrays = [writer.constants[name] if name else None for name in node.input]
    values = {each.name: writer.onnx.helper.get_attribute_value(each) for each in node.attribute}
    call = Call(node.name, operator, values, writer.opset, len(node.output))
    size = result_size(call, arrays)
    own = sum(
        x.nbytes for name, x in zip(node.input, arrays, strict=True) if x is not None and readers[name] == 1
    )
    if size is None or size * len(node.output) * 8 > max(SMALL, 8 * own):
        return False
    inputs = [None if x is None else Known(x) for x in arrays]
    result: Any = CONVERSIONS[operator](call, *inputs)
    folded = [_array(x) for x in (result if isinstance(result, tuple | list) else [result])]
    if sum(x.nbytes for x in folded) > max(SMALL, own):
        return False
    writer.constants.update(zip(node.output, folded, strict=False))
    return True


def _array(x: Any) -> Any:
    return x.array if isinstance(x, Known) else np.asarray(x.numpy())
