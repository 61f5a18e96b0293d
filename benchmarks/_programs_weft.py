"""weft's side of benchmarks/programs.py."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import _both_programs as both
from _both_networks import weft_networks
from _protocol import Cases, Run, serve

import weft as wf
import weft.functional as F
import weft.module as M
from weft import optimizer

KIT = both.Kit(
    M,
    F,
    wf.linalg,
    wf.asarray,
    concat=lambda xs, axis: wf.concat(xs, axis=axis),
    permute=wf.permute_dims,
    roll=lambda x, shifts, axes: wf.roll(x, shifts, axis=axes),
    parameter=lambda shape: M.Parameter(wf.zeros(shape)),
    solve_lower=lambda factor, b: wf.linalg.solve_triangular(factor, b),
    exp=wf.exp,
    log=wf.log,
    sum=lambda x, axis=None: wf.sum(x, axis=axis),
)
WAYS = ("eager", "traced")
cases = Cases()


def by(variant, function):
    return wf.trace(function) if variant == "traced" else function


def repeated(function, *inputs, count=1) -> Run:
    """The sum of what the last of so many calls gives, by which both sides are compared."""

    def run() -> float:
        for _ in range(count):
            y = function(*inputs)
        return float(y.sum()) if hasattr(y, "sum") else sum(float(each.sum()) for each in y)

    return run


def waited(function, *inputs) -> Run:
    def run() -> None:
        function(*inputs).wait()

    return run


def training(net, inputs, classes, variant) -> Run:
    update = optimizer.SGD(net.parameters(), lr=0.01, momentum=0.9)
    manager = wf.GradManager().attach(net.parameters())
    inputs = [wf.asarray(x) for x in inputs]
    with wf.no_grad():
        rows = net(*inputs).shape[0]
    labels = wf.asarray(np.arange(rows) % classes)

    def step(labels, *inputs):
        with manager:
            loss = F.cross_entropy(net(*inputs), labels)
            manager.backward(loss)
        update.step().clear_grad()
        return loss

    function = by(variant, step)
    return lambda: function(labels, *inputs).item()


def add_training(name, build):
    @cases.add(f"train {name}", *WAYS, precisions=("f32",))
    def train(variant, precision) -> Run:
        return training(*build(), variant)


def image_network(name):
    net, shape = weft_networks()[name]()
    return net, [both.drawn().normal(*shape)], 10


for name in ("mobilenet", "vit", "unet"):
    add_training(name, lambda name=name: image_network(name))
for name, build in both.attention_networks(KIT).items():
    add_training(name, build)


@cases.add("train wgan-gp", *WAYS, precisions=("f32",))
def wgan(variant, precision) -> Run:
    generator, critic = both.critics(KIT)
    updates = [optimizer.Adam(net.parameters(), lr=1e-4, betas=(0.5, 0.9)) for net in (critic, generator)]
    managers = [wf.GradManager().attach(net.parameters()) for net in (critic, generator)]
    make = both.drawn()
    noise, real = make.normal(64, 100, 1, 1), make.uniform(-1, 1, 64, 3, 32, 32)
    mixed = make.uniform(0, 1, 64, 1, 1, 1)

    def step(noise, real, mixed):
        with wf.no_grad():
            drawn = generator(noise)
        between = mixed * real + (1 - mixed) * drawn
        with managers[0]:
            slope = wf.grad(lambda x: critic(x).sum())(between)
            lengths = wf.sqrt((slope * slope).sum((1, 2, 3)))
            loss = critic(drawn).mean() - critic(real).mean() + 10 * ((lengths - 1) ** 2).mean()
            managers[0].backward(loss)
        updates[0].step().clear_grad()
        with managers[1]:
            managers[1].backward(-critic(generator(noise)).mean())
        updates[1].step().clear_grad()
        return loss

    function, inputs = by(variant, step), [wf.asarray(x) for x in (noise, real, mixed)]
    return lambda: function(*inputs).item()


@cases.add("likelihood of a Gaussian process and its gradient", *WAYS, precisions=("f32",))
def gaussian_process(variant, precision) -> Run:
    x, y, logs = map(wf.asarray, both.numbers_of_gaussian_process())
    return repeated(by(variant, wf.grad(lambda logs: both.likelihood(KIT, x, y, logs))), logs)


@cases.add("Kalman filter", *WAYS, precisions=("f32",))
def kalman(variant, precision) -> Run:
    inputs = map(wf.asarray, both.numbers_of_kalman())
    return repeated(by(variant, lambda *inputs: both.kalman(KIT, *inputs)), *inputs)


@cases.add("matrices 3x3 by vectors", *WAYS, precisions=("f32",))
def vectors(variant, precision) -> Run:
    a, x = (wf.asarray(both.drawn().normal(200_000, 3, *more)) for more in ((3,), ()))
    return waited(by(variant, lambda a, x: (a @ x[..., None])[..., 0]), a, x)


@cases.add("resize", *WAYS, precisions=("f32",))
def resize(variant, precision) -> Run:
    x = wf.asarray(both.drawn().normal(8, 3, 384, 384))
    return waited(by(variant, lambda x: F.interpolate(x, (224, 224), mode="bilinear") * 2 - 1), x)


@cases.add("warp", *WAYS, precisions=("f32",))
def warp(variant, precision) -> Run:
    x, grid = wf.asarray(both.drawn().normal(8, 3, 224, 224)), wf.asarray(both.grid_of_warp())
    return waited(by(variant, lambda x, grid: F.grid_sample(x, grid) * 2 - 1), x, grid)


@cases.add("sampled softmax", *WAYS, precisions=("f32",))
def sampled_softmax(variant, precision) -> Run:
    """Two tables of 50,000 words, 256 pairs, 64 words that all of them are not."""
    make = both.drawn()
    tables = [wf.asarray(make.normal(50_000, 128) / 10) for _ in range(2)]
    words, targets, others = (wf.asarray(make.integers(50_000, n)) for n in (256, 256, 64))
    labels = wf.zeros(256, dtype="int64")
    update = optimizer.SGD(tables, lr=0.1)

    def loss_of(inputs, outputs):
        ours, negatives = outputs[:256], outputs[256:]
        scores = wf.concat([(inputs * ours).sum(-1, keepdims=True), inputs @ negatives.mT], axis=1)
        return F.cross_entropy(scores, labels)

    gradients = by(variant, wf.value_and_grad(loss_of, (0, 1)))

    def run() -> float:
        chosen = wf.concat([targets, others])
        places = words, chosen
        loss, slopes = gradients(tables[0][words], tables[1][chosen])
        for table, rows, slope in zip(tables, places, slopes, strict=True):
            table.grad = wf.sparse.RowSparse(rows, slope, table.shape)
        update.step().clear_grad()
        return loss.item()

    return run


@cases.add("experts by masks", "eager", precisions=("f32",))
def experts(variant, precision) -> Run:
    x, gates, first, second = map(wf.asarray, both.numbers_of_experts())
    return repeated(lambda x, gates: both.routed(KIT, x, gates, list(first), list(second)), x, gates)


@cases.add("histogram", *WAYS, precisions=("f32",))
def histogram(variant, precision) -> Run:
    x = wf.asarray(both.drawn().uniform(0, 1, 3_700_000))
    return waited(by(variant, lambda x: F.histogram(x, 256, (0.0, 1.0))), x)


@cases.add("chain of eight functions", *WAYS, precisions=("f32",))
def chain(variant, precision) -> Run:
    return waited(by(variant, lambda x: both.chain(KIT, x)), wf.asarray(both.drawn().normal(1 << 20)))


def add_linalg(name, size):
    for function in both.LINALG:

        @cases.add(f"{function} {name}", *WAYS, precisions=("f32",))
        def linalg(variant, precision, function=function) -> Run:
            inputs = [wf.asarray(both.positive(size))]
            if function == "solve":
                inputs.append(wf.asarray(both.drawn().normal(len(inputs[0]), size, 1)))
            return waited(by(variant, getattr(wf.linalg, function)), *inputs)


for name, size in both.SMALL.items():
    add_linalg(name, size)

if __name__ == "__main__":
    serve("weft", wf.__version__, cases)
