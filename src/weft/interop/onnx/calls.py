"""What conversions of ONNX's operators are given and give, and the table of them.

A conversion is a function (call, *inputs) -> outputs on tensors. Values that are known when the network runs, such as
sizes and constants, are Known; a conversion that needs numbers (the shape of Reshape) asks for them by numbers().
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from weft.arrays.creation import asarray
from weft.arrays.tensor import Tensor
from weft.base.errors import GraphError
from weft.base.typing import Any

__all__ = ["CONVERSIONS", "Call", "Known", "Narrow", "converts", "numbers", "tensor"]


class Known:
    """An array whose elements are known on the host: a constant, or what follows from sizes."""

    __slots__ = ("_tensor", "array")

    def __init__(self, array: np.ndarray[Any, Any], tensor: Tensor | None = None) -> None:
        self.array, self._tensor = array, tensor

    @property
    def is_exact(self) -> bool:
        """Whether the array has the element type; that of bfloat16 is float32."""
        return self._tensor is None or self._tensor.dtype.name == self.array.dtype.name

    @property
    def tensor(self) -> Tensor:
        if self._tensor is None:
            # Of its own memory: that of the file's bytes cannot be written, nor prepared for kernels.
            self._tensor = asarray(np.ascontiguousarray(self.array).reshape(self.array.shape), copy=True)
        return self._tensor


class Narrow:
    """Values of an element type that weft does not have (weft.interop.onnx.narrow); code: its number in ONNX."""

    __slots__ = ("code", "tensor")

    def __init__(self, tensor: Tensor, code: int) -> None:
        self.tensor, self.code = tensor, code


class Call:
    """One node. attributes: as Python has them; opset: of its domain; bodies: name of an attribute -> its function."""

    def __init__(
        self, name: str, operator: str, attributes: Mapping[str, Any], opset: int, output_count: int
    ) -> None:
        self.name, self.operator, self.attributes, self.opset = name, operator, dict(attributes), opset
        self.output_count = output_count
        self.training = False

    def get(self, key: str, default: Any = None) -> Any:
        """An attribute, or the default."""
        return self.attributes.get(key, default)

    def fail(self, fact: str) -> GraphError:
        """The error of this node, to be raised."""
        return GraphError(f"onnx: {self.operator} {self.name!r}: {fact}")

    def axes(self, given: Any, key: str = "axes") -> list[int] | None:
        """Axes, which are an attribute in older opsets and an input in newer ones."""
        if given is not None:
            return [int(n) for n in numbers(self, given).ravel()]
        axes = self.get(key)
        return None if axes is None else [int(n) for n in axes]


Conversion = Callable[..., Any]
CONVERSIONS: dict[str, Conversion] = {}


def converts(*operators: str) -> Callable[[Conversion], Conversion]:
    """Adds a conversion for these operators."""

    def add(function: Conversion) -> Conversion:
        CONVERSIONS.update(dict.fromkeys(operators, function))
        return function

    return add


def tensor(x: Any) -> Any:
    """The tensor of a value; None for a missing one."""
    return x.tensor if isinstance(x, Known | Narrow) else x


def numbers(call: Call, x: Any) -> np.ndarray[Any, Any]:
    """The elements of a value on the host; waits for a computed one."""
    if isinstance(x, Known):
        return x.array
    if isinstance(x, Tensor | Narrow):
        return np.asarray(tensor(x).numpy())
    raise call.fail(f"needs the elements of {type(x).__name__}")
