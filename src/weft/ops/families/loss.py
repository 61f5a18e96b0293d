"""Losses: how far predictions are from targets; those of classes are in cross_entropy.py."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from weft.base.dtype import DType
from weft.base.errors import ShapeError
from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops.families.activation import softplus_of
from weft.ops.kernels import Loop, Row, pointwise_loop, to_accumulation
from weft.ops.op import Op, Runtime, op
from weft.ops.pointwise import Pointwise, pointwise_gradients
from weft.ops.types import TensorType, broadcast_shapes, normalize_axes, promote

Scalar = e.Scalar
REDUCTIONS = ("mean", "sum", "none")


def check_reduction(name: str, reduction: str, accepted: tuple[str, ...] = REDUCTIONS) -> None:
    """Raise ValueError for a word that is not accepted."""
    if reduction not in accepted:
        raise ValueError(f"{name}: reduction must be one of {', '.join(accepted)}, got {reduction!r}")


class PointwiseLoss(Pointwise, family="loss", result="float", takes=("float",), positional=("reduction",)):
    """Base: a scalar function of prediction and target, and its mean or sum over all elements, in one program."""

    accepted: ClassVar[tuple[str, ...]] = REDUCTIONS
    reduction: str = "mean"

    def check(self) -> None:
        check_reduction(self.name, self.reduction, self.accepted)

    def compute_dtype(self, *inputs: TensorType | None) -> DType:
        """Half types are computed as float32: there is a sum to come."""
        return super().compute_dtype(*inputs).accumulation

    def infer(self, *inputs: TensorType | None) -> TensorType:
        x, target = inputs[:2]
        assert x is not None
        assert target is not None
        if x.shape != target.shape and not target.weak:
            raise self.fail(ShapeError, "x and target must have the same shape", x=x, target=target)
        full = super().infer(*inputs).like(dtype=super().compute_dtype(*inputs))
        if full.shape != x.shape:
            raise self.fail(ShapeError, f"weights do not fit the shape {x.shape}", x=x)
        return full if self.reduction == "none" else full.like(())

    def averaged(self, ndim: int) -> tuple[int, ...]:
        """The axes whose sizes the sum is divided by."""
        return tuple(range({"mean": ndim, "batchmean": min(ndim, 1)}.get(self.reduction, 0)))

    def kernels(self, *inputs: TensorType | None) -> Iterator[Loop]:
        numbers: list[Any] = []
        element = self.element(inputs, numbers)
        kind = super().compute_dtype(*inputs).name
        if self.reduction == "none":
            yield pointwise_loop(inputs, [e.cast(element, kind)], numbers)
            return
        x = inputs[0]
        assert x is not None
        row = Row(inputs=len(inputs), numbers=numbers)
        total = row.sum(element)
        if axes := self.averaged(x.ndim):
            total = total / row.number(math.prod(x.shape[d] for d in axes), total.dtype)
        row.once(0, e.cast(total, kind))
        yield row.loop(tuple(range(x.ndim)))

    def vjp(self, *values: Any) -> tuple[Any, ...]:
        """Of the element's function, with dy repeated."""
        *inputs, _, dy = values
        x = inputs[0]
        if self.reduction != "none":
            dy = F.broadcast_like(F.divide_by_count(dy, x, axis=self.averaged(x.ndim)), x)
        return self.element_vjp(inputs, dy)

    def element_vjp(self, inputs: list[Any], dy: Any) -> tuple[Any, ...]:
        """The gradients, from those of the elements."""
        elementwise = self.with_runtime({"reduction": "none"})
        y = inputs[0].__weft_apply__(type(self), tuple(inputs), self.values() | {"reduction": "none"})
        return pointwise_gradients(elementwise, inputs, y, dy)


@op
class MseLoss(PointwiseLoss):
    """(x - target)^2: the squared error.

    x, target: float[...] of one shape; reduction: "mean" or "sum" of all elements, or "none". Returns the promoted
    type, 0-d or of x's shape. Raises ShapeError if shapes differ, ValueError for another reduction.
    Source: Legendre 1805, Nouvelles méthodes pour la détermination des orbites des comètes.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.mse_loss(wf.tensor([1., 3.]), wf.tensor([1., 1.])).item()
    2.0
    """

    def scalar(self, x: Scalar, target: Scalar) -> Scalar:
        return (x - target) * (x - target)


@op
class L1Loss(PointwiseLoss):
    """|x - target|: the absolute error. The gradient at 0 is 0.

    x, target: float[...] of one shape; reduction: "mean" or "sum" of all elements, or "none". Returns the promoted
    type, 0-d or of x's shape. Raises ShapeError if shapes differ, ValueError for another reduction.
    Source: Boscovich 1757, De litteraria expeditione per pontificiam ditionem.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.l1_loss(wf.tensor([1., 3.]), wf.tensor([1., 1.])).item()
    1.0
    """

    def scalar(self, x: Scalar, target: Scalar) -> Scalar:
        return abs(x - target)


