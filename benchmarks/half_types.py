"""What bfloat16 costs beside float32 at the level of instructions used: steps of the workloads, in turn.

    WEFT_ISA=avx2 ./dev bench half_types [--quick] [--only NAME] [--json FILE]

Times are processor time of all threads; a row's bar is 1.15 below AVX-512, where oneDNN has no code for bfloat16, and 1
from there on. `converted` is what a step reads and writes to convert operands of products. `python -m weft.info` tells
the level.
"""

import argparse
import time
from pathlib import Path

from _table import RatioRow, introduce, show, write
from _weft_side import cases

from weft import _core

NETWORKS = (
    "resnet50-train",
    "resnet50-infer-b16",
    "resnet50-infer-b1",
    "gpt-train",
    "gpt-prefill",
    "gpt-decode",
    "lstm-train",
)


def seconds_of(run) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def converted_by(run) -> float:
    """MB read and written by conversions."""
    before = _core.onednn_counters()["bytes_converted"]
    run()
    return (_core.onednn_counters()["bytes_converted"] - before) / 1e6


def measure(name: str, repeats: int) -> RatioRow:
    halves, floats = (cases.run_of([name, "traced", precision]) for precision in ("bf16", "f32"))
    for _ in range(3):
        halves(), floats()
    bar = 1.0 if _core.isa()[1] == "avx512" else 1.15
    row = RatioRow(f"{name}, bfloat16 / float32", "x", bar=bar)
    for _ in range(repeats):
        row.times.append(seconds_of(halves))
        row.others.append(seconds_of(floats))
    row.note = f"{min(row.others) * 1e3:.3g} ms in float32, {converted_by(halves):.3g} MB converted"
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description="benchmark of bfloat16 beside float32")
    parser.add_argument("--quick", action="store_true", help="few repeats: to see that it works")
    parser.add_argument("--only", metavar="NAME", help="networks whose name has this in it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine and rows there, too")
    arguments = parser.parse_args()
    facts = {**introduce(), "level": _core.isa()[1]}
    table = [
        measure(name, 2 if arguments.quick else 8) for name in NETWORKS if (arguments.only or "") in name
    ]
    show("half_types", table)
    if arguments.json:
        write(arguments.json, facts, "half_types", table)


if __name__ == "__main__":
    main()
