"""Kernels as LLVM IR: text, made without LLVM. How the loops run is decided here, what they mean in weft.expr.kernel.

Every kernel becomes one function

    void NAME(char *const *data, const int64_t *sizes, const int64_t *strides, const void *const parameters)

data: the operands' elements at position 0. sizes: one for each loop. strides: in bytes, operand by operand, one for
each loop; after those of all operands, those of the gathered dimensions, operand by operand. parameters: slots of 8
bytes. The caller splits work over threads by moving data and shrinking a size: of loops before the row, of a loop of a
single Each, and not of loops in Kernel.indexed.

Loops are written one element at a time and marked as parallel; LLVM makes vectors of them. An operand may be both read
and written at the same positions. There are four schedules: rows one after the other (llvm_rows); with Kernel.lanes
rows side by side (llvm_lanes); with Kernel.length, too, short rows in registers (llvm_short_rows); with Kernel.cross
tiles of two loops (llvm_tiles). With Kernel.streaming, the first two store large results past the cache
(llvm_streaming).
"""

from __future__ import annotations

from weft.expr.kernel import Kernel, values
from weft.expr.llvm_function import Function
from weft.expr.llvm_rows import print_rows
from weft.expr.scalar import walk

__all__ = ["print_kernel"]

MOST_IN_A_ROW = 400  # operations on a short row whose length is constant


def print_kernel(kernel: Kernel, checked: bool = False) -> str:
    """The kernel as a module of LLVM IR with one function of its name; checked: it tests bounds, see llvm_checked.

    Raises NotImplementedError for half types in arithmetic, which weft.expr.functions.expand turns into float32, and
    for functions, which it writes in simpler ones.

    >>> from weft.expr.kernel import Each, Operand, Store
    >>> from weft.expr.scalar import load
    >>> x = load(0, "float32")
    >>> text = print_kernel(Kernel("twice", 1, (Operand("float32"),) * 2, (Each((Store(1, x + x),)),)))
    >>> text.splitlines()[0]
    'define void @twice(ptr %data, ptr %sizes, ptr %strides, ptr %parameters) nounwind {'
    """
    if kernel.is_serial:
        raise NotImplementedError(
            f"{kernel.name}: stores at computed positions, and chains, are for threads of GPUs"
        )
    function = Function(kernel)
    arguments = len(function.lines)
    if kernel.cross is not None:
        from weft.expr.llvm_tiles import print_tiles  # when first needed: most programs never do

        print_tiles(function)
    elif kernel.length and fits_registers(kernel):
        from weft.expr.llvm_short_rows import print_short_rows

        print_short_rows(function)
    elif kernel.lanes:
        from weft.expr.llvm_lanes import print_lanes

        print_lanes(function)
    else:
        print_rows(function)
    if kernel.streaming_operands:
        from weft.expr.llvm_streaming import finish

        finish(function)
    if checked:
        from weft.expr.llvm_checked import check

        check(function, arguments)
    return function.text()


def fits_registers(kernel: Kernel) -> bool:
    """Whether so little is done with a row of constant length that all of it is written out."""
    nodes = walk(*(value for stage in kernel.stages for value in values(stage)))
    return kernel.length * sum(bool(node.args) for node in nodes) <= MOST_IN_A_ROW
