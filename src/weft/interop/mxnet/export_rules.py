"""Rules of operators for MXNet's files: element by element, shapes, reductions, products, outputs for training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.device import as_device
from weft.base.dtype import bool_
from weft.interop.mxnet.by_symbols import ARITHMETIC, COMPARISON, LOGICAL, UNARY
from weft.interop.mxnet.writer import Entry, Writer, exports
from weft.ops.node import Node

__all__ = ["number"]


def number(node: Node, attribute: str) -> Any:
    """An attribute that is given at run time; None where it is not a number here."""
    value = node.runtime.get(attribute)
    if value is None:
        return getattr(node.op, attribute)
    return value.node.value if value.is_constant else None


# ---- Element by element


def _first(names: dict[str, str]) -> dict[str, str]:
    """The first of MXNet's names for each operator of weft."""
    inverse: dict[str, str] = {}
    for theirs, ours in names.items():
        inverse.setdefault(ours, theirs)
    return inverse


_UNARY, _BINARY, _COMPARED, _LOGICAL = map(_first, (UNARY, ARITHMETIC, COMPARISON, LOGICAL))
_SCALAR = _BINARY | {"add": "plus", "subtract": "minus"}
_TURNED = {
    "greater": "lesser",
    "lesser": "greater",
    "greater_equal": "lesser_equal",
    "lesser_equal": "greater_equal",
}
_ORDERED = ("subtract", "divide", "remainder", "pow")


@exports(*_UNARY)
def unary(writer: Writer, node: Node, x: Any) -> Any:
    assert node.op is not None
    (x,) = writer.converted(node, [x])
    return writer.add(_UNARY[node.op.name], x) if isinstance(x, Entry) else None


@exports(*_BINARY)
def binary(writer: Writer, node: Node, x: Any, y: Any) -> Any:
    assert node.op is not None
    name = node.op.name
    x, y = writer.converted(node, [x, y])
    if isinstance(x, Entry) and isinstance(y, Entry):
        return writer.add(f"broadcast_{_BINARY[name]}", x, y)
    if isinstance(x, Entry):
        return writer.add(f"_{_SCALAR[name]}_scalar", x, scalar=float(y))
    if isinstance(y, Entry):
        turned = "r" if name in _ORDERED else ""
        return writer.add(f"_{turned}{_SCALAR[name]}_scalar", y, scalar=float(x))
    return None


def _common(writer: Writer, node: Node, inputs: Sequence[Any]) -> list[Any]:
    """Inputs of one dtype, that of all together: what comparisons of MXNet take."""
    types = {
        k: writer.type(v) for k, v in enumerate(node.inputs) if v is not None and isinstance(inputs[k], Entry)
    }
    names = {t.dtype.name for t in types.values() if t is not None and t.dtype is not bool_}
    if len(names) < 2:
        return list(inputs)
    wanted = np.result_type(*names).name if "bfloat16" not in names else "float32"
    results = []
    for k, x in enumerate(inputs):
        t = types.get(k)
        is_other = t is not None and t.dtype.name not in ("bool", wanted)
        results.append(writer.add("Cast", x, dtype=wanted) if is_other else x)
    return results


@exports(*_COMPARED)
def compared(writer: Writer, node: Node, x: Any, y: Any) -> Any:
    """A number of the operands' dtype, 0 or 1."""
    assert node.op is not None
    name = _COMPARED[node.op.name]
    x, y = _common(writer, node, [x, y])
    if isinstance(x, Entry) and isinstance(y, Entry):
        return writer.add(f"broadcast_{name}", x, y)
    if isinstance(x, Entry):
        return writer.add(f"_{name}_scalar", x, scalar=float(y))
    if isinstance(y, Entry):
        return writer.add(f"_{_TURNED.get(name, name)}_scalar", y, scalar=float(x))
    return None


@exports(*_LOGICAL)
def logical(writer: Writer, node: Node, x: Any, y: Any) -> Any:
    assert node.op is not None
    if not isinstance(x, Entry) or not isinstance(y, Entry):
        return None
    x, y = _common(writer, node, [x, y])
    return writer.add(f"broadcast_{_LOGICAL[node.op.name]}", x, y)


@exports("logical_not")
def logical_not(writer: Writer, node: Node, x: Any) -> Any:
    return writer.add("logical_not", x)


@exports("as_dtype_of")
def as_dtype_of(writer: Writer, node: Node, x: Any, like: Any) -> Any:
    """Truth values of numbers are of their dtype already."""
    return x


