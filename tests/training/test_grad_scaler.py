"""GradScaler: small gradients survive float16, overflows leave steps out, and the factor follows."""

import numpy as np
import pytest

import weft as wf
import weft.module as M
import weft.optimizer as optim
from weft.amp import GradScaler


def model():
    w = wf.tensor([1.0, 2.0])
    return w, wf.GradManager().attach([w]), optim.SGD([w], lr=1.0)


def test_small_gradients_survive():
    """1e-8 is 0 in float16; scaled by 2**16 it is not."""

    def step(scaler):
        w, manager, optimizer = model()
        with manager:
            loss = wf.sum(w.astype("float16") * 1.0).astype("float32") * 1e-8
            manager.backward(scaler.scale(loss))
        scaler.step(optimizer)
        return (1.0 - float(w.numpy()[0]), w.grad)

    # The gradient reaches the float16 part as 1e-8 (0 there) or as 1e-8 * 2**16.
    assert np.allclose(step(GradScaler(enabled=False))[1].numpy(), 0.0)
    assert np.allclose(step(GradScaler())[1].numpy(), 1e-8, rtol=1e-2)


def test_steps_are_those_without_it():
    got = []
    for scaler in (GradScaler(), GradScaler(enabled=False)):
        wf.random.seed(0)
        net = M.Linear(4, 2)
        manager, optimizer = wf.GradManager().attach(net.parameters()), optim.Adam(net.parameters(), lr=0.1)
        for _ in range(3):
            with manager:
                manager.backward(scaler.scale(wf.mean(net(wf.ones((3, 4))) ** 2)))
            assert scaler.step(optimizer)
            scaler.update()
            optimizer.clear_grad()
        got.append(net.weight.numpy())
    assert np.allclose(*got, rtol=1e-6)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_overflow_leaves_the_step_out(bad):
    w, _, optimizer = model()
    scaler = GradScaler(init_scale=8.0, growth_interval=2)
    w.grad = wf.tensor([1.0, bad])
    assert not scaler.step(optimizer)
    scaler.update()
    assert w.numpy().tolist() == [1.0, 2.0]
    assert scaler.get_scale() == 4.0
    for expected in (4.0, 8.0, 8.0, 16.0):
        w.grad = wf.tensor([4.0, 4.0])
        assert scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == expected


def test_two_optimizers_and_clipping():
    (a, _, first), (b, _, second) = model(), model()
    scaler = GradScaler(init_scale=2.0)
    a.grad, b.grad = wf.tensor([6.0, 8.0]), wf.tensor([np.inf, 0.0])
    assert scaler.unscale_(first)
    optim.clip_grad_norm([a], 1.0)
    assert scaler.step(first)
    assert not scaler.step(second)
    assert np.allclose(a.numpy(), [1 - 0.6, 2 - 0.8])
    scaler.update()
    assert scaler.get_scale() == 1.0


def test_state_and_misuse():
    w, _, optimizer = model()
    scaler = GradScaler(init_scale=8.0)
    w.grad = wf.ones(2)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="step was called already"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="unscale_"):
        scaler.unscale_(optimizer)
    scaler.update()
    other = GradScaler()
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == {"scale": 8.0, "growth_tracker": 1}
    scaler.update(32.0)
    assert scaler.get_scale() == 32.0
    assert scaler.scale([wf.tensor(1.0)])[0].item() == 32.0
    with pytest.raises(ValueError, match="scale and growth_tracker"):
        other.load_state_dict({})
    with pytest.raises(ValueError, match="positive"):
        scaler.update(0.0)
    with pytest.raises(ValueError, match="growth_factor"):
        GradScaler(growth_factor=1.0)
