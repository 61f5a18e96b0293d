"""What counts NaN and infinite elements on a GPU, for wf.tools.detect_anomaly."""

from __future__ import annotations

import functools
import math
from typing import Any

from weft.expr import scalar as e
from weft.expr.functions import expand
from weft.expr.kernel import Fold, Once, Reduction, Store
from weft.expr.launches import thread_loop

__all__ = ["count_non_finite"]


@functools.cache
def count_non_finite(dtype: str, rank: int) -> Any:
    """A loop from an array to four int64: NaN, infinite elements, the places of the first NaN and the first of both.

    Places are in row-major order; -1: there is none.
    """
    x = e.load(0, dtype)
    x = x if dtype in ("float32", "float64") else expand(e.cast(x, "float32"))
    is_nan = ~(x == x)
    is_infinite = (x == e.constant(math.inf, x.dtype)) | (x == e.constant(-math.inf, x.dtype))

    def flag(condition: e.Scalar, kind: str) -> e.Scalar:
        return e.where(condition, e.constant(1, kind), e.constant(0, kind))

    counts = Fold(
        (
            Reduction(0, "sum", flag(is_nan, "int64")),
            Reduction(1, "sum", flag(is_infinite, "int64")),
            Reduction(2, "argmax", flag(is_nan, "int32")),
            Reduction(3, "argmax", flag(is_nan | is_infinite, "int32")),
        )
    )
    nan, infinite, first_nan, first = (e.result(k, "int64") for k in range(4))
    none = e.constant(-1, "int64")
    stores = (
        Store(1, nan),
        Store(2, infinite),
        Store(3, e.where(nan == e.constant(0, "int64"), none, first_nan)),
        Store(4, e.where(nan + infinite == e.constant(0, "int64"), none, first)),
    )
    axes = (1 << max(rank, 1)) - 1
    return thread_loop(
        "count_non_finite",
        (dtype, *("int64",) * 4),
        (counts, Once(stores)),
        inputs=1,
        row_axes=axes,
        positions=axes,
        is_ordered=True,
    )
