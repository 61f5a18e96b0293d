"""Optimizers whose update of an element depends on its whole parameter: on norms, rows and columns, or products."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from weft import functional as F
from weft.arrays.creation import zeros
from weft.arrays.standard import finfo
from weft.arrays.tensor import Tensor
from weft.base.errors import ShapeError
from weft.optimizer.declared import Declared, Parameters, option, options
from weft.optimizer.group import Option, ParameterGroup, StepGroup

__all__ = ["LAMB", "LARS", "Adafactor", "Muon"]


class _Whole(Declared):
    """Base: one parameter after the other, by operators on arrays, in float32 or float64."""

    elementwise = False

    def update(self, group: ParameterGroup, step_group: StepGroup, gradients: list[Tensor]) -> None:
        rate = group.rate(step_group.step.device)
        for k, (p, g) in enumerate(zip(step_group.parameters, gradients, strict=True)):
            if p.shape != g.shape:
                raise ShapeError(
                    f"{self._name}: a parameter of shape {p.shape} has a gradient of shape {g.shape}"
                )
            dtype = "float64" if p.dtype == "float64" else "float32"
            wide_g = g.astype(dtype)
            state = {role: tensors[k] for role, tensors in step_group.state.items()}
            wide_p, lr, step = p.astype(dtype), rate.astype(dtype), step_group.step.astype(dtype)
            new = self.updated(group, wide_p, -wide_g if group["maximize"] else wide_g, state, lr, step)
            p[...] = new.astype(p.dtype)

    def updated(
        self,
        group: ParameterGroup,
        p: Tensor,
        g: Tensor,
        state: Mapping[str, Tensor],
        lr: Tensor,
        step: Tensor,
    ) -> Tensor:
        """The parameter after the update; writes its state."""
        raise NotImplementedError


def _norm(x: Tensor) -> Tensor:
    return F.sqrt(F.sum(x * x))


def _root_mean_square(x: Tensor) -> Tensor:
    return _norm(x) / math.sqrt(max(x.size, 1))


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """a / b, or 1 where either is 0."""
    usable = (a > 0) & (b > 0)
    return F.where(usable, a / F.where(usable, b, 1.0), 1.0)


class LAMB(_Whole):
    """Adam for large batches: each parameter's step d has the length of the parameter: p -= lr ||p|| / ||d|| d.

    d = m' / (sqrt(v') + eps) + weight_decay p, with m' and v' as Adam's; the ratio is 1 where a norm is 0. Options: lr,
    betas as beta1 and beta2, eps, weight_decay, maximize.
    Source: You et al. 2020, Large batch optimization for deep learning: Training BERT in 76 minutes.

    >>> import weft as wf
    >>> w = wf.tensor([3., 4.])
    >>> w.grad = wf.tensor([1., -1.])
    >>> _ = LAMB([w], lr=0.1).step()
    >>> w                                                   # moved by a tenth of its length, 5
    tensor([2.646..., 4.353...], dtype=float32, device=cpu:0)
    """

    roles = ("m", "v")
    lr: float = option(0.001)
    betas: tuple[float, float] = options(beta1=Option(0.9, 0.0, 1.0), beta2=Option(0.999, 0.0, 1.0))
    eps: float = option(1e-6)
    weight_decay: float = option(0.0)
    maximize: bool = option(False)

    def updated(
        self,
        group: ParameterGroup,
        p: Tensor,
        g: Tensor,
        state: Mapping[str, Tensor],
        lr: Tensor,
        step: Tensor,
    ) -> Tensor:
        beta1, beta2 = group["beta1"], group["beta2"]
        m, v = state["m"], state["v"]
        m[...] = beta1 * m + (1 - beta1) * g
        v[...] = beta2 * v + (1 - beta2) * g * g
        scale = F.sqrt(v / (1 - beta2**step)) + group["eps"]
        d = m / (1 - beta1**step) / scale + group["weight_decay"] * p
        return p - lr * _ratio(_norm(p), _norm(d)) * d


class LARS(_Whole):
    """SGD with momentum for large batches: the gradient of each parameter is scaled to the parameter's length.

    m = momentum m + lr trust ||p|| / (||g|| + weight_decay ||p|| + eps) (g + weight_decay p); p -= m. The factor of lr
    is 1 where a norm is 0. Options: lr, momentum, trust, eps, weight_decay, maximize.
    Source: You, Gitman, Ginsburg 2017, Large batch training of convolutional networks.

    >>> import weft as wf
    >>> w = wf.tensor([3., 4.])
    >>> w.grad = wf.tensor([0., 10.])
    >>> _ = LARS([w], lr=1.0, trust=0.1).step()
    >>> w                                                   # moved by a tenth of its length
    tensor([3. , 3.5], dtype=float32, device=cpu:0)
    """

    roles = ("m",)
    lr: float = option(0.1)
    momentum: float = option(0.9, high=1.0)
    trust: float = option(0.001)
    eps: float = option(1e-8)
    weight_decay: float = option(0.0)
    maximize: bool = option(False)

    def updated(
        self,
        group: ParameterGroup,
        p: Tensor,
        g: Tensor,
        state: Mapping[str, Tensor],
        lr: Tensor,
        step: Tensor,
    ) -> Tensor:
        decay, m, length, slope = group["weight_decay"], state["m"], _norm(p), _norm(g)
        usable = (length > 0) & (slope > 0)
        local = F.where(usable, group["trust"] * length / (slope + decay * length + group["eps"]), 1.0)
        m[...] = group["momentum"] * m + lr * local * (g + decay * p)
        return p - m


class Adafactor(_Whole):
    """Adam's v in the memory of its rows and columns: of a matrix, v is estimated as row column / mean(row).

    In the t-th update, with b = t^beta2_decay: row and column go by the part b to the means of g^2; u = g / sqrt(v);
    p = p (1 - lr weight_decay) - max(eps2, rms(p)) min(lr, 1 / sqrt(t)) u / max(1, rms(u) / d). Parameters of fewer
    than two dimensions keep v itself. Of more than two, the last two are a matrix. eps: the least sqrt(v), None for the
    type's resolution, and the least rms(p), as options eps1 (0 for None) and eps2.
    Source: Shazeer, Stern 2018, Adafactor: Adaptive learning rates with sublinear memory cost.

    >>> import weft as wf
    >>> w = wf.ones((2, 3))
    >>> opt = Adafactor([w], lr=0.1)
    >>> w.grad = wf.tensor([[1., 2., 3.], [1., 2., 3.]])
    >>> _ = opt.step()
    >>> w
    tensor([[0.9, 0.9, 0.9],
            [0.9, 0.9, 0.9]], dtype=float32, device=cpu:0)
    >>> {name: x.shape for name, x in opt.state_dict()["state"].items()}
    {'0.row': (2, 1), '0.column': (1, 3), '0.step': ()}
    """

    roles = ("row", "column")
    options: ClassVar[Mapping[str, Option]] = {
        "lr": Option(0.01),
        "beta2_decay": Option(-0.8, -math.inf, 0.0),
        "eps1": Option(0.0),
        "eps2": Option(1e-3),
        "d": Option(1.0),
        "weight_decay": Option(0.0),
        "maximize": Option(False),
    }

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.01,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        maximize: bool = False,
    ) -> None:
        eps1, eps2 = eps
        values = {"lr": lr, "beta2_decay": beta2_decay, "eps1": eps1 or 0.0, "eps2": eps2, "d": d}
        values |= {"weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, **values)

    def new_state(self, role: str, parameter: Tensor) -> Tensor:
        dtype = "float64" if parameter.dtype == "float64" else "float32"
        if parameter.ndim < 2:  # v itself, instead of rows
            return zeros(parameter.shape if role == "row" else (0,), dtype=dtype, device=parameter.device)
        *leading, height, width = parameter.shape
        size = (height, 1) if role == "row" else (1, width)
        return zeros((*leading, *size), dtype=dtype, device=parameter.device)

    def updated(
        self,
        group: ParameterGroup,
        p: Tensor,
        g: Tensor,
        state: Mapping[str, Tensor],
        lr: Tensor,
        step: Tensor,
    ) -> Tensor:
        eps = group["eps1"] or finfo(p.dtype).eps
        part = step ** group["beta2_decay"]
        row, column = state["row"], state["column"]
        square = g * g
        if p.ndim < 2:
            row[...] = row + part * (square - row)
            v = row.copy()
        else:
            row[...] = row + part * (F.mean(square, axis=-1, keepdims=True) - row)
            column[...] = column + part * (F.mean(square, axis=-2, keepdims=True) - column)
            v = row * column / F.maximum(F.mean(row, axis=-2, keepdims=True), eps)
        u = g / F.sqrt(F.maximum(v, eps * eps))
        rate = F.maximum(_root_mean_square(p), group["eps2"]) * F.minimum(lr, 1 / F.sqrt(step))
        shrunk = p * (1 - lr * group["weight_decay"])
        return shrunk - rate / F.maximum(_root_mean_square(u) / group["d"], 1.0) * u


class Muon(_Whole):
    """Momentum whose matrix has all its singular values made about 1: for the weights of hidden layers.

    m += (1 - momentum) (g - m); d = m, or with nesterov g + momentum (m - g); p = p (1 - lr weight_decay)
    - lr sqrt(max(1, rows / columns)) orthogonal(d), by five steps of Newton and Schulz's iteration. Parameters of more
    than two dimensions are matrices of their first. Embeddings, heads and vectors are for another optimizer, AdamW say.
    Options: lr, momentum, nesterov, weight_decay, eps, maximize. Raises ShapeError for parameters of one dimension.
    Source: Jordan et al. 2024, Muon: An optimizer for hidden layers in neural networks.

    >>> import weft as wf
    >>> w = wf.zeros((2, 2))
    >>> w.grad = wf.tensor([[3., 0.], [0., 1.]])
    >>> _ = Muon([w], lr=0.1).step()
    >>> bool((abs(w + 0.1 * wf.eye(2)) < 0.04).all())
    True
    """

    roles = ("m",)
    COEFFICIENTS = (3.4445, -4.775, 2.0315)  # of the iteration, steep at 0
    STEPS = 5
    lr: float = option(0.001)
    weight_decay: float = option(0.1)
    momentum: float = option(0.95, high=1.0)
    nesterov: bool = option(True)
    eps: float = option(1e-7)
    maximize: bool = option(False)

    def check_options(self, group: ParameterGroup) -> None:
        for p in group.params:
            if p.ndim < 2:
                raise ShapeError(
                    f"Muon: takes matrices, a parameter has the shape {p.shape}\n"
                    "  hint: give biases, scales and embeddings to another optimizer, such as AdamW"
                )

    def updated(
        self,
        group: ParameterGroup,
        p: Tensor,
        g: Tensor,
        state: Mapping[str, Tensor],
        lr: Tensor,
        step: Tensor,
    ) -> Tensor:
        m, momentum = state["m"], group["momentum"]
        m[...] = m + (1 - momentum) * (g - m)
        d = g + momentum * (m - g) if group["nesterov"] else m.copy()
        matrix = d.reshape(d.shape[0], -1)
        rows, columns = matrix.shape
        change = self.orthogonal(matrix, group["eps"]).reshape(p.shape)
        rate = lr * math.sqrt(max(1.0, rows / max(columns, 1)))
        return p * (1 - lr * group["weight_decay"]) - rate * change

    def orthogonal(self, x: Tensor, eps: float) -> Tensor:
        """x with singular values between about 0.7 and 1.2."""
        if x.shape[0] > x.shape[1]:
            return self.orthogonal(x.T, eps).T
        a, b, c = self.COEFFICIENTS
        x = x / F.maximum(_norm(x), eps)
        for _ in range(self.STEPS):
            gram = x @ x.T
            x = a * x + (b * gram + c * (gram @ gram)) @ x
        return x
