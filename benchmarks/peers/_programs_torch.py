"""PyTorch's side of benchmarks/programs.py: eager, and torch.compile."""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from _protocol import BENCH_THREADS, Cases, Run, serve
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import _both_programs as both
from _both_networks import networks

torch.set_num_threads(BENCH_THREADS)

KIT = both.Kit(
    nn,
    F,
    torch.linalg,
    torch.from_numpy,
    concat=torch.cat,
    permute=lambda x, axes: x.permute(axes),
    roll=torch.roll,
    parameter=lambda shape: nn.Parameter(torch.zeros(shape)),
    solve_lower=lambda factor, b: torch.linalg.solve_triangular(factor, b, upper=False),
    exp=torch.exp,
    log=torch.log,
    sum=torch.sum,
)
WAYS = ("eager", "compile")
cases = Cases()


def by(variant, function):
    return torch.compile(function) if variant == "compile" else function


def repeated(function, *inputs) -> Run:
    def run() -> float:
        y = function(*inputs)
        return float(y.sum())

    return run


def waited(function, *inputs) -> Run:
    def run() -> None:
        function(*inputs)

    return run


def training(net, inputs, classes, variant) -> Run:
    inputs = [torch.from_numpy(x) for x in inputs]
    if inputs[0].ndim == 4:
        net, inputs = (
            net.to(memory_format=torch.channels_last),
            [inputs[0].contiguous(memory_format=torch.channels_last)],
        )
    update = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    function = by(variant, net)
    with torch.no_grad():
        labels = torch.arange(net(*inputs).shape[0]) % classes

    def run() -> float:
        loss = F.cross_entropy(function(*inputs), labels)
        loss.backward()
        update.step()
        update.zero_grad()
        return loss.item()

    return run


def add_training(name, build):
    @cases.add(f"train {name}", *WAYS, precisions=("f32",))
    def train(variant, precision) -> Run:
        return training(*build(), variant)


def upsample(x):
    return x.repeat_interleave(2, 2).repeat_interleave(2, 3)


def image_network(name):
    net, shape = networks(nn, F, torch.cat, upsample)[name]()
    return net, [both.drawn().normal(*shape)], 10


for name in ("mobilenet", "vit", "unet"):
    add_training(name, lambda name=name: image_network(name))
for name, build in both.attention_networks(KIT).items():
    add_training(name, build)


@cases.add("train wgan-gp", "eager", precisions=("f32",))  # torch.compile refuses gradients of gradients
def wgan(variant, precision) -> Run:
    generator, critic = both.critics(KIT)
    updates = [torch.optim.Adam(net.parameters(), lr=1e-4, betas=(0.5, 0.9)) for net in (critic, generator)]
    make = both.drawn()
    noise, real = make.normal(64, 100, 1, 1), make.uniform(-1, 1, 64, 3, 32, 32)
    noise, real, mixed = map(torch.from_numpy, (noise, real, make.uniform(0, 1, 64, 1, 1, 1)))

    def run() -> float:
        with torch.no_grad():
            drawn = generator(noise)
        between = (mixed * real + (1 - mixed) * drawn).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        lengths = torch.sqrt((slope * slope).sum((1, 2, 3)))
        loss = critic(drawn).mean() - critic(real).mean() + 10 * ((lengths - 1) ** 2).mean()
        loss.backward()
        updates[0].step()
        for update in updates:
            update.zero_grad()
        (-critic(generator(noise)).mean()).backward()
        updates[1].step()
        for update in updates:
            update.zero_grad()
        return loss.item()

    return run


@cases.add("likelihood of a Gaussian process and its gradient", *WAYS, precisions=("f32",))
def gaussian_process(variant, precision) -> Run:
    x, y, logs = map(torch.from_numpy, both.numbers_of_gaussian_process())
    logs.requires_grad_()
    function = by(variant, lambda logs: both.likelihood(KIT, x, y, logs))
    return repeated(lambda: torch.autograd.grad(function(logs), logs)[0])


