"""Symbolic sizes as operands beside tensors that the function does not get as arguments: one program for all sizes."""

from __future__ import annotations

import operator

import pytest

import weft as wf
import weft.functional as F
import weft.module as M
from weft.ops.node import BINARY_METHODS
from weft.ops.sizes import NeedsSizes, axis_size

SIZES = (2, 3, 4, 7)
OPERATORS = {
    name: getattr(operator, name, None) or getattr(operator, f"{name}_")
    for name in BINARY_METHODS
    if name != "matmul"  # which takes no numbers
}
COMPARISONS = {name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")}
FLOATS = {k: v for k, v in OPERATORS.items() if k not in ("and", "or", "xor", "lshift", "rshift")}
FUNCTIONS = {name: getattr(F, name) for name in ("add", "maximum", "less", "atan2")}


@pytest.mark.parametrize(
    ("dtype", "operators"),
    [
        ("int64", {**OPERATORS, **COMPARISONS, **FUNCTIONS}),
        ("float32", {**FLOATS, **COMPARISONS, **FUNCTIONS}),
        pytest.param("int8", {**FLOATS, **COMPARISONS}, marks=pytest.mark.full),
        pytest.param("float64", {**FLOATS, **COMPARISONS}, marks=pytest.mark.full),
    ],
)
def test_operators_of_a_tensor_and_a_size(dtype, operators):
    w = wf.tensor(3).astype(dtype)

    def all_of(n):
        return [y for function in operators.values() for y in (function(w, n), function(n, w))]

    step = wf.trace(lambda x: all_of(x.shape[0]), dynamic={"x": 0}, strict=True)
    for size in SIZES:
        for name, y, expected in zip(
            [name for name in operators for _ in range(2)], step(wf.ones((size,))), all_of(size), strict=True
        ):
            assert (y.dtype, y.item()) == (expected.dtype, expected.item()), (name, size)
    assert len(step.programs) == 1


def test_bits_of_sizes_are_arithmetic():
    n = axis_size(0)
    for expression in (
        lambda n: n & 1,
        lambda n: 7 & n,
        lambda n: n & 0,
        lambda n: n << 3,
        lambda n: (n << 1) + 1 >> 1,
        lambda n: ~n,
    ):
        size = expression(n)
        for number in SIZES:
            assert (size if isinstance(size, int) else size.at([number])) == expression(number)
    for refused in (
        lambda: n & 6,
        lambda: n | 1,
        lambda: n ^ n,
        lambda: 1 << n,
        lambda: n << n,
        lambda: n & -1,
    ):
        with pytest.raises(NeedsSizes):
            refused()
    with pytest.raises(ValueError, match="negative shift count"):
        n << -1


def test_in_place_the_tensor_is_written():
    def added(w, n):
        w += n
        w *= n
        return w

    for dtype in ("int64", "float32"):
        w = wf.ones((2,), dtype=dtype)
        step = wf.trace(lambda x, w=w: added(w, x.shape[0]), dynamic={"x": 0}, strict=True)
        expected = wf.ones((2,), dtype=dtype)
        for size in SIZES:
            step(wf.ones((size,)))
            assert w.tolist() == added(expected, size).tolist()
        assert len(step.programs) == 1


def test_comparisons_with_floats_round_to_the_right_side():
    w = wf.zeros(())
    for bound in (2.5, 3.0, 3.5, -1.0, float("inf"), float("nan")):
        for function in COMPARISONS.values():
            step = wf.trace(
                lambda x, function=function, bound=bound: w + (1 if function(x.shape[0], bound) else 2),
                dynamic={"x": 0},
                strict=True,
            )
            for size in SIZES:
                assert step(wf.ones((size,))).item() == (1 if function(size, bound) else 2), (size, bound)


def test_a_comparison_with_a_tensor_is_an_array_and_no_guard():
    limit = wf.tensor(4)
    step = wf.trace(lambda x: F.where(limit > x.shape[0], 1, 0), dynamic={"x": 0}, strict=True)
    assert [step(wf.ones((n,))).item() for n in SIZES] == [1, 1, 0, 0]
    limit[...] = 7
    assert [step(wf.ones((n,))).item() for n in SIZES] == [1, 1, 1, 0]
    assert len(step.programs) == 1


def test_a_cache_takes_any_number_of_places_in_one_program():
    cache = M.KeyValueCache(1, 2, 40, 4)
    step = wf.trace(lambda k: F.sum(cache.append(k, k)[2]), dynamic={"k": 2}, strict=True)
    total = 0
    for size in SIZES:
        expected = sum(range(total + 1, total + size + 1))
        assert step(wf.ones((1, 2, size, 4))).item() == expected
        total += size
        assert cache.length.item() == total
    assert len(step.programs) == 1


def test_without_a_recording_it_is_no_operand():
    for function in (operator.add, operator.lt):
        with pytest.raises(TypeError, match="Size"):
            function(wf.ones(2), axis_size(0))
