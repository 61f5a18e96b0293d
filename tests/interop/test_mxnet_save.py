"""What mxnet.save writes: weft reads the same network again, and MXNet itself computes the same from it.

Tests that ask MXNet 1.9.1 take the path of a Python that has it from WEFT_TEST_MXNET (see mxnet_reference.py).
"""

import json
import os
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from tests.interop import mxnet_cases
from tests.interop.mxnet_cases import CASES, symbol_text
from tests.interop.test_mxnet_symbols import Network, close, compare, expected, run, small_network

import weft as wf
import weft.functional as F
from weft.base.errors import GraphError
from weft.interop import mxnet
from weft.module import BatchNorm2d, Conv2d, Dropout, Flatten, Linear, Module, ReLU, Sequential
from weft.symbol import var

FOLDER = Path(__file__).parent
MXNET = os.environ.get("WEFT_TEST_MXNET")
with_mxnet = pytest.mark.skipif(
    MXNET is None, reason="WEFT_TEST_MXNET is not set to a Python that has mxnet 1.9.1"
)


@pytest.mark.daily(12)
@pytest.mark.parametrize("part", range(12))
def test_a_network_that_was_read_is_written_as_the_same(part):
    for k in range(part, len(CASES), 12):
        text = mxnet.dumps(mxnet.loads(symbol_text(CASES[k])))
        arrays = {f"x{n}": x for n, x in enumerate(mxnet_cases.values(CASES[k]))}
        answer = expected()[k]
        compare(run(text, arrays, answer["gradients"]), answer, CASES[k][0])


def test_the_text_of_a_symbol_is_what_mxnet_has():
    x = F.relu(F.linear(var("data"), out_features=4, name="fc"), name="act")
    y = F.concat(F.multiply(x, 2.0, name="twice"), F.subtract(1.0, x, name="rest"), axis=1, name="both")
    assert json.loads(mxnet.dumps(y)) == {
        "nodes": [
            {"op": "null", "name": "data", "inputs": []},
            {"op": "null", "name": "fc_weight", "inputs": []},
            {"op": "null", "name": "fc_bias", "inputs": []},
            {
                "op": "FullyConnected",
                "name": "fc",
                "attrs": {"num_hidden": "4", "no_bias": "False", "flatten": "False"},
                "inputs": [[0, 0, 0], [1, 0, 0], [2, 0, 0]],
            },
            {"op": "relu", "name": "act", "inputs": [[3, 0, 0]]},
            {"op": "_mul_scalar", "name": "twice", "attrs": {"scalar": "2.0"}, "inputs": [[4, 0, 0]]},
            {"op": "_rminus_scalar", "name": "rest", "attrs": {"scalar": "1.0"}, "inputs": [[4, 0, 0]]},
            {
                "op": "Concat",
                "name": "both",
                "attrs": {"dim": "1", "num_args": "2"},
                "inputs": [[5, 0, 0], [6, 0, 0]],
            },
        ],
        "arg_nodes": [0, 1, 2],
        "heads": [[7, 0, 0]],
        "attrs": {"mxnet_version": ["int", 10901]},
    }


def network():
    wf.random.seed(0)
    return Sequential(
        Conv2d(3, 4, 3, padding=1), BatchNorm2d(4), ReLU(), Dropout(0.5), Flatten(), Linear(4 * 36, 5)
    ).eval()


class AskingForSizes(Module):
    """Attention, whose heads are divided by sizes."""

    def __init__(self):
        super().__init__()
        self.into, self.out = Linear(8, 24), Linear(8, 8)

    def forward(self, x):
        n, t, _ = x.shape
        parts = F.permute_dims(F.reshape(self.into(x), (n, t, 3, 2, 4)), (2, 0, 3, 1, 4))
        y = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        return x + self.out(F.reshape(F.permute_dims(y, (0, 2, 1, 3)), (n, t, 8)))


def again(paths, *args):
    symbol, arrays = mxnet.load(*paths)
    return wf.module.SymbolModule(symbol, arrays).eval()(*args)


