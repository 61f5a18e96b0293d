"""What is exported to ONNX computes the same in ONNX Runtime, and read again."""

import contextlib

import numpy as np
import onnx
import onnxruntime as runtime
import pytest
from tests.fuzzing import SEED
from tests.interop import onnx_operators, onnx_table
from tests.ops.support import OPERATORS

import weft as wf
import weft.functional as F
from weft import models
from weft.base.errors import DTypeError, GraphError, ShapeError
from weft.base.structure import tree_leaves

export, load = wf.interop.onnx.export, wf.interop.onnx.load


def normal(*shape, seed=0):
    return wf.tensor(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def words(*shape, seed=0):
    return wf.tensor(np.random.default_rng(seed).integers(0, 50, shape))


def check(function, examples, others=(), path=None, **options):
    """The model, which gives what the function gives of examples, and of others, arrays of other sizes."""
    model = export(function, examples, path, **options)
    onnx.checker.check_model(str(path) if path is not None else model, full_check=True)
    precise = runtime.SessionOptions()  # sums of products of bytes, which AVX2's instruction cuts at 16 bits
    precise.add_session_config_entry("session.x64quantprecision", "1")
    session = runtime.InferenceSession(str(path) if path is not None else model.SerializeToString(), precise)
    names, again = [each.name for each in session.get_inputs()], load(path if path is not None else model)
    for arrays in filter(None, (examples, others)):
        want = tree_leaves(function(*arrays))
        got = session.run(None, {name: x.numpy() for name, x in zip(names, arrays, strict=True)})
        read = again(*arrays)
        for results in (got, [y.numpy() for y in (read if isinstance(read, tuple) else (read,))]):
            for y, w in zip(results, want, strict=True):
                limit = 1e-5 * max(1.0, np.abs(w.numpy()).max(initial=0))  # sums round as their terms do
                np.testing.assert_allclose(y, w.numpy(), rtol=1e-4, atol=limit)
    return model


BERT = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 16,
}
GPT2 = {"vocab_size": 50, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
BATCH, TEXT = {"x0": {0: "n"}}, {"x0": {0: "n", 1: "t"}}
RESNET = models.ResNetConfig(blocks=(1, 2), bottleneck=False, width=8, classes=10)
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2))
IMAGES = normal(2, 3, 32, 32), normal(3, 3, 32, 32), BATCH
MODELS = {
    "resnet": (lambda: models.ResNet(RESNET), *IMAGES),
    "mobilenet": (
        lambda: models.MobileNetV2(models.MobileNetV2Config(stages=STAGES, width=0.5, classes=10)),
        *IMAGES,
    ),
    "bert": (lambda: models.Bert(models.BertConfig(**BERT)), words(2, 6), words(3, 9), TEXT),
    "gpt2": (lambda: models.GPT2(models.GPT2Config(**GPT2)), words(2, 6), words(3, 9), TEXT),
}
LONG = {
    "resnet18": (models.resnet18, *IMAGES),
    "mobilenet_v2": (models.mobilenet_v2, *IMAGES),
    "resnet50": (models.resnet50, normal(2, 3, 64, 64), normal(3, 3, 64, 64), BATCH),
}


@pytest.mark.parametrize("name", [*MODELS, *(pytest.param(name, marks=pytest.mark.full) for name in LONG)])
def test_models_are_exported_for_all_sizes(name):
    make, example, other, dynamic = {**MODELS, **LONG}[name]
    net = make()
    net.eval()
    initializers = {each.name for each in check(net, [example], [other], dynamic=dynamic).graph.initializer}
    assert {parameter for parameter, _ in net.named_parameters()} & initializers


def test_recurrent_layers_are_exported_as_such():
    for make, operator in ((wf.module.LSTM, "LSTM"), (wf.module.GRU, "GRU"), (wf.module.RNN, "RNN")):
        for options in ({}, {"num_layers": 2, "bidirectional": True}):
            model = check(make(4, 6, **options), [normal(5, 3, 4)])
            assert operator in [node.op_type for node in model.graph.node]


