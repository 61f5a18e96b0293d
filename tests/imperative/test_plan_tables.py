"""What operators remember of the calls they have met is bounded, and what is used stays."""

import weft as wf
import weft.functional as F
from weft import _core


def planned(call):
    before = _core.operator_counters()["planner_calls"]
    call()
    return _core.operator_counters()["planner_calls"] - before


def test_sizes_that_never_come_again():
    """Two generations of 1024: each of these joinings is for its sizes alone; the one in use is planned once."""
    kept, others = wf.ones(3), wf.ones(5000)
    planned(lambda: F.concat([kept, others[:7]]))
    again = 0
    for n in range(100, 2400):
        assert planned(lambda n=n: F.concat([others[:n], kept])) > 0
        if n % 500 == 0:
            again += planned(lambda: F.concat([kept, others[:7]]))
    assert again == 0
    assert _core.plan_count(F.concat) <= 2048
    assert planned(lambda: F.concat([others[:2399], kept])) == 0
    assert planned(lambda: F.concat([others[:100], kept])) > 0


def test_attributes_that_never_come_again():
    x = wf.arange(5000)
    for shift in range(4200):
        y = F.roll(x, shift)
    assert _core.plan_count(F.roll) <= 2048
    assert y[0].item() == 5000 - 4199
