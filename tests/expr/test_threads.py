"""Kernels for threads on the stand-in, against the processor's own code for the same kernels."""

import itertools
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.ops.support import OPERATORS, SEED, cases, some

from weft.executor.aot import _patterns
from weft.executor.planner import loops_of
from weft.expr import llvm_threads
from weft.expr.functions import expand
from weft.expr.kernel import Chain, Each, Fold, Kernel, Once, Operand, Reduction, Scan, Store
from weft.expr.llvm import print_kernel
from weft.expr.llvm_tensor_cores import halves_of
from weft.expr.llvm_threads import Schedule, Threads, schedule_of, width_of
from weft.expr.scalar import (
    cast,
    constant,
    index,
    load,
    load_at,
    parameter,
    product,
    repeated,
    result,
    state,
    where,
)
from weft.expr.targets import compile_threads, ptx_target, standin_target
from weft.expr.threads import print_threads

from .standin import DeviceFault, Trial, gpu, without_barrier

SEEDS = (0, 1, 2)
NUMBERS = ("float32", "float64", "int32", "int64", "uint8", "int8")
x, y = load(0, "float32"), load(1, "float32")


def operands(*dtypes, inner="", **layout):
    words = {"u": "unit", "z": "zero", "a": "any", "c": "cross"}
    letters = inner or "u" * len(dtypes)
    return tuple(Operand(d, words[k], **layout) for d, k in zip(dtypes, letters, strict=True))


def half(dtype):
    value = load(0, dtype)
    return expand(cast(cast(value, "float32") * constant(3.0, "float32"), dtype))


def each(name, dtypes, *values, rank=1, inner="", **layout):
    stores = tuple(Store(len(dtypes) - len(values) + k, value) for k, value in enumerate(values))
    return Kernel(name, rank, operands(*dtypes, inner=inner), (Each(stores),), **layout)


def folded(dtype, op, rank=2, row_rank=1, start=0, value=None, lanes=False):
    value = load(0, dtype) if value is None else value
    reduction = Reduction(0, op, value, start)
    stored = Store(1, result(0, reduction.dtype))
    inner = "ua" if lanes else "uz"
    inner = "uu" if lanes else inner
    kind = operands(dtype, reduction.dtype, inner=inner)
    return Kernel(f"{op}_{dtype}", rank, kind, (Fold((reduction,)), Once((stored,))), row_rank, lanes)


def softmax(rank=2, row_rank=1, lanes=False):
    largest, total = result(0, "float32"), result(1, "float32")
    power = expand(((x - largest) * constant(1.0, "float32")).exp()) if hasattr(x, "exp") else x - largest
    return Kernel(
        "softmax",
        rank,
        operands("float32", "float32"),
        (
            Fold((Reduction(0, "max", x, float("-inf")),)),
            Fold((Reduction(1, "sum", power), Reduction(2, "sum", product(power, power)))),
            Each((Store(1, power * total + result(2, "float32")),)),
        ),
        row_rank,
        lanes,
    )


def scanned(dtype, op, reverse=False, start=0, rank=2, row_rank=1, lanes=False):
    scan = Scan((Reduction(0, op, load(0, dtype), start),), (Store(1, result(0, dtype)),), reverse)
    return Kernel(f"scan_{op}", rank, operands(dtype, dtype), (scan,), row_rank, lanes)


def share_up_to():
    """The sum up to each element, divided by the row's: the total is in shared memory when the scan begins."""
    scan = Scan((Reduction(1, "sum", x / result(0, "float32")),), (Store(1, result(1, "float32")),))
    stages = (Fold((Reduction(0, "sum", x),)), scan)
    return Kernel("share_up_to", 2, operands("float32", "float32"), stages, 1)


def through_memory(lanes=False):
    """The largest element goes through memory, where every thread reads what one has stored."""
    stages = (
        Fold((Reduction(0, "max", x, float("-inf")),)),
        Once((Store(1, result(0, "float32")),)),
        Each((Store(2, x * load(1, "float32")),)),
    )
    kinds = operands("float32", "float32", "float32", inner="uuu" if lanes else "uzu")
    return Kernel("through_memory", 2, kinds, stages, 1, lanes)


