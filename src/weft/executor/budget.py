"""Plans within a memory budget: recomputes cheap results instead of keeping them, then whole segments.

>>> from weft.base.dtype import float32
>>> from weft.executor.planner import make_plan
>>> from weft.graph.graph import graph_of
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> graph = graph_of(lambda x: F.softmax(F.exp(F.softmax(x, axis=0)), axis=0), [TensorType((512,), float32)])
>>> plan = within(graph, "example", lambda g: make_plan(g, "example", exact=True), 1 << 20)
>>> plan.info.memory_report().arena_bytes <= 1 << 20
True
"""

from __future__ import annotations

from collections.abc import Callable

from weft.base.errors import GraphError
from weft.base.typing import Any
from weft.graph.graph import Graph
from weft.graph.passes.recompute import candidates, rematerialize
from weft.graph.passes.segments import SegmentSearch

__all__ = ["arena_bytes_of", "checked_budget", "within"]

LEAST_SHARE = 1 / 8  # of all candidates that each further plan computes again, so that there are few
TRIES = 6  # choices of segments, each of which is planned
CLOSE = 0.85  # of what is allowed: with less than that, less is computed again


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


def arena_bytes_of(plan: Any) -> int:
    """The temporary space of a plan."""
    size_bytes: int = plan.info.memory_report().arena_bytes
    return size_bytes


def within(
    graph: Graph,
    name: str,
    make: Callable[[Graph], Any],
    budget: int | float,
    measure: Callable[[Any], int] = arena_bytes_of,
    frees: bool = True,
) -> Any:
    """What make returns for the graph, or for one that recomputes results, so that it takes no more than the budget.

    measure: what it takes, in bytes. frees: what is kept for later is free after its last reader. Results that loops
    can compute again come first, those before others that send the fewest bytes through memory for each byte that is
    saved; if that is not enough, whole segments are computed again.
    Raises GraphError, with the numbers, if that is not enough, either.
    """
    plan = make(graph)
    first = least = measure(plan)
    allowed = int(first * budget) if isinstance(budget, float) else budget
    if first <= allowed:
        return plan
    results = sorted(candidates(graph), key=lambda c: c.traffic_bytes / c.size_bytes)
    count, over = 0, first - allowed
    enough = sum(c.size_bytes for c in results) >= over
    while enough and count < len(results):
        more = count
        while more < len(results) and (over > 0 or more < count + len(results) * LEAST_SHARE):
            over -= results[more].size_bytes
            more += 1
        count = more
        plan = make(rematerialize(graph, results[:count]))
        size_bytes = measure(plan)
        if size_bytes <= allowed:
            return plan
        least, over = min(least, size_bytes), size_bytes - allowed
    plan, reached = _in_segments(SegmentSearch(graph, frees), make, measure, first, allowed)
    if plan is not None:
        return plan
    raise GraphError(
        f"memory_budget: {name} needs at least {min(least, reached)} bytes of temporary memory, when it recomputes as "
        f"much as possible ({first} when it keeps everything), but the budget is {allowed}"
    )


def _in_segments(
    segments: SegmentSearch,
    make: Callable[[Graph], Any],
    measure: Callable[[Any], int],
    first: int,
    allowed: int,
) -> tuple[Any, int]:
    """A plan that computes whole segments again and takes at most what is allowed, or None; the least that one takes.

    What a plan takes besides saved values is known from the plain one. Where segments come out differently, the next
    choice is made with the difference; of plans that fit, the one that computes less again. If none does, the one that
    saves the most says what is possible.
    """
    besides = max(first - segments.saved_bytes, 0)
    room = float(allowed - besides)
    fitting, least, tried = None, first, 0
    while tried < TRIES:
        tried += 1
        recomputed = segments.select(room)
        if recomputed is None:
            # Besides may be less than that: what else is alive when saved values are fewer is not the same.
            if fitting is None and tried < TRIES:
                room += besides / TRIES
                continue
            break
        plan = make(rematerialize(segments.graph, recomputed))
        size_bytes = measure(plan)
        least = min(least, size_bytes)
        if size_bytes > allowed:
            if fitting is not None:
                break
            room -= max(size_bytes - allowed, room / 32)
            continue
        fitting = plan
        if size_bytes >= allowed * CLOSE:
            break
        room += (allowed - size_bytes) * CLOSE
    tightest = segments.tightest() if fitting is None else None
    if tightest is not None:
        plan = make(rematerialize(segments.graph, tightest))
        size_bytes = measure(plan)
        least = min(least, size_bytes)
        fitting = plan if size_bytes <= allowed else None
    return fitting, least
