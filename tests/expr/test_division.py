"""Integers divided by way of floats: all pairs of 8 bits, ends of wider types, quotients next to whole numbers."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F

DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def pairs(dtype):
    """Wraps where products do not fit."""
    info = np.iinfo(dtype)
    rng = np.random.default_rng(1)
    if info.bits == 8:
        every = np.arange(info.min, info.max + 1).astype(dtype)
        return np.repeat(every, 256), np.tile(every, 256)
    ends = [
        info.min,
        info.min + 1,
        info.max - 1,
        info.max,
        0,
        1,
        2,
        3,
        info.max // 2,
        *(-1, -2) * (info.min < 0),
    ]
    ends = np.array(ends, dtype)
    one = np.array([1], dtype)
    shifts = rng.integers(0, info.bits - 2, 20_000).astype(dtype)
    divisors = np.maximum(rng.integers(1, info.max, 20_000, dtype) >> shifts, one)
    factors = (info.max // divisors * rng.uniform(0, 1, 20_000)).astype(dtype)
    products = [divisors * factors + k * one for k in (0, 1)] + [
        divisors * factors - (factors > 0).astype(dtype)
    ]
    a = np.concatenate([np.repeat(ends, ends.size), *products, *(one - one - p for p in products)]).astype(
        dtype
    )
    return a, np.concatenate([np.tile(ends, ends.size), *[divisors] * 3, *[one - one - divisors] * 3]).astype(
        dtype
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_quotients_and_remainders_of_integers(dtype):
    a, b = pairs(dtype)
    safe = np.where(b == 0, 1, b).astype(dtype)
    for function, of_numpy in (
        (F.floor_divide, np.floor_divide),
        (F.remainder, np.remainder),
        (F.fmod, np.fmod),
    ):
        with np.errstate(over="ignore"):
            want = np.where(b == 0, 0, of_numpy(a, safe)).astype(dtype)
        np.testing.assert_array_equal(function(wf.tensor(a), wf.tensor(b)).numpy(), want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_quotients_by_one_number(dtype):
    a, _ = pairs(dtype)
    for number in (1, 3, 7, 100):
        np.testing.assert_array_equal(
            F.floor_divide(wf.tensor(a), number).numpy(), a // np.array(number, dtype)
        )
