"""Operators of MXNet whose meaning in weft's operators depends on sizes or ranks: functions on values, by name.

Source: Apache MXNet 1.9, src/operator, and the documentation of its operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from weft.base.dtype import as_dtype, float32, int64
from weft.base.typing import Any
from weft.interop.mxnet.attributes import Attributes
from weft.interop.mxnet.values import created, numbered
from weft.ops import functions as F
from weft.ops.pointwise import cast_to

__all__ = ["CONVERSIONS", "OUTPUTS"]

Conversion = Callable[..., Any]
CONVERSIONS: dict[str, Conversion] = {}
# How many outputs a node has, where that is not one; by its attributes.
OUTPUTS: dict[str, Callable[[Attributes], int]] = {}


def by_sizes(*names: str) -> Callable[[Conversion], Conversion]:
    """Adds a conversion under these names."""

    def add(function: Conversion) -> Conversion:
        CONVERSIONS.update(dict.fromkeys(names, function))
        return function

    return add


def part(x: Any, ranges: Sequence[tuple[int, int, int]]) -> Any:
    """Elements of x: (start, count, step) for each axis."""
    return F.basic_index(x, items=tuple(ranges))


def along(x: Any, axis: int, start: int, count: int) -> Any:
    """x with some elements of one axis."""
    return part(x, [(start, count, 1) if d == axis else (0, n, 1) for d, n in enumerate(x.shape)])


def never_0d(y: Any) -> Any:
    """MXNet has no 0-d arrays: one element has shape (1,)."""
    return F.reshape(y, shape=(1,)) if y.ndim == 0 else y


# ---- Shapes ----------------------------------------------------------------------------------------------------------


def reshaped(shape: Sequence[int], codes: Sequence[int], a: Attributes) -> tuple[int, ...]:
    """The sizes that codes stand for: 0 keep, -1 infer, -2 the rest, -3 the product of two, -4 a split in two."""
    result: list[int] = []
    at, inferred, k = 0, None, 0
    try:
        while k < len(codes):
            code = codes[k]
            if code == 0:
                result.append(shape[at])
            elif code == -1:
                inferred = len(result)
                result.append(1)
            elif code == -2:
                result.extend(shape[at:])
                at = len(shape)
            elif code == -3:
                result.append(shape[at] * shape[at + 1])
                at += 1
            elif code == -4:
                first, second = codes[k + 1], codes[k + 2]
                whole = shape[at]
                result.extend(
                    (whole // second if first == -1 else first, whole // first if second == -1 else second)
                )
                k += 2
            else:
                result.append(code)
            at += 1
            k += 1
    except (IndexError, ZeroDivisionError):
        raise a.fail(f"codes {tuple(codes)} do not fit shape {tuple(shape)}") from None
    if inferred is not None:
        result[inferred] = math.prod(shape) // max(1, math.prod(result))
    return tuple(result)


@by_sizes("Reshape", "reshape")
def reshape(a: Attributes, x: Any) -> Any:
    codes, is_reversed = a.sizes("shape"), a.flag("reverse", False)
    shape = tuple(map(int, x.shape))
    if not is_reversed:
        return F.reshape(x, shape=reshaped(shape, codes, a))
    if -4 in codes:
        raise a.fail("reverse with the code -4 is not supported")
    return F.reshape(x, shape=tuple(reversed(reshaped(shape[::-1], codes[::-1], a))))


@by_sizes("reshape_like")
def reshape_like(a: Attributes, x: Any, y: Any) -> Any:
    ends = [a.integer(f"{side}_{end}", None) for side in ("lhs", "rhs") for end in ("begin", "end")]
    n = [None if e is None else e % (x.ndim if k < 2 else y.ndim) if e < 0 else e for k, e in enumerate(ends)]
    lhs, rhs = slice(n[0], n[1]), slice(n[2], n[3])
    shape = list(x.shape)
    shape[lhs] = y.shape[rhs]
    return F.reshape(x, shape=tuple(shape))


@by_sizes("transpose")
def transpose(a: Attributes, x: Any) -> Any:
    axes = a.sizes("axes", ()) or tuple(reversed(range(x.ndim)))
    return F.permute_dims(x, axes=axes)


@by_sizes("squeeze")
def squeeze(a: Attributes, x: Any) -> Any:
    axes = a.sizes("axis", None)
    if axes is None:
        axes = tuple(d for d, n in enumerate(x.shape) if n == 1)
        axes = axes[1:] if len(axes) == x.ndim else axes
    return never_0d(F.squeeze(x, axis=axes)) if axes else F.positive(x)


@by_sizes("slice", "crop", "_slice")
def slice_(a: Attributes, x: Any) -> Any:
    begin, end = a.sizes("begin", allows_none=True), a.sizes("end", allows_none=True)
    step = a.sizes("step", (), allows_none=True)
    ranges = []
    for d, n in enumerate(x.shape):
        bounds = [each[d] if d < len(each) else None for each in (begin, end, step)]
        chosen = range(int(n))[slice(*bounds)]
        ranges.append((chosen.start, len(chosen), chosen.step))
    return part(x, ranges)


@by_sizes("slice_axis")
def slice_axis(a: Attributes, x: Any) -> Any:
    axis = a.integer("axis") % x.ndim
    chosen = range(int(x.shape[axis]))[a.integer("begin") : a.integer("end", None)]
    return along(x, axis, chosen.start, len(chosen))


@by_sizes("slice_like")
def slice_like(a: Attributes, x: Any, like: Any) -> Any:
    axes = a.sizes("axes", ()) or tuple(range(min(x.ndim, like.ndim)))
    axes = {axis % x.ndim for axis in axes}
    return part(x, [(0, like.shape[d] if d in axes else n, 1) for d, n in enumerate(x.shape)])


@by_sizes("broadcast_to")
def broadcast_to(a: Attributes, x: Any) -> Any:
    shape = tuple(n or x.shape[d] for d, n in enumerate(a.sizes("shape")))
    return F.broadcast_to(x, shape=shape)


@by_sizes("broadcast_like")
def broadcast_like(a: Attributes, x: Any, like: Any) -> Any:
    mine, theirs = a.sizes("lhs_axes", None), a.sizes("rhs_axes", None)
    if mine is None:
        return F.broadcast_to(x, shape=like.shape)
    shape = list(x.shape)
    for d, k in zip(mine, theirs or mine, strict=True):
        shape[d] = like.shape[k]
    return F.broadcast_to(x, shape=tuple(shape))


@by_sizes("broadcast_axis", "broadcast_axes")
def broadcast_axis(a: Attributes, x: Any) -> Any:
    shape = list(x.shape)
    for axis, n in zip(a.sizes("axis", ()), a.sizes("size", ()), strict=True):
        shape[axis] = n
    return F.broadcast_to(x, shape=tuple(shape))


@by_sizes("tile")
def tile(a: Attributes, x: Any) -> Any:
    return F.tile(x, repetitions=a.sizes("reps"))


@by_sizes("SliceChannel", "split")
def slice_channel(a: Attributes, x: Any) -> Any:
    count, axis = a.integer("num_outputs"), a.integer("axis", 1) % x.ndim
    size, rest = divmod(int(x.shape[axis]), count)
    if rest:
        raise a.fail(f"axis {axis} of size {x.shape[axis]} does not split into {count}")
    parts = [along(x, axis, k * size, size) for k in range(count)]
    return results(parts, axis, a.flag("squeeze_axis", False))


def results(parts: list[Any], axis: int, is_squeezed: bool) -> Any:
    """Parts as outputs."""
    parts = [never_0d(F.squeeze(x, axis=axis)) for x in parts] if is_squeezed else parts
    return tuple(parts) if len(parts) > 1 else parts[0]


OUTPUTS["SliceChannel"] = OUTPUTS["split"] = lambda a: int(a.integer("num_outputs"))


@by_sizes("_split_v2")
def split_v2(a: Attributes, x: Any) -> Any:
    axis, sections = a.integer("axis", 0) % x.ndim, a.integer("sections", 0)
    n = int(x.shape[axis])
    indices = a.sizes("indices", ())
    begins = tuple(k * (n // sections) for k in range(sections)) if sections else indices
    ends = (*begins[1:], n)
    parts = [along(x, axis, begin, end - begin) for begin, end in zip(begins, ends, strict=True)]
    return results(parts, axis, a.flag("squeeze_axis", False))


OUTPUTS["_split_v2"] = lambda a: int(a.integer("sections", 0)) or len(a.sizes("indices", ()))


@by_sizes("Pad", "pad")
def pad(a: Attributes, x: Any) -> Any:
    mode, widths, value = (
        a.choice("mode", "constant", "edge", "reflect"),
        a.sizes("pad_width"),
        a.number("constant_value", 0.0),
    )
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    if len(pairs) != x.ndim:
        raise a.fail(f"pad_width {widths} is not for {x.ndim} dimensions")
    for axis, (low, high) in enumerate(pairs):
        if not low and not high:
            continue
        n = int(x.shape[axis])
        if mode == "constant":
            sizes = [tuple(k if d == axis else s for d, s in enumerate(x.shape)) for k in (low, high)]
            sides = [created(x, "full", shape=size, value=value, dtype=x.dtype) for size in sizes]
        elif mode == "edge":
            sides = [repeated(along(x, axis, at, 1), axis, k) for at, k in ((0, low), (n - 1, high))]
        else:
            sides = [
                part(x, [(start, k, -1) if d == axis else (0, s, 1) for d, s in enumerate(x.shape)])
                for start, k in ((low, low), (n - 2, high))
            ]
        parts = [side for side, k in ((sides[0], low), (x, n), (sides[1], high)) if k]
        x = F.concat(*parts, axis=axis)
    return F.positive(x)


def repeated(x: Any, axis: int, count: int) -> Any:
    """One element of an axis several times."""
    return F.broadcast_to(x, shape=tuple(count if d == axis else n for d, n in enumerate(x.shape)))


@by_sizes("reverse", "flip")
def flip(a: Attributes, x: Any) -> Any:
    return F.flip(x, axis=a.sizes("axis"))


@by_sizes("shape_array")
def shape_array(a: Attributes, x: Any) -> Any:
    return F.concat(*[created(x, "full", shape=(1,), value=int(n), dtype=int64) for n in x.shape], axis=0)


@by_sizes("size_array")
def size_array(a: Attributes, x: Any) -> Any:
    return created(x, "full", shape=(1,), value=math.prod(map(int, x.shape)), dtype=int64)


@by_sizes("_contrib_arange_like")
def arange_like(a: Attributes, x: Any) -> Any:
    start, step, axis = a.number("start", 0.0), a.number("step", 1.0), a.integer("axis", None)
    if a.integer("repeat", 1) != 1:
        raise a.fail("attribute repeat is not supported")
    a.text("ctx", "")
    count = math.prod(x.shape) if axis is None else x.shape[axis]
    numbers = created(x, "stepped", shape=(int(count),), start=start, step=step, dtype=x.dtype)
    return F.reshape(numbers, shape=x.shape) if axis is None else numbers


# ---- Reductions ------------------------------------------------------------------------------------------------------


def axes_of(a: Attributes, x: Any) -> tuple[int, ...]:
    """The axes that a reduction is along."""
    axes = a.sizes("axis", None)
    every = tuple(range(x.ndim))
    chosen = every if axes in (None, ()) else tuple(axis % x.ndim for axis in axes)
    return tuple(d for d in every if d not in chosen) if a.flag("exclude", False) and axes else chosen


def _with_whole_slopes(x: Any, y: Any, extreme: Any, axes: Any, keepdims: bool) -> Any:
    """y; of equal extremes each has the whole gradient, which weft's operators divide among them."""
    x_value, y = F.stop_gradient(x), F.stop_gradient(y)
    is_extreme = F.equal(x_value, F.stop_gradient(extreme)) & F.isfinite(x_value)
    return y + F.sum(F.where(is_extreme, x - x_value, 0), axis=axes, keepdims=keepdims)  # of zeros


