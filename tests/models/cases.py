"""What is compared: models by name, their sizes, data and optimizers, and weights that any framework can be given.

Read by the tests, and by reference.py in an environment that has PyTorch and no weft: so only NumPy is used here.
Numbers come from RandomState, whose streams NumPy promises not to change.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

EXPECTED = Path(__file__).with_name("expected.json")
STEPS = 50


@dataclass(frozen=True)
class Case:
    """A model of a workload's graph at small sizes, trained on one batch.

    inputs: a shape of floats, or of integers below `tokens`. init: the scale of weights that multiply; gain: of weights
    of normalizations.
    """

    model: str
    sizes: tuple[tuple[str, Any], ...]
    inputs: tuple[int, ...]
    labels: tuple[int, ...]
    classes: int
    optimizer: str
    options: tuple[tuple[str, float], ...]
    tokens: int | None = None
    init: float = 1.0
    gain: float = 1.0
    precisions: tuple[str, ...] = ("float64", "float32", "bfloat16")

    def data(self) -> tuple[Any, Any]:
        """Inputs and labels."""
        random = np.random.RandomState(1)
        x = (
            random.standard_normal(self.inputs).astype("float32")
            if self.tokens is None
            else random.randint(0, self.tokens, self.inputs)
        )
        return x, random.randint(0, self.classes, self.labels)

    def weight(self, name: str, shape: tuple[int, ...]) -> Any:
        """First values of a parameter or buffer: by its name and shape alone."""
        random = np.random.RandomState(zlib.crc32(name.encode()))
        noise = random.standard_normal(shape).astype("float32")
        if name.endswith(("running_mean", "running_var")):
            return np.full(shape, float(name.endswith("var")), "float32")
        if len(shape) > 1:
            return noise * np.float32(self.init / np.sqrt(np.prod(shape[1:])))
        return np.float32(self.gain if name.endswith("weight") else 0) + np.float32(0.1) * noise


def directions(name: str, size: int) -> Any:
    """Four random directions: an error of a gradient shows in its projections on them with about its own length."""
    return np.random.RandomState(zlib.crc32(name.encode()) ^ 1).standard_normal((4, size))


def digest(name: str, gradient: Any) -> list[float]:
    """A gradient in five numbers: its length, and its projections on four directions."""
    flat = np.asarray(gradient, "float64").reshape(-1)
    return [float(np.linalg.norm(flat)), *(directions(name, flat.size) @ flat).tolist()]


def expected(name: str) -> Any:
    """What PyTorch computed for this case."""
    return json.loads(EXPECTED.read_text())[name]


# Residual networks of so small images amplify roundings from block to block; less so if blocks add less.
RESNET: Any = {"optimizer": "SGD", "options": (("lr", 0.01), ("momentum", 0.9)), "init": 1.4, "gain": 0.4}
GPT: Any = {"optimizer": "AdamW", "options": (("lr", 3e-4), ("weight_decay", 0.01))}
CASES = {
    "resnet50": Case(
        "resnet",
        (("blocks", (3, 4, 6, 3)), ("width", 16), ("classes", 10)),
        inputs=(8, 3, 64, 64),
        labels=(8,),
        classes=10,
        **RESNET,
    ),
    "resnet18": Case(
        "resnet",
        (("blocks", (2, 2, 2, 2)), ("width", 16), ("classes", 10), ("bottleneck", False)),
        inputs=(8, 3, 64, 64),
        labels=(8,),
        classes=10,
        **RESNET,
    ),
    "gpt": Case(
        "gpt",
        (("layers", 6), ("width", 32), ("heads", 4), ("vocabulary", 64), ("context", 24)),
        inputs=(3, 20),
        labels=(3, 20),
        classes=64,
        tokens=64,
        **GPT,
    ),
    "lstm": Case(
        "lstm",
        (("vocabulary", 50), ("width", 24), ("layers", 2)),
        inputs=(9, 4),
        labels=(9, 4),
        classes=50,
        tokens=50,
        optimizer="SGD",
        options=(("lr", 0.1),),
    ),
    "mlp": Case(
        "mlp",
        (("sizes", (784, 256, 128, 10)),),
        inputs=(32, 784),
        labels=(32,),
        classes=10,
        optimizer="Adam",
        options=(("lr", 1e-3),),
    ),
}
