"""What the engine costs per operation, natively and from Python, and how parallel regions fare beside pushes.

    ./dev bench engine [--quick] [--only TEXT] [--json FILE]

Prints one table; `bar` is what the minimum of a row has to reach. The samples of the Python rows are taken in
turn, one of each row and then again, so that a slow moment of the machine meets all rows alike. Compare
minima: whatever else runs on the machine can only add to them. Engines have 2 workers if a row says no more.
"""

import argparse
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from _table import Row, introduce, native_rows, show, write

from weft._core import testing
from weft.engine import Engine, NativeFunction

WORKERS = 2
VARIABLES = 64  # of a random graph, where each operation reads 2 and mutates 1 of them
REGIONS, REGION_US = 200, 1000
clock = time.perf_counter


# -- rows of the native program --

GRAPHS = ("independent", "chain", "random")
NATIVE_BARS = {  # ns
    **{f"{graph}, {WORKERS} workers": 250 for graph in GRAPHS},
    **{f"{graph}, reusable, {WORKERS} workers": 150 for graph in GRAPHS},
    "wait on an idle variable": 200,
}


# -- rows from Python --


def python_function(run_context):
    pass


def async_function(run_context, on_complete):
    on_complete()


NOOP = NativeFunction(testing.noop, name="noop")
CHEAP = NativeFunction(testing.noop, cheap=True, name="noop")


def per_operation(count: int, run: Callable[[], object], scale: float) -> float:
    started = clock()
    run()
    return (clock() - started) / count * scale


def accesses(graph: str, count: int, variables: list) -> list[tuple[list, list]]:
    """(const_vars, mutate_vars) of each operation."""
    if graph == "independent":
        return [([], [])] * count
    if graph == "chain":
        return [([], [variables[0]])] * count
    draw = random.Random(1)
    return [(draw.choices(variables, k=2), [draw.choice(variables)]) for _ in range(count)]


def graph_row(label, graph, fn, count, *, bar=None, bulk=0, reusable=False, kind="threaded") -> Row:
    """Push and run `count` operations, then wait for all."""
    engine = Engine(kind, WORKERS)
    variables = [engine.new_variable() for _ in range(VARIABLES)]
    graph_accesses = accesses(graph, count, variables)
    operators = [engine.new_operator(fn, *each) for each in graph_accesses] if reusable else []

    def push_all():
        push = engine.push
        if reusable:
            for operator in operators:
                push(operator)
        else:
            for const_vars, mutate_vars in graph_accesses:
                push(fn, None, const_vars, mutate_vars)

    def run():
        if bulk:
            with engine.bulk(bulk):
                push_all()
        else:
            push_all()
        engine.wait_for_all()

    return Row(f"{label}, {graph}", "us per operation", lambda: per_operation(count, run, 1e6), bar)


def call_row(name, count, make_call) -> Row:
    """`count` calls one after the other; make_call(engine, variable) makes the function to call."""
    engine = Engine(workers=WORKERS)
    call = make_call(engine, engine.new_variable())

    def run():
        for _ in range(count):
            call()

    def sample():
        us = per_operation(count, run, 1e6)
        engine.wait_for_all()
        return us

    return Row(name, "us", sample)


def push_and_wait(push, fn):
    """A call that pushes one operation on an idle engine and waits until it has run."""

    def make_call(engine, variable):
        push_method, mutate_vars = getattr(engine, push), [variable]

        def call():
            push_method(fn, mutate_vars=mutate_vars)
            engine.wait_for_var(variable)

        return call

    return make_call


def device_row(devices: int, count: int) -> Row:
    """20 us native functions spread over devices of one worker each; perfect is 20 / min(devices, cores)."""
    engine = Engine(workers=1)
    spin = NativeFunction(testing.spin_us, 20, name="spin")
    names = [f"cpu:{i % devices}" for i in range(count)]

    def run():
        for name in names:
            engine.push(spin, name)
        engine.wait_for_all()

    name = f"Python: 20 us native functions, {devices} device{'s' * (devices > 1)} of 1 worker"
    return Row(name, "us per operation", lambda: per_operation(count, run, 1e6))


