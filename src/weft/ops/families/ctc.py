"""Connectionist temporal classification: the loss of sequences whose labels have no places."""

from __future__ import annotations

from typing import Any

from weft.base.dtype import int64
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.families.interpolation import steps
from weft.ops.families.margin_loss import RowLoss, wide
from weft.ops.loops import scan
from weft.ops.node import constant
from weft.ops.op import op
from weft.ops.pointwise import cast_to

IMPOSSIBLE = -1e30  # the logarithm of 0, of which sums and differences are numbers


@op
class CtcLoss(
    RowLoss,
    rule="log_probs: float, targets: int, input_lengths: int, target_lengths: int -> y: log_probs",
    positional=("blank", "reduction", "zero_infinity"),
):
    """-log of the probability that a sequence reads as its labels: of all paths that give them when repeated classes
    become one and blanks are left out.

    log_probs: float[t, n, c], logarithms of the classes' probabilities at each time; targets: integers [n, s], labels
    without blanks; input_lengths, target_lengths: integers [n], how many times and labels count; blank: the class of no
    label; reduction: "sum" or "none", or "mean": each sequence's loss divided by its number of labels (at least 1), and
    the mean of those; zero_infinity: 0 for sequences that are too short for their labels, else infinity, which has no
    gradient. Returns log_probs' dtype, 0-d or [n]. Labels beyond target_lengths may be any integers. Raises ShapeError
    if shapes do not fit, IndexError for a label that is not a class, ValueError for another reduction.
    Source: Graves et al. 2006, Connectionist temporal classification. The sum over paths runs forwards in time (alpha),
    and its gradient backwards (beta), with logarithms in float32 or float64.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> x = F.log_softmax(wf.zeros((2, 1, 3)))
    >>> F.ctc_loss(x, wf.tensor([[1]]), wf.tensor([2]), wf.tensor([1]), reduction="none")  # 1 1, 1 -, - 1: -log(3 / 9)
    tensor([1.0986123], dtype=float32, device=cpu:0)
    """

    blank: int = 0
    zero_infinity: bool = False

    def decompose(self, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any) -> Any:
        self.require_ndim(3, log_probs=log_probs)
        self.require_ndim(2, targets=targets)
        count, n, classes = log_probs.shape
        if targets.shape[0] != n:
            fact = f"{n} sequences need as many rows of targets"
            raise self.fail(ShapeError, fact, log_probs=log_probs.type, targets=targets.type)
        self.require_shape((n,), input_lengths=input_lengths, target_lengths=target_lengths)
        if not 0 <= self.blank < classes:
            raise self.fail(ShapeError, f"blank {self.blank} is not a class", log_probs=log_probs.type)
        labels, may_skip = self.extended(targets, target_lengths)
        every = F.broadcast_to(F.expand_dims(labels, axis=0), shape=(count, *labels.shape))
        emitted = F.maximum(F.take_along_axis(wide(log_probs), every, axis=-1), IMPOSSIBLE)

        def step(emitted: Any, counts: Any, alpha: Any, may_skip: Any) -> Any:
            by_one, by_two = (F.pad(alpha, (k, 0), value=IMPOSSIBLE) for k in (1, 2))
            stop = alpha.shape[-1]
            by_one, by_two = (F.slice(v, starts=(0,), stops=(stop,), axes=(-1,)) for v in (by_one, by_two))
            ways = F.logaddexp(F.logaddexp(alpha, by_one), F.where(may_skip, by_two, IMPOSSIBLE))
            return [F.where(counts, F.maximum(ways + emitted, IMPOSSIBLE), alpha)], []

        start = F.where(F.equal(F.places_like(labels, axis=-1), 0), constant(0, emitted.dtype), IMPOSSIBLE)
        lengths = F.reshape(cast_to(input_lengths, int64), shape=(1, n, 1))
        counts = F.reshape(steps(log_probs, count, int64), shape=(count, 1, 1)) < lengths
        (alpha,), _ = scan(step, [emitted, counts], [start], [may_skip])
        last = F.expand_dims(2 * cast_to(target_lengths, int64), axis=-1)
        ends = F.take_along_axis(alpha, last, axis=-1)
        before = F.take_along_axis(alpha, F.maximum(last - 1, 0), axis=-1)
        total = F.squeeze(F.logaddexp(ends, F.where(last > 0, before, IMPOSSIBLE)), axis=-1)
        beyond = 0.0 if self.zero_infinity else float("inf")
        losses = F.where(total > IMPOSSIBLE / 2, -total, beyond)
        if self.reduction == "mean":
            losses = losses / F.cast(F.maximum(target_lengths, 1), dtype=losses.dtype)
        return self.reduced(losses, log_probs)

    def extended(self, targets: Any, target_lengths: Any) -> tuple[Any, Any]:
        """The labels with blanks around each, [n, 2 s + 1], and where a path may skip the blank before one."""
        n, s = targets.shape
        lengths = F.expand_dims(cast_to(target_lengths, int64), axis=-1)
        blank = constant(self.blank, int64)
        labels = F.where(F.places_like(targets, axis=-1) < lengths, cast_to(targets, int64), blank)
        blanks = F.broadcast_to(blank, shape=(n, s))
        pairs = F.reshape(F.stack([blanks, labels], axis=-1), shape=(n, 2 * s))
        extended = F.pad(pairs, (0, 1), value=self.blank)
        before = F.pad(extended, (2, 0), value=self.blank)
        before = F.slice(before, starts=(0,), stops=(2 * s + 1,), axes=(-1,))
        is_label = F.not_equal(extended, self.blank)
        return extended, F.logical_and(is_label, F.not_equal(extended, before))


__all__ = ["CtcLoss"]
