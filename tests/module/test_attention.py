"""Attention as a layer: shared heads, places, memory of what was read, sequences packed into one, dropout."""

import itertools

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M

SPECIAL = [
    {},
    {"num_kv_heads": 2},
    {"rotary": "halves"},
    {"rotary": "interleaved", "num_kv_heads": 1, "rotary_base": 500.0},
    {"slopes": True, "soft_cap": 5.0},
    {"window": (2, 0)},
]


@pytest.fixture(autouse=True)
def seeded():
    before = wf.random.get_state()
    wf.random.seed(1)
    yield
    wf.random.set_state(before)


@pytest.mark.parametrize("options", SPECIAL)
def test_decoding_gives_what_the_whole_sequence_gives(options):
    """Step by step in a trace, 3 places at first; a cache of more places than there are."""
    layer = M.MultiheadAttention(16, 4, **options).eval()
    x = wf.random.normal(shape=(2, 9, 16))
    whole = layer(x, is_causal=True).numpy()
    cache = M.KeyValueCache(2, layer.num_kv_heads, 12, 4)
    step = wf.trace(lambda x: layer(x, cache=cache))
    for _ in range(2):
        parts = [step(x[:, :3])] + [step(x[:, i : i + 1]) for i in range(3, 9)]
        np.testing.assert_allclose(F.concat(parts, axis=1).numpy(), whole, rtol=1e-4, atol=1e-5)
        assert cache.length.item() == 9
        cache.reset()


def test_a_step_of_decoding_is_one_program():
    layer = M.MultiheadAttention(8, 2, rotary="halves").eval()
    cache = M.KeyValueCache(1, 2, 40, 4)
    calls = []

    @wf.trace
    def step(x):
        calls.append(1)
        return layer(x, cache=cache)

    for _ in range(20):
        step(wf.ones((1, 1, 8)))
    assert len(calls) <= 2
    assert cache.length.item() == 20


@pytest.mark.parametrize("options", SPECIAL)
def test_packed_sequences_are_those_one_by_one(options):
    layer = M.MultiheadAttention(16, 4, **options)
    lengths = (70, 3, 1, 60)
    starts = np.cumsum([0, *lengths])
    if options.get("rotary"):
        return  # places are counted from the first sequence on: products depend on differences alone, see below
    x = wf.random.normal(shape=(1, int(starts[-1]), 16))
    ranges = F.packed_ranges(wf.tensor(starts), size=x.shape[1])
    packed = layer(x, is_causal=True, ranges=ranges).numpy()
    for a, b in itertools.pairwise(starts):
        right = layer(x[:, int(a) : int(b)], is_causal=True).numpy()
        np.testing.assert_allclose(packed[:, a:b], right, rtol=1e-4, atol=1e-5)


def test_rotated_scores_depend_on_differences_alone():
    layer = M.MultiheadAttention(16, 4, rotary="halves")
    x = wf.random.normal(shape=(1, 10, 16))
    packed = layer(x, ranges=F.packed_ranges(wf.tensor([0, 4, 10]), size=10)).numpy()
    np.testing.assert_allclose(packed[:, 4:], layer(x[:, 4:]).numpy(), rtol=1e-4, atol=1e-5)


def test_dropout_of_weights():
    layer = M.MultiheadAttention(8, 2, dropout=0.5)
    x = wf.random.normal(shape=(2, 80, 8))
    a, b = layer(x).numpy(), layer(x).numpy()
    assert (a != b).any()
    layer.eval()
    right = layer(x).numpy()
    np.testing.assert_array_equal(right, layer(x).numpy())
    layer.train()
    mean = np.mean([layer(x).numpy() for _ in range(200)], axis=0)
    np.testing.assert_allclose(mean, right, atol=0.08)
    assert F.scaled_dot_product_attention(x, x, x, key=wf.random.key(0), dropout=1.0).numpy().any() == False  # noqa: E712


def test_dropout_is_the_same_forward_and_backward():
    """By differences, of the kernel with tiles and of its composition."""
    key = wf.random.key(3)
    for dtype in ("float32", "float64"):
        q, k, v = (wf.random.normal(shape=(1, 2, 70, 4)).astype(dtype) for _ in range(3))

        def loss(k):
            return F.scaled_dot_product_attention(q, k, v, key=key, dropout=0.3).sum()  # noqa: B023

        gradient = wf.grad(loss)(k).astype("float64").numpy()
        step = 1e-2 if dtype == "float32" else 1e-6
        move = np.sign(gradient)
        up, down = (loss(k + wf.tensor(s * step * move).astype(dtype)).item() for s in (1, -1))
        np.testing.assert_allclose((up - down) / (2 * step), np.abs(gradient).sum(), rtol=1e-2)


def test_no_matrix_of_scores():
    """Counted bytes: with all options, value and gradients take less at once than a sixteenth of the scores would."""
    n = 2048
    q = wf.random.normal(shape=(1, 4, n, 8))
    kv = wf.random.normal(shape=(1, 2, n, 8))
    options = {"slopes": M.alibi_slopes(4), "soft_cap": 20.0, "key": wf.random.key(0), "dropout": 0.1}
    ranges = F.packed_ranges(wf.tensor([0, 1000, n]), size=n)

    @wf.trace
    def gradients(q, kv):
        def loss(q, kv):
            y = F.scaled_dot_product_attention(q, kv, kv, ranges=ranges, window=(100, 0), **options)
            return (y**2).sum()

        return wf.grad(loss, (0, 1))(q, kv)

    gradients(q, kv)
    wf.waitall()
    wf.storage.reset_peaks()
    before = wf.storage.stats()["in_use_bytes"]
    results = gradients(q, kv)
    wf.waitall()
    assert wf.storage.stats()["peak_in_use_bytes"] - before < 4 * n * n * 4 / 16
    assert all(np.isfinite(g.numpy()).all() for g in results)


def test_slopes():
    np.testing.assert_allclose(M.alibi_slopes(3).numpy(), [2**-4, 2**-8, 2**-2])
    assert M.alibi_slopes(12).shape == (12,)
    with pytest.raises(ValueError, match="at least 1"):
        M.alibi_slopes(0)


def test_errors():
    with pytest.raises(ValueError, match="num_heads=4 must be divisible by num_kv_heads=3"):
        M.MultiheadAttention(8, 4, num_kv_heads=3)
    with pytest.raises(ValueError, match="dropout must be in"):
        M.MultiheadAttention(8, 4, dropout=2.0)
    cache = M.KeyValueCache(1, 2, 2, 4)
    with pytest.raises(IndexError):
        M.MultiheadAttention(8, 2)(wf.zeros((1, 3, 8)), cache=cache).numpy()
    wf.clear_errors()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_slopes_have_no_gradient(dtype):
    """In tiles and in the composition."""
    q, k, v = (wf.random.normal(shape=(2, 2, 3, 4), dtype=dtype) for _ in range(3))
    slopes = wf.tensor([0.3, 0.6], dtype=dtype)

    def loss(q, slopes):
        return (F.scaled_dot_product_attention(q, k, v, slopes=slopes) ** 2).sum()

    dq, dslopes = wf.grad(loss, (0, 1))(q, slopes)
    assert abs(dq).max().item() > 0
    assert not dslopes.any().item()
