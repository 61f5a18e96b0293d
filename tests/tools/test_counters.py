"""Counters of the process."""

import weft as wf
from weft.tools.counters import Counting


def test_counters_of_a_traced_function():
    f = wf.trace(lambda x: wf.exp(x) * 2)
    x = wf.ones((3, 5))
    f(x), f(x)
    with Counting() as counting:
        f(x)
    assert counting.counts == {"launches": 1, "kernels": 1}
