"""What generated kernels reach: reductions against NumPy, elementary functions, and the errors of sums.

    ./dev bench expr

One thread; milliseconds are the minimum of 30. Errors are relative to the sum in float64, the largest of all sums.
"""

import ctypes
import time

import numpy as np

from weft.expr.compiler import compile_kernel
from weft.expr.functions import expand
from weft.expr.kernel import Each, Fold, Kernel, Once, Operand, Reduction, Store
from weft.expr.scalar import FUNCTIONS, call, load, result

X = load(0, "float32")
ELEMENTS = 1 << 20


def bind(kernel: Kernel, a: np.ndarray, out: np.ndarray, strides: tuple[int, ...]):
    """A function without arguments that runs the kernel from a to out."""
    compiled = compile_kernel(kernel)
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(compiled.address)
    data = (ctypes.c_void_p * 2)(a.ctypes.data, out.ctypes.data)
    sizes = (ctypes.c_int64 * a.ndim)(*a.shape)
    steps = (ctypes.c_int64 * (2 * a.ndim))(*a.strides, *strides)
    return lambda keep=compiled: function(data, sizes, steps, None)


def fold(op: str, start: float, *, lanes: bool) -> Kernel:
    operands = (Operand("float32"), Operand("float32", "unit" if lanes else "zero"))
    stages = (Fold((Reduction(0, op, X, start),)), Once((Store(1, result(0, "float32")),)))
    return Kernel(f"{op}_{'columns' if lanes else 'rows'}", 2, operands, stages, lanes=lanes)


def milliseconds(run) -> float:
    times = []
    for _ in range(30):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return min(times) * 1e3


def error(found: np.ndarray, truth: np.ndarray) -> float:
    return float((np.abs(found - truth) / truth).max())


def main() -> None:
    draw = np.random.default_rng(0)
    rows, columns = (draw.random(shape, "float32") for shape in ((300, 100_000), (1000, 3000)))
    print(f"{'row':28}  {'weft ms':>8}  {'NumPy ms':>8}  {'weft error':>10}  {'NumPy error':>11}")
    for name, array, axis in (("300 rows of 100,000", rows, 1), ("3000 columns of 1000", columns, 0)):
        given = array if axis else array.T
        out = np.zeros(given.shape[0], "float32")
        for op, start, numpy_op in (("sum", 0.0, np.sum), ("max", -np.inf, np.max)):
            run = bind(fold(op, start, lanes=not axis), given, out, (4, 0))
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
        print(f"{name:28}  {milliseconds(bind(kernel, a, out, (4,))):8.3f}")


if __name__ == "__main__":
    main()
