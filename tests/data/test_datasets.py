"""Datasets and collators."""

from typing import NamedTuple

import numpy as np
import pytest

import weft as wf
import weft.data as data
from weft.base.errors import ShapeError


def test_arrays_are_shared_and_sliced():
    x, y = np.arange(6.0).reshape(3, 2), wf.tensor([5, 6, 7])
    dataset = data.ArrayDataset(x, y)
    assert len(dataset) == 3
    a, b = dataset[-1]
    np.testing.assert_array_equal(a, [4, 5])
    assert b == 7
    x[2] = 9
    np.testing.assert_array_equal(dataset[2][0], [9, 9])
    got = dataset.gather([2, 0])
    np.testing.assert_array_equal(got[1], [7, 5])
    with pytest.raises(IndexError):
        dataset[3]


def test_parts_and_unions():
    a, b = data.ArrayDataset([1, 2, 3]), data.ArrayDataset([4, 5])
    both = data.ConcatDataset([a, data.ArrayDataset(np.zeros(0, "int64")), b])
    assert [int(both[k]) for k in range(5)] == [1, 2, 3, 4, 5]
    assert int(both[-1]) == 5
    part = data.Subset(both, [4, -5, 4])
    assert [int(part[k]) for k in range(len(part))] == [5, 1, 5]
    np.testing.assert_array_equal(data.Subset(a, [2, 1]).gather([1, 0]), [2, 3])
    assert part.gather([0]) is NotImplemented
    for call in (lambda: both[5], lambda: data.Subset(a, [3])):
        with pytest.raises(IndexError, match="is not one of"):
            call()


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: data.ArrayDataset(), ValueError, "no arrays were given"),
        (
            lambda: data.ArrayDataset([1, 2], [1]),
            ShapeError,
            r"the same first size, got shapes \[\(2,\), \(1,\)\]",
        ),
        (lambda: data.ArrayDataset(3), ShapeError, "the same first size"),
        (lambda: data.ConcatDataset([]), ValueError, "no datasets were given"),
        (lambda: data.Dataset()[0], NotImplementedError, "has no __getitem__"),
        (lambda: len(data.Dataset()), NotImplementedError, "has no __len__"),
        (lambda: iter(data.StreamDataset()), NotImplementedError, "has no __iter__"),
    ],
)
def test_errors(make, error, words):
    with pytest.raises(error, match=words):
        make()


class Pair(NamedTuple):
    image: np.ndarray
    label: int


def test_structures():
    batch = data.collate([Pair(np.zeros(2), 1), Pair(np.ones(2), 2)])
    assert isinstance(batch, Pair)
    assert batch.image.shape == (2, 2)
    assert batch.label.numpy().tolist() == [1, 2]
    found = data.collate([{"a": [1.5, True], "b": "x", "c": None}] * 2)
    assert found["a"][0].dtype.name == "float32"
    assert found["a"][1].dtype.name == "bool"
    assert found["b"] == ["x", "x"]
    assert found["c"] == [None, None]
    assert data.collate([wf.ones(2), wf.zeros(2)]).shape == (2, 2)
    assert data.collate([np.float32(1), np.float32(2)]).dtype.name == "float32"


@pytest.mark.parametrize(
    ("samples", "error", "words"),
    [
        ([], ValueError, "no samples"),
        ([np.zeros(2), np.zeros(3)], ShapeError, r"different shapes: \(2,\), \(3,\)"),
        ([wf.zeros(2), wf.zeros(3)], ShapeError, "different shapes"),
        ([(1, 2), (1,)], TypeError, "not all of 2 parts"),
        ([(1,), [1]], TypeError, "not all of 1 parts"),
        ([{"a": 1}, {"b": 1}], TypeError, r"other keys than \['a'\]"),
        ([object()], TypeError, r"not builtins\.object"),
    ],
)
def test_samples_that_do_not_fit(samples, error, words):
    with pytest.raises(error, match=words):
        data.collate(samples)
