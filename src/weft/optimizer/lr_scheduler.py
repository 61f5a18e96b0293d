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
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "LinearWarmup",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
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

    def rate_of_group(self, number: int, base: float, step: int) -> float:
        """The learning rate of the group of this index; the default gives rate(base, step), one formula for all."""
        return self.rate(base, step)

    def _set(self) -> None:
        for number, group in enumerate(self.optimizer.param_groups):
            if group.initial_lr is None:  # a group that came later
                group.initial_lr = group["lr"]
            group["lr"] = self.rate_of_group(number, group.initial_lr, self.last_step)

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


Factor = Callable[[int], float]


class _OfFunctions(LRScheduler):
    """Base: base times something of a function of the step's number, or of one for each group."""

    def __init__(self, optimizer: Optimizer, factor: Factor | Sequence[Factor]) -> None:
        groups = len(optimizer.param_groups)
        self._factors = [factor] * groups if callable(factor) else list(factor)
        super().__init__(optimizer)

    def _factor(self, number: int) -> Factor:
        groups = self.optimizer.param_groups
        if len(groups) != len(self._factors):
            raise ValueError(
                f"{type(self).__name__}: {len(self._factors)} functions for {len(groups)} groups"
            )
        return self._factors[number]


class LambdaLR(_OfFunctions):
    """base * factor(step); factor: a function, or one for each group.

    >>> import weft as wf
    >>> import weft.optimizer as optim
    >>> opt = optim.SGD([wf.zeros(2)], lr=0.5)
    >>> schedule = LambdaLR(opt, lambda step: 1 / (1 + step))
    >>> schedule.step()
    >>> schedule.last_lr
    [0.25]
    """

    def rate_of_group(self, number: int, base: float, step: int) -> float:
        return base * self._factor(number)(step)


class MultiplicativeLR(_OfFunctions):
    """base * factor(1) * ... * factor(step); factor: a function, or one for each group.

    >>> import weft as wf
    >>> import weft.optimizer as optim
    >>> schedule = MultiplicativeLR(optim.SGD([wf.zeros(2)], lr=1.0), lambda step: 1 / step)
    >>> [schedule.rate_of_group(0, 1.0, step) for step in range(4)]
    [1.0, 1.0, 0.5, 0.16666666666666666]
    """

    def __init__(self, optimizer: Optimizer, factor: Factor | Sequence[Factor]) -> None:
        self._products: dict[int, list[float]] = {}  # of each group, after each step
        super().__init__(optimizer, factor)

    def rate_of_group(self, number: int, base: float, step: int) -> float:
        factor = self._factor(number)
        products = self._products.setdefault(number, [1.0])
        while len(products) <= step:
            products.append(products[-1] * factor(len(products)))
        return base * products[step]


def _at_least(owner: str, name: str, value: int, least: int = 1) -> int:
    if value < least:
        raise ValueError(f"{owner}: {name} must be at least {least}, got {value}")
    return value


class StepLR(LRScheduler):
    """base * gamma^(step // step_size)."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        self.step_size, self.gamma = _at_least("StepLR", "step_size", step_size), gamma
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
        self.t_max, self.min_lr = _at_least("CosineAnnealingLR", "t_max", t_max), min_lr
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        share = min(step, self.t_max) / self.t_max
        return self.min_lr + (base - self.min_lr) * (1 + math.cos(math.pi * share)) / 2


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine from base to min_lr in t_0 steps, then again from base, each time in t_mult times as many steps.

    Source: Loshchilov, Hutter 2017, SGDR: Stochastic gradient descent with warm restarts.

    >>> import weft as wf
    >>> import weft.optimizer as optim
    >>> schedule = CosineAnnealingWarmRestarts(optim.SGD([wf.zeros(2)], lr=1.0), t_0=2, t_mult=2)
    >>> [round(schedule.rate(1.0, step), 3) for step in range(8)]
    [1.0, 0.5, 1.0, 0.854, 0.5, 0.146, 1.0, 0.962]
    """

    def __init__(self, optimizer: Optimizer, t_0: int, t_mult: int = 1, min_lr: float = 0.0) -> None:
        name = type(self).__name__
        self.t_0, self.t_mult = _at_least(name, "t_0", t_0), _at_least(name, "t_mult", t_mult)
        self.min_lr = min_lr
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        length = self.t_0
        if self.t_mult == 1:
            step %= length
        while step >= length:
            step, length = step - length, length * self.t_mult
        return _between(base, self.min_lr, step / length, "cos")


def _between(begin: float, end: float, share: float, anneal: str) -> float:
    """From begin at 0 to end at 1, by half a cosine or a line."""
    share = (1 - math.cos(math.pi * share)) / 2 if anneal == "cos" else share
    return begin + (end - begin) * share


