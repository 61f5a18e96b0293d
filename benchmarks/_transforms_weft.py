"""weft's side of benchmarks/transforms.py: the network, its gradients, and the Hessian."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import itertools

from _protocol import Cases, Run, serve

import weft as wf
import weft.functional as F

BATCH = 256
SIZES = (784, 256, 128, 10)
PARAMETERS = 100
CALLS = 20  # of the Hessian in a run
cases = Cases()


def normal(rng, *shape, scale=1.0):
    return wf.tensor((rng.standard_normal(shape) * scale).astype(np.float32))


class Network:
    """An MLP, a batch of examples, and gradients of its loss."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.parameters = []
        for n, m in itertools.pairwise(SIZES):
            self.parameters += [normal(rng, n, m, scale=0.05), wf.zeros(m)]
        self.x = normal(rng, BATCH, SIZES[0])
        self.y = wf.tensor(rng.integers(0, SIZES[-1], BATCH))
        self.numbers = tuple(range(2, 2 + len(self.parameters)))

    @staticmethod
    def loss(x, y, *parameters):
        *hidden, (weight, bias) = zip(parameters[::2], parameters[1::2], strict=True)
        for w, b in hidden:
            x = F.relu(x @ w + b)
        return F.cross_entropy(x @ weight + bias, y)

    def run_of(self, function) -> Run:
        def run() -> None:
            gradients = function(self.x, self.y, *self.parameters)
            for dx in gradients if isinstance(gradients, tuple | list) else [gradients]:
                dx.wait()

        return run

    def batched(self) -> Run:
        return self.run_of(wf.trace(wf.grad(self.loss, argnums=self.numbers)))

    def _examples(self, argnums):
        axes = (0, 0, *[None] * len(self.parameters))
        return wf.trace(wf.vmap(wf.grad(self.loss, argnums=argnums), in_axes=axes))

    def single(self) -> Run:
        return self.run_of(self._examples(self.numbers))

    def mean(self) -> Run:
        examples = self._examples(self.numbers)
        return self.run_of(wf.trace(lambda *data: [dw.mean(axis=0) for dw in examples(*data)]))

    def of_inputs_batched(self) -> Run:
        return self.run_of(wf.trace(wf.grad(self.loss)))

    def of_inputs(self) -> Run:
        return self.run_of(self._examples(0))

    def bytes_of_gradients(self) -> int:
        return sum(w.nbytes for w in self.parameters)


def objective(p, w):
    """Rosenbrock's valley, and a smooth maximum."""
    valley = (100.0 * (p[1:] - p[:-1] ** 2) ** 2 + (1.0 - p[:-1]) ** 2).sum()
    return valley + wf.logsumexp(F.tanh(w @ p))


@cases.add("hessian", "program", precisions=("f32",))
def hessian(variant: str, precision: str) -> Run:
    rng = np.random.default_rng(0)
    p, w = normal(rng, PARAMETERS), normal(rng, 50, PARAMETERS)
    second = wf.trace(wf.hessian(objective))

    def run() -> float:
        for _ in range(CALLS):
            y = second(p, w)
        return float(y.sum())

    return run


@cases.add("per-example", "program", precisions=("f32",))
def per_example(variant: str, precision: str) -> Run:
    return Network().single()


@cases.add("per-example mean", "program", precisions=("f32",))
def per_example_mean(variant: str, precision: str) -> Run:
    return Network().mean()


if __name__ == "__main__":
    serve("weft", wf.__version__, cases)
