"""Layers with the same parameters compute what PyTorch's do, where it is installed; names are the same, too."""

import numpy as np
import pytest

import weft as wf
import weft.module as M

torch = pytest.importorskip("torch")

PAIRS = {
    "Linear": ((4, 3), {}, (5, 4)),
    "Conv1d": ((4, 6, 3, 2, 1), {}, (2, 4, 9)),
    "Conv2d": ((4, 6, 3, 2, 1, 2, 2), {}, (2, 4, 9, 9)),
    "Conv1d, reflect": ((4, 6, 3, 2, 1), {"padding_mode": "reflect"}, (2, 4, 9)),
    "Conv2d, replicate": ((4, 6, 3, 2, (2, 1)), {"padding_mode": "replicate"}, (2, 4, 9, 9)),
    "Conv2d, circular": ((4, 6, (2, 3), 1, "same"), {"padding_mode": "circular"}, (2, 4, 6, 5)),
    "Conv3d, circular": ((2, 3, 2, 1, 1), {"padding_mode": "circular"}, (2, 2, 4, 5, 3)),
    "ConvTranspose2d": ((4, 6, 3, 2, 1, 1, 2), {}, (2, 4, 5, 5)),
    "BatchNorm1d": ((4,), {}, (5, 4)),
    "BatchNorm2d": ((4,), {"momentum": 0.3}, (5, 4, 3, 3)),
    "LayerNorm": ((4,), {}, (5, 3, 4)),
    "GroupNorm": ((2, 4), {}, (5, 4, 3)),
    "RMSNorm": ((4,), {}, (5, 4)),
    "LSTM": ((3, 4, 2), {"bidirectional": True}, (5, 2, 3)),
    "GRU": ((3, 4, 2), {"batch_first": True}, (5, 2, 3)),
    "InstanceNorm1d": ((4,), {"track_running_stats": True}, (5, 4, 7)),
    "InstanceNorm2d": (
        (4,),
        {"affine": True, "momentum": 0.3, "track_running_stats": True},
        (5, 4, 3, 3),
    ),
    "RNN": ((3, 4), {}, (5, 2, 3)),
    "RNN, relu": ((3, 4), {"nonlinearity": "relu"}, (5, 2, 3)),
    "RNN, no bias": ((3, 4, 2), {"bias": False}, (5, 2, 3)),
    "LSTM, no bias": ((3, 4, 2), {"bidirectional": True, "bias": False}, (5, 2, 3)),
    "LSTM, projected, no bias": ((3, 4, 2), {"proj_size": 2, "bias": False}, (5, 2, 3)),
    "GRU, no bias": ((3, 4, 2), {"bidirectional": True, "bias": False}, (5, 2, 3)),
    "PReLU": ((4,), {}, (5, 4)),
}


