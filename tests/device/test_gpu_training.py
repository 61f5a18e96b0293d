"""Training on the stand-in for GPUs: optimizers, symbols, transformations, checkpoints, stores, several devices."""

import pytest

from .support import run, standin_path


@pytest.mark.timeout(900)
@pytest.mark.full
@pytest.mark.parametrize("seed", "01234567")
def test_training(seed):
    result = run("-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", "tests/device/on_gpu_training.py",
                 WEFT_GPU_DRIVER=standin_path(), WEFT_TEST_SEED=seed)  # fmt: skip
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert " passed" in result.stdout
