"""PyTorch's side of slice.py, by the faster of its ways: inference mode where no gradient is recorded."""

import itertools

import torch
from _side import THREADS, Sample, calls, loop, serve
from torch.nn import functional as F

torch.set_num_threads(THREADS)
torch.manual_seed(0)


def ready(x: object) -> None:
    """Results of a CPU are there when the call returns."""


def quick(statement: str):
    def prepare() -> Sample:
        a, b = torch.ones(4, 4), torch.ones(4, 4)
        sample = loop(statement, ready, a=a, b=b)

        def without_gradients() -> float:
            with torch.inference_mode():
                return sample()

        return without_gradients

    return prepare


def recorded_add() -> Sample:
    return loop("a + b", ready, a=torch.ones(4, 4, requires_grad=True), b=torch.ones(4, 4))


def whole(function, *makers):
    """One call on random operands."""

    def prepare() -> Sample:
        operands = [make() for make in makers]
        sample = calls(lambda: function(*operands), ready)

        def without_gradients() -> float:
            with torch.inference_mode():
                return sample()

        return without_gradients

    return prepare


def normal(*shape: int):
    return lambda: torch.randn(*shape)


def row_numbers():
    return torch.randint(0, 10000, (10000,))


def adam(count: int, size: int):
    def prepare() -> Sample:
        parameters = [torch.nn.Parameter(torch.randn(size)) for _ in range(count)]
        for p in parameters:
            p.grad = torch.randn(size)
        return calls(torch.optim.Adam(parameters, 1e-3, fused=True).step, ready)

    return prepare


def attention_gradient() -> Sample:
    q, k, v = (torch.randn(4, 12, 512, 64, requires_grad=True) for _ in range(3))
    dy = torch.randn(4, 12, 512, 64)

    def run() -> None:
        q.grad = k.grad = v.grad = None
        F.scaled_dot_product_attention(q, k, v).backward(dy)

    return calls(run, ready)


def mlp(update: bool):
    def prepare() -> Sample:
        sizes = (784, 256, 128, 10)
        layers = [torch.nn.Linear(n, m) for n, m in itertools.pairwise(sizes)]
        model = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])
        optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
        x, labels = torch.randn(32, 784), torch.randint(0, 10, (32,))

        def run() -> None:
            optimizer.zero_grad()
            F.cross_entropy(model(x), labels).backward()
            if update:
                optimizer.step()

        return calls(run, ready)

    return prepare


MILLION = 1 << 20
square = normal(1024, 1024)
heads = [normal(4, 12, 512, 64)] * 3

CASES = {
    "a + b": quick("a + b"),
    "a + b, recorded": recorded_add,
    "a.reshape(2, 8)": quick("a.reshape(2, 8)"),
    "a[1:3]": quick("a[1:3]"),
    "a @ b": quick("a @ b"),
    "gelu, tanh": whole(lambda x: F.gelu(x, approximate="tanh"), normal(MILLION)),
    "softmax": whole(lambda x: F.softmax(x, -1), square),
    "layer_norm": whole(
        lambda x, w, b: F.layer_norm(x, (1024,), w, b), square, lambda: torch.ones(1024), normal(1024)
    ),
    "transposed copy": whole(lambda x: x.t().contiguous(), normal(4096, 4096)),
    "sum": whole(lambda x: x.sum(), square),
    "sum, axis 0": whole(lambda x: x.sum(0), square),
    "sum, axis 1": whole(lambda x: x.sum(1), square),
    "Adam, 1 tensor": adam(1, 10_000_000),
    "Adam, 100 tensors": adam(100, 100_000),
    "sort": whole(lambda x: torch.sort(x)[0], normal(MILLION)),
    "matmul 2048": whole(torch.matmul, normal(2048, 2048), normal(2048, 2048)),
    "take": whole(lambda table, rows: table.index_select(0, rows), normal(10000, 512), row_numbers),
    "embedding": whole(F.embedding, row_numbers, normal(10000, 512)),
    "cumulative_sum": whole(lambda x: x.cumsum(0), normal(MILLION)),
    "topk": whole(lambda x: torch.topk(x, 100), normal(MILLION)),
    "conv2d": whole(lambda x, w: F.conv2d(x, w, padding=1), normal(16, 64, 56, 56), normal(64, 64, 3, 3)),
    "attention": whole(F.scaled_dot_product_attention, *heads),
    "attention with gradients": attention_gradient,
    "MLP, forward and backward": mlp(update=False),
    "MLP, training step": mlp(update=True),
}

if __name__ == "__main__":
    serve(CASES)
