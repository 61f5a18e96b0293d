"""Random functions that write through views of arrays, and read them by other names; the same code for weft and NumPy.

A function has values: its argument's multiple, views of values, and new arrays made of them. Statements write values,
some of which share memory. All of them count in the result.
"""

import dataclasses

import numpy as np

from .steps import REFERENCE

SHAPES = ((3,), (4,), (2, 3), (3, 3), (4, 2), (2, 2, 3), (1, 3))


def first(u):
    return u[0] if u.ndim else u


VIEWS = {
    "part": lambda xp, u, v, k: u[k % u.shape[0] :],
    "front": lambda xp, u, v, k: u[: 1 + k % u.shape[0]],
    "last": lambda xp, u, v, k: u[..., -1:],
    "steps": lambda xp, u, v, k: u[::2],
    "backwards": lambda xp, u, v, k: u[::-1],
    "row": lambda xp, u, v, k: u[k % u.shape[0], ...],  # in NumPy, too, a view of one element
    "column": lambda xp, u, v, k: u[..., k % u.shape[-1]],
    "turned": lambda xp, u, v, k: xp.permute_dims(u, tuple(range(u.ndim))[::-1]),
    "moved": lambda xp, u, v, k: xp.moveaxis(u, 0, -1),
    "longer": lambda xp, u, v, k: u[..., None] if u.ndim < 3 else u,
    "whole": lambda xp, u, v, k: u[...],
    "flat": lambda xp, u, v, k: u.reshape((-1,)) if u.ndim == 1 else u,
}
NEW = {
    "sin": lambda xp, u, v, k: xp.sin(u),
    "product": lambda xp, u, v, k: u * 0.5 + xp.tanh(v.sum()) * 0.3,
    "copy": lambda xp, u, v, k: u * 1,
    "turned_copy": lambda xp, u, v, k: xp.flip(u, axis=0),
    "at": lambda xp, u, v, k: u[xp.integers([0, -1])],
    "sorted": lambda xp, u, v, k: xp.cumulative_sum(u, axis=0) * 0.5,
    "joined": lambda xp, u, v, k: xp.concat([u, u], axis=0),
}


def write(xp, u, v, k):
    u[...] = xp.tanh(v.sum()) * 0.7


def write_row(xp, u, v, k):
    u[k % u.shape[0]] = xp.sin(v.sum())


def write_at(xp, u, v, k):
    u[xp.integers([k % u.shape[0]])] = first(u) * 0.7


def write_masked(xp, u, v, k):
    u[...] = xp.where(u > 0.1, xp.tanh(u), u * 0.9)


def write_at_mask(xp, u, v, k):
    u[u > 0.1] = 0.25


def shift(xp, u, v, k):
    u[1:] = u[:-1]


def reverse(xp, u, v, k):
    u[...] = u[::-1]


def add_in_place(xp, u, v, k):
    u += xp.sin(v.sum()) * 0.5


def multiply_in_place(xp, u, v, k):
    u *= 0.8


def add_to_part(xp, u, v, k):
    u[k % u.shape[0] :] += first(u) * 0.5


def fold(xp, u, v, k):
    if v.shape == u.shape:
        u -= v * 0.5


WRITES = {
    f.__name__: f
    for f in (
        write,
        write_row,
        write_at,
        write_masked,
        write_at_mask,
        shift,
        reverse,
        add_in_place,
        multiply_in_place,
        add_to_part,
        fold,
    )
}
STATEMENTS = VIEWS | NEW | WRITES
NOT_BATCHED = {"write_at_mask"}  # how many elements there are depends on what they are


@dataclasses.dataclass
class Written:
    """A function: statements (name, which values, number), and whether it writes to its argument itself."""

    seed: int
    shape: tuple[int, ...]
    steps: list
    to_argument: bool

    @classmethod
    def drawn(cls, seed):
        rng = np.random.default_rng(seed)
        shape = SHAPES[int(rng.integers(len(SHAPES)))]
        steps = []
        for _ in range(int(rng.integers(2, 9))):
            names = list((VIEWS, VIEWS, NEW, WRITES, WRITES)[int(rng.integers(5))])
            steps.append((names[int(rng.integers(len(names)))], *(int(n) for n in rng.integers(12, size=3))))
        return cls(seed, shape, steps, bool(rng.random() < 0.3))

    def arguments(self, count):
        return np.random.default_rng((self.seed, 1)).uniform(-1.2, 1.2, (count, *self.shape))

    def run(self, xp, x, found):
        """The weighted sum of all values, and the array that they began with. found: a 0-d array outside."""
        base = x if self.to_argument else x * 1.5
        values = [base]
        for name, a, b, k in self.steps:
            u, v = values[a % len(values)], values[b % len(values)]
            if u.ndim == 0 and name not in ("write", "sin", "copy", "multiply_in_place"):
                continue
            value = STATEMENTS[name](xp, u, v * found if k % 3 == 0 else v, k)
            if name not in WRITES:
                values.append(np.asarray(value) if xp is REFERENCE else value)
        total = base.sum() * 2
        for k, value in enumerate(values):
            total = total + (value * np.cos(k)).sum()
        return total, base * 1

    def smaller(self):
        for k in range(len(self.steps)):
            yield dataclasses.replace(self, steps=self.steps[:k] + self.steps[k + 1 :])
        for shape in ((2,), (2, 2)):
            if len(shape) <= len(self.shape) and shape != self.shape:
                yield dataclasses.replace(self, shape=shape)
        if self.to_argument:
            yield dataclasses.replace(self, to_argument=False)
