"""This checkout beside another commit of it, measured by the programs that both have.

    ./dev bench checkouts COMMIT [PROGRAM ...] [--turns N] [--quick] [--json FILE]

PROGRAM: of slice, graph, engine and storage; without one, all. COMMIT gets a worktree below build/checkouts and, by its
own ./dev, an environment. The two take turns, so that what disturbs the machine disturbs both; a row is this checkout's
shortest time over the other's, for all rows that have the same name and unit of time in both.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from _environments import ROOT
from _table import RatioRow, introduce, show, write

FOLDER = ROOT / "build" / "checkouts"
PROGRAMS = ("slice", "graph", "engine", "storage")
UNITS = ("ns", "us", "ms", "s")
BARS = {"a + b": 1.03, "traced call, ten arguments, its kernel included": 1.03}

Times = dict[tuple[str, str], float]  # of rows, by name and unit


def checkout(commit: str) -> Path:
    """A worktree of the commit, which stays for further comparisons."""
    git = ["git", "-C", str(ROOT)]
    revision = subprocess.run(
        [*git, "rev-parse", "--short=12", f"{commit}^{{commit}}"], capture_output=True, text=True
    )
    if revision.returncode:
        sys.exit(f"./dev bench checkouts: {revision.stderr.strip()}")
    folder = FOLDER / revision.stdout.strip()
    if not folder.exists():
        subprocess.run([*git, "worktree", "prune"], check=True)
        subprocess.run([*git, "worktree", "add", "--detach", str(folder), commit], check=True)
    subprocess.run([folder / "dev", "setup"], cwd=folder, check=True)
    return folder


def measured(folder: Path, program: str, quick: bool) -> Times:
    """The rows of a program of one checkout that are times."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "rows.json"
        command = [folder / "dev", "bench", program, "--json", path, *["--quick"] * quick]
        done = subprocess.run(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode:
            sys.exit(f"./dev bench checkouts: {program} of {folder.name} failed:\n{done.stdout[-2000:]}")
        rows = json.loads(path.read_text())["rows"]
    return {(row["name"], row["unit"]): row["minimum"] for row in rows if row["unit"] in UNITS}


def compared(ours: list[Times], others: list[Times], program: str) -> list[RatioRow]:
    """A row for each name that all measurements have."""
    keys = [key for key in ours[0] if all(key in times for times in (*ours, *others))]
    rows = []
    for name, unit in keys:
        row = RatioRow(f"{program}: {name}", "x the other commit", bar=BARS.get(name))
        row.times = [times[name, unit] for times in ours]
        row.others = [times[name, unit] for times in others]
        row.note = f"{min(row.times):.3g} {unit}, {min(row.others):.3g} before"
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="benchmark of two commits")
    parser.add_argument("commit", help="the one to compare with, as git names it")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"of {', '.join(PROGRAMS)}")
    parser.add_argument("--turns", type=int, default=3, help="of each side (3)")
    parser.add_argument("--quick", action="store_true", help="few repeats: to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine and rows there, too")
    arguments = parser.parse_args()
    if unknown := set(arguments.programs) - set(PROGRAMS):
        parser.error(f"no program {', '.join(sorted(unknown))}; there are: {', '.join(PROGRAMS)}")
    if arguments.turns < 1:
        parser.error("--turns is at least 1")
    facts = introduce()
    other = checkout(arguments.commit)
    rows: list[RatioRow] = []
    for program in arguments.programs or PROGRAMS:
        sides: dict[Path, list[Times]] = {ROOT: [], other: []}
        for turn in range(arguments.turns):
            for folder in (ROOT, other) if turn % 2 else (other, ROOT):
                sides[folder].append(measured(folder, program, arguments.quick))
        rows += compared(sides[ROOT], sides[other], program)
    show("checkouts", rows)
    if arguments.json:
        write(arguments.json, {**facts, "other": other.name}, "checkouts", rows)


if __name__ == "__main__":
    main()
