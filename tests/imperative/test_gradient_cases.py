"""Cases of gradients that once went wrong."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft import _core
from weft.base.errors import ShapeError
from weft.ops.op import Op


def test_gradients_add_up_in_tensors_of_several_elements():
    x = wf.tensor([1.0, 2.0])
    gm = wf.GradManager().attach([x])
    for _ in range(2):
        with gm:
            gm.backward(x * x)
    assert x.grad.numpy().tolist() == [4.0, 8.0]


def test_a_gradient_goes_with_its_tensor():
    x, dx = wf.tensor([1.0, 2.0]), wf.ones(2)
    gone = weakref.ref(dx)
    x.grad = dx
    del dx
    assert gone() is x.grad
    del x
    assert gone() is None


def test_setting_a_gradient_lets_the_one_before_go():
    x, dx = wf.tensor([1.0, 2.0]), wf.ones(2)
    gone = weakref.ref(dx)
    x.grad = dx
    x.grad = x.grad
    del dx
    assert gone() is not None
    x.grad = wf.zeros(2)
    assert gone() is None
    x.grad = None
    assert x.grad is None


@pytest.mark.parametrize("length", [1, 2, 3])
def test_gradients_in_a_circle_are_collected(length):
    tensors = [wf.ones(2) for _ in range(length)]
    for x, dx in zip(tensors, [*tensors[1:], tensors[0]], strict=True):
        x.grad = dx
    gone = [weakref.ref(x) for x in tensors]
    del tensors, x, dx
    gc.collect()
    assert [each() for each in gone] == [None] * length


def test_gradients_in_a_circle_through_a_function_are_collected():
    class Keeps(wf.Function):
        def forward(self, x):
            self.x = x
            return x * 2

        def backward(self, dy):
            return dy * 2

    x = wf.ones(2)
    gm = wf.GradManager().attach([x])
    with gm:
        y = Keeps()(x * 1)
        x.grad = y
        gm.release()
    gone = [weakref.ref(x), weakref.ref(y)]
    del x, y, gm
    gc.collect()
    assert [each() for each in gone] == [None, None]


def test_a_long_chain_of_gradients_goes_without_recursion():
    first = x = wf.ones(())
    for _ in range(100_000):
        x.grad = wf.ones(())
        x = x.grad
    last = weakref.ref(x)
    del x, first
    assert last() is None


def test_gradients_are_of_the_tensor_alone():
    x = wf.tensor([[1.0, 2.0]])
    x.grad = wf.ones((1, 2))
    others = {
        "view": x[0],
        "transposed": x.T,
        "alias": x.detach(),
        "copy": x.copy(),
        "copy.copy": copy.copy(x),
        "copy.deepcopy": copy.deepcopy(x),
        "pickled": pickle.loads(pickle.dumps(x)),
    }
    assert {name: y.grad for name, y in others.items()} == dict.fromkeys(others)
    x += 1
    assert x.grad is not None


def test_what_is_no_tensor_is_no_gradient():
    with pytest.raises(ShapeError, match="grad: expected a Tensor of shape"):
        wf.ones(2).grad = 1.0
    with pytest.raises(TypeError, match="grad: expected a Tensor, got"):
        _core.set_gradient(wf.ones(2), 1.0)


def test_an_array_that_was_a_gradient_is_that_array():
    """A traced function that refers to what is a gradient by chance; eager calls read the array that it refers to."""
    x, dx = wf.tensor([1.0, 2.0]), wf.tensor([3.0, 4.0])
    x.grad = dx
    traced = wf.trace(lambda y: y + dx, strict=True)
    for _ in range(3):
        assert traced(wf.zeros(2)).numpy().tolist() == [3.0, 4.0]
        x.grad = wf.zeros(2)


def test_a_traced_function_follows_the_gradient_that_it_reads():
    x = wf.tensor([1.0, 2.0])
    x.grad = wf.tensor([3.0, 4.0])
    traced = wf.trace(lambda y: y + x.grad, strict=True)
    for k in range(3):
        x.grad = wf.full((2,), float(k))
        assert traced(wf.zeros(2)).numpy().tolist() == [float(k)] * 2
    assert len(traced.programs) == 1


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


def test_an_inner_gradient_where_nothing_is_recorded():
    def square(t):
        return (t * t).sum()

    x = wf.tensor([1.0, 2.0])
    with wf.no_grad():
        inner, twice = wf.grad(square)(x), wf.grad(lambda t: wf.grad(square)(t).sum())(x)
        value, _ = wf.value_and_grad(square)(x)
    assert (inner.tolist(), twice.tolist(), value.item()) == ([2, 4], [2, 2], 5)
    assert not inner.requires_grad
    assert not value.requires_grad
    gm = wf.GradManager().attach([x])
    with gm:
        y = wf.recompute(lambda t: wf.grad(square)(t) * t, x)
        gm.backward(y.sum())
    assert y.tolist() == [2, 8]
    assert x.grad.tolist() == [4, 8]
