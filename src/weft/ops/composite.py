"""Operators that are nothing but their meaning in other operators: a class gives decompose, and the rest follows."""

from __future__ import annotations

from collections.abc import Callable

from weft import _core
from weft.base.typing import Any
from weft.ops.node import input_value
from weft.ops.op import Op
from weft.ops.rules import parse
from weft.ops.types import TensorType

__all__ = ["Composite"]


class Composite(Op):
    """Base of operators whose inputs are the parameters of decompose, and whose types are those of what it gives.

    A rule may say more: it is checked first, and gives the types where it states the outputs' shapes. decompose raises
    ShapeError and DTypeError for operands that do not fit; what the operators in it raise names them.

    >>> from weft.ops import functions as F
    >>> class Doubled(Composite):
    ...     def decompose(self, x):
    ...         return F.add(x, x)
    >>> from weft.base.dtype import float32
    >>> Doubled().infer(TensorType((2,), float32))
    f32[2]@cpu:0
    """

    @classmethod
    def signature_rule(cls) -> Callable[..., Any] | str | None:
        return cls.rule or (None if cls.decompose is Op.decompose else cls.decompose)

    def infer(self, *inputs: TensorType | None) -> Any:
        if self.rule:
            if all(y.dims is not None for y in parse(self.rule).outputs):
                return super().infer(*inputs)
            self.match(*inputs)
        capture = _core.capture()
        _core.set_capture(None)  # these values are only asked for their types
        try:
            outputs = self.decompose(*(None if t is None else input_value(t) for t in inputs))
        finally:
            _core.set_capture(capture)
        return tuple(y.type for y in outputs) if isinstance(outputs, tuple) else outputs.type
