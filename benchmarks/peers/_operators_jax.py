"""JAX's side of benchmarks/ops.py, compiled by jit."""

import jax
import jax.numpy as jnp
from _operators import arrays_of, function_of, serve
from jax import lax


def prepare(operator, size, what, way):
    arrays = arrays_of(operator, size)
    inputs = [jnp.asarray(a) for a in arrays]
    function = function_of(operator, "jax", {"jax": jax, "jnp": jnp, "lax": lax}, arrays)
    if what == "gradient":
        forward, count = function, operator.differentiable

        def function(dy, *data):
            _, pull = jax.vjp(lambda *x: forward(*x, *data[count:]), *data[:count])
            return pull(dy)

        inputs.insert(0, jnp.ones_like(forward(*inputs)))

    compiled = jax.jit(function)
    return lambda: jax.block_until_ready(compiled(*inputs))


if __name__ == "__main__":
    serve(prepare)
