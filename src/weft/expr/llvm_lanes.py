"""Code for rows side by side: a stage's values of each row are in an array on the stack; the lanes become vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.expr.kernel import Each, Fold, Once, Reduction, Scan, Stage, Store
from weft.expr.llvm_function import Function, Values
from weft.expr.llvm_rows import Accumulator, better
from weft.expr.scalar import Scalar

__all__ = ["LANES", "LANES_SUM_BLOCK", "print_lanes"]

LANES = 1024  # rows side by side: their sums fill a part of the first-level cache
LANES_SUM_BLOCK = 32  # the same as SUM_BLOCK, where every lane adds one element after the other


def print_lanes(f: Function) -> None:
    """The loops before that of the lanes, and in them blocks of lanes."""
    _outer(f, 0, f.bases, [])


def _outer(f: Function, d: int, pointers: list[str], positions: list[str]) -> None:
    if d == f.vector_loop:

        def block(begin: str, length: str) -> list[str]:
            rows = _Lanes(f, f.advance(pointers, d, begin), positions, begin, length)
            for stage in f.kernel.stages:
                rows.run(stage)
            return []

        f.blocks(f.sizes[d], LANES, block)
        return

    def body(i: str) -> list[str]:
        _outer(f, d + 1, f.advance(pointers, d, i), [*positions, i])
        return []

    f.loop(f.sizes[d], body)


class _Lanes:
    """Up to LANES rows side by side: every stage loops over the row outside and over the lanes inside."""

    def __init__(
        self, function: Function, pointers: list[str], positions: list[str], begin: str, length: str
    ) -> None:
        self.function, self.pointers, self.positions = function, pointers, positions
        self.begin, self.length = begin, length
        self.results: dict[int, str] = {}  # arrays

    def run(self, stage: Stage) -> None:
        if isinstance(stage, Fold):
            self._fold(stage)
        elif isinstance(stage, Scan):
            self._scan(stage)
        elif isinstance(stage, Each):
            streaming = self.function.kernel.streaming_operands & {store.operand for store in stage.stores}
            store = self._store_streaming if streaming else self._store
            self._rows(self.pointers, [], lambda pointers, row: store(stage, pointers, row))
        else:
            self._store(stage, self.pointers, ["0"] * self.function.kernel.row_rank)

    def _store(self, stage: Each | Once, pointers: list[str], row: list[str]) -> None:
        roots = [store.value for store in stage.stores]
        self._each_lane(pointers, row, lambda values: values.store(stage.stores), roots, stage.stores)

    def _store_streaming(self, stage: Each, pointers: list[str], row: list[str]) -> None:
        from weft.expr.llvm_streaming import through_arrays  # when first needed

        def compute(pointers: list[str]) -> None:
            self._store(stage, pointers, row)

        through_arrays(self.function, pointers, "0", self.length, LANES, compute)

    def _each_lane(
        self,
        pointers: list[str],
        row: list[str],
        body: Callable[[Values], None],
        roots: Sequence[Scalar] = (),
        stores: Sequence[Store] = (),
    ) -> None:
        """A loop over the lanes; roots: what body computes of the operands, stores: what it stores."""
        f = self.function
        group = f.mark("distinct !{}")
        once = f.unchanging(roots, stores, lanes=True)
        known: dict[int, str] = {}

        def enter() -> None:
            before = Values(f, pointers, [*self.positions, "0", *row], "0", "")
            for node in once:
                before[node]
            known.update(before.known)

        def lane(i: str) -> list[str]:
            place = f.emit(f"add nuw nsw i64 {self.begin}, {i}")
            body(Values(f, pointers, [*self.positions, place, *row], i, group, self.results, known))
            return []

        f.loop(self.length, lane, parallel=group, enter=enter if once else None)

    def _rows(
        self,
        pointers: list[str],
        row: list[str],
        body: Callable[[list[str], list[str]], None],
        reverse: bool = False,
    ) -> None:
        """The loops of a row around body."""
        f = self.function
        d = len(self.positions) + 1 + len(row)
        if d == f.kernel.rank:
            body(pointers, row)
            return

        def turn(i: str) -> list[str]:
            if reverse:
                i = f.emit(f"sub i64 {f.emit(f'sub i64 {f.sizes[d]}, 1')}, {i}")
            self._rows(f.advance(pointers, d, i), [*row, i], body, reverse)
            return []

        f.loop(f.sizes[d], turn)

    def _linear(self, row: list[str]) -> str:
        """The position in the row of positions of its loops."""
        f, place = self.function, row[0]
        for i, size in zip(row[1:], f.sizes[len(self.positions) + 2 :], strict=True):
            place = f.emit(f"add i64 {f.emit(f'mul i64 {place}, {size}')}, {i}")
        return place

    def _fold(self, stage: Fold) -> None:
        f = self.function
        sums = [
            (_LaneExtreme if reduction.op.startswith("arg") else _LaneSum)(f, reduction)
            for reduction in stage.reductions
        ]
        roots = [reduction.value for reduction in stage.reductions]

        def add(pointers: list[str], row: list[str]) -> None:
            place = self._linear(row) if any(isinstance(one, _LaneExtreme) for one in sums) else ""

            def lane(values: Values) -> None:
                news = [values[one.state.reduction.value] for one in sums]
                for one, new in zip(sums, news, strict=True):
                    one.add(values, new, place)

            self._each_lane(pointers, row, lane, roots)

        def each(step: Callable[[_LaneSum, Values], None]) -> Callable[[Values], None]:
            def body(values: Values) -> None:
                for one in sums:
                    step(one, values)

            return body

        self._each_lane(self.pointers, [], each(lambda one, values: one.begin(values)))
        blocked = any(one.state.wide for one in sums)
        begin_block = each(lambda one, values: one.begin_block(values))
        end_block = each(lambda one, values: one.end_block(values))
        self._fold_rows(self.pointers, [], blocked, begin_block, add, end_block)
        self._each_lane(self.pointers, [], each(lambda one, values: one.finish(values)))
        for one in sums:
            self.results[one.state.reduction.number] = one.result

    def _fold_rows(
        self,
        pointers: list[str],
        row: list[str],
        blocked: bool,
        begin_block: Callable[[Values], None],
        add: Callable[[list[str], list[str]], None],
        end_block: Callable[[Values], None],
    ) -> None:
        f = self.function
        d = len(self.positions) + 1 + len(row)
        if d < f.kernel.rank - 1:

            def turn(i: str) -> list[str]:
                moved = f.advance(pointers, d, i)
                self._fold_rows(moved, [*row, i], blocked, begin_block, add, end_block)
                return []

            f.loop(f.sizes[d], turn)
            return

        def block(begin: str, length: str) -> list[str]:
            if blocked:
                self._each_lane(pointers, [], begin_block)

            def element(j: str) -> list[str]:
                i = f.emit(f"add nuw nsw i64 {begin}, {j}")
                add(f.advance(pointers, d, i), [*row, i])
                return []

            f.loop(length, element)
            if blocked:
                self._each_lane(pointers, [], end_block)
            return []

        f.blocks(f.sizes[d], LANES_SUM_BLOCK, block)

    def _scan(self, stage: Scan) -> None:
        f = self.function
        states = [Accumulator(f, reduction) for reduction in stage.reductions]
        arrays = [f.array(state.total_dtype, LANES) for state in states]
        both = list(zip(states, arrays, strict=True))

        def begin(values: Values) -> None:
            for state, array in both:
                values.array_store(array, state.total_dtype, state.first)

        def step(values: Values) -> None:
            news = [values[state.reduction.value] for state in states]
            for (state, array), new in zip(both, news, strict=True):
                total = state.join(values.array_load(array, state.total_dtype), new)
                values.array_store(array, state.total_dtype, total)
                values.give(state.reduction, state.finish(total))
            values.store(stage.stores)

        roots = [state.reduction.value for state in states] + [store.value for store in stage.stores]
        self._each_lane(self.pointers, [], begin)
        self._rows(
            self.pointers,
            [],
            lambda pointers, row: self._each_lane(pointers, row, step, roots, stage.stores),
            stage.reverse,
        )


class _LaneSum:
    """One reduction of every lane: a total for the whole row, and a partial one for a block of it if that is wider."""

    def __init__(self, function: Function, reduction: Reduction) -> None:
        self.state = Accumulator(function, reduction)
        self.total = function.array(self.state.total_dtype, LANES)
        self.partial = function.array(self.state.dtype, LANES) if self.state.wide else self.total
        self.result = self.partial

    def begin(self, values: Values) -> None:
        values.array_store(self.total, self.state.total_dtype, self.state.first)

    def begin_block(self, values: Values) -> None:
        if self.state.wide:
            values.array_store(self.partial, self.state.dtype, self.state.neutral)

    def add(self, values: Values, new: str, place: str) -> None:
        old = values.array_load(self.partial, self.state.dtype)
        values.array_store(self.partial, self.state.dtype, self.state.combine(old, new))

    def end_block(self, values: Values) -> None:
        if self.state.wide:
            so_far = values.array_load(self.total, self.state.total_dtype)
            part = values.array_load(self.partial, self.state.dtype)
            values.array_store(self.total, self.state.total_dtype, self.state.join(so_far, part))

    def finish(self, values: Values) -> None:
        if self.state.wide:
            total = values.array_load(self.total, self.state.total_dtype)
            values.array_store(self.partial, self.state.dtype, self.state.finish(total))


class _LaneExtreme(_LaneSum):
    """argmax or argmin of every lane: the extreme until now, and its place in the row."""

    def __init__(self, function: Function, reduction: Reduction) -> None:
        super().__init__(function, reduction)
        self.result = function.array("int64", LANES)

    def begin(self, values: Values) -> None:
        super().begin(values)
        values.array_store(self.result, "int64", "0")

    def add(self, values: Values, new: str, place: str) -> None:
        f, state = values.function, self.state
        old = values.array_load(self.total, state.dtype)
        taken = better(f, state.op, state.dtype, new, old)
        extreme = f.emit(f"select i1 {taken}, {state.kind} {new}, {state.kind} {old}")
        values.array_store(self.total, state.dtype, extreme)
        before = values.array_load(self.result, "int64")
        values.array_store(self.result, "int64", f.emit(f"select i1 {taken}, i64 {place}, i64 {before}"))
