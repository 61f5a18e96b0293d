"""Eigenvalues of square matrices, as a block of threads computes them: by the complex QR algorithm.

The matrix, scaled by a power of two, becomes a Hessenberg matrix by reflections, then a triangle by steps of the QR
algorithm with Wilkinson's shifts (Golub and Van Loan 2013, Matrix Computations, 7.3 to 7.5). A step rotates rows from
the first to the last one of the part that is not yet a triangle, a barrier for each, and then columns, a row for each
thread. Vectors of the triangle are solved for by a warp each. Real matrices are computed as complex ones, so the
imaginary parts of real eigenvalues are of the size of rounding. `failures`: as of matrix_rotations.
"""

from __future__ import annotations

import functools

from weft.expr import scalar as e
from weft.expr.functions import expand
from weft.expr.llvm_function import Values
from weft.expr.llvm_matrices import Block, Matrix, MatrixCode, Work, sums
from weft.expr.llvm_registers import Register, less_product, where
from weft.expr.scalar import COMPLEX
from weft.kernels.gpu.matrix_factors import FAILURES, SQUARE
from weft.kernels.gpu.matrix_reflections import Norm, form_columns, make_reflection, reflected
from weft.kernels.gpu.matrix_rotations import EPSILON, unit_of

__all__ = ["eig_code"]

STEPS = 30  # for an eigenvalue
SMALLEST = {"float32": 2.0**-90, "float64": 2.0**-900}  # differences of eigenvalues that are divided by
LARGEST = {"float32": 2.0**10, "float64": 2.0**100}  # elements of vectors before they are scaled


def eig_code(dtype: str, lead: int, has_vectors: bool) -> MatrixCode:
    """x -> complex values, vectors, failures."""
    pair = {"float32": "complex64", "float64": "complex128"}.get(dtype, dtype)
    real, of_rows = COMPLEX[pair], ("rows",)
    vectors = (("vectors", pair, SQUARE),) if has_vectors else ()
    operands = (("x", dtype, SQUARE), ("values", pair, of_rows), *vectors, FAILURES)
    work = [Work("h", pair, SQUARE), Work("cosines", real, of_rows), Work("sines", pair, of_rows)]
    work += [Work("tops", pair, of_rows)]
    work += [Work("z", pair, SQUARE)] if has_vectors else []
    return MatrixCode("eig", _eig, (has_vectors,), lead, SQUARE, operands, tuple(work), in_flight=256)


def _eig(b: Block, has_vectors: bool) -> None:
    x, h, n = b["x"], b["h"], b.size["rows"]
    z = b["z"] if has_vectors else None
    unit, is_bad = unit_of(b, x, n, n)

    def begin(i: Register, j: Register) -> None:
        h[i, j] = h.zero.of_parts(
            *((x[i, j] / unit).parts if x.dtype in COMPLEX else (x[i, j] / unit, unit.like(0)))
        )

    b.each_pair(n, n, begin)
    b.barrier()
    n_or_none = where(is_bad, b.index(0), n)
    _hessenberg(b, h, z, n_or_none)
    failure = _triangle(b, h, z, n_or_none)
    b.each(n, lambda i: b["values"].put(i, h[i, i] * unit))
    if z:
        _vectors(b, h, z, b["vectors"], n_or_none)
    b.once(lambda: b["failures"].put((), where(is_bad, b.index(1), failure)))


def _hessenberg(b: Block, h: Matrix, z: Matrix | None, n: Register) -> None:
    """h becomes z^H h z, whose elements below the first lower diagonal are 0, and have other contents."""
    taus, norm = b["tops"], Norm(b, h.dtype)
    count = where(n > 2, n - 2, 0)

    def column(k: Register) -> None:
        row = k + 1
        tau = make_reflection(b, h, taus, norm, k, row, n).conj()
        b.each_by_warp(n, lambda j: reflected(b, h, k, row, tau, h, j, n), begin=row)
        b.barrier()
        b.each_by_warp(n, lambda i: reflected(b, h, k, row, tau, h.adjoint, i, n))
        b.barrier()

    b.loop(count, column)
    if z:
        form_columns(b, h, taus, count, z, n, b.index(0), n, offset=1)


def _triangle(b: Block, h: Matrix, z: Matrix | None, n: Register) -> Register:
    """h becomes triangular by steps of the QR algorithm; returns 2 if they were not enough, else 0."""
    most = where(n < 10, b.index(10), n) * STEPS
    last = where(n > 0, n - 1, 0)

    def step(end: Register, since: Register, count: Register) -> tuple[Register, list[Register]]:
        begin = _beginning(b, h, end)
        is_alone = begin.same(end)
        shift = _shift(b, h, end, since, is_alone)
        b.barrier()
        turns = end - begin
        _rotate_rows(b, h, n, begin, turns, shift)
        _rotate_columns(b, h, z, n, begin, where(is_alone, begin, end + 1), turns, shift)
        end, since = where(is_alone, end - 1, end), where(is_alone, b.index(0), since + 1)
        return (end < 1) | (count + 1 >= most), [end, since, count + 1]

    end, *_ = b.repeat(step, [last, b.index(0), b.index(0)])
    return where(end < 1, b.index(0), 2)


