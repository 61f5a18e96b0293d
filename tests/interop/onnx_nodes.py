"""The node tests of the package onnx, run by weft.interop.onnx: each is a model with inputs and outputs.

PYTHONPATH=FOLDER_WITH_ONNX .venv/bin/python -m tests.interop.onnx_nodes      writes onnx_gaps.txt: what fails, and why
"""

import re
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

import weft as wf
from weft.interop import onnx as readers

GAPS = Path(__file__).parent / "onnx_gaps.txt"


def cases():
    return sorted(load_model_tests(kind="node"), key=lambda case: case.name)


def gaps():
    """Name of a test -> why it fails."""
    lines = GAPS.read_text().splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


def arrays(folder, kind):
    """The arrays of a data set; bfloat16 as tensors of weft."""
    result = []
    for k in range(len(list(folder.glob(f"{kind}_*.pb")))):
        proto = onnx.TensorProto()
        proto.ParseFromString((folder / f"{kind}_{k}.pb").read_bytes())
        array = numpy_helper.to_array(proto)
        if proto.data_type == onnx.TensorProto.BFLOAT16:
            array = (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
            array = wf.asarray(array).astype("bfloat16")
        result.append(array)
    return result


def run(case):
    """Raises AssertionError for another result, and what load and the call raise."""
    folder = Path(case.model_dir)
    net = readers.load(folder / "model.onnx")
    for data in sorted(folder.glob("test_data_set_*")):
        given = dict(zip(net.inputs, map(wf.asarray, arrays(data, "input")), strict=True))
        results = net(**given)
        results = results if isinstance(results, tuple) else (results,)
        expected = [wf.asarray(x) for x in arrays(data, "output")]
        assert len(results) == len(expected)
        for y, reference in zip(results, expected, strict=True):
            assert y.shape == reference.shape, f"shape {y.shape}, expected {reference.shape}"
            assert y.dtype is reference.dtype, f"dtype {y.dtype}, expected {reference.dtype}"
            if y.dtype is wf.bfloat16:
                y, reference = y.astype("float32"), reference.astype("float32")
            np.testing.assert_allclose(y.numpy(), reference.numpy(), rtol=case.rtol, atol=case.atol)


OTHER_RESULTS = {
    "BFLOAT16": "its file declares the bits of bfloat16 as uint16",
    "qlinearmatmul": "the reference wraps around int8 where the operator saturates",
    "training_dropout": "random numbers are others",
}


def reason(name, error):
    """Why a test fails, in a few words without paths."""
    text = " ".join(str(error).split())
    for pattern in (
        r"operator \w+ of [\w.]+ is not supported",
        r"opset \d+; weft reads.*",
        r"is of \w+, which weft.*",
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
