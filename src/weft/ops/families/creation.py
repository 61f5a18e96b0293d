"""New arrays in graphs: what the functions of weft.arrays.creation mean there."""

from __future__ import annotations

from collections.abc import Iterator

from weft.base.device import Device
from weft.base.dtype import DType, float32, int64
from weft.base.typing import Any
from weft.expr import scalar as e
from weft.expr.kernel import Each, Store
from weft.ops.kernels import Loop
from weft.ops.op import Op, op
from weft.ops.types import TensorType


class Creation(Op, family="creation", primitive=True, public=False):
    """Base of operators without inputs. device: None: wherever they are read."""

    shape: tuple[int, ...]
    device: Device | None = None

    def fixed_device(self) -> Device | None:
        return self.device

    def loop(self, value: e.Scalar, *numbers: Any) -> Loop:
        """Every element is this."""
        return Loop(0, (Each((Store(0, value),)),), numbers=numbers)


@op
class Full(Creation):
    """Every element is value, converted to dtype."""

    value: bool | int | float = 0
    dtype: DType = float32

    def infer(self) -> TensorType:
        return TensorType(self.shape, self.dtype, self.device)

    def kernels(self) -> Iterator[Loop]:
        yield self.loop(e.constant(self.value, self.dtype.name))

    def vjp(self, dy: Any) -> Any:
        return ()


@op
class Stepped(Creation):
    """start + i step along the first dimension, repeated along the others."""

    start: bool | int | float = 0
    step: bool | int | float = 1
    dtype: DType = int64

    def infer(self) -> TensorType:
        return TensorType(self.shape, self.dtype, self.device)

    def kernels(self) -> Iterator[Loop]:
        kind = "float64" if self.dtype.is_floating else "int64"
        index = e.cast(e.index(0), kind)
        value = e.constant(self.start, kind) + index * e.constant(self.step, kind)
        yield self.loop(e.cast(value, self.dtype.name))

    def vjp(self, dy: Any) -> Any:
        return ()
