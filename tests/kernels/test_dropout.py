"""Dropout and Bernoulli numbers: what they keep, and that nothing but the reservation decides it."""

import numpy as np
import pytest

from weft import _core

from .support import FLOATS, dtype, layouts, run, strided_like

STREAM = (1234567890123, 5, 1 << 40)


def dropped(x, p, *, mask=None, stream=STREAM, out=None):
    y = np.empty(x.shape, x.dtype) if out is None else out
    run(
        _core.kernel_dropout(mask is not None),
        x,
        y,
        *([] if mask is None else [mask]),
        parameters=(*stream, float(p)),
    )
    return y


@pytest.mark.parametrize("name", FLOATS)
def test_what_is_kept_is_scaled(name):
    ones = (np.arange(1, 60_001).reshape(200, 300) % 7 + 1).astype(dtype(name))
    for p in (0.0, 0.1, 0.5, 0.9, 1.0):
        mask = np.empty(ones.shape, bool)
        y = dropped(ones, p, mask=mask).astype(np.float64)
        assert abs((~mask).mean() - p) < 0.01
        wanted = np.where(mask, ones.astype(np.float64) / (1 - p if p < 1 else 1), 0)
        np.testing.assert_allclose(y, wanted, rtol={"float16": 1e-3, "bfloat16": 8e-3}.get(name, 1e-6))


@pytest.mark.parametrize("name", FLOATS)
def test_layouts_threads_and_pieces_change_nothing(name):
    x = np.random.default_rng(0).normal(size=(150, 217)).astype(dtype(name))
    first = np.empty(x.shape, np.uint8)
    wanted = dropped(x, 0.3, mask=first).astype(np.float64)
    before = _core.set_team_size(1)
    try:
        for threads in (1, 3):
            _core.set_team_size(threads)
            for a in layouts(x):
                mask = strided_like(x.shape, np.uint8)
                y = dropped(a, 0.3, mask=mask, out=strided_like(x.shape, x.dtype)).astype(np.float64)
                np.testing.assert_array_equal(y, wanted)
                np.testing.assert_array_equal(mask, first)
    finally:
        _core.set_team_size(before)
    part = dropped(np.ascontiguousarray(x.reshape(-1)[:5000]), 0.3).astype(np.float64)
    np.testing.assert_array_equal(part, wanted.reshape(-1)[:5000])
    in_place = x.copy()
    dropped(in_place, 0.3, out=in_place)
    np.testing.assert_array_equal(in_place.astype(np.float64), wanted)
    other = dropped(x, 0.3, stream=(STREAM[0], STREAM[1], STREAM[2] + 10_000)).astype(np.float64)
    assert (other != wanted).any()


def test_what_is_dropped_is_zero():
    x = np.full(1000, np.nan, np.float32)
    y = dropped(x, 0.5)
    assert 300 < np.isnan(y).sum() < 700
    assert (y[~np.isnan(y)] == 0).all()
    assert dropped(np.zeros((0, 3)), 0.5).shape == (0, 3)
    assert dropped(np.array(2.0), 0.0) == 2


@pytest.mark.parametrize("p", [-0.1, 1.1, np.nan])
def test_impossible_probabilities(p):
    with pytest.raises(ValueError, match=r"dropout: p must be in \[0, 1\]"):
        dropped(np.ones(3), p)


def test_bernoulli():
    p = np.broadcast_to(np.array([0.0, 0.2, 0.7, 1.0], np.float32), (20_000, 4))
    y, z = np.empty(p.shape, bool), strided_like(p.shape, np.float32)
    run(_core.kernel_bernoulli(), p, y, parameters=STREAM)
    np.testing.assert_allclose(y.mean(0), p[0], atol=0.015)
    assert not y[:, 0].any()
    assert y[:, 3].all()
    run(_core.kernel_bernoulli(), p, z, parameters=STREAM)
    np.testing.assert_array_equal(z, y)
