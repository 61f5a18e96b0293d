"""Learning rates that follow a schedule: each a formula of the number of steps, so that resuming is exact.

A schedule belongs to an optimizer, and multiplies or replaces the learning rate that each of its groups began with.

>>> import weft as wf
>>> import weft.optimizer as optim
>>> opt = optim.SGD([wf.zeros(2)], lr=0.1)
>>> schedule = optim.lr_scheduler.StepLR(opt, step_size=2, gamma=0.5)
>>> rates = []
>>> for _ in range(5):
...     rates.append(opt.param_groups[0]["lr"])
...     schedule.step()
>>> rates
[0.1, 0.1, 0.05, 0.05, 0.025]
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.base.errors import names_keywords
from weft.base.name_hints import add_hints as _add_hints
from weft.optimizer.optimizer import Optimizer

__all__ = [
    "CosineAnnealingLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearWarmup",
    "MultiStepLR",
    "StepLR",
]


class LRScheduler:
    """Base: a subclass gives rate(base, step). Made, it sets the rates of step 0.

    Call step() once after each optimizer step, or each epoch: what a schedule's numbers count is what you count.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(self).__name__}: takes an optimizer, got {type(optimizer).__name__}")
        self.optimizer = optimizer
        self.last_step = 0
        for group in optimizer.param_groups:
            if group.initial_lr is None:
                group.initial_lr = group["lr"]
        self._set()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        names_keywords(cls)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(last_step={self.last_step}, last_lr={self.last_lr})"

    def rate(self, base: float, step: int) -> float:
        """The learning rate after so many steps of a group that began with base."""
        raise NotImplementedError(f"{type(self).__name__}: has no rate()")

    def _set(self) -> None:
        for group in self.optimizer.param_groups:
            if group.initial_lr is None:  # a group that came later
                group.initial_lr = group["lr"]
            group["lr"] = self.rate(group.initial_lr, self.last_step)

    def step(self) -> None:
        """Go one step on, and set the learning rate of every group."""
        self.last_step += 1
        self._set()

    @property
    def last_lr(self) -> list[float]:
        """The learning rate of every group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Where the schedule is; its formula is not saved, make it with the same numbers."""
        return {"scheduler": type(self).__name__, "last_step": self.last_step}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raise what load_state_dict would raise, and change nothing."""
        name = type(self).__name__
        if not isinstance(state, Mapping) or not {"scheduler", "last_step"} <= state.keys():
            raise TypeError(f"load_state_dict: {name}: takes what state_dict() gave")
        if state["scheduler"] != name:
            raise ValueError(f"load_state_dict: {name}: the state is of {state['scheduler']!r}")
        step = state["last_step"]
        if not isinstance(step, int) or isinstance(step, bool) or step < 0:
            raise ValueError(f"load_state_dict: {name}: last_step must be an integer from 0, got {step!r}")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; learning rates are the optimizer's state, not the schedule's, until the next step."""
        self.check_state_dict(state)
        self.last_step = state["last_step"]


class LambdaLR(LRScheduler):
    """base * factor(step); factor: a function, or one for each group.

    >>> import weft as wf
    >>> import weft.optimizer as optim
    >>> opt = optim.SGD([wf.zeros(2)], lr=0.5)
    >>> schedule = LambdaLR(opt, lambda step: 1 / (1 + step))
    >>> schedule.step()
    >>> schedule.last_lr
    [0.25]
    """

    def __init__(
        self, optimizer: Optimizer, factor: Callable[[int], float] | Sequence[Callable[[int], float]]
    ) -> None:
        groups = len(optimizer.param_groups)
        self._factors = [factor] * groups if callable(factor) else list(factor)
        super().__init__(optimizer)

    def _set(self) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self._factors):
            raise ValueError(f"LambdaLR: {len(self._factors)} functions for {len(groups)} groups")
        for group, factor in zip(groups, self._factors, strict=True):
            assert group.initial_lr is not None
            group["lr"] = group.initial_lr * factor(self.last_step)


class StepLR(LRScheduler):
    """base * gamma^(step // step_size)."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        if step_size < 1:
            raise ValueError(f"StepLR: step_size must be at least 1, got {step_size}")
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        return base * self.gamma ** (step // self.step_size)


class MultiStepLR(LRScheduler):
    """base * gamma^(how many milestones have been reached). Raises ValueError unless milestones increase.

    >>> import weft as wf
    >>> import weft.optimizer as optim
    >>> schedule = MultiStepLR(optim.SGD([wf.zeros(2)], lr=1.0), [2, 3], gamma=0.5)
    >>> [schedule.rate(1.0, step) for step in range(5)]
    [1.0, 1.0, 0.5, 0.25, 0.25]
    """

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1) -> None:
        if any(a >= b for a, b in itertools.pairwise(milestones)):
            raise ValueError(f"MultiStepLR: milestones must increase, got {list(milestones)}")
        self.milestones, self.gamma = list(milestones), gamma
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        return base * self.gamma ** bisect.bisect_right(self.milestones, step)


class ExponentialLR(LRScheduler):
    """base * gamma^step."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        self.gamma = gamma
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        return base * self.gamma**step


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from base to min_lr in t_max steps; then it stays min_lr.

    Source: Loshchilov, Hutter 2017, SGDR: Stochastic gradient descent with warm restarts (without restarts).

    >>> import weft as wf
    >>> import weft.optimizer as optim
    >>> schedule = CosineAnnealingLR(optim.SGD([wf.zeros(2)], lr=1.0), t_max=4)
    >>> [round(schedule.rate(1.0, step), 3) for step in range(6)]
    [1.0, 0.854, 0.5, 0.146, 0.0, 0.0]
    """

    def __init__(self, optimizer: Optimizer, t_max: int, min_lr: float = 0.0) -> None:
        if t_max < 1:
            raise ValueError(f"CosineAnnealingLR: t_max must be at least 1, got {t_max}")
        self.t_max, self.min_lr = t_max, min_lr
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        share = min(step, self.t_max) / self.t_max
        return self.min_lr + (base - self.min_lr) * (1 + math.cos(math.pi * share)) / 2


class LinearWarmup(LRScheduler):
    """From start * base to base in `steps` steps; then what the schedule `then` says, which begins there, or base.

    then: a schedule of the same optimizer; only this one is stepped, and saved. Raises ValueError if it has another
    optimizer or is a LambdaLR, whose formula is not one of base.

    >>> import weft as wf
    >>> import weft.optimizer as optim
    >>> opt = optim.SGD([wf.zeros(2)], lr=1.0)
    >>> schedule = LinearWarmup(opt, 2, then=StepLR(opt, 1, gamma=0.5))
    >>> [schedule.rate(1.0, step) for step in range(5)]
    [0.0, 0.5, 1.0, 0.5, 0.25]
    """

    def __init__(
        self, optimizer: Optimizer, steps: int, start: float = 0.0, then: LRScheduler | None = None
    ) -> None:
        if steps < 1:
            raise ValueError(f"LinearWarmup: steps must be at least 1, got {steps}")
        if then is not None and (then.optimizer is not optimizer or isinstance(then, LambdaLR)):
            raise ValueError(
                "LinearWarmup: then must be another schedule than LambdaLR of the same optimizer"
            )
        self.steps, self.start, self.then = steps, start, then
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        if step < self.steps:
            return base * (self.start + (1 - self.start) * step / self.steps)
        return base if self.then is None else self.then.rate(base, step - self.steps)


_add_hints(globals())
