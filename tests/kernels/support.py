"""What the tests of kernels share: arrays of every type and layout, and running a kernel on them."""

import contextlib
import struct

import ml_dtypes
import numpy as np

import weft as wf
from weft import _core

NAMES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
ALL = [*NAMES, *FLOATS]


# What the machine and WEFT_ISA allow, lowest first.
LEVELS = ["sse4", "avx2", "avx512"]
_most = _core.set_kernel_isa("avx512")
_core.set_kernel_isa(_most)
LEVELS = LEVELS[: LEVELS.index(_most) + 1]


@contextlib.contextmanager
def level(name):
    """Native kernels use at most this instruction set level."""
    before = _core.set_kernel_isa(name)
    try:
        yield
    finally:
        _core.set_kernel_isa(before)


def dtype(name):
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def random(shape, name, seed=0, few=False):
    """Numbers of the type; `few`: with many ties; for floats NaNs, zeros of both signs and infinities as well."""
    rng = np.random.default_rng(seed)
    return np.asarray(_random(rng, shape, name, few))


def _random(rng, shape, name, few):
    kind = dtype(name)
    if name == "bool":
        return rng.random(shape) < 0.5
    if name in FLOATS:
        x = rng.integers(-3, 4, shape) / 2 if few else rng.normal(size=shape) * 10
        x = np.where(
            rng.random(shape) < 0.05, rng.choice([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0], shape), x
        )
        return np.asarray(x).astype(kind)
    info = np.iinfo(kind)
    low, high = (max(info.min, -2), 3) if few else (info.min, info.max)
    return rng.integers(low, high, shape, dtype=kind, endpoint=True)


def layouts(x):
    """The same elements in several layouts: as they are, columns first, every second of a larger array, backwards."""
    yield x
    if x.ndim > 1:
        yield np.asfortranarray(x)
    if x.ndim:
        wide = np.zeros([2 * n for n in x.shape], x.dtype)[tuple(slice(None, None, 2) for _ in x.shape)]
        wide[...] = x
        yield wide
        back = np.empty_like(x)[..., ::-1]
        back[...] = x
        yield back


def tensor(x):
    """A tensor on the array's own memory, strides and all."""
    return wf.asarray(x, copy=False) if isinstance(x, np.ndarray) else x


def run(kernel, *operands, parameters=()):
    """Runs a kernel on arrays; the outputs among them are written. Parameters: ints and floats, a slot each."""
    slots = b"".join(struct.pack("<d" if isinstance(p, float) else "<Q", p) for p in parameters)
    _core.run_kernel(kernel, [tensor(x) for x in operands], slots)


def strided_like(shape, kind):
    """An output that is not consecutive, and backwards."""
    if not shape:
        return np.zeros((), kind)
    return np.zeros([2 * n for n in shape], kind)[tuple(slice(None, None, -2) for _ in shape)]
