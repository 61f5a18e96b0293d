"""Every operator's samples as models of ONNX, run by ONNX Runtime and read again.

.venv/bin/python -m tests.interop.onnx_operators     writes onnx_refused.txt: what cannot be
"""

import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from tests.ops.support import OPERATORS, cases, tensors

from weft.interop import onnx as interop

REFUSED = Path(__file__).parent / "onnx_refused.txt"


def refused():
    """Name of an operator -> why it is not exported."""
    lines = REFUSED.read_text().splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


def run(case):
    """The operators of ONNX in the model; GraphError if a case is not exported, AssertionError for other results."""
    arrays = tensors(case.arrays)
    model = interop.export(lambda *x: tuple(case.call(list(x))), arrays)
    onnx.checker.check_model(model, full_check=True)
    want = case.call(arrays)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    names = [each.name for each in model.graph.input]
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        feed = {name: np.asarray(x.numpy()) for name, x in zip(names, arrays, strict=True)}
        got = session.run(None, feed)
    except Exception as error:  # it has no kernels for some element types
        if not re.search("NOT_IMPLEMENTED|NotImplemented|Unexpected input data type|unsupported", str(error)):
            raise
        got = []
    for y, w in zip(got, want, strict=bool(got)):
        assert y.shape == w.shape, f"{case!r}: ONNX Runtime gave the shape {y.shape}, expected {w.shape}"
        near(case, y, w)
    again = interop.load(model)(*arrays)
    for y, w in zip(again if isinstance(again, tuple) else (again,), want, strict=True):
        assert (y.shape, y.dtype) == (w.shape, w.dtype), (
            f"{case!r}: {y.shape} {y.dtype}, expected {w.shape} {w.dtype}"
        )
        near(case, y.numpy(), w)
    return set(operators(model.graph))


def operators(graph):
    """Those of the nodes, and of the graphs in them."""
    for node in graph.node:
        yield node.op_type
        for attribute in node.attribute:
            yield from operators(attribute.g)


LIMITS = {"float16": 4e-3, "bfloat16": 3e-2, "float64": 1e-6}


def near(case, y, want):
    a, b = (np.asarray(x).astype(np.float64) for x in (y, want.numpy()))
    limit = LIMITS.get(want.dtype.name, 1e-4)
    scale = np.abs(b[np.isfinite(b)]).max(initial=1.0)
    np.testing.assert_allclose(a, b, rtol=limit, atol=limit * scale, err_msg=repr(case))


def outcome(cls, samples=2):
    """The operators of ONNX that the first samples become, if it can be told what they give; raises what run raises."""
    chosen = [case for case in cases(cls, ["float32"]) if not case.random] or [
        case for case in cases(cls) if not case.random
    ]
    return set().union(*(run(case) for case in chosen[:samples]))


def main():
    lines, count = [], 0
    for cls in OPERATORS:
        count += 1
        try:
            outcome(cls)
        except Exception as error:
            reason = re.split(r"(?: of .*)? at \S+:\d+", " ".join(str(error).split()))[0]
            lines.append(f"{cls.name}  {type(error).__name__}: {reason[:220]}")
            print(lines[-1], flush=True)
    head = f"# Operators that are not exported: {len(lines)} of {count}; an unexpected success fails"
    REFUSED.write_text("\n".join([head, *lines]) + "\n")
    print(head)


if __name__ == "__main__":
    main()
