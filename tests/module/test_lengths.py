"""Recurrent layers of sequences of different lengths, with projections, and of images; caches of transformers."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M


@pytest.fixture(autouse=True)
def seeded():
    before = wf.random.get_state()
    wf.random.seed(1)
    yield
    wf.random.set_state(before)


def states_of(state):
    return state if isinstance(state, tuple | list) else (state,)


@pytest.mark.daily(4)
@pytest.mark.parametrize("proj_size", [0, 2])
@pytest.mark.parametrize("layer", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_each_sequence_as_if_alone(layer, bidirectional, proj_size):
    """Values, last states and gradients; one sequence is empty; in a trace."""
    if proj_size and layer != "LSTM":
        return
    options = {"proj_size": proj_size} if proj_size else {}
    net = getattr(M, layer)(3, 4, num_layers=2, bidirectional=bidirectional, **options)
    x, lengths = wf.random.normal(shape=(6, 4, 3)), [6, 1, 0, 4]
    directions = 1 + bidirectional
    sizes = [proj_size or 4, 4][: len(net.state_names)]
    first = tuple(wf.random.normal(shape=(2 * directions, 4, size)) for size in sizes)
    first = first if len(first) > 1 else first[0]
    weights = wf.random.normal(shape=(6, 4, (proj_size or 4) * directions))

    def together(x):
        y, last = net(x, first, wf.tensor(lengths))
        return ((y * weights).sum() + sum((s * s).sum() for s in states_of(last)), y, *states_of(last))

    def alone(x):
        total = 0
        for k, n in enumerate(lengths):
            own = [s[:, k : k + 1] for s in states_of(first)]
            last = own
            if n:
                y, last = net(x[:n, k : k + 1], tuple(own) if len(own) > 1 else own[0])
                total = total + (y * weights[:n, k : k + 1]).sum()
            total = total + sum((s * s).sum() for s in states_of(last))
        return total

    run = wf.trace(together, strict=True)
    loss, y, *last = run(x)
    np.testing.assert_allclose(loss.item(), alone(x).item(), rtol=1e-4)
    for got, want in zip(run(x), together(x), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)
    for k, n in enumerate(lengths):
        assert not y[n:, k].numpy().any()
    assert [s.shape for s in last] == [s.shape for s in states_of(first)]
    got, want = wf.grad(lambda x: together(x)[0])(x), wf.grad(alone)(x)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-3, atol=1e-5)


def test_projected_lstm():
    """By its definition, step by step in NumPy."""
    net = M.LSTM(3, 4, proj_size=2)
    x = wf.random.normal(shape=(5, 2, 3))
    w_ih, w_hh, b_ih, b_hh, w_hr = (p.numpy() for p in net.parameters())
    assert [name for name, _ in net.named_parameters()][-1] == "weight_hr_l0"
    h, c, outputs = np.zeros((2, 2)), np.zeros((2, 4)), []
    for each in x.numpy():
        gates = each @ w_ih.T + b_ih + h @ w_hh.T + b_hh
        i, f, g, o = np.split(gates, 4, axis=-1)
        i, f, o = (1 / (1 + np.exp(-v)) for v in (i, f, o))
        c = f * c + i * np.tanh(g)
        h = (o * np.tanh(c)) @ w_hr.T
        outputs.append(h)
    y, (hn, cn) = net(x)
    np.testing.assert_allclose(y.numpy(), np.stack(outputs), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(hn[0].numpy(), h, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(cn[0].numpy(), c, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="proj_size must be from 0 to 3, got 4"):
        M.LSTM(3, 4, proj_size=4)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_lengths_in_other_types(dtype):
    net, x = M.LSTM(3, 4).astype(dtype), wf.random.normal(shape=(6, 2, 3)).astype(dtype)
    _, (h, c) = net(x, lengths=wf.tensor([6, 2]))
    _, (h_alone, c_alone) = net(x[:2, 1:])
    assert str(c.dtype) == dtype
    tolerance = 1e-12 if dtype == "float64" else 2e-2
    for got, want in ((h, h_alone), (c, c_alone)):
        np.testing.assert_allclose(
            got[0, 1].astype("float64").numpy(), want[0, 0].astype("float64").numpy(), atol=tolerance
        )


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_convolutional_cells_with_kernels_of_one_place_are_cells(ndim):
    """A kernel of size 1 makes a cell at each place."""
    shape = (2, 3, 4, 5)[-ndim:]
    x = wf.random.normal(shape=(2, 3, *shape))
    for kind, states in (("LSTM", 2), ("GRU", 1)):
        cell = getattr(M, f"Conv{kind}Cell{ndim}d")(3, 4, kernel_size=1)
        plain = getattr(M, f"{kind}Cell")(3, 4)
        shapes = {name: p.shape for name, p in plain.named_parameters()}
        plain.load_state_dict({name: p.reshape(shapes[name]) for name, p in cell.named_parameters()})
        first = [wf.random.normal(shape=(2, 4, *shape)) for _ in range(states)]

        def flat(v):
            return F.moveaxis(v, 1, -1).reshape(-1, v.shape[1])

        given = (tuple(first), tuple(map(flat, first))) if states > 1 else (first[0], flat(first[0]))
        got, want = states_of(cell(x, given[0])), states_of(plain(flat(x), given[1]))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(flat(a).numpy(), b.numpy(), rtol=1e-4, atol=1e-5)


def test_a_convolutional_layer_is_its_cell_step_by_step():
    layer, cell = M.ConvLSTM2d(3, 4, 3), M.ConvLSTMCell2d(3, 4, 3)
    cell.load_state_dict(layer.state_dict())
    x = wf.random.normal(shape=(4, 2, 3, 5, 6))
    y, last = layer(x)
    state, outputs = None, []
    for each in x:
        state = cell(each, state)
        outputs.append(state[0])
    np.testing.assert_allclose(y.numpy(), F.stack(outputs).numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(last[1].numpy(), state[1].numpy(), rtol=1e-4, atol=1e-5)
    traced = wf.trace(lambda x: layer(x)[0], strict=True)
    np.testing.assert_allclose(traced(x).numpy(), y.numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="odd sizes of kernels, got 2"):
        M.ConvLSTM2d(3, 4, 2)
    with pytest.raises(wf.ShapeError):
        layer(x[0])


@pytest.mark.parametrize("norm_first", [False, True])
def test_decoding_with_a_transformer(norm_first):
    decoder = M.TransformerDecoder(M.TransformerDecoderLayer(8, 2, 16, norm_first=norm_first), 2).eval()
    x, memory = wf.random.normal(shape=(3, 6, 8)), wf.random.normal(shape=(3, 4, 8))
    whole = decoder(x, memory, is_causal=True).numpy()
    caches = decoder.cache(3, 8)
    step = wf.trace(lambda x: decoder(x, memory, caches=caches))
    parts = [step(x[:, :3])] + [step(x[:, k : k + 1]) for k in range(3, 6)]
    np.testing.assert_allclose(F.concat(parts, axis=1).numpy(), whole, rtol=1e-4, atol=1e-5)
    assert [cache.length.item() for cache in caches] == [6, 6]


def test_packed_sequences_in_a_transformer():
    encoder = M.TransformerEncoder(M.TransformerEncoderLayer(8, 2, 16), 2).eval()
    x = wf.random.normal(shape=(1, 7, 8))
    packed = encoder(x, ranges=F.packed_ranges(wf.tensor([0, 3, 7]), size=7))
    alone = F.concat([encoder(x[:, :3]), encoder(x[:, 3:])], axis=1)
    np.testing.assert_allclose(packed.numpy(), alone.numpy(), rtol=1e-4, atol=1e-5)
