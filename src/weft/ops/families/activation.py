"""Activation functions."""

from __future__ import annotations

import math
from typing import Any

from weft.base.errors import ShapeError
from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops.op import Op, Runtime, op
from weft.ops.pointwise import Pointwise
from weft.ops.types import TensorType, normalize_axes

Scalar = e.Scalar


class Activation(Pointwise, family="activation", result="float", takes=("float",)):
    """Base of pointwise functions between layers."""


@op
class Relu(Activation, aot_dtypes=("float32",), result="same", takes=("int", "uint", "float")):
    """max(x, 0). NaN stays NaN; the gradient at 0 is 0.

    x: float[...] or integers, which stay integers. Returns x's shape and dtype.
    Source: Nair, Hinton 2010, Rectified linear units improve restricted Boltzmann machines.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.relu(wf.tensor([-1., 2.]))
    tensor([0., 2.], dtype=float32, device=cpu:0)
    """

    def scalar(self, x: Scalar) -> Scalar:
        return e.where(x <= 0, e.constant(0, x.dtype), x)

    def vjp(self, y: Any, dy: Any) -> Any:
        """From the result, which is positive exactly where x is, so x need not be kept."""
        return F.where(F.less_equal(y, 0), 0, dy) if dy.dtype.is_differentiable else None


@op
class Gelu(Activation, positional=("approximate",)):
    """x times the normal distribution's function: x P(X <= x); approximate="tanh" uses its formula by tanh.

    x: float[...]. Returns x's shape. approximate: "none" or "tanh".
    Raises ValueError for another value of approximate.
    Source: Hendrycks, Gimpel 2016, Gaussian error linear units.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.gelu(wf.tensor([0., 100.]))
    tensor([  0., 100.], dtype=float32, device=cpu:0)
    """

    approximate: str = "none"

    def check(self) -> None:
        if self.approximate not in ("none", "tanh"):
            raise ValueError(f"gelu: approximate must be 'none' or 'tanh', got {self.approximate!r}")

    def scalar(self, x: Scalar) -> Scalar:
        if self.approximate == "tanh":
            twice = 2 * math.sqrt(2 / math.pi)
            return x * e.call("sigmoid", x * e.fma(x * x, twice * 0.044715, twice))  # (1 + tanh(u)) / 2
        return 0.5 * x * (1 + e.call("erf", x * math.sqrt(0.5)))


@op
class LeakyRelu(Activation, positional=("negative_slope",)):
    """x where it is positive, else negative_slope times x.

    x: float[...]; negative_slope: a number given when it runs. Returns x's shape and dtype.
    Source: Maas, Hannun, Ng 2013, Rectifier nonlinearities improve neural network acoustic models.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.leaky_relu(wf.tensor([-2., 2.]), negative_slope=0.5)
    tensor([-1.,  2.], dtype=float32, device=cpu:0)
    """

    negative_slope: Runtime[float] = 0.01

    def scalar(self, x: Scalar) -> Scalar:
        return e.where(x > 0, x, x * self.negative_slope)


def _between(x: Scalar, low: Any, high: Any) -> Scalar:
    """x kept within two bounds; the slope is 1 between them and 0 outside and at them. NaN stays."""
    bottom, top = (v if isinstance(v, Scalar) else e.constant(v, x.dtype) for v in (low, high))
    return e.where(x <= bottom, bottom, e.where(x >= top, top, x))


@op
class Relu6(Activation):
    """min(max(x, 0), 6). NaN stays NaN; the gradient at 0 and 6 is 0.

    x: float[...], integers as float32. Returns x's shape.
    Source: Krizhevsky 2010, Convolutional deep belief networks on CIFAR-10.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.relu6(wf.tensor([-1., 2., 9.]))
    tensor([0., 2., 6.], dtype=float32, device=cpu:0)
    """

    def scalar(self, x: Scalar) -> Scalar:
        return _between(x, 0, 6)


