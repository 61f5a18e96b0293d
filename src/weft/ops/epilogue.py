"""An operator and the pointwise steps after it as one, for kernels that can do them before they write their result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from weft.expr import scalar as e
from weft.expr.kernel import Each, Fold, Reduction, Scan, Store
from weft.expr.kernel import parts as parts_of
from weft.ops.kernels import Loop, Native, as_stored
from weft.ops.node import Value, input_value, make_node
from weft.ops.op import Op, op
from weft.ops.pointwise import Pointwise
from weft.ops.types import TensorType

Step = tuple[
    Pointwise, int, int
]  # the operator, the place of the value so far among its operands, their number


@op
class Epilogue(Op):
    """What an operator gives, the first of it changed by pointwise steps.

    Inputs: those of the operator, then what the steps read beside the value, then the values of the operator's Runtime
    attributes named by `runtime`. of: the operator. steps: (pointwise operator, the place of the value so far among its
    operands, their number) each. Where a native kernel takes the steps, half types are rounded once, at the end.
    """

    public: ClassVar[bool] = False
    method: ClassVar[bool] = False
    of: object
    steps: object
    runtime: tuple[str, ...] = ()

    @property
    def outputs(self) -> tuple[str, ...]:  # type: ignore[override]
        of: Any = self.of
        names: tuple[str, ...] = of.outputs
        return names

    @property
    def hidden(self) -> int:  # type: ignore[override]
        return len(self.outputs) - 1

    @property
    def count(self) -> int:
        """How many inputs are the operator's own."""
        of: Any = self.of
        return len(of.inputs)

    def _split(self, given: Sequence[Any]) -> tuple[list[Any], list[Any], dict[str, Any]]:
        """The operator's inputs, those of the steps, and the runtime values by name."""
        end = len(given) - len(self.runtime)
        return (
            list(given[: self.count]),
            list(given[self.count : end]),
            dict(zip(self.runtime, given[end:], strict=True)),
        )

    def _through(self, value: Any, extras: Sequence[Any], apply: Callable[[Op, list[Any]], Any]) -> Any:
        """The value after all steps; apply(operator, operands) does one."""
        left = list(extras)
        steps: Any = self.steps
        for step, place, count in steps:
            others, left = left[: count - 1], left[count - 1 :]
            value = apply(step, [*others[:place], value, *others[place:]])
        return value

    def infer(self, *inputs: TensorType | None) -> Any:
        own, extras, _ = self._split(inputs)
        of: Any = self.of
        made = of.infer(*own)
        first, *rest = (made,) if isinstance(made, TensorType) else made
        first = self._through(first, extras, lambda step, types: step.infer(*types))
        return (first, *rest) if rest else first

    def decompose(self, *inputs: Value | None) -> Any:
        own, extras, runtime = self._split(inputs)
        of: Any = self.of
        made = make_node(of, own, runtime).outputs
        first = self._through(made[0], extras, _applied)
        return (first, *made[1:])

    def recomputed(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        own, extras, runtime = self._split(inputs)
        of: Any = self.of
        first = (of.with_runtime(runtime) if runtime else of).recomputed(own, outputs)
        return None if first is None else self._through(first, extras, _applied)

    def kernels(self, *inputs: TensorType | None) -> Iterator[Any]:
        own, extras, runtime = self._split(inputs)
        of: Any = self.of
        stand_ins = {name: input_value(t, name) for name, t in runtime.items()}
        bound = of.with_runtime(stand_ins) if runtime else of
        for choice in bound.kernels(*own):
            made: Any = None
            if isinstance(choice, Native):
                made = self._native(choice, own, extras)
            elif isinstance(choice, Loop):
                made = self._loop(choice, own, extras, list(stand_ins.values()))
            if made is not None:
                yield made

    # Native kernels.

    def _native(self, choice: Native, own: Sequence[Any], extras: Sequence[Any]) -> Native | None:
        """The kernel with the steps as what oneDNN calls post-ops; None if it does not take these."""
        steps: Any = self.steps
        ranks = [t.ndim for t in own if t is not None][:2]
        if (
            "post_ops" not in choice.options
            or self.runtime
            or min(ranks) < 2  # products with vectors write their result in another shape
            or any(step.post_op is None for step, *_ in steps)
            or any(t is None or t.weak for t in extras)
        ):
            return None

        def make(inputs: Sequence[Any], outputs: Sequence[Any], **options: Any) -> Any:
            left = list(inputs[self.count :])
            post_ops = [
                step.post_op if count == 1 else (step.post_op, left.pop(0)) for step, _, count in steps
            ]
            return native(inputs[: self.count], outputs, post_ops=post_ops, **options)

        native: Any = choice.make
        return choice.replaced(make=make, options=("accumulate",))

    # Loops over rows.

    def _loop(
        self, choice: Loop, own: Sequence[Any], extras: Sequence[Any], runtime: Sequence[Value]
    ) -> Loop | None:
        """The loop that stores the changed value; None unless it stores one at every position, as the last thing."""
        storing = [
            k
            for k, stage in enumerate(choice.stages)
            if any(isinstance(p, Store) and p.operand == choice.inputs for p in parts_of(stage))
        ]
        if not choice.axes or not storing or not isinstance(choice.stages[storing[-1]], Each):
            return None
        if any(
            _loads(part.value, choice.inputs)
            for s in choice.stages[storing[-1] + 1 :]
            for part in parts_of(s)
        ):
            return None
        shift = len(extras) + len(runtime)
        change = _Change(choice, shift, {id(v): len(own) + len(extras) + k for k, v in enumerate(runtime)})
        operands = iter(range(len(own), len(own) + len(extras)))
        stages = [change.stage(stage) for stage in choice.stages]
        last: Any = stages[storing[-1]]
        stores = [
            self._stored(s, own, extras, operands) if s.operand == choice.inputs + shift else s
            for s in last.stores
        ]
        stages[storing[-1]] = Each(tuple(stores))
        return Loop(choice.inputs + shift, tuple(stages), choice.axes, change.numbers, choice.ordered)

    def _stored(
        self, store: Store, own: Sequence[Any], extras: Sequence[Any], operands: Iterator[int]
    ) -> Store:
        """The store with the steps done to its value. On the way, an operand is (scalar, type), None if missing."""
        of: Any = self.of
        made = of.infer(*own)
        first = made if isinstance(made, TensorType) else made[0]
        given = [
            None if t is None else (e.load(k, t.dtype.name), t) for k, t in zip(operands, extras, strict=True)
        ]

        def apply(step: Any, parts: list[Any]) -> tuple[e.Scalar, TensorType]:
            types = [None if part is None else part[1] for part in parts]
            wanted = step.operand_dtypes(*types)
            scalars = [
                None if part is None else _as(part[0], part[1], dtype.name)
                for part, dtype in zip(parts, wanted, strict=True)
            ]
            return as_stored(step.scalar(*scalars)), step.infer(*types)

        changed, _ = self._through((as_stored(store.value), first), given, apply)
        return Store(store.operand, changed, store.add)


def _applied(step: Op, values: list[Any]) -> Value:
    return make_node(step, values).outputs[0]


def _as(x: e.Scalar, type: TensorType, dtype: str) -> e.Scalar:
    """An operand's element in the type of the computation; a Python number is not rounded on its way there."""
    return e.load(x.value, dtype) if type.weak else e.cast(x, dtype)


class _Change:
    """A loop's stages with `shift` more inputs; runtime values (by id, their input) are loaded, not parameters."""

    def __init__(self, loop: Loop, shift: int, runtime: dict[int, int]) -> None:
        self.loop, self.shift, self.runtime = loop, shift, runtime
        self.kept = [k for k, value in enumerate(loop.numbers) if id(value) not in runtime]
        self.numbers = tuple(loop.numbers[k] for k in self.kept)

    def scalar(self, root: e.Scalar) -> e.Scalar:
        def replace(part: e.Scalar) -> e.Scalar:
            if part.op == "load" and part.value >= self.loop.inputs:
                return e.load(part.value + self.shift, part.dtype)
            if part.op == "parameter":
                value = self.loop.numbers[part.value]
                if id(value) in self.runtime:
                    return e.load(self.runtime[id(value)], part.dtype)
                return e.parameter(self.kept.index(part.value), part.dtype)
            return part

        return e.substitute(root, replace)

    def stage(self, stage: Any) -> Any:
        if isinstance(stage, Fold):
            return Fold(tuple(map(self.reduction, stage.reductions)))
        stores = tuple(Store(s.operand + self.shift, self.scalar(s.value), s.add) for s in stage.stores)
        if isinstance(stage, Scan):
            return Scan(tuple(map(self.reduction, stage.reductions)), stores, stage.reverse)
        return type(stage)(stores)

    def reduction(self, r: Reduction) -> Reduction:
        return Reduction(r.number, r.op, self.scalar(r.value), r.start)


def _loads(root: e.Scalar, operand: int) -> bool:
    return any(part.op == "load" and part.value == operand for part in e.walk(root))


__all__ = ["Epilogue", "Step"]
