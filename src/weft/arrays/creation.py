"""Functions that create tensors: from data of Python and other libraries, and filled or regular ones.

>>> import weft as wf
>>> wf.tensor([[1., 2.]])
tensor([[1., 2.]], dtype=float32, device=cpu:0)
"""

from __future__ import annotations

import math
import operator
import sys

from weft import _core
from weft.arrays.tensor import Tensor
from weft.base.device import Device, as_device, cpu
from weft.base.dtype import DType, as_dtype, bool_, complex64
from weft.base.errors import DTypeError, ShapeError, names_keywords
from weft.base.typing import Any
from weft.ops.sizes import NeedsSizes, Size

__all__ = [
    "arange",
    "asarray",
    "empty",
    "empty_like",
    "eye",
    "from_dlpack",
    "full",
    "full_like",
    "linspace",
    "ones",
    "ones_like",
    "tensor",
    "zeros",
    "zeros_like",
]

DTypeLike = DType | str | Any
DeviceLike = Device | str | None

TYPE_CHECKING = False  # type checkers take it as true; typing itself takes long to import
if TYPE_CHECKING:

    def empty(shape: Any, dtype: DTypeLike | None = None, device: DeviceLike = None) -> Tensor: ...
    def zeros(shape: Any, dtype: DTypeLike | None = None, device: DeviceLike = None) -> Tensor: ...
    def ones(shape: Any, dtype: DTypeLike | None = None, device: DeviceLike = None) -> Tensor: ...
    def full(
        shape: Any, fill_value: Any, dtype: DTypeLike | None = None, device: DeviceLike = None
    ) -> Tensor: ...

else:
    empty, zeros, ones, full = _core.empty, _core.zeros, _core.ones, _core.full


def of_sizes(shape: Any, value: Any, dtype: DTypeLike, device: DeviceLike) -> Any:
    """What zeros, ones, full and empty give for a shape of dynamic sizes: a value of the graph that is written."""
    from weft.ops.families.creation import Full  # seldom needed, and not cheap
    from weft.ops.node import created

    sizes = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    number = value.settle() if hasattr(value, "settle") else value
    element_type = as_dtype(float if dtype is None else dtype)
    attributes = {"shape": sizes, "value": number, "dtype": element_type, "device": as_device(device)}
    return created(Full, attributes)


@names_keywords
def tensor(data: Any, dtype: DTypeLike | None = None, device: DeviceLike = None) -> Tensor:
    """A new tensor with a copy of data: numbers, nested lists of them, a Tensor, or another library's array.

    dtype None: float32 for Python's floats, int64 for ints, bool for bools; arrays keep theirs.
    Raises ShapeError for lists of uneven lengths, OverflowError for integers that dtype cannot hold, TypeError and
    DTypeError for what is not numbers.

    >>> tensor([[1, 2], [3, 4]]).dtype, tensor(2.5).shape
    (int64, ())
    """
    return asarray(data, dtype, device, copy=True)


def asarray(
    obj: Any, dtype: DTypeLike | None = None, device: DeviceLike = None, *, copy: bool | None = None
) -> Tensor:
    """obj as a Tensor: itself if it is one that fits, a view of the memory of another library's array, else a copy.

    copy: None copies where it must, True always, False never (ValueError if it must). See tensor() for dtype.
    Raises what tensor() does.

    >>> import numpy as np
    >>> a = np.zeros(2)
    >>> x = asarray(a)
    >>> a[0] = 5
    >>> x
    tensor([5., 0.], dtype=float64, device=cpu:0)
    """
    element_type = None if dtype is None else as_dtype(dtype)
    if (found := _of_values(obj, element_type, device, copy)) is not None:
        return found
    if isinstance(obj, Tensor):
        target = obj.device if device is None else as_device(device)
        return _converted(obj, element_type, target, copy)
    target = as_device(device)
    if isinstance(obj, Size):
        raise NeedsSizes(f"an array of {obj}")
    is_array = hasattr(obj, "__array__") and not _is_traced_float(obj)
    tensor = None if is_array else _core.from_nested(obj, element_type, target)
    if tensor is not None:
        if copy is False:
            raise ValueError("asarray: copy=False, but Python numbers and lists have to be copied")
        return tensor
    shared = _shared(obj, host_of(target))
    if shared is not None:
        if device is None and _core.hides_memory(shared.device):
            target = shared.device
        converted: Tensor = _core.below_layers(_converted, shared, element_type, target, copy)
        return converted
    if copy is False:
        raise ValueError(f"asarray: copy=False, but {type(obj).__name__} has no memory that can be shared")
    return _through_numpy(obj, element_type, target)


