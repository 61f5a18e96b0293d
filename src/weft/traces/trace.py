"""trace: run once as Python, then as one program.

>>> import weft as wf
>>> @wf.trace
... def f(x, y):
...     return wf.exp(x) * y + 1
>>> x, y = wf.tensor([0., 1.]), wf.tensor([2., 0.])
>>> f(x, y), f(x, y), len(f.programs)
(tensor([3., 1.], dtype=float32, device=cpu:0), tensor([3., 1.], dtype=float32, device=cpu:0), 1)

The first call with arguments of some kind runs the function and writes down what it does to arrays; later calls run
that as a program, without Python. See docs/design/graphs.md for what an argument's kind is.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import os
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from weft import _core
from weft._core import NoProgram
from weft.arrays.creation import asarray, host_of
from weft.arrays.foreign import without_foreign
from weft.arrays.tensor import Tensor, element_strides
from weft.arrays.traced_float import TracedFloat, TracedFloats
from weft.base import events, process
from weft.base.device import as_device, scoped_device
from weft.base.errors import DTypeError, GraphError
from weft.base.structure import flatten
from weft.base.users_line import users_line
from weft.executor.budget import checked_budget
from weft.gradients.gradient import is_recorded
from weft.gradients.transformation import trace_keys
from weft.graph.recording import CannotRecord
from weft.ops.shapes import is_dense
from weft.recording.captured_environment import CapturedEnvironment, captured_environment
from weft.recording.dependence import all_within
from weft.recording.doubts import difference
from weft.recording.launch_recorder import LaunchRecorder
from weft.traces.attempt import Attempt, Changing, Incomplete, MayFindMore, RecordedRun
from weft.traces.containers import changed_containers
from weft.traces.dynamic import DynamicAxes, DynamicTraced
from weft.traces.export import export
from weft.traces.lazy import LazyBlock, LazyTrace
from weft.traces.retracing import ENOUGH, Retracing
from weft.traces.sized import SharedMemoryError, Signature
from weft.traces.traced import Traced, overlapping

__all__ = ["Trace", "TraceWarning", "trace"]

P = ParamSpec("P")  # of the traced function
Q = ParamSpec("Q")  # of a method, without self
R = TypeVar("R")

ATTEMPTS = 3  # to write down a function that leaves arrays behind
UNSTEADY = 16  # calls in a row that do something new between their breaks
WATCHED = 3  # calls whose breaks are remembered


class TraceWarning(UserWarning):
    """A traced function is not one program, or is traced again and again."""


class Trace(Generic[P, R]):
    """A traced function; see trace."""

    def __init__(
        self,
        function: Callable[P, R],
        strict: bool,
        lazy: bool,
        max_entries: int,
        dynamic: DynamicAxes | None = None,
        memory_budget: int | float | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.name: str = getattr(function, "__name__", type(function).__name__)
        self.function, self.strict, self.max_entries = function, strict, max_entries
        self._dynamic, self.memory_budget = dynamic, memory_budget
        self.lazy = lazy or memory_budget is not None  # else the first call would keep everything
        self._default_replays = _core.Replays()  # of calls outside of any device and transformation
        self._replays_by_context: dict[Any, Any] = {
            (): self._default_replays
        }  # Replays by what calls are inside of
        self._programs: list[Any] = []  # Traced, or DynamicTraced
        self._program_count = self._attempts = 0
        self._is_in_doubt = False  # whether the last call has made arrays that later ones may read
        self._is_python = False  # whether graphs for all sizes turned out to be wrong
        self._breaks: dict[str, None] = {}
        self._unsteady = 0  # calls in a row that made programs of segments
        self._watched = WATCHED
        self._retracing = Retracing(function, None if dynamic is None else dynamic.axes)
        self._warned: dict[int, Any] = {}  # NumPy arrays that a warning was given of
        self._lock = process.lock_of(self)

    @property
    def programs(self) -> list[Any]:
        """The programs made until now, the newest last."""
        return list(self._programs)

    @property
    def breaks(self) -> list[str]:
        """The graph breaks that the first calls showed, as ``file:line``: places where a program ends.

        How often programs of what is between them were made and run is counted for all functions together, by
        ``weft._core.log_counters()``.
        """
        return list(self._breaks)

    def memory_report(self) -> list[Any]:
        """For each program, the bytes of its memory plan by kind."""
        return [entry.memory_report() for entry in self.programs]

    def export(
        self,
        path: str | os.PathLike[str],
        target: str = "graph",
        sizes: Sequence[Mapping[str, Sequence[int]]] | None = None,
    ) -> None:
        """Write the programs made until now, and the arrays they capture, to a file for weft.load_program.

        One with dynamic axes is loaded with them: it makes a plan for each size. target="native" writes a folder that
        runs without Python (docs/c.md): machine code, plans and weights, for the shapes of the calls until now.
        sizes: of dynamic axes, those that a native folder is for instead: for each program {argument: shape}; arguments
        that are not named have the shapes of the first call.

        Raises GraphError if there is none, or for one that depends on Python objects other than texts and numbers;
        ValueError for another target, and for sizes where there are no dynamic axes; NotImplementedError for what
        native programs cannot do.
        """
        if target not in ("graph", "native"):
            raise ValueError(f"export: target is one of 'graph', 'native'; got {target!r}")
        if sizes is not None and (target != "native" or self._dynamic is None or not self._programs):
            raise ValueError(
                f"export: {self.name}: sizes are for target='native' and a trace with dynamic axes that has been"
                " called; one without them is exported for the shapes of its calls"
            )
        if target == "native":
            from weft.traces.native_export import export_native  # not before it is needed: LLVM and JSON

            export_native(path, self.name, self.function, self._native_programs(sizes))
        else:
            export(path, self.name, self._programs)

    def _native_programs(self, sizes: Sequence[Mapping[str, Sequence[int]]] | None) -> list[Traced]:
        """Programs of exact sizes: for these, else all that there are."""
        from weft.traces.native_export import arguments_of, has_shapes

        def existing() -> list[Traced]:
            return [plan for each in self._programs for plan in getattr(each, "plans", [each])]

        programs = existing() if sizes is None else []
        for shapes in sizes or ():
            args, kwargs = arguments_of(self.function, self._programs[0].example, shapes)
            if not any(has_shapes(each, args, kwargs) for each in existing()):
                assert self._dynamic is not None
                with self._lock:
                    self._plan_for_sizes(self._dynamic, args, kwargs, False)
            programs += [each for each in existing() if has_shapes(each, args, kwargs)][:1]
        expected = 1 if sizes is None else max(len(sizes), 1)
        if len(programs) < expected:
            raise GraphError(
                f"export: {self.name} has {len(programs)} of {expected} programs: it was not called, runs as Python,"
                " or no sizes are given"
            )
        return programs

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Trace[P, R]: ...
    @overload
    def __get__(self: Trace[Concatenate[Any, Q], R], instance: Any, owner: Any = None) -> Callable[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"trace({self.function!r})"

    def _repr_html_(self) -> str:
        """What notebooks show: each program with its graph and its memory."""
        from weft.traces.html import trace_html

        return trace_html(repr(self), self._programs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Trace[..., Any]:
        """A trace of the copied function, which has no programs yet."""
        return _fresh_trace(*self._options(copy.deepcopy(self.function, memo)))

    def __reduce__(self) -> Any:
        """By its name where a decorator made it, else by its function; programs are not pickled."""
        found: Any = sys.modules.get(getattr(self.function, "__module__", ""))
        for name in (qualified_name := getattr(self.function, "__qualname__", "")).split("."):
            found = getattr(found, name, None)
        return qualified_name if found is self else (_fresh_trace, self._options(self.function))

    def _options(self, function: Callable[..., Any]) -> tuple[Any, ...]:
        axes = None if self._dynamic is None else self._dynamic.axes
        return function, self.strict, self.lazy, self.max_entries, axes, self.memory_budget

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        is_default = _core.layers() is None and scoped_device() is None  # spares the next call of Python
        replays = self._default_replays if is_default else self._replays()
        answer = replays.run(args, kwargs, self.function)
        if type(answer) is NoProgram:
            return self._without_program(answer, replays, args, kwargs)
        return answer

    def _without_program(
        self, answer: Any, replays: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call that no program has run. answer: the NoProgram that says why."""
        if answer.reason == "convert":
            return self(*without_foreign(self.name, args), **without_foreign(self.name, kwargs))
        is_part = _core.get_recorder() is not None or _core.capture() is not None  # of something greater
        if answer.reason in ("record", "again") and not is_part:
            with self._lock:
                answer = self._recorded(answer, replays, args, kwargs)
            if type(answer) is not NoProgram:
                return answer
        match answer.reason:
            case "dense":
                return self._with_history(args, kwargs)
            case "python" if not is_part:
                return self._in_segments(args, kwargs)
            case _:
                return self.function(*args, **kwargs)

    def _recorded(
        self, answer: NoProgram, replays: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Record a call, or run it by what another thread has recorded meanwhile: its result, or a NoProgram."""
        if answer.reason == "record":
            answer = replays.run(args, kwargs, self.function)
            if type(answer) is not NoProgram or answer.reason not in ("record", "again"):
                return answer
        if self._retracing.is_enough:
            return NoProgram("direct")
        if self._dynamic is None:
            with _exclusive(replays):
                return self._record(args, kwargs, answer.doubted)
        try:
            once = self._plan_for_sizes(self._dynamic, args, kwargs, answer.reason == "again")
        except SharedMemoryError:
            return NoProgram("direct")  # a program cannot distinguish the two arrays
        answer = replays.run(args, kwargs, self.function)
        if once is not None:
            self._drop(once)
            if self._attempts == ATTEMPTS:
                self._keep(args, kwargs, None)
        is_unknown = type(answer) is NoProgram and answer.reason == "record"
        return NoProgram("python") if is_unknown else answer

    def _with_history(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call with recorded arrays that have gaps or repeated elements, such as slices, or share memory.

        A program reads gaps as a window of memory, which has no history, and memory that arrays share once, with the
        history of one of them: so it gets dense copies, which have their own. Where the function finds such arrays by
        itself, it runs operation by operation.
        """
        leaves, structure = flatten((args, kwargs))
        tensors = {id(x): x for x in leaves if isinstance(x, Tensor)}
        shared = {id(x) for x in overlapping(tensors.values())}
        copies = {
            key: x.copy()
            for key, x in tensors.items()
            if key in shared or not is_dense(x.shape, element_strides(x))
        }
        if not copies:
            return self.function(*args, **kwargs)
        dense = [copies.get(id(x), x) for x in leaves]
        args, kwargs = structure.build(dense)
        return self(*args, **kwargs)

    def _in_segments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function's Python; what is between the lines that cannot be recorded runs as programs.

        Where these save less than they cost, later calls with arguments of this kind run operation by operation.
        """
        if self._unsteady >= UNSTEADY:
            return self.function(*args, **kwargs)
        segments = LazyBlock(watched=self._watched > 0)
        try:
            with segments:
                result = self.function(*args, **kwargs)
        finally:
            if segments.new_programs or self._unsteady or self._watched:
                self._note(segments)
        if not self._watched and not segments.new_programs and not segments.pays_off:
            self._replays().call_directly(args, kwargs)
        return result

    def _note(self, segments: LazyBlock) -> None:
        """Remember what a call in segments made. One that makes new programs each time is slower than none."""
        with self._lock:
            self._watched = max(self._watched - 1, 0)
            self._breaks.update(dict.fromkeys(segments.breaks))
            self._unsteady = self._unsteady + 1 if segments.new_programs else 0
            gives_up = self._unsteady == UNSTEADY
        if gives_up:
            _warn(
                f"{self.name}: between the places where it looks at values, its last {UNSTEADY} calls all did "
                "something new; from now on it runs operation by operation",
                users_line(),
            )

    def _replays(self) -> Any:
        """Those of programs that were recorded under the device and the transformations that are active now."""
        layers = trace_keys() if _core.layers() is not None else ()
        if (device := scoped_device()) is not None:
            layers = (device, *layers)
        replays = self._replays_by_context.get(layers)
        if replays is None:
            replays = self._replays_by_context[layers] = _core.Replays()
            # Each under another one: nothing would ever be found again.
            if len(self._replays_by_context) > self.max_entries + 1:
                del self._replays_by_context[next(key for key in self._replays_by_context if key)]
        return replays

    @events.noted("trace", lambda self, *_: self.name)
    def _record(self, args: tuple[Any, ...], kwargs: dict[str, Any], former: Traced | None = None) -> Any:
        """Run the function, and write it down. former: the program of such a call, which is doubted."""
        leaves, structure = flatten((args, kwargs))
        floats = TracedFloats([leaf for leaf in leaves if type(leaf) is float])
        numbers = iter(floats.numbers)
        inner, keywords = structure.build([next(numbers) if type(x) is float else x for x in leaves])
        environment = captured_environment(self.function, args, kwargs)
        recorder = self._recorder()
        try:
            with recorder:
                self._meet(recorder, leaves, environment)
                result = self.function(*inner, **keywords)
                is_changed = environment.changed_by_itself()
                containers = changed_containers((inner, keywords), (args, kwargs), structure)
                run = RecordedRun(
                    recorder, leaves, structure, floats, environment, result, is_changed, containers
                )
                attempt = self._attempt(run, former)
                if isinstance(attempt, CannotRecord):
                    self._give_up(attempt)
                if isinstance(attempt, Traced):
                    first, attempt.first = attempt.first, None
                    if isinstance(recorder, LazyTrace) and recorder.is_complete:
                        with recorder.unobserved():
                            recorder.run(attempt.plan, *first)
        except Exception as problem:
            _explain_floats(problem)
            raise
        finally:
            floats.close()
        self._conclude(attempt, args, kwargs, 0 if former is None else self._forget(former))
        result_leaves, shape = flatten(result)
        return shape.build([x.value if isinstance(x, TracedFloat) else x for x in result_leaves])

    def _recorder(self) -> LaunchRecorder:
        # Arrays that something keeps until they are computed, such as a request to other processes, are not left behind
        # by a call that computes as it goes.
        is_deferred = self.lazy and (self._attempts == 0 or self.memory_budget is not None)
        return LazyTrace(self._give_up, is_recorded()) if is_deferred else LaunchRecorder(self._give_up)

    def _meet(self, recorder: LaunchRecorder, leaves: list[Any], environment: CapturedEnvironment) -> None:
        """Tell a recorder what the function is given and reaches."""
        with recorder.unobserved():
            # Large ones first, so that views of them are found in them.
            tensors = [x for x in (*leaves, *environment.values) if isinstance(x, Tensor)]
            for x in sorted(tensors, key=lambda x: -x.nbytes):
                try:
                    recorder.met(x, _core.geometry(x))
                except CannotRecord:  # a recorder that defers has said so, and goes on
                    if self.strict:
                        raise
            for dependency in all_within([*leaves, *environment.values]):
                recorder.depends_on(dependency)
            recorder.captured = self._captured_arrays(environment)

    def _attempt(self, run: RecordedRun, former: Traced | None) -> Attempt:
        """What a run of the function came to. Nothing of the trace changes by that: see _conclude."""
        recorder = run.recorder
        if not recorder.is_complete:
            return Incomplete()
        try:
            with recorder.unobserved():
                program = run.program(self.name, self.memory_budget, former)
        except CannotRecord as problem:
            return problem
        if run.changes_containers:
            return CannotRecord(
                "program", "a list or a dict among the arguments is changed by each call", users_line()
            )
        if former is not None:
            with recorder.unobserved():
                fact = difference(former.recording(run.leaves), program.recording(run.leaves))
            if fact:
                return CannotRecord("program", *fact)
        if not self._is_in_doubt and run.has_history and run.keeps_arrays(program, by_tensors=True):
            return MayFindMore()
        if change := run.lasting_change(program):
            return CannotRecord("program", change) if self._attempts + 1 >= ATTEMPTS else Changing()
        return program

    def _conclude(
        self, attempt: Attempt, args: tuple[Any, ...], kwargs: dict[str, Any], former_runs: int
    ) -> None:
        """Keep what an attempt to record a call gave. former_runs: of the program whose place it takes."""
        match attempt:
            case MayFindMore():
                self._is_in_doubt = True
            case Changing():
                self._is_in_doubt = False
                self._attempts += 1
            case Traced():
                self._is_in_doubt = False
                self._keep(args, kwargs, attempt, former_runs)
            case _:
                self._keep(args, kwargs, None)

    def _plan_for_sizes(
        self, dynamic: DynamicAxes, args: tuple[Any, ...], kwargs: dict[str, Any], is_checked: bool
    ) -> Traced | None:
        """Make a plan for these sizes, of the graph for all sizes; give it if it is for this call alone.

        is_checked: there is a plan, which is doubted: the function is recorded again, and compared.
        """
        if self._is_python:
            self._keep(args, kwargs, None)
            return None
        leaves, structure = flatten((args, kwargs))
        signature = Signature(leaves, structure, dynamic.of(args, kwargs), trace_keys())
        entry = next((each for each in self._programs if each.holds(signature, leaves)), None)
        if entry is not None and (is_checked or entry.is_checked_for_new_sizes):
            again = DynamicTraced(self.function, self.name, leaves, structure, signature, dynamic.reason)
            if fact := difference(entry.recording(leaves), again.recording(leaves)):
                self._stay_python(args, kwargs, CannotRecord("program", *fact))
                return None
            if is_checked:
                return None
        if entry is None:
            entry = DynamicTraced(self.function, self.name, leaves, structure, signature, dynamic.reason)
            self._captured_arrays(entry.environment)  # which warns
        plan = entry.plan_for(leaves, signature.sizes)
        self._replays().add(args, kwargs, plan, plan.spec, entry.runs_before)
        if entry.lasting_change:  # it is for this call alone, whose effects on Python's objects are there
            self._attempts += 1
            if self._attempts == ATTEMPTS:
                self._give_up(CannotRecord("program", entry.lasting_change))
            return plan
        for old in entry.surplus():
            self._drop(old)
        if entry not in self._programs:
            self._add(entry, args, kwargs)
        return None

    def _stay_python(self, args: tuple[Any, ...], kwargs: dict[str, Any], problem: CannotRecord) -> None:
        """Drop all programs: no graph is right for all calls, and so the function runs as Python."""
        self._give_up(problem)
        while self._programs:
            for plan in self._programs.pop().plans:
                self._drop(plan)
        self._is_python = True
        self._keep(args, kwargs, None)

    def _captured_arrays(self, environment: CapturedEnvironment) -> list[Tensor]:
        """NumPy arrays of enclosing scopes, as Tensors over their memory; a warning for each that can change."""
        tensors = []
        for array, name, file, line in {id(each[0]): each for each in environment.arrays}.values():
            try:
                tensors.append(asarray(array, device=host_of(as_device(None))))
            except (DTypeError, TypeError, ValueError, BufferError):
                continue
            if array.flags.writeable and id(array) not in self._warned:
                self._warned[id(array)] = array
                _warn(
                    f"{self.name}: {name} is a NumPy array that is no argument: what weft computes with it uses its "
                    "elements of each call, but what NumPy and Python compute with it they compute once\n"
                    f"  at {file}:{line}\n"
                    "  make it an argument or a Tensor, or set its flags.writeable to False",
                    f"{file}:{line}",
                )
        return tensors

    def _keep(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], program: Traced | None, runs: int = 0
    ) -> None:
        """Use a program for such calls; None: none fits them. runs: of an equal one whose place it takes."""
        self._replays().add(args, kwargs, program, program.spec if program else None, runs)
        if program is not None and runs:
            self._programs.append(program)
        elif program is not None:
            self._add(program, args, kwargs)

    def _forget(self, program: Traced) -> int:
        """Drop a program for another one of the same calls; how often it ran."""
        if program in self._programs:
            self._programs.remove(program)
        return self._drop(program)

    def _add(self, program: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep a program; the oldest may have to go."""
        self._programs.append(program)
        self._program_count += 1
        self._retracing.meet(args, kwargs, str(getattr(program, "size_guards", "")))
        if len(self._programs) <= self.max_entries:
            return
        oldest = self._programs.pop(0)
        plans = getattr(oldest, "plans", None)  # of dynamic axes
        runs = sum([self._drop(each) for each in ([oldest] if plans is None else plans)])
        first_runs = 0 if plans is None else oldest.first_runs
        if self._program_count == self.max_entries + 1:
            _warn(
                f"{self.name}: traced {self._program_count} times, because arguments keep changing in what "
                "programs depend on; from now on the oldest programs are dropped "
                f"(max_entries={self.max_entries})\n  {self._retracing.reason}",
                users_line(),
            )
        # With a budget, a program is what keeps memory within it.
        if self.memory_budget is None and self._retracing.dropped(runs > first_runs):
            _warn(
                f"{self.name}: its last {ENOUGH} programs were dropped before they ran again; from now on calls "
                f"that no program fits run as Python, operation by operation\n  {self._retracing.reason}",
                users_line(),
            )

    def _drop(self, plan: Traced) -> int:
        """Drop a program; how many calls have run it."""
        return sum([replays.drop(plan) for replays in self._replays_by_context.values()])

    def _give_up(self, problem: CannotRecord) -> None:
        error = CannotRecord(self.name, problem.fact, problem.where)
        advice = "use where, cond or while_loop, or return the array"
        if self.strict:
            raise CannotRecord(self.name, problem.fact, problem.where, advice)
        self._breaks[problem.where] = None
        hint = (
            "its Python keeps running at each call, and the operations between such places run as programs; "
            f"for a single program {advice}"
        )
        _warn(f"{error}\n  {hint}", problem.where)


def _fresh_trace(
    function: Callable[..., Any],
    strict: bool,
    lazy: bool,
    max_entries: int,
    axes: Any,
    memory_budget: int | float | None,
) -> Trace[..., Any]:
    dynamic = None if axes is None else DynamicAxes(function, axes)
    return Trace(function, strict, lazy, max_entries, dynamic, memory_budget)


def _explain_floats(problem: Exception) -> None:
    """Say what such a number is, to a library whose C code refuses it."""
    if TracedFloat.__name__ in str(problem):
        problem.add_note(
            "a float argument of a traced function is a number of type TracedFloat, so that another value needs no "
            "other program; float(s) is its value, for libraries that do not take it"
        )


@contextlib.contextmanager
def _exclusive(replays: Any) -> Iterator[None]:
    """Calls of other threads wait, as for any other call: the function's Python runs, operation by operation."""
    replays.closed = True
    try:
        yield
    finally:
        replays.closed = False


def _warn(text: str, where: str) -> None:
    events.note("warning", text, where)
    file, _, line = where.rpartition(":")
    warnings.warn_explicit(text, TraceWarning, file, int(line))


@overload
def trace(
    function: Callable[P, R],
    *,
    strict: bool = ...,
    lazy: bool = ...,
    dynamic: Any = ...,
    memory_budget: float | None = ...,
    max_entries: int = ...,
) -> Trace[P, R]: ...
@overload
def trace(
    *,
    strict: bool = ...,
    lazy: bool = ...,
    dynamic: Any = ...,
    memory_budget: float | None = ...,
    max_entries: int = ...,
) -> Callable[[Callable[P, R]], Trace[P, R]]: ...
def trace(
    function: Callable[..., Any] | None = None,
    *,
    strict: bool = False,
    lazy: bool = True,
    dynamic: Any = None,
    memory_budget: int | float | None = None,
    max_entries: int = 8,
) -> Any:
    """function, run as Python once for each kind of arguments and as a program from then on; also a decorator.

    Arguments may be nested in tuples, lists and dicts. Programs are made for their structure, for sizes, strides and
    dtypes of tensors, and for the values of everything else but floats, which may differ from call to call. Tensors
    that the function captures are read again by each call; other things outside of its arguments, and what
    the function does to them, are as they were when it was traced. It may contain backward and the steps of
    optimizers: writes to tensors and to their grad happen at each call.

    strict: raise GraphError, naming the line, if the function looks at values of arrays (float(x), x.numpy(), if x:);
    else such a function runs as Python at each call, in programs from one such line to the next (breaks), and a
    TraceWarning says so. lazy: the first call, too, is written down before anything is computed, and then runs the
    program: it takes the program's memory, and compiles nothing else. False: it computes each operation as it comes.
    max_entries: programs kept, the oldest are dropped.

    dynamic: {argument: axes}, arguments by name or place: sizes of these axes may differ from call to call. The
    function is then run once on symbols, not on arrays, so that no size is taken for granted: what has to know the
    number of one (range(n), n > 3, n % 2) raises GraphError, as does everything that would be done at once. Results are
    new arrays, or those of arguments and environment. Sizes 0 and 1, and axes that are as long as others when they
    were not before, make another graph. Each size has its plan, the latest 64 are kept.

    memory_budget: what the temporary space of a program may take: bytes as an int, or as a float the share of what it
    takes without one. Results that are cheap to compute again (pointwise operators, normalizations) are then not kept
    for gradients, those first that save the most; if that is not enough, whole segments of the program run twice, so
    that a chain of n layers needs memory for about the square root of n of them, and a step at most about 4/3 of its
    time. What is drawn is drawn again. GraphError, with the numbers, if that is not enough, either. Implies lazy, since
    a first call as Python would keep everything; not for dynamic axes yet.

    >>> import weft as wf
    >>> w = wf.tensor([1., 2.])
    >>> @wf.trace(strict=True)
    ... def step(x, lr):
    ...     w[...] = w - lr * x
    >>> for lr in (1., .5, .5):
    ...     step(wf.tensor([1., 1.]), lr)
    >>> w, len(step.programs)
    (tensor([-1.,  0.], dtype=float32, device=cpu:0), 1)
    """
    budget = checked_budget(memory_budget)
    if function is not None and not callable(function):
        hint = "\n  hint: x.diagonal().sum() is the trace of a matrix" if hasattr(function, "shape") else ""
        raise TypeError(f"trace: takes a function, got {type(function).__name__}{hint}")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"trace: {getattr(function, '__name__', 'a function')} is asynchronous: a call of it computes nothing; "
            "trace what it calls"
        )
    if max_entries < 1:
        raise ValueError(f"trace: max_entries must be at least 1, got {max_entries}")
    if dynamic is not None and budget is not None:
        raise NotImplementedError("trace: memory_budget cannot be had for dynamic axes so far")
    if function is None:
        return functools.partial(
            trace, strict=strict, lazy=lazy, dynamic=dynamic, memory_budget=budget, max_entries=max_entries
        )
    axes = None if dynamic is None else DynamicAxes(function, dynamic)
    return Trace(function, strict, lazy, max_entries, axes, budget)
