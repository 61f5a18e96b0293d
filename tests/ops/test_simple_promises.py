"""What simple_op promises beyond elements: reductions, random numbers, tuples, positional scalars, equal shapes."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.symbol as sym


@pytest.fixture(scope="module", autouse=True)
def operators():
    global distance_of_tests, noisy_of_tests, poly_of_tests, scaled_of_tests

    @wf.simple_op(reduce="mean", shape="equal")
    def distance_of_tests(a, b, *, power=2.0):
        return abs(a - b) ** power

    @wf.simple_op(resources=["random"])
    def noisy_of_tests(x, u, *, scale=1.0):
        return x * 2 + scale * u

    @wf.simple_op
    def poly_of_tests(x, *, coefficients=(1.0, 0.5), degree: int = 1):
        y = x * 0
        for c in coefficients:
            y = y * x + c
        return y**degree

    @wf.simple_op
    def scaled_of_tests(x, *, sigma=1.0, flip=False):
        return -x * sigma if flip else x * sigma


A, B = np.arange(6.0).reshape(2, 3), np.ones((2, 3))


def everywhere(function, *arrays):
    """What a function gives eagerly, traced, and as a symbol."""
    tensors = [wf.tensor(a) for a in arrays]
    yield function(*tensors)
    traced = wf.trace(function)
    for _ in range(2):
        yield traced(*tensors)
    names = [f"x{k}" for k in range(len(arrays))]
    symbol = function(*map(sym.var, names))
    yield symbol.eval(**dict(zip(names, tensors, strict=True)))[0]
    yield sym.from_json(symbol.to_json()).eval(**dict(zip(names, tensors, strict=True)))[0]


def test_reductions():
    for y in everywhere(distance_of_tests, A, B):
        assert y.shape == ()
        assert y.item() == pytest.approx(((A - B) ** 2).mean())
    slope = wf.grad(lambda a: distance_of_tests(a, wf.tensor(B), power=1.0))(wf.tensor(A))
    np.testing.assert_allclose(slope.numpy(), np.sign(A - B) / 6)

    @wf.simple_op(reduce="max", axis=1, keepdims=True)
    def highest_of_tests(x, *, scale=1.0):
        return x * scale

    for y in everywhere(lambda x: highest_of_tests(x, scale=2.0), A):
        np.testing.assert_array_equal(y.numpy(), 2 * A.max(axis=1, keepdims=True))
    assert highest_of_tests(wf.tensor(A)).dtype == "float64"


def test_a_loss_of_shape_1():
    @wf.simple_op(shape=lambda x, keep: (1,) if keep else (), reduce="sum")
    def loss_of_tests(x, *, keep: bool = True):
        return x * x

    for y in everywhere(loss_of_tests, A):
        assert (y.shape, y.numpy().sum()) == ((1,), (A * A).sum())
    assert loss_of_tests(wf.tensor(A), keep=False).shape == ()
    np.testing.assert_allclose(wf.grad(loss_of_tests)(wf.tensor(A)).numpy(), 2 * A)

    @wf.simple_op(shape=lambda x: x[-1:], reduce="sum")
    def columns_of_tests(x):
        return x + 1

    np.testing.assert_array_equal(columns_of_tests(wf.tensor(A)).numpy(), (A + 1).sum(axis=0))

    @wf.simple_op(shape=lambda x: (5,), reduce="sum")
    def misfit_of_tests(x):
        return x + 1

    with pytest.raises(wf.ShapeError, match=r"elements of shape \(2, 3\) do not reduce to the shape \(5,\)"):
        misfit_of_tests(wf.tensor(A))


def test_a_given_gradient_of_what_is_reduced():
    @wf.simple_op(reduce="sum")
    def clipped_sum_of_tests(x):
        return wf.minimum(x, 1.0)

    @clipped_sum_of_tests.gradient(inplace=[("dy", "x")])
    def _(dy):
        return dy * 3

    np.testing.assert_array_equal(wf.grad(clipped_sum_of_tests)(wf.tensor(A)).numpy(), np.full((2, 3), 3.0))
    with pytest.raises(ValueError, match=r"inplace has \(what the gradient reads, input\) pairs"):
        clipped_sum_of_tests.gradient(inplace=[("y", "x")])(lambda dy: dy)


def test_random_numbers():
    x = wf.zeros((50, 40))
    wf.random.seed(3)
    one, two = noisy_of_tests(x), noisy_of_tests(x, scale=2.0)
    wf.random.seed(3)
    np.testing.assert_array_equal(noisy_of_tests(x).numpy(), one.numpy())
    values = one.numpy()
    assert 0 <= values.min() < 0.05
    assert 0.95 < values.max() < 1
    assert abs(values.mean() - 0.5) < 0.05
    assert two.numpy().max() > 1.5
    assert np.unique(values).size > 1900
    traced = wf.trace(lambda x: noisy_of_tests(x), strict=True)
    drawn = []
    for _ in range(3):
        wf.random.seed(3)
        drawn.append(traced(x).numpy())
    symbol = noisy_of_tests(sym.var("x"))
    wf.random.seed(3)
    drawn.append(symbol.eval(x=x)[0].numpy())
    for y in drawn:
        np.testing.assert_array_equal(y, values)
    assert not (traced(x).numpy() == traced(x).numpy()).all()


def test_gradients_of_random_operators_know_no_numbers():
    x = wf.tensor(A)
    np.testing.assert_array_equal(wf.grad(lambda x: noisy_of_tests(x).sum())(x).numpy(), np.full((2, 3), 2.0))

    @wf.simple_op(resources=["random"])
    def dropped_of_tests(x, u, *, p=0.5):
        return wf.where(u < p, 0.0, x / (1 - p))

    ones = wf.ones((30, 30))
    wf.random.seed(1)
    value, slope = wf.value_and_grad(lambda x: (dropped_of_tests(x) * x).sum())(ones)
    assert slope.numpy().sum() == 2 * value.item()  # the gradient is of the very mask that was drawn
    assert set(np.unique(slope.numpy())) == {0.0, 4.0}


def test_tuples_and_positional_attributes():
    x = wf.tensor([1.0, 2.0])
    assert poly_of_tests(x).numpy().tolist() == [1.5, 2.5]
    assert poly_of_tests(x, coefficients=(1, 2, 3)).numpy().tolist() == [6.0, 11.0]
    assert poly_of_tests(x, (1.0, 0.0), 2).numpy().tolist() == [1.0, 4.0]
    assert scaled_of_tests(x, 3.0).numpy().tolist() == [3.0, 6.0]
    assert scaled_of_tests(x, 3.0, True).numpy().tolist() == [-3.0, -6.0]
    assert scaled_of_tests(sym.var("x"), 3.0).eval(x=x)[0].numpy().tolist() == [3.0, 6.0]
    assert wf.grad(lambda x: scaled_of_tests(x, 3.0).sum())(x).numpy().tolist() == [3.0, 3.0]

    @wf.simple_op(shape=lambda x, sizes: (*sizes, *x))
    def tiled_of_tests(x, *, sizes: "tuple[int, ...]"):
        return x * 1

    assert tiled_of_tests(x, (3, 2)).shape == (3, 2, 2)
    assert tiled_of_tests(x, sizes=[4]).shape == (4, 2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: scaled_of_tests(x, sigma="much"), "scaled_of_tests: sigma must be float, got 'much'"),
        (lambda x: scaled_of_tests(x, "much"), "scaled_of_tests: sigma must be float, got 'much'"),
        (lambda x: scaled_of_tests(x, [1.0]), r"scaled_of_tests: sigma must be float, got \[1.0\]"),
        (lambda x: scaled_of_tests(x, None), "scaled_of_tests: sigma must be float, got None"),
        (lambda x: scaled_of_tests(x, flip=1), "scaled_of_tests: flip must be bool, got 1"),
        (lambda x: poly_of_tests(x, coefficients=3.0), r"coefficients must be tuple\[float, ...\], got 3.0"),
        (lambda x: poly_of_tests(x, coefficients=("a",)), r"coefficients must be tuple\[float, ...\]"),
        (lambda x: poly_of_tests(x, degree=1.5), "poly_of_tests: degree must be int, got 1.5"),
        (lambda x: distance_of_tests(x, x, power="a"), "distance_of_tests: power must be float, got 'a'"),
    ],
)
def test_attributes_of_a_wrong_type(call, words):
    with pytest.raises(TypeError, match=words):
        call(wf.tensor(A))


def test_equal_shapes():
    with pytest.raises(wf.ShapeError, match=r"a and b must have one shape: a is .*2,3.*, b is .*3"):
        distance_of_tests(wf.tensor(A), wf.ones(3))
    assert distance_of_tests(wf.tensor(A), 1.0).shape == ()  # a number has every shape

    @wf.simple_op(shape="equal")
    def difference_of_tests(a, b):
        return a - b

    with pytest.raises(wf.ShapeError, match="difference_of_tests: "):
        difference_of_tests(wf.tensor(A), wf.ones((2, 1)))
    y = difference_of_tests(sym.var("a"), sym.var("b"))
    assert y.infer_shape(a=(2, 3)) == ([(2, 3), (2, 3)], [(2, 3)], [])
    with pytest.raises(wf.ShapeError, match="one shape"):
        y.infer_shape(a=(2, 3), b=(3,))


def test_listed_once():
    assert "distance_of_tests" in wf.ops.list()
    assert "distance_of_tests_elements" not in dir(F)
    assert F.distance_of_tests(wf.tensor(A), wf.tensor(B)).shape == ()
