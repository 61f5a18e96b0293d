"""Updates of parameters: one operator for any number of tensors, which it writes in place."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from weft.base.dtype import bool_
from weft.base.errors import DTypeError, ShapeError
from weft.base.exact import exact
from weft.base.table import Table
from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops import registry
from weft.ops.kernels import Loop, Several, pointwise_loop, to_accumulation
from weft.ops.op import Op, Runtime, op
from weft.ops.types import TensorType

Number = Any  # a Scalar in kernels, an array or a float in references


def sqrt(x: Number) -> Number:
    return e.call("sqrt", x) if isinstance(x, e.Scalar) else x**0.5


def power(x: Number, y: Number) -> Number:
    return e.call("pow", x, y) if isinstance(x, e.Scalar) or isinstance(y, e.Scalar) else x**y


def where(condition: Number, x: Number, y: Number) -> Number:
    if isinstance(condition, e.Scalar):
        return e.where(condition, x, y)
    import numpy as np

    return np.where(condition, x, y)


def larger(x: Number, y: Number) -> Number:
    return where(x > y, x, y)


def smaller(x: Number, y: Number) -> Number:
    return where(x < y, x, y)


def magnitude(x: Number) -> Number:
    return larger(x, -x)


def sign(x: Number) -> Number:
    """-1, 0 or 1."""
    return where(x > 0, x * 0 + 1, where(x < 0, x * 0 - 1, x * 0))


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
    tensors. A class gives formula(): the new values of one element. All is computed in float32, or in float64 if a
    tensor is of that type. Each tensor may have another shape; those of one parameter have the same.
    """

    scalars: ClassVar[tuple[str, ...]] = ("lr",)

    maximize: bool = False  # go up instead of down

    def roles(self) -> tuple[str, ...]:
        """What there is of each parameter: "parameter", "gradient", then the optimizer's state."""
        raise NotImplementedError

    def formula(self, numbers: Any, *x: Number) -> Sequence[Number]:
        """New values of all roles but the gradient, from those of all; numbers: scalars and Runtime attributes."""
        raise NotImplementedError

    def new_values(self, numbers: Any, p: Number, g: Number, *state: Number) -> Sequence[Number]:
        """The formula's, of the gradient that goes down."""
        return self.formula(numbers, p, -g if self.maximize else g, *state)

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
            types = operands_by_role.values()
            if [t for t in types if not t.dtype.is_floating or t.weak]:
                raise self.fail(DTypeError, "takes floating-point types", **operands_by_role)
            if [t for t in types if t.shape != operands[inputs[0]].shape]:
                raise self.fail(ShapeError, "shapes differ", **operands_by_role)
            for k, output in zip((inputs[0], *inputs[2:]), outputs, strict=True):
                result[output] = operands[k].like()
        return tuple([result[k] for k in sorted(result)])

    def kernels(self, *operands: TensorType) -> Iterator[Several]:
        loops: dict[tuple[str, ...], Loop] = {}
        parts = []
        shared = tuple(range(len(self.scalars)))
        for inputs, outputs in self.groups(len(operands)):
            types = [operands[k] for k in inputs]
            dtypes = tuple([t.dtype.name for t in types])
            if dtypes not in loops:
                loops[dtypes] = self.loop(operands[: len(shared)], types)
            parts.append((loops[dtypes], (*shared, *inputs), outputs))
        yield Several(tuple(parts))

    def loop(self, scalars: Sequence[TensorType], types: Sequence[TensorType]) -> Loop:
        """One for all parameters of these types, whatever their shapes; the formula is written down once."""
        parameters: list[Any] = []
        settings: list[Any] = []
        for attribute in self.attributes:
            value = getattr(self, attribute.name)
            is_parameter = attribute.runtime and not isinstance(value, bool | int | float)
            (parameters if is_parameter else settings).append(value)
            settings.append(is_parameter)
        kinds = tuple([(t.dtype.name, t.weak) for t in (*scalars, *types)])
        key = (type(self), exact(tuple(settings)), kinds)
        results = _formulas.get(key, lambda: self._results(scalars, types))
        return pointwise_loop([*scalars, *types], results, parameters)

    def _results(self, scalars: Sequence[TensorType], types: Sequence[TensorType]) -> list[e.Scalar]:
        wide = "float64" if any(t.dtype.name == "float64" for t in types) else "float32"
        numbers: dict[str, Any] = {}
        parameters = itertools.count()
        for attribute in self.attributes:
            value = getattr(self, attribute.name)
            if attribute.runtime:
                is_number = isinstance(value, bool | int | float)
                numbers[attribute.name] = (
                    e.constant(value, "float64") if is_number else e.parameter(next(parameters), "float64")
                )
        for k, (name, t) in enumerate(zip(self.scalars, scalars, strict=True)):
            numbers[name] = e.load(k, "float64") if t.weak else e.cast(e.load(k, t.dtype.name), "float64")
        first = len(scalars)
        loads = [e.cast(to_accumulation(e.load(first + k, t.dtype.name)), wide) for k, t in enumerate(types)]
        written_types = [t for k, t in enumerate(types) if k != 1]
        new_values = self.new_values(_Narrowed(numbers, wide), *loads)
        return [e.cast(value, t.dtype.name) for value, t in zip(new_values, written_types, strict=True)]


