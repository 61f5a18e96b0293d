"""How functions become graphs: they are called with Values.

>>> from weft.base.dtype import float32
>>> from weft.ops.node import input_value
>>> from weft.ops.types import TensorType
>>> outer = input_value(TensorType((2,), float32))
>>> capture = Capture("example")
>>> x = capture.input(TensorType((2,), float32))
>>> (y,) = capture.run(lambda: [x * outer]).outputs
>>> capture.subgraph([x], [y])
<graph(x0: f32[2]@cpu:0, x1: f32[2]@cpu:0) | v0 = Mul...
>>> capture.captures[0] is outer
True
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from weft import _core
from weft.base.dtype import bool_, int64
from weft.base.structure import Structure, flatten
from weft.base.table import Table
from weft.graph.functionalization import Geometry, Overlap, ValueStorage, Window
from weft.graph.gradient import recorded_gradients
from weft.graph.graph import Graph
from weft.graph.inner import Drawn, Rewritten, StopGradient, Watched, blocks_of, stopped
from weft.graph.recording import Recorder
from weft.graph.subgraph import Subgraph
from weft.kernels import choices
from weft.ops import functions as F
from weft.ops import registry
from weft.ops.families.joining import Pieces
from weft.ops.kernels import View
from weft.ops.node import Node, Tracer, Value, apply, bind, constant, input_value, make_node, traced, value_of
from weft.ops.op import Op
from weft.ops.shapes import row_major
from weft.ops.sizes import NeedsSizes, are_guarded
from weft.ops.types import TensorType

__all__ = ["Capture", "ProgramCapture", "Recorded", "no_capture", "type_of"]


@contextlib.contextmanager
def no_capture() -> Iterator[None]:
    """Functions that are called inside make nodes of no function that is being captured."""
    outer_capture = _core.capture()
    _core.set_capture(None)
    try:
        yield
    finally:
        _core.set_capture(outer_capture)


class Recorded(NamedTuple):
    """What a recorded function gave: the leaves of its result, as it held them, and how they are nested.

    outputs: the Values of those leaves that are outputs of its graph, in order.
    """

    leaves: list[Any]
    structure: Structure
    outputs: list[Value]


class Capture(Recorder):
    """Writes functions down as graphs, by calling them with Values.

    `captures` are the arrays and the Values of a graph outside that the functions use; each becomes an input, too, of
    `capture_inputs` at the same index. So the operands of the operator that runs the graph are those given, then the
    captures. name: for errors.

    Memory. A Value that the function holds is an array with memory, a window of a storage
    (weft.graph.functionalization). It stays the same object when it is written; `lift` gives the content that it has
    then. Arrays and Values outside are windows of one storage if they share memory, as far as that can be told.

    Effects. A captured array that is written reads as its new value from then on; `new_contents` maps its index in
    `captures` to that value, and `content` returns that of an argument. Random numbers are drawn from `stream`, the
    words that Drawn takes, at `position`, an input of the graph, and `blocks` counts the positions taken.

    Gradients. A watched array has a Value of its own until it is unwatched, so that only what is computed meanwhile
    counts; nodes made where nothing is recorded are constant.
    """

    def __init__(self, name: str, stream: Any = None) -> None:
        super().__init__(name)
        self.stream = stream
        self.captures: list[Any] = []
        self.capture_inputs: list[Value] = []
        self.new_contents: dict[int, Value] = {}
        self.assigned: set[int] = set()  # those of new_contents that the program writes, not an operator
        self.blocks: Any = 0
        self.drew = False
        self.position = self.input(TensorType((), int64, None if stream is None else type_of(stream).device))
        self._windows: dict[int, Window] = {}  # by id of what the function holds; they keep it alive
        self._storages: list[ValueStorage] = []  # of captures, in their order
        self._in_memory: dict[int, list[tuple[Geometry, ValueStorage]]] = {}  # of arrays outside, by serial
        self._of_outer: dict[int, Window] = {}  # all of a storage of the capture around this one, by its id
        self._outer_memory: dict[int, int] = {}  # the ids of such storages, by index of the capture
        self._is_moving = False  # contents go from and to storages
        self._outer, self._outer_epoch = _core.capture(), _core.epoch()
        self._local: set[int] = set()  # arrays that a function made: nothing else reads them
        self._start = self.input(TensorType((), bool_)).node.order
        self._before_watch: dict[int, Value | None] = {}  # by id of what is watched
        self._constant: set[Node] = set()

    def input(self, type: TensorType) -> Value:
        """A Value to call functions with."""
        return input_value(type)

    def run(self, function: Callable[[], Any], is_output: Callable[[Any], bool] = lambda _: True) -> Recorded:
        """Record a function that gives arrays and numbers, which become arrays, or a structure of them.

        is_output: which leaves these are; others stay as they are. Nothing is written yet. Raises TypeError for an
        output that is neither an array nor a number.
        """
        for storage in {id(window.storage): window.storage for window in self._windows.values()}.values():
            storage.reset()
        self.assigned = set()
        outer_capture, epoch = _core.capture(), _core.begin_epoch()
        _core.set_capture(self)
        try:
            leaves, structure = flatten(function())
            outputs = [self._result(x) for x in leaves if is_output(x)]
        finally:
            _core.set_capture(outer_capture)
            _core.end_epoch(epoch)
        self.new_contents = {
            k: storage.value
            for k, storage in enumerate(self._storages)
            if storage.is_written and k not in self._local
        }
        self._check_written()
        return Recorded(leaves, structure, outputs)

    # What operators' functions call while run runs.

    def __weft_apply__(self, op: type[Op], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operator with effects, on whatever operands."""
        inputs, attributes = bind(op, args, kwargs)
        return traced(apply(op, inputs, attributes))

    def applied(self, op: Op, operands: Sequence[Any]) -> Any:
        """An operator, whatever its operands are: its visible outputs as Tracers, one alone not in a tuple."""
        return traced(op(*map(self.lift, operands)))

    def lift(self, x: Any) -> Any:
        """The Value of x in the graph; called for all operands of operators while run runs."""
        if isinstance(x, Tracer):
            x = x.value
        if isinstance(x, Value) and (self._is_moving or self._is_inside(x)):
            window = None if self._is_moving else self._windows.get(id(x))
            return x if window is None else self._read(window)
        if isinstance(x, Value | _core.Tensor):
            return self._read(self._window(x))
        if not hasattr(x, "settle"):
            return x
        number = self.number(x)
        return self.lift(number) if isinstance(number, Value) else number

    def number(self, x: Any) -> Any:
        """The number that a traced float stands for, on which the trace depends from now on."""
        return x.settle() if self._outer is None else self._outer.number(x)

    def record(self, node: Node, operands: Sequence[Any] | None = None) -> Sequence[Value]:
        """The outputs of a node for the function; called for every node. operands: what the program applies it to."""
        op, operands = node.op, node.inputs if operands is None else operands
        assert op is not None
        if self._is_moving:
            return self._with_marks(node.outputs)
        if isinstance(op, Pieces):  # views, each by itself
            return tuple(op.decompose(operands[0]))
        writes = op.writes_by_index(len(node.inputs))
        for index, output in writes.items():
            if node.inputs[index] is not None:
                self.write(operands[index], stopped(node.outputs[output]))
                self._add(node.outputs[output], self._window(operands[index]))  # eagerly, it is that array
        outputs = self._with_marks(self.draw(node) if op.random else node.outputs)
        is_unary = len(operands) == 1 and len(outputs) == 1 and not writes
        if is_unary and isinstance(operands[0], Value | _core.Tensor):
            self._note_view(node, operands[0], outputs[0])
        return outputs

    def record_inlined(self, node: Node) -> Sequence[Value]:
        """As record, for a node of another function's graph, whose writes are recorded there."""
        assert node.op is not None
        return self._with_marks(self.draw(node) if node.op.random else node.outputs)

    def write(self, target: Any, content: Any) -> None:
        """Make content, a Value or what a Tracer was made for, that of an array."""
        content = value_of(content)
        window = self._window(target)
        past = self._read(window)
        if window.geometry is not None and any(
            n != 1 and step is not n and isinstance(step, int) and step == 0
            for n, step in zip(window.geometry.shape, window.geometry.strides, strict=True)
        ):
            raise ValueError(
                f"{self.name}: several indices of x mean one element (it was broadcast); write to a copy(): "
                f"x is {past.type}"
            )
        if isinstance(content.node.op, StopGradient) and past.type == content.type:
            content = self._move(lambda: make_node(Rewritten(), [content, past]).outputs[0])
        self._move(lambda: window.write(content))
        window.value, window.version = content, window.storage.version

    def assign(self, target: Any, content: Any) -> None:
        """As write, where the program says so: then the content has a gradient."""
        self.write(target, content)
        storage = self._window(target).storage
        self.assigned.update(k for k, each in enumerate(self._storages) if each is storage)

    def alias(self, x: Any, value: Value) -> Tracer:
        """value, as another array in the memory of x whose content has no gradient."""
        window = self._window(x)
        if value is window.value:
            return self.handle(x)
        self._windows[id(value)] = Window(value, window.storage, window.geometry, value, True)
        return traced(value)

    # Memory.

    def handle(self, x: Any) -> Tracer:
        """What the function holds in the place of an array, or of a Value outside, in whose memory it is."""
        window = self._window(x)
        with no_capture():
            value = self._read(window)
        same = self._windows.get(id(value))
        if same is None or same.storage is not window.storage or same.geometry is not window.geometry:
            self._add(value, window)
        return traced(value)

    def content(self, argument: Value) -> Value | None:
        """The content at the end of an array that the function was given, if it was written."""
        window = self._windows.get(id(argument))
        return window.storage.value if window is not None and window.storage.is_written else None

    def written(self, arguments: Sequence[Any]) -> dict[int, Value]:
        """The contents at the end of those arguments, by index, that are arrays and were written."""
        contents = {k: self.content(v) for k, v in enumerate(arguments) if isinstance(v, Value)}
        return {k: content for k, content in contents.items() if content is not None}

    def is_same(self, x: Any, y: Any) -> bool:
        """Whether two operands of the function are one array."""
        x, y = value_of(x), value_of(y)
        if x is y:
            return True
        if not all(isinstance(array, Value | _core.Tensor) for array in (x, y)):
            return False
        return self._memory(x) is self._memory(y) and self._window(x).geometry is self._window(y).geometry

    def share_memory(self, x: Any, y: Any) -> bool:
        """Whether two operands of the function are in the same storage."""
        x, y = value_of(x), value_of(y)
        return x is y or (self._memory(x) is not None and self._memory(x) is self._memory(y))

    def known_elements(self, x: Any, compute: Callable[[Graph, list[Any]], Any]) -> Any:
        """The elements of an array or a Value that depends on no argument and no random number, or None.

        compute: the output of a graph of arrays. What a function around this one was given is no more known than what
        this one was.
        """
        content = self.lift(x)
        captured = {id(v): array for v, array in zip(self.capture_inputs, self.captures, strict=True)}
        inputs: list[Value] = []
        for node in Graph((), [content]).nodes:
            if node.op is None and not node.outputs[0].is_constant:
                inputs.append(node.outputs[0])
            if node.op is not None and node.op.random:
                return None
        operands: list[Any] = []
        for v in inputs:
            array = captured.get(id(v))
            is_here = self._outer is None or (isinstance(array, _core.Tensor) and self._is_new(array))
            if array is not None and not is_here:
                assert self._outer is not None
                array = self._outer.known_elements(array, compute)
            if not isinstance(array, _core.Tensor):
                return None
            operands.append(array)
        if len(inputs) == 1 and content is inputs[0]:
            return operands[0]
        return self.read_elements(lambda: compute(Graph(inputs, [content]), operands), operands)

    def read_elements(self, compute: Callable[[], Any], operands: Sequence[Any]) -> Any:
        """What compute gives of arrays, for the host to look at; the outermost recorder decides how."""
        return compute() if self._outer is None else self._outer.read_elements(compute, operands)

    def is_watched(self, x: Any) -> bool:
        """Whether a gradient can be asked of what x was computed from."""
        content = self.lift(x)
        nodes = Graph((), [content]).nodes if isinstance(content, Value) else ()
        return any(isinstance(node.op, Watched) for node in nodes)

    def count_writes(self, x: Any) -> int:
        """How often what is written down here, and around here, wrote the memory of an array or a Value."""
        window = self._windows.get(id(value_of(x)))
        written = 0 if window is None else window.storage.version
        return written + (0 if self._outer is None else self._outer.count_writes(x))

    def check_read(self, serial: int) -> None:
        """Raise CannotRecord where the function has written memory that the host is about to look at."""
        for storage in self._storages:
            x = storage.handle
            if storage.is_written and isinstance(x, _core.Tensor) and _core.geometry(x)[0] == serial:
                self.refuse(
                    f"elements are read of an array that the function has written, {type_of(x)}: "
                    "they are not known before its graph is computed"
                )
        if self._outer is not None:
            self._outer.check_read(serial)

    def set_unknown_strides(self, argument: Value) -> None:
        """An argument is not row-major in memory, so that reshapes of it may be copies."""
        self._window(argument).storage.is_row_major = False

    def _memory(self, x: Any) -> ValueStorage | None:
        """Of an array or a Value."""
        if not isinstance(x, Value | _core.Tensor):
            return None
        is_outside = not isinstance(x, Value) or not self._is_inside(x)
        window = self._window(x) if is_outside else self._windows.get(id(x))
        return None if window is None else window.storage

    def _is_inside(self, x: Value) -> bool:
        """Whether a Value belongs to the graph of this capture."""
        return x.node.order >= self._start or x.is_constant

    def _read(self, window: Window) -> Value:
        try:
            return self._move(window.read)
        except Overlap as problem:
            self.refuse(str(problem))

    def _move(self, function: Callable[[], Any]) -> Any:
        """Run a function whose operands are contents that go to or from storages, not arrays of the program."""
        was_moving, self._is_moving = self._is_moving, True
        try:
            return function()
        except Overlap as problem:
            self.refuse(str(problem))
        finally:
            self._is_moving = was_moving

    def _window(self, x: Any) -> Window:
        """The window of x in memory; an unknown Value gets a storage of its own, an unknown array is captured."""
        x = value_of(x)
        window = self._windows.get(id(x))
        if window is not None:
            return window
        if isinstance(x, Value) and self._is_inside(x):
            storage = ValueStorage(x, x)
            window = self._windows[id(x)] = Window(x, storage, storage.base, x)
            return window
        is_array = isinstance(x, _core.Tensor)
        if self._outer is not None and not (is_array and self._is_new(x)):
            return self._capture_through(self._outer, x)
        if is_array:
            return self._capture_array(x)
        return self._capture(x, x.type, True)

    def _capture_array(self, x: Any) -> Window:
        """An array outside of all graphs, in whose memory others may be."""
        geometry = Geometry(*_core.geometry(x))
        is_stopped = bool(_core.is_stopped(x, self._outer_epoch))
        windows = self._in_memory.setdefault(geometry.serial or 0, [])
        for whole, storage in windows:
            (first, end), (low, high) = geometry.extent(), whole.extent()
            if storage.is_row_major and whole.dtype is geometry.dtype and low <= first and end <= high:
                is_whole = geometry.same_window(whole)
                if is_whole and not is_stopped:
                    self._take_gradient(storage, x)
                if is_stopped or (not storage.is_stopped and _core.have_same_past(x, storage.handle)):
                    part = geometry._replace(address=geometry.address - whole.address)
                    return self._add(
                        x, Window(x, storage, storage.base if is_whole else part, None, is_stopped)
                    )
        window = self._capture(x, type_of(x), _is_row_major(geometry), is_stopped)
        windows.append((geometry, window.storage))
        if self._is_new(x):
            self._local.add(len(self.captures) - 1)
        return window

    def _capture_through(self, outer: Capture, x: Any) -> Window:
        """A capture of another function that is being recorded around this one; its windows are windows here."""
        outer_window = outer._window(x)
        storage, is_stopped = outer_window.storage, outer_window.is_stopped
        if outer_window.is_whole and (not storage.is_watched or outer._read(outer_window) is storage.value):
            if id(storage) in self._of_outer:
                inner_storage = self._of_outer[id(storage)].storage
                if not is_stopped:
                    self._take_gradient(inner_storage, x)
                return self._add(x, Window(x, inner_storage, inner_storage.base, None, is_stopped))
            window = self._capture(x, type_of(x), storage.is_row_major, is_stopped)
            self._of_outer[id(storage)] = window
        elif not outer_window.is_whole and not storage.is_watched:
            whole = self._window(storage.handle)
            return self._add(x, Window(x, whole.storage, outer_window.geometry, None, is_stopped))
        else:  # its gradient is not that of the memory
            window = self._capture(x, type_of(x), storage.is_row_major)
        self._outer_memory[len(self.captures) - 1] = id(storage)
        return window

    def _capture(self, x: Any, type: TensorType, is_row_major: bool, is_stopped: bool = False) -> Window:
        stand_in = self.input(type)
        self.captures.append(x)
        self.capture_inputs.append(stand_in)
        storage = ValueStorage(x, stand_in, is_row_major, is_stopped)
        self._storages.append(storage)
        content = None if is_stopped else stand_in
        window = self._windows[id(x)] = Window(x, storage, storage.base, content, is_stopped)
        self._windows[id(stand_in)] = Window(stand_in, storage, storage.base, stand_in)
        return window

    def _take_gradient(self, storage: ValueStorage, x: Any) -> None:
        """x, which is all of the storage, becomes the capture of it, if that has no gradient."""
        if storage.is_stopped:
            storage.is_stopped = False
            storage.handle = self.captures[self._storages.index(storage)] = x

    def _add(self, x: Any, like: Window) -> Window:
        """x is in the memory of another window."""
        window = self._windows[id(x)] = Window(x, like.storage, like.geometry, None, like.is_stopped)
        return window

    def _note_view(self, node: Node, x: Any, y: Value) -> None:
        """The output of a node is in the memory of x, where its operator is a view there."""
        op: Any = node.op
        choice = _view_of(op, node.inputs[0].type if node.inputs[0] is not None else None)
        if choice is None:
            return
        window = self._window(x)
        geometry, storage = window.geometry, window.storage
        keeps_order = getattr(op, "keeps_order", False)
        if geometry is not None and keeps_order and not storage.is_row_major:
            geometry = None
        elif geometry is not None:
            try:
                if keeps_order and _is_row_major(geometry):
                    shape, strides, offset = y.shape, row_major(y.shape), 0
                else:
                    view = choice.see(geometry.shape, geometry.strides)
                    if view is None:  # a copy
                        return
                    shape, strides, offset = view
            except NeedsSizes:
                geometry = None
            else:
                geometry = geometry._replace(
                    address=geometry.address + offset * geometry.dtype.itemsize, shape=shape, strides=strides
                )
        is_stopped = window.is_stopped or _core.is_stopping()
        self._windows[id(y)] = Window(y, storage, geometry, y, is_stopped)

    def _with_marks(self, outputs: Sequence[Value]) -> Sequence[Value]:
        if not _core.is_recording():
            self._constant.update(v.node for v in outputs)
        return [stopped(v) for v in outputs] if _core.is_stopping() and not self._is_moving else outputs

    def draw(self, node: Node) -> Sequence[Value]:
        """The outputs of a random node, as of a function that runs again and again: from `stream`, at `position`."""
        assert node.op is not None
        if node.runtime or self.stream is None:
            self.refuse(f"{node.op.name} draws random numbers, which this function cannot")
        stream = self.lift(self.stream)
        self.drew = True
        op = Drawn(of=node.op, offset=self.blocks)
        self.blocks += blocks_of(node.op, *(None if v is None else v.type for v in node.inputs))
        return make_node(op, [*node.inputs, stream, self.position]).outputs

    def _check_written(self) -> None:
        for k in self.new_contents:
            for j, capture in enumerate(self.captures):
                written = self.captures[k]
                are_arrays = isinstance(written, _core.Tensor) and isinstance(capture, _core.Tensor)
                is_shared = are_arrays and _core.shares_memory(written, capture)
                is_shared = is_shared or self._outer_memory.get(k, k) == self._outer_memory.get(j, j)
                if j != k and is_shared:
                    self.refuse(
                        "an array is written that shares memory with another one, used before it: "
                        f"{type_of(written)}, {type_of(capture)}"
                    )

    def _is_new(self, x: Any) -> bool:
        return self.is_made_here(_core.geometry(x)[0])

    # Gradients.

    def watch(self, x: Any) -> Value:
        """From now on x is a Value of its own, which gradients can be asked of."""
        watched: Value = self.watched_alias(x)
        window = self._window(x)
        self._before_watch[id(watched)] = window.value
        window.value = watched
        return watched

    def watched_alias(self, x: Any) -> Value:
        """An array in the memory of x, which gradients can be asked of."""
        x = value_of(x)
        if not isinstance(x, Value | _core.Tensor):
            raise TypeError(f"{self.name}: only arrays have gradients, got {type(x).__name__}")
        window = self._window(x)
        value, storage = self._read(window), window.storage
        watched = make_node(Watched(), [value]).outputs[0]
        self._windows[id(watched)] = Window(watched, storage, window.geometry, watched)
        storage.is_watched = True
        if window.is_whole:  # so that what is written to a part of it keeps the gradient of the rest
            storage.value = watched
        return watched

    def unwatch(self, x: Any, watched: Value) -> None:
        """x is again what it was before."""
        window, earlier = self._window(x), self._before_watch.pop(id(watched))
        if window.value is watched:
            window.value = earlier
        if window.storage.value is watched and earlier is not None:
            window.storage.value = earlier

    def gradients(
        self, ys: Sequence[Any], dys: Sequence[Any], xs: Sequence[Value], is_recorded: bool
    ) -> list[Tracer | None]:
        """The gradients of ys with respect to what is watched; is_recorded: they can have gradients themselves.

        A gradient reads the Values that ys were computed from, whatever was written since to the arrays that held
        them: contents do not change. So its rules run outside of the capture, where a Value means itself; in it, it
        would mean the array that it stands for, with the content that this has now.
        """
        contents, cotangents = [self.lift(y) for y in ys], [self.lift(dy) for dy in dys]
        start = self.input(TensorType((), bool_)).node.order
        with no_capture():
            dxs = recorded_gradients(contents, xs, cotangents, self._constant)
            results: list[Value | None] = []
            for dx in dxs:
                if dx is not None and (dx.node.order < start or any(dx is other for other in results)):
                    dx = F.reshape(dx, shape=dx.shape, copy=True)  # an array of its own
                results.append(dx)
            return [None if dx is None else traced(self._marked(dx, is_recorded)) for dx in results]

    def _marked(self, dx: Value, is_recorded: bool) -> Value:
        """A gradient, marked as what operators give: without a gradient of its own where nothing is recorded."""
        if not is_recorded:
            self._constant.add(dx.node)
        return stopped(dx) if _core.is_stopping() else dx

    def gradient_of(self, x: Any, gradient: Any) -> Any:
        """The grad of an array, which the function captures."""
        return gradient

    def set_gradient(self, x: Any, dx: Any) -> None:
        """Make dx the grad of an array."""
        self.refuse("it sets the grad of an array; it may use grad or vjp instead")

    def _result(self, x: Any) -> Value:
        x = self.lift(x)
        if isinstance(x, bool | int | float):
            x = constant(x)
            x = constant(x.node.value, x.dtype)
        if not isinstance(x, Value):  # lift has none of a Tracer left
            raise TypeError(f"{self.name}: a function must give arrays and numbers, got {type(x).__name__}")
        return x

    # What became of them.

    def other_captures(self, indices: Sequence[int]) -> list[Any]:
        """The captures but for those of these indices."""
        return [x for k, x in enumerate(self.captures) if k not in indices]

    def subgraph(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> Subgraph:
        """The graph from these inputs, and those of captures that are not among them, to the outputs."""
        given = set(map(id, inputs))
        return Subgraph(Graph([*inputs, *(v for v in self.capture_inputs if id(v) not in given)], outputs))


class ProgramCapture(Capture):
    """Records a function that runs once, not again and again: it draws random numbers in the order of its program.

    floats: the inputs for floats of the call that it reads, with these, by what they come from.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.floats: dict[tuple[int, int], tuple[Value, Any]] = {}

    draw = Recorder.draw

    def number(self, x: Any) -> Any:
        if self._outer is not None:
            return self._outer.number(x)
        if x.owner is None:
            return x.value
        key = (id(x.owner), x.origin)
        if key not in self.floats:
            self.floats[key] = input_value(constant(x.value).type, f"number{x.origin}"), x
        return self.floats[key][0]


_views: Table[View | None] = Table(4096)
registry.clear_when_made_again(_views.clear)


def _view_of(op: Op, x: TensorType | None) -> View | None:
    """The view that an operator of one operand gives, if it does.

    It is asked for at each recorded call, and making an operator's kernels costs more than recording the call.
    """

    def find() -> View | None:
        try:
            choice = next(choices(op, (x,)), None)
        except NeedsSizes:  # no view does
            return None
        return choice if isinstance(choice, View) else None

    if are_guarded():  # by this call's sizes
        return find()
    return _views.get((op.__weft_key__, None if x is None else x.__weft_key__), find)


def type_of(x: Any) -> TensorType:
    """The type of an array or of a Value."""
    return x.type if isinstance(x, Value | Tracer) else TensorType(x.shape, x.dtype, x.device)


def _is_row_major(x: Geometry) -> bool:
    """Whether a window is known to have its elements in row-major order without gaps."""
    try:
        return all(
            n == 1 or a is b or a == b for n, a, b in zip(x.shape, x.strides, row_major(x.shape), strict=True)
        )
    except NeedsSizes:
        return False
