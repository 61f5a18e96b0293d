"""Random numbers as functions of a key: bits, and the distributions that are formulas of them.

A key is uint64[2], the key and the stream of Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011). Item i of a key is item i
of 64 bits of that stream, so an element is a function of the key, its place and the parameters: the same on every
device, differentiable in the parameters, and different for each example of a batch of keys. Each of the up to 128
arrays that one operator draws has 2^56 numbers of its own.
"""

from __future__ import annotations

import math
from typing import Any

from weft.base.dtype import DType, float32, float64, int64, uint64
from weft.base.errors import DTypeError, ShapeError
from weft.expr import draws
from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.families.random import Random
from weft.ops.node import constant
from weft.ops.op import op
from weft.ops.pointwise import Pointwise
from weft.ops.types import TensorType, broadcast_shapes, device_of, promote

SPLIT, FOLD = 127, 126  # arrays of a key that distributions do not draw
ARRAY = 56  # bits of the number of an item


@op
class KeyLike(Random):
    """A key from the device's stream. Only the device of x is used."""

    def infer(self, *x: TensorType) -> TensorType:
        return TensorType((2,), uint64, device_of(*x))

    def random_numbers(self, *x: TensorType | None) -> tuple[str, DType, Any]:
        return "integers", uint64, 2


@op
class KeyedBits(Pointwise, family="random", public=False, smooth=False):
    """The item with a number of the stream of a key, of 64 or 32 bits, as uint64."""

    bits: int = 64

    def compute_dtype(self, *inputs: TensorType | None) -> DType:
        return uint64

    def scalar(self, key: Any, stream: Any, number: Any) -> e.Scalar:
        item = draws.item64 if self.bits == 64 else draws.item32
        return item(number, (key, stream, e.constant(0, "uint64")))


def key_words(key: Any, ndim: int) -> tuple[Any, Any]:
    """Key and stream, each with so many dimensions of size 1."""
    parts = (F.slice(key, starts=(k,), stops=(k + 1,), axes=(-1,)) for k in range(2))
    first, second = (F.reshape(part, shape=(1,) * ndim) for part in parts)
    return first, second


class Keyed(Composed, family="random", public=False):
    """Base of functions of a key."""

    def words(self, key: Any, ndim: int) -> tuple[Any, Any]:
        """Key and stream, each with so many dimensions of size 1."""
        if key.dtype is not uint64 or key.shape != (2,):
            error = DTypeError if key.dtype is not uint64 else ShapeError
            raise self.fail(error, "a key is uint64[2], such as weft.random.key gives", key=key.type)
        return key_words(key, ndim)

    def items(self, key: Any, shape: tuple[Any, ...], array: int = 0) -> Any:
        """uint64 items of 64 bits; those of other arrays are independent."""
        first, second = self.words(key, len(shape))
        base = F.broadcast_to(first, shape=shape)
        number: Any = constant(array << ARRAY, uint64)
        step: Any = 1
        for d in reversed(range(len(shape))):
            places = F.cast(F.places_like(base, axis=d), dtype=uint64)
            number = number + (places if d == len(shape) - 1 else places * constant(step, uint64))
            step = step * shape[d]
        return F.keyed_bits(base, second, number)

    def open_uniform(self, key: Any, shape: tuple[Any, ...], dtype: DType, array: int = 0) -> Any:
        """(k + 1/2) / 2^23 for k of 23 random bits, of float64 52: in (0, 1), without its ends."""
        bits = 52 if dtype is float64 else 23
        items = F.bitwise_right_shift(self.items(key, shape, array), constant(64 - bits, uint64))
        return (F.cast(F.cast(items, dtype=int64), dtype=dtype) + 0.5) * 2.0**-bits

    def normal(self, key: Any, shape: tuple[Any, ...], dtype: DType, array: int = 0) -> Any:
        """Box and Muller 1958, from two arrays."""
        radius = F.sqrt(-2.0 * F.log(self.open_uniform(key, shape, dtype, array)))
        return radius * F.cos(self.open_uniform(key, shape, dtype, array + 1) * (2 * math.pi))


@op
class KeySplit(Keyed):
    """count keys, uint64[count, 2], which are independent of each other and of what is drawn from the key."""

    count: int = 2

    def decompose(self, key: Any) -> Any:
        return self.items(key, (self.count, 2), SPLIT)


@op
class KeyFold(Keyed):
    """A key for each number, independent as those of a split."""

    def decompose(self, key: Any, number: Any) -> Any:
        if not number.dtype.is_integer or number.ndim:
            raise self.fail(DTypeError, "number is one integer", number=number.type)
        first, second = self.words(key, 1)
        base = F.broadcast_to(first, shape=(2,))
        place = F.cast(number, dtype=uint64) * constant(2, uint64)
        place = place + F.cast(F.places_like(base, axis=0), dtype=uint64) + constant(FOLD << ARRAY, uint64)
        return F.keyed_bits(base, second, place)


