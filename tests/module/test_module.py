"""What a Module finds, lists, changes, saves and shows."""

import copy
import pickle

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
from weft.base.errors import DTypeError, ShapeError


class Net(M.Module):
    def __init__(self):
        self.layers = [M.Linear(2, 3), {"head": M.Linear(3, 1)}]
        self.norm = M.BatchNorm1d(3)
        self.scale = M.Parameter(wf.ones(()))

    def forward(self, x):
        return self.layers[1]["head"](self.norm(self.layers[0](x))) * self.scale


def values(module):
    return {name: x.numpy().copy() for name, x in module.state_dict().items()}


def assert_equal(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def test_names_are_paths_own_parameters_first():
    assert [name for name, _ in Net().named_parameters()] == [
        "scale",
        "layers.0.weight",
        "layers.0.bias",
        "layers.1.head.weight",
        "layers.1.head.bias",
        "norm.weight",
        "norm.bias",
    ]
    assert [name for name, _ in Net().named_buffers()] == ["norm.running_mean", "norm.running_var"]
    assert [name for name, _ in Net().named_modules()] == ["", "layers.0", "layers.1.head", "norm"]
    assert next(name for name, _ in Net().named_parameters("net")) == "net.scale"
    assert [type(m).__name__ for m in Net().children()] == ["Linear", "Linear", "BatchNorm1d"]


def test_a_forgotten_super_init_does_no_harm():
    assert len(list(Net().parameters())) == 7  # Net has none


def test_parameters_are_plain_tensors_and_stay_the_same_object():
    x = wf.zeros(3)
    module = M.Module()
    module.weight = M.Parameter(x)
    assert module.weight is x
    assert type(module.weight) is wf.Tensor
    assert list(module.parameters()) == [x] or next(module.parameters()) is x


def test_plain_tensors_are_neither_parameters_nor_buffers():
    module = M.Module()
    module.x = wf.zeros(3)
    assert list(module.state_dict()) == []


def test_parameters_are_not_replaced_by_accident():
    layer = M.Linear(2, 2)
    with pytest.raises(TypeError, match=r"Linear.weight is a parameter .* weight\[\.\.\.\] = x"):
        layer.weight = wf.zeros((2, 2))
    layer.weight = M.Parameter(wf.zeros((5, 2)))
    assert layer.weight.shape == (5, 2)
    layer.bias = None
    assert [name for name, _ in layer.named_parameters()] == ["weight"]
    del layer.weight
    assert list(layer.parameters()) == []


def test_buffers_take_tensors():
    module = M.Module()
    module.register_buffer("mean", wf.zeros(2))
    module.register_buffer("cache", wf.zeros(2), persistent=False)
    module.mean = wf.ones(2)
    assert [name for name, _ in module.named_buffers()] == ["mean", "cache"]
    assert list(module.state_dict()) == ["mean"]
    with pytest.raises(TypeError, match="is a buffer and takes a Tensor"):
        module.mean = 3
    with pytest.raises(TypeError, match="must be a Tensor"):
        module.register_buffer("other", [1.0])


@pytest.mark.parametrize("name", ["forward", "training", "parameters", "a.b", ""])
def test_names_that_cannot_be(name):
    with pytest.raises(ValueError, match="the buffer"):
        M.Module().register_buffer(name, wf.zeros(1))
    with pytest.raises(ValueError, match="the parameter"):
        setattr(M.Module(), name, M.Parameter(wf.zeros(1)))


def test_parameters_are_floats():
    with pytest.raises(DTypeError, match="floating-point"):
        M.Parameter(wf.zeros(2, dtype="int64"))


def test_parameters_in_containers_are_refused():
    module = M.Module()
    module.weights = [M.Parameter(wf.zeros(1))]
    with pytest.raises(TypeError, match=r"weights\.0: a Parameter in a list"):
        list(module.parameters())


def test_what_is_shared_is_listed_once_and_stays_shared():
    a, b = M.Linear(2, 2), M.Linear(2, 2)
    b.weight = M.Parameter(a.weight)
    net = M.Sequential(a, b, a)
    assert [name for name, _ in net.named_parameters()] == ["0.weight", "0.bias", "1.bias"]
    for changed in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), net.astype("float64")):
        assert changed[0].weight is changed[1].weight
        assert changed[0] is changed[2]
        assert len(list(changed.modules())) == 3


