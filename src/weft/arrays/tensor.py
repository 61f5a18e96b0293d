"""Methods of Tensor that are written in Python, and functions of the same meaning.

>>> import weft as wf
>>> x = wf.tensor([[1, 2, 3], [4, 5, 6]])
>>> x.T[1:]
tensor([[2, 5],
        [3, 6]], dtype=int64, device=cpu:0)
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator, Sequence

from weft import _core
from weft import storage as storage  # sets up the memory of tensors
from weft.base.device import Device, as_device
from weft.base.dtype import DType, as_dtype
from weft.base.errors import DTypeError, ShapeError
from weft.base.name_hints import add_name_hints, visible_names
from weft.base.typing import Any
from weft.engine import default_engine

__all__ = ["Tensor", "element_strides", "keep_gradient", "note_foreign_gradient", "shares_memory", "waitall"]

API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")  # of the array API standard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from weft.ops.array_methods import Methods

    class Tensor(Methods["Tensor"]):
        """What type checkers see; the native type (native/bindings/tensor.cpp) and _METHODS below are what runs."""

        shape: tuple[int, ...]
        strides: tuple[int, ...]
        dtype: DType
        device: Device
        ndim: int
        size: int
        itemsize: int
        nbytes: int
        version: int
        T: Tensor
        mT: Tensor
        grad: Tensor | Any  # also None, or an array of weft.sparse; Any, since most code knows which
        requires_grad: bool

        def detach(self) -> Tensor: ...

        def item(self) -> bool | int | float: ...
        def numpy(self) -> Any: ...
        def wait(self) -> None: ...
        def reshape(self, *shape: int | Sequence[int]) -> Tensor: ...
        def copy(self) -> Tensor: ...
        def contiguous(self) -> Tensor: ...
        def astype(self, dtype: DType | str | Any, *, copy: bool = True) -> Tensor: ...
        def to_device(self, device: Device | str, *, stream: None = None) -> Tensor: ...
        def memory(self) -> memoryview: ...
        def tolist(self) -> Any: ...
        def __getitem__(self, key: Any) -> Tensor: ...
        def __setitem__(self, key: Any, value: Any) -> None: ...
        def __len__(self) -> int: ...
        def __iter__(self) -> Iterator[Tensor]: ...
        def __bool__(self) -> bool: ...
        def __int__(self) -> int: ...
        def __float__(self) -> float: ...
        def __index__(self) -> int: ...
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any: ...
        def __buffer__(self, flags: int) -> memoryview: ...
        def __dlpack__(
            self,
            *,
            stream: None = None,
            max_version: tuple[int, int] | None = None,
            dl_device: tuple[int, int] | None = None,
            copy: bool | None = None,
        ) -> Any: ...
        def __dlpack_device__(self) -> tuple[int, int]: ...
        def __array_namespace__(self, *, api_version: str | None = None) -> Any: ...

else:
    Tensor = _core.Tensor


def shares_memory(x: Tensor, y: Tensor) -> bool:
    """Whether writing an element of one may change the other; True if that is not known.

    Raises TypeError unless both are tensors.

    >>> import weft as wf
    >>> x = wf.zeros(4)
    >>> shares_memory(x, x[1:]), shares_memory(x[::2], x[1::2]), shares_memory(x, x.copy())
    (True, False, False)
    """
    capture = _core.capture()
    for z in (x, y):
        if not isinstance(z, Tensor) and (capture is None or not hasattr(z, "__weft_apply__")):
            raise TypeError(f"shares_memory: expected a Tensor, got {type(z).__name__}")
    if capture is not None:
        return bool(capture.share_memory(x, y))
    shared: bool = _core.shares_memory(x, y)
    return shared


def element_strides(x: Tensor) -> tuple[int, ...]:
    """The strides of a tensor in elements."""
    itemsize = x.itemsize
    return tuple([stride // itemsize for stride in x.strides])


def waitall() -> None:
    """Wait until all operations that have been pushed have finished.

    Raises EngineError for a failure since the last waitall() that was not cleared, EngineErrorGroup for several.

    >>> import weft as wf
    >>> x = wf.zeros(1000000)
    >>> wf.waitall()
    """
    observer = _core.get_recorder()
    if observer is not None:
        observer.awaited(None)
    default_engine().wait_for_all()


def _function(name: str) -> Any:
    from weft.ops import registry

    return registry.function(name)


_LARGE_BYTES = 1 << 20  # from here on compiled kernels, which transpose in tiles, are worth a plan


def _copy(self: Tensor) -> Tensor:
    """A copy in memory of its own, row-major.

    >>> import weft as wf
    >>> wf.tensor([1, 2])[::-1].copy()
    tensor([2, 1], dtype=int64, device=cpu:0)
    """
    if _core.by_operators(self) or (self.nbytes >= _LARGE_BYTES and not _core.is_contiguous(self)):
        copied: Tensor = _function("reshape")(self, self.shape, copy=True)
        return copied
    return _core.copy_of(self)


def _contiguous(self: Tensor) -> Tensor:
    """The tensor itself if its elements are contiguous in row-major order, else such a copy."""
    return self if _core.is_contiguous(self) else self.copy()


def _astype(self: Tensor, dtype: DType | str | Any, *, copy: bool = True) -> Tensor:
    """The elements as another type, converted as NumPy does; copy=False gives the tensor itself if it has it.

    Raises DTypeError for complex numbers as real ones: real(x) or abs(x) say which.

    >>> import weft as wf
    >>> wf.tensor([1.7, -1.7]).astype("int8")
    tensor([ 1, -1], dtype=int8, device=cpu:0)
    """
    dtype = as_dtype(dtype)
    if self.dtype.is_complex and not dtype.is_complex and dtype.name != "bool":
        raise DTypeError(
            f"astype: {dtype} has no imaginary parts: x is {_core.describe(self)}\n"
            "  hint: weft.real(x) takes the real ones"
        )
    if not copy and dtype is self.dtype:
        return self
    return _function("cast")(self, dtype=dtype) if _core.by_operators(self) else _core.copy_of(self, dtype)


def _to_device(self: Tensor, device: Device | str, *, stream: None = None) -> Tensor:
    """The tensor on a device: itself if it is there, else a copy, made on the device's copy queue.

    >>> import weft as wf
    >>> wf.ones(2).to_device("cpu:1").device
    cpu:1
    """
    if stream is not None:
        raise ValueError("to_device: a cpu has no streams; stream must be None")
    device = as_device(device)
    if device is self.device:
        return self
    moved: Tensor = _function("to_device")(self, device=device)
    return moved


def _printable(self: Tensor) -> Any:
    """The elements as NumPy can write them."""
    return (_core.copy_of(self, as_dtype("float32")) if self.dtype.name == "bfloat16" else self).numpy()


def _repr(self: Tensor) -> str:
    import numpy as np

    values = np.array2string(_printable(self), separator=", ", prefix="tensor(")
    if not self.size and self.ndim != 1:
        values += f", shape={self.shape}"
    return f"tensor({values}, dtype={self.dtype}, device={self.device})"


def _repr_html(self: Tensor) -> str:
    """What notebooks show: shape, dtype, device, and a table of the elements."""
    from weft.arrays.html import tensor_html

    return tensor_html(self, _printable(self))


def _format(self: Tensor, spec: str) -> str:
    return format(self.item(), spec) if self.ndim == 0 and spec else str(self)


class _Differentiated(threading.local):
    """How many functions that a thread has given to grad are running."""

    depth = 0


differentiated = _Differentiated()
_warned_lines: set[str] = set()


def elements_exported(x: Tensor) -> None:
    """NumPy, or another reader of buffers, gets the elements of an array that is recorded (native code says so).

    What it computes from them has no gradient. Warns, once for each line, of those that functions of grad export.
    """
    frame: Any = sys._getframe(1)
    if not differentiated.depth or _package(frame) == "weft":  # such as repr
        return
    while frame is not None and _package(frame) == "numpy":
        frame = frame.f_back
    where = "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
    if not where or where in _warned_lines:
        return
    _warned_lines.add(where)
    text = (
        "grad: the function gives an array to NumPy; what is computed there counts as a constant, and has no gradient\n"
        f"  at {where}\n"
        "  hint: use weft's functions; x.detach().numpy() says that it is meant, and does not warn"
    )
    warnings.warn_explicit(text, UserWarning, frame.f_code.co_filename, frame.f_lineno)


def _package(frame: Any) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> Any:
    """NumPy's protocol: numpy.asarray(x) shares memory."""
    import numpy as np

    return np.array(self.numpy(), dtype=dtype, copy=copy)


