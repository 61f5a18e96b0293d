"""What traced programs should do like eager ones, and do not."""

import weft as wf


def test_a_branch_that_gives_its_operand():
    """Eagerly the result of cond is the operand itself; in a graph it is a new array."""
    x = wf.tensor([1.0, -1.0])
    pick = wf.trace(lambda x: wf.cond(x[0] > 0, lambda x: x, lambda x: -x, x))
    pick(x)
    assert wf.shares_memory(pick(x), x)
