"""What GPUs cannot do yet; tests/known_gaps.txt says why."""

import pytest
from tests.ops.support import OPERATORS

from .support import run, standin_path

MISSING = """
import sys
import weft as wf
from tests.on_device import gap_of
from tests.device.test_gaps import family_of
from tests.ops.support import OPERATORS, cases
with wf.device("gpu:0"):
    for cls in [cls for cls in OPERATORS if family_of(cls) in sys.argv]:
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
def missing(request):
    """Family -> the operators without a plan on GPUs that its operators are made of, of the families that are due."""
    due = {item.callspec.params["family"] for item in request.session.items if "missing" in item.fixturenames}
    result = run("-c", MISSING, *sorted(due), WEFT_GPU_DRIVER=standin_path())
    assert result.returncode == 0, result.stderr
    found = {}
    for line in result.stdout.splitlines():
        family, name = line.split()
        found.setdefault(family, set()).add(name)
    return found


@pytest.mark.daily(4)
@pytest.mark.parametrize("family", sorted({family_of(cls) for cls in OPERATORS}))
def test_every_operator_has_a_kernel(family, missing):
    names = sorted(missing.get(family, ()))
    assert not names, (
        f"no plan on GPUs: {', '.join(names)}. Three ways to mend it: (1) nothing to do for GPUs if the class in "
        f"src/weft/ops/families/{family}.py has a decompose that holds on every device (kernels of the processor, "
        "kernels/cpu, are not offered there); (2) a function with @kernel(Op, device='gpu') in "
        f"src/weft/kernels/gpu/{family}.py that yields Decomposed(function of values) or Native(thread_loop(...)): "
        "CONTRIBUTING.md, 'A kernel for GPUs', has one; (3) if it cannot be done now, a line for this test in "
        "tests/known_gaps.txt. See it by: WEFT_TEST_DEVICE=gpu:0 ./dev test tests/ops -k NAME"
    )