def _of_values(obj: Any, dtype: DType | None, device: DeviceLike, copy: bool | None) -> Any:
    """The array of a Value, or of nested lists with one in them, in a function that is recorded; else None."""
    if _core.capture() is None:
        return None
    if hasattr(obj, "__weft_apply__"):
        x = obj if dtype is None or dtype is obj.dtype else obj.astype(dtype)
        x = x if device is None else x.to_device(device)
        return x.copy() if copy and x is obj else x
    if not isinstance(obj, list | tuple) or not _holds_values(obj):
        return None
    if copy is False:
        raise ValueError("asarray: copy=False, but Python numbers and lists have to be copied")
    from weft.ops import functions as F

    items = [asarray(item, device=device) for item in obj]
    stacked = F.stack(items, axis=0)
    return stacked if dtype is None else asarray(stacked, dtype)


def _holds_values(obj: Any) -> bool:
    if isinstance(obj, list | tuple):
        return any(map(_holds_values, obj))
    return hasattr(obj, "__weft_apply__")


def _is_traced_float(x: object) -> bool:
    from weft.arrays.traced_float import TracedFloat  # first arrays need none of it

    return type(x) is TracedFloat


def _converted(x: Tensor, dtype: DType | None, device: Device, copy: bool | None) -> Tensor:
    dtype = dtype or x.dtype
    if dtype is x.dtype and device is x.device:
        return x.copy() if copy else x
    _check_parts(x.dtype, dtype)
    if copy is False:
        raise ValueError(f"asarray: copy=False, but {x.dtype}@{x.device} has to become {dtype}@{device}")
    return _core.copy_of(x, dtype, device)


def host_of(device: Device) -> Device:
    """The device, or cpu:0 where the host's memory cannot be an array on it."""
    return cpu(0) if _core.hides_memory(device) else device


def _shared(obj: Any, device: Device) -> Tensor | None:
    """A view of obj's memory, or None if it has none that a Tensor can describe; on a device if it is the host's."""
    numpy: Any = sys.modules.get("numpy")
    # While another thread imports NumPy, its module is there without these; then obj is none of them.
    if (
        hasattr(numpy, "generic")
        and hasattr(numpy, "ndarray")
        and isinstance(obj, (numpy.ndarray, numpy.generic))
    ):
        if obj.dtype.name == "bfloat16":
            return _bfloat16_view(obj, device)
        as_dtype(obj.dtype)  # the better error
        if isinstance(obj, numpy.generic) or not obj.dtype.isnative:
            return None
    elif hasattr(obj, "__dlpack__"):
        return _lent(obj, device)
    try:
        return _core.from_buffer(obj, device)
    except (TypeError, BufferError):
        return None


def _bfloat16_view(array: Any, device: Device) -> Tensor | None:
    # Arrays of ml_dtypes' types offer neither buffers nor DLPack.
    if not array.ndim:
        return None
    words = _core.from_buffer(array.view("uint16"), device)
    return _core.view_as(words, "bfloat16")


def _through_numpy(obj: Any, dtype: DType | None, device: Device) -> Tensor:
    import numpy as np

    try:
        array = np.array(obj)
    except ValueError as error:
        raise DTypeError(f"tensor: cannot read {type(obj).__name__}: {error}") from error
    if array.dtype == object or (array.dtype.kind in "USV" and array.dtype.name != "bfloat16"):
        raise DTypeError(f"tensor: expected numbers, got {type(obj).__name__} of {array.dtype}")
    if dtype is None and not isinstance(obj, (np.generic, np.ndarray)):
        dtype = _python_type(obj, array.dtype.kind)
    kind = as_dtype(array.dtype)
    _check_parts(kind, dtype)
    host = host_of(device)
    contiguous = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")).reshape(array.shape)
    if kind.name == "bfloat16":
        x = _core.view_as(_core.from_buffer(contiguous.view("uint16"), host), "bfloat16")
    else:
        x = _core.from_buffer(contiguous, host)
    return _core.copy_of(x, dtype or kind, device)


def _check_parts(kind: DType, dtype: DType | None) -> None:
    """Raise DTypeError where imaginary parts would be lost."""
    if kind.is_complex and dtype is not None and not dtype.is_complex and dtype is not bool_:
        raise DTypeError(
            f"asarray: {dtype} has no imaginary parts, got {kind}\n  hint: weft.real(x) takes the real ones"
        )


