"""Records custom gradients (wf.Function) in programs that are recorded launch by launch.

A trace runs a wf.Function's forward on arrays; its backward runs only where a gradient is computed, which may be that
of the program, later. So backward is written down, too, at once and without doing anything, and becomes part of the
outputs' node (weft.graph.custom_vjp).
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from weft import _core
from weft.base.device import Device
from weft.graph.custom_vjp import CustomVjp, NoCustomVjp, listed_gradients
from weft.graph.functionalization import Geometry
from weft.graph.graph import Graph
from weft.graph.recording import CannotRecord
from weft.graph.subgraph import Subgraph
from weft.ops import functions as F
from weft.ops.node import Value, input_value, make_node
from weft.recording.launch_recorder import LaunchRecorder, Source

__all__ = ["HIDDEN", "give_custom_vjp"]

HIDDEN = (
    "the function refers to a tensor that requires a gradient and is none of its arguments, nor found by the names in"
    " it; pass it as an argument"
)


def give_custom_vjp(
    recorder: LaunchRecorder, function: Any, inputs: Sequence[Any], outputs: Sequence[Any], mark: int
) -> list[Any]:
    """The outputs of a wf.Function, whose contents have its gradient in what the recorder writes.

    mark: the last serial before forward began; outputs in older memory are copied, so that what is known of
    that stays as it is, and so are outputs in memory of other libraries, which the program does not allocate.
    """
    results = [y if _is_recorded_since(recorder, y, mark) else y.copy() for y in outputs]
    with recorder.unobserved():
        xs = [_content(recorder, x) for x in inputs]
        ys = [_content(recorder, y) for y in results]
        if recorder.is_over:
            return results
        operands = [v for v in (*ys, *xs) if v is not None]
        name = type(function).__name__
        writer = _Backward(recorder)
        try:
            subgraph, has_gradient = writer.record_backward(name, function, ys, xs)
        except Exception as problem:  # whatever backward does with arrays that hold nothing
            why = (getattr(problem, "fact", "") or str(problem) or type(problem).__name__).splitlines()[0]
            # What it came across counts as an input, too, so that asking for its gradient is an error.
            captures = (F.to_device(v, device=operands[0].type.device) for v in writer.captures.values())
            inputs_of = [*operands, *captures]
            values = make_node(NoCustomVjp(of=name, why=why, count=len(ys)), inputs_of).outputs
        else:
            op = CustomVjp(backward=subgraph, count=len(ys), wanted=has_gradient)
            values = make_node(op, [*operands, *writer.captures.values()]).outputs
        for y, value in zip(results, values, strict=True):
            if value.dtype.is_differentiable:
                geometry = Geometry(*_core.geometry(y))
                storage = recorder.storages.find(geometry)
                assert storage is not None
                storage.write(geometry, value)
    return results


def _is_recorded_since(recorder: LaunchRecorder, y: Any, mark: int) -> bool:
    """Whether an array was allocated after this serial, and its content is recorded."""
    geometry = Geometry(*_core.geometry(y))
    if geometry.serial is None or geometry.serial <= mark:
        return False
    storage = recorder.storages.find(geometry)
    return storage is not None and storage.source is None


def _content(recorder: LaunchRecorder, x: Any) -> Value | None:
    geometry = _core.geometry(x)
    recorder.met(x, geometry)
    return recorder.value(Geometry(*geometry)._replace(is_stopped=_core.is_stopped(x)))


class _Backward(LaunchRecorder):
    """Writes a backward down, and does nothing of it.

    captures: contents of the program around it that backward reads; stand_ins: the inputs of the graph for them; both
    by the id of the content.
    """

    defers = True

    def __init__(self, outer: LaunchRecorder) -> None:
        super().__init__()
        self.outer = outer
        self.captures: dict[int, Value] = {}
        self.stand_ins: dict[int, Value] = {}
        # Of regions that are computed again: the memory that the gradient is for.
        self._inside: list[set[int]] = []

    def __enter__(self) -> LaunchRecorder:  # in the epoch of the program around it
        self._before = _core.set_recorder(self)
        return self

    def __exit__(self, *_: object) -> None:
        _core.set_recorder(self._before)

    def record_backward(
        self, name: str, function: Any, ys: Sequence[Any], xs: Sequence[Any]
    ) -> tuple[Subgraph, tuple[bool, ...]]:
        """The graph of the gradients from those of the outputs and what is found, and which inputs have one."""
        cotangents = [input_value(y.type) for y in ys]
        arrays = []
        for value in cotangents:
            arrays.append(_core.empty(value.shape, value.dtype, value.type.device))
            self.storages.add(Geometry(*_core.geometry(arrays[-1])), value)
        try:
            function_copy = copy.copy(function)  # so that backward finds what forward left another time
        except Exception:
            function_copy = function
        backward: Callable[..., Any] = function_copy.backward
        _core.set_recording(False)
        try:
            with self:
                gradients = listed_gradients(name, backward(*arrays), len(xs))
        finally:
            _core.set_recording(True)
        outputs = []
        for dx, x in zip(gradients, xs, strict=True):
            if dx is None:
                continue
            if not isinstance(dx, _core.Tensor):
                raise TypeError(f"backward gave {type(dx).__name__}, not an array")
            gradient = _content(self, dx)
            assert gradient is not None
            if (gradient.shape, gradient.dtype) != (x.shape, x.dtype):
                raise TypeError(f"backward gave {gradient.type} for an input {x.type}")
            outputs.append(gradient)
        if any(s.source is not None and s.value is not s.source.value for s in self.storages):
            raise TypeError("backward writes to an array that it did not make")
        used = set(Graph((), outputs).nodes)
        for key in [key for key, value in self.stand_ins.items() if value.node not in used]:
            del self.captures[key], self.stand_ins[key]  # such as what was copied to the device beforehand
        graph = Graph([*cotangents, *self.stand_ins.values()], outputs)
        return Subgraph(graph), tuple(dx is not None for dx in gradients)

    def depends_on(self, dependency: Any) -> None:
        self.outer.depends_on(dependency)

    def add_source(self, tensor: Any, x: Geometry, is_constant: bool = False) -> None:
        if is_constant:  # made by backward, of numbers from Python
            self.outer.add_source(tensor, x, is_constant=True)
        else:
            self.outer.met(tensor, _core.geometry(tensor))
        storage = self.outer.storages.find(x)
        assert storage is not None
        stand_in = self._stand_in(storage.value)
        self.storages.add(storage.base, stand_in, Source(tensor, stand_in))

    def _stand_in(self, value: Value) -> Value:
        if value.is_constant:
            return value
        if id(value) not in self.captures:
            self.captures[id(value)] = value
            self.stand_ins[id(value)] = input_value(value.type)
        return self.stand_ins[id(value)]

    def _copied_to(self, device: Device, value: Value) -> Value:
        key = next((key for key, stand_in in self.stand_ins.items() if stand_in is value), None)
        if key is None:
            return super()._copied_to(device, value)
        return self._stand_in(self.outer._copied_to(device, self.captures[key]))

    def local_value(self, value: Value) -> Value:
        return self._stand_in(self.outer.local_value(value))

    def number(self, value: Any, origin: int) -> Value:
        return self._stand_in(self.outer.number(value, origin))

    def value(self, x: Geometry) -> Value | None:
        if x.serial is not None and self._find(x) is None:
            self.add_source(x.memory.tensor(), x)
        if self._inside and x.serial not in self._inside[-1] and not (x.is_stopped or _core.is_stopping()):
            storage = self.outer.storages.find(x)
            if storage is not None and self.outer.has_gradient(storage.value):
                raise CannotRecord("program", HIDDEN)
        return super().value(x)

    @contextlib.contextmanager
    def recomputing(self, positions: Sequence[Any], operands: Sequence[Any]) -> Iterator[None]:
        """Also raises where what the region reads besides those arrays may have a gradient, which would be lost."""
        self._inside.append({_core.geometry(x)[0] for x in operands if isinstance(x, _core.Tensor)})
        try:
            with super().recomputing(positions, operands):
                yield
        finally:
            self._inside.pop()

    def store(self, x: Geometry, value: Value, is_unrecorded: bool = False) -> None:
        if self._find(x) is None and not self._is_new(x):
            self.add_source(x.memory.tensor(), x)
        super().store(x, value, is_unrecorded)

    def _give_up(self, problem: CannotRecord) -> NoReturn:
        raise problem

    def awaited(self, geometry: Any) -> None:
        self.fail("an array was waited for or handed to the engine")

    def random_state(self) -> None:
        self.fail("the state of random numbers was looked at")
