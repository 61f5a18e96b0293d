"""Factorizations of matrices and equations: what LAPACK computes, on stacks of matrices, with gradients."""

from __future__ import annotations

from typing import Any

from weft.base.dtype import DType, int32
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.families.fourier import complex_of
from weft.ops.families.indexing import zeros_like
from weft.ops.families.matrix import cast_all
from weft.ops.op import Op, op
from weft.ops.pointwise import cast_to, conj, unbroadcast
from weft.ops.types import TensorType, broadcast_shapes

KINDS = "float32|float64|complex"


def adjoint(x: Any) -> Any:
    """The conjugate transpose of each matrix."""
    return conj(F.matrix_transpose(x))


def identity_like(x: Any) -> Any:
    """Matrices of x's shape and dtype with ones on the diagonal, else 0."""
    return F.tril(F.triu(F.filled_like(x, value=1)))


def diagonal_of(x: Any) -> Any:
    return F.diagonal(x, axis1=-2, axis2=-1)


def scaled_columns(x: Any, factors: Any) -> Any:
    """x times the diagonal matrix of factors [..., n]."""
    return x * F.expand_dims(factors, axis=-2)


def scaled_rows(factors: Any, x: Any) -> Any:
    """The diagonal matrix of factors [..., n] times x."""
    return F.expand_dims(factors, axis=-1) * x


def differences(values: Any) -> Any:
    """d[..., i, j] = values[..., j] - values[..., i], 1 on the diagonal."""
    d = F.expand_dims(values, axis=-2) - F.expand_dims(values, axis=-1)
    return d + identity_like(d)


def part(x: Any, axis: int, start: Any, stop: Any) -> Any:
    return F.slice(x, starts=(start,), stops=(stop,), axes=(axis,))


def hermitian_part(x: Any) -> Any:
    return (x + adjoint(x)) * 0.5


def half_lower(x: Any) -> Any:
    """The lower triangle with half of the diagonal: the adjoint of taking a triangle of a Hermitian matrix."""
    return F.tril(x) - identity_like(x) * x * 0.5


class Factorization(Op, family="linalg", primitive=True):
    """Base of operators on stacks of matrices that mean what a library computes.

    Numbers of 16 bits are refused, as the digits of a result are too few to be worth the name.
    """


@op
class Cholesky(Factorization, rule=f"x[*b,rows,rows]: {KINDS} -> y[*b,rows,rows]: x"):
    """The lower triangular L with L L^H = x, of positive definite Hermitian matrices.

    x: float32, float64 or complex [..., n, n]; of others than Hermitian ones the Hermitian part (x + x^H) / 2 counts.
    upper: the upper triangular U with U^H U = x instead. Returns x's shape and dtype, zeros in the other triangle.
    The gradient is Hermitian. Raises ShapeError for other than square matrices, DTypeError for other types, and
    ValueError, when the result is read, for a matrix that is not positive definite.
    Source: array API 2024.12, linalg.cholesky; gradient: Murray 2016, Differentiation of the Cholesky decomposition.

    >>> import weft as wf
    >>> wf.linalg.cholesky(wf.tensor([[4., 2.], [2., 2.]]))
    tensor([[2., 0.],
            [1., 1.]], dtype=float32, device=cpu:0)
    """

    upper: bool = False

    def vjp(self, y: Any, dy: Any) -> Any:
        lower, slope = (adjoint(y), adjoint(dy)) if self.upper else (y, dy)
        inner = half_lower(F.matmul(adjoint(lower), slope))
        upper = adjoint(lower)
        left = F.solve_triangular(upper, inner, upper=True)
        both = F.solve_triangular(upper, adjoint(left), upper=True)
        return hermitian_part(both)