POINTWISE = [
    each("twice", ["float32", "float32"], x + x),
    each("three", ["float32"] * 4, x * y + x, x - y),
    each("broadcast", ["float32"] * 3, x * y + parameter(0, "float32"), rank=2, inner="uzu"),
    each("strided", ["float32"] * 3, x * y, rank=3, inner="aua"),
    each("wide", ["float64", "float64"], load(0, "float64") * load(0, "float64")),
    each("bytes", ["bool", "bool"], where(load(0, "bool"), constant(False, "bool"), constant(True, "bool"))),
    each(
        "mixed",
        ["uint8", "float32", "float64"],
        cast(load(0, "uint8"), "float64") + cast(y, "float64"),
        rank=2,
    ),
    each("bfloat16s", ["bfloat16", "bfloat16"], half("bfloat16")),
    each("float16s", ["float16", "float16"], half("float16"), rank=2),
    each("positions", ["int64"], index(0) * constant(1000, "int64") + index(1), rank=2),
    Kernel("added", 2, operands("float32", "float32"), (Each((Store(1, x, True),)),)),
    each("crossed", ["float32", "float32"], x * x, rank=2, inner="cu", cross=0),
    Kernel(
        "gathered",
        2,
        (Operand("float32", "unit", 1), Operand("int64", "zero"), Operand("float32")),
        (Each((Store(2, load_at(0, "float32", load(1, "int64"))),)),),
    ),
]
FOLDS = [
    *(folded(dtype, op, start=1 if op == "prod" else 0) for dtype in NUMBERS for op in ("sum", "prod")),
    *(folded(dtype, op) for dtype in NUMBERS for op in ("argmax", "argmin")),
    folded("float32", "max", start=float("-inf")),
    folded("int32", "min", start=3),
    folded("float32", "sum", start=100.0),
    folded("float32", "sum", value=product(x, x)),
    folded("float64", "sum", rank=4, row_rank=2),
    softmax(),
    softmax(3, 2),
    through_memory(),
]
SCANS = [
    scanned("float32", "sum"),
    scanned("float32", "sum", True, 5.0),
    scanned("int64", "prod", start=2),
    scanned("float64", "max", start=float("-inf")),
    scanned("uint8", "sum", rank=3, row_rank=2),
    share_up_to(),
]
COLUMNS = [
    folded("float32", "sum", lanes=True),
    folded("float64", "prod", start=2, rank=4, row_rank=2, lanes=True),
    folded("int8", "argmax", lanes=True),
    softmax(3, 1, lanes=True),
    scanned("float32", "sum", lanes=True),
    scanned("int32", "sum", True, 7, rank=3, lanes=True),
    through_memory(lanes=True),
]
ROWS = FOLDS + SCANS + COLUMNS


def products(name, dtypes, value, *more, op="sum", start=0, letters="uuzz", rank=3, row_rank=1, last=None):
    """Rows that operands 0 and 1 share, and what is stored of them: operand 2, then what `more` stores."""
    total = result(0, value.dtype)
    reductions = (Reduction(0, op, value, start), *(Reduction(k + 1, op, v) for k, v in enumerate(more)))
    kinds = operands(*dtypes, inner=letters[: len(dtypes)])
    return Kernel(
        name, rank, kinds, (Fold(reductions), Once((Store(2, total if last is None else last),))), row_rank
    )


def in_float32(dtype):
    return [expand(cast(load(k, dtype), "float32")) for k in (0, 1)]


