"""Integers beside floats: networks for prediction and decoding, traced, in turn, shortest of many.

    ./dev bench quantization [--peers] [--quick] [--only NAME] [--json FILE]
    WEFT_ISA=avx2 ./dev bench quantization --peers ...

Rows are the time of the quantized network over that of the float32 one, or its bytes, or, of a language model that is
trained for that, its perplexity. --peers: over that of the same network in ONNX Runtime (static quantization) and in
OpenVINO (NNCF's post-training quantization), each in an environment and a process of its own. Bars of floats are lower
where no instruction adds products of bytes in 32 bits.
With WEFT_ISA, OpenVINO is held to that instruction set level, too. ONNX Runtime has no switch for it: beside it there
is no bar then.
"""

import argparse
import json
import math
import os
import subprocess
import time
from pathlib import Path

import _environments as environments
import numpy as np
from _side import Side, calls
from _table import RatioRow, introduce, show, write

import weft as wf
import weft.functional as F
import weft.quantization as Q
from weft import _core, models

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers" / "quantized"
FOLDER = environments.FOLDER / "quantized" / "models"
PEER_BARS = {"openvino": 1.0, "onnxruntime": 0.95}
IMAGES = 64  # for ranges


def pictures(batch, quick):
    side = 64 if quick else 224
    return wf.tensor(np.random.default_rng(0).standard_normal((batch, 3, side, side), "float32"))


def convolutional(name, batch, quick):
    make = getattr(models, "resnet18" if quick and name == "resnet50" else name)
    net, x = make().eval(), pictures(min(batch, 2) if quick else batch, quick)
    return net, Q.convert(Q.calibrate(net, [x], qconfig="auto")), x


def decoding(config, quick):
    """One token at a time: products of one row, which memory bounds."""
    sizes = {"layers": 2, "width": 128, "heads": 2} if quick else {"layers": 6, "width": 768, "heads": 12}
    net = models.GPT(models.GPTConfig(**sizes, vocabulary=1000, context=64)).eval()
    ids = wf.tensor(np.random.default_rng(0).integers(0, 1000, (1, 1)))
    return net, Q.convert(Q.calibrate(net, [ids], qconfig=config)), ids


BYTES_BAR = 0.4 if _core.onednn_adds_bytes() else 0.65
WEIGHTS_BAR = 1 / 1.9
# name: how it is made, the bar beside floats, the network and the batch of the peers
CASES = {
    "ResNet-50, batch 1": (
        lambda quick: convolutional("resnet50", 1, quick),
        BYTES_BAR,
        "resnet50 1",
    ),
    "ResNet-50, batch 16": (
        lambda quick: convolutional("resnet50", 16, quick),
        BYTES_BAR,
        "resnet50 16",
    ),
    "MobileNetV2, batch 1": (
        lambda quick: convolutional("mobilenet_v2", 1, quick),
        BYTES_BAR,
        "mobilenet_v2 1",
    ),
    "MobileNetV2, batch 16": (
        lambda quick: convolutional("mobilenet_v2", 16, quick),
        BYTES_BAR,
        "mobilenet_v2 16",
    ),
    "GPT, one token, weights of 4 bits": (lambda quick: decoding("int4_weight", quick), WEIGHTS_BAR, None),
    "GPT, one token, weights of 8 bits": (
        lambda quick: decoding(Q.QConfig(activation_bits=None), quick),
        WEIGHTS_BAR,
        None,
    ),
}


def seconds_of(run, x):
    start = time.perf_counter()
    run(x)
    wf.waitall()
    return time.perf_counter() - start


def sampler(run, x):
    """What measures a call as peers measure theirs: the best of a few, behind one that warms caches."""
    return calls(lambda: run(x), lambda _: wf.waitall())


def capped():
    """The instruction set level below the processor's that $WEFT_ISA holds all sides to; None: there is none."""
    most, level = _core.isa()[:2]
    return level if level != most else None


def program_bytes(traced):
    """Memory that a program computes in, beside its arguments and parameters."""
    return sum(report.arena_bytes for report in traced.memory_report())


def measure(name, quick, sides):
    """A row beside floats, a row of bytes, and a row for each peer."""
    make, bar, of_peers = CASES[name]
    net, integers, x = make(quick)
    runs = [wf.trace(integers), wf.trace(net)]
    before = [program_kernels(run, x) for run in runs]
    row = RatioRow(f"{name}, integers / float32", "x", bar=bar)
    beside = {peer: beside_peer(name, peer, quick) for peer in (sides if of_peers is not None else ())}
    samplers = [sampler(run, x) for run in runs]
    for _ in range(3 if quick else 30):
        for sample, times in zip(samplers, (row.times, row.others), strict=True):
            times.append(sample())
        for peer, other in beside.items():
            other.times.append(row.times[-1])
            other.others.append(sides[peer].seconds(of_peers))
    row.note = f"{min(row.others) * 1e3:.2f} ms in floats; {before[0]} kernels for {before[1]}"
    sizes = [integers.size_bytes(), sum(p.size * 4 for p in net.parameters())]
    memory = RatioRow(f"{name}, bytes of the integer program / float32", "x", bar=0.3 if of_peers else None)
    arenas = [program_bytes(run) for run in runs]
    memory.times, memory.others = [sizes[0] + arenas[0]], [sizes[1] + arenas[1]]
    memory.note = f"numbers {sizes[0] / sizes[1]:.2f}, arena {arenas[0] / max(arenas[1], 1):.2f}"
    return [row, memory, *beside.values()]


