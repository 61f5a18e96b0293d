"""Steps of random functions, each written once for weft and for NumPy: STEPS[name](xp, x, y, k).

xp: `weft`, or `Reference`, which has the same functions made of NumPy's. x, y: arrays; k: a drawn number. A step gives
an array of any shape; where x does not fit, x itself. Values stay near 1. Few steps have kinks, none has jumps.
"""

import numpy as np

import weft as wf
from weft import functional as F


class Sine(wf.Function):
    """A custom gradient, which is the true one."""

    def forward(self, x):
        self.x = x
        return F.sin(x)

    def backward(self, dy):
        return dy * F.cos(self.x)


class Ours:
    """weft's functions by the names that steps use."""

    foreach, while_loop, cond = staticmethod(wf.foreach), staticmethod(wf.while_loop), staticmethod(wf.cond)
    sine = staticmethod(lambda x: Sine()(x))
    recompute = staticmethod(wf.recompute)
    integers = staticmethod(lambda items: wf.tensor(items))

    def __getattr__(self, name):
        return getattr(wf, name)


class Reference:
    """The same functions of NumPy."""

    sine = staticmethod(np.sin)

    @staticmethod
    def integers(items):
        return np.array(items)

    @staticmethod
    def recompute(f, *args):
        return f(*args)

    @staticmethod
    def foreach(body, data, state):
        outputs = []
        for x in data:
            y, state = body(x, state)
            outputs.append(y)
        return np.stack(outputs), state

    @staticmethod
    def while_loop(condition, body, *state, max_iterations=None):
        count = 0
        while condition(*state) and (max_iterations is None or count < max_iterations):
            state, count = body(*state), count + 1
        return state

    @staticmethod
    def cond(pred, then, otherwise, *operands):
        return then(*operands) if pred else otherwise(*operands)

    @staticmethod
    def softmax(x, axis):
        y = np.exp(x - x.max(axis=axis, keepdims=True))
        return y / y.sum(axis=axis, keepdims=True)

    @staticmethod
    def logsumexp(x, axis, keepdims=False):
        return np.log(np.exp(x).sum(axis=axis, keepdims=keepdims))

    @staticmethod
    def layer_norm(x, shape):
        return (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)

    @staticmethod
    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    @staticmethod
    def relu(x):
        return np.maximum(x, 0.0)

    def __getattr__(self, name):
        return getattr(np, name)


OURS, REFERENCE = Ours(), Reference()


def fits(x, y):
    """Whether y broadcasts to the shape of x."""
    return y.ndim <= x.ndim and all(
        n == m or m == 1 for n, m in zip(x.shape[::-1], y.shape[::-1], strict=False)
    )


def beside(x, y):
    """y, or a number made of it where its shape does not fit to x."""
    return y if fits(x, y) else y.mean()


