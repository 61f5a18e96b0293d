"""What GPUs cannot do yet; tests/known_gaps.txt says why."""

from .support import run, standin_path

HEAD = "import weft as wf\nx = wf.tensor([1.0, 2.0], device='gpu:0')\n"
MISSING = """
from tests.on_device import gap_of
from tests.ops.support import OPERATORS, cases
with wf.device("gpu:0"):
    for cls in OPERATORS:
        for case in cases(cls, ("float32", "int64")):
            try:
                case.call([wf.tensor(a) for a in case.arrays])
            except Exception as error:
                if gap := gap_of(error):
                    print(gap)
"""


def test_memory_is_lent_by_dlpack():
    result = run("-c", HEAD + "x.__dlpack__()", WEFT_GPU_DRIVER=standin_path())
    assert result.returncode == 0, result.stderr


def test_every_operator_has_a_kernel():
    result = run("-c", HEAD + MISSING, WEFT_GPU_DRIVER=standin_path())
    assert result.returncode == 0, result.stderr
    missing = sorted({*result.stdout.split()})
    assert not missing, (
        f"no plan on GPUs: {', '.join(missing)}. An operator is planned there through its loops, views and "
        "decomposition, or by a function in src/weft/kernels/gpu/FAMILY.py; kernels of the processor are not offered. "
        "Mend it there, or write the operators into this test's line of tests/known_gaps.txt"
    )
