"""wf.amp.autocast: which types operators get, what is kept, and gradients."""

import gc

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft import _core
from weft.amp import FULL, HALF
from weft.ops import registry

X = wf.tensor(np.linspace(-1, 1, 24, dtype="float32").reshape(4, 6))
W = wf.tensor(np.linspace(-0.5, 0.5, 18, dtype="float32").reshape(3, 6))


class Seen(wf.Transformation):
    kind = "user"

    def __init__(self):
        self.calls = []

    def emit(self, op, args):
        self.calls.append(op.name)
        return op(*args)


def casts(function):
    """How often the engine converts: calls of cast that are launched."""
    before = _core.program_counters()["launches"]
    function()
    return _core.program_counters()["launches"] - before


def test_families_exist():
    families = {registry.get(name).family for name in registry.public_names()}
    assert families >= HALF | FULL
    assert not HALF & FULL


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_products_are_half(dtype):
    image, kernel = wf.ones((1, 2, 5, 5)), wf.ones((3, 2, 3, 3))
    with wf.amp.autocast(dtype=dtype):
        for y in (
            X @ X.T,
            F.linear(X, W, wf.ones(3)),
            F.conv2d(image, kernel, wf.ones(3)),
            F.einsum("ij,kj->ik", X, W),
            F.scaled_dot_product_attention(image, image, image),
        ):
            assert y.dtype.name == dtype


def test_sums_and_losses_are_full():
    half = X.astype("bfloat16")
    with wf.amp.autocast():
        for y in (
            F.softmax(half),
            half.sum(),
            F.mean(half, axis=0),
            F.logsumexp(half),
            F.cross_entropy(half, wf.zeros(4, dtype="int64")),
            F.mse_loss(half, half),
        ):
            assert y.dtype is wf.float32


def test_the_others_take_what_comes():
    half = X.astype("bfloat16")
    with wf.amp.autocast():
        assert F.relu(half).dtype is wf.bfloat16
        assert (half + X).dtype is wf.float32
        assert (half * 2).dtype is wf.bfloat16
        assert F.exp(X).dtype is wf.float32


def test_integers_and_float64_are_left():
    wide = X.astype("float64")
    with wf.amp.autocast():
        assert (wide @ wide.T).dtype is wf.float64
        assert wf.ones((2, 2), dtype="int32").sum().dtype.kind == "int"
        assert F.linear(wide, W.astype("float64")).dtype is wf.float64


def test_norms_keep_parameters_and_statistics():
    half, mean, var = X.astype("bfloat16"), wf.zeros(6), wf.ones(6)
    with wf.amp.autocast():
        y = F.batch_norm(half, mean, var, wf.ones(6), wf.zeros(6), training=True)
        assert F.layer_norm(half, (6,), wf.ones(6), wf.zeros(6)).dtype is wf.bfloat16
    assert y.dtype is wf.bfloat16
    assert (mean.dtype, var.dtype) == (wf.float32, wf.float32)
    np.testing.assert_allclose(
        mean.numpy(), 0.1 * half.astype("float32").numpy().mean(0), rtol=1e-5, atol=1e-6
    )


def test_written_inputs_keep_their_type():
    """None of today's products writes an input; the rule does not depend on that."""
    for name in registry.names():
        cls = registry.get(name)
        if cls.family in HALF and isinstance(cls.writes, dict):
            assert not cls.writes


def test_gradients_have_the_types_of_what_they_belong_to():
    def loss(w):
        with wf.amp.autocast():
            return F.mean(F.relu(F.linear(X, w)))

    found = wf.grad(loss)(W)
    assert found.dtype is wf.float32
    np.testing.assert_allclose(
        found.numpy(), wf.grad(lambda w: F.mean(F.relu(F.linear(X, w))))(W).numpy(), rtol=2e-2, atol=2e-3
    )


def test_weights_are_converted_once():
    with wf.amp.autocast():
        X @ W.T
        first = casts(lambda: F.linear(X, W))
        again = casts(lambda: F.linear(X, W))
    assert again == 1
    assert first in (1, 2)  # X was converted before
    assert casts(lambda: F.linear(X, W)) == 1


def test_written_weights_are_converted_again():
    w = W.copy()
    with wf.amp.autocast():
        before = F.linear(X, w).astype("float32").numpy()
        w *= 2
        after = F.linear(X, w).astype("float32").numpy()
    np.testing.assert_allclose(after, 2 * before, rtol=1e-2)


def test_recorded_anew():
    """What was converted while nothing was recorded, or in an earlier recording, has no gradient to give."""
    w, gm = W.copy(), wf.GradManager()
    gm.attach([w])
    with wf.amp.autocast():
        F.linear(X, w)
        for _ in range(3):
            with gm:
                with wf.no_grad():
                    F.linear(X, w)
                loss = F.mean(F.linear(X, w) + F.linear(X, w))
                gm.backward(loss)
    plain = wf.grad(lambda w: F.mean(2 * F.linear(X, w)))(W)
    np.testing.assert_allclose(w.grad.numpy(), 3 * plain.numpy(), rtol=2e-2, atol=2e-3)


def test_what_was_converted_goes_with_its_tensor():
    with wf.amp.autocast() as amp:
        w = W.copy()
        F.linear(X, w)
        assert len(amp._conversions) == 2
        del w
        gc.collect()
        assert len(amp._conversions) == 1
    assert not amp._conversions


def test_inside_each_other():
    with wf.amp.autocast(dtype="float16"):
        with wf.amp.autocast(dtype="bfloat16"):
            assert (X @ X.T).dtype is wf.bfloat16
        with wf.amp.autocast(enabled=False):
            assert (X @ X.T).dtype is wf.float32
        assert (X @ X.T).dtype is wf.float16


def test_users_layers_see_what_was_called():
    layer = Seen()
    with layer, wf.amp.autocast():
        X @ X.T
    assert layer.calls == ["permute_dims", "matmul"]


def test_wrong_dtypes():
    for dtype in ("float32", "int8", "float64"):
        with pytest.raises(ValueError, match="autocast: dtype must be bfloat16 or float16"):
            wf.amp.autocast(dtype=dtype)


def test_training_follows_float32():
    rng = np.random.default_rng(0)
    x, target = wf.tensor(rng.normal(size=(64, 8)).astype("float32")), wf.tensor(rng.integers(0, 3, 64))

    def train(context):
        w = wf.tensor(np.linspace(-1, 1, 24, dtype="float32").reshape(3, 8))
        gm, losses = wf.GradManager(), []
        gm.attach([w])
        for _ in range(30):
            with gm:
                with context():
                    loss = F.cross_entropy(F.linear(x, w), target)
                gm.backward(loss)
            w -= 0.5 * w.grad
            w.grad = None
            losses.append(loss.item())
        return losses

    plain, mixed = train(lambda: wf.amp.autocast(enabled=False)), train(wf.amp.autocast)
    assert plain[-1] < 0.8 * plain[0]
    np.testing.assert_allclose(mixed, plain, rtol=2e-2)


def test_traces_know_what_they_were_recorded_under():
    w, calls = W.copy(), []

    @wf.trace(strict=True)
    def product(x):
        calls.append(1)
        return F.linear(x, w)

    for _ in range(3):
        assert product(X).dtype is wf.float32
        with wf.amp.autocast():
            F.linear(X, w)  # what was converted before the trace must not become part of it
            assert product(X).dtype is wf.bfloat16
    assert len(calls) == 2
    w *= 2
    with wf.amp.autocast():
        got = product(X)
    np.testing.assert_allclose(got.astype("float32").numpy(), F.linear(X, w).numpy(), rtol=3e-2, atol=1e-2)
