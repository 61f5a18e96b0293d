"""Text of LLVM IR while it is written: instructions, labels, loops; nothing of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.expr.scalar import BITS, COMPLEX, FLOATS

__all__ = ["Writer", "llvm_type", "memory_type"]


def llvm_type(dtype: str) -> str:
    """The type of a value in a register."""
    if dtype in FLOATS:
        return {"float16": "half", "bfloat16": "i16", "float32": "float", "float64": "double"}[dtype]
    if dtype in COMPLEX:
        return f"{{ {llvm_type(COMPLEX[dtype])}, {llvm_type(COMPLEX[dtype])} }}"
    return f"i{BITS[dtype]}"


def memory_type(dtype: str) -> str:
    """The type of an element in memory."""
    return "i8" if dtype == "bool" else llvm_type(dtype)


LONG_LOOP = 30  # instructions, from which LLVM does not interleave a loop without a reduction by itself
MOST_INTERLEAVED = 4096  # instructions after interleaving, which the processor's caches of code hold


def interleaved(instructions: int) -> int:
    """How many turns of a loop, whose turns are independent, to compute side by side; 1: what LLVM likes.

    A long chain of operations waits for each one's result; the processor computes other turns meanwhile, if the code
    has them near enough.

    >>> interleaved(10), interleaved(100), interleaved(600), interleaved(3000)
    (1, 8, 4, 1)
    """
    if instructions <= LONG_LOOP:
        return 1
    return next((turns for turns in (8, 4, 2) if instructions * turns <= MOST_INTERLEAVED), 1)


class Writer:
    """The lines of one function, and what goes outside of it: declarations and metadata."""

    divides_by_floats = True  # whether integers of at most 32 bits are, for the sake of vectors

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self.marks: list[str] = []
        self.count = 0
        self.block = "entry"
        self.arrays: list[str] = []  # the stack's; declared at the function's beginning
        self.carried: list[str] = []  # what the loop that was opened last carries
        self.roundings = 0  # to bfloat16, until now

    # Small pieces of text.

    def emit(self, instruction: str) -> str:
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def label(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def offset(self, pointer: str, offset: int | str) -> str:
        base = pointer if pointer.startswith("%") else f"%{pointer}"
        return self.emit(f"getelementptr i8, ptr {base}, i64 {offset}")

    def load_word(self, pointer: str, number: int) -> str:
        return self.emit(f"load i64, ptr {self.offset(pointer, 8 * number)}")

    def intrinsic(self, name: str, dtype: str, arguments: list[str], flags: str = "") -> str:
        kind = llvm_type(dtype)
        suffix = {"float": "f32", "double": "f64"}.get(kind, kind)
        full = f"llvm.{name}.{suffix}"
        self.declared[full] = f"declare {kind} @{full}({', '.join([kind] * len(arguments))})"
        return self.emit(f"call {flags}{kind} @{full}({', '.join(f'{kind} {a}' for a in arguments)})")

    def pair(self, dtype: str, re: str, im: str) -> str:
        """A complex number of its parts: two registers, as LLVM takes the pair apart again."""
        kind, part = llvm_type(dtype), llvm_type(COMPLEX[dtype])
        first = self.emit(f"insertvalue {kind} poison, {part} {re}, 0")
        return self.emit(f"insertvalue {kind} {first}, {part} {im}, 1")

    def part(self, dtype: str, value: str, k: int) -> str:
        """The real (0) or the imaginary (1) part of a complex number."""
        return self.emit(f"extractvalue {llvm_type(dtype)} {value}, {k}")

    def mark(self, text: str) -> str:
        name = f"!{len(self.marks)}"
        self.marks.append(f"{name} = {text}")
        return name

    # Loops.

    def loop(
        self,
        size: str,
        body: Callable[[str], list[str]],
        carried: Sequence[tuple[str, str]] = (),
        parallel: str = "",
        enter: Callable[[], None] | None = None,
        simple: bool = False,
        chains: int = 1,
    ) -> list[str]:
        """A loop over [0, size). carried: (type, first value) that go from turn to turn; body returns the next values.

        Returns the carried values after the loop. body(i) may open loops of its own. enter: runs before the first turn,
        if there is one; without loops of its own. parallel: the group of accesses that no turn shares with another.
        simple: neither vectors nor unrolling, which cost time to compile. chains: how many parts of a turn do not wait
        for each other.
        """
        self.count += 1
        number = self.count
        before, head, latch, after = self.block, f"head{number}", f"latch{number}", f"after{number}"
        empty = self.emit(f"icmp sgt i64 {size}, 0")
        first_block = f"enter{number}" if enter else head
        self.lines.append(f"  br i1 {empty}, label %{first_block}, label %{after}")
        source = before
        if enter:
            source = first_block
            self.label(first_block)
            enter()
            self.lines.append(f"  br label %{head}")
        self.label(head)
        position = f"%i{number}"
        self.lines.append(f"  {position} = phi i64 [ 0, %{source} ], [ {position}.next, %{latch} ]")
        names = [f"%c{number}.{k}" for k in range(len(carried))]
        phis = len(self.lines)  # their text needs what the body gives
        self.lines.extend([""] * len(carried))
        self.carried = names
        roundings = self.roundings
        following = body(position)
        self.lines.append(f"  br label %{latch}")
        self.label(latch)
        for k, (kind, first) in enumerate(carried):
            self.lines[phis + k] = (
                f"  {names[k]} = phi {kind} [ {first}, %{source} ], [ {following[k]}, %{latch} ]"
            )
        self.lines.append(f"  {position}.next = add nuw nsw i64 {position}, 1")
        more = self.emit(f"icmp slt i64 {position}.next, {size}")
        mark = ""
        if parallel:
            loop_id = self.mark("distinct !{}")
            facts = [loop_id, self.mark(f'!{{!"llvm.loop.parallel_accesses", {parallel}}}')]
            if self.roundings > roundings:  # LLVM thinks that they cost much, and would take vectors of 4
                facts.append(self.mark('!{!"llvm.loop.vectorize.width", i32 16}'))
            turns = 1 if carried else interleaved(len(self.lines) - phis) // chains
            if turns > 1:
                facts.append(self.mark(f'!{{!"llvm.loop.interleave.count", i32 {turns}}}'))
        if simple:
            loop_id = self.mark("")
            facts = [loop_id, self.mark('!{!"llvm.loop.vectorize.enable", i1 false}')]
            facts.append(self.mark('!{!"llvm.loop.unroll.disable"}'))
        if parallel or simple:
            self.marks[int(loop_id[1:])] = f"{loop_id} = distinct !{{{', '.join(facts)}}}"
            mark = f", !llvm.loop {loop_id}"
        self.lines.append(f"  br i1 {more}, label %{head}, label %{after}{mark}")
        self.label(after)
        return [
            self.emit(f"phi {kind} [ {first}, %{before} ], [ {following[k]}, %{latch} ]")
            for k, (kind, first) in enumerate(carried)
        ]

    def branch(self, condition: str, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        self.count += 1
        yes, no, after = (f"{name}{self.count}" for name in ("then", "else", "join"))
        self.lines.append(f"  br i1 {condition}, label %{yes}, label %{no}")
        for label, body in ((yes, then), (no, otherwise)):
            self.label(label)
            body()
            self.lines.append(f"  br label %{after}")
        self.label(after)

    def replaced(
        self, condition: str, body: Callable[[], list[str]], old: Sequence[tuple[str, str]]
    ) -> list[str]:
        """What body returns if the condition holds, else the old (type, value)s."""
        self.count += 1
        before, yes, after = self.block, f"then{self.count}", f"join{self.count}"
        self.lines.append(f"  br i1 {condition}, label %{yes}, label %{after}")
        self.label(yes)
        news = body()
        last = self.block
        self.lines.append(f"  br label %{after}")
        self.label(after)
        return [
            self.emit(f"phi {kind} [ {value}, %{before} ], [ {new}, %{last} ]")
            for (kind, value), new in zip(old, news, strict=True)
        ]

    def first(self, body: Callable[[str], str], kind: str) -> tuple[str, str]:
        """The first number from 0 on for which body returns another integer than 0, and that; there must be one."""
        self.count += 1
        number = self.count
        before, head, after = self.block, f"head{number}", f"after{number}"
        self.lines.append(f"  br label %{head}")
        self.label(head)
        self.lines.append(f"  %i{number} = phi i64 [ 0, %{before} ], [ %i{number}.next, %{head} ]")
        value = body(f"%i{number}")
        self.lines.append(f"  %i{number}.next = add nuw nsw i64 %i{number}, 1")
        missing = self.emit(f"icmp eq {kind} {value}, 0")
        self.lines.append(f"  br i1 {missing}, label %{head}, label %{after}")
        self.label(after)
        return f"%i{number}", value

    def until(
        self, body: Callable[[list[str]], tuple[str, list[str]]], carried: Sequence[tuple[str, str]]
    ) -> list[str]:
        """A loop until body(values) says that it is done: the values that it gave last. carried: as in `loop`."""
        self.count += 1
        number = self.count
        before, head, after = self.block, f"head{number}", f"after{number}"
        self.lines.append(f"  br label %{head}")
        self.label(head)
        names = [f"%c{number}.{k}" for k in range(len(carried))]
        phis = len(self.lines)
        self.lines.extend([""] * len(carried))
        done, news = body(names)
        for k, (kind, first) in enumerate(carried):
            self.lines[phis + k] = (
                f"  {names[k]} = phi {kind} [ {first}, %{before} ], [ {news[k]}, %{self.block} ]"
            )
        self.lines.append(f"  br i1 {done}, label %{after}, label %{head}")
        self.label(after)
        return news

    def reduce(self, name: str, kind: str, vector: str, value: str) -> str:
        """llvm.vector.reduce.NAME of a vector, without NaN if it is of floats."""
        full = f"llvm.vector.reduce.{name}"
        self.declared[full] = f"declare {kind} @{full}({vector})"
        flags = "nnan " if kind in ("float", "double") else ""
        return self.emit(f"call {flags}{kind} @{full}({vector} {value})")

    def blocks(
        self,
        size: str,
        most: int,
        body: Callable[[str, str], list[str]],
        carried: Sequence[tuple[str, str]] = (),
    ) -> list[str]:
        """A loop over [0, size) in pieces of at most `most`: body(begin, length)."""
        padded = self.emit(f"add i64 {size}, {most - 1}")
        count = self.emit(f"sdiv i64 {padded}, {most}")

        def piece(b: str) -> list[str]:
            begin = self.emit(f"mul nuw nsw i64 {b}, {most}")
            rest = self.emit(f"sub i64 {size}, {begin}")
            return body(begin, self.smaller(rest, most))

        return self.loop(count, piece, carried)

    def smaller(self, a: str, b: str | int) -> str:
        self.declared["llvm.smin.i64"] = "declare i64 @llvm.smin.i64(i64, i64)"
        return self.emit(f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})")

    def array(self, dtype: str, length: int) -> str:
        """Values on the stack."""
        name = f"%array{len(self.arrays)}"
        kind, numbers = (COMPLEX[dtype], 2 * length) if dtype in COMPLEX else (dtype, length)
        self.arrays.append(f"  {name} = alloca [{numbers} x {memory_type(kind)}], align 64")
        return name
