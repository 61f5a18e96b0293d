"""Recurrences, for operators such as LSTM: a step, planned once, that runs for every slice of an array.

The step is run by an operator of another layer (weft.executor.control), which is looked up by name.

>>> from weft.base.dtype import float32
>>> from weft.ops.node import input_value
>>> from weft.ops.types import TensorType
>>> x, h = input_value(TensorType((7, 2), float32)), input_value(TensorType((2,), float32))
>>> (last,), (sums,) = scan(lambda x, h: ([h + x], [h + x]), [x], [h], [])
>>> last.type, sums.type
(f32[2]@cpu:0, f32[7,2]@cpu:0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.base.typing import Any
from weft.ops import registry

__all__ = ["scan", "scan_gradient"]

# (slices, states, constants) -> (new states, items)
Step = Callable[..., Any]


def scan(
    step: Step,
    sequences: Sequence[Any],
    states: Sequence[Any],
    constants: Sequence[Any],
    reverse: bool = False,
) -> tuple[list[Any], list[Any]]:
    """step(*slices, *states, *constants) for each slice along the sequences' first axis: last states, stacked items.

    All are Values; states keep their types. reverse: from the last slice to the first. Equal steps are traced once
    for equal types.
    """
    result: tuple[list[Any], list[Any]] = registry.get("foreach_loop").scan(
        step, sequences, states, constants, reverse
    )
    return result


def scan_gradient(
    step: Step,
    sequences: Sequence[Any],
    befores: Sequence[Any],
    states: Sequence[Any],
    constants: Sequence[Any],
    dstates: Sequence[Any],
    ditems: Sequence[Any],
    reverse: bool = False,
) -> list[Any]:
    """The gradients of a scan's sequences, states and constants, one after the other; None for what is not a float.

    befores: for each state what every step began with, stacked; dstates, ditems: the gradients of the last states and
    of the items, None for zero.
    """
    gradients: list[Any] = registry.get("foreach_loop").scan_gradient(
        step, sequences, befores, states, constants, dstates, ditems, reverse
    )
    return gradients
