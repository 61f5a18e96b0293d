"""Rows one after the other: the innermost loop becomes vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from weft.expr.kernel import POSITIONS, Each, Fold, Reduction, Scan, Store
from weft.expr.llvm_function import Function, Values
from weft.expr.llvm_values import binary, combine_vectors, number, splat
from weft.expr.llvm_writer import llvm_type
from weft.expr.scalar import BITS, COMPLEX, FLOATS, Scalar, walk

__all__ = ["STAGED_BLOCK", "SUM_BLOCK", "Accumulator", "apart", "better", "first_extreme", "print_rows"]

SUM_BLOCK = 4096  # elements of float32 that are summed in float32 before the sum goes on in float64
POSITION_BLOCK = 1024  # elements whose extreme is found before its index is searched
SCAN_BLOCK = 1024  # elements that are scanned in the first-level cache
STAGED_BLOCK = 512  # elements that are copied there, as they are apart in memory
STAGED_WORTH = 8  # operations on an element, at least
STAGED_DEAR = ("div", "sqrt")  # each is worth it by itself
STREAMING_BLOCK = 1024  # elements that are computed there before they are stored past the cache


def print_rows(f: Function) -> None:
    """The loops before the row, and in them the stages."""
    f.nest(0, f.kernel.rank - f.kernel.row_rank, f.bases, [], lambda *at: _row(f, *at))


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
    operands = apart(f, [store.value for store in stage.stores], stage.stores)

    def body(pointers: list[str], positions: list[str]) -> None:
        if f.kernel.streaming_operands & {store.operand for store in stage.stores}:
            _stream_row(f, stage, pointers, positions)
        elif operands:
            _stage_row(f, stage, operands, pointers, positions)
        else:
            _store_row(f, stage, pointers, positions)

    f.nest(len(positions), f.kernel.rank - 1, pointers, positions, body)


def _store_row(
    f: Function, stage: Each, pointers: list[str], positions: list[str], begin: str = "", size: str = ""
) -> None:
    """The innermost loop of an Each; begin, size: of a part of it."""

    def element(values: Values, i: str) -> list[str]:
        values.store(stage.stores)
        return []

    def position(j: str) -> str:
        return f.emit(f"add nuw nsw i64 {begin}, {j}") if begin else j

    roots = [store.value for store in stage.stores]
    innermost(f, size or f.sizes[-1], pointers, positions, element, roots, stage.stores, position=position)


def _stream_row(f: Function, stage: Each, pointers: list[str], positions: list[str]) -> None:
    from weft.expr.llvm_streaming import through_arrays  # when first needed

    def block(begin: str, length: str) -> list[str]:
        def compute(pointers: list[str]) -> None:
            _store_row(f, stage, pointers, positions, begin, length)

        through_arrays(f, stage, pointers, begin, length, STREAMING_BLOCK, compute)
        return []

    f.blocks(f.sizes[-1], STREAMING_BLOCK, block)


def apart(f: Function, roots: Sequence[Scalar], stores: Iterable[Store] = ()) -> dict[int, tuple[bool, bool]]:
    """The operands that go through arrays: whether each is read, and whether it is written."""
    nodes = walk(*roots)
    if sum(STAGED_WORTH if node.op in STAGED_DEAR else bool(node.args) for node in nodes) < STAGED_WORTH:
        return {}
    stores = list(stores)
    gathered = {node.value for node in nodes if node.op == "load_at"}
    read = {node.value for node in nodes if node.op == "load"} | {s.operand for s in stores if s.add}
    written = {store.operand for store in stores}
    far = {k for k, x in enumerate(f.kernel.operands) if x.inner == "any"} - gathered
    return {k: (k in read, k in written) for k in sorted(far & (read | written))}


def _stage_row(
    f: Function,
    stage: Each,
    operands: dict[int, tuple[bool, bool]],
    pointers: list[str],
    positions: list[str],
) -> None:
    from weft.expr.llvm_staging import staged  # when first needed

    def block(begin: str, length: str) -> list[str]:
        def compute(pointers: list[str]) -> list[str]:
            _store_row(f, stage, pointers, positions, begin, length)
            return []

        return staged(f, operands, pointers, positions, begin, length, STAGED_BLOCK, compute)

    f.blocks(f.sizes[-1], STAGED_BLOCK, block)


def innermost(
    f: Function,
    size: str,
    pointers: list[str],
    positions: list[str],
    body: Callable[[Values, str], list[str]],
    roots: Sequence[Scalar],
    stores: Iterable[Store] = (),
    *,
    position: Callable[[str], str] = lambda i: i,
    carried: Sequence[tuple[str, str]] = (),
) -> list[str]:
    """A loop that becomes vectors: turn i is at position(i) of the innermost loop. Parallel if it carries nothing.

    roots: what body will compute; of that, what does not change is computed before.
    """
    group = "" if carried else f.mark("distinct !{}")
    computed, enter = f.hoist(pointers, [*positions, "0"], roots, stores, lanes=False)

    def turn(i: str) -> list[str]:
        inner = position(i)
        return body(Values(f, pointers, [*positions, inner], inner, group, computed=computed), i)

    return f.loop(size, turn, carried, group, enter)


# Reductions.


class Accumulator:
    """How one reduction goes on: inside a block in its own type, from block to block perhaps in a wider one."""

    def __init__(self, function: Function, reduction: Reduction) -> None:
        self.function, self.reduction = function, reduction
        self.dtype = reduction.value.dtype
        self.op = {"argmax": "max", "argmin": "min"}.get(reduction.op, reduction.op)
        self.position = reduction.op in POSITIONS
        self.wide = reduction.op == "sum" and self.dtype == "float32"
        self.flags = "reassoc nsz contract" if reduction.value.op == "product" else "reassoc nsz"
        self.total_dtype = "float64" if self.wide else self.dtype
        self.kind, self.partial_kind = llvm_type(self.total_dtype), llvm_type(self.dtype)
        start = first_extreme(self.op, self.dtype) if self.position else reduction.start
        self.first = number(start, self.total_dtype)
        # Sums and products start again at each block; max and min may meet their start repeatedly.
        self.neutral = number({"sum": 0, "prod": 1}.get(self.op, start), self.dtype)
        # What goes from block to block: the total, or an extreme and where its block begins.
        self.carried = [(self.kind, self.first)] + [("i64", "0")] * self.position

    def combine(self, a: str, b: str, dtype: str = "") -> str:
        dtype = dtype or self.dtype
        op = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}[self.op]
        if dtype in COMPLEX:
            return self.function.complex_product(dtype, a, b)
        if op in ("add", "mul") and dtype in FLOATS:
            return self.function.emit(f"f{op} {self.flags} {llvm_type(dtype)} {a}, {b}")
        if (
            dtype in FLOATS
        ):  # of zeros with different signs either: ordering them takes three instructions more
            return self.function.intrinsic(op, dtype, [a, b], flags="nsz ")
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
    """Whether new replaces old as the extreme: it is larger (smaller), or the first NaN."""
    kind = llvm_type(dtype)
    sign = "g" if op == "max" else "l"
    if dtype not in FLOATS:
        return f.emit(f"icmp {'u' if dtype.startswith('u') else 's'}{sign}t {kind} {new}, {old}")
    beyond = f.emit(f"fcmp u{sign}t {kind} {new}, {old}")
    return f.emit(f"and i1 {beyond}, {f.emit(f'fcmp ord {kind} {old}, {old}')}")


def _fold(f: Function, stage: Fold, pointers: list[str], positions: list[str]) -> None:
    states = [Accumulator(f, reduction) for reduction in stage.reductions]
    extremes = {id(state): _Extreme(f, state) for state in states if state.position}
    carried = [one for state in states for one in state.carried]
    finals = _fold_loops(f, states, extremes, pointers, positions, [first for _, first in carried])
    for state in states:
        total = finals.pop(0)
        f.results[state.reduction.number] = finals.pop(0) if state.position else state.finish(total)


def _fold_loops(
    f: Function,
    states: list[Accumulator],
    extremes: dict[int, _Extreme],
    pointers: list[str],
    positions: list[str],
    totals: list[str],
) -> list[str]:
    d = len(positions)
    kinds = [kind for state in states for kind, _ in state.carried]
    carried = list(zip(kinds, totals, strict=True))
    if d < f.kernel.rank - 1:

        def turn(i: str) -> list[str]:
            inside = list(f.carried)
            return _fold_loops(f, states, extremes, f.advance(pointers, d, i), [*positions, i], inside)

        return f.loop(f.sizes[d], turn, carried)

    # The innermost loop in blocks: each is folded from its start, then joins the total.
    roots = [state.reduction.value for state in states]
    combined = [state for state in states if not state.position]
    operands = apart(f, roots)

    def block(begin: str, length: str) -> list[str]:
        so_far = list(f.carried)

        def element(values: Values, j: str) -> list[str]:
            partial = f.carried
            news = [values[root] for root in roots]
            for state, new in zip(states, news, strict=True):
                if state.position:
                    values.array_store(extremes[id(state)].array, state.dtype, new, j)
            rest = [new for state, new in zip(states, news, strict=True) if not state.position]
            return [state.combine(a, b) for state, a, b in zip(combined, partial, rest, strict=True)]

        def folded(pointers: list[str]) -> list[str]:
            return innermost(
                f,
                length,
                pointers,
                positions,
                element,
                roots,
                position=lambda j: f.emit(f"add nuw nsw i64 {begin}, {j}"),
                carried=[(state.partial_kind, state.neutral) for state in combined],
            )

        if operands:
            from weft.expr.llvm_staging import staged  # when first needed

            partials = staged(f, operands, pointers, positions, begin, length, STAGED_BLOCK, folded)
        else:
            partials = folded(pointers)
        first = f.row_position([*positions[f.kernel.rank - f.kernel.row_rank :], begin]) if extremes else ""
        following = []
        for state in states:
            total = so_far.pop(0)
            if state.position:
                following += extremes[id(state)].join(total, so_far.pop(0), first, length)
            else:
                following.append(state.join(total, partials.pop(0)))
        return following

    most = STAGED_BLOCK if operands else POSITION_BLOCK if extremes else SUM_BLOCK
    return f.blocks(f.sizes[d], most, block, carried)


class _Extreme:
    """argmax or argmin of a block that is in an array: the extreme by vectors, then its index if it is the best."""

    WAYS = 4  # vectors that are compared independently

    def __init__(self, f: Function, state: Accumulator) -> None:
        self.f, self.state = f, state
        self.bits = BITS[state.dtype]
        self.lanes = 512 // self.bits
        self.vector = f"<{self.lanes} x {state.kind}>"
        self.truths = f"<{self.lanes} x i1>"
        self.array = f.array(state.dtype, POSITION_BLOCK + self.WAYS * self.lanes)

    def join(self, best: str, index: str, begin: str, length: str) -> list[str]:
        """The best until now and its index, after a block that begins at this position of the row."""
        f, state = self.f, self.state
        extreme = self._of_block(length)
        is_better = better(f, state.op, state.dtype, extreme, best)
        old = [(state.kind, best), ("i64", index)]
        return f.replaced(
            is_better, lambda: [extreme, f.emit(f"add i64 {begin}, {self._search(extreme)}")], old
        )

    def _load(self, number: str) -> str:
        address = self.f.emit(f"getelementptr {self.vector}, ptr {self.array}, i64 {number}")
        return self.f.emit(f"load {self.vector}, ptr {address}, align 64")

    def _of_block(self, length: str) -> str:
        """The extreme of the array's values; NaN if one is."""
        f, state, floating = self.f, self.state, self.state.dtype in FLOATS
        neutral = splat(f, state.kind, self.lanes, state.neutral)
        for way in range(self.WAYS):  # behind the last value
            after = f.emit(f"getelementptr {state.kind}, ptr {self.array}, i64 {length}")
            after = f.emit(f"getelementptr {self.vector}, ptr {after}, i64 {way}")
            f.lines.append(f"  store {self.vector} {neutral}, ptr {after}, align {self.bits // 8}")
        step = self.WAYS * self.lanes
        count = f.emit(f"udiv i64 {f.emit(f'add i64 {length}, {step - 1}')}, {step}")

        def turn(v: str) -> list[str]:
            before = list(f.carried)
            first = f.emit(f"mul i64 {v}, {self.WAYS}")
            xs = [self._load(f.emit(f"add i64 {first}, {way}")) for way in range(self.WAYS)]
            following = [self._combine(x, m) for x, m in zip(xs, before, strict=False)]
            if floating:
                nan = before[-1]
                for a, b in zip(xs[::2], xs[1::2], strict=True):
                    nan = f.emit(f"or {self.truths} {nan}, {f.emit(f'fcmp uno {self.vector} {a}, {b}')}")
                following.append(nan)
            return following

        carried = [(self.vector, neutral)] * self.WAYS
        nans = [(self.truths, "zeroinitializer")] * floating
        partials = f.loop(count, turn, [*carried, *nans])
        total = partials[0]
        for other in partials[1 : self.WAYS]:
            total = self._combine(other, total)
        sign = "f" if floating else "u" if state.dtype.startswith("u") else "s"
        suffix = f"v{self.lanes}{'f' if floating else 'i'}{self.bits}"
        extreme = f.reduce(f"{sign}{state.op}.{suffix}", state.kind, self.vector, total)
        if not floating:
            return extreme
        any_nan = f.reduce(f"or.v{self.lanes}i1", "i1", self.truths, partials[-1])
        nan_value = number(float("nan"), state.dtype)
        return f.emit(f"select i1 {any_nan}, {state.kind} {nan_value}, {state.kind} {extreme}")

    def _combine(self, new: str, old: str) -> str:
        """The better of each pair; old if one is NaN."""
        f, state = self.f, self.state
        if state.dtype not in FLOATS:
            return combine_vectors(f, state.op, state.dtype, self.lanes, new, old)
        beyond = f.emit(f"fcmp o{'g' if state.op == 'max' else 'l'}t {self.vector} {new}, {old}")
        return f.emit(f"select {self.truths} {beyond}, {self.vector} {new}, {self.vector} {old}")

    def _search(self, extreme: str) -> str:
        """The first index in the array of the extreme, or of NaN; it is there."""
        f, state, lanes = self.f, self.state, self.lanes
        target = splat(f, state.kind, lanes, extreme)

        def mask(v: str) -> str:
            x = self._load(v)
            if state.dtype in FLOATS:
                same = f.emit(f"fcmp oeq {self.vector} {x}, {target}")
                same = f.emit(f"or {self.truths} {same}, {f.emit(f'fcmp uno {self.vector} {x}, {x}')}")
            else:
                same = f.emit(f"icmp eq {self.vector} {x}, {target}")
            return f.emit(f"bitcast {self.truths} {same} to i{lanes}")

        v, matches = f.first(mask, f"i{lanes}")
        f.declared[f"llvm.cttz.i{lanes}"] = f"declare i{lanes} @llvm.cttz.i{lanes}(i{lanes}, i1)"
        lane = f.emit(f"call i{lanes} @llvm.cttz.i{lanes}(i{lanes} {matches}, i1 true)")
        if lanes < 64:
            lane = f.emit(f"zext i{lanes} {lane} to i64")
        return f.emit(f"add i64 {f.emit(f'mul i64 {v}, {lanes}')}, {lane}")


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

    def _position(self, d: int, i: str) -> str:
        return self.f.reversed(d, i) if self.stage.reverse else i

    def _loops(self, pointers: list[str], positions: list[str], totals: list[str]) -> list[str]:
        f, d = self.f, len(positions)
        carried = [(state.kind, total) for state, total in zip(self.states, totals, strict=True)]
        if d < f.kernel.rank - 1:

            def turn(i: str) -> list[str]:
                inside, position = list(f.carried), self._position(d, i)
                return self._loops(f.advance(pointers, d, position), [*positions, position], inside)

            return f.loop(f.sizes[d], turn, carried)
        return f.blocks(
            f.sizes[d], SCAN_BLOCK, lambda *block: self._block(pointers, positions, *block), carried
        )

    def _block(self, pointers: list[str], positions: list[str], begin: str, length: str) -> list[str]:
        f, stage, d = self.f, self.stage, len(positions)
        totals = list(f.carried)
        roots = [state.reduction.value for state in self.states]

        def position(j: str) -> str:
            return self._position(d, f.emit(f"add nuw nsw i64 {begin}, {j}"))

        def read(values: Values, j: str) -> list[str]:
            for state, array in zip(self.states, self.arrays, strict=True):
                values.array_store(array, state.dtype, values[state.reduction.value], j)
            return []

        innermost(f, length, pointers, positions, read, roots, position=position)
        combined = []
        for state, array, lanes, total in zip(self.states, self.arrays, self.lanes, totals, strict=True):
            combined.append(self._scan(state, array, lanes, total, length))

        def write(values: Values, j: str) -> list[str]:
            for state, array in zip(self.states, self.arrays, strict=True):
                values.set_result(state.reduction, values.array_load(array, state.dtype, j))
            values.store(stage.stores)
            return []

        stored = [store.value for store in stage.stores]
        innermost(f, length, pointers, positions, write, stored, stage.stores, position=position)
        return combined

    def _scan(self, state: Accumulator, array: str, lanes: int, total: str, length: str) -> str:
        """Scans the array in place, vector by vector, and gives the new total."""
        f, dtype = self.f, state.dtype
        kind = llvm_type(dtype)
        vector = f"<{lanes} x {kind}>"
        # -0 + x is x for every x, and LLVM shuffles zeros in by slow instructions.
        minus_zero = state.op == "sum" and dtype in FLOATS
        neutral = splat(f, kind, lanes, number(-0.0, dtype) if minus_zero else state.neutral)
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
            x = combine_vectors(f, state.op, dtype, lanes, splat(f, kind, lanes, state.finish(so_far)), x)
            f.lines.append(f"  store {vector} {x}, ptr {address}, align {BITS[dtype] // 8 * lanes}")
            if state.op in ("sum", "prod") or dtype not in FLOATS:
                return [state.join(so_far, last)]
            is_better = better(f, state.op, dtype, last, so_far)
            return [f.emit(f"select i1 {is_better}, {kind} {last}, {kind} {so_far}")]

        return f.loop(count, turn, [(state.kind, total)])[0]
