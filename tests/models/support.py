"""The cases in weft: models with given weights, and a step of training, eager or traced."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

import weft as wf
import weft.functional as F
import weft.optimizer as optim
from weft import models

from .cases import Case


def build(case: Case) -> Any:
    """The model with the case's weights."""
    sizes = dict(case.sizes)
    made = {
        "resnet": lambda: models.ResNet(models.ResNetConfig(**sizes)),
        "gpt": lambda: models.GPT(models.GPTConfig(**sizes)),
        "lstm": lambda: models.LSTMLanguageModel(**sizes),
        "mlp": lambda: models.MLP(**sizes),
    }[case.model]()
    made.load_state_dict({name: case.weight(name, x.shape) for name, x in made.state_dict().items()})
    return made


@dataclass
class Training:
    """One case being trained on its batch. precision: of products; weights are float32 ("float64": everything)."""

    case: Case
    precision: str = "float32"
    traced: bool = False
    net: Any = field(init=False)
    step: Any = field(init=False)

    def __post_init__(self) -> None:
        self.net = build(self.case)
        if self.precision == "float64":
            self.net.astype("float64")
        x, labels = self.case.data()
        self.x, self.labels = wf.asarray(x), wf.asarray(labels)
        if self.precision == "float64" and self.x.dtype.kind == "float":
            self.x = self.x.astype("float64")
        self.manager = wf.GradManager().attach(self.net.parameters())
        self.optimizer = getattr(optim, self.case.optimizer)(self.net.parameters(), **dict(self.case.options))
        self.gradients: dict[str, Any] = {}
        self.step = wf.trace(self._step, strict=True) if self.traced else self._step

    def products(self) -> Any:
        """The context that makes products half where they are to be."""
        return wf.amp.autocast("bfloat16") if self.precision == "bfloat16" else contextlib.nullcontext()

    def loss(self, x: Any, labels: Any) -> Any:
        with self.products():
            y = self.net(x)
            logits = y[0] if isinstance(y, tuple) else y
            return F.cross_entropy(logits.reshape(-1, self.case.classes), labels.reshape(-1))

    def _step(self, x: Any, labels: Any) -> Any:
        with self.manager:
            loss = self.loss(x, labels)
            self.manager.backward(loss)
        self.optimizer.step().clear_grad()
        return loss

    def first_gradients(self) -> dict[str, Any]:
        """The gradients before any step, by the name of the parameter."""

        def gradients(x: Any, labels: Any) -> list[Any]:
            with self.manager:
                self.manager.backward(self.loss(x, labels))
            found = [p.grad for p in self.net.parameters()]
            self.optimizer.clear_grad()
            return found

        buffers = {name: x.numpy().copy() for name, x in self.net.named_buffers()}
        run = wf.trace(gradients, strict=True) if self.traced else gradients
        for _ in range(3 if self.traced else 1):
            found = run(self.x, self.labels)
        self.net.load_state_dict(buffers, strict=False)  # running statistics
        return {name: g for (name, _), g in zip(self.net.named_parameters(), found, strict=True)}

    def losses(self, steps: int) -> list[float]:
        """The loss of each of these steps."""
        return [loss.item() for loss in [self.step(self.x, self.labels) for _ in range(steps)]]
