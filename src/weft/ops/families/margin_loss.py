"""Losses of rows: margins between classes, and distances between embeddings."""

from __future__ import annotations

import math
from typing import Any

from weft.base.dtype import int64
from weft.base.errors import DTypeError, ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.families.loss import REDUCTIONS, check_reduction
from weft.ops.op import Runtime, op
from weft.ops.pointwise import cast_to
from weft.ops.types import promote


class RowLoss(Composed, family="loss"):
    """Base: one loss for each row, computed in the type that sums are kept in, and their mean or sum."""

    reduction: str = "mean"

    def check(self) -> None:
        check_reduction(self.name, self.reduction, REDUCTIONS)

    def reduced(self, losses: Any, like: Any) -> Any:
        """The mean, the sum or all losses, in like's dtype."""
        if self.reduction != "none":
            losses = F.mean(losses) if self.reduction == "mean" else F.sum(losses)
        return cast_to(losses, like.dtype)

    def require_shape(self, shape: tuple[Any, ...], **operands: Any) -> None:
        """Raise ShapeError unless all have this shape."""
        if any(tuple(x.shape) != tuple(shape) for x in operands.values()):
            types = {name: x.type for name, x in operands.items()}
            raise self.fail(ShapeError, f"{' and '.join(operands)} must have the shape {shape}", **types)


def wide(x: Any) -> Any:
    """x in the type that its sums are kept in."""
    return cast_to(x, x.dtype.accumulation)


def norm_of(x: Any, p: float) -> Any:
    """The p-norm along the last axis."""
    return F.vector_norm(x, axis=-1, ord=p)


@op
class PairwiseDistance(
    Composed, family="loss", rule="x1: float, x2: float -> y: promote", positional=("p", "eps", "keepdims")
):
    """The p-norm of x1 - x2 + eps along the last axis.

    x1, x2: float[..., d], shapes fit by broadcasting; p: as vector_norm's ord; eps: a number given when it runs;
    keepdims: leave a size of 1. Returns the promoted type [...]. Raises ShapeError if shapes do not fit, DTypeError for
    integers.
    Source: PyTorch's pairwise_distance.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.pairwise_distance(wf.tensor([[3., 4.]]), wf.zeros((1, 2)), eps=0.)
    tensor([5.], dtype=float32, device=cpu:0)
    """

    p: float = 2.0
    eps: Runtime[float] = 1e-6
    keepdims: bool = False

    def decompose(self, x1: Any, x2: Any) -> Any:
        apart = x1 - x2 + self.eps
        return F.vector_norm(apart, axis=-1, ord=self.p, keepdims=self.keepdims)


@op
class Cdist(Composed, family="loss", rule="x1: float, x2: float -> y: promote", positional=("p",)):
    """The p-norms of the differences of all pairs of rows of x1 and x2.

    x1: float[..., n, d]; x2: float[..., m, d], leading sizes fit by broadcasting; p: as vector_norm's ord. Returns the
    promoted type, [..., n, m]. All are computed from the differences, which needs no memory for them. Raises ShapeError
    if sizes do not fit, DTypeError for integers.
    Source: SciPy's cdist; PyTorch's cdist.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.cdist(wf.tensor([[0., 0.], [3., 0.]]), wf.tensor([[0., 4.]]))
    tensor([[4.],
            [5.]], dtype=float32, device=cpu:0)
    """

    p: float = 2.0

    def decompose(self, x1: Any, x2: Any) -> Any:
        if min(x1.ndim, x2.ndim) < 2 or x1.shape[-1] != x2.shape[-1]:
            fact = "needs matrices with as many columns"
            raise self.fail(ShapeError, fact, x1=x1.type, x2=x2.type)
        return norm_of(F.expand_dims(x1, axis=-2) - F.expand_dims(x2, axis=-3), self.p)


