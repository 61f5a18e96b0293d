"""Nodes of symbols: nodes of a graph whose types are known in part, with names and the user's attributes.

A variable is a node without an operator, whose output has the type as far as it was declared; the other outputs have no
type before inference. Everything else, order, text, drawings, graphs inside of operators, is that of any graph.

>>> from weft.ops.registry import get
>>> x = variable("x", shape=(2, None))
>>> y = SymbolNode(get("exp")(), [x], "y", {}).outputs[0]
>>> x.type, y.type, [node.name for node in nodes_of([y])]
(?[2,?], ?[...], ['x', 'y'])
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft.base.device import Device
from weft.base.dtype import DType
from weft.base.errors import DTypeError, GraphError
from weft.graph.gradient import gradients
from weft.graph.graph import Graph, ordered
from weft.graph.subgraph import Subgraph
from weft.ops import functions as F
from weft.ops.node import Node, Value, constant
from weft.ops.op import Op, op
from weft.ops.shapes import Partial
from weft.ops.types import PartialType, TensorType

__all__ = [
    "TRAINING",
    "SymbolGradient",
    "SymbolNode",
    "body",
    "check_names",
    "check_written",
    "gradient_node",
    "is_partial",
    "is_variable",
    "nodes_of",
    "partial_graph",
    "partial_type",
    "trained",
    "user_line",
    "variable",
]

TRAINING = "training"  # the attribute that executors give, where a call did not


class SymbolNode(Node):
    """An operator applied to values of symbols, or a variable, for which op is None.

    inputs: values and numbers, None where an optional one is missing. is_open: whether training was left open. attrs:
    the user's own texts. init: a text for the code that gives a variable its first value. count: how many outputs
    callers get, where the operator and the number of its inputs do not determine it.
    Raises GraphError if the number of outputs is not known.
    """

    __slots__ = ("attrs", "init", "is_open")

    def __init__(
        self,
        op: Op | None,
        inputs: Sequence[Value | bool | int | float | None],
        name: str,
        attrs: Mapping[str, str],
        *,
        is_open: bool = False,
        type: PartialType | None = None,
        init: str | None = None,
        where: str = "",
        count: int | None = None,
    ) -> None:
        self.attrs, self.is_open, self.init = dict(attrs), is_open, init
        operands = [x if x is None or isinstance(x, Value) else constant(x) for x in inputs]
        declared: Any = type or PartialType(None, None)
        if op is not None and count is None:
            count = (trained(op) if is_open else op).count_outputs(len(operands))
            if count is None:
                raise GraphError(
                    f"{op.name}: how many outputs it has depends on sizes, which a symbol does not know: {op!r}"
                )
        super().__init__(op, operands, [declared] * (1 if count is None else count), name=name)
        self.where = where

    def _run_device(self, types: Sequence[TensorType]) -> Device | None:
        return None  # executors place symbols

    def resolved(self, training: bool) -> Op:
        """The operator, with the training flag if that was left open."""
        assert self.op is not None
        return with_training(self.op, training) if self.is_open else self.op

    def replaced(self, inputs: Sequence[Value | None], name: str | None = None) -> SymbolNode:
        """The same node on other inputs."""
        node = SymbolNode(
            self.op,
            inputs,
            self.name if name is None else name,
            self.attrs,
            is_open=self.is_open,
            type=partial_type(self.outputs[0]),
            init=self.init,
            where=self.where,
            count=len(self.outputs),
        )
        node.order = self.order
        return node

    @property
    def sources(self) -> list[Value]:
        """The inputs that are outputs of other symbols' nodes: no numbers."""
        return [v for v in self.inputs if v is not None and is_partial(v)]

    def states(self) -> list[int]:
        """The inputs that the operator writes when it is training, whether it is now or not."""
        return [] if self.op is None else list(trained(self.op).writes_by_index(len(self.inputs)))

    def __repr__(self) -> str:
        return self.name if self.op is None else f"{self.op!r} {self.name}"


def variable(
    name: str,
    attrs: Mapping[str, str] | None = None,
    shape: Partial = None,
    dtype: DType | None = None,
    init: str | None = None,
    where: str = "",
) -> Value:
    """A value that is given when a symbol is bound, of which as much is known as is declared."""
    type = PartialType(shape, dtype)
    return SymbolNode(None, (), name, attrs or {}, type=type, init=init, where=where).outputs[0]


def partial_type(value: Value) -> PartialType:
    """The declared type of a symbol's value."""
    type: Any = value.type
    assert isinstance(type, PartialType)
    return type


def is_partial(value: Value | None) -> bool:
    """Whether a value is one of a symbol; numbers are not."""
    return value is not None and isinstance(value.node, SymbolNode)


def is_variable(value: Value | None) -> bool:
    """Whether a value is a symbol's variable."""
    return value is not None and isinstance(value.node, SymbolNode) and value.node.op is None


