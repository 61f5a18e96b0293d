"""Results that share memory: with arguments, with each other, with arrays that are kept."""

import weft as wf

from ..case import Case, matrix, normal, program, vector, with_state


@program(vector)
def returns_its_argument(x):
    return x


@program(matrix)
def returns_views_of_its_argument(x):
    return x[1:], x.T, x[0, 0], x.reshape(-1)


@program(lambda n: (normal(2, n),))
def returns_views_of_a_result(x):
    y = x * 2
    return y, y[0], y.reshape(-1), y.T


@program(matrix)
def returns_only_a_view_of_a_result(x):
    return (x * 2)[1:, ::2]


@program(vector)
def returns_one_array_twice(x):
    y = x + 1
    return y, y, [y, {"y": y}]


@program(lambda n: (normal(n), normal(n)))
def returns_one_of_its_arguments(x, y):
    y += 1
    return y


@program(matrix)
def returns_a_repeated_view(x):
    return wf.broadcast_to(x[0], (3, 4)), wf.broadcast_to(x.sum(), (2,))


@program(lambda n: (lambda x: (x, x))(normal(n)))
def same_argument_twice(x, y):
    x += 1
    return y * 2


@program(lambda n: (lambda x: (x, x[1:]))(normal(n)))
def argument_and_its_view(x, y):
    y *= 2
    return x.sum(), y


@program(lambda n: (lambda x: (x[:2], x[2:]))(normal(n + 1)))
def two_parts_of_one_array(x, y):
    x += y.sum()
    y -= 1
    return x


@with_state
def returns_what_it_keeps():
    total = wf.zeros((3,))

    def run(x):
        total[...] = total + x[:3]
        return total

    return Case(run, vector, lambda: [total])


@with_state
def returns_a_view_of_what_it_keeps():
    table = wf.zeros((4, 3))

    def run(x):
        table[0] = x[:3]
        return table[:2], table.T

    return Case(run, vector, lambda: [table])


@program(vector)
def returns_a_constant(x):
    return wf.tensor([1.0, 2.0, 3.0]), wf.zeros((2,)), wf.full((), 3.0)


@program(vector)
def returns_nothing(x):
    x * 2
