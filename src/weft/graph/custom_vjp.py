"""Custom gradients in graphs: the outputs of a function's forward, differentiated by its backward.

>>> from weft.base.dtype import float32
>>> from weft.graph.gradient import gradients
>>> from weft.ops.node import input_value
>>> from weft.ops.types import TensorType
>>> x = input_value(TensorType((2,), float32))
>>> (y,) = with_gradient("tripled", [x * 2], [x], lambda dy: dy * 3)
>>> y.type, gradients([y], [x])[0].node.op
(f32[2]@cpu:0, Multiply())
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.errors import DTypeError, GraphError, ShapeError
from weft.graph.capture import Capture
from weft.graph.inner import Mark
from weft.graph.instantiate import instantiate
from weft.graph.subgraph import Subgraph
from weft.ops import functions as F
from weft.ops.node import Value, traced
from weft.ops.op import op
from weft.ops.types import TensorType

__all__ = ["CustomVjp", "NoCustomVjp", "listed_gradients", "with_gradient"]


@op
class CustomVjp(Mark, outputs=("*y",)):
    """The first `count` inputs, whose gradient goes to the arguments behind them, one for each flag of `wanted`.

    backward: from the outputs' gradients and the last inputs, which it reads besides, to the gradients of the arguments
    whose flag is set.
    """

    backward: Subgraph
    count: int
    wanted: tuple[bool, ...]

    def count_outputs(self, count: int) -> int:
        input_count, gradient_count = count - len(self.wanted), len(self.backward.graph.outputs)
        if (
            len(self.backward.graph.inputs) != input_count
            or gradient_count != sum(self.wanted)
            or self.count < 1
        ):
            raise TypeError(f"{self.name}: {count} inputs do not fit the function {self.backward!r}")
        return self.count

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:  # type: ignore[override]
        self.count_outputs(len(x))
        return tuple(t.like() for t in x[: self.count])

    def decompose(self, *x: Any) -> Any:
        return tuple(x[: self.count])

    def vjp(self, x: Any, y: Any, dy: Any) -> Any:
        cotangents = [F.filled_like(v) if s is None else s for v, s in zip(y, dy, strict=True)]
        rest = x[self.count + len(self.wanted) :]
        gradients = iter(instantiate(self.backward.graph, [*cotangents, *rest]))
        argument_gradients = [next(gradients) if want else None for want in self.wanted]
        return ([*[None] * self.count, *argument_gradients, *[None] * len(rest)],)


@op
class NoCustomVjp(Mark, outputs=("*y",)):
    """The first `count` inputs, computed from the others by a function whose backward could not be written down."""

    of: str
    why: str
    count: int

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:  # type: ignore[override]
        return tuple(t.like() for t in x[: self.count])

    def decompose(self, *x: Any) -> Any:
        return tuple(x[: self.count])

    def vjp(self, x: Any, y: Any, dy: Any) -> Any:
        raise GraphError(
            f"{self.of}: its backward could not be written down, so a program that it is part of has no gradient: "
            f"{self.why}\n  hint: differentiate inside of the trace, or the function itself"
        )


def with_gradient(
    name: str, ys: Sequence[Value], xs: Sequence[Value], backward: Callable[..., Any]
) -> tuple[Value, ...]:
    """The values ys, whose gradients with respect to xs are what backward gives for those of ys. name: for errors."""
    capture = Capture(name)
    cotangents = [capture.input(y.type) for y in ys]
    wanted: list[bool] = []

    def run() -> list[Any]:
        dxs = gradients_like(name, listed_gradients(name, backward(*map(traced, cotangents)), len(xs)), xs)
        wanted.extend(dx is not None for dx in dxs)
        return [dx for dx in dxs if dx is not None]

    subgraph = capture.subgraph(cotangents, capture.run(run).outputs)
    outputs: tuple[Value, ...] = CustomVjp(backward=subgraph, count=len(ys), wanted=tuple(wanted))(
        *ys, *xs, *capture.captures
    )
    return outputs


def gradients_like(name: str, gradients: Sequence[Any], xs: Sequence[Value]) -> list[Value | None]:
    """The gradients that backward gave for xs, floats in their dtypes; None for what has no gradient.

    Raises TypeError for what is not an array, ShapeError or DTypeError for one that is not like its input.
    """
    results: list[Value | None] = []
    for k, (dx, x) in enumerate(zip(gradients, xs, strict=True)):
        if dx is None or not x.dtype.is_differentiable:
            results.append(None)
            continue
        if not hasattr(dx, "shape") or not hasattr(dx, "dtype"):
            raise TypeError(
                f"{name}: backward: gradient {k} must be a Tensor or None, got {type(dx).__name__}"
            )
        if dx.dtype is not x.dtype and dx.dtype.is_differentiable:
            dx = F.cast(dx, dtype=x.dtype)
        if tuple(dx.shape) != tuple(x.shape) or dx.dtype is not x.dtype:
            error = DTypeError if tuple(dx.shape) == tuple(x.shape) else ShapeError
            raise error(
                f"{name}: backward: input {k} has shape {tuple(x.shape)} and dtype {x.dtype}, "
                f"its gradient {tuple(dx.shape)} and {dx.dtype}"
            )
        results.append(dx)
    return results


def listed_gradients(name: str, gradients: Any, count: int) -> list[Any]:
    """The gradients that backward gave, as a list. Raises ValueError unless there is one for each argument."""
    results = list(gradients) if isinstance(gradients, tuple | list) else [gradients]
    if len(results) != count:
        raise ValueError(f"{name}: backward gave {len(results)} gradients for {count} inputs")
    return results