class Distribution(Keyed):
    """Base: a class gives draw(key, shape, dtype, *parameters), in float32 or float64.

    shape: the result's, to which the parameters are repeated; by default theirs together. dtype: the result's, by
    default that of the parameters.
    """

    shape: tuple[int, ...] | None = None
    dtype: DType | None = None

    def draw(self, key: Any, shape: tuple[Any, ...], dtype: DType, *parameters: Any) -> Any:
        raise NotImplementedError

    def result_dtype(self, *parameters: Any) -> DType:
        """dtype, or the parameters' as a float."""
        common = promote(*(x.type for x in parameters))
        chosen = self.dtype or (common if common.is_floating else float32)
        if not chosen.is_floating:
            raise DTypeError(f"{self.name}: dtype must be a float, got {chosen}")
        return chosen

    def result_shape(self, *parameters: Any) -> tuple[Any, ...]:
        types = {f"x{k}": x.type for k, x in enumerate(parameters)}
        common = broadcast_shapes(self.name, types)
        if self.shape is None:
            return common
        wanted = TensorType(self.shape, float32)
        if broadcast_shapes(self.name, {**types, "shape": wanted}) != self.shape:
            raise self.fail(ShapeError, f"the parameters do not fit the shape {self.shape}", **types)
        return self.shape

    def decompose(self, key: Any, *parameters: Any) -> Any:
        dtype, shape = self.result_dtype(*parameters), self.result_shape(*parameters)
        compute = float64 if dtype is float64 else float32
        y = self.draw(key, shape, compute, *(F.cast(x, dtype=compute) for x in parameters))
        return F.cast(y, dtype=dtype) if y.dtype is not dtype else y


class Location(Distribution):
    """Base: location + scale z, where z is drawn without parameters."""

    def draw(self, key: Any, shape: tuple[Any, ...], dtype: DType, *parameters: Any) -> Any:
        location, scale = parameters
        return location + scale * self.standard(key, shape, dtype)

    def standard(self, key: Any, shape: tuple[Any, ...], dtype: DType) -> Any:
        raise NotImplementedError

    def decompose(self, key: Any, location: Any, scale: Any) -> Any:
        return super().decompose(key, location, scale)


@op
class KeyedUniform(Distribution):
    """low + (high - low) u, below high."""

    def decompose(self, key: Any, low: Any, high: Any) -> Any:
        return super().decompose(key, low, high)

    def draw(self, key: Any, shape: tuple[Any, ...], dtype: DType, *parameters: Any) -> Any:
        low, high = parameters
        bits = 53 if dtype is float64 else 24
        items = F.bitwise_right_shift(self.items(key, shape), constant(64 - bits, uint64))
        return low + (high - low) * (F.cast(F.cast(items, dtype=int64), dtype=dtype) * 2.0**-bits)


@op
class KeyedNormal(Location):
    """mean + std z."""

    def standard(self, key: Any, shape: tuple[Any, ...], dtype: DType) -> Any:
        return self.normal(key, shape, dtype)


@op
class KeyedIntegers(Distribution):
    """low + item mod (high - low)."""

    def decompose(self, key: Any, low: Any, high: Any) -> Any:
        shape = self.result_shape(low, high)
        first, last = (F.cast(x, dtype=int64) for x in (low, high))
        size = F.cast(last - first, dtype=uint64)
        rest = F.remainder(self.items(key, shape), size)
        return F.cast(first + F.cast(rest, dtype=int64), dtype=self.dtype or int64)


@op
class Exponential(Distribution):
    """-log(u) / rate."""

    def decompose(self, key: Any, rate: Any) -> Any:
        return super().decompose(key, rate)

    def draw(self, key: Any, shape: tuple[Any, ...], dtype: DType, *parameters: Any) -> Any:
        return -F.log(self.open_uniform(key, shape, dtype)) / parameters[0]


@op
class Laplace(Location):
    """The sign of v times -log(1 - |v|), for v = 2 u - 1."""

    def standard(self, key: Any, shape: tuple[Any, ...], dtype: DType) -> Any:
        centred = 2.0 * self.open_uniform(key, shape, dtype) - 1.0
        return -F.sign(centred) * F.log1p(-F.abs(centred))


@op
class Cauchy(Location):
    """tan(pi (u - 1/2))."""

    def standard(self, key: Any, shape: tuple[Any, ...], dtype: DType) -> Any:
        return F.tan((self.open_uniform(key, shape, dtype) - 0.5) * math.pi)


@op
class Gumbel(Location):
    """-log(-log(u))."""

    def standard(self, key: Any, shape: tuple[Any, ...], dtype: DType) -> Any:
        return -F.log(-F.log(self.open_uniform(key, shape, dtype)))


@op
class Logistic(Location):
    """log(u / (1 - u))."""

    def standard(self, key: Any, shape: tuple[Any, ...], dtype: DType) -> Any:
        u = self.open_uniform(key, shape, dtype)
        return F.log(u) - F.log1p(-u)


