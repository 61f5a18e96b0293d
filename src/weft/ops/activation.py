"""Activation functions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from weft.expr import scalar as e
from weft.ops.op import Runtime, op
from weft.ops.pointwise import Pointwise
from weft.ops.samples import Sample, arrays

Scalar = e.Scalar


class Activation(Pointwise):
    """Base of pointwise functions between layers."""

    family: ClassVar[str] = "activation"
    result: ClassVar[str] = "float"
    takes: ClassVar[tuple[str, ...]] = ("float",)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for shape in ((2, 3), (), (0, 4), (33,)):
            yield Sample(arrays(shape))


@op
class Relu(Activation):
    """max(x, 0). NaN stays NaN; the gradient at 0 is 0.

    x: float[...] or integers, which stay integers. Returns x's shape and dtype.
    Source: Nair, Hinton 2010, Rectified linear units improve restricted Boltzmann machines.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.relu(wf.tensor([-1., 2.]))
    tensor([0., 2.], dtype=float32, device=cpu:0)
    """

    result: ClassVar[str] = "same"
    takes: ClassVar[tuple[str, ...]] = ("int", "uint", "float")

    def scalar(self, x: Scalar) -> Scalar:
        return e.where(x <= 0, e.constant(0, x.dtype), x)

    def reference(self, x: Any) -> Any:
        return np.where(x <= 0, 0, x)


@op
class Gelu(Activation):
    """x times the normal distribution's function: x P(X <= x); approximate="tanh" uses its formula by tanh.

    x: float[...]. Returns x's shape. approximate: "none" or "tanh".
    Raises ValueError for another word.
    Source: Hendrycks, Gimpel 2016, Gaussian error linear units.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.gelu(wf.tensor([0., 1.]))
    tensor([0.        , 0.84134476], dtype=float32, device=cpu:0)
    """

    approximate: str = "none"
    positional = ("approximate",)

    def check(self) -> None:
        if self.approximate not in ("none", "tanh"):
            raise ValueError(f"gelu: approximate must be 'none' or 'tanh', got {self.approximate!r}")

    def scalar(self, x: Scalar) -> Scalar:
        if self.approximate == "tanh":
            inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
            return 0.5 * x * (1 + e.call("tanh", inner))
        return 0.5 * x * (1 + e.call("erf", x * math.sqrt(0.5)))

    def reference(self, x: Any) -> Any:
        if self.approximate == "tanh":
            return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2)))


@op
class LeakyRelu(Activation):
    """x where it is positive, else negative_slope times x.

    x: float[...]; negative_slope: a number given when it runs. Returns x's shape and dtype.
    Source: Maas, Hannun, Ng 2013, Rectifier nonlinearities improve neural network acoustic models.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.leaky_relu(wf.tensor([-2., 2.]), negative_slope=0.5)
    tensor([-1.,  2.], dtype=float32, device=cpu:0)
    """

    negative_slope: Runtime[float] = 0.01
    positional = ("negative_slope",)

    def scalar(self, x: Scalar) -> Scalar:
        return e.where(x > 0, x, x * self.negative_slope)

    def reference(self, x: Any) -> Any:
        return np.where(x > 0, x, x * self.negative_slope)
