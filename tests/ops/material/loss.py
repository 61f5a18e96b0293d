"""What tests know of the operators of weft.ops.families.loss."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import ShapeError
from weft.ops.families.loss import (
    BinaryCrossEntropy,
    BinaryCrossEntropyWithLogits,
    CosineSimilarity,
    GaussianNllLoss,
    HingeEmbeddingLoss,
    HingeLoss,
    HuberLoss,
    KlDiv,
    L1Loss,
    MarginRankingLoss,
    MseLoss,
    PointwiseLoss,
    PoissonNllLoss,
    SmoothL1Loss,
    SoftMarginLoss,
)
from weft.ops.samples import Array, Sample, arrays

# Of samples: attributes, and the ranges of x and target where they are not -2 ... 2.
ATTRIBUTES = {
    SmoothL1Loss: ({}, {"beta": 0.5}, {"beta": 0}),
    HuberLoss: ({}, {"delta": 0.5}),
    KlDiv: ({}, {"log_target": True}),
    HingeLoss: ({}, {"norm": "L2"}),
    HingeEmbeddingLoss: ({}, {"margin": 0.5}),
    PoissonNllLoss: ({}, {"full": True}, {"log_input": False, "eps": 0.01}),
}
RANGES = {
    KlDiv: ((-2.0, -0.1), (0.1, 1.0)),
    PoissonNllLoss: ((0.1, 2.0), (0.2, 5.0)),
    BinaryCrossEntropy: ((0.1, 0.9), (0.0, 1.0)),
    BinaryCrossEntropyWithLogits: ((-3.0, 3.0), (0.0, 1.0)),
}


@material(PointwiseLoss)
class _:
    def elements(self, *inputs):
        """The loss of each element in NumPy."""
        raise NotImplementedError

    def reference(self, *inputs):
        each = self.elements(*inputs)
        if self.reduction == "none":
            return each
        total = np.sum(each)
        for axis in self.averaged(np.ndim(each)):
            total = total / np.shape(each)[axis]
        return total

    @classmethod
    def samples(cls):
        (low, high), (low2, high2) = RANGES.get(cls, ((-2.0, 2.0), (-2.0, 2.0)))
        for attributes in ATTRIBUTES.get(cls, ({},)):
            for reduction in cls.accepted:
                x = Array((3, 4), low=low, high=high, distinct=True)
                yield Sample(x, Array((3, 4), low=low2, high=high2), reduction=reduction, **attributes)
        for shape in ((), (2, 3, 2)):
            yield Sample(Array(shape, low=low, high=high), Array(shape, low=low2, high=high2))
        yield Sample(arrays((0, 2)), arrays((0, 2)), reduction="sum")

    @classmethod
    def errors(cls):
        yield ShapeError, f"{cls.name}: x and target must have", Sample(arrays((2, 1)), arrays((2, 3)))
        yield ValueError, "reduction must be one of", Sample(arrays((2,)), arrays((2,)), reduction="max")


@material(MseLoss)
class _:
    def elements(self, x, target):
        return (x - target) ** 2


@material(L1Loss)
class _:
    def elements(self, x, target):
        return np.abs(x - target)


@material(SmoothL1Loss)
class _:
    def elements(self, x, target):
        d = np.abs(x - target)
        return np.where(d < self.beta, 0.5 * d * d / (self.beta or 1), d - 0.5 * self.beta)


@material(HuberLoss)
class _:
    def elements(self, x, target):
        d = np.abs(x - target)
        return np.where(d <= self.delta, 0.5 * d * d, self.delta * (d - 0.5 * self.delta))


@material(KlDiv)
class _:
    def elements(self, x, target):
        if self.log_target:
            return np.exp(target, dtype=np.float64) * (target - x)
        return np.where(target == 0, 0, target * (np.log(target) - x))


@material(BinaryCrossEntropy)
class _:
    def elements(self, x, target, weight=None):
        yes, no = np.maximum(np.log(x), -100), np.maximum(np.log1p(-x), -100)
        return -(target * yes + (1 - target) * no) * (1 if weight is None else weight)

    @classmethod
    def samples(cls):
        yield from super(BinaryCrossEntropy, cls).samples()
        x, target = (Array((3, 4), low=0.1, high=0.9) for _ in range(2))
        yield Sample(x, target, arrays((4,)))


@material(BinaryCrossEntropyWithLogits)
class _:
    def elements(self, x, target, weight=None, pos_weight=None):
        factor = 1 if pos_weight is None else pos_weight
        loss = factor * target * np.logaddexp(-x, 0) + (1 - target) * np.logaddexp(x, 0)
        return loss * (1 if weight is None else weight)

    @classmethod
    def samples(cls):
        yield from super(BinaryCrossEntropyWithLogits, cls).samples()
        x, target = arrays((3, 4), distinct=True), Array((3, 4), low=0.0, high=1.0)
        yield Sample(x, target, arrays((3, 1)))
        yield Sample(x, target, None, arrays((4,)), reduction="sum")
        yield Sample(x, target, arrays((3, 4)), arrays((4,)), reduction="none")


@material(SoftMarginLoss)
class _:
    def elements(self, x, target):
        return np.logaddexp(0, -target * x)


@material(HingeLoss)
class _:
    def elements(self, x, target):
        return np.maximum(0, 1 - target * x) ** (1 if self.norm == "L1" else 2)

    @classmethod
    def errors(cls):
        yield ValueError, "norm must be L1 or L2", Sample(arrays((2,)), arrays((2,)), norm="L3")


@material(HingeEmbeddingLoss)
class _:
    def elements(self, x, target):
        return np.where(target == 1, x, np.maximum(0, self.margin - x))

    @classmethod
    def samples(cls):
        sides = Array((3, 4), values=[1, -1] * 6, dtype="int64")
        for attributes in ({}, {"margin": 0.5, "reduction": "sum"}, {"reduction": "none"}):
            yield Sample(Array((3, 4), low=0.1, high=2.0, distinct=True), sides, **attributes)
        yield Sample(arrays((0, 2)), arrays((0, 2)), reduction="sum")


@material(MarginRankingLoss)
class _:
    def elements(self, x1, x2, target):
        return np.maximum(0, self.margin - target * (x1 - x2))

    @classmethod
    def samples(cls):
        x1, x2, sides = *(arrays((3, 4), distinct=True) for _ in range(2)), Array((3, 4), values=[1, -1] * 6)
        for attributes in ({}, {"margin": 0.5, "reduction": "sum"}, {"reduction": "none"}):
            yield Sample(x1, x2, sides, **attributes)
        yield Sample(x1, x2, Array((4,), values=[1, -1, 1, 1]), margin=2.0)

    @classmethod
    def errors(cls):
        x = arrays((2, 3))
        yield ShapeError, "x and target must have", Sample(x, arrays((2, 1)), x)


@material(PoissonNllLoss)
class _:
    def elements(self, x, target):
        loss = (
            np.exp(x, dtype=np.float64) - target * x
            if self.log_input
            else x - target * np.log(x + self.eps, dtype=np.float64)
        )
        if self.full:
            count = np.maximum(target, 1)
            rest = (
                count * np.log(count, dtype=np.float64)
                - count
                + 0.5 * np.log(2 * np.pi * count, dtype=np.float64)
            )
            loss = loss + np.where(target > 1, rest, 0)
        return loss

    def torch_reference(self, torch, x, target):
        keywords = {
            "log_input": self.log_input,
            "full": self.full,
            "eps": self.eps,
            "reduction": self.reduction,
        }
        return torch.nn.functional.poisson_nll_loss(x, target, **keywords)


@material(GaussianNllLoss)
class _:
    def elements(self, x, target, var):
        v = np.maximum(var, self.eps)
        return 0.5 * (np.log(v) + (x - target) ** 2 / v) + (0.5 * np.log(2 * np.pi) if self.full else 0)

    def torch_reference(self, torch, x, target, var):
        keywords = {"full": self.full, "eps": self.eps, "reduction": self.reduction}
        return torch.nn.functional.gaussian_nll_loss(x, target, torch.broadcast_to(var, x.shape), **keywords)

    @classmethod
    def samples(cls):
        x, target, var = arrays((3, 4)), arrays((3, 4)), Array((3, 4), low=0.2, high=2.0)
        for attributes in ({}, {"full": True, "reduction": "sum"}, {"reduction": "none"}):
            yield Sample(x, target, var, **attributes)
        yield Sample(x, target, Array((3, 1), low=0.2, high=2.0), eps=0.01)

    @classmethod
    def errors(cls):
        x = arrays((2, 3))
        yield ShapeError, "x and target must have", Sample(x, arrays((2, 1)), x)


@material(CosineSimilarity)
class _:
    def reference(self, x1, x2):
        x1, x2 = np.broadcast_arrays(x1, x2)
        lengths = [np.maximum(np.linalg.norm(v, axis=self.axis), self.eps) for v in (x1, x2)]
        return np.sum(x1 * x2, self.axis) / (lengths[0] * lengths[1])

    def torch_reference(self, torch, x1, x2):
        """With a small eps: PyTorch's gradient takes norms to be above it."""
        if self.eps > 1e-6:
            return NotImplemented
        return torch.nn.functional.cosine_similarity(x1, x2, self.axis, self.eps)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3)), arrays((2, 3)))
        yield Sample(arrays((2, 3)), arrays((1, 3)), axis=-1)
        yield Sample(arrays((2, 3, 4)), arrays((2, 3, 4)), axis=0, eps=0.5)

    @classmethod
    def errors(cls):
        yield ShapeError, "cosine_similarity: sizes 3 and 2", Sample(arrays((2, 3)), arrays((2, 2)))
        yield IndexError, "cosine_similarity: axis 2", Sample(arrays((2, 3)), arrays((2, 3)), axis=2)
