"""Traced functions for which sizes of some axes are symbols: one graph for all of them.

>>> import weft as wf
>>> @wf.trace(dynamic={"x": 0})
... def f(x, w):
...     return (x @ w).sum(axis=0) / x.shape[0]
>>> w = wf.ones((3, 2))
>>> [f(wf.ones((n, 3)), w)[0].item() for n in (2, 5, 9)], len(f.programs)
([3.0, 3.0, 3.0], 1)

The function runs once, on Values of a graph, whose dynamic sizes are Sizes: whatever has to know the number raises, so
none is ever taken for granted. Each size then has a plan, made of that graph without Python of the function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from weft import _core
from weft.base.errors import GraphError, ShapeError
from weft.base.structure import Structure, flatten
from weft.executor.compile import compile_graph
from weft.graph.graph import Graph
from weft.graph.instantiate import instantiate
from weft.graph.subgraph import Capture
from weft.imperative import indexing as indexing  # so that Values can be indexed
from weft.imperative.dependence import all_within
from weft.imperative.scribe import CannotWrite, Scribe, is_users, users_line
from weft.imperative.storages import Geometry
from weft.imperative.surroundings import surroundings
from weft.imperative.tensor import Tensor
from weft.imperative.traced import Traced, strides_of, watched_by
from weft.ops.node import Node, Value, constant, input_value
from weft.ops.sizes import NeedsSizes, Size, axis_size
from weft.ops.types import TensorType

__all__ = ["DynamicAxes", "DynamicTraced", "Signature"]

SIZES = 64  # plans of one graph; the oldest are dropped


class DynamicAxes:
    """Which axes of which arguments of a function have sizes that change.

    dynamic: an argument's name or place -> an axis or several. Raises TypeError for arguments that the function does
    not have, and for axes that are not integers.
    """

    def __init__(self, function: Callable[..., Any], dynamic: Any) -> None:
        self._signature = inspect.signature(function)
        self._name = getattr(function, "__name__", type(function).__name__)
        names = list(self._signature.parameters)
        self._axes: dict[str, tuple[int, ...]] = {}
        for argument, axes in dict(dynamic).items():
            is_place = isinstance(argument, int) and -len(names) <= argument < len(names)
            name = names[argument] if is_place else argument
            if name not in names:
                raise TypeError(
                    f"trace: dynamic: {self._name} has no argument {argument!r}; it has {', '.join(names)}"
                )
            found = (axes,) if isinstance(axes, int) else tuple(axes)
            if not all(isinstance(axis, int) for axis in found):
                raise TypeError(f"trace: dynamic: axes of {name!r} must be integers, got {axes!r}")
            self._axes[name] = found

    def of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[int, tuple[int, ...]]:
        """The dynamic axes of a call's tensors, by id. Raises TypeError or ShapeError where there is no such axis."""
        given = self._signature.bind(*args, **kwargs).arguments
        found: dict[int, tuple[int, ...]] = {}
        for name, axes in self._axes.items():
            for x in flatten(given.get(name))[0]:
                if x is None:
                    continue
                if not isinstance(x, Tensor):
                    raise TypeError(
                        f"{self._name}: dynamic: {name} must be an array, or a structure of them, "
                        f"got {type(x).__name__}"
                    )
                found[id(x)] = tuple(self._axis(name, x, axis) for axis in axes)
        return found

    def _axis(self, name: str, x: Tensor, axis: int) -> int:
        if not -x.ndim <= axis < x.ndim:
            found = TensorType(x.shape, x.dtype, x.device)
            raise ShapeError(f"{self._name}: dynamic: axis {axis} is out of range: {name} is {found}")
        return axis % x.ndim


