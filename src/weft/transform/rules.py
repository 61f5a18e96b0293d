"""Rules of vmap for operators with native kernels, and for random numbers; see weft.transform.batching.

A native kernel runs on exact operands, so it has to be said how it takes a batch: by leading axes, by folding the batch
into an axis that the kernel repeats over anyway, or by one more index. Each rule is called with the Batch, the node,
its inputs in the batched graph, and for each whether it is batched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft.base.dtype import float64, int64
from weft.graph.inner import stopped
from weft.ops import functions as F
from weft.ops import registry
from weft.ops.families.attention import shared_heads
from weft.ops.families.fourier import FourierTransform
from weft.ops.families.linalg import Factorization
from weft.ops.node import Node, make_node
from weft.transform.batching import Batch, changed, rule

Flags = Sequence[bool]
Inputs = Sequence[Any]


def to_front(x: Any, axis: int) -> Any:
    """x with this axis as the first."""
    return F.moveaxis(x, source=axis, destination=0) if axis else x


def axis_of(op: Any, rank: int) -> int:
    """The operator's axis among those of a batched operand whose examples have this rank."""
    return int((op.axis or 0) % rank) + 1


def shifted(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes of an example as those of a batched operand."""
    return tuple(a % rank + 1 for a in axes)


# Products of matrices.


@rule("matmul")
def matmul(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """Vectors as rows of a matrix where that is the same product; else leading axes."""
    a, b = inputs
    rank_a, rank_b = (v.ndim for v in node.inputs if v is not None)
    if flags == [True, False] and rank_b <= 2:
        if rank_a <= 2 and rank_b == 2:
            rows = F.reshape(a, shape=(math.prod(a.shape[:-1]), a.shape[-1]))
            return [F.reshape(F.matmul(rows, b), shape=(*a.shape[:-1], b.shape[-1]))]
        return [F.matmul(a, b)]
    if flags == [False, True] and rank_b == 1 and rank_a <= 2:
        return [F.matmul(b, F.matrix_transpose(a) if rank_a == 2 else a)]
    if rank_a == rank_b == 1 and not a.dtype.is_complex:  # vecdot takes the conjugate
        return [F.vecdot(a, b)]
    if flags == [False, True] and rank_a == 2 and b.shape[-1] == 1:  # one column each
        rows = F.reshape(b, shape=(math.prod(b.shape[:-2]), b.shape[-2]))
        y = F.matmul(rows, F.matrix_transpose(a))
        return [F.reshape(y, shape=(*b.shape[:-2], a.shape[0], 1))]
    a = F.expand_dims(a, axis=-2) if rank_a == 1 else a
    b = F.expand_dims(b, axis=-1) if rank_b == 1 else b
    rank = max(rank_a, rank_b, 2)
    y = F.matmul(batch.aligned(a, flags[0], rank), batch.aligned(b, flags[1], rank))
    added = tuple(axis for axis, rank in ((-2, rank_a), (-1, rank_b)) if rank == 1)
    return [F.squeeze(y, axis=added) if added else y]


@rule("linear")
def linear(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """The same operator on rows; with a weight for each example, a product of matrices."""
    if flags[0] and not any(flags[1:]):
        return batch.again(node, changed(node.op, out_features=None), inputs)  # type: ignore[arg-type]

    def parts(x: Any, weight: Any, bias: Any = None) -> Any:
        y = F.matmul(x, F.matrix_transpose(weight))
        y = y if bias is None else y + bias
        return y if y.dtype is node.outputs[0].dtype else F.cast(y, dtype=node.outputs[0].dtype)

    return batch.through(parts, inputs, flags)


# Images. The examples of a batch become images, or groups of channels where each has a weight of its own.


def as_images(x: Any) -> Any:
    """[batch, n, ...] as [batch * n, ...]."""
    return F.reshape(x, shape=(x.shape[0] * x.shape[1], *x.shape[2:]))


def of_images(x: Any, size: int) -> Any:
    """The other way round."""
    return F.reshape(x, shape=(size, x.shape[0] // size if size else 0, *x.shape[1:]))


def as_channels(x: Any) -> Any:
    """[batch, n, c, ...] as [n, batch * c, ...]."""
    moved = F.moveaxis(x, source=0, destination=1)
    return F.reshape(moved, shape=(moved.shape[0], moved.shape[1] * moved.shape[2], *moved.shape[3:]))


def of_channels(x: Any, size: int) -> Any:
    """The other way round."""
    count = x.shape[1] // size if size else 0
    return F.moveaxis(F.reshape(x, shape=(x.shape[0], size, count, *x.shape[2:])), source=1, destination=0)


@rule("conv1d", "conv2d", "conv3d")
def convolution(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """Images where the weight is the same, else groups."""
    x, weight, bias = (*inputs, None)[:3]
    op: Any = node.op
    plain = changed(op, out_channels=None)
    bias_is_batched = len(flags) > 2 and flags[2]
    if not flags[1] and not bias_is_batched:
        return [of_images(batch.again(node, plain, [as_images(x), weight, bias])[0], batch.size)]
    if not flags[1]:
        y = batch.again(node, plain, [as_images(x) if flags[0] else x, weight, None])[0]
        y = of_images(y, batch.size) if flags[0] else y
    else:
        x = as_channels(batch.spread(x, flags[0]))
        grouped = changed(plain, groups=op.groups * batch.size)
        y = of_channels(batch.again(node, grouped, [x, as_images(weight), None])[0], batch.size)
    if bias is not None:
        shape = (batch.size if bias_is_batched else 1, 1, -1, *(1,) * (len(op.stride)))
        y = y + F.reshape(bias, shape=shape)
    return [y]


@rule("convolution_input_gradient")
def input_gradient(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    dy, weight = inputs
    op: Any = node.op
    if not flags[1]:
        return [of_images(batch.again(node, op, [as_images(dy), weight])[0], batch.size)]
    grouped = changed(op, groups=op.groups * batch.size)
    dy = as_channels(batch.spread(dy, flags[0]))
    return [of_channels(batch.again(node, grouped, [dy, as_images(weight)])[0], batch.size)]


@rule("convolution_weight_gradient")
def weight_gradient(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    op: Any = node.op
    grouped = changed(op, groups=op.groups * batch.size)
    x, dy = (as_channels(batch.spread(v, flag)) for v, flag in zip(inputs, flags, strict=True))
    return [of_images(batch.again(node, grouped, [x, dy])[0], batch.size)]


@rule(
    *(f"{kind}_pool{n}d" for kind in ("avg", "max") for n in (1, 2, 3)),
    "avg_pool_gradient",
    "max_pool_gradient",
)
def pooling(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """Images, of which each is pooled by itself."""
    op: Any = node.op
    images = [as_images(v) for v in batch.spread_all(inputs, flags)]
    return [of_images(y, batch.size) for y in batch.again(node, op, images)]


# Attention.


@rule("scaled_dot_product_attention", "scaled_dot_product_attention_gradient")
def attention(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """One more leading axis where the kernel has room for it, else together with the first one.

    With ranges, slopes, a key or shared heads, which belong to certain axes, the composition is batched.
    """
    op: Any = node.op
    first = 0 if op.name == "scaled_dot_product_attention" else 1
    q, k = node.inputs[first : first + 2]
    if any(v is not None for v in node.inputs[4 if first == 0 else 7 :]) or shared_heads(q, k) > 1:
        return NotImplemented
    rank = max(v.ndim for v in node.inputs if v is not None)
    if rank < 4:
        operands = [
            batch.aligned(v, flag, rank) if v is not None else None
            for v, flag in zip(inputs, flags, strict=True)
        ]
        return batch.again(node, op, operands)
    lead = node.outputs[0].shape[: rank - 2]

    def folded(v: Any, old: Any, is_batched: bool) -> Any:
        if v is None:
            return None
        v = batch.spread(v, is_batched)
        tail = 1 if old.ndim < rank and old is node.inputs[5 if len(node.inputs) > 5 else 0] else 2
        full = (batch.size, *lead, *v.shape[v.ndim - tail :])
        if v.shape != full:
            v = F.broadcast_to(batch.aligned(v, True, len(full) - 1), shape=full)
        return as_images(v)

    operands = [folded(v, old, flag) for v, old, flag in zip(inputs, node.inputs, flags, strict=True)]
    return [of_images(y, batch.size) for y in batch.again(node, op, operands)]


# Order and indices.


@rule("sort", "argsort", "topk")
def ordering(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """Along the same axis, which is one further from the first."""
    (old,) = node.inputs
    assert old is not None
    assert node.op is not None
    return batch.again(node, changed(node.op, axis=axis_of(node.op, old.ndim)), inputs)


@rule("take")
def take(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """By the indices of slices of x; an embedding takes rows of a table."""
    op: Any = node.op
    x, indices = inputs
    old = node.inputs[0]
    assert old is not None
    return _take_slices(batch, x, flags[0], indices, flags[1], (op.axis or 0) % old.ndim)


@rule("embedding")
def embedding(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """Rows of a table, the same one or one for each example."""
    op: Any = node.op
    indices, table = inputs
    if not flags[1]:
        return batch.again(node, op, inputs)
    if op.padding_idx is not None:
        is_padding = F.equal(F.places_like(table, axis=1), op.padding_idx % table.shape[1])
        table = F.where(is_padding, stopped(table), table)
    return _take_slices(batch, table, True, indices, flags[0], 0)


def _take_slices(batch: Batch, x: Any, x_batched: bool, indices: Any, batched: bool, axis: int) -> Any:
    if not batched:
        return [F.take(x, indices, axis=axis + 1)]
    if not x_batched:
        return [to_front(F.take(x, indices, axis=axis), axis)]
    examples = batch.example_indices(indices.ndim - 1)
    slices = F.index_get(x, examples, indices, axes=(0, axis + 1), position=axis)
    return [to_front(slices, axis)]


@rule("index_get")
def index_get(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    op: Any = node.op
    x, *indices = inputs
    if not any(flags[1:]):
        axes = shifted(op.axes, x.ndim - 1)
        return [F.index_get(x, *indices, axes=axes, position=op.position + 1)]
    rank = max(v.ndim for v in node.inputs[1:] if v is not None)
    points = [batch.aligned(v, flag, rank) for v, flag in zip(indices, flags[1:], strict=True)]
    if not flags[0]:
        return [to_front(F.index_get(x, *points, axes=op.axes, position=op.position), op.position)]
    axes = (0, *shifted(op.axes, x.ndim - 1))
    elements = F.index_get(x, batch.example_indices(rank), *points, axes=axes, position=op.position)
    return [to_front(elements, op.position)]


@rule("index_put")
def index_put(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    op: Any = node.op
    x, updates, *indices = inputs
    x = batch.spread(x, flags[0])
    axes = shifted(op.axes, x.ndim - 1)
    rank = max(v.ndim for v in node.inputs[2:] if v is not None)
    full = rank + x.ndim - 1 - len(op.axes)  # of what an example's updates broadcast to
    updates = batch.aligned(batch.spread(updates, flags[1]), True, full)
    if not any(flags[2:]):
        return [F.index_put(x, updates, *indices, axes=axes, position=op.position + 1, mode=op.mode)]
    points = [batch.aligned(v, flag, rank) for v, flag in zip(indices, flags[2:], strict=True)]
    updates = F.moveaxis(updates, source=0, destination=op.position) if op.position else updates
    return [
        F.index_put(
            x,
            updates,
            batch.example_indices(rank),
            *points,
            axes=(0, *axes),
            position=op.position,
            mode=op.mode,
        )
    ]


@rule("searchsorted")
def searchsorted(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """Leading axes, which both have unless x1 is one row for all."""
    op: Any = node.op
    x1, x2, sorter = (*inputs, None)[:3]
    if sorter is not None:
        return batch.through(op.decompose, inputs, flags)
    old = node.inputs[0]
    assert old is not None
    if old.ndim == 1 and not flags[0]:
        return batch.again(node, op, inputs)
    x1, x2 = batch.spread_all([x1, x2], flags[:2])
    if old.ndim > 1:
        return batch.again(node, op, [x1, x2, None])
    rows = F.reshape(x2, shape=(batch.size, math.prod(x2.shape[1:])))
    return [F.reshape(batch.again(node, op, [x1, rows, None])[0], shape=x2.shape)]


@rule("check_labels")
def check_labels(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """The same check; of x only the number of classes is read."""
    op: Any = node.op
    old = node.inputs[1]
    assert old is not None
    axis = op.axis % old.ndim + flags[1]
    return [(y, flags[0]) for y in batch.again(node, changed(op, axis=axis), inputs)]


@rule("take_along_axis", "put_along_axis")
def along_axis(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """Along the same axis, which is one further from the first."""
    op, old = node.op, node.inputs[0]
    assert op is not None
    assert old is not None
    operands = [batch.aligned(v, True, old.ndim) for v in batch.spread_all(inputs, flags)]
    return batch.again(node, changed(op, axis=axis_of(op, old.ndim)), operands)


# Copies.


@rule("to_device")
def to_device(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    assert node.op is not None
    return batch.again(node, node.op, inputs)


# Random numbers. In the order of the program one draw takes the numbers of all examples.


def check_randomness(batch: Batch, node: Node) -> None:
    """Raises NotImplementedError where drawing was forbidden."""
    if batch.randomness == "error":
        assert node.op is not None
        raise NotImplementedError(
            f"vmap: {node.op.name} draws random numbers, and randomness='error'; "
            "'different' draws numbers of its own for each example, 'same' the same for all"
        )


@rule("random_uniform", "random_normal", "random_integers")
def filling(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    check_randomness(batch, node)
    op: Any = node.op
    if batch.randomness == "same":
        return [(y, False) for y in batch.again(node, op, inputs)]
    return batch.again(node, changed(op, shape=(batch.size, *op.shape)), inputs)


@rule("key_like")
def key_like(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """A key for each example, from one of the stream."""
    check_randomness(batch, node)
    if batch.randomness == "same":
        return [(y, False) for y in batch.again(node, node.op, inputs)]  # type: ignore[arg-type]
    keys = registry.get("random_integers")(
        shape=(batch.size, 2), dtype=node.outputs[0].dtype, high=2**63 - 1, device=node.outputs[0].device
    )
    return batch.again(node, keys, [], {})


@rule("gamma_of_bits", "gamma_slope", "poisson_of_bits", "binomial_of_bits", "multinomial_of_bits")
def of_bits(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """Each element, or row, for itself."""
    return batch.again(node, node.op, batch.spread_all(inputs, flags))  # type: ignore[arg-type]


@rule("uniform_like")
def uniform_like(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    check_randomness(batch, node)
    (y,) = node.outputs
    shape = y.shape if batch.randomness == "same" else (batch.size, *y.shape)
    numbers = registry.get("random_uniform")(shape=shape, dtype=y.dtype, device=y.device)
    return [(v, batch.randomness != "same") for v in batch.again(node, numbers, [], {})]


@rule("bernoulli")
def bernoulli(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    check_randomness(batch, node)
    op: Any = node.op
    (p,) = inputs
    if batch.randomness == "different":
        return batch.again(node, op, batch.spread_all(inputs, flags))
    if not flags[0]:
        return [(y, False) for y in batch.again(node, op, inputs)]
    numbers = registry.get("random_uniform")(shape=p.shape[1:], dtype=p.dtype, device=p.device)
    uniform = batch.again(node, numbers, [], {})[0]
    return [F.cast(F.less(uniform, p), dtype=node.outputs[0].dtype)]


@rule("dropout")
def dropout(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    op: Any = node.op
    if not op.random:
        return batch.again(node, op, inputs)
    check_randomness(batch, node)
    if batch.randomness == "different":
        return batch.again(node, op, batch.spread_all(inputs, flags))
    if not flags[0]:
        return [(y, False) for y in batch.again(node, op, inputs)]
    (x,) = inputs
    ones = registry.get("full")(shape=x.shape[1:], value=1, dtype=x.dtype, device=x.device)
    mask = batch.again(node, op, make_node(ones, ()).outputs)[1]
    return [F.dropout_gradient(x, mask, p=node.bound().p), (mask, False)]  # type: ignore[attr-defined]


@rule("random_permutation")
def permutation(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """By the order of random numbers."""
    check_randomness(batch, node)
    op: Any = node.op
    (x,) = inputs
    if batch.randomness == "same":
        if not flags[0]:
            return [(y, False) for y in batch.again(node, op, inputs)]
        row = make_node(registry.get("stepped")(shape=(x.shape[1],), dtype=int64), ()).outputs
        return [F.take(x, batch.again(node, op, row, {})[0], axis=1)]
    count = x.shape[1] if flags[0] else x.shape[0]
    keys = registry.get("random_uniform")(shape=(batch.size, count), dtype=float64, device=x.device)
    order = F.argsort(batch.again(node, keys, [], {})[0], axis=1)
    return _take_slices(batch, x, flags[0], order, True, 0)


# Stacks of matrices and signals: the batch is one more leading axis, of what a library computes.


@rule("solve", "solve_triangular")
def equations(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    """Vectors as columns, since a batch of them would be a matrix."""
    a, b = inputs
    rank_a, rank_b = (v.ndim for v in node.inputs if v is not None)
    rank = max(rank_a, rank_b, 2)
    columns = F.expand_dims(b, axis=-1) if rank_b == 1 else b
    operands = [batch.aligned(a, flags[0], rank), batch.aligned(columns, flags[1], rank)]
    (x,) = batch.again(node, node.op, operands)  # type: ignore[arg-type]
    return [F.squeeze(x, axis=-1) if rank_b == 1 else x]


@rule(Factorization, "inv", FourierTransform)
def stacks(batch: Batch, node: Node, inputs: Inputs, flags: Flags) -> Any:
    return batch.again(node, node.op, inputs)  # type: ignore[arg-type]
