"""Calls of operators on symbols: the node that a call makes, and the variables it makes by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.errors import GraphError
from weft.ops.node import bind
from weft.ops.op import Op
from weft.symbol.names import attributes, named
from weft.symbol.node import OPEN, Entry, Operand, SymbolNode, check_written, trained, user_line
from weft.symbol.parameters import inside, named_as

__all__ = ["Outputs", "compose", "single"]


class Outputs:
    """Some outputs of nodes; what a Symbol is at heart."""

    __slots__ = ("entries",)

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries: tuple[Entry, ...] = tuple(entries)


class _Absent:
    """An input that a call does not have."""


_ABSENT = _Absent()


def compose(cls: type[Op], args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Entry, ...]:
    """The outputs of a new node: cls applied to symbols, numbers and None.

    name and attr among the keywords are the node's. Learnable inputs that are missing, those that the operator
    writes, and all that it names by made_inputs, become variables. Raises TypeError for arguments that do not fit,
    GraphError for what graphs cannot hold.
    """
    given = dict(kwargs)
    attrs = attributes(given.pop("attr", None))
    name = named(given.pop("name", None), cls.name)
    inputs, values = bind(cls, args, given, missing=lambda cls, spec: _ABSENT)
    for key, value in values.items():
        if key not in {a.name for a in cls.attributes}:
            known = ", ".join((*map(repr, cls.inputs), *map(repr, cls.attributes)))
            raise TypeError(f"{cls.name}: no argument {key}; there are: {known}")
        if isinstance(value, Outputs):
            raise TypeError(f"{cls.name}: {key} must be a number in a symbol, got the symbol {value!r}")
    if inside() and values.get(OPEN) is True:  # a module that may be trained: executors know whether it is
        del values[OPEN]
    is_open = any(a.name == OPEN for a in cls.attributes) and OPEN not in values
    op = cls(**values)
    made_here = (*cls.learnable, *trained(op).writes)

    def variable(suffix: str) -> Entry:
        return SymbolNode(None, (), f"{name}_{suffix}", attrs, where=user_line()), 0

    operands: list[Operand] = []
    fixed = [spec for spec in cls.inputs if not spec.variadic]
    for spec, value in zip(fixed, inputs, strict=False):
        if value is not _ABSENT:
            operands.append(_operand(cls, value))
        elif spec.name in made_here:
            operands.append(variable(spec.name))
        elif spec.optional:
            operands.append(None)
        else:
            raise TypeError(f"{cls.name}: {spec.name} must be given")
    rest = inputs[len(fixed) :]
    parts = op.made_inputs()
    for value in rest:
        if value is None and len(operands) < len(parts):
            operands.append(variable(parts[len(operands)]))
            continue
        operands.extend(value.entries if isinstance(value, Outputs) else (_operand(cls, value),))
    if not rest and cls.inputs and cls.inputs[-1].variadic and cls.inputs[-1].name in made_here:
        operands.extend(variable(part) for part in op.learnable_parts())
    node = SymbolNode(op, operands, name, attrs, is_open=is_open, where=user_line())
    check_written(node)
    return tuple((node, k) for k in range(node.count))


def _operand(cls: type[Op], value: Any) -> Operand:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Outputs):
        return single(cls.name, value)
    if (variable := named_as(value)) is not None:
        return variable
    raise TypeError(
        f"{cls.name}: expected a symbol or a number beside other symbols, got {type(value).__name__}"
    )


def single(name: str, value: Outputs) -> Entry:
    """The one output of a symbol. Raises GraphError if it has several."""
    if len(value.entries) != 1:
        raise GraphError(f"{name}: takes one output, and {value!r} has {len(value.entries)}: choose by [...]")
    return value.entries[0]
