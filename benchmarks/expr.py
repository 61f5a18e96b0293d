"""What generated kernels reach: stages and movement against NumPy, functions, errors of sums, and their latency.

    ./dev bench expr

One thread; milliseconds are the minimum of 30. Errors are relative to the sum in float64, the largest of all sums.
"""

import ctypes
import functools
import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np

from weft.expr.compiler import compile_kernel
from weft.expr.functions import expand
from weft.expr.kernel import Each, Fold, Kernel, Once, Operand, Reduction, Scan, Stage, Store
from weft.expr.llvm import print_kernel
from weft.expr.scalar import FUNCTIONS, Scalar, call, cast, load, load_at, result

X = load(0, "float32")
ELEMENTS = 1 << 20


def bind(kernel: Kernel, *arrays: np.ndarray, sizes: Sequence[int] | None = None):
    """A function without arguments that runs the kernel; of each array the last dimensions are gathered ones."""
    compiled = compile_kernel(kernel)
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(compiled.address)
    rank = kernel.rank
    shape = np.broadcast_shapes(*(a.shape[:rank] for a in arrays)) if sizes is None else sizes
    views = [np.broadcast_to(a, (*shape, *a.shape[rank:])) for a in arrays]
    data = np.array([a.__array_interface__["data"][0] for a in arrays], np.uint64)
    steps = [view.strides[:rank] for view in views] + [view.strides[rank:] for view in views]
    strides = np.array([step for some in steps for step in some], np.int64)
    extents = np.array(shape, np.int64)
    pointers = data.ctypes.data, extents.ctypes.data, strides.ctypes.data, None
    return lambda keep=(compiled, data, extents, strides, arrays): function(*pointers)


def folded(
    name: str, op: str, value: Scalar, start: float, inputs: Sequence[str], *, lanes: bool = False
) -> Kernel:
    """Rows of one loop reduced to one number."""
    reduction = Reduction(0, op, value, start)
    operands = (*(Operand(dtype) for dtype in inputs), Operand(reduction.dtype, "unit" if lanes else "zero"))
    stages: tuple[Stage, ...] = (Fold((reduction,)), Once((Store(len(inputs), result(0, reduction.dtype)),)))
    return Kernel(name, 2, operands, stages, lanes=lanes)


def fold(op: str, start: float, *, lanes: bool) -> Kernel:
    return folded(f"{op}_{'columns' if lanes else 'rows'}", op, X, start, ["float32"], lanes=lanes)


def milliseconds(run) -> float:
    times = []
    for _ in range(30):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return min(times) * 1e3


def error(value: np.ndarray, truth: np.ndarray) -> float:
    return float((np.abs(value - truth) / truth).max())


def main() -> None:
    draw = np.random.default_rng(0)
    rows, columns = (draw.random(shape, "float32") for shape in ((300, 100_000), (1000, 3000)))
    print(f"{'row':28}  {'weft ms':>8}  {'NumPy ms':>8}  {'weft error':>10}  {'NumPy error':>11}")
    for name, array, axis in (("300 rows of 100,000", rows, 1), ("3000 columns of 1000", columns, 0)):
        operand = array if axis else array.T
        out = np.zeros(operand.shape[0], "float32")
        for op, start, numpy_op in (("sum", 0.0, np.sum), ("max", -np.inf, np.max)):
            run = bind(fold(op, start, lanes=not axis), operand, out[:, None])
            ours, theirs = milliseconds(run), milliseconds(lambda f=numpy_op, a=array, d=axis: f(a, axis=d))
            truth = numpy_op(array.astype("float64"), axis=axis)
            errors = error(out, truth), error(numpy_op(array, axis=axis), truth)
            print(f"{op + ', ' + name:28}  {ours:8.3f}  {theirs:8.3f}  {errors[0]:10.1e}  {errors[1]:11.1e}")
    a = np.abs(draw.standard_normal(ELEMENTS, "float32")) + np.float32(0.01)
    out = np.empty_like(a)
    print(f"\n{'1 M float32':28}  {'weft ms':>8}")
    for name in FUNCTIONS:
        expression = call(name, X, 2.5) if name in ("pow", "atan2") else call(name, X)
        operands = (Operand("float32"),) * 2
        kernel = Kernel(f"bench_{name}", 1, operands, (Each((Store(1, expand(expression)),)),))
        print(f"{name:28}  {milliseconds(bind(kernel, a, out)):8.3f}")

    stages(draw)
    movement(draw)
    latency()


