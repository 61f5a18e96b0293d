"""What the first calls of a traced training step cost, with an empty cache of kernels and with a full one.

    ./dev bench first_calls [--quick] [--json FILE]

Each row is a process of its own, with two threads: wall and processor time until the second call is over and all code
is made, how many kernels were compiled for how many patterns, and where the processor time went: passes and planning
(what is left of the rest), printing, LLVM's passes, its code generation, linking. `bar` is what wall time has to reach
on a quiet machine of two cores.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from _process import with_bytecode
from _table import introduce

HERE = Path(__file__).parent
NETWORKS = ("mlp", "resnet18", "mobilenet", "vit")
BARS_S = {("mlp", "cold"): 0.3, ("resnet18", "cold"): 3.0, ("resnet18", "warm"): 1.0}
PARTS = ("print_s", "parse_s", "optimize_s", "emit_s", "link_s")


def measured(network, cache, environment):
    """What one process says of its first calls."""
    run = [sys.executable, HERE / "_first_calls_side.py", network]
    environment = {**environment, "WEFT_CACHE_DIR": cache, "WEFT_NUM_THREADS": "2"}
    out = subprocess.run(run, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout
    return json.loads(out.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description="benchmark of the first calls of traced functions")
    parser.add_argument("--quick", action="store_true", help="once, instead of the quickest of three")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured there, too")
    arguments = parser.parse_args()
    introduce()
    heads = (
        "network",
        "cache",
        "wall s",
        "bar",
        "cpu s",
        "kernels",
        "patterns",
        *PARTS,
        "rest",
        "nodes",
        "steps",
    )
    print(" | ".join(heads))
    rows = []
    for network in NETWORKS:
        runs_by_kind = {"cold": [], "warm": []}
        with with_bytecode() as environment:
            for turn in range(2 if arguments.quick else 4):
                with tempfile.TemporaryDirectory() as cache:
                    runs = {kind: measured(network, cache, environment) for kind in runs_by_kind}
                for kind in runs_by_kind if turn else ():  # the first ones write the bytecode
                    runs_by_kind[kind].append(runs[kind])
        for kind, runs in runs_by_kind.items():
            best = min(runs, key=lambda run: run["total"]["wall_s"])
            rows.append({"network": network, "cache": kind, **best})
            parts = [sum(call[part] for call in best["calls"]) for part in PARTS]
            counts = [sum(call[what] for call in best["calls"]) for what in ("compiled", "patterns")]
            cells = [network, kind, f"{best['total']['wall_s']:.2f}", str(BARS_S.get((network, kind), ""))]
            cells += [f"{best['total']['cpu_s']:.2f}", *map(str, counts), *(f"{part:.2f}" for part in parts)]
            cells += [f"{best['total']['cpu_s'] - sum(parts):.2f}", str(best["nodes"]), str(best["steps"])]
            print(" | ".join(cells), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
