"""Elements chosen by arrays of indices or masks: taking, putting, tables of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft.base.dtype import DType, bool_, int32, int64
from weft.base.errors import DTypeError, ShapeError
from weft.expr import scalar as e
from weft.expr.kernel import Each, Store
from weft.ops import functions as F
from weft.ops.kernels import Loop
from weft.ops.node import constant
from weft.ops.op import Op, Runtime, op
from weft.ops.pointwise import Pointwise, unbroadcast
from weft.ops.types import TensorType, broadcast_shapes, normalize_axes

MODES = ("set", "add", "max", "min")


def zeros_like(x: Any) -> Any:
    """Zeros in x's shape and type, as a view of one number."""
    return F.broadcast_like(constant(0, x.dtype), x)


def _numbers(indices: Any) -> Any:
    """1, 2, 3, ... in row-major order, in the shape of the indices."""
    ones = F.filled_like(F.cast(indices, dtype=int64), value=1.0)
    numbers = F.cumulative_sum(F.reshape(ones, shape=(math.prod(indices.shape),)), axis=0)
    return F.reshape(numbers, shape=indices.shape)


def broadcast_all(values: Sequence[Any], shape: Sequence[Any]) -> list[Any]:
    """The values, each repeated to this shape."""
    return [v if v.shape == tuple(shape) else F.broadcast_to(v, shape=tuple(shape)) for v in values]


class Indexing(Op, family="indexing"):
    """Base: indices are integers, below 0 from the end."""

    def require_indices(self, *indices: TensorType) -> None:
        for k, t in enumerate(indices):
            if not t.dtype.is_integer:
                raise self.fail(DTypeError, "indices must be integers", **{f"indices{k or ''}": t})


EXTREMES = ("max", "min")


class Putting(Indexing, fitted=("updates",)):
    """Base of those that write: mode says what becomes of an element that an index meets."""

    mode: str = "set"

    def check(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"{self.name}: mode must be one of {', '.join(MODES)}, got {self.mode!r}")

    def require_types(self, x: TensorType, updates: TensorType) -> None:
        """Raise DTypeError where elements are compared that have no order, or imaginary parts would be lost."""
        if self.mode in ("max", "min"):
            self.require_order(x=x)
        if updates.dtype.is_complex and not x.dtype.is_complex and x.dtype is not bool_:
            raise self.fail(DTypeError, "x has no imaginary parts", x=x, updates=updates)

    def shared_gradient(
        self,
        x: Any,
        updates: Any,
        y: Any,
        dy: Any,
        read: Callable[[Any], Any],
        add: Callable[[Any, Any], Any],
    ) -> tuple[Any, Any]:
        """The gradients of x and of the updates, in full shape, for an extreme: equal ones share it equally."""
        is_old, is_new = (F.cast(F.equal(v, at), dtype=x.dtype) for v, at in ((x, y), (updates, read(y))))
        share = dy / F.maximum(add(is_old, is_new), 1)
        return is_old * share, is_new * read(share)


@op
class Take(Indexing, primitive=True, rule="x, indices: int -> y: x", positional=("axis",)):
    """The slices of x at these indices along an axis.

    x: [..., n, ...]; indices: integers in -n ... n-1, [*i]; axis: which n; it may be left out if x has one dimension.
    Returns x's dtype, the shape of the indices in place of n. Raises IndexError for an axis or an index out of range.
    Source: array API 2024.12, take.

    >>> import weft as wf
    >>> wf.take(wf.tensor([10, 20, 30]), wf.tensor([2, 0, -1]))
    tensor([30, 10, 30], dtype=int64, device=cpu:0)
    """

    axis: int | None = None

    def axis_of(self, x: TensorType) -> int:
        if self.axis is None and x.ndim != 1:
            raise self.fail(ValueError, "axis must be given unless x has one dimension", x=x)
        return normalize_axes(self.name, self.axis or 0, x.ndim)[0]

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        self.require_indices(indices)
        axis = self.axis_of(x)
        return x.like((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))

    def vjp(self, x: Any, indices: Any, dy: Any) -> Any:
        axis = self.axis_of(x.type)
        return F.index_put(zeros_like(x), dy, indices, axes=(axis,), position=axis, mode="add"), None


