"""Native kernels that lose to their decompositions at a level are not offered there."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft import _core
from weft.base.dtype import float32
from weft.kernels import choices, offers
from weft.ops.families.attention import ScaledDotProductAttention, ScaledDotProductAttentionGradient
from weft.ops.families.recurrent import Lstm, LstmGradient
from weft.ops.types import TensorType


def test_every_level_has_been_measured():
    assert _core.isa()[1] in ("sse4", "avx2", "avx512")
    for kernel, ratios in offers.RATIOS.items():
        assert sorted(ratios) == ["avx2", "avx512", "sse4"], kernel


@pytest.fixture
def losing(monkeypatch):
    """Every kernel has been measured to take twice its decomposition's time."""
    ratios = {kernel: dict.fromkeys(of, 2.0) for kernel, of in offers.RATIOS.items()}
    monkeypatch.setattr(offers, "RATIOS", ratios)


def attention(*operands):
    return F.scaled_dot_product_attention(*operands, is_causal=True)


def lstm(*operands):
    return F.lstm(*operands)[0]


# Of sizes that no other test has: what is inferred for a size, a native LSTM's workspace with it, is remembered.
ATTENTION = [(2, 3, 37, 8)] * 3
LSTM = [(3, 11, 4), (1, 11, 5), (1, 11, 5), (20, 4), (20, 5), (20,), (20,)]


@pytest.mark.parametrize(("function", "shapes"), [(attention, ATTENTION), (lstm, LSTM)])
def test_without_the_kernels_values_are_those_of_float64(function, shapes, losing):
    both = wf.value_and_grad(lambda *o: F.sum(function(*o) ** 2), tuple(range(len(shapes))))
    results = []
    for dtype in ("float64", "float32"):
        rng = np.random.default_rng(0)
        operands = [wf.tensor(rng.normal(size=shape)).astype(dtype) for shape in shapes]
        step = wf.trace(lambda *o: both(*o)[1], lazy=True)
        results.append([x.numpy() for x in step(*operands)])
    for wide, narrow in zip(*results, strict=True):
        np.testing.assert_allclose(narrow, wide, rtol=1e-4, atol=1e-4)


def test_what_loses_is_not_offered(losing):
    x = TensorType((1, 2, 3, 4), float32)
    logs = TensorType((1, 2, 3), float32)
    assert list(choices(ScaledDotProductAttention(), [x, x, x])) == []
    assert list(choices(ScaledDotProductAttentionGradient(), [x, x, x, x, x, logs, None])) == []
    types = [TensorType(shape, float32) for shape in LSTM]
    assert list(choices(Lstm(), types)) == []
    y = Lstm().infer(*types)
    assert y[3].shape == (0,)
    assert list(choices(LstmGradient(), [*types[:3], *y, *y[:3], *types[3:]])) == []


def test_what_wins_is_offered(monkeypatch):
    monkeypatch.setattr(offers, "RATIOS", {k: dict.fromkeys(of, 0.5) for k, of in offers.RATIOS.items()})
    x = TensorType((1, 2, 3, 4), float32)
    assert len(list(choices(ScaledDotProductAttention(), [x, x, x]))) == 1
    assert len(list(choices(Lstm(), [TensorType(shape, float32) for shape in LSTM]))) == 1
