"""What tests know of the operators of weft.ops.families.output_loss; test_output_loss.py has their gradients."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import ShapeError
from weft.ops.families.output_loss import (
    GradientMultiplier,
    KlSparsity,
    LinearRegressionOutput,
    LogisticRegressionOutput,
    MaeRegressionOutput,
    MakeLoss,
    SoftmaxOutput,
    SvmOutput,
)
from weft.ops.samples import Array, Sample, arrays


@material(LinearRegressionOutput)
class _:
    def reference(self, x, label):
        return x

    @classmethod
    def samples(cls):
        yield Sample(arrays((3, 2)), arrays((3, 2)), gradient=False)
        yield Sample(arrays((3, 1)), arrays((3,)), scale=2.0, gradient=False)

    @classmethod
    def errors(cls):
        yield ShapeError, "label has 4 elements, x has 6", Sample(arrays((3, 2)), arrays((4,)))


@material(MaeRegressionOutput)
class _:
    def reference(self, x, label):
        return x

    @classmethod
    def samples(cls):
        yield Sample(arrays((3, 2)), arrays((3, 2)), gradient=False)


@material(LogisticRegressionOutput)
class _:
    def reference(self, x, label):
        return 1 / (1 + np.exp(-x))

    @classmethod
    def samples(cls):
        yield Sample(arrays((3, 2)), arrays((3, 2)), gradient=False)


def classes(*shape):
    return Array(shape, low=0, high=3, dtype="int32")


@material(SoftmaxOutput)
class _:
    def reference(self, x, label):
        powers = np.exp(x - x.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    @classmethod
    def samples(cls):
        yield Sample(arrays((3, 4)), classes(3), gradient=False)
        yield Sample(
            arrays((2, 4, 3)), classes(2, 3), normalization="valid", ignore_label=1.0, gradient=False
        )

    @classmethod
    def errors(cls):
        yield ShapeError, "softmax_output", Sample(arrays((3, 4)), classes(4))
        yield ValueError, "smoothing must be", Sample(arrays((3, 4)), classes(3), smoothing=2.0)


@material(SvmOutput)
class _:
    def reference(self, x, label):
        return x

    @classmethod
    def samples(cls):
        yield Sample(arrays((3, 4)), classes(3), gradient=False)
        yield Sample(arrays((3, 4)), classes(3), linear=True, gradient=False)


@material(MakeLoss)
class _:
    def reference(self, x):
        return x

    @classmethod
    def samples(cls):
        yield Sample(arrays((3, 4)), gradient=False)
        yield Sample(arrays(()), normalization="batch", gradient=False)


@material(GradientMultiplier)
class _:
    def reference(self, x):
        return x

    @classmethod
    def samples(cls):
        yield Sample(arrays((3, 4)), factor=1.0)
        yield Sample(arrays((3, 4)), factor=-2.0, gradient=False)


@material(KlSparsity)
class _:
    def reference(self, x, mean):
        if not self.training:
            return x
        return x, mean * self.momentum + x.mean(axis=0) * (1 - self.momentum)

    @classmethod
    def samples(cls):
        x, mean = arrays((4, 3), low=0.2, high=0.8), arrays((3,), low=0.2, high=0.8)
        yield Sample(x, mean, gradient=False)
        yield Sample(x, mean, training=False)
        yield Sample(arrays((2, 3, 2), low=0.2, high=0.8), arrays((3, 2), low=0.2, high=0.8), gradient=False)

    @classmethod
    def errors(cls):
        yield ShapeError, "kl_sparsity: ", Sample(arrays((4, 3)), arrays((4,)))
        yield ValueError, "target must be within", Sample(arrays((4, 3)), arrays((3,)), target=1.0)
