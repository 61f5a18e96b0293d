"""Rules of layers for MXNet's files."""

from __future__ import annotations

import math
from typing import Any

from weft.graph.symbols import SymbolNode
from weft.interop.mxnet.export_rules import number
from weft.interop.mxnet.writer import Entry, Writer, exports
from weft.ops.node import Node

__all__: list[str] = []


def _sizes(value: Any, count: int) -> tuple[int, ...] | None:
    """A size for each axis; None where it is not made of integers, such as "same"."""
    sizes = (value,) * count if isinstance(value, int) else value
    if not isinstance(sizes, tuple | list) or not all(isinstance(n, int) for n in sizes):
        return None
    return tuple(sizes)


@exports("linear")
def linear(writer: Writer, node: Node, x: Any, weight: Any, bias: Any = None) -> Any:
    op: Any = node.op
    units = op.out_features or writer.shape(node, 1)[0]
    x, weight, *rest = writer.converted(node, [x, weight, bias][: len(node.inputs)])
    bias = rest[0] if rest else None
    return writer.add(
        "FullyConnected", x, weight, bias, num_hidden=units, no_bias=bias is None, flatten=False
    )


def _windows(writer: Writer, node: Node, count: int) -> dict[str, Any]:
    op: Any = node.op
    found = {}
    for theirs, ours in (("stride", op.stride), ("pad", op.padding), ("dilate", op.dilation)):
        sizes = _sizes(ours, count)
        if sizes is None:
            raise writer.refuse(node, f"MXNet has no {theirs} of {ours!r}")
        found[theirs] = sizes
    return found


@exports("conv1d", "conv2d", "conv3d")
def conv(writer: Writer, node: Node, x: Any, weight: Any, bias: Any = None) -> Any:
    op: Any = node.op
    count = int(op.name[4])
    kernel = _sizes(op.kernel_size, count) if op.kernel_size else writer.shape(node, 1)[2:]
    filters = op.out_channels or writer.shape(node, 1)[0]
    options = {"kernel": kernel, "num_filter": filters, "num_group": op.groups, "no_bias": bias is None}
    return writer.add("Convolution", x, weight, bias, **options, **_windows(writer, node, count))


