"""Random numbers: the same ones, in the same order, with the same state afterwards."""

import weft as wf
import weft.functional as F

from ..case import Case, matrix, normal, program, vector, with_state


@program(vector)
def noise(x):
    return x + wf.random.normal(0, 1, x.shape) * wf.random.uniform(0, 1, x.shape)


@program(matrix)
def dropped(x):
    return F.dropout(x, 0.5, training=True)


@program(lambda n: (normal(n), 0.25 * n))
def dropped_by_a_number(x, p):
    return F.dropout(x, p / 2, training=True), F.dropout(x, 0.5, training=False)


@program(vector)
def drawn_and_not_used(x):
    wf.random.normal(0, 1, (3,))
    return x + wf.random.uniform(0, 1, x.shape)


@program(lambda n: (normal(n), 0.5 * n, 2.0))
def moments_as_numbers(x, mean, std):
    return x + wf.random.normal(mean, std * 2, x.shape)


@program(vector)
def order_of_draws(x):
    a = wf.random.uniform(0, 1, x.shape)
    b = wf.random.normal(0, 1, x.shape)
    return b, a, F.bernoulli(a)


@program(matrix)
def gradient_through_dropout(x):
    return wf.grad(lambda t: (F.dropout(t, 0.5, training=True) ** 2).sum())(x)


@with_state
def random_walk():
    place = wf.zeros((3,))

    def run(x):
        place[...] = place + wf.random.normal(0, 1, (3,))
        return place * x[:3]

    return Case(run, vector, lambda: [place])


@program(vector)
def random_half(x):
    return wf.random.uniform(-1, 1, (3,), dtype="float64"), wf.random.normal(0, 1, (2,), dtype="bfloat16")


@program(matrix)
def shuffled(x):
    order = wf.random.permutation(x.shape[0])
    return wf.random.permutation(x), x[order], wf.random.uniform(0, 1, (2,))
