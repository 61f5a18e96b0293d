"""JAX's side of benchmarks/transforms.py, compiled by jit."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from _protocol import Cases, Run, serve

BATCH = 256
SIZES = (784, 256, 128, 10)
PARAMETERS = 100
CALLS = 20
cases = Cases()


def normal(rng, *shape, scale=1.0):
    return jnp.asarray((rng.standard_normal(shape) * scale).astype(np.float32))


def objective(p, w):
    valley = (100.0 * (p[1:] - p[:-1] ** 2) ** 2 + (1.0 - p[:-1]) ** 2).sum()
    return valley + jax.nn.logsumexp(jnp.tanh(w @ p))


@cases.add("hessian", "jit", precisions=("f32",))
def hessian(variant: str, precision: str) -> Run:
    rng = np.random.default_rng(0)
    p, w = normal(rng, PARAMETERS), normal(rng, 50, PARAMETERS)
    second = jax.jit(jax.hessian(objective))

    def run() -> float:
        for _ in range(CALLS):
            y = second(p, w)
        return float(y.sum())

    return run


def loss(x, y, *parameters):
    *hidden, (weight, bias) = zip(parameters[::2], parameters[1::2], strict=True)
    for w, b in hidden:
        x = jax.nn.relu(x @ w + b)
    return -jax.nn.log_softmax(x @ weight + bias)[y]


def examples(reduce) -> Run:
    rng = np.random.default_rng(0)
    parameters = []
    for n, m in itertools.pairwise(SIZES):
        parameters += [normal(rng, n, m, scale=0.05), jnp.zeros(m)]
    x = normal(rng, BATCH, SIZES[0])
    y = jnp.asarray(rng.integers(0, SIZES[-1], BATCH))
    numbers = tuple(range(2, 2 + len(parameters)))
    every = jax.vmap(jax.grad(loss, argnums=numbers), in_axes=(0, 0, *[None] * len(parameters)))
    compiled = jax.jit(lambda *data: [reduce(dw) for dw in every(*data)])

    def run() -> None:
        jax.block_until_ready(compiled(x, y, *parameters))

    return run


@cases.add("per-example", "jit", precisions=("f32",))
def per_example(variant: str, precision: str) -> Run:
    return examples(lambda dw: dw)


@cases.add("per-example mean", "jit", precisions=("f32",))
def per_example_mean(variant: str, precision: str) -> Run:
    return examples(lambda dw: dw.mean(axis=0))


if __name__ == "__main__":
    serve("JAX", jax.__version__, cases)
