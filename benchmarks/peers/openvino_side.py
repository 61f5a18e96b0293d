"""OpenVINO's side: the models that the PyTorch side exports, compiled for latency."""

import openvino
from _onnx_cases import decoding, inputs_of, model_path
from _protocol import BENCH_THREADS, Cases, Run, serve

cases = Cases()


def request(workload: str, precision: str):
    """A request to infer whose inputs are arrays shared with it, and these by name."""
    core = openvino.Core()
    options = {
        "INFERENCE_NUM_THREADS": BENCH_THREADS,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": precision,
    }
    model = core.compile_model(core.read_model(model_path(workload)), "CPU", options)
    made = model.create_infer_request()
    inputs = {port.any_name: x for port, x in zip(model.inputs, inputs_of(workload), strict=True)}
    for name, value in inputs.items():
        made.set_tensor(name, openvino.Tensor(value, shared_memory=True))
    return made, inputs


for workload in ("resnet50-infer-b1", "resnet50-infer-b16", "gpt-prefill"):

    @cases.add(workload, "compiled")
    def infer(variant: str, precision: str, workload: str = workload) -> Run:
        made, inputs = request(workload, precision)

        def run(held=inputs) -> None:  # whose memory is read
            made.infer()

        return run


@cases.add("gpt-decode", "compiled")
def decode(variant: str, precision: str) -> Run:
    made, inputs = request("gpt-decode", precision)

    def step():
        made.infer()
        return [made.get_tensor(name).data for name in ("logits", "new_keys", "new_values")]

    return decoding(inputs, step)


if __name__ == "__main__":
    serve("OpenVINO", openvino.__version__.split("-")[0], cases)
