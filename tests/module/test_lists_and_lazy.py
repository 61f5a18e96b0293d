"""Lists and dictionaries of modules and parameters; layers that learn their sizes; parametrizations; gradient hooks."""

import copy
import pickle

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim


@pytest.fixture(autouse=True)
def seeded():
    before = wf.random.get_state()
    wf.random.seed(1)
    yield
    wf.random.set_state(before)


def test_lists_are_lists():
    layers = M.ModuleList([M.ReLU(), M.Tanh()])
    layers.extend([M.Sigmoid()]).insert(1, M.GELU())
    assert [type(layer).__name__ for layer in layers] == ["ReLU", "GELU", "Tanh", "Sigmoid"]
    layers[0] = M.Linear(2, 2)
    del layers[1:3]
    assert [type(layer).__name__ for layer in layers[0:2]] == ["Linear", "Sigmoid"]
    assert len(layers) == 2
    assert [name for name, _ in layers.named_modules()] == ["", "0", "1"]
    for bad in (lambda: layers.append(wf.ones(1)), lambda: M.ModuleDict({"a": None})):
        with pytest.raises(TypeError, match="takes modules, got"):
            bad()


def test_names_as_in_a_plain_list():
    class Net(M.Module):
        def __init__(self, container):
            self.layers = container

    layers = [M.Linear(2, 3), M.Linear(3, 1)]
    names = [[n for n, _ in Net(c).named_parameters()] for c in (layers, M.ModuleList(layers))]
    assert names[0] == names[1]
    by_name = {"a": layers[0], "b.c": layers[1]}
    assert [n for n, _ in M.ModuleDict(by_name).named_parameters()][-1] == "b.c.bias"


def test_parameters_in_containers():
    values = M.ParameterList([wf.ones(2)]).append(wf.zeros(3))
    values[-1] = wf.ones(4)
    names = M.ParameterDict({"training": wf.ones(1), "x": wf.ones(2)})
    del names["training"]
    net = M.ModuleDict({"list": values, "dict": names})
    assert [(n, p.shape) for n, p in net.named_parameters()] == [
        ("list.0", (2,)),
        ("list.1", (4,)),
        ("dict.x", (2,)),
    ]
    other = copy.deepcopy(net)
    other.load_state_dict({n: p.numpy() * 3 for n, p in net.named_parameters()})
    assert other["list"][1].tolist() == [3.0] * 4
    assert values[1].tolist() == [1.0] * 4
    with pytest.raises(KeyError):
        names["training"]
    with pytest.raises(IndexError):
        values[2]
    with pytest.raises(ValueError, match=r"must not be empty or have dots, got 'a\.b'"):
        names["a.b"] = wf.ones(1)
    with pytest.raises(wf.DTypeError):
        values.append(wf.arange(3))


def test_what_is_added_to_a_list_is_seen_by_a_trace():
    layers = M.ModuleList([M.Linear(2, 2)])

    class Net(M.Module):
        def __init__(self):
            self.layers = layers

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    net, x = Net(), wf.ones((1, 2))
    traced = wf.trace(net)
    for _ in range(3):
        np.testing.assert_allclose(traced(x).numpy(), net(x).numpy(), rtol=1e-6)
        layers.append(M.Linear(2, 2))


LAZY = {
    "LazyLinear": ((5,), (2, 3)),
    "LazyConv1d": ((4, 3), (2, 6, 9)),
    "LazyConv2d": ((4, 3), (2, 6, 9, 9)),
    "LazyConv3d": ((4, 3), (2, 6, 5, 5, 5)),
    "LazyConvTranspose1d": ((4, 3), (2, 6, 9)),
    "LazyConvTranspose2d": ((4, 3), (2, 6, 5, 5)),
    "LazyConvTranspose3d": ((4, 3), (2, 6, 3, 3, 3)),
    "LazyBatchNorm1d": ((), (2, 6, 9)),
    "LazyBatchNorm2d": ((), (2, 6, 3, 3)),
    "LazyBatchNorm3d": ((), (2, 6, 3, 3, 3)),
    "LazyInstanceNorm1d": ((), (2, 6, 9)),
    "LazyInstanceNorm2d": ((), (2, 6, 3, 3)),
    "LazyInstanceNorm3d": ((), (2, 6, 3, 3, 3)),
}


