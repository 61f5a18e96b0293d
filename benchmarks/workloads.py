"""weft beside other frameworks, on whole workloads: docs/benchmarks.md says which, and how they are measured.

    ./dev bench [NAME] [--peers] [--runs N] [--bars] [--quick] [--only TEXT] [--all] [--json FILE] [--write]
    ./dev bench --load FILE... [--write]
    WEFT_ISA=avx2 ./dev bench --peers ...

With WEFT_ISA the peers are held to that instruction set level, too; bars and the part of the page are its own.

NAME: a workload, or how the names of some begin; without it, all. --peers compares with PyTorch, JAX, MXNet, ONNX
Runtime and OpenVINO, each in an environment of its own below build/peers, made when it is first needed.
"""

import argparse
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import _environments as environments
from _contest import OURS, Arena
from _machine import CAPS, cores, cores_in_use, machine, restless
from _plan import Contest, Progress, by_way, contests, estimate_s, minutes
from _plot import plot
from _process import Side
from _report import Report, combined, read_json, write_json
from _show import show, write_page
from _workloads import NATIVE, WORKLOADS, at_level, selected

from weft import _core

HERE = Path(__file__).parent
ROOT = HERE.parent
PAGE = ROOT / "docs" / "benchmarks.md"
LAST = ROOT / "build" / "bench" / "last.json"
# Peers without a switch for the instructions that their products use, and the workloads where that counts: OpenVINO's
# convolutions are oneDNN's, its products those of MLAS.
NOT_CAPPED = {"jax": "", "onnxruntime": "", "openvino": "gpt"}
STOPPED = 130  # the status of a program that Ctrl-C ended


def measurements(level: str) -> Path:
    """The file with what the page shows of an instruction set level."""
    return PAGE.with_name(f"{PAGE.stem}{'' if level == NATIVE else f'-{level}'}.json")


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def peers() -> tuple[dict[str, Side], dict[str, str]]:
    """The peers that are there, after making what is not; and why some are not."""
    sides, missing = {}, {}
    most, level = _core.isa()[:2]
    for name in environments.names():
        if NOT_CAPPED.get(name) == "" and level != most:
            missing[name] = f"its products cannot be held to {level} on a processor with {most}"
            continue
        try:
            environments.make(name)
            sides[name] = Side(environments.python_of(name), environments.PEERS / f"{name}_side.py")
        except environments.PeerError as error:
            say(f"{name} will not run: {error}")
            missing[name] = str(error)
    try:
        if "torch" in sides:
            environments.export_models()
    except environments.PeerError as error:
        missing["ONNX models"] = str(error)
    return sides, missing


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench", description="weft beside others, on whole workloads")
    add = parser.add_argument
    add("name", nargs="?", default="", help=f"of {', '.join(WORKLOADS)}, or how some begin")
    add("--peers", action="store_true", help="compare with other frameworks")
    add("--runs", type=int, default=1, help="separate runs, one after the other (1)")
    add("--bars", action="store_true", help="only what has a bar")
    add("--all", action="store_true", help="ask also those ways to the end that are far behind")
    add("--quick", action="store_true", help="few repeats: to see that it works")
    add("--only", default="", metavar="TEXT", help='only ways with this in "side way", as "weft traced"')
    add("--threads", type=int, default=2, help="of every side (2)")
    add("--turns", type=int, default=8, help="samples of each way in a run (8)")
    add("--json", type=Path, metavar="FILE", help=f"keep every run there, not in {LAST.relative_to(ROOT)}")
    add("--write", action="store_true", help=f"write the results into {PAGE.relative_to(ROOT)}")
    add(
        "--load",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="show what was kept, all together, and measure nothing",
    )
    arguments = parser.parse_args()
    if not selected(arguments.name):
        parser.error(f"no workload begins with {arguments.name!r}; there are: {', '.join(WORKLOADS)}")
    if arguments.write and not arguments.load and (arguments.name or arguments.only or not arguments.peers):
        parser.error("--write needs a whole run: --peers, without a name and --only")
    if min(arguments.runs, arguments.turns) < 1:
        parser.error("--runs and --turns are at least 1")
    return arguments


