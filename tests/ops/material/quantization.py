"""What tests know of the operators of weft.ops.families.quantization."""

import numpy as np
from tests.ops.material import material
from tests.ops.material.float8 import TYPES

from weft.base.errors import DTypeError, ShapeError
from weft.ops.families.convolution import Convolution
from weft.ops.families.quantization import (
    Dequantize,
    DequantizeElements,
    FakeQuantize,
    IntegerConvolution,
    IntegerLinear,
    IntegerMatmul,
    PackInt4,
    Quantize,
    QuantizedLinear,
    QuantizeElements,
)
from weft.ops.samples import Array, Sample, arrays

STEP = Array((), low=0.05, high=0.2)
STEPS = Array((3,), low=0.05, high=0.2)
FLOATS = ("float32", "float64")


def wide(x):
    return np.asarray(x, np.float64 if np.asarray(x).dtype == np.float64 else np.float32)


def along(parameter, axis, ndim):
    if parameter is None or axis is None:
        return parameter
    return np.reshape(parameter, [-1 if d == axis % ndim else 1 for d in range(ndim)])


def rounded(x, scale, zero, low, high):
    q = np.round(wide(x) / np.asarray(scale, wide(x).dtype)) + (0 if zero is None else zero)
    return np.clip(q, low, high)


def byte(shape, dtype="int8"):
    low, high = (0, 256) if dtype == "uint8" else (-128, 128)
    return Array(shape, low=low, high=high, dtype=dtype)


@material(QuantizeElements)
class _:
    def reference(self, x, scale, zero_point=None):
        return rounded(x, scale, zero_point, self.low, self.high).astype(self.dtype.numpy)

    @classmethod
    def samples(cls):
        yield Sample(arrays((3, 4)), STEP, dtype="int8", low=-8, high=7, gradient=False)
        zero = Array((4,), low=-5, high=5, dtype="int32")
        yield Sample(arrays((3, 4)), STEP, zero, dtype="uint8", low=0, high=255, gradient=False)


@material(DequantizeElements)
class _:
    def reference(self, q, scale, zero_point=None):
        return wide(scale) * (wide(q) - (0 if zero_point is None else zero_point))

    @classmethod
    def samples(cls):
        yield Sample(byte((3, 4)), STEP, dtypes=FLOATS)
        yield Sample(byte((3, 4), "uint8"), STEP, Array((4,), low=0, high=9, dtype="int32"), dtypes=FLOATS)


@material(Quantize)
class _:
    def reference(self, x, scale, zero_point=None):
        scale, zero_point = (along(p, self.axis, np.ndim(x)) for p in (scale, zero_point))
        return rounded(x, scale, zero_point, *self.limits).astype(self.dtype.numpy)

    @classmethod
    def samples(cls):
        yield Sample(arrays((3, 4)), STEP, gradient=False)
        yield Sample(arrays((2, 3)), STEPS, axis=-1, dtype="uint8", gradient=False)
        zero = Array((3,), low=-5, high=5, dtype="int8")
        yield Sample(arrays((3, 0)), STEPS, zero, axis=0, low=-8, high=7, gradient=False)
        values = np.array([-1e30, -2.5, -0.5, 0.5, 1.5, 2.5, 1e30, -np.inf, np.inf], np.float32)
        one = Array((), values=np.array(1.0, np.float32))
        yield Sample(Array((9,), values=values), one, dtypes=("float32",), gradient=False)

    @classmethod
    def errors(cls):
        yield ShapeError, "scale must have the shape ()", Sample(arrays((3, 4)), STEPS)
        yield ShapeError, "scale must have the shape (3,)", Sample(arrays((3, 4)), STEP, axis=0)
        yield DTypeError, "takes floating-point", Sample(byte((3,)), STEP)
        yield DTypeError, "dtype must be one of", Sample(arrays((3,)), STEP, dtype="int64")
        yield ValueError, "low and high must be in -128..127", Sample(arrays((3,)), STEP, high=128)


@material(Dequantize)
class _:
    def reference(self, q, scale, zero_point=None):
        scale, zero_point = (along(p, self.axis, np.ndim(q)) for p in (scale, zero_point))
        return wide(scale) * (wide(q) - (0 if zero_point is None else zero_point))

    def torch_reference(self, torch, *inputs):
        return NotImplemented  # its dequantize takes tensors of types that have scales in them

    @classmethod
    def samples(cls):
        yield Sample(byte((3, 4)), STEP, dtypes=FLOATS)
        yield Sample(byte((2, 3), "uint8"), STEPS, Array((3,), low=0, high=9, dtype="uint8"), axis=1)

    @classmethod
    def errors(cls):
        yield DTypeError, "takes integers", Sample(arrays((3,)), STEP)
        yield ShapeError, "zero_point must have the shape ()", Sample(byte((3,)), STEP, byte((3,)))


@material(FakeQuantize)
class _:
    def reference(self, x, scale, zero_point=None):
        low, high = self.limits
        scale, zero = (along(p, self.axis, np.ndim(x)) for p in (scale, zero_point))
        scale = wide(scale)
        if self.estimator == "threshold":
            scale = np.exp2(np.ceil(scale) - high.bit_length()).astype(scale.dtype)
        return (rounded(x, scale, zero, low, high) - (0 if zero is None else zero)) * scale

    @classmethod
    def samples(cls):  # what has gradients of its own is compared in tests/quantization
        yield Sample(arrays((3, 4)), STEP, gradient=False, dtypes=FLOATS)
        for rule in ("straight_through", "learned_step", "threshold"):
            options = {"estimator": rule, "axis": 1, "low": -8, "high": 7}
            yield Sample(arrays((2, 3)), STEPS, gradient=False, dtypes=FLOATS, **options)

    @classmethod
    def errors(cls):
        yield ShapeError, "scale must have the shape ()", Sample(arrays((3, 4)), STEPS)
        yield DTypeError, "takes floating-point", Sample(byte((3,)), STEP)


