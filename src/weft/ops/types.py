"""Types of values: shape, element type, device, as known before the value is computed. Sizes may be symbols.

>>> from weft.ops.types import TensorType
>>> from weft.base.dtype import float32
>>> TensorType((2, 3), float32)
f32[2,3]@cpu:0
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.base.device import Device, cpu
from weft.base.dtype import DType, as_dtype, bool_, complex128, float32, float64
from weft.base.errors import ShapeError
from weft.base.exact import exact
from weft.base.typing import Any, ClassVar
from weft.ops.shapes import Partial, shown
from weft.ops.sizes import Size

__all__ = ["STORAGES", "PartialType", "TensorType", "broadcast_shapes", "normalize_axes", "promote"]


STORAGES = ("dense", "row_sparse", "csr")


class TensorType:
    """Shape (ints, or Sizes where a plan holds for many), dtype, device, storage. Equal by value; immutable.

    weak: it stands for a Python number, which takes the type of the arrays it meets. storage: how elements are kept,
    a word of STORAGES. "dense": one for each position. Of "row_sparse" (indices of rows and the rows) and "csr"
    (compressed rows) an array is made of dense ones; an operator takes them if its `storages` lists them.
    """

    __slots__ = ("device", "dtype", "shape", "storage", "weak")

    shape: tuple[int | Size, ...]
    dtype: DType
    device: Device
    weak: bool
    storage: str

    def __init__(
        self,
        shape: Sequence[int | Size],
        dtype: DType,
        device: Device | None = None,
        weak: bool = False,
        storage: str = "dense",
    ) -> None:
        if storage != "dense" and storage not in STORAGES:
            raise ValueError(f"storage must be one of {', '.join(STORAGES)}, got {storage!r}")
        self.storage = storage
        self.shape = tuple(shape)
        self.dtype = dtype
        self.device = device or cpu(0)
        self.weak = weak

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int | Size:
        return math.prod(self.shape, start=1)

    def like(
        self,
        shape: Sequence[int | Size] | None = None,
        dtype: DType | None = None,
        storage: str | None = None,
    ) -> TensorType:
        """The same type but for what is given; never weak.

        >>> TensorType((2,), float32).like(dtype=bool_)
        bool[2]@cpu:0
        >>> TensorType((2, 3), float32).like(storage="csr")
        f32[2,3]csr@cpu:0
        """
        return TensorType(
            self.shape if shape is None else shape,
            dtype or self.dtype,
            self.device,
            False,
            storage or self.storage,
        )

    def on(self, device: Device) -> TensorType:
        """The same type on a device.

        >>> TensorType((2,), float32).on(Device("cpu", 1))
        f32[2]@cpu:1
        """
        return (
            self
            if self.device is device
            else TensorType(self.shape, self.dtype, device, self.weak, self.storage)
        )

    @property
    def __weft_key__(self) -> tuple[Any, ...]:
        """For weft.base.exact: the same for types whose Sizes are the same objects."""
        return (
            *[n if type(n) is int else exact(n) for n in self.shape],
            self.dtype,
            self.device,
            self.weak,
            self.storage,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorType) and (
            (self.shape, self.dtype, self.device, self.weak, self.storage)
            == (other.shape, other.dtype, other.device, other.weak, other.storage)
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype, self.device, self.weak, self.storage))

    def __repr__(self) -> str:
        storage = "" if self.storage == "dense" else self.storage
        return f"{self.dtype.short}[{','.join(map(str, self.shape))}]{storage}@{self.device}"


class PartialType:
    """A type of which only a part is known, as that of a symbol's values: shape and dtype may be None, sizes too.

    >>> PartialType((2, None), None)
    ?[2,?]
    """

    __slots__ = ("dtype", "shape")

    weak: ClassVar[bool] = False
    storage: ClassVar[str] = "dense"

    def __init__(self, shape: Partial, dtype: DType | None) -> None:
        self.shape, self.dtype = shape, dtype

    def __repr__(self) -> str:
        return f"{'?' if self.dtype is None else self.dtype.short}{shown(self.shape)}"


def device_of(*types: TensorType) -> Device:
    """The device that operands are on: that of the first that is not a Python number.

    >>> device_of(TensorType((), float32, weak=True), TensorType((2,), float32))
    cpu:0
    """
    return next((t.device for t in types if not t.weak), types[0].device)


def promote(*types: TensorType) -> DType:
    """The type that operands meet in: the array API's table, and beyond it integers with floats give the float.

    Weak operands (Python numbers) take the others' type, if that is of their kind or a wider one: bool, int, float,
    complex. float64 and complex64 meet in complex128.
    A float beside integers gives float32. bfloat16 and float16 meet in float32; uint64 and a signed integer in float32.

    >>> promote(TensorType((), float32), TensorType((2,), bool_))
    float32
    """
    strong = [t.dtype for t in types if not t.weak]
    if not strong:
        return max((t.dtype for t in types), key=lambda d: ("bool", "int", "float", "complex").index(d.kind))
    result = strong[0]
    for other in strong[1:]:
        result = _meet(result, other)
    for t in types:
        if t.weak and _RANK[t.dtype.kind] > _RANK[result.kind]:
            result = _meet(result, t.dtype) if t.dtype.is_complex else t.dtype
    return result


_RANK = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}


def _meet(a: DType, b: DType) -> DType:
    if a is b or b is bool_:
        return a
    if a is bool_:
        return b
    if a.kind == b.kind:
        if a.bits == b.bits:  # float16 and bfloat16: neither holds the other's numbers
            return a.accumulation
        return a if a.bits > b.bits else b
    if a.is_complex or b.is_complex:
        numbers, other = (a, b) if a.is_complex else (b, a)
        return complex128 if other is float64 else numbers
    if a.is_floating or b.is_floating:
        return a if a.is_floating else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    return as_dtype(f"int{unsigned.bits * 2}") if unsigned.bits < 64 else float32


def broadcast_shapes(name: str, operands: dict[str, TensorType]) -> tuple[int | Size, ...]:
    """The shape that operands are repeated to, aligned at the right. Raises ShapeError if two sizes differ.

    >>> broadcast_shapes("add", {"a": TensorType((2, 1), float32), "b": TensorType((3,), float32)})
    (2, 3)
    """
    shapes = [t.shape for t in operands.values()]
    if all(len(shape) == len(shapes[0]) and shape == shapes[0] for shape in shapes[1:]):
        return shapes[0]
    rank = max(map(len, shapes))
    result: list[int | Size] = []
    for d in range(-rank, 0):
        size: int | Size = 1
        for shape in shapes:
            if -d > len(shape) or is_one(shape[d]):
                continue
            if is_one(size):
                size = shape[d]
            elif size != shape[d]:
                listed = ", ".join(f"{key} is {t}" for key, t in operands.items())
                raise ShapeError(f"{name}: sizes {size} and {shape[d]} in dimension {d} do not fit: {listed}")
        result.append(size)
    return tuple(result)


def is_one(size: int | Size) -> bool:
    """Whether a size is known to be 1. One that is not, and comes to 1, makes the same of the others that are."""
    return isinstance(size, int) and size == 1


def normalize_axes(name: str, axis: Any, ndim: int) -> tuple[int, ...]:
    """Axes as sorted numbers from 0: of None all, of an int or several ints those.

    Raises IndexError (array API) for one that is not there, ValueError for one named twice.

    >>> normalize_axes("sum", -1, 3), normalize_axes("sum", None, 2)
    ((2,), (0, 1))
    """
    if axis is None:
        return tuple(range(ndim))
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    for a in axes:
        if not -ndim <= a < ndim:
            raise IndexError(f"{name}: axis {a} is out of range for {ndim} dimensions")
    result = tuple(sorted([a % ndim for a in axes]))
    if len(set(result)) != len(result):
        raise ValueError(f"{name}: an axis is named twice in {axis}")
    return result
