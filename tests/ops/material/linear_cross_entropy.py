"""What tests know of the operators of weft.ops.families.linear_cross_entropy."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import ShapeError
from weft.ops.families.linear_cross_entropy import LinearCrossEntropy
from weft.ops.samples import Array, Sample, arrays


def labels(*values):
    return Array(np.shape(values), dtype="int64", values=values)


@material(LinearCrossEntropy)
class _:
    def reference(self, x, weight, target, bias=None, class_weight=None):
        logits = x @ weight.T + (0 if bias is None else bias)
        shifted = logits - logits.max(axis=-1, keepdims=True)
        lost = np.log(np.exp(shifted).sum(axis=-1, keepdims=True)) - shifted
        factor = np.ones(len(weight)) if class_weight is None else class_weight
        counts = target != self.ignore_index
        label = np.where(counts, target, 0)
        share = factor[label] * counts
        losses = np.take_along_axis(lost, label[..., None], -1)[..., 0] * share
        smooth = (lost * factor).mean(axis=-1) * counts
        losses = losses * (1 - self.label_smoothing) + smooth * self.label_smoothing
        if self.reduction == "none":
            return losses
        return losses.sum() / (share.sum() if self.reduction == "mean" else 1)

    def torch_reference(self, torch, x, weight, target, bias=None, class_weight=None):
        classes = len(weight)
        logits = torch.nn.functional.linear(x, weight, bias).reshape(-1, classes)
        flat = target.reshape(-1)
        y = torch.nn.functional.cross_entropy(
            logits,
            flat,
            class_weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )
        return y.reshape(target.shape) if self.reduction == "none" else y

    @classmethod
    def samples(cls):
        x, weight, target = arrays((5, 3)), arrays((4, 3)), labels(0, 3, 1, -100, 2)
        bias, factors = arrays((4,)), arrays((4,), low=0.5)
        yield Sample(x, weight, target)
        yield Sample(x, weight, target, bias, factors, chunk_rows=2, label_smoothing=0.2)
        yield Sample(x, weight, target, None, factors, chunk_rows=1, reduction="sum")
        yield Sample(
            arrays((2, 3, 2)), arrays((4, 2)), labels((1, 0, 2), (3, 3, 0)), reduction="none", chunk_rows=4
        )

    @classmethod
    def errors(cls):
        x, weight, target = arrays((2, 3)), arrays((4, 3)), labels(0, 1)
        yield ShapeError, "linear_cross_entropy: ", Sample(x, arrays((4, 2)), target)
        yield ShapeError, "linear_cross_entropy: ", Sample(x, weight, labels(0, 1, 2))
        yield ValueError, "chunk_rows must be at least 1", Sample(x, weight, target, chunk_rows=0)
        yield ValueError, "reduction must be", Sample(x, weight, target, reduction="batch")
        yield ValueError, "label_smoothing must be", Sample(x, weight, target, label_smoothing=2.0)
