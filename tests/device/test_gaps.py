"""What GPUs cannot do yet; tests/known_gaps.txt says why."""

import pytest
from tests.ops.support import OPERATORS

from .support import run, standin_path

HEAD = "import weft as wf\nx = wf.tensor([1.0, 2.0], device='gpu:0')\n"
MISSING = """
from tests.on_device import gap_of
from tests.device.test_gaps import family_of
from tests.ops.support import OPERATORS, cases
with wf.device("gpu:0"):
    for cls in OPERATORS:
        for case in cases(cls, ("float32", "int64")):
            try:
                case.call([wf.tensor(a) for a in case.arrays])
            except Exception as error:
                if gap := gap_of(error):
                    print(family_of(cls), gap)
"""


def family_of(cls):
    return cls.__module__.rpartition(".")[2]


@pytest.fixture(scope="module")
def missing():
    """Family -> the operators without a plan on GPUs that its operators are made of."""
    result = run("-c", HEAD + MISSING, WEFT_GPU_DRIVER=standin_path())
    assert result.returncode == 0, result.stderr
    found = {}
    for line in result.stdout.splitlines():
        family, name = line.split()
        found.setdefault(family, set()).add(name)
    return found


def test_memory_is_lent_by_dlpack():
    result = run("-c", HEAD + "x.__dlpack__()", WEFT_GPU_DRIVER=standin_path())
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("family", sorted({family_of(cls) for cls in OPERATORS}))
def test_every_operator_has_a_kernel(family, missing):
    names = sorted(missing.get(family, ()))
    assert not names, (
        f"no plan on GPUs: {', '.join(names)}. An operator is planned there through its loops, views and "
        f"decomposition, or by a function in src/weft/kernels/gpu/{family}.py; kernels of the processor are not "
        "offered. Mend it there, or give this test a line in tests/known_gaps.txt"
    )
