"""Elements that are apart in memory go through arrays on the stack, so that much arithmetic on them is done by vectors.

LLVM makes no vectors of a loop whose elements it would have to pick one by one, as it takes it for too dear. Of a few
operations that is right. An exponential of every second element takes eight times as long as one of neighbours.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.expr.llvm_function import Function, Values
from weft.expr.llvm_streaming import byte_size

__all__ = ["staged"]


def staged(
    f: Function,
    operands: dict[int, tuple[bool, bool]],
    pointers: list[str],
    positions: list[str],
    begin: str,
    length: str,
    most: int,
    compute: Callable[[list[str]], list[str]],
) -> list[str]:
    """compute(pointers) on elements [begin, begin + length) of the innermost loop, those of the operands in arrays.

    operands: as llvm_rows.apart gives them. most: the largest length.
    """
    moved, arrays = list(pointers), {}
    for k, (is_read, _) in operands.items():
        arrays[k] = f.array(f.kernel.operands[k].dtype, most)
        moved[k] = f.offset(arrays[k], f.emit(f"mul i64 {begin}, {-byte_size(f, k)}"))
        if is_read:
            _move(f, k, pointers, positions, begin, length, arrays[k], inwards=True)
    f.staged |= operands.keys()
    result = compute(moved)
    f.staged -= operands.keys()
    for k, (_, is_written) in operands.items():
        if is_written:
            _move(f, k, pointers, positions, begin, length, arrays[k], inwards=False)
    return result


def _move(
    f: Function,
    operand: int,
    pointers: list[str],
    positions: list[str],
    begin: str,
    length: str,
    array: str,
    *,
    inwards: bool,
) -> None:
    kind = f"i{8 * byte_size(f, operand)}"

    def element(j: str) -> list[str]:
        inner = f.emit(f"add nuw nsw i64 {begin}, {j}")
        memory = Values(f, pointers, [*positions, inner], inner, "").address(operand)
        in_array = f.emit(f"getelementptr {kind}, ptr {array}, i64 {j}")
        source, target = (memory, in_array) if inwards else (in_array, memory)
        f.lines.append(f"  store {kind} {f.emit(f'load {kind}, ptr {source}')}, ptr {target}")
        return []

    f.loop(length, element)
