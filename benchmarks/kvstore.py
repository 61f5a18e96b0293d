"""Exchange between processes: all-reduce, steps of data-parallel training, parameter servers, compression.

    ./dev bench kvstore [--peers] [--quick] [--only TEXT] [--json FILE] [--write]

Two processes with one thread each on this machine. All-reduces are compared with mpi4py's Iallreduce on the same
buffers; below 1 MB the row is what is added to it in us. "Exchange not hidden" is what a step with exchange takes
longer than one without, as a share of the exchange alone; the bar lets 70 % of what could be hidden be hidden: of the
exchange, or of backward, taken as two thirds of the step without exchange, whichever is shorter. "Not hidden on the
timeline" is the same as the profiler sees it: exchange during which no kernel ran. Where ranks have less than two cores
each, exchange and kernels share them, so that hidden time is not saved time. With --peers PyTorch's
gloo runs beside it (installed into build/peers/torch), and rows of steps are weft's best time over
DistributedDataParallel's. Rows of servers need Ray: pip install weft[dist]. --write puts machine, rows and bars into
docs/design/kvstore.md; it needs all parts, the peers, and all repeats.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import _environments as environments
from _table import ROOT, RatioRow, Row, introduce, show, write, write_page

HERE = Path(__file__).parent
PAGE = ROOT / "docs" / "design" / "kvstore.md"
SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 20, 4 << 20, 25 << 20, 100 << 20)
ONE_THREAD = {"WEFT_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled"}
LIMIT_S = 1800
Times = dict[str, list[float]]


def collected(text: str) -> Times:
    """Times by name, from lines of JSON; workers on Ray have their name in front."""
    times: Times = {}
    for line in text.splitlines():
        if '{"name"' in line:
            said = json.loads(line[line.index('{"name"') :])
            times.setdefault(said["name"], []).extend(said["times"])
    return times


def run(*command: object, **env: str) -> Times:
    words = [str(word) for word in command]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=LIMIT_S, env=os.environ | ONE_THREAD | env
    )
    if done.returncode:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return collected(done.stdout)


def ranks(what: str, repeats: int) -> Times:
    return run(sys.executable, "-m", "weft.launch", "-n", 2, HERE / "_kvstore_side.py", what, repeats)


def gloo(what: str, repeats: int) -> Times:
    """PyTorch's two ranks, which find each other by a file."""
    python = environments.python_of("torch")
    with tempfile.TemporaryDirectory() as folder:
        sides = [
            subprocess.Popen(
                [python, HERE / "_kvstore_torch.py", what, str(repeats), str(rank), f"{folder}/store"],
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | ONE_THREAD | {"GLOO_SOCKET_IFNAME": "lo"},
            )
            for rank in range(2)
        ]
        said = [side.communicate(timeout=LIMIT_S)[0] for side in sides]
    if any(side.returncode for side in sides):
        sys.exit("PyTorch's ranks failed")
    return collected(said[0])


