"""Kernels of weft.ops.families.linalg on GPUs: a block of threads for each matrix (weft.expr.llvm_matrices).

Failures are those of processors: code stores a number for each matrix, and the first one that is not 0 becomes the
error, later (native/kernels/matrix_threads.h).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft import _core
from weft.expr import scalar as e
from weft.expr.launches import code_for
from weft.expr.llvm_matrices import MEMORY, MatrixCode
from weft.kernels import kernel
from weft.kernels.gpu.indexing import first_refused
from weft.kernels.gpu.matrix_factors import cholesky_code, lu_code, solve_code, triangular_code
from weft.kernels.gpu.matrix_reflections import qr_code
from weft.kernels.gpu.matrix_rotations import eigh_code, svd_code
from weft.kernels.gpu.matrix_schur import eig_code
from weft.ops.families.linalg import Cholesky, Eig, Eigh, Inv, LuFactor, Qr, Solve, SolveTriangular, Svd
from weft.ops.kernels import Native
from weft.ops.types import TensorType

Sizes = tuple[
    tuple[str, str, int], ...
]  # of each loop of a matrix: its name, an operand, and a dimension from the end
SQUARE: Sizes = (("rows", "x", -2), ("across", "x", -1))


def launches(code: MatrixCode, ranks: Sequence[int], stack: str, sizes: Sizes) -> Any:
    """The launch of code for operands of these numbers of dimensions; stack: the one whose leading axes count."""
    names = [name for name, _, _ in code.operands]
    rank_of = dict(zip(names, ranks, strict=True))
    lead, loops = code.lead, [*range(code.lead), *code.loops]

    def dims(rank: int, own: Sequence[str]) -> list[int]:
        first = rank - len(own)
        leading = [max(d - (lead - first), -1) for d in range(lead)]
        return leading + [first + own.index(loop) if loop in own else -1 for loop in code.loops]

    ways = [(k, dims(rank_of[name], own)) for k, (name, _, own) in enumerate(code.operands)]
    ways += [(len(names) + k, dims(lead + len(w.loops), w.loops)) for k, w in enumerate(code.scratch)]
    of = [(names.index(stack), d) for d in range(lead)]
    of += [(names.index(name), rank_of[name] + dim) for _, name, dim in sizes]

    def compile(chip: str, memory: int, is_narrow: bool, is_gated: bool) -> Any:
        return code_for(code.code(memory, is_narrow), chip, is_gated)

    def numbers(own: Sequence[str]) -> list[int]:
        return [loops.index(loop) for loop in own]

    scratch = [([*range(lead), *numbers(w.loops)], w.dtype) for w in code.scratch]
    work = [(numbers(w.loops), w.dtype) for w in code.work]
    parts = [(ways, [(d, 1) for d in range(lead)], compile)]
    return _core.make_thread_launches(len(names), of, scratch, parts, work, [most for most, _ in MEMORY[1:]])


@functools.cache
def first_failure() -> Any:
    """The place of the first failure of a stack, and its number."""
    failed = e.load(0, "int32") != e.constant(0, "int32")
    return first_refused("int32", 1, failed, "first_failure", 0)


@functools.cache
def matrix_kernel(
    make: Callable[..., MatrixCode],
    options: tuple[Any, ...],
    ranks: tuple[int, ...],
    own_axes: int,
    sizes: Sizes,
    facts: tuple[str, ...] = (),
    first: int = 1,
) -> Any:
    """The kernel of code that make(dtype, lead, *options) gives, options beginning with the type.

    ranks: of the operands; own_axes: how many axes of the first output, "stack" of the code, are a matrix's; facts: why
    there is no result (MatrixForm); without them there always is one.
    """
    dtype, *rest = options
    names = [name for name, _, _ in make(dtype, 0, *rest).operands]
    stack = next(name for name in names if name in RESULTS)
    lead = ranks[names.index(stack)] - own_axes
    code = make(dtype, lead, *rest)
    if not facts:
        return launches(code, ranks, stack, sizes)
    found = launches(code, (*ranks, lead), stack, sizes)
    operand = names[0]
    return _core.make_matrix_threads(
        code.name, operand, list(facts), first, names.index(stack), own_axes, found, first_failure()
    )


RESULTS = ("y", "lu", "q", "s", "values")  # of codes, the first output of each


def ranks_of(inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[int, ...]:
    return tuple(len(x[1]) for x in (*inputs, *outputs) if x is not None)


@kernel(Cholesky, device="gpu")
def cholesky(op: Cholesky, x: TensorType) -> Iterator[Native]:
    fact = "is not positive definite: its leading minor of order # is not positive"

    def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        options = (x.dtype.name, op.upper)
        return matrix_kernel(cholesky_code, options, ranks_of(inputs, outputs), 2, SQUARE, (fact,))

    yield Native(make, exact=False)


SINGULAR = "is singular: pivot # of its elimination is 0"


def of_equations(b: TensorType) -> tuple[int, Sizes]:
    """How many axes of the result are a matrix's, and sizes."""
    sizes: Sizes = (("rows", "a", -2), ("across", "a", -1))
    return (1, sizes) if b.ndim == 1 else (2, (*sizes, ("columns", "b", -1)))


