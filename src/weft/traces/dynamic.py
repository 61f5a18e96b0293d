"""Traced functions for which sizes of some axes are symbols: one graph for all of them.

>>> import weft as wf
>>> @wf.trace(dynamic={"x": 0})
... def f(x, w):
...     return (x @ w).sum(axis=0) / x.shape[0]
>>> w = wf.ones((3, 2))
>>> [f(wf.ones((n, 3)), w)[0].item() for n in (2, 5, 9)], len(f.programs)
([3.0, 3.0, 3.0], 1)

The function runs once, on Values of a graph, whose dynamic sizes are Sizes: whatever has to know the number raises, so
none is ever taken for granted. Comparisons that depend on the size, such as of `x[:t]` with what x has, are guards: the
function runs again for sizes for which one has another result. Each size then has a plan, made of that graph without
Python of the function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from weft import _core
from weft.arrays import array_values as array_values  # so that Values are arrays
from weft.arrays.tensor import Tensor
from weft.arrays.traced_float import TracedFloat, TracedFloats
from weft.base.errors import GraphError, ShapeError
from weft.base.exact import Same, exact
from weft.base.structure import Structure, flatten
from weft.base.users_line import is_users
from weft.executor.compile import compile_graph
from weft.graph.functionalization import Geometry
from weft.graph.graph import Graph
from weft.graph.instantiate import instantiate
from weft.graph.recording import CannotRecord, Recorder
from weft.graph.subgraph import Capture, definition_slots
from weft.ops import functions as F
from weft.ops import registry
from weft.ops.node import Value
from weft.ops.sizes import NeedsSizes, Size, SizeGuards, axis_size
from weft.ops.types import TensorType
from weft.recording.captured_environment import captured_environment
from weft.recording.dependence import all_within, objects_in
from weft.recording.doubts import Recording, is_checked
from weft.recording.launch_recorder import LaunchRecorder
from weft.traces.traced import NumberSources, Traced, replay_spec, state_check, strides_of, tensors_around

if TYPE_CHECKING:
    from weft._core import Find

__all__ = ["DynamicAxes", "DynamicTraced", "SharedMemory", "Signature"]

SIZES = 64  # plans of one graph; the oldest are dropped


class SharedMemory(GraphError):
    """An argument shares memory with an array that the function captures."""


class DynamicAxes:
    """Which axes of which arguments of a function have sizes that change.

    dynamic: an argument's name or index -> an axis or several. Raises TypeError for arguments that the function does
    not have, and for axes that are not integers.
    """

    reason = "with dynamic axes"  # why a function is written down on symbols, for errors

    def __init__(self, function: Callable[..., Any], dynamic: Any) -> None:
        self._signature = inspect.signature(function)
        self._name = getattr(function, "__name__", type(function).__name__)
        names = list(self._signature.parameters)
        self.axes: dict[str, tuple[int, ...]] = {}
        for argument, axes in dict(dynamic).items():
            is_index = isinstance(argument, int) and -len(names) <= argument < len(names)
            name = names[argument] if is_index else argument
            if name not in names:
                raise TypeError(
                    f"trace: dynamic: {self._name} has no argument {argument!r}; it has {', '.join(names)}"
                )
            axis_numbers = (axes,) if isinstance(axes, int) else tuple(axes)
            if not all(isinstance(axis, int) for axis in axis_numbers):
                raise TypeError(f"trace: dynamic: axes of {name!r} must be integers, got {axes!r}")
            self.axes[name] = axis_numbers

    def of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[int, tuple[int, ...]]:
        """The dynamic axes of a call's tensors, by id. Raises TypeError or ShapeError where there is no such axis."""
        arguments = self._signature.bind(*args, **kwargs).arguments
        axes_by_id: dict[int, tuple[int, ...]] = {}
        for name, axes in self.axes.items():
            for x in flatten(arguments.get(name))[0]:
                if x is None:
                    continue
                if not isinstance(x, Tensor):
                    raise TypeError(
                        f"{self._name}: dynamic: {name} must be an array, or a structure of them, "
                        f"got {type(x).__name__}"
                    )
                axes_by_id[id(x)] = tuple(self._axis(name, x, axis) for axis in axes)
        return axes_by_id

    def _axis(self, name: str, x: Tensor, axis: int) -> int:
        if not -x.ndim <= axis < x.ndim:
            actual = TensorType(x.shape, x.dtype, x.device)
            raise ShapeError(f"{self._name}: dynamic: axis {axis} is out of range: {name} is {actual}")
        return axis % x.ndim


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


