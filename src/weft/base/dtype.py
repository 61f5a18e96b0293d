"""Element types: ``float32``, ``bfloat16``, ``int64``, ... and what else is read as one.

>>> from weft.base.dtype import as_dtype, float32
>>> as_dtype("float32") is float32, float32.itemsize, float32.kind
(True, 4, 'float')
"""

from __future__ import annotations

import sys

from weft.base.errors import DTypeError
from weft.base.typing import Any

__all__ = [
    "DTYPES",
    "DType",
    "as_dtype",
    "bfloat16",
    "bool_",
    "complex64",
    "complex128",
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]


class DType:
    """One element type: its name, its size, its kind and what arithmetic may assume of it. One object for each.

    It equals its name and the NumPy type of that name, ``x.dtype == "float32"``.

    name, short: "float32", "f32". kind: "bool", "int", "uint", "float" or "complex". bits, itemsize: its size in
    memory, in bits and in bytes. digits: significant binary digits of a number, without the sign, of each part of a
    complex one. max_exponent: of the largest number of a floating-point type, as a power of two; 0 for others.
    accumulation: the type that sums and other reductions are computed in. is_floating: a real floating-point type.
    is_complex: a complex one. is_inexact: one of both. is_integer: with or without a sign; bool is not an integer type.
    is_differentiable: values have gradients.

    >>> as_dtype("int8")
    int8
    >>> as_dtype("int8") == "int8", as_dtype("int8") == "uint8"
    (True, False)
    >>> half = as_dtype("bfloat16")
    >>> half.bits, half.digits, half.accumulation, half.is_floating, half.is_integer
    (16, 8, float32, True, False)
    """

    name: str
    short: str
    kind: str
    bits: int
    itemsize: int
    digits: int
    max_exponent: int
    _accumulation: str
    format: str  # the buffer protocol's; "" where it has none
    code: int  # the native core's number of it
    is_floating: bool
    is_complex: bool
    is_inexact: bool
    is_integer: bool
    is_differentiable: bool

    __slots__ = tuple(__annotations__)

    def __init__(
        self,
        code: int,
        name: str,
        short: str,
        kind: str,
        bits: int,
        digits: int,
        max_exponent: int,
        accumulation: str,
        format: str,
    ) -> None:
        is_inexact = kind in ("float", "complex")
        fields = {
            "code": code,
            "name": name,
            "short": short,
            "kind": kind,
            "bits": bits,
            "itemsize": bits // 8,
            "digits": digits,
            "max_exponent": max_exponent,
            "_accumulation": accumulation,
            "format": format,
            "is_floating": kind == "float",
            "is_complex": kind == "complex",
            "is_inexact": is_inexact,
            "is_integer": kind in ("int", "uint"),
            "is_differentiable": is_inexact,
        }
        for field, value in fields.items():
            object.__setattr__(self, field, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{self!r} is immutable: cannot set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{self!r} is immutable: cannot delete {name}")

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, DType):
            return False
        if isinstance(other, str):
            return other == self.name
        try:
            return as_dtype(other) is self
        except DTypeError:
            return False

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return as_dtype, (self.name,)

    def __copy__(self) -> DType:
        return self

    def __deepcopy__(self, memo: object) -> DType:
        return self

    def __repr__(self) -> str:
        return self.name

    @property
    def accumulation(self) -> DType:
        """The type that sums and other reductions of it are computed in.

        >>> as_dtype("float16").accumulation, as_dtype("bool").accumulation, as_dtype("int8").accumulation
        (float32, int64, int8)
        """
        return _BY_NAME[self._accumulation]

    @property
    def real(self) -> DType:
        """The type of a complex number's parts; of any other type itself.

        >>> as_dtype("complex64").real, as_dtype("int8").real
        (float32, int8)
        """
        return _BY_NAME[f"float{self.bits // 2}"] if self.is_complex else self

    @property
    def numpy(self) -> Any:
        """The same type as a numpy.dtype; for bfloat16 that of the package ml_dtypes.

        >>> as_dtype("float16").numpy
        dtype('float16')
        """
        import numpy as np

        if self.name == "bfloat16":
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
        return np.dtype(self.name)


