"""Losses that are part of an output, as MXNet's symbols end in them: a prediction, and the loss's gradient backward.

The gradient that comes from above is not read: executor.backward() needs none.
"""

from __future__ import annotations

from typing import Any, Literal

from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.op import Op, op
from weft.ops.pointwise import cast_to


class Output(Op, family="loss"):
    """Base: scale is a factor of the gradient of x; labels have none."""

    scale: float = 1.0

    def per_row(self, gradient: Any, x: Any) -> Any:
        """A gradient times the scale, as x's dtype."""
        return cast_to(gradient * self.scale, x.dtype)


class Regression(Output, rule="x[*s]: float, label: number -> y[*s]: x"):
    """Base: the gradient is divided by the number of outputs of an example."""

    def infer(self, x: Any, label: Any) -> Any:
        if label.size != x.size:
            raise self.fail(ShapeError, f"label has {label.size} elements, x has {x.size}", x=x, label=label)
        return super().infer(x, label)

    def difference(self, x: Any, label: Any) -> Any:
        """What the gradient is, of a prediction and a label of x's shape."""
        return x - label

    def decompose(self, x: Any, label: Any) -> Any:
        return x * 1

    def vjp(self, x: Any, label: Any, y: Any, dy: Any) -> Any:
        wide = cast_to(y, y.dtype.accumulation)
        label = F.reshape(cast_to(label, wide.dtype), shape=x.shape)
        outputs = max(x.size // max(x.shape[0], 1), 1) if x.ndim else 1
        return self.per_row(self.difference(wide, label) * (1 / outputs), x), None


@op
class LinearRegressionOutput(Regression):
    """x; its gradient is that of half the squared difference to the label: (x - label) scale / outputs.

    x: float[n, ...]; label: numbers, as many as x has; scale: a factor; outputs: the number of elements of an example,
    x.size / n. Returns x's type. The gradient from above is not read. Raises ShapeError for another number of labels.
    Source: MXNet's LinearRegressionOutput.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> wf.grad(lambda x: F.linear_regression_output(x, wf.tensor([1., 1.])).sum())(wf.tensor([3., 0.]))
    tensor([ 2., -1.], dtype=float32, device=cpu:0)
    """


@op
class MaeRegressionOutput(Regression):
    """x; its gradient is that of the absolute difference to the label: sign(x - label) scale / outputs.

    x: float[n, ...]; label: numbers, as many as x has; scale: a factor; outputs: the number of elements of an example.
    Returns x's type. The gradient from above is not read. Raises ShapeError for another number of labels.
    Source: MXNet's MAERegressionOutput.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> wf.grad(lambda x: F.mae_regression_output(x, wf.tensor([1., 1.])).sum())(wf.tensor([3., 0.]))
    tensor([ 1., -1.], dtype=float32, device=cpu:0)
    """

    def difference(self, x: Any, label: Any) -> Any:
        return F.sign(x - label)


@op
class LogisticRegressionOutput(Regression):
    """sigmoid(x); the gradient of x is that of the cross entropy to the label: (sigmoid(x) - label) scale / outputs.

    x: float[n, ...]; label: numbers of 0 ... 1, as many as x has; scale: a factor; outputs: the number of elements of
    an example. Returns x's type. The gradient from above is not read. Raises ShapeError for another number of labels.
    Source: MXNet's LogisticRegressionOutput.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> wf.grad(lambda x: F.logistic_regression_output(x, wf.tensor([1., 0.])).sum())(wf.tensor([0., 0.]))
    tensor([-0.5,  0.5], dtype=float32, device=cpu:0)
    """

    def decompose(self, x: Any, label: Any) -> Any:
        return F.sigmoid(x)


class OfClasses(Output, rule="x[n,classes,*s]: float, label[n,*s]: number -> y[n,classes,*s]: x"):
    """Base: scores of classes on axis 1, and the number of the right one."""

    def is_right(self, x: Any, label: Any) -> Any:
        """Whether a score is that of the label, in x's shape."""
        return F.equal(F.places_like(x, axis=1), F.expand_dims(label, axis=1))


@op
class SoftmaxOutput(OfClasses):
    """softmax(x) along axis 1; the gradient of x is that of the cross entropy to the label: softmax(x) - onehot(label).

    x: float[n, c, ...]; label: numbers of classes, [n, ...]; scale: a factor of the gradient; smoothing: this share of
    the target is spread over the other classes; ignore_label: rows with this label have no gradient; normalization:
    what the gradient is divided by: "null": 1, "batch": n, "valid": the number of rows that count. Returns x's type.
    The gradient from above is not read. Raises ShapeError if sizes differ, ValueError unless smoothing is in 0 ... 1.
    Source: MXNet's SoftmaxOutput.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> wf.grad(lambda x: F.softmax_output(x, wf.tensor([1])).sum())(wf.zeros((1, 2)))
    tensor([[ 0.5, -0.5]], dtype=float32, device=cpu:0)
    """

    ignore_label: float | None = None
    normalization: Literal["null", "batch", "valid"] = "null"
    smoothing: float = 0.0

    def check(self) -> None:
        if not 0 <= self.smoothing <= 1:
            raise ValueError(f"{self.name}: smoothing must be in 0..1, got {self.smoothing}")

    def decompose(self, x: Any, label: Any) -> Any:
        return F.softmax(x, axis=1)

    def vjp(self, x: Any, label: Any, y: Any, dy: Any) -> Any:
        wide = cast_to(y, y.dtype.accumulation)
        target = cast_to(self.is_right(x, label), wide.dtype)
        if self.smoothing:
            rest = self.smoothing / max(x.shape[1] - 1, 1)
            target = target * (1 - self.smoothing - rest) + rest
        dx = wide - target
        counts = F.equal(label, label) if self.ignore_label is None else F.not_equal(label, self.ignore_label)
        dx = F.where(F.expand_dims(counts, axis=1), dx, 0)
        if self.normalization == "batch":
            dx = dx * (1 / max(x.shape[0], 1))
        elif self.normalization == "valid":
            dx = dx / F.maximum(F.sum(cast_to(counts, wide.dtype)), 1.0)
        return self.per_row(dx, x), None


@op
class SvmOutput(OfClasses):
    """x; its gradient is that of a hinge loss of one class against the rest.

    With t = 1 for the label's class and -1 for others: that of max(0, margin - t x)^2 scale (linear: without the
    square, and half of it). x: float[n, c, ...]; label: numbers of classes, [n, ...]; linear: see there. Returns x's
    type. The gradient from above is not read. Raises ShapeError if sizes differ.
    Source: MXNet's SVMOutput; Tang 2013, Deep learning using linear support vector machines.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> wf.grad(lambda x: F.svm_output(x, wf.tensor([1])).sum())(wf.tensor([[0.5, 0.]]))
    tensor([[ 3., -2.]], dtype=float32, device=cpu:0)
    """

    margin: float = 1.0
    linear: bool = False

    def decompose(self, x: Any, label: Any) -> Any:
        return x * 1

    def vjp(self, x: Any, label: Any, dy: Any) -> Any:
        wide = cast_to(x, x.dtype.accumulation)
        side = F.where(self.is_right(x, label), 1.0, -1.0)
        gap = F.maximum(self.margin - side * wide, 0.0)
        size = F.where(gap > 0, 1.0, 0.0) if self.linear else gap * 2
        return self.per_row(-side * size, x), None


@op
class MakeLoss(Output, rule="x[*s]: float -> y[*s]: x"):
    """x, as a loss: its gradient is scale, whatever comes from above.

    x: float[...]; normalization: what the gradient is divided by: "null": 1, "batch": the first size, "valid": the
    number of elements above valid_threshold. Returns x's type.
    Source: MXNet's MakeLoss.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> wf.grad(lambda x: (F.make_loss(x, scale=2.0) * 0).sum())(wf.tensor([3., 0.]))
    tensor([2., 2.], dtype=float32, device=cpu:0)
    """

    normalization: Literal["null", "batch", "valid"] = "null"
    valid_threshold: float = 0.0

    def decompose(self, x: Any) -> Any:
        return x * 1

    def vjp(self, x: Any, dy: Any) -> Any:
        ones = F.filled_like(cast_to(x, x.dtype.accumulation), value=1.0)
        if self.normalization == "batch":
            ones = ones * (1 / max(x.shape[0] if x.ndim else 1, 1))
        elif self.normalization == "valid":
            ones = ones / F.maximum(F.sum(cast_to(x > self.valid_threshold, ones.dtype)), 1.0)
        return self.per_row(ones, x)


@op
class GradientMultiplier(Op, family="loss", rule="x[*s]: float -> y[*s]: x", positional=("factor",)):
    """x, whose gradient is multiplied by a factor: -1 reverses it.

    x: float[...]. Returns x's type.
    Source: Ganin, Lempitsky 2015, Unsupervised domain adaptation by backpropagation; MXNet's gradientmultiplier.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> wf.grad(lambda x: F.gradient_multiplier(x, -1.0).sum())(wf.tensor([3.]))
    tensor([-1.], dtype=float32, device=cpu:0)
    """

    factor: float

    def decompose(self, x: Any) -> Any:
        return x * 1

    def vjp(self, dy: Any) -> Any:
        return dy * self.factor


@op
class KlSparsity(Op, family="loss", rule="x[n,*s]: float, mean[*s]: fixed float -> y[n,*s]: x"):
    """x, whose gradient gets that of a penalty on means over the batch that differ from a target.

    The penalty is that of the divergence of Bernoulli distributions: the gradient of x is dy + penalty ((1 - target) /
    (1 - m) - target / m), where m is the running mean of x over axis 0: momentum mean + (1 - momentum) mean(x). x:
    float[n, ...], results of a sigmoid; mean: float[...], written if training; else it is m. target: within 0..1;
    penalty, momentum: numbers. Returns x's type. Raises ShapeError if shapes differ, ValueError for another target.
    Source: Hinton 2010, A practical guide to training restricted Boltzmann machines, section 11; MXNet's
    IdentityAttachKLSparseReg.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> mean = wf.tensor([0.5])
    >>> wf.grad(lambda x: F.kl_sparsity(x, mean, target=0.1, penalty=1.0, momentum=0.0).sum())(wf.tensor([[0.2]]))
    tensor([[1.625]], dtype=float32, device=cpu:0)
    >>> mean
    tensor([0.2], dtype=float32, device=cpu:0)
    """

    target: float = 0.1
    penalty: float = 0.001
    momentum: float = 0.9
    training: bool = True

    def check(self) -> None:
        if not 0 < self.target < 1:
            raise ValueError(f"{self.name}: target must be within 0..1, got {self.target}")

    @property
    def outputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("y", "new_mean") if self.training else ("y",)

    @property
    def hidden(self) -> int:  # type: ignore[override]
        return len(self.outputs) - 1

    @property
    def writes(self) -> dict[str, str]:  # type: ignore[override]
        return {"mean": "new_mean"} if self.training else {}

    def infer(self, x: Any, mean: Any) -> Any:
        y = super().infer(x, mean)
        return (y, mean) if self.training else y

    def decompose(self, x: Any, mean: Any) -> Any:
        if not self.training:
            return x * 1
        kind = mean.dtype.accumulation
        now = F.mean(cast_to(x, kind), axis=0)
        new = cast_to(mean, kind) * self.momentum + now * (1 - self.momentum)
        return x * 1, cast_to(new, mean.dtype)

    def vjp(self, *values: Any) -> Any:
        if not self.training:
            return values[-1], None
        x, _, _, new_mean, dy, _ = values
        m = cast_to(new_mean, new_mean.dtype.accumulation)
        slope = ((1 - self.target) / (1 - m) - self.target / m) * self.penalty
        slope = F.broadcast_to(F.expand_dims(slope, axis=0), shape=x.shape)
        return cast_to(slope if dy is None else cast_to(dy, slope.dtype) + slope, x.dtype), None


__all__ = [
    "GradientMultiplier",
    "KlSparsity",
    "LinearRegressionOutput",
    "LogisticRegressionOutput",
    "MaeRegressionOutput",
    "MakeLoss",
    "SoftmaxOutput",
    "SvmOutput",
]
