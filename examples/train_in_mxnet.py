"""Trains a small network in Apache MXNet 1.9.1 and writes its files, with which from_mxnet.py goes on in weft.

    python3.11 -m venv mx; mx/bin/pip install mxnet==1.9.1 numpy==1.23.5
    mx/bin/python examples/train_in_mxnet.py FOLDER

Runs in a Python that has MXNet, and needs nothing of weft. FOLDER gets what a program of MXNet leaves behind:
stripes-symbol.json, stripes-0000.params (Module.save_checkpoint) and stripes-0000.states (save_optimizer_states); and
stripes.npz with the images, their labels, what MXNet computes for them, and the parameters after one more epoch.
"""

import sys
from pathlib import Path

import mxnet as mx
import numpy as np

COUNT, BATCH, SIZE, CLASSES = 96, 32, 8, 4
LR, MOMENTUM, DECAY = 0.02, 0.9, 1e-4


def stripes(seed):
    """Images f32[n,1,8,8] of a horizontal, vertical, falling or rising stripe in noise, and which of these it is."""
    random = np.random.RandomState(seed)
    labels = np.arange(COUNT) % CLASSES
    images = random.normal(0, 0.2, (COUNT, 1, SIZE, SIZE)).astype(np.float32)
    k = np.arange(SIZE)
    for image, label in zip(images[:, 0], labels, strict=True):
        place = random.randint(SIZE)
        rows, columns = ((place, k), (k, place), (k, (k + place) % SIZE), (k, (place - k) % SIZE))[label]
        image[rows, columns] += 1
    return images, labels.astype(np.float32)


def network():
    x = mx.sym.Variable("data")
    for number, width in enumerate((8, 16)):
        x = mx.sym.Convolution(
            x, kernel=(3, 3), pad=(1, 1), num_filter=width, no_bias=True, name=f"conv{number}"
        )
        x = mx.sym.BatchNorm(x, fix_gamma=number == 0, name=f"norm{number}")
        x = mx.sym.Activation(x, act_type="relu", name=f"relu{number}")
        x = mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", name=f"pool{number}")
    x = mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=CLASSES, name="scores")
    return mx.sym.SoftmaxOutput(x, name="softmax")


def train(module, batches, epochs):
    for _ in range(epochs):
        batches.reset()
        for batch in batches:
            module.forward_backward(batch)
            module.update()


def answers(folder, images):
    """What MXNet computes with the files."""
    symbol, arrays, states = mx.model.load_checkpoint(str(folder / "stripes"), 0)
    arrays["data"], arrays["softmax_label"] = mx.nd.array(images), mx.nd.zeros(len(images))
    executor = symbol.bind(mx.cpu(), arrays, aux_states=states)
    return executor.forward(is_train=False)[0].asnumpy()


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = stripes(0)
    batches = mx.io.NDArrayIter(images, labels, BATCH, label_name="softmax_label")
    module = mx.mod.Module(network(), context=mx.cpu())
    module.bind(batches.provide_data, batches.provide_label)
    mx.random.seed(0)
    np.random.seed(0)
    module.init_params(mx.init.Xavier())
    options = {"learning_rate": LR, "momentum": MOMENTUM, "wd": DECAY}
    module.init_optimizer(optimizer="sgd", optimizer_params=options)  # of means: rescale_grad is 1 / batch
    train(module, batches, 20)
    module.save_checkpoint(str(folder / "stripes"), 0)
    module.save_optimizer_states(str(folder / "stripes-0000.states"))
    probabilities = answers(folder, images)
    train(module, batches, 1)
    after, _ = module.get_params()
    arrays = {f"after.{name}": x.asnumpy() for name, x in after.items()}
    np.savez_compressed(
        folder / "stripes.npz", images=images, labels=labels, probabilities=probabilities, **arrays
    )
    print(f"accuracy {np.mean(probabilities.argmax(1) == labels):.3f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
