"""Writing a program down while it runs: what a trace and lazy evaluation are made of.

The native core reports every launch of a plan and every copy and fill (native/tensor/array_recorder.h). A
LaunchRecorder turns them into nodes on Values. Arrays from before the recording are inputs; a Source says where one
comes from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import ref

from weft import _core
from weft.base.device import Device
from weft.base.dtype import float64
from weft.base.users_line import users_line
from weft.graph.functionalization import Geometry, Overlap, Storage, Storages
from weft.graph.graph import Graph
from weft.graph.inner import Again, Rewritten, as_drawn, stopped
from weft.graph.instantiate import instantiate
from weft.graph.recording import CannotRecord, Recorder
from weft.ops import functions as F
from weft.ops.families.creation import Full, Stepped
from weft.ops.families.random import Filling, RandomPermutation
from weft.ops.node import Node, Value, constant, input_value, make_node
from weft.ops.shapes import is_dense
from weft.recording.paths import located

__all__ = ["LaunchRecorder", "Source", "is_constant", "read_fact"]


def read_fact(x: Geometry) -> str:
    """That the host looks at elements."""
    return f"the values of {x.type} were looked at, and what follows may depend on them"


class Source:
    """Where an input comes from: the tensor that was met first, or a copy of a constant.

    window: the part of the tensor that it is, None: all.
    """

    __slots__ = ("is_constant", "tensor", "value", "window")

    def __init__(self, tensor: Any, value: Value, window: Any = None, is_constant: bool = False) -> None:
        self.tensor, self.value, self.window, self.is_constant = tensor, value, window, is_constant

    def array(self) -> Any:
        """The tensor, or the part of it that is meant."""
        return self.tensor if self.window is None else _core.window(self.tensor, *self.window)


class LaunchRecorder(Recorder):
    """Writes down what happens in a ``with`` of it on this thread.

    defers: what is recorded is not run: the recorder will run it. sources: the arrays that the program reads or writes
    and did not make. on_failure: called with a CannotRecord when something cannot be recorded; if it returns, nothing
    more is recorded.
    """

    defers = False
    differentiable = True  # its programs: what no_grad and detach keep out of their gradients is marked

    def __init__(self, on_failure: Callable[[CannotRecord], None] | None = None) -> None:
        super().__init__("program")
        self.storages = Storages()
        self.sources: list[Source] = []
        self.numbers: dict[int, Value] = {}  # inputs for floats of a call, by their origin (TracedFloat)
        # Objects that were used, and their first states, by id.
        self.dependences: dict[int, tuple[Any, Any]] = {}
        self.set_gradients: set[int] = set()  # tensors whose grad was set, by id
        # Tensors whose grad was looked at or set, and what it was before, by id.
        self.gradients_before: dict[int, tuple[Callable[[], Any], Any]] = {}
        self.read_gradients: dict[int, Any] = {}  # tensors whose grad was looked at, by id
        self.read_recorded: dict[int, tuple[Any, bool]] = {}  # and whose requires_grad, with what it was
        self.captured: list[Any] = []  # NumPy arrays that the program may read at each call, as Tensors
        self._gradients: dict[int, tuple[Value, bool]] = {}  # whether values have one, by id
        self._regions: list[list[Any]] = []
        self._replayed_positions: list[Iterator[Any]] = []
        self.is_over = False  # nothing more is written down
        self._on_failure = on_failure

    @property
    def notes_regions(self) -> bool:
        """Whether what is computed again for gradients is written down as such."""
        return not self.defers

    def __enter__(self) -> LaunchRecorder:
        self._before = _core.set_recorder(self)
        if self.differentiable:
            self._epoch = _core.begin_epoch()
        return self

    def __exit__(self, *_: object) -> None:
        if self.differentiable:
            _core.end_epoch(self._epoch)
        _core.set_recorder(self._before)

    @contextlib.contextmanager
    def unobserved(self) -> Iterator[None]:
        """Nothing is written down inside."""
        _core.set_recorder(None)
        try:
            yield
        finally:
            _core.set_recorder(self)

    def depends_on(self, dependency: Any) -> None:
        """An object with ``__weft_state__`` was used."""
        if id(dependency) not in self.dependences:
            self.dependences[id(dependency)] = (dependency, dependency.__weft_state__())

    def changed(self) -> list[Any]:
        """The objects that were used and have been changed since."""
        return [
            dependency
            for dependency, first in self.dependences.values()
            if dependency.__weft_state__() != first
        ]

    def happens_once(self, fact: str) -> None:
        """Something was done to an object of Python that a program would not do again."""
        if not self.is_over:
            self.fail(fact)

    def gradient_read(self, x: Any) -> None:
        """Python has looked at the grad of a tensor."""
        self._note_gradient(x)
        if id(x) not in self.set_gradients and not self._is_new(Geometry(*_core.geometry(x))):
            self.read_gradients.setdefault(id(x), x)

    def gradient_set(self, x: Any) -> None:
        """Python is about to set the grad of a tensor."""
        self._note_gradient(x)
        self.set_gradients.add(id(x))

    def _note_gradient(self, x: Any) -> None:
        before = self.gradients_before.get(id(x))
        if before is None or before[0]() is not x:
            self.gradients_before[id(x)] = (ref(x), _core.gradient(x))
            self.set_gradients.discard(id(x))  # of a tensor that is gone

    def had_gradient(self, x: Any) -> bool:
        """Whether a tensor had a grad before."""
        before = self.gradients_before.get(id(x))
        return (_core.gradient(x) if before is None else before[1]) is not None

    def recorded_read(self, x: Any, flag: bool) -> None:
        """Python has looked at the requires_grad of a tensor."""
        if not self._is_new(Geometry(*_core.geometry(x))):
            self.read_recorded.setdefault(id(x), (x, flag))

    def keeps_new_arrays(self, result_memory: set[int], by_tensors: bool = False) -> bool:
        """Whether an array made during the recording is still referenced; result_memory: serials that do not count.

        by_tensors: by a Tensor of Python, not by the history of another array.
        """
        serials = {s.base.serial for s in self.storages if self.has_new_memory(s)} - result_memory
        is_kept = _core.has_faces if by_tensors else _core.is_alive
        return any(serial is not None and is_kept(serial) for serial in serials)

    def fail(self, fact: str) -> None:
        """Give up."""
        self.is_over = True
        self._give_up(CannotRecord(self.name, fact))

    def _give_up(self, problem: CannotRecord) -> None:
        """Report the failure; recorders that go on without what failed override it."""
        assert self._on_failure is not None, problem
        self._on_failure(problem)

    # What the native core reports.

    def met(self, tensor: Any, geometry: Any) -> None:
        """A tensor of Python is going to be used."""
        x = Geometry(*geometry)
        if self.is_over or not x.size or self._find(x) is not None or self.is_over:
            return
        if not self._is_new(x):
            self.add_source(tensor, x)
        elif x.shape == () and x.dtype.kind in ("float", "int", "bool"):
            self.storages.add(x, _scalar(tensor.item(), x))
        elif any(_is_within(x, Geometry(*_core.geometry(array))) for array in self.captured):
            self.add_source(tensor, x)
        else:  # its content came from the host
            self.add_source(_core.copy_of(tensor), x, is_constant=True)

    def add_source(self, tensor: Any, x: Geometry, is_constant: bool = False) -> None:
        """Make the tensor an input; x: where it was met."""
        dense = is_constant or _is_dense(x)
        base = x if dense else x.flat()
        value = input_value(base.type, f"x{len(self.sources)}")
        offset = (base.address - x.address) // x.dtype.itemsize
        source = Source(tensor, value, None if dense else (offset, base.shape, base.strides), is_constant)
        self.sources.append(source)
        self.storages.add(base, value, source)

    # Each of these says whether what was reported is to be left out, because it will be done later.

    def launched(
        self, info: Any, arrays: Sequence[Any], numbers: Sequence[Any], results: Sequence[Any], where: str
    ) -> bool:
        """A plan was launched."""
        if not self.is_over:
            self._insert(info.graph, arrays, numbers, results, where)
        return self.defers

    def copied(self, to: Any, source: Any) -> bool:
        """to[...] = source"""
        if not self.is_over and (value := self.value(Geometry(*source))) is not None:
            self.store(Geometry(*to), value)
        return self.defers

    def filled(self, to: Any, number: Any) -> bool:
        """to[...] = number"""
        x = Geometry(*to)
        value, origin = number
        if not self.is_over and origin:
            self.store(x, F.cast(self._number_on(x.device, value, origin), dtype=x.dtype))
        elif not self.is_over:
            self.store(x, _make(Full(shape=x.shape, value=value, dtype=x.dtype, device=x.device)))
        return self.defers

    def counted(self, to: Any, start: Any, step: Any) -> bool:
        """to[...] = start, start + step, ..."""
        x = Geometry(*to)
        if not self.is_over:
            op = Stepped(shape=x.shape, start=start[0], step=step[0], dtype=x.dtype, device=x.device)
            self.store(x, _make(op))
        return self.defers

    def drawn(self, to: Any, kind: str, a: Any, b: Any, where: str = "") -> bool:
        """Random numbers were written."""
        if not self.is_over:
            self._draw(Geometry(*to), kind, a, b, where or users_line())
        return self.defers

    def permuted(self, to: Any, source: Any, where: str = "") -> bool:
        """A random permutation was written."""
        if not self.is_over and (value := self.value(Geometry(*source))) is not None:
            node = make_node(RandomPermutation(), (value,))
            node.where = where or users_line()
            self.store(Geometry(*to), self.draw(node)[0])
        return self.defers

    def read(self, geometry: Any) -> None:
        """The host looks at elements."""
        x = Geometry(*geometry)
        if self.is_over or not x.size:
            return
        storage = self._find(x)
        if self.is_over or (storage is None and self._is_new(x)):
            return
        if storage is not None and not storage.is_written and is_constant(storage):
            return
        self.fail(read_fact(x))

    def awaited(self, geometry: Any) -> None:
        """An array is waited for, or handed to the engine."""

    def random_state(self) -> None:
        """The state of random numbers is read or set; a program does not do that again."""

    # How it is written down.

    def _insert(
        self, graph: Graph, arrays: Sequence[Any], numbers: Sequence[Any], results: Sequence[Any], where: str
    ) -> None:
        geometries, values = iter(arrays), iter(numbers)
        inputs = []
        for v in graph.inputs:
            operand = self.number(*next(values)) if v.type.weak else self.value(Geometry(*next(geometries)))
            if operand is None:
                return
            inputs.append(operand)
        draw = self.draw if self._regions or self._replayed_positions else None
        outputs = [v for v in instantiate(graph, inputs, located(where), draw=draw) if v is not None]
        for value, geometry in zip(outputs, results, strict=True):
            op = value.node.op
            if op is not None and op.random:
                self.random.append(value)
            if geometry is not None:
                # What an operator writes besides its results, such as running statistics, is not recorded.
                self.store(Geometry(*geometry), value, value.index in value.node.written)

    def _draw(self, x: Geometry, kind: str, a: Any, b: Any, where: str) -> None:
        op: Any = next((each for each in Filling.__subclasses__() if each.kind == kind), None)
        if op is None:
            self.fail(f"random {kind} are not operators so far")
            return
        names = [attribute.name for attribute in op.attributes if attribute.runtime]
        runtime = dict(zip(names, (self.number(*a), self.number(*b)), strict=True))
        # The operator is the same whatever the numbers are.
        node = make_node(
            op(shape=x.shape, dtype=x.dtype, device=x.device, **dict(zip(names, (0, 1), strict=True))),
            (),
            runtime,
        )
        node.where = where
        self.store(x, self.draw(node)[0])

    # Regions that are computed again.

    @contextlib.contextmanager
    def region(self, positions: list[Any]) -> Iterator[None]:
        """Inside, the positions of the streams at each draw are added to positions."""
        self._regions.append(positions)
        try:
            yield
        finally:
            self._regions.pop()

    @contextlib.contextmanager
    def recomputing(self, positions: Sequence[Any], operands: Sequence[Any]) -> Iterator[None]:
        """Inside, draws repeat those of a region; operands: the arrays that its gradient is for."""
        self._replayed_positions.append(iter([[self.local_value(v) for v in each] for each in positions]))
        try:
            yield
        finally:
            self._replayed_positions.pop()

    def local_value(self, value: Value) -> Value:
        """The value of the program, or its stand-in where this recorder writes a part of another one's program."""
        return value

    def begin_recomputation(self, x: Any) -> None:
        """An array, fresh, from which a region is computed again."""
        storage = self.storages.find(Geometry(*_core.geometry(x)))
        if storage is not None:
            storage.value = make_node(Again(), [storage.value]).outputs[0]

    def draw(self, node: Node) -> Sequence[Value]:
        """The outputs of a random node; inside of regions that are computed again, both times the same."""
        if not self._regions and not self._replayed_positions:
            return super().draw(node)
        position = next(self._replayed_positions[-1], None) if self._replayed_positions else None
        if self._replayed_positions and position is None:
            self.refuse("a function that is computed again draws more random numbers than before")
        outputs, position = as_drawn(node, position)
        if not self._replayed_positions:
            self.random.append(position[0])
        for region in self._regions:
            region.append(position)
        return outputs

    # Content.

    def number(self, value: Any, origin: int) -> Value:
        """A number: a constant, or what it is known as."""
        if not origin:
            return constant(value)
        if origin not in self.numbers:
            self.numbers[origin] = input_value(constant(value).type, f"number{origin}")
        return self.numbers[origin]

    def _number_on(self, device: Device, value: Any, origin: int) -> Value:
        """A number that becomes elements of an array on a device, where the program computes it, too.

        By itself a number has no device, so that a program of nothing else would be one of cpu:0.
        """
        number = self.number(value, origin)
        if device is number.type.device:
            return number
        one = _make(
            Full(
                shape=(), value=1, dtype=float64 if number.dtype.is_floating else number.dtype, device=device
            )
        )
        return F.multiply(one, number)

    def value(self, x: Geometry) -> Value | None:
        """The content of a window; None if there is none to be had, which has been reported then."""
        if x.serial is None or not x.size:  # only its sizes are looked at
            return _make(Full(shape=x.shape, dtype=x.dtype, device=x.device))
        storage = self._find(x)
        if self.is_over:
            return None
        if storage is None:
            self.fail("it uses an array whose content belongs to an earlier recording that has not run")
            return None
        try:
            content = storage.read(x)
        except Overlap as problem:
            self.fail(str(problem))
            return None
        return self._stopped(content) if x.is_stopped else content

    def _copied_to(self, device: Device, value: Value) -> Value:
        """The value on another device; what no call changes is copied now, once."""
        constant = next((s for s in self.sources if s.is_constant and s.value is value), None)
        if constant is None:
            return F.to_device(value, device=device)
        with self.unobserved():
            copy = _core.copy_of(constant.tensor, value.dtype, device)
        self.sources.append(Source(copy, input_value(value.type.on(device), value.node.name), None, True))
        return self.sources[-1].value

    def store(self, x: Geometry, value: Value, is_unrecorded: bool = False) -> None:
        """Make value the content of a window, converted and repeated as it must be.

        is_unrecorded: the write has no gradient, as under no_grad: arrays keep the history that they have.
        """
        if value.type.device is not x.device:
            value = self._copied_to(x.device, value)
        if value.dtype is not x.dtype:
            value = F.cast(value, dtype=x.dtype)
        if value.shape != x.shape:
            value = F.broadcast_to(value, shape=x.shape)
        if not x.size:
            return
        storage = self._find(x)
        if self.is_over:
            return
        keeps_history = self.differentiable and (is_unrecorded or x.is_stopped or _core.is_stopping())
        if keeps_history:
            value = self._stopped(value)
        if storage is None:
            if not self._is_new(x) or not _is_dense(x):
                self.fail(
                    "it writes memory that is neither an argument, nor captured, nor made by the function"
                )
                return
            self.storages.add(x, value).is_written = True
            return
        previous = storage.value
        try:
            storage.write(x, value)
        except Overlap as problem:
            self.fail(str(problem))
            return
        if keeps_history and self.has_gradient(previous):
            storage.value = make_node(Rewritten(), [storage.value, previous]).outputs[0]

    def _stopped(self, value: Value) -> Value:
        """The value without a gradient."""
        return stopped(value) if self.has_gradient(value) else value

    def has_gradient(self, value: Value) -> bool:
        """Whether the gradient of some input may have a part that comes by way of the value."""
        memo = self._gradients
        waiting = [value]
        while waiting:
            v = waiting[-1]
            op = v.node.op
            if id(v) in memo:
                waiting.pop()
            elif not v.dtype.is_differentiable or v.is_constant or (op is not None and op.stops_gradient):
                memo[id(v)] = (v, False)
            elif op is None:
                memo[id(v)] = (v, True)
            else:
                missing = [x for x in v.node.inputs if x is not None and id(x) not in memo]
                waiting.extend(missing)
                if not missing:
                    has = any(x is not None and memo[id(x)][1] for x in v.node.inputs)
                    for output in v.node.outputs:
                        memo[id(output)] = (output, has and output.dtype.is_differentiable)
        return memo[id(value)][1]

    def _find(self, x: Geometry) -> Storage | None:
        try:
            return self.storages.find(x)
        except Overlap as problem:
            self.fail(str(problem))
            return None

    def has_new_memory(self, storage: Storage) -> bool:
        """Whether its memory was made since the beginning; that of a NumPy array is older than its Tensor."""
        source = storage.source
        return self._is_new(storage.base) and (source is None or source.is_constant)

    def _is_new(self, x: Geometry) -> bool:
        """Whether the memory was made since the beginning, by this thread."""
        assert x.serial is not None
        return self.is_made_here(x.serial)

    @property
    def is_complete(self) -> bool:
        """Whether all that happened was recorded."""
        return not self.is_over

    def graph(
        self, results: Sequence[Value], written: Sequence[tuple[Source, Value]]
    ) -> tuple[Graph, list[Source], list[int]]:
        """The graph that gives the results, then what is written; where its arrays and its numbers come from."""
        outputs = [*results, *(value for _, value in written)]
        outputs += self.unused_draws(outputs)
        used_values = {id(v) for node in Graph([], outputs).nodes for v in node.reads} | {
            id(v) for v in outputs
        }
        used_values |= {id(source.value) for source, _ in written}
        all_sources = {id(source): source for source in (*self.sources, *(source for source, _ in written))}
        sources = [source for source in all_sources.values() if id(source.value) in used_values]
        origins = [origin for origin, v in self.numbers.items() if id(v) in used_values]
        positions = {id(source): k for k, source in enumerate(sources)}
        writes = {len(results) + k: positions[id(source)] for k, (source, _) in enumerate(written)}
        inputs = [*(source.value for source in sources), *(self.numbers[origin] for origin in origins)]
        return Graph(inputs, outputs, writes), sources, origins

    def written_sources(self) -> Iterator[tuple[Source, Value]]:
        """Inputs that have another content now."""
        for storage in self.storages:
            source = storage.source
            if source is not None and not source.is_constant and storage.value is not source.value:
                yield source, storage.value


def _is_within(x: Geometry, outer: Geometry) -> bool:
    (first, end), (low, high) = x.extent(), outer.extent()
    return low <= first and end <= high


def _make(op: Any) -> Value:
    return make_node(op, ()).outputs[0]


def _scalar(number: Any, x: Geometry) -> Value:
    """A number as an array without dimensions: by itself it has no device, and would be computed on cpu:0."""
    value = constant(number, x.dtype)
    if value.type.device is x.device:
        return value
    return _make(Full(shape=(), value=number, dtype=x.dtype, device=x.device))


def is_constant(storage: Storage) -> bool:
    """Whether it holds what it held from the beginning, and always will."""
    node = storage.value.node
    is_number = storage.value.is_constant or (isinstance(node.op, Full) and not node.runtime)
    return is_number or (storage.source is not None and storage.source.is_constant)


def _is_dense(x: Geometry) -> bool:
    return is_dense(x.shape, x.strides)
