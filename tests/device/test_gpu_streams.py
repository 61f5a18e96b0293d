"""Order between streams, on the stand-in for GPUs."""

import pytest

from .support import run, standin_path


def run_there(*arguments, **environment):
    result = run("-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", "tests/device/on_gpu_streams.py",
                 *arguments, WEFT_GPU_DRIVER=standin_path(), **environment)  # fmt: skip
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert " passed" in result.stdout


@pytest.mark.parametrize("seed", ["1", *(pytest.param(s, marks=pytest.mark.full) for s in "02345678")])
def test_streams(seed):
    run_there(WEFT_TEST_SEED=seed)


@pytest.mark.full
@pytest.mark.parametrize(
    "switch", [{"WEFT_ENGINE": "naive"}, {"WEFT_SCHEDULE_SEED": "5"}], ids=["naive", "explore"]
)
def test_streams_on_other_engines(switch):
    run_there("-k", "random_graphs or memory", WEFT_TEST_SEED="3", **switch)
