"""Trains ResNet-18 to say which picture a patch is from, quantizes it in two ways, and prints what each costs.

    python examples/quantize_pictures.py [--steps 600]

The twelve pictures come with scikit-image and scikit-learn (a cat, coins, grass, a temple, ...). They are cut into
strips of 64 columns; patches of 32 x 32 pixels to train on are from two of three strips, those held out from the third,
so that no pixel is in both. The rate of training falls to zero. Then the network is trained on for a third of the steps
at a small rate, once in floats and once with rounded numbers and learned steps, from the same weights and with the same
patches. Each row of the table: the share of held-out patches whose picture is named, and the memory of all numbers.
"""

import argparse
import copy
from pathlib import Path

import numpy as np
import skimage.data
import sklearn.datasets
from skimage.io import imread

import weft as wf
import weft.functional as F
import weft.optimizer as optim
import weft.quantization as Q
from weft import models

SIDE, BATCH, HELD_OUT, STRIP = 32, 64, 3000, 64
NAMES = (
    "astronaut",
    "brick",
    "camera",
    "chelsea",
    "coffee",
    "coins",
    "grass",
    "gravel",
    "moon",
    "motorcycle_left",
)
CALIBRATED = 8  # batches


def pictures():
    """Pictures f32[h,w,3] in 0..1."""
    folder = Path(skimage.data.__file__).parent
    for name in NAMES:
        picture = np.asarray(imread(folder / f"{name}.png"), "float32") / 255
        yield np.repeat(picture[..., None], 3, -1) if picture.ndim == 2 else picture[..., :3]
    for picture in sklearn.datasets.load_sample_images().images:
        yield np.asarray(picture, "float32") / 255


class Patches:
    """Patches of one part of each picture at random places, with the index of the picture."""

    def __init__(self, seed, held_out):
        self.random = np.random.default_rng(seed)
        self.parts = []
        for picture in pictures():
            strips = [picture[:, k : k + STRIP] for k in range(0, picture.shape[1] - STRIP + 1, STRIP)]
            self.parts.append([strip for k, strip in enumerate(strips) if (k % 3 == 2) == held_out])

    def draw(self, count):
        """f32[count,3,32,32] around 0, and i64[count]."""
        labels = self.random.integers(0, len(self.parts), count)
        x = np.empty((count, SIDE, SIDE, 3), "float32")
        for k, label in enumerate(labels):
            part = self.parts[label][self.random.integers(len(self.parts[label]))]
            top, left = (self.random.integers(0, n - SIDE + 1) for n in part.shape[:2])
            x[k] = part[top : top + SIDE, left : left + SIDE]
        return wf.tensor(np.ascontiguousarray(x.transpose(0, 3, 1, 2)) * 4 - 2), labels


def train(model, patches, steps, rate, learned=()):
    """Cross entropy by Adam, whose rate falls to zero; each step one program. learned: steps, which move slower."""
    model.train()
    weights = [p for p in model.parameters() if all(p is not step for step in learned)]
    groups = [{"params": weights}, *([{"params": list(learned), "lr": rate / 100}] if learned else [])]
    optimizer = optim.Adam(groups, lr=rate)
    schedule = optim.lr_scheduler.LinearLR(optimizer, start=1.0, end=0.0, steps=steps)
    manager = wf.GradManager().attach(list(model.parameters()))

    @wf.trace
    def step(x, y):
        with manager:
            loss = F.cross_entropy(model(x), y)
            manager.backward(loss)
        optimizer.step().clear_grad()
        return loss

    for _ in range(steps):
        x, y = patches.draw(BATCH)
        step(x, wf.tensor(y))
        schedule.step()
    return model.eval()


def accuracy_of(model, held_out):
    """The share of right answers."""
    predict = wf.trace(model)
    right = 0
    with wf.no_grad():
        for x, labels in held_out:
            right += int((predict(x).numpy().argmax(1) == labels).sum())
    return right / sum(len(labels) for _, labels in held_out)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args()
    wf.random.seed(0)
    patches, others = Patches(0, held_out=False), Patches(1, held_out=True)
    held_out = [others.draw(HELD_OUT // 10) for _ in range(10)]
    net = train(models.resnet18(len(patches.parts)), patches, options.steps, 1e-3)
    floats = sum(x.size * x.dtype.itemsize for x in net.state_dict().values())
    print(f"{'':20}{'accuracy':>9}{'bytes':>10}")

    def row(name, network, size):
        print(f"{name:20}{accuracy_of(network, held_out):9.2%}{size:10}", flush=True)

    def integer_row(name, simulated):
        integers = Q.convert(simulated)
        row(name, integers, integers.size_bytes())

    row("float32", net, floats)

    batches = [patches.draw(BATCH)[0] for _ in range(CALIBRATED)]
    for method in ("min_max", "percentile", "l2"):
        integer_row(f"calibrated, {method}", Q.calibrate(net, batches, method=method))
    more = max(options.steps // 3, 1)
    row("float32, trained on", train(copy.deepcopy(net), Patches(2, held_out=False), more, 1e-4), floats)
    qat = Q.prepare_qat(net, "lsq", example=batches[0])
    integer_row("trained on, lsq", train(qat, Patches(2, held_out=False), more, 1e-4, qat.steps()))


if __name__ == "__main__":
    main()