@op
class Hardtanh(Activation, positional=("min_val", "max_val")):
    """x, but at least min_val and at most max_val. NaN stays NaN; the gradient at both is 0.

    x: float[...], integers as float32; min_val, max_val: numbers given when it runs. Returns x's shape.
    Source: Collobert 2004, Large scale machine learning.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.hardtanh(wf.tensor([-3., 0.5, 2.]))
    tensor([-1. ,  0.5,  1. ], dtype=float32, device=cpu:0)
    """

    min_val: Runtime[float] = -1.0
    max_val: Runtime[float] = 1.0

    def scalar(self, x: Scalar) -> Scalar:
        return _between(x, self.min_val, self.max_val)


@op
class HardSigmoid(Activation):
    """min(max(x / 6 + 1/2, 0), 1): a sigmoid of three straight pieces.

    x: float[...], integers as float32. Returns x's shape.
    Source: Howard et al. 2019, Searching for MobileNetV3.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.hard_sigmoid(wf.tensor([-3., 0., 3.]))
    tensor([0. , 0.5, 1. ], dtype=float32, device=cpu:0)
    """

    def scalar(self, x: Scalar) -> Scalar:
        return _between(x / 6 + 0.5, 0, 1)


@op
class HardSwish(Activation):
    """x min(max(x / 6 + 1/2, 0), 1): x times its hard_sigmoid.

    x: float[...], integers as float32. Returns x's shape. The gradient is 0 from -3 down and 1 from 3 on, at infinity
    as well.
    Source: Howard et al. 2019, Searching for MobileNetV3.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.hard_swish(wf.tensor([-4., 0., 3.]))
    tensor([-0.,  0.,  3.], dtype=float32, device=cpu:0)
    """

    def scalar(self, x: Scalar) -> Scalar:
        return e.where(x <= -3, x * 0, e.where(x >= 3, x, x * (x / 6 + 0.5)))


@op
class Elu(Activation, positional=("alpha",)):
    """x where it is positive, else alpha (exp(x) - 1).

    x: float[...], integers as float32; alpha: a number given when it runs. Returns x's shape.
    Source: Clevert, Unterthiner, Hochreiter 2015, Fast and accurate deep network learning by exponential linear units.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.elu(wf.tensor([float("-inf"), 2.]))
    tensor([-1.,  2.], dtype=float32, device=cpu:0)
    """

    alpha: Runtime[float] = 1.0

    def scalar(self, x: Scalar) -> Scalar:
        return e.where(x > 0, x, e.call("expm1", x) * self.alpha)


@op
class Celu(Activation, positional=("alpha",)):
    """x where it is positive, else alpha (exp(x / alpha) - 1).

    x: float[...], integers as float32; alpha: a number given when it runs, not 0. Returns x's shape.
    Source: Barron 2017, Continuously differentiable exponential linear units.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.celu(wf.tensor([float("-inf"), 2.]), alpha=0.5)
    tensor([-0.5,  2. ], dtype=float32, device=cpu:0)
    """

    alpha: Runtime[float] = 1.0

    def scalar(self, x: Scalar) -> Scalar:
        return e.where(x > 0, x, e.call("expm1", x / self.alpha) * self.alpha)


_SELU = 1.0507009873554805, 1.6732632423543772  # scale, alpha: a fixed point of mean 0 and variance 1


@op
class Selu(Activation):
    """1.0507 x where it is positive, else 1.0507 times 1.67326 (exp(x) - 1).

    x: float[...], integers as float32. Returns x's shape.
    Source: Klambauer et al. 2017, Self-normalizing neural networks.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.selu(wf.tensor(0.)).item()
    0.0
    """

    def scalar(self, x: Scalar) -> Scalar:
        scale, alpha = _SELU
        return e.where(x > 0, x * scale, e.call("expm1", x) * (scale * alpha))


@op
class Silu(Activation):
    """x sigmoid(x), also called swish.

    x: float[...], integers as float32. Returns x's shape.
    Source: Elfwing, Uchibe, Doya 2017, Sigmoid-weighted linear units.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.silu(wf.tensor(0.)).item()
    0.0
    """

    def scalar(self, x: Scalar) -> Scalar:
        return x * e.call("sigmoid", x)


