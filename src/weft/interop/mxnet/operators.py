"""Operators of symbols that MXNet's networks become, where no operator of weft means the same.

MXNetOperator is one of MXNet's whose meaning in weft's operators depends on sizes (weft.interop.mxnet.by_sizes and
layers_by_sizes). The others are outputs for training, whose gradients do not depend on the incoming one.
Source: Apache MXNet 1.9, src/operator (softmax_output-inl.h, regression_output-inl.h).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft.base.dtype import int64
from weft.interop.mxnet.values import numbered
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.op import Op, op
from weft.ops.pointwise import cast_to
from weft.ops.shapes import Partial, merge
from weft.ops.types import TensorType
from weft.symbol.solvers import Shapes, Solver, solver

__all__ = [
    "AsDtypeOf",
    "MXNetOperator",
    "MXNetRegressionOutput",
    "MXNetSoftmaxOutput",
]


@op
class MXNetOperator(Composed, public=False, family="interop"):
    """An operator of MXNet by its name there; attributes: pairs of texts, as its files have them; count: outputs."""

    operator: str
    settings: object = ()
    count: int = 1

    @property
    def outputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("y",) if self.count == 1 else tuple(f"y{k}" for k in range(self.count))

    def decompose(self, *x: Any) -> Any:
        from weft.interop.mxnet import layers_by_sizes  # noqa: F401 - adds conversions
        from weft.interop.mxnet.attributes import Attributes
        from weft.interop.mxnet.layers_by_sizes import CONVERSIONS

        attributes = Attributes(dict(self.settings), f"mxnet: {self.operator}")  # type: ignore[call-overload]
        result = CONVERSIONS[self.operator](attributes, *x)
        attributes.require_all_read()
        return result


@op
class AsDtypeOf(Op, public=False, family="interop", rule="x[*s], like[*t] -> y[*s]: like"):
    """x in the dtype of another operand."""

    def decompose(self, x: Any, like: Any) -> Any:
        return cast_to(x, like.dtype)


class OutputForTraining(Op, public=False, family="interop"):
    """Base: the gradient of x is known from x and label, times scale, whatever is asked of y."""

    scale: float = 1.0

    def infer(self, x: TensorType, label: TensorType) -> TensorType:
        self.require_floats(x=x)
        return x.like()

    def likely_label(self, x: Partial) -> Partial:
        """The shape that a label is likely to have: that of x."""
        return x


@solver(OutputForTraining)
class OutputSolver(Solver):
    """The result has the shape of x."""

    def shapes(self, inputs: Sequence[Partial], outputs: Sequence[Partial]) -> Shapes:
        x = merge(inputs[0], outputs[0])
        return [x, inputs[1]], [x]

    def likely_shapes(self, inputs: Sequence[Partial], outputs: Sequence[Partial]) -> list[Partial]:
        x, label = inputs
        return [x, self.op.likely_label(x) if label is None and x is not None else label]


@op
class MXNetSoftmaxOutput(OutputForTraining, name="mxnet_softmax_output"):
    """softmax(x), whose gradient is that of the cross-entropy with label, times scale.

    x: float[n, ...]: classes are along axis 1 (multi_output), along the last one (preserve_shape), or all but the
    first together. label: class indices of the other axes, or probabilities of x's shape. use_ignore: rows whose label
    is ignore_label have no gradient. normalization: "null", "batch" (divided by the number of labels along axis 0), or
    "valid" (by the number of labels other than ignore_label). smooth_alpha: the share of other classes in the target.
    """

    multi_output: bool = False
    preserve_shape: bool = False
    use_ignore: bool = False
    ignore_label: float = -1.0
    normalization: str = "null"
    smooth_alpha: float = 0.0
    out_grad: bool = False

    def likely_label(self, x: Partial) -> Partial:
        """A class for each row."""
        assert x is not None
        return (x[0], *x[2:]) if self.multi_output else x[:-1]

    def rows(self, x: Any) -> tuple[Any, int]:
        """x so that classes are along one axis, and that axis."""
        if self.multi_output:
            return x, 1
        if self.preserve_shape:
            return x, x.ndim - 1
        return F.reshape(x, shape=(x.shape[0], -1)), 1

    def decompose(self, x: Any, label: Any) -> Any:
        rows, axis = self.rows(x)
        return F.reshape(F.softmax(rows, axis=axis), shape=x.shape)

    def vjp(self, label: Any, y: Any, dy: Any) -> Any:
        if label.shape == y.shape:
            dx = (y - cast_to(label, y.dtype)) * self.scale
            return dx * dy if self.out_grad else dx, None
        rows, axis = self.rows(y)
        classes = rows.shape[axis]
        shape = tuple(1 if d == axis else n for d, n in enumerate(rows.shape))
        count = math.prod(map(int, shape))
        labels = F.reshape(label, shape=(-1,))
        if (
            int(labels.shape[0]) != count
        ):  # x of more than 2 dimensions has more labels than rows: the first ones count
            labels = F.basic_index(labels, items=((0, count, 1),))
        labels = F.reshape(labels, shape=shape)
        line = tuple(classes if d == axis else 1 for d in range(rows.ndim))
        is_class = F.equal(cast_to(labels, int64), F.reshape(numbered(rows, classes), shape=line))
        other = self.smooth_alpha / (classes - 1) if classes > 1 else 0.0
        target = F.where(is_class, 1.0 - self.smooth_alpha, other)
        dx = rows - cast_to(target, y.dtype)
        is_ignored = F.equal(labels, self.ignore_label)
        if self.use_ignore:
            dx = F.where(is_ignored, 0.0, dx)
        divisor: Any = 1.0
        if self.multi_output and self.normalization != "valid":
            divisor = float(math.prod(y.shape[2:]))
        if self.normalization == "batch":
            divisor *= float(label.shape[0])
        elif self.normalization == "valid":
            valid = F.sum(cast_to(F.logical_not(is_ignored), y.dtype))
            divisor = F.maximum(valid, 1.0)
        dx = F.reshape(dx * self.scale / divisor, shape=y.shape)
        return cast_to(dx * dy if self.out_grad else dx, y.dtype), None


@op
class MXNetRegressionOutput(OutputForTraining, name="mxnet_regression_output"):
    """x (kind "linear", "absolute") or sigmoid(x) ("logistic"); the gradient is y - label, or its sign ("absolute").

    It is multiplied by scale, and divided by the number of labels of one example.
    """

    kind: str = "linear"

    def decompose(self, x: Any, label: Any) -> Any:
        return F.sigmoid(x) if self.kind == "logistic" else F.positive(x)

    def vjp(self, label: Any, y: Any) -> Any:
        difference = y - cast_to(F.reshape(label, shape=y.shape), y.dtype)
        if self.kind == "absolute":
            difference = F.sign(difference)
        return difference * (self.scale / max(1, math.prod(label.shape[1:]))), None
