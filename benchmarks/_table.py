"""What the benchmarks share: rows with bars, how they are shown, and the rows of the native program."""

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from _machine import cores_in_use, machine, restless
from _page import markdown, replace_between
from _reasons import NONE, Reason, reason_of, reasons

ROOT = Path(__file__).resolve().parents[1]
NATIVE_PROGRAM = ROOT / "build" / "native-bench" / "weft_native_bench"


@dataclass
class Row:
    """One line of the table.

    sample() -> one measurement, in `unit`. bar: the largest minimum that will do; None: no bar.
    """

    name: str
    unit: str
    sample: Callable[[], float] | None = None
    bar: float | None = None
    times: list[float] = field(default_factory=list)
    note: str = ""

    @property
    def minimum(self) -> float:
        return min(self.times)

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    @property
    def holds(self) -> bool | None:
        return None if self.bar is None else self.minimum <= self.bar

    @property
    def behind_us(self) -> float | None:
        """The shortest time less that of the other side; None if there is none."""
        return None


@dataclass
class NativeRow(Row):
    """A row whose repeats the native program has summarised already."""

    medians: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.medians)


@dataclass
class RatioRow(Row):
    """A row of minimum over minimum, of `times` and `others`, in seconds where they are times."""

    others: list[float] = field(default_factory=list)

    @property
    def minimum(self) -> float:
        return min(self.times) / min(self.others)

    @property
    def median(self) -> float:
        return statistics.median(self.times) / statistics.median(self.others)

    @property
    def behind_us(self) -> float | None:
        return (min(self.times) - min(self.others)) * 1e6


def native_rows(part: str, bars: dict[str, float], runs: int) -> list[Row]:
    """The rows of one part of the C++ program, best of several runs. [] with a message if it has not been built."""
    if not NATIVE_PROGRAM.exists():
        print(f"no {NATIVE_PROGRAM.relative_to(ROOT)}: `./dev bench` builds it", file=sys.stderr)
        return []
    rows: dict[str, Row] = {}
    for _ in range(runs):
        out = subprocess.run([NATIVE_PROGRAM, part], stdout=subprocess.PIPE, text=True, check=True).stdout
        for line in map(json.loads, out.splitlines()):
            name = line["name"]
            row = rows.setdefault(name, NativeRow(f"C++: {name}", line["unit"], bar=bars.get(name)))
            row.times.append(line["min"])
            row.medians.append(line["median"])
    if missing := bars.keys() - rows.keys():
        sys.exit(f"{NATIVE_PROGRAM.name} has no rows {sorted(missing)}; it has {sorted(rows)}")
    return list(rows.values())


def introduce() -> dict[str, object]:
    """Print what this machine is, and whether it is quiet; for `write`."""
    facts = {**machine(), "cores_in_use": round(cores_in_use(), 2)}
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    if text := restless(facts["cores_in_use"]):
        print(text, file=sys.stderr)
    return facts


def misses(program: str, rows: Iterable[Row]) -> dict[str, Reason | None]:
    """Of each row that misses its bar: the reason, or None."""
    known = reasons(program)
    return {row.name: reason_of(known, row) for row in rows if row.holds is False}


def by_reason(missed: dict[str, Reason | None]) -> list[tuple[Reason | None, list[str]]]:
    """Reasons with the names of their rows; those without one come last."""
    names: dict[Reason | None, list[str]] = {}
    for name, reason in missed.items():
        names.setdefault(reason, []).append(name)
    return sorted(names.items(), key=lambda item: item[0] is None)


def verdict(rows: list[Row], missed: dict[str, Reason | None]) -> str:
    text = f"{sum(row.holds is True for row in rows)} bars hold, {len(missed)} do not"
    without = sum(reason is None for reason in missed.values())
    return f"{text}, {without} of these without a reason" if without else text


def show(program: str, rows: list[Row]) -> None:
    width = max(len(row.name) for row in rows)
    print(f"\n{'row':{width}}  {'minimum':>8}  {'median':>8}  {'bar':>5}  holds  unit")
    for row in rows:
        bar = "" if row.bar is None else f"{row.bar:g}"
        holds = {None: "", True: "yes", False: "NO"}[row.holds]
        unit = f"{row.unit}; {row.note}" if row.note else row.unit
        print(f"{row.name:{width}}  {row.minimum:8.3g}  {row.median:8.3g}  {bar:>5}  {holds:5}  {unit}")
    missed = misses(program, rows)
    for reason, names in by_reason(missed):
        print(f"\n{'; '.join(names)} misses: {reason.text if reason else NONE}")
    print(f"\n{verdict(rows, missed)}")


def write(path: Path, facts: dict[str, object], program: str, rows: list[Row]) -> None:
    """Machine and rows as JSON, which `load` reads."""
    keys = ("name", "minimum", "median", "unit", "bar", "holds", "note", "times")
    missed = misses(program, rows)
    table = []
    for row in rows:
        reason = missed.get(row.name)
        why = (reason.text if reason else NONE) if row.name in missed else ""
        others = {"others": row.others} if isinstance(row, RatioRow) else {}
        table.append({**{key: getattr(row, key) for key in keys}, **others, "why": why})
    path.write_text(json.dumps({"machine": facts, "rows": table}, indent=1) + "\n")


def load(path: Path) -> tuple[dict[str, object], list[Row]]:
    """What `write` has written: machine and rows, without the reasons, which may be other ones by now."""
    written = json.loads(path.read_text())
    rows = []
    for row in written["rows"]:
        kind = RatioRow if "others" in row else Row
        keys = ("name", "unit", "bar", "note", "times", "others")
        rows.append(kind(**{key: row[key] for key in keys if key in row}))
    return written["machine"], rows


def table_of(rows: Iterable[Row]) -> list[list[str]]:
    table = [["row", "minimum", "median", "bar", "holds", "unit"]]
    for row in rows:
        bar = "" if row.bar is None else f"{row.bar:.3g}"
        holds = {None: "", True: "yes", False: "**no**"}[row.holds]
        unit = f"{row.unit}; {row.note}" if row.note else row.unit
        table.append([row.name, f"{row.minimum:.3g}", f"{row.median:.3g}", bar, holds, unit])
    return table


def write_page(
    page: Path,
    facts: dict[str, object],
    program: str,
    rows: list[Row],
    table: Callable[[list[Row]], list[list[str]]] = table_of,
) -> None:
    """Machine, rows and reasons in a page of docs/, between the lines `marks(program)`; table: how rows are shown."""
    missed = misses(program, rows)
    listed = [
        f"- `{'`, `'.join(names)}`: {reason.why if reason else f'**{NONE}**'}"
        for reason, names in by_reason(missed)
    ]
    parts = [
        ", ".join(f"{name} {value}" for name, value in facts.items()),
        markdown(table(rows)),
        f"{verdict(rows, missed)}.",
        "\n".join(listed),
    ]
    if text := restless(float(str(facts["cores_in_use"]))):
        parts.insert(0, f"**{text}**")
    replace_between(page, *marks(program), "\n\n".join(part for part in parts if part))


def marks(program: str) -> tuple[str, str]:
    """The lines of a page between which a program's rows are."""
    return (
        f"<!-- measured: ./dev bench {program} --write writes what follows -->",
        f"<!-- end of what {program} has measured -->",
    )
