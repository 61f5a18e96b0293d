"""Sorting and the largest elements, against NumPy."""

import numpy as np
import pytest

from weft import _core

from .support import ALL, FLOATS, layouts, random, run, strided_like


def ordered(x, axis, descending):
    """What a stable argsort with NaN last gives."""
    wide = x.astype(np.float64) if x.dtype.name in FLOATS else x
    if not descending:
        return np.argsort(wide, axis=axis, kind="stable")
    if x.dtype.name in FLOATS:
        return np.argsort(-wide, axis=axis, kind="stable")
    return np.argsort(~wide, axis=axis, kind="stable")


def same(a, b):
    np.testing.assert_array_equal(
        a.astype(np.float64) if a.dtype.name == "bfloat16" else a,
        b.astype(np.float64) if b.dtype.name == "bfloat16" else b,
    )


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_sort_against_numpy(name, descending):
    for shape, axis in [
        ((5, 7, 3), 1),
        ((4, 300), -1),
        ((33,), 0),
        ((0, 3), 0),
        ((0, 3), 1),
        *(
            [] if name == "bfloat16" else [((), 0)]
        ),  # NumPy's arrays of it without dimensions cannot be shared
        ((2, 1), 1),
    ]:
        for few in (False, True):
            for x in layouts(random(shape, name, 1, few)):
                places = ordered(x, axis, descending) if x.ndim else np.zeros((), np.int64)
                wanted = np.take_along_axis(x, places, axis) if x.ndim else x
                for out, at in [
                    (np.empty(shape, x.dtype), np.empty(shape, np.int64)),
                    (strided_like(shape, x.dtype), strided_like(shape, np.int64)),
                ]:
                    run(_core.kernel_sort(axis, descending), x, out)
                    same(out, wanted)
                    run(_core.kernel_sort(axis, descending, values=False, indices=True), x, at)
                    same(at, places)
                    out[...], at[...] = 0, 0
                    run(_core.kernel_sort(axis, descending, indices=True), x, out, at)
                    same(out, wanted)
                    same(at, places)


@pytest.mark.parametrize("name", ALL)
def test_long_lines(name):
    for few in (False, True):
        x = random(200_001, name, 2, few)
        out, at = np.empty_like(x), np.empty(x.shape, np.int64)
        run(_core.kernel_sort(0), x, out)
        run(_core.kernel_sort(0, values=False, indices=True), x, at)
        places = ordered(x, 0, False)
        same(out, x[places])
        same(at, places)


def test_orders_that_make_quicksort_slow():
    n = 100_000
    for x in (
        np.arange(n),
        np.arange(n)[::-1],
        np.zeros(n),
        np.full(n, -1),
        np.arange(n) % 2,
        np.minimum(np.arange(n), 9),
    ):
        for kind in (np.uint32, np.int64, np.float32):
            y = np.ascontiguousarray(x).astype(kind)
            out = np.empty_like(y)
            run(_core.kernel_sort(0), y, out)
            same(out, np.sort(y))


def best(x, k, axis, largest):
    """The places of the first k; NaN beats infinity."""
    if x.dtype.name in FLOATS:
        wide = x.astype(np.float64)
        nan, value = np.isnan(wide), np.nan_to_num(wide, nan=np.inf, posinf=np.inf, neginf=-np.inf)
        places = np.lexsort((~nan, -value) if largest else (nan, value), axis=axis)
    else:
        places = np.argsort(~x if largest else x, axis=axis, kind="stable")
    return np.take(places, np.arange(k), axis=axis)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_topk_against_numpy(name, largest):
    for shape, axis, ks in [
        ((5, 9, 3), 1, (0, 1, 4, 9)),
        ((3, 5000), -1, (1, 7, 100, 5000)),
        ((40_000,), 0, (3, 200)),
    ]:
        for few in (False, True):
            for x in layouts(random(shape, name, 3, few)):
                for k in ks:
                    places = best(x, k, axis, largest)
                    size = list(shape)
                    size[axis] = k
                    out, at = strided_like(size, x.dtype), np.empty(size, np.int64)
                    run(_core.kernel_topk(axis, largest), x, out, at)
                    same(at, places)
                    same(out, np.take_along_axis(x, places, axis))


def test_topk_of_sorted_lines_and_the_whole():
    x = np.arange(300_000, dtype=np.float32)
    for y in (x, x[::-1], x // 1000):
        for k in (1, 100, 20_000, 300_000):
            out, at = np.empty(k, np.float32), np.empty(k, np.int64)
            run(_core.kernel_topk(0), y, out, at)
            same(at, np.argsort(-y, kind="stable")[:k])


def test_topk_refuses_more_than_there_is():
    with pytest.raises(ValueError, match="topk: k = 4 of only 3 elements along axis 0"):
        run(_core.kernel_topk(0), np.zeros(3), np.zeros(4), np.zeros(4, np.int64))


def test_topk_of_a_scalar():
    out, at = np.zeros(()), np.ones((), np.int64)
    run(_core.kernel_topk(0), np.array(5.0), out, at)
    assert out == 5
    assert at == 0


@pytest.mark.parametrize("name", ["uint32", "float64"])
def test_every_short_length(name):
    for n in [*range(1, 150), 191, 192, 193, *range(250, 262), 511, 512, 513, 1000]:
        for few in (False, True):
            x = random((3, n), name, n, few)
            out, at = np.empty_like(x), np.empty(x.shape, np.int64)
            run(_core.kernel_sort(-1, indices=True), x, out, at)
            places = ordered(x, -1, False)
            same(at, places)
            same(out, np.take_along_axis(x, places, -1))
            run(_core.kernel_sort(-1), x, out)
            same(out, np.sort(x, -1))


def test_ties_in_the_upper_half_of_wide_words():
    # Places are sorted by the upper 32 bits of a line's range first: here these tie in pairs, in runs, and everywhere.
    rng = np.random.default_rng(3)
    for n, different in [(1000, 900), (1000, 3), (5000, 100), (257, 256), (100_000, 90_000)]:
        x = rng.integers(0, different, n) << 40 | rng.integers(0, 4, n)
        at = np.empty(n, np.int64)
        run(_core.kernel_sort(0, values=False, indices=True), x, at)
        same(at, np.argsort(x, kind="stable"))
