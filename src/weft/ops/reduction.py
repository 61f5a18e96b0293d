"""Reductions: sums, means, extremes along axes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from weft.base.dtype import DType, float32, int64, uint64
from weft.base.errors import DTypeError
from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops.kernels import Loop, Row, reducible
from weft.ops.op import Op, op
from weft.ops.samples import Sample, arrays
from weft.ops.types import TensorType, normalize_axes

Scalar = e.Scalar


class Reduction(Op):
    """Base: one number for each row. A class gives fold(row, x), the scalar that is stored."""

    family: ClassVar[str] = "reduction"
    positional: ClassVar[tuple[str, ...]] = ("axis",)
    axis: int | tuple[int, ...] | None = None
    keepdims: bool = False

    def fold(self, row: Row, x: Scalar, count: Any) -> Scalar:
        """The row's result, in any type; it is converted to the output's. count: elements of a row."""
        raise NotImplementedError

    def result(self, x: TensorType) -> DType:
        """The output's dtype."""
        return x.dtype

    def infer(self, x: TensorType) -> TensorType:
        axes = normalize_axes(self.name, self.axis, x.ndim)
        shape = [1 if d in axes else n for d, n in enumerate(x.shape) if self.keepdims or d not in axes]
        return x.like(shape, self.result(x))

    def kernels(self, x: TensorType) -> Iterator[Loop]:  # type: ignore[override]
        axes = normalize_axes(self.name, self.axis, x.ndim)
        row = Row(inputs=1)
        count: Any = 1
        for axis in axes:
            count = count * x.shape[axis]
        found = self.fold(row, e.load(0, x.dtype.name), count)
        row.once(0, e.cast(found, self.result(x).name))
        yield row.loop(axes)

    def spread(self, dy: Any, x: Any) -> Any:
        """dy or y repeated over the reduced axes."""
        axes = normalize_axes(self.name, self.axis, x.ndim)
        if not self.keepdims and axes:
            dy = F.expand_dims(dy, axis=axes)
        return F.broadcast_like(dy, x)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(arrays((2, 3, 4), distinct=True))
        for axis in (0, -1, (0, 2), (), None):
            for keepdims in (False, True):
                yield Sample(arrays((2, 3, 4), distinct=True), axis=axis, keepdims=keepdims)
        yield Sample(arrays((), distinct=True))


@op
class Sum(Reduction):
    """The sum along axes.

    x: any dtype [...]; axis: an int, several, or None for all; keepdims: leave sizes of 1. Returns x's dtype, or dtype;
    small integers and booleans give int64 (uint64). Integers wrap. An empty sum is 0. Floats are summed in float32
    blocks joined in float64. Raises IndexError if an axis is out of range.
    Source: array API 2024.12, sum.

    >>> import weft as wf
    >>> wf.sum(wf.tensor([[1., 2.], [3., 4.]]), axis=0)
    tensor([4., 6.], dtype=float32, device=cpu:0)
    """

    dtype: DType | None = None

    def result(self, x: TensorType) -> DType:
        if self.dtype is not None:
            return self.dtype
        if x.dtype.kind == "float":
            return x.dtype
        return uint64 if x.dtype.kind == "uint" else int64

    def fold(self, row: Row, x: Scalar, count: Any) -> Scalar:
        wanted = {"bool": "int64", "int": "int64", "uint": "uint64"}
        kind = self.dtype
        wide = reducible(x)
        if wide.dtype not in e.FLOATS:
            wide = e.cast(wide, wanted["uint" if wide.dtype in e.UNSIGNED else "int"])
        if kind is not None and kind.kind == "float":
            wide = reducible(e.cast(wide, kind.name))
        return row.sum(wide)

    def vjp(self, x: Any, dy: Any) -> Any:
        return F.cast(self.spread(dy, x), dtype=x.dtype)

    def reference(self, x: Any) -> Any:
        return np.sum(x, axis=self.axis, keepdims=self.keepdims)


