"""Kernels for threads in blocks, as GPUs run them: text of LLVM IR that is the same for every target.

A kernel becomes `void NAME.threads(ptr arguments)`, whose arguments are one block of words of 8 bytes: the operands'
addresses, sizes, strides and parameters, in the order of weft.expr.llvm. What a target has of its own, it defines by
name (weft.expr.targets): the number of the thread and of its block, barriers, shuffles, shared memory, and the entry
NAME. One thread's work at one position is written by the same Values as on the processor, so results of an Each have
the same bits there.

Schedules, which weft.expr.llvm_blocks shares: "elements", a thread for `width` elements of a kernel with one Each;
"warps" and "blocks", a row for 32 or all threads of a block; "columns", rows side by side, a lane for each and its
warps along the rows; "serial", a thread for each row, for stores at computed positions and chains.
weft.expr.llvm_products has "products", tiles of rows for pairs of positions, weft.expr.llvm_tensor_cores "tensor",
those of 16-bit floats. Code that is written for its operands has "tiles" (weft.kernels.gpu.attention_tiles) and
"matrices", a block for each matrix of a stack (weft.expr.llvm_matrices).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from weft.base.record import Record
from weft.base.typing import Literal
from weft.expr.kernel import (
    POSITIONS,
    Chain,
    Each,
    Kernel,
    Once,
    Reduction,
    Scan,
    Stage,
    Store,
    parts,
    values,
)
from weft.expr.llvm_function import Function, Values
from weft.expr.llvm_values import from_memory, to_memory
from weft.expr.llvm_writer import llvm_type, memory_type
from weft.expr.scalar import BITS, COMPLEX, Scalar, state, walk

__all__ = [
    "NO_PAIRS",
    "WARP",
    "Schedule",
    "ThreadCode",
    "Threads",
    "is_pointwise",
    "print_elements",
    "print_serial",
    "read_again",
    "reads_stored",
    "schedule_of",
    "width_of",
]

WARP = 32
NO_PAIRS = (0, 0, 0)
MOST_SIDE_BY_SIDE = 1024  # operations of all elements of a turn
ACCESS_BITS = 128  # the widest access of a thread
HELD_WORDS = 32  # registers for what a thread keeps of a row


class Schedule(Record):
    """How a kernel's work is spread over threads.

    threads: of a block, a multiple of 32. width: elements of a thread's turn ("elements" only); every operand that is
    "unit" has to be aligned to width elements at each turn of the outer loops, and the innermost size to be a multiple
    of width unless the kernel has one loop. is_narrow: all positions, and offsets in bytes along each loop, fit into
    31 bits. pairs (of products only): how many of the loops before the row are those of m, how many behind them those
    of n, and bit k: operand k, which the Fold loads, moves along those of n (weft.expr.llvm_products). held: so many
    elements of a row, as all of it is for its threads, stay in a thread's registers from stage to stage ("warps" and
    "blocks" only); 0: each stage reads them from memory.
    Raises ValueError for numbers that are not of these kinds.
    """

    kind: Literal[
        "elements", "warps", "blocks", "columns", "serial", "products", "tensor", "tiles", "matrices"
    ]
    threads: int = 128
    width: int = 1
    is_narrow: bool = False
    pairs: tuple[int, int, int] = NO_PAIRS
    held: int = 0

    def check(self) -> None:
        if self.threads % WARP or not WARP <= self.threads <= 1024:
            raise ValueError(f"schedule: threads must be a multiple of {WARP} up to 1024, got {self.threads}")
        if self.width not in (1, 2, 4, 8, 16) or (self.width > 1 and self.kind != "elements"):
            raise ValueError(f"schedule: width {self.width} of {self.kind}")
        if (self.kind in ("products", "tensor")) != (min(self.pairs[:2]) > 0):
            raise ValueError(f"schedule: pairs {self.pairs} of {self.kind}")
        if self.held < 0 or (self.held and self.kind not in ("warps", "blocks")):
            raise ValueError(f"schedule: held {self.held} of {self.kind}")


class ThreadCode(Record):
    """A kernel's text, and what a launch has to know.

    words: of its arguments. shared_bytes: of shared memory for a block. A block's turn covers `positions` elements,
    rows or columns; any number of blocks from 1 on is right. is_gated: it does nothing if a check has found a failure.
    Then its last words are the address of findings, 16 bytes each, and their number; one is a failure if its first
    8 bytes are not negative. in_flight: threads that a multiprocessor is to run at the same time, which limits their
    registers: 128 for 512.
    """

    name: str
    text: str
    threads: int
    words: int
    shared_bytes: int
    positions: int
    is_gated: bool = False
    in_flight: int = 512

    def gated(self) -> ThreadCode:
        """The same code behind a gate."""
        return self.replaced(words=self.words + 2, is_gated=True)


def width_of(kernel: Kernel) -> int:
    """The most elements of a thread's turn whose accesses are at most 16 bytes; 1 where they cannot be joined.

    Fewer of long expressions: all elements are computed side by side, and have to fit into 128 registers.
    """
    stores = [part for stage in kernel.stages for part in parts(stage) if isinstance(part, Store)]
    is_complex = any(o.dtype in COMPLEX for o in kernel.operands)  # whose parts are accessed one by one
    if not is_pointwise(kernel) or is_complex or any(store.add for store in stores):
        return 1
    bits = [max(BITS[o.dtype], 8) for o in kernel.operands if o.inner == "unit" and not o.gathered]
    width = ACCESS_BITS // max(bits) if bits else 1
    length = sum(1 for _ in walk(*values(kernel.stages[0])))
    while width > 1 and width * length > MOST_SIDE_BY_SIDE:
        width //= 2
    return width


def is_pointwise(kernel: Kernel) -> bool:
    """Whether every position is for itself: one Each."""
    return len(kernel.stages) == 1 and isinstance(kernel.stages[0], Each) and not kernel.lanes


def schedule_of(kernel: Kernel, row_length: int, is_narrow: bool = False, width: int = 1) -> Schedule:
    """The schedule for rows of this length.

    A warp has up to 1024 elements of a row, if no stage reads what another thread has stored. Where stages read the
    same elements (read_again), threads keep them: up to 8 of each operand, or 16 of rows of more than 4096.
    """
    if kernel.is_serial:
        return Schedule("serial", 128, 1, is_narrow)
    if is_pointwise(kernel):
        return Schedule("elements", 128, width, is_narrow)
    if kernel.lanes:
        return Schedule("columns", 128, 1, is_narrow)
    is_alone = not any(reads_stored(kernel, k) for k in range(len(kernel.stages)))
    if is_alone and (held := _held(kernel, row_length, is_narrow)):
        return held
    is_short = row_length <= 1024 and is_alone
    if is_short and not any(isinstance(stage, Scan) for stage in kernel.stages):
        return Schedule("warps", 128, 1, is_narrow)
    return Schedule("blocks", 256 if row_length > 1024 else 128, 1, is_narrow)


def _held(kernel: Kernel, row_length: int, is_narrow: bool) -> Schedule | None:
    """The schedule where threads keep what several stages read; None: there is no such thing, or too much of it."""
    words = sum(max(BITS[node.dtype], 32) // 32 for node in read_again(kernel.stages))
    if not words or row_length > 8192:
        return None
    threads = WARP if row_length <= 256 else 128 if row_length <= 1024 else 256 if row_length <= 2048 else 512
    held = -(-row_length // threads)
    longest = max(sum(1 for _ in walk(*values(stage))) for stage in kernel.stages)
    if held * words > HELD_WORDS or held * longest > MOST_SIDE_BY_SIDE:
        return None
    if threads == WARP:
        return Schedule("warps", 128, 1, is_narrow, NO_PAIRS, held)
    return Schedule("blocks", threads, 1, is_narrow, NO_PAIRS, held)


def read_again(stages: Sequence[Stage]) -> list[Scalar]:
    """The elements that several stages load, which Folds, Each and Once in any order of positions may keep."""
    if any(isinstance(stage, Scan) for stage in stages):
        return []
    reductions = [p for stage in stages for p in parts(stage) if isinstance(p, Reduction)]
    if any(reduction.op in POSITIONS for reduction in reductions):
        return []
    counts: Counter[Scalar] = Counter()
    for stage in stages:
        if not isinstance(stage, Once):
            counts.update({node for node in walk(*values(stage)) if node.op == "load"})
    return sorted((node for node, count in counts.items() if count > 1), key=lambda node: node.value)


def reads_stored(kernel: Kernel, number: int) -> bool:
    """Whether a stage reads or stores an operand that an earlier one has stored, perhaps by another thread."""
    before = {p.operand for stage in kernel.stages[:number] for p in parts(stage) if isinstance(p, Store)}
    own = parts(kernel.stages[number])
    touched = {node.value for node in walk(*(p.value for p in own)) if node.op in ("load", "load_at")}
    return bool(before & (touched | {p.operand for p in own if isinstance(p, Store)}))


class Threads(Function):
    """The text of a kernel for threads, while it is written."""

    divides_by_floats = False  # threads divide numbers one by one

    def __init__(self, kernel: Kernel, schedule: Schedule, more: Sequence[Scalar] = ()) -> None:
        """more: expressions beside those of the kernel's stages, for their parameters."""
        self.schedule = schedule
        self.shared_words = self.barriers = 0
        self.is_settled = True
        computed = [value for stage in kernel.stages for value in values(stage)]
        slots = [node.value + 1 for node in walk(*computed, *more) if node.op == "parameter"]
        n, rank = len(kernel.operands), kernel.rank
        begins = [
            0,
            n,
            n + rank,
            n + rank + n * rank + sum(o.gathered for o in kernel.operands if not o.is_flat),
        ]
        self.words = begins[-1] + max(slots, default=0)
        super().__init__(kernel)
        names = ("data", "sizes", "strides", "parameters")
        self.lines[:0] = [
            f"  %{name} = getelementptr i8, ptr %arguments, i64 {8 * begin}"
            for name, begin in zip(names, begins, strict=True)
        ]
        self.bases = [self.emit(f"call ptr @weft_global(ptr {base})") for base in self.bases]
        self.thread, self.block_number, self.block_count = (
            self.emit(f"call i64 @weft_{name}()") for name in ("thread", "block", "blocks")
        )
        for node in walk(*more):
            if node.op == "parameter":
                self.parameter(node)
        self.lane = self.emit(f"and i64 {self.thread}, {WARP - 1}")
        self.warp = self.emit(f"lshr i64 {self.thread}, 5")

    def load_word(self, pointer: str, number: int) -> str:
        word = super().load_word(pointer, number)
        if self.schedule.is_narrow and pointer == "strides":  # so that products take one instruction
            return self.emit(f"sext i32 {self.emit(f'trunc i64 {word} to i32')} to i64")
        return word

    def text(self) -> str:
        head = f"define internal void @{self.kernel.name}.threads(ptr %arguments) alwaysinline convergent {{"
        body = "\n".join([head, "entry:", *self.arrays, *self.lines, "  ret void", "}"])
        return "\n".join([body, "", *self.declared.values(), *self.marks, ""])

    def code(self, positions: int) -> ThreadCode:
        name = self.kernel.name
        shared_bytes = 8 * self.shared_words
        return ThreadCode(name, self.text(), self.schedule.threads, self.words, shared_bytes, positions)

    # Threads together.

    def barrier(self) -> None:
        """All threads of the block come here before one goes on; numbered, so that a target may check that."""
        self.lines.append(f"  call void @weft_barrier(i32 {self.barriers})")
        self.barriers += 1
        self.is_settled = True

    def settle(self) -> None:
        """A barrier, unless one has come since shared memory was read: it may be written again."""
        if not self.is_settled:
            self.barrier()

    def shuffle(self, how: str, kind: str, value: str, operand: int) -> str:
        """Another lane's value: how is down, up, xor or index."""
        parts = [self._shuffled(how, part, x, operand) for part, x in self._parts(kind, value)]
        return self._joined(kind, parts)

    def _shuffled(self, how: str, kind: str, value: str, operand: int) -> str:
        bits = {"float": 32, "double": 64}.get(kind) or int(kind[1:])
        wide = 64 if bits == 64 else 32
        raw = value
        if kind in ("float", "double"):
            raw = self.emit(f"bitcast {kind} {value} to i{bits}")
        elif bits < wide:
            raw = self.emit(f"zext {kind} {value} to i{wide}")
        call = f"call i{wide} @weft_shuffle_{how}_i{wide}(i{wide} {raw}, i32 {operand})"
        other = self.emit(call)
        if kind in ("float", "double"):
            return self.emit(f"bitcast i{bits} {other} to {kind}")
        return self.emit(f"trunc i{wide} {other} to {kind}") if bits < wide else other

    def shared_slots(self, kinds: Sequence[str], slots: int) -> list[int]:
        """The first words of shared memory for values of these kinds, each of which has so many slots."""
        words = [slots * len(_part_kinds(kind)) for kind in kinds]
        self.shared_words = max(self.shared_words, sum(words))
        return [sum(words[:k]) for k in range(len(words))]

    def to_shared(self, kind: str, value: str, slot: str, first: int, slots: int) -> None:
        """Write a value to its slot; the parts of complex numbers are `slots` words apart."""
        for k, (part, x) in enumerate(self._parts(kind, value)):
            self.lines.append(f"  store {part} {x}, ptr {self._shared(slot, first + k * slots)}")

    def from_shared(self, kind: str, slot: str, first: int, slots: int) -> str:
        """The value in a slot, as to_shared writes it."""
        parts = _part_kinds(kind)
        addresses = [self._shared(slot, first + k * slots) for k in range(len(parts))]
        return self._joined(
            kind, [self.emit(f"load {part}, ptr {at}") for part, at in zip(parts, addresses, strict=True)]
        )

    def _shared(self, index: str, first: int) -> str:
        """The address of a word of shared memory."""
        base = self.emit("call ptr @weft_shared()")
        return self.emit(
            f"getelementptr i64, ptr {self.emit(f'getelementptr i64, ptr {base}, i64 {first}')}, i64 {index}"
        )

    def _parts(self, kind: str, value: str) -> list[tuple[str, str]]:
        """(kind, value) of a complex number's two parts, else of the value."""
        parts = _part_kinds(kind)
        if len(parts) == 1:
            return [(kind, value)]
        return [(part, self.emit(f"extractvalue {kind} {value}, {k}")) for k, part in enumerate(parts)]

    def _joined(self, kind: str, parts: Sequence[str]) -> str:
        if len(parts) == 1:
            return parts[0]
        value = "poison"
        for k, (part, x) in enumerate(zip(_part_kinds(kind), parts, strict=True)):
            value = self.emit(f"insertvalue {kind} {value}, {part} {x}, {k}")
        return value

    # Loops and positions.

    def product(self, sizes: Sequence[str]) -> str:
        total = "1"
        for size in sizes:
            total = self.emit(f"mul i64 {total}, {size}")
        return total

    def strided(
        self,
        begin: str,
        step: str | int,
        size: str,
        body: Callable[[str], object],
    ) -> None:
        """Turns at begin, begin + step, ... below size, one after the other.

        No division, which is a call on a GPU. LLVM would unroll such loops without joining accesses, and long
        chains then spilled registers.
        """
        self.count += 1
        number, before = self.count, self.block
        i, head, latch, after = f"%i{number}", f"head{number}", f"latch{number}", f"after{number}"
        is_any = self.emit(f"icmp slt i64 {begin}, {size}")
        self.lines.append(f"  br i1 {is_any}, label %{head}, label %{after}")
        self.label(head)
        self.lines.append(f"  {i} = phi i64 [ {begin}, %{before} ], [ {i}.next, %{latch} ]")
        body(i)
        self.lines.append(f"  br label %{latch}")
        self.label(latch)
        self.lines.append(f"  {i}.next = add nsw i64 {i}, {step}")
        more = self.emit(f"icmp slt i64 {i}.next, {size}")
        loop = self.mark("")
        never = self.mark('!{!"llvm.loop.unroll.disable"}')
        self.marks[int(loop[1:])] = f"{loop} = distinct !{{{loop}, {never}}}"
        self.lines.append(f"  br i1 {more}, label %{head}, label %{after}, !llvm.loop {loop}")
        self.label(after)

    def turns(self, begin: str, step: str | int, size: str) -> str:
        more = self.emit(f"sub i64 {size}, {begin}")
        padded = self.emit(f"add i64 {more}, {self.emit(f'sub i64 {step}, 1')}")
        self.declared["llvm.smax.i64"] = "declare i64 @llvm.smax.i64(i64, i64)"
        return self.divided(self.emit(f"call i64 @llvm.smax.i64(i64 {padded}, i64 0)"), str(step))[0]

    def at_turn(self, begin: str, step: str | int, turn: str) -> str:
        return self.emit(f"add i64 {begin}, {self.emit(f'mul i64 {turn}, {step}')}")

    def divided(self, i: str, size: str) -> tuple[str, str]:
        """Quotient and rest of numbers that are not negative; divisions of 64 bits are slow calls on a GPU."""
        if not self.schedule.is_narrow:
            return self.emit(f"udiv i64 {i}, {size}"), self.emit(f"urem i64 {i}, {size}")
        a = self.emit(f"trunc i64 {i} to i32")
        b = self.emit(f"trunc i64 {size} to i32")
        both = [self.emit(f"{op} i32 {a}, {b}") for op in ("udiv", "urem")]
        quotient, rest = (self.emit(f"zext i32 {x} to i64") for x in both)
        return quotient, rest

    def positions(self, i: str, first: int, end: int) -> list[str]:
        """Where number i is in the loops from first to end - 1."""
        inner: list[str] = []
        for d in reversed(range(first + 1, end)):
            i, rest = self.divided(i, self.sizes[d])
            inner.insert(0, rest)
        return [i, *inner] if end > first else []

    def pointers_at(self, pointers: list[str], first: int, positions: Sequence[str]) -> list[str]:
        for d, position in enumerate(positions, first):
            pointers = self.advance(pointers, d, position)
        return pointers


