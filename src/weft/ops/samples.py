"""Samples: calls of operators that the generated tests run.

>>> sample = Sample(arrays((2, 3)), axis=1)
>>> sample.attributes
{'axis': 1}
"""

from __future__ import annotations

from weft.base.record import Record
from weft.base.typing import Any

__all__ = ["Array", "Sample", "arrays"]


class Array(Record):
    """How to make one operand: its shape, values from low to high, and a dtype if not every claimed one is meant.

    distinct: all values differ by a margin (for maxima and sorting). positive definite and other structure: values.
    """

    shape: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0
    dtype: str | None = None
    distinct: bool = False
    values: Any = None  # exactly these instead


class Sample:
    """One call: operands (Arrays, numbers or None), attributes; dtypes: the element types to run it with.

    gradient: False where the function is not differentiable at such points. tolerance: factor on the usual bounds.
    """

    def __init__(
        self,
        *operands: Any,
        dtypes: tuple[str, ...] | None = None,
        gradient: bool = True,
        tolerance: float = 1.0,
        **attributes: Any,
    ) -> None:
        self.operands, self.attributes = operands, attributes
        self.dtypes, self.gradient, self.tolerance = dtypes, gradient, tolerance

    def __repr__(self) -> str:
        parts = [*(map(repr, self.operands)), *(f"{k}={v!r}" for k, v in self.attributes.items())]
        return f"Sample({', '.join(parts)})"


def arrays(shape: tuple[int, ...], **options: Any) -> Array:
    """An Array; a short name for lists of samples.

    >>> arrays((2, 3)).shape
    (2, 3)
    """
    return Array(shape, **options)
