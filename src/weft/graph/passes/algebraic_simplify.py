"""Removes or simplifies arithmetic where the result is exactly the same, with NaN, infinities and signed zeros.

So x + 0 stays (it makes 0 of -0), x - x (NaN), x * 0; x + -0.0, x - 0, x * 1 go. What numbers the operands are promoted
to, and to what they broadcast, is not checked here: a rewrite that changes a type is not taken.

>>> from weft.base.dtype import float32
>>> from weft.graph.graph import graph_of
>>> from weft.graph.rewrite import rewrite
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> print(rewrite(graph_of(lambda x: F.exp(-(-x) * 1.0) ** 2, [TensorType((2,), float32)]), algebraic_simplify))
graph(x0: f32[2]@cpu:0)
  v0 = Exp()(x0): f32[2]@cpu:0
  v1 = Multiply()(v0, v0): f32[2]@cpu:0
  return v1
"""

from __future__ import annotations

import math

from weft.base.dtype import DType, bool_
from weft.graph.rewrite import Rewriting, from_operands, local
from weft.ops.families.activation import Relu
from weft.ops.families.arithmetic import (
    Abs,
    Add,
    Divide,
    Maximum,
    Minimum,
    Multiply,
    Negative,
    Positive,
    Pow,
    Reciprocal,
    Subtract,
)
from weft.ops.families.comparison import (
    BitwiseAnd,
    BitwiseInvert,
    BitwiseLeftShift,
    BitwiseOr,
    BitwiseRightShift,
    BitwiseXor,
    LogicalNot,
    Where,
)
from weft.ops.families.elementary import Cast, Rounding
from weft.ops.node import Node, Value, make_node

__all__ = ["algebraic_simplify", "is_lossless"]


@from_operands
@local(
    Abs,
    Add,
    BitwiseAnd,
    BitwiseInvert,
    BitwiseLeftShift,
    BitwiseOr,
    BitwiseRightShift,
    BitwiseXor,
    Cast,
    Divide,
    LogicalNot,
    Maximum,
    Minimum,
    Multiply,
    Negative,
    Positive,
    Pow,
    Relu,
    Rounding,
    Subtract,
    Where,
)
def algebraic_simplify(node: Node, graph: Rewriting) -> Value | None:
    """A pointwise node's value in simpler terms."""
    a, *rest = node.inputs or (None,)
    b = rest[0] if rest else None
    if a is None or not node.inputs:
        return None
    result: Value | None = None
    match node.op:
        case Multiply() if _is(a, 1):
            result = b
        case Multiply() | Divide() | Pow() if _is(b, 1):
            result = a
        case Add() if _is_nothing(a, node):
            result = b
        case Add() if _is_nothing(b, node):
            result = a
        case Subtract() if _is(b, 0) and _is_positive(b):
            result = a
        case BitwiseOr() | BitwiseXor() | BitwiseLeftShift() | BitwiseRightShift() if _is(b, 0):
            result = a
        case BitwiseAnd() if _is(b, -1):
            result = a
        case Maximum() | Minimum() | BitwiseAnd() | BitwiseOr() if a is b:
            result = a
        case Positive():
            result = a
        case Negative() | BitwiseInvert() | LogicalNot() if type(a.node.op) is type(node.op):
            result = a.node.inputs[0]
        case Abs() | Relu() | Rounding() if a.node.op == node.op:
            result = a
        case Where() if a.is_constant:
            result = node.inputs[1 if a.node.value else 2]
        case Where() if b is node.inputs[2]:
            result = b
        case Pow() if _is(b, 2):
            return make_node(Multiply(), [graph.new(a), graph.new(a)], like=node).outputs[0]
        case Pow() if _is(b, -1):
            return make_node(Reciprocal(), [graph.new(a)], like=node).outputs[0]
        case Cast():
            return _cast(a, node.op.dtype, node, graph)
    return None if result is None else graph.new(result)


def _is(value: Value | None, number: float) -> bool:
    """Whether a value is this number, of whatever type."""
    return value is not None and value.is_constant and bool(value.node.value == number)


def _is_positive(value: Value | None) -> bool:
    return value is not None and math.copysign(1, value.node.value) > 0


def _is_nothing(value: Value | None, node: Node) -> bool:
    """Whether adding it changes no number: -0.0, or 0 where integers are added, which have no other zero."""
    return _is(value, 0) and (not node.outputs[0].dtype.is_inexact or not _is_positive(value))


def _cast(source: Value, dtype: DType, node: Node, graph: Rewriting) -> Value | None:
    """The operand of a cast to its own type, or one cast in place of two of which the first lost nothing."""
    if source.dtype is dtype:
        return graph.new(source)
    base = source.node.inputs[0] if isinstance(source.node.op, Cast) else None
    if base is None or base.type.weak or not is_lossless(base.dtype, source.dtype):
        return None
    if dtype is base.dtype:
        return graph.new(base)
    # From a float to integers, what is out of range depends on the float's type.
    if source.dtype.is_inexact and dtype.is_integer:
        return None
    return make_node(Cast(dtype=dtype), [graph.new(base)], like=node).outputs[0]


def is_lossless(a: DType, b: DType) -> bool:
    """Whether every number of type a is one of type b.

    >>> from weft.base.dtype import float16, float32, int8, int32, uint8
    >>> is_lossless(int8, float16), is_lossless(uint8, int8), is_lossless(int32, float32)
    (True, False, False)
    """
    if a is b or a is bool_:
        return True
    match a.kind, b.kind:
        case ("float", "float"):
            return b.itemsize > a.itemsize
        case ("int" | "uint", "float") | ("int" | "uint" | "float", "complex"):
            return a.digits <= b.digits
        case ("uint", "int"):
            return b.itemsize > a.itemsize
        case (kind, other):
            return kind == other and b.itemsize >= a.itemsize
