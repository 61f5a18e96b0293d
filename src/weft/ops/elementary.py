"""Elementary functions of one variable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from weft.base.dtype import DType
from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops.op import op
from weft.ops.pointwise import Pointwise
from weft.ops.samples import Sample, arrays
from weft.ops.types import TensorType

Scalar = e.Scalar


class Elementary(Pointwise):
    """Base: functions of real numbers; integers and booleans are computed as float32."""

    family: ClassVar[str] = "elementary"
    result: ClassVar[str] = "float"
    takes: ClassVar[tuple[str, ...]] = ("float",)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for shape in ((2, 3), (), (0, 4), (17,)):
            yield Sample(arrays(shape))


@op
class Exp(Elementary):
    """e to the power of x.

    x: float[...], integers as float32. Returns x's shape. At most 2 ulp from the exact value in float32.
    Source: array API 2024.12, exp.

    >>> import weft as wf
    >>> wf.exp(wf.tensor(0.)).item()
    1.0
    """

    def scalar(self, x: Scalar) -> Scalar:
        return e.call("exp", x)

    def reference(self, x: Any) -> Any:
        return np.exp(x)


@op
class Cast(Pointwise):
    """The elements as another type, converted as NumPy's astype does.

    x: any dtype [...]; dtype: the new type. Returns x's shape. Floats become integers towards zero.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.cast(wf.tensor([1.7]), dtype="int32")
    tensor([1], dtype=int32, device=cpu:0)
    """

    family: ClassVar[str] = "elementary"
    dtype: DType
    positional = ("dtype",)

    def infer(self, *inputs: TensorType) -> TensorType:
        return inputs[0].like(dtype=self.dtype)

    def scalar(self, x: Scalar) -> Scalar:
        return e.cast(x, self.dtype.name)

    def vjp(self, x: Any, dy: Any) -> Any:
        return F.cast(dy, dtype=x.dtype) if x.dtype.kind == "float" and dy.dtype.kind == "float" else None

    def reference(self, x: Any) -> Any:
        return np.asarray(x).astype(self.dtype.numpy)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for dtype in ("float32", "int32", "bool", "bfloat16"):
            yield Sample(arrays((2, 3)), dtype=dtype)
