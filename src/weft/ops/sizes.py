"""Symbolic sizes, whose numbers are known only when a plan runs.

A plan for a pattern of operands holds for all sizes of that pattern: its types carry Sizes, computed from the sizes of
the inputs by the native replay. Rules use them like ints. A rule that needs the number (those of libraries do)
raises NeedsSizes when it compares or converts one; the planner then plans for the exact sizes. Of
dynamic sizes and extents, which are at least 2, more is known (weft.ops.polynomial): 6 n / 2 n, or that n + 1 > 0.

>>> n, m = input_size(1), input_size(0)
>>> n * m, n == n
((n1 * n0), True)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from weft.base.typing import Any
from weft.ops.polynomial import Polynomial, constant, least, plus, quotient, times

__all__ = ["NeedsSizes", "Size", "axis_size", "extent", "input_size", "input_stride", "unknown_size"]


Arithmetic = Callable[["Size", Any], "int | Size"]


class NeedsSizes(Exception):  # not a failure: the planner's way to the exact sizes
    """A rule read the number behind a Size."""


def _of_integers(method: Arithmetic) -> Arithmetic:
    """The method, for integers only; with a value of a graph it is the value's operator that is meant."""

    def checked(self: Size, other: Any) -> Any:
        if isinstance(other, int | Size):
            return method(self, other)
        if isinstance(other, float):
            raise NeedsSizes(f"{self} and {other}")
        return NotImplemented

    return checked


class Size:
    """An integer computed from the sizes of a plan's inputs. Equal ones are one object; a leaf is never 1."""

    __slots__ = ("args", "op")

    # "dim" (from the last), "extent" (array, dimension), "axis" (number), "stride" (array, dimension), "unknown";
    # "add", "sub", "mul", "div" (floor)
    op: str
    args: tuple[Any, ...]
    _interned: dict[tuple[Any, ...], Size] = {}  # noqa: RUF012 - the one table of all

    def __new__(cls, op: str, *args: Any) -> Size:
        key = (op, *(id(arg) if isinstance(arg, Size) else arg for arg in args))
        size = cls._interned.get(key)
        if size is None:
            size = object.__new__(cls)
            size.op, size.args = op, args
            size = cls._interned.setdefault(key, size)
        return size

    @property
    def is_dynamic(self) -> bool:
        """Whether it is computed from dynamic sizes and extents, and known when a graph is inserted at exact ones."""
        return _polynomial(self) is not None

    def at(self, axes: Sequence[int]) -> int:
        """The number that it is where dynamic sizes, by number, are these.

        >>> (axis_size(0) * 2 + axis_size(1)).at([3, 4])
        10
        """
        if self.op == "axis":
            return axes[self.args[0]]
        a, b = (arg.at(axes) if isinstance(arg, Size) else arg for arg in self.args)
        if self.op == "div":
            return a // b if b else 0  # as in a replay (native/program/program.cpp)
        return int(a + b if self.op == "add" else a - b if self.op == "sub" else a * b)

    @_of_integers
    def __add__(self, other: int | Size) -> int | Size:
        return self if _is(other, 0) else Size("add", self, other)

    @_of_integers
    def __radd__(self, other: int | Size) -> int | Size:
        return self + other

    @_of_integers
    def __sub__(self, other: int | Size) -> int | Size:
        return self if _is(other, 0) else 0 if other is self else Size("sub", self, other)

    @_of_integers
    def __rsub__(self, other: int) -> int | Size:
        return Size("sub", other, self)

    def __neg__(self) -> int | Size:
        return 0 - self

    @_of_integers
    def __mul__(self, other: int | Size) -> int | Size:
        return self if _is(other, 1) else 0 if _is(other, 0) else Size("mul", self, other)

    @_of_integers
    def __rmul__(self, other: int | Size) -> int | Size:
        return self * other

    @_of_integers
    def __floordiv__(self, other: int | Size) -> int | Size:
        if _is(other, 1):
            return self
        exact = _quotient(self, other)
        return Size("div", self, other) if exact is None else exact

    def __mod__(self, other: int | Size) -> int:
        if _quotient(self, other) is None:
            raise NeedsSizes(f"{self} % {other}")
        return 0

    @_of_integers
    def __rfloordiv__(self, other: int) -> int | Size:
        return Size("div", other, self)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if _is(other, 1) and self.op == "dim":
            return False
        if not isinstance(other, int | Size):
            return False
        difference = _difference(self, other)
        if difference is None:
            raise NeedsSizes(f"{self} == {other}")
        if not difference:
            return True
        above, below = least(difference), least(plus({}, difference, -1))
        if (above is None or above <= 0) and (below is None or below <= 0):
            raise NeedsSizes(f"{self} == {other}")
        return False

    def __hash__(self) -> int:
        if self.is_dynamic:  # what sets and dicts say of it would be about the object, not the number
            raise NeedsSizes(f"hash({self})")
        return id(self)

    def _refuse(self, *_: Any) -> Any:
        raise NeedsSizes(str(self))

    def __gt__(self, other: int | Size) -> bool:
        return self._is_above(other, 1)

    def __ge__(self, other: int | Size) -> bool:
        return self._is_above(other, 0)

    def __lt__(self, other: int | Size) -> bool:
        return not self._is_above(other, 0)

    def __le__(self, other: int | Size) -> bool:
        return not self._is_above(other, 1)

    def __bool__(self) -> bool:
        return self != 0

    def _is_above(self, other: int | Size, by: int) -> bool:
        """Whether self - other >= by; NeedsSizes if that is not known."""
        difference = _difference(self, other)
        if difference is not None:
            above, below = least(difference), least(plus({}, difference, -1))
            if above is not None and above >= by:
                return True
            if below is not None and -below < by:
                return False
        raise NeedsSizes(f"{self} > {other}")

    __int__ = __index__ = __float__ = __rmod__ = _refuse

    def _is_no_integer(self, other: Any) -> Any:
        """What this gives is a float, of which only the number of the size could be known."""
        if hasattr(other, "__weft_apply__"):
            return NotImplemented
        raise NeedsSizes(f"{self} in arithmetic of floats; x / {self} and x * {self} are arrays")

    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __divmod__ = __rdivmod__ = _is_no_integer

    def __repr__(self) -> str:
        if self.op == "dim":
            return f"n{self.args[0]}"
        if self.op == "axis":
            return f"d{self.args[0]}"
        if self.op == "extent":
            return f"n{self.args[0]}_{self.args[1]}"
        if self.op == "stride":
            return f"s{self.args[0]}_{self.args[1]}"
        if self.op == "unknown":
            return "?"
        sign = {"add": "+", "sub": "-", "mul": "*", "div": "//"}[self.op]
        return f"({self.args[0]} {sign} {self.args[1]})"


