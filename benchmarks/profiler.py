"""What a profile costs: training steps without one, inside of one, and with one that has ended.

    ./dev bench profiler [--runs N]

The three take turns, so that what else the machine does hits all alike; the quickest step of each counts.
"""

import argparse
import time

import numpy as np

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
    runs = parser.parse_args().runs
    random = np.random.default_rng(0)

    def images(n, *shape):
        return wf.asarray(random.standard_normal((n, *shape), dtype=np.float32)), wf.asarray(
            random.integers(0, 10, n)
        )

    cases = {
        "MLP 784-256-256-10, batch 64": (step_of(MLP([784, 256, 256, 10]), *images(64, 784)), 50),
        "ResNet-50, batch 2": (step_of(resnet50(10), *images(2, 3, 224, 224)), 1),
    }
    print(f"{'a step of':30} {'off ms':>9} {'on ms':>9} {'on/off':>7} {'after ms':>9} {'after/off':>9}")
    for name, (step, count) in cases.items():
        for _ in range(3):
            step()
        off, on, after = [], [], []
        for _ in range(runs):
            off.append(quickest(step, count))
            with wf.tools.profile():
                on.append(quickest(step, count))
            after.append(quickest(step, count))
        a, b, c = min(off), min(on), min(after)
        print(f"{name:30} {a * 1e3:9.3f} {b * 1e3:9.3f} {b / a:7.3f} {c * 1e3:9.3f} {c / a:9.3f}")


if __name__ == "__main__":
    main()