# The one table of element types; the row number is the native core's. native/tensor/dtype_table.h is written from
# it (native/tensor/make_dtypes.py, by ./dev stub), and new types come last.
#   name, short name, kind, bits, digits, largest exponent, accumulation, format of the buffer protocol
DTYPES: tuple[DType, ...] = tuple(
    DType(code, *row)
    for code, row in enumerate(
        (
            ("bool", "bool", "bool", 8, 1, 0, "int64", "?"),
            ("int8", "i8", "int", 8, 7, 0, "int8", "b"),
            ("int16", "i16", "int", 16, 15, 0, "int16", "h"),
            ("int32", "i32", "int", 32, 31, 0, "int32", "i"),
            ("int64", "i64", "int", 64, 63, 0, "int64", "q"),
            ("uint8", "u8", "uint", 8, 8, 0, "uint8", "B"),
            ("uint16", "u16", "uint", 16, 16, 0, "uint16", "H"),
            ("uint32", "u32", "uint", 32, 32, 0, "uint32", "I"),
            ("uint64", "u64", "uint", 64, 64, 0, "uint64", "Q"),
            ("float16", "f16", "float", 16, 11, 15, "float32", "e"),
            ("bfloat16", "bf16", "float", 16, 8, 127, "float32", ""),
            ("float32", "f32", "float", 32, 24, 127, "float32", "f"),
            ("float64", "f64", "float", 64, 53, 1023, "float64", "d"),
            ("complex64", "c64", "complex", 64, 24, 127, "complex64", "Zf"),
            ("complex128", "c128", "complex", 128, 53, 1023, "complex128", "Zd"),
        )
    )
)
bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64 = DTYPES[:9]
float16, bfloat16, float32, float64, complex64, complex128 = DTYPES[9:]

_BY_NAME = {dtype.name: dtype for dtype in DTYPES}
_BY_PYTHON_TYPE: dict[object, DType] = {bool: bool_, int: int64, float: float32, complex: complex64}


def as_dtype(value: Any) -> DType:
    """The DType that value means: a DType, its name, a NumPy dtype or scalar type, or a type of Python's numbers.

    Python's float means float32, complex complex64 and int int64, as everywhere in weft.
    Raises DTypeError for anything else, and for types of NumPy that weft does not have.

    >>> as_dtype(float), as_dtype("uint8")
    (float32, uint8)
    >>> as_dtype("float8")
    Traceback (most recent call last):
        ...
    weft.base.errors.DTypeError: dtype: cannot read 'float8'; accepted are bool, int8, int16, int32, int64, uint8, \
uint16, uint32, uint64, float16, bfloat16, float32, float64, complex64, complex128, NumPy's types of these names, \
and Python's bool, int, float, complex
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, str):
        dtype = _BY_NAME.get(value)
    elif isinstance(value, type) and value in _BY_PYTHON_TYPE:
        dtype = _BY_PYTHON_TYPE[value]
    else:
        dtype = _from_numpy(value)
    if dtype is None:
        raise DTypeError(
            f"dtype: cannot read {value!r}; accepted are {', '.join(_BY_NAME)}, NumPy's types of these names, "
            "and Python's bool, int, float, complex"
        )
    return dtype


def _from_numpy(value: Any) -> DType | None:
    numpy: Any = sys.modules.get("numpy")
    # No value is a type of NumPy before NumPy is imported, nor while another thread imports it.
    if value is None or not hasattr(numpy, "generic") or not hasattr(numpy, "dtype"):
        return None
    if not isinstance(value, numpy.dtype) and not (
        isinstance(value, type) and issubclass(value, numpy.generic)
    ):
        return None
    try:
        return _BY_NAME.get(numpy.dtype(value).name)
    except TypeError:
        return None
