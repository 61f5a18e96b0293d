"""Native kernels that lose to their decompositions at a level are not offered there."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft import _core
from weft.base.dtype import float32
from weft.ops import offers
from weft.ops.attention import ScaledDotProductAttention
from weft.ops.types import TensorType


def test_every_level_has_been_measured():
    assert _core.isa()[1] in ("sse4", "avx2", "avx512")
    for kernel, ratios in offers.RATIOS.items():
        assert sorted(ratios) == ["avx2", "avx512", "sse4"], kernel


@pytest.fixture
def losing(monkeypatch):
    """Every kernel has been measured to take twice its decomposition's time."""
    monkeypatch.setattr(offers, "RATIOS", {k: dict.fromkeys(of, 2.0) for k, of in offers.RATIOS.items()})


def attention(n):
    rng = np.random.default_rng(n)
    q, k, v = (wf.tensor(rng.normal(size=(2, 3, n, 8)).astype("float32")) for _ in range(3))
    both = wf.value_and_grad(
        lambda q, k, v: F.sum(F.scaled_dot_product_attention(q, k, v, is_causal=True) ** 2), (0, 1, 2)
    )
    return [x.numpy() for x in both(q, k, v)[1]]


def lstm(n):
    rng = np.random.default_rng(n)
    shapes = [(3, n, 4), (1, n, 5), (1, n, 5), (20, 4), (20, 5), (20,), (20,)]
    operands = [wf.tensor(rng.normal(size=shape).astype("float32")) for shape in shapes]
    both = wf.value_and_grad(lambda *o: F.sum(F.lstm(*o)[0] ** 2), tuple(range(7)))
    return [x.numpy() for x in both(*operands)[1]]


# Sizes that no other test has, twice: plans are kept for sizes, and are made by what is offered then.
@pytest.mark.parametrize(("function", "sizes"), [(attention, (37, 41)), (lstm, (11, 13))])
def test_without_the_kernel_values_are_the_same(function, sizes, monkeypatch, losing):
    for n in sizes:
        function(n)  # nothing fails
    monkeypatch.undo()


def test_what_loses_is_not_offered(losing):
    x = TensorType((1, 2, 3, 4), float32)
    assert list(ScaledDotProductAttention().kernels(x, x, x)) == []
