"""Operators that draw random numbers from the device's stream; see Op.random_numbers for how."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from weft.base.device import Device, cpu
from weft.base.dtype import DType, bool_, float32, int64, uint32, uint64
from weft.base.errors import DTypeError, ShapeError
from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops.kernels import View
from weft.ops.op import Op, Runtime, op
from weft.ops.pointwise import Pointwise
from weft.ops.types import TensorType


@op
class Dropout(
    Op,
    family="random",
    primitive=True,
    rule="x[*s]: float -> y[*s]: x",
    positional=("p", "training"),
    residuals=("mask",),
):
    """Zeros with probability p, else x / (1 - p), if training; else x.

    x: float[...]; p: 0 ... 1, given when it runs; training: an explicit argument, as everywhere. Returns x's shape and
    dtype. With p = 1 all is zero. Which elements are dropped depends on the seed and the order of random calls only.
    Raises ValueError unless p is in 0..1, DTypeError for integers.
    Source: Srivastava et al. 2014, Dropout: a simple way to prevent neural networks from overfitting.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.dropout(wf.tensor([1., 2.]), 0.5, training=False)
    tensor([1., 2.], dtype=float32, device=cpu:0)
    """

    p: Runtime[float] = 0.5
    training: bool = True

    ranges = {"p": (0.0, 1.0)}  # noqa: RUF012

    @property
    def random(self) -> bool:  # type: ignore[override]
        return self.training

    @property
    def outputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("y", "mask") if self.training else ("y",)

    @property
    def hidden(self) -> int:  # type: ignore[override]
        return 1 if self.training else 0

    def infer(self, x: TensorType) -> Any:
        self.require_floats(x=x)
        return (x.like(), *self.residual_types((x.like(dtype=bool_),), (x,))) if self.training else x.like()

    def random_numbers(self, *inputs: TensorType | None) -> tuple[str, DType, Any]:
        (x,) = inputs
        assert x is not None
        return "bits", uint32, x.size

    def kernels(self, x: TensorType) -> Iterator[View]:
        if not self.training:
            yield View(lambda shape, strides: (shape, strides, 0))

    def vjp(self, *values: Any) -> Any:
        if not self.training:
            return values[-1]
        _, _, mask, dy, _ = values
        return F.dropout_gradient(dy, mask, p=self.p)


@op
class DropoutGradient(Pointwise, family="random", public=False):
    """dy / (1 - p) where the mask is true, else 0."""

    p: Runtime[float]

    def compute_dtype(self, *inputs: TensorType | None) -> DType:
        assert inputs[0] is not None
        return inputs[0].dtype

    def scalar(self, dy: e.Scalar, mask: e.Scalar) -> e.Scalar:
        p: Any = self.p
        kept_share = 1 - p if isinstance(p, e.Scalar) else e.constant(1 - p, dy.dtype)
        return e.where(mask if mask.dtype == "bool" else mask != 0, dy / kept_share, e.constant(0, dy.dtype))


class Random(Op, family="random", primitive=True, public=False):
    """Base of those that have only attributes."""


@op
class Bernoulli(Random, rule="p: float -> y: dtype or p", public=True):
    """1 with probability p, else 0, each element for itself.

    p: float[...], 0 ... 1; dtype: the result's, by default p's. Returns p's shape. There is no gradient.
    Raises DTypeError unless p is of a floating-point type.
    Source: Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011).

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.bernoulli(wf.tensor([0., 1.]))
    tensor([0., 1.], dtype=float32, device=cpu:0)
    """

    dtype: DType | None = None

    def infer(self, p: TensorType) -> TensorType:
        self.require_floats(p=p)
        return p.like(dtype=self.dtype)

    def random_numbers(self, *inputs: TensorType | None) -> tuple[str, DType, Any]:
        (p,) = inputs
        assert p is not None
        return "bits", uint32, p.size


@op
class RandomPermutation(Random, rule="x -> y: x"):
    """x's slices along the first axis in random order. What weft.random.permutation is in graphs."""

    def infer(self, x: TensorType) -> TensorType:
        if not x.shape:
            raise self.fail(ShapeError, "needs at least 1 dimension", x=x)
        return x.like()

    def random_numbers(self, *inputs: TensorType | None) -> tuple[str, DType, Any]:
        (x,) = inputs
        assert x is not None
        return "bits", uint64, x.shape[0]


class Filling(Random):
    """Base of arrays of random numbers: the numbers of Philox4x32-10, as native/storage/random.h defines them."""

    kind: ClassVar[str]
    shape: tuple[int, ...]
    dtype: DType = float32
    device: Device = cpu(0)  # whose stream the numbers are drawn from

    def fixed_device(self) -> Device:
        return self.device

    def check(self) -> None:
        kinds, expected = (
            (("int", "uint"), "an integer") if self.kind == "integers" else (("float",), "a float")
        )
        if self.dtype.kind not in kinds:
            raise DTypeError(f"{self.name}: dtype must be {expected}, got {self.dtype}")

    def infer(self) -> TensorType:
        return TensorType(self.shape, self.dtype, self.device)

    def random_numbers(self, *inputs: TensorType | None) -> tuple[str, DType, Any]:
        return self.kind, self.dtype, math.prod(self.shape)


@op
class RandomNormal(Filling):
    """Normally distributed numbers: mean + std z (Box and Muller 1958). What weft.random.normal is in graphs."""

    kind = "normal"
    mean: Runtime[float] = 0.0
    std: Runtime[float] = 1.0


@op
class RandomUniform(Filling):
    """Numbers spread evenly over [low, high). What weft.random.uniform is in graphs."""

    kind = "uniform"
    low: Runtime[float] = 0.0
    high: Runtime[float] = 1.0


@op
class RandomIntegers(Filling):
    """Integers in [low, high), equally likely. What weft.random.randint is in graphs."""

    kind = "integers"
    dtype: DType = int64
    low: Runtime[int] = 0
    high: Runtime[int]


__all__ = ["Bernoulli", "Dropout", "RandomIntegers", "RandomNormal", "RandomPermutation", "RandomUniform"]
