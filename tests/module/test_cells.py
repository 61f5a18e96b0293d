"""Cells made of cells, and layers of recurrent and rare classes, by their definitions."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M


def random(*shape, seed=0):
    return wf.tensor(np.random.default_rng(seed).standard_normal(shape).astype("float32"))


def near(x, y):
    np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("traced", [False, True])
def test_an_unrolled_cell_is_a_layer(name, traced):
    cell, layer = getattr(M, f"{name}Cell")(3, 4), getattr(M, name)(3, 4)
    layer.load_state_dict({f"{key}_l0": x for key, x in cell.state_dict().items()})
    unrolled, x = M.UnrolledCell(cell), random(6, 2, 3)
    y, last = (wf.trace(unrolled) if traced else unrolled)(x)
    want, state = layer(x)
    near(y, want)
    for a, b in zip(*((s if isinstance(s, tuple) else (s,)) for s in (last, state)), strict=True):
        near(a, b[0])
    y, _ = unrolled(x, last)  # from another state
    near(y, layer(x, tuple(s[None] for s in last) if name == "LSTM" else last[None])[0])
    z, _ = unrolled(x, is_reversed=True)
    near(F.flip(z, axis=0), layer(F.flip(x, axis=0))[0])


def test_two_directions_are_those_of_a_layer():
    layer, cells = M.GRU(3, 4, bidirectional=True), [M.GRUCell(3, 4), M.GRUCell(3, 4)]
    for cell, end in zip(cells, ("", "_reverse"), strict=True):
        state = {key: getattr(layer, f"{key}_l0{end}") for key in cell.state_dict()}
        cell.load_state_dict(state)
    x, net = random(5, 2, 3), M.BidirectionalCell(*cells)
    y, states = net(x)
    want, last = layer(x)
    near(y, want)
    near(wf.stack(list(states)), last)
    y, _ = net(x, tuple(states))
    near(y, layer(x, last)[0])


@pytest.mark.parametrize("traced", [False, True])
def test_cells_one_behind_the_other(traced):
    a, b, c = M.LSTMCell(3, 4), M.GRUCell(4, 4), M.RNNCell(4, 4)
    cell = M.SequentialRNNCell(a, M.ResidualCell(b), M.DropoutCell(0.5), c).eval()
    x, states = random(6, 2, 3), None
    outputs = []
    for k in range(6):
        y, states = (wf.trace(cell) if traced else cell)(x[k], states)
        outputs.append(y)
    h, c1, g, r = (wf.zeros((2, 4)) for _ in range(4))
    for k in range(6):
        h, c1 = a(x[k], (h, c1))
        g = b(h, g)
        r = c(h + g, r)
        near(outputs[k], r)
    y, last = M.UnrolledCell(cell)(x)
    near(y, wf.stack(outputs))
    assert len(last) == 4
    assert len(list(cell.parameters())) == 12
    with pytest.raises(ValueError, match="4 cells need as many states, got 2"):
        cell(x[0], (None, None))
    with pytest.raises(ValueError, match="needs at least one cell"):
        M.SequentialRNNCell()
    with pytest.raises(wf.ShapeError, match="at least one step"):
        M.UnrolledCell(a)(x[:0])


def test_gradients_go_through_all_steps():
    net = M.UnrolledCell(M.ResidualCell(M.LSTMCell(3, 3)))
    x = random(4, 2, 3)
    gm = wf.GradManager().attach([x, *net.parameters()])
    with gm:
        gm.backward((net(x)[0][-1] ** 2).sum())
    assert all(np.abs(x.grad[k].numpy()).max() > 0 for k in range(4))
    assert all(np.abs(p.grad.numpy()).max() > 0 for p in net.parameters())


def test_zoneout_keeps_parts():
    cell = M.RNNCell(3, 200)
    net = M.ZoneoutCell(cell, states=0.25, outputs=0.5)
    x, h, last = random(50, 3), random(50, 200, seed=1), random(50, 200, seed=2)
    y, (new, result) = net(x, (h, last))
    want = cell(x, h)
    kept, shown = (new == h).numpy(), (y == last).numpy()
    assert ((new == want).numpy() | kept).all()
    assert ((y == want).numpy() | shown).all()  # the result is of the cell, whatever its state keeps
    assert abs(kept.mean() - 0.25) < 0.02
    assert abs(shown.mean() - 0.5) < 0.02
    assert result is y
    y, (new, _) = net.eval()(x, (h, last))
    near(y, want)
    near(new, want)
    with pytest.raises(ValueError, match=r"states must be in 0\.\.1, got 2"):
        M.ZoneoutCell(cell, states=2)
    y, _ = M.UnrolledCell(M.ZoneoutCell(M.LSTMCell(3, 4), 0.5, 0.5))(random(5, 2, 3))
    assert y.shape == (5, 2, 4)


def test_variational_dropout_draws_once_in_a_sequence():
    x = wf.ones((20, 8, 6))
    net = M.VariationalDropoutCell(M.RNNCell(6, 50), inputs=0.5, states=0.5, outputs=0.5)
    y, (_, factors) = M.UnrolledCell(net)(x)
    zeros = y.numpy() == 0
    assert (zeros == zeros[:1]).all()
    assert 0.3 < zeros.mean() < 0.7
    for each, shape in zip(factors, [(8, 6), (8, 50), (8, 50)], strict=True):
        assert each.shape == shape
        assert set(np.unique(each.numpy())) == {0.0, 2.0}
    other = M.UnrolledCell(net)(x)[0].numpy() == 0
    assert (other != zeros).any()  # of a new sequence

    # The same by hand, from the factors and a state that is given.
    h, cell = random(8, 50), net.cell
    y, (new, again) = net(x[0], (h, factors))
    want = cell(x[0] * factors[0], h * factors[1])
    near(new, want)
    near(y, want * factors[2])
    assert all(a is b for a, b in zip(again, factors, strict=True))
    y, (_, again) = net.eval()(x[0], (h, factors))
    near(y, cell(x[0], h))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_plain_convolutional_cells(dims):
    cell = getattr(M, f"ConvRNNCell{dims}d")(2, 3, (3, 1, 5)[:dims])
    x, h = random(2, 2, *(5,) * dims), random(2, 3, *(5,) * dims)
    conv, padding = getattr(F, f"conv{dims}d"), [(1, 0, 2)[k] for k in range(dims)]
    from_x = conv(x, cell.weight_ih, cell.bias_ih, padding=padding)
    near(cell(x, h), F.tanh(from_x + conv(h, cell.weight_hh, cell.bias_hh, padding=padding)))
    near(cell(x), F.tanh(from_x + cell.bias_hh.reshape(1, 3, *(1,) * dims)))
    with pytest.raises(wf.ShapeError, match="dimensions"):
        cell(x[0])


def test_adaptive_softmax():
    layer = M.AdaptiveLogSoftmaxWithLoss(16, 20, (4, 9), div_value=2.0, head_bias=True)
    x, target = random(7, 16), wf.tensor([0, 3, 4, 8, 9, 19, 4])
    logs = layer.log_prob(x)
    np.testing.assert_allclose(np.exp(logs.numpy()).sum(axis=1), np.ones(7), rtol=1e-5)
    output, loss = layer(x, target)
    near(output, F.take_along_axis(logs, target[:, None], axis=1)[:, 0])
    assert loss.item() == pytest.approx(-output.numpy().mean())
    assert (layer.predict(x).numpy() == logs.numpy().argmax(axis=1)).all()
    near(layer(x[2], target[2])[0], output[2])

    def gradients(f):
        gm = wf.GradManager().attach([x, *layer.parameters()])
        with gm:
            gm.backward(f())
        found = [p.grad for p in (x, *layer.parameters())]
        for p in (x, *layer.parameters()):
            p.grad = None
        return found

    dense = gradients(lambda: -F.mean(F.take_along_axis(layer.log_prob(x), target[:, None], axis=1)))
    for a, b in zip(gradients(lambda: layer(x, target)[1]), dense, strict=True):
        near(a, b)
    with pytest.warns(wf.TraceWarning, match="cannot be recorded"):
        near(wf.trace(layer)(x, target)[0], output)
    few = layer(x[:2], target[:2])[0]  # without any of the clusters
    near(few, output[:2])
    with pytest.raises(IndexError, match=r"targets must be in 0 \.\.\. 19"):
        layer(x, target + 1)
    with pytest.raises(wf.ShapeError, match="target"):
        layer(x, target[:3])
    with pytest.raises(ValueError, match="cutoffs must rise within 1"):
        M.AdaptiveLogSoftmaxWithLoss(16, 20, (9, 9))


def test_adaptive_softmax_is_that_of_pytorch():
    torch = pytest.importorskip("torch")
    own = M.AdaptiveLogSoftmaxWithLoss(16, 20, (4, 9), div_value=2.0)
    other = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 20, [4, 9], div_value=2.0)
    own.load_state_dict({key: x.numpy() for key, x in other.state_dict().items()})
    x, target = random(7, 16), np.array([0, 3, 4, 8, 9, 19, 4])
    output, loss = own(x, wf.tensor(target))
    want = other(torch.from_numpy(x.numpy()), torch.from_numpy(target))
    np.testing.assert_allclose(output.numpy(), want.output.detach().numpy(), rtol=1e-5)
    assert loss.item() == pytest.approx(want.loss.item(), rel=1e-5)


def test_triplets_of_any_distance():
    a, p, n = (random(5, 3, seed=k) for k in range(3))
    for options in ({}, {"swap": True, "margin": 2.0}, {"reduction": "sum"}, {"reduction": "none"}):
        near(
            F.triplet_margin_with_distance_loss(a, p, n, **options), F.triplet_margin_loss(a, p, n, **options)
        )
    layer = M.TripletMarginWithDistanceLoss(M.Bilinear(3, 3, 1), reduction="none")
    assert layer(a, p, n).shape == (5, 1)
    assert len(list(layer.parameters())) == 2
    with pytest.raises(ValueError, match="margin must be positive"):
        F.triplet_margin_with_distance_loss(a, p, n, margin=0)
    with pytest.raises(ValueError, match="reduction must be one of"):
        F.triplet_margin_with_distance_loss(a, p, n, reduction="batch")


def test_linear_cross_entropy_holds_no_logits_of_all_rows():
    """Peak memory of a step, forward and backward, beside that of the two layers one after the other."""
    rows, width, classes = 512, 8, 4096
    layer = M.LinearCrossEntropyLoss(width, classes, chunk_rows=32)
    x, target = random(rows, width), wf.tensor(np.arange(rows) % classes)
    plain = M.CrossEntropyLoss()

    def step(loss):
        gm = wf.GradManager().attach([x, *layer.parameters()])
        with gm:
            y = loss()
            gm.backward(y)
        found = [y, x.grad, *(p.grad for p in layer.parameters())]
        for p in (x, *layer.parameters()):
            p.grad = None
        return found

    peaks, results = [], []
    for loss in (lambda: layer(x, target), lambda: plain(layer.linear(x), target)):
        results.append(step(loss))
        wf.waitall()
        wf.storage.reset_peaks()
        before = wf.storage.stats()["in_use_bytes"]
        step(loss)
        wf.waitall()
        peaks.append(wf.storage.stats()["peak_in_use_bytes"] - before)
    for a, b in zip(*results, strict=True):
        near(a, b)
    logits = rows * classes * 4
    assert peaks[1] > logits
    assert peaks[0] < logits / 4


def test_fractional_pooling_draws():
    x = random(3, 4, 20, 15)
    layer = M.FractionalMaxPool2d(3, output_ratio=(0.5, 0.4), return_indices=True)
    y, indices = layer(x)
    assert y.shape == (3, 4, 10, 6)
    near(F.take_along_axis(x.reshape(3, 4, 300), indices.reshape(3, 4, 60), axis=-1).reshape(y.shape), y)
    other, _ = layer(x)
    assert (other != y).any().item()
    assert (y.numpy()[..., -1, -1] == x.numpy()[..., -3:, -3:].max(axis=(-1, -2))).all()
    traced = wf.trace(lambda x: F.fractional_max_pool2d(x, 2, 5))
    assert (traced(x) != traced(x)).any().item()
    assert M.FractionalMaxPool3d(2, 3)(random(1, 2, 6, 5, 7)).shape == (1, 2, 3, 3, 3)
    with pytest.raises(ValueError, match="needs either output_size or output_ratio"):
        F.fractional_max_pool2d(x, 2)
    with pytest.raises(ValueError, match="FractionalMaxPool2d: needs either"):
        M.FractionalMaxPool2d(2, 3, 0.5)
    with pytest.raises(ValueError, match="output_ratio must be"):
        F.fractional_max_pool2d(x, 2, output_ratio=1.5)
    with pytest.raises(wf.ShapeError, match="x needs 4 dimensions"):
        F.fractional_max_pool2d(x[0], 2, 3)
