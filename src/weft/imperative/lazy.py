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
from weft.base.users_line import users_line
from weft.executor.compile import compile_graph
from weft.graph.functionalization import Geometry, Storage, Storages
from weft.graph.graph import Graph
from weft.graph.recording import CannotRecord
from weft.imperative.launch_recorder import LaunchRecorder, Source, is_constant, read_fact
from weft.ops.node import Value, input_value

__all__ = ["LazyBlock", "LazyRecorder", "LazyTrace", "lazy"]

LAUNCHES = 10_000  # recorded before they run without being read
PLANS = 256
# Of results that need not be written, for which a segment is as quick as its operations.
GAIN_BYTES = 256 << 10


class LazyRecorder(LaunchRecorder):
    """Does in one program what it has written down, when flush() is called or an array is looked at.

    It is told of each operation at once; LazyBlock is the one for programs that run more than once.
    """

    defers = True
    differentiable = False  # launches are recorded before they are put off
    _plans: dict[str, Any] = {}  # noqa: RUF012 - by the text of their graphs; shared, under the GIL

    def __init__(self) -> None:
        super().__init__()
        self._launches = 0
        self._values: dict[int, Any] = {}  # of numbers that are inputs, by origin

    def __exit__(self, *_: object) -> None:
        try:
            self.flush()
        finally:
            super().__exit__()

    def _give_up(self, problem: CannotRecord) -> None:
        """What cannot be written down is done at once, after all that is."""
        self.is_over = False
        raise problem

    def launched(
        self, info: Any, arrays: Sequence[Any], numbers: Sequence[Any], results: Sequence[Any], where: str
    ) -> bool:
        """Whether the launch was written down."""
        self._launches += 1
        if self._launches > LAUNCHES:
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

    def met(self, tensor: Any, geometry: Any) -> None:
        """Arrays are known by their memory here."""

    def read(self, geometry: Any) -> None:
        self.flush()

    def awaited(self, geometry: Any) -> None:
        self.flush()

    def random_state(self) -> None:
        self.flush()

    def number(self, value: Any, origin: int) -> Value:
        """Floats are inputs, so that a loop with other ones runs the same program."""
        if not origin and isinstance(value, float):
            origin = -1 - len(self._values)  # of its own
        self._values[origin] = value
        return super().number(value, origin)

    def value(self, x: Geometry) -> Value | None:
        if x.serial is not None and x.size and self._find(x) is None:
            self.add_source(x.held.tensor(), x)
        return super().value(x)

    def store(self, x: Geometry, value: Value, is_unrecorded: bool = False) -> None:
        if x.size and self._find(x) is None and not self._is_new(x):
            self.add_source(x.held.tensor(), x)
        super().store(x, value, is_unrecorded)

    def flush(self) -> None:
        """Do what was written down, and forget it."""
        with self.unobserved():
            self._run()
        self._forget()

    def _forget(self) -> None:
        self.storages, self.sources, self.numbers, self.random = Storages(), [], {}, []
        self._values, self._launches = {}, 0
        self._mark = _core.last_serial()

    def _run(self) -> None:
        program = self.program()
        if program is not None:
            plan, tensors, origins = program
            _core.run_plan(plan, tensors, [self._values[origin] for origin in origins], late=True)

    def program(self) -> tuple[Any, list[Any], list[int]] | None:
        """The plan of what was recorded, its arrays, and the origins of its numbers; None if no result is visible."""
        writes = list(self.written_sources())
        for storage in self.storages:
            is_new = storage.source is None or storage.source.is_constant
            if is_new and storage.written and self.is_visible(storage):
                writes.append((_memory_of(storage), storage.value))
        if not writes and not self.random:
            return None
        graph, sources, origins = self.graph((), writes)
        tensors = [s.array() for s in sources]
        strides = [tuple(step // x.itemsize for step in x.strides) for x in tensors]
        return self._plan(graph, strides), tensors, origins

    def is_visible(self, storage: Storage) -> bool:
        """Whether memory that was made since the last flush is referenced elsewhere."""
        return not storage.base.held.alone

    def _plan(self, graph: Graph, strides: list[tuple[int, ...]]) -> Any:
        key = f"{graph}\n{strides}"
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = compile_graph(graph, "lazy", strides, 0)
            if len(self._plans) > PLANS:
                del self._plans[next(iter(self._plans))]
        return plan


class LazyBlock(LaunchRecorder):
    """Puts off all that happens in a ``with`` of it, without Python: see native/calls/log.h.

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
        """See LazyRecorder.program; operations: as a LaunchRecorder is told of them."""
        self.new_programs += 1
        return _Segment(set(visible), mark).of(operations)


class _Segment(LazyRecorder):
    """Records a segment that is known as a whole. visible: the memory that is referenced elsewhere, by serial."""

    def __init__(self, visible: set[int], mark: int) -> None:
        super().__init__()
        self._visible, self._mark = visible, mark

    def of(self, operations: list[Any]) -> tuple[Any, list[Any], list[int]] | None:
        """The program of these."""
        for method, *arguments in operations:
            getattr(LaunchRecorder, method)(self, *arguments)
        return self.program()

    def number(self, value: Any, origin: int) -> Value:
        return LaunchRecorder.number(self, value, origin)

    def is_visible(self, storage: Storage) -> bool:
        return storage.base.serial in self._visible


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


class LazyTrace(LazyRecorder):
    """Writes down a traced function without running it; what it looks at ends that, and the rest is merely lazy."""

    differentiable = True

    def __init__(self, on_failure: Callable[[CannotRecord], None], is_recorded: bool = False) -> None:
        super().__init__()
        self._on_failure = on_failure
        self._is_complete = True  # nothing was run or forgotten yet
        self._is_recorded = is_recorded  # a recording that began outside wants gradients of what is inside
        self._positions: list[list[Any]] = []  # of each region, those of what it drew

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    @property
    def notes_regions(self) -> bool:
        """Gradients that are asked for inside find regions in what is written down."""
        return self._is_complete and not self._is_recorded

    @contextlib.contextmanager
    def region(self, positions: list[Any]) -> Iterator[None]:
        self._positions.append(positions)
        with super().region(positions):
            yield

    def local_value(self, value: Any) -> Value:
        if not isinstance(value, _core.Tensor):
            return super().local_value(value)
        local = self.value(Geometry(*_core.geometry(value))._replace(held=_TensorMemory(value)))
        assert local is not None
        return local

    def _array_of(self, value: Value) -> Any:
        """An array of what is written down, for after that is forgotten."""
        x = _core.empty(value.shape, value.dtype, value.type.device)
        self.store(Geometry(*_core.geometry(x))._replace(held=_TensorMemory(x)), value)
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
        new_storages = (s for s in self.storages if s.source is None or s.source.is_constant)
        visible = (s for s in new_storages if s.written and not s.base.held.alone)
        if len(provided) < len(buffers) or any(id(s) not in provided for s in visible):
            return  # later, by a program that gives more
        numbers = [self._values[origin] for origin in origins]
        # Memory that was only reserved until now has been touched at its ends: others may have it.
        for index in range(_core.used_devices()):
            _core.trim_memory(f"cpu:{index}")
        _core.run_plan(
            plan, [s.array() for s in sources], numbers, [array for _, array in buffers], late=True
        )
        self._forget()

    def store(self, x: Geometry, value: Value, is_unrecorded: bool = False) -> None:
        existing = self._find(x) if x.size else None
        super().store(x, value, is_unrecorded)
        if x.size and existing is None and (storage := self._find(x)) is not None and self._is_new(x):
            storage.base.held.let_go()  # if nothing else keeps it, its memory is not needed

    def met(self, tensor: Any, geometry: Any) -> None:
        if self.is_complete:
            LaunchRecorder.met(self, tensor, geometry)

    def number(self, value: Any, origin: int) -> Value:
        self._values[origin] = value
        return LaunchRecorder.number(self, value, origin)

    def keeps_new_arrays(self, result_memory: set[int], by_tensors: bool = False) -> bool:
        memory = (
            s.base.held
            for s in self.storages
            if s.base.serial not in result_memory and self.has_new_memory(s)
        )
        return any(held.has_faces if by_tensors else not held.alone for held in memory)

    def read(self, geometry: Any) -> None:
        x = Geometry(*geometry)
        storage = self._find(x) if x.size else None
        if storage is not None and (storage.written or not is_constant(storage)):
            self._end(read_fact(x))
        super().read(geometry)

    def awaited(self, geometry: Any) -> None:
        self._end("an array was waited for or handed to the engine")
        super().awaited(geometry)

    def random_state(self) -> None:
        if not self.is_complete:
            super().random_state()

    def happens_once(self, fact: str) -> None:
        self._end(fact)

    def _give_up(self, problem: CannotRecord) -> None:
        self._end(problem.fact)
        super()._give_up(problem)

    def _end(self, fact: str) -> None:
        if self.is_complete:
            for positions in self._positions:
                positions[:] = [[self._array_of(v) for v in each] for each in positions]
            self._is_complete = False
            LaunchRecorder._give_up(self, CannotRecord("program", fact))


def _memory_of(storage: Storage) -> Source:
    """The memory of a storage as an input that is written only."""
    return Source(storage.base.held.tensor(), input_value(storage.base.type, "memory"))


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
