"""assert_close: nearness of arrays, with a message that says where they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.arrays.tensor import Tensor
from weft.base.dtype import DType, as_dtype

__all__ = ["TOLERANCES", "assert_close"]

# (rtol, atol) by the size of a float in bytes; what is exact has none.
TOLERANCES = {2: (1e-2, 1e-2), 4: (1.3e-6, 1e-5), 8: (1e-7, 1e-7)}
MAX_LISTED = 4


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_dtype: bool = True,
    check_device: bool = True,
) -> None:
    """Raise AssertionError unless |actual - expected| <= atol + rtol |expected| everywhere.

    actual, expected: tensors, NumPy arrays, numbers, or sequences and mappings of them, of the same structure. rtol and
    atol go together; by default they follow from the coarser dtype: 1.3e-6 and 1e-5 for float32, 1e-2 for 16-bit
    floats, 1e-7 for float64, 0 for all else. equal_nan: NaN is near NaN. check_dtype, check_device: tensors must agree
    in them, too; what is not a tensor takes the other's. Raises ValueError if only one of rtol and atol is given.

    >>> import weft as wf
    >>> assert_close(wf.tensor([1., 2.]), wf.tensor([1., 2.1]))
    Traceback (most recent call last):
        ...
    AssertionError: assert_close: 1 of 2 elements (50.0%) differ; greatest difference 0.1 (relative 0.0476) at (1,); \
allowed 1e-05 + 1.3e-06 |expected|
      (1,): 2.0 != 2.1
    """
    if (rtol is None) != (atol is None):
        raise ValueError(f"assert_close: rtol and atol go together, got rtol={rtol}, atol={atol}")
    _compare(actual, expected, rtol, atol, equal_nan, check_dtype, check_device, "")


def _compare(
    actual: Any,
    expected: Any,
    rtol: float | None,
    atol: float | None,
    equal_nan: bool,
    check_dtype: bool,
    check_device: bool,
    path: str,
) -> None:
    options = (rtol, atol, equal_nan, check_dtype, check_device)
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if actual.keys() != expected.keys():
            _fail(path, f"keys differ: {sorted(map(str, actual))} != {sorted(map(str, expected))}")
        for key in actual:
            _compare(actual[key], expected[key], *options, f"{path}[{key!r}]")
        return
    if _is_sequence(actual) and (_is_sequence(expected) and _holds_arrays(actual, expected)):
        if len(actual) != len(expected):
            _fail(path, f"lengths differ: {len(actual)} != {len(expected)}")
        for k, (a, b) in enumerate(zip(actual, expected, strict=True)):
            _compare(a, b, *options, f"{path}[{k}]")
        return
    if isinstance(actual, Tensor) and isinstance(expected, Tensor):
        if check_dtype and actual.dtype is not expected.dtype:
            _fail(path, f"dtypes differ: {actual.dtype} != {expected.dtype}")
        if check_device and actual.device is not expected.device:
            _fail(path, f"devices differ: {actual.device} != {expected.device}")
    x, y = (np.asarray(a.numpy() if isinstance(a, Tensor) else a) for a in (actual, expected))
    if x.shape != y.shape:
        _fail(path, f"shapes differ: {x.shape} != {y.shape}")
    rtol, atol = _tolerances(actual, expected, x, y) if rtol is None else (rtol, atol or 0.0)
    _compare_arrays(x, y, rtol, atol, equal_nan, path)


def _is_sequence(x: Any) -> bool:
    return isinstance(x, Sequence) and not isinstance(x, str | bytes)


def _holds_arrays(*sequences: Any) -> bool:
    return any(isinstance(x, Tensor | np.ndarray | Mapping) or _is_sequence(x) for s in sequences for x in s)


def _tolerances(actual: Any, expected: Any, x: Any, y: Any) -> tuple[float, float]:
    """Of the coarser float among them; Python's numbers and lists take the other's."""
    declared = [
        as_dtype(a.dtype) for a in (actual, expected) if isinstance(a, Tensor | np.ndarray | np.generic)
    ]
    kinds: list[DType] = declared or [as_dtype(x.dtype), as_dtype(y.dtype)]
    floats = [t.itemsize for t in kinds if t.is_floating]
    return TOLERANCES[min(floats)] if floats else (0.0, 0.0)


def _compare_arrays(x: Any, y: Any, rtol: float, atol: float, equal_nan: bool, path: str) -> None:
    displayed = x, y
    if x.dtype.kind not in "biu" or y.dtype.kind not in "biu":
        x, y = x.astype(np.float64), y.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            difference = np.abs(x - y)
            near = (np.isfinite(difference) & (difference <= atol + rtol * np.abs(y))) | (x == y)
        if equal_nan:
            near |= np.isnan(x) & np.isnan(y)
    else:
        difference = np.where(x == y, 0.0, np.abs(x.astype(np.float64) - y.astype(np.float64)))
        near = (x == y) if not (rtol or atol) else difference <= atol + rtol * np.abs(y.astype(np.float64))
    if near.all():
        return
    wrong = np.argwhere(~near)
    size = np.where(near, -1.0, np.where(np.isnan(difference), np.inf, difference))
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(size)), x.shape))
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = difference[worst] / abs(float(y[worst]))
    share = len(wrong) / max(x.size, 1)
    lines = [
        f"\n  {tuple(map(int, k))}: {displayed[0][tuple(k)]!s} != {displayed[1][tuple(k)]!s}"
        for k in wrong[:MAX_LISTED]
    ]
    more = f"\n  and {len(wrong) - MAX_LISTED} more" if len(wrong) > MAX_LISTED else ""
    _fail(
        path,
        f"{len(wrong)} of {x.size} elements ({share:.1%}) differ; greatest difference {difference[worst]:.3g} "
        f"(relative {relative:.3g}) at {worst}; allowed {atol:g} + {rtol:g} |expected|"
        + "".join(lines)
        + more,
    )


def _fail(path: str, fact: str) -> None:
    raise AssertionError(f"assert_close: {f'at {path}: ' if path else ''}{fact}")
