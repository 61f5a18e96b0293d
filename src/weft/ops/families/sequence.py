"""Sequences of several lengths in one array: what is beyond an end, the last element, the order."""

from __future__ import annotations

from typing import Any

from weft.base.dtype import int64
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.families.interpolation import steps
from weft.ops.op import Runtime, op
from weft.ops.pointwise import cast_to


class OfSequences(Composed, family="sequence", rule="x, lengths: int -> y: x", positional=("axis",)):
    """Base: x [t, n, ...], or [n, t, ...] with axis=1, and the lengths [n] along t."""

    axis: int = 0

    def check(self) -> None:
        if self.axis not in (0, 1):
            raise ValueError(f"{self.name}: axis must be 0 or 1, got {self.axis}")

    def along(self, x: Any, lengths: Any) -> Any:
        """The lengths as int64, so that they broadcast to x. Raises ShapeError unless each sequence has one."""
        if x.ndim < 2 or tuple(lengths.shape) != (x.shape[1 - self.axis],):
            fact = "needs one length for each sequence"
            raise self.fail(ShapeError, fact, x=x.type, lengths=lengths.type)
        shape = (1, -1) if self.axis == 0 else (-1, 1)
        return F.reshape(cast_to(lengths, int64), shape=(*shape, *(1,) * (x.ndim - 2)))


@op
class SequenceMask(OfSequences, positional=("value", "axis")):
    """x with value beyond the end of each sequence.

    x: [t, n, ...], or [n, t, ...] with axis=1; lengths: integers [n]; value: a number given when it runs. Returns x's
    shape and dtype. Raises ShapeError unless there is a length for each sequence.
    Source: MXNet's SequenceMask.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.sequence_mask(wf.ones((2, 2)), wf.tensor([1, 2]))
    tensor([[1., 1.],
            [0., 1.]], dtype=float32, device=cpu:0)
    """

    value: Runtime[float] = 0.0

    def decompose(self, x: Any, lengths: Any) -> Any:
        is_beyond = F.places_like(x, axis=self.axis) >= self.along(x, lengths)
        return F.masked_fill(x, is_beyond, value=self.value)


@op
class SequenceLast(OfSequences):
    """The last element of each sequence: x[lengths[i] - 1, i, ...].

    x: [t, n, ...], or [n, t, ...] with axis=1; lengths: integers [n], 1 ... t. Returns x's dtype, [n, ...]. Raises
    ShapeError unless there is a length for each sequence, IndexError for a length beyond t.
    Source: MXNet's SequenceLast.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.sequence_last(wf.tensor([[1, 2], [3, 4]]), wf.tensor([1, 2]))
    tensor([1, 4], dtype=int64, device=cpu:0)
    """

    def decompose(self, x: Any, lengths: Any) -> Any:
        self.along(x, lengths)
        last = cast_to(lengths, int64) - 1
        numbers = F.places_like(last, axis=0)
        indices = (last, numbers) if self.axis == 0 else (numbers, last)
        return F.index_get(x, *indices, axes=(0, 1), position=0)


@op
class SequenceReverse(OfSequences):
    """Each sequence backwards; what is beyond its end stays.

    x: [t, n, ...], or [n, t, ...] with axis=1; lengths: integers [n]. Returns x's shape and dtype. Raises ShapeError
    unless there is a length for each sequence, IndexError for a length beyond t.
    Source: MXNet's SequenceReverse.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.sequence_reverse(wf.tensor([[1, 2], [3, 4]]), wf.tensor([1, 2]))
    tensor([[1, 4],
            [3, 2]], dtype=int64, device=cpu:0)
    """

    def decompose(self, x: Any, lengths: Any) -> Any:
        ends = self.along(x, lengths)
        place = F.places_like(x, axis=self.axis)
        return F.take_along_axis(x, F.where(place < ends, ends - 1 - place, place), axis=self.axis)


@op
class EmbeddingBag(
    Composed,
    family="indexing",
    rule="indices: int, table: float, offsets?: int, weights?: float -> y: table",
    positional=("indices", "table", "offsets", "weights", "mode"),
):
    """Sums, averages or maxima of a table's rows: of each row of indices, or of runs of them.

    indices: integers [n, k], a bag in each row; or [k] with offsets: integers [n], where each bag begins in it, in
    order, the first 0; table: float[m, d]; weights: factors of the rows, of indices' shape, for mode "sum", or None.
    mode: "sum", "mean" (of an empty bag 0), or "max" (of bags in rows). Returns the table's dtype, [n, d]. Raises
    ShapeError if shapes do not fit, IndexError for an index out of range, ValueError for what a mode does not take.
    Source: PyTorch's embedding_bag.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.embedding_bag(wf.tensor([0, 1, 1]), wf.tensor([[1.], [3.]]), wf.tensor([0, 2]))
    tensor([[2.],
            [3.]], dtype=float32, device=cpu:0)
    """

    mode: str = "mean"

    def check(self) -> None:
        if self.mode not in ("sum", "mean", "max"):
            raise ValueError(f"embedding_bag: mode must be sum, mean or max, got {self.mode!r}")

    def decompose(self, indices: Any, table: Any, offsets: Any = None, weights: Any = None) -> Any:
        self.require_ndim(2, table=table)
        self.require_ndim(2 if offsets is None else 1, indices=indices)
        if weights is not None and self.mode != "sum":
            raise ValueError(f"embedding_bag: weights are for mode='sum', got mode={self.mode!r}")
        if weights is not None and weights.shape != indices.shape:
            raise self.fail(ShapeError, "shapes differ", indices=indices.type, weights=weights.type)
        kind = table.dtype.accumulation
        rows = cast_to(F.take(table, indices, axis=0), kind)
        if weights is not None:
            rows = rows * F.expand_dims(cast_to(weights, kind), axis=-1)
        if offsets is not None:
            return cast_to(self.of_runs(rows, offsets), table.dtype)
        if self.mode == "max":
            return cast_to(F.max(rows, axis=1), table.dtype)
        count = max(indices.shape[1], 1) if self.mode == "mean" else 1
        return cast_to(F.sum(rows, axis=1) / count, table.dtype)

    def of_runs(self, rows: Any, offsets: Any) -> Any:
        """Sums or means of rows [k, d] from each offset to the next: [n, d]."""
        if self.mode == "max":
            raise NotImplementedError("embedding_bag: mode='max' takes bags as rows of indices, not offsets")
        self.require_ndim(1, offsets=offsets)
        starts = F.index_put(self.zeros(rows, rows.shape[0] + 1, int64), 1, offsets, axes=(0,), mode="add")
        bag = F.slice(F.cumulative_sum(starts), starts=(0,), stops=(rows.shape[0],)) - 1
        shape = (offsets.shape[0], rows.shape[1])
        zeros = F.broadcast_to(self.zeros(rows, 1, rows.dtype), shape=shape)
        total = F.index_put(zeros, rows, bag, axes=(0,), mode="add")
        if self.mode == "sum":
            return total
        count = F.index_put(self.zeros(rows, shape[0], rows.dtype), 1, bag, axes=(0,), mode="add")
        return total / F.expand_dims(F.maximum(count, 1), axis=-1)

    def zeros(self, like: Any, count: Any, dtype: Any) -> Any:
        """So many zeros, where `like` is."""
        return steps(like, count, dtype) * 0


__all__ = ["EmbeddingBag", "SequenceLast", "SequenceMask", "SequenceReverse"]
