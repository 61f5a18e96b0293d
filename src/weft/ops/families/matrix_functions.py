"""Determinants, inverses, norms, powers and products of matrices, made of factorizations and products."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from weft.base.dtype import DType, int32, int64
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.families.fourier import complex_of
from weft.ops.families.linalg import (
    KINDS,
    adjoint,
    diagonal_of,
    identity_like,
    part,
    scaled_columns,
)
from weft.ops.families.matrix import cast_all
from weft.ops.op import op
from weft.ops.pointwise import cast_to, conj
from weft.ops.types import TensorType, normalize_axes

EPSILON = {32: 2.0**-23, 64: 2.0**-52}


def element(x: Any, i: int, j: int) -> Any:
    """Element (i, j) of each matrix."""
    return F.squeeze(part(part(x, -2, i, i + 1), -1, j, j + 1), axis=(-2, -1))


def default_tolerance(x: Any) -> float:
    """The share of the greatest singular value below which one counts as 0: max(m, n) times the dtype's epsilon."""
    return max(int(x.shape[-2]), int(x.shape[-1])) * EPSILON[x.dtype.real.bits]


class OfSquare(Composed, family="linalg"):
    """Base of functions of square matrices."""


def parity(pivots: Any) -> Any:
    """1 or -1: the determinant of a permutation that is given by what changed places."""
    n = pivots.shape[-1]
    places = F.cumulative_sum(F.filled_like(pivots, value=1), axis=-1) - 1
    moved = F.sum(cast_to(F.not_equal(pivots, places), int32), axis=-1) if n != 0 else F.sum(pivots, axis=-1)
    return 1 - 2 * F.remainder(moved, 2)


@op
class Det(OfSquare, rule=f"x[*b,rows,rows]: {KINDS} -> y[*b]: x"):
    """The determinant of square matrices: by its formula for up to 3 rows, else from the LU factorization.

    x: float32, float64 or complex [..., n, n]. Returns x's dtype, [...]; 1 for n = 0. The gradient of more than 3 rows
    needs an invertible matrix: reading that of a singular one raises ValueError. Raises ShapeError for other than
    square matrices, DTypeError for other types.
    Source: array API 2024.12, linalg.det.

    >>> import weft as wf
    >>> wf.linalg.det(wf.tensor([[1., 2.], [3., 4.]])).item()
    -2.0
    """

    def decompose(self, x: Any) -> Any:
        self.match(x.type)
        at = functools.partial(element, x)
        match x.shape[-1]:
            case 1:
                return at(0, 0)
            case 2:
                return at(0, 0) * at(1, 1) - at(0, 1) * at(1, 0)
            case 3:
                return (
                    at(0, 0) * (at(1, 1) * at(2, 2) - at(1, 2) * at(2, 1))
                    - at(0, 1) * (at(1, 0) * at(2, 2) - at(1, 2) * at(2, 0))
                    + at(0, 2) * (at(1, 0) * at(2, 1) - at(1, 1) * at(2, 0))
                )
        lu, pivots, _ = F.lu_factor(x)
        return F.prod(diagonal_of(lu), axis=-1, dtype=x.dtype) * cast_to(parity(pivots), x.dtype)

    def vjp(self, x: Any, y: Any, dy: Any) -> Any:
        if isinstance(x.shape[-1], int) and x.shape[-1] <= 3:
            return NotImplemented
        slope = F.reshape(dy * conj(y), shape=(*y.shape, 1, 1))
        return slope * adjoint(F.inv(x))


