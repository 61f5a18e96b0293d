"""What transformations see besides calls on arrays: random numbers, symbols' executors, Python operators; and layers
below the gradient.
"""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.symbol as sym
from weft.gradients.transformation import Transformation


class Seen(Transformation):
    """The names of what it sees."""

    def __init__(self):
        self.names, self.kinds = [], []

    def emit(self, op, args):
        result = op(*args)
        self.names.append(op.name)
        self.kinds.append([type(x) for x in args])
        return result


class Below(Seen):
    kind = "gradient"


@pytest.mark.processor("elsewhere normals of float64 differ in the last bit between programs and arrays")
def test_random_functions_are_seen_and_give_the_same_numbers():
    def draw():
        wf.random.seed(5)
        return [
            wf.random.uniform(-1, 1, (3, 2)),
            wf.random.normal(2.0, 0.5, 4, "float64"),
            wf.random.randint(10, shape=5),
            wf.random.permutation(wf.arange(6)),
        ]

    want = draw()
    with Seen() as seen:
        got = draw()
    for a, b in zip(want, got, strict=True):
        assert a.dtype is b.dtype
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert seen.names == ["random_uniform", "random_normal", "random_integers", "random_permutation"]

    class Halves(Transformation):
        def emit(self, op, args):
            return op(*args) * 0 + 0.5 if op.name == "random_uniform" else op(*args)

    with Halves():
        assert wf.random.uniform(shape=2).numpy().tolist() == [0.5, 0.5]


def network():
    h = F.relu(F.linear(sym.var("x"), out_features=3, name="fc"))
    h = F.batch_norm(h, name="bn")
    return F.mean(F.dropout(h, 0.5) * 2)


def bound(grad_req="write"):
    exe = network().simple_bind(x=(4, 2), grad_req=grad_req)
    rng = np.random.default_rng(0)
    for x in exe.arg_arrays:
        x[...] = wf.tensor(rng.normal(size=x.shape).astype("float32"))
    for g in exe.grad_arrays:
        g[...] = 1
    return exe


@pytest.mark.parametrize("grad_req", ["write", "add"])
def test_executors_run_operator_by_operator(grad_req):
    one, two = bound(grad_req), bound(grad_req)
    for is_train in (False, True):
        wf.random.seed(2)
        want = one.forward(is_train=is_train)[0]
        wf.random.seed(2)
        with Seen() as seen:
            got = two.forward(is_train=is_train)[0]
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5)
        assert seen.names == ["linear", "relu", "batch_norm", "dropout", "multiply", "mean"]
        assert seen.kinds[0] == [wf.Tensor] * 3
    one.backward()
    two.backward()  # outside of the layer: of what it saw
    for name, g in one.grad_dict.items():
        np.testing.assert_allclose(two.grad_dict[name].numpy(), g.numpy(), rtol=1e-4, atol=1e-5)
    for name, state in one.aux_dict.items():
        np.testing.assert_allclose(two.aux_dict[name].numpy(), state.numpy(), rtol=1e-5)
    assert not two.outputs[0].requires_grad


def test_what_a_layer_makes_of_a_symbol_counts():
    class Doubled(Transformation):
        def emit(self, op, args):
            return op(*args) * 2 if op.name == "exp" else op(*args)

    exe = F.exp(sym.var("x")).simple_bind(x=(2,))
    exe.arg_dict["x"][...] = 0
    with Doubled():
        assert exe.forward(is_train=True)[0].numpy().tolist() == [2.0, 2.0]
        exe.backward()
    assert exe.grad_dict["x"].numpy().tolist() == [2.0, 2.0]
    assert exe.forward()[0].numpy().tolist() == [1.0, 1.0]


def test_the_first_nan_of_a_symbol_is_found():
    class FindNan(Transformation):
        def emit(self, op, args):
            y = op(*args)
            if F.any(F.isnan(y)):
                raise FloatingPointError(op.name)
            return y

    exe = F.exp(F.log(sym.var("x") - 2)).simple_bind(x=(2,))
    with FindNan(), pytest.raises(FloatingPointError, match="log"):
        exe.forward(x=wf.ones(2))


def test_programs_inside_of_symbols_are_refused():
    y = sym.foreach(lambda x, s: (x * 2, s), sym.var("x"), ())[0]
    exe = y.simple_bind(x=(3, 2))
    with (
        Seen(),
        pytest.raises(
            wf.GraphError, match="loops, branches and gradients inside of a symbol are one program"
        ),
    ):
        exe.forward()
    monitored = F.exp(sym.var("x")).simple_bind(x=(2,))
    monitored.set_monitor_callback(lambda name, x: None)
    with Seen(), pytest.raises(wf.GraphError, match="a monitor and transformations see the same"):
        monitored.forward()


