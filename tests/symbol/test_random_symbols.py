"""Random symbols: bound, reshaped, read from text; forward, and backward with every request, against NumPy.

Everyday tests take a few symbols, others every day. With --full, ten minutes of them; WEFT_TEST_SEED fixes which,
WEFT_TEST_SECONDS how long.
"""

import collections
import dataclasses

import numpy as np
import pytest
from tests.fuzzing import seeds, seeds_for_a_while, shrunk
from tests.programs.nested import STEP, jacobian_of
from tests.programs.steps import OURS, POINTWISE, REFERENCE

import weft as wf
import weft.symbol as sym

ALIKE = ("sin", "tanh", "exp", "sigmoid", "sqrt", "cube", "relu")  # of one operand, which look at no shape
BINARY = {
    "add": lambda xp, x, y: x + y,
    "subtract": lambda xp, x, y: y - x * 0.5,
    "multiply": lambda xp, x, y: x * xp.tanh(y),
    "divide": lambda xp, x, y: x / (1.5 + xp.cos(y)),
    "maximum": lambda xp, x, y: xp.maximum(x, y * 0.5),
    "hypot": lambda xp, x, y: xp.hypot(x, y * y + 1),
    "where": lambda xp, x, y: xp.where(x > 0.1, x * 2, y),
    "column": lambda xp, x, y: x * xp.mean(y, axis=1, keepdims=True),
    "row": lambda xp, x, y: x + xp.max(y, axis=0, keepdims=True) * 0.5,
    "number": lambda xp, x, y: x + xp.sin(xp.mean(y)),
    "product": lambda xp, x, y: xp.matmul(xp.tanh(x), xp.matmul(xp.matrix_transpose(y), x)) * 0.3,
    "joined": lambda xp, x, y: xp.sum(xp.stack([x, y * 2], axis=1), axis=1),
}
ALONG = {
    "softmax": lambda xp, x, axis: xp.softmax(x, axis=axis),
    "logsumexp": lambda xp, x, axis: x - xp.logsumexp(x, axis=axis, keepdims=True),
    "cumulative_sum": lambda xp, x, axis: xp.cumulative_sum(x, axis=axis) * 0.5,
    "flip": lambda xp, x, axis: xp.flip(x, axis=axis),
    "roll": lambda xp, x, axis: xp.roll(x, 1, axis=axis),
    "var": lambda xp, x, axis: x * xp.var(x, axis=axis, keepdims=True),
    "prod": lambda xp, x, axis: x * xp.prod(xp.tanh(x) + 1.1, axis=axis, keepdims=True) * 0.3,
    "sort": lambda xp, x, axis: xp.sort(x, axis=axis),
}
NAMES = (*ALIKE, *BINARY, *ALONG)
SHAPES = ((1, 1), (2, 1), (1, 3), (2, 2), (3, 2), (4, 3))
REQUESTS = ("write", "add", "null")


@dataclasses.dataclass
class Net:
    """Two outputs of x and w by steps (name, first, second, axis); requests of gradients; shapes bound in turn."""

    seed: int
    steps: list
    requests: dict[str, str]
    shapes: list[tuple[int, int]]
    by_text: bool
    times: int  # that backward is called

    @classmethod
    def drawn(cls, seed):
        rng = np.random.default_rng(seed)
        steps = [
            (NAMES[int(rng.integers(len(NAMES)))], *(int(n) for n in rng.integers((8, 8, 2))))
            for _ in range(int(rng.integers(1, 8)))
        ]
        requests = {name: REQUESTS[int(rng.integers(3))] for name in ("x", "w")}
        shapes = [SHAPES[int(k)] for k in rng.integers(len(SHAPES), size=3)]
        return cls(seed, steps, requests, shapes, bool(rng.random() < 0.5), int(rng.integers(1, 3)))

    def outputs(self, xp, x, w):
        values = [x, w]
        for name, a, b, axis in self.steps:
            u, v = values[-1 - a % min(3, len(values))], values[b % len(values)]
            if name in ALIKE:
                values.append(POINTWISE[name](xp, u, None, axis))
            else:
                values.append(BINARY[name](xp, u, v) if name in BINARY else ALONG[name](xp, u, axis))
        return values[-1] * 1, values[-2] + values[0] * values[1]

    def symbol(self):
        made = sym.group(list(self.outputs(OURS, *(sym.var(n, dtype="float64") for n in ("x", "w")))))
        return sym.from_json(made.to_json()) if self.by_text else made

    def smaller(self):
        for k in range(len(self.steps)):
            yield dataclasses.replace(self, steps=self.steps[:k] + self.steps[k + 1 :])
        for k in range(len(self.shapes)):
            yield dataclasses.replace(self, shapes=self.shapes[:k] + self.shapes[k + 1 :])
        for change in ({"by_text": False}, {"times": 1}, {"requests": {"x": "write", "w": "write"}}):
            if any(getattr(self, name) != value for name, value in change.items()):
                yield dataclasses.replace(self, **change)


