"""Indexing: by numbers, slices, arrays; what comes of it and what is written by it."""

import weft as wf
import weft.functional as F

from ..case import normal, program


@program(lambda n: (normal(n, 4), wf.tensor([2, 0, 1])))
def index_by_an_array(x, i):
    return x[i], x[:, i], x[i, 1], x[i, i]


@program(lambda n: (normal(n + 1, 4),))
def index_by_lists(x):
    return x[[0, 2]], x[[0, 1], [2, 3]], x[..., [1]]


@program(lambda n: (normal(n, 4, 2),))
def new_and_dropped_axes(x):
    return x[:, None], x[..., 0], x[0, ..., None, 1], x[-1, 1:, ::1]


@program(lambda n: (normal(n + 3),))
def steps_of_slices(x):
    return x[::2], x[1:-1], x[3:1], x[-2:]


@program(lambda n: (wf.arange(n), wf.tensor([1, 0])))
def index_of_integers(x, i):
    return x[i], F.take(x, i, axis=0), x.astype("float32")[i] * 2


@program(lambda n: (normal(n, 4), wf.tensor([[0], [2]])))
def along_an_axis(x, i):
    return F.take_along_axis(x[:2], i, axis=1), F.put_along_axis(x[:2], i, wf.zeros((2, 1)), axis=1)


@program(lambda n: (wf.zeros((n, 4)), normal(2, 4), wf.tensor([2, 0])))
def rows_are_written(x, y, i):
    x[i] = y
    x[i, 0] += 1
    return x.sum(axis=1)


@program(lambda n: (normal(n, 4), wf.tensor([0, 1, 0])))
def gradient_of_an_index(x, i):
    return wf.grad(lambda t: (t[i] * t[0]).sum())(x)


@program(lambda n: (normal(n, 4),))
def where_of_a_mask(x):
    mask = x > 0
    return F.masked_fill(x, mask, 0.0), F.count_nonzero(mask, axis=0)
