"""What traces cannot do yet, with the reasons in tests/known_gaps.txt."""

import numpy as np

import weft as wf
import weft.functional as F


def test_nan_through_a_fused_relu():
    """oneDNN's relu after a product makes 0 of NaN, where weft's own keeps it."""
    w = wf.ones((4, 4))
    f = wf.trace(lambda x: F.relu(F.linear(x, w)))
    x = wf.tensor(np.full((2, 4), np.nan, np.float32))
    assert np.isnan(f(x).numpy()).all()
    assert np.isnan(f(x).numpy()).all()
