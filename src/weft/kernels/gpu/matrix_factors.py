"""Cholesky and LU factorizations and equations, as a block of threads computes them: see weft.expr.llvm_matrices.

Each is by columns, with what is right of a column updated at once: the sums of an element are those of LAPACK's
unblocked routines. `failures` is the order of the first leading minor, or the number of the first pivot, counted from
1, that is the reason why there is no result; 0: there is one.
"""

from __future__ import annotations

from weft.base.typing import Any
from weft.expr.llvm_matrices import Block, Matrix, MatrixCode, Work
from weft.expr.llvm_registers import Register, less_product, where
from weft.expr.scalar import COMPLEX

__all__ = ["cholesky_code", "lu_code", "solve_code", "triangular_code"]

FAILURES = ("failures", "int32", ())
SQUARE = ("rows", "across")  # of a square matrix, each loop moving along one of its axes


def cholesky_code(dtype: str, lead: int, is_upper: bool) -> MatrixCode:
    """x -> y, failures: the factor of the Hermitian part, with zeros in the other triangle."""
    operands = (("x", dtype, SQUARE), ("y", dtype, SQUARE), FAILURES)
    work = (Work("w", dtype, SQUARE, "y"),)
    return MatrixCode("cholesky", _cholesky, (is_upper,), lead, SQUARE, operands, work)


def _cholesky(b: Block, is_upper: bool) -> None:
    x, n = b["x"], b.size["rows"]
    y = b["y"].adjoint if is_upper else b["y"]
    w = b["w"] if b.memory else y

    def read(i: Register, j: Register) -> None:
        lower = x[i, j] * b.number(real, 0.5) + x[j, i].conj() * b.number(real, 0.5)
        w[i, j] = where(j <= i, lower, 0)

    real = COMPLEX.get(x.dtype, x.dtype)
    b.each_pair(n, n, read)
    b.barrier()

    def column(k: Register, failure: Register) -> list[Register]:
        pivot, after = w[k, k].real, k + 1
        is_positive = pivot > 0
        root = where(is_positive, pivot, 1).sqrt()
        failure = where(is_positive | failure.differs(0), failure, after)

        def scale(i: Register) -> None:
            w[i, k] = w[i, k] / root

        b.each(n, scale, after)
        b.barrier()

        def update(i: Register, j: Register) -> None:
            i, j = i + after, j + after
            b.when(j <= i, lambda: w.put((i, j), less_product(w[i, j], w[i, k], w[j, k].conj())))

        b.each_pair(n - after, n - after, update)
        b.once(lambda: w.put((k, k), b.number(w.dtype, 0).of_parts(root, root.like(0))))
        b.barrier()
        return [failure]

    (failure,) = b.loop(n, column, [b.index(0)])
    _give(b, w, y, n, n)
    _report(b, failure)


def triangular_code(dtype: str, lead: int, is_vector: bool, is_upper: bool, is_unit: bool) -> MatrixCode:
    """a, b -> y, failures: a y = b, of a triangle of a."""
    loops, right = _right(is_vector)
    operands = (("a", dtype, SQUARE), ("b", dtype, right), ("y", dtype, right), FAILURES)
    work = (Work("w", dtype, right, "y"),)
    options = (is_vector, is_upper, is_unit)
    return MatrixCode("solve_triangular", _solve_triangular, options, lead, loops, operands, work)


def _solve_triangular(b: Block, is_vector: bool, is_upper: bool, is_unit: bool) -> None:
    a, n = b["a"], b.size["rows"]
    right, y, w, columns = _columns(b, is_vector, "b", "y", "w")
    b.each_pair(n, columns, lambda i, j: w.put((i, j), right[i, j]))
    if is_upper or is_unit:  # else what is read first, row 0, is read by the threads that have written it
        b.barrier()
    failure = b.index(0)
    if not is_unit:
        failure = _first_zero(b, a, n)
    _substitute(b, a, w, n, columns, is_upper, is_unit)
    _give(b, w, y, n, columns)
    _report(b, failure)


