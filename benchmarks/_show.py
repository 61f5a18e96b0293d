"""Reports as tables, in the terminal and in docs/benchmarks.md."""

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from _contest import OURS
from _machine import OTHERS_LIMIT
from _page import markdown, replace_between
from _reasons import NONE, Reason, reasons
from _report import Measured, Report, Result, best, cost, noise, share
from _workloads import NATIVE, PEAKS, WORKLOADS, Workload


def number(value: float | None, form: str = ".3g") -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if form == ".3g" and abs(value) >= 1000 else format(value, form)


def value_of(workload: Workload, result: Result | None) -> str:
    """The best run in the workload's unit."""
    if result is None:
        return ""
    return number(workload.shown(cost(result)) if result.runs else cost(result))


def listed(ratios: Iterable[float | None]) -> str:
    """A ratio for each run, where there are some."""
    texts = ["failed" if ratio is None else number(ratio, ".2f") for ratio in ratios]
    return ", ".join(texts) if set(texts) != {"failed"} else ""


# -- rows ------------------------------------------------------------------------------------------------------


def summary(report: Report) -> list[list[str]]:
    """A row for each workload: weft's best way beside the best peer; their ratio in each run."""
    rows = [["workload", "unit", "weft", "best peer", "ratio", "bar", "aim", "holds", "of the peak"]]
    for row in report.rows():
        ours, other, tried = row.whole
        part = share(report, row.workload, ours) if ours else None
        rows.append(
            [
                row.name,
                row.workload.unit,
                f"{value_of(row.workload, ours)} ({ours.variant})" if ours else "failed" if tried else "",
                f"{value_of(row.workload, other)} ({other.way})" if other else "",
                listed(outcome.ratio for outcome in row.outcomes()),
                number(row.goal.bar if row.goal else None, ".2f"),
                number(row.goal.aim if row.goal else None, ".2f"),
                {None: "", True: "yes", False: "NO"}[row.holds()],
                number(part, ".0%"),
            ]
        )
    return rows


def details(report: Report) -> list[list[str]]:
    """A row for every way of every side; one for each peer that did not run."""
    rows = [
        ["workload", "side", "way", "best", "median", "unit", "noise", "runs", "ratio", "of the peak", "note"]
    ]
    peaks = [Measured(peak, p, report.of(peak.name, p)) for peak in PEAKS for p in peak.precisions]
    for row in [*peaks, *report.rows()]:
        ways: dict[tuple[str, str], list[Result]] = {}
        for each in row.results:
            ways.setdefault((each.side, each.variant), []).append(each)
        rows += [detail(report, row, way) for way in ways.values()]
    rows += [["", peer, *[""] * 8, f"did not run: {reason}"] for peer, reason in report.missing.items()]
    return rows


def detail(report: Report, row: Measured, way: Sequence[Result]) -> list[str]:
    """One way in all runs."""
    workload, top = row.workload, best(way)
    runs = [seconds for result in way for seconds in result.runs]
    return [
        row.name,
        way[0].side,
        way[0].variant,
        value_of(workload, top),
        number(workload.shown(statistics.median(runs))) if runs else "",
        workload.unit,
        number(noise(runs), ".0%") if runs else "",
        str(len(runs) or ""),
        "" if workload in PEAKS else listed(row.ratios_of(way)),
        number(share(report, workload, top), ".0%") if top else "",
        "; ".join(dict.fromkeys(text for result in way for text in notes(result))),
    ]


def notes(result: Result) -> Iterable[str]:
    if result.dropped:
        count = len(result.runs)
        yield f"left out after {count} run{'s' * (count > 1)}: {result.dropped}"
    if result.memory:
        over = {k: result.memory[k] - result.memory["imported"] for k in ("built", "steady")}
        yield ", ".join(f"{k} {number(v)}" for k, v in over.items())
    if (result.others or 0) > OTHERS_LIMIT:
        yield f"others {result.others:g}"
    if result.error:
        yield f"{'then ' if result.runs else ''}{result.error}"


# -- sentences -------------------------------------------------------------------------------------------------


def misses(report: Report) -> dict[str, tuple[str, Reason | None]]:
    """Of each row whose bar does not hold: the numbers, and why that is, where somebody found out."""
    texts = {}
    known_reasons = reasons("workloads")
    for row in report.rows():
        if row.goal and row.holds() is False:
            text = f"{listed(outcome.ratio for outcome in row.outcomes()) or 'failed'}; the bar is {row.goal.bar:.2f}"
            if needed := share_at_bar(report, row):
                text += f", which takes {needed:.0%} of the peak"
            texts[row.name] = text, known_reasons.get(row.name)
    return texts


