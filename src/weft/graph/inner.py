"""Operators for graphs inside of other graphs, where random draws and writes need another form.

A graph that runs again and again cannot take positions of the device's stream, which are taken when a program is
launched: it is not known yet how often it will run. So a random operator becomes a function: Drawn, of a stream and a
position that the graph is given.

>>> from weft.base.dtype import float32, int64
>>> from weft.ops.families.random import RandomUniform
>>> from weft.ops.types import TensorType
>>> Drawn(of=RandomUniform(shape=(2,)), offset=3).infer(TensorType((2,), int64), TensorType((), int64))
f32[2]@cpu:0
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from weft import _core
from weft.base.device import Device, cpu
from weft.base.dtype import DType, int64
from weft.base.errors import DTypeError, ShapeError
from weft.kernels import choices
from weft.ops.kernels import RESERVATION, Native
from weft.ops.node import Node, Value, make_node
from weft.ops.op import Op, op, parameters
from weft.ops.sizes import Size
from weft.ops.types import TensorType

__all__ = [
    "Again",
    "Drawn",
    "Mark",
    "Position",
    "Rewritten",
    "StopGradient",
    "Watched",
    "as_drawn",
    "blocks_of",
    "stopped",
]


class Inner(Op, family="control", public=False):
    """Base of operators that are only parts of graphs."""


@op
class Drawn(Inner, primitive=True):
    """A random operator, from a stream that is given: its inputs, then int64 words[2], then an int64 position.

    words: the key and the stream; `offset` is added to the position.
    """

    of: object
    offset: int = 0

    def check(self) -> None:
        if not isinstance(self.of, Op) or not self.of.random:
            raise TypeError(f"{self.name}: of must be a random operator, got {self.of!r}")

    @property
    def random_op(self) -> Op:
        assert isinstance(self.of, Op)
        return self.of

    @property
    def outputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.random_op.outputs

    @property
    def hidden(self) -> int:  # type: ignore[override]
        return self.random_op.hidden

    def runtime_names(self) -> tuple[str, ...]:
        return self.random_op.runtime_names()

    def with_runtime(self, values: dict[str, Any]) -> Op:
        op = self.random_op
        changed = {name: value for name, value in values.items() if name in op.runtime_names()}
        return super().with_runtime({**values, "of": op.with_runtime(changed)} if changed else values)

    def infer(self, *x: TensorType) -> Any:
        if len(x) < 2:
            raise TypeError(
                f"{self.name}: takes words and a position behind the inputs of {self.random_op.name}"
            )
        *rest, words, position = x
        if words.dtype is not int64 or position.dtype is not int64:
            raise self.fail(DTypeError, "words and positions are int64", words=words, position=position)
        if words.shape != (2,) or position.shape != ():
            raise self.fail(ShapeError, "takes two words and one position", words=words, position=position)
        return self.random_op.infer(*rest)

    def kernels(self, *x: TensorType | None) -> Iterator[Native]:
        op = self.random_op
        for choice in choices(op, x[:-2], x[-2].device):  # type: ignore[union-attr]
            assert isinstance(choice, Native), f"{op.name}: a random operator has a native kernel"
            yield _drawn(choice, self.offset)

    def vjp(self, *values: Any) -> Any:
        op = self.random_op
        count = len(values) - 2 * len(op.outputs)
        operands = [*values[: count - 2], *values[count:]]
        reads = parameters(type(op).vjp)
        if not any(p.variadic for p in reads):
            names = [*(spec.name for spec in op.inputs), *op.outputs, *(f"d{y}" for y in op.outputs)]
            operands_by_name = dict(zip(names, operands, strict=True))
            operands = [operands_by_name[p.name] for p in reads]
        gradients = op.vjp(*operands)
        return (*(gradients if isinstance(gradients, tuple) else (gradients,)), None, None)


def _drawn(choice: Native, offset: int) -> Native:
    """The kernel, with two more inputs instead of its reservation."""

    def make(inputs: Any, outputs: Any, **options: Any) -> Any:
        kernel = choice.offer(inputs[:-2], outputs, **options)
        if kernel is None:
            return None
        input_count, output_count = (sum(x is not None for x in each) for each in (inputs[:-2], outputs))
        return _core.kernel_drawn(kernel, input_count, output_count, len(choice.numbers), offset)

    numbers = tuple((0 if isinstance(value, str) else value, dtype) for value, dtype in choice.numbers)
    return Native(
        make, exact=choice.exact, numbers=numbers, contiguous=choice.contiguous, optional=choice.optional
    )


def blocks_of(op: Op, *types: TensorType | None) -> Any:
    """How many positions of a stream one run of a random operator takes; a Size where its sizes are symbols."""
    kind, dtype, count = op.random_numbers(*types)
    if not isinstance(count, Size):
        return int(_core.random_blocks(kind, dtype, count))
    first = int(_core.random_blocks(kind, dtype, 1))
    items = next(n for n in itertools.count(1) if _core.random_blocks(kind, dtype, n + 1) != first)
    return (count + (items - 1)) // items * first


@op
class Position(Inner, primitive=True, outputs=("words", "position")):
    """The position of the device's stream for a draw, as the words and the offset of Drawn; the stream advances.

    kind, dtype, count: what is drawn, as Op.random_numbers has it; device: whose stream it is.
    """

    kind: str
    dtype: DType
    count: int
    device: Device = cpu(0)

    def fixed_device(self) -> Device:
        return self.device

    def infer(self) -> tuple[TensorType, TensorType]:
        return TensorType((2,), int64, self.device), TensorType((), int64, self.device)

    def random_numbers(self, *inputs: TensorType | None) -> tuple[str, DType, Any]:
        return self.kind, self.dtype, self.count

    def kernels(self) -> Iterator[Native]:
        yield Native(lambda _, __: _core.kernel_position(), exact=False, numbers=RESERVATION)


def as_drawn(node: Node, position: Sequence[Value] | None = None) -> tuple[Sequence[Value], Sequence[Value]]:
    """The outputs of a random node as a function of a Position, and the Position's, by default of a new one.

    >>> from weft.ops.node import make_node
    >>> from weft.ops.families.random import RandomUniform
    >>> (y,), position = as_drawn(make_node(RandomUniform(shape=(2,)), ()))
    >>> y.node.inputs == position, y.type
    (True, f32[2]@cpu:0)
    """
    op = node.op
    assert op is not None
    if isinstance(op, Position):
        position = node.outputs if position is None else position
        return position, position
    if position is None:
        kind, dtype, count = op.random_numbers(*(None if v is None else v.type for v in node.inputs))
        position_op = Position(kind=kind, dtype=dtype, count=count, device=node.device or cpu(0))
        position = make_node(position_op, (), like=node).outputs
    new_node = make_node(Drawn(of=op), [*node.inputs, *position], dict(node.runtime), like=node)
    return new_node.outputs, position


class Mark(Inner, is_mark=True):
    """Base of operators that only gradients read: a value is what it was. The pass `marks` leaves the values alone."""

    def infer(self, x: TensorType) -> TensorType:
        return x.like()

    def decompose(self, x: Any) -> Any:
        return x


@op
class StopGradient(Mark, rule="x[*s]: fixed -> y[*s]: x"):
    """x, whose gradient is zero: what no_grad and detach keep out, and what operators write besides their results."""

    def vjp(self, dy: Any) -> Any:
        return None


@op
class Rewritten(Mark):
    """x, the content of an array that was written where nothing is recorded: its gradient is that of `past`.

    Eager arrays keep their history then: past is what the array held before.
    """

    def infer(self, x: TensorType, past: TensorType) -> TensorType:  # type: ignore[override]
        if x.shape != past.shape or x.dtype is not past.dtype:
            raise self.fail(ShapeError, "another type than before", x=x, past=past)
        return x.like()

    def decompose(self, x: Any, past: Any) -> Any:  # type: ignore[override]
        return x

    def vjp(self, dy: Any) -> Any:
        return None, dy


@op
class Watched(Mark):
    """x from where its gradient is computed: what was computed from x before has no part in that."""

    def vjp(self, dy: Any) -> Any:
        return dy


@op
class Again(Mark):
    """x once more, where a region is computed again for its gradient: nothing of it is taken from the first time."""

    def vjp(self, dy: Any) -> Any:
        return dy


def stopped(value: Value) -> Value:
    """The value without a gradient: itself where it has none anyway.

    >>> from weft.base.dtype import float32
    >>> from weft.ops.node import input_value
    >>> stopped(input_value(TensorType((2,), float32))).node.op
    StopGradient()
    """
    op = value.node.op
    if not value.dtype.is_differentiable or value.is_constant or (op is not None and op.stops_gradient):
        return value
    return make_node(StopGradient(), [value]).outputs[0]
