"""ONNX Runtime's side of quantized networks: static quantization, uint8 activations, int8 weights for each channel.

With a number of images it quantizes the networks, into the folder BENCH_QUANTIZED; else it serves.
"""

import os
import sys
from pathlib import Path

import _onnx_networks
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from _side import THREADS, calls, serve

FOLDER = Path(os.environ["BENCH_QUANTIZED"])


class Images(CalibrationDataReader):
    """Images for ranges, one at a time."""

    def __init__(self, count: int) -> None:
        self.rows = iter(_onnx_networks.pictures(count))

    def get_next(self):
        row = next(self.rows, None)
        return None if row is None else {"images": row[None]}


def quantize(name: str, count: int) -> None:
    whole, prepared, made = (FOLDER / f"{name}{end}.onnx" for end in ("", "-prepared", "-integers"))
    _onnx_networks.write(name, whole)
    quant_pre_process(str(whole), str(prepared), skip_symbolic_shape=True)
    quantize_static(
        str(prepared),
        str(made),
        Images(count),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )


def sample(name: str, batch: int):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
    path = str(FOLDER / f"{name}-integers.onnx")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    x = {"images": _onnx_networks.pictures(batch)}
    return calls(lambda: session.run(None, x), lambda y: y)


if __name__ == "__main__":
    if sys.argv[1:]:
        for name in _onnx_networks.NETWORKS:
            quantize(name, int(sys.argv[1]))
    else:
        cases = {f"{name} {batch}": (name, batch) for name in _onnx_networks.NETWORKS for batch in (1, 2, 16)}
        serve({case: lambda of=of: sample(*of) for case, of in cases.items()})
