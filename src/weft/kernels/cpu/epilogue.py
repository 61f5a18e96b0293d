"""An operator and the pointwise steps after it as one kernel: oneDNN's post-ops, and loops over rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft.expr import scalar as e
from weft.expr.kernel import Each, Fold, Reduction, Scan, Store
from weft.expr.kernel import parts as parts_of
from weft.kernels import choices, kernel
from weft.ops.families.activation import Gelu, HardSwish, Relu, Relu6, Silu
from weft.ops.families.arithmetic import Add, Minimum, Multiply
from weft.ops.families.elementary import Sigmoid, Tanh
from weft.ops.families.epilogue import Epilogue
from weft.ops.kernels import Loop, Native, as_stored
from weft.ops.node import Value, input_value
from weft.ops.pointwise import Pointwise
from weft.ops.types import TensorType

# What oneDNN can do to a result before it writes it, by the names that weft._core reads: one name, or the parts of a
# step. A part is a name alone, with numbers, or with OPERAND and the index of the operand that it reads.
OPERAND = "operand"
Part = str | tuple[Any, ...]
POST_OPS: dict[type[Pointwise], Part | Callable[[Any], str]] = {
    Add: "add",
    Gelu: lambda op: "gelu_tanh" if op.approximate == "tanh" else "gelu_erf",
    HardSwish: "hardswish",
    Minimum: "min",
    Multiply: "mul",
    Relu: "relu",
    Relu6: ("clip", 0.0, 6.0),
    Sigmoid: "sigmoid",
    Silu: "swish",
    Tanh: "tanh",
}


def post_op(step: Pointwise) -> Part | None:
    """What oneDNN calls a pointwise operator, None if it has no name for it.

    >>> post_op(Gelu(approximate="tanh")), post_op(Relu())
    ('gelu_tanh', 'relu')
    """
    name = POST_OPS.get(type(step))
    return name(step) if callable(name) else name


def _parts_of(step: Pointwise, index: int, operands: Sequence[TensorType | None]) -> list[Part] | None:
    """What oneDNN does for a step: the value is the step's operand of that index, the others have these types."""
    if step.family == "quantization":
        return _parts_of_quantization(step, operands) if index == 0 else None
    name = post_op(step)
    if name is None or any(t is None for t in operands):
        return None
    return [(name, OPERAND, 0)] if operands else [name]


def _parts_of_quantization(step: Pointwise, operands: Sequence[TensorType | None]) -> list[Part] | None:
    """Divided, rounded, shifted; stored as bytes, which saturates. Back: multiplied."""
    from weft.ops.families.quantization import LIMITS, QuantizeElements  # few programs have any

    if not isinstance(step, QuantizeElements):
        return [("mul", OPERAND, 0)] if operands[1] is None else None
    parts: list[Part] = ["round"] if operands[0] is None else [("div", OPERAND, 0), "round"]
    if operands[1] is not None:
        parts.append(("add", OPERAND, 1))
    if (step.low, step.high) != LIMITS[step.dtype.name]:
        parts.append(("clip", float(step.low), float(step.high)))
    return parts


@kernel(Epilogue, provider="onednn")
def epilogue(op: Epilogue, *inputs: TensorType | None) -> Iterator[Any]:
    op_inputs, extras, runtime = op.split(inputs)
    of: Any = op.of
    stand_ins = {name: input_value(t, name) for name, t in runtime.items()}
    for choice in choices(of.with_runtime(stand_ins) if runtime else of, op_inputs):
        extended: Any = None
        if isinstance(choice, Native):
            extended = _native(op, choice, op_inputs, extras)
        elif isinstance(choice, Loop):
            extended = _loop(op, choice, op_inputs, extras, list(stand_ins.values()))
        if extended is not None:
            yield extended


# Native kernels.


def _native(op: Epilogue, choice: Native, op_inputs: Sequence[Any], extras: Sequence[Any]) -> Native | None:
    """The kernel with the steps as what oneDNN calls post-ops; None if it does not take these."""
    ranks = [t.ndim for t in op_inputs if t is not None][:2]
    if (
        "post_ops" not in choice.options
        or op.runtime
        or min(ranks) < 2  # products with vectors write their result in another shape
        or any(t is not None and t.weak for t in extras)
    ):
        return None
    parts = _all_parts(op, extras)
    if parts is None or not _stores(op, op_inputs, extras):
        return None

    def make(inputs: Sequence[Any], outputs: Sequence[Any], **options: Any) -> Any:
        operands = inputs[op.count :]
        post_ops = [
            (part[0], operands[part[2]]) if isinstance(part, tuple) and OPERAND in part else part
            for part in parts
        ]
        return native(inputs[: op.count], outputs, post_ops=post_ops, **options)

    native: Any = choice.make
    return choice.replaced(make=make, options=("accumulate",))