@op
class SmoothL1Loss(PointwiseLoss, positional=("reduction", "beta")):
    """|d| - beta / 2 where |d| >= beta, else d^2 / (2 beta), with d = x - target.

    x, target: float[...] of one shape; reduction: "mean" or "sum" of all elements, or "none"; beta: a number given when
    it runs, 0 for the absolute error. Returns the promoted type, 0-d or of x's shape. Raises ShapeError if shapes
    differ, ValueError for another reduction.
    Source: Girshick 2015, Fast R-CNN.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.smooth_l1_loss(wf.tensor([1., 3.]), wf.tensor([0., 0.]), reduction="none")
    tensor([0.5, 2.5], dtype=float32, device=cpu:0)
    """

    beta: Runtime[float] = 1.0

    def scalar(self, x: Scalar, target: Scalar) -> Scalar:
        apart = x - target
        size = abs(apart)
        return e.where(size < self.beta, apart * 0.5 * apart / self.beta, size - self.beta * 0.5)


@op
class HuberLoss(PointwiseLoss, positional=("reduction", "delta")):
    """delta (|d| - delta / 2) where |d| > delta, else d^2 / 2, with d = x - target.

    x, target: float[...] of one shape; reduction: "mean" or "sum" of all elements, or "none"; delta: a number given
    when it runs. Returns the promoted type, 0-d or of x's shape. Raises ShapeError if shapes differ, ValueError for
    another reduction.
    Source: Huber 1964, Robust estimation of a location parameter.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.huber_loss(wf.tensor([1., 3.]), wf.tensor([0., 0.]), reduction="none")
    tensor([0.5, 2.5], dtype=float32, device=cpu:0)
    """

    delta: Runtime[float] = 1.0

    def scalar(self, x: Scalar, target: Scalar) -> Scalar:
        apart = x - target
        size = abs(apart)
        return e.where(size <= self.delta, apart * 0.5 * apart, (size - self.delta * 0.5) * self.delta)


@op
class KlDiv(
    PointwiseLoss, accepted=("mean", "sum", "none", "batchmean"), positional=("reduction", "log_target")
):
    """target (log(target) - x): what x, logarithms of probabilities, lacks of the probabilities target.

    x, target: float[...] of one shape; reduction: "mean" or "sum" of all elements, "batchmean" (the sum divided by the
    size of axis 0), or "none"; log_target: target holds logarithms, too. Returns the promoted type, 0-d or of x's
    shape. 0 where target is 0. Raises ShapeError if shapes differ, ValueError for another reduction.
    Source: Kullback, Leibler 1951, On information and sufficiency.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.kl_div(wf.tensor([0., -1.]), wf.tensor([1., 0.]), reduction="sum").item()
    0.0
    """

    log_target: bool = False

    def scalar(self, x: Scalar, target: Scalar) -> Scalar:
        if self.log_target:
            return e.call("exp", target) * (target - x)
        zero = e.constant(0, x.dtype)
        return e.where(target == 0, zero, target * (e.call("log", target) - x))


@op
class BinaryCrossEntropy(PointwiseLoss):
    """-(target log(x) + (1 - target) log(1 - x)), with logarithms of at least -100.

    x: probabilities, float[...]; target: of the same shape; weight: factors that broadcast to it, or None; reduction:
    "mean" or "sum" of all elements, or "none". Returns the promoted type, 0-d or of x's shape. Raises ShapeError if
    shapes differ, ValueError for another reduction.
    Source: Good 1952, Rational decisions.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.binary_cross_entropy(wf.tensor([0., 1.]), wf.tensor([0., 0.]), reduction="none")
    tensor([  0., 100.], dtype=float32, device=cpu:0)
    """

    def scalar(self, x: Scalar, target: Scalar, weight: Scalar | None = None) -> Scalar:
        yes, no = (e.maximum(e.call(name, v), -100) for name, v in (("log", x), ("log1p", -x)))
        loss = -(target * yes + (1 - target) * no)
        return loss if weight is None else loss * weight

    def element_vjp(self, inputs: list[Any], dy: Any) -> tuple[Any, ...]:
        _, *others = super().element_vjp(inputs, dy)
        x, target, weight = inputs
        # Of each part alone: where target is 0 the loss is smooth at x = 0, and so at the other end.
        cotangent = dy * ((1 - target) / F.maximum(1 - x, 1e-12) - target / F.maximum(x, 1e-12))
        return cotangent if weight is None else cotangent * weight, *others