def _reduction(name: str) -> Conversion:
    operator, neutral = (
        name.removeprefix("nan").removesuffix("_axis"),
        {"nansum": 0.0, "nanprod": 1.0}.get(name),
    )

    def convert(a: Attributes, x: Any) -> Any:
        values = x if neutral is None else F.where(F.isnan(x), neutral, x)
        axes, keepdims = axes_of(a, x), a.flag("keepdims", False)
        y = getattr(F, operator)(values, axis=axes, keepdims=keepdims)
        if operator in ("max", "min") and x.dtype.is_differentiable:
            y = _with_whole_slopes(x, y, getattr(F, operator)(x, axis=axes, keepdims=True), axes, keepdims)
        return never_0d(cast_to(y, x.dtype))

    return convert


_REDUCTIONS = ("sum", "sum_axis", "mean", "prod", "max", "max_axis", "min", "min_axis", "nansum", "nanprod")
CONVERSIONS.update({name: _reduction(name) for name in _REDUCTIONS})


@by_sizes("norm")
def norm(a: Attributes, x: Any) -> Any:
    order, keepdims = a.integer("ord", 2), a.flag("keepdims", False)
    axes = a.sizes("axis", None)
    axes = tuple(range(x.ndim)) if axes is None else tuple(axis % x.ndim for axis in axes)
    if order not in (1, 2):
        raise a.fail(f"attribute ord={order} is not supported")
    if order == 1:
        return never_0d(F.sum(abs(x), axis=axes, keepdims=keepdims))
    return never_0d(F.sqrt(F.sum(x * x, axis=axes, keepdims=keepdims)))