def _part_kinds(kind: str) -> list[str]:
    """Of a complex number's type those of its parts, else the type."""
    return kind.strip("{ }").split(", ")


def print_serial(f: Threads) -> ThreadCode:
    """A thread for each row, whose elements it goes through in their order: of Chains once for each."""
    rank, threads = f.kernel.rank, f.schedule.threads
    outer = rank - f.kernel.row_rank
    first = f.emit(f"add i64 {f.emit(f'mul i64 {f.block_number}, {threads}')}, {f.thread}")
    step = f.emit(f"mul i64 {f.block_count}, {threads}")
    length = f.product(f.sizes[outer:])

    def row(number: str) -> None:
        positions = f.positions(number, 0, outer)
        pointers = f.pointers_at(f.bases, 0, positions)

        def at(i: str, computed: dict[int, str] | None = None) -> Values:
            inner = f.positions(i, outer, rank)
            here = f.pointers_at(pointers, outer, inner[:-1])
            return Values(f, here, [*positions, *inner], inner[-1], "", computed=computed)

        def element(i: str) -> None:
            for stage in f.kernel.stages:
                assert isinstance(stage, Each)
                at(i).store(stage.stores)

        if not isinstance(f.kernel.stages[0], Chain):
            return f.strided("0", 1, length, element)
        for stage in f.kernel.stages:
            assert isinstance(stage, Chain)
            _chain(f, stage, length, at)

    f.strided(first, step, f.product(f.sizes[:outer]), row)
    return f.code(threads)


