"""Training on the stand-in for GPUs: optimizers, symbols, transformations, checkpoints, stores, several devices."""

import json

import pytest

from .support import run, standin_path

DEMO = """
import sys
sys.path.insert(0, "examples")
import digits
data = digits.digits()
digits.digits = lambda: tuple(tuple(x[:n] for x in pair) for pair, n in zip(data, (96, 51)))  # 3 steps
digits.LEAST_ACCURACY = 0
seed = digits.wf.random.seed
digits.wf.random.seed = lambda n: seed(n, device=digits.wf.current_device())  # the same numbers on each device
digits.main()
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param("1", marks=pytest.mark.daily(4)),
        *(pytest.param(s, marks=pytest.mark.full) for s in "0234567"),
    ],
)
def test_training(seed):
    result = run("-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", "tests/device/on_gpu_training.py",
                 WEFT_GPU_DRIVER=standin_path(), WEFT_TEST_SEED=seed)  # fmt: skip
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert " passed" in result.stdout


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", "01234567")
def test_demo(seed, tmp_path):
    """The three ways of the demonstration, whose losses are the processor's."""
    losses = {}
    for device in ("cpu:0", "gpu:0"):
        result = run("-c", DEMO, "--epochs", "1", "--device", device, "--out", str(tmp_path / device),
                     WEFT_GPU_DRIVER=standin_path(), WEFT_TEST_SEED=seed, timeout_s=600)  # fmt: skip
        assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
        assert ("gpu:0 is the stand-in for a GPU" in result.stdout) == (device == "gpu:0")
        for way in ("eager", "traced", "symbol"):
            losses[device, way] = json.loads((tmp_path / device / f"{way}.json").read_text())["losses"]
    for way in ("eager", "traced", "symbol"):
        assert losses["gpu:0", way] == pytest.approx(losses["cpu:0", way], rel=1e-4)
        assert len(losses["gpu:0", way]) == 3