def _python_type(obj: Any, kind: str) -> DType | None:
    """What Python's numbers in nested sequences mean; of complex ones complex64, if there are none of NumPy."""
    if kind == "c":
        return complex64 if _all_python(obj) else None
    while isinstance(obj, (list, tuple)) and obj:
        obj = obj[0]
    return as_dtype(float) if type(obj) is float else None


def _all_python(obj: Any) -> bool:
    if isinstance(obj, (list, tuple)):
        return all(map(_all_python, obj))
    return type(obj) in (bool, int, float, complex)


def from_dlpack(x: Any, /, *, device: DeviceLike = None, copy: bool | None = None) -> Tensor:
    """A Tensor over the memory of an object with ``__dlpack__``; copy: as in asarray.

    While the other library's array lives, operations on this memory finish before the call that pushes them returns.
    An array on a GPU stays there, unless a device is given. Raises DeviceError if it is on a device of another kind,
    DTypeError if weft lacks its type, BufferError if it refuses.

    >>> import numpy as np
    >>> from_dlpack(np.arange(3))
    tensor([0, 1, 2], dtype=int64, device=cpu:0)
    """
    target = as_device(device)
    if isinstance(x, Tensor):
        return _converted(x, None, target, copy)
    if not hasattr(x, "__dlpack__"):
        raise TypeError(f"from_dlpack: {type(x).__name__} has no __dlpack__")
    tensor = _lent(x, host_of(target))
    if device is not None and tensor.device is not target:
        return _converted(tensor, None, target, copy)
    return _core.below_layers(tensor.copy) if copy else tensor


def _lent(x: Any, host: Device) -> Tensor:
    """A Tensor over memory that is lent by DLPack; host: the device that memory of the host is on."""
    where = getattr(x, "__dlpack_device__", lambda: (1, 0))()
    stream = _core.dlpack_stream(*map(int, where))
    ready_for = {} if stream is None else {"stream": stream}
    try:
        capsule = x.__dlpack__(max_version=(1, 1), **ready_for)
    except TypeError:  # written before version 1.0
        capsule = x.__dlpack__(**ready_for)
    tensor: Tensor = _core.from_dlpack_capsule(capsule, host)
    return tensor


@names_keywords
def empty_like(x: Tensor, dtype: DTypeLike | None = None, device: DeviceLike = None) -> Tensor:
    """A new tensor of undefined elements with x's shape, and its dtype and device unless given.

    >>> empty_like(zeros((2, 3))).shape
    (2, 3)
    """
    return empty(x.shape, dtype or x.dtype, device or x.device)


@names_keywords
def zeros_like(x: Tensor, dtype: DTypeLike | None = None, device: DeviceLike = None) -> Tensor:
    """Zeros with x's shape, and its dtype and device unless given.

    >>> zeros_like(ones(2))
    tensor([0., 0.], dtype=float32, device=cpu:0)
    """
    return zeros(x.shape, dtype or x.dtype, device or x.device)


@names_keywords
def ones_like(x: Tensor, dtype: DTypeLike | None = None, device: DeviceLike = None) -> Tensor:
    """Ones with x's shape, and its dtype and device unless given.

    >>> ones_like(zeros(2), dtype="int8")
    tensor([1, 1], dtype=int8, device=cpu:0)
    """
    return ones(x.shape, dtype or x.dtype, device or x.device)


@names_keywords
def full_like(
    x: Tensor, fill_value: Any, dtype: DTypeLike | None = None, device: DeviceLike = None
) -> Tensor:
    """fill_value everywhere, with x's shape, and its dtype and device unless given.

    >>> full_like(zeros(2), 3)
    tensor([3., 3.], dtype=float32, device=cpu:0)
    """
    return full(x.shape, fill_value, dtype or x.dtype, device or x.device)


