"""What the benchmarks share: rows with bars, how they are shown, and the rows of the native program."""

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import weft

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


@dataclass
class NativeRow(Row):
    """A row whose repeats the native program has summarised already."""

    medians: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.medians)


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


def machine() -> dict[str, object]:
    cpu = [line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "cpu": cpu[0] if cpu else platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "weft": weft.__version__,
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def show(rows: list[Row]) -> None:
    width = max(len(row.name) for row in rows)
    print(f"\n{'row':{width}}  {'minimum':>8}  {'median':>8}  {'bar':>5}  holds  unit")
    for row in rows:
        bar = "" if row.bar is None else f"{row.bar:g}"
        holds = {None: "", True: "yes", False: "NO"}[row.holds]
        unit = f"{row.unit}; {row.note}" if row.note else row.unit
        print(f"{row.name:{width}}  {row.minimum:8.3g}  {row.median:8.3g}  {bar:>5}  {holds:5}  {unit}")
    missed = [row.name for row in rows if row.holds is False]
    print(f"\n{sum(row.holds is True for row in rows)} bars hold, {len(missed)} do not")


def write(path: Path, facts: dict[str, object], rows: list[Row]) -> None:
    """Machine and rows as JSON."""
    keys = ("name", "minimum", "median", "unit", "bar", "holds", "note")
    table = [{key: getattr(row, key) for key in keys} for row in rows]
    path.write_text(json.dumps({"machine": facts, "rows": table}, indent=1) + "\n")
