"""What runs of the workloads found, kept as JSON: ratios of weft to the best peer, and whether bars hold."""

import json
import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from _contest import OURS, Result
from _workloads import NATIVE, PEAKS, WORKLOADS, Goal, Workload, at_level

KNOWN = {**WORKLOADS, **{peak.name: peak for peak in PEAKS}}


@dataclass
class Report:
    """facts: machine, versions, date, command. missing: peers that did not run, with the reasons."""

    facts: dict[str, Any]
    results: list[Result] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def level(self) -> str:
        """The instruction set level that all sides were held to."""
        return str(self.facts.get("level", NATIVE)).split(" ")[0]

    def of(self, workload: str, precision: str) -> list[Result]:
        return [each for each in self.results if (each.workload, each.precision) == (workload, precision)]

    def rows(self) -> list["Measured"]:
        """Workloads and precisions that were measured, in the order of the documentation."""
        pairs = {(each.workload, each.precision) for each in self.results}
        return [
            Measured(at_level(workload, self.level), precision, self.of(workload.name, precision))
            for workload in WORKLOADS.values()
            for precision in workload.precisions
            if (workload.name, precision) in pairs
        ]

    def peak(self, workload: Workload, precision: str) -> float | None:
        """FLOP/s, or bytes/s, that the best of all sides reached; None where it was not measured."""
        name, precision = ("matmul", precision) if workload.flops else ("read", "f32")
        costs = [cost(each) for each in self.of(name, precision) if each.runs]
        return (KNOWN[name].flops or KNOWN[name].bytes) / min(costs) if costs else None


class Outcome(NamedTuple):
    """One run of a workload and precision: weft's best way, and the best peer's."""

    ours: Result | None
    other: Result | None
    tried: bool  # whether weft took part

    @property
    def ratio(self) -> float | None:
        return cost(self.ours) / cost(self.other) if self.ours and self.other else None

    def holds(self, goal: Goal | None) -> bool | None:
        """None without a bar or without something to compare; what failed does not hold."""
        if not goal or not self.tried or not self.other:
            return None
        return self.ratio is not None and self.ratio <= goal.bar


@dataclass
class Measured:
    """A workload and precision with the results of all runs."""

    workload: Workload
    precision: str
    results: list[Result]

    @property
    def name(self) -> str:
        return f"{self.workload.name} {self.precision}"

    @property
    def goal(self) -> Goal | None:
        return self.workload.goals.get(self.precision)

    def counts(self, result: Result) -> bool:
        """Whether it is one of weft's ways that are compared with the peers."""
        return result.side == OURS and (not self.workload.way or result.variant == self.workload.way)

    def outcome(self, results: Sequence[Result]) -> Outcome:
        ours = [each for each in results if self.counts(each)]
        return Outcome(best(ours), best(each for each in results if each.side != OURS), bool(ours))

    @property
    def whole(self) -> Outcome:
        """The best of all runs together."""
        return self.outcome(self.results)

    def outcomes(self) -> list[Outcome]:
        """Of each run."""
        numbers = sorted({each.run for each in self.results})
        return [self.outcome([each for each in self.results if each.run == number]) for number in numbers]

    def holds(self) -> bool | None:
        """Whether the bar holds in every run."""
        verdicts = [outcome.holds(self.goal) for outcome in self.outcomes()]
        decided = [each for each in verdicts if each is not None]
        return all(decided) if decided else None

    def ratios_of(self, ways: Sequence[Result]) -> list[float | None]:
        """Of one way, in each run, to the best peer there."""
        others = {o.other.run: cost(o.other) for o in self.outcomes() if o.other}
        return [cost(w) / others[w.run] if measured([w]) and w.run in others else None for w in ways]


def combined(reports: Sequence[Report]) -> Report:
    """One report of all: what several of them measured are further runs of it."""
    names = dict.fromkeys(name for report in reports for name in report.facts)
    whole = Report({name: together(r.facts[name] for r in reports if name in r.facts) for name in names})
    for report in reports:
        whole.missing.update(report.missing)
        before: dict[tuple[str, str], int] = {}
        for each in whole.results:
            key = each.workload, each.precision
            before[key] = max(before.get(key, 0), each.run)
        for each in report.results:
            number = before.get((each.workload, each.precision), 0) + each.run
            whole.results.append(replace(each, run=number))
    return whole


def together(facts: Iterable[Any]) -> Any:
    unique = {str(fact): fact for fact in facts}
    return next(iter(unique.values())) if len(unique) == 1 else "; ".join(unique)


def cost(result: Result) -> float:
    """Seconds of the quickest run, or MiB of the peak over what was there after the import: less is better."""
    return min(result.runs) if result.runs else result.memory["peak"] - result.memory["imported"]


def measured(results: Iterable[Result]) -> list[Result]:
    return [each for each in results if each.runs or each.memory]


def best(results: Iterable[Result]) -> Result | None:
    return min(measured(results), key=cost, default=None)


def share(report: Report, workload: Workload, result: Result) -> float | None:
    """Of what the machine can do, of operations per second or, for what reads weights, of bytes."""
    peak = report.peak(workload, result.precision)
    if not peak or not result.runs or not (workload.flops or workload.bytes):
        return None
    least = workload.flops or workload.bytes * (0.5 if result.precision == "bf16" else 1)
    return least / (cost(result) / workload.steps) / peak


def noise(runs: Sequence[float]) -> float:
    """How far the median is above the quickest."""
    return statistics.median(runs) / min(runs) - 1


# -- files -----------------------------------------------------------------------------------------------------


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def write_json(path: Path, report: Report) -> None:
    """One result a line, so that a difference can be read. The file is whole at any time."""
    lines = ",\n".join(json.dumps(rounded(asdict(each))) for each in report.results)
    head = json.dumps({"facts": report.facts, "missing": report.missing}, indent=1)
    part = path.with_name(f"{path.name}.part")
    part.write_text(f'{head[:-2]},\n "results": [\n{lines}\n]\n}}\n')
    os.replace(part, path)


def read_json(path: Path) -> Report:
    data = json.loads(path.read_text())
    return Report(data["facts"], [Result(**each) for each in data["results"]], data["missing"])
