"""Calls and programs on the stand-in for a GPU."""

import pytest

from .support import run, standin_path


@pytest.mark.parametrize("seed", ["0", *(pytest.param(s, marks=pytest.mark.full) for s in "1234567")])
def test_programs(seed):
    result = run("-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", "tests/device/on_gpu_programs.py",
                 WEFT_GPU_DRIVER=standin_path(), WEFT_TEST_SEED=seed)  # fmt: skip
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert " passed" in result.stdout
