"""Classification losses, computed by rows, whose probabilities are never stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.base.dtype import int64
from weft.base.errors import DTypeError, ShapeError
from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops.families.loss import check_reduction
from weft.ops.kernels import Loop, Row, to_accumulation
from weft.ops.op import Op, op
from weft.ops.pointwise import cast_to
from weft.ops.types import TensorType

Scalar = e.Scalar


class Classes(Op, family="loss", positional=("ignore_index", "reduction")):
    """Base of losses of classes: axis 1 of x, or the only one, holds one number for each class."""

    ignore_index: int = -100
    reduction: str = "mean"

    def check(self) -> None:
        check_reduction(self.name, self.reduction)

    def infer(self, x: TensorType, target: TensorType, weight: TensorType | None = None) -> TensorType:
        self.require_floats(x=x, weight=weight)
        if x.ndim == 0:
            raise self.fail(ShapeError, "x needs an axis of classes", x=x)
        axis = min(1, x.ndim - 1)
        rows = (*x.shape[:axis], *x.shape[axis + 1 :])
        if weight is not None and weight.shape != (x.shape[axis],):
            raise self.fail(ShapeError, "weight needs one number for each class", x=x, weight=weight)
        self.check_target(x, target, rows)
        return x.like(rows if self.reduction == "none" else ())

    def check_target(self, x: TensorType, target: TensorType, rows: tuple[Any, ...]) -> None:
        if not target.dtype.is_integer:
            raise self.fail(DTypeError, "target must be integers", x=x, target=target)
        if target.shape != rows:
            error = self.fail(ShapeError, f"target must have the shape {rows}", x=x, target=target)
            if target.shape == (*rows, 1):
                raise ShapeError(f"{error}\n  hint: target.squeeze(axis=-1)")
            raise error

    def aligned(self, x: Any, target: Any, weight: Any) -> tuple[Any, Any, int]:
        """target and weight so that they broadcast to x, and the axis of classes."""
        axis = min(1, x.ndim - 1)
        if target.ndim < x.ndim:
            checked = F.check_labels(target, x, of=self.name, axis=axis, ignore_index=self.ignore_index)
            target = F.expand_dims(checked, axis=axis)
        if weight is not None and x.ndim > 2:
            weight = F.expand_dims(weight, axis=tuple(range(1, x.ndim - 1)))
        return target, weight, axis

    def reduced(self, losses: Any, shares: Any, axis: int) -> Any:
        """The rows' losses, reduced; shares: the weight of each row in the mean."""
        if self.reduction == "none":
            return F.squeeze(losses, axis=axis)
        total = F.sum(losses)
        return total if self.reduction == "sum" else total / F.sum(shares)


@op
class CheckLabels(Op, primitive=True, public=False):
    """target as int64; raises IndexError for what is neither a class of x, along axis, nor ignore_index.

    of: whose target it is.
    """

    of: str
    axis: int
    ignore_index: int

    def infer(self, target: TensorType, x: TensorType) -> TensorType:
        return target.like(dtype=int64)

    def vjp(self, target: Any) -> Any:
        return None, None


class RowGradient(Op, outputs=("dx",)):
    """Base of the gradients of x, from those of the losses of rows."""

    def infer(
        self, x: TensorType, target: TensorType, weight: TensorType | None, dlosses: TensorType
    ) -> TensorType:
        return x.like()


class ClassRow(Op, public=False):
    """Base of row programs along the axis of classes; target has size 1 there, weight and x the classes."""

    axis: int
    ignore_index: int
    label_smoothing: float = 0.0

    def parts(
        self, row: Row, x: TensorType, target: TensorType, weight: TensorType | None
    ) -> tuple[Scalar, Scalar, Scalar, Scalar | None]:
        """The element of x, whether it is the target's, whether the row counts, and the weight's element."""
        value = to_accumulation(e.load(0, x.dtype.name))
        label = e.load(1, target.dtype.name)
        is_target = e.index(self.axis) == label
        scale = None if weight is None else e.cast(e.load(2, weight.dtype.name), value.dtype)
        return value, is_target, label != self.ignore_index, scale

    def rows(self, x: TensorType) -> TensorType:
        return x.like([1 if d == self.axis else n for d, n in enumerate(x.shape)])

    def one_hot(self, x: Any, target: Any) -> Any:
        """Whether each element is the target's."""
        return F.equal(F.places_like(x, axis=self.axis), target)


