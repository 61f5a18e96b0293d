"""What a graph with dynamic sizes needs of a call, and the plans that are made of it for the sizes of calls.

traces/dynamic.py records such graphs, traces/dynamic_file.py reads them from files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft import _core
from weft.arrays.tensor import Tensor
from weft.base.errors import GraphError
from weft.base.exact import Same, exact
from weft.base.structure import Structure
from weft.executor.compile import compile_graph
from weft.graph.functionalization import Geometry
from weft.graph.graph import Graph
from weft.graph.instantiate import instantiate
from weft.graph.recording import CannotRecord
from weft.ops.node import Value
from weft.ops.sizes import NeedsSizes, Size, SizeGuards, axis_size
from weft.ops.types import TensorType
from weft.recording.launch_recorder import LaunchRecorder
from weft.traces.traced import Traced, replay_spec, strides_of

if TYPE_CHECKING:
    from weft._core import Find, ReplaySpec

__all__ = ["SharedMemoryError", "Signature", "SizedProgram", "raise_recorded"]


class SharedMemoryError(GraphError):
    """An argument shares memory with an array that the function captures."""


class Signature:
    """What a graph with dynamic sizes depends on of a call's arguments; key: equal ones find the same graph.

    Dynamic axes of the same size share a symbol: which of them do is part of the key, and that a size is 0 or 1.
    """

    def __init__(
        self, leaves: Sequence[Any], structure: Structure, axes: dict[int, tuple[int, ...]], layers: Any = ()
    ) -> None:
        self._leaves = leaves
        self.sizes: list[int] = []  # of the symbols
        self.symbol_axes: list[tuple[int, int]] = []  # where each is found: (leaf, axis)
        self.types: list[TensorType | None] = []  # of the tensors among the leaves
        parts: list[Any] = [structure, layers]
        for k, leaf in enumerate(leaves):
            self.types.append(
                self._type(k, leaf, axes.get(id(leaf), ())) if isinstance(leaf, Tensor) else None
            )
            parts.append(self._key_part(k, leaf))
        self.key = tuple(parts)
        self.shared = [self._shared(k) if isinstance(x, Tensor) else () for k, x in enumerate(leaves)]
        self.same = {  # leaves that are the same array as an earlier one
            k: j
            for k, pairs in enumerate(self.shared)
            for j in [next((j for j, is_same in pairs if is_same), None)]
            if j is not None and self.types[j] == self.types[k]
        }
        del self._leaves

    def _type(self, k: int, x: Tensor, axes: tuple[int, ...]) -> TensorType:
        sizes = [self._symbol(n, k, d) if d in axes and n > 1 else n for d, n in enumerate(x.shape)]
        return TensorType(tuple(sizes), x.dtype, x.device)

    def _symbol(self, n: int, leaf: int, axis: int) -> Any:
        if n not in self.sizes:
            self.sizes.append(n)
            self.symbol_axes.append((leaf, axis))
        return axis_size(self.sizes.index(n))

    def _key_part(self, k: int, leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            array_type = self.types[-1]
            assert array_type is not None
            sizes = tuple(n if isinstance(n, int) else repr(n) for n in array_type.shape)
            is_row_major = bool(_core.is_contiguous(leaf))
            return (sizes, array_type.dtype, array_type.device, is_row_major, self._shared(k))
        if type(leaf) is float:
            return float
        is_plain = isinstance(leaf, int | str | bytes | slice | type(None))
        return exact(leaf, Same) if is_plain else Same(leaf)

    def _shared(self, k: int) -> tuple[tuple[int, bool], ...]:
        """The arrays before an array that are in the same memory, and whether they are the same window of it."""
        mine = Geometry(*_core.geometry(self._leaves[k]))
        pairs = (
            (j, Geometry(*_core.geometry(x))) for j, x in enumerate(self._leaves[:k]) if isinstance(x, Tensor)
        )
        return tuple((j, x.same_window(mine)) for j, x in pairs if x.serial == mine.serial)


class SizedProgram:
    """A graph whose sizes depend on dynamic axes, and how calls find what it takes and gives.

    signature: of a call that it is for. values: what each leaf is in the graph. inputs: the arguments' arrays, which
    with captures, other arrays, and numbers are the inputs of the graph. results: where the leaves of the result, of
    this structure, are found. visible: the number of outputs for them; behind these come the new contents of written
    captures and changed leaves, by index. size_guards: what else is assumed of sizes.
    """

    reason: str  # why it has dynamic sizes, for errors

    name: str
    signature: Signature
    graph: Graph
    size_guards: SizeGuards
    values: list[Any]
    inputs: list[Value]
    captures: list[Find]
    numbers: list[tuple[int, Find]]  # with the origins of the numbers
    results: list[Find]
    structure: Structure
    visible: int
    written_captures: list[int]
    changed: list[int]

    def holds(self, signature: Signature, leaves: list[Any]) -> bool:
        """Whether it is the graph for such a call."""
        return (
            signature.key == self.signature.key
            and self.size_guards.hold(signature.sizes)
            and self.conditions_hold(leaves)
        )

    def conditions_hold(self, leaves: list[Any]) -> bool:
        """Whether all else is as it was that the graph depends on."""
        return True

    def conditions(self) -> dict[str, Any]:
        """What of a program's specification is about objects of Python; see replay_spec."""
        return {}

    def new_program(self, graph: Graph, plan: Any, spec: ReplaySpec, leaves: list[Any]) -> Traced:
        """A plan that plan_for has made, for such leaves."""
        return Traced(graph, plan, spec, [])

    def plan_for(self, leaves: list[Any], sizes: Sequence[int]) -> Traced:
        """A plan for arrays of these sizes."""
        recorder = LaunchRecorder(raise_recorded)
        captures = [find.look_up(leaves) for find in self.captures]
        tensors = [x for x in leaves if isinstance(x, Tensor)]
        elsewhere = {_core.geometry(x)[0] for x in captures}
        if elsewhere & {_core.geometry(x)[0] for x in tensors}:
            raise SharedMemoryError(
                f"{self.name}: {self.reason}, an argument shares memory with an array found elsewhere"
            )
        for x in sorted([*tensors, *captures], key=lambda x: -x.nbytes):
            recorder.met(x, _core.geometry(x))
        first = {id(v): k for k, v in reversed(list(enumerate(self.values))) if isinstance(v, Value)}
        inputs = [content(recorder, leaves[first[id(v)]]) for v in self.inputs]
        inputs += [content(recorder, x) for x in captures]
        inputs += [recorder.number(find.look_up(leaves), origin) for origin, find in self.numbers]
        try:
            values = [v for v in instantiate(self.graph, inputs, axes=sizes) if v is not None]
        except NeedsSizes:
            raise CannotRecord(
                self.name,
                f"{self.reason}: a function inside cond, while_loop or foreach has arrays of such sizes",
            ) from None
        contents = values[self.visible :]
        targets = [*(captures[k] for k in self.written_captures), *(leaves[k] for k in self.changed)]
        recorder.random = contents[len(targets) :]
        for target, new in zip(targets, contents, strict=False):
            recorder.store(Geometry(*_core.geometry(target)), new)
        written_sources = list(recorder.written_sources())
        graph, sources, origins = recorder.graph(values[: self.visible], written_sources)
        strides = [strides_of(s) for s in sources]
        plan = compile_graph(graph, self.name, strides, self.visible)
        finds: dict[int, Find] = {id(x): find for x, find in zip(captures, self.captures, strict=True)}
        finds |= {
            id(x): _core.Find.leaf(k) for k, x in reversed([*enumerate(leaves)]) if isinstance(x, Tensor)
        }
        finds_of_numbers = dict(self.numbers)
        spec = replay_spec(
            plan,
            arrays=[finds[id(s.tensor)].with_window(s.window) for s in sources],
            numbers=[finds_of_numbers[origin] for origin in origins],
            results=self.results,
            structure=self.structure,
            elsewhere=elsewhere if written_sources else (),
            **self.conditions(),
        )
        program = self.new_program(graph, plan, spec, leaves)
        program.visible, program.structure, program.strides = self.visible, self.structure, strides
        return program


def size_of(size: Size, signature: Signature) -> Find:
    """Where a call finds a size that is a result."""
    symbol_axes = signature.symbol_axes
    found: Find = _core.Find.python(
        lambda leaves: size.at([leaves[k].shape[axis] for k, axis in symbol_axes])
    )
    return found


def raise_recorded(problem: CannotRecord) -> None:
    """Raise what a recorder has found, as a problem of the traced function."""
    raise CannotRecord("trace", problem.fact, problem.where)


def content(recorder: LaunchRecorder, x: Tensor) -> Value:
    """What a recorder has met an array as."""
    value = recorder.value(Geometry(*_core.geometry(x)))
    assert value is not None
    return value
