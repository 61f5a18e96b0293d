"""What training is made of, on a GPU and on the processor. test_gpu_training.py runs it in processes that have GPUs."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
import weft.symbol as sym
from weft.kvstore import create

DEVICES = ["cpu:0", "gpu:0"]
rng = np.random.default_rng(0)
IMAGES = rng.standard_normal((6, 5)).astype("float32")
LABELS = rng.integers(0, 3, 6)


def on_both(call):
    """What a call gives on each device, as arrays of NumPy."""
    results = []
    for device in DEVICES:
        with wf.device(device):
            wf.random.seed(1, device=device)
            results.append([x.numpy() for x in call(device)])
    return results


def check_both(call, rtol=2e-5):
    for want, got in zip(*on_both(call), strict=True):
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


def network(device):
    """No bias before BatchNorm: its gradient would be rounding alone, whose sign many methods follow."""
    layers = M.Linear(5, 7, bias=False), M.BatchNorm1d(7), M.Tanh(), M.Linear(7, 3)
    return M.Sequential(*layers).to_device(device)


def steps_of(net, optimizer, is_traced, count=3):
    """Losses of some steps."""
    gm = wf.GradManager().attach(net.parameters())
    device = next(iter(net.parameters())).device

    def step(x, y):
        with gm:
            loss = F.cross_entropy(net(x), y)
            gm.backward(loss)
        optimizer.step().clear_grad()
        return loss

    step = wf.trace(step) if is_traced else step
    x, y = wf.tensor(IMAGES, device=device), wf.tensor(LABELS, device=device)
    return [step(x, y) for _ in range(count)]


def methods():
    """Every optimizer that makes a step from gradients alone."""
    classes, found = [optim.Optimizer], []
    while classes:
        cls = classes.pop()
        classes += cls.__subclasses__()
        if hasattr(cls, "options") and not cls.__name__.startswith("_") and cls is not optim.LBFGS:
            found.append(cls)
    return sorted(
        {cls for cls in found if cls.__module__.startswith("weft.optimizer")}, key=lambda c: c.__name__
    )


@pytest.mark.parametrize("is_traced", [False, True], ids=["eager", "traced"])
@pytest.mark.parametrize("method", methods(), ids=lambda cls: cls.__name__)
def test_optimizers(method, is_traced):
    def call(device):
        net = network(device)
        trained = [
            x for x in net.parameters() if x.ndim > 1 or method is not optim.Muon
        ]  # which takes no vectors
        losses = steps_of(net, method(trained, lr=0.01), is_traced)
        return [*losses, *net.parameters(), *net.buffers()]

    check_both(call, rtol=1e-4)


def test_symbols():
    h = F.tanh(F.linear(sym.var("data"), out_features=4, name="fc1"))
    net = F.cross_entropy(F.linear(h, out_features=3, name="fc2"), sym.var("label"), name="loss")
    values = np.random.default_rng(2)
    shapes = dict(zip(net.list_arguments(), net.infer_shape(data=(6, 5), label=(6,))[0], strict=True))
    given = {name: values.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    given |= {"data": IMAGES, "label": LABELS}

    def call(device):
        arrays = {name: wf.tensor(a, device=device) for name, a in given.items()}
        slopes = {name: wf.zeros(x.shape, device=device) for name, x in arrays.items() if name != "label"}
        executor = net.bind(wf.as_device(device), arrays, args_grad=slopes)
        outputs = executor.forward(is_train=True)
        executor.backward()
        return [*outputs, *slopes.values()]

    check_both(call)


def test_functional_transformations():
    w = rng.standard_normal((5, 3)).astype("float32")

    def call(device):
        w_there, x = wf.tensor(w, device=device), wf.tensor(IMAGES, device=device)

        def f(row):
            return F.softmax(row @ w_there)

        jacobians = wf.vmap(wf.jacobian(f))(x)
        hessian = wf.hessian(lambda row: (f(row) ** 2).sum())(x[0])
        value, tangent = wf.jvp(f, (x[0],), (x[1],))
        return [wf.vmap(f)(x), jacobians, hessian, value, tangent]

    check_both(call)


def test_checkpoints_move_between_devices(tmp_path):
    """Saved there, loaded here, and the other way round: the steps that follow are the same."""
    losses = {}
    for first, second in (("gpu:0", "cpu:0"), ("cpu:0", "gpu:1"), ("cpu:0", "cpu:0")):
        wf.random.seed(3)
        net = network("cpu:0").to_device(first)
        for x in net.parameters():
            x[...] = wf.full(x.shape, 0.25, device=first)
        optimizer = optim.Adam(net.parameters(), lr=0.02)
        steps_of(net, optimizer, False, 2)
        wf.checkpoint.save(tmp_path / "run.safetensors", net=net, optimizer=optimizer)
        net = network(second)
        optimizer = optim.Adam(net.parameters(), lr=0.02)
        wf.checkpoint.load(tmp_path / "run.safetensors", net=net, optimizer=optimizer)
        assert {str(x.device) for x in net.parameters()} == {second}
        losses[first, second] = [x.item() for x in steps_of(net, optimizer, False, 3)]
    want = losses.pop(("cpu:0", "cpu:0"))
    for got in losses.values():
        np.testing.assert_allclose(got, want, rtol=1e-4)


@pytest.mark.parametrize("kind", ["local", "device"])
def test_stores_of_one_process(kind):
    store = create(kind)
    store.init("w", wf.ones(3, device="gpu:0"))
    values = [wf.full(3, 2.0, device="gpu:0"), wf.full(3, 3.0, device="gpu:1"), wf.full(3, 5.0)]
    store.push("w", values)
    outputs = [wf.zeros(3, device=device) for device in ("gpu:1", "cpu:0", "gpu:0")]
    store.pull("w", outputs)
    assert [x.tolist() for x in outputs] == [[10.0] * 3] * 3
    store.set_optimizer(optim.SGD([wf.zeros(3, device="gpu:0")], lr=0.5))
    store.push("w", [wf.ones(3, device="gpu:1"), wf.ones(3, device="gpu:0")])
    assert store.pull("w").tolist() == [9.0] * 3


def test_a_network_on_two_devices():
    def losses(first, second):
        wf.random.seed(1)
        a, b = M.Linear(5, 7), M.Linear(7, 3)
        for layer in (a, b):
            for x in layer.parameters():
                x[...] = wf.tensor(np.random.default_rng(x.size).standard_normal(x.shape).astype("float32"))
        a, b = a.to_device(first), b.to_device(second)
        parameters = [*a.parameters(), *b.parameters()]
        gm, optimizer = wf.GradManager().attach(parameters), optim.SGD(parameters, lr=0.1, momentum=0.9)
        x, y = wf.tensor(IMAGES, device=first), wf.tensor(LABELS, device=second)
        results = []
        for _ in range(4):
            with gm:
                loss = F.cross_entropy(b(F.tanh(a(x)).to_device(second)), y)
                gm.backward(loss)
            optimizer.step().clear_grad()
            results.append(loss.item())
        return results

    want = losses("cpu:0", "cpu:0")
    for pair in (("gpu:0", "gpu:1"), ("gpu:1", "cpu:0"), ("cpu:0", "gpu:0")):
        np.testing.assert_allclose(losses(*pair), want, rtol=1e-5)
