"""Some rows of an array: gradients of embeddings, and what is exchanged of large tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.arrays.creation import asarray
from weft.arrays.data_dependent import flatnonzero
from weft.arrays.tensor import Tensor
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.types import TensorType
from weft.sparse.base import SparseArray, accumulated, index_array, put_rows, rule

__all__ = ["RowSparse", "row_sparse"]


class RowSparse(SparseArray):
    """An array of a shape [n, ...] that is zero but in some rows: indices int64 [k], values [k, ...].

    Rows may be in any order; those that are listed twice are added up. Nothing of the size of the whole array is made.
    indices: a list or NumPy array, which is checked, or a Tensor, which is not read: operators that read a row that is
    not there raise IndexError. Raises ShapeError or DTypeError if the parts do not fit, IndexError for a row that there
    is not.

    >>> import weft as wf
    >>> g = wf.sparse.RowSparse([3, 1, 3], wf.tensor([[1.], [2.], [4.]]), (5, 1))
    >>> g.distinct().indices, g.distinct().values[:, 0]
    (tensor([1, 3], dtype=int64, device=cpu:0), tensor([2., 5.], dtype=float32, device=cpu:0))
    """

    storage = "row_sparse"

    def __init__(self, indices: Any, values: Any, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)
        if not isinstance(values, Tensor) and not hasattr(values, "__weft_apply__"):
            raise TypeError(f"RowSparse: values must be a Tensor, got {type(values).__name__}")
        is_known = not isinstance(indices, Tensor) and not hasattr(indices, "__weft_apply__")
        self.indices, self.values = index_array("RowSparse: indices", indices, values.device), values
        self._rows: np.ndarray | None = None
        self._is_distinct = False
        count = self.indices.shape[0]
        if not self.shape or tuple(values.shape) != (count, *self.shape[1:]):
            raise ShapeError(
                f"RowSparse: {count} rows of {self.shape} need values of shape "
                f"{(count, *self.shape[1:])}, got {tuple(values.shape)}"
            )
        if is_known:
            self._rows = self._checked(np.asarray(indices).reshape(-1).astype("int64"))

    def _checked(self, rows: np.ndarray) -> np.ndarray:
        if rows.size and not (rows.min() >= 0 and rows.max() < self.shape[0]):
            wrong = rows[(rows < 0) | (rows >= self.shape[0])][0]
            raise IndexError(f"RowSparse: no row {wrong} of {self.shape[0]}")
        return rows

    @property
    def rows(self) -> np.ndarray:
        """The indices as NumPy's array; it waits for them, once. Raises IndexError for a row that there is not."""
        if self._rows is None:
            self._rows = self._checked(self.indices.numpy())
        return self._rows

    def check(self) -> None:
        """Raise IndexError for a row that there is not; it waits for the indices, once."""
        _ = self.rows

    def parts(self) -> dict[str, Any]:
        """Indices and values."""
        return {"indices": self.indices, "values": self.values}

    def with_values(self, values: Any) -> RowSparse:
        """The same rows with other values [k, ...]."""
        made = RowSparse(self.indices, values, (self.shape[0], *values.shape[1:]))
        made._rows, made._is_distinct = self._rows, self._is_distinct
        return made

    def is_aligned(self, other: Any) -> bool:
        """Whether another one has the same tensor of indices, and rows of that shape."""
        return isinstance(other, RowSparse) and other.indices is self.indices and other.shape == self.shape

    def distinct(self) -> RowSparse:
        """The same with each row once, in rising order; it waits for the indices."""
        if self._is_distinct:
            return self
        rows, inverse = np.unique(self.rows, return_inverse=True)
        made = self
        if rows.size != self.rows.size or not np.array_equal(rows, self.rows):
            positions = asarray(inverse.astype("int64").reshape(-1), device=self.device)
            made = RowSparse(rows, put_rows(self.values, positions, rows.size), self.shape)
        made._is_distinct = True
        return made

    def todense(self) -> Any:
        """The whole array, a tensor, with a gradient to the values."""
        return put_rows(self.values, self.indices, self.shape[0])

    def retain(self, rows: Any) -> RowSparse:
        """The given rows of the array, integers [j], in their order; those that are not stored are zeros.

        It waits for the indices.

        >>> import weft as wf
        >>> g = wf.sparse.RowSparse([1, 3], wf.tensor([[2.], [5.]]), (5, 1))
        >>> g.retain([3, 0]).values.tolist()
        [[5.0], [0.0]]
        """
        wanted = index_array("retain: rows", rows, self.device)
        source = self.distinct()
        count = source.indices.shape[0]
        if count == 0:
            return RowSparse(rows, put_rows(self.values, self.indices, wanted.shape[0]), self.shape)
        places = F.minimum(F.searchsorted(source.indices, wanted), count - 1)
        is_there = F.equal(F.take(source.indices, places, axis=0), wanted)
        values = F.take(source.values, places, axis=0)
        mask = F.reshape(F.logical_not(is_there), shape=(-1,) + (1,) * (self.ndim - 1))
        return RowSparse(rows, F.masked_fill(values, mask, value=0), self.shape)

    def __getitem__(self, key: Any) -> RowSparse:
        """The rows of a slice, a RowSparse; it waits for the indices. Raises TypeError for other keys."""
        if not isinstance(key, slice):
            raise TypeError(f"RowSparse: takes slices of rows, got {key!r}; retain(rows) takes single ones")
        start, stop, step = key.indices(self.shape[0])
        inside = np.isin(self.rows, np.arange(start, stop, step))
        rows = (self.rows[inside] - start) // step
        positions = asarray(np.flatnonzero(inside).astype("int64"), device=self.device)
        shape = (len(range(start, stop, step)), *self.shape[1:])
        return RowSparse(rows, F.take(self.values, positions, axis=0), shape)

    @staticmethod
    def summed(parts: Sequence[RowSparse]) -> RowSparse:
        """The sum of several, each row once."""
        if len(parts) == 1:
            return parts[0].distinct()
        device = parts[0].device
        values = F.concat([part.values.to_device(device) for part in parts])
        return RowSparse(np.concatenate([part.rows for part in parts]), values, parts[0].shape).distinct()

    def __repr__(self) -> str:
        return f"RowSparse({self.indices.shape[0]} of {self.shape[0]} rows, {self.dtype}{list(self.shape)})"


