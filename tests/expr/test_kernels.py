"""Compiled kernels against NumPy: every operation and type, loops of every rank and layout, reductions, vectors."""

import itertools
import math
import platform
from fractions import Fraction

import numpy as np
import pytest

import weft as wf
from weft import _core
from weft.expr.compiler import _toolchain, optimised_module
from weft.expr.evaluate import to_bfloat16
from weft.expr.kernel import Each, Fold, Kernel, Once, Operand, Reduction, Scan, Store
from weft.expr.llvm import print_kernel
from weft.expr.llvm_lanes import LANES
from weft.expr.llvm_rows import SUM_BLOCK
from weft.expr.scalar import (
    BINARY,
    BITS,
    BITS_OF_INTEGERS,
    BITWISE,
    COMPARISONS,
    FLOATS,
    FLOATS_ONLY,
    FUNCTIONS,
    UNARY,
    bitcast,
    call,
    cast,
    constant,
    fma,
    index,
    load,
    load_at,
    maximum,
    minimum,
    parameter,
    result,
    where,
)

from .support import (
    DTYPES,
    HALVES,
    INTEGERS,
    NUMPY,
    REAL,
    SIGNATURE,
    WIDE,
    Runner,
    any_layout,
    assert_same,
    computed,
    pairs,
    pointwise,
    special,
    vectors,
    wrapped,
)

SIZES = (0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200, 1000)


@pytest.fixture
def rng():
    return np.random.default_rng(20)


def comparison(op, a, b):
    return {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b, "eq": a == b, "ne": a != b}[op]


# Operations on one element.


def truncated(a, b):
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


INTEGER_MEANING = {
    "add": lambda a, b, bits: a + b,
    "sub": lambda a, b, bits: a - b,
    "mul": lambda a, b, bits: a * b,
    "div": lambda a, b, bits: truncated(a, b),
    "rem": lambda a, b, bits: 0 if b == 0 else a - b * truncated(a, b),
    "minimum": lambda a, b, bits: min(a, b),
    "maximum": lambda a, b, bits: max(a, b),
    "and": lambda a, b, bits: a & b,
    "or": lambda a, b, bits: a | b,
    "xor": lambda a, b, bits: a ^ b,
    "shl": lambda a, b, bits: a << (b & (bits - 1)),
    "shr": lambda a, b, bits: a >> (b & (bits - 1)),
}
INTEGER_UNARY = {"neg": lambda a: -a, "abs": abs, "not": lambda a: ~a}


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_operations(dtype, rng):
    """They wrap; division truncates, x / 0 and x % 0 are 0, least / -1 is least."""
    assert set(INTEGER_MEANING) == set(BINARY) - set(FLOATS_ONLY)
    assert set(INTEGER_UNARY) == set(UNARY) - set(FLOATS_ONLY)
    bits = BITS[dtype]

    def every(x, y):
        shift = y & (bits - 1)
        binary = [call(op, x, shift if op in ("shl", "shr") else y) for op in INTEGER_MEANING]
        return [*binary, *(call(op, x) for op in INTEGER_UNARY)]

    a, b = pairs(np.unique(special(dtype, rng, 10)))
    got = computed(every, a, b)
    xs, ys = a.tolist(), b.tolist()
    for (op, meaning), values in zip(INTEGER_MEANING.items(), got, strict=False):
        want = wrapped([meaning(p, q, bits) for p, q in zip(xs, ys, strict=True)], dtype)
        assert_same(values, want, op)
    for (op, meaning), values in zip(INTEGER_UNARY.items(), got[len(INTEGER_MEANING) :], strict=True):
        assert_same(values, wrapped([meaning(p) for p in xs], dtype), op)


FLOAT_MEANING = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "product": np.multiply,
    "div": np.divide,
    "rem": np.fmod,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "copysign": np.copysign,
}
FLOAT_UNARY = {
    "neg": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "rint": np.rint,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
}


@pytest.mark.parametrize("dtype", WIDE)
def test_float_operations(dtype, rng):
    """As IEEE 754 has them, NaN, infinities, subnormals and signs of zeros included."""
    assert set(FLOAT_MEANING) == set(BINARY) - set(BITWISE)
    assert set(FLOAT_UNARY) == set(UNARY) - set(BITWISE)
    a, b = pairs(special(dtype, rng, 10))
    got = computed(
        lambda x, y: [*(call(op, x, y) for op in FLOAT_MEANING), *(call(op, x) for op in FLOAT_UNARY)], a, b
    )
    with np.errstate(all="ignore"):
        for (op, meaning), values in zip(FLOAT_MEANING.items(), got, strict=False):
            assert_same(values, meaning(a, b), op, signs=op not in ("minimum", "maximum"))
        for (op, meaning), values in zip(FLOAT_UNARY.items(), got[len(FLOAT_MEANING) :], strict=True):
            assert_same(values, meaning(a), op)


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS, *WIDE])
def test_comparisons_and_selection(dtype, rng):
    a, b = pairs(special(dtype, rng, 10))
    got = computed(
        lambda x, y: [
            *(getattr(x, f"__{op}__")(y) for op in COMPARISONS),
            where(x < y, x, y),
            where((x == y) | ~(x > y), y, x),
        ],
        a,
        b,
    )
    for op, values in zip(COMPARISONS, got, strict=False):
        assert_same(values, comparison(op, a, b), op)
    assert_same(got[-2], np.where(a < b, a, b), "where")
    assert_same(got[-1], np.where((a == b) | ~(a > b), b, a), "where with logic")


