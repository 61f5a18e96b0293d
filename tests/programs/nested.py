"""Random functions under nested transformations, and what NumPy and finite differences make of the same.

A program is a random function f(x, w) of two arrays and a list of transformations, the inner one first. Each
transformation makes a function of two arrays of such a function; each has its meaning twice, with weft and with NumPy,
where every derivative is a quotient of differences: eight values around the point.
"""

import dataclasses
from functools import partial

import numpy as np

import weft as wf

from .steps import OURS, REFERENCE, applied, drawn_steps

WEIGHTS = {1: 4 / 5, 2: -1 / 5, 3: 4 / 105, 4: -1 / 280}  # of central differences, up to an error of h ** 8
STEP = 0.02
MOST_VALUES = 3000  # of f, that the differences of one program may need


def slope(f, t, h):
    """The derivative of f(s) at t, by values at distances of h."""
    return sum(c * (f(t + k * h) - f(t - k * h)) for k, c in WEIGHTS.items()) / h


def jacobian_of(f, x, h):
    """All derivatives of f at x, by finite differences; the axes of x come last."""
    columns = []
    for place in np.ndindex(x.shape):
        unit = np.zeros_like(x)
        unit[place] = 1.0
        columns.append(slope(lambda t, unit=unit: f(x + t * unit), 0.0, h))
    return np.moveaxis(np.reshape(columns, x.shape + np.shape(columns[0])), range(x.ndim), range(-x.ndim, 0))


def pattern(shape):
    """Weights that tell elements apart."""
    return np.cos(1.0 + np.arange(np.prod(shape, dtype=int))).reshape(shape)


def weighted(xp, y):
    weights = pattern(tuple(y.shape))
    return (y * (weights if xp is REFERENCE else wf.tensor(weights))).sum()


class Transformation:
    """One transformation. cost: how many values of f each of its values needs, for shapes of x and w."""

    order = 0  # of the derivative

    def shapes(self, x, w):
        """Those of the arguments of the transformed function."""
        return x, w

    def cost(self, x, w):
        return 1

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"


class Vmap(Transformation):
    def __init__(self, rng):
        self.axis, self.count = int(rng.integers(3)), int(rng.choice([1, 2, 3]))
        self.both, self.out = bool(rng.random() < 0.4), int(rng.choice([0, -1]))

    def shapes(self, x, w):
        self.axis = min(self.axis, len(x))
        x = (*x[: self.axis], self.count, *x[self.axis :])
        return x, ((self.count, *w) if self.both else w)

    def cost(self, x, w):
        return self.count

    def weft(self, f):
        return wf.vmap(f, in_axes=(self.axis, 0 if self.both else None), out_axes=self.out)

    def numpy(self, f, h):
        def run(x, w):
            rows = [
                f(np.take(x, k, axis=self.axis), w[k] if self.both else w) for k in range(x.shape[self.axis])
            ]
            return np.stack(rows, axis=self.out)

        return run


class Foreach(Transformation):
    """A loop over the first axis of x."""

    def __init__(self, rng):
        self.count = int(rng.choice([1, 2, 3]))

    def shapes(self, x, w):
        return (self.count, *x), w

    def cost(self, x, w):
        return self.count

    def weft(self, f):
        return lambda x, w: wf.foreach(lambda row, state: (f(row, w), state), x, ())[0]

    def numpy(self, f, h):
        return lambda x, w: np.stack([f(row, w) for row in x])


class Branch(Transformation):
    def __init__(self, rng):
        self.least = float(rng.choice([-0.5, 0.5]))

    def weft(self, f):
        return lambda x, w: wf.cond(w.mean() > self.least, f, lambda x, w: f(x * 0.5, w), x, w)

    def numpy(self, f, h):
        return lambda x, w: f(x if w.mean() > self.least else x * 0.5, w)


class Grad(Transformation):
    """The gradient of a weighted sum, with respect to one operand."""

    order = 1

    def __init__(self, rng):
        self.argument = int(rng.integers(2))
        self.way = str(rng.choice(["grad", "value_and_grad", "vjp", "linearize"]))

    def cost(self, x, w):
        return 8 * int(np.prod((x, w)[self.argument]))

    def weft(self, f):
        def loss(x, w):
            return weighted(OURS, f(x, w))

        def by_vjp(x, w):
            y, pull = wf.vjp(f, x, w)
            return pull(wf.tensor(pattern(tuple(y.shape))))[self.argument]

        def by_linearize(x, w):
            fixed = (lambda x: loss(x, w)) if self.argument == 0 else (lambda w: loss(x, w))
            at = (x, w)[self.argument]
            _, push = wf.linearize(fixed, at)
            basis = np.eye(int(np.prod(at.shape, dtype=int))).reshape(-1, *at.shape)
            return wf.stack([push(wf.tensor(row)) for row in basis]).reshape(at.shape)

        def by_manager(x, w):
            arguments = [x * 1, w * 1]
            with wf.GradManager().attach(arguments) as manager:
                manager.backward(loss(*arguments) + 0 * arguments[self.argument].sum())
            return arguments[self.argument].grad

        match self.way:
            case "vjp":
                return by_vjp
            case "linearize":
                return by_linearize
            case "manager":
                return by_manager
            case "value_and_grad":
                return lambda x, w: wf.value_and_grad(loss, argnums=self.argument)(x, w)[1]
        return wf.grad(loss, argnums=self.argument)

    def numpy(self, f, h):
        def run(x, w):
            def loss(z):
                return weighted(REFERENCE, f(z, w) if self.argument == 0 else f(x, z))

            return jacobian_of(loss, (x, w)[self.argument], h)

        return run


