"""Ranges of attention, whatever they broadcast from, are taken by the native kernels, not made a mask of scores."""

import pytest

import weft as wf
import weft.functional as F


@pytest.mark.parametrize("axes", [(5, 2), (1, 5, 2), (2, 1, 5, 2), (2, 4, 5, 2)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_ranges_of_any_form_stay_in_the_kernel(axes, dynamic):
    """As caches of texts of different lengths give them, [n, 1, t, 2]: views of them, not masks of the scores."""
    q, kv, ranges = wf.ones((2, 4, 5, 8)), wf.ones((2, 2, 16, 8)), wf.zeros(axes, dtype="int64")

    def attend(q, kv, ranges):
        return F.scaled_dot_product_attention(q, kv, kv, ranges=ranges)

    traced = wf.trace(attend, dynamic={"q": 2, "ranges": len(axes) - 2} if dynamic else None)
    traced(q, kv, ranges)
    program = traced.programs[0]
    (step,) = getattr(program, "plans", [program])[0].plan.info.steps
    assert step.startswith("native ScaledDotProductAttention(")
    if not dynamic:
        backward = wf.trace(
            lambda *x: wf.grad(lambda q, kv: attend(q, kv, x[2]).sum(), argnums=(0, 1))(*x[:2])
        )
        backward(q, kv, ranges)
        steps = [step.split("(")[0] for step in backward.programs[0].plan.info.steps]
        assert "native ScaledDotProductAttentionGradient" in steps
        assert not [step for step in steps if "Matmul" in step or "Softmax" in step]