def test_bool_operations():
    a, b = pairs(np.array([False, True]))
    names = ("and", "or", "xor", "minimum", "maximum")
    *binary, inverted = computed(lambda x, y: [*(call(op, x, y) for op in names), ~x], a, b)
    for op, values in zip(names, binary, strict=True):
        want = {"and": a & b, "or": a | b, "xor": a ^ b, "minimum": a & b, "maximum": a | b}[op]
        assert_same(values, want, op)
    assert_same(inverted, ~a)


def test_any_byte_but_zero_is_true():
    a = np.arange(256, dtype=np.uint8).view(bool)
    got, number, inverted = computed(lambda x: [x | False, cast(x, "int32"), ~x], a)
    want = np.arange(256) != 0
    assert np.array_equal(got.view(np.uint8), want)
    assert np.array_equal(number, want)
    assert np.array_equal(inverted.view(np.uint8), ~want)


@pytest.mark.parametrize("dtype", WIDE)
def test_fma_rounds_once(dtype, rng):
    """The error of a product is a number of the type, and fma finds it."""
    a, b = (rng.standard_normal(300).astype(dtype) for _ in range(2))
    (error,) = computed(lambda x, y, p: [fma(x, y, p)], a, b, -(a * b))
    for x, y, e in zip(a, b, error, strict=True):
        assert Fraction(float(e)) == Fraction(float(x)) * Fraction(float(y)) - Fraction(float(x * y))
    assert np.count_nonzero(error) > 200
    assert np.all(a * b - a * b == 0)
    # Without fma nothing is contracted.
    (plain,) = computed(lambda x, y, p: [x * y + p], a, b, -(a * b))
    assert not plain.any()


SAME_SIZE = [(a, b) for a in REAL for b in REAL if BITS[a] == BITS[b] and a != b]


def test_bits_are_kept(rng):
    for source in DTYPES:
        targets = [b for a, b in SAME_SIZE if a == source]
        if not targets:
            continue
        a = special(source, rng)
        for got in computed(lambda x, targets=targets: [bitcast(x, target) for target in targets], a):
            assert got.tobytes() == a.tobytes()


@pytest.mark.parametrize("source", DTYPES)
def test_casts_are_those_of_arrays(source, rng):
    a = special(source, rng, 2000)
    for got in computed(lambda x: [cast(x, target) for target in DTYPES], a):
        target = next(name for name in DTYPES if NUMPY[name] == got.dtype)
        want = np.array(_core.copy_of(wf.asarray(a), wf.as_dtype(target)))
        assert_same(got, want, f"{source} -> {target}")
        if target in BITS_OF_INTEGERS:
            assert got.tobytes() == want.tobytes()


def test_every_half_comes_back(rng):
    """All 65536 of them, through float32 and float64; NaN stays NaN. But bfloat16 loses its subnormal ones."""
    for half in HALVES:
        words = np.arange(2**16, dtype=np.uint16)
        if half == "bfloat16":
            words = words[(words & 0x7F80 != 0) | (words & 0x7F == 0)]
        a = words.view(NUMPY[half])
        for got in computed(lambda x, half=half: [cast(cast(x, wide), half) for wide in WIDE], a):
            assert_same(got, a, half)


def test_halves_round_to_nearest_even(rng):
    """Around every boundary between two neighbours, from both wide types."""
    for half, wide in itertools.product(HALVES, WIDE):
        infinity = np.array(np.inf, NUMPY[half]).view(np.uint16)
        every = np.arange(infinity, dtype=np.uint16).view(NUMPY[half]).astype(wide)
        middle = every[1:] / 2 + every[:-1] / 2
        a = np.concatenate([middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)])
        a = np.concatenate([a, -a]).astype(wide)
        (got,) = computed(lambda x, half=half: [cast(x, half)], a)
        with np.errstate(all="ignore"):
            wanted = to_bfloat16(a) if half == "bfloat16" else a.astype(NUMPY[half])
            assert_same(got, wanted, f"{wide} -> {half}")


def test_signs_of_rounded_halves(rng):
    """LLVM 22 aborts the process where the sign bit of a value just rounded to bfloat16 is stored as a bool."""
    for half in HALVES:
        a = np.concatenate([special("float32", rng, 40), -special("float32", rng, 40)])
        a = a[~np.isnan(a)]
        kernel = pointwise(
            "signs",
            ["float32"],
            [call("copysign", constant(1.0, "float32"), cast(cast(load(0, "float32"), half), "float32")) < 0],
        )
        out = np.empty(a.size, bool)
        Runner(kernel)(a, out)
        np.testing.assert_array_equal(out, np.signbit(a), half)


CONVERTED = {
    "to_bfloat16": ("float32", "bfloat16"),
    "to_float16": ("float32", "float16"),
    "from_float16": ("float16", "float32"),
}


