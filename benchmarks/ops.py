"""Operators beside PyTorch, JAX and NumPy: forward and gradient, small and large, in turn, shortest of many.

    ./dev bench ops [--peers] [--quick] [--only TEXT] [--turns N] [--json FILE] [--load FILE] [--again FILE] [--write]

A row is weft's time, eager or traced, whichever is shorter, over that of the fastest peer: PyTorch eager, JAX compiled
by jit, NumPy. A gradient's row has the forward pass, too. Without --peers a row is traced over eager. Each side is a
process of its own; benchmarks/peers/_operators.py says what it calls. Rows that miss the bar have their reasons in
reasons.toml, by operator; docs/benchmarks-operators.md is what --write writes.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path

import _environments as environments
from _side import Side
from _table import ROOT, RatioRow, Row, introduce, load, show, write, write_page

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(environments.PEERS))

from _operators import SIZES, Operator, every  # noqa: E402

BAR, MEAN_BAR = 1.1, 0.6
WAYS = {"weft": ("eager", "traced"), "torch": ("eager",), "jax": ("jit",), "numpy": ("",)}
KINDS = ("forward", "gradient")
PAGE = ROOT / "docs" / "benchmarks-operators.md"


class Contestants:
    """The processes, by side."""

    def __init__(self, peers: bool) -> None:
        own = Path(sys.executable)
        self.sides = {"weft": Side(own, HERE / "_operators_weft.py")}
        if peers:
            for name in ("torch", "jax"):
                environments.make(name)
                program = environments.PEERS / f"_operators_{name}.py"
                self.sides[name] = Side(environments.python_of(name), program)
            self.sides["numpy"] = Side(own, HERE / "_operators_numpy.py")

    def close(self) -> None:
        for side in self.sides.values():
            side.close()

    def ways(self, operator: Operator, what: str) -> list[tuple[str, str]]:
        """(side, way) of all that have it."""
        able = [
            name for name in self.sides if name in operator.calls and (what, name) != ("gradient", "numpy")
        ]
        return [(name, way) for name in able for way in WAYS[name]]

    def measure(
        self, operator: Operator, size: str, what: str, turns: int
    ) -> dict[tuple[str, str], list[float]]:
        """Seconds by (side, way); those that fail are told, and absent."""
        times: dict[tuple[str, str], list[float]] = {}
        for side, way in self.ways(operator, what):
            case = json.dumps([operator.name, size, what, way])
            for _ in range(turns):
                answer = self.sides[side].answer(case)
                if isinstance(answer, str):
                    print(f"{operator.name}, {size}, {what}, {side} {way}: {answer}", file=sys.stderr)
                    break
                times.setdefault((side, way), []).append(answer)
        return times


def best(times: dict[tuple[str, str], list[float]], ours: bool) -> tuple[tuple[str, str], list[float]] | None:
    """Of weft's ways, or of the peers'."""
    able = {way: seconds for way, seconds in times.items() if (way[0] == "weft") == ours}
    return min(able.items(), key=lambda item: min(item[1])) if able else None


def row_of(name: str, times: dict[tuple[str, str], list[float]], peers: bool) -> RatioRow | None:
    if not peers:
        row = RatioRow(name, "x eager")
        row.times, row.others = times.get(("weft", "traced"), []), times.get(("weft", "eager"), [])
        return row if row.times and row.others else None
    ours, theirs = best(times, True), best(times, False)
    if not ours or not theirs:
        return None
    row = RatioRow(name, f"x {' '.join(filter(None, theirs[0]))}", bar=BAR, times=ours[1], others=theirs[1])
    row.note = f"{ours[0][1]} {min(ours[1]) * 1e6:.3g} us"
    return row


def mean_row(name: str, rows: Iterable[RatioRow], bar: float | None) -> RatioRow:
    mean = statistics.geometric_mean([row.minimum for row in rows])
    return RatioRow(name, "x the fastest peer", bar=bar, times=[mean], others=[1.0])


def measured(arguments: argparse.Namespace) -> list[Row]:
    """Geometric means, then the rows of the operators."""
    contestants = Contestants(arguments.peers)
    by_case: dict[tuple[str, str], list[RatioRow]] = {}
    for operator in every().values():
        if (arguments.only or "") not in operator.name:
            continue
        for size in SIZES[:1] if arguments.quick else SIZES:
            for what in KINDS if operator.differentiable else KINDS[:1]:
                times = contestants.measure(operator, size, what, 1 if arguments.quick else arguments.turns)
                row = row_of(f"{operator.name}, {size}, {what}", times, arguments.peers)
                if row is not None:
                    by_case.setdefault((size, what), []).append(row)
    contestants.close()
    return with_means([row for each in by_case.values() for row in each], arguments.peers)


def with_means(rows: list[RatioRow], peers: bool) -> list[Row]:
    """Geometric means, by size and kind and of all, before the rows."""
    by_case: dict[str, list[RatioRow]] = {}
    for row in rows:
        by_case.setdefault(", ".join(row.name.rsplit(", ", 2)[1:]), []).append(row)
    means = [mean_row(f"geometric mean, {case}", each, None) for case, each in by_case.items()]
    if rows and peers:
        means.append(mean_row("geometric mean of all", rows, MEAN_BAR))
    return [*means, *rows]


def measured_again(arguments: argparse.Namespace) -> list[Row]:
    """The rows of a file; those that miss with further samples of both sides."""
    _, table = load(arguments.again)
    rows = [row for row in table if isinstance(row, RatioRow) and not row.name.startswith("geometric mean")]
    contestants = Contestants(peers=True)
    operators = every()
    for row in rows:
        name, size, what = row.name.rsplit(", ", 2)
        if row.holds is not False:
            continue
        times = contestants.measure(operators[name], size, what, arguments.turns)
        new = row_of(row.name, times, peers=True)
        if new is None:
            continue
        if min(new.others) < min(row.others):
            row.unit = new.unit
        if min(new.times) < min(row.times):
            row.note = new.note
        row.times, row.others = [*row.times, *new.times], [*row.others, *new.others]
    contestants.close()
    return with_means(rows, peers=True)


def by_operator(rows: Iterable[Row]) -> list[list[str]]:
    """A table with a line for each operator, a column for each size and kind; bold: misses the bar."""
    cases = [(size, what) for size in SIZES for what in KINDS]
    cells: dict[str, dict[tuple[str, str], str]] = {}
    for row in rows:
        if row.name == "geometric mean of all":
            cells[row.name] = {cases[0]: f"{row.minimum:.3g}"}
            continue
        name, size, what = row.name.rsplit(", ", 2)
        ratio = f"**{row.minimum:.2f}**" if row.holds is False else f"{row.minimum:.2f}"
        peer = "" if row.bar is None else f" {row.unit.split()[1]}"
        cells.setdefault(name, {})[size, what] = ratio + peer
    head = ["operator", *(f"{size}, {what}" for size, what in cases)]
    return [head, *([name, *(cell.get(case, "") for case in cases)] for name, cell in cells.items())]


def main() -> None:
    parser = argparse.ArgumentParser(description="benchmark of operators beside other frameworks")
    parser.add_argument("--peers", action="store_true", help="beside PyTorch, JAX and NumPy")
    parser.add_argument("--quick", action="store_true", help="one turn of small inputs: to see that it works")
    parser.add_argument("--only", metavar="TEXT", help="operators whose name has this in it")
    parser.add_argument("--turns", type=int, default=3, help="samples of each case")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine and rows there, too")
    parser.add_argument(
        "--load", type=Path, metavar="FILE", help="show rows that --json wrote; measure nothing"
    )
    parser.add_argument(
        "--again",
        type=Path,
        metavar="FILE",
        help="measure rows of FILE that miss the bar again, and add to them",
    )
    parser.add_argument("--write", action="store_true", help=f"write the rows into {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    if arguments.load:
        facts, table = load(arguments.load)
    else:
        facts, table = introduce(), measured_again(arguments) if arguments.again else measured(arguments)
    show("ops", table)
    if arguments.json:
        write(arguments.json, facts, "ops", table)
    if arguments.write:
        write_page(PAGE, facts, "ops", table, by_operator)


if __name__ == "__main__":
    main()