@op
class LuFactor(
    Factorization,
    rule=f"x[*b,rows,columns]: {KINDS} -> lu[*b,rows,columns]: x, pivots: int32, permutation: int32",
):
    """LU factorization with partial pivoting, L and U in one matrix: row k of L U is row permutation[k] of x.

    x: float32, float64 or complex [..., m, n]. Returns lu of x's shape and dtype, whose strict lower triangle is that
    of L, with ones on its diagonal, and whose upper triangle is U; pivots int32[..., min(m, n)]: row k changed places
    with row pivots[k], in this order; permutation int32[..., m]. A singular matrix is no error: U has a zero on its
    diagonal. Raises ShapeError for fewer than 2 dimensions, DTypeError for other types.
    The gradient needs an invertible U (of its first min(m, n) columns).
    Source: LAPACK's getrf; SciPy's lu_factor.

    >>> import weft as wf
    >>> lu, pivots, permutation = wf.linalg.lu_factor(wf.tensor([[1., 2.], [2., 2.]]))
    >>> lu, permutation.tolist()
    (tensor([[2. , 2. ],
            [0.5, 1. ]], dtype=float32, device=cpu:0), [1, 0])
    """

    def infer(self, x: TensorType) -> Any:
        self.match(x)
        rows, columns = x.shape[-2:]
        least = rows if rows == columns else min(int(rows), int(columns))
        lead = x.shape[:-2]
        return x.like(), x.like((*lead, least), int32), x.like((*lead, rows), int32)

    def vjp(self, lu: Any, permutation: Any, dlu: Any) -> Any:
        if dlu is None:
            return None
        rows, columns = lu.shape[-2:]
        n = rows if rows == columns else min(int(rows), int(columns))
        square = part(part(lu, -2, 0, n), -1, 0, n)
        lower = F.tril(square, k=-1) + identity_like(square)
        upper = F.triu(square)
        slope = part(part(dlu, -2, 0, n), -1, 0, n)
        dlower, dupper = F.tril(slope, k=-1), F.triu(slope)
        right = below = None
        if rows != columns and int(columns) > n:  # U has columns that follow from L
            right = F.solve_triangular(adjoint(lower), part(dlu, -1, n, columns), upper=True, unit=True)
            dlower = F.tril(dlower - F.matmul(right, adjoint(part(lu, -1, n, columns))), k=-1)
        if rows != columns and int(rows) > n:  # L has rows that follow from U
            below = adjoint(F.solve_triangular(upper, adjoint(part(dlu, -2, n, rows)), upper=True))
            dupper = F.triu(dupper - F.matmul(adjoint(part(lu, -2, n, rows)), below))
        inner = F.tril(F.matmul(adjoint(lower), dlower), k=-1) + F.triu(F.matmul(dupper, adjoint(upper)))
        left = F.solve_triangular(adjoint(lower), inner, upper=True, unit=True)
        dx = adjoint(F.solve_triangular(upper, adjoint(left), upper=True))
        if right is not None:
            dx = F.concat([dx, right], axis=-1)
        if below is not None:
            dx = F.concat([dx, below], axis=-2)
        return F.take_along_axis(dx, F.expand_dims(F.argsort(permutation), axis=-1), axis=-2)


class Equations(Op, family="linalg", rule=f"a[...,rows,rows]: {KINDS}, b: {KINDS} -> x: promote"):
    """Base: solves for x[..., n, k], or x[n] if b has one dimension."""

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        (dtype,) = self.match(a, b)
        n = a.shape[-1]
        if b.ndim == 0 or b.shape[-min(b.ndim, 2)] != n:
            rows = b.shape[-min(b.ndim, 2)] if b.ndim else "no"
            raise self.fail(ShapeError, f"a has {n} rows, b has {rows}", a=a, b=b)
        leads = {"a": a.like(a.shape[:-2]), "b": b.like(b.shape[:-2])}
        lead = a.shape[:-2] if b.ndim == 1 else broadcast_shapes(self.name, leads)
        return a.like((*lead, n, *b.shape[-1:]) if b.ndim > 1 else (*lead, n), dtype)

    def again(self, a: Any, b: Any) -> Any:
        return getattr(F, self.name)(a, b, **self.values())

    def of_adjoint(self, a: Any, dx: Any) -> Any:
        """The same equations with the adjoint of a."""
        raise NotImplementedError

    def triangle(self, da: Any) -> Any:
        """The elements of a that are read."""
        return da

    def vjp(self, a: Any, b: Any, x: Any, dx: Any) -> Any:
        if a.dtype is not b.dtype:
            return NotImplemented
        if b.ndim == 1:
            x, dx = F.expand_dims(x, axis=-1), F.expand_dims(dx, axis=-1)
        db = self.of_adjoint(a, dx)
        da = self.triangle(F.negative(F.matmul(db, adjoint(x))))
        db = F.squeeze(db, axis=-1) if b.ndim == 1 else db
        return unbroadcast(da, a), unbroadcast(db, b)


