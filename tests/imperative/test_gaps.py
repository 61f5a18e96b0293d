"""What arrays will do and do not yet: each of these is in tests/known_gaps.txt until it works."""

import numpy as np

import weft as wf


def test_arrays_are_indices():
    x = wf.arange(6)
    assert x[np.array([4, 0])].numpy().tolist() == [4, 0]
    assert x[[1, 2]].numpy().tolist() == [1, 2]


def test_masks_are_indices():
    x = wf.arange(4)
    assert x[np.array([True, False, False, True])].numpy().tolist() == [0, 3]


def test_comparison_is_elementwise():
    assert (wf.arange(3) == wf.arange(3)).numpy().all()


def test_arithmetic_on_tensors():
    assert (wf.arange(3) + wf.arange(3)).numpy().tolist() == [0, 2, 4]
