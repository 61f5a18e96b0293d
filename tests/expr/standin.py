"""The stand-in for a GPU through ctypes: kernels for threads on it, beside the processor's code for the same kernel."""

import ctypes
import functools
import os
import re
from pathlib import Path

import numpy as np

from weft.expr.compiler import compile_kernel
from weft.expr.kernel import parts
from weft.expr.llvm_products import PRODUCT_THREADS
from weft.expr.llvm_tensor_cores import halves_of
from weft.expr.llvm_threads import NO_PAIRS, Schedule, schedule_of, width_of
from weft.expr.scalar import FLOATS, walk
from weft.expr.targets import compile_threads, standin_target
from weft.expr.threads import print_threads

from .support import NUMPY, SIGNATURE

LIBRARY = Path(__file__).resolve().parents[2] / "build" / "native-plain" / "libweft_standin_gpu.so"
TOLERANCE = {"float64": 1e-9, "float32": 2e-5, "float16": 1e-2, "bfloat16": 5e-2}
ARRAY_BYTES = 1 << 16
POINTER, SIZE = ctypes.c_void_p, ctypes.c_size_t


class DeviceFault(Exception):
    """What the stand-in says of a kernel."""


class Gpu:
    """Device 0 of the stand-in; a stream for each seed."""

    def __init__(self):
        path = os.environ.get("WEFT_GPU_DRIVER", LIBRARY)
        assert Path(path).exists(), f"{path} is missing: ./dev test builds it"
        self.driver = ctypes.CDLL(str(path))
        self.driver.weft_standin_fault.restype = ctypes.c_char_p
        self.call("cuInit", 0)
        self.retained = self.new("cuDevicePrimaryCtxRetain", 0)
        self.seed = None
        self.images = {}

    def call(self, name, *arguments):
        result = getattr(self.driver, name)(*arguments)
        if result:
            raise DeviceFault(f"{name}: {result} {self.driver.weft_standin_fault(0).decode()}")

    def new(self, name, *arguments):
        handle = POINTER()
        self.call(name, ctypes.byref(handle), *arguments)
        return handle

    def use(self, seed):
        self.call("cuCtxSetCurrent", self.retained)
        if seed != self.seed:
            self.driver.weft_standin_seed(ctypes.c_uint64(seed))
            self.stream, self.seed = self.new("cuStreamCreate", 1), seed

    def reset(self):
        self.call("cuDevicePrimaryCtxReset_v2", 0)
        self.seed, self.images = None, {}

    def function(self, image, name):
        key = (name, image)
        if key not in self.images:
            self.images[key] = self.new(
                "cuModuleGetFunction", self.new("cuModuleLoadData", image), name.encode()
            )
        return self.images[key]

    def run(self, image, code, blocks, arrays, words, seed=0):
        """Launches on copies of the arrays, which are then replaced by what came out.

        Of gated code the last array is the findings, 2 words each.
        """
        self.use(seed)
        addresses = [self.new("cuMemAlloc_v2", SIZE(max(a.nbytes, 1))) for a in arrays]
        try:
            for address, array in zip(addresses, arrays, strict=True):
                self.call(
                    "cuMemcpyHtoDAsync_v2",
                    address,
                    POINTER(array.ctypes.data),
                    SIZE(array.nbytes),
                    self.stream,
                )
            operands = [a.value for a in addresses]
            gate = [operands.pop(), arrays[-1].size // 2] if code.is_gated else []
            block = np.array([*operands, *words, *gate], np.int64)
            assert block.size == code.words, (block.size, code.words)
            pointers = (POINTER * 1)(block.ctypes.data)
            function = self.function(image, code.name)
            grid = (blocks, 1, 1, code.threads, 1, 1, code.shared_bytes)
            self.call("cuLaunchKernel", function, *grid, self.stream, pointers, None)
            for address, array in zip(addresses, arrays, strict=True):
                self.call(
                    "cuMemcpyDtoHAsync_v2",
                    POINTER(array.ctypes.data),
                    address,
                    SIZE(array.nbytes),
                    self.stream,
                )
            self.call("cuStreamSynchronize", self.stream)
        except DeviceFault:
            self.reset()
            raise
        for address in addresses:
            self.call("cuMemFree_v2", address)


@functools.cache
def gpu():
    return Gpu()


class Trial:
    """Operands for a kernel: arrays of random elements, sizes, strides and parameters.

    moves: for each operand the loops that it moves along, None for all; pairs: of Schedule, if rows are products.
    """

    def __init__(self, kernel, sizes, seed=0, moves=None, pairs=NO_PAIRS):
        self.kernel, self.sizes, self.pairs = kernel, list(sizes), pairs
        rng = np.random.default_rng(seed)
        vector_loop = kernel.rank - 1 - (kernel.row_rank if kernel.lanes else 0)
        self.strides, gathered = [], []
        for number, operand in enumerate(kernel.operands):
            own, step = [0] * kernel.rank, NUMPY[operand.dtype].itemsize
            unit = kernel.cross if operand.inner == "cross" else vector_loop
            order = [unit, *(d for d in reversed(range(kernel.rank)) if d != unit)]
            for d in order:
                if d == vector_loop and operand.inner == "zero":
                    continue
                if moves and moves[number] is not None and d not in moves[number]:
                    continue
                if d == vector_loop and operand.inner == "any":
                    step *= 2
                own[d] = step
                step *= max(self.sizes[d], 1)
            self.strides.append(own)
            gathered += [NUMPY[operand.dtype].itemsize * 7] * operand.gathered
        self.gathered = gathered
        self.arrays = [elements(operand.dtype, rng) for operand in kernel.operands]
        self.parameters = parameters_of(kernel)

    def on_processor(self):
        arrays = [a.copy() for a in self.arrays]
        compiled = compile_kernel(self.kernel)
        data = np.array([a.ctypes.data for a in arrays], np.uint64)
        steps = np.array([s for own in self.strides for s in own] + self.gathered + [0], np.int64)
        sizes = np.array(self.sizes, np.int64)
        slots = np.frombuffer(self.parameters or bytes(8), np.int64).copy()
        SIGNATURE(compiled.address)(data.ctypes.data, sizes.ctypes.data, steps.ctypes.data, slots.ctypes.data)
        return arrays

    def words(self):
        steps = [s for own in self.strides for s in own]
        slots = np.frombuffer(self.parameters, np.int64).tolist()
        return [*self.sizes, *steps, *self.gathered, *slots]

    def schedules(self):
        """Every schedule that is right for the kernel and the sizes."""
        kernel = self.kernel
        length = int(np.prod(self.sizes[kernel.rank - kernel.row_rank :]))
        first = schedule_of(kernel, length)
        found = [first, first.replaced(is_narrow=True)]
        if first.kind == "elements":
            width = width_of(kernel)
            while width > 1:
                if kernel.rank == 1 or self.sizes[-1] % width == 0:
                    found.append(schedule_of(kernel, length, True, width))
                    break
                width //= 2
        if first.held:  # the same without it
            found.append(Schedule("warps" if length <= 1024 else "blocks", 128, 1, True))
        if first.kind == "warps":
            held = -(-length // 128) if first.held else 0
            found.append(Schedule("blocks", 128, 1, True, held=held))
        if self.pairs != NO_PAIRS:
            found += [
                Schedule(kind, PRODUCT_THREADS, 1, narrow, self.pairs)
                for kind in ("products", *(["tensor"] if halves_of(kernel, self.pairs[2]) else []))
                for narrow in (False, True)
            ]
        return found

    def on_gpu(self, schedule, blocks=3, seed=0, text=None):
        """text: from the kernel's text to another one."""
        code = print_threads(self.kernel, schedule)
        if text:
            code = code.replaced(text=text(code.text))
        arrays = [a.copy() for a in self.arrays]
        gpu().run(compile_threads(code, standin_target()), code, blocks, arrays, self.words(), seed)
        return arrays

    def assert_same(self, got, want, exact):
        for operand, a, b in zip(self.kernel.operands, got, want, strict=True):
            if exact or operand.dtype not in FLOATS:
                assert a.tobytes() == b.tobytes() or np.array_equal(
                    a, b, equal_nan=operand.dtype in FLOATS
                ), operand
            else:
                t = TOLERANCE[operand.dtype]
                x, y = a.astype("float64"), b.astype("float64")
                np.testing.assert_allclose(x, y, rtol=t, atol=t, equal_nan=True)


def elements(dtype, rng):
    numpy_type = NUMPY[dtype]
    count = ARRAY_BYTES // numpy_type.itemsize
    if dtype == "bool":
        return rng.integers(0, 2, count) > 0
    if dtype in FLOATS:
        return (rng.standard_normal(count) / 2 + 1).astype(numpy_type)
    return rng.integers(0, 100, count).astype(numpy_type)


def parameters_of(kernel):
    """Every parameter is 3."""
    types = {}
    for stage in kernel.stages:
        for node in walk(*(part.value for part in parts(stage))):
            if node.op == "parameter":
                types[node.value] = node.dtype
    slots = (np.asarray(3, NUMPY[types.get(k, "int64")]) for k in range(max(types, default=-1) + 1))
    return b"".join(slot.tobytes().ljust(8, b"\0") for slot in slots)


def without_barrier(number):
    """From a text to the one without its barrier of this number."""

    def change(text):
        found = list(re.finditer(r"  call void @weft_barrier\(i32 \d+\)\n", text))
        return text[: found[number].start()] + text[found[number].end() :]

    return change
