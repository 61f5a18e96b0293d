"""Kernels as LLVM IR: text, made without LLVM. How the loops run is decided here, what they mean in weft.expr.kernel.

Every kernel becomes one function

    void NAME(char *const *data, const int64_t *sizes, const int64_t *strides, const void *const parameters)

data: the operands' elements at position 0. sizes: one for each loop. strides: in bytes, operand by operand, one for
each loop. parameters: slots of 8 bytes. The caller splits work over threads by moving data and shrinking a size.

Loops are written one element at a time and marked as parallel; LLVM makes vectors of them. An operand may be both read
and written at the same positions. With Kernel.lanes some rows run side by side, LANES at a time, and what a stage knows
of each row lies in an array on the stack.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence

from weft.expr.kernel import Each, Fold, Kernel, Reduction, Stage, Store
from weft.expr.scalar import BITS, FLOATS, UNSIGNED, Scalar, walk

__all__ = ["print_kernel"]

SUM_BLOCK = 4096  # elements of float32 that are summed in float32 before the sum goes on in float64
LANES = 1024  # rows side by side: their sums fill a part of the first-level cache
LANES_SUM_BLOCK = 32  # the same as SUM_BLOCK, where every lane adds one element after the other

_BINARY_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "rem": "frem"}
_BINARY_INT = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor", "shl": "shl"}
_PREDICATES = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne"}


def llvm_type(dtype: str) -> str:
    """The type of a value in a register."""
    if dtype in FLOATS:
        return {"float16": "half", "bfloat16": "i16", "float32": "float", "float64": "double"}[dtype]
    return f"i{BITS[dtype]}"


def print_kernel(kernel: Kernel) -> str:
    """The kernel as a module of LLVM IR with one function of its name.

    Raises NotImplementedError for half types in arithmetic, which weft.expr.functions.expand turns into float32, and
    for functions, which it writes in simpler ones.

    >>> from weft.expr.kernel import Operand
    >>> from weft.expr.scalar import load
    >>> x = load(0, "float32")
    >>> text = print_kernel(Kernel("twice", 1, (Operand("float32"),) * 2, (Each((Store(1, x + x),)),)))
    >>> text.splitlines()[0]
    'define void @twice(ptr %data, ptr %sizes, ptr %strides, ptr %parameters) nounwind {'
    """
    return _Function(kernel).text()


class _Function:
    """The text of one function while it is written."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self.metadata: list[str] = []
        self.count = 0
        self.block = "entry"
        self.parameters: dict[tuple[int, str], str] = {}
        self.results: dict[int, str] = {}
        self.arrays: list[str] = []  # the stack's; declared at the function's beginning
        rows = kernel.rank - kernel.row_rank
        self.vector_loop = rows - 1 if kernel.lanes else kernel.rank - 1

    def text(self) -> str:
        kernel = self.kernel
        self.sizes = [self._load_word("sizes", d) for d in range(kernel.rank)]
        self.strides = [
            [self._load_word("strides", k * kernel.rank + d) for d in range(kernel.rank)]
            for k in range(len(kernel.operands))
        ]
        bases = [
            self._emit(f"load ptr, ptr {self._offset('data', 8 * k)}") for k in range(len(kernel.operands))
        ]
        self.bases = bases
        for stage in kernel.stages:  # parameters do not change: loaded before the loops
            for part in stage.reductions if isinstance(stage, Fold) else stage.stores:
                for node in walk(part.value):
                    if node.op == "parameter":
                        self._parameter(node)
        self._outer(0, bases, [])
        self.lines.append("  ret void")
        head = f"define void @{kernel.name}(ptr %data, ptr %sizes, ptr %strides, ptr %parameters) nounwind {{"
        body = "\n".join([head, "entry:", *self.arrays, *self.lines, "}"])
        return "\n".join([body, "", *self.declared.values(), *self.metadata, ""])

    # Small pieces of text.

    def _emit(self, instruction: str) -> str:
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def _label(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def _offset(self, pointer: str, offset: int | str) -> str:
        base = pointer if pointer.startswith("%") else f"%{pointer}"
        return self._emit(f"getelementptr i8, ptr {base}, i64 {offset}")

    def _load_word(self, pointer: str, number: int) -> str:
        return self._emit(f"load i64, ptr {self._offset(pointer, 8 * number)}")

    def _intrinsic(self, name: str, dtype: str, arguments: list[str]) -> str:
        kind = llvm_type(dtype)
        suffix = {"float": "f32", "double": "f64"}.get(kind, kind)
        full = f"llvm.{name}.{suffix}"
        self.declared[full] = f"declare {kind} @{full}({', '.join([kind] * len(arguments))})"
        return self._emit(f"call {kind} @{full}({', '.join(f'{kind} {a}' for a in arguments)})")

    def _metadata(self, text: str) -> str:
        name = f"!{len(self.metadata)}"
        self.metadata.append(f"{name} = {text}")
        return name

    # Loops.

    def _loop(
        self,
        size: str,
        body: Callable[[str], list[str]],
        carried: Sequence[tuple[str, str]] = (),
        parallel: str = "",
    ) -> list[str]:
        """A loop over [0, size). carried: (type, first value) of what goes from turn to turn; body gives the next ones.

        Returns the carried values after the loop. body(i) may open loops of its own.
        """
        self.count += 1
        number = self.count
        before, head, latch, after = self.block, f"head{number}", f"latch{number}", f"after{number}"
        empty = self._emit(f"icmp sgt i64 {size}, 0")
        self.lines.append(f"  br i1 {empty}, label %{head}, label %{after}")
        self._label(head)
        position = f"%i{number}"
        self.lines.append(f"  {position} = phi i64 [ 0, %{before} ], [ {position}.next, %{latch} ]")
        names = [f"%c{number}.{k}" for k in range(len(carried))]
        phis = len(self.lines)  # their text needs what the body gives
        self.lines.extend([""] * len(carried))
        self.carried = names
        following = body(position)
        self.lines.append(f"  br label %{latch}")
        self._label(latch)
        for k, (kind, first) in enumerate(carried):
            self.lines[phis + k] = (
                f"  {names[k]} = phi {kind} [ {first}, %{before} ], [ {following[k]}, %{latch} ]"
            )
        self.lines.append(f"  {position}.next = add nuw nsw i64 {position}, 1")
        more = self._emit(f"icmp slt i64 {position}.next, {size}")
        mark = ""
        if parallel:
            own = self._metadata("distinct !{}")
            inner = self._metadata(f'!{{!"llvm.loop.parallel_accesses", {parallel}}}')
            index = int(own[1:])
            self.metadata[index] = f"{own} = distinct !{{{own}, {inner}}}"
            mark = f", !llvm.loop {own}"
        self.lines.append(f"  br i1 {more}, label %{head}, label %{after}{mark}")
        self._label(after)
        return [
            self._emit(f"phi {kind} [ {first}, %{before} ], [ {following[k]}, %{latch} ]")
            for k, (kind, first) in enumerate(carried)
        ]

    def _outer(self, d: int, pointers: list[str], positions: list[str]) -> None:
        if self.kernel.lanes and d == self.vector_loop:
            self._lane_blocks(pointers, positions)
            return
        if d == self.kernel.rank - self.kernel.row_rank:
            self._row(pointers, positions)
            return

        def body(i: str) -> list[str]:
            self._outer(d + 1, self._advance(pointers, d, i), [*positions, i])
            return []

        self._loop(self.sizes[d], body)

    def _advance(self, pointers: list[str], d: int, i: str) -> list[str]:
        moved = []
        for k, pointer in enumerate(pointers):
            step = self._emit(f"mul i64 {i}, {self.strides[k][d]}")
            moved.append(self._offset(pointer, step))
        return moved

    def _row(self, pointers: list[str], positions: list[str]) -> None:
        self.results = {}
        for stage in self.kernel.stages:
            if isinstance(stage, Each):
                stores = stage.stores
                group = self._metadata("distinct !{}")

                def store_all(values: _Values, stores: tuple[Store, ...] = stores) -> list[str]:
                    values.store(stores)
                    return []

                self._row_loops(pointers, positions, store_all, group)
            elif isinstance(stage, Fold):
                self._fold(stage, pointers, positions)
            else:
                zeros = ["0"] * self.kernel.row_rank
                values = _Values(self, pointers, [*positions, *zeros], "0", "")
                values.store(stage.stores)

    def _row_loops(
        self, pointers: list[str], positions: list[str], body: Callable[[_Values], list[str]], group: str
    ) -> None:
        """The loops of a row around body, which carries nothing."""
        d = len(positions)
        last = d == self.kernel.rank - 1

        def turn(i: str) -> list[str]:
            if last:
                return body(_Values(self, pointers, [*positions, i], i, group))
            self._row_loops(self._advance(pointers, d, i), [*positions, i], body, group)
            return []

        self._loop(self.sizes[d], turn, parallel=group if last else "")

    def _fold(self, stage: Fold, pointers: list[str], positions: list[str]) -> None:
        states = [_Accumulator(self, reduction) for reduction in stage.reductions]
        finals = self._fold_loops(states, pointers, positions, [state.first for state in states])
        for state, value in zip(states, finals, strict=True):
            self.results[state.reduction.number] = state.finish(value)

    def _fold_loops(
        self, states: list[_Accumulator], pointers: list[str], positions: list[str], totals: list[str]
    ) -> list[str]:
        d = len(positions)
        carried = [(state.kind, total) for state, total in zip(states, totals, strict=True)]
        if d < self.kernel.rank - 1:

            def turn(i: str) -> list[str]:
                inside = list(self.carried)
                return self._fold_loops(states, self._advance(pointers, d, i), [*positions, i], inside)

            return self._loop(self.sizes[d], turn, carried)

        # The innermost loop in blocks: each is folded from its start, then joins the total.
        size = self.sizes[d]

        def block(begin: str, length: str) -> list[str]:
            so_far = list(self.carried)

            def element(j: str) -> list[str]:
                partial = list(self.carried)
                i = self._emit(f"add nuw nsw i64 {begin}, {j}")
                values = _Values(self, pointers, [*positions, i], i, "")
                return [
                    state.combine(value, values[state.reduction.value])
                    for state, value in zip(states, partial, strict=True)
                ]

            partials = self._loop(length, element, [(state.partial_kind, state.neutral) for state in states])
            return [
                state.join(total, part) for state, total, part in zip(states, so_far, partials, strict=True)
            ]

        return self._blocks(size, SUM_BLOCK, block, carried)

    def _blocks(
        self,
        size: str,
        most: int,
        body: Callable[[str, str], list[str]],
        carried: Sequence[tuple[str, str]] = (),
    ) -> list[str]:
        """A loop over [0, size) in pieces of at most `most`: body(begin, length)."""
        padded = self._emit(f"add i64 {size}, {most - 1}")
        count = self._emit(f"sdiv i64 {padded}, {most}")
        self.declared["llvm.smin.i64"] = "declare i64 @llvm.smin.i64(i64, i64)"

        def piece(b: str) -> list[str]:
            begin = self._emit(f"mul nuw nsw i64 {b}, {most}")
            rest = self._emit(f"sub i64 {size}, {begin}")
            return body(begin, self._emit(f"call i64 @llvm.smin.i64(i64 {rest}, i64 {most})"))

        return self._loop(count, piece, carried)

    # Rows side by side.

    def _lane_blocks(self, pointers: list[str], positions: list[str]) -> None:
        d = len(positions)

        def block(begin: str, length: str) -> list[str]:
            rows = _Lanes(self, self._advance(pointers, d, begin), positions, begin, length)
            for stage in self.kernel.stages:
                rows.run(stage)
            return []

        self._blocks(self.sizes[d], LANES, block)

    def array(self, dtype: str) -> str:
        """LANES values on the stack."""
        name = f"%array{len(self.arrays)}"
        self.arrays.append(f"  {name} = alloca [{LANES} x {_memory(dtype)}], align 64")
        return name

    def _parameter(self, node: Scalar) -> str:
        key = (node.value, node.dtype)
        if key not in self.parameters:
            pointer = self._offset("parameters", 8 * node.value)
            self.parameters[key] = _from_memory(
                self, node.dtype, self._emit(f"load {_memory(node.dtype)}, ptr {pointer}")
            )
        return self.parameters[key]


class _Accumulator:
    """How one reduction goes on: inside a block in its own type, from block to block perhaps in a wider one."""

    def __init__(self, function: _Function, reduction: Reduction) -> None:
        self.function, self.reduction = function, reduction
        self.dtype = reduction.value.dtype
        self.wide = reduction.op == "sum" and self.dtype == "float32"
        self.total_dtype = "float64" if self.wide else self.dtype
        self.kind, self.partial_kind = llvm_type(self.total_dtype), llvm_type(self.dtype)
        self.first = _number(reduction.start, self.total_dtype)
        # Sums and products begin each block anew; max and min may meet their start again and again.
        self.neutral = _number({"sum": 0, "prod": 1}.get(reduction.op, reduction.start), self.dtype)

    def combine(self, a: str, b: str, dtype: str = "") -> str:
        dtype = dtype or self.dtype
        op = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}[self.reduction.op]
        if op in ("add", "mul") and dtype in FLOATS:
            return self.function._emit(f"f{op} reassoc nsz {llvm_type(dtype)} {a}, {b}")
        return _binary(self.function, op, dtype, a, b)

    def join(self, total: str, part: str) -> str:
        if self.total_dtype != self.dtype:
            part = self.function._emit(f"fpext float {part} to double")
        return self.combine(total, part, self.total_dtype)

    def finish(self, total: str) -> str:
        if self.total_dtype == self.dtype:
            return total
        return self.function._emit(f"fptrunc double {total} to float")