difference = x - y
# (kernel, sizes, for each operand the loops it moves along, pairs of Schedule)
PRODUCTS = [
    (products("product", ["float32"] * 3, product(x, y)), (70, 37, 45), [(0, 2), (1, 2), None], (1, 1, 2)),
    (
        products("transposed", ["float32"] * 3, product(x, y), letters="auz"),
        (64, 64, 16),
        [(0, 2), (1, 2), None],
        (1, 1, 2),
    ),
    (
        products("halves", ["bfloat16", "bfloat16", "float32"], product(*in_float32("bfloat16")), rank=4),
        (3, 17, 70, 23),
        [(0, 1, 3), (0, 2, 3), None],
        (1, 1, 2),
    ),
    (
        products(
            "wide", ["float64"] * 3, product(load(0, "float64"), load(1, "float64")), rank=5, row_rank=2
        ),
        (5, 4, 33, 3, 5),
        [(2, 3, 4), (0, 1, 3, 4), None],
        (2, 1, 1),
    ),
    (
        products(
            "integers",
            ["int8", "uint8", "int32"],
            *[cast(load(0, "int8"), "int32") * cast(load(1, "uint8"), "int32")],
        ),
        (33, 65, 31),
        [(0, 2), (1, 2), None],
        (1, 1, 2),
    ),
    (
        products(
            "distances",
            ["float32"] * 4,
            difference * difference,
            difference,
            start=5.0,
            last=result(0, "float32") * load(3, "float32") + result(1, "float32"),
        ),
        (24, 27, 600),
        [(0, 2), (1, 2), None, (1,)],
        (1, 1, 2),
    ),
    (
        products("largest", ["float32"] * 3, x * y, op="max", start=float("-inf")),
        (20, 130, 40),
        [(0, 2), (1, 2), None],
        (1, 1, 2),
    ),
    (
        products("tensor", ["float16", "float16", "float32"], product(*in_float32("float16")), start=2.0),
        (130, 20, 80),
        [(0, 2), (1, 2), None],
        (1, 1, 2),
    ),
    (
        products(
            "long_tensor", ["float16", "float16", "float32"], product(*in_float32("float16")), start=2.0
        ),
        (18, 20, 530),
        [(0, 2), (1, 2), None],
        (1, 1, 2),
    ),
]


def sizes_of(kernel):
    """Sizes around what a warp, a block and a turn have."""
    last = {1: [(1,), (199,), (2048,)], 2: [(5, 1), (3, 64), (7, 1031)], 3: [(2, 3, 40)], 4: [(2, 3, 4, 16)]}
    if kernel.lanes:
        last = {2: [(1, 1), (1031, 3), (40, 130)], 3: [(2, 70, 9)], 4: [(2, 33, 3, 4)]}
    return last[kernel.rank]


def named(kernels, share):
    """One kernel in `share`, others every day; the rest with --full."""
    return pytest.mark.parametrize(
        "kernel",
        [
            pytest.param(k, id=f"{k.name}-{n}", marks=[] if (n + SEED) % share == 0 else pytest.mark.full)
            for n, k in enumerate(kernels)
        ],
    )


@named(POINTWISE, 4)
def test_pointwise_kernels_have_the_processors_bits(kernel):
    for sizes in sizes_of(kernel):
        trial = Trial(kernel, sizes)
        want = trial.on_processor()
        for schedule, seed in itertools.product(trial.schedules(), SEEDS[:2]):
            trial.assert_same(trial.on_gpu(schedule, seed=seed), want, exact=True)


@named(ROWS, 12)
def test_rows_are_the_processors_within_rounding(kernel):
    for sizes in sizes_of(kernel):
        trial = Trial(kernel, sizes)
        want = trial.on_processor()
        for schedule in trial.schedules():
            results = [trial.on_gpu(schedule, blocks, seed) for blocks, seed in ((1, 0), (2, 1), (5, 2))]
            for got in results:
                trial.assert_same(got, want, exact=False)
                trial.assert_same(got, results[0], exact=True)  # whatever the order of blocks and threads


@pytest.mark.parametrize(
    ("kernel", "sizes", "moves", "pairs"),
    [
        pytest.param(*p, id=p[0].name, marks=[] if (n + SEED) % 4 == 0 else pytest.mark.full)
        for n, p in enumerate(PRODUCTS)
    ],
)
def test_products_are_the_processors_within_rounding(kernel, sizes, moves, pairs):
    trial = Trial(kernel, sizes, 0, moves, pairs)
    want = trial.on_processor()
    for schedule in trial.schedules():
        if schedule.kind not in ("products", "tensor"):
            continue
        results = [trial.on_gpu(schedule, blocks, seed) for blocks, seed in ((1, 0), (3, 1), (50, 2))]
        for got in results:
            trial.assert_same(got, want, exact=False)
            trial.assert_same(got, results[0], exact=True)


