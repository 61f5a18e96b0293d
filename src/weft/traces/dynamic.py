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

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from numpy.lib.array_utils import byte_bounds

from weft import _core
from weft.arrays.tensor import Tensor
from weft.arrays.traced_float import TracedFloat, TracedFloats
from weft.base.errors import GraphError, ShapeError
from weft.base.structure import Structure, flatten
from weft.base.users_line import is_users
from weft.graph.capture import ProgramCapture
from weft.graph.functionalization import Geometry
from weft.graph.graph import Graph
from weft.graph.recording import CannotRecord
from weft.graph.subgraph import definition_slots
from weft.ops import registry
from weft.ops.node import Tracer, Value, value_of
from weft.ops.sizes import NeedsSizes, Size, SizeGuards, axis_size
from weft.ops.types import TensorType
from weft.recording.captured_environment import captured_environment
from weft.recording.dependence import all_within, objects_in
from weft.recording.doubts import Recording, is_checked
from weft.recording.element_guards import ElementGuards
from weft.recording.launch_recorder import LaunchRecorder
from weft.recording.recorded_function import RecordedFunction, is_array, materialized
from weft.traces.sized import Signature, SizedProgram, raise_recorded, size_of
from weft.traces.traced import Described, NumberSources, Traced, state_check, tensors_around

if TYPE_CHECKING:
    from weft._core import Find, ReplaySpec

__all__ = ["DynamicAxes", "DynamicTraced"]

SIZES = 64  # plans of one graph; the oldest are dropped


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