def nodes_of(values: Iterable[Value | None]) -> list[SymbolNode]:
    """The nodes of symbols that values need, without numbers, in the order of weft.graph.graph.ordered."""
    return [node for node in ordered(values) if isinstance(node, SymbolNode)]


def partial_graph(values: Sequence[Value], names: Sequence[str] | None = None) -> Graph:
    """The graph from variables to values. names: those of the variables in order, which need not all be read.

    Raises GraphError for two variables of one name, or one that names do not have.
    """
    nodes = nodes_of(values)
    check_names(nodes)
    variables = {node.name: node.outputs[0] for node in nodes if node.op is None}
    if names is None:
        return Graph(list(variables.values()), values)
    unknown = [name for name in variables if name not in names]
    if unknown:
        raise GraphError(f"symbol: a function inside reads {unknown[0]!r}, which it is not given")
    for node in nodes:
        if node.states():
            raise GraphError(
                f"{node.op!r}: writes one of its inputs, which functions of control flow on symbols cannot"
            )
    if not values or len(set(names)) != len(names):
        raise GraphError("symbol: a function inside needs outputs, and inputs of different names")
    return Graph([variables[name] if name in variables else variable(name) for name in names], values)


def with_training(op: Op, training: bool) -> Op:
    """The operator with another training flag."""
    return type(op)(**op.values() | {TRAINING: training})


def trained(op: Op) -> Op:
    """The operator when it is training, if that makes a difference to it."""
    return with_training(op, True) if any(a.name == TRAINING for a in op.attributes) else op


def check_names(nodes: Sequence[SymbolNode]) -> None:
    """Raise GraphError if two variables have one name: an array could not be given to one of them."""
    variables: dict[str, SymbolNode] = {}
    for node in nodes:
        if node.op is None and variables.setdefault(node.name, node) is not node:
            lines = [n.where for n in (variables[node.name], node) if n.where]
            raise GraphError(
                f"symbol: two variables are called {node.name!r}"
                + (f": made at {' and at '.join(lines)}" if lines else "")
            )


def check_written(node: SymbolNode) -> None:
    """Raise GraphError if a node writes anything but variables: the new content could not be seen."""
    for index in node.states():
        operand = node.inputs[index]
        if is_partial(operand) and not is_variable(operand):
            assert node.op is not None
            assert operand is not None
            names = [spec.name for spec in node.op.inputs if not spec.variadic]
            name = names[index] if index < len(names) else f"input {index}"
            raise GraphError(f"{node.op.name}: writes {name}, which must be a variable, not {operand.node!r}")


_PACKAGE = __name__.partition(".")[0]


def user_line() -> str:
    """The line of the program that called into the package, as ``file:line``."""
    frame: Any = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == _PACKAGE:
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


@op
class SymbolGradient(Op, public=False):
    """The gradients of the sum of all elements of the first inputs with respect to the last ones, called names.

    Gradient rules need types, which symbols do not have: the node is decomposed when it is lowered, on the very values
    that the first inputs were computed from.
    """

    names: tuple[str, ...]

    @property
    def outputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(f"{name}_grad" for name in self.names)

    def count_outputs(self, count: int) -> int:
        if not 0 < len(self.names) < count:
            raise GraphError(f"{self.name}: {count} inputs for {len(self.names)} gradients")
        return len(self.names)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        self.infer_dtypes(*x)
        return tuple(t.like() for t in x[len(x) - len(self.names) :])

    def infer_dtypes(self, *x: TensorType | None) -> tuple[DType, ...]:
        types = [t for t in x[len(x) - len(self.names) :] if t is not None]
        for name, t in zip(self.names, types, strict=True):
            if not t.dtype.is_differentiable:
                raise self.fail(DTypeError, "only floating-point values have gradients", **{name: t})
        return tuple(t.dtype for t in types)

    def decompose(self, *x: Value) -> tuple[Value, ...]:
        first = len(x) - len(self.names)
        dxs = gradients([y for y in x[:first] if y.dtype.is_differentiable], x[first:])
        return tuple(F.filled_like(v) if dx is None else dx for v, dx in zip(x[first:], dxs, strict=True))


def gradient_node(
    values: Sequence[Value], names: Sequence[str], name: str, attrs: Mapping[str, str]
) -> SymbolNode:
    """The node of the gradients of values with respect to variables. Raises GraphError for names that are not there."""
    variables = {node.name: node.outputs[0] for node in nodes_of(values) if node.op is None}
    unknown = [each for each in names if each not in variables]
    if unknown or not names:
        raise GraphError(
            f"grad: no variable {unknown[0]!r}; there are: {', '.join(variables)}"
            if unknown
            else "grad: needs the names of variables"
        )
    inputs = [*values, *(variables[each] for each in names)]
    return SymbolNode(SymbolGradient(names=tuple(names)), inputs, name, attrs, where=user_line())


def body(values: Sequence[Value], names: Sequence[str]) -> Subgraph:
    """A function of control flow, or of a custom gradient, as the graph that its operator runs. See partial_graph."""
    return Subgraph(partial_graph(values, names))
