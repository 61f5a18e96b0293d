"""Kernels compiled with the package: found without LLVM, under any name, and computing what the compiler's do."""

import json
import subprocess
import sys

import numpy as np
import pytest

from weft import _core
from weft.executor.aot import kernels, write
from weft.expr import compiler
from weft.expr.compiler import compile_kernel, counters, key_of
from weft.expr.kernel import Each, Kernel, Operand, Store
from weft.expr.llvm import print_kernel
from weft.expr.scalar import load

from .support import NUMPY, SIGNATURE, any_layout

CHILD_LIMIT_S = 60


needs_level = pytest.mark.skipif(_core.isa()[1] == "sse4", reason="no kernels are compiled for this level")


def run(address, arrays, parameters):
    data = np.array([a.__array_interface__["data"][0] for a in arrays], np.uint64)
    sizes = np.array(arrays[0].shape, np.int64)
    strides = np.array([step for a in arrays for step in a.strides], np.int64)
    SIGNATURE(address)(data.ctypes.data, sizes.ctypes.data, strides.ctypes.data, parameters.ctypes.data)


@needs_level
def test_all_of_them_are_there_and_do_the_same():
    """On random elements; the order of sums is the processor's."""
    rng = np.random.default_rng(24)
    tools = compiler._toolchain()
    for kernel in kernels():
        text = print_kernel(kernel)
        found = _core.prebuilt_kernel(key_of(text, kernel.name))
        assert found, text
        address, owner = tools.link(tools.compile(text), kernel.name)
        *inputs, target = kernel.operands
        shape = (3, 1001)[-kernel.rank :]
        arrays = [
            any_layout(rng, shape[::-1], how.dtype, "unit").T
            if how.inner == "cross"
            else any_layout(rng, shape, how.dtype, how.inner)
            for how in inputs
        ]
        results = []
        for code in (found, address):
            out = np.zeros(shape if target.inner == "unit" else (*shape[:-1], 1), NUMPY[target.dtype])
            run(code, [*arrays, np.broadcast_to(out, shape)], np.array([7], np.int64))
            results.append(out.astype("float64"))
        assert owner
        np.testing.assert_allclose(*results, rtol=1e-6)


ASK = """
import json, sys
import weft as wf
import weft.functional as F
from weft.executor import aot
from weft.expr import compiler
from weft.ops import registry

asked, print_kernel = set(), compiler.print_kernel
def recorded(kernel, **options):
    text = print_kernel(kernel, **options)
    asked.add(compiler.key_of(text, kernel.name))
    return text
compiler.print_kernel = recorded

def calls(cls, dtype):
    x, count = wf.ones((3, 5), dtype), len(cls.inputs)
    yield [x] * count, {}
    for other in (wf.ones((1, 1), dtype), 1.0 if x.dtype.kind == "float" else 1):
        for k in range(count if count > 1 else 0):
            yield [*[x] * k, other, *[x] * (count - k - 1)], {}
    if any(a.name == "axis" for a in cls.attributes):
        for operand, axis in ((x[0], 0), (x, 0), (x, 1)):
            yield [operand], {"axis": axis}

for cls in map(registry.get, registry.names()):
    for dtype in cls.aot_dtypes:
        for operands, attributes in calls(cls, dtype):
            registry.function(cls.name)(*operands, **attributes)
for dtype in aot.COPIED:
    F.reshape(wf.ones((3, 5), dtype), (15,), copy=True)
for dtype in aot.TRANSPOSED:
    wf.ones((1100, 1100), dtype).T.contiguous()
for number in aot.NUMBERS:
    F.pad(wf.tensor([number]), (1, 1))
wf.waitall()
json.dump([compiler.counters, sorted(asked)], sys.stdout)
"""


@needs_level
def test_they_are_what_operators_ask_for():
    """Calls of the operators need no compiler; and no kernel is there that none of them asks for."""
    run = [sys.executable, "-c", ASK]
    counted, asked = json.loads(subprocess.run(run, stdout=subprocess.PIPE, check=True, timeout=60).stdout)
    assert counted["compiled"] == counted["from_disk"] == 0
    assert {key_of(print_kernel(kernel), kernel.name) for kernel in kernels()} - set(asked) == set()


def test_what_would_not_change_is_not_written(tmp_path):
    write(tmp_path, ())
    before = (tmp_path / "table.cpp").stat().st_mtime_ns
    write(tmp_path, ())
    assert (tmp_path / "table.cpp").stat().st_mtime_ns == before


@needs_level
def test_the_name_does_not_matter():
    x, y = load(0, "float32"), load(1, "float32")
    before = dict(counters)
    for name in ("add", "some_other_name", "kernel"):
        compiled = compile_kernel(Kernel(name, 1, (Operand("float32"),) * 3, (Each((Store(2, x + y),)),)))
        assert compiled.address
        assert compiled.owner is None
    assert counters["prebuilt"] == before["prebuilt"] + 3
    assert counters["compiled"] == before["compiled"]


def test_no_kernel_of_a_higher_level_is_found(level):
    found = [_core.prebuilt_kernel(key_of(print_kernel(kernel), kernel.name)) for kernel in kernels()]
    assert all(found) == any(found) == (level != "sse4")


def test_what_is_not_there_is_not_found():
    assert _core.prebuilt_kernel(0) == 0
    assert _core.prebuilt_kernel(2**64 - 1) == 0
    with pytest.raises(TypeError):
        _core.prebuilt_kernel(-1)


@needs_level
def test_llvm_is_not_imported_for_them():
    code = """
import sys
import weft
from weft.expr.compiler import compile_kernel, counters
from weft.expr.kernel import *
from weft.expr.scalar import load
x, y = load(0, "float32"), load(1, "float32")
compile_kernel(Kernel("add", 1, (Operand("float32"),) * 3, (Each((Store(2, x + y),)),)))
assert counters == {"compiled": 0, "from_disk": 0, "prebuilt": 1, "rejected": 0}, counters
assert not {"llvmlite", "hashlib", "pathlib"} & set(sys.modules), sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=CHILD_LIMIT_S)
    assert done.returncode == 0, done.stderr


def test_no_level_gives_an_empty_table(tmp_path):
    """As on processors that there is no code for."""
    write(tmp_path, ())
    assert [path.name for path in tmp_path.iterdir()] == ["table.cpp"]
    assert "{nullptr, nullptr, 0}" in (tmp_path / "table.cpp").read_text()