def wanted(net, arrays, weights):
    """The outputs, and the gradients of their weighted sum; None at kinks."""

    def loss(name, value):
        made = net.outputs(REFERENCE, **{**arrays, name: value})
        return sum((y * c).sum() for y, c in zip(made, weights, strict=True))

    slopes = {}
    for name, value in arrays.items():
        slopes[name], again = (jacobian_of(lambda z, n=name: loss(n, z), value, h) for h in (STEP, STEP / 3))
        if not np.abs(slopes[name] - again).max() <= 1e-8 * max(1.0, np.abs(slopes[name]).max()):
            return None
    return slopes


def same(made, want, bound, what):
    made = made.numpy()
    ok = made.shape == want.shape and np.abs(made - want).max() <= bound * max(1.0, np.abs(want).max())
    return None if ok else f"{what} is {made.tolist()}, not {want.tolist()}"


def bound_to(symbol, net, executor, arrays, before):
    """An executor of these arrays: bound to them, or the one before it, reshaped."""
    wanted_names = [name for name in arrays if net.requests[name] != "null"]
    if executor is None or net.seed % 2:
        return symbol.bind(
            None,
            {name: wf.tensor(a) for name, a in arrays.items()},
            args_grad={name: wf.tensor(before[name]) for name in wanted_names},
            grad_req=net.requests,
        )
    executor = executor.reshape(**{name: a.shape for name, a in arrays.items()})
    for name, a in arrays.items():
        executor.arg_dict[name][...] = wf.tensor(a)
    for name in wanted_names:
        executor.grad_dict[name][...] = wf.tensor(before[name])
    return executor


def check(net):
    """What is wrong, None, or "unknown"."""
    symbol, executor, is_known = net.symbol(), None, True
    for number, shape in enumerate(net.shapes):
        rng = np.random.default_rng((net.seed, number))
        arrays, before = ({name: rng.uniform(-1.2, 1.2, shape) for name in ("x", "w")} for _ in range(2))
        wants = net.outputs(REFERENCE, **arrays)
        weights = [rng.uniform(-1, 1, y.shape) for y in wants]
        inferred = symbol.infer_shape(x=shape, w=shape)[1]
        if [tuple(s) for s in inferred] != [y.shape for y in wants]:
            return f"shapes are {inferred}"
        executor = bound_to(symbol, net, executor, arrays, before)
        made = executor.forward(is_train=True)
        for k, (y, want) in enumerate(zip(made, wants, strict=True)):
            if fact := same(y, want, 1e-9, f"bound {number}: output {k}"):
                return fact
        for _ in range(net.times):
            executor.backward([wf.tensor(c) for c in weights])
        if (slopes := wanted(net, arrays, weights)) is None:
            is_known = False
            continue
        for name, request in net.requests.items():
            if request != "null":
                want = slopes[name] if request == "write" else before[name] + net.times * slopes[name]
                if fact := same(executor.grad_dict[name], want, 1e-7, f"bound {number}: {request} {name}"):
                    return fact
    return None if is_known else "unknown"


def outcome(net):
    try:
        return check(net)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def fuzz(seed, counts):
    net = Net.drawn(seed)
    fact = outcome(net)
    counts[fact or "same"] += 1
    if fact not in (None, "unknown"):
        small = shrunk(net, Net.smaller, lambda n: outcome(n) not in (None, "unknown"))
        raise AssertionError(f"seed {seed}: {outcome(small)}\n{small}\nat first: {fact}")


def test_random_symbols():
    counts = collections.Counter()
    for seed in seeds(0, 4):
        fuzz(seed, counts)
    assert counts["same"] > 0


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_random_symbols_for_ten_minutes():
    counts = collections.Counter()
    for seed in seeds_for_a_while(1000):
        fuzz(seed, counts)
    print(dict(counts))
    assert counts["same"] > 0.5 * counts.total()


def test_the_generator_draws_every_step():
    assert {name for seed in range(300) for name, *_ in Net.drawn(seed).steps} == set(NAMES)