# NumPy's functions that weft has under another name; those of the same name are found by it.
UFUNCS = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "conjugate": "positive",
    "fabs": "abs",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "power": "pow",
    "right_shift": "bitwise_right_shift",
    "true_divide": "divide",
}


def _array_ufunc(self: Tensor, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """NumPy's protocol: numpy.exp(x) is weft.exp(x), and array * x is weft.multiply(array, x): a Tensor.

    Written to ``out`` where that is a Tensor. What weft has no function for, and what is written to NumPy's arrays, is
    computed by NumPy. Raises TypeError there if a tensor is being recorded, whose gradient would end in silence.
    """
    out = kwargs.pop("out", (None,))
    name = UFUNCS.get(ufunc.__name__, ufunc.__name__)
    if (
        method == "__call__"
        and not kwargs
        and len(out) == 1
        and (out[0] is None or isinstance(out[0], Tensor))
    ):
        from weft.ops import registry

        cls = registry.find(name)
        if cls is not None and cls.public:
            result = registry.function(name)(*inputs)
            if out[0] is None:
                return result
            out[0][...] = result
            return out[0]
    tensors = [x for x in (*inputs, *out) if isinstance(x, Tensor)]
    if _core.is_recording() and any(x.requires_grad for x in tensors):
        raise TypeError(
            f"numpy.{ufunc.__name__}: is computed by NumPy here, where gradients end; "
            "give it x.detach(), or use a function of weft.functional"
        )
    operands = [x.numpy() if isinstance(x, Tensor) else x for x in inputs]
    if any(x is not None for x in out):
        kwargs["out"] = tuple(x.numpy() if isinstance(x, Tensor) else x for x in out)
    result = getattr(ufunc, method)(*operands, **kwargs)
    return out[0] if len(out) == 1 and out[0] is not None else result


def _tolist(self: Tensor) -> Any:
    """The elements as Python's numbers in nested lists; a number for 0 dimensions.

    >>> import weft as wf
    >>> wf.tensor([[1, 2], [3, 4]]).tolist(), wf.tensor(0.5).tolist()
    ([[1, 2], [3, 4]], 0.5)
    """
    return self.numpy().tolist() if self.ndim else self.item()


def _memory(self: Tensor) -> memoryview:
    """The bytes of a contiguous tensor, read-only; waits for pending writes. Raises ValueError for other tensors.

    >>> import weft as wf
    >>> bytes(wf.tensor([1, 2], dtype="int8").memory())
    b'\\x01\\x02'
    """
    view: memoryview = _core.memory(self)
    return view


def _reduce_ex(self: Tensor, protocol: int) -> Any:
    from pickle import PickleBuffer

    memory = _core.memory(self.contiguous())
    data = PickleBuffer(memory) if protocol >= 5 else bytes(memory)
    return _unpickle, (data, self.shape, self.dtype.name, str(self.device))


def _unpickle(data: Any, shape: tuple[int, ...], dtype: str, device: str) -> Tensor:
    is_hidden = _core.hides_memory(device)
    x = _core.empty(shape, dtype, "cpu:0" if is_hidden else device)
    with memoryview(x.numpy().reshape(-1).view("uint8")) as target:
        target[:] = memoryview(data).cast("B")
    return _core.copy_of(x, dtype, device) if is_hidden else x


def _deepcopy(self: Tensor, memo: dict[int, Any]) -> Tensor:
    return self.copy()


def _dlpack(
    self: Tensor,
    *,
    stream: int | None = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """DLPack's protocol: a capsule of the same memory; waits until no operation uses it.

    stream, on a GPU: the address of the stream that waits instead of the caller; -1: nothing waits.
    """
    return _core.dlpack_of(self, stream, max_version, dl_device, copy)


def _dlpack_device(self: Tensor) -> tuple[int, int]:
    """DLPack's protocol: (2, k) on gpu:k; every cpu device is the one processor, (1, 0)."""
    device: tuple[int, int] = _core.dlpack_device_of(self)
    return device


def array_namespace(self: Any, *, api_version: str | None = None) -> Any:
    """The array API's protocol: the module weft.

    >>> import weft as wf
    >>> wf.ones(1).__array_namespace__(api_version="2023.12") is wf
    True
    """
    if api_version not in (None, *API_VERSIONS):
        raise ValueError(
            f"__array_namespace__: no version {api_version!r}; there are: {', '.join(API_VERSIONS)}"
        )
    return sys.modules["weft"]


def keep_gradient(x: Tensor, dx: Any) -> None:
    """Make dx, a tensor or an array of another type, the grad of x; None: it has none."""
    if (capture := _core.capture()) is not None:
        if _is_foreign(dx):
            raise TypeError(f"grad: gradients in graphs are tensors, got {type(dx).__name__}")
        capture.set_gradient(x, dx)
        return
    if (recorder := _core.get_recorder()) is not None:
        recorder.gradient_set(x)
        note_foreign_gradient(recorder, dx)
    _core.set_gradient(x, dx)


def note_foreign_gradient(recorder: Any, gradient: Any) -> None:
    """Let a program that is being written down end where a gradient is no tensor, which it could not say."""
    if _is_foreign(gradient):
        recorder.happens_once(
            f"a gradient was looked at or set that is no tensor but {type(gradient).__name__}"
        )


def _is_foreign(x: Any) -> bool:
    return not isinstance(x, Tensor) and hasattr(type(x), "__weft_function__")


def _get_grad(self: Tensor) -> Any:
    """The gradient that GradManagers have added up, None before the first; may be set, or set to None.

    An array of another type may be set as well, such as a weft.sparse.RowSparse, of which optimizers update some rows.
    """
    gradient: Any = _core.gradient(self)
    if (capture := _core.capture()) is not None:
        return capture.gradient_of(self, gradient)
    if (recorder := _core.get_recorder()) is not None:
        recorder.gradient_read(self)
        note_foreign_gradient(recorder, gradient)
    return gradient


def _set_grad(self: Tensor, value: Any) -> None:
    if value is not None and not _fits(value, self):
        raise ShapeError(f"grad: expected a Tensor of shape {self.shape}")
    keep_gradient(self, value)


def _fits(value: Any, x: Tensor) -> bool:
    return (isinstance(value, Tensor) or _is_foreign(value)) and tuple(value.shape) == x.shape


def _requires_grad(self: Tensor) -> bool:
    """Whether calls with this tensor are being recorded."""
    tracked = bool(_core.is_tracked(self))
    if (recorder := _core.get_recorder()) is not None:
        recorder.recorded_read(self, tracked)
    return tracked


def _set_requires_grad(self: Tensor, value: Any) -> None:
    raise AttributeError(
        "requires_grad says whether calls with a tensor are recorded now, and cannot be set\n"
        "  hint: attach to a weft.GradManager what is trained, and only that; x.detach() and weft.no_grad() leave out "
        "what has no gradient"
    )


def _detach(self: Tensor) -> Tensor:
    """The same memory without its history."""
    if (capture := _core.capture()) is not None:
        from weft.graph.inner import stopped

        alias: Tensor = capture.alias(self, stopped(capture.lift(self)))
        return alias
    return _core.alias(self, keep_past=False)


def _contains(self: Tensor, value: Any) -> bool:
    """Whether an element equals value; waits for the elements, as bool(x) does."""
    return bool(_function("any")(_function("equal")(self, value)))


def _divmod(self: Tensor, other: Any) -> tuple[Tensor, Tensor]:
    return self // other, self % other


def _rdivmod(self: Tensor, other: Any) -> tuple[Tensor, Tensor]:
    return other // self, other % self


_METHODS = {
    "__contains__": _contains,
    "__divmod__": _divmod,
    "__rdivmod__": _rdivmod,
    "__array_namespace__": array_namespace,
    "copy": _copy,
    "contiguous": _contiguous,
    "astype": _astype,
    "to_device": _to_device,
    "memory": _memory,
    "tolist": _tolist,
    "detach": _detach,
    "grad": property(_get_grad, _set_grad, doc=_get_grad.__doc__),
    "requires_grad": property(_requires_grad, _set_requires_grad, doc=_requires_grad.__doc__),
    "__dir__": visible_names,
    "__complex__": lambda self: complex(self.item()),
    "__repr__": _repr,
    "_repr_html_": _repr_html,
    "__format__": _format,
    "__array__": _array,
    "__array_ufunc__": _array_ufunc,
    "__reduce_ex__": _reduce_ex,
    "__copy__": _copy,
    "__deepcopy__": _deepcopy,
    "__dlpack__": _dlpack,
    "__dlpack_device__": _dlpack_device,
}
for _name, _method in _METHODS.items():
    setattr(Tensor, _name, _method)


def _add_operators() -> None:
    from weft.ops import registry
    from weft.ops.index import METHODS

    methods = set(vars(Tensor))
    for name, signature in METHODS.items():
        if name not in methods:
            _core.add_method(name, signature)

    def add(cls: type[Any]) -> None:
        if cls.public and cls.method and cls.name not in methods:
            _core.add_method(cls.name, cls.method_signature())

    registry.listen(add)


_add_operators()
add_name_hints(Tensor, "Tensor")