CHAIN_SIZES = [(5, 7), (1, 1), (300, 3), (2, 1031), (4, 0), (0, 4)]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("rows", "length"), CHAIN_SIZES)
def test_chains_go_through_rows_in_their_order(rows, length, reverse):
    """Two chains: what the first one stores is read by the second; numbers begin with the row's first element."""
    total, turn = state(0, "float32"), state(1, "int64")
    news = (total * parameter(0, "float32") + x, turn + constant(1, "int64"))
    first = Chain((y, constant(5, "int64")), news, (Store(2, news[0]),), reverse)
    last, way = state(0, "float32"), load(2, "float32")
    second = Chain(
        (constant(0.0, "float32"),), (way,), (Store(3, way - last), Store(4, index(1))), not reverse
    )
    dtypes = ("float32", "float32", "float32", "float32", "int64")
    kernel = Kernel("chained", 2, operands(*dtypes, inner="uzuuu"), (first, second))
    trial = Trial(kernel, (rows, length))
    factor = np.float32(0.5)
    trial.parameters = factor.tobytes() + bytes(4)
    a, starts = trial.arrays[0][: rows * length].reshape(rows, length), trial.arrays[1]
    sums, steps = np.empty((rows, length), "float32"), np.empty((rows, length), "float32")
    order = range(length)[::-1] if reverse else range(length)
    for row in range(rows):
        value, before = starts[row], np.float32(0)
        for k in order:
            value = sums[row, k] = np.float32(value * factor) + a[row, k]
        for k in reversed(order):
            steps[row, k], before = sums[row, k] - before, sums[row, k]
    (schedule, narrow) = trial.schedules()
    assert schedule.kind == "serial"
    for one, blocks, seed in ((schedule, 1, 0), (narrow, 3, 1), (schedule, 2, 2)):
        got = trial.on_gpu(one, blocks, seed)
        np.testing.assert_array_equal(got[2][: rows * length].reshape(rows, length), sums)
        np.testing.assert_array_equal(got[3][: rows * length].reshape(rows, length), steps)
        np.testing.assert_array_equal(got[4][: rows * length], np.tile(np.arange(length), rows))
    with pytest.raises(NotImplementedError, match="chained: stores at computed positions, and chains"):
        print_kernel(kernel)


def test_chains_are_checked():
    with pytest.raises(TypeError, match="chain: news need the types of starts"):
        Chain((x,), (constant(1, "int64"),), ())
    with pytest.raises(ValueError, match="chained: operand 0 is int32, not float32"):
        Kernel("chained", 1, operands("int32", "float32"), (Chain((x,), (x,), (Store(1, x),)),))


def test_values_of_a_loop_share_it():
    n, total = state(0, "int64"), state(1, "int64")
    parts = (load(0, "int64"), constant(0, "int64")), (n * 2, total + n), n * 2 > 100
    stores = tuple(Store(1 + k, repeated(*parts, k)) for k in (0, 1))
    kernel = Kernel("shared_loop", 1, operands("int64", "int64", "int64"), (Each(stores),))
    trial = Trial(kernel, (50,))
    trial.arrays[0][:] = np.arange(1, len(trial.arrays[0]) + 1)
    schedule = schedule_of(kernel, 50)
    alone = Kernel("one_value", 1, kernel.operands, (Each(stores[:1]),))
    assert len({print_threads(k, schedule).text.count(" phi ") for k in (kernel, alone)}) == 1
    got = trial.on_gpu(schedule)
    for first, number, summed in zip(
        *(a[:50].tolist() for a in (trial.arrays[0], got[1], got[2])), strict=True
    ):
        value, so_far = first, 0
        while True:
            value, so_far = value * 2, so_far + value
            if value > 100:
                break
        assert (number, summed) == (value, so_far)