_formulas: Table[list[e.Scalar]] = Table(512)
registry.clear_when_made_again(_formulas.clear)


class _Narrowed(dict[str, Any]):
    """Numbers in float64; narrow() brings what was computed of them to the elements' type, once for all elements."""

    def __init__(self, numbers: dict[str, Any], wide: str | None) -> None:
        super().__init__(numbers)
        self.wide = wide

    def narrow(self, value: Number) -> Number:
        return e.cast(value, self.wide) if self.wide and isinstance(value, e.Scalar) else value


@op
class CountUpdate(
    Op,
    family="optimizer",
    public=False,
    rule="step[]: int64, witness: fixed float -> y[]: step",
    writes={"step": "y"},
):
    """step + 1, written to step, once there is a gradient, the witness: an update that is left out is not counted.

    step: int64[]; witness: float[...], not empty.
    """

    def kernels(self, step: TensorType, witness: TensorType) -> Iterator[Loop]:
        if witness.shape:
            return
        yield pointwise_loop([step, witness], [e.load(0, "int64") + one_of(1, witness, "int64")], [])

    def decompose(self, step: Any, witness: Any) -> Any:
        return F.count_update(step, first_of(witness))


def one_of(operand: int, witness: TensorType, dtype: str) -> e.Scalar:
    """1, read from the witness, whatever it holds."""
    element = to_accumulation(e.load(operand, witness.dtype.name))
    return e.cast(element == element, dtype) + e.cast(element != element, dtype)


def first_of(witness: Any) -> Any:
    """Its first element, 0-d."""
    return F.basic_index(witness, items=(0,) * witness.ndim)


@op
class NadamProductUpdate(
    Op,
    family="optimizer",
    public=False,
    rule="product[]: float64, step[]: int64, witness: fixed float -> y[]: product",
    writes={"product": "y"},
):
    """product * mu, written to product, once there is a gradient, the witness; mu is NadamUpdate's of this step.

    product: float64[], 1 before the first step; step: int64[]; witness: float[...], not empty.
    """

    beta1: Runtime[float] = 0.9
    momentum_decay: Runtime[float] = 0.004

    def kernels(self, product: TensorType, step: TensorType, witness: TensorType) -> Iterator[Loop]:
        if witness.shape:
            return
        mu = nadam_momentum(
            e.parameter(0, "float64"), e.parameter(1, "float64"), e.cast(e.load(1, "int64"), "float64")
        )
        value = e.load(0, "float64") * mu * one_of(2, witness, "float64")
        yield pointwise_loop([product, step, witness], [value], [self.beta1, self.momentum_decay])

    def decompose(self, product: Any, step: Any, witness: Any) -> Any:
        settings = {"beta1": self.beta1, "momentum_decay": self.momentum_decay}
        return F.nadam_product_update(product, step, first_of(witness), **settings)


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

    def formula(self, numbers: Any, *x: Number) -> Sequence[Number]:
        p, g = x[:2]
        lr, momentum = numbers.narrow(numbers["lr"]), numbers.narrow(numbers["momentum"])
        g = g + numbers.narrow(numbers["weight_decay"]) * p
        if not self.with_momentum:
            return (p - lr * g,)
        m = momentum * x[2] + numbers.narrow(1 - numbers["dampening"]) * g
        return p - lr * (g + momentum * m if self.nesterov else m), m


