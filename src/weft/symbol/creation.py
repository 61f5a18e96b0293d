"""Functions that create symbols without inputs: ranges, and random numbers that are drawn at each run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft.base.device import Device, as_device
from weft.base.dtype import DType, as_dtype
from weft.ops import registry
from weft.symbol.compose import compose
from weft.symbol.symbol import Symbol, full

__all__ = ["arange", "eye", "linspace", "normal", "randint", "uniform"]

DTypeLike = DType | str | Any


def _of(operator: str, arrays: Sequence[Any] = (), **attributes: Any) -> Symbol:
    return Symbol(compose(registry.get(operator), tuple(arrays), attributes))


def _check(function: str, kinds: Any = (int, float), **values: Any) -> None:
    """Raises TypeError unless all values are of these kinds, ValueError unless they are finite."""
    for name, value in values.items():
        if not isinstance(value, kinds) or isinstance(value, bool):
            expected = "an int" if kinds is int else "a number"
            raise TypeError(f"{function}: {name} must be {expected}, got {value!r}")
        if not math.isfinite(value):
            raise ValueError(f"{function}: {name} must be finite, got {value}")


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def arange(
    start: float, stop: float | None = None, step: float = 1, dtype: DTypeLike | None = None
) -> Symbol:
    """start, start + step, ... below stop, as weft.arange; arange(n) counts from 0.

    dtype None: int64 if all are ints, else float32. Raises ValueError if step is 0.

    >>> arange(1, 2, 0.25).eval()
    [tensor([1.  , 1.25, 1.5 , 1.75], dtype=float32, device=cpu:0)]
    """
    if stop is None:
        start, stop = 0, start
    _check("arange", start=start, stop=stop, step=step)
    if step == 0:
        raise ValueError("arange: step must not be 0")
    kind = as_dtype(dtype or (int if all(isinstance(n, int) for n in (start, stop, step)) else float))
    count = max(0, math.ceil((stop - start) / step))
    return _of("stepped", shape=(count,), start=start, step=step, dtype=kind)


def linspace(start: float, stop: float, num: int, dtype: DTypeLike = "float32") -> Symbol:
    """num numbers from start to stop in equal steps, stop included, as weft.linspace.

    Raises ValueError if num is negative.

    >>> linspace(0, 1, 5).eval()
    [tensor([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32, device=cpu:0)]
    """
    _check("linspace", start=start, stop=stop)
    _check("linspace", int, num=num)
    if num < 0:
        raise ValueError(f"linspace: num must be at least 0, got {num}")
    kind = as_dtype(dtype)
    if num < 2:
        return full((num,), start, kind)
    inner = _of("stepped", shape=(num - 1,), start=float(start), step=(stop - start) / (num - 1), dtype=kind)
    return _of("concat", (inner, full((1,), stop, kind)), axis=0)  # the end exactly, whatever the steps are


def eye(n_rows: int, n_cols: int | None = None, *, k: int = 0, dtype: DTypeLike = "float32") -> Symbol:
    """Ones on the diagonal, zeros elsewhere; k > 0 shifts the diagonal up, k < 0 down.

    >>> eye(2, 3, k=1, dtype="int8").eval()
    [tensor([[0, 1, 0],
            [0, 0, 1]], dtype=int8, device=cpu:0)]
    """
    n_cols = n_rows if n_cols is None else n_cols
    _check("eye", int, n_rows=n_rows, n_cols=n_cols, k=k)
    rows = _of("reshape", (_of("stepped", shape=(n_rows,), start=k),), shape=(n_rows, 1))
    columns = _of("stepped", shape=(n_cols,))
    return _of("cast", (_of("equal", (rows, columns)),), dtype=as_dtype(dtype))


def uniform(
    low: float = 0.0,
    high: float = 1.0,
    shape: int | Sequence[int] = (),
    dtype: DTypeLike = "float32",
    device: Device | str | None = None,
) -> Symbol:
    """Random numbers spread evenly over [low, high), other ones at each run of an executor; as weft.random.uniform.

    device: the one whose stream they are drawn from. Raises DTypeError unless dtype is a float.

    >>> import weft as wf
    >>> wf.random.seed(0)
    >>> (first,), (second,) = uniform(shape=2).eval(), uniform(shape=2).eval()
    >>> bool((first != second).all())
    True
    """
    _check("uniform", low=low, high=high)
    return _random("random_uniform", shape, dtype, device, low=float(low), high=float(high))


def normal(
    mean: float = 0.0,
    std: float = 1.0,
    shape: int | Sequence[int] = (),
    dtype: DTypeLike = "float32",
    device: Device | str | None = None,
) -> Symbol:
    """Normally distributed random numbers, other ones at each run of an executor; as weft.random.normal.

    Raises ValueError if std is negative, DTypeError unless dtype is a float.

    >>> normal(shape=(2, 3)).infer_shape()
    ([], [(2, 3)], [])
    """
    _check("normal", mean=mean, std=std)
    if std < 0:
        raise ValueError(f"normal: std must be at least 0, got {std}")
    return _random("random_normal", shape, dtype, device, mean=float(mean), std=float(std))


def randint(
    low: int,
    high: int | None = None,
    shape: int | Sequence[int] = (),
    dtype: DTypeLike = "int64",
    device: Device | str | None = None,
) -> Symbol:
    """Random integers in [low, high), or [0, low), equally likely, other ones at each run; as weft.random.randint.

    Raises ValueError if there is no integer in the range, DTypeError unless dtype is an integer.

    >>> randint(10, shape=3).infer_type()
    ([], [int64], [])
    """
    if high is None:
        low, high = 0, low
    _check("randint", int, low=low, high=high)
    if low >= high:
        raise ValueError(f"randint: low must be less than high, got {low} and {high}")
    return _random("random_integers", shape, dtype, device, low=low, high=high)


def _random(
    operator: str,
    shape: int | Sequence[int],
    dtype: DTypeLike,
    device: Device | str | None,
    **numbers: float,
) -> Symbol:
    return _of(operator, (), shape=_shape(shape), dtype=as_dtype(dtype), device=as_device(device), **numbers)
