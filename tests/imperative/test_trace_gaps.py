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


def test_export_of_dynamic_axes(tmp_path):
    """A graph of sizes that are symbols is not written to files: neither they nor their guards have a text."""
    f = wf.trace(lambda x: x * x.shape[0], dynamic={"x": 0})
    f(wf.ones(3))
    f.export(tmp_path / "f.weft")
    assert wf.load_program(tmp_path / "f.weft")(wf.ones(4)).numpy().tolist() == [4.0] * 4
