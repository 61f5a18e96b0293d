"""Shapes of which only a part is known, and strides."""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.typing import Any

__all__ = [
    "Contradiction",
    "Partial",
    "broadcast",
    "is_dense",
    "merge",
    "row_major",
    "shown",
    "split_last",
]

Partial = tuple[int | None, ...] | None  # None: not even the rank is known; a None within: that size is not


class Contradiction(Exception):  # becomes a ShapeError of the operator
    """Two sizes that should be one differ."""


def shown(shape: Partial) -> str:
    """As errors have it.

    >>> shown((2, None)), shown(None)
    ('[2,?]', '[...]')
    """
    return "[...]" if shape is None else f"[{','.join('?' if n is None else str(n) for n in shape)}]"


def merge(a: Partial, b: Partial) -> Partial:
    """What is known from either. Raises Contradiction if they differ.

    >>> merge((2, None), (None, 3)), merge(None, (1,))
    ((2, 3), (1,))
    """
    if a is None or b is None:
        return b if a is None else a
    if len(a) != len(b):
        raise Contradiction(f"{len(a)} and {len(b)} dimensions, {shown(a)} and {shown(b)}")
    for n, m in zip(a, b, strict=True):
        if n is not None and m is not None and n != m:
            raise Contradiction(f"{n} != {m}, {shown(a)} and {shown(b)}")
    return tuple(m if n is None else n for n, m in zip(a, b, strict=True))


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements fill their memory without gaps, in whatever order of the dimensions.

    >>> is_dense((2, 3), (1, 2)), is_dense((2, 3), (0, 1)), is_dense((2, 3), (4, 1))
    (True, False, False)
    """
    step = 1
    for stride, n in sorted((s, n) for n, s in zip(shape, strides, strict=True) if n != 1):
        if stride != step:
            return False
        step *= n
    return True


def is_distinct(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether no two indices mean one element, as far as strides tell. Sizes not known to be 1 count as more than 1.

    It is so where each stride is greater than the reach of all smaller ones together, as in what is sliced and permuted
    of a row-major array.

    >>> [is_distinct(shape, strides) for shape, strides in (((2, 3), (1, 2)), ((2, 2), (2, 3)), ((2, 3), (2, 1)))]
    [True, True, False]
    """
    spans = [(n, s if s >= 0 else -s) for n, s in zip(shape, strides, strict=True)]
    several = [span for span in spans if not (isinstance(span[0], int) and span[0] == 1)]
    reach: Any = 0
    for n, s in sorted(several, key=lambda span: span[1]):
        if s <= reach:
            return False
        reach = reach + s * (n - 1)
    return True


def row_major(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Strides of a contiguous array, in elements.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    strides: list[Any] = []
    step: Any = 1
    for n in reversed(shape):
        strides.append(step)
        step = step * (max(n, 1) if isinstance(n, int) else n)
    return tuple(reversed(strides))


def split_last(shape: tuple[int | None, ...], count: int) -> tuple[Partial, tuple[int | None, ...]]:
    """A shape without its last sizes, and those. Raises Contradiction if it has fewer.

    >>> split_last((2, 3, None), 1)
    ((2, 3), (None,))
    """
    if len(shape) < count:
        raise Contradiction(f"{shown(shape)} has fewer than {count} dimensions")
    return shape[: len(shape) - count], shape[len(shape) - count :]


def broadcast(inputs: Sequence[Partial], output: Partial) -> tuple[list[Partial], Partial]:
    """What broadcasting says of operands and their result, both ways. Raises Contradiction.

    >>> broadcast([(None, 3), (1,)], (2, 3))
    ([(2, 3), (1,)], (2, 3))
    >>> broadcast([(None, 5), (None, 1)], None)
    ([(None, 5), (None, 1)], (None, 5))
    """
    if len(inputs) == 1:
        output = merge(inputs[0], output)
        return [output], output
    if all(shape is not None for shape in inputs):
        rank = max((len(shape) for shape in inputs if shape is not None), default=0)
        columns = (
            [shape[d] for shape in inputs if shape is not None and -d <= len(shape)] for d in range(-rank, 0)
        )
        output = merge(output, tuple(map(_meet, columns)))
    if output is None:
        return list(inputs), output
    solved = list(inputs)
    for k, shape in enumerate(inputs):
        if shape is None:
            continue
        if len(shape) > len(output):
            raise Contradiction(f"{shown(shape)} does not fit the result {shown(output)}")
        sizes = list(shape)
        for d in range(-len(shape), 0):
            full, n = output[d], shape[d]
            if n is None and full is not None:
                if full == 1 or all(
                    other is not None and (-d > len(other) or other[d] == 1)
                    for j, other in enumerate(inputs)
                    if j != k
                ):
                    sizes[d] = full
            elif n is not None and full is not None and n not in (1, full):
                raise Contradiction(f"{shown(shape)} does not fit the result {shown(output)}")
        solved[k] = tuple(sizes)
    return solved, output


def _meet(sizes: Sequence[int | None]) -> int | None:
    """The size that sizes are repeated to, None if that is open."""
    result: int | None = 1
    for n in sizes:
        if n is None:
            result = None if result == 1 else result
        elif n != 1:
            if result not in (None, 1, n):
                raise Contradiction(f"sizes {result} and {n} do not fit")
            result = n
    return result
