"""Composes symbols: makes the node of an operator call on symbols, and the variables of inputs that are not given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import _core
from weft.arrays.creation import asarray
from weft.base.dtype import float32
from weft.base.errors import GraphError
from weft.graph.constant_array import ConstantArray, Elements
from weft.graph.symbols import TRAINING, SymbolNode, check_written, trained, user_line, variable
from weft.ops.node import Tracer, Value, bind
from weft.ops.op import Op
from weft.ops.sizes import NeedsSizes
from weft.symbol.inference import Inference, infer, open_type
from weft.symbol.names import attributes, scoped_name
from weft.symbol.parameters import is_naming, variable_for
from weft.symbol.solvers import solver_of

__all__ = ["Outputs", "compose", "constant_array", "single"]


class Outputs:
    """Some values of symbols' nodes; the base of Symbol."""

    __slots__ = ("values",)

    def __init__(self, values: Sequence[Value]) -> None:
        self.values: tuple[Value, ...] = tuple(values)


class _Absent:
    """An input that a call does not have."""


_ABSENT = _Absent()


def compose(cls: type[Op], args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Value, ...]:
    """The outputs of a new node: cls applied to symbols, numbers, arrays and None.

    name and attr among the keywords are the node's. Learnable inputs that are missing, those that the operator writes,
    and all that its solver names by input_names become variables. Raises TypeError for arguments that do not fit,
    GraphError for what graphs cannot hold.
    """
    keywords = dict(kwargs)
    attrs = attributes(keywords.pop("attr", None))
    name = scoped_name(keywords.pop("name", None), cls.name)
    inputs, values = bind(cls, args, keywords, missing=lambda cls, spec: _ABSENT)
    for key, value in values.items():
        if key not in {a.name for a in cls.attributes}:
            accepted = ", ".join((*map(repr, cls.inputs), *map(repr, cls.attributes)))
            raise TypeError(f"{cls.name}: no argument {key}; there are: {accepted}")
        if isinstance(value, Outputs):
            raise TypeError(f"{cls.name}: {key} must be a number in a symbol, got the symbol {value!r}")
    if is_naming() and values.get(TRAINING) is True:  # a module in training: executors say whether it is
        del values[TRAINING]
    is_open = any(a.name == TRAINING for a in cls.attributes) and TRAINING not in values
    op = cls(**values)
    automatic = (*cls.learnable, *trained(op).writes)

    def new_variable(suffix: str) -> Value:
        return variable(f"{name}_{suffix}", attrs, where=user_line())

    operands: list[Operand] = []
    fixed = [spec for spec in cls.inputs if not spec.variadic]
    for spec, value in zip(fixed, inputs, strict=False):
        if value is not _ABSENT:
            operands.append(_operand(cls, value))
        elif spec.name in automatic:
            operands.append(new_variable(spec.name))
        elif spec.optional:
            operands.append(None)
        else:
            raise TypeError(f"{cls.name}: {spec.name} must be given")
    rest = inputs[len(fixed) :]
    solver = solver_of(op)
    parts = solver.input_names()
    for value in rest:
        if value is None and len(operands) < len(parts):
            operands.append(new_variable(parts[len(operands)]))
            continue
        operands.extend(value.values if isinstance(value, Outputs) else (_operand(cls, value),))
    if not rest and cls.inputs and cls.inputs[-1].variadic and cls.inputs[-1].name in automatic:
        operands.extend(new_variable(part) for part in solver.learnable_parts())
    count = _count_by_sizes(op, operands) if op.count_outputs(len(operands)) is None else None
    node = SymbolNode(op, operands, name, attrs, is_open=is_open, where=user_line(), count=count)
    check_written(node)
    return node.outputs


Operand = Value | bool | int | float | None


def _count_by_sizes(op: Op, operands: Sequence[Operand]) -> int | None:
    """How many outputs an operator has by the sizes of its inputs; None if they are not known."""
    values = [x for x in operands if isinstance(x, Value)]
    inference = Inference(values, {}, {}).run()
    if len(values) != len(operands) or any(inference.shape_of(v) is None for v in values):
        return None
    types = [
        open_type(k, inference.shape_of(v), inference.dtype_of(v) or float32) for k, v in enumerate(values)
    ]
    try:
        return len(infer(op, types)) - op.hidden
    except NeedsSizes:
        return None


def _operand(cls: type[Op], value: Any) -> Operand:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Outputs):
        return single(cls.name, value)
    if (parameter := variable_for(value)) is not None:
        return parameter
    return constant_array(cls.name, value)


def constant_array(name: str, x: Any) -> Value:
    """An array as a constant of a symbol: the elements that it has now. name: of what it is an operand of.

    Raises TypeError for what is no array, and in a module that is called with a symbol, where what is computed with
    its parameters would become a constant, too; GraphError for an array whose gradient would be lost.
    """
    is_foreign = hasattr(x, "__array_interface__") or hasattr(x, "__dlpack__")
    if isinstance(x, Tracer) or not is_foreign:
        raise TypeError(
            f"{name}: expected a symbol, a number or an array beside symbols, got {type(x).__name__}"
        )
    if is_naming():
        raise TypeError(
            f"{name}: arrays of a module that is called with a symbol must be its parameters or buffers, got "
            f"{type(x).__name__}\n  hint: register_buffer makes one a buffer, which becomes a variable"
        )
    array = asarray(x)
    if _core.is_recording() and _core.is_tracked(array):
        raise GraphError(
            f"{name}: an array is being recorded, and gradients do not go through symbols: give x.detach(): x is "
            f"{_core.describe(array)}"
        )
    op = ConstantArray(elements=Elements(array))
    return SymbolNode(op, (), scoped_name(None, op.name), attributes(None), where=user_line()).outputs[0]


def single(name: str, value: Outputs) -> Value:
    """The one output of a symbol. Raises GraphError if it has several."""
    if len(value.values) != 1:
        raise GraphError(f"{name}: takes one output, and {value!r} has {len(value.values)}: choose by [...]")
    return value.values[0]
