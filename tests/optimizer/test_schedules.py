"""Learning rates over steps, and going on from a state."""

import math

import numpy as np
import pytest

import weft as wf
import weft.optimizer as optim
from weft.optimizer import lr_scheduler as S


def optimizer(*rates):
    return optim.SGD([{"params": [wf.zeros(2)], "lr": lr} for lr in rates])


CASES = {
    "StepLR": (lambda o: S.StepLR(o, 2, 0.5), lambda t: 0.5 ** (t // 2)),
    "MultiStepLR": (lambda o: S.MultiStepLR(o, [1, 4]), lambda t: 0.1 ** ((t >= 1) + (t >= 4))),
    "ExponentialLR": (lambda o: S.ExponentialLR(o, 0.9), lambda t: 0.9**t),
    "CosineAnnealingLR": (
        lambda o: S.CosineAnnealingLR(o, 4),
        lambda t: (1 + math.cos(math.pi * min(t, 4) / 4)) / 2,
    ),
    "LambdaLR": (lambda o: S.LambdaLR(o, lambda t: 1 / (t + 1)), lambda t: 1 / (t + 1)),
    "LinearWarmup": (
        lambda o: S.LinearWarmup(o, 3, 0.1, S.StepLR(o, 1, 0.5)),
        lambda t: 0.1 + 0.9 * t / 3 if t < 3 else 0.5 ** (t - 3),
    ),
}
CASES |= {
    "MultiplicativeLR": (lambda o: S.MultiplicativeLR(o, lambda t: 1 / t), lambda t: 1 / math.factorial(t)),
    "CosineAnnealingWarmRestarts": (
        lambda o: S.CosineAnnealingWarmRestarts(o, 2, 2),
        lambda t: (1 + math.cos(math.pi * (t / 2 if t < 2 else (t - 2) / 4 if t < 6 else (t - 6) / 8))) / 2,
    ),
    "ConstantLR": (lambda o: S.ConstantLR(o, 0.5, 3), lambda t: 0.5 if t < 3 else 1),
    "LinearLR": (lambda o: S.LinearLR(o, 0.5, 0.1, 4), lambda t: 0.5 - 0.1 * min(t, 4)),
    "PolynomialLR": (lambda o: S.PolynomialLR(o, 4, 2.0), lambda t: (1 - min(t, 4) / 4) ** 2),
    "CyclicLR": (
        lambda o: S.CyclicLR(o, [5.0, 1.25][: len(o.param_groups)], 2, 1, "exp_range", 0.5),
        lambda t: 1 + 4 * [0, 0.5, 1][t % 3] * 0.5**t,
    ),
    "OneCycleLR": (
        lambda o: S.OneCycleLR(o, [1.0, 0.25][: len(o.param_groups)], 7, 3 / 7, "linear", 10.0, 5.0),
        lambda t: 0.1 + 0.45 * t if t <= 2 else 1 - (min(t, 6) - 2) / 4 * 0.98,
    ),
    "SequentialLR": (
        lambda o: S.SequentialLR(o, [S.ConstantLR(o, 0.5, 9), S.LambdaLR(o, lambda t: 1 / (t + 1))], [3]),
        lambda t: 0.5 if t < 3 else 1 / (t - 2),
    ),
    "ChainedScheduler": (
        lambda o: S.ChainedScheduler(o, [S.ExponentialLR(o, 0.5), S.ConstantLR(o, 0.1, 2)]),
        lambda t: 0.5**t * (0.1 if t < 2 else 1),
    ),
}
every_schedule = pytest.mark.parametrize("name", CASES)


def test_the_table_has_every_schedule():
    assert set(CASES) | {"LRScheduler", "ReduceLROnPlateau"} == set(S.__all__)


@every_schedule
def test_rates(name):
    make, share = CASES[name]
    opt = optimizer(1.0, 0.25)
    schedule = make(opt)
    for t in range(8):
        np.testing.assert_allclose(schedule.last_lr, [share(t), 0.25 * share(t)], rtol=1e-12)
        schedule.step()


@every_schedule
def test_a_state_goes_on(name):
    make, _ = CASES[name]
    one, other = optimizer(1.0), optimizer(1.0)
    a, b = make(one), make(other)
    for _ in range(3):
        a.step()
    b.load_state_dict(a.state_dict())
    other.load_state_dict(one.state_dict())
    for _ in range(3):
        assert a.last_lr == b.last_lr
        a.step()
        b.step()


@every_schedule
def test_hostile_states(name):
    schedule = CASES[name][0](optimizer(1.0))
    for state, words in (
        ({}, "takes what"),
        (5, "takes what"),
        ({"scheduler": "Other", "last_step": 1}, "is of 'Other'"),
        ({"scheduler": name, "last_step": -1}, "must be an integer from 0"),
        ({"scheduler": name, "last_step": 1.5}, "must be an integer from 0"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            schedule.load_state_dict(state)
        assert schedule.last_step == 0


def test_the_rate_reaches_the_update():
    w = wf.zeros(1)
    opt = optim.SGD([w], lr=1.0)
    schedule = S.ExponentialLR(opt, 0.5)
    for _ in range(3):
        w.grad = wf.ones(1)
        opt.step()
        schedule.step()
    assert w.item() == -1.75


def test_schedules_that_cannot_be():
    opt = optimizer(1.0)
    for make, words in (
        (lambda: S.StepLR(None, 1), "takes an optimizer, got NoneType"),
        (lambda: S.StepLR(opt, 0), "step_size must be at least 1"),
        (lambda: S.MultiStepLR(opt, [3, 2]), "milestones must increase"),
        (lambda: S.CosineAnnealingLR(opt, 0), "t_max must be at least 1"),
        (lambda: S.LinearWarmup(opt, 0), "steps must be at least 1"),
        (lambda: S.LinearWarmup(opt, 1, then=S.StepLR(optimizer(1.0), 1)), "of another optimizer"),
        (lambda: S.LinearWarmup(opt, 1, then=S.ReduceLROnPlateau(opt)), "follows a metric"),
        (lambda: S.SequentialLR(opt, [S.StepLR(opt, 1)], [2]), "1 schedules need 0 milestones"),
        (lambda: S.SequentialLR(opt, [S.StepLR(opt, 1)] * 3, [2, 2]), "that increase"),
        (lambda: S.ChainedScheduler(opt, [S.StepLR(optimizer(1.0), 1)]), "of another optimizer"),
        (lambda: S.CyclicLR(opt, [1.0, 2.0]), "max_lr has 2 values for 1 groups"),
        (lambda: S.CyclicLR(opt, 1.0, mode="saw"), "mode must be one of triangular"),
        (lambda: S.OneCycleLR(opt, 1.0, 1), "steps must be at least 2"),
        (lambda: S.ReduceLROnPlateau(opt, factor=1.0), "factor must be above 0 and below 1"),
        (lambda: S.LambdaLR(opt, [len, len]), "2 functions for 1 groups"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            make()


def test_a_group_that_comes_later():
    opt = optimizer(1.0)
    schedule = S.ExponentialLR(opt, 0.5)
    opt.add_param_group({"params": [wf.zeros(1)], "lr": 0.5})
    schedule.step()
    assert schedule.last_lr == [0.5, 0.25]


def test_a_plateau():
    opt = optimizer(1.0, 0.01)
    schedule = S.ReduceLROnPlateau(opt, patience=1, factor=0.5, cooldown=2, min_lr=0.004)
    losses = [3.0, 2.0, 1.99999, math.nan, 2.0, 2.0, 2.0, 2.0, 1.0, wf.tensor(2.0)]
    rates = []
    for loss in losses:
        schedule.step(loss)
        rates.append(schedule.last_lr[0])
    assert rates == [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25]
    assert schedule.last_lr[1] == 0.004
    with pytest.raises(TypeError, match="takes the metric"):
        schedule.step()

    other = S.ReduceLROnPlateau(optimizer(1.0, 0.01), patience=1, factor=0.5, cooldown=2, min_lr=0.004)
    with pytest.raises(ValueError, match="missing: best"):
        other.load_state_dict({"scheduler": "ReduceLROnPlateau", "last_step": 1})
    other.load_state_dict(schedule.state_dict())
    other.optimizer.load_state_dict(opt.state_dict())
    for _ in range(4):
        for each in (schedule, other):
            each.step(5.0)
        assert schedule.last_lr == other.last_lr


def test_a_plateau_of_accuracy():
    schedule = S.ReduceLROnPlateau(optimizer(1.0), "max", patience=0, threshold=0.1, threshold_mode="abs")
    rates = []
    for accuracy in (0.5, 0.55, 0.7):
        schedule.step(accuracy)
        rates += schedule.last_lr
    np.testing.assert_allclose(rates, [1.0, 0.1, 0.1])