def _first_zero(b: Block, a: Matrix, n: Register) -> Register:
    """The place of the first 0 on the diagonal, counted from 1; 0: there is none."""

    def look(k: Register, place: Register) -> list[Register]:
        i = n - 1 - k
        return [where(a[i, i].same(0), i + 1, place)]

    return b.loop(n, look, [b.index(0)])[0]


def _substitute(
    b: Block, a: Matrix, w: Matrix, n: Register, columns: Register, is_upper: bool, is_unit: bool
) -> None:
    """w becomes x of t x = w, t being a triangle of a.

    The row that is next is the first one of an update, so its elements are divided by the threads that have updated
    them, and the barrier behind that is the only one of a step. If there are rows, there is one behind the last update.
    """

    def step(k: Register) -> None:
        i = n - 1 - k if is_upper else k
        if not is_unit:
            pivot = a[i, i]
            b.each(columns, lambda j: w.put((i, j), w[i, j] / pivot))
            b.barrier()

        def update(r: Register, j: Register) -> None:
            r = i - 1 - r if is_upper else i + 1 + r
            w[r, j] = less_product(w[r, j], a[r, i], w[i, j])

        b.each_pair(n - 1 - k, columns, update)
        if is_unit:
            b.barrier()

    b.loop(n, step)


def lu_code(dtype: str, lead: int) -> MatrixCode:
    """x -> lu, pivots, permutation."""
    loops, whole = ("rows", "columns", "least"), ("rows", "columns")
    operands = (
        ("x", dtype, whole),
        ("lu", dtype, whole),
        ("pivots", "int32", ("least",)),
        ("permutation", "int32", ("rows",)),
    )
    return MatrixCode("lu_factor", _lu_factor, (), lead, loops, operands, (Work("w", dtype, whole, "lu"),))


def _lu_factor(b: Block) -> None:
    x, w, pivots, permutation = b["x"], b["w"], b["pivots"], b["permutation"]
    rows, columns = b.size["rows"], b.size["columns"]
    b.each_pair(rows, columns, lambda i, j: w.put((i, j), x[i, j]))
    b.each(rows, lambda i: permutation.put(i, i))
    b.barrier()

    def exchange(k: Register, p: Register) -> None:
        first, second = permutation[k], permutation[p]
        permutation[k], permutation[p] = second, first
        pivots[k] = p

    def swap(k: Register, p: Register) -> None:
        b.each(columns, lambda j: b.when(j.differs(k), lambda: _swap(w, k, p, j)))
        b.once(lambda: exchange(k, p))

    _eliminate(b, w, rows, columns, b.size["least"], swap)
    _give(b, w, b["lu"], rows, columns)


def _swap(w: Matrix, k: Register, p: Register, j: Register) -> None:
    first, second = w[k, j], w[p, j]
    w[k, j], w[p, j] = second, first


def _eliminate(
    b: Block,
    w: Matrix,
    rows: Register,
    columns: Register,
    count: Register,
    swap: Any,
    beside: tuple[Matrix, Register] | None = None,
) -> Register:
    """Elimination of `count` columns with the first one of the greatest elements as the pivot, as LAPACK chooses it.

    swap(k, p): what else changes places with row k. beside: more columns, which are eliminated, too, and how many.
    Returns the number of the first pivot that is 0, counted from 1, or 0. Ends with a barrier if there are columns.
    """

    def column(k: Register, failure: Register) -> list[Register]:
        p, pivot = _pivot(b, w, k, rows)
        is_zero = pivot.same(0)

        def scale(i: Register) -> None:
            is_swapped = i.same(p)
            b.when(is_swapped, lambda: w.put((i, k), w[k, k]))
            b.when(is_swapped, lambda: w.put((k, k), pivot))
            b.when(~is_zero, lambda: w.put((i, k), w[i, k] / pivot))

        swap(k, p)
        b.each(rows, scale, k + 1)
        b.barrier()

        def update(of: Matrix, first: Register | int) -> Any:
            def one(i: Register, j: Register) -> None:
                i, j = i + k + 1, j + first
                of[i, j] = less_product(of[i, j], w[i, k], of[k, j])

            return one

        b.each_pair(rows - 1 - k, columns - 1 - k, update(w, k + 1))
        if beside:
            b.each_pair(rows - 1 - k, beside[1], update(beside[0], 0))
        b.barrier()
        return [where(is_zero & failure.same(0), k + 1, failure)]

    return b.loop(count, column, [b.index(0)])[0]


