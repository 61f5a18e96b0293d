"""What operators remember of the calls they have met is bounded, and what is used stays."""

import numpy as np

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
    for shift in range(2300):
        y = F.roll(x, shift)
    assert _core.plan_count(F.roll) <= 2048
    assert y[0].item() == 5000 - 2299


def test_masks_whose_sizes_change_are_not_planned_again():
    """Experts on the rows that a mask gives them: other numbers of rows at each step, with gradients."""
    rng = np.random.default_rng(3)
    weights = [wf.tensor(rng.normal(size=(8, 8)).astype("float32")) for _ in range(3)]

    def loss(x, expert, *weights):
        y = wf.zeros_like(x)
        for k, w in enumerate(weights):
            mine = expert == k
            y[mine] = F.relu(x[mine] @ w)
        return (y * y).mean()

    gradient = wf.grad(loss, (0, 2, 3, 4))

    def step(counts):
        expert = rng.permutation(np.repeat(np.arange(3), counts))
        x = rng.normal(size=(len(expert), 8)).astype("float32")
        before = _core.operator_counters()["planner_calls"]
        gradient(wf.tensor(x), wf.tensor(expert), *weights)[0].wait()
        return _core.operator_counters()["planner_calls"] - before

    step((20, 30, 10))
    assert [step(counts) for counts in ((21, 17, 5), (40, 2, 9), (3, 3, 50), (11, 12, 13))] == [0] * 4
