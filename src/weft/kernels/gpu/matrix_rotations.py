"""Eigenvalues of Hermitian matrices and singular values by Jacobi's rotations, as a block of threads computes them.

A sweep rotates each pair of rows and columns (eigh), or of columns (svd, one-sided), in rounds of pairs that have no
member in common, as players of a tournament meet. It is repeated until a sweep finds no element that is more than
rounding beside its diagonal: Demmel and Veselic 1992, Jacobi's method is more accurate than QR. Matrices are scaled by
a power of two first, so that squares of what counts do not overflow. `failures` is 1 for elements that are not finite,
2 if SWEEPS were not enough.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.base.typing import Any
from weft.expr.llvm_matrices import Block, Matrix, MatrixCode, Work, greatest, sums
from weft.expr.llvm_registers import Register, where
from weft.expr.scalar import BITS, COMPLEX
from weft.kernels.gpu.matrix_factors import FAILURES, SQUARE
from weft.kernels.gpu.matrix_reflections import form_columns, reflect

__all__ = ["EPSILON", "SWEEPS", "eigh_code", "svd_code", "unit_of"]

SWEEPS = 40
EPSILON = {"float32": 2.0**-23, "float64": 2.0**-52}
LEAST = {"float32": 2.0**-126, "float64": 2.0**-1022}


def real_of(dtype: str) -> str:
    return COMPLEX.get(dtype, dtype)


def eigh_code(dtype: str, lead: int, has_vectors: bool) -> MatrixCode:
    """x -> values, vectors, failures."""
    real, of_rows = real_of(dtype), ("rows",)
    vectors = (("vectors", dtype, SQUARE),) if has_vectors else ()
    operands = (("x", dtype, SQUARE), ("values", real, of_rows), *vectors, FAILURES)
    work = [Work("a", dtype, SQUARE), Work("cosines", real, of_rows), Work("sines", dtype, of_rows)]
    work += [Work("v", dtype, SQUARE)] if has_vectors else []
    return MatrixCode("eigh", _eigh, (has_vectors,), lead, SQUARE, operands, tuple(work))


def _eigh(b: Block, has_vectors: bool) -> None:
    x, a, n = b["x"], b["a"], b.size["rows"]
    half = b.number(real_of(x.dtype), 0.5)
    unit, is_bad = unit_of(b, x, n, n)

    def begin(i: Register, j: Register) -> None:
        a[i, j] = (x[i, j] * half + x[j, i].conj() * half) / unit
        if has_vectors:
            b["v"][i, j] = where(i.same(j), a.zero.like(1), 0)

    b.each_pair(n, n, begin)
    b.barrier()
    failure = _sweeps(b, n, is_bad, lambda round, found: _two_sided(b, n, round, found, has_vectors))

    def result(i: Register) -> None:
        value = a[i, i].real
        (rank,) = _rank(b, n, i, lambda j: (a[j, j].real < value, a[j, j].real.same(value)))
        b.when(b.lane.same(0), lambda: b["values"].put(rank, value * unit))
        if has_vectors:
            b.each_by_lane(n, lambda r: b["vectors"].put((r, rank), b["v"][r, i]))

    b.each_by_warp(n, result)
    b.once(lambda: b["failures"].put((), failure))
    b.barrier()  # `unit_of` the next matrix writes to where the last sweep has read


def _two_sided(b: Block, n: Register, round: Register, found: Register, has_vectors: bool) -> Register:
    """One round on a, and on the columns of v: each block of two rows and two columns is a thread's."""
    a, cosines, sines = b["a"], b["cosines"], b["sines"]
    pairs = (n + 1) >> 1

    def choose(t: Register, found: Register) -> list[Register]:
        p, q = _meeting(b, n, round, t)
        across = a[p, q]
        turns = _counts(a[p, p].real, a[q, q].real, across) & p.differs(q)
        cosines[t], sines[t] = _rotation(a[p, p].real, a[q, q].real, across, turns)
        return [where(turns, found.like(1), found)]

    (found,) = b.each_of(pairs, choose, [found])
    b.barrier()

    def turn(t: Register, u: Register) -> None:
        (p, q), (r, s) = _meeting(b, n, round, t), _meeting(b, n, round, u)
        old = [a[p, r], a[p, s], a[q, r], a[q, s]]
        first, second = _turned(old[0], old[1], cosines[u], sines[u])
        third, fourth = _turned(old[2], old[3], cosines[u], sines[u])
        back = sines[t].conj()
        first, third = _turned(first, third, cosines[t], back)
        second, fourth = _turned(second, fourth, cosines[t], back)
        is_own = t.same(u) & p.differs(q)
        is_zero = is_own & _counts(old[0].real, old[3].real, old[1])
        a[p, r], a[q, s] = first, fourth
        a[p, s], a[q, r] = (where(is_zero, x, y) for x, y in ((a.zero, second), (a.zero, third)))

    b.each_pair(pairs, pairs, turn)
    if has_vectors:
        v = b["v"]

        def turn_columns(i: Register, u: Register) -> None:
            p, q = _meeting(b, n, round, u)
            v[i, p], v[i, q] = _turned(v[i, p], v[i, q], cosines[u], sines[u])

        b.each_pair(n, pairs, turn_columns)
    b.barrier()
    return found