def softplus_of(x: Scalar) -> Scalar:
    """log(1 + exp(x)) for all x. One comparison chooses both parts: derivatives of every order are those of the
    sigmoid at 0, too."""
    positive = x >= 0
    return e.where(positive, x, 0) + e.call("log1p", e.call("exp", e.where(positive, -x, x)))


@op
class Mish(Activation):
    """x tanh(log(1 + exp(x))).

    x: float[...], integers as float32. Returns x's shape.
    Source: Misra 2019, Mish: a self regularized non-monotonic activation function.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.mish(wf.tensor(0.)).item()
    0.0
    """

    def scalar(self, x: Scalar) -> Scalar:
        return x * e.call("tanh", softplus_of(x))


@op
class Softplus(Activation, positional=("beta", "threshold")):
    """log(1 + exp(beta x)) / beta; x itself where beta x > threshold.

    x: float[...], integers as float32; beta, threshold: numbers given when it runs. Returns x's shape.
    Source: Dugas et al. 2000, Incorporating second-order functional knowledge for better option pricing.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.softplus(wf.tensor([-200., 200.]))
    tensor([  0., 200.], dtype=float32, device=cpu:0)
    """

    beta: Runtime[float] = 1.0
    threshold: Runtime[float] = 20.0

    def scalar(self, x: Scalar) -> Scalar:
        scaled = x * self.beta
        return e.where(scaled > self.threshold, x, softplus_of(scaled) / self.beta)


@op
class Softsign(Activation):
    """x / (1 + |x|).

    x: float[...], integers as float32. Returns x's shape.
    Source: Bergstra et al. 2009, Quadratic polynomials learn better image features.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.softsign(wf.tensor([-1., 3.]))
    tensor([-0.5 ,  0.75], dtype=float32, device=cpu:0)
    """

    def scalar(self, x: Scalar) -> Scalar:
        return x / (abs(x) + 1)


@op
class LogSigmoid(Activation):
    """log(1 / (1 + exp(-x))), finite for all finite x.

    x: float[...], integers as float32. Returns x's shape.
    Source: PyTorch's logsigmoid.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.log_sigmoid(wf.tensor([-200., 200.]))
    tensor([-200.,   -0.], dtype=float32, device=cpu:0)
    """

    def scalar(self, x: Scalar) -> Scalar:
        return -softplus_of(-x)


@op
class Tanhshrink(Activation):
    """x - tanh(x).

    x: float[...], integers as float32. Returns x's shape.
    Source: PyTorch's tanhshrink.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.tanhshrink(wf.tensor(0.)).item()
    0.0
    """

    def scalar(self, x: Scalar) -> Scalar:
        return x - e.call("tanh", x)


class Shrinking(Activation, positional=("lambd",)):
    """Base of functions with a threshold lambd, a number given when it runs."""

    lambd: Runtime[float] = 0.5


@op
class Softshrink(Shrinking):
    """x brought nearer to 0 by lambd, and 0 within lambd of it. NaN stays NaN.

    x: float[...], integers as float32; lambd: a number given when it runs, at least 0. Returns x's shape.
    Source: Donoho 1995, De-noising by soft-thresholding.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.softshrink(wf.tensor([-2., 0.25, 2.]))
    tensor([-1.5,  0. ,  1.5], dtype=float32, device=cpu:0)
    """

    def scalar(self, x: Scalar) -> Scalar:
        lost = x * 0  # NaN stays
        return e.where(x > self.lambd, x - self.lambd, e.where(x < -self.lambd, x + self.lambd, lost))