def _is(value: object, number: int) -> bool:
    return isinstance(value, int) and value == number


def _polynomial(size: object) -> Polynomial | None:
    """What is known of a size computed from dynamic ones and extents; None for others."""
    if isinstance(size, int):
        return constant(size)
    if not isinstance(size, Size) or size.op not in ("axis", "extent", "add", "sub", "mul"):
        return None
    if size.op in ("axis", "extent"):
        return {((size.op, *size.args),): 1}
    a, b = map(_polynomial, size.args)
    if a is None or b is None:
        return None
    return times(a, b) if size.op == "mul" else plus(a, b, 1 if size.op == "add" else -1)


def _difference(a: object, b: object) -> Polynomial | None:
    p, q = _polynomial(a), _polynomial(b)
    return None if p is None or q is None else plus(p, q, -1)


def _quotient(a: object, b: object) -> int | Size | None:
    """a / b where that leaves no remainder whatever the sizes are, else None."""
    dividend, divisor = _polynomial(a), _polynomial(b)
    result = None if dividend is None or divisor is None else quotient(dividend, divisor)
    if result is None:
        return None
    terms = (math.prod([Size(*leaf) for leaf in key], start=value) for key, value in result.items())
    return sum(terms, start=0)


def input_size(dimension: int) -> Size:
    """The size of a plan's inputs in a dimension, counted from the last, 0. Inputs have that size there, or 1.

    >>> input_size(1)
    n1
    """
    return Size("dim", dimension)


def extent(array: int, dimension: int) -> Size:
    """The size of one of a plan's arrays in a dimension, which is neither 0 nor 1; those that are equal are one extent.

    >>> extent(0, 1)
    n0_1
    """
    return Size("extent", array, dimension)


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
