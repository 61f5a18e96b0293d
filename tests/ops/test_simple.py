"""simple_op: operators from functions of elements."""

import gc
import weakref

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft import _core
from weft.base.dtype import float32
from weft.graph.graph import graph_of
from weft.ops import get
from weft.ops.types import TensorType


@pytest.fixture(scope="module", autouse=True)
def smooth_l1():
    """Made when the tests run: what is registered while they are collected would be tested as weft's own."""
    global smooth_l1_of_tests

    @wf.simple_op
    def smooth_l1_of_tests(x, *, sigma=1.0):
        """|x| - 1 / (2 s) where |x| > 1 / s, else s x^2 / 2, with s = sigma^2."""
        s = sigma * sigma
        return wf.where(abs(x) > 1 / s, abs(x) - 0.5 / s, 0.5 * s * x * x)


def smooth_l1_in_numpy(x, sigma=1.0):
    s = sigma * sigma
    return np.where(abs(x) > 1 / s, abs(x) - 0.5 / s, 0.5 * s * x * x)


def near(got, want, bound=1e-6):
    np.testing.assert_allclose(got.numpy().astype("float64"), want, rtol=bound, atol=bound)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "uint8"])
@pytest.mark.parametrize("shape", [(7,), (2, 3), (), (0, 4)])
def test_value(dtype, shape):
    values = (np.arange(np.prod(shape, dtype=int)) % 5).reshape(shape)
    got = smooth_l1_of_tests(wf.tensor(values).astype(dtype), sigma=2.0)
    near(got, smooth_l1_in_numpy(values.astype("float64"), 2.0), 1e-2)
    assert got.dtype == (dtype if "float" in dtype else "float32")
    assert got.shape == shape


def test_views_and_broadcasting():
    @wf.simple_op
    def weighted_of_tests(x, y, z, *, scale=2.0):
        return scale * (x - y) * z

    x, y = np.arange(12.0).reshape(3, 4), np.arange(3.0).reshape(3, 1)
    near(weighted_of_tests(wf.tensor(x)[:, ::2], wf.tensor(y), 3), 2 * (x[:, ::2] - y) * 3)
    a, b = wf.tensor([1.0, 2.0]), wf.tensor([[1.0], [2.0], [3.0]])
    dx, dy = wf.grad(lambda a, b: weighted_of_tests(a, b, a).sum(), argnums=(0, 1))(a, b)
    near(dx, 2 * (2 * a.numpy() * 3 - b.numpy().sum()))
    near(dy, np.full((3, 1), -6.0))


def test_gradient_is_derived_to_any_order():
    x = wf.tensor([-2.0, 0.125, 0.5])
    f = lambda x: smooth_l1_of_tests(x, sigma=2.0).sum()  # noqa: E731
    near(wf.grad(f)(x), [-1.0, 0.5, 1.0])
    near(wf.grad(lambda x: wf.grad(f)(x).sum())(x), [0, 4, 0])


def test_new_numbers_need_no_new_plan():
    x = wf.tensor([-2.0, 0.125])
    smooth_l1_of_tests(x, sigma=1.0)
    before = _core.operator_counters()["planner_calls"]
    for k in range(1, 9):
        near(smooth_l1_of_tests(x, sigma=float(k)), smooth_l1_in_numpy(x.numpy(), k))
    assert _core.operator_counters()["planner_calls"] == before


def test_integers_stay_where_the_function_takes_them():
    @wf.simple_op
    def twice_of_tests(x, *, k=2):
        return k * x

    assert twice_of_tests(wf.tensor([1, 2], dtype="int8")).dtype == "int8"
    assert twice_of_tests(wf.tensor([1, 2]), k=0.5).dtype == "float32"

    @wf.simple_op
    def low_bit_of_tests(x):
        return (x & 1) == 1

    got = low_bit_of_tests(wf.tensor([1, 2]))
    assert got.dtype == "bool"
    assert got.numpy().tolist() == [True, False]


