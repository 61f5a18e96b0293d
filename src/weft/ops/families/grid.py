"""Operators that depend on the indices of an element: triangles, one-hot codes, grids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.base.dtype import int64
from weft.base.errors import DTypeError, ShapeError
from weft.expr import scalar as e
from weft.ops import functions as F
from weft.ops.kernels import Loop, pointwise_loop
from weft.ops.node import constant
from weft.ops.op import Op, op
from weft.ops.pointwise import cast_to
from weft.ops.types import TensorType, broadcast_shapes


class Triangle(Op, family="shape", rule="x -> y: x", positional=("k",)):
    """Base: the elements on one side of a diagonal, 0 on the other."""

    k: int = 0

    def is_kept(self, row: Any, column: Any) -> Any:
        """Whether the elements with these indices stay: of Scalars in loops, of arrays in the decomposition."""
        raise NotImplementedError

    def infer(self, x: TensorType) -> TensorType:
        if x.ndim < 2:
            raise self.fail(ShapeError, "needs at least 2 dimensions", x=x)
        return x.like()

    def kernels(self, x: TensorType) -> Iterator[Loop]:
        value = e.load(0, x.dtype.name)
        is_kept = self.is_kept(e.index(x.ndim - 2) + self.k, e.index(x.ndim - 1))
        yield pointwise_loop((x,), [e.where(is_kept, value, e.constant(0, x.dtype.name))])

    def decompose(self, x: Any) -> Any:
        row, column = F.places_like(x, axis=-2), F.places_like(x, axis=-1)
        return F.where(self.is_kept(row + self.k, column), x, constant(0, x.dtype))

    def vjp(self, dy: Any) -> Any:
        return dy.__weft_apply__(type(self), (dy,), self.values())


@op
class Tril(Triangle):
    """The elements on and below the k-th diagonal of the last two dimensions, 0 above it.

    x: [..., n, m]; k: how far the diagonal lies to the right of the main one. Returns x's shape and dtype. Raises
    ShapeError for fewer than 2 dimensions.
    Source: array API 2024.12, tril.

    >>> import weft as wf
    >>> wf.tril(wf.tensor([[1, 2], [3, 4]]))
    tensor([[1, 0],
            [3, 4]], dtype=int64, device=cpu:0)
    """

    def is_kept(self, row: Any, column: Any) -> Any:
        return column <= row


@op
class Triu(Triangle):
    """The elements on and above the k-th diagonal of the last two dimensions, 0 below it.

    x: [..., n, m]; k: how far the diagonal lies to the right of the main one. Returns x's shape and dtype. Raises
    ShapeError for fewer than 2 dimensions.
    Source: array API 2024.12, triu.

    >>> import weft as wf
    >>> wf.triu(wf.tensor([[1, 2], [3, 4]]))
    tensor([[1, 2],
            [0, 4]], dtype=int64, device=cpu:0)
    """

    def is_kept(self, row: Any, column: Any) -> Any:
        return column >= row


@op
class PlacesLike(Op, primitive=True, public=False):
    """The index of every element of x along an axis, int64, in x's shape. Only the type of x is used."""

    axis: int

    def infer(self, x: TensorType) -> TensorType:
        return x.like(dtype=int64)

    def kernels(self, x: TensorType) -> Iterator[Loop]:
        yield pointwise_loop((x,), [e.index(self.axis % x.ndim)])

    def vjp(self, x: Any) -> Any:
        return None


@op
class OneHot(Op, family="shape", rule="x: int -> y: int64", positional=("num_classes",)):
    """1 at the index that x gives, in a new last dimension, 0 elsewhere.

    x: integers [...]; num_classes: the new dimension's size. Returns int64[..., num_classes]; an x outside of
    0..num_classes-1 gives only 0. Raises DTypeError for floats.
    Source: PyTorch's one_hot.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.one_hot(wf.tensor([0, 2]), 3)
    tensor([[1, 0, 0],
            [0, 0, 1]], dtype=int64, device=cpu:0)
    """

    num_classes: int

    def infer(self, x: TensorType) -> TensorType:
        if not x.dtype.is_integer:
            raise self.fail(DTypeError, "takes integers", x=x)
        return x.like((*x.shape, self.num_classes), int64)

    def decompose(self, x: Any) -> Any:
        wide = F.broadcast_to(F.expand_dims(x, axis=-1), shape=(*x.shape, self.num_classes))
        return F.cast(F.equal(cast_to(wide, int64), F.places_like(wide, axis=-1)), dtype=int64)

    def vjp(self, x: Any) -> Any:
        return None


@op
class BroadcastArrays(Op, family="shape", rule="*x -> *y: each"):
    """Views of arrays, repeated to the shape that all fit.

    x: arrays, as a list or one by one. Returns a tuple, each one's dtype. Raises ShapeError if two sizes differ.
    Source: array API 2024.12, broadcast_arrays.

    >>> import weft as wf
    >>> [y.shape for y in wf.broadcast_arrays(wf.zeros((2, 1)), wf.zeros(3))]
    [(2, 3), (2, 3)]
    """

    def count_outputs(self, count: int) -> int | None:
        return count

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        shape = broadcast_shapes(self.name, {f"x{k}": t for k, t in enumerate(x)}) if x else ()
        return tuple(t.like(shape) for t in x)

    def decompose(self, *x: Any) -> Any:
        shape = broadcast_shapes(self.name, {f"x{k}": v.type for k, v in enumerate(x)})
        return [F.broadcast_to(v, shape=shape) for v in x]


@op
class Meshgrid(Op, family="shape", rule="*x -> *y: each"):
    """Views of rows, each along its own dimension of one grid.

    x: arrays [n], as a list or one by one; indexing: "ij", the k-th along dimension k, or "xy", with the first two
    exchanged. Returns a tuple, each one's dtype. Raises ShapeError for other than one dimension, ValueError for another
    word.
    Source: array API 2024.12, meshgrid.

    >>> import weft as wf
    >>> [y.shape for y in wf.meshgrid(wf.zeros(2), wf.zeros(3))]
    [(3, 2), (3, 2)]
    """

    indexing: str = "xy"

    def count_outputs(self, count: int) -> int | None:
        return count

    def check(self) -> None:
        if self.indexing not in ("xy", "ij"):
            raise ValueError(f"meshgrid: indexing must be 'xy' or 'ij', got {self.indexing!r}")

    def _dimension(self, k: int, count: int) -> int:
        return 1 - k if self.indexing == "xy" and k < 2 <= count else k

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        if any(t.ndim != 1 for t in x):
            raise self.fail(
                ShapeError, "takes arrays of one dimension", **{f"x{k}": t for k, t in enumerate(x)}
            )
        shape = [x[self._dimension(d, len(x))].shape[0] for d in range(len(x))]
        return tuple(t.like(shape) for t in x)

    def decompose(self, *x: Any) -> Any:
        count = len(x)
        shape = tuple(x[self._dimension(d, count)].shape[0] for d in range(count))
        dimensions = [self._dimension(k, count) for k in range(count)]
        return [
            F.broadcast_to(F.expand_dims(v, axis=tuple(a for a in range(count) if a != d)), shape=shape)
            for v, d in zip(x, dimensions, strict=True)
        ]
