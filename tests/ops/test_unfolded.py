"""Gradients of convolutions' weights that are one product over windows written out: like those by oneDNN's own code."""

import numpy as np
import pytest

import weft as wf
import weft.ops.functions as F
from weft.executor.planner import make_plan
from weft.graph.graph import Graph
from weft.ops.families import convolution_gradient
from weft.ops.families.window import Windows
from weft.ops.node import input_value
from weft.ops.types import TensorType

# x's spatial sizes, the window, stride, low, high, dilation.
CASES = [
    ((9, 8), (3, 3), (2, 2), (1, 1), (1, 1), (1, 1)),
    ((7, 7), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    ((6, 9), (2, 3), (1, 3), (0, 2), (1, 0), (2, 1)),
    ((8, 8), (1, 1), (2, 2), (0, 0), (0, 0), (1, 1)),
    ((12,), (4,), (2,), (0,), (3,), (1,)),
    ((4, 5, 3), (2, 2, 2), (1, 2, 1), (1, 0, 0), (0, 0, 1), (1, 1, 1)),
]


def gradient(x, dy, case):
    _, size, stride, low, high, dilation = case
    return F.convolution_weight_gradient(
        x, dy, kernel_size=size, stride=stride, low=low, high=high, dilation=dilation, groups=1
    )


def operands(case, channels, outputs):
    spatial, *window = case
    rng = np.random.default_rng(0)
    count = Windows(*window).number(spatial)
    return [
        rng.standard_normal((2, *sizes)).astype("float32")
        for sizes in ((channels, *spatial), (outputs, *count))
    ]


def last(array):
    """The same array with its channels next to each other in memory."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


def steps(arrays, case, dtype="float32"):
    given = [input_value(TensorType(a.shape, getattr(wf, dtype)), "x") for a in arrays]
    return make_plan(Graph(given, [gradient(*given, case)]), "test", exact=True).info.steps


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("case", CASES)
def test_values(case, dtype):
    arrays = operands(case, 128, 144)
    assert any("Matmul" in step for step in steps(arrays, case, dtype))
    slow = gradient(*(wf.asarray(a.astype("float64")) for a in arrays), case).numpy()
    rounding = {"float32": 2e-6, "bfloat16": 8e-3, "float16": 1e-3}[dtype]
    for order in (np.ascontiguousarray, last):
        got = gradient(*(wf.asarray(order(a)).astype(dtype) for a in arrays), case)
        assert got.dtype.name == dtype
        error = np.abs(got.astype("float64").numpy() - slow).max()
        assert error <= rounding * np.abs(slow).max()


@pytest.mark.parametrize(
    ("limits", "products"),
    [
        ({}, True),
        ({"WIDE_CHANNELS": 129}, False),
        ({"FEW_WINDOWS": 1}, False),
        ({"UNFOLDED_BYTES": 1000}, False),
    ],
)
def test_where_it_is_a_product(limits, products, monkeypatch):
    for name, value in limits.items():
        monkeypatch.setattr(convolution_gradient, name, value)
    case = CASES[1]
    assert any("Matmul" in step for step in steps(operands(case, 128, 128), case)) == products


def test_windows_of_one_element_are_not_written_out():
    """With stride 1 they lie as a matrix already, and the kernel takes them as one."""
    case = (7, 7), (1, 1), (1, 1), (0, 0), (0, 0), (1, 1)
    assert len(steps(operands(case, 128, 128), case)) == 1