class DynamicTraced:
    """A graph of a traced function with dynamic sizes, and its plans. graph: what it computes."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        leaves: list[Any],
        structure: Structure,
        signature: Signature,
        reason: str,
    ) -> None:
        self.name, self.signature, self.reason = name, signature, reason
        self.environment, lookups = captured_environment(function), registry.lookups
        self.plans: list[Traced] = []
        self._size_count = 0  # of all for which a plan was made
        self._key_objects = [leaf for leaf in leaves if not isinstance(leaf, Tensor)]
        floats = TracedFloats([leaf for leaf in leaves if type(leaf) is float])
        self._numbers = NumberSources(floats, leaves)
        recorder = _EffectGuard(reason, floats)
        for dependency in all_within([*leaves, *self.environment.values]):
            recorder.depends_on(dependency)
        capture = _WholeFunction(name, reason)
        self._values = self._symbolic_leaves(capture, leaves, iter(floats.numbers))
        # By id, in order: the argument is the first one that it is.
        self._inputs = {id(v): v for v in self._values if isinstance(v, Value)}
        args, kwargs = structure.build(self._values)
        results: list[Any] = []

        def run() -> list[Any]:
            leaves_of_result, self.structure = flatten(function(*args, **kwargs))
            results.extend(leaves_of_result)
            return [x for x in leaves_of_result if _is_array(x)]

        self.size_guards = SizeGuards(signature.sizes)
        with recorder, self.size_guards:
            try:
                arrays = iter(capture.run(run))
            except NeedsSizes as problem:
                raise CannotRecord(
                    name, f"{reason}, the number behind a size was needed: {problem}", _line_of(problem)
                ) from None
            except Exception as problem:
                numbers = ", ".join(f"{axis_size(k)} = {n}" for k, n in enumerate(signature.sizes))
                with_numbers = f", {numbers}" if numbers else ""
                problem.add_note(f"while {name} was written down on symbols, {reason}{with_numbers}")
                raise
            finally:
                floats.close()
        self.lasting_change = self._lasting_change(recorder, capture)
        contents = {k: capture.content(v) for k, v in enumerate(self._values) if isinstance(v, Value)}
        self._changed = {k: v for k, v in contents.items() if v is not None}  # of arguments
        self._check_changed(leaves, capture)
        self._had = capture.had
        self._captures = [capture.find_of(x) for x in capture.captures]
        outputs: list[Value] = []
        self._results = [
            self._find(capture, x, next(arrays) if _is_array(x) else None, outputs) for x in results
        ]
        self._effects = [
            (
                _core.Find.object(x),
                self._find(capture, dx, capture.lift(dx) if _is_array(dx) else None, outputs),
            )
            for x, dx in capture.cotangents.values()
        ]
        self._visible, self._written_captures = len(outputs), list(capture.new_contents)
        outputs += [*capture.new_contents.values(), *self._changed.values()]
        self.graph = Graph(
            [*self._inputs.values(), *capture.capture_inputs, *capture.numbers.values()],
            [*outputs, *capture.unused_draws(outputs)],
        )
        self.environment.slots += definition_slots(self.graph, lookups)
        self._origins = list(capture.numbers)
        self._guard = self._numbers.guard()
        self._states = [
            (dependency, dependency.__weft_state__()) for dependency, _ in recorder.dependences.values()
        ]
        self.watched = state_check(self._states)
        self.is_doubted = bool(self.environment.doubts) and not self.lasting_change

    def _lasting_change(self, recorder: _EffectGuard, capture: _WholeFunction) -> str:
        """What the call has changed that later calls will find; "": nothing. See Trace.

        Raises CannotRecord if objects outside keep Values, which mean nothing after the call.
        """
        changed_objects = recorder.changed()
        for changed_object in changed_objects:
            if any(isinstance(x, Value) for x in objects_in(changed_object.__weft_state__())):
                capture.refuse(f"an array is kept in an attribute of a {type(changed_object).__name__}")
        if changed_objects:
            names = ", ".join(sorted({type(changed_object).__name__ for changed_object in changed_objects}))
            return f"each call changes attributes, on which it depends, of {names}"
        if self.environment.changed_by_itself():
            return "each call changes variables or attributes, on which it depends"
        return ""

    def _symbolic_leaves(self, capture: Capture, leaves: Sequence[Any], numbers: Iterator[Any]) -> list[Any]:
        """What the function is called with: one Value for each array, whatever arguments it is."""
        values: list[Any] = []
        for k, (leaf, of) in enumerate(zip(leaves, self.signature.types, strict=True)):
            if of is None:
                values.append(next(numbers) if type(leaf) is float else leaf)
                continue
            same = next((j for j, is_same in self.signature.shared[k] if is_same), None)
            if same is not None and values[same].type == of:
                values.append(values[same])
                continue
            values.append(capture.input(of))
            if not _core.is_contiguous(leaf):
                capture.set_unknown_strides(values[-1])
        return values

    def _check_changed(self, leaves: Sequence[Any], capture: _WholeFunction) -> None:
        """Raise CannotRecord where an argument is written that another one overlaps."""
        for k in self._changed:
            for j, x in enumerate(leaves):
                is_other = isinstance(x, Tensor) and self._values[j] is not self._values[k]
                if is_other and _core.shares_memory(x, leaves[k]):
                    capture.refuse(
                        f"an argument is written, argument {k}, that shares memory with argument {j}"
                    )

    def __str__(self) -> str:
        return str(self.graph)

    def memory_report(self) -> Any:
        """Bytes by kind of the memory plan for the sizes that were met last."""
        return self.plans[-1].memory_report()

    def _find(self, capture: _WholeFunction, x: Any, value: Value | None, outputs: list[Value]) -> Find:
        """Where a call finds what was the result x; value: it in the graph."""
        if isinstance(x, Size):
            return _core.Find.python(self._size_of(x))
        if isinstance(x, TracedFloat):
            return self._numbers.result(x)
        if isinstance(x, Iterator):
            raise CannotRecord(
                self.name,
                f"{self.reason}, a result is an iterator, a {type(x).__name__}, that is used up once",
            )
        if value is None:
            return _core.Find.object(x)
        if isinstance(x, Tensor) and not capture.is_local(x):
            return capture.find_of(x)
        index = next((k for k, v in enumerate(self._values) if v is x or v is value), None)
        if index is not None:
            return _core.Find.leaf(index)
        index = next((k for k, v in enumerate(outputs) if v is value), None)
        if index is not None:
            return _core.Find.output(index)
        if value.node.op is None:  # made by the function, of nothing or of numbers: each call makes one
            value = F.reshape(value, shape=value.shape, copy=True)
        outputs.append(value)
        return _core.Find.output(len(outputs) - 1)

    def _size_of(self, size: Size) -> Callable[[list[Any]], int]:
        symbol_axes = self.signature.symbol_axes
        return lambda leaves: size.at([leaves[k].shape[axis] for k, axis in symbol_axes])

    def holds(self, signature: Signature, leaves: list[Any]) -> bool:
        """Whether it is the graph for such a call."""
        return (
            signature.key == self.signature.key
            and self.size_guards.hold(signature.sizes)
            and not self.environment.changed()
            and self._guards_hold(leaves)
            and (self.watched is None or self.watched())
        )

    def _guards_hold(self, leaves: list[Any]) -> bool:
        """Whether the same arrays have gradients before the call, and numbers that Python looked at are the same."""
        return all((x.grad is not None) == had for x, had in self._had.values()) and (
            self._guard is None or self._guard(leaves)
        )

    def plan_for(self, leaves: list[Any], sizes: Sequence[int]) -> Traced:
        """A plan for arrays of these sizes."""
        recorder = LaunchRecorder(_raise)
        captures = [find.look_up(leaves) for find in self._captures]
        tensors = [x for x in leaves if isinstance(x, Tensor)]
        elsewhere = {_core.geometry(x)[0] for x in captures}
        if elsewhere & {_core.geometry(x)[0] for x in tensors}:
            raise SharedMemory(
                f"{self.name}: {self.reason}, an argument shares memory with an array found elsewhere"
            )
        for x in sorted([*tensors, *captures], key=lambda x: -x.nbytes):
            recorder.met(x, _core.geometry(x))
        first = {id(v): k for k, v in reversed(list(enumerate(self._values))) if isinstance(v, Value)}
        inputs = [_content(recorder, leaves[first[id(v)]]) for v in self._inputs.values()]
        inputs += [_content(recorder, x) for x in captures]
        numbers = [self._numbers.find(origin) for origin in self._origins]
        inputs += [
            recorder.number(find.look_up(leaves), k) for k, find in zip(self._origins, numbers, strict=True)
        ]
        try:
            values = [v for v in instantiate(self.graph, inputs, axes=sizes) if v is not None]
        except NeedsSizes:
            raise CannotRecord(
                self.name,
                f"{self.reason}: a function inside cond, while_loop or foreach has arrays of such sizes",
            ) from None
        contents = values[self._visible :]
        targets = [*(captures[k] for k in self._written_captures), *(leaves[k] for k in self._changed)]
        recorder.random = contents[len(targets) :]
        for target, content in zip(targets, contents, strict=False):
            recorder.store(Geometry(*_core.geometry(target)), content)
        written_sources = list(recorder.written_sources())
        graph, sources, origins = recorder.graph(values[: self._visible], written_sources)
        strides = [strides_of(s) for s in sources]
        plan = compile_graph(graph, self.name, strides, self._visible)
        finds: dict[int, Find] = {id(x): find for x, find in zip(captures, self._captures, strict=True)}
        finds |= {
            id(x): _core.Find.leaf(k) for k, x in reversed([*enumerate(leaves)]) if isinstance(x, Tensor)
        }
        spec = replay_spec(
            plan,
            arrays=[finds[id(s.tensor)].with_window(s.window) for s in sources],
            numbers=[self._numbers.find(origin) for origin in origins],
            results=self._results,
            structure=self.structure,
            environment=() if self.lasting_change else self.environment.slots,
            is_doubted=self.is_doubted,
            states=() if self.lasting_change else self._states,
            gradients=[(_core.Find.object(x), had) for x, had in self._had.values()],
            guard=self._guard,
            effects=self._effects,
            elsewhere=elsewhere if written_sources else (),
            captured_tensors=tensors_around(self.environment, self._states),
        )
        program = Traced(graph, plan, spec, self._key_objects)
        self.plans.append(program)
        self._size_count += 1
        return program

    @property
    def runs_before(self) -> int:
        """What the runs of a plan are counted from: of a doubted one its first call, which made it, is not one."""
        return -1 if self.is_doubted else 0

    @property
    def first_runs(self) -> int:
        """The runs by the calls that made the plans, of those that are counted."""
        return 0 if self.is_doubted else len(self.plans)

    @property
    def is_checked_for_new_sizes(self) -> bool:
        """Whether the graph is doubted, and recorded again before it is used for more sizes."""
        return self.is_doubted and is_checked(self._size_count + 1)

    def recording(self, leaves: list[Any]) -> Recording:
        """What is compared with another graph of the same function; leaves: of a call that both are for."""
        numbers = [self._numbers.find(origin).look_up(leaves) for origin in self._origins]
        return Recording(self.graph, self._captures, self._results, numbers)

    def surplus(self) -> Iterator[Traced]:
        """Plans to be dropped, the oldest."""
        while len(self.plans) > SIZES:
            yield self.plans.pop(0)


class _WholeFunction(Capture):
    """Writes down a function with all that it does to arrays of its environment.

    cotangents: what became the grad of which array, by the array's id; had: whether arrays whose grad matters had one.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name)
        self.reason = reason
        self.cotangents: dict[int, tuple[Tensor, Any]] = {}
        self.had: dict[int, tuple[Tensor, bool]] = {}
        self._owners: dict[int, tuple[Tensor, Any]] = {}  # of gradients from before, by id, with the gradient

    def number(self, x: Any) -> Any:
        if x.owner is None:
            return x.value
        return self.float_input(x.value, x.origin)

    def find_of(self, x: Tensor) -> Find:
        """Where calls find an array of the environment: if it is the grad of another one, there."""
        if id(x) not in self._owners:
            return _core.Find.object(x)
        owner, _ = self._owners[id(x)]
        return _core.Find.python(lambda _: owner.grad)

    def is_local(self, x: Tensor) -> bool:
        """Whether the function made it."""
        return self._is_new(x)

    def gradient_of(self, x: Any, found: Any) -> Any:
        self._note_gradient(x, found)
        return self.cotangents[id(x)][1] if id(x) in self.cotangents else found

    def _note_gradient(self, x: Any, gradient: Any) -> None:
        if id(x) not in self.had:
            self.had[id(x)] = (x, gradient is not None)
            if gradient is not None:
                self._owners[id(gradient)] = (x, gradient)

    def set_gradient(self, x: Any, dx: Any) -> None:
        self._note_gradient(x, _core.gradient(x))
        self.cotangents[id(x)] = (x, dx)

    draw = Recorder.draw  # as a whole program, not as a body that runs again

    def refuse(self, fact: str) -> NoReturn:
        raise CannotRecord(self.name, f"{self.reason}, {fact}")


