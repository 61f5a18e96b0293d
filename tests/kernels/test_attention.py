"""Attention and its gradient, against float64 with the whole matrix of scores."""

import ml_dtypes
import numpy as np
import pytest

from weft import _core

from .support import run, strided_like

CAUSAL = (0.125, 0.0, np.uint64(2**64 - 1), 0, 0, 0.0)


def reference(q, k, v, dy, scale, mask=None, diagonal=None):
    """y, logs, dq, dk, dv."""
    q, k, v, dy = (x.astype(np.float64) for x in (q, k, v, dy))
    scores = q @ k.swapaxes(-1, -2) * scale
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask.astype(np.float64)
    if diagonal is not None:
        n, m = scores.shape[-2:]
        scores = np.where(np.arange(m) <= np.arange(n)[:, None] + diagonal, scores, -np.inf)
    most = np.max(scores, -1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isinf(most), 0, most))
    total = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        logs = (np.log(total) + most)[..., 0]
    p = weights / np.where(total == 0, 1, total)
    y = p @ v
    dp = dy @ v.swapaxes(-1, -2)
    ds = p * (dp - (dy * y).sum(-1, keepdims=True))
    return y, logs, ds @ k * scale, ds.swapaxes(-1, -2) @ q * scale, p.swapaxes(-1, -2) @ dy


def random(shape, kind, seed):
    return np.random.default_rng(seed).normal(size=shape).astype(kind)


def check(
    b,
    h,
    n,
    m,
    d,
    e,
    *,
    kind=np.float32,
    mask=None,
    diagonal=None,
    odd=False,
    scale=None,
    within=1e-5,
):
    scale = d**-0.5 if scale is None else scale
    q, k, v = random((b, h, n, d), kind, 0), random((b, h, m, d), kind, 1), random((b, h, m, e), kind, 2)
    dy = random((b, h, n, e), kind, 3)
    if odd:  # heads beside each other in a row, as projections give them; and backwards
        q, k = (np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in (q, k))
        v = np.ascontiguousarray(v[..., ::-1])[..., ::-1]
    out = strided_like if odd else np.empty
    y, dq, dk, dv = out(dy.shape, kind), out(q.shape, kind), out(k.shape, kind), out(v.shape, kind)
    logs = out((b, h, n), np.float32)
    masks = [] if mask is None else [np.broadcast_to(mask, (b, h, n, m))]
    everything = np.uint64(2**64 - 1)
    after = everything if diagonal is None else np.uint64(0)
    parameters = (float(scale), 0.0, everything, after, np.uint64(np.int64(diagonal or 0)), 0.0)
    run(_core.kernel_attention(bool(masks)), q, k, v, *masks, y, logs, parameters=parameters)
    backward = _core.kernel_attention_backward(bool(masks))
    run(backward, dy, q, k, v, *masks, y, logs, dq, dk, dv, parameters=parameters)
    wanted = reference(q, k, v, dy, scale, mask, diagonal)
    exact = np.dtype(kind) == np.float32
    for name, x, right in zip(["y", "logs", "dq", "dk", "dv"], (y, logs, dq, dk, dv), wanted, strict=True):
        x = x.astype(np.float64)
        if name == "logs":
            np.testing.assert_allclose(x, right, rtol=within, atol=within)
            continue
        size = np.abs(right).max(initial=0.1)
        assert np.abs(x - right).max(initial=0) <= size * (within if exact else 2e-2), name


SHAPES = [(2, 3, 64, 64, 64, 64), (1, 2, 100, 130, 32, 48), (1, 1, 1, 200, 64, 64), (2, 1, 70, 5, 7, 3),
          (1, 2, 129, 129, 80, 80), (1, 1, 3, 3, 1, 1), (0, 2, 4, 4, 8, 8), (1, 1, 0, 4, 8, 8),
          (1, 1, 4, 0, 8, 8)]  # fmt: skip


@pytest.mark.parametrize("diagonal", [None, 0, 2, -3])
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape, diagonal):
    check(*shape, diagonal=diagonal)


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.float16])
def test_narrow_types(kind):
    for shape in SHAPES[:5]:
        check(*shape, kind=kind)
        check(*shape, kind=kind, diagonal=0, odd=True)


def test_masks():
    rng = np.random.default_rng(7)
    for shape in [(2, 3), (1, 3), (2, 1), (1, 1)]:
        seen = rng.random((*shape, 90, 150)) < 0.7
        seen[..., 5, :] = False  # a query that sees nothing
        seen[..., :, :70] &= rng.random(70) < 0.1
        check(2, 3, 90, 150, 16, 24, mask=seen)
        check(
            2,
            3,
            90,
            150,
            16,
            24,
            mask=rng.normal(size=(*shape, 90, 150)).astype(np.float32),
        )
    check(2, 3, 90, 150, 16, 24, mask=rng.normal(size=(150,)).astype(np.float32), diagonal=60)
    check(2, 3, 90, 150, 16, 24, mask=np.where(seen, 0, -np.inf).astype(np.float32), odd=True)


def test_strides():
    for diagonal in (None, 0):
        check(2, 3, 90, 150, 32, 24, diagonal=diagonal, odd=True)


def test_large_scores():
    check(1, 2, 80, 90, 16, 16, scale=40.0, within=1e-3)  # scores of 500, each rounded
    check(1, 2, 80, 90, 16, 16, scale=1e-4)


def test_the_same_bits_for_any_number_of_threads():
    q = random((2, 3, 200, 64), np.float32, 0)
    results = []
    before = _core.set_team_size(1)
    try:
        for threads in (1, 2, 8):
            _core.set_team_size(threads)
            y, logs = np.empty_like(q), np.empty((2, 3, 200), np.float32)
            run(_core.kernel_attention(), q, q, q, y, logs, parameters=CAUSAL)
            d = [np.empty_like(q) for _ in range(3)]
            run(_core.kernel_attention_backward(), q, q, q, q, y, logs, *d, parameters=CAUSAL)
            results.append([y, logs, *d])
    finally:
        _core.set_team_size(before)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_types_that_are_refused():
    from weft.base.errors import DTypeError

    x, logs = np.zeros((1, 1, 2, 2)), np.zeros((1, 1, 2), np.float32)
    with pytest.raises(DTypeError, match="attention: float32, bfloat16 or float16 is needed, got float64"):
        run(_core.kernel_attention(), x, x, x, x.copy(), logs, parameters=CAUSAL)
