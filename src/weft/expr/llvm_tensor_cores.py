"""Products of 16-bit floats for tensor cores: m16n8k16 with sums of float32. See weft.expr.llvm_products.

A warp multiplies fragments, whose elements are spread over its lanes as PTX has it (parallel thread execution ISA,
"Matrix fragments for mma.m16n8k16"): with g = lane / 4 and t = lane % 4, of a 16 by 16 tile of m a lane has the rows g
and g + 8, of each the elements 2 t, 2 t + 1, 2 t + 8, 2 t + 9; of an 8 by 16 tile of n the row g and these elements;
of the 16 by 8 sums the rows g and g + 8, the columns 2 t and 2 t + 1. Both sides are in shared memory with the elements
of a row side by side, so that two of them are one access; rows are 80 bytes apart, so that a warp's accesses fall into
different banks.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.expr.kernel import Fold, Kernel
from weft.expr.llvm_products import PRODUCT_THREADS, Part, Side, Tiles, parts_of_sides
from weft.expr.llvm_threads import WARP, ThreadCode, Threads
from weft.expr.llvm_values import number as constant
from weft.expr.scalar import HALVES, Scalar

__all__ = ["MMA_CHIP", "halves_of", "multiply_fragments", "print_tensor_products"]

MMA_CHIP = 80  # the first of NVIDIA's chips with this instruction for bfloat16
DEPTH = 32  # elements of the rows in a turn
STEP = 16  # of one instruction
PITCH = 2 * DEPTH + 16  # bytes of a row in shared memory
SPANS = (128, 64)  # of a tile, along m and along n
WARPS = (4, 2)  # along m and along n: each has 32 by 32 results
ROWS, COLUMNS = 16, 8  # of the results of one instruction
TURNS_OF_SUM = 16  # 512 elements, whose sum is added to that of those before


def halves_of(kernel: Kernel, seconds: int) -> tuple[Scalar, Scalar] | None:
    """What of m and of n, 16-bit floats of one type, is multiplied and summed in float32; None: it is something else.

    seconds: as in Schedule.pairs.
    """
    fold = kernel.stages[0]
    if not isinstance(fold, Fold) or len(fold.reductions) != 1:
        return None
    (reduction,) = fold.reductions
    root = reduction.value
    if reduction.op != "sum" or root.op not in ("mul", "product") or root.dtype != "float32":
        return None
    sides = parts_of_sides([root], seconds)
    if [len(side) for side in sides] != [1, 1] or {*sides[0], *sides[1]} != {*root.args}:
        return None
    halves = [part.args[0] for side in sides for part in side if part.op == "cast"]
    types = {half.dtype for half in halves}
    if len(halves) != 2 or len(types) != 1 or not types <= {*HALVES}:
        return None
    return halves[0], halves[1]


def print_tensor_products(f: Threads) -> ThreadCode:
    """The kernel in tiles of results, whose halves `halves_of` names."""
    return _TensorProducts(f).run()


def multiply_fragments(
    f: Threads, dtype: str, a: Sequence[str], b: Sequence[str], sums: Sequence[str]
) -> list[str]:
    """sums + a b: four words of a tile of m, two of one of n, four sums."""
    words = ", ".join(f"i32 {x}" for x in (*a, *b))
    floats = ", ".join(f"float {x}" for x in sums)
    result = "{ float, float, float, float }"
    four = f.emit(f"call {result} @weft_mma_{dtype}({words}, {floats})")
    return [f.emit(f"extractvalue {result} {four}, {k}") for k in range(4)]


class _TensorSide(Side):
    """A side whose places' offsets, which all threads need, are in shared memory from `begin` on."""

    fills = True
    begin = 0

    @property
    def bytes(self) -> int:
        return 8 * self.span * len(self.loads)

    def find(self, begin: str, last: str, pointers: list[str]) -> None:
        f = self.f

        def note() -> None:
            at = f.smaller(f.emit(f"add i64 {begin}, {f.thread}"), last)
            found = self.pointers_at(pointers, at)
            for number, operand in enumerate(self.loads):
                ends = [f.emit(f"ptrtoint ptr {p} to i64") for p in (found[operand], f.bases[operand])]
                offset = f.emit(f"sub i64 {ends[0]}, {ends[1]}")
                f.lines.append(f"  store i64 {offset}, ptr {self._offset(number, f.thread)}")

        f.branch(f.emit(f"icmp ult i64 {f.thread}, {self.span}"), note, lambda: None)

    def pointers_of(self, number: int, place: str) -> list[str]:
        f, pointers = self.f, list(self.f.bases)
        for k, operand in enumerate(self.loads):
            offset = f.emit(f"load i64, ptr {self._offset(k, place)}")
            pointers[operand] = f.offset(f.bases[operand], offset)
        return pointers

    def _offset(self, number: int, place: str) -> str:
        f = self.f
        begin = f.offset(f.emit("call ptr @weft_shared()"), self.begin + 8 * self.span * number)
        return f.offset(begin, f.emit(f"mul i64 {place}, 8"))


