"""A network that MXNet 1.9.1 trained is read, gives the same answers, is trained, and runs elsewhere.

The folder stripes has what examples/train_in_mxnet.py wrote; with WEFT_TEST_MXNET it writes other files first.
"""

import os
import runpy
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tests.examples.test_native_export import outputs_in_c, results_in_c

import weft as wf

ROOT = Path(__file__).resolve().parents[2]
MXNET = os.environ.get("WEFT_TEST_MXNET")


def path_of(folder, out):
    """What the example finds, with its functions."""
    names = runpy.run_path(str(ROOT / "examples" / "from_mxnet.py"))
    return names["main"]([str(folder), "--out", str(out)]), names


def check(folder, out, runner):
    """The whole way: the answers of the network that was taught more are those of ONNX Runtime and of a C program."""
    found, names = path_of(folder, out)
    assert found["difference"] < 1e-5
    assert found["drift"] < 1e-5
    assert found["before"] < 0.5 < 0.95 < found["after"]
    with np.load(folder / "stripes.npz") as file:
        images = file["images"][:32]
    expected = found["net"](wf.asarray(images)).numpy()
    close = {"rtol": 2e-5, "atol": 2e-5}
    np.testing.assert_allclose(results_in_c(out / "native", [[images]], out)["0.0"], expected, **close)
    compiled = np.frombuffer(outputs_in_c(runner, out / "native", [images], out), "float32")
    np.testing.assert_allclose(compiled.reshape(expected.shape), expected, **close)
    same = wf.interop.onnx.load(out / "stripes.onnx")
    np.testing.assert_allclose(same(wf.asarray(images[:5])).numpy(), expected[:5], **close)
    session = onnxruntime.InferenceSession(out / "stripes.onnx")
    np.testing.assert_allclose(session.run(None, {"data": images})[0], expected, **close)
    return found, names


def test_the_way_from_mxnet_to_onnx_and_c(tmp_path, runner):
    found, names = check(Path(__file__).parent / "stripes", tmp_path, runner)
    without = names["read"](Path(__file__).parent / "stripes")
    optimizer = wf.optimizer.SGD(names["parameters_of"](without).values(), lr=0.02, momentum=0.9)
    with np.load(Path(__file__).parent / "stripes" / "stripes.npz") as file:
        names["train"](without, optimizer, file["images"], file["labels"], 1)
        drift = max(
            abs(p.numpy() - file[f"after.{name}"]).max()
            for name, p in names["parameters_of"](without).items()
        )
    assert drift > 100 * found["drift"]  # it is the momentum that makes them equal


@pytest.mark.skipif(MXNET is None, reason="WEFT_TEST_MXNET is not set to a Python that has mxnet 1.9.1")
def test_with_files_that_mxnet_writes_now(tmp_path, runner):
    command = [MXNET, ROOT / "examples" / "train_in_mxnet.py", tmp_path / "stripes"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    check(tmp_path / "stripes", tmp_path / "out", runner)
