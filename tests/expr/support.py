"""Kernels on NumPy's arrays: running them, arrays of every layout, values that matter, exact comparison."""

import ctypes
import re

import ml_dtypes
import numpy as np

from weft.expr.compiler import compile_kernel
from weft.expr.kernel import Each, Kernel, Operand, Store
from weft.expr.scalar import BITS, COMPLEX, FLOATS, SIGNED, UNSIGNED, load

INTEGERS = SIGNED + UNSIGNED
DTYPES = tuple(BITS)
REAL = tuple(name for name in DTYPES if name not in COMPLEX)
HALVES = ("float16", "bfloat16")
WIDE = ("float32", "float64")
NUMPY = {name: np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name) for name in DTYPES}
SIGNATURE = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)


class Runner:
    """A kernel compiled once, for many runs."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.compiled = compile_kernel(kernel)  # owns the code behind the address
        self.function = SIGNATURE(self.compiled.address)

    def __call__(self, *arrays, parameters=(), sizes=None):
        """arrays: one for each operand, with a dimension for each loop, then the gathered ones.

        sizes: the largest in each loop, if not given.
        """
        kernel = self.kernel
        assert len(arrays) == len(kernel.operands)
        for array, operand in zip(arrays, kernel.operands, strict=True):
            assert array.dtype == NUMPY[operand.dtype], (array.dtype, operand)
            assert array.ndim == kernel.rank + operand.gathered
        rank = kernel.rank
        sizes = np.broadcast_shapes(*(array.shape[:rank] for array in arrays)) if sizes is None else sizes
        views = [stretched(array, sizes) for array in arrays]
        data = np.array([view.__array_interface__["data"][0] for view in views], np.uint64)
        strides = [view.strides[:rank] for view in views] + [view.strides[rank:] for view in views]
        strides = np.array([step for steps in strides for step in steps], np.int64)
        slots = np.zeros((max(1, len(parameters)), 8), np.uint8)
        for slot, value in zip(slots, parameters, strict=False):
            raw = np.frombuffer(np.asarray(value).tobytes(), np.uint8)
            slot[: raw.size] = raw
        extents = np.array(sizes, np.int64)
        self.function(data.ctypes.data, extents.ctypes.data, strides.ctypes.data, slots.ctypes.data)


def stretched(array, sizes):
    """A writable view with stride 0 where the array has one element and the loops more."""
    strides = [
        0 if a == 1 != s else stride for a, s, stride in zip(array.shape, sizes, array.strides, strict=False)
    ]
    strides += array.strides[len(sizes) :]
    return np.lib.stride_tricks.as_strided(array, array.shape, strides)


def pointwise(name, inputs, outputs, **layout):
    """The kernel of one loop that loads from inputs (types) and stores all outputs (expressions)."""
    operands = [Operand(dtype, **layout) for dtype in inputs]
    operands += [Operand(value.dtype, **layout) for value in outputs]
    stores = tuple(Store(len(inputs) + k, value) for k, value in enumerate(outputs))
    return Kernel(name, 1, tuple(operands), (Each(stores),))


def computed(function, *arrays):
    """What a list-valued function of expressions gives for flat arrays, in one kernel."""
    names = [dtype_name(array) for array in arrays]
    values = function(*(load(k, name) for k, name in enumerate(names)))
    outputs = [np.empty(arrays[0].shape, NUMPY[value.dtype]) for value in values]
    Runner(pointwise("computed", names, values))(*arrays, *outputs)
    return outputs


def dtype_name(array):
    return next(name for name, dtype in NUMPY.items() if dtype == array.dtype)


def wrapped(values, dtype):
    """Python's integers as elements of an integer type, modulo its size."""
    mask = (1 << BITS[dtype]) - 1
    return np.array([int(v) & mask for v in values], f"uint{BITS[dtype]}").view(dtype)


