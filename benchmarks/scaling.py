"""How training would scale: a cost model, checked against the ranks that this machine can run.

    ./dev bench scaling [--ranks 1,2,4] [--mebibytes 40] [--compute-ms 100] [--quick] [--json FILE]

Measures latency and bandwidth between two ranks over MPI, and an all-reduce of a bucket of 4 MiB on 1, 2 and 4 ranks,
with the store's own exchange; prints the model's time beside each, then a table of steps on 2 to 1024 ranks:
simulated, bucket by bucket, for ring, tree and parameter servers. Times are minima. The model knows a link for each
rank; ranks here share cores and memory, so beyond the cores it must be too low, which the table shows.
See docs/design/kvstore.md.
"""

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from _table import RatioRow, Row, introduce, show, write

BUCKET = 4 << 20
REPEATS = 30


def ring(n: int, size: float, a: float, b: float, c: float) -> float:
    """Seconds of a ring all-reduce of so many bytes."""
    return 2 * (n - 1) * a + size * (2 * b + c) * (n - 1) / n


def tree(n: int, size: float, a: float, b: float, c: float) -> float:
    """Seconds of recursive doubling."""
    return math.ceil(math.log2(n)) * (a + size * (b + c)) if n > 1 else 0.0


def servers(n: int, size: float, a: float, b: float, c: float, count: int = 1) -> float:
    """Seconds of a push and a pull of all workers through the servers' links."""
    return 2 * a + n * size * (2 * b + c) / count if n > 1 else 0.0


def agreement(n: int, a: float) -> float:
    """Seconds until ranks know that they mean the same."""
    return 2 * a * math.ceil(math.log2(n)) if n > 1 else 0.0


def simulated(compute_s: float, buckets: Sequence[float], exchange, agree_s: float) -> float:
    """Seconds of a step. Buckets become ready evenly over backward, the last two thirds, and take the link in turn.

    >>> simulated(3.0, [1.0, 1.0], lambda size: 0.5, 0.0)
    3.5
    """
    free = 0.0
    for k, size in enumerate(buckets):
        ready = compute_s / 3 + compute_s * 2 / 3 * (k + 1) / len(buckets)
        free = max(free, ready) + agree_s + exchange(size)
    return max(compute_s, free)


def side(repeats: int) -> None:
    """On each rank: what is measured, as JSON from rank 0: seconds of each repeat."""
    import numpy as np
    from mpi4py import MPI

    import weft as wf

    world = wf.distributed
    comm = MPI.COMM_WORLD.Dup()
    times_by_name = {}
    if comm.size == 2:
        for name, size in (("small", 8), ("large", 8 << 20)):
            x = np.zeros(size, "uint8")
            times = []
            for _ in range(repeats):
                comm.Barrier()
                begin = time.perf_counter()
                if comm.rank:
                    comm.Recv(x, 0)
                    comm.Send(x, 0)
                else:
                    comm.Send(x, 1)
                    comm.Recv(x, 1)
                times.append((time.perf_counter() - begin) / 2)
            times_by_name[name] = times
    x = wf.ones(BUCKET // 4)
    times = []
    for _ in range(repeats):
        world.barrier()
        begin = time.perf_counter()
        world.all_reduce(x).wait()
        times.append(time.perf_counter() - begin)
    times_by_name["bucket"] = times
    target, other = np.ones(BUCKET // 4, "float32"), np.ones(BUCKET // 4, "float32")
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        np.add(target, other, out=target)
        times.append(time.perf_counter() - begin)
    times_by_name["add"] = times
    if world.is_first():
        print(json.dumps(times_by_name), flush=True)


def measured(n: int, repeats: int) -> dict[str, list[float]]:
    command = [
        sys.executable,
        "-m",
        "weft.launch",
        "-n",
        str(n),
        "--threads",
        "1",
        __file__,
        "--side",
        str(repeats),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description="a cost model of distributed training")
    parser.add_argument("--ranks", default="1,2,4", help="how many ranks to run")
    parser.add_argument("--mebibytes", type=float, default=44.6, help="gradients of a step (ResNet-18: 44.6)")
    parser.add_argument("--compute-ms", type=float, default=100.0, help="a step without exchange")
    parser.add_argument("--quick", action="store_true", help="few repeats: to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine and rows there, too")
    parser.add_argument("--side", type=int, metavar="REPEATS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        side(options.side)
        return
    facts = introduce()
    counts = sorted({int(n) for n in options.ranks.split(",")})
    times_by_ranks = {n: measured(n, 3 if options.quick else REPEATS) for n in {2, *counts}}
    small, large = min(times_by_ranks[2]["small"]), min(times_by_ranks[2]["large"])
    a, b, c = small, (large - small) / (8 << 20), min(times_by_ranks[2]["add"]) / BUCKET
    rows: list[Row] = [
        Row("latency of two ranks", "us", times=[t * 1e6 for t in times_by_ranks[2]["small"]]),
        Row("8 MiB between two ranks", "ms", times=[t * 1e3 for t in times_by_ranks[2]["large"]]),
        Row(f"adding {BUCKET >> 20} MiB", "ms", times=[t * 1e3 for t in times_by_ranks[2]["add"]]),
    ]
    for n in counts:
        model = min(ring(n, BUCKET, a, b, c), tree(n, BUCKET, a, b, c)) + agreement(n, a)
        if n > 1:
            note = f"model {model * 1e3:.2f} ms"
            name = f"all-reduce of {BUCKET >> 20} MiB, {n} ranks"
            rows.append(
                RatioRow(name, "x model", times=times_by_ranks[n]["bucket"], others=[model], note=note)
            )
    size, compute = options.mebibytes * 2**20, options.compute_ms / 1e3
    count = max(1, math.ceil(size / BUCKET))
    buckets = [size / count] * count
    print(f"\nstep of {options.compute_ms:g} ms and {options.mebibytes:g} MiB, in ms (efficiency)")
    print(f"{'ranks':>6} {'ring':>16} {'tree':>16} {'1 server':>18} {'n / 8 servers':>18}")
    for k in range(1, 11):
        n = 2**k
        cells = []
        for exchange in (
            lambda m, n=n: ring(n, m, a, b, c),
            lambda m, n=n: tree(n, m, a, b, c),
            lambda m, n=n: servers(n, m, a, b, c),
            lambda m, n=n: servers(n, m, a, b, c, max(1, n // 8)),
        ):
            step = simulated(compute, buckets, exchange, agreement(n, a) if len(cells) < 2 else 0.0)
            cells.append(f"{step * 1e3:9.1f} ({compute / step:4.0%})")
            kind = ("ring", "tree", "1 server", "n / 8 servers")[len(cells) - 1]
            rows.append(Row(f"step on {n} ranks, {kind}", "ms of the model", times=[step * 1e3]))
        print(f"{n:6} {cells[0]:>16} {cells[1]:>16} {cells[2]:>18} {cells[3]:>18}")
    show("scaling", rows[: 3 + len([n for n in counts if n > 1])])
    if options.json:
        write(options.json, facts, "scaling", rows)


if __name__ == "__main__":
    main()
