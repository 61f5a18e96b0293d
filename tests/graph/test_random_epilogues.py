"""Products and convolutions with random steps behind them: right, and never oneDNN's reference code.

Everyday tests take a few, others every day. With --full, ten minutes of them; WEFT_TEST_SEED fixes which,
WEFT_TEST_SECONDS how long.
"""

import dataclasses

import numpy as np
import pytest
from tests.fuzzing import seeds, seeds_for_a_while, shrunk

from weft.base.dtype import as_dtype
from weft.graph.graph import graph_of
from weft.ops import functions as F
from weft.ops.types import TensorType

from .test_epilogue import PRODUCTS, STEPS, both, broadcast_shapes, kernels_of

JOINED = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "subtract from", "divide by")
DTYPES = ("float32", "float32", "float32", "bfloat16")


@dataclasses.dataclass
class Epilogue:
    """A product's name, and steps behind it: (operator, shape of the other operand, or None)."""

    product: str
    dtype: str
    steps: list

    @classmethod
    def drawn(cls, seed):
        rng = np.random.default_rng(seed)
        product, dtype = (str(rng.choice(each)) for each in (list(PRODUCTS), DTYPES))
        shapes = list(dict.fromkeys(broadcast_shapes(result_of(product))))
        steps = [
            (str(rng.choice(JOINED)), shapes[int(rng.integers(len(shapes)))])
            if rng.random() < 0.6
            else (str(rng.choice(STEPS)), None)
            for _ in range(int(rng.integers(1, 6)))
        ]
        return cls(product, dtype, steps)

    @property
    def shapes(self):
        """Those of all operands."""
        return [*PRODUCTS[self.product][1], *(shape for _, shape in self.steps if shape is not None)]

    def __call__(self, x, w, *others):
        y, remaining = PRODUCTS[self.product][0](x, w), iter(others)
        for name, shape in self.steps:
            if shape is None:
                y = getattr(F, name)(F.tanh(y))  # within the domain of each
                continue
            z = next(remaining)
            match name:
                case "subtract from":
                    y = z - y
                case "divide by":
                    y = z / (F.abs(y) + 1)
                case "divide":
                    y = y / (F.abs(z) + 1)
                case _:
                    y = getattr(F, name)(y, z)
        return y

    def smaller(self):
        for k in range(len(self.steps)):
            yield dataclasses.replace(self, steps=self.steps[:k] + self.steps[k + 1 :])
        if self.dtype != "float32":
            yield dataclasses.replace(self, dtype="float32")


def result_of(product):
    function, shapes = PRODUCTS[product]
    return graph_of(function, [TensorType(s, as_dtype("float32")) for s in shapes]).outputs[0].shape


def problem(epilogue):
    """What is wrong, or None."""
    try:
        steps, kernels = kernels_of(epilogue, epilogue.shapes, epilogue.dtype)
        if any(kernel.is_reference for kernel in kernels):
            return f"reference code: {steps}"
        both(epilogue, epilogue.shapes, epilogue.dtype, kernels=None)
    except (Exception, AssertionError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def fuzz(seed):
    epilogue = Epilogue.drawn(seed)
    if (fact := problem(epilogue)) is not None:
        small = shrunk(epilogue, Epilogue.smaller, lambda e: problem(e) is not None)
        raise AssertionError(f"seed {seed}: {problem(small)}\n{small}\nat first: {fact}")


def test_random_steps_behind_products():
    for seed in seeds(0, 6):
        fuzz(seed)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_random_steps_behind_products_for_ten_minutes():
    for seed in seeds_for_a_while(1000):
        fuzz(seed)


def test_the_generator_draws_every_product_and_step():
    drawn = [Epilogue.drawn(seed) for seed in range(400)]
    assert {e.product for e in drawn} == set(PRODUCTS)
    assert {name for e in drawn for name, _ in e.steps} == {*JOINED, *STEPS}