@exports("cast")
def cast(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    if not isinstance(x, Entry):
        return None
    if op.dtype is bool_:
        return writer.add("_not_equal_scalar", x, scalar=0.0)
    return writer.add("Cast", x, dtype=writer.dtype(node, op.dtype))


@exports("clip")
def clip(writer: Writer, node: Node, x: Any, low: Any = None, high: Any = None) -> Any:
    x, low, high = writer.converted(node, [x, low, high][: len(node.inputs)]) + [None] * (
        3 - len(node.inputs)
    )
    if not any(isinstance(limit, Entry) for limit in (low, high)):
        least, most = -np.finfo(np.float32).max, np.finfo(np.float32).max
        bounds = float(least if low is None else low), float(most if high is None else high)
        return writer.add("clip", x, a_min=bounds[0], a_max=bounds[1])
    for name, limit in (("maximum", low), ("minimum", high)):
        if isinstance(limit, Entry):
            x = writer.add(f"broadcast_{name}", x, limit)
        elif limit is not None:
            x = writer.add(f"_{name}_scalar", x, scalar=float(limit))
    return x


@exports("where")
def where(writer: Writer, node: Node, condition: Any, x: Any, y: Any) -> Any:
    """MXNet's where repeats nothing: operands get the shape that all have together."""
    if not isinstance(condition, Entry):
        return None
    x, y = _pair(writer, node, x, y)
    wanted = writer.type(node.outputs[0])
    if wanted is not None:  # what was compared may have had another dtype
        condition = writer.add("Cast", condition, dtype=writer.dtype(node, wanted))
    zeros = writer.add("zeros_like", condition)
    for other in (x, y):
        if isinstance(other, Entry):
            zeros = writer.add("broadcast_add", zeros, writer.add("zeros_like", other))
    whole = [
        writer.add("broadcast_add", zeros, each)
        if isinstance(each, Entry)
        else writer.add("_plus_scalar", zeros, scalar=float(each))
        for each in (condition, x, y)
    ]
    return writer.add("where", *whole)


def _pair(writer: Writer, node: Node, x: Any, y: Any) -> list[Any]:
    """The two values of a choice, in the dtype of the output."""
    wanted = writer.type(node.outputs[0])
    results = []
    for value, each in zip(node.inputs[1:], (x, y), strict=True):
        t = None if value is None or not isinstance(each, Entry) else writer.type(value)
        is_other = t is not None and wanted is not None and t.dtype is not wanted.dtype
        results.append(writer.add("Cast", each, dtype=writer.dtype(node, wanted)) if is_other else each)
    return results


@exports("filled_like")
def filled_like(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    if op.value in (0, 1):
        return writer.add("ones_like" if op.value else "zeros_like", x)
    return writer.add("_plus_scalar", writer.add("zeros_like", x), scalar=float(op.value))


@exports("full")
def full(writer: Writer, node: Node) -> Any:
    op: Any = node.op
    value, shape = number(node, "value"), tuple(op.shape)
    if value is None or not shape or 0 in shape:
        return None
    return writer.add("_full", shape=shape, value=float(value), dtype=writer.dtype(node, op.dtype))


@exports("constant")
def constant(writer: Writer, node: Node) -> Any:
    op: Any = node.op
    return writer.array("array", op.elements.on(as_device("cpu:0")))


@exports("stop_gradient")
def stop_gradient(writer: Writer, node: Node, x: Any) -> Any:
    return writer.add("BlockGrad", x)


@exports("to_device")
def to_device(writer: Writer, node: Node, x: Any) -> Any:
    return x


# ---- Shapes


def _sizes(value: Any) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


@exports("reshape")
def reshape(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    shape = _sizes(op.shape)
    if not shape:
        shape = (1,)  # MXNet has no 0-d arrays
    if 0 in shape:
        raise writer.refuse(node, "MXNet has no arrays without elements")
    return writer.add("Reshape", x, shape=shape)


@exports("flatten")
def flatten(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    if (op.start_axis, op.end_axis) == (1, -1):
        return writer.add("Flatten", x)
    ndim = len(writer.shape(node, 0))
    start, end = op.start_axis % ndim, op.end_axis % ndim
    codes = [0] * start + [-1] + list(writer.shape(node, 0)[end + 1 :])
    return writer.add("Reshape", x, shape=codes)


@exports("permute_dims")
def permute_dims(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    axes = _sizes(op.axes)
    ndim = len(axes)
    return writer.add("transpose", x, axes=tuple(axis % ndim for axis in axes))


@exports("reverse_dims")
def reverse_dims(writer: Writer, node: Node, x: Any) -> Any:
    return writer.add("transpose", x)


@exports("matrix_transpose")
def matrix_transpose(writer: Writer, node: Node, x: Any) -> Any:
    return writer.add("SwapAxis", x, dim1=-1, dim2=-2)


@exports("swapaxes")
def swapaxes(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    return writer.add("SwapAxis", x, dim1=op.axis1, dim2=op.axis2)


@exports("expand_dims")
def expand_dims(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    axes = _sizes(op.axis)
    if len(axes) > 1:
        ndim = len(writer.shape(node, 0)) + len(axes)
        axes = tuple(sorted(axis % ndim for axis in axes))
    for axis in axes:
        x = writer.add("expand_dims", x, axis=axis)
    return x


@exports("squeeze")
def squeeze(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    axes = None if op.axis is None else _sizes(op.axis)
    return x if axes == () else writer.add("squeeze", x, axis=axes)


@exports("concat")
def concat(writer: Writer, node: Node, *x: Any) -> Any:
    op: Any = node.op
    if op.axis is None:
        return None
    return writer.add("Concat", *writer.converted(node, x), dim=op.axis, num_args=len(x))


@exports("stack")
def stack(writer: Writer, node: Node, *x: Any) -> Any:
    op: Any = node.op
    return writer.add("stack", *writer.converted(node, x), axis=op.axis, num_args=len(x))


@exports("repeat")
def repeat(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    if not isinstance(op.repeats, int):
        return None
    return writer.add("repeat", x, repeats=op.repeats, axis=op.axis)


@exports("tile")
def tile(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    return writer.add("tile", x, reps=_sizes(op.repetitions))


@exports("flip")
def flip(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    ndim = len(writer.shape(node, 0))
    axes = range(ndim) if op.axis is None else _sizes(op.axis)
    return writer.add("reverse", x, axis=tuple(axis % ndim for axis in axes)) if axes else x


@exports("broadcast_to")
def broadcast_to(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    shape = tuple(op.shape)
    ndim = len(writer.shape(node, 0))
    if ndim < len(shape):
        x = writer.add("Reshape", x, shape=[1] * (len(shape) - ndim) + [-2])
    return writer.add("broadcast_to", x, shape=shape)


@exports("basic_index")
def basic_index(writer: Writer, node: Node, x: Any) -> Any:
    """A slice; then axes of single elements go, and new ones come."""
    op: Any = node.op
    begin: list[Any] = []
    end: list[Any] = []
    step: list[int] = []
    gone, new, position = [], [], 0
    for item in op.items:
        if item is None:
            new.append(position)
        elif isinstance(item, int):
            gone.append(len(begin))
            start, count, stride = item, 1, 1
        else:
            start, count, stride = item
        if item is not None:
            if count == 0:
                raise writer.refuse(node, "MXNet has no arrays without elements")
            last = start + count * stride
            begin.append(start)
            end.append(None if last < 0 else last)
            step.append(stride)
        position += not isinstance(item, int)
    if begin:
        x = writer.add("slice", x, begin=begin, end=end, step=step)
    if gone:
        x = writer.add("squeeze", x, axis=gone)
    for axis in new:
        x = writer.add("expand_dims", x, axis=axis)
    return x


@exports("slice")
def slice_(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    shape = writer.shape(node, 0)
    axes = range(len(op.starts)) if op.axes is None else op.axes
    steps = [1] * len(op.starts) if op.steps is None else op.steps
    begin, end, step = [0] * len(shape), list[Any](shape), [1] * len(shape)
    for axis, start, stop, stride in zip(axes, op.starts, op.stops, steps, strict=True):
        chosen = range(shape[axis])[slice(start, stop, stride)]
        if not chosen:
            raise writer.refuse(node, "MXNet has no arrays without elements")
        last = chosen.start + len(chosen) * stride
        begin[axis], end[axis], step[axis] = chosen.start, None if last < 0 else last, stride
    return writer.add("slice", x, begin=begin, end=end, step=step)


@exports("depth_to_space", "space_to_depth")
def depth_to_space(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    return writer.add(op.name, x, block_size=op.block_size)


# ---- Reductions and indices


@exports("sum", "mean", "prod", "max", "min")
def reduction(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    (x,) = writer.converted(node, [x])
    axes = None if op.axis is None else _sizes(op.axis)
    if axes == ():
        return x
    return writer.add(op.name, x, axis=axes, keepdims=op.keepdims)


@exports("argmax", "argmin")
def argmax(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    if op.axis is None and op.keepdims:
        return None
    y = writer.add(op.name, x, axis=op.axis, keepdims=op.keepdims)
    return writer.add("Cast", y, dtype="int64")


@exports("take")
def take(writer: Writer, node: Node, x: Any, indices: Any) -> Any:
    op: Any = node.op
    if not isinstance(x, Entry) or not isinstance(indices, Entry):
        return None
    # Indices below 0 count from the end, which "wrap" does, too.
    return writer.add("take", x, indices, axis=0 if op.axis is None else op.axis, mode="wrap")


@exports("embedding")
def embedding(writer: Writer, node: Node, indices: Any, table: Any) -> Any:
    op: Any = node.op
    if op.padding_idx is not None:
        raise writer.refuse(node, "MXNet has no padding_idx")
    count, width = op.num_embeddings, op.embedding_dim
    if count is None or width is None:
        count, width = writer.shape(node, 1)
    return writer.add("Embedding", indices, table, input_dim=count, output_dim=width)


@exports("matmul")
def matmul(writer: Writer, node: Node, a: Any, b: Any) -> Any:
    shapes = writer.shape(node, 0), writer.shape(node, 1)
    a, b = writer.converted(node, [a, b])
    m, n = map(len, shapes)
    if m <= 2 and n <= 2:
        return writer.add("dot", a, b)
    if m < 2 or n < 2:
        raise writer.refuse(node, "MXNet has no products of a vector and several matrices")
    lead = np.broadcast_shapes(shapes[0][:-2], shapes[1][:-2])
    parts = []
    for x, shape in ((a, shapes[0]), (b, shapes[1])):
        if shape[:-2] != lead:
            if len(shape) < len(lead) + 2:
                x = writer.add("Reshape", x, shape=[1] * (len(lead) + 2 - len(shape)) + [-2])
            x = writer.add("broadcast_to", x, shape=(*lead, *shape[-2:]))
        parts.append(x)
    return writer.add("_linalg_gemm2", *parts)


# ---- Outputs for training, and what was read


@exports("mxnet_operator")
def mxnet_operator(writer: Writer, node: Node, *x: Any) -> Any:
    op: Any = node.op
    entry = writer.add(op.operator, *x, **dict(op.settings))
    return [Entry(entry.node, k) for k in range(op.count)]


@exports("mxnet_softmax_output")
def softmax_output(writer: Writer, node: Node, x: Any, label: Any) -> Any:
    op: Any = node.op
    return writer.add(
        "SoftmaxOutput",
        x,
        label,
        grad_scale=float(op.scale),
        multi_output=op.multi_output,
        preserve_shape=op.preserve_shape,
        use_ignore=op.use_ignore,
        ignore_label=float(op.ignore_label),
        normalization=op.normalization,
        smooth_alpha=float(op.smooth_alpha),
        out_grad=op.out_grad,
    )


_KINDS = {
    "linear": "LinearRegressionOutput",
    "logistic": "LogisticRegressionOutput",
    "absolute": "MAERegressionOutput",
}


@exports("mxnet_regression_output")
def regression_output(writer: Writer, node: Node, x: Any, label: Any) -> Any:
    op: Any = node.op
    return writer.add(_KINDS[op.kind], x, label, grad_scale=float(op.scale))


@exports("svm_output")
def svm_output(writer: Writer, node: Node, x: Any, label: Any) -> Any:
    op: Any = node.op
    scale = float(op.scale)
    return writer.add(
        "SVMOutput", x, label, margin=float(op.margin), regularization_coefficient=scale, use_linear=op.linear
    )


@exports("make_loss")
def make_loss(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    scale, threshold = number(node, "scale"), number(node, "valid_threshold")
    if None in (scale, threshold):
        return None
    return writer.add(
        "MakeLoss", x, grad_scale=float(scale), normalization=op.normalization, valid_thresh=float(threshold)
    )


@exports("gradient_multiplier")
def gradient_multiplier(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    return writer.add("_contrib_gradientmultiplier", x, scalar=float(op.factor))


@exports("stepped")
def stepped(writer: Writer, node: Node) -> Any:
    op: Any = node.op
    (count, *rest), dtype = op.shape, writer.dtype(node, op.dtype)
    if count == 0 or rest:
        return None
    stop = float(op.start + op.step * count)
    return writer.add("_arange", start=float(op.start), stop=stop, step=float(op.step), dtype=dtype)


@exports("places_like")
def places_like(writer: Writer, node: Node, x: Any) -> Any:
    op: Any = node.op
    shape = writer.shape(node, 0)
    axis = op.axis % len(shape)
    line = writer.add("_arange", start=0.0, stop=float(shape[axis]), dtype="int64")
    line = writer.add("Reshape", line, shape=[n if d == axis else 1 for d, n in enumerate(shape)])
    return writer.add("broadcast_to", line, shape=shape)
