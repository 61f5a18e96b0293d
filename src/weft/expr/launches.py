"""Loops for threads as the native core launches them: code for each pattern of operands, on each kind of GPU."""

from __future__ import annotations

from collections.abc import Sequence

from weft import _core
from weft.base.typing import Any
from weft.expr.kernel import Each, Kernel, Operand, Stage
from weft.expr.llvm_products import (
    PRODUCT_THREADS,
    are_products,
    fits_into_shared_memory,
    operands_of_fold,
)
from weft.expr.llvm_tensor_cores import halves_of
from weft.expr.llvm_threads import NO_PAIRS, Schedule, ThreadCode, schedule_of, width_of
from weft.expr.targets import compile_threads, has_tensor_cores, target_of
from weft.expr.threads import print_threads

__all__ = ["code_for", "launched", "product_operands", "thread_loop"]

INNER: dict[str, Any] = {"u": "unit", "z": "zero", "a": "any", "c": "cross", "r": "reverse"}
LONG_ROW = 1 << 62  # of rows of which nothing is known


def launched(
    kernel: Kernel,
    chip: str,
    row_bits: int,
    is_narrow: bool,
    width: int,
    pairs: tuple[int, int, int],
    is_gated: bool,
) -> tuple[bytes, str, int, int, int, int]:
    """Code of a kernel on a kind of GPU: its image, its name, and what a launch has to know (see ThreadCode).

    row_bits: rows have at most 2 ** row_bits elements, 0: they may have more; is_narrow, width and pairs: of Schedule;
    is_gated: of ThreadCode.
    """
    width = min(width, width_of(kernel))  # the grid strides: it may be one for wider accesses
    schedule = schedule_of(kernel, 1 << row_bits if row_bits else LONG_ROW, is_narrow, width)
    if pairs != NO_PAIRS and has_tensor_cores(chip) and halves_of(kernel, pairs[2]):
        schedule = Schedule("tensor", PRODUCT_THREADS, 1, is_narrow, pairs)
    elif pairs != NO_PAIRS and fits_into_shared_memory(kernel, pairs[2]):
        schedule = Schedule("products", PRODUCT_THREADS, 1, is_narrow, pairs)
    return code_for(print_threads(kernel, schedule), chip, is_gated)


def code_for(code: ThreadCode, chip: str, is_gated: bool) -> tuple[bytes, str, int, int, int, int]:
    """Code on a kind of GPU: its image, its name, and what a launch has to know (see ThreadCode)."""
    code = code.gated() if is_gated else code
    image = compile_threads(code, target_of(chip))
    return image, code.name, code.threads, code.shared_bytes, code.words, code.positions


def thread_loop(
    name: str,
    dtypes: Sequence[str],
    stages: tuple[Stage, ...],
    *,
    inputs: int,
    row_axes: int = 0,
    positions: int = 0,
    is_ordered: bool = False,
    gathered: Sequence[int] = (),
) -> Any:
    """A native ThreadLoop of these stages, which are in basic operations (weft.expr.functions.expand).

    dtypes: of inputs, then outputs. row_axes: bit d is dimension d, counted from the last. positions: those along which
    code reads its position; if any, dimensions are neither merged nor reordered. is_ordered: those of rows keep their
    order. gathered: of each operand (Operand).
    """
    counts = [*gathered, *[0] * (len(dtypes) - len(gathered))]
    is_each = len(stages) == 1 and isinstance(stages[0], Each)

    def compile(
        chip: str,
        rank: int,
        row_rank: int,
        lanes: bool,
        inner: str,
        row_bits: int,
        is_narrow: bool,
        width: int,
        pairs: tuple[int, int, int],
        is_gated: bool,
    ) -> tuple[bytes, str, int, int, int, int]:
        operands = tuple(Operand(d, INNER[c], n) for d, c, n in zip(dtypes, inner, counts, strict=True))
        kernel = Kernel(name, rank, operands, stages, row_rank, lanes)
        return launched(kernel, chip, row_bits, is_narrow, width, pairs, is_gated)

    joins = is_each and not row_axes and not any(counts)
    return _core.make_thread_loop(
        len(dtypes), inputs, row_axes, positions, is_ordered, joins, False, 0, compile
    )


def product_operands(stages: tuple[Stage, ...]) -> int:
    """Bit k: operand k is one that products of rows may share (weft.expr.llvm_products); 0: they are no products."""
    return operands_of_fold(stages) if are_products(stages) else 0
