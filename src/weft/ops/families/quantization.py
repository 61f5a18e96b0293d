"""Quantization: real numbers as small integers times a step, and products of such integers.

The affine rule is the one of ONNX: q = saturate(round(x / scale) + zero_point), halves to even, and back
x = (q - zero_point) * scale. No other operator depends on it: kernels of bytes are offered for integer products with
what follows them (weft.kernels.cpu.quantization).
"""

from __future__ import annotations

import functools
import math
from typing import Any, Literal

from weft.base.dtype import DType, float32, float64, int8, int32, uint8
from weft.base.errors import DTypeError, ShapeError
from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops.families.convolution import Convolution
from weft.ops.families.matrix import is_one_row
from weft.ops.op import Op, op
from weft.ops.pointwise import Pointwise, cast_to, unbroadcast
from weft.ops.types import TensorType, broadcast_shapes, normalize_axes

Scalar = e.Scalar

LIMITS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}


class Affine(Op, family="quantization"):
    """Base of functions of x, a scale and a zero point: one for all of x, or one for each index along axis."""

    axis: int | None = None

    def check_affine(self, x: TensorType, scale: TensorType | None, zero_point: TensorType | None) -> None:
        named = {"x": x, "scale": scale, "zero_point": zero_point}
        operands = {name: t for name, t in named.items() if t is not None}
        self.require_floats(scale=scale)
        if zero_point is not None and zero_point.dtype.kind not in ("int", "uint", "float"):
            raise self.fail(DTypeError, "zero_point must be a number", **operands)
        if self.axis is None:
            expected: tuple[Any, ...] = ()
        else:
            expected = (x.shape[normalize_axes(self.name, self.axis, x.ndim)[0]],)
        for name in ("scale", "zero_point"):
            t = operands.get(name)
            if t is not None and t.shape != expected:
                which = "for all of x" if self.axis is None else f"for each index along axis {self.axis}"
                fact = f"{name} must have the shape {expected}, one number {which}, got {t.shape}"
                raise self.fail(ShapeError, fact, **operands)

    def along_axis(self, parameter: Any, x: Any) -> Any:
        """A scale or a zero point in a shape that broadcasts to x."""
        if parameter is None or self.axis is None:
            return parameter
        axis = normalize_axes(self.name, self.axis, x.ndim)[0]
        return F.reshape(parameter, shape=tuple(-1 if d == axis else 1 for d in range(x.ndim)))


class Ranged(Affine):
    """Base of what rounds to integers from low to high, by default all of dtype's."""

    dtype: DType = int8
    low: int | None = None
    high: int | None = None

    def check(self) -> None:
        if self.dtype.name not in LIMITS:
            raise DTypeError(f"{self.name}: dtype must be one of {', '.join(LIMITS)}, got {self.dtype}")
        least, most = LIMITS[self.dtype.name]
        low, high = self.limits
        if not least <= low < high <= most:
            raise ValueError(
                f"{self.name}: low and high must be in {least}..{most} and in order for {self.dtype}, got {low}, {high}"
            )

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest integer."""
        least, most = LIMITS[self.dtype.name]
        return (least if self.low is None else self.low, most if self.high is None else self.high)


def computed_in(x: TensorType) -> DType:
    """The floating-point type that a quantity is divided and rounded in: float64 for float64, else float32."""
    return float64 if x.dtype is float64 else float32


@op
class QuantizeElements(Pointwise, family="quantization", public=False, smooth=False):
    """saturate(round(x / scale) + zero_point) on operands that broadcast; no scale: 1; NaN becomes low."""

    dtype: DType
    low: int
    high: int

    def compute_dtype(self, *inputs: TensorType | None) -> DType:
        assert inputs[0] is not None
        return computed_in(inputs[0])

    def infer(self, *inputs: TensorType | None) -> TensorType:
        named = {i.name: t for i, t in zip(self.inputs, inputs, strict=True) if t is not None}
        return named["x"].like(broadcast_shapes(self.name, named), self.dtype)

    def scalar(self, x: Scalar, scale: Scalar | None = None, zero_point: Scalar | None = None) -> Scalar:
        q = e.call("rint", x if scale is None else x / scale)
        q = q if zero_point is None else q + zero_point
        low, high = (e.constant(float(limit), q.dtype) for limit in (self.low, self.high))
        return e.cast(e.where(q > low, e.where(q < high, q, high), low), self.dtype.name)


@op
class DequantizeElements(Pointwise, family="quantization", public=False):
    """(q - zero_point) * scale in scale's type, on operands that broadcast."""

    def compute_dtype(self, *inputs: TensorType | None) -> DType:
        assert inputs[1] is not None
        return computed_in(inputs[1])

    def infer(self, *inputs: TensorType | None) -> TensorType:
        named = {i.name: t for i, t in zip(self.inputs, inputs, strict=True) if t is not None}
        return named["q"].like(broadcast_shapes(self.name, named), self.compute_dtype(*inputs))

    def scalar(self, q: Scalar, scale: Scalar, zero_point: Scalar | None = None) -> Scalar:
        return (q if zero_point is None else q - zero_point) * scale


