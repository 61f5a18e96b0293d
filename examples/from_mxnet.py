"""Goes on in weft with a network that was trained in Apache MXNet 1.9.1, and exports it to ONNX and for C.

    python examples/from_mxnet.py FOLDER [--out OUT]

FOLDER is what train_in_mxnet.py writes: MXNet's own files of a network, its parameters and its optimizer, and images
with the answers that MXNet gives. The program reads them, compares the answers, trains one epoch with MXNet's
optimizer states, which MXNet did as well, then teaches the network negatives of the images, and writes it to OUT as
stripes.onnx (needs the package onnx) and as the folder `native`, which weft.h of docs/c.md runs without Python.
"""

import argparse
import importlib.util
from pathlib import Path

import numpy as np

import weft as wf
import weft.functional as F
from weft.interop import mxnet
from weft.module import SymbolModule

BATCH, LR, MOMENTUM, DECAY = 32, 0.02, 0.9, 1e-4  # as in train_in_mxnet.py


def read(folder):
    """The network up to its scores: without SoftmaxOutput, which wants labels."""
    symbol, arrays = mxnet.load(folder / "stripes-symbol.json", folder / "stripes-0000.params")
    return SymbolModule(symbol.get_internals()["scores_output"], arrays, inputs=["data"])


def probabilities(net, images):
    with wf.no_grad():
        return F.softmax(net.eval()(wf.asarray(images)), axis=-1).numpy()


def parameters_of(net):
    """The parameters by their names in MXNet, in the order in which MXNet numbers them."""
    trained = {id(p) for p in net.parameters()}
    names = [name for name in net.symbol.list_arguments() if name not in net.inputs]
    return {name: p for name in names if id(p := net.tensor_of(name)) in trained}


def optimizer_of(net, folder):
    """SGD as MXNet's, with the momentum that MXNet has saved; it decays weights and gammas only."""
    parameters = parameters_of(net)
    decays = {name: name.endswith(("_weight", "_gamma")) for name in parameters}
    groups = [
        {"params": [p for name, p in parameters.items() if decays[name] is d], "weight_decay": DECAY * d}
        for d in (True, False)
    ]
    optimizer = wf.optimizer.SGD(groups, lr=LR, momentum=MOMENTUM)
    states = mxnet.load_states(folder / "stripes-0000.states")
    mxnet.restore(optimizer, states, list(parameters.values()))
    return optimizer


def train(net, optimizer, images, labels, epochs):
    """Batches in order, as MXNet's iterator gives them; the mean loss of the last epoch."""
    net.train()
    manager = wf.GradManager().attach(net)

    @wf.trace
    def step(x, label):
        with manager:
            loss = F.cross_entropy(net(x), label)
            manager.backward(loss)
        optimizer.step().clear_grad()
        return loss

    x, y = wf.asarray(images), wf.asarray(labels.astype("int64"))
    for _ in range(epochs):
        losses = [step(x[k : k + BATCH], y[k : k + BATCH]) for k in range(0, len(images), BATCH)]
    return float(np.mean([loss.item() for loss in losses]))


def accuracy(net, images, labels):
    return float((probabilities(net, images).argmax(-1) == labels).mean())


def export(net, out, images):
    """Write the network to ONNX, if the package is there, and as a folder for C."""
    out.mkdir(parents=True, exist_ok=True)
    net.eval()
    x = wf.asarray(images[:BATCH])
    if importlib.util.find_spec("onnx") is not None:
        from weft.interop import onnx

        onnx.export(net, [x], out / "stripes.onnx", inputs=["data"], dynamic={"data": {0: "n"}})
    run = wf.trace(net)
    with wf.no_grad():
        run(x)
        run.export(out / "native", target="native")


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("build/from_mxnet"))
    options = parser.parse_args(arguments)
    with np.load(options.folder / "stripes.npz") as file:
        known = dict(file)
    images, labels = known["images"], known["labels"]
    net = read(options.folder)
    difference = abs(probabilities(net, images) - known["probabilities"]).max()
    print(f"answers differ from MXNet's by {difference:.1e}")

    optimizer = optimizer_of(net, options.folder)
    train(net, optimizer, images, labels, 1)
    drift = max(abs(p.numpy() - known[f"after.{name}"]).max() for name, p in parameters_of(net).items())
    print(f"after one more epoch parameters differ from MXNet's by {drift:.1e}")

    negatives = 1 - images
    before = accuracy(net, negatives, labels)
    loss = train(net, optimizer, np.concatenate([images, negatives]), np.concatenate([labels, labels]), 20)
    after = accuracy(net, negatives, labels)
    print(f"accuracy for negatives: {before:.2f}, after 20 epochs {after:.2f} (loss {loss:.4f})")
    export(net, options.out, images)
    print(f"wrote {options.out}")
    return {"net": net, "difference": difference, "drift": drift, "before": before, "after": after}


if __name__ == "__main__":
    main()
