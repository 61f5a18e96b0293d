"""Trains a convolutional network on scikit-learn's digits, quantizes it in two ways, and prints what each costs.

    python examples/quantize_digits.py [--epochs 8] [--out build/quantized]

First the network in floats; then with ranges from training images (post-training quantization), for each method of
finding them; then trained for a while with rounded numbers (quantization-aware training), with learned steps. Each row
of the table: accuracy on held-out images, memory of all numbers, time of a batch. It draws the activations' histograms
with the ranges that the methods found.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
import weft.quantization as Q

OUT = Path(__file__).resolve().parents[1] / "build" / "quantized"
BATCH, TRAINED, SIDE = 32, 1440, 8
METHODS = ("min_max", "percentile", "kl", "l2")


def digits():
    """Images f32[n,1,8,8] in 0..1 and labels i64[n]: those to train on, those held out."""
    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    images = bunch.images[order, None].astype("float32") / 16
    labels = bunch.target[order].astype("int64")
    return (images[:TRAINED], labels[:TRAINED]), (wf.tensor(images[TRAINED:]), labels[TRAINED:])


class Net(M.Module):
    """Three convolutions, the last one with a residual, and a linear layer."""

    def __init__(self):
        self.conv1, self.norm1 = M.Conv2d(1, 32, 3, padding=1, bias=False), M.BatchNorm2d(32)
        self.conv2, self.norm2 = M.Conv2d(32, 64, 3, padding=1, bias=False), M.BatchNorm2d(64)
        self.conv3, self.norm3 = M.Conv2d(64, 64, 3, padding=1, bias=False), M.BatchNorm2d(64)
        self.dense = M.Linear(64 * 4 * 4, 10)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        x = F.relu(self.norm3(self.conv3(x)) + x)
        return self.dense(F.flatten(x, 1))


def train(model, data, epochs, rate):
    """Cross entropy by Adam, each step one program."""
    images, labels = data
    model.train()
    optimizer = optim.Adam(model.parameters(), lr=rate)
    manager = wf.GradManager().attach(list(model.parameters()))

    @wf.trace
    def step(x, y):
        with manager:
            loss = F.cross_entropy(model(x), y)
            manager.backward(loss)
        optimizer.step().clear_grad()
        return loss

    rng = np.random.default_rng(1)
    for _ in range(epochs):
        for k in np.split(rng.permutation(TRAINED), TRAINED // BATCH):
            step(wf.tensor(images[k]), wf.tensor(labels[k]))
    return model.eval()


def measured(model, data):
    """The share of right answers, and the shortest time of a call, in ms."""
    images, labels = data
    predict = wf.trace(model)
    with wf.no_grad():
        accuracy = float((predict(images).numpy().argmax(1) == labels).mean())
        times = []
        for _ in range(20):
            begin = time.perf_counter()
            predict(images).numpy()
            times.append(time.perf_counter() - begin)
    return accuracy, min(times) * 1000


def draw(net, images, ranges, path):
    """What goes into each layer, and the ranges that the methods found."""
    seen = {}
    network = Q.Simulated(net, Q.QConfig(), {}, "draw").network((images,))
    state = [*net.parameters(), *net.buffers()]
    with wf.no_grad():
        network.run((images,), state, quantize=lambda name, x: seen.setdefault(name, x))
    figure = Figure(figsize=(10, 2.4 * len(seen)), layout="constrained")
    for axes, (name, x) in zip(figure.subplots(len(seen)), seen.items(), strict=True):
        axes.hist(x.numpy().ravel(), 200, log=True, color="#9db4c8")
        for k, method in enumerate(METHODS):
            for end in ranges[method][name]:
                axes.axvline(end, color=f"C{k}", label=method if end == ranges[method][name][1] else None)
        axes.set_title(name, loc="left")
    figure.axes[0].legend()
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    wf.random.seed(0)
    trained, held_out = digits()
    net = train(Net(), trained, options.epochs, 2e-3)
    floats = sum(x.size * x.dtype.itemsize for x in net.state_dict().values())
    accuracy, ms = measured(net, held_out)
    print(f"{'':20}{'accuracy':>9}{'bytes':>9}{'ms':>8}")
    print(f"{'float32':20}{accuracy:9.2%}{floats:9}{ms:8.2f}")
    batches = [wf.tensor(part) for part in np.split(trained[0][:256], 4)]
    ranges = {}

    def row(name, simulated):
        integers = Q.convert(simulated)
        accuracy, ms = measured(integers, held_out)
        print(f"{name:20}{accuracy:9.2%}{integers.size_bytes():9}{ms:8.2f}")

    for method in METHODS:
        simulated = Q.calibrate(net, batches, method=method)
        ranges[method] = {k: (q.low.item(), q.high.item()) for k, q in simulated.activations.items()}
        row(f"calibrated, {method}", simulated)
    draw(net, batches[0], ranges, options.out / "activations.png")
    qat = Q.prepare_qat(net, "lsq", example=batches[0])
    row("trained, lsq", train(qat, trained, max(options.epochs // 2, 1), 2e-4))
    print(Q.report(qat))
    print(f"{options.out / 'activations.png'}")


if __name__ == "__main__":
    main()