@op
class Slogdet(OfSquare, rule=f"x[*b,rows,rows]: {KINDS} -> sign[*b]: x, logabsdet[*b]: real()"):
    """The sign of the determinant and the logarithm of its absolute value, which does not overflow.

    x: float32, float64 or complex [..., n, n]. Returns the sign (of complex matrices a number of absolute value 1) of
    x's dtype and the logarithm, of that of its parts; 0 and -inf for singular matrices. The gradient needs an
    invertible matrix: reading that of a singular one raises ValueError. Raises ShapeError for other than square
    matrices, DTypeError for other types.
    Source: array API 2024.12, linalg.slogdet.

    >>> import weft as wf
    >>> wf.linalg.slogdet(wf.tensor([[1., 0.], [0., -1.]]))
    SlogdetResult(sign=tensor(-1., dtype=float32, device=cpu:0), logabsdet=tensor(0., dtype=float32, device=cpu:0))
    """

    def real(self, x: TensorType) -> DType:
        return x.dtype.real

    def decompose(self, x: Any) -> Any:
        self.match(x.type)
        lu, pivots, _ = F.lu_factor(x)
        diagonal = diagonal_of(lu)
        size = F.abs(diagonal)
        signs = F.where(F.equal(size, 0), 0, diagonal / F.where(F.equal(size, 0), 1, size))
        sign = F.prod(signs, axis=-1, dtype=x.dtype) * cast_to(parity(pivots), x.dtype)
        return sign, F.sum(F.log(size), axis=-1)

    def vjp(self, x: Any, sign: Any, dsign: Any, dlogabsdet: Any) -> Any:
        slope = None if dlogabsdet is None else cast_to(dlogabsdet, x.dtype)
        if dsign is not None and x.dtype.is_complex:
            turn = F.negative(F.imag(conj(dsign) * sign))
            phase = F.complex(F.filled_like(turn, value=0), turn)
            slope = phase if slope is None else slope + phase
        if slope is None:
            return None
        return F.reshape(slope, shape=(*sign.shape, 1, 1)) * adjoint(F.inv(x))


@op
class Svdvals(Composed, family="linalg", rule=f"x[*b,rows,columns]: {KINDS} -> s: real()"):
    """The singular values of matrices, the greatest first.

    x: float32, float64 or complex [..., m, n]. Returns [..., min(m, n)] of the dtype of x's parts. Raises as svd.
    Source: array API 2024.12, linalg.svdvals.

    >>> import weft as wf
    >>> wf.linalg.svdvals(wf.tensor([[3., 0.], [0., -4.]]))
    tensor([4., 3.], dtype=float32, device=cpu:0)
    """

    def real(self, x: TensorType) -> DType:
        return x.dtype.real

    def decompose(self, x: Any) -> Any:
        return F.svd(x, full_matrices=False)[1]


@op
class Eigvalsh(OfSquare, rule=f"x[*b,rows,rows]: {KINDS} -> values[*b,rows]: real()"):
    """The eigenvalues of Hermitian matrices, the least first.

    x: float32, float64 or complex [..., n, n]; of others than Hermitian ones the Hermitian part counts. Returns
    [..., n] of the dtype of x's parts. Raises as eigh.
    Source: array API 2024.12, linalg.eigvalsh.

    >>> import weft as wf
    >>> wf.linalg.eigvalsh(wf.tensor([[2., 1.], [1., 2.]]))
    tensor([1., 3.], dtype=float32, device=cpu:0)
    """

    def real(self, x: TensorType) -> DType:
        return x.dtype.real

    def decompose(self, x: Any) -> Any:
        return F.eigh(x)[0]


@op
class Eigvals(OfSquare, rule=f"x[*b,rows,rows]: {KINDS} -> values[*b,rows]: pairs()"):
    """The eigenvalues of square matrices, in no order.

    x: float32, float64 or complex [..., n, n]. Returns [..., n], complex of x's precision. Raises as eig.
    Source: NumPy's linalg.eigvals.

    >>> import weft as wf
    >>> wf.linalg.eigvals(wf.tensor([[0., -1.], [1., 0.]]))
    tensor([0.+1.j, 0.-1.j], dtype=complex64, device=cpu:0)
    """

    def pairs(self, x: TensorType) -> DType:
        return complex_of(x.dtype)

    def decompose(self, x: Any) -> Any:
        return F.eig(x)[0]


@op
class Lu(Composed, family="linalg", rule=f"x[*b,rows,columns]: {KINDS} -> p: x, l: x, u: x"):
    """The LU decomposition x = p l u: a permutation matrix, a lower triangle with ones on its diagonal, an upper one.

    x: float32, float64 or complex [..., m, n]. Returns p[..., m, m], l[..., m, k] and u[..., k, n] of x's dtype, with
    k = min(m, n). The gradient is that of lu_factor. Raises ShapeError for fewer than 2 dimensions, DTypeError for
    other types.
    Source: SciPy's linalg.lu.

    >>> import weft as wf
    >>> p, l, u = wf.linalg.lu(wf.tensor([[1., 2.], [2., 2.]]))
    >>> l, u
    (tensor([[1. , 0. ],
            [0.5, 1. ]], dtype=float32, device=cpu:0), tensor([[2., 2.],
            [0., 1.]], dtype=float32, device=cpu:0))
    """

    def decompose(self, x: Any) -> Any:
        self.match(x.type)
        lu, _, permutation = F.lu_factor(x)
        m, n = x.shape[-2:]
        k = m if m == n else min(int(m), int(n))
        ones = F.matmul(x, adjoint(x)) if m != n else x  # of shape [..., m, m]
        ones = identity_like(ones)
        p = F.matrix_transpose(F.one_hot(permutation, num_classes=m))
        lower = part(lu, -1, 0, k)
        lower = F.tril(lower, k=-1) + part(ones, -1, 0, k)
        return cast_to(p, x.dtype), lower, F.triu(part(lu, -2, 0, k))


