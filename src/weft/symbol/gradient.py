"""The gradient of symbols as a node of symbols: it becomes operators when types are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from weft.base.errors import DTypeError, GraphError, ShapeError
from weft.ops.op import Op
from weft.ops.shapes import Contradiction, Partial, merge
from weft.ops.types import TensorType
from weft.symbol.names import attributes, named
from weft.symbol.node import Entry, SymbolNode, ordered, user_line

__all__ = ["SymbolGradient", "gradient"]


class SymbolGradient(Op):
    """The gradients of the sum of all elements of the first inputs with respect to the last ones, called names.

    No registered operator: its meaning is the interpreter's that lowers symbols.
    """

    name: ClassVar[str] = "symbol_gradient"
    public: ClassVar[bool] = False
    names: tuple[str, ...]

    @property
    def outputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(f"{name}_grad" for name in self.names)

    def infer(self, *x: TensorType) -> Any:
        variables = x[len(x) - len(self.names) :]
        for name, t in zip(self.names, variables, strict=True):
            if not t.dtype.is_differentiable:
                raise self.fail(DTypeError, "only floating-point values have gradients", **{name: t})
        return tuple(t.like() for t in variables)

    def solve_shapes(
        self, inputs: Sequence[Partial], outputs: Sequence[Partial]
    ) -> tuple[list[Partial], list[Partial]]:
        first = len(inputs) - len(self.names)
        try:
            same = [merge(x, y) for x, y in zip(inputs[first:], outputs, strict=True)]
        except Contradiction as wrong:
            raise ShapeError(f"{self.name}: {wrong}") from None
        return [*inputs[:first], *same], same


def gradient(entries: Sequence[Entry], names: Sequence[str], name: str | None) -> tuple[Entry, ...]:
    """The gradients of entries with respect to variables. Raises GraphError for names that are not there."""
    variables = {node.name: node for node in ordered(entries) if node.op is None}
    unknown = [each for each in names if each not in variables]
    if unknown or not names:
        raise GraphError(
            f"grad: no variable {unknown[0]!r}; there are: {', '.join(variables)}"
            if unknown
            else "grad: needs the names of variables"
        )
    inputs = [*entries, *((variables[each], 0) for each in names)]
    node = SymbolNode(
        SymbolGradient(names=tuple(names)),
        inputs,
        named(name, "gradient"),
        attributes(None),
        where=user_line(),
    )
    return tuple((node, k) for k in range(node.count))