def _index_of(operator: str) -> Conversion:
    def convert(a: Attributes, x: Any) -> Any:
        function = getattr(F, operator)
        axis, keepdims = a.integer("axis", None), a.flag("keepdims", False)
        if axis is None:
            y = function(F.reshape(x, shape=(-1,)), axis=0)
            return F.reshape(cast_to(y, float32), shape=(1,) * (x.ndim if keepdims else 1))
        return never_0d(cast_to(function(x, axis=axis, keepdims=keepdims), float32))

    return convert


CONVERSIONS.update({name: _index_of(name) for name in ("argmax", "argmin")})


@by_sizes("argmax_channel")
def argmax_channel(a: Attributes, x: Any) -> Any:
    return cast_to(F.argmax(F.reshape(x, shape=(x.shape[0], -1)), axis=1), float32)


def _flat(a: Attributes, x: Any) -> tuple[Any, int]:
    axis = a.integer("axis", -1, allows_none=True)
    return (F.reshape(x, shape=(-1,)), 0) if axis is None else (x, axis % x.ndim)


@by_sizes("sort")
def sort(a: Attributes, x: Any) -> Any:
    x, axis = _flat(a, x)
    return F.sort(x, axis=axis, descending=not a.flag("is_ascend", True))


@by_sizes("argsort")
def argsort(a: Attributes, x: Any) -> Any:
    x, axis = _flat(a, x)
    return cast_to(
        F.argsort(x, axis=axis, descending=not a.flag("is_ascend", True)),
        as_dtype(a.dtype(default="float32")),
    )