@exports("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(writer: Writer, node: Node, x: Any, weight: Any, bias: Any = None) -> Any:
    op: Any = node.op
    count = int(op.name[14])
    kernel = _sizes(op.kernel_size, count) if op.kernel_size else writer.shape(node, 1)[2:]
    filters = op.out_channels or writer.shape(node, 1)[1] * op.groups
    options = {"kernel": kernel, "num_filter": filters, "num_group": op.groups, "no_bias": bias is None}
    adjust = _sizes(op.output_padding, count)
    return writer.add(
        "Deconvolution", x, weight, bias, adj=adjust, **options, **_windows(writer, node, count)
    )


@exports("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d")
def pool(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    count, kind = int(op.name[8]), op.name[:3]
    kernel = _sizes(op.kernel_size, count)
    stride = kernel if op.stride is None else _sizes(op.stride, count)
    padding, dilation = _sizes(op.padding, count), _sizes(op.dilation, count)
    if kernel is None or stride is None or padding is None or dilation is None:
        raise writer.refuse(node, f"MXNet has no windows of {op.kernel_size!r}, {op.padding!r}")
    if any(d != 1 for d in dilation):
        raise writer.refuse(node, f"MXNet has no pooling with dilation {dilation}")
    is_inside = all(p + s <= k for k, s, p in zip(kernel, stride, padding, strict=True))
    if op.ceil_mode and not is_inside:  # MXNet keeps windows that begin in the padding behind
        for n, k, s, p in zip(writer.shape(node, 0)[2:], kernel, stride, padding, strict=True):
            if (math.ceil((n + 2 * p - k) / s)) * s >= n + p:
                raise writer.refuse(node, "MXNet has no ceil_mode without windows in the padding alone")
    return writer.add(
        "Pooling",
        x,
        kernel=kernel,
        stride=stride,
        pad=padding,
        pool_type=kind,
        pooling_convention="full" if op.ceil_mode else "valid",
        count_include_pad=op.count_include_pad if kind == "avg" else None,
    )


@exports("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def adaptive_pool(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    count = int(op.name[17])
    sizes = _sizes(op.output_size, count)
    if sizes == (1,) * count:
        return writer.add("Pooling", x, kernel=sizes, global_pool=True, pool_type="avg")
    if count != 2 or sizes is None:
        return None
    return writer.add("_contrib_AdaptiveAvgPooling2D", x, output_size=sizes)


# ---- Normalization


def _is_ones(value: Any) -> bool:
    """Whether a weight counts as 1 whatever its elements are: what fix_gamma became."""
    op = None if value is None else value.node.op
    return op is not None and op.name == "filled_like" and op.value == 1


@exports("batch_norm")
def batch_norm(
    writer: Writer, node: Node, x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None
) -> Any:
    op: Any = node.op
    eps, momentum = number(node, "eps"), number(node, "momentum")
    is_open = isinstance(node, SymbolNode) and node.is_open
    if mean is None or var is None or eps is None or momentum is None or (op.training and not is_open):
        raise writer.refuse(
            node, "MXNet's BatchNorm has running statistics, numbers eps and momentum, and an open mode"
        )
    gamma = node.inputs[3] if len(node.inputs) > 3 else None
    is_fixed = weight is None or _is_ones(gamma)
    if weight is None:
        weight = writer.filled("gamma", writer.shape(node, 1)[0], 1.0, node.outputs[0])
    elif is_fixed and gamma is not None and gamma.node.inputs:
        weight = writer.read(gamma.node.inputs[0])
    if bias is None:
        bias = writer.filled("beta", writer.shape(node, 1)[0], 0.0, node.outputs[0])
    return writer.add(
        "BatchNorm",
        *(x, weight, bias, mean, var),
        eps=float(eps),
        momentum=round(1 - float(momentum), 12),
        fix_gamma=is_fixed,
        use_global_stats=not is_open,
    )


@exports("layer_norm")
def layer_norm(writer: Writer, node: Node, x: Any, weight: Any = None, bias: Any = None) -> Any:
    op: Any = node.op
    shape, eps = op.normalized_shape, number(node, "eps")
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if len(shape) != 1 or eps is None:
        return None
    weight = writer.filled("gamma", shape[0], 1.0, node.outputs[0]) if weight is None else weight
    bias = writer.filled("beta", shape[0], 0.0, node.outputs[0]) if bias is None else bias
    return writer.add("LayerNorm", x, weight, bias, axis=-1, eps=float(eps))


@exports("instance_norm")
def instance_norm(writer: Writer, node: Node, x: Any, weight: Any = None, bias: Any = None) -> Any:
    eps = number(node, "eps")
    if eps is None or weight is None or bias is None:
        return None
    return writer.add("InstanceNorm", x, weight, bias, eps=float(eps))


@exports("local_response_norm")
def local_response_norm(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    names = {"alpha": "alpha", "beta": "beta", "knorm": "k"}
    values = {theirs: number(node, ours) for theirs, ours in names.items()}
    if None in values.values():
        return None
    return writer.add("LRN", x, nsize=op.size, **{key: float(value) for key, value in values.items()})


# ---- Activations


@exports("mish", "log_sigmoid")
def activation(writer: Writer, node: Node, x: Any) -> Any:
    assert node.op is not None
    return writer.add("Activation", x, act_type=node.op.name)


@exports("softplus")
def softplus(writer: Writer, node: Node, x: Any) -> Any:
    return writer.add("Activation", x, act_type="softrelu") if number(node, "beta") == 1 else None


@exports("silu")
def silu(writer: Writer, node: Node, x: Any) -> Any:
    return writer.add("broadcast_mul", x, writer.add("sigmoid", x))


@exports("leaky_relu", "elu")
def leaky_relu(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    kind, key = ("elu", "alpha") if op.name == "elu" else ("leaky", "negative_slope")
    slope = number(node, key)
    return None if slope is None else writer.add("LeakyReLU", x, act_type=kind, slope=float(slope))


@exports("relu6")
def relu6(writer: Writer, node: Node, x: Any) -> Any:
    return writer.add("clip", x, a_min=0.0, a_max=6.0)


@exports("hard_sigmoid")
def hard_sigmoid(writer: Writer, node: Node, x: Any) -> Any:
    return writer.add("hard_sigmoid", x, alpha=1 / 6, beta=0.5)


@exports("hard_swish")
def hard_swish(writer: Writer, node: Node, x: Any) -> Any:
    return writer.add("broadcast_mul", x, hard_sigmoid(writer, node, x))


@exports("selu")
def selu(writer: Writer, node: Node, x: Any) -> Any:
    return writer.add("LeakyReLU", x, act_type="selu")


@exports("gelu")
def gelu(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    return writer.add("LeakyReLU", x, act_type="gelu") if op.approximate == "none" else None


@exports("prelu")
def prelu(writer: Writer, node: Node, x: Any, weight: Any) -> Any:
    return writer.add("LeakyReLU", x, weight, act_type="prelu")


@exports("softmax", "log_softmax")
def softmax(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    return writer.add(op.name, x, axis=op.axis)


@exports("dropout")
def dropout(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    p, is_open = number(node, "p"), isinstance(node, SymbolNode) and node.is_open
    if not is_open and not op.training:
        return x
    return None if p is None else writer.add("Dropout", x, p=float(p), mode=None if is_open else "always")


# ---- Recurrent layers


@exports("lstm", "gru", "rnn")
def recurrent(writer: Writer, node: Node, x: Any, *rest: Any) -> Any:
    """One node, whose parameters are one vector: all weights, then all biases."""
    op: Any = node.op
    states = 2 if op.name == "lstm" else 1
    initial, parameters = rest[:states], rest[states:]
    last = len(node.inputs) - 1
    h, count = writer.shape(node, last)[0] // op.gates, op.directions
    if any(isinstance(p, int | float) or p is None for p in (*initial, *parameters)):
        raise writer.refuse(node, "MXNet's RNN has all states, weights and biases")
    flat = [writer.add("Reshape", p, shape=(-1,)) for p in parameters]
    weights = [p for k, p in enumerate(flat) if k % 4 < 2]
    biases = [p for k, p in enumerate(flat) if k % 4 >= 2]
    vector = writer.add("Concat", *weights, *biases, dim=0, num_args=len(flat))
    mode = op.name if op.name != "rnn" else f"rnn_{op.nonlinearity}"
    y = writer.add(
        "RNN",
        *(x, vector, *initial),
        mode=mode,
        state_size=h,
        num_layers=len(parameters) // (4 * count),
        bidirectional=count == 2,
        state_outputs=True,
    )
    return [Entry(y.node, k) for k in range(1 + states)]
