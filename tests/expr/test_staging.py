"""Elements that are apart go through arrays on the stack where there is much to compute."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft.expr.functions import expand
from weft.expr.kernel import Each, Fold, Kernel, Once, Operand, Reduction, Store
from weft.expr.llvm import print_kernel
from weft.expr.llvm_rows import STAGED_BLOCK
from weft.expr.scalar import COMPLEX, call, constant, load, result, where

from .support import NUMPY, Runner, assert_same, special

LENGTHS = (0, 1, 7, STAGED_BLOCK - 1, STAGED_BLOCK, STAGED_BLOCK + 1, 2 * STAGED_BLOCK + 33)
TYPES = ("bool", "int8", "uint16", "int32", "uint64", "float32", "float64", "complex64", "complex128")


def much(x, y):
    """More operations than are done on elements one by one."""
    if x.dtype == "bool":
        value = x & y
        for _ in range(5):
            value = (value | x) ^ y
        return value
    value = x * y + x
    for _ in range(5):
        value = value * x - y
    return expand(value)


def apart(values, step):
    """An array with these elements every `step` elements of a larger one, which it returns, too."""
    memory = np.full((values.shape[0], abs(step) * values.shape[1] + 5), 77, values.dtype)
    view = memory[:, 2 : 2 + abs(step) * values.shape[1] : abs(step)][:, :: -1 if step < 0 else 1]
    view[...] = values
    return view, memory


@pytest.mark.parametrize("inner", ["any", "unit"])
@pytest.mark.parametrize("dtype", TYPES)
def test_elements(dtype, inner):
    """x, apart, with y into z, apart; nothing is written between them."""
    x, y = load(0, dtype), load(1, dtype)
    operands = (Operand(dtype, "any"), Operand(dtype, inner), Operand(dtype, "any"))
    kernel = Kernel("much", 2, operands, (Each((Store(2, much(x, y)),)),))
    assert f"[{STAGED_BLOCK * (2 if dtype in COMPLEX else 1)} x" in print_kernel(kernel)
    run = Runner(kernel)
    plain = Runner(Kernel("much", 2, (Operand(dtype, "unit"),) * 3, (Each((Store(2, much(x, y)),)),)))
    rng = np.random.default_rng(5)
    values = special(dtype, rng, 300)
    for length in LENGTHS:
        a, b = rng.choice(values, (2, 3, length))
        wanted = np.empty_like(a)
        plain(a, b, wanted, sizes=a.shape)
        for step in (2, -3):
            (from_a, _), (to, memory) = apart(a, step), apart(np.zeros_like(a), 3)
            run(from_a, apart(b, -2)[0] if inner == "any" else b, to, sizes=a.shape)
            assert_same(to, wanted)
            to[...] = NUMPY[dtype].type(77)
            assert (memory == NUMPY[dtype].type(77)).all()


def test_in_place_and_added():
    """An operand that is read and written at the same positions, and one that is added to."""
    x, y = load(0, "float32"), load(1, "float32")
    operands = (Operand("float32", "any"),) * 2
    stores = (Store(0, much(x, y)), Store(1, much(y, x), True))
    run = Runner(Kernel("both", 2, operands, (Each(stores),)))
    rng = np.random.default_rng(2)
    for length in LENGTHS:
        a, b = rng.random((2, 2, length), np.float32)
        (to_a, _), (to_b, _) = apart(a, 2), apart(b, 5)
        run(to_a, to_b, sizes=a.shape)
        first, second = a * b + a, b * a + b
        for _ in range(5):
            first, second = first * a - b, second * b - a
        np.testing.assert_allclose(to_a, first, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(to_b, b + second, rtol=1e-5, atol=1e-5)


def test_rows_that_are_folded():
    """Sums and places of extremes, and what follows from them."""
    x = load(0, "float64")
    value = much(x, constant(0.5, "float64"))
    stages = (
        Fold((Reduction(0, "sum", value), Reduction(1, "argmax", value))),
        Each((Store(1, where(value > result(0, "float64"), value, expand(call("exp", x)))),)),
        Once((Store(2, result(1, "int64")),)),
    )
    operands = (Operand("float64", "any"), Operand("float64", "any"), Operand("int64", "any"))
    run = Runner(Kernel("rows", 2, operands, stages, row_rank=1))
    rng = np.random.default_rng(8)
    for length in LENGTHS[1:]:
        a = rng.random((4, length))
        (from_a, _), (to, memory), place = (
            apart(a, -2),
            apart(np.zeros_like(a), 2),
            np.empty((4, 1), np.int64),
        )
        run(from_a, to, place, sizes=a.shape)
        v = a * 0.5 + a
        for _ in range(5):
            v = v * a - 0.5
        np.testing.assert_allclose(to, np.where(v > v.sum(1, keepdims=True), v, np.exp(a)), rtol=1e-12)
        assert (place[:, 0] == v.argmax(1)).all()
        to[...] = 77
        assert (memory == 77).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_functions_of_every_second_element_are_those_of_neighbours(dtype):
    x = wf.tensor(np.random.default_rng(0).normal(size=(5, 1300))).astype(dtype)
    near = wf.tensor(x.numpy()[:, ::2].copy())
    for function in (F.exp, F.tanh, F.erf, lambda v: F.pow(abs(v), 0.7), lambda v: v / (v * v + 1)):
        assert_same(function(x[:, ::2]).numpy(), function(near).numpy())
    y = wf.zeros(x.shape, dtype=dtype)
    y[:, ::2] = F.sigmoid(x[:, ::2])
    assert_same(y.numpy()[:, ::2], F.sigmoid(near).numpy())
    assert not y.numpy()[:, 1::2].any()
