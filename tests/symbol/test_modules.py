"""Modules called with symbols: the same network, its parameters as variables of their names."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.symbol as sym
from weft import models


def outputs(result):
    """What a module gave, as a flat list."""
    return [y for each in result for y in outputs(each)] if isinstance(result, tuple) else [result]


class Scaled(M.Module):
    """A parameter on both sides of arithmetic, one that is used twice, and a buffer that is never written."""

    def __init__(self):
        self.scale, self.weight = M.Parameter(wf.tensor([2.0, 3.0])), M.Parameter(wf.ones((2, 2)))
        self.register_buffer("shift", wf.tensor([1.0, -1.0]))

    def forward(self, x):
        h = F.linear(x * self.scale, self.weight, None)
        return F.linear(self.scale - h, self.weight, None) + self.shift


NETWORKS = {
    "linear": (lambda: M.Linear(4, 3), (2, 4)),
    "convolution": (
        lambda: M.Sequential(M.Conv2d(3, 4, 3), M.BatchNorm2d(4), M.ReLU(), M.Dropout(0.0)),
        (2, 3, 6, 6),
    ),
    "lstm": (lambda: M.LSTM(3, 4, 2), (5, 2, 3)),
    "gru": (lambda: M.GRU(3, 4, batch_first=True, bidirectional=True), (5, 2, 3)),
    "embedding": (lambda: models.LSTMLanguageModel(20, 8, 1), None),
    "resnet": (lambda: models.ResNet(models.ResNetConfig((1, 1), width=8, classes=5)), (2, 3, 32, 32)),
    "own": (Scaled, (3, 2)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_bound_with_the_networks_arrays(name):
    """Values, gradients and running statistics are those of the network itself, training and not."""
    make, shape = NETWORKS[name]
    wf.random.seed(0)
    net = make()
    x = wf.asarray(np.arange(6).reshape(3, 2)) if shape is None else wf.random.normal(0, 1, shape)
    y = sym.group(outputs(net(sym.var("data"))))
    given = dict(net.named_parameters())
    buffers = dict(net.named_buffers())
    states = {key: x for key, x in buffers.items() if key in y.list_auxiliary_states()}
    assert sorted(y.list_arguments()) == sorted({"data", *given, *buffers} - set(states))
    arrays = {"data": x, **given, **{key: x for key, x in buffers.items() if key not in states}}
    slopes = {key: wf.zeros_like(p) for key, p in given.items()}
    exe = y.bind(None, arrays, slopes, aux_states=states)

    net.eval()
    for got, want in zip(exe.forward(), outputs(net(x)), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)

    net.train()
    before = {key: state.copy() for key, state in states.items()}
    got = [each.numpy() for each in exe.forward(is_train=True)]
    exe.backward()
    moved = {key: state.copy() for key, state in states.items()}
    for key, state in states.items():
        state[...] = before[key]
    gm = wf.GradManager().attach(list(given.values()))
    with gm:
        found = outputs(net(x))
        gm.backward(sum(each.sum() for each in found))
    for a, b in zip(got, found, strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-4, atol=1e-5)
    for key, p in given.items():
        scale = abs(p.grad.numpy()).max()
        np.testing.assert_allclose(slopes[key].numpy(), p.grad.numpy(), rtol=1e-3, atol=1e-4 * scale + 1e-5)
    for key, state in states.items():
        assert (before[key].numpy() != state.numpy()).any()
        np.testing.assert_allclose(moved[key].numpy(), state.numpy(), rtol=1e-5, atol=1e-6)


def test_sizes_follow_from_the_parameters():
    y = M.Sequential(M.Linear(4, 3), M.BatchNorm1d(3))(sym.var("data"))
    assert y.infer_shape(data=(7, None))[1] == [(7, 3)]
    again = sym.from_json(y.to_json())
    assert again.list_arguments() == ["data", "0.weight", "0.bias", "1.weight", "1.bias"]
    assert again.infer_shape(data=(7, None))[2] == [(3,), (3,)]
    with pytest.raises(wf.ShapeError, match="x has 5 in_features, weight expects 4"):
        y.infer_shape(data=(7, 5))


def test_training():
    """A network that is trained leaves it to the executor; one in eval() never trains."""
    net = M.Dropout(0.5)
    x = wf.ones(64)
    open_, closed = net(sym.var("x")), net.eval()(sym.var("x"))
    for y, training, dropped in ((open_, True, True), (open_, False, False), (closed, True, False)):
        got = y.bind(None, {"x": x}).forward(is_train=training)[0].numpy()
        assert (got != 1).any() == dropped


def test_two_calls_share_parameters():
    net = M.Linear(2, 2)
    both = sym.group([net(sym.var("a")), net(sym.var("b"))])
    assert both.list_arguments() == ["a", "weight", "bias", "b"]
    with sym.NameScope("second."):
        other = M.Linear(2, 2)(sym.var("c"))
    assert sym.group([both, other]).list_arguments()[-2:] == ["second.weight", "second.bias"]
    net.weight = M.Parameter(wf.zeros((5, 2)))
    net.bias = None
    assert net(sym.var("a")).infer_shape(a=(1, None))[1] == [(1, 5)]


def test_what_has_no_name():
    class Constant(M.Module):
        def forward(self, x):
            return x + wf.ones(2)

    net, x = Constant(), sym.var("x")
    for _ in range(2):
        with pytest.raises(TypeError, match="must be its parameters or buffers, got Tensor"):
            net(x)
    assert F.linear(x, M.Linear(2, 2).weight, None).list_arguments() == ["x"]  # a constant
    assert M.Linear(2, 2)(x).list_arguments() == ["x", "weight", "bias"]