def _size(x: Register) -> Register:
    return abs(x.real) + abs(x.imag)


def _beginning(b: Block, h: Matrix, end: Register) -> Register:
    """The first row of the part that ends in a row and has no element below the diagonal that is only rounding."""

    def look(i: Register, found: Register) -> list[Register]:
        beside = _size(h[i - 1, i - 1]) + _size(h[i, i])
        beside = where(beside.same(0), beside.like(1), beside)
        is_nothing = _size(h[i, i - 1]) <= beside * EPSILON[beside.dtype]
        return [where(is_nothing, i, found)]

    def latter(old: list[Register], new: list[Register]) -> list[Register]:
        return [where(x < y, y, x) for x, y in zip(old, new, strict=True)]

    return b.of_warp(b.each_by_lane(end + 1, look, [b.index(0)], b.index(1)), latter)[0]


@functools.cache
def _root(dtype: str) -> e.Scalar:
    return expand(e.call("sqrt", e.result(0, dtype)))


def _square_root(x: Register) -> Register:
    x.f.results[0] = x.text
    return Register(x.f, x.dtype, Values(x.f, x.f.bases, [], "0", "")[_root(x.dtype)])


def _shift(b: Block, h: Matrix, end: Register, since: Register, is_alone: Register) -> Register:
    """Of the last two rows the eigenvalue that is nearer to the last element; each tenth time another number."""

    def wilkinson() -> list[Register]:
        corner, low = h[end, end], h[end, end - 1]
        half = (h[end - 1, end - 1] - corner) * b.number(corner.real.dtype, 0.5)
        product = h[end - 1, end] * low
        root = _square_root(half * half + product)
        is_other = half.real * root.real + half.imag * root.imag < 0
        divisor = half + where(is_other, -root, root)
        is_nothing = divisor.same(0)
        near = corner - where(
            is_nothing, divisor.like(0), product / where(is_nothing, divisor.like(1), divisor)
        )
        tenth = since - (since / 10) * 10
        other = corner + corner.of_parts(_size(low) * 0.75, low.real.like(0))
        return where(tenth.same(9), other, near).parts

    zero = h.zero
    parts = b.chosen(~is_alone, wilkinson, zero.parts)
    return zero.of_parts(*parts)


def _rotate_rows(b: Block, h: Matrix, n: Register, begin: Register, turns: Register, shift: Register) -> None:
    """h - shift becomes a triangle, row by row; ends with a barrier."""
    cosines, sines, tops = b["cosines"], b["sines"], b["tops"]

    def turn(t: Register) -> None:
        k = begin + t
        low = h[k + 1, k]
        top = where(t.same(0), h[k, k] - shift, h[k, k])
        cosine, sine, root = _rotation(top, low)

        def column(j: Register) -> None:
            first, second = h[k, j], h[k + 1, j]
            second = where(j.same(k + 1), second - shift, second)
            h[k, j] = first * cosine + second * sine
            h[k + 1, j] = second * cosine - first * sine.conj()

        b.each(n, column, k + 1)
        b.once(lambda: cosines.put(k, cosine))
        b.once(lambda: sines.put(k, sine))
        b.once(lambda: tops.put(k, root))
        b.barrier()

    b.loop(turns, turn)


def _rotation(top: Register, low: Register) -> tuple[Register, Register, Register]:
    """The cosine c, the sine s and r with c top + s low = r and c low - conj(s) top = 0."""
    parts = [x.cast("float64") for x in (*top.parts, *low.parts)]
    most = parts[0].like(0)
    for x in parts:
        most = where(abs(x) > most, abs(x), most)
    is_nothing = most.same(0)
    most = where(is_nothing, most.like(1), most)
    a, b, c, d = (x / most for x in parts)
    of_top, of_low = a * a + b * b, c * c + d * d
    size, length = of_top.sqrt(), (of_top + of_low).sqrt()
    length = where(is_nothing, length.like(1), length)
    has_top = size > 0
    safe = where(has_top, size, 1)
    phase = [where(has_top, a / safe, 1), where(has_top, b / safe, 0)]
    cosine = where(is_nothing, size.like(1), size / length)
    # s = phase conj(low) / length, r = phase length
    sine = [(phase[0] * c + phase[1] * d) / length, (phase[1] * c - phase[0] * d) / length]
    root = [where(is_nothing, x.like(0), x * length * most) for x in phase]
    real = top.real.dtype
    return (
        cosine.cast(real),
        top.of_parts(*(x.cast(real) for x in sine)),
        top.of_parts(*(x.cast(real) for x in root)),
    )


