"""Matrices made of diagonals and of blocks, products of columns, arrays turned by right angles."""

from __future__ import annotations

from typing import Any

from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.families.matrix import cast_all
from weft.ops.op import op
from weft.ops.types import normalize_axes


@op
class DiagEmbed(Composed, family="shape", rule="x -> y: x", positional=("offset", "axis1", "axis2")):
    """Matrices with x's rows as a diagonal, 0 elsewhere.

    x: [..., n]; offset: by how much axis2's index exceeds axis1's; axis1, axis2: where the matrices' axes are in the
    result. Returns x's dtype, two axes of n + |offset| and the others of x. Raises IndexError if an axis is out of
    range, ValueError if both are the same, ShapeError for 0 dimensions.
    Source: PyTorch's diag_embed.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.diag_embed(wf.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]], dtype=int64, device=cpu:0)
    """

    offset: int = 0
    axis1: int = -2
    axis2: int = -1

    def decompose(self, x: Any) -> Any:
        if x.ndim < 1:
            raise self.fail(ShapeError, "x needs a dimension", x=x.type)
        normalize_axes(self.name, (self.axis1, self.axis2), x.ndim + 1)
        first, second = self.axis1 % (x.ndim + 1), self.axis2 % (x.ndim + 1)
        down, right = max(-self.offset, 0), max(self.offset, 0)
        wide = F.expand_dims(F.pad(x, pad=(down, right)), axis=-1)  # element i is row i's
        size = x.shape[-1] + down + right
        wide = F.broadcast_to(wide, shape=(*x.shape[:-1], size, size))
        row, column = (F.places_like(wide, axis=axis) for axis in (-2, -1))
        y = F.where(F.equal(column - row, self.offset), wide, 0)
        y = F.cast(y, dtype=x.dtype) if y.dtype is not x.dtype else y
        others = iter(range(x.ndim - 1))
        order = [
            x.ndim - 1 if d == first else x.ndim if d == second else next(others) for d in range(x.ndim + 1)
        ]
        return F.permute_dims(y, axes=tuple(order))


@op
class Diag(Composed, family="shape", rule="x -> y: x", positional=("offset",)):
    """The matrix with a vector as its diagonal, or the diagonal of a matrix.

    x: [n] or [n, m]; offset: of the diagonal above the main one. Returns x's dtype, two axes of n + |offset|, or a view
    of one axis. Raises ShapeError for other dimensions.
    Source: NumPy's diag.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.diag(F.diag(wf.tensor([1, 2]), 1), 1)
    tensor([1, 2], dtype=int64, device=cpu:0)
    """

    offset: int = 0

    def decompose(self, x: Any) -> Any:
        self.require_ndim(1, 2, x=x)
        return F.diag_embed(x, offset=self.offset) if x.ndim == 1 else F.diagonal(x, offset=self.offset)


@op
class BlockDiag(Composed, family="joining", rule="*x -> y: promote"):
    """Matrices as blocks along the diagonal of one, 0 elsewhere.

    x: [n, m] each, as a list or one by one; a vector is a row. Returns the promoted dtype, [sum of n, sum of m]. Raises
    ShapeError for more dimensions or none.
    Source: SciPy's block_diag.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.block_diag(wf.ones((1, 2)), wf.ones((1, 1)))
    tensor([[1., 1., 0.],
            [0., 0., 1.]], dtype=float32, device=cpu:0)
    """

    def decompose(self, *x: Any) -> Any:
        if not x or any(not 1 <= v.ndim <= 2 for v in x):
            raise self.fail(ShapeError, "takes matrices", **{f"x{k}": v.type for k, v in enumerate(x)})
        blocks = [F.expand_dims(v, axis=0) if v.ndim == 1 else v for v in cast_all(x)]
        total, before, rows = sum(v.shape[1] for v in blocks), 0, []
        for block in blocks:
            behind = total - before - block.shape[1]
            rows.append(F.pad(block, pad=(before, behind)))
            before += block.shape[1]
        return F.concat(rows, axis=0)


@op
class KhatriRao(Composed, family="product", rule="*x: number -> y: promote"):
    """The products of Kronecker of matrices column by column: y[..., j] = kron of all x[:, j].

    x: numbers [n, m] each, with one m, as a list or one by one. Returns the promoted dtype, [product of n, m]. Raises
    ShapeError if the numbers of columns differ.
    Source: Khatri, Rao 1968, Solutions to some functional equations; MXNet's khatri_rao.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.khatri_rao(wf.tensor([[1., 2.], [3., 4.]]), wf.tensor([[1., 10.]]))
    tensor([[ 1., 20.],
            [ 3., 40.]], dtype=float32, device=cpu:0)
    """

    def decompose(self, *x: Any) -> Any:
        if not x or any(v.ndim != 2 or v.shape[1] != x[0].shape[1] for v in x):
            fact = "takes matrices of one number of columns"
            raise self.fail(ShapeError, fact, **{f"x{k}": v.type for k, v in enumerate(x)})
        y, *others = cast_all(x)
        for v in others:
            pairs = F.expand_dims(y, axis=1) * F.expand_dims(v, axis=0)
            y = F.reshape(pairs, shape=(y.shape[0] * v.shape[0], v.shape[1]))
        return y


@op
class Rot90(Composed, family="rearrangement", rule="x -> y: x", positional=("k", "axes")):
    """x turned k times by a right angle, from the first towards the second of two axes: a view.

    x: [...] of two dimensions or more. Returns x's dtype. Raises IndexError if an axis is out of range, ValueError for
    others than two axes.
    Source: NumPy's rot90.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.rot90(wf.tensor([[1, 2], [3, 4]])).tolist()
    [[2, 4], [1, 3]]
    """

    k: int = 1
    axes: tuple[int, ...] = (0, 1)

    def check(self) -> None:
        if len(self.axes) != 2:
            raise ValueError(f"{self.name}: axes must be two, got {self.axes}")

    def decompose(self, x: Any) -> Any:
        normalize_axes(self.name, self.axes, x.ndim)
        first, second = (axis % x.ndim for axis in self.axes)
        turns = self.k % 4
        if turns == 2:
            return F.flip(x, axis=(first, second))
        if turns == 1:
            return F.swapaxes(F.flip(x, axis=second), axis1=first, axis2=second)
        if turns == 3:
            return F.flip(F.swapaxes(x, axis1=first, axis2=second), axis=second)
        return F.reshape(x, shape=x.shape)


__all__ = ["BlockDiag", "Diag", "DiagEmbed", "KhatriRao", "Rot90"]