def size_text(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def all_reduce_rows(times: Times, others: Times) -> list[Row]:
    rows: list[Row] = []
    for size in SIZES:
        plain = times[f"mpi4py {size}"]
        for name in ("all_reduce", "store"):
            weft_times = times[f"{name} {size}"]
            case = f"{name} of {size_text(size)}"
            if size >= 1 << 20:
                row: Row = RatioRow(case, "x mpi4py", bar=1.1, times=weft_times, others=plain)
            else:
                row = Row(case, "us above mpi4py", bar=30, times=[(t - min(plain)) * 1e6 for t in weft_times])
            row.note = f"{min(weft_times) * 1e6:.0f} us"
            if other := others.get(f"gloo {size}"):
                row.note += f", gloo {min(other) * 1e6:.0f} us"
            rows.append(row)
    return rows


def step_rows(name: str, times: Times, others: Times) -> list[Row]:
    rows: list[Row] = []
    exchange = min(times[f"{name} exchange"])
    for kind in ("eager", "traced"):
        step, compute = times[f"{name} {kind} step"], min(times[f"{name} {kind} compute"])
        possible = min(exchange, compute * 2 / 3)
        exposed = max(min(step) - compute, 0.0)
        note = f"step {min(step) * 1e3:.1f} ms, without exchange {compute * 1e3:.1f}, exchange {exchange * 1e3:.1f}"
        exposed_bar = (exchange - 0.7 * possible) / exchange  # of the exchange, that may be seen
        rows.append(
            Row(
                f"{name} {kind}: exchange not hidden",
                "of the exchange",
                bar=exposed_bar,
                times=[exposed / exchange],
                note=note,
            )
        )
        rows.append(
            Row(
                f"{name} {kind}: not hidden on the timeline",
                "of what could be",
                bar=0.3,
                times=times[f"{name} {kind} seen"],
            )
        )
        if other := others.get(f"{name} gloo step"):
            rows.append(
                RatioRow(
                    f"{name} {kind}: step",
                    "x PyTorch DDP",
                    bar=0.85,
                    times=step,
                    others=other,
                    note=f"{min(step) * 1e3:.1f} ms",
                )
            )
    return rows


def server_rows(repeats: int) -> list[Row]:
    if importlib.util.find_spec("ray") is None:
        print("no Ray: the rows of servers are left out (pip install weft[dist])", file=sys.stderr)
        return []
    times: Times = {}
    for _ in range(2):
        for job_times in (
            run(sys.executable, HERE / "_kvstore_servers.py", "raw", repeats),
            run(
                sys.executable,
                "-m",
                "weft.launch",
                "-n",
                2,
                "--kv",
                "dist_async",
                HERE / "_kvstore_servers.py",
                "store",
                repeats,
            ),
        ):
            for name, samples in job_times.items():
                times.setdefault(name, []).extend(samples)
    note = f"{min(times['store']) * 1e3:.1f} ms, raw {min(times['raw']) * 1e3:.1f} ms"
    return [
        RatioRow(
            "4 MiB push + pull, 2 workers",
            "x raw Ray actors",
            bar=1.15,
            times=times["store"],
            others=times["raw"],
            note=note,
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="benchmark of exchange between processes")
    parser.add_argument("--peers", action="store_true", help="PyTorch's gloo beside it")
    parser.add_argument("--quick", action="store_true", help="few repeats: to see that it works")
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="only parts with this in their names: all_reduce mlp resnet18 servers 2bit",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine and rows there, too")
    parser.add_argument("--write", action="store_true", help=f"write the rows into {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    if arguments.write and (arguments.only or arguments.quick or not arguments.peers):
        parser.error("--write needs all rows: --peers, and neither --only nor --quick")
    if arguments.write and importlib.util.find_spec("ray") is None:
        parser.error("--write needs the rows of servers, and those need Ray: pip install weft[dist]")
    repeats = 2 if arguments.quick else 20
    if arguments.peers:
        environments.make("torch")
    facts = introduce()
    rows: list[Row] = []
    for part in ("all_reduce", "mlp", "resnet18", "servers", "2bit"):
        if arguments.only not in part:
            continue
        if part == "servers":
            rows += server_rows(repeats)
            continue
        times = ranks(part, repeats)
        others = gloo(part, repeats) if arguments.peers and part != "2bit" else {}
        if part == "all_reduce":
            rows += all_reduce_rows(times, others)
        elif part == "2bit":
            rows.append(
                RatioRow(
                    "25 M floats to 2 bits",
                    "x the time of its bytes",
                    bar=1.3,
                    times=times["2bit"],
                    others=times["2bit bytes"],
                )
            )
        else:
            rows += step_rows(part, times, others)
    show("kvstore", rows)
    if arguments.json:
        write(arguments.json, facts, "kvstore", rows)
    if arguments.write:
        write_page(PAGE, facts, "kvstore", rows)


if __name__ == "__main__":
    main()