def _rotate_columns(
    b: Block,
    h: Matrix,
    z: Matrix | None,
    n: Register,
    begin: Register,
    rows: Register,
    turns: Register,
    shift: Register,
) -> None:
    """The triangle times the rotations' adjoints, plus shift; rows: that h has; ends with a barrier."""
    cosines, sines, tops = b["cosines"], b["sines"], b["tops"]

    def row(of: Matrix, i: Register, is_triangle: bool) -> None:
        def turn(t: Register, *carried: Register) -> list[Register]:
            k = begin + t
            cosine, sine = cosines[k], sines[k]
            first, second = h.zero.of_parts(*carried), of[i, k + 1]
            if is_triangle:  # below the diagonal there are zeros, and on it what was not written there
                next_top = where(t + 1 < turns, tops[where(t + 1 < turns, k + 1, k)], second)
                second = where(i > k + 1, second.like(0), where(i.same(k + 1), next_top, second))
            of[i, k] = first * cosine + second * sine.conj()
            return (second * cosine - first * sine).parts

        first = of[i, begin]
        if is_triangle:
            first = where(i > begin, first.like(0), where(i.same(begin), tops[begin], first))
        of[i, begin + turns] = h.zero.of_parts(*b.loop(turns, turn, first.parts))
        if is_triangle:
            is_inside = i >= begin
            b.when(is_inside, lambda: of.put((i, i), of[i, i] + shift))

    b.each(rows, lambda i: row(h, i, True))
    if z:
        b.each(where(turns > 0, n, 0), lambda i: row(z, i, False))
    b.barrier()


def _vectors(b: Block, h: Matrix, z: Matrix, vectors: Matrix, n: Register) -> None:
    """The eigenvectors: of the triangle by a warp each, in the rows below its diagonal; then times z, of length 1."""
    tops = b["cosines"]  # the last elements of the triangle's vectors

    def solve(k: Register) -> None:
        value = h[k, k]
        real = value.real.dtype
        least = _size(value) * EPSILON[real]
        least = where(least > SMALLEST[real], least, SMALLEST[real])
        b.each_by_lane(k, lambda j: h.put((k, j), -h[j, k]))

        def eliminate(t: Register, top: Register) -> list[Register]:
            i = k - 1 - t
            divisor = h[i, i] - value
            is_nothing = _size(divisor) < least
            divisor = where(is_nothing, divisor.of_parts(least, least.like(0)), divisor)
            is_own = b.lane.same(i & 31)
            own = b.chosen(is_own, lambda: (h[k, i] / divisor).parts, h.zero.parts)
            element = h.zero.of_parts(*b.of_warp(own, sums))
            size = _size(element)
            factor = where(size > LARGEST[real], size.like(1) / size, 1)
            element = element * factor
            b.each_by_lane(k, lambda j: h.put((k, j), h[k, j] * factor))
            b.when(is_own, lambda: h.put((k, i), element))
            b.each_by_lane(i, lambda j: h.put((k, j), less_product(h[k, j], h[j, i], element)))
            return [top * factor]

        (top,) = b.loop(k, eliminate, [b.number(real, 1)])
        b.when(b.lane.same(0), lambda: tops.put(k, top))

    b.each_by_warp(n, solve)
    b.barrier()

    def multiply(number: Register) -> None:
        k = n - 1 - number  # the longest ones first

        def row(r: Register, *old: Register) -> list[Register]:
            def term(j: Register, *parts: Register) -> list[Register]:
                return (h.zero.of_parts(*parts) + z[r, j] * h[k, j]).parts

            total = h.zero.of_parts(*b.loop(k, term, (z[r, k] * tops[k]).parts))
            vectors[r, k] = total
            size = total.real * total.real + total.imag * total.imag
            squares, *largest = old
            return [squares + size, *_larger(largest, [size, *total.parts])]

        zero = b.number(h.zero.real.dtype, 0)
        squares, _, re, im = b.of_warp(
            b.each_by_lane(n, row, [zero] * 4), lambda x, y: [x[0] + y[0], *_larger(x[1:], y[1:])]
        )
        size = (re * re + im * im).sqrt()
        length = squares.sqrt() * size
        safe = where(length > 0, length, 1)
        turn = h.zero.of_parts(re / safe, -im / safe)
        b.each_by_lane(n, lambda r: vectors.put((r, k), vectors[r, k] * turn))

    b.each_by_warp(n, multiply)


def _larger(old: list[Register], new: list[Register]) -> list[Register]:
    """Of (size, number) the one of the greater size, of equal sizes of the greater number: the same in any order."""
    is_larger = new[0] > old[0]
    for k in range(1, len(old)):
        is_same = new[0].same(old[0])
        for before in range(1, k):
            is_same = is_same & new[before].same(old[before])
        is_larger = is_larger | (is_same & (new[k] > old[k]))
    return [where(is_larger, y, x) for x, y in zip(old, new, strict=True)]
