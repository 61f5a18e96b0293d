"""Applies an operator to every example of a batch, by its own kernel with one more axis.

>>> from weft.base.dtype import float32
>>> from weft.ops import registry
>>> from weft.ops.types import TensorType
>>> Batched(of=registry.get("softmax")(), size=5, ranks=(1,)).infer(TensorType((5, 3), float32))
f32[5,3]@cpu:0

A loop runs over one more dimension, a view shows one more, and parts are copied into views with one more. So whatever
has such a kernel needs no rule of its own for vmap. Its gradient is the batched gradient of the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft.expr import scalar as e
from weft.expr.kernel import Chain, Each, Fold, Once, Reduction, Scan, Stage, Store
from weft.graph.gradient import backward_graph
from weft.graph.graph import Graph
from weft.kernels import choices
from weft.ops import functions as F
from weft.ops.kernels import Loop, Parts, See, Several, View
from weft.ops.node import Node, input_value
from weft.ops.op import Op, op
from weft.ops.types import TensorType
from weft.transform.batching import Batch

__all__ = ["Batched"]


@op
class Batched(Op, family="control", primitive=True, public=False):
    """An operator for `size` examples at once: batched inputs, and all outputs, have them along the first axis.

    ranks: for each input, how many dimensions an example of it has; -1: it is not batched. A batched input may have
    dimensions of size 1 between the first one and an example's, so that it broadcasts with the others in a loop.
    numbers: the Runtime attributes that are the last inputs, because they differ from example to example.
    """

    of: object
    size: int
    ranks: tuple[int, ...]
    numbers: tuple[str, ...] = ()

    @property
    def outputs(self) -> tuple[str, ...]:  # type: ignore[override]
        of: Any = self.of
        names: tuple[str, ...] = of.outputs
        return names

    @property
    def hidden(self) -> int:  # type: ignore[override]
        of: Any = self.of
        count: int = of.hidden
        return count

    def runtime_names(self) -> tuple[str, ...]:
        of: Any = self.of
        return tuple([name for name in of.runtime_names() if name not in self.numbers])

    def with_runtime(self, values: dict[str, Any]) -> Op:
        of: Any = values.get("of", self.of)
        inner = {name: value for name, value in values.items() if name in self.runtime_names()}
        return super().with_runtime({**values, "of": of.with_runtime({**of.values(), **inner})})

    def examples(self, x: Sequence[TensorType | None]) -> list[TensorType | None]:
        """The types of one example's operands."""
        return [
            t if t is None or rank < 0 else t.like(t.shape[t.ndim - rank :])
            for t, rank in zip(x, self.ranks, strict=True)
        ]

    @property
    def count(self) -> int:
        """How many inputs the operator has."""
        return len(self.ranks) - len(self.numbers)

    def infer(self, *x: TensorType | None) -> Any:
        of: Any = self.of
        inferred = of.infer(*self.examples(x)[: self.count])
        if isinstance(inferred, TensorType):
            return inferred.like((self.size, *inferred.shape))
        return tuple(t.like((self.size, *t.shape)) for t in inferred)

    def kernels(self, *x: TensorType | None) -> Iterator[Any]:
        of: Any = self.of
        types = self.examples(x)
        numbers = {
            name: input_value(t) for name, t in zip(self.numbers, types[self.count :], strict=True) if t
        }
        bound = of.with_runtime(numbers) if numbers else of
        for choice in choices(bound, types[: self.count]):
            if numbers and isinstance(choice, Loop | Several):
                choice = _reading(choice, self.count, list(numbers.values()))
            elif numbers or not isinstance(choice, Loop | View | Parts | Several):
                continue
            yield _with_an_axis(choice)

    def vjp(self, *values: Any) -> Any:
        of: Any = self.of
        count = len(self.ranks)
        number = (len(values) - count) // 2
        inputs, outputs, cotangents = values[:count], values[count : count + number], values[count + number :]
        first_number = self.count
        types = self.examples([None if v is None else v.type for v in inputs])
        stand_ins: list[Any] = [
            None if t is None else v if v.is_constant else input_value(t)
            for v, t in zip(inputs, types, strict=True)
        ]
        inferred = of.infer(*types[:first_number])
        node = Node(
            of,
            stand_ins[:first_number],
            (inferred,) if isinstance(inferred, TensorType) else tuple(inferred),
            dict(zip(self.numbers, stand_ins[first_number:], strict=True)),
        )
        variables = [k for k, v in enumerate(stand_ins) if v is not None and not v.is_constant]
        has_gradient = [
            k < first_number and inputs[k].dtype.is_differentiable and not inputs[k].type.weak
            for k in variables
        ]
        graph = Graph([stand_ins[k] for k in variables], node.outputs)
        backward = backward_graph(graph, has_gradient, [dy is not None for dy in cotangents])
        operands = [self._example_of(inputs[k], self.ranks[k]) for k in variables]
        flags = [self.ranks[k] >= 0 for k in variables]
        operands += [*outputs, *(dy for dy in cotangents if dy is not None)]
        flags += [True] * (len(operands) - len(flags))
        results = iter(Batch(self.size).run(backward, operands, flags))
        gradients: list[Any] = [None] * count
        for k, differentiable in zip(variables, has_gradient, strict=True):
            if differentiable:
                gradients[k] = self._gradient(*next(results), inputs[k], self.ranks[k])
        return tuple(gradients)

    def _example_of(self, x: Any, rank: int) -> Any:
        """An operand without the dimensions that only align it."""
        extra = x.ndim - rank - 1
        return F.squeeze(x, axis=tuple(range(1, extra + 1))) if rank >= 0 and extra else x

    def _gradient(self, dx: Any, is_batched: bool, x: Any, rank: int) -> Any:
        if dx is None:
            return None
        if rank < 0:
            return F.sum(dx, axis=0) if is_batched else dx * self.size
        if not is_batched:
            dx = F.broadcast_to(dx, shape=(self.size, *dx.shape))
        return F.reshape(dx, shape=x.shape) if dx.shape != x.shape else dx


