"""A single long row is folded in pieces: by several threads, with the same result whatever their number."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft import _core

SIZES = [32 << 10, 131_072, 131_073, 1_000_003]
FOLDS = {
    "sum": lambda x: x.sum(),
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "mean": lambda x: x.mean(),
    "var": lambda x: x.var(),
    "count_nonzero": np.count_nonzero,
}


@pytest.fixture(params=[1, 2, 5])
def team(request):
    before = _core.set_team_size(request.param)
    yield
    _core.set_team_size(before)


@pytest.mark.usefixtures("team")
@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize("size", SIZES)
def test_a_long_row_has_the_result_of_numpy(name, size):
    a = np.random.default_rng(size).standard_normal(size, dtype="float32") + np.float32(1)
    want = FOLDS[name](a.astype("float64"))
    np.testing.assert_allclose(getattr(F, name)(wf.tensor(a)).item(), want, rtol=2e-6)
    every_other = wf.tensor(np.repeat(a, 2))[::2]
    np.testing.assert_allclose(getattr(F, name)(every_other).item(), want, rtol=2e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "float64"])
def test_the_number_of_threads_changes_no_bit(dtype):
    x = wf.tensor(np.random.default_rng(0).standard_normal(700_001) * 9).astype(dtype)
    found = []
    before = _core.set_team_size(1)
    try:
        for threads in (1, 2, 3):
            _core.set_team_size(threads)
            found.append([F.sum(x).item(), F.max(x).item(), F.sum(x * 3).item()])
    finally:
        _core.set_team_size(before)
    assert found[0] == found[1] == found[2]


@pytest.mark.usefixtures("team")
def test_nan_and_whole_numbers():
    a = np.random.default_rng(0).integers(-100, 100, 900_001)
    assert F.sum(wf.tensor(a)).item() == a.sum()
    assert F.all(wf.tensor(a)).item() is False
    x = wf.ones((300_000,))
    x[299_999] = float("nan")
    assert np.isnan(F.max(x).item())
    assert np.isnan(F.sum(x).item())