def test_functions_traces_and_symbols_are_exported():
    def f(x, y):
        return F.softmax(x @ y, axis=-1), (x * 2).sum(axis=0)

    for function in (f, wf.trace(f)):
        check(function, [normal(4, 3), normal(3, 5)], inputs=["a", "b"], outputs=["p", "q"])
    symbol = F.relu(F.linear(wf.symbol.var("x"), out_features=2, name="fc"))
    net = wf.module.SymbolModule(symbol, {"fc_weight": normal(2, 3), "fc_bias": normal(2)})
    check(net, [normal(4, 3)], [normal(5, 3)], dynamic=BATCH)
    arrays = {"x": normal(4, 3), "fc_weight": normal(2, 3), "fc_bias": normal(2)}
    for given, names in ((["x"], ["x"]), (["x", "fc_bias"], ["x", "fc_bias"])):
        model = export(symbol, arrays, inputs=given)
        assert [each.name for each in model.graph.input] == names
        np.testing.assert_allclose(
            load(model)(**{n: arrays[n] for n in names}).numpy(), net(arrays["x"]).numpy()
        )
    model = export(symbol, {"x": normal(4, 3)}, inputs=["x"])
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
    assert shapes == {"x": [4, 3], "fc_weight": [2, 3], "fc_bias": [2]}
    with pytest.raises(TypeError, match="arrays by the names of its arguments, got list"):
        export(symbol, [normal(4, 3)])
    with pytest.raises(GraphError, match="the shapes of x do not follow"):
        export(symbol, {"fc_weight": normal(2, 3), "fc_bias": normal(2)})


W = normal(4, 4, seed=3)


def branch(x):
    return wf.cond(x.sum() > 0, lambda x: F.tanh(x @ W), lambda x: x * 2, x)


def scan(x):
    return wf.foreach(lambda row, state: (state * 2 + row @ W, F.tanh(state + row @ W)), x, x.sum(axis=0) * 0)


def grow(x):
    def condition(x, k):
        return F.logical_and(x.sum() < 100, k < 50)

    return wf.while_loop(condition, lambda x, k: (F.abs(x) * 1.5 + F.abs(W[0]), k + 1), x, wf.tensor(0))


def nested(x):
    def body(row, state):
        grown = wf.while_loop(lambda y: y.sum() < 5, lambda y: y + F.abs(row) + 0.1, state, max_iterations=9)
        return wf.cond(row.sum() > 0, lambda: grown @ W, lambda: grown * 0.5), grown * 0.1

    return wf.foreach(body, x, x.sum(axis=0))


CONTROL = {
    "If": [branch, wf.grad(lambda x: branch(x).sum())],
    "Loop": [grow],
    "Scan": [
        scan,
        nested,
        wf.grad(lambda x: scan(x)[0].sum() + (scan(x)[1] ** 2).sum()),
        lambda x: wf.foreach(lambda row, _: (row, ()), x, ())[0],
        lambda x: wf.foreach(lambda row, state: ((), state + row), x, x.sum(axis=0))[1],
    ],
}


def test_control_flow_is_exported():
    for operator, functions in CONTROL.items():
        for function in functions:
            for x in (normal(5, 4), normal(1, 4, seed=1)):
                model = check(function, [x])
                assert operator in [node.op_type for node in model.graph.node]
    for function in (branch, scan, nested):
        check(function, [normal(5, 4)], [normal(7, 4, seed=1)], dynamic=BATCH)
    empty = wf.zeros((0, 4))
    assert [node.op_type for node in check(scan, [empty]).graph.node].count("Scan") == 0
    with pytest.raises(GraphError, match=r"while_loop: the gradient of a while_loop is not exported"):
        export(wf.grad(lambda x: grow_at_most(x).sum()), [normal(4)])
    with pytest.raises(GraphError, match=r"draws random numbers"):
        export(
            lambda x: wf.cond(x.sum() > 0, lambda: F.dropout(x, 0.5, training=True), lambda: x), [normal(4)]
        )


def grow_at_most(x):
    return wf.while_loop(lambda x: x.sum() < 9, lambda x: x * x + 1, x, max_iterations=3)


class Small(wf.module.Module):
    def __init__(self):
        self.conv, self.head = wf.module.Conv2d(1, 8, 3, padding=1), wf.module.Linear(8 * 4, 64)

    def forward(self, x):
        return self.head(F.max_pool2d(F.relu(self.conv(x)), 2).reshape(x.shape[0], -1))


def test_quantized_networks_are_exported():
    """Rounded networks as pairs of QuantizeLinear and DequantizeLinear; converted ones with their integers."""
    x, q = normal(3, 1, 4, 4), wf.quantization
    for config, operators in (
        ("min_max", ({"Conv", "Gemm"}, {"Conv", "MatMulInteger"})),
        ("dynamic", ({"Gemm"}, {"MatMulInteger"})),
        ("int4_weight", (set(), set())),
    ):
        simulated = q.calibrate(Small().eval(), [x], qconfig=config).eval()
        for network, expected in zip((simulated, q.convert(simulated)), operators, strict=True):
            nodes = [node.op_type for node in check(network, [x]).graph.node]
            assert expected <= set(nodes)
            if network is simulated and config == "min_max":
                assert nodes.count("QuantizeLinear") == nodes.count("DequantizeLinear") == 4

    def int4(x, scale):
        return F.fake_quantize(x, scale, axis=0, low=-8, high=7)

    for opset, code in ((21, 22), (20, 3)):
        model = check(int4, [normal(3, 4) * 5, F.abs(normal(3)) + 0.1], opset=opset)
        types = onnx.shape_inference.infer_shapes(model).graph.value_info
        rounded = {each.name: each.type.tensor_type.elem_type for each in types}
        node = next(node for node in model.graph.node if node.op_type == "QuantizeLinear")
        assert rounded[node.output[0]] == code


