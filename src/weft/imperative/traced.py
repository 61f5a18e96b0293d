"""One program of a traced function: where its inputs come from, and what becomes of its outputs.

A Find says where a call finds something: (kind, what, window), of kind "leaf" (a number among the call's leaves),
"output" (of the program), "object" (itself), "python" (a function of the leaves); window: (offset, shape, strides) of
an array, None: all of it. The native core interprets them (native/bindings/traced.cpp).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from weft import _core
from weft.base.structure import Structure, flatten
from weft.executor.background import make_ahead
from weft.executor.compile import compile_graph
from weft.executor.planner import is_dense
from weft.graph.functionalization import Geometry, Overlap, Storage, in_memory_order
from weft.graph.graph import Graph
from weft.graph.inner import stopped
from weft.imperative.dependence import objects_in
from weft.imperative.gradient import gradient_table, gradients, keep_gradient
from weft.imperative.known_number import KnownNumber, KnownNumbers, compute_of, is_same_number
from weft.imperative.scribe import CannotWrite, Scribe, Source, users_line
from weft.imperative.surroundings import Surroundings
from weft.imperative.tensor import Tensor
from weft.ops import functions as F
from weft.ops import registry
from weft.ops.node import Value

__all__ = [
    "Find",
    "NumberSources",
    "Traced",
    "contents_of",
    "effect_of",
    "look_up",
    "seen",
    "strides_of",
    "watched_by",
    "write_up",
]

Find = tuple[str, Any, Any]
Guard = Callable[[list[Any]], bool]


class Traced:
    """A program of a traced function. graph: what it computes; plan: how."""

    def __init__(self, graph: Graph, plan: Any, spec: dict[str, Any], kept: list[Any]) -> None:
        self.graph, self.plan, self.spec = graph, plan, spec
        self._kept = kept  # objects that the key knows by their identity
        self.visible = 0  # outputs that are results
        self.structure = Structure(None)  # of the result
        self.strides: list[tuple[int, ...]] = []  # of the arrays
        self.example: tuple[list[Any], Structure] = ([], self.structure)  # leaves of the first call, by kind
        self.shown: set[int] = set()  # memory that the first call gave to the caller, by serial
        self.first: Any = None  # for LazyTrace.run: sources, origins and places of the first call

    def memory_report(self) -> Any:
        """Bytes of the memory plan by kind."""
        return self.plan.recipe.memory_report()

    def __str__(self) -> str:
        return str(self.graph)


def write_up(
    name: str,
    scribe: Scribe,
    leaves: list[Any],
    floats: KnownNumbers,
    result: Any,
    gradients_before: dict[int, tuple[Any, Tensor]],
    surroundings: Surroundings,
    memory_budget: int | float | None = None,
) -> Traced:
    """The program of what a scribe saw. Raises CannotWrite."""
    states = [(thing, thing.__weft_state__()) for thing, _ in scribe.dependences.values()]
    around = [*surroundings.values, *objects_in(tuple(state for _, state in states))]
    inputs = _Inputs(scribe, leaves, floats, gradients_before, [x for x in around if isinstance(x, Tensor)])
    outputs = _Outputs(scribe, inputs)
    found, structure = flatten(result)
    after = gradients()
    touched = scribe.set_gradients  # by this thread; others may set gradients meanwhile
    changed = {
        k: x
        for k, x in after.items()
        if k in touched and (k not in gradients_before or gradients_before[k][1] is not x[1])
    }
    gone = [owner() for k, (owner, _) in gradients_before.items() if k in touched and k not in after]
    outputs.share([x for x in found if isinstance(x, Tensor)] + [dx for _, dx in changed.values()])
    results = [outputs.find(leaf) for leaf in found]
    effects: list[tuple[Find, Find]] = []
    for reference, dx in changed.values():
        find = outputs.find(dx)
        if (owner := reference()) is not None:
            effects.append((inputs.gradient_owner(owner), find))
    effects += [(inputs.gradient_owner(x), ("object", None, None)) for x in gone if x is not None]

    inputs.watch_gradients()
    written = list(scribe.written_sources())
    graph, sources, origins = scribe.graph(outputs.values, written)
    arrays = [inputs.array(source) for source in sources]
    lasting = [k for k, (kind, x, _) in enumerate(arrays) if kind == "object" and inputs.seldom_changes(x)]
    lie = [strides_of(s) for s in sources]
    plan = compile_graph(graph, name, lie, len(outputs.values), lasting=lasting, memory_budget=memory_budget)
    plain = len(found) == 1 and structure.kind is None
    spec = {
        "plan": plan,
        "arrays": arrays,
        "numbers": [inputs.numbers.find(origin) for origin in origins],
        "results": results,
        "surroundings": surroundings.places,
        "stopped": [k for k, x in enumerate(found) if isinstance(x, Tensor) and _core.is_stopped(x)],
        "watched": watched_by(states),
        "contents": contents_of(states),
        "guard": inputs.guard(),
        "gradients": inputs.owners_known(native=True),
        "gradient_table": gradient_table,
        "build": None if plain else structure.builder,
        "effect": effect_of(effects) if effects else None,
        "elsewhere": inputs.elsewhere(sources) if written else set(),
    }
    made = Traced(graph, plan, spec, [leaf for leaf in leaves if not isinstance(leaf, Tensor)])
    made.shown = outputs.shown
    made.visible, made.structure = len(outputs.values), structure
    made.strides = lie
    made.first = (sources, origins, outputs.places)
    make_ahead(plan)
    return made


def watched_by(states: Sequence[tuple[Any, Any]]) -> Callable[[], bool] | None:
    """Whether the things that a program depends on are in these states."""
    return (lambda: all(thing.__weft_state__() == state for thing, state in states)) if states else None


def contents_of(states: Sequence[tuple[Any, Any]]) -> list[Any]:
    """The lists and dicts of things whose states are watched: their contents change without the things' knowing."""
    return [
        container for thing, _ in states for container in getattr(thing, "__weft_contents__", lambda: ())()
    ]