@op
class Pdist(Composed, family="loss", rule="x: float -> y: x", positional=("p",)):
    """The p-norms of the differences of all pairs of rows: cdist(x, x) above its diagonal, row by row.

    x: float[n, d]; p: as vector_norm's ord. Returns x's dtype, [n (n - 1) / 2]. Raises ShapeError for other than 2
    dimensions, DTypeError for integers.
    Source: SciPy's pdist; PyTorch's pdist.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.pdist(wf.tensor([[0.], [1.], [3.]]))
    tensor([1., 3., 2.], dtype=float32, device=cpu:0)
    """

    p: float = 2.0

    def decompose(self, x: Any) -> Any:
        self.require_ndim(2, x=x)
        n = int(x.shape[0])
        parts = []
        for k in range(n - 1):  # views: what is written are the distances alone
            row = F.slice(x, starts=(k,), stops=(k + 1,))
            parts.append(norm_of(row - F.slice(x, starts=(k + 1,), stops=(n,)), self.p))
        return F.concat(parts) if parts else F.slice(F.reshape(x, shape=(-1,)), starts=(0,), stops=(0,))


@op
class CosineEmbeddingLoss(
    RowLoss,
    rule="x1: float, x2: float, target: int|float -> y: promote(x1 x2)",
    positional=("margin", "reduction"),
):
    """1 - cos(x1, x2) where target is 1, max(0, cos(x1, x2) - margin) where it is -1.

    x1, x2: float[n, d] or [d]; target: numbers [n] or 0-d; margin: a number given when it runs; reduction: "mean" or
    "sum" of all rows, or "none". Returns the promoted type, 0-d or [n]. Norms are those of x^2 + 1e-12. Raises
    ShapeError if shapes do not fit, ValueError for another reduction.
    Source: PyTorch's cosine_embedding_loss.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.cosine_embedding_loss(wf.tensor([[1., 0.]]), wf.tensor([[0., 1.]]), wf.tensor([1])).item()
    1.0
    """

    margin: Runtime[float] = 0.0

    def decompose(self, x1: Any, x2: Any, target: Any) -> Any:
        self.require_ndim(1, 2, x1=x1)
        self.require_shape(x1.shape, x2=x2)
        self.require_shape(x1.shape[:-1], target=target)
        like = F.add(x1, x2)
        a, b = wide(x1), wide(x2)
        squares = (F.sum(a * a, axis=-1) + 1e-12) * (F.sum(b * b, axis=-1) + 1e-12)
        cosine = F.sum(a * b, axis=-1) / F.sqrt(squares)
        apart = F.where(F.equal(target, -1), F.maximum(cosine - self.margin, 0.0), 0.0)
        return self.reduced(F.where(F.equal(target, 1), 1 - cosine, apart), like)


@op
class TripletMarginLoss(
    RowLoss,
    rule="anchor: float, positive: float, negative: float -> y: promote",
    positional=("margin", "p", "eps", "swap", "reduction"),
):
    """max(0, |anchor - positive| - |anchor - negative| + margin), with pairwise_distance's norms.

    anchor, positive, negative: float[..., d], shapes fit by broadcasting; margin, eps: numbers given when it runs; p:
    the norm; swap: the lesser one of the negative's distances to anchor and positive; reduction: "mean" or "sum" of all
    rows, or "none". Returns the promoted type, 0-d or [...]. Raises ShapeError if shapes do not fit, ValueError for
    another reduction.
    Source: Schroff, Kalenichenko, Philbin 2015, FaceNet; Balntas et al. 2016 (swap).

    >>> import weft as wf
    >>> import weft.functional as F
    >>> x = wf.zeros((1, 2))
    >>> F.triplet_margin_loss(x, x, x + 3., eps=0.).item()
    0.0
    """

    margin: Runtime[float] = 1.0
    p: float = 2.0
    eps: Runtime[float] = 1e-6
    swap: bool = False

    def decompose(self, anchor: Any, positive: Any, negative: Any) -> Any:
        def distance(a: Any, b: Any) -> Any:
            return norm_of(wide(a) - wide(b) + self.eps, self.p)

        far = distance(anchor, negative)
        if self.swap:
            far = F.minimum(far, distance(positive, negative))
        loss = F.maximum(distance(anchor, positive) - far + self.margin, 0.0)
        common = promote(anchor.type, positive.type, negative.type)
        return self.reduced(loss, F.cast(anchor, dtype=common))