@by_sizes("topk")
def topk(a: Attributes, x: Any) -> Any:
    kind = a.choice("ret_typ", "indices", "value", "both", "mask")
    k, ascending = a.integer("k", 1), a.flag("is_ascend", False)
    dtype = as_dtype(a.dtype(default="float32"))
    x, axis = _flat(a, x)
    values, indices = F.topk(x, k=k if k > 0 else int(x.shape[axis]), axis=axis, largest=not ascending)
    if kind == "mask":
        zeros = F.filled_like(x, value=0.0)
        return F.put_along_axis(zeros, indices, F.filled_like(values, value=1.0), axis=axis)
    indices = cast_to(indices, dtype)
    return (values, indices) if kind == "both" else values if kind == "value" else indices


OUTPUTS["topk"] = lambda a: 2 if a.text("ret_typ", "indices") == "both" else 1


# ---- Indices ---------------------------------------------------------------------------------------------------------


def bounded(indices: Any, size: Any, mode: str) -> Any:
    """Indices as integers inside of an axis: clipped, or wrapped around."""
    indices = cast_to(indices, int64)
    n = int(size)
    return F.remainder(indices, n) if mode == "wrap" else F.clip(indices, 0, n - 1)


@by_sizes("take")
def take(a: Attributes, x: Any, indices: Any) -> Any:
    axis = a.integer("axis", 0) % x.ndim
    places = bounded(indices, x.shape[axis], a.choice("mode", "clip", "wrap"))
    y = F.take(x, F.reshape(places, shape=(-1,)), axis=axis)
    return F.reshape(y, shape=(*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]))


@by_sizes("Embedding")
def embedding(a: Attributes, indices: Any, table: Any) -> Any:
    a.integer("input_dim"), a.integer("output_dim"), a.dtype(default="float32"), a.flag("sparse_grad", False)
    return F.embedding(bounded(indices, table.shape[0], "clip"), table)


