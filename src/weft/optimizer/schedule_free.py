"""Optimizers that need no schedule of the learning rate: they average the points that they have been at."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.gradients.gradient import no_grad
from weft.optimizer.declared import option, options
from weft.optimizer.group import Option, ParameterGroup
from weft.optimizer.whole_tensors import _Whole
from weft.recording.dependence import changed

__all__ = ["ScheduleFreeAdamW", "ScheduleFreeSGD"]


class _ScheduleFree(_Whole):
    """Base: of the points z of steps and their average x the parameters hold y = (1 - beta) z + beta x in training."""

    elementwise = True
    roles: ClassVar[Sequence[str]] = ("z",)
    _holds_average = False

    def new_state(self, role: str, parameter: Tensor) -> Tensor:
        state = super().new_state(role, parameter)
        if role == "z":
            state[...] = parameter.astype(state.dtype)
        return state

    def step(self) -> Any:
        """Update every parameter that has a gradient; returns the optimizer. Raises RuntimeError behind eval()."""
        if self._holds_average:
            raise RuntimeError(f"{self._name}: step: parameters hold the average; call train() first")
        return super().step()

    def eval(self) -> Any:
        """Let the parameters hold the average x, to evaluate and to save it; returns the optimizer."""
        return self._swap(True)

    def train(self) -> Any:
        """Let the parameters hold y again, where gradients are computed; returns the optimizer."""
        return self._swap(False)

    def _swap(self, to_average: bool) -> Any:
        if to_average is self._holds_average:
            return self
        with no_grad():
            for group in self.param_groups:
                beta = group["beta1"]
                part = 1 - 1 / beta if to_average else 1 - beta
                for step_group in group.step_groups:
                    for p, z in zip(step_group.parameters, step_group.state["z"], strict=True):
                        wide = p.astype(z.dtype)
                        p[...] = (wide + part * (z - wide)).astype(p.dtype)
        self._holds_average = to_average
        changed()
        return self

    def updated(
        self,
        group: ParameterGroup,
        p: Tensor,
        g: Tensor,
        state: Mapping[str, Tensor],
        lr: Tensor,
        step: Tensor,
    ) -> Tensor:
        beta, warmup = group["beta1"], group["warmup_steps"]
        d = self.direction(group, g, state, step) + group["weight_decay"] * p
        if warmup:
            lr = lr * F.minimum(step / warmup, 1.0)
        share = self._share(step, warmup)
        z = state["z"]
        new = p + share * (z - p) - lr * (1 - beta * (1 - share)) * d
        z[...] = z - lr * d
        return new

    @staticmethod
    def _share(step: Tensor, warmup: float) -> Tensor:
        """Of the newest point in the average: its squared rate over the sum of all, which grow to 1 in the warmup."""
        if not warmup:
            return 1 / step
        rising = 6 * step / ((step + 1) * (2 * step + 1))
        steady = 1 / ((warmup + 1) * (2 * warmup + 1) / (6 * warmup) + F.maximum(step - warmup, 0.0))
        return F.where(step <= warmup, rising, steady)

    def direction(
        self, group: ParameterGroup, g: Tensor, state: Mapping[str, Tensor], step: Tensor
    ) -> Tensor:
        """What lr is multiplied with; writes the state but for z."""
        raise NotImplementedError


class ScheduleFreeSGD(_ScheduleFree):
    """SGD without a schedule: z -= lr (g + weight_decay y), x += c (z - x), gradients at y = (1 - beta1) z + beta1 x.

    c is 1 / t, and in a warmup, in which lr rises linearly, the share of squared rates. The parameters hold y; call
    eval() before an evaluation or before saving, so that they hold x, and train() behind it. The learning rate should
    be constant, and may be large. Options: lr, beta1, weight_decay, warmup_steps, maximize. Raises RuntimeError for
    step() in evaluation.
    Source: Defazio et al. 2024, The road less scheduled.

    >>> import weft as wf
    >>> w = wf.tensor([1.])
    >>> opt = ScheduleFreeSGD([w], lr=0.5, beta1=0.9)
    >>> for _ in range(20):
    ...     w.grad = 2 * w
    ...     _ = opt.step()
    >>> bool(abs(opt.eval() and w) < 0.1)
    True
    """

    lr: float = option(1.0)
    beta1: float = option(0.9, 1e-6, 1.0)
    weight_decay: float = option(0.0)
    warmup_steps: float = option(0.0)
    maximize: bool = option(False)

    def direction(
        self, group: ParameterGroup, g: Tensor, state: Mapping[str, Tensor], step: Tensor
    ) -> Tensor:
        return g


class ScheduleFreeAdamW(_ScheduleFree):
    """AdamW without a schedule: ScheduleFreeSGD with g / (sqrt(v / (1 - beta2^t)) + eps) in the place of g.

    v = beta2 v + (1 - beta2) g^2; beta1 is that of y, and there is no other momentum. Options: lr, betas as beta1 and
    beta2, eps, weight_decay, warmup_steps, maximize. See ScheduleFreeSGD for eval() and train().
    Source: Defazio et al. 2024, The road less scheduled.

    >>> import weft as wf
    >>> w = wf.tensor([1.])
    >>> opt = ScheduleFreeAdamW([w], lr=0.1)
    >>> w.grad = wf.tensor([3.])
    >>> _ = opt.step().eval()
    >>> w
    tensor([0.9], dtype=float32, device=cpu:0)
    """

    roles = ("z", "v")
    lr: float = option(0.0025)
    betas: tuple[float, float] = options(beta1=Option(0.9, 1e-6, 1.0), beta2=Option(0.999, 0.0, 1.0))
    eps: float = option(1e-8)
    weight_decay: float = option(0.0)
    warmup_steps: float = option(0.0)
    maximize: bool = option(False)

    def direction(
        self, group: ParameterGroup, g: Tensor, state: Mapping[str, Tensor], step: Tensor
    ) -> Tensor:
        v, beta2 = state["v"], group["beta2"]
        v[...] = beta2 * v + (1 - beta2) * g * g
        seen = -F.expm1(step * math.log(beta2)) if beta2 else 1.0  # 1 - beta2^t, without its cancellation
        return g / (F.sqrt(v / seen) + group["eps"])