# Rotations.


def _counts(
    first: Register, second: Register, across: Register, tolerance: Register | None = None
) -> Register:
    """Whether the element `across` of two diagonal ones is more than their rounding."""
    wide = [x.cast("float64") for x in across.parts]
    size = _root_of_squares(wide)
    most = (abs(first).cast("float64").sqrt()) * (abs(second).cast("float64").sqrt())
    bound = most.like(EPSILON[first.dtype]) if tolerance is None else tolerance
    return (size > most * bound) & (size > 0)


def _root_of_squares(parts: list[Register]) -> Register:
    if len(parts) == 1:
        return abs(parts[0])
    return (parts[0] * parts[0] + parts[1] * parts[1]).sqrt()


def _rotation(
    first: Register, second: Register, across: Register, turns: Register
) -> tuple[Register, Register]:
    """The cosine c and the sine s, with a phase, of the rotation [[c, s], [-conj(s), c]] that makes `across` 0."""
    wide = [x.cast("float64") for x in across.parts]
    size = _root_of_squares(wide)
    size = where(turns, size, 1)
    slope = (second.cast("float64") - first.cast("float64")) / (size * 2.0)
    one = slope.like(1)
    tangent = (one / (abs(slope) + (slope * slope + 1).sqrt())).with_sign_of(slope)
    cosine = one / (tangent * tangent + 1).sqrt()
    sine = [x / size * tangent * cosine for x in wide]
    cosine = where(turns, cosine, 1).cast(first.dtype)
    return cosine, across.of_parts(*(where(turns, x, 0).cast(first.dtype) for x in sine))


def _turned(first: Register, second: Register, cosine: Register, sine: Register) -> tuple[Register, Register]:
    """A row with two columns, times the rotation."""
    return first * cosine - second * sine.conj(), first * sine + second * cosine


def _meeting(b: Block, n: Register, round: Register, t: Register) -> tuple[Register, Register]:
    """Who meets whom as number t of a round; where n is odd, t = 0 is one that meets itself."""
    last = ((n + 1) & -2) - 1
    p, q = round + t, round - t
    p = where(p >= last, p - last, p)
    q = where(q < 0, q + last, q)
    p = where(t.same(0), last, p)
    return where(p >= n, q, p), q


def _sweeps(
    b: Block, n: Register, is_bad: Register, one_round: Callable[[Register, Register], Register]
) -> Register:
    """Rounds until a sweep rotates nothing: one_round(round, found) returns whether it, or an earlier one, has.

    Returns what is wrong: 1, 2 or 0.
    """
    nothing = b.number("float32", 0)
    rounds = where(is_bad, b.index(0), ((n + 1) & -2) - 1)

    def sweep(count: Register, _: Register) -> tuple[Register, list[Register]]:
        found = b.loop(rounds, lambda round, found: [one_round(round, found)], [nothing])
        (any_found,) = b.of_all(found, greatest)
        is_done = any_found.same(0) | (count + 1 >= SWEEPS)
        return is_done, [count + 1, any_found]

    _, found = b.repeat(sweep, [b.index(0), nothing])
    return where(is_bad, b.index(1), where(found.same(0), b.index(0), 2))


def _rank(
    b: Block, n: Register, i: Register, compare: Callable[[Register], tuple[Register, Register]]
) -> list[Register]:
    """How many are before number i, by a warp: compare(j) says whether j is, and whether the two are equal."""

    def count(j: Register, before: Register) -> list[Register]:
        is_before, is_same = compare(j)
        return [before + where(is_before | (is_same & (j < i)), b.index(1), 0)]

    return b.of_warp(b.each_by_lane(n, count, [b.index(0)]), sums)