def test_attributes_of_every_kind():
    @wf.simple_op
    def kinds_of_tests(x, *, n: int = 1, inverse=False, how="exp", most=None, least: float):
        for _ in range(n):
            x = wf.exp(x) if how == "exp" else wf.tanh(x)
        x = wf.maximum(x, least)
        x = x if most is None else wf.minimum(x, most)
        return 1 / x if inverse else x

    x = wf.tensor([0.0, 1.0])
    near(kinds_of_tests(x, least=0), np.exp(x.numpy()))
    near(kinds_of_tests(x, least=0, n=2, how="tanh"), np.tanh(np.tanh(x.numpy())))
    near(kinds_of_tests(x, least=1.5, most=2, inverse=True), [1 / 1.5, 0.5])
    with pytest.raises(TypeError, match="n must be int, got 'a'"):
        kinds_of_tests(x, least=0, n="a")
    with pytest.raises(TypeError, match="no argument sigma; there are: x, n, inverse, how, most, least"):
        kinds_of_tests(x, least=0, sigma=1)


def test_an_input_may_be_missing():
    @wf.simple_op
    def shifted_of_tests(x, by=None):
        return x if by is None else x + by

    x = wf.tensor([1.0, 2.0])
    near(shifted_of_tests(x), [1, 2])
    near(shifted_of_tests(x, x), [2, 4])
    near(wf.grad(lambda x: shifted_of_tests(x, by=x).sum())(x), [2, 2])


def test_other_operators_inside():
    @wf.simple_op
    def composed_of_tests(x, *, slope=0.5):
        return F.leaky_relu(smooth_l1_of_tests(x, sigma=slope) - 1, negative_slope=slope) + F.gelu(x)

    x = wf.tensor([-3.0, 0.5, 2.0])
    want = F.leaky_relu(smooth_l1_of_tests(x, sigma=0.5) - 1, negative_slope=0.5) + F.gelu(x)
    near(composed_of_tests(x), want.numpy())


def test_on_values_of_graphs():
    graph = graph_of(lambda x: smooth_l1_of_tests(x * 2, sigma=3.0), [TensorType((2, 3), float32)])
    assert repr(graph.outputs[0].type) == "f32[2,3]@cpu:0"
    assert [type(n.op).__name__ for n in graph.nodes if n.op] == ["Multiply", "SmoothL1OfTests"]