def command(words: Sequence[str]) -> str:
    """What was asked for, without where the results went."""
    kept_words, skipped = [], False
    for word in words:
        if not skipped and not word.startswith("--json"):
            kept_words.append(word)
        skipped = word == "--json"
    return shlex.join(["./dev", "bench", *kept_words])


def revision() -> str:
    """Of the repository, and whether it was changed since; "" outside of one."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    try:
        return subprocess.run(git, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def facts(hellos: Mapping[str, Mapping[str, Any]], threads: int) -> dict[str, Any]:
    """When, what, where: new for each run."""
    cores_used = round(cores_in_use(), 2)
    if text := restless(cores_used):
        say(text)
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "command": command(sys.argv[1:]),
        **machine(),
        "cores_in_use": cores_used,
        "threads": threads,
        "versions": ", ".join(f"{each['name']} {each['version']}" for each in hellos.values()),
        "revision": revision(),
    }


def measured(
    arena: Arena, parts: Sequence[Contest], begin: Callable[[], Report], runs: int
) -> Iterator[Report]:
    """All contests so often, from the first to the last each time; gives, after each, what is whole until then."""
    before = by_way(read_json(measurements(NATIVE)).results)
    estimates_s = [estimate_s(part, arena, before) for part in parts] * runs
    ways = sum(len(part.ways) for part in parts)
    arena.say(f"{ways} ways in {len(parts)} contests, {runs} x: about {minutes(sum(estimates_s))}")
    progress, reports = Progress(estimates_s), []
    for _ in range(runs):
        reports.append(begin())
        for part in parts:
            reports[-1].results += part.hold(arena)
            arena.say(progress.step())
            yield combined(reports)


def run(arguments: argparse.Namespace, path: Path) -> tuple[Report, bool]:
    """What was measured, which is kept after each contest, and whether that is all that was asked for."""
    used_cores = cores(arguments.threads)
    others, missing = peers() if arguments.peers else ({}, {})
    sides = {OURS: Side(Path(sys.executable), HERE / "_weft_side.py"), **others}
    turns, budget_s, warm = (2, 0.2, 2) if arguments.quick else (arguments.turns, 1.0, 3)
    trial = None if arguments.all else max(2, turns // 4)
    most, level = _core.isa()[:2]
    environment = {"BENCH_MODELS": str(environments.MODELS), **(CAPS[level] if level != most else {})}
    arena = Arena(sides, LAST.parent, used_cores, environment, turns, budget_s, trial, warm, say)
    hellos, silent = arena.hellos()
    missing.update(silent)
    workloads = [at_level(workload, level) for workload in selected(arguments.name)]
    absent = NOT_CAPPED if level != most else {}
    parts = contests(hellos, workloads, arguments.only, arguments.bars, absent)

    def begin() -> Report:
        return Report(facts(hellos, arguments.threads), missing=missing)

    report = Report({}, missing=missing)
    try:
        for report in measured(arena, parts, begin, arguments.runs):
            write_json(path, report)
    except KeyboardInterrupt:
        say(f"stopped: all but the contest that was going on is in {path}")
        return report, False
    say(f"results are in {path}")
    return report, True


def main() -> None:
    arguments = parsed()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    whole = True
    if arguments.load:
        report = combined([read_json(path) for path in arguments.load])
        if arguments.json:
            write_json(arguments.json, report)
    else:
        report, whole = run(arguments, arguments.json or LAST)
    show(report)
    if not whole:
        sys.exit(STOPPED)
    if arguments.write:
        page = measurements(report.level)
        write_json(page, report)
        page.with_suffix(".svg").write_text(plot(report))
        write_page(PAGE, report, page.with_suffix(".svg").name)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(STOPPED)
