"""The description of a program that the native core takes: values by number, geometry by register."""

from __future__ import annotations

from collections.abc import Sequence

from weft import _core
from weft.base.typing import TYPE_CHECKING, Any
from weft.executor.assembly import Fused
from weft.executor.buffers import Buffer, BufferView, same_shape
from weft.executor.lowering import Lowering
from weft.executor.steps import NativeStep
from weft.expr.kernel import Each
from weft.graph.placement import copies
from weft.kernels import loop_kernel

if TYPE_CHECKING:
    from weft._core import ProgramBuilder
    from weft.executor.arena import Arena

__all__ = ["emit"]

NOTHING, GEOMETRY, SHOWN, DATA = range(4)  # Program::Use


def emit(
    lowering: Lowering,
    hoisted: Sequence[Fused | NativeStep],
    steps: Sequence[Fused | NativeStep],
    outputs: Sequence[BufferView],
    arena: Arena | None,
) -> ProgramBuilder:
    """The program of steps in the order in which they run; hoisted: those before them, whose results are kept.

    arena: None where sizes are not known: no memory is shared then.
    """
    return _Description(lowering, arena).of(hoisted, steps, outputs)


def is_copy(step: Fused | NativeStep) -> bool:
    """Whether a step copies an array to another one of the same strides, and does nothing else."""
    if not isinstance(step, Fused) or len(step.operands) != 2 or not step.elementwise:
        return False
    x, y = step.operands
    (stage,) = step.code.stages if len(step.code.stages) == 1 else (None,)
    return (
        isinstance(stage, Each)
        and [(s.operand, s.value.op, s.add) for s in stage.stores] == [(0, "load", False)]
        and x.type.dtype is y.type.dtype
        and same_shape(x.shape, y.shape)
        and same_shape(x.strides, y.strides)
    )


