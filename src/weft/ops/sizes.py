"""Sizes that are given only when a plan runs.

A plan for a pattern of operands holds for all sizes of that pattern: its types carry Sizes, computed from the sizes of
the inputs by the native replay. Rules use them like ints. A rule that has to know the number (oneDNN's primitives do)
raises NeedsSizes without noticing, by comparing or converting one; the planner then plans for the exact sizes.

>>> n, m = input_size(1), input_size(0)
>>> n * m, n == n
((n1 * n0), True)
"""

from __future__ import annotations

from weft.base.typing import Any

__all__ = ["NeedsSizes", "Size", "axis_size", "input_size", "input_stride", "unknown_size"]


class NeedsSizes(Exception):  # not a failure: the planner's way to the exact sizes
    """A rule asked for the number behind a Size."""


class Size:
    """An integer computed from the sizes of a plan's inputs. Equal ones are one object; a leaf is never 1."""

    __slots__ = ("args", "op")

    op: str  # "dim" (from the last), "axis" (number), "stride" (array, dimension), "unknown", "add", "sub", "mul", "div" (floor)
    args: tuple[Any, ...]
    _known: dict[tuple[Any, ...], Size] = {}  # noqa: RUF012 - the one table of all

    def __new__(cls, op: str, *args: Any) -> Size:
        key = (op, *(id(arg) if isinstance(arg, Size) else arg for arg in args))
        found = cls._known.get(key)
        if found is None:
            found = object.__new__(cls)
            found.op, found.args = op, args
            found = cls._known.setdefault(key, found)
        return found

    def __add__(self, other: int | Size) -> int | Size:
        return self if _is(other, 0) else Size("add", self, other)

    def __radd__(self, other: int | Size) -> int | Size:
        return self + other

    def __sub__(self, other: int | Size) -> int | Size:
        return self if _is(other, 0) else 0 if other is self else Size("sub", self, other)

    def __rsub__(self, other: int) -> int | Size:
        return Size("sub", other, self)

    def __neg__(self) -> int | Size:
        return 0 - self

    def __mul__(self, other: int | Size) -> int | Size:
        return self if _is(other, 1) else 0 if _is(other, 0) else Size("mul", self, other)

    def __rmul__(self, other: int | Size) -> int | Size:
        return self * other

    def __floordiv__(self, other: int | Size) -> int | Size:
        return self if _is(other, 1) else Size("div", self, other)

    def __rfloordiv__(self, other: int) -> int | Size:
        return Size("div", other, self)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if _is(other, 1) and self.op in ("dim", "axis"):
            return False
        if isinstance(other, int | Size):
            raise NeedsSizes(f"{self} == {other}")
        return False

    def __hash__(self) -> int:
        return id(self)

    def _refuse(self, *_: Any) -> Any:
        raise NeedsSizes(str(self))

    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __int__ = __index__ = __float__ = __mod__ = _refuse

    def __repr__(self) -> str:
        if self.op == "dim":
            return f"n{self.args[0]}"
        if self.op == "axis":
            return f"d{self.args[0]}"
        if self.op == "stride":
            return f"s{self.args[0]}_{self.args[1]}"
        if self.op == "unknown":
            return "?"
        sign = {"add": "+", "sub": "-", "mul": "*", "div": "//"}[self.op]
        return f"({self.args[0]} {sign} {self.args[1]})"


def _is(value: object, number: int) -> bool:
    return isinstance(value, int) and value == number


def input_size(dimension: int) -> Size:
    """The size of a plan's inputs in a dimension, counted from the last, 0. Inputs have that size there, or 1.

    >>> input_size(1)
    n1
    """
    return Size("dim", dimension)


def axis_size(number: int) -> Size:
    """The size of axes that a traced function declared to be dynamic, which is neither 0 nor 1.

    >>> axis_size(0)
    d0
    """
    return Size("axis", number)


def unknown_size(operand: int, dimension: int) -> Size:
    """A size of which nothing is known, not even that it is not 1; for symbols.

    >>> unknown_size(0, 1)
    ?
    """
    return Size("unknown", operand, dimension)


def input_stride(array: int, dimension: int) -> Size:
    """The stride of one of a plan's arrays, in elements.

    >>> input_stride(0, 1)
    s0_1
    """
    return Size("stride", array, dimension)