@op
class CholeskySolve(
    Composed,
    family="linalg",
    rule=f"b[...,rows,columns]: {KINDS}, factor[...,rows,rows]: {KINDS} -> x: promote",
):
    """The x with a x = b, from the Cholesky factor of a.

    b: [..., n, k]; factor: [..., n, n], cholesky(a), which is lower triangular, or upper triangular with upper=True;
    leading sizes fit by broadcasting. Returns the promoted type, [..., n, k]. Raises as solve_triangular.
    Source: PyTorch's cholesky_solve.

    >>> import weft as wf
    >>> a = wf.tensor([[4., 2.], [2., 2.]])
    >>> wf.linalg.cholesky_solve(wf.tensor([[6.], [4.]]), wf.linalg.cholesky(a))
    tensor([[1.],
            [1.]], dtype=float32, device=cpu:0)
    """

    upper: bool = False

    def decompose(self, b: Any, factor: Any) -> Any:
        b, factor = cast_all((b, factor))
        first, second = (adjoint(factor), factor) if self.upper else (factor, adjoint(factor))
        return F.solve_triangular(second, F.solve_triangular(first, b), upper=True)


@op
class Pinv(Composed, family="linalg", rule=f"x[*b,rows,columns]: {KINDS} -> y[*b,columns,rows]: x"):
    """The Moore-Penrose inverse of matrices: for each singular value that counts its reciprocal, else 0.

    x: float32, float64 or complex [..., m, n]; rtol: which share of the greatest singular value counts, by default
    max(m, n) times the dtype's epsilon; hermitian is not needed. Returns x's dtype, [..., n, m]. The gradient holds as
    long as the rank stays. Raises as svd.
    Source: array API 2024.12, linalg.pinv; gradient: Golub, Pereyra 1973, The differentiation of pseudo-inverses.

    >>> import weft as wf
    >>> wf.linalg.pinv(wf.tensor([[2., 0.], [0., 0.]]))
    tensor([[0.5, 0. ],
            [0. , 0. ]], dtype=float32, device=cpu:0)
    """

    rtol: float | None = None

    def decompose(self, x: Any) -> Any:
        self.match(x.type)
        if 0 in x.shape[-2:]:
            return F.matrix_transpose(x)
        u, s, vh = F.svd(x, full_matrices=False)
        tolerance = default_tolerance(x) if self.rtol is None else self.rtol
        counts = s > F.max(s, axis=-1, keepdims=True) * tolerance
        inverse = cast_to(F.where(counts, 1 / F.where(counts, s, 1), 0), x.dtype)
        return F.matmul(scaled_columns(adjoint(vh), inverse), adjoint(u))

    def vjp(self, x: Any, y: Any, dy: Any) -> Any:
        turned, slope = adjoint(y), adjoint(dy)
        inner = F.matmul(slope, y)
        first = F.negative(adjoint(F.matmul(y, inner)))
        rows = F.matmul(inner, turned)
        second = rows - F.matmul(F.matmul(x, y), rows)
        third = F.matmul(F.matmul(turned, y), slope - F.matmul(inner, x))
        return first + second + third


@op
class Lstsq(Composed, family="linalg", rule=f"a: {KINDS}, b: {KINDS} -> x: promote"):
    """The least-squares solution of a x = b: of all x with the least |a x - b| that with the least |x|.

    a: float32, float64 or complex [..., m, n]; b: [..., m, k], or one vector [m]; rtol: as of pinv, which computes it.
    Returns the promoted type, [..., n, k] or [..., n]. The gradient holds as long as the rank of a stays. Raises
    ShapeError if sizes differ, and as svd.
    Source: NumPy's linalg.lstsq, whose first result it is.

    >>> import weft as wf
    >>> wf.linalg.lstsq(wf.tensor([[1.], [1.]]), wf.tensor([1., 3.])).round()
    tensor([2.], dtype=float32, device=cpu:0)
    """

    rtol: float | None = None

    def decompose(self, a: Any, b: Any) -> Any:
        self.require_ndim(*range(2, 17), a=a)
        if b.ndim == 0 or a.shape[-2] != b.shape[-min(b.ndim, 2)]:
            raise self.fail(ShapeError, "the rows of a and b differ", a=a.type, b=b.type)
        a, b = cast_all((a, b))
        return F.matmul(F.pinv(a, rtol=self.rtol), b)


