"""One program of a traced function: where its inputs come from, and what becomes of its outputs.

A Find (native/bindings/replay.h) says where a call finds something: among its leaves, the outputs of the program, in an
object, or by a function of the leaves. A ReplaySpec is all that the native core has to know of a program; `replay_spec`
makes every one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from weft import _core
from weft.arrays.tensor import Tensor, element_strides, keep_gradient
from weft.arrays.traced_float import TracedFloat, TracedFloats, compute_of, is_same_number
from weft.base.structure import Structure, flatten
from weft.base.users_line import users_line
from weft.executor.background import make_ahead
from weft.executor.compile import compile_graph
from weft.graph.functionalization import Geometry, Overlap, Storage, in_memory_order
from weft.graph.graph import Graph
from weft.graph.inner import stopped
from weft.graph.recording import CannotRecord
from weft.graph.subgraph import definition_slots
from weft.ops import functions as F
from weft.ops import registry
from weft.ops.node import Value
from weft.ops.shapes import is_dense
from weft.recording.captured_environment import CapturedEnvironment
from weft.recording.dependence import objects_in
from weft.recording.doubts import Recording
from weft.recording.launch_recorder import LaunchRecorder, Source

if TYPE_CHECKING:
    from weft._core import Find, ReplaySpec

__all__ = [
    "Described",
    "NumberSources",
    "Traced",
    "overlapping",
    "replay_spec",
    "state_check",
    "strides_of",
    "tensors_around",
    "view_of",
    "write_up",
]

Guard = Callable[[list[Any]], bool]


class Described:
    """An array argument, of which only the kind is kept."""

    def __init__(self, x: Tensor) -> None:
        self.dtype, self.device, self.shape = x.dtype.name, str(x.device), x.shape
        self.strides = element_strides(x)


class Traced:
    """A program of a traced function. graph: what it computes; plan: how."""

    def __init__(self, graph: Graph, plan: Any, spec: ReplaySpec, key_objects: list[Any]) -> None:
        self.graph, self.plan, self.spec = graph, plan, spec
        self._key_objects = key_objects  # leaves that the key has by their identity
        self.visible = 0  # outputs that are results
        self.structure = Structure(None)  # of the result
        self.strides: list[tuple[int, ...]] = []  # of the arrays
        self.example: tuple[list[Any], Structure] = ([], self.structure)  # leaves of the first call, by kind
        self.constant_inputs: set[int] = set()  # of the arrays, those that Python made of other data
        self.stable_inputs: list[int] = []  # of the arrays
        self.is_recorded = False  # whether a GradManager outside recorded the call that it was made of
        self.result_memory: set[int] = set()  # memory that the first call gave to the caller, by serial
        self.first: Any = None  # for LazyTrace.run: sources, origins and buffers of the first call

    def memory_report(self) -> Any:
        """Bytes of the memory plan by kind."""
        return self.plan.info.memory_report()

    def recording(self, leaves: list[Any]) -> Recording:
        """What is compared with another program of the same function; leaves: of a call that both are for."""
        numbers = [find.look_up(leaves) for find in self.spec.numbers]
        return Recording(self.graph, self.spec.arrays, self.spec.results, numbers, self.constant_inputs)

    def __str__(self) -> str:
        return str(self.graph)


def write_up(
    name: str,
    recorder: LaunchRecorder,
    leaves: list[Any],
    floats: TracedFloats,
    result: Any,
    environment: CapturedEnvironment,
    memory_budget: int | float | None = None,
    former: Traced | None = None,
) -> Traced:
    """The program of what a recorder saw. former: one that may be the same. Raises CannotRecord."""
    states = [(dependency, dependency.__weft_state__()) for dependency, _ in recorder.dependences.values()]
    inputs = _Inputs(recorder, leaves, floats, tensors_around(environment, states))
    outputs = _Outputs(recorder, inputs)
    result_leaves, structure = flatten(result)
    changed_gradients: list[tuple[Any, Any]] = []  # tensors, and what their grad became
    for key, (reference, before) in recorder.gradients_before.items():
        x = reference()
        if x is not None and key in recorder.set_gradients and (dx := _core.gradient(x)) is not before:
            changed_gradients.append((x, dx))
    outputs.share(
        [x for x in result_leaves if isinstance(x, Tensor)]
        + [dx for _, dx in changed_gradients if dx is not None]
    )
    results = [outputs.find(leaf) for leaf in result_leaves]
    effects: list[tuple[Find, Find]] = []
    for x, dx in changed_gradients:
        effects.append((inputs.gradient_owner(x), outputs.find(dx)))

    inputs.watch_gradients()
    written_sources = list(recorder.written_sources())
    graph, sources, origins = recorder.graph(outputs.values, written_sources)
    arrays = [inputs.array(source) for source in sources]
    stable_inputs = [k for k, x in enumerate(arrays) if x.kind == "object" and inputs.seldom_changes(x.what)]
    strides = [strides_of(s) for s in sources]
    if former is not None and (graph.key, strides, stable_inputs) == (
        former.graph.key,
        former.strides,
        former.stable_inputs,
    ):
        plan = former.plan
    else:
        plan = compile_graph(
            graph,
            name,
            strides,
            len(outputs.values),
            stable_inputs=stable_inputs,
            memory_budget=memory_budget,
        )
    spec = replay_spec(
        plan,
        arrays=arrays,
        numbers=[inputs.numbers.find(origin) for origin in origins],
        results=results,
        structure=structure,
        environment=[*environment.slots, *definition_slots(graph, registry.lookups)],
        is_doubted=bool(environment.doubts),
        stopped=[k for k, x in enumerate(result_leaves) if isinstance(x, Tensor) and _core.is_stopped(x)],
        states=states,
        gradients=inputs.gradient_guards(native=True),
        guard=inputs.guard(),
        effects=effects,
        elsewhere=inputs.elsewhere(sources) if written_sources else (),
        captured_tensors=inputs.around,
    )
    program = Traced(graph, plan, spec, [leaf for leaf in leaves if not isinstance(leaf, Tensor)])
    program.result_memory = outputs.result_memory
    program.visible, program.structure = len(outputs.values), structure
    program.strides, program.stable_inputs = strides, stable_inputs
    program.constant_inputs = {k for k, source in enumerate(sources) if source.is_constant}
    program.first = (sources, origins, outputs.buffers)
    make_ahead(plan)
    return program


def replay_spec(
    plan: Any,
    *,
    arrays: Sequence[Find],
    numbers: Sequence[Find],
    results: Sequence[Find],
    structure: Structure,
    stopped: Sequence[int] = (),
    environment: Sequence[tuple[Any, Any, Any]] = (),
    is_doubted: bool = False,
    states: Sequence[tuple[Any, Any]] = (),
    gradients: Sequence[tuple[Find, bool]] = (),
    guard: Guard | None = None,
    effects: Sequence[tuple[Find, Find]] = (),
    elsewhere: Iterable[int] = (),
    captured_tensors: Iterable[Tensor] = (),
) -> ReplaySpec:
    """What the native core needs of a program.

    arrays, numbers: where the plan's inputs are found; results: the leaves of the result, of this structure; stopped:
    those of them that have no history. The rest has to hold: environment and objects are in these states, tensors have
    gradients or none, guard of the leaves. is_doubted: whether the environment may lack something. effects: tensors,
    and what becomes their grad. elsewhere: memory that arguments may not share, by serial. captured_tensors: tensors
    that are no arguments.
    """
    spec: ReplaySpec = _core.ReplaySpec(plan)
    spec.arrays, spec.numbers, spec.results = arrays, numbers, results
    spec.stopped = stopped
    spec.environment, spec.is_doubted = environment, is_doubted
    if states:
        spec.watched, spec.containers = state_check(states), containers_of(states)
    spec.gradients = gradients
    if guard is not None:
        spec.guard = guard
    if structure.kind is not None:
        spec.build = structure.builder
    if effects:
        spec.effect = effect_of(effects)
    spec.elsewhere = sorted(elsewhere)
    spec.shared = overlapping(captured_tensors)
    return spec


def tensors_around(environment: CapturedEnvironment, states: Sequence[tuple[Any, Any]]) -> list[Tensor]:
    """The tensors that a function can reach by itself; states: of the objects that it uses."""
    around = (*environment.values, *objects_in(tuple(state for _, state in states)))
    return [x for x in around if isinstance(x, Tensor)]


def overlapping(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The tensors of which a part is between the first and the last element of another one.

    >>> import weft as wf
    >>> x, y = wf.ones(3), wf.ones(3)
    >>> [z is x for z in overlapping([x, y, x[1:], x])]
    [True, False]
    """
    by_memory: dict[int | None, dict[int, tuple[Tensor, int, int]]] = {}
    for x in tensors:
        geometry = Geometry(*_core.geometry(x))
        by_memory.setdefault(geometry.serial, {})[id(x)] = (x, *geometry.extent())
    return [
        x
        for tensors_of_memory in by_memory.values()
        for x, first, end in tensors_of_memory.values()
        if any(
            x is not y and first < y_end and y_first < end for y, y_first, y_end in tensors_of_memory.values()
        )
    ]


