"""Matrices of compressed rows: values, the column of each, and where each row begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.arrays.creation import asarray
from weft.arrays.data_dependent import nonzero
from weft.arrays.tensor import Tensor
from weft.base.errors import DTypeError, ShapeError
from weft.ops import functions as F
from weft.ops.types import TensorType
from weft.sparse.base import SparseArray, accumulated, index_array, put_rows, rule

__all__ = ["Csr", "csr", "from_scipy"]


class Csr(SparseArray):
    """A matrix [n, m] that is zero but in some elements, row by row: row i has values[indptr[i] : indptr[i + 1]].

    indptr: int64 [n + 1], ascending from 0 to k; indices: int64 [k], the columns, ascending in each row, each once;
    values: [k]; shape: (n, m). indptr and indices: lists or NumPy arrays, which are checked, or Tensors, which are not
    read. Raises ShapeError or DTypeError if the parts do not fit, ValueError for indices out of order, IndexError for a
    column that there is not.

    >>> import weft as wf
    >>> a = wf.sparse.Csr([0, 1, 3], [1, 0, 2], wf.tensor([2., 1., 3.]), (2, 3))
    >>> a.todense()
    tensor([[0., 2., 0.],
            [1., 0., 3.]], dtype=float32, device=cpu:0)
    """

    storage = "csr"

    def __init__(self, indptr: Any, indices: Any, values: Any, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)
        if not isinstance(values, Tensor) and not hasattr(values, "__weft_apply__"):
            raise TypeError(f"Csr: values must be a Tensor, got {type(values).__name__}")
        known = [not isinstance(x, Tensor) and not hasattr(x, "__weft_apply__") for x in (indptr, indices)]
        self.indptr = index_array("Csr: indptr", indptr, values.device)
        self.indices, self.values = index_array("Csr: indices", indices, values.device), values
        self._rows: Any = None
        if (
            len(self.shape) != 2
            or self.indptr.shape != (self.shape[0] + 1,)
            or tuple(values.shape) != tuple(self.indices.shape)
        ):
            raise ShapeError(
                f"Csr: {self.shape} needs indptr of {self.shape[0] + 1 if self.shape else 1} and as many indices as "
                f"values: indptr is {tuple(self.indptr.shape)}, indices {tuple(self.indices.shape)}, "
                f"values {tuple(values.shape)}"
            )
        if all(known):
            self._check(np.asarray(indptr), np.asarray(indices))

    def _check(self, indptr: np.ndarray, indices: np.ndarray) -> None:
        if indptr[0] != 0 or indptr[-1] != indices.size or (np.diff(indptr) < 0).any():
            raise ValueError(f"Csr: indptr must ascend from 0 to {indices.size}, got {indptr}")
        if indices.size == 0:
            return
        if indices.min() < 0 or indices.max() >= self.shape[1]:
            wrong = indices[(indices < 0) | (indices >= self.shape[1])][0]
            raise IndexError(f"Csr: no column {wrong} of {self.shape[1]}")
        keys = np.repeat(np.arange(self.shape[0]), np.diff(indptr)) * self.shape[1] + indices
        if (np.diff(keys) <= 0).any():
            row = int(keys[1:][np.diff(keys) <= 0][0] // self.shape[1])
            raise ValueError(
                f"Csr: the columns of row {row} do not ascend\n  hint: from_scipy adds up what is stored twice"
            )

    @property
    def rows(self) -> Any:
        """The row of each element that is stored, int64 [k]."""
        if self._rows is None:
            count = self.indices.shape[0]
            places = F.places_like(self.indices, axis=0)
            found = F.searchsorted(self.indptr, places, side="right") - 1 if count else places
            if not isinstance(found, Tensor):
                return found  # a value of a graph is no longer one behind it
            self._rows = found
        return self._rows

    @property
    def keys(self) -> Any:
        """The index of each element that is stored in the flat matrix, ascending, int64 [k]."""
        return self.rows * self.shape[1] + self.indices

    def parts(self) -> dict[str, Any]:
        """Beginnings of rows, columns and values."""
        return {"indptr": self.indptr, "indices": self.indices, "values": self.values}

    def with_values(self, values: Any) -> Csr:
        """The same elements with other values [k]."""
        made = Csr(self.indptr, self.indices, values, self.shape)
        made._rows = self._rows
        return made

    def is_aligned(self, other: Any) -> bool:
        """Whether another one has the same tensors of places."""
        return (
            isinstance(other, Csr)
            and other.indices is self.indices
            and other.indptr is self.indptr
            and other.shape == self.shape
        )

    def todense(self) -> Any:
        """The whole matrix, a tensor, with a gradient to the values."""
        flat = put_rows(self.values, self.keys, self.size)
        return F.reshape(flat, shape=self.shape)

    @property
    def T(self) -> Csr:
        """The transposed matrix.

        >>> import weft as wf
        >>> wf.sparse.csr(wf.tensor([[0., 2.], [0., 3.]])).T.todense()
        tensor([[0., 0.],
                [2., 3.]], dtype=float32, device=cpu:0)
        """
        n, m = self.shape
        order = F.argsort(self.indices)
        columns = F.take(self.indices, order, axis=0)
        indptr = F.searchsorted(columns, asarray(np.arange(m + 1), device=self.device))
        return Csr(indptr, F.take(self.rows, order, axis=0), F.take(self.values, order, axis=0), (m, n))

    def __getitem__(self, key: Any) -> Csr:
        """Some rows, a Csr: a slice, or integers [j] in any order; it waits for where rows begin.

        Raises TypeError for other keys, IndexError for a row that there is not.

        >>> import weft as wf
        >>> a = wf.sparse.csr(wf.tensor([[0., 2.], [1., 0.]]))
        >>> a[1:], a[[1, 0, 1]].todense().tolist()
        (Csr(1 of 2 elements, float32[1, 2]), [[1.0, 0.0], [0.0, 2.0], [1.0, 0.0]])
        """
        n, m = self.shape
        if isinstance(key, slice):
            rows = np.arange(n)[key]
        elif isinstance(key, list | np.ndarray | Tensor):
            rows = np.asarray(key.numpy() if isinstance(key, Tensor) else key)
            if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
                raise TypeError(
                    f"Csr: takes slices or integers [j] of rows, got {rows.dtype}{list(rows.shape)}"
                )
            if rows.size and not (rows.min() >= -n and rows.max() < n):
                raise IndexError(f"Csr: no row {rows[(rows < -n) | (rows >= n)][0]} of {n}")
            rows = rows.astype("int64") % max(n, 1)
        else:
            raise TypeError(f"Csr: takes slices or integers [j] of rows, got {key!r}; a[i : i + 1] has row i")
        indptr = self.indptr.numpy()
        counts = np.diff(indptr)[rows]
        ends = np.concatenate([[0], np.cumsum(counts)])
        places = np.arange(ends[-1]) + np.repeat(indptr[:-1][rows] - ends[:-1], counts)
        positions = asarray(places.astype("int64"), device=self.device)
        indices, values = (F.take(x, positions, axis=0) for x in (self.indices, self.values))
        return Csr(asarray(ends.astype("int64"), device=self.device), indices, values, (len(rows), m))

    def to_scipy(self) -> Any:
        """SciPy's csr_array of copies of the parts; it waits for them. Raises ImportError without SciPy.

        >>> import weft as wf
        >>> wf.sparse.csr(wf.tensor([[0., 2.]])).to_scipy().nnz
        1
        """
        from scipy.sparse import csr_array  # type: ignore[import-untyped]

        parts = (x.numpy().copy() for x in (self.values, self.indices, self.indptr))
        return csr_array(tuple(parts), shape=self.shape)

    def __repr__(self) -> str:
        return f"Csr({self.indices.shape[0]} of {self.size} elements, {self.dtype}{list(self.shape)})"


def csr(x: Any) -> Csr:
    """Return the elements of a dense matrix other than 0; the values have a gradient to x.

    x: [n, m]; it waits for x. Raises ShapeError for other dimensions.

    >>> import weft as wf
    >>> wf.sparse.csr(wf.tensor([[0., 2., 0.], [1., 0., 3.]]))
    Csr(3 of 6 elements, float32[2, 3])
    """
    if x.ndim != 2:
        raise ShapeError(f"csr: x needs 2 dimensions, has {x.ndim}")
    rows, columns = nonzero(x)
    counts = np.bincount(rows.numpy(), minlength=x.shape[0])
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype("int64")
    values = F.index_get(x, rows, columns, axes=(0, 1))
    made = Csr(asarray(indptr, device=x.device), columns, values, x.shape)
    made._rows = rows
    return made


def from_scipy(a: Any) -> Csr:
    """Return SciPy's sparse matrix or array as a Csr; what it stores twice is added up.

    a: of two dimensions, any format. The parts are copied. Raises ShapeError for other dimensions.

    >>> import scipy.sparse, weft as wf
    >>> wf.sparse.from_scipy(scipy.sparse.coo_array(([1., 2.], ([0, 0], [1, 1])), shape=(2, 2))).values
    tensor([3.], dtype=float64, device=cpu:0)
    """
    if len(a.shape) != 2:
        raise ShapeError(f"from_scipy: a needs 2 dimensions, has {len(a.shape)}")
    a = a.tocsr().copy()
    a.sum_duplicates()
    return Csr(a.indptr.astype("int64"), a.indices.astype("int64"), asarray(a.data.copy()), a.shape)


@rule(Csr, "matmul")
def _matmul(op: Any, args: tuple[Any, ...]) -> Any:
    """With a dense vector or matrix: one product for each stored element and column, added up by rows.

    With another Csr: a Csr, whose places it waits for.
    """
    a, b = args
    if isinstance(a, SparseArray) and isinstance(b, SparseArray) and type(a) is not type(b):
        return NotImplemented
    kind, wide = accumulated(a, b)
    if kind.kind == "bool":
        raise DTypeError(f"{op.name}: takes numbers, not booleans: a is {a.dtype}, b is {b.dtype}")
    if isinstance(a, Csr) and isinstance(b, Csr):
        if a.shape[1] != b.shape[0]:
            raise ShapeError(f"{op.name}: inner sizes differ: a is {a.type}, b is {b.type}")
        return _product_of_two(a, b, kind, wide)
    if isinstance(a, Csr):
        if b.ndim not in (1, 2) or a.shape[1] != b.shape[0]:
            raise ShapeError(f"{op.name}: inner sizes differ: a is {a.type}, b is {tuple(b.shape)}")
        weight = F.cast(a.values, dtype=wide)
        weight = F.expand_dims(weight, axis=-1) if b.ndim == 2 else weight
        y = put_rows(F.take(F.cast(b, dtype=wide), a.indices, axis=0) * weight, a.rows, a.shape[0])
    else:
        if a.ndim < 1 or a.shape[-1] != b.shape[0]:
            raise ShapeError(f"{op.name}: inner sizes differ: a is {tuple(a.shape)}, b is {b.type}")
        part = F.take(F.cast(a, dtype=wide), b.rows, axis=a.ndim - 1) * F.cast(b.values, dtype=wide)
        y = put_rows(part, b.indices, b.shape[1], axis=a.ndim - 1)
    return F.cast(y, dtype=kind)


def _product_of_two(a: Csr, b: Csr, kind: Any, wide: Any) -> Csr:
    """One product for each element of a and each of b in the row of its column, added up by places."""
    begins = b.indptr.numpy()
    inner = a.indices.numpy()
    counts = np.diff(begins)[inner]
    of_a = np.repeat(np.arange(inner.size), counts)
    of_b = np.arange(of_a.size) + np.repeat(begins[:-1][inner] - (np.cumsum(counts) - counts), counts)
    keys = a.rows.numpy()[of_a] * b.shape[1] + b.indices.numpy()[of_b]
    left, right = (
        F.take(F.cast(x.values, dtype=wide), asarray(places.astype("int64"), device=a.device), axis=0)
        for x, places in ((a, of_a), (b, of_b))
    )
    return _added_up(left * right, keys, (a.shape[0], b.shape[1]), kind)


def _added_up(values: Any, keys: np.ndarray, shape: tuple[int, ...], dtype: Any) -> Csr:
    """The Csr of elements at these indices in the flat matrix, in any order; equal ones are added up."""
    keys, inverse = np.unique(keys, return_inverse=True)
    total = put_rows(values, asarray(inverse.reshape(-1).astype("int64"), device=values.device), keys.size)
    rows, columns = np.divmod(keys, max(shape[1], 1))
    indptr = np.searchsorted(rows, np.arange(shape[0] + 1))
    return Csr(indptr.astype("int64"), columns.astype("int64"), F.cast(total, dtype=dtype), shape)


@rule(Csr, "sum")
def _total(op: Any, args: tuple[Any, ...]) -> Any:
    """Dense sums over one axis or both."""
    (x,) = args
    result = op.infer(TensorType(x.shape, x.dtype, x.device))
    axes = (0, 1) if op.axis is None else (op.axis,) if isinstance(op.axis, int) else op.axis
    axes = tuple({axis % 2 for axis in axes})
    if not axes:
        return NotImplemented
    if len(axes) == 2:
        y = F.sum(x.values, dtype=result.dtype)
    else:
        places = (x.indices, x.rows)[axes[0]]
        y = put_rows(F.cast(x.values, dtype=result.dtype.accumulation), places, x.shape[1 - axes[0]])
    return F.reshape(F.cast(y, dtype=result.dtype), shape=result.shape)


def _places_of(x: Csr, other: Csr) -> tuple[Any, Any]:
    """Where other stores the elements that x stores, and which it does."""
    count = other.indices.shape[0]
    if not count:
        return F.places_like(x.indices, axis=0) * 0, F.not_equal(x.indices, x.indices)
    keys, others = x.keys, other.keys
    places = F.minimum(F.searchsorted(others, keys), count - 1)
    return places, F.equal(F.take(others, places, axis=0), keys)


@rule(Csr, "multiply")
def _product(op: Any, args: tuple[Any, ...]) -> Any:
    """With a dense array that broadcasts to its shape, whose elements there are read; with another Csr.

    The result stores what the first Csr stores.
    """
    sparse, other = args if isinstance(args[0], Csr) else args[::-1]
    if isinstance(other, bool | int | float):  # 0 times it is NaN
        return NotImplemented
    if isinstance(other, SparseArray):
        if not isinstance(other, Csr):
            return NotImplemented
        if other.shape != sparse.shape:
            raise ShapeError(f"{op.name}: shapes differ: {sparse.type} and {other.type}")
        places, is_there = _places_of(sparse, other)
        if not other.indices.shape[0]:
            return sparse.with_values(op(sparse.values, F.cast(sparse.values * 0, dtype=other.dtype)))
        values = F.masked_fill(F.take(other.values, places, axis=0), F.logical_not(is_there), value=0)
        return sparse.with_values(op(sparse.values, values))
    shape = (1,) * (2 - other.ndim) + tuple(other.shape)
    if len(shape) > 2 or any(m not in (1, n) for n, m in zip(sparse.shape, shape, strict=True)):
        raise ShapeError(f"{op.name}: a dense array must fit {sparse.type}, and is {tuple(other.shape)}")
    flat = F.reshape(other, shape=(-1,))
    if shape == (1, 1):
        return sparse.with_values(op(sparse.values, F.reshape(flat, shape=())))
    at = sparse.keys if shape == sparse.shape else sparse.indices if shape[0] == 1 else sparse.rows
    return sparse.with_values(op(sparse.values, F.take(flat, at, axis=0)))


@rule(Csr, "add", "subtract")
def _sum(op: Any, args: tuple[Any, ...]) -> Any:
    """Of two: the elements of both, whose places it waits for; with a dense array of its shape: dense."""
    a, b = args
    kind, _ = accumulated(*(x for x in args if hasattr(x, "dtype")))
    if isinstance(a, Csr) and isinstance(b, Csr):
        if a.shape != b.shape:
            raise ShapeError(f"{op.name}: shapes differ: a is {a.type}, b is {b.type}")
        # Converted before they are negated: unsigned numbers have no negative ones.
        stored = [F.cast(v.values, dtype=kind) for v in (a, b)]
        if op.name == "subtract":
            stored[1] = -stored[1]
        keys = np.concatenate([a.keys.numpy(), b.keys.numpy()])
        return _added_up(F.concat(stored), keys, a.shape, kind)
    sparse, dense = (a, b) if isinstance(a, Csr) else (b, a)
    if not hasattr(dense, "shape") or tuple(dense.shape) != sparse.shape:
        return NotImplemented
    dense, values = F.cast(dense, dtype=kind), F.cast(sparse.values, dtype=kind)
    if op.name == "subtract":
        dense, values = (-dense, values) if sparse is a else (dense, -values)
    return F.index_put(dense, values, sparse.rows, sparse.indices, axes=(0, 1), mode="add")


@rule(Csr, "matrix_transpose", "permute_dims", "swapaxes")
def _transposed(op: Any, args: tuple[Any, ...]) -> Any:
    """The transposed matrix, or the same one."""
    (x,) = args
    axes = {"permute_dims": getattr(op, "axes", None), "swapaxes": None}.get(op.name)
    if op.name == "swapaxes":
        axes = (1, 0) if (op.axis1 - op.axis2) % 2 else (0, 1)
    kept = op.infer(TensorType(x.shape, x.dtype, x.device)).shape  # raises for axes out of range
    if axes is not None and tuple(axis % 2 for axis in axes) == (0, 1):
        return x
    assert kept == x.shape[::-1]
    return x.T


def from_parts(kind: str, shape: Sequence[int], parts: dict[str, Any]) -> SparseArray:
    """What weft.load makes of a file's parts. Raises as the constructors, KeyError for other parts."""
    from weft.sparse.row_sparse import RowSparse

    if kind == "row_sparse":
        made: SparseArray = RowSparse(parts["indices"].numpy(), parts["values"], shape)
    else:
        made = Csr(parts["indptr"].numpy(), parts["indices"].numpy(), parts["values"], shape)
    return made
