"""From a graph of many operations to a plan: the passes, then the planner.

Traces, symbols' executors and lazy evaluation all come through here; a call of one operator has nothing to optimise and
goes to the planner directly.

>>> from weft.base.dtype import float32
>>> from weft.graph.graph import graph_of
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> plan = compile_graph(graph_of(lambda x: F.exp(x) + F.exp(x), [TensorType((2, 3), float32)]), "example")
>>> plan.name
'example'
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from weft.base import events
from weft.base.typing import Any
from weft.executor.budget import within
from weft.executor.planner import committed, make_plan
from weft.graph.graph import Graph
from weft.graph.passes import PREPARATION, optimize, skipped

__all__ = ["compile_graph"]


@events.noted("optimize", lambda graph, name, *_, **__: name)
def compile_graph(
    graph: Graph,
    name: str,
    strides: Sequence[Any] = (),
    visible: int | None = None,
    as_tuple: bool = True,
    stable_inputs: Collection[int] = (),
    memory_budget: int | float | None = None,
) -> Any:
    """The _core.Plan of a graph of exact sizes, optimised.

    strides: of the arrays among its inputs, in elements, row-major where none are given; visible: how many of its
    outputs callers get, in memory of their own. stable_inputs: indices of inputs whose content seldom
    changes: what depends on nothing else is prepared, and made again after a write to one of them. memory_budget: bytes
    that its temporary space may take, or the share of what it takes without one.
    Raises what rules raise, GraphError for a budget that cannot be met.
    """
    marked = graph
    if stable_inputs and PREPARATION not in skipped():
        marked = Graph(graph.inputs, graph.outputs, graph.writes, stable_inputs)

    def make(optimized: Graph) -> Any:
        return make_plan(
            optimized,
            name,
            strides,
            visible=visible,
            exact=True,
            as_tuple=as_tuple,
            owned_outputs=visible or 0,
            commits=committed(graph),
        )

    optimized = optimize(marked)
    plan = make(optimized) if memory_budget is None else within(optimized, name, make, memory_budget)
    plan.info.graph = graph  # as it was written: of it are gradients made, and graphs that it is called in
    plan.is_of_many()
    return plan
