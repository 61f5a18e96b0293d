"""Recurrent layers: what a sequence of a new length costs beside an LSTM's, and steps of training beside PyTorch's.

    ./dev bench recurrent [--quick] [--json FILE]

A new length is met once by each layer: forward, backward, planning included, processor time of the process. Rows beside
PyTorch, where it is installed, are of one layer of 35 steps of 20 rows, 256 wide, in turn.
"""

import argparse
import importlib.util
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _table import RatioRow, introduce, show, write

import weft as wf
import weft.module as M

LAYERS = ("LSTM", "GRU", "RNN")
STEPS, ROWS, WIDTH = 35, 20, 256


def step_of(net: Any, way: str = "eager") -> Callable[[Any], None]:
    """A step of training without an update, which is over when it returns."""
    gm = wf.GradManager().attach(net.parameters())

    def step(x: Any) -> list[Any]:
        with gm:
            gm.backward((net(x)[0] ** 2).sum())
        gradients = [p.grad for p in net.parameters()]
        for p in net.parameters():
            p.grad = None
        return gradients

    function = {
        "eager": step,
        "traced": wf.trace(step, max_entries=1000),
        "dynamic": wf.trace(step, dynamic={"x": 0}),
    }[way]

    def run(x: Any) -> None:
        for gradient in function(x):
            gradient.wait()

    return run


def new_lengths(way: str, count: int) -> list[RatioRow]:
    """A row for each layer but the LSTM: a new length's time over that of an LSTM."""
    steps = {name: step_of(getattr(M, name)(32, 64, 2), way) for name in LAYERS}
    times: dict[str, list[float]] = {name: [] for name in LAYERS}
    for length in range(8, 8 + 2 * count, 2):
        x = wf.random.normal(shape=(length, 8, 32))
        for name in LAYERS:
            begin = time.process_time()
            steps[name](x)
            times[name].append(time.process_time() - begin)
    rows = []
    for name in LAYERS[1:]:
        row = RatioRow(f"a new length of {name} / LSTM, {way}", "x")
        row.times, row.others = times[name][2:], times["LSTM"][2:]  # the first two compile loops
        row.note = f"{min(row.times) * 1e3:.3g} ms, LSTM {min(row.others) * 1e3:.3g} ms"
        rows.append(row)
    return rows


def beside_torch(name: str, repeats: int) -> RatioRow:
    """A row of a step of training over PyTorch's."""
    import torch

    run, x = step_of(getattr(M, name)(WIDTH, WIDTH)), wf.random.normal(shape=(STEPS, ROWS, WIDTH))
    net, torch_x = getattr(torch.nn, name)(WIDTH, WIDTH), torch.randn(STEPS, ROWS, WIDTH)

    def theirs() -> None:
        net.zero_grad()
        (net(torch_x)[0] ** 2).sum().backward()

    row = RatioRow(f"a step of {name} / PyTorch", "x", bar=1.0)
    for k in itertools.count():
        for function, times in ((lambda: run(x), row.times), (theirs, row.others)):
            begin = time.perf_counter()
            function()
            if k >= 3:
                times.append(time.perf_counter() - begin)
        if k == repeats + 2:
            break
    row.note = f"{min(row.times) * 1e3:.3g} ms, PyTorch {min(row.others) * 1e3:.3g} ms"
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description="benchmark of recurrent layers")
    parser.add_argument("--quick", action="store_true", help="few repeats: to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine and rows there, too")
    arguments = parser.parse_args()
    facts = introduce()
    table = [
        row
        for way in ("eager", "traced", "dynamic")
        for row in new_lengths(way, 4 if arguments.quick else 20)
    ]
    if importlib.util.find_spec("torch"):
        table += [beside_torch(name, 2 if arguments.quick else 40) for name in LAYERS]
    show("recurrent", table)
    if arguments.json:
        write(arguments.json, facts, "recurrent", table)


if __name__ == "__main__":
    main()