@op
class MatrixRank(Composed, family="linalg", rule=f"x[*b,rows,columns]: {KINDS} -> y[*b]: int64"):
    """The number of singular values that count: greater than rtol times the greatest one.

    x: float32, float64 or complex [..., m, n]; rtol: by default max(m, n) times the dtype's epsilon. Returns
    int64[...]. Raises as svd.
    Source: array API 2024.12, linalg.matrix_rank.

    >>> import weft as wf
    >>> wf.linalg.matrix_rank(wf.tensor([[1., 2.], [2., 4.]])).item()
    1
    """

    rtol: float | None = None

    def decompose(self, x: Any) -> Any:
        self.match(x.type)
        s = F.svdvals(x)
        if s.shape[-1] == 0:
            return F.sum(cast_to(s, int64), axis=-1)
        tolerance = default_tolerance(x) if self.rtol is None else self.rtol
        return F.sum(cast_to(s > F.max(s, axis=-1, keepdims=True) * tolerance, int64), axis=-1)


@op
class MatrixNorm(Composed, family="linalg", rule="x[*b,rows,columns]: float|complex -> y: real()"):
    """The norm of matrices, over the last two axes.

    x: float or complex [..., m, n] (float32, float64 or complex for the norms of singular values); ord: "fro" for the
    root of the sum of squares, "nuc" for the sum of the singular values, 2 and -2 for the greatest and the least one, 1
    and -1 for the greatest and the least sum of absolute values of a column, inf and -inf of a row, where the greatest
    of none is 0 and the least infinite; keepdims: the two axes stay, of size 1. Returns the dtype of x's parts. Raises
    ValueError for another ord, ShapeError for fewer than 2 dimensions, DTypeError for integers.
    Source: array API 2024.12, linalg.matrix_norm.

    >>> import weft as wf
    >>> wf.linalg.matrix_norm(wf.tensor([[3., 0.], [0., 4.]])).item()
    5.0
    """

    keepdims: bool = False
    ord: str | float = "fro"

    def check(self) -> None:
        if self.ord not in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
            raise ValueError(
                f"{self.name}: ord must be one of 'fro', 'nuc', 1, -1, 2, -2, inf, -inf, got {self.ord!r}"
            )

    def real(self, x: TensorType) -> DType:
        return x.dtype.real

    def decompose(self, x: Any) -> Any:
        self.match(x.type)
        if self.ord == "fro":
            return F.vector_norm(x, axis=(-2, -1), keepdims=self.keepdims)
        if self.ord == "nuc":
            return F.sum(F.expand_dims(F.svdvals(x), axis=-1), axis=(-2, -1), keepdims=self.keepdims)
        order = float(self.ord)
        if abs(order) == 2:
            values = F.expand_dims(F.svdvals(x), axis=-1)
        else:
            values = F.sum(F.abs(x), axis=-2 if abs(order) == 1 else -1, keepdims=True)
        return F.vector_norm(
            values, axis=(-2, -1), keepdims=self.keepdims, ord=math.copysign(math.inf, order)
        )


@op
class MatrixPower(OfSquare, rule="x[*b,rows,rows]: number|complex -> y[*b,rows,rows]: x", positional=("n",)):
    """The n-th power of square matrices, by squaring; of negative n that of the inverse; for 0 the identity.

    x: numbers [..., k, k]; for a negative n float32, float64 or complex. Returns x's shape and dtype; integers wrap.
    Raises ShapeError for other than square matrices, and as inv for a negative n.
    Source: array API 2024.12, linalg.matrix_power.

    >>> import weft as wf
    >>> wf.linalg.matrix_power(wf.tensor([[1, 1], [0, 1]]), 5).tolist()
    [[1, 5], [0, 1]]
    """

    n: int

    def decompose(self, x: Any) -> Any:
        self.match(x.type)
        if self.n == 0:
            return identity_like(x)
        power, exponent = (F.inv(x), -self.n) if self.n < 0 else (x, self.n)
        y = None
        while exponent:
            if exponent & 1:
                y = power if y is None else F.matmul(y, power)
            exponent >>= 1
            power = F.matmul(power, power) if exponent else power
        return F.positive(y)


PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0,
    10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
