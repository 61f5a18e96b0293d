"""One program of a traced function: where its inputs come from, and what becomes of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import _core
from weft.base.structure import Structure, flatten
from weft.executor.compile import compile_graph
from weft.graph.graph import Graph, reads_of
from weft.imperative.gradient import gradients, keep_gradient
from weft.imperative.known_number import KnownNumber, KnownNumbers
from weft.imperative.scribe import CannotWrite, Scribe, Source, users_line
from weft.imperative.storages import Geometry, Overlap
from weft.imperative.surroundings import Surroundings
from weft.imperative.tensor import Tensor
from weft.ops import functions as F
from weft.ops.node import Value

__all__ = ["Traced", "write_up"]

Find = Callable[[Any], Any]  # of a call: something at each call


class Traced:
    """A program, ready to be run on other arguments of the same kind."""

    def __init__(self, name: str, graph: Graph) -> None:
        self.name, self.graph = name, graph
        self.plan: Any = None
        self.arrays: list[Find] = []
        self.numbers: list[Find] = []
        self.guards: list[Callable[[Any], bool]] = []
        self.results: list[Callable[[Any, Sequence[Tensor]], Any]] = []
        self.structure: Structure | None = None
        self.effects: list[Callable[[Any, Sequence[Tensor]], None]] = []
        self.kept: list[Any] = []  # arguments that are known by identity

    def fits(self, call: Any) -> bool:
        """Whether what the key does not say is as it was."""
        return all(guard(call) for guard in self.guards)

    def run(self, call: Any) -> Any:
        """The function's result, by the program."""
        outputs = _core.run_plan(
            self.plan, [find(call) for find in self.arrays], [find(call) for find in self.numbers]
        )
        for effect in self.effects:
            effect(call, outputs)
        assert self.structure is not None
        return self.structure.build([result(call, outputs) for result in self.results])

    def memory_report(self) -> Any:
        """Bytes of the memory plan by kind."""
        return self.plan.recipe.memory_report()

    def __str__(self) -> str:
        return str(self.graph)


def write_up(
    name: str,
    scribe: Scribe,
    call: Any,
    floats: KnownNumbers,
    result: Any,
    gradients_before: dict[int, tuple[Any, Tensor]],
    surroundings: list[Any],
) -> Traced:
    """The program of what a scribe saw. Raises CannotWrite."""
    return _WritingUp(name, scribe, call, floats, gradients_before).finish(result, surroundings)