def unit_of(b: Block, x: Matrix, rows: Register, columns: Register) -> tuple[Register, Register]:
    """The power of two at or below the greatest part of an element, and whether one is not finite. One barrier."""
    zero = b.number(real_of(x.dtype), 0)

    def look(i: Register, j: Register, most: Register, bad: Register) -> list[Register]:
        for part in x[i, j].parts:
            size = abs(part)
            is_finite = size < float("inf")
            most = where(is_finite & (size > most), size, most)
            bad = where(is_finite, bad, 1)
        return [most, bad]

    most, bad = b.of_all(b.each_pair(rows, columns, look, [zero, zero]), greatest)
    f, bits = b.f, BITS[most.dtype]
    exponent = {"float32": 0xFF << 23, "float64": 0x7FF << 52}[most.dtype]
    word = f.emit(f"bitcast {most.kind} {most.text} to i{bits}")
    word = f.emit(f"and i{bits} {word}, {exponent}")
    unit = Register(f, most.dtype, f.emit(f"bitcast i{bits} {word} to {most.kind}"))
    unit = where(most.same(0), unit.like(1), where(unit.same(0), unit.like(LEAST[most.dtype]), unit))
    return unit, bad.differs(0)


# Singular values.


def svd_code(dtype: str, lead: int, is_full: bool, has_u: bool, has_vh: bool) -> MatrixCode:
    """x -> [u], s, [vh], failures, of a matrix or of its adjoint, whichever has more rows than columns."""
    whole, of_values = ("rows", "columns"), ("least",)
    u = (("u", dtype, ("rows", "left")),) if has_u else ()
    vh = (("vh", dtype, ("right", "columns")),) if has_vh else ()
    loops = (*whole, "least", *(("left",) if has_u else ()), *(("right",) if has_vh else ()))
    operands = (("x", dtype, whole), *u, ("s", real_of(dtype), of_values), *vh, FAILURES)
    work = [Work("w", dtype, ("columns", "rows")), Work("norms", real_of(dtype), of_values)]
    if has_u or has_vh:
        work += [Work("v", dtype, ("least", "columns")), Work("taus", dtype, of_values)]
    options = (is_full, has_u, has_vh)
    in_flight = 256 if has_u or has_vh else 512  # with vectors it needs more than 128 registers
    return MatrixCode("svd", _svd, options, lead, loops, operands, tuple(work), in_flight)


def _svd(b: Block, is_full: bool, has_u: bool, has_vh: bool) -> None:
    x, least = b["x"], b.size["least"]
    is_wide = b.size["rows"] < b.size["columns"]
    longer = where(is_wide, b.size["columns"], b.size["rows"])
    unit, is_bad = unit_of(b, x, b.size["rows"], b.size["columns"])
    of = _chosen(is_wide, x.turned(True), x)
    w = _in_columns(b, b["w"], longer)
    v = _in_columns(b, b["v"], least) if has_u or has_vh else None
    b.each_pair(least, longer, lambda j, i: w.put((i, j), of[i, j] / unit))
    if v:
        b.each_pair(least, least, lambda i, j: v.put((i, j), where(i.same(j), v.zero.like(1), 0)))
    b.barrier()
    failure = _sweeps(b, least, is_bad, lambda round, found: _one_sided(b, w, v, longer, round, found))
    norms = b["norms"]

    def measure(j: Register) -> None:
        size = _products(b, w, longer, [(j, j)])[0].real.sqrt()
        b.when(b.lane.same(0), lambda: norms.put(j, size))

    b.each_by_warp(least, measure)
    b.barrier()
    u, vh = (b[name] if has else None for name, has in (("u", has_u), ("vh", has_vh)))
    left, right = _sides(b, is_wide, u, vh)

    def result(j: Register) -> None:
        size = norms[j]
        (rank,) = _rank(b, least, j, lambda i: (norms[i] > size, norms[i].same(size)))
        b.when(b.lane.same(0), lambda: b["s"].put(rank, size * unit))
        if not v:
            return
        of_left, of_right = (where(has, count, 0) for (_, has), count in ((left, longer), (right, least)))
        b.each_by_lane(of_left, lambda i: left[0].put((i, rank), w[i, j] / size))  # of 0: completed
        b.each_by_lane(of_right, lambda i: right[0].put((i, rank), v[i, j]))

    b.each_by_warp(least, result)
    if left:
        width = longer if is_full else least
        _complete(b, w, left[0], left[1], longer, width)
    b.once(lambda: b["failures"].put((), failure))