@pytest.mark.parametrize("name", CONVERTED)
def test_conversions_are_the_same_on_every_processor(rng, name, monkeypatch):
    """By the instruction, if this one has it, and by integers: also the bits of NaN, and subnormal numbers."""
    source, target = CONVERTED[name]
    if source == "float16":
        words = np.arange(2**16, dtype=np.uint16)
    else:
        words = rng.integers(0, 2**32, 200_000, np.uint32)
        words[:1000] &= 0x807FFFFF  # subnormal
        words[1000:2000] |= 0x7F800000  # not a number
        exponents = (
            rng.integers(100, 145, 100_000).astype(np.uint32) << 23
        )  # near float16's range, and halfway
        words[-100_000:] = words[-100_000:] & 0x807FF000 | exponents
    values = words.view(NUMPY[source])
    kernel = pointwise("conversion", [source], [cast(load(0, source), target)])
    tools = _toolchain()
    found = []
    for instructions in (frozenset(), tools.instructions):
        monkeypatch.setattr(
            tools, "optimised", lambda text, i=instructions: optimised_module(text, tools.machine, i)
        )
        address, owner = tools.link(tools.compile(print_kernel(kernel)), kernel.name)
        runner = Runner(kernel)
        runner.function = SIGNATURE(address)
        out = np.empty(words.size, NUMPY[target])
        runner(values, out)
        found.append(out.view(f"uint{8 * out.itemsize}"))
        del owner
    np.testing.assert_array_equal(found[0], found[1])
    native = wf.tensor(values).astype(target).numpy().view(found[0].dtype)
    np.testing.assert_array_equal(found[0], native)


def test_constants_of_every_type(rng):
    for dtype in DTYPES:
        values = special(dtype, rng, 20)
        for chunk in np.array_split(values, 8):  # the time to compile grows faster than the number of stores
            wanted = [v.item() if dtype not in HALVES else float(v) for v in chunk]
            out = [np.empty(1, NUMPY[dtype]) for _ in wanted]
            Runner(pointwise("constants", [], [constant(v, dtype) for v in wanted]))(*out)
            assert_same(np.concatenate(out), chunk, dtype)


def test_float_constants_are_rounded():
    values = (1e40, -1e40, 70000.0, 65519.0, 0.1, 1e-46, 2.0**-25, 3.4e38, 1e39)
    for dtype in FLOATS:
        out = [np.empty(1, NUMPY[dtype]) for _ in values]
        Runner(pointwise("rounded", [], [constant(v, dtype) for v in values]))(*out)
        with np.errstate(all="ignore"):
            assert_same(np.concatenate(out), np.array(values).astype(NUMPY[dtype]), dtype)


def test_parameters_of_every_type(rng):
    outputs = [parameter(k, dtype) for k, dtype in enumerate(REAL)]
    # One slot may be read as two types.
    outputs += [parameter(DTYPES.index("int32"), "uint8")]
    run = Runner(pointwise("given", [], outputs))
    for _ in range(3):
        given = [rng.choice(special(dtype, rng)) for dtype in REAL]
        given[DTYPES.index("int32")] = np.int32(rng.integers(-1000, 1000))
        out = [np.empty(5, NUMPY[value.dtype]) for value in outputs]
        run(*out, parameters=given)
        for value, got in zip(given, out, strict=False):
            assert_same(got, np.full(5, value, got.dtype))
        assert (out[-1] == int(given[DTYPES.index("int32")]) % 256).all()


# Loops.


@pytest.mark.parametrize("inner", ["unit", "any", "reverse"])
def test_sizes_around_the_width_of_vectors(inner, rng):
    """Nothing is written outside, in every type of every width."""
    for dtype in ("int8", "float16", "float32", "float64", "bool"):
        x = load(0, dtype)
        value = (
            ~x if dtype == "bool" else cast(cast(x, "float32") + 1, dtype) if dtype == "float16" else x + 1
        )
        run = Runner(pointwise("sized", [dtype], [value], inner=inner))
        for size in SIZES:
            a = rng.integers(0, 2 if dtype == "bool" else 60, size).astype(dtype)
            out = np.zeros(size + 64, dtype)
            written = out[32 : 32 + size]
            run(*((a[::-1], written[::-1]) if inner == "reverse" else (a, written)), sizes=(size,))
            want = np.zeros(size + 64, dtype)
            want[32 : 32 + size] = ~a if dtype == "bool" else a + NUMPY[dtype].type(1)
            assert_same(out, want, f"{dtype} {size}")


INNER = ("unit", "zero", "any", "reverse")


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
@pytest.mark.parametrize("inner", [*itertools.product(INNER, INNER, ("unit", "any", "reverse"))][::5])
def test_random_layouts(rank, inner, rng):
    """Negative strides, zeros, gaps, elements off their alignment; sizes 0 and 1 among them."""
    x, y = load(0, "float32"), load(1, "int16")
    places = sum((index(d) * 10**d for d in range(1, rank)), index(0))
    value = x * 3 + cast(y, "float32") - cast(places, "float32")
    operands = tuple(Operand(d, i) for d, i in zip(("float32", "int16", "float32"), inner, strict=True))
    for row_rank in {1, rank}:
        run = Runner(Kernel("laid_out", rank, operands, (Each((Store(2, value),)),), row_rank))
        for _ in range(12):
            sizes = tuple(int(n) for n in rng.choice([0, 1, 2, 3, 5, 17, 33], rank, p=[0.04, *[0.16] * 6]))
            if math.prod(sizes) > 20_000:
                sizes = (*sizes[:1], *(min(n, 5) for n in sizes[1:]))
            a, b = (any_layout(rng, sizes, o.dtype, o.inner) for o in operands[:2])
            out = np.full(tuple(n + 2 for n in sizes), -1, np.float32)
            view = out[(slice(1, -1),) * rank]
            if inner[2] == "reverse" or (inner[2] == "any" and rng.integers(2)):
                view = view[(..., slice(None, None, -1))]
            grids = np.meshgrid(*(np.arange(n) for n in sizes), indexing="ij")
            number = sum(grid * 10**d for d, grid in enumerate(grids))
            want = (a * np.float32(3) + b.astype(np.float32)) - number.astype(np.float32)
            run(a, b, view, sizes=sizes)
            assert_same(view, want)
            view[...] = -1
            assert (out == -1).all()


