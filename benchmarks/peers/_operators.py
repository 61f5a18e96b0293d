"""The operators of benchmarks/ops.py: their inputs of two sizes, and how each side calls them.

A side is a process that answers names of cases with seconds; a case is "operator, size, forward or gradient, way".
Needs nothing but Python and NumPy: it runs in the environments of all peers.
"""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

SIZES = ("small", "large")
SAMPLE_S = 0.025  # a sample is the best call within this time
SIDES = ("weft", "torch", "jax", "numpy")

Arrays = list[np.ndarray]


class Operator(NamedTuple):
    """calls: by side, an expression in the inputs x, y, z, w. differentiable: in how many first inputs."""

    name: str
    inputs: Callable[[np.random.Generator, bool], Arrays]
    calls: Mapping[str, str]
    differentiable: int = 0


def floats(rng: np.random.Generator, shape, low=-2.0, high=2.0) -> np.ndarray:
    return rng.uniform(low, high, shape).astype("float32")


def table(*shapes, low=-2.0, high=2.0):
    """Inputs of float32: of each a shape for small and one for large."""
    return lambda rng, large: [floats(rng, shape[large], low, high) for shape in shapes]


FLAT = ((32, 128), (1024, 1024))
ROWS = ((32, 128), (2048, 512))
SQUARE = ((64, 64), (1024, 1024))
IMAGES = ((2, 8, 16, 16), (8, 32, 64, 64))
PREFIXES = {"weft": "F.", "torch": "torch.", "jax": "jnp.", "numpy": "np."}


def calls(name: str, arguments: str, **of_side: str | None) -> dict[str, str]:
    """The same name everywhere, but for the sides that say another one, a whole expression, or None."""
    found = {}
    for side, prefix in PREFIXES.items():
        call = of_side.get(side, prefix + name)
        if call is not None:
            found[side] = call if "(" in call or " " in call else f"{call}({arguments})"
    return found


def both(call: str, of_jax: str | None = None) -> dict[str, str]:
    """A call that is the same in weft.functional and torch.nn.functional."""
    return {"weft": f"F.{call}", "torch": f"tf.{call}"} | ({} if of_jax is None else {"jax": of_jax})


ONLY_TORCH = {"jax": None, "numpy": None}
NO_NUMPY: dict[str, str | None] = {"numpy": None}


def unary() -> Iterator[Operator]:
    def of(names: str, low=-2.0, high=2.0, differentiable=1, **of_side):
        for name in names.split():
            yield Operator(name, table(FLAT, low=low, high=high), calls(name, "x", **of_side), differentiable)

    yield from of("abs negative sin cos sinh cosh tanh exp expm1 square atan asinh")
    yield from of("exp2 sinc deg2rad rad2deg")
    yield from of("floor ceil round trunc sign signbit isnan isinf isfinite", differentiable=0)
    yield from of("nan_to_num")
    yield from of("log log2 log10 log1p sqrt reciprocal", 0.1, 4.0)
    yield from of("rsqrt", 0.1, 4.0, jax="lax.rsqrt", numpy="1 / np.sqrt(x)")
    yield from of("cbrt", 0.1, 4.0, torch=None)
    yield from of("lgamma digamma", 0.1, 4.0, jax="lax.NAME", **NO_NUMPY)
    yield from of("asin acos atanh", -0.9, 0.9)
    yield from of("tan", -1.2, 1.2)
    yield from of("acosh", 1.1, 4.0)
    yield from of("erf erfc", jax="lax.NAME", **NO_NUMPY)
    yield from of("erfinv", -0.9, 0.9, jax="lax.erf_inv", **NO_NUMPY)
    yield from of("logit", 0.1, 0.9, jax="jax.scipy.special.logit", **NO_NUMPY)
    nn = {"torch": "tf.NAME", "jax": "jax.nn.NAME", "numpy": None}
    yield from of("relu relu6 gelu silu softplus elu selu celu leaky_relu mish", **nn)
    yield from of("sigmoid", **{**nn, "torch": "torch.sigmoid"})
    yield from of("hardtanh", **{**nn, "jax": "jax.nn.hard_tanh"})
    yield from of("hard_sigmoid", **{**nn, "torch": "tf.hardsigmoid"})
    yield from of("hard_swish", **{**nn, "torch": "tf.hardswish"})
    yield from of("log_sigmoid", **{**nn, "torch": "tf.logsigmoid"})
    yield from of("softsign", **{**nn, "jax": "jax.nn.soft_sign"})
    yield from of("tanhshrink softshrink hardshrink", torch="tf.NAME", **ONLY_TORCH)
    yield from of("glu", **nn)