def _reading(choice: Any, count: int, numbers: Sequence[Any]) -> Any:
    """Loops that read these of their numbers from operands, behind the `count` inputs of the operator."""
    if isinstance(choice, Several):
        more = range(count, count + len(numbers))
        return Several(
            tuple(
                (_reading(loop, count, numbers), (*reads, *more), writes)
                for loop, reads, writes in choice.parts
            )
        )
    indices = {v: k for k, v in enumerate(numbers)}
    read = {k: indices[v] for k, v in enumerate(choice.numbers) if v in indices}
    rest = [k for k in range(len(choice.numbers)) if k not in read]

    def change(part: e.Scalar) -> e.Scalar:
        if part.op == "load" and part.value >= choice.inputs:  # an output
            return e.load(part.value + len(numbers), part.dtype)
        if part.op != "parameter":
            return part
        if part.value not in read:
            return e.parameter(rest.index(part.value), part.dtype)
        number = read[part.value]
        return e.cast(e.load(choice.inputs + number, numbers[number].dtype.name), part.dtype)

    return choice.replaced(
        inputs=choice.inputs + len(numbers),
        stages=tuple(_stage(stage, change, len(numbers)) for stage in choice.stages),
        numbers=tuple(choice.numbers[k] for k in rest),
    )


def _with_an_axis(choice: Any) -> Any:
    """A choice of kernels for one more dimension, the first."""
    match choice:
        case Loop():
            return choice.replaced(
                stages=tuple(_stage(stage, _one_further) for stage in choice.stages),
                axes=tuple(axis + 1 for axis in choice.axes),
            )
        case View():
            return View(_see(choice.see))
        case Parts():
            return choice.replaced(parts=tuple((k, _see(see)) for k, see in choice.parts))
        case Several():
            return Several(tuple((_with_an_axis(part), *operands) for part, *operands in choice.parts))


def _see(see: See) -> See:
    def batched_see(shape: tuple[Any, ...], strides: tuple[Any, ...]) -> Any:
        view = see(shape[1:], strides[1:])
        if view is None:
            return None
        inner, steps, offset = view
        return (shape[0], *inner), (strides[0], *steps), offset

    return batched_see


Change = Callable[[e.Scalar], e.Scalar]


def _stage(stage: Stage, change: Change, more: int = 0) -> Stage:
    """The stage with each part of its expressions changed, where outputs come behind so many more inputs."""

    def store(each: Store) -> Store:
        value = e.substitute(each.value, change)
        changed: Store = each.replaced(operand=each.operand + more, value=value)
        return changed

    def reduction(each: Reduction) -> Reduction:
        changed: Reduction = each.replaced(value=e.substitute(each.value, change))
        return changed

    match stage:
        case Each():
            return Each(tuple(map(store, stage.stores)))
        case Once():
            return Once(tuple(map(store, stage.stores)))
        case Fold():
            return Fold(tuple(map(reduction, stage.reductions)))
        case Scan():
            return Scan(
                tuple(map(reduction, stage.reductions)), tuple(map(store, stage.stores)), stage.reverse
            )
        case Chain():
            starts, news = ([e.substitute(x, change) for x in xs] for xs in (stage.starts, stage.news))
            return Chain(tuple(starts), tuple(news), tuple(map(store, stage.stores)), stage.reverse)


def _one_further(part: e.Scalar) -> e.Scalar:
    """Each dimension is one further from the first."""
    return e.index(part.value + 1) if part.op == "index" else part