@op
class Quantize(Ranged, rule="x: float, scale?: float, zero_point? -> y: dtype", positional=("axis", "dtype")):
    """saturate(round(x / scale) + zero_point): the nearest integers, halves to the even one.

    x: float[...]; scale: float[] or, with axis, one for each index along it, positive, or None: 1; zero_point: whole
    numbers of scale's shape, or None: 0. dtype: int8, uint8 or int16; low, high: bounds, by default the type's. What
    is beyond the bounds becomes the bound, NaN becomes low. float16 and bfloat16 are computed in float32. Returns x's
    shape in dtype; the gradient is zero (see fake_quantize). Raises ShapeError if scale or zero_point have another
    shape, DTypeError for integers, ValueError for bounds that dtype does not have.
    Source: ONNX 1.16, QuantizeLinear.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.quantize(wf.tensor([-9., 0.5, 1.5, 70.]), wf.tensor(1.), wf.tensor(10), high=64)
    tensor([ 1, 10, 12, 64], dtype=int8, device=cpu:0)
    """

    def infer(
        self, x: TensorType, scale: TensorType | None = None, zero_point: TensorType | None = None
    ) -> TensorType:
        self.require_floats(x=x)
        self.check_affine(x, scale, zero_point)
        return x.like(dtype=self.dtype)

    def decompose(self, x: Any, scale: Any = None, zero_point: Any = None) -> Any:
        low, high = self.limits
        scale, zero_point = (self.along_axis(p, x) for p in (scale, zero_point))
        return F.quantize_elements(x, scale, zero_point, dtype=self.dtype, low=low, high=high)

    def vjp(self, x: Any, scale: Any, zero_point: Any, dy: Any) -> Any:
        return None, None, None


@op
class Dequantize(Affine, rule="q: int, scale: float, zero_point? -> y: result()", positional=("axis",)):
    """(q - zero_point) * scale.

    q: integers [...]; scale: float[] or, with axis, one for each index along it; zero_point: numbers of scale's shape,
    or None: 0. Returns q's shape in float32, or in float64 if scale is of it; integers of more than 24 bits are rounded
    to it first. Raises ShapeError if scale or zero_point have another shape, DTypeError unless q is of integers.
    Source: ONNX 1.16, DequantizeLinear.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.dequantize(wf.tensor([[0, 10], [2, 4]]), wf.tensor([0.5, 2.]), wf.tensor([0, 2]), axis=0)
    tensor([[0., 5.],
            [0., 4.]], dtype=float32, device=cpu:0)
    """

    def infer(self, q: TensorType, scale: TensorType, zero_point: TensorType | None = None) -> TensorType:
        if q.dtype.kind not in ("int", "uint"):
            raise self.fail(DTypeError, "takes integers", q=q)
        self.check_affine(q, scale, zero_point)
        return q.like(dtype=computed_in(scale))

    def result(self, q: TensorType, scale: TensorType, zero_point: TensorType | None = None) -> DType:
        """The dtype of the result."""
        return computed_in(scale)

    def decompose(self, q: Any, scale: Any, zero_point: Any = None) -> Any:
        scale, zero_point = (self.along_axis(p, q) for p in (scale, zero_point))
        return F.dequantize_elements(q, scale, zero_point)


