"""Kernels of weft.ops.families.random on processors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft import _core
from weft.kernels import kernel
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


@kernel(Dropout, when=lambda op, x: op.training)
def dropout(op: Dropout, x: TensorType) -> Iterator[Native]:
    def make(_: Sequence[Any], outputs: Sequence[Any]) -> Any:
        return _core.kernel_dropout(mask=outputs[1] is not None)

    p: Any = op.p
    yield Native(make, exact=False, numbers=(*RESERVATION, (p, "float64")), optional=(1,))


@kernel(Bernoulli)
def bernoulli(op: Bernoulli, p: TensorType) -> Iterator[Native]:
    yield Native(lambda _, __: _core.kernel_bernoulli(), exact=False, numbers=RESERVATION)


@kernel(RandomPermutation)
def random_permutation(op: RandomPermutation, x: TensorType) -> Iterator[Native]:
    yield Native(lambda _, __: _core.kernel_permutation(), exact=False, numbers=RESERVATION)


@kernel(RandomNormal)
def random_normal(op: RandomNormal) -> Iterator[Native]:
    numbers = (*RESERVATION, (op.mean, "float64"), (op.std, "float64"))
    yield Native(lambda _, __: _core.kernel_random_normal(), exact=False, numbers=numbers)


@kernel(RandomUniform)
def random_uniform(op: RandomUniform) -> Iterator[Native]:
    numbers = (*RESERVATION, (op.low, "float64"), (op.high, "float64"))
    yield Native(lambda _, __: _core.kernel_random_uniform(), exact=False, numbers=numbers)


@kernel(RandomIntegers)
def random_integers(op: RandomIntegers) -> Iterator[Native]:
    numbers = (*RESERVATION, (op.low, "int64"), (op.high, "int64"))
    yield Native(lambda _, __: _core.kernel_random_integers(), exact=False, numbers=numbers)
