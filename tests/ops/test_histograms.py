"""Histograms: elements at the ends of bins, and bins that are narrower than the distance of two floats."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft.base.dtype import as_dtype
from weft.ops.families.statistics import Histogram


def at_ends(bins, low, high, dtype):
    """All ends of bins as weft has them, the floats beside each, and what is not counted."""
    steps = np.arange(bins + 1).astype(dtype)
    ends = np.asarray(low, dtype) + steps * np.asarray((high - low) / bins, dtype)
    ends[-1] = high
    sides = [np.nextafter(ends, np.asarray(way, dtype)) for way in (-np.inf, np.inf)]
    return np.concatenate([ends, *sides, np.array([np.nan, np.inf, -np.inf, low, high], dtype)])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("bins", "low", "high"),
    [
        (1, 0.0, 1.0),
        (7, -1.1, 2.3),
        (64, -2.0, 2.0),
        (1000, 100.0, 101.0),
        (99_999, 0.0, 0.3),
        (3, -1e30, 1e30),
    ],
)
def test_division_finds_the_bin_that_a_search_finds(bins, low, high, dtype, monkeypatch):
    x = wf.tensor(at_ends(bins, low, high, dtype))
    is_counted = Histogram(bins=bins, range=(low, high)).has_wide_bins(as_dtype(dtype))
    assert is_counted or (bins, low, dtype) in ((1000, 100.0, "float32"), (99_999, 0.0, "float32"))
    divided = F.histogram(x, bins, (low, high)).numpy()
    monkeypatch.setattr(Histogram, "has_wide_bins", lambda self, dtype: False)
    searched = wf.trace(lambda x: F.histogram(x, bins, (low, high)))(x).numpy()
    np.testing.assert_array_equal(divided, searched)
    assert divided.sum() >= 2 * bins


def test_narrow_bins_are_searched_for():
    op = Histogram(bins=100, range=(1e6, 1e6 + 1))
    assert not op.has_wide_bins(as_dtype("float32"))
    x = wf.tensor(np.float32([1e6, 1e6 + 0.0625, 1e6 + 1, 1e6 + 2]))
    assert F.histogram(x, 100, (1e6, 1e6 + 1)).sum().item() == 3