def test_halves_are_for_tensor_cores():
    """What is multiplied has to be one 16-bit float of each side, whatever it is computed from."""
    a, b = in_float32("bfloat16")
    rounded = expand(cast(cast(a * constant(0.5, "float32"), "bfloat16"), "float32"))
    mixed = expand(cast(load(1, "float16"), "float32"))
    types = ["bfloat16", "bfloat16", "float32"]
    for value, fits in [
        (product(a, b), True),
        (a * b, True),
        (product(rounded, b), True),
        (product(a * a, b), False),
    ]:
        assert bool(halves_of(products("p", types, value), 2)) is fits
    assert not halves_of(products("p", ["bfloat16", "float16", "float32"], product(a, mixed)), 2)
    assert not halves_of(products("p", types, product(a, b), op="max"), 2)
    assert not halves_of(PRODUCTS[0][0], 2)
    code = print_threads(products("p", types, product(a, b)), Schedule("tensor", 256, 1, True, (1, 1, 2)))
    assert b"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32" in compile_threads(
        code, ptx_target("sm_80")
    )
    with pytest.raises(ValueError, match="tensor is no schedule"):
        print_threads(PRODUCTS[0][0], Schedule("tensor", 256, 1, True, (1, 1, 2)))


def test_products_that_do_not_fit_into_shared_memory_are_refused():
    values = [cast(x + constant(float(k), "float32"), "float64") * cast(y, "float64") for k in range(12)]
    kernel = products("many", ["float32", "float32", "float64"], *values)
    with pytest.raises(ValueError, match="products is no schedule"):
        print_threads(kernel, Schedule("products", 256, 1, True, (1, 1, 2)))


@pytest.mark.parametrize("kernel", [POINTWISE[2], softmax(), scanned("float32", "sum")], ids=lambda k: k.name)
def test_gated_code_does_nothing_behind_a_failure(kernel):
    trial = Trial(kernel, (7, 45))
    want = trial.on_processor()
    for schedule in trial.schedules():
        code = print_threads(kernel, schedule).gated()
        image = compile_threads(code, standin_target())
        for places in ([-1], [-1, -1, -1], [0], [-1, 7], [3, -1], [-1, -1, 0, -1]):
            arrays = [a.copy() for a in trial.arrays]
            findings = np.array([(place, 5) for place in places], np.int64)
            gpu().run(image, code, 3, [*arrays, findings], trial.words(), seed=len(places))
            trial.assert_same(arrays, want if max(places) < 0 else trial.arrays, exact=max(places) >= 0)
        assert b"bar.sync" in compile_threads(code, ptx_target("sm_80")) or schedule.kind != "blocks"


def barriers_of(trial, schedule):
    return print_threads(trial.kernel, schedule).text.count("call void @weft_barrier(")


PRODUCT = Schedule("products", 256, 1, True, (1, 1, 2))
MUTANTS = [
    (*PRODUCTS[0][:2], PRODUCT, PRODUCTS[0][2]),
    (*PRODUCTS[5][:2], PRODUCT, PRODUCTS[5][2]),
    (folded("float32", "sum"), (9, 300), Schedule("blocks", 128)),
    (folded("int32", "argmax"), (9, 300), Schedule("blocks", 128)),
    (softmax(), (9, 300), Schedule("blocks", 128)),
    (through_memory(), (9, 300), Schedule("blocks", 128)),
    (scanned("float32", "sum"), (9, 300), Schedule("blocks", 128)),
    (share_up_to(), (9, 300), Schedule("blocks", 128)),
    (folded("float32", "sum", lanes=True), (300, 40), Schedule("columns", 128)),
    (softmax(3, 1, lanes=True), (2, 130, 40), Schedule("columns", 128)),
]


