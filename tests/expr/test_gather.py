"""Elements at computed positions: embeddings, take and take_along_axis, against NumPy."""

import platform

import numpy as np
import pytest

from weft.expr.compiler import _toolchain
from weft.expr.evaluate import evaluate
from weft.expr.kernel import Each, Fold, Kernel, Once, Operand, Reduction, Store
from weft.expr.llvm import print_kernel
from weft.expr.scalar import cast, index, load, load_at, maximum, minimum, parameter, result, where

from .support import DTYPES, NUMPY, Runner, assert_same, special


@pytest.fixture
def rng():
    return np.random.default_rng(23)


def wrapped(position, size):
    """Negative positions count from the end."""
    return where(position < 0, position + size, position)


def take_kernel(dtype="float32", rank=2, inner="unit", index_dtype="int64", outer_inner="zero"):
    """Operands: the table, with stride 0 along the loop of the indices; these; the result. Parameter: the size."""
    position = wrapped(cast(load(1, index_dtype), "int64"), parameter(0, "int64"))
    operands = (Operand(dtype, inner, gathered=1), Operand(index_dtype, outer_inner), Operand(dtype))
    return Kernel("take", rank, operands, (Each((Store(2, load_at(0, dtype, position)),)),))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_a_table(dtype, rng):
    """An embedding: out[n, :] = table[indices[n], :], of every type and with all kinds of rows."""
    for inner in ("unit", "any"):
        run = Runner(take_kernel(dtype, inner=inner, index_dtype="int32"))
        for rows, width, count in ((10, 1, 5), (7, 33, 20), (100, 130, 3), (4, 5, 0), (4, 0, 5)):
            table = np.resize(special(dtype, rng), (rows, width))
            if inner == "any":
                table = np.asfortranarray(table)
            which = rng.integers(-rows, rows, (count, 1), np.int32)
            out = np.empty((count, width), NUMPY[dtype])
            run(table.T[None], which, out, parameters=[np.int64(rows)], sizes=out.shape)
            assert_same(out, table[which[:, 0]])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_take_along_each_axis(axis, rng):
    """take(x, indices, axis): no loop along x's axis, one along the indices instead."""
    last = axis == 2
    run = Runner(
        take_kernel(rank=3, inner="zero" if last else "unit", outer_inner="unit" if last else "zero")
    )
    x = rng.random((6, 7, 40), np.float32)
    which = rng.integers(-x.shape[axis], x.shape[axis], 11)
    shape = [11 if d == axis else n for d, n in enumerate(x.shape)]
    out = np.empty(shape, np.float32)
    table = np.expand_dims(
        np.moveaxis(x, axis, -1), axis
    )  # axis last: gathered; size 1 in the loop of the indices
    places = which.reshape([-1 if d == axis else 1 for d in range(3)])
    run(table, places, out, parameters=[np.int64(x.shape[axis])])
    assert_same(out, x.take(which, axis))


def test_take_along_axis(rng):
    """gather: the indices have every dimension of the result."""
    run = Runner(take_kernel(rank=2, inner="unit", outer_inner="unit"))
    x = rng.random((50, 37), np.float32)
    which = rng.integers(0, 50, (8, 37))
    out = np.empty((8, 37), np.float32)
    run(x.T[None], which, out, parameters=[np.int64(50)])
    assert_same(out, np.take_along_axis(x, which, 0))


def test_several_gathered_dimensions(rng):
    """x[i, j] of two index arrays, within bounds by minimum and maximum, from a table seen backwards."""

    def clamped(position, size):
        return minimum(maximum(position, 0), size - 1)

    i, j = (clamped(load(1 + k, "int64"), parameter(k, "int64")) for k in range(2))
    operands = (Operand("float64", "zero", gathered=2), *(Operand("int64"),) * 2, Operand("float64"))
    run = Runner(Kernel("points", 1, operands, (Each((Store(3, load_at(0, "float64", i, j)),)),)))
    for table in (rng.random((20, 30)), rng.random((30, 20)).T[::-1, ::-1]):
        a, b = rng.integers(-5, 25, 200), rng.integers(-5, 35, 200)
        out = np.empty(200)
        run(table[None], a, b, out, parameters=[np.int64(20), np.int64(30)], sizes=(200,))
        assert_same(out, table[a.clip(0, 19), b.clip(0, 29)])


@pytest.mark.parametrize("lanes", [False, True])
def test_sums_of_gathered_rows(lanes, rng):
    """A bag of embeddings: out[n, :] = sum over k of table[indices[n, k], :]."""
    value = load_at(0, "float32", load(1, "int64"))
    # Loops: n, column, k.
    stages = (Fold((Reduction(0, "sum", value),)), Once((Store(2, result(0, "float32")),)))
    layout = ("unit", "zero", "unit") if lanes else ("zero", "unit", "zero")
    operands = (Operand("float32", layout[0], 1), Operand("int64", layout[1]), Operand("float32", layout[2]))
    run = Runner(Kernel("bag", 3, operands, stages, lanes=lanes))
    table = rng.integers(0, 9, (50, 16)).astype(np.float32)
    which = rng.integers(0, 50, (12, 5))
    out = np.empty((12, 16, 1), np.float32)
    run(table.T[None, :, None], which[:, None, :], out, sizes=(12, 16, 5))
    assert_same(out[..., 0], table[which].sum(1))


def test_positions_of_the_loops(rng):
    """roll: index() and a gathered dimension; such a loop is not split."""
    size = parameter(0, "int64")
    value = load_at(0, "int32", (index(1) + parameter(1, "int64")) % size)
    kernel = Kernel("rolled", 2, (Operand("int32", "zero", 1), Operand("int32")), (Each((Store(1, value),)),))
    assert kernel.indexed == {1}
    a = rng.integers(0, 99, (5, 23), np.int32)
    out = np.empty_like(a)
    Runner(kernel)(a[:, None], out, parameters=[np.int64(23), np.int64(7)])
    assert_same(out, np.roll(a, -7, 1))


def test_what_the_slow_meaning_gathers(rng):
    table, which = rng.random((5, 9)), rng.integers(0, 9, (4, 1, 3))
    value = load_at(0, "float64", load(1, "int64"))
    got = evaluate(value, {0: table[:, None, :], 1: which})
    assert_same(got, table[np.arange(5)[None, :, None], which])


def test_nothing_is_read_for_no_elements():
    """What does not change in a loop is read before it, but not if it is empty."""
    run = Runner(take_kernel())
    run(
        np.zeros((1, 0, 4), np.float32),
        np.zeros((3, 1), np.int64),
        np.empty((3, 0), np.float32),
        sizes=(3, 0),
    )
    run(
        np.zeros((1, 5, 4), np.float32),
        np.zeros((0, 1), np.int64),
        np.empty((0, 5), np.float32),
        sizes=(0, 5),
    )


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads x86's assembly")
def test_rows_are_copied_as_a_whole(level):
    """A row of one table lies like the result's: moved by vectors or memcpy, not gathered."""
    listing = _toolchain().assembly(print_kernel(take_kernel()))
    assert "gather" not in listing
    moves = {"sse4": ["movups"], "avx2": ["%ymm"], "avx512": ["%ymm", "%zmm"]}[level]
    assert any(word in listing for word in ["memcpy", *moves])
