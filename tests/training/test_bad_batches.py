"""One batch that fails: nothing of it is left in what training goes on from."""

import contextlib

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim

STEPS = {
    "eager": lambda step: step,
    "traced": lambda step: wf.trace(step, strict=True),
    "lazy": lambda step: wf.trace(step, strict=True, lazy=True),
    "dynamic": lambda step: wf.trace(step, dynamic={"x": 0, "labels": 0}),
}
OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: optim.Adam(p, lr=0.05),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01),
}
SIZES = {"small": (16, 8), "large": (256, 512)}


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    with contextlib.suppress(wf.EngineError):
        wf.waitall()


def training(optimizer, width, kind):
    wf.random.seed(0)
    net = M.Sequential(M.Linear(4, width), M.BatchNorm1d(width), M.ReLU(), M.Linear(width, 3))
    opt = OPTIMIZERS[optimizer](net.parameters())
    gm = wf.GradManager().attach(net.parameters())

    def step(x, labels):
        with gm:
            loss = F.cross_entropy(net(x), labels)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    return net, opt, STEPS[kind](step)


def state(net, opt):
    parameters = dict(net.named_parameters())
    return {name: x.numpy().copy() for name, x in (parameters | opt.state_dict()["state"]).items()}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", STEPS)
def test_a_label_out_of_range_is_left_out(kind, optimizer, size):
    if size == "large" and optimizer != "adam":
        pytest.skip("one is enough")
    batch, width = SIZES[size]
    net, opt, step = training(optimizer, width, kind)
    x = wf.tensor(np.random.default_rng(0).normal(size=(batch, 4)).astype("float32"))
    good, bad = wf.arange(batch) % 3, wf.full(batch, 5)
    for round in range(3):
        step(x, good).wait()
        before = state(net, opt)
        losses = [step(x, bad) for _ in range(2)]  # several, before anybody looks
        for loss in losses:
            with pytest.raises(IndexError, match="target 5 is none of the 3 classes"):
                loss.item()
        after = state(net, opt)
        assert all(np.array_equal(after[name], before[name]) for name in before), round
        assert int(opt.state_dict()["state"]["0.step"]) == round + 1
    assert np.isfinite(step(x, good).item())
    wf_again = state(net, opt)
    assert any(not np.array_equal(wf_again[name], before[name]) for name in before)


@pytest.mark.parametrize("kind", ["eager", "traced"])
def test_after_an_index_out_of_range_in_the_model(kind):
    wf.random.seed(0)
    table, norm = M.Embedding(10, 4), M.BatchNorm1d(4)
    parameters = [*table.parameters(), *norm.parameters()]
    opt, gm = optim.AdamW(parameters, lr=0.1), wf.GradManager().attach(parameters)

    def step(i):
        with gm:
            loss = (norm(table(i)) ** 2).sum()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    step = STEPS[kind](step)
    good, bad = wf.arange(4), wf.tensor([0, 1, 2, 99])
    step(good).item()
    before = {name: x.numpy().copy() for name, x in norm.state_dict().items()}
    with pytest.raises(IndexError, match="99"):
        step(bad).item()
    assert all(np.array_equal(x.numpy(), before[name]) for name, x in norm.state_dict().items())
    assert np.isfinite(step(good).item())


@pytest.mark.parametrize("kind", ["eager", "traced", "lazy"])
def test_only_what_depends_on_a_failure_is_poisoned(kind):
    x = wf.arange(4.0)
    early, late, wrong = wf.zeros(1), wf.zeros(1), wf.zeros(1)

    def function(i):
        early.__iadd__(1)
        y = F.take(x, i, axis=0) * 2
        wrong.__iadd__(y.sum())
        late.__iadd__(1)
        return y, F.exp(x)

    call = STEPS[kind](function)
    for indices in ([0], [0], [99]):
        y, z = call(wf.tensor(indices))
    assert (early.item(), late.item()) == (3, 3)
    assert np.allclose(z.numpy(), np.exp(np.arange(4)))
    for bad in (y, wrong):
        with pytest.raises(IndexError, match="index 99 is out of range"):
            bad.numpy()
    wf.clear_errors({"wrong": [wrong]})
    assert wrong.item() == 0
    call(wf.tensor([1]))
    assert (early.item(), late.item(), wrong.item()) == (4, 4, 2)


def test_gradients_that_are_added_up():
    net = M.Linear(2, 3)
    opt, gm = optim.SGD(net.parameters(), lr=1.0), wf.GradManager().attach(net.parameters())

    def add(labels):
        with gm:
            gm.backward(F.cross_entropy(net(wf.ones((1, 2))), wf.tensor(labels)))

    add([0]), add([7])
    with pytest.raises(IndexError):
        net.weight.grad.numpy()
    before = net.weight.numpy().copy()
    opt.step()
    assert np.array_equal(net.weight.numpy(), before)
    wf.clear_errors(net, opt)
    assert net.weight.grad is None
    add([0])
    opt.step()
    assert not np.array_equal(net.weight.numpy(), before)
    with pytest.raises(TypeError, match="clear_errors: takes tensors, modules and optimizers, got object"):
        wf.clear_errors(object())
