"""The description of a program that the native core takes: values by number, geometry by register."""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.typing import TYPE_CHECKING, Any
from weft.executor.assembly import Fused
from weft.executor.lowering import Lowering
from weft.executor.places import Buffer, Place
from weft.executor.steps import NativeStep
from weft.graph.placement import copies
from weft.kernels import loop_kernel

if TYPE_CHECKING:
    from weft.executor.arena import Arena

__all__ = ["describe"]

NOTHING, GEOMETRY, SHOWN, DATA = range(4)  # Program::Use


def describe(
    lowering: Lowering,
    first: Sequence[Fused | NativeStep],
    steps: Sequence[Fused | NativeStep],
    outputs: Sequence[Place],
    arena: Arena | None,
) -> dict[str, Any]:
    """Of steps in the order in which they run; first: those before them that prepare what is kept.

    arena: None where sizes are not known: nothing is shared then.
    """
    return _Description(lowering, arena).of(first, steps, outputs)


class _Description:
    def __init__(self, lowering: Lowering, arena: Arena | None) -> None:
        self.lowering, self.arena = lowering, arena
        self.register = lowering.registers.register
        self.values: list[Any] = []
        self.number_of: dict[Any, int] = {}
        self.uses = [NOTHING] * len(lowering.arrays)
        self.end: Any = 0 if arena is None else arena.size_bytes

    def of(
        self,
        preparing: Sequence[Fused | NativeStep],
        steps: Sequence[Fused | NativeStep],
        outputs: Sequence[Place],
    ) -> dict[str, Any]:
        lowering = self.lowering
        self.find_flexible([*preparing, *steps])
        made = []
        for step in (*preparing, *steps):
            lent = set()
            if isinstance(step, Fused):
                first = lowering.slots.add(step.parameters)
                lent = {place.key for place in step.lent}
            else:
                first = step.first_slot
            for place in step.reads:
                self.use(place, GEOMETRY if lent and place.key in lent else DATA)
            numbers = [self.number(place) for place in step.operands]
            origin = step.origin
            kernel = loop_kernel(lowering.device, step.code) if isinstance(step, Fused) else step.kernel
            shared = () if isinstance(step, Fused) else step.in_place
            pairs = [(self.number(x), self.number(y)) for x, y in shared]
            keys = {place.key for place in step.writes}
            written = [k for k, place in enumerate(step.operands) if place.key in keys]
            made.append((kernel, numbers, first, origin.name, origin.where, pairs, written))
        given = [v for v in enumerate(lowering.graph.outputs) if v[1] is not None]
        leaving = []
        for (j, _), place in zip(given, outputs, strict=True):
            target = lowering.graph.writes.get(j)
            into = -1
            if target is not None:
                into = lowering.places[id(lowering.graph.inputs[target])].buffer.number
            # A view of an input that leaves: whoever gives the input has to give it as it was planned.
            self.use(place, SHOWN)
            leaving.append((self.number(place), into, place.buffer.flexible, j in lowering.commits))
        arrays = [lowering.places[id(v)] for v in lowering.arrays]
        return {
            "name": lowering.name,
            "device": lowering.device,
            "arena_bytes": -1 if isinstance(self.end, int) and self.end == 0 else self.register(self.end),
            "wide": lowering.wide,
            "is_copy": copies(lowering.graph),
            "values": self.values,
            "outputs": leaving,
            "uses": self.uses,
            "steps": made,
            "preparing": [
                ([self.root(x.buffer) for x in step.reads], [self.root(y.buffer) for y in step.writes])
                for step in preparing
            ],
            "spans": [] if self.arena is None else self.arena.spans,
            "slots": lowering.slots.slots,
            "randoms": lowering.slots.randoms,
            "strides": [p.strides for p in arrays] if lowering.exact else [],
            "exact": lowering.exact,
            "check": self.arena is not None and self.arena.is_checked,
            "inputs": [(p.type.dtype, p.shape, p.strides) for p in arrays] if lowering.exact else [],
            "registers": len(lowering.registers),
            "constants": lowering.registers.constants,
            "loads": lowering.registers.loads,
            "computes": lowering.registers.computes,
        }

    def find_flexible(self, steps: Sequence[Fused | NativeStep]) -> None:
        """Strides of outputs are fixed where views or kernels of the native core rely on them."""
        for step in steps:
            for place in (*step.reads, *step.writes):
                if not place.is_whole or (isinstance(step, NativeStep) and step.fixed):
                    place.buffer.flexible, place.buffer.like = False, -1

    def use(self, place: Place, how: int) -> None:
        number = place.buffer.number
        if number >= 0:
            self.uses[number] = max(self.uses[number], how)

    def number(self, place: Place) -> int:
        """The number of a value: of an input, else of one that is described here."""
        buffer = place.buffer
        if place.is_whole:
            return self.root(buffer)
        found = self.number_of.get(place.key)
        if found is None:
            root = self.root(buffer)
            found = self.number_of[place.key] = self.add(
                "view", place, root, self.register(place.offset), -1, True
            )
        return found

    def root(self, buffer: Buffer) -> int:
        if buffer.is_input:
            return buffer.number
        found = self.number_of.get(id(buffer))
        if found is None:
            whole = buffer.whole()
            if buffer.output:
                laid = self.lowering.exact or not (buffer.flexible or buffer.like >= 0)
                like = -1 if self.lowering.laid else buffer.like
                found = self.add("output", whole, -1, -1, like, laid)
            elif buffer.kept:
                found = self.add("kept", whole, -1, -1, -1, True)
            else:
                found = self.add("temporary", whole, -1, self.register(self.offset(buffer)), -1, True)
            self.number_of[id(buffer)] = found
        return found

    def offset(self, buffer: Buffer) -> Any:
        if self.arena is not None:
            return self.arena.offsets[id(buffer)]
        offset = self.end
        self.end = self.end + ((buffer.size_bytes + 63) // 64) * 64
        return offset

    def add(self, kind: str, place: Place, base: int, offset: int, like: int, strides: bool) -> int:
        sizes = [self.register(n) for n in place.shape]
        steps = [self.register(s) for s in place.strides] if strides else []
        self.values.append((kind, place.type.dtype, base, offset, like, sizes, steps))
        return len(self.lowering.arrays) + len(self.values) - 1
