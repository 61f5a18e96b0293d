"""What oneDNN's kernels cost and bring: making one, finding it again, calling it, products of matrices.

    ./dev bench onednn [--quick] [--json FILE]

Prints one table; `bar` is what the minimum of a row has to reach. Rows that compute are bound to what else the
machine does.
"""

import argparse
import itertools
import time
from collections.abc import Callable
from pathlib import Path

from _table import Row, introduce, show, write

import weft as wf
import weft.ops
from weft import _core

SIZES = itertools.count(65)
"""A size that no kernel was made for yet."""


def geometry(*shape: int, dtype: str = "float32", strides: tuple[int, ...] | None = None):
    return (dtype, shape, strides)


def us_of(run: Callable[[], object], count: int = 1) -> float:
    start = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - start) / count * 1e6


def product(m: int, k: int, n: int, dtype: str = "float32", **options):
    return _core.onednn_matmul(
        geometry(m, k, dtype=dtype), geometry(k, n, dtype=dtype), geometry(m, n, dtype=dtype), **options
    )


def convolution(n: int):
    x = geometry(n, 64, 56, 56, strides=(64 * 56 * 56, 1, 56 * 64, 64))
    return _core.onednn_convolution(
        x, geometry(64, 64, 3, 3), x, stride=(1, 1), padding=[(1, 1)] * 2, dilation=(1, 1), post_ops=["relu"]
    )


def creation_row(name: str, make: Callable[[int], object], bar: float | None = None) -> Row:
    return Row(f"make: {name}", "us", lambda: us_of(lambda: make(next(SIZES))), bar)


def product_row(n: int, dtype: str) -> Row:
    kernel = product(n, n, n, dtype)
    operands = [wf.ones((n, n), dtype=dtype) for _ in range(3)]
    return Row(
        f"{n}x{n}x{n} {dtype}", "ms", lambda: us_of(lambda: _core.run_kernel(kernel, operands)) / 1e3,
        note=f"{2 * n**3 / 1e6:.0f} / minimum GFLOP/s",
    )  # fmt: skip


def small_call() -> float:
    x = wf.ones((4, 4))
    kernel, operands = product(4, 4, 4), [x, x, wf.zeros((4, 4))]
    return us_of(lambda: _core.run_kernel(kernel, operands), 2000)


def rows() -> list[Row]:
    gelu = {"bias": geometry(768), "post_ops": ["gelu_tanh"]}
    return [
        creation_row("product", lambda n: product(n, 768, 768), 300),
        creation_row("product, bias and gelu", lambda n: product(n, 768, 768, **gelu)),
        creation_row("3x3 convolution", convolution),
        creation_row("softmax", lambda n: _core.onednn_softmax(geometry(n, 768), geometry(n, 768), axis=1)),
        Row("find again", "us", lambda: us_of(lambda: product(4, 4, 4), 2000), 3),
        Row("call 4x4x4 from Python", "us", small_call, 3),
        *(product_row(2048, dtype) for dtype in ("float32", "bfloat16")),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="benchmark of oneDNN's kernels")
    parser.add_argument("--quick", action="store_true", help="few repeats: to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine and rows there, too")
    arguments = parser.parse_args()

    facts = introduce()
    table = rows()
    for repeat in range(4 if arguments.quick else 40):
        for row in table:
            value = row.sample()
            if repeat:
                row.times.append(value)
    show("onednn", table)
    if arguments.json:
        write(arguments.json, facts, "onednn", table)


if __name__ == "__main__":
    main()