@by_sizes("pick")
def pick(a: Attributes, x: Any, indices: Any) -> Any:
    axis, keepdims = a.integer("axis", -1) % x.ndim, a.flag("keepdims", False)
    mode = a.choice("mode", "clip", "wrap")
    shape = tuple(1 if d == axis else n for d, n in enumerate(x.shape))
    y = F.take_along_axis(x, F.reshape(bounded(indices, x.shape[axis], mode), shape=shape), axis=axis)
    return y if keepdims else never_0d(F.squeeze(y, axis=axis))


@by_sizes("batch_take")
def batch_take(a: Attributes, x: Any, indices: Any) -> Any:
    places = F.expand_dims(bounded(indices, x.shape[1], "clip"), axis=1)
    return F.squeeze(F.take_along_axis(x, places, axis=1), axis=1)


@by_sizes("gather_nd")
def gather_nd(a: Attributes, x: Any, indices: Any) -> Any:
    count = int(indices.shape[0])
    rows = [F.squeeze(along(cast_to(indices, int64), 0, k, 1), axis=0) for k in range(count)]
    return never_0d(F.index_get(x, *rows, axes=tuple(range(count)), position=0))


@by_sizes("scatter_nd")
def scatter_nd(a: Attributes, x: Any, indices: Any) -> Any:
    count, shape = int(indices.shape[0]), a.sizes("shape")
    rows = [F.squeeze(along(cast_to(indices, int64), 0, k, 1), axis=0) for k in range(count)]
    zeros = created(x, "full", shape=shape, value=0, dtype=x.dtype)
    return F.index_put(zeros, x, *rows, axes=tuple(range(count)), position=0)


@by_sizes("one_hot")
def one_hot(a: Attributes, indices: Any) -> Any:
    depth, dtype = a.integer("depth"), as_dtype(a.dtype(default="float32"))
    on, off = a.number("on_value", 1.0), a.number("off_value", 0.0)
    places = F.reshape(numbered(indices, depth), shape=(1,) * indices.ndim + (depth,))
    is_class = F.equal(F.expand_dims(cast_to(indices, int64), axis=-1), places)
    return cast_to(F.where(is_class, on, off), dtype)


@by_sizes("where")
def where(a: Attributes, condition: Any, x: Any, y: Any) -> Any:
    is_true = F.not_equal(condition, 0)
    if condition.ndim == 1 and x.ndim > 1:
        is_true = F.reshape(is_true, shape=(-1,) + (1,) * (x.ndim - 1))
    return F.where(is_true, x, y)


def _lengths(a: Attributes, x: Any, lengths: tuple[Any, ...]) -> Any:
    """The lengths of sequences; None without use_sequence_length."""
    return cast_to(lengths[0], int64) if a.flag("use_sequence_length", False) else None


@by_sizes("SequenceMask")
def sequence_mask(a: Attributes, x: Any, *lengths: Any) -> Any:
    axis, value, count = a.integer("axis", 0), a.number("value", 0.0), _lengths(a, x, lengths)
    return F.positive(x) if count is None else F.sequence_mask(x, count, value=value, axis=axis)


@by_sizes("SequenceLast")
def sequence_last(a: Attributes, x: Any, *lengths: Any) -> Any:
    axis, count = a.integer("axis", 0), _lengths(a, x, lengths)
    if count is None:
        return F.squeeze(along(x, axis, int(x.shape[axis]) - 1, 1), axis=axis)
    return F.sequence_last(x, count, axis=axis)


@by_sizes("SequenceReverse")
def sequence_reverse(a: Attributes, x: Any, *lengths: Any) -> Any:
    axis, count = a.integer("axis", 0), _lengths(a, x, lengths)
    return F.flip(x, axis=axis) if count is None else F.sequence_reverse(x, count, axis=axis)


# ---- Matrices --------------------------------------------------------------------------------------------------------


def transposed(x: Any, is_transposed: bool) -> Any:
    return F.swapaxes(x, axis1=-1, axis2=-2) if is_transposed else x


@by_sizes("dot")
def dot(a: Attributes, x: Any, y: Any) -> Any:
    flags = a.flag("transpose_a", False), a.flag("transpose_b", False)
    a.text("forward_stype", None)
    if x.ndim > 2 or y.ndim > 2:
        if any(flags):
            raise a.fail(f"transposed operands of {x.ndim} and {y.ndim} dimensions are not supported")
        return never_0d(F.tensordot(x, y, axes=1))
    x = transposed(x, flags[0]) if x.ndim == 2 else x
    y = transposed(y, flags[1]) if y.ndim == 2 else y
    return never_0d(F.matmul(x, y))


