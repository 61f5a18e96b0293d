"""Layers that are one operator of one array with its attributes: activations; images.py has those of images."""

from __future__ import annotations

from typing import Any, ClassVar

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.module import init
from weft.module.linear import parameter
from weft.module.module import Module
from weft.ops import registry

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "HardSigmoid",
    "HardSwish",
    "Hardshrink",
    "Hardtanh",
    "LeakyReLU",
    "LocalResponseNorm",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]


class OperatorLayer(Module):
    """Base: the operator named `operator`, called with its inputs and the attributes that the layer was made with.

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

    def __init_subclass__(cls, operator: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if operator:
            cls.operator = operator

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

    def forward(self, *inputs: Tensor) -> Any:
        return getattr(F, self.operator)(
            *inputs, **{name: getattr(self, name) for name in self._operator_attributes}
        )

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self._operator_attributes)


class ReLU(OperatorLayer, operator="relu"):
    """max(x, 0). See weft.functional.relu.

    >>> import weft as wf
    >>> ReLU()(wf.tensor([-1., 2.]))
    tensor([0., 2.], dtype=float32, device=cpu:0)
    """


class ReLU6(OperatorLayer, operator="relu6"):
    """min(max(x, 0), 6). See weft.functional.relu6."""


class LeakyReLU(OperatorLayer, operator="leaky_relu"):
    """x where it is positive, else negative_slope x. See weft.functional.leaky_relu."""


class ELU(OperatorLayer, operator="elu"):
    """x where it is positive, else alpha (exp(x) - 1). See weft.functional.elu."""


class SELU(OperatorLayer, operator="selu"):
    """A scaled ELU that keeps mean and variance. See weft.functional.selu."""


class GELU(OperatorLayer, operator="gelu"):
    """x times the normal distribution's function; approximate="tanh": by tanh. See weft.functional.gelu."""


class SiLU(OperatorLayer, operator="silu"):
    """x sigmoid(x), also called swish. See weft.functional.silu."""


class Mish(OperatorLayer, operator="mish"):
    """x tanh(log(1 + exp(x))). See weft.functional.mish."""


class Sigmoid(OperatorLayer, operator="sigmoid"):
    """1 / (1 + exp(-x)). See weft.functional.sigmoid."""


class Tanh(OperatorLayer, operator="tanh"):
    """The hyperbolic tangent. See weft.functional.tanh."""


class Softplus(OperatorLayer, operator="softplus"):
    """log(1 + exp(beta x)) / beta. See weft.functional.softplus."""


class HardSigmoid(OperatorLayer, operator="hard_sigmoid"):
    """A sigmoid of three straight pieces. See weft.functional.hard_sigmoid."""


class HardSwish(OperatorLayer, operator="hard_swish"):
    """x times its hard sigmoid. See weft.functional.hard_swish."""


class Softmax(OperatorLayer, operator="softmax"):
    """exp(x) / sum(exp(x)) along axis, the last by default. See weft.functional.softmax."""


class LogSoftmax(OperatorLayer, operator="log_softmax"):
    """The logarithm of the softmax along axis, the last by default. See weft.functional.log_softmax."""


class CELU(OperatorLayer, operator="celu"):
    """x where it is positive, else alpha (exp(x / alpha) - 1). See weft.functional.celu."""


class GLU(OperatorLayer, operator="glu"):
    """One half of an axis times the sigmoid of the other. See weft.functional.glu."""


class Hardshrink(OperatorLayer, operator="hardshrink"):
    """x where |x| > lambd, else 0. See weft.functional.hardshrink."""


class Hardtanh(OperatorLayer, operator="hardtanh"):
    """x within min_val ... max_val. See weft.functional.hardtanh."""


class LocalResponseNorm(OperatorLayer, operator="local_response_norm"):
    """x divided by a power of the sum of squares of neighbouring channels. See weft.functional.local_response_norm."""


class LogSigmoid(OperatorLayer, operator="log_sigmoid"):
    """The logarithm of the sigmoid. See weft.functional.log_sigmoid."""


class Softmin(OperatorLayer, operator="softmin"):
    """The softmax of -x along axis, the last by default. See weft.functional.softmin."""


class Softshrink(OperatorLayer, operator="softshrink"):
    """x moved towards 0 by lambd, 0 within. See weft.functional.softshrink."""


class Softsign(OperatorLayer, operator="softsign"):
    """x / (1 + |x|). See weft.functional.softsign."""


class Tanhshrink(OperatorLayer, operator="tanhshrink"):
    """x - tanh(x). See weft.functional.tanhshrink."""


class Threshold(OperatorLayer, operator="threshold"):
    """x where it is above threshold, else value. See weft.functional.threshold."""


class RReLU(Module):
    """x where it is positive, else a x; a: from [lower, upper), drawn in training. See weft.functional.rrelu."""

    repr_attributes = ("lower", "upper")

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3) -> None:
        if lower > upper:
            raise ValueError(f"RReLU: lower must be at most upper, got {lower} and {upper}")
        self.lower, self.upper = lower, upper

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = F.rrelu(x, self.lower, self.upper, training=self.training)
        return y


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
