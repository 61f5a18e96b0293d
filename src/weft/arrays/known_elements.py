"""Elements that are known while a function is recorded: those of what does not depend on its arguments.

>>> import weft as wf
>>> w = wf.tensor([1., 2.])
>>> wf.vmap(lambda x: x * 2 if w.sum() > 0 else x)(wf.ones(2))
tensor([2., 2.], dtype=float32, device=cpu:0)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import _core
from weft.arrays.tensor import Tensor, element_strides
from weft.base.table import Table
from weft.executor.compile import compile_graph
from weft.graph.capture import no_capture, type_of
from weft.graph.graph import Graph
from weft.ops import registry
from weft.ops.node import Tracer

__all__ = ["elements_of"]


def elements_of(x: Tracer | Tensor, what: str) -> Tensor:
    """The elements of a Tracer, or of an array that may have been written, which no argument of a function decides.

    what: what is read, for the error. Raises TypeError for any other.
    """
    capture = _core.capture()
    elements = None if capture is None else capture.known_elements(x, _computed)
    if elements is None:
        name = "" if capture is None else f"{capture.name}: "
        verb = "are" if what.startswith("the elements") else "is"
        why = "" if capture is None else ", which depends on the arguments of the function"
        raise TypeError(
            f"{name}{what} of a value in a graph {verb} not known before it is computed; use where or cond: "
            f"x is {type_of(x)}{why}\n"
            "  hint: use weft's functions, which become part of the graph; those of other libraries read elements"
        )
    return elements


def _computed(graph: Graph, operands: Sequence[Tensor]) -> Tensor:
    """The one output of a graph, now."""
    with no_capture():
        strides = tuple(map(element_strides, operands))
        plan = _plans.get((graph.key, strides), lambda: compile_graph(graph, "constant", strides, 1))
        result: Tensor = _core.run_plan(plan, list(operands))[0]
        return result


_plans: Table[Any] = Table(256)
registry.clear_when_made_again(_plans.clear)