class ConstantLR(LRScheduler):
    """base * factor for `steps` steps, then base."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, steps: int = 5) -> None:
        self.factor, self.steps = factor, _at_least("ConstantLR", "steps", steps, 0)
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        return base * self.factor if step < self.steps else base


class LinearLR(LRScheduler):
    """From start * base to end * base along a line of `steps` steps; then it stays there."""

    def __init__(self, optimizer: Optimizer, start: float = 1 / 3, end: float = 1.0, steps: int = 5) -> None:
        self.start, self.end, self.steps = start, end, _at_least("LinearLR", "steps", steps)
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        return base * _between(self.start, self.end, min(step, self.steps) / self.steps, "linear")


class PolynomialLR(LRScheduler):
    """base * (1 - step / steps)^power, then 0.

    >>> import weft as wf
    >>> import weft.optimizer as optim
    >>> schedule = PolynomialLR(optim.SGD([wf.zeros(2)], lr=1.0), steps=4, power=2.0)
    >>> [schedule.rate(1.0, step) for step in range(6)]
    [1.0, 0.5625, 0.25, 0.0625, 0.0, 0.0]
    """

    def __init__(self, optimizer: Optimizer, steps: int = 5, power: float = 1.0) -> None:
        self.steps, self.power = _at_least("PolynomialLR", "steps", steps), power
        super().__init__(optimizer)

    def rate(self, base: float, step: int) -> float:
        return base * float((1 - min(step, self.steps) / self.steps) ** self.power)


def _for_each_group(owner: str, name: str, values: float | Sequence[float], groups: int) -> list[float]:
    listed = list(values) if isinstance(values, Sequence) else [float(values)] * groups
    if len(listed) != groups:
        raise ValueError(f"{owner}: {name} has {len(listed)} values for {groups} groups")
    return listed


def _one_of(owner: str, name: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise ValueError(f"{owner}: {name} must be one of {', '.join(choices)}, got {value!r}")
    return value


class CyclicLR(LRScheduler):
    """Up from base to max_lr in `up` steps and down again in `down` steps, and again.

    max_lr: a number, or one for each group. down: as many as up by default. mode: "triangular"; "triangular2", in which
    each cycle goes half as high as the one before; "exp_range", in which the height is multiplied by gamma^step.
    Source: Smith 2017, Cyclical learning rates for training neural networks.

    >>> import weft as wf
    >>> import weft.optimizer as optim
    >>> schedule = CyclicLR(optim.SGD([wf.zeros(2)], lr=0.1), max_lr=0.5, up=2, mode="triangular2")
    >>> [round(schedule.rate_of_group(0, 0.1, step), 3) for step in range(8)]
    [0.1, 0.3, 0.5, 0.3, 0.1, 0.2, 0.3, 0.2]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        up: int = 2000,
        down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
    ) -> None:
        self.max_lr = _for_each_group("CyclicLR", "max_lr", max_lr, len(optimizer.param_groups))
        self.up = _at_least("CyclicLR", "up", up)
        self.down = self.up if down is None else _at_least("CyclicLR", "down", down)
        self.mode = _one_of("CyclicLR", "mode", mode, ("triangular", "triangular2", "exp_range"))
        self.gamma = gamma
        super().__init__(optimizer)

    def rate_of_group(self, number: int, base: float, step: int) -> float:
        cycle, within = divmod(step, self.up + self.down)
        height = within / self.up if within <= self.up else 1 - (within - self.up) / self.down
        scale = {"triangular": 1.0, "triangular2": 0.5**cycle, "exp_range": self.gamma**step}[self.mode]
        return base + (self.max_lr[number] - base) * height * scale


