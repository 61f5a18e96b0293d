"""What tests know of the operators of weft.ops.families.cross_entropy."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import DTypeError, ShapeError
from weft.ops.families.cross_entropy import CheckLabels, CrossEntropy, NllLoss
from weft.ops.families.loss import REDUCTIONS
from weft.ops.samples import Array, Sample, arrays


@material(CheckLabels)
class _:
    def reference(self, target, x):
        return np.asarray(target, np.int64)


@material(CrossEntropy)
class _:
    def reference(self, x, target, weight=None):
        axis = min(1, np.ndim(x) - 1)
        x = np.moveaxis(x, axis, -1)
        count = x.shape[-1]
        scale = np.ones(count) if weight is None else weight
        logs = x - np.logaddexp.reduce(x, axis=-1, keepdims=True)
        if np.asarray(target).dtype.kind in "iu":
            here = np.asarray(target)[..., None] == np.arange(count)
            counts = target != self.ignore_index
            shares = np.sum(here * scale, -1) * counts
        else:
            here = np.moveaxis(target, axis, -1)
            counts = np.ones(x.shape[:-1])
            shares = counts
        soft = here * (1 - self.label_smoothing) + self.label_smoothing / count
        losses = -np.sum(soft * scale * logs, -1) * counts
        if self.reduction == "none":
            return losses
        return np.sum(losses) / (np.sum(shares) if self.reduction == "mean" else 1)

    @classmethod
    def samples(cls):
        target = Array((4,), values=(2, 0, 1, 1), dtype="int64")
        ignored = Array((4,), values=(2, -100, 1, 1), dtype="int32")
        for reduction in REDUCTIONS:
            yield Sample(arrays((4, 3)), target, reduction=reduction)
            yield Sample(
                arrays((4, 3)), ignored, arrays((3,), low=0.5), reduction=reduction, label_smoothing=0.25
            )
            yield Sample(
                arrays((4, 3)), Array((4, 3), low=0.1, high=0.8), reduction=reduction, label_smoothing=0.25
            )
        places = Array((2, 2, 2), low=0, high=2, dtype="int64")
        yield Sample(arrays((2, 3, 2, 2)), places, arrays((3,), low=0.5), reduction="none")
        yield Sample(
            arrays((2, 3, 2, 2)), arrays((2, 3, 2, 2), low=0.1), arrays((3,), low=0.5), label_smoothing=0.5
        )
        yield Sample(arrays((2, 3, 2, 2)), places, ignore_index=1)
        yield Sample(arrays((3,)), Array((), values=1, dtype="int64"))

    @classmethod
    def errors(cls):
        integers = arrays((2,), dtype="int64")
        yield ShapeError, f"{cls.name}: target must have the shape (4,)", Sample(arrays((4, 3)), integers)
        yield ShapeError, f"{cls.name}: weight needs one", Sample(arrays((2, 3)), integers, arrays((2,)))
        yield ValueError, "reduction must be one of", Sample(arrays((2, 3)), integers, reduction="max")
        if cls is CrossEntropy:
            yield ShapeError, "probabilities must have", Sample(arrays((2, 3)), arrays((2,)))
            yield ValueError, "label_smoothing must be", Sample(arrays((2, 3)), integers, label_smoothing=2)


@material(NllLoss)
class _:
    def reference(self, x, target, weight=None):
        x = np.moveaxis(x, min(1, np.ndim(x) - 1), -1)
        scale = np.ones(x.shape[-1]) if weight is None else weight
        here = (np.asarray(target)[..., None] == np.arange(x.shape[-1])) * (target != self.ignore_index)[
            ..., None
        ]
        losses = -np.sum(np.where(here, x * scale, 0), -1)
        if self.reduction == "none":
            return losses
        return np.sum(losses) / (np.sum(here * scale) if self.reduction == "mean" else 1)

    @classmethod
    def samples(cls):
        ignored = Array((4,), values=(2, -100, 1, 1), dtype="int64")
        for reduction in REDUCTIONS:
            yield Sample(arrays((4, 3)), ignored, reduction=reduction)
            yield Sample(arrays((4, 3)), ignored, arrays((3,), low=0.5), reduction=reduction)
        places = Array((2, 2, 2), low=0, high=2, dtype="int64")
        yield Sample(arrays((2, 3, 2, 2)), places, arrays((3,), low=0.5), ignore_index=1)
        yield Sample(arrays((3,)), Array((), values=1, dtype="int64"))

    @classmethod
    def errors(cls):
        yield from CrossEntropy.errors.__func__(cls)
        yield DTypeError, "nll_loss: target must be integers", Sample(arrays((2, 3)), arrays((2,)))