LONG = {2: (9, 300), 3: (3, 3, 300), 4: (3, 3, 5, 60)}  # sizes of rows that several warps work on
WIDE = {2: (300, 40), 3: (2, 130, 40), 4: (2, 130, 5, 8)}
ALIKE = ("prod_", "min_", "max_")  # of so many elements they come to the same in every row
OTHERS = [  # everything else that has barriers
    *((k, LONG[k.rank], Schedule("blocks", 128)) for k in FOLDS + SCANS),
    *((k, WIDE[k.rank], Schedule("columns", 128)) for k in COLUMNS if not isinstance(k.stages[0], Scan)),
    *(  # several turns of a tile
        (k, (*sizes[:-1], 3 * sizes[-1]), Schedule(kind, 256, 1, True, pairs), moves)
        for k, sizes, moves, pairs in PRODUCTS
        for kind in ("products", *(["tensor"] if halves_of(k, pairs[2]) else []))
    ),
]
OTHERS += [(softmax(), (9, 300), schedule_of(softmax(), 300))]
SHOWN = {(m[0].name, m[2].kind, m[2].held) for m in MUTANTS}
MUTANTS += [
    m for m in OTHERS if (m[0].name, m[2].kind, m[2].held) not in SHOWN and not m[0].name.startswith(ALIKE)
]


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(
            m,
            id=f"{m[0].name}-{m[2].kind}-{n}",
            marks=[] if n < len(SHOWN) or (n + SEED) % 8 == 0 else pytest.mark.full,
        )
        for n, m in enumerate(MUTANTS)
    ],
)
def test_every_barrier_is_needed(mutant):
    """Without any one of them some order of threads gives something else."""
    kernel, sizes, schedule, *moves = mutant
    trial = Trial(kernel, sizes, 0, *moves)
    want = trial.on_gpu(schedule, blocks=1)
    count = barriers_of(trial, schedule)
    assert count
    for number in range(count):
        for seed in range(1, 20):
            try:
                got = trial.on_gpu(schedule, blocks=1, seed=seed, text=without_barrier(number))
            except DeviceFault:
                break
            if any(a.tobytes() != b.tobytes() for a, b in zip(got, want, strict=True)):
                break
        else:
            pytest.fail(f"{kernel.name}: nothing shows that barrier {number} of {count} is missing")


def test_the_mutants_have_every_barrier_that_is_printed(monkeypatch):
    """Each line that prints barriers does so for one of them; schedules without a mutant have none."""
    printed = set()
    barrier = Threads.barrier

    def noted(self):
        frame = sys._getframe(1)
        while frame.f_code.co_name == "settle":
            frame = frame.f_back
        printed.add((Path(frame.f_code.co_filename).name, frame.f_lineno))
        barrier(self)

    monkeypatch.setattr(Threads, "barrier", noted)
    for kernel, _, schedule, *_ in MUTANTS:
        print_threads(kernel, schedule)
    there = {
        (path.name, n)
        for path in Path(llvm_threads.__file__).parent.glob("*.py")
        if path.name != "llvm_matrices.py"  # each of its barriers is taken away in test_matrix_threads.py
        for n, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"\bf\.(barrier|settle)\(\)", line)
    }
    assert there
    assert there == printed

    monkeypatch.undo()
    with_mutants = {schedule.kind for _, _, schedule, *_ in MUTANTS}
    for kernel in (*POINTWISE, *FOLDS, *SCANS, *COLUMNS):
        for schedule in Trial(
            kernel, WIDE[kernel.rank] if kernel.lanes else LONG.get(kernel.rank, (300,))
        ).schedules():
            if schedule.kind not in with_mutants:
                assert "weft_barrier(" not in print_threads(kernel, schedule).text, (
                    kernel.name,
                    schedule.kind,
                )


def kernels_of(cls):
    """The kernels of an operator's samples, in the patterns that arrays without gaps give."""
    kernels = {}
    for case in cases(cls, ("float32", "bfloat16", "int64")):
        for code in loops_of(case.graph, cls.name, exact=True):
            if code.position_axes:
                patterns = [(code.rank, max(code.row_axes.bit_count(), 1), False, -1, "a" * len(code.dtypes))]
            else:
                patterns = _patterns(code)
            for pattern in patterns:
                kernel = code.kernel(*pattern)
                kernels[print_kernel(kernel)] = kernel
    return list(kernels.values())


def daily_operators(request, count):
    """Operators of today, all with --full."""
    return some(request, f"threads {count}", OPERATORS, count)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the samples' references
def test_kernels_of_operators(request):
    compared = 0
    for cls in daily_operators(request, 5):
        for kernel in some(request, cls.name, kernels_of(cls), 3):
            sizes = [200] if kernel.rank == 1 else [*[3, 2, 2, 2, 1, 1, 1, 1][: kernel.rank - 1], 67]
            trial = Trial(kernel, [70, 6] if kernel.lanes else sizes)
            want = trial.on_processor()
            for schedule in trial.schedules()[1:]:
                exact = schedule.kind == "elements"
                trial.assert_same(trial.on_gpu(schedule, seed=compared), want, exact)
                compared += 1
    assert compared


