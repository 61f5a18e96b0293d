"""Arrays as operands of symbols: constants, with the elements that they had when the symbol was composed."""

import copy
import pickle

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.symbol as sym
from weft.base.errors import GraphError
from weft.graph.constant_array import Elements

A = np.arange(6, dtype="float32").reshape(2, 3) - 2
X = np.linspace(-1, 2, 6, dtype="float32").reshape(2, 3)
DTYPES = ["float16", "bfloat16", "float64", "int8", "uint64", "bool", "complex64"]

FORMS = {
    "symbol + tensor": lambda x: x + wf.tensor(A),
    "tensor + symbol": lambda x: wf.tensor(A) + x,
    "symbol * NumPy array": lambda x: x * A,
    "NumPy array - symbol": lambda x: A - x,
    "a comparison": lambda x: x < A,
    "equality": lambda x: wf.tensor(A) == x,
    "a matrix product": lambda x: x @ A.T,
    "a reflected matrix product": lambda x: A.T @ x,
    "a function": lambda x: F.maximum(x, A),
    "a keyword": lambda x: F.linear(x, weight=A, bias=wf.tensor([1.0, 2.0])),
    "an array without rows": lambda x: F.concat([x, np.zeros((0, 3), "float32")]),
    "a number as an array": lambda x: x * np.array(2.0, "float32"),
    "strides": lambda x: x + wf.tensor(np.repeat(A, 2, axis=1))[:, ::2],
    "indices": lambda x: x[np.array([1, 0, 1])],
    "a tensor of indices": lambda x: x[:, wf.tensor([2, 0])],
    "elements of a function": lambda x: wf.take(x, wf.tensor([1, 1]), axis=1),
}


@pytest.mark.parametrize("form", FORMS)
def test_values_texts_and_layers(form):
    """As with arrays: bound, read again from a text, operator by operator, as a module, pickled."""
    expected = FORMS[form](wf.tensor(X))
    y = FORMS[form](sym.var("x"))
    assert y.list_arguments() == ["x"]
    assert y.list_auxiliary_states() == []
    assert y.infer_shape(x=X.shape)[1] == [expected.shape]
    again = [sym.from_json(y.to_json()), pickle.loads(pickle.dumps(y)), copy.deepcopy(y), y(x=sym.var("x"))]
    for each in (y, *again):
        (result,) = each.eval(x=X)
        assert result.dtype is expected.dtype
        np.testing.assert_array_equal(result.numpy(), expected.numpy())
    np.testing.assert_array_equal(M.SymbolModule(y, {})(wf.tensor(X)).numpy(), expected.numpy())


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits(dtype):
    """Every type goes through texts bit by bit."""
    array = wf.tensor([0, 1, 1, 0]).astype(dtype)
    y = sym.from_json(F.concat([sym.var("x"), array]).to_json())
    (result,) = y.eval(x=array)
    assert result.dtype is array.dtype
    assert bytes(result.memory()) == bytes(array.memory()) * 2


def test_floats_keep_their_bits():
    special = np.array([-0.0, np.nan, np.inf, 1e-45], "float32")
    (result,) = sym.from_json(F.concat([sym.var("x"), special]).to_json()).eval(x=special[:0])
    assert result.numpy().tobytes() == special.tobytes()


def test_a_constant_is_a_copy():
    for array in (np.ones(2, "float32"), wf.ones(2)):
        y = sym.var("x") + array
        exe = y.simple_bind(x=(2,))
        array[...] = 7
        assert exe.forward()[0].tolist() == [1, 1]
        exe.outputs[0][...] = 5
        assert exe.forward()[0].tolist() == [1, 1]


def test_an_output_that_is_a_constant_is_new_each_time():
    y = (sym.var("x") * A).get_internals()
    name = next(each for each in y.list_outputs() if each.startswith("constant"))
    exe = sym.group([y[name], sym.var("x")]).simple_bind(x=(1,))
    module = M.SymbolModule(sym.group([y[name], sym.var("x")]), {})
    for run in (exe.forward, lambda: module(wf.zeros(1))):
        for _ in range(2):
            constant = run()[0]
            np.testing.assert_array_equal(constant.numpy(), A)
            constant[...] = 3


def test_gradients_do_not_flow_to_constants():
    x = sym.var("x")
    y = F.linear(x, A, np.ones(2, "float32"))
    exe = y.simple_bind(x=(4, 3))
    exe.forward(is_train=True, x=np.ones((4, 3)))
    exe.backward()
    assert list(exe.grad_dict) == ["x"]
    np.testing.assert_allclose(exe.grad_dict["x"].numpy(), np.tile(A.sum(0), (4, 1)))
    np.testing.assert_allclose((x * A).grad("x").eval(x=X)[0].numpy(), A)
    with pytest.raises(GraphError, match="no variable 'constant"):
        y.grad("constant0")


def test_a_training_step_keeps_what_backward_reads_of_constants():
    exe = (F.exp(sym.var("x")) * A * A).simple_bind(x=A.shape)
    exe.forward(is_train=True, x=X)
    exe.backward()
    np.testing.assert_allclose(exe.grad_dict["x"].numpy(), np.exp(X) * A * A, rtol=1e-6)


