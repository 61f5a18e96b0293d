"""What a Value answers as an array of a user's function that is recorded: what a Tensor answers, where that is known.

A function that is called with Values holds them in the place of arrays, so to its `isinstance` a Value is a Tensor (see
Value). Elements of what does not depend on the arguments of the function are computed when they are read
(Capture.known_elements); others are not known before the graph is computed.

This module gives Value what is made of operators and of arrays, which is above the module that defines it.
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
from weft.ops.node import Value


def _item(self: Value) -> Any:
    """The one element as a number."""
    return elements_of(self, "the number").item()


def _truth(self: Value) -> bool:
    return bool(elements_of(self, "the truth"))


def _index(self: Value) -> int:
    if self.ndim or not self.dtype.is_integer:
        raise TypeError(f"only 0-d integer tensors can be used as an index: x is {self.type}")
    return int(_item(self))


def _format(self: Value, spec: str) -> str:
    return format(_item(self), spec) if self.ndim == 0 and spec else str(self)


def _numpy(self: Value) -> Any:
    """The elements as an array of NumPy."""
    return elements_of(self, "the elements").numpy()


def _tolist(self: Value) -> Any:
    """The elements as nested lists."""
    return elements_of(self, "the elements").tolist()


def _array(self: Value, dtype: Any = None, copy: bool | None = None) -> Any:
    import numpy as np

    return np.array(_numpy(self), dtype=dtype, copy=copy)


def _array_ufunc(self: Value, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """NumPy's protocol: numpy.exp(x) is weft.exp(x). Raises TypeError for what weft has no function for."""
    name = UFUNCS.get(ufunc.__name__, ufunc.__name__)
    cls = registry.find(name)
    if method != "__call__" or kwargs or cls is None or not cls.public:
        raise TypeError(f"numpy.{ufunc.__name__}: there is no function of weft for this call on {self.type}")
    return registry.function(name)(*inputs)


def _copy(self: Value) -> Any:
    """A copy in memory of its own."""
    return F.reshape(self, shape=self.shape, copy=True)


def _contiguous(self: Value) -> Any:
    """The array itself: what is recorded is laid out when its program is planned."""
    return self


def _deepcopy(self: Value, memo: dict[int, Any]) -> Any:
    return _copy(self)


def _to_device(self: Value, device: Any, *, stream: None = None) -> Any:
    """The array on a device: itself if it is there, else a copy."""
    target = as_device(device)
    return self if target is self.device else registry.function("to_device")(self, device=target)


def _contains(self: Value, value: Any) -> bool:
    return bool(F.any(F.equal(self, value)))


def _detach(self: Value) -> Any:
    """The same memory without its history; a value of a graph outside is captured, as by every operator."""
    capture = _core.capture()
    if capture is None:
        return stopped(self)
    return capture.alias(self, stopped(capture.lift(self)))


def _requires_grad(self: Value) -> bool:
    """Whether calls with this array are being recorded for a gradient."""
    capture = _core.capture()
    return capture is not None and _core.is_recording() and capture.is_watched(self)


def _refused(name: str) -> property:
    def refuse(self: Value) -> NoReturn:
        raise TypeError(
            f"{name}: an array of a function that is recorded has no memory yet: x is {self.type}\n"
            f"  hint: read {name} outside of the function"
        )

    return property(refuse)


_METHODS = {
    "__getitem__": indexing.subscript_value,
    "__setitem__": indexing.assign_value,
    "__float__": lambda self: float(_item(self)),
    "__int__": lambda self: int(_item(self)),
    "__complex__": lambda self: complex(_item(self)),
    "__bool__": _truth,
    "__index__": _index,
    "__format__": _format,
    "__contains__": _contains,
    "__array__": _array,
    "__array_ufunc__": _array_ufunc,
    "__array_namespace__": array_namespace,
    "__copy__": _copy,
    "__deepcopy__": _deepcopy,
    "copy": _copy,
    "contiguous": _contiguous,
    "detach": _detach,
    "to_device": _to_device,
    "item": _item,
    "numpy": _numpy,
    "tolist": _tolist,
    "requires_grad": property(_requires_grad),
    "itemsize": property(lambda self: self.dtype.itemsize),
    "nbytes": property(lambda self: self.size * self.dtype.itemsize),
    "strides": _refused("strides"),
    "version": _refused("version"),
    "memory": _refused("memory"),
}
for _name, _method in _METHODS.items():
    setattr(Value, _name, _method)
