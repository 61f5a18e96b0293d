"""Symbolic sizes, whose numbers are known only when a plan runs.

A plan for a pattern of operands holds for all sizes of that pattern: its types carry Sizes, computed from the sizes of
the inputs by the native replay. Rules use them like ints. A rule that needs the number (those of libraries do)
raises NeedsSizes when it compares or converts one; the planner then plans for the exact sizes. Of
dynamic sizes and extents, which are at least 2, more is known (weft.ops.polynomial): 6 n / 2 n, or that n + 1 > 0.
Where a function is recorded for dynamic sizes, a comparison of which that does not tell the result is answered by the
sizes of the call, and the answer is a guard of what is recorded (SizeGuards).

>>> n, m = input_size(1), input_size(0)
>>> n * m, n == n
((n1 * n0), True)
"""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Callable, Sequence

from weft.base.typing import Any
from weft.ops.polynomial import Polynomial, constant, least, plus, quotient, times

__all__ = [
    "COMPUTED",
    "NeedsSizes",
    "Size",
    "are_guarded",
    "axis_size",
    "extent",
    "input_size",
    "input_stride",
    "unknown_size",
]


Arithmetic = Callable[["Size", Any], "int | Size"]
COMPARISONS: dict[str, Callable[[int, int], bool]] = {"==": operator.eq, ">": operator.gt}
COMPUTED: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a // b if b else 0,
}
SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "//"}
PIECES = 200  # of the text of a size


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


def _comparison(method: Callable[[Size, Any], bool]) -> Callable[[Size, Any], bool]:
    """The method, for numbers: n > 2.5 is n > 2, and n >= 2.5 is n >= 3; with an array its operator is meant."""
    rounded = math.floor if method.__name__ in ("__gt__", "__le__") else math.ceil

    def checked(self: Size, other: Any) -> bool:
        if isinstance(other, float):
            if not math.isfinite(other):
                return bool(getattr(0.0, method.__name__)(other))
            other = rounded(other)
        return method(self, other) if isinstance(other, int | Size) else NotImplemented

    return checked


class SizeGuards:
    """Comparisons of dynamic sizes that those of a call answered: what is recorded holds where they are the same.

    axes: the dynamic sizes of the call, by number.

    >>> with SizeGuards([300]) as guards:
    ...     axis_size(0) > 512
    False
    >>> guards.hold([512]), guards.hold([513])
    (True, False)
    """

    def __init__(self, axes: Sequence[int]) -> None:
        self.axes = tuple(axes)
        self.answers: dict[tuple[Any, ...], tuple[Any, str, Any, bool]] = {}

    def __enter__(self) -> SizeGuards:
        self._before = _guards()
        _local.guards = self
        return self

    def __exit__(self, *_: object) -> None:
        _local.guards = self._before

    def answer(self, a: int | Size, comparison: str, b: int | Size) -> bool:
        """Whether a and b compare like that, in this call."""
        key = (id(a) if isinstance(a, Size) else a, comparison, id(b) if isinstance(b, Size) else b)
        if key not in self.answers:
            holds = COMPARISONS[comparison](_number(a, self.axes), _number(b, self.axes))
            self.answers[key] = (a, comparison, b, holds)
        return self.answers[key][-1]

    @property
    def comparisons(self) -> list[tuple[int | Size, str, int | Size, bool]]:
        """Each with its answer."""
        return list(self.answers.values())

    def __str__(self) -> str:
        """What holds."""
        words = {("==", False): "!=", (">", False): "<="}
        return ", ".join(
            f"{a} {words.get((word, holds), word)} {b}" for a, word, b, holds in self.comparisons
        )

    def hold(self, axes: Sequence[int]) -> bool:
        """Whether the answers are the same for these sizes."""
        return all(
            COMPARISONS[comparison](_number(a, axes), _number(b, axes)) is holds
            for a, comparison, b, holds in self.answers.values()
        )


class _Local(threading.local):
    guards: SizeGuards | None = None  # of the function that the thread records


_local = _Local()


def _guards() -> SizeGuards | None:
    return _local.guards


def are_guarded() -> bool:
    """Whether sizes of a call answer comparisons now: what is made depends on the answers, and has to ask each time."""
    return _local.guards is not None


def _number(size: int | Size, axes: Sequence[int]) -> int:
    return size.at(axes) if isinstance(size, Size) else size


def _answer(a: Size, comparison: str, b: int | Size) -> bool:
    """What the sizes of the call say of two; raises NeedsSizes if there are none."""
    guards = _guards()
    if guards is None or not all(x.is_of_axes for x in (a, b) if isinstance(x, Size)):
        raise NeedsSizes(f"{a} {comparison} {b}")
    return guards.answer(a, comparison, b)