@cases.add("Kalman filter", *WAYS, precisions=("f32",))
def kalman(variant, precision) -> Run:
    inputs = map(torch.from_numpy, both.numbers_of_kalman())
    return repeated(by(variant, lambda *inputs: both.kalman(KIT, *inputs)), *inputs)


@cases.add("matrices 3x3 by vectors", *WAYS, precisions=("f32",))
def vectors(variant, precision) -> Run:
    a, x = (torch.from_numpy(both.drawn().normal(200_000, 3, *more)) for more in ((3,), ()))
    return waited(by(variant, lambda a, x: (a @ x[..., None])[..., 0]), a, x)


@cases.add("resize", *WAYS, precisions=("f32",))
def resize(variant, precision) -> Run:
    x = torch.from_numpy(both.drawn().normal(8, 3, 384, 384))
    return waited(by(variant, lambda x: F.interpolate(x, (224, 224), mode="bilinear") * 2 - 1), x)


@cases.add("warp", *WAYS, precisions=("f32",))
def warp(variant, precision) -> Run:
    x, grid = torch.from_numpy(both.drawn().normal(8, 3, 224, 224)), torch.from_numpy(both.grid_of_warp())
    return waited(by(variant, lambda x, grid: F.grid_sample(x, grid, align_corners=False) * 2 - 1), x, grid)


@cases.add("sampled softmax", "eager", precisions=("f32",))
def sampled_softmax(variant, precision) -> Run:
    make = both.drawn()
    tables = [nn.Embedding(50_000, 128, sparse=True) for _ in range(2)]
    for table in tables:
        table.weight.data = torch.from_numpy(make.normal(50_000, 128) / 10)
    words, targets, others = (torch.from_numpy(make.integers(50_000, n)) for n in (256, 256, 64))
    labels = torch.zeros(256, dtype=torch.int64)
    update = torch.optim.SGD([table.weight for table in tables], lr=0.1)

    def run() -> float:
        inputs, outputs = tables[0](words), tables[1](torch.cat([targets, others]))
        ours, negatives = outputs[:256], outputs[256:]
        scores = torch.cat([(inputs * ours).sum(-1, keepdim=True), inputs @ negatives.mT], 1)
        loss = F.cross_entropy(scores, labels)
        loss.backward()
        update.step()
        update.zero_grad()
        return loss.item()

    return run


@cases.add("experts by masks", "eager", precisions=("f32",))
def experts(variant, precision) -> Run:
    x, gates, first, second = map(torch.from_numpy, both.numbers_of_experts())
    return repeated(lambda x, gates: both.routed(KIT, x, gates, list(first), list(second)), x, gates)


@cases.add("histogram", "eager", precisions=("f32",))
def histogram(variant, precision) -> Run:
    x = torch.from_numpy(both.drawn().uniform(0, 1, 3_700_000))
    return waited(lambda x: torch.histc(x, 256, 0.0, 1.0), x)


@cases.add("chain of eight functions", *WAYS, precisions=("f32",))
def chain(variant, precision) -> Run:
    return waited(by(variant, lambda x: both.chain(KIT, x)), torch.from_numpy(both.drawn().normal(1 << 20)))


def add_linalg(name, size):
    for function in both.LINALG:

        @cases.add(f"{function} {name}", "eager", precisions=("f32",))
        def linalg(variant, precision, function=function) -> Run:
            inputs = [torch.from_numpy(both.positive(size).astype(np.float32))]
            if function == "solve":
                inputs.append(torch.from_numpy(both.drawn().normal(len(inputs[0]), size, 1)))
            return waited(getattr(torch.linalg, function), *inputs)


for name, size in both.SMALL.items():
    add_linalg(name, size)

if __name__ == "__main__":
    serve("PyTorch", torch.__version__, cases)