@by_sizes("batch_dot", "_linalg_gemm2", "linalg_gemm2")
def gemm2(a: Attributes, x: Any, y: Any) -> Any:
    if a.integer("axis", -2) != -2:
        raise a.fail("attribute axis is not supported")
    a.text("forward_stype", None)
    alpha = a.number("alpha", 1.0)
    z = F.matmul(transposed(x, a.flag("transpose_a", False)), transposed(y, a.flag("transpose_b", False)))
    return z if alpha == 1 else z * alpha


@by_sizes("_linalg_gemm", "linalg_gemm")
def gemm(a: Attributes, x: Any, y: Any, z: Any) -> Any:
    beta = a.number("beta", 1.0)
    return gemm2(a, x, y) + (z if beta == 1 else z * beta)


@by_sizes("_linalg_syrk", "linalg_syrk")
def syrk(a: Attributes, x: Any) -> Any:
    is_first = a.flag("transpose", False)
    return F.matmul(transposed(x, is_first), transposed(x, not is_first)) * a.number("alpha", 1.0)


@by_sizes("_linalg_potrf", "linalg_potrf")
def potrf(a: Attributes, x: Any) -> Any:
    return F.cholesky(x)


@by_sizes("_linalg_sumlogdiag", "linalg_sumlogdiag")
def sumlogdiag(a: Attributes, x: Any) -> Any:
    return never_0d(F.sum(F.log(F.diagonal(x, axis1=-2, axis2=-1)), axis=-1))


@by_sizes("_linalg_inverse", "linalg_inverse")
def inverse(a: Attributes, x: Any) -> Any:
    return F.inv(x)


@by_sizes("_linalg_det", "linalg_det")
def det(a: Attributes, x: Any) -> Any:
    return never_0d(F.det(x))


@by_sizes("_contrib_div_sqrt_dim")
def div_sqrt_dim(a: Attributes, x: Any) -> Any:
    return x / math.sqrt(x.shape[-1])


def _heads(x: Any, heads: int, parts: int) -> list[Any]:
    """Of x [t, n, heads * parts * d], with the parts of each head in turn: each part as [n * heads, t, d]."""
    t, n, width = x.shape
    d = int(width) // (heads * parts)
    split = F.permute_dims(F.reshape(x, shape=(t, n, heads, parts, d)), axes=(3, 1, 2, 0, 4))
    split = F.reshape(split, shape=(parts, n * heads, t, d))
    return [F.squeeze(along(split, 0, k, 1), axis=0) for k in range(parts)]


def _scores(q: Any, k: Any) -> Any:
    return F.matmul(q / math.sqrt(q.shape[-1]), transposed(k, True))


def _attended(weights: Any, v: Any, heads: int) -> Any:
    y = F.matmul(weights, v)
    rows, t, d = y.shape
    n = rows // heads
    y = F.permute_dims(F.reshape(y, shape=(n, heads, t, d)), axes=(2, 0, 1, 3))
    return F.reshape(y, shape=(t, n, heads * d))


@by_sizes("_contrib_interleaved_matmul_selfatt_qk")
def selfatt_qk(a: Attributes, x: Any) -> Any:
    q, k, _ = _heads(x, a.integer("heads"), 3)
    return _scores(q, k)


@by_sizes("_contrib_interleaved_matmul_selfatt_valatt")
def selfatt_valatt(a: Attributes, x: Any, weights: Any) -> Any:
    heads = a.integer("heads")
    return _attended(weights, _heads(x, heads, 3)[2], heads)


@by_sizes("_contrib_interleaved_matmul_encdec_qk")
def encdec_qk(a: Attributes, queries: Any, keys_values: Any) -> Any:
    heads = a.integer("heads")
    return _scores(_heads(queries, heads, 1)[0], _heads(keys_values, heads, 2)[0])


@by_sizes("_contrib_interleaved_matmul_encdec_valatt")
def encdec_valatt(a: Attributes, keys_values: Any, weights: Any) -> Any:
    heads = a.integer("heads")
    return _attended(weights, _heads(keys_values, heads, 2)[1], heads)
