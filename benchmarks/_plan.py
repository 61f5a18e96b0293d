"""What a command will measure, and about how long that takes."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from _contest import BEHIND, OURS, Arena, Result
from _workloads import PEAKS, Workload

START_S = 5.0  # of a process, until its framework has been imported
PREPARE_S, FLOPS_PER_S = 20.0, 1e11  # where nothing is known

Known = Mapping[tuple[str, str, str, str], Result]


@dataclass(frozen=True)
class Contest:
    """A workload and precision, and the ways that take part, as (side, variant, the side's version)."""

    workload: Workload
    precision: str
    ways: tuple[tuple[str, str, str], ...]

    def results(self) -> list[Result]:
        return [Result(self.workload.name, self.precision, *way) for way in self.ways]

    def hold(self, arena: Arena) -> list[Result]:
        results = self.results()
        if self.workload.memory_of:
            for each in results:
                arena.memory(each, self.workload.memory_of)
        else:
            arena.contest(results)
        return results


def contests(
    hellos: Mapping[str, Mapping[str, Any]],
    workloads: Iterable[Workload],
    only: str = "",
    bars: bool = False,
    absent: Mapping[str, str] | None = None,
) -> list[Contest]:
    """Of all ways that have `only` in "side variant"; with `bars` of those precisions alone that have one.

    absent: sides, and how the names of the workloads begin that they take no part in.
    """

    def takes_part(side: str, name: str) -> bool:
        return absent is None or side not in absent or not name.startswith(absent[side])

    planned: list[Contest] = []
    for workload in (*workloads, *PEAKS):
        name = workload.memory_of or workload.name
        for precision in workload.precisions:
            ways = tuple(
                (side, case[1], hello["version"])
                for side, hello in hellos.items()
                for case in hello["cases"]
                if (case[0], case[2]) == (name, precision)
                and only in f"{side} {case[1]}"
                and takes_part(side, name)
            )
            if workload in PEAKS:
                is_selected = precision in {each.precision for each in planned}
            else:
                is_selected = not bars or precision in workload.goals
            if ways and is_selected:
                planned.append(Contest(workload, precision, ways))
    return sorted(planned, key=lambda contest: contest.workload not in PEAKS)  # what ratios need comes first


def by_way(results: Iterable[Result]) -> Known:
    return {(each.workload, each.precision, each.side, each.variant): each for each in results}


def estimate_s(contest: Contest, arena: Arena, before: Known) -> float:
    """Seconds, from what was measured before where that is known."""
    workload, total = contest.workload, 0.0
    name = workload.memory_of or workload.name
    prepare, run = {}, {}
    for side, variant, _ in contest.ways:
        result = before.get(
            (name, contest.precision, side, variant), Result(name, contest.precision, side, variant)
        )
        prepare[side, variant] = START_S + (PREPARE_S if result.prepare_s is None else result.prepare_s)
        guess_s = workload.steps * max(workload.flops / FLOPS_PER_S, 0.001)
        run[side, variant] = min(result.runs, default=guess_s)
    for way, seconds in run.items():
        total += prepare[way]
        if workload.memory_of:
            continue
        leader = min(run[other] for other in run if (other[0] == OURS) == (way[0] == OURS))
        behind = arena.trial is not None and seconds > BEHIND * leader
        total += (arena.trial if behind else arena.turns) * max(arena.budget_s, seconds)
    return total


def minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


class Progress:
    """How much is left of a plan, by how long its parts were thought to take and what they did take."""

    def __init__(self, estimates_s: Sequence[float]) -> None:
        self.estimates_s, self.done, self.start = estimates_s, 0, time.monotonic()

    def step(self) -> str:
        """To be called after each part; what to say of it."""
        self.done += 1
        elapsed_s = time.monotonic() - self.start
        pace = elapsed_s / sum(self.estimates_s[: self.done])
        remaining_s = pace * sum(self.estimates_s[self.done :])
        return f"{self.done} of {len(self.estimates_s)} done in {minutes(elapsed_s)}, about {minutes(remaining_s)} left"