@op
class Solve(Equations):
    """The x with a x = b, for square matrices a, by elimination with partial pivoting.

    a: float32, float64 or complex [..., n, n]; b: [..., n, k], or one vector [n]; leading sizes fit by broadcasting.
    Returns the promoted type, [..., n, k] or [..., n]. Raises ShapeError if sizes differ, DTypeError for other types,
    and ValueError, when the result is read, for a singular matrix.
    Source: array API 2024.12, linalg.solve.

    >>> import weft as wf
    >>> wf.linalg.solve(wf.tensor([[2., 0.], [1., 4.]]), wf.tensor([2., 9.]))
    tensor([1., 2.], dtype=float32, device=cpu:0)
    """

    def of_adjoint(self, a: Any, dx: Any) -> Any:
        return F.solve(adjoint(a), dx)

    def decompose(self, a: Any, b: Any) -> Any:
        if a.dtype is not b.dtype:
            return F.solve(*cast_all((a, b)))
        lu, _, permutation = F.lu_factor(a)
        columns = F.expand_dims(b, axis=-1) if b.ndim == 1 else b
        order = F.expand_dims(permutation, axis=-1)
        lead = broadcast_shapes(
            self.name, {"a": a.type.like(a.shape[:-2]), "b": b.type.like(columns.shape[:-2])}
        )
        columns = F.broadcast_to(columns, shape=(*lead, *columns.shape[-2:]))
        order = F.broadcast_to(order, shape=columns.shape)
        inner = F.solve_triangular(lu, F.take_along_axis(columns, order, axis=-2), unit=True)
        x = F.solve_triangular(lu, inner, upper=True)
        return F.squeeze(x, axis=-1) if b.ndim == 1 else x


@op
class SolveTriangular(Equations):
    """The x with a x = b, for triangular matrices a: the other triangle is not read.

    a: float32, float64 or complex [..., n, n]; b: [..., n, k], or one vector [n]; leading sizes fit by broadcasting.
    upper: the upper triangle of a counts, else the lower one; unit: its diagonal counts as ones. Returns the promoted
    type, [..., n, k] or [..., n]. Raises ShapeError if sizes differ, DTypeError for other types, and ValueError, when
    the result is read, for a zero on the diagonal.
    Source: BLAS's trsm; SciPy's solve_triangular.

    >>> import weft as wf
    >>> wf.linalg.solve_triangular(wf.tensor([[2., 0.], [1., 4.]]), wf.tensor([2., 9.]))
    tensor([1., 2.], dtype=float32, device=cpu:0)
    """

    upper: bool = False
    unit: bool = False

    def of_adjoint(self, a: Any, dx: Any) -> Any:
        return F.solve_triangular(adjoint(a), dx, upper=not self.upper, unit=self.unit)

    def triangle(self, da: Any) -> Any:
        return F.triu(da, k=int(self.unit)) if self.upper else F.tril(da, k=-int(self.unit))

    def decompose(self, a: Any, b: Any) -> Any:
        return NotImplemented if a.dtype is b.dtype else self.again(*cast_all((a, b)))


