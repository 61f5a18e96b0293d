"""What a run of the workloads found: kept as JSON, and shown as tables, in the terminal and in docs/benchmarks.md."""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from _contest import Result
from _workloads import PEAKS, WORKLOADS, Goal, Workload

OURS = "weft"
OTHERS_LIMIT = 0.15  # cores in use by other processes, above which a time is not to be trusted
KNOWN = {**WORKLOADS, **{peak.name: peak for peak in PEAKS}}


@dataclass
class Report:
    """facts: machine, versions, date, command. missing: peers that did not run, with the reasons."""

    facts: dict[str, Any]
    results: list[Result] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    def of(self, workload: str, precision: str) -> list[Result]:
        return [each for each in self.results if (each.workload, each.precision) == (workload, precision)]

    def groups(self) -> list[tuple[Workload, str]]:
        """Workloads and precisions of the results, in the order in which they ran."""
        found = dict.fromkeys((each.workload, each.precision) for each in self.results)
        return [(KNOWN[workload], precision) for workload, precision in found if workload in WORKLOADS]

    def peak(self, workload: Workload, precision: str) -> float | None:
        """FLOP/s, or bytes/s, that the best of all sides reached; None where it was not measured."""
        name, precision = ("matmul", precision) if workload.flops else ("read", "f32")
        costs = [cost(each) for each in self.of(name, precision) if each.runs]
        return (KNOWN[name].flops or KNOWN[name].bytes) / min(costs) if costs else None


def combined(reports: Sequence[Report]) -> Report:
    """One report of runs that measured a part each; what they all measured, the machine's peaks, is put together.

    Of a workload that several measured, the last has all rows: ratios are of sides that took turns.
    """
    whole = Report({name: together(r.facts[name] for r in reports) for name in reports[0].facts})
    peaks: dict[tuple[str, ...], Result] = {}
    for report in reports:
        whole.missing.update(report.missing)
        for workload, precision in report.groups():
            stale = whole.of(workload.name, precision)
            whole.results = [each for each in whole.results if each not in stale]
        for each in report.results:
            key = (each.workload, each.precision, each.side, each.variant)
            if each.workload in WORKLOADS:
                whole.results.append(each)
            elif key in peaks:
                peaks[key].runs += each.runs
            else:
                peaks[key] = each
    whole.results[:0] = peaks.values()
    return whole


def together(facts: Iterable[Any]) -> Any:
    found = list(dict.fromkeys(str(fact) for fact in facts))
    return found[0] if len(found) == 1 else "; ".join(found)


def cost(result: Result) -> float:
    """Seconds of the quickest run, or MiB of the peak over what was there after the import: less is better."""
    return min(result.runs) if result.runs else result.memory["peak"] - result.memory["imported"]


def measured(results: Iterable[Result]) -> list[Result]:
    return [each for each in results if each.runs or each.memory]


def best(results: Iterable[Result]) -> Result | None:
    return min(measured(results), key=cost, default=None)


def split(results: Iterable[Result]) -> tuple[Result | None, Result | None]:
    """weft's best result and the peers' best."""
    results = list(results)
    return best(r for r in results if r.side == OURS), best(r for r in results if r.side != OURS)


def share(report: Report, workload: Workload, result: Result) -> float | None:
    """Of what the machine can do, of operations per second or, for what reads weights, of bytes."""
    peak = report.peak(workload, result.precision)
    if not peak or not result.runs or not (workload.flops or workload.bytes):
        return None
    least = workload.flops or workload.bytes * (0.5 if result.precision == "bf16" else 1)
    return least / (cost(result) / workload.steps) / peak


def number(value: float | None, form: str = ".3g") -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if form == ".3g" and abs(value) >= 1000 else format(value, form)


def value_of(workload: Workload, result: Result, seconds: float | None = None) -> str:
    if not (result.runs or result.memory):
        return ""
    return number(
        workload.shown(cost(result) if seconds is None else seconds) if result.runs else cost(result)
    )


def goal_of(workload: Workload, precision: str) -> Goal | None:
    return workload.goals.get(precision)


def holds(workload: Workload, precision: str, results: Sequence[Result]) -> bool | None:
    """Whether the bar holds; None without a bar or without something to compare."""
    ours, other = split(results)
    goal = goal_of(workload, precision)
    return cost(ours) <= goal.bar * cost(other) if ours and other and goal else None