class Size:
    """An integer computed from the sizes of a plan's inputs. Equal ones are one object; a leaf is never 1."""

    __weft_number__ = True  # while a function is recorded, operators of tensors take it as a number

    __slots__ = ("_of_axes", "args", "facts", "op")

    # "dim" (from the last), "extent" (array, dimension), "axis" (number), "stride" (array, dimension), "unknown";
    # "add", "sub", "mul", "div" (floor)
    op: str
    args: tuple[Any, ...]
    facts: Polynomial | None  # once they have been asked for
    _of_axes: bool
    _interned: dict[tuple[Any, ...], Size] = {}  # noqa: RUF012 - the one table of all

    def __new__(cls, op: str, *args: Any) -> Size:
        key = (op, *[id(arg) if isinstance(arg, Size) else arg for arg in args])
        size = cls._interned.get(key)
        if size is None:
            size = object.__new__(cls)
            size.op, size.args = op, args
            size = cls._interned.setdefault(key, size)
        return size

    @property
    def is_dynamic(self) -> bool:
        """Whether it is computed from dynamic sizes and extents, and known when a graph is inserted at exact ones."""
        return _polynomial(self) is not None or self.is_of_axes

    @property
    def is_of_axes(self) -> bool:
        """Whether it is computed from dynamic sizes alone."""
        if self.op not in COMPUTED:
            return self.op == "axis"
        if not hasattr(self, "_of_axes"):
            leaves = {part.op for part in self.parts() if part.op not in COMPUTED}
            self._of_axes = leaves == {"axis"}
        return self._of_axes

    @property
    def is_of_axis(self) -> bool:
        """Whether it is computed from a dynamic axis of a traced function, whose number no plan is made for.

        >>> (axis_size(0) + 1).is_of_axis, extent(0, 0).is_of_axis
        (True, False)
        """
        return any(part.op == "axis" for part in self.parts())

    def at(self, axes: Sequence[int]) -> int:
        """The number that it is where dynamic sizes, by number, are these.

        >>> (axis_size(0) * 2 + axis_size(1)).at([3, 4])
        10
        """
        return self.evaluated(lambda leaf: axes[leaf.args[0]])

    def evaluated(self, number_of: Callable[[Size], Any]) -> Any:
        """The number that it is, given those of the leaves, as a replay computes it (native/program/program.cpp).

        It is a Size where those are.
        """
        numbers: dict[int, Any] = {}
        for size in self.parts():
            if size.op not in COMPUTED:
                numbers[id(size)] = number_of(size)
                continue
            a, b = (numbers[id(arg)] if isinstance(arg, Size) else arg for arg in size.args)
            numbers[id(size)] = COMPUTED[size.op](a, b)
        return numbers[id(self)]

    def parts(self, is_end: Callable[[Size], bool] = lambda _: False) -> list[Size]:
        """What it is computed from and, last, itself: each once, after its operands; not those of which is_end holds.

        Sums have as many terms as a program has arrays, so nothing here is recursive.
        """
        ordered: dict[int, Size] = {}
        stack = [self]
        while stack:
            size = stack[-1]
            operands = size.args if size.op in COMPUTED and not is_end(size) else ()
            waiting = [arg for arg in operands if isinstance(arg, Size) and id(arg) not in ordered]
            stack += reversed(waiting)
            if not waiting:
                ordered[id(size)] = stack.pop()
        return list(ordered.values())

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

    @_of_integers
    def __mod__(self, other: int | Size) -> int | Size:
        if _quotient(self, other) is not None:
            return 0
        if not self.is_of_axes:
            raise NeedsSizes(f"{self} % {other}")
        return self - self // other * other

    @_of_integers
    def __rfloordiv__(self, other: int) -> int | Size:
        return Size("div", other, self)

    @_of_integers
    def __and__(self, other: int | Size) -> int | Size:
        """The remainder, for masks 2^k - 1; other bits only the number has."""
        if isinstance(other, Size) or other < 0 or other & (other + 1):
            raise NeedsSizes(f"{self} & {other}")
        return self % (other + 1)

    __rand__ = __and__

    @_of_integers
    def __lshift__(self, other: int | Size) -> int | Size:
        return self * _power_of_two(self, other)

    @_of_integers
    def __rshift__(self, other: int | Size) -> int | Size:
        return self // _power_of_two(self, other)

    def __invert__(self) -> int | Size:
        return -1 - self

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, float):
            return other.is_integer() and self == int(other)
        if _is(other, 1) and self.op == "dim":
            return False
        if not isinstance(other, int | Size):
            return NotImplemented
        difference = _difference(self, other)
        if difference is None:
            return _answer(self, "==", other)
        if not difference:
            return True
        above, below = least(difference), least(plus({}, difference, -1))
        if (above is None or above <= 0) and (below is None or below <= 0):
            return _answer(self, "==", other)
        return False

    def __hash__(self) -> int:
        if self.is_dynamic:  # what sets and dicts say of it would be about the object, not the number
            raise NeedsSizes(f"hash({self})")
        return id(self)

    @property
    def __weft_key__(self) -> int:
        """For weft.base.exact: equal ones are one object, which lives for ever."""
        return id(self)

    def _refuse(self, *_: Any) -> Any:
        raise NeedsSizes(str(self))

    @_comparison
    def __gt__(self, other: int | Size) -> bool:
        return self._is_above(other, 1)

    @_comparison
    def __ge__(self, other: int | Size) -> bool:
        return self._is_above(other, 0)

    @_comparison
    def __lt__(self, other: int | Size) -> bool:
        return not self._is_above(other, 0)

    @_comparison
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
        return _answer(self, ">", other + by - 1)

    __int__ = __index__ = __float__ = _refuse
    __rmod__ = __rlshift__ = __rrshift__ = _of_integers(_refuse)
    __or__ = __ror__ = __xor__ = __rxor__ = _of_integers(_refuse)

    def _is_no_integer(self, other: Any) -> Any:
        """What this gives is a float, of which only the number of the size could be known."""
        if not isinstance(other, int | float | Size):
            return NotImplemented
        raise NeedsSizes(f"{self} in arithmetic of floats; x / {self} and x * {self} are arrays")

    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __divmod__ = __rdivmod__ = _is_no_integer

    def __repr__(self) -> str:
        pieces: list[str] = []
        stack: list[Any] = [self]
        while stack and len(pieces) < PIECES:
            part = stack.pop()
            if isinstance(part, Size) and part.op in COMPUTED:
                a, b = part.args
                stack += [")", b, f" {SIGNS[part.op]} ", a]
                part = "("
            pieces.append(part._leaf_text() if isinstance(part, Size) else str(part))
        return "".join(pieces) + (" ..." if stack else "")

    def _leaf_text(self) -> str:
        if self.op == "unknown":
            return "?"
        letter = {"axis": "d", "stride": "s"}.get(self.op, "n")
        return letter + "_".join(map(str, self.args))


