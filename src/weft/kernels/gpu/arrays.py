"""Loops on arrays outside of programs: copies of any strides and types, numbers that fill them."""

from __future__ import annotations

import functools
from typing import Any

from weft.expr import scalar as e
from weft.expr.functions import expand
from weft.expr.kernel import Each, Store
from weft.expr.launches import thread_loop
from weft.kernels.gpu.indexing import copying
from weft.kernels.gpu.random import DISTRIBUTIONS, distributed, drawing, permuting

Scalar = e.Scalar


def array_loop(what: str, dtype: str, source: str, rank: int) -> Any:
    """The loop that the native core runs on arrays of a GPU (native/tensor/staging.h).

    dtype: of what is written; source: of what "copy" reads; rank: of the array, where elements have numbers.
    """
    if what == "copy":
        return copying(dtype, source)
    if what == "fill":
        return repeating(dtype)
    if what == "permutation":
        return permuting(dtype, rank)
    return distributed(what, dtype, rank) if what in DISTRIBUTIONS else counting(what, dtype, rank)


@functools.cache
def repeating(dtype: str) -> Any:
    """Every element is parameter 0, or the complex number of parameters 0 and 1."""
    if real := e.COMPLEX.get(dtype):
        value = e.complex_number(e.parameter(0, real), e.parameter(1, real))
    else:
        value = e.parameter(0, dtype)
    return thread_loop("fill", (dtype,), (Each((Store(0, expand(value)),)),), inputs=0)


@functools.cache
def counting(what: str, dtype: str, rank: int) -> Any:
    """Parameter 0 + i * parameter 1, in row-major order: float64 of "range_of_reals", else int64, which wraps."""
    kind = {"range": "uint64", "range_of_reals": "float64"}[what]
    start, step = e.parameter(0, kind), e.parameter(1, kind)

    def values(number: Scalar) -> list[Scalar]:
        value = start + e.cast(number, kind) * step
        return [e.cast(value if kind == "float64" else e.cast(value, "int64"), dtype)]

    return drawing(what, [dtype], 0, rank, 2, values)