class Jvp(Transformation):
    """The derivative along cos(x), cos(w)."""

    order = 1

    def __init__(self, rng):
        self.way = str(rng.choice(["jvp", "linearize"]))

    def cost(self, x, w):
        return 8

    def weft(self, f):
        def run(x, w):
            tangents = (wf.cos(x), wf.cos(w))
            if self.way == "linearize":
                return wf.linearize(f, x, w)[1](*tangents)
            return wf.jvp(f, (x, w), tangents)[1]

        return run

    def numpy(self, f, h):
        return lambda x, w: slope(lambda t: f(x + t * np.cos(x), w + t * np.cos(w)), 0.0, h)


class Jacobian(Transformation):
    order = 1

    def __init__(self, rng):
        self.mode = [None, "forward", "reverse"][int(rng.integers(3))]
        self.argument = int(rng.integers(2))

    def cost(self, x, w):
        return 8 * int(np.prod((x, w)[self.argument]))

    def weft(self, f):
        return wf.jacobian(f, argnums=self.argument, mode=self.mode)

    def numpy(self, f, h):
        if self.argument:
            return lambda x, w: jacobian_of(partial(f, x), w, h)
        return lambda x, w: jacobian_of(lambda x: f(x, w), x, h)


class Hessian(Transformation):
    order = 2

    def __init__(self, rng):
        pass

    def cost(self, x, w):
        return (8 * int(np.prod(x))) ** 2

    def weft(self, f):
        return wf.hessian(lambda x, w: weighted(OURS, f(x, w)))

    def numpy(self, f, h):
        def run(x, w):
            def gradient(x):
                return jacobian_of(lambda x: weighted(REFERENCE, f(x, w)), x, h)

            return jacobian_of(gradient, x, h)

        return run


class Same(Transformation):
    """What changes nothing: a trace, a step that is computed again, a lazy region, a detached copy added and taken."""

    def __init__(self, rng):
        self.way = str(rng.choice(["trace", "recompute"]))

    def weft(self, f):
        return wf.trace(f) if self.way == "trace" else lambda x, w: wf.recompute(f, x, w)

    def numpy(self, f, h):
        return f


KINDS = (Vmap, Vmap, Vmap, Grad, Grad, Jvp, Jacobian, Hessian, Foreach, Branch, Same)


@dataclasses.dataclass
class Nested:
    """A program: its function's steps, its transformations, and the shapes of f's arguments."""

    seed: int
    steps: list
    transformations: list
    x: tuple[int, ...]
    w: tuple[int, ...]

    @classmethod
    def drawn(cls, seed):
        rng = np.random.default_rng(seed)
        shapes = [(), (1,), (2,), (3,), (2, 2), (1, 3), (3, 1)]
        x, w = (shapes[int(k)] for k in rng.integers(len(shapes), size=2))
        steps = drawn_steps(rng, int(rng.integers(1, 6)))
        program = cls(seed, steps, [], x, w)
        for _ in range(int(rng.integers(1, 5))):
            added = KINDS[int(rng.integers(len(KINDS)))](rng)
            more = dataclasses.replace(program, transformations=[*program.transformations, added])
            if more.cost <= MOST_VALUES and more.order <= 3:
                program = more
        last = program.transformations[-1:]
        if last and isinstance(last[0], Grad) and rng.random() < 0.3:
            last[0].way = "manager"  # which attaches arrays, and so is the outermost one
        return program

    @property
    def order(self):
        return sum(t.order for t in self.transformations)

    @property
    def shapes(self):
        """Those of the transformed function's arguments."""
        shapes = self.x, self.w
        for t in self.transformations:
            shapes = t.shapes(*shapes)
        return shapes

    @property
    def cost(self):
        cost, shapes = 1, (self.x, self.w)
        for t in self.transformations:
            cost *= t.cost(*shapes)
            shapes = t.shapes(*shapes)
        return cost

    def arguments(self, number):
        """Those of one call, and the number that f finds outside."""
        rng = np.random.default_rng((self.seed, number))
        x, w = (rng.uniform(-1.2, 1.2, shape) for shape in self.shapes)
        return x, w, 1.0 + 0.25 * number

    def weft(self, found):
        """The transformed function; found: an array of the surroundings that f reads."""

        def f(x, w):
            return applied(OURS, self.steps, [x, w, x * found])[-1]

        for t in self.transformations:
            f = t.weft(f)
        return f

    def numpy(self, found, h=STEP):
        def f(x, w):
            return np.asarray(applied(REFERENCE, self.steps, [x, w, x * found])[-1])

        for t in self.transformations:
            f = t.numpy(f, h)
        return f

    def smaller(self):
        for k in range(len(self.transformations)):
            yield dataclasses.replace(
                self, transformations=self.transformations[:k] + self.transformations[k + 1 :]
            )
        for k in range(len(self.steps)):
            yield dataclasses.replace(self, steps=self.steps[:k] + self.steps[k + 1 :])
        for x, w in (((), ()), ((2,), (2,)), (self.x, ())):
            if (x, w) != (self.x, self.w) and len(x) <= len(self.x) and len(w) <= len(self.w):
                yield dataclasses.replace(self, x=x, w=w)
