"""Functions as graphs: a function is called once with Values, and what it did is held as a value.

Traces with dynamic axes and transformations of functions record in this way. What differs between them are arguments:
the capture, which decides about effects and reads of elements, which arguments are one array, and which leaves of the
result are outputs.

>>> import weft as wf
>>> from weft.base.structure import flatten
>>> x, w = wf.ones(2), wf.ones(2)
>>> leaves, structure = flatten(((x,), {}))
>>> recorded = RecordedFunction(ProgramCapture("f"), lambda x: x * w, leaves, structure, [type_of(x)])
>>> recorded.captures[0] is w, len(recorded.inputs), len(recorded.outputs)
(True, 1, 1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from weft import _core
from weft.arrays import tracer as tracer  # so that recorded functions hold arrays
from weft.arrays.traced_float import TracedFloats
from weft.base.structure import Structure
from weft.graph.capture import ProgramCapture, type_of
from weft.ops import functions as F
from weft.ops.node import Value, traced
from weft.ops.types import TensorType
from weft.recording.control_flow_effects import may_share_memory

__all__ = ["RecordedFunction", "is_array", "materialized"]

NO_FLOATS = TracedFloats(())


class RecordedFunction:
    """A function that was called with Values: its graph, and what it does to arrays.

    values: what each leaf of its arguments was in that call. inputs: the graph's inputs for the arrays among them, each
    once; arguments: these arrays. leaves, of this structure: of its result, as the function held them; outputs: the
    Values of those that are outputs, in order. captures: all arrays that it captures, then the floats of the call that
    it reads; extra: the inputs for them. contents: what it writes to captured arrays, those of `written_captures`, and
    then to its arguments, those of `written_inputs`; all by index.
    """

    def __init__(
        self,
        capture: ProgramCapture,
        function: Callable[..., Any],
        leaves: Sequence[Any],
        structure: Structure,
        types: Sequence[TensorType | None],
        *,
        floats: TracedFloats = NO_FLOATS,
        same: Mapping[int, int] | None = None,
        is_output: Callable[[Any], bool] | None = None,
    ) -> None:
        """types: of those leaves that are arrays. floats: of those that are inputs. same: leaves -> earlier ones that
        are the same array. is_output: which leaves of the result are outputs; by default arrays. Raises CannotRecord
        where an argument is written whose memory another one uses, too.
        """
        self.capture = capture
        self.values = self._values(leaves, types, floats, same or {})
        self.inputs = list(dict.fromkeys(v for v in self.values if isinstance(v, Value)))
        self.arguments = [leaves[self.values.index(v)] for v in self.inputs]
        args, kwargs = structure.build([*map(traced, self.values)])
        try:
            recorded = capture.run(lambda: function(*args, **kwargs), is_output or is_array)
        finally:
            floats.close()
        self.leaves, self.structure, self.outputs = recorded
        written = capture.written(self.inputs)
        self.written_captures, self.written_inputs = list(capture.new_contents), list(written)
        self.contents = [*capture.new_contents.values(), *written.values()]
        numbers_read = list(capture.floats.values())
        self.extra = [*capture.capture_inputs, *(v for v, _ in numbers_read)]
        self.captures = [*capture.captures, *(x if x.owner else x.value for _, x in numbers_read)]
        self.check_written(zip(leaves, self.values, strict=True))

    def _values(
        self,
        leaves: Sequence[Any],
        types: Sequence[TensorType | None],
        floats: TracedFloats,
        same: Mapping[int, int],
    ) -> list[Any]:
        values: list[Any] = []
        numbers = iter(floats.numbers)
        for k, (leaf, t) in enumerate(zip(leaves, types, strict=True)):
            if t is None:
                values.append(next(numbers, leaf) if type(leaf) is float else leaf)
            elif k in same:
                values.append(values[same[k]])
            else:
                values.append(self.capture.input(t))
                if type(leaf) is _core.Tensor and not _core.is_contiguous(leaf):
                    self.capture.set_unknown_strides(values[-1])
        return values

    def check_written(self, others: Iterable[tuple[Any, Any]]) -> None:
        """Raise CannotRecord where an argument is written whose memory one of other arrays uses, too.

        others: pairs of an array and the Value that it is, if it is an argument.
        """
        written = [(self.arguments[k], self.inputs[k]) for k in self.written_inputs]
        for other, value in others if written else ():
            for argument, its_value in written:
                if value is not its_value and is_array(other) and may_share_memory(other, argument):
                    self.capture.refuse(
                        "an argument is written whose memory is used under another name, too: "
                        f"{type_of(argument)}, {type_of(other)}"
                    )


def is_array(x: Any) -> bool:
    """Whether x is an array, or a Value."""
    return isinstance(x, Value | _core.Tensor)


def materialized(v: Value) -> Value:
    """The value as an operator gives it: a result is an array of its own, neither a number nor an argument."""
    if v.node.op is not None:
        return v
    copy: Value = F.reshape(v, shape=v.shape, copy=True)
    return copy