def binary() -> Iterator[Operator]:
    def of(names: str, low=-2.0, high=2.0, differentiable=2, **of_side):
        for name in names.split():
            inputs = table(FLAT, FLAT, low=low, high=high)
            yield Operator(name, inputs, calls(name, "x, y", **of_side), differentiable)

    yield from of("add subtract multiply maximum minimum atan2 hypot logaddexp copysign fmax fmin")
    yield from of("divide", 0.5, 2.0)
    yield from of("pow", 0.5, 2.0)
    yield from of("remainder fmod nextafter floor_divide heaviside", 0.5, 4.0, differentiable=0)
    yield from of("less greater_equal not_equal", differentiable=0)
    yield from of("equal", differentiable=0, torch="torch.eq")
    yield from of("xlogy", 0.1, 2.0, jax="jax.scipy.special.xlogy", **NO_NUMPY)
    row = table(FLAT, ((128,), (1024,)))
    yield Operator("add a row", row, calls("add", "x, y"), 2)
    column = table(FLAT, ((32, 1), (1024, 1)))
    yield Operator("multiply by a column", column, calls("multiply", "x, y"), 2)
    strided = {side: f"{prefix}add(x, y.T)" for side, prefix in PREFIXES.items()}
    yield Operator("add a transposed matrix", table(SQUARE, SQUARE), strided, 2)
    lerp = calls("lerp", "x, y, z", jax="x + z * (y - x)", numpy="x + z * (y - x)")
    yield Operator("lerp", table(FLAT, FLAT, FLAT), lerp, 3)
    yield Operator("clip", table(FLAT), calls("clip", "x, -0.5, 0.5"), 1)

    def masked(rng, large):
        x, y, z = (floats(rng, FLAT[large]) for _ in range(3))
        return [x, y, z > 0]

    yield Operator("where", masked, calls("where", "z, x, y"), 2)
    fill = {"weft": "F.masked_fill(x, z, value=0.0)", "torch": "torch.masked_fill(x, z, 0.0)"}
    yield Operator("masked_fill", masked, {**fill, "jax": "jnp.where(z, 0.0, x)"}, 1)

    def ints(rng, large):
        return [rng.integers(1, 30, FLAT[large], "int32") for _ in range(2)]

    for name in ["bitwise_and", "bitwise_xor", "bitwise_left_shift"]:
        yield Operator(name, ints, calls(name, "x, y"))
    yield Operator("add of int32", ints, calls("add", "x, y"))
    yield Operator("floor_divide of int32", ints, calls("floor_divide", "x, y"))
    truths = {s: f"{p}logical_and(x, y)" for s, p in PREFIXES.items()}
    yield Operator("logical_and", lambda rng, large: [a > 15 for a in ints(rng, large)], truths)
    to_int = {"weft": 'F.cast(x, "int32")', "torch": "x.to(torch.int32)", "jax": "x.astype(jnp.int32)"}
    yield Operator("cast to int32", table(FLAT), {**to_int, "numpy": "x.astype(np.int32)"})
    to_half = {"weft": 'F.cast(x, "float16")', "torch": "x.to(torch.float16)", "jax": "x.astype(jnp.float16)"}
    yield Operator("cast to float16", table(FLAT), {**to_half, "numpy": "x.astype(np.float16)"}, 1)

    def complexes(rng, large):
        return [(floats(rng, FLAT[large]) + 1j * floats(rng, FLAT[large])).astype("complex64") for _ in "xy"]

    yield Operator("multiply of complex64", complexes, calls("multiply", "x, y"))
    yield Operator("abs of complex64", complexes, calls("abs", "x"))
    yield Operator("exp of complex64", complexes, calls("exp", "x"))


