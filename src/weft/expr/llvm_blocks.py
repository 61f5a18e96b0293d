"""Rows for threads: a warp, a block, or a lane of several warps works on each row. See weft.expr.llvm_threads.

In every schedule a thread has the same positions of a row in all stages, so what it stores it may read again. Results
of a Fold are known to all threads of its row. Shared memory is written between two barriers and read between the next
two, or by the next row; each of them is needed, which a test shows by taking it away.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from weft.expr.kernel import Each, Fold, Once, Scan, Stage
from weft.expr.llvm_function import Values
from weft.expr.llvm_rows import SUM_BLOCK, Accumulator, better
from weft.expr.llvm_threads import WARP, ThreadCode, Threads, read_again, reads_stored
from weft.expr.llvm_values import number as constant

__all__ = ["print_blocks"]

LANE_BLOCK = 32  # elements of float32 of a column that are summed in float32


def print_blocks(f: Threads) -> ThreadCode:
    """The rows of a kernel, by the schedule's kind."""
    if f.schedule.held:
        return _HeldRows(f).run()
    return _Rows(f).run() if f.schedule.kind != "columns" else _Columns(f).run()


class _Rows:
    """Rows of neighbouring elements: of the `workers` threads of a row each has every workers-th element."""

    def __init__(self, f: Threads) -> None:
        self.f, self.kernel = f, f.kernel
        self.outer = f.kernel.rank - f.kernel.row_rank
        self.is_warp = f.schedule.kind == "warps"
        self.workers = WARP if self.is_warp else f.schedule.threads
        self.worker = f.lane if self.is_warp else f.thread
        self.block, self.is_simple = SUM_BLOCK, False  # simple: not unrolled, which took columns' registers
        self.inside = ""  # a truth: whether this thread's row is one; "" if it always is
        self.begin, self.step = self.worker, self.workers

    def run(self) -> ThreadCode:
        f = self.f
        rows_of_block = f.schedule.threads // self.workers
        count = f.product(f.sizes[: self.outer])
        first = f.block_number
        if self.is_warp:
            first = f.emit(f"add i64 {f.emit(f'mul i64 {first}, {rows_of_block}')}, {f.warp}")
        step = f.emit(f"mul i64 {f.block_count}, {rows_of_block}")

        def row(number: str) -> list[str]:
            positions = f.positions(number, 0, self.outer)
            self._row(f.pointers_at(f.bases, 0, positions), positions)
            return []

        self.length = f.product(f.sizes[self.outer :])
        f.strided(first, step, count, row)
        return f.code(rows_of_block)

    def _row(self, pointers: list[str], positions: list[str]) -> None:
        f = self.f
        f.results = {}
        for number, stage in enumerate(self.kernel.stages):
            if reads_stored(self.kernel, number):
                f.barrier()
            self._stage(stage, pointers, positions)
        f.settle()

    def _stage(self, stage: Stage, pointers: list[str], positions: list[str]) -> None:
        f = self.f
        if isinstance(stage, Each):

            def element(i: str) -> list[str]:
                values = self.values(i, pointers, positions)
                self._when_inside(lambda: values.store(stage.stores))
                return []

            f.strided(self.begin, self.step, self.length, element)
        elif isinstance(stage, Fold):
            self._fold(stage, pointers, positions)
        elif isinstance(stage, Once):
            is_first = f.emit(f"icmp eq i64 {self.begin}, 0")
            if self.inside:
                is_first = f.emit(f"and i1 {is_first}, {self.inside}")
            f.branch(is_first, lambda: self.values("0", pointers, positions).store(stage.stores), _nothing)
        else:
            assert isinstance(stage, Scan)
            self._scan(stage, pointers, positions)

    def _when_inside(self, body: Callable[[], None]) -> None:
        if self.inside:
            self.f.branch(self.inside, body, _nothing)
        else:
            body()

    def values(self, i: str, pointers: list[str], positions: list[str]) -> Values:
        """Element i of the row, which may have several loops."""
        f = self.f
        inner = f.positions(i, self.outer, self.kernel.rank)
        return Values(f, f.pointers_at(pointers, self.outer, inner[:-1]), [*positions, *inner], inner[-1], "")

    # Folds.

    def _fold(self, stage: Fold, pointers: list[str], positions: list[str]) -> None:
        f = self.f
        states = [Accumulator(f, reduction) for reduction in stage.reductions]
        totals = self._own_part(states, pointers, positions)
        if self.workers > 1:
            totals = self._combined(states, totals)
        for state in states:
            total = totals.pop(0)
            if state.position:
                f.results[state.reduction.number] = totals.pop(0)
                continue
            if state.first != _neutral(state):  # every thread began without it
                total = state.combine(state.first, total, state.total_dtype)
            f.results[state.reduction.number] = state.finish(total)

    def _own_part(
        self, states: Sequence[Accumulator], pointers: list[str], positions: list[str]
    ) -> list[str]:
        """What the thread's own elements come to: by state a total, or an extreme and its position."""
        f = self.f
        turns = f.turns(self.begin, self.step, self.length)

        def element(turn: str, begin: str) -> list[str]:
            before = list(f.carried)
            i = f.at_turn(self.begin, self.step, f.emit(f"add i64 {begin}, {turn}"))
            values = self.values(i, pointers, positions)
            news = [values[state.reduction.value] for state in states]
            following = []
            for state, new in zip(states, news, strict=True):
                if state.position:
                    following += best_of(f, state, [before.pop(0), before.pop(0)], [new, i])
                else:
                    following.append(state.combine(before.pop(0), new))
            return following

        def piece(begin: str, length: str) -> list[str]:
            so_far = list(f.carried)
            first: list[tuple[str, str]] = []
            for state, k in zip(states, _places(states), strict=True):
                if state.position:
                    first += [(state.kind, so_far[k]), ("i64", so_far[k + 1])]
                else:
                    first.append((state.partial_kind, state.neutral))
            parts = f.loop(length, lambda turn: element(turn, begin), first, simple=self.is_simple)
            following = []
            for state in states:
                if state.position:
                    following += [parts.pop(0), parts.pop(0)]
                    so_far.pop(0), so_far.pop(0)
                else:
                    following.append(state.join(so_far.pop(0), parts.pop(0)))
            return following

        return f.blocks(turns, self.block, piece, _carried(states))

    def _combined(self, states: Sequence[Accumulator], values: list[str]) -> list[str]:
        """All workers' values together, for each of them."""
        f = self.f
        delta = WARP // 2
        while delta:
            others = [
                f.shuffle("xor", kind, value, delta)
                for (kind, _), value in zip(_carried(states), values, strict=True)
            ]
            values = _both(f, states, values, others)
            delta //= 2
        if self.is_warp:
            return values
        return self.through_shared(states, values, f.warp, f.emit(f"icmp eq i64 {f.lane}, 0"), "", WARP)

    def through_shared(
        self,
        states: Sequence[Accumulator],
        values: list[str],
        slot: str,
        writes: str,
        offset: str,
        share: int,
    ) -> list[str]:
        """One value of each warp, in the order of warps. slot: where the thread writes, if it does.

        offset: of what the thread reads, from the slots of a warp; a warp has `WARP // share` slots.
        """
        f = self.f
        warps = f.schedule.threads // WARP
        slots = warps * (WARP // share)
        kinds = [kind for kind, _ in _carried(states)]
        places = list(zip(kinds, f.shared_slots(kinds, slots), strict=True))

        def write() -> None:
            for (kind, first), value in zip(places, values, strict=True):
                f.to_shared(kind, value, slot, first, slots)

        f.settle()
        if writes:
            f.branch(writes, write, _nothing)
        else:
            write()
        f.barrier()
        total: list[str] = []
        for warp in range(warps):
            index = str(warp * (WARP // share))
            if offset:
                index = f.emit(f"add i64 {offset}, {index}")
            read = [f.from_shared(kind, index, first, slots) for kind, first in places]
            total = _both(f, states, total, read) if total else read
        f.is_settled = False
        return total

    # Scans.

    def _scan(self, stage: Scan, pointers: list[str], positions: list[str]) -> None:
        """Pieces of as many elements as threads: prefixes of warps by shuffles, then of the warps before."""
        f = self.f
        states = [Accumulator(f, reduction) for reduction in stage.reductions]
        kinds = [state.kind for state in states]
        warps = f.schedule.threads // WARP
        firsts = f.shared_slots(kinds, warps)
        pieces = f.turns("0", self.workers, self.length)
        f.settle()
        neutral = [_neutral(state) for state in states]

        def piece(number: str) -> list[str]:
            carry = list(f.carried)
            i = f.at_turn(self.worker, self.workers, number)
            inside = f.emit(f"icmp slt i64 {i}, {self.length}")

            def load() -> list[str]:
                values = self.values(self._reversed(stage, i), pointers, positions)
                return [_widened(f, state, values[state.reduction.value]) for state in states]

            own = f.replaced(inside, load, list(zip(kinds, neutral, strict=True)))
            own = self._prefix_of_warp(states, own)
            is_last = f.emit(f"icmp eq i64 {f.lane}, {WARP - 1}")

            def write() -> None:
                for kind, value, first in zip(kinds, own, firsts, strict=True):
                    f.to_shared(kind, value, f.warp, first, warps)

            f.branch(is_last, write, _nothing)
            f.barrier()
            before, total = list(carry), list(carry)
            for warp in range(warps):
                is_before = f.emit(f"icmp ult i64 {warp}, {f.warp}")
                for k, (state, kind) in enumerate(zip(states, kinds, strict=True)):
                    read = f.from_shared(kind, str(warp), firsts[k], warps)
                    total[k] = state.combine(total[k], read, state.total_dtype)
                    before[k] = f.emit(f"select i1 {is_before}, {kind} {total[k]}, {kind} {before[k]}")
            f.barrier()
            sums = [s.combine(b, o, s.total_dtype) for s, b, o in zip(states, before, own, strict=True)]

            def store() -> None:
                values = self.values(self._reversed(stage, i), pointers, positions)
                for state, value in zip(states, sums, strict=True):
                    values.set_result(state.reduction, state.finish(value))
                values.store(stage.stores)

            f.branch(inside, store, _nothing)
            return total

        f.loop(pieces, piece, [(state.kind, state.first) for state in states])

    def _reversed(self, stage: Scan, i: str) -> str:
        f = self.f
        return f.emit(f"sub i64 {f.emit(f'sub i64 {self.length}, 1')}, {i}") if stage.reverse else i

    def _prefix_of_warp(self, states: Sequence[Accumulator], own: list[str]) -> list[str]:
        f = self.f
        delta = 1
        while delta < WARP:
            reaches = f.emit(f"icmp uge i64 {f.lane}, {delta}")
            following = []
            for state, value in zip(states, own, strict=True):
                other = f.shuffle("up", state.kind, value, delta)
                both = state.combine(other, value, state.total_dtype)
                following.append(f.emit(f"select i1 {reaches}, {state.kind} {both}, {state.kind} {value}"))
            own, delta = following, delta * 2
        return own


class _HeldRows(_Rows):
    """Rows of which threads keep what several stages read, `held` elements each: it is read from memory once.

    All elements are written one after the other, without loops. What is behind the row's end repeats its last element,
    and counts for nothing.
    """

    def _row(self, pointers: list[str], positions: list[str]) -> None:
        f = self.f
        last = f.emit(f"sub i64 {self.length}, 1")
        again = read_again(self.kernel.stages)
        self.places: list[str] = []
        self.exist: list[str] = []
        self.kept: list[dict[int, str]] = []
        for k in range(f.schedule.held):
            place = f.emit(f"add i64 {self.begin}, {k * self.step}")
            self.exist.append(f.emit(f"icmp slt i64 {place}, {self.length}"))
            self.places.append(f.smaller(place, last))
            at = super().values(self.places[-1], pointers, positions)
            self.kept.append({id(node): at[node] for node in again})
        super()._row(pointers, positions)

    def _element(self, k: int, pointers: list[str], positions: list[str]) -> Values:
        """The thread's element k."""
        values = self.values(self.places[k], pointers, positions)
        values.computed.update(self.kept[k])
        return values

    def _stage(self, stage: Stage, pointers: list[str], positions: list[str]) -> None:
        f = self.f
        if not isinstance(stage, Each):
            return super()._stage(stage, pointers, positions)
        for k, exists in enumerate(self.exist):
            values = self._element(k, pointers, positions)
            f.branch(exists, functools.partial(values.store, stage.stores), _nothing)
        return None

    def _own_part(
        self, states: Sequence[Accumulator], pointers: list[str], positions: list[str]
    ) -> list[str]:
        f = self.f
        totals = [state.neutral for state in states]
        for k, exists in enumerate(self.exist):
            values = self._element(k, pointers, positions)
            for number, state in enumerate(states):
                new = state.combine(totals[number], values[state.reduction.value])
                old = totals[number]
                kind = state.partial_kind
                totals[number] = f.emit(f"select i1 {exists}, {kind} {new}, {kind} {old}")
        firsts = [first for _, first in _carried(states)]
        return [state.join(a, b) for state, a, b in zip(states, firsts, totals, strict=True)]


class _Columns(_Rows):
    """Rows side by side: a lane for each of 32 neighbouring rows, whose elements the block's warps share.

    With a Scan each warp has rows of its own. A lane beyond the last row works on that one and stores nothing, so that
    all threads come to each barrier.
    """

    def __init__(self, f: Threads) -> None:
        super().__init__(f)
        warps = f.schedule.threads // WARP
        self.is_warp = any(isinstance(stage, Scan) for stage in f.kernel.stages)
        self.workers = 1 if self.is_warp else warps
        self.worker = "0" if self.is_warp else f.warp
        self.block, self.is_simple = LANE_BLOCK, True
        self.begin, self.step = self.worker, self.workers

    def run(self) -> ThreadCode:
        f = self.f
        columns = f.schedule.threads if self.is_warp else WARP
        size = f.sizes[self.outer - 1]
        groups = f.turns("0", columns, size)
        count = f.product([*f.sizes[: self.outer - 1], groups])

        def group(number: str) -> list[str]:
            rest, within = f.divided(number, groups) if self.outer > 1 else ("", number)
            positions = f.positions(rest, 0, self.outer - 1)
            own = f.thread if self.is_warp else f.lane
            column = f.emit(f"add i64 {f.emit(f'mul i64 {within}, {columns}')}, {own}")
            self.inside = f.emit(f"icmp slt i64 {column}, {size}")
            column = f.smaller(column, f.emit(f"sub i64 {size}, 1"))
            self._row(f.pointers_at(f.bases, 0, positions), [*positions, column])
            return []

        self.length = f.product(f.sizes[self.outer :])
        f.strided(f.block_number, f.block_count, count, group)
        return f.code(columns)

    def values(self, i: str, pointers: list[str], positions: list[str]) -> Values:
        f = self.f
        inner = f.positions(i, self.outer, self.kernel.rank)
        return Values(f, f.pointers_at(pointers, self.outer, inner), [*positions, *inner], positions[-1], "")

    def _combined(self, states: Sequence[Accumulator], values: list[str]) -> list[str]:
        return self.through_shared(states, values, self.f.thread, "", self.f.lane, 1)

    def _scan(self, stage: Scan, pointers: list[str], positions: list[str]) -> None:
        f = self.f
        states = [Accumulator(f, reduction) for reduction in stage.reductions]

        def element(i: str) -> list[str]:
            before = list(f.carried)
            values = self.values(self._reversed(stage, i), pointers, positions)
            following = []
            for state, old in zip(states, before, strict=True):
                new = _widened(f, state, values[state.reduction.value])
                following.append(state.combine(old, new, state.total_dtype))
                values.set_result(state.reduction, state.finish(following[-1]))
            self._when_inside(lambda: values.store(stage.stores))
            return following

        f.loop(self.length, element, [(state.kind, state.first) for state in states])


def _nothing() -> None: ...


def _carried(states: Sequence[Accumulator]) -> list[tuple[str, str]]:
    """Kinds and first values of what threads combine: (extreme, position) for an argmax."""
    carried = []
    for state in states:
        first = state.first if state.position else _neutral(state)
        carried += [(state.kind, first), ("i64", "0")] if state.position else [(state.kind, first)]
    return carried


def _places(states: Sequence[Accumulator]) -> list[int]:
    """Where each state's values begin in that list."""
    places, k = [], 0
    for state in states:
        places.append(k)
        k += 2 if state.position else 1
    return places


def _both(f: Threads, states: Sequence[Accumulator], a: list[str], b: list[str]) -> list[str]:
    both = []
    for state, k in zip(states, _places(states), strict=True):
        if state.position:
            both += best_of(f, state, a[k : k + 2], b[k : k + 2])
        else:
            both.append(state.combine(a[k], b[k], state.total_dtype))
    return both


def best_of(f: Threads, state: Accumulator, a: list[str], b: list[str]) -> list[str]:
    """Of two (value, position) the better one; of equal ones, and of NaN, the first position."""
    dtype, kind = state.reduction.value.dtype, state.kind
    is_b, is_a = better(f, state.op, dtype, b[0], a[0]), better(f, state.op, dtype, a[0], b[0])
    is_earlier = f.emit(f"icmp slt i64 {b[1]}, {a[1]}")
    is_tie = f.emit(f"and i1 {f.emit(f'xor i1 {is_a}, true')}, {is_earlier}")
    takes_b = f.emit(f"or i1 {is_b}, {is_tie}")
    return [
        f.emit(f"select i1 {takes_b}, {kind} {b[0]}, {kind} {a[0]}"),
        f.emit(f"select i1 {takes_b}, i64 {b[1]}, i64 {a[1]}"),
    ]


def _neutral(state: Accumulator) -> str:
    return constant({"sum": 0, "prod": 1}.get(state.op, state.reduction.start), state.total_dtype)


def _widened(f: Threads, state: Accumulator, value: str) -> str:
    return value if state.total_dtype == state.dtype else f.emit(f"fpext float {value} to double")
