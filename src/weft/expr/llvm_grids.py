"""Products of tiles in shared memory, whose sums are in registers: which of them are a thread's, and how they grow.

A grid is a tile of sums for a block of threads. Each thread has all pairs of some rows and some columns, so what is
done to sums one by one (scores of attention, what is stored behind a product) is the same code for every grid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.base.record import Record
from weft.expr.llvm_threads import Threads

__all__ = ["SIDE", "FloatTile", "Grid"]

SIDE = 16  # threads of a block along rows, and along columns
ROWS = 4  # of a thread


class FloatTile(Record):
    """float32 in shared memory, [depth, place]. places: a multiple of 4."""

    begin: int  # bytes
    places: int

    @property
    def pitch(self) -> int:
        """From an element of depth to the next, bytes; so that neighbours along depth are in other banks."""
        return 4 * self.places + 16

    def bytes(self, depth: int) -> int:
        return self.pitch * depth

    def address(self, f: Threads, depth: str, place: str) -> str:
        """Where an element is, by i32; neighbouring places are side by side."""
        begin = f.offset(f.emit("call ptr @weft_shared()"), self.begin)
        row, column = f.emit(f"mul i32 {depth}, {self.pitch}"), f.emit(f"mul i32 {place}, 4")
        return f.offset(begin, f.emit(f"zext i32 {f.emit(f'add i32 {row}, {column}')} to i64"))


class Grid:
    """64 rows and up to 128 columns for 256 threads; exact float32.

    columns: 16, 32, 64 or 128. A thread has 4 neighbouring rows; the 16 threads that share them are half of a warp.
    Places in the tile are i32.
    """

    rows_of_tile = SIDE * ROWS

    def __init__(self, f: Threads, columns: int) -> None:
        self.f = f
        thread = f.emit(f"trunc i64 {f.thread} to i32")
        self.row_thread = f.emit(f"lshr i32 {thread}, 4")
        self.column_thread = f.emit(f"and i32 {thread}, {SIDE - 1}")
        self.width = min(ROWS, columns // SIDE)  # neighbouring columns
        self.groups = columns // (SIDE * self.width)
        self.steps = (
            4 // self.groups
        )  # elements of depth in a turn of the loop: what is read at once takes registers
        self.first_row = f.emit(f"mul i32 {self.row_thread}, {ROWS}")
        self.first_column = f.emit(f"mul i32 {self.column_thread}, {self.width}")
        self.rows = [f.emit(f"add i32 {self.first_row}, {k}") for k in range(ROWS)]
        self.columns = [
            f.emit(f"add i32 {self.first_column}, {group * SIDE * self.width + k}")
            for group in range(self.groups)
            for k in range(self.width)
        ]

    @property
    def sums(self) -> int:
        """Of a thread: those of its first row, then of the next."""
        return len(self.rows) * len(self.columns)

    def multiplied(
        self, sums: Sequence[str], a: FloatTile, first: str, b: FloatTile, depth: int
    ) -> list[str]:
        """sums + a^T b over `depth` elements of a from `first` on, and of b from 0 on."""
        f = self.f
        at_a = a.address(f, first, self.first_row)
        at_b = b.address(f, "0", self.first_column)

        def turn(t: str) -> list[str]:
            news = list(f.carried)
            step_a, step_b = (
                f.offset(at, f.emit(f"mul i64 {t}, {tile.pitch * self.steps}"))
                for at, tile in ((at_a, a), (at_b, b))
            )
            for k in range(self.steps):
                rows = self._floats(f.offset(step_a, k * a.pitch), ROWS)
                columns = []
                for group in range(self.groups):
                    more = k * b.pitch + group * SIDE * self.width * 4
                    columns += self._floats(f.offset(step_b, more), self.width)
                pairs = [(x, y) for x in rows for y in columns]
                news = [
                    f.emit(f"call float @fma_float32(float {x}, float {y}, float {z})")
                    for (x, y), z in zip(pairs, news, strict=True)
                ]
            return news

        return f.loop(str(depth // self.steps), turn, [("float", x) for x in sums], simple=True)

    def store(self, values: Sequence[str], tile: FloatTile) -> None:
        """The thread's values, of all its rows and columns, to tile[column, row]."""
        for k, column in enumerate(self.columns):
            self.put(values[k :: len(self.columns)], tile, column)

    def load(self, tile: FloatTile, column: str) -> list[str]:
        """What `store` has written of the thread's rows in one of its columns."""
        return self._floats(tile.address(self.f, column, self.first_row), ROWS)

    def put(self, values: Sequence[str], tile: FloatTile, column: str) -> None:
        """Writes that of all rows in one column."""
        f, vector = self.f, "poison"
        for r, value in enumerate(values):
            vector = f.emit(f"insertelement <{ROWS} x float> {vector}, float {value}, i64 {r}")
        address = tile.address(f, column, self.first_row)
        f.lines.append(f"  store <{ROWS} x float> {vector}, ptr {address}, align 16")

    def each_column(
        self, body: Callable[[str], list[str]], carried: Sequence[tuple[str, str]] = ()
    ) -> list[str]:
        """A loop over the thread's columns, of a grid that has them side by side."""
        f = self.f

        def turn(k: str) -> list[str]:
            return body(f.emit(f"add i32 {self.first_column}, {f.emit(f'trunc i64 {k} to i32')}"))

        return f.loop(str(self.width), turn, carried, simple=True)

    def over_columns(self, how: str, totals: Sequence[str]) -> list[str]:
        """Of each of the thread's rows what its columns came to, "sum" or "max", over those of all threads.

        Known to all threads of the row.
        """
        f, delta, totals = self.f, SIDE // 2, list(totals)
        while delta:
            totals = [self.both(how, x, f.shuffle("xor", "float", x, delta)) for x in totals]
            delta //= 2
        return totals

    def both(self, how: str, a: str, b: str) -> str:
        """NaN are no maximum."""
        if how == "max":
            return self.f.intrinsic("maxnum", "float32", [a, b])
        return self.f.emit(f"fadd float {a}, {b}")

    def _floats(self, address: str, count: int) -> list[str]:
        f = self.f
        if count == 1:
            return [f.emit(f"load float, ptr {address}")]
        vector = f.emit(f"load <{count} x float>, ptr {address}, align {4 * count}")
        return [f.emit(f"extractelement <{count} x float> {vector}, i64 {k}") for k in range(count)]