class DynamicTraced(SizedProgram):
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
        self.example = [Described(x) if isinstance(x, Tensor) else x for x in leaves], structure  # for export
        self._key_objects = [leaf for leaf in leaves if not isinstance(leaf, Tensor)]
        floats = TracedFloats([leaf for leaf in leaves if type(leaf) is float])
        self._numbers = NumberSources(floats, leaves)
        recorder = _EffectGuard(reason, floats, [each[0] for each in self.environment.arrays])
        for dependency in all_within([*leaves, *self.environment.values]):
            recorder.depends_on(dependency)
        capture = _WholeFunction(name, reason, recorder)
        self.size_guards = SizeGuards(signature.sizes)
        with recorder, self.size_guards, self._explained():
            recorded = RecordedFunction(
                capture, function, leaves, structure, signature.types, floats=floats, same=signature.same
            )
        self.lasting_change = self._lasting_change(recorder, capture)
        self.values, self.inputs, self.structure = recorded.values, recorded.inputs, recorded.structure
        self.changed = [self.values.index(self.inputs[k]) for k in recorded.written_inputs]
        self._had = capture.had
        self.captures = [capture.find_of(x) for x in capture.captures]
        self._constants = {k for k, x in enumerate(capture.captures) if capture.is_local(x)}
        outputs: list[Value] = []
        arrays = iter(recorded.outputs)
        self._result_sizes = {k: x for k, x in enumerate(recorded.leaves) if isinstance(x, Size)}
        self.results = [
            self._find(capture, x, next(arrays) if is_array(x) else None, outputs) for x in recorded.leaves
        ]
        self._effects = [
            (
                _core.Find.object(x),
                self._find(capture, dx, capture.lift(dx) if is_array(dx) else None, outputs),
            )
            for x, dx in capture.cotangents.values()
        ]
        self.visible, self.written_captures = len(outputs), recorded.written_captures
        outputs += recorded.contents
        self.graph = Graph([*self.inputs, *recorded.extra], [*outputs, *capture.unused_draws(outputs)])
        self.environment.slots += definition_slots(self.graph, lookups)
        self.numbers = [(origin, self._numbers.find(origin)) for _, origin in capture.floats]
        self._set_guards(recorder, capture)

    def _set_guards(self, recorder: _EffectGuard, capture: _WholeFunction) -> None:
        """What has to hold for a call, but for sizes and variables of Python."""
        self._elements = recorder.elements
        if not self._elements.hold():
            capture.refuse("elements that it reads are written, which would be done only once")
        numbers_hold, elements_hold = self._numbers.guard(), self._elements.hold
        self._guard = (
            (lambda leaves: (numbers_hold is None or numbers_hold(leaves)) and elements_hold())
            if self._elements
            else numbers_hold
        )
        self._states = [
            (dependency, dependency.__weft_state__()) for dependency, _ in recorder.dependences.values()
        ]
        self.watched = state_check(self._states)
        self.is_doubted = bool(self.environment.doubts) and not self.lasting_change

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors of the function say that it was recorded on symbols, and with which sizes."""
        try:
            yield
        except NeedsSizes as problem:
            raise CannotRecord(
                self.name,
                f"{self.reason}, the number behind a size was needed: {problem}",
                _line_of(problem),
            ) from None
        except Exception as problem:
            numbers = ", ".join(f"{axis_size(k)} = {n}" for k, n in enumerate(self.signature.sizes))
            with_numbers = f", {numbers}" if numbers else ""
            problem.add_note(f"while {self.name} was written down on symbols, {self.reason}{with_numbers}")
            raise

    def _lasting_change(self, recorder: _EffectGuard, capture: _WholeFunction) -> str:
        """What the call has changed that later calls will find; "": nothing. See Trace.

        Raises CannotRecord if objects outside keep Values, which mean nothing after the call.
        """
        changed_objects = recorder.changed()
        for changed_object in changed_objects:
            if any(isinstance(x, Tracer) for x in objects_in(changed_object.__weft_state__())):
                capture.refuse(f"an array is kept in an attribute of a {type(changed_object).__name__}")
        if changed_objects:
            names = ", ".join(sorted({type(changed_object).__name__ for changed_object in changed_objects}))
            return f"each call changes attributes, on which it depends, of {names}"
        if self.environment.changed_by_itself():
            return "each call changes variables or attributes, on which it depends"
        return ""

    def __str__(self) -> str:
        return str(self.graph)

    def memory_report(self) -> Any:
        """Bytes by kind of the memory plan for the sizes that were met last."""
        return self.plans[-1].memory_report()

    def _find(self, capture: _WholeFunction, x: Any, value: Value | None, outputs: list[Value]) -> Find:
        """Where a call finds what was the result x; value: it in the graph."""
        if isinstance(x, Size):
            return size_of(x, self.signature)
        if isinstance(x, TracedFloat):
            return self._numbers.result(x)
        if isinstance(x, Iterator):
            raise CannotRecord(
                self.name,
                f"{self.reason}, a result is an iterator, a {type(x).__name__}, that is used up once",
            )
        if value is None:
            return _core.Find.object(x)
        if type(x) is Tensor and not capture.is_local(x):
            return capture.find_of(x)
        index = next((k for k, v in enumerate(self.values) if v is value_of(x) or v is value), None)
        if index is not None:
            return _core.Find.leaf(index)
        index = next((k for k, v in enumerate(outputs) if v is value), None)
        if index is not None:
            return _core.Find.output(index)
        outputs.append(materialized(value))  # of nothing or of numbers: each call makes one
        return _core.Find.output(len(outputs) - 1)

    def conditions_hold(self, leaves: list[Any]) -> bool:
        """Whether the same arrays have gradients before the call, and numbers that Python looked at are the same."""
        return (
            not self.environment.changed()
            and all((x.grad is not None) == had for x, had in self._had.values())
            and (self._guard is None or self._guard(leaves))
            and (self.watched is None or self.watched())
        )

    def conditions(self) -> dict[str, Any]:
        """What of a program's specification is about objects of Python; see replay_spec."""
        return {
            "environment": () if self.lasting_change else self.environment.slots,
            "is_doubted": self.is_doubted,
            "states": () if self.lasting_change else self._states,
            "gradients": [(_core.Find.object(x), had) for x, had in self._had.values()],
            "guard": self._guard,
            "effects": self._effects,
            "captured_tensors": tensors_around(self.environment, self._states),
        }

    def new_program(self, graph: Graph, plan: Any, spec: ReplaySpec, leaves: list[Any]) -> Traced:
        program = Traced(graph, plan, spec, self._key_objects)
        program.example = [Described(x) if isinstance(x, Tensor) else x for x in leaves], self.example[1]
        self.plans.append(program)
        self._size_count += 1
        return program

    def exported_results(self) -> list[Any]:
        """For each leaf of the result where it is found, or the size that it is.

        Raises GraphError if the program depends on Python objects.
        """
        if self._guard or self._effects or self._had:
            raise GraphError(
                f"export: {self.name} depends on Python objects: numbers that it looked at, or gradients"
            )
        return [self._result_sizes.get(k, find) for k, find in enumerate(self.results)]

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
        numbers = [find.look_up(leaves) for _, find in self.numbers]
        return Recording(self.graph, self.captures, self.results, numbers, self._constants)

    def surplus(self) -> Iterator[Traced]:
        """Plans to be dropped, the oldest."""
        while len(self.plans) > SIZES:
            yield self.plans.pop(0)