class AdamLike(Update, scalars=("lr", "step")):
    """Base of what has Adam's moments and its weight decay."""

    beta1: Runtime[float] = 0.9
    beta2: Runtime[float] = 0.999
    eps: Runtime[float] = 1e-8
    weight_decay: Runtime[float] = 0.0
    decoupled: bool = False

    def roles(self) -> tuple[str, ...]:
        return "parameter", "gradient", "m", "v"

    def decayed(self, numbers: Any, p: Number, g: Number) -> tuple[Number, Number]:
        """The parameter and the gradient after weight decay."""
        decay, narrow = numbers["weight_decay"], numbers.narrow
        return (p * narrow(1 - numbers["lr"] * decay), g) if self.decoupled else (p, g + narrow(decay) * p)

    def moments(self, numbers: Any, g: Number, m: Number, v: Number) -> tuple[Number, Number]:
        """The next m and v."""
        beta1, beta2, narrow = numbers["beta1"], numbers["beta2"], numbers.narrow
        return narrow(beta1) * m + narrow(1 - beta1) * g, narrow(beta2) * v + narrow(1 - beta2) * (g * g)


@op
class AdamUpdate(AdamLike):
    """m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; p -= lr m' / (sqrt(v') + eps).

    m' = m / (1 - beta1^step), v' = v / (1 - beta2^step); step: 1 at first. operands: lr, step, parameters, gradients,
    m, v, these zeros before the first step. weight_decay: added to g times p, or if decoupled (AdamW) p is first made
    smaller by the factor 1 - lr weight_decay. amsgrad: v_max, one more operand, the greatest v until now, divides.
    Source: Kingma, Ba 2015, Adam; Loshchilov, Hutter 2019, Decoupled weight decay regularization; Reddi, Kale, Kumar
    2018, On the convergence of Adam and beyond.
    """

    amsgrad: bool = False

    def roles(self) -> tuple[str, ...]:
        return (*super().roles(), "v_max") if self.amsgrad else super().roles()

    def formula(self, numbers: Any, *x: Number) -> Sequence[Number]:
        p, g = self.decayed(numbers, *x[:2])
        m, v = self.moments(numbers, g, *x[2:4])
        step, narrow = numbers["step"], numbers.narrow
        rate = narrow(numbers["lr"] / (1 - power(numbers["beta1"], step)))
        scale = narrow(1 / sqrt(1 - power(numbers["beta2"], step)))
        divisor = larger(x[4], v) if self.amsgrad else v
        p = p - rate * m / (sqrt(divisor) * scale + narrow(numbers["eps"]))
        return (p, m, v, divisor) if self.amsgrad else (p, m, v)


@op
class RmspropUpdate(Update):
    """v = alpha v + (1 - alpha) g^2; m = momentum m + g / (sqrt(v) + eps); p -= lr m. g += weight_decay p before.

    operands: lr, parameters, gradients, v, m, these zeros before the first step. centered: with a = alpha a +
    (1 - alpha) g, one more operand, v - a^2 stands in v's place, the variance of the gradient.
    Source: Tieleman, Hinton 2012, Lecture 6.5 of Neural networks for machine learning; Graves 2013, Generating
    sequences with recurrent neural networks, for the centered form.
    """

    alpha: Runtime[float] = 0.99
    eps: Runtime[float] = 1e-8
    momentum: Runtime[float] = 0.0
    weight_decay: Runtime[float] = 0.0
    centered: bool = False

    def roles(self) -> tuple[str, ...]:
        return ("parameter", "gradient", "v", "m", "a")[: 5 if self.centered else 4]

    def formula(self, numbers: Any, *x: Number) -> Sequence[Number]:
        p, g, v, m = x[:4]
        narrow = numbers.narrow
        alpha, rest = narrow(numbers["alpha"]), narrow(1 - numbers["alpha"])
        g = g + narrow(numbers["weight_decay"]) * p
        v = alpha * v + rest * (g * g)
        means = (alpha * x[4] + rest * g,) if self.centered else ()
        square = larger(v - means[0] * means[0], 0 * v) if means else v  # rounding makes negative ones
        m = narrow(numbers["momentum"]) * m + g / (sqrt(square) + narrow(numbers["eps"]))
        return p - narrow(numbers["lr"]) * m, v, m, *means


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

    def formula(self, numbers: Any, *x: Number) -> Sequence[Number]:
        p, g, v = x
        g = g + numbers.narrow(numbers["weight_decay"]) * p
        v = v + g * g
        return p - numbers.narrow(numbers["lr"]) * g / (sqrt(v) + numbers.narrow(numbers["eps"])), v