def state_check(states: Sequence[tuple[Any, Any]]) -> Callable[[], bool] | None:
    """A function that tells whether the objects that a program depends on are in these states; None: no objects."""
    return (
        (lambda: all(dependency.__weft_state__() == state for dependency, state in states))
        if states
        else None
    )


def containers_of(states: Sequence[tuple[Any, Any]]) -> list[Any]:
    """The lists and dicts of objects whose states are watched: their contents change without a report of the object."""
    return [
        container
        for dependency, _ in states
        for container in getattr(dependency, "__weft_contents__", lambda: ())()
    ]


def strides_of(source: Source) -> tuple[int, ...]:
    """Of an input of a program, in elements."""
    if source.window is not None:
        return tuple(source.window[2])
    return element_strides(source.tensor)


def effect_of(effects: Sequence[tuple[Find, Find]]) -> Callable[[list[Any], list[Any]], None]:
    """Sets the gradients that the function set."""

    def run(leaves: list[Any], outputs: list[Any]) -> None:
        for owner, value in effects:
            keep_gradient(owner.look_up(leaves), value.look_up(leaves, outputs))

    return run


def view_of(x: Tensor, window: Sequence[Any]) -> Tensor:
    """A window of an array (offset from its first element, shape, strides, all in memory order), with its history.

    Raises ValueError for an array with gaps in memory.
    """
    offset, shape, strides = window
    x_strides = element_strides(x)
    if not is_dense(x.shape, x_strides):
        raise ValueError(
            "trace: a result is a view of an argument that has a history and gaps in memory: "
            f"x is {_core.describe(x)}; give a copy()"
        )
    _, axes = in_memory_order(Geometry(0, 0, x.shape, x_strides, x.dtype, x.device))
    order = [axes.index(d) for d in range(len(axes))]
    dense = x if order == sorted(order) else registry.function("permute_dims")(x, axes=tuple(order))
    row = registry.function("reshape")(dense, shape=(-1,))
    view: Tensor = registry.function("as_strided")(row, shape=shape, strides=strides, offset=offset)
    return view


