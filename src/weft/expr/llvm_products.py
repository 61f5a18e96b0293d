"""Products for threads: a block computes a tile of results, whose operands go through shared memory.

A product of matrices is a Fold of a row for each pair (m, n), where every operand moves with m or with n, but not with
both. The parts of the Fold's expression that depend on one side alone are computed once for each m, or n, and element
of the row, not once for each pair: in a turn the block's threads write those of `DEPTH` elements of the rows to shared
memory, then each thread reads the parts of its few m and n, and goes on with the sums of all its pairs in registers.
So the expression may be any (casts of halves, products of complex numbers, distances), and so may be the strides:
convolutions are products whose windows overlap.

The loops are, outermost first: those that no side has for itself (batches), those of m, those of n, and the row's.
Threads beyond the last m, n or element compute with the last one and store nothing, so that all come to each barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.base.record import Record
from weft.expr.kernel import Fold, Kernel, Once, Reduction, Stage, values
from weft.expr.llvm_function import Values
from weft.expr.llvm_rows import Accumulator
from weft.expr.llvm_threads import ThreadCode, Threads
from weft.expr.llvm_values import number as constant
from weft.expr.llvm_writer import llvm_type
from weft.expr.scalar import BITS, COMPLEX, Scalar, walk

__all__ = [
    "PRODUCT_THREADS",
    "Part",
    "Side",
    "Tiles",
    "are_products",
    "fits_into_shared_memory",
    "parts_of_sides",
    "print_products",
]

SIDE = 16  # threads of a block along m, and along n
PRODUCT_THREADS = SIDE * SIDE
DEPTH = 16  # elements of the rows in a turn
DEPTHS_OF_SUM = 32  # turns whose float32 are summed in float32
SHARED_BYTES = 48 << 10  # what every block may have


def are_products(stages: Sequence[Stage]) -> bool:
    """Whether rows may be products: one Fold of what operands hold, then stores of one element for each row."""
    if len(stages) < 2 or not all(isinstance(stage, Once) for stage in stages[1:]):
        return False
    fold = stages[0]
    if not isinstance(fold, Fold) or any(r.op in ("argmax", "argmin") for r in fold.reductions):
        return False
    nodes = list(walk(*(value for stage in stages for value in values(stage))))
    return not any(node.op in ("index", "load_at") for node in nodes)


def operands_of_fold(stages: Sequence[Stage]) -> int:
    """Bit k: the first stage loads operand k."""
    return sum({1 << node.value for node in walk(*values(stages[0])) if node.op == "load"})


def print_products(f: Threads) -> ThreadCode:
    """The kernel in tiles of results."""
    return _Products(f).run()


def fits_into_shared_memory(kernel: Kernel, seconds: int) -> bool:
    """seconds: as in Schedule.pairs."""
    return _Layout.of(kernel, seconds).bytes <= SHARED_BYTES


class Part(Record):
    """A part of the expression in shared memory: for each part of a complex number, places and elements of the row."""

    node: Scalar
    begin: int  # bytes
    pitch: int  # from an element of the row to the next, bytes
    step: int  # from a place, of m or n, to the next
    bytes: int  # of one part of a complex number

    @property
    def kinds(self) -> tuple[str, ...]:
        dtype = self.node.dtype
        return (llvm_type(COMPLEX[dtype]),) * 2 if dtype in COMPLEX else (llvm_type(dtype),)

    def address(self, f: Threads, k: int, depth: str, place: str, more: int = 0) -> str:
        begin = f.offset(f.emit("call ptr @weft_shared()"), self.begin + k * self.bytes + more)
        row = f.offset(begin, f.emit(f"mul i64 {depth}, {self.pitch}"))
        return f.offset(row, f.emit(f"mul i64 {place}, {self.step}"))


class _Layout(Record):
    """How many results of a tile are a thread's, and what of which side is stored where: [of m, of n]."""

    counts: tuple[int, int]
    sides: tuple[tuple[Part, ...], tuple[Part, ...]]
    bytes: int

    @classmethod
    def of(cls, kernel: Kernel, seconds: int) -> _Layout:
        (fold, *_) = kernel.stages
        assert isinstance(fold, Fold)
        words = sum(_words_of_sum(reduction) for reduction in fold.reductions)
        counts = (4, 4) if words <= 4 else (4, 2) if words <= 8 else (2, 2)  # so that sums take 64 registers
        begin, sides = 0, []
        for count, nodes in zip(counts, parts_of_sides(values(fold), seconds), strict=True):
            parts = []
            for node in nodes:
                item = _item_bytes(node.dtype)
                pitch = SIDE * count * item + 16  # so that neighbours along the row are in other banks
                parts.append(Part(node, begin, pitch, item, pitch * DEPTH))
                begin += pitch * DEPTH * (2 if node.dtype in COMPLEX else 1)
            sides.append(tuple(parts))
        return cls(counts, (sides[0], sides[1]), begin)


