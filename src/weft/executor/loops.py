"""Loops in a plan: operands found, neighbours merged, code compiled for the patterns that turn up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from weft import _core
from weft.expr import scalar as e
from weft.expr.functions import expand
from weft.expr.kernel import POSITIONS, Each, Fold, Kernel, Once, Operand, Reduction, Scan, Store, parts
from weft.ops.kernels import Loop
from weft.ops.node import Node, Value
from weft.ops.types import TensorType

__all__ = ["LoopStep", "Place", "loop_kernel"]

Scalar = e.Scalar
NOTHING, GEOMETRY, SHOWN, DATA = range(4)  # Program::Use, what of an input is looked at
OUTPUTS = 1000  # load(OUTPUTS + j) is output j, while it is not known how many inputs come before it


@dataclass
class Place:
    """Where a value lies in the program: its number, and its geometry; strides None: row-major, not needed so far."""

    number: int
    type: TensorType
    strides: tuple[Any, ...]
    flexible: bool = True
    root: int = -1  # of a view: the value that has the memory
    offset: Any = 0  # of its first element in there, in elements


class LoopStep:
    """A Loop on these inputs and outputs, with the pointwise loops that only it reads."""

    def __init__(
        self,
        lowering: Any,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value],
        loop: Loop,
        text: str,
    ) -> None:
        self.lowering, self.inputs, self.outputs, self.loop, self.text = lowering, inputs, outputs, loop, text
        self.reads: set[int] = set()  # the arrays, by id, if all that can be merged is
        for value in inputs:
            if value is not None:
                merged = lowering.merged.get(id(value))
                self.reads |= {id(value)} if merged is None else merged.reads

    def is_expression(self) -> bool:
        """Whether another step can compute this one's only result as it reads it.

        Not where an input gives the shape alone: who reads the result would not know how often to. Not where positions
        count: they are others in the space of who reads.
        """
        stage = self.loop.stages[0]
        if (
            self.loop.axes
            or len(self.loop.stages) > 1
            or not isinstance(stage, Each)
            or len(stage.stores) > 1
            or _positions([stage])
        ):
            return False
        loaded = {part.value for part in e.walk(stage.stores[0].value) if part.op == "load"}
        return all(k in loaded for k, v in enumerate(self.inputs) if v is not None and v.ndim)

    def expression(self, operands: Operands) -> Scalar:
        """The element of a pointwise step, on the operands of the step that reads it."""
        stage = self.loop.stages[0]
        assert isinstance(stage, Each)
        return self.rewrite(stage.stores[0].value, operands)

    def rewrite(self, root: Scalar, operands: Operands) -> Scalar:
        """The expression with its loads and parameters as those of the whole step."""

        def replace(part: Scalar) -> Scalar:
            if part.op == "load" and part.value >= len(self.inputs):
                return e.load(OUTPUTS + part.value - len(self.inputs), part.dtype)
            if part.op == "load":
                value = self.inputs[part.value]
                assert value is not None
                return operands.load(value, part.dtype)
            if part.op == "parameter":
                return operands.parameter(self.loop.numbers[part.value], part.dtype)
            return part

        return e.substitute(root, replace)

    def emit(self, outputs: Sequence[Place] | None = None) -> None:
        """The step as an instruction of the program."""
        lowering, loop = self.lowering, self.loop
        operands = Operands(lowering, mergeable=not _positions(loop.stages))
        stages = [self.stage(stage, operands) for stage in loop.stages]
        rank = max((v.ndim for v in self.inputs if v is not None), default=0)
        if not loop.axes:
            rank = max([rank, *(v.ndim for v in self.outputs)])
        row_axes = sum(1 << (rank - 1 - axis) for axis in loop.axes)
        inputs = len(operands.values)
        for value in self.inputs:
            if value is not None and id(value) in lowering.places:
                lowering.use(value, GEOMETRY)
        made: list[int] = []
        for j, value in enumerate(self.outputs):
            place = outputs[j] if outputs else lowering.output(value, like=self.like(operands, value))
            made.append(self.kept(place, value, rank) if loop.axes else place.number)
        kernel = loop_kernel(
            lowering.name,
            rank,
            [*operands.values_dtypes(), *(v.dtype.name for v in self.outputs)],
            stages,
            inputs,
            row_axes,
            loop.ordered,
        )
        first = lowering.add_slots(operands.numbers)
        numbers = [lowering.places[id(v)].number for v in operands.values]
        lowering.steps.append((kernel, [*numbers, *made], first, []))
        lowering.texts.append(f"loop {self.text}")

    def like(self, operands: Operands, value: Value) -> int:
        """The input whose order in memory the output takes: the first one of its shape."""
        for source in operands.values:
            place = self.lowering.places[id(source)]
            if place.number < len(self.lowering.arrays) and same_shape(source.shape, value.shape):
                return place.number
        return -1

    def kept(self, place: Place, value: Value, rank: int) -> int:
        """The number of a value as the loops see it: with a size of 1 where a row was reduced to one number."""
        loop, lowering = self.loop, self.lowering
        if value.ndim == rank:
            return place.number
        sizes, strides = iter(value.shape), iter(place.strides)
        shape = [1 if d in loop.axes else next(sizes) for d in range(rank)]
        steps = [0 if d in loop.axes else next(strides) for d in range(rank)]
        seen = Node(None, (), (value.type.like(shape),)).outputs[0]
        return lowering.view(seen, place, steps, 0).number

    def stage(self, stage: Any, operands: Operands) -> Any:
        """A stage on the whole step's operands; stores keep their number relative to the outputs."""
        count = len(self.inputs)
        return with_parts(
            stage,
            lambda r: Reduction(r.number, r.op, self.rewrite(r.value, operands), r.start),
            lambda s: Store(s.operand - count, self.rewrite(s.value, operands), s.add),
        )