class _Lanes:
    """Up to LANES rows side by side: every stage loops over the row outside and over the lanes inside."""

    def __init__(
        self, function: _Function, pointers: list[str], positions: list[str], begin: str, length: str
    ) -> None:
        self.function, self.pointers, self.positions = function, pointers, positions
        self.begin, self.length = begin, length
        self.results: dict[int, str] = {}  # arrays

    def run(self, stage: Stage) -> None:
        if isinstance(stage, Fold):
            self._fold(stage)
        elif isinstance(stage, Each):
            self._rows(self.pointers, [], lambda pointers, row: self._store(stage.stores, pointers, row))
        else:
            self._store(stage.stores, self.pointers, ["0"] * self.function.kernel.row_rank)

    def _store(self, stores: tuple[Store, ...], pointers: list[str], row: list[str]) -> None:
        self._each_lane(pointers, row, lambda values: values.store(stores))

    def _each_lane(self, pointers: list[str], row: list[str], body: Callable[[_Values], None]) -> None:
        f = self.function
        group = f._metadata("distinct !{}")

        def lane(i: str) -> list[str]:
            place = f._emit(f"add nuw nsw i64 {self.begin}, {i}")
            body(_Values(f, pointers, [*self.positions, place, *row], i, group, self.results))
            return []

        f._loop(self.length, lane, parallel=group)

    def _rows(
        self, pointers: list[str], row: list[str], body: Callable[[list[str], list[str]], None]
    ) -> None:
        """The loops of a row around body."""
        f = self.function
        d = len(self.positions) + 1 + len(row)
        if d == f.kernel.rank:
            body(pointers, row)
            return

        def turn(i: str) -> list[str]:
            self._rows(f._advance(pointers, d, i), [*row, i], body)
            return []

        f._loop(f.sizes[d], turn)

    def _fold(self, stage: Fold) -> None:
        sums = [_LaneSum(self.function, reduction) for reduction in stage.reductions]

        def add(values: _Values) -> None:
            news = [values[one.state.reduction.value] for one in sums]
            for one, new in zip(sums, news, strict=True):
                one.add(values, new)

        def each(step: Callable[[_LaneSum, _Values], None]) -> Callable[[_Values], None]:
            def body(values: _Values) -> None:
                for one in sums:
                    step(one, values)

            return body

        self._each_lane(self.pointers, [], each(_LaneSum.begin))
        blocked = any(one.state.wide for one in sums)
        self._fold_rows(self.pointers, [], blocked, each(_LaneSum.begin_block), add, each(_LaneSum.end_block))
        self._each_lane(self.pointers, [], each(_LaneSum.finish))
        for one in sums:
            self.results[one.state.reduction.number] = one.partial

    def _fold_rows(
        self,
        pointers: list[str],
        row: list[str],
        blocked: bool,
        begin_block: Callable[[_Values], None],
        add: Callable[[_Values], None],
        end_block: Callable[[_Values], None],
    ) -> None:
        f = self.function
        d = len(self.positions) + 1 + len(row)
        if d < f.kernel.rank - 1:

            def turn(i: str) -> list[str]:
                moved = f._advance(pointers, d, i)
                self._fold_rows(moved, [*row, i], blocked, begin_block, add, end_block)
                return []

            f._loop(f.sizes[d], turn)
            return

        def block(begin: str, length: str) -> list[str]:
            if blocked:
                self._each_lane(pointers, [], begin_block)

            def element(j: str) -> list[str]:
                i = f._emit(f"add nuw nsw i64 {begin}, {j}")
                self._each_lane(f._advance(pointers, d, i), [*row, i], add)
                return []

            f._loop(length, element)
            if blocked:
                self._each_lane(pointers, [], end_block)
            return []

        f._blocks(f.sizes[d], LANES_SUM_BLOCK, block)


