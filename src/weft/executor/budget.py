"""Plans that fit into a memory budget: what is cheap to compute again is not kept.

>>> from weft.base.dtype import float32
>>> from weft.executor.planner import make_plan
>>> from weft.graph.graph import graph_of
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> graph = graph_of(lambda x: F.softmax(F.exp(F.softmax(x, axis=0)), axis=0), [TensorType((512,), float32)])
>>> plan = within(graph, lambda g: make_plan(g, "example", exact=True), 1 << 20)
>>> plan.recipe.memory_report().arena_bytes <= 1 << 20
True
"""

from __future__ import annotations

from collections.abc import Callable

from weft.base.errors import GraphError
from weft.base.typing import Any
from weft.graph.graph import Graph
from weft.graph.passes.recompute import candidates, recomputing
from weft.graph.rewrite import rewrite

__all__ = ["checked_budget", "within"]

LEAST_SHARE = 1 / 8  # of all candidates that each further plan computes again, so that there are few


def checked_budget(budget: Any) -> int | float | None:
    """A memory budget: bytes as an int, a share of what is needed without one as a float, or None.

    Raises TypeError for anything else, ValueError for a negative one or a share outside of 0..1.

    >>> checked_budget(0.5)
    0.5
    """
    if budget is None:
        return None
    if isinstance(budget, bool) or not isinstance(budget, int | float):
        raise TypeError(f"memory_budget: bytes as an int or a share as a float, got {budget!r}")
    if budget < 0 or (isinstance(budget, float) and not budget <= 1):
        raise ValueError(f"memory_budget: at least 0 bytes, or a share in 0.0..1.0, got {budget!r}")
    return budget


def within(graph: Graph, make: Callable[[Graph], Any], budget: int | float) -> Any:
    """The plan that make gives for the graph, or for one that computes results again, so that its arena fits.

    Those results are taken first that send the fewest bytes through memory for each byte that is saved.
    Raises GraphError if not even all of them together save enough.
    """
    plan = make(graph)
    first = least = plan.recipe.memory_report().arena_bytes
    allowed = int(first * budget) if isinstance(budget, float) else budget
    if first <= allowed:
        return plan
    known = sorted(candidates(graph), key=lambda c: c.traffic_bytes / c.size_bytes)
    count, over = 0, first - allowed
    while count < len(known):
        more = count
        while more < len(known) and (over > 0 or more < count + len(known) * LEAST_SHARE):
            over -= known[more].size_bytes
            more += 1
        count = more
        plan = make(rewrite(graph, recomputing(known[:count])))
        taken = plan.recipe.memory_report().arena_bytes
        if taken <= allowed:
            return plan
        least, over = min(least, taken), taken - allowed
    raise GraphError(
        f"memory_budget: {plan.name} cannot do with {allowed} bytes of temporary space: it takes {first} where all is"
        f" kept, {least} where the {len(known)} results that are cheap to compute again are not"
    )