class TestGivenGradient:
    def test_of_the_result_alone(self):
        @wf.simple_op
        def straight_of_tests(x):
            return wf.round(x)

        @straight_of_tests.gradient
        def _(dy):
            return dy

        near(wf.grad(lambda x: (straight_of_tests(x) * 3).sum())(wf.tensor([0.3, 7.9])), [3, 3])

    def test_names_decide_what_is_read(self):
        @wf.simple_op
        def logistic_of_tests(x):
            return 1 / (1 + wf.exp(-x))

        @logistic_of_tests.gradient
        def _(dy, y):
            return 7 * dy * y * (1 - y)

        x = wf.tensor([0.0, 1.0])
        y = 1 / (1 + np.exp(-x.numpy()))
        near(wf.grad(lambda x: logistic_of_tests(x).sum())(x), 7 * y * (1 - y), 1e-5)
        near(
            wf.grad(lambda x: wf.grad(lambda x: logistic_of_tests(x).sum())(x).sum())(x),
            7 * (1 - 2 * y) * 7 * y * (1 - y),
            1e-5,
        )
        from weft.ops.node import input_value

        value = input_value(TensorType((2,), float32), "x")
        result, slope = input_value(value.type, "y"), input_value(value.type, "dy")
        (made,) = get("logistic_of_tests")().vjp(value, result, slope)
        assert made.node.op.reads == ("dy", "y")
        assert [v.node.name for v in made.node.inputs] == ["dy", "y"]

    def test_attributes_and_several_inputs(self):
        @wf.simple_op
        def mixed_of_tests(a, b, *, k=2.0, flip=False):
            return k * a * b

        @mixed_of_tests.gradient
        def _(dy, *, a, b, k, flip):
            return (-dy if flip else dy) * b * k, 10 * dy * a * k

        a, b = wf.tensor([1.0, 2.0]), wf.tensor([[3.0]])
        run = lambda a, b: mixed_of_tests(a, b, k=0.5, flip=True).sum()  # noqa: E731
        da, db = wf.grad(run, argnums=(0, 1))(a, b)
        near(da, [-1.5, -1.5])
        near(db, [[15.0]])

    def test_takes_the_place_of_a_derived_one_that_was_used(self):
        @wf.simple_op
        def late_of_tests(x):
            return x * 1

        slope = wf.grad(lambda x: late_of_tests(x).sum())
        near(slope(wf.tensor([1.0])), [1])

        @late_of_tests.gradient
        def _(dy):
            return dy * 5

        near(slope(wf.tensor([1.0])), [5])

    @pytest.mark.parametrize(
        ("rule", "words"),
        [
            (lambda dy, z: dy, "its gradient names z; there are: dy, y, x, k"),
            (lambda dy: None, None),
            (lambda dy: "no", "its gradient must return an expression, got 'no'"),
            (lambda dy: (dy, dy), "its gradient must return an expression, got"),
            (lambda dy, x: dy if x > 0 else -dy, "use wf.where for if"),
            (lambda *a: a[0], "its gradient names a"),
        ],
    )
    def test_errors(self, rule, words):
        @wf.simple_op
        def wrong_of_tests(x, *, k=1.0):
            return x * k

        if words is None:
            wrong_of_tests.gradient(rule)  # no gradient
            near(wf.grad(lambda x: wrong_of_tests(x).sum())(wf.tensor([1.0])), [0])
            return
        with pytest.raises(TypeError, match=words):
            wrong_of_tests.gradient(rule)
        near(wf.grad(lambda x: wrong_of_tests(x).sum())(wf.tensor([1.0])), [1])  # as before


def test_shape():
    @wf.simple_op(shape=lambda x, y: y, inplace=[(1, 0)])
    def onto_of_tests(x, y):
        return x - y

    near(onto_of_tests(wf.tensor([1.0]), wf.ones((2, 2))), np.zeros((2, 2)))
    with pytest.raises(wf.ShapeError, match="onto_of_tests: "):
        onto_of_tests(wf.ones((2, 2)), wf.tensor([1.0]))

    @wf.simple_op(shape=lambda x: (3, *x))
    def thrice_of_tests(x):
        return 2 * x

    x = wf.tensor([1.0, 2.0])
    near(thrice_of_tests(x), np.tile([2.0, 4.0], (3, 1)))
    near(wf.grad(lambda x: thrice_of_tests(x).sum())(x), [6, 6])


def test_registry_method_and_documentation():
    assert "smooth_l1_of_tests" in wf.ops.list()
    assert get("smooth_l1_of_tests") is smooth_l1_of_tests.operator
    assert "s = sigma^2" in F.smooth_l1_of_tests.__doc__
    assert smooth_l1_of_tests.__doc__ == get("smooth_l1_of_tests").__doc__
    x = wf.tensor([-2.0])
    near(x.smooth_l1_of_tests(sigma=1.0), [1.5])
    near(F.smooth_l1_of_tests(x), [1.5])
    assert repr(smooth_l1_of_tests) == "<simple_op smooth_l1_of_tests(x, *, sigma=1.0)>"


def test_made_again():
    def make(k):
        def again_of_tests(x):
            return x * k

        return wf.simple_op(again_of_tests)

    x = wf.tensor([1.0])
    for k in (2, 3):
        f = make(k)
        near(f(x), [k])
        near(x.again_of_tests(), [k])
        near(F.again_of_tests(x), [k])
        near(wf.again_of_tests(x), [k])


