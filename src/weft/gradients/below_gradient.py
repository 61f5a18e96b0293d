"""Users' transformation layers below the gradient, which see each computed operator of forward and backward.

A call that is recorded becomes a Function: forward is what the layer makes of the call, and backward runs the
operator's gradient, operator by operator, through the same layers. What the layer puts in the place of a call so has
the gradient of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import _core
from weft.arrays.tensor import Tensor
from weft.gradients.gradient import Function
from weft.graph.gradient import backward_graph
from weft.graph.graph import Graph
from weft.ops.node import Value, constant, input_value, make_node
from weft.ops.op import Op
from weft.ops.types import TensorType

__all__ = ["emit_below"]


def emit_below(emit: Callable[[Op, tuple[Any, ...]], Any], entry: Any, op: Op, args: tuple[Any, ...]) -> Any:
    """What a layer gives for a call; entry: the thread's layers from this one on, as _core.set_layers takes them."""
    is_recorded = _core.is_recording() and any(isinstance(x, Tensor) and _core.is_tracked(x) for x in args)
    if not is_recorded or not _is_split(op, args):
        return emit(op, args)
    return _Split(emit, entry, op)(*args)


def _is_split(op: Op, args: Sequence[Any]) -> bool:
    """Whether its gradient can be computed from operands and results, by calls of operators.

    Else it is recorded as it always is: what draws numbers, writes what it is given, has hidden results or a gradient
    in Python.
    """
    is_python = hasattr(op, "make_worker")
    return not (is_python or op.random or op.hidden or op.stops_gradient or op.writes_by_index(len(args)))


class _Split(Function):
    """One recorded call of an operator."""

    def __init__(self, emit: Callable[[Op, tuple[Any, ...]], Any], entry: Any, op: Op) -> None:
        self.emit, self.entry, self.op = emit, entry, op

    def forward(self, *args: Any) -> Any:
        self.args = [_core.alias(x, keep_past=True) if isinstance(x, Tensor) else x for x in args]
        results = self.emit(self.op, args)
        self.results = [results] if isinstance(results, Tensor) else list(results)
        self.write_counts = [_core.state_of(x)[1] for x in self._saved()]
        return results

    def _saved(self) -> list[Tensor]:
        return [*(x for x in self.args if isinstance(x, Tensor)), *self.results]

    def backward(self, *dy: Any) -> Any:
        if [_core.state_of(x)[1] for x in self._saved()] != self.write_counts:
            raise ValueError(
                f"backward: {self.op.name}: an operand or the result was overwritten after the call, and its gradient "
                "may need it"
            )
        before = _core.set_layers(self.entry)
        try:
            results = self.results
            if _core.is_recording():  # a gradient of this gradient needs the history of the results
                replayed = self.op(*self.args)
                results = [replayed] if isinstance(replayed, Tensor) else list(replayed)
            return self._gradients(results, dy)
        finally:
            _core.set_layers(before)

    def _gradients(self, results: Sequence[Tensor], dy: Sequence[Any]) -> list[Any]:
        operands: list[Value | None] = [
            input_value(TensorType(x.shape, x.dtype, x.device)) if isinstance(x, Tensor) else _number(x)
            for x in self.args
        ]
        outputs = make_node(self.op, operands).outputs[: len(results)]
        arrays = [x for x in self.args if isinstance(x, Tensor)]
        inputs = [
            v for v, x in zip(operands, self.args, strict=True) if v is not None and isinstance(x, Tensor)
        ]
        needs_gradient = [bool(_core.is_tracked(x)) for x in arrays]
        has_cotangent = [cotangent is not None for cotangent in dy]
        graph = backward_graph(Graph(inputs, outputs), needs_gradient, has_cotangent)
        values = [*arrays, *results, *(cotangent for cotangent in dy if cotangent is not None)]
        computed = {id(v): x for v, x in zip(graph.inputs, values, strict=True)}
        for node in graph.nodes:
            if node.op is None:
                if node.value is not None:
                    computed[id(node.outputs[0])] = node.value
                continue
            op = node.op.with_runtime({name: computed[id(v)] for name, v in node.runtime.items()})
            node_results = op(*(None if v is None else computed[id(v)] for v in node.inputs))
            node_outputs = node_results if isinstance(node_results, tuple | list) else (node_results,)
            computed.update((id(v), x) for v, x in zip(node.outputs, node_outputs, strict=False))
        gradients = iter(graph.outputs)
        cotangents = [next(gradients) if want else None for want in needs_gradient]
        return [None if v is None else computed[id(v)] for v in cotangents]


def _number(x: Any) -> Value | None:
    return None if x is None else constant(x)
