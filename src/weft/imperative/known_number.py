"""Numbers that a traced function was given, so that they stay inputs of what is written down.

Arithmetic with them is computed again at each call. Where Python has to know something of one (a comparison, int(), its
value for math.sqrt) that becomes part of what the trace was made for.

>>> lr = KnownNumbers([0.5]).numbers[0]
>>> (lr * 2 + 1).value
2.0
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from weft import _core

__all__ = ["KnownNumber", "KnownNumbers"]

Compute = Callable[[Sequence[float]], Any]


class KnownNumbers:
    """The floats among a call's arguments, and what was computed from them. guards: (compute, value) that must hold."""

    def __init__(self, values: Sequence[float]) -> None:
        self.values = list(values)
        self.computes: dict[int, Compute] = {}
        self.guards: list[tuple[Compute, Any]] = []
        self.numbers = [self.make(value, operator.itemgetter(k)) for k, value in enumerate(values)]

    def make(self, value: Any, compute: Compute) -> KnownNumber:
        """A number that compute finds from the arguments."""
        origin = len(self.computes) + 1
        self.computes[origin] = compute
        return KnownNumber(self, value, origin)


class KnownNumber:
    """One number: its value now, and its origin."""

    __slots__ = ("origin", "owner", "value")

    def __init__(self, owner: KnownNumbers, value: Any, origin: int) -> None:
        self.owner, self.value, self.origin = owner, value, origin

    # isinstance() sees a float, as untraced code does; C code does not, so it asks for the value with __float__.
    __class__ = property(lambda _: float)

    @property
    def compute(self) -> Compute:
        """Finds the number from the arguments."""
        return self.owner.computes[self.origin]

    def learn(self, function: Callable[..., Any], *others: Any) -> Any:
        """function(value, *others), which from now on is part of what the trace is for."""
        mine, theirs = self.compute, [_compute(other) for other in others]
        found = function(
            self.value, *(other.value if isinstance(other, KnownNumber) else other for other in others)
        )
        guard = lambda values: function(mine(values), *(compute(values) for compute in theirs))  # noqa: E731
        self.owner.guards.append((guard, found))
        return found

    def settle(self) -> Any:
        """The value, which from now on is part of what the trace is for."""
        return self.learn(lambda value: value)


def _compute(number: Any) -> Compute:
    return number.compute if isinstance(number, KnownNumber) else lambda _: number


def _unary(function: Callable[[Any], Any]) -> Any:
    def method(self: KnownNumber) -> Any:
        compute = self.compute
        return self.owner.make(function(self.value), lambda values: function(compute(values)))

    return method


def _binary(function: Callable[[Any, Any], Any], reflected: bool = False) -> Any:
    def method(self: KnownNumber, other: Any) -> Any:
        if not isinstance(other, KnownNumber | int | float):
            return NotImplemented
        value = other.value if isinstance(other, KnownNumber) else other
        mine, theirs = self.compute, _compute(other)
        if reflected:
            made = function(value, self.value)
            return self.owner.make(made, lambda values: function(theirs(values), mine(values)))
        made = function(self.value, value)
        return self.owner.make(made, lambda values: function(mine(values), theirs(values)))

    return method


def _learned(function: Callable[..., Any]) -> Any:
    def method(self: KnownNumber, *others: Any) -> Any:
        return self.learn(function, *others)

    return method


for _name in ("neg", "pos", "abs"):
    setattr(KnownNumber, f"__{_name}__", _unary(getattr(operator, _name)))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(KnownNumber, f"__{_name}__", _binary(getattr(operator, _name)))
    setattr(KnownNumber, f"__r{_name}__", _binary(getattr(operator, _name), reflected=True))
for _name in ("lt", "le", "eq", "ne", "gt", "ge"):
    setattr(KnownNumber, f"__{_name}__", _learned(getattr(operator, _name)))
for _function in (float, int, bool, math.trunc, round, repr, format, hash):
    setattr(KnownNumber, f"__{_function.__name__}__", _learned(_function))

_core.set_known_number_type(KnownNumber)
