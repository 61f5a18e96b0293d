"""GradScaler: small gradients survive float16, overflows leave steps out, the factor follows; also in one program."""

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
    scaler = GradScaler(init_scale=8.0, growth_factor=3.0, growth_interval=7)
    w.grad = wf.ones(2)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="step was called already"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="unscale_"):
        scaler.unscale_(optimizer)
    scaler.update()
    state = {
        "scale": 8.0,
        "growth_factor": 3.0,
        "backoff_factor": 0.5,
        "growth_interval": 7,
        "growth_tracker": 1,
    }
    assert scaler.state_dict() == state
    other = GradScaler()
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == state
    other.load_state_dict({"scale": 4.0, "growth_tracker": 2})  # a file of before
    assert other.state_dict() == state | {"scale": 4.0, "growth_tracker": 2}
    scaler.update(32.0)
    assert scaler.get_scale() == 32.0
    assert scaler.scale([wf.tensor(1.0)])[0].item() == 32.0
    with pytest.raises(ValueError, match="scale and growth_tracker"):
        other.load_state_dict({})
    with pytest.raises(ValueError, match="positive"):
        scaler.update(0.0)
    with pytest.raises(ValueError, match="growth_factor"):
        GradScaler(growth_factor=1.0)


def test_programs_notice_other_settings():
    scaler = GradScaler(init_scale=8.0, growth_interval=3)
    w, _, optimizer = model()

    @wf.trace
    def step():
        w.grad = wf.ones(2)
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()

    step(), step()
    assert scaler.get_scale() == 8.0
    scaler.load_state_dict(scaler.state_dict() | {"growth_interval": 1})
    step()
    assert scaler.get_scale() == 16.0
    scaler.growth_factor = 4.0
    step()
    assert scaler.get_scale() == 64.0


def training(traced, overflow_at):
    """Seven steps of Adam with a scaler; one batch overflows. The parameters, counts of steps, and factors."""
    wf.random.seed(3)
    net = M.Sequential(M.Linear(4, 6), M.Tanh(), M.Linear(6, 2))
    optimizer = optim.Adam(net.parameters(), lr=0.05)
    manager = wf.GradManager().attach(net.parameters())
    scaler = GradScaler(init_scale=64.0, growth_interval=2)

    def step(x):
        with manager:
            loss = wf.mean(net(x) ** 2)
            manager.backward(scaler.scale(loss))
        done = scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
        return loss, done

    run = wf.trace(step, strict=True) if traced else step
    rng = np.random.default_rng(1)
    dones, scales = [], []
    for k in range(7):
        x = rng.standard_normal((3, 4), dtype=np.float32)
        if k == overflow_at:
            x[0, 0] = np.inf
        _, done = run(wf.tensor(x))
        dones.append(bool(done))
        scales.append(scaler.get_scale())
    kept = {name: np.array(value) for name, value in optimizer.state_dict()["state"].items()}
    return run, [p.numpy() for p in net.parameters()], dones, scales, kept, scaler.state_dict()


@pytest.mark.parametrize("overflow_at", [None, 0, 3])
def test_a_traced_step_is_one_program_that_leaves_steps_out(overflow_at):
    _, *eager = training(False, overflow_at)
    traced, *found = training(True, overflow_at)
    assert len(traced.programs) == 1
    params, dones, scales, kept, state = found
    assert (dones, scales, state) == tuple(eager[k] for k in (1, 2, 4))
    assert dones == [k != overflow_at for k in range(7)]
    assert all(np.isfinite(p).all() for p in params)
    for a, b in zip(params, eager[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
    assert kept.keys() == eager[3].keys()
    for name, value in eager[3].items():
        np.testing.assert_allclose(kept[name], value, rtol=1e-4, atol=1e-7, err_msg=name)


def test_float16_in_a_traced_step():
    """Gradients that float16 cannot hold survive, and the factor shrinks until they are finite."""
    w = wf.zeros(2)
    manager, optimizer = wf.GradManager().attach([w]), optim.SGD([w], lr=1.0)
    scaler = GradScaler(init_scale=2.0**40)

    @wf.trace(strict=True)
    def step(x):
        with manager:
            loss = wf.sum((w.astype("float16") * x).astype("float32")) * 1e-8
            manager.backward(scaler.scale(loss))
        done = scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
        return done

    x = wf.tensor([4.0, 8.0], dtype="float16")
    dones = [bool(step(x)) for _ in range(25)]
    assert not dones[0]
    assert dones[-1]
    assert dones == sorted(dones)  # once it fits, it goes on fitting
    assert len(step.programs) == 1
    np.testing.assert_allclose(w.numpy(), [-4e-8 * sum(dones), -8e-8 * sum(dones)], rtol=1e-3)


def test_the_scaler_outside_of_a_traced_backward():
    w, manager, optimizer = model()
    scaler = GradScaler(init_scale=8.0, growth_interval=1)

    @wf.trace
    def gradients(x):
        with manager:
            manager.backward(scaler.scale(wf.sum(w * x)))

    for k in range(3):
        gradients(wf.tensor([1.0, 1.0]))
        assert scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
        assert scaler.get_scale() == 8.0 * 2.0 ** (k + 1)
    assert w.numpy().tolist() == [-2.0, -1.0]
