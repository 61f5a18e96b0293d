"""Arithmetic of arrays, element by element: the operators behind + - * / and their kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from weft.expr import scalar as e
from weft.ops.op import op
from weft.ops.pointwise import Pointwise
from weft.ops.samples import Sample, arrays

Scalar = e.Scalar
PAIRS = (((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((0, 3), (1, 1)), ((), (2,)))


class Arithmetic(Pointwise):
    """Base of binary operators on numbers."""

    family: ClassVar[str] = "arithmetic"

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for a, b in PAIRS:
            yield Sample(arrays(a), arrays(b))
        yield Sample(arrays((3,)), 2)


@op
class Add(Arithmetic):
    """a + b; for booleans their or.

    a, b: arrays whose shapes fit by broadcasting, or numbers. Returns the promoted type. Integers wrap.
    Source: array API 2024.12, add.

    >>> import weft as wf
    >>> wf.add(wf.tensor([1, 2]), 1)
    tensor([2, 3], dtype=int64, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return a | b if a.dtype == "bool" else a + b

    def reference(self, a: Any, b: Any) -> Any:
        return a + b


@op
class Multiply(Arithmetic):
    """a * b; for booleans their and.

    a, b: arrays whose shapes fit by broadcasting, or numbers. Returns the promoted type. Integers wrap.
    Source: array API 2024.12, multiply.

    >>> import weft as wf
    >>> wf.multiply(wf.tensor([1., 2.]), 3)
    tensor([3., 6.], dtype=float32, device=cpu:0)
    """

    def scalar(self, a: Scalar, b: Scalar) -> Scalar:
        return a & b if a.dtype == "bool" else a * b

    def reference(self, a: Any, b: Any) -> Any:
        return a * b
