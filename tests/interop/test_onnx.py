"""Models of ONNX become modules that compute what the node tests of the package onnx say; skipped without it."""

import numpy as np
import pytest
from tests.fuzzing import SEED

import weft as wf

onnx = pytest.importorskip("onnx")

from tests.interop import onnx_nodes  # noqa: E402

from weft.base.errors import GraphError  # noqa: E402
from weft.interop import onnx as readers  # noqa: E402

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
            if case.name in gaps:
                wrong.append(f"{case.name} passes: take it out of onnx_gaps.txt")
    assert not wrong, "\n".join(wrong)


@pytest.mark.filterwarnings("ignore")
def test_node_tests_of_onnx():
    check([case for k, case in enumerate(onnx_nodes.cases()) if k % 20 == SEED % 20])


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


def test_external_data_is_beside_the_model(tmp_path):
    proto, _ = linear()
    options = {"save_as_external_data": True, "size_threshold": 0, "location": "weights.bin"}
    onnx.save_model(proto, tmp_path / "net.onnx", **options)
    assert (tmp_path / "weights.bin").exists()
    assert readers.load(tmp_path / "net.onnx")(wf.ones((2, 4))).shape == (2, 2, 3)
    content = (tmp_path / "net.onnx").read_bytes()
    (tmp_path / "net.onnx").write_bytes(content.replace(b"weights.bin", b"../ghts.bin"))
    with pytest.raises(wf.FileFormatError, match="not beside the model"):
        readers.load(tmp_path / "net.onnx")


def test_what_is_not_supported_is_named(tmp_path):
    with pytest.raises(GraphError, match=r"node 'r': operator RegexFullMatch of ai.onnx is not supported"):
        readers.load(
            model([h.make_node("RegexFullMatch", ["x"], ["y"], name="r")], [("x", [1])], [("y", None)])
        )
    with pytest.raises(GraphError, match=r"opset 6; weft reads 7 to 26"):
        readers.load(model([h.make_node("Relu", ["x"], ["y"])], [("x", [1])], [("y", None)], opset=6))
    (tmp_path / "net.onnx").write_bytes(b"\xff" * 100)
    with pytest.raises(wf.FileFormatError, match="not a model of ONNX"):
        readers.load(tmp_path / "net.onnx")
    net = readers.load(linear()[0])
    with pytest.raises(TypeError, match="no array for 'x'"):
        net()
    with pytest.raises(TypeError, match="no input 'z'"):
        net(wf.ones((2, 4)), z=1)
