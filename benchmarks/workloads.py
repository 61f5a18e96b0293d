"""weft beside other frameworks, on whole workloads: docs/benchmarks.md says which, and how they are measured.

    ./dev bench [NAME] [--peers] [--quick] [--only TEXT] [--json FILE] [--write] [--load FILE...]

NAME: a workload, or how the names of some begin; without it, all. --peers compares with PyTorch, JAX, MXNet, ONNX
Runtime and OpenVINO, each in an environment of its own below build/peers, made when it is first needed.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import _environments as environments
from _contest import Arena, Result, Side
from _plot import plot
from _report import OURS, Report, combined, read_json, show, write_json, write_page
from _table import machine
from _workloads import PEAKS, WORKLOADS, Workload, selected

HERE = Path(__file__).parent
ROOT = HERE.parent
PAGE = ROOT / "docs" / "benchmarks.md"


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def cores(count: int) -> list[int]:
    """So many cores to measure on, of different physical ones where there are enough."""
    usable = sorted(os.sched_getaffinity(0))
    first: dict[str, int] = {}
    for core in usable:
        path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
        first.setdefault(path.read_text() if path.exists() else str(core), core)
    chosen = [*first.values(), *(core for core in usable if core not in first.values())][:count]
    if len(chosen) < count:
        sys.exit(f"./dev bench: {count} threads need as many cores, there are {len(usable)}")
    return sorted(chosen)


def peers() -> tuple[dict[str, Side], dict[str, str]]:
    """The peers that are there, after making what is not; and why some are not."""
    sides, missing = {}, {}
    for name in environments.names():
        try:
            environments.make(name)
            sides[name] = Side(environments.python_of(name), environments.PEERS / f"{name}_side.py")
        except environments.PeerError as error:
            missing[name] = str(error)
    try:
        if "torch" in sides:
            environments.export_models()
    except environments.PeerError as error:
        missing["ONNX models"] = str(error)
    return sides, missing


def measure(arena: Arena, report: Report, workloads: Sequence[Workload], only: str, warm: int = 3) -> None:
    """Run all cases of the workloads that have `only` in "side variant", a workload and precision at a time."""
    hellos, missing = arena.hellos()
    report.missing.update(missing)
    report.facts["versions"] = ", ".join(f"{each['name']} {each['version']}" for each in hellos.values())

    def cases(workload: str, precision: str) -> list[Result]:
        return [
            Result(workload, precision, side, case[1], hello["version"])
            for side, hello in hellos.items()
            for case in hello["cases"]
            if (case[0], case[2]) == (workload, precision) and only in f"{side} {case[1]}"
        ]

    for workload in [*PEAKS, *workloads]:
        for precision in workload.precisions:
            results = cases(workload.memory_of or workload.name, precision)
            for each in results:
                each.workload = workload.name
            if not workload.memory_of:
                arena.contest(results, warm)
            else:
                for each in results:
                    arena.memory(each, workload.memory_of)
            report.results += results


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench", description="weft beside others, on whole workloads")
    parser.add_argument("name", nargs="?", default="", help=f"of {', '.join(WORKLOADS)}, or how some begin")
    parser.add_argument("--peers", action="store_true", help="compare with other frameworks")
    parser.add_argument("--quick", action="store_true", help="few repeats: to see that it works")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help='only ways with this in "side way", as "weft traced"'
    )
    parser.add_argument("--threads", type=int, default=2, help="of every side (2)")
    parser.add_argument("--turns", type=int, default=8, help="samples of each way (8)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep every run there")
    parser.add_argument(
        "--write", action="store_true", help=f"write the results into {PAGE.relative_to(ROOT)}"
    )
    parser.add_argument(
        "--load",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="show what --json kept instead of measuring; several that measured a part each together",
    )
    arguments = parser.parse_args()
    if not selected(arguments.name):
        parser.error(f"no workload begins with {arguments.name!r}; there are: {', '.join(WORKLOADS)}")
    if arguments.write and not arguments.load and (arguments.name or arguments.only or not arguments.peers):
        parser.error("--write needs a whole run: --peers, without a name and --only")
    return arguments


def run(arguments: argparse.Namespace) -> Report:
    chosen = cores(arguments.threads)
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    command = shlex.join(["./dev", "bench", *sys.argv[1:]])
    report = Report({"date": now, "command": command, **machine(), "threads": arguments.threads})
    others, report.missing = peers() if arguments.peers else ({}, {})
    sides = {OURS: Side(Path(sys.executable), HERE / "_weft_side.py"), **others}
    turns, budget_s = (2, 0.2) if arguments.quick else (arguments.turns, 1.0)
    environment = {"BENCH_MODELS": str(environments.MODELS)}
    arena = Arena(sides, ROOT / "build" / "bench", chosen, environment, turns, budget_s, say=say)
    measure(arena, report, selected(arguments.name), arguments.only, warm=2 if arguments.quick else 3)
    return report


def main() -> None:
    arguments = parsed()
    report = combined([read_json(path) for path in arguments.load]) if arguments.load else run(arguments)
    show(report)
    if arguments.json:
        write_json(arguments.json, report)
    if arguments.write:
        write_json(PAGE.with_suffix(".json"), report)
        PAGE.with_suffix(".svg").write_text(plot(report))
        write_page(PAGE, report, PAGE.with_suffix(".svg").name)


if __name__ == "__main__":
    main()