@op
class Weibull(Distribution):
    """scale (-log(u))^(1 / concentration)."""

    def decompose(self, key: Any, concentration: Any, scale: Any) -> Any:
        return super().decompose(key, concentration, scale)

    def draw(self, key: Any, shape: tuple[Any, ...], dtype: DType, *parameters: Any) -> Any:
        concentration, scale = parameters
        return scale * F.pow(-F.log(self.open_uniform(key, shape, dtype)), 1.0 / concentration)


@op
class Pareto(Distribution):
    """scale u^(-1 / concentration)."""

    def decompose(self, key: Any, concentration: Any, scale: Any) -> Any:
        return super().decompose(key, concentration, scale)

    def draw(self, key: Any, shape: tuple[Any, ...], dtype: DType, *parameters: Any) -> Any:
        concentration, scale = parameters
        return scale * F.exp(-F.log(self.open_uniform(key, shape, dtype)) / concentration)


def mills_ratio(z: e.Scalar) -> e.Scalar:
    """(1 - Phi(z)) / phi(z) of the standard normal distribution for z >= FAR, to 2e-9: 12 levels of the continued
    fraction 1 / (z + 1 / (z + 2 / (z + ...))), as one quotient.

    Source: Abramowitz, Stegun 1964, 26.2.14.
    """
    numerator, denominator = z, e.constant(1.0, "float64")
    for k in range(12, 0, -1):
        numerator, denominator = z * numerator + k * denominator, numerator
    return denominator / numerator


@op
class NormalTail(Pointwise, family="random", public=False):
    """Quantiles of the standard normal distribution between two numbers, for shares in (0, 1); FAR <= first <= last.

    With Q = phi M, for M of mills_ratio, -log Q(z) = z^2 / 2 - log M(z) + constant is convex and its slope is 1 / M(z),
    so Newton's method comes down to the solution from sqrt(first^2 - 2 log(1 - share)), where M(first) was M(z).
    After two steps the error is below 1e-8 / z.
    """

    def scalar(self, first: e.Scalar, last: e.Scalar, share: e.Scalar) -> e.Scalar:
        first, last = (e.call("minimum", x, e.constant(1e20, "float64")) for x in (first, last))
        width = e.call(
            "minimum", last - first, e.constant(40.0, "float64")
        )  # Q is less than the least number there
        ratio = mills_ratio(first)
        relative = mills_ratio(first + width) / ratio
        mass = 1 - relative * e.call("exp", -width * (first + 0.5 * width))
        decay = -e.call("log1p", -share * mass)
        z = first * e.call("sqrt", 1 + 2 * decay / (first * first))
        for _ in range(2):
            own = mills_ratio(z)
            excess = 0.5 * (z - first) * (z + first) - e.call("log", own / ratio) - decay
            z = z - own * excess
        return z


FAR = 4.0  # standard deviations from the mean, from where on erf is too near to 1


@op
class TruncatedNormal(Distribution):
    """mean + std sqrt(2) erfinv(p), for p spread evenly between the values of erf at both ends; in float64.

    Intervals that are entirely further than FAR from the mean have quantiles of the tail instead.
    """

    def decompose(self, key: Any, lower: Any, upper: Any, mean: Any, std: Any) -> Any:
        return super().decompose(key, lower, upper, mean, std)

    def draw(self, key: Any, shape: tuple[Any, ...], dtype: DType, *parameters: Any) -> Any:
        lower, upper, mean, std = (F.cast(x, dtype=float64) for x in parameters)
        a, b = ((x - mean) / std for x in (lower, upper))
        is_below = b < -FAR
        is_far = F.logical_or(is_below, a > FAR)
        uniform = self.open_uniform(key, shape, float64)
        low, high = (F.erf(F.where(is_far, 0.0, x / math.sqrt(2))) for x in (a, b))
        near = math.sqrt(2) * F.erfinv(low + (high - low) * uniform)
        first, last = F.where(is_below, -b, a), F.where(is_below, -a, b)
        far = F.normal_tail(F.maximum(first, FAR), F.maximum(last, FAR), uniform)
        z = F.where(is_far, F.where(is_below, -far, far), near)
        return F.minimum(F.maximum(mean + std * z, lower), upper)


@op
class Geometric(Distribution):
    """The number of trials up to the first success: 1 + floor(log(u) / log(1 - p))."""

    def decompose(self, key: Any, p: Any) -> Any:
        shape = self.result_shape(p)
        p = F.cast(p, dtype=float64)
        log_u = F.log(self.open_uniform(key, shape, float64))
        trials = 1.0 + F.floor(log_u / F.log1p(-p))
        return F.cast(F.minimum(trials, 2.0**62), dtype=self.dtype or int64)


__all__ = [
    "Cauchy",
    "Exponential",
    "Geometric",
    "Gumbel",
    "KeyFold",
    "KeyLike",
    "KeySplit",
    "KeyedBits",
    "KeyedIntegers",
    "KeyedNormal",
    "KeyedUniform",
    "Laplace",
    "Logistic",
    "NormalTail",
    "Pareto",
    "TruncatedNormal",
    "Weibull",
]