@op
class AdadeltaUpdate(Update):
    """v = rho v + (1 - rho) g^2; d = sqrt(u + eps) / sqrt(v + eps) g; u = rho u + (1 - rho) d^2; p -= lr d.

    operands: lr, parameters, gradients, v, u, these zeros before the first step. g += weight_decay p before.
    Source: Zeiler 2012, ADADELTA: An adaptive learning rate method.
    """

    rho: Runtime[float] = 0.9
    eps: Runtime[float] = 1e-6
    weight_decay: Runtime[float] = 0.0

    def roles(self) -> tuple[str, ...]:
        return "parameter", "gradient", "v", "u"

    def formula(self, numbers: Any, *x: Number) -> Sequence[Number]:
        p, g, v, u = x
        narrow = numbers.narrow
        rho, rest, eps = narrow(numbers["rho"]), narrow(1 - numbers["rho"]), narrow(numbers["eps"])
        g = g + narrow(numbers["weight_decay"]) * p
        v = rho * v + rest * (g * g)
        d = sqrt(u + eps) / sqrt(v + eps) * g
        return p - narrow(numbers["lr"]) * d, v, rho * u + rest * (d * d)


@op
class AdamaxUpdate(AdamLike):
    """m = beta1 m + (1 - beta1) g; u = max(beta2 u, |g| + eps); p -= lr / (1 - beta1^step) m / u.

    operands: lr, step, parameters, gradients, m, u, these zeros before the first step. Weight decay as Adam's.
    Source: Kingma, Ba 2015, Adam, section 7.1.
    """

    def formula(self, numbers: Any, *x: Number) -> Sequence[Number]:
        p, g, m, u = x
        narrow = numbers.narrow
        p, g = self.decayed(numbers, p, g)
        m, _ = self.moments(numbers, g, m, u)
        u = larger(narrow(numbers["beta2"]) * u, magnitude(g) + narrow(numbers["eps"]))
        return p - narrow(numbers["lr"] / (1 - power(numbers["beta1"], numbers["step"]))) * m / u, m, u


def nadam_momentum(beta1: Number, decay: Number, step: Number) -> Number:
    """The momentum of a step, which grows to beta1."""
    return beta1 * (1 - 0.5 * power(0.96, step * decay))


@op
class NadamUpdate(AdamLike, scalars=("lr", "step", "product")):
    """p -= lr (mu' m / (1 - product mu') + (1 - mu) g / (1 - product)) / (sqrt(v / (1 - beta2^step)) + eps).

    m, v: Adam's. mu = beta1 (1 - 0.96^(step momentum_decay) / 2), mu' that of the next step; product: of all mu until
    this step. operands: lr, step, product, parameters, gradients, m, v, these zeros before the first step.
    Source: Dozat 2016, Incorporating Nesterov momentum into Adam.
    """

    momentum_decay: Runtime[float] = 0.004

    def formula(self, numbers: Any, *x: Number) -> Sequence[Number]:
        p, g = self.decayed(numbers, *x[:2])
        m, v = self.moments(numbers, g, *x[2:])
        lr, step, product, narrow = numbers["lr"], numbers["step"], numbers["product"], numbers.narrow
        mu, mu_next = (nadam_momentum(numbers["beta1"], numbers["momentum_decay"], step + k) for k in (0, 1))
        change = (
            narrow(lr * mu_next / (1 - product * mu_next)) * m + narrow(lr * (1 - mu) / (1 - product)) * g
        )
        scale = narrow(1 / sqrt(1 - power(numbers["beta2"], step)))
        return p - change / (sqrt(v) * scale + narrow(numbers["eps"])), m, v


@op
class RadamUpdate(AdamLike):
    """Adam whose step is divided by sqrt(v) only once v is worth it: rho = rho_max - 2 t beta2^t / (1 - beta2^t) > 5.

    rho_max = 2 / (1 - beta2) - 1; p -= lr r m' / (sqrt(v') + eps), with
    r^2 = (rho - 4) (rho - 2) rho_max / ((rho_max - 4) (rho_max - 2) rho); before that p -= lr m'.
    operands: lr, step t, parameters, gradients, m, v, these zeros before the first step. Weight decay as Adam's.
    Source: Liu et al. 2020, On the variance of the adaptive learning rate and beyond.
    """

    def formula(self, numbers: Any, *x: Number) -> Sequence[Number]:
        p, g = self.decayed(numbers, *x[:2])
        m, v = self.moments(numbers, g, *x[2:])
        step, beta2, narrow = numbers["step"], numbers["beta2"], numbers.narrow
        correction = 1 - power(beta2, step)
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * power(beta2, step) / correction
        is_adaptive = length > 5
        safe = where(is_adaptive, length, 5 + 0 * length)
        rectified = sqrt((safe - 4) * (safe - 2) * longest / ((longest - 4) * (longest - 2) * safe))
        rate = numbers["lr"] / (1 - power(numbers["beta1"], step))
        adaptive = (
            narrow(rate * rectified) * m / (sqrt(v) * narrow(1 / sqrt(correction)) + narrow(numbers["eps"]))
        )
        return p - where(is_adaptive, adaptive, narrow(rate) * m), m, v