@op
class SdmlLoss(
    RowLoss, rule="x1[n,d]: float, x2[n,d]: float -> y: promote", positional=("smoothing", "reduction")
):
    """How little each row of x1 picks its own row of x2 among all: smoothed deep metric learning.

    The divergence of softmax(-d), d[j] = |x1[i] - x2[j]|^2, from the target with 1 - smoothing at i and smoothing / (n
    - 1) at the others. x1, x2: float[n, d], row i of both belong together; smoothing: 0 <= s < 1; reduction: "mean" or
    "sum" of all rows, or "none". Returns the promoted type, 0-d or [n]. Raises ShapeError if shapes differ, ValueError
    for another reduction or smoothing.
    Source: Bonadiman, Kumar, Mittal 2019, Large scale question paraphrase retrieval with smoothed deep metric learning.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> x = wf.tensor([[0., 0.], [40., 0.]])
    >>> F.sdml_loss(x, x, 0.0).item(), F.sdml_loss(x, wf.flip(x, axis=0), 0.0).item()
    (0.0, 1600.0)
    """

    smoothing: float = 0.3

    def check(self) -> None:
        super().check()
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"{self.name}: smoothing must be at least 0 and below 1, got {self.smoothing}")

    def decompose(self, x1: Any, x2: Any) -> Any:
        like = F.add(x1, x2)
        apart = F.expand_dims(wide(x1), axis=1) - F.expand_dims(wide(x2), axis=0)
        logs = F.log_softmax(-F.sum(apart * apart, axis=2), axis=1)
        others = self.smoothing / max(x1.shape[0] - 1, 1)
        is_own = F.equal(F.places_like(logs, axis=0), F.places_like(logs, axis=1))
        shares = F.where(is_own, logs * (1 - self.smoothing), logs * others)
        entropy = xlogx(1 - self.smoothing) + (x1.shape[0] - 1) * xlogx(others)
        return self.reduced(entropy - F.sum(shares, axis=1), like)


def xlogx(x: float) -> float:
    """x log(x), 0 at 0."""
    return x * math.log(x) if x else 0.0


class ClassMargin(RowLoss):
    """Base of losses of scores [n, c] or [c] and classes."""

    def require_scores(self, x: Any, target: Any, shape: tuple[Any, ...]) -> None:
        self.require_ndim(1, 2, x=x)
        self.require_shape(shape, target=target)
        if not target.dtype.is_integer:
            raise self.fail(DTypeError, "target must be integers", x=x.type, target=target.type)


@op
class MultiMarginLoss(
    ClassMargin,
    rule="x: float, target: int, weight?: float -> y: x",
    positional=("x", "target", "p", "margin", "weight", "reduction"),
):
    """The mean over classes i of max(0, margin - x[target] + x[i])^p, i unlike target.

    x: float[n, c] or [c]; target: integers [n] or 0-d, the classes; p: 1 or 2; margin: a number given when it runs;
    weight: float[c], factors of the classes, or None; reduction: "mean" or "sum" of all rows, or "none". Returns x's
    dtype, 0-d or of target's shape. Raises ShapeError if shapes do not fit, IndexError for a class that is not there,
    ValueError for attributes out of range.
    Source: Crammer, Singer 2001, On the algorithmic implementation of multiclass kernel-based vector machines.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.multi_margin_loss(wf.tensor([[0., 2., 1.5, 0.]]), wf.tensor([1])).item()
    0.125
    """

    p: int = 1
    margin: Runtime[float] = 1.0

    def check(self) -> None:
        super().check()
        if self.p not in (1, 2):
            raise ValueError(f"multi_margin_loss: p must be 1 or 2, got {self.p}")

    def decompose(self, x: Any, target: Any, weight: Any = None) -> Any:
        self.require_scores(x, target, x.shape[:-1])
        chosen = F.expand_dims(target, axis=-1)
        scores = wide(x)
        loss = F.maximum(scores - F.take_along_axis(scores, chosen, axis=-1) + self.margin, 0.0)
        loss = loss if self.p == 1 else loss * loss
        loss = F.where(F.equal(F.places_like(x, axis=-1), cast_to(chosen, int64)), 0.0, loss)
        loss = F.sum(loss, axis=-1) / x.shape[-1]
        if weight is not None:
            self.require_shape((x.shape[-1],), weight=weight)
            loss = loss * F.take(wide(weight), target)
        return self.reduced(loss, x)