@op
class TakeAlongAxis(Indexing, rule="x, indices: int -> y: x", positional=("axis",)):
    """y[..., j, ...] = x[..., indices[..., j, ...], ...]: elements chosen along an axis, by an index for each.

    x: [..., n, ...]; indices: integers in -n ... n-1, of as many dimensions, the other sizes fit by broadcasting.
    Returns x's dtype. Raises ShapeError if the shapes do not fit, IndexError for an axis or an index out of range.
    Source: array API 2024.12, take_along_axis.

    >>> import weft as wf
    >>> wf.take_along_axis(wf.tensor([[10, 20], [30, 40]]), wf.tensor([[1], [0]]))
    tensor([[20],
            [30]], dtype=int64, device=cpu:0)
    """

    axis: int = -1

    def shapes(self, x: TensorType, indices: TensorType) -> tuple[int, tuple[Any, ...], tuple[Any, ...]]:
        """The axis, the result's shape, and the shape to which x is repeated."""
        self.require_indices(indices)
        if x.ndim != indices.ndim:
            raise self.fail(ShapeError, "x and indices need as many dimensions", x=x, indices=indices)
        axis = normalize_axes(self.name, self.axis, x.ndim)[0]

        def around(t: TensorType) -> tuple[Any, ...]:
            return t.shape[:axis] + t.shape[axis + 1 :]

        if around(x) == around(indices):
            return axis, indices.shape, x.shape
        try:
            shape = broadcast_shapes(self.name, {"x": x.like(around(x)), "i": x.like(around(indices))})
        except ShapeError:
            raise self.fail(ShapeError, f"sizes but for axis {axis} differ", x=x, indices=indices) from None
        first, last = shape[:axis], shape[axis:]
        return axis, (*first, indices.shape[axis], *last), (*first, x.shape[axis], *last)

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        return x.like(self.shapes(x, indices)[1])

    def decompose(self, x: Any, indices: Any) -> Any:
        axis, shape, repeated = self.shapes(x.type, indices.type)
        if (x.shape, indices.shape) == (repeated, shape):
            return NotImplemented
        (x,), (indices,) = broadcast_all((x,), repeated), broadcast_all((indices,), shape)
        return F.take_along_axis(x, indices, axis=axis)

    def vjp(self, x: Any, indices: Any, dy: Any) -> Any:
        axis, shape, repeated = self.shapes(x.type, indices.type)
        (full,), (indices,) = broadcast_all((x,), repeated), broadcast_all((indices,), shape)
        dx = F.put_along_axis(zeros_like(full), indices, dy, axis=axis, mode="add")
        return unbroadcast(dx, x), None