def axis_of(x, k):
    """An axis of x, counted from either end."""
    return k % x.ndim - (x.ndim if k // 8 % 2 else 0)


def written(xp, x, y, k):
    """Writes through a view, and reads what was written."""
    z = x * 2
    z[0] = z[-1] * 0.5 if k % 2 else beside(z[0], y)
    z[k % len(x) :] *= 0.7
    return z


def written_at(xp, x, y, k):
    z = x * 1.5
    z[xp.integers([0, k % len(x)])] = xp.tanh(z[-1])
    return z


def looped(xp, x, y, k):
    """A state that is carried, and an operand found outside of the body."""
    factor = beside(x[0], y)

    def body(row, state):
        state = xp.tanh(row * factor + state * 0.5)
        return state * 1.5 if k % 2 else state, state

    return xp.foreach(body, x, x[0] * 0)[0]


def repeated(xp, x, y, k):
    """A loop that ends after some iterations."""
    factor = beside(x, y)
    _, z = xp.while_loop(
        lambda n, z: n < k % 4, lambda n, z: (n + 1, xp.sin(z) + 0.3 * factor), 0, x, max_iterations=4
    )
    return z


def branched(xp, x, y, k):
    """A branch that an array decides; both are smooth, and equal nowhere."""
    factor = beside(x, y)
    return xp.cond(x.sum() > 0.2, lambda: xp.sin(x) * factor, lambda: xp.cos(x) + factor)


def gathered(xp, x, y, k):
    places = xp.argsort(x * x, axis=axis_of(x, k))
    return xp.take_along_axis(x, places, axis=axis_of(x, k))


def product(xp, x, y, k):
    """A matrix times itself, times the other operand, or a vector."""
    if y.ndim == 1 and y.shape[0] == x.shape[-1]:
        return x @ y
    if y.ndim >= 2 and x.ndim == 2 and y.shape[-1] == x.shape[-1]:
        return xp.tanh(x) @ xp.matrix_transpose(y) * 0.5
    return x @ xp.matrix_transpose(xp.tanh(x)) * 0.5


POINTWISE = {
    "sin": lambda xp, x, y, k: xp.sin(x * (1 + k % 2)),
    "tanh": lambda xp, x, y, k: xp.tanh(x),
    "exp": lambda xp, x, y, k: xp.exp(xp.tanh(x)),
    "sigmoid": lambda xp, x, y, k: xp.sigmoid(x) * x,
    "sqrt": lambda xp, x, y, k: xp.sqrt(x * x + 1),
    "cube": lambda xp, x, y, k: xp.tanh(x) ** 3,
    "power": lambda xp, x, y, k: (xp.tanh(x) + 2) ** beside(x, xp.sin(y)),
    "relu": lambda xp, x, y, k: xp.relu(x) + x * 0.5,
    "add": lambda xp, x, y, k: x + beside(x, y),
    "subtract": lambda xp, x, y, k: beside(x, y) - x * 0.5,
    "multiply": lambda xp, x, y, k: x * beside(x, xp.tanh(y)),
    "divide": lambda xp, x, y, k: x / (1.5 + xp.cos(beside(x, y))),
    "maximum": lambda xp, x, y, k: xp.maximum(x, beside(x, y) * 0.5),
    "atan2": lambda xp, x, y, k: xp.atan2(x, beside(x, y * y) + 1),
    "hypot": lambda xp, x, y, k: xp.hypot(x, beside(x, y * y) + 1),
    "logaddexp": lambda xp, x, y, k: xp.logaddexp(x, beside(x, y)),
    "where": lambda xp, x, y, k: xp.where(x > 0.1, x * 2, beside(x, y)),
    "sine": lambda xp, x, y, k: xp.sine(x),
}
REDUCED = {  # of at least one dimension
    "sum": lambda xp, x, y, k: x.sum(axis=axis_of(x, k)) * 0.5,
    "mean": lambda xp, x, y, k: x - x.mean(axis=axis_of(x, k), keepdims=True),
    "max": lambda xp, x, y, k: x - 0.5 * x.max(axis=axis_of(x, k), keepdims=True),
    "prod": lambda xp, x, y, k: xp.prod(xp.tanh(x) + 1.1, axis=axis_of(x, k)) * 0.3,
    "var": lambda xp, x, y, k: x * xp.var(x, axis=axis_of(x, k), keepdims=True),
    "softmax": lambda xp, x, y, k: xp.softmax(x, axis=axis_of(x, k)),
    "logsumexp": lambda xp, x, y, k: xp.logsumexp(x, axis=axis_of(x, k)),
    "layer_norm": lambda xp, x, y, k: xp.layer_norm(xp.sin(x * 3), x.shape[-1:]),
    "cumulative_sum": lambda xp, x, y, k: xp.cumulative_sum(x, axis=axis_of(x, k)) * 0.5,
    "cumulative_prod": lambda xp, x, y, k: xp.cumulative_prod(xp.tanh(x) + 0.9, axis=axis_of(x, k)),
    "sort": lambda xp, x, y, k: xp.sort(x, axis=axis_of(x, k)),
    "gathered": gathered,
    "product": lambda xp, x, y, k: product(xp, x, y, k) if x.ndim >= 2 else (x * x).sum() * 0.5,
}
MOVED = {
    "flip": lambda xp, x, y, k: xp.flip(x, axis=axis_of(x, k)),
    "roll": lambda xp, x, y, k: xp.roll(x, 1 + k % 2, axis=axis_of(x, k)),
    "concat": lambda xp, x, y, k: xp.concat([x, xp.sin(x)], axis=axis_of(x, k)),
    "stack": lambda xp, x, y, k: xp.stack([x, xp.sin(x)], axis=k % (x.ndim + 1)) if x.ndim < 3 else x,
    "part": lambda xp, x, y, k: x[k % x.shape[0] :],
    "row": lambda xp, x, y, k: x[k % x.shape[0]],
    "backwards": lambda xp, x, y, k: x[::-1] * 0.5 + x,
    "steps": lambda xp, x, y, k: x[..., :: 1 + k % 2],
    "at": lambda xp, x, y, k: x[xp.integers([0, -1, 0])],
    "moved": lambda xp, x, y, k: xp.moveaxis(x, 0, -1),
    "flat": lambda xp, x, y, k: x.reshape((-1,)),
    "column": lambda xp, x, y, k: x[..., None] if x.ndim < 3 else x,
    "lower": lambda xp, x, y, k: xp.tril(x, k=k % 3 - 1) + 0.1 * x if x.ndim >= 2 else x,
    "written": written,
    "written_at": written_at,
}
FLOW = {
    "looped": looped,
    "repeated": repeated,
    "branched": branched,
    "recomputed": lambda xp, x, y, k: xp.recompute(lambda a, b: xp.sin(a) * b, x, beside(x, y)),
}
STEPS = POINTWISE | REDUCED | MOVED | FLOW
NEEDS_DIMENSIONS = {*REDUCED, *MOVED, "looped"}


def applied(xp, steps, arrays, more=None):
    """All values of a random function: the arrays, then one for each (name, first, second, number) of steps.

    more: steps beside STEPS; they need dimensions.
    """
    values, more = list(arrays), more or {}
    for name, first, second, number in steps:
        x, y = values[-1 - first % min(3, len(values))], values[second % len(values)]
        if (name in NEEDS_DIMENSIONS or name in more) and x.ndim == 0:
            values.append(xp.sin(x))
        else:
            values.append((more.get(name) or STEPS[name])(xp, x, y, number))
    return values


def drawn_steps(rng, count, names=tuple(STEPS)):
    """`count` steps: (name, which operands, a number)."""
    return [
        (
            names[int(rng.integers(len(names)))],
            int(rng.integers(3)),
            int(rng.integers(8)),
            int(rng.integers(16)),
        )
        for _ in range(count)
    ]
