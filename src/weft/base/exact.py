"""Exact keys: hashable, and equal only for values that are the same in type and bits, at every depth.

To Python's ``==``, 1, 1.0 and True are equal, so are 0.0 and -0.0, and NaN does not equal itself. A program of one of
them is wrong for another, so all tables of programs, plans and nodes that have plain values in their keys use this one.

>>> exact((0.0, 1)) == exact((-0.0, 1)), exact(1) == exact(True), exact(float("nan")) == exact(float("nan"))
(False, False, True)
>>> exact({"a": [1, 2.0]}) == exact({"a": [1, 2.0]}), exact([1]) == exact((1,))
(True, False)
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from weft.base.typing import Any

__all__ = ["AS_IS", "DEPTH", "TOO_DEEP", "Key", "Same", "exact"]

DEPTH = 10_000  # of containers in each other; deeper ones contain themselves, most likely
TOO_DEEP = f"containers nested more than {DEPTH} deep, or one that contains itself"

AS_IS = frozenset((int, str, bytes, type(None)))  # types whose values are their own keys
_bits = struct.Struct("d").pack


class Key:
    """A large key, whose hash is computed once. parts: what it is equal by."""

    __slots__ = ("_hash", "parts")

    def __init__(self, parts: Any) -> None:
        self.parts, self._hash = parts, hash(parts)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Key) and self._hash == other._hash and bool(self.parts == other.parts)
        )

    def __hash__(self) -> int:
        return self._hash


class Same:
    """An object as a key: equal to itself only. It keeps the object, so that no other one takes its address.

    >>> a, b = [], []
    >>> Same(a) == Same(a), Same(a) == Same(b)
    (True, False)
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def _by_type_and_equality(value: Any) -> Any:
    return (type(value), value)


def exact(value: Any, other: Callable[[Any], Any] = _by_type_and_equality) -> Any:
    """The key of a value: of numbers type and bits, of containers their type and the keys of what is in them, in order.

    Objects with a property ``__weft_key__`` are compared by it, classes by identity, frozen dataclasses by their
    fields, and NumPy's scalars by their bits. other: the key of an object of any other kind; by default its type and
    its own ``==`` and ``hash``. Raises RecursionError for containers that are more than DEPTH deep.
    """
    kind = type(value)
    if kind in AS_IS:
        return value
    if kind is bool:
        return (kind, value)
    if isinstance(value, float):
        return (kind, _bits(value))
    if isinstance(value, tuple | list | dict):
        return _exact_of_container(value, other)
    if hasattr(kind, "__weft_key__"):
        return (kind, value.__weft_key__)
    if isinstance(value, set | frozenset):
        return (kind, frozenset(exact(item, other) for item in value))
    if isinstance(value, slice):
        return (kind, *[exact(part, other) for part in (value.start, value.stop, value.step)])
    if isinstance(value, type):
        return Same(value)
    if isinstance(value, complex):
        return (kind, _bits(value.real), _bits(value.imag))
    if isinstance(value, int):
        return (kind, int(value))
    if hasattr(kind, "tobytes") and kind.__hash__ is not None:
        return (kind, value.dtype.str, value.tobytes())
    settings = getattr(kind, "__dataclass_params__", None)
    if settings is not None and settings.frozen and settings.eq:
        return (kind, *[exact(getattr(value, name), other) for name in kind.__dataclass_fields__])
    return other(value)


def _exact_of_container(value: Any, other: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Flat, since containers may be nested deeper than tuples can be compared: each before what is in it.

    A container is its type and number of items, which no key of anything else is.
    """
    parts: list[Any] = []
    waiting = [iter((value,))]
    while waiting:
        for each in waiting[-1]:
            kind = type(each)
            if kind in AS_IS:
                parts.append(each)
            elif isinstance(each, tuple | list):
                parts.append((kind, len(each)))
                waiting.append(iter(each))
                break
            elif isinstance(each, dict):
                parts.append((kind, len(each)))
                waiting.append(iter([part for item in each.items() for part in item]))
                break
            else:
                parts.append(exact(each, other))
        else:
            waiting.pop()
        if len(waiting) > DEPTH:
            raise RecursionError(TOO_DEEP)
    return tuple(parts)
