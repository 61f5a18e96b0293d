"""Kernels whose operands lie along different loops: against NumPy, in every size around tiles and vectors."""

import itertools

import numpy as np
import pytest

from weft.expr import llvm_tiles
from weft.expr.kernel import Each, Fold, Kernel, Operand, Reduction, Store
from weft.expr.scalar import cast, index, load, parameter

from .support import DTYPES, NUMPY, Runner, assert_same, special

UNIT, CROSS = "unit", "cross"


@pytest.fixture
def rng():
    return np.random.default_rng(22)


def copy_kernel(dtype, source=CROSS, target=UNIT, rank=2, cross=0):
    operands = (Operand(dtype, source), Operand(dtype, target))
    return Kernel("turned", rank, operands, (Each((Store(1, load(0, dtype)),)),), cross=cross)


SIZES = (0, 1, 3, 8, 15, 16, 17, 33, 63, 64, 65, 100, 130)


@pytest.mark.parametrize("into", [UNIT, CROSS])
@pytest.mark.parametrize("dtype", DTYPES)
def test_transposed_copies(dtype, into, rng):
    """Of every type; nothing is written beside the target."""
    run = Runner(copy_kernel(dtype, CROSS if into == UNIT else UNIT, into))
    sizes = (
        itertools.product(SIZES, repeat=2)
        if dtype in ("int8", "float32")
        else zip(SIZES, SIZES[::-1], strict=True)
    )
    for rows, columns in sizes:
        a = np.resize(rng.permutation(special(dtype, rng)), (columns + 1, rows + 3))[1:, 2 : rows + 2]
        memory = np.full((rows + 2, columns + 70), 1, NUMPY[dtype])
        out = memory[1:-1, 40 : columns + 40]
        if into == UNIT:
            run(a.T, out, sizes=(rows, columns))
        else:
            run(a, out.T, sizes=(columns, rows))
        assert_same(out, a.T, f"{rows, columns}")
        out[...] = 1
        assert (memory == 1).all()


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("into", [UNIT, CROSS])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int8"])
def test_streaming_stores(dtype, into, more, rng):
    """Large results, whose stores go past the cache in whole lines of it; on any alignment, with and without sums."""
    x = load(0, dtype)
    operands = Operand(dtype, CROSS if into == UNIT else UNIT), Operand(dtype, into)
    value = x + more if more else x
    run = Runner(Kernel("large", 2, operands, (Each((Store(1, value),)),), cross=0))
    size = NUMPY[dtype].itemsize
    scale = 4 // min(size, 4)
    for rows, columns, shift in ((1024, 2112 * scale, 0), (1040, 1100 * scale, 0), (1024, 2112 * scale, 1)):
        a = rng.integers(0, 100, (columns, rows)).astype(dtype)
        memory = np.zeros(rows * columns + 256, dtype)
        begin = -memory.ctypes.data % 64 // size + shift
        out = memory[begin : begin + rows * columns].reshape(rows, columns)
        if into == UNIT:
            run(a.T, out)
        else:
            run(a, out.T)
        assert out.nbytes >= llvm_tiles.STREAMING_BYTES
        assert np.array_equal(out, a.T + NUMPY[dtype].type(more))
        assert not memory[:begin].any()
        assert not memory[begin + out.size :].any()


def test_arithmetic_between_directions(rng):
    """Operands along either loop, one for all, strided ones, several stores, one added, positions and parameters."""
    operands = (
        Operand("float32", UNIT),
        Operand("int16", CROSS),
        Operand("float64", "zero"),
        Operand("int32", "any"),
        Operand("float32", UNIT),
        Operand("int16", CROSS),
        Operand("float32", CROSS),
    )
    a, b, c, d = (load(k, how.dtype) for k, how in enumerate(operands[:4]))
    value = a * cast(b, "float32") + cast(c, "float32") + cast(d, "float32")
    places = cast(index(0) * 100 + index(2) * 10 + index(1), "float32")
    stores = (
        Store(4, value),
        Store(5, b + cast(d, "int16"), add=True),
        Store(6, value * parameter(0, "float32") - places),
    )
    run = Runner(Kernel("directions", 3, operands, (Each(stores),), cross=1))
    for rows, columns in ((1, 1), (17, 70), (70, 17), (64, 128), (0, 5), (131, 66)):
        shape = (2, rows, columns)

        def drawn(dtype, shape=shape):
            return rng.integers(0, 9, shape).astype(dtype)

        def crossing(dtype, shape=(2, columns, rows)):
            return drawn(dtype, shape).transpose(0, 2, 1)

        inputs = [drawn("float32"), crossing("int16"), drawn("float64", (2, rows, 1))]
        inputs.append(drawn("int32", (columns, 2, rows)).transpose(1, 2, 0))
        out = [drawn("float32"), crossing("int16"), crossing("float32")]
        x, y, z, w = inputs
        value = x * y.astype("float32") + z.astype("float32") + w.astype("float32")
        added = out[1] + y + w.astype("int16")
        i, j, k = np.indices(shape).astype("float32")
        run(*inputs, *out, parameters=[np.float32(3)], sizes=shape)
        assert_same(out[0], value)
        assert_same(out[1], added)
        assert_same(out[2], value * np.float32(3) - (i * 100 + k * 10 + j))


def test_in_place_across(rng):
    x, y = load(0, "float64"), load(1, "float64")
    run = Runner(
        Kernel(
            "across", 2, (Operand("float64", CROSS), Operand("float64")), (Each((Store(0, x + y),)),), cross=0
        )
    )
    a, b = rng.random((90, 75)).T, rng.random((75, 90))
    want = a + b
    run(a, b)
    assert_same(a, want)


def test_split_in_either_loop(rng):
    """As a caller does for threads: data moved, one size smaller."""
    run = Runner(copy_kernel("float32"))
    a, out = rng.random((300, 200), np.float32), np.empty((200, 300), np.float32)
    for part in (slice(0, 77), slice(77, 200)):
        run(a.T[part], out[part])
    assert_same(out, a.T)
    out[...] = 0
    for part in (slice(0, 131), slice(131, 300)):
        run(a.T[:, part], out[:, part])
    assert_same(out, a.T)


def wrong(stages=None, operands=None, **options):
    x = load(0, "float32")
    stages = stages or (Each((Store(1, x),)),)
    operands = operands or (Operand("float32", CROSS), Operand("float32"))
    return lambda: Kernel("k", 2, operands, stages, **options)


FOLD = (Fold((Reduction(0, "sum", load(0, "float32")),)),)


@pytest.mark.parametrize(
    ("message", "made"),
    [
        ("an operand is 'cross', but no loop is", wrong()),
        ("cross must be a loop before the innermost one, got 1", wrong(cross=1)),
        ("cross must be a loop before the innermost one, got -1", wrong(cross=-1)),
        ("cross is for one Each of rows of one loop", wrong(FOLD, cross=0)),
        ("cross is for one Each of rows of one loop", wrong(cross=0, row_rank=2)),
        ("cross is for one Each of rows of one loop", wrong(cross=0, lanes=True)),
        (
            "without gathered operands",
            wrong(operands=(Operand("float32", CROSS, 1), Operand("float32")), cross=0),
        ),
    ],
)
def test_what_cannot_be_tiled(message, made):
    with pytest.raises(ValueError, match=message):
        made()
