"""What graphs of many operators cost: planning, replay, memory inside.

    ./dev bench graph [--peers] [--quick] [--json FILE]

Prints one table; `bar` is what the minimum of a row has to reach. Times of replay are differences between a long
program and a short one on the same small array, divided by the number of steps; they contain what the kernels take.
Memory is counted, for shapes alone. With --peers, a step of training of a small network beside PyTorch's and JAX's.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _environments as environments
from _contest import OURS, Arena, Result
from _machine import cores
from _networks import prediction_graph, training_graph
from _process import Side, with_bytecode
from _table import ROOT, RatioRow, Row, introduce, show, write

import weft as wf
import weft.module as modules
import weft.ops.functions as F
from weft import _core, models
from weft.base.dtype import float32
from weft.executor.compile import compile_graph
from weft.executor.planner import make_plan
from weft.graph.graph import Graph
from weft.graph.passes import optimize
from weft.ops.node import input_value
from weft.ops.types import TensorType

HERE = Path(__file__).parent
MIB = 2**20


def time_of(plan, arrays, count):
    """Nanoseconds of one run of a plan, at its quickest."""
    best = float("inf")
    for _ in range(count):
        begin = time.perf_counter()
        _core.run_plan(plan, arrays)
        best = min(best, time.perf_counter() - begin)
    return best * 1e9


def steps_in_a_row(count):
    """A program of steps that cannot be merged: each reads its operand transposed."""
    x = y = input_value(TensorType((4, 4), float32))
    for _ in range(count):
        y = F.permute_dims(y, (1, 0)) * 0.5
    plan = make_plan(Graph([x], [y]), "steps", exact=True)
    assert len(plan.info.steps) == count
    return plan


def replay_rows(count):
    short, long = steps_in_a_row(10), steps_in_a_row(410)
    x = wf.ones((4, 4))

    def per_step(array):
        return (time_of(long, [array], count) - time_of(short, [array], count)) / 400

    other = wf.ones((4, 8))[:, ::2]
    return [
        Row("replay, a step on 4x4", "ns", lambda: per_step(x), 60),
        Row("the same on arrays that do not lie as planned", "ns", lambda: per_step(other)),
    ]


def planning_rows():
    def seconds():
        graph = training_graph("resnet50", batch=16)
        begin = time.perf_counter()
        compile_graph(graph, "resnet50")
        return time.perf_counter() - begin

    def of_a_node():
        graph = training_graph("resnet50", batch=16)
        begin = time.perf_counter()
        optimized = optimize(graph)
        return (time.perf_counter() - begin) / len(optimized.nodes) * 1e3

    return [
        Row("passes and planning, a step of training of ResNet-50", "s", seconds, 0.9),
        Row("passes alone, for each node that they give", "ms", of_a_node, 0.1),
    ]


def memory_rows():
    rows = []
    for name in ("alexnet", "googlenet", "vgg16", "resnet50"):
        for kind, graph_of, least in (("training", training_graph, 2), ("prediction", prediction_graph, 4)):
            report = make_plan(graph_of(name), name, exact=True).info.memory_report()
            shares = (
                ("arena of every result by itself", report.arena_bytes / report.naive_bytes, 1 / least),
                ("arena of the largest live set", report.arena_bytes / report.largest_live_bytes, 1.05),
            )
            for what, share, bar in shares:
                rows.append(Row(f"{name}, {kind}: {what}", "x", lambda share=share: share, bar))
            rows[-1].note = f"{report.naive_bytes / MIB:.0f} MiB -> {report.arena_bytes / MIB:.0f} MiB"
    return rows


def counted_rows():
    """What networks become, and what runs again and again."""
    x = y = input_value(TensorType((64, 64), float32))
    for _ in range(5):
        y = F.tanh(y) * 1.5
    chain = make_plan(Graph([x], [y]), "chain", exact=True).info.steps

    layer = modules.Sequential(modules.Conv2d(8, 16, 3, padding=1), modules.BatchNorm2d(16), modules.ReLU())
    plan, _ = steady(layer, wf.random.normal(0.0, 1.0, (2, 20, 20, 8)).permute_dims((0, 3, 1, 2)))
    images = wf.random.normal(0.0, 1.0, (1, 3, 64, 64))
    _, reorders = steady(models.resnet50(), images)
    return [
        Row("ten pointwise operations", "kernels", lambda: len(chain), 1),
        Row("convolution, batch norm, ReLU at inference", "kernels", lambda: len(plan.info.steps), 1),
        Row("ResNet-50 at inference, images channels first", "reorders", lambda: reorders, 1),
    ]


def steady(net, x):
    """The plan of a network's trace at inference, and the reorders of a call when everything has been prepared."""
    net.eval()
    traced = wf.trace(lambda x: net(x))
    with wf.no_grad():
        for _ in range(3):
            traced(x).wait()
        before = _core.onednn_counters()["reorders"]
        traced(x).wait()
    (program,) = traced.programs
    return program.plan, _core.onednn_counters()["reorders"] - before


