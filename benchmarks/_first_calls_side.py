"""One process of first_calls.py: a training step of one network, traced; prints what its first calls took as JSON.

python _first_calls_side.py NETWORK [profile]
"""

import json
import sys
import time

import numpy as np

import weft as wf
import weft.functional as F
import weft.module as M
from weft import _core, models, optimizer
from weft.executor import background
from weft.expr import compiler


class InvertedResidual(M.Module):
    """Sandler et al. 2018, arXiv:1801.04381."""

    def __init__(self, inputs, outputs, stride, expansion):
        super().__init__()
        inner = inputs * expansion
        layers = []
        if expansion > 1:
            layers += [M.Conv2d(inputs, inner, 1, bias=False), M.BatchNorm2d(inner), M.ReLU6()]
        layers += [
            M.Conv2d(inner, inner, 3, stride=stride, padding=1, groups=inner, bias=False),
            M.BatchNorm2d(inner),
            M.ReLU6(),
            M.Conv2d(inner, outputs, 1, bias=False),
            M.BatchNorm2d(outputs),
        ]
        self.body, self.adds = M.Sequential(*layers), stride == 1 and inputs == outputs

    def forward(self, x):
        y = self.body(x)
        return x + y if self.adds else y


SETTINGS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet():
    layers = [M.Conv2d(3, 32, 3, stride=2, padding=1, bias=False), M.BatchNorm2d(32), M.ReLU6()]
    channels = 32
    for expansion, outputs, count, stride in SETTINGS:
        for k in range(count):
            layers.append(InvertedResidual(channels, outputs, stride if k == 0 else 1, expansion))
            channels = outputs
    layers += [M.Conv2d(channels, 1280, 1, bias=False), M.BatchNorm2d(1280), M.ReLU6()]
    body, last = M.Sequential(*layers), M.Linear(1280, 10)

    class MobileNet(M.Module):
        def __init__(self):
            super().__init__()
            self.body, self.last = body, last

        def forward(self, x):
            return self.last(F.mean(self.body(x), axis=(2, 3)))

    return MobileNet()


class Layer(M.Module):
    """A layer of a transformer, normalized first."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = M.LayerNorm(width), M.LayerNorm(width)
        self.qkv, self.out = M.Linear(width, 3 * width), M.Linear(width, width)
        self.up, self.down = M.Linear(width, 4 * width), M.Linear(4 * width, width)

    def forward(self, x):
        n, t, c = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(n, t, 3, self.heads, c // self.heads)
        q, k, v = (wf.permute_dims(qkv[:, :, i], (0, 2, 1, 3)) for i in range(3))
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(wf.permute_dims(y, (0, 2, 1, 3)).reshape(n, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class ViT(M.Module):
    """Dosovitskiy et al. 2020, arXiv:2010.11929, tiny: width 192, 12 layers, 3 heads, patches of 16."""

    def __init__(self, width=192, layers=12, heads=3, size=96, patch=16):
        super().__init__()
        self.patches = M.Conv2d(3, width, patch, stride=patch)
        self.position = M.Parameter(wf.zeros((1, (size // patch) ** 2, width)))
        self.layers = M.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm, self.last = M.LayerNorm(width), M.Linear(width, 10)

    def forward(self, x):
        y = self.patches(x)
        y = wf.permute_dims(y.reshape(y.shape[0], y.shape[1], -1), (0, 2, 1))
        return self.last(F.mean(self.norm(self.layers(y + self.position)), axis=1))


def network(name):
    """(module, inputs, targets, optimizer)"""
    draw = np.random.default_rng(0)
    if name == "mlp":
        net = models.MLP((784, 256, 128, 10))
        x = draw.standard_normal((32, 784), dtype="float32")
        return net, x, optimizer.Adam(net.parameters(), 1e-3)
    x = draw.standard_normal((8, 3, 96, 96), dtype="float32")
    if name == "vit":
        net = ViT()
        return net, x, optimizer.AdamW(net.parameters(), 1e-3)
    net = models.resnet18(classes=10) if name == "resnet18" else mobilenet()
    return net, x, optimizer.SGD(net.parameters(), lr=0.01, momentum=0.9)


def main():
    name = sys.argv[1]
    net, images, update = network(name)
    manager = wf.GradManager().attach(net.parameters())
    x, labels = wf.asarray(images), wf.asarray(np.arange(len(images)) % 10)

    @wf.trace
    def step(x, labels):
        with manager:
            loss = F.cross_entropy(net(x), labels)
            manager.backward(loss)
        update.step().clear_grad()
        return loss

    wf.waitall()
    calls = []

    def call():
        before = dict(compiler.counters), dict(compiler.spent_s), _core.program_counters()["loop_misses"]
        wall, cpu = time.perf_counter(), time.process_time()
        step(x, labels).wait()
        wf.waitall()
        calls.append(
            {
                "wall_s": time.perf_counter() - wall,
                "cpu_s": time.process_time() - cpu,
                "compiled": compiler.counters["compiled"] - before[0]["compiled"],
                "from_disk": compiler.counters["from_disk"] - before[0]["from_disk"],
                "patterns": _core.program_counters()["loop_misses"] - before[2],
                **{f"{k}_s": v - before[1][k] for k, v in compiler.spent_s.items()},
            }
        )

    profile = None
    if len(sys.argv) > 2:
        import cProfile

        profile = cProfile.Profile(time.thread_time)
        profile.enable()
    begin = time.perf_counter(), time.process_time()
    call()
    if profile:
        profile.disable()
        import pstats

        pstats.Stats(profile, stream=sys.stderr).sort_stats("cumulative").print_stats(70)
        pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(40)
    call()
    background.wait()
    total = {"wall_s": time.perf_counter() - begin[0], "cpu_s": time.process_time() - begin[1]}
    call()
    plans = [program.plan.recipe for program in step.programs]
    steps = sum(len(recipe.steps) for recipe in plans)
    nodes = sum(len(recipe.graph.nodes) for recipe in plans)
    print(
        json.dumps(
            {"calls": calls, "total": total, "steps": steps, "nodes": nodes, "spent": compiler.spent_s}
        )
    )


if __name__ == "__main__":
    main()
