"""What tests know of the operators of weft.ops.families.activation."""

import math

import numpy as np
from tests.ops.material import material

from weft.base.errors import ShapeError
from weft.ops.families.activation import (
    _SELU,
    Activation,
    Celu,
    Elu,
    Gelu,
    Glu,
    Hardshrink,
    HardSigmoid,
    HardSwish,
    Hardtanh,
    LeakyRelu,
    LogSigmoid,
    Mish,
    Prelu,
    Relu,
    Relu6,
    Selu,
    Shrinking,
    Silu,
    Softplus,
    Softshrink,
    Softsign,
    Tanhshrink,
    Threshold,
)
from weft.ops.samples import Sample, arrays

ATTRIBUTES = {  # of the samples of a class and of those derived from it
    Gelu: ({}, {"approximate": "tanh"}),
    LeakyRelu: ({}, {"negative_slope": 0.5}, {"negative_slope": -1}),
    Hardtanh: ({}, {"min_val": -2, "max_val": 0.5}),
    Elu: ({}, {"alpha": 0.5}),
    Celu: ({}, {"alpha": 0.5}),
    Softplus: ({}, {"beta": 2, "threshold": 5}),
    Shrinking: ({}, {"lambd": 2}),
    Threshold: ({"threshold": 0.25, "value": -3},),
}


def attributes_of(cls):
    return next((ATTRIBUTES[base] for base in cls.__mro__ if base in ATTRIBUTES), ({},))


@material(Activation)
class _:
    @classmethod
    def samples(cls):
        for attributes in attributes_of(cls):
            for shape in ((2, 3), (), (0, 4), (33,)):
                yield Sample(arrays(shape, low=-5.0, high=7.0, distinct=True), **attributes)

    @classmethod
    def errors(cls):
        yield TypeError, f"{cls.name}: takes", Sample(arrays((2,)), 1, 2, 3, 4)


@material(Relu)
class _:
    def reference(self, x):
        return np.where(x <= 0, 0, x)


@material(Gelu)
class _:
    def reference(self, x):
        if self.approximate == "tanh":
            return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2)))


@material(LeakyRelu)
class _:
    def reference(self, x):
        return np.where(x > 0, x, x * self.negative_slope)


@material(Relu6)
class _:
    def reference(self, x):
        return np.clip(x, 0, 6)


@material(Hardtanh)
class _:
    def reference(self, x):
        return np.clip(x, self.min_val, self.max_val)


@material(HardSigmoid)
class _:
    def reference(self, x):
        return np.clip(x / 6 + 0.5, 0, 1)

    def torch_reference(self, torch, x):
        """Written out: the gradient of PyTorch's own has 1/6 in float32."""
        return torch.nn.functional.relu6(x + 3) / 6


@material(HardSwish)
class _:
    def reference(self, x):
        return x * np.clip(x / 6 + 0.5, 0, 1)


@material(Elu)
class _:
    def reference(self, x):
        return np.where(x > 0, x, np.expm1(x) * self.alpha)


@material(Celu)
class _:
    def reference(self, x):
        return np.where(x > 0, x, np.expm1(x / self.alpha) * self.alpha)


@material(Selu)
class _:
    def reference(self, x):
        scale, alpha = _SELU
        return scale * np.where(x > 0, x, alpha * np.expm1(x))


@material(Silu)
class _:
    def reference(self, x):
        return x / (1 + np.exp(-x))


@material(Mish)
class _:
    def reference(self, x):
        return x * np.tanh(np.logaddexp(x, 0))


@material(Softplus)
class _:
    def reference(self, x):
        scaled = x * self.beta
        return np.where(scaled > self.threshold, x, np.logaddexp(scaled, 0) / self.beta)


@material(Softsign)
class _:
    def reference(self, x):
        return x / (1 + np.abs(x))


@material(LogSigmoid)
class _:
    def reference(self, x):
        return -np.logaddexp(-x, 0)


@material(Tanhshrink)
class _:
    def reference(self, x):
        return x - np.tanh(x)


@material(Softshrink)
class _:
    def reference(self, x):
        return np.where(x > self.lambd, x - self.lambd, np.where(x < -self.lambd, x + self.lambd, 0))


@material(Hardshrink)
class _:
    def reference(self, x):
        return np.where(np.abs(x) <= self.lambd, 0, x)


@material(Threshold)
class _:
    def reference(self, x):
        return np.where(x <= self.threshold, self.value, x)


@material(Prelu)
class _:
    def reference(self, x, weight):
        shape = [1] * np.ndim(x)
        if np.ndim(x):
            shape[min(1, np.ndim(x) - 1)] = np.size(weight)
        return np.where(x > 0, x, x * np.reshape(weight, shape))

    @classmethod
    def samples(cls):
        for shape, weight in (((2, 3, 4), (3,)), ((2, 3), (1,)), ((3,), (3,)), ((), (1,)), ((0, 2), (2,))):
            yield Sample(arrays(shape, distinct=True), arrays(weight))

    @classmethod
    def errors(cls):
        yield ShapeError, "prelu: weight needs", Sample(arrays((2, 3)), arrays((2,)))


@material(Glu)
class _:
    def reference(self, x):
        first, second = np.split(x, 2, axis=self.axis)
        return first / (1 + np.exp(-second))

    @classmethod
    def samples(cls):
        yield Sample(arrays((3, 4)))
        yield Sample(arrays((4, 3)), axis=0)
        yield Sample(arrays((3, 0)))

    @classmethod
    def errors(cls):
        yield ShapeError, "glu: size 3 of axis 1 is odd", Sample(arrays((2, 3)))
        yield IndexError, "glu: axis 2", Sample(arrays((2, 4)), axis=2)