LARGEST_NORM = 5.371920351148152  # for which the approximation has the precision of float64
MOST_SQUARINGS = 16


@op
class Expm(OfSquare, rule=f"x[*b,rows,rows]: {KINDS} -> y[*b,rows,rows]: x"):
    """The exponential of square matrices, the sum of x^k / k!: Pade's approximation of x / 2^s, squared s times.

    x: float32, float64 or complex [..., n, n]. Returns x's shape and dtype; NaN where x's 1-norm exceeds 350,000.
    Raises ShapeError for other than square matrices, DTypeError for other types.
    Source: Higham 2005, The scaling and squaring method for the matrix exponential revisited; SciPy's linalg.expm.

    >>> import weft as wf
    >>> wf.linalg.expm(wf.tensor([[0., 1.], [0., 0.]]))
    tensor([[1., 1.],
            [0., 1.]], dtype=float32, device=cpu:0)
    """

    def decompose(self, x: Any) -> Any:
        self.match(x.type)
        if x.shape[-1] == 0:
            return F.positive(x)
        norm = F.matrix_norm(x, ord=1, keepdims=True)
        times = F.maximum(F.ceil(F.log2(F.maximum(norm, 1e-30) / LARGEST_NORM)), 0)
        times = F.where(times <= MOST_SQUARINGS, times, math.nan)
        y = _pade(x * cast_to(F.exp2(F.negative(times)), x.dtype))
        for k in range(MOST_SQUARINGS):
            is_squared = times > k
            inner = F.where(is_squared, y, 0)
            y = F.where(is_squared, F.matmul(inner, inner), y)
        return y


def _pade(x: Any) -> Any:
    """(v - u)^-1 (v + u) for the odd and the even part of the numerator of degree 13."""
    b, one = PADE, identity_like(x)
    x2 = F.matmul(x, x)
    x4 = F.matmul(x2, x2)
    x6 = F.matmul(x4, x2)
    odd = F.matmul(x6, b[13] * x6 + b[11] * x4 + b[9] * x2) + b[7] * x6 + b[5] * x4 + b[3] * x2 + b[1] * one
    even = F.matmul(x6, b[12] * x6 + b[10] * x4 + b[8] * x2) + b[6] * x6 + b[4] * x4 + b[2] * x2 + b[0] * one
    odd = F.matmul(x, odd)
    return F.solve(even - odd, even + odd)


@op
class Cross(Composed, family="linalg", rule="x1: number|complex, x2: number|complex -> y: promote"):
    """The cross product of vectors of 3 elements along an axis.

    x1, x2: numbers, whose shapes fit by broadcasting; axis: where both have size 3. Returns the promoted type, of the
    broadcast shape. Raises ShapeError for another size than 3, IndexError if an axis is out of range.
    Source: array API 2024.12, linalg.cross.

    >>> import weft as wf
    >>> wf.linalg.cross(wf.tensor([1, 0, 0]), wf.tensor([0, 1, 0])).tolist()
    [0, 0, 1]
    """

    axis: int = -1

    def decompose(self, x1: Any, x2: Any) -> Any:
        x1, x2 = cast_all((x1, x2))
        axes = [normalize_axes(self.name, self.axis, x.ndim)[0] for x in (x1, x2)]
        if any(x.shape[axis] != 3 for x, axis in zip((x1, x2), axes, strict=True)):
            fact = f"needs size 3 along axis {self.axis}"
            raise self.fail(ShapeError, fact, x1=x1.type, x2=x2.type)
        a, b = ([part(x, axis, k, k + 1) for k in range(3)] for x, axis in zip((x1, x2), axes, strict=True))
        parts = [a[i] * b[j] - a[j] * b[i] for i, j in ((1, 2), (2, 0), (0, 1))]
        return F.concat(parts, axis=max(axes) if self.axis >= 0 else self.axis)


@op
class Kron(Composed, family="linalg", rule="a: number|complex, b: number|complex -> y: promote"):
    """The Kronecker product: blocks of b, one for each element of a, times that element.

    a, b: numbers; one of fewer dimensions is taken as if it had leading sizes of 1. Returns the promoted type; each
    size is the product of those of a and b.
    Source: NumPy's kron.

    >>> import weft as wf
    >>> wf.linalg.kron(wf.tensor([1, 10]), wf.tensor([1, 2])).tolist()
    [1, 2, 10, 20]
    """

    def decompose(self, a: Any, b: Any) -> Any:
        rank = max(a.ndim, b.ndim)
        a, b = (F.reshape(x, shape=((1,) * (rank - x.ndim) + tuple(x.shape))) for x in (a, b))
        left = F.expand_dims(a, axis=tuple(2 * d + 1 for d in range(rank))) if rank else a
        right = F.expand_dims(b, axis=tuple(2 * d for d in range(rank))) if rank else b
        sizes = tuple(m * n for m, n in zip(a.shape, b.shape, strict=True))
        return F.reshape(F.multiply(left, right), shape=sizes)