def row_sparse(x: Any) -> RowSparse:
    """Return the rows of a dense array that have an element other than 0; the values have a gradient to x.

    x: [n, ...]; it waits for x. Raises ShapeError for 0 dimensions.

    >>> import weft as wf
    >>> wf.sparse.row_sparse(wf.tensor([[0., 0.], [1., 0.]]))
    RowSparse(1 of 2 rows, float32[2, 2])
    """
    if x.ndim == 0:
        raise ShapeError("row_sparse: x has 0 dimensions")
    is_stored = F.any(F.not_equal(x, 0), axis=tuple(range(1, x.ndim))) if x.ndim > 1 else F.not_equal(x, 0)
    indices = flatnonzero(is_stored)
    made = RowSparse(indices, F.take(x, indices, axis=0), x.shape)
    made._is_distinct = True
    return made


@rule(RowSparse, "add", "subtract")
def _sum(op: Any, args: tuple[Any, ...]) -> Any:
    """Of two: the rows of both; with a dense array of its shape: dense."""
    a, b = args
    if isinstance(a, RowSparse) and isinstance(b, RowSparse):
        if a.shape != b.shape:
            raise ShapeError(f"{op.name}: shapes differ: a is {a.type}, b is {b.type}")
        kind, _ = accumulated(a, b)
        a, b = a.convertible(kind), b.convertible(kind)
        indices = F.concat([a.indices, b.indices])
        # Converted before they are negated: unsigned numbers have no negative ones.
        stored = [F.cast(v.values, dtype=kind) for v in (a, b)]
        if op.name == "subtract":
            stored[1] = -stored[1]
        return RowSparse(indices, F.concat(stored), a.shape)
    sparse, dense = (a, b) if isinstance(a, RowSparse) else (b, a)
    if not hasattr(dense, "shape") or tuple(dense.shape) != sparse.shape:
        return NotImplemented
    kind, _ = accumulated(sparse, dense)
    places = sparse.convertible(kind)
    dense, values = F.cast(dense, dtype=kind), F.cast(places.values, dtype=kind)
    if op.name == "subtract":
        dense, values = (-dense, values) if sparse is a else (dense, -values)
    return F.index_put(dense, values, places.indices, axes=(0,), mode="add")


@rule(RowSparse, "multiply")
def _product(op: Any, args: tuple[Any, ...]) -> Any:
    """With a dense array that broadcasts to its shape: the rows of that are read."""
    sparse, other = args if isinstance(args[0], RowSparse) else args[::-1]
    if isinstance(other, SparseArray):
        if not isinstance(other, RowSparse):
            return NotImplemented
        sparse = sparse.convertible(accumulated(sparse, other)[0])
        other = other.retain(sparse.indices).values
        return sparse.with_values(op(sparse.values, other))
    if isinstance(other, bool | int | float):  # 0 times it is NaN
        return NotImplemented
    shape = tuple(other.shape)
    lead = sparse.ndim - len(shape)
    if lead < 0 or any(m not in (1, n) for n, m in zip(sparse.shape[lead:], shape, strict=True)):
        raise ShapeError(f"{op.name}: a dense array must fit {sparse.type}, and is {shape}")
    sparse = sparse.convertible(accumulated(sparse, other)[0])
    if lead == 0 and shape[0] != 1:
        other = F.take(other, sparse.indices, axis=0)
    return sparse.with_values(op(sparse.values, other))


@rule(RowSparse, "matmul")
def _matmul(op: Any, args: tuple[Any, ...]) -> Any:
    """The stored rows times a matrix; or the columns of a dense array at these rows times them."""
    a, b = args
    if isinstance(a, SparseArray) and isinstance(b, SparseArray):
        return NotImplemented
    if isinstance(a, RowSparse):
        if a.ndim != 2 or b.ndim not in (1, 2) or a.shape[1] != b.shape[0]:
            raise ShapeError(f"{op.name}: inner sizes differ: a is {a.type}, b is {tuple(b.shape)}")
        a = a.convertible(accumulated(a, b)[0])
        return a.with_values(op(a.values, b))
    if b.ndim != 2 or a.ndim < 1 or a.shape[-1] != b.shape[0]:
        raise ShapeError(f"{op.name}: inner sizes differ: a is {tuple(a.shape)}, b is {b.type}")
    b = b.convertible(accumulated(a, b)[0])
    return op(F.take(a, b.indices, axis=a.ndim - 1), b.values)


@rule(RowSparse, "sum")
def _total(op: Any, args: tuple[Any, ...]) -> Any:
    """Dense sums, over the rows too; over other axes alone a RowSparse of them."""
    (x,) = args
    axes = range(x.ndim) if op.axis is None else (op.axis,) if isinstance(op.axis, int) else op.axis
    axes = tuple(sorted(axis % x.ndim for axis in axes if -x.ndim <= axis < x.ndim))
    if not axes:
        return NotImplemented
    x = x.convertible(op.infer(TensorType(x.shape, x.dtype, x.device)).dtype)
    if 0 in axes:
        return op(x.values)
    return x.with_values(op(x.values))
