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
every_schedule = pytest.mark.parametrize("name", CASES)


def test_the_table_has_every_schedule():
    assert set(CASES) | {"LRScheduler"} == set(S.__all__)


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
        (lambda: S.LinearWarmup(opt, 1, then=S.StepLR(optimizer(1.0), 1)), "of the same optimizer"),
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
