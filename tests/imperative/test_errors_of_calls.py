"""Errors of functions on arrays show their sizes, also where a plan is made for all sizes."""

import pytest

import weft as wf
import weft.functional as F


def test_an_error_of_a_pattern_shows_numbers():
    with pytest.raises(wf.DTypeError, match=r"softmax: .*x is i64\[3,4\]@(c|g)pu:0"):
        F.softmax(wf.ones((3, 4), dtype="int64"))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.repeat(x, 2**62),
        lambda x: F.one_hot(wf.tensor([1]), 2**62),
        lambda x: F.tile(x, (2**40, 2**30)),
        lambda x: F.concat([wf.broadcast_to(x.astype("int8"), (2**62, 1))] * 4),
        lambda x: F.stack([wf.broadcast_to(x.astype("int8"), (2**62, 1))] * 4),
        lambda x: F.outer(*[wf.broadcast_to(x.astype("int8"), (2**33,))] * 2),
        lambda x: wf.zeros((2**62, 8)),
    ],
    ids=["repeat", "one_hot", "tile", "concat", "stack", "outer", "zeros"],
)
def test_sizes_that_do_not_fit_64_bits(call):
    with pytest.raises(wf.ShapeError, match=r"shape: .* (fit 64 bits|more elements than memory can)"):
        call(wf.ones(1))
