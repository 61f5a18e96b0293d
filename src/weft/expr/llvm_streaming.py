"""Streaming stores: large results bypass the cache, where they would evict others and be read before they are written.

Results are computed into an array on the stack, and stored from there by whole lines.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.expr.kernel import Each
from weft.expr.llvm_function import Function
from weft.expr.scalar import BITS

__all__ = ["byte_size", "finish", "flush", "through_arrays"]


def byte_size(f: Function, operand: int) -> int:
    """Of an element in memory."""
    return max(8, BITS[f.kernel.operands[operand].dtype]) // 8


def through_arrays(
    f: Function,
    stage: Each,
    pointers: list[str],
    begin: str,
    length: str,
    most: int,
    compute: Callable[[list[str]], None],
) -> None:
    """compute(pointers) stores elements [begin, begin + length) of streaming operands into arrays; these are streamed.

    stage: what compute runs; only its own operands have arrays here.

    most: the largest length.
    """
    moved = list(pointers)
    arrays = {}
    for k in sorted(f.kernel.streaming_operands & {store.operand for store in stage.stores}):
        arrays[k] = f.array(f.kernel.operands[k].dtype, most)
        moved[k] = f.offset(arrays[k], f.emit(f"mul i64 {begin}, {-byte_size(f, k)}"))
    compute(moved)
    for k, array in arrays.items():
        target = f.offset(pointers[k], f.emit(f"mul i64 {begin}, {byte_size(f, k)}"))
        flush(f, array, target, length, byte_size(f, k))


def flush(f: Function, source: str, target: str, length: str, size: int) -> None:
    """Stores so many elements of `size` bytes past the cache, from and to the beginnings of its lines."""
    whole = f.emit(f"udiv i64 {length}, {64 // size}")
    first = f.emit(f"mul i64 {whole}, {64 // size}")
    rest = f.emit(f"sub i64 {length}, {first}")
    one = f.mark("!{i32 1}")

    def move(kind: str, begin: str, align: int, hint: str = "") -> None:
        value = f.emit(f"load {kind}, ptr {f.offset(source, begin)}, align {align}")
        f.lines.append(f"  store {kind} {value}, ptr {f.offset(target, begin)}, align {align}{hint}")

    def vector(v: str) -> list[str]:
        move("<16 x i32>", f.emit(f"mul i64 {v}, 64"), 64, f", !nontemporal {one}")
        return []

    def element(j: str) -> list[str]:
        index = f.emit(f"add i64 {j}, {first}")
        move(f"i{8 * size}", f.emit(f"mul i64 {index}, {size}"), size)
        return []

    f.loop(whole, vector)
    f.loop(rest, element, simple=True)


def finish(f: Function) -> None:
    """After the last such store: they are in no order with later ones."""
    f.lines.append("  fence seq_cst")
