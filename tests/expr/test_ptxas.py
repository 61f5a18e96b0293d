"""Kernels for threads as machine code of GPUs, by NVIDIA's assembler: no spills, no local memory, few registers.

./dev test --ci ptxas installs it; elsewhere these tests are skipped.
"""

import itertools
import re
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from weft.expr import rejection
from weft.expr.functions import expand
from weft.expr.kernel import Each, Kernel, Operand, Store
from weft.expr.llvm_matrices import MEMORY
from weft.expr.llvm_threads import NO_PAIRS, Schedule, width_of
from weft.expr.scalar import cast, load
from weft.expr.targets import compile_threads, ptx_target
from weft.expr.threads import print_threads
from weft.kernels.gpu.attention import columns_of
from weft.kernels.gpu.attention_passes import AttentionPass, operands_of
from weft.kernels.gpu.attention_tiles import print_pass
from weft.kernels.gpu.rejection import multinomial_stages

from .standin import Trial
from .test_attention_threads import KINDS as ATTENTION_KINDS
from .test_attention_threads import OPTIONS as ATTENTION_OPTIONS
from .test_attention_threads import TYPES
from .test_matrix_threads import DTYPES, example
from .test_matrix_threads import KINDS as MATRIX_KINDS
from .test_threads import POINTWISE, PRODUCTS, ROWS, daily_operators, kernels_of, sizes_of, some

MOST_REGISTERS = 128  # of a thread of a pointwise kernel: half of the threads of a multiprocessor still fit


def assembler():
    try:
        files = metadata.files("nvidia-cuda-nvcc") or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(f.locate()) for f in files if f.name == "ptxas"), None)


PTXAS = assembler()
pytestmark = [
    pytest.mark.skipif(PTXAS is None, reason="there is no ptxas: ./dev test --ci ptxas installs it"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # of the samples' references
]


def registers(ptx, chip, folder):
    """How many registers a thread has; fails if the assembler does, or puts anything into local memory."""
    source = folder / "kernel.ptx"
    source.write_bytes(ptx.rstrip(b"\0"))
    words = [PTXAS, "-v", f"-arch={chip}", source, "-o", folder / "kernel.cubin"]
    done = subprocess.run(words, capture_output=True, text=True)
    said = done.stderr + done.stdout
    assert done.returncode == 0, said
    assert re.search(r"\b0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", said), said
    return int(re.search(r"Used (\d+) registers", said)[1])


def check(kernel, sizes, chip, folder, moves=None, pairs=NO_PAIRS):
    for schedule in Trial(kernel, sizes, 0, moves, pairs).schedules()[1:]:
        used = registers(compile_threads(print_threads(kernel, schedule), ptx_target(chip)), chip, folder)
        assert schedule.kind != "elements" or used <= MOST_REGISTERS, (kernel.name, schedule, used)


@pytest.mark.parametrize("chip", ["sm_80", "sm_90"])
def test_schedules_fit_into_registers(chip, request, tmp_path):
    for kernel in some(request, f"ptxas {chip}", POINTWISE + ROWS, 15):
        check(kernel, sizes_of(kernel)[-1], chip, tmp_path)


@pytest.mark.parametrize("chip", ["sm_80", "sm_90"])
def test_products_fit_into_registers(chip, tmp_path):
    for kernel, sizes, moves, pairs in PRODUCTS:
        check(kernel, sizes, chip, tmp_path, moves, pairs)


@pytest.mark.parametrize("chip", ["sm_80", "sm_90"])
@pytest.mark.parametrize("kind", ATTENTION_KINDS)
def test_attention_fits_into_registers(chip, kind, request, tmp_path):
    """With everything and with nothing, and some of what is between."""
    forms = [
        (dtype, some_options, columns)
        for dtype in ("float32", "bfloat16")
        for some_options in ((), *((name,) for name in ATTENTION_OPTIONS))
        for columns in (16, 64, 128)
    ]
    whole = [("float16", ATTENTION_OPTIONS, columns_of(128, 5)), ("float32", ATTENTION_OPTIONS[1:], 128)]
    for dtype, options, columns in whole + some(request, f"ptxas {chip} {kind}", forms, 1):
        names = operands_of(kind, options)
        types = tuple((name, TYPES.get(name, "bool" if name == "mask" else dtype)) for name in names)
        for is_narrow in (False, True):
            code = print_pass(AttentionPass(kind, types, options == ATTENTION_OPTIONS, columns), is_narrow)
            assert code.shared_bytes <= 48 << 10
            registers(compile_threads(code, ptx_target(chip)), chip, tmp_path)


@pytest.mark.parametrize("chip", ["sm_80", "sm_90"])
def test_matrices_fit_into_registers(chip, request, tmp_path):
    every = itertools.product(MATRIX_KINDS, DTYPES, range(len(MEMORY)), (False, True))
    for kind, dtype, memory, is_narrow in some(request, f"ptxas matrices {chip}", list(every), 24):
        code = example(kind, dtype, 3, 3).code.code(memory, is_narrow)
        assert code.shared_bytes <= 48 << 10
        registers(compile_threads(code, ptx_target(chip)), chip, tmp_path)


@pytest.mark.parametrize("chip", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    ("draw", "dtypes"),
    [
        (rejection.gamma, ("float64", "uint64", "float64")),
        (rejection.gamma_slope, ("float64", "float64", "float64")),
        (rejection.poisson, ("float64", "uint64", "int64")),
        (rejection.binomial, ("float64", "float64", "uint64", "int64")),
    ],
)
def test_loops_of_draws_fit_into_registers(chip, draw, dtypes, tmp_path):
    *inputs, result = dtypes
    value = expand(cast(draw(*(load(k, dtype) for k, dtype in enumerate(inputs))), result))
    kernel = Kernel("drawn", 1, tuple(map(Operand, dtypes)), (Each((Store(len(inputs), value),)),))
    for width in {1, width_of(kernel)}:
        code = print_threads(kernel, Schedule("elements", 128, width, True))
        assert registers(compile_threads(code, ptx_target(chip)), chip, tmp_path) <= MOST_REGISTERS


@pytest.mark.parametrize("chip", ["sm_80", "sm_90"])
def test_multinomial_draws_fit_into_registers(chip, tmp_path):
    dtypes = ("float64", "float64", "uint64", "float64", "int64")
    kernel = Kernel(
        "multinomial", 2, tuple(map(Operand, dtypes)), multinomial_stages("float64", "float64", "int64")
    )
    for is_narrow in (False, True):
        code = print_threads(kernel, Schedule("serial", 128, 1, is_narrow))
        registers(compile_threads(code, ptx_target(chip)), chip, tmp_path)


@pytest.mark.parametrize("chip", ["sm_80", "sm_90"])
def test_kernels_of_operators_fit_into_registers(chip, request, tmp_path):
    for cls in daily_operators(request, 20):
        for kernel in some(request, f"{cls.name} {chip}", kernels_of(cls), 2):
            sizes = [*[2] * (kernel.rank - 1), 64]
            check(kernel, [70, 6] if kernel.lanes else sizes, chip, tmp_path)
