"""Shapes and element types of symbols, from as little as is known, in both directions.

What an operator knows goes around until nothing new comes: its ``infer`` on inputs whose unknown sizes are symbols, its
rule (weft.ops.shapes) backwards. What is not certain, only likely, is weft.symbol.assumptions' business.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from weft.base.device import Device
from weft.base.dtype import DType
from weft.base.errors import DTypeError, GraphError, ShapeError
from weft.ops.node import constant
from weft.ops.op import Op
from weft.ops.shapes import Contradiction, Partial, merge, shown
from weft.ops.sizes import NeedsSizes, Size, unknown_size
from weft.ops.types import TensorType
from weft.symbol.node import Entry, Operand, SymbolNode, check_names, ordered

__all__ = ["UNFIT", "Inference", "infer", "made_up_shapes"]

Key = tuple[int, int]  # id of a node, number of the output
Shape = tuple[int, ...]
# What infer raises on sizes that do not fit.
UNFIT = (ShapeError, DTypeError, IndexError, ValueError, ZeroDivisionError, NotImplementedError)


class Inference:
    """What is known of the values of some nodes. run() finds the rest, as far as it can be found.

    shapes, dtypes: by the names of variables, beside what the variables say themselves.
    Raises GraphError for names that are not there, ShapeError and DTypeError for contradictions.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        shapes: Mapping[str, Partial],
        dtypes: Mapping[str, DType | None],
        device: Device | None = None,
    ) -> None:
        self.nodes = ordered(entries)
        self.device = device
        check_names(self.nodes)
        self.shapes: dict[Key, Partial] = {}
        self.dtypes: dict[Key, DType | None] = {}
        self.readers: dict[int, list[SymbolNode]] = {}
        self.queue: deque[SymbolNode] = deque()
        self.waiting: set[int] = set()
        variables = {node.name: node for node in self.nodes if node.op is None}
        unknown = [name for name in (*shapes, *dtypes) if name not in variables]
        if unknown:
            raise GraphError(
                f"infer: no variable {unknown[0]!r}; there are: {', '.join(variables) or 'none'}"
            )
        for node in self.nodes:
            for source, _ in node.entries:
                self.readers.setdefault(id(source), []).append(node)
            if node.op is not None:
                self.wake(node)
        for name, node in variables.items():
            try:
                self.tell_shape(node, 0, merge(node.shape, shapes.get(name)))
            except Contradiction as wrong:
                raise ShapeError(f"infer: {name} was declared otherwise: {wrong}") from None
            self.tell_dtype(node, 0, dtypes.get(name) or node.dtype)

    # Facts.

    def wake(self, node: SymbolNode) -> None:
        if node.op is not None and id(node) not in self.waiting:
            self.waiting.add(id(node))
            self.queue.append(node)

    def spread(self, node: SymbolNode) -> None:
        self.wake(node)
        for reader in self.readers.get(id(node), ()):
            self.wake(reader)

    def tell_shape(self, node: SymbolNode, k: int, shape: Partial) -> None:
        known = self.shapes.get((id(node), k))
        both = merge(known, shape)
        if both is not None and any(isinstance(n, int) and n < 0 for n in both):
            raise Contradiction(f"{shown(both)} has a size below 0")
        if both != known:
            self.shapes[id(node), k] = both
            self.spread(node)

    def tell_dtype(self, node: SymbolNode, k: int, dtype: DType | None) -> None:
        if dtype is not None and self.dtypes.get((id(node), k)) is None:
            self.dtypes[id(node), k] = dtype
            self.spread(node)

    def shape_of(self, operand: Operand) -> Partial:
        if isinstance(operand, tuple):
            return self.shapes.get((id(operand[0]), operand[1]))
        return None if operand is None else ()

    def dtype_of(self, operand: Operand) -> DType | None:
        if isinstance(operand, tuple):
            return self.dtypes.get((id(operand[0]), operand[1]))
        return None if operand is None else constant(operand).dtype

    def type_of(self, entry: Entry) -> TensorType | None:
        """The type of a value, if all of it is known."""
        shape, dtype = self.shape_of(entry), self.dtype_of(entry)
        if shape is None or dtype is None or None in shape:
            return None
        return TensorType([n for n in shape if n is not None], dtype, self.device)

    # The search.

    def run(self) -> Inference:
        """Find what is certain. weft.symbol.assumptions adds what is likely."""
        self.settle()
        return self

    def settle(self) -> None:
        while self.queue:
            node = self.queue.popleft()
            self.waiting.discard(id(node))
            try:
                self.visit(node)
            except Contradiction as wrong:
                raise ShapeError(self.located(node, f"{_op(node).name}: {wrong}")) from None
            except (ShapeError, DTypeError, IndexError, ValueError, TypeError) as error:
                raise type(error)(self.located(node, str(error))) from None

    def located(self, node: SymbolNode, message: str) -> str:
        return f"{message}\n  in {node.name}" + (f", made at {node.where}" if node.where else "")

    def visit(self, node: SymbolNode) -> None:
        """What one node's operator says of its values."""
        op = node.resolved(True)
        if (tell := getattr(op, "tell", None)) is not None:  # graphs inside, which know more than shapes
            tell(self, node)
            return
        outputs = [self.shapes.get((id(node), k)) for k in range(node.count)]
        inputs, outputs = op.solve_shapes([self.shape_of(x) for x in node.inputs], outputs)
        for operand, shape in zip(node.inputs, inputs, strict=True):
            if isinstance(operand, tuple):
                self.tell_shape(*operand, shape)
            elif operand is not None and shape not in (None, ()):
                raise Contradiction(f"{operand!r} is a number, not {shown(shape)}")
        for k, shape in enumerate(outputs[: node.count]):
            self.tell_shape(node, k, shape)
        if type(op).solve_dtypes is not Op.solve_dtypes:
            self.solve_dtypes(node, op)
        self.infer_forward(node, op)

    def solve_dtypes(self, node: SymbolNode, op: Op) -> None:
        """The element types that the operator demands."""
        outputs = [self.dtypes.get((id(node), k)) for k in range(node.count)]
        inputs, outputs = op.solve_dtypes([self.dtype_of(x) for x in node.inputs], outputs)
        for operand, dtype in zip(node.inputs, inputs, strict=True):
            if isinstance(operand, tuple):
                self.tell_dtype(*operand, dtype)
        for k, dtype in enumerate(outputs[: node.count]):
            self.tell_dtype(node, k, dtype)

    def infer_forward(self, node: SymbolNode, op: Op) -> None:
        """The outputs by the operator's infer, where ranks and element types of the inputs are known."""
        if any(x is not None and self.dtype_of(x) is None for x in node.inputs):
            return
        if any(x is not None and self.shape_of(x) is None for x in node.inputs):
            self.tell_dtypes(node, self.dtypes_without_shapes(node))
            return
        try:
            types = infer(op, [self.open_type(k, x) for k, x in enumerate(node.inputs)])
        except NeedsSizes:
            self.tell_dtypes(node, self.dtypes_without_shapes(node))
            return
        if len(types) - op.hidden != node.count:
            raise GraphError(
                f"{op.name}: makes {len(types) - op.hidden} outputs, not the {node.count} of its symbol"
            )
        for k, t in enumerate(types[: node.count]):
            self.tell_shape(node, k, tuple(None if isinstance(n, Size) else n for n in t.shape))
        self.tell_dtypes(node, [t.dtype for t in types])

    def tell_dtypes(self, node: SymbolNode, dtypes: Sequence[DType]) -> None:
        for k, dtype in enumerate(dtypes[: node.count]):
            self.tell_dtype(node, k, dtype)

    def open_type(self, number: int, operand: Operand) -> TensorType | None:
        """An input's type with a Size for each size that is not known: rules that need to know it say so."""
        if operand is None:
            return None
        if not isinstance(operand, tuple):
            return constant(operand).type
        shape, dtype = self.shape_of(operand), self.dtype_of(operand)
        assert shape is not None
        assert dtype is not None
        sizes = [unknown_size(number, d) if n is None else n for d, n in enumerate(shape)]
        return TensorType(sizes, dtype, self.device)

    def made_up(self, node: SymbolNode, likely: bool) -> Iterator[list[Shape]]:
        """Shapes for the inputs that might fit each other and what is known. See made_up_shapes."""
        inputs = [self.shape_of(x) for x in node.inputs]
        outputs = [self.shapes.get((id(node), k)) for k in range(node.count)]
        return made_up_shapes(node.resolved(True), inputs, outputs, likely)

    def types(
        self, node: SymbolNode, shapes: Sequence[Shape], dtype_of: Callable[[Entry], DType | None]
    ) -> list[TensorType | None]:
        """The inputs' types in these shapes."""
        found: list[TensorType | None] = []
        for operand, shape in zip(node.inputs, shapes, strict=True):
            if isinstance(operand, tuple):
                dtype = dtype_of(operand)
                assert dtype is not None
                found.append(TensorType(shape, dtype, self.device))
            else:
                found.append(None if operand is None else constant(operand).type)
        return found

    def dtypes_without_shapes(self, node: SymbolNode) -> list[DType]:
        """The outputs' element types, which never depend on sizes: by infer on sizes made up until some fit."""
        for likely in (True, False):
            for shapes in self.made_up(node, likely):
                try:
                    types = infer(node.resolved(True), self.types(node, shapes, self.dtype_of))
                except UNFIT:
                    continue
                if len(types) >= node.count:  # how many there are may depend on sizes
                    return [t.dtype for t in types]
        return []