@op
class CrossEntropyRows(ClassRow, primitive=True, outputs=("losses", "shares")):
    """cross_entropy's loss of every row, and what the row counts for the mean.

    The probabilities are not stored: one pass finds the greatest logit, one sums the exponentials and picks the
    target's. A target that is not a class and not ignore_index gives NaN.
    """

    def infer(self, x: TensorType, target: TensorType, weight: TensorType | None = None) -> Any:
        return self.rows(x), self.rows(x)

    def kernels(self, x: TensorType, target: TensorType, weight: TensorType | None = None) -> Iterator[Loop]:
        row = Row(inputs=3)
        value, is_target, counts, scale = self.parts(row, x, target, weight)
        zero, one = e.constant(0, value.dtype), e.constant(1, value.dtype)
        target_logit = row.sum(e.where(is_target, value, zero))
        share = row.sum(e.where(is_target, one if scale is None else scale, zero))
        matches = row.sum(e.where(is_target, one, zero))
        top = row.max(value)
        spread = e.call("log", row.sum(e.call("exp", value - top)))
        loss = (spread + (top - target_logit)) * share
        if self.label_smoothing:
            lost = (top - value) + spread
            smooth = row.sum(lost if scale is None else lost * scale)
            classes = row.number(x.shape[self.axis], value.dtype)
            loss = loss * (1 - self.label_smoothing) + smooth * (self.label_smoothing / classes)
        loss = e.where(matches == 0, e.constant(float("nan"), value.dtype), loss)
        row.once(0, *(e.cast(e.where(counts, v, zero), x.dtype.name) for v in (loss, share)))
        yield row.loop((self.axis,))

    def vjp(self, x: Any, target: Any, weight: Any, dlosses: Any) -> Any:
        if dlosses is None:
            return None, None, None
        dx = F.cross_entropy_rows_gradient(x, target, weight, dlosses, **self.values())
        return dx, None, None


@op
class CrossEntropyRowsGradient(ClassRow, RowGradient):
    """The gradient of cross_entropy_rows' x from that of the losses, by one program for each row."""

    def kernels(
        self, x: TensorType, target: TensorType, weight: TensorType | None, dlosses: TensorType
    ) -> Iterator[Loop]:
        row = Row(inputs=4)
        value, is_target, counts, scale = self.parts(row, x, target, weight)
        zero, one = e.constant(0, value.dtype), e.constant(1, value.dtype)
        row_weight = one if scale is None else row.sum(e.where(is_target, scale, zero))
        powers = e.call("exp", value - row.max(value))
        probability = powers / row.sum(powers)
        cotangent = (probability - e.where(is_target, one, zero)) * row_weight
        if self.label_smoothing:
            classes = row.number(x.shape[self.axis], value.dtype)
            factor = one if scale is None else scale
            total_weight = classes if scale is None else row.sum(scale)
            smooth = (probability * total_weight - factor) * (self.label_smoothing / classes)
            cotangent = cotangent * (1 - self.label_smoothing) + smooth
        upstream = to_accumulation(e.load(3, dlosses.dtype.name))
        row.each(e.cast(e.where(counts, cotangent * upstream, zero), x.dtype.name))
        yield row.loop((self.axis,))

    def decompose(self, x: Any, target: Any, weight: Any, dlosses: Any) -> Any:
        is_target = self.one_hot(x, target)
        probability = F.softmax(x, axis=self.axis)
        one = cast_to(is_target, x.dtype)
        factor = (
            F.filled_like(x, value=1.0) if weight is None else F.broadcast_like(cast_to(weight, x.dtype), x)
        )
        row_weight = F.sum(one * factor, axis=self.axis, keepdims=True)
        cotangent = (probability - one) * (row_weight if weight is not None else 1)
        if self.label_smoothing:
            total_weight = F.sum(factor, axis=self.axis, keepdims=True)
            smooth = F.divide_by_count(probability * total_weight - factor, x, axis=(self.axis,))
            cotangent = cotangent * (1 - self.label_smoothing) + smooth * self.label_smoothing
        return F.where(F.not_equal(target, self.ignore_index), cotangent * dlosses, 0)


