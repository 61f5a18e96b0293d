"""Computes which elements of a row-major array a view shows; used by passes about views."""

from __future__ import annotations

from typing import Any

from weft.kernels import first_choice
from weft.ops.kernels import View
from weft.ops.node import Node
from weft.ops.shapes import row_major

__all__ = ["Geometry", "permutation", "same_strides", "see_of"]

Geometry = tuple[tuple[int, ...], tuple[int, ...], int]  # sizes, strides and offset in elements


def see_of(node: Node) -> Any:
    """How a node sees its first input; None if it is not a view, or one that insists on being no copy."""
    choice = first_choice(node)
    if not isinstance(choice, View) or getattr(node.op, "copy", None) is False:
        return None
    return choice.see


def permutation(view: Geometry, sizes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The dimension of a row-major array that each dimension of the view is; None if they are others."""
    shape, strides, _ = view
    dimensions = list(zip(sizes, row_major(sizes), strict=True))
    axes = []
    for size, stride in zip(shape, strides, strict=True):
        fits = [
            d
            for d, (n, s) in enumerate(dimensions)
            if n == size and (s == stride or n == 1) and d not in axes
        ]
        if not fits:
            return None
        axes.append(fits[0])
    return tuple(axes) if len(axes) == len(sizes) else None


def same_strides(shape: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether strides are equal where they matter."""
    return all(n == 1 or s == t for n, s, t in zip(shape, a, b, strict=True))