class _TensorProducts(Tiles):
    m: _TensorSide
    n: _TensorSide

    def __init__(self, f: Threads) -> None:
        super().__init__(f)
        halves = halves_of(f.kernel, self.mask)
        assert halves
        self.dtype = halves[0].dtype
        begin, parts = 0, []
        for half, span in zip(halves, SPANS, strict=True):
            parts.append(Part(half, begin, 2, PITCH, PITCH * span))
            begin += PITCH * span
        loops = ((self.batch, self.firsts), (self.batch + self.firsts, self.seconds))
        self.m, self.n = (
            _TensorSide(f, (part,), span, DEPTH, *own)
            for part, span, own in zip(parts, SPANS, loops, strict=True)
        )
        for side in (self.m, self.n):
            side.begin = begin
            begin += side.bytes
        f.shared_words = begin // 8
        self.group = f.emit(f"lshr i64 {f.lane}, 2")
        self.pair = f.emit(f"shl i64 {f.emit(f'and i64 {f.lane}, 3')}, 1")
        warps = (f.emit(f"lshr i64 {f.warp}, 1"), f.emit(f"and i64 {f.warp}, 1"))
        self.counts = (SPANS[0] // WARPS[0] // ROWS, SPANS[1] // WARPS[1] // COLUMNS)  # tiles of a warp
        self.firsts_of_warp = [
            f.emit(f"mul i64 {warp}, {span // count}")
            for warp, span, count in zip(warps, SPANS, WARPS, strict=True)
        ]
        row = f.emit(f"add i64 {self.firsts_of_warp[0]}, {self.group}")
        column = f.emit(f"add i64 {self.firsts_of_warp[1]}, {self.pair}")
        self.m.places = [f.emit(f"add i64 {row}, {k * COLUMNS}") for k in range(2 * self.counts[0])]
        self.n.places = [
            f.emit(f"add i64 {column}, {k * COLUMNS + j}") for k in range(self.counts[1]) for j in (0, 1)
        ]

    def entered(self) -> None:
        self.f.barrier()

    def sums(self) -> list[str]:
        f = self.f
        turns = f.turns("0", DEPTH, self.length)
        count = 4 * self.counts[0] * self.counts[1]
        zero = [("float", constant(0, "float32"))] * count

        def piece(begin: str, length: str) -> list[str]:
            so_far = list(f.carried)
            sums = f.loop(
                length, lambda turn: self._turn(f.emit(f"add i64 {begin}, {turn}")), zero, simple=True
            )
            return [f.emit(f"fadd float {a}, {b}") for a, b in zip(so_far, sums, strict=True)]

        start = [("float", constant(self.reductions[0].start, "float32"))] * count
        return self._by_rows(f.blocks(turns, TURNS_OF_SUM, piece, start))

    def _turn(self, turn: str) -> list[str]:
        f = self.f
        sums = list(f.carried)
        self.write(turn, DEPTH)
        f.barrier()
        for step in range(0, DEPTH, STEP):
            rows = [self._words(self.m, 0, k * ROWS, step, (0, ROWS // 2)) for k in range(self.counts[0])]
            columns = [self._words(self.n, 1, k * COLUMNS, step, (0,)) for k in range(self.counts[1])]
            tiles = [(a, b) for a in rows for b in columns]
            sums = [
                x
                for k, (a, b) in enumerate(tiles)
                for x in multiply_fragments(f, self.dtype, a, b, sums[4 * k : 4 * k + 4])
            ]
        f.barrier()
        return sums

    def _words(self, side: Side, number: int, first: int, step: int, rows: Sequence[int]) -> list[str]:
        """The lane's words of a fragment, whose rows begin at the warp's `first`: its rows, then 8 elements on."""
        f = self.f
        place = f.emit(f"add i64 {self.firsts_of_warp[number]}, {self.group}")
        at = side.parts[0].address(f, 0, self.pair, place, first * PITCH + 2 * step)
        return [
            f.emit(f"load i32, ptr {f.offset(at, row * PITCH + 2 * more)}")
            for more in (0, STEP // 2)
            for row in rows
        ]

    def _by_rows(self, sums: list[str]) -> list[str]:
        """Sums of fragments in the order of the thread's rows, and of its columns in each."""
        rows, columns = self.counts
        return [
            sums[4 * (r * columns + c) + 2 * half + j]
            for r in range(rows)
            for half in (0, 1)
            for c in range(columns)
            for j in (0, 1)
        ]


assert WARPS[0] * WARPS[1] * WARP == PRODUCT_THREADS
