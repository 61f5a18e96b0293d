"""Tiles of two loops: "cross" operands are transposed in an array on the stack, by shuffles of whole vectors.

A tile's operand is read along its own direction and written into the array along the other, so that memory is only
touched by whole lines; arithmetic then goes along the innermost loop. Results go the other way.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.base.record import Record
from weft.expr.kernel import Each
from weft.expr.llvm_function import Function, Values
from weft.expr.llvm_rows import innermost
from weft.expr.llvm_streaming import byte_size, finish, flush
from weft.expr.scalar import walk

__all__ = ["print_tiles"]

TILE = 64  # positions in both loops
PAGES = 512  # the same for blocks of tiles: their lines are on as many pages, whose addresses the processor can keep
STREAMING_BYTES = 1 << 22  # bytes of results from which on they are stored past the cache
SIDES = (PAGES, TILE)
COPY_SIDES = (PAGES, 16)  # a copy needs no array, and goes along the source's lines


def print_tiles(f: Function) -> None:
    """The other loops, and in them tiles of the loop `cross` and of the innermost one."""
    cross, last = f.kernel.cross, f.kernel.rank - 1
    assert cross is not None

    def inside(pointers: list[str], positions: list[str]) -> None:
        f.nest(
            cross + 1, last, pointers, [*positions, "0"], lambda pointers, at: _tiles(f, pointers, at, cross)
        )

    f.nest(0, cross, f.bases, [], inside)


class _Extent(Record):
    """Where a tile begins in a loop, and how long it is."""

    begin: str
    length: str


def _tiles(f: Function, pointers: list[str], positions: list[str], cross: int) -> None:
    copied = _copied(f)
    # Copies of two-byte elements are faster without an array, even through the cache.
    streamable = _whole_lines(f) if not copied or byte_size(f, copied[1]) != 2 else frozenset()
    arrays_by_operand: dict[int, str] = {}

    def array(k: int) -> str:
        if k not in arrays_by_operand:
            arrays_by_operand[k] = f.array(f.kernel.operands[k].dtype, TILE * TILE)
        return arrays_by_operand[k]

    def print_loops(streaming: frozenset[int]) -> None:
        # Lines of small elements are put together in an array, to be stored as a whole.
        direct = copied if copied and (not streaming or byte_size(f, copied[1]) >= 4) else None
        staged = [k for k, x in enumerate(f.kernel.operands) if x.inner == "cross" or k in streaming]
        arrays = {k: array(k) for k in staged} if not direct else {}

        def tile(pointers: list[str], row: _Extent, column: _Extent) -> None:
            if direct:
                _copy(f, *direct, pointers, row, column, bool(streaming))
            else:
                _tile(f, pointers, positions, cross, row, column, arrays, streaming)

        whole = _Extent("0", f.sizes[cross]), _Extent("0", f.sizes[-1])
        crossing = direct is not None and f.kernel.operands[direct[0]].inner == "cross"
        _split(f, pointers, *whole, COPY_SIDES if direct else SIDES, crossing, tile)

    def stream() -> None:
        print_loops(streamable)
        finish(f)

    if streamable:
        f.branch(_exceeds_cache(f, streamable, pointers), stream, lambda: print_loops(frozenset()))
    else:
        print_loops(frozenset())


def _split(
    f: Function,
    pointers: list[str],
    row: _Extent,
    column: _Extent,
    sides: tuple[int, ...],
    columns_first: bool,
    body: Callable[[list[str], _Extent, _Extent], None],
) -> None:
    """The two loops in squares of the first side, these in squares of the next one, and so on."""
    if not sides:
        body(pointers, row, column)
        return
    cross, last = f.kernel.cross, f.kernel.rank - 1
    assert cross is not None
    (outer, outside), (inner, inside) = (cross, row), (last, column)
    if columns_first:
        outer, outside, inner, inside = inner, inside, outer, outside

    def outwards(begin: str, length: str) -> list[str]:
        moved = f.advance(pointers, outer, begin)
        there = _Extent(f.emit(f"add i64 {outside.begin}, {begin}"), length)

        def inwards(begin: str, length: str) -> list[str]:
            here = _Extent(f.emit(f"add i64 {inside.begin}, {begin}"), length)
            both = (here, there) if columns_first else (there, here)
            _split(f, f.advance(moved, inner, begin), *both, sides[1:], columns_first, body)
            return []

        f.blocks(inside.length, sides[0], inwards)
        return []

    f.blocks(outside.length, sides[0], outwards)


def _copied(f: Function) -> tuple[int, int] | None:
    """Source and target, if the kernel only copies elements from one direction to the other."""
    (stage,) = f.kernel.stages
    assert isinstance(stage, Each)
    if len(stage.stores) != 1 or stage.stores[0].add or stage.stores[0].value.op != "load":
        return None
    source, target = stage.stores[0].value.value, stage.stores[0].operand
    kinds = {f.kernel.operands[k].inner for k in (source, target)}
    return (
        (source, target) if kinds == {"unit", "cross"} and f.kernel.operands[source].dtype != "bool" else None
    )


def _whole_lines(f: Function) -> frozenset[int]:
    """The operands that may be written with streaming stores: in whole lines of the cache."""

    def fills_lines(k: int) -> bool:
        inner = f.kernel.operands[k].inner
        return inner == "unit" or (inner == "cross" and byte_size(f, k) >= 4)

    return frozenset(filter(fills_lines, f.kernel.only_stored))


def _exceeds_cache(f: Function, targets: frozenset[int], pointers: list[str]) -> str:
    """Whether the results are larger than the cache keeps, and their lines aligned."""
    cross, last = f.kernel.cross, f.kernel.rank - 1
    assert cross is not None
    addresses = "0"
    for k in sorted(targets):
        across = last if f.kernel.operands[k].inner == "cross" else cross
        begin = f.emit(f"ptrtoint ptr {pointers[k]} to i64")
        addresses = f.emit(f"or i64 {addresses}, {f.emit(f'or i64 {begin}, {f.strides[k][across]}')}")
    aligned = f.emit(f"icmp eq i64 {f.emit(f'and i64 {addresses}, 63')}, 0")
    elements = f.emit(f"mul i64 {f.sizes[cross]}, {f.sizes[last]}")
    most = STREAMING_BYTES // sum(byte_size(f, k) for k in targets)
    return f.emit(f"and i1 {aligned}, {f.emit(f'icmp sge i64 {elements}, {most}')}")


def _copy(
    f: Function, source: int, target: int, pointers: list[str], row: _Extent, column: _Extent, streaming: bool
) -> None:
    crossing = f.kernel.operands[source].inner == "cross"
    cross, last = f.kernel.cross, f.kernel.rank - 1
    assert cross is not None
    along, across = (last, cross) if crossing else (cross, last)
    count, length = (column.length, row.length) if crossing else (row.length, column.length)
    lines = _Lines(pointers[source], f.strides[source][along], count, length)
    _transpose(
        f, lines, _Lines(pointers[target], f.strides[target][across], "", ""), byte_size(f, source), streaming
    )


def _tile(
    f: Function,
    pointers: list[str],
    positions: list[str],
    cross: int,
    row: _Extent,
    column: _Extent,
    arrays: dict[int, str],
    streaming: frozenset[int],
) -> None:
    """One tile: pointers are at its beginning."""
    (stage,) = f.kernel.stages
    assert isinstance(stage, Each)
    roots = [store.value for store in stage.stores]
    read = {node.value for node in walk(*roots) if node.op == "load"}
    read |= {store.operand for store in stage.stores if store.add}
    written = {store.operand for store in stage.stores}
    step = {k: str(TILE * byte_size(f, k)) for k in arrays}  # from line to line of an array, in bytes
    for k, array in arrays.items():
        if k in read:
            memory = _Lines(pointers[k], f.strides[k][-1], column.length, row.length)
            _transpose(f, memory, _Lines(array, step[k], "", ""), byte_size(f, k))

    def line(i: str) -> list[str]:
        moved = f.advance(pointers, cross, i)
        for k, array in arrays.items():
            moved[k] = f.offset(array, f.emit(f"mul i64 {i}, {step[k]}"))
        position = f.emit(f"add nuw nsw i64 {row.begin}, {i}")
        here = [*positions[:cross], position, *positions[cross + 1 :]]

        def element(values: Values, j: str) -> list[str]:
            if f.kernel.rank - 1 in f.kernel.indexed:
                values.positions[-1] = f.emit(f"add nuw nsw i64 {column.begin}, {j}")
            values.store(stage.stores)
            return []

        innermost(f, column.length, moved, here, element, roots, stage.stores)
        return []

    f.loop(row.length, line)
    for k, array in arrays.items():
        if f.kernel.operands[k].inner == "unit":
            target = _Lines(pointers[k], f.strides[k][cross], row.length, column.length)
            _flush(f, _Lines(array, step[k], "", ""), target, byte_size(f, k))
        elif k in written:
            target = _Lines(pointers[k], f.strides[k][-1], "", "")
            source = _Lines(array, step[k], row.length, column.length)
            _transpose(f, source, target, byte_size(f, k), k in streaming)


class _Lines(Record):
    """A matrix in memory: lines, step bytes apart, of neighbouring elements."""

    pointer: str
    step: str
    count: str
    length: str


def _flush(f: Function, source: _Lines, target: _Lines, size: int) -> None:
    """Stores target's lines, of elements of `size` bytes, past the cache."""

    def line(i: str) -> list[str]:
        here, there = (
            f.offset(lines.pointer, f.emit(f"mul i64 {i}, {lines.step}")) for lines in (source, target)
        )
        flush(f, here, there, target.length, size)
        return []

    f.loop(target.count, line)


