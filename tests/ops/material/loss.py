"""What tests know of the operators of weft.ops.families.loss."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import ShapeError
from weft.ops.families.loss import (
    BinaryCrossEntropy,
    BinaryCrossEntropyWithLogits,
    CosineSimilarity,
    HuberLoss,
    KlDiv,
    L1Loss,
    MseLoss,
    PointwiseLoss,
    SmoothL1Loss,
)
from weft.ops.samples import Array, Sample, arrays

# Of samples: attributes, and the ranges of x and target where they are not -2 ... 2.
ATTRIBUTES = {
    SmoothL1Loss: ({}, {"beta": 0.5}, {"beta": 0}),
    HuberLoss: ({}, {"delta": 0.5}),
    KlDiv: ({}, {"log_target": True}),
}
RANGES = {
    KlDiv: ((-2.0, -0.1), (0.1, 1.0)),
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
