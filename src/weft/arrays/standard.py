"""What the Python array API standard (2024.12) requires of a namespace beyond operators.

Limits of types, promotion, inspection, constants.

>>> import weft as wf
>>> wf.ones(1).__array_namespace__() is wf, wf.__array_api_version__
(True, '2024.12')
>>> wf.isdtype(wf.float32, "real floating"), wf.result_type(wf.int8, wf.uint8)
(True, int16)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from weft import _core
from weft.base.device import Device, current_device
from weft.base.dtype import DTYPES, DType, as_dtype, bool_, complex64, float32, int64
from weft.base.errors import DeviceError, DTypeError, ShapeError
from weft.ops.types import TensorType, promote
from weft.storage import devices

__all__ = [
    "__array_api_version__",
    "__array_namespace_info__",
    "astype",
    "broadcast_shapes",
    "can_cast",
    "diff",
    "e",
    "finfo",
    "iinfo",
    "inf",
    "isdtype",
    "isin",
    "nan",
    "newaxis",
    "pi",
    "result_type",
]

__array_api_version__ = "2024.12"
e, inf, nan, pi, newaxis = math.e, math.inf, math.nan, math.pi, None

MOST_DIMENSIONS = 16  # kMaxDims of native/tensor/kernels.h

KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": ("int",),
    "unsigned integer": ("uint",),
    "integral": ("int", "uint"),
    "real floating": ("float",),
    "complex floating": ("complex",),
    "numeric": ("int", "uint", "float", "complex"),
}
NUMBERS = {bool: bool_, int: int64, float: float32, complex: complex64}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: a dtype, a word of the standard, or a tuple of those.

    Words: bool, signed integer, unsigned integer, integral, real floating, complex floating, numeric.
    Raises TypeError for anything else.

    >>> import weft as wf
    >>> isdtype(wf.uint8, "integral"), isdtype(wf.uint8, (wf.int8, "bool"))
    (True, False)
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, each) for each in kind)
    actual = as_dtype(dtype)
    if isinstance(kind, str) and kind in KINDS:
        return actual.kind in KINDS[kind]
    try:
        return actual is as_dtype(kind)
    except DTypeError:
        raise TypeError(f"isdtype: no kind {kind!r}; there are dtypes and: {', '.join(KINDS)}") from None


@dataclass(frozen=True)
class finfo:  # its name in the standard
    """The limits of a floating-point type: given a dtype or an array; of a complex type those of its parts.

    Raises DTypeError for others. bits, eps (of 1), max, min, smallest_normal as Python numbers; dtype.

    >>> finfo("float32").eps, finfo("bfloat16").max
    (1.1920928955078125e-07, 3.3895313892515355e+38)
    """

    type: Any = field(repr=False)
    bits: int = field(init=False)
    eps: float = field(init=False)
    max: float = field(init=False)
    min: float = field(init=False)
    smallest_normal: float = field(init=False)
    dtype: DType = field(init=False)

    def __post_init__(self) -> None:
        dtype = _dtype_of(self.type).real
        if not dtype.is_floating:
            raise DTypeError(f"finfo: takes floating-point types, got {dtype}")
        fraction, most = dtype.digits - 1, dtype.max_exponent
        largest = (2.0 - 2.0**-fraction) * 2.0**most
        limits = {
            "eps": 2.0**-fraction,
            "max": largest,
            "min": -largest,
            "smallest_normal": 2.0 ** (1 - most),
        }
        vars(self).update(limits, bits=dtype.bits, dtype=dtype, type=dtype)


@dataclass(frozen=True)
class iinfo:  # its name in the standard
    """The limits of an integer type: given a dtype or an array. Raises DTypeError for others.

    bits, max, min; dtype.

    >>> iinfo("int8").min, iinfo("uint64").max
    (-128, 18446744073709551615)
    """

    type: Any = field(repr=False)
    bits: int = field(init=False)
    max: int = field(init=False)
    min: int = field(init=False)
    dtype: DType = field(init=False)

    def __post_init__(self) -> None:
        dtype = _dtype_of(self.type)
        if not dtype.is_integer:
            raise DTypeError(f"iinfo: takes integer types, got {dtype}")
        bits = dtype.bits
        least = 0 if dtype.kind == "uint" else -(2 ** (bits - 1))
        vars(self).update(bits=bits, max=least + 2**bits - 1, min=least, dtype=dtype, type=dtype)


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """Return x's elements as another type, converted as NumPy does; with copy=False x itself if it has that type.

    x: a Tensor or Symbol [...]. device: where the result is; None: x's. Source: array API 2024.12, astype.

    >>> import weft as wf
    >>> wf.astype(wf.tensor([1.7, -1.7]), "int8").tolist()
    [1, -1]
    """
    converted = x.astype(dtype, copy=copy)
    return converted if device is None else converted.to_device(device)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that arrays of these shapes are broadcast to. Raises ShapeError if there is none.

    Source: array API 2025.12, broadcast_shapes.

    >>> broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    shape: tuple[int, ...] = ()
    for other in shapes:
        rank = max(len(shape), len(other))
        pairs = list(
            zip((1,) * (rank - len(shape)) + shape, (1,) * (rank - len(other)) + tuple(other), strict=True)
        )
        if any(a != b and 1 not in (a, b) for a, b in pairs):
            raise ShapeError(f"broadcast_shapes: {shape} and {tuple(other)} do not broadcast")
        shape = tuple(b if a == 1 else a for a, b in pairs)
    return shape


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    """Return the differences of neighbours along an axis, n times.

    x: numbers [...]. n: how often differences are taken, at least 0. prepend, append: arrays that are joined to x along
    the axis first. Returns x's shape with n fewer elements along the axis, at least none.
    Raises ValueError for a negative n. Source: array API 2024.12, diff.

    >>> import weft as wf
    >>> wf.diff(wf.tensor([1, 4, 9, 16])).tolist(), wf.diff(wf.tensor([1, 4, 9, 16]), n=2).tolist()
    ([3, 5, 7], [2, 2])
    """
    from weft.ops import functions as F

    if n < 0:
        raise ValueError(f"diff: n must be at least 0, got {n}")
    if n == 0:
        return x
    parts = [part for part in (prepend, x, append) if part is not None]
    if len(parts) > 1:
        x = F.concat(parts, axis=axis)
    if not -x.ndim <= axis < x.ndim:
        raise ShapeError(f"diff: axis {axis} is out of range for x of {x.ndim} dimensions")
    before = (slice(None),) * (axis % x.ndim)
    for _ in range(n):
        later, earlier = x[(*before, slice(1, None))], x[(*before, slice(None, -1))]
        x = later != earlier if x.dtype.kind == "bool" else later - earlier
    return x


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Any:
    """Return whether each element of x1 is among the elements of x2, bool of x1's shape; invert: whether it is not.

    x1, x2: arrays of the same kind, at most one of them a Python number. NaN is among nothing.
    Source: array API 2025.12, isin.

    >>> import weft as wf
    >>> wf.isin(wf.tensor([1, 2, 3]), wf.tensor([3, 1])).tolist()
    [True, False, True]
    """
    from weft.ops import functions as F

    if not hasattr(x2, "shape"):
        among = F.equal(x1, x2)
    elif not hasattr(x1, "shape"):
        among = F.any(F.equal(x2, x1))
    elif x2.size == 0:
        among = F.not_equal(x1, x1) & False
    else:
        x1, x2 = (F.cast(x, dtype="uint8") if x.dtype.kind == "bool" else x for x in (x1, x2))
        table = F.sort(x2.reshape(-1))
        index = F.searchsorted(table, x1)
        among = F.equal(F.take(table, F.minimum(index, x2.size - 1), axis=0), x1)
    return F.logical_not(among) if invert else among


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether a dtype, or an array's, is promoted to another by the standard's tables, in which kinds do not mix.

    >>> can_cast("int8", "int16"), can_cast("int16", "uint16"), can_cast("int8", "float32")
    (True, False, False)
    """
    before, after = _dtype_of(from_), as_dtype(to)
    family = {"uint": "int"}
    if family.get(before.kind, before.kind) != family.get(after.kind, after.kind):
        return False
    return promote(TensorType((), before), TensorType((), after)) is after


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that arrays, dtypes and Python numbers meet in. Raises TypeError if only numbers are given, or nothing.

    >>> import weft as wf
    >>> result_type(wf.ones(1, dtype="int8"), 2.0), result_type("float32", wf.float64, 1)
    (float32, float64)
    """
    types = [
        TensorType((), NUMBERS[type(x)], weak=True) if type(x) in NUMBERS else TensorType((), _dtype_of(x))
        for x in arrays_and_dtypes
    ]
    if all(t.weak for t in types):
        raise TypeError("result_type: at least one array or dtype must be given")
    return promote(*types)


def _dtype_of(x: Any) -> DType:
    return x.dtype if isinstance(x, _core.Tensor) else as_dtype(x)


def _check_availability(device: Any) -> None:
    if device is not None and not devices.device.is_available(device):
        raise DeviceError(f"device {device} is not available; there are {Info().devices()}")


class Info:
    """What __array_namespace_info__() gives: methods that say what the library has."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean indexing, shapes that depend on data, the most dimensions.

        >>> Info().capabilities()["max dimensions"]
        16
        """
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": MOST_DIMENSIONS}

    def default_device(self) -> Device:
        """Where arrays are made if nothing is said."""
        return current_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The types of Python's numbers and of indices, the same on every device.

        Raises DeviceError for a device that is not there.
        """
        _check_availability(device)
        return {"real floating": float32, "complex floating": complex64, "integral": int64, "indexing": int64}

    def devices(self) -> list[Device]:
        """Devices on which arrays can be made: cpu:0, the GPUs of the driver, and the current device.

        There are more cpu devices, by number; all are one processor.

        >>> Info().devices()[0]
        cpu:0
        """
        gpus = [Device("gpu", index) for index in range(devices.device.count("gpu"))]
        return list(dict.fromkeys([Device("cpu", 0), *gpus, current_device()]))

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """Types of the standard by name, all or those of a kind (see isdtype). Every device has the same ones.

        Raises DeviceError for a device that is not there.

        >>> list(Info().dtypes(kind=("bool", "signed integer")))
        ['bool', 'int8', 'int16', 'int32', 'int64']
        """
        _check_availability(device)
        listed = {t.name: t for t in DTYPES if t.name not in ("float16", "bfloat16")}
        return listed if kind is None else {name: t for name, t in listed.items() if isdtype(t, kind)}


def __array_namespace_info__() -> Info:
    """What this library has of the standard, by methods; see Info.

    >>> import weft as wf
    >>> wf.__array_namespace_info__().default_dtypes()["integral"]
    int64
    """
    return Info()
