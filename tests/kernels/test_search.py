"""Searching sorted lines and finding different elements, against NumPy."""

import numpy as np
import pytest

from weft import _core

from .support import ALL, FLOATS, layouts, random, run, strided_like


def wide(x):
    return x.astype(np.float64) if x.dtype.name in FLOATS else x


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_searchsorted(name, right):
    for n, m, few in [(0, 5, True), (1, 5, True), (100, 7, True), (5000, 9000, False), (8, 0, True)]:
        line = random((n,), name, 1, few)
        line = line[np.argsort(wide(line), kind="stable")]
        values = random((m,), name, 2, few)
        wanted = np.searchsorted(wide(line), wide(values), "right" if right else "left")
        for s, v in zip(layouts(line), layouts(values), strict=True):
            for y in (np.empty(m, np.int64), strided_like((m,), np.int64)):
                run(_core.kernel_searchsorted(right), s, v, y)
                np.testing.assert_array_equal(y, wanted)


def test_lines_of_their_own():
    rng = np.random.default_rng(0)
    lines, values = np.sort(rng.normal(size=(3, 4, 50))), rng.normal(size=(3, 4, 20))
    y = np.empty(values.shape, np.int64)
    run(_core.kernel_searchsorted(), lines, values, y)
    for i in np.ndindex(3, 4):
        np.testing.assert_array_equal(y[i], np.searchsorted(lines[i], values[i]))
    run(_core.kernel_searchsorted(), np.broadcast_to(lines[0, 0], (3, 4, 50)), values, y)
    np.testing.assert_array_equal(y, np.searchsorted(lines[0, 0], values))
    one = np.zeros((), np.int64)
    run(_core.kernel_searchsorted(), np.array(1.0), np.array(2.0), one)
    assert one == 1


@pytest.mark.parametrize("name", ALL)
def test_unique(name):
    for n, few in [(0, True), (1, True), (60, True), (30_000, True), (30_000, False)]:
        for x in layouts(random((n,), name, 3, few)):
            values, number = np.empty(n, x.dtype), np.zeros((), np.int64)
            first, inverse, counts = (strided_like((n,), np.int64) for _ in range(3))
            run(_core.kernel_unique(), x, values, first, inverse, counts, number)
            right = np.unique(wide(x), return_index=True, return_inverse=True, return_counts=True)
            assert number == len(right[0])
            np.testing.assert_array_equal(wide(values[:number]), right[0])
            np.testing.assert_array_equal(first[:number], right[1])
            np.testing.assert_array_equal(inverse, right[2])
            np.testing.assert_array_equal(counts[:number], right[3])
