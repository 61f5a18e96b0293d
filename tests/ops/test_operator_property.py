"""wf.operator: OperatorProperty and Operator."""

import contextlib
import gc
import weakref

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.symbol as sym
from weft.base.dtype import float32
from weft.ops.node import input_value
from weft.ops.op import op
from weft.ops.types import TensorType
from weft.python_op import Form, PythonOp


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    with contextlib.suppress(wf.EngineError):
        wf.waitall()


class Recorder(wf.operator.Operator):
    """x @ w + running: remembers what it was given."""

    def __init__(self, log, scale):
        self.log, self.scale = log, scale

    def forward(self, ctx, in_data, req, out_data, aux):
        self.log.append(("forward", ctx.is_train, list(req), ctx.run_context.operation, len(ctx.requested)))
        x, w = (a.numpy() for a in in_data)
        self.assign(out_data[0], req[0], self.scale * x @ w)
        self.assign(out_data[1], req[1], x.sum(axis=0))
        aux[0].numpy()[...] += 1

    def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux):
        known = [[a is not None for a in each] for each in (out_grad, in_data, out_data)]
        self.log.append(("backward", ctx.is_train, list(req), known))
        dy, (x, w) = out_grad[0].numpy(), (a.numpy() for a in in_data)
        if req[0] != "null":
            self.assign(in_grad[0], req[0], self.scale * dy @ w.T)
        if req[1] != "null":
            self.assign(in_grad[1], req[1], self.scale * x.T @ dy)


LOG = []


class ProductProperty(wf.operator.OperatorProperty):
    """A scaled product that counts its calls."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def list_arguments(self):
        return ["x", "w"]

    def list_outputs(self):
        return ["y", "total"]

    def list_auxiliary_states(self):
        return ["calls"]

    def num_visible_outputs(self):
        return 1

    def infer_shape(self, in_shapes):
        (n, k), w = in_shapes
        w = w or (k, None)
        if w[0] != k:
            raise wf.ShapeError(f"product: inner sizes differ, {k} != {w[0]}")
        return [(n, k), w], [(n, w[1]), (k,)], [()]

    def forward_resource(self, in_shapes):
        return ["temp_space", "random"]

    def declare_backward_dependency(self, out_grad, in_data, out_data):
        return [out_grad[0], *in_data]

    def create_operator(self, device):
        return Recorder(LOG, self.scale)


@pytest.fixture(scope="module", autouse=True)
def registered():
    """When the tests run: what is registered while they are collected would be tested as weft's own."""
    wf.operator.register("product_of_tests")(ProductProperty)


@pytest.fixture
def log():
    LOG.clear()
    return LOG


def operands():
    x, w = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    return wf.tensor(x), wf.tensor(w), wf.zeros((), dtype="float64")


def test_value(log):
    x, w, calls = operands()
    y = wf.operator.product_of_tests(x, w, calls, scale=2.0)
    np.testing.assert_allclose(y.numpy(), 2 * x.numpy() @ w.numpy())
    assert calls.item() == 1
    assert log == [("forward", False, ["write", "write"], "product_of_tests", 2)]
    np.testing.assert_allclose(F.product_of_tests(x, w=w, calls=calls).numpy(), x.numpy() @ w.numpy())
    assert calls.item() == 2


def test_gradient(log):
    x, w, calls = operands()
    run = lambda x, w: (F.product_of_tests(x, w, calls, scale=2.0) * 3).sum()  # noqa: E731
    dx, dw = wf.grad(run, argnums=(0, 1))(x, w)
    ones = np.full((2, 4), 3.0)
    np.testing.assert_allclose(dx.numpy(), 2 * ones @ w.numpy().T)
    np.testing.assert_allclose(dw.numpy(), 2 * x.numpy().T @ ones)
    dw = wf.grad(run, argnums=1)(x, w)
    np.testing.assert_allclose(dw.numpy(), 2 * x.numpy().T @ ones)
    wf.waitall()
    known = [[True, False], [True, True], [False, False]]
    assert [entry for entry in log if entry[0] == "backward"] == [
        ("backward", True, ["write", "write"], known),
        ("backward", True, ["null", "write"], known),
    ]
    assert all(entry[1] for entry in log)


def test_with_a_grad_manager_and_around_other_operators(log):
    x, w, calls = operands()
    gm = wf.GradManager().attach([w])
    with gm:
        gm.backward(wf.exp(F.product_of_tests(wf.sin(x), w * 0.1, calls)).sum())
    s = np.sin(x.numpy())
    np.testing.assert_allclose(w.grad.numpy(), 0.1 * s.T @ np.exp(s @ w.numpy() * 0.1))


