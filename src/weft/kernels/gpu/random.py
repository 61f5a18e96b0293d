"""Kernels of weft.ops.families.random on GPUs: the processor's numbers, bit for bit (float64 normals: to rounding)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft import _core
from weft.expr import draws
from weft.expr import scalar as e
from weft.expr.functions import expand
from weft.expr.kernel import Each, Store
from weft.expr.launches import thread_loop
from weft.kernels import kernel
from weft.kernels.gpu.indexing import reading, ways_of_points
from weft.ops.families.random import (
    Bernoulli,
    Dropout,
    RandomIntegers,
    RandomNormal,
    RandomPermutation,
    RandomUniform,
)
from weft.ops.kernels import RESERVATION, Native
from weft.ops.types import TensorType

Scalar = e.Scalar


def drawing(
    name: str,
    dtypes: Sequence[str],
    inputs: int,
    rank: int,
    first_size: int,
    values: Callable[[Scalar], Sequence[Scalar]],
) -> Any:
    """A loop that stores values(number of the element) over axes whose sizes are parameters from first_size on."""
    number = draws.place([e.parameter(first_size + d, "int64") for d in range(rank)])
    stores = tuple(Store(inputs + k, expand(value)) for k, value in enumerate(values(number)))
    return thread_loop(name, dtypes, (Each(stores),), inputs=inputs, positions=(1 << rank) - 1)


def sizes_of(shape: Sequence[Any]) -> tuple[tuple[Any, str], ...]:
    """The sizes as parameters."""
    return tuple((n, "int64") for n in shape)


@functools.cache
def dropping(dtype: str, rank: int, mask: str | None) -> Any:
    real = "float64" if dtype == "float64" else "float32"

    def values(number: Scalar) -> list[Scalar]:
        item, p = draws.item32(number), e.parameter(3, "float64")
        most = e.constant(float(2**32 - 1), "float64")
        threshold = e.cast(e.minimum(p * e.constant(2.0**32, "float64"), most), "uint64")
        one = e.constant(1.0, "float64")
        is_kept = (item >= threshold) & (p < one)
        factor = e.cast(one / (one - p), real)
        x = e.cast(e.load(0, dtype), real)
        y = e.cast(e.where(is_kept, x * factor, e.constant(0.0, real)), dtype)
        return [y] if mask is None else [y, e.cast(is_kept, mask)]

    dtypes = [dtype, dtype, *([mask] if mask else [])]
    return drawing("dropout", dtypes, 1, rank, 4, values)


@kernel(Dropout, device="gpu", when=lambda op, x: op.training)
def dropout(op: Dropout, x: TensorType) -> Iterator[Native]:
    def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        dtype, shape, _ = inputs[0]
        return dropping(dtype, len(shape), outputs[1] and outputs[1][0])

    p: Any = op.p
    numbers = (*RESERVATION, (p, "float64"), *sizes_of(x.shape))
    yield Native(make, exact=False, numbers=numbers, optional=(1,))


@functools.cache
def deciding(dtype: str, result: str, rank: int) -> Any:
    def values(number: Scalar) -> list[Scalar]:
        item = e.cast(draws.item32(number), "float64")
        p = e.cast(e.load(0, dtype), "float64")
        return [e.cast(item < p * e.constant(2.0**32, "float64"), result)]

    return drawing("bernoulli", [dtype, result], 1, rank, 3, values)


@kernel(Bernoulli, device="gpu")
def bernoulli(op: Bernoulli, p: TensorType) -> Iterator[Native]:
    def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        (dtype, shape, _), (result, _, _) = inputs[0], outputs[0]
        return deciding(dtype, result, len(shape))

    yield Native(make, exact=False, numbers=(*RESERVATION, *sizes_of(p.shape)))


@functools.cache
def distributed(name: str, dtype: str, rank: int) -> Any:
    """A loop that fills an array with numbers of a distribution, whose own are parameters 3 and 4."""
    value = DISTRIBUTIONS[name]
    return drawing(name, [dtype], 0, rank, 5, lambda number: [e.cast(value(dtype, number), dtype)])


def filling(name: str) -> Any:
    """make() of a Native that fills an array with numbers of a distribution."""

    def make(_: Sequence[Any], outputs: Sequence[Any]) -> Any:
        dtype, shape, _ = outputs[0]
        return distributed(name, dtype, len(shape))

    return make


def real_of(dtype: str) -> str:
    """The type that numbers of a type are computed in."""
    return "float64" if dtype == "float64" else "float32"


def below(x: Scalar) -> Scalar:
    """The largest number of x's type below x."""
    bits = {"float64": "uint64", "float32": "uint32"}.get(x.dtype, "uint16")
    wide = "uint64" if bits == "uint64" else "uint32"
    sign = 1 << {"uint64": 63, "uint32": 31, "uint16": 15}[bits]
    word, one = e.cast(e.bitcast(x, bits), wide), e.constant(1, wide)
    is_zero = (word & e.constant(sign - 1, wide)) == e.constant(0, wide)
    is_negative = (word & e.constant(sign, wide)) != e.constant(0, wide)
    word = e.where(is_zero, e.constant(sign + 1, wide), e.where(is_negative, word + one, word - one))
    return e.bitcast(e.cast(word, bits), x.dtype)


