"""Kernels printed for threads, by any schedule: see weft.expr.llvm_threads."""

from __future__ import annotations

from weft.expr.kernel import Kernel, Operand, Scan
from weft.expr.llvm_blocks import print_blocks
from weft.expr.llvm_products import PRODUCT_THREADS, are_products, fits_into_shared_memory, print_products
from weft.expr.llvm_tensor_cores import halves_of, print_tensor_products
from weft.expr.llvm_threads import (
    Schedule,
    ThreadCode,
    Threads,
    is_pointwise,
    print_elements,
    print_serial,
    reads_stored,
    width_of,
)

__all__ = ["print_threads"]


def print_threads(kernel: Kernel, schedule: Schedule) -> ThreadCode:
    """The kernel for threads.

    Raises NotImplementedError for expressions that weft.expr.functions.expand has not written in basic operations, as
    weft.expr.llvm does, and ValueError for a schedule that is not of the kernel's kind.

    >>> from weft.expr.kernel import Each, Store
    >>> from weft.expr.scalar import load
    >>> x = load(0, "float32")
    >>> twice = Kernel("twice", 1, (Operand("float32"),) * 2, (Each((Store(1, x + x),)),))
    >>> code = print_threads(twice, Schedule("elements", width=4))
    >>> code.words, code.positions, code.text.count("load <4 x float>")
    (5, 512, 1)
    """
    if kernel.cross is not None:  # tiles are the processor's
        operands = tuple(
            Operand(o.dtype, "any" if o.inner == "cross" else o.inner, o.gathered) for o in kernel.operands
        )
        kernel = Kernel(kernel.name, kernel.rank, operands, kernel.stages, kernel.row_rank)
    if (
        (schedule.kind == "columns") != kernel.lanes
        or (schedule.kind == "serial") != kernel.is_serial
        or (schedule.kind == "elements" and not is_pointwise(kernel))
        or (schedule.kind in ("products", "tensor") and not _is_of_products(kernel, schedule))
    ):
        raise ValueError(f"{kernel.name}: {schedule.kind} is no schedule for its stages")
    alone = not any(reads_stored(kernel, k) for k in range(len(kernel.stages)))
    if schedule.kind == "warps" and not (alone and not any(isinstance(s, Scan) for s in kernel.stages)):
        raise ValueError(
            f"{kernel.name}: warps is no schedule for scans, or for stages that read what was stored"
        )
    if schedule.width > width_of(kernel):
        raise ValueError(f"{kernel.name}: width must be at most {width_of(kernel)}, got {schedule.width}")
    f = Threads(kernel, schedule)
    if schedule.kind == "serial":
        return print_serial(f)
    if schedule.kind == "elements":
        return print_elements(f)
    if schedule.kind == "tensor":
        return print_tensor_products(f)
    return print_products(f) if schedule.kind == "products" else print_blocks(f)


def _is_of_products(kernel: Kernel, schedule: Schedule) -> bool:
    loops, seconds = sum(schedule.pairs[:2]), schedule.pairs[2]
    fits = fits_into_shared_memory if schedule.kind == "products" else halves_of
    return (
        are_products(kernel.stages)
        and loops <= kernel.rank - kernel.row_rank
        and schedule.threads == PRODUCT_THREADS
        and bool(fits(kernel, seconds))
    )