class _Description:
    def __init__(self, lowering: Lowering, arena: Arena | None) -> None:
        self.lowering, self.arena = lowering, arena
        self.register = lowering.registers.register
        self.program: ProgramBuilder = _core.ProgramBuilder(
            lowering.name,
            lowering.device,
            len(lowering.arrays),
            is_exact=lowering.exact,
            is_wide=lowering.wide,
            is_copy=copies(lowering.graph),
            is_checked=arena is not None and arena.is_checked,
        )
        self.number_of: dict[Any, int] = {}
        self.end: Any = 0 if arena is None else arena.size_bytes

    def of(
        self,
        hoisted: Sequence[Fused | NativeStep],
        steps: Sequence[Fused | NativeStep],
        outputs: Sequence[BufferView],
    ) -> ProgramBuilder:
        lowering, program = self.lowering, self.program
        self.find_flexible([*hoisted, *steps])
        for step in (*hoisted, *steps):
            self.add_step(step)
        indices = [j for j, value in enumerate(lowering.graph.outputs) if value is not None]
        for j, view in zip(indices, outputs, strict=True):
            target = lowering.graph.writes.get(j)
            into = -1 if target is None else lowering.views[id(lowering.graph.inputs[target])].buffer.number
            # A view of an input that is an output: the caller has to pass the input with the planned strides.
            self.use(view, SHOWN)
            program.add_result(self.number(view), into, view.buffer.flexible, j in lowering.commits)
        if not (isinstance(self.end, int) and self.end == 0):
            program.set_arena(self.register(self.end))
        for step in hoisted:
            reads = [self.root(x.buffer) for x in step.reads]
            program.add_hoisted(reads, [self.root(y.buffer) for y in step.writes])
        if self.arena is not None:
            for span in self.arena.spans:
                program.add_span(*span)
        if lowering.exact:
            for view in (lowering.views[id(v)] for v in lowering.arrays):
                program.add_input(view.type.dtype, view.shape, view.strides)
        self.add_parameters()
        self.add_registers()
        return program

    def add_step(self, step: Fused | NativeStep) -> None:
        shape_only = set()
        if isinstance(step, Fused):
            first = self.lowering.slots.add(step.parameters)
            shape_only = {view.key for view in step.shape_operands}
        else:
            first = step.first_slot
        for view in step.reads:
            self.use(view, GEOMETRY if shape_only and view.key in shape_only else DATA)
        numbers = [self.number(view) for view in step.operands]
        kernel = loop_kernel(self.lowering.device, step.code) if isinstance(step, Fused) else step.kernel
        in_place = () if isinstance(step, Fused) else step.in_place
        pairs = [(self.number(x), self.number(y)) for x, y in in_place]
        pairs = [(x, y) for x, y in pairs if x != y]
        keys = {view.key for view in step.writes}
        written = [k for k, view in enumerate(step.operands) if view.key in keys]
        self.program.add_step(
            kernel, numbers, first, step.origin.name, step.origin.where, pairs, written, is_copy=is_copy(step)
        )

    def add_parameters(self) -> None:
        program, slots = self.program, self.lowering.slots
        for kind, dtype, value in slots.slots:
            if kind == "number":
                program.add_number(dtype, value)
            elif kind == "register":
                program.add_register(dtype, value)
            elif kind == "constant":
                program.add_number_known(dtype, value)
            elif kind == "random":
                program.add_random_word(dtype)
            else:
                raise AssertionError(f"a parameter cannot be {kind!r}")
        for draw in slots.randoms:
            program.add_draw(*draw)

    def add_registers(self) -> None:
        program, registers = self.program, self.lowering.registers
        for number, value in registers.constants:
            program.add_constant(number, value)
        for load in registers.loads:
            program.add_load(*load)
        for compute in registers.computes:
            program.add_compute(*compute)

    def find_flexible(self, steps: Sequence[Fused | NativeStep]) -> None:
        """Strides of outputs are fixed where views or kernels of the native core rely on them."""
        for step in steps:
            for view in (*step.reads, *step.writes):
                if not view.is_whole or (isinstance(step, NativeStep) and step.fixed):
                    view.buffer.flexible, view.buffer.like = False, -1

    def use(self, view: BufferView, use: int) -> None:
        if view.buffer.number >= 0:
            self.program.use(view.buffer.number, use)

    def number(self, view: BufferView) -> int:
        """The number of a value: of an input, else of one that is described here."""
        buffer = view.buffer
        if view.is_whole:
            return self.root(buffer)
        number = self.number_of.get(view.key)
        if number is None:
            base = self.root(buffer)
            number = self.number_of[view.key] = self.program.add_view(
                view.type.dtype, base, self.register(view.offset), *self.geometry(view)
            )
        return number

    def root(self, buffer: Buffer) -> int:
        if buffer.number >= 0:  # is_input
            return buffer.number
        if buffer.within is not None:
            return self.root(buffer.within)
        number = self.number_of.get(id(buffer))
        if number is None:
            whole = buffer.whole()
            dtype = whole.type.dtype
            if buffer.output:
                has_strides = self.lowering.exact or not (buffer.flexible or buffer.like >= 0)
                like = -1 if self.lowering.fixed_layout else buffer.like
                number = self.program.add_output(dtype, like, *self.geometry(whole, has_strides))
            elif buffer.kept:
                number = self.program.add_kept(dtype, *self.geometry(whole))
            else:
                offset = self.register(self.offset(buffer))
                number = self.program.add_temporary(dtype, offset, *self.geometry(whole))
            self.number_of[id(buffer)] = number
        return number

    def offset(self, buffer: Buffer) -> Any:
        if self.arena is not None:
            return self.arena.offsets[id(buffer)]
        offset = self.end
        self.end = self.end + ((buffer.size_bytes + 63) // 64) * 64
        return offset

    def geometry(self, view: BufferView, has_strides: bool = True) -> tuple[list[int], list[int]]:
        """The registers of its sizes, and of its strides."""
        sizes = [self.register(n) for n in view.shape]
        return sizes, [self.register(s) for s in view.strides] if has_strides else []
