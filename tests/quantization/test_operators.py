"""Operators of quantization: gradients against the published formulas, and integer kernels bit for bit."""

import os
import subprocess
import sys

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft import _core
from weft.graph.capture import type_of
from weft.graph.graph import graph_of
from weft.graph.passes import optimize
from weft.ops.families.epilogue import Epilogue

RNG = np.random.default_rng(3)


def slopes(f, *x):
    """The gradients of the sum of f times fixed weights, and the weights."""
    y = f(*x)
    dy = np.random.default_rng(5).normal(size=y.shape).astype(np.float32)
    return wf.grad(lambda *x: (f(*x) * wf.tensor(dy)).sum(), argnums=tuple(range(len(x))))(*x), dy


def saturating(x, scale, zero, low, high):
    """x / scale rounded, whether that is in range, and what it is saturated to."""
    q = np.round(x / scale) + zero
    return q, (q >= low) & (q <= high), np.clip(q, low, high)


def test_straight_through():
    x = RNG.normal(0, 20, (6, 5)).astype(np.float32)

    def f(x, s):
        return F.fake_quantize(x, s, wf.tensor(3, dtype="int32"), low=-100, high=90)

    (dx, ds), dy = slopes(f, wf.tensor(x), wf.tensor(0.3))
    _, inside, _ = saturating(x, np.float32(0.3), 3, -100, 90)
    assert 0 < inside.sum() < inside.size
    np.testing.assert_array_equal(dx.numpy(), np.where(inside, dy, 0))
    assert ds.item() == 0


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_learned_step(axis):
    """Esser et al. 2020, equation 3; the zero point as in LSQ+ (Bhalgat et al. 2020, equation 5)."""
    x = RNG.normal(0, 2, (6, 5)).astype(np.float32)
    shape, along = {None: ((), ()), 0: ((6,), (6, 1)), -1: ((5,), (1, 5))}[axis]
    scale = RNG.uniform(0.1, 0.4, shape).astype(np.float32)
    zero = RNG.integers(-2, 3, shape).astype(np.float32)
    rule = {"axis": axis, "low": -8, "high": 7, "estimator": "learned_step", "gradient_factor": 0.25}

    def f(x, s, z):
        return F.fake_quantize(x, s, z, **rule)

    (dx, ds, dz), dy = slopes(f, wf.tensor(x), wf.tensor(scale), wf.tensor(zero))
    s, z = scale.reshape(along), zero.reshape(along)
    _, inside, bound = saturating(x, s, z, -8, 7)
    d = np.where(inside, np.round(x / s) - x / s, bound - z)
    axes = {None: None, 0: 1, -1: 0}[axis]
    np.testing.assert_array_equal(dx.numpy(), np.where(inside, dy, 0))
    np.testing.assert_allclose(ds.numpy(), 0.25 * np.sum(dy * d, axes), rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(
        dz.numpy(), 0.25 * np.sum(np.where(inside, 0, -s * dy), axes), rtol=2e-5, atol=1e-5
    )


def test_trained_threshold():
    """Jain et al. 2020, equations 6 to 8: the step is a power of two, its logarithm has the gradient."""
    x = RNG.normal(0, 2, (40,)).astype(np.float32)

    def f(x, t):
        return F.fake_quantize(x, t, estimator="threshold", low=-8, high=7)

    for threshold in (0.3, 1.0, -0.7):
        (dx, dt), dy = slopes(f, wf.tensor(x), wf.tensor(threshold))
        step = 2.0 ** np.ceil(threshold) / 8
        _, inside, bound = saturating(x, np.float32(step), 0, -8, 7)
        d = np.where(inside, np.round(x / step) - x / step, bound)
        np.testing.assert_array_equal(f(wf.tensor(x), wf.tensor(threshold)).numpy(), bound * np.float32(step))
        np.testing.assert_array_equal(dx.numpy(), np.where(inside, dy, 0))
        np.testing.assert_allclose(dt.item(), np.sum(dy * d) * step * np.log(2), rtol=2e-5, atol=1e-5)


def test_fake_quantize_is_both():
    x = wf.tensor(RNG.normal(0, 3, (7, 4)).astype(np.float32))
    scale = wf.tensor(RNG.uniform(0.01, 0.1, 4).astype(np.float32))
    zero = wf.tensor([1, -3, 0, 7], dtype="int8")
    for dtype in ("int8", "uint8"):
        both = F.dequantize(F.quantize(x, scale, zero, axis=1, dtype=dtype), scale, zero, axis=1)
        np.testing.assert_array_equal(
            F.fake_quantize(x, scale, zero, axis=1, dtype=dtype).numpy(), both.numpy()
        )


def test_the_same_as_torch():
    torch = pytest.importorskip("torch")
    x = RNG.normal(0, 2, (6, 5)).astype(np.float32)
    scale = 2.0 ** RNG.integers(-4, 0, 5).astype(np.float32)  # torch multiplies by 1 / scale
    rule = {"axis": 1, "low": -8, "high": 7}
    (dx, ds), dy = slopes(
        lambda x, s: F.fake_quantize(x, s, estimator="learned_step", **rule), wf.tensor(x), wf.tensor(scale)
    )
    tx, ts = (torch.tensor(v, requires_grad=True) for v in (x, scale))
    y = torch._fake_quantize_learnable_per_channel_affine(tx, ts, torch.zeros(5), 1, -8, 7, 1.0)
    y.backward(torch.tensor(dy))
    np.testing.assert_array_equal(F.fake_quantize(wf.tensor(x), wf.tensor(scale), **rule).numpy(), y.detach())
    np.testing.assert_allclose(dx.numpy(), tx.grad, rtol=1e-6)
    np.testing.assert_allclose(ds.numpy(), ts.grad, rtol=1e-4, atol=1e-5)


# Integer kernels.


def byte(rng, shape, dtype):
    low, high = (0, 256) if dtype == "uint8" else (-128, 128)
    return rng.integers(low, high, shape).astype(dtype)


def test_int8_products_say_that_they_wrap():
    assert "wraps" in F.integer_matmul.__doc__


def cases():
    for dtype in ("uint8", "int8"):
        for shapes in (
            ((5, 33), (7, 33)),
            ((2, 3, 600), (16, 600)),
            ((64, 4096), (40, 4096)),
            ((1, 300), (8, 300)),
        ):
            yield dtype, "linear", shapes, {}
        for shapes, attributes in (
            (((2, 16, 9, 9), (32, 16, 3, 3)), {"padding": 1}),
            (((1, 3, 20, 20), (8, 3, 7, 7)), {"stride": 2, "padding": 3}),
            (((2, 32, 6, 6), (48, 32, 1, 1)), {}),
            (((2, 12, 7, 7), (12, 1, 3, 3)), {"groups": 12, "padding": 1}),
            (((1, 200, 5, 5), (6, 200, 3, 3)), {"dilation": 2, "padding": 2}),
        ):
            yield dtype, "conv2d", shapes, attributes


def requantized(kind, attributes, residual=False):
    """What a converted layer computes: integer product, step, bias, ReLU and the next integers."""

    def f(x, w, step, bias, out, zero, *more):
        y = getattr(F, f"integer_{kind}")(x, w, **attributes)
        channels = (-1,) if kind == "linear" else (-1, 1, 1)
        y = F.dequantize(y, step, axis=-1 if kind == "linear" else 1)
        y = y + F.reshape(bias, shape=channels)
        y = F.relu(y + more[0] if residual else y)
        return F.quantize(y, out, zero, dtype="uint8")

    return f


@pytest.mark.parametrize(("dtype", "kind", "shapes", "attributes"), list(cases()))
@pytest.mark.parametrize("residual", [False, True])
def test_kernels_are_exact(dtype, kind, shapes, attributes, residual):
    """A program, whose steps are the kernel's, against NumPy: the same bits."""
    rng = np.random.default_rng(len(str(shapes)))
    x, w = byte(rng, shapes[0], dtype), byte(rng, shapes[1], "int8")
    n = shapes[1][0]
    step = rng.uniform(1e-4, 1e-3, n).astype(np.float32)
    bias = rng.normal(0, 3, n).astype(np.float32)
    arrays = [x, w, step, bias, np.float32(rng.uniform(0.02, 0.2)), np.array(rng.integers(0, 9), np.uint8)]
    exact = getattr(F, kind)(*(wf.tensor(a.astype(np.float64)) for a in (x, w)), **attributes).numpy()
    if residual:
        arrays.append(rng.normal(0, 3, exact.shape).astype(np.float32))
    inputs = [wf.tensor(a) for a in arrays]
    np.testing.assert_array_equal(getattr(F, f"integer_{kind}")(*inputs[:2], **attributes).numpy(), exact)
    f = requantized(kind, attributes, residual)
    program = wf.trace(f)
    np.testing.assert_array_equal(program(*inputs).numpy(), in_numpy(exact, kind, arrays))
    if _core.onednn_adds_bytes():  # else long sums are taken apart
        assert len(program.programs[0].plan.info.steps) == 1
    graph = optimize(graph_of(f, [type_of(t) for t in inputs]))
    merged = [node.op for node in graph.nodes if isinstance(node.op, Epilogue)]
    assert [len(op.steps) for op in merged] == [4 + residual]


def in_numpy(sums, kind, arrays):
    """Each operation rounded to float32."""
    step, bias, out, zero, *more = arrays[2:]
    along = (-1,) if kind == "linear" else (-1, 1, 1)
    y = sums.astype(np.int32).astype(np.float32) * step.reshape(along) + bias.reshape(along)
    y = np.maximum(y + more[0] if more else y, np.float32(0))
    return np.clip(np.round(y / out) + zero, 0, 255).astype(np.uint8)


USES = """
import weft as wf
import weft.functional as F
u8 = lambda *shape: wf.ones(shape, dtype="uint8")
s8 = lambda *shape: wf.ones(shape, dtype="int8")
for x in (u8, s8):
    F.integer_linear(x(7, 33), s8(5, 33))
    F.integer_linear(x(64, 256), s8(64, 256))
    F.integer_matmul(x(2, 3, 9, 70), s8(2, 3, 70, 9))
    F.integer_conv2d(x(2, 16, 9, 9), s8(32, 16, 3, 3), padding=1)
    F.integer_conv2d(x(1, 3, 20, 20), s8(8, 3, 7, 7), stride=2, padding=3)
    F.integer_conv2d(x(1, 5, 6, 6), s8(7, 5, 1, 1))
    F.integer_conv2d(x(2, 12, 7, 7), s8(12, 1, 3, 3), groups=12, padding=1)
    F.integer_conv2d(x(1, 8, 7, 7), s8(12, 4, 3, 3), groups=2, dilation=2)
    F.integer_conv1d(x(1, 8, 17), s8(6, 8, 3), stride=2)
wf.waitall()
"""


@pytest.mark.parametrize("level", ["", "avx2", "sse4"])
def test_no_reference_implementation(level):
    """oneDNN has compiled code for each of them, at every level."""
    environment = {**os.environ, "ONEDNN_VERBOSE": "profile_exec", "WEFT_ISA": level}
    done = subprocess.run(
        [sys.executable, "-c", USES], env=environment, capture_output=True, text=True, check=True
    )
    lines = [line.split(",") for line in done.stdout.splitlines() if line.startswith("onednn_verbose")]
    used = {(line[3], line[4]) for line in lines if line[1] == "exec"}
    assert {"matmul", "convolution"} <= {kind for kind, _ in used}, used
    assert not [name for _, name in used if name.startswith("ref")]


@pytest.mark.parametrize(
    "sizes", [(1, 64, 9, 32), (3, 96, 5, 16), (4, 64, 17, 8), (7, 72, 10, 24), (8, 24, 3, 4)]
)
@pytest.mark.parametrize("level", ["avx512", "avx2", "sse4"])
def test_few_rows_with_weights_of_4_bits(sizes, level):
    """The native kernel, groups that are no whole vectors included, against float64."""
    rng = np.random.default_rng(0)
    rows, k, n, group = sizes
    q, scale = (
        rng.integers(-8, 8, (n, k)).astype(np.int8),
        rng.uniform(0.1, 1, (n, k // group)).astype(np.float32),
    )
    x, bias = rng.normal(size=(rows, k)).astype(np.float32), rng.normal(size=n).astype(np.float32)
    packed = F.pack_int4(wf.tensor(q), group_size=group)
    before = _core.set_kernel_isa(level)
    try:
        f = wf.trace(lambda *operands: F.quantized_linear(*operands))
        y = f(wf.tensor(x), packed, wf.tensor(scale), wf.tensor(bias)).numpy()
    finally:
        _core.set_kernel_isa(before)
    assert f.programs[0].plan.info.steps == ["native QuantizedLinear(format='integer')"]
    want = x.astype(np.float64) @ (q * np.repeat(scale, group, 1)).astype(np.float64).T + bias
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())