def test_a_module_may_know_those_above_it():
    net = Net()
    net.layers[0].owner = net
    assert len(list(net.modules())) == 4
    assert "..." in repr(net)


def test_modes():
    net = Net()
    assert all(m.training for m in net.modules())
    assert net.eval() is net
    assert not any(m.training for m in net.modules())
    net.train()
    assert net.norm.training


def test_apply_reaches_children_first():
    seen = []
    M.Sequential(M.Sequential(M.ReLU())).apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["ReLU", "Sequential", "Sequential"]


def test_moving_and_converting():
    net = Net().astype("bfloat16").to_device("cpu:1")
    assert {x.dtype.name for x in net.state_dict().values()} == {"bfloat16"}
    assert {str(x.device) for x in net.state_dict().values()} == {"cpu:1"}
    net.register_buffer("count", wf.zeros((), dtype="int64"))
    assert net.astype("float64").count.dtype.name == "int64"
    same = net.scale
    assert net.to_device("cpu:1").astype("float64").scale is same
    with pytest.raises(DTypeError, match="takes floating-point types"):
        net.astype("int8")


def test_hooks_see_and_replace():
    layer, seen = M.Linear(2, 2), []
    before = layer.register_forward_pre_hook(lambda m, args: args[0] * 0)
    after = layer.register_forward_hook(lambda m, args, y: seen.append(args[0].numpy().copy()))
    y = layer(wf.ones((1, 2)))
    np.testing.assert_array_equal(seen[0], np.zeros((1, 2)))
    np.testing.assert_allclose(y.numpy()[0], layer.bias.numpy(), rtol=1e-6)
    before.remove()
    before.remove()
    after.remove()
    layer(wf.ones((1, 2)))
    assert len(seen) == 1
    with layer.register_forward_hook(lambda m, args, y: y + 100):
        assert layer(wf.ones((1, 2))).min().item() > 50
    assert layer(wf.ones((1, 2))).min().item() < 50


def test_text():
    assert repr(M.Sequential({"a": M.Linear(1, 2), "b": M.Sequential(M.ReLU())})) == (
        "Sequential(\n  a: Linear(in_features=1, out_features=2)\n  b: Sequential(\n    0: ReLU()\n  )\n)"
    )
    with pytest.raises(NotImplementedError, match=r"has no forward\(\)"):
        M.Module()()


@pytest.mark.parametrize("name", ["repr_attributes", "shown"])  # its name now, and in earlier versions
def test_attributes_of_repr(name):
    layer = type("Scale", (M.Module,), {name: ("factor",)})()
    layer.factor = 2
    assert repr(layer) == "Scale(factor=2)"
    assert type(layer).shown == layer.shown == ("factor",)
    assert M.Linear.shown == M.Linear.repr_attributes


def test_state_goes_from_one_to_the_other():
    a, b = Net(), Net()
    a(wf.random.normal(shape=(8, 2)))  # running statistics
    kept = [id(x) for x in b.state_dict().values()]
    assert b.load_state_dict(a.state_dict()) == ((), ())
    assert_equal(values(a), values(b))
    assert kept == [id(x) for x in b.state_dict().values()]
    arrays = {name: x.astype("float64") for name, x in values(a).items()}
    b.load_state_dict(arrays)  # NumPy's arrays, and another type
    assert_equal(values(a), values(b))
    a.load_state_dict(a.state_dict())
    assert_equal(values(a), values(b))


