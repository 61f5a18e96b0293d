"""Updates of parameters: one operator for any number of tensors, which it writes in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from weft.base.errors import DTypeError, ShapeError
from weft.expr import scalar as e
from weft.ops.kernels import Loop, Several, pointwise_loop, reducible
from weft.ops.op import Op, Runtime, op
from weft.ops.oracle import np
from weft.ops.samples import Sample, arrays
from weft.ops.types import TensorType

Number = Any  # a Scalar in kernels, an array or a float in references


def sqrt(x: Number) -> Number:
    return e.call("sqrt", x) if isinstance(x, e.Scalar) else np.sqrt(x)


def power(x: Number, y: Number) -> Number:
    return e.call("pow", x, y) if isinstance(x, e.Scalar) or isinstance(y, e.Scalar) else x**y


class Update(Op):
    """Base. tensors: all parameters, then all gradients, then for each further name of `roles` all of its tensors.

    Outputs, the new content of what is written: all parameters, then for each further role but the gradients all of its
    tensors. A class gives rule(): the new values of one element. All is computed in float32, or in float64 if a tensor
    is of that type. Each tensor may have another shape; those of one parameter have the same.
    """

    family: ClassVar[str] = "optimizer"
    public: ClassVar[bool] = False
    method: ClassVar[bool] = False
    outputs = ("*y",)

    def roles(self) -> tuple[str, ...]:
        """What there is of each parameter: "parameter", "gradient", then the optimizer's state."""
        raise NotImplementedError

    def rule(self, numbers: dict[str, Number], *x: Number) -> Sequence[Number]:
        """New values of all roles but the gradient, from those of all; numbers: the Runtime attributes."""
        raise NotImplementedError

    def groups(self, count: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """For each parameter: the numbers of its inputs and of its outputs."""
        parameters = count // len(self.roles())
        return [
            (
                tuple(role * parameters + k for role in range(len(self.roles()))),
                tuple(role * parameters + k for role in range(len(self.roles()) - 1)),
            )
            for k in range(parameters)
        ]

    def written(self, count: int) -> dict[int, int]:
        return {
            i: o
            for inputs, outputs in self.groups(count)
            for i, o in zip((inputs[0], *inputs[2:]), outputs, strict=True)
        }

    def infer(self, *tensors: TensorType) -> tuple[TensorType, ...]:
        if len(tensors) % len(self.roles()):
            roles = ", ".join(self.roles())
            raise self.fail(ValueError, f"{len(tensors)} tensors are not as many of each: {roles}")
        result: dict[int, TensorType] = {}
        for inputs, outputs in self.groups(len(tensors)):
            named = {role: tensors[k] for role, k in zip(self.roles(), inputs, strict=True)}
            if any(t.dtype.kind != "float" for t in named.values()):
                raise self.fail(DTypeError, "takes floating-point types", **named)
            if any(t.shape != tensors[inputs[0]].shape for t in named.values()):
                raise self.fail(ShapeError, "shapes differ", **named)
            for k, output in zip((inputs[0], *inputs[2:]), outputs, strict=True):
                result[output] = tensors[k].like()
        return tuple(result[k] for k in sorted(result))

    def kernels(self, *tensors: TensorType) -> Iterator[Several]:  # type: ignore[override]
        loops: dict[tuple[str, ...], Loop] = {}
        parts = []
        for inputs, outputs in self.groups(len(tensors)):
            types = [tensors[k] for k in inputs]
            dtypes = tuple(t.dtype.name for t in types)
            if dtypes not in loops:
                loops[dtypes] = self.loop(types)
            parts.append((loops[dtypes], inputs, outputs))
        yield Several(tuple(parts))

    def loop(self, types: Sequence[TensorType]) -> Loop:
        """One for all parameters of these types, whatever their shapes."""
        wide = "float64" if any(t.dtype.name == "float64" for t in types) else "float32"
        given: list[Any] = []
        numbers: dict[str, Any] = {}
        for attribute in self.attributes:
            value = getattr(self, attribute.name)
            if attribute.runtime and isinstance(value, bool | int | float):
                numbers[attribute.name] = e.constant(value, "float64")
            elif attribute.runtime:
                given.append(value)
                numbers[attribute.name] = e.parameter(len(given) - 1, "float64")
        loads = [e.cast(reducible(e.load(k, t.dtype.name)), wide) for k, t in enumerate(types)]
        written = [t for k, t in enumerate(types) if k != 1]
        found = self.rule(_Narrowed(numbers, wide), *loads)
        results = [e.cast(value, t.dtype.name) for value, t in zip(found, written, strict=True)]
        return pointwise_loop(types, results, given)

    def reference(self, *tensors: Any) -> Any:
        numbers = {a.name: getattr(self, a.name) for a in self.attributes if a.runtime}
        made: dict[int, Any] = {}
        for inputs, outputs in self.groups(len(tensors)):
            found = self.rule(_Narrowed(numbers, None), *(tensors[k] for k in inputs))
            made |= dict(zip(outputs, found, strict=True))
        return tuple(made[k] for k in sorted(made))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        shapes = ((2, 3), (4,), (0,))
        count = len(cls().roles())
        for attributes in cls.variants():
            yield Sample(
                *(arrays(s, low=0.1) for _ in range(count) for s in shapes), gradient=False, **attributes
            )

    @classmethod
    def variants(cls) -> Iterator[dict[str, Any]]:
        """Attributes to be tested."""
        yield {}

    @classmethod
    def errors(cls) -> Iterator[Any]:
        x = arrays((2,))
        count = len(cls().roles())
        yield ShapeError, "shapes differ", Sample(x, arrays((3,)), *(x,) * (count - 2))
        if count > 1:
            yield ValueError, "not as many of each", Sample(*(x,) * (count + 1))


class _Narrowed(dict[str, Any]):
    """Numbers in float64; narrow() brings what was computed of them to the elements' type, once for all elements."""

    def __init__(self, numbers: dict[str, Any], wide: str | None) -> None:
        super().__init__(numbers)
        self.wide = wide

    def narrow(self, value: Number) -> Number:
        return e.cast(value, self.wide) if self.wide and isinstance(value, e.Scalar) else value


@op
class SgdUpdate(Update):
    """g += weight_decay p; m = momentum m + (1 - dampening) g; p -= lr m, or with nesterov lr (g + momentum m).

    tensors: parameters, gradients, and if with_momentum momenta, zeros before the first step; without them p -= lr g.
    Source: Robbins, Monro 1951; Polyak 1964; Nesterov 1983 in the form of Sutskever et al. 2013.
    """

    lr: Runtime[float] = 0.01
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

    @classmethod
    def variants(cls) -> Iterator[dict[str, Any]]:
        yield {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
        yield {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "nesterov": True}


@op
class AdamUpdate(Update):
    """m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; p -= lr m' / (sqrt(v') + eps).

    m' = m / (1 - beta1^step), v' = v / (1 - beta2^step); step: 1 at first. tensors: parameters, gradients, m, v, these
    zeros before the first step. weight_decay: added to g times p, or if decoupled (AdamW) p is first made smaller by
    the factor 1 - lr weight_decay.
    Source: Kingma, Ba 2015, Adam; Loshchilov, Hutter 2019, Decoupled weight decay regularization.
    """

    lr: Runtime[float] = 0.001
    beta1: Runtime[float] = 0.9
    beta2: Runtime[float] = 0.999
    eps: Runtime[float] = 1e-8
    weight_decay: Runtime[float] = 0.0
    step: Runtime[float] = 1.0
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

    @classmethod
    def variants(cls) -> Iterator[dict[str, Any]]:
        yield {"lr": 0.1, "weight_decay": 0.01, "step": 3}
        yield {"lr": 0.1, "weight_decay": 0.01, "decoupled": True}


@op
class RmspropUpdate(Update):
    """v = alpha v + (1 - alpha) g^2; m = momentum m + g / (sqrt(v) + eps); p -= lr m. g += weight_decay p before.

    tensors: parameters, gradients, v, m, these zeros before the first step.
    Source: Tieleman, Hinton 2012, Lecture 6.5 of Neural networks for machine learning.
    """

    lr: Runtime[float] = 0.01
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

    tensors: parameters, gradients, v, zeros before the first step.
    Source: Duchi, Hazan, Singer 2011, Adaptive subgradient methods.
    """

    lr: Runtime[float] = 0.01
    eps: Runtime[float] = 1e-10
    weight_decay: Runtime[float] = 0.0

    def roles(self) -> tuple[str, ...]:
        return "parameter", "gradient", "v"

    def rule(self, numbers: Any, *x: Number) -> Sequence[Number]:
        p, g, v = x
        g = g + numbers.narrow(numbers["weight_decay"]) * p
        v = v + g * g
        return p - numbers.narrow(numbers["lr"]) * g / (sqrt(v) + numbers.narrow(numbers["eps"])), v


__all__ = ["AdagradUpdate", "AdamUpdate", "RmspropUpdate", "SgdUpdate", "Update"]
