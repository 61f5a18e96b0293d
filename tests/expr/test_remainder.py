"""The remainder of floats: the bits of C's fmod for every pair of numbers, by functions that loops of vectors call."""

import numpy as np
import pytest

from weft.expr.compiler import _toolchain
from weft.expr.kernel import Each, Kernel, Operand, Store
from weft.expr.llvm import print_kernel
from weft.expr.scalar import load

from .support import Runner

FLOATS = pytest.mark.parametrize("dtype", ["float32", "float64"])
COUNT = 20_011  # not a multiple of a vector


def remainder_kernel(dtype):
    stage = Each((Store(2, load(0, dtype) % load(1, dtype)),))
    return Kernel("remainders", 1, (Operand(dtype),) * 3, (stage,))


def any_bits(rng, dtype):
    word = np.dtype(f"u{np.dtype(dtype).itemsize}")
    return rng.integers(0, np.iinfo(word).max, COUNT, word, endpoint=True).view(dtype)


def near_multiples(rng, dtype):
    y = rng.normal(size=COUNT).astype(dtype)
    x = (y * rng.integers(0, 1 << 30, COUNT)).astype(dtype)
    return np.where(rng.random(COUNT) < 0.5, x, np.nextafter(x, np.zeros(1, dtype))), y


def subnormal(rng, dtype):
    word = np.dtype(f"u{np.dtype(dtype).itemsize}")
    x, y = (rng.integers(0, 1 << 22, COUNT).astype(word).view(dtype) for _ in "xy")
    return x * np.asarray(2.0**60, dtype), y


def special(rng, dtype):
    fact = np.finfo(dtype)
    sizes = [0, 1, 3, 1e10, np.inf, np.nan, fact.max, fact.tiny, fact.smallest_subnormal]
    values = np.array([*sizes, *(-v for v in sizes)], dtype)
    return tuple(np.ascontiguousarray(a.ravel()) for a in np.meshgrid(values, values))


@FLOATS
@pytest.mark.parametrize("pairs", ["bits", near_multiples, subnormal, special])
def test_the_bits_of_fmod(pairs, dtype):
    rng = np.random.default_rng(3)
    x, y = (any_bits(rng, dtype), any_bits(rng, dtype)) if pairs == "bits" else pairs(rng, dtype)
    out = np.empty_like(x)
    Runner(remainder_kernel(dtype))(x, y, out)
    with np.errstate(all="ignore"):
        expected = np.fmod(x, y)
    numbers = ~np.isnan(expected)
    assert np.isnan(out[~numbers]).all()
    word = f"u{x.itemsize}"
    np.testing.assert_array_equal(out[numbers].view(word), expected[numbers].view(word))


@FLOATS
def test_loops_call_the_function_for_vectors(dtype):
    tools = _toolchain()
    if "fma_float32" not in tools.instructions and dtype == "float64":
        pytest.skip("by the C library where there is no fma")
    listing = tools.assembly(print_kernel(remainder_kernel(dtype)))
    assert f"call\tremainder_{dtype}_x" in listing.replace("callq", "call").replace("bl\t", "call\t")
    assert "fmod" not in listing
