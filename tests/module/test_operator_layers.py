"""Layers that are one function each, cells and transformers, without other libraries."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
from weft.module.functions import OperatorLayer

LAYERS = [cls for cls in vars(M).values() if isinstance(cls, type) and issubclass(cls, OperatorLayer)]


def random(*shape):
    return wf.tensor(np.random.default_rng(7).standard_normal(shape).astype("float32"))


@pytest.mark.parametrize("cls", LAYERS, ids=lambda cls: cls.__name__)
def test_a_layer_names_its_function(cls):
    if not hasattr(cls, "operator"):
        return  # a base
    assert hasattr(F, cls.operator)
    assert "See" in (cls.__doc__ or "")


def test_factors_of_losses_are_saved_and_given():
    loss = M.CrossEntropyLoss(weight=wf.tensor([1.0, 3.0]), reduction="none")
    assert loss(wf.zeros((2, 2)), wf.tensor([0, 1])).tolist() == pytest.approx([np.log(2), 3 * np.log(2)])
    assert list(loss.state_dict()) == ["weight"]
    assert not M.NLLLoss().state_dict()
    both = M.BCEWithLogitsLoss(pos_weight=wf.tensor([2.0]))
    assert both(wf.zeros(1), wf.ones(1)).item() == pytest.approx(2 * np.log(2))


def test_pooling_with_indices_goes_back():
    x = random(2, 3, 4, 6)
    y, indices = M.MaxPool2d(2, return_indices=True)(x)
    back = M.MaxUnpool2d(2)(y, indices)
    assert back.shape == x.shape
    assert (back.numpy() == np.where(back.numpy() != 0, x.numpy(), 0)).all()
    assert np.count_nonzero(back.numpy()) == y.size
    z, places = M.AdaptiveMaxPool1d(3, return_indices=True)(x[0])
    assert (F.take_along_axis(x[0], places, axis=-1).numpy() == z.numpy()).all()


@pytest.mark.parametrize(("dims", "shape"), [(1, (4, 50, 3)), (2, (4, 50, 3, 2)), (3, (4, 50, 3, 2, 2))])
def test_dropout_of_channels(dims, shape):
    layer = getattr(M, f"Dropout{dims}d")(0.5)
    y = layer(wf.ones(shape)).numpy().reshape(200, -1)
    assert set(np.unique(y)) == {0.0, 2.0}
    assert (y == y[:, :1]).all()  # a channel as a whole
    assert 0.3 < (y[:, 0] == 0).mean() < 0.7
    assert (layer.eval()(wf.ones(shape)).numpy() == 1).all()
    with pytest.raises(wf.ShapeError, match=f"dropout{dims}d: x needs"):
        layer.train()(wf.ones((2, 3)))


def test_alpha_dropout_keeps_mean_and_variance():
    x = F.selu(wf.tensor(np.random.default_rng(0).standard_normal((400, 400)).astype("float32")))
    for layer in (M.AlphaDropout(0.2), M.FeatureAlphaDropout(0.2)):
        y = layer(x).numpy()
        assert abs(y.mean()) < 0.05
        assert abs(y.std() - 1) < 0.05
    assert (M.AlphaDropout(1.0)(x).numpy() == 0).all()


def test_random_functions_in_traces_and_of_gradients():
    x = random(5, 8)
    drawn = wf.trace(lambda x: F.gumbel_softmax(x, tau=0.5))
    assert not np.array_equal(drawn(x).numpy(), drawn(x).numpy())
    hard = F.gumbel_softmax(x, hard=True).numpy()
    assert (np.sort(hard, axis=-1)[:, :-1] < 1e-6).all()
    assert np.allclose(hard.max(axis=-1), 1)
    assert np.abs(wf.grad(lambda x: (F.gumbel_softmax(x, hard=True)[:, 0]).sum())(x).numpy()).sum() > 0
    slopes = F.rrelu(-wf.ones(1000), 0.25, 0.5, training=True).numpy()
    assert -0.5 <= slopes.min() < slopes.max() <= -0.25
    with pytest.raises(ValueError, match="tau must be greater than 0"):
        F.gumbel_softmax(x, tau=0)


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_a_cell_is_one_step(name):
    cell, layer = getattr(M, f"{name}Cell")(3, 4), getattr(M, name)(3, 4)
    layer.load_state_dict({f"{key}_l0": x for key, x in cell.state_dict().items()})
    x, h = random(5, 3), random(5, 4)
    state = (h, h * 0.5) if name == "LSTM" else h
    lead = tuple(s[None] for s in state) if name == "LSTM" else h[None]
    got, (_, want) = cell(x, state), layer(x[None], lead)
    pairs = zip(got, want, strict=True) if name == "LSTM" else [(got, want)]
    for a, b in pairs:
        np.testing.assert_allclose(a.numpy(), b.numpy()[0], rtol=1e-5, atol=1e-6)
    assert np.allclose(
        (cell(x)[0] if name == "LSTM" else cell(x)).numpy(), layer(x[None])[0].numpy()[0], atol=1e-6
    )
    assert getattr(M, f"{name}Cell")(3, 4, bias=False).bias_ih is None


def test_a_decoder_sees_no_later_place():
    net = M.Transformer(8, 2, 1, 2, 16, dropout=0.0)
    source, target = random(2, 7, 8), random(2, 5, 8)
    changed = target.copy()
    changed[:, 3:] = 0.0
    y, other = (net(source, t, is_causal=True).numpy() for t in (target, changed))
    np.testing.assert_allclose(y[:, :3], other[:, :3], rtol=1e-5, atol=1e-6)
    assert np.abs(y[:, 3:] - other[:, 3:]).max() > 1e-3
    traced = wf.trace(net)
    np.testing.assert_allclose(traced(source, target, is_causal=True).numpy(), y, rtol=1e-5, atol=1e-5)
    copies = {id(p) for p in net.decoder.parameters()}
    assert len(copies) == 2 * 18 + 2  # no layer is another's


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_borders(dims):
    x = random(1, 2, *(4,) * dims)
    for kind, mode in (
        ("Zero", "constant"),
        ("Reflection", "reflect"),
        ("Replication", "edge"),
        ("Circular", "wrap"),
    ):
        y = getattr(M, f"{kind}Pad{dims}d")(2)(x)
        want = np.pad(x.numpy(), [(0, 0), (0, 0), *((2, 2),) * dims], mode=mode)
        np.testing.assert_array_equal(y.numpy(), want)
    assert getattr(M, f"ConstantPad{dims}d")(1, 5.0)(x).numpy().reshape(-1)[0] == 5.0
    with pytest.raises(ValueError, match="padding must be an int or"):
        getattr(M, f"ZeroPad{dims}d")((1,))


def test_upsampling_keeps_the_corners():
    x = random(1, 2, 3, 3)
    y = M.UpsamplingBilinear2d(scale_factor=2)(x).numpy()
    assert y.shape == (1, 2, 6, 6)
    np.testing.assert_allclose(y[..., ::5, ::5], x.numpy()[..., ::2, ::2], rtol=1e-6)


def test_distances_of_nothing():
    assert F.cdist(wf.zeros((0, 4)), wf.zeros((5, 4))).shape == (0, 5)
    assert F.cdist(wf.zeros((2, 0)), wf.zeros((3, 0))).tolist() == [[0.0] * 3] * 2
    assert F.pdist(wf.zeros((0, 4))).shape == (0,)