@pytest.mark.parametrize("name", LAZY)
def test_lazy_layers_become_the_layers(name):
    args, shape = LAZY[name]
    layer, x = getattr(M, name)(*args).eval(), wf.random.normal(shape=shape)
    with pytest.raises(ValueError, match=f"0: {name} has no parameters before its first call"):
        list(M.Sequential(layer).parameters())
    wf.random.seed(5)
    y = layer(x)
    wf.random.seed(5)
    size = x.shape[-1 if name == "LazyLinear" else 1]
    expected = getattr(M, name.removeprefix("Lazy"))(size, *args).eval()
    assert type(layer) is type(expected)
    assert not layer.training
    assert repr(layer) == repr(expected)
    np.testing.assert_array_equal(y.numpy(), expected(x).numpy())
    assert list(layer.state_dict()) == list(expected.state_dict())


def test_lazy_layers_in_a_trace():
    net = M.Sequential(M.LazyLinear(3))
    with pytest.raises(RuntimeError, match="call the module once with an example before it is traced"):
        wf.trace(net, strict=True)(wf.ones((2, 4)))
    net(wf.ones((2, 4)))
    assert wf.trace(net, strict=True)(wf.ones((2, 4))).shape == (2, 3)
    with pytest.raises(wf.ShapeError, match="LazyLinear: needs at least 2 dimensions"):
        M.LazyLinear(3)(wf.ones(4))


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda: M.weight_norm(M.Linear(4, 3)),
        lambda: M.weight_norm(M.Conv2d(4, 3, 1), axis=None),
        lambda: M.spectral_norm(M.Linear(4, 3)),
        lambda: M.weight_norm(M.weight_norm(M.Linear(4, 3)), "bias"),
    ],
)
def test_parametrized_layers_are_trained(make, traced):
    layer = make()
    x = (
        wf.random.normal(shape=(8, 4, 1, 1))
        if isinstance(layer, M.Conv2d)
        else wf.random.normal(shape=(8, 4))
    )
    gm = wf.GradManager().attach(layer.parameters())
    opt = optim.SGD(layer.parameters(), lr=0.05)
    before = {name: p.numpy().copy() for name, p in layer.named_parameters()}

    def step():
        with gm:
            loss = ((layer(x) - 1) ** 2).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    run = wf.trace(step, strict=True) if traced else step
    losses = [run().item() for _ in range(20)]
    assert losses[-1] < losses[0]
    for name, p in layer.named_parameters():
        assert not np.array_equal(p.numpy(), before[name]), name


def test_parametrizations_are_copied_saved_and_removed():
    layer = M.weight_norm(M.Linear(4, 3))
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        np.testing.assert_array_equal(other.weight.numpy(), layer.weight.numpy())
        other.parametrizations["weight"].original0[...] = 2.0
        assert not np.array_equal(other.weight.numpy(), layer.weight.numpy())
    other = M.weight_norm(M.Linear(4, 3))
    other.load_state_dict(layer.state_dict())
    np.testing.assert_array_equal(other.weight.numpy(), layer.weight.numpy())
    value = layer.weight.numpy()
    M.remove_parametrization(layer, "weight")
    assert sorted(layer.state_dict()) == ["bias", "weight"]
    np.testing.assert_array_equal(layer.weight.numpy(), value)
    with pytest.raises(ValueError, match="has no parametrization of 'weight'"):
        M.remove_parametrization(layer, "weight")
    with pytest.raises(ValueError, match="Linear has no parameter 'wight'; it has: bias, weight"):
        M.weight_norm(layer, "wight")


def test_a_missing_attribute_is_still_an_error():
    layer = M.weight_norm(M.Linear(4, 3))
    with pytest.raises(AttributeError, match="wight"):
        layer.wight  # noqa: B018
    with pytest.raises(AttributeError, match="use astype"):
        layer.half()


def test_spectral_norm_finds_the_singular_value():
    for layer in (M.Linear(6, 4), M.Conv2d(3, 5, 3), M.ConvTranspose2d(3, 5, 3)):
        axis = int(isinstance(layer, M.ConvTranspose2d))
        weight = np.moveaxis(layer.weight.numpy(), axis, 0)
        normed = M.spectral_norm(layer)
        for _ in range(30):
            normed.weight  # noqa: B018  a step of the iteration each
        got = np.moveaxis(normed.eval().weight.numpy(), axis, 0)
        norm = np.linalg.svd(weight.reshape(len(weight), -1))[1][0]
        np.testing.assert_allclose(got, weight / norm, rtol=1e-3, atol=1e-5)


