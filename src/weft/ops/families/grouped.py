"""Products of matrices in groups of rows or columns whose sizes are data."""

from __future__ import annotations

from typing import Any

from weft.base.dtype import int64
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.families.interpolation import steps
from weft.ops.op import op
from weft.ops.pointwise import cast_to
from weft.ops.types import promote


@op
class GroupedMatmul(
    Composed, family="matrix", rule="a: float, b: float, ends[groups]: int -> y: promote(a b)"
):
    """Products of matrices group by group, where group i has the indices from ends[i - 1] to ends[i] - 1 of one axis.

    a, b, and which axis is divided: a [m, k], b [groups, k, n]: rows of a, each times its group's matrix, result [m,
    n]; a [groups, m, k], b [k, n]: columns of b, result [m, n]; a [m, k], b [k, n]: the inner axis, a product of each
    group, result [groups, m, n]. ends: integers that do not fall; indices from the last one on belong to no group: they
    give 0. Returns the promoted type, summed in float32 or more. Each group's product is computed of the whole axis
    with zeros for other groups: the time grows with the number of groups, the memory does not. Raises ShapeError if
    sizes do not fit.
    Source: PyTorch's grouped_mm; Gale et al. 2022, MegaBlocks: Efficient sparse training with mixture-of-experts.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> x, weight = wf.tensor([[1.], [2.], [4.]]), wf.tensor([[[10.]], [[100.]]])
    >>> F.grouped_matmul(x, weight, wf.tensor([1, 3]))[:, 0]
    tensor([ 10., 200., 400.], dtype=float32, device=cpu:0)
    """

    def decompose(self, a: Any, b: Any, ends: Any) -> Any:
        kind, groups = promote(a.type, b.type), ends.shape[0]
        if (a.ndim, b.ndim) not in ((2, 3), (3, 2), (2, 2)):
            fact = "takes a matrix and a stack of one for each group, in any order, or two matrices"
            raise self.fail(ShapeError, fact, a=a.type, b=b.type)
        stack = a if a.ndim == 3 else b
        if a.shape[-1] != b.shape[-2] or (stack.ndim == 3 and stack.shape[0] != groups):
            raise self.fail(
                ShapeError, f"sizes do not fit {groups} groups", a=a.type, b=b.type, ends=ends.type
            )
        a, b = cast_to(a, kind.accumulation), cast_to(b, kind.accumulation)
        if a.ndim == 3:
            y = self.of_rows(F.permute_dims(b, axes=(1, 0)), F.permute_dims(a, axes=(0, 2, 1)), ends)
            y = F.permute_dims(y, axes=(1, 0))
        else:
            y = self.of_rows(a, b, ends) if b.ndim == 3 else self.of_inner(a, b, ends)
        return cast_to(y, kind)

    def of_rows(self, a: Any, b: Any, ends: Any) -> Any:
        """a [m, k], b [groups, k, n]."""
        if b.shape[0] == 0:
            return F.matmul(a, F.sum(b, axis=0)) * 0
        total: Any = None
        for i in range(b.shape[0]):
            matrix = F.squeeze(F.slice(b, starts=(i,), stops=(i + 1,), axes=(0,)), axis=0)
            part = F.matmul(F.where(self.is_in(a, ends, i), a, 0), matrix)
            total = part if total is None else F.where(self.is_in(a, ends, i), part, total)
        return F.where(row_numbers(a) < last_of(ends), total, 0)

    def of_inner(self, a: Any, b: Any, ends: Any) -> Any:
        """a [m, k], b [k, n]: one product for each group."""
        if ends.shape[0] == 0:
            return F.slice(F.expand_dims(F.matmul(a, b), axis=0), starts=(0,), stops=(0,), axes=(0,))
        parts = []
        for i in range(ends.shape[0]):
            is_in = self.is_in(b, ends, i)
            columns = F.where(F.permute_dims(is_in, axes=(1, 0)), a, 0)
            parts.append(F.matmul(columns, F.where(is_in, b, 0)))
        return F.stack(parts, axis=0)

    def is_in(self, x: Any, ends: Any, i: int) -> Any:
        """Whether each row of a matrix belongs to a group, [rows, 1]."""
        row = row_numbers(x)
        is_before = row < end_of(ends, i)
        return is_before if i == 0 else F.logical_and(is_before, row >= end_of(ends, i - 1))


def row_numbers(x: Any) -> Any:
    """0, 1, ..., [rows, 1]."""
    return F.expand_dims(steps(x, x.shape[0], int64), axis=1)


def end_of(ends: Any, i: int) -> Any:
    """ends[i]."""
    return F.squeeze(F.slice(cast_to(ends, int64), starts=(i,), stops=(i + 1,)), axis=0)


def last_of(ends: Any) -> Any:
    """The end of the last group."""
    return end_of(ends, ends.shape[0] - 1)


__all__ = ["GroupedMatmul"]
