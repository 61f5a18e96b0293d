"""A slow step of training, made fast: the example of docs/performance.md.

    ./dev python examples/slow_step.py [--turns N] [--timeline FILE]
    ./dev python examples/slow_step.py --profile FILE [--version NAME]

A classifier of sequences of varied length. Each version changes one thing of the version before; the table shows what a
step counts and takes, at its quickest, the versions in turn.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
from weft.tools import profile
from weft.tools.counters import Counting

FEATURES, HIDDEN, CLASSES, BATCH, STEPS, LONGEST = 32, 64, 10, 16, 8, 64


class Classifier(M.Module):
    """The mean over the sequence of two layers, classified; where `real` is 0 counts for nothing."""

    def __init__(self):
        self.first, self.second = M.Linear(FEATURES, HIDDEN), M.Linear(HIDDEN, HIDDEN)
        self.head = M.Linear(HIDDEN, CLASSES)

    def forward(self, x, real):
        y = F.gelu(self.second(F.gelu(self.first(x))))
        weights = F.reshape(real, (*real.shape, 1))
        return self.head(F.sum(y * weights, axis=-2) / F.sum(weights, axis=-2))


def batches():
    """Of sequences x float[t, features] and labels, t between 20 and LONGEST."""
    random = np.random.default_rng(0)
    for _ in range(STEPS):
        lengths = random.integers(20, LONGEST + 1, BATCH)
        sequences = [random.standard_normal((n, FEATURES), dtype=np.float32) for n in lengths]
        yield sequences, random.integers(0, CLASSES, BATCH)


def one_by_one(sequences, labels):
    """What a step gets in the first version: every sequence by itself."""
    return [(wf.asarray(x), wf.ones(len(x)), wf.asarray(y)) for x, y in zip(sequences, labels, strict=True)]


def padded(sequences, labels):
    """One array of all sequences, as long as the longest may be."""
    x, real = np.zeros((BATCH, LONGEST, FEATURES), np.float32), np.zeros((BATCH, LONGEST), np.float32)
    for k, sequence in enumerate(sequences):
        x[k, : len(sequence)], real[k, : len(sequence)] = sequence, 1
    return [(wf.asarray(x), wf.asarray(real), wf.asarray(labels))]


def version(arrange: Callable, reads: bool, traced: bool) -> Callable[[], None]:
    """An epoch of STEPS steps. reads: Python reads the norm of each gradient in every step."""
    wf.random.seed(0)
    net = Classifier()
    optimizer = optim.AdamW(net.parameters(), lr=1e-3)
    manager = wf.GradManager().attach(net.parameters())
    data = [arrange(sequences, labels) for sequences, labels in batches()]

    def step(parts):
        with manager:
            losses = [F.cross_entropy(net(x, real), labels) for x, real, labels in parts]
            loss = sum(losses) / len(losses)
            manager.backward(loss)
        norms = [F.sqrt(F.sum(p.grad * p.grad)) for p in net.parameters()]
        optimizer.step().clear_grad()
        return loss, norms

    if traced:
        step = wf.trace(step)

    def epoch():
        for parts in data:
            loss, norms = step(parts)
            if reads:
                [norm.item() for norm in norms]
        return loss.item()

    return epoch


VERSIONS = {
    "as written": {"arrange": one_by_one, "reads": True, "traced": False},
    "one padded batch": {"arrange": padded, "reads": True, "traced": False},
    "norms not read": {"arrange": padded, "reads": False, "traced": False},
    "traced": {"arrange": padded, "reads": False, "traced": True},
}


def main() -> None:
    parser = argparse.ArgumentParser(description="a slow step of training, made fast")
    parser.add_argument("--turns", type=int, default=20, help="epochs of each version (20)")
    parser.add_argument("--timeline", metavar="FILE", help="write there when the traced version ran what")
    parser.add_argument("--profile", metavar="FILE", help="only write the profiler's page of one epoch there")
    parser.add_argument("--version", choices=VERSIONS, default="as written", help="of what (as written)")
    arguments = parser.parse_args()

    if arguments.profile:
        epoch = version(**VERSIONS[arguments.version])
        epoch(), epoch()
        with profile() as recorded:
            epoch()
        recorded.save(arguments.profile)
        print(recorded)
        return

    epochs = {name: version(**options) for name, options in VERSIONS.items()}
    firsts, times = {}, {name: [] for name in epochs}
    for name, epoch in epochs.items():
        with Counting() as counting:
            epoch()
        firsts[name] = counting.counts
        epoch()
    for _ in range(arguments.turns):
        for name, epoch in epochs.items():
            start = time.perf_counter()
            epoch()
            times[name].append((time.perf_counter() - start) / STEPS)

    print(f"{'a step of':22} launches  kernels  plans in the first epoch      ms")
    for name, epoch in epochs.items():
        with Counting() as counting:
            epoch()
        counts = [counting.counts[key] / STEPS for key in ("launches", "kernels")]
        plans = firsts[name].get("planner calls", 0)
        print(f"{name:22} {counts[0]:8.0f} {counts[1]:8.0f} {plans:25} {min(times[name]) * 1e3:7.2f}")

    if arguments.timeline:
        with profile() as recorded:
            epochs["traced"]()
        recorded.to_chrome(arguments.timeline)
        print(f"\n{recorded}")


if __name__ == "__main__":
    main()
