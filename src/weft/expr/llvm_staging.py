"""Elements that are apart in memory go through arrays on the stack, so that much arithmetic on them is done by vectors.

LLVM makes no vectors of a loop whose elements it would have to pick one by one, as it takes it for too dear. Of a few
operations that is right. An exponential of every second element takes eight times as long as one of neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from weft.expr.kernel import Store
from weft.expr.llvm_function import Function, Values
from weft.expr.llvm_streaming import byte_size
from weft.expr.scalar import Scalar, walk

__all__ = ["STAGED_BLOCK", "apart", "staged"]

STAGED_BLOCK = 512  # elements in an array
WORTH = 8  # operations on an element, at least
DEAR = ("div", "sqrt")  # each is worth it by itself
LEAVES = ("load", "load_at", "constant", "parameter", "result", "index")


def apart(f: Function, roots: Sequence[Scalar], stores: Iterable[Store] = ()) -> dict[int, tuple[bool, bool]]:
    """The operands that go through arrays: whether each is read, and whether it is written."""
    nodes = walk(*roots)
    if sum(WORTH if node.op in DEAR else node.op not in LEAVES for node in nodes) < WORTH:
        return {}
    stores = list(stores)
    gathered = {node.value for node in nodes if node.op == "load_at"}
    read = {node.value for node in nodes if node.op == "load"} | {s.operand for s in stores if s.add}
    written = {store.operand for store in stores}
    far = {k for k, x in enumerate(f.kernel.operands) if x.inner == "any"} - gathered
    return {k: (k in read, k in written) for k in sorted(far & (read | written))}


def staged(
    f: Function,
    operands: dict[int, tuple[bool, bool]],
    pointers: list[str],
    positions: list[str],
    begin: str,
    length: str,
    compute: Callable[[list[str]], list[str]],
) -> list[str]:
    """compute(pointers) on elements [begin, begin + length) of the innermost loop, those of the operands in arrays."""
    moved, arrays = list(pointers), {}
    for k, (is_read, _) in operands.items():
        arrays[k] = f.array(f.kernel.operands[k].dtype, STAGED_BLOCK)
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