def python_rows(count: int) -> list[Row]:
    functions = "Python: push and run functions"
    return [
        *(graph_row(functions, graph, python_function, count, bar=2.5) for graph in GRAPHS),
        graph_row("Python: the same in bulk(16)", "chain", python_function, count, bulk=16),
        graph_row("Python: the same, naive kind", "chain", python_function, count, kind="naive"),
        graph_row("Python: push operators of functions", "chain", python_function, count, reusable=True),
        *(graph_row("Python: push native no-ops", graph, NOOP, count) for graph in GRAPHS),
        *(graph_row("Python: push cheap native no-ops", graph, CHEAP, count) for graph in GRAPHS),
        graph_row("Python: push operators of native no-ops", "random", NOOP, count, reusable=True),
        call_row("Python: wait for an idle variable", count, lambda e, v: lambda: e.wait_for_var(v)),
        call_row("Python: new_variable() and drop it", count, lambda e, v: e.new_variable),
        call_row("Python: push one function and wait", count // 10, push_and_wait("push", python_function)),
        call_row("Python: push one native no-op and wait", count // 10, push_and_wait("push", NOOP)),
        call_row(
            "Python: push one async function and wait",
            count // 10,
            push_and_wait("push_async", async_function),
        ),
        *(device_row(devices, count // 10) for devices in (1, 2, 4)),
    ]


# -- parallel regions beside small pushes --


class Regions:
    """Runs parallel regions, alone or while a Python thread pushes small operations as fast as it can."""

    def __init__(self, repeats: int) -> None:
        self.repeats = repeats
        self.engine = Engine(workers=WORKERS)
        self.region = NativeFunction(testing.parallel_spin_us, REGION_US, name="region")
        self.variable = self.engine.new_variable()

    def time_s(self) -> float:
        started = clock()
        for _ in range(self.repeats):
            self.engine.push(self.region, mutate_vars=[self.variable], queue="wide")
        self.engine.wait_for_var(self.variable)
        return clock() - started

    def time_beside_s(self, small) -> tuple[float, int]:
        """Seconds, and how many small operations were pushed meanwhile."""
        engine, pushed, stop = self.engine, 0, False
        started = threading.Event()

        def push_small():
            nonlocal pushed
            mutate_vars = [engine.new_variable()]
            while not stop:
                for _ in range(10):
                    engine.push(small, None, (), mutate_vars)
                pushed += 10
                started.set()

        thread = threading.Thread(target=push_small)
        thread.start()
        try:
            started.wait()
            before = pushed
            seconds = self.time_s()
            return seconds, pushed - before
        finally:
            stop = True
            thread.join()
            engine.wait_for_all()


def region_rows(repeats: int, rounds: int) -> list[Row]:
    """The time alone, and the ratio beside each kind of small operation."""
    if not hasattr(testing, "parallel_spin_us"):
        print("no parallel regions: this build of weft has no testing.parallel_spin_us", file=sys.stderr)
        return []
    regions = Regions(repeats)
    alone = Row(f"parallel regions of {REGION_US} us, alone", "us per region")
    small = {
        "native no-ops": NOOP,
        "cheap native no-ops": CHEAP,
        "Python functions": lambda run_context: None,
    }
    beside = {
        name: Row(f"parallel regions while a thread pushes {name}", "x alone", bar=1.2) for name in small
    }
    pushes: dict[str, list[float]] = {name: [] for name in small}
    regions.time_s()
    for _ in range(rounds):
        alone.times.append(regions.time_s() * 1e6 / repeats)
        for name, fn in small.items():
            seconds, pushed = regions.time_beside_s(fn)
            beside[name].times.append(seconds * 1e6 / repeats)
            pushes[name].append(pushed / (seconds * 1e3))
    best, median = alone.minimum, alone.median
    for name, row in beside.items():  # best against best and median against median
        row.times = [row.minimum / best, *([row.median / median] * 2)]
        row.note = f"{statistics.median(pushes[name]):.0f} pushes per ms meanwhile"
    return [alone, *beside.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description="benchmark of the engine")
    parser.add_argument("--quick", action="store_true", help="few repeats: to see that it works")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only rows of Python with this in their names"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine and rows there, too")
    arguments = parser.parse_args()
    quick, only = arguments.quick, arguments.only

    facts = introduce()
    rows = [] if only else native_rows("engine", NATIVE_BARS, runs=1 if quick else 2)
    from_python = [row for row in python_rows(2000 if quick else 10_000) if only in row.name]
    for repeat in range(4 if quick else 16):
        for row in from_python:
            value = row.sample()
            if repeat:  # the first is to start threads and fill caches
                row.times.append(value)
    rows += from_python
    if only in "parallel regions":
        rows += region_rows(*(50, 3) if quick else (REGIONS, 9))
    if not rows:
        sys.exit(f"no row has {only!r} in its name")
    show("engine", rows)
    if arguments.json:
        write(arguments.json, facts, "engine", rows)


if __name__ == "__main__":
    main()