def _transpose(f: Function, source: _Lines, target: _Lines, size: int, streaming: bool = False) -> None:
    """Elements of `size` bytes: target's line c is source's column c."""
    lanes = {8: 8, 16: 4}.get(size, 16)
    kind = f"i{8 * size}"
    whole_lines = f.emit(f"and i64 {source.count}, {-lanes}")
    whole_columns = f.emit(f"and i64 {source.length}, {-lanes}")

    def address(lines: _Lines, line: str, column: str) -> str:
        pointer = f.offset(lines.pointer, f.emit(f"mul i64 {line}, {lines.step}"))
        return f.emit(f"getelementptr {kind}, ptr {pointer}, i64 {column}")

    def squares(r: str) -> list[str]:
        line = f.emit(f"mul nuw nsw i64 {r}, {lanes}")

        def square(c: str) -> list[str]:
            column = f.emit(f"mul nuw nsw i64 {c}, {lanes}")
            _square(
                f,
                address(source, line, column),
                source.step,
                address(target, column, line),
                target.step,
                kind,
                lanes,
                streaming,
            )
            return []

        f.loop(f.emit(f"udiv i64 {whole_columns}, {lanes}"), square, simple=True)
        return []

    f.loop(f.emit(f"udiv i64 {whole_lines}, {lanes}"), squares, simple=True)

    def single(first_line: str, first_column: str) -> None:
        def lines(r: str) -> list[str]:
            line = f.emit(f"add i64 {r}, {first_line}")

            def element(c: str) -> list[str]:
                column = f.emit(f"add i64 {c}, {first_column}")
                value = f.emit(f"load {kind}, ptr {address(source, line, column)}, align {size}")
                f.lines.append(f"  store {kind} {value}, ptr {address(target, column, line)}, align {size}")
                return []

            f.loop(f.emit(f"sub i64 {source.length}, {first_column}"), element, simple=True)
            return []

        f.loop(f.emit(f"sub i64 {source.count}, {first_line}"), lines, simple=True)

    single(whole_lines, "0")  # the last lines, and what is left of the others
    single("0", whole_columns)