def _chain(f: Threads, stage: Chain, length: str, at: Callable[..., Values]) -> None:
    """A Chain over a row; at(i, computed): values at its element i."""
    states = [state(k, start.dtype) for k, start in enumerate(stage.starts)]
    last = f.emit(f"sub i64 {length}, 1")

    def element(turn: str) -> list[str]:
        carried = {id(s): value for s, value in zip(states, f.carried, strict=True)}
        values = at(f.emit(f"sub i64 {last}, {turn}") if stage.reverse else turn, carried)
        following = [values[new] for new in stage.news]
        values.store(stage.stores)
        return following

    def row() -> None:
        first = at(last if stage.reverse else "0")
        starts = [(llvm_type(s.dtype), first[s]) for s in stage.starts]
        f.loop(length, element, starts, simple=True)

    f.branch(f.emit(f"icmp sgt i64 {length}, 0"), row, lambda: None)


def print_elements(f: Threads) -> ThreadCode:
    """A thread for `width` elements of the innermost loop; the grid strides over all of them."""
    rank, width, threads = f.kernel.rank, f.schedule.width, f.schedule.threads
    (stage,) = f.kernel.stages
    stores: tuple[Store, ...] = stage.stores  # type: ignore[union-attr]
    first = f.emit(f"add i64 {f.emit(f'mul i64 {f.block_number}, {threads}')}, {f.thread}")
    step = f.emit(f"mul i64 {f.block_count}, {threads}")
    inner_turns = f.divided(f.sizes[-1], str(width))[0] if width > 1 else f.sizes[-1]
    total = f.product([*f.sizes[:-1], inner_turns])

    def turn(i: str) -> list[str]:
        # As f.positions, but a turn of the innermost loop has `width` elements.
        rest, inner = f.divided(i, inner_turns) if rank > 1 else ("", i)
        outer = f.positions(rest, 0, rank - 1)
        pointers = f.pointers_at(f.bases, 0, outer)
        if width == 1:
            Values(f, pointers, [*outer, inner], inner, "").store(stores)
        else:
            _several(f, stores, pointers, outer, f.emit(f"mul i64 {inner}, {width}"))
        return []

    f.strided(first, step, total, turn)
    if width > 1 and rank == 1:
        begin = f.emit(f"mul i64 {inner_turns}, {width}")

        def element(i: str) -> list[str]:
            Values(f, f.bases, [i], i, "").store(stores)
            return []

        f.strided(f.emit(f"add i64 {begin}, {first}"), step, f.sizes[-1], element)
    return f.code(threads * width)


