"""Code for rows side by side: a stage's values of each row are in an array on the stack; the lanes become vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.expr.kernel import Each, Fold, Once, Reduction, Scan, Stage, Store, parts, values, with_parts
from weft.expr.llvm_function import Function, Values
from weft.expr.llvm_rows import Accumulator, better
from weft.expr.scalar import Scalar, result, substitute, walk

__all__ = ["LANES", "LANES_SUM_BLOCK", "print_lanes"]

LANES = 1024  # rows side by side: their sums fill a part of the first-level cache
LANES_SUM_BLOCK = 32  # the same as SUM_BLOCK, where every lane adds one element after the other


def print_lanes(f: Function) -> None:
    """The loops before that of the lanes, and in them blocks of lanes."""

    def body(pointers: list[str], positions: list[str]) -> None:
        def block(begin: str, length: str) -> list[str]:
            rows = _Lanes(f, f.advance(pointers, f.vector_loop, begin), positions, begin, length)
            for stage in f.kernel.stages:
                rows.run(stage)
            return []

        f.blocks(f.sizes[f.vector_loop], LANES, block)

    f.nest(0, f.vector_loop, f.bases, [], body)


class _Lanes:
    """Up to LANES rows side by side: every stage loops over the row outside and over the lanes inside."""

    def __init__(
        self, function: Function, pointers: list[str], positions: list[str], begin: str, length: str
    ) -> None:
        self.function, self.pointers, self.positions = function, pointers, positions
        self.begin, self.length = begin, length
        self.results: dict[int, str] = {}  # arrays

    def run(self, stage: Stage) -> None:
        if not isinstance(stage, Once):
            stage = self._with_numbers_of_rows(stage)
        if isinstance(stage, Fold):
            self._fold(stage)
        elif isinstance(stage, Scan):
            self._scan(stage)
        elif isinstance(stage, Each):
            streams = self.function.kernel.streaming_operands & {store.operand for store in stage.stores}
            store = self._store_streaming if streams else self._store
            self._rows(lambda pointers, row: store(stage, pointers, row))
        else:
            assert isinstance(stage, Once)
            self._store(stage, self.pointers, ["0"] * self.function.kernel.row_rank)

    def _with_numbers_of_rows(self, stage: Stage) -> Stage:
        """The stage with results in place of what it computes of results alone: that is done once for a row."""
        scanned = {r.number for r in stage.reductions} if isinstance(stage, Scan) else set()
        fixed: set[int] = set()  # by id: what is the same along a row
        ours: dict[int, Scalar] = {}  # of these, what follows from results and is not one itself
        asked: list[Scalar] = [*values(stage)]  # what is needed at each element
        for node in walk(*asked):
            if node.op in ("constant", "parameter") or (node.op == "result" and node.value not in scanned):
                fixed.add(id(node))
            elif node.args and fixed.issuperset(map(id, node.args)):
                fixed.add(id(node))
                if any(arg.op == "result" or id(arg) in ours for arg in node.args):
                    ours[id(node)] = node
            else:
                asked += node.args
        wanted = set(map(id, asked))
        whole = [node for key, node in ours.items() if key in wanted and node.dtype != "bool"]
        if not whole:
            return stage
        reductions = [p for s in self.function.kernel.stages for p in parts(s) if isinstance(p, Reduction)]
        first = 1 + max(*self.results, *(r.number for r in reductions))
        numbers = {id(node): result(first + k, node.dtype) for k, node in enumerate(whole)}
        arrays = [self.function.array(node.dtype, LANES) for node in whole]

        def compute(at: Values) -> None:
            for node, array in zip(whole, arrays, strict=True):
                at.array_store(array, node.dtype, at[node])

        self._each_lane(self.pointers, [], compute)
        self.results.update((first + k, array) for k, array in enumerate(arrays))

        def less(root: Scalar) -> Scalar:
            return substitute(root, lambda part: part, dict(numbers))

        return with_parts(
            stage,
            lambda r: Reduction(r.number, r.op, less(r.value), r.start),
            lambda s: Store(s.operand, less(s.value), s.add, tuple(map(less, s.at))),
        )

    def _store(self, stage: Each | Once, pointers: list[str], row: list[str]) -> None:
        roots = [store.value for store in stage.stores]
        self._each_lane(pointers, row, lambda values: values.store(stage.stores), roots, stage.stores)

    def _store_streaming(self, stage: Each, pointers: list[str], row: list[str]) -> None:
        from weft.expr.llvm_streaming import through_arrays  # when first needed

        def compute(pointers: list[str]) -> None:
            self._store(stage, pointers, row)

        through_arrays(self.function, stage, pointers, "0", self.length, LANES, compute)

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
        computed, enter = f.hoist(pointers, [*self.positions, "0", *row], roots, stores, lanes=True)

        def lane(i: str) -> list[str]:
            position = f.emit(f"add nuw nsw i64 {self.begin}, {i}")
            body(Values(f, pointers, [*self.positions, position, *row], i, group, self.results, computed))
            return []

        f.loop(self.length, lane, parallel=group, enter=enter)

    def _rows(
        self, body: Callable[[list[str], list[str]], None], reverse: bool = False, innermost: bool = True
    ) -> None:
        """The loops of a row around body(pointers, row); innermost: with the last one."""
        f = self.function
        f.nest(f.vector_loop + 1, f.kernel.rank - (not innermost), self.pointers, [], body, reverse)

    def _fold(self, stage: Fold) -> None:
        f = self.function
        sums = [
            (_LaneExtreme if reduction.op.startswith("arg") else _LaneSum)(f, reduction)
            for reduction in stage.reductions
        ]
        roots = [reduction.value for reduction in stage.reductions]

        def add(pointers: list[str], row: list[str]) -> None:
            position = f.row_position(row) if any(isinstance(one, _LaneExtreme) for one in sums) else ""

            def lane(values: Values) -> None:
                news = [values[one.state.reduction.value] for one in sums]
                for one, new in zip(sums, news, strict=True):
                    one.add(values, new, position)

            self._each_lane(pointers, row, lane, roots)

        def each(step: Callable[[_LaneSum, Values], None]) -> Callable[[Values], None]:
            def body(values: Values) -> None:
                for one in sums:
                    step(one, values)

            return body

        def fold(pointers: list[str], row: list[str]) -> None:
            """The innermost loop, in blocks."""

            def block(begin: str, length: str) -> list[str]:
                if blocked:
                    self._each_lane(pointers, [], each(lambda one, values: one.begin_block(values)))

                def element(j: str) -> list[str]:
                    i = f.emit(f"add nuw nsw i64 {begin}, {j}")
                    add(f.advance(pointers, f.kernel.rank - 1, i), [*row, i])
                    return []

                f.loop(length, element)
                if blocked:
                    self._each_lane(pointers, [], each(lambda one, values: one.end_block(values)))
                return []

            f.blocks(f.sizes[-1], LANES_SUM_BLOCK, block)

        self._each_lane(self.pointers, [], each(lambda one, values: one.begin(values)))
        blocked = any(one.state.wide for one in sums)
        self._rows(fold, innermost=False)
        self._each_lane(self.pointers, [], each(lambda one, values: one.finish(values)))
        for one in sums:
            self.results[one.state.reduction.number] = one.result

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
                old = f.emit(
                    f"freeze {state.kind} {values.array_load(array, state.total_dtype)}"
                )  # see _LaneSum
                total = state.join(old, new)
                values.array_store(array, state.total_dtype, total)
                values.set_result(state.reduction, state.finish(total))
            values.store(stage.stores)

        roots = [state.reduction.value for state in states] + [store.value for store in stage.stores]
        self._each_lane(self.pointers, [], begin)
        self._rows(
            lambda pointers, row: self._each_lane(pointers, row, step, roots, stage.stores), stage.reverse
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

    def add(self, values: Values, new: str, position: str) -> None:
        old = values.array_load(self.partial, self.state.dtype)
        # New first: where an extreme may stay old, LLVM stores under a mask, which AVX2 does slowly.
        values.array_store(self.partial, self.state.dtype, self.state.combine(new, old))

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
    """argmax or argmin of every lane: the extreme until now, and its position in the row."""

    def __init__(self, function: Function, reduction: Reduction) -> None:
        super().__init__(function, reduction)
        self.result = function.array("int64", LANES)

    def begin(self, values: Values) -> None:
        super().begin(values)
        values.array_store(self.result, "int64", "0")

    def add(self, values: Values, new: str, position: str) -> None:
        f, state = values.function, self.state
        old = values.array_load(self.total, state.dtype)
        is_better = better(f, state.op, state.dtype, new, old)
        old = f.emit(f"freeze {state.kind} {old}")
        extreme = f.emit(f"select i1 {is_better}, {state.kind} {new}, {state.kind} {old}")
        values.array_store(self.total, state.dtype, extreme)
        before = f.emit(f"freeze i64 {values.array_load(self.result, 'int64')}")  # as above
        values.array_store(
            self.result, "int64", f.emit(f"select i1 {is_better}, i64 {position}, i64 {before}")
        )