def reductions() -> Iterator[Operator]:
    for axis, where in ((None, ""), (0, " over rows"), (1, " over columns")):
        given = {"torch": f"dim={axis}", "others": f"axis={axis}"}
        for name in ["sum", "mean", "max", "min", "prod", "var", "std"]:
            if axis is None and name == "prod":
                continue  # of a million numbers it is 0
            torch_name = {"max": "amax", "min": "amin"}.get(name, name)
            keywords = given["torch"] if axis is not None or name not in ("max", "min") else "dim=(0, 1)"
            sides = {side: f"{prefix}{name}(x, {given['others']})" for side, prefix in PREFIXES.items()}
            extra = ", correction=0" if name in ("var", "std") else ""
            sides["torch"] = f"torch.{torch_name}(x, {keywords}{extra})"
            yield Operator(name + where, table(ROWS, low=0.5, high=1.5), sides, 1)
    rows = table(ROWS)
    for name in ["argmax", "argmin", "any", "all", "count_nonzero"]:
        sides = calls(name, "x, axis=1", torch=f"torch.{name}(x, dim=1)")
        yield Operator(name, rows, sides)
    lse = calls("logsumexp", "x, axis=1", torch="torch.logsumexp(x, 1)", jax="jax.nn.logsumexp", numpy=None)
    yield Operator("logsumexp", rows, lse, 1)
    norm = {
        "weft": "F.vector_norm(x, axis=1)",
        "torch": "torch.linalg.vector_norm(x, dim=1)",
        "jax": "jnp.linalg.vector_norm(x, axis=1)",
        "numpy": "np.linalg.vector_norm(x, axis=1)",
    }
    yield Operator("vector_norm", rows, norm, 1)
    nansum = calls("nansum", "x, axis=1", torch="torch.nansum(x, dim=1)")
    yield Operator("nansum", rows, nansum, 1)
    for name, of_torch, others in (
        ("cumulative_sum", "cumsum", "cumsum"),
        ("cumulative_prod", "cumprod", "cumprod"),
    ):
        sides = calls(
            name, "x, axis=1", torch=f"torch.{of_torch}(x, dim=1)", jax=f"jnp.{others}", numpy=f"np.{others}"
        )
        yield Operator(name, table(ROWS, low=0.9, high=1.1), sides, 1)

    def integers(rng, large):
        return [rng.integers(0, 100, ROWS[large])]

    sides = calls(
        "cumulative_sum", "x, axis=1", torch="torch.cumsum(x, dim=1)", jax="jnp.cumsum", numpy="np.cumsum"
    )
    yield Operator("cumulative_sum of int64", integers, sides)
    sums = calls("sum", "x, axis=1", torch="torch.sum(x, dim=1)")
    yield Operator("sum of int64", integers, sums)
    maxima = {
        "weft": "F.cumulative_max(x, axis=1)",
        "torch": "torch.cummax(x, dim=1)[0]",
        "jax": "lax.cummax(x, axis=1)",
        "numpy": "np.maximum.accumulate(x, axis=1)",
    }
    yield Operator("cumulative_max", rows, maxima, 1)
    scan = {"weft": "F.logcumsumexp(x, axis=1)", "torch": "torch.logcumsumexp(x, dim=1)"}
    yield Operator("logcumsumexp", rows, {**scan, "jax": "lax.cumlogsumexp(x, axis=1)"}, 1)
    median = calls("median", "x, axis=1", torch="torch.quantile(x, 0.5, dim=1)")
    yield Operator("median", rows, median, 1)
    quantile = calls("quantile", "x, 0.3, axis=1", torch="torch.quantile(x, 0.3, dim=1)")
    yield Operator("quantile", rows, quantile, 1)
    yield Operator("cov", table(((16, 64), (256, 2048))), calls("cov", "x"), 1)