def _several(
    f: Threads, stores: tuple[Store, ...], pointers: list[str], outer: list[str], begin: str
) -> None:
    """`width` elements from `begin` on, with one access for each operand that is "unit"."""
    width, operands = f.schedule.width, f.kernel.operands
    positions = [begin, *(f.emit(f"add i64 {begin}, {k}") for k in range(1, width))]
    loads: list[Scalar] = [
        node
        for node in walk(*(store.value for store in stores))
        if node.op == "load" and operands[node.value].inner == "unit"
    ]

    def place(operand: int) -> tuple[str, str, str]:
        kind = memory_type(operands[operand].dtype)
        address = f.emit(f"getelementptr {kind}, ptr {pointers[operand]}, i64 {begin}")
        bytes_ = width * max(BITS[operands[operand].dtype], 8) // 8
        return kind, address, f"align {bytes_}"

    computed: list[dict[int, str]] = [{} for _ in range(width)]
    for node in loads:
        kind, address, align = place(node.value)
        vector = f.emit(f"load <{width} x {kind}>, ptr {address}, {align}")
        for k in range(width):
            raw = f.emit(f"extractelement <{width} x {kind}> {vector}, i64 {k}")
            computed[k][id(node)] = from_memory(f, node.dtype, raw)
    every = [
        Values(f, pointers, [*outer, position], position, "", computed=known)
        for position, known in zip(positions, computed, strict=True)
    ]
    values = [[one[store.value] for one in every] for store in stores]  # all, before the first is stored
    for store, lanes in zip(stores, values, strict=True):
        dtype = operands[store.operand].dtype
        if operands[store.operand].inner != "unit":
            for one, value in zip(every, lanes, strict=True):
                one.put(store.operand, value)
            continue
        kind, address, align = place(store.operand)
        vector = "poison"
        for k, value in enumerate(lanes):
            raw = to_memory(f, dtype, value)
            vector = f.emit(f"insertelement <{width} x {kind}> {vector}, {kind} {raw}, i64 {k}")
        f.lines.append(f"  store <{width} x {kind}> {vector}, ptr {address}, {align}")
