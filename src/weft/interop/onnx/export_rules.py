"""Rules of operators that ONNX has as such, or has in a better way than what they decompose to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.interop.onnx.writer import Writer, exports
from weft.ops.node import Node
from weft.ops.sizes import Size

__all__: list[str] = []


def _types(node: Node) -> Any:
    """The types of the inputs; of those of rules none is missing."""
    return [v.type if v is not None else None for v in node.inputs]


def _promoted(writer: Writer, node: Node) -> list[Any]:
    """The names of the inputs in the element type of the output."""
    dtype = node.outputs[0].type.dtype.name
    return [None if v is None else writer.read_as(v, dtype) for v in node.inputs]


def _number(node: Node, attribute: str) -> Any:
    """An attribute that is given at run time; None where it is not a number here."""
    value = node.runtime.get(attribute)
    if value is None:
        return getattr(node.op, attribute)
    return value.node.value if value.is_constant else None


@exports("to_device", "dropout")
def identity(writer: Writer, node: Node, x: str, *more: str) -> Any:
    return x


@exports("check_labels")
def check_labels(writer: Writer, node: Node, target: str, *x: str) -> str:
    """The labels; ONNX has no errors of its own, so they are not checked."""
    return _indices(writer, node, 0)


# ---- Products and convolutions


@exports("matmul")
def matmul(writer: Writer, node: Node, *names: str) -> Any:
    y, x = node.outputs[0].type, node.inputs[0]
    if not y.dtype.is_floating:
        return None
    if x is not None and x.shape[-1] == 0:  # ONNX Runtime 1.32 leaves such a result as the memory was
        return writer.add("Expand", writer.constant(np.zeros((), y.dtype.numpy)), writer.integers(y.shape))
    return writer.add("MatMul", *_promoted(writer, node))


@exports("linear")
def linear(writer: Writer, node: Node, *names: str) -> Any:
    if not node.outputs[0].type.dtype.is_floating:
        return None
    x, weight, bias = ([*_promoted(writer, node), None])[:3]
    if _types(node)[0].ndim == 2:
        return writer.add("Gemm", x, weight, bias, transB=1)
    y = writer.add("MatMul", x, writer.add("Transpose", weight, perm=[1, 0]))
    return y if bias is None else writer.add("Add", y, bias)


def _is_static(sizes: Sequence[Any]) -> bool:
    return not any(isinstance(n, Size) for n in sizes)


@exports("conv1d", "conv2d", "conv3d")
def conv(writer: Writer, node: Node, *names: str) -> Any:
    op: Any = node.op
    if not node.outputs[0].type.dtype.is_floating:
        return None
    return add_conv(writer, op, op.windows(node.inputs[1]), _promoted(writer, node))


def add_conv(writer: Writer, op: Any, windows: Any, operands: Sequence[str | None]) -> Any:
    """The convolution of `op` as a Conv of these operands."""
    return writer.add(
        "Conv",
        *operands,
        kernel_shape=list(windows.size),
        strides=list(windows.stride),
        pads=[*windows.low, *windows.high],
        dilations=list(windows.dilation),
        group=op.groups,
    )


@exports("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(writer: Writer, node: Node, *names: str) -> Any:
    op: Any = node.op
    if not node.outputs[0].type.dtype.is_floating:
        return None
    return writer.add(
        "ConvTranspose",
        *_promoted(writer, node),
        kernel_shape=list(_types(node)[1].shape[2:]),
        strides=list(op.stride),
        pads=[*op.padding, *op.padding],
        output_padding=list(op.output_padding),
        dilations=list(op.dilation),
        group=op.groups,
    )


# ---- Pooling


@exports("max_pool1d", "max_pool2d", "max_pool3d")
def max_pool(writer: Writer, node: Node, x: str) -> Any:
    op: Any = node.op
    (type,) = _types(node)
    if type.dtype.name not in ("float32", "float64", "float16", "int8", "uint8"):
        return None
    if not _is_static(type.shape[2:]) and op.ceil_mode:
        return None
    windows = op.windows(type.shape[2:])
    if any(high >= k for high, k in zip(windows.high, windows.extents, strict=True)):
        return None
    return writer.add(
        "MaxPool",
        x,
        kernel_shape=list(windows.size),
        strides=list(windows.stride),
        pads=[*windows.low, *windows.high],
        dilations=list(windows.dilation),
    )


@exports("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(writer: Writer, node: Node, x: str) -> Any:
    op: Any = node.op
    (type,) = _types(node)
    if op.ceil_mode or any(d != 1 for d in op.dilation) or not type.dtype.is_floating:
        return None
    return writer.add(
        "AveragePool",
        x,
        kernel_shape=list(op.kernel_size),
        strides=list(op.stride),
        pads=[*op.padding, *op.padding],
        count_include_pad=int(op.count_include_pad),
    )


# ---- Normalization and activations


@exports("batch_norm")
def batch_norm(writer: Writer, node: Node, x: str, mean: str, var: str, *more: str | None) -> Any:
    op: Any = node.op
    eps, type = _number(node, "eps"), _types(node)[0]
    if op.training or eps is None or not _is_static(type.shape[1:2]):
        return None
    weight, bias = ([*_types(node), None, None])[3:5]
    given = [t for t in _types(node)[1:] if t is not None]
    dtype = given[0].dtype
    if any(t.dtype is not dtype for t in given):
        return None
    names = [
        writer.constant(np.full(type.shape[1], fill, dtype.numpy)) if t is None else name
        for t, name, fill in zip((weight, bias), [*more, None, None], (1, 0), strict=False)
    ]
    return writer.add("BatchNormalization", x, names[0], names[1], mean, var, epsilon=float(eps))


@exports("layer_norm")
def layer_norm(writer: Writer, node: Node, x: str, weight: str | None = None, bias: str | None = None) -> Any:
    op: Any = node.op
    eps, type = _number(node, "eps"), _types(node)[0]
    if (
        eps is None
        or type.dtype.name == "bfloat16"
        or any(t and t.dtype is not type.dtype for t in _types(node))
    ):
        return None
    shape = op.normalized_shape
    if weight is None:
        weight = writer.constant(np.ones(shape, type.dtype.numpy))
    return writer.add("LayerNormalization", x, weight, bias, axis=-len(shape), epsilon=float(eps))


@exports("softmax", "log_softmax")
def softmax(writer: Writer, node: Node, x: str) -> Any:
    op: Any = node.op
    if _types(node)[0].ndim == 0:
        return None
    return writer.add("Softmax" if op.name == "softmax" else "LogSoftmax", x, axis=op.axis)


@exports("relu")
def relu(writer: Writer, node: Node, x: str) -> Any:
    return writer.add("Relu", x) if _types(node)[0].dtype.is_floating else None


@exports("gelu")
def gelu(writer: Writer, node: Node, x: str) -> Any:
    op: Any = node.op
    return writer.add("Gelu", x, approximate=op.approximate) if writer.opset >= 20 else None


# ---- Shapes and indices


@exports("reshape", "flatten", "expand_dims", "squeeze")
def reshape(writer: Writer, node: Node, x: str) -> Any:
    return writer.reshaped(x, node.outputs[0].shape)


@exports("flip")
def flip(writer: Writer, node: Node, x: str) -> Any:
    op: Any = node.op
    ndim = _types(node)[0].ndim
    axes = range(ndim) if op.axis is None else [op.axis] if isinstance(op.axis, int) else op.axis
    axes = [axis % ndim for axis in axes]
    if not axes:
        return x
    ends, steps = [-(1 << 62)] * len(axes), [-1] * len(axes)
    return writer.add("Slice", x, *(writer.integers(n) for n in ([-1] * len(axes), ends, axes, steps)))


@exports("concat")
def concat(writer: Writer, node: Node, *names: str) -> Any:
    op: Any = node.op
    if op.axis is None:
        return None
    return writer.add("Concat", *_promoted(writer, node), axis=op.axis)


@exports("spread")
def spread(writer: Writer, node: Node, x: str) -> Any:
    op: Any = node.op
    (type,) = _types(node)
    if any(s != 1 for s in op.step) or any(not isinstance(n, int) for n in (*op.low, *op.high)):
        return None
    lead = type.ndim - len(op.low)
    pads = writer.integers([*[0] * lead, *op.low, *[0] * lead, *op.high])
    return writer.add("Pad", x, pads, writer.constant(np.array(op.value, type.dtype.numpy)))


@exports("take")
def take(writer: Writer, node: Node, x: str, indices: str) -> Any:
    op: Any = node.op
    dtype = _types(node)[1].dtype.name
    if dtype not in ("int32", "int64"):
        indices = writer.cast(indices, dtype, "int64")
    return writer.add("Gather", x, indices, axis=0 if op.axis is None else op.axis)


def _indices(writer: Writer, node: Node, k: int) -> str:
    """Input k as indices of 64 bits."""
    value = node.inputs[k]
    assert value is not None
    return writer.read_as(value, "int64")


@exports("take_along_axis")
def take_along_axis(writer: Writer, node: Node, x: str, indices: str) -> Any:
    op: Any = node.op
    types = _types(node)
    axis = op.axis % types[0].ndim
    if any(d != axis and n != m for d, (n, m) in enumerate(zip(types[0].shape, types[1].shape, strict=True))):
        return None
    return writer.add("GatherElements", x, _indices(writer, node, 1), axis=op.axis)


_MODES = {"set": None, "add": "add", "max": "max", "min": "min", "mul": "mul"}


@exports("put_along_axis")
def put_along_axis(writer: Writer, node: Node, x: str, indices: str, values: str) -> Any:
    op: Any = node.op
    _, places, update = node.inputs
    assert places is not None
    assert update is not None
    if op.mode not in _MODES or places.shape != update.shape:
        return None
    updates = writer.read_as(update, node.outputs[0].type.dtype.name)
    where = _indices(writer, node, 1)
    return writer.add("ScatterElements", x, where, updates, axis=op.axis, reduction=_MODES[op.mode])


def _points(writer: Writer, node: Node, first: int) -> Any:
    """The indices of several axes as points [..., len(axes)], and their shape."""
    shapes = [t.shape for t in _types(node)[first:]]
    if not all(map(_is_static, shapes)):
        return None
    shape = np.broadcast_shapes(*shapes)
    parts = []
    for k, given in enumerate(shapes):
        name = _indices(writer, node, first + k)
        if given != shape:
            name = writer.add("Expand", name, writer.integers(shape))
        parts.append(writer.reshaped(name, (*shape, 1)))
    return (parts[0] if len(parts) == 1 else writer.add("Concat", *parts, axis=-1)), shape


def _moved(writer: Writer, name: str, order: Sequence[int]) -> str:
    return name if list(order) == sorted(order) else writer.add("Transpose", name, perm=list(order))


@exports("index_get")
def index_get(writer: Writer, node: Node, x: str, *names: str) -> Any:
    op: Any = node.op
    points = _points(writer, node, 1)
    if points is None:
        return None
    name, shape = points
    others = [d for d in range(_types(node)[0].ndim) if d not in op.axes]
    y = writer.add("GatherND", _moved(writer, x, [*op.axes, *others]), name)
    middle = list(range(len(shape)))
    rest = [len(shape) + k for k in range(len(others))]
    return _moved(writer, y, [*rest[: op.position], *middle, *rest[op.position :]])


@exports("index_put")
def index_put(writer: Writer, node: Node, x: str, values: str, *names: str) -> Any:
    op: Any = node.op
    points, t = _points(writer, node, 2), _types(node)[0]
    if points is None or op.mode not in _MODES or not _is_static(t.shape):
        return None
    name, shape = points
    others = [d for d in range(t.ndim) if d not in op.axes]
    sizes = [t.shape[d] for d in others]
    value = node.inputs[1]
    assert value is not None
    around = [*sizes[: op.position], *shape, *sizes[op.position :]]
    update = writer.add("Expand", writer.read_as(value, t.dtype.name), writer.integers(around))
    middle = [op.position + k for k in range(len(shape))]
    rest = [k if k < op.position else k + len(shape) for k in range(len(others))]
    order = [*op.axes, *others]
    data = _moved(writer, x, order)
    y = writer.add(
        "ScatterND", data, name, _moved(writer, update, [*middle, *rest]), reduction=_MODES[op.mode]
    )
    return _moved(writer, y, [order.index(d) for d in range(t.ndim)])


@exports("topk", "sort", "argsort")
def topk(writer: Writer, node: Node, x: str) -> Any:
    op: Any = node.op
    (type,) = _types(node)
    if type.ndim == 0 or type.dtype.name == "bool":
        return None
    k, largest = (op.k, op.largest) if op.name == "topk" else (type.shape[op.axis], op.descending)
    results = writer.add_several(
        "TopK", 2, x, writer.integers([k]), axis=op.axis, largest=int(largest), sorted=1
    )
    return results[1:] if op.name == "argsort" else results


# ---- Recurrent layers

_ORDERS = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn": (0,)}  # i f c o -> i o f c; r z n -> z r n


@exports("lstm", "gru", "rnn")
def recurrent(writer: Writer, node: Node, x: str, *names: str) -> Any:
    """One node of ONNX for each layer."""
    op: Any = node.op
    states = 2 if op.name == "lstm" else 1
    parameters, count = names[states:], op.directions
    types = _types(node)
    if any(t.dtype is not types[0].dtype for t in types) or types[0].dtype.name == "bfloat16":
        return None
    hidden, layers = types[-1].shape[0] // op.gates, len(parameters) // (4 * count)
    last: list[list[str]] = [[] for _ in range(states)]
    for layer in range(layers):
        whole: list[list[str]] = [[], [], []]
        for d in range(count):
            w_ih, w_hh, *biases = parameters[4 * (layer * count + d) :][:4]
            both = [_ordered(writer, op, b, hidden) for b in biases]
            pieces = (_ordered(writer, op, w_ih, hidden), _ordered(writer, op, w_hh, hidden))
            for k, piece in enumerate((*pieces, writer.add("Concat", *both, axis=0))):
                whole[k].append(writer.add("Unsqueeze", piece, writer.integers([0])))
        w, r, b = (m[0] if count == 1 else writer.add("Concat", *m, axis=0) for m in whole)
        cut = [writer.integers([n]) for n in (layer * count, (layer + 1) * count, 0)]
        first = [s if layers == 1 else writer.add("Slice", s, *cut) for s in names[:states]]
        activations = ["Relu"] * count if getattr(op, "nonlinearity", "") == "relu" else None
        extra = {"linear_before_reset": 1} if op.name == "gru" else {}
        y, *ends = writer.add_several(
            op.name.upper(),
            1 + states,
            *(x, w, r, b, None, *first),
            hidden_size=hidden,
            direction="bidirectional" if count == 2 else "forward",
            activations=activations,
            **extra,
        )
        for k, end in enumerate(ends):
            last[k].append(end)
        x = writer.add("Transpose", y, perm=[0, 2, 1, 3])  # [t, directions, n, h]
        x = writer.reshaped(x, (*types[0].shape[:2], count * hidden))
    return [x, *(s[0] if layers == 1 else writer.add("Concat", *s, axis=0) for s in last)]


def _ordered(writer: Writer, op: Any, name: str, hidden: int) -> str:
    """The rows of gates in ONNX's order."""
    order = _ORDERS[op.name]
    if order == tuple(range(len(order))):
        return name
    rows = np.concatenate([np.arange(k * hidden, (k + 1) * hidden) for k in order])
    return writer.add("Gather", name, writer.constant(rows), axis=0)
