"""QR decompositions by Householder's reflections, as a block of threads computes them: see weft.expr.llvm_matrices.

Reflections are those of LAPACK (geqr2, larfg), so signs are the same. A column is a warp's, whose lanes have the same
rows from one reflection to the next; so only the column that a reflection is made of is everybody's.
"""

from __future__ import annotations

from weft.expr.llvm_matrices import Block, Matrix, MatrixCode, Work, sums
from weft.expr.llvm_registers import Register, less_product, where
from weft.expr.scalar import COMPLEX

__all__ = ["Norm", "form_columns", "make_reflection", "qr_code", "reflect", "reflected"]


def qr_code(dtype: str, lead: int) -> MatrixCode:
    """x -> q, r. Columns lie one behind the other in the memory of work, as lanes read them."""
    operands = (
        ("x", dtype, ("rows", "columns")),
        ("q", dtype, ("rows", "width")),
        ("r", dtype, ("width", "columns")),
    )
    work = (Work("w", dtype, ("columns", "rows")), Work("taus", dtype, ("columns",)))
    return MatrixCode("qr", _qr, (), lead, ("rows", "columns", "width"), operands, work)


def _qr(b: Block) -> None:
    x, q, r, w = b["x"], b["q"], b["r"], b["w"].turned()
    rows, columns, width = (b.size[name] for name in ("rows", "columns", "width"))
    count = b.less(rows, columns)
    b.each_pair(rows, columns, lambda i, j: w.put((i, j), x[i, j]))
    b.barrier()
    reflect(b, w, b["taus"], rows, columns, count)
    b.each_pair(width, columns, lambda i, j: r.put((i, j), where(j >= i, w[i, j], 0)))
    form_columns(b, w, b["taus"], count, q, rows, b.index(0), width)
    if b.memory:  # the next matrix takes the place of this one
        b.barrier()


def reflect(b: Block, w: Matrix, taus: Matrix, rows: Register, columns: Register, count: Register) -> None:
    """The first `count` columns of w become a triangle, and below it what they are reflected at; others follow.

    Ends with a barrier if there are columns.
    """
    norm = Norm(b, w.dtype)

    def column(k: Register) -> None:
        tau = make_reflection(b, w, taus, norm, k, k, rows)
        b.each_by_warp(columns, lambda j: reflected(b, w, k, k, tau.conj(), w, j, rows), begin=k + 1)
        b.barrier()

    b.loop(count, column)


def make_reflection(
    b: Block, w: Matrix, taus: Matrix, norm: Norm, k: Register, row: Register, rows: Register
) -> Register:
    """Number k: makes column k 0 below a row, where its direction is stored then, but for a first element of 1.

    Returns tau: it is 1 - tau v v^H. Two barriers.
    """
    alpha, after = w[row, k], row + 1
    below = b.of_all(b.each_of(rows, lambda i, *old: norm.added([*old], w[i, k]), norm.nothing, after), sums)
    is_done = norm.is_nothing(below) & alpha.imag.same(0)
    beta = -norm.root(norm.added(below, alpha)).with_sign_of(alpha.real)
    beta = where(is_done, alpha.real, beta)
    safe = where(is_done, beta.like(1), beta)
    parts = [(beta - alpha.real) / safe, *([-alpha.imag / safe] if w.dtype in COMPLEX else [])]
    tau = alpha.of_parts(*(where(is_done, x.like(0), x) for x in parts))
    first = alpha.of_parts(beta, beta.like(0))
    divisor = where(is_done, alpha.like(1), alpha - first)
    b.once(lambda: w.put((row, k), first))
    b.once(lambda: taus.put(k, tau))
    b.each(rows, lambda i: w.put((i, k), w[i, k] / divisor), after)
    b.barrier()
    return tau


def reflected(
    b: Block, w: Matrix, k: Register, row: Register, tau: Register, of: Matrix, j: Register, rows: Register
) -> None:
    """Column j of a matrix without tau times its part along reflection k, which begins in a row; by a warp."""

    def direction(i: Register) -> Register:
        return where(i.same(row), tau.like(1), w[i, k])

    def product(i: Register, *old: Register) -> list[Register]:
        total = tau.of_parts(*old) + direction(i).conj() * of[i, j]
        return total.parts

    found = b.of_warp(b.each_by_lane(rows, product, tau.like(0).parts, row), sums)
    taken = tau * tau.of_parts(*found)
    b.each_by_lane(rows, lambda i: of.put((i, j), less_product(of[i, j], direction(i), taken)), begin=row)


def form_columns(
    b: Block,
    w: Matrix,
    taus: Matrix,
    count: Register,
    q: Matrix,
    rows: Register,
    first: Register,
    last: Register,
    offset: int = 0,
) -> None:
    """The columns [first, last) of the product of `count` reflections, by warps: what they make of the identity's.

    offset: reflection k begins in row k + offset.
    """

    def column(j: Register) -> None:
        b.each_by_lane(rows, lambda i: q.put((i, j), where(i.same(j), b.number(q.dtype, 1), 0)))
        reflections = b.less(j + (1 - offset), count)

        def turn(t: Register) -> None:
            k = reflections - 1 - t
            reflected(b, w, k, k + offset, taus[k], q, j, rows)

        b.loop(reflections, turn)

    b.each_by_warp(last, column, begin=first)


class Norm:
    """A root of a sum of squares that neither overflows nor underflows while it is summed, in float64.

    Squares of float32 do neither there. Those of float64 are summed in three ranges, the outer ones scaled:
    Blue 1978, A portable Fortran program to find the Euclidean norm of a vector; constants as LAPACK's la_constants.
    """

    BIG, SMALL = 2.0**486, 2.0**-511
    OF_BIG, OF_SMALL = 2.0**-538, 2.0**537

    def __init__(self, b: Block, dtype: str) -> None:
        self.real = COMPLEX.get(dtype, dtype)
        self.is_wide = self.real == "float64"
        self.nothing = [b.number("float64", 0)] * (3 if self.is_wide else 1)

    def added(self, totals: list[Register], value: Register) -> list[Register]:
        for x in value.parts:
            wide = abs(x.cast("float64"))
            if not self.is_wide:
                totals = [totals[0] + wide * wide]
                continue
            is_big, is_small = wide > self.BIG, wide < self.SMALL
            big, small = wide * self.OF_BIG, wide * self.OF_SMALL
            zero = wide.like(0)
            others = where(is_big | is_small, zero, wide)
            terms = [where(is_big, big, zero), others, where(is_small, small, zero)]
            totals = [total + term * term for total, term in zip(totals, terms, strict=True)]
        return totals

    def is_nothing(self, totals: list[Register]) -> Register:
        """Whether all that was added is 0."""
        first, *others = [total.same(0) for total in totals]
        for other in others:
            first = first & other
        return first

    def root(self, totals: list[Register]) -> Register:
        if not self.is_wide:
            return totals[0].sqrt().cast(self.real)
        big, middle, small = totals
        of_small = small.sqrt() / self.OF_SMALL
        of_middle = (middle + small / self.OF_SMALL / self.OF_SMALL).sqrt()
        of_big = (big + middle * self.OF_BIG * self.OF_BIG).sqrt() / self.OF_BIG
        return where(big.differs(0), of_big, where(middle.differs(0), of_middle, of_small))