class _LaneSum:
    """One reduction of every lane: a total for the whole row, and a partial one for a block of it if that is wider."""

    def __init__(self, function: _Function, reduction: Reduction) -> None:
        self.state = _Accumulator(function, reduction)
        self.total = function.array(self.state.total_dtype)
        self.partial = function.array(self.state.dtype) if self.state.wide else self.total

    def begin(self, values: _Values) -> None:
        values.array_store(self.total, self.state.total_dtype, self.state.first)

    def begin_block(self, values: _Values) -> None:
        if self.state.wide:
            values.array_store(self.partial, self.state.dtype, self.state.neutral)

    def add(self, values: _Values, new: str) -> None:
        old = values.array_load(self.partial, self.state.dtype)
        values.array_store(self.partial, self.state.dtype, self.state.combine(old, new))

    def end_block(self, values: _Values) -> None:
        if self.state.wide:
            so_far = values.array_load(self.total, self.state.total_dtype)
            part = values.array_load(self.partial, self.state.dtype)
            values.array_store(self.total, self.state.total_dtype, self.state.join(so_far, part))

    def finish(self, values: _Values) -> None:
        if self.state.wide:
            total = values.array_load(self.total, self.state.total_dtype)
            values.array_store(self.partial, self.state.dtype, self.state.finish(total))