def test_several_steps_of_a_parametrization():
    class Times(M.Module):
        def __init__(self, factor):
            self.factor = M.Parameter(wf.tensor(factor))

        def forward(self, x):
            return x * self.factor

    layer = M.Linear(2, 2)
    before = layer.weight.numpy()
    M.parametrize(M.parametrize(layer, "weight", Times(2.0)), "weight", Times(5.0))
    np.testing.assert_allclose(layer.weight.numpy(), before * 10, rtol=1e-6)
    names = {f"parametrizations.weight.{part}" for part in ("original", "0.factor", "1.factor")}
    assert {name for name, _ in layer.named_parameters()} == {"bias", *names}

    class Wrong(M.Module):
        def forward(self, x):
            return x.sum()

    with pytest.raises(wf.ShapeError, match=r"Wrong makes the shape \(\) of Linear.bias"):
        M.parametrize(layer, "bias", Wrong())
    assert layer.bias.shape == (2,)


@pytest.mark.parametrize("traced", [False, True])
def test_gradient_hooks(traced):
    """Of the last layer, which gets the gradient first; of the first, whose input has none; replaced gradients."""
    net = M.Sequential(M.Linear(3, 4), M.Linear(4, 2))
    x = wf.random.normal(shape=(5, 3))
    called = []

    def hook(module, dx, dy):
        called.append((net[0] is module, [None if g is None else g.shape for g in dx], [g.shape for g in dy]))
        return (dx[0] * 2,) if dx[0] is not None else None

    def gradients(x):
        gm = wf.GradManager().attach(net.parameters())
        with gm:
            gm.backward(net(x).sum())
        return [p.grad for p in net.parameters()]

    plain = [g.numpy() for g in gradients(x)]
    for p in net.parameters():
        p.grad = None
    with net[0].register_backward_hook(hook), net[1].register_backward_hook(hook):
        run = wf.trace(gradients) if traced else gradients
        for _ in range(2 if traced else 1):
            for p in net.parameters():
                p.grad = None
            hooked = [g.numpy() for g in run(x)]
    # A trace also tries what the gradient of a whole call would be.
    assert called[-2:] == [(False, [(5, 4)], [(5, 2)]), (True, [None], [(5, 4)])]
    assert traced or len(called) == 2
    for k, factor in enumerate((2, 2, 1, 1)):
        np.testing.assert_allclose(hooked[k], factor * plain[k], rtol=1e-5)


def test_lambda_concurrent_unflatten():
    net = M.Concurrent(M.Identity(), M.Lambda(F.exp), axis=0)
    assert net(wf.zeros((1, 2))).tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert M.Unflatten(-1, (2, -1))(wf.zeros((3, 8))).shape == (3, 2, 4)
    with pytest.raises(wf.ShapeError):
        M.Unflatten(1, (3, 5))(wf.zeros((3, 8)))


def test_initial_values():
    x = wf.zeros((6, 2, 3, 3))
    M.init.dirac_(x, groups=3)
    image = wf.random.normal(shape=(1, 6, 5, 5))
    np.testing.assert_allclose(F.conv2d(image, x, padding=1, groups=3).numpy(), image.numpy(), rtol=1e-6)
    up = wf.zeros((1, 1, 4, 4))
    M.init.bilinear_(up)
    assert up.sum().item() == pytest.approx(4.0)
    for init, shape in ((M.init.eye_, (2,)), (M.init.dirac_, (2, 2)), (M.init.bilinear_, (2, 2))):
        with pytest.raises(wf.ShapeError):
            init(wf.zeros(shape))
    narrow = wf.ones((8, 4), dtype="bfloat16")
    M.init.sparse_(narrow, 0.5)
    assert (narrow.astype("float32") == 0).sum(axis=0).tolist() == [4] * 4
    with pytest.raises(ValueError, match=r"sparsity must be in 0\.\.1, got 2"):
        M.init.sparse_(narrow, 2)
