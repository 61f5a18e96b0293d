"""Discrete Fourier transforms: the array API standard's extension `fft`, and transforms along two axes.

Of any length, on arrays, in traces, in symbols, under vmap, with gradients of every order. float32 is computed in
float32, and integers and 16-bit floats as float32.

>>> import weft as wf
>>> x = wf.tensor([1., 2., 3.])
>>> wf.fft.irfft(wf.fft.rfft(x), n=3).round()
tensor([1., 2., 3.], dtype=float32, device=cpu:0)
"""

from __future__ import annotations

from typing import Any

from weft import functional as F
from weft.base.dtype import as_dtype
from weft.base.errors import DTypeError
from weft.ops import registry


def _frequencies(name: str, start: int, stop: int, n: int, d: float, dtype: Any, device: Any) -> Any:
    from weft.arrays.creation import arange

    kind = as_dtype("float32" if dtype is None else dtype)
    if not kind.is_floating:
        raise DTypeError(f"{name}: dtype must be a floating-point type, got {kind}")
    if n < 1:
        raise ValueError(f"{name}: n must be at least 1, got {n}")
    return (arange(start, stop, dtype="float64", device=device) / (n * d)).astype(kind)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """Return the frequencies of the n numbers of fft, in cycles per unit of d, the distance of points.

    dtype: a floating-point type, by default float32. Returns [n]: 0, 1, ..., then the negative ones, over n d. Raises
    ValueError for n < 1, DTypeError for other types. Source: array API 2024.12, fft.fftfreq.

    >>> import weft as wf
    >>> wf.fft.fftfreq(4, d=0.25).tolist()
    [0.0, 1.0, -2.0, -1.0]
    """
    return F.ifftshift(_frequencies("fftfreq", -(n // 2), (n + 1) // 2, n, d, dtype, device))


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """Return the frequencies of the n // 2 + 1 numbers of rfft, in cycles per unit of d, the distance of points.

    dtype: a floating-point type, by default float32. Returns [n // 2 + 1]: 0, 1, ..., over n d. Raises ValueError for
    n < 1, DTypeError for other types. Source: array API 2024.12, fft.rfftfreq.

    >>> import weft as wf
    >>> wf.fft.rfftfreq(4, d=0.25).tolist()
    [0.0, 1.0, 2.0]
    """
    return _frequencies("rfftfreq", 0, n // 2 + 1, n, d, dtype, device)


def _operators() -> frozenset[str]:
    return registry.public_names_of("weft.ops.families.fourier")


def __getattr__(name: str) -> Any:
    """The functions that are operators under the same name, which are listed in the index of operators."""
    if name == "__all__":
        return __dir__()
    if name in _operators():
        value = globals()[name] = getattr(F, name)
        return value
    from weft.base.name_hints import missing

    raise missing(__name__, name, __dir__)


def __dir__() -> list[str]:
    return sorted({"fftfreq", "rfftfreq"} | _operators())