def test_in_place_and_several_stores(rng):
    """All values are computed before the first store of a position."""
    x, y, p = load(0, "float32"), load(1, "int32"), parameter(0, "float32")
    stores = (Store(0, x * p), Store(1, y + cast(x, "int32")), Store(2, x - 1), Store(3, x > p))
    operands = tuple(Operand(d, "unit") for d in ("float32", "int32", "float32", "bool"))
    strided = tuple(Operand(o.dtype, "any") for o in operands)
    for kinds in (operands, strided):
        run = Runner(Kernel("in_place", 1, kinds, (Each(stores),)))
        for size in (1, 5, 64, 333):
            a = rng.integers(-50, 50, size).astype(np.float32)
            b = rng.integers(-50, 50, size, np.int32)
            old, before = a.copy(), b.copy()
            c, d = np.empty_like(a), np.empty(size, bool)
            run(a, b, c, d, parameters=[np.float32(2.5)])
            assert_same(a, old * np.float32(2.5))
            assert_same(b, before + old.astype(np.int32))
            assert_same(c, old - 1)
            assert_same(d, old > 2.5)


def test_operands_may_be_the_same_array(rng):
    x, y = load(0, "float32"), load(1, "float32")
    run = Runner(pointwise("aliased", ["float32", "float32"], [x * y + 1]))
    a = rng.standard_normal(1003).astype(np.float32)
    want = a * a + np.float32(1)
    run(a, a, a)
    assert_same(a, want)


def test_stages_run_in_order(rng):
    """The second stage sees what the first one stored, anywhere in the row: here through another operand."""
    x, y = load(0, "int64"), load(1, "int64")
    reverse = load_at(3, "int64", parameter(0, "int64") - 1 - index(1))
    stages = (Each((Store(1, x * 2),)), Each((Store(2, reverse + y),)))
    operands = ((Operand("int64"),) * 3, Operand("int64", "zero", gathered=1))
    run = Runner(Kernel("stages", 2, (*operands[0], operands[1]), stages))
    a = rng.integers(0, 1000, (5, 37))
    b, c = np.empty_like(a), np.empty_like(a)
    run(a, b, c, b[:, None, :], parameters=[np.int64(37)])
    assert_same(b, a * 2)
    assert_same(c, a * 2 + (a * 2)[:, ::-1])


@pytest.mark.parametrize("inner", ["unit", "any"])
def test_adding_to_what_is_there(inner, rng):
    """In every type: halves through float32, bool as or."""
    operands = tuple(Operand(dtype, inner) for dtype in DTYPES * 2)
    stores = tuple(Store(len(DTYPES) + k, load(k, d), add=True) for k, d in enumerate(DTYPES))
    run = Runner(Kernel("added", 1, operands, (Each(stores),)))
    for size in (0, 1, 50, 201):
        a = [np.resize(rng.permutation(special(d, rng)), size) for d in DTYPES]
        b = [np.resize(rng.permutation(special(d, rng)), size) for d in DTYPES]
        with np.errstate(all="ignore"):
            want = [
                (x.astype("float32") + y.astype("float32")).astype(x.dtype)
                if d in HALVES
                else (x | y if d == "bool" else x + y)
                for d, x, y in zip(DTYPES, a, b, strict=True)
            ]
        run(*a, *b, sizes=(size,))
        for d, x, y in zip(DTYPES, b, want, strict=True):
            assert_same(x, y, d)


def test_adding_once_for_each_row(rng):
    x = load(0, "float64")
    stages = (Fold((Reduction(0, "sum", x, 0),)), Once((Store(1, result(0, "float64"), add=True),)))
    run = Runner(Kernel("row_added", 2, (Operand("float64"), Operand("float64", "any")), stages))
    a, b = rng.integers(0, 9, (6, 10)).astype(float), rng.integers(0, 9, (6, 1)).astype(float)
    want = b + a.sum(1, keepdims=True)
    run(a, b)
    assert_same(b, want)


# Reductions.

REDUCED = {"sum": (np.sum, 0), "prod": (np.prod, 1), "max": (np.max, None), "min": (np.min, None)}


def start_of(op, dtype):
    if op in ("sum", "prod"):
        return REDUCED[op][1]
    if dtype in FLOATS:
        return -math.inf if op == "max" else math.inf
    limits = np.iinfo(dtype)
    return int(limits.min if op == "max" else limits.max)


def reduction_kernel(name, dtype, rank, row_rank, inner, lanes=False):
    """All four reductions in one Fold."""
    x = load(0, dtype)
    reductions = tuple(Reduction(k, op, x, start_of(op, dtype)) for k, op in enumerate(REDUCED))
    stores = tuple(Store(1 + k, result(k, dtype)) for k in range(4))
    outer = ("unit" if lanes else "zero",) * 4
    operands = (Operand(dtype, inner), *(Operand(dtype, how) for how in outer))
    return Kernel(name, rank, operands, (Fold(reductions), Once(stores)), row_rank, lanes)


def reduced(a, axes, dtype):
    with np.errstate(all="ignore"):
        values = [
            function(a, axis=axes, keepdims=True, dtype=dtype) if op in ("sum", "prod") else None
            for op, (function, _) in REDUCED.items()
        ]
        # With what they start from, so that empty rows have a value.
        values[2] = np.max(a, axis=axes, keepdims=True, initial=start_of("max", dtype))
        values[3] = np.min(a, axis=axes, keepdims=True, initial=start_of("min", dtype))
    return values


