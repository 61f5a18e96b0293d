"""Calls and programs on the stand-in for a GPU."""

import pytest

from .support import run, standin_path


@pytest.mark.parametrize("seed", ["0", *(pytest.param(s, marks=pytest.mark.full) for s in "1234567")])
@pytest.mark.parametrize("file", ["on_gpu_programs", "on_gpu_rows"])
def test_programs(file, seed):
    result = run("-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", f"tests/device/{file}.py",
                 WEFT_GPU_DRIVER=standin_path(), WEFT_TEST_SEED=seed)  # fmt: skip
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert " passed" in result.stdout


def test_captured_arrays_of_numpy_are_read_at_each_call():
    code = (
        "import numpy as np, weft as wf\n"
        "array = np.zeros(2, 'float32')\n"
        "with wf.device('gpu:0'):\n"
        "    traced = wf.trace(lambda x: x + wf.tensor(array))\n"
        "    for k in range(3):\n"
        "        array[:] = k\n"
        "        assert traced(wf.zeros(2)).tolist() == [k, k]\n"
    )
    result = run("-c", code, WEFT_GPU_DRIVER=standin_path())
    assert result.returncode == 0, result.stderr[-2000:]
