"""Checks infer of users' operators against their other rules, once for each plan.

Operators of the package are checked by its tests.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.dtype import DType
from weft.base.errors import DTypeError, ShapeError
from weft.base.typing import Any
from weft.executor.buffers import same_shape
from weft.expr.kernel import Reduction, parts
from weft.ops.kernels import Loop
from weft.ops.node import Value
from weft.ops.sizes import NeedsSizes

__all__ = ["check_decomposition", "check_loop", "check_view"]


def check_decomposition(op: Any, results: Sequence[Any], outputs: Sequence[Value]) -> None:
    """Raise ShapeError or DTypeError unless what an operator decomposes to is what its infer says."""
    if len(results) != len(outputs):
        raise ShapeError(f"{op.name}: infer says {_count(len(outputs))}, decompose computes {len(results)}")
    for k, (value, output) in enumerate(zip(results, outputs, strict=True)):
        if not isinstance(value, Value):
            raise TypeError(
                f"{op.name}: decompose must return what weft's functions compute, got {type(value).__name__}"
            )
        if not value.type.weak:
            _compare(op, k, len(outputs), output, value.shape, value.dtype, "decompose computes")


def check_loop(op: Any, loop: Loop, outputs: Sequence[Value]) -> None:
    """The same of the element types that a loop stores."""
    for stage in loop.stages:
        for part in parts(stage):
            k = -1 if isinstance(part, Reduction) else part.operand - loop.inputs
            if 0 <= k < len(outputs) and part.value.dtype != outputs[k].dtype.name:
                declared = f"{outputs[k].type}{_which(k, len(outputs))}"
                raise DTypeError(f"{op.name}: infer says {declared}, its loop stores {part.value.dtype}")


def check_view(op: Any, shape: Sequence[Any], dtype: DType, output: Value) -> None:
    """The same of a view."""
    _compare(op, 0, 1, output, tuple(shape), dtype, "its view is")


def _compare(
    op: Any, k: int, count: int, output: Value, shape: Sequence[Any], dtype: DType, text: str
) -> None:
    differs = len(shape) != output.ndim or any(
        isinstance(n, int) and isinstance(m, int) and n != m
        for n, m in zip(output.shape, shape, strict=False)
    )
    if differs or dtype is not output.dtype:
        error = ShapeError if differs else DTypeError
        actual = f"{dtype.short}[{','.join(map(str, shape))}]"
        raise error(f"{op.name}: infer says {output.type}{_which(k, count)}, {text} {actual}: {op!r}")
    if not same_shape(shape, output.shape):
        raise NeedsSizes(f"{op.name}: the sizes that infer says")  # compared in a plan for exact sizes


def _which(k: int, count: int) -> str:
    return f" for output {k}" if count > 1 else ""


def _count(count: int) -> str:
    return "1 output" if count == 1 else f"{count} outputs"
