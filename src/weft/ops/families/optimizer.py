"""Updates of parameters: one operator for any number of tensors, which it writes in place."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from weft.base.dtype import bool_, int64
from weft.base.errors import DTypeError, ShapeError
from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops.kernels import Loop, Several, pointwise_loop, to_accumulation
from weft.ops.op import Op, Runtime, op
from weft.ops.types import TensorType

Number = Any  # a Scalar in kernels, an array or a float in references


def sqrt(x: Number) -> Number:
    return e.call("sqrt", x) if isinstance(x, e.Scalar) else x**0.5


def power(x: Number, y: Number) -> Number:
    return e.call("pow", x, y) if isinstance(x, e.Scalar) or isinstance(y, e.Scalar) else x**y


@functools.cache
def _groups(first: int, roles: int, count: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    parameters = (count - first) // roles
    return [
        (
            tuple(first + role * parameters + k for role in range(roles)),
            tuple(role * parameters + k for role in range(roles - 1)),
        )
        for k in range(parameters)
    ]


class Update(Op, family="optimizer", primitive=True, public=False, outputs=("*y",)):
    """Base. operands: the numbers of `scalars`; then all parameters, all gradients, and for each further name of
    `roles` all of its tensors.

    Scalars are Python numbers, or 0-d tensors on the parameters' device: a tensor's content may change without a new
    call, so a recorded training step can be replayed with another learning rate and the next step's number.

    Outputs, the new content of what is written: all parameters, then for each further role but the gradients all of its
    tensors. A class gives rule(): the new values of one element. All is computed in float32, or in float64 if a tensor
    is of that type. Each tensor may have another shape; those of one parameter have the same.
    """

    scalars: ClassVar[tuple[str, ...]] = ("lr",)

    def roles(self) -> tuple[str, ...]:
        """What there is of each parameter: "parameter", "gradient", then the optimizer's state."""
        raise NotImplementedError

    def rule(self, numbers: dict[str, Number], *x: Number) -> Sequence[Number]:
        """New values of all roles but the gradient, from those of all; numbers: scalars and Runtime attributes."""
        raise NotImplementedError

    def groups(self, count: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """For each parameter: the indices of its inputs and of its outputs."""
        return _groups(len(self.scalars), len(self.roles()), count)

    def writes_by_index(self, count: int) -> dict[int, int]:
        return {
            i: o
            for inputs, outputs in self.groups(count)
            for i, o in zip((inputs[0], *inputs[2:]), outputs, strict=True)
        }

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        first = len(self.scalars)
        if len(operands) < first or (len(operands) - first) % len(self.roles()):
            expected = f"{', '.join(self.scalars)}, then as many of each: {', '.join(self.roles())}"
            raise self.fail(ValueError, f"{len(operands)} operands are not {expected}")
        for name, t in zip(self.scalars, operands, strict=False):
            if t.shape or t.dtype is bool_:
                raise self.fail(ShapeError, f"{name} must be a number or a 0-d tensor", **{name: t})
        result: dict[int, TensorType] = {}
        for inputs, outputs in self.groups(len(operands)):
            operands_by_role = {role: operands[k] for role, k in zip(self.roles(), inputs, strict=True)}
            if any(not t.dtype.is_floating or t.weak for t in operands_by_role.values()):
                raise self.fail(DTypeError, "takes floating-point types", **operands_by_role)
            if any(t.shape != operands[inputs[0]].shape for t in operands_by_role.values()):
                raise self.fail(ShapeError, "shapes differ", **operands_by_role)
            for k, output in zip((inputs[0], *inputs[2:]), outputs, strict=True):
                result[output] = operands[k].like()
        return tuple(result[k] for k in sorted(result))

    def kernels(self, *operands: TensorType) -> Iterator[Several]:
        loops: dict[tuple[str, ...], Loop] = {}
        parts = []
        shared = tuple(range(len(self.scalars)))
        for inputs, outputs in self.groups(len(operands)):
            types = [operands[k] for k in inputs]
            dtypes = tuple(t.dtype.name for t in types)
            if dtypes not in loops:
                loops[dtypes] = self.loop(operands[: len(shared)], types)
            parts.append((loops[dtypes], (*shared, *inputs), outputs))
        yield Several(tuple(parts))

    def loop(self, scalars: Sequence[TensorType], types: Sequence[TensorType]) -> Loop:
        """One for all parameters of these types, whatever their shapes."""
        wide = "float64" if any(t.dtype.name == "float64" for t in types) else "float32"
        parameters: list[Any] = []
        numbers: dict[str, Any] = {}
        for attribute in self.attributes:
            value = getattr(self, attribute.name)
            if attribute.runtime and isinstance(value, bool | int | float):
                numbers[attribute.name] = e.constant(value, "float64")
            elif attribute.runtime:
                parameters.append(value)
                numbers[attribute.name] = e.parameter(len(parameters) - 1, "float64")
        for k, (name, t) in enumerate(zip(self.scalars, scalars, strict=True)):
            numbers[name] = e.load(k, "float64") if t.weak else e.cast(e.load(k, t.dtype.name), "float64")
        first = len(scalars)
        loads = [e.cast(to_accumulation(e.load(first + k, t.dtype.name)), wide) for k, t in enumerate(types)]
        written_types = [t for k, t in enumerate(types) if k != 1]
        new_values = self.rule(_Narrowed(numbers, wide), *loads)
        results = [e.cast(value, t.dtype.name) for value, t in zip(new_values, written_types, strict=True)]
        return pointwise_loop([*scalars, *types], results, parameters)


class _Narrowed(dict[str, Any]):
    """Numbers in float64; narrow() brings what was computed of them to the elements' type, once for all elements."""

    def __init__(self, numbers: dict[str, Any], wide: str | None) -> None:
        super().__init__(numbers)
        self.wide = wide

    def narrow(self, value: Number) -> Number:
        return e.cast(value, self.wide) if self.wide and isinstance(value, e.Scalar) else value


@op
class CountUpdate(Op, family="optimizer", public=False, fixed=("witness",), writes={"step": "y"}):
    """step + 1, written to step, once there is a gradient, the witness: an update that is left out is not counted.

    step: int64[]; witness: float[...], not empty.
    """

    def infer(self, step: TensorType, witness: TensorType) -> TensorType:
        if step.shape:
            raise self.fail(ShapeError, "step must be a 0-d tensor", step=step, witness=witness)
        if step.dtype is not int64 or not witness.dtype.is_floating:
            raise self.fail(DTypeError, "takes a number of steps and a float", step=step, witness=witness)
        return step.like()

    def kernels(self, step: TensorType, witness: TensorType) -> Iterator[Loop]:
        if witness.shape:
            return
        element = to_accumulation(e.load(1, witness.dtype.name))
        either = e.cast(element == element, "int64") + e.cast(element != element, "int64")  # 1, also of NaN
        yield pointwise_loop([step, witness], [e.load(0, "int64") + either], [])

    def decompose(self, step: Any, witness: Any) -> Any:
        return F.count_update(step, F.basic_index(witness, items=(0,) * witness.ndim))


@op
class SgdUpdate(Update):
    """g += weight_decay p; m = momentum m + (1 - dampening) g; p -= lr m, or with nesterov lr (g + momentum m).

    operands: lr, parameters, gradients, and if with_momentum momenta, zeros before the first step; without them
    p -= lr g.
    Source: Robbins, Monro 1951; Polyak 1964; Nesterov 1983 in the form of Sutskever et al. 2013.
    """

    momentum: Runtime[float] = 0.0
    dampening: Runtime[float] = 0.0
    weight_decay: Runtime[float] = 0.0
    with_momentum: bool = True
    nesterov: bool = False

    def roles(self) -> tuple[str, ...]:
        return ("parameter", "gradient", "momentum")[: 3 if self.with_momentum else 2]

    def rule(self, numbers: Any, *x: Number) -> Sequence[Number]:
        p, g = x[:2]
        lr, momentum = numbers.narrow(numbers["lr"]), numbers.narrow(numbers["momentum"])
        g = g + numbers.narrow(numbers["weight_decay"]) * p
        if not self.with_momentum:
            return (p - lr * g,)
        m = momentum * x[2] + numbers.narrow(1 - numbers["dampening"]) * g
        return p - lr * (g + momentum * m if self.nesterov else m), m


@op
class AdamUpdate(Update, scalars=("lr", "step")):
    """m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; p -= lr m' / (sqrt(v') + eps).

    m' = m / (1 - beta1^step), v' = v / (1 - beta2^step); step: 1 at first. operands: lr, step, parameters, gradients,
    m, v, these zeros before the first step. weight_decay: added to g times p, or if decoupled (AdamW) p is first made
    smaller by the factor 1 - lr weight_decay.
    Source: Kingma, Ba 2015, Adam; Loshchilov, Hutter 2019, Decoupled weight decay regularization.
    """

    beta1: Runtime[float] = 0.9
    beta2: Runtime[float] = 0.999
    eps: Runtime[float] = 1e-8
    weight_decay: Runtime[float] = 0.0
    decoupled: bool = False

    def roles(self) -> tuple[str, ...]:
        return "parameter", "gradient", "m", "v"

    def rule(self, numbers: Any, *x: Number) -> Sequence[Number]:
        p, g, m, v = x
        lr, beta1, beta2 = (numbers[name] for name in ("lr", "beta1", "beta2"))
        decay, step, narrow = numbers["weight_decay"], numbers["step"], numbers.narrow
        if self.decoupled:
            p = p * narrow(1 - lr * decay)
        else:
            g = g + narrow(decay) * p
        m = narrow(beta1) * m + narrow(1 - beta1) * g
        v = narrow(beta2) * v + narrow(1 - beta2) * (g * g)
        rate = narrow(lr / (1 - power(beta1, step)))
        scale = narrow(1 / sqrt(1 - power(beta2, step)))
        return p - rate * m / (sqrt(v) * scale + narrow(numbers["eps"])), m, v


@op
class RmspropUpdate(Update):
    """v = alpha v + (1 - alpha) g^2; m = momentum m + g / (sqrt(v) + eps); p -= lr m. g += weight_decay p before.

    operands: lr, parameters, gradients, v, m, these zeros before the first step.
    Source: Tieleman, Hinton 2012, Lecture 6.5 of Neural networks for machine learning.
    """

    alpha: Runtime[float] = 0.99
    eps: Runtime[float] = 1e-8
    momentum: Runtime[float] = 0.0
    weight_decay: Runtime[float] = 0.0

    def roles(self) -> tuple[str, ...]:
        return "parameter", "gradient", "v", "m"

    def rule(self, numbers: Any, *x: Number) -> Sequence[Number]:
        p, g, v, m = x
        narrow = numbers.narrow
        g = g + narrow(numbers["weight_decay"]) * p
        v = narrow(numbers["alpha"]) * v + narrow(1 - numbers["alpha"]) * (g * g)
        m = narrow(numbers["momentum"]) * m + g / (sqrt(v) + narrow(numbers["eps"]))
        return p - narrow(numbers["lr"]) * m, v, m


@op
class AdagradUpdate(Update):
    """v += g^2; p -= lr g / (sqrt(v) + eps). g += weight_decay p before.

    operands: lr, parameters, gradients, v, zeros before the first step.
    Source: Duchi, Hazan, Singer 2011, Adaptive subgradient methods.
    """

    eps: Runtime[float] = 1e-10
    weight_decay: Runtime[float] = 0.0

    def roles(self) -> tuple[str, ...]:
        return "parameter", "gradient", "v"

    def rule(self, numbers: Any, *x: Number) -> Sequence[Number]:
        p, g, v = x
        g = g + numbers.narrow(numbers["weight_decay"]) * p
        v = v + g * g
        return p - numbers.narrow(numbers["lr"]) * g / (sqrt(v) + numbers.narrow(numbers["eps"])), v


__all__ = ["AdagradUpdate", "AdamUpdate", "CountUpdate", "RmspropUpdate", "SgdUpdate", "Update"]
