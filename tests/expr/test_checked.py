"""WEFT_CHECK_LOOPS=1: generated code tests the bounds of each load and store."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

BEYOND = """
import numpy as np
from weft.expr.kernel import Each, Kernel, Operand, Store
from weft.expr.scalar import load
from weft.expr.compiler import compile_kernel
from tests.expr.support import SIGNATURE

operands = (Operand("float32", "unit"), Operand("float32", "unit"))
kernel = Kernel("doubled", 1, operands, (Each((Store(1, load(0, "float32") + load(0, "float32")),)),))
compiled = compile_kernel(kernel)
x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
data = np.array([a.__array_interface__["data"][0] for a in (x, y)], np.uint64)
sizes, strides, slots = np.array([64]), np.array({strides}), np.zeros(8, np.uint8)
SIGNATURE(compiled.address)(*(a.ctypes.data for a in (data, sizes, strides, slots)))
assert (y == 2).all()
print("done")
"""
MANY = """
import numpy as np, weft as wf, weft.functional as F
x = wf.tensor(np.random.default_rng(0).normal(size=(70, 33)).astype("float32"))
y = wf.tensor(np.random.default_rng(1).normal(size=(33, 70)).astype("float32"))
results = [F.softmax(x, axis=0), F.softmax(x), x.T + y, (x[::-1, ::2] * 2).sum(axis=0), x.astype("float16") * 3,
           wf.cumulative_sum(x, axis=1), x.argmax(axis=0), wf.exp(x).sum(axis=-1), x.astype("int8"), x > y.T]
step = wf.trace(lambda x, y: F.layer_norm(F.gelu(x + y.T), 33))
# What threads share: elements in one line, a long row, rows, tiles, rows side by side in stages, steps of a trace.
big, square = wf.ones(3_000_000), x.flatten()[:1100] * wf.ones((1100, 1))
images = wf.ones((16, 24, 24, 64)).permute_dims((0, 3, 1, 2)) * x.flatten()[:64].reshape(1, 64, 1, 1)
update = wf.trace(lambda a, b: (a * 2 + b).sum(axis=1))
results += [step(x, y), step(x, y), big + 1, big.sum(), big[::-2] * 2, square[::2, ::-1] + 1, square + square.T,
            F.softmax(square), images.sum(axis=(0, 2, 3)), images.var(axis=(0, 2, 3)), update(square, square.T)]
print([float(r.astype("float64").sum().item()) for r in results])
"""


def run(code, checked):
    environment = os.environ | {"WEFT_CHECK_LOOPS": str(int(checked)), "WEFT_NUM_THREADS": "4"}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=110
    )


@pytest.mark.parametrize("strides", ["[0, 4]", "[4, -4]"])
def test_an_access_outside_of_an_operand_ends_the_process(strides):
    """The code moves by one element, as the pattern says; the caller says otherwise."""
    code = BEYOND.replace("{strides}", strides)
    assert run(code, False).stdout == "done\n"
    done = run(code, True)
    assert done.returncode == -6
    assert "weft: doubled: outside of its operands: 4 bytes at 0x" in done.stderr


def test_right_code_computes_the_same():
    assert run(BEYOND.replace("{strides}", "[4, 4]"), True).stdout == "done\n"
    plain, checked = run(MANY, False), run(MANY, True)
    assert checked.returncode == 0, checked.stderr
    np.testing.assert_allclose(json.loads(plain.stdout), json.loads(checked.stdout), rtol=1e-5, atol=1e-3)