def stages(draw: np.random.Generator) -> None:
    """Scans, positions of extremes, logical reductions and dot products."""
    print(f"\n{'':40}  {'weft ms':>8}  {'NumPy ms':>8}")

    def row(name: str, ours, theirs) -> None:
        print(f"{name:40}  {milliseconds(ours):8.3f}  {milliseconds(theirs):8.3f}")

    a, square = draw.random((1, ELEMENTS), "float32"), draw.random((1000, 1000), "float32")
    for op, start, numpy_op in (
        ("sum", 0.0, np.add),
        ("prod", 1.0, np.multiply),
        ("max", -np.inf, np.maximum),
    ):
        scan = Scan((Reduction(0, op, X, start),), (Store(1, result(0, "float32")),))
        for lanes, array, what in ((False, a, "1 M float32"), (True, square, "1000 columns of 1000")):
            out = np.empty_like(array)
            kernel = Kernel("scan", 2, (Operand("float32"),) * 2, (scan,), lanes=lanes)
            operands = (array.T, out.T) if lanes else (array, out)
            axis = 0 if lanes else 1
            row(
                f"scan by {op}, {what}",
                bind(kernel, *operands),
                lambda f=numpy_op, x=array, y=out, d=axis: f.accumulate(x, axis=d, out=y),
            )
    for lanes, array, what in (
        (False, a, "1 M float32"),
        (False, square, "1000 rows of 1000"),
        (True, square, "1000 columns of 1000"),
    ):
        kernel = folded("argmax", "argmax", X, 0, ["float32"], lanes=lanes)
        out = np.empty((array.shape[1 if lanes else 0], 1), np.int64)
        theirs = functools.partial(array.argmax, 0 if lanes else 1)
        row(f"argmax, {what}", bind(kernel, array.T if lanes else array, out), theirs)
    truth = cast(load(0, "bool"), "uint8")
    kernel = folded("every", "min", truth, 1, ["bool"])
    bools = np.ones((1, ELEMENTS), bool)
    row("all, 1 M bool", bind(kernel, bools, np.empty((1, 1), np.uint8)), lambda: bools.all())
    kernel = folded("dot", "sum", X * load(1, "float32"), 0, ["float32"] * 2)
    b = a.copy()
    row("dot, 1 M float32", bind(kernel, a, b, np.empty((1, 1), np.float32)), lambda: np.dot(a[0], b[0]))


def movement(draw: np.random.Generator) -> None:
    """Transposition and gathering."""
    print(f"\n{'':40}  {'weft ms':>8}  {'NumPy ms':>8}")
    for dtype in ("int8", "int16", "float32", "float64"):
        x = load(0, dtype)
        operands = Operand(dtype, "cross"), Operand(dtype)
        for n in (512, 4096):
            a = aligned((n, n), dtype)
            a[...] = draw.integers(0, 99, (n, n))
            out = aligned((n, n), dtype)
            kernels = [("copy", x)] + [("plus 1", x + 1)] * (dtype == "float32")
            for name, value in kernels:
                kernel = Kernel("across", 2, operands, (Each((Store(1, value),)),), cross=0)
                times = (
                    milliseconds(bind(kernel, a.T, out)),
                    milliseconds(lambda a=a, out=out: np.copyto(out, a.T)),
                )
                print(f"{f'transposed {name}, {n} x {n} {dtype}':40}  {times[0]:8.3f}  {times[1]:8.3f}")
    for width in (16, 64, 1024):
        count = (1 << 22) // width
        table, which = draw.random((20_000, width), "float32"), draw.integers(0, 20_000, (count, 1))
        out = np.empty((count, width), np.float32)
        operands = Operand("float32", gathered=1), Operand("int64", "zero"), Operand("float32")
        stage = Each((Store(2, load_at(0, "float32", load(1, "int64"))),))
        run = bind(Kernel("embedding", 2, operands, (stage,)), table.T[None], which, out, sizes=out.shape)
        theirs = functools.partial(table.take, which[:, 0], 0, out=out, mode="clip")
        name = f"{count} rows of {width} float32 of a table"
        print(f"{name:40}  {milliseconds(run):8.3f}  {milliseconds(theirs):8.3f}")


def aligned(shape: tuple[int, int], dtype: str) -> np.ndarray:
    """An array at the beginning of a page, as weft's own are of a line of the cache."""
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    memory = np.zeros(size + 4096, np.uint8)
    begin = -memory.ctypes.data % 4096
    return memory[begin : begin + size].view(dtype).reshape(shape)


FIRST = """
import weft, time
weft.ones(2).numpy()
begin = time.perf_counter()
from weft.expr.compiler import compile_kernel, counters
from weft.expr.kernel import Each, Kernel, Operand, Store
from weft.expr.scalar import load
sum = load(0, "float32") + load(1, "float32")
compile_kernel(Kernel("add", 1, (Operand("float32"),) * 3, (Each((Store(2, sum),)),)))
print(time.perf_counter() - begin)
assert counters["prebuilt"] == 1
"""


def latency() -> None:
    """Describing and printing a kernel, and the first one that a process finds ready."""

    def gelu() -> Kernel:
        inside = call("tanh", 0.7978845608 * (X + 0.044715 * X * X * X))
        stages = (Each((Store(1, expand(0.5 * X * (1 + inside))),)),)
        return Kernel("gelu", 1, (Operand("float32"),) * 2, stages)

    kernel = gelu()
    print(f"\n{'gelu with tanh: describing, expanding':40}  {milliseconds(gelu):8.3f}")
    print(f"{'gelu with tanh: printing':40}  {milliseconds(lambda: print_kernel(kernel)):8.3f}")
    firsts = [float(subprocess.check_output([sys.executable, "-c", FIRST])) for _ in range(10)]
    print(f"{'first add of a process, imports included':40}  {min(firsts) * 1e3:8.3f}")


if __name__ == "__main__":
    main()
