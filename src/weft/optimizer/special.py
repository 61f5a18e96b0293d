"""Optimizers for special uses: samples of a posterior, gradients that come late, one rate for each row of a table."""

from __future__ import annotations

from collections.abc import Mapping

from weft import functional as F
from weft import random
from weft.arrays.creation import zeros
from weft.arrays.tensor import Tensor
from weft.optimizer.declared import option
from weft.optimizer.group import ParameterGroup
from weft.optimizer.whole_tensors import _Whole

__all__ = ["DCASGD", "SGLD", "GroupAdagrad"]


class SGLD(_Whole):
    """Langevin dynamics: p -= lr / 2 (g + weight_decay p) + normal(0, lr), whose steps are samples of the posterior.

    g is the gradient of the negative logarithm of the posterior; lr is the variance of the noise, drawn by wf.random.
    Options: lr, weight_decay, maximize.
    Source: Welling, Teh 2011, Bayesian learning via stochastic gradient Langevin dynamics.

    >>> import weft as wf
    >>> wf.random.seed(0)
    >>> w = wf.zeros(1000)
    >>> opt, samples = SGLD([w], lr=0.1), []
    >>> for _ in range(200):
    ...     w.grad = w / 4                                               # of a normal distribution with variance 4
    ...     _ = opt.step()
    >>> 3 < w.var().item() < 5
    True
    """

    lr: float = option(0.01)
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
        noise = random.normal(0.0, 1.0, p.shape, p.dtype, p.device)
        return p - lr / 2 * (g + group["weight_decay"] * p) + F.sqrt(lr) * noise


class DCASGD(_Whole):
    """SGD whose gradients are of earlier parameters b, corrected for the way since then.

    d = g + weight_decay p + lamda g^2 (p - b); m = momentum m - lr d; p += m; then b is p. Options: lr, momentum,
    lamda, weight_decay, maximize.
    Source: Zheng et al. 2016, Asynchronous stochastic gradient descent with delay compensation.

    >>> import weft as wf
    >>> w = wf.tensor([1.])
    >>> w.grad = wf.tensor([2.])
    >>> _ = DCASGD([w], lr=0.1).step()
    >>> w
    tensor([0.8], dtype=float32, device=cpu:0)
    """

    elementwise = True
    roles = ("m", "b")
    lr: float = option(0.01)
    momentum: float = option(0.0, high=1.0)
    lamda: float = option(0.04)
    weight_decay: float = option(0.0)
    maximize: bool = option(False)

    def new_state(self, role: str, parameter: Tensor) -> Tensor:
        state = super().new_state(role, parameter)
        if role == "b":
            state[...] = parameter.astype(state.dtype)
        return state

    def updated(
        self,
        group: ParameterGroup,
        p: Tensor,
        g: Tensor,
        state: Mapping[str, Tensor],
        lr: Tensor,
        step: Tensor,
    ) -> Tensor:
        m, before = state["m"], state["b"]
        d = g + group["weight_decay"] * p + group["lamda"] * g * g * (p - before)
        m[...] = group["momentum"] * m - lr * d
        new = p + m
        before[...] = new
        return new


class GroupAdagrad(_Whole):
    """Adagrad with one sum for each row, for tables: h += mean of g^2 over the row; p -= lr g / (sqrt(h) + eps).

    Options: lr, eps, maximize. Parameters of one dimension have rows of one element.
    Source: Gupta, Bengio, Weston 2014, Training highly multiclass classifiers (rates for groups).

    >>> import weft as wf
    >>> w = wf.zeros((2, 2))
    >>> w.grad = wf.tensor([[3., 4.], [0., 0.]])
    >>> _ = GroupAdagrad([w], lr=0.1).step()
    >>> w.tolist()                                                           # h is 12.5 and 0
    [[-0.0848..., -0.1131...], [0.0, 0.0]]
    """

    roles = ("h",)
    lazy = True
    lr: float = option(0.01)
    eps: float = option(1e-5)
    maximize: bool = option(False)

    def new_state(self, role: str, parameter: Tensor) -> Tensor:
        dtype = "float64" if parameter.dtype == "float64" else "float32"
        shape = (*parameter.shape[:1], *(1,) * max(parameter.ndim - 1, 0))
        return zeros(shape, dtype=dtype, device=parameter.device)

    def updated(
        self,
        group: ParameterGroup,
        p: Tensor,
        g: Tensor,
        state: Mapping[str, Tensor],
        lr: Tensor,
        step: Tensor,
    ) -> Tensor:
        h, axes = state["h"], tuple(range(1, g.ndim))
        h[...] = h + (F.mean(g * g, axis=axes, keepdims=True) if axes else g * g)
        return p - lr * g / (F.sqrt(h) + group["eps"])
