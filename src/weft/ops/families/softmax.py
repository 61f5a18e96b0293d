"""Exponentials that sum to one, and their logarithms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.kernels import Loop, Row, to_accumulation
from weft.ops.op import Op, op
from weft.ops.pointwise import cast_to
from weft.ops.types import TensorType, normalize_axes


@op
class Softmax(
    Op,
    family="reduction",
    rule="x[*s]: float -> y[*s]: x",
    aot_dtypes=("float32",),
    positional=("axis",),
):
    """exp(x) / sum(exp(x)) along one axis, shifted so that it never overflows.

    x: float[..., n, ...]; axis: which n. Returns x's shape and dtype. Raises IndexError if the axis is out of range.
    Source: Bridle 1990, Probabilistic interpretation of feedforward classification network outputs.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.softmax(wf.tensor([0., 0.]))
    tensor([0.5, 0.5], dtype=float32, device=cpu:0)
    """

    axis: int = -1

    def infer(self, x: TensorType) -> Any:
        normalize_axes(self.name, self.axis, x.ndim)
        return super().infer(x)

    def kernels(self, x: TensorType) -> Iterator[Loop]:
        row = Row(inputs=1)
        wide = to_accumulation(e.load(0, x.dtype.name))
        powers = e.call("exp", wide - row.max(wide))
        if wide.dtype == x.dtype.name:
            row.each(powers)
            powers = row.stored(0, x.dtype.name)
        row.each(e.cast(powers * (1 / row.sum(powers)), x.dtype.name))  # one division a row
        yield row.loop(normalize_axes(self.name, self.axis, x.ndim))

    def decompose(self, x: Any) -> Any:
        powers = F.exp(self.shifted(x))
        return cast_to(powers / F.sum(powers, axis=self.axis, keepdims=True), x.dtype)

    def shifted(self, x: Any) -> Any:
        """x less its greatest value, in the type that sums are kept in."""
        wide = cast_to(x, x.dtype.accumulation)
        return wide - F.max(wide, axis=self.axis, keepdims=True)

    def vjp(self, y: Any, dy: Any) -> Any:
        return (dy - F.sum(dy * y, axis=self.axis, keepdims=True)) * y


@op
class LogSoftmax(Softmax):
    """x - log(sum(exp(x))) along one axis: the logarithm of softmax, exact where that would be 0.

    x: float[..., n, ...]; axis: which n. Returns x's shape and dtype. Raises IndexError if the axis is out of range,
    DTypeError for integers.
    Source: Blanchard, Higham, Higham 2021 (shifted form), IMA J. Numer. Anal. 41(4).

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.log_softmax(wf.tensor([0., -1000.]))
    tensor([    0., -1000.], dtype=float32, device=cpu:0)
    """

    def kernels(self, x: TensorType) -> Iterator[Loop]:
        row = Row(inputs=1)
        wide = to_accumulation(e.load(0, x.dtype.name))
        apart = wide - row.max(wide)
        row.each(e.cast(apart - e.call("log", row.sum(e.call("exp", apart))), x.dtype.name))
        yield row.loop(normalize_axes(self.name, self.axis, x.ndim))

    def decompose(self, x: Any) -> Any:
        apart = self.shifted(x)
        return cast_to(apart - F.log(F.sum(F.exp(apart), axis=self.axis, keepdims=True)), x.dtype)

    def vjp(self, y: Any, dy: Any) -> Any:
        return dy - F.sum(dy, axis=self.axis, keepdims=True) * F.exp(y)


@op
class Softmin(Composed, family="reduction", rule="x: float -> y: x", positional=("axis",)):
    """softmax(-x) along one axis.

    x: float[..., n, ...]; axis: which n. Returns x's shape and dtype. Raises IndexError if the axis is out of range,
    DTypeError for integers.
    Source: Bridle 1990, Probabilistic interpretation of feedforward classification network outputs.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.softmin(wf.tensor([0., 1000.]))
    tensor([1., 0.], dtype=float32, device=cpu:0)
    """

    axis: int = -1

    def decompose(self, x: Any) -> Any:
        return F.softmax(-x, axis=self.axis)
