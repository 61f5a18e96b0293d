"""Masks of every type and layout, against NumPy."""

import numpy as np
import pytest

import weft as wf
from weft import _core

from .support import ALL, layouts, random, run, strided_like

SHAPES = [(0,), (7,), (5, 3, 4), (3, 0), (70_000,), (300, 210)]


def same(a, b):
    wide = a.dtype.name == "bfloat16"
    np.testing.assert_array_equal(a.astype(np.float32) if wide else a, b.astype(np.float32) if wide else b)


@pytest.mark.parametrize("name", ALL)
def test_finding(name):
    for shape in SHAPES:
        for x in layouts(random(shape, name, 1, few=True)):
            number = np.zeros((), np.int64)
            run(_core.kernel_count_nonzero(), x, number)
            wanted = np.argwhere(x)
            assert number == len(wanted)
            for at in (np.empty(wanted.shape, np.int64), np.empty(wanted.shape[::-1], np.int64).T):
                run(_core.kernel_nonzero(), x, at)
                same(at, wanted)


@pytest.mark.parametrize("name", ALL)
def test_reading_and_writing(name):
    for shape in SHAPES:
        mask = random(shape, "bool", 2)
        mask[:1] = False
        for x, m in zip(layouts(random(shape, name, 3)), reversed([*layouts(mask)]), strict=True):
            wanted = x[mask]
            for y in (np.empty(wanted.shape, x.dtype), strided_like(wanted.shape, x.dtype)):
                run(_core.kernel_masked_select(), x, m, y)
                same(y, wanted)
            values = random(wanted.shape, name, 4)
            for v in (values, np.broadcast_to(values[:1], wanted.shape)):
                wanted = x.copy()
                wanted[mask] = v
                y = strided_like(shape, x.dtype)
                run(_core.kernel_masked_assign(), x, m, v, y)
                same(y, wanted)
            run(_core.kernel_masked_assign(), x, m, v, x)
            same(x, wanted)


def test_without_dimensions_and_broadcast():
    number = np.zeros((), np.int64)
    run(_core.kernel_count_nonzero(), np.array(True), number)
    assert number == 1
    mask = np.broadcast_to(np.array([True, False, True]), (4, 3))
    y = np.empty(8)
    run(_core.kernel_masked_select(), np.arange(12.0).reshape(4, 3), mask, y)
    same(y, np.arange(12.0).reshape(4, 3)[mask])


def test_bytes_that_are_not_one_are_true():
    mask = np.array([0, 2, 255, 1], np.uint8).view(bool)
    number = np.zeros((), np.int64)
    run(_core.kernel_count_nonzero(), mask, number)
    assert number == 3


def test_numbers_that_differ():
    mask, x = np.array([True, True, False]), np.zeros(3)
    with pytest.raises(ValueError, match="masked_select: the mask has 2 true elements, the other operand 1"):
        run(_core.kernel_masked_select(), x, mask, np.zeros(1))
    with pytest.raises(ValueError, match="masked_assign: the mask has 2 true elements, the other operand 3"):
        run(_core.kernel_masked_assign(), x, mask, np.ones(3), x)
    with pytest.raises(ValueError, match="nonzero: the mask has 2 true elements, the other operand 0"):
        run(_core.kernel_nonzero(), mask, np.zeros((0, 1), np.int64))
    assert not x.any()


def test_a_mask_that_changes_after_it_was_counted():
    """Masks lent to NumPy may change at any time: results are meaningless then, but no other memory is touched.

    Here the mask changes because the result lies in its memory: what is written first makes more of it true.
    """
    count, size = 200, 20_000
    for kernel in (_core.kernel_nonzero, _core.kernel_masked_select):
        memory = np.zeros(size, np.uint8)
        memory[:count] = 1
        y = memory[: 8 * count].view(np.int64)
        x = np.full(size, -1, np.int64)
        run(kernel(), *([memory, y[:, None]] if kernel is _core.kernel_nonzero else [x, memory, y]))
        assert np.count_nonzero(memory[count : 8 * count])  # it did change
        assert not memory[8 * count :].any()
    memory = np.zeros(size, np.uint8)
    memory[:count] = 1
    values = np.full(2 * size, 77, np.uint8)
    values[:count] = 5
    run(_core.kernel_masked_assign(), np.ones(size, np.uint8), memory, values[:count], memory)
    assert (memory != 77).all()
    assert np.count_nonzero(memory == 5) == count


@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 4), (2, 0, 3)])
def test_indices_and_distinct_elements_of_arrays(shape):
    x = np.random.default_rng(0).integers(0, 3, shape)
    same(wf.argwhere(wf.asarray(x)).numpy(), np.argwhere(x))
    same(wf.unique_values(wf.asarray(x)).numpy(), np.unique(x))
    values, counts = wf.unique_counts(wf.asarray(x))
    for part, wanted in zip((values, counts), np.unique(x, return_counts=True), strict=True):
        same(part.numpy(), wanted)
