"""What memory and arrays cost beyond their kernels: the pool, making and dropping tensors, views, exchange.

    ./dev bench storage [--quick] [--json FILE]

Prints one table; `bar` is what the minimum of a row has to reach. Rows "x NumPy" are ratios of two times taken in
turn. The row of reserved memory counts, it does not time.
"""

import argparse
import random
import time
import timeit
from pathlib import Path

import numpy as np
from _table import Row, introduce, native_rows, show, write

import weft as wf
from weft import storage

NATIVE_BARS = {f"pair {size}": 60 for size in ("64 B", "1 KiB", "16 KiB", "1 MiB", "64 MiB")}


def time_of(statement: str, count: int, **names: object) -> float:
    """Nanoseconds of one run of a statement."""
    return timeit.timeit(statement, globals=names, number=count) / count * 1e9


def absolute(name: str, statement: str, bar: float | None = None, **names: object) -> Row:
    return Row(f"Python: {name}", "ns", lambda: time_of(statement, 20000, **names), bar)


def against_numpy(name: str, statement: str, bar: float | None = None) -> Row:
    x, a = wf.zeros((4, 6)), np.zeros((4, 6), "float32")

    def ratio() -> float:
        ours = min(time_of(statement, 5000, x=x) for _ in range(4))
        return ours / min(time_of(statement, 5000, x=a) for _ in range(4))

    return Row(f"Python: {name}: {statement}", "x NumPy", ratio, bar)


def python_rows() -> list[Row]:
    x = wf.zeros((4, 6))
    return [
        absolute("make and drop an empty tensor", "empty((4, 6))", 150, empty=wf.empty),
        absolute("make and drop zeros", "zeros((4, 6))", zeros=wf.zeros),
        absolute("numpy() of an idle tensor", "x.numpy()", 300, x=x),
        absolute("item()", "x.item()", x=wf.zeros(())),
        absolute("x[0] = 1.0", "x[0] = 1.0", x=x),
        absolute("x[0] = x[1]", "x[0] = x[1]", x=x),
        against_numpy("view", "x[1:3]", 2),
        against_numpy("view", "x[1]", 2),
        against_numpy("view", "x[1:3, ::2]", 2),
        against_numpy("view", "x.reshape(3, 8)", 2),
        against_numpy("view", "x.reshape((3, 8))", 2),
        against_numpy("view", "x.T", 2),
    ]


def copy_row(name: str, make: object, target: object) -> Row:
    """Gigabytes per second that a copy reads and writes; no bar."""

    def seconds() -> float:
        begin = time.perf_counter()
        target[...] = make
        if isinstance(target, wf.Tensor):
            target.wait()
        return (time.perf_counter() - begin) * 1e3

    return Row(f"Python: {name}", "ms", seconds)


def copy_rows() -> list[Row]:
    x, a = wf.zeros((4096, 4096)), np.zeros((4096, 4096), "float32")
    y, b = wf.empty((4096, 4096)), np.empty((4096, 4096), "float32")
    h, g = wf.empty((4096, 4096), "float16"), np.empty((4096, 4096), "float16")
    return [
        copy_row("copy 64 MiB", x, y),
        copy_row("copy 64 MiB, NumPy", a, b),
        copy_row("copy 64 MiB transposed", x.T, y),
        copy_row("copy 64 MiB transposed, NumPy", a.T, b),
        copy_row("float32 to float16, 16 M elements", x, h),
        copy_row("float32 to float16, 16 M elements, NumPy", a, g),
    ]


def reserved_row(operations: int) -> Row:
    """A million tensors of alternating sizes: memory held from the system over the largest live set."""

    def ratio() -> float:
        device = "cpu:9"
        draw = random.Random(0)
        live, live_bytes, largest = [], 0, 0
        for _ in range(operations):
            bytes_wanted = int(2 ** draw.uniform(0, 22))
            live.append(wf.empty(bytes_wanted, "uint8", device))
            live_bytes += bytes_wanted
            while live_bytes > 256 << 20:
                index = draw.randrange(len(live))
                live[index], live[-1] = live[-1], live[index]
                live_bytes -= live.pop().nbytes
            largest = max(largest, live_bytes)
        return storage.stats(device)["peak_reserved_bytes"] / largest

    return Row(f"Python: {operations} tensors of 1 B to 4 MiB", "x largest live set", ratio, bar=1.3)


def main() -> None:
    parser = argparse.ArgumentParser(description="benchmark of memory and arrays")
    parser.add_argument("--quick", action="store_true", help="few repeats: to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine and rows there, too")
    arguments = parser.parse_args()

    facts = introduce()
    rows = native_rows("storage", NATIVE_BARS, runs=1 if arguments.quick else 2)
    from_python = python_rows() + copy_rows()
    for repeat in range(3 if arguments.quick else 12):
        for row in from_python:
            value = row.sample()
            if repeat:
                row.times.append(value)
    reserved = reserved_row(20_000 if arguments.quick else 1_000_000)
    reserved.times.append(reserved.sample())
    rows += [*from_python, reserved]
    show("storage", rows)
    if arguments.json:
        write(arguments.json, facts, "storage", rows)


if __name__ == "__main__":
    main()