def test_second_gradient_is_refused_not_wrong(log):
    x, w, calls = operands()
    slope = wf.grad(lambda x: (F.product_of_tests(x, w, calls) ** 2).sum())
    with pytest.raises(NotImplementedError, match="product_of_tests: its gradient is a Python function"):
        wf.grad(lambda x: slope(x).sum())(x)


class Squared(wf.operator.Operator):
    def forward(self, ctx, in_data, req, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0].numpy() ** 2)

    def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux):
        noise = 1e-3 * ctx.requested[0].random(in_data[0].shape)
        self.assign(in_grad[0], req[0], 2 * out_grad[0].numpy() * in_data[0].numpy() + noise)


class SquaredProperty(wf.operator.OperatorProperty):
    def backward_resource(self, in_shapes):
        assert in_shapes == [(3,)]
        return ["random"]

    def create_operator(self, device):
        return Squared()


def test_gradients_draw_the_same_random_numbers_everywhere():
    wf.operator.register("squared_of_tests")(SquaredProperty)
    x, y = wf.tensor([1.0, 2.0, 3.0]), F.squared_of_tests(sym.var("x"))
    slope = wf.grad(lambda x: F.squared_of_tests(x).sum())
    found = []
    for each in (slope, wf.trace(slope, strict=True), lambda x: y.grad("x").eval(x=x)[0]):
        wf.random.seed(5)
        found.append([each(x).numpy().tolist() for _ in range(3)])
    assert found[0] == found[1] == found[2]
    assert found[0][0] != found[0][1]
    np.testing.assert_allclose(found[0][0], [2, 4, 6], atol=2e-3)


def test_a_gradient_that_reads_what_depends_on_the_input_is_no_constant():
    wf.operator.register("squared_of_tests")(SquaredProperty)
    slope = wf.grad(lambda x: F.squared_of_tests(x).sum())
    for each in (slope, wf.trace(slope)):
        with pytest.raises(NotImplementedError, match="squared_of_tests: its gradient is a Python function"):
            wf.grad(lambda x, each=each: each(x).sum())(wf.ones(3))


def test_an_operator_of_ones_own_that_calls_python():
    """The same without OperatorProperty."""

    class Sorting:
        def forward(self, context, x, req, y, states):
            self.order = np.argsort(x[0].numpy())
            y[0].numpy()[...] = x[0].numpy()[self.order]

        def backward(self, context, dy, x, y, req, dx, states):
            dx[0].numpy()[self.order] = dy[0].numpy()

    @op
    class SortedOfTests(PythonOp):
        """A row in order, or backwards."""

        backwards: bool = False

        def form(self):
            return Form(("x",), (), 1, 1)

        def shapes(self, known):
            return known, known

        def reads(self, numbers):
            return numbers[:1]

        def make_worker(self, device):
            return Sorting()

    x, weight = wf.tensor([3.0, 1.0, 2.0]), wf.tensor([1.0, 10.0, 100.0])

    def loss(x):
        return (F.sorted_of_tests(x=x, backwards=False) * weight).sum()

    for f in (wf.grad(loss), wf.trace(wf.grad(loss), strict=True)):
        assert [f(x).numpy().tolist() for _ in range(2)] == [[100.0, 1.0, 10.0]] * 2
    made = F.sorted_of_tests(sym.var("x"), name="rows")
    assert (made.list_outputs(), made.infer_shape(x=(3,))[1]) == (["rows_output"], [(3,)])
    assert sym.from_json(made.to_json()).eval(x=x)[0].numpy().tolist() == [1.0, 2.0, 3.0]


def test_what_is_not_declared_is_not_kept():
    kept = []

    class Scale(wf.operator.Operator):
        def forward(self, ctx, in_data, req, out_data, aux):
            self.assign(out_data[0], req[0], in_data[0].numpy() * 2)

        def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux):
            kept.extend([in_data[0], out_data[0]])
            self.assign(in_grad[0], req[0], out_grad[0].numpy() * 2)

    @wf.operator.register("kept_of_tests")
    class ScaleProperty(wf.operator.OperatorProperty):
        def declare_backward_dependency(self, out_grad, in_data, out_data):
            return out_grad

        def create_operator(self, device):
            return Scale()

    x = wf.tensor([1.0])
    gm = wf.GradManager().attach([x])
    with gm:
        y = F.kept_of_tests(x * wf.ones(3))
        gm.backward(y.sum())
    assert x.grad.item() == 6
    assert kept == [None, None]


