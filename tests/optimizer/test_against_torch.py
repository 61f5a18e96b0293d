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
        np.testing.assert_allclose(own.numpy(), other.detach().numpy(), rtol=1e-7)


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
