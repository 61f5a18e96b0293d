"""x[indices] = value touches only what it writes, and means what it says where operands overlap."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F


def peak_of(call):
    """By how many bytes the memory in use rises during a call."""
    wf.waitall()
    wf.storage.reset_peaks()
    before = wf.storage.stats()["in_use_bytes"]
    call()
    wf.waitall()
    return wf.storage.stats()["peak_in_use_bytes"] - before


@pytest.mark.parametrize(
    "see", [lambda x: x, lambda x: x[::2], lambda x: x.T], ids=["whole", "rows", "columns"]
)
def test_an_array_is_written_where_it_is(see):
    a = np.arange(600_000.0).reshape(600, 1000)
    x, want = wf.tensor(a), a.copy()
    rows = np.array([2, 0])
    view, places = see(x), wf.tensor(rows)
    values = wf.full((2, view.shape[1]), -1.0, dtype="float64")

    def assign():
        view[places] = values

    assign()  # what is made once: a plan, code
    assert peak_of(assign) < a.nbytes / 10
    see(want)[rows] = -1
    np.testing.assert_array_equal(x.numpy(), want)


def test_operands_that_overlap_are_read_before():
    a = np.arange(6.0)
    for see in (lambda x: x, lambda x: x[::-1], lambda x: x[:3]):
        x, want = wf.tensor(a), a.copy()
        count = len(see(want))
        places = np.roll(np.arange(count), 1)
        x[wf.tensor(places)] = see(x)
        want[places] = see(want.copy())
        np.testing.assert_array_equal(x.numpy(), want)
    indices = wf.tensor([2, 0, 1])
    indices[indices] = wf.tensor([7, 8, 9])  # an array of indices into itself
    assert indices.numpy().tolist() == [8, 9, 7]


def test_recorded_assignments_keep_their_gradient():
    def f(x, v):
        y = x * 2
        y[wf.tensor([1, 1, 3])] = v
        return (y * wf.tensor([1.0, 10.0, 100.0, 1000.0])).sum()

    x, v = wf.ones(4), wf.tensor([5.0, 6.0, 7.0])
    dx, dv = wf.grad(f, (0, 1))(x, v)
    assert dx.numpy().tolist() == [2.0, 0.0, 200.0, 0.0]
    assert dv.numpy()[1:].tolist() == [10.0, 1000.0]
    assert x.numpy().tolist() == [1.0] * 4


def test_a_failing_assignment_writes_nothing():
    x = wf.zeros(3)
    seen = F.index_put(x, 1.0, wf.tensor([0, 5]), axes=(0,))
    with pytest.raises(IndexError):
        seen.numpy()
    with pytest.raises(IndexError):  # once
        wf.waitall()
    assert x.numpy().tolist() == [0.0] * 3