class _Values:
    """The values of expressions at one position of the loops; each is computed once."""

    def __init__(
        self,
        function: _Function,
        pointers: list[str],
        positions: list[str],
        inner: str,
        group: str,
        arrays: dict[int, str] | None = None,
    ) -> None:
        self.function, self.pointers, self.positions, self.inner = function, pointers, positions, inner
        self.arrays = arrays  # of results, with one value for each lane
        self.access = f", !llvm.access.group {group}" if group else ""
        self.known: dict[int, str] = {}

    def __getitem__(self, root: Scalar) -> str:
        for node in walk(root):
            if id(node) not in self.known:
                self.known[id(node)] = self._value(node)
        return self.known[id(root)]

    def _address(self, operand: int) -> str:
        how = self.function.kernel.operands[operand]
        pointer = self.pointers[operand]
        if how.inner == "zero":
            return pointer
        if how.inner == "unit":
            return self.function._emit(f"getelementptr {_memory(how.dtype)}, ptr {pointer}, i64 {self.inner}")
        step = self.function._emit(
            f"mul i64 {self.inner}, {self.function.strides[operand][self.function.vector_loop]}"
        )
        return self.function._offset(pointer, step)

    def _read(self, address: str, dtype: str) -> str:
        return _from_memory(
            self.function, dtype, self.function._emit(f"load {_memory(dtype)}, ptr {address}{self.access}")
        )

    def store(self, stores: tuple[Store, ...]) -> None:
        values = [self[store.value] for store in stores]  # all, before the first store changes an operand
        for store, value in zip(stores, values, strict=True):
            dtype = self.function.kernel.operands[store.operand].dtype
            address = self._address(store.operand)
            if store.add:
                value = self._add(dtype, self._read(address, dtype), value)
            raw = _to_memory(self.function, dtype, value)
            self.function.lines.append(f"  store {_memory(dtype)} {raw}, ptr {address}{self.access}")

    def _lane(self, array: str, dtype: str) -> str:
        return self.function._emit(f"getelementptr {_memory(dtype)}, ptr {array}, i64 {self.inner}")

    def array_load(self, array: str, dtype: str) -> str:
        return self._read(self._lane(array, dtype), dtype)

    def array_store(self, array: str, dtype: str, value: str) -> None:
        raw = _to_memory(self.function, dtype, value)
        self.function.lines.append(
            f"  store {_memory(dtype)} {raw}, ptr {self._lane(array, dtype)}{self.access}"
        )

    def _add(self, dtype: str, a: str, b: str) -> str:
        if dtype in ("float16", "bfloat16"):
            wide = [_cast(self.function, x, dtype, "float32") for x in (a, b)]
            return _cast(self.function, _binary(self.function, "add", "float32", *wide), "float32", dtype)
        if dtype == "bool":
            return _binary(self.function, "or", dtype, a, b)
        return _binary(self.function, "add", dtype, a, b)

    def _value(self, node: Scalar) -> str:
        f = self.function
        args = [self.known[id(arg)] for arg in node.args]
        if node.op == "constant":
            return _number(node.value, node.dtype)
        if node.op == "load":
            return self._read(self._address(node.value), node.dtype)
        if node.op == "load_at":
            pointer = f.bases[node.value]
            for d, position in enumerate(args):
                pointer = f._offset(pointer, f._emit(f"mul i64 {position}, {f.strides[node.value][d]}"))
            return self._read(pointer, node.dtype)
        if node.op == "parameter":
            return f._parameter(node)
        if node.op == "index":
            return self.positions[node.value]
        if node.op == "result" and self.arrays is not None:
            return self.array_load(self.arrays[node.value], node.dtype)
        if node.op == "result":
            return f.results[node.value]
        if node.op == "cast":
            return _cast(f, args[0], node.args[0].dtype, node.dtype)
        if node.op == "bitcast":
            source, target = llvm_type(node.args[0].dtype), llvm_type(node.dtype)
            return args[0] if source == target else f._emit(f"bitcast {source} {args[0]} to {target}")
        if node.op == "where":
            kind = llvm_type(node.dtype)
            return f._emit(f"select i1 {args[0]}, {kind} {args[1]}, {kind} {args[2]}")
        if len(node.args) > 0 and node.args[0].dtype in ("float16", "bfloat16"):
            raise NotImplementedError(f"{node.op} of {node.args[0].dtype}: expand() computes it in float32")
        if node.op == "fma":
            return f._intrinsic("fma", node.dtype, args)
        if node.op in _PREDICATES:
            return _compare(f, node.op, node.args[0].dtype, *args)
        if len(args) == 1:
            return _unary(f, node.op, node.dtype, args[0])
        return _binary(f, node.op, node.dtype, *args)


