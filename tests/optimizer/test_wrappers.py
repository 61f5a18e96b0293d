"""SAM, master weights, schedule-free optimizers, SGLD, DCASGD, Adagrad of rows, centred gradients: by definitions."""

import numpy as np
import pytest

import weft as wf
import weft.optimizer as optim


def quadratic(w, matrix):
    """A closure of the loss w . A w / 2, and its GradManager."""
    gm = wf.GradManager().attach([w])

    def closure():
        with gm:
            loss = (w * (matrix @ w)).sum() / 2
            gm.backward(loss)
        return loss

    return closure


MATRIX = np.array([[3.0, 1.0], [1.0, 2.0]])


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("traced", [False, True])
def test_sam(adaptive, traced):
    w = wf.tensor([1.0, -2.0], dtype="float64")
    closure = quadratic(w, wf.tensor(MATRIX))
    opt = optim.SAM(optim.SGD([w], lr=0.1, momentum=0.9), rho=0.3, adaptive=adaptive)
    step = wf.trace(lambda: opt.step(closure)) if traced else lambda: opt.step(closure)
    expected, momentum = np.array([1.0, -2.0]), np.zeros(2)
    for _ in range(5):
        loss = step()
        g = MATRIX @ expected
        assert loss.item() == pytest.approx(expected @ g / 2)
        scale = abs(expected) if adaptive else 1.0
        climbed = expected + 0.3 * scale * scale * g / np.linalg.norm(scale * g)
        momentum = 0.9 * momentum + MATRIX @ climbed
        expected = expected - 0.1 * momentum
        np.testing.assert_allclose(w.numpy(), expected, rtol=1e-10)


def test_sam_restores_the_parameters_of_a_failed_closure():
    w = wf.tensor([1.0, 2.0])
    closure, calls = quadratic(w, wf.tensor(MATRIX.astype("float32"))), []

    def failing():
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("stop")
        return closure()

    with pytest.raises(RuntimeError, match="stop"):
        optim.SAM(optim.SGD([w], lr=0.1)).step(failing)
    assert w.tolist() == [1.0, 2.0]
    with pytest.raises(TypeError, match="step takes a closure"):
        optim.SAM(optim.SGD([w], lr=0.1)).step()
    with pytest.raises(ValueError, match="rho must be positive, got 0"):
        optim.SAM(optim.SGD([w], lr=0.1), rho=0)


@pytest.mark.parametrize("traced", [False, True])
def test_master_weights(traced):
    """The copies follow float32 training with the rounded gradients exactly; the parameters are the rounded copies."""
    narrow, wide, other = wf.ones(3, dtype="bfloat16"), wf.ones(3), wf.ones(2)
    opt = optim.MasterWeights([narrow, other], lambda params: optim.AdamW(params, lr=1e-3))
    reference = optim.AdamW([wide], lr=1e-3)

    def step(g):
        narrow.grad, other.grad = g, wf.ones(2)
        opt.step().clear_grad()
        return narrow

    run = wf.trace(step) if traced else step
    for k in range(10):
        g = wf.tensor([1.0, -2.0, 0.5 * k]).astype("bfloat16")
        run(g)
        wide.grad = g.astype("float32")
        reference.step().clear_grad()
    np.testing.assert_array_equal(opt.masters[0].numpy(), wide.numpy())
    assert opt.masters[1] is other
    np.testing.assert_array_equal(
        narrow.astype("float32").numpy(), wide.astype("bfloat16").astype("float32").numpy()
    )
    again = wf.ones(3, dtype="bfloat16")
    loaded = optim.MasterWeights([again, wf.ones(2)], lambda params: optim.AdamW(params, lr=1e-3))
    loaded.load_state_dict(opt.state_dict())
    np.testing.assert_array_equal(again.astype("float32").numpy(), narrow.astype("float32").numpy())
    with pytest.raises(ValueError, match="copies of other shapes"):
        optim.MasterWeights([wf.ones(4)], lambda params: optim.AdamW(params)).load_state_dict(
            opt.state_dict()
        )