def share_at_bar(report: Report, row: Measured) -> float | None:
    """Of the peak, that weft has to reach to hold the bar beside the best peer."""
    ours, other, _ = row.whole
    reached = share(report, row.workload, ours) if ours else None
    return reached * cost(ours) / (row.goal.bar * cost(other)) if reached and other and row.goal else None


def closing(report: Report) -> str:
    rows = [row for row in report.rows() if row.holds() is not None]
    verdicts = [row.holds() for row in rows]
    text = f"{verdicts.count(True)} bars hold, {verdicts.count(False)} do not"
    counts = [len(row.outcomes()) for row in rows]
    if not counts:
        return text
    runs = " to ".join(dict.fromkeys((str(min(counts)), str(max(counts)))))
    return f"{text}, in {runs} run" + ("" if runs == "1" else "s")


def warnings(report: Report) -> list[str]:
    """What makes the numbers less trustworthy."""
    return [text for text in (disturbance(report), absence(report)) if text]


def disturbance(report: Report) -> str:
    """Where other processes were at work."""
    sampled = [each for each in report.results if each.others is not None]
    disturbed = [each for each in sampled if each.others > OTHERS_LIMIT]
    if not disturbed:
        return ""
    most = max(each.others for each in disturbed)
    where = ", ".join(dict.fromkeys(f"{each.workload} {each.precision}" for each in disturbed))
    return (
        f"The machine was not quiet: during {len(disturbed)} of {len(sampled)} measurements other processes used "
        f"more than {OTHERS_LIMIT} cores, {most:g} at most. Suspect: {where}."
    )


def absence(report: Report) -> str:
    """Which peers a bar may hold without."""
    failed = [
        f"{each.way} in {each.workload} {each.precision}"
        for each in report.results
        if each.error and each.side != OURS and each.workload in WORKLOADS
    ]
    absent = ", ".join(dict.fromkeys([*report.missing, *failed]))
    return f"Ratios are to the best of those that ran, which these did not: {absent}." if absent else ""


# -- text ------------------------------------------------------------------------------------------------------


def plain(rows: Sequence[Sequence[str]]) -> str:
    """Columns padded with spaces, without those that are empty."""
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    padded = [[cell.ljust(max(map(len, column))) for cell in column] for column in columns]
    return "\n".join("  ".join(line).rstrip() for line in zip(*padded, strict=True))


def show(report: Report) -> None:
    print(f"\n{plain(details(report))}\n\n{plain(summary(report))}\n")
    for name, (text, reason) in misses(report).items():
        print(f"{name} misses: {text}. {reason.text if reason else NONE}")
    for text in warnings(report):
        print(f"WARNING: {text}")
    print(f"\n{closing(report)}")


# -- the page --------------------------------------------------------------------------------------------------


def marks(level: str) -> tuple[str, str]:
    """The lines of the page between which stands what was measured at an instruction set level."""
    where = "" if level == NATIVE else f" at {level}"
    return (
        f"<!-- measured{where}: ./dev bench writes what follows -->",
        f"<!-- end of what was measured{where} -->",
    )


def section(report: Report, picture: str) -> str:
    """The part of docs/benchmarks.md that a run replaces."""
    facts = [f"- {name}: {value}" for name, value in report.facts.items()]
    facts += [f"- did not run: {peer}: {reason}" for peer, reason in report.missing.items()]
    parts = ["\n".join(facts), f"![weft beside the best peer]({picture})"]
    parts += [f"**{text}**" for text in warnings(report)]
    parts += [
        f"{closing(report)}. Ratios are of times (or memory), weft's over the best peer's: less is better.",
        markdown(summary(report)),
    ]
    if missed := misses(report):
        lines = [
            f"- `{name}`: {text}. {r.markdown if r else f'**{NONE}**'}" for name, (text, r) in missed.items()
        ]
        parts += ["### Bars that do not hold", "\n".join(lines)]
    parts += ["### Every way of every side", markdown(details(report))]
    return "\n\n".join(parts)


def write_page(page: Path, report: Report, picture: str) -> None:
    """Replace what was measured at the report's level in the page."""
    begin, end = marks(report.level)
    replace_between(page, begin, end, section(report, picture))
