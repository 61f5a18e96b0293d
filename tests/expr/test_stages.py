"""Positions of extremes, logical reductions, dot products, scans: against NumPy, in both schedules."""

import math
import platform

import numpy as np
import pytest

from weft.expr.compiler import _toolchain
from weft.expr.kernel import Each, Fold, Kernel, Once, Operand, Reduction, Scan, Store
from weft.expr.llvm import print_kernel
from weft.expr.llvm_lanes import LANES, LANES_SUM_BLOCK
from weft.expr.llvm_rows import POSITION_BLOCK, SCAN_BLOCK
from weft.expr.scalar import FLOATS, cast, index, load, product, result

from .support import INTEGERS, WIDE, Runner, any_layout, assert_same, special, vectors

BOTH = pytest.mark.parametrize("lanes", [False, True])


@pytest.fixture
def rng():
    return np.random.default_rng(21)


def row_kernel(name, dtype, stages, outs, rank=2, row_rank=1, lanes=False, inner="any"):
    operands = (Operand(dtype, inner), *(Operand(out, "any") for out in outs))
    return Kernel(name, rank, operands, stages, row_rank, lanes)


def positions_kernel(dtype, rank=2, row_rank=1, lanes=False, inner="any"):
    x = load(0, dtype)
    fold = Fold((Reduction(0, "argmax", x), Reduction(1, "argmin", x)))
    once = Once((Store(1, result(0, "int64")), Store(2, result(1, "int64"))))
    return row_kernel("places", dtype, (fold, once), ["int64"] * 2, rank, row_rank, lanes, inner)


@BOTH
@pytest.mark.parametrize("dtype", [*INTEGERS, *WIDE])
def test_positions_of_extremes(dtype, lanes, rng):
    """The first of equal ones, and the first NaN before all; -0 equals 0."""
    run = Runner(positions_kernel(dtype, lanes=lanes))
    for rows, row in ((1, 1), (5, 17), (3, 2 * POSITION_BLOCK + 5), (LANES + 3, 20), (0, 4)):
        values = special(dtype, rng, 400)
        few = np.unique(values)[rng.integers(0, 3, rows * row)] if rows else values[:0]
        for a in (rng.choice(values, (rows, row)), few.reshape(rows, row)):
            out = [np.empty((rows, 1), np.int64) for _ in range(2)]
            run(a, *out, sizes=(rows, row))
            assert_same(out[0], np.argmax(a, 1, keepdims=True) if rows else out[0])
            assert_same(out[1], np.argmin(a, 1, keepdims=True) if rows else out[1])


@BOTH
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 0.0])
def test_positions_in_rows_of_one_value(value, lanes):
    run = Runner(positions_kernel("float32", lanes=lanes))
    for size in (1, 15, 16, 17, 3000):
        out = [np.full((2, 1), -1, np.int64) for _ in range(2)]
        run(np.full((2, size), value, np.float32), *out)
        assert not out[0].any()
        assert not out[1].any()


@BOTH
def test_positions_at_every_place(lanes):
    """An extreme, or a NaN among infinities, anywhere in rows of several blocks."""
    run = Runner(positions_kernel("float32", lanes=lanes))
    size = 2 * POSITION_BLOCK + 40
    places = np.arange(0, size, 37)
    a = np.zeros((len(places), size), np.float32)
    for found in (5, np.nan):
        a[:, 0] = 3
        a[np.arange(len(places)), places] = found
        out = [np.empty((len(places), 1), np.int64) for _ in range(2)]
        run(a, *out)
        assert_same(out[0][:, 0], places)
        a[...] = 0


@pytest.mark.parametrize(
    ("rank", "row_rank", "lanes"), [(2, 2, False), (3, 2, False), (3, 2, True), (4, 3, False), (4, 3, True)]
)
def test_positions_in_rows_of_several_loops(rank, row_rank, lanes, rng):
    """They count along the row's loops; an empty row has 0."""
    run = Runner(positions_kernel("float64", rank, row_rank, lanes))
    for _ in range(15):
        sizes = tuple(int(n) for n in rng.choice([0, 1, 2, 3, 9, 20], rank, p=[0.05, *[0.19] * 5]))
        a = any_layout(rng, sizes, "float64", "any")
        outer = sizes[: rank - row_rank]
        flat = a.reshape(*outer, -1) if a.size else None
        out = [np.full((*outer, *[1] * row_rank), -1, np.int64) for _ in range(2)]
        run(a, *out, sizes=sizes)
        for got, function in zip(out, (np.argmax, np.argmin), strict=True):
            want = np.zeros_like(got) if flat is None else function(flat, -1).reshape(got.shape)
            assert_same(got, want)


