"""Counts what weft has done: the first thing to look at when a program is slow, since counts do not vary."""

from __future__ import annotations

from weft import _core
from weft.expr import compiler

__all__ = ["Counting", "counters"]


def counters() -> dict[str, int]:
    """All counters of the process, since its start.

    launches: calls of plans, eager or traced; kernels: their steps that ran; plan hits and misses: signatures of eager
    calls that were known, or not; planner calls: plans that were made; primitives: of oneDNN, found ready or made;
    compiled: kernels that LLVM made, from disk: that it had made in an earlier process.

    >>> from weft.tools.counters import counters
    >>> counters()["launches"] >= 0
    True
    """
    programs, operators = _core.program_counters(), _core.operator_counters()
    primitives = _core.onednn_counters()
    return {
        "launches": programs["launches"],
        "kernels": programs["kernels"],
        "plan hits": operators["hits"],
        "plan misses": operators["misses"],
        "planner calls": operators["planner_calls"],
        "primitive hits": primitives["hits"],
        "primitive misses": primitives["misses"],
        "compiled": compiler.counters["compiled"],
        "from disk": compiler.counters["from_disk"],
    }


class Counting:
    """Counts what happens while it is entered: `counts` holds the counters that changed, afterwards.

    >>> import weft as wf
    >>> from weft.tools.counters import Counting
    >>> a = wf.ones((4, 4))
    >>> b = a + 1
    >>> with Counting() as counting:
    ...     for _ in range(3):
    ...         b = a + 1
    >>> counting.counts["launches"], "planner calls" in counting.counts
    (3, False)
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._initial: dict[str, int] = {}

    def __enter__(self) -> Counting:
        self._initial = counters()
        return self

    def __exit__(self, *error: object) -> None:
        changes = {name: value - self._initial[name] for name, value in counters().items()}
        self.counts = {name: change for name, change in changes.items() if change}