def _chosen(condition: Register, a: Matrix, b: Matrix) -> Matrix:
    """The first of two matrices of a type where the condition holds; conjugates where that one has them."""
    f = condition.f
    pointer = f.emit(f"select i1 {condition.text}, ptr {a.pointer}, ptr {b.pointer}")
    steps = [where(condition, x, y) for x, y in zip(a.steps, b.steps, strict=True)]
    is_conjugate: Any = condition if a.is_conjugate else ~condition
    if a.is_conjugate == b.is_conjugate:
        is_conjugate = a.is_conjugate
    return Matrix(a.block, a.dtype, pointer, steps, is_conjugate)


def _in_columns(b: Block, memory: Matrix, rows: Register) -> Matrix:
    """A matrix in memory of work, its columns of `rows` elements one behind the other."""
    element = b.index(BITS[memory.dtype] // 8)
    return Matrix(b, memory.dtype, memory.pointer, [element, rows * element])


def _sides(b: Block, is_wide: Register, u: Matrix | None, vh: Matrix | None) -> Any:
    """(where the left vectors of what is decomposed go, whether anywhere), and the same of the right ones; or None.

    Of a wide matrix its adjoint is decomposed: so u has the right vectors, and vh the adjoint of the left ones.
    """
    if u is None and vh is None:
        return None, None
    true, false = (Register(b.f, "bool", text) for text in ("true", "false"))
    has_u, has_vh = (false if x is None else true for x in (u, vh))
    first = u or vh.turned(True)  # type: ignore[union-attr]
    second = vh.turned(True) if vh else u
    assert second is not None
    return (
        (_chosen(is_wide, second, first), where(is_wide, has_vh, has_u)),
        (_chosen(is_wide, first, second), where(is_wide, has_u, has_vh)),
    )


def _products(b: Block, w: Matrix, rows: Register, pairs: list[tuple[Register, Register]]) -> list[Register]:
    """conj(w[:, i]) . w[:, j] for pairs of columns, by a warp."""
    zero = w.zero

    def product(r: Register, *old: Register) -> list[Register]:
        news, size = [], len(zero.parts)
        for k, (i, j) in enumerate(pairs):
            total = zero.of_parts(*old[k * size : (k + 1) * size])
            news += (total + w[r, i].conj() * w[r, j]).parts
        return news

    size = len(zero.parts)
    found = b.of_warp(b.each_by_lane(rows, product, [*zero.parts] * len(pairs)), sums)
    return [zero.of_parts(*found[k * size : (k + 1) * size]) for k in range(len(pairs))]


def _one_sided(
    b: Block, w: Matrix, v: Matrix | None, rows: Register, round: Register, found: Register
) -> Register:
    """One round: each pair of columns is a warp's."""
    n = b.size["least"]
    real = real_of(w.dtype)
    tolerance = rows.cast("float64").sqrt() * EPSILON[real]

    def pair(t: Register, found: Register) -> list[Register]:
        p, q = _meeting(b, n, round, t)
        first, second, across = _products(b, w, rows, [(p, p), (q, q), (p, q)])
        turns = _counts(first.real, second.real, across, tolerance) & p.differs(q)
        cosine, sine = _rotation(first.real, second.real, across, turns)

        def turn(of: Matrix) -> Callable[[Register], None]:
            def row(i: Register) -> None:
                of[i, p], of[i, q] = _turned(of[i, p], of[i, q], cosine, sine)

            return row

        b.each_by_lane(where(turns, rows, 0), turn(w))
        if v:
            b.each_by_lane(where(turns, n, 0), turn(v))
        return [where(turns, found.like(1), found)]

    (found,) = b.each_by_warp((n + 1) >> 1, pair, [found])
    b.barrier()
    return found


def _complete(b: Block, w: Matrix, left: Matrix, has_left: Register, rows: Register, width: Register) -> None:
    """The left vectors that singular values do not give, of values that are 0 and of rows beyond them.

    They are what the reflections of the others' QR decomposition make of further columns of the identity.
    """
    least, norms = b.size["least"], b["norms"]

    def count(j: Register, zeros: Register) -> list[Register]:
        return [zeros + where(norms[j].same(0), b.index(1), 0)]

    (zeros,) = b.of_warp(b.each_by_lane(least, count, [b.index(0)]), sums)
    first = least - zeros
    last = where(has_left, width, first)
    known = where(last > first, first, 0)
    b.barrier()
    b.each_pair(known, rows, lambda j, i: w.put((i, j), left[i, j]))
    b.barrier()
    reflect(b, w, b["taus"], rows, known, known)
    form_columns(b, w, b["taus"], known, left, rows, first, last)
