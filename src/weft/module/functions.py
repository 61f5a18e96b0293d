"""Layers that are one operator of one array with its attributes: activations and pooling."""

from __future__ import annotations

from typing import Any, ClassVar

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.module import init
from weft.module.linear import parameter
from weft.module.module import Module
from weft.ops import registry

__all__ = [
    "ELU",
    "GELU",
    "SELU",
    "AdaptiveAvgPool2d",
    "AdaptiveMaxPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "HardSigmoid",
    "HardSwish",
    "LeakyReLU",
    "LogSoftmax",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "Mish",
    "PReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
]


class OperatorLayer(Module):
    """Base: the operator named `operator`, called with the attributes that the layer was made with.

    They are given as the function takes them, by position or by name, are checked at once, and are attributes of the
    layer under the operator's names.

    >>> import weft.module as M
    >>> M.MaxPool2d(3, 2, padding=1)
    MaxPool2d(kernel_size=3, stride=2, padding=1)
    >>> M.ReLU(3)
    Traceback (most recent call last):
        ...
    TypeError: ReLU: takes 0 arguments by position, got 1
    """

    operator: ClassVar[str]

    def __init__(self, *args: Any, **attributes: Any) -> None:
        cls = registry.get(self.operator)
        names = [a.name for a in cls.attributes if a.name in cls.positional]
        names.sort(key=cls.positional.index)
        if len(args) > len(names):
            raise TypeError(
                f"{type(self).__name__}: takes {len(names)} arguments by position, got {len(args)}"
            )
        by_position = dict(zip(names, args, strict=False))
        if twice := by_position.keys() & attributes.keys():
            raise TypeError(f"{type(self).__name__}: {', '.join(sorted(twice))} given twice")
        self._operator_attributes = {**by_position, **attributes}
        cls(**self._operator_attributes)  # raises what the function would raise
        for name, value in self._operator_attributes.items():
            setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:
        return getattr(F, self.operator)(
            x, **{name: getattr(self, name) for name in self._operator_attributes}
        )

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self._operator_attributes)


class ReLU(OperatorLayer):
    """max(x, 0). See weft.functional.relu.

    >>> import weft as wf
    >>> ReLU()(wf.tensor([-1., 2.]))
    tensor([0., 2.], dtype=float32, device=cpu:0)
    """

    operator = "relu"


class ReLU6(OperatorLayer):
    """min(max(x, 0), 6). See weft.functional.relu6."""

    operator = "relu6"


class LeakyReLU(OperatorLayer):
    """x where it is positive, else negative_slope x. See weft.functional.leaky_relu."""

    operator = "leaky_relu"


class ELU(OperatorLayer):
    """x where it is positive, else alpha (exp(x) - 1). See weft.functional.elu."""

    operator = "elu"


class SELU(OperatorLayer):
    """A scaled ELU that keeps mean and variance. See weft.functional.selu."""

    operator = "selu"


class GELU(OperatorLayer):
    """x times the normal distribution's function; approximate="tanh": by tanh. See weft.functional.gelu."""

    operator = "gelu"


class SiLU(OperatorLayer):
    """x sigmoid(x), also called swish. See weft.functional.silu."""

    operator = "silu"


class Mish(OperatorLayer):
    """x tanh(log(1 + exp(x))). See weft.functional.mish."""

    operator = "mish"


class Sigmoid(OperatorLayer):
    """1 / (1 + exp(-x)). See weft.functional.sigmoid."""

    operator = "sigmoid"


class Tanh(OperatorLayer):
    """The hyperbolic tangent. See weft.functional.tanh."""

    operator = "tanh"


class Softplus(OperatorLayer):
    """log(1 + exp(beta x)) / beta. See weft.functional.softplus."""

    operator = "softplus"


class HardSigmoid(OperatorLayer):
    """A sigmoid of three straight pieces. See weft.functional.hard_sigmoid."""

    operator = "hard_sigmoid"


class HardSwish(OperatorLayer):
    """x times its hard sigmoid. See weft.functional.hard_swish."""

    operator = "hard_swish"


class Softmax(OperatorLayer):
    """exp(x) / sum(exp(x)) along axis, the last by default. See weft.functional.softmax."""

    operator = "softmax"


class LogSoftmax(OperatorLayer):
    """The logarithm of the softmax along axis, the last by default. See weft.functional.log_softmax."""

    operator = "log_softmax"


class MaxPool1d(OperatorLayer):
    """The greatest element of every window of a sequence. See weft.functional.max_pool1d."""

    operator = "max_pool1d"


class MaxPool2d(OperatorLayer):
    """The greatest element of every window: kernel_size, stride=kernel_size, padding=0. See weft.functional.max_pool2d.

    >>> import weft as wf
    >>> MaxPool2d(2)(wf.zeros((1, 3, 8, 8))).shape
    (1, 3, 4, 4)
    """

    operator = "max_pool2d"


class MaxPool3d(OperatorLayer):
    """The greatest element of every window of a volume. See weft.functional.max_pool3d."""

    operator = "max_pool3d"


class AvgPool1d(OperatorLayer):
    """The average of every window of a sequence. See weft.functional.avg_pool1d."""

    operator = "avg_pool1d"


class AvgPool2d(OperatorLayer):
    """The average of every window: kernel_size, stride=kernel_size, padding=0. See weft.functional.avg_pool2d."""

    operator = "avg_pool2d"


class AvgPool3d(OperatorLayer):
    """The average of every window of a volume. See weft.functional.avg_pool3d."""

    operator = "avg_pool3d"


class AdaptiveAvgPool2d(OperatorLayer):
    """Averages over windows chosen so that the result has output_size. See weft.functional.adaptive_avg_pool2d.

    >>> import weft as wf
    >>> AdaptiveAvgPool2d(1)(wf.ones((2, 3, 5, 7))).shape
    (2, 3, 1, 1)
    """

    operator = "adaptive_avg_pool2d"


class AdaptiveMaxPool2d(OperatorLayer):
    """Maxima over windows chosen so that the result has output_size. See weft.functional.adaptive_max_pool2d."""

    operator = "adaptive_max_pool2d"


class PReLU(Module):
    """x where it is positive, else weight x; weight: a learnt number, or one for each channel of axis 1.

    >>> import weft as wf
    >>> PReLU()(wf.tensor([[-4., 4.]]))
    tensor([[-1.,  4.]], dtype=float32, device=cpu:0)
    """

    repr_attributes = ("num_parameters",)

    def __init__(self, num_parameters: int = 1, value: float = 0.25) -> None:
        self.num_parameters = num_parameters
        self.weight = parameter(num_parameters, "float32", None)
        init.constant_(self.weight, value)

    def forward(self, x: Tensor) -> Tensor:
        return F.prelu(x, self.weight)
