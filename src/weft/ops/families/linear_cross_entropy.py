"""Cross entropy of a linear layer's results, whose logits are never in memory as a whole."""

from __future__ import annotations

import math
from typing import Any

from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.families.loss import check_reduction
from weft.ops.op import op
from weft.ops.pointwise import cast_to

CHUNK = 2**22  # logits that are in memory at a time, unless chunk_rows says how many
MOST_CHUNKS = 64


@op
class LinearCrossEntropy(
    Composed,
    family="loss",
    rule="x[*b,k]: float, weight[classes,k]: float, target[*b]: int, bias[classes]?: float, "
    "class_weight[classes]?: fixed float -> y: promote(x weight bias)",
    positional=("ignore_index", "reduction", "label_smoothing"),
):
    """cross_entropy(linear(x, weight, bias), target, class_weight), without the logits of all rows in memory.

    x: float[..., k]; weight: float[c, k]; target: integers [...], those equal to ignore_index count nothing; bias,
    class_weight: float[c], or None, class_weight without a gradient; reduction, label_smoothing: as cross_entropy's;
    chunk_rows: rows whose logits are computed at a time, forward and again backward; by default as many as give 4
    million logits, or a 64th of all rows if that is more. Without a known number of rows they are one chunk. Returns
    the promoted type, 0-d or target's shape. Raises ShapeError if shapes do not fit, DTypeError for other types,
    ValueError for another reduction, a label_smoothing outside of 0..1 or chunk_rows below 1; when computed, IndexError
    for another target outside of 0..c-1.
    Source: PyTorch's linear_cross_entropy; Wijmans et al. 2024, Cut your losses in large-vocabulary language models.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> weight = wf.tensor([[0., 9.], [1000., 9.]])
    >>> F.linear_cross_entropy(wf.tensor([[1., 0.]]), weight, wf.tensor([0])).item()
    1000.0
    """

    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0
    chunk_rows: int | None = None

    def check(self) -> None:
        check_reduction(self.name, self.reduction)
        if not 0 <= self.label_smoothing <= 1:
            raise ValueError(f"{self.name}: label_smoothing must be in 0..1, got {self.label_smoothing}")
        if self.chunk_rows is not None and self.chunk_rows < 1:
            raise ValueError(f"{self.name}: chunk_rows must be at least 1, got {self.chunk_rows}")

    def chunks(self, rows: Any, classes: Any) -> list[tuple[int, Any]]:
        """The first row of each chunk, and the one behind its last."""
        if not isinstance(rows, int) or not isinstance(classes, int):
            return [(0, rows)]
        size = self.chunk_rows or max(CHUNK // max(classes, 1), -(-rows // MOST_CHUNKS), 1)
        return [(k, min(k + size, rows)) for k in range(0, rows, size)] or [(0, rows)]

    def flat(self, x: Any, weight: Any, target: Any) -> tuple[Any, Any, list[tuple[int, Any]]]:
        """x [n, k], target [n, 1], and the chunks."""
        rows = math.prod(x.shape[:-1])
        x, target = F.reshape(x, shape=(rows, x.shape[-1])), F.reshape(target, shape=(rows, 1))
        return x, target, self.chunks(rows, weight.shape[0])

    @property
    def of_rows(self) -> dict[str, Any]:
        """The attributes of the operators of rows."""
        return {"axis": 1, "ignore_index": self.ignore_index, "label_smoothing": self.label_smoothing}

    def logits(self, x: Any, weight: Any, bias: Any, target: Any, chunk: tuple[int, Any]) -> tuple[Any, Any]:
        """Those of a chunk, and its checked targets [rows, 1]."""
        y = F.linear(part_of(x, chunk), weight, bias)
        label = F.squeeze(part_of(target, chunk), axis=1)
        label = F.check_labels(label, y, of=self.name, axis=1, ignore_index=self.ignore_index)
        return y, F.expand_dims(label, axis=1)

    def decompose(self, x: Any, weight: Any, target: Any, bias: Any = None, class_weight: Any = None) -> Any:
        lead = x.shape[:-1]
        x, target, chunks = self.flat(x, weight, target)
        parts = []
        for chunk in chunks:
            logits, label = self.logits(x, weight, bias, target, chunk)
            parts.append(F.cross_entropy_rows(logits, label, class_weight, **self.of_rows))
        losses, shares = (joined(list(each)) for each in zip(*parts, strict=True))
        if self.reduction == "none":
            return F.reshape(losses, shape=lead)
        total = F.sum(losses)
        return total if self.reduction == "sum" else total / F.sum(shares)

    def slopes_of_losses(self, rows: Any, target: Any, class_weight: Any, dy: Any) -> Any:
        """The gradient of the loss of each row, [n, 1]."""
        dlosses = cast_to(dy, dy.dtype.accumulation)
        if self.reduction == "none":
            return F.reshape(dlosses, shape=(rows, 1))
        if self.reduction == "mean":
            counts = F.not_equal(target, self.ignore_index)
            factor: Any = 1.0
            if class_weight is not None:
                factor = F.take(cast_to(class_weight, dlosses.dtype), F.where(counts, target, 0), axis=0)
            dlosses = dlosses / F.sum(cast_to(F.where(counts, factor, 0.0), dlosses.dtype))
        return F.broadcast_to(dlosses, shape=(rows, 1))

    def vjp(self, x: Any, weight: Any, target: Any, bias: Any, class_weight: Any, dy: Any) -> Any:
        """The logits of each chunk again, and their part of every gradient."""
        shape, kind = x.shape, dy.dtype.accumulation
        x, target, chunks = self.flat(x, weight, target)
        dlosses = self.slopes_of_losses(x.shape[0], target, class_weight, dy)
        dx, dweight, dbias = [], None, None
        for chunk in chunks:
            logits, label = self.logits(x, weight, bias, target, chunk)
            dloss = cast_to(part_of(dlosses, chunk), logits.dtype)
            slope = F.cross_entropy_rows_gradient(logits, label, class_weight, dloss, **self.of_rows)
            rows = cast_to(part_of(x, chunk), slope.dtype)
            dx.append(cast_to(F.matmul(slope, cast_to(weight, slope.dtype)), x.dtype))
            part = cast_to(F.matmul(F.permute_dims(slope, axes=(1, 0)), rows), kind)
            dweight = part if dweight is None else dweight + part
            if bias is not None:
                part = F.sum(cast_to(slope, kind), axis=0)
                dbias = part if dbias is None else dbias + part
        dbias = None if bias is None else cast_to(dbias, bias.dtype)
        return F.reshape(joined(dx), shape=shape), cast_to(dweight, weight.dtype), None, dbias, None


def part_of(x: Any, chunk: tuple[int, Any]) -> Any:
    """The rows of a chunk."""
    return F.slice(x, starts=chunk[:1], stops=chunk[1:])


def joined(parts: list[Any]) -> Any:
    """The rows of all chunks."""
    return F.concat(parts, axis=0) if len(parts) > 1 else parts[0]


__all__ = ["LinearCrossEntropy"]
