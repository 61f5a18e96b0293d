"""An operator and the pointwise steps after it as one, for kernels that can do them before they write their result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.base.typing import Any
from weft.ops.node import Value, make_node
from weft.ops.op import Op, op
from weft.ops.pointwise import Pointwise
from weft.ops.types import TensorType

Step = tuple[Pointwise, int, int]  # the operator, the index of the value among its operands, their number


@op
class Epilogue(Op, is_merged=True, public=False):
    """An operator whose first output is changed by pointwise steps, as one node for a native kernel.

    Inputs: those of the operator, then what the steps read beside the value, then the values of the operator's Runtime
    attributes named by `runtime`. of: the operator. steps: (pointwise operator, the index of the value among its
    operands, their number) each. Where a native kernel takes the steps, half types are rounded once, at the end.
    Decomposes to the operator with all steps but the last, and that one: a kernel that does not take the last step may
    take those before it.
    """

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
        """The number of the operator's inputs."""
        of: Any = self.of
        return len(of.inputs)

    def split(self, inputs: Sequence[Any]) -> tuple[list[Any], list[Any], dict[str, Any]]:
        """The operator's inputs, those of the steps, and the runtime values by name."""
        end = len(inputs) - len(self.runtime)
        runtime = dict(zip(self.runtime, inputs[end:], strict=True))
        return list(inputs[: self.count]), list(inputs[self.count : end]), runtime

    def through(self, value: Any, extras: Sequence[Any], apply: Callable[[Op, list[Any]], Any]) -> Any:
        """The value after all steps; apply(operator, operands) does one."""
        remaining = list(extras)
        steps: Any = self.steps
        for step, index, count in steps:
            operands, remaining = remaining[: count - 1], remaining[count - 1 :]
            operands.insert(index, value)
            value = apply(step, operands)
        return value

    def infer(self, *inputs: TensorType | None) -> Any:
        op_inputs, extras, _ = self.split(inputs)
        of: Any = self.of
        inferred = of.infer(*op_inputs)
        first, *others = (inferred,) if isinstance(inferred, TensorType) else inferred
        first = self.through(first, extras, lambda step, types: step.infer(*types))
        return (first, *others) if others else first

    def decompose(self, *inputs: Value | None) -> Any:
        op_inputs, extras, runtime = self.split(inputs)
        of: Any = self.of
        steps: Any = self.steps
        *earlier, (last, index, count) = steps
        end = len(extras) - (count - 1)
        if earlier:
            shorter = Epilogue(of=of, steps=tuple(earlier), runtime=self.runtime)
            outputs = make_node(shorter, [*op_inputs, *extras[:end], *runtime.values()]).outputs
        else:
            outputs = make_node(of, op_inputs, runtime).outputs
        operands = extras[end:]
        operands.insert(index, outputs[0])
        return (make_node(last, operands).outputs[0], *outputs[1:])

    def recomputed(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        op_inputs, extras, runtime = self.split(inputs)
        of: Any = self.of
        first = (of.with_runtime(runtime) if runtime else of).recomputed(op_inputs, outputs)
        return None if first is None else self.through(first, extras, _applied)


def _applied(step: Op, values: list[Any]) -> Value:
    return make_node(step, values).outputs[0]


__all__ = ["Epilogue", "Step"]