class _WholeFunction(ProgramCapture):
    """Writes down a function with all that it does to arrays of its environment.

    cotangents: what became the grad of which array, by the array's id; had: whether arrays whose grad matters had one.
    """

    def __init__(self, name: str, reason: str, effects: _EffectGuard) -> None:
        super().__init__(name)
        self.reason, self._effects = reason, effects
        self.cotangents: dict[int, tuple[Tensor, Any]] = {}
        self.had: dict[int, tuple[Tensor, bool]] = {}
        self._owners: dict[int, tuple[Tensor, Any]] = {}  # of gradients from before, by id, with the gradient

    def find_of(self, x: Tensor) -> Find:
        """Where calls find an array of the environment: if it is the grad of another one, there."""
        if id(x) not in self._owners:
            return _core.Find.object(x)
        owner, _ = self._owners[id(x)]
        return _core.Find.python(lambda _: owner.grad)

    def is_local(self, x: Tensor) -> bool:
        """Whether the function made it."""
        return self._is_new(x)

    def read_elements(self, compute: Callable[[], Any], operands: Sequence[Any]) -> Any:
        """What is computed of arrays outside is computed again at each call, and compared."""
        for array in operands:
            self.check_read(_core.geometry(array)[0])
        with self._effects.unobserved():
            if not all(map(self._is_new, operands)):
                self._effects.elements.add(compute)
            return compute()

    def check_read(self, serial: int) -> None:
        super().check_read(serial)
        if any(_core.geometry(gradient)[0] == serial for _, gradient in self._owners.values()):
            self.refuse("elements are read of a grad, which may be another array at the next call")

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

    def refuse(self, fact: str) -> NoReturn:
        raise CannotRecord(self.name, f"{self.reason}, {fact}")


class _EffectGuard(LaunchRecorder):
    """Refuses effects, which would happen only once, while a function runs on Values.

    elements: what it reads of arrays outside, which is guarded. host_arrays: NumPy arrays that it may copy.
    """

    defers = True  # it is called before anything is done

    def __init__(self, reason: str, floats: TracedFloats, host_arrays: Sequence[Any]) -> None:
        super().__init__(raise_recorded)
        self.reason, self.floats = reason, floats
        self.elements = ElementGuards()
        self._host_arrays = [*map(byte_bounds, host_arrays)]

    def _refuse(self, *_: Any) -> NoReturn:
        raise CannotRecord(
            "trace",
            f"{self.reason}, something is computed or written at once, which would be done only once",
        )

    launched = drawn = permuted = awaited = random_state = happens_once = _refuse  # type: ignore[assignment]

    def read(self, geometry: Any) -> None:
        x = Geometry(*geometry)
        if x.size and (not self._is_new(x) or self._is_of_host(x)):
            self.elements.add(x.memory.tensor)

    def copied(self, to: Any, source: Any) -> bool:
        if not self._is_new(Geometry(*to)):
            self._refuse()
        self.read(source)
        return False

    def _is_of_host(self, x: Geometry) -> bool:
        """Whether it is memory of a NumPy array outside."""
        low, high = x.extent()
        return any(first <= low and high <= end for first, end in self._host_arrays)

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


def _line_of(problem: BaseException) -> str:
    """The user's line in which an exception came up."""
    line, frame = "?", problem.__traceback__
    while frame is not None:
        code = frame.tb_frame.f_code
        if is_users(code.co_filename):
            line = f"{code.co_filename}:{frame.tb_lineno}"
        frame = frame.tb_next
    return line
