"""Integers beside floats: networks for prediction and decoding, traced, in turn, shortest of many.

    ./dev bench quantization [--quick] [--only NAME] [--json FILE]

Each row is the time of the quantized network over that of the float32 one. The bars are those of processors whose
instructions add products of bytes in 32 bits.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from _table import RatioRow, introduce, show, write

import weft as wf
import weft.quantization as Q
from weft import models


def pictures(batch, quick):
    side = 64 if quick else 224
    return wf.tensor(np.random.default_rng(0).standard_normal((batch, 3, side, side), "float32"))


def resnet(batch, quick):
    net = (models.resnet18 if quick else models.resnet50)().eval()
    x = pictures(batch, quick)
    return net, Q.convert(Q.calibrate(net, [x])), x


def decoding(config, quick):
    """One token at a time: products of one row, which memory bounds."""
    sizes = {"layers": 2, "width": 128, "heads": 2} if quick else {"layers": 6, "width": 768, "heads": 12}
    net = models.GPT(models.GPTConfig(**sizes, vocabulary=1000, context=64)).eval()
    ids = wf.tensor(np.random.default_rng(0).integers(0, 1000, (1, 1)))
    return net, Q.convert(Q.calibrate(net, [ids], qconfig=config)), ids


CASES = {
    "ResNet-50, batch 1": (lambda quick: resnet(1, quick), 0.4),
    "ResNet-50, batch 16": (lambda quick: resnet(2 if quick else 16, quick), 0.4),
    "GPT, one token, weights of 4 bits": (lambda quick: decoding("int4_weight", quick), 0.53),
    "GPT, one token, weights of 8 bits": (
        lambda quick: decoding(Q.QConfig(activation_bits=None), quick),
        0.53,
    ),
}


def seconds_of(run, x):
    start = time.perf_counter()
    run(x)
    wf.waitall()
    return time.perf_counter() - start


def measure(name, quick):
    make, bar = CASES[name]
    net, integers, x = make(quick)
    runs = [wf.trace(integers), wf.trace(net)]
    for run in runs * 3:
        seconds_of(run, x)
    row = RatioRow(f"{name}, integers / float32", "x", bar=bar)
    for _ in range(3 if quick else 30):
        for run, times in zip(runs, (row.times, row.others), strict=True):
            times.append(seconds_of(run, x))
    size = integers.size_bytes() / sum(p.size * 4 for p in net.parameters())
    row.note = f"{min(row.others) * 1e3:.2f} ms in floats; {size:.2f} of the bytes"
    return row


def calibrating(quick):
    """Ranges from pictures over the forward passes that they need."""
    net, x = (models.resnet18 if quick else models.resnet50)().eval(), pictures(2 if quick else 16, quick)
    batches = [x] * (2 if quick else 4)
    row = RatioRow("calibrating ResNet-50 / its forward passes", "x", bar=1.5)
    for _ in range(2):
        start = time.perf_counter()
        Q.calibrate(net, batches)
        row.times.append(time.perf_counter() - start)
        row.others.append(sum(seconds_of(net, x) for x in batches))
    return row


def main():
    parser = argparse.ArgumentParser(description="benchmark of quantized networks beside float ones")
    parser.add_argument(
        "--quick", action="store_true", help="small networks, few repeats: to see that it works"
    )
    parser.add_argument("--only", metavar="NAME", help="rows whose name has this in it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine and rows there, too")
    arguments = parser.parse_args()
    facts = introduce()
    names = [name for name in CASES if (arguments.only or "") in name]
    table = [measure(name, arguments.quick) for name in names]
    if (arguments.only or "") in "calibrating":
        table.append(calibrating(arguments.quick))
    show("quantization", table)
    if arguments.json:
        write(arguments.json, facts, "quantization", table)


if __name__ == "__main__":
    main()