@op
class Inv(Op, family="linalg", rule=f"x[*b,rows,rows]: {KINDS} -> y[*b,rows,rows]: x"):
    """The inverse of square matrices. solve(x, b) is quicker and more accurate than inv(x) @ b.

    x: float32, float64 or complex [..., n, n]. Returns x's shape and dtype. Raises ShapeError for other than square
    matrices, DTypeError for other types, and ValueError, when the result is read, for a singular matrix.
    Source: array API 2024.12, linalg.inv.

    >>> import weft as wf
    >>> x = wf.tensor([[2., 1.], [1., 1.]])
    >>> (wf.linalg.inv(x) @ x).round().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    def decompose(self, x: Any) -> Any:
        return F.solve(x, identity_like(x))

    def vjp(self, y: Any, dy: Any) -> Any:
        turned = adjoint(y)
        return F.negative(F.matmul(F.matmul(turned, dy), turned))


@op
class Qr(Factorization, rule=f"x[*b,rows,columns]: {KINDS} -> q: x, r: x", positional=("mode",)):
    """The QR decomposition: x = q r with orthonormal columns of q and an upper triangular r.

    x: float32, float64 or complex [..., m, n]; mode: "reduced" for q[..., m, k] and r[..., k, n] with k = min(m, n),
    "complete" for a square q and r of x's shape. Returns x's dtype; signs are those of LAPACK, so the diagonal of r may
    be negative. The gradient needs linearly independent columns (of the first min(m, n)); of a complete q with more
    rows than columns there is none, as its last columns are not unique. Raises ShapeError for fewer than 2 dimensions,
    DTypeError for other types.
    Source: array API 2024.12, linalg.qr; gradient: Walter, Lehmann, Lorenz 2012, On evaluating higher-order derivatives
    of the QR decomposition.

    >>> import weft as wf
    >>> q, r = wf.linalg.qr(wf.tensor([[3., 1.], [4., 2.]]))
    >>> (abs(r) * 10).round()
    tensor([[50., 22.],
            [ 0.,  4.]], dtype=float32, device=cpu:0)
    """

    mode: str = "reduced"

    def check(self) -> None:
        if self.mode not in ("reduced", "complete"):
            raise ValueError(f"{self.name}: mode must be 'reduced' or 'complete', got {self.mode!r}")

    def infer(self, x: TensorType) -> Any:
        self.match(x)
        m, n = x.shape[-2:]
        k = m if self.mode == "complete" or m == n else min(int(m), int(n))
        return x.like((*x.shape[:-2], m, k)), x.like((*x.shape[:-2], k, n))

    def vjp(self, x: Any, q: Any, r: Any, dq: Any, dr: Any) -> Any:
        m, n = x.shape[-2:]
        if m != n and self.mode == "complete" and int(m) > int(n):
            raise NotImplementedError(
                f"{self.name}: a complete q of more rows than columns has no gradient: x is {x.type}\n"
                "  hint: mode='reduced' has one"
            )
        dq = zeros_like(q) if dq is None else dq
        dr = zeros_like(r) if dr is None else dr
        right = None
        if m != n and int(n) > int(m):  # the last columns are q r
            last = part(dr, -1, m, n)
            dq = dq + F.matmul(part(x, -1, m, n), adjoint(last))
            right = F.matmul(q, last)
            r, dr = part(r, -1, 0, m), part(dr, -1, 0, m)
        inner = F.triu(F.matmul(dr, adjoint(r)) - F.matmul(adjoint(q), dq))
        inner = inner + adjoint(inner) - identity_like(inner) * hermitian_part(inner)
        dx = adjoint(F.solve_triangular(r, adjoint(dq + F.matmul(q, inner)), upper=True))
        return dx if right is None else F.concat([dx, right], axis=-1)


@op
class Svd(Factorization, rule=f"x[*b,rows,columns]: {KINDS} -> u: x, s: real(), vh: x"):
    """The singular value decomposition x = u diag(s) vh, with the greatest values first.

    x: float32, float64 or complex [..., m, n]; full_matrices: square u[..., m, m] and vh[..., n, n], else
    u[..., m, k] and vh[..., k, n] with k = min(m, n). Returns x's dtype, s[..., k] of that of its parts, at least 0.
    The gradient of s alone is always there; that of u and vh is infinite or NaN where singular values are equal, or 0
    of a matrix that is not square, and holds for functions that do not depend on the phases of the vectors; of full
    matrices there is one if x is square. Raises ShapeError for fewer than 2 dimensions, DTypeError for other types, and
    ValueError, when a result is read, for elements that are not finite.
    Source: array API 2024.12, linalg.svd; gradient: Townsend 2016, Differentiating the singular value decomposition.

    >>> import weft as wf
    >>> wf.linalg.svd(wf.tensor([[3., 0.], [0., -4.]])).S
    tensor([4., 3.], dtype=float32, device=cpu:0)
    """

    full_matrices: bool = True

    def real(self, x: TensorType) -> DType:
        return x.dtype.real

    def infer(self, x: TensorType) -> Any:
        self.match(x)
        m, n = x.shape[-2:]
        lead, k = x.shape[:-2], m if m == n else min(int(m), int(n))
        left, right = (m, n) if self.full_matrices else (k, k)
        return x.like((*lead, m, left)), x.like((*lead, k), x.dtype.real), x.like((*lead, right, n))

    def vjp(self, u: Any, s: Any, vh: Any, du: Any, ds: Any, dvh: Any) -> Any:
        m, n = u.shape[-2], vh.shape[-1]
        if self.full_matrices and m != n:
            if du is not None or dvh is not None:
                raise NotImplementedError(
                    f"{self.name}: full u and vh have no gradient unless x is square: u is {u.type}, vh is {vh.type}\n"
                    "  hint: full_matrices=False has one"
                )
            u, vh = part(u, -1, 0, s.shape[-1]), part(vh, -2, 0, s.shape[-1])
        if du is None and dvh is None:
            return F.matmul(scaled_columns(u, cast_to(ds, u.dtype)), vh)
        square = s * s
        gaps = differences(square)
        zeros = identity_like(gaps)
        inner = zeros_like(F.matmul(adjoint(u), u))
        if du is not None:
            turn = F.matmul(adjoint(u), du)
            inner = inner + scaled_columns((turn - adjoint(turn)) / gaps, s)
            if u.dtype.is_complex:  # a phase moves no singular value, and both vectors
                phases = F.imag(diagonal_of(turn)) / s
                inner = inner + F.complex(zeros_like(zeros), F.expand_dims(phases, axis=-2) * zeros)
        if dvh is not None:
            turn = F.matmul(vh, adjoint(dvh))
            inner = inner + scaled_rows(s, (turn - adjoint(turn)) / gaps)
        if ds is not None:
            inner = inner + F.expand_dims(ds, axis=-2) * zeros
        dx = F.matmul(F.matmul(u, inner), vh)
        if du is not None and m != u.shape[-1]:
            outside = du - F.matmul(u, F.matmul(adjoint(u), du))
            dx = dx + F.matmul(outside / F.expand_dims(s, axis=-2), vh)
        if dvh is not None and n != vh.shape[-2]:
            outside = dvh - F.matmul(F.matmul(dvh, adjoint(vh)), vh)
            dx = dx + F.matmul(u, outside / F.expand_dims(s, axis=-1))
        return dx


@op
class Eigh(
    Factorization, rule=f"x[*b,rows,rows]: {KINDS} -> values[*b,rows]: real(), vectors[*b,rows,rows]: x"
):
    """The eigenvalues of Hermitian matrices, the least first, and their eigenvectors, the columns of a unitary matrix.

    x: float32, float64 or complex [..., n, n]; of others than Hermitian ones the Hermitian part (x + x^H) / 2 counts.
    Returns values[..., n] of the dtype of x's parts, and vectors of x's shape and dtype. The gradient is Hermitian;
    that of the vectors is infinite or NaN where eigenvalues are equal, and holds for functions that do not depend on
    their phases. Raises ShapeError for other than square matrices, DTypeError for other types, and ValueError, when a
    result is read, for elements that are not finite.
    Source: array API 2024.12, linalg.eigh; gradient: Giles 2008, Collected matrix derivative results.

    >>> import weft as wf
    >>> wf.linalg.eigh(wf.tensor([[2., 1.], [1., 2.]])).eigenvalues
    tensor([1., 3.], dtype=float32, device=cpu:0)
    """

    def real(self, x: TensorType) -> DType:
        return x.dtype.real

    def vjp(self, values: Any, vectors: Any, dvalues: Any, dvectors: Any) -> Any:
        if dvectors is None:
            return F.matmul(scaled_columns(vectors, cast_to(dvalues, vectors.dtype)), adjoint(vectors))
        gaps = differences(values)
        ones = identity_like(gaps)
        inner = F.matmul(adjoint(vectors), dvectors) / gaps * (1 - ones)
        if dvalues is not None:
            inner = inner + F.expand_dims(dvalues, axis=-2) * ones
        return hermitian_part(F.matmul(F.matmul(vectors, inner), adjoint(vectors)))


@op
class Eig(
    Factorization,
    rule=f"x[*b,rows,rows]: {KINDS} -> values[*b,rows]: pairs(), vectors[*b,rows,rows]: pairs()",
):
    """The eigenvalues of square matrices, in no order, and eigenvectors of length 1 as columns.

    x: float32, float64 or complex [..., n, n]. Returns values[..., n] and vectors[..., n, n], complex, of x's
    precision. The gradient is infinite or NaN where eigenvalues are equal, and holds for functions that do not depend
    on the phases of the vectors. Raises ShapeError for other than square matrices, DTypeError for other types, and
    ValueError, when a result is read, for elements that are not finite.
    Source: LAPACK's geev; NumPy's linalg.eig; gradient: Boeddeker et al. 2017, On the computation of complex-valued
    gradients.

    >>> import weft as wf
    >>> values, vectors = wf.linalg.eig(wf.tensor([[0., -1.], [1., 0.]]))
    >>> values
    tensor([0.+1.j, 0.-1.j], dtype=complex64, device=cpu:0)
    """

    def pairs(self, x: TensorType) -> DType:
        return complex_of(x.dtype)

    def vjp(self, x: Any, values: Any, vectors: Any, dvalues: Any, dvectors: Any) -> Any:
        turned = adjoint(vectors)
        ones = identity_like(turned)
        inner = zeros_like(turned)
        if dvectors is not None:
            turn = F.matmul(turned, dvectors)
            lengths = F.matmul(turned, scaled_columns(vectors, F.real(diagonal_of(turn))))
            inner = (turn - lengths) / conj(differences(values)) * (1 - ones)
        if dvalues is not None:
            inner = inner + F.expand_dims(dvalues, axis=-2) * ones
        dx = F.solve(turned, F.matmul(inner, turned))
        return dx if x.dtype.is_complex else F.real(dx)


__all__ = [
    "Cholesky",
    "Eig",
    "Eigh",
    "Inv",
    "LuFactor",
    "Qr",
    "Solve",
    "SolveTriangular",
    "Svd",
]
