"""Recurrent layers whose products are of bytes, each row of an input or a state with a step of its own, or of weights
of integers alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import functional as F
from weft.control_flow import foreach
from weft.module.module import Module
from weft.ops.families.recurrent import Recurrent
from weft.quantization.config import QConfig

__all__ = ["RecurrentParts", "named_parts", "run_layers"]

Product = Callable[[str, Any], Any]  # of a weight, by its name, and an input; with the bias


class _Functions:
    """What cells are made of, on arrays."""

    sigmoid, tanh, relu = staticmethod(F.sigmoid), staticmethod(F.tanh), staticmethod(F.relu)

    @staticmethod
    def parts(x: Any, count: int) -> list[Any]:
        size = x.shape[-1] // count
        return [x[..., k * size : (k + 1) * size] for k in range(count)]


def run_layers(op: Recurrent, operands: Sequence[Any], product: Product) -> tuple[Any, ...]:
    """The output and the last states. operands: x and the first states. product: with the bias."""
    x, first = operands[0], operands[1:]
    last: list[Sequence[Any]] = []
    for layer in range(first[0].shape[0] // op.directions):
        outputs = []
        for direction in range(op.directions):
            k = layer * op.directions + direction

            def step(inputs: Any, states: Any, k: int = k) -> tuple[Any, Any]:
                new = op.cell(_Functions, inputs, product(f"w_hh{k}", states[0]), *states)
                return new[0], tuple(new)

            inputs = product(f"w_ih{k}", x)
            inputs = F.flip(inputs, axis=0) if direction else inputs
            y, end = foreach(step, inputs, tuple(s[k] for s in first))
            outputs.append(F.flip(y, axis=0) if direction else y)
            last.append(end)
        x = F.concat(outputs, axis=-1) if len(outputs) > 1 else outputs[0]
    return x, *(F.stack(state, axis=0) for state in zip(*last, strict=True))


def named_parts(op: Recurrent, parameters: Sequence[Any]) -> dict[str, tuple[Any, Any]]:
    """The weights by name, each with its bias."""
    result: dict[str, tuple[Any, Any]] = {}
    for k in range(len(parameters) // 4):
        w_ih, w_hh, b_ih, b_hh = op.direction_parameters(parameters, k)
        result |= {f"w_ih{k}": (w_ih, b_ih), f"w_hh{k}": (w_hh, b_hh)}
    return result


class RecurrentParts(Module):
    """A module for each weight of recurrent layers, by name: their quantizers, or what a converted layer reads.

    enabled: False leaves the layers in floats.
    """

    correction: Any = None
    integers: Any = None

    def __init__(
        self,
        op: Recurrent,
        parameters: Sequence[Any],
        make: Callable[[str, Any, Any], Module],
        config: QConfig,
    ):
        self.config, self.enabled = config, True
        self.reads = "rows" if config.dynamic else "floats"
        self.parts = {
            name: make(name, weight, bias) for name, (weight, bias) in named_parts(op, parameters).items()
        }

    @property
    def weight(self) -> Any:
        """The first weight."""
        return next(iter(vars(self)["parts"].values())).weight
