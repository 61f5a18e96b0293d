"""Lazy evaluation: operations are written down, and done together when somebody wants to know.

>>> import weft as wf
>>> with wf.lazy():
...     x = wf.ones(3)
...     y = (x * 2 + 1) * x     # nothing is computed so far
...     total = y.sum().item()  # one program
>>> total
9.0

Arrays have their memory from the start, so views and in-place writes need no care; it is not touched before the program
runs, and what nobody can see any more is not computed.
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
from weft.imperative.launch_recorder import LaunchRecorder, Source, is_constant, looked_at
from weft.ops.node import Value, input_value

__all__ = ["LazyBlock", "LazyRecorder", "LazyTrace", "lazy"]

LAUNCHES = 10_000  # written down before they are done unasked
PLANS = 256
GAIN_BYTES = (
    256 << 10
)  # of results that need not be written, for which a segment is as quick as its operations


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
        self.over = False
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
        for _ in range(2):  # again with what is known forgotten, so that memory that overlaps is met anew
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
            self.add_source(x.memory.tensor(), x)
        return super().value(x)

    def store(self, x: Geometry, value: Value, besides: bool = False) -> None:
        if x.size and self._find(x) is None and not self._born(x):
            self.add_source(x.memory.tensor(), x)
        super().store(x, value, besides)

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
        found = self.program()
        if found is not None:
            plan, tensors, origins = found
            _core.run_plan(plan, tensors, [self._values[origin] for origin in origins], late=True)

    def program(self) -> tuple[Any, list[Any], list[int]] | None:
        """The plan of what was written down, its arrays, and the origins of its numbers; None if nobody wants it."""
        wanted = list(self.written_sources())
        for storage in self.storages:
            made_here = storage.source is None or storage.source.is_constant
            if made_here and storage.is_written and self.is_wanted(storage):
                wanted.append((_memory_of(storage), storage.value))
        if not wanted and not self.random:
            return None
        graph, sources, origins = self.graph((), wanted)
        tensors = [s.array() for s in sources]
        strides = [tuple(step // x.itemsize for step in x.strides) for x in tensors]
        return self._plan(graph, strides), tensors, origins

    def is_wanted(self, storage: Storage) -> bool:
        """Whether anybody else can see memory that was made since the last flush."""
        return not storage.base.memory.alone

    def _plan(self, graph: Graph, strides: list[tuple[int, ...]]) -> Any:
        key = f"{graph}\n{strides}"
        found = self._plans.get(key)
        if found is None:
            found = self._plans[key] = compile_graph(graph, "lazy", strides, 0)
            if len(self._plans) > PLANS:
                del self._plans[next(iter(self._plans))]
        return found


class LazyBlock(LaunchRecorder):
    """Puts off all that happens in a ``with`` of it, without Python: see native/calls/lazy_log.h.

    Segments end where somebody looks; those of the same operations are one program, made when it is met first.
    made: how many were made meanwhile. breaks: if watched, the user's lines where somebody looked.
    """

    defers = True
    differentiable = False  # launches are recorded before they are put off

    def __init__(self, watched: bool = False) -> None:
        super().__init__()
        self.log = _core.Log(self, watched)
        self.made = 0
        self.breaks: list[str] = []

    @property
    def gains(self) -> bool:
        """Whether the segments so far were quicker than their operations one by one, as far as memory tells."""
        done = self.log.segments
        return bool(done and self.log.unseen_bytes >= GAIN_BYTES * done)

    def depends_on(self, thing: Any) -> None:
        """Nothing does: Python runs at each call."""

    def happens_once(self, fact: str) -> None:
        """It happens at each call."""

    def gradient_read(self, x: Any) -> None:
        """At each call."""

    def recorded_read(self, x: Any, flag: bool) -> None:
        """At each call."""

    def note_break(self) -> None:
        """Somebody looks at what was put off."""
        self.breaks.append(users_line())

    def __exit__(self, *_: object) -> None:
        try:
            self.flush()
        finally:
            super().__exit__()

    def flush(self) -> None:
        """Do what was put off."""
        self.log.flush()

    def program_of(self, operations: list[Any], kept: list[int], mark: int) -> Any:
        """See LazyRecorder.program; operations: as a LaunchRecorder is told of them."""
        self.made += 1
        return _Segment(set(kept), mark).of(operations)


class _Segment(LazyRecorder):
    """Writes down a segment that is known as a whole. kept: the memory that others see, by serial."""

    def __init__(self, kept: set[int], mark: int) -> None:
        super().__init__()
        self._kept, self._mark = kept, mark

    def of(self, operations: list[Any]) -> tuple[Any, list[Any], list[int]] | None:
        """The program of these."""
        for method, *arguments in operations:
            getattr(LaunchRecorder, method)(self, *arguments)
        return self.program()

    def number(self, value: Any, origin: int) -> Value:
        return LaunchRecorder.number(self, value, origin)

    def is_wanted(self, storage: Storage) -> bool:
        return storage.base.serial in self._kept


class _Seen:
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

    def __init__(self, failed: Callable[[CannotRecord], None], is_recorded: bool = False) -> None:
        super().__init__()
        self._failed = failed
        self._whole = True  # nothing was done or forgotten so far
        self._is_recorded = is_recorded  # a recording that began outside wants gradients of what is inside
        self._positions: list[list[Any]] = []  # of each region, those of what it drew

    @property
    def whole(self) -> bool:
        return self._whole

    @property
    def notes_regions(self) -> bool:
        """Gradients that are asked for inside find regions in what is written down."""
        return self._whole and not self._is_recorded

    @contextlib.contextmanager
    def region(self, positions: list[Any]) -> Iterator[None]:
        self._positions.append(positions)
        with super().region(positions):
            yield

    def here(self, value: Any) -> Value:
        if not isinstance(value, _core.Tensor):
            return super().here(value)
        found = self.value(Geometry(*_core.geometry(value))._replace(memory=_Seen(value)))
        assert found is not None
        return found

    def _array_of(self, value: Value) -> Any:
        """An array of what is written down, for after that is forgotten."""
        x = _core.empty(value.shape, value.dtype, value.type.device)
        self.store(Geometry(*_core.geometry(x))._replace(memory=_Seen(x)), value)
        return x

    def run(
        self,
        plan: Any,
        sources: Sequence[Source],
        origins: Sequence[int],
        places: Sequence[tuple[Storage, Any]],
    ) -> None:
        """Do what was written down by a plan of its graph, if that gives all that anybody can see.

        places: of each output the storage, and the array that has all of it; None if it has only a part.
        """
        given = {id(storage) for storage, array in places if array is not None}
        made = (s for s in self.storages if s.source is None or s.source.is_constant)
        seen = (s for s in made if s.is_written and not s.base.memory.alone)
        if len(given) < len(places) or any(id(s) not in given for s in seen):
            return  # later, by a program that gives more
        numbers = [self._values[origin] for origin in origins]
        # Memory that was only reserved so far has been touched at its ends: others may have it.
        for index in range(_core.used_devices()):
            _core.trim_memory(f"cpu:{index}")
        _core.run_plan(plan, [s.array() for s in sources], numbers, [array for _, array in places], late=True)
        self._forget()

    def store(self, x: Geometry, value: Value, besides: bool = False) -> None:
        known = self._find(x) if x.size else None
        super().store(x, value, besides)
        if x.size and known is None and (made := self._find(x)) is not None and self._born(x):
            made.base.memory.let_go()  # if nobody else keeps it, nobody needs its memory

    def met(self, tensor: Any, geometry: Any) -> None:
        if self.whole:
            LaunchRecorder.met(self, tensor, geometry)

    def number(self, value: Any, origin: int) -> Value:
        self._values[origin] = value
        return LaunchRecorder.number(self, value, origin)

    def kept(self, shown: set[int], by_tensors: bool = False) -> bool:
        others = (s.base.memory for s in self.storages if s.base.serial not in shown and self.made_here(s))
        return any(held.has_faces if by_tensors else not held.alone for held in others)

    def read(self, geometry: Any) -> None:
        x = Geometry(*geometry)
        storage = self._find(x) if x.size else None
        if storage is not None and (storage.is_written or not is_constant(storage)):
            self._end(looked_at(x))
        super().read(geometry)

    def awaited(self, geometry: Any) -> None:
        self._end("an array was waited for or handed to the engine")
        super().awaited(geometry)

    def random_state(self) -> None:
        if not self.whole:
            super().random_state()

    def happens_once(self, fact: str) -> None:
        self._end(fact)

    def _give_up(self, problem: CannotRecord) -> None:
        self._end(problem.fact)
        super()._give_up(problem)

    def _end(self, fact: str) -> None:
        if self.whole:
            for positions in self._positions:
                positions[:] = [[self._array_of(v) for v in each] for each in positions]
            self._whole = False
            LaunchRecorder._give_up(self, CannotRecord("program", fact))


def _memory_of(storage: Storage) -> Source:
    """The memory of a storage as an input that is written, not read."""
    return Source(storage.base.memory.tensor(), input_value(storage.base.type, "memory"))


@contextlib.contextmanager
def lazy() -> Iterator[None]:
    """Inside, operations of this thread are written down, and done as one program when an element is looked at.

    Also at the end, and when somebody waits for an array or hands it to the engine. The same program is made only once.
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