def test_a_module_is_written_with_the_names_of_its_parameters(tmp_path):
    net, x = network(), wf.random.normal(0, 1, (2, 3, 6, 6))
    paths = mxnet.save(net, None, tmp_path / "net", epoch=3)
    assert [Path(path).name for path in paths] == ["net-symbol.json", "net-0003.params"]
    assert {name[:4] for name in wf.load(paths[1])} == {"arg:", "aux:"}
    assert set(mxnet.load(*paths).arrays) == {n for n, _ in (*net.named_parameters(), *net.named_buffers())}
    assert np.array_equal(again(paths, x).numpy(), net(x).numpy())
    traced = wf.trace(net)
    assert Path(mxnet.save(net, None, tmp_path / "a")[0]).read_text() == Path(paths[0]).read_text()
    assert mxnet.save(traced, dict(net.state_dict()), tmp_path / "b")
    assert np.array_equal(
        again((tmp_path / "b-symbol.json", tmp_path / "b-0000.params"), x).numpy(), net(x).numpy()
    )


def test_a_function_that_asks_for_sizes_is_recorded(tmp_path):
    net, x = AskingForSizes(), wf.random.normal(0, 1, (2, 5, 8))
    with pytest.raises(AttributeError, match="shape"):
        mxnet.save(net, None, tmp_path / "net")
    net.train()
    paths = mxnet.save(net, None, tmp_path / "net", inputs=["x"], args=[x])
    assert net.training
    np.testing.assert_allclose(again(paths, x).numpy(), net(x).numpy(), atol=1e-6)


def test_the_network_of_a_file_is_written_after_training(tmp_path):
    symbol = mxnet.loads(small_network())
    shapes, _, states = symbol.infer_shape(data=(2, 3, 4, 4))
    arrays = {
        name: wf.random.uniform(0.1, 1, shape)
        for name, shape in zip(
            [*symbol.list_arguments(), *symbol.list_auxiliary_states()], [*shapes, *states], strict=True
        )
        if name not in ("data", "softmax_label")
    }
    net = wf.module.SymbolModule(symbol, arrays, inputs=["data", "softmax_label"])
    for p in net.parameters():
        p[...] = p * 0.5
    paths = mxnet.save(net, None, tmp_path / "net")
    x, labels = wf.random.normal(0, 1, (2, 3, 4, 4)), wf.zeros(2)
    y = wf.module.SymbolModule(*mxnet.load(*paths), inputs=["data", "softmax_label"]).eval()(x, labels)
    assert np.array_equal(y.numpy(), net.eval()(x, labels).numpy())
    assert "SoftmaxOutput" in Path(paths[0]).read_text()


def test_what_cannot_be_written_is_an_error(tmp_path):
    x = var("x")
    with pytest.raises(GraphError, match=r"mxnet\.save: digamma 'j': there is no rule for it"):
        mxnet.dumps(F.digamma(x, name="j"))
    with pytest.raises(GraphError, match=r"matmul 'm': the shape of input 0 is needed"):
        mxnet.dumps(F.matmul(x, var("y"), name="m"))
    text = mxnet.dumps(F.matmul(x, var("y"), name="m"), {"x": (2, 3), "y": (3, 4)})
    assert json.loads(text)["nodes"][-1]["op"] == "dot"
    with pytest.raises(GraphError, match="MXNet has no uint16"):
        mxnet.dumps(F.cast(x, dtype="uint16"))
    with pytest.raises(GraphError, match="an array of its own"):
        mxnet.dumps(x + wf.ones(3))
    with pytest.raises(GraphError, match="nothing reads the array 'z'"):
        mxnet.save(x * 2.0, {"z": wf.ones(3)}, tmp_path / "net")
    with pytest.raises(GraphError, match="no array for 'bn_running_mean'"):
        mxnet.save(F.batch_norm(x, name="bn"), {}, tmp_path / "net")
    with pytest.raises(TypeError, match="expected a symbol, a module"):
        mxnet.save(lambda x: 3, None, tmp_path / "net")
    assert not list(tmp_path.iterdir())


