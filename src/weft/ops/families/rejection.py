"""Random numbers of distributions that are drawn by rejection, from random bits of each element."""

from __future__ import annotations

from typing import Any

from weft.base.dtype import DType, float32, float64, int64, uint64
from weft.base.errors import DTypeError, ShapeError
from weft.ops import functions as F
from weft.ops.families.keyed import Distribution
from weft.ops.node import constant
from weft.ops.op import Op, op
from weft.ops.types import TensorType


class OfBits(Op, family="random", primitive=True, public=False):
    """Base: parameters and uint64 bits of one shape, for each element; a kernel gives each its number.

    native/kernels/distributions.cpp has the methods. An element depends on nothing but its parameters and bits.
    """

    dtype: DType = int64

    def of_one_shape(self, **operands: TensorType) -> TensorType:
        """The result's type."""
        first = next(iter(operands.values()))
        if any(t.shape != first.shape for t in operands.values()):
            raise self.fail(ShapeError, "takes operands of one shape", **operands)
        if "bits" in operands and operands["bits"].dtype is not uint64:
            raise self.fail(DTypeError, "bits are uint64", **operands)
        return TensorType(first.shape, self.dtype, first.device)


@op
class GammaOfBits(OfBits):
    """Marsaglia and Tsang 2000: the gamma distribution with shape alpha, rate 1, for any alpha from 0."""

    dtype: DType = float32

    def infer(self, alpha: TensorType, bits: TensorType) -> TensorType:
        return self.of_one_shape(alpha=alpha, bits=bits)

    def vjp(self, alpha: Any, bits: Any, y: Any, dy: Any) -> Any:
        return F.cast(dy * F.gamma_slope(alpha, y, dtype=self.dtype), dtype=alpha.dtype), None


@op
class GammaSlope(OfBits):
    """The derivative of a sample of gamma(alpha) by alpha (Figurnov, Mohamed, Mnih 2018)."""

    dtype: DType = float32

    def infer(self, alpha: TensorType, y: TensorType) -> TensorType:
        return self.of_one_shape(alpha=alpha, y=y)


@op
class PoissonOfBits(OfBits):
    """Hoermann 1993, and below a rate of 10 the number of exponential distances that fit."""

    def infer(self, rate: TensorType, bits: TensorType) -> TensorType:
        return self.of_one_shape(rate=rate, bits=bits)

    def vjp(self, rate: Any) -> Any:
        return None, None


@op
class BinomialOfBits(OfBits):
    """Hoermann 1993, and below 10 expected successes the number of geometric distances that fit."""

    def infer(self, trials: TensorType, p: TensorType, bits: TensorType) -> TensorType:
        return self.of_one_shape(trials=trials, p=p, bits=bits)

    def vjp(self, trials: Any) -> Any:
        return None, None, None


@op
class MultinomialOfBits(OfBits):
    """trials[..., 1], p[..., k], bits[..., 1] -> counts[..., k], one binomial number after the other."""

    def infer(self, trials: TensorType, p: TensorType, bits: TensorType) -> TensorType:
        rows = (*p.shape[:-1], 1)
        if p.ndim == 0 or trials.shape != rows or bits.shape != rows:
            raise self.fail(ShapeError, "takes trials and bits of p's rows", trials=trials, p=p, bits=bits)
        return p.like(dtype=self.dtype)

    def vjp(self, trials: Any) -> Any:
        return None, None, None


def gamma_of(
    op: Distribution, key: Any, shape: tuple[Any, ...], dtype: DType, alpha: Any, array: int = 0
) -> Any:
    """Gamma variables with shape alpha, by one array of a key."""
    return F.gamma_of_bits(F.broadcast_to(alpha, shape=shape), op.items(key, shape, array), dtype=dtype)


def log_gamma_of(
    op: Distribution, key: Any, shape: tuple[Any, ...], dtype: DType, alpha: Any, array: int
) -> Any:
    """The logarithm of a gamma variable, which is finite for the smallest alpha, too: of that of alpha + 1.

    A gamma(alpha + 1) variable times u^(1 / alpha) is gamma(alpha) (Marsaglia and Tsang 2000, section 6).
    """
    more = gamma_of(op, key, shape, dtype, alpha + 1.0, array)
    return F.log(more) + F.log(op.open_uniform(key, shape, dtype, array + 1)) / alpha


@op
class GammaVariables(Distribution):
    """gamma(alpha) / rate."""

    def decompose(self, key: Any, alpha: Any, rate: Any) -> Any:
        return super().decompose(key, alpha, rate)

    def draw(self, key: Any, shape: tuple[Any, ...], dtype: DType, *parameters: Any) -> Any:
        alpha, rate = parameters
        return gamma_of(self, key, shape, dtype, alpha) / rate


@op
class BetaVariables(Distribution):
    """x / (x + y) of x ~ gamma(a) and y ~ gamma(b), as the sigmoid of the difference of their logarithms."""

    def decompose(self, key: Any, a: Any, b: Any) -> Any:
        return super().decompose(key, a, b)

    def draw(self, key: Any, shape: tuple[Any, ...], dtype: DType, *parameters: Any) -> Any:
        first, second = (log_gamma_of(self, key, shape, dtype, x, 2 * k) for k, x in enumerate(parameters))
        return F.sigmoid(first - second)