@op
class Hardshrink(Shrinking):
    """x, but 0 within lambd of 0. NaN stays NaN.

    x: float[...], integers as float32; lambd: a number given when it runs, at least 0. Returns x's shape.
    Source: Donoho, Johnstone 1994, Ideal spatial adaptation by wavelet shrinkage.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.hardshrink(wf.tensor([-2., 0.25, 2.]))
    tensor([-2.,  0.,  2.], dtype=float32, device=cpu:0)
    """

    def scalar(self, x: Scalar) -> Scalar:
        return e.where((x >= -self.lambd) & (x <= self.lambd), e.constant(0, x.dtype), x)


@op
class Threshold(Activation, positional=("threshold", "value")):
    """x where it is more than threshold, else value.

    x: float[...], integers as float32; threshold, value: numbers given when it runs. Returns x's shape.
    Source: PyTorch's threshold.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.threshold(wf.tensor([1., 3.]), 2, 20)
    tensor([20.,  3.], dtype=float32, device=cpu:0)
    """

    threshold: Runtime[float]
    value: Runtime[float]

    def scalar(self, x: Scalar) -> Scalar:
        low = self.value if isinstance(self.value, Scalar) else e.constant(self.value, x.dtype)
        return e.where(x <= self.threshold, low, x)


@op
class Prelu(
    Op,
    family="activation",
    rule="x[*s]: float, weight: learnable float -> y[*s]: promote",
):
    """x where it is positive, else weight times x; a learnt leaky_relu.

    x: float[...]; weight: float[1] for all, or float[c] for the sizes c of x's axis 1 (axis 0 if it has only one).
    Returns x's shape and the promoted type. Raises ShapeError if weight fits neither.
    Source: He et al. 2015, Delving deep into rectifiers.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.prelu(wf.tensor([[-2., -2.]]), wf.tensor([0.5, 1.]))
    tensor([[-1., -2.]], dtype=float32, device=cpu:0)
    """

    def learnable_types(self, *inputs: TensorType | None) -> dict[str, TensorType]:
        """One number for each channel."""
        x = inputs[0]
        return {} if x is None or not x.ndim else {"weight": x.like((x.shape[min(1, x.ndim - 1)],))}

    def infer(self, x: TensorType, weight: TensorType) -> Any:
        is_aligned = weight.ndim == 1 and (
            weight.shape[0] == 1 or (x.ndim > 0 and weight.shape[0] == x.shape[min(1, x.ndim - 1)])
        )
        if not (is_aligned or weight.ndim == 0):
            raise self.fail(
                ShapeError, "weight needs one number, or one for each size of axis 1", x=x, weight=weight
            )
        return super().infer(x, weight)

    def decompose(self, x: Any, weight: Any) -> Any:
        if x.ndim > 2 and weight.ndim == 1:
            weight = F.expand_dims(weight, axis=tuple(range(1, x.ndim - 1)))
        if x.ndim == 0 and weight.ndim == 1:
            weight = F.squeeze(weight, axis=0)
        return F.where(F.greater(x, 0), x, x * weight)


@op
class Glu(Op, family="shape", rule="x: float -> y: x", positional=("axis",)):
    """The first half of x along an axis times the sigmoid of its second half.

    x: float[..., 2n, ...]; axis: which. Returns float[..., n, ...], x's dtype. Raises ShapeError if the size is odd.
    Source: Dauphin et al. 2016, Language modeling with gated convolutional networks.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.glu(wf.tensor([3., 0.]))
    tensor([1.5], dtype=float32, device=cpu:0)
    """

    axis: int = -1

    def infer(self, x: TensorType) -> TensorType:
        self.require_floats(x=x)
        (axis,) = normalize_axes(self.name, self.axis, x.ndim)
        size = int(x.shape[axis])
        if size % 2:
            raise self.fail(ShapeError, f"size {size} of axis {axis} is odd", x=x)
        return x.like([size // 2 if d == axis else n for d, n in enumerate(x.shape)])

    def decompose(self, x: Any) -> Any:
        (axis,) = normalize_axes(self.name, self.axis, x.ndim)
        half = x.shape[axis] // 2
        first, second = F.split(x, half, axis=axis) if half else (x, x)
        return first * F.sigmoid(second)
