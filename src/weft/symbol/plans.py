"""The plans of a symbol on arrays of certain types: forward, forward for training, backward.

Training is one graph of values in two plans: forward also gives what backward reads, so that nothing is computed twice.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.executor.budget import within
from weft.executor.compile import compile_graph
from weft.graph.gradient import gradients
from weft.graph.graph import Graph
from weft.graph.passes import optimize
from weft.graph.split import split
from weft.ops import functions as F
from weft.ops.node import Value, input_value
from weft.ops.types import TensorType
from weft.symbol.defaults import learnable_variables
from weft.symbol.lower import Lowered, lower
from weft.symbol.placement import Placement

__all__ = ["Forward", "PlanTable", "Plans", "Signature"]

Strides = tuple[int, ...]


@dataclass(frozen=True)
class Signature:
    """What plans depend on: of arguments, then auxiliary states, types and strides; and what is wanted of gradients."""

    types: tuple[TensorType, ...]
    strides: tuple[Strides, ...]
    requests: tuple[str, ...]  # of arguments
    gradient_strides: tuple[Strides | None, ...]
    placement: Any  # Placement.key
    memory_budget: int | float | None = None  # of what is kept for backward, and temporary space


class PlanTable:
    """Plans that executors of one symbol share, the latest of them. Threads may call it; one makes, others wait."""

    MOST = 64

    def __init__(self) -> None:
        self._known: OrderedDict[Any, Any] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        with self._lock:
            if key not in self._known:
                self._known[key] = make()
                while len(self._known) > self.MOST:
                    self._known.popitem(last=False)
            self._known.move_to_end(key)
            return self._known[key]


@dataclass(frozen=True)
class Forward:
    """A forward plan. Of what it gives: where each output is, what is kept for backward, and values by name."""

    plan: Any
    outputs: tuple[int, ...]
    kept: tuple[int, ...]
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

    @property
    def name(self) -> str:
        """For error messages and timelines."""
        return self.values[-1].node.name

    def forward(self, signature: Signature, training: bool, monitored: bool) -> Forward:
        """The plan of the outputs; monitored: and of everything inside, by name."""
        key = ("forward", signature, training, monitored)
        found: Forward = self.table.get(key, lambda: self._make_forward(signature, training, monitored))
        return found

    def backward(self, signature: Signature, monitored: bool, kept: Sequence[Strides]) -> Any:
        """The plan of the gradients: of arguments and states, what was kept, outputs' gradients, gradient arrays.

        kept: the strides of what forward kept. None if nothing has a gradient.
        """
        key = ("backward", signature, monitored, tuple(kept))
        return self.table.get(key, lambda: self._make_backward(signature, monitored, kept))

    # Making them.

    def _lowered(self, signature: Signature, training: bool) -> Lowered:
        names = [*self.arguments, *self.states]
        device, groups = signature.placement
        placement = Placement(self.values, device, dict(groups))
        return lower(self.values, dict(zip(names, signature.types, strict=True)), training, placement)

    def _inputs(self, lowered: Lowered) -> list[Value]:
        return [lowered.inputs[name] for name in (*self.arguments, *self.states)]

    def _training(self, signature: Signature, monitored: bool) -> _Training:
        found: _Training = self.table.get(
            ("training", signature, monitored), lambda: _Training(self, signature, monitored)
        )
        return found

    def _make_forward(self, signature: Signature, training: bool, monitored: bool) -> Forward:
        if training:
            made = self._training(signature, monitored)
            return made.forward or self._forward_of(signature, made, monitored)
        lowered = self._lowered(signature, False)
        outputs = [lowered[value] for value in self.values]
        return self._compiled(signature, lowered, outputs, lowered.written, [], monitored, training=False)

    def _forward_of(self, signature: Signature, made: _Training, monitored: bool) -> Forward:
        kept = list(made.kept.values())
        return self._compiled(
            signature, made.lowered, made.outputs, made.written, kept, monitored, training=True
        )

    def _compiled(
        self,
        signature: Signature,
        lowered: Lowered,
        outputs: Sequence[Value],
        written: Mapping[str, Value],
        kept: Sequence[Value],
        monitored: bool,
        training: bool,
    ) -> Forward:
        named = self._named(lowered) if monitored else []
        results = list({id(v): v for v in (*outputs, *kept, *(v for _, v in named))}.values())
        place = {id(v): k for k, v in enumerate(results)}
        names = [*self.arguments, *self.states]
        writes = {len(results) + k: names.index(name) for k, name in enumerate(written)}
        graph = Graph(self._inputs(lowered), [*results, *written.values()], writes)
        own = {variable.node.name for node in lowered.nodes for variable in learnable_variables(node)}
        stable_inputs = [] if training else [k for k, name in enumerate(names) if name in own]
        plan = compile_graph(
            graph, self.name, signature.strides, visible=len(results), stable_inputs=stable_inputs
        )
        return Forward(
            plan,
            tuple(place[id(v)] for v in outputs),
            tuple(place[id(v)] for v in kept),
            tuple((name, place[id(v)]) for name, v in named),
        )

    def _named(self, lowered: Lowered) -> list[tuple[str, Value]]:
        return [
            (name, lowered[value])
            for node in lowered.nodes
            if node.op is not None
            for value, name in zip(node.outputs, node.output_names(), strict=True)
        ]

    def _make_backward(self, signature: Signature, monitored: bool, kept: Sequence[Strides]) -> Any:
        return self._backward_of(signature, self._training(signature, monitored), kept)

    def _backward_of(self, signature: Signature, made: _Training, kept: Sequence[Strides]) -> Any:
        inputs = [*self._inputs(made.lowered), *made.kept, *made.cotangents]
        outputs: list[Value] = []
        writes: dict[int, int] = {}
        strides = [*signature.strides, *kept, *(_row_major(v.shape) for v in made.cotangents)]
        for name, found, request, lie in zip(
            self.arguments, made.found, signature.requests, signature.gradient_strides, strict=True
        ):
            if lie is None:
                continue
            variable = made.lowered.inputs[name]
            cotangent = F.filled_like(variable) if found is None else found
            array = input_value(variable.type, f"{name}_grad")
            if request == "add":
                cotangent = F.add(array, cotangent)
            writes[len(outputs)] = len(inputs)
            outputs.append(cotangent)
            inputs.append(array)
            strides.append(lie)
        if not outputs:
            return None
        return compile_graph(Graph(inputs, outputs, writes), f"{self.name} gradient", strides, visible=0)


class _Training:
    """The values of training: forward ones, those kept for backward, and the gradients computed from them.

    forward: the plan of the first, if it was made to see how much memory it takes.
    """

    forward: Forward | None = None

    def __init__(self, plans: Plans, signature: Signature, monitored: bool) -> None:
        self.lowered = plans._lowered(signature, True)
        self.outputs = [self.lowered[value] for value in plans.values]
        self.written = dict(self.lowered.written)
        floats = [v for v in self.outputs if v.dtype.is_differentiable]
        self.cotangents = [input_value(v.type, f"d{k}") for k, v in enumerate(floats)]
        self.places = [k for k, v in enumerate(self.outputs) if v.dtype.is_differentiable]
        arguments = [self.lowered.inputs[name] for name in plans.arguments]
        wanted = [v for v, lie in zip(arguments, signature.gradient_strides, strict=True) if lie is not None]
        cotangents = dict(zip(map(id, wanted), gradients(floats, wanted, self.cotangents), strict=True))
        second = [cotangents.get(id(v)) for v in arguments]
        if monitored:
            self._divide([*self.outputs, *self.written.values()], second, plans._named(self.lowered))
            return
        inputs = [*plans._inputs(self.lowered), *self.cotangents]
        # The passes over both parts together decide what has to be kept.
        graph = optimize(Graph(inputs, [*self.outputs, *self.written.values(), *second]))
        budget = signature.memory_budget
        if budget is None or all(v is None for v in second):
            self._take(graph)
            return
        # What is kept are inputs of the second program, which holds them to its end.
        found = within(
            graph, plans.name, self._as, budget, lambda made: made.measured(plans, signature), frees=False
        )
        self.__dict__.update(found.__dict__)

    def _as(self, graph: Graph) -> _Training:
        """The same, computed by another graph."""
        made = copy.copy(self)
        made._take(graph)
        return made

    def _take(self, graph: Graph) -> None:
        values = list(graph.outputs)
        count = len(self.outputs)
        first = [_there(value) for value in values[: count + len(self.written)]]
        self.outputs = first[:count]
        self.written = dict(zip(self.written, first[count:], strict=True))
        self._divide(first, values[len(first) :], ())

    def _divide(
        self, first: Sequence[Value], second: Sequence[Value | None], named: Sequence[tuple[str, Value]]
    ) -> None:
        old = [self.lowered.inputs[name] for name in self.lowered.written]
        self.kept, self.found = split([*first, *(value for _, value in named)], second, old)

    def measured(self, plans: Plans, signature: Signature) -> int:
        """The bytes of what is kept for backward, and of temporary space."""
        self.forward = forward = plans._forward_of(signature, self, False)
        graph, info = forward.plan.info.graph, forward.plan.info
        backward = plans._backward_of(signature, self, [info.output_strides[k] for k in forward.kept])
        kept = [graph.outputs[k] for k in sorted(set(forward.kept) - set(forward.outputs))]
        arenas = [each.info.memory_report().arena_bytes for each in (forward.plan, backward)]
        return sum(int(v.type.size) * v.dtype.itemsize for v in kept) + max(arenas)


def _there(value: Value | None) -> Value:
    assert value is not None
    return value


def _row_major(shape: Sequence[Any]) -> Strides:
    strides: list[int] = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(int(n), 1)
    return tuple(reversed(strides))