# Operations on values in registers.


def _number(value: float | int | bool, dtype: str) -> str:
    if dtype == "bool":
        return "true" if value else "false"
    if dtype == "bfloat16":
        word = struct.unpack("<I", _packed("<f", value))[0]
        if math.isnan(value):
            return str(0x7FC0)
        return str(((word + 0x7FFF + (word >> 16 & 1)) >> 16) - (1 << 16 if word >> 31 else 0))
    if dtype == "float16":
        return f"0xH{struct.unpack('<H', _packed('<e', value))[0]:04X}"
    if dtype in FLOATS:  # a float is written as the double of the same value
        if dtype == "float32":
            value = struct.unpack("<f", _packed("<f", value))[0]
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    return str(int(value))


def _packed(code: str, value: float) -> bytes:
    try:
        return struct.pack(code, value)
    except OverflowError:  # rounds to infinity
        return struct.pack(code, math.copysign(math.inf, value))


def _memory(dtype: str) -> str:
    """The type of an element in memory."""
    return "i8" if dtype == "bool" else llvm_type(dtype)


def _from_memory(f: _Function, dtype: str, raw: str) -> str:
    return f._emit(f"icmp ne i8 {raw}, 0") if dtype == "bool" else raw


def _to_memory(f: _Function, dtype: str, value: str) -> str:
    return f._emit(f"zext i1 {value} to i8") if dtype == "bool" else value


