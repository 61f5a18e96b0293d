"""The node tests of the package onnx, run by weft.interop.onnx: each is a model with inputs and outputs.

PYTHONPATH=FOLDER_WITH_ONNX .venv/bin/python -m tests.interop.onnx_nodes      writes onnx_gaps.txt: what fails, and why
"""

import re
from pathlib import Path

import ml_dtypes
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


def arrays(folder, kind, described):
    """The arrays of a data set, lists of them for sequences; bfloat16 as tensors of weft."""
    result = []
    for k, value in enumerate(described):
        data = (folder / f"{kind}_{k}.pb").read_bytes()
        result.append(parsed(data, value.type))
    return result


def parsed(data, kind):
    match kind.WhichOneof("value"):
        case "optional_type":
            proto = onnx.OptionalProto.FromString(data)
            if not proto.elem_type:
                return None
            field = "sequence_value" if proto.HasField("sequence_value") else "tensor_value"
            return parsed(getattr(proto, field).SerializeToString(), kind.optional_type.elem_type)
        case "sequence_type":
            return [
                tensor(each, kind.sequence_type.elem_type)
                for each in onnx.SequenceProto.FromString(data).tensor_values
            ]
        case _:
            return tensor(onnx.TensorProto.FromString(data), kind)


NARROW = {
    "FLOAT8E4M3FN": ml_dtypes.float8_e4m3fn,
    "FLOAT8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "FLOAT8E5M2": ml_dtypes.float8_e5m2,
    "FLOAT8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "FLOAT4E2M1": ml_dtypes.float4_e2m1fn,
}


def tensor(proto, kind):
    """Of types that weft does not have the values. Files of bfloat16 may say uint16, so the declared type counts."""
    array, declared = numpy_helper.to_array(proto), kind.tensor_type.elem_type
    name = onnx.TensorProto.DataType.Name(proto.data_type)
    if name in NARROW:
        return wf.asarray(array.view(np.uint8).view(NARROW[name]).astype(np.float32))
    if name in ("INT4", "UINT4"):
        return wf.asarray(array.astype(np.uint8 if name == "UINT4" else np.int8))
    if declared != onnx.TensorProto.BFLOAT16:
        return wf.asarray(array)
    array = (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return wf.asarray(array).astype("bfloat16")


def run(case):
    """Raises AssertionError for another result, and what load and the call raise."""
    folder = Path(case.model_dir)
    net, graph = readers.load(folder / "model.onnx"), onnx.load(folder / "model.onnx").graph
    for data in sorted(folder.glob("test_data_set_*")):
        given = dict(zip(net.inputs, arrays(data, "input", graph.input), strict=True))
        results = net(**given)
        results = results if isinstance(results, tuple) else (results,)
        expected = arrays(data, "output", graph.output)
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


OTHER_RESULTS = {
    "FLOAT_to_BFLOAT16": "the reference drops bits where the operator rounds",
    "dft_inverse": "the reference computes in float64",
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