@op
class CrossEntropy(
    Classes,
    rule="x: float, target: int|float, weight?: fixed float -> y: x",
    positional=("ignore_index", "reduction", "label_smoothing"),
):
    """-weight[t] log(softmax(x)[t]): the loss of predicting class t by logits x; or -sum(weight t log(softmax(x))).

    x: float[n, c, ...], [c] or [n, c], the classes on axis 1 or the only one; target: integers [n, ...], those equal to
    ignore_index count nothing; or probabilities of x's shape; weight: float[c], or
    None, without a gradient; label_smoothing: this share of the target is spread over all classes; reduction: "sum" of
    all rows, "mean" (the sum divided by the sum of weight[t], or by the number of rows for probabilities), or "none".
    Returns x's dtype, 0-d or target's shape. Raises ShapeError if shapes do not fit, DTypeError for other types,
    ValueError for another reduction or a label_smoothing outside of 0..1; when computed, IndexError for another target
    outside of 0..c-1.
    Source: Szegedy et al. 2016, Rethinking the inception architecture (label smoothing); PyTorch's cross_entropy.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.cross_entropy(wf.tensor([[0., -1000.], [0., -1000.]]), wf.tensor([0, 1])).item()
    500.0
    """

    label_smoothing: float = 0.0

    def check(self) -> None:
        super().check()
        if not 0 <= self.label_smoothing <= 1:
            raise ValueError(f"cross_entropy: label_smoothing must be in 0..1, got {self.label_smoothing}")

    def check_target(self, x: TensorType, target: TensorType, rows: tuple[Any, ...]) -> None:
        if not target.dtype.is_floating:
            super().check_target(x, target, rows)
        elif target.shape != x.shape:
            fact = "probabilities must have the shape of x, and class numbers must be integers"
            raise self.fail(ShapeError, fact, x=x, target=target)

    def decompose(self, x: Any, target: Any, weight: Any) -> Any:
        is_soft = target.dtype.is_floating
        target, weight, axis = self.aligned(x, target, weight)
        if is_soft:
            losses = F.soft_cross_entropy_rows(
                x, target, weight, axis=axis, label_smoothing=self.label_smoothing
            )
            return self.reduced(losses, F.filled_like(losses, value=1.0), axis)
        losses, shares = F.cross_entropy_rows(
            x, target, weight, axis=axis, ignore_index=self.ignore_index, label_smoothing=self.label_smoothing
        )
        return self.reduced(losses, shares, axis)


class SoftRow(Op, public=False):
    """Base of row programs for targets that are probabilities."""

    axis: int
    label_smoothing: float = 0.0

    def parts(
        self, row: Row, x: TensorType, target: TensorType, weight: TensorType | None
    ) -> tuple[Scalar, Scalar]:
        """The element of x, and the weighted, smoothed one of target."""
        value = to_accumulation(e.load(0, x.dtype.name))
        target_share = e.cast(e.load(1, target.dtype.name), value.dtype)
        if self.label_smoothing:
            spread = self.label_smoothing / row.number(x.shape[self.axis], value.dtype)
            target_share = target_share * (1 - self.label_smoothing) + spread
        if weight is not None:
            target_share = target_share * e.cast(e.load(2, weight.dtype.name), value.dtype)
        return value, target_share


