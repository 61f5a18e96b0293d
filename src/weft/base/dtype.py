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
    """One element type: name, itemsize in bytes, kind ("bool", "int", "uint" or "float"). One object for each.

    It equals its name and the NumPy type of that name, ``x.dtype == "float32"``.

    >>> as_dtype("int8")
    int8
    >>> as_dtype("int8") == "int8", as_dtype("int8") == "uint8"
    (True, False)
    """

    __slots__ = ("code", "itemsize", "kind", "name")

    name: str
    itemsize: int
    kind: str
    code: int  # the native core's number of it

    def __init__(self, name: str, itemsize: int, kind: str, code: int) -> None:
        for field, value in (("name", name), ("itemsize", itemsize), ("kind", kind), ("code", code)):
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


# In the order of the native core's enumeration (native/tensor/dtype.h).
DTYPES: tuple[DType, ...] = tuple(
    DType(name, itemsize, kind, code)
    for code, (name, itemsize, kind) in enumerate(
        [
            ("bool", 1, "bool"),
            ("int8", 1, "int"),
            ("int16", 2, "int"),
            ("int32", 4, "int"),
            ("int64", 8, "int"),
            ("uint8", 1, "uint"),
            ("uint16", 2, "uint"),
            ("uint32", 4, "uint"),
            ("uint64", 8, "uint"),
            ("float16", 2, "float"),
            ("bfloat16", 2, "float"),
            ("float32", 4, "float"),
            ("float64", 8, "float"),
        ]
    )
)
(
    bool_,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
    float16,
    bfloat16,
    float32,
    float64,
) = DTYPES

_BY_NAME = {dtype.name: dtype for dtype in DTYPES}
_BY_PYTHON_TYPE: dict[object, DType] = {bool: bool_, int: int64, float: float32}


def as_dtype(value: Any) -> DType:
    """The DType that value means: a DType, its name, a NumPy dtype or scalar type, or Python's bool, int, float.

    Python's float means float32 and int means int64, as everywhere in weft.
    Raises DTypeError for anything else, and for types of NumPy that weft does not have.

    >>> as_dtype(float), as_dtype("uint8")
    (float32, uint8)
    >>> as_dtype("float8")
    Traceback (most recent call last):
        ...
    weft.base.errors.DTypeError: dtype: cannot read 'float8'; accepted are bool, int8, int16, int32, int64, uint8, \
uint16, uint32, uint64, float16, bfloat16, float32, float64, NumPy's types of these names, and Python's bool, int, float
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, str):
        found = _BY_NAME.get(value)
    elif isinstance(value, type) and value in _BY_PYTHON_TYPE:
        found = _BY_PYTHON_TYPE[value]
    else:
        found = _from_numpy(value)
    if found is None:
        raise DTypeError(
            f"dtype: cannot read {value!r}; accepted are {', '.join(_BY_NAME)}, NumPy's types of these names, "
            "and Python's bool, int, float"
        )
    return found


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