class NumberSources:
    """How calls find the numbers of a program: floats among their leaves, and what Python computes from those."""

    def __init__(self, floats: TracedFloats, leaves: Sequence[Any]) -> None:
        self.computes, self._guards = floats.computes, floats.guards
        self.positions = [k for k, leaf in enumerate(leaves) if type(leaf) is float]

    def find(self, origin: int) -> Find:
        """A number, by its origin."""
        if origin <= len(self.positions):
            return _core.Find.leaf(self.positions[origin - 1])
        return _core.Find.python(self._of_leaves(self.computes[origin]))

    def result(self, number: TracedFloat) -> Find:
        """A number that is a result."""
        return _core.Find.python(self._of_leaves(compute_of(number)))

    def guard(self) -> Guard | None:
        """That numbers that Python looked at are what they were; None: there are none."""
        guards = [(self._of_leaves(function), value) for function, value in self._guards]
        return (
            (lambda leaves: all(_evaluates_to(f, leaves, value) for f, value in guards)) if guards else None
        )

    def _of_leaves(self, function: Callable[[list[float]], Any]) -> Callable[[list[Any]], Any]:
        positions = self.positions
        return lambda leaves: function([leaves[k] for k in positions])


class _Inputs:
    """How calls find what the program takes, and what has to hold for it."""

    def __init__(
        self, recorder: LaunchRecorder, leaves: list[Any], floats: TracedFloats, around: Sequence[Tensor]
    ) -> None:
        self.recorder, self.leaves, self.around = recorder, leaves, around
        self.numbers = NumberSources(floats, leaves)
        self.arguments = {id(leaf): k for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
        # Tensors that were there before the call, so that as results they are themselves.
        self.tensors_before = {*self.arguments, *map(id, around)}
        memory = {_core.geometry(leaf)[0] for leaf in leaves if isinstance(leaf, Tensor)}
        if any(_core.geometry(x)[0] in memory for x in around):  # a call could not distinguish the two
            self.refuse()
        before = recorder.gradients_before.values()
        self.owners = {id(dx): x for reference, dx in before if (x := reference()) is not None}
        self.owned: dict[int, tuple[Find, bool]] = {}
        self.recorded: list[tuple[Find, bool]] = []  # tensors, and whether they required gradients

    def tensor(self, x: Tensor) -> Find:
        """How a call finds what was this tensor."""
        number = self.arguments.get(id(x))
        if number is not None:
            return _core.Find.leaf(number)
        owner = self.owners.get(id(x))
        if owner is None:
            return _core.Find.object(x)
        find = self.gradient_owner(owner)
        return _core.Find.python(lambda leaves: find.look_up(leaves).grad)

    def gradient_owner(self, x: Tensor) -> Find:
        """A tensor whose grad matters: the program is for one that has one at the beginning, or for one without."""
        find = self.tensor(x)
        self.owned.setdefault(id(x), (find, self.recorder.had_gradient(x)))
        return find

    def watch_gradients(self) -> None:
        """What the function has read of tensors' grad and requires_grad."""
        for x in self.recorder.read_gradients.values():
            self.gradient_owner(x)
        self.recorded = [(self.tensor(x), flag) for x, flag in self.recorder.read_recorded.values()]

    def array(self, source: Source) -> Find:
        return self.tensor(source.tensor).with_window(source.window)

    def seldom_changes(self, x: Tensor) -> bool:
        """Whether a captured array is likely to stay as it is: no gradient of it is computed."""
        return id(x) not in self.owned and not (x.requires_grad and _core.is_recording())

    def guard(self) -> Guard | None:
        """That gradients are there as they were, and numbers that Python looked at are what they were."""
        numbers = self.numbers.guard()
        owned, recorded = self.gradient_guards(native=False), self.recorded
        if numbers is None and not owned and not recorded:
            return None

        def holds(leaves: list[Any]) -> bool:
            return (
                (numbers is None or numbers(leaves))
                and all((find.look_up(leaves).grad is not None) == had for find, had in owned)
                and all(_core.is_tracked(find.look_up(leaves)) == flag for find, flag in recorded)
            )

        return holds

    def gradient_guards(self, native: bool) -> list[tuple[Find, bool]]:
        """Tensors whose gradient matters, and whether they had one: those that the native core finds, or the others."""
        return [
            (find, had) for find, had in self.owned.values() if (find.kind in ("leaf", "object")) == native
        ]

    def elsewhere(self, sources: Sequence[Source]) -> set[int]:
        """The memory that was not an argument's, by serial; arguments at later calls must not share it."""
        serials = {_core.geometry(s.tensor)[0] for s in sources if id(s.tensor) not in self.arguments}
        if any(_core.geometry(x)[0] in serials for x in self.leaves if isinstance(x, Tensor)):
            self.refuse()
        return serials

    @staticmethod
    def refuse() -> NoReturn:
        raise CannotRecord("program", "an argument shares memory with an array found elsewhere")


def _evaluates_to(compute: Callable[[list[Any]], Any], leaves: list[Any], value: Any) -> bool:
    try:
        return is_same_number(compute(leaves), value)
    except (ArithmeticError, ValueError, TypeError):  # int(inf), or a complex power; Python will say so
        return False


class _Outputs:
    """What the program gives, and how results are found in it. values: its outputs."""

    def __init__(self, recorder: LaunchRecorder, inputs: _Inputs) -> None:
        self.recorder, self.inputs = recorder, inputs
        self.values: list[Value] = []
        # Of each value its storage, and the array that has all of it, if any.
        self.buffers: list[tuple[Storage, Tensor | None]] = []
        self._shared: set[int] = set()  # storages of which several arrays are results
        self._whole_outputs: dict[int, int] = {}  # the output that has all of such a storage
        self._finds: dict[int, Find] = {}
        self.result_memory: set[int] = set()  # memory of results, by serial

    def share(self, tensors: Sequence[Tensor]) -> None:
        """Note which arrays share memory: they will share one output, too."""
        met_once: set[int] = set()
        for x in {id(x): x for x in tensors}.values():
            storage = self.storage(x)
            if storage is not None:
                (self._shared if id(storage) in met_once else met_once).add(id(storage))

    def storage(self, x: Tensor) -> Storage | None:
        geometry = _core.geometry(x)
        if not x.size:
            return None
        try:
            self.recorder.met(x, geometry)
            return self.recorder.storages.find(Geometry(*geometry))
        except Overlap as problem:
            raise CannotRecord("program", str(problem)) from None

    def find(self, leaf: Any) -> Find:
        """How a call finds what was this result."""
        if isinstance(leaf, TracedFloat):
            return self.inputs.numbers.result(leaf)
        if isinstance(leaf, Iterator):
            raise CannotRecord(
                "program",
                f"the result is an iterator, a {type(leaf).__name__}, that is used up once",
                users_line(),
            )
        if not isinstance(leaf, Tensor):
            return _core.Find.object(leaf)
        source = self._finds.get(id(leaf))
        if source is None:
            source = self._finds[id(leaf)] = self.array(leaf)
        return source

    def array(self, x: Tensor) -> Find:
        geometry = Geometry(*_core.geometry(x))
        storage = self.storage(x)
        self.result_memory.add(geometry.serial or 0)
        if id(x) in self.inputs.tensors_before:
            return self.inputs.tensor(x)
        if not x.size:  # nothing in memory; each call makes one
            value = self.recorder.value(geometry)
            assert value is not None
            self.values.append(value)
            self.buffers.append((Storage(geometry, value), x))
            return _core.Find.output(len(self.values) - 1)
        if storage is None:
            return _core.Find.object(x)
        source = storage.source
        if source is not None and not source.is_constant:  # from outside: the array itself, or a view of it
            find = self.inputs.tensor(source.tensor)
            if x is source.tensor:
                return find
            return find.with_window(self.window(geometry, _core.geometry(source.tensor)[1]))
        if id(storage) not in self._shared and not geometry.repeats:
            value = storage.read(geometry)
            self.values.append(stopped(value) if _core.is_stopped(x) else value)
            self.buffers.append((storage, x if storage.is_all(geometry) else None))
            return _core.Find.output(len(self.values) - 1)
        number = self._whole_outputs.get(id(storage))
        if number is None:
            number = self._whole_outputs[id(storage)] = len(self.values)
            self.values.append(F.reshape(storage.row(), shape=(-1,)))
            row = self.window(storage.base.flat(), geometry.address)
            self.buffers.append((storage, _core.window(x, *row)))
        return _core.Find.output(number, self.window(geometry, storage.first))

    @staticmethod
    def window(x: Geometry, start: int) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        return (x.address - start) // x.dtype.itemsize, x.shape, x.strides