def first(y):
    return y[0] if isinstance(y, tuple) else y


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("case", PAIRS)
def test_same_result_and_gradients(case):
    args, attributes, shape = PAIRS[case]
    name = case.partition(",")[0]
    rng = np.random.default_rng(0)
    other = getattr(torch.nn, name)(*args, **attributes)
    with torch.no_grad():
        for p in other.parameters():
            p.copy_(torch.from_numpy(rng.uniform(-1, 1, tuple(p.shape)).astype("float32")))
    own = getattr(M, name)(*args, **attributes)
    state = {key: x.numpy() for key, x in other.state_dict().items() if key != "num_batches_tracked"}
    own.load_state_dict(state)
    x = rng.standard_normal(shape, dtype="float32")
    gm = wf.GradManager().attach(own.parameters())
    with gm:
        y = first(own(wf.tensor(x)))
        dy = rng.standard_normal(y.shape, dtype="float32")
        if list(own.parameters()):
            gm.backward(y, wf.tensor(dy))
    want = first(other(torch.from_numpy(x)))
    if want.requires_grad:
        want.backward(torch.from_numpy(dy))
    np.testing.assert_allclose(y.numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)
    for (key, p), q in zip(own.named_parameters(), other.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-3, atol=1e-4, err_msg=key)
    for key, b in own.named_buffers():
        if key in state:
            np.testing.assert_allclose(b.numpy(), other.state_dict()[key].numpy(), rtol=1e-5, err_msg=key)
    if "Norm" in name:  # with the running statistics
        want = other.eval()(torch.from_numpy(x)).detach().numpy()
        np.testing.assert_allclose(own.eval()(wf.tensor(x)).numpy(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 41, 130])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_of_any_length(name, length):
    """Two layers, both directions, a state from outside: results, the last states, and all gradients."""
    rng = np.random.default_rng(length)
    other = getattr(torch.nn, name)(3, 4, 2, bidirectional=True)
    with torch.no_grad():
        for p in other.parameters():
            p.copy_(torch.from_numpy(rng.uniform(-0.6, 0.6, tuple(p.shape)).astype("float32")))
    own = getattr(M, name)(3, 4, 2, bidirectional=True)
    own.load_state_dict({key: x.numpy() for key, x in other.state_dict().items()})
    x = rng.standard_normal((length, 2, 3), dtype="float32")
    states = [rng.standard_normal((4, 2, 4), dtype="float32") for _ in range(2 if name == "LSTM" else 1)]

    def both(made):
        y, last = made
        return [y, *(last if isinstance(last, tuple) else [last])]

    given = [wf.tensor(a) for a in (x, *states)]
    gm = wf.GradManager().attach([*given, *own.parameters()])
    with gm:
        mine = both(own(given[0], given[1] if len(states) == 1 else tuple(given[1:])))
        gm.backward(sum((each * each).sum() for each in mine))
    theirs_given = [torch.from_numpy(a).requires_grad_() for a in (x, *states)]
    theirs = both(other(theirs_given[0], theirs_given[1] if len(states) == 1 else tuple(theirs_given[1:])))
    sum((each * each).sum() for each in theirs).backward()
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)
    for a, b in zip([*given, *own.parameters()], [*theirs_given, *other.parameters()], strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("bias", [False, True])
def test_attention_to_keys_and_values_of_other_features(bias):
    other = torch.nn.MultiheadAttention(6, 2, bias=bias, kdim=5, vdim=3, batch_first=True)
    own = M.MultiheadAttention(6, 2, bias, kdim=5, vdim=3)
    own.load_state_dict({key: x.numpy() for key, x in other.state_dict().items()})
    rng = np.random.default_rng(0)
    given = [rng.standard_normal((3, t, n), dtype="float32") for t, n in ((4, 6), (7, 5), (7, 3))]
    gm = wf.GradManager().attach(own.parameters())
    with gm:
        y = own(*map(wf.tensor, given))
        gm.backward((y * y).sum())
    want = other(*map(torch.from_numpy, given), need_weights=False)[0]
    (want * want).sum().backward()
    np.testing.assert_allclose(y.numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)
    theirs = dict(other.named_parameters())
    assert {name for name, _ in own.named_parameters()} == set(theirs)
    for name, p in own.named_parameters():
        np.testing.assert_allclose(
            p.grad.numpy(), theirs[name].grad.numpy(), rtol=1e-3, atol=1e-4, err_msg=name
        )


def test_attention():
    other = torch.nn.MultiheadAttention(6, 2, batch_first=True)
    own = M.MultiheadAttention(6, 2)
    own.load_state_dict({key: x.numpy() for key, x in other.state_dict().items()})
    q, k = (np.random.default_rng(n).standard_normal((3, 4 + n, 6), dtype="float32") for n in (0, 1))
    tq, tk = torch.from_numpy(q), torch.from_numpy(k)
    for keys, theirs in ((wf.tensor(k), tk), (None, tq)):
        gm = wf.GradManager().attach(own.parameters())
        with gm:
            y = own(wf.tensor(q), keys)
            gm.backward((y * y).sum())
        want = other(tq, theirs, theirs, need_weights=False)[0]
        (want * want).sum().backward()
        np.testing.assert_allclose(y.numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)
        for (name, p), p2 in zip(own.named_parameters(), other.parameters(), strict=True):
            np.testing.assert_allclose(p.grad.numpy(), p2.grad.numpy(), rtol=1e-3, atol=1e-4, err_msg=name)
            p.grad = p2.grad = None


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("kaiming_uniform_", {}),
        ("kaiming_normal_", {"mode": "fan_out"}),
        ("xavier_uniform_", {"gain": 2.0}),
        ("xavier_normal_", {}),
        ("trunc_normal_", {}),
        ("orthogonal_", {}),
    ],
)
def test_first_values_have_the_same_spread(name, attributes):
    own, other = wf.zeros((200, 30, 3, 3)), torch.zeros((200, 30, 3, 3))
    getattr(M.init, name)(own, **attributes)
    getattr(torch.nn.init, name)(other, **attributes)
    np.testing.assert_allclose(own.numpy().std(), other.numpy().std(), rtol=0.02)
    np.testing.assert_allclose(np.abs(own.numpy()).max(), other.abs().max().item(), rtol=0.35)


def same_values(own, other, *inputs, **options):
    """What both layers make of the inputs, with the parameters of PyTorch's."""
    own.load_state_dict({key: x.numpy() for key, x in other.state_dict().items()})
    got, want = own(*map(wf.tensor, inputs)), other(*map(torch.from_numpy, inputs))
    for y, w in zip(*((v if isinstance(v, tuple) else (v,)) for v in (got, want)), strict=True):
        np.testing.assert_allclose(y.numpy(), w.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("name", ["TransformerEncoderLayer", "TransformerDecoderLayer"])
def test_transformer_layers(name, norm_first, activation):
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((3, n, 8), dtype="float32") for n in (5, 7)[: 1 + ("Decoder" in name)]]
    how = {"norm_first": norm_first, "activation": activation}
    other = getattr(torch.nn, name)(8, 2, 16, batch_first=True, **how).eval()
    same_values(getattr(M, name)(8, 2, 16, **how).eval(), other, *inputs)


@pytest.mark.parametrize("name", ["RNNCell", "GRUCell", "LSTMCell", "Bilinear"])
def test_cells_and_bilinear_forms(name):
    rng = np.random.default_rng(0)
    sizes = (3, 6, 4) if name == "Bilinear" else (3, 6)
    inputs = [rng.standard_normal((4, n), dtype="float32") for n in ((3, 6) if name == "Bilinear" else (3,))]
    same_values(getattr(M, name)(*sizes), getattr(torch.nn, name)(*sizes), *inputs)


def test_a_transformer():
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((3, n, 8), dtype="float32") for n in (7, 5)]
    sizes = (8, 2, 2, 2, 16)
    same_values(M.Transformer(*sizes).eval(), torch.nn.Transformer(*sizes, batch_first=True).eval(), *inputs)
