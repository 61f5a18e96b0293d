"""weft's side of benchmarks/interop.py.

python _interop_weft.py FOLDER exports the networks for C; without arguments it serves.
"""

import os
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

from _protocol import Cases, Run, serve

import weft as wf
from weft import models

VOCABULARY, NEW = 32000, 64
cases = Cases()


def network(name: str):
    """A traced network, which has run once, and its input; the same weights each time."""
    wf.random.seed(0)
    rng = np.random.default_rng(0)
    if name == "resnet50":
        net, x = models.resnet50(), wf.asarray(rng.standard_normal((1, 3, 224, 224), dtype=np.float32))
    else:
        net, x = models.GPT(), wf.asarray(rng.integers(0, 8192, (1, 256)))
    step = wf.trace(net.eval())
    with wf.no_grad():
        step(x).wait()
    return step, x


def running(step, x) -> Run:
    def run() -> None:
        with wf.no_grad():
            step(x).wait()

    return run


for name in ("resnet50", "gpt"):

    @cases.add(name, "Python", precisions=("f32",))
    def infer(variant: str, precision: str, name: str = name) -> Run:
        return running(*network(name))


def imported():
    """ResNet-50 as read from ONNX, and an input."""
    net = wf.interop.onnx.load(os.path.join(os.environ["BENCH_MODELS"], "resnet50-infer-b1.onnx")).eval()
    return wf.trace(net), wf.asarray(
        np.random.default_rng(0).standard_normal((1, 3, 224, 224), dtype=np.float32)
    )


@cases.add("ONNX", "imported", precisions=("f32",))
def onnx(variant: str, precision: str) -> Run:
    return running(*imported())


@cases.add("ONNX import and plan", "imported", precisions=("f32",))
def onnx_import(variant: str, precision: str) -> Run:
    return lambda: running(*imported())()


def folder() -> str:
    return os.environ["BENCH_FOLDER"]


@cases.add("load", "from_pretrained", precisions=("f32",))
def load(variant: str, precision: str) -> Run:
    def run() -> None:
        for parameter in models.from_pretrained(folder()).parameters():
            parameter.wait()

    return run


@cases.add("load", "read", precisions=("f32",))
def read(variant: str, precision: str) -> Run:
    """The file's bytes into fresh memory."""
    path = os.path.join(folder(), "model.safetensors")

    def run() -> None:
        with open(path, "rb", buffering=0) as file:
            file.readinto(np.empty(os.path.getsize(path), np.uint8))

    return run


def generation(beginning: int, new: int) -> Run:
    writer = models.TextGenerator(models.from_pretrained(folder()).eval())
    text = np.random.default_rng(0).integers(0, VOCABULARY, beginning).tolist()

    def run() -> float:
        (tokens,) = writer.generate([text], new)
        return float(sum(tokens))

    return run


@cases.add("prefill", "TextGenerator", precisions=("f32",))
def prefill(variant: str, precision: str) -> Run:
    return generation(256, 1)


@cases.add("decode", "TextGenerator", precisions=("f32",))
def decode(variant: str, precision: str) -> Run:
    return generation(16, NEW)


if __name__ == "__main__":
    if sys.argv[1:]:
        for name in ("resnet50", "gpt"):
            network(name)[0].export(os.path.join(sys.argv[1], name), target="native")
    else:
        serve("weft", wf.__version__, cases)
