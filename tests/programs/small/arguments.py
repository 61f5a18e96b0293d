"""What functions are called with, and how they leave."""

import collections
import math

import weft as wf
import weft.functional as F

from ..case import Call, Case, matrix, normal, program, vector, with_state

Pair = collections.namedtuple("Pair", "left right")


@program(lambda n: ({"x": normal(n), "l": [normal(n), wf.zeros((1,))]},))
def structured(d):
    return {"a": d["x"] + d["l"][0], "n": 3, "s": "t", "l": [d["x"], (d["l"][1],)]}


@program(lambda n: (Pair(normal(n), [normal(n), 2.5]),))
def named_tuple(p):
    return Pair(p.right[0] * p.right[1], p.left), None


@program(lambda n: (normal(n), True))
def early_return(x, flag):
    if flag:
        return x
    return x * 2


@program(lambda n: (normal(n), n > 3))
def early_return_by_flag(x, flag):
    if flag:
        return x, "early"
    y = x * 2
    return y + 1, "late"


@program(lambda n: (normal(2), n + 1))
def loop_over_a_number(x, n):
    for i in range(n):
        x = x * 2 + i
    return x


@program(vector)
def loop_over_rows(x):
    return [row * k for k, row in enumerate(x)]


@program(lambda n: (normal(n), 0.5 * n, 3.0))
def floats(x, a, b):
    return x * (a * 2 - b), wf.full((2,), a), a + 1, -b, a**2, b // 2


@program(lambda n: (normal(n), 0.5 - n // 5))
def compared_float(x, a):
    return x + 1 if a > 0 else x - 1


@program(lambda n: (normal(n), 0.25 * n))
def math_of_a_float(x, a):
    return x * math.sqrt(a) + math.exp(a)


@program(lambda n: (normal(n), 2, "relu", None))
def options(x, k, name, bias):
    y = getattr(F, name)(x) * k
    return y if bias is None else y + bias


@program(lambda n: Call((normal(n),), {"scale": 2.0, "shift": normal(n), "times": 2}))
def by_name(x, *, scale, shift, times=1):
    return (x * scale + shift) * times


@program(lambda n: Call((normal(n), normal(n)), {"a": normal(n)}))
def any_number_of_arguments(*args, **kwargs):
    total = sum(args)
    return total + kwargs["a"], len(args), sorted(kwargs)


@program(lambda n: (normal(n),))
def default_arguments(x, scale=2.0, shape=(3, -1)):
    return (x[:3] * scale).reshape(shape)


@program(lambda n: (normal(n), "float64"))
def type_by_name(x, dtype):
    return x.astype(dtype), wf.zeros(x.shape, dtype=dtype) + 1


@program(lambda n: (normal(n), (0, 2), slice(0, n - 1)))
def indices_as_arguments(x, several, part):
    return x[list(several)], x[part]


@program(lambda n: (normal(n),))
def exception_inside(x):
    try:
        x @ wf.ones((7, 7))
    except ValueError:
        x = x + 1
    return x


@program(lambda n: (normal(n), n))
def exception_from_python(x, n):
    total = x * 0
    try:
        for k in range(10):
            if k == n:
                raise KeyError(k)
            total += x * k
    except KeyError as error:
        return total, error.args[0]
    finally:
        x += 1


@program(vector)
def facts_about_shapes(x):
    return x.shape, x.ndim, x.size, x.dtype, len(x.shape), x.reshape(1, -1).shape[1] * 2.5


@program(lambda n: ([normal(n) for _ in range(n)],))
def list_of_arrays(xs):
    xs = [x * k for k, x in enumerate(xs)]
    return wf.stack(xs), xs[::-1]


@program(lambda n: ((), [], {}, normal(n)))
def empty_structures(a, b, c, x):
    return a, b, c, [x, ()]


@program(matrix)
def generator_inside(x):
    return sum(row.sum() * k for k, row in enumerate(x) if k != 1)


@with_state
def method():
    class Scaler:
        def __init__(self):
            self.scale, self.calls = wf.full((), 2.0), wf.zeros(())

        def apply(self, x):
            self.calls += 1
            return x * self.scale

    scaler = Scaler()
    return Case(scaler.apply, vector, lambda: [scaler.scale, scaler.calls])


@with_state
def closures_in_closures():
    w = normal(4)

    def outer(scale):
        def inner(x):
            return x * w * scale

        return inner

    by_two = outer(2.0)

    def run(x):
        w[...] = w + 0.125
        return by_two(x), outer(3)(x)

    return Case(run, matrix, lambda: [w])


def factorial(x, n):
    return x if n == 0 else factorial(x * n, n - 1)


@program(lambda n: (normal(2), n))
def recursion(x, n):
    return factorial(x, n)


@with_state
def traced_inside_traced():
    square = wf.trace(lambda x: x * x)
    return Case(lambda x: square(x) + square(x * 2), vector)


@with_state
def lambda_of_closure():
    scale = 3.0
    return Case(lambda x: x * scale, vector)
