"""Normalization: values brought to mean 0 and variance 1 along some axes, then scaled and shifted."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from weft.base.dtype import DType
from weft.base.errors import ShapeError
from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops.kernels import Loop, Row
from weft.ops.op import Op, Runtime, op
from weft.ops.pointwise import cast_to
from weft.ops.types import TensorType

Scalar = e.Scalar


def statistics_dtype(x: TensorType) -> DType:
    """The type that means and variances are kept in: float32 for half types."""
    return x.dtype.accumulation


def wide(number: int, t: TensorType | None, dtype: str) -> Scalar | None:
    """An operand's element in the type of the computation, None if it is missing."""
    return None if t is None else e.cast(e.load(number, t.dtype.name), dtype)


def scaled_element(y: Scalar, x: TensorType, weight: TensorType | None, bias: TensorType | None) -> Scalar:
    """y * weight + bias in y's type, then in x's; weight and bias are inputs 1 and 2."""
    scale, shift = wide(1, weight, y.dtype), wide(2, bias, y.dtype)
    y = y if scale is None else y * scale
    y = y if shift is None else y + shift
    return e.cast(y, x.dtype.name)


class LastAxes(Op, family="normalization"):
    """Base: the rows are made of the last dimensions, those of normalized_shape."""

    normalized_shape: int | tuple[int, ...]

    def check(self) -> None:
        if isinstance(self.normalized_shape, int):
            self.set("normalized_shape", (self.normalized_shape,))

    @property
    def row_shape(self) -> tuple[int, ...]:
        assert isinstance(self.normalized_shape, tuple)
        return self.normalized_shape

    def axes(self, ndim: int) -> tuple[int, ...]:
        """Those that make up a row."""
        return tuple(range(ndim - len(self.row_shape), ndim))

    def leading(self, ndim: int) -> tuple[int, ...]:
        """The others."""
        return tuple(range(ndim - len(self.row_shape)))

    def ones(self, *types: TensorType | None) -> tuple[int, ...]:
        """The sizes of statistics in the place of a row."""
        return (1,) * len(self.row_shape)

    def count(self) -> int:
        """Elements of a row."""
        return math.prod(self.row_shape)