@op
class FakeQuantize(Ranged, rule="x: float, scale: float, zero_point? -> y: x", positional=("axis", "dtype")):
    """dequantize(quantize(x)) with a gradient, for training: x as it will be after quantization.

    x, scale, zero_point, axis, dtype, low, high: as for quantize; NaN stays NaN. Returns x's shape and dtype.
    estimator: the rule of the gradient. All pass dy to x where x is not saturated, and 0 elsewhere.
    "straight_through": nothing else has a gradient.
    "learned_step": scale has the gradient sum(dy * d), times gradient_factor, where d is round(x / scale) - x / scale,
    and the bound less the zero point where x is saturated; a zero_point of floats has -scale * dy of saturated x.
    "threshold": scale is the base-2 logarithm t of a threshold, the step 2^ceil(t) / 2^bits, with bits those of high;
    t has the gradient of the step times step * ln 2.
    Raises as quantize does.
    Source: Bengio et al. 2013 (straight-through); Esser et al. 2020, Learned step size quantization; Jain et al. 2020,
    Trained quantization thresholds.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.fake_quantize(wf.tensor([-9., 0.4, 0.6]), wf.tensor(0.5), low=-8, high=7)
    tensor([-4. ,  0.5,  0.5], dtype=float32, device=cpu:0)
    """

    estimator: Literal["straight_through", "learned_step", "threshold"] = "straight_through"
    gradient_factor: float = 1.0

    def infer(self, x: TensorType, scale: TensorType, zero_point: TensorType | None = None) -> TensorType:
        self.require_floats(x=x)
        self.check_affine(x, scale, zero_point)
        return x.like()

    def step(self, scale: Any, x: Any) -> Any:
        """The step of each element, in a shape that broadcasts to x, in the type that is computed in."""
        scale = cast_to(self.along_axis(scale, x), computed_in(x.type))
        if self.estimator != "threshold":
            return scale
        return F.exp2(F.ceil(scale) - float(self.limits[1].bit_length()))

    def decompose(self, x: Any, scale: Any, zero_point: Any = None) -> Any:
        low, high = self.limits
        wide, step = cast_to(x, computed_in(x.type)), self.step(scale, x)
        zero = None if zero_point is None else cast_to(self.along_axis(zero_point, x), wide.dtype)
        q = F.round(wide / step)
        q = F.clip(q if zero is None else q + zero, float(low), float(high))
        return cast_to((q if zero is None else q - zero) * step, x.dtype)

    def vjp(self, x: Any, scale: Any, zero_point: Any, dy: Any) -> Any:
        low, high = self.limits
        kind = computed_in(x.type)
        step = self.step(scale, x)
        zero = None if zero_point is None else cast_to(self.along_axis(zero_point, x), kind)
        ratio = cast_to(x, kind) / step
        whole = F.round(ratio)
        q = whole if zero is None else whole + zero
        inside = F.logical_and(F.greater_equal(q, float(low)), F.less_equal(q, float(high)))
        dx = F.where(inside, dy, 0.0)
        if self.estimator == "straight_through":
            return dx, None, None
        slope = cast_to(dy, kind)
        bound = F.clip(q, float(low), float(high))
        distance = F.where(inside, whole - ratio, bound if zero is None else bound - zero)
        terms = slope * distance * self.gradient_factor
        if self.estimator == "threshold":
            terms = terms * step * math.log(2)
        dscale = self._summed(terms, scale, x)
        dzero = None
        if zero_point is not None and zero_point.dtype.is_differentiable:
            dzero = F.where(inside, 0.0, -slope * step * self.gradient_factor)
            dzero = self._summed(dzero, zero_point, x)
        return dx, dscale, dzero

    def _summed(self, terms: Any, parameter: Any, x: Any) -> Any:
        summed = unbroadcast(terms, self.along_axis(parameter, x))
        return cast_to(F.reshape(summed, shape=parameter.shape), parameter.dtype)