def _square(
    f: Function,
    source: str,
    source_step: str,
    target: str,
    target_step: str,
    kind: str,
    lanes: int,
    streaming: bool,
) -> None:
    """A square of vectors, transposed in registers: blocks of half the size change places, then theirs."""
    vector = f"<{lanes} x {kind}>"

    def lines(pointer: str, step: str) -> list[str]:
        return [f.offset(pointer, f.emit(f"mul i64 {step}, {k}")) for k in range(lanes)]

    align = int(kind[1:]) // 8
    rows = [f.emit(f"load {vector}, ptr {p}, align {align}") for p in lines(source, source_step)]
    one = f.mark("!{i32 1}") if streaming else ""
    half = lanes // 2
    while half:
        upper = ", ".join(f"i32 {k + lanes - half if k & half else k}" for k in range(lanes))
        lower = ", ".join(f"i32 {k + lanes if k & half else k + half}" for k in range(lanes))
        for k in range(lanes):
            if not k & half:
                pair = f"{vector} {rows[k]}, {vector} {rows[k + half]}"
                rows[k] = f.emit(f"shufflevector {pair}, <{lanes} x i32> <{upper}>")
                rows[k + half] = f.emit(f"shufflevector {pair}, <{lanes} x i32> <{lower}>")
        half //= 2
    for row, pointer in zip(rows, lines(target, target_step), strict=True):
        suffix = f"64, !nontemporal {one}" if streaming else align
        f.lines.append(f"  store {vector} {row}, ptr {pointer}, align {suffix}")