class _EffectGuard(LaunchRecorder):
    """Refuses effects, which would happen only once, while a function runs on Values."""

    defers = True  # it is called before anything is done

    def __init__(self, reason: str, floats: TracedFloats) -> None:
        super().__init__(_raise)
        self.reason, self.floats = reason, floats

    def _refuse(self, *_: Any) -> NoReturn:
        raise CannotRecord(
            "trace",
            f"{self.reason}, something is computed, read or written at once, which would be done only once",
        )

    launched = copied = drawn = permuted = read = awaited = random_state = happens_once = _refuse  # type: ignore[assignment]

    def filled(self, to: Any, number: Any) -> bool:
        if not self._is_new(Geometry(*to)):
            self._refuse()
        value, origin = number
        if origin:  # what is made of it here is made once
            self.floats.guards.append((self.floats.computes[origin], value))
        return False

    def counted(self, to: Any, start: Any, step: Any) -> bool:
        return self.filled(to, start)

    def met(self, tensor: Any, geometry: Any) -> None:
        """Arrays of enclosing scopes are found by the capture."""


def _raise(problem: CannotRecord) -> None:
    raise CannotRecord("trace", problem.fact, problem.where)


def _is_array(x: Any) -> bool:
    """Whether a result is an array."""
    return isinstance(x, Value | Tensor)


def _content(recorder: LaunchRecorder, x: Tensor) -> Value:
    value = recorder.value(Geometry(*_core.geometry(x)))
    assert value is not None
    return value


def _line_of(problem: BaseException) -> str:
    """The user's line in which an exception came up."""
    line, frame = "?", problem.__traceback__
    while frame is not None:
        code = frame.tb_frame.f_code
        if is_users(code.co_filename):
            line = f"{code.co_filename}:{frame.tb_lineno}"
        frame = frame.tb_next
    return line
