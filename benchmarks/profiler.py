"""What a profile costs: training steps without one, inside of one, and with one that has ended.

    ./dev bench profiler [--runs N] [--quick] [--only TEXT] [--json FILE]

The three take turns, so that what else the machine does hits all alike; the quickest step of each counts.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from _table import RatioRow, Row, introduce, show, write

import weft as wf
import weft.functional as F
import weft.optimizer as optim
from weft.models import MLP, resnet50


def step_of(net, x, y):
    manager, optimizer = wf.GradManager().attach(net.parameters()), optim.SGD(net.parameters(), lr=1e-3)

    @wf.trace
    def step(x, y):
        with manager:
            loss = F.cross_entropy(net(x), y)
            manager.backward(loss)
        optimizer.step().clear_grad()
        return loss

    return lambda: step(x, y).wait()


def quickest(step, count):
    seconds = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main():
    parser = argparse.ArgumentParser(description="what a profile costs")
    parser.add_argument("--runs", type=int, default=20, help="turns (20)")
    parser.add_argument("--quick", action="store_true", help="two turns: to see that it works")
    parser.add_argument("--only", default="", metavar="TEXT", help="only networks with this in their names")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine and rows there, too")
    arguments = parser.parse_args()
    runs = 2 if arguments.quick else arguments.runs
    facts = introduce()
    random = np.random.default_rng(0)

    def images(n, *shape):
        return wf.asarray(random.standard_normal((n, *shape), dtype=np.float32)), wf.asarray(
            random.integers(0, 10, n)
        )

    cases = {
        "MLP 784-256-256-10, batch 64": (step_of(MLP([784, 256, 256, 10]), *images(64, 784)), 50, 1.1),
        "ResNet-50, batch 2": (step_of(resnet50(10), *images(2, 3, 224, 224)), 1, 1.02),
    }
    rows: list[Row] = []
    for name, (step, count, bar) in cases.items():
        if arguments.only not in name:
            continue
        for _ in range(3):
            step()
        off, on, after = [], [], []
        for _ in range(runs):
            off.append(quickest(step, count))
            with wf.tools.profile():
                on.append(quickest(step, count))
            after.append(quickest(step, count))
        for what, times, most in (("on", on, bar), ("after", after, None)):
            note = f"{min(times) * 1e3:.3f} ms, off {min(off) * 1e3:.3f} ms"
            rows.append(RatioRow(f"{name}: {what}", "x off", bar=most, times=times, others=off, note=note))
    show("profiler", rows)
    if arguments.json:
        write(arguments.json, facts, "profiler", rows)


if __name__ == "__main__":
    main()
