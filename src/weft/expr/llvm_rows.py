"""Rows one after the other: the innermost loop becomes vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from weft.expr.kernel import POSITIONS, Each, Fold, Reduction, Scan, Store
from weft.expr.llvm_function import Function, Values
from weft.expr.llvm_values import binary, combine_vectors, number
from weft.expr.llvm_writer import llvm_type
from weft.expr.scalar import BITS, FLOATS, Scalar

__all__ = ["SUM_BLOCK", "Accumulator", "better", "first_extreme", "print_rows"]

SUM_BLOCK = 4096  # elements of float32 that are summed in float32 before the sum goes on in float64
POSITION_BLOCK = 1024  # elements whose extreme is found before its place is looked for
SCAN_BLOCK = 1024  # elements that are scanned in the first-level cache


def print_rows(f: Function) -> None:
    """The loops before the row, and in them the stages."""
    _outer(f, 0, f.bases, [])


def _outer(f: Function, d: int, pointers: list[str], positions: list[str]) -> None:
    if d == f.kernel.rank - f.kernel.row_rank:
        _row(f, pointers, positions)
        return

    def body(i: str) -> list[str]:
        _outer(f, d + 1, f.advance(pointers, d, i), [*positions, i])
        return []

    f.loop(f.sizes[d], body)


def _row(f: Function, pointers: list[str], positions: list[str]) -> None:
    f.results = {}
    for stage in f.kernel.stages:
        if isinstance(stage, Each):
            _each(f, stage, pointers, positions)
        elif isinstance(stage, Fold):
            _fold(f, stage, pointers, positions)
        elif isinstance(stage, Scan):
            _RowScan(f, stage).run(pointers, positions)
        else:
            zeros = ["0"] * f.kernel.row_rank
            Values(f, pointers, [*positions, *zeros], "0", "").store(stage.stores)


def _each(f: Function, stage: Each, pointers: list[str], positions: list[str]) -> None:
    d = len(positions)
    if d == f.kernel.rank - 1:

        def element(values: Values, i: str) -> list[str]:
            values.store(stage.stores)
            return []

        roots = [store.value for store in stage.stores]
        innermost(f, f.sizes[d], pointers, positions, element, roots, stage.stores)
        return

    def turn(i: str) -> list[str]:
        _each(f, stage, f.advance(pointers, d, i), [*positions, i])
        return []

    f.loop(f.sizes[d], turn)


def innermost(
    f: Function,
    size: str,
    pointers: list[str],
    positions: list[str],
    body: Callable[[Values, str], list[str]],
    roots: Sequence[Scalar],
    stores: Iterable[Store] = (),
    *,
    place: Callable[[str], str] = lambda i: i,
    carried: Sequence[tuple[str, str]] = (),
) -> list[str]:
    """A loop that becomes vectors: turn i is at place(i) of the innermost loop. Parallel if it carries nothing.

    roots: what body will compute; of that, what does not change is computed before.
    """
    group = "" if carried else f.mark("distinct !{}")
    once = f.unchanging(roots, stores, lanes=False)
    known: dict[int, str] = {}

    def enter() -> None:
        before = Values(f, pointers, [*positions, "0"], "0", "")
        for node in once:
            before[node]
        known.update(before.known)

    def turn(i: str) -> list[str]:
        inner = place(i)
        return body(Values(f, pointers, [*positions, inner], inner, group, known=known), i)

    return f.loop(size, turn, carried, group, enter if once else None)


# Reductions.


class Accumulator:
    """How one reduction goes on: inside a block in its own type, from block to block perhaps in a wider one."""

    def __init__(self, function: Function, reduction: Reduction) -> None:
        self.function, self.reduction = function, reduction
        self.dtype = reduction.value.dtype
        self.op = {"argmax": "max", "argmin": "min"}.get(reduction.op, reduction.op)
        self.position = reduction.op in POSITIONS
        self.wide = reduction.op == "sum" and self.dtype == "float32"
        self.total_dtype = "float64" if self.wide else self.dtype
        self.kind, self.partial_kind = llvm_type(self.total_dtype), llvm_type(self.dtype)
        start = first_extreme(self.op, self.dtype) if self.position else reduction.start
        self.first = number(start, self.total_dtype)
        # Sums and products begin each block anew; max and min may meet their start again and again.
        self.neutral = number({"sum": 0, "prod": 1}.get(self.op, start), self.dtype)
        # What goes from block to block: the total, or an extreme and where its block begins.
        self.carried = [(self.kind, self.first)] + [("i64", "0")] * self.position

    def combine(self, a: str, b: str, dtype: str = "") -> str:
        dtype = dtype or self.dtype
        op = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}[self.op]
        if op in ("add", "mul") and dtype in FLOATS:
            return self.function.emit(f"f{op} reassoc nsz {llvm_type(dtype)} {a}, {b}")
        return binary(self.function, op, dtype, a, b)

    def join(self, total: str, part: str) -> str:
        if self.total_dtype != self.dtype:
            part = self.function.emit(f"fpext float {part} to double")
        return self.combine(total, part, self.total_dtype)

    def finish(self, total: str) -> str:
        if self.total_dtype == self.dtype:
            return total
        return self.function.emit(f"fptrunc double {total} to float")


def first_extreme(op: str, dtype: str) -> float | int:
    """What no value is better than."""
    if dtype in FLOATS:
        return float("-inf") if op == "max" else float("inf")
    bits, signed = BITS[dtype], not dtype.startswith("u")
    least = -(1 << bits - 1) if signed else 0
    return least if op == "max" else least + (1 << bits) - 1


def better(f: Function, op: str, dtype: str, new: str, old: str) -> str:
    """Whether new takes old's place as the extreme: it is larger (smaller), or the first NaN."""
    kind = llvm_type(dtype)
    sign = "g" if op == "max" else "l"
    if dtype not in FLOATS:
        return f.emit(f"icmp {'u' if dtype.startswith('u') else 's'}{sign}t {kind} {new}, {old}")
    beyond = f.emit(f"fcmp u{sign}t {kind} {new}, {old}")
    return f.emit(f"and i1 {beyond}, {f.emit(f'fcmp ord {kind} {old}, {old}')}")