# Products of bytes.

EXACT_IN_FLOAT = 512  # so many products of an uint8 and an int8 have a sum of at most 24 bits


def has_blocks(count: Any, each: Any = 1) -> bool:
    """Whether sums of so many times `each` products are taken apart: levels without instructions for bytes compute
    the parts in float32, exactly.

    >>> has_blocks(512), has_blocks(513), has_blocks(64, 9), has_blocks(2, 513)
    (False, True, True, False)
    """
    numbers = isinstance(count, int) and isinstance(each, int)
    return numbers and 0 < each <= EXACT_IN_FLOAT < count * each


def in_blocks(
    product: Any, count: int, a: tuple[Any, int], b: tuple[Any, int], block: int = EXACT_IN_FLOAT
) -> Any:
    """The sum of the products of parts of a and b along their axes."""
    parts = []
    for begin in range(0, count, block):
        stop = min(begin + block, count)
        parts.append(product(*(F.slice(x, starts=(begin,), stops=(stop,), axes=(d,)) for x, d in (a, b))))
    return functools.reduce(F.add, parts)


@op
class IntegerMatmul(
    Op,
    family="quantization",
    rule="a[...,rows,inner]: int8|uint8, b[...,inner,columns]: int8|uint8 -> y[...,rows,columns]: int32",
):
    """The product of matrices of bytes, added up in int32; matmul of int8 arrays is of int8 and wraps.

    a: int8 or uint8 [..., m, k]; b: int8 or uint8 [..., k, n]; the leading sizes fit by broadcasting. Returns int32
    [..., m, n], exact for k up to 33026 and wrapping beyond. No gradient. Raises ShapeError if the sizes differ or one
    has less than 2 dimensions, DTypeError for other types.
    narrow: the numbers of b are from -64 to 63, which processors without instructions for bytes multiply with uint8
    exactly, two at a time; others are then wrong there.
    Source: ONNX 1.16, MatMulInteger.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> a = wf.tensor([[100, 100]], dtype="int8")
    >>> F.integer_matmul(a, a.T), a @ a.T
    (tensor([[20000]], dtype=int32, device=cpu:0), tensor([[32]], dtype=int8, device=cpu:0))
    """

    narrow: bool = False

    def decompose(self, a: Any, b: Any) -> Any:
        if has_blocks(a.shape[-1]):
            product = functools.partial(F.integer_matmul, narrow=self.narrow)
            return in_blocks(product, a.shape[-1], (a, -1), (b, -2))
        return F.matmul(F.cast(a, dtype=int32), F.cast(b, dtype=int32))


@op
class IntegerLinear(
    Op,
    family="quantization",
    rule="x[*b,in_features]: int8|uint8, weight[out_features,in_features]: int8|uint8 -> y[*b,out_features]: int32",
):
    """x W^T of bytes, added up in int32.

    x: int8 or uint8 [..., k]; weight: int8 or uint8 [n, k]. Returns int32 [..., n], exact for k up to 33026 and
    wrapping beyond. No gradient. narrow: of weight, as for integer_matmul. Raises ShapeError if the sizes differ,
    DTypeError for other types.
    Source: ONNX 1.16, MatMulInteger.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.integer_linear(wf.tensor([100, 1], dtype="uint8"), wf.tensor([[100, -1]], dtype="int8"))
    tensor([9999], dtype=int32, device=cpu:0)
    """

    narrow: bool = False

    def decompose(self, x: Any, weight: Any) -> Any:
        if has_blocks(x.shape[-1]):
            product = functools.partial(F.integer_linear, narrow=self.narrow)
            return in_blocks(product, x.shape[-1], (x, -1), (weight, -1))
        return F.matmul(F.cast(x, dtype=int32), F.matrix_transpose(F.cast(weight, dtype=int32)))


