"""The base of operators that are written in others alone: their types are those of what they are composed of.

>>> from weft.ops.registry import get
>>> issubclass(get("pixel_shuffle"), Composed)
True
"""

from __future__ import annotations

from collections.abc import Callable

from weft.base.typing import Any
from weft.ops import functions as F
from weft.ops.node import input_value, unrecorded
from weft.ops.op import Op
from weft.ops.types import TensorType

__all__ = ["Composed", "weighted_sum"]


class Composed(Op):
    """Base: a class gives decompose, which raises the errors of shapes; a rule may say what it takes, and more.

    Without a rule the parameters of decompose are the inputs. infer applies it to values of the inputs' types.
    """

    @classmethod
    def signature_rule(cls) -> Callable[..., Any] | str | None:
        return cls.rule or (None if cls.decompose is Op.decompose else cls.decompose)

    def infer(self, *inputs: TensorType | None) -> Any:
        if self.rule:
            self.match(*inputs)
        result = unrecorded(self.decompose, *(None if t is None else input_value(t) for t in inputs))
        return tuple(v.type for v in result) if isinstance(result, tuple | list) else result.type

    def require_ndim(self, *accepted: int, **operands: Any) -> None:
        """Raise ShapeError unless each operand, a value, has so many dimensions."""
        from weft.base.errors import ShapeError

        if any(x.ndim not in accepted for x in operands.values()):
            listed = " or ".join(map(str, accepted))
            types = {name: x.type for name, x in operands.items()}
            raise self.fail(ShapeError, f"{' and '.join(types)} needs {listed} dimensions", **types)


def weighted_sum(parts: list[tuple[Any, Any]]) -> Any:
    """The sum of weight * x over pairs (weight, x)."""
    total = parts[0][0] * parts[0][1]
    for weight, x in parts[1:]:
        total = total + F.multiply(weight, x)
    return total
