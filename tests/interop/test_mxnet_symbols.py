"""What MXNet's networks become computes what MXNet does: expected_mxnet.json has its answers (mxnet_reference.py)."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest
from tests.interop import mxnet_cases
from tests.interop.mxnet_cases import CASES, name_of, symbol_text

import weft as wf
from weft.base.errors import GraphError
from weft.interop import mxnet

FOLDER = Path(__file__).parent


@functools.cache
def expected():
    return json.loads((FOLDER / "expected_mxnet.json").read_text())


def run(text, arrays, gradients):
    """What weft makes of a network, in the form of mxnet_reference.answer."""
    symbol = mxnet.loads(text)
    arguments, states = symbol.list_arguments(), symbol.list_auxiliary_states()
    tensors = {name: wf.tensor(x) for name, x in arrays.items()}
    slopes = {name: wf.zeros(tensors[name].shape) for name in gradients if name in arguments}
    exe = symbol.bind(
        None,
        {name: tensors[name] for name in arguments},
        args_grad=slopes,
        aux_states={name: tensors[name] for name in states},
    )
    inference = [y.numpy() for y in exe.forward(is_train=False)]
    training = exe.forward(is_train=True)
    result = {"inference": inference, "training": [y.numpy() for y in training]}
    if slopes:
        exe.backward(
            [wf.tensor(np.cos(np.arange(y.size)).reshape(y.shape)).astype(y.dtype) for y in training]
        )
    result["gradients"] = {name: exe.grad_dict[name].numpy() for name in slopes}
    result["states"] = {name: exe.aux_dict[name].numpy() for name in states}
    return result


def compare(actual, answer, about):
    for key in ("inference", "training"):
        assert len(actual[key]) == len(answer[key]), about
        for y, described in zip(actual[key], answer[key], strict=True):
            close(y, described, f"{about} {key}")
    for key in ("gradients", "states"):
        assert actual[key].keys() == answer[key].keys(), about
        for name, described in answer[key].items():
            close(actual[key][name], described, f"{about} {key} {name}")


def close(y, described, about):
    reference = np.array([np.nan if v is None else v for v in described["values"]]).reshape(
        described["shape"]
    )
    assert list(y.shape) == described["shape"], about
    values = np.where(np.isfinite(y), y, np.nan) if y.dtype.kind == "f" else y
    np.testing.assert_allclose(values, reference, rtol=2e-4, atol=2e-5, err_msg=about, equal_nan=True)


@pytest.mark.daily(12)
@pytest.mark.parametrize("k", range(len(CASES)), ids=name_of)
def test_an_operator_is_what_it_is_in_mxnet(k):
    answer = expected()[k]
    arrays = {f"x{n}": x for n, x in enumerate(mxnet_cases.values(CASES[k]))}
    compare(run(symbol_text(CASES[k]), arrays, answer["gradients"]), answer, name_of(k))


# ---- Whole networks --------------------------------------------------------------------------------------------------


class Network:
    """Composes the text of a symbol, as MXNet writes it."""

    def __init__(self, **document):
        self.nodes, self.document = [], document

    def add(self, op, name, *inputs, key="attrs", output=0, **attributes):
        entries = [[k, output, 0] for k in inputs]
        node = {"op": op, "name": name, "inputs": entries}
        if attributes:
            node[key] = attributes
        self.nodes.append(node)
        return len(self.nodes) - 1

    def variables(self, prefix, *names, **options):
        return [self.add("null", f"{prefix}_{name}", **options) for name in names]

    def text(self, head):
        arguments = [k for k, node in enumerate(self.nodes) if node["op"] == "null"]
        return json.dumps(
            {"nodes": self.nodes, "arg_nodes": arguments, "heads": [[head, 0, 0]], **self.document}
        )


def small_network(key="attrs", states=True, **document):
    """Convolution, BatchNorm, Pooling, FullyConnected, SoftmaxOutput: as image classifiers are."""
    n = Network(**document)
    x = n.add("null", "data")
    conv = {"kernel": "(3, 3)", "num_filter": "4", "pad": "(1, 1)", "workspace": "1024"}
    x = n.add("Convolution", "conv", x, *n.variables("conv", "weight", "bias"), key=key, **conv)
    names = ("gamma", "beta", "moving_mean", "moving_var")[: 4 if states else 2]
    x = n.add("BatchNorm", "bn", x, *n.variables("bn", *names), key=key, fix_gamma="False")
    x = n.add("Activation", "act", x, key=key, act_type="relu")
    x = n.add("Pooling", "pool", x, key=key, kernel="(2, 2)", stride="(2, 2)", pool_type="max")
    x = n.add("FullyConnected", "fc", x, *n.variables("fc", "weight", "bias"), key=key, num_hidden="3")
    x = n.add("SoftmaxOutput", "softmax", x, n.add("null", "softmax_label"), key=key, normalization="batch")
    return n.text(x)


@pytest.fixture
def files(tmp_path):
    """Files of a small network: its symbol, and random arrays."""
    symbol = mxnet.loads(small_network())
    shapes, _, states = symbol.infer_shape(data=(2, 3, 4, 4))
    rng = np.random.default_rng(0)
    arrays = {}
    for name, shape in zip(symbol.list_arguments(), shapes, strict=True):
        if name not in ("data", "softmax_label"):
            arrays[f"arg:{name}"] = wf.tensor(rng.normal(0, 0.5, shape).astype(np.float32))
    for name, shape in zip(symbol.list_auxiliary_states(), states, strict=True):
        arrays[f"aux:{name}"] = wf.tensor(rng.uniform(0.5, 1, shape).astype(np.float32))
    (tmp_path / "net-symbol.json").write_text(small_network())
    mxnet.save_params(tmp_path / "net-0000.params", arrays)
    return tmp_path / "net-symbol.json", tmp_path / "net-0000.params"


def test_shapes_are_inferred_from_the_data_alone():
    symbol = mxnet.loads(small_network())
    arguments, outputs, states = symbol.infer_shape(data=(2, 3, 4, 4))
    assert dict(zip(symbol.list_arguments(), arguments, strict=True)) == {
        "data": (2, 3, 4, 4),
        "conv_weight": (4, 3, 3, 3),
        "conv_bias": (4,),
        "bn_gamma": (4,),
        "bn_beta": (4,),
        "fc_weight": (3, 16),
        "fc_bias": (3,),
        "softmax_label": (2,),
    }
    assert outputs == [(2, 3)]
    assert states == [(4,), (4,)]
    assert symbol.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
    assert symbol.list_outputs() == ["softmax_output"]
    assert "act_output" in symbol.get_internals().list_outputs()


def test_a_network_that_is_read_trains_as_a_module(files):
    network = mxnet.load(*files)
    net = wf.module.SymbolModule(network.symbol, network.arrays, inputs=["data", "softmax_label"])
    rng = np.random.default_rng(1)
    x, labels = (
        wf.tensor(rng.normal(size=(8, 3, 4, 4)).astype(np.float32)),
        wf.arange(8).astype("float32") % 3,
    )
    optimizer = wf.optimizer.SGD(net.parameters(), lr=0.5)
    manager = wf.GradManager().attach(net.parameters())

    @wf.trace
    def step():
        with manager:
            probabilities = net(x, labels)
            manager.backward(probabilities.sum())
        optimizer.step().clear_grad()
        return -wf.mean(wf.log(wf.take_along_axis(probabilities, labels.astype("int64")[:, None], axis=1)))

    losses = [step().item() for _ in range(30)]
    assert losses[-1] < 0.3 * losses[0]


def test_a_network_is_saved_as_any_symbol(files):
    network = mxnet.load(*files)
    again = wf.symbol.from_json(network.symbol.to_json())
    arrays = {**network.arrays, "data": wf.ones((2, 3, 4, 4)), "softmax_label": wf.zeros(2)}

    def probabilities(symbol):
        states = {name: arrays[name] for name in symbol.list_auxiliary_states()}
        arguments = {name: arrays[name] for name in symbol.list_arguments()}
        return symbol.bind(None, arguments, aux_states=states).forward()[0].numpy()

    assert np.array_equal(probabilities(network.symbol), probabilities(again))


@pytest.mark.parametrize("key", ["param", "attr"])
def test_older_files_are_brought_up_to_date(key):
    old = mxnet.loads(small_network(key=key, states=False))
    new = mxnet.loads(small_network(attrs={"mxnet_version": ["int", 10901]}))
    assert old.list_arguments() == new.list_arguments()
    assert old.list_auxiliary_states() == new.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
    document = json.loads(small_network(key=key, states=False))
    for node in document["nodes"]:
        node["inputs"] = [entry[:2] for entry in node["inputs"]]
        node["backward_source_id"] = -1
    assert mxnet.loads(json.dumps(document)).list_arguments() == new.list_arguments()


def test_hidden_attributes_are_attributes_of_symbols():
    n = Network()
    x = n.add("null", "x", lr_mult="2", __shape__="(0, 3)", __dtype__="0")
    y = n.add("Activation", "y", x, act_type="relu", ctx_group="a", weight_lr_mult="3", __mirror_stage__="1")
    symbol = mxnet.loads(n.text(y))
    assert symbol.attr_dict()["x"]["__lr_mult__"] == "2"
    assert symbol.attr("__mirror_stage__") == "1"
    assert symbol.infer_shape(x=(2, None))[1] == [(2, 3)]
    n = Network()
    y = n.add("argmax", "y", n.add("null", "x"), axis="-1")
    assert mxnet.loads(n.text(y)).eval(x=np.eye(2))[0].shape == (1,)
    n.document["attrs"] = {"mxnet_version": ["int", 905]}
    assert mxnet.loads(n.text(y)).eval(x=np.eye(2))[0].shape == (2,)


@pytest.mark.parametrize(("operator", "sign"), [("max", 1), ("min", -1)])
def test_of_equal_extremes_each_has_the_whole_gradient(operator, sign):
    n = Network()
    text = n.text(n.add(operator, "y", n.add("null", "x"), axis="1", exclude="False"))
    net = wf.module.SymbolModule(mxnet.loads(text), {}, inputs=["x"])
    x = wf.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [-np.inf, 0.0, 5.0]]) * sign
    np.testing.assert_array_equal(net(x).numpy(), np.array([3, 2, 5]) * sign)
    slopes = wf.grad(lambda x: (net(x) * wf.tensor([1.0, 2.0, 3.0])).sum())(x)
    np.testing.assert_array_equal(slopes.numpy(), [[0, 1, 1], [2, 2, 2], [0, 0, 3]])


def one_operator(op, count=1, **attributes):
    n = Network()
    return n.text(n.add(op, "y", *[n.add("null", f"x{k}") for k in range(count)], **attributes))


REFUSED = {
    "an unknown operator": (one_operator("Custom", op_type="mine"), "Custom 'y': no operator of weft"),
    "an unknown attribute": (
        one_operator("Activation", act_type="relu", new="1"),
        "attribute new='1' is not supported",
    ),
    "an unknown choice": (one_operator("Activation", act_type="swish"), "act_type='swish' is not supported"),
    "a missing attribute": (one_operator("Cast"), "attribute dtype is missing"),
    "a wrong attribute": (
        one_operator("FullyConnected", 2, num_hidden="many"),
        "num_hidden is 'many', not an integer",
    ),
    "sizes of other dimensions": (
        one_operator("Convolution", 2, kernel="(3,)", pad="(1, 1)", num_filter="4", no_bias="True"),
        "Convolution 'y': conv1d: padding must be",
    ),
    "too few inputs": (one_operator("FullyConnected", 1, num_hidden="2"), "with 1 inputs"),
    "an output too many": (
        json.dumps({**json.loads(one_operator("relu")), "heads": [[1, 1, 0]]}),
        "output 1 of relu",
    ),
    "several outputs": (one_operator("BatchNorm", 5, output_mean_var="True"), "output_mean_var=True"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_supported_is_named(text, message):
    with pytest.raises(GraphError, match=message):
        mxnet.loads(text)


def test_attributes_that_are_read_late_are_named():
    symbol = mxnet.loads(one_operator("transpose", new="1"))
    with pytest.raises(GraphError, match="transpose: attribute new='1' is not supported"):
        symbol.infer_shape(x0=(2, 3))


DAMAGED = {
    "no JSON": "{",
    "deep": "[" * 100_000,
    "a list": "[]",
    "no nodes": "{}",
    "nodes of numbers": json.dumps({"nodes": [1], "heads": [[0, 0]]}),
    "a node without inputs": json.dumps({"nodes": [{"op": "null", "name": "x"}], "heads": [[0, 0]]}),
    "a cycle": json.dumps({"nodes": [{"op": "relu", "name": "x", "inputs": [[0, 0]]}], "heads": [[0, 0]]}),
    "an index below 0": json.dumps(
        {"nodes": [{"op": "relu", "name": "x", "inputs": [[-1, 0]]}], "heads": [[0, 0]]}
    ),
    "attributes of numbers": json.dumps(
        {"nodes": [{"op": "null", "name": "x", "inputs": [], "attrs": {"a": 1}}]}
    ),
    "no heads": json.dumps({"nodes": [], "heads": []}),
    "a head that is not there": json.dumps({"nodes": [], "heads": [[0, 0, 0]]}),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_symbol_is_an_error(text):
    with pytest.raises(wf.FileFormatError, match=r"mxnet\.loads: "):
        mxnet.loads(text)


def test_arrays_have_to_fit_the_symbol(files, tmp_path):
    symbol, params = files
    arrays = wf.load(params)
    del arrays["aux:bn_moving_var"]
    mxnet.save_params(tmp_path / "less.params", arrays)
    with pytest.raises(GraphError, match="no array for 'bn_moving_var'"):
        mxnet.load(symbol, tmp_path / "less.params")
    mxnet.save_params(tmp_path / "twice.params", {"arg:a": wf.ones(1), "aux:a": wf.ones(1)})
    with pytest.raises(wf.FileFormatError, match="two arrays are called 'a'"):
        mxnet.load(symbol, tmp_path / "twice.params")
    bare = {name[4:]: x for name, x in wf.load(params).items()}
    mxnet.save_params(tmp_path / "bare.params", {**bare, "unused": wf.ones(1)})
    assert mxnet.load(symbol, tmp_path / "bare.params").arrays.keys() == bare.keys()
