"""Lazy evaluation: operations are recorded, and run as one program when a value is read.

>>> import weft as wf
>>> with wf.lazy():
...     x = wf.ones(3)
...     y = (x * 2 + 1) * x     # nothing is computed yet
...     total = y.sum().item()  # one program
>>> total
9.0

Arrays have their memory from the start, so views and in-place writes need no care; it is not touched before the program
runs, and what is no longer referenced is not computed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft import _core
from weft.arrays.tensor import element_strides
from weft.base.users_line import users_line
from weft.engine import default_engine
from weft.executor.compile import compile_graph
from weft.graph.functionalization import Geometry, Storage, Storages
from weft.graph.graph import Graph
from weft.graph.recording import CannotRecord
from weft.ops import registry
from weft.ops.node import Value, input_value
from weft.recording.launch_recorder import LaunchRecorder, Source, is_constant, read_fact

__all__ = ["LazyBlock", "LazyTrace", "lazy"]

LAUNCHES = 10_000  # recorded after a trace has ended, before they run without being read
PLANS = 256
# Of results that need not be written, for which a segment is as quick as its operations.
GAIN_BYTES = 256 << 10


class _Deferred(LaunchRecorder):
    """Base of recorders whose program also writes the arrays that were made meanwhile and are still referenced."""

    defers = True
    _plans: dict[Any, Any] = {}  # noqa: RUF012 - by Graph.key and strides; shared, under the GIL

    def value(self, x: Geometry) -> Value | None:
        if x.serial is not None and x.size and self._find(x) is None:
            self.add_source(x.memory.tensor(), x)
        return super().value(x)

    def store(self, x: Geometry, value: Value, is_unrecorded: bool = False) -> None:
        if x.size and self._find(x) is None and not self._is_new(x):
            self.add_source(x.memory.tensor(), x)
        super().store(x, value, is_unrecorded)

    def program(self) -> tuple[Any, list[Any], list[int]] | None:
        """The plan of what was recorded, its arrays, and the origins of its numbers; None if no result is visible."""
        writes = list(self.written_sources())
        for storage in self.visible_storages():
            memory = input_value(storage.base.type, "memory")  # which is written only
            writes.append((Source(storage.base.memory.tensor(), memory), storage.value))
        if not writes and not self.random:
            return None
        graph, sources, origins = self.graph((), writes)
        tensors = [s.array() for s in sources]
        return self._plan(graph, list(map(element_strides, tensors))), tensors, origins

    def visible_storages(self) -> list[Storage]:
        """The written memory that was made meanwhile and is referenced elsewhere."""
        return [
            s
            for s in self.storages
            if (s.source is None or s.source.is_constant) and s.is_written and self.is_visible(s)
        ]

    def is_visible(self, storage: Storage) -> bool:
        """Whether memory is referenced elsewhere."""
        return not storage.base.memory.alone

    def _plan(self, graph: Graph, strides: list[tuple[int, ...]]) -> Any:
        key = (graph.key, tuple(strides))
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = compile_graph(graph, "lazy", strides, 0)
            if len(self._plans) > PLANS:
                del self._plans[next(iter(self._plans))]
        return plan


registry.clear_when_made_again(_Deferred._plans.clear)


class LazyBlock(LaunchRecorder):
    """Puts off all that happens in a ``with`` of it, without Python: see native/calls/lazy_log.h.

    Segments end where a value is read; those of the same operations are one program, made the first time.
    new_programs: number of programs made meanwhile. breaks: if watched, the user's lines that read a value.
    """

    defers = True
    differentiable = False  # launches are recorded before they are put off

    def __init__(self, watched: bool = False) -> None:
        super().__init__()
        self.log = _core.Log(self, watched)
        self.new_programs = 0
        self.breaks: list[str] = []

    @property
    def pays_off(self) -> bool:
        """Whether the segments were quicker than their operations one by one, judged by the memory that they save."""
        count = self.log.segments
        return bool(count and self.log.unseen_bytes >= GAIN_BYTES * count)

    def depends_on(self, dependency: Any) -> None:
        """Nothing does: Python runs at each call."""

    def happens_once(self, fact: str) -> None:
        """It happens at each call."""

    def gradient_read(self, x: Any) -> None:
        """At each call."""

    def recorded_read(self, x: Any, flag: bool) -> None:
        """At each call."""

    def note_break(self) -> None:
        """A value that was deferred is read."""
        self.breaks.append(users_line())

    def __exit__(self, *_: object) -> None:
        try:
            self.flush()
        finally:
            super().__exit__()

    def flush(self) -> None:
        """Do what was put off."""
        self.log.flush()

    def program_of(self, operations: list[Any], visible: list[int], mark: int) -> Any:
        """See _Deferred.program; operations: the calls of a LaunchRecorder's methods."""
        self.new_programs += 1
        return _Segment(set(visible), mark).of(operations)