def test_constant_arrays_are_written_beside_parameters(tmp_path):
    variable = var("x")
    y = F.where(variable > 0.0, variable, wf.tensor([1.0, 2.0, 3.0]))
    paths = mxnet.save(y, {}, tmp_path / "net")
    x = wf.tensor([[1.0, -1.0, 0.0]])
    assert again(paths, x).numpy().tolist() == [[1.0, 2.0, 3.0]]


# ---- MXNet itself


def answers_of(networks, tmp_path, may_crash=False):
    """What MXNet computes; may_crash: None for networks that end its process."""
    (tmp_path / "networks.json").write_text(json.dumps(networks))
    command = [MXNET, str(FOLDER / "mxnet_reference.py"), str(tmp_path / "networks.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode < 0 and may_crash:
        half = len(networks) // 2
        parts = (networks[:half], networks[half:])
        return [a for part in parts for a in answers_of(part, tmp_path, True)] if half else [None]
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def as_array(described):
    return np.array([np.nan if v is None else v for v in described["values"]]).reshape(described["shape"])


@with_mxnet
def test_mxnet_computes_the_same_of_what_is_written(tmp_path):
    networks = []
    for k, case in enumerate(CASES):
        networks.append(
            {
                "symbol": mxnet.dumps(mxnet.loads(symbol_text(case))),
                "inputs": {f"x{n}": x.tolist() for n, x in enumerate(mxnet_cases.values(case))},
                "gradients": list(expected()[k]["gradients"]),
                "integers": [f"x{n}" for n, (_, kind) in enumerate(case[2]) if kind[0] == "I"],
            }
        )
    for k, answer in enumerate(answers_of(networks, tmp_path)):
        for key in ("inference", "training"):
            for y, described in zip(answer[key], expected()[k][key], strict=True):
                close(as_array(y), described, f"{CASES[k]} {key}")
        for key in ("gradients", "states"):
            assert answer[key].keys() == expected()[k][key].keys()
            for name, described in expected()[k][key].items():
                close(as_array(answer[key][name]), described, f"{CASES[k]} {key} {name}")


@with_mxnet
def test_mxnet_runs_modules(tmp_path):
    wf.random.seed(1)
    cases = [(network(), (2, 3, 6, 6), {}), (wf.module.LSTM(3, 4, num_layers=2), (5, 2, 3), {})]
    cases.append((AskingForSizes(), (2, 5, 8), {"args": [wf.ones((2, 5, 8))]}))
    cases.append(
        (wf.models.ResNet(wf.models.ResNetConfig(blocks=(1, 1), width=8, classes=4)), (2, 3, 16, 16), {})
    )
    networks, references = [], []
    for net, shape, options in cases:
        net.eval()
        x = wf.random.normal(0, 1, shape)
        symbol, params = mxnet.save(net, None, tmp_path / "net", **options)
        arrays = {name[4:]: array.numpy().tolist() for name, array in wf.load(params).items()}
        inputs = {**arrays, "data": x.numpy().tolist()}
        networks.append({"symbol": Path(symbol).read_text(), "inputs": inputs, "gradients": ["data"]})
        y = net(x)
        references.append((y if isinstance(y, wf.Tensor) else y[0]).numpy())
    for answer, reference in zip(answers_of(networks, tmp_path), references, strict=True):
        np.testing.assert_allclose(as_array(answer["inference"][0]), reference, rtol=1e-4, atol=1e-6)


# ---- Random networks of all operators that are read


# These have gradients of their own, in MXNet also behind operators that let none through: they come last. Of labels
# MXNet gives what memory holds.
LOSSES = ("Output", "MakeLoss", "make_loss")


class RandomNetwork(Network):
    """A few operators of CASES on each other: inputs come from values before, cut and formed as a case needs them."""

    def __init__(self, rng):
        super().__init__(attrs={"mxnet_version": ["int", 10901]})
        self.rng, self.inputs, self.gradients, self.integers = rng, {}, [], []
        self.values = []  # (node, output, number of elements)

    def variable(self, x, is_differentiable):
        name = f"x{len(self.inputs)}"
        self.inputs[name] = x
        if is_differentiable:
            self.gradients.append(name)
        return self.add("null", name)

    def unary(self, op, x, **attributes):
        return self.add(op, f"n{len(self.nodes)}", x, **attributes)

    def source(self, case, n, whole):
        """Input n of a case."""
        shape, kind = case[2][n]
        size = int(np.prod(shape))
        usable = [v for v in self.values if v[2] >= size]
        is_label = n > 0 and case[0].endswith(LOSSES)
        # MXNet writes ones to gamma, which may be the memory of beta where both are computed alike.
        # Its gradient of the slope of prelu is another where x is computed (test_slopes_of_prelu).
        is_slope = n > 0 and case[1].get("act_type") == "prelu"
        is_parameter = is_slope or (n > 0 and case[0] == "BatchNorm")
        is_variable = kind not in ("n", "p", "u", "c") or is_label or is_parameter
        if is_variable or not usable or self.rng.random() < 0.2:
            node = self.variable(whole, kind in ("n", "p", "u") and not is_label and not is_slope)
            if kind[0] == "I":
                self.integers.append(self.nodes[node]["name"])
            return node
        node, output, count = usable[self.rng.integers(len(usable))]
        node = self.add("Reshape", f"n{len(self.nodes)}", node, output=output, shape="(-1,)")
        if count > size:
            node = self.unary("slice_axis", node, axis="0", begin="0", end=str(size))
        node = self.unary("Reshape", node, shape=str(tuple(shape)))
        node = self.unary("tanh", node)
        if kind == "p":
            node = self.unary(
                "_plus_scalar", self.unary("abs", node), scalar="1.1" if case[0] == "arccosh" else "0.5"
            )
        elif kind == "u":
            node = self.unary("_mul_scalar", node, scalar="0.9")
        elif kind == "c":
            node = self.unary("BlockGrad", node)
        return node

    def grow(self, k):
        case, answer = CASES[k], expected()[k]
        arrays = mxnet_cases.values(case, int(self.rng.integers(1 << 30)))
        if case[0] == "arccosh":  # MXNet multiplies its NaN with the 0 that comparisons give back
            arrays = [x + 0.6 for x in arrays]
        sources = [self.source(case, n, x) for n, x in enumerate(arrays)]
        node = self.add(case[0], f"n{len(self.nodes)}", *sources, **case[1])
        self.last = node, len(answer["inference"]) - 1
        for output, described in enumerate(answer["inference"]):
            entry = (node, output, len(described["values"]))
            if not answer["gradients"] or described["dtype"] != "float32":
                block = self.add("Cast", f"n{len(self.nodes)}", node, output=output, dtype="float32")
                entry = (self.unary("BlockGrad", block), 0, entry[2])
            self.values.append(entry)


def random_network(seed, ks):
    network = RandomNetwork(np.random.default_rng(seed))
    *first, last = ks
    for k in [k for k in first if not CASES[k][0].endswith(LOSSES)] + [last]:
        network.grow(k)
    node, output = network.last
    document = json.loads(network.text(node))
    document["heads"] = [[node, output, 0]]
    used = {node}
    for at in range(len(document["nodes"]) - 1, -1, -1):
        if at in used:
            used |= {entry[0] for entry in document["nodes"][at]["inputs"]}
    names = {document["nodes"][at]["name"] for at in used}
    inputs = {name: x for name, x in network.inputs.items() if name in names}
    return {
        "symbol": json.dumps(document),
        "inputs": inputs,
        "gradients": [name for name in network.gradients if name in inputs],
        "integers": [name for name in network.integers if name in inputs],
    }


def check_random_networks(seeds, tmp_path):
    networks = []
    for seed in seeds:
        ks = np.random.default_rng(seed).integers(len(CASES), size=5)
        networks.append(random_network(seed, ks))
    asked = [{**n, "inputs": {name: x.tolist() for name, x in n["inputs"].items()}} for n in networks]
    written = [{**n, "symbol": mxnet.dumps(mxnet.loads(n["symbol"]))} for n in asked]
    answers = answers_of(asked + written, tmp_path, may_crash=True)
    assert answers.count(None) <= len(seeds) // 10, "MXNet ends its process for some shapes, but for few"
    for seed, network, answer, of_written in zip(
        seeds, networks, answers[: len(seeds)], answers[len(seeds) :], strict=True
    ):
        if answer is None or of_written is None:
            continue
        compare(run(network["symbol"], network["inputs"], answer["gradients"]), answer, f"seed {seed}")
        arrays = {
            key: {name: as_array(x) for name, x in of_written[key].items()} for key in ("gradients", "states")
        }
        results = {key: [as_array(y) for y in of_written[key]] for key in ("inference", "training")}
        if not answer[
            "gradients"
        ]:  # an operator there has none, those that are written in its place may have
            arrays["gradients"] = {}
        compare({**arrays, **results}, answer, f"seed {seed}, written")


def prelu(of_x, of_slope):
    """LeakyReLU(of_x(x), of_slope(slope)) of an x[2, 3, 2] and a slope[3], for MXNet and weft."""
    n = Network(attrs={"mxnet_version": ["int", 10901]})
    x, slope = n.add("null", "x"), n.add("null", "slope")
    x = n.add(of_x, "of_x", x) if of_x else x
    slope = n.add(of_slope, "of_slope", slope) if of_slope else slope
    text = n.text(n.add("LeakyReLU", "y", x, slope, act_type="prelu"))
    rng = np.random.default_rng(0)
    inputs = {"x": rng.normal(size=(2, 3, 2)).astype(np.float32)}
    return text, {**inputs, "slope": rng.normal(size=3).astype(np.float32)}


@pytest.mark.parametrize("of_x", [None, "tanh", "_copy"])
@pytest.mark.parametrize("of_slope", [None, "tanh"])
def test_slopes_of_prelu(of_x, of_slope, tmp_path):
    """The gradient is the derivative. MXNet 1.9.1 takes that of the slope from dx, if it has written dx over dy."""
    text, inputs = prelu(of_x, of_slope)
    found = run(text, inputs, ["x", "slope"])
    y = found["training"][0]
    weights = np.cos(np.arange(y.size)).reshape(y.shape)
    functions = {None: lambda x: x, "_copy": lambda x: x, "tanh": np.tanh}

    def total(x, slope):
        x, slope = functions[of_x](x), functions[of_slope](slope)[:, None]
        return (np.where(x > 0, x, slope * x) * weights).sum()

    wide = {name: x.astype(np.float64) for name, x in inputs.items()}
    for name, x in wide.items():
        slopes = np.empty(x.shape)
        for k in np.ndindex(x.shape):
            step = np.zeros(x.shape)
            step[k] = 1e-6
            slopes[k] = (total(**{**wide, name: x + step}) - total(**{**wide, name: x - step})) / 2e-6
        np.testing.assert_allclose(found["gradients"][name], slopes, rtol=1e-4, atol=1e-5)
    if MXNET is None:
        return
    asked = {
        "symbol": text,
        "inputs": {k: x.tolist() for k, x in inputs.items()},
        "gradients": ["x", "slope"],
    }
    (answer,) = answers_of([asked], tmp_path)
    np.testing.assert_allclose(as_array(answer["training"][0]), y, rtol=1e-5)
    np.testing.assert_allclose(as_array(answer["gradients"]["x"]), found["gradients"]["x"], rtol=1e-4)
    theirs = found["gradients"]["slope"]
    if of_x:
        theirs = theirs * functions[of_slope](inputs["slope"])
        assert abs(theirs - found["gradients"]["slope"]).max() > 0.01
    np.testing.assert_allclose(as_array(answer["gradients"]["slope"]), theirs, rtol=1e-4, atol=1e-6)


@with_mxnet
def test_random_networks(tmp_path):
    check_random_networks(range(10), tmp_path)


@with_mxnet
@pytest.mark.full
@pytest.mark.timeout(900)
def test_random_networks_for_200_seconds(tmp_path):
    seed, end = int(time.time()), time.monotonic() + 200
    while time.monotonic() < end:
        check_random_networks(range(seed, seed + 40), tmp_path)
        seed += 40
