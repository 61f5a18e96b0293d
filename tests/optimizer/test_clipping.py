"""Clipping of gradients."""

import math

import numpy as np
import pytest

import weft as wf
from weft.optimizer import clip_grad_norm, clip_grad_value


def with_gradients(*grads, dtype="float32"):
    params = []
    for g in grads:
        p = wf.zeros(np.shape(g), dtype=dtype)
        if g is not None:
            p.grad = wf.tensor(g, dtype=dtype)
        params.append(p)
    return params


def test_only_what_is_too_long_becomes_shorter():
    params = with_gradients([3.0, 0.0], [[4.0]])
    params.append(wf.zeros(3))  # without a gradient
    assert clip_grad_norm(params, 10.0).item() == 5
    np.testing.assert_array_equal(params[0].grad.numpy(), [3, 0])
    assert clip_grad_norm(params, 1.0).item() == 5
    np.testing.assert_allclose(params[0].grad.numpy(), [0.6, 0])
    np.testing.assert_allclose(params[1].grad.numpy(), [[0.8]])
    assert params[2].grad is None


def test_norms():
    for ord, want in ((1, 7.0), (2, 5.0), (math.inf, 4.0)):
        assert clip_grad_norm(with_gradients([3.0, -4.0]), 100.0, ord).item() == pytest.approx(want)


def test_edges():
    assert clip_grad_norm([], 1.0).item() == 0
    assert clip_grad_norm(with_gradients(np.zeros((0, 2))), 1.0).item() == 0
    params = with_gradients([0.0, 0.0])
    assert clip_grad_norm(params, 1.0).item() == 0
    np.testing.assert_array_equal(params[0].grad.numpy(), [0, 0])
    params = with_gradients([math.nan, 1.0])
    assert math.isnan(clip_grad_norm(params, 1.0).item())
    single = with_gradients([3.0, 4.0])[0]
    assert clip_grad_norm(single, 1.0).item() == 5


def test_norms_of_16_bit_gradients_do_not_overflow():
    params = with_gradients([300.0, 400.0], dtype="float16")
    assert clip_grad_norm(params, 5.0).item() == 500
    np.testing.assert_allclose(params[0].grad.numpy().astype("float32"), [3, 4], rtol=2e-3)


def test_gradients_that_share_memory_are_scaled_once():
    a, b = wf.ones(2), wf.ones(2)
    gm = wf.GradManager().attach([a, b])
    with gm:
        gm.backward((a + b).sum())
    clip_grad_norm([a, b], 1.0)
    np.testing.assert_allclose(a.grad.numpy(), 0.5, rtol=1e-6)
    np.testing.assert_allclose(b.grad.numpy(), 0.5, rtol=1e-6)


def test_values():
    params = with_gradients([3.0, -0.5, -7.0])
    clip_grad_value(params, 1.0)
    np.testing.assert_array_equal(params[0].grad.numpy(), [1, -0.5, -1])


def test_errors():
    for call in (
        lambda: clip_grad_norm([], 0),
        lambda: clip_grad_value([], -1),
        lambda: clip_grad_norm([], 1, 0),
    ):
        with pytest.raises(ValueError, match="must be positive"):
            call()
