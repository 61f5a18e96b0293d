"""Symbols as modules: the same numbers as their executors, trained, traced and quantized as any module."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
import weft.quantization as Q
import weft.symbol as sym
from weft.base.errors import GraphError


def network():
    x = sym.var("x")
    h = F.batch_norm(F.conv2d(x, out_channels=8, kernel_size=3, name="c1"), name="bn")
    h = F.max_pool2d(F.relu(h), 2).reshape(-1, 8 * 7 * 7)
    return F.linear(h, out_features=10, name="fc") + sym.var("shift") * sym.arange(10)


@pytest.fixture
def bound():
    """An executor of the network, and the arrays of what is no input."""
    exe = network().simple_bind(x=(4, 3, 16, 16), shift=(1,))
    rng = np.random.default_rng(3)
    arrays = {**exe.arg_dict, **exe.aux_dict}
    for x in arrays.values():
        x[...] = wf.tensor(rng.uniform(0.1, 0.5, x.shape).astype("float32"))
    return exe, {name: x for name, x in arrays.items() if name != "x"}


@pytest.mark.parametrize("training", [False, True])
def test_numbers_and_states_are_the_executors(bound, training):
    exe, arrays = bound
    net = M.SymbolModule(network(), arrays).train(training)
    x = wf.random.normal(shape=(4, 3, 16, 16))
    states = {name: s.copy() for name, s in exe.aux_dict.items()}
    y = net(x)
    after = {name: s.copy() for name, s in exe.aux_dict.items()}
    for name, s in states.items():
        exe.aux_dict[name][...] = s
    exe.arg_dict["x"][...] = x
    wf.testing.assert_close(y, exe.forward(training)[0], rtol=1e-5, atol=1e-5)
    for name, s in after.items():
        wf.testing.assert_close(s, exe.aux_dict[name], rtol=1e-6, atol=1e-6)
        assert (s != states[name]).any().item() is training


def test_names_follow_the_nodes(bound):
    net = M.SymbolModule(network(), bound[1])
    names = {"c1.weight", "c1.bias", "bn.weight", "bn.bias", "fc.weight", "fc.bias", "shift"}
    assert {name for name, _ in net.named_parameters()} == names
    assert {name for name, _ in net.named_buffers()} == {"bn.running_mean", "bn.running_var"}
    assert net.inputs == ("x",)
    assert net.fc.weight is bound[1]["fc_weight"]


def test_it_trains_traced_as_eagerly(bound):
    losses = []
    x = wf.random.normal(shape=(4, 3, 16, 16))
    for wrap in (lambda f: f, wf.trace):
        net = M.SymbolModule(network(), {name: a.copy() for name, a in bound[1].items()})
        gm = wf.GradManager().attach(net.parameters())
        opt = optim.SGD(net.parameters(), lr=1e-5)

        def step(x, net=net, gm=gm, opt=opt):
            with gm:
                loss = (net(x) ** 2).mean()
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        step = wrap(step)
        losses.append([step(x).item() for _ in range(4)])
    np.testing.assert_allclose(*losses, rtol=1e-4)
    assert losses[0][-1] < losses[0][0]


def test_it_is_quantized(bound):
    net = M.SymbolModule(network(), bound[1])
    x = wf.random.normal(shape=(4, 3, 16, 16))
    simulated = Q.calibrate(net, [x])
    assert set(simulated.weights) == {"c1", "fc"}
    y = net(x)
    assert abs(Q.convert(simulated)(x) - y).max().item() < 0.05 * abs(y).max().item()


def test_what_cannot_be(bound):
    with pytest.raises(GraphError, match="no array for: 'fc_bias'"):
        M.SymbolModule(network(), {k: v for k, v in bound[1].items() if k != "fc_bias"}, inputs=["x"])
    with pytest.raises(GraphError, match="arrays: 'other'"):
        M.SymbolModule(network(), {**bound[1], "other": wf.ones(1)})
    with pytest.raises(GraphError, match="inputs: 'z'"):
        M.SymbolModule(network(), bound[1], inputs=["z"])
    with pytest.raises(TypeError, match=r"takes 1 arrays \(x\), got 2"):
        M.SymbolModule(network(), bound[1])(wf.ones(1), wf.ones(1))
    with pytest.raises(TypeError, match="hint: SymbolModule"):
        Q.calibrate(network(), [wf.ones(1)])
    loop = sym.foreach(lambda x, s: (x + s, x + s), sym.var("data"), sym.var("state"))[0]
    with pytest.raises(GraphError, match="loops, branches and gradients"):
        M.SymbolModule(loop, {})(wf.ones((2, 1)), wf.ones(1))
