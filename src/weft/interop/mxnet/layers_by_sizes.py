"""Layers of MXNet whose meaning in weft's operators depends on sizes; with them the table of by_sizes is complete.

Source: Apache MXNet 1.9, src/operator, and the documentation of its operators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.base.dtype import int64
from weft.base.typing import Any
from weft.interop.mxnet.attributes import Attributes
from weft.interop.mxnet.by_sizes import CONVERSIONS, OUTPUTS, along, by_sizes
from weft.interop.mxnet.values import created
from weft.ops import functions as F
from weft.ops.pointwise import cast_to

__all__ = ["CONVERSIONS", "OUTPUTS"]


def per_axis(sizes: Sequence[int], count: int, default: int) -> tuple[int, ...]:
    """A size for each axis."""
    return tuple(sizes) or (default,) * count


@by_sizes("Pooling", "Pooling_v1")
def pooling(a: Attributes, x: Any) -> Any:
    kind = a.choice("pool_type", "max", "avg", "sum", "lp")
    convention = a.choice("pooling_convention", "valid", "full")
    a.choice("layout", "None", "NCW", "NCHW", "NCDHW")
    kernel, count_pad, power = (
        a.sizes("kernel", ()),
        a.flag("count_include_pad", True),
        a.integer("p_value", 2),
    )
    spatial = x.ndim - 2
    stride, padding = (per_axis(a.sizes(key, ()), spatial, n) for key, n in (("stride", 1), ("pad", 0)))
    axes = tuple(range(2, x.ndim))
    if a.flag("global_pool", False):
        if kind == "lp":
            return F.pow(F.sum(F.pow(abs(x), power), axis=axes, keepdims=True), 1.0 / power)
        return {"max": F.max, "avg": F.mean, "sum": F.sum}[kind](x, axis=axes, keepdims=True)
    if len(kernel) != spatial:
        raise a.fail(f"kernel {kernel} is not for {spatial} axes")
    windows = {"kernel_size": kernel, "stride": stride}
    high = list(padding)
    if convention == "full":  # windows may begin anywhere before the end of the padding
        for d, (n, k, s, p) in enumerate(zip(x.shape[2:], kernel, stride, padding, strict=True)):
            count = -((k - int(n) - 2 * p) // s) + 1
            if (count - 1) * s >= int(n) + p:
                raise a.fail(f"a window of axis {d + 2} (pooling_convention full) is in the padding alone")
    is_ceil = convention == "full"
    if kind == "max":
        function = [F.max_pool1d, F.max_pool2d, F.max_pool3d][spatial - 1]
        return function(x, padding=padding, ceil_mode=is_ceil, **windows)
    function = [F.avg_pool1d, F.avg_pool2d, F.avg_pool3d][spatial - 1]
    if kind == "avg":
        return function(x, padding=padding, ceil_mode=is_ceil, count_include_pad=count_pad, **windows)
    if is_ceil and any(high):
        raise a.fail(f"pool_type {kind} with pooling_convention full and padding is not supported")
    values = F.pow(abs(x), power) if kind == "lp" else x
    if is_ceil:  # sums of parts of windows, of which avg_pool would divide by fewer elements
        reach = [-((k - int(n)) // s) * s + k for n, k, s in zip(x.shape[2:], kernel, stride, strict=True)]
        for d, (n, end) in enumerate(zip(x.shape[2:], reach, strict=True)):
            if end > int(n):
                shape = tuple(end - int(n) if e == d + 2 else m for e, m in enumerate(values.shape))
                values = F.concat(values, created(x, "full", shape=shape, value=0, dtype=x.dtype), axis=d + 2)
    total = function(values, padding=padding, count_include_pad=True, **windows) * float(math.prod(kernel))
    return F.pow(total, 1.0 / power) if kind == "lp" else total


@by_sizes("Deconvolution")
def deconvolution(a: Attributes, x: Any, weight: Any, bias: Any = None) -> Any:
    kernel, target = a.sizes("kernel"), a.sizes("target_shape", ())
    a.integer("num_filter"), a.flag("no_bias", True), a.choice("layout", "None", "NCW", "NCHW", "NCDHW")
    count = len(kernel)
    stride, dilate = per_axis(a.sizes("stride", ()), count, 1), per_axis(a.sizes("dilate", ()), count, 1)
    padding, adjust = per_axis(a.sizes("pad", ()), count, 0), per_axis(a.sizes("adj", ()), count, 0)
    if target:
        total = [
            s * (int(n) - 1) + d * (k - 1) + 1 - t
            for n, k, s, d, t in zip(x.shape[2:], kernel, stride, dilate, target, strict=True)
        ]
        if min(total) < 0:
            raise a.fail(f"target_shape {target} is larger than the result")
        padding, adjust = tuple((n + 1) // 2 for n in total), tuple(n % 2 for n in total)
    function = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d][count - 1]
    return function(
        x,
        weight,
        bias,
        stride=stride,
        padding=padding,
        output_padding=adjust,
        dilation=dilate,
        groups=a.integer("num_group", 1),
    )


@by_sizes("SoftmaxActivation")
def softmax_activation(a: Attributes, x: Any) -> Any:
    if a.choice("mode", "instance", "channel") == "channel":
        return F.softmax(x, axis=1)
    return F.softmax(x, axis=-1)


@by_sizes("L2Normalization")
def l2_normalization(a: Attributes, x: Any) -> Any:
    mode, eps = a.choice("mode", "instance", "channel", "spatial"), a.number("eps", 1e-10)
    axes = {"instance": tuple(range(1, x.ndim)), "channel": (1,), "spatial": tuple(range(2, x.ndim))}[mode]
    return x / F.sqrt(F.sum(x * x, axis=axes, keepdims=True) + eps)


@by_sizes("LayerNorm")
def layer_norm(a: Attributes, x: Any, gamma: Any, beta: Any) -> Any:
    axis, eps = a.integer("axis", -1) % x.ndim, a.number("eps", 1e-5)
    a.unset("output_mean_var")
    if axis == x.ndim - 1:
        return F.layer_norm(x, normalized_shape=(x.shape[axis],), weight=gamma, bias=beta, eps=eps)
    mean = F.mean(x, axis=axis, keepdims=True)
    apart = x - mean
    y = apart * F.rsqrt(F.mean(apart * apart, axis=axis, keepdims=True) + eps)
    shape = tuple(n if d == axis else 1 for d, n in enumerate(x.shape))
    return y * F.reshape(gamma, shape=shape) + F.reshape(beta, shape=shape)


@by_sizes("GroupNorm")
def group_norm(a: Attributes, x: Any, gamma: Any, beta: Any) -> Any:
    groups, eps = a.integer("num_groups", 1), a.number("eps", 1e-5)
    a.unset("output_mean_var")
    n, c = x.shape[:2]
    rows = F.reshape(x, shape=(n, groups, -1))
    mean = F.mean(rows, axis=2, keepdims=True)
    apart = rows - mean
    y = apart * F.rsqrt(F.mean(apart * apart, axis=2, keepdims=True) + eps)
    if int(gamma.shape[0]) == groups and groups != int(c):
        scale, shift = (F.reshape(v, shape=(1, groups, 1)) for v in (gamma, beta))
        return F.reshape(y * scale + shift, shape=x.shape)
    shape = (1, c) + (1,) * (x.ndim - 2)
    return F.reshape(y, shape=x.shape) * F.reshape(gamma, shape=shape) + F.reshape(beta, shape=shape)


@by_sizes("UpSampling")
def up_sampling(a: Attributes, x: Any, *more: Any) -> Any:
    scale, kind = a.integer("scale"), a.choice("sample_type", "nearest", "bilinear")
    a.integer("num_filter", 0), a.choice("multi_input_mode", "concat")
    if kind == "nearest":
        if more:
            raise a.fail("several inputs are not supported")
        return F.interpolate(x, scale_factor=float(scale), mode="nearest")
    size, padding = 2 * scale - scale % 2, -(-(scale - 1) // 2)
    return F.conv_transpose2d(
        x,
        more[0],
        None,
        stride=(scale, scale),
        padding=(padding, padding),
        groups=int(x.shape[1]),
        output_padding=(0, 0) if more[0].shape[-1] == size else (1, 1),
    )


@by_sizes("_contrib_BilinearResize2D")
def bilinear_resize(a: Attributes, x: Any, *like: Any) -> Any:
    mode, corners = a.choice("mode", "size", "like"), a.flag("align_corners", True)
    if mode == "like":
        size = tuple(map(int, like[0].shape[2:]))
    else:
        sizes = a.integer("height", 1), a.integer("width", 1)
        scales = a.number("scale_height", None), a.number("scale_width", None)
        size = tuple(
            n if s is None else int(int(m) * s) for n, s, m in zip(sizes, scales, x.shape[2:], strict=True)
        )
    return F.interpolate(x, size=size, mode="bilinear", align_corners=corners)


@by_sizes("_contrib_AdaptiveAvgPooling2D")
def adaptive_pooling(a: Attributes, x: Any) -> Any:
    size = a.sizes("output_size", ()) or (1,)
    return F.adaptive_avg_pool2d(x, output_size=size * 2 if len(size) == 1 else size)


_GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}


@by_sizes("RNN")
def rnn(a: Attributes, x: Any, parameters: Any, *states: Any) -> Any:
    mode = a.choice("mode", *_GATES)
    h, layers, both = a.integer("state_size"), a.integer("num_layers"), a.flag("bidirectional", False)
    a.number("p", 0.0)
    a.unset("use_sequence_length")
    a.unset("lstm_state_clip_nan")
    has_states = a.flag("state_outputs", False)
    for key in ("projection_size", "lstm_state_clip_min", "lstm_state_clip_max"):
        if a.number(key, None) is not None:
            raise a.fail(f"attribute {key} is not supported")
    rows, directions = _GATES[mode] * h, 2 if both else 1
    shapes: list[list[tuple[int, ...]]] = []
    for layer in range(layers):
        inner = int(x.shape[2]) if layer == 0 else h * directions
        shapes += [[(rows, inner), (rows, h)] for _ in range(directions)]
    at, weights = 0, list[list[Any]]()
    for pair in shapes:  # all weights, then all biases
        weights.append([])
        for shape in pair:
            weights[-1].append(F.reshape(along(parameters, 0, at, math.prod(shape)), shape=shape))
            at += math.prod(shape)
    ordered = []
    for pair in weights:
        biases = [along(parameters, 0, at + k * rows, rows) for k in range(2)]
        at += 2 * rows
        ordered += [*pair, *biases]
    if at != int(parameters.shape[0]):
        raise a.fail(f"{parameters.shape[0]} parameters, expected {at}")
    if mode == "lstm":
        outputs = F.lstm(x, *states, *ordered, bidirectional=both)
    elif mode == "gru":
        outputs = F.gru(x, states[0], *ordered, bidirectional=both)
    else:
        outputs = F.rnn(x, states[0], *ordered, bidirectional=both, nonlinearity=mode.removeprefix("rnn_"))
    return tuple(outputs) if has_states else outputs[0]


OUTPUTS["RNN"] = lambda a: 1 + a.flag("state_outputs", False) * (1 + (a.text("mode") == "lstm"))


@by_sizes("CTCLoss", "ctc_loss", "_contrib_CTCLoss", "_contrib_ctc_loss")
def ctc_loss(a: Attributes, x: Any, labels: Any, *lengths: Any) -> Any:
    by_data, by_labels = a.flag("use_data_lengths", False), a.flag("use_label_lengths", False)
    is_first = a.choice("blank_label", "first", "last") == "first"
    t, n, classes = map(int, x.shape)
    rest = list(lengths)
    full = created(x, "full", shape=(n,), value=t, dtype=int64)
    data_lengths = cast_to(rest.pop(0), int64) if by_data else full
    labels = cast_to(labels, int64)
    padding = 0 if is_first else -1
    label_lengths = (
        cast_to(rest.pop(0), int64)
        if by_labels
        else F.sum(cast_to(F.greater(labels, padding), int64), axis=1)  # labels end at the first padding
    )
    log_probs = F.log_softmax(x, axis=-1)
    return F.ctc_loss(
        log_probs,
        F.maximum(labels, 0),
        data_lengths,
        label_lengths,
        blank=0 if is_first else classes - 1,
        reduction="none",
    )
