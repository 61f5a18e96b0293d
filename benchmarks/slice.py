"""What operators cost from Python, beside PyTorch: calls, sizes never seen before, fresh processes, throughput.

    ./dev bench slice [--peers] [--quick] [--only TEXT] [--json FILE]

Prints one table; `bar` is what the minimum of a row has to reach. With --peers, PyTorch (installed into
build/peers/torch) and weft take turns in processes of their own, with two threads each, and rows are weft's best time
over PyTorch's; the note has weft's time. Without it, rows that need PyTorch show weft's time and have no bar.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import _environments as environments
from _process import with_bytecode
from _side import Side, SideError
from _table import RatioRow, Row, introduce, show, write

HERE = Path(__file__).parent
SCALES = {"ns": 1e9, "us": 1e6, "ms": 1e3, "MiB": 1 / 2**20, "plans": 1}

# Case -> the unit of its time, and the bar of its ratio to PyTorch. 4x4 where the operands are called a and b,
# 1024x1024 for softmax, layer_norm and sums, 2^20 elements for the rest, 10 million for Adam.
AGAINST_TORCH = {
    "a + b": ("ns", 0.45),
    "a + b, recorded": ("ns", 0.5),
    "a.reshape(2, 8)": ("ns", 0.6),
    "a[1:3]": ("ns", 0.6),
    "a @ b": ("ns", None),
    "gelu, tanh": ("us", 0.3),
    "softmax": ("us", 0.7),
    "layer_norm": ("us", 0.7),
    "transposed copy": ("ms", 0.2),
    "sum": ("us", 1.1),
    "sum, axis 0": ("us", 1.1),
    "sum, axis 1": ("us", 1.1),
    "Adam, 1 tensor": ("ms", 1.05),
    "Adam, 100 tensors": ("ms", 1.05),
    "sort": ("ms", 1.2),
    "matmul 2048": ("ms", None),
    "take": ("us", None),
    "embedding": ("us", None),
    "cumulative_sum": ("us", None),
    "topk": ("us", None),
    "conv2d": ("ms", None),
    "attention": ("ms", None),
    "attention with gradients": ("ms", None),
    "MLP, forward and backward": ("us", None),
    "MLP, training step": ("us", None),
}
AGAINST_OTHERS = {"sort": ("sort in NumPy", 1.2), "matmul 2048": ("matmul 2048 of oneDNN", 1 / 0.85)}
ALONE = {  # unit, bar, samples
    "new size: a + b": ("us", 10, 20),
    "new size: sum, axis 1": ("us", 10, 20),
    "new size: reshape": ("us", 10, 20),
    "new size: permute_dims": ("us", 10, 20),
    "new size: matmul": ("us", 300, 20),
    "new size: conv2d": ("us", 300, 20),
    "growth: a + b": ("MiB", 2, 1),  # by the second half of 10,000 sizes
    "growth: matmul": ("MiB", 8, 1),  # kernels of some hundred sizes come and go
    "growth: conv2d": ("MiB", 8, 1),
    "plans: a + b": ("plans", 8, 1),
    "plans: matmul": ("plans", 8, 1),
    "plans: conv2d": ("plans", 8, 1),
}

FRESH = {  # ms and bars, in the order in which the program prints
    "import weft, in a fresh process": 150,
    "first arrays of a fresh process": None,
    "first a + b of a fresh process": 10,
}
IN_A_FRESH_PROCESS = """
import time
start = time.perf_counter()
import weft as wf
imported = time.perf_counter()
a, b = wf.ones((4, 4)), wf.ones((4, 4))
a.wait(), b.wait()
before = time.perf_counter()
(a + b).wait()
after = time.perf_counter()
print((imported - start) * 1e3, (before - imported) * 1e3, (after - before) * 1e3)
"""


def ratio_row(
    case: str, bar: float | None, unit: str, ours: Side, other: Side, other_case: str, turns: int
) -> Row:
    """weft's time over another one, sampled in turn; `named` is the other's case. Alone where the other ends."""
    row = RatioRow(case, f"x {'PyTorch' if other_case == case else other_case.split()[-1]}", bar=bar)
    for _ in range(turns):
        row.times.append(ours.seconds(case))
        try:
            row.others.append(other.seconds(other_case))
        except SideError as error:
            return Row(case, unit, times=[time * SCALES[unit] for time in row.times], note=str(error))
    row.note = f"{min(row.times) * SCALES[unit]:.3g} {unit}"
    return row


def time_row(case: str, unit: str, bar: float | None, side: Side, turns: int) -> Row:
    scale = SCALES[unit]
    return Row(case, unit, bar=bar, times=[side.seconds(case) * scale for _ in range(turns)])


def fresh_rows(runs: int) -> list[Row]:
    rows = [Row(name, "ms", bar=bar) for name, bar in FRESH.items()]
    run = [sys.executable, "-c", IN_A_FRESH_PROCESS]
    with with_bytecode() as environment:
        for turn in range(runs + 1):
            out = subprocess.run(run, stdout=subprocess.PIPE, text=True, check=True, env=environment)
            for row, value in zip(rows, out.stdout.split(), strict=True):
                if turn:  # the first one writes it
                    row.times.append(float(value))
    return rows


def torch_side() -> Side | None:
    """None, after saying why, where PyTorch cannot be installed: the other rows are worth having."""
    try:
        environments.make("torch")
    except environments.PeerError as error:
        print(f"PyTorch does not run, so its rows are weft's times alone: {error}", file=sys.stderr)
        return None
    return Side(environments.python_of("torch"), HERE / "_slice_torch.py")


def main() -> None:
    parser = argparse.ArgumentParser(description="benchmark of operators beside PyTorch")
    parser.add_argument("--peers", action="store_true", help="compare with PyTorch")
    parser.add_argument("--quick", action="store_true", help="few repeats: to see that it works")
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows with this in their names")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine and rows there, too")
    arguments = parser.parse_args()
    only, turns = arguments.only, 2 if arguments.quick else 12
    facts = introduce()
    rows: list[Row] = []
    ours = Side(sys.executable, HERE / "_slice_weft.py")
    peer = torch_side() if arguments.peers else None
    for case, (unit, bar) in AGAINST_TORCH.items():
        if only not in case:
            continue
        if peer:
            rows.append(ratio_row(case, bar, unit, ours, peer, case, turns))
        else:
            rows.append(time_row(case, unit, None, ours, turns))
    if peer:
        peer.close()
    other = Side(sys.executable, HERE / "_slice_weft.py")
    for case, (other_case, bar) in AGAINST_OTHERS.items():
        if only in case:
            rows.append(ratio_row(case, bar, "ms", ours, other, other_case, turns))
    other.close()
    for case, (unit, bar, samples) in ALONE.items():
        if only in case and (samples > 1 or not arguments.quick):
            rows.append(time_row(case, unit, bar, ours, min(samples, turns)))
    ours.close()
    rows += [row for row in fresh_rows(2 if arguments.quick else 10) if only in row.name]
    if not rows:
        sys.exit(f"no row has {only!r} in its name")
    show("slice", rows)
    if arguments.json:
        write(arguments.json, facts, "slice", rows)


if __name__ == "__main__":
    main()