class Signature:
    """What a graph with dynamic sizes depends on of a call's arguments; key: equal ones find the same graph.

    Dynamic axes of the same size share a symbol: which of them do is part of the key, and that a size is 0 or 1.
    """

    def __init__(
        self, leaves: Sequence[Any], structure: Structure, axes: dict[int, tuple[int, ...]], layers: Any = ()
    ) -> None:
        self.sizes: list[int] = []  # of the symbols
        self.places: list[tuple[int, int]] = []  # where each is found: (leaf, axis)
        self.types: list[TensorType | None] = []  # of the tensors among the leaves
        words: list[Any] = [structure, layers]
        for k, leaf in enumerate(leaves):
            self.types.append(
                self._type(k, leaf, axes.get(id(leaf), ())) if isinstance(leaf, Tensor) else None
            )
            words.append(self._word(leaf))
        self.key = tuple(words)

    def _type(self, k: int, x: Tensor, axes: tuple[int, ...]) -> TensorType:
        sizes = [self._symbol(n, k, d) if d in axes and n > 1 else n for d, n in enumerate(x.shape)]
        return TensorType(tuple(sizes), x.dtype, x.device)

    def _symbol(self, n: int, leaf: int, axis: int) -> Any:
        if n not in self.sizes:
            self.sizes.append(n)
            self.places.append((leaf, axis))
        return axis_size(self.sizes.index(n))

    def _word(self, leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            made = self.types[-1]
            assert made is not None
            return (tuple(n if isinstance(n, int) else repr(n) for n in made.shape), made.dtype, made.device)
        if type(leaf) is float:
            return float
        if isinstance(leaf, int | str | bytes | slice | type(None)):
            return (type(leaf), str(leaf))
        return id(leaf)


class DynamicTraced:
    """A graph of a traced function with dynamic sizes, and its plans. graph: what it computes."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        leaves: list[Any],
        structure: Structure,
        signature: Signature,
    ) -> None:
        self.name, self.signature = name, signature
        self.surroundings = surroundings(function)
        self.plans: list[Traced] = []
        self._kept = [leaf for leaf in leaves if not isinstance(leaf, Tensor)]
        inside = _Inside()
        for thing in all_within([*leaves, *(value for _, _, value in self.surroundings)]):
            inside.depends_on(thing)
        capture = _Functional(name)
        self._values = [
            capture.input(of)
            if of is not None
            else input_value(constant(leaf).type)
            if type(leaf) is float
            else leaf
            for leaf, of in zip(leaves, signature.types, strict=True)
        ]
        args, kwargs = structure.build(self._values)
        found: list[Any] = []

        def run() -> list[Any]:
            results, self.structure = flatten(function(*args, **kwargs))
            found.extend(results)
            return [x for x in results if _is_made(x)]

        with inside:
            try:
                made = iter(capture.run(run))
            except NeedsSizes as problem:
                raise GraphError(
                    f"{name}: with dynamic axes, the number behind a size was needed: {problem}\n"
                    f"  at {_line_of(problem)}"
                ) from None
            except Exception as problem:
                problem.add_note(f"while {name} was written down on symbols, for its dynamic axes")
                raise
        if inside.set_gradients:
            raise GraphError(f"{name}: with dynamic axes, a function cannot set gradients so far")
        self._found = capture.found
        outputs: list[Value] = []
        self._results = [self._find(x, next(made) if _is_made(x) else None, outputs) for x in found]
        self._inputs = [v for v in self._values if isinstance(v, Value)]
        self.graph = Graph([*self._inputs, *capture.extra], outputs)
        self._states = [(thing, thing.__weft_state__()) for thing in inside.dependences.values()]
        self.watched = watched_by(self._states)

    def __str__(self) -> str:
        return str(self.graph)

    def memory_report(self) -> Any:
        """Bytes by kind of the memory plan for the sizes that were met last."""
        return self.plans[-1].memory_report()

    def _find(self, x: Any, value: Value | None, outputs: list[Value]) -> Any:
        """Where a call finds what was the result x, as weft.imperative.traced has it; value: it in the graph."""
        if isinstance(x, Size):
            return ("python", self._size_of(x), None)
        if value is None or isinstance(x, Tensor):
            return ("object", x, None)
        place = next((k for k, v in enumerate(self._values) if v is value), None)
        if place is not None:
            return ("leaf", place, None)
        if value.type.weak or all(v.type.weak for v in _given_to(value)):
            raise GraphError(
                f"{self.name}: with dynamic axes, a number computed from floats cannot be a result so far"
            )
        outputs.append(value)
        return ("output", len(outputs) - 1, None)

    def _size_of(self, size: Size) -> Callable[[list[Any]], int]:
        places = self.signature.places
        return lambda leaves: size.at([leaves[k].shape[axis] for k, axis in places])

    def holds(self, signature: Signature, around: Sequence[Any]) -> bool:
        """Whether it is the graph for such a call."""
        return (
            signature.key == self.signature.key
            and len(around) == len(self.surroundings)
            and all(
                a[2] is b[2] or _same_plain(a[2], b[2])
                for a, b in zip(around, self.surroundings, strict=True)
            )
            and (self.watched is None or self.watched())
        )

    def plan_for(self, leaves: list[Any], sizes: Sequence[int]) -> Traced:
        """A plan for arrays of these sizes."""
        scribe = Scribe(_raise)
        tensors = [x for x in leaves if isinstance(x, Tensor)]
        for x in sorted([*tensors, *self._found], key=lambda x: -x.nbytes):
            scribe.met(x, _core.geometry(x))
        given: list[Value] = []
        numbers: list[tuple[int, Value]] = []
        for k, v in enumerate(self._values):
            if isinstance(v, Value) and v.type.weak:
                numbers.append((k, input_value(v.type)))
                given.append(numbers[-1][1])
            elif isinstance(v, Value):
                given.append(_content(scribe, leaves[k]))
        given += [_content(scribe, x) for x in self._found]
        try:
            outputs = [v for v in instantiate(self.graph, given, axes=sizes) if v is not None]
        except NeedsSizes:
            raise GraphError(
                f"{self.name}: with dynamic axes, functions inside cond, while_loop and foreach cannot have "
                "arrays of such sizes so far"
            ) from None
        graph = Graph([*(s.value for s in scribe.sources), *(v for _, v in numbers)], outputs)
        strides = [strides_of(s) for s in scribe.sources]
        plan = compile_graph(graph, self.name, strides, len(outputs))
        places = {id(x): k for k, x in enumerate(leaves) if isinstance(x, Tensor)}
        plain = self.structure.kind is None
        spec = {
            "plan": plan,
            "arrays": [
                ("leaf", places[id(s.tensor)], s.window)
                if id(s.tensor) in places
                else ("object", s.tensor, s.window)
                for s in scribe.sources
            ],
            "numbers": [("leaf", k, None) for k, _ in numbers],
            "results": self._results,
            "surroundings": self.surroundings,
            "watched": self.watched,
            "guard": None,
            "build": None if plain else self.structure.builder,
            "effect": None,
            "elsewhere": set(),
        }
        made = Traced(graph, plan, spec, self._kept)
        self.plans.append(made)
        return made

    def surplus(self) -> Iterator[Traced]:
        """Plans to be dropped, the oldest."""
        while len(self.plans) > SIZES:
            yield self.plans.pop(0)


class _Functional(Capture):
    """Writes down a function that must not change what it is given."""

    def made(self, node: Node) -> Node:
        assert node.op is not None
        if node.op.random:
            self._refuse(f"random numbers, which {node.op.name} draws,")
        if node.op.written(len(node.inputs)):
            self._refuse(f"writes to arrays, by {node.op.name},")
        return node

    def write(self, target: Any, content: Value) -> None:
        self._refuse("writes to arrays")

    def check_in_place(self, name: str) -> None:
        self._refuse(f"an operation in place, {name},")

    def check_recording(self) -> None:
        self._refuse("a GradManager")

    def _refuse(self, what: str) -> NoReturn:
        raise GraphError(f"{self.name}: with dynamic axes, {what} cannot be had so far\n  at {users_line()}")


class _Inside(Scribe):
    """Sees to it that nothing is done for good while a function runs on Values."""

    defers = True  # it is told before anything is done

    def __init__(self) -> None:
        super().__init__(_raise)

    def _refuse(self, *_: Any) -> NoReturn:
        raise GraphError(
            "with dynamic axes a function is written down on symbols; this would be done only once: "
            f"something is computed, read or written at once\n  at {users_line()}"
        )

    launched = copied = drawn = permuted = read = awaited = random_state = _refuse  # type: ignore[assignment]

    def filled(self, to: Any, number: Any) -> bool:
        if not self._born(Geometry(*to)):
            self._refuse()
        return False

    def counted(self, to: Any, start: Any, step: Any) -> bool:
        return self.filled(to, start)

    def met(self, tensor: Any, geometry: Any) -> None:
        """Arrays of the surroundings are found by the capture."""


def _raise(problem: CannotWrite) -> None:
    raise problem


def _is_made(x: Any) -> bool:
    """Whether a result is an array."""
    return isinstance(x, Value | Tensor)


def _given_to(value: Value) -> list[Value]:
    """The inputs that a value is computed from; itself if there are none."""
    nodes = Graph([], [value]).nodes
    return [v for node in nodes if node.op is None and node.value is None for v in node.outputs] or [value]


def _content(scribe: Scribe, x: Tensor) -> Value:
    value = scribe.value(Geometry(*_core.geometry(x)))
    assert value is not None
    return value


def _same_plain(a: Any, b: Any) -> bool:
    return type(a) is type(b) and isinstance(a, int | float | str | bytes) and bool(a == b)


def _line_of(problem: BaseException) -> str:
    """The user's line in which an exception came up."""
    place, frame = "?", problem.__traceback__
    while frame is not None:
        code = frame.tb_frame.f_code
        if is_users(code.co_filename):
            place = f"{code.co_filename}:{frame.tb_lineno}"
        frame = frame.tb_next
    return place
