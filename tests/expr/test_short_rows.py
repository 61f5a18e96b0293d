"""Short rows whose length is constant give what rows side by side give, for every kind of stage."""

import itertools
import math

import numpy as np
import pytest
from tests.ops.support import SEED

from weft.expr.kernel import Each, Fold, Kernel, Once, Operand, Reduction, Scan, Store
from weft.expr.llvm import fits_registers, print_kernel
from weft.expr.scalar import call, cast, load, result

from .support import Runner, assert_same

X, Y = load(0, "float64"), load(1, "int32")
STORED = load(2, "float64")
STAGES = {
    "each": (Each((Store(2, X * 2 - cast(Y, "float64")), Store(3, Y + 1))),),
    "reads what it stores": (
        Each((Store(2, X + 1),)),
        Each((Store(2, STORED * STORED), Store(3, cast(STORED, "int32")))),
        Each((Store(2, STORED - X),)),
    ),
    "added": (
        Each((Store(2, X, add=True), Store(3, Y, add=True))),
        Each((Store(2, STORED * 2, add=True),)),
    ),
    "folds": (
        Fold((Reduction(0, "max", X, -math.inf), Reduction(1, "sum", Y, 3), Reduction(2, "prod", Y, 2))),
        Each((Store(2, X - result(0, "float64")), Store(3, result(1, "int32") * result(2, "int32")))),
    ),
    "places": (
        Fold((Reduction(0, "argmax", X), Reduction(1, "argmin", Y))),
        Each((Store(2, cast(result(0, "int64"), "float64")), Store(3, cast(result(1, "int64"), "int32")))),
    ),
    "scan": (
        Scan(
            (Reduction(0, "min", X, math.inf), Reduction(1, "sum", Y, 1)),
            (Store(2, result(0, "float64")), Store(3, result(1, "int32"), add=True)),
        ),
    ),
    "scan backward": (
        Scan(
            (Reduction(0, "max", X, 0.5), Reduction(1, "prod", Y, 1)),
            (Store(2, result(0, "float64") * X), Store(3, result(1, "int32"))),
            reverse=True,
        ),
    ),
    "once": (
        Fold((Reduction(0, "min", Y, 5),)),
        Each((Store(2, X),)),
        Once((Store(3, result(0, "int32") + cast(STORED, "int32"), add=True),)),
    ),
}
# Elements from row to row and in a row, of each operand; None: given when the code runs.
MOVES = {
    "whole": [("length", 1)] * 4,
    "columns": [(1, None)] * 4,
    "a column and a row": [("length", 1), (1, 0), ("length", 1), ("length", 1)],
    "a row beside it": [(0, 1), ("length", 1), (9, 1), ("length", 1)],
    "apart": [(16, 2), (1, None), (11, 1), ("length", 1)],
}


def array_of(rng, dtype, rows, length, step, along):
    """Random numbers as (2, rows, length), and the same as the kernel takes them."""
    along = rows if along is None else along
    space = np.zeros(2 + 2 * (step * (rows - 1) + along * (length - 1) + 1), dtype)
    space[:] = (
        rng.integers(-3, 4, space.size)
        if dtype != "float64"
        else rng.choice([-1.5, 0.0, 0.5, 2.0, math.nan], space.size, p=[0.24] * 4 + [0.04])
    )
    item = space.itemsize
    outer = (space.size // 2) * item
    return np.lib.stride_tricks.as_strided(space, (2, rows, length), (outer, step * item, along * item))


CASES = list(itertools.product(STAGES, MOVES, range(2, 9)))  # a sixth of them every day, all with --full


@pytest.mark.parametrize(
    ("name", "moves", "length"),
    [pytest.param(*c, marks=[] if (k + SEED) % 6 == 0 else pytest.mark.full) for k, c in enumerate(CASES)],
)
def test_length_is_only_another_order(name, moves, length):
    rng = np.random.default_rng(length)
    steps = [(length if step == "length" else step, along) for step, along in MOVES[moves]]
    dtypes = ("float64", "int32", "float64", "int32")
    inner = [{0: "zero", 1: "unit"}.get(step, "step") for step, _ in steps]
    operands = [
        tuple(
            Operand(d, i, step=step if i == "step" else 0, along=along if is_constant else None)
            for d, i, (step, along) in zip(dtypes, inner, steps, strict=True)
        )
        for is_constant in (False, True)
    ]
    plain = Runner(Kernel("rows", 3, operands[0], STAGES[name], lanes=True))
    short = Runner(Kernel("rows", 3, operands[1], STAGES[name], lanes=True, length=length))
    assert fits_registers(short.kernel)
    assert print_kernel(short.kernel) != print_kernel(plain.kernel)
    for rows in (1, 7, 16, 65):
        seed = rng.integers(1 << 30)
        both = []
        for run in (plain, short):
            again = np.random.default_rng(seed)
            arrays = [array_of(again, d, rows, length, *step) for d, step in zip(dtypes, steps, strict=True)]
            run(*arrays, sizes=(2, rows, length))
            both.append(arrays)
        for found, want in zip(*both, strict=True):
            assert_same(found, want)


def test_what_rows_share_is_computed_once():
    """Before the loop over them, once for each position."""
    x, shared = load(0, "float64"), load(1, "float64")
    operands = (
        Operand("float64", "step", step=3, along=1),
        Operand("float64", "zero", along=1),
        Operand("float64", "step", step=3, along=1),
    )
    text = print_kernel(
        Kernel("scaled", 2, operands, (Each((Store(2, x / call("sqrt", shared)),)),), lanes=True, length=3)
    )
    before, loop = text.split("= phi i64", 1)
    assert (before.count("call double @llvm.sqrt"), loop.count("call double @llvm.sqrt")) == (3, 0)
    assert loop.count("fdiv") == 3


def test_a_kernel_says_what_it_cannot_be():
    with pytest.raises(ValueError, match="a constant length is for lanes"):
        Kernel("rows", 2, (Operand("float32"),), (Each((Store(0, load(0, "float32")),)),), length=3)
