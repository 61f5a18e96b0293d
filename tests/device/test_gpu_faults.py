"""Failures that are found late, devices that fail, and waits that end early, on the stand-in for GPUs."""

import pytest

from .support import run, standin_path


@pytest.mark.parametrize("seed", ["1", *(pytest.param(s, marks=pytest.mark.full) for s in "0234567")])
def test_faults(seed):
    result = run("-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", "tests/device/on_gpu_faults.py",
                 WEFT_GPU_DRIVER=standin_path(), WEFT_TEST_SEED=seed)  # fmt: skip
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert " passed" in result.stdout


@pytest.mark.full
@pytest.mark.parametrize(
    "switch", [{"WEFT_ENGINE": "naive"}, {"WEFT_SCHEDULE_SEED": "5"}], ids=["naive", "explore"]
)
def test_failures_on_other_engines(switch):
    result = run("-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", "tests/device/on_gpu_faults.py",
                 "-k", "failure or vain or updates", WEFT_GPU_DRIVER=standin_path(), WEFT_TEST_SEED="3",
                 **switch)  # fmt: skip
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
