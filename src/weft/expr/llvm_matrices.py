"""Code for stacks of matrices: a block of threads works on one matrix at a time, with barriers in loops over columns.

The work of one matrix is a function of a Block, which gives it the operands as matrices, memory to work in, loops that
threads share, and what all threads agree on. Memory to work in is shared memory where it fits, by the sizes of a run
(MEMORY), else an operand or scratch in global memory; the same function writes the code of both.

Between two barriers a thread reads nothing that another one writes; the work on the next matrix of a block follows that
on one without a barrier of its own. Loops with barriers in them have the same number of turns for all threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.base.record import Record
from weft.base.typing import Any
from weft.expr.kernel import Kernel, Operand
from weft.expr.llvm_registers import Register, where
from weft.expr.llvm_threads import WARP, Schedule, ThreadCode, Threads
from weft.expr.llvm_writer import memory_type
from weft.expr.scalar import BITS, COMPLEX

__all__ = ["MEMORY", "Block", "Matrix", "MatrixCode", "Work", "greatest", "shared_bytes", "sums"]

# Of each kind of memory the bytes of shared memory for what a block works on, and its threads: 0 is global memory.
MEMORY = ((0, 256), (8 << 10, 64), (40 << 10, 256))
FOUND_BYTES = 256  # at the beginning of shared memory, for what warps have found
ALIGNED = 16


class Work(Record):
    """Memory that a block works in: name, element type, and the loops that have its sizes, one or two.

    instead: the operand that it is in global memory; "": scratch, with these loops behind the leading ones.
    """

    name: str
    dtype: str
    loops: tuple[str, ...]
    instead: str = ""


class MatrixCode(Record):
    """What code is written for. operands: (name, type, its loops behind the leading ones) of each.

    loops: names of the sizes of matrices; lead: how many loops go over the stack before them; work: memory;
    print(block, *options) writes the work on one matrix; in_flight: of ThreadCode.
    """

    name: str
    print: Callable[..., None]
    options: tuple[Any, ...]
    lead: int
    loops: tuple[str, ...]
    operands: tuple[tuple[str, str, tuple[str, ...]], ...]
    work: tuple[Work, ...]
    in_flight: int = 512

    @property
    def scratch(self) -> list[Work]:
        """The memory that is neither shared nor an operand."""
        return [work for work in self.work if not work.instead]

    def code(self, memory: int, is_narrow: bool) -> ThreadCode:
        """memory: an index of MEMORY."""
        block = Block(self, memory, is_narrow)
        block.each_matrix(lambda: self.print(block, *self.options))
        return block.f.code(1).replaced(in_flight=self.in_flight)


def shared_bytes(dtype: str, rows: int, columns: int = 1) -> int:
    """What an array of work takes of shared memory: an odd number of elements from row to row, for the banks.

    >>> shared_bytes("float32", 4, 4), shared_bytes("float64", 3)
    (80, 32)
    """
    size = rows * (columns | 1) * BITS[dtype] // 8
    return (size + ALIGNED - 1) // ALIGNED * ALIGNED


class Matrix:
    """Elements by row and column, or a vector's by one index. steps: bytes from one to the next.

    is_conjugate: what is loaded and stored are conjugates; True, False or a register.
    """

    def __init__(
        self, block: Block, dtype: str, pointer: str, steps: Sequence[Register], is_conjugate: Any = False
    ) -> None:
        self.block, self.dtype, self.pointer, self.steps = block, dtype, pointer, steps
        self.is_conjugate = is_conjugate

    @property
    def zero(self) -> Register:
        return self.block.number(self.dtype, 0)

    @property
    def adjoint(self) -> Matrix:
        return self.turned(not self.is_conjugate)

    def turned(self, is_conjugate: Any = False) -> Matrix:
        """The transpose."""
        return Matrix(self.block, self.dtype, self.pointer, self.steps[::-1], is_conjugate)

    def _address(self, place: Any) -> str:
        f, pointer = self.block.f, self.pointer
        for i, step in zip(place if isinstance(place, tuple) else (place,), self.steps, strict=True):
            pointer = f.offset(pointer, (step * i).text)
        return pointer

    def __getitem__(self, place: Any) -> Register:
        f, at = self.block.f, self._address(place)
        if self.dtype not in COMPLEX:
            value = Register(f, self.dtype, f.emit(f"load {memory_type(self.dtype)}, ptr {at}"))
            return value.cast("int64") if self.dtype == "int32" else value
        part = COMPLEX[self.dtype]
        parts = [
            Register(f, part, f.emit(f"load {memory_type(part)}, ptr {f.offset(at, k * BITS[part] // 8)}"))
            for k in (0, 1)
        ]
        return self._turned(Register(f, self.dtype, f.pair(self.dtype, *(x.text for x in parts))))

    def __setitem__(self, place: Any, value: Register) -> None:
        f, at = self.block.f, self._address(place)
        value = value.cast("int32") if self.dtype == "int32" else self._turned(value)
        if value.dtype != self.dtype:
            raise TypeError(f"a register of {value.dtype} in a matrix of {self.dtype}")
        for k, x in enumerate(value.parts):
            f.lines.append(f"  store {x.kind} {x.text}, ptr {f.offset(at, k * BITS[x.dtype] // 8)}")

    def put(self, place: Any, value: Register) -> None:
        """Stores an element, where that has to be an expression."""
        self[place] = value

    def _turned(self, value: Register) -> Register:
        if self.dtype not in COMPLEX or self.is_conjugate is False:
            return value
        if self.is_conjugate is True:
            return value.conj()
        return value.of_parts(value.real, where(self.is_conjugate, -value.imag, value.imag))


class Block:
    """What the work on one matrix is written with; all positions and sizes are registers of int64."""

    def __init__(self, code: MatrixCode, memory: int, is_narrow: bool) -> None:
        self.code, self.memory = code, memory
        shared, self.threads = MEMORY[memory]
        scratch = code.scratch
        every = [*code.operands, *((work.name, work.dtype, work.loops) for work in scratch)]
        kernel = Kernel(
            code.name, code.lead + len(code.loops), tuple(Operand(dtype, "any") for _, dtype, _ in every), ()
        )
        self.f = f = Threads(kernel, Schedule("matrices", self.threads, 1, is_narrow))
        f.shared_words = (FOUND_BYTES + shared) // 8
        self.size = {name: self.index(f.sizes[d]) for d, name in enumerate(code.loops, code.lead)}
        self.thread, self.lane, self.warp = (self.index(x) for x in (f.thread, f.lane, f.warp))
        self.warps = self.threads // WARP

    # Values.

    def index(self, value: str | int) -> Register:
        return Register(self.f, "int64", str(value))

    def number(self, dtype: str, value: float) -> Register:
        return Register(self.f, dtype, "").like(value)

    def less(self, a: Register, b: Register | int) -> Register:
        """The lesser one."""
        return where(a < b, a, b)

    # The stack.

    def each_matrix(self, work: Callable[[], None]) -> None:
        """Writes the launch's turns around the work on one."""
        f, lead = self.f, self.code.lead

        def turn(number: str) -> None:
            pointers = f.pointers_at(f.bases, 0, f.positions(number, 0, lead))
            self.operands: dict[str, Matrix] = {}
            scratch = [(work.name, work.dtype, work.loops) for work in self.code.scratch]
            for k, (name, dtype, loops) in enumerate([*self.code.operands, *scratch]):
                steps = [
                    self.index(f.strides[k][lead + self.code.loops.index(x)]) if x else self.index(0)
                    for x in loops
                ]
                self.operands[name] = Matrix(self, dtype, pointers[k], steps)
            self._place_work()
            work()

        f.strided(f.block_number, f.block_count, f.product(f.sizes[:lead]), turn)

    def __getitem__(self, name: str) -> Matrix:
        return self.operands[name]

    def _place_work(self) -> None:
        """Gives the work memory its places."""
        f, begin = self.f, self.index(FOUND_BYTES)
        for work in self.code.work:
            if not self.memory:
                if work.instead:
                    self.operands[work.name] = self.operands[work.instead]
                continue
            element = BITS[work.dtype] // 8
            rows, *columns = (self.size[loop] for loop in work.loops)
            step = (columns[0] | 1) * element if columns else self.index(element)
            pointer = f.offset(f.emit("call ptr @weft_shared()"), begin.text)
            steps = [step, self.index(element)] if columns else [step]
            self.operands[work.name] = Matrix(self, work.dtype, pointer, steps)
            begin = begin + ((rows * step + (ALIGNED - 1)) & -ALIGNED)

    # Loops.

    def loop(
        self, size: Register, body: Callable[..., Any], carried: Sequence[Register] = ()
    ) -> list[Register]:
        """body(k, *carried) for k in [0, size), by all threads; it returns what is carried on, and so does this."""
        f = self.f

        def turn(k: str) -> list[str]:
            old = [Register(f, x.dtype, text) for x, text in zip(carried, f.carried, strict=True)]
            news = body(self.index(k), *old) or []
            return [x.text for x in news]

        texts = f.loop(size.text, turn, [(x.kind, x.text) for x in carried], simple=True)
        return [Register(f, x.dtype, text) for x, text in zip(carried, texts, strict=True)]

    def repeat(
        self, body: Callable[..., tuple[Register, Any]], carried: Sequence[Register]
    ) -> list[Register]:
        """body(*carried), which returns whether that was all and what is carried on, until it was."""
        f = self.f

        def turn(texts: list[str]) -> tuple[str, list[str]]:
            old = [Register(f, x.dtype, text) for x, text in zip(carried, texts, strict=True)]
            is_done, news = body(*old)
            return is_done.text, [x.text for x in news]

        texts = f.until(turn, [(x.kind, x.text) for x in carried])
        return [Register(f, x.dtype, text) for x, text in zip(carried, texts, strict=True)]

    def when(self, condition: Register, body: Callable[[], None]) -> None:
        self.f.branch(condition.text, body, lambda: None)

    def chosen(
        self, condition: Register, body: Callable[[], Sequence[Register]], otherwise: Sequence[Register]
    ) -> list[Register]:
        """What body returns where the condition holds."""
        texts = self.f.replaced(
            condition.text, lambda: [x.text for x in body()], [(x.kind, x.text) for x in otherwise]
        )
        return [Register(self.f, x.dtype, text) for x, text in zip(otherwise, texts, strict=True)]

    def once(self, body: Callable[[], None]) -> None:
        """By one thread."""
        self.when(self.thread.same(0), body)

    def each(self, size: Register, body: Callable[[Register], None], begin: Register | int = 0) -> None:
        """The positions in [begin, size), each by one thread."""
        first = self.thread + begin
        self.f.strided(first.text, self.threads, size.text, lambda i: body(self.index(i)))

    def each_of(
        self,
        size: Register,
        body: Callable[..., Sequence[Register]],
        carried: Sequence[Register],
        begin: Register | int = 0,
    ) -> list[Register]:
        """As each; a thread carries values from one of its positions to the next: body(i, *carried)."""
        return self._carried(self.thread + begin, self.threads, size, body, carried)

    def each_pair(
        self,
        rows: Register,
        columns: Register,
        body: Callable[..., Sequence[Register] | None],
        carried: Sequence[Register] = (),
    ) -> list[Register]:
        """All (i, j), i < rows, j < columns, each by one thread; neighbours are in a row. As each_of.

        Positions go on by additions: there is a division for the loop, and none for a turn of it.
        """
        f = self.f
        safe = where(columns < 1, self.index(1), columns)

        def divided(x: Register) -> tuple[Register, Register]:
            quotient, rest = f.divided(x.text, safe.text)
            return self.index(quotient), self.index(rest)

        i, j = divided(self.thread)
        down, right = divided(self.index(self.threads))

        def turn(_: Register, i: Register, j: Register, *values: Register) -> list[Register]:
            news = body(i, j, *values) or []
            j = j + right
            is_beyond = j >= columns
            return [i + down + where(is_beyond, self.index(1), 0), where(is_beyond, j - columns, j), *news]

        count = f.turns(self.thread.text, self.threads, (rows * columns).text)
        return self.loop(self.index(count), turn, [i, j, *carried])[2:]

    def each_by_warp(
        self,
        size: Register,
        body: Callable[..., Sequence[Register] | None],
        carried: Sequence[Register] = (),
        begin: Register | int = 0,
    ) -> list[Register]:
        """The positions in [begin, size), each by the 32 lanes of a warp together. As each_of."""
        return self._carried(self.warp + begin, self.warps, size, body, carried)

    def each_by_lane(
        self,
        size: Register,
        body: Callable[..., Sequence[Register] | None],
        carried: Sequence[Register] = (),
        begin: Register | int = 0,
    ) -> list[Register]:
        """The positions in [begin, size), each by one lane of the warp: always the same one of the same position.

        So what lanes alone read and write by their positions needs no order. As each_of.
        """
        begin = begin if isinstance(begin, Register) else self.index(begin)
        first = begin + ((self.lane - begin) & (WARP - 1))
        return self._carried(first, WARP, size, body, carried)

    def _carried(
        self,
        first: Register,
        step: int,
        size: Register,
        body: Callable[..., Sequence[Register] | None],
        carried: Sequence[Register],
    ) -> list[Register]:
        count = self.index(self.f.turns(first.text, step, size.text))
        return self.loop(count, lambda k, *values: body(first + k * step, *values), carried)

    # Threads together.

    def barrier(self) -> None:
        """What threads have written before is read after it."""
        self.f.barrier()

    def of_warp(
        self, values: Sequence[Register], combine: Callable[[list[Register], list[Register]], list[Register]]
    ) -> list[Register]:
        """What all lanes' values come to, known to all of them. combine: in any order."""
        f, own = self.f, list(values)
        for delta in (16, 8, 4, 2, 1):
            others = [Register(f, x.dtype, f.shuffle("xor", x.kind, x.text, delta)) for x in own]
            own = combine(own, others)
        return own

    def of_all(
        self, values: Sequence[Register], combine: Callable[[list[Register], list[Register]], list[Register]]
    ) -> list[Register]:
        """What all threads' values come to, known to all of them; real ones. One barrier.

        Before the next call, for the next matrix, too, there has to be another one.
        """
        f = self.f
        own = self.of_warp(values, combine)

        def slot(k: int, warp: Register) -> str:
            base = f.offset(f.emit("call ptr @weft_shared()"), 8 * k * self.warps)
            return f.offset(base, (warp * 8).text)

        def put() -> None:
            for k, x in enumerate(own):
                f.lines.append(f"  store {x.kind} {x.text}, ptr {slot(k, self.warp)}")

        self.when(self.lane.same(0), put)
        self.barrier()
        total: list[Register] = []
        for w in range(self.warps):
            found = [
                Register(f, x.dtype, f.emit(f"load {x.kind}, ptr {slot(k, self.index(w))}"))
                for k, x in enumerate(own)
            ]
            total = combine(total, found) if total else found
        return total


def sums(a: list[Register], b: list[Register]) -> list[Register]:
    """To combine by addition."""
    return [x + y for x, y in zip(a, b, strict=True)]


def greatest(a: list[Register], b: list[Register]) -> list[Register]:
    """To combine by maxima, of numbers that are no NaN."""
    return [where(x < y, y, x) for x, y in zip(a, b, strict=True)]
