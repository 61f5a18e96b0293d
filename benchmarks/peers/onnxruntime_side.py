"""ONNX Runtime's side: the models that the PyTorch side exports, inputs bound once, outputs left in its own buffers."""

import onnxruntime
from _onnx_cases import decoding, inputs_of, model_path
from _protocol import BENCH_THREADS, Cases, Run, serve

cases = Cases()


def session(workload: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = BENCH_THREADS, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return onnxruntime.InferenceSession(model_path(workload), options, providers=["CPUExecutionProvider"])


def bound(workload: str):
    """Session, its binding with all inputs, and these by name."""
    model = session(workload)
    binding, names = model.io_binding(), [x.name for x in model.get_inputs()]
    inputs = dict(zip(names, inputs_of(workload), strict=True))
    for name, value in inputs.items():
        binding.bind_cpu_input(name, value)
    for output in model.get_outputs():
        binding.bind_output(output.name)
    return model, binding, inputs


for workload in ("resnet50-infer-b1", "resnet50-infer-b16", "gpt-prefill"):

    @cases.add(workload, "session", precisions=("f32",))
    def infer(variant: str, precision: str, workload: str = workload) -> Run:
        model, binding, _ = bound(workload)
        return lambda: model.run_with_iobinding(binding)


@cases.add("gpt-decode", "session", precisions=("f32",))
def decode(variant: str, precision: str) -> Run:
    model, binding, inputs = bound("gpt-decode")

    def step():
        model.run_with_iobinding(binding)
        return binding.copy_outputs_to_cpu()

    return decoding(inputs, step)


if __name__ == "__main__":
    serve("ONNX Runtime", onnxruntime.__version__, cases)