@op
class LayerNorm(
    LastAxes,
    rule="x[*b,*normalized_shape]: float, weight[*normalized_shape]?: learnable float, "
    "bias[*normalized_shape]?: learnable float -> y[*b,*normalized_shape]: x, "
    "mean[*b,*ones()]: accumulation(x), inverse_std[*b,*ones()]: accumulation(x)",
    hidden=2,
    positional=("x", "normalized_shape", "weight", "bias", "eps"),
):
    """(x - mean) / sqrt(variance + eps) * weight + bias, with the mean and variance of each row of the last dimensions.

    x: float[..., *normalized_shape]; normalized_shape: an int or several; weight, bias: of that shape, or None; eps: a
    number given when it runs. Returns x's shape and dtype. Raises ShapeError if x does not end with normalized_shape or
    weight and bias do not have it, DTypeError for integers.
    Source: Ba, Kiros, Hinton 2016, Layer normalization.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.layer_norm(wf.tensor([[1., 3.], [5., 5.]]), 2, eps=0.)[0]
    tensor([-1.,  1.], dtype=float32, device=cpu:0)
    """

    eps: Runtime[float] = 1e-5

    def kernels(
        self, x: TensorType, weight: TensorType | None = None, bias: TensorType | None = None
    ) -> Iterator[Loop]:
        kind = statistics_dtype(x).name
        row = Row(inputs=3)
        value = e.cast(e.load(0, x.dtype.name), kind)
        number = row.number(self.count(), kind)
        mean = row.sum(value) / number
        apart = value - mean
        inverse = e.call("rsqrt", row.dot(apart, apart) / number + row.number(self.eps, kind))
        row.each(scaled_element(apart * inverse, x, weight, bias))
        row.once(1, mean, inverse)
        yield row.loop(self.axes(x.ndim))

    def decompose(self, x: Any, weight: Any = None, bias: Any = None) -> Any:
        axes = self.axes(x.ndim)
        value = cast_to(x, statistics_dtype(x.type))
        mean = F.mean(value, axis=axes, keepdims=True)
        apart = value - mean
        inverse = F.rsqrt(F.mean(apart * apart, axis=axes, keepdims=True) + self.eps)
        return scaled(apart * inverse, weight, bias, x.dtype), mean, inverse

    def vjp(
        self,
        x: Any,
        weight: Any,
        bias: Any,
        mean: Any,
        inverse_std: Any,
        dy: Any,
        dmean: Any,
        dinverse_std: Any,
    ) -> Any:
        axes = self.axes(x.ndim)
        dx = dweight = dbias = None
        if dy is not None:
            dx = F.layer_norm_gradient(x, weight, mean, inverse_std, dy, normalized_shape=self.row_shape)
            if weight is not None:
                normal = cast_to((cast_to(x, mean.dtype) - mean) * inverse_std, x.dtype)
                dweight = cast_to(F.sum(dy * normal, axis=self.leading(x.ndim)), weight.dtype)
            if bias is not None:
                dbias = cast_to(F.sum(dy, axis=self.leading(x.ndim)), bias.dtype)
        return through_statistics(x, axes, dx, mean, inverse_std, dmean, dinverse_std), dweight, dbias

    def recomputed(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        x, weight, bias = inputs
        return scaled((cast_to(x, outputs[1].dtype) - outputs[1]) * outputs[2], weight, bias, x.dtype)


def scaled(y: Any, weight: Any, bias: Any, dtype: DType) -> Any:
    """y * weight + bias in y's type, then converted, as scaled_element computes it."""
    y = y if weight is None else y * cast_to(weight, y.dtype)
    y = y if bias is None else y + cast_to(bias, y.dtype)
    return cast_to(y, dtype)


def through_statistics(
    x: Any, axes: tuple[int, ...], dx: Any, mean: Any, inverse_std: Any, dmean: Any, dinverse_std: Any
) -> Any:
    """dx and what comes by the saved statistics, which only gradients of gradients have."""
    terms = [] if dx is None else [dx]
    if dmean is not None:
        terms.append(cast_to(F.broadcast_like(F.divide_by_count(dmean, x, axis=axes), x), x.dtype))
    if dinverse_std is not None:
        cotangent = F.divide_by_count(-dinverse_std * inverse_std * inverse_std * inverse_std, x, axis=axes)
        terms.append(cast_to((cast_to(x, mean.dtype) - mean) * cotangent, x.dtype))
    return functools.reduce(operator.add, terms)


@op
class LayerNormGradient(LastAxes, public=False, outputs=("dx",)):
    """The gradient of layer_norm's x, by one program for each row."""

    def infer(
        self,
        x: TensorType,
        weight: TensorType | None,
        mean: TensorType,
        inverse_std: TensorType,
        dy: TensorType,
    ) -> TensorType:
        return x.like()

    def kernels(
        self,
        x: TensorType,
        weight: TensorType | None,
        mean: TensorType,
        inverse_std: TensorType,
        dy: TensorType,
    ) -> Iterator[Loop]:
        kind = mean.dtype.name
        row = Row(inputs=5)
        inverse = e.load(3, kind)
        normal = (e.cast(e.load(0, x.dtype.name), kind) - e.load(2, kind)) * inverse
        scale = wide(1, weight, kind)
        cotangent = e.cast(e.load(4, dy.dtype.name), kind)
        cotangent = cotangent if scale is None else cotangent * scale
        number = row.number(self.count(), kind)
        total, along = row.sum(cotangent), row.dot(cotangent, normal)
        row.each(e.cast((cotangent - total / number - normal * (along / number)) * inverse, x.dtype.name))
        yield row.loop(self.axes(x.ndim))

    def decompose(self, x: Any, weight: Any, mean: Any, inverse_std: Any, dy: Any) -> Any:
        axes = self.axes(x.ndim)
        cotangent, value = cast_to(dy, mean.dtype), cast_to(x, mean.dtype)
        cotangent = cotangent if weight is None else cotangent * cast_to(weight, mean.dtype)
        normal = (value - mean) * inverse_std
        along = F.mean(cotangent * normal, axis=axes, keepdims=True)
        return cast_to(
            (cotangent - F.mean(cotangent, axis=axes, keepdims=True) - normal * along) * inverse_std, x.dtype
        )


@op
class RmsNorm(
    LastAxes,
    rule="x[*b,*normalized_shape]: float, weight[*normalized_shape]?: learnable float -> "
    "y[*b,*normalized_shape]: x, inverse_rms[*b,*ones()]: accumulation(x)",
    hidden=1,
    positional=("x", "normalized_shape", "weight", "eps"),
):
    """x / sqrt(mean(x^2) + eps) * weight, with the mean of each row of the last dimensions.

    x: float[..., *normalized_shape]; normalized_shape: an int or several; weight: of that shape, or None; eps: a number
    given when it runs, None: the machine epsilon of x's dtype. Returns x's shape and dtype. Raises ShapeError if x does
    not end with normalized_shape or weight does not have it, DTypeError for integers.
    Source: Zhang, Sennrich 2019, Root mean square layer normalization.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.rms_norm(wf.tensor([1., 7.]), 2, eps=0.)
    tensor([0.2, 1.4], dtype=float32, device=cpu:0)
    """

    eps: Runtime[float | None] = None

    def kernels(self, x: TensorType, weight: TensorType | None = None) -> Iterator[Loop]:
        kind = statistics_dtype(x).name
        row = Row(inputs=2)
        value = e.cast(e.load(0, x.dtype.name), kind)
        eps = row.number(2.0 ** (1 - x.dtype.digits) if self.eps is None else self.eps, kind)
        inverse = e.call("rsqrt", row.dot(value, value) / row.number(self.count(), kind) + eps)
        row.each(scaled_element(value * inverse, x, weight, None))
        row.once(1, inverse)
        yield row.loop(self.axes(x.ndim))

    def decompose(self, x: Any, weight: Any = None) -> Any:
        value = cast_to(x, statistics_dtype(x.type))
        eps = 2.0 ** (1 - x.dtype.digits) if self.eps is None else self.eps
        inverse = F.rsqrt(F.mean(value * value, axis=self.axes(x.ndim), keepdims=True) + eps)
        return scaled(value * inverse, weight, None, x.dtype), inverse

    def vjp(self, x: Any, weight: Any, inverse_rms: Any, dy: Any, dinverse_rms: Any) -> Any:
        terms, dweight = [], None
        if dy is not None:
            terms.append(F.rms_norm_gradient(x, weight, inverse_rms, dy, normalized_shape=self.row_shape))
            if weight is not None:
                normal = cast_to(cast_to(x, inverse_rms.dtype) * inverse_rms, x.dtype)
                dweight = cast_to(F.sum(dy * normal, axis=self.leading(x.ndim)), weight.dtype)
        if dinverse_rms is not None:
            cube = inverse_rms * inverse_rms * inverse_rms
            cotangent = F.divide_by_count(-dinverse_rms * cube, x, axis=self.axes(x.ndim))
            terms.append(cast_to(cast_to(x, inverse_rms.dtype) * cotangent, x.dtype))
        return functools.reduce(operator.add, terms), dweight

    def recomputed(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        x, weight = inputs
        return scaled(cast_to(x, outputs[1].dtype) * outputs[1], weight, None, x.dtype)


@op
class RmsNormGradient(LastAxes, public=False, outputs=("dx",)):
    """The gradient of rms_norm's x, by one program for each row."""

    def infer(
        self, x: TensorType, weight: TensorType | None, inverse_rms: TensorType, dy: TensorType
    ) -> TensorType:
        return x.like()

    def kernels(
        self, x: TensorType, weight: TensorType | None, inverse_rms: TensorType, dy: TensorType
    ) -> Iterator[Loop]:
        kind = inverse_rms.dtype.name
        row = Row(inputs=4)
        inverse = e.load(2, kind)
        normal = e.cast(e.load(0, x.dtype.name), kind) * inverse
        scale = wide(1, weight, kind)
        cotangent = e.cast(e.load(3, dy.dtype.name), kind)
        cotangent = cotangent if scale is None else cotangent * scale
        along = row.dot(cotangent, normal) / row.number(self.count(), kind)
        row.each(e.cast((cotangent - normal * along) * inverse, x.dtype.name))
        yield row.loop(self.axes(x.ndim))

    def decompose(self, x: Any, weight: Any, inverse_rms: Any, dy: Any) -> Any:
        cotangent = cast_to(dy, inverse_rms.dtype)
        cotangent = cotangent if weight is None else cotangent * cast_to(weight, inverse_rms.dtype)
        normal = cast_to(x, inverse_rms.dtype) * inverse_rms
        along = F.mean(cotangent * normal, axis=self.axes(x.ndim), keepdims=True)
        return cast_to((cotangent - normal * along) * inverse_rms, x.dtype)


def all_but_channels(ndim: int) -> tuple[int, ...]:
    """All axes but the channels'."""
    return tuple(d for d in range(ndim) if d != 1)


def along_channels(value: Any, ndim: int) -> Any:
    """[c] as [1, c, 1, ...]."""
    return F.expand_dims(value, axis=all_but_channels(ndim)) if value is not None else None


@op
class BatchNorm(
    Op,
    family="normalization",
    rule="x[n,channels,*s]: float, running_mean[channels]?: wide float, running_var[channels]?: wide float, "
    "weight[channels]?: learnable wide float, bias[channels]?: learnable wide float -> y[n,channels,*s]: x",
    positional=("training", "momentum", "eps"),
):
    """(x - mean) / sqrt(variance + eps) * weight + bias for each channel, the sizes of axis 1.

    x: float[n, c, ...]; running_mean, running_var: float[c], or None in training; weight, bias: float[c], or None.
    training: the mean and variance are those of x over all other axes, and the running ones move towards them by the
    share momentum (the variance with n - correction for n, 1 or 0); else they are the running ones. momentum, eps:
    numbers given when it runs. Returns x's shape and dtype. Raises ShapeError for fewer than 2 dimensions or sizes
    other than c, ValueError without running ones outside of training, DTypeError for integers.
    Source: Ioffe, Szegedy 2015, Batch normalization.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.batch_norm(wf.tensor([[1.], [3.]]), None, None, training=True, eps=0.)
    tensor([[-1.],
            [ 1.]], dtype=float32, device=cpu:0)
    """

    training: bool = False
    momentum: Runtime[float] = 0.1
    eps: Runtime[float] = 1e-5
    correction: Literal[1, 0] = 1

    @property
    def outputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("y", "mean", "inverse_std", "new_mean", "new_var") if self.training else ("y",)

    @property
    def hidden(self) -> int:  # type: ignore[override]
        return len(self.outputs) - 1

    @property
    def writes(self) -> dict[str, str]:  # type: ignore[override]
        return {"running_mean": "new_mean", "running_var": "new_var"} if self.training else {}

    def infer(
        self,
        x: TensorType,
        running_mean: TensorType | None = None,
        running_var: TensorType | None = None,
        weight: TensorType | None = None,
        bias: TensorType | None = None,
    ) -> Any:
        y: TensorType = super().infer(x, running_mean, running_var, weight, bias)
        if (running_mean is None) != (running_var is None):
            raise self.fail(ValueError, "needs both of running_mean and running_var, or none", x=x)
        if not self.training:
            if running_mean is None:
                raise self.fail(ValueError, "needs running_mean and running_var outside of training", x=x)
            return y
        kind = statistics_dtype(x)
        saved = x.like([n if d == 1 else 1 for d, n in enumerate(x.shape)], kind)
        new = [x.like((x.shape[1],), kind if t is None else t.dtype) for t in (running_mean, running_var)]
        return y, saved, saved, *new

    def decompose(self, x: Any, running_mean: Any, running_var: Any, weight: Any, bias: Any) -> Any:
        scale, shift = along_channels(weight, x.ndim), along_channels(bias, x.ndim)
        if self.training:
            y, mean, inverse, variance = F.normalize_along(
                x, scale, shift, axes=all_but_channels(x.ndim), eps=self.eps
            )
            flat = [F.squeeze(v, axis=all_but_channels(x.ndim)) for v in (mean, variance)]
            if running_mean is None:
                return y, mean, inverse, *flat
            if self.correction:
                flat[1] = flat[1] * F.count_ratio(x, axes=all_but_channels(x.ndim))
            new = [
                cast_to(F.lerp(cast_to(old, mean.dtype), now, self.momentum), old.dtype)
                for old, now in zip((running_mean, running_var), flat, strict=True)
            ]
            return y, mean, inverse, *new
        kind = statistics_dtype(x.type)
        cotangent = F.rsqrt(cast_to(along_channels(running_var, x.ndim), kind) + self.eps)
        cotangent = cotangent if scale is None else cotangent * cast_to(scale, kind)
        y = (cast_to(x, kind) - cast_to(along_channels(running_mean, x.ndim), kind)) * cotangent
        return cast_to(y if shift is None else y + cast_to(shift, kind), x.dtype)

    def vjp(self, *values: Any) -> Any:
        if not self.training:
            return NotImplemented
        x, _, _, weight, bias, _, mean, inverse, _, _, dy, dmean, dinverse, *_ = values
        axes = all_but_channels(x.ndim)
        scale = along_channels(weight, x.ndim)
        dx = dweight = dbias = None
        if dy is not None:
            dx, dscale, dshift = F.normalize_along_gradient(x, scale, mean, inverse, dy, axes=axes)
            if weight is not None:
                dweight = cast_to(F.squeeze(dscale, axis=axes), weight.dtype)
            if bias is not None:
                dbias = cast_to(F.squeeze(dshift, axis=axes), bias.dtype)
        return through_statistics(x, axes, dx, mean, inverse, dmean, dinverse), None, None, dweight, dbias


@op
class CountRatio(Op, primitive=True, public=False):
    """n / (n - 1) of x's number of elements along axes, 0-d, in the type of statistics; inf for one."""

    axes: tuple[int, ...]

    def infer(self, x: TensorType) -> TensorType:
        return x.like([], statistics_dtype(x))

    def kernels(self, x: TensorType) -> Iterator[Loop]:
        kind = statistics_dtype(x).name
        row = Row(inputs=1)
        number = row.number(math.prod(x.shape[d] for d in self.axes), kind)
        row.once(0, number / (number - 1))
        yield row.loop(tuple(range(x.ndim)))

    def vjp(self, x: Any) -> Any:
        return None


@op
class NormalizeAlong(Op, public=False, outputs=("y", "mean", "inverse_std", "variance")):
    """(x - mean) / sqrt(variance + eps) * weight + bias along axes; weight and bias broadcast.

    Outputs: y, mean, 1 / sqrt(variance + eps), variance, those with size 1 along the axes.
    """

    axes: tuple[int, ...]
    eps: Runtime[float]

    def infer(self, x: TensorType, weight: TensorType | None = None, bias: TensorType | None = None) -> Any:
        row_type = x.like([1 if d in self.axes else n for d, n in enumerate(x.shape)], statistics_dtype(x))
        return x.like(), row_type, row_type, row_type

    def kernels(
        self, x: TensorType, weight: TensorType | None = None, bias: TensorType | None = None
    ) -> Iterator[Loop]:
        kind = statistics_dtype(x).name
        row = Row(inputs=3)
        number = row.number(math.prod(x.shape[d] for d in self.axes), kind)
        value = e.cast(e.load(0, x.dtype.name), kind)
        mean = row.sum(value) / number
        apart = value - mean
        variance = row.dot(apart, apart) / number
        inverse = e.call("rsqrt", variance + row.number(self.eps, kind))
        row.each(scaled_element(apart * inverse, x, weight, bias))
        row.once(1, mean, inverse, variance)
        yield row.loop(self.axes)

    def recomputed(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        x, weight, bias = inputs
        return scaled((cast_to(x, outputs[1].dtype) - outputs[1]) * outputs[2], weight, bias, x.dtype)

    def decompose(self, x: Any, weight: Any, bias: Any) -> Any:
        kind = statistics_dtype(x.type)
        value = cast_to(x, kind)
        mean = F.mean(value, axis=self.axes, keepdims=True)
        variance = F.var(value, axis=self.axes, keepdims=True)
        inverse = F.rsqrt(variance + self.eps)
        return scaled((value - mean) * inverse, weight, bias, x.dtype), mean, inverse, variance


@op
class NormalizeAlongGradient(Op, public=False, outputs=("dx", "dweight", "dbias")):
    """The gradients of normalize's x, weight and bias, by one program for each row."""

    axes: tuple[int, ...]

    def infer(
        self,
        x: TensorType,
        weight: TensorType | None,
        mean: TensorType,
        inverse_std: TensorType,
        dy: TensorType,
    ) -> Any:
        return x.like(), mean.like(), mean.like()

    def kernels(
        self,
        x: TensorType,
        weight: TensorType | None,
        mean: TensorType,
        inverse_std: TensorType,
        dy: TensorType,
    ) -> Iterator[Loop]:
        kind = mean.dtype.name
        row = Row(inputs=5)
        number = row.number(math.prod(x.shape[d] for d in self.axes), kind)
        inverse = e.load(3, kind)
        normal = (e.cast(e.load(0, x.dtype.name), kind) - e.load(2, kind)) * inverse
        cotangent = e.cast(e.load(4, dy.dtype.name), kind)
        total, along = row.sum(cotangent), row.dot(cotangent, normal)
        scale = wide(1, weight, kind)
        factor = inverse if scale is None else inverse * scale
        row.each(e.cast((cotangent - total / number - normal * (along / number)) * factor, x.dtype.name))
        row.once(1, along, total)
        yield row.loop(self.axes)

    def decompose(self, x: Any, weight: Any, mean: Any, inverse_std: Any, dy: Any) -> Any:
        cotangent, value = cast_to(dy, mean.dtype), cast_to(x, mean.dtype)
        normal = (value - mean) * inverse_std
        total, along = (F.sum(v, axis=self.axes, keepdims=True) for v in (cotangent, cotangent * normal))
        means = [F.divide_by_count(v, x, axis=self.axes) for v in (total, along)]
        factor = inverse_std if weight is None else inverse_std * cast_to(weight, mean.dtype)
        return cast_to((cotangent - means[0] - normal * means[1]) * factor, x.dtype), along, total


class Grouped(
    Op,
    family="normalization",
    rule="x[n,channels,*s]: float, weight[channels]?: learnable float, bias[channels]?: learnable float -> "
    "y[n,channels,*s]: x",
):
    """Base: each sample's channels are normalized in groups."""

    eps: Runtime[float] = 1e-5

    def groups(self, channels: Any) -> Any:
        """How many groups."""
        raise NotImplementedError

    def infer(
        self, x: TensorType, weight: TensorType | None = None, bias: TensorType | None = None
    ) -> TensorType:
        y: TensorType = super().infer(x, weight, bias)
        groups = self.groups(x.shape[1])
        if groups < 1 or int(x.shape[1]) % groups:
            raise self.fail(ShapeError, f"{x.shape[1]} channels do not make {groups} groups", x=x)
        return y

    def decompose(self, x: Any, weight: Any, bias: Any) -> Any:
        groups = self.groups(x.shape[1])
        rows = F.reshape(x, shape=(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
        shape = rows.shape[2:]
        y = F.reshape(F.layer_norm(rows, shape, eps=self.eps), shape=x.shape)
        y = y if weight is None else y * along_channels(weight, x.ndim)
        return cast_to(y if bias is None else y + along_channels(bias, x.ndim), x.dtype)


@op
class GroupNorm(Grouped, positional=("x", "num_groups", "weight", "bias", "eps")):
    """(x - mean) / sqrt(variance + eps) * weight + bias, with the mean and variance of groups of a sample's channels.

    x: float[n, c, ...]; num_groups: how many, a divisor of c; weight, bias: float[c], or None; eps: a number given when
    it runs. Returns x's shape and dtype. Raises ShapeError if c does not make that many groups or weight and bias do
    not have its size, DTypeError for integers.
    Source: Wu, He 2018, Group normalization.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.group_norm(wf.tensor([[1., 3., 5., 9.]]), 2, eps=0.)
    tensor([[-1.,  1., -1.,  1.]], dtype=float32, device=cpu:0)
    """

    num_groups: int

    def groups(self, channels: Any) -> Any:
        return self.num_groups


@op
class InstanceNorm(Grouped, positional=("eps",)):
    """(x - mean) / sqrt(variance + eps) * weight + bias, with the mean and variance of each channel of each sample.

    x: float[n, c, ...]; weight, bias: float[c], or None; eps: a number given when it runs. Returns x's shape and dtype.
    Raises ShapeError if weight and bias do not have the size c, DTypeError for integers.
    Source: Ulyanov, Vedaldi, Lempitsky 2016, Instance normalization.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.instance_norm(wf.tensor([[[1., 3.], [5., 9.]]]), eps=0.)
    tensor([[[-1.,  1.],
             [-1.,  1.]]], dtype=float32, device=cpu:0)
    """

    def groups(self, channels: Any) -> Any:
        return int(channels)
