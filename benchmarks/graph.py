"""What graphs of many operators cost: planning, replay, memory inside.

    ./dev bench graph [--quick] [--json FILE]

Prints one table; `bar` is what the minimum of a row has to reach. Times of replay are differences between a long
program and a short one on the same small array, divided by the number of steps; they contain what the kernels take.
Memory is counted, for shapes alone.
"""

import argparse
import time
from pathlib import Path

from _networks import prediction_graph, training_graph
from _table import Row, introduce, show, write

import weft as wf
import weft.ops.functions as F
from weft import _core
from weft.base.dtype import float32
from weft.executor.compile import compile_graph
from weft.executor.planner import make_plan
from weft.graph.graph import Graph
from weft.ops.node import input_value
from weft.ops.types import TensorType

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
    assert len(plan.recipe.steps) == count
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

    return [Row("passes and planning, a step of training of ResNet-50", "s", seconds, 3)]


def memory_rows():
    rows = []
    for name in ("alexnet", "googlenet", "vgg16", "resnet50"):
        for kind, graph_of, least in (("training", training_graph, 2), ("prediction", prediction_graph, 4)):
            report = make_plan(graph_of(name), name, exact=True).recipe.memory_report()
            shares = (
                ("arena of every result by itself", report.arena_bytes / report.naive_bytes, 1 / least),
                ("arena of the largest live set", report.arena_bytes / report.largest_live_bytes, 1.05),
            )
            for what, share, bar in shares:
                rows.append(Row(f"{name}, {kind}: {what}", "x", lambda share=share: share, bar))
            rows[-1].note = f"{report.naive_bytes / MIB:.0f} MiB -> {report.arena_bytes / MIB:.0f} MiB"
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="benchmark of graphs and programs")
    parser.add_argument("--quick", action="store_true", help="few repeats: to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine and rows there, too")
    arguments = parser.parse_args()

    facts = introduce()
    rows = replay_rows(20 if arguments.quick else 300) + planning_rows()
    for _ in range(2 if arguments.quick else 9):
        for row in rows:
            row.times.append(row.sample())
    counted = memory_rows()
    for row in counted:
        row.times.append(row.sample())
    show("graph", rows + counted)
    if arguments.json:
        write(arguments.json, facts, "graph", rows + counted)


if __name__ == "__main__":
    main()