def _item_bytes(dtype: str) -> int:
    """Of an element, or a part of a complex one."""
    return max(BITS[COMPLEX.get(dtype, dtype)], 8) // 8


def _words_of_sum(reduction: Reduction) -> int:
    """The registers of 32 bits of one sum: float32 goes on in float64 (Accumulator)."""
    dtype = reduction.value.dtype
    return max(BITS[dtype], 32) // 32 + 2 * (dtype == "float32" and reduction.op == "sum")


def parts_of_sides(roots: Sequence[Scalar], seconds: int) -> tuple[list[Scalar], list[Scalar]]:
    """The largest parts of the expressions that depend on m alone, and on n alone, in a fixed order.

    What depends on neither, such as an operand that repeats along both, counts as m's; constants are no parts.
    """
    sides: dict[int, frozenset[int]] = {}
    for node in walk(*roots):
        own = frozenset({seconds >> node.value & 1}) if node.op == "load" else frozenset()
        sides[id(node)] = own.union(*(sides[id(arg)] for arg in node.args))
    parts: tuple[list[Scalar], list[Scalar]] = ([], [])
    seen: set[int] = set()

    def visit(node: Scalar) -> None:
        if id(node) in seen:
            return
        seen.add(id(node))
        depends_on = sides[id(node)]
        if len(depends_on) == 1:
            parts[min(depends_on)].append(node)
        elif depends_on:
            for arg in node.args:
                visit(arg)

    for root in roots:
        visit(root)
    return parts