def test_it_runs_on_the_engine_and_its_results_are_freed(log):
    import threading

    gate, threads = threading.Event(), []

    class Slow(wf.operator.Operator):
        def forward(self, ctx, in_data, req, out_data, aux):
            gate.wait(30)
            threads.append(threading.current_thread())
            space = ctx.requested[0](in_data[0].shape, dtype=in_data[0].dtype)
            space[...] = in_data[0].numpy() + ctx.requested[1].integers(5, 6)
            self.assign(out_data[0], req[0], space)

    @wf.operator.register("slow_of_tests")
    class SlowProperty(wf.operator.OperatorProperty):
        def forward_resource(self, in_shapes):
            return ["temp_space", "random"]

        def create_operator(self, device):
            return Slow()

    from weft.engine import default_engine

    if default_engine().kind == "naive":
        gate.set()
    x = wf.tensor([1.0, 2.0])
    y = F.slow_of_tests(x) + 1  # returns though the kernel waits
    x[...] = 7  # after it, as in the program
    gate.set()
    assert y.numpy().tolist() == [7.0, 8.0]
    assert len(threads) == 1
    seen = weakref.ref(y)
    del y
    gc.collect()
    assert seen() is None


def test_random_numbers_are_the_seeds():
    class Noise(wf.operator.Operator):
        def forward(self, ctx, in_data, req, out_data, aux):
            self.assign(out_data[0], req[0], ctx.requested[0].random(in_data[0].shape))

    @wf.operator.register("noise_of_tests")
    class NoiseProperty(wf.operator.OperatorProperty):
        def forward_resource(self, in_shapes):
            return ["random"]

        def create_operator(self, device):
            return Noise()

    def twice():
        wf.random.seed(3)
        return [F.noise_of_tests(wf.ones(4)).numpy().tolist() for _ in range(2)]

    a, b = twice(), twice()
    assert a == b
    assert a[0] != a[1]


def test_a_failing_kernel_poisons_what_it_would_have_written():
    @wf.operator.register("failing_of_tests")
    class FailingProperty(wf.operator.OperatorProperty):
        def create_operator(self, device):
            return wf.operator.Operator()

    y = F.failing_of_tests(wf.ones(2)) * 2
    with pytest.raises(wf.EngineError, match="failing_of_tests") as caught:
        y.numpy()
    assert caught.value.operation == "failing_of_tests"
    assert isinstance(caught.value.__cause__, NotImplementedError)


def test_registered_as_any_operator():
    assert "product_of_tests" in wf.ops.list()
    cls = wf.ops.get("product_of_tests")
    assert issubclass(cls, wf.ops.Op)
    assert F.product_of_tests.__doc__ == "A scaled product that counts its calls."
    types = [TensorType(shape, float32) for shape in ((2, 3), (3, 4), ())]
    assert repr(cls(params=(("scale", 2.0),)).infer(*types)[0]) == "f32[2,4]@cpu:0"
    prop = ProductProperty(scale=3.0)
    assert prop.get_params() == {"scale": 3.0}
    assert prop.infer_shape([(2, 3), None]) == ([(2, 3), (3, None)], [(2, None), (3,)], [()])
    assert prop.infer_type([None, float32]) == ([float32, float32], [float32] * 2, [float32])
    with pytest.raises(AttributeError, match="has no 'nothing', and no operator of this name is registered"):
        wf.operator.nothing  # noqa: B018
    with pytest.raises(AttributeError, match="has no 'relu', and no operator"):
        wf.operator.relu  # noqa: B018


def test_errors():
    x, w, calls = operands()
    with pytest.raises(wf.ShapeError, match="inner sizes differ, 4 != 3"):
        F.product_of_tests(w, w, calls)
    with pytest.raises(wf.ShapeError, match=r"calls must have shape \(\), got \(2,\)"):
        F.product_of_tests(x, w, wf.ones(2))
    with pytest.raises(TypeError, match="calls must be given as arrays"):
        F.product_of_tests(x, w)
    with pytest.raises(TypeError, match="scales"):
        F.product_of_tests(x, w, calls, scales=1)
    with pytest.raises(wf.DeviceError, match="operands on different devices"):
        F.product_of_tests(x.to_device("cpu:1"), w, calls)
    with pytest.raises(TypeError, match="expected a name, got 'my op'"):
        wf.operator.register("my op")
    with pytest.raises(ValueError, match="req must be 'null', 'write', 'inplace' or 'add', got 'set'"):
        wf.operator.Operator().assign(x, "set", 1)
    with pytest.raises(TypeError, match="expected a Value"):
        F.product_of_tests(input_value(TensorType((2, 3), float32)), w, calls)
    with pytest.raises(TypeError, match=r"operator 'relu': weft\.ops\.families\.activation has one"):
        wf.operator.register("relu")(ProductProperty)


def test_in_graphs(log):
    types = [TensorType(shape, float32) for shape in ((2, 3), (3, 4), ())]
    y = F.product_of_tests(*(input_value(t) for t in types))
    assert repr(y.type) == "f32[2,4]@cpu:0"