def test_state_goes_through_files(tmp_path):
    net = Net()
    before = values(net)
    wf.save(tmp_path / "net.safetensors", net.state_dict())
    for x in net.state_dict().values():
        x[...] = 7
    net.load_state_dict(wf.load(tmp_path / "net.safetensors"))
    assert_equal(values(net), before)


def spoil(name, make):
    def change(state):
        state[name] = make(state[name])
        return state

    return change


HOSTILE = {
    "not a mapping": (lambda state: list(state), "takes a mapping"),
    "empty": (lambda state: {}, "missing: scale, layers.0.weight"),
    "missing": (lambda state: {k: v for k, v in state.items() if k != "norm.bias"}, "missing: norm.bias"),
    "unexpected": (lambda state: {**state, "extra": wf.zeros(1)}, "unexpected: extra"),
    "key of another type": (lambda state: {**state, 5: wf.zeros(1)}, "unexpected: 5"),
    "shape": (
        spoil("norm.bias", lambda x: wf.zeros(1)),
        r"norm.bias is f32\[1\]@cpu:0, here f32\[3\]@cpu:0",
    ),
    "broadcast": (spoil("norm.bias", lambda x: x.reshape(1, 3)), "of another shape"),
    "integers": (spoil("norm.bias", lambda x: x.astype("int32")), "of another kind: norm.bias is i32"),
    "a number": (spoil("scale", lambda x: 1.0), "scale is of type float"),
    "none": (spoil("scale", lambda x: None), "scale is of type NoneType"),
    "objects": (spoil("scale", lambda x: np.array(None)), "scale is of type ndarray"),
    "text": (spoil("scale", lambda x: np.array("x")), "scale is of type ndarray"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_states_change_nothing(case):
    change, words = HOSTILE[case]
    net = Net()
    before = values(net)
    state = change({name: x * 0 + 9 for name, x in net.state_dict().items()})
    for load in (net.check_state_dict, net.load_state_dict):
        with pytest.raises((ValueError, TypeError), match=words):
            load(state)
    assert_equal(values(net), before)


def test_all_faults_are_listed():
    with pytest.raises(ValueError, match="nothing was loaded") as caught:
        Net().load_state_dict({"scale": wf.zeros(2), "other": wf.zeros(1), "norm.bias": 3})
    text = str(caught.value)
    for words in ("missing: layers.0.weight, ", "unexpected: other", "shape: scale", "kind: norm.bias"):
        assert words in text


def test_not_strict():
    net = Net()
    found = net.load_state_dict({"scale": wf.tensor(5.0), "other": wf.zeros(1)}, strict=False)
    assert found.unexpected == ("other",)
    assert "norm.bias" in found.missing
    assert net.scale.item() == 5
    with pytest.raises(ValueError, match="of another shape"):
        net.load_state_dict({"scale": wf.zeros(2)}, strict=False)


def test_loading_while_recording_is_not_recorded():
    layer = M.Linear(2, 2)
    gm = wf.GradManager().attach(layer.parameters())
    with gm:
        layer.load_state_dict(M.Linear(2, 2).state_dict())
        gm.backward(layer(wf.ones((1, 2))).sum())
    np.testing.assert_array_equal(layer.weight.grad.numpy(), np.ones((2, 2)))


# A module as a function of its parameters.


class Tied(M.Module):
    def __init__(self):
        self.first, self.parts = M.Linear(3, 4), {"second": M.Linear(4, 3), "last": M.Linear(3, 4)}
        self.parts["last"].weight = M.Parameter(self.first.weight)

    def forward(self, x, *, factor=1.0):
        return self.parts["last"](F.tanh(self.parts["second"](F.tanh(self.first(x))))) * factor


def test_functional_call():
    net, other = Tied(), Tied()
    before = dict(net.named_parameters())
    state = {name: p * 2 for name, p in before.items()}
    other.load_state_dict(state)
    x = wf.random.normal(shape=(5, 3))
    got = net.functional_call(state, x, factor=0.5)
    np.testing.assert_array_equal(got.numpy(), other(x, factor=0.5).numpy())
    np.testing.assert_array_equal(net.functional_call({}, x).numpy(), net(x).numpy())
    part = {"parts.last.bias": np.zeros(4, np.float32)}
    other.load_state_dict({**before, **part})
    np.testing.assert_array_equal(net.functional_call(part, x).numpy(), other(x).numpy())
    assert all(p is before[name] for name, p in net.named_parameters())


def test_functional_call_leaves_the_module_as_it_was():
    net = Tied()
    before = dict(net.named_parameters())
    x = wf.ones((2, 5))
    with pytest.raises(ShapeError, match="linear"):
        net.functional_call({name: p * 2 for name, p in before.items()}, x)
    with pytest.raises(
        ValueError, match=r"functional_call: Tied: no parameter or buffer 'z'; it has: first.weight, "
    ):
        net.functional_call({"z": x}, x)
    with pytest.raises(ShapeError, match=r"functional_call: Tied: first.bias has shape \(4,\), got \(2, 5\)"):
        net.functional_call({"first.bias": x}, x)
    assert all(p is before[name] for name, p in net.named_parameters())
    assert net.parts["last"].weight is net.first.weight


def test_gradients_of_functional_calls():
    net, x = Tied(), wf.random.normal(shape=(5, 3))
    parameters = {name: p.copy() for name, p in net.named_parameters()}

    def loss(p, x):
        return (net.functional_call(p, x) ** 2).mean()

    gm = wf.GradManager().attach(net.parameters())
    with gm:
        gm.backward((net(x) ** 2).mean())
    want = {name: p.grad.numpy() for name, p in net.named_parameters()}
    traced = wf.trace(wf.grad(loss))
    for gradient in (wf.grad(loss), traced, lambda *args: wf.vjp(loss, *args)[1](1.0)[0]):
        for name, dx in gradient(parameters, x).items():
            np.testing.assert_allclose(dx.numpy(), want[name], atol=1e-6)
    doubled = wf.tree_map(lambda p: 2 * p, parameters)
    for name, dx in traced(doubled, x).items():
        np.testing.assert_allclose(dx.numpy(), wf.grad(loss)(doubled, x)[name].numpy(), atol=1e-6)
    assert len(traced.programs) == 1
    rows = wf.vmap(wf.grad(loss), in_axes=(None, 0))(parameters, x)
    for name, dx in rows.items():
        np.testing.assert_allclose(dx.mean(axis=0).numpy(), want[name], atol=1e-6)
    networks = wf.tree_map(lambda *p: wf.stack(p), parameters, doubled)
    both = wf.vmap(net.functional_call, in_axes=(0, None))(networks, x)
    np.testing.assert_allclose(both[1].numpy(), net.functional_call(doubled, x).numpy(), atol=1e-6)


def test_functional_call_writes_the_given_buffers():
    norm, x = M.BatchNorm1d(3), wf.random.normal(shape=(5, 3))
    mine = {name: b.copy() for name, b in norm.named_buffers()}
    norm.functional_call(mine, x)
    assert (norm.running_mean.numpy() == 0).all()
    np.testing.assert_allclose(mine["running_mean"].numpy(), x.numpy().mean(0) * 0.1, atol=1e-6)


def test_a_forgotten_call_of_the_class_is_an_error():
    class Net(M.Module):
        def forward(self, x):
            return x

    x = wf.ones(2)
    for arguments, keywords in (((x,), {}), ((), {"x": x})):
        with pytest.raises(TypeError, match=r"Net\(\) takes no arguments, .*\n  hint: .* Net\(\)\(x\)"):
            Net(*arguments, **keywords)
    assert Net()(x) is x
    assert copy.deepcopy(Net())(x) is x
