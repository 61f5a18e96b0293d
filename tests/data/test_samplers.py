"""Samplers: their orders are functions of seed and epoch."""

import numpy as np
import pytest

import weft as wf
from weft.data import BatchSampler, RandomSampler, Sampler, SequentialSampler


def test_random_orders_can_be_had_again():
    a, b = RandomSampler(100, seed=7), RandomSampler(range(100), seed=7)
    for epoch in range(3):
        assert a.order(epoch) == b.order(epoch)
        assert sorted(a.order(epoch)) == list(range(100))
    assert a.order(0) != a.order(1)
    assert RandomSampler(100, seed=8).order(0) != a.order(0)


def test_the_seed_follows_the_framework():
    wf.random.seed(3)
    first = RandomSampler(50)
    wf.random.seed(3)
    assert RandomSampler(50).order(0) == first.order(0)
    assert RandomSampler(50).order(0) != first.order(0)


def test_counts_and_replacement():
    assert len(RandomSampler(10, count=4).order(0)) == 4
    drawn = RandomSampler(3, seed=0, replacement=True, count=1000).order(0)
    assert np.all(np.abs(np.bincount(drawn) - 1000 / 3) < 100)
    for make in (
        lambda: RandomSampler(3, count=4),
        lambda: RandomSampler(0, replacement=True, count=1),
        lambda: RandomSampler(3, count=-1),
        lambda: RandomSampler(3, seed=-1),
        lambda: SequentialSampler(-1),
        lambda: BatchSampler([], 0),
    ):
        with pytest.raises(ValueError, match="Sampler: "):
            make()


def test_batches():
    sampler = BatchSampler(range(5), 2)
    assert list(sampler) == [[0, 1], [2, 3], [4]]
    assert len(sampler) == 3
    short = BatchSampler(SequentialSampler(5), 2, drop_last=True)
    assert list(short) == [[0, 1], [2, 3]]
    assert len(short) == 2
    with pytest.raises(TypeError, match="has no length"):
        len(BatchSampler(iter([1]), 1))


def test_states():
    a, b = RandomSampler(9, seed=1), RandomSampler(9, seed=2)
    b.load_state_dict(a.state_dict())
    assert a.order(5) == b.order(5)
    for state in ({}, {"seed": -1}, {"seed": "1"}, {"seed": True}, {"seed": 1, "x": 2}, 5):
        with pytest.raises(ValueError, match="load_state_dict: RandomSampler"):
            b.load_state_dict(state)
    assert b.seed == 1
    with pytest.raises(NotImplementedError, match=r"has no order\(\)"):
        list(Sampler())
