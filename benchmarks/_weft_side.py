"""weft's side: weft.models, eager and traced. Precision bf16 is autocast in training, and weights cast in inference."""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import weft as wf
import weft.functional as F
from weft import amp, models, optimizer

sys.path.insert(0, str(Path(__file__).parent / "peers"))
from _protocol import Cases, Run, serve

VOCABULARY, CONTEXT = 8192, 256
random = np.random.default_rng(0)
cases = Cases()


def normal(*shape: int) -> wf.Tensor:
    return wf.asarray(random.standard_normal(shape, dtype=np.float32))


def integers(limit: int, *shape: int) -> wf.Tensor:
    return wf.asarray(random.integers(0, limit, shape))


def by(variant: str, function: Callable) -> Callable:
    """The function itself, or traced. LazyBlock: the first call, too, is planned as a whole, and needs less memory."""
    return wf.trace(function, lazy="lazily" in variant) if variant.startswith("traced") else function


def autocast(precision: str):
    return amp.autocast("bfloat16") if precision == "bf16" else contextlib.nullcontext()


def inference(net, x: wf.Tensor, variant: str, precision: str) -> Run:
    """bf16 means weights and activations; variants with autocast keep the weights in float32."""
    cast = precision == "bf16" and "autocast" not in variant
    if cast:
        net.astype("bfloat16")
        x = x.astype("bfloat16") if x.dtype == wf.float32 else x
    net.eval()

    def forward(x: wf.Tensor) -> wf.Tensor:
        with contextlib.nullcontext() if cast else autocast(precision):
            return net(x)

    forward = by(variant, forward)

    def run() -> None:
        with wf.no_grad():
            forward(x).wait()

    return run


def training(net, x: wf.Tensor, labels: wf.Tensor, update, variant: str, precision: str) -> Callable:
    """One step, which gives the loss."""
    manager = wf.GradManager().attach(net.parameters())

    def step(x: wf.Tensor, labels: wf.Tensor) -> wf.Tensor:
        with manager:
            with autocast(precision):
                logits = net(x)
                logits = logits[0] if isinstance(logits, tuple) else logits
                loss = F.cross_entropy(F.reshape(logits, (-1, logits.shape[-1])), F.reshape(labels, (-1,)))
            manager.backward(loss)
        update.step().clear_grad()
        return loss

    step = by(variant, step)
    return lambda: step(x, labels)


def ending(step: Callable) -> Run:
    return lambda: step().item()


for batch in (1, 16):

    @cases.add(f"resnet50-infer-b{batch}", "eager", "traced")
    @cases.add(f"resnet50-infer-b{batch}", "traced autocast", precisions=("bf16",))
    def resnet50_infer(variant: str, precision: str, batch: int = batch) -> Run:
        return inference(models.resnet50(), normal(batch, 3, 224, 224), variant, precision)


@cases.add("resnet50-train", "eager", "traced", "traced lazily")
def resnet50_train(variant: str, precision: str) -> Run:
    net = models.resnet50()
    update = optimizer.SGD(net.parameters(), 0.01, momentum=0.9)
    return ending(training(net, normal(16, 3, 224, 224), integers(1000, 16), update, variant, precision))


@cases.add("gpt-train", "eager", "traced")
def gpt_train(variant: str, precision: str) -> Run:
    net, (tokens, targets) = models.GPT(), integers(VOCABULARY, 2, 4, CONTEXT)
    update = optimizer.AdamW(net.parameters(), 3e-4, weight_decay=0.01)
    return ending(training(net, tokens, targets, update, variant, precision))


@cases.add("gpt-prefill", "eager", "traced")
@cases.add("gpt-prefill", "traced autocast", precisions=("bf16",))
def gpt_prefill(variant: str, precision: str) -> Run:
    return inference(models.GPT(), integers(VOCABULARY, 1, CONTEXT), variant, precision)


@cases.add("gpt-decode", "eager", "traced")
def gpt_decode(variant: str, precision: str) -> Run:
    net = models.GPT().eval()
    if precision == "bf16":
        net.astype("bfloat16")
    cache, start, first = net.cache(1), wf.asarray(CONTEXT - 64), wf.asarray([0])
    with wf.no_grad():
        net.prefill(integers(VOCABULARY, 1, CONTEXT - 64), cache)

    def step(token: wf.Tensor, position: wf.Tensor, cache) -> tuple[wf.Tensor, wf.Tensor]:
        return wf.argmax(net.decode(token, position, cache), axis=-1), position + 1

    step = by(variant, step)

    def run() -> float:
        token, position = first, start
        with wf.no_grad():
            for _ in range(64):
                token, position = step(token, position, cache)
        return token.item()

    return run


@cases.add("lstm-train", "eager", "traced")
def lstm_train(variant: str, precision: str) -> Run:
    net, (tokens, targets) = models.LSTMLanguageModel(10000, 650, 2), integers(10000, 2, 35, 20)
    return ending(training(net, tokens, targets, optimizer.SGD(net.parameters(), 0.1), variant, precision))


@cases.add("mlp-train", "eager", "traced", precisions=("f32",))
def mlp_train(variant: str, precision: str) -> Run:
    net = models.MLP((784, 256, 128, 10))
    update = optimizer.Adam(net.parameters(), 1e-3)
    step = training(net, normal(32, 784), integers(10, 32), update, variant, precision)

    def run() -> None:
        for _ in range(100):
            step()
        wf.waitall()

    return run


@cases.add("matmul", "eager", "packed weight")
def matmul(variant: str, precision: str) -> Run:
    a, b = (normal(2048, 2048).astype({"f32": "float32", "bf16": "bfloat16"}[precision]) for _ in range(2))
    if variant == "eager":
        return lambda: wf.matmul(a, b).wait()
    product = wf.trace(lambda a: F.linear(a, b))
    return lambda: product(a).wait()


@cases.add("read", "eager", precisions=("f32",))
def read(variant: str, precision: str) -> Run:
    x = wf.ones(1 << 27)
    return lambda: wf.sum(x).item()


if __name__ == "__main__":
    serve("weft", wf.__version__, cases)
