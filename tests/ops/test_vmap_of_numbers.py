"""vmap over Runtime attributes: numbers that differ from example to example, of every operator that has some."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft.ops import registry
from weft.ops.op import Op

pytestmark = pytest.mark.daily(3)

SHAPES = {"group_norm": (2, 4, 3), "instance_norm": (2, 4, 3), "local_response_norm": (2, 4, 3)}
WITHOUT = {
    "batch_norm",  # writes running statistics
    "cosine_embedding_loss",  # operands of several shapes: tests/ops/test_transformed.py has its samples
    "multi_margin_loss",
    "rotary_embedding",  # offsets are integers
    "scaled_dot_product_attention",
    "sequence_mask",
}
ARGUMENTS = {
    "gaussian_nll_loss": lambda x: (x, F.flip(x), abs(x) + 1),
    "local_response_norm": lambda x: (x, 3),
    "margin_ranking_loss": lambda x: (x, F.flip(x), F.sign(x)),
    "triplet_margin_loss": lambda x: (x, F.flip(x), x * 2),
    "group_norm": lambda x: (x, 2),
    "layer_norm": lambda x: (x, 4),
    "masked_fill": lambda x: (x, x > 0),
    "masked_select": lambda x: (x, F.greater(x, 0.0), 7),
    "pad": lambda x: (x, (1, 2)),
    "rms_norm": lambda x: (x, 4),
}


def operators():
    return [
        name
        for name in sorted(dir(F))
        if (cls := registry.find(name)) is not None
        and cls.public
        and not cls.random
        and any(a.runtime for a in cls.attributes)
        and name not in WITHOUT
    ]


def has_decomposition(name):
    return registry.get(name).decompose is not Op.decompose


def sample(name, examples, dtype):
    """x, and the numbers of each example: exact in every type, and in order, as limits have to be."""
    rng = np.random.default_rng(len(name))
    x = rng.integers(-40, 40, (examples, *SHAPES.get(name, (3, 4)))) / 16
    names = [a.name for a in registry.get(name).attributes if a.runtime]
    numbers = {
        n: wf.tensor((rng.integers(4, 8, examples) / 16 + k / 2).astype("float32"))
        for k, n in enumerate(names)
    }
    if name in ("std", "var"):
        numbers = {"correction": wf.tensor([0.0, 1.0][:examples])}
    return wf.tensor(x).astype(dtype), numbers


def call(name, x, numbers):
    inputs = [i for i in registry.get(name).inputs if not i.optional]
    default = lambda x: (x, F.flip(x)) if len(inputs) == 2 else (x,)  # noqa: E731
    return getattr(F, name)(*ARGUMENTS.get(name, default)(x), **numbers)


def one_by_one(function, x, numbers):
    """The reference: each example by itself, with numbers of Python."""
    return np.stack(
        [
            function(x[k], {n: float(v[k]) for n, v in numbers.items()}).astype("float64").numpy()
            for k in range(x.shape[0])
        ]
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", operators())
def test_values(name, dtype):
    x, numbers = sample(name, 2, dtype)
    y = wf.vmap(lambda x, numbers: call(name, x, numbers))(x, numbers)
    expected = one_by_one(lambda x, numbers: call(name, x, numbers), x, numbers)
    tolerance = {"float32": 1e-5, "float64": 1e-6, "bfloat16": 2e-2}[dtype]
    np.testing.assert_allclose(y.astype("float64").numpy(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", [n for n in operators() if not has_decomposition(n)])
def test_an_input_that_all_examples_share(name):
    x, numbers = sample(name, 2, "float32")
    y = wf.vmap(lambda numbers: call(name, x[0], numbers))(numbers)
    expected = one_by_one(lambda _, numbers: call(name, x[0], numbers), x, numbers)
    np.testing.assert_allclose(y.astype("float64").numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [n for n in operators() if n != "isclose"])
def test_gradients(name):
    """Of vmap, inside of vmap, and twice."""
    x, numbers = sample(name, 2, "float64")

    def loss(x, numbers):
        return (call(name, x, numbers) ** 2).sum()

    def slope(x, numbers):
        return (wf.grad(loss)(x, numbers) ** 2).sum()

    for function in (loss, slope):
        expected = one_by_one(wf.grad(function), x, numbers)
        inside = wf.vmap(wf.grad(function))(x, numbers)
        outside = wf.grad(lambda x: wf.vmap(function)(x, numbers).sum())(x)  # noqa: B023
        np.testing.assert_allclose(inside.numpy(), expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(outside.numpy(), expected, rtol=1e-6, atol=1e-6)


def test_batches_of_batches_and_of_no_example():
    x, slopes = -wf.ones((4, 2, 3)), wf.tensor([0.5, 2.0])
    inner = wf.vmap(lambda x, slope: F.leaky_relu(x, slope))
    assert wf.vmap(inner, in_axes=(0, None))(x, slopes).numpy()[:, 1].tolist() == [[-2.0] * 3] * 4
    outer = wf.vmap(lambda x, slopes: wf.vmap(lambda s: F.leaky_relu(x, s))(slopes), in_axes=(0, None))
    assert outer(x, slopes).shape == (4, 2, 2, 3)
    assert inner(wf.ones((0, 3)), wf.ones(0)).shape == (0, 3)
    assert inner(wf.ones(2), slopes).tolist() == [1.0, 1.0]  # 0-d examples
