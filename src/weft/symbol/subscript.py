"""Operators of symbols whose meaning is known with the rank: x[key], x[key] = value, and x.T.

They are in graphs of symbols only. With types they become what arrays' own keys become (weft.arrays.indexing).

>>> from weft.base.dtype import float32
>>> from weft.symbol.solvers import solver_of
>>> Subscript(key=(("slice", 1, None, None), "...")).infer(TensorType((4, 3), float32))
f32[3,3]@cpu:0
>>> solver_of(Subscript(key=(0, ("slice", None, None, None), None))).shapes([(2, None)], [None])[1]
[(None, 1)]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft.arrays.indexing import get, parse, put
from weft.base.errors import ShapeError
from weft.graph.capture import no_capture
from weft.ops import functions as F
from weft.ops.families.shape import Permuting
from weft.ops.node import input_value
from weft.ops.op import Op, op
from weft.ops.shapes import Partial, merge
from weft.ops.types import TensorType
from weft.symbol.solvers import Shapes, Solver, solver

__all__ = ["ReverseDims", "Subscript", "SubscriptAssign", "split_key"]

INDEX = "index"  # in the place of an array of integers, which is an input


def split_key(key: Any, is_index: tuple[type, ...]) -> tuple[tuple[Any, ...], list[Any]]:
    """A key as an attribute, and the arrays in it, of the classes is_index. Raises TypeError for other parts."""
    parts: list[Any] = []
    indices = []
    for part in key if isinstance(key, tuple) else (key,):
        if isinstance(part, is_index):
            parts.append(INDEX)
            indices.append(part)
        elif isinstance(part, slice):
            ends = part.start, part.stop, part.step
            if not all(n is None or (isinstance(n, int) and not isinstance(n, bool)) for n in ends):
                raise TypeError(f"symbol: a slice is of integers, got {part!r}")
            parts.append(("slice", *ends))
        elif part is Ellipsis:
            parts.append("...")
        elif part is None or (isinstance(part, int) and not isinstance(part, bool)):
            parts.append(part)
        else:
            raise TypeError(
                "symbol: [...] chooses outputs by int or name, and elements by slices, ..., None, symbols and arrays of"
                f" integers, and integers beside them, got {part!r}"
            )
    return tuple(parts), indices


class Subscripting(Op, public=False):
    """Base. key: for each part an int, None, "...", ("slice", start, stop, step), or "index" for one of the inputs."""

    key: object

    def rebuilt(self, indices: Sequence[Any]) -> Any:
        """The key as Python has it."""
        rest = iter(indices)
        parts: Any = self.key
        return tuple(
            Ellipsis
            if part == "..."
            else next(rest)
            if part == INDEX
            else slice(*part[1:])
            if isinstance(part, tuple)
            else part
            for part in parts
        )

    def infer_by_values(self, *types: TensorType) -> TensorType:
        """The type of what the operators that it decomposes to give."""
        with no_capture():
            type: TensorType = self.decompose(*map(input_value, types)).type
        return type.like()


@op
class Subscript(Subscripting, rule="x, *indices: int -> y: x"):
    """x[key]."""

    def infer(self, x: TensorType, *indices: TensorType) -> TensorType:
        return self.infer_by_values(x, *indices)

    def sizes(self, shape: tuple[int | None, ...], rest: int) -> Iterator[int | None]:
        """The result's sizes; rest: how many dimensions "...", or the end of the key, stands for."""
        parts: Any = self.key
        sizes = iter(shape)
        for part in parts if "..." in parts else (*parts, "..."):
            if part is None:
                yield 1
            elif part == "...":
                yield from (next(sizes) for _ in range(rest))
            elif isinstance(part, tuple):
                n = next(sizes)
                whole = part[1:] in ((None, None, None), (None, None, 1))
                yield n if whole or n is None else len(range(n)[slice(*part[1:])])
            else:
                next(sizes)

    def decompose(self, x: Any, *indices: Any) -> Any:
        return get(x, parse(self.rebuilt(indices), x.shape))


@op
class SubscriptAssign(Subscripting, rule="x, value, *indices: int -> y: x"):
    """x, but x[key] is value."""

    def infer(self, x: TensorType, value: TensorType, *indices: TensorType) -> TensorType:
        return self.infer_by_values(x, value, *indices)

    def decompose(self, x: Any, value: Any, *indices: Any) -> Any:
        key = parse(self.rebuilt(indices), x.shape)
        result, is_view = put(x, key, value)
        return F.basic_put(x, result, items=key.items) if is_view else result


@op
class ReverseDims(Permuting, public=False):
    """A view with the dimensions in the opposite order."""

    def order(self, ndim: int) -> tuple[int, ...]:
        return tuple(reversed(range(ndim)))


@solver(Subscript)
class SubscriptSolver(Solver):
    """Sizes of a key without arrays in it."""

    def shapes(self, inputs: Sequence[Partial], outputs: Sequence[Partial]) -> Shapes:
        shape = inputs[0]
        if shape is None or len(inputs) > 1:
            return list(inputs), list(outputs)
        index_count = sum(part is not None and part != "..." for part in self.op.key)
        if index_count > len(shape):
            raise ShapeError(f"index: too many indices: {index_count} for {len(shape)} dimensions")
        return list(inputs), [merge(tuple(self.op.sizes(shape, len(shape) - index_count)), outputs[0])]


@solver(SubscriptAssign)
class SubscriptAssignSolver(Solver):
    """The result has the shape of x."""

    def shapes(self, inputs: Sequence[Partial], outputs: Sequence[Partial]) -> Shapes:
        same = merge(inputs[0], outputs[0])
        return [same, *inputs[1:]], [same]


@solver(ReverseDims)
class ReverseDimsSolver(Solver):
    """Sizes in the opposite order."""

    def shapes(self, inputs: Sequence[Partial], outputs: Sequence[Partial]) -> Shapes:
        y = outputs[0]
        same = merge(inputs[0], None if y is None else y[::-1])
        return [same], [None if same is None else same[::-1]]
