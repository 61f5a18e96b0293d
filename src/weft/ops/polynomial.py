"""Facts about sums and products of dynamic sizes without their numbers: each is at least 2.

A polynomial is {monomial: coefficient}, a monomial the sorted tuple of the names of its sizes.

>>> n, m = {(("axis", 0),): 1}, {(("axis", 1),): 1}
>>> times(n, m) == times(m, n), least(times(n, constant(3)))
(True, 6)
>>> quotient(times(n, constant(6)), times(n, constant(2)))
{(): 3}
"""

from __future__ import annotations

from weft.base.typing import Any

__all__ = ["Polynomial", "constant", "least", "plus", "quotient", "times"]

Polynomial = dict[tuple[Any, ...], int]


def constant(value: int) -> Polynomial:
    """A number."""
    return {(): value} if value else {}


def plus(a: Polynomial, b: Polynomial, sign: int = 1) -> Polynomial:
    """a + sign * b"""
    total = dict(a)
    for key, value in b.items():
        if sum_of_both := total.get(key, 0) + sign * value:
            total[key] = sum_of_both
        else:
            del total[key]
    return total


def times(a: Polynomial, b: Polynomial) -> Polynomial:
    """a * b"""
    total: Polynomial = {}
    for x, p in a.items():
        for y, q in b.items():
            key = tuple(sorted(x + y))
            total[key] = total.get(key, 0) + p * q
    return {key: value for key, value in total.items() if value}


def least(a: Polynomial) -> int | None:
    """What it is at least; None if that is not known, because something is subtracted.

    With each size written as 2 + e, a polynomial of e without negative terms is least where every e is 0.

    >>> n, m = {(("axis", 0),): 1}, {(("axis", 1),): 1}
    >>> least(plus(times(n, m), m, -1)), least(plus(n, m, -1))
    (2, None)
    """
    if min(a.values(), default=0) >= 0:
        return sum([value << len(key) for key, value in a.items()])
    shifted: Polynomial = {}
    for key, value in a.items():
        product = constant(value)
        for size in key:
            product = times(product, {(size,): 1, (): 2})
        shifted = plus(shifted, product)
    return None if [key for key, value in shifted.items() if key and value < 0] else shifted.get((), 0)


def quotient(a: Polynomial, b: Polynomial) -> Polynomial | None:
    """a / b where b is a single term that divides each of a's; else None."""
    if len(b) != 1:
        return None
    ((divisor, by),) = b.items()
    result: Polynomial = {}
    for key, value in a.items():
        factors = list(key)
        for size in divisor:
            if size not in factors:
                return None
            factors.remove(size)
        if value % by:
            return None
        result[tuple(factors)] = value // by
    return result
