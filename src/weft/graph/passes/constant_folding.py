"""Computes what is known before the program runs: arithmetic on numbers, and on arrays that are filled with one number.

>>> from weft.base.dtype import float32
>>> from weft.graph.graph import graph_of
>>> from weft.graph.rewrite import rewrite
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> g = graph_of(lambda x: x * (F.filled_like(x, value=3.0) + 1), [TensorType((2,), float32)])
>>> print(rewrite(g, constant_folding))
graph(x0: f32[2]@cpu:0)
  v0 = Multiply()(x0, 4.0): f32[2]@cpu:0
  return v0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.dtype import DType
from weft.base.errors import ShapeError
from weft.graph.rewrite import Rewriting, from_operands
from weft.kernels import first_choice
from weft.ops.evaluate import evaluate_loop
from weft.ops.families.creation import Full
from weft.ops.families.elementary import FilledLike
from weft.ops.kernels import Loop, View
from weft.ops.node import Node, Value, make_node
from weft.ops.pointwise import Pointwise
from weft.ops.types import TensorType, broadcast_shapes

__all__ = ["constant_folding"]

Number = bool | int | float


@from_operands
def constant_folding(node: Node, graph: Rewriting) -> Value | None:
    """A number, or an array of it, for a node whose elements are known; else numbers for the operands that are."""
    if isinstance(node.op, Full) and node.op.shape:
        return None
    number = _number(node.outputs[0], graph)
    if number is not None:
        return _filled(node, number)
    return _with_numbers(node, graph) if _loop_of_elements(node) is not None else None


def _loop_of_elements(node: Node) -> Loop | None:
    """The loop of a pointwise operator; None for others, also for losses that are summed."""
    loop = first_choice(node) if isinstance(node.op, Pointwise) else None
    return loop if isinstance(loop, Loop) and not loop.axes else None


def _number(value: Value | None, graph: Rewriting) -> Number | None:
    """The number that every element of a value is, converted to its type; None if that is not known."""
    if value is None:
        return None
    numbers: dict[int, Number | None] = graph.notes
    if id(value) not in numbers:
        numbers[id(value)] = _node_number(value, graph)
    return numbers[id(value)]


def _node_number(value: Value, graph: Rewriting) -> Number | None:
    node = value.node
    if value.dtype.is_complex:  # constants of graphs are real
        return None
    match node.op:
        case None if value.is_constant:
            return node.value if value.type.weak else _converted(node.value, value.dtype)
        case None:
            return None
        case Full(value=number) | FilledLike(value=number):
            return _converted(number, value.dtype)
        case Pointwise() if not node.runtime:
            return _computed(node, [_number(v, graph) for v in node.inputs])
    if isinstance(first_choice(node), View):
        return _number(node.inputs[0], graph)
    return None


def _computed(node: Node, numbers: Sequence[Number | None]) -> Number | None:
    """The result of a pointwise operator on numbers, by what its kernel does to one element."""
    import numpy as np

    loop = _loop_of_elements(node)
    if loop is None or any(n is None and v is not None for n, v in zip(numbers, node.inputs, strict=True)):
        return None
    arrays = [
        None if v is None else np.asarray(n) if v.type.weak else np.asarray(n, v.dtype.numpy)
        for n, v in zip(numbers, node.inputs, strict=True)
    ]
    with np.errstate(all="ignore"):
        (result,) = evaluate_loop(loop, arrays, [node.outputs[0].dtype.numpy])
    return _python(result)


def _converted(number: Number, dtype: DType) -> Number:
    import numpy as np

    with np.errstate(all="ignore"):
        return _python(np.asarray(number).astype(dtype.numpy))


def _python(array: Any) -> Number:
    number: Number = array.astype("float64").item() if array.dtype.kind not in "biu" else array.item()
    return number


def _filled(node: Node, number: Number) -> Value | None:
    """An array of the node's type that is this number everywhere."""
    type = node.outputs[0].type
    if not all(isinstance(n, int) for n in type.shape):
        return None
    if not type.shape:
        return _constant(number, type)
    shape: Any = type.shape
    op = Full(shape=shape, value=number, dtype=type.dtype, device=node.device)
    return make_node(op, [], like=node).outputs[0]


def _constant(number: Number, type: TensorType) -> Value:
    """One number of a type."""
    return Node(None, (), (type.like(()),), value=number).outputs[0]


def _with_numbers(node: Node, graph: Rewriting) -> Value | None:
    """The node with numbers in the places of arrays that are known and do not give it its shape."""
    numbers = [None if v is None or v.is_constant else _number(v, graph) for v in node.inputs]
    if all(n is None for n in numbers):
        return None
    pairs = zip(node.inputs, numbers, strict=True)
    array_types: dict[str, TensorType] = {
        str(k): v.type for k, (v, n) in enumerate(pairs) if v is not None and n is None
    }
    shape = broadcast_shapes(node.op.name if node.op else "", array_types) if array_types else ()
    if shape != node.outputs[0].shape:
        return None
    inputs = [
        _constant(n, v.type) if v is not None and n is not None else None if v is None else graph.new(v)
        for v, n in zip(node.inputs, numbers, strict=True)
    ]
    runtime = {name: graph.new(v) for name, v in node.runtime.items()}
    assert node.op is not None
    try:
        return make_node(node.op, inputs, runtime, like=node).outputs[0]
    except ShapeError:  # its operands have to have one shape, as those of losses
        return None