@op
class PutAlongAxis(Putting, rule="x, indices: int, updates -> y: x", positional=("axis", "mode")):
    """x, but y[..., indices[..., j, ...], ...] is combined with updates[..., j, ...], in the order of j.

    x: [..., n, ...]; indices: integers in -n ... n-1, of as many dimensions, the other sizes at most x's; updates: a
    number, or of the indices' shape or one that fits it. mode: "set", "add", "max" or "min". Returns x's type.
    Where an index is repeated, the last update stays with "set", and has the gradient alone. Equal "max" and "min"
    share it. Raises ShapeError if the shapes do not fit, IndexError for an axis or index out of range.
    Source: NumPy's put_along_axis; PyTorch's scatter.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.put_along_axis(wf.zeros(3), wf.tensor([2, 0, 2]), wf.ones(3), mode="add")
    tensor([1., 0., 2.], dtype=float32, device=cpu:0)
    """

    axis: int = -1

    def infer(self, x: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
        self.require_types(x, updates)
        self.require_indices(indices)
        axis = normalize_axes(self.name, self.axis, x.ndim)[0]
        sizes = zip(x.shape, indices.shape, strict=False)
        if x.ndim != indices.ndim or any(m is not n and m > n for d, (n, m) in enumerate(sizes) if d != axis):
            fact = f"indices must have {x.ndim} dimensions, with sizes up to x's but for axis {axis}"
            raise self.fail(ShapeError, fact, x=x, indices=indices)
        if broadcast_shapes(self.name, {"indices": indices, "updates": updates}) != indices.shape:
            raise self.fail(ShapeError, "updates do not fit the indices", indices=indices, updates=updates)
        return x.like()

    def decompose(self, x: Any, indices: Any, updates: Any) -> Any:
        if updates.shape == indices.shape and updates.dtype is x.dtype:
            return NotImplemented
        (updates,) = broadcast_all((F.cast(updates, dtype=x.dtype),), indices.shape)
        return F.put_along_axis(x, indices, updates, axis=self.axis, mode=self.mode)

    def vjp(self, x: Any, indices: Any, updates: Any, y: Any, dy: Any) -> Any:
        if self.mode in EXTREMES:
            if not x.dtype.is_differentiable:
                return None, None, None
            dx, du = self.shared_gradient(
                x,
                broadcast_all((F.cast(updates, dtype=x.dtype),), indices.shape)[0],
                y,
                dy,
                lambda v: F.take_along_axis(_part(v, indices, self.axis), indices, axis=self.axis),
                lambda v, u: F.put_along_axis(v, indices, u, axis=self.axis, mode="add"),
            )
            return (
                dx,
                None,
                F.cast(unbroadcast(du, updates), dtype=updates.dtype) if _float(updates) else None,
            )
        dupdates = F.take_along_axis(_part(dy, indices, self.axis), indices, axis=self.axis)
        dx = dy if self.mode == "add" else F.put_along_axis(dy, indices, 0, axis=self.axis)
        if self.mode == "set" and _float(updates):
            numbers = _numbers(indices)
            last = F.put_along_axis(F.cast(zeros_like(x), dtype=int64), indices, numbers, axis=self.axis)
            stays = F.equal(
                F.take_along_axis(_part(last, indices, self.axis), indices, axis=self.axis), numbers
            )
            dupdates = F.where(stays, dupdates, 0)
        return (
            dx,
            None,
            F.cast(unbroadcast(dupdates, updates), dtype=updates.dtype) if _float(updates) else None,
        )


def _float(value: Any) -> bool:
    return value.dtype.is_differentiable and not value.type.weak


def _part(x: Any, indices: Any, axis: int) -> Any:
    """x without the elements beyond the indices in dimensions other than the axis."""
    axis %= x.ndim
    sizes = [n if d == axis else m for d, (n, m) in enumerate(zip(x.shape, indices.shape, strict=True))]
    if all(n is m or n == m for n, m in zip(x.shape, sizes, strict=True)):
        return x
    return F.basic_index(x, items=tuple((0, n, 1) for n in sizes))


def split_shape(
    op: Indexing, x: TensorType, indices: Sequence[TensorType], axes: tuple[int, ...], position: int
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The indices' common shape, and the shape of x[indices]."""
    op.require_indices(*indices)
    if len(indices) != len(axes) or not axes:
        raise op.fail(ValueError, f"{len(indices)} index arrays for the axes {axes}", x=x)
    points = broadcast_shapes(op.name, {f"indices{k}": t for k, t in enumerate(indices)})
    indexed = normalize_axes(op.name, axes, x.ndim)
    others = [n for d, n in enumerate(x.shape) if d not in indexed]
    if not 0 <= position <= len(others):
        raise op.fail(ValueError, f"position must be in 0..{len(others)}, got {position}", x=x)
    return points, (*others[:position], *points, *others[position:])


@op
class IndexGet(Indexing, rule="x, *indices: int -> y: x"):
    """Elements or slices at indices for several axes: what x[i, :, j] with arrays i, j means.

    x: [...]; indices: integers, their shapes fit by broadcasting, one for each of axes; position: where the dimensions
    of the indices are among the other ones of x. Returns x's dtype. Raises IndexError for an index out of range.
    Source: NumPy's advanced indexing.

    >>> import weft as wf
    >>> x = wf.reshape(wf.arange(6), (2, 3))
    >>> wf.functional.index_get(x, wf.tensor([0, 1]), wf.tensor([2, 0]), axes=(0, 1), position=0)
    tensor([2, 3], dtype=int64, device=cpu:0)
    """

    axes: tuple[int, ...]
    position: int = 0

    def infer(self, x: TensorType, *indices: TensorType) -> TensorType:
        return x.like(split_shape(self, x, indices, self.axes, self.position)[1])

    def decompose(self, x: Any, *indices: Any) -> Any:
        points = split_shape(self, x.type, [v.type for v in indices], self.axes, self.position)[0]
        if all(v.shape == points for v in indices):
            return NotImplemented
        return F.index_get(x, *broadcast_all(indices, points), **self.values())

    def vjp(self, x: Any, indices: Any, dy: Any) -> Any:
        dx = F.index_put(zeros_like(x), dy, *indices, **self.values(), mode="add")
        return (dx, *(None for _ in indices))


@op
class CheckIndices(Op, primitive=True, public=False):
    """0, an int64 of no dimensions; raises IndexError for indices that are out of range along these axes of x.

    A loop that gathers cannot stop at such an index, so it reads this number first. operator: whose indices they are.
    """

    operator: str
    axes: tuple[int, ...]

    @property
    def shown(self) -> str:
        return self.operator

    @property
    def blamed(self) -> str:
        """The function that errors name, as kernels of the operators do."""
        return "take_along_axis" if self.operator == "take_along_axis" else "index"

    def infer(self, x: TensorType, *indices: TensorType) -> TensorType:
        return x.like((), dtype=int64)

    def vjp(self, x: Any, indices: Any, dy: Any) -> Any:
        return None, *(None for _ in indices)


@op
class Gather(Op, public=False, rule="x, checked: int, *indices: int -> y: x"):
    """What index_get gives for indices of one shape that have been checked, as a loop. checked: of CheckIndices.

    along: x's other axes are those of the indices, as for take_along_axis, which has one of axes. Indices may change
    meanwhile in memory that others write, too: what they are then is clipped to what is there.
    """

    axes: tuple[int, ...]
    position: int
    along: bool = False

    def infer(self, x: TensorType, checked: TensorType, *indices: TensorType) -> TensorType:
        return x.like(self._placed([(t.shape, t.shape) for t in (x, checked, *indices)])[1])

    def _placed(self, operands: Sequence[Any]) -> tuple[list[Any], tuple[Any, ...]]:
        """The operands (shape, strides) as they are in the space of the result, and the result's shape."""
        (shape, strides), checked, *indices = operands
        if self.along:
            axis = self.axes[0]
            one = (*shape[:axis], 1, *shape[axis + 1 :]), (*strides[:axis], 0, *strides[axis + 1 :])
            return [one, checked, *indices], indices[0][0]
        others = [d for d in range(len(shape)) if d not in self.axes]
        before, behind = others[: self.position], others[self.position :]
        points = indices[0][0]

        def around(of: Sequence[Any], middle: Sequence[Any]) -> tuple[Any, ...]:
            return (*(of[d] for d in before), *middle, *(of[d] for d in behind))

        ones, zeros = (1,) * len(shape), (0,) * len(shape)
        table = around(shape, (1,) * len(points)), around(strides, (0,) * len(points))
        placed = [(around(ones, s), around(zeros, t)) for s, t in indices]
        return [table, checked, *placed], around(shape, points)

    def kernels(self, x: TensorType, checked: TensorType, *indices: TensorType) -> Iterator[Loop]:
        offset = e.load(1, "int64")
        for k, (t, axis) in enumerate(zip(indices, self.axes, strict=True)):
            n = x.shape[axis]
            kind = "int32" if t.dtype is int32 and isinstance(n, int) and n < 1 << 31 else "int64"
            size, stride = e.parameter(2 * k, kind), e.parameter(2 * k + 1, "int64")
            index, zero = e.cast(e.load(2 + k, t.dtype.name), kind), e.constant(0, kind)
            index = e.where(index < zero, index + size, index)
            offset = offset + e.cast(e.maximum(e.minimum(index, size - 1), zero), "int64") * stride
        stages = (Each((Store(2 + len(indices), e.load_at(0, x.dtype.name, offset)),)),)

        def place(operands: Sequence[Any]) -> tuple[Sequence[Any], tuple[Any, ...]]:
            shape, strides = operands[0]
            return self._placed(operands)[0], tuple(
                n for axis in self.axes for n in (shape[axis], strides[axis])
            )

        yield Loop(2 + len(indices), stages, place=place)

    def decompose(self, x: Any, checked: Any, *indices: Any) -> Any:
        if self.along:
            return F.take_along_axis(x, *indices, axis=self.axes[0])
        return F.index_get(x, *indices, axes=self.axes, position=self.position)


@op
class IndexPut(Putting, rule="x, updates, *indices: int -> y: x"):
    """x, but the elements that index_get would read are combined with updates, in row-major order of the indices.

    x: [...]; updates: fit index_get's result by broadcasting; indices, axes, position: as index_get's; mode: "set",
    "add", "max" or "min". Returns x's type. Where indices are repeated, the last update stays with "set", and has the
    gradient alone. Equal "max" and "min" share it. Raises IndexError for an index out of range.
    Source: NumPy's advanced indexing.

    >>> import weft as wf
    >>> wf.functional.index_put(wf.zeros(3), wf.ones(2), wf.tensor([2, 2]), axes=(0,), mode="add")
    tensor([0., 0., 2.], dtype=float32, device=cpu:0)
    """

    axes: tuple[int, ...]
    position: int = 0

    def infer(self, x: TensorType, updates: TensorType, *indices: TensorType) -> TensorType:
        self.require_types(x, updates)
        shape = split_shape(self, x, indices, self.axes, self.position)[1]
        if broadcast_shapes(self.name, {"x[indices]": x.like(shape), "updates": updates}) != shape:
            raise self.fail(ShapeError, f"updates do not fit the shape {shape}", x=x, updates=updates)
        return x.like()

    def _plain(self, x: Any, updates: Any, indices: Sequence[Any], shape: Any) -> bool:
        have_one_shape = all(t.shape == indices[0].shape for t in indices)
        return bool(have_one_shape and updates.shape == shape and updates.dtype is x.dtype)

    def decompose(self, x: Any, updates: Any, *indices: Any) -> Any:
        points, shape = split_shape(self, x.type, [v.type for v in indices], self.axes, self.position)
        if self._plain(x, updates, indices, shape):
            return NotImplemented
        (updates,) = broadcast_all((F.cast(updates, dtype=x.dtype),), shape)
        return F.index_put(x, updates, *broadcast_all(indices, points), **self.values())

    def vjp(self, x: Any, updates: Any, indices: Any, y: Any, dy: Any) -> Any:
        geometry = {"axes": self.axes, "position": self.position}
        if self.mode in EXTREMES:
            none = (None,) * len(indices)
            if not x.dtype.is_differentiable:
                return None, None, *none
            shape = split_shape(self, x.type, [v.type for v in indices], self.axes, self.position)[1]
            dx, du = self.shared_gradient(
                x,
                broadcast_all((F.cast(updates, dtype=x.dtype),), shape)[0],
                y,
                dy,
                lambda v: F.index_get(v, *indices, **geometry),
                lambda v, u: F.index_put(v, u, *indices, **geometry, mode="add"),
            )
            du = F.cast(unbroadcast(du, updates), dtype=updates.dtype) if _float(updates) else None
            return dx, du, *none
        dx = dy if self.mode == "add" else F.index_put(dy, 0, *indices, **geometry)
        du = None
        if _float(updates):
            du = F.index_get(dy, *indices, **geometry)
            if self.mode == "set":
                du = F.where(self._stays(x, indices), du, 0)
            du = F.cast(unbroadcast(du, updates), dtype=updates.dtype)
        return (dx, du, *(None for _ in indices))

    def _stays(self, x: Any, indices: Sequence[Any]) -> Any:
        """Which updates stay, as what fits the updates' full shape: a later one with equal indices replaces others."""
        points = split_shape(self, x.type, [v.type for v in indices], self.axes, self.position)[0]
        indices = broadcast_all(indices, points)
        numbers = _numbers(indices[0])
        axes = normalize_axes(self.name, self.axes, x.ndim)
        zeros = F.broadcast_to(constant(0, int64), shape=tuple(x.shape[d] for d in axes))
        inner = {"axes": tuple(range(len(axes)))}
        stays = F.equal(
            F.index_get(F.index_put(zeros, numbers, *indices, **inner), *indices, **inner), numbers
        )
        behind = x.ndim - len(axes) - self.position
        return F.expand_dims(stays, axis=tuple(range(len(points), len(points) + behind))) if behind else stays


@op
class Embedding(
    Indexing,
    rule="indices[*b]: int, table[num_embeddings,embedding_dim]: learnable float|number|bool|complex -> "
    "y[*b,embedding_dim]: table",
    positional=("padding_idx",),
):
    """Rows of a table: y[..., :] = table[indices[...], :].

    indices: integers in -n ... n-1, [...]; table: [n, d]; padding_idx: a row whose gradient is zero. Returns [..., d]
    of the table's dtype. num_embeddings, embedding_dim: n and d, for symbols, which make the table themselves.
    Raises DTypeError unless indices are integers, IndexError for an index out of range.
    Source: Bengio et al. 2003, A neural probabilistic language model.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.embedding(wf.tensor([1, 0]), wf.tensor([[1., 2.], [3., 4.]]))
    tensor([[3., 4.],
            [1., 2.]], dtype=float32, device=cpu:0)
    """

    padding_idx: int | None = None
    num_embeddings: int | None = None
    embedding_dim: int | None = None

    def infer(self, indices: TensorType, table: TensorType) -> Any:
        y = super().infer(indices, table)
        if self.padding_idx is not None:
            normalize_axes(f"{self.name}: padding_idx as", self.padding_idx, int(table.shape[0]))
        return y

    def decompose(self, indices: Any, table: Any) -> Any:
        return F.take(table, indices, axis=0)

    def vjp(self, indices: Any, table: Any, dy: Any) -> Any:
        if self.padding_idx is not None:
            row = self.padding_idx % table.shape[0]
            other = F.expand_dims(F.not_equal(F.remainder(indices, table.shape[0]), row), axis=-1)
            dy = F.where(other, dy, 0)
        return None, F.index_put(zeros_like(table), dy, indices, axes=(0,), mode="add")


@op
class MaskedFill(
    Pointwise,
    family="indexing",
    takes=("bool", "int", "uint", "float", "complex"),
    positional=("value",),
    fitted=("value",),
):
    """x with value where the mask is true.

    x: any dtype [...]; mask: booleans, whose shape fits x's by broadcasting; value: a number, converted to x's dtype.
    Returns x's dtype. Raises DTypeError unless the mask is boolean.
    Source: PyTorch's masked_fill.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.masked_fill(wf.tensor([1., 2.]), wf.tensor([True, False]), 0)
    tensor([0., 2.], dtype=float32, device=cpu:0)
    """

    value: Runtime[float]

    def compute_dtype(self, *inputs: TensorType | None) -> DType:
        assert inputs[0] is not None
        return inputs[0].dtype

    def infer(self, *inputs: Any) -> TensorType:
        if inputs[1].dtype is not bool_:
            raise self.fail(DTypeError, "mask must be boolean", x=inputs[0], mask=inputs[1])
        return super().infer(*inputs)

    def scalar(self, x: e.Scalar, mask: e.Scalar) -> e.Scalar:
        value: Any = self.value
        is_masked = mask if mask.dtype == "bool" else mask != 0
        return e.where(is_masked, value if isinstance(value, e.Scalar) else e.constant(value, x.dtype), x)


__all__ = [
    "Embedding",
    "IndexGet",
    "IndexPut",
    "MaskedFill",
    "PutAlongAxis",
    "Take",
    "TakeAlongAxis",
    "broadcast_all",
    "zeros_like",
]