def test_modes_of_modules_are_as_before():
    net = wf.module.Sequential(wf.module.Linear(3, 4), wf.module.Dropout(0.5), wf.module.BatchNorm1d(4))
    assert [node.op_type for node in export(net, [normal(4, 3)]).graph.node][:2] == [
        "Gemm",
        "BatchNormalization",
    ]
    assert all(module.training for _, module in net.named_modules())


def operators_of(model):
    return [node.op_type for node in model.graph.node]


def test_what_follows_from_constants_is_computed_once():
    net = wf.module.Linear(40, 30)
    model = check(net, [normal(2, 4, 40)])
    assert operators_of(model) == ["MatMul", "Add", "Identity"]
    assert sum(len(each.raw_data) for each in model.graph.initializer) == 31 * 40 * 4 - 10 * 4
    layer = wf.module.LSTM(4, 6, num_layers=2, bidirectional=True)
    assert "Gather" not in operators_of(check(layer, [normal(5, 3, 4)]))
    table = wf.module.Embedding(50, 30)

    def tied(words):
        return F.linear(table(words), table.weight)

    model = check(tied, [words(2, 6)])
    assert operators_of(model).count("Transpose") == 1
    assert sum(len(each.raw_data) for each in model.graph.initializer) < 2 * 50 * 30 * 4
    w = normal(40, 4)

    def inside(x):
        return wf.foreach(lambda row, state: (row, state + row @ w.T), x, x[0] @ w.T)[1]

    (node,) = (n for n in check(inside, [normal(3, 4)]).graph.node if n.op_type == "Scan")
    assert "Transpose" not in [n.op_type for each in node.attribute for n in each.g.node]


def test_bits_of_sizes_are_exported():
    def f(x):
        n = x.shape[0]
        return x.reshape((n << 1, 2)), wf.ones((n >> 1, 4)), wf.ones(((n & 3) + 1,))

    for sizes in ((5, 6), (6, 7)):
        first, *others = (normal(n, 4) for n in (*sizes, 11))
        for other in others:
            check(f, [first], [other], dynamic=BATCH)


