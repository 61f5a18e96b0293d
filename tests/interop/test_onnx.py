"""Models of ONNX become modules that compute what the node tests of the package onnx say."""

import numpy as np
import onnx
import onnxruntime as runtime
import pytest
from tests.fuzzing import SEED
from tests.interop import onnx_nodes

import weft as wf
from weft.base.errors import GraphError
from weft.interop import onnx as readers
from weft.interop.onnx import narrow

h = onnx.helper
FLOAT = onnx.TensorProto.FLOAT


def check(cases):
    """Raises AssertionError unless all but the known gaps pass."""
    gaps, wrong = onnx_nodes.gaps(), []
    for case in cases:
        try:
            onnx_nodes.run(case)
        except Exception as error:
            if case.name not in gaps:
                wrong.append(f"{case.name}: {error}")
        else:
            if gaps.get(case.name, onnx_nodes.RANDOM) != onnx_nodes.RANDOM:
                wrong.append(f"{case.name} passes: take it out of onnx_gaps.txt")
    assert not wrong, "\n".join(wrong)


@pytest.mark.filterwarnings("ignore")
def test_node_tests_of_onnx():
    check(onnx_nodes.cases((SEED % 20, 20)))


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_all_node_tests_of_onnx():
    check(onnx_nodes.cases())


def model(nodes, inputs, outputs, constants=(), opset=21):
    values = [
        [h.make_tensor_value_info(name, FLOAT, shape) for name, shape in each] for each in (inputs, outputs)
    ]
    initializers = [onnx.numpy_helper.from_array(np.asarray(x), name) for name, x in dict(constants).items()]
    graph = h.make_graph(nodes, "net", *values, initializers)
    return h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=10)


def linear():
    """relu(x w + b), reshaped by the size of x, as exporters write it."""
    nodes = [
        h.make_node("Gemm", ["x", "w", "b"], ["y"]),
        h.make_node("Relu", ["y"], ["z"]),
        h.make_node("Shape", ["x"], ["sizes"]),
        h.make_node("Gather", ["sizes", "zero"], ["n"]),
        h.make_node("Concat", ["n", "rest"], ["target"], axis=0),
        h.make_node("Reshape", ["z", "target"], ["out"]),
    ]
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.normal(size=(4, 6)).astype(np.float32),
        "b": rng.normal(size=6).astype(np.float32),
        "zero": np.array([0]),
        "rest": np.array([2, 3]),
    }
    return model(nodes, [("x", ["n", 4])], [("out", None)], constants), constants


def test_a_model_is_a_module_with_parameters(tmp_path):
    proto, constants = linear()
    onnx.save_model(proto, tmp_path / "net.onnx")
    net = readers.load(tmp_path / "net.onnx")
    assert (net.inputs, net.outputs) == (("x",), ("out",))
    assert {name: p.shape for name, p in net.named_parameters()} == {"w": (4, 6), "b": (6,)}
    x = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    expected = np.maximum(x @ constants["w"] + constants["b"], 0).reshape(5, 2, 3)
    traced = wf.trace(net)
    for call in (net, traced, traced):
        np.testing.assert_allclose(call(wf.tensor(x)).numpy(), expected, rtol=1e-5, atol=1e-6)
    gradient = wf.grad(lambda parameters: net.functional_call(parameters, x).sum())(
        dict(net.named_parameters())
    )
    np.testing.assert_allclose(gradient["b"].numpy(), (expected > 0).reshape(5, 6).sum(0))
    net.load_state_dict({"w": wf.zeros((4, 6)), "b": wf.ones(6)})  # the file's memory could not be written
    np.testing.assert_array_equal(net(wf.tensor(x)).numpy(), np.ones((5, 2, 3)))