class _Segment(_Deferred):
    """Records a segment that is known as a whole. visible: the memory that is referenced elsewhere, by serial."""

    differentiable = False

    def __init__(self, visible: set[int], mark: int) -> None:
        super().__init__()
        self._visible, self._mark = visible, mark

    def of(self, operations: list[Any]) -> tuple[Any, list[Any], list[int]] | None:
        """The program of these."""
        for method, *arguments in operations:
            getattr(self, method)(*arguments)
        return self.program()

    def is_visible(self, storage: Storage) -> bool:
        return storage.base.serial in self._visible

    def met(self, tensor: Any, geometry: Any) -> None:
        """Arrays are known by their memory here."""

    def _give_up(self, problem: CannotRecord) -> None:
        raise problem


class _TensorMemory:
    """Memory of a tensor that Python keeps, in the place of a `_core.Held`."""

    alone = False
    has_faces = False  # but its own

    def __init__(self, x: Any) -> None:
        self._x = x

    def tensor(self) -> Any:
        return self._x

    def let_go(self) -> None:
        """The tensor stays."""


class LazyTrace(_Deferred):
    """Records a traced function without running it.

    A read of a value ends that: the program is not complete then, and the rest of the call is merely lazy: it runs when
    flush() is called or a value is read.
    """

    def __init__(self, on_failure: Callable[[CannotRecord], None], is_recorded: bool = False) -> None:
        super().__init__(on_failure)
        self._launches = 0
        self._values: dict[int, Any] = {}  # of numbers that are inputs, by origin
        self._is_complete = True  # nothing was run or forgotten yet
        self._is_recorded = is_recorded  # by a GradManager outside, which needs gradients of what is inside
        self._positions: list[list[Any]] = []  # of each region, those of what it drew

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    @property
    def notes_regions(self) -> bool:
        """Gradients that are computed inside find regions in what is recorded."""
        return self._is_complete and not self._is_recorded

    @contextlib.contextmanager
    def region(self, positions: list[Any]) -> Iterator[None]:
        self._positions.append(positions)
        with super().region(positions):
            yield

    def local_value(self, value: Any) -> Value:
        if not isinstance(value, _core.Tensor):
            return super().local_value(value)
        local = self.value(Geometry(*_core.geometry(value))._replace(memory=_TensorMemory(value)))
        assert local is not None
        return local

    def _array_of(self, value: Value) -> Any:
        """An array of what is written down, for after that is forgotten."""
        x = _core.empty(value.shape, value.dtype, value.type.device)
        self.store(Geometry(*_core.geometry(x))._replace(memory=_TensorMemory(x)), value)
        return x

    def run(
        self,
        plan: Any,
        sources: Sequence[Source],
        origins: Sequence[int],
        buffers: Sequence[tuple[Storage, Any]],
    ) -> None:
        """Run what was recorded by a plan of its graph, if that gives all arrays that are referenced.

        buffers: of each output the storage, and the array that has all of it; None if it has only a part.
        """
        provided = {id(storage) for storage, array in buffers if array is not None}
        if len(provided) < len(buffers) or any(id(s) not in provided for s in self.visible_storages()):
            return  # later, by a program that gives more
        numbers = [self._values[origin] for origin in origins]
        # Memory that was only reserved until now has been touched at its ends: others may have it.
        for device in _core.used_devices():
            _core.trim_memory(device)
        _core.run_plan(
            plan, [s.array() for s in sources], numbers, [array for _, array in buffers], late=True
        )
        self._forget()

    def flush(self) -> None:
        """Run what was recorded, and forget it."""
        with self.unobserved():
            program = self.program()
            if program is not None:
                plan, tensors, origins = program
                _core.run_plan(plan, tensors, [self._values[origin] for origin in origins], late=True)
        self._forget()

    def _forget(self) -> None:
        self.storages, self.sources, self.numbers, self.random = Storages(), [], {}, []
        self._values, self._launches = {}, 0
        self._mark = _core.last_serial()

    def __exit__(self, *raised: object) -> None:
        try:
            problem = raised[1] if raised else None
            if problem is None or isinstance(problem, Exception):
                self.flush()
            else:  # such as KeyboardInterrupt, which is not to wait until all this is planned
                self._abandon(type(problem).__name__)
        finally:
            super().__exit__()

    def _abandon(self, why: str) -> None:
        """Forget what was recorded: older arrays stay as they were, waits for new ones that are still there raise."""

        def fail(_: Any) -> None:
            raise RuntimeError(f"the traced call that computes this was ended by {why}")

        with self.unobserved():
            by_device: dict[Any, list[Any]] = {}
            for storage in self.visible_storages():
                x = storage.base.memory.tensor()
                by_device.setdefault(x.device, []).append(x)
            for device, arrays in by_device.items():
                default_engine().push(fail, device, overwrite_vars=arrays, name="an interrupted call")
        self._forget()

    def launched(
        self, info: Any, arrays: Sequence[Any], numbers: Sequence[Any], results: Sequence[Any], where: str
    ) -> bool:
        """Whether the launch was recorded."""
        self._launches += 1
        if self._launches > LAUNCHES and not self.is_complete:  # a complete record becomes the program
            self.flush()
        return self._try(super().launched, info, arrays, numbers, results, where)

    def copied(self, to: Any, source: Any) -> bool:
        return self._try(super().copied, to, source)

    def filled(self, to: Any, number: Any) -> bool:
        return self._try(super().filled, to, number)

    def counted(self, to: Any, start: Any, step: Any) -> bool:
        return self._try(super().counted, to, start, step)

    def drawn(self, to: Any, kind: str, a: Any, b: Any, where: str = "") -> bool:
        return self._try(super().drawn, to, kind, a, b, where)

    def permuted(self, to: Any, source: Any, where: str = "") -> bool:
        return self._try(super().permuted, to, source, where)

    def _try(self, write: Any, *arguments: Any) -> bool:
        for _ in range(2):  # again after a flush, which forgets the layout of memory that overlaps
            try:
                write(*arguments)
            except CannotRecord:
                self.flush()
            else:
                return True
        return False  # it is done at once

    def store(self, x: Geometry, value: Value, is_unrecorded: bool = False) -> None:
        existing = self._find(x) if x.size else None
        super().store(x, value, is_unrecorded)
        if x.size and existing is None and (storage := self._find(x)) is not None and self._is_new(x):
            storage.base.memory.let_go()  # if nothing else keeps it, its memory is not needed

    def met(self, tensor: Any, geometry: Any) -> None:
        if self.is_complete:
            super().met(tensor, geometry)

    def number(self, value: Any, origin: int) -> Value:
        self._values[origin] = value
        return super().number(value, origin)

    def keeps_new_arrays(self, result_memory: set[int], by_tensors: bool = False) -> bool:
        memory = (
            s.base.memory
            for s in self.storages
            if s.base.serial not in result_memory and self.has_new_memory(s)
        )
        return any(held.has_faces if by_tensors else not held.alone for held in memory)

    def read(self, geometry: Any) -> None:
        x = Geometry(*geometry)
        storage = self._find(x) if x.size else None
        if storage is not None and (storage.is_written or not is_constant(storage)):
            self._end(read_fact(x))
        self.flush()

    def awaited(self, geometry: Any) -> None:
        self._end("an array was waited for or handed to the engine")
        self.flush()

    def random_state(self) -> None:
        if not self.is_complete:
            self.flush()

    def happens_once(self, fact: str) -> None:
        self._end(fact)

    def _give_up(self, problem: CannotRecord) -> None:
        self._end(problem.fact)
        self.is_over = False  # what cannot be recorded is done at once, after all that is
        raise problem

    def _end(self, fact: str) -> None:
        if self.is_complete:
            for positions in self._positions:
                positions[:] = [[self._array_of(v) for v in each] for each in positions]
            self._is_complete = False
            super()._give_up(CannotRecord("program", fact))


@contextlib.contextmanager
def lazy() -> Iterator[None]:
    """Inside, operations of this thread are written down, and done as one program when an element is looked at.

    Also at the end, and when an array is waited for or handed to the engine. The same program is made only once.
    Other threads must not use arrays that were computed inside before the end. Inside a trace it has no effect.

    >>> import weft as wf
    >>> x = wf.zeros(4)
    >>> with lazy():
    ...     x[1:3] = 5
    ...     y = x + x
    >>> y
    tensor([ 0., 10., 10.,  0.], dtype=float32, device=cpu:0)
    """
    if _core.get_recorder() is not None:
        yield
        return
    with LazyBlock():
        yield
