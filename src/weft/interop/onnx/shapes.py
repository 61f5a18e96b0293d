"""ONNX's operators that move elements: shapes, indices, reductions, sorting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import functional as F
from weft.arrays.creation import arange, asarray, eye, full, ones
from weft.interop.onnx.calls import Call, Known, Narrow, converts, numbers, tensor
from weft.interop.onnx.elementwise import dtype_of, text


def shape_of(x: Any) -> tuple[int, ...]:
    return tuple(x.array.shape) if isinstance(x, Known) else tuple(x.shape)


@converts("Constant")
def constant(call: Call) -> Any:
    for key, kind in (
        ("value_float", np.float32),
        ("value_floats", np.float32),
        ("value_int", np.int64),
        ("value_ints", np.int64),
    ):
        if key in call.attributes:
            return Known(np.array(call.attributes[key], kind))
    value = call.get("value")
    if not isinstance(value, Known | Narrow):
        raise call.fail("a constant of this kind is not supported")
    return value


@converts("ConstantOfShape")
def constant_of_shape(call: Call, shape: Any) -> Any:
    value = call.get("value")
    sizes = tuple(int(n) for n in numbers(call, shape))
    if value is None:
        return Known(np.zeros(sizes, np.float32))
    filled = F.broadcast_to(value.tensor.reshape(()), shape=sizes)
    return Known(np.full(sizes, value.array.ravel()[0], value.array.dtype), filled)


@converts("Shape")
def shape(call: Call, x: Any) -> Any:
    return Known(np.array(shape_of(x)[slice(call.get("start", 0), call.get("end"))], np.int64))


@converts("Size")
def size(call: Call, x: Any) -> Any:
    return Known(np.array(math.prod(shape_of(x)), np.int64))


@converts("Reshape")
def reshape(call: Call, x: Any, target: Any = None) -> Any:
    x = tensor(x)
    sizes = [int(n) for n in (call.get("shape") if target is None else numbers(call, target))]
    if not call.get("allowzero", 0):
        sizes = [x.shape[d] if n == 0 else n for d, n in enumerate(sizes)]
    if -1 in sizes and 0 in x.shape:
        rest = math.prod(n for n in sizes if n != -1)
        sizes = [(math.prod(x.shape) // rest if rest else 0) if n == -1 else n for n in sizes]
    return x.reshape(tuple(sizes))


@converts("Flatten")
def flatten(call: Call, x: Any) -> Any:
    x = tensor(x)
    axis = call.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape((math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@converts("Squeeze")
def squeeze(call: Call, x: Any, axes: Any = None) -> Any:
    x = tensor(x)
    chosen = call.axes(axes)
    if chosen is None:
        chosen = [d for d, n in enumerate(x.shape) if n == 1]
    return F.squeeze(x, axis=tuple(chosen)) if chosen else x


@converts("Unsqueeze")
def unsqueeze(call: Call, x: Any, axes: Any = None) -> Any:
    return F.expand_dims(tensor(x), axis=tuple(call.axes(axes) or ()))


@converts("Transpose")
def transpose(call: Call, x: Any) -> Any:
    x = tensor(x)
    return F.permute_dims(x, axes=tuple(call.get("perm") or reversed(range(x.ndim))))


@converts("Expand")
def expand(call: Call, x: Any, target: Any) -> Any:
    x = tensor(x)
    return F.broadcast_to(
        x, shape=np.broadcast_shapes(tuple(x.shape), tuple(map(int, numbers(call, target))))
    )


@converts("Tile")
def tile(call: Call, x: Any, repeats: Any) -> Any:
    return F.tile(tensor(x), repetitions=tuple(map(int, numbers(call, repeats))))


@converts("Concat")
def concat(call: Call, *x: Any) -> Any:
    return F.concat(*map(tensor, x), axis=call.get("axis", 1))


@converts("Split")
def split(call: Call, x: Any, sizes: Any = None) -> Any:
    x, axis = tensor(x), call.get("axis", 0)
    chosen = call.axes(sizes, "split")
    if chosen is None:
        count = call.get("num_outputs", call.output_count)
        step = -(-x.shape[axis] // count)
        chosen = [max(0, min(step, x.shape[axis] - k * step)) for k in range(count)]
    return tuple(F.split(x, sizes=tuple(chosen), axis=axis))


@converts("Slice")
def slice_(call: Call, x: Any, *inputs: Any) -> Any:
    x = tensor(x)
    if inputs:
        starts, ends, axes, steps = ([*inputs, None, None])[:4]
        lists = [
            None if v is None else [int(n) for n in numbers(call, v).ravel()]
            for v in (starts, ends, axes, steps)
        ]
    else:
        lists = [call.get("starts"), call.get("ends"), call.get("axes"), None]
    begin, end, chosen, step = lists
    assert begin is not None
    assert end is not None
    key: list[Any] = [slice(None)] * x.ndim
    for k, axis in enumerate(range(len(begin)) if chosen is None else chosen):
        by = 1 if step is None else step[k]
        n = int(x.shape[axis])
        low, high = begin[k], end[k]
        low = low + n if low < 0 else low
        high = high + n if high < 0 else high
        low, high = (
            (max(0, min(low, n)), max(0, min(high, n)))
            if by > 0
            else (max(0, min(low, n - 1)), max(-1, min(high, n - 1)))
        )
        key[axis] = slice(low, None if high < 0 else high, by)
    return x[tuple(key)]


@converts("Gather")
def gather(call: Call, x: Any, indices: Any) -> Any:
    x, places, axis = tensor(x), tensor(indices), call.get("axis", 0)
    axis = axis % x.ndim
    n = int(x.shape[axis])
    places = F.where(places < 0, places + n, places)
    y = F.take(x, places.reshape((-1,)), axis=axis)
    return y.reshape((*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]))


@converts("GatherElements")
def gather_elements(call: Call, x: Any, indices: Any) -> Any:
    x, places, axis = tensor(x), tensor(indices), call.get("axis", 0) % len(shape_of(x))
    places = F.where(places < 0, places + int(x.shape[axis]), places)
    key = tuple(slice(0, n) if d != axis else slice(None) for d, n in enumerate(places.shape))
    return F.take_along_axis(x[key], places, axis=axis)


@converts("GatherND")
def gather_nd(call: Call, x: Any, indices: Any) -> Any:
    x, places, batch = tensor(x), tensor(indices), call.get("batch_dims", 0)
    count = places.shape[-1]
    return x[
        tuple(_batch_indices(places, batch) + [_column(places, k, x.shape[batch + k]) for k in range(count)])
    ]


def _batch_indices(places: Any, batch: int) -> list[Any]:
    rank = places.ndim - 1
    return [arange(places.shape[d]).reshape((-1,) + (1,) * (rank - 1 - d)) for d in range(batch)]


def _column(places: Any, k: int, n: int) -> Any:
    column = places[..., k]
    return F.where(column < 0, column + int(n), column)


_MODES = {"none": "set", "add": "add", "max": "max", "min": "min"}


@converts("ScatterElements", "Scatter")
def scatter_elements(call: Call, x: Any, indices: Any, updates: Any) -> Any:
    x, places, updates = tensor(x), tensor(indices), tensor(updates)
    axis, reduction = call.get("axis", 0) % x.ndim, text(call.get("reduction", "none"))
    if reduction == "mul":
        every = [*np.indices(places.shape)]
        every[axis] = numbers(call, indices)
        return _multiplied(x, updates, every)
    places = F.where(places < 0, places + int(x.shape[axis]), places)
    axes = [arange(n).reshape((-1,) + (1,) * (places.ndim - 1 - d)) for d, n in enumerate(places.shape)]
    key = [F.broadcast_to(places if d == axis else a, shape=tuple(places.shape)) for d, a in enumerate(axes)]
    return _put(call, x, updates, key, reduction)


@converts("ScatterND")
def scatter_nd(call: Call, x: Any, indices: Any, updates: Any) -> Any:
    x, places, updates = tensor(x), tensor(indices), tensor(updates)
    reduction = text(call.get("reduction", "none"))
    if reduction == "mul":
        return _multiplied(x, updates, [*np.moveaxis(numbers(call, indices), -1, 0)])
    key = [_column(places, k, x.shape[k]) for k in range(places.shape[-1])]
    return _put(call, x, updates, key, reduction)


@converts("TensorScatter")
def tensor_scatter(call: Call, x: Any, update: Any, starts: Any = None) -> Any:
    """A cache with new elements along an axis, from a place on that each example has; circular: behind the end at 0."""
    x, update, axis = tensor(x), tensor(update), call.get("axis", -2) % len(shape_of(x))
    count = [-1 if d == axis else 1 for d in range(x.ndim)]
    places = arange(update.shape[axis]).reshape(count)
    if starts is not None:
        places = places + tensor(starts).reshape([-1, *[1] * (x.ndim - 1)])
    if text(call.get("mode", "linear")) == "circular":
        places = F.remainder(places, int(x.shape[axis]))
    places = F.broadcast_to(places, shape=tuple(update.shape))
    return F.put_along_axis(x, places, update, axis=axis)


def _put(call: Call, x: Any, updates: Any, key: list[Any], reduction: str) -> Any:
    if reduction not in _MODES:
        raise call.fail(f"reduction {reduction!r} is not supported")
    return F.index_put(x, updates, *key, axes=tuple(range(len(key))), position=0, mode=_MODES[reduction])


def _multiplied(x: Any, updates: Any, key: list[Any]) -> Any:
    """The elements at indices of the first axes, which are known, times updates; equal ones one after the other."""
    sizes = tuple(int(n) for n in x.shape[: len(key)])
    key = [np.where(k < 0, k + n, k).reshape(-1) for k, n in zip(key, sizes, strict=True)]
    places = np.ravel_multi_index(key, sizes)
    updates = updates.reshape((len(places), *x.shape[len(key) :]))
    order = np.argsort(places, kind="stable")
    is_first = np.append(True, np.diff(places[order]) != 0)[: len(places)]
    since = np.arange(len(places)) - np.maximum.accumulate(np.where(is_first, np.arange(len(places)), 0))
    rounds = np.empty_like(since)  # how many equal indices are before each
    rounds[order] = since
    options: dict[str, Any] = {"axes": tuple(range(len(key))), "position": 0}
    for k in range(int(rounds.max(initial=-1)) + 1):
        chosen = np.nonzero(rounds == k)[0]
        at = [asarray(each[chosen]) for each in key]
        product = F.index_get(x, *at, **options) * F.take(updates, asarray(chosen), axis=0)
        x = F.index_put(x, product, *at, **options, mode="set")
    return x


@converts("OneHot")
def one_hot(call: Call, indices: Any, depth: Any, values: Any) -> Any:
    places, n, axis = (
        tensor(indices).astype("int64"),
        int(numbers(call, depth).ravel()[0]),
        call.get("axis", -1),
    )
    values = tensor(values)
    places = F.where(places < 0, places + n, places)
    axis = axis % (places.ndim + 1)
    line = arange(n).reshape((n,) + (1,) * (places.ndim - axis))
    return F.where(F.equal(F.expand_dims(places, axis=axis), line), values[1, ...], values[0, ...])


@converts("Range")
def range_(call: Call, start: Any, limit: Any, delta: Any) -> Any:
    a, b, step = (numbers(call, v).ravel()[0] for v in (start, limit, delta))
    count = max(0, math.ceil((b - a) / step))
    return Known((a + np.arange(count) * step).astype(a.dtype))


@converts("EyeLike")
def eye_like(call: Call, x: Any) -> Any:
    dtype = dtype_of(call, call.get("dtype")) if "dtype" in call.attributes else tensor(x).dtype
    rows, columns = shape_of(x)
    return eye(rows, columns, k=call.get("k", 0)).astype(dtype)


@converts("Trilu")
def trilu(call: Call, x: Any, k: Any = None) -> Any:
    offset = 0 if k is None else int(numbers(call, k).ravel()[0])
    return (F.triu if call.get("upper", 1) else F.tril)(tensor(x), k=offset)


@converts("Pad")
def pad(call: Call, x: Any, pads: Any = None, value: Any = None, axes: Any = None) -> Any:
    x, mode = tensor(x), text(call.get("mode", "constant"))
    widths = [int(n) for n in (call.get("pads") if pads is None else numbers(call, pads))]
    fill = call.get("value", 0.0) if value is None else numbers(call, value).ravel()[0].item()
    chosen = list(range(x.ndim)) if axes is None else [int(n) % x.ndim for n in numbers(call, axes)]
    for axis, low, high in zip(chosen, widths, widths[len(chosen) :], strict=False):
        x = _padded(call, x, axis, low, high, mode, fill)
    return x


def _padded(call: Call, x: Any, axis: int, low: int, high: int, mode: str, fill: Any) -> Any:
    n = int(x.shape[axis])
    if low < 0 or high < 0:
        key = [slice(None)] * x.ndim
        key[axis] = slice(max(0, -low), n - max(0, -high))
        x, n = x[tuple(key)], n - max(0, -low) - max(0, -high)
        low, high = max(0, low), max(0, high)
    if not low and not high:
        return x
    if mode == "constant":
        sides = [
            full(tuple(k if d == axis else m for d, m in enumerate(x.shape)), fill, dtype=x.dtype)
            for k in (low, high)
        ]
        return F.concat(sides[0], x, sides[1], axis=axis)
    places = {"edge": "edge", "reflect": "reflect", "wrap": "wrap"}.get(mode)
    if places is None:
        raise call.fail(f"mode {mode!r} is not supported")
    return F.take(x, asarray(np.pad(np.arange(n), (low, high), mode=places)), axis=axis)  # type: ignore[call-overload]


@converts("DepthToSpace")
def depth_to_space(call: Call, x: Any) -> Any:
    x, b = tensor(x), call.get("blocksize")
    n, c, h, w = x.shape
    if text(call.get("mode", "DCR")) == "DCR":
        return F.permute_dims(x.reshape((n, b, b, c // (b * b), h, w)), (0, 3, 4, 1, 5, 2)).reshape(
            (n, c // (b * b), h * b, w * b)
        )
    return F.permute_dims(x.reshape((n, c // (b * b), b, b, h, w)), (0, 1, 4, 2, 5, 3)).reshape(
        (n, c // (b * b), h * b, w * b)
    )


@converts("SpaceToDepth")
def space_to_depth(call: Call, x: Any) -> Any:
    x, b = tensor(x), call.get("blocksize")
    n, c, h, w = x.shape
    order = (0, 1, 3, 5, 2, 4) if text(call.get("mode", "DCR")) == "CRD" else (0, 3, 5, 1, 2, 4)
    parted = F.permute_dims(x.reshape((n, c, h // b, b, w // b, b)), order)
    return parted.reshape((n, c * b * b, h // b, w // b))


# ---- Reductions, sorting ---------------------------------------------------------------------------------------------


def _reduced(operator: str, x: Any, **options: Any) -> Any:
    match operator:
        case "ReduceL1":
            return F.sum(F.abs(x), **options)
        case "ReduceL2":
            wide = x.astype("float64") if x.dtype.is_integer else x
            return F.sqrt(F.sum(wide * wide, **options))
        case "ReduceSumSquare":
            return F.sum(x * x, **options)
        case "ReduceLogSum":
            return F.log(F.sum(x, **options))
        case "ReduceLogSumExp":
            return F.logsumexp(x, **options)
    return getattr(F, operator.removeprefix("Reduce").lower())(x, **options)


@converts(
    "ReduceSum",
    "ReduceMean",
    "ReduceProd",
    "ReduceMax",
    "ReduceMin",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSum",
    "ReduceLogSumExp",
)
def reduce(call: Call, x: Any, axes: Any = None) -> Any:
    x, keepdims = tensor(x), bool(call.get("keepdims", 1))
    chosen = call.axes(axes)
    is_bool = x.dtype.name == "bool"
    if not chosen and call.get("noop_with_empty_axes", 0):
        return _reduced(call.operator, F.expand_dims(x, axis=0), axis=0).astype(x.dtype)
    y = _reduced(
        call.operator,
        x.astype("uint8") if is_bool else x,
        axis=tuple(range(x.ndim)) if not chosen else tuple(chosen),
        keepdims=keepdims,
    )
    return y.astype(x.dtype)


@converts("ArgMax", "ArgMin")
def arg_max(call: Call, x: Any) -> Any:
    x, axis, keepdims = tensor(x), call.get("axis", 0), bool(call.get("keepdims", 1))
    function = F.argmax if call.operator == "ArgMax" else F.argmin
    if not call.get("select_last_index", 0):
        return function(x, axis=axis, keepdims=keepdims)
    return int(x.shape[axis]) - 1 - function(F.flip(x, axis=axis), axis=axis, keepdims=keepdims)


@converts("TopK")
def top_k(call: Call, x: Any, k: Any = None) -> Any:
    count = call.get("k") if k is None else int(numbers(call, k).ravel()[0])
    return F.topk(tensor(x), k=count, axis=call.get("axis", -1), largest=bool(call.get("largest", 1)))


@converts("CumSum")
def cum_sum(call: Call, x: Any, axis: Any) -> Any:
    x, d, is_reversed = tensor(x), int(numbers(call, axis).ravel()[0]), bool(call.get("reverse", 0))
    y = F.cumulative_sum(x, axis=d, reverse=is_reversed).astype(x.dtype)
    return y - x if call.get("exclusive", 0) else y


@converts("CumProd")
def cum_prod(call: Call, x: Any, axis: Any) -> Any:
    x, d, is_reversed = tensor(x), int(numbers(call, axis).ravel()[0]), bool(call.get("reverse", 0))
    if call.get("exclusive", 0) and x.shape[d]:
        one = ones(tuple(1 if k == d % x.ndim else n for k, n in enumerate(x.shape)), dtype=x.dtype)
        low, high = (1, x.shape[d]) if is_reversed else (0, x.shape[d] - 1)
        rest = F.slice(x, starts=(low,), stops=(high,), axes=(d,))
        x = F.concat(*((rest, one) if is_reversed else (one, rest)), axis=d)
    return F.cumulative_prod(x, axis=d, reverse=is_reversed).astype(x.dtype)


@converts("NonZero")
def non_zero(call: Call, x: Any) -> Any:
    return Known(np.array(np.nonzero(numbers(call, x)), np.int64))


@converts("Unique")
def unique(call: Call, x: Any) -> Any:
    axis = call.get("axis")
    values, first, inverse, counts = np.unique(numbers(call, x), True, True, True, axis=axis)
    if not call.get("sorted", 1):
        order = np.argsort(first, kind="stable")
        values = np.take(values, order, axis=axis or 0)
        inverse, first, counts = np.argsort(order)[inverse.ravel()], first[order], counts[order]
    return tuple(Known(each) for each in (values, first, inverse.ravel(), counts))


@converts("Compress")
def compress(call: Call, x: Any, condition: Any) -> Any:
    chosen = np.nonzero(numbers(call, condition))[0]
    axis = call.get("axis")
    x = tensor(x).reshape((-1,)) if axis is None else tensor(x)
    return F.take(x, asarray(chosen), axis=axis or 0)


@converts("ReverseSequence")
def reverse_sequence(call: Call, x: Any, lengths: Any) -> Any:
    x, time = tensor(x), call.get("time_axis", 0)
    y = F.sequence_reverse(x if time == 0 else F.swapaxes(x, 0, 1), tensor(lengths), axis=0)
    return y if time == 0 else F.swapaxes(y, 0, 1)
