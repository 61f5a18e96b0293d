"""Errors of functions on arrays show their sizes, also where a plan is made for all sizes."""

import pytest

import weft as wf
import weft.functional as F


def test_an_error_of_a_pattern_shows_numbers():
    with pytest.raises(wf.DTypeError, match=r"softmax: .*x is i64\[3,4\]@cpu:0"):
        F.softmax(wf.ones((3, 4), dtype="int64"))