class IntegerConvolution(
    Convolution,
    family="quantization",
    rule="x[n,groups*channels,i^spatial]: int8|uint8, weight[out_channels,channels,kernel_size^spatial]: int8|uint8 -> "
    "y[n,out_channels,output_sizes()^spatial]: int32",
):
    """Base of convolutions of bytes, added up in int32, without a bias."""

    narrow: bool = False

    def decompose(self, x: Any, weight: Any) -> Any:  # type: ignore[override]
        channels, window = x.shape[1], math.prod(weight.shape[2:])
        if self.groups == 1 and has_blocks(channels, window):
            same = functools.partial(getattr(F, self.name), **self.values())
            return in_blocks(same, channels, (x, 1), (weight, 1), EXACT_IN_FLOAT // window)
        convolution = getattr(F, self.name.removeprefix("integer_"))
        attributes = {name: value for name, value in self.values().items() if name != "narrow"}
        return convolution(F.cast(x, dtype=int32), F.cast(weight, dtype=int32), **attributes)

    def vjp(self, *values: Any) -> Any:
        return None, None


@op
class IntegerConv1d(IntegerConvolution):
    """The convolution of sequences of bytes, added up in int32.

    x: int8 or uint8 [n, c, l]; weight: int8 or uint8 [o, c / groups, kl]; stride, padding (of zeros), dilation,
    out_channels, kernel_size: as for conv1d. Returns int32 [n, o, ...], channels last in memory. No gradient. narrow:
    of weight, as for integer_matmul. Raises ShapeError if channels or sizes do not fit, DTypeError for other types.
    Source: ONNX 1.16, ConvInteger.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.integer_conv1d(wf.ones((1, 1, 5), dtype="int8"), wf.ones((2, 1, 3), dtype="int8")).shape
    (1, 2, 3)
    """

    spatial = 1


@op
class IntegerConv2d(IntegerConvolution):
    """The convolution of images of bytes, added up in int32.

    x: int8 or uint8 [n, c, h, w]; weight: int8 or uint8 [o, c / groups, kh, kw]; stride, padding (of zeros), dilation,
    out_channels, kernel_size: as for conv2d. Returns int32 [n, o, ...], channels last in memory. No gradient. narrow:
    of weight, as for integer_matmul. Raises ShapeError if channels or sizes do not fit, DTypeError for other types.
    Source: ONNX 1.16, ConvInteger.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> x, w = wf.full((1, 2, 3, 3), 100, dtype="uint8"), wf.full((1, 2, 3, 3), 100, dtype="int8")
    >>> F.integer_conv2d(x, w).item()
    180000
    """

    spatial = 2


@op
class IntegerConv3d(IntegerConvolution):
    """The convolution of volumes of bytes, added up in int32.

    x: int8 or uint8 [n, c, d, h, w]; weight: int8 or uint8 [o, c / groups, kd, kh, kw]; stride, padding (of zeros),
    dilation, out_channels, kernel_size: as for conv3d. Returns int32 [n, o, ...], channels last in memory. No gradient.
    narrow: of weight, as for integer_matmul. Raises ShapeError if channels or sizes do not fit, DTypeError for other
    types.
    Source: ONNX 1.16, ConvInteger.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.integer_conv3d(wf.ones((1, 1, 3, 3, 3), dtype="int8"), wf.ones((1, 1, 2, 2, 2), dtype="int8")).shape
    (1, 1, 2, 2, 2)
    """

    spatial = 3


# Weights alone.


@op
class PackInt4(Op, family="quantization", rule="q: int -> y: uint8", positional=("group_size",)):
    """Two integers of 4 bits in each byte: what quantized_linear reads.

    q: integers [..., k] from -8 to 7, of which only the last 4 bits are taken; group_size: an even divisor of k. Byte j
    of a group of g holds element j in its low and element j + g / 2 in its high 4 bits, each plus 8. Returns uint8
    [..., k / 2]. Raises ShapeError unless group_size divides k, ValueError if it is odd, DTypeError for floats.

    Source: Frantar et al. 2022, GPTQ (groups of weights).

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.pack_int4(wf.tensor([-8, 7, 0, 1], dtype="int8"), group_size=4)
    tensor([128, 159], dtype=uint8, device=cpu:0)
    """

    group_size: int

    def check(self) -> None:
        if self.group_size < 2 or self.group_size % 2:
            raise ValueError(f"{self.name}: group_size must be even and positive, got {self.group_size}")

    def infer(self, q: TensorType) -> TensorType:
        if q.dtype.kind not in ("int", "uint"):
            raise self.fail(DTypeError, "takes integers", q=q)
        k = q.shape[-1] if q.ndim else 1
        if k % self.group_size:
            raise self.fail(ShapeError, f"groups of {self.group_size} do not divide {k}", q=q)
        return q.like((*q.shape[:-1], k // 2), uint8)

    def decompose(self, q: Any) -> Any:
        halves = (*q.shape[:-1], q.shape[-1] // self.group_size, 2, self.group_size // 2)
        nibbles = F.reshape(F.bitwise_and(F.cast(q, dtype=int32) + 8, 15), shape=halves)
        low, high = (F.slice(nibbles, starts=(k,), stops=(k + 1,), axes=(-2,)) for k in range(2))
        packed = F.reshape(low + high * 16, shape=(*q.shape[:-1], q.shape[-1] // 2))
        return F.cast(packed, dtype=uint8)

    def vjp(self, q: Any, dy: Any) -> Any:
        return None


@op
class QuantizedLinear(
    Op,
    family="quantization",
    rule="x: float, weight: int, scale: float, bias?: float -> y: x",
):
    """x W^T + bias with a weight of small integers and a step for each group: W = q * scale.

    x: float[..., k]; weight: int8 [n, k], or uint8 [n, k / 2] as pack_int4 gives it for groups of this size, or, with
    format "e4m3" or "e5m2", uint8 [n, k] as to_float8 gives it; scale: float[n, g]: each row of the weight has g groups
    of k / g neighbours; bias: float[n] or None. Returns [..., n] in x's dtype. For few rows of x the weight
    is read as it is stored; else it is made a matrix of x's type first.
    Weight has no gradient. Raises ShapeError if sizes differ, DTypeError for other types.
    Source: Frantar et al. 2022, GPTQ (groups of weights).

    >>> import weft as wf
    >>> import weft.functional as F
    >>> w = wf.tensor([[1, -2, 3, 4]], dtype="int8")
    >>> F.quantized_linear(wf.ones((1, 4)), w, wf.tensor([[0.5, 2.]]))
    tensor([[13.5]], dtype=float32, device=cpu:0)
    >>> F.quantized_linear(wf.ones((2, 4)), F.pack_int4(w, group_size=2), wf.tensor([[0.5, 2.]]))[0]
    tensor([13.5], dtype=float32, device=cpu:0)
    """

    format: Literal["integer", "e4m3", "e5m2"] = "integer"

    def infer(
        self, x: TensorType, weight: TensorType, scale: TensorType, bias: TensorType | None = None
    ) -> TensorType:
        operands = {"x": x, "weight": weight, "scale": scale} | ({} if bias is None else {"bias": bias})
        self.require_floats(**{name: t for name, t in operands.items() if name != "weight"})
        if self.format != "integer" and weight.dtype.name != "uint8":
            raise self.fail(DTypeError, f"weight must be uint8 of {self.format} (to_float8)", **operands)
        if weight.dtype.name not in ("int8", "uint8"):
            raise self.fail(DTypeError, "weight must be int8, or uint8 of pairs (pack_int4)", **operands)
        if x.ndim == 0 or weight.ndim != 2 or scale.ndim != 2 or scale.shape[0] != weight.shape[0]:
            raise self.fail(ShapeError, "needs x [..., k], weight [n, k] and scale [n, g]", **operands)
        k = x.shape[-1]
        columns = weight.shape[1] * (2 if self.is_packed(weight) else 1)
        if columns != k:
            raise self.fail(ShapeError, f"inner sizes differ, {k} != {columns}", **operands)
        groups = scale.shape[1]
        if groups == 0 or k % groups or (columns != weight.shape[1] and (k // groups) % 2):
            raise self.fail(ShapeError, f"{groups} groups do not divide {k}", **operands)
        if bias is not None and bias.shape != (weight.shape[0],):
            raise self.fail(ShapeError, f"bias needs the shape ({weight.shape[0]},)", **operands)
        return x.like((*x.shape[:-1], weight.shape[0]))

    def is_packed(self, weight: Any) -> bool:
        """Whether there are two numbers in each byte."""
        return self.format == "integer" and weight.dtype.name == "uint8"

    def decompose(self, x: Any, weight: Any, scale: Any, bias: Any = None) -> Any:
        kind = computed_in(x.type)
        n, groups = scale.shape
        bytes_each = weight.shape[1] // groups
        stored = F.reshape(weight, shape=(n, groups, bytes_each))
        if self.format == "integer":
            parts = _nibbles(stored) if self.is_packed(weight) else [stored]
        else:
            parts = [F.from_float8(stored, format=self.format)]
        numbers = [cast_to(part, kind) for part in parts]
        steps = F.reshape(cast_to(scale, kind), shape=(n, groups, 1))
        if is_one_row(x.type):
            y = self._of_one_row(x, numbers, steps, kind)
        else:
            both = numbers[0] if len(numbers) == 1 else F.concat(*numbers, axis=-1)
            matrix = F.reshape(both * steps, shape=(n, x.shape[-1]))
            return F.linear(x, cast_to(matrix, x.dtype), None if bias is None else cast_to(bias, x.dtype))
        y = y if bias is None else y + cast_to(bias, kind)
        return cast_to(F.reshape(y, shape=(*x.shape[:-1], n)), x.dtype)

    def _of_one_row(self, x: Any, numbers: list[Any], steps: Any, kind: DType) -> Any:
        """The sum over groups and their elements; one loop over the bytes of the weight."""
        groups, each = steps.shape[1], x.shape[-1] // steps.shape[1] // len(numbers)
        rows = F.reshape(cast_to(x, kind), shape=(1, groups, len(numbers), each))
        terms = [
            q * F.reshape(F.slice(rows, starts=(k,), stops=(k + 1,), axes=(2,)), shape=(1, groups, each))
            for k, q in enumerate(numbers)
        ]
        return F.sum(steps * (terms[0] if len(terms) == 1 else terms[0] + terms[1]), axis=(1, 2))


def _nibbles(packed: Any) -> list[Any]:
    """The low and the high 4 bits of bytes, less 8."""
    whole = F.cast(packed, dtype=int32)
    return [F.bitwise_and(whole, 15) - 8, F.bitwise_right_shift(whole, 4) - 8]


__all__ = [
    "Dequantize",
    "DequantizeElements",
    "FakeQuantize",
    "IntegerConv1d",
    "IntegerConv2d",
    "IntegerConv3d",
    "IntegerLinear",
    "IntegerMatmul",
    "PackInt4",
    "Quantize",
    "QuantizeElements",
    "QuantizedLinear",
]
