"""One process of first_calls.py: a training step of one network, traced; prints what its first calls took as JSON.

python _first_calls_side.py NETWORK [profile]
"""

import json
import sys
import time

import numpy as np
from _both_networks import weft_networks

import weft as wf
import weft.functional as F
from weft import _core, models, optimizer
from weft.executor import background
from weft.expr import compiler


def network(name):
    """(module, inputs, optimizer)"""
    draw = np.random.default_rng(0)
    if name == "mlp":
        net = models.MLP((784, 256, 128, 10))
        x = draw.standard_normal((32, 784), dtype="float32")
        return net, x, optimizer.Adam(net.parameters(), 1e-3)
    net, (_, *sizes) = weft_networks()[name]()
    x = draw.standard_normal((8, *sizes), dtype="float32")
    if name == "vit":
        return net, x, optimizer.AdamW(net.parameters(), 1e-3)
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
    plans = [program.plan.info for program in step.programs]
    steps = sum(len(info.steps) for info in plans)
    nodes = sum(len(info.graph.nodes) for info in plans)
    print(
        json.dumps(
            {"calls": calls, "total": total, "steps": steps, "nodes": nodes, "spent": compiler.spent_s}
        )
    )


if __name__ == "__main__":
    main()
