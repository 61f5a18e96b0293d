"""Generated products of bytes with what follows them, against NumPy: the same bits at every level.

    python tests/quantization/test_generated.py SECONDS [SEED]

tries cases for so long, and prints how many.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft import _core

DAILY = 40


def byte(rng, shape, dtype, narrow=False):
    low, high = (0, 256) if dtype == "uint8" else (-64, 64) if narrow else (-128, 128)
    if rng.random() < 0.2:  # the greatest sums
        return rng.choice(np.array([low, high - 1]), shape).astype(dtype)
    return rng.integers(low, high, shape).astype(dtype)


def strided(rng, x):
    """The same numbers, in memory in another order, or with gaps."""
    how = rng.integers(4)
    if how > 1 and x.ndim == 4:  # channels last, as programs store images
        return F.permute_dims(wf.tensor(np.ascontiguousarray(np.moveaxis(x, 1, -1))), axes=(0, 3, 1, 2))
    if how == 0:
        order = rng.permutation(x.ndim)
        moved = wf.tensor(np.ascontiguousarray(x.transpose(order)))
        return F.permute_dims(moved, axes=tuple(int(a) for a in np.argsort(order)))
    if how == 1:
        wide = np.repeat(x, 2, axis=-1)
        return wf.tensor(wide)[..., ::2]
    return wf.tensor(x)


def windows(rng, spatial):
    """Sizes and attributes of a convolution."""
    kernel = rng.integers(1, 5, spatial)
    stride, dilation, padding = (
        rng.integers(1, 3, spatial),
        rng.integers(1, 3, spatial),
        rng.integers(0, 3, spatial),
    )
    reach = (kernel - 1) * dilation + 1
    sizes = np.maximum(reach - 2 * padding, 1) + rng.integers(0, 9, spatial)
    attributes = {"stride": stride, "dilation": dilation, "padding": padding}
    return kernel, sizes, {name: tuple(int(n) for n in numbers) for name, numbers in attributes.items()}


def exact_convolution(x, w, groups, stride, dilation, padding):
    """In int64, window by window."""
    spatial = x.ndim - 2
    x = np.pad(x.astype(np.int64), ((0, 0), (0, 0), *((p, p) for p in padding)))
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation, strict=True)]
    seen = np.lib.stride_tricks.sliding_window_view(x, reach, tuple(range(2, 2 + spatial)))
    seen = seen[(slice(None), slice(None), *(slice(None, None, s) for s in stride))]
    seen = seen[(..., *(slice(None, None, d) for d in dilation))]
    n, outer = x.shape[0], seen.shape[2 : 2 + spatial]
    parts = []
    for a, b in zip(np.split(seen, groups, 1), np.split(w.astype(np.int64), groups, 0), strict=True):
        rows = np.moveaxis(a, 1, 1 + spatial).reshape(n, *outer, -1)
        parts.append(np.moveaxis(rows @ b.reshape(b.shape[0], -1).T, -1, 1))
    return np.concatenate(parts, 1)


def product(rng):
    """Operands, the function of weft, the exact sums, the axis of channels."""
    dtype, narrow = str(rng.choice(["uint8", "int8"])), bool(rng.random() < 0.4)
    kind = str(
        rng.choice(["linear", "matmul", "conv1d", "conv2d", "depthwise", "depthwise", "pointwise", "conv3d"])
    )
    if kind in ("linear", "matmul"):
        lead = tuple(int(n) for n in rng.integers(1, 5, rng.integers(0, 3)))
        m, n, k = (
            int(rng.integers(1, 40)),
            int(rng.integers(1, 70)),
            int(rng.choice([1, 3, 17, 64, 200, 700])),
        )
        x, w = byte(rng, (*lead, m, k), dtype), byte(rng, (n, k), "int8", narrow)
        exact = x.astype(np.int64) @ w.astype(np.int64).T
        if kind == "linear":
            return x, w, lambda x, w: F.integer_linear(x, w, narrow=narrow), exact, -1
        return x, w.T.copy(), lambda x, w: F.integer_matmul(x, w, narrow=narrow), exact, -1
    spatial = int(kind[4]) if kind.startswith("conv") else 2
    kernel, sizes, attributes = windows(rng, spatial)
    groups = int(rng.choice([1, 1, 2, 5]))
    each, outputs = int(rng.choice([1, 3, 8, 33, 90])), groups * int(rng.choice([1, 2, 16, 21]))
    if spatial == 3:
        each = min(each, 8)
    if kind == "depthwise":
        groups = outputs = int(rng.choice([1, 5, 8, 16, 24, 35, 64, 80, 112, 200]))
        each = 1
        if rng.random() < 0.6:
            kernel, sizes = np.array([3, 3]), rng.integers(5, 20, 2)
    elif kind == "pointwise":
        kernel, sizes, attributes = np.array([1, 1]), rng.integers(1, 12, 2), {}
        groups, each, outputs = 1, *(int(n) for n in rng.choice([4, 7, 16, 24, 60, 96, 112, 260], 2))
    x = byte(rng, (int(rng.integers(1, 4)), groups * each, *sizes), dtype)
    w = byte(rng, (outputs, each, *kernel), "int8", narrow)
    windows_of = {"stride": (1, 1), "dilation": (1, 1), "padding": (0, 0)} | attributes
    exact = exact_convolution(x, w, groups, **windows_of)
    f = getattr(F, f"integer_conv{spatial}d")
    return x, w, lambda x, w: f(x, w, groups=groups, narrow=narrow, **attributes), exact, 1


def check(seed):
    """One case: the sums, and a program with step, bias, a residual, ReLU, bounds and rounding."""
    rng = np.random.default_rng(seed)
    x, w, f, exact, axis = product(rng)
    inputs = [strided(rng, x), strided(rng, w)]
    np.testing.assert_array_equal(f(*inputs).numpy(), exact, err_msg=f"seed {seed}")
    n = exact.shape[axis]
    along = [1] * exact.ndim
    along[axis] = n
    has_one_step, has_bias = bool(rng.random() < 0.15), bool(rng.random() < 0.85)
    step = np.float32(rng.uniform(1e-4, 1e-3, None if has_one_step else n))
    if rng.random() < 0.1:  # numbers beyond int32
        step = step * np.float32(1e6)
    bias = np.float32(rng.normal(0, 3, n)) if has_bias else None
    out = None if rng.random() < 0.5 else np.float32(rng.uniform(0.02, 0.2))
    dtype = str(rng.choice(["uint8", "int8"]))
    zero = None if rng.random() < 0.5 else np.array(rng.integers(0, 99), dtype)
    residual = rng.choice([None, "uint8", "int8", "float32"])
    ratio = np.float32(rng.uniform(0.5, 2))
    if residual is not None:
        residual = (
            byte(rng, exact.shape, residual)
            if residual != "float32"
            else rng.normal(0, 9, exact.shape).astype(np.float32)
        )
    top = None
    if rng.random() < 0.3:
        top = np.float32(rng.choice([rng.uniform(1, 50), 254.5, 254.6, 255.0]))
    relu = bool(rng.random() < 0.6)
    is_packed = bool(rng.random() < 0.7)  # a weight of the program is packed for its kernels
    order = (
        (0, 2, 3, 1) if exact.ndim == 4 and rng.random() < 0.7 else tuple(range(exact.ndim))
    )  # of the result

    def computed(x, w, step, bias, out, zero, residual, ratio, top):
        y = F.dequantize(f(x, w), step, axis=None if has_one_step else axis % len(along))
        y = y if bias is None else y + F.reshape(bias, shape=tuple(along))
        y = y if residual is None else (y + residual) * ratio
        y = F.relu(y) if relu else y
        y = y if top is None else F.minimum(y, top)
        return F.permute_dims(F.quantize(y, out, zero, dtype=dtype), axes=order)

    arrays = [step, bias, out, zero, residual, ratio, top]
    tensors = [None if a is None else wf.tensor(a) for a in arrays]
    if residual is not None:
        tensors[4] = strided(rng, residual)
    y = exact.astype(np.int32).astype(np.float32) * (step if has_one_step else step.reshape(along))
    y = y if bias is None else y + bias.reshape(along)
    y = y if residual is None else (y + residual.astype(np.float32)) * ratio
    y = np.maximum(y, np.float32(0)) if relu else y
    y = y if top is None else np.minimum(y, top)
    y = np.round(y if out is None else y / out)
    y = y if zero is None else y + zero.astype(np.float32)
    low, high = (0, 255) if dtype == "uint8" else (-128, 127)
    x, w = inputs
    if is_packed:
        traced = wf.trace(lambda x, *rest: computed(x, w, *rest))(x, *tensors)
    else:
        traced = wf.trace(computed)(x, w, *tensors)
    expected = np.clip(y, low, high).astype(dtype).transpose(order)
    np.testing.assert_array_equal(traced.numpy(), expected, err_msg=f"seed {seed}")


def test_a_lower_level_after_a_kernel_was_made():
    """Weights of 8 bits need instructions that the lower level does not use; those of 7 bits have code there."""
    x = np.full((1, 8, 8, 32), 255, "uint8")
    w = np.random.default_rng(0).choice([-128, 127], (24, 32, 1, 1)).astype("int8")
    weight, step = wf.tensor(w), wf.tensor(np.full(24, 1e-5, "float32"))

    @wf.trace
    def f(x):
        sums = F.integer_conv2d(F.permute_dims(x, axes=(0, 3, 1, 2)), weight)
        return F.permute_dims(F.quantize(F.dequantize(sums, step, axis=1), dtype="int8"), axes=(0, 2, 3, 1))

    sums = np.einsum("nhwc,oc->nhwo", x.astype("int64"), w[:, :, 0, 0].astype("int64"))
    expected = np.round(sums.astype("float32") * np.float32(1e-5)).astype("int8")
    np.testing.assert_array_equal(f(wf.tensor(x)).numpy(), expected)
    before = _core.set_kernel_isa("avx2")
    try:
        np.testing.assert_array_equal(f(wf.tensor(x)).numpy(), expected)
    finally:
        _core.set_kernel_isa(before)


@pytest.mark.parametrize("seed", range(DAILY))
def test_products_are_exact(seed):
    check(seed)


@pytest.mark.full
@pytest.mark.parametrize("level", ["", "avx512", "avx2", "sse4"])
def test_products_are_exact_at_every_level(level):
    environment = {**os.environ, "WEFT_ISA": level}
    command = [sys.executable, Path(__file__), "600", "1000"]
    subprocess.run(command, env=environment, check=True, timeout=1200)


def main():
    seconds, seed = float(sys.argv[1]), int((*sys.argv, "1000")[2])
    start, first = time.monotonic(), seed
    while time.monotonic() - start < seconds:
        check(seed)
        seed += 1
    print(f"{seed - first} cases")


if __name__ == "__main__":
    main()
