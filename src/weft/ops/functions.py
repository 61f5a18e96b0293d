"""The function of every operator, by name; weft.functional shows the same ones to users.

>>> import weft.ops.functions as F
>>> from weft.ops.node import input_value
>>> from weft.ops.types import TensorType
>>> from weft.base.dtype import float32
>>> F.exp(input_value(TensorType((2,), float32))).type
f32[2]@cpu:0
"""

from __future__ import annotations

from weft.base.typing import Any
from weft.ops import registry


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return registry.function(name)


def __dir__() -> list[str]:
    return registry.names()
