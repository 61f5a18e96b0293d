"""What the runtimes that read ONNX share: the models' files and inputs, and the loop of decoding around them."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

LAYERS, HEADS, CONTEXT, HEAD, VOCABULARY = 6, 8, 256, 64, 8192
random = np.random.default_rng(0)


def model_path(workload: str) -> str:
    path = Path(os.environ["BENCH_MODELS"]) / f"{workload}.onnx"
    if not path.exists():
        raise FileNotFoundError(
            f"no {path.name}: it is exported by PyTorch's environment, which is not there"
        )
    return str(path)


def inputs_of(workload: str) -> list[np.ndarray]:
    """Arrays in the order of the model's inputs."""
    if workload == "gpt-decode":
        cache = random.standard_normal((2, LAYERS, 1, HEADS, CONTEXT, HEAD), dtype=np.float32)
        return [np.zeros((1, 1), np.int64), np.zeros(1, np.int64), cache[0], cache[1]]
    if workload == "gpt-prefill":
        return [random.integers(0, VOCABULARY, (1, CONTEXT))]
    return [random.standard_normal((int(workload.rpartition("-b")[2]), 3, 224, 224), dtype=np.float32)]


def decoding(inputs: Mapping[str, np.ndarray], step: Callable[[], list[np.ndarray]]) -> Callable[[], int]:
    """64 tokens: inputs are changed in place before each step, which gives logits, new keys and new values."""
    token, position, keys, values = (inputs[name] for name in ("token", "position", "keys", "values"))

    def run() -> int:
        token[...] = 0
        for k in range(CONTEXT - 64, CONTEXT):
            position[0] = k
            logits, new_keys, new_values = step()
            keys[:, :, :, k : k + 1], values[:, :, :, k : k + 1] = new_keys, new_values
            token[0, 0] = logits.argmax()
        return int(token[0, 0])

    return run