def ordering() -> Iterator[Operator]:
    rows = table(ROWS)
    sort = calls("sort", "x, axis=1", torch="torch.sort(x, dim=1, stable=True)[0]")
    yield Operator("sort", rows, {**sort, "numpy": 'np.sort(x, axis=1, kind="stable")'}, 1)
    argsort = calls("argsort", "x, axis=1", torch="torch.argsort(x, dim=1, stable=True)")
    yield Operator("argsort", rows, {**argsort, "numpy": 'np.argsort(x, axis=1, kind="stable")'})
    topk = {"weft": "F.topk(x, 8)[0]", "torch": "torch.topk(x, 8)[0]", "jax": "lax.top_k(x, 8)[0]"}
    yield Operator("topk", rows, topk, 1)

    def sorted_and_sought(rng, large):
        return [np.sort(floats(rng, ((1000,), (100_000,))[large])), floats(rng, ((1000,), (200_000,))[large])]

    yield Operator("searchsorted", sorted_and_sought, calls("searchsorted", "x, y"))

    def groups(rng, large):
        n, m, d = ((1000, 50, 8), (200_000, 2000, 16))[large]
        ids = rng.integers(0, m, n)
        return [floats(rng, (n, d)), ids, np.zeros(m, "float32")]

    count = {
        "weft": "F.bincount(y, length=len_z)",
        "torch": "torch.bincount(y, minlength=len_z)",
        "jax": "jnp.bincount(y, length=len_z)",
        "numpy": "np.bincount(y, minlength=len_z)",
    }
    yield Operator("bincount", groups, count)
    sums = {
        "weft": "F.segment_sum(x, y, length=len_z)",
        "torch": "torch.zeros(len_z, x.shape[1]).index_add(0, y, x)",
        "jax": "jax.ops.segment_sum(x, y, len_z)",
    }
    yield Operator("segment_sum", groups, sums, 1)
    maxima = {
        "weft": "F.segment_max(x, y, length=len_z)",
        "torch": "torch.full((len_z, x.shape[1]), -math.inf).index_reduce(0, y, x, 'amax')",
        "jax": "jax.ops.segment_max(x, y, len_z)",
    }
    yield Operator("segment_max", groups, maxima, 1)
    bins = {
        "weft": "F.histogram(x, bins=64, range=(-2.0, 2.0))[0]",
        "torch": "torch.histc(x, 64, -2.0, 2.0)",
        "jax": "jnp.histogram(x, 64, (-2.0, 2.0))[0]",
        "numpy": "np.histogram(x, 64, (-2.0, 2.0))[0]",
    }
    yield Operator("histogram", rows, bins)

    def zeros(rng, large):
        return [(floats(rng, ROWS[large]) > 1).astype("float32")]

    found = {"weft": "wf.argwhere(x)", "torch": "torch.nonzero(x)", "numpy": "np.argwhere(x)"}
    yield Operator("argwhere", zeros, found)
    yield Operator(
        "unique", groups, {"weft": "wf.unique_values(y)", "torch": "torch.unique(y)", "numpy": "np.unique(y)"}
    )


