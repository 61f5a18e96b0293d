"""Kernels of weft.ops.families.rejection on GPUs: loops in threads, which go on until a candidate is accepted."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft import _core
from weft.expr import rejection
from weft.expr import scalar as e
from weft.expr.functions import expand
from weft.expr.kernel import Chain, Each, Store
from weft.expr.launches import thread_loop
from weft.kernels import kernel
from weft.kernels.gpu.indexing import first_refused
from weft.ops.families.rejection import (
    BinomialOfBits,
    GammaOfBits,
    GammaSlope,
    MultinomialOfBits,
    PoissonOfBits,
)
from weft.ops.kernels import Native
from weft.ops.types import TensorType


@functools.cache
def each(name: str, value: Callable[..., e.Scalar], dtypes: tuple[str, ...]) -> Any:
    """A loop of one element a turn; numbers are float64 inside, bits as they are."""
    operands = [e.load(k, dtype) for k, dtype in enumerate(dtypes[:-1])]
    wide = [x if x.dtype == "uint64" else e.cast(x, "float64") for x in operands]
    stored = expand(e.cast(value(*wide), dtypes[-1]))
    return thread_loop(name, dtypes, (Each((Store(len(wide), stored),)),), inputs=len(wide))


def native(name: str, value: Callable[..., e.Scalar]) -> Callable[..., Iterator[Native]]:
    def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        return each(name, value, tuple(dtype for dtype, _, _ in (*inputs, *outputs)))

    def choices(op: Any, *inputs: TensorType) -> Iterator[Native]:
        yield Native(make, exact=False)

    return choices


@functools.cache
def refusal(which: str, dtype: str, rank: int) -> Any:
    """The first number that is none of what a distribution takes, and the bits of its float64."""
    x = expand(e.cast(e.load(0, dtype), "float64"))
    most = {"p": 1.0, "chance": sys.float_info.max}.get(which, rejection.LARGEST)
    is_one = (x >= e.constant(0.0, "float64")) & (x <= e.constant(most, "float64"))
    is_one = is_one & (x == e.call("floor", x)) if which == "trials" else is_one
    return first_refused(dtype, rank, ~is_one, f"check_{which}", 0, e.bitcast(x, "int64"))


FACTS = {
    "rate": "poisson: rate must be in [0, 1e18], got ",
    "trials": "binomial: trials must be an integer in [0, 1e18], got ",
    "p": "binomial: p must be in [0, 1], got ",
}


def checked(
    name: str, value: Callable[..., e.Scalar], parameters: tuple[str, ...]
) -> Callable[..., Iterator[Native]]:
    """As native, behind checks of the parameters."""

    def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        checks = [
            (k, FACTS[which], refusal(which, inputs[k][0], len(inputs[k][1])))
            for k, which in enumerate(parameters)
        ]
        loop = each(name, value, tuple(dtype for dtype, _, _ in (*inputs, *outputs)))
        return _core.make_checked_numbers(checks, loop)

    def choices(op: Any, *inputs: TensorType) -> Iterator[Native]:
        yield Native(make, exact=False)

    return choices


@functools.cache
def without_chances(dtype: str, rank: int) -> Any:
    """The first row with trials and without chances: operands trials, the sum of the row's chances; as `refusal`."""
    trials = expand(e.cast(e.load(0, dtype), "float64"))
    zero = e.constant(0.0, "float64")
    refused = (trials > zero) & (e.load(1, "float64") == zero)
    return first_refused(
        dtype, rank, refused, "check_chances", 0, e.bitcast(trials, "int64"), others=("float64",)
    )


def multinomial_stages(trials: str, chance: str, counts: str) -> tuple[Chain, Chain]:
    """A thread's work on a row: the sums of chances from the end, then one binomial number after the other.

    Operands, of these types: trials, chances, uint64 bits, the sums in float64, counts.
    """
    zero = e.constant(0.0, "float64")
    most, own = (expand(e.cast(e.load(k, dtype), "float64")) for k, dtype in enumerate((trials, chance)))
    so_far = e.state(0, "float64") + own
    sums = Chain((zero,), (so_far,), (Store(3, so_far),), reverse=True)
    left, place = e.state(0, "float64"), e.state(1, "uint64")
    count, after = map(
        expand, rejection.multinomial(own, e.load(3, "float64"), left, e.load(2, "uint64"), place)
    )
    stores = (Store(4, expand(e.cast(count, counts))),)
    return sums, Chain((most, e.constant(0, "uint64")), (left - count, after), stores)


@functools.cache
def multinomial_rows(trials: str, chance: str, counts: str) -> Any:
    """A loop of a thread for each row."""
    stages = multinomial_stages(trials, chance, counts)
    types = (trials, chance, "uint64", "float64", counts)
    return thread_loop("multinomial", types, stages, inputs=3, row_axes=1, positions=1, is_ordered=True)


@kernel(MultinomialOfBits, device="gpu")
def multinomial(op: MultinomialOfBits, *inputs: TensorType) -> Iterator[Native]:
    def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        (trials, shape, _), (p, _, _), _ = inputs
        checks = [
            (
                0,
                "multinomial: trials must be an integer in [0, 1e18], got ",
                refusal("trials", trials, len(shape)),
            ),
            (1, "multinomial: chances must be finite and at least 0, got ", refusal("chance", p, len(shape))),
        ]
        return _core.make_multinomial_threads(
            checks, without_chances(trials, len(shape)), multinomial_rows(trials, p, outputs[0][0])
        )

    yield Native(make, exact=False)


kernel(PoissonOfBits, device="gpu")(checked("poisson", rejection.poisson, ("rate",)))
kernel(BinomialOfBits, device="gpu")(checked("binomial", rejection.binomial, ("trials", "p")))
kernel(GammaOfBits, device="gpu")(native("gamma", rejection.gamma))
kernel(GammaSlope, device="gpu")(native("gamma_slope", rejection.gamma_slope))
