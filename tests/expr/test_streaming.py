"""Large results that go past the cache: in the code of a kernel, and where the native core asks for such code."""

import numpy as np
import pytest

import weft as wf
from weft import _core
from weft.expr.compiler import compile_kernel
from weft.expr.kernel import Each, Fold, Kernel, Once, Operand, Reduction, Store
from weft.expr.llvm import print_kernel
from weft.expr.scalar import load, result

from .support import DTYPES, NUMPY, Runner, assert_same, special


def lined(shape, dtype, pitch=None):
    """An array of ones whose lines begin at multiples of 64 bytes, and the memory around it."""
    size = NUMPY[dtype].itemsize
    pitch = pitch or -(-(shape[-1] * size + 64) // 64) * 64 // size
    lines = int(np.prod(shape[:-1]))
    memory = np.ones(lines * pitch + 256, NUMPY[dtype])
    begin = 64 // size + -memory.ctypes.data % 64 // size
    whole = memory[begin : begin + lines * pitch].reshape(*shape[:-1], pitch)
    return whole[..., : shape[-1]], memory


def untouched(out, memory):
    out[...] = 1
    return (memory == 1).all()


def has_streaming_stores(kernel):
    return "!nontemporal" in print_kernel(kernel)


LENGTHS = (0, 1, 5, 15, 16, 63, 64, 65, 1023, 1024, 1025, 2100)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows(dtype):
    """Copies of every type and length; nothing is written beside them."""
    operands = (Operand(dtype), Operand(dtype))
    kernel = Kernel("copy", 2, operands, (Each((Store(1, load(0, dtype)),)),), streaming=True)
    assert has_streaming_stores(kernel)
    run = Runner(kernel)
    for length in LENGTHS:
        x = np.resize(special(dtype, np.random.default_rng(3)), (3, length))
        out, memory = lined((3, length), dtype)
        run(x, out, sizes=(3, length))
        assert_same(out, x, str(length))
        assert untouched(out, memory)


@pytest.mark.parametrize("lanes", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_stages(dtype, lanes):
    """What a fold found is used; what is read, stored twice or once a row does not go past the cache."""
    x, total = load(0, dtype), result(0, dtype)
    stages = (
        Fold((Reduction(0, "sum", x),)),
        Each((Store(1, x - total), Store(2, x + total))),
        Each((Store(3, load(2, dtype) * 2), Store(4, x))),
        Each((Store(4, x + 1),)),
        Once((Store(5, total),)),
    )
    inner = "unit" if lanes else "zero"
    operands = (*(Operand(dtype),) * 5, Operand(dtype, inner))
    kernel = Kernel("stages", 2, operands, stages, lanes=lanes, streaming=True)
    assert kernel.streaming_operands == {1, 3}
    run = Runner(kernel)
    plain = Runner(Kernel("stages", 2, operands, stages, lanes=lanes))
    rng = np.random.default_rng(4)
    for rows, length in ((3, 2100), (2100, 3), (65, 64)):
        shape = (length, rows) if lanes else (rows, length)  # as it lies
        x = rng.standard_normal(shape).astype(dtype)
        found = []
        for runner in (run, plain):
            outs = [lined(shape, dtype)[0] for _ in range(4)]
            once = np.zeros((rows, 1), dtype)
            views = [x, *outs]
            runner(*(v.T if lanes else v for v in views), once, sizes=(rows, length))
            found.append([*outs, once])
        for a, b in zip(*found, strict=True):
            assert_same(a, b)
        assert np.abs(found[0][0] - (x - x.sum(axis=0 if lanes else 1, keepdims=True))).max() < 1e-3


def test_small_steps_and_tiles_have_nothing_of_it():
    operands = (Operand("float32"), Operand("float32", "any"))
    stages = (Each((Store(1, load(0, "float32")),)),)
    assert not has_streaming_stores(Kernel("spread", 1, operands, stages, streaming=True))
    crossing = Kernel("turned", 2, (Operand("float32", "cross"), Operand("float32")), stages, cross=0)
    assert print_kernel(crossing.replaced(streaming=True)) == print_kernel(crossing)
    assert compile_kernel(crossing.replaced(streaming=True)).address


# The native core.

LARGE = (16 << 20) // 4  # elements of float32 whose results go past the cache


def misses(call):
    before = _core.program_counters()["loop_misses"]
    y = call()
    wf.waitall()
    return y, _core.program_counters()["loop_misses"] - before


def test_only_large_results():
    """Of eager calls and of traces; the code for small ones is another."""

    def f(x, y):
        return x * 3 + y * 5

    small = wf.ones((LARGE // 4,))
    g = wf.trace(f)
    for call in (f, g):
        call(small, small), call(small, small)
        large = wf.arange(LARGE, dtype="float32")
        first, made = misses(lambda call=call, large=large: (call(large, large), call(large, large))[1])
        assert made > 0
        again, made = misses(lambda call=call, large=large: call(large, large))
        assert made == 0
        assert np.array_equal(first.numpy(), large.numpy() * 8)
        assert np.array_equal(first.numpy(), again.numpy())


def test_results_over_operands_and_odd_places():
    """In place, at odd addresses and with gaps: by the code for everything else, with the same values."""
    x = wf.arange(LARGE + 16, dtype="float32")
    expected = x.numpy() + 7
    y = x + 7
    assert np.array_equal(y.numpy(), expected)
    x += 7
    assert np.array_equal(x.numpy(), expected)
    base = wf.zeros((LARGE + 32,))
    base[3 : LARGE + 19] = y * 2
    assert np.array_equal(base.numpy()[3 : LARGE + 19], expected * 2)
    assert (base.numpy()[:3] == 0).all()
    assert (base.numpy()[LARGE + 19 :] == 0).all()
    wide = wf.zeros((1 << 12, 1100))
    wide[:, 5:1029] = wf.reshape(x[:LARGE], (1 << 12, 1024)) + 1
    assert np.array_equal(wide.numpy()[:, 5:1029].ravel(), expected[:LARGE] + 1)
    assert (wide.numpy()[:, :5] == 0).all()
    assert (wide.numpy()[:, 1029:] == 0).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_normalization_of_images(dtype):
    """Stages whose rows lie side by side and are shared by threads."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((4, 56, 100, 64 * 6), dtype=np.float32) + 2
    images = wf.permute_dims(wf.asarray(x).astype(dtype), (0, 3, 1, 2))

    def normalized(x):
        x = x.astype("float32")
        apart = x - x.mean(axis=(0, 2, 3), keepdims=True)
        return (apart / wf.sqrt((apart * apart).mean(axis=(0, 2, 3), keepdims=True) + 0.5)).astype(dtype)

    found = wf.trace(normalized)(images).astype("float32").numpy()
    x = images.astype("float32").numpy()
    apart = x - x.mean(axis=(0, 2, 3), keepdims=True, dtype="float64")
    expected = apart / np.sqrt((apart * apart).mean(axis=(0, 2, 3), keepdims=True) + 0.5)
    assert np.abs(found - expected).max() < (1e-5 if dtype == "float32" else 0.03)


def test_only_what_a_stage_stores_is_streamed_in_it():
    """Streaming another operand's array, which nothing has filled, was right only as long as LLVM left it out."""
    x = load(0, "float32")
    stages = (Each((Store(1, x - 1),)), Each((Store(2, x),)))
    kernel = Kernel("apart", 1, (Operand("float32"),) * 3, stages, streaming=True)
    assert kernel.streaming_operands == {1, 2}
    assert print_kernel(kernel).count(" = alloca ") == 2
