"""ResNet-50 and MobileNetV2 as ONNX, as inference has them: batch normalizations are in the weights, which are random.

Needs onnx and NumPy. The layers are those of weft.models.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIDE, CLASSES = 224, 1000
NETWORKS = ("resnet50", "mobilenet_v2")
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class Builder:
    """Nodes and weights of one graph, one after the other."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(0)

    def node(self, kind: str, *inputs: str, **attributes) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"{kind}_{name}", **attributes))
        return name

    def weight(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array, np.float32), name))
        return name

    def convolution(
        self, x: str, inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1
    ) -> str:
        shape = (outputs, inputs // groups, size, size)
        w = self.random.standard_normal(shape) * (2 / (shape[1] * size * size)) ** 0.5
        names = (self.weight(w), self.weight(self.random.standard_normal(outputs) * 0.1))
        pads, strides = [size // 2] * 4, [stride] * 2
        return self.node("Conv", x, *names, group=groups, kernel_shape=[size] * 2, pads=pads, strides=strides)

    def classifier(self, x: str, features: int) -> str:
        x = self.node("Flatten", self.node("GlobalAveragePool", x))
        w = self.random.standard_normal((CLASSES, features)) * features**-0.5
        return self.node("Gemm", x, self.weight(w), self.weight(np.zeros(CLASSES)), transB=1)

    def relu6(self, x: str) -> str:
        return self.node("Clip", x, self.weight(np.float32(0)), self.weight(np.float32(6)))


def resnet50(b: Builder, x: str) -> str:
    x = b.node("Relu", b.convolution(x, 3, 64, 7, 2))
    x = b.node("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])
    inputs = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for k in range(count):
            stride = 2 if stage and k == 0 else 1
            y = b.node("Relu", b.convolution(x, inputs, width, 1))
            y = b.node("Relu", b.convolution(y, width, width, 3, stride))
            y = b.convolution(y, width, 4 * width, 1)
            shortcut = b.convolution(x, inputs, 4 * width, 1, stride) if k == 0 else x
            x, inputs = b.node("Relu", b.node("Add", y, shortcut)), 4 * width
    return b.classifier(x, inputs)


def mobilenet_v2(b: Builder, x: str) -> str:
    x, inputs = b.relu6(b.convolution(x, 3, 32, 3, 2)), 32
    for expansion, outputs, count, first in STAGES:
        for k in range(count):
            stride, wide, before = first if k == 0 else 1, inputs * expansion, x
            if expansion != 1:
                x = b.relu6(b.convolution(x, inputs, wide, 1))
            x = b.relu6(b.convolution(x, wide, wide, 3, stride, wide))
            x = b.convolution(x, wide, outputs, 1)
            x = b.node("Add", x, before) if stride == 1 and inputs == outputs else x
            inputs = outputs
    return b.classifier(b.relu6(b.convolution(x, inputs, 1280, 1)), 1280)


def write(name: str, path: Path) -> None:
    """One of NETWORKS, for any batch."""
    b = Builder()
    y = globals()[name](b, "images")
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])
    logits = helper.make_tensor_value_info(y, TensorProto.FLOAT, ["n", CLASSES])
    graph = helper.make_graph(b.nodes, name, [images], [logits], b.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def pictures(count: int) -> np.ndarray:
    """Images f32[count, 3, 224, 224], the same ones for all sides."""
    return np.random.default_rng(0).standard_normal((count, 3, SIDE, SIDE), np.float32)
