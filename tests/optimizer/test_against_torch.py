"""The same steps as PyTorch's, where it is installed."""

import numpy as np
import pytest

import weft as wf
import weft.optimizer as optim

torch = pytest.importorskip("torch")

CASES = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
    ("Adam", {"lr": 0.1, "weight_decay": 0.1, "betas": (0.8, 0.9)}),
    ("AdamW", {"lr": 0.1}),
    ("RMSprop", {"lr": 0.1, "alpha": 0.9, "momentum": 0.5}),
    ("Adagrad", {"lr": 0.1}),
    ("Adam", {"lr": 0.1, "amsgrad": True, "betas": (0.5, 0.5)}),
    ("SGD", {"lr": 0.1, "maximize": True}),
    ("Adadelta", {"lr": 0.5, "weight_decay": 0.1}),
    ("Adamax", {"lr": 0.1, "weight_decay": 0.1}),
    ("NAdam", {"lr": 0.1, "weight_decay": 0.1}),
    ("NAdam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.1, "weight_decay": 0.1, "betas": (0.8, 0.9)}),
    ("Rprop", {"lr": 0.1}),
    ("Adafactor", {"lr": 0.1, "weight_decay": 0.1}),
]


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_the_same_steps(name, options):
    rng = np.random.default_rng(0)
    first = rng.standard_normal((3, 4))
    own, other = wf.tensor(first), torch.nn.Parameter(torch.from_numpy(first.copy()))
    a, b = getattr(optim, name)([own], **options), getattr(torch.optim, name)([other], **options)
    schedule = optim.lr_scheduler.CosineAnnealingLR(a, 10)
    its = torch.optim.lr_scheduler.CosineAnnealingLR(b, 10)
    for _ in range(8):
        g = rng.standard_normal((3, 4))
        own.grad, other.grad = wf.tensor(g), torch.from_numpy(g)
        a.step()
        b.step()
        schedule.step()
        its.step()
        np.testing.assert_allclose(schedule.last_lr, its.get_last_lr(), rtol=1e-12)
        # PyTorch has NAdam's product of momenta in float32.
        np.testing.assert_allclose(
            own.numpy(), other.detach().numpy(), rtol=1e-7, atol=1e-8 * (name == "NAdam")
        )


def test_the_same_iterations():
    start = np.array([-1.5, 2.0])
    own, other = wf.tensor(start), torch.nn.Parameter(torch.from_numpy(start.copy()))
    a = optim.LBFGS([own], lr=0.1, max_iter=3, history_size=2)
    b = torch.optim.LBFGS([other], lr=0.1, max_iter=3, history_size=2)
    gm = wf.GradManager().attach([own])

    def loss(w):
        return (1 - w[0]) ** 2 + 10 * (w[1] - w[0] ** 2) ** 2 + w[0] ** 4

    def closure():
        with gm:
            value = loss(own)
            gm.backward(value)
        return value

    def its_closure():
        b.zero_grad()
        value = loss(other)
        value.backward()
        return value

    for _ in range(6):
        np.testing.assert_allclose(a.step(closure).item(), b.step(its_closure).item(), rtol=1e-10)
        np.testing.assert_allclose(own.numpy(), other.detach().numpy(), rtol=1e-10)


def test_the_same_rates():
    T, S = torch.optim.lr_scheduler, optim.lr_scheduler
    for make, its in (
        (
            lambda o: S.CosineAnnealingWarmRestarts(o, 3, 2, 0.1),
            lambda o: T.CosineAnnealingWarmRestarts(o, 3, 2, 0.1),
        ),
        (lambda o: S.OneCycleLR(o, 2.0, 15), lambda o: T.OneCycleLR(o, 2.0, 15, cycle_momentum=False)),
        (
            lambda o: S.OneCycleLR(o, 2.0, 15, anneal="linear", three_phases=True),
            lambda o: T.OneCycleLR(
                o, 2.0, 15, anneal_strategy="linear", three_phase=True, cycle_momentum=False
            ),
        ),
        (
            lambda o: S.CyclicLR(o, 2.0, 3, 2, "triangular2"),
            lambda o: T.CyclicLR(o, 0.5, 2.0, 3, 2, "triangular2", cycle_momentum=False),
        ),
        (lambda o: S.LinearLR(o, 0.2, 0.9, 4), lambda o: T.LinearLR(o, 0.2, 0.9, 4)),
        (lambda o: S.PolynomialLR(o, 5, 2.0), lambda o: T.PolynomialLR(o, 5, 2.0)),
    ):
        a = optim.SGD([wf.zeros(1)], lr=0.5)
        b = torch.optim.SGD([torch.zeros(1)], lr=0.5)
        own, other = make(a), its(b)
        for _ in range(14):
            np.testing.assert_allclose(own.last_lr, other.get_last_lr(), rtol=1e-9)
            own.step()
            b.step()
            other.step()


@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0, float("inf")])
def test_the_same_clipping(norm):
    rng = np.random.default_rng(0)
    grads = [rng.standard_normal(s) for s in ((3, 4), (5,))]
    own = [wf.zeros(g.shape, dtype="float64") for g in grads]
    other = [torch.zeros(g.shape, dtype=torch.float64, requires_grad=True) for g in grads]
    for p, q, g in zip(own, other, grads, strict=True):
        p.grad, q.grad = wf.tensor(g), torch.from_numpy(g.copy())
    a = optim.clip_grad_norm(own, 1.0, norm)
    b = torch.nn.utils.clip_grad_norm_(other, 1.0, norm)
    np.testing.assert_allclose(a.item(), b.item(), rtol=1e-12)
    for p, q in zip(own, other, strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-5)