def without_rows(loop: Loop) -> Loop:
    """A loop with stages for rows, but no axes: every element is a row of its own, and is what its reductions give."""
    if loop.axes or all(isinstance(stage, Each) for stage in loop.stages):
        return loop
    results: dict[int, Scalar] = {}
    stores = []

    def known(root: Scalar) -> Scalar:
        return e.substitute(root, lambda part: results[part.value] if part.op == "result" else part)

    for stage in loop.stages:
        for part in parts(stage):
            if isinstance(part, Reduction):
                alone = e.constant(0, "int64") if part.op in POSITIONS else known(part.value)
                results[part.number] = alone
            else:
                stores.append(Store(part.operand, known(part.value), part.add))
    return Loop(loop.inputs, (Each(tuple(stores)),), numbers=loop.numbers)


def with_parts(
    stage: Any, reduction: Callable[[Reduction], Reduction], store: Callable[[Store], Store]
) -> Any:
    """The stage with other reductions and stores."""
    if isinstance(stage, Fold):
        return Fold(tuple(map(reduction, stage.reductions)))
    if isinstance(stage, Scan):
        return Scan(tuple(map(reduction, stage.reductions)), tuple(map(store, stage.stores)), stage.reverse)
    return type(stage)(tuple(map(store, stage.stores)))


