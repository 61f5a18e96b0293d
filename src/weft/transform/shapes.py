"""Rules of vmap for views, joins and reductions: the same operators, with their axes one further from the first.

Without these rules they would be batched all the same, by their kernels (weft.transform.batched). But passes know views
and reductions by their operators: two views in a row become one, and sums of parts are put together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.ops import functions as F
from weft.ops import registry
from weft.ops.families.basic_index import BasicIndex
from weft.ops.families.reduction import ExtremePosition, Reduction
from weft.ops.families.shape import Reshape
from weft.ops.node import Node
from weft.ops.types import normalize_axes
from weft.transform.batching import Batch, changed, rule

Flags = Sequence[bool]
Inputs = Sequence[Any]


def further(axes: Sequence[int]) -> tuple[int, ...]:
    """Axes counted from the first, behind one more axis."""
    return tuple(axis + 1 for axis in axes)


@rule("reshape", "flatten")
def reshaped(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """A reshape, which keeps the order of the elements."""
    copy = node.op.copy if isinstance(node.op, Reshape) else None
    return [F.reshape(inputs[0], shape=(batch.size, *node.outputs[0].shape), copy=copy)]


@rule("expand_dims")
def expand_dims(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    op: Any = node.op
    return [F.expand_dims(inputs[0], axis=further(normalize_axes(op.name, op.axis, node.outputs[0].ndim)))]


@rule("squeeze")
def squeeze(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    op: Any = node.op
    return [F.squeeze(inputs[0], axis=further(normalize_axes(op.name, op.axis, inputs[0].ndim - 1)))]


@rule("permute_dims", "moveaxis", "swapaxes", "matrix_transpose")
def permuted(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    op: Any = node.op
    (x,) = inputs
    return [F.permute_dims(x, axes=(0, *further(op.order(x.ndim - 1))))]


@rule("broadcast_to")
def broadcast_to(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    (x,), (y,) = inputs, node.outputs
    return [F.broadcast_to(batch.aligned(x, True, y.ndim), shape=(batch.size, *y.shape))]


@rule("broadcast_like")
def broadcast_like(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """Of what is the same for all examples, a view that is the same, too: of the other array only the shape is read."""
    (a, _), (y,) = inputs, node.outputs
    if not flags[0]:
        return [(F.broadcast_to(a, shape=y.shape) if a.shape != y.shape else a, False)]
    return [F.broadcast_to(batch.aligned(a, True, y.ndim), shape=(batch.size, *y.shape))]


@rule("filled_like")
def filled_like(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """An array that is the same for all examples: of x only the shape is read."""
    op: Any = node.op
    y = node.outputs[0]
    value = node.bound().value  # type: ignore[attr-defined]
    if not isinstance(value, bool | int | float):
        return batch.again(node, op, inputs)
    full = registry.get("full")(shape=y.shape, value=value, dtype=y.dtype, device=y.device)
    return [(filled, False) for filled in batch.again(node, full, (), {})]


@rule("basic_index")
def basic_index(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    op: Any = node.op
    return [F.basic_index(inputs[0], items=((0, batch.size, 1), *op.items))]


@rule("view_gradient")
def view_gradient(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """Of the view that shows all examples; of x only the shape is read."""
    op: Any = node.op
    if not isinstance(op.of, BasicIndex):
        return NotImplemented
    dy, x = batch.spread_all(inputs, flags)
    items: Any = op.of.items
    of = BasicIndex(items=((0, batch.size, 1), *items))
    return batch.again(node, changed(op, of=of), [dy, x])


@rule("concat")
def concat(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    op: Any = node.op
    if op.axis is None:
        return NotImplemented
    axis = op.axis % node.outputs[0].ndim + 1
    return batch.again(node, changed(op, axis=axis), batch.spread_all(inputs, flags))


@rule("softmax", "log_softmax", ExtremePosition)
def along_one_axis(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    op: Any = node.op
    if op.axis is None:
        return NotImplemented
    return batch.again(node, changed(op, axis=op.axis % (inputs[0].ndim - 1) + 1), inputs)


@rule(Reduction)
def reduction(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    op: Any = node.op
    (x,) = inputs
    axes = further(normalize_axes(op.name, op.axis, x.ndim - 1))
    return batch.again(node, changed(op, axis=axes), inputs)
