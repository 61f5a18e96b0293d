"""Every layer: its parameters, its result for one input, and its gradients."""

import inspect

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
from weft.base.errors import ShapeError

IMAGE = (2, 4, 6, 6)
MADE = {}  # name of the class -> [(arguments, shape of the input, names and shapes, shape of the result)]


def layer(name, *args, x, parameters=(), y, **attributes):
    MADE.setdefault(name, []).append((args, attributes, x, dict(parameters), y))


def weight_and_bias(weight, bias):
    return {"weight": weight, "bias": bias}


layer("Linear", 4, 3, x=(2, 5, 4), parameters=weight_and_bias((3, 4), (3,)), y=(2, 5, 3))
layer("Linear", 4, 3, x=(2, 4), parameters={"weight": (3, 4)}, y=(2, 3), bias=False)
layer("Embedding", 7, 3, x="integers", parameters={"weight": (7, 3)}, y=(2, 5, 3))
layer("Conv1d", 4, 6, 3, x=(2, 4, 8), parameters=weight_and_bias((6, 4, 3), (6,)), y=(2, 6, 6))
layer(
    "Conv2d",
    4,
    6,
    3,
    2,
    1,
    x=IMAGE,
    parameters=weight_and_bias((6, 2, 3, 3), (6,)),
    y=(2, 6, 3, 3),
    groups=2,
)
layer(
    "Conv2d",
    4,
    6,
    (1, 3),
    x=IMAGE,
    parameters={"weight": (6, 4, 1, 3)},
    y=(2, 6, 6, 6),
    bias=False,
    padding="same",
)
layer(
    "Conv2d",
    4,
    6,
    3,
    x=IMAGE,
    parameters=weight_and_bias((6, 4, 3, 3), (6,)),
    y=(2, 6, 6, 8),
    padding=(1, 2),
    padding_mode="reflect",
)
layer(
    "Conv3d", 2, 3, 2, x=(1, 2, 4, 4, 4), parameters=weight_and_bias((3, 2, 2, 2, 2), (3,)), y=(1, 3, 3, 3, 3)
)
layer("ConvTranspose1d", 4, 6, 3, 2, x=(2, 4, 5), parameters=weight_and_bias((4, 6, 3), (6,)), y=(2, 6, 11))
layer(
    "ConvTranspose2d",
    4,
    6,
    3,
    2,
    x=IMAGE,
    parameters=weight_and_bias((4, 3, 3, 3), (6,)),
    y=(2, 6, 14, 14),
    groups=2,
    output_padding=1,
)
layer(
    "ConvTranspose3d",
    2,
    3,
    2,
    x=(1, 2, 3, 3, 3),
    parameters=weight_and_bias((2, 3, 2, 2, 2), (3,)),
    y=(1, 3, 4, 4, 4),
)
STATISTICS = {"running_mean": (4,), "running_var": (4,)}
layer("BatchNorm1d", 4, x=(5, 4), parameters=weight_and_bias((4,), (4,)) | STATISTICS, y=(5, 4))
layer("BatchNorm1d", 4, x=(5, 4, 3), parameters=STATISTICS, y=(5, 4, 3), affine=False)
layer("BatchNorm2d", 4, x=IMAGE, parameters=weight_and_bias((4,), (4,)) | STATISTICS, y=IMAGE)
layer("BatchNorm2d", 4, x=IMAGE, parameters=weight_and_bias((4,), (4,)), y=IMAGE, track_running_stats=False)
layer(
    "BatchNorm3d",
    4,
    x=(2, 4, 2, 2, 2),
    parameters=weight_and_bias((4,), (4,)) | STATISTICS,
    y=(2, 4, 2, 2, 2),
)
layer("LayerNorm", 6, x=(2, 3, 6), parameters=weight_and_bias((6,), (6,)), y=(2, 3, 6))
layer("LayerNorm", (3, 6), x=(2, 3, 6), parameters={"weight": (3, 6)}, y=(2, 3, 6), bias=False)
layer("LayerNorm", 6, x=(2, 3, 6), y=(2, 3, 6), affine=False)
layer("RMSNorm", 6, x=(2, 3, 6), parameters={"weight": (6,)}, y=(2, 3, 6))
layer("GroupNorm", 2, 4, x=IMAGE, parameters=weight_and_bias((4,), (4,)), y=IMAGE)
layer("InstanceNorm2d", 4, x=IMAGE, y=IMAGE)
layer("InstanceNorm2d", 4, x=IMAGE, parameters=STATISTICS, y=IMAGE, track_running_stats=True)
layer("InstanceNorm2d", 4, x=IMAGE, parameters=weight_and_bias((4,), (4,)), y=IMAGE, affine=True)