def named(function, name="wrong_of_tests"):
    function.__name__ = name
    return function


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: None, "wrong_of_tests: must return an expression of its elements, got None"),
        (lambda x: x if x > 1 else -x, "hint: .*use wf.where for if"),
        (lambda x: max(x, 1), "wf.minimum and wf.maximum for min and max"),
        (lambda x: __import__("math").exp(x), "wf.exp, wf.tanh, ... for functions of the module math"),
        (lambda x: wf.sum(x), "sum: takes whole arrays"),
        (lambda x, k=2: x, r"k has a default; attributes come after \*"),
        (lambda *x: x, r"\*x: the number of inputs must be known"),
        (lambda: 1, "takes no elements"),
        (lambda x, *, name="a": x, "an attribute cannot be called name"),
        (lambda x, *, sizes=[1]: x, "sizes must be a number, a bool, a str or a tuple of numbers"),
    ],
)
def test_errors(function, words):
    with pytest.raises(TypeError, match=words):
        wf.simple_op(named(function))


def test_as_many_inputs_as_a_kernel_reads():
    def adding(count):
        names = [f"x{k}" for k in range(count)]
        scope = {"__name__": __name__}
        exec(
            f"def many_of_tests({', '.join(names)}): return {' + '.join(f'{x} * {x}' for x in names)}", scope
        )
        return wf.simple_op(scope["many_of_tests"])

    xs = [wf.tensor([float(k)]) for k in range(21)]
    f = adding(21)
    near(f(*xs), [sum(k * k for k in range(21))])
    near(wf.grad(lambda x: f(*xs[:-1], x).sum())(xs[-1]), [40.0])
    with pytest.raises(TypeError, match="many_of_tests: has 22 inputs; one kernel reads at most 21 arrays"):
        adding(22)


def test_errors_of_names_and_options():
    with pytest.raises(
        TypeError, match=r"operator .relu.: weft\.ops\.families\.activation has one of that name"
    ):
        wf.simple_op(named(lambda x: x, "relu"))
    with pytest.raises(TypeError, match="expected a function with a name"):
        wf.simple_op(lambda x: x)
    with pytest.raises(ValueError, match=r"no resource 'randoms'.*there are: temp_space, random"):
        wf.simple_op(resources=["randoms"])(named(lambda x: x))
    with pytest.raises(TypeError, match=r"the last input is the random number, as in f\(x, u\)"):
        wf.simple_op(resources=["random"])(named(lambda x: x))
    with pytest.raises(ValueError, match="shape must be a function or 'equal', got 'same'"):
        wf.simple_op(shape="same")(named(lambda x: x))
    with pytest.raises(ValueError, match="reduce must be one of sum, mean, prod, max, min, got 'std'"):
        wf.simple_op(reduce="std")(named(lambda x: x))
    with pytest.raises(ValueError, match="axis and keepdims go with reduce"):
        wf.simple_op(axis=0)(named(lambda x: x))
    with pytest.raises(ValueError, match=r"inplace has \(input, 0\) pairs"):
        wf.simple_op(inplace=[(1, 0)])(named(lambda x: x))


def test_made_again_the_earlier_one_is_released():
    def make():
        @wf.simple_op
        def made_again(x):
            return x * 2 + wf.exp(x)

        return made_again

    x, classes = wf.ones(4), []
    for _ in range(3):
        f = make()
        f(x).wait()
        x.made_again().wait()
        wf.grad(lambda x, f=f: f(x).sum())(x).wait()
        classes.append(weakref.ref(get("made_again")))
        del f
    for _ in range(2):  # what the collector finds is let go of by the next call
        wf.waitall()
        (x + 1).wait()
        gc.collect()
    assert [alive() is None for alive in classes] == [True, True, False]
