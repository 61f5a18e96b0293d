"""Kernels of oneDNN against NumPy in float64: every kind, in many shapes, layouts and types; and their cache."""

import os
import subprocess
import sys
import zlib
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from weft import _core
from weft.base.errors import ShapeError

from . import reference
from .support import Array, buffer, channels_last, empty, near, random, run, strides_of, values

DTYPES = ["float32", "bfloat16"]


@pytest.fixture
def rng(request):
    return np.random.default_rng(zlib.crc32(request.node.name.encode()))


# --- matmul -----------------------------------------------------------------------------------------------

MATRICES = {
    "plain": ((6, 5), (5, 7), {}),
    "wide": ((64, 96), (96, 80), {}),
    "odd": ((33, 17), (17, 65), {}),
    "a transposed": ((64, 96), (96, 80), {"a": (1, 64)}),
    "b transposed": ((64, 96), (96, 80), {"b": (1, 96)}),
    "both transposed": ((64, 96), (96, 80), {"a": (1, 64), "b": (1, 96)}),
    "c transposed": ((64, 96), (96, 80), {"c": (1, 64)}),
    "all transposed": ((64, 96), (96, 80), {"a": (1, 64), "b": (1, 96), "c": (1, 64)}),
    "part of wider rows": ((64, 96), (96, 80), {"a": (100, 1), "b": (90, 1), "c": (81, 1)}),
    "every other element": ((32, 48), (48, 40), {"a": (96, 2), "b": (80, 2), "c": (80, 2)}),
    "row": ((1, 300), (300, 80), {}),
    "column": ((64, 96), (96, 1), {}),
    "outer": ((64, 1), (1, 80), {}),
    "one": ((1, 1), (1, 1), {}),
    "batch": ((5, 16, 24), (5, 24, 8), {}),
    "batch of a only": ((5, 16, 24), (24, 8), {}),
    "batch of b only": ((16, 24), (5, 24, 8), {}),
    "two leading": ((2, 3, 16, 24), (2, 3, 24, 8), {}),
    "broadcast both ways": ((2, 1, 16, 24), (3, 24, 8), {}),
    "zero strides": ((4, 16, 24), (4, 24, 8), {"b": (0, 8, 1)}),
    "leading swapped": ((5, 16, 24), (1, 24, 8), {"a": (24, 120, 1)}),
    "attention": ((2, 3, 16, 24), (2, 3, 24, 16), {"a": (1152, 24, 72, 1), "b": (1152, 24, 1, 72)}),
    "attention back": ((2, 3, 16, 16), (2, 3, 16, 24), {"b": (1152, 24, 72, 1), "c": (1152, 24, 72, 1)}),
    "three leading": ((2, 3, 2, 8, 9), (2, 3, 2, 9, 5), {}),
    "c with gaps between": ((3, 8, 9), (9, 5), {"c": (50, 5, 1)}),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("extra", ["", "bias", "accumulate", "bias accumulate"])
@pytest.mark.parametrize("case", MATRICES)
def test_matmul(rng, case, extra, dtype):
    a_shape, b_shape, strides = MATRICES[case]
    c_shape = (*np.broadcast_shapes(a_shape[:-2], b_shape[:-2]), a_shape[-2], b_shape[-1])
    b_strides = strides.get("b")
    b_values = values(rng, b_shape, dtype)
    if b_strides and b_strides[0] == 0:
        b_values[:] = b_values[0]
    options = {}
    a, b = random(rng, a_shape, dtype, strides.get("a")), Array(b_values, dtype, b_strides)
    c = random(rng, c_shape, dtype, strides.get("c"))
    wanted, operands = a.numpy() @ b.numpy(), [a, b]
    if "bias" in extra:
        bias = random(rng, c_shape[-1:])
        wanted, options["bias"] = wanted + bias.numpy(), bias.geometry
        operands.append(bias)
    if "accumulate" in extra:
        wanted, options["accumulate"] = wanted + c.numpy(), True
    kernel = _core.onednn_matmul(a.geometry, b.geometry, c.geometry, **options)
    run(kernel, *operands, c)
    near(c, wanted, dtype)
    assert not kernel.is_reference


@pytest.mark.parametrize("b_dtype", ["int8", "uint8"])
@pytest.mark.parametrize(
    ("a_dtype", "c_dtype"), [*product(["int8", "uint8"], ["int32", "float32", "bfloat16"])]
)
def test_matmul_of_integers(rng, a_dtype, b_dtype, c_dtype):
    a, b, c = random(rng, (32, 48), a_dtype), random(rng, (48, 40), b_dtype), empty((32, 40), c_dtype)
    if b_dtype == "uint8" and adds_bytes():  # without VNNI, in float32
        with pytest.raises(NotImplementedError, match="no implementation for"):
            _core.onednn_matmul(a.geometry, b.geometry, c.geometry)
        return
    kernel = _core.onednn_matmul(a.geometry, b.geometry, c.geometry)
    run(kernel, a, b, c)
    near(c, a.numpy() @ b.numpy(), c_dtype)


def adds_bytes():
    """Whether oneDNN has instructions that add products of bytes in 32 bits."""
    _, used, capped = _core.isa()
    flags = Path("/proc/cpuinfo").read_text().split()
    return not capped and ("avx512_vnni" in flags if used == "avx512" else "avx_vnni" in flags)


@pytest.mark.parametrize("k", [64, 258])
@pytest.mark.parametrize(("a_dtype", "b_dtype"), [("int8", "int8"), ("uint8", "int8"), ("int8", "uint8")])
def test_the_largest_products_of_bytes(a_dtype, b_dtype, k):
    """AVX2 adds pairs of them in 16 bits, which overflows; a level without VNNI must not."""
    largest = {"int8": -128, "uint8": 255}
    a, b = (
        Array(np.full((5, k), largest[a_dtype]), a_dtype),
        Array(np.full((k, 16), largest[b_dtype]), b_dtype),
    )
    c = empty((5, 16), "int32")
    if b_dtype == "uint8" and adds_bytes():
        with pytest.raises(NotImplementedError):
            _core.onednn_matmul(a.geometry, b.geometry, c.geometry)
        return
    run(_core.onednn_matmul(a.geometry, b.geometry, c.geometry), a, b, c)
    near(c, a.numpy() @ b.numpy(), "int32")


def test_long_sums_of_bytes_are_exact_or_refused():
    """float32 has all digits of 1024 such products, but not of 1025."""
    for k in (1024, 1025):
        a, b = Array(np.full((1, k), -128), "int8"), Array(np.full((k, 1), -128), "int8")
        c = empty((1, 1), "int32")
        if k > 1024 and not adds_bytes():
            with pytest.raises(NotImplementedError, match="sums of 1025 products of bytes"):
                _core.onednn_matmul(a.geometry, b.geometry, c.geometry)
            continue
        run(_core.onednn_matmul(a.geometry, b.geometry, c.geometry), a, b, c)
        near(c, a.numpy() @ b.numpy(), "int32")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("accumulate", [False, True])
def test_products_of_half_types_at_every_level(rng, dtype, accumulate):
    """Where oneDNN has no code for a half type, the kernel converts: packed weights, bias, post-ops and sums, too."""
    x, w, bias = (random(rng, shape, dtype) for shape in ((33, 48), (48, 40), (40,)))
    y, other = random(rng, (33, 40), dtype), random(rng, (33, 40), dtype)
    kernel = _core.onednn_matmul(
        x.geometry, (dtype, (48, 40), "any"), y.geometry, bias=bias.geometry,
        post_ops=["relu", ("add", other.geometry)], accumulate=accumulate,
    )  # fmt: skip
    layout = kernel.layout(1)
    packed = buffer(layout)
    run(_core.onednn_reorder(w.geometry, layout), w, packed)
    wanted = np.maximum(x.numpy() @ w.numpy() + bias.numpy(), 0) + other.numpy()
    wanted = wanted + y.numpy() if accumulate else wanted
    before = _core.onednn_counters()["bytes_converted"]
    run(kernel, x, packed, bias, other, y)
    near(y, wanted, dtype)
    assert (_core.onednn_counters()["bytes_converted"] > before) == kernel.is_wide
    again = _core.onednn_matmul(x.geometry, layout, y.geometry, bias=bias.geometry)
    assert again.layout(1) == layout
    assert again.is_wide == kernel.is_wide


def test_matmul_of_bfloat16_into_float32(rng):
    a, b, c = random(rng, (32, 48), "bfloat16"), random(rng, (48, 40), "bfloat16"), empty((32, 40))
    run(_core.onednn_matmul(a.geometry, b.geometry, c.geometry), a, b, c)
    near(c, a.numpy() @ b.numpy())


EXAMPLES = [
    "relu",
    ("relu", 0.1),
    "gelu_tanh",
    "gelu_erf",
    "sigmoid",
    "tanh",
    "swish",
    ("swish", 1.5),
    "hardswish",
    ("clip", -0.5, 0.75),
    ("linear", 2.0, -1.0),
    ("linear", 0.5),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", EXAMPLES, ids=str)
def test_post_ops(rng, op, dtype):
    a, b = random(rng, (17, 24), dtype, scale=0.4), random(rng, (24, 33), dtype, scale=0.4)
    c = empty((17, 33), dtype)
    name, *numbers = (op,) if isinstance(op, str) else op
    run(_core.onednn_matmul(a.geometry, b.geometry, c.geometry, post_ops=[op]), a, b, c)
    near(c, reference.POST_OPS[name](a.numpy() @ b.numpy(), *numbers), dtype)


BINARY = {
    "full": ((3, 16, 20), None),
    "full, transposed": ((3, 16, 20), (320, 1, 16)),
    "column vector": ((16, 1), None),
    "row vector": ((20,), None),
    "number": ((1,), None),
    "zero strides": ((3, 16, 20), (0, 0, 1)),
}


@pytest.mark.parametrize("c_strides", [None, (320, 1, 16), (500, 25, 1)])
@pytest.mark.parametrize("kind", ["add", "mul"])
@pytest.mark.parametrize("case", BINARY)
@pytest.mark.parametrize("b_shape", [(24, 20), (3, 24, 20)])
def test_binary_post_ops(rng, case, kind, b_shape, c_strides):
    shape, strides = BINARY[case]
    a, b, c = random(rng, (3, 16, 24)), random(rng, b_shape), random(rng, (3, 16, 20), strides=c_strides)
    x_values = values(rng, shape)
    if case == "zero strides":
        x_values[:] = x_values[0, 0]
    x = Array(x_values, "float32", strides)
    y = random(rng, (20,))
    old, ops = c.numpy(), [(kind, x.geometry), "tanh", ("mul", y.geometry)]
    options = {"post_ops": ops, "accumulate": True}
    kernel = _core.onednn_matmul(a.geometry, b.geometry, c.geometry, **options)
    run(kernel, a, b, x, y, c)
    product_ = a.numpy() @ b.numpy()
    joined = product_ + x.numpy() if kind == "add" else product_ * x.numpy()
    near(c, np.tanh(joined) * y.numpy() + old)


@pytest.mark.parametrize("strides", [(2048, 32, 1), (2048, 64, 1), (2048, 1, 64)])
def test_batches_of_slices_have_the_code_of_batches(rng, strides):
    """The step from matrix to matrix is not rows times columns: dense copies, where oneDNN has code for these."""
    a, b, c = random(rng, (8, 32, 32), strides=strides), random(rng, (8, 32, 32)), empty((8, 32, 32))
    sliced, whole = (_core.onednn_matmul(x.geometry, b.geometry, c.geometry) for x in (a, b))
    assert sliced.implementation == whole.implementation
    run(sliced, a, b, c)
    near(c, a.numpy() @ b.numpy())


REFUSED = {  # operands of post-ops that oneDNN has only reference code for: of a product, of a convolution
    "for each matrix": (3, 1, 1),
    "one matrix": (16, 20),
    "width": (26,),
    "one image": (32, 26, 26),
    "for each image": (8, 1, 1, 1),
    "pixels": (26, 26),
}


@pytest.mark.parametrize("kind", ["add", "mul"])
@pytest.mark.parametrize("case", REFUSED)
def test_operands_of_post_ops_that_are_refused(case, kind):
    """They take 50 to 3000 times as long as the kernel without them."""
    f = lambda *shape: ("float32", shape, None)  # noqa: E731
    make, operands, options = _core.onednn_matmul, [f(3, 16, 24), f(3, 24, 20), f(3, 16, 20)], {}
    if "matrix" not in case:
        make, operands = _core.onednn_convolution, [f(8, 16, 28, 28), f(32, 16, 3, 3), f(8, 32, 26, 26)]
        options = {"stride": (1, 1), "padding": [(0, 0)] * 2, "dilation": (1, 1)}
    with pytest.raises(NotImplementedError, match=rf"slow code for a result .* post-ops relu, {kind} "):
        make(*operands, post_ops=["relu", (kind, f(*REFUSED[case]))], **options)


@pytest.mark.parametrize("c_strides", [None, (1, 16), (40, 2)])
def test_a_sum_among_post_ops(rng, c_strides):
    a, b, c = random(rng, (16, 24)), random(rng, (24, 20)), random(rng, (16, 20), strides=c_strides)
    old = c.numpy()
    run(_core.onednn_matmul(a.geometry, b.geometry, c.geometry, post_ops=[("sum", 0.5), "relu"]), a, b, c)
    near(c, np.maximum(a.numpy() @ b.numpy() + 0.5 * old, 0))


PIECES = {  # shapes and strides of a, b, c; what else there is
    "rows": ((67, 250), (250, 190), {}),
    "columns": ((20, 512), (512, 501), {}),
    "a transposed": ((96, 256), (256, 200), {"a": (1, 96)}),
    "b transposed": ((96, 256), (256, 200), {"b": (1, 256)}),
    "c transposed": ((20, 512), (512, 501), {"c": (1, 20)}),
    "c staged": ((128, 256), (256, 128), {"c": (256, 2)}),
    "batch": ((5, 64, 64), (5, 64, 64), {}),
    "batch of a only": ((3, 64, 128), (128, 80), {}),
    "batch of b only": ((64, 128), (3, 128, 80), {}),
}


@pytest.fixture
def team():
    """Two threads, wherever there are as many."""
    if (os.cpu_count() or 1) < 2 or os.environ.get("OMP_NUM_THREADS") == "1":
        pytest.skip("one thread computes everything")
    before = _core.set_team_size(2)
    yield
    _core.set_team_size(before)


@pytest.mark.usefixtures("team")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("extra", ["", "bias accumulate", "add row", "mul full"])
@pytest.mark.parametrize("case", PIECES)
def test_pieces_of_a_product(rng, case, dtype, extra):
    a_shape, b_shape, strides = PIECES[case]
    shape = (*np.broadcast_shapes(a_shape[:-2], b_shape[:-2]), a_shape[-2], b_shape[-1])
    a, b = (random(rng, s, dtype, strides.get(k), 0.1) for k, s in (("a", a_shape), ("b", b_shape)))
    c = random(rng, shape, dtype, strides.get("c"))
    expected, operands, options = a.numpy() @ b.numpy(), [a, b], {}
    if "bias" in extra:
        operands.append(random(rng, shape[-1:], dtype))
        options["bias"] = operands[-1].geometry
        expected = expected + operands[-1].numpy()
    for kind, part in (("add", (1, shape[-1])), ("mul", shape)):
        if kind in extra:
            operands.append(random(rng, part, dtype))
            options["post_ops"] = ["tanh", (kind, operands[-1].geometry)]
            x = operands[-1].numpy()
            expected = np.tanh(expected) + x if kind == "add" else np.tanh(expected) * x
    if "accumulate" in extra:
        options["accumulate"] = True
        expected = expected + c.numpy()
    kernel = _core.onednn_matmul(a.geometry, b.geometry, c.geometry, **options)
    assert kernel.pieces == 2 or dtype == "bfloat16"  # which is faster, and may be done by one thread
    run(kernel, *operands, c)
    near(c, expected, dtype)


@pytest.mark.usefixtures("team")
def test_how_wide_a_product_is():
    f = lambda *shape: ("float32", shape, None)  # noqa: E731
    pieces = [_core.onednn_matmul(f(n, n), f(n, n), f(n, n)).pieces for n in (16, 300, 1500)]
    assert pieces == [1, 2, 0]
    _core.set_team_size(1)
    assert _core.onednn_matmul(f(300, 300), f(300, 300), f(300, 300)).pieces == 1


@pytest.mark.usefixtures("team")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("images", [8, 5])
def test_pieces_of_images(rng, images, dtype):
    shapes = (images, 16, 28, 28), (64, 16, 3, 3), (images, 64, 28, 28)
    options = {"stride": (1, 1), "padding": [(1, 1)] * 2, "dilation": (1, 1)}
    x, w, y = (random(rng, s, dtype, channels_last(s), 0.3) for s in shapes)
    bias, row = random(rng, (64,)), random(rng, (1, 64, 1, 1), dtype)
    other, old = random(rng, shapes[2], dtype), y.numpy()
    kernel = _core.onednn_convolution(
        x.geometry,
        w.geometry,
        y.geometry,
        bias=bias.geometry,
        post_ops=[("add", other.geometry), "relu", ("mul", row.geometry)],
        accumulate=True,
        **options,
    )
    assert kernel.pieces == 2
    run(kernel, x, w, bias, other, row, y)
    one = {"stride": (1, 1), "padding": [(1, 1)] * 2, "dilation": (1, 1), "groups": 1}
    wanted = reference.convolution(x.numpy(), w.numpy(), **one) + bias.numpy()[:, None, None] + other.numpy()
    near(y, np.maximum(wanted, 0) * row.numpy() + old, dtype, factor=2)

    dy, dx = random(rng, shapes[2], dtype, scale=0.3), random(rng, shapes[0], dtype)
    kernel = _core.onednn_convolution_backward_data(dy.geometry, w.geometry, dx.geometry, **options)
    assert kernel.pieces == 2
    run(kernel, dy, w, dx)
    near(dx, reference.convolution_gradients(x.numpy(), w.numpy(), dy.numpy(), **one)[0], dtype, factor=4)


@pytest.mark.usefixtures("team")
def test_how_wide_convolutions_are():
    def pieces(images, size, weights=None):
        x, y = (
            ("float32", (images, 16, size, size), None),
            ("float32", (images, 32, size - 2, size - 2), None),
        )
        w = ("float32", (32, 16, 3, 3), weights)
        options = {"stride": (1, 1), "padding": [(0, 0)] * 2, "dilation": (1, 1)}
        return _core.onednn_convolution(x, w, y, **options).pieces

    assert [pieces(1, 6), pieces(8, 14), pieces(9, 14), pieces(64, 56)] == [1, 2, 2, 0]
    assert pieces(1, 56) == 0  # one image is not cut
    assert [pieces(8, 14, "any"), pieces(3, 28, "any")] == [2, 0]  # pieces may not differ in their layouts


def test_matmul_with_a_bias_in_bfloat16(rng):
    a, b, c = (random(rng, s, "bfloat16") for s in [(32, 48), (48, 40), (32, 40)])
    bias = random(rng, (1, 40), "bfloat16")
    run(_core.onednn_matmul(a.geometry, b.geometry, c.geometry, bias=bias.geometry), a, b, bias, c)
    near(c, a.numpy() @ b.numpy() + bias.numpy(), "bfloat16")


def test_float16_with_or_without_code_for_it(rng):
    a, b, c = (random(rng, s, "float16") for s in [(32, 48), (48, 40), (32, 40)])
    run(_core.onednn_matmul(a.geometry, b.geometry, c.geometry), a, b, c)
    near(c, a.numpy() @ b.numpy(), "float16")


@pytest.mark.parametrize("dtype", DTYPES)
def test_matmul_with_packed_weights(rng, dtype):
    a, b, c = (
        random(rng, (2, 32, 48), dtype),
        random(rng, (48, 40), dtype, (1, 48)),
        empty((2, 32, 40), dtype),
    )
    chooses = _core.onednn_matmul(a.geometry, (dtype, (48, 40), "any"), c.geometry)
    layout = chooses.layout(1)
    assert layout.bytes >= 48 * 40 * (4 if dtype == "float32" else 2)
    assert chooses.layout(0) is None
    packed = buffer(layout)
    run(_core.onednn_reorder(b.geometry, layout), b, packed)
    run(chooses, a, packed, c)
    near(c, a.numpy() @ b.numpy(), dtype)
    given = _core.onednn_matmul(a.geometry, layout, c.geometry)
    assert given.layout(1) == layout
    run(given, a, packed, c)
    near(c, a.numpy() @ b.numpy(), dtype)
    back = empty((48, 40), dtype)
    run(_core.onednn_reorder(layout, back.geometry), packed, back)
    near(back, b.numpy(), dtype)


def test_matmul_refuses():
    f = lambda *shape: ("float32", shape, None)  # noqa: E731
    for a, b, c, why in [
        (f(2, 3), f(4, 5), f(2, 5), "inner sizes differ"),
        (f(2, 3), f(3, 5), f(2, 6), "c has not the shape"),
        (f(), f(3, 5), f(5), "at least 1 dimension"),
        (f(3), f(3, 5), f(1, 5), "c has not the"),
        (f(2, 2, 3), f(3, 3, 5), f(3, 2, 5), "do not broadcast"),
    ]:
        with pytest.raises(ShapeError, match=why) as caught:
            _core.onednn_matmul(a, b, c)
        assert "f32(2, 3)" in str(caught.value) or why != "inner sizes differ"
    with pytest.raises(ShapeError, match="bias"):
        _core.onednn_matmul(f(2, 3), f(3, 5), f(2, 5), bias=f(4))
    with pytest.raises(ValueError, match="there are relu, gelu_tanh"):
        _core.onednn_matmul(f(2, 3), f(3, 5), f(2, 5), post_ops=["rely"])
    with pytest.raises(ShapeError, match="does not broadcast"):
        _core.onednn_matmul(f(2, 3), f(3, 5), f(2, 5), post_ops=[("add", f(3, 5))])
    with pytest.raises(ValueError, match="needs strides"):
        _core.onednn_matmul(("float32", (2, 3), "any"), f(3, 5), f(2, 5))
    with pytest.raises(TypeError, match="geometry is"):
        _core.onednn_matmul(3, f(3, 5), f(2, 5))
    with pytest.raises(ShapeError, match="2 sizes, but 1 strides"):
        _core.onednn_matmul(("float32", (2, 3), (1,)), f(3, 5), f(2, 5))


def test_what_onednn_cannot_do_says_why():
    f = lambda *shape, dtype="float32": (dtype, shape, None)  # noqa: E731
    for operands, why in [
        ((f(0, 3), f(3, 5), f(0, 5)), "an empty array"),
        ((("float32", (2, 3), (-3, 1)), f(3, 5), f(2, 5)), "an array of strides"),
        ([f(*s, dtype="int64") for s in [(2, 3), (3, 5), (2, 5)]], "has no type int64"),
        ([f(*s, dtype="bool") for s in [(2, 3), (3, 5), (2, 5)]], "has no type bool"),
        ((("float32", (2, 3), (3, 1)), f(3, 5), ("float32", (2, 5), (0, 1))), "an array of strides"),
    ]:
        with pytest.raises(NotImplementedError, match=f"^onednn_matmul: .*{why}"):
            _core.onednn_matmul(*operands)


# --- convolution ------------------------------------------------------------------------------------------


def window(stride, padding, dilation, groups=1):
    return {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}


CONVOLUTIONS = {  # x, w, window
    "3x3": ((2, 16, 9, 9), (24, 16, 3, 3), window((1, 1), [(1, 1)] * 2, (1, 1))),
    "1x1": ((2, 32, 7, 7), (16, 32, 1, 1), window((1, 1), [(0, 0)] * 2, (1, 1))),
    "strided": ((2, 16, 12, 13), (32, 16, 3, 3), window((2, 2), [(1, 1)] * 2, (1, 1))),
    "1x1 strided": ((2, 16, 8, 8), (32, 16, 1, 1), window((2, 2), [(0, 0)] * 2, (1, 1))),
    "asymmetric": ((1, 8, 10, 11), (16, 8, 3, 4), window((2, 1), [(0, 1), (2, 1)], (1, 1))),
    "dilated": ((1, 16, 12, 12), (16, 16, 3, 3), window((1, 1), [(2, 2)] * 2, (2, 2))),
    "grouped": ((2, 32, 8, 8), (32, 8, 3, 3), window((1, 1), [(1, 1)] * 2, (1, 1), 4)),
    "depthwise": ((2, 32, 8, 8), (32, 1, 3, 3), window((1, 1), [(1, 1)] * 2, (1, 1), 32)),
    "depthwise times 2": ((2, 12, 8, 8), (24, 1, 3, 3), window((2, 2), [(1, 1)] * 2, (1, 1), 12)),
    "odd channels": ((2, 5, 8, 8), (7, 5, 3, 3), window((1, 1), [(1, 1)] * 2, (1, 1))),
    "image": ((2, 3, 20, 20), (16, 3, 7, 7), window((2, 2), [(3, 3)] * 2, (1, 1))),
    "one channel": ((2, 1, 9, 9), (8, 1, 3, 3), window((1, 1), [(0, 0)] * 2, (1, 1))),
    "1d": ((2, 16, 20), (24, 16, 5), window((2,), [(2, 2)], (1,))),
    "1d grouped": ((2, 16, 20), (8, 4, 3), window((1,), [(2, 0)], (2,), 4)),
    "3d": ((1, 8, 5, 6, 7), (16, 8, 3, 3, 3), window((1, 1, 1), [(1, 1)] * 3, (1, 1, 1))),
    "whole image": ((2, 16, 5, 5), (10, 16, 5, 5), window((1, 1), [(0, 0)] * 2, (1, 1))),
}
LAYOUTS = ["last", "first", "mixed", "gaps"]


def laid_out(shape, layout, which):
    if layout == "last" or (layout == "mixed" and which == "x"):
        return channels_last(shape)
    return strides_of(shape, gap=3) if layout == "gaps" else strides_of(shape)


OPERANDS_OF_IMAGES = {  # shapes and strides of post-ops' operands beside a result [8,32,26,26]
    "number": ((), None),
    "channels": ((32, 1, 1), None),
    "channels of rank 4": ((1, 32, 1, 1), None),
    "all, channels last": ((8, 32, 26, 26), (21632, 1, 832, 32)),
    "repeated number": ((8, 32, 26, 26), (0, 0, 0, 0)),
}


@pytest.mark.usefixtures("team")
@pytest.mark.parametrize("kind", ["add", "mul"])
@pytest.mark.parametrize("case", OPERANDS_OF_IMAGES)
def test_operands_of_every_rank_beside_pieces_of_images(rng, case, kind):
    """Pieces move operands along the result's dimensions, not along their own."""
    shape, strides = OPERANDS_OF_IMAGES[case]
    x, w, y = (random(rng, s, scale=0.3) for s in ((8, 16, 28, 28), (32, 16, 3, 3), (8, 32, 26, 26)))
    repeated = tuple(1 if s == 0 else n for n, s in zip(shape, strides or shape, strict=True))
    other = Array(np.broadcast_to(values(rng, repeated), shape), "float32", strides)
    options = {"stride": (1, 1), "padding": [(0, 0)] * 2, "dilation": (1, 1)}
    kernel = _core.onednn_convolution(
        x.geometry, w.geometry, y.geometry, post_ops=[(kind, other.geometry), "tanh"], **options
    )
    assert kernel.pieces == 2
    run(kernel, x, w, other, y)
    plain = reference.convolution(x.numpy(), w.numpy(), (1, 1), [(0, 0)] * 2, (1, 1), 1)
    near(y, np.tanh(plain + other.numpy() if kind == "add" else plain * other.numpy()))


def convolution_sizes(case):
    x, w, options = CONVOLUTIONS[case]
    sizes = reference.out_sizes(x[2:], w[2:], options["stride"], options["padding"], options["dilation"])
    return x, w, (x[0], w[0], *sizes), dict(options)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution(rng, case, layout, dtype, level):
    x_shape, w_shape, y_shape, options = convolution_sizes(case)
    x = random(rng, x_shape, dtype, laid_out(x_shape, layout, "x"))
    w = random(rng, w_shape, dtype, laid_out(w_shape, layout, "w"), scale=0.3)
    y = random(rng, y_shape, dtype, laid_out(y_shape, layout, "y"))
    bias, other = random(rng, (w_shape[0],)), random(rng, y_shape, dtype)
    wanted = reference.convolution(x.numpy(), w.numpy(), **options)
    along = (-1,) + (1,) * (x.numpy().ndim - 2)
    geometry = x.geometry, w.geometry, y.geometry
    old = y.numpy()

    run(_core.onednn_convolution(*geometry, **options), x, w, y)
    near(y, wanted, dtype)

    try:
        kernel = _core.onednn_convolution(
            *geometry, **options, bias=bias.geometry, post_ops=[("add", other.geometry), "relu"]
        )
    except NotImplementedError as refusal:  # below AVX-512 a loop after the product is quicker
        if level == "avx512" or "only slow code" not in str(refusal):
            raise
    else:
        run(kernel, x, w, bias, other, y)
        wanted = np.maximum(wanted + bias.numpy().reshape(along) + other.numpy(), 0)
        near(y, wanted, dtype)

    y = Array(old, dtype, y.strides)
    kernel = _core.onednn_convolution(*geometry, **options, post_ops=["relu"], accumulate=True)
    run(kernel, x, w, y)
    wanted = np.maximum(reference.convolution(x.numpy(), w.numpy(), **options), 0) + old
    near(y, wanted, dtype)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution_gradients(rng, case, layout, dtype, accumulate):
    x_shape, w_shape, y_shape, options = convolution_sizes(case)
    x = random(rng, x_shape, dtype, laid_out(x_shape, layout, "x"))
    w = random(rng, w_shape, dtype, laid_out(w_shape, layout, "w"), scale=0.3)
    dy = random(rng, y_shape, dtype, laid_out(y_shape, layout, "y"))
    dx = random(rng, x_shape, dtype, x.strides)
    dw, db = random(rng, w_shape, "float32", w.strides), random(rng, (w_shape[0],))
    wanted = reference.convolution_gradients(x.numpy(), w.numpy(), dy.numpy(), **options)
    if accumulate:
        wanted = [new + old.numpy() for new, old in zip(wanted, [dx, dw, db], strict=True)]
    options["accumulate"] = accumulate

    run(
        _core.onednn_convolution_backward_data(dy.geometry, w.geometry, dx.geometry, **options),
        dy, w, dx,
    )  # fmt: skip
    near(dx, wanted[0], dtype)
    kernel = _core.onednn_convolution_backward_weights(
        x.geometry, dy.geometry, dw.geometry, **options, dbias=db.geometry
    )
    run(kernel, x, dy, dw, db)
    near(dw, wanted[1], factor=4)
    near(db, wanted[2], factor=4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", ["3x3", "1x1", "grouped", "odd channels", "1d"])
def test_convolution_with_packed_weights(rng, case, dtype):
    x_shape, w_shape, y_shape, options = convolution_sizes(case)
    x, w = random(rng, x_shape, dtype, channels_last(x_shape)), random(rng, w_shape, dtype, scale=0.3)
    y = empty(y_shape, dtype, channels_last(y_shape))
    wish = (dtype, w_shape, "any")
    kernel = _core.onednn_convolution(x.geometry, wish, y.geometry, **options)
    layout = kernel.layout(1)
    pack = _core.onednn_reorder(w.geometry, layout)  # knows that groups split the first dimension
    packed = buffer(layout)
    run(pack, w, packed)
    run(kernel, x, packed, y)
    near(y, reference.convolution(x.numpy(), w.numpy(), **options), dtype)
    given = _core.onednn_convolution(x.geometry, layout, y.geometry, **options)
    run(given, x, packed, y)
    near(y, reference.convolution(x.numpy(), w.numpy(), **options), dtype)


@pytest.mark.parametrize("x_dtype", ["uint8", "int8"])
@pytest.mark.parametrize("y_dtype", ["int32", "float32"])
def test_convolution_of_integers(rng, x_dtype, y_dtype):
    x_shape, w_shape, y_shape, options = convolution_sizes("3x3")
    x, w = random(rng, x_shape, x_dtype, channels_last(x_shape)), random(rng, w_shape, "int8")
    y = empty(y_shape, y_dtype, channels_last(y_shape))
    run(_core.onednn_convolution(x.geometry, w.geometry, y.geometry, **options), x, w, y)
    near(y, reference.convolution(x.numpy(), w.numpy(), **options), y_dtype)


def test_convolution_refuses():
    f = lambda *shape: ("float32", shape, None)  # noqa: E731
    good = window((1, 1), [(1, 1)] * 2, (1, 1))
    for x, w, y, options, error, why in [
        (f(1, 4, 8, 8), f(6, 4, 3, 3), f(1, 6, 7, 8), good, ShapeError, "spatial size 0"),
        (f(1, 4, 8, 8), f(6, 5, 3, 3), f(1, 6, 8, 8), good, ShapeError, "weights are not"),
        (f(1, 4, 8, 8), f(6, 4, 3), f(1, 6, 8, 8), good, ShapeError, "weights need"),
        (f(1, 4), f(6, 4), f(1, 6), good, ShapeError, "3 to 5 dimensions"),
        (f(1, 4, 8, 8), f(6, 4, 3, 3), f(2, 6, 8, 8), good, ShapeError, "batch sizes differ"),
        (f(1, 4, 8, 8), f(6, 4, 3, 3), f(1, 6, 8, 8), good | {"groups": 3}, ShapeError, "do not divide"),
        (f(1, 4, 8, 8), f(6, 4, 3, 3), f(1, 6, 8, 8), good | {"stride": (1,)}, ValueError, "stride needs 2"),
        (
            f(1, 4, 8, 8),
            f(6, 4, 3, 3),
            f(1, 6, 8, 8),
            good | {"stride": (0, 1)},
            ValueError,
            "stride needs 2",
        ),
    ]:
        with pytest.raises(error, match=why):
            _core.onednn_convolution(x, w, y, **options)


def test_convolution_refuses_the_layout_of_other_weights():
    f = lambda *shape: ("float32", shape, None)  # noqa: E731
    layout = _core.onednn_matmul(f(2, 3), ("float32", (3, 5), "any"), f(2, 5)).layout(1)
    with pytest.raises(ShapeError, match="weights need the dimensions of src"):
        _core.onednn_convolution(f(1, 4, 8, 8), layout, f(1, 4, 8, 8), **window((1, 1), [(0, 0)] * 2, (1, 1)))
    assert layout != 3


# --- pooling ----------------------------------------------------------------------------------------------

POOLINGS = {  # x, window, stride, padding, dilation
    "2x2": ((2, 16, 8, 8), (2, 2), (2, 2), [(0, 0)] * 2, (1, 1)),
    "3x3": ((2, 16, 9, 9), (3, 3), (2, 2), [(1, 1)] * 2, (1, 1)),
    "odd": ((2, 5, 9, 10), (3, 2), (2, 1), [(1, 0), (0, 1)], (1, 1)),
    "dilated": ((1, 8, 12, 12), (3, 3), (1, 1), [(1, 1)] * 2, (2, 2)),
    "global": ((2, 16, 7, 7), (7, 7), (1, 1), [(0, 0)] * 2, (1, 1)),
    "1d": ((2, 16, 11), (3,), (2,), [(1, 1)], (1,)),
    "3d": ((1, 4, 6, 6, 6), (2, 2, 2), (2, 2, 2), [(0, 0)] * 3, (1, 1, 1)),
    "large window": ((1, 2, 20, 20), (19, 19), (1, 1), [(0, 0)] * 2, (1, 1)),
}


def distinct(rng, shape):
    """Numbers of which no two in a channel are equal, even in bfloat16: a maximum is one element."""
    size = int(np.prod(shape[2:]))
    bits = np.stack([rng.permutation(size) + 0x3D00 for _ in range(shape[0] * shape[1])])
    signs = rng.integers(0, 2, bits.shape) << 15
    return ((bits | signs).astype(np.uint32) << 16).view(np.float32).reshape(shape)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["max", "average", "average_with_padding"])
@pytest.mark.parametrize("case", POOLINGS)
def test_pooling(rng, case, kind, layout, dtype):
    shape, size, stride, padding, dilation = POOLINGS[case]
    y_shape = (*shape[:2], *reference.out_sizes(shape[2:], size, stride, padding, dilation))
    x = Array(distinct(rng, shape), dtype, laid_out(shape, layout, "x"))
    y, dy = (f(y_shape, dtype, laid_out(y_shape, layout, "y")) for f in (empty, lambda *a: random(rng, *a)))
    dx = empty(shape, dtype, laid_out(shape, layout, "y"))
    wanted, gradient = reference.pooling(x.numpy(), kind, size, stride, padding, dilation)
    options = {"kind": kind, "window": size, "stride": stride, "padding": padding, "dilation": dilation}

    forward = _core.onednn_pooling(x.geometry, y.geometry, **options, training=True)
    workspace = [buffer(forward.layout(2))] if kind == "max" else []
    run(forward, x, y, *workspace)
    near(y, wanted, dtype)
    backward = _core.onednn_pooling_backward(x.geometry, y.geometry, dy.geometry, dx.geometry, **options)
    run(backward, dy, *workspace, dx)
    near(dx, gradient(dy.numpy()), dtype)
    y = empty(y_shape, dtype, y.strides)
    run(_core.onednn_pooling(x.geometry, y.geometry, **options), x, y)
    near(y, wanted, dtype)


def test_pooling_refuses_other_kinds():
    x = ("float32", (1, 1, 4), None)
    with pytest.raises(ValueError, match="there are max, average"):
        _core.onednn_pooling(x, x, kind="min", window=(1,), stride=(1,), padding=[(0, 0)], dilation=(1,))


# --- lstm -------------------------------------------------------------------------------------------------


def lstm_arrays(rng, t, n, c, h, layers, directions, dtype):
    """x, h0, c0 and parameters[layer][direction]."""
    x = random(rng, (t, n, c), dtype)
    h0, c0 = (random(rng, (layers * directions, n, h), dtype) for _ in range(2))
    parameters = []
    for layer in range(layers):
        inputs = directions * h if layer else c
        shapes = [(4 * h, inputs), (4 * h, h), (4 * h,), (4 * h,)]
        parameters.append([[random(rng, s, dtype, scale=0.3) for s in shapes] for _ in range(directions)])
    return x, h0, c0, parameters


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(
    ("t", "n", "c", "h", "layers"),
    [
        (5, 3, 8, 16, 1),
        (4, 2, 7, 5, 1),
        (6, 4, 16, 16, 2),
        (3, 1, 10, 12, 3),
        (1, 1, 1, 1, 1),
        (3, 20, 9, 200, 2),
    ],
)
def test_lstm(rng, t, n, c, h, layers, bidirectional, dtype):
    directions = 2 if bidirectional else 1
    x, h0, c0, parameters = lstm_arrays(rng, t, n, c, h, layers, directions, dtype)
    y = empty((t, n, directions * h), dtype)
    hn, cn = empty(h0.shape, dtype), empty(h0.shape, dtype)
    flat = [p for layer in parameters for direction in layer for p in direction]
    options = {"layers": layers, "bidirectional": bidirectional}
    plain = [[[p.numpy() for p in direction] for direction in layer] for layer in parameters]
    true = reference.Lstm(x.numpy(), h0.numpy(), c0.numpy(), plain)

    kernel = _core.onednn_lstm(x.geometry, y.geometry, **options)
    run(kernel, x, h0, c0, *flat, y, hn, cn)
    near(y, true.y, dtype)
    near(hn, true.h, dtype)
    near(cn, true.c, dtype)

    y, hn, cn = empty(y.shape, dtype), empty(h0.shape, dtype), empty(h0.shape, dtype)
    kernel = _core.onednn_lstm(x.geometry, y.geometry, **options, training=True)
    workspace = empty((_core.onednn_lstm_workspace(x.geometry, y.geometry, **options),), "uint8")
    run(kernel, x, h0, c0, *flat, y, hn, cn, workspace)
    near(y, true.y, dtype)
    dy, dh, dc = random(rng, y.shape, dtype), random(rng, h0.shape, dtype), random(rng, h0.shape, dtype)
    dx, dh0, dc0 = empty(x.shape, dtype), empty(h0.shape, dtype), empty(h0.shape, dtype)
    gradients = [random(rng, p.shape, dtype) for p in flat]  # what they held does not matter
    kernel = _core.onednn_lstm_backward(x.geometry, y.geometry, **options)
    operands = [x, h0, c0, *flat, y, hn, cn, workspace, dy, dh, dc, dx, dh0, dc0, *gradients]
    run(kernel, *operands)
    true_dx, true_dh0, true_dc0, true_gradients = true.gradients(dy.numpy(), dh.numpy(), dc.numpy())
    near(dx, true_dx, dtype, factor=2)
    near(dh0, true_dh0, dtype, factor=2)
    near(dc0, true_dc0, dtype, factor=2)
    all_true = [p for layer in true_gradients for direction in layer for p in direction]
    for got, wanted in zip(gradients, all_true, strict=True):
        near(got, wanted, dtype, factor=2)


def test_lstm_refuses():
    f = lambda *shape, dtype="float32": (dtype, shape, None)  # noqa: E731
    with pytest.raises(ShapeError, match="do not fit"):
        _core.onednn_lstm(f(5, 3, 8), f(5, 4, 8))
    with pytest.raises(ValueError, match="at least 1 layer"):
        _core.onednn_lstm(f(5, 3, 8), f(5, 3, 8), layers=0)
    with pytest.raises(ValueError, match="row-major"):
        _core.onednn_lstm(("float32", (5, 3, 8), (8, 40, 1)), f(5, 3, 8))
    with pytest.raises(NotImplementedError, match="no implementation for int8"):
        _core.onednn_lstm(f(5, 3, 8, dtype="int8"), f(5, 3, 8, dtype="int8"))


# --- reorder ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(("from_", "to"), [*product(DTYPES, DTYPES)])
@pytest.mark.parametrize("strides", [None, (1, 6, 30), (5, 200, 1)])
def test_reorder(rng, strides, from_, to, accumulate):
    shape = (6, 5, 4) if strides == (1, 6, 30) else (6, 2, 5)
    x, y = random(rng, shape, from_, strides), random(rng, shape, to)
    wanted = x.numpy() + y.numpy() if accumulate else x.numpy()
    run(_core.onednn_reorder(x.geometry, y.geometry, accumulate=accumulate), x, y)
    near(y, wanted, "bfloat16" if "bfloat16" in (from_, to) else "float32")


def test_reorder_refuses():
    f = lambda *shape: ("float32", shape, None)  # noqa: E731
    with pytest.raises(ShapeError, match="the shapes differ"):
        _core.onednn_reorder(f(2, 3), f(3, 2))
    with pytest.raises(ValueError, match="need strides or a layout"):
        _core.onednn_reorder(f(2, 3), ("float32", (2, 3), "any"))


# --- the cache, threads, forks ----------------------------------------------------------------------------


@pytest.fixture
def limit():
    before = _core.onednn_counters()["limit"]
    yield _core.set_onednn_cache_limit
    _core.set_onednn_cache_limit(before)


def product_of(n, **options):
    return _core.onednn_matmul(*[("float32", (n, n), None)] * 3, **options)


def test_equal_requests_share_a_kernel(limit):
    limit(0)
    limit(100)
    first = product_of(61)
    before = _core.onednn_counters()
    assert product_of(61).id == first.id
    assert product_of(61, accumulate=True).id != first.id
    assert product_of(61, post_ops=["relu"]).id != product_of(61, post_ops=[("relu", 0.5)]).id
    after = _core.onednn_counters()
    assert after["hits"] == before["hits"] + 1
    assert after["misses"] == before["misses"] + 3
    assert after["size"] == before["size"] + 3


def test_the_cache_drops_what_was_used_least_recently(limit):
    limit(3)
    assert _core.onednn_counters()["size"] <= 3
    for n in (51, 52, 53):
        product_of(n)
    kept, misses = product_of(51), _core.onednn_counters()["misses"]
    product_of(54)  # drops 52
    product_of(51), product_of(53)
    assert _core.onednn_counters()["misses"] == misses + 1
    product_of(52)
    assert _core.onednn_counters()["misses"] == misses + 2
    assert _core.onednn_counters()["size"] == 3
    limit(0)
    assert product_of(51).id != kept.id  # nothing is kept, and it still works
    assert _core.onednn_counters() | {"size": 0, "limit": 0} == _core.onednn_counters()


def test_one_kernel_on_several_threads(rng, in_threads):
    a, b = random(rng, (96, 96)), random(rng, (96, 96), strides=(1, 96))
    kernel = _core.onednn_matmul(a.geometry, b.geometry, a.geometry)
    results = [empty((96, 96)) for _ in range(4)]

    def work(c):
        for _ in range(20):
            run(kernel, a, b, c)

    in_threads(work, results)
    for c in results:
        near(c, a.numpy() @ b.numpy())


def test_kernels_made_on_several_threads(rng, limit, in_threads):
    limit(4)
    x = random(rng, (40, 40))

    def work(seed):
        for n in np.random.default_rng(seed).integers(1, 40, 30):
            y = empty((n, n))
            part = ("float32", (n, n), (40, 1))
            run(_core.onednn_matmul(part, part, y.geometry), x, x, y)
            assert np.abs(y.numpy() - x.numpy()[:n, :n] @ x.numpy()[:n, :n]).max() <= 1e-3

    in_threads(work, range(4))
    assert _core.onednn_counters()["size"] <= 4


def test_with_one_thread():
    code = (
        "from weft import _core; f = ('float32', (64, 64), None); import weft as wf, weft.ops\n"
        "k = _core.onednn_matmul(f, f, f); x = wf.ones((64, 64)); y = wf.zeros((64, 64))\n"
        "_core.run_kernel(k, [x, x, y]); print(y.numpy().sum())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == [str(64.0**3)], done.stderr


def test_a_forked_child_computes():
    """On the thread that has computed before the fork, too, and with a kernel made before."""
    code = """
import os, sys, numpy as np, weft as wf, weft.ops
from weft import _core
f = ("float32", (512, 512), None)
kernel = _core.onednn_matmul(f, f, f)
x, y = wf.ones((512, 512)), wf.zeros((512, 512))
_core.run_kernel(kernel, [x, x, y])
child = os.fork()
if child == 0:
    for k in (kernel, _core.onednn_matmul(f, f, f, post_ops=["relu"])):
        y = wf.zeros((512, 512))
        _core.run_kernel(k, [x, x, y])
        assert (y.numpy() == 512).all()
    print("child", flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
_core.run_kernel(kernel, [x, x, y])
print("parent")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["child", "parent"], done.stderr


def test_kernels_say_what_they_are():
    kernel = product_of(64)
    assert isinstance(kernel, _core.Kernel)
    assert kernel.operands == 3
    assert kernel.implementation
    assert kernel.scratch_bytes >= 0
    with pytest.raises(IndexError, match="operand 3 of a kernel of 3"):
        kernel.layout(3)