@material(IntegerMatmul)
class _:
    def reference(self, a, b):
        return np.matmul(np.asarray(a, np.int32), np.asarray(b, np.int32))

    @classmethod
    def samples(cls):
        yield Sample(byte((3, 40), "uint8"), byte((40, 5)))
        yield Sample(byte((2, 1, 3, 4)), byte((2, 4, 5)))
        yield Sample(byte((2, 1100)), byte((1100, 6)))
        yield Sample(byte((3, 0)), byte((0, 5)))

    @classmethod
    def errors(cls):
        yield ShapeError, "a has 4 inner, b expects 3", Sample(byte((2, 4)), byte((3, 2)))
        yield DTypeError, "takes int8 or uint8", Sample(byte((2, 4)), arrays((4, 2)))


@material(IntegerLinear)
class _:
    def reference(self, x, weight):
        return np.matmul(np.asarray(x, np.int32), np.asarray(weight, np.int32).T)

    @classmethod
    def samples(cls):
        yield Sample(byte((3, 40), "uint8"), byte((5, 40)))
        yield Sample(byte((2, 3, 1100)), byte((5, 1100)))
        yield Sample(byte((4,)), byte((5, 4)))

    @classmethod
    def errors(cls):
        yield ShapeError, "x has 4 in_features, weight expects 3", Sample(byte((2, 4)), byte((5, 3)))
        yield DTypeError, "takes int8 or uint8", Sample(byte((2, 4)), arrays((5, 4)))


@material(IntegerConvolution)
class _:
    def reference(self, x, weight):
        return Convolution.reference(self, np.asarray(x, np.int32), np.asarray(weight, np.int32))

    def torch_reference(self, torch, x, weight):  # whose sums of integers of 8 bits wrap
        f = getattr(torch.nn.functional, self.name.removeprefix("integer_"))
        return f(x.double(), weight.double(), None, self.stride, self.padding, self.dilation, self.groups)

    @classmethod
    def samples(cls):
        spatial, window = (7, 6, 5)[: cls.spatial], (3, 2, 1)[: cls.spatial]
        yield Sample(byte((2, 4, *spatial), "uint8"), byte((6, 4, *window)), padding=1)
        yield Sample(byte((2, 4, *spatial)), byte((6, 2, *window)), groups=2, stride=2)
        if cls.spatial == 2:
            yield Sample(byte((1, 200, 4, 4), "uint8"), byte((3, 200, 3, 3)))

    @classmethod
    def errors(cls):
        shape = (1, 4, *(5,) * cls.spatial)
        yield DTypeError, "takes int8 or uint8", Sample(byte(shape), arrays(shape))
        yield ShapeError, "channels", Sample(byte(shape), byte((1, 3, *(2,) * cls.spatial)))


@material(PackInt4)
class _:
    def reference(self, q):
        groups = np.reshape(q, (*q.shape[:-1], -1, 2, self.group_size // 2)).astype(np.int32) + 8 & 15
        return (groups[..., 0, :] | groups[..., 1, :] << 4).reshape(*q.shape[:-1], -1).astype(np.uint8)

    @classmethod
    def samples(cls):
        yield Sample(Array((3, 8), low=-8, high=8, dtype="int8"), 4)
        yield Sample(Array((6,), low=-8, high=8, dtype="int32"), 2)

    @classmethod
    def errors(cls):
        yield ShapeError, "groups of 4 do not divide 6", Sample(byte((6,)), 4)
        yield ValueError, "group_size must be even", Sample(byte((6,)), 3)
        yield DTypeError, "takes integers", Sample(arrays((6,)), 2)


@material(QuantizedLinear)
class _:
    def reference(self, x, weight, scale, bias=None):
        n, groups = np.shape(scale)
        if self.format == "integer":
            stored = np.reshape(weight, (n, groups, -1)).astype(np.int32)
        else:
            stored = np.reshape(weight.view(TYPES[self.format]), (n, groups, -1)).astype(np.float64)
        if self.format == "integer" and weight.dtype == np.uint8:
            stored = np.concatenate([(stored & 15) - 8, (stored >> 4) - 8], -1)
        full = (stored * wide(scale)[..., None]).reshape(n, -1)
        return np.matmul(x, full.T) + (0 if bias is None else bias)

    @classmethod
    def samples(cls):
        scale = Array((5, 2), low=0.01, high=0.1)
        for rows in ((3, 8), (8,), (1, 8)):
            yield Sample(arrays(rows), byte((5, 8)), scale, arrays((5,)), dtypes=FLOATS)
            yield Sample(arrays(rows), byte((5, 4), "uint8"), scale, dtypes=FLOATS)
            for format in TYPES:
                numbers = Array((5, 8), low=0, high=0x78, dtype="uint8")
                yield Sample(arrays(rows), numbers, scale, arrays((5,)), format=format, dtypes=FLOATS)

    @classmethod
    def errors(cls):
        scale = arrays((5, 2))
        yield ShapeError, "inner sizes differ, 8 != 6", Sample(arrays((2, 8)), byte((5, 6)), scale)
        yield ShapeError, "3 groups do not divide 8", Sample(arrays((2, 8)), byte((5, 8)), arrays((5, 3)))
        yield DTypeError, "weight must be int8", Sample(arrays((2, 8)), arrays((5, 8)), scale)
        yield (
            DTypeError,
            "weight must be uint8 of e4m3",
            Sample(arrays((2, 8)), byte((5, 8)), scale, format="e4m3"),
        )
