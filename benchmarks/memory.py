"""Peak memory of training steps, first call included, over what is there after import: weft beside eager PyTorch.

    ./dev bench memory [--peers] [--deep] [--json FILE]

Each cell is a process of its own: the largest resident size of four steps. `x torch` is the ratio to PyTorch's;
its bars are 1.05 for eager steps and 1 for traced ones. --deep: a residual network of 1000 layers under a memory budget
of a seventh of what it takes without one, its memory and its time.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import _environments as environments
from _table import introduce

HERE = Path(__file__).parent
NETWORKS = ("resnet18", "mobilenet", "vit", "unet")
WAYS = ("weft-eager", "weft-traced")
MIB = 1 << 20

DEEP = """
import json, sys, time
import numpy as np
import weft as wf, weft.functional as F, weft.module as M
from weft import optimizer

class Block(M.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.norm1 = M.Conv2d(width, width, 3, padding=1, bias=False), M.BatchNorm2d(width)
        self.conv2, self.norm2 = M.Conv2d(width, width, 3, padding=1, bias=False), M.BatchNorm2d(width)

    def forward(self, x):
        return x + self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))

layers, width, batch, size = map(int, sys.argv[1:5])
budget = json.loads(sys.argv[5])
wf.random.seed(0)
net = M.Sequential(*(Block(width) for _ in range(layers // 2)))
update, manager = optimizer.SGD(net.parameters(), lr=1e-3), wf.GradManager().attach(net.parameters())
x = wf.random.normal(0, 1, (batch, width, size, size))

def step():
    with manager:
        loss = F.mean(net(x) ** 2)
        manager.backward(loss)
    update.step().clear_grad()
    return loss

run = wf.trace(step, memory_budget=budget)
begin = time.perf_counter()
losses, times = [run().item()], []
first = time.perf_counter() - begin
for _ in range(int(sys.argv[6])):
    begin = time.process_time()
    losses.append(run().item())
    times.append(time.process_time() - begin)
arena = run.programs[0].memory_report().arena_bytes
print(json.dumps({"arena": arena, "first_s": first, "cpu_s": min(times), "losses": losses}))
"""


def peak(python, way, network):
    out = subprocess.run(
        [python, HERE / "_memory_side.py", way, network], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    return json.loads(out.splitlines()[-1])


def deep(layers, width=16, batch=8, size=32, steps=8):
    def run(budget):
        words = [layers, width, batch, size, json.dumps(budget), steps]
        out = subprocess.run(
            [sys.executable, "-c", DEEP, *map(str, words)], stdout=subprocess.PIPE, text=True, check=True
        ).stdout
        return json.loads(out.splitlines()[-1])

    plain, tight = run(None), run(1 / 7)
    print(
        f"{layers} layers: {plain['arena'] / MIB:.1f} MiB -> {tight['arena'] / MIB:.1f} MiB, 1/"
        f"{plain['arena'] / tight['arena']:.1f} (bar 1/7); processor time of a step {plain['cpu_s']:.3f} -> "
        f"{tight['cpu_s']:.3f} s, x {tight['cpu_s'] / plain['cpu_s']:.2f} (bar 1.35); first call "
        f"{plain['first_s']:.0f} -> {tight['first_s']:.0f} s; losses differ by "
        f"{max(abs(a - b) for a, b in zip(plain['losses'], tight['losses'], strict=True)):.1e}"
    )
    return {"layers": layers, "plain": plain, "tight": tight}


def main() -> None:
    parser = argparse.ArgumentParser(description="benchmark of the memory of training steps")
    parser.add_argument("--peers", action="store_true", help="compare with PyTorch")
    parser.add_argument(
        "--deep", type=int, nargs="?", const=1000, metavar="LAYERS", help="the residual network, too"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured there, too")
    arguments = parser.parse_args()
    introduce()
    rows = []
    python = None
    if arguments.peers:
        environments.make("torch")
        python = environments.python_of("torch")
    for network in NETWORKS:
        theirs = None
        if python is not None:
            rows.append(peak(python, "torch-eager", network))
            theirs = max(rows[-1]["peak_bytes"])
            print(f"{network}, torch-eager: {theirs / MIB:.0f} MiB")
        for way in WAYS:
            rows.append(peak(sys.executable, way, network))
            ours = max(rows[-1]["peak_bytes"])
            ratio = (
                ""
                if theirs is None
                else f", x torch {ours / theirs:.2f} (bar {1.05 if 'eager' in way else 1})"
            )
            print(f"{network}, {way}: {ours / MIB:.0f} MiB{ratio}", flush=True)
    if arguments.deep:
        rows.append(deep(arguments.deep))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