@BOTH
def test_positions_beside_other_reductions(lanes, rng):
    x = load(0, "float32")
    scored = x * cast(index(1) + 1, "float32")
    fold = Fold(
        (Reduction(2, "sum", x), Reduction(0, "argmax", scored), Reduction(1, "max", scored, -math.inf))
    )
    once = Once(
        (Store(1, result(0, "int64")), Store(2, result(1, "float32")), Store(3, result(2, "float32")))
    )
    run = Runner(row_kernel("several", "float32", (fold, once), ["int64", "float32", "float32"], lanes=lanes))
    a = rng.integers(-9, 9, (7, 3000)).astype(np.float32)
    out = [np.empty((7, 1), dtype) for dtype in (np.int64, np.float32, np.float32)]
    run(a, *out)
    scores = a * np.arange(1, 3001, dtype=np.float32)
    assert_same(out[0], scores.argmax(1, keepdims=True))
    assert_same(out[1], scores.max(1, keepdims=True))
    assert_same(out[2], a.sum(1, keepdims=True))


def logical_kernel(dtype, lanes=False, inner="any"):
    """any and all are the largest and the smallest of truths as bytes."""
    truth = cast(load(0, dtype) != 0 if dtype != "bool" else load(0, "bool"), "uint8")
    fold = Fold((Reduction(0, "max", truth, 0), Reduction(1, "min", truth, 1)))
    once = Once(tuple(Store(1 + k, cast(result(k, "uint8"), "bool")) for k in range(2)))
    return row_kernel("logical", dtype, (fold, once), ["bool"] * 2, lanes=lanes, inner=inner)


@BOTH
@pytest.mark.parametrize("dtype", ["bool", "int8", "float32", "int64"])
def test_any_and_all(dtype, lanes, rng):
    run = Runner(logical_kernel(dtype, lanes))
    for size in (0, 1, 5, 64, 1000):
        a = np.zeros((size + 4, size), dtype)
        a[np.arange(size), np.arange(size)] = 1
        a[size:] = 1
        if size:
            a[size, rng.integers(size)] = 0
        out = [np.empty((size + 4, 1), bool) for _ in range(2)]
        run(a, *out, sizes=a.shape)
        assert_same(out[0], a.any(1, keepdims=True))
        assert_same(out[1], a.all(1, keepdims=True))


def dot_kernel(lanes=False, inner="any", dtype="float32", once=False):
    """once: products are rounded with their sum only."""
    a, b = load(0, dtype), load(1, dtype)
    fold = Fold((Reduction(0, "sum", product(a, b) if once else a * b),))
    operands = (Operand(dtype, inner), Operand(dtype, inner), Operand(dtype, "any"))
    return Kernel("dot", 2, operands, (fold, Once((Store(2, result(0, dtype)),))), lanes=lanes)


@BOTH
def test_sums_of_products(lanes, rng):
    run = Runner(dot_kernel(lanes))
    a, b = (rng.integers(-5, 6, (3, 10_000)).astype(np.float32) for _ in range(2))
    out = np.empty((3, 1), np.float32)
    run(a, b, out)
    assert_same(out, (a * b).sum(1, keepdims=True))


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="other processors may not have it")
@BOTH
@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("dtype", WIDE)
def test_a_product_is_rounded_with_its_sum_where_that_is_said(dtype, once, lanes, level):
    fused = once and level != "sse4"  # which has no such instruction
    a = np.nextafter(np.array(1, dtype), np.array(2, dtype))
    rounded = a * a
    lost = float(np.spacing(np.array(1, dtype))) ** 2  # of (1 + e)^2 = 1 + 2 e + e^2
    for size in (2, 3, LANES_SUM_BLOCK, *([] if lanes else [1000])):  # within what is summed in one type
        x, y = np.zeros((LANES + 3, size), dtype), np.zeros((LANES + 3, size), dtype)
        x[:, 0], y[:, 0] = -1, rounded
        lane = (size - 1) // 16 * 16  # the sums of the first and this element meet in one register
        x[:, lane or size - 1] = y[:, lane or size - 1] = a
        out = np.empty((LANES + 3, 1), dtype)
        Runner(dot_kernel(lanes, dtype=dtype, once=once))(x, y, out)
        assert_same(out, np.full_like(out, lost if fused else 0))


# Scans.

STARTS = {"sum": 0, "prod": 1}
SCANNED = {
    "sum": np.add.accumulate,
    "prod": np.multiply.accumulate,
    "max": np.maximum.accumulate,
    "min": np.minimum.accumulate,
}