def movement() -> Iterator[Operator]:
    two, one = table(FLAT, FLAT), table(FLAT)
    concat = calls("concat", "[x, y], 1", weft="F.concat(x, y, axis=1)", jax="jnp.concatenate([x, y], 1)")
    yield Operator("concat", two, concat, 2)
    yield Operator("stack", two, calls("stack", "[x, y]", weft="F.stack(x, y, axis=0)"), 2)
    yield Operator("tile", one, calls("tile", "x, (2, 2)"), 1)
    yield Operator(
        "repeat", one, calls("repeat", "x, 3, axis=0", torch="torch.repeat_interleave(x, 3, dim=0)"), 1
    )
    yield Operator(
        "flip, a copy",
        one,
        {s: f"{p}flip(x, {'(1,)' if s == 'torch' else 'axis=1'}) + 1" for s, p in PREFIXES.items()},
        1,
    )
    yield Operator("roll", one, calls("roll", "x, 3, axis=1", torch="torch.roll(x, 3, 1)"), 1)
    yield Operator(
        "transpose, a copy", table(SQUARE), {**dict.fromkeys(("torch", "jax", "numpy", "weft"), "x.T + 1")}, 1
    )
    permuted = table(((8, 8, 8, 8), (32, 32, 32, 32)))
    order = "(x, (0, 2, 1, 3)) + 1"
    permute = {side: f"{prefix}permute_dims{order}" for side, prefix in PREFIXES.items()}
    yield Operator("permute_dims, a copy", permuted, permute | {"torch": f"torch.permute{order}"}, 1)
    padded = both("pad(x, (1, 1, 1, 1))", "jnp.pad(x, 1)") | {"numpy": "np.pad(x, 1)"}
    yield Operator("pad", one, padded, 1)
    for name in ("tril", "triu"):
        yield Operator(name, table(SQUARE), calls(name, "x"), 1)
    yield Operator("diag", table(((64,), (1024,))), calls("diag", "x"), 1)
    yield Operator("outer", table(((64,), (1024,)), ((64,), (1024,))), calls("outer", "x, y"), 2)
    yield Operator("kron", table(((8, 8), (32, 32)), ((8, 8), (32, 32))), calls("kron", "x, y"), 2)
    yield Operator(
        "cross",
        table(((32, 3), (100_000, 3)), ((32, 3), (100_000, 3))),
        calls("cross", "x, y", torch="torch.linalg.cross(x, y)"),
        2,
    )

    def chosen(rng, large):
        n, m, d = ((100, 200, 32), (20_000, 50_000, 64))[large]
        return [floats(rng, (n, d)), rng.integers(0, n, m)]

    take = {
        "weft": "F.take(x, y, axis=0)",
        "torch": "torch.index_select(x, 0, y)",
        "jax": "jnp.take(x, y, axis=0)",
        "numpy": "np.take(x, y, axis=0)",
    }
    yield Operator("take", chosen, take, 1)
    rows = both("embedding(y, x)", "x[y]") | {"numpy": "x[y]"}
    yield Operator("embedding", chosen, rows, 1)
    bags = both("embedding_bag(y.reshape(-1, 10), x)", "x[y.reshape(-1, 10)].mean(1)")
    yield Operator("embedding_bag", chosen, bags, 1)
    hot = both("one_hot(y, 100)", "jax.nn.one_hot(y, 100)")

    def classes(rng, large):
        return [floats(rng, (2,)), rng.integers(0, 100, ((100,), (20_000,))[large])]

    yield Operator("one_hot", classes, hot)

    def along(rng, large):
        shape = ROWS[large]
        return [floats(rng, shape), rng.integers(0, shape[1], shape)]

    gathered = {
        "weft": "F.take_along_axis(x, y, axis=1)",
        "torch": "torch.take_along_dim(x, y, 1)",
        "jax": "jnp.take_along_axis(x, y, axis=1)",
        "numpy": "np.take_along_axis(x, y, axis=1)",
    }
    yield Operator("take_along_axis", along, gathered, 1)