def _fold(f: Function, stage: Fold, pointers: list[str], positions: list[str]) -> None:
    states = [Accumulator(f, reduction) for reduction in stage.reductions]
    carried = [one for state in states for one in state.carried]
    finals = _fold_loops(f, states, pointers, positions, [first for _, first in carried])
    found = {}
    for state in states:
        total = finals.pop(0)
        if state.position:
            found[state.reduction.number] = _find(f, state, total, finals.pop(0), pointers, positions)
        else:
            found[state.reduction.number] = state.finish(total)
    f.results.update(found)


def _fold_loops(
    f: Function, states: list[Accumulator], pointers: list[str], positions: list[str], totals: list[str]
) -> list[str]:
    d = len(positions)
    kinds = [kind for state in states for kind, _ in state.carried]
    carried = list(zip(kinds, totals, strict=True))
    if d < f.kernel.rank - 1:

        def turn(i: str) -> list[str]:
            inside = list(f.carried)
            return _fold_loops(f, states, f.advance(pointers, d, i), [*positions, i], inside)

        return f.loop(f.sizes[d], turn, carried)

    # The innermost loop in blocks: each is folded from its start, then joins the total.
    roots = [state.reduction.value for state in states]
    positional = any(state.position for state in states)

    def block(begin: str, length: str) -> list[str]:
        so_far = list(f.carried)

        def element(values: Values, j: str) -> list[str]:
            partial = f.carried
            return [
                state.combine(value, values[root])
                for state, value, root in zip(states, partial, roots, strict=True)
            ]

        partials = innermost(
            f,
            length,
            pointers,
            positions,
            element,
            roots,
            place=lambda j: f.emit(f"add nuw nsw i64 {begin}, {j}"),
            carried=[(state.partial_kind, state.neutral) for state in states],
        )
        place = _linear(f, [*positions[f.kernel.rank - f.kernel.row_rank :], begin]) if positional else ""
        following = []
        for state, part in zip(states, partials, strict=True):
            total = so_far.pop(0)
            if state.position:
                taken = better(f, state.op, state.dtype, part, total)
                following.append(f.emit(f"select i1 {taken}, {state.kind} {part}, {state.kind} {total}"))
                following.append(f.emit(f"select i1 {taken}, i64 {place}, i64 {so_far.pop(0)}"))
            else:
                following.append(state.join(total, part))
        return following

    return f.blocks(f.sizes[d], POSITION_BLOCK if positional else SUM_BLOCK, block, carried)