@pytest.mark.parametrize("warmup", [0, 4])
@pytest.mark.parametrize("adam", [False, True])
@pytest.mark.parametrize("traced", [False, True])
def test_schedule_free(adam, warmup, traced):
    """z, x and y as the paper defines them; x is the average with squared rates as weights."""
    begin = np.array([1.0, -2.0])
    w = wf.tensor(begin, dtype="float64")
    closure = quadratic(w, wf.tensor(MATRIX))
    options = {"lr": 0.1, "weight_decay": 0.05, "warmup_steps": warmup}
    opt = optim.ScheduleFreeAdamW([w], **options) if adam else optim.ScheduleFreeSGD([w], **options)

    def step():
        loss = closure()
        opt.step().clear_grad()
        return loss

    run = wf.trace(step) if traced else step
    x, y, z, v, total = begin, begin, begin, np.zeros(2), 0.0
    for t in range(1, 9):
        run()
        g = d = MATRIX @ y
        if adam:
            v = 0.999 * v + 0.001 * g * g
            d = g / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        rate = 0.1 * (min(t / warmup, 1) if warmup else 1)
        z = z - rate * (d + 0.05 * y)
        total += rate**2
        x = x + rate**2 / total * (z - x)
        y = 0.1 * z + 0.9 * x
        np.testing.assert_allclose(w.numpy(), y, rtol=1e-9)
    opt.eval()
    np.testing.assert_allclose(w.numpy(), x, rtol=1e-9)
    with pytest.raises(RuntimeError, match=r"call train\(\) first"):
        opt.eval().step()
    opt.train()
    np.testing.assert_allclose(w.numpy(), y, rtol=1e-9)


def test_delayed_gradients():
    w = wf.tensor([1.0, -2.0], dtype="float64")
    opt = optim.DCASGD([w], lr=0.1, momentum=0.5, lamda=0.3, weight_decay=0.01)
    p, m, before = np.array([1.0, -2.0]), np.zeros(2), np.array([1.0, -2.0])
    for k in range(4):
        w.grad = wf.tensor([1.0 + k, -0.5], dtype="float64")
        shift = 0.1 * k  # by another worker
        w += shift
        p = p + shift
        opt.step()
        g = np.array([1.0 + k, -0.5])
        m = 0.5 * m - 0.1 * (g + 0.01 * p + 0.3 * g * g * (p - before))
        p = before = p + m
        np.testing.assert_allclose(w.numpy(), p, rtol=1e-12)


def test_adagrad_of_rows():
    w = wf.zeros((3, 2), dtype="float64")
    opt = optim.GroupAdagrad([w], lr=0.1)
    p, h = np.zeros((3, 2)), np.zeros((3, 1))
    for k in range(3):
        g = np.array([[1.0, k], [0.0, 0.0], [2.0, -1.0]])
        w.grad = wf.tensor(g)
        opt.step()
        h = h + (g * g).mean(axis=1, keepdims=True)
        p = p - 0.1 * g / (np.sqrt(h) + 1e-5)
        np.testing.assert_allclose(w.numpy(), p, rtol=1e-12)


def test_steps_of_sgld_are_noise_of_its_rate():
    before = wf.random.get_state()
    wf.random.seed(3)
    w = wf.zeros(20000)
    opt = optim.SGLD([w], lr=0.04)
    w.grad = wf.ones(20000)
    opt.step()
    wf.random.set_state(before)
    assert w.mean().item() == pytest.approx(-0.02, abs=0.006)
    assert w.std().item() == pytest.approx(0.2, rel=0.03)


def test_centred_gradients():
    w, b = wf.zeros((2, 3, 2)), wf.zeros(3)
    w.grad, b.grad = wf.arange(12, dtype="float32").reshape(2, 3, 2), wf.ones(3)
    optim.center_grad([w, b])
    np.testing.assert_allclose(w.grad.sum(axis=(1, 2)).numpy(), [0, 0], atol=1e-5)
    assert b.grad.tolist() == [1.0] * 3
