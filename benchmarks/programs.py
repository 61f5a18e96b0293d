"""Training steps of networks and whole computations beside PyTorch, eager and compiled, in turn, shortest of many.

    ./dev bench programs [--peers] [--quick] [--only TEXT] [--json FILE]

A row is the time of the faster of weft's two ways, eager and traced, over that of the faster of PyTorch's two; those of
linalg, 100,000 small matrices. Each way is a process of its own; networks and computations are written once, in
_both_programs.py and _both_networks.py. What a computation gives has to be equal on all sides. Without --peers a row is
traced over eager.
"""

import argparse
import math
import sys
from pathlib import Path

import _environments as environments
from _contest import OURS, Arena, Result
from _machine import cores
from _process import Side
from _table import RatioRow, introduce, show, write

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(environments.PEERS))

from _both_programs import LINALG, SMALL  # noqa: E402

TRAINING, COMPUTATION, SMALL_MATRICES = 0.8, 0.9, 0.3
BARS = {
    **{
        f"train {name}": TRAINING
        for name in ("mobilenet", "vit", "unet", "bert", "translation", "swin", "wgan-gp")
    },
    **dict.fromkeys(
        (
            "likelihood of a Gaussian process and its gradient",
            "Kalman filter",
            "matrices 3x3 by vectors",
            "resize",
            "warp",
            "sampled softmax",
            "experts by masks",
            "histogram",
            "chain of eight functions",
        ),
        COMPUTATION,
    ),
    **{f"{function} {size}": SMALL_MATRICES for size in SMALL for function in LINALG},
}
ALIKE = 1e-3  # relative difference of what two sides give


def contest(arena: Arena, name: str, ways: dict[str, list[str]]) -> dict[str, list[Result]]:
    """What each way of each side took, in turns; SystemExit where one fails."""
    results = {side: [Result(name, "f32", side, way) for way in ways[side]] for side in ways}
    arena.contest([result for each in results.values() for result in each])
    for side, each in results.items():
        for result in each:
            if result.error:
                print(f"{name}, {result.way}: {result.error}", file=sys.stderr)
        results[side] = [result for result in each if not result.error]
    if not name.startswith("train"):
        values = [r.result for each in results.values() for r in each if r.result is not None]
        if not all(math.isclose(value, values[0], rel_tol=ALIKE) for value in values):
            raise SystemExit(f"{name}: different results: {values}")
    return results


def row_of(name: str, results: dict[str, list[Result]]) -> RatioRow | None:
    if len(results) == 1:
        times = {result.variant: result.runs for result in results[OURS]}
        if len(times) < 2:
            return None
        row = RatioRow(name, "x eager", times=times["traced"], others=times["eager"])
    else:
        if not all(results.values()):
            return None
        ours, theirs = (min(each, key=lambda result: min(result.runs)) for each in results.values())
        row = RatioRow(
            name, f"x PyTorch {theirs.variant}", bar=BARS[name], times=ours.runs, others=theirs.runs
        )
        row.note = f"{ours.variant}; "
    row.note += f"{min(row.times) * 1e3:.3g} ms"
    return row


def measured(arguments: argparse.Namespace) -> list[RatioRow]:
    sides = {OURS: Side(Path(sys.executable), HERE / "_programs_weft.py")}
    if arguments.peers:
        environments.make("torch")
        sides["torch"] = Side(environments.python_of("torch"), environments.PEERS / "_programs_torch.py")
    turns, seconds = (1, 0.1) if arguments.quick else (6, 0.7)
    arena = Arena(sides, environments.ROOT / "build" / "bench", cores(2), {}, turns, seconds, trial=2)
    hellos, missing = arena.hellos()
    if missing:
        raise SystemExit(f"programs: {missing}")
    rows = []
    for name in BARS:
        if (arguments.only or "") in name:
            ways = {
                side: [way for workload, way, _ in hello["cases"] if workload == name]
                for side, hello in hellos.items()
            }
            rows.append(row_of(name, contest(arena, name, ways)))
    return [row for row in rows if row]


def main() -> None:
    parser = argparse.ArgumentParser(description="benchmark of whole programs beside PyTorch")
    parser.add_argument("--peers", action="store_true", help="beside PyTorch")
    parser.add_argument("--quick", action="store_true", help="few repeats: to see that it works")
    parser.add_argument("--only", metavar="TEXT", help="programs whose name has this in it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine and rows there, too")
    arguments = parser.parse_args()
    facts = introduce()
    rows = measured(arguments)
    show("programs", rows)
    if arguments.json:
        write(arguments.json, facts, "programs", rows)


if __name__ == "__main__":
    main()