def special(dtype, rng, count=60):
    """Elements of a type: its limits, zeros, NaN, infinities, subnormals, ties, and random ones of every size."""
    if dtype in COMPLEX:
        numbers = special(COMPLEX[dtype], rng, count)
        pairs = np.stack([numbers, rng.permutation(numbers)], axis=-1)
        return pairs.view(NUMPY[dtype])[:, 0]
    if dtype == "bool":
        return rng.integers(0, 2, count).astype(bool)
    bits = BITS[dtype]
    if dtype in INTEGERS:
        some = [0, 1, 2, 3, 7, -1, -2, -7, 100]
        some += [
            s * (1 << k) + d
            for k in (7, 8, 11, 15, 16, 24, 31, 32, 53, 63)
            for s in (1, -1)
            for d in (-1, 0, 1)
        ]
        some = [v for v in some if abs(v) < 1 << bits]
        random = [int(v) >> int(rng.integers(0, 64)) for v in rng.integers(0, 2**64, count, np.uint64)]
        return wrapped(some + random, dtype)
    some = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        -2.5,
        1.0,
        -1.0,
        1e30,
        -1e30,
        3.7,
        -3.7,
    ]
    some += [
        s * (2.0**k + d)
        for k in (7, 8, 15, 16, 31, 32, 63, 64)
        for s in (1, -1)
        for d in (-1, -0.5, 0, 0.5, 1)
    ]
    some += [2.0**k for k in (-1074, -1050, -149, -150, -133, -134, -126, -127, -24, -25, -26, -14, -15)]
    some += [1 + 2.0**k for k in (-7, -8, -9, -10, -11, -12, -23, -24)] + [
        65504.0,
        65519.0,
        65520.0,
        65536.0,
        3.4e38,
    ]
    some += [
        1 + 2.0**-11 + 2.0**-40,
        1 + 2.0**-8 + 2.0**-40,
        2.0**-25 + 2.0**-60,
        2.0**31 - 0.25,
        -(2.0**31) - 0.25,
    ]
    random = rng.integers(0, 2**63, count, np.uint64) * np.uint64(2) + rng.integers(0, 2, count, np.uint64)
    with np.errstate(all="ignore"):
        patterns = (random >> np.uint64(64 - bits)).astype(f"uint{bits}").view(NUMPY[dtype])
        return np.concatenate([np.array(some).astype(NUMPY[dtype]), patterns])


def pairs(values):
    """Every value with every other one, as two flat arrays."""
    return np.repeat(values, len(values)), np.tile(values, len(values))


def assert_same(got, want, what="", signs=True):
    """Equal element for element; NaN equals NaN, and zeros have the same sign if signs."""
    assert got.dtype == want.dtype
    assert got.shape == want.shape, what
    if dtype_name(got) in COMPLEX:
        assert_same(got.real, want.real, what, signs)
        return assert_same(got.imag, want.imag, what, signs)
    if dtype_name(got) in FLOATS:
        with np.errstate(all="ignore"):
            got, want = got.astype(np.float64), want.astype(np.float64)
        good = (got == want) | (np.isnan(got) & np.isnan(want))
        if signs:
            good &= (np.signbit(got) == np.signbit(want)) | np.isnan(got)
    else:
        good = got == want
    if not good.all():
        first = tuple(np.argwhere(~good)[0])
        raise AssertionError(
            f"{what}: {(~good).sum()} differ, at {first}: {got[first]!r}, not {want[first]!r}"
        )


def any_layout(rng, shape, dtype, inner):
    """Random contents in a random layout: permuted, padded, backwards, broadcast, off the type's alignment.

    inner: as in Operand; says how the last dimension lies.
    """
    itemsize = NUMPY[dtype].itemsize
    shape = tuple(shape)
    strides, extent = [0] * len(shape), itemsize
    last = len(shape) - 1
    side_by_side = inner in ("unit", "reverse")
    for d in [last, *rng.permutation(last)] if side_by_side else rng.permutation(len(shape)):
        if d == last and side_by_side:
            strides[d] = itemsize
        elif (d == last and inner == "zero") or rng.integers(6) == 0:
            strides[d] = 0
        else:
            strides[d] = extent + int(rng.choice([0, 1, 3, itemsize])) if rng.integers(2) else extent
        if strides[d]:
            extent = abs(strides[d]) * max(shape[d], 1)
    begin = 0
    for d in range(len(shape)):
        if inner == "reverse" if d == last and side_by_side else rng.integers(3) == 0:
            begin += strides[d] * (max(shape[d], 1) - 1)
            strides[d] = -strides[d]
    memory = rng.integers(-100, 100, extent + 16, np.int8)
    view = np.ndarray(shape, NUMPY[dtype], memory.data, begin, strides)
    filled = np.array(rng.integers(0, 50, shape), NUMPY[dtype])
    view[...] = filled
    return view


def plus(number, name="plus"):
    """A small kernel."""
    return pointwise(name, ["float64"], [load(0, "float64") + number])


def check(number, name="plus"):
    """Compile that kernel and see that it adds."""
    out = np.empty(9)
    Runner(plus(number, name))(np.arange(9.0), out)
    assert np.array_equal(out, np.arange(9.0) + number)


def vectors(listing, level):
    """How many instructions of an assembly listing compute with whole vector registers, moves of SSE apart."""
    if level == "sse4":
        packed = re.findall(r"^\s+(?:p\w+|\w+p[sd])\s.*%xmm\d+", listing, re.MULTILINE)
        return sum(not line.split()[0].startswith(("mov", "xorp", "pxor")) for line in packed)
    return len(re.findall(r"^\s+v\w+\s.*%[yz]mm\d+", listing, re.MULTILINE))
