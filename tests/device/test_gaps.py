"""What GPUs cannot do yet; tests/known_gaps.txt says why."""

import pytest

from .support import run, standin_path


@pytest.mark.parametrize(
    "statement",
    ["assert (x + x).tolist() == [2, 4]", "x.__dlpack__()", "x[wf.tensor([0], device='gpu:0')]"],
    ids=["operators", "dlpack", "gather"],
)
def test_on_a_gpu(statement):
    program = f"import weft as wf\nx = wf.tensor([1.0, 2.0], device='gpu:0')\n{statement}"
    result = run("-c", program, WEFT_GPU_DRIVER=standin_path())
    assert result.returncode == 0, result.stderr