@kernel(SolveTriangular, device="gpu", when=lambda op, a, b: a.dtype is b.dtype)
def solve_triangular(op: SolveTriangular, a: TensorType, b: TensorType) -> Iterator[Native]:
    own_axes, sizes = of_equations(b)
    fact = "is singular: element # of its diagonal is 0"

    def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        options = (a.dtype.name, own_axes == 1, op.upper, op.unit)
        ranks = ranks_of(inputs, outputs)
        return matrix_kernel(triangular_code, options, ranks, own_axes, sizes, (fact,), 0)

    yield Native(make, exact=False)


@kernel(LuFactor, device="gpu")
def lu_factor(op: LuFactor, x: TensorType) -> Iterator[Native]:
    sizes: Sizes = (("rows", "x", -2), ("columns", "x", -1), ("least", "pivots", -1))

    def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        return matrix_kernel(lu_code, (x.dtype.name,), ranks_of(inputs, outputs), 2, sizes)

    yield Native(make, exact=False)


@kernel(Solve, device="gpu", when=lambda op, a, b: a.dtype is b.dtype)
def solve(op: Solve, a: TensorType, b: TensorType) -> Iterator[Native]:
    own_axes, sizes = of_equations(b)

    def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        options = (a.dtype.name, own_axes == 1, False)
        return matrix_kernel(solve_code, options, ranks_of(inputs, outputs), own_axes, sizes, (SINGULAR,))

    yield Native(make, exact=False)


@kernel(Inv, device="gpu")
def inverse(op: Inv, x: TensorType) -> Iterator[Native]:
    def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        options = (x.dtype.name, False, True)
        return matrix_kernel(solve_code, options, ranks_of(inputs, outputs), 2, SQUARE, (SINGULAR,))

    yield Native(make, exact=False)


@kernel(Qr, device="gpu")
def qr(op: Qr, x: TensorType) -> Iterator[Native]:
    sizes: Sizes = (("rows", "x", -2), ("columns", "x", -1), ("width", "q", -1))

    def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        return matrix_kernel(qr_code, (x.dtype.name,), ranks_of(inputs, outputs), 2, sizes)

    yield Native(make, exact=False)


ITERATED = ("has elements that are not finite", "needs more iterations than are made")


@kernel(Svd, device="gpu")
def svd(op: Svd, x: TensorType) -> Iterator[Native]:
    def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        has_u, has_vh = outputs[0] is not None, outputs[2] is not None
        sizes: Sizes = (("rows", "x", -2), ("columns", "x", -1), ("least", "s", -1))
        sizes += (("left", "u", -1),) if has_u else ()
        sizes += (("right", "vh", -2),) if has_vh else ()
        options = (x.dtype.name, op.full_matrices, has_u, has_vh)
        return matrix_kernel(svd_code, options, ranks_of(inputs, outputs), 1, sizes, ITERATED)

    yield Native(make, exact=False, optional=(0, 2))


@kernel(Eigh, device="gpu")
def eigh(op: Eigh, x: TensorType) -> Iterator[Native]:
    def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        options = (x.dtype.name, outputs[1] is not None)
        return matrix_kernel(eigh_code, options, ranks_of(inputs, outputs), 1, SQUARE, ITERATED)

    yield Native(make, exact=False, optional=(1,))


@kernel(Eig, device="gpu")
def eig(op: Eig, x: TensorType) -> Iterator[Native]:
    def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        options = (x.dtype.name, outputs[1] is not None)
        return matrix_kernel(eig_code, options, ranks_of(inputs, outputs), 1, SQUARE, ITERATED)

    yield Native(make, exact=False, optional=(1,))
