"""Trains a small network to tell from which photograph a patch was cut, from a RecordIO file, with worker threads.

The photographs are scikit-image's and scikit-learn's. Their patches go into RecordIO files, one for training, one for
tests; the loader decodes, crops, mirrors and changes colours at random, and normalises, in two threads. The state of
network, optimizer, loader and random numbers is saved every few steps, in the middle of epochs too. Started again, the
program goes on from there to the very same losses: what is random follows from seed, epoch and sample.

    python examples/pictures.py [--epochs 6] [--out build/pictures] [--fresh] [--stop-after STEPS] [--mode process]
"""

import argparse
import itertools
import json
import sys
import time
from pathlib import Path

import numpy as np
import skimage.data
from sklearn.datasets import load_sample_images

import weft as wf
import weft.data as data
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
from weft.data import recordio
from weft.data import transforms as T

OUT = Path(__file__).resolve().parents[1] / "build" / "pictures"
PATCH, CROP, STRIDE = 72, 64, 36  # pixels
BATCH = 32
SAVED_EVERY = 20  # steps
SEED = 1
MEAN, STD = 110.0, 60.0


def photographs():
    """Name -> u8[h, w, 3]."""
    names = ["astronaut", "coffee", "chelsea", "rocket", "immunohistochemistry", "hubble_deep_field"]
    china, flower = load_sample_images().images
    return {**{name: getattr(skimage.data, name)() for name in names}, "china": china, "flower": flower}


def make_records(out):
    """train.rec and test.rec: of each photograph the left three quarters, and the rest."""
    out.mkdir(parents=True, exist_ok=True)
    names = {"train": out / "train.rec", "test": out / "test.rec"}
    if all(path.exists() for path in names.values()):
        return names
    writers = {part: recordio.IndexedRecordWriter(path) for part, path in names.items()}
    for label, image in enumerate(photographs().values()):
        h, w, _ = image.shape
        border = w * 3 // 4
        for y in range(0, h - PATCH + 1, STRIDE):
            for x in range(0, w - PATCH + 1, STRIDE):
                part = "train" if x + PATCH <= border else "test" if x >= border else None
                if part:
                    writer = writers[part]
                    header = recordio.IRHeader(0, float(label), writer.count, 0)
                    writer.write(recordio.pack_img(header, image[y : y + PATCH, x : x + PATCH], quality=92))
    for writer in writers.values():
        writer.close()
    return names


class ToSample:
    """(picture, label) -> (f32[3, h, w], i64): a class, so that worker processes can be given it."""

    def __init__(self, change):
        self.change = change

    def __call__(self, sample):
        image, label = sample
        return self.change(image), np.int64(label)


TRAIN = T.Compose(
    [T.RandomCrop(CROP), T.RandomHorizontalFlip(), T.ColorJitter(0.3, 0.3, 0.3, 0.05), T.Normalize(MEAN, STD)]
)
TEST = T.Compose([T.CenterCrop(CROP), T.Normalize(MEAN, STD)])


class Net(M.Module):
    """Three convolutions, and the mean over all positions."""

    def __init__(self, classes):
        widths = [3, 16, 32, 64]
        self.convs = [
            M.Conv2d(a, b, 3, stride=2, padding=1, bias=False) for a, b in itertools.pairwise(widths)
        ]
        self.norms = [M.BatchNorm2d(width) for width in widths[1:]]
        self.dense = M.Linear(widths[-1], classes)

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.silu(norm(conv(x)))
        return self.dense(x.mean(axis=(2, 3)))


def accuracy_of(net, path, workers):
    accuracy = wf.metrics.Accuracy()
    net.eval()
    dataset = data.RecordDataset(path, decode="image")
    with data.DataLoader(dataset, batch_size=64, transform=ToSample(TEST), num_workers=workers) as loader:
        for images, labels in loader:
            accuracy.update(net(images), labels)
    net.train()
    return float(accuracy.compute())


def train(arguments):
    files = make_records(arguments.out)
    state = arguments.out / "training.safetensors"
    if arguments.fresh:
        state.unlink(missing_ok=True)
    wf.random.seed(SEED)
    net = Net(len(photographs()))
    optimizer = optim.AdamW(net.parameters(), lr=3e-3)
    manager = wf.GradManager().attach(net.parameters())
    dataset = data.RecordDataset(files["train"], decode="image")
    loader = data.DataLoader(
        dataset,
        batch_size=BATCH,
        shuffle=True,
        seed=SEED,
        drop_last=True,
        transform=ToSample(TRAIN),
        num_workers=arguments.workers,
        mode=arguments.mode,
    )
    parts = {"net": net, "optimizer": optimizer, "loader": loader}
    losses = []
    if state.exists():
        losses = wf.checkpoint.load(state, **parts)["losses"]
        print(f"goes on after step {len(losses)}, in epoch {loader.epoch + 1}")

    def step(images, labels):
        with manager:
            loss = F.cross_entropy(net(images), labels)
            manager.backward(loss)
        optimizer.step().clear_grad()
        return loss

    steps = arguments.epochs * len(loader)
    started, already = time.perf_counter(), len(losses)
    with loader:
        while len(losses) < steps:
            for images, labels in data.progress(loader, f"epoch {loader.epoch + 1}"):
                losses.append(step(images, labels).item())
                if len(losses) % SAVED_EVERY == 0 or len(losses) == steps:
                    wf.checkpoint.save(state, {"losses": losses}, **parts)
                if len(losses) - already == arguments.stop_after:
                    print(f"stopped after step {len(losses)}")
                    return None
    seconds = time.perf_counter() - started
    stats = loader.stats
    return {
        "losses": losses,
        "accuracy": accuracy_of(net, files["test"], arguments.workers),
        "samples": len(dataset),
        "images_per_s": stats.samples / seconds if already < steps else None,
        "waiting_share": stats.waiting_share,
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--mode", choices=["thread", "process"], default="thread")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of records, states and results")
    parser.add_argument("--fresh", action="store_true", help="begin again")
    parser.add_argument("--stop-after", type=int, metavar="STEPS", help="end in the middle, to go on later")
    arguments = parser.parse_args()
    result = train(arguments)
    if result is None:
        return 0
    (arguments.out / "result.json").write_text(json.dumps(result))
    losses = result["losses"]
    print(
        f"{result['samples']} patches, {len(losses)} steps; loss {losses[0]:.3f} -> {np.mean(losses[-10:]):.3f}"
    )
    print(f"patches that were not trained on: {100 * result['accuracy']:.1f} % right")
    if result["images_per_s"]:
        print(
            f"{result['images_per_s']:.0f} images/s, waiting for data {100 * result['waiting_share']:.1f} % of the time"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