def strides_of(source: Source) -> tuple[int, ...]:
    """Of an input of a program, in elements."""
    if source.window is not None:
        return tuple(source.window[2])
    return tuple(s // source.tensor.itemsize for s in source.tensor.strides)


def effect_of(effects: Sequence[tuple[Find, Find]]) -> Callable[[list[Any], list[Any]], None]:
    """Sets the gradients that the function set."""

    def run(leaves: list[Any], outputs: list[Any]) -> None:
        for owner, value in effects:
            keep_gradient(look_up(owner, leaves), look_up(value, leaves, outputs))

    return run


def seen(x: Tensor, window: Sequence[Any]) -> Tensor:
    """A window of an array (offset from its first element, shape, strides, as it lies in memory), with its history.

    Raises ValueError for an array that does not lie without gaps.
    """
    offset, shape, strides = window
    own = tuple(s // x.itemsize for s in x.strides)
    if not is_dense(x.shape, own):
        raise ValueError(
            "trace: a result is a view of an argument that has a history and gaps in memory: "
            f"x is {_core.describe(x)}; give a copy()"
        )
    _, axes = in_memory_order(Geometry(0, 0, x.shape, own, x.dtype, x.device))
    order = [axes.index(d) for d in range(len(axes))]
    lying = x if order == sorted(order) else registry.function("permute_dims")(x, axes=tuple(order))
    row = registry.function("reshape")(lying, shape=(-1,))
    made: Tensor = registry.function("as_strided")(row, shape=shape, strides=strides, offset=offset)
    return made


def look_up(find: Find, leaves: list[Any], outputs: Sequence[Any] = ()) -> Any:
    """What a Find finds."""
    kind, what, window = find
    if kind == "leaf":
        found = leaves[what]
    elif kind == "output":
        found = outputs[what]
    else:
        found = what(leaves) if kind == "python" else what
    return found if window is None else _core.window(found, *window)


class NumberSources:
    """How calls find the numbers of a program: floats among their leaves, and what Python computes from those."""

    def __init__(self, floats: KnownNumbers, leaves: Sequence[Any]) -> None:
        self.computes, self._guards = floats.computes, floats.guards
        self.places = [k for k, leaf in enumerate(leaves) if type(leaf) is float]

    def find(self, origin: int) -> Find:
        """A number, by its origin."""
        if origin <= len(self.places):
            return ("leaf", self.places[origin - 1], None)
        return ("python", self._of_leaves(self.computes[origin]), None)

    def result(self, number: KnownNumber) -> Find:
        """A number that is a result."""
        return ("python", self._of_leaves(compute_of(number)), None)

    def guard(self) -> Guard | None:
        """That numbers that Python looked at are what they were; None: there are none."""
        guards = [(self._of_leaves(function), value) for function, value in self._guards]
        return (lambda leaves: all(_comes_to(f, leaves, value) for f, value in guards)) if guards else None

    def _of_leaves(self, function: Callable[[list[float]], Any]) -> Callable[[list[Any]], Any]:
        places = self.places
        return lambda leaves: function([leaves[k] for k in places])


class _Inputs:
    """How calls find what the program takes, and what has to hold for it."""

    def __init__(
        self,
        scribe: Scribe,
        leaves: list[Any],
        floats: KnownNumbers,
        before: dict[int, tuple[Any, Tensor]],
        around: Sequence[Tensor],
    ) -> None:
        self.scribe, self.leaves, self.before = scribe, leaves, before
        self.numbers = NumberSources(floats, leaves)
        self.arguments = {id(leaf): k for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
        # Tensors that were there before the call, so that as results they are themselves.
        self.given = {*self.arguments, *map(id, around)}
        memory = {_core.geometry(leaf)[0] for leaf in leaves if isinstance(leaf, Tensor)}
        if any(_core.geometry(x)[0] in memory for x in around):  # which of them is meant cannot be told
            self.refuse()
        self.owners = {id(dx): owner() for owner, dx in before.values()}
        self.owned: dict[int, tuple[Find, bool]] = {}
        self.recorded: list[tuple[Find, bool]] = []  # tensors, and whether they required gradients

    def tensor(self, x: Tensor) -> Find:
        """What was this tensor."""
        number = self.arguments.get(id(x))
        if number is not None:
            return ("leaf", number, None)
        owner = self.owners.get(id(x))
        if owner is None:
            return ("object", x, None)
        find = self.gradient_owner(owner)
        return ("python", lambda leaves: look_up(find, leaves).grad, None)

    def gradient_owner(self, x: Tensor) -> Find:
        """A tensor whose grad matters: the program is for one that has one at the beginning, or for one without."""
        find = self.tensor(x)
        self.owned.setdefault(id(x), (find, id(x) in self.before))
        return find

    def watch_gradients(self) -> None:
        """What the function has read of tensors' grad and requires_grad."""
        for x in self.scribe.read_gradients.values():
            self.gradient_owner(x)
        self.recorded = [(self.tensor(x), flag) for x, flag in self.scribe.read_recorded.values()]

    def array(self, source: Source) -> Find:
        kind, what, _ = self.tensor(source.tensor)
        return (kind, what, source.window)

    def seldom_changes(self, x: Tensor) -> bool:
        """Whether an array found elsewhere is likely to stay as it is: nobody is asked for its gradient."""
        return id(x) not in self.owned and not (x.requires_grad and _core.is_recording())

    def guard(self) -> Guard | None:
        """That gradients are there as they were, and numbers that Python looked at are what they were."""
        numbers = self.numbers.guard()
        owned, recorded = self.owners_known(native=False), self.recorded
        if numbers is None and not owned and not recorded:
            return None

        def holds(leaves: list[Any]) -> bool:
            return (
                (numbers is None or numbers(leaves))
                and all((look_up(find, leaves).grad is not None) == had for find, had in owned)
                and all(_core.is_tracked(look_up(find, leaves)) == flag for find, flag in recorded)
            )

        return holds

    def owners_known(self, native: bool) -> list[tuple[Find, bool]]:
        """Tensors whose gradient matters, and whether they had one: those that the native core finds, or the others."""
        return [(find, had) for find, had in self.owned.values() if (find[0] in ("leaf", "object")) == native]

    def elsewhere(self, sources: Sequence[Source]) -> set[int]:
        """The memory that was not an argument's, by serial; arguments at later calls must not lie there."""
        found = {_core.geometry(s.tensor)[0] for s in sources if id(s.tensor) not in self.arguments}
        if any(_core.geometry(x)[0] in found for x in self.leaves if isinstance(x, Tensor)):
            self.refuse()
        return found

    @staticmethod
    def refuse() -> NoReturn:
        raise CannotWrite("an argument shares memory with an array found elsewhere", users_line())


def _comes_to(compute: Callable[[list[Any]], Any], leaves: list[Any], value: Any) -> bool:
    try:
        return is_same_number(compute(leaves), value)
    except (ArithmeticError, ValueError, TypeError):  # int(inf), or a complex power; Python will say so
        return False


class _Outputs:
    """What the program gives, and how results are found in it. values: its outputs."""

    def __init__(self, scribe: Scribe, inputs: _Inputs) -> None:
        self.scribe, self.inputs = scribe, inputs
        self.values: list[Value] = []
        self.places: list[
            tuple[Storage, Tensor | None]
        ] = []  # of values; the arrays that have all of the storage
        self._shared: set[int] = set()  # storages of which several arrays are shown
        self._whole: dict[int, int] = {}  # the output that has all of such a storage
        self._found: dict[int, Find] = {}
        self.shown: set[int] = set()  # memory of results, by serial

    def share(self, shown: Sequence[Tensor]) -> None:
        """Note which arrays lie in the same memory: they will lie in one output, too."""
        seen: set[int] = set()
        for x in {id(x): x for x in shown}.values():
            storage = self.storage(x)
            if storage is not None:
                (self._shared if id(storage) in seen else seen).add(id(storage))

    def storage(self, x: Tensor) -> Storage | None:
        geometry = _core.geometry(x)
        if not x.size:
            return None
        try:
            self.scribe.met(x, geometry)
            return self.scribe.storages.find(Geometry(*geometry))
        except Overlap as problem:
            raise CannotWrite(str(problem), users_line()) from None

    def find(self, leaf: Any) -> Find:
        """How a call finds what was this result."""
        if isinstance(leaf, KnownNumber):
            return self.inputs.numbers.result(leaf)
        if isinstance(leaf, Iterator):
            raise CannotWrite(
                f"the result is an iterator, a {type(leaf).__name__}, that is used up once", users_line()
            )
        if not isinstance(leaf, Tensor):
            return ("object", leaf, None)
        found = self._found.get(id(leaf))
        if found is None:
            found = self._found[id(leaf)] = self.array(leaf)
        return found

    def array(self, x: Tensor) -> Find:
        geometry = Geometry(*_core.geometry(x))
        storage = self.storage(x)
        self.shown.add(geometry.serial or 0)
        if id(x) in self.inputs.given:
            return self.inputs.tensor(x)
        if not x.size:  # nothing in memory; each call makes one
            value = self.scribe.value(geometry)
            assert value is not None
            self.values.append(value)
            self.places.append((Storage(geometry, value), x))
            return ("output", len(self.values) - 1, None)
        if storage is None:
            return ("object", x, None)
        source = storage.source
        if source is not None and not source.is_constant:  # from outside: the array itself, or a view of it
            kind, what, _ = self.inputs.tensor(source.tensor)
            if x is source.tensor:
                return (kind, what, None)
            return (kind, what, self.window(geometry, _core.geometry(source.tensor)[1]))
        if id(storage) not in self._shared and not geometry.repeats:
            value = storage.read(geometry)
            self.values.append(stopped(value) if _core.is_stopped(x) else value)
            self.places.append((storage, x if storage.is_all(geometry) else None))
            return ("output", len(self.values) - 1, None)
        number = self._whole.get(id(storage))
        if number is None:
            number = self._whole[id(storage)] = len(self.values)
            self.values.append(F.reshape(storage.row(), shape=(-1,)))
            row = self.window(storage.base.flat(), geometry.address)
            self.places.append((storage, _core.window(x, *row)))
        return ("output", number, self.window(geometry, storage.first))

    @staticmethod
    def window(x: Geometry, start: int) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        return (x.address - start) // x.dtype.itemsize, x.shape, x.strides
