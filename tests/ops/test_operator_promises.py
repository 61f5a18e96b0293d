"""What OperatorProperty promises kernels: requests, shared memory, types, names, variables, temporary space."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.symbol as sym
from weft import storage

LOG = []


class Affine(wf.operator.Operator):
    """data * weight, where weight is one number for each column; notes requests and what shares memory."""

    def forward(self, ctx, in_data, req, out_data, aux):
        LOG.append(("forward", list(req), out_data[0] is in_data[0]))
        self.assign(out_data[0], req[0], in_data[0].numpy() * in_data[1].numpy())

    def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux):
        LOG.append(("backward", list(req), in_grad[0] is out_grad[0]))
        dy, x, w = out_grad[0].numpy().copy(), in_data[0].numpy(), in_data[1].numpy()
        if req[0] != "null":
            self.assign(in_grad[0], req[0], dy * w)
        if req[1] != "null":
            self.assign(in_grad[1], req[1], (dy * x).sum(axis=0))


class AffineProperty(wf.operator.OperatorProperty):
    def __init__(self, share=False):
        self.share = share

    def list_arguments(self):
        return ["data", "weight"]

    def infer_shape(self, in_shapes):
        data = in_shapes[0]
        return [data, data[-1:]], [data], []

    def forward_inplace_option(self, in_data, out_data):
        return [(in_data[0], out_data[0])] if self.share else []

    def backward_inplace_option(self, out_grad, in_data, out_data, in_grad):
        return [(out_grad[0], in_grad[0])] if self.share else []

    def declare_backward_dependency(self, out_grad, in_data, out_data):
        return [*out_grad, *in_data]

    def create_operator(self, device):
        return Affine()


@pytest.fixture(scope="module", autouse=True)
def registered():
    wf.operator.register("affine_of_tests")(AffineProperty)


@pytest.fixture(autouse=True)
def log():
    LOG.clear()
    return LOG


X = np.arange(6.0, dtype="float32").reshape(2, 3) + 1
W = np.array([1.0, 2.0, 4.0], "float32")


def run(requests, steps=2):
    """Executor of sum(affine): gradients after so many steps, and the requests of backward."""
    y = F.affine_of_tests(sym.var("x"), sym.var("w"), name="a")
    grads = {"x": wf.full((2, 3), 10.0), "w": wf.full(3, 10.0)}
    exe = y.bind(None, {"x": wf.tensor(X), "w": wf.tensor(W)}, grads, grad_req=requests)
    for _ in range(steps):
        exe.forward(is_train=True)
        exe.backward()
    wf.waitall()
    return {name: g.numpy() for name, g in grads.items()}, [e[1] for e in LOG if e[0] == "backward"]


def test_requests_of_executors_reach_backward():
    dx, dw = np.broadcast_to(W, (2, 3)), X.sum(axis=0)
    grads, seen = run({"x": "write", "w": "write"})
    assert seen == [["write", "write"]] * 2
    np.testing.assert_array_equal(grads["x"], dx)
    LOG.clear()
    grads, seen = run({"x": "null", "w": "write"})
    assert seen == [["null", "write"]] * 2
    np.testing.assert_array_equal(grads["w"], dw)
    LOG.clear()
    grads, seen = run({"x": "add", "w": "null"})
    assert seen == [["add", "null"]] * 2
    np.testing.assert_array_equal(grads["x"], 10 + 2 * dx)
    LOG.clear()
    grads, seen = run({"x": "add", "w": "add"}, steps=3)
    assert seen == [["add", "add"]] * 3
    np.testing.assert_array_equal(grads["x"], 10 + 3 * dx)
    np.testing.assert_array_equal(grads["w"], 10 + 3 * dw)


def test_requests_of_the_tape():
    """Without a trace an unwanted gradient is "null"; in one, a gradient that is added to another is "add"."""
    x, w = wf.tensor(X), wf.tensor(W)
    gm = wf.GradManager().attach([w])

    def step(x):
        with gm:
            gm.backward(F.affine_of_tests(x, w).sum())

    step(x)
    wf.waitall()
    assert LOG[-1][1] == ["null", "write"]
    traced = wf.trace(step, strict=True)
    for _ in range(3):
        traced(x)
    wf.waitall()
    assert [e[1] for e in LOG if e[0] == "backward"][-2:] == [["null", "add"]] * 2
    np.testing.assert_array_equal(w.grad.numpy(), 4 * X.sum(axis=0))


def test_a_gradient_with_two_readers_is_written():
    """What is read besides the sum must be the gradient itself."""
    w = wf.tensor(W)
    w.grad = wf.full(3, 10.0)

    def step(x):
        (dw,) = wf.grad(lambda w: F.affine_of_tests(x, w).sum(), argnums=(0,))(w)
        w.grad = w.grad + dw
        return dw * 2

    traced = wf.trace(step)
    for k in range(3):
        twice = traced(wf.tensor(X))
        np.testing.assert_array_equal(twice.numpy(), 2 * X.sum(axis=0))
        np.testing.assert_array_equal(w.grad.numpy(), 10 + (k + 1) * X.sum(axis=0))
    assert {tuple(e[1]) for e in LOG if e[0] == "backward"} == {("null", "write")}


@pytest.mark.parametrize("share", [False, True])
def test_in_place_options_are_used_where_the_input_dies(share):
    w = wf.tensor(W)

    @wf.trace
    def step(x):
        h = F.affine_of_tests(x * 1.5, w, share=share)
        return F.affine_of_tests(h, w, share=share) * 2

    for _ in range(2):
        np.testing.assert_allclose(step(wf.tensor(X)).numpy(), X * 1.5 * W * W * 2, rtol=1e-6)
    last = LOG[-2:]
    assert [e[1] for e in last] == ([["inplace"]] * 2 if share else [["write"]] * 2)
    assert [e[2] for e in last] == [share] * 2


def test_an_input_that_is_still_needed_is_not_written_over():
    w = wf.tensor(W)

    @wf.trace
    def step(x):
        h = x * 1.5
        y = F.affine_of_tests(h, w, share=True)
        return y + F.exp(h * 0)  # reads h afterwards

    for _ in range(2):
        np.testing.assert_allclose(step(wf.tensor(X)).numpy(), X * 1.5 * W + 1, rtol=1e-6)


def test_backward_in_place():
    y = (F.affine_of_tests(sym.var("x") * 2, sym.var("w"), share=True) * 3).sum()
    exe = y.simple_bind(x=(2, 3), w=(3,), grad_req={"x": "write", "w": "null"})
    exe.arg_dict["x"][...], exe.arg_dict["w"][...] = wf.tensor(X), wf.tensor(W)
    exe.forward(is_train=True)
    exe.backward()
    np.testing.assert_allclose(exe.grad_dict["x"].numpy(), np.broadcast_to(6 * W, (2, 3)))
    wf.waitall()
    assert [e[1] for e in LOG if e[0] == "backward"] == [["inplace", "null"]]


def test_an_option_that_names_nothing():
    @wf.operator.register("badly_shared_of_tests")
    class Bad(AffineProperty):
        def forward_inplace_option(self, in_data, out_data):
            return [(out_data[0], in_data[0])]

    with pytest.raises(ValueError, match=r"badly_shared_of_tests: no \(input, output\) pair"):
        wf.trace(lambda x, w: F.badly_shared_of_tests(x, w) * 1)(wf.tensor(X), wf.tensor(W)).numpy()


class TypedProperty(wf.operator.OperatorProperty):
    """float64 data, an int32 count of calls, float32 out."""

    def list_outputs(self):
        return ["mean", "half"]

    def list_auxiliary_states(self):
        return ["calls"]

    def infer_shape(self, in_shapes):
        return in_shapes, [(), in_shapes[0]], [()]

    def infer_type(self, in_types):
        return ["float64"], ["float32", "float64"], ["int32"]

    def create_operator(self, device):
        class Typed(wf.operator.Operator):
            def forward(self, ctx, in_data, req, out_data, aux):
                self.assign(out_data[0], req[0], in_data[0].numpy().mean())
                self.assign(out_data[1], req[1], in_data[0].numpy() / 2)
                aux[0].numpy()[...] += 1

        return Typed()


@pytest.fixture(scope="module", autouse=True)
def typed():
    wf.operator.register("typed_of_tests")(TypedProperty)


def test_types_are_enforced():
    calls = wf.zeros((), dtype="int32")
    mean, half = F.typed_of_tests(wf.tensor(X.astype("float64")), calls)
    assert (mean.dtype, half.dtype, mean.item(), calls.item()) == ("float32", "float64", 3.5, 1)
    with pytest.raises(wf.DTypeError, match="typed_of_tests: data must be float64, got float32"):
        F.typed_of_tests(wf.tensor(X), calls)
    with pytest.raises(wf.DTypeError, match="typed_of_tests: calls must be int32, got float32"):
        F.typed_of_tests(wf.tensor(X.astype("float64")), wf.zeros(()))


def test_types_names_and_states_in_symbols():
    y = F.typed_of_tests(sym.var("x"), name="n")
    assert y.list_outputs() == ["n_mean", "n_half"]
    assert (y.list_arguments(), y.list_auxiliary_states()) == (["x"], ["n_calls"])
    assert y.infer_type() == (["float64"], ["float32", "float64"], ["int32"])
    exe = y.simple_bind(x=(2, 3))
    assert (exe.arg_dict["x"].dtype, exe.aux_dict["n_calls"].dtype) == ("float64", "int32")
    exe.forward(is_train=True, x=X)
    exe.forward(is_train=True)
    assert exe.aux_dict["n_calls"].item() == 2
    assert exe.output_dict["n_half"].numpy().tolist() == (X / 2).tolist()
    with pytest.raises(wf.DTypeError, match="data must be float64, got float32"):
        y.infer_type(x="float32")
    again = sym.from_json(y.to_json())
    assert (again.list_outputs(), again.list_auxiliary_states()) == (["n_mean", "n_half"], ["n_calls"])


def test_variables_are_made_in_symbols():
    x = sym.var("x")
    y = sym.Custom(x, op_type="affine_of_tests", name="fc")
    assert y.list_arguments() == ["x", "fc_weight"]
    assert y.list_outputs() == ["fc_output"]
    assert y.infer_shape(x=(4, 3))[0] == [(4, 3), (3,)]
    assert F.affine_of_tests(weight=x, name="g").list_arguments() == ["g_data", "x"]
    assert sym.Custom(op_type="affine_of_tests", name="h").list_arguments() == ["h_data", "h_weight"]
    with sym.NameScope("s_"):
        assert sym.Custom(op_type="affine_of_tests", name="h").list_arguments() == ["s_h_data", "s_h_weight"]
        assert sym.affine_of_tests(x).list_arguments() == ["x", "s_affine_of_tests0_weight"]
    exe = y.simple_bind(x=(2, 3))
    exe.arg_dict["fc_weight"][...] = wf.tensor(W)
    assert exe.forward(x=X)[0].numpy().tolist() == (X * W).tolist()
    with pytest.raises(wf.GraphError, match="Custom: no operator 'relu' is registered"):
        sym.Custom(x, op_type="relu")
    with pytest.raises(TypeError, match="affine_of_tests: no argument bias; there are: data, weight"):
        sym.Custom(x, bias=x, op_type="affine_of_tests")
    with pytest.raises(TypeError, match="affine_of_tests: takes data, weight, got 3 positional"):
        F.affine_of_tests(x, x, x)
    with pytest.raises(TypeError, match="affine_of_tests: data is given twice"):
        F.affine_of_tests(x, data=x)


def test_two_nodes_made_by_the_module_keep_workers_of_their_own():
    """Each node has its place, however it is called."""
    x = sym.var("x")
    a, b = sym.affine_of_tests(x, name="a"), sym.affine_of_tests(x, name="b")
    one, two = a.values[0].node, b.values[0].node
    assert one.op != two.op


def test_temporary_space_is_the_pools():
    seen = []

    class Scratch(wf.operator.Operator):
        def forward(self, ctx, in_data, req, out_data, aux):
            before = storage.stats()["in_use_bytes"]
            space = ctx.requested[0]((1000, 1000), "float32")
            seen.append((storage.stats()["in_use_bytes"] - before, space.shape, space.dtype.name))
            space[...] = 1
            empty = ctx.requested[0](0)
            half = ctx.requested[0](4, "bfloat16")
            seen.append((empty.size, half.shape, half.dtype.name))
            self.assign(out_data[0], req[0], in_data[0].numpy() + space[0, 0])

    @wf.operator.register("scratch_of_tests")
    class ScratchProperty(wf.operator.OperatorProperty):
        def forward_resource(self, in_shapes):
            return ["temp_space"]

        def create_operator(self, device):
            return Scratch()

    wf.waitall()
    storage.reset_peaks()
    before = storage.stats()
    assert F.scratch_of_tests(wf.ones(2)).numpy().tolist() == [2.0, 2.0]
    wf.waitall()
    after = storage.stats()
    assert seen == [(4_000_000, (1000, 1000), "float32"), (0, (4,), "bfloat16")]
    assert after["peak_in_use_bytes"] >= before["in_use_bytes"] + 4_000_000
    assert after["in_use_bytes"] < before["in_use_bytes"] + 4_000_000
    reused = after["reused"]
    F.scratch_of_tests(wf.ones(2)).numpy()
    assert storage.stats()["reused"] > reused


class ParameterProperty(wf.operator.OperatorProperty):
    def __init__(
        self, scale: float = 1.0, kernel=(1, 1), flag: bool = False, n: "int | None" = None, word="a"
    ):
        self.scale, self.kernel, self.flag, self.n, self.word = scale, kernel, flag, n, word

    def infer_shape(self, in_shapes):
        return in_shapes, [(5,)], []

    def create_operator(self, device):
        values = self.scale, *self.kernel, self.flag, -1 if self.n is None else self.n

        class Shown(wf.operator.Operator):
            def forward(self, ctx, in_data, req, out_data, aux):
                self.assign(out_data[0], req[0], np.array(values, "float32"))

        return Shown()


def test_parameters_as_text():
    wf.operator.register("parameters_of_tests")(ParameterProperty)
    x = wf.ones(1)
    want = F.parameters_of_tests(x, scale=2, kernel=(3, 4), flag=True, n=7, word="2").numpy().tolist()
    assert want == [2.0, 3.0, 4.0, 1.0, 7.0]
    text = F.parameters_of_tests(x, scale="2", kernel="(3, 4)", flag="true", n="7", word="2")
    assert text.numpy().tolist() == want
    params = ParameterProperty(scale=2.5, kernel=(3, 4), flag=True).get_params()
    again = F.parameters_of_tests(x, **{name: str(value) for name, value in params.items()})
    assert again.numpy().tolist() == [2.5, 3.0, 4.0, 1.0, -1.0]
    with pytest.raises(TypeError, match="parameters_of_tests: scale must be float, got the text 'much'"):
        F.parameters_of_tests(x, scale="much")
    with pytest.raises(TypeError, match=r"flag must be bool, got the text '\(1,\)'"):
        F.parameters_of_tests(x, flag="(1,)")


class CubeProperty(wf.operator.OperatorProperty):
    """x^3, whose gradient 3 y / x reads the result."""

    def gradient(self, out_grad, in_data, out_data):
        return [3 * out_data[0] / in_data[0] * out_grad[0]]

    def create_operator(self, device):
        class Cube(wf.operator.Operator):
            def forward(self, ctx, in_data, req, out_data, aux):
                self.assign(out_data[0], req[0], in_data[0].numpy() ** 3)

        return Cube()


@pytest.mark.parametrize("traced", [False, True])
def test_gradients_of_gradients(traced):
    wf.operator.register("cube_of_tests")(CubeProperty)
    x = wf.tensor([2.0, -1.0, 0.5], dtype="float64")
    first = wf.grad(lambda x: F.cube_of_tests(x).sum())
    second = wf.grad(lambda x: first(x).sum())
    third = wf.grad(lambda x: second(x).sum())
    for f, want in ((first, 3 * x.numpy() ** 2), (second, 6 * x.numpy()), (third, np.full(3, 6.0))):
        g = wf.trace(f) if traced else f
        for _ in range(2):
            np.testing.assert_allclose(g(x).numpy(), want)


def test_a_gradient_of_weft_functions_of_the_wrong_form():
    @wf.operator.register("wrong_gradient_of_tests")
    class Wrong(CubeProperty):
        def gradient(self, out_grad, in_data, out_data):
            return [out_grad[0].sum()]

    with pytest.raises(wf.ShapeError, match=r"the gradient of data has shape \(\), not \(3,\)"):
        wf.grad(lambda x: F.wrong_gradient_of_tests(x).sum())(wf.ones(3))

    @wf.operator.register("two_gradients_of_tests")
    class Two(CubeProperty):
        def gradient(self, out_grad, in_data, out_data):
            return [None, None]

    with pytest.raises(TypeError, match="its gradient gave 2 results for data"):
        wf.grad(lambda x: F.two_gradients_of_tests(x).sum())(wf.ones(3))
