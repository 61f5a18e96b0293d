"""PyTorch's side: eager (images channels-last) and torch.compile (frozen for inference), by the faster of its ways."""

import contextlib

import torch
from _protocol import BENCH_THREADS, Cases, Run, serve
from _torch_models import GPT, HEAD, HEADS, LAYERS, POSITIONS, VOCABULARY, LanguageModel, mlp, resnet50
from torch.nn import functional as F

torch.set_num_threads(BENCH_THREADS)
torch.manual_seed(0)

cases = Cases()


def autocast(precision: str):
    return torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()


def dtype(precision: str) -> torch.dtype:
    return torch.bfloat16 if precision == "bf16" else torch.float32


def compiled(function, variant: str, freezing: bool = False):
    if variant.startswith("eager"):
        return function
    import torch._inductor.config as inductor

    inductor.freezing = freezing  # weights become constants, packed once
    return torch.compile(function)


def channels_last(x):
    return x.to(memory_format=torch.channels_last)


def inference(model: torch.nn.Module, x: torch.Tensor, variant: str) -> Run:
    function = compiled(model.eval(), variant, freezing=True)

    def run() -> None:
        with torch.no_grad():
            function(x)

    return run


def training(model, x, labels, optimizer, variant: str, precision: str) -> Run:
    function = compiled(model, variant)
    labels = labels.flatten()

    def run() -> float:
        optimizer.zero_grad()
        with autocast(precision):
            loss = F.cross_entropy(function(x).reshape(len(labels), -1), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return run


for batch in (1, 16):

    @cases.add(f"resnet50-infer-b{batch}", "eager", "compile")
    def resnet50_infer(variant: str, precision: str, batch: int = batch) -> Run:
        x = torch.randn(batch, 3, 224, 224)
        return inference(
            channels_last(resnet50().to(dtype(precision))), channels_last(x.to(dtype(precision))), variant
        )


@cases.add("resnet50-train", "eager", "compile")
def resnet50_train(variant: str, precision: str) -> Run:
    model, x = channels_last(resnet50()), channels_last(torch.randn(16, 3, 224, 224))
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    return training(model, x, torch.randint(0, 1000, (16,)), optimizer, variant, precision)


@cases.add("gpt-train", "eager", "compile")
def gpt_train(variant: str, precision: str) -> Run:
    model = GPT()
    tokens, targets = torch.randint(0, VOCABULARY, (2, 4, POSITIONS))
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, weight_decay=0.01, fused=True)
    return training(model, tokens, targets, optimizer, variant, precision)


@cases.add("gpt-prefill", "eager", "compile")
def gpt_prefill(variant: str, precision: str) -> Run:
    return inference(GPT().to(dtype(precision)), torch.randint(0, VOCABULARY, (1, POSITIONS)), variant)


@cases.add("gpt-decode", "eager", "compile")
def gpt_decode(variant: str, precision: str) -> Run:
    model = GPT().eval().to(dtype(precision))
    shape = (1, HEADS, POSITIONS, HEAD)
    keys, values = ([torch.randn(shape).to(dtype(precision)) for _ in range(LAYERS)] for _ in range(2))
    step = compiled(model.next_token, variant, freezing=True)
    positions = [torch.tensor([k]) for k in range(POSITIONS - 64, POSITIONS)]

    def run() -> int:
        token = torch.zeros(1, 1, dtype=torch.int64)
        with torch.no_grad():
            for position in positions:
                token = step(token, position, keys, values)
        return token.item()

    return run


@cases.add("lstm-train", "eager", "compile")
def lstm_train(variant: str, precision: str) -> Run:
    model = LanguageModel()
    tokens, targets = torch.randint(0, 10000, (2, 35, 20))
    return training(model, tokens, targets, torch.optim.SGD(model.parameters(), 0.1), variant, precision)


@cases.add("mlp-train", "eager", "eager, default Adam", "compile", "compile all", precisions=("f32",))
def mlp_train(variant: str, precision: str) -> Run:
    model, x, labels = mlp(), torch.randn(32, 784), torch.randint(0, 10, (32,))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=None if "default" in variant else True)
    loss_of = compiled(lambda: F.cross_entropy(model(x), labels), variant)
    update = torch.compile(optimizer.step) if variant == "compile all" else optimizer.step

    def run() -> None:
        for _ in range(100):
            optimizer.zero_grad()
            loss_of().backward()
            update()

    return run


@cases.add("matmul", "eager")
def matmul(variant: str, precision: str) -> Run:
    a, b = (torch.randn(2048, 2048).to(dtype(precision)) for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


@cases.add("read", "eager", precisions=("f32",))
def read(variant: str, precision: str) -> Run:
    x = torch.ones(1 << 27)
    return lambda: x.sum().item()


if __name__ == "__main__":
    serve("PyTorch", torch.__version__, cases)