def start_of(op, dtype):
    if op in STARTS:
        return STARTS[op]
    if dtype in FLOATS:
        return -math.inf if op == "max" else math.inf
    limits = np.iinfo(dtype)
    return int(limits.min if op == "max" else limits.max)


def scan_kernel(dtype, rank=2, row_rank=1, lanes=False, reverse=False, inner="any"):
    """All four scans of a row, each stored."""
    x = load(0, dtype)
    scan = Scan(
        tuple(Reduction(k, op, x, start_of(op, dtype)) for k, op in enumerate(SCANNED)),
        tuple(Store(1 + k, result(k, dtype)) for k in range(4)),
        reverse,
    )
    operands = (Operand(dtype, inner),) * 5
    return Kernel("scanned", rank, operands, (scan,), row_rank, lanes)


def scanned(op, rows, reverse):
    """Along the last axis."""
    turned = rows[..., ::-1] if reverse else rows
    with np.errstate(all="ignore"):
        found = SCANNED[op](turned, axis=-1, dtype=rows.dtype)
    return found[..., ::-1] if reverse else found


@pytest.mark.daily(4)
@BOTH
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", [*INTEGERS, *WIDE])
def test_scans(dtype, reverse, lanes, rng):
    """Exact cases: integers that wrap, floats whose sums and products are representable."""
    for inner in ("unit", "any") if not lanes else ("any",):
        run = Runner(scan_kernel(dtype, lanes=lanes, reverse=reverse, inner=inner))
        for rows, row in (
            (0, 3),
            (3, 0),
            (1, 1),
            (2, 7),
            (3, 16),
            (5, 33),
            (2, 2 * SCAN_BLOCK + 5),
            (LANES + 3, 6),
        ):
            a = np.resize(rng.permutation(special(dtype, rng, 300)), (rows, row))
            if dtype in FLOATS:
                a = np.where(rng.integers(0, 2, a.shape), 1, -1).astype(dtype)
            out = [np.full((rows, row), 7, dtype) for _ in range(4)]
            run(a, *out, sizes=(rows, row))
            for op, got in zip(SCANNED, out, strict=True):
                assert_same(got, scanned(op, a, reverse), f"{op} {rows, row}", signs=False)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("rank", "row_rank", "lanes"), [(1, 1, False), (2, 2, False), (3, 2, False), (3, 2, True), (3, 1, True)]
)
def test_scans_of_rows_of_several_loops(rank, row_rank, lanes, reverse, rng):
    run = Runner(scan_kernel("int32", rank, row_rank, lanes, reverse))
    for _ in range(15):
        sizes = tuple(int(n) for n in rng.choice([0, 1, 2, 3, 9, 20], rank, p=[0.05, *[0.19] * 5]))
        a = any_layout(rng, sizes, "int32", "any")
        out = [np.empty(sizes, np.int32) for _ in range(4)]
        run(a, *out, sizes=sizes)
        flat = a.reshape(*sizes[: rank - row_rank], math.prod(sizes[rank - row_rank :]))
        for op, got in zip(SCANNED, out, strict=True):
            assert_same(got, scanned(op, flat, reverse).reshape(sizes), op)


@BOTH
def test_scans_keep_nan(lanes):
    """From where it is, in all four."""
    run = Runner(scan_kernel("float32", lanes=lanes))
    size = 50
    a = np.ones((size, size), np.float32)
    a[np.arange(size), np.arange(size)] = np.nan
    out = [np.empty_like(a) for _ in range(4)]
    run(a, *out)
    for got in out:
        assert np.array_equal(np.isnan(got), np.tri(size, dtype=bool).T)


@BOTH
def test_the_error_of_long_scans_does_not_grow(lanes):
    """A million tenths, where a sum in float32 would be off by a hundredth."""
    run = Runner(scan_kernel("float32", lanes=lanes))
    a = np.full((1, 10**6), 0.1, np.float32)
    out = [np.empty_like(a) for _ in range(4)]
    run(a, *out)
    exact = np.arange(1, 10**6 + 1) * float(np.float32(0.1))
    assert np.max(np.abs(out[0][0] - exact) / exact) < 2e-7


