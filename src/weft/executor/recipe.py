"""What is known of a plan: what it was made from, its steps, its memory."""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.record import Record
from weft.base.typing import Any
from weft.graph.graph import Graph

__all__ = ["Lifetime", "MemoryReport", "Recipe"]


class Lifetime(Record):
    """A block of the arena: what made it, how large it is, where it lies, between which steps it is alive."""

    text: str
    size_bytes: int
    offset: int
    first: int
    last: int


class MemoryReport(Record):
    """Internal memory of a program: without what comes in and what leaves.

    naive_bytes: every result of an operator in memory of its own; merged_bytes: without those that loops keep in
    registers; in_place_bytes: results written over inputs that die; arena_bytes: with memory used again and again.
    largest_live_bytes: what is alive at once at the most, which no arena can go below. kept_bytes: what was prepared
    once and stays from run to run, beside all these.
    """

    naive_bytes: int
    merged_bytes: int
    in_place_bytes: int
    arena_bytes: int
    largest_live_bytes: int
    lifetimes: tuple[Lifetime, ...] = ()
    kept_bytes: int = 0

    def __str__(self) -> str:
        rows = (
            ("every result by itself", self.naive_bytes),
            ("results merged into loops", self.merged_bytes),
            ("in place", self.in_place_bytes),
            ("shared: the arena", self.arena_bytes),
            ("largest live set", self.largest_live_bytes),
            ("kept between runs", self.kept_bytes),
        )
        return "\n".join(f"{what:26} {size / 2**20:10.2f} MiB" for what, size in rows)


class Recipe:
    """What a plan was made from, and what it does; kept by the plan for gradients and for people.

    strides: of the arrays given; made: those of the outputs. memory: None where sizes are not known. steps: those of
    every run; prepared: those that are run again only when what they read was written; reorders: how many copies into
    other layouts the kernels of a run make.
    """

    def __init__(
        self,
        name: str,
        graph: Graph,
        strides: tuple[Any, ...],
        made: tuple[Any, ...],
        visible: int,
        steps: Sequence[str] = (),
        exact: bool = False,
        memory: MemoryReport | None = None,
        prepared: Sequence[str] = (),
        reorders: int = 0,
    ) -> None:
        self.name, self.graph, self.strides, self.made = name, graph, strides, made
        self.visible, self.steps, self.exact, self.memory = visible, list(steps), exact, memory
        self.prepared, self.reorders = list(prepared), reorders

    def memory_report(self) -> MemoryReport:
        """The plan's internal memory.

        Raises ValueError for a plan for many sizes, which has none before it runs.
        """
        if self.memory is None:
            raise ValueError(f"{self.name}: memory is not known: the plan holds for many sizes")
        return self.memory
