"""Kernels of weft.ops.families.rejection on processors: each class's function of native/kernels/distributions.cpp."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from weft import _core
from weft.kernels import kernel
from weft.ops.families.rejection import (
    BinomialOfBits,
    GammaOfBits,
    GammaSlope,
    MultinomialOfBits,
    PoissonOfBits,
)
from weft.ops.kernels import Native


def _native(function: Callable[[], Any]) -> Callable[..., Iterator[Native]]:
    def choices(op: Any, *inputs: Any) -> Iterator[Native]:
        yield Native(lambda _, __: function(), exact=False)

    return choices


kernel(GammaOfBits)(_native(_core.kernel_gamma))
kernel(GammaSlope)(_native(_core.kernel_gamma_slope))
kernel(PoissonOfBits)(_native(_core.kernel_poisson))
kernel(BinomialOfBits)(_native(_core.kernel_binomial))
kernel(MultinomialOfBits)(_native(_core.kernel_multinomial))