def _pivot(b: Block, w: Matrix, k: Register, rows: Register) -> tuple[Register, Register]:
    """The row of the first greatest element of column k, from row k on, and the element; of NaN it is row k."""
    real = COMPLEX.get(w.dtype, w.dtype)

    def better(old: list[Register], new: list[Register]) -> list[Register]:
        is_better = (new[0] > old[0]) | (new[0].same(old[0]) & (new[1] < old[1]))
        return [where(is_better, y, x) for x, y in zip(old, new, strict=True)]

    def look(i: Register, *old: Register) -> list[Register]:
        element = w[i, k]
        size = abs(element.real) + abs(element.imag) if w.dtype in COMPLEX else abs(element)
        is_nan = size.differs(size)
        size = where(is_nan, where(i.same(k), b.number(real, float("inf")), -1), size)
        return better([*old], [size, i, *element.parts])

    none = b.number(real, -2.0)
    start = [none, rows, *[none] * (1 + (w.dtype in COMPLEX))]
    _, p, *parts = b.of_all(b.each_of(rows, look, start, k), better)
    return p, Register(b.f, w.dtype, "").of_parts(*parts)


def solve_code(dtype: str, lead: int, is_vector: bool, is_inverse: bool) -> MatrixCode:
    """a, b -> y, failures; of the inverse x -> y, failures."""
    loops, right = (SQUARE, SQUARE) if is_inverse else _right(is_vector)
    sides = () if is_inverse else (("b", dtype, right),)
    operands = (("x" if is_inverse else "a", dtype, SQUARE), *sides, ("y", dtype, right), FAILURES)
    work = (Work("u", dtype, SQUARE), Work("w", dtype, right, "y"))
    options = (is_vector, is_inverse)
    return MatrixCode("inv" if is_inverse else "solve", _solve, options, lead, loops, operands, work)


def _solve(b: Block, is_vector: bool, is_inverse: bool) -> None:
    a, u, n = b["x" if is_inverse else "a"], b["u"], b.size["rows"]
    y, w, columns = _columns(b, is_vector, "y", "w")

    def begin(i: Register, j: Register) -> None:
        u[i, j] = a[i, j]
        if is_inverse:
            w[i, j] = where(i.same(j), a[i, j].like(1), 0)

    b.each_pair(n, n, begin)
    if not is_inverse:
        right = _columns(b, is_vector, "b")[0]
        b.each_pair(n, columns, lambda i, j: w.put((i, j), right[i, j]))
    b.barrier()

    def swap(k: Register, p: Register) -> None:
        b.each(n, lambda j: _swap(u, k, p, j), k + 1)
        b.each(columns, lambda j: _swap(w, k, p, j))

    failure = _eliminate(b, u, n, n, n, swap, (w, columns))
    _substitute(b, u, w, n, columns, True, False)
    _give(b, w, y, n, columns)
    _report(b, failure)


# Pieces.


def _right(is_vector: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The loops of equations, and those of their right side."""
    return (SQUARE, ("rows",)) if is_vector else ((*SQUARE, "columns"), ("rows", "columns"))


def _columns(b: Block, is_vector: bool, *names: str) -> list[Any]:
    """The operands as matrices of columns, and behind them how many columns there are."""
    found: list[Any] = [b[name] for name in names]
    if not is_vector:
        return [*found, b.size.get("columns", b.size["rows"])]
    zero = b.index(0)
    found = [Matrix(b, x.dtype, x.pointer, [*x.steps[:1], zero]) for x in found]
    return [*found, b.index(1)]


def _give(b: Block, w: Matrix, y: Matrix, rows: Register, columns: Register) -> None:
    """Writes the result, unless it is where it belongs; as each_pair of the same sizes wrote what it began with."""
    if b.memory:
        b.each_pair(rows, columns, lambda i, j: y.put((i, j), w[i, j]))


def _report(b: Block, failure: Register) -> None:
    b.once(lambda: b["failures"].put((), failure))