def loss(x, w, calls):
    return (F.product_of_tests(wf.sin(x), w, calls, scale=2.0) * 3).sum()


def test_traced(log):
    """Values, gradients and auxiliary states as they are eagerly; every call runs the function once."""
    step = wf.trace(lambda x, w, calls: wf.grad(loss, argnums=(0, 1))(x, w, calls), strict=True)
    x, w, calls = operands()
    want = wf.grad(loss, argnums=(0, 1))(x, w, calls)
    for k in range(2, 5):
        for got, right in zip(step(x, w, calls), want, strict=True):
            np.testing.assert_allclose(got.numpy(), right.numpy())
        assert calls.item() == k
    assert [entry[0] for entry in log] == ["forward", "backward"] * 4
    assert len({str(entry[1:]) for entry in log if entry[0] == "backward"}) == 1


def test_lazily_and_in_loops(log):
    x, w, calls = operands()
    want = F.product_of_tests(x, w, calls).numpy()
    with wf.lazy():
        y = F.product_of_tests(x, w, calls) * 2
    np.testing.assert_allclose(y.numpy(), 2 * want)
    step = wf.trace(lambda x: wf.foreach(lambda x, s: (F.product_of_tests(x[None], w, calls), s), x, ())[0])
    for k in (4, 6):
        np.testing.assert_allclose(step(x).numpy()[:, 0], want)
        assert calls.item() == k


class NotedProperty(wf.operator.OperatorProperty):
    """The identity, which notes that it was called."""

    def create_operator(self, device):
        class Noted(wf.operator.Operator):
            def forward(self, ctx, in_data, req, out_data, aux):
                LOG.append("noted")
                self.assign(out_data[0], req[0], in_data[0].numpy())

        return Noted()


wf.operator.register("noted_of_tests")(NotedProperty)


def test_functions_are_called_each_time_though_their_operands_seldom_change(log):
    """What depends on captured arrays alone is otherwise prepared once for many runs; inside of loops, too."""
    x, times = wf.ones((2, 3)), wf.ones(())
    plain = wf.trace(lambda times: F.noted_of_tests(x) * times)
    looped = wf.trace(lambda times: wf.foreach(lambda row, s: (F.noted_of_tests(row), s), x, ())[0] * times)
    for function, runs in ((plain, 1), (looped, 2)):
        function(times).wait()
        del LOG[:]
        for _ in range(3):
            function(times).wait()
        assert len(LOG) == 3 * runs


def test_in_symbols(log):
    x, w, calls = operands()
    y = F.product_of_tests(sym.var("x"), sym.var("w"), sym.var("calls"), scale=2.0)
    assert (y.list_arguments(), y.list_auxiliary_states()) == (["x", "w"], ["calls"])
    assert y.infer_shape(x=(2, 3), w=(3, 4)) == ([(2, 3), (3, 4)], [(2, 4)], [()])
    assert y.infer_shape_partial(x=(2, 3)) == ([(2, 3), (3, None)], [(2, None)], [()])
    for each in (y, sym.from_json(y.to_json())):
        slopes = {"x": wf.zeros_like(x), "w": wf.zeros_like(w)}
        exe = each.bind(None, {"x": x, "w": w}, slopes, aux_states={"calls": calls})
        np.testing.assert_allclose(exe.forward(is_train=True)[0].numpy(), 2 * x.numpy() @ w.numpy())
        exe.backward()
        np.testing.assert_allclose(slopes["w"].numpy(), 2 * x.numpy().T @ np.ones((2, 4)))
    assert calls.item() == 2
    with pytest.raises(wf.GraphError, match="no operator is called 'another_of_tests'"):
        sym.from_json(y.to_json().replace("product_of_tests", "another_of_tests"))


def test_errors_and_kept_arrays_in_programs():
    kept = []

    class Failing(wf.operator.Operator):
        def forward(self, ctx, in_data, req, out_data, aux):
            kept.append(in_data[0])
            if len(kept) == 3:
                raise ZeroDivisionError("on purpose")
            self.assign(out_data[0], req[0], in_data[0].numpy() + len(kept))

    @wf.operator.register("third_of_tests")
    class FailingProperty(wf.operator.OperatorProperty):
        def create_operator(self, device):
            return Failing()

    step = wf.trace(lambda x: F.third_of_tests(F.third_of_tests(x * 1)) * 2)
    x = wf.tensor([1.0, 2.0])
    assert step(x).numpy().tolist() == [8.0, 10.0]
    with pytest.raises(wf.EngineError, match="third_of_tests") as caught:
        step(x).numpy()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert step(x).numpy().tolist() == [2 * (1.0 + 4 + 5), 2 * (2.0 + 4 + 5)]
    assert [a.numpy().tolist() for a in kept[:2]] == [[1.0, 2.0], [2.0, 3.0]]
