"""Metrics of classification: scores [n, ..., c] or classes against targets, integers; lists and arrays, too."""

from __future__ import annotations

from typing import Any

from weft import _core
from weft import functional as F
from weft.arrays.creation import asarray, zeros
from weft.arrays.tensor import Tensor
from weft.base.errors import DTypeError, ShapeError
from weft.metrics.metric import Metric, Sum

__all__ = ["Accuracy", "ConfusionMatrix", "F1Score", "TopKAccuracy"]


def _check(metric: Metric, x: Tensor, target: Tensor, scores: bool) -> None:
    """scores: x has one dimension more than target, the classes."""
    listed = f"x is {_core.describe(x)}, target is {_core.describe(target)}"
    if not target.dtype.is_integer:
        raise DTypeError(f"{type(metric).__name__}: targets are integers: {listed}")
    if (x.shape[:-1] if scores else x.shape) != target.shape:
        raise ShapeError(f"{type(metric).__name__}: shapes do not fit: {listed}")


def _classes(metric: Metric, x: Tensor, target: Tensor) -> Tensor:
    """Predicted classes: x itself if it has integers, else where the scores are greatest."""
    is_scores = x.dtype.is_floating
    _check(metric, x, target, is_scores)
    return F.argmax(x, axis=-1) if is_scores else x


class Accuracy(Metric):
    """The share of targets that were predicted: update(x, target).

    x: scores, float[..., c], whose greatest counts, or classes, int[...]; target: int[...]. NaN before the first.
    Raises ShapeError if shapes do not fit, DTypeError unless targets are integers.

    >>> import weft as wf
    >>> accuracy = Accuracy()
    >>> accuracy.update(wf.tensor([0, 2, 1, 1]), wf.tensor([0, 2, 1, 0]))
    >>> accuracy.compute()
    0.75
    """

    def reset(self) -> None:
        self._right, self._count = Sum(), 0

    def add(self, x: Tensor, target: Tensor) -> None:
        x, target = asarray(x), asarray(target)
        self._right.add(F.equal(_classes(self, x, target), target))
        self._count += target.size

    def compute(self) -> float:
        return self._right.item() / self._count if self._count else float("nan")


class TopKAccuracy(Metric):
    """The share of targets that are among the k greatest scores: update(x, target), x: float[..., c].

    Raises ValueError unless k is at least 1, ShapeError if shapes do not fit or there are fewer than k classes.

    >>> import weft as wf
    >>> accuracy = TopKAccuracy(2)
    >>> accuracy.update(wf.tensor([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]]), wf.tensor([1, 2]))
    >>> accuracy.compute()
    0.5
    """

    def __init__(self, k: int) -> None:
        if k < 1:
            raise ValueError(f"TopKAccuracy: k must be at least 1, got {k}")
        self.k = k
        super().__init__()

    def reset(self) -> None:
        self._right, self._count = Sum(), 0

    def add(self, x: Tensor, target: Tensor) -> None:
        x, target = asarray(x), asarray(target)
        _check(self, x, target, scores=True)
        if x.shape[-1] < self.k:
            raise ShapeError(f"TopKAccuracy: fewer than {self.k} classes: x is {_core.describe(x)}")
        best = F.topk(x, self.k)[1]
        self._right.add(F.equal(best, F.expand_dims(target, axis=-1)))
        self._count += target.size

    def compute(self) -> float:
        return self._right.item() / self._count if self._count else float("nan")


class ConfusionMatrix(Metric):
    """How often class j was predicted for class i: update(x, target) as Accuracy's; compute() gives int64[c, c].

    Raises ValueError unless there is at least 1 class; a class out of range raises IndexError where the result is read.

    >>> import weft as wf
    >>> matrix = ConfusionMatrix(2)
    >>> matrix.update(wf.tensor([0, 1, 1]), wf.tensor([0, 0, 1]))
    >>> matrix.compute()
    tensor([[1, 1],
            [0, 1]], dtype=int64, device=cpu:0)
    """

    def __init__(self, num_classes: int) -> None:
        if num_classes < 1:
            raise ValueError(f"{type(self).__name__}: needs at least 1 class, got {num_classes}")
        self.num_classes = num_classes
        super().__init__()

    def reset(self) -> None:
        self._counts: Tensor = zeros((self.num_classes, self.num_classes), dtype="int64")

    def add(self, x: Tensor, target: Tensor) -> None:
        x, target = asarray(x), asarray(target)
        predicted = _classes(self, x, target).to_device(self._counts.device).reshape(-1)
        actual = target.to_device(self._counts.device).reshape(-1)
        ones = zeros(actual.shape, dtype="int64") + 1
        self._counts = F.index_put(self._counts, ones, actual, predicted, axes=(0, 1), mode="add")

    def compute(self) -> Any:
        return self._counts.copy()


class F1Score(ConfusionMatrix):
    """2 TP / (2 TP + FP + FN) of each class, and their average: update(x, target) as Accuracy's.

    average: "macro", the mean over classes; "micro", of all counts together, which is the accuracy; "none", a list. A
    class that neither occurs nor was predicted has 0. Raises ValueError for another average.
    Source: van Rijsbergen 1979, Information retrieval.

    >>> import weft as wf
    >>> score = F1Score(2)
    >>> score.update(wf.tensor([0, 1, 1, 1]), wf.tensor([0, 0, 1, 1]))
    >>> round(score.compute(), 3)
    0.733
    """

    def __init__(self, num_classes: int, average: str = "macro") -> None:
        if average not in ("macro", "micro", "none"):
            raise ValueError(f"F1Score: average must be macro, micro or none, got {average!r}")
        self.average = average
        super().__init__(num_classes)

    def compute(self) -> Any:
        counts = self._counts.numpy()
        right = counts.diagonal()
        all_ = counts.sum(0) + counts.sum(1)  # 2 TP + FP + FN
        if self.average == "micro":
            return float(2 * right.sum() / all_.sum()) if all_.sum() else 0.0
        scores = [float(2 * r / a) if a else 0.0 for r, a in zip(right, all_, strict=True)]
        return scores if self.average == "none" else sum(scores) / len(scores)