def beside_peer(name, peer, quick):
    """Without a bar where the sides do not do the same: the peers' pictures are never small.

    Nor can peers be held to a level: ONNX Runtime has no switch, and OpenVINO, held to AVX2, ends while it compiles
    (2026.4: "object is not initialized").
    """
    is_fair = not quick and capped() is None
    note = f"not held to {capped()}" if capped() else ""
    return RatioRow(f"{name}, integers / {peer}'s", "x", bar=PEER_BARS[peer] if is_fair else None, note=note)


def program_kernels(run, x):
    """Kernels of a step, when nothing is compiled any more."""
    for _ in range(3):
        seconds_of(run, x)
    before = _core.program_counters()["kernels"]
    seconds_of(run, x)
    return _core.program_counters()["kernels"] - before


def calibrating(quick):
    """Ranges from pictures over the forward passes that they need."""
    net, x = (models.resnet18 if quick else models.resnet50)().eval(), pictures(2 if quick else 16, quick)
    batches = [x] * (2 if quick else IMAGES // 16)
    row = RatioRow("calibrating ResNet-50 / its forward passes", "x", bar=1.5)
    for _ in range(2):
        start = time.perf_counter()
        Q.calibrate(net, batches)
        row.times.append(time.perf_counter() - start)
        row.others.append(sum(seconds_of(net, x) for x in batches))
    return row


def language_loss(net, ids):
    """The mean cross-entropy of each token behind those before it."""
    logits = net(ids[:, :-1])
    return F.cross_entropy(logits.reshape((-1, logits.shape[-1])), ids[:, 1:].reshape((-1,)))


def perplexity_of_weights(quick):
    """A small GPT, trained on the bytes of the documentation but its last tenth, and tried on that."""
    steps, texts, context = (4, 4, 16) if quick else (400, 16, 64)
    pages = sorted((HERE.parent / "docs").rglob("*.md"))
    data = np.frombuffer(b"".join(page.read_bytes() for page in pages), "uint8").astype("int64")
    random, last = np.random.default_rng(0), len(data) * 9 // 10

    def draw(count, first, end):
        starts = random.integers(first, end - context - 1, count)
        return wf.tensor(np.stack([data[k : k + context + 1] for k in starts]))

    wf.random.seed(0)
    net = models.GPT(models.GPTConfig(layers=2, width=128, heads=4, vocabulary=256, context=context))
    optimizer, gm = wf.optimizer.AdamW(net.parameters(), lr=2e-3), wf.GradManager().attach(net.parameters())

    @wf.trace
    def step(ids):
        with gm:
            gm.backward(language_loss(net, ids))
        optimizer.step().clear_grad()

    for _ in range(steps):
        step(draw(texts, 0, last))
    held, rows = draw(4 * texts, last, len(data)), []
    of_floats = math.exp(language_loss(net.eval(), held).item())
    for bits, config in ((4, "int4_weight"), (8, Q.QConfig(activation_bits=None))):
        integers = Q.convert(Q.calibrate(net, [held[:1, :-1]], qconfig=config))
        perplexity = math.exp(language_loss(integers, held).item())
        row = RatioRow(f"GPT of bytes, perplexity, weights of {bits} bits / float32", "x")
        row.times, row.others = [perplexity], [of_floats]
        row.note = f"{perplexity:.5g}, in floats {of_floats:.5g}"
        rows.append(row)
    return rows


def peers(quick):
    """The processes of the peers, whose networks are quantized if they are not yet."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    os.environ["BENCH_QUANTIZED"] = str(FOLDER)
    count = 4 if quick else IMAGES
    sides = {}
    for peer in PEER_BARS:
        name = f"quantized/{peer}"
        environments.make(name)
        program, stamp = PEERS / f"{peer}_side.py", FOLDER / f"{peer}.json"
        sources = [(PEERS / "_onnx_networks.py").read_text(), program.read_text(), count]
        if not stamp.exists() or json.loads(stamp.read_text()) != sources:
            with open(FOLDER / f"{peer}.log", "w") as log:
                command = [environments.python_of(name), program, str(count)]
                subprocess.run(command, stdout=log, stderr=log, check=True)
            stamp.write_text(json.dumps(sources))
        sides[peer] = Side(environments.python_of(name), program)
    return sides


def main():
    parser = argparse.ArgumentParser(description="benchmark of quantized networks beside float ones")
    parser.add_argument("--peers", action="store_true", help="beside ONNX Runtime and OpenVINO")
    parser.add_argument(
        "--quick", action="store_true", help="small images, few repeats: to see that it works"
    )
    parser.add_argument("--only", metavar="NAME", help="rows whose name has this in it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine and rows there, too")
    arguments = parser.parse_args()
    facts = introduce()
    sides = peers(arguments.quick) if arguments.peers else {}
    names = [name for name in CASES if (arguments.only or "") in name]
    table = [row for name in names for row in measure(name, arguments.quick, sides)]
    if (arguments.only or "") in "calibrating":
        table.append(calibrating(arguments.quick))
    if (arguments.only or "") in "perplexity":
        table += perplexity_of_weights(arguments.quick)
    for side in sides.values():
        side.close()
    show("quantization", table)
    if arguments.json:
        write(arguments.json, facts, "quantization", table)


if __name__ == "__main__":
    main()