@op
class LionUpdate(Update):
    """p -= lr sign(beta1 m + (1 - beta1) g); m = beta2 m + (1 - beta2) g; before, p *= 1 - lr weight_decay.

    operands: lr, parameters, gradients, m, zeros before the first step.
    Source: Chen et al. 2023, Symbolic discovery of optimization algorithms.
    """

    beta1: Runtime[float] = 0.9
    beta2: Runtime[float] = 0.99
    weight_decay: Runtime[float] = 0.0

    def roles(self) -> tuple[str, ...]:
        return "parameter", "gradient", "m"

    def formula(self, numbers: Any, *x: Number) -> Sequence[Number]:
        p, g, m = x
        narrow, lr, beta1, beta2 = numbers.narrow, numbers["lr"], numbers["beta1"], numbers["beta2"]
        p = p * narrow(1 - lr * numbers["weight_decay"])
        p = p - narrow(lr) * sign(narrow(beta1) * m + narrow(1 - beta1) * g)
        return p, narrow(beta2) * m + narrow(1 - beta2) * g


@op
class SignumUpdate(Update):
    """m = momentum m + (1 - momentum) g; p -= lr sign(m); before, g += weight_decay p, or if decoupled p -= lr
    weight_decay p.

    operands: lr, parameters, gradients, m, zeros before the first step. With momentum 0 it is sign descent.
    Source: Bernstein et al. 2018, signSGD: Compressed optimisation for non-convex problems.
    """

    momentum: Runtime[float] = 0.9
    weight_decay: Runtime[float] = 0.0
    decoupled: bool = False

    def roles(self) -> tuple[str, ...]:
        return "parameter", "gradient", "m"

    def formula(self, numbers: Any, *x: Number) -> Sequence[Number]:
        p, g, m = x
        narrow, lr, decay = numbers.narrow, numbers["lr"], numbers["weight_decay"]
        if not self.decoupled:
            g = g + narrow(decay) * p
        m = narrow(numbers["momentum"]) * m + narrow(1 - numbers["momentum"]) * g
        if self.decoupled:
            p = p * narrow(1 - lr * decay)
        return p - narrow(lr) * sign(m), m


@op
class AsgdUpdate(Update, scalars=("lr", "step")):
    """p = (1 - decay eta) p - eta g; mean += (p - mean) / max(1, step - 1 - t0).

    eta = lr / (1 + decay lr (step - 1))^alpha. operands: lr, step, parameters, gradients, mean, zeros before the
    first step; in the first step mean becomes p. g += weight_decay p before.
    Source: Polyak, Juditsky 1992, Acceleration of stochastic approximation by averaging.
    """

    decay: Runtime[float] = 1e-4
    alpha: Runtime[float] = 0.75
    t0: Runtime[float] = 1e6
    weight_decay: Runtime[float] = 0.0

    def roles(self) -> tuple[str, ...]:
        return "parameter", "gradient", "mean"

    def formula(self, numbers: Any, *x: Number) -> Sequence[Number]:
        p, g, mean = x
        narrow, lr, decay, passed = numbers.narrow, numbers["lr"], numbers["decay"], numbers["step"] - 1
        eta = lr / power(1 + decay * lr * passed, numbers["alpha"])
        g = g + narrow(numbers["weight_decay"]) * p
        p = p * narrow(1 - decay * eta) - narrow(eta) * g
        count = larger(passed - numbers["t0"], 1 + 0 * passed)
        return p, mean + (p - mean) * narrow(1 / count)


