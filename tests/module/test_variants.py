"""Variants of layers by formulas: borders, running statistics, projections of other features, names in errors."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M


def drawn(*shape):
    return np.random.default_rng(0).standard_normal(shape, dtype="float32")


def leaves(result):
    """The arrays of y, (h, c) or y, h."""
    y, last = result
    return [y, *(last if isinstance(last, tuple) else [last])]


@pytest.mark.parametrize("padding", [1, (0, 2), "same", "valid", [(1, 0), (2, 1)]])
@pytest.mark.parametrize(
    ("mode", "of_numpy"), [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")]
)
def test_borders_of_convolutions(mode, of_numpy, padding):
    layer = M.Conv2d(2, 3, (3, 2), padding=padding, dilation=(1, 2), padding_mode=mode)
    borders = {"same": [(1, 1), (1, 1)], "valid": [(0, 0)] * 2, 1: [(1, 1)] * 2, (0, 2): [(0, 0), (2, 2)]}
    borders = padding if isinstance(padding, list) else borders[padding]
    x = drawn(2, 2, 6, 5)
    y = layer(wf.tensor(x))
    want = F.conv2d(
        wf.tensor(np.pad(x, [(0, 0), (0, 0), *borders], of_numpy)), layer.weight, layer.bias, dilation=(1, 2)
    )
    np.testing.assert_allclose(y.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(wf.trace(layer)(wf.tensor(x)).numpy(), y.numpy(), rtol=1e-5, atol=1e-6)
    assert f"padding_mode='{mode}'" in repr(layer)


def test_an_even_kernel_has_more_borders_behind():
    layer = M.Conv1d(1, 1, 2, padding="same", padding_mode="circular", bias=False)
    layer.weight[...] = wf.tensor([[[1.0, 10.0]]])
    assert layer(wf.tensor([[[1.0, 2.0, 3.0]]])).tolist() == [[[21.0, 32.0, 13.0]]]


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_running_statistics_of_instances(dtype, traced):
    layer = M.InstanceNorm1d(3, momentum=0.25, track_running_stats=True, dtype=dtype)
    call = wf.trace(layer) if traced else layer
    mean, var = np.zeros(3), np.ones(3)
    for n in range(3):
        x = np.random.default_rng(n).standard_normal((4, 3, 5)).astype(dtype)
        call(wf.tensor(x))
        mean += 0.25 * (x.mean(2).mean(0) - mean)
        var += 0.25 * (x.var(2, ddof=1).mean(0) - var)
    np.testing.assert_allclose(layer.running_mean.numpy(), mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(layer.running_var.numpy(), var, rtol=1e-5)
    layer.eval()
    y = (wf.trace(layer) if traced else layer)(wf.tensor(x)).numpy()
    np.testing.assert_allclose(y, (x - mean[:, None]) / np.sqrt(var[:, None] + 1e-5), rtol=1e-4, atol=1e-5)
    assert set(layer.state_dict()) == {"running_mean", "running_var"}
    assert set(M.InstanceNorm1d(3).state_dict()) == set()


def test_running_statistics_have_no_gradients():
    layer, x = M.InstanceNorm1d(3, track_running_stats=True), wf.tensor(drawn(4, 3, 5))
    with wf.GradManager().attach([x]) as gm:
        layer(x)
        with pytest.raises(ValueError, match="nothing of y was recorded"):
            gm.backward(layer.running_mean.sum())


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_layers_without_biases_are_those_with_zeros(name):
    options = {"num_layers": 2, "bidirectional": True}
    bare, full = getattr(M, name)(3, 4, bias=False, **options), getattr(M, name)(3, 4, **options)
    assert not [key for key in bare.state_dict() if "bias" in key]
    zeros = {key: np.zeros(p.shape, "float32") for key, p in full.named_parameters() if "bias" in key}
    full.load_state_dict({**{key: p.numpy() for key, p in bare.named_parameters()}, **zeros})
    x, lengths = wf.tensor(drawn(5, 2, 3)), wf.tensor([5, 3])
    for given in ((x,), (x, None, lengths)):
        for a, b in zip(leaves(bare(*given)), leaves(full(*given)), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)


def test_attention_reads_keys_and_values_of_their_features():
    layer = M.MultiheadAttention(4, 2, kdim=3, vdim=5)
    q, k, v = (wf.tensor(drawn(2, *size)) for size in ((3, 4), (6, 3), (6, 5)))
    heads = [
        F.permute_dims(F.linear(x, w).reshape(2, -1, 2, 2), (0, 2, 1, 3))
        for x, w in ((q, layer.q_proj_weight), (k, layer.k_proj_weight), (v, layer.v_proj_weight))
    ]
    scores = F.softmax(heads[0] @ heads[1].mT / np.sqrt(2).astype("float32"), axis=-1)
    want = layer.out_proj(F.permute_dims(scores @ heads[2], (0, 2, 1, 3)).reshape(2, 3, 4))
    np.testing.assert_allclose(layer(q, k, v).numpy(), want.numpy(), rtol=1e-4, atol=1e-5)
    assert layer.in_proj_weight is None
    assert M.MultiheadAttention(4, 2, kdim=4, vdim=4).in_proj_weight.shape == (12, 4)


def test_activations_by_name():
    layer = M.TransformerEncoderLayer(8, 2, 16, activation="gelu").eval()
    same = M.TransformerEncoderLayer(8, 2, 16, activation=F.gelu).eval()
    same.load_state_dict(layer.state_dict())
    x = wf.tensor(drawn(2, 3, 8))
    np.testing.assert_array_equal(layer(x).numpy(), same(x).numpy())


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (
            lambda: M.Conv2d(1, 2, 3, padding_mode="mirror"),
            ValueError,
            "Conv2d: padding_mode must be one of 'zeros'",
        ),
        (
            lambda: M.Conv2d(1, 2, 3, pading=1),
            TypeError,
            "^Conv2d: no argument pading; .* did you mean padding",
        ),
        (lambda: M.Conv2d(1), TypeError, "^Conv2d: missing 2 required positional arguments"),
        (lambda: M.GRU(1, 2, biases=False), TypeError, "^GRU: no argument biases; .* did you mean bias"),
        (lambda: M.InstanceNorm3d(1, track=True), TypeError, "^InstanceNorm3d: no argument track"),
        (lambda: M.RNN(1, 2, nonlinearity="gelu"), ValueError, "RNN: nonlinearity must be 'tanh' or 'relu'"),
        (
            lambda: M.TransformerDecoderLayer(4, 2, activation="tanh"),
            ValueError,
            "TransformerDecoderLayer: activation must be a function or one of 'relu', 'gelu', got 'tanh'",
        ),
    ],
)
def test_errors_name_the_public_class(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_a_users_subclass_does_not_hide_the_layer():
    class Net(M.Conv2d):
        def __init__(self):
            super().__init__(1, 2, 3, pading=1)

    with pytest.raises(TypeError, match=r"^Conv2d: no argument pading"):
        Net()


def test_hard_swish_has_slopes_at_infinity():
    x = wf.tensor([-np.inf, -3.0, 0.0, 3.0, np.inf])
    slopes = wf.grad(lambda v: F.hard_swish(v).sum())(x)
    assert slopes.tolist() == [0.0, 0.0, 0.5, 1.0, 1.0]