def products() -> Iterator[Operator]:
    yield Operator("matmul", table(SQUARE, SQUARE), calls("matmul", "x, y"), 2)
    batches = ((16, 16, 16), (64, 128, 128))
    yield Operator("matmul of batches", table(batches, batches), calls("matmul", "x, y"), 2)

    def doubles(rng: np.random.Generator, large: bool) -> Arrays:
        return [floats(rng, SQUARE[large]).astype("float64") for _ in "xy"]

    yield Operator("matmul of float64", doubles, calls("matmul", "x, y", jax=None), 2)
    yield Operator("matmul by a vector", table(SQUARE, ((64,), (1024,))), calls("matmul", "x, y"), 2)
    small = ((100, 3, 3), (100_000, 3, 3))
    yield Operator("matmul of 3x3", table(small, small), calls("matmul", "x, y"), 2)
    linear = table(((32, 64), (512, 1024)), ((64, 64), (1024, 1024)), ((64,), (1024,)))
    yield Operator(
        "linear",
        linear,
        both("linear(x, y, z)", "x @ y.T + z") | {"numpy": "x @ y.T + z"},
        3,
    )
    yield Operator("vecdot", table(ROWS, ROWS), calls("vecdot", "x, y", torch="torch.linalg.vecdot"), 2)
    yield Operator(
        "einsum, three factors",
        table(((16, 16), (128, 128)), ((16, 16), (128, 128)), ((16, 16), (128, 128))),
        {
            side: ("wf" if side == "weft" else prefix[:-1]) + '.einsum("ij,jk,kl->il", x, y, z)'
            for side, prefix in PREFIXES.items()
        },
        3,
    )
    yield Operator(
        "cdist",
        table(((32, 16), (512, 64)), ((32, 16), (512, 64))),
        {"weft": "F.cdist(x, y)", "torch": "torch.cdist(x, y)"},
        2,
    )

    def positive_definite(rng, large):
        batch, n = ((64, 4), (4, 256))[large]
        a = floats(rng, (batch, n, n))
        return [a @ a.swapaxes(-1, -2) + n * np.eye(n, dtype="float32"), floats(rng, (batch, n, 2))]

    def linalg(name, arguments="x", differentiable=1, weft=None, torch=None, jax=None, numpy=""):
        sides = {
            "weft": weft or f"F.{name}({arguments})",
            "torch": torch or f"torch.linalg.{name}({arguments})",
            "jax": jax or f"jnp.linalg.{name}({arguments})",
        }
        if numpy is not None:
            sides["numpy"] = numpy or f"np.linalg.{name}({arguments})"
        return Operator(name, positive_definite, sides, differentiable)

    yield linalg("cholesky")
    yield linalg("inv")
    yield linalg("det")
    yield linalg("solve", "x, y", 2)
    yield linalg(
        "slogdet",
        weft="F.slogdet(x)[1]",
        torch="torch.linalg.slogdet(x)[1]",
        jax="jnp.linalg.slogdet(x)[1]",
        numpy="np.linalg.slogdet(x)[1]",
    )
    yield linalg(
        "qr",
        weft="F.qr(x)[0]",
        torch="torch.linalg.qr(x)[0]",
        jax="jnp.linalg.qr(x)[0]",
        numpy="np.linalg.qr(x)[0]",
    )
    yield linalg(
        "eigh",
        weft="F.eigh(x)[0]",
        torch="torch.linalg.eigh(x)[0]",
        jax="jnp.linalg.eigh(x)[0]",
        numpy="np.linalg.eigh(x)[0]",
    )
    yield linalg(
        "svd",
        weft="F.svd(x)[1]",
        torch="torch.linalg.svd(x)[1]",
        jax="jnp.linalg.svd(x)[1]",
        numpy="np.linalg.svd(x)[1]",
    )
    yield linalg("matrix_power", "x, 5")
    yield linalg(
        "solve_triangular",
        differentiable=2,
        weft="F.solve_triangular(x, y)",
        torch="torch.linalg.solve_triangular(x, y, upper=False)",
        jax="jax.scipy.linalg.solve_triangular(x, y, lower=True)",
        numpy=None,
    )
    yield linalg("pinv", differentiable=0)
    for name in ("fft", "rfft", "fft2"):
        shape = ((16, 64), (256, 1024))
        sides = {"weft": f"F.{name}(x)", "torch": f"torch.fft.{name}(x)", "jax": f"jnp.fft.{name}(x)"}
        yield Operator(name, table(shape), {**sides, "numpy": f"np.fft.{name}(x)"})


