"""ONNX's operators on matrices, images and sequences, and quantization."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft import functional as F
from weft.arrays.creation import arange, ones, zeros
from weft.interop.onnx.calls import CONVERSIONS, Call, Narrow, converts, numbers, tensor
from weft.interop.onnx.elementwise import dtype_of, text
from weft.interop.onnx.narrow import INTEGERS, NARROW, narrowed
from weft.interop.onnx.regions import places_of_maxima


@converts("MatMul")
def matmul(call: Call, a: Any, b: Any) -> Any:
    return F.matmul(tensor(a), tensor(b))


@converts("Gemm")
def gemm(call: Call, a: Any, b: Any, c: Any = None) -> Any:
    a, b, c = tensor(a), tensor(b), tensor(c)
    a = a.T if call.get("transA", 0) else a
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    b = b if call.get("transB", 0) else b.T
    if alpha == 1 and c is not None and beta == 1 and c.ndim == 1 and c.shape[0] == b.shape[0]:
        return F.linear(a, b, c)
    y = F.linear(a, b)
    y = y if alpha == 1 else (y * alpha).astype(a.dtype)
    return y if c is None else y + (c if beta == 1 else (c * beta).astype(c.dtype))


@converts("Einsum")
def einsum(call: Call, *x: Any) -> Any:
    return F.einsum(text(call.get("equation")).replace(" ", ""), *map(tensor, x))


def by_opset(operator: str) -> Any:
    """softmax and its relatives: before opset 13 all axes from `axis` on were one."""

    def convert(call: Call, x: Any) -> Any:
        x = tensor(x)
        function = hardmax if operator == "hardmax" else getattr(F, operator)
        if call.opset >= 13:
            return function(x, axis=call.get("axis", -1))
        axis = call.get("axis", 1) % x.ndim
        rows = x.reshape((*x.shape[:axis], -1))
        return function(rows, axis=-1).reshape(x.shape)

    return convert


def hardmax(x: Any, axis: int) -> Any:
    n = x.shape[axis]
    line = arange(n).reshape((n,) + (1,) * (x.ndim - 1 - axis % x.ndim))
    return F.equal(line, F.argmax(x, axis=axis, keepdims=True)).astype(x.dtype)


CONVERSIONS |= {
    "Softmax": by_opset("softmax"),
    "LogSoftmax": by_opset("log_softmax"),
    "Hardmax": by_opset("hardmax"),
}


@converts("NegativeLogLikelihoodLoss")
def nll_loss(call: Call, x: Any, target: Any, weight: Any = None) -> Any:
    ignored = call.get("ignore_index")
    return F.nll_loss(
        tensor(x),
        tensor(target),
        tensor(weight),
        ignore_index=-100 if ignored is None else ignored,
        reduction=text(call.get("reduction", "mean")),
    )


@converts("SoftmaxCrossEntropyLoss")
def cross_entropy(call: Call, x: Any, target: Any, weight: Any = None) -> Any:
    log_probabilities = F.log_softmax(tensor(x), axis=1)
    loss = nll_loss(call, log_probabilities, target, weight)
    return (loss, log_probabilities) if call.output_count > 1 else loss


# ---- Convolutions and pooling ----------------------------------------------------------------------------------------


def geometry(
    call: Call, spatial: Sequence[int], kernel: Sequence[int]
) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    """(strides, dilations, padding at both ends) of each axis."""
    count = len(kernel)
    strides, dilations = list(call.get("strides") or [1] * count), list(call.get("dilations") or [1] * count)
    automatic = text(call.get("auto_pad", "NOTSET"))
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        pads = []
        for n, k, s, d in zip(spatial, kernel, strides, dilations, strict=True):
            total = max(0, (-(-int(n) // s) - 1) * s + (k - 1) * d + 1 - int(n))
            small, large = total // 2, total - total // 2
            pads.append((small, large) if automatic == "SAME_UPPER" else (large, small))
        return strides, dilations, pads
    given = list(call.get("pads") or [0] * (2 * count)) if automatic == "NOTSET" else [0] * (2 * count)
    return strides, dilations, list(zip(given[:count], given[count:], strict=True))


def padded(x: Any, pads: Sequence[tuple[int, int]], value: float) -> Any:
    """x with values around its last axes."""
    if not any(map(any, pads)):
        return x
    flat = [n for pair in reversed(list(pads)) for n in pair]
    return F.pad(x, pad=tuple(flat), value=value)


@converts("Conv")
def conv(call: Call, x: Any, weight: Any, bias: Any = None) -> Any:
    x, weight, bias = tensor(x), tensor(weight), tensor(bias)
    strides, dilations, pads = geometry(call, x.shape[2:], weight.shape[2:])
    function = [F.conv1d, F.conv2d, F.conv3d][len(pads) - 1]
    return function(
        x,
        weight,
        bias,
        stride=tuple(strides),
        padding=tuple(pads),
        dilation=tuple(dilations),
        groups=call.get("group", 1),
    )


@converts("ConvTranspose")
def conv_transpose(call: Call, x: Any, weight: Any, bias: Any = None) -> Any:
    x, weight, bias = tensor(x), tensor(weight), tensor(bias)
    kernel = weight.shape[2:]
    count = len(kernel)
    strides, dilations = list(call.get("strides") or [1] * count), list(call.get("dilations") or [1] * count)
    output_padding = list(call.get("output_padding") or [0] * count)
    pads = list(call.get("pads") or [0] * (2 * count))
    automatic, target = text(call.get("auto_pad", "NOTSET")), call.get("output_shape")
    pairs = list(zip(pads[:count], pads[count:], strict=True))
    if target is None and automatic.startswith("SAME"):
        target = [int(n) * s for n, s in zip(x.shape[2:], strides, strict=True)]
    missing = [0] * count  # zeros at the end, where output_shape is larger than the result
    if target is not None:
        pairs = []
        for d in range(count):
            whole = (
                strides[d] * (int(x.shape[2 + d]) - 1)
                + output_padding[d]
                + (kernel[d] - 1) * dilations[d]
                + 1
            )
            total = whole - list(target)[-count:][d]
            missing[d] = max(0, -total)
            small, large = max(0, total) // 2, max(0, total) - max(0, total) // 2
            pairs.append((small, large) if automatic == "SAME_UPPER" else (large, small))
    if any(missing) and bias is not None:
        raise call.fail(f"output_shape {target} larger than the result, with a bias, is not supported")
    common = [min(pair) for pair in pairs]
    function = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d][count - 1]
    extra = list(output_padding)
    large = [e >= s and e >= d for e, s, d in zip(extra, strides, dilations, strict=True)]
    y = function(
        x,
        weight,
        bias,
        stride=tuple(strides),
        padding=tuple(common),
        dilation=tuple(dilations),
        output_padding=tuple(0 if is_large else e for e, is_large in zip(extra, large, strict=True)),
        groups=call.get("group", 1),
    )
    key: list[Any] = [slice(None), slice(None)]
    for d, (low, high) in enumerate(pairs):
        n = int(y.shape[2 + d])
        key.append(slice(low - common[d], n - (high - common[d])))
    if any(large):
        raise call.fail(f"output_padding {output_padding} as large as strides is not supported")
    return padded(y[tuple(key)], [(0, n) for n in missing], 0.0)


def _pool_geometry(call: Call, x: Any) -> tuple[Any, Any, Any, list[tuple[int, int]], list[int]]:
    """(kernel, strides, dilations, padding, what ceil_mode adds at the end) of pooling."""
    kernel = list(call.get("kernel_shape"))
    strides, dilations, pads = geometry(call, x.shape[2:], kernel)
    more = []
    for n, k, s, d, (low, high) in zip(x.shape[2:], kernel, strides, dilations, pads, strict=True):
        whole, reach = int(n) + low + high, (k - 1) * d + 1
        extra = 0
        if call.get("ceil_mode", 0):
            count = -((reach - whole) // s) + 1
            if (count - 1) * s >= int(n) + low:
                count -= 1
            extra = max(0, (count - 1) * s + reach - whole)
        more.append(extra)
    return tuple(kernel), tuple(strides), tuple(dilations), pads, more


@converts("MaxPool")
def max_pool(call: Call, x: Any) -> Any:
    x = tensor(x)
    kernel, strides, dilations, pads, more = _pool_geometry(call, x)
    sizes = x.shape[2:]
    low = -math.inf if x.dtype.is_floating else (-128 if x.dtype.name == "int8" else 0)
    x = padded(x, [(a, b + c) for (a, b), c in zip(pads, more, strict=True)], low)
    if call.output_count == 1:
        return [F.max_pool1d, F.max_pool2d, F.max_pool3d][len(kernel) - 1](
            x, kernel_size=kernel, stride=strides, dilation=dilations
        )
    pools = [F.max_pool1d_with_indices, F.max_pool2d_with_indices, F.max_pool3d_with_indices]
    y, indices = pools[len(kernel) - 1](x, kernel_size=kernel, stride=strides, dilation=dilations)
    return y, places_of_maxima(call, indices, sizes, x.shape[2:], [a for a, _ in pads])


def _sums(x: Any, kernel: Any, strides: Any, dilations: Any) -> Any:
    if any(d > 1 for d in dilations):
        ones = zeros((1, 1, *kernel), dtype=x.dtype) + 1
        convolve = [F.conv1d, F.conv2d, F.conv3d][len(kernel) - 1]
        y = convolve(x.reshape((-1, 1, *x.shape[2:])), ones, None, stride=strides, dilation=dilations)
        return y.reshape((*x.shape[:2], *y.shape[2:]))
    function = [F.avg_pool1d, F.avg_pool2d, F.avg_pool3d][len(kernel) - 1]
    return function(x, kernel_size=kernel, stride=strides) * float(math.prod(kernel))


@converts("AveragePool")
def average_pool(call: Call, x: Any) -> Any:
    x = tensor(x)
    kernel, strides, dilations, pads, more = _pool_geometry(call, x)
    whole = [(a, b + c) for (a, b), c in zip(pads, more, strict=True)]
    ones = zeros((1, 1, *x.shape[2:]), dtype=x.dtype) + 1
    if call.get("count_include_pad", 0):
        ones = padded(ones, pads, 1.0)
        ones = padded(ones, [(0, c) for c in more], 0.0)
    else:
        ones = padded(ones, whole, 0.0)
    total = _sums(padded(x, whole, 0.0), kernel, strides, dilations)
    return (total / _sums(ones, kernel, strides, dilations)).astype(x.dtype)


@converts("LpPool")
def lp_pool(call: Call, x: Any) -> Any:
    x, p = tensor(x), call.get("p", 2)
    kernel, strides, dilations, pads, more = _pool_geometry(call, x)
    y = padded(F.pow(F.abs(x), p), [(a, b + c) for (a, b), c in zip(pads, more, strict=True)], 0.0)
    return F.pow(_sums(y, kernel, strides, dilations), 1.0 / p)


@converts("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(call: Call, x: Any) -> Any:
    x = tensor(x)
    axes = tuple(range(2, x.ndim))
    if call.operator == "GlobalLpPool":
        p = call.get("p", 2)
        return F.pow(F.sum(F.pow(F.abs(x), p), axis=axes, keepdims=True), 1.0 / p)
    return (F.mean if call.operator == "GlobalAveragePool" else F.max)(x, axis=axes, keepdims=True)


# ---- Normalization ---------------------------------------------------------------------------------------------------


@converts("BatchNormalization")
def batch_normalization(call: Call, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
    x, scale, bias, mean, var = map(tensor, (x, scale, bias, mean, var))
    if call.get("training_mode", 0):
        axes, momentum = tuple(d for d in range(x.ndim) if d != 1), call.get("momentum", 0.9)
        now, spread = F.mean(x, axis=axes), F.var(x, axis=axes)
        y = F.batch_norm(x, now, spread, scale, bias, training=False, eps=call.get("epsilon", 1e-5))
        return y, mean * momentum + now * (1 - momentum), var * momentum + spread * (1 - momentum)
    return F.batch_norm(x, mean, var, scale, bias, training=False, eps=call.get("epsilon", 1e-5))


@converts("InstanceNormalization")
def instance_normalization(call: Call, x: Any, scale: Any, bias: Any) -> Any:
    return F.instance_norm(tensor(x), tensor(scale), tensor(bias), eps=call.get("epsilon", 1e-5))


@converts("GroupNormalization")
def group_normalization(call: Call, x: Any, scale: Any, bias: Any) -> Any:
    x, scale, bias, groups = tensor(x), tensor(scale), tensor(bias), call.get("num_groups")
    if call.opset < 21:  # one number for each group
        repeats = x.shape[1] // groups
        scale, bias = F.repeat(scale, repeats), F.repeat(bias, repeats)
    return F.group_norm(x, groups, scale, bias, eps=call.get("epsilon", 1e-5))


@converts("LayerNormalization")
def layer_normalization(call: Call, x: Any, scale: Any, bias: Any = None) -> Any:
    x, axis, eps = tensor(x), call.get("axis", -1), call.get("epsilon", 1e-5)
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype("float32") if x.dtype.itemsize < 4 else x
    mean = F.mean(wide, axis=axes, keepdims=True)
    inverse = F.rsqrt(F.mean((wide - mean) * (wide - mean), axis=axes, keepdims=True) + eps)
    y = ((wide - mean) * inverse).astype(x.dtype) * tensor(scale)
    y = y if bias is None else y + tensor(bias)
    return y if call.output_count == 1 else (y, mean, inverse)


@converts("RMSNormalization")
def rms_normalization(call: Call, x: Any, scale: Any) -> Any:
    x, axis, eps = tensor(x), call.get("axis", -1), call.get("epsilon", 1e-5)
    axes = tuple(range(axis % x.ndim, x.ndim))
    return x * F.rsqrt(F.mean(x * x, axis=axes, keepdims=True) + eps) * tensor(scale)


@converts("LpNormalization")
def lp_normalization(call: Call, x: Any) -> Any:
    x, axis, p = tensor(x), call.get("axis", -1), call.get("p", 2)
    norm = F.vector_norm(x, axis=axis, ord=p, keepdims=True)
    return F.where(F.equal(norm, 0), 0.0, x / norm).astype(x.dtype)


@converts("MeanVarianceNormalization")
def mean_variance_normalization(call: Call, x: Any) -> Any:
    x, axes = tensor(x), tuple(call.get("axes") or (0, 2, 3))
    mean = F.mean(x, axis=axes, keepdims=True)
    return (x - mean) / (F.std(x, axis=axes, keepdims=True) + 1e-9)


@converts("LRN")
def lrn(call: Call, x: Any) -> Any:
    return F.local_response_norm(
        tensor(x),
        size=call.get("size"),
        alpha=call.get("alpha", 1e-4),
        beta=call.get("beta", 0.75),
        k=call.get("bias", 1.0),
    )


@converts("Dropout")
def dropout(call: Call, x: Any, ratio: Any = None, training: Any = None) -> Any:
    x = tensor(x)
    p = call.get("ratio", 0.5) if ratio is None else float(numbers(call, ratio).ravel()[0])
    is_training = bool(numbers(call, training).ravel()[0]) if training is not None else False
    if is_training and p > 0:
        if call.output_count == 1:
            return F.dropout(x, p=p, training=True)
        factors = F.dropout(ones(tuple(x.shape), dtype=x.dtype), p=p, training=True)
        return F.where(F.equal(factors, 0), 0.0, x * factors).astype(x.dtype), F.not_equal(factors, 0)
    return (x, zeros(tuple(x.shape), dtype="bool") == False) if call.output_count > 1 else x  # noqa: E712


# ---- Images ----------------------------------------------------------------------------------------------------------


@converts("GridSample")
def grid_sample(call: Call, x: Any, grid: Any) -> Any:
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(
        text(call.get("mode", "linear")), text(call.get("mode", "linear"))
    )
    return F.grid_sample(
        tensor(x),
        tensor(grid),
        mode=mode,
        padding_mode=text(call.get("padding_mode", "zeros")),
        align_corners=bool(call.get("align_corners", 0)),
    )


# ---- Quantization ----------------------------------------------------------------------------------------------------


def _spread(scale: Any, ndim: int, axis: int) -> Any:
    return (
        scale.reshape((-1,) + (1,) * (ndim - 1 - axis % ndim))
        if scale.ndim == 1 and scale.shape[0] != 1
        else scale.reshape(())
        if scale.size == 1
        else scale
    )


_LIMITS = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}


def quantized(call: Call, ratio: Any, zero: Any, dtype: Any) -> Any:
    """round(ratio) + zero, in the limits of the dtype."""
    if dtype.name not in _LIMITS:
        raise call.fail(f"quantization to {dtype} is not supported")
    y = F.round(ratio)
    y = y if zero is None else y + zero.astype("float32")
    return F.clip(y, *_LIMITS[dtype.name]).astype(dtype)


@converts("QuantizeLinear")
def quantize_linear(call: Call, x: Any, scale: Any, zero: Any = None) -> Any:
    code = zero.code if isinstance(zero, Narrow) else call.get("output_dtype") or 2
    x, scale, zero = tensor(x), tensor(scale), tensor(zero)
    scale, zero = (_of_elements(call, v, x) for v in (scale, zero))
    y = x.astype("float32") / scale.astype("float32")
    if code in NARROW:
        if zero is not None and code in INTEGERS:
            y = F.round(y) + zero.astype("float32")
        return narrowed(y, code, bool(call.get("saturate", 1)))
    dtype = zero.dtype if zero is not None else dtype_of(call, code)
    return quantized(call, y, zero, dtype)


def _of_elements(call: Call, parameter: Any, x: Any) -> Any:
    """A scale or a zero point in a shape that broadcasts to x; that of blocks is repeated for each element."""
    axis, block = call.get("axis", 1) % max(1, x.ndim), call.get("block_size", 0)
    if parameter is None:
        return None
    if not block or parameter.ndim != x.ndim:
        return _spread(parameter, x.ndim, axis)
    repeated = F.repeat(parameter, block, axis=axis)
    return F.slice(repeated, starts=(0,), stops=(x.shape[axis],), axes=(axis,))


@converts("DequantizeLinear")
def dequantize_linear(call: Call, x: Any, scale: Any, zero: Any = None) -> Any:
    x = tensor(x)
    scale, zero = (_of_elements(call, tensor(v), x) for v in (scale, zero))
    y = x.astype("float32")
    y = y if zero is None else y - zero.astype("float32")
    return (y * scale.astype("float32")).astype(scale.dtype)


@converts("DynamicQuantizeLinear")
def dynamic_quantize_linear(call: Call, x: Any) -> Any:
    x = tensor(x)
    low, high = F.minimum(F.min(x), 0.0), F.maximum(F.max(x), 0.0)
    scale = (high - low) / 255.0
    zero = F.clip(F.round(-low / scale), 0, 255)
    return F.clip(F.round(x / scale) + zero, 0, 255).astype("uint8"), scale, zero.astype("uint8")


def _less(x: Any, zero: Any, axis: int | None = None) -> Any:
    x, zero = tensor(x).astype("int32"), tensor(zero)
    if zero is None:
        return x
    zero = zero.astype("int32")
    return x - (_spread(zero, x.ndim, axis) if axis is not None else zero)


@converts("MatMulInteger")
def matmul_integer(call: Call, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    zero = tensor(a_zero)
    a = _less(
        a, None if zero is None else zero.reshape((-1, 1)) if zero.ndim == 1 and zero.size > 1 else zero
    )
    return F.matmul(a, _less(b, b_zero))


@converts("QLinearMatMul")
def q_linear_matmul(
    call: Call,
    a: Any,
    a_scale: Any,
    a_zero: Any,
    b: Any,
    b_scale: Any,
    b_zero: Any,
    y_scale: Any,
    y_zero: Any,
) -> Any:
    y = matmul_integer(call, a, b, a_zero, b_zero).astype("float32")
    scale = (
        tensor(a_scale).astype("float32")
        * tensor(b_scale).astype("float32")
        / tensor(y_scale).astype("float32")
    )
    y = F.round(y * scale) + tensor(y_zero).astype("float32")
    dtype = tensor(y_zero).dtype
    return F.clip(y, *_LIMITS[dtype.name]).astype(dtype)


@converts("ConvInteger")
def conv_integer(call: Call, x: Any, w: Any, x_zero: Any = None, w_zero: Any = None) -> Any:
    x, w = _less(x, x_zero).astype("float64"), _less(w, w_zero, 0).astype("float64")
    return F.round(conv(call, x, w)).astype("int32")


@converts("QLinearConv")
def q_linear_conv(
    call: Call,
    x: Any,
    x_scale: Any,
    x_zero: Any,
    w: Any,
    w_scale: Any,
    w_zero: Any,
    y_scale: Any,
    y_zero: Any,
    b: Any = None,
) -> Any:
    y = conv_integer(call, x, w, x_zero, w_zero).astype("float32")
    if b is not None:
        y = y + tensor(b).astype("float32").reshape((-1,) + (1,) * (y.ndim - 2))
    scale = tensor(x_scale) * _spread(tensor(w_scale), y.ndim, 1) / tensor(y_scale)
    dtype = tensor(y_zero).dtype
    return F.clip(F.round(y * scale) + tensor(y_zero).astype("float32"), *_LIMITS[dtype.name]).astype(dtype)