def best_splits(sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """Where to divide the product of matrices first ... last so that the number of multiplications is least.

    sizes: the rows of the first matrix, then the columns of each.

    >>> best_splits([10, 100, 5, 50])[0, 2]
    2
    """
    count = len(sizes) - 1
    cost: dict[tuple[int, int], int] = {(k, k): 0 for k in range(count)}
    split: dict[tuple[int, int], int] = {}
    for length in range(2, count + 1):
        for first in range(count - length + 1):
            last = first + length - 1
            cost[first, last], split[first, last] = min(
                (cost[first, k - 1] + cost[k, last] + sizes[first] * sizes[k] * sizes[last + 1], k)
                for k in range(first + 1, last + 1)
            )
    return split


@op
class MultiDot(Composed, family="linalg", rule="*x: number|complex -> y: promote"):
    """The product of several matrices in the order that takes the fewest multiplications.

    x: numbers, matrices [m, k]; the first may be a row [k], the last a column [k]. Returns the promoted type. Raises
    ShapeError for other numbers of dimensions and sizes that do not fit, ValueError for no matrix.
    Source: NumPy's linalg.multi_dot; Cormen, Leiserson, Rivest, Stein, Introduction to algorithms, 15.2.

    >>> import weft as wf
    >>> wf.linalg.multi_dot(wf.tensor([[1., 2.]]), wf.tensor([[1.], [1.]]), wf.tensor([[3.]])).item()
    9.0
    """

    def decompose(self, *x: Any) -> Any:
        if not x:
            raise ValueError(f"{self.name}: takes at least one matrix")
        for k, each in enumerate(x):
            accepted = (1, 2) if k in (0, len(x) - 1) else (2,)
            self.require_ndim(*accepted, **{f"x{k}": each})
        values = cast_all(x)
        row, column = values[0].ndim == 1, values[-1].ndim == 1 and len(values) > 1
        if len(values) == 1:
            return F.positive(values[0])
        values[0] = F.expand_dims(values[0], axis=0) if row else values[0]
        values[-1] = F.expand_dims(values[-1], axis=1) if column else values[-1]
        split = best_splits([int(values[0].shape[0]), *(int(v.shape[1]) for v in values)])

        def product(first: int, last: int) -> Any:
            if first == last:
                return values[first]
            k = split[first, last]
            return F.matmul(product(first, k - 1), product(k, last))

        y = product(0, len(values) - 1)
        axes = tuple(axis for axis, is_vector in ((0, row), (1, column)) if is_vector)
        return F.squeeze(y, axis=axes) if axes else y


@op
class MatrixTrace(Composed, family="linalg", rule="x[*b,rows,columns]: number|complex -> y: sum_dtype()"):
    """The sum of each matrix's diagonal.

    x: numbers [..., m, n]; offset: which diagonal, to the right of the main one; dtype: of the result, by default x's,
    of integers int64 or uint64, as sum has it. Returns [...]. Raises ShapeError for fewer than 2 dimensions, DTypeError
    for complex x and another dtype.
    Source: array API 2024.12, linalg.trace.

    >>> import weft as wf
    >>> wf.linalg.trace(wf.tensor([[1., 2.], [3., 4.]])).item()
    5.0
    """

    offset: int = 0
    dtype: DType | None = None

    def sum_dtype(self, x: TensorType) -> DType:
        from weft.ops.families.reduction import same_kind

        return same_kind(self, self.dtype, x)

    def decompose(self, x: Any) -> Any:
        self.match(x.type)
        return F.sum(F.diagonal(x, offset=self.offset, axis1=-2, axis2=-1), axis=-1, dtype=self.dtype)


__all__ = [
    "CholeskySolve",
    "Cross",
    "Det",
    "Eigvals",
    "Eigvalsh",
    "Expm",
    "Kron",
    "Lstsq",
    "Lu",
    "MatrixNorm",
    "MatrixPower",
    "MatrixRank",
    "MatrixTrace",
    "MultiDot",
    "Pinv",
    "Slogdet",
    "Svdvals",
]
