"""What tests know of the operators of weft.ops.families.normalization."""

import numpy as np
from tests.ops.material import material

from weft.base.dtype import as_dtype
from weft.base.errors import DTypeError, ShapeError
from weft.ops.families.normalization import (
    BatchNorm,
    Grouped,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    RmsNorm,
    all_but_channels,
)
from weft.ops.samples import Array, Sample, arrays


@material(LayerNorm)
class _:
    def reference(self, x, weight=None, bias=None):
        axes = self.axes(np.ndim(x))
        mean = np.mean(x, axes, keepdims=True)
        inverse = 1 / np.sqrt(np.var(x, axes, keepdims=True) + self.eps)
        y = (x - mean) * inverse * (1 if weight is None else weight) + (0 if bias is None else bias)
        return y, mean, inverse

    @classmethod
    def samples(cls):
        yield Sample(arrays((3, 4)), 4)
        yield Sample(arrays((2, 3, 4)), (3, 4), arrays((3, 4)), arrays((3, 4)))
        yield Sample(arrays((2, 3, 4)), 4, arrays((4,)), eps=0.5)
        yield Sample(arrays((2, 3, 4)), 4, None, arrays((4,)))
        yield Sample(arrays((0, 4)), 4)

    @classmethod
    def errors(cls):
        yield (
            ShapeError,
            f"{cls.name}: x has [4] for normalized_shape, which is [3]",
            Sample(arrays((2, 4)), 3),
        )
        yield (
            ShapeError,
            f"{cls.name}: weight has [3] for normalized_shape",
            Sample(arrays((2, 4)), 4, arrays((3,))),
        )
        yield DTypeError, f"{cls.name}: takes floating-point", Sample(arrays((2, 4), dtype="int32"), 4)


@material(RmsNorm)
class _:
    def reference(self, x, weight=None):
        eps = 2.0 ** (1 - as_dtype(x.dtype).digits) if self.eps is None else self.eps
        inverse = 1 / np.sqrt(np.mean(x * x, self.axes(np.ndim(x)), keepdims=True) + eps)
        return x * inverse * (1 if weight is None else weight), inverse

    @classmethod
    def samples(cls):
        yield Sample(arrays((3, 4)), 4, dtypes=("float32", "float64"))
        yield Sample(arrays((2, 3, 4)), (3, 4), arrays((3, 4)), dtypes=("float32", "float64"))
        yield Sample(arrays((2, 3, 4)), 4, arrays((4,)), eps=0.5)
        yield Sample(arrays((0, 4)), 4)

    @classmethod
    def errors(cls):
        yield (
            ShapeError,
            f"{cls.name}: x has [4] for normalized_shape, which is [3]",
            Sample(arrays((2, 4)), 3),
        )
        yield (
            ShapeError,
            f"{cls.name}: weight has [3] for normalized_shape",
            Sample(arrays((2, 4)), 4, arrays((3,))),
        )


@material(BatchNorm)
class _:
    def reference(self, x, running_mean=None, running_var=None, weight=None, bias=None):
        axes = all_but_channels(np.ndim(x))

        def spread(v):
            return np.expand_dims(v, axes)

        mean = np.mean(x, axes, keepdims=True) if self.training else spread(running_mean)
        variance = np.var(x, axes, keepdims=True) if self.training else spread(running_var)
        inverse = 1 / np.sqrt(variance + self.eps)
        y = (x - mean) * inverse * (1 if weight is None else spread(weight)) + (
            0 if bias is None else spread(bias)
        )
        if not self.training:
            return y
        flat_mean, flat_variance = np.squeeze(mean, axes), np.squeeze(variance, axes)
        if running_mean is None:
            return y, mean, inverse, flat_mean, flat_variance
        n = np.size(x) / np.shape(x)[1]
        share = self.momentum
        return (
            y,
            mean,
            inverse,
            running_mean + share * (flat_mean - running_mean),
            running_var + share * (flat_variance * n / (n - self.correction) - running_var),
        )

    @classmethod
    def samples(cls):
        learnt = arrays((3,)), arrays((3,))
        running = arrays((3,)), Array((3,), low=0.5, high=2.0)
        for shape in ((4, 3), (2, 3, 4), (2, 3, 2, 2)):
            yield Sample(arrays(shape), *running, *learnt)
            yield Sample(arrays(shape), *running, *learnt, training=True)
            yield Sample(arrays(shape), *running, *learnt, training=True, correction=0)
        yield Sample(arrays((4, 3)), *running)
        yield Sample(arrays((4, 3)), None, None, None, arrays((3,)), training=True)
        yield Sample(arrays((4, 3)), *running, training=True, momentum=0.5, eps=0.25)

    @classmethod
    def errors(cls):
        yield ShapeError, "batch_norm: x needs at least 2", Sample(arrays((2,)), None, None, training=True)
        yield (
            ShapeError,
            "x has 3 channels, weight expects 2",
            Sample(arrays((2, 3)), None, None, arrays((2,)), training=True),
        )
        yield ValueError, "outside of training", Sample(arrays((2, 3)))


@material(Grouped)
class _:
    def reference(self, x, weight=None, bias=None):
        groups = self.groups(np.shape(x)[1])
        rows = x.reshape(x.shape[0], groups, -1)
        mean, variance = np.mean(rows, -1, keepdims=True), np.var(rows, -1, keepdims=True)
        y = ((rows - mean) / np.sqrt(variance + self.eps)).reshape(x.shape)
        axes = all_but_channels(np.ndim(x))
        y = y if weight is None else y * np.expand_dims(weight, axes)
        return y if bias is None else y + np.expand_dims(bias, axes)


@material(GroupNorm)
class _:
    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 4, 3)), 2, arrays((4,)), arrays((4,)))
        yield Sample(arrays((2, 4, 3, 2)), 1)
        yield Sample(arrays((2, 4)), num_groups=2, eps=0.5)

    @classmethod
    def errors(cls):
        yield ShapeError, "group_norm: 4 channels do not make 3", Sample(arrays((2, 4)), 3)


@material(InstanceNorm)
class _:
    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 4, 3)), arrays((4,)), arrays((4,)))
        yield Sample(arrays((2, 4, 3, 2)), eps=0.5)

    @classmethod
    def errors(cls):
        yield (
            ShapeError,
            "instance_norm: x has 4 channels, weight expects 3",
            Sample(arrays((2, 4, 3)), arrays((3,))),
        )