@pytest.mark.processor("operators of Python run there alone")
def test_python_operators_are_seen():
    @wf.operator.register("seen_of_tests")
    class SeenProperty(wf.operator.OperatorProperty):
        def create_operator(self, device):
            class Copy(wf.operator.Operator):
                def forward(self, ctx, in_data, req, out_data, aux):
                    self.assign(out_data[0], req[0], in_data[0].numpy())

                def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux):
                    self.assign(in_grad[0], req[0], 3 * out_grad[0].numpy())

            return Copy()

    for kind in (Seen, Below):
        with kind() as seen:
            slope = wf.grad(lambda x: F.seen_of_tests(x).sum())(wf.ones(2))
        assert slope.numpy().tolist() == [3.0, 3.0]
        assert "seen_of_tests" in seen.names


# Below the gradient.


X, W = np.arange(6.0).reshape(2, 3) / 7, np.arange(12.0).reshape(4, 3) / 11


def loss(x, w):
    return (F.softmax(F.gelu(F.linear(x, w))) ** 2).sum()


def test_a_layer_below_sees_backward():
    x, w = wf.tensor(X), wf.tensor(W)
    want = wf.grad(loss, argnums=(0, 1))(x, w)
    with Seen() as above, Below() as below:
        got = wf.grad(loss, argnums=(0, 1))(x, w)
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-12)
    forward = ["linear", "gelu", "softmax", "pow", "sum"]
    assert above.names == forward
    assert below.names[: len(forward)] == forward
    assert len(below.names) > len(forward) + 4
    assert "matmul" in below.names[len(forward) :]


def test_what_it_makes_of_a_call_has_the_gradient_of_the_call():
    class Rounded(Transformation):
        kind = "gradient"

        def emit(self, op, args):
            return F.round(op(*args)) if op.name == "multiply" else op(*args)

    x = wf.tensor([0.3, 1.2])
    with Rounded():
        value, slope = wf.value_and_grad(lambda x: F.sum(F.multiply(x, x)))(x)
    assert value.item() == 1.0  # round(0.09) + round(1.44)
    assert slope.numpy().tolist() != [0.0, 0.0]  # the round above the gradient would have none


def test_it_sees_calls_without_gradients_and_stacks():
    with Seen() as above, Below() as outer, Below() as inner:
        y = F.exp(wf.ones(2)) + 1
    assert y.shape == (2,)
    assert above.names == inner.names == outer.names == ["exp", "add"]


def test_gradients_of_gradients_below():
    x = wf.tensor([0.5, 2.0])
    second = lambda x: wf.grad(lambda x: wf.grad(lambda x: (x**3 * F.exp(x)).sum())(x).sum())(x)  # noqa: E731
    want = second(x)
    with Below() as seen:
        got = second(x)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)
    assert len(seen.names) > 6


def test_training_below():
    """Random numbers, running statistics and pooling: their gradients are those that are recorded."""

    def step(x, w, mean, var):
        h = F.batch_norm(F.conv2d(x, w, padding=1), None, None, mean, var, training=True)
        h = F.max_pool2d(F.dropout(F.relu(h), 0.5, training=True), 2)
        return (h * h).sum()

    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s).astype("float32") for s in ((2, 3, 6, 6), (4, 3, 3, 3))]

    def run():
        wf.random.seed(4)
        x, w = map(wf.tensor, arrays)
        mean, var = wf.zeros(4), wf.ones(4)
        slopes = wf.grad(step, argnums=(0, 1))(x, w, mean, var)
        return [a.numpy() for a in (*slopes, mean, var)]

    want = run()
    with Below() as seen:
        got = run()
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)
    assert {"conv2d", "batch_norm", "dropout", "max_pool2d"} <= set(seen.names)


def test_grad_manager_and_overwritten_operands():
    w = wf.tensor([2.0, 3.0])
    gm = wf.GradManager().attach([w])
    with Below() as seen, gm:
        gm.backward((w * w).sum())
    assert w.grad.numpy().tolist() == [4.0, 6.0]
    assert seen.names[:2] == ["multiply", "sum"]
    x = wf.tensor([1.0, 2.0])
    with Below(), wf.GradManager().attach([w]) as other:
        y = (w * x).sum()
        x[...] = 7
        with pytest.raises(ValueError, match="multiply: an operand or the result was overwritten"):
            other.backward(y)


def test_it_is_recorded_in_traces():
    def step(x):
        return wf.grad(lambda x: F.sum(F.exp(x) * x))(x)

    x = wf.tensor([0.5, 1.0])
    want = step(x).numpy()
    with Below() as seen:
        traced = wf.trace(step)
        for _ in range(3):
            np.testing.assert_allclose(traced(x).numpy(), want, rtol=1e-6)
    assert "exp" in seen.names
