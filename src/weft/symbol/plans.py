"""The plans of a symbol on arrays of certain types: forward, forward for training, backward.

Training is one graph of values in two plans: forward also gives what backward reads, so that nothing is computed twice.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from weft.base import process
from weft.base.cached import cached_property
from weft.base.exact import Key, exact
from weft.executor.budget import within
from weft.executor.compile import compile_graph
from weft.graph.constant_array import constants_in
from weft.graph.gradient import gradients
from weft.graph.graph import Graph
from weft.graph.passes import optimize
from weft.graph.split import split
from weft.ops import functions as F
from weft.ops import registry
from weft.ops.node import Value, input_value
from weft.ops.shapes import row_major
from weft.ops.types import TensorType
from weft.symbol.defaults import learnable_variables
from weft.symbol.lower import Lowered, lower
from weft.symbol.placement import Placement
from weft.symbol.solvers import names_of_outputs

__all__ = ["Forward", "PlanSignature", "PlanTable", "Plans", "size_bytes"]

Strides = tuple[int, ...]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class PlanSignature:
    """The key of plans: types and strides of arguments, then of auxiliary states; and the requests for gradients."""

    types: tuple[TensorType, ...]
    strides: tuple[Strides, ...]
    requests: tuple[str, ...]  # of arguments
    gradient_strides: tuple[Strides | None, ...]
    placement: Any  # Placement.key
    memory_budget: int | float | None = None  # of what is kept for backward, and temporary space

    @cached_property
    def __weft_key__(self) -> Key:
        """Exact: a budget of 1 is a byte, one of 1.0 is all."""
        return Key(tuple(exact(getattr(self, field.name)) for field in fields(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlanSignature) and self.__weft_key__ == other.__weft_key__

    def __hash__(self) -> int:
        return hash(self.__weft_key__)


class PlanTable:
    """Plans that executors of one symbol share, the latest of them. Threads may call it; one makes, others wait."""

    MOST = 64

    def __init__(self) -> None:
        self._plans: OrderedDict[Any, Any] = OrderedDict()
        self._lock = process.lock_of(self)
        self._generation = registry.generation

    def get(self, key: Any, make: Callable[[], T]) -> T:
        with self._lock:
            if self._generation != registry.generation:  # rules may call users' operators, by their names
                self._plans.clear()
                self._generation = registry.generation
            if key not in self._plans:
                self._plans[key] = make()
                while len(self._plans) > self.MOST:
                    self._plans.popitem(last=False)
            self._plans.move_to_end(key)
            plan: T = self._plans[key]
            return plan


@dataclass(frozen=True)
class Forward:
    """A forward plan. Of what it gives: where each output is, what is kept for backward, and values by name."""

    plan: Any
    outputs: tuple[int, ...]
    saved: tuple[int, ...]
    named: tuple[tuple[str, int], ...]


class Plans:
    """A symbol as executors see it: what it needs by name, and its plans."""

    def __init__(
        self,
        values: Sequence[Value],
        arguments: Sequence[str],
        states: Sequence[str],
        outputs: Sequence[str],
        table: PlanTable,
    ) -> None:
        self.values, self.arguments, self.states = tuple(values), list(arguments), list(states)
        self.outputs, self.table = list(outputs), table
        self.constants = constants_in(values)  # operands of programs behind arguments and states

    @property
    def name(self) -> str:
        """For error messages and timelines."""
        return self.values[-1].node.name

    def forward(self, signature: PlanSignature, training: bool, monitored: bool) -> Forward:
        """The plan of the outputs; monitored: and of everything inside, by name."""
        key = ("forward", signature, training, monitored)
        return self.table.get(key, lambda: self._make_forward(signature, training, monitored))

    def backward(self, signature: PlanSignature, monitored: bool, saved: Sequence[Strides]) -> Any:
        """The plan of the gradients: of arguments, states and constants, what was saved, outputs' gradients, gradient
        arrays.

        saved: the strides of what forward saved. None if nothing has a gradient.
        """
        key = ("backward", signature, monitored, tuple(saved))
        return self.table.get(
            key, lambda: self._backward_of(signature, self._training(signature, monitored), saved)
        )

    # Making them.

    def _lowered(self, signature: PlanSignature, training: bool) -> Lowered:
        names = [*self.arguments, *self.states]
        device, groups = signature.placement
        placement = Placement(self.values, device, dict(groups))
        return lower(self.values, dict(zip(names, signature.types, strict=True)), training, placement)

    def _inputs(self, lowered: Lowered) -> list[Value]:
        names = (*self.arguments, *self.states)
        return [*(lowered.inputs[name] for name in names), *lowered.constants.values()]

    def _strides(self, signature: PlanSignature) -> list[Strides]:
        return [*signature.strides, *(row_major(each.type.shape) for each in self.constants)]

    def _training(self, signature: PlanSignature, monitored: bool) -> _Training:
        key = ("training", signature, monitored)
        return self.table.get(key, lambda: _Training(self, signature, monitored))

    def _make_forward(self, signature: PlanSignature, training: bool, monitored: bool) -> Forward:
        if training:
            values = self._training(signature, monitored)
            return values.forward or self._forward_of(signature, values, monitored)
        lowered = self._lowered(signature, False)
        outputs = [lowered[value] for value in self.values]
        return self._compiled(signature, lowered, outputs, lowered.new_contents, [], monitored, False)

    def _forward_of(self, signature: PlanSignature, values: _Training, monitored: bool) -> Forward:
        lowered, outputs, saved = values.lowered, values.outputs, list(values.saved.values())
        return self._compiled(signature, lowered, outputs, values.new_contents, saved, monitored, True)

    def _compiled(
        self,
        signature: PlanSignature,
        lowered: Lowered,
        outputs: Sequence[Value],
        new_contents: Mapping[str, Value],
        saved: Sequence[Value],
        monitored: bool,
        training: bool,
    ) -> Forward:
        named = self._named_values(lowered) if monitored else []
        results = list({id(v): v for v in (*outputs, *saved, *(v for _, v in named))}.values())
        index = {id(v): k for k, v in enumerate(results)}
        names = [*self.arguments, *self.states]
        writes = {len(results) + k: names.index(name) for k, name in enumerate(new_contents)}
        graph = Graph(self._inputs(lowered), [*results, *new_contents.values()], writes)
        parameters = {variable.node.name for node in lowered.nodes for variable in learnable_variables(node)}
        stable_inputs = [] if training else [k for k, name in enumerate(names) if name in parameters]
        stable_inputs += range(len(names), len(names) + len(self.constants))
        plan = compile_graph(
            graph, self.name, self._strides(signature), visible=len(results), stable_inputs=stable_inputs
        )
        return Forward(
            plan,
            tuple(index[id(v)] for v in outputs),
            tuple(index[id(v)] for v in saved),
            tuple((name, index[id(v)]) for name, v in named),
        )

    def _named_values(self, lowered: Lowered) -> list[tuple[str, Value]]:
        return [
            (name, lowered[value])
            for node in lowered.nodes
            if node.op is not None
            for value, name in zip(node.outputs, names_of_outputs(node), strict=True)
        ]

    def _backward_of(self, signature: PlanSignature, values: _Training, saved: Sequence[Strides]) -> Any:
        inputs = [*self._inputs(values.lowered), *values.saved, *values.cotangents]
        outputs: list[Value] = []
        writes: dict[int, int] = {}
        strides = [*self._strides(signature), *saved, *(row_major(v.shape) for v in values.cotangents)]
        for name, dx, request, gradient_strides in zip(
            self.arguments, values.gradients, signature.requests, signature.gradient_strides, strict=True
        ):
            if gradient_strides is None:
                continue
            variable = values.lowered.inputs[name]
            gradient = F.filled_like(variable) if dx is None else dx
            array = input_value(variable.type, f"{name}_grad")
            writes[len(outputs)] = len(inputs)
            outputs.append(F.add(array, gradient) if request == "add" else gradient)
            inputs.append(array)
            strides.append(gradient_strides)
        if not outputs:
            return None
        return compile_graph(Graph(inputs, outputs, writes), f"{self.name} gradient", strides, visible=0)


class _Training:
    """The values of training: forward ones, those kept for backward, and the gradients computed from them.

    forward: the plan of the first, if it was made to see how much memory it takes.
    """

    forward: Forward | None = None

    def __init__(self, plans: Plans, signature: PlanSignature, monitored: bool) -> None:
        self.lowered = plans._lowered(signature, True)
        self.outputs = [self.lowered[value] for value in plans.values]
        self.new_contents = dict(self.lowered.new_contents)
        floats = [v for v in self.outputs if v.dtype.is_differentiable]
        self.cotangents = [input_value(v.type, f"d{k}") for k, v in enumerate(floats)]
        arguments = [self.lowered.inputs[name] for name in plans.arguments]
        xs = [
            v for v, strides in zip(arguments, signature.gradient_strides, strict=True) if strides is not None
        ]
        dxs = dict(zip(map(id, xs), gradients(floats, xs, self.cotangents), strict=True))
        second = [dxs.get(id(v)) for v in arguments]
        if monitored:
            self._divide(
                [*self.outputs, *self.new_contents.values()], second, plans._named_values(self.lowered)
            )
            return
        inputs = [*plans._inputs(self.lowered), *self.cotangents]
        # The passes over both parts together decide what has to be kept.
        graph = optimize(Graph(inputs, [*self.outputs, *self.new_contents.values(), *second]))
        budget = signature.memory_budget
        if budget is None or all(v is None for v in second):
            self._take(graph)
            return
        # What is kept are inputs of the second program, which holds them to its end.
        cheapest = within(
            graph, plans.name, self._as, budget, lambda values: values.measured(plans, signature), frees=False
        )
        self.__dict__.update(cheapest.__dict__)

    def _as(self, graph: Graph) -> _Training:
        """The same, computed by another graph."""
        values = copy.copy(self)
        values._take(graph)
        return values

    def _take(self, graph: Graph) -> None:
        values = list(graph.outputs)
        count = len(self.outputs)
        first = [_present(value) for value in values[: count + len(self.new_contents)]]
        self.outputs = first[:count]
        self.new_contents = dict(zip(self.new_contents, first[count:], strict=True))
        self._divide(first, values[len(first) :], ())

    def _divide(
        self, first: Sequence[Value], second: Sequence[Value | None], named: Sequence[tuple[str, Value]]
    ) -> None:
        overwritten = [self.lowered.inputs[name] for name in self.lowered.new_contents]
        self.saved, self.gradients = split([*first, *(value for _, value in named)], second, overwritten)

    def measured(self, plans: Plans, signature: PlanSignature) -> int:
        """The bytes of what is kept for backward, and of temporary space."""
        self.forward = forward = plans._forward_of(signature, self, False)
        graph, info = forward.plan.info.graph, forward.plan.info
        backward = plans._backward_of(signature, self, [info.output_strides[k] for k in forward.saved])
        saved = [graph.outputs[k] for k in sorted(set(forward.saved) - set(forward.outputs))]
        arenas = [each.info.memory_report().arena_bytes for each in (forward.plan, backward)]
        return sum(size_bytes(v.type) for v in saved) + max(arenas)


def size_bytes(t: TensorType) -> int:
    """The memory of an array."""
    return int(t.size) * t.dtype.itemsize


def _present(value: Value | None) -> Value:
    assert value is not None
    return value
