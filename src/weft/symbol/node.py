"""Nodes of symbols: an operator applied to outputs of other nodes, or a variable. Immutable; no types, no data."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft.base.dtype import DType
from weft.base.errors import GraphError
from weft.ops.op import Op
from weft.ops.shapes import Partial

__all__ = [
    "OPEN",
    "Entry",
    "Operand",
    "SymbolNode",
    "check_names",
    "check_written",
    "ordered",
    "trained",
    "user_line",
]

OPEN = "training"  # the attribute that executors give, where a call did not


class SymbolNode:
    """op: None for a variable. inputs: entries, numbers, or None where an optional one is missing.

    is_open: whether training was left open. attrs: the user's own texts. shape, dtype: of a variable, as far as given.
    init: a text for whoever gives a variable its first value. where: the user's line.
    """

    __slots__ = ("attrs", "count", "dtype", "init", "inputs", "is_open", "name", "op", "shape", "where")

    def __init__(
        self,
        op: Op | None,
        inputs: Sequence[Operand],
        name: str,
        attrs: Mapping[str, str],
        *,
        is_open: bool = False,
        shape: Partial = None,
        dtype: DType | None = None,
        init: str | None = None,
        where: str = "",
    ) -> None:
        self.op, self.inputs, self.name, self.attrs = op, tuple(inputs), name, dict(attrs)
        self.is_open, self.shape, self.dtype, self.init, self.where = is_open, shape, dtype, init, where
        self.count = self._count()

    def _count(self) -> int:
        if self.op is None:
            return 1
        count = self.resolved(True).count_outputs(len(self.inputs))
        if count is None:
            raise GraphError(
                f"{self.op.name}: how many outputs it has depends on sizes, which a symbol does not know: {self.op!r}"
            )
        return count

    def resolved(self, training: bool) -> Op:
        """The operator, told whether it is training if that was left open."""
        assert self.op is not None
        return told(self.op, training) if self.is_open else self.op

    def replaced(self, inputs: Sequence[Operand], name: str | None = None) -> SymbolNode:
        """The same node on other inputs."""
        return SymbolNode(
            self.op,
            inputs,
            self.name if name is None else name,
            self.attrs,
            is_open=self.is_open,
            shape=self.shape,
            dtype=self.dtype,
            init=self.init,
            where=self.where,
        )

    @property
    def entries(self) -> Iterator[Entry]:
        """The inputs that are outputs of other nodes."""
        return (x for x in self.inputs if isinstance(x, tuple))

    def output_names(self) -> list[str]:
        """The names of the outputs: a variable's own, ``fc1_output``, or one for each of several."""
        if self.op is None:
            return [self.name]
        if own := self.resolved(True).output_names():
            return [f"{self.name}_{each}" for each in own[: self.count]]
        if self.count == 1:
            return [f"{self.name}_output"]
        named = self.resolved(True).outputs
        if named[0].startswith("*"):
            return [f"{self.name}_output{k}" for k in range(self.count)]
        return [f"{self.name}_{each}" for each in named[: self.count]]

    def states(self) -> list[int]:
        """The inputs that the operator writes when it is training, whether it is now or not."""
        return [] if self.op is None else list(trained(self.op).written(len(self.inputs)))

    def __repr__(self) -> str:
        return self.name if self.op is None else f"{self.op!r} {self.name}"


def told(op: Op, training: bool) -> Op:
    """The operator with another word on whether it is training."""
    return type(op)(**op.values() | {OPEN: training})


def trained(op: Op) -> Op:
    """The operator when it is training, if that makes a difference to it."""
    return told(op, True) if any(a.name == OPEN for a in op.attributes) else op


Entry = tuple[SymbolNode, int]  # one output of a node
Operand = Entry | bool | int | float | None


def ordered(entries: Sequence[Entry]) -> list[SymbolNode]:
    """The nodes that entries need, each after those it reads, otherwise as they are met."""
    done: dict[int, SymbolNode] = {}
    stack: list[tuple[SymbolNode, bool]] = [(node, False) for node, _ in reversed(entries)]
    while stack:
        node, ready = stack.pop()
        if id(node) in done:
            continue
        if ready:
            done[id(node)] = node
        else:
            stack.append((node, True))
            stack.extend((source, False) for source, _ in reversed(list(node.entries)))
    return list(done.values())


def check_names(nodes: Sequence[SymbolNode]) -> None:
    """Raise GraphError if two variables have one name: an array could not be given to one of them."""
    seen: dict[str, SymbolNode] = {}
    for node in nodes:
        if node.op is None and seen.setdefault(node.name, node) is not node:
            lines = [n.where for n in (seen[node.name], node) if n.where]
            raise GraphError(
                f"symbol: two variables are called {node.name!r}"
                + (f": made at {' and at '.join(lines)}" if lines else "")
            )


def check_written(node: SymbolNode) -> None:
    """Raise GraphError if a node writes anything but variables: nobody could see what it wrote."""
    for number in node.states():
        operand = node.inputs[number]
        if isinstance(operand, tuple) and operand[0].op is not None:
            assert node.op is not None
            names = node.op.made_inputs() or [spec.name for spec in node.op.inputs]
            raise GraphError(
                f"{node.op.name}: writes {names[number]}, which must be a variable, not {operand[0]!r}"
            )


_PACKAGE = __name__.rpartition(".")[0].rpartition(".")[0]


def user_line() -> str:
    """The line of the program that called into the package, as ``file:line``."""
    frame: Any = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == _PACKAGE:
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
