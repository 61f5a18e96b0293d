"""Operators that only graphs inside of others have: what is random, or written, means something else there.

A graph that runs again and again cannot take positions of the device's stream, which are taken when a program is
launched: nobody knows yet how often it will run. So a random operator becomes a function: Drawn, of a stream and a
position that the graph is given.

>>> from weft.base.dtype import float32, int64
>>> from weft.ops.random import RandomUniform
>>> from weft.ops.types import TensorType
>>> Drawn(of=RandomUniform(shape=(2,)), offset=3).infer(TensorType((2,), int64), TensorType((), int64))
f32[2]@cpu:0
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from weft import _core
from weft.base.dtype import int64
from weft.base.errors import DTypeError, ShapeError
from weft.ops.kernels import Native, View
from weft.ops.op import Op, op, parameters
from weft.ops.types import TensorType

__all__ = ["Detached", "Drawn", "Watched", "blocks_of"]


class Inner(Op):
    """Base."""

    public: ClassVar[bool] = False
    method: ClassVar[bool] = False
    family: ClassVar[str] = "control"


@op
class Drawn(Inner):
    """A random operator, from a stream that is given: its inputs, then int64 words[2], then an int64 position.

    words: the key and the stream; `offset` is added to the position.
    """

    of: object
    offset: int = 0

    def check(self) -> None:
        if not isinstance(self.of, Op) or not self.of.random:
            raise TypeError(f"{self.name}: of must be a random operator, got {self.of!r}")

    @property
    def outputs(self) -> tuple[str, ...]:  # type: ignore[override]
        of: Any = self.of
        found: tuple[str, ...] = of.outputs
        return found

    @property
    def hidden(self) -> int:  # type: ignore[override]
        of: Any = self.of
        found: int = of.hidden
        return found

    def infer(self, *x: TensorType) -> Any:
        of: Any = self.of
        if len(x) < 2:
            raise TypeError(f"{self.name}: takes words and a position behind the inputs of {of.name}")
        *rest, words, position = x
        if words.dtype is not int64 or position.dtype is not int64:
            raise self.fail(DTypeError, "words and positions are int64", words=words, position=position)
        if words.shape != (2,) or position.shape != ():
            raise self.fail(ShapeError, "takes two words and one position", words=words, position=position)
        return of.infer(*rest)

    def kernels(self, *x: TensorType | None) -> Iterator[Native]:
        of: Any = self.of
        for choice in of.kernels(*x[:-2]):
            assert isinstance(choice, Native), f"{of.name}: a random operator has a native kernel"
            yield _drawn(choice, self.offset)

    def vjp(self, *values: Any) -> Any:
        of: Any = self.of
        count = len(values) - 2 * len(of.outputs)
        given = [*values[: count - 2], *values[count:]]
        reads = parameters(type(of).vjp)
        if not any(p.variadic for p in reads):
            names = [*(spec.name for spec in of.inputs), *of.outputs, *(f"d{y}" for y in of.outputs)]
            known = dict(zip(names, given, strict=True))
            given = [known[p.name] for p in reads]
        found = of.vjp(*given)
        return (*(found if isinstance(found, tuple) else (found,)), None, None)

    def reference(self, *x: Any) -> Any:
        of: Any = self.of
        return of.reference(*x[:-2])


def _drawn(choice: Native, offset: int) -> Native:
    """The kernel, with two more inputs in the place of its reservation."""

    def make(inputs: Any, outputs: Any, **options: Any) -> Any:
        kernel = choice.offer(inputs[:-2], outputs, **options)
        if kernel is None:
            return None
        given, made = (sum(x is not None for x in each) for each in (inputs[:-2], outputs))
        return _core.kernel_drawn(kernel, given, made, len(choice.numbers), offset)

    numbers = tuple((0 if isinstance(value, str) else value, dtype) for value, dtype in choice.numbers)
    return Native(
        make, exact=choice.exact, numbers=numbers, contiguous=choice.contiguous, optional=choice.optional
    )


def blocks_of(op: Op, *types: TensorType | None) -> int:
    """How many positions of a stream one run of a random operator takes."""
    kind, dtype, count = op.draws(*types)
    return int(_core.random_blocks(kind, dtype, count))


@op
class Detached(Inner):
    """x, whose gradient is zero: what operators write besides their results, running statistics for one."""

    def infer(self, x: TensorType) -> TensorType:
        return x.like()

    def kernels(self, x: TensorType | None) -> Iterator[View]:  # type: ignore[override]
        yield View(lambda shape, strides: (shape, strides, 0))

    def vjp(self, dy: Any) -> Any:
        return None

    def reference(self, x: Any) -> Any:
        return x


@op
class Watched(Inner):
    """x from where its gradient is wanted: what was computed from x before has no part in that."""

    def infer(self, x: TensorType) -> TensorType:
        return x.like()

    def kernels(self, x: TensorType | None) -> Iterator[View]:  # type: ignore[override]
        yield View(lambda shape, strides: (shape, strides, 0))

    def vjp(self, dy: Any) -> Any:
        return dy

    def reference(self, x: Any) -> Any:
        return x
