"""What a function that is recorded holds in the place of an array: what a Tensor answers, where that is known.

To `isinstance` an ArrayTracer is a Tensor, so library code tells the two apart by Tracer. Elements of what does not
depend on the arguments of the function are computed when they are read (Capture.known_elements); others are not known
before the graph is computed.
"""

from __future__ import annotations

from typing import Any, NoReturn

from weft import _core
from weft.arrays import indexing
from weft.arrays.known_elements import elements_of
from weft.arrays.tensor import UFUNCS, array_namespace
from weft.base.device import as_device
from weft.graph.inner import stopped
from weft.ops import functions as F
from weft.ops import registry
from weft.ops.node import Tracer, set_tracer_type

__all__ = ["ArrayTracer"]


def _refused(name: str) -> property:
    def refuse(self: Tracer) -> NoReturn:
        raise TypeError(
            f"{name}: an array of a function that is recorded has no memory yet: x is {self.type}\n"
            f"  hint: read {name} outside of the function"
        )

    return property(refuse)


@set_tracer_type
class ArrayTracer(Tracer):
    """A Tracer with the face of a Tensor."""

    __slots__ = ()

    __class__ = property(lambda _: _core.Tensor)

    def __getitem__(self, key: Any) -> Any:
        return indexing.subscript_value(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        indexing.assign_value(self, key, value)

    def item(self) -> Any:
        """The one element as a number."""
        return elements_of(self, "the number").item()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __bool__(self) -> bool:
        return bool(elements_of(self, "the truth"))

    def __index__(self) -> int:
        if self.ndim or not self.dtype.is_integer:
            raise TypeError(f"only 0-d integer tensors can be used as an index: x is {self.type}")
        return int(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.ndim == 0 and spec else str(self)

    def __contains__(self, value: Any) -> bool:
        return bool(F.any(F.equal(self, value)))

    def numpy(self) -> Any:
        """The elements as an array of NumPy."""
        return elements_of(self, "the elements").numpy()

    def tolist(self) -> Any:
        """The elements as nested lists."""
        return elements_of(self, "the elements").tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy as np

        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """NumPy's protocol: numpy.exp(x) is weft.exp(x). Raises TypeError for what weft has no function for."""
        name = UFUNCS.get(ufunc.__name__, ufunc.__name__)
        cls = registry.find(name)
        if method != "__call__" or kwargs or cls is None or not cls.public:
            raise TypeError(
                f"numpy.{ufunc.__name__}: there is no function of weft for this call on {self.type}"
            )
        return registry.function(name)(*inputs)

    __array_namespace__ = array_namespace

    def copy(self) -> Any:
        """A copy in memory of its own."""
        return F.reshape(self, shape=self.shape, copy=True)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self.copy()

    def contiguous(self) -> Any:
        """The array itself: what is recorded is laid out when its program is planned."""
        return self

    def detach(self) -> Any:
        """The same memory without its history; a value of a graph outside is captured, as by every operator."""
        capture = _core.capture()
        if capture is None:
            return ArrayTracer(stopped(self.value))
        return capture.alias(self, stopped(capture.lift(self)))

    def to_device(self, device: Any, *, stream: None = None) -> Any:
        """The array on a device: itself if it is there, else a copy."""
        target = as_device(device)
        return self if target is self.device else registry.function("to_device")(self, device=target)

    @property
    def requires_grad(self) -> bool:
        """Whether calls with this array are being recorded for a gradient."""
        capture = _core.capture()
        return capture is not None and _core.is_recording() and bool(capture.is_watched(self))

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> Any:
        return self.size * self.dtype.itemsize

    strides = _refused("strides")
    version = _refused("version")
    memory = _refused("memory")