def call_rows(count):
    """What a traced call costs the caller: ten arguments of 4x4, one kernel."""
    arrays = [wf.ones((4, 4)) for _ in range(10)]

    @wf.trace
    def total(a, b, c, d, e, f, g, h, i, j):
        return a + b + c + d + e + f + g + h + i + j

    def microseconds():
        begin = time.perf_counter()
        for _ in range(count):
            y = total(*arrays)
        y.wait()
        return (time.perf_counter() - begin) / count * 1e6

    microseconds()
    return [Row("traced call, ten arguments, its kernel included", "us", microseconds, 5)]


FIRST_CALL = """
import time
import numpy as np
import weft as wf
import weft.functional as F
from weft import models, optimizer

net = models.MLP((784, 256, 128, 10))
update, manager = optimizer.Adam(net.parameters(), 1e-3), wf.GradManager().attach(net.parameters())
x, labels = wf.asarray(np.ones((32, 784), np.float32)), wf.asarray(np.zeros(32, np.int64))

@wf.trace
def step(x, labels):
    with manager:
        loss = F.cross_entropy(net(x), labels)
        manager.backward(loss)
    update.step().clear_grad()
    return loss

wf.waitall()
start = time.perf_counter()
step(x, labels).wait()
wf.waitall()
first = time.perf_counter()
step(x, labels).wait()
wf.waitall()
print(first - start, time.perf_counter() - first)
"""


def first_call_rows(times):
    """The first calls of a traced step of training in fresh processes, without compiled code and with it."""
    first, second = (
        Row(f"MLP's step, {which} traced call, nothing compiled", "s") for which in ("first", "second")
    )
    again, after = (
        Row(f"MLP's step, {which} traced call, all compiled before", "s") for which in ("first", "second")
    )
    first.bar, again.bar = 0.3, 0.3
    run = [sys.executable, "-c", FIRST_CALL]
    with with_bytecode() as environment:
        for turn in range(times + 1):
            with tempfile.TemporaryDirectory() as cache:
                variables = {**environment, "WEFT_CACHE_DIR": cache}
                for rows in ((first, second), (again, after)):
                    out = subprocess.run(
                        run, stdout=subprocess.PIPE, text=True, check=True, env=variables
                    ).stdout
                    for row, value in zip(rows, out.split(), strict=True):
                        if turn:  # the first ones write the bytecode
                            row.times.append(float(value))
    return [first, second, again, after]


def peer_rows(turns):
    """The MLP's step of training beside PyTorch's and JAX's, each in a process of its own, in turns."""
    sides = {OURS: Side(Path(sys.executable), HERE / "_weft_side.py")}
    for name in ("torch", "jax"):
        try:
            environments.make(name)
        except environments.PeerError as error:  # the other rows are worth having
            print(f"no rows beside peers: {error}", file=sys.stderr)
            return []
        sides[name] = Side(environments.python_of(name), environments.PEERS / f"{name}_side.py")
    arena = Arena(sides, ROOT / "build" / "bench", cores(2), {}, turns, 0.5)
    ways = ((OURS, "traced"), ("torch", "eager, default Adam"), ("jax", "jit"))
    ours, *peers = results = [Result("mlp-train", "f32", side, variant) for side, variant in ways]
    arena.contest(results)
    rows = []
    for peer, bar in zip(peers, (0.45, 1.0), strict=True):
        if peer.error or ours.error:
            raise SystemExit(f"{peer.way}: {peer.error or ours.error}")
        row = RatioRow("MLP's step, traced", f"x {peer.way}", bar=bar, times=ours.runs, others=peer.runs)
        row.note = f"{min(ours.runs) * 1e4:.0f} us"  # a run is 100 steps
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="benchmark of graphs and programs")
    parser.add_argument("--peers", action="store_true", help="compare with PyTorch and JAX")
    parser.add_argument("--quick", action="store_true", help="few repeats: to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine and rows there, too")
    arguments = parser.parse_args()

    facts = introduce()
    quick = arguments.quick
    rows = replay_rows(20 if quick else 300) + call_rows(500 if quick else 5000) + planning_rows()
    for _ in range(2 if quick else 9):
        for row in rows:
            row.times.append(row.sample())
    counted = counted_rows() + memory_rows()
    for row in counted:
        row.times.append(row.sample())
    rows += first_call_rows(1 if quick else 3)
    rows += peer_rows(2 if quick else 8) if arguments.peers else []
    show("graph", rows + counted)
    if arguments.json:
        write(arguments.json, facts, "graph", rows + counted)


if __name__ == "__main__":
    main()
