"""Shapes and element types of symbols, from as little as is known, in both directions.

What an operator says is passed on until nothing new comes: its ``infer`` on inputs whose unknown sizes are Sizes, its
solver (weft.symbol.solvers) backwards, and the dtypes of its rule where shapes are not known. What is not certain, only
likely, weft.symbol.defaults adds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from weft.base.device import Device
from weft.base.dtype import DType
from weft.base.errors import DTypeError, GraphError, ShapeError
from weft.graph.symbols import SymbolNode, check_names, is_partial, nodes_of, partial_type
from weft.ops.node import Value
from weft.ops.op import Op
from weft.ops.shapes import Contradiction, Partial, merge, shown
from weft.ops.sizes import NeedsSizes, Size, unknown_size
from weft.ops.types import TensorType
from weft.symbol.solvers import solver_of

__all__ = ["RULES", "BodyRule", "Inference", "infer", "open_type"]


class BodyRule(NamedTuple):
    """The rules of operators with graphs inside, instead of those of shapes and dtypes.

    infer: states what is known, in both directions. inside: for a variable that a node reads, what is known inside and
    the variables that stand for it there.
    """

    infer: Callable[[Inference, SymbolNode], None]
    inside: Callable[[Inference, SymbolNode, Value], Iterator[tuple[Inference, Value]]]


RULES: dict[type[Op] | None, BodyRule] = {}


class Inference:
    """The known shapes and dtypes of the values of some nodes. run() infers the rest, as far as that is possible.

    shapes, dtypes: by the names of variables, beside what the variables say themselves.
    Raises GraphError for names that are not there, ShapeError and DTypeError for contradictions.
    """

    def __init__(
        self,
        values: Sequence[Value],
        shapes: Mapping[str, Partial],
        dtypes: Mapping[str, DType | None],
        device: Device | None = None,
    ) -> None:
        self.nodes = nodes_of(values)
        self.device = device
        check_names(self.nodes)
        self.shapes: dict[int, Partial] = {}  # by id of the value
        self.dtypes: dict[int, DType] = {}
        self.readers: dict[int, list[SymbolNode]] = {}
        self.queue: deque[SymbolNode] = deque()
        self.waiting: set[int] = set()
        self.listeners: list[
            Callable[[SymbolNode], None]
        ] = []  # called with nodes of whose values more is known
        variables = {node.name: node for node in self.nodes if node.op is None}
        unknown = [name for name in (*shapes, *dtypes) if name not in variables]
        if unknown:
            raise GraphError(
                f"infer: no variable {unknown[0]!r}; there are: {', '.join(variables) or 'none'}"
            )
        for node in self.nodes:
            for value in node.sources:
                self.readers.setdefault(id(value.node), []).append(node)
            if node.op is not None:
                self.wake(node)
        for name, node in variables.items():
            value = node.outputs[0]
            try:
                self.merge_shape(value, merge(partial_type(value).shape, shapes.get(name)))
            except Contradiction as wrong:
                raise ShapeError(f"infer: {name} was declared otherwise: {wrong}") from None
            self.set_dtype(value, dtypes.get(name) or value.type.dtype)

    # Facts.

    def wake(self, node: SymbolNode) -> None:
        if node.op is not None and id(node) not in self.waiting:
            self.waiting.add(id(node))
            self.queue.append(node)

    def spread(self, value: Value) -> None:
        assert isinstance(value.node, SymbolNode)
        for node in (value.node, *self.readers.get(id(value.node), ())):
            self.wake(node)
            for listener in self.listeners:
                listener(node)

    def merge_shape(self, value: Value, shape: Partial) -> None:
        shape_before = self.shapes.get(id(value))
        merged = merge(shape_before, shape)
        if merged is not None and any(isinstance(n, int) and n < 0 for n in merged):
            raise Contradiction(f"{shown(merged)} has a size below 0")
        if merged != shape_before:
            self.shapes[id(value)] = merged
            self.spread(value)

    def set_dtype(self, value: Value, dtype: DType | None) -> None:
        if dtype is not None and id(value) not in self.dtypes:
            self.dtypes[id(value)] = dtype
            self.spread(value)

    def shape_of(self, value: Value | None) -> Partial:
        return None if value is None else self.shapes.get(id(value)) if is_partial(value) else ()

    def dtype_of(self, value: Value | None) -> DType | None:
        return None if value is None else self.dtypes.get(id(value)) if is_partial(value) else value.dtype

    def type_of(self, value: Value) -> TensorType | None:
        """The type of a value, if all of it is known."""
        shape, dtype = self.shape_of(value), self.dtype_of(value)
        if shape is None or dtype is None or None in shape:
            return None
        return TensorType([n for n in shape if n is not None], dtype, self.device)

    # The search.

    def run(self) -> Inference:
        """Find what is certain. weft.symbol.defaults adds what is likely."""
        self.settle()
        return self

    def settle(self) -> None:
        while self.queue:
            node = self.queue.popleft()
            self.waiting.discard(id(node))
            try:
                self.visit(node)
            except Contradiction as wrong:
                raise ShapeError(self.located(node, f"{node.resolved(True).name}: {wrong}")) from None
            except (ShapeError, DTypeError, IndexError, ValueError, TypeError) as error:
                raise type(error)(self.located(node, str(error))) from None

    def located(self, node: SymbolNode, message: str) -> str:
        return f"{message}\n  in {node.name}" + (f", made at {node.where}" if node.where else "")

    def visit(self, node: SymbolNode) -> None:
        """Apply the rules of one node's operator to its values."""
        op = node.resolved(True)
        if (rule := RULES.get(type(op))) is not None:  # graphs inside, which know more than shapes
            rule.infer(self, node)
            return
        outputs = [self.shapes.get(id(v)) for v in node.outputs]
        solver = solver_of(op)
        inputs, outputs = solver.shapes([self.shape_of(v) for v in node.inputs], outputs)
        for value, shape in zip(node.inputs, inputs, strict=True):
            if value is not None and is_partial(value):
                self.merge_shape(value, shape)
            elif value is not None and shape not in (None, ()):
                raise Contradiction(f"{value!r} is a number, not {shown(shape)}")
        for value, shape in zip(node.outputs, outputs, strict=False):
            self.merge_shape(value, shape)
        input_dtypes, output_dtypes = solver.dtypes(
            [self.dtype_of(v) for v in node.inputs], [self.dtypes.get(id(v)) for v in node.outputs]
        )
        for value, dtype in zip(node.inputs, input_dtypes, strict=True):
            if value is not None and is_partial(value):
                self.set_dtype(value, dtype)
        for value, dtype in zip(node.outputs, output_dtypes, strict=False):
            self.set_dtype(value, dtype)
        self.infer_forward(node, op)

    def infer_forward(self, node: SymbolNode, op: Op) -> None:
        """The outputs by the operator's infer where the inputs' ranks and dtypes are known, else their dtypes."""
        if any(v is not None and self.dtype_of(v) is None for v in node.inputs):
            return
        types = self.infer_shaped(node, op, self.dtype_of)
        if types is None:
            self.set_dtypes(node, op.infer_dtypes(*self.input_types(node, self.dtype_of, shaped=False)) or ())
            return
        if len(types) - op.hidden != len(node.outputs):
            raise GraphError(
                f"{op.name}: makes {len(types) - op.hidden} outputs, not the {len(node.outputs)} of its symbol"
            )
        for value, t in zip(node.outputs, types, strict=False):
            self.merge_shape(value, tuple(None if isinstance(n, Size) else n for n in t.shape))
        self.set_dtypes(node, [t.dtype for t in types])

    def set_dtypes(self, node: SymbolNode, dtypes: Sequence[DType]) -> None:
        """dtypes: of the outputs, the last one for all further ones; none if they are not known."""
        for k, value in enumerate(node.outputs if dtypes else ()):
            self.set_dtype(value, dtypes[min(k, len(dtypes) - 1)])

    def infer_shaped(
        self, node: SymbolNode, op: Op, dtype_of: Callable[[Value], DType | None]
    ) -> tuple[TensorType, ...] | None:
        """The outputs' types by infer; None if a rank is not known, or infer needs to know more sizes."""
        if any(v is not None and self.shape_of(v) is None for v in node.inputs):
            return None
        try:
            return infer(op, self.input_types(node, dtype_of, shaped=True))
        except NeedsSizes:
            return None

    def input_types(
        self, node: SymbolNode, dtype_of: Callable[[Value], DType | None], shaped: bool
    ) -> list[TensorType | None]:
        """The inputs' types with a Size for each size that is not known; not shaped: those of their elements."""
        types: list[TensorType | None] = []
        for k, value in enumerate(node.inputs):
            if value is None or not is_partial(value):
                types.append(None if value is None else value.type)
                continue
            dtype = dtype_of(value)
            assert dtype is not None
            types.append(open_type(k, self.shape_of(value) if shaped else (), dtype, self.device))
        return types


def open_type(index: int, shape: Partial, dtype: DType, device: Device | None = None) -> TensorType:
    """The type of the input of this index, with a Size for each size that is not known."""
    assert shape is not None
    return TensorType(
        [unknown_size(index, d) if n is None else n for d, n in enumerate(shape)], dtype, device
    )


def infer(op: Op, types: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
    """The outputs' types, one alone in a tuple, too."""
    result = op.infer(*types)
    return (result,) if isinstance(result, TensorType) else tuple(result)