def recurrent(rows, inputs, hidden, end):
    shapes = ((rows, inputs), (rows, hidden), (rows,), (rows,))
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return {f"{name}_{end}": shape for name, shape in zip(names, shapes, strict=True)}


for cell, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
    layer(cell, 3, 5, x=(7, 2, 3), parameters=recurrent(5 * gates, 3, 5, "l0"), y=(7, 2, 5))
    weights = {name: s for name, s in recurrent(5 * gates, 3, 5, "l0").items() if name.startswith("weight")}
    layer(cell, 3, 5, x=(7, 2, 3), parameters=weights, y=(7, 2, 5), bias=False)
    layer(
        cell,
        3,
        5,
        2,
        x=(2, 7, 3),
        parameters=recurrent(5 * gates, 3, 5, "l0")
        | recurrent(5 * gates, 3, 5, "l0_reverse")
        | recurrent(5 * gates, 10, 5, "l1")
        | recurrent(5 * gates, 10, 5, "l1_reverse"),
        y=(2, 7, 10),
        batch_first=True,
        bidirectional=True,
    )
layer(
    "MultiheadAttention",
    6,
    2,
    x=(2, 5, 6),
    parameters={
        "in_proj_weight": (18, 6),
        "in_proj_bias": (18,),
        "out_proj.weight": (6, 6),
        "out_proj.bias": (6,),
    },
    y=(2, 5, 6),
)
layer(
    "MultiheadAttention",
    6,
    3,
    x=(2, 5, 6),
    parameters={"in_proj_weight": (18, 6), "out_proj.weight": (6, 6)},
    y=(2, 5, 6),
    bias=False,
)
for name in ("ReLU", "ReLU6", "SELU", "SiLU", "Mish", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish"):
    layer(name, x=(2, 3), y=(2, 3))
layer("LeakyReLU", 0.1, x=(2, 3), y=(2, 3))
layer("ELU", x=(2, 3), y=(2, 3), alpha=0.5)
layer("GELU", x=(2, 3), y=(2, 3), approximate="tanh")
layer("Softplus", x=(2, 3), y=(2, 3), beta=2.0)
layer("Softmax", x=(2, 3), y=(2, 3), axis=0)
layer("LogSoftmax", x=(2, 3), y=(2, 3))
layer("PReLU", 3, x=(2, 3), parameters={"weight": (3,)}, y=(2, 3))
for size, image in ((1, (2, 4, 8)), (2, (2, 4, 8, 8)), (3, (1, 2, 4, 4, 4))):
    halves = (*image[:2], *(n // 2 for n in image[2:]))
    layer(f"MaxPool{size}d", 2, x=image, y=halves)
    layer(f"AvgPool{size}d", 3, 2, 1, x=image, y=halves)
    layer(f"LPPool{size}d", 2, 2, x=image, y=halves)
    for kind in ("Avg", "Max"):
        layer(f"Adaptive{kind}Pool{size}d", 3, x=image, y=(*image[:2], *(3,) * size))
    layer(f"Dropout{size}d", 0.3, x=image, y=image)
    wider = (*image[:2], *(n + 2 for n in image[2:]))
    for kind in ("Circular", "Reflection", "Replication", "Zero"):
        layer(f"{kind}Pad{size}d", 1, x=image, y=wider)
    layer(f"ConstantPad{size}d", 1, 2.0, x=image, y=wider)
    layer(f"InstanceNorm{size}d", image[1], x=image, y=image)
layer("AdaptiveAvgPool2d", (3, 2), x=IMAGE, y=(2, 4, 3, 2))
layer("PixelShuffle", 2, x=IMAGE, y=(2, 1, 12, 12))
layer("PixelUnshuffle", 2, x=IMAGE, y=(2, 16, 3, 3))
layer("ChannelShuffle", 2, x=IMAGE, y=IMAGE)
layer("Unfold", 3, x=IMAGE, y=(2, 36, 16))
layer("Fold", (6, 6), 2, x=(2, 4, 25), y=(2, 1, 6, 6))
layer("Upsample", x=IMAGE, y=(2, 4, 9, 9), scale_factor=1.5, mode="bicubic")
layer("UpsamplingNearest2d", 9, x=IMAGE, y=(2, 4, 9, 9))
for name in (
    "CELU",
    "Hardshrink",
    "Hardtanh",
    "LogSigmoid",
    "RReLU",
    "Softmin",
    "Softshrink",
    "Softsign",
    "Tanhshrink",
):
    layer(name, x=(2, 3), y=(2, 3))
layer("Threshold", 0.1, 2.0, x=(2, 3), y=(2, 3))
layer("GLU", x=(2, 4), y=(2, 2))
layer("LocalResponseNorm", 3, x=IMAGE, y=IMAGE)
for name in ("Dropout", "AlphaDropout", "FeatureAlphaDropout"):
    layer(name, 0.3, x=(2, 3), y=(2, 3))
layer("EmbeddingBag", 7, 3, x="integers", parameters={"weight": (7, 3)}, y=(2, 3))
ATTENTION = {
    "in_proj_weight": (18, 6),
    "in_proj_bias": (18,),
    "out_proj.weight": (6, 6),
    "out_proj.bias": (6,),
}
layer(
    "TransformerEncoderLayer",
    6,
    2,
    4,
    x=(2, 5, 6),
    parameters={f"self_attn.{key}": shape for key, shape in ATTENTION.items()}
    | {"linear1.weight": (4, 6), "linear1.bias": (4,), "linear2.weight": (6, 4), "linear2.bias": (6,)}
    | {f"norm{k}.{key}": (6,) for k in (1, 2) for key in ("weight", "bias")},
    y=(2, 5, 6),
)
# These take several arrays, layers or other attributes: tests/module/test_operator_layers.py.
SEVERAL = {"Sequential", "Bilinear", "Transformer", "TransformerEncoder", "TransformerDecoder"}
SEVERAL |= {"Concurrent", "Lambda", "Unflatten"}
# Modules whose layers have tests of their own: test_lists_and_lazy.py, test_lengths.py, test_cells.py and others.
ELSEWHERE = {
    f"weft.module.{name}"
    for name in ("adaptive_softmax", "cells", "conv_recurrent", "lazy", "lists", "losses")
}
SEVERAL |= {
    "SymbolModule",  # tests/module/test_of_symbol.py
    "GRUCell",
    "LSTMCell",
    "RNNCell",
    "UpsamplingBilinear2d",
    "TransformerDecoderLayer",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
    "FractionalMaxPool2d",  # tests/module/test_cells.py
    "FractionalMaxPool3d",
}
layer("Flatten", x=IMAGE, y=(2, 144))
layer("Identity", x=(2, 3), y=(2, 3))

CASES = [(name, *case) for name, cases in MADE.items() for case in cases]
every_layer = pytest.mark.parametrize(
    ("name", "args", "attributes", "x", "parameters", "y"),
    CASES,
    ids=lambda v: v if isinstance(v, str) else "",
)


def given(x):
    rng = np.random.default_rng(0)
    if x == "integers":
        return wf.tensor(rng.integers(0, 7, (2, 5)))
    return wf.tensor(rng.standard_normal(x, dtype="float32"))


def test_the_table_has_every_layer():
    layers = {
        name
        for name, value in vars(M).items()
        if inspect.isclass(value) and issubclass(value, M.Module) and value is not M.Module
    }
    others = {name for name in layers if getattr(M, name).__module__ in ELSEWHERE}
    assert layers - SEVERAL - others == set(MADE)


@every_layer
def test_parameters_and_shapes(name, args, attributes, x, parameters, y):
    made = getattr(M, name)(*args, **attributes)
    assert {key: p.shape for key, p in made.state_dict().items()} == parameters
    for p in made.state_dict().values():
        assert np.isfinite(p.numpy()).all()
    result = made(given(x))
    assert (result[0] if isinstance(result, tuple) else result).shape == y
    assert repr(made).startswith(f"{name}(")


@every_layer
def test_gradients_reach_every_parameter(name, args, attributes, x, parameters, y):
    made = getattr(M, name)(*args, **attributes)
    own = dict(made.named_parameters())
    gm = wf.GradManager().attach(own.values())
    with gm:
        result = made(given(x))
        result = result[0] if isinstance(result, tuple) else result
        gm.backward((result * wf.asarray(np.random.default_rng(1).standard_normal(y, "float32"))).sum())
    for key, p in own.items():
        assert p.grad is not None, key
        assert np.abs(p.grad.numpy()).max() > 0, key


@every_layer
def test_types_and_devices(name, args, attributes, x, parameters, y):
    cls = getattr(M, name)
    if "dtype" not in inspect.signature(cls.__init__).parameters:
        return
    made = cls(*args, **attributes, dtype="float64", device="cpu:1")
    assert {(p.dtype.name, str(p.device)) for p in made.state_dict().values()} <= {("float64", "cpu:1")}


@every_layer
def test_first_values_follow_the_seed(name, args, attributes, x, parameters, y):
    def first():
        wf.random.seed(3)
        return [p.numpy().copy() for p in getattr(M, name)(*args, **attributes).parameters()]

    for a, b in zip(first(), first(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_activations_and_pooling_are_their_functions():
    x = given((2, 4, 8, 8))
    for name, cases in MADE.items():
        cls = getattr(M, name)
        if hasattr(cls, "operator"):
            for args, attributes, shape, *_ in cases:
                want = getattr(F, cls.operator)(given(shape), *args, **attributes)
                np.testing.assert_array_equal(cls(*args, **attributes)(given(shape)).numpy(), want.numpy())
    assert M.MaxPool2d(2)(x).shape == (2, 4, 4, 4)
    with pytest.raises(TypeError, match="no attribute width"):
        M.MaxPool2d(2, width=3)
    with pytest.raises(TypeError, match="kernel_size must be given"):
        M.MaxPool2d()
    with pytest.raises(TypeError, match="kernel_size given twice"):
        M.MaxPool2d(2, kernel_size=3)
    with pytest.raises(TypeError, match="takes 3 arguments by position, got 4"):
        M.MaxPool2d(1, 1, 0, 5)


def test_batch_norm_keeps_statistics_only_in_training():
    layer = M.BatchNorm1d(2, momentum=0.5)
    x = wf.tensor([[1.0, 2.0], [3.0, 6.0]])
    layer(x)
    np.testing.assert_allclose(layer.running_mean.numpy(), [1.0, 2.0])
    np.testing.assert_allclose(layer.running_var.numpy(), [1.5, 4.5])
    before = layer.running_mean.numpy().copy()
    y = layer.eval()(x)
    np.testing.assert_array_equal(layer.running_mean.numpy(), before)
    np.testing.assert_allclose(y.numpy(), (x.numpy() - [1, 2]) / np.sqrt([1.5 + 1e-5, 4.5 + 1e-5]), rtol=1e-5)
    with pytest.raises(ShapeError, match="BatchNorm2d: needs 4 dimensions"):
        M.BatchNorm2d(2)(x)


def test_dropout_only_in_training():
    x = wf.ones(1000)
    layer = M.Dropout(0.5)
    assert set(np.unique(layer(x).numpy())) == {0.0, 2.0}
    np.testing.assert_array_equal(layer.eval()(x).numpy(), x.numpy())
    with pytest.raises(ValueError, match=r"p must be in 0\.\.1"):
        M.Dropout(1.5)


def test_attention_is_its_formula():
    layer = M.MultiheadAttention(6, 2)
    for p in layer.parameters():
        M.init.uniform_(p, -1, 1)
    q, k = given((2, 3, 6)), given((2, 4, 6))
    w, b = layer.in_proj_weight.numpy(), layer.in_proj_bias.numpy()

    def heads(x, part):
        y = x.numpy() @ w[6 * part : 6 * part + 6].T + b[6 * part : 6 * part + 6]
        return y.reshape(2, -1, 2, 3).transpose(0, 2, 1, 3)

    def want(q, k, seen):
        scores = heads(q, 0) @ heads(k, 1).transpose(0, 1, 3, 2) / np.sqrt(3)
        scores = np.where(seen, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        y = (weights / weights.sum(-1, keepdims=True)) @ heads(k, 2)
        return (
            y.transpose(0, 2, 1, 3).reshape(2, -1, 6) @ layer.out_proj.weight.numpy().T
            + layer.out_proj.bias.numpy()
        )

    mask = wf.tensor([True, False, True, True])
    np.testing.assert_allclose(layer(q, k, mask=mask).numpy(), want(q, k, mask.numpy()), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layer(q).numpy(), want(q, q, True), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        layer(q, is_causal=True).numpy(), want(q, q, np.tri(3, dtype=bool)), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers(name):
    layer = getattr(M, name)(3, 4, 2, dropout=1.0)
    x = given((5, 2, 3))
    y, state = layer(x)
    again, _ = layer(x, state)
    assert np.abs((again - y).numpy()).max() > 1e-4  # the state counts
    with_zeros = y.numpy()
    quiet, _last = layer.eval()(x)
    assert np.abs(quiet.numpy() - with_zeros).max() > 1e-4  # all between the layers was dropped
    pieces, piece_state = layer._layer_by_layer(x, layer._first_states(x))[0], None
    assert pieces.shape == y.shape
    first, piece_state = layer(x[:2])
    rest, piece_state = layer(x[2:], piece_state)
    np.testing.assert_allclose(
        np.concatenate([first.numpy(), rest.numpy()]), quiet.numpy(), rtol=1e-5, atol=1e-6
    )
    with pytest.raises(ShapeError, match="needs 3 dimensions"):
        layer(x[0])
    with pytest.raises(ValueError, match="at least 1 layer"):
        getattr(M, name)(3, 4, 0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: M.Conv2d(3, 4, 3, groups=2), "3 and 4 channels are not 2 equal groups"),
        (lambda: M.Conv2d(4, 4, (3, 3, 3)), "kernel_size needs 2 sizes"),
        (lambda: M.GroupNorm(3, 4), "4 channels are not 3 equal groups"),
        (lambda: M.MultiheadAttention(5, 2), "embed_dim=5 must be divisible by num_heads=2"),
        (lambda: M.Embedding(3, 2, padding_idx=3), "padding_idx 3 is not one of 3 rows"),
        (lambda: M.Sequential(F.relu), "takes modules"),
    ],
)
def test_errors(make, words):
    with pytest.raises((ValueError, TypeError, IndexError), match=words):
        make()


def test_sequential():
    net = M.Sequential(M.Linear(2, 3), M.ReLU()).append(M.Linear(3, 1))
    assert len(net) == 3
    assert [type(m).__name__ for m in net] == ["Linear", "ReLU", "Linear"]
    assert list(net.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    x = given((4, 2))
    np.testing.assert_array_equal(net(x).numpy(), net[2](net[1](net[0](x))).numpy())
    named = M.Sequential({"in": M.Linear(2, 3), "out": M.Linear(3, 1)})
    assert list(named.state_dict()) == ["in.weight", "in.bias", "out.weight", "out.bias"]
    assert M.Sequential()(x) is x


def test_sequential_items():
    net = M.Sequential(M.Linear(4, 3), M.ReLU(), M.Linear(3, 2))
    call = wf.trace(lambda x: net(x))
    x = wf.ones((1, 4))
    assert call(x).shape == call(x).shape == (1, 2)
    net[-1] = M.Linear(3, 5)
    assert call(x).shape == (1, 5)
    assert list(net.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert list(net[1:]) == [net[1], net[2]]
    with pytest.raises(TypeError, match="Sequential: takes modules, got int as number 0"):
        net[0] = 3
    with pytest.raises(IndexError):
        net[3] = M.ReLU()