def _linear(f: Function, row: list[str]) -> str:
    """The position in the row of positions of its loops."""
    place = row[0]
    for i, size in zip(row[1:], f.sizes[f.kernel.rank - f.kernel.row_rank + 1 :], strict=True):
        place = f.emit(f"add i64 {f.emit(f'mul i64 {place}, {size}')}, {i}")
    return place


def _find(
    f: Function, state: Accumulator, extreme: str, block: str, pointers: list[str], positions: list[str]
) -> str:
    """The position of the extreme, which is in the block that begins at this position of the row."""
    first, last = len(positions), f.kernel.rank - 1
    f.declared["llvm.smax.i64"] = "declare i64 @llvm.smax.i64(i64, i64)"
    row, rest, begin = [], block, block
    for d in range(last, first, -1):
        size = f.emit(f"call i64 @llvm.smax.i64(i64 {f.sizes[d]}, i64 1)")
        row.append(f.emit(f"urem i64 {rest}, {size}"))
        rest = f.emit(f"udiv i64 {rest}, {size}")
    row = [rest, *reversed(row)]
    begin = row.pop()
    length = f.smaller(f.emit(f"sub i64 {f.sizes[last]}, {begin}"), POSITION_BLOCK)
    for size in f.sizes[first:last]:  # nothing is read in an empty row
        length = f.emit(f"select i1 {f.emit(f'icmp eq i64 {size}, 0')}, i64 0, i64 {length}")
    for d, i in enumerate(row, first):
        pointers = f.advance(pointers, d, i)
    f.declared["llvm.umin.i32"] = "declare i32 @llvm.umin.i32(i32, i32)"
    kind, value = state.kind, state.reduction.value

    def element(values: Values, j: str) -> list[str]:
        (so_far,) = f.carried
        x = values[value]
        if state.dtype in FLOATS:
            same, nan = f.emit(f"fcmp oeq {kind} {x}, {extreme}"), f.emit(f"fcmp uno {kind} {x}, {x}")
            found = f.emit(f"or i1 {same}, {nan}")
        else:
            found = f.emit(f"icmp eq {kind} {x}, {extreme}")
        mine = f.emit(f"select i1 {found}, i32 {f.emit(f'trunc i64 {j} to i32')}, i32 {POSITION_BLOCK}")
        return [f.emit(f"call i32 @llvm.umin.i32(i32 {so_far}, i32 {mine})")]

    (offset,) = innermost(
        f,
        length,
        pointers,
        [*positions, *row],
        element,
        [value],
        place=lambda j: f.emit(f"add nuw nsw i64 {begin}, {j}"),
        carried=[("i32", str(POSITION_BLOCK))],
    )
    there = f.emit(f"icmp ult i32 {offset}, {POSITION_BLOCK}")
    place = f.emit(f"add i64 {block}, {f.emit(f'zext i32 {offset} to i64')}")
    return f.emit(f"select i1 {there}, i64 {place}, i64 0")


# Scans.