@pytest.mark.parametrize("lanes", [False, True])
@pytest.mark.parametrize("dtype", [*INTEGERS, *WIDE])
def test_reductions_of_every_type(dtype, lanes, rng):
    """Exact cases: integers that wrap, floats whose sums and products are representable."""
    run = Runner(reduction_kernel("reduced", dtype, 2, 1, "unit", lanes))
    for rows, row in ((3, 0), (0, 3), (1, 1), (5, 17), (2, 2 * SUM_BLOCK + 5), (LANES + 3, 20)):
        a = (
            special(dtype, rng, rows * row)[: rows * row]
            if dtype in INTEGERS
            else rng.integers(-8, 8, rows * row)
        )
        a = np.resize(a, (rows, row)).astype(dtype)
        if dtype in FLOATS:
            a[:, 5:] = np.where(rng.integers(0, 2, a[:, 5:].shape), a[:, 5:] * 0 + 1, -1)
        out = [np.empty((rows, 1), dtype) for _ in range(4)]
        if lanes:  # neighbouring rows lie side by side
            a = np.asfortranarray(a)
        run(a, *out, sizes=(rows, row))
        for op, got, want in zip(REDUCED, out, reduced(a, (1,), dtype), strict=True):
            assert_same(got, want, f"{op} {rows, row}", signs=False)


LOOPS = [(1, 1), (2, 2), (3, 1), (3, 2), (3, 3), (4, 3)]


@pytest.mark.parametrize(
    ("rank", "row_rank", "lanes"),
    [(*loops, lanes) for loops in LOOPS for lanes in (False, True) if not lanes or loops[1] < loops[0]],
)
def test_rows_of_several_loops(rank, row_rank, lanes, rng):
    for dtype in ("float32", "int64"):
        run = Runner(any_inner(reduction_kernel("rows", dtype, rank, row_rank, "any", lanes)))
        for _ in range(10):
            sizes = tuple(int(n) for n in rng.choice([0, 1, 2, 3, 9, 20], rank, p=[0.05, *[0.19] * 5]))
            a = any_layout(rng, sizes, dtype, "any")
            a[...] = np.where(a > 30, 2, np.where(a > 15, -1, 1)) if a.size < 2000 else 1
            axes = tuple(range(rank - row_rank, rank))
            want = reduced(a, axes, dtype)
            out = [np.empty(want[0].shape, dtype) for _ in range(4)]
            run(a, *out, sizes=sizes)
            for op, got, value in zip(REDUCED, out, want, strict=True):
                assert_same(got, value, f"{op} {sizes}", signs=False)


def any_inner(kernel):
    operands = tuple(Operand(o.dtype, "any") for o in kernel.operands)
    return Kernel(kernel.name, kernel.rank, operands, kernel.stages, kernel.row_rank, kernel.lanes)


def test_reductions_begin_with_their_start(rng):
    """Also where it is not the operation's neutral element, and the row takes several blocks."""
    x = load(0, "float32")
    starts = {"sum": 1000.0, "prod": 3.0, "max": 7.5, "min": -7.5}
    fold = Fold(tuple(Reduction(k, op, x, start) for k, (op, start) in enumerate(starts.items())))
    once = Once(tuple(Store(1 + k, result(k, "float32")) for k in range(4)))
    for lanes in (False, True):
        operands = (Operand("float32", "any"),) * 5
        run = Runner(Kernel("started", 2, operands, (fold, once), 1, lanes))
        for size in (0, 1, 10, 3 * SUM_BLOCK + 1):
            a = np.where(rng.integers(0, 2, (2, size)), 1, -1).astype(np.float32)
            out = [np.empty((2, 1), np.float32) for _ in range(4)]
            run(a, *out, sizes=(2, size))
            assert_same(out[0], 1000 + a.sum(1, keepdims=True))
            assert_same(out[1], 3 * a.prod(1, keepdims=True))
            assert_same(out[2], np.full((2, 1), 7.5, np.float32))
            assert_same(out[3], np.full((2, 1), -7.5, np.float32))


def sum_runner(dtype="float32", lanes=False):
    fold = Fold((Reduction(0, "sum", load(0, dtype), 0),))
    operands = (Operand(dtype, "unit"), Operand(dtype, "any"))
    return Runner(Kernel("total", 2, operands, (fold, Once((Store(1, result(0, dtype)),))), 1, lanes))


def test_error_of_long_sums_does_not_grow(level):
    """Ten million tenths: with one float32 sum the answer would be 8 % off. Short vectors have longer sums each."""
    bound = {"sse4": 5e-6, "avx2": 2e-6, "avx512": 2e-6}[level]
    side = sum_runner(lanes=True)
    many, sums = np.full((2, 10**6), 0.1, np.float32, order="F"), np.empty((2, 1), np.float32)
    side(many, sums)
    assert np.all(abs(sums - 1e6 * float(np.float32(0.1))) < 0.5)
    run = sum_runner()
    for size in (10**4, 10**5, 10**7):
        a = np.full((1, size), 0.1, np.float32)
        got = np.empty((1, 1), np.float32)
        run(a, got)
        exact = size * float(np.float32(0.1))
        assert abs(got.item() - exact) / exact < bound


