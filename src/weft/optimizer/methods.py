"""Optimizers that are one fused update of any number of tensors; the formulas are weft.ops.families.optimizer's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from weft.arrays.tensor import Tensor
from weft.ops import registry
from weft.optimizer.declared import Declared, option, options
from weft.optimizer.group import Option, ParameterGroup, StepGroup
from weft.sparse import RowSparse
from weft.sparse.base import add_rows

__all__ = [
    "ASGD",
    "FTML",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Lion",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
    "Signum",
]


class _Fused(Declared):
    """Base: one call of an operator for all parameters of a step group.

    fixed: attributes of the operator that are not options. optional_roles: roles that a group has only if that option
    is set.
    """

    operator: ClassVar[str]
    fixed: ClassVar[Mapping[str, Any]] = {}
    optional_roles: ClassVar[Mapping[str, str]] = {}

    def roles_of(self, group: ParameterGroup) -> tuple[str, ...]:
        return (*self.roles, *(role for option, role in self.optional_roles.items() if group[option]))

    def update(self, group: ParameterGroup, step_group: StepGroup, gradients: list[Tensor]) -> None:
        scalars = {"lr": group.rate(step_group.step.device), "step": step_group.step, **step_group.totals}
        numbers = [scalars[name] for name in registry.get(self.operator).scalars]
        attributes, state = self.attributes(group), step_group.state
        states: list[Tensor] = []
        for role in self.roles:
            states += state[role]
        for name, role in self.optional_roles.items():
            if attributes[name]:
                if role not in state:
                    raise ValueError(
                        f"{self._name}: {name}={attributes[name]} cannot be set now: the group was made without "
                        f"it, and has no tensors for {role}; make a new optimizer"
                    )
                states += state[role]
        function = registry.function(self.operator)
        function(*numbers, *step_group.parameters, *gradients, *states, **attributes)

    def attributes(self, group: ParameterGroup) -> dict[str, Any]:
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
    optional_roles: ClassVar[Mapping[str, str]] = {"momentum": "momentum"}
    lr: float = option(0.01)
    momentum: float = option(0.0, high=1.0)
    dampening: float = option(0.0, high=1.0)
    weight_decay: float = option(0.0)
    nesterov: bool = option(False)
    maximize: bool = option(False)

    def attributes(self, group: ParameterGroup) -> dict[str, Any]:
        return {**super().attributes(group), "with_momentum": bool(group["momentum"])}

    def check_options(self, group: ParameterGroup) -> None:
        if group["nesterov"] and not (group["momentum"] > 0 and group["dampening"] == 0):
            raise ValueError(
                "SGD: nesterov needs momentum and no dampening, "
                f"got {group['momentum']} and {group['dampening']}"
            )

    def update_rows(self, group: ParameterGroup, step_group: StepGroup, k: int, gradient: RowSparse) -> None:
        """Without momentum and decay what belongs to a row is added where the row lies, however often it occurs.

        Sums of less than 32 bits are rounded once for each row, so those rows are made distinct.
        """
        stored = step_group.parameters[k]
        if group["momentum"] or group["weight_decay"] or stored.itemsize < 4:
            super().update_rows(group, step_group, k, gradient)
            return
        rate = group.rate(stored.device).astype(stored.dtype)
        change = gradient.values.to_device(stored.device) * (rate if group["maximize"] else -rate)
        add_rows(stored, gradient.indices.to_device(stored.device), change)


class _Adaptive(_Fused):
    """Base of optimizers with means of the gradient and of its square."""

    roles: ClassVar[Sequence[str]] = ("m", "v")
    lr: float = option(0.001)
    betas: tuple[float, float] = options(beta1=Option(0.9, 0.0, 1.0), beta2=Option(0.999, 0.0, 1.0))
    eps: float = option(1e-8)
    weight_decay: float = option(0.0)

    def check_options(self, group: ParameterGroup) -> None:
        if 1.0 in (group["beta1"], group["beta2"]):
            raise ValueError(
                f"{self._name}: beta1 and beta2 must be below 1, got {group['beta1']} and {group['beta2']}"
            )


class Adam(_Adaptive):
    """m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; p -= lr m' / (sqrt(v') + eps).

    m' = m / (1 - beta1^t), v' = v / (1 - beta2^t) in the t-th update of p; before, g += weight_decay p. amsgrad: the
    greatest v until now divides in v's place; it cannot be set later. Options: lr, betas as beta1 and beta2, eps,
    weight_decay, amsgrad, maximize.
    Source: Kingma, Ba 2015, Adam: A method for stochastic optimization; Reddi, Kale, Kumar 2018, On the convergence of
    Adam and beyond.

    >>> import weft as wf
    >>> w = wf.tensor([1., 1.])
    >>> w.grad = wf.tensor([10., -0.1])
    >>> _ = Adam([w], lr=0.1).step()
    >>> w
    tensor([0.9, 1.1], dtype=float32, device=cpu:0)
    """

    operator = "adam_update"
    optional_roles: ClassVar[Mapping[str, str]] = {"amsgrad": "v_max"}
    fixed: ClassVar[Mapping[str, Any]] = {"decoupled": False}
    amsgrad: bool = option(False)
    maximize: bool = option(False)


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
    weight_decay: float = option(0.01)


class Adamax(_Adaptive):
    """Adam with the greatest magnitude of recent gradients in the place of sqrt(v): u = max(beta2 u, |g| + eps).

    p -= lr / (1 - beta1^t) m / u. Options as Adam's, without amsgrad.
    Source: Kingma, Ba 2015, Adam, section 7.1.

    >>> import weft as wf
    >>> w = wf.tensor([1., 1.])
    >>> w.grad = wf.tensor([10., -0.1])
    >>> _ = Adamax([w], lr=0.1).step()
    >>> w
    tensor([0.9, 1.1], dtype=float32, device=cpu:0)
    """

    operator = "adamax_update"
    roles = ("m", "u")
    lr: float = option(0.002)
    maximize: bool = option(False)


class NAdam(_Adaptive):
    """Adam with Nesterov's momentum, which grows from step to step: mu = beta1 (1 - 0.96^(t momentum_decay) / 2).

    p -= lr (mu' m / (1 - M mu') + (1 - mu) g / (1 - M)) / (sqrt(v') + eps), where M is the product of all mu until now
    and mu' the next one. decoupled_weight_decay, as option decoupled: as AdamW's. Options: lr, betas as beta1 and
    beta2, eps, weight_decay, momentum_decay, maximize.
    Source: Dozat 2016, Incorporating Nesterov momentum into Adam.

    >>> import weft as wf
    >>> w = wf.tensor([1., 1.])
    >>> w.grad = wf.tensor([10., -0.1])
    >>> _ = NAdam([w], lr=0.1).step()
    >>> w[0] < 1 < w[1]
    tensor(True, dtype=bool, device=cpu:0)
    """

    operator = "nadam_update"
    totals: ClassVar[Mapping[str, float]] = {"product": 1.0}
    lr: float = option(0.002)
    momentum_decay: float = option(0.004)
    decoupled_weight_decay: bool = options(decoupled=Option(False))
    maximize: bool = option(False)

    def count(self, group: ParameterGroup, step_group: StepGroup, witness: Tensor | None) -> None:
        super().count(group, step_group, witness)
        product, step = step_group.totals["product"], step_group.step
        settings = {name: group[name] for name in ("beta1", "momentum_decay")}
        update = registry.function("nadam_product_update")
        update(product, step, product if witness is None else witness, **settings)


class RAdam(_Adaptive):
    """Adam that divides by sqrt(v') only once enough gradients were seen for v' to be worth it; before, p -= lr m'.

    decoupled_weight_decay: as AdamW's. Options as Adam's, without amsgrad.
    Source: Liu et al. 2020, On the variance of the adaptive learning rate and beyond.

    >>> import weft as wf
    >>> w = wf.tensor([1., 1.])
    >>> w.grad = wf.tensor([10., -0.1])
    >>> _ = RAdam([w], lr=0.01).step()
    >>> w
    tensor([0.9  , 1.001], dtype=float32, device=cpu:0)
    """

    operator = "radam_update"
    decoupled_weight_decay: bool = options(decoupled=Option(False))
    maximize: bool = option(False)


class FTML(_Adaptive):
    """p is what minimizes a sum over all steps, in which later ones weigh more: p = -z / d.

    d' = (1 - beta1^t) / lr (sqrt(v / (1 - beta2^t)) + eps); z = beta1 z + (1 - beta1) g - (d' - beta1 d) p. Options as
    Adam's, without amsgrad.
    Source: Zheng, Kwok 2017, Follow the moving leader in deep learning.

    >>> import weft as wf
    >>> w = wf.tensor([0., 0.])
    >>> w.grad = wf.tensor([10., -0.1])
    >>> _ = FTML([w], lr=0.1).step()
    >>> w
    tensor([-0.1,  0.1], dtype=float32, device=cpu:0)
    """

    operator = "ftml_update"
    roles = ("d", "v", "z")
    lr: float = option(0.0025)
    betas: tuple[float, float] = options(beta1=Option(0.6, 0.0, 1.0), beta2=Option(0.999, 0.0, 1.0))
    maximize: bool = option(False)


class Lion(_Fused):
    """p -= lr sign(beta1 m + (1 - beta1) g); m = beta2 m + (1 - beta2) g; before, p *= 1 - lr weight_decay.

    Source: Chen et al. 2023, Symbolic discovery of optimization algorithms.

    >>> import weft as wf
    >>> w = wf.tensor([1., 1.])
    >>> w.grad = wf.tensor([10., -0.1])
    >>> _ = Lion([w], lr=0.1).step()
    >>> w
    tensor([0.9, 1.1], dtype=float32, device=cpu:0)
    """

    operator = "lion_update"
    roles = ("m",)
    lr: float = option(1e-4)
    betas: tuple[float, float] = options(beta1=Option(0.9, 0.0, 1.0), beta2=Option(0.99, 0.0, 1.0))
    weight_decay: float = option(0.0)
    maximize: bool = option(False)


class Signum(_Fused):
    """m = momentum m + (1 - momentum) g; p -= lr sign(m). With momentum=0 it is signSGD.

    Before, g += weight_decay p; with decoupled_weight_decay p is multiplied by 1 - lr weight_decay instead.
    Source: Bernstein et al. 2018, signSGD: Compressed optimisation for non-convex problems.

    >>> import weft as wf
    >>> w = wf.tensor([1., 1.])
    >>> w.grad = wf.tensor([10., -0.1])
    >>> _ = Signum([w], lr=0.1).step()
    >>> w
    tensor([0.9, 1.1], dtype=float32, device=cpu:0)
    """

    operator = "signum_update"
    roles = ("m",)
    lr: float = option(0.01)
    momentum: float = option(0.9, high=1.0)
    weight_decay: float = option(0.0)
    decoupled_weight_decay: bool = options(decoupled=Option(False))
    maximize: bool = option(False)


class RMSprop(_Fused):
    """v = alpha v + (1 - alpha) g^2; m = momentum m + g / (sqrt(v) + eps); p -= lr m; before, g += weight_decay p.

    centered: v - a^2 in the place of v, with a = alpha a + (1 - alpha) g; it cannot be set later.
    Source: Tieleman, Hinton 2012, Lecture 6.5 of Neural networks for machine learning; Graves 2013, Generating
    sequences with recurrent neural networks (centered).

    >>> import weft as wf
    >>> w = wf.tensor([1.])
    >>> w.grad = wf.tensor([3.])
    >>> _ = RMSprop([w], lr=0.01).step()
    >>> w
    tensor([0.9], dtype=float32, device=cpu:0)
    """

    operator = "rmsprop_update"
    roles = ("v", "m")
    optional_roles: ClassVar[Mapping[str, str]] = {"centered": "a"}
    lr: float = option(0.01)
    alpha: float = option(0.99, high=1.0)
    eps: float = option(1e-8)
    momentum: float = option(0.0, high=1.0)
    weight_decay: float = option(0.0)
    centered: bool = option(False)
    maximize: bool = option(False)


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
    lr: float = option(0.01)
    eps: float = option(1e-10)
    weight_decay: float = option(0.0)
    maximize: bool = option(False)


class Adadelta(_Fused):
    """v = rho v + (1 - rho) g^2; d = sqrt(u + eps) / sqrt(v + eps) g; u = rho u + (1 - rho) d^2; p -= lr d.

    Before, g += weight_decay p.
    Source: Zeiler 2012, ADADELTA: An adaptive learning rate method.

    >>> import weft as wf
    >>> w = wf.tensor([1.])
    >>> w.grad = wf.tensor([3.])
    >>> _ = Adadelta([w], rho=0.75, eps=0.01).step()
    >>> w
    tensor([0.800...], dtype=float32, device=cpu:0)
    """

    operator = "adadelta_update"
    roles = ("v", "u")
    lr: float = option(1.0)
    rho: float = option(0.9, high=1.0)
    eps: float = option(1e-6)
    weight_decay: float = option(0.0)
    maximize: bool = option(False)


class ASGD(_Fused):
    """p = (1 - decay eta) p - eta g, with a falling rate: eta = lr / (1 + decay lr (t - 1))^alpha in the t-th update.

    The state "mean" is the average of p since update t0, or p itself before. Before, g += weight_decay p.
    Source: Polyak, Juditsky 1992, Acceleration of stochastic approximation by averaging.

    >>> import weft as wf
    >>> w = wf.tensor([1.])
    >>> opt = ASGD([w], lr=0.1, t0=0)
    >>> for _ in range(3):
    ...     w.grad = wf.ones(1)
    ...     _ = opt.step()
    >>> w, opt.state_dict()["state"]["0.mean"]
    (tensor([0.69...], dtype=float32, device=cpu:0), tensor([0.74...], dtype=float32, device=cpu:0))
    """

    operator = "asgd_update"
    roles = ("mean",)
    lazy = False  # the mean of a row begins in the first step
    lr: float = option(0.01)
    decay: float = option(1e-4)
    alpha: float = option(0.75)
    t0: float = option(1e6)
    weight_decay: float = option(0.0)
    maximize: bool = option(False)


class Rprop(_Fused):
    """p -= sign(g) s; each element's s, lr at first, grows while its g keeps the sign, and shrinks where it turns.

    etas: the factors of shrinking and growing, as options down and up. step_sizes: the least and the greatest s, as
    options least and greatest. For whole batches, not for noisy gradients.
    Source: Riedmiller, Braun 1993, A direct adaptive method for faster backpropagation learning.

    >>> import weft as wf
    >>> w = wf.tensor([1.])
    >>> opt = Rprop([w], lr=0.1)
    >>> for _ in range(2):
    ...     w.grad = wf.ones(1)
    ...     _ = opt.step()
    >>> w
    tensor([0.78], dtype=float32, device=cpu:0)
    """

    operator = "rprop_update"
    roles = ("last", "size")
    lazy = False  # sizes begin in the first step
    lr: float = option(0.01)
    etas: tuple[float, float] = options(down=Option(0.5, 0.0, 1.0), up=Option(1.2, 1.0))
    step_sizes: tuple[float, float] = options(least=Option(1e-6), greatest=Option(50.0))
    maximize: bool = option(False)


class Ftrl(_Fused):
    """Follow the regularized leader: weights whose sum of gradients stays within l1 are exactly 0.

    z += g - (sqrt(n + g^2) - sqrt(n)) / lr p; n += g^2; p = -sign(z) max(|z| - l1, 0) / ((beta + sqrt(n)) / lr + l2).
    Source: McMahan et al. 2013, Ad click prediction: a view from the trenches.

    >>> import weft as wf
    >>> w = wf.zeros(2)
    >>> w.grad = wf.tensor([1., 0.005])
    >>> _ = Ftrl([w], lr=1.0).step()
    >>> w
    tensor([-0.495,  0.   ], dtype=float32, device=cpu:0)
    """

    operator = "ftrl_update"
    roles = ("z", "n")
    lr: float = option(0.1)
    l1: float = option(0.01)
    l2: float = option(0.0)
    beta: float = option(1.0)
    maximize: bool = option(False)
