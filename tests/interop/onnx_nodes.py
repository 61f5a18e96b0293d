"""The node tests of the package onnx, run by weft.interop.onnx: each is a model with inputs and outputs.

.venv/bin/python -m tests.interop.onnx_nodes      writes onnx_gaps.txt: what fails, and why
"""

import functools
import importlib
import pkgutil
import re
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case import node

import weft as wf
from weft.interop import onnx as readers
from weft.interop.onnx import narrow

GAPS = Path(__file__).parent / "onnx_gaps.txt"


@functools.cache
def cases(part=None):
    """All of them, in seconds, or the K-th of N parts, by files of operators: part is (k, n)."""
    names = sorted(each.name for each in pkgutil.walk_packages(node.__path__, f"{node.__name__}."))
    k, n = part or (0, 1)
    found = [case for name in names[k::n] for case in cases_of(name)]
    return sorted(found, key=lambda case: case.name)


@functools.cache
def cases_of(name):
    """Those that a file of the package makes when it is imported."""
    before = len(node._NodeTestCases)
    importlib.import_module(name)
    return node._NodeTestCases[before:]


def gaps():
    """Name of a test -> why it fails."""
    lines = GAPS.read_text().splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


def values(arrays, described):
    """The arguments, or the results, of a data set."""
    return [value(x, each.type) for x, each in zip(arrays, described, strict=True)]


def value(x, kind):
    """A tensor, a list of them for a sequence, None for an optional value without element."""
    match kind.WhichOneof("value"):
        case "optional_type":
            return None if x is None else value(x, kind.optional_type.elem_type)
        case "sequence_type":
            return [tensor(each, kind.sequence_type.elem_type) for each in x]
        case _:
            return tensor(x, kind)


def tensor(x, kind):
    """The values, in the type that holds those of a type that weft does not have."""
    array = np.asarray(numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x)
    code = kind.tensor_type.elem_type
    if code in narrow.INTEGERS:
        return wf.asarray(array.astype(narrow.INTEGERS[code][0]))
    if code in narrow.NARROW:
        return wf.asarray(array.astype(np.float32))
    if code == onnx.TensorProto.BFLOAT16:
        return wf.asarray(array.astype(np.float32)).astype("bfloat16")
    return wf.asarray(array)


def run(case):
    """Raises AssertionError for another result, and what load and the call raise."""
    net, graph = readers.load(case.model), case.model.graph
    for inputs, outputs in case.data_sets:
        given = dict(zip(net.inputs, values(inputs, graph.input), strict=True))
        results = net(**given)
        results = results if isinstance(results, tuple) else (results,)
        expected = values(outputs, graph.output)
        assert len(results) == len(expected)
        assert [isinstance(y, list) for y in results] == [isinstance(y, list) for y in expected]
        for y, reference in zip(flat(results), flat(expected), strict=True):
            assert y.shape == reference.shape, f"shape {y.shape}, expected {reference.shape}"
            assert y.dtype is reference.dtype, f"dtype {y.dtype}, expected {reference.dtype}"
            if y.dtype is wf.bfloat16:
                y, reference = y.astype("float32"), reference.astype("float32")
            np.testing.assert_allclose(y.numpy(), reference.numpy(), rtol=case.rtol, atol=case.atol)


def flat(values):
    return [x for value in values for x in (value if isinstance(value, list) else [value])]


RANDOM = "random numbers are others"  # which may be the same by chance
OTHER_RESULTS = {
    "attention": "floats of 16 bits are rounded at other places",
    "bernoulli": RANDOM,
    "jpeg_grayscale": "the decoder takes the grey of the file, the reference that of its RGB picture",
    "FLOAT_to_BFLOAT16": "the reference drops bits where the operator rounds",
    "dft_inverse": "the reference computes in float64",
    "qlinearmatmul": "the reference wraps around int8 where the operator saturates",
    "training_dropout": RANDOM,
}


def reason(name, error):
    """Why a test fails, in a few words without paths."""
    text = " ".join(str(error).split())
    for pattern in (
        r"operator \w+ of [\w.]+, opset \d+, is not supported",
        r"opset \d+ of [\w.]+; weft reads.*",
        r"is of \w+, which weft.*",
        r"cannot read dtype\([^)]*\)",
    ):
        if found := re.search(pattern, text):
            return found.group()
    if isinstance(error, AssertionError):
        return next((why for part, why in OTHER_RESULTS.items() if part in name), "another result")
    return re.sub(r"^onnx: (\w+) '[^']*'", r"\1", text)[:100]


def main():
    lines, count = [], 0
    for case in cases():
        count += 1
        try:
            run(case)
        except Exception as error:
            lines.append(f"{case.name}  {reason(case.name, error)}")
    head = f"# Node tests of onnx {onnx.__version__} that fail: {len(lines)} of {count}; an unexpected pass fails"
    GAPS.write_text("\n".join([head, *lines]) + "\n")
    print(head)


if __name__ == "__main__":
    main()