def summary(report: Report) -> list[list[str]]:
    """A row for each workload: weft's best way beside the best peer."""
    rows = [["workload", "unit", "weft", "best peer", "ratio", "bar", "aim", "holds", "of the peak"]]
    for workload, precision in report.groups():
        results = report.of(workload.name, precision)
        ours, other = split(results)
        goal = goal_of(workload, precision)
        ratio = cost(ours) / cost(other) if ours and other else None
        part = share(report, workload, ours) if ours else None
        rows.append(
            [
                f"{workload.name} {precision}",
                workload.unit,
                f"{value_of(workload, ours)} ({ours.variant})" if ours else "failed",
                f"{value_of(workload, other)} ({other.side}, {other.variant})" if other else "",
                number(ratio, ".2f"),
                number(goal.bar if goal else None, ".2f"),
                number(goal.aim if goal else None, ".2f"),
                {None: "", True: "yes", False: "NO"}[holds(workload, precision, results)],
                number(part, ".0%"),
            ]
        )
    return rows


def noise(result: Result) -> float:
    """How far the median run is above the quickest."""
    return statistics.median(result.runs) / min(result.runs) - 1


def details(report: Report) -> list[list[str]]:
    """A row for every way of every side."""
    rows = [
        ["workload", "side", "way", "best", "median", "unit", "noise", "runs", "ratio", "of the peak", "note"]
    ]
    found = dict.fromkeys((each.workload, each.precision) for each in report.results)
    for name, precision in found:
        workload, results = KNOWN[name], report.of(name, precision)
        _, other = split(results)
        for each in results:
            timed, whole = bool(each.runs), bool(each.runs or each.memory)
            rows.append(
                [
                    f"{name} {precision}",
                    each.side,
                    each.variant,
                    value_of(workload, each),
                    value_of(workload, each, statistics.median(each.runs)) if timed else "",
                    workload.unit,
                    number(noise(each), ".0%") if timed else "",
                    str(len(each.runs) or ""),
                    number(cost(each) / cost(other), ".2f") if whole and other and name in WORKLOADS else "",
                    number(share(report, workload, each), ".0%"),
                    note(each),
                ]
            )
    return rows


def note(result: Result) -> str:
    if result.error:
        return result.error
    if result.memory:
        over = {k: result.memory[k] - result.memory["imported"] for k in ("built", "steady")}
        return ", ".join(f"{k} {number(v)}" for k, v in over.items())
    return f"others {result.others:g}" if (result.others or 0) > OTHERS_LIMIT else ""


# -- text ------------------------------------------------------------------------------------------------------


def plain(rows: Sequence[Sequence[str]]) -> str:
    """Columns padded with spaces, without those that are empty."""
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    padded = [[cell.ljust(max(map(len, column))) for cell in column] for column in columns]
    return "\n".join("  ".join(line).rstrip() for line in zip(*padded, strict=True))


def markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = [[cell.replace("|", "/") for cell in row] for row in rows]
    lines.insert(1, ["---"] * len(rows[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def closing(report: Report) -> str:
    outcomes = [holds(w, precision, report.of(w.name, precision)) for w, precision in report.groups()]
    return f"{outcomes.count(True)} bars hold, {outcomes.count(False)} do not"


def show(report: Report) -> None:
    print(f"\n{plain(details(report))}\n\n{plain(summary(report))}")
    for peer, reason in report.missing.items():
        print(f"{peer} did not run: {reason}")
    print(f"\n{closing(report)}")


# -- files -----------------------------------------------------------------------------------------------------


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def write_json(path: Path, report: Report) -> None:
    """One result a line, so that a difference can be read."""
    lines = ",\n".join(json.dumps(rounded(asdict(each))) for each in report.results)
    head = json.dumps({"facts": report.facts, "missing": report.missing}, indent=1)
    path.write_text(f'{head[:-2]},\n "results": [\n{lines}\n]\n}}\n')


def read_json(path: Path) -> Report:
    data = json.loads(path.read_text())
    return Report(data["facts"], [Result(**each) for each in data["results"]], data["missing"])


BEGIN, END = "<!-- measured: ./dev bench writes what follows -->", "<!-- end of what was measured -->"


def section(report: Report, picture: str) -> str:
    """The part of docs/benchmarks.md that a run replaces."""
    facts = "\n".join(f"- {name}: {value}" for name, value in report.facts.items())
    missing = "".join(f"- did not run: {peer}: {reason}\n" for peer, reason in report.missing.items())
    outcome = (
        f"{closing(report)}. Ratios are of times (or memory), weft's over the best peer's: less is better."
    )
    parts = [
        BEGIN,
        facts + "\n" + missing,
        f"![weft beside the best peer]({picture})\n",
        f"{outcome}\n",
        markdown(summary(report)) + "\n",
        "### Every way of every side\n",
        markdown(details(report)) + "\n",
        END,
    ]
    return "\n".join(parts)


def write_page(page: Path, report: Report, picture: str) -> None:
    """Replace what was measured in the page."""
    text = page.read_text()
    if BEGIN not in text or END not in text:
        raise ValueError(f"{page.name} has no lines {BEGIN!r} and {END!r} to write between")
    before, after = text.split(BEGIN, 1)[0], text.split(END, 1)[1]
    page.write_text(before + section(report, picture) + after)
