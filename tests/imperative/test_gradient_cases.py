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


def f64(values):
    return wf.asarray(np.asarray(values, np.float64))


# Functions whose rules are made of |x| and of comparisons: f, f', f'' and f''' at 0, and at -0.0.
AT_ZERO = {
    "abs": (wf.abs, 0, 0, 0),
    "exp(-abs)": (lambda x: wf.exp(-wf.abs(x)), 0, 0, 0),
    "softplus": (F.softplus, 0.5, 0.25, 0),
    "softplus of beta": (lambda x: F.softplus(x, beta=2.0), 0.5, 0.5, 0),
    "log_sigmoid": (F.log_sigmoid, 0.5, -0.25, 0),
    "mish": (F.mish, 0.6, 0.64, -0.096),
    "logits": (lambda x: F.binary_cross_entropy_with_logits(x, f64(0.3)), 0.2, 0.25, 0),
    "huber": (lambda x: F.huber_loss(x, f64(0)), 0, 1, 0),
    "smooth l1": (lambda x: F.smooth_l1_loss(x, f64(0)), 0, 1, 0),
    "hypot": (lambda x: wf.hypot(x, 2.0), 0, 0.5, 0),
    "hypot of the second": (lambda x: wf.hypot(f64(2), x), 0, 0.5, 0),
    "softplus of a user": (lambda x: F.relu(x) + wf.log1p(wf.exp(-wf.abs(x))), 0, 0, 0),  # a sum of kinks
}


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("name", AT_ZERO)
def test_derivatives_at_zero(name, zero):
    f, *want = AT_ZERO[name]
    x, got = f64(zero), []
    for _ in want:
        f = wf.grad(f)
        got.append(f(x).item())
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-14)
    assert wf.hessian(AT_ZERO[name][0])(x).item() == pytest.approx(want[1], abs=1e-14)


def test_nan_passes_through_the_gradient_of_abs():
    assert np.isnan(wf.grad(wf.abs)(wf.tensor(float("nan"))).item())


@pytest.mark.parametrize("x", [[-3, -1, -0.5, 0], [2, 0, 3, 0], [0, 0, 0, 1.5], [0, 0, 0, 0]])
def test_second_derivatives_of_products_with_zeros(x):
    others = [
        [0 if i == j else np.prod([v for k, v in enumerate(x) if k not in (i, j)]) for j in range(4)]
        for i in range(4)
    ]
    np.testing.assert_allclose(wf.hessian(wf.prod)(f64(x)).numpy(), others)
    assert wf.grad(wf.prod)(f64(x)).numpy().tolist() == [np.prod([*x[:k], *x[k + 1 :]]) for k in range(4)]


@pytest.mark.parametrize("axis", [0, 1, (0, 2), (2, 1), (), None])
def test_gradients_of_products_over_axes(axis):
    x = np.random.default_rng(3).integers(-2, 3, (2, 3, 2)).astype(np.float64)
    weights = np.random.default_rng(4).standard_normal(np.prod(x, axis=axis).shape)
    got = wf.grad(lambda x: (wf.prod(x, axis=axis) * f64(weights)).sum())(f64(x)).numpy()
    for place in np.ndindex(*x.shape):  # a product is linear in each factor
        step = np.zeros(x.shape)
        step[place] = 1
        change = ((np.prod(x + step, axis=axis) - np.prod(x, axis=axis)) * weights).sum()
        assert got[place] == pytest.approx(change)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("x", [[-3, 0.5, 0, 2, -1], [0, 2, 3, 0, 5], [0, 0, 1, 2, 3], [1, 2, 3, 4, 5]])
def test_derivatives_of_cumulative_products_with_zeros(x, reverse):
    """A cumulative product is linear in each factor, so differences are exact."""
    weights = np.array([1.0, -2, 3, -4, 5])

    def value(x):
        rows = np.cumprod(x[::-1])[::-1] if reverse else np.cumprod(x)
        return (rows * weights).sum()

    def f(x):
        return (wf.cumulative_prod(x, reverse=reverse) * f64(weights)).sum()

    unit, x = np.eye(5), np.array(x, np.float64)
    slope = [value(x + e) - value(x) for e in unit]
    curvature = [
        [0 if d is e else value(x + d + e) - value(x + d) - value(x + e) + value(x) for d in unit]
        for e in unit
    ]
    curvature *= 1 - np.eye(5)
    np.testing.assert_allclose(wf.grad(f)(f64(x)).numpy(), slope, atol=1e-12)
    np.testing.assert_allclose(wf.hessian(f)(f64(x)).numpy(), curvature, atol=1e-12)


@pytest.mark.parametrize("name", ["prod", "cumulative_prod"])
def test_gradients_of_products_along_dynamic_axes(name):
    def f(x):
        return (getattr(F, name)(x, axis=0) * (x + 3)).sum()

    gradient = wf.trace(wf.grad(f), dynamic={"x": 0})
    for x in ([1, 2, 3], [-1, 0, 2, 3], [2, 0, 0, 1, 5]):
        np.testing.assert_allclose(gradient(f64(x)).numpy(), wf.grad(f)(f64(x)).numpy(), atol=1e-12)
    assert len(gradient.programs) == 1


@pytest.mark.parametrize("f", [wf.std, F.vector_norm], ids=["std", "vector_norm"])
def test_roots_of_nothing_have_gradients_of_zero(f):
    """Of every order: there is none, and 0 is a subgradient."""
    x = wf.zeros(3)
    assert wf.grad(f)(x).numpy().tolist() == [0, 0, 0]
    assert (wf.hessian(f)(x).numpy() == 0).all()