class _RowScan:
    """A row in blocks that fit the cache: the values into arrays, these scanned by vectors, then the stores."""

    def __init__(self, f: Function, stage: Scan) -> None:
        self.f, self.stage = f, stage
        self.states = [Accumulator(f, reduction) for reduction in stage.reductions]
        self.lanes = [8 if BITS[state.dtype] == 64 else 16 for state in self.states]
        self.arrays = [
            f.array(state.dtype, SCAN_BLOCK + lanes)
            for state, lanes in zip(self.states, self.lanes, strict=True)
        ]

    def run(self, pointers: list[str], positions: list[str]) -> None:
        self._loops(pointers, positions, [state.first for state in self.states])

    def _turned(self, d: int, i: str) -> str:
        """Turn i of loop d as a position."""
        if not self.stage.reverse:
            return i
        return self.f.emit(f"sub i64 {self.f.emit(f'sub i64 {self.f.sizes[d]}, 1')}, {i}")

    def _loops(self, pointers: list[str], positions: list[str], totals: list[str]) -> list[str]:
        f, d = self.f, len(positions)
        carried = [(state.kind, total) for state, total in zip(self.states, totals, strict=True)]
        if d < f.kernel.rank - 1:

            def turn(i: str) -> list[str]:
                inside, place = list(f.carried), self._turned(d, i)
                return self._loops(f.advance(pointers, d, place), [*positions, place], inside)

            return f.loop(f.sizes[d], turn, carried)
        return f.blocks(
            f.sizes[d], SCAN_BLOCK, lambda *block: self._block(pointers, positions, *block), carried
        )

    def _block(self, pointers: list[str], positions: list[str], begin: str, length: str) -> list[str]:
        f, stage, d = self.f, self.stage, len(positions)
        totals = list(f.carried)
        roots = [state.reduction.value for state in self.states]

        def place(j: str) -> str:
            return self._turned(d, f.emit(f"add nuw nsw i64 {begin}, {j}"))

        def read(values: Values, j: str) -> list[str]:
            for state, array in zip(self.states, self.arrays, strict=True):
                values.array_store(array, state.dtype, values[state.reduction.value], j)
            return []

        innermost(f, length, pointers, positions, read, roots, place=place)
        combined = []
        for state, array, lanes, total in zip(self.states, self.arrays, self.lanes, totals, strict=True):
            combined.append(self._scan(state, array, lanes, total, length))

        def write(values: Values, j: str) -> list[str]:
            for state, array in zip(self.states, self.arrays, strict=True):
                values.give(state.reduction, values.array_load(array, state.dtype, j))
            values.store(stage.stores)
            return []

        stored = [store.value for store in stage.stores]
        innermost(f, length, pointers, positions, write, stored, stage.stores, place=place)
        return combined

    def _scan(self, state: Accumulator, array: str, lanes: int, total: str, length: str) -> str:
        """Scans the array in place, vector by vector, and gives the new total."""
        f, dtype = self.f, state.dtype
        kind = llvm_type(dtype)
        vector = f"<{lanes} x {kind}>"
        # -0 + x is x for every x, and LLVM shuffles zeros in by slow instructions.
        minus_zero = state.op == "sum" and dtype in FLOATS
        neutral = self._splat(kind, lanes, number(-0.0, dtype) if minus_zero else state.neutral)
        after = f.emit(f"getelementptr {kind}, ptr {array}, i64 {length}")  # to the end of the last vector
        f.lines.append(f"  store {vector} {neutral}, ptr {after}, align {BITS[dtype] // 8}")
        count = f.emit(f"udiv i64 {f.emit(f'add i64 {length}, {lanes - 1}')}, {lanes}")

        def turn(v: str) -> list[str]:
            (so_far,) = f.carried
            address = f.emit(f"getelementptr {vector}, ptr {array}, i64 {v}")
            x = f.emit(f"load {vector}, ptr {address}, align {BITS[dtype] // 8 * lanes}")
            step = 1
            while step < lanes:
                mask = ", ".join(f"i32 {k - step if k >= step else lanes}" for k in range(lanes))
                moved = f.emit(f"shufflevector {vector} {x}, {vector} {neutral}, <{lanes} x i32> <{mask}>")
                x = combine_vectors(f, state.op, dtype, lanes, moved, x)
                step *= 2
            last = f.emit(f"extractelement {vector} {x}, i64 {lanes - 1}")
            x = combine_vectors(f, state.op, dtype, lanes, self._splat(kind, lanes, state.finish(so_far)), x)
            f.lines.append(f"  store {vector} {x}, ptr {address}, align {BITS[dtype] // 8 * lanes}")
            if state.op in ("sum", "prod") or dtype not in FLOATS:
                return [state.join(so_far, last)]
            taken = better(f, state.op, dtype, last, so_far)
            return [f.emit(f"select i1 {taken}, {kind} {last}, {kind} {so_far}")]

        return f.loop(count, turn, [(state.kind, total)])[0]

    def _splat(self, kind: str, lanes: int, value: str) -> str:
        one = self.f.emit(f"insertelement <{lanes} x {kind}> poison, {kind} {value}, i64 0")
        return self.f.emit(
            f"shufflevector <{lanes} x {kind}> {one}, <{lanes} x {kind}> poison, <{lanes} x i32> zeroinitializer"
        )