class Side:
    """m or n in the text: its loops, and what of its parts a thread writes.

    span: places of a tile; depth: elements of the row in a turn; places: of the thread's results, from the tile's
    first one. fills: elements behind the row's last one count as 0; else they repeat it, and are not read.
    """

    fills = False

    def __init__(
        self, f: Threads, parts: Sequence[Part], span: int, depth: int, first_loop: int, loops: int
    ) -> None:
        self.f, self.parts, self.span, self.depth = f, parts, span, depth
        self.first_loop, self.end_loop = first_loop, first_loop + loops
        self.size = f.product(f.sizes[first_loop : self.end_loop])
        self.tiles = f.turns("0", self.span, self.size)
        # Threads are neighbours along what is stored side by side: elements of the row, or m or n.
        self.loads = sorted({n.value for part in parts for n in walk(part.node) if n.op == "load"})
        self.along_row = all(f.kernel.operands[k].inner == "unit" for k in self.loads)
        self.places: list[str] = []

    def enter(self, tile: str, pointers: list[str]) -> None:
        """Begins a tile: where the thread's elements of it are, those that it writes and those that it combines."""
        f = self.f
        begin = f.emit(f"mul i64 {tile}, {self.span}")
        self.find(begin, f.emit(f"sub i64 {self.size}, 1"), pointers)
        self.positions = [f.emit(f"add i64 {begin}, {place}") for place in self.places]
        self.inside = [f.emit(f"icmp slt i64 {position}, {self.size}") for position in self.positions]

    def find(self, begin: str, last: str, pointers: list[str]) -> None:
        """Finds the pointers of the places of a tile that the thread reads."""
        f = self.f
        self.own_pointers = [
            self.pointers_at(pointers, f.smaller(f.emit(f"add i64 {begin}, {place}"), last))
            for place, _ in self.written()
        ]

    def written(self) -> list[tuple[str, str]]:
        """What the thread writes: the place in the tile and the element of the turn."""
        f, places = self.f, []
        for k in range(self.span * self.depth // PRODUCT_THREADS):
            number = f.emit(f"add i64 {f.thread}, {k * PRODUCT_THREADS}")
            if self.along_row:
                places.append(f.divided(number, str(self.depth)))
            else:
                depth, place = f.divided(number, str(self.span))
                places.append((place, depth))
        return places

    def pointers_of(self, number: int, place: str) -> list[str]:
        """The pointers of the place that the thread writes as its number `number`."""
        return self.own_pointers[number]

    def pointers_at(self, pointers: list[str], number: str) -> list[str]:
        positions = self.f.positions(number, self.first_loop, self.end_loop)
        return self.f.pointers_at(pointers, self.first_loop, positions)

    def write(self, begin: str, last: str) -> None:
        """The thread's share of the parts, for the elements of the row from `begin` on."""
        f = self.f
        outer, rank = f.kernel.rank - f.kernel.row_rank, f.kernel.rank
        for number, (place, depth) in enumerate(self.written()):
            element = f.emit(f"add i64 {begin}, {depth}")
            i = f.smaller(element, last)
            inner = f.positions(i, outer, rank)
            pointers = self.pointers_of(number, place)
            at = Values(f, f.pointers_at(pointers, outer, inner[:-1]), [], inner[-1], "")
            for part in self.parts:
                value = at[part.node]
                for k, kind in enumerate(part.kinds):
                    x = f.part(part.node.dtype, value, k) if len(part.kinds) > 1 else value
                    if self.fills:
                        exists = f.emit(f"icmp sle i64 {element}, {last}")
                        x = f.emit(f"select i1 {exists}, {kind} {x}, {kind} {constant(0, part.node.dtype)}")
                    f.lines.append(f"  store {kind} {x}, ptr {part.address(f, k, depth, place)}")


class _FloatSide(Side):
    """A side whose neighbouring places are side by side, of which a thread combines a few."""

    def __init__(self, f: Threads, number: int, layout: _Layout, first_loop: int, loops: int) -> None:
        self.count = layout.counts[number]
        super().__init__(f, layout.sides[number], SIDE * self.count, DEPTH, first_loop, loops)
        own = f.divided(f.thread, str(SIDE))[number]
        first = f.emit(f"mul i64 {own}, {self.count}")
        self.places = [first, *(f.emit(f"add i64 {first}, {k}") for k in range(1, self.count))]

    def read(self, depth: str) -> list[dict[int, str]]:
        """For each of the thread's own m or n the parts, by id, of an element of the turn."""
        f = self.f
        found: list[dict[int, str]] = [{} for _ in range(self.count)]
        for part in self.parts:
            columns = [self._several(part, k, depth) for k in range(len(part.kinds))]
            for one, values_of in zip(found, zip(*columns, strict=True), strict=True):
                whole = f.pair(part.node.dtype, *values_of) if len(columns) > 1 else values_of[0]
                one[id(part.node)] = whole
        return found

    def _several(self, part: Part, k: int, depth: str) -> list[str]:
        """Neighbours in shared memory, by accesses of up to 16 bytes."""
        f, kind = self.f, part.kinds[k]
        width = min(self.count, 16 // part.step) if part.step >= 4 else 1
        loaded = []
        for begin in range(0, self.count, width):
            address = part.address(f, k, depth, self.places[0], begin * part.step)
            if width == 1:
                loaded.append(f.emit(f"load {kind}, ptr {address}"))
                continue
            vector = f.emit(f"load <{width} x {kind}>, ptr {address}, align {width * part.step}")
            loaded += [f.emit(f"extractelement <{width} x {kind}> {vector}, i64 {j}") for j in range(width)]
        return loaded


class Tiles:
    """Tiles of results, one after the other: what is the same however sums grow."""

    m: Side
    n: Side

    def __init__(self, f: Threads) -> None:
        self.f, self.kernel = f, f.kernel
        self.firsts, self.seconds, self.mask = f.schedule.pairs
        self.outer = f.kernel.rank - f.kernel.row_rank
        self.batch = self.outer - self.firsts - self.seconds
        (fold, *self.last) = f.kernel.stages
        assert isinstance(fold, Fold)
        self.reductions = fold.reductions

    def run(self) -> ThreadCode:
        f = self.f
        self.length = f.product(f.sizes[self.outer :])
        count = f.product([*f.sizes[: self.batch], self.m.tiles, self.n.tiles])

        def tile(number: str) -> None:
            rest, n = f.divided(number, self.n.tiles)
            batch, m = f.divided(rest, self.m.tiles)
            pointers = f.pointers_at(f.bases, 0, f.positions(batch, 0, self.batch))
            self.m.enter(m, pointers)
            self.n.enter(n, pointers)
            self.entered()
            self._store(self.sums(), pointers)

        f.strided(f.block_number, f.block_count, count, tile)
        return f.code(self.m.span * self.n.span)

    def entered(self) -> None:
        """After both sides have begun with a tile."""

    def sums(self) -> list[str]:
        """The results of the Fold for the thread's pairs, reduction by reduction of each."""
        raise NotImplementedError

    def write(self, turn: str, depth: int) -> str:
        """Writes both sides' elements of a turn; where these begin."""
        f = self.f
        begin, last = f.emit(f"mul i64 {turn}, {depth}"), f.emit(f"sub i64 {self.length}, 1")
        self.m.write(begin, last)
        self.n.write(begin, last)
        return begin

    def _store(self, results: list[str], pointers: list[str]) -> None:
        f = self.f
        for m, is_m in zip(self.m.positions, self.m.inside, strict=True):
            row = self.m.pointers_at(pointers, m)
            for n, is_n in zip(self.n.positions, self.n.inside, strict=True):
                own = [results.pop(0) for _ in self.reductions]
                f.branch(f.emit(f"and i1 {is_m}, {is_n}"), self._storing(own, row, n), lambda: None)

    def _storing(self, own: list[str], row: list[str], n: str) -> Callable[[], None]:
        def store() -> None:
            f = self.f
            f.results = {r.number: value for r, value in zip(self.reductions, own, strict=True)}
            pointers = self.n.pointers_at(row, n)
            for stage in self.last:
                assert isinstance(stage, Once)
                Values(f, pointers, [], "0", "").store(stage.stores)

        return store


class _Products(Tiles):
    """Sums in registers, of any expression: 16 threads along m and along n, a few neighbours of each."""

    m: _FloatSide
    n: _FloatSide

    def __init__(self, f: Threads) -> None:
        super().__init__(f)
        layout = _Layout.of(f.kernel, self.mask)
        f.shared_words = (layout.bytes + 7) // 8
        self.m = _FloatSide(f, 0, layout, self.batch, self.firsts)
        self.n = _FloatSide(f, 1, layout, self.batch + self.firsts, self.seconds)
        self.states = [Accumulator(f, reduction) for reduction in self.reductions]

    def sums(self) -> list[str]:
        f = self.f
        pairs = self.m.count * self.n.count
        turns = f.turns("0", DEPTH, self.length)
        totals = [(state.kind, state.first) for state in self.states] * pairs
        if not any(state.wide for state in self.states):
            return self._finished(f.loop(turns, self._turn, totals))
        parts = [(state.partial_kind, state.neutral) for state in self.states] * pairs

        def piece(begin: str, length: str) -> list[str]:
            so_far = list(f.carried)
            sums = f.loop(length, lambda turn: self._turn(f.emit(f"add i64 {begin}, {turn}")), parts)
            states = self.states * pairs
            return [state.join(a, b) for state, a, b in zip(states, so_far, sums, strict=True)]

        return self._finished(f.blocks(turns, DEPTHS_OF_SUM, piece, totals))

    def _finished(self, totals: list[str]) -> list[str]:
        states = self.states * (len(totals) // len(self.states))
        return [state.finish(total) for state, total in zip(states, totals, strict=True)]

    def _turn(self, turn: str) -> list[str]:
        f = self.f
        before = list(f.carried)
        begin = self.write(turn, DEPTH)
        f.barrier()
        kinds = [state.partial_kind for state in self.states] * (self.m.count * self.n.count)
        depth = f.smaller(f.emit(f"sub i64 {self.length}, {begin}"), DEPTH)
        following = f.loop(depth, self._element, list(zip(kinds, before, strict=True)), simple=True)
        f.barrier()
        return following

    def _element(self, depth: str) -> list[str]:
        f = self.f
        before, following = list(f.carried), []
        rows, columns = self.m.read(depth), self.n.read(depth)
        for row in rows:
            for column in columns:
                at = Values(f, f.bases, [], "0", "", computed=row | column)
                news = [at[reduction.value] for reduction in self.reductions]
                following += [s.combine(before.pop(0), new) for s, new in zip(self.states, news, strict=True)]
        return following