class OneCycleLR(LRScheduler):
    """Up from max_lr / start_divisor to max_lr, and down to the first rate / end_divisor, once in `steps` steps.

    max_lr: a number, or one for each group. rising: the part of the steps that go up. anneal: "cos" or "linear".
    three_phases: down as fast as up, to where it began, then on. Behind the last step the rate stays.
    Source: Smith, Topin 2019, Super-convergence: Very fast training of neural networks using large learning rates.

    >>> import weft as wf
    >>> import weft.optimizer as optim
    >>> schedule = OneCycleLR(optim.SGD([wf.zeros(2)], lr=0.1), max_lr=1.0, steps=10, anneal="linear")
    >>> [round(schedule.rate_of_group(0, 0.1, step), 3) for step in range(10)]
    [0.04, 0.52, 1.0, 0.857, 0.714, 0.571, 0.429, 0.286, 0.143, 0.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        steps: int,
        rising: float = 0.3,
        anneal: str = "cos",
        start_divisor: float = 25.0,
        end_divisor: float = 1e4,
        three_phases: bool = False,
    ) -> None:
        self.max_lr = _for_each_group("OneCycleLR", "max_lr", max_lr, len(optimizer.param_groups))
        self.steps = _at_least("OneCycleLR", "steps", steps, 2)
        if not 0 <= rising <= 1:
            raise ValueError(f"OneCycleLR: rising must be at least 0 and at most 1, got {rising}")
        self.rising, self.anneal = rising, _one_of("OneCycleLR", "anneal", anneal, ("cos", "linear"))
        self.start_divisor, self.end_divisor, self.three_phases = start_divisor, end_divisor, three_phases
        super().__init__(optimizer)

    def rate_of_group(self, number: int, base: float, step: int) -> float:
        top = self.max_lr[number]
        first = top / self.start_divisor
        last = first / self.end_divisor
        peak = self.rising * self.steps - 1
        knots = [(0.0, first), (peak, top), (self.steps - 1.0, last)]
        if self.three_phases:
            knots.insert(2, (2 * peak, first))
        step = min(step, self.steps - 1)
        for (begin, low), (end, high) in itertools.pairwise(knots):
            if step <= end and end > begin:
                return _between(low, high, (step - begin) / (end - begin), self.anneal)
        return last


class LinearWarmup(LRScheduler):
    """From start * base to base in `steps` steps; then what the schedule `then` says, which begins there, or base.

    then: a schedule of the same optimizer; only this one is stepped, and saved. Raises ValueError if it has another
    optimizer.

    >>> import weft as wf
    >>> import weft.optimizer as optim
    >>> opt = optim.SGD([wf.zeros(2)], lr=1.0)
    >>> schedule = LinearWarmup(opt, 2, then=StepLR(opt, 1, gamma=0.5))
    >>> [schedule.rate_of_group(0, 1.0, step) for step in range(5)]
    [0.0, 0.5, 1.0, 0.5, 0.25]
    """

    def __init__(
        self, optimizer: Optimizer, steps: int, start: float = 0.0, then: LRScheduler | None = None
    ) -> None:
        self.steps, self.start, self.then = _at_least("LinearWarmup", "steps", steps), start, then
        if then is not None:
            _check_parts("LinearWarmup", optimizer, [then])
        super().__init__(optimizer)

    def rate_of_group(self, number: int, base: float, step: int) -> float:
        if step < self.steps:
            return base * _between(self.start, 1.0, step / self.steps, "linear")
        return base if self.then is None else self.then.rate_of_group(number, base, step - self.steps)


def _check_parts(owner: str, optimizer: Optimizer, parts: Sequence[LRScheduler]) -> None:
    """Raise ValueError for schedules that cannot be part of another one."""
    for part in parts:
        if part.optimizer is not optimizer:
            raise ValueError(f"{owner}: {type(part).__name__} is a schedule of another optimizer")
        if isinstance(part, ReduceLROnPlateau):
            raise ValueError(
                f"{owner}: ReduceLROnPlateau follows a metric and no number of steps; step it alone"
            )


class SequentialLR(LRScheduler):
    """One schedule after the other: the k-th until the step milestones[k], the last one from then on; each begins at 0.

    Only this one is stepped, and saved. Raises ValueError for schedules of another optimizer, or another number of
    milestones than one less than schedules.

    >>> import weft as wf
    >>> import weft.optimizer as optim
    >>> opt = optim.SGD([wf.zeros(2)], lr=1.0)
    >>> parts = [ConstantLR(opt, 0.1, steps=2), ExponentialLR(opt, gamma=0.5)]
    >>> schedule = SequentialLR(opt, parts, milestones=[2])
    >>> [schedule.rate_of_group(0, 1.0, step) for step in range(5)]
    [0.1, 0.1, 1.0, 0.5, 0.25]
    """

    def __init__(
        self, optimizer: Optimizer, schedules: Sequence[LRScheduler], milestones: Sequence[int]
    ) -> None:
        self.schedules, self.milestones = list(schedules), list(milestones)
        _check_parts("SequentialLR", optimizer, self.schedules)
        if len(self.milestones) != len(self.schedules) - 1 or any(
            a >= b for a, b in itertools.pairwise([0, *self.milestones])
        ):
            raise ValueError(
                f"SequentialLR: {len(self.schedules)} schedules need {len(self.schedules) - 1} milestones that "
                f"increase from 1, got {self.milestones}"
            )
        super().__init__(optimizer)

    def rate_of_group(self, number: int, base: float, step: int) -> float:
        part = bisect.bisect_right(self.milestones, step)
        begin = self.milestones[part - 1] if part else 0
        return self.schedules[part].rate_of_group(number, base, step - begin)


class ChainedScheduler(LRScheduler):
    """Several schedules at once: base times the factors by which each of them would multiply it.

    Only this one is stepped, and saved. Raises ValueError for schedules of another optimizer.

    >>> import weft as wf
    >>> import weft.optimizer as optim
    >>> opt = optim.SGD([wf.zeros(2)], lr=1.0)
    >>> schedule = ChainedScheduler(opt, [ConstantLR(opt, 0.1, steps=2), ExponentialLR(opt, gamma=0.5)])
    >>> [schedule.rate_of_group(0, 1.0, step) for step in range(4)]
    [0.1, 0.05, 0.25, 0.125]
    """

    def __init__(self, optimizer: Optimizer, schedules: Sequence[LRScheduler]) -> None:
        self.schedules = list(schedules)
        _check_parts("ChainedScheduler", optimizer, self.schedules)
        super().__init__(optimizer)

    def rate_of_group(self, number: int, base: float, step: int) -> float:
        factors = (each.rate_of_group(number, base, step) / base if base else 0.0 for each in self.schedules)
        return base * math.prod(factors)


class ReduceLROnPlateau(LRScheduler):
    """Multiply the rate by factor when a metric has not become better in more than `patience` steps.

    step(metric) takes a number, or a 0-d tensor, which it waits for. mode: "min" or "max", what better means.
    threshold: by how much better, as a part of the best value, or with threshold_mode="abs" as a difference. cooldown:
    steps after a reduction that do not count. min_lr: the least rate.

    >>> import weft as wf
    >>> import weft.optimizer as optim
    >>> opt = optim.SGD([wf.zeros(2)], lr=1.0)
    >>> schedule = ReduceLROnPlateau(opt, patience=1)
    >>> rates = []
    >>> for loss in (3.0, 2.0, 2.0, 2.5, 1.0):
    ...     schedule.step(loss)
    ...     rates += schedule.last_lr
    >>> rates
    [1.0, 1.0, 1.0, 0.1, 0.1]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0.0,
    ) -> None:
        name = type(self).__name__
        if not 0 < factor < 1:
            raise ValueError(f"{name}: factor must be above 0 and below 1, got {factor}")
        self.mode = _one_of(name, "mode", mode, ("min", "max"))
        self.threshold_mode = _one_of(name, "threshold_mode", threshold_mode, ("rel", "abs"))
        self.factor, self.threshold, self.min_lr = factor, threshold, min_lr
        self.patience = _at_least(name, "patience", patience, 0)
        self.cooldown = _at_least(name, "cooldown", cooldown, 0)
        self.best: float | None = None
        self.bad_steps = self.cooldown_left = 0
        super().__init__(optimizer)

    def _set(self) -> None:
        """Rates change in step() only."""

    def step(self, metric: Any = None) -> None:
        """Take the newest metric into account; raises TypeError without one."""
        if metric is None:
            raise TypeError("ReduceLROnPlateau: step takes the metric, such as the loss of the validation")
        value = float(metric)
        self.last_step += 1
        if self.is_better(value):
            self.best, self.bad_steps = value, 0
        else:
            self.bad_steps += 1
        if self.cooldown_left > 0:
            self.cooldown_left -= 1
            self.bad_steps = 0
        if self.bad_steps > self.patience:
            for group in self.optimizer.param_groups:
                group["lr"] = max(group["lr"] * self.factor, self.min_lr)
            self.cooldown_left, self.bad_steps = self.cooldown, 0

    def is_better(self, value: float) -> bool:
        """Whether a metric is enough better than the best one until now; NaN never is."""
        if self.best is None:
            return not math.isnan(value)
        margin = self.threshold * (abs(self.best) if self.threshold_mode == "rel" else 1.0)
        return value < self.best - margin if self.mode == "min" else value > self.best + margin

    def state_dict(self) -> dict[str, Any]:
        """What the next steps depend on; the learning rates are the optimizer's state."""
        counts = {"bad_steps": self.bad_steps, "cooldown_left": self.cooldown_left}
        return {**super().state_dict(), "best": self.best, **counts}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        super().check_state_dict(state)
        if missing := [name for name in ("best", "bad_steps", "cooldown_left") if name not in state]:
            raise ValueError(f"load_state_dict: ReduceLROnPlateau: missing: {', '.join(missing)}")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.best, self.bad_steps, self.cooldown_left = (
            state[name] for name in ("best", "bad_steps", "cooldown_left")
        )


_add_hints(globals())