@op
class BinaryCrossEntropyWithLogits(PointwiseLoss):
    """binary_cross_entropy of sigmoid(x), finite for all finite x.

    x: float[...]; target: of the same shape; weight: factors that broadcast to it, or None; pos_weight: further ones
    for the part that target has, or None; reduction: "mean" or "sum" of all elements, or "none". Returns the promoted
    type, 0-d or of x's shape. Raises ShapeError if shapes differ, ValueError for another reduction.
    Source: PyTorch's binary_cross_entropy_with_logits.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.binary_cross_entropy_with_logits(wf.tensor([-200., 200.]), wf.tensor([0., 0.]), reduction="sum").item()
    200.0
    """

    def scalar(
        self, x: Scalar, target: Scalar, weight: Scalar | None = None, pos_weight: Scalar | None = None
    ) -> Scalar:
        softplus = softplus_of(-x)
        if pos_weight is not None:
            softplus = softplus * ((pos_weight - 1) * target + 1)
        loss = (1 - target) * x + softplus
        return loss if weight is None else loss * weight


@op
class SoftMarginLoss(PointwiseLoss):
    """log(1 + exp(-target x)): the logistic loss of targets 1 and -1.

    x, target: float[...] of one shape; reduction: "mean" or "sum" of all elements, or "none". Returns the promoted
    type, 0-d or of x's shape. Raises ShapeError if shapes differ, ValueError for another reduction.
    Source: PyTorch's soft_margin_loss.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.soft_margin_loss(wf.tensor([200., -200.]), wf.tensor([1., 1.]), reduction="none")
    tensor([  0., 200.], dtype=float32, device=cpu:0)
    """

    def scalar(self, x: Scalar, target: Scalar) -> Scalar:
        return softplus_of(-(target * x))


@op
class HingeLoss(PointwiseLoss, positional=("reduction", "norm")):
    """max(0, 1 - target x) for targets 1 and -1, or its square: the loss of support vector machines.

    x, target: float[...] of one shape; reduction: "mean" or "sum" of all elements, or "none"; norm: "L1", or "L2" for
    the square. Returns the promoted type, 0-d or of x's shape. Raises ShapeError if shapes differ, ValueError for
    another word. MegEngine's hinge_loss is the sum over axis 1 and the mean over axis 0.
    Source: Cortes, Vapnik 1995, Support-vector networks.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.hinge_loss(wf.tensor([2., -1.]), wf.tensor([1., 1.]), reduction="none")
    tensor([0., 2.], dtype=float32, device=cpu:0)
    """

    norm: str = "L1"

    def check(self) -> None:
        super().check()
        if self.norm not in ("L1", "L2"):
            raise ValueError(f"hinge_loss: norm must be L1 or L2, got {self.norm!r}")

    def scalar(self, x: Scalar, target: Scalar) -> Scalar:
        loss = e.maximum(1 - target * x, 0)
        return loss if self.norm == "L1" else loss * loss


@op
class HingeEmbeddingLoss(PointwiseLoss, positional=("margin", "reduction")):
    """x where target is 1, else max(0, margin - x): of distances x of pairs that are alike (1) or not (-1).

    x, target: float[...] of one shape; margin: a number given when it runs; reduction: "mean" or "sum" of all elements,
    or "none". Returns the promoted type, 0-d or of x's shape. Raises ShapeError if shapes differ, ValueError for
    another reduction.
    Source: Hadsell, Chopra, LeCun 2006, Dimensionality reduction by learning an invariant mapping.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.hinge_embedding_loss(wf.tensor([2., 0.25]), wf.tensor([1., -1.]), reduction="none")
    tensor([2.  , 0.75], dtype=float32, device=cpu:0)
    """

    margin: Runtime[float] = 1.0

    def scalar(self, x: Scalar, target: Scalar) -> Scalar:
        return e.where(target == 1, x, e.maximum(-x + self.margin, 0))


@op
class MarginRankingLoss(PointwiseLoss, positional=("margin", "reduction")):
    """max(0, margin - target (x1 - x2)): target 1 where x1 should be greater than x2, -1 where it should be less.

    x1, x2: float[...] of one shape; target: fits it by broadcasting; margin: a number given when it runs; reduction:
    "mean" or "sum" of all elements, or "none". Returns the promoted type, 0-d or of x1's shape. Raises ShapeError if
    shapes differ, ValueError for another reduction.
    Source: Herbrich, Graepel, Obermayer 1999, Support vector learning for ordinal regression.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.margin_ranking_loss(wf.tensor([2.]), wf.tensor([1.5]), wf.tensor([1.]), margin=1.).item()
    0.5
    """

    margin: Runtime[float] = 0.0

    def scalar(self, x1: Scalar, x2: Scalar, target: Scalar) -> Scalar:
        return e.maximum(-(target * (x1 - x2)) + self.margin, 0)


