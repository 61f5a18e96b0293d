"""Executors under transformations: run operators one by one, as calls on arrays, so that layers see each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft import _core
from weft.arrays.tensor import Tensor
from weft.base.device import Device, cpu
from weft.base.errors import GraphError
from weft.gradients.gradient import recorded_backward
from weft.graph.constant_array import ConstantArray
from weft.graph.symbols import SymbolGradient, SymbolNode, is_partial, nodes_of
from weft.ops import registry
from weft.ops.node import Value
from weft.symbol.control import LOWERED
from weft.symbol.placement import Placement
from weft.symbol.plans import Plans

__all__ = ["EagerRun", "run_operators"]


class EagerRun:
    """One forward of an executor, and what its backward needs.

    arrays: of arguments; wanted: for each whether it has a gradient; training: for operators that leave it open, and
    whether backward may follow. Auxiliary states are written.
    Raises GraphError for loops, branches and gradients inside of the symbol: those are programs, not calls.
    """

    def __init__(
        self,
        plans: Plans,
        placement: Placement,
        arrays: Sequence[Tensor],
        states: Sequence[Tensor],
        needs_gradient: Sequence[bool],
        training: bool,
    ) -> None:
        bound = dict(zip(plans.arguments, (_core.alias(x, keep_past=False) for x in arrays), strict=True))
        self._leaves: list[Any] = [
            _core.watch(bound[name]) if training and is_needed else None
            for name, is_needed in zip(plans.arguments, needs_gradient, strict=True)
        ]
        bound |= dict(zip(plans.states, states, strict=True))
        self._ys: list[Tensor] = run_operators(plans.values, bound, training, placement.__getitem__)
        self.outputs = [_core.alias(y, keep_past=False) for y in self._ys]

    def gradients(self, cotangents: Sequence[Tensor]) -> list[Tensor | None]:
        """Those of the arguments, None for zero or if none is needed; cotangents: of the outputs that are floats."""
        ys = [y for y in self._ys if y.dtype.is_differentiable]
        leaves = [leaf for leaf in self._leaves if leaf is not None]
        gradients = iter(recorded_backward(ys, cotangents, leaves))
        return [None if leaf is None else next(gradients) for leaf in self._leaves]


def run_operators(
    values: Sequence[Value],
    bound: Mapping[str, Any],
    training: bool,
    device_of: Callable[[SymbolNode], Device | None],
) -> list[Any]:
    """What symbols' values are, of the variables' arrays: one call for each operator.

    device_of: where an operator runs, None: where its operands are. Raises GraphError for loops, branches and gradients
    inside of the symbol.
    """
    results: dict[Value, Any] = {}
    for node in nodes_of(values):
        if isinstance(node.op, ConstantArray):  # is where it is read
            continue
        outputs = [bound[node.name]] if node.op is None else _run(node, results, training, device_of(node))
        results.update(zip(node.outputs, outputs, strict=False))

    def result(value: Value) -> Any:
        node = value.node
        if isinstance(node, SymbolNode) and isinstance(node.op, ConstantArray):
            return _core.copy_of(node.op.elements.on(device_of(node) or cpu(0)))
        return results[value] if is_partial(value) else node.value

    return list(map(result, values))


def _run(node: SymbolNode, contents: dict[Value, Any], training: bool, device: Device | None) -> list[Any]:
    if isinstance(node.op, SymbolGradient) or type(node.op) in LOWERED:
        raise GraphError(
            f"{node.name}: loops, branches and gradients inside of a symbol are one program, which transformations do "
            "not see: run the executor outside of them"
        )
    op = node.resolved(training)
    arrays = (contents[v].device for v in node.sources if v in contents)
    where = device or next(arrays, cpu(0))

    def operand(value: Value | None) -> Any:
        if value is None or not is_partial(value):
            return None if value is None else value.node.value
        if isinstance(value.node.op, ConstantArray):
            return value.node.op.elements.on(where)
        array = contents[value]
        return array if device is None or array.device is device else array.to_device(device)

    operands = [operand(v) for v in node.inputs]
    results = op(*operands) if op.inputs else registry.function(op.name)(**op.values())
    return list(results) if isinstance(results, tuple | list) else [results]