@op
class RpropUpdate(Update, scalars=("lr", "step")):
    """p -= sign(g) s, where s, lr at first, grows by `up` while g keeps its sign, and shrinks by `down` where it turns.

    Where it turns, g counts as 0 in this step and in the next one's comparison. s stays within least and greatest.
    operands: lr, step, parameters, gradients, the last g, s, these zeros before the first step.
    Source: Riedmiller, Braun 1993, A direct adaptive method for faster backpropagation learning.
    """

    down: Runtime[float] = 0.5
    up: Runtime[float] = 1.2
    least: Runtime[float] = 1e-6
    greatest: Runtime[float] = 50.0

    def roles(self) -> tuple[str, ...]:
        return "parameter", "gradient", "last", "size"

    def formula(self, numbers: Any, *x: Number) -> Sequence[Number]:
        p, g, last, size = x
        narrow = numbers.narrow
        size = where(numbers["step"] < 2, narrow(numbers["lr"]) + 0 * size, size)
        same = sign(g) * sign(last)
        one = 0 * size + 1
        factor = where(
            same > 0, narrow(numbers["up"]) * one, where(same < 0, narrow(numbers["down"]) * one, one)
        )
        size = smaller(
            larger(size * factor, narrow(numbers["least"]) * one), narrow(numbers["greatest"]) * one
        )
        g = where(same < 0, 0 * size, g)
        return p - sign(g) * size, g, size


@op
class FtrlUpdate(Update):
    """z += g - (sqrt(n + g^2) - sqrt(n)) / lr p; p = -sign(z) max(|z| - l1, 0) / ((beta + sqrt(n')) / lr + l2).

    n' = n + g^2, the next n. operands: lr, parameters, gradients, z, n, these zeros before the first step.
    Source: McMahan et al. 2013, Ad click prediction: a view from the trenches.
    """

    l1: Runtime[float] = 0.01
    l2: Runtime[float] = 0.0
    beta: Runtime[float] = 1.0

    def roles(self) -> tuple[str, ...]:
        return "parameter", "gradient", "z", "n"

    def formula(self, numbers: Any, *x: Number) -> Sequence[Number]:
        p, g, z, n = x
        narrow = numbers.narrow
        per_rate = narrow(1 / numbers["lr"])
        root = sqrt(n + g * g)
        z = z + g - (root - sqrt(n)) * per_rate * p
        excess = larger(magnitude(z) - narrow(numbers["l1"]), 0 * z)
        p = (0 * excess - sign(z) * excess) / (
            (narrow(numbers["beta"]) + root) * per_rate + narrow(numbers["l2"])
        )
        return p, z, n + g * g


@op
class FtmlUpdate(Update, scalars=("lr", "step")):
    """p = -z / d', where z = beta1 z + (1 - beta1) g - (d' - beta1 d) p.

    d' = (1 - beta1^t) / lr (sqrt(v / (1 - beta2^t)) + eps), the next d;
    v = beta2 v + (1 - beta2) g^2; g += weight_decay p before. operands: lr, step t, parameters, gradients, d, v, z,
    these zeros before the first step.
    Source: Zheng, Kwok 2017, Follow the moving leader in deep learning.
    """

    beta1: Runtime[float] = 0.6
    beta2: Runtime[float] = 0.999
    eps: Runtime[float] = 1e-8
    weight_decay: Runtime[float] = 0.0

    def roles(self) -> tuple[str, ...]:
        return "parameter", "gradient", "d", "v", "z"

    def formula(self, numbers: Any, *x: Number) -> Sequence[Number]:
        p, g, d, v, z = x
        narrow, beta1, beta2, step = numbers.narrow, numbers["beta1"], numbers["beta2"], numbers["step"]
        g = g + narrow(numbers["weight_decay"]) * p
        v = narrow(beta2) * v + narrow(1 - beta2) * (g * g)
        root = sqrt(v) * narrow(1 / sqrt(1 - power(beta2, step))) + narrow(numbers["eps"])
        following = narrow((1 - power(beta1, step)) / numbers["lr"]) * root
        z = narrow(beta1) * z + narrow(1 - beta1) * g - (following - narrow(beta1) * d) * p
        return -z / following, following, v, z


__all__ = [
    "AdadeltaUpdate",
    "AdagradUpdate",
    "AdamUpdate",
    "AdamaxUpdate",
    "AsgdUpdate",
    "CountUpdate",
    "FtmlUpdate",
    "FtrlUpdate",
    "LionUpdate",
    "NadamProductUpdate",
    "NadamUpdate",
    "RadamUpdate",
    "RmspropUpdate",
    "RpropUpdate",
    "SgdUpdate",
    "SignumUpdate",
    "Update",
]