def _compare(f: _Function, op: str, dtype: str, a: str, b: str) -> str:
    kind = llvm_type(dtype)
    if dtype in FLOATS:
        return f._emit(f"fcmp {'une' if op == 'ne' else f'o{_PREDICATES[op]}'} {kind} {a}, {b}")
    sign = "" if op in ("eq", "ne") else "u" if dtype in UNSIGNED or dtype == "bool" else "s"
    return f._emit(f"icmp {sign}{_PREDICATES[op]} {kind} {a}, {b}")


def _unary(f: _Function, op: str, dtype: str, a: str) -> str:
    kind = llvm_type(dtype)
    if op == "neg":
        return f._emit(f"fneg {kind} {a}" if dtype in FLOATS else f"sub {kind} 0, {a}")
    if op == "not":
        return f._emit(f"xor {kind} {a}, {'true' if dtype == 'bool' else -1}")
    if op == "abs" and dtype not in FLOATS:
        if dtype in UNSIGNED or dtype == "bool":
            return a
        f.declared[f"llvm.abs.{kind}"] = f"declare {kind} @llvm.abs.{kind}({kind}, i1)"
        return f._emit(f"call {kind} @llvm.abs.{kind}({kind} {a}, i1 false)")
    if dtype not in FLOATS:
        if op in ("rint", "floor", "ceil", "trunc"):
            return a
        raise NotImplementedError(f"{op} of {dtype}")
    names = {
        "abs": "fabs",
        "sqrt": "sqrt",
        "rint": "rint",
        "floor": "floor",
        "ceil": "ceil",
        "trunc": "trunc",
    }
    if op not in names:
        raise NotImplementedError(f"{op} has not been expanded: weft.expr.functions.expand does that")
    return f._intrinsic(names[op], dtype, [a])


