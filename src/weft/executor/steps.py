"""Steps on buffer views, the result of lowering a graph: not fused yet, and without memory in the arena."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.base.cached import cached_property
from weft.base.dtype import DType
from weft.base.record import Record
from weft.base.typing import Any
from weft.executor.buffers import Buffer, BufferView, is_one, same_shape
from weft.expr import scalar as e
from weft.expr.kernel import Each, Once, Reduction, Scan, Store, parts
from weft.ops.kernels import Loop
from weft.ops.node import Value

__all__ = ["LoopStep", "NativeStep", "Origin", "Step", "copying", "live_steps", "without_rows", "written_by"]

Scalar = e.Scalar
CALL_WEIGHT = 12  # of exp and the like, in basic operations


class Origin(Record):
    """What a step is part of: the operator that was called, the user's line ("file:line" or empty), its node."""

    name: str
    where: str = ""
    node: Any = None


class Step:
    """Base: what is read and written, where it came from. text: what it does, for people."""

    def __init__(
        self, text: str, origin: Origin, reads: Iterable[BufferView], writes: Sequence[BufferView]
    ) -> None:
        self.text, self.origin = text, origin
        self.reads, self.writes = tuple(reads), tuple(writes)

    @cached_property
    def temporaries(self) -> list[Buffer]:
        """The temporary buffers that it reads and writes, for each view, once it is known what leaves the program."""
        return [view.buffer for view in (*self.reads, *self.writes) if view.buffer.is_temporary]


class NativeStep(Step):
    """A kernel of the native core. operands: in the kernel's order; fixed: it is for the strides that were planned.

    pure: it reads nothing but its operands, no numbers of the call.
    """

    def __init__(
        self,
        kernel: Any,
        operands: Sequence[BufferView],
        reads: Iterable[BufferView],
        writes: Sequence[BufferView],
        first_slot: int,
        text: str,
        origin: Origin,
        fixed: bool,
        in_place: Sequence[tuple[BufferView, BufferView]] = (),
        pure: bool = True,
    ) -> None:
        super().__init__(f"native {text}", origin, reads, writes)
        self.is_pure = pure
        self.fixed = fixed
        self.kernel, self.operands, self.first_slot = kernel, tuple(operands), first_slot
        self.in_place = tuple(in_place)
        self.number = 0  # in the program's order
        self.ordered = False

    def moved(self, result: BufferView, to: BufferView) -> NativeStep | None:
        """The step with a result elsewhere, over the operand that it may be written over; None if it is another one."""
        over = [x for x, y in self.in_place if y is result]
        reads = [x for x in self.reads if x.buffer is to.buffer]
        fits = result.type.dtype is to.type.dtype and same_shape(result.strides, to.strides)
        if not fits or [x.key for x in over] != [to.key] or [x.key for x in reads] != [to.key]:
            return None

        def place(views: Iterable[BufferView]) -> list[BufferView]:
            return [to if view is result else view for view in views]

        pairs = [(x, to if y is result else y) for x, y in self.in_place]
        text, first_slot = self.text.removeprefix("native "), self.first_slot
        operands, writes = place(self.operands), place(self.writes)
        step = NativeStep(
            self.kernel,
            operands,
            self.reads,
            writes,
            first_slot,
            text,
            self.origin,
            self.fixed,
            pairs,
            self.is_pure,
        )
        step.ordered = self.ordered
        return step