class _WritingUp:
    def __init__(
        self,
        name: str,
        scribe: Scribe,
        call: Any,
        floats: KnownNumbers,
        gradients_before: dict[int, tuple[Any, Tensor]],
    ) -> None:
        self.name, self.scribe, self.call, self.floats = name, scribe, call, floats
        self.before = gradients_before
        self.outputs: list[Value] = []
        self.windows: dict[int, int] = {}  # storages of several results: the output that has all of it
        self.guards: list[Callable[[Any], bool]] = []
        self.argument = {id(leaf): k for k, leaf in enumerate(call.leaves)}
        self.owners = {id(dx): owner() for owner, dx in gradients_before.values()}
        self.guarded: set[int] = set()

    def finish(self, result: Any, surroundings: list[Any]) -> Traced:
        leaves, structure = flatten(result)
        after = gradients()
        changed = {
            key: owner() for key, (owner, dx) in after.items() if key not in self.before or self.before[key][1] is not dx
        }
        gone = {key: owner() for key, (owner, _) in self.before.items() if key not in after}
        shown = [x for x in leaves if isinstance(x, Tensor)] + [after[key][1] for key in changed]
        self.count_storages(shown)

        entry = Traced(self.name, Graph([], []))
        entry.results = [self.result(leaf) for leaf in leaves]
        entry.structure = structure
        for key, owner in changed.items():
            if owner is not None:
                entry.effects.append(self.gradient_set(owner, self.result(after[key][1])))
        for owner in gone.values():
            if owner is not None:
                entry.effects.append(self.gradient_set(owner, lambda call, outputs: None))
        visible = len(self.outputs)
        written = list(self.scribe.written_sources())
        reached = Graph([], [*self.outputs, *(value for _, value in written)])
        alive = {id(node) for node in reached.nodes}
        drawn = [v for v in self.scribe.random if id(v.node) not in alive]  # the stream goes on as if it were used
        used = {id(v) for node in reached.nodes for v in reads_of(node)}
        used |= {id(v) for v in reached.outputs} | {id(v) for node in drawn for v in reads_of(node.node)}
        written_values = {id(source.value) for source, _ in written}
        sources = [s for s in self.scribe.sources if id(s.value) in used or id(s.value) in written_values]
        numbers = {o: v for o, v in self.scribe.numbers.items() if id(v) in used}
        inputs = [*(s.value for s in sources), *numbers.values()]
        place = {id(s.value): k for k, s in enumerate(sources)}
        writes = {visible + k: place[id(source.value)] for k, (source, _) in enumerate(written)}
        graph = Graph(inputs, [*self.outputs, *(value for _, value in written), *drawn], writes)

        entry.graph = graph
        entry.arrays = [self.array(source) for source in sources]
        entry.numbers = [self.number(origin) for origin in numbers]
        strides = [self.strides(source) for source in sources]
        entry.plan = compile_graph(graph, self.name, strides, visible)
        entry.guards = [
            *self.guards,
            *(_value_guard(compute, value) for compute, value in self.floats.guards),
            _no_new_sharing(entry, sources, self.call, written),
            lambda call: Surroundings.same(surroundings, call.surroundings()),
        ]
        entry.kept = [leaf for leaf in self.call.leaves if not isinstance(leaf, Tensor)]
        return entry

    # Inputs.

    def tensor(self, x: Tensor) -> Find:
        """How a call finds what was this tensor."""
        number = self.argument.get(id(x))
        if number is not None:
            return lambda call: call.leaves[number]
        owner = self.owners.get(id(x))
        if owner is not None:
            find = self.tensor(owner)
            self.guard_gradient(owner)
            return lambda call: find(call).grad
        return lambda call: x

    def array(self, source: Source) -> Find:
        find = self.tensor(source.tensor)
        if source.window is None:
            return find
        offset, shape, strides = source.window
        return lambda call: _core.window(find(call), offset, shape, strides)

    def number(self, origin: int) -> Find:
        compute = self.floats.computes[origin]
        return lambda call: compute(call.floats)

    @staticmethod
    def strides(source: Source) -> tuple[int, ...]:
        if source.window is not None:
            return tuple(source.window[2])
        return tuple(s // source.tensor.itemsize for s in source.tensor.strides)

    def guard_gradient(self, owner: Tensor) -> None:
        """The program is for a tensor that has a gradient at the beginning, or for one that has none."""
        if id(owner) in self.guarded:
            return
        self.guarded.add(id(owner))
        find, had = self.tensor(owner), id(owner) in self.before
        self.guards.append(lambda call: (find(call).grad is not None) == had)

    # Outputs.

    def count_storages(self, tensors: Sequence[Tensor]) -> None:
        """Finds the storages that several tensors show: they will share the memory of one output."""
        distinct = {id(x): x for x in tensors}.values()
        count: dict[int, int] = {}
        for x in distinct:
            storage = self.storage(x)
            if storage is not None:
                count[id(storage)] = count.get(id(storage), 0) + 1
        self.shared = {key for key, number in count.items() if number > 1}
        self.found: dict[int, Any] = {}

    def storage(self, x: Tensor) -> Any:
        try:
            self.scribe.met(x, _core.geometry(x))
            return self.scribe.storages.find(Geometry(*_core.geometry(x)))
        except Overlap as problem:
            raise CannotWrite(str(problem), users_line()) from None

    def result(self, leaf: Any) -> Callable[[Any, Sequence[Tensor]], Any]:
        """How a call finds what was this result."""
        if isinstance(leaf, KnownNumber):
            compute = leaf.compute
            return lambda call, outputs: compute(call.floats)
        if not isinstance(leaf, Tensor):
            return lambda call, outputs: leaf
        found = self.found.get(id(leaf))
        if found is None:
            found = self.found[id(leaf)] = self.tensor_result(leaf)
        return found

    def tensor_result(self, x: Tensor) -> Callable[[Any, Sequence[Tensor]], Any]:
        geometry = Geometry(*_core.geometry(x))
        storage = self.storage(x)
        if storage is None:
            return lambda call, outputs: x
        source = storage.source
        if source is not None and not source.is_constant:  # memory from outside: a view of it
            find = self.tensor(source.tensor)
            if x is source.tensor:
                return lambda call, outputs: find(call)
            start = _core.geometry(source.tensor)[1]
            return self.view(lambda call, outputs: find(call), geometry, start)
        if id(storage) not in self.shared:
            return self.output(storage.read(geometry))
        number = self.windows.get(id(storage))
        if number is None:
            number = self.windows[id(storage)] = len(self.outputs)
            self.outputs.append(F.reshape(storage.row(), shape=(-1,)))
        return self.view(lambda call, outputs: outputs[number], geometry, storage.first)

    def output(self, value: Value) -> Callable[[Any, Sequence[Tensor]], Any]:
        number = len(self.outputs)
        self.outputs.append(value)
        return lambda call, outputs: outputs[number]

    @staticmethod
    def view(base: Any, x: Geometry, start: int) -> Callable[[Any, Sequence[Tensor]], Any]:
        offset = (x.address - start) // x.dtype.itemsize
        return lambda call, outputs: _core.window(base(call, outputs), offset, x.shape, x.strides)

    def gradient_set(self, owner: Tensor, result: Any) -> Callable[[Any, Sequence[Tensor]], None]:
        self.guard_gradient(owner)
        find = self.tensor(owner)

        def effect(call: Any, outputs: Sequence[Tensor]) -> None:
            keep_gradient(find(call), result(call, outputs))

        return effect


def _value_guard(compute: Any, value: Any) -> Callable[[Any], bool]:
    return lambda call: compute(call.floats) == value


def _no_new_sharing(
    entry: Traced, sources: Sequence[Source], call: Any, written: Sequence[tuple[Source, Value]]
) -> Callable[[Any], bool]:
    """That arguments share memory with the tensors found elsewhere as they did; it matters where something is written."""
    if not written:
        return lambda call: True
    elsewhere = {
        _core.geometry(s.tensor)[0]
        for s in sources
        if not any(s.tensor is leaf for leaf in call.leaves)
    }
    shared = [_core.geometry(x)[0] in elsewhere for x in call.tensors]
    if any(shared):
        raise CannotWrite("an argument shares memory with an array found elsewhere", users_line())
    return lambda call: not any(_core.geometry(x)[0] in elsewhere for x in call.tensors)