def _binary(f: _Function, op: str, dtype: str, a: str, b: str) -> str:
    kind = llvm_type(dtype)
    if op in ("minimum", "maximum"):
        if dtype in FLOATS:
            return f._intrinsic(op, dtype, [a, b])
        letter = "u" if dtype in UNSIGNED or dtype == "bool" else "s"
        return f._intrinsic(f"{letter}{op[:3]}", dtype, [a, b])
    if dtype in FLOATS:
        if op == "copysign":
            return f._intrinsic("copysign", dtype, [a, b])
        if op in _BINARY_FLOAT:
            return f._emit(f"{_BINARY_FLOAT[op]} {kind} {a}, {b}")
        raise NotImplementedError(
            f"{op} of {dtype}: not a basic operation; weft.expr.functions.expand writes it in such"
        )
    if op in _BINARY_INT:
        return f._emit(f"{_BINARY_INT[op]} {kind} {a}, {b}")
    unsigned = dtype in UNSIGNED or dtype == "bool"
    if op == "shr":
        return f._emit(f"{'lshr' if unsigned else 'ashr'} {kind} {a}, {b}")
    if op in ("div", "rem"):
        return _integer_division(f, op, dtype, a, b, unsigned)
    raise NotImplementedError(f"{op} of {dtype}")


def _integer_division(f: _Function, op: str, dtype: str, a: str, b: str, unsigned: bool) -> str:
    """Truncating. What the processor would trap on has a value: x / 0 = 0, x % 0 = 0, least / -1 = least."""
    kind = llvm_type(dtype)
    zero = f._emit(f"icmp eq {kind} {b}, 0")
    bad = zero
    if not unsigned:
        minus = f._emit(f"icmp eq {kind} {b}, -1")
        bad = f._emit(f"or i1 {zero}, {minus}")
    safe = f._emit(f"select i1 {bad}, {kind} 1, {kind} {b}")
    quotient = f._emit(f"{'u' if unsigned else 's'}{op} {kind} {a}, {safe}")
    if unsigned:
        return f._emit(f"select i1 {zero}, {kind} 0, {kind} {quotient}")
    negated = f._emit(f"sub {kind} 0, {a}") if op == "div" else "0"
    turned = f._emit(f"select i1 {minus}, {kind} {negated}, {kind} {quotient}")
    return f._emit(f"select i1 {zero}, {kind} 0, {kind} {turned}")


def _cast(f: _Function, value: str, source: str, target: str) -> str:
    """As native/tensor/convert.h."""
    if source == target:
        return value
    if source == "bfloat16":
        wide = f._emit(f"zext i16 {value} to i32")
        return _cast(f, f._emit(f"bitcast i32 {f._emit(f'shl i32 {wide}, 16')} to float"), "float32", target)
    if source == "float16" and target != "float32" and target != "float64":
        return _cast(f, f._emit(f"fpext half {value} to float"), "float32", target)
    if target == "bfloat16":
        return _to_bfloat16(f, _cast(f, value, source, "float32"))
    if target == "float16" and source not in ("float32", "float64"):
        return _cast(f, _cast(f, value, source, "float32"), "float32", target)
    a, b = llvm_type(source), llvm_type(target)
    if target == "bool":
        zero = _number(0, source)
        return f._emit(f"fcmp une {a} {value}, {zero}" if source in FLOATS else f"icmp ne {a} {value}, 0")
    if source == "float64" and target == "float16":
        return _cast(f, _rounded_to_odd(f, value), "float32", target)
    if source in FLOATS and target in FLOATS:
        return f._emit(f"{'fpext' if BITS[target] > BITS[source] else 'fptrunc'} {a} {value} to {b}")
    if target in FLOATS:
        return f._emit(
            f"{'uitofp' if source in UNSIGNED or source == 'bool' else 'sitofp'} {a} {value} to {b}"
        )
    if source in FLOATS:
        return _float_to_integer(f, value, source, target)
    if BITS[target] < BITS[source]:
        return f._emit(f"trunc {a} {value} to {b}")
    if BITS[target] == BITS[source]:
        return value
    return f._emit(f"{'zext' if source in UNSIGNED or source == 'bool' else 'sext'} {a} {value} to {b}")