def _power_of_two(size: Size, exponent: int | Size) -> int:
    """2^exponent, by which a shift multiplies or divides."""
    if isinstance(exponent, Size):
        raise NeedsSizes(f"{size} shifted by {exponent}")
    return 1 << exponent


def _is(value: object, number: int) -> bool:
    return isinstance(value, int) and value == number


def _polynomial(size: object) -> Polynomial | None:
    """What is known of a size computed from dynamic ones and extents; None for others."""
    if isinstance(size, int):
        return constant(size)
    if not isinstance(size, Size):
        return None
    if not _has_facts(size):
        for part in size.parts(_has_facts):
            if part.op == "mul" and all(isinstance(arg, Size) for arg in part.args):
                a, b = map(_sum_of_terms, part.args)
                part.facts = None if a is None or b is None else times(a, b)
        size.facts = _sum_of_terms(size)
    return size.facts


def _has_facts(size: Size) -> bool:
    return hasattr(size, "facts")


def _sum_of_terms(size: Size) -> Polynomial | None:
    """The polynomial of a size: the sum of its terms, each as often as it occurs, where those of products are known."""
    factors = {id(size): 1}  # of parts, by id
    total: Polynomial = {}
    for part in reversed(size.parts(_has_facts)):
        factor = factors.get(id(part))
        if factor is None:  # another thread has found the facts of what it is part of, meanwhile
            continue
        if _has_facts(part):
            term = part.facts
        elif part.op in ("axis", "extent"):
            term = {((part.op, *part.args),): 1}
        elif part.op in ("add", "sub", "mul"):
            a, b = part.args
            times_a, times_b = (1, 1) if part.op == "add" else (1, -1) if part.op == "sub" else (b, a)
            for operand, times_it in ((a, times_a), (b, times_b)):
                if isinstance(operand, Size):
                    factors[id(operand)] = factors.get(id(operand), 0) + factor * times_it
                elif part.op != "mul":
                    total[()] = total.get((), 0) + factor * times_it * operand
            continue
        else:
            return None
        if term is None:
            return None
        for key, value in term.items():
            total[key] = total.get(key, 0) + factor * value
    return {key: value for key, value in total.items() if value}


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