@op
class SoftCrossEntropyRows(SoftRow, outputs=("losses",)):
    """cross_entropy's loss of every row, for targets that are probabilities."""

    def infer(self, x: TensorType, target: TensorType, weight: TensorType | None = None) -> TensorType:
        return x.like([1 if d == self.axis else n for d, n in enumerate(x.shape)])

    def kernels(self, x: TensorType, target: TensorType, weight: TensorType | None = None) -> Iterator[Loop]:
        row = Row(inputs=3)
        value, target_share = self.parts(row, x, target, weight)
        top = row.max(value)
        spread = e.call("log", row.sum(e.call("exp", value - top)))
        row.once(0, e.cast(row.sum(target_share * ((top - value) + spread)), x.dtype.name))
        yield row.loop((self.axis,))

    def vjp(self, x: Any, target: Any, weight: Any, dlosses: Any) -> Any:
        dx = F.soft_cross_entropy_rows_gradient(x, target, weight, dlosses, **self.values())
        logs = F.log_softmax(x, axis=self.axis) * (self.label_smoothing - 1) * dlosses
        dtarget = cast_to(logs if weight is None else logs * weight, target.dtype)
        return dx, dtarget, None

    def decompose(self, x: Any, target: Any, weight: Any) -> Any:
        target_share = smoothed(self, x, target, weight)
        return F.sum(-target_share * F.log_softmax(x, axis=self.axis), axis=self.axis, keepdims=True)


def smoothed(row: SoftRow, x: Any, target: Any, weight: Any) -> Any:
    """The weighted, smoothed target, by operators."""
    target_share = cast_to(target, x.dtype)
    if row.label_smoothing:
        even = F.divide_by_count(F.filled_like(x, value=1.0), x, axis=(row.axis,))
        target_share = target_share * (1 - row.label_smoothing) + even * row.label_smoothing
    return target_share if weight is None else target_share * cast_to(weight, x.dtype)


@op
class SoftCrossEntropyRowsGradient(SoftRow, RowGradient):
    """The gradient of soft_cross_entropy_rows' x, by one program for each row."""

    def kernels(
        self, x: TensorType, target: TensorType, weight: TensorType | None, dlosses: TensorType
    ) -> Iterator[Loop]:
        row = Row(inputs=4)
        value, target_share = self.parts(row, x, target, weight)
        total = row.sum(target_share)
        powers = e.call("exp", value - row.max(value))
        cotangent = powers / row.sum(powers) * total - target_share
        row.each(e.cast(cotangent * to_accumulation(e.load(3, dlosses.dtype.name)), x.dtype.name))
        yield row.loop((self.axis,))

    def decompose(self, x: Any, target: Any, weight: Any, dlosses: Any) -> Any:
        target_share = smoothed(self, x, target, weight)
        total = F.sum(target_share, axis=self.axis, keepdims=True)
        return (F.softmax(x, axis=self.axis) * total - target_share) * dlosses


@op
class NllLoss(Classes, rule="x: float, target: int, weight?: float -> y: x"):
    """-weight[t] x[t]: the loss of predicting class t by logarithms of probabilities x.

    x: float[n, c, ...], [c] or [n, c], the classes on axis 1 or the only one; target: integers [n, ...], those equal to
    ignore_index count nothing; weight: float[c], or None; reduction: "sum" of all rows,
    "mean" (the sum divided by the sum of weight[t]), or "none". Returns x's dtype, 0-d or target's shape. Raises
    ShapeError if shapes do not fit, DTypeError for other types, ValueError for another reduction; when computed,
    IndexError for another target outside of 0..c-1. Source: PyTorch's nll_loss.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.nll_loss(wf.tensor([[-1., -2.], [-3., -4.]]), wf.tensor([0, 1])).item()
    2.5
    """

    def decompose(self, x: Any, target: Any, weight: Any) -> Any:
        target, _, axis = self.aligned(x, target, None)
        if x.shape[axis] == 0:  # all rows are ignored
            none = F.sum(x, axis=axis, keepdims=True)
            return self.reduced(none, none, axis)
        counts = F.not_equal(target, self.ignore_index)
        target = F.where(counts, target, 0)
        share: Any = 1.0 if weight is None else cast_to(F.take(weight, target, axis=0), x.dtype)
        losses = F.where(counts, -F.take_along_axis(x, target, axis=axis) * share, 0)
        return self.reduced(losses, cast_to(F.where(counts, share, 0.0), x.dtype), axis)