def test_error_bound_of_sums(rng):
    """At most a block's: SUM_BLOCK roundings of the sum of magnitudes, however long the row."""
    run, side = sum_runner(), sum_runner(lanes=True)
    size = 300_000
    normal = rng.standard_normal(size).astype(np.float32)
    alternating = np.where(np.arange(size) % 2, -1, 1) * rng.uniform(1e6, 1e7, size)
    cancelling = np.concatenate([normal * 1e8, -normal[::-1] * 1e8, [np.float32(1)]])
    for a in (normal, normal + 3, alternating, cancelling, np.exp(normal * 10)):
        a = a.astype(np.float32)
        exact, magnitude = math.fsum(a.tolist()), math.fsum(np.abs(a).tolist())
        got = np.empty((1, 1), np.float32)
        run(a[None], got)
        assert abs(got.item() - exact) <= magnitude * 2.0**-24 * 300 + abs(exact) * 2.0**-24
        many = np.ascontiguousarray(a[: size // 3 * 3].reshape(-1, 3).T[:, ::3])
        got = np.empty((3, 1), np.float32)
        side(np.asfortranarray(many), got)
        want = [math.fsum(line.tolist()) for line in many]
        bound = [math.fsum(np.abs(line).tolist()) * 2.0**-24 * 300 for line in many]
        assert (np.abs(got[:, 0] - want) <= bound).all()


def test_infinities_and_nan_in_sums():
    run = sum_runner()
    for special_values, want in (
        ([np.inf], np.inf),
        ([-np.inf], -np.inf),
        ([np.inf, -np.inf], np.nan),
        ([np.nan], np.nan),
    ):
        for place in (0, 5, 100, 4999):
            a = np.ones((1, 6000), np.float32)
            a[0, place : place + len(special_values)] = special_values
            got = np.empty((1, 1), np.float32)
            run(a, got)
            assert_same(got, np.full((1, 1), want, np.float32))


@pytest.mark.parametrize("lanes", [False, True])
@pytest.mark.parametrize("dtype", WIDE)
def test_max_and_min_keep_nan(dtype, lanes):
    """Wherever it is in the row, first and last and in the tail of vectors."""
    kernel = reduction_kernel("nan", dtype, 2, 1, "any", lanes)
    run = Runner(any_inner(kernel))
    size = 133
    a = np.tile(np.arange(size, dtype=dtype) - 60, (size + 1, 1))
    a[np.arange(size), np.arange(size)] = np.nan
    a[size, ::7] = -np.inf
    out = [np.empty((size + 1, 1), dtype) for _ in range(4)]
    run(a, *out)
    for got in out[2:]:
        assert np.isnan(got[:size]).all()
    assert [out[2][size, 0], out[3][size, 0]] == [72, -np.inf]


def test_maximum_of_infinities_only():
    kernel = reduction_kernel("infinite", "float32", 2, 1, "unit")
    run = Runner(kernel)
    for value in (np.inf, -np.inf):
        out = [np.empty((2, 1), np.float32) for _ in range(4)]
        run(np.full((2, 40), value, np.float32), *out)
        assert (out[2] == value).all()
        assert (out[3] == value).all()


def test_reductions_of_expressions_and_of_several_types(rng):
    """Sum of squares, a count of a condition and an integer sum in one pass over two operands."""
    x, y = load(0, "float32"), load(1, "int8")
    fold = Fold(
        (
            Reduction(0, "sum", cast(x, "float64") * cast(x, "float64"), 0),
            Reduction(3, "sum", cast(x > 0, "int64"), 0),
            Reduction(7, "sum", cast(y, "int32"), 0),
            Reduction(8, "max", cast(index(1), "int32") * where(x > 1, 1, constant(0, "int32")), -1),
        )
    )
    types = (("float64", 0), ("int64", 3), ("int32", 7), ("int32", 8))
    once = Once(tuple(Store(2 + k, result(number, dtype)) for k, (dtype, number) in enumerate(types)))
    operands = (Operand("float32"), Operand("int8"), *(Operand(dtype, "zero") for dtype, _ in types))
    run = Runner(Kernel("mixed", 2, operands, (fold, once)))
    a = rng.standard_normal((6, 5001)).astype(np.float32)
    b = rng.integers(-128, 128, a.shape, np.int8)
    out = [np.empty((6, 1), dtype) for dtype, _ in types]
    run(a, b, *out)
    np.testing.assert_allclose(out[0], (a.astype(float) ** 2).sum(1, keepdims=True), rtol=1e-13)
    assert_same(out[1], (a > 0).sum(1, keepdims=True))
    assert_same(out[2], b.sum(1, keepdims=True, dtype=np.int32))
    assert_same(out[3], (np.arange(5001) * (a > 1)).max(1, keepdims=True).astype(np.int32))


def rows_kernel(dtype, lanes):
    """x - max, divided by the sum of its absolute values + 1: the stages of a softmax, without exp."""
    x, low = load(0, dtype), "float32" if dtype in HALVES else dtype
    wide = cast(x, low)
    shifted = wide - result(0, low)
    value = shifted / (result(1, low) + 1) + cast(index(1), low)
    stages = (
        Fold((Reduction(0, "max", wide, -math.inf),)),
        Fold((Reduction(1, "sum", abs(shifted), 0),)),
        Each((Store(1, cast(value, dtype)),)),
        Once((Store(2, result(0, low)), Store(3, result(1, low)))),
    )
    operands = (Operand(dtype, "any"), Operand(dtype, "any"), Operand(low, "any"), Operand(low, "any"))
    return Kernel("rows", 2, operands, stages, 1, lanes)


@pytest.mark.parametrize("lanes", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
def test_rows_like_softmax(dtype, lanes, rng):
    run = Runner(rows_kernel(dtype, lanes))
    low = np.dtype("float32" if dtype in HALVES else dtype)
    for rows, row in ((1, 1), (3, 0), (0, 3), (7, 33), (LANES + 1, 5), (2, 5000)):
        a = rng.integers(-9, 9, (rows, row)).astype(NUMPY[dtype])
        out, most, total = np.empty_like(a), np.empty((rows, 1), low), np.empty((rows, 1), low)
        in_place = a.copy()
        run(a, out, most, total, sizes=(rows, row))
        top = a.astype(low).max(1, keepdims=True, initial=-np.inf)
        shifted = a.astype(low) - top
        norm = np.abs(shifted).sum(1, keepdims=True)
        assert_same(most, top)
        assert_same(total, norm)
        want = (shifted / (norm + low.type(1)) + np.arange(row).astype(low)).astype(a.dtype)
        assert_same(out, want, signs=False)
        run(in_place, in_place, most, total, sizes=(rows, row))
        assert_same(in_place, want, signs=False)


def test_once_reads_the_rows_first_element(rng):
    x = load(0, "int32")
    once = Once((Store(1, x * 10 + cast(index(1), "int32") + cast(index(0), "int32")),))
    for lanes in (False, True):
        run = Runner(Kernel("once", 2, (Operand("int32", "any"), Operand("int32", "any")), (once,), 1, lanes))
        a = rng.integers(0, 99, (9, 4), np.int32)
        out = np.empty((9, 1), np.int32)
        run(a, out)
        assert_same(out, a[:, :1] * 10 + np.arange(9, dtype=np.int32)[:, None])


def test_lanes_are_only_another_order(rng):
    """The same kernel with and without, on random layouts of three loops, for pointwise stages too."""
    x, y = load(0, "float64"), load(1, "int32")
    stages = (
        Fold((Reduction(0, "max", x, -math.inf), Reduction(1, "sum", y, 0))),
        Each((Store(2, x - result(0, "float64") + cast(index(0) + index(1) * index(2), "float64")),)),
        Once((Store(3, result(1, "int32") * parameter(0, "int32"), add=True),)),
    )
    operands = (
        Operand("float64", "any"),
        Operand("int32", "any"),
        Operand("float64", "any"),
        Operand("int32", "any"),
    )
    for row_rank in (1, 2):
        both = [Runner(Kernel("either", 3, operands, stages, row_rank, lanes)) for lanes in (False, True)]
        for _ in range(15):
            sizes = tuple(int(n) for n in rng.choice([0, 1, 2, 5, 20], 3, p=[0.04, *[0.24] * 4]))
            a = any_layout(rng, sizes, "float64", "any")
            b = any_layout(rng, sizes, "int32", "any")
            once = (*sizes[: 3 - row_rank], *[1] * row_rank)
            results = []
            for run in both:
                out, added = np.zeros(sizes), np.ones(once, np.int32)
                run(a, b, out, added, parameters=[np.int32(3)], sizes=sizes)
                results.append((out, added))
            assert_same(results[0][0], results[1][0])
            assert_same(results[0][1], results[1][1])


# What a kernel does not accept.

F32 = Operand("float32")
TABLE = Operand("float32", "zero", gathered=1)
X = load(0, "float32")


def one(value, operands=(F32, F32), store=1, **options):
    return lambda: Kernel("k", 1, operands, (Each((Store(store, value),)),), **options)


def folded(op="sum", value=X, then=(), operands=(F32, F32)):
    return lambda: Kernel("k", 1, operands, (Fold((Reduction(0, op, value, 0),)), *then))


def scanned(op="sum", then=()):
    scan = Scan((Reduction(0, op, X, 0),), (Store(1, result(0, "float32")),))
    return lambda: Kernel("k", 1, (F32, F32), (scan, *then))


VALUE_ERRORS = {
    "the name must be an identifier": lambda: Kernel("a b", 1, (), ()),
    "the name must be an identifier, got 'é'": lambda: Kernel("é", 1, (), ()),
    "the name must be an identifier, got ''": lambda: Kernel("", 1, (), ()),
    r"row_rank must be in 1\.\.1, got 2": one(X, row_rank=2),
    r"row_rank must be in 1\.\.1, got 0": one(X, row_rank=0),
    r"row_rank must be in 1\.\.0": lambda: Kernel("k", 0, (), ()),
    "lanes needs a loop before the row": one(X, lanes=True),
    "there is no operand 2": one(load(2, "float32")),
    "there is no operand 3": one(X, store=3),
    "there is no operand -1": one(X, store=-1),
    "operand 0 is float32, not int8": one(load(0, "int8")),
    "operand 0 is float32, not int8 ": one(load_at(0, "int8", index(0)), (TABLE, F32)),
    "load_at needs 1 positions, got 2": one(load_at(0, "float32", index(0), index(0)), (TABLE, F32)),
    "load_at needs 1 positions, got 0": one(load_at(0, "float32"), (TABLE, F32)),
    "load_at needs 0 positions, got 1": one(load_at(0, "float32", index(0))),
    "a store into operand 1 needs 1 positions, got 0": one(X, (F32, TABLE)),
    "gathered must be at least 0, got -1": lambda: Operand("float32", gathered=-1),
    "there is no dimension 1": one(cast(index(1), "float32")),
    "stores float64 into operand 1, float32": one(cast(X, "float64")),
    "result 0 is not there yet": one(result(0, "float32")),
    "result 0 is float32, not float64": folded(
        then=(Each((Store(1, cast(result(0, "float64"), "float32")),)),)
    ),
    "result 0 is not there yet, not float32": folded(value=X + result(0, "float32")),
    "no reduction 'mean'; there are: sum, prod, max, min, argmax, argmin": folded("mean"),
    "there are two results 0": folded(then=(Fold((Reduction(0, "sum", X, 0),)),)),
    "no reduction 'argmax'; there are: sum, prod, max, min$": scanned("argmax"),
    "result 0 is not there yet, not float32  ": scanned(then=(Once((Store(1, result(0, "float32")),)),)),
    "cannot reduce bool": folded(value=X > 0),
    "cannot reduce float16": folded(value=cast(X, "float16")),
    "cannot reduce bfloat16": folded(value=cast(X, "bfloat16")),
    "operand: 'float8' or 'unit' is not known": lambda: Operand("float8"),
    "operand: 'int8' or 'some' is not known": lambda: Operand("int8", "some"),
}


@pytest.mark.parametrize("message", VALUE_ERRORS)
def test_value_errors(message):
    with pytest.raises(ValueError, match=message.strip()):
        VALUE_ERRORS[message]()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_must_be_expanded(name):
    value = call(name, *[X] * (2 if name in ("pow", "atan2") else 1))
    with pytest.raises(NotImplementedError, match=r"weft\.expr\.functions\.expand"):
        print_kernel(one(value)())


@pytest.mark.parametrize("dtype", HALVES)
def test_arithmetic_of_halves_must_be_expanded(dtype):
    x = load(0, dtype)
    values = [call(op, x, x) for op in BINARY if op not in BITWISE]
    values += [call(op, x) for op in UNARY if op not in BITWISE]
    values += [fma(x, x, x), call("exp", x), cast(x < x, dtype)]
    for value in values:
        with pytest.raises(NotImplementedError, match="expand"):
            print_kernel(one(value, (Operand(dtype),) * 2)())
    # Moving them about needs no arithmetic.
    a, b = pairs(np.arange(0, 2**16, 999, dtype=np.uint16).view(NUMPY[dtype]))
    for got in computed(lambda x, y: [where(bitcast(x, "uint16") > bitcast(y, "uint16"), x, y)], a, b):
        want = np.maximum(a.view(np.uint16), b.view(np.uint16)).view(got.dtype)
        assert got.tobytes() == want.tobytes()


# The vectors are there: counted in the assembly.


def packed(kernel):
    """How many instructions work on whole vector registers."""
    return vectors(_toolchain().assembly(print_kernel(kernel)), _core.isa()[1])


needs_vectors = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="counts registers of x86"
)


def transposed():
    x = load(0, "float32")
    fold = Fold((Reduction(0, "sum", x, 0),))
    return Kernel("t", 2, (F32, F32), (fold, Once((Store(1, result(0, "float32")),))), 1, lanes=True)


VECTORS = {
    "add": one(X + 1),
    "in place": one(X * X + X, (F32,), 0),
    "multiply and add": one(fma(X, X, 1)),
    "square root": one(call("sqrt", X)),
    "clip": one(minimum(maximum(X, 0), parameter(0, "float32"))),
    "where": one(where(X > 0, X, X * 0.1)),
    "round": one(call("floor", X)),
    "scalar operand": one(X + load(1, "float32"), (F32, Operand("float32", "zero"), F32), 2),
    "adding": lambda: Kernel("k", 1, (F32, F32), (Each((Store(1, X, add=True),)),)),
    "to bfloat16": one(cast(X, "bfloat16"), (F32, Operand("bfloat16"))),
    "from bfloat16": one(cast(load(0, "bfloat16"), "float32"), (Operand("bfloat16"), F32)),
    "to float16": one(cast(X, "float16"), (F32, Operand("float16"))),
    "from float16": one(cast(load(0, "float16"), "float32"), (Operand("float16"), F32)),
    "to int32": one(cast(X, "int32"), (F32, Operand("int32"))),
    "bytes": one(load(0, "int8") + 1, (Operand("int8"),) * 2),
    "bools": one(~load(0, "bool"), (Operand("bool"),) * 2),
    "many operands": one(sum((load(k, "float32") for k in range(1, 30)), X), (F32,) * 31, 30),
    "comparison": one(X > 0, (F32, Operand("bool"))),
    "positions": one(cast(index(0), "float32") * 2),
    "sum": folded("sum", then=(Once((Store(1, result(0, "float32")),)),)),
    "product": folded("prod", then=(Once((Store(1, result(0, "float32")),)),)),
    "maximum": folded("max", then=(Once((Store(1, result(0, "float32")),)),)),
    "sum of float64": folded(
        "sum", cast(X, "float64"), (Once((Store(1, cast(result(0, "float64"), "float32")),)),)
    ),
    "rows side by side": transposed,
}


@needs_vectors
@pytest.mark.parametrize("case", VECTORS)
def test_loops_become_vectors(case, level):
    if level == "sse4":
        assert packed(VECTORS[case]()) >= 1 + (case != "square root")  # LLVM unrolls less
        return
    least = 2 if case == "to bfloat16" else 4  # LLVM is told how wide, and then does not unroll
    assert packed(VECTORS[case]()) >= least


@needs_vectors
def test_counting_vectors_finds_none_where_there_are_none():
    once = Once((Store(1, X * 2),))
    assert packed(Kernel("k", 1, (F32, F32), (once,))) == 0


def test_long_loops_are_interleaved():
    """LLVM leaves them as they are: each operation of a long chain would wait for the one before it."""

    def turns(length):
        x = load(0, "float32")
        for _ in range(length):
            x = x * x + 1
        text = print_kernel(pointwise("chain", ["float32"], [x]))
        return [line.rpartition("i32 ")[2] for line in text.splitlines() if "interleave.count" in line]

    assert turns(1) == turns(3000) == []
    assert turns(40) == ["8}"]