@op
class PoissonNllLoss(PointwiseLoss, positional=("log_input", "full", "eps", "reduction")):
    """exp(x) - target x: what a Poisson distribution of mean exp(x) lacks of the counts target.

    x, target: float[...] of one shape; log_input=False: x is the mean itself, and the loss x - target log(x + eps);
    full: Stirling's approximation of log(target!) is added where target > 1; eps: a number given when it runs;
    reduction: "mean" or "sum" of all elements, or "none". Returns the promoted type, 0-d or of x's shape. Raises
    ShapeError if shapes differ, ValueError for another reduction.
    Source: PyTorch's poisson_nll_loss.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.poisson_nll_loss(wf.tensor([0.]), wf.tensor([3.])).item()
    1.0
    """

    log_input: bool = True
    full: bool = False
    eps: Runtime[float] = 1e-8

    def scalar(self, x: Scalar, target: Scalar) -> Scalar:
        loss = e.call("exp", x) - target * x if self.log_input else x - target * e.call("log", x + self.eps)
        if not self.full:
            return loss
        count = e.maximum(target, 1)
        rest = count * e.call("log", count) - count + e.call("log", count * (2 * math.pi)) * 0.5
        return loss + e.where(target > 1, rest, e.constant(0, x.dtype))


@op
class GaussianNllLoss(PointwiseLoss, positional=("full", "eps", "reduction")):
    """(log(v) + (x - target)^2 / v) / 2 with v = max(var, eps): what a normal distribution lacks of the target.

    x, target: float[...] of one shape, x the means; var: the variances, fit it by broadcasting; full: log(2 pi) / 2 is
    added; eps: a number given when it runs; reduction: "mean" or "sum" of all elements, or "none". Returns the promoted
    type, 0-d or of x's shape. Where var < eps it has no gradient. Raises ShapeError if shapes differ, ValueError for
    another reduction.
    Source: Nix, Weigend 1994, Estimating the mean and variance of the target probability distribution.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.gaussian_nll_loss(wf.tensor([3.]), wf.tensor([1.]), wf.tensor([1.])).item()
    2.0
    """

    full: bool = False
    eps: Runtime[float] = 1e-6

    def scalar(self, x: Scalar, target: Scalar, var: Scalar) -> Scalar:
        variance = e.where(var > self.eps, var, self.eps)  # without a gradient at eps, too
        loss = (e.call("log", variance) + (x - target) * (x - target) / variance) * 0.5
        return loss + 0.5 * math.log(2 * math.pi) if self.full else loss


@op
class CosineSimilarity(
    Op, family="loss", rule="x1: float, x2: float -> y: promote", positional=("axis", "eps")
):
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along an axis.

    x1, x2: float[..., n, ...], shapes fit by broadcasting; axis: which n; eps: a number given when it runs. Returns the
    promoted type without that axis. Raises ShapeError if shapes do not fit, IndexError if the axis is out of range,
    DTypeError for integers.
    Source: PyTorch's cosine_similarity.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.cosine_similarity(wf.tensor([[3., 4.]]), wf.tensor([[4., 3.]]), eps=0.).shape
    (1,)
    """

    axis: int = 1
    eps: Runtime[float] = 1e-8

    def infer(self, x1: TensorType, x2: TensorType) -> TensorType:
        self.require_floats(x1=x1, x2=x2)
        shape = broadcast_shapes(self.name, {"x1": x1, "x2": x2})
        (axis,) = normalize_axes(self.name, self.axis, len(shape))
        return x1.like([n for d, n in enumerate(shape) if d != axis], promote(x1, x2))

    def kernels(self, x1: TensorType, x2: TensorType) -> Iterator[Loop]:
        common = promote(x1, x2).name
        row = Row(inputs=2)
        a, b = (to_accumulation(e.cast(e.load(k, t.dtype.name), common)) for k, t in enumerate((x1, x2)))
        along, first, second = row.dot(a, b), row.dot(a, a), row.dot(b, b)
        eps = row.number(self.eps, a.dtype)
        long = [e.maximum(e.call("sqrt", v), eps) for v in (first, second)]
        row.once(0, e.cast(along / (long[0] * long[1]), common))
        yield row.loop(normalize_axes(self.name, self.axis, max(x1.ndim, x2.ndim)))

    def decompose(self, x1: Any, x2: Any) -> Any:
        x1, x2 = F.broadcast_arrays(x1, x2)
        lengths = [F.maximum(F.vector_norm(v, axis=self.axis), self.eps) for v in (x1, x2)]
        return F.sum(x1 * x2, axis=self.axis) / (lengths[0] * lengths[1])