@op
class MultilabelMarginLoss(ClassMargin, rule="x: float, target: int -> y: x", positional=("reduction",)):
    """The sum over classes i, unlike all of the targets, and targets j of max(0, 1 - x[j] + x[i]), divided by c.

    x: float[n, c] or [c]; target: integers of the same shape, the classes of a row up to the first -1; reduction:
    "mean" or "sum" of all rows, or "none". Returns x's dtype, 0-d or [n]. Raises ShapeError if shapes differ,
    IndexError for a class that is not there, ValueError for another reduction.
    Source: PyTorch's multilabel_margin_loss.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.multilabel_margin_loss(wf.tensor([0.5, 0., 0.]), wf.tensor([0, -1, -1])).item()
    0.333...
    """

    def decompose(self, x: Any, target: Any) -> Any:
        self.require_scores(x, target, x.shape)
        scores = wide(x)
        counts = F.equal(F.cumulative_sum(F.cast(target < 0, dtype=int64), axis=-1), 0)  # before the first -1
        labels = F.where(counts, cast_to(target, int64), 0)
        # Whether a class is a target: [..., class, place of the target].
        at = F.expand_dims(F.places_like(x, axis=-1), axis=-1)
        hits = F.logical_and(F.equal(at, F.expand_dims(labels, axis=-2)), F.expand_dims(counts, axis=-2))
        is_other = F.logical_not(F.any(hits, axis=-1, keepdims=True))
        chosen = F.expand_dims(F.take_along_axis(scores, labels, axis=-1), axis=-2)
        loss = F.maximum(F.expand_dims(scores, axis=-1) - chosen + 1, 0.0)
        loss = F.where(F.logical_and(is_other, F.expand_dims(counts, axis=-2)), loss, 0.0)
        return self.reduced(F.sum(loss, axis=(-2, -1)) / x.shape[-1], x)


@op
class MultilabelSoftMarginLoss(
    RowLoss,
    rule="x: float, target: float, weight?: float -> y: promote(x target)",
    positional=("x", "target", "weight", "reduction"),
):
    """The mean over classes of binary_cross_entropy_with_logits(x, target).

    x, target: float[..., c] of one shape; weight: float[c], factors of the classes, or None; reduction: "mean" or "sum"
    of all rows, or "none". Returns the promoted type, 0-d or [...]. Raises ShapeError if shapes differ, ValueError for
    another reduction.
    Source: PyTorch's multilabel_soft_margin_loss.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.multilabel_soft_margin_loss(wf.tensor([[-200., 200.]]), wf.tensor([[0., 0.]])).item()
    100.0
    """

    def decompose(self, x: Any, target: Any, weight: Any = None) -> Any:
        self.require_shape(x.shape, target=target)
        if x.ndim < 1:
            raise self.fail(ShapeError, "x needs at least 1 dimension", x=x.type)
        like = F.add(x, target)
        loss = F.binary_cross_entropy_with_logits(wide(x), wide(target), weight, reduction="none")
        return self.reduced(F.mean(loss, axis=-1), like)


__all__ = [
    "Cdist",
    "CosineEmbeddingLoss",
    "MultiMarginLoss",
    "MultilabelMarginLoss",
    "MultilabelSoftMarginLoss",
    "PairwiseDistance",
    "Pdist",
    "SdmlLoss",
    "TripletMarginLoss",
]