def _rounded_to_odd(f: _Function, value: str) -> str:
    """A float64 as the float32 towards zero, its last bit set if anything was lost: rounding that to a type of at most
    22 bits is rounding the float64 (Boldo and Melquiond 2008). LLVM's own conversion to half calls a library."""
    near = f._emit(f"fptrunc double {value} to float")
    back = f._emit(f"fpext float {near} to double")
    lost = f._emit(f"fcmp une double {back}, {value}")
    sizes = [f._intrinsic("fabs", "float64", [x]) for x in (back, value)]
    away = f._emit(f"fcmp ogt double {sizes[0]}, {sizes[1]}")
    bits = f._emit(f"bitcast float {near} to i32")
    towards_zero = f._emit(f"select i1 {away}, i32 {f._emit(f'add i32 {bits}, -1')}, i32 {bits}")
    sticky = f._emit(f"select i1 {lost}, i32 {f._emit(f'or i32 {towards_zero}, 1')}, i32 {bits}")
    return f._emit(f"bitcast i32 {sticky} to float")


def _to_bfloat16(f: _Function, value: str) -> str:
    """Rounded to nearest even by integer arithmetic; NaN becomes the quiet one of its sign."""
    word = f._emit(f"bitcast float {value} to i32")
    odd = f._emit(f"and i32 {f._emit(f'lshr i32 {word}, 16')}, 1")
    bias = f._emit(f"add i32 {odd}, 32767")
    rounded = f._emit(f"lshr i32 {f._emit(f'add i32 {word}, {bias}')}, 16")
    sign = f._emit(f"and i32 {f._emit(f'lshr i32 {word}, 16')}, 32768")
    nan = f._emit(f"or i32 {sign}, 32704")
    unordered = f._emit(f"fcmp uno float {value}, {value}")
    return f._emit(f"trunc i32 {f._emit(f'select i1 {unordered}, i32 {nan}, i32 {rounded}')} to i16")


def _float_to_integer(f: _Function, value: str, source: str, target: str) -> str:
    """Truncated; what does not fit becomes what the processor's conversion to int32 or int64 gives, then wraps."""
    a, b = llvm_type(source), llvm_type(target)
    through = 32 if BITS[target] < 32 or target == "int32" else 64
    if target == "uint64":
        limit = _number(2.0**63, source)
        large = f._emit(f"fcmp oge {a} {value}, {limit}")
        less = f._emit(f"fsub {a} {value}, {limit}")
        low = _saturated(f, value, a, 64)
        high = f._emit(f"xor i64 {_saturated(f, less, a, 64)}, {-(2**63)}")
        return f._emit(f"select i1 {large}, i64 {high}, i64 {low}")
    whole = _saturated(f, value, a, through)
    return whole if BITS[target] == through else f._emit(f"trunc i{through} {whole} to {b}")


def _saturated(f: _Function, value: str, kind: str, bits: int) -> str:
    """fptosi where it is defined, the least integer elsewhere."""
    dtype = "float32" if kind == "float" else "float64"
    low, high = _number(-(2.0 ** (bits - 1)), dtype), _number(2.0 ** (bits - 1), dtype)
    if dtype == "float64" and bits == 32:
        low = _number(-(2.0**31) - 1, dtype)
        above = f._emit(f"fcmp ogt {kind} {value}, {low}")
    else:
        above = f._emit(f"fcmp oge {kind} {value}, {low}")
    below = f._emit(f"fcmp olt {kind} {value}, {high}")
    fits = f._emit(f"and i1 {above}, {below}")
    inside = f._emit(f"select i1 {fits}, {kind} {value}, {kind} {_number(0, dtype)}")
    whole = f._emit(f"fptosi {kind} {inside} to i{bits}")
    return f._emit(f"select i1 {fits}, i{bits} {whole}, i{bits} {-(2 ** (bits - 1))}")