def test_the_mixed_derivative_of_pow_where_the_exponent_is_zero():
    """d/dy d/dx x ** y is 1 / x there."""
    mixed = wf.grad(lambda y: wf.grad(lambda x: x**y)(f64(2)))
    assert mixed(f64(0)).item() == 0.5
    assert wf.grad(lambda x: x ** f64(0))(f64(0)).item() == 0


@pytest.mark.parametrize("f", [wf.multiply, wf.divide, wf.hypot], ids=["multiply", "divide", "hypot"])
def test_second_derivatives_of_operands_of_two_dtypes(f):
    def slope(a, b):
        return (wf.grad(lambda b: (f(a, b) * a).sum())(b) ** 2).sum()

    b = wf.tensor([0.5, 2.0])
    got = wf.grad(slope, 1)(f64([3, 4]), b)
    want = wf.grad(slope, 1)(f64([3, 4]), b.astype("float64"))
    assert got.dtype is b.dtype
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5)


# Assignment with repeated indices: the last update stays, and has the gradient.

REPEATED = {
    "y[[0, 0, 1]] = x": lambda x: put(wf.zeros(3, dtype="float64"), [0, 0, 1], x),
    "y[:, [2, 0, 2]] = x": lambda x: put(wf.ones((2, 3), dtype="float64"), (slice(None), [2, 0, 2]), x),
    "y[[[1], [1]], [0, -3, 2]] = x": lambda x: put(
        wf.ones((2, 3), dtype="float64"), ([[1], [1]], [0, -3, 2]), x
    ),
    "y[[1, 1], :, [0, 2]] = x[:2]": lambda x: put(
        wf.ones((2, 4, 3), dtype="float64"), ([1, 1], slice(None), [0, -3]), x[:1]
    ),
    "put_along_axis": lambda x: wf.put_along_axis(
        wf.zeros(3, dtype="float64"), wf.tensor([0, 0, 1]), x, axis=0
    ),
    "put_along_axis, axis 1": lambda x: wf.put_along_axis(
        wf.zeros((2, 4), dtype="float64"),
        wf.tensor([[0, -4, 1], [3, 3, 3]]),
        wf.broadcast_to(x, (2, 3)),
        axis=1,
    ),
    "add": lambda x: wf.put_along_axis(
        wf.zeros(3, dtype="float64"), wf.tensor([0, 0, 1]), x, axis=0, mode="add"
    ),
}


def put(y, key, x):
    y[key] = x
    return y


@pytest.mark.parametrize("name", REPEATED)
def test_the_gradient_of_updates_at_repeated_indices(name):
    f, x = REPEATED[name], f64([2, 3, 5])
    base = f(x).numpy()
    want = np.stack([f(x + f64(e)).numpy() - base for e in np.eye(3)], -1)  # it is linear
    for derivatives in (
        wf.jacobian(f, mode="reverse"),
        wf.jacobian(f, mode="forward"),
        wf.trace(wf.jacobian(f)),
    ):
        np.testing.assert_array_equal(derivatives(x).numpy(), want)
    weights = f64(np.arange(1.0, base.size + 1).reshape(base.shape))
    slope = np.tensordot(weights.numpy(), want, base.ndim)

    def loss(x):
        return (f(x) * weights).sum()

    for gradient in (wf.grad(loss), wf.trace(wf.grad(loss))):
        assert gradient(x).numpy().tolist() == slope.tolist()
    rows = wf.vmap(wf.grad(loss))(f64([[2, 3, 5], [7, 11, 13]])).numpy()
    assert rows.tolist() == [slope.tolist()] * 2


@pytest.mark.parametrize("index", [wf.argmax, wf.argsort], ids=["argmax", "argsort"])
def test_gradients_through_programs_that_give_indices(index):
    """The indices are residuals of vjp and linearize, and have no gradient."""
    x, v = f64([0.3, -0.8, 1.2]), f64([1, 1, 1])

    def f(x):
        return x * x[index(x)]

    want = wf.grad(lambda x: wf.jvp(f, (x,), (v,))[1].sum())(x).numpy()
    ways = [lambda x: wf.linearize(f, x)[1](v), lambda x: wf.vjp(f, x)[1](v)[0]]
    for way in ways:
        np.testing.assert_allclose(wf.grad(lambda x, way=way: way(x).sum())(x).numpy(), want)
    np.testing.assert_allclose(
        wf.grad(lambda x: wf.vjp(f, x)[0].sum())(x).numpy(), wf.grad(lambda x: f(x).sum())(x).numpy()
    )


@pytest.mark.parametrize(
    "f", [lambda x: F.prod(x, axis=1), lambda x: F.sort(x, axis=1)], ids=["prod", "sort"]
)
def test_gradients_of_gradients_that_have_to_know_sizes(f):
    """Plans for all sizes of a pattern are kept only where the gradients of their gradients hold for all sizes, too."""
    x = wf.tensor(np.random.default_rng(0).normal(size=(3, 4)))
    once = wf.grad(lambda x: (f(x) ** 2).sum())
    twice = wf.grad(lambda x: (once(x) ** 2).sum())
    got = wf.grad(lambda x: (twice(x) ** 2).sum())(x)
    want = wf.trace(wf.grad(lambda x: (twice(x) ** 2).sum()))(x)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-9)