def test_convolution_with_weights_of_numpy():
    rng = np.random.default_rng(0)
    image, weight = rng.normal(size=(1, 2, 5, 5)), rng.normal(size=(3, 2, 3, 3))
    image, weight = image.astype("float32"), weight.astype("float32")
    y = F.conv2d(sym.var("x"), weight, None)
    assert y.list_arguments() == ["x"]
    exe = y.bind(args={"x": wf.tensor(image)})
    expected = F.conv2d(wf.tensor(image), wf.tensor(weight), None).numpy()
    for _ in range(3):  # the weight is prepared once
        np.testing.assert_allclose(exe.forward()[0].numpy(), expected, rtol=1e-5, atol=1e-5)


def test_functions_of_control_flow():
    x = sym.var("x")
    table = wf.tensor([10.0, 20.0])

    def step(row, total):
        return row * table, total + row.sum() * np.float32(1) + np.ones(2, "float32")

    items, total = wf.foreach(step, x, np.zeros(2, "float32"))
    y = sym.group([items, total])
    rows = np.array([[1, 2], [3, 4]], "float32")
    for each in (y, sym.from_json(y.to_json())):
        assert each.list_arguments() == ["x"]
        items, total = each.eval(x=rows)
        assert items.tolist() == [[10, 40], [30, 80]]
        assert total.tolist() == [12, 12]
    branch = wf.cond(x.sum() > 0, lambda v: v + table, lambda v: v - table, x)
    assert branch.eval(x=rows)[0].tolist() == [[11, 22], [13, 24]]


def test_assignment_of_arrays():
    y = sym.var("x") * 1
    y[:, 1:] = np.array([7.0, 8.0], "float32")
    expected = X.copy()
    expected[:, 1:] = [7, 8]
    np.testing.assert_array_equal(y.eval(x=X)[0].numpy(), expected)


def test_several_devices():
    with sym.AttrScope(device_group="second"):
        y = sym.var("x") * A
    exe = y.simple_bind(x=A.shape, group_devices={"second": "cpu:1"})
    exe.arg_dict["x"][...] = wf.tensor(X).to_device("cpu:1")
    np.testing.assert_array_equal(exe.forward()[0].numpy(), X * A)
    other = (sym.var("x") * A).bind("cpu:1", args={"x": wf.tensor(X, device="cpu:1")})
    np.testing.assert_array_equal(other.forward()[0].numpy(), X * A)


def test_what_is_shown():
    y = sym.var("x") * A
    assert "constant" in str(y)
    assert "elements=f32[2,3]" in str(y)
    assert "constant" in y.to_svg()
    assert "constant" in y.to_dot()
    exe = y.simple_bind(x=A.shape)
    assert exe.memory_report()["constants"] == A.nbytes


def test_equal_constants_are_one_by_bits():
    pairs = [
        ([0.0], [0.0], "float32", True),
        ([0.0], [-0.0], "float32", False),
        ([np.nan], [np.nan], "float32", True),
        ([1], [True], None, False),
    ]
    for a, b, dtype, is_same in pairs:
        mine, theirs = (Elements(wf.tensor(np.array(each, dtype))) for each in (a, b))
        assert (mine == theirs) is is_same


def test_what_is_refused():
    x = sym.var("x")
    with pytest.raises(
        TypeError, match="add: expected a symbol, a number or an array beside symbols, got list"
    ):
        F.add(x, [1, 2])
    w = wf.ones(2)
    gm = wf.GradManager().attach([w])
    with gm, pytest.raises(GraphError, match=r"multiply: an array is being recorded.*give x.detach\(\)"):
        _ = x * (w * 2)
    with gm:
        assert (x * (w * 2).detach()).eval(x=[1.0, 2.0])[0].tolist() == [2, 4]
    with pytest.raises(TypeError, match="expected a symbol"):
        wf.vmap(lambda v: (x * v).eval(x=[1.0])[0])(wf.ones(2))
    step = lambda v: (x * (v + 1)).eval(x=[1.0])[0] + v  # noqa: E731
    assert step(wf.ones(1)).item() == 3
    with pytest.warns(wf.TraceWarning, match="were looked at"):
        assert wf.trace(step)(wf.ones(1)).item() == 3
    with wf.lazy():
        y = x * (w + 1)
    assert y.eval(x=[1.0, 1.0])[0].tolist() == [2, 2]


def test_hostile_texts():
    text = (sym.var("x") * np.array([True, False])).to_json()
    for old, new, message in (
        ('"elements": "AQA="', '"elements": "AQAA"', "takes 2 bytes, the text holds 3"),
        ('"elements": "AQA="', '"elements": "AQI="', "a bool is 0 or 1"),
        ('"elements": "AQA="', '"elements": "!"', "from_json"),
        ('"shape": [2]', '"shape": [-2]', "expected 0"),
        ('"dtype": "bool"', '"dtype": "text"', "from_json"),
    ):
        assert old in text
        with pytest.raises(GraphError, match=message):
            sym.from_json(text.replace(old, new))
