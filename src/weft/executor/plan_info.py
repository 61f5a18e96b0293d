"""Information about a plan, for tools: its source graph, its steps, its memory."""

from __future__ import annotations

import itertools
from _weakref import ref  # all that is needed of weakref, which a first result would wait for
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from weft.base.device import Device
from weft.base.record import Record
from weft.base.typing import Any
from weft.graph.graph import Graph

__all__ = ["Lifetime", "MemoryReport", "PlanInfo", "Work", "all_infos", "info_of"]

_serials = itertools.count(1)
_infos: dict[int, ref[PlanInfo]] = {}  # by serial


def info_of(serial: int) -> PlanInfo | None:
    """The info of this serial; None if its plan is gone."""
    reference = _infos.get(serial)
    return None if reference is None else reference()


def all_infos() -> list[PlanInfo]:
    """Of all plans that are there."""
    return [info for reference in tuple(_infos.values()) if (info := reference()) is not None]


class Lifetime(Record):
    """A block of the arena: what made it, how large it is, its offset, between which steps it is alive.

    where: the user's line, "" if it is not known; type: of the array.
    """

    text: str
    size_bytes: int
    offset: int
    first: int
    last: int
    where: str = ""
    type: str = ""


class MemoryReport(Record):
    """Internal memory of a program: without what comes in and what leaves.

    naive_bytes: every result of an operator in memory of its own; merged_bytes: without those that loops keep in
    registers; in_place_bytes: results written over inputs that die; arena_bytes: with memory used again and again.
    largest_live_bytes: what is alive at once at the most, which no arena can go below. kept_bytes: what was prepared
    once and stays from run to run, beside all these.
    passed_bytes: of several devices, what parts give each other: memory of its own, counted in all the others.
    devices: of a program of several devices, the same of each. Its parts on a device use one arena one after the
    other.
    """

    naive_bytes: int
    merged_bytes: int
    in_place_bytes: int
    arena_bytes: int
    largest_live_bytes: int
    lifetimes: tuple[Lifetime, ...] = ()
    kept_bytes: int = 0
    passed_bytes: int = 0
    devices: Mapping[Device, MemoryReport] = MappingProxyType({})

    def after(self, part: MemoryReport, passed_bytes: int) -> MemoryReport:
        """Of what runs before a part on its device, and of the part, which gives others so many bytes."""
        passed = self.passed_bytes + passed_bytes
        report: MemoryReport = self.replaced(
            naive_bytes=self.naive_bytes + part.naive_bytes + passed_bytes,
            merged_bytes=self.merged_bytes + part.merged_bytes + passed_bytes,
            in_place_bytes=self.in_place_bytes + part.in_place_bytes + passed_bytes,
            passed_bytes=passed,
            kept_bytes=self.kept_bytes + part.kept_bytes,
            arena_bytes=max(self.arena_bytes - self.passed_bytes, part.arena_bytes) + passed,
            largest_live_bytes=max(self.largest_live_bytes - self.passed_bytes, part.largest_live_bytes)
            + passed,
        )
        return report

    @staticmethod
    def together(devices: Mapping[Device, MemoryReport]) -> MemoryReport:
        """Of several devices."""
        sums = {
            name: sum(getattr(report, name) for report in devices.values())
            for name in MemoryReport._fields
            if name.endswith("_bytes")
        }
        return MemoryReport(**sums, devices=devices)

    def __str__(self) -> str:
        rows = (
            ("every result by itself", self.naive_bytes),
            ("results merged into loops", self.merged_bytes),
            ("in place", self.in_place_bytes),
            ("shared: the arena", self.arena_bytes),
            ("largest live set", self.largest_live_bytes),
            ("kept between runs", self.kept_bytes),
        )
        lines = [f"{what:26} {size / 2**20:10.2f} MiB" for what, size in rows]
        return "\n".join([*lines, *(f"{device}:\n{report}" for device, report in self.devices.items())])


class Work(Record):
    """What a step computes: nodes of the graph, the user's line, and the loops it was made of with their spaces.

    is_reference: whether it runs a library's slow reference code.
    """

    nodes: tuple[Any, ...]
    where: str = ""
    loops: tuple[tuple[Any, tuple[Any, ...]], ...] = ()
    is_reference: bool = False


class PlanInfo:
    """What a plan was made from, and what it does; kept by the plan for gradients and for people.

    strides: of the inputs; output_strides: of the outputs. memory: None where sizes are not known. steps: those of
    every run; hoisted: those that are run again only when what they read was written; reorders: how many copies into
    other layouts the kernels of a run make. serial: its number in the native program. work: for each step that the
    native core runs, first those of `hoisted`, what it computes.
    """

    def __init__(
        self,
        name: str,
        graph: Graph,
        strides: tuple[Any, ...],
        output_strides: tuple[Any, ...],
        visible: int,
        steps: Sequence[str] = (),
        exact: bool = False,
        memory: MemoryReport | None = None,
        hoisted: Sequence[str] = (),
        reorders: int = 0,
        work: Sequence[Work] = (),
    ) -> None:
        self.name, self.graph, self.strides, self.output_strides = name, graph, strides, output_strides
        self.visible, self.steps, self.exact, self.memory = visible, list(steps), exact, memory
        self.hoisted, self.reorders = list(hoisted), reorders
        self.work = list(work)
        # A plan of its gradient that was made to see whether there is one: (needs_gradient, has_cotangent, plan).
        self.checked_gradient: tuple[Any, ...] = ()
        self.serial = next(_serials)
        serial = self.serial
        _infos[serial] = ref(self, lambda _: _infos.pop(serial, None))

    def memory_report(self) -> MemoryReport:
        """The plan's internal memory.

        Raises ValueError for a plan for many sizes, which has none before it runs.
        """
        if self.memory is None:
            raise ValueError(f"{self.name}: memory is not known: the plan holds for many sizes")
        return self.memory