def with_location(proto, location):
    """The model with its external data in another file, of a shorter path."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for each in copy.graph.initializer:
        for entry in each.external_data:
            if entry.key == "location":
                entry.value = location
    return copy.SerializeToString()


def test_external_data_is_in_the_folder_of_the_model(tmp_path):
    proto, _ = linear()
    folder = tmp_path / "net"
    (folder / "part").mkdir(parents=True)
    options = {"save_as_external_data": True, "size_threshold": 0, "location": "weights.bin"}
    onnx.save_model(proto, folder / "net.onnx", **options)
    proto = onnx.load_model(folder / "net.onnx", load_external_data=False)
    assert readers.load(folder / "net.onnx")(wf.ones((2, 4))).shape == (2, 2, 3)
    for name in ("part/weights.bin", "../weights.bin"):
        (folder / name).write_bytes((folder / "weights.bin").read_bytes())
    (folder / "net.onnx").write_bytes(with_location(proto, "part/weights.bin"))
    assert readers.load(folder / "net.onnx")(wf.ones((2, 4))).shape == (2, 2, 3)
    (folder / "part" / "link").symlink_to(tmp_path / "weights.bin")
    for outside in (
        "../weights.bin",
        "part/../../weights.bin",
        str(tmp_path / "weights.bin"),
        "part/link",
        "",
    ):
        (folder / "net.onnx").write_bytes(with_location(proto, outside))
        with pytest.raises(wf.FileFormatError, match="not in the folder of the model"):
            readers.load(folder / "net.onnx")


def test_what_is_not_supported_is_named(tmp_path):
    with pytest.raises(GraphError, match=r"node 'r': operator RegexFullMatch of ai.onnx, opset 21, is not"):
        readers.load(
            model([h.make_node("RegexFullMatch", ["x"], ["y"], name="r")], [("x", [1])], [("y", None)])
        )
    with pytest.raises(GraphError, match=r"opset 6 of ai.onnx; weft reads 7 to 28"):
        readers.load(model([h.make_node("Relu", ["x"], ["y"])], [("x", [1])], [("y", None)], opset=6))
    proto = model([h.make_node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml")], [("x", [1])], [("y", None)])
    proto.opset_import[0].CopyFrom(h.make_opsetid("ai.onnx.ml", 3))
    with pytest.raises(GraphError, match=r"operator Binarizer of ai.onnx.ml, opset 3, is not supported"):
        readers.load(proto)
    proto.graph.node[0].CopyFrom(h.make_node("Relu", ["x"], ["y"]))
    with pytest.raises(GraphError, match=r"operator Relu of ai.onnx, of which the model imports no opset"):
        readers.load(proto)
    del proto.opset_import[:]
    with pytest.raises(GraphError, match=r"opset 1 of ai.onnx; weft reads 7 to 28"):
        readers.load(proto)
    (tmp_path / "net.onnx").write_bytes(b"\xff" * 100)
    with pytest.raises(wf.FileFormatError, match="not a model of ONNX"):
        readers.load(tmp_path / "net.onnx")
    with pytest.raises(wf.FileFormatError, match=r"Relu 'Relu0' reads 'z', which nothing computes before it"):
        readers.load(model([h.make_node("Relu", ["z"], ["y"])], [("x", [1])], [("y", None)]))
    with pytest.raises(wf.FileFormatError, match=r"nothing computes the output 'z'"):
        readers.load(model([h.make_node("Relu", ["x"], ["y"])], [("x", [1])], [("z", None)]))
    slices = h.make_node("Slice", ["", "one", "one", "one", "one"], ["y"], name="s")
    with pytest.raises(GraphError, match=r"Slice 's': an input that it needs is left out"):
        load_with([slices], [("x", [1])], [("y", None)], constants={"one": np.array([1])})
    net = readers.load(linear()[0])
    with pytest.raises(TypeError, match="no array for 'x'"):
        net()
    with pytest.raises(TypeError, match="no input 'z'"):
        net(wf.ones((2, 4)), z=1)


def test_bytes_that_a_file_of_constants_does_not_have_are_refused(tmp_path):
    proto, _ = linear()
    options = {"save_as_external_data": True, "size_threshold": 0, "location": "weights.bin"}
    onnx.save_model(proto, tmp_path / "net.onnx", **options)
    proto = onnx.load_model(tmp_path / "net.onnx", load_external_data=False)
    entries = {each.key: each for each in proto.graph.initializer[0].external_data}
    for key, value in (("length", "1000000000000"), ("offset", "1000"), ("length", "-1"), ("offset", "many")):
        before, entries[key].value = entries[key].value, value
        (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
        entries[key].value = before
        with pytest.raises(wf.FileFormatError, match=r"of a file of \d+|invalid literal"):
            readers.load(tmp_path / "net.onnx")


def grown(size):
    """A model that makes an array of this size of constants, in several ways."""
    nodes = [
        h.make_node("ConstantOfShape", ["size"], ["zeros"]),
        h.make_node("Expand", ["one", "size"], ["ones"]),
        h.make_node("Tile", ["one", "size"], ["tiled"]),
        h.make_node("Range", ["start", "limit", "step"], ["line"]),
        h.make_node("Pad", ["one", "pads"], ["padded"]),
        h.make_node("OneHot", ["start", "limit", "pair"], ["hot"]),
        h.make_node("Sum", ["zeros", "ones", "tiled", "line", "padded", "hot", "x"], ["y"]),
    ]
    constants = {
        "size": np.array([size]),
        "one": np.ones(1, np.float32),
        "start": np.array(0, np.float32),
        "limit": np.array(size, np.float32),
        "step": np.array(1, np.float32),
        "pads": np.array([0, size - 1]),
        "pair": np.array([0, 1], np.float32),
    }
    return model(nodes, [("x", [1])], [("y", None)], constants)


def test_a_small_file_does_not_make_loading_take_much_memory():
    steps = [step.call.operator for step in readers.load(grown(1 << 40)).graph.steps]
    assert steps == ["ConstantOfShape", "Expand", "Tile", "Range", "Pad", "OneHot", "Sum"]
    net = readers.load(grown(1 << 10))
    assert [step.call.operator for step in net.graph.steps] == ["Sum"]
    assert net(wf.zeros(1)).shape == (1 << 10,)


def call_twice(name):
    return [h.make_node(name, [a], [b], domain="own") for a, b in (("a", "m"), ("m", "b"))]


def test_functions_that_multiply_are_refused(monkeypatch):
    monkeypatch.setattr("weft.interop.onnx.network.MAX_STEPS", 1000)
    opset = h.make_opsetid("", 21), h.make_opsetid("own", 1)
    call = [call_twice(f"F{k}") for k in range(20)]
    body = [h.make_node("Relu", ["a"], ["b"])]
    functions = [h.make_function("own", "F0", ["a"], ["b"], body, opset)]
    functions += [h.make_function("own", f"F{k + 1}", ["a"], ["b"], call[k], opset) for k in range(20)]
    proto = model([h.make_node("F20", ["x"], ["y"], domain="own")], [("x", [1])], [("y", None)])
    proto.functions.extend(functions)
    proto.opset_import.append(opset[1])
    with pytest.raises(wf.FileFormatError, match="more than 1000 nodes"):
        readers.load(proto)


def load_with(nodes, inputs, outputs, **more):
    return readers.load(model(nodes, inputs, outputs, **more))


def test_a_mask_of_dropout_is_of_what_was_drawn():
    node = h.make_node("Dropout", ["x", "ratio", "training"], ["y", "mask"])
    constants = {"ratio": np.float32(0.5), "training": np.array(True)}
    net = load_with([node], [("x", [64])], [("y", None), ("mask", None)], constants=constants)
    x = np.arange(64, dtype=np.float32) % 2
    y, mask = (result.numpy() for result in net(wf.tensor(x)))
    assert 0 < mask[x == 0].sum() < 32
    np.testing.assert_array_equal(y, np.where(mask, x * 2, 0))


def loop_body(*nodes):
    """Of a state of three floats, from which the nodes compute on, next and row."""
    info = h.make_tensor_value_info
    types = (("k", onnx.TensorProto.INT64, []), ("go", onnx.TensorProto.BOOL, []), ("state", FLOAT, [3]))
    results = (("on", onnx.TensorProto.BOOL, []), ("next", FLOAT, [3]), ("row", FLOAT, [3]))
    return h.make_graph(nodes, "body", [info(*each) for each in types], [info(*each) for each in results])


@pytest.mark.filterwarnings("ignore::weft.TraceWarning")  # a loop that waits for its condition stops a trace
@pytest.mark.parametrize("most", [3, 20])
def test_gradients_of_loops(most):
    """For as long as the sum is below 50, at most so often: state *= w."""
    body = loop_body(
        h.make_node("Mul", ["state", "w"], ["next"]),
        h.make_node("Identity", ["next"], ["row"]),
        h.make_node("ReduceSum", ["next"], ["total"], keepdims=0),
        h.make_node("Less", ["total", "limit"], ["on"]),
    )
    w, x = np.array([2, 1.5, 3], "float32"), np.array([1, 2, 1], "float32")
    constants = {"most": most, "first": True, "w": w, "limit": np.float32(50)}
    loop = h.make_node("Loop", ["most", "first", "x"], ["last", "rows"], body=body)
    net = load_with([loop], [("x", [3])], [("last", None), ("rows", None)], constants=constants)
    steps = min(most, 4)

    def total(x):
        last, rows = net(x)
        return last.sum() + rows.sum()

    powers = sum(w**k for k in range(1, steps + 1)) + w**steps
    for function in (wf.grad(total), wf.trace(wf.grad(total))):
        np.testing.assert_allclose(function(wf.asarray(x)).numpy(), powers, rtol=1e-5)
    manager = wf.GradManager().attach(net)
    with manager:
        manager.backward(total(wf.asarray(x)))
    slopes = sum(k * w ** (k - 1) for k in range(1, steps + 1)) + steps * w ** (steps - 1)
    (parameter,) = (p for p in net.parameters() if p.shape == (3,))
    np.testing.assert_allclose(parameter.grad.numpy(), x * slopes, rtol=1e-5)


def test_a_loop_without_steps_has_empty_outputs():
    body = loop_body(
        h.make_node("Identity", ["go"], ["on"]),
        h.make_node("Identity", ["state"], ["next"]),
        h.make_node("Identity", ["state"], ["row"]),
    )
    loop = h.make_node("Loop", ["count", "", "x"], ["last", "rows"], body=body)
    for count in (0, 2):
        net = load_with([loop], [("x", [3])], [("last", None), ("rows", None)], constants={"count": count})
        last, rows = net(wf.ones(3))
        assert (last.shape, rows.shape, rows.dtype) == ((3,), (count, 3), wf.float32)
    body.output[2].type.tensor_type.ClearField("shape")
    loop = h.make_node("Loop", ["count", "", "x"], ["last", "rows"], body=body)
    net = load_with([loop], [("x", [3])], [("last", None), ("rows", None)], constants={"count": 0})
    with pytest.raises(GraphError, match="does not declare the shape"):
        net(wf.ones(3))


def test_narrow_floats_are_rounded_as_by_ml_dtypes():
    rng = np.random.default_rng(0)
    with np.errstate(over="ignore"):
        x = np.concatenate([rng.normal(size=400) * 2.0 ** rng.integers(-20, 18, 400), [0.0, -0.0, 1e9, -1e9]])
    edges = np.arange(256, dtype=np.uint8)
    for code, kind in narrow.NARROW.items():
        if code in narrow.INTEGERS:
            continue
        values = edges[: 2 * narrow.FINITE.get(code, 128)].view(kind).astype(np.float32)
        values = np.unique(values[np.isfinite(values)])
        inputs = np.concatenate([x.astype(np.float32), values, (values[1:] + values[:-1]) / 2])
        limit = values.max()
        for saturate in (0, 1):
            node = h.make_node("Cast", ["x"], ["y"], to=code, saturate=saturate)
            net = load_with([node], [("x", inputs.shape)], [("y", None)])
            want = (np.clip(inputs, -limit, limit) if saturate else inputs).astype(kind).astype(np.float32)
            for call in (net, wf.trace(net)):
                np.testing.assert_array_equal(
                    call(wf.tensor(inputs)).numpy(), want, err_msg=str((code, saturate))
                )


def test_lists_are_sequences():
    kinds = [h.make_tensor_sequence_value_info("s", FLOAT, None), h.make_tensor_value_info("x", FLOAT, [2])]
    nodes = [
        h.make_node("SequenceInsert", ["s", "x", "first"], ["t"]),
        h.make_node("ConcatFromSequence", ["t"], ["y"], axis=0),
        h.make_node("SequenceAt", ["t", "far"], ["z"]),
    ]
    outputs = [h.make_tensor_value_info(name, FLOAT, None) for name in "yz"]
    outputs.append(h.make_tensor_sequence_value_info("t", FLOAT, None))
    for far in (-1, 5):
        constants = [
            onnx.numpy_helper.from_array(np.array(k), name) for name, k in (("first", 0), ("far", far))
        ]
        graph = h.make_graph(nodes, "net", kinds, outputs, constants)
        net = readers.load(h.make_model(graph, opset_imports=[h.make_opsetid("", 21)], ir_version=10))
        if far == 5:
            with pytest.raises(GraphError, match="position 5 is out of range of 2 elements"):
                net([wf.ones(3)], wf.zeros(2))
            continue
        y, z, t = net([wf.ones(3)], wf.zeros(2))
        assert (y.tolist(), z.shape, [x.shape for x in t]) == ([0, 0, 1, 1, 1], (3,), [(2,), (3,)])


def test_functions_have_opsets_of_their_own():
    """Softmax of opset 12 is over all axes from 1 on, of opset 21 over the last."""
    function = h.make_function(
        "own", "F", ["a"], ["b"], [h.make_node("Softmax", ["a"], ["b"], axis=1)], [h.make_opsetid("", 12)]
    )
    nodes = [
        h.make_node("F", ["x"], ["old"], domain="own"),
        h.make_node("Softmax", ["x"], ["new"], axis=1),
    ]
    proto = model(nodes, [("x", [2, 3, 4])], [("old", None), ("new", None)])
    proto.functions.append(function)
    proto.opset_import.append(h.make_opsetid("own", 1))
    old, new = readers.load(proto)(wf.ones((2, 3, 4)))
    assert (old[0, 0, 0].item(), new[0, 0, 0].item()) == (pytest.approx(1 / 12), pytest.approx(1 / 3))


def test_random_operators_draw_from_streams():
    nodes = [
        h.make_node("RandomNormal", [], ["normal"], shape=[4000], mean=3.0, scale=2.0),
        h.make_node("RandomUniformLike", ["x"], ["uniform"], low=-1.0, high=0.0),
        h.make_node("Bernoulli", ["x"], ["coins"]),
        h.make_node("Multinomial", ["logits"], ["classes"], sample_size=4000),
    ]
    outputs = [(name, None) for name in ("normal", "uniform", "coins", "classes")]
    constants = {"logits": np.log(np.array([[0.2, 0.8]], np.float32))}
    net = load_with(nodes, [("x", [4000])], outputs, constants=constants)
    x = wf.ones(4000) * 0.3
    for call in (net, wf.trace(net)):
        wf.random.seed(5)
        first, again = call(x), call(x)
        normal, uniform, coins, classes = (y.numpy() for y in first)
        assert not np.array_equal(normal, again[0].numpy())
        assert (abs(normal.mean() - 3), abs(normal.std() - 2)) < (0.2, 0.2)
        assert -1 <= uniform.min() < -0.9 < -0.1 < uniform.max() < 0
        assert set(coins) == {0, 1}
        assert abs(coins.mean() - 0.3) < 0.05
        assert (classes.shape, classes.dtype) == ((1, 4000), np.int32)
        assert abs(classes.mean() - 0.8) < 0.05


def test_products_are_scattered_one_after_the_other():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 4)).astype(np.float32)
    places, updates = rng.integers(-3, 3, (6, 1)), rng.normal(size=(6, 4)).astype(np.float32)
    node = h.make_node("ScatterND", ["x", "places", "updates"], ["y"], reduction="mul")
    constants = {"places": places, "updates": updates}
    net = load_with([node], [("x", [3, 4])], [("y", None)], constants=constants)
    want = x.copy()
    np.multiply.at(want, places[:, 0], updates)
    for call in (net, wf.trace(net)):
        np.testing.assert_allclose(call(wf.tensor(x)).numpy(), want, rtol=1e-5)
    rows = rng.integers(-3, 3, (6, 4))
    node = h.make_node("ScatterElements", ["x", "rows", "updates"], ["y"], reduction="mul")
    net = load_with([node], [("x", [3, 4])], [("y", None)], constants={"rows": rows, "updates": updates})
    want = x.copy()
    np.multiply.at(want, (rows, np.arange(4)), updates)
    np.testing.assert_allclose(net(wf.tensor(x)).numpy(), want, rtol=1e-5)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("points", [0, 1, 3])
def test_regions_agree_with_onnx_runtime(mode, points):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 9, 11)).astype(np.float32)
    corners = rng.uniform(-4, 24, (7, 2, 2)).astype(np.float32)
    boxes = np.concatenate([corners.min(1), corners.max(1)], axis=1)
    images = rng.integers(0, 2, 7)
    for coordinates in ("half_pixel", "output_half_pixel"):
        options = {"mode": mode, "sampling_ratio": points, "output_height": 2, "output_width": 3}
        options |= {"spatial_scale": 0.5, "coordinate_transformation_mode": coordinates}
        node = h.make_node("RoiAlign", ["x", "boxes", "images"], ["y"], **options)
        proto = model([node], [("x", x.shape), ("boxes", boxes.shape)], [("y", None)], {"images": images})
        expected = runtime.InferenceSession(proto.SerializeToString()).run(None, {"x": x, "boxes": boxes})
        y = readers.load(proto)(wf.tensor(x), wf.tensor(boxes))
        np.testing.assert_allclose(y.numpy(), expected[0], rtol=1e-4, atol=1e-5)


GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent_model(operator, directions, peepholes=False, lengths=None, **attributes):
    rng = np.random.default_rng(0)
    rows = GATES[operator] * 2
    shapes = {"w": (rows, 3), "r": (rows, 2), "b": (2 * rows,)} | ({"p": (6,)} if peepholes else {})
    arrays = {name: rng.normal(size=(directions, *s)).astype(np.float32) * 0.7 for name, s in shapes.items()}
    if lengths is not None:
        arrays["lengths"] = np.array(lengths, np.int32)
    inputs = ["x", "w", "r", "b", "lengths" if lengths is not None else "", ""]
    inputs += ["", "p"] if peepholes else [""] * (operator == "LSTM")
    direction = "bidirectional" if directions == 2 else attributes.pop("direction", "forward")
    results = ["y", "h", "c"][: 2 + (operator == "LSTM")]
    node = h.make_node(operator, inputs, results, hidden_size=2, direction=direction, **attributes)
    return model([node], [("x", [5, 3, 3])], [(name, None) for name in results], arrays)


RECURRENT = [
    *((operator, {"directions": d}) for operator in GATES for d in (1, 2)),
    *((operator, {"directions": d, "lengths": (4, 4, 4)}) for operator in GATES for d in (1, 2)),
    *((operator, {"directions": 2, "lengths": (5, 1, 3)}) for operator in GATES),
    *((operator, {"directions": 1, "lengths": (2, 5, 1), "direction": "reverse"}) for operator in GATES),
    ("LSTM", {"directions": 2, "peepholes": True, "lengths": (5, 2, 3)}),
    ("LSTM", {"directions": 1, "peepholes": True, "clip": 0.3}),
    ("LSTM", {"directions": 1, "input_forget": 1}),
    ("GRU", {"directions": 2, "linear_before_reset": 1, "lengths": (5, 2, 3)}),
    ("GRU", {"directions": 1, "clip": 0.2}),
    ("RNN", {"directions": 2, "activations": ["Relu", "Softsign"]}),
    ("RNN", {"directions": 1, "activations": ["LeakyRelu"], "activation_alpha": [0.3]}),
    (
        "LSTM",
        {
            "directions": 1,
            "activations": ["HardSigmoid", "ScaledTanh", "Elu"],
            "activation_alpha": [0.3, 1.5, 0.7],
            "activation_beta": [0.4, 0.6],
        },
    ),
    (
        "GRU",
        {
            "directions": 1,
            "activations": ["Affine", "Softplus"],
            "activation_alpha": [0.5],
            "activation_beta": [0.1],
        },
    ),
]


def test_recurrent_layers_agree_with_onnx_runtime():
    x = np.random.default_rng(1).normal(size=(5, 3, 3)).astype(np.float32)
    for operator, options in RECURRENT:
        proto = recurrent_model(operator, **options)
        expected = runtime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
        net = readers.load(proto)
        for call in (net, wf.trace(net)):
            for result, reference in zip(call(wf.tensor(x)), expected, strict=True):
                np.testing.assert_allclose(
                    result.numpy(), reference, rtol=1e-5, atol=1e-6, err_msg=f"{operator} {options}"
                )