def test_quotients_of_negative_sizes_are_rounded_down():
    def f(x):
        n = x.shape[0]
        return wf.ones(((n - 6) // 2 + 4, 2)), x.reshape((-((-n) // 1), 4)), wf.ones((n // -2 + 9,))

    for n in (5, 6, 3, 7):
        check(f, [normal(9, 4)], [normal(n, 4)], dynamic=BATCH)


def test_large_constants_are_beside_the_model(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.interop.onnx.export_model.MAX_BYTES", 100)
    net = wf.module.Linear(30, 20)
    for _ in range(2):
        check(net, [normal(4, 30)], path=tmp_path / "net.onnx")
        assert (tmp_path / "net.onnx.data").stat().st_size == 30 * 20 * 4
    with pytest.raises(ValueError, match="need a path"):
        export(net, [normal(4, 30)])


def test_what_is_not_exported_is_named():
    with pytest.raises(GraphError, match=r"cholesky: there is no rule.*\n.*test_onnx_export.py"):
        export(lambda x: F.cholesky(x), [normal(3, 3)])
    with pytest.raises(GraphError, match="draws random numbers"):
        export(lambda x: F.dropout(x, 0.5, training=True), [normal(3, 3)])
    with pytest.raises(GraphError, match=r"depends on sizes of dynamic axes: .*d0"):
        export(lambda x: x + 1 if x.shape[0] > 5 else x, [normal(3, 3)], dynamic=BATCH)
    net = wf.module.BatchNorm1d(3)
    with pytest.raises(GraphError, match="writes to arrays outside"):
        export(lambda x: net(x), [normal(4, 3)])
    with pytest.raises(GraphError, match=r"refuses the model: .*Tan.*bfloat16"):
        export(F.tan, [normal(3).astype("bfloat16")])
    with pytest.raises(ValueError, match="opset must be 18 to 26, got 17"):
        export(F.relu, [normal(3, 3)], opset=17)
    with pytest.raises(ValueError, match="no input 'z'; the inputs are x0"):
        export(F.relu, [normal(3, 3)], dynamic={"z": {0: "n"}})
    with pytest.raises(ValueError, match="axis 2 is out of range"):
        export(F.relu, [normal(3, 3)], dynamic={"x0": {2: "n"}})


def several(x):
    """Operators that changed between opsets, in control flow and in functions."""
    y = F.gelu(F.layer_norm(x.reshape((-1, 1, 3)).swapaxes(0, 1), 3)).sum(axis=1)
    low = F.fake_quantize(y, wf.tensor(0.25), low=-128, high=127)
    return branch(scan(F.pad(low + F.relu(y), (0, 1)))[0]), F.cumulative_sum(x, axis=1), F.isnan(x)


@pytest.mark.parametrize("opset", range(7, 27))
def test_other_opsets(opset):
    if opset < 18:
        with pytest.raises(ValueError, match=f"opset must be 18 to 26, got {opset}"):
            export(several, [normal(4, 3)], opset=opset)
        return
    model = check(several, [normal(4, 3)], opset=opset)
    assert model.opset_import[0].version == opset
    assert {"If", "Scan", "QuantizeLinear"} <= set(operators_of(model))


def test_operators_of_opset_26():
    x = normal(4, 3)
    for function, operator in (
        (lambda x: F.cumulative_prod(x, axis=1), "CumProd"),
        (lambda x: F.nextafter(x, x * 2), "BitCast"),
        (lambda x: F.from_float8(F.to_float8(x, "e4m3"), "e4m3"), "BitCast"),
    ):
        assert operator in operators_of(check(function, [x], opset=26))
        with pytest.raises(GraphError, match="from opset 26 on"):
            export(function, [x], opset=25)


def compare(operators):
    """Raises AssertionError unless all but the known operators are exported."""
    known, wrong, written = onnx_operators.refused(), [], set()
    for cls in operators:
        try:
            written |= onnx_operators.outcome(cls)
        except Exception as error:
            if cls.name not in known or not isinstance(error, GraphError):
                wrong.append(f"{cls.name}: {error}")
        else:
            if cls.name in known:
                wrong.append(f"{cls.name} is exported: take it out of onnx_refused.txt")
    assert not wrong, "\n".join(wrong)
    return written


@pytest.mark.filterwarnings("ignore")
def test_operators_are_exported():
    assert compare(OPERATORS[SEED % 25 :: 25]) <= onnx_table.written()


@pytest.mark.daily(5)
@pytest.mark.filterwarnings("ignore")
def test_the_table_of_operators_is_as_it_is_made():
    assert onnx_table.PAGE.read_text() == onnx_table.render(onnx_table.written())


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_all_operators_are_exported():
    assert compare(OPERATORS) | onnx_table.CONTROL == onnx_table.written()


def test_constants_of_bfloat16_stay_that():
    def signs(x):
        return F.sign(x), F.lerp(x, x * 2, 0.25)

    x = normal(3).astype("bfloat16")
    for y, want in zip(load(export(signs, [x]))(x), signs(x), strict=True):
        assert y.dtype is wf.bfloat16
        np.testing.assert_array_equal(y.astype("float32").numpy(), want.astype("float32").numpy())


def test_products_of_nothing_are_exported():
    for x in (
        wf.zeros((3, 0)),
        wf.zeros((0, 3)),
        wf.zeros((3, 0), dtype="bool"),
        wf.zeros((0, 3), dtype="bool"),
    ):
        check(F.cov, [x])


@pytest.mark.filterwarnings("ignore")
def test_damaged_models_are_refused_or_run(tmp_path):
    """Bytes at random places are others: nothing but errors of files, operators and their operands."""
    images = normal(3, 1, 4, 4)
    rounded = wf.quantization.calibrate(Small().eval(), [images]).eval()
    whole = [(scan, normal(5, 4)), (branch, normal(5, 4)), (rounded, images)]
    files = [(export(function, [x]).SerializeToString(), x) for function, x in whole]
    rng, path = np.random.default_rng(SEED), tmp_path / "net.onnx"
    for k in range(90):
        content, x = files[k % 3]
        damaged = np.frombuffer(content, np.uint8).copy()
        places = rng.integers(len(content), size=rng.integers(1, 4))
        damaged[places] = rng.integers(256, size=places.size)
        path.write_bytes(damaged.tobytes())
        with contextlib.suppress(
            wf.FileFormatError, GraphError, ShapeError, DTypeError, IndexError, TypeError, ValueError
        ):
            net = load(path)
            net(*[x] * len(net.inputs))