def _all_parts(op: Epilogue, extras: Sequence[Any]) -> list[Part] | None:
    """The parts of all steps, whose operands are numbered as those of the Epilogue; None if a step has none."""
    steps: Any = op.steps
    result: list[Part] = []
    first = 0
    for step, index, count in steps:
        parts = _parts_of(step, index, extras[first : first + count - 1])
        if parts is None:
            return None
        result += [
            (*part[:2], part[2] + first) if isinstance(part, tuple) and OPERAND in part else part
            for part in parts
        ]
        first += count - 1
    return result


def _stores(op: Epilogue, op_inputs: Sequence[Any], extras: Sequence[Any]) -> bool:
    """Whether steps change the type only where oneDNN does: sums of bytes become float32 first, and bytes last."""
    of: Any = op.of
    steps: Any = op.steps
    inferred = of.infer(*op_inputs)
    first = inferred if isinstance(inferred, TensorType) else inferred[0]
    names = [first.dtype.name]

    def apply(step: Any, types: list[Any]) -> TensorType:
        result: TensorType = step.infer(*types)
        names.append(result.dtype.name)
        return result

    op.through(first, extras, apply)
    if names[0] == "int32":
        return steps[0][0].name == "dequantize_elements" and set(names[1:-1]) <= {"float32"}
    return len(set(names)) == 1


# Loops over rows.


def _loop(
    op: Epilogue, choice: Loop, op_inputs: Sequence[Any], extras: Sequence[Any], runtime: Sequence[Value]
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
        _loads(part.value, choice.inputs) for s in choice.stages[storing[-1] + 1 :] for part in parts_of(s)
    ):
        return None
    shift = len(extras) + len(runtime)
    shifted = _ShiftedLoop(
        choice, shift, {id(v): len(op_inputs) + len(extras) + k for k, v in enumerate(runtime)}
    )
    operands = iter(range(len(op_inputs), len(op_inputs) + len(extras)))
    stages = [shifted.stage(stage) for stage in choice.stages]
    last_store: Any = stages[storing[-1]]
    stores = [
        _stored(op, s, op_inputs, extras, operands) if s.operand == choice.inputs + shift else s
        for s in last_store.stores
    ]
    stages[storing[-1]] = Each(tuple(stores))
    return Loop(choice.inputs + shift, tuple(stages), choice.axes, shifted.numbers, choice.ordered)


def _stored(
    op: Epilogue, store: Store, op_inputs: Sequence[Any], extras: Sequence[Any], operands: Iterator[int]
) -> Store:
    """The store with the steps done to its value. On the way, an operand is (scalar, type), None if missing."""
    of: Any = op.of
    inferred = of.infer(*op_inputs)
    first = inferred if isinstance(inferred, TensorType) else inferred[0]
    elements = [
        None if t is None else (e.load(k, t.dtype.name), t) for k, t in zip(operands, extras, strict=True)
    ]

    def apply(step: Any, parts: list[Any]) -> tuple[e.Scalar, TensorType]:
        types = [None if part is None else part[1] for part in parts]
        dtypes = step.operand_dtypes(*types)
        scalars = [
            None if part is None else _as(part[0], part[1], dtype.name)
            for part, dtype in zip(parts, dtypes, strict=True)
        ]
        return as_stored(step.scalar(*scalars)), step.infer(*types)

    changed, _ = op.through((as_stored(store.value), first), elements, apply)
    return Store(store.operand, changed, store.add)


def _as(x: e.Scalar, type: TensorType, dtype: str) -> e.Scalar:
    """An operand's element in the type of the computation; a Python number is not rounded on its way there."""
    return e.load(x.value, dtype) if type.weak else e.cast(x, dtype)


class _ShiftedLoop:
    """A loop's stages with `shift` more inputs; runtime values (by id, their input) are loaded, not parameters."""

    def __init__(self, loop: Loop, shift: int, runtime: dict[int, int]) -> None:
        self.loop, self.shift, self.runtime = loop, shift, runtime
        self.parameters = [k for k, value in enumerate(loop.numbers) if id(value) not in runtime]
        self.numbers = tuple(loop.numbers[k] for k in self.parameters)

    def scalar(self, root: e.Scalar) -> e.Scalar:
        def replace(part: e.Scalar) -> e.Scalar:
            if part.op == "load" and part.value >= self.loop.inputs:
                return e.load(part.value + self.shift, part.dtype)
            if part.op == "parameter":
                value = self.loop.numbers[part.value]
                if id(value) in self.runtime:
                    return e.load(self.runtime[id(value)], part.dtype)
                return e.parameter(self.parameters.index(part.value), part.dtype)
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