def test_sums_of_long_rows_do_not_lose_digits():
    trial = Trial(folded("float32", "sum", rank=1), (16000,))
    (schedule, *_) = trial.schedules()
    exact = trial.arrays[0][:16000].astype("float64").sum()
    assert abs(trial.on_gpu(schedule, blocks=1)[1][0] / exact - 1) < 1e-7


def test_widths_are_of_16_bytes():
    assert [width_of(kernel) for kernel in POINTWISE] == [4, 4, 4, 4, 2, 16, 2, 8, 8, 2, 1, 4, 4]
    assert [width_of(kernel) for kernel in FOLDS[:2]] == [1, 1]


@pytest.mark.parametrize("width", [2, 4])
def test_wide_accesses_are_one_instruction(width):
    code = print_threads(POINTWISE[1], Schedule("elements", 128, width, True))
    ptx = compile_threads(code, ptx_target("sm_90")).decode()
    assert f"ld.global.v{width}.b32" in ptx
    assert f"st.global.v{width}.b32" in ptx


def test_narrow_positions_need_no_division_of_64_bits():
    kernel = POINTWISE[3]
    wide, narrow = (
        compile_threads(print_threads(kernel, Schedule("elements", 128, 1, is_narrow)), ptx_target("sm_90"))
        for is_narrow in (False, True)
    )
    assert b"div.u64" in wide
    assert b".u64" not in narrow or b"div.u64" not in narrow


def test_rows_that_several_stages_read_are_read_once():
    kernel = softmax()
    kinds = [
        (s.kind, s.threads, s.held)
        for s in (schedule_of(kernel, n) for n in (30, 256, 257, 1024, 2000, 8192))
    ]
    assert kinds == [
        ("warps", 128, 1),
        ("warps", 128, 8),
        ("blocks", 128, 3),
        ("blocks", 128, 8),
        ("blocks", 256, 8),
        ("blocks", 512, 16),
    ]
    assert not schedule_of(kernel, 8193).held
    assert not schedule_of(through_memory(), 100).held
    for schedule in (schedule_of(kernel, 256), schedule_of(kernel, 1024, True)):
        ptx = compile_threads(print_threads(kernel, schedule), ptx_target("sm_80"))
        assert ptx.count(b"ld.global") == schedule.held == 8


def test_schedules():
    assert schedule_of(FOLDS[0], 1000).kind == "warps"
    assert schedule_of(FOLDS[0], 1025).kind == "blocks"
    assert schedule_of(through_memory(), 10).kind == "blocks"
    assert schedule_of(SCANS[0], 10).kind == "blocks"
    assert schedule_of(COLUMNS[0], 10).kind == "columns"


def test_schedules_that_do_not_fit_are_refused():
    for kernel, schedule in [
        (FOLDS[0], Schedule("elements")),
        (COLUMNS[0], Schedule("blocks")),
        (FOLDS[0], Schedule("columns")),
        (SCANS[0], Schedule("warps")),
        (through_memory(), Schedule("warps")),
        (POINTWISE[0], Schedule("elements", width=8)),
    ]:
        with pytest.raises(ValueError, match=kernel.name):
            print_threads(kernel, schedule)
    for wrong in ({"threads": 100}, {"threads": 2048}, {"width": 3}):
        with pytest.raises(ValueError, match="schedule"):
            Schedule("elements", **wrong)


def test_a_write_behind_an_operand_names_the_kernel():
    trial = Trial(POINTWISE[0], (1 << 15,))
    with pytest.raises(DeviceFault, match=r"kernel twice: thread .* behind an allocation of 65536 bytes"):
        trial.on_gpu(Schedule("elements"), blocks=200)
    trial = Trial(POINTWISE[0], (64,))
    trial.assert_same(trial.on_gpu(Schedule("elements")), trial.on_processor(), exact=True)  # it goes on


def test_the_text_is_the_same_for_all_targets():
    code = print_threads(softmax(), Schedule("blocks"))
    for target in (ptx_target("sm_80"), ptx_target("sm_90"), standin_target()):
        assert target.whole_text(code).startswith(code.text)
    assert compile_threads(code, ptx_target("sm_80")) != compile_threads(code, ptx_target("sm_90"))
