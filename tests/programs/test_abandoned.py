"""Where a step fails inside of a loop of a program, what others do in the loop's memory is waited for."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft import _core
from weft.distributed import collective


class RefusesNegative(wf.operator.Operator):
    def forward(self, ctx, in_data, req, out_data, aux):
        if (in_data[0].numpy() < 0).any():
            raise RuntimeError("planned")
        self.assign(out_data[0], req[0], in_data[0].numpy() * 2)


class RefusesNegativeProperty(wf.operator.OperatorProperty):
    def create_operator(self, device):
        return RefusesNegative()


def test_a_failure_in_a_loop_waits_for_what_was_begun():
    wf.operator.register("refuses_negative_of_tests")(RefusesNegativeProperty)
    calls = []

    @wf.trace(strict=True)
    def f(x):
        return wf.foreach(lambda x, s: (F.refuses_negative_of_tests(x), s), x, ())[0]

    good = wf.tensor(np.ones((5, 2), "float32"))
    bad = wf.tensor(np.array([[1, 1], [1, 1], [1, -1], [1, 1], [1, 1]], "float32"))
    _core.on_abandoned(lambda: calls.append(1))
    try:
        assert (f(good).numpy() == 2).all()
        assert calls == []
        with pytest.raises(wf.EngineError, match="planned"):
            f(bad).numpy()
        assert calls == [1]
        assert (f(good).numpy() == 2).all()
    finally:
        _core.on_abandoned(collective.wait_for_all_started)
