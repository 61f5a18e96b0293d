"""A whole training step as one program: forward, backward, clipping, and the optimizer's update."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim


def train(kind, options, traced):
    wf.random.seed(0)
    net = M.Sequential(M.Linear(4, 8, bias=False), M.BatchNorm1d(8), M.ReLU(), M.Dropout(0.2), M.Linear(8, 3))
    opt = getattr(optim, kind)(net.parameters(), lr=0.1, **options)
    schedule = optim.lr_scheduler.ExponentialLR(opt, 0.8)
    gm = wf.GradManager().attach(net.parameters())

    def step(x, y):
        with gm:
            loss = F.cross_entropy(net(x), y)
            gm.backward(loss)
        optim.clip_grad_norm(net.parameters(), 1.0)
        opt.step().clear_grad()
        return loss

    run = wf.trace(step, strict=True) if traced else step
    rng = np.random.default_rng(0)
    losses = []
    for _ in range(6):
        x, y = wf.tensor(rng.standard_normal((16, 4), "float32")), wf.tensor(rng.integers(0, 3, 16))
        losses.append(run(x, y).item())
        schedule.step()
    tensors = {**net.state_dict(), **opt.state_dict()["state"]}
    return losses, {name: x.numpy() for name, x in tensors.items()}, run


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("SGD", {}),
        ("SGD", {"momentum": 0.9, "nesterov": True}),
        ("Adam", {"weight_decay": 0.1}),
        ("AdamW", {}),
        ("RMSprop", {"momentum": 0.5}),
        ("Adagrad", {}),
    ],
    ids=str,
)
def test_a_traced_step_is_the_step(kind, options):
    """Neither the step's number nor the learning rate is part of the program: one serves all steps."""
    losses, want, _ = train(kind, options, traced=False)
    traced_losses, got, run = train(kind, options, traced=True)
    assert len(run.programs) == 1
    np.testing.assert_allclose(traced_losses, losses, rtol=1e-4)
    assert got.keys() == want.keys()
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-3, atol=1e-5, err_msg=name)
    assert int(got["0.step"]) == 6