@names_keywords
def arange(
    start: float,
    stop: float | None = None,
    step: float = 1,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
) -> Tensor:
    """start, start + step, ... below stop (above it for a negative step); arange(n) counts from 0.

    dtype None: int64 if all are ints, else float32. Each element is start + i * step, computed in int64 or float64.
    Raises ValueError if step is 0 or a bound is not finite.

    >>> arange(3), arange(1, 0, -0.5)
    (tensor([0, 1, 2], dtype=int64, device=cpu:0), tensor([1. , 0.5], dtype=float32, device=cpu:0))
    """
    if stop is None:
        start, stop = 0, start
    if any(isinstance(n, Size) for n in (start, stop, step)):
        return _arange_of_sizes(start, stop, step, dtype, device)
    start, stop, step = (
        _number("arange", name, value) for name, value in (("start", start), ("stop", stop), ("step", step))
    )
    if step == 0:
        raise ValueError("arange: step must not be 0")
    if not all(map(math.isfinite, (start, stop, step))):
        raise ValueError(f"arange: start, stop and step must be finite, got {start}, {stop}, {step}")
    integers = all(isinstance(value, int) for value in (start, stop, step))
    count = int(max(0, -((start - stop) // step) if integers else math.ceil((stop - start) / step)))
    if integers and count and not all(-(2**63) <= end < 2**63 for end in (start, start + (count - 1) * step)):
        raise OverflowError(f"arange: {start} to {stop} in steps of {step} does not fit int64")
    if count >= 2**63:
        raise ShapeError(f"arange: {count} elements are more than memory can hold")
    if dtype is None:
        dtype = as_dtype(int if integers else float)
    return _core.stepped(count, start if count else 0, step if count > 1 else 1, dtype, device)


def _arange_of_sizes(start: Any, stop: Any, step: Any, dtype: DTypeLike, device: DeviceLike) -> Any:
    """What arange gives where ends are dynamic sizes: a value of the graph that is written."""
    from weft.ops.families.creation import Stepped
    from weft.ops.node import created

    if not all(isinstance(n, int | Size) for n in (start, stop, step)):
        raise NeedsSizes(f"arange from {start} to {stop} in steps of {step}")
    if step == 0:
        raise ValueError("arange: step must not be 0")
    count = -((start - stop) // step)
    element_type = as_dtype(int if dtype is None else dtype)
    is_exact = isinstance(start, int) and isinstance(step, int)
    x = created(
        Stepped,
        {
            "shape": (count if count > 0 else 0,),
            "start": start if is_exact else 0,
            "step": step if isinstance(step, int) else 1,
            "dtype": element_type if is_exact else as_dtype(int),
            "device": as_device(device),
        },
    )
    return x if is_exact else (x * (1 if isinstance(step, int) else step) + start).astype(element_type)


def _number(function: str, name: str, value: Any) -> int | float:
    if isinstance(value, str | bytes) or not (hasattr(value, "__index__") or hasattr(value, "__float__")):
        raise TypeError(f"{function}: {name} must be a number, got {value!r}")
    return operator.index(value) if hasattr(value, "__index__") else float(value)


@names_keywords
def linspace(
    start: float,
    stop: float,
    num: int,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    *,
    endpoint: bool = True,
) -> Tensor:
    """num numbers from start to stop in equal steps, stop itself included if endpoint.

    dtype None: float32. Computed in float64. Raises ValueError if num is negative, DTypeError if dtype is not a float.

    >>> linspace(0, 1, 5)
    tensor([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32, device=cpu:0)
    """
    if num < 0:
        raise ValueError(f"linspace: num must be at least 0, got {num}")
    dtype = as_dtype(float if dtype is None else dtype)
    if not dtype.is_floating:
        raise DTypeError(f"linspace: dtype must be a float, got {dtype}")
    parts = num - 1 if endpoint else num
    step = (stop - start) / parts if parts > 0 else 0.0
    x = _core.stepped(num, float(start), float(step), dtype, device)
    if endpoint and num > 1:
        x[-1] = stop  # exactly, whatever the steps were rounded to
    return x


@names_keywords
def eye(
    n_rows: int,
    n_cols: int | None = None,
    *,
    k: int = 0,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
) -> Tensor:
    """Ones on the diagonal, zeros elsewhere; k > 0 shifts the diagonal up, k < 0 down.

    >>> eye(2, 3, k=1, dtype="int8")
    tensor([[0, 1, 0],
            [0, 0, 1]], dtype=int8, device=cpu:0)
    """
    n_cols = n_rows if n_cols is None else n_cols
    if any(isinstance(n, Size) for n in (n_rows, n_cols)):
        rows, columns = arange(n_rows, device=device), arange(n_cols, device=device)
        return (rows[:, None] + k == columns).astype(as_dtype(float if dtype is None else dtype))
    x = zeros((n_rows, n_cols), dtype, device)
    diagonal = _core.diagonal(x, k)
    if diagonal.size:
        diagonal[...] = 1
    return x