@op
class Mean(Reduction):
    """The arithmetic mean along axes.

    x: float[...]; axis: an int, several, or None for all; keepdims: leave sizes of 1. Returns x's dtype. The mean of
    nothing is NaN. Raises IndexError if an axis is out of range, DTypeError for integers.
    Source: array API 2024.12, mean.

    >>> import weft as wf
    >>> wf.mean(wf.tensor([1., 2., 6.])).item()
    3.0
    """

    def infer(self, x: TensorType) -> TensorType:
        self.require_floats(x=x)
        return super().infer(x)

    def fold(self, row: Row, x: Scalar, count: Any) -> Scalar:
        total = row.sum(reducible(x))
        return total / row.number(count, total.dtype)

    def vjp(self, x: Any, y: Any, dy: Any) -> Any:
        axes = normalize_axes(self.name, self.axis, x.ndim)
        return self.spread(F.divide_by_count(dy, x, axis=axes), x)

    def reference(self, x: Any) -> Any:
        return np.mean(x, axis=self.axis, keepdims=self.keepdims)


@op
class Max(Reduction):
    """The greatest value along axes; NaN if there is one.

    x: any dtype [...]; axis: an int, several, or None for all; keepdims: leave sizes of 1. Returns x's dtype. The gradient
    is shared equally between equal greatest values. Raises IndexError if an axis is out of range.
    An empty row gives the dtype's least value.
    Source: array API 2024.12, max.

    >>> import weft as wf
    >>> wf.max(wf.tensor([[1, 5], [7, 2]]), axis=1)
    tensor([5, 7], dtype=int64, device=cpu:0)
    """

    def fold(self, row: Row, x: Scalar, count: Any) -> Scalar:
        return row.max(reducible(x))

    def vjp(self, x: Any, y: Any, dy: Any) -> Any:
        mask = F.cast(F.equal(x, self.spread(y, x)), dtype=x.dtype)
        axes = normalize_axes(self.name, self.axis, x.ndim)
        return self.spread(dy, x) * mask / F.sum(mask, axis=axes, keepdims=True)

    def reference(self, x: Any) -> Any:
        return np.max(x, axis=self.axis, keepdims=self.keepdims)


@op
class DivideByCount(Op):
    """a divided by the number of elements that x has along axes; the gradient of means."""

    public: ClassVar[bool] = False
    axis: tuple[int, ...]

    def infer(self, a: TensorType, x: TensorType) -> TensorType:
        return a.like()

    def kernels(self, a: TensorType, x: TensorType) -> Iterator[Loop]:  # type: ignore[override]
        count: Any = 1
        for axis in self.axis:
            count = count * x.shape[axis]
        row = Row(inputs=2)
        wide = reducible(e.load(0, a.dtype.name))
        row.each(e.cast(wide / row.number(count, wide.dtype), a.dtype.name))
        yield row.loop(())

    def vjp(self, x: Any, dy: Any) -> Any:
        return F.divide_by_count(dy, x, axis=self.axis), None

    def reference(self, a: Any, x: Any) -> Any:
        return a / np.prod([x.shape[axis] for axis in self.axis])


@op
class Softmax(Op):
    """exp(x) / sum(exp(x)) along one axis, shifted so that it never overflows.

    x: float[..., n, ...]; axis: which n. Returns x's shape and dtype. Raises IndexError if the axis is out of range.
    Source: Bridle 1990, Probabilistic interpretation of feedforward classification network outputs.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.softmax(wf.tensor([0., 0.]))
    tensor([0.5, 0.5], dtype=float32, device=cpu:0)
    """

    family: ClassVar[str] = "reduction"
    axis: int = -1
    positional = ("axis",)

    def infer(self, x: TensorType) -> TensorType:
        self.require_floats(x=x)
        normalize_axes(self.name, self.axis, x.ndim)
        return x.like()

    def kernels(self, x: TensorType) -> Iterator[Loop]:  # type: ignore[override]
        row = Row(inputs=1)
        wide = reducible(e.load(0, x.dtype.name))
        powers = e.call("exp", wide - row.max(wide))
        row.each(e.cast(powers / row.sum(powers), x.dtype.name))
        yield row.loop(normalize_axes(self.name, self.axis, x.ndim))

    def vjp(self, y: Any, dy: Any) -> Any:
        return (dy - F.sum(dy * y, axis=self.axis, keepdims=True)) * y

    def reference(self, x: Any) -> Any:
        powers = np.exp(x - np.max(x, axis=self.axis, keepdims=True))
        return powers / np.sum(powers, axis=self.axis, keepdims=True)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for axis in (0, 1, -1):
            yield Sample(arrays((3, 4, 5)), axis=axis)


__all__ = ["DTypeError", "Max", "Mean", "Reduction", "Softmax", "Sum", "float32"]
