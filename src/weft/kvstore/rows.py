"""Some rows of an array: gradients of embeddings, and updates that touch nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import functional as F
from weft.arrays.creation import asarray, tensor, zeros
from weft.arrays.tensor import Tensor
from weft.base.errors import DTypeError, ShapeError
from weft.gradients.gradient import no_grad
from weft.optimizer.group import StepGroup
from weft.optimizer.optimizer import Optimizer

__all__ = ["RowSparse", "lazy_update"]


class RowSparse:
    """An array of a shape [n, ...] that is zero but in some rows: indices int64 [k], values [k, ...].

    Rows that are listed twice are added up. Nothing of the size of the whole array is made. Raises ShapeError or
    DTypeError if the parts do not fit, IndexError for a row that there is not; it waits for the indices to check that.

    >>> import weft as wf
    >>> g = RowSparse([3, 1, 3], wf.tensor([[1.], [2.], [4.]]), (5, 1))
    >>> g.unique().indices, g.unique().values[:, 0]
    (tensor([1, 3], dtype=int64, device=cpu:0), tensor([2., 5.], dtype=float32, device=cpu:0))
    """

    def __init__(self, indices: Any, values: Tensor, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)
        rows = indices.numpy() if isinstance(indices, Tensor) else np.asarray(indices)
        if rows.size == 0:
            rows = rows.astype("int64")
        if rows.dtype.kind not in "iu":
            raise DTypeError(f"RowSparse: indices must be integers, got {rows.dtype}")
        rows = rows.reshape(-1).astype("int64")
        if not isinstance(values, Tensor):
            raise TypeError(f"RowSparse: values must be a Tensor, got {type(values).__name__}")
        if not self.shape or tuple(values.shape) != (rows.size, *self.shape[1:]):
            raise ShapeError(
                f"RowSparse: {rows.size} rows of {self.shape} need values of shape "
                f"{(rows.size, *self.shape[1:])}, got {tuple(values.shape)}"
            )
        if rows.size and not (rows.min() >= 0 and rows.max() < self.shape[0]):
            wrong = rows[(rows < 0) | (rows >= self.shape[0])][0]
            raise IndexError(f"RowSparse: no row {wrong} of {self.shape[0]}")
        self.rows, self.values = rows, values

    @property
    def indices(self) -> Tensor:
        """The rows, int64 [k]."""
        return tensor(self.rows, device=self.values.device)

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    @property
    def device(self) -> Any:
        return self.values.device

    @property
    def nbytes(self) -> int:
        """Of indices and values."""
        return int(self.rows.nbytes + self.values.nbytes)

    def unique(self) -> RowSparse:
        """The same with each row once, in rising order."""
        rows, inverse = np.unique(self.rows, return_inverse=True)
        if rows.size == self.rows.size and np.array_equal(rows, self.rows):
            return self
        with no_grad():
            empty = zeros((rows.size, *self.shape[1:]), dtype=self.dtype, device=self.device)
            positions = asarray(inverse.astype("int64").reshape(-1)).to_device(self.device)
            summed = F.index_put(empty, self.values, positions, axes=(0,), mode="add")
        return RowSparse(rows, summed, self.shape)

    def todense(self) -> Tensor:
        """The whole array."""
        with no_grad():
            whole = zeros(self.shape, dtype=self.dtype, device=self.device)
            return F.index_put(whole, self.values, self.indices, axes=(0,), mode="add")

    @staticmethod
    def summed(parts: Sequence[RowSparse]) -> RowSparse:
        """The sum of several, each row once."""
        if len(parts) == 1:
            return parts[0].unique()
        device = parts[0].device
        with no_grad():
            values = F.concat([part.values.to_device(device) for part in parts])
        return RowSparse(np.concatenate([part.rows for part in parts]), values, parts[0].shape).unique()

    def __repr__(self) -> str:
        return f"RowSparse({self.rows.size} of {self.shape[0]} rows, {self.dtype}{list(self.shape)})"


def lazy_update(optimizer: Optimizer, stored: Tensor, gradient: RowSparse) -> None:
    """One update of the rows that a gradient has, and of their state; the other rows stay as they are.

    optimizer: of stored alone, whose update treats elements one by one. So momentum, averages and weight decay of a row
    pause while it has no gradient; the number of the step counts all updates. Raises ValueError for another optimizer.
    """
    if not optimizer.elementwise:
        raise ValueError(
            f"{type(optimizer).__name__} updates an element by what others of its parameter are, and a gradient of "
            "some rows has not all of them; accepted are optimizers that treat elements one by one, such as AdamW"
        )
    unique = gradient.unique()
    if not unique.rows.size:
        return
    (group,) = optimizer.param_groups
    (step_group,) = group.step_groups
    indices = unique.indices.to_device(stored.device)
    with no_grad():
        optimizer.count(group, step_group, None)
        rows = F.take(stored, indices, axis=0)
        state = {
            role: [F.take(s, indices, axis=0) for s in arrays] for role, arrays in step_group.state.items()
        }
        part = StepGroup([rows], state, step_group.step, step_group.totals)
        optimizer.update(group, part, [unique.values.to_device(stored.device)])
        stored[indices] = rows
        for role, (updated,) in state.items():
            step_group.state[role][0][indices] = updated