def same_shape(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two shapes are known to be equal."""
    return len(a) == len(b) and all(
        n is m or (isinstance(n, int) and isinstance(m, int) and n == m) for n, m in zip(a, b, strict=True)
    )


class Operands:
    """The arrays and numbers that a step reads, in the order of its kernel's operands and parameters."""

    def __init__(self, lowering: Any, mergeable: bool) -> None:
        self.lowering = lowering
        self.values: list[Value] = []
        self.numbers: list[tuple[Any, str]] = []
        self.mergeable = mergeable
        self.inlined: dict[int, Scalar] = {}

    def values_dtypes(self) -> list[str]:
        return [v.dtype.name for v in self.values]

    def load(self, value: Value, dtype: str) -> Scalar:
        if value.is_constant:
            return e.constant(value.node.value, dtype)
        lowering = self.lowering
        if id(value) in lowering.numbers:
            return self.parameter(value, dtype)
        known = self.inlined.get(id(value))
        if known is not None:
            return known
        merged = lowering.merged.get(id(value))
        if merged is not None and self.mergeable and lowering.readers.get(id(value), 0) <= 1:
            del lowering.merged[id(value)]
            found = self.inlined[id(value)] = merged.expression(self)
            # As stored: a half type is rounded where it would have been.
            return found
        lowering.ensure(value)
        return e.load(self.operand(value), dtype)

    def operand(self, value: Value) -> int:
        self.lowering.use(value, DATA)
        for k, known in enumerate(self.values):
            if known is value:
                return k
        self.values.append(value)
        return len(self.values) - 1

    def parameter(self, value: Any, dtype: str) -> Scalar:
        if isinstance(value, Value) and value.is_constant:
            return e.constant(value.node.value, dtype)
        if isinstance(value, int | float):
            return e.constant(value, dtype)
        for k, (known, kind) in enumerate(self.numbers):
            if known is value and kind == dtype:
                return e.parameter(k, dtype)
        self.numbers.append((value, dtype))
        return e.parameter(len(self.numbers) - 1, dtype)


def _positions(stages: Sequence[Any]) -> bool:
    """Whether code asks where in the loops it is."""
    return any(node.op == "index" for stage in stages for part in parts(stage) for node in e.walk(part.value))


_kernels: dict[Any, Any] = {}


def loop_kernel(
    name: str,
    rank: int,
    dtypes: Sequence[str],
    stages: Sequence[Any],
    inputs: int,
    row_axes: int,
    ordered: bool,
) -> Any:
    """The native Loop of these stages; equal ones are one object, and share their compiled code.

    Stores in the stages count outputs from 0. row_axes: bit d is dimension d, counted from the last.
    """
    fixed = _positions(stages)
    key = (rank if fixed else 0, tuple(dtypes), tuple(map(_stage_key, stages)), inputs, row_axes, ordered)
    found = _kernels.get(key)
    if found is None:
        prepared = [_prepared(stage, inputs, rank, row_axes if fixed else 0) for stage in stages]
        compile_ = _Compile(name, tuple(dtypes), tuple(prepared))
        split = None if fixed or ordered else _split(name, dtypes, stages, inputs)
        found = _core.make_loop(len(dtypes), inputs, row_axes, fixed, ordered, compile_, split)
        if len(_kernels) > 8192:
            _kernels.clear()
        _kernels[key] = found
    return found


_IDENTITY = {"sum": 0, "prod": 1}
"""What must be the start of a reduction that is begun more than once; of others, any."""


def _split(name: str, dtypes: Sequence[str], stages: Sequence[Any], inputs: int) -> Any:
    """The two Loops that fold one long row in pieces, and the types of what a piece comes to; None if it cannot be.

    For one Fold, and results that are stored once and need nothing else of the row.
    """
    match stages:
        case [Fold(reductions=reductions), Once(stores=stores)]:
            pass
        case _:
            return None
    if any(r.op not in ("sum", "prod", "max", "min") for r in reductions) or any(
        _IDENTITY.get(r.op, r.start) != r.start for r in reductions
    ):
        return None
    if any(node.op == "load" for store in stores for node in e.walk(store.value)):
        return None
    found = [r.value.dtype for r in reductions]
    kept = Once(
        tuple(Store(j, e.result(r.number, t)) for j, (r, t) in enumerate(zip(reductions, found, strict=True)))
    )
    again = Fold(
        tuple(
            Reduction(r.number, r.op, e.load(j, t), r.start)
            for j, (r, t) in enumerate(zip(reductions, found, strict=True))
        )
    )
    part = loop_kernel(name, 1, [*dtypes[:inputs], *found], [stages[0], kept], inputs, 1, True)
    join = loop_kernel(name, 1, [*found, *dtypes[inputs:]], [again, stages[1]], len(found), 1, True)
    return part, join, found


def _stage_key(stage: Any) -> Any:
    described = tuple(
        (p.number, p.op, _Same(p.value), p.start)
        if isinstance(p, Reduction)
        else (p.operand, _Same(p.value), p.add)
        for p in parts(stage)
    )
    return type(stage).__name__, getattr(stage, "reverse", False), described


class _Same:
    """A Scalar as a key: equal expressions are one object, and their == builds another expression."""

    __slots__ = ("scalar",)

    def __init__(self, scalar: Scalar) -> None:
        self.scalar = scalar

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.scalar is self.scalar

    def __hash__(self) -> int:
        return id(self.scalar)


def _prepared(stage: Any, inputs: int, rank: int, row_axes: int) -> Any:
    """The stage with outputs behind the inputs, and functions and half types written in what code is made of."""
    order = [d for d in range(rank) if not row_axes >> (rank - 1 - d) & 1]
    order += [d for d in range(rank) if row_axes >> (rank - 1 - d) & 1]
    place = {d: k for k, d in enumerate(order)}

    def position(part: Scalar) -> Scalar:
        if part.op == "index" and row_axes:
            return e.index(place[part.value])
        if part.op == "load" and part.value >= OUTPUTS:
            return e.load(inputs + part.value - OUTPUTS, part.dtype)
        return part

    def finished(root: Scalar) -> Scalar:
        return expand(e.substitute(root, position))

    return with_parts(
        stage,
        lambda r: Reduction(r.number, r.op, finished(r.value), r.start),
        lambda s: Store(inputs + s.operand, finished(s.value), s.add),
    )


class _Compile:
    """Makes a Loop's code for one pattern: what the native core calls when it meets a new one."""

    def __init__(self, name: str, dtypes: tuple[str, ...], stages: tuple[Any, ...]) -> None:
        self.name, self.dtypes, self.stages = name, dtypes, stages

    def __call__(self, rank: int, row_rank: int, lanes: bool, tile: int, inner: str) -> tuple[int, Any]:
        from weft.expr.compiler import compile_kernel

        words: dict[str, Any] = {"u": "unit", "z": "zero", "a": "any", "c": "cross"}
        operands = tuple(Operand(d, words[c]) for d, c in zip(self.dtypes, inner, strict=True))
        kernel = Kernel(
            _identifier(self.name), rank, operands, self.stages, row_rank, lanes, tile if tile >= 0 else None
        )
        made = compile_kernel(kernel)
        return made.address, made


def _identifier(name: str) -> str:
    """A symbol for the code. Not the name alone: compiled code calls C functions of names such as fmod."""
    return "loop_" + "".join(c if c.isalnum() and c.isascii() else "_" for c in name)
