"""The optimizers: each one fused update of any number of tensors, whose formulas are weft.ops.families.optimizer's."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from weft.arrays.tensor import Tensor
from weft.ops import registry
from weft.optimizer.group import Option, ParameterGroup, StepGroup
from weft.optimizer.optimizer import Optimizer

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "RMSprop"]

Parameters = Iterable[Tensor] | Iterable[Mapping[str, Any]]
SHARE = Option(0.0, 0.0, 1.0)


class _Fused(Optimizer):
    """Base: one call of an operator for all parameters of a step group."""

    operator: ClassVar[str]
    fixed: ClassVar[Mapping[str, Any]] = {}  # attributes of the operator that are not options

    def update(self, group: ParameterGroup, step_group: StepGroup, gradients: list[Tensor]) -> None:
        scalars = {"lr": group.rate(step_group.step.device), "step": step_group.step}
        numbers = [scalars[name] for name in registry.get(self.operator).scalars]
        states = itertools.chain.from_iterable(step_group.state.values())
        function = registry.function(self.operator)
        function(*numbers, *step_group.parameters, *gradients, *states, **self.attributes(group, step_group))

    def attributes(self, group: ParameterGroup, step_group: StepGroup) -> dict[str, Any]:
        """The operator's attributes."""
        return {**group.constants(), **self.fixed}


class SGD(_Fused):
    """g += weight_decay p; m = momentum m + (1 - dampening) g; p -= lr m, or with nesterov lr (g + momentum m).

    Without momentum p -= lr g, and the group has no m; it cannot be added later. m is zero at first. Options: lr,
    momentum, dampening, weight_decay, nesterov. Raises ValueError for nesterov without momentum or with dampening.
    Source: Robbins, Monro 1951; Polyak 1964; Nesterov 1983 in the form of Sutskever et al. 2013.

    >>> import weft as wf
    >>> w = wf.tensor([1.])
    >>> opt = SGD([w], lr=0.1, momentum=0.9)
    >>> for _ in range(2):
    ...     w.grad = wf.ones(1)
    ...     _ = opt.step()
    >>> w
    tensor([0.71], dtype=float32, device=cpu:0)
    """

    operator = "sgd_update"
    roles = ("momentum",)
    options: ClassVar[Mapping[str, Option]] = {
        "lr": Option(0.01),
        "momentum": SHARE,
        "dampening": SHARE,
        "weight_decay": Option(0.0),
        "nesterov": Option(False),
    }

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.01,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(
            params,
            lr=lr,
            momentum=momentum,
            dampening=dampening,
            weight_decay=weight_decay,
            nesterov=nesterov,
        )

    def roles_of(self, group: ParameterGroup) -> tuple[str, ...]:
        return self.roles if group["momentum"] else ()

    def attributes(self, group: ParameterGroup, step_group: StepGroup) -> dict[str, Any]:
        has_momentum = bool(step_group.state)
        if group["momentum"] and not has_momentum:
            raise ValueError(
                f"SGD: momentum={group['momentum']} cannot be set now: the group was made with momentum=0 and has no "
                "momentum tensors; make a new optimizer"
            )
        return {**super().attributes(group, step_group), "with_momentum": has_momentum}

    def check_options(self, group: ParameterGroup) -> None:
        if group["nesterov"] and not (group["momentum"] > 0 and group["dampening"] == 0):
            raise ValueError(
                "SGD: nesterov needs momentum and no dampening, "
                f"got {group['momentum']} and {group['dampening']}"
            )


class Adam(_Fused):
    """m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; p -= lr m' / (sqrt(v') + eps).

    m' = m / (1 - beta1^t), v' = v / (1 - beta2^t) in the t-th update of p; before, g += weight_decay p.
    Options: lr, betas as beta1 and beta2, eps, weight_decay.
    Source: Kingma, Ba 2015, Adam: A method for stochastic optimization.

    >>> import weft as wf
    >>> w = wf.tensor([1., 1.])
    >>> w.grad = wf.tensor([10., -0.1])
    >>> _ = Adam([w], lr=0.1).step()
    >>> w
    tensor([0.9, 1.1], dtype=float32, device=cpu:0)
    """

    operator = "adam_update"
    roles = ("m", "v")
    options: ClassVar[Mapping[str, Option]] = {
        "lr": Option(0.001),
        "beta1": Option(0.9, 0.0, 1.0),
        "beta2": Option(0.999, 0.0, 1.0),
        "eps": Option(1e-8),
        "weight_decay": Option(0.0),
    }
    fixed: ClassVar[Mapping[str, Any]] = {"decoupled": False}

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        beta1, beta2 = betas
        super().__init__(params, lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay)

    def check_options(self, group: ParameterGroup) -> None:
        if 1.0 in (group["beta1"], group["beta2"]):
            raise ValueError(
                f"{type(self).__name__}: beta1 and beta2 must be below 1, "
                f"got {group['beta1']} and {group['beta2']}"
            )


class AdamW(Adam):
    """Adam whose weight decay is not part of the gradient: p is first multiplied by 1 - lr weight_decay.

    Options as Adam's, with weight_decay=0.01 by default.
    Source: Loshchilov, Hutter 2019, Decoupled weight decay regularization.

    >>> import weft as wf
    >>> w = wf.tensor([1.])
    >>> w.grad = wf.zeros(1)
    >>> _ = AdamW([w], lr=0.1, weight_decay=0.5).step()
    >>> w
    tensor([0.95], dtype=float32, device=cpu:0)
    """

    fixed: ClassVar[Mapping[str, Any]] = {"decoupled": True}

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)


class RMSprop(_Fused):
    """v = alpha v + (1 - alpha) g^2; m = momentum m + g / (sqrt(v) + eps); p -= lr m; before, g += weight_decay p.

    Source: Tieleman, Hinton 2012, Lecture 6.5 of Neural networks for machine learning.

    >>> import weft as wf
    >>> w = wf.tensor([1.])
    >>> w.grad = wf.tensor([3.])
    >>> _ = RMSprop([w], lr=0.01).step()
    >>> w
    tensor([0.9], dtype=float32, device=cpu:0)
    """

    operator = "rmsprop_update"
    roles = ("v", "m")
    options: ClassVar[Mapping[str, Option]] = {
        "lr": Option(0.01),
        "alpha": Option(0.99, 0.0, 1.0),
        "eps": Option(1e-8),
        "momentum": SHARE,
        "weight_decay": Option(0.0),
    }

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.01,
        alpha: float = 0.99,
        eps: float = 1e-8,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr=lr, alpha=alpha, eps=eps, momentum=momentum, weight_decay=weight_decay)


class Adagrad(_Fused):
    """v += g^2; p -= lr g / (sqrt(v) + eps); before, g += weight_decay p.

    Source: Duchi, Hazan, Singer 2011, Adaptive subgradient methods.

    >>> import weft as wf
    >>> w = wf.tensor([1.])
    >>> w.grad = wf.tensor([3.])
    >>> _ = Adagrad([w], lr=0.1).step()
    >>> w
    tensor([0.9], dtype=float32, device=cpu:0)
    """

    operator = "adagrad_update"
    roles = ("v",)
    options: ClassVar[Mapping[str, Option]] = {
        "lr": Option(0.01),
        "eps": Option(1e-10),
        "weight_decay": Option(0.0),
    }

    def __init__(
        self, params: Parameters, lr: float = 0.01, eps: float = 1e-10, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, lr=lr, eps=eps, weight_decay=weight_decay)
