"""Cases of gradients that once went wrong."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft.ops.op import Op


def test_gradients_add_up_in_tensors_of_several_elements():
    x = wf.tensor([1.0, 2.0])
    gm = wf.GradManager().attach([x])
    for _ in range(2):
        with gm:
            gm.backward(x * x)
    assert x.grad.numpy().tolist() == [4.0, 8.0]


def test_a_gradient_goes_with_its_tensor():
    from weft.imperative import gradient

    before = len(gradient._gradients)
    x = wf.tensor([1.0, 2.0])
    x.grad = wf.ones(2)
    assert len(gradient._gradients) == before + 1
    del x
    assert len(gradient._gradients) == before


@pytest.mark.parametrize("name", ["all", "any", "argmax", "argsort", "count_nonzero"])
def test_what_has_no_gradient_may_be_called_while_recording(name):
    x = wf.tensor([1.0, 2.0])
    gm = wf.GradManager().attach([x])
    with gm:
        assert not getattr(F, name)(x).requires_grad
        gm.backward(x * 2)
    assert x.grad.numpy().tolist() == [2.0, 2.0]


@pytest.mark.parametrize("shape", [(2, 3, 2), (12,), (3, 4)])
def test_views_of_gradients_that_lie_otherwise(shape):
    """The gradient of a reshaped column-major array is a view of what comes in, which must lie as the plan was told."""
    a = np.arange(12.0).reshape(2, 6)
    w = wf.tensor(np.arange(12.0).reshape(shape))
    columns = wf.permute_dims(wf.tensor(a.T.copy()), (1, 0))
    slope = wf.grad(lambda x: (F.reshape(x, shape) * w).sum())(columns)
    np.testing.assert_array_equal(slope.numpy(), a)


def test_a_gradient_that_is_an_input():
    """It is kept though no kernel reads it."""

    class HalfSquareOfTests(Op):
        def infer(self, x):
            return x.like()

        def decompose(self, x):
            return x * x * 0.5

        def vjp(self, x, dy):
            return F.reshape(x, shape=x.shape)

    half_square = HalfSquareOfTests.make_function()
    slope = wf.grad(lambda x: half_square(x + 0).sum())(wf.tensor([1.0, 2.0]))
    assert slope.numpy().tolist() == [1.0, 2.0]


def test_the_gradient_of_a_view_whose_own_gradient_lies_otherwise():
    """A backward plan that is but a view, made for the strides of the forward result, given transposed memory."""
    x = wf.zeros(6)
    c = wf.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    for view in (
        lambda x: F.reshape(x, (2, 3)),
        lambda x: x.reshape(2, 3),
        lambda x: F.flatten(x.reshape(2, 3, 1), 1),
    ):
        dx = wf.grad(lambda x, view=view: (F.permute_dims(view(x), (1, 0)) * c).sum())(x)
        assert dx.numpy().tolist() == [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]


@pytest.mark.parametrize("pool", [F.max_pool2d, F.avg_pool2d], ids=lambda pool: pool.__name__)
def test_third_order_through_windows_that_overlap(pool):
    """Squares of gradients, as in penalties, need the gradients of the gradients' own windows."""

    def value(x):
        return (pool(x, 3, 2, 1) ** 3).sum()

    def penalty(x):
        return (wf.grad(value)(x) ** 2).sum()

    def second(x):
        return (wf.grad(penalty)(x) ** 2).sum()

    rng = np.random.default_rng(0)
    x, step = rng.standard_normal((1, 2, 5, 4)), rng.standard_normal((1, 2, 5, 4))
    h = 1e-5
    want = (second(wf.tensor(x + h * step)).item() - second(wf.tensor(x - h * step)).item()) / (2 * h)
    got = (wf.grad(second)(wf.tensor(x)).numpy() * step).sum()
    np.testing.assert_allclose(got, want, rtol=1e-5)
