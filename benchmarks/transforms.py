"""Functional transformations: gradients of single examples beside the batched one, and a Hessian beside JAX's.

    ./dev bench transforms [--peers] [--quick] [--json FILE]

The network is the MLP 784-256-128-10 of the workloads, the batch 256. `vmap(grad)` with respect to the inputs does the
batched gradient's work; the mean of the gradients of single examples with respect to the parameters, as one program,
has to come down to it. All these gradients themselves are 240 MB for the batch, so that row has no bar: it says how
fast they are written. The Hessian is that of a function of 100 parameters. --peers: JAX's side, compiled by jit, in a
process of its own; the two take turns.
"""

import argparse
import sys
import time
from pathlib import Path

import _environments as environments
from _contest import OURS, Arena, Result
from _machine import cores
from _process import Side
from _table import RatioRow, introduce, show, write
from _transforms_weft import BATCH, Network

HERE = Path(__file__).resolve().parent
BAR, BAR_BESIDE_JAX = 1.3, 2.0


def seconds_of(run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def gradient_rows(turns: int) -> list[RatioRow]:
    network = Network()
    rows = []
    for name, ours, other, bar in (
        ("vmap(grad) of inputs", network.of_inputs(), network.of_inputs_batched(), BAR),
        ("mean of vmap(grad) of parameters", network.mean(), network.batched(), BAR),
        ("vmap(grad) of parameters", network.single(), network.batched(), None),
    ):
        row = RatioRow(f"{name}, batch {BATCH}", "x the batched gradient", bar=bar)
        for _ in range(3):
            ours(), other()
        for _ in range(turns):
            row.times.append(seconds_of(ours))
            row.others.append(seconds_of(other))
        row.note = f"{min(row.times) * 1e3:.3g} ms"
        rows.append(row)
    size = network.bytes_of_gradients() * BATCH
    rows[-1].note += f", {size / 1e6:.0f} MB at {size / min(rows[-1].times) / 1e9:.1f} GB/s"
    return rows


def peer_rows(turns: int) -> list[RatioRow]:
    """Beside JAX, each in a process of its own, in turns."""
    try:
        environments.make("jax")
    except environments.PeerError as error:  # the other rows are worth having
        print(f"no rows beside JAX: {error}", file=sys.stderr)
        return []
    sides = {
        OURS: Side(Path(sys.executable), HERE / "_transforms_weft.py"),
        "jax": Side(environments.python_of("jax"), environments.PEERS / "_transforms_jax.py"),
    }
    arena = Arena(sides, environments.ROOT / "build" / "bench", cores(2), {}, turns, 0.3)
    rows = []
    for name, bar in (("hessian", BAR_BESIDE_JAX), ("per-example", None), ("per-example mean", None)):
        ours, peer = results = [Result(name, "f32", OURS, "program"), Result(name, "f32", "jax", "jit")]
        arena.contest(results)
        if peer.error or ours.error:
            raise SystemExit(f"{name}: {peer.error or ours.error}")
        row = RatioRow(f"{name}, beside JAX", "x JAX, jit", bar=bar, times=ours.runs, others=peer.runs)
        row.note = f"{min(ours.runs) * 1e3:.3g} ms"
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="benchmark of functional transformations")
    parser.add_argument("--peers", action="store_true", help="compare with JAX")
    parser.add_argument("--quick", action="store_true", help="few repeats: to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine and rows there, too")
    arguments = parser.parse_args()
    facts = introduce()
    rows = gradient_rows(3 if arguments.quick else 40)
    rows += peer_rows(2 if arguments.quick else 8) if arguments.peers else []
    show("transforms", rows)
    if arguments.json:
        write(arguments.json, facts, "transforms", rows)


if __name__ == "__main__":
    main()