class LoopStep(Step):
    """A Loop on these inputs (a buffer view, a Value that is a number, or None) and outputs."""

    def __init__(
        self,
        inputs: Sequence[BufferView | Value | None],
        outputs: Sequence[BufferView],
        loop: Loop,
        text: str,
        origin: Origin,
    ) -> None:
        super().__init__(text, origin, [x for x in inputs if isinstance(x, BufferView)], outputs)
        self.inputs, self.outputs, self.loop = tuple(inputs), tuple(outputs), without_rows(loop)

    @cached_property
    def shape(self) -> tuple[Any, ...]:
        """The space that it runs over."""
        shapes = [x.shape for x in self.reads]
        if not self.loop.axes:
            shapes += [y.shape for y in self.outputs]
        rank = max(map(len, shapes), default=0)
        sizes: list[Any] = [1] * rank
        for shape in shapes:
            for d, n in enumerate(shape, rank - len(shape)):
                if isinstance(sizes[d], int) and sizes[d] == 1:
                    sizes[d] = n
        return tuple(sizes)

    @cached_property
    def nodes(self) -> list[Scalar]:
        """Of all expressions, each once."""
        return e.walk(*[part.value for stage in self.loop.stages for part in parts(stage)])

    @cached_property
    def operations(self) -> set[str]:
        """Of all expressions."""
        return {node.op for node in self.nodes}

    @cached_property
    def calls_functions(self) -> bool:
        """Whether an expression has a function such as exp in it, which is many basic operations."""
        return not self.operations.isdisjoint(e.FUNCTIONS)

    @property
    def is_pointwise(self) -> bool:
        """Every element by itself, from the elements at its position."""
        stages = self.loop.stages
        return not self.loop.axes and len(stages) == 1 and isinstance(stages[0], Each)

    @cached_property
    def reads_positions(self) -> bool:
        """Whether code reads its position in the loops, or at computed ones: the space is the step's own shape then."""
        return not self.operations.isdisjoint(("index", "load_at"))

    @cached_property
    def gathered(self) -> set[int]:
        """The buffers, by id, that it reads at computed positions: they have to be in memory."""
        views = (self.inputs[node.value] for node in self.nodes if node.op == "load_at")
        return {id(x.buffer) for x in views if isinstance(x, BufferView)}

    @cached_property
    def is_closed(self) -> bool:
        """Whether its results have to be stored before anything can read them.

        Scans; stages that read what earlier ones stored; what is stored once a row, but read from the whole row.
        """
        inputs, stages = self.loop.inputs, self.loop.stages
        if Scan in map(type, stages):
            return True
        if [node for node in self.nodes if node.op in ("load", "load_at") and node.value >= inputs]:
            return True
        for stage in stages:
            if not isinstance(stage, Once):
                continue
            for node in e.walk(*(part.value for part in parts(stage))):
                x = self.inputs[node.value] if node.op == "load" else None
                if isinstance(x, BufferView) and not self._is_one_per_row(x):
                    return True
        return False

    def _is_one_per_row(self, x: BufferView) -> bool:
        first = len(self.shape) - x.ndim
        return all(axis < first or is_one(x.shape[axis - first]) for axis in self.loop.axes)

    @cached_property
    def writes_part(self) -> bool:
        """Whether an output is a part of an array, which others write parts of, too."""
        return True in [y.buffer.in_parts for y in self.outputs]

    @cached_property
    def weight(self) -> int:
        """How long its expressions are, about, in basic operations."""
        leaves = ("load", "constant", "parameter", "result", "index")
        weights = [CALL_WEIGHT if n.op in e.FUNCTIONS else 1 for n in self.nodes if n.op not in leaves]
        return max(sum(weights), 1)


def copying(dtype: DType) -> Loop:
    """The Loop that stores every element as it is."""
    return Loop(1, (Each((Store(1, e.load(0, dtype.name)),)),))


def without_rows(loop: Loop) -> Loop:
    """A loop with stages for rows, but no axes: every element is a row of its own, and is what its reductions give."""
    if loop.axes or {*map(type, loop.stages)} == {Each}:
        return loop
    results: dict[int, Scalar] = {}
    stores = []

    def with_results(root: Scalar) -> Scalar:
        return e.substitute(root, lambda part: results[part.value] if part.op == "result" else part)

    for stage in loop.stages:
        for part in parts(stage):
            if isinstance(part, Reduction):
                is_position = part.op in ("argmax", "argmin")
                results[part.number] = e.constant(0, "int64") if is_position else with_results(part.value)
            else:
                stores.append(Store(part.operand, with_results(part.value), part.add))
    return Loop(loop.inputs, (Each(tuple(stores)),), numbers=loop.numbers)


def written_by(steps: Sequence[Step]) -> dict[int, list[int]]:
    """For each buffer, by id, the indices of the steps that write it, in order."""
    writers: dict[int, list[int]] = {}
    for k, step in enumerate(steps):
        for key in dict.fromkeys([id(y.buffer) for y in step.writes]):
            writers.setdefault(key, []).append(k)
    return writers


def live_steps(steps: Sequence[Step], outputs: Iterable[Buffer]) -> list[Step]:
    """The steps that the outputs depend on."""
    needed = {id(buffer) for buffer in outputs}
    live = []
    for step in reversed(steps):
        if not needed.isdisjoint([id(y.buffer) for y in step.writes]):
            live.append(step)
            needed.update([id(x.buffer) for x in step.reads])
    return live[::-1]