def networks() -> Iterator[Operator]:
    rows = table(ROWS)
    for name in ("softmax", "log_softmax"):
        sides = {"weft": f"F.{name}(x, axis=-1)", "torch": f"tf.{name}(x, -1)", "jax": f"jax.nn.{name}(x)"}
        yield Operator(name, rows, sides, 1)
    affine = (((128,), (512,)), ((128,), (512,)))
    norm = {"weft": "F.layer_norm(x, x.shape[-1], y, z)", "torch": "tf.layer_norm(x, x.shape[-1:], y, z)"}
    jax_norm = "(x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * y + z"
    yield Operator("layer_norm", table(ROWS, *affine), {**norm, "jax": jax_norm}, 3)
    rms = {"weft": "F.rms_norm(x, x.shape[-1], y)", "torch": "tf.rms_norm(x, x.shape[-1:], y)"}
    jax_rms = "x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1.2e-7) * y"
    yield Operator("rms_norm", table(ROWS, affine[0]), {**rms, "jax": jax_rms}, 2)
    channels = (((8,), (32,)), ((8,), (32,)))
    group = both("group_norm(x, 4, y, z)")
    yield Operator("group_norm", table(IMAGES, *channels), group, 3)
    instance = {"weft": "F.instance_norm(x, y, z)", "torch": "tf.instance_norm(x, weight=y, bias=z)"}
    yield Operator("instance_norm", table(IMAGES, *channels), instance, 3)
    batch = {
        "weft": "F.batch_norm(x, weight=y, bias=z, training=True)[0]",
        "torch": "tf.batch_norm(x, None, None, y, z, training=True)",
    }
    yield Operator("batch_norm", table(IMAGES, *channels), batch, 3)
    normalize = {"weft": "F.normalize(x, axis=-1)", "torch": "tf.normalize(x, dim=-1)"}
    yield Operator("normalize", rows, normalize, 1)

    def convolution(name, x, w, spatial):
        sides = both(f"{name}(x, y, padding=1)")
        if "transpose" not in name:
            sides["jax"] = f"lax.conv_general_dilated(x, y, {(1,) * spatial}, {((1, 1),) * spatial})"
        return Operator(name, table(x, w), sides, 2)

    yield convolution("conv1d", ((2, 8, 64), (8, 64, 1024)), ((8, 8, 3), (64, 64, 3)), 1)
    yield convolution("conv2d", IMAGES, ((8, 8, 3, 3), (32, 32, 3, 3)), 2)
    yield convolution(
        "conv3d", ((1, 4, 8, 8, 8), (2, 16, 24, 24, 24)), ((4, 4, 3, 3, 3), (16, 16, 3, 3, 3)), 3
    )
    of_jax = "lax.conv_general_dilated(x, y, (1, 1), ((1, 1), (1, 1)), feature_group_count=x.shape[1])"
    sides = both("conv2d(x, y, padding=1, groups=x.shape[1])", of_jax)
    yield Operator("conv2d of single channels", table(IMAGES, ((8, 1, 3, 3), (32, 1, 3, 3))), sides, 2)
    yield convolution("conv_transpose2d", IMAGES, ((8, 8, 3, 3), (32, 32, 3, 3)), 2)
    images = table(IMAGES)
    window = "(1, 1, 2, 2), (1, 1, 2, 2), 'VALID'"
    yield Operator(
        "max_pool2d",
        images,
        {
            "weft": "F.max_pool2d(x, 2)",
            "torch": "tf.max_pool2d(x, 2)",
            "jax": f"lax.reduce_window(x, -jnp.inf, lax.max, {window})",
        },
        1,
    )
    yield Operator(
        "avg_pool2d",
        images,
        {
            "weft": "F.avg_pool2d(x, 2)",
            "torch": "tf.avg_pool2d(x, 2)",
            "jax": f"lax.reduce_window(x, 0.0, lax.add, {window}) / 4",
        },
        1,
    )
    for name, arguments in (
        ("adaptive_avg_pool2d", "5"),
        ("adaptive_max_pool2d", "5"),
        ("local_response_norm", "5"),
        ("pixel_shuffle", "2"),
        ("pixel_unshuffle", "2"),
        ("channel_shuffle", "4"),
        ("unfold", "3"),
    ):
        sides = both(f"{name}(x, {arguments})")
        yield Operator(name, images, sides, 1)
    for mode in ("nearest", "bilinear", "bicubic"):
        sides = both(f'interpolate(x, scale_factor=2, mode="{mode}")')
        yield Operator(f"interpolate, {mode}", images, sides, 1)

    def grids(rng, large):
        x = floats(rng, IMAGES[large])
        return [x, floats(rng, (x.shape[0], *x.shape[2:], 2), -1, 1)]

    sides = {"weft": "F.grid_sample(x, y)", "torch": "tf.grid_sample(x, y, align_corners=False)"}
    yield Operator("grid_sample", grids, sides, 2)
    heads = ((1, 2, 32, 16), (4, 8, 256, 64))
    for name, causal in (("attention", ""), ("attention, causal", ", is_causal=True")):
        jax_call = f"jax.nn.dot_product_attention(*(a.swapaxes(1, 2) for a in (x, y, z)){causal})"
        call = f"scaled_dot_product_attention(x, y, z{causal})"
        yield Operator(name, table(heads, heads, heads), both(f"{call}", jax_call), 3)
    yield Operator(
        "bilinear",
        table(((16, 8), (256, 64)), ((16, 8), (256, 64)), ((4, 8, 8), (32, 64, 64))),
        both("bilinear(x, y, z)"),
        3,
    )