def uniform(dtype: str, number: Scalar) -> Scalar:
    real = real_of(dtype)
    low, high = (e.cast(e.parameter(k, "float64"), dtype) for k in (3, 4))
    first, end = e.cast(low, real), e.cast(high, real)
    last = e.where(first < end, e.cast(below(high), real), first)
    u = draws.unit((draws.item64 if real == "float64" else draws.item32)(number), real)
    x = first * (e.constant(1.0, real) - u) + end * u
    return e.minimum(e.maximum(x, first), last)


def normal(dtype: str, number: Scalar) -> Scalar:
    real = real_of(dtype)
    mean, std = (e.cast(e.parameter(k, "float64"), real) for k in (3, 4))
    return mean + std * draws.normal(number, real)


def integers(dtype: str, number: Scalar) -> Scalar:
    return draws.integer(draws.item64(number), e.parameter(3, "int64"), e.parameter(4, "int64"))


DISTRIBUTIONS = {"uniform": uniform, "normal": normal, "integers": integers}


@kernel(RandomUniform, device="gpu")
def random_uniform(op: RandomUniform) -> Iterator[Native]:
    numbers = (*RESERVATION, (op.low, "float64"), (op.high, "float64"), *sizes_of(op.shape))
    yield Native(filling("uniform"), exact=False, numbers=numbers)


@kernel(RandomNormal, device="gpu")
def random_normal(op: RandomNormal) -> Iterator[Native]:
    numbers = (*RESERVATION, (op.mean, "float64"), (op.std, "float64"), *sizes_of(op.shape))
    yield Native(filling("normal"), exact=False, numbers=numbers)


@kernel(RandomIntegers, device="gpu")
def random_integers(op: RandomIntegers) -> Iterator[Native]:
    numbers = (*RESERVATION, (op.low, "int64"), (op.high, "int64"), *sizes_of(op.shape))
    yield Native(filling("integers"), exact=False, numbers=numbers)


@functools.cache
def permuting(dtype: str, rank: int) -> Any:
    of_x, of_order = ways_of_points(rank, [0], 0, 1)
    each = list(range(rank))
    operands = [(0, of_x, [0]), (1, of_order, []), (2, each, [])]
    gather = _core.make_indexed_threads(
        "permutation", [(2, d) for d in each], operands, [(1, 0, 0)], [], reading(dtype, ("int64",)), None
    )
    return _core.make_permuted_threads(gather)


@kernel(RandomPermutation, device="gpu")
def random_permutation(op: RandomPermutation, x: TensorType) -> Iterator[Native]:
    """The host draws the order and copies it; nothing waits."""

    def make(inputs: Sequence[Any], _: Sequence[Any]) -> Any:
        dtype, shape, _ = inputs[0]
        return permuting(dtype, len(shape))

    yield Native(make, exact=False, numbers=RESERVATION)
