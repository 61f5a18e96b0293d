"""Computes which elements of a row-major array a view shows; used by passes about views."""

from __future__ import annotations

import math
from typing import Any

from weft.graph.rewrite import first_choice
from weft.ops.kernels import View
from weft.ops.node import Node

__all__ = ["Geometry", "permutation", "row_major", "same_strides", "see_of"]

Geometry = tuple[tuple[int, ...], tuple[int, ...], int]  # sizes, strides and offset in elements


def see_of(node: Node) -> Any:
    """How a node sees its first input; None if it is not a view, or one that insists on being no copy."""
    choice = first_choice(node)
    if not isinstance(choice, View) or getattr(node.op, "copy", None) is False:
        return None
    return choice.see


def permutation(seen: Geometry, sizes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The dimension of a row-major array that each dimension of the view is; None if they are others."""
    shape, strides, _ = seen
    left = list(zip(sizes, row_major(sizes), strict=True))
    axes = []
    for size, stride in zip(shape, strides, strict=True):
        fits = [d for d, (n, s) in enumerate(left) if n == size and (s == stride or n == 1) and d not in axes]
        if not fits:
            return None
        axes.append(fits[0])
    return tuple(axes) if len(axes) == len(sizes) else None


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of an array without gaps.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))


def same_strides(shape: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether strides are equal where they matter."""
    return all(n == 1 or s == t for n, s, t in zip(shape, a, b, strict=True))