def losses() -> Iterator[Operator]:
    two = table(ROWS, ROWS, low=0.1, high=0.9)
    for name in [
        "mse_loss",
        "l1_loss",
        "smooth_l1_loss",
        "huber_loss",
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "kl_div",
        "poisson_nll_loss",
    ]:
        yield Operator(name, two, both(f"{name}(x, y)"), 1)
    yield Operator(
        "gaussian_nll_loss",
        table(ROWS, ROWS, ROWS, low=0.1),
        both("gaussian_nll_loss(x, y, z)"),
        1,
    )

    def classes(rng, large):
        n, m = ROWS[large]
        return [floats(rng, (n, m)), rng.integers(0, m, n)]

    jax_loss = "-jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()"
    yield Operator(
        "cross_entropy",
        classes,
        both("cross_entropy(x, y)", jax_loss),
        1,
    )
    yield Operator("nll_loss", classes, both("nll_loss(x, y)"), 1)
    yield Operator(
        "multi_margin_loss",
        classes,
        both("multi_margin_loss(x, y)"),
        1,
    )
    yield Operator(
        "cosine_similarity",
        two,
        both("cosine_similarity(x, y)"),
        2,
    )
    yield Operator(
        "pairwise_distance",
        two,
        both("pairwise_distance(x, y)"),
        2,
    )
    three = table(ROWS, ROWS, ROWS)
    yield Operator(
        "triplet_margin_loss",
        three,
        both("triplet_margin_loss(x, y, z)"),
        3,
    )

    def signs(rng, large):
        x, y, z = three(rng, large)
        return [x, y, np.sign(z)]

    yield Operator(
        "margin_ranking_loss",
        signs,
        both("margin_ranking_loss(x, y, z)"),
        2,
    )
    yield Operator(
        "soft_margin_loss",
        lambda rng, large: signs(rng, large)[1:],
        both("soft_margin_loss(x, y)"),
        1,
    )

    def texts(rng, large):
        t, n, c, s = ((20, 2, 10, 5), (100, 16, 64, 20))[large]
        return [floats(rng, (t, n, c)), rng.integers(1, c, (n, s)), np.full(n, t), np.full(n, s)]

    yield Operator(
        "ctc_loss",
        texts,
        {
            "weft": "F.ctc_loss(F.log_softmax(x, axis=-1), y, z, w)",
            "torch": "tf.ctc_loss(tf.log_softmax(x, -1), y, z, w)",
        },
        1,
    )


def every() -> dict[str, Operator]:
    """All operators by name."""
    families = (unary, binary, reductions, ordering, movement, products, networks, losses)
    found: dict[str, Operator] = {}
    for operator in (operator for family in families for operator in family()):
        assert operator.name not in found, operator.name
        sides = {side: call.replace("NAME", operator.name) for side, call in operator.calls.items()}
        found[operator.name] = operator._replace(calls=sides)
    return found


def arrays_of(operator: Operator, size: str) -> Arrays:
    return operator.inputs(np.random.default_rng(0), size == "large")


def function_of(
    operator: Operator, side: str, names: Mapping[str, Any], arrays: Arrays
) -> Callable[..., Any]:
    """The call as a function of the inputs."""
    given = ", ".join("xyzw"[: len(arrays)])
    space = {**names, "math": math, "len_z": len(arrays[2]) if len(arrays) > 2 else 0}
    function: Callable[..., Any] = eval(f"lambda {given}: {operator.calls[side]}", space)
    return function


def best_of(run: Callable[[], object]) -> float:
    """Seconds of one call, result included: the best within a while, behind one that warms caches."""
    run()
    best, end, clock = math.inf, time.perf_counter() + SAMPLE_S, time.perf_counter
    for _ in range(5000):
        start = clock()
        run()
        now = clock()
        best = min(best, now - start)
        if now > end:
            break
    return best


def serve(prepare: Callable[[Operator, str, str, str], Callable[[], object]]) -> None:
    """Answer cases, one a line as JSON [operator, size, what, way], with seconds, or a text that says why not."""
    operators = every()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print
    print(json.dumps([]), file=answers, flush=True)
    prepared: dict[str, Callable[[], object]] = {}
    for line in sys.stdin:
        name, size, what, way = json.loads(line)
        try:
            if line not in prepared:
                prepared.clear()
                prepared[line] = prepare(operators[name], size, what, way)
            answer: Any = best_of(prepared[line])
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"[:200]
        print(json.dumps(answer), file=answers, flush=True)
