"""Short rows whose length is constant: all of a row is written out, in registers; the loop over rows becomes vectors.

How far operands move from row to row and in a row is constant, too, so LLVM reads whole vectors of neighbouring rows
and takes them apart. All that is loaded of a row comes before what is stored there, as LLVM could not find out that it
may.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.expr.kernel import Each, Fold, Once, Reduction, Scan, Store, parts, values
from weft.expr.llvm_function import Function, Values
from weft.expr.llvm_rows import Accumulator, better
from weft.expr.scalar import BITS

__all__ = ["print_short_rows"]


def print_short_rows(f: Function) -> None:
    """The loops before that of the rows, and in them that one."""
    f.nest(0, f.vector_loop, f.bases, [], lambda *at: _rows(f, *at))


def _rows(f: Function, pointers: list[str], positions: list[str]) -> None:
    group = f.mark("distinct !{}")
    roots = [value for stage in f.kernel.stages for value in values(stage)]
    stores = [part for stage in f.kernel.stages for part in parts(stage) if isinstance(part, Store)]
    rows = [_moved(f, pointers, k) for k in range(f.kernel.length)]
    hoisted = [
        f.hoist(pointers, [*positions, "0", str(k)], roots, stores, lanes=True)
        for k, pointers in enumerate(rows)
    ]

    def enter() -> None:
        for _, compute in hoisted:
            if compute:
                compute()

    def row(i: str) -> list[str]:
        f.results = {}
        _Row(
            f,
            [
                Values(f, pointers, [*positions, i, str(k)], i, group, computed=computed)
                for k, (pointers, (computed, _)) in enumerate(zip(rows, hoisted, strict=True))
            ],
        ).run()
        return []

    f.loop(f.sizes[f.vector_loop], row, parallel=group, enter=enter, chains=f.kernel.length)


def _moved(f: Function, pointers: list[str], k: int) -> list[str]:
    """The operands' pointers at position k of the row."""
    return [
        f.offset(pointer, f.emit(f"mul i64 {k}, {f.strides[j][-1]}"))
        if operand.along is None
        else f.offset(pointer, k * operand.along * max(BITS[operand.dtype], 8) // 8)
        for j, (pointer, operand) in enumerate(zip(pointers, f.kernel.operands, strict=True))
    ]


class _Row:
    """One row; at: the values at each of its positions."""

    def __init__(self, f: Function, at: list[Values]) -> None:
        self.f, self.at = f, at
        self.stores: list[Callable[[], None]] = []

    def run(self) -> None:
        for stage in self.f.kernel.stages:
            if isinstance(stage, Fold):
                for reduction in stage.reductions:
                    self.f.results[reduction.number] = self._folded(reduction)
            elif isinstance(stage, Scan):
                self._scan(stage)
            elif isinstance(stage, Once):
                self._store(self.at[0], stage.stores)
            else:
                assert isinstance(stage, Each)
                for at in self.at:
                    self._store(at, stage.stores)
        for store in self.stores:
            store()

    def _store(self, at: Values, stores: tuple[Store, ...]) -> None:
        news = [at[store.value] for store in stores]  # before loads give what is stored here
        self.stores += [
            at.put_later(store.operand, new, store.add) for store, new in zip(stores, news, strict=True)
        ]

    def _folded(self, reduction: Reduction) -> str:
        state = Accumulator(self.f, reduction)
        news = [at[reduction.value] for at in self.at]
        if state.position:
            return self._place(state, news)
        total = news[0]
        for new in news[1:]:
            total = state.combine(total, new)
        if reduction.op == "sum" and reduction.start == 0:
            return total
        return state.finish(state.join(state.first, total))

    def _place(self, state: Accumulator, news: list[str]) -> str:
        """Where the first extreme is."""
        best, place = news[0], "0"
        for k, new in enumerate(news[1:], 1):
            is_better = better(self.f, state.op, state.dtype, new, best)
            best = self.f.emit(f"select i1 {is_better}, {state.kind} {new}, {state.kind} {best}")
            place = self.f.emit(f"select i1 {is_better}, i64 {k}, i64 {place}")
        return place

    def _scan(self, stage: Scan) -> None:
        states = [Accumulator(self.f, reduction) for reduction in stage.reductions]
        totals = [state.first for state in states]
        for at in reversed(self.at) if stage.reverse else self.at:
            for k, state in enumerate(states):
                totals[k] = state.join(totals[k], at[state.reduction.value])
                at.set_result(state.reduction, state.finish(totals[k]))
            self._store(at, stage.stores)