def _op(node: SymbolNode) -> Op:
    assert node.op is not None
    return node.op


def infer(op: Op, types: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
    """The outputs' types, one alone in a tuple, too."""
    found = op.infer(*types)
    return (found,) if isinstance(found, TensorType) else tuple(found)


def made_up_shapes(
    op: Op, inputs: Sequence[Partial], outputs: Sequence[Partial], likely: bool
) -> Iterator[list[Shape]]:
    """Whole shapes for partly known inputs, as many as come to mind; likely: those that the operator finds so."""
    seen = set()
    for size in _likely_sizes(op):
        for rank in (2, 4, 3, 1, 0, 5):
            try:
                found = _filled(op, list(inputs), list(outputs), size, rank, likely)
            except ShapeError:
                continue
            if tuple(found) not in seen:
                seen.add(tuple(found))
                yield found


def _likely_sizes(op: Op) -> list[int]:
    """Some sizes, and those that the operator's attributes speak of: reshape's shape holds so many elements."""
    found = [1, 8, 64]
    for value in op.values().values():
        sizes = value if isinstance(value, tuple) else (value,)
        if all(isinstance(n, int) for n in sizes):
            found += [math.prod(n for n in sizes if n > 0), *(n for n in sizes if n > 0)]
    return list(dict.fromkeys(found))


def _filled(
    op: Op, inputs: list[Partial], outputs: list[Partial], size: int, rank: int, likely: bool
) -> list[Shape]:
    """The inputs with this size in each open place, one after the other, as long as nothing else follows."""
    for k in range(len(inputs)):
        shape = (None,) * rank if inputs[k] is None else inputs[k]
        assert shape is not None
        inputs[k] = tuple(size if n is None else n for n in shape)
        if likely:
            inputs = op.guess_shapes(inputs, outputs)
        inputs, outputs = op.solve_shapes(inputs, outputs)
    return [tuple(size if n is None else n for n in shape or ()) for shape in inputs]
