"""Kernels of weft.ops.families.rejection on GPUs: loops in threads, which go on until a candidate is accepted."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft import _core
from weft.expr import rejection
from weft.expr import scalar as e
from weft.expr.functions import expand
from weft.expr.kernel import Each, Store
from weft.expr.launches import thread_loop
from weft.kernels import kernel
from weft.kernels.gpu.indexing import first_refused
from weft.ops.families.rejection import BinomialOfBits, GammaOfBits, GammaSlope, PoissonOfBits
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
    most = 1.0 if which == "p" else rejection.LARGEST
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


kernel(PoissonOfBits, device="gpu")(checked("poisson", rejection.poisson, ("rate",)))
kernel(BinomialOfBits, device="gpu")(checked("binomial", rejection.binomial, ("trials", "p")))
kernel(GammaOfBits, device="gpu")(native("gamma", rejection.gamma))
kernel(GammaSlope, device="gpu")(native("gamma_slope", rejection.gamma_slope))
