"""OpenVINO's side of quantized networks: NNCF's post-training quantization, compiled for latency.

With a number of images it quantizes the networks, into the folder BENCH_QUANTIZED; else it serves.
"""

import os
import sys
from pathlib import Path

import _onnx_networks
import openvino

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from _side import THREADS, calls, serve

FOLDER = Path(os.environ["BENCH_QUANTIZED"])


def quantize(name: str, count: int) -> None:
    import nncf  # which prints

    _onnx_networks.write(name, FOLDER / f"{name}.onnx")
    model = openvino.Core().read_model(FOLDER / f"{name}.onnx")
    images = nncf.Dataset([row[None] for row in _onnx_networks.pictures(count)])
    openvino.save_model(nncf.quantize(model, images, subset_size=count), FOLDER / f"{name}-integers.xml")


def sample(name: str, batch: int):
    core = openvino.Core()
    model = core.read_model(FOLDER / f"{name}-integers.xml")
    x = _onnx_networks.pictures(batch)
    model.reshape(x.shape)
    options = {"INFERENCE_NUM_THREADS": THREADS, "PERFORMANCE_HINT": "LATENCY"}
    request = core.compile_model(model, "CPU", options).create_infer_request()
    request.set_input_tensor(openvino.Tensor(x, shared_memory=True))
    return calls(lambda held=x: request.infer(), lambda y: y)


if __name__ == "__main__":
    if sys.argv[1:]:
        for name in _onnx_networks.NETWORKS:
            quantize(name, int(sys.argv[1]))
    else:
        cases = {f"{name} {batch}": (name, batch) for name in _onnx_networks.NETWORKS for batch in (1, 2, 16)}
        serve({case: lambda of=of: sample(*of) for case, of in cases.items()})
