"""One update of many tensors, some of which are the same memory: all are read as they were before."""

import numpy as np
import pytest

import weft as wf
from weft.ops import registry

COUNT = 20  # enough outputs for the quick way of finding out what overlaps


def tensors():
    rng = np.random.default_rng(0)
    return [wf.tensor(rng.standard_normal(6, dtype="float32")) for _ in range(COUNT)]


SHARING = {
    "nothing": lambda p, g: None,
    "a later gradient": lambda p, g: g.__setitem__(19, p[0]),
    "an earlier gradient": lambda p, g: g.__setitem__(0, p[19]),
    "its own gradient": lambda p, g: g.__setitem__(3, p[3]),
    "backwards": lambda p, g: g.__setitem__(3, p[3][::-1]),
    "a view": lambda p, g: g.__setitem__(19, p[0][:]),
    "gradients among themselves": lambda p, g: g.__setitem__(19, g[0]),
}


@pytest.mark.parametrize("case", SHARING)
def test_what_is_shared_is_read_before_it_is_written(case):
    p, g = tensors(), tensors()
    SHARING[case](p, g)
    want = [a.numpy() - np.float32(0.5) * b.numpy() for a, b in zip(p, g, strict=True)]
    registry.function("sgd_update")(0.5, *p, *g, with_momentum=False)
    for a, b in zip(p, want, strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-6)


def test_halves_of_one_array():
    whole = wf.tensor(np.arange(6.0 * COUNT, dtype="float32"))
    p = [whole[6 * k : 6 * k + 6] for k in range(COUNT)]
    g = [whole[6 * k + 3 : 6 * k + 9] if k < COUNT - 1 else p[0] for k in range(COUNT)]
    want = [a.numpy() - np.float32(0.5) * b.numpy() for a, b in zip(p, g, strict=True)]
    registry.function("sgd_update")(0.5, *p, *g, with_momentum=False)
    for a, b in zip(p, want, strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-6)
