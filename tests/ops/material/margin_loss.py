"""What tests know of the operators of weft.ops.families.margin_loss."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import DTypeError, ShapeError
from weft.ops.families.margin_loss import (
    Cdist,
    CosineEmbeddingLoss,
    MultilabelMarginLoss,
    MultilabelSoftMarginLoss,
    MultiMarginLoss,
    PairwiseDistance,
    Pdist,
    RowLoss,
    SdmlLoss,
    TripletMarginLoss,
)
from weft.ops.samples import Array, Sample, arrays


def norm(x, p):
    return np.linalg.norm(x, ord=p, axis=-1)


@material(RowLoss)
class _:
    def rows(self, *inputs):
        """The loss of each row in NumPy."""
        raise NotImplementedError

    def reference(self, *inputs):
        each = self.rows(*inputs)
        return {"none": lambda v: v, "mean": np.mean, "sum": np.sum}[self.reduction](each)


def labels(*values):
    return Array((len(values),), dtype="int64", values=values)


@material(PairwiseDistance)
class _:
    def reference(self, x1, x2):
        y = norm(x1 - x2 + self.eps, self.p)
        return y[..., None] if self.keepdims else y

    def torch_reference(self, torch, x1, x2):
        return torch.nn.functional.pairwise_distance(x1, x2, self.p, self.eps, self.keepdims)

    @classmethod
    def samples(cls):
        yield Sample(arrays((3, 4)), arrays((3, 4)))
        yield Sample(arrays((2, 3, 4)), arrays((4,)), p=3.0, keepdims=True)
        yield Sample(arrays((3, 4), distinct=True), arrays((3, 4), distinct=True), p=1.0, eps=0.1)


@material(Cdist)
class _:
    def reference(self, x1, x2):
        return norm(x1[..., :, None, :] - x2[..., None, :, :], self.p)

    def torch_reference(self, torch, x1, x2):
        return torch.cdist(x1, x2, self.p)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3, 4)), arrays((2, 5, 4)))
        yield Sample(arrays((3, 4)), arrays((2, 5, 4)), p=3.0)

    @classmethod
    def errors(cls):
        yield ShapeError, "matrices with as many columns", Sample(arrays((3, 4)), arrays((3, 5)))


@material(Pdist)
class _:
    def reference(self, x):
        rows, columns = np.triu_indices(len(x), 1)
        return norm(x[rows] - x[columns], self.p)

    @classmethod
    def samples(cls):
        yield Sample(arrays((4, 3)))
        yield Sample(arrays((3, 2)), p=3.0)
        yield Sample(arrays((1, 2)))

    @classmethod
    def errors(cls):
        yield ShapeError, "x needs 2 dimensions", Sample(arrays((3,)))


@material(CosineEmbeddingLoss)
class _:
    def rows(self, x1, x2, target):
        cosine = (x1 * x2).sum(-1) / np.sqrt(((x1 * x1).sum(-1) + 1e-12) * ((x2 * x2).sum(-1) + 1e-12))
        return np.where(target == 1, 1 - cosine, np.maximum(0, cosine - self.margin))

    @classmethod
    def samples(cls):
        x1, x2 = arrays((4, 3), distinct=True), arrays((4, 3), distinct=True)
        for attributes in ({}, {"reduction": "none"}, {"reduction": "sum", "margin": -0.3}):
            yield Sample(x1, x2, labels(1, -1, -1, 1), **attributes)
        yield Sample(arrays((3,)), arrays((3,)), Array((), dtype="int64", values=[1]))

    @classmethod
    def errors(cls):
        yield ShapeError, "target must have the shape (2,)", Sample(arrays((2, 3)), arrays((2, 3)), labels(1))


@material(TripletMarginLoss)
class _:
    def rows(self, anchor, positive, negative):
        near, far = (norm(anchor - x + self.eps, self.p) for x in (positive, negative))
        if self.swap:
            far = np.minimum(far, norm(positive - negative + self.eps, self.p))
        return np.maximum(0, near - far + self.margin)

    @classmethod
    def samples(cls):
        x = [arrays((4, 3), distinct=True) for _ in range(3)]
        yield Sample(*x)
        yield Sample(*x, margin=2.0, p=3.0, reduction="none")
        yield Sample(*x, swap=True, reduction="sum", margin=3.0)

    @classmethod
    def errors(cls):
        x = arrays((2,))
        yield ValueError, "reduction must be one of", Sample(x, x, x, reduction="max")


@material(MultiMarginLoss)
class _:
    def rows(self, x, target, weight=None):
        loss = np.zeros(target.shape)
        for row in np.ndindex(target.shape):
            for i in range(x.shape[-1]):
                if i != target[row]:
                    loss[row] += max(0, self.margin - x[(*row, target[row])] + x[(*row, i)]) ** self.p
            loss[row] *= (1 if weight is None else weight[target[row]]) / x.shape[-1]
        return loss

    def torch_reference(self, torch, x, target, weight=None):
        keywords = {"margin": self.margin, "weight": weight, "reduction": self.reduction}
        return torch.nn.functional.multi_margin_loss(x, target, self.p, **keywords)

    @classmethod
    def samples(cls):
        x, target = arrays((3, 4), distinct=True), labels(1, 3, 0)
        yield Sample(x, target)
        yield Sample(x, target, p=2, reduction="none", margin=0.5)
        yield Sample(x, target, weight=None, reduction="sum")
        yield Sample(arrays((4,)), Array((), dtype="int64", values=[2]))

    @classmethod
    def errors(cls):
        yield ShapeError, "target must have the shape (3,)", Sample(arrays((3, 4)), labels(1))
        yield ValueError, "p must be 1 or 2", Sample(arrays((1, 4)), labels(1), p=3)


@material(MultilabelMarginLoss)
class _:
    def rows(self, x, target):
        flat, targets = x.reshape(-1, x.shape[-1]), target.reshape(-1, x.shape[-1])
        losses = []
        for scores, row in zip(flat, targets, strict=True):
            chosen = []
            for label in row:
                if label < 0:
                    break
                chosen.append(label)
            others = [i for i in range(len(scores)) if i not in chosen]
            losses.append(
                sum(max(0, 1 - scores[j] + scores[i]) for j in chosen for i in others) / len(scores)
            )
        return np.array(losses).reshape(x.shape[:-1])

    @classmethod
    def samples(cls):
        target = Array((3, 4), dtype="int64", values=[2, 0, -1, 1, -1, 1, 1, 1, 3, 2, 1, 0])
        for reduction in ("mean", "sum", "none"):
            yield Sample(arrays((3, 4), distinct=True), target, reduction=reduction)
        yield Sample(arrays((3,)), labels(2, -1, 0))

    @classmethod
    def errors(cls):
        yield ShapeError, "target must have the shape (2, 3)", Sample(arrays((2, 3)), labels(1, 0))
        yield DTypeError, "integers", Sample(arrays((2, 3)), arrays((2, 3)))


@material(MultilabelSoftMarginLoss)
class _:
    def rows(self, x, target, weight=None):
        each = target * np.logaddexp(0, -x) + (1 - target) * np.logaddexp(0, x)
        return (each * (1 if weight is None else weight)).mean(axis=-1)

    def torch_reference(self, torch, x, target, weight=None):
        return torch.nn.functional.multilabel_soft_margin_loss(x, target, weight, reduction=self.reduction)

    @classmethod
    def samples(cls):
        x, target = arrays((3, 4)), Array((3, 4), low=0.0, high=1.0)
        yield Sample(x, target)
        yield Sample(x, target, arrays((4,)), reduction="none")


@material(SdmlLoss)
class _:
    def rows(self, x1, x2):
        apart = ((x1[:, None] - x2[None]) ** 2).sum(-1)
        n = len(x1)
        target = np.full((n, n), self.smoothing / max(n - 1, 1))
        np.fill_diagonal(target, 1 - self.smoothing)
        shares = np.exp(-(apart - apart.min(-1, keepdims=True)))
        logs = np.log(shares / shares.sum(-1, keepdims=True))
        with np.errstate(all="ignore"):
            entropy = np.where(target > 0, target * np.log(target), 0)
        return (entropy - target * logs).sum(-1)

    @classmethod
    def samples(cls):
        x = arrays((4, 3)), arrays((4, 3))
        yield Sample(*x)
        yield Sample(*x, smoothing=0.0, reduction="none")
        yield Sample(arrays((1, 2)), arrays((1, 2)), smoothing=0.0, reduction="sum")

    @classmethod
    def errors(cls):
        yield ShapeError, "sdml_loss: ", Sample(arrays((4, 3)), arrays((3, 3)))
        yield ValueError, "smoothing must be", Sample(arrays((4, 3)), arrays((4, 3)), smoothing=1.0)
