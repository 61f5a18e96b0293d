"""Control flow that depends on data."""

import weft as wf

from ..case import Case, matrix, normal, program, vector, with_state


@program(vector)
def condition(x):
    return wf.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, x)


@program(vector)
def condition_with_structures(x):
    return wf.cond(
        x[0] > x[1],
        lambda d: {"y": d["x"] * 4, "n": d["x"] + 1},
        lambda d: {"y": -d["x"], "n": d["x"] * 3},
        {"x": x},
    )


@program(matrix)
def recurrence(x):
    return wf.foreach(lambda row, sum: (sum * 0.5 + row, sum + row), x, wf.zeros((4,)))


@with_state
def recurrence_with_weights():
    w = normal(4, 4)
    return Case(
        lambda x: wf.foreach(lambda row, h: ((h := wf.tanh(row + h @ w)), h), x, wf.zeros((4,))),
        matrix,
        lambda: [w],
    )


@program(lambda n: (normal(n) * 0 + 1,))
def doubling(x):
    return wf.while_loop(lambda x: x.sum() < 100, lambda x: x * 2, x)


@program(lambda n: (normal(n) * 0 + 1,))
def doubling_at_most(x):
    return wf.while_loop(
        lambda x, k: x.sum() < 100, lambda x, k: (x * 2, k + 1), x, wf.zeros(()), max_iterations=3
    )


@program(vector)
def gradient_of_a_condition(x):
    return wf.grad(lambda t: wf.cond(t.sum() > 0, lambda t: t * t, lambda t: -t, t).sum())(x)


@program(matrix)
def gradient_of_a_recurrence(x):
    def f(t):
        outputs, last = wf.foreach(lambda row, h: (wf.tanh(row + h), row * h), t, wf.ones((4,)))
        return outputs.sum() + last.sum()

    return wf.grad(f)(x)


@program(vector)
def gradient_of_a_loop(x):
    def f(t):
        return wf.while_loop(lambda t: (t * t).sum() < 50, lambda t: t * 1.5, t, max_iterations=8).sum()

    return wf.grad(f)(x)


@program(vector)
def loop_in_a_condition(x):
    return wf.cond(
        x.sum() > 0, lambda x: wf.while_loop(lambda t: t.sum() < 9, lambda t: t * 2, x * 1), lambda x: -x, x
    )