@BOTH
def test_scans_of_expressions_in_place_after_a_fold(lanes, rng):
    """Shares of the total so far, stored over their own input and added to another operand."""
    x = load(0, "float64")
    share = result(1, "float64")
    stages = (
        Fold((Reduction(0, "sum", x),)),
        Scan(
            (Reduction(1, "sum", x / result(0, "float64")),), (Store(0, share), Store(1, share * 2, add=True))
        ),
    )
    run = Runner(row_kernel("shares", "float64", stages, ["float64"], lanes=lanes))
    a, b = rng.random((4, 3000)), rng.random((4, 3000))
    want = np.cumsum(a / a.sum(1, keepdims=True), 1)
    added = b + 2 * want
    run(a, b)
    np.testing.assert_allclose(a, want, rtol=1e-12)
    np.testing.assert_allclose(b, added, rtol=1e-12)


@BOTH
def test_what_follows_from_results_is_computed_once_for_a_row(lanes, rng):
    x, total, top = load(0, "float64"), result(0, "float64"), result(1, "float64")
    ratio = total / (top * 2 + 1)
    stages = (
        Fold((Reduction(0, "sum", x), Reduction(1, "max", x, -math.inf))),
        Fold((Reduction(2, "sum", (x - ratio) * (x - ratio)),)),
        Each((Store(1, (x - ratio) / (result(2, "float64") + 1)),)),
    )
    kernel = Kernel("centred", 2, (Operand("float64"), Operand("float64")), stages, 1, lanes)
    for shape in ((3, 7), (40, 5), (2, LANES + 9)):
        a = rng.standard_normal(shape[::-1] if lanes else shape)
        out = np.empty_like(a)
        axis = 0 if lanes else 1
        sizes = a.T.shape if lanes else a.shape
        Runner(kernel)(*((a.T, out.T) if lanes else (a, out)), sizes=sizes)
        shift = a.sum(axis, keepdims=True) / (a.max(axis, keepdims=True) * 2 + 1)
        want = (a - shift) / (((a - shift) ** 2).sum(axis, keepdims=True) + 1)
        np.testing.assert_allclose(out, want, rtol=1e-12)
    if lanes:  # arrays of three results, of the ratio in two stages, and of what is divided by
        assert print_kernel(kernel).count("alloca [") == 6


@BOTH
def test_scans_of_what_follows_from_results(lanes, rng):
    """The scan's own results are not taken for those of what is computed once for a row."""
    x, top = load(0, "float64"), result(0, "float64")
    scan = Scan((Reduction(1, "sum", x / (top * 2 + 1)),), (Store(1, result(1, "float64") + top * 3),))
    stages = (Fold((Reduction(0, "max", x, -math.inf),)), scan)
    kernel = Kernel("scanned", 2, (Operand("float64"), Operand("float64")), stages, 1, lanes)
    a = rng.standard_normal((9, 4))
    rows = a.T if lanes else a
    out = np.empty_like(a)
    Runner(kernel)(rows, out.T if lanes else out, sizes=rows.shape)
    top_of_rows = rows.max(1, keepdims=True)
    want = (rows / (top_of_rows * 2 + 1)).cumsum(1) + top_of_rows * 3
    np.testing.assert_allclose(out.T if lanes else out, want, rtol=1e-12)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="counts registers of x86")
@pytest.mark.parametrize("case", ["argmax", "any and all", "bytes", "dot", "scan"])
def test_stages_become_vectors(case, level):
    kernel = {
        "argmax": lambda: positions_kernel("float32", inner="unit"),
        "any and all": lambda: logical_kernel("float32", inner="unit"),
        "bytes": lambda: logical_kernel("bool", inner="unit"),
        "dot": lambda: dot_kernel(inner="unit"),
        "scan": lambda: scan_kernel("float32", inner="unit"),
    }[case]()
    least = 4 if level == "sse4" else 8  # LLVM unrolls less there
    assert vectors(_toolchain().assembly(print_kernel(kernel)), level) >= least


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads x86's assembly")
@pytest.mark.parametrize("case", ["max", "min", "argmax and argmin", "scan"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_extremes_of_rows_side_by_side_are_stored_whole(case, dtype, level):
    """A store under a mask, where the extreme changes, is many instructions of AVX2, and is not forwarded to loads."""
    x, out = load(0, dtype), Once((Store(1, result(0, dtype)),))
    fold = Fold((Reduction(0, case[:3], x, start_of(case, dtype)),)) if case in ("max", "min") else None
    kernel = {
        "argmax and argmin": lambda: positions_kernel(dtype, lanes=True, inner="unit"),
        "scan": lambda: scan_kernel(dtype, lanes=True, inner="unit"),
    }.get(case, lambda: row_kernel("extreme", dtype, (fold, out), [dtype], lanes=True, inner="unit"))()
    assert "maskmov" not in _toolchain().assembly(print_kernel(kernel))