@op
class DirichletVariables(Distribution):
    """Gamma variables along the last axis, divided by their sum: the softmax of their logarithms."""

    def decompose(self, key: Any, alpha: Any) -> Any:
        if not alpha.ndim:
            raise self.fail(ShapeError, "needs at least 1 dimension", alpha=alpha.type)
        return super().decompose(key, alpha)

    def draw(self, key: Any, shape: tuple[Any, ...], dtype: DType, *parameters: Any) -> Any:
        return F.softmax(log_gamma_of(self, key, shape, dtype, parameters[0], 0), axis=-1)


@op
class StudentVariables(Distribution):
    """A normal variable over the root of gamma(df / 2) / (df / 2)."""

    def decompose(self, key: Any, df: Any) -> Any:
        return super().decompose(key, df)

    def draw(self, key: Any, shape: tuple[Any, ...], dtype: DType, *parameters: Any) -> Any:
        half = parameters[0] * 0.5
        return self.normal(key, shape, dtype, 1) / F.sqrt(gamma_of(self, key, shape, dtype, half) / half)


class Counts(Distribution):
    """Base of numbers of events, integers by default."""

    def repeated(self, *parameters: Any) -> list[Any]:
        """The parameters in float64, in the result's shape."""
        shape = self.result_shape(*parameters)
        return [F.broadcast_to(F.cast(x, dtype=float64), shape=shape) for x in parameters]


@op
class PoissonVariables(Counts):
    """The number of events of a rate."""

    def decompose(self, key: Any, rate: Any) -> Any:
        (rate,) = self.repeated(rate)
        return F.poisson_of_bits(rate, self.items(key, rate.shape), dtype=self.dtype or int64)


@op
class BinomialVariables(Counts):
    """The number of successes among trials."""

    def decompose(self, key: Any, trials: Any, p: Any) -> Any:
        trials, p = self.repeated(trials, p)
        return F.binomial_of_bits(trials, p, self.items(key, p.shape), dtype=self.dtype or int64)


@op
class NegativeBinomialVariables(Counts):
    """The number of failures before so many successes: Poisson with the rate gamma(successes) (1 - p) / p."""

    def decompose(self, key: Any, successes: Any, p: Any) -> Any:
        successes, p = self.repeated(successes, p)
        rate = gamma_of(self, key, p.shape, float64, successes, 0) * ((1.0 - p) / p)
        return F.poisson_of_bits(rate, self.items(key, p.shape, 1), dtype=self.dtype or int64)


@op
class MultinomialVariables(Counts):
    """How often each of the categories of the last axis occurs among trials."""

    def decompose(self, key: Any, trials: Any, p: Any) -> Any:
        if not p.ndim:
            raise self.fail(ShapeError, "needs at least 1 dimension", p=p.type)
        trials = F.expand_dims(F.cast(trials, dtype=float64), axis=-1)
        shape = self.result_shape(trials, p)
        p = F.broadcast_to(F.cast(p, dtype=float64), shape=shape)
        rows = (*shape[:-1], 1)
        trials = F.broadcast_to(trials, shape=rows)
        return F.multinomial_of_bits(trials, p, self.items(key, rows), dtype=self.dtype or int64)


@op
class CategoricalVariables(Distribution):
    """Indices of categories, by where a number falls among the sums of their probabilities.

    num_samples: so many for each row, in a new last axis; None: one, without it. The sums are in float64. A number is
    below the last sum, so an index with probability 0 is never drawn.
    """

    num_samples: int | None = None

    def decompose(self, key: Any, logits: Any) -> Any:
        if not logits.ndim:
            raise self.fail(ShapeError, "needs at least 1 dimension", logits=logits.type)
        wide = F.cast(logits, dtype=float64)
        sums = F.cumulative_sum(F.softmax(wide, axis=-1), axis=-1)
        last = F.slice(sums, starts=(logits.shape[-1] - 1,), stops=(logits.shape[-1],), axes=(-1,))
        shape = (*logits.shape[:-1], 1 if self.num_samples is None else self.num_samples)
        values = self.open_uniform(key, shape, float64) * last
        index = F.searchsorted(sums, values, side="right")
        index = F.squeeze(index, axis=-1) if self.num_samples is None else index
        return F.cast(index, dtype=self.dtype or int64)


@op
class SampledIndices(Distribution):
    """count of the indices of p, without one twice: those of the greatest log(p) + Gumbel noise."""

    count: int = 1

    def decompose(self, key: Any, p: Any) -> Any:
        noise = -F.log(-F.log(self.open_uniform(key, p.shape, float64)))
        return F.topk(F.log(F.cast(p, dtype=float64)) + noise, k=self.count, axis=-1)[1]


@op
class ShuffledSlices(Distribution):
    """x's slices along the first axis in random order, by sorting random numbers."""

    def decompose(self, key: Any, x: Any) -> Any:
        if not x.ndim:
            raise self.fail(ShapeError, "needs at least 1 dimension", x=x.type)
        order = F.argsort(F.bitwise_right_shift(self.items(key, (x.shape[0],)), constant(1, uint64)))
        return F.take(x, order, axis=0)


__all__ = [
    "BetaVariables",
    "BinomialOfBits",
    "BinomialVariables",
    "CategoricalVariables",
    "DirichletVariables",
    "GammaOfBits",
    "GammaSlope",
    "GammaVariables",
    "MultinomialOfBits",
    "MultinomialVariables",
    "NegativeBinomialVariables",
    "PoissonOfBits",
    "PoissonVariables",
    "SampledIndices",
    "ShuffledSlices",
    "StudentVariables",
]
