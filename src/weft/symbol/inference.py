"""Shapes and element types of symbols, from as little as is known, in both directions.

What an operator knows goes around until nothing new comes: its ``infer`` on inputs whose unknown sizes are symbols, its
rule (weft.ops.shapes) backwards. Then what is likely is assumed, one thing at a time: what a learnable input has to be,
float32 for variables of which nobody says the type, one shape for the operands of arithmetic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft.base.device import Device
from weft.base.dtype import DType, float32, int64
from weft.base.dtype import bool_ as boolean
from weft.base.errors import DTypeError, GraphError, ShapeError
from weft.ops.node import constant
from weft.ops.op import Op
from weft.ops.shapes import Contradiction, Partial, merge, shown
from weft.ops.sizes import NeedsSizes, Size, unknown_size
from weft.ops.types import TensorType
from weft.symbol.node import Entry, Operand, SymbolNode, check_names, ordered

__all__ = ["Inference"]

Key = tuple[int, int]  # id of a node, number of the output


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

    def run(self, assume: bool = True) -> Inference:
        """Find what can be found; assume: also what is likely."""
        self.settle()
        while assume and (
            self.learn()
            or self.choose_dtypes(shaped=True)
            or self.guess()
            or self.choose_dtypes(shaped=False)
        ):
            pass
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
        outputs = [self.shapes.get((id(node), k)) for k in range(node.count)]
        inputs, outputs = op.solve_shapes([self.shape_of(x) for x in node.inputs], outputs)
        for operand, shape in zip(node.inputs, inputs, strict=True):
            if isinstance(operand, tuple):
                self.tell_shape(*operand, shape)
            elif operand is not None and shape not in (None, ()):
                raise Contradiction(f"{operand!r} is a number, not {shown(shape)}")
        for k, shape in enumerate(outputs[: node.count]):
            self.tell_shape(node, k, shape)
        self.infer_forward(node, op)

    def infer_forward(self, node: SymbolNode, op: Op) -> None:
        """The outputs by the operator's infer, where ranks and element types of the inputs are known."""
        if any(x is not None and self.dtype_of(x) is None for x in node.inputs):
            return
        if any(x is not None and self.shape_of(x) is None for x in node.inputs):
            self.tell_dtypes(node, self.dtypes_without_shapes(node, op))
            return
        try:
            types = _infer(op, [self.open_type(k, x) for k, x in enumerate(node.inputs)])
        except NeedsSizes:
            self.tell_dtypes(node, self.dtypes_without_shapes(node, op))
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

    def dtypes_without_shapes(self, node: SymbolNode, op: Op) -> list[DType]:
        """The outputs' element types, which never depend on sizes: by infer on sizes made up until some fit."""
        for shapes in self.made_up(node, op):
            types = [
                None
                if x is None
                else TensorType(shape, dtype, self.device)
                if isinstance(x, tuple) and (dtype := self.dtype_of(x))
                else constant(x).type  # type: ignore[arg-type]
                for x, shape in zip(node.inputs, shapes, strict=True)
            ]
            try:
                return [t.dtype for t in _infer(op, types)]
            except (ShapeError, DTypeError, IndexError, ValueError, ZeroDivisionError, NotImplementedError):
                continue
        return []

    def made_up(self, node: SymbolNode, op: Op) -> Iterator[list[Any]]:
        """Shapes for the inputs that might fit each other and what is known; the likely ones first."""
        for likely in (True, False):
            for size in (1, 8, 64):
                for rank in (2, 4, 3, 1, 0, 5):
                    found = self.filled(node, op, size, rank, likely)
                    if found is not None:
                        yield found

    def filled(self, node: SymbolNode, op: Op, size: int, rank: int, likely: bool) -> list[Any] | None:
        outputs = [self.shapes.get((id(node), k)) for k in range(node.count)]
        shapes = [self.shape_of(x) for x in node.inputs]
        try:
            for k in range(len(shapes)):
                shape = (None,) * rank if shapes[k] is None else shapes[k]
                assert shape is not None
                shapes[k] = tuple(size if n is None else n for n in shape)
                if likely:
                    shapes = op.guess_shapes(shapes, outputs)
                shapes, outputs = op.solve_shapes(shapes, outputs)
        except ShapeError:
            return None
        return [() if s is None else s for s in shapes]

    # Assumptions. Each says whether it told anything.

    def learn(self) -> bool:
        """Inputs that symbols make themselves are what their operator says, in the type of its first input."""
        changed = False
        for node in self.nodes:
            if node.op is None or not node.inputs:
                continue
            op = node.resolved(True)
            names = _learnable_names(node)
            if not names or all(self.type_of(node.inputs[k]) for k in names):  # type: ignore[arg-type]
                continue
            first = node.inputs[0]
            known = self.shape_of(first) is not None
            dtype = self.dtype_of(first)
            stand_in = float32 if dtype is None else dtype
            if isinstance(first, tuple) and known:
                sizes = [
                    unknown_size(0, d) if n is None else n for d, n in enumerate(self.shape_of(first) or ())
                ]
                x: TensorType | None = TensorType(sizes, stand_in, self.device)
            else:
                x = None
            try:
                types = op.learnable_types(x, *(None,) * (len(node.inputs) - 1))
            except (NeedsSizes, ShapeError, IndexError):
                types = {}
            for k, name in names.items():
                source, output = node.inputs[k]  # type: ignore[misc]
                before = (self.shapes.get((id(source), output)), self.dtypes.get((id(source), output)))
                found = types.get(name)
                if found is not None and before[0] is None:
                    self.tell_shape(
                        source, output, tuple(None if isinstance(n, Size) else n for n in found.shape)
                    )
                if dtype is not None and dtype.kind == "float":
                    self.tell_dtype(source, output, dtype if found is None else found.dtype)
                elif found is not None and x is None:  # it does not depend on the input
                    self.tell_dtype(source, output, found.dtype)
                changed |= before != (
                    self.shapes.get((id(source), output)),
                    self.dtypes.get((id(source), output)),
                )
            self.settle()
        return changed

    def choose_dtypes(self, shaped: bool) -> bool:
        """A variable of which nobody says the type is float32, or what its reader takes instead.

        shaped: only where the shape is known, by which some readers tell numbers of classes from shares.
        """
        for node in self.nodes:
            unknown = node.op is None and self.dtypes.get((id(node), 0)) is None
            if unknown and (self.shapes.get((id(node), 0)) is not None or not shaped):
                self.tell_dtype(node, 0, self.likely_dtype(node))
                self.settle()
                return True
        return False

    def likely_dtype(self, variable: SymbolNode) -> DType:
        beside = [
            dtype
            for node in self.readers.get(id(variable), ())
            for x in node.inputs
            if isinstance(x, tuple) and (dtype := self.dtype_of(x)) is not None and dtype.kind == "float"
        ]
        for dtype in (*beside[:1], float32, int64, boolean):
            if all(self.takes(node, variable, dtype) for node in self.readers.get(id(variable), ())):
                return dtype
        return float32

    def takes(self, node: SymbolNode, variable: SymbolNode, dtype: DType) -> bool:
        """Whether an operator accepts a variable of this type, as far as that can be tried."""
        types: list[TensorType | None] = []
        for k, x in enumerate(node.inputs):
            if isinstance(x, tuple):
                mine = dtype if x[0] is variable else self.dtype_of(x) or float32
                shape = self.shape_of(x)
                if shape is None:
                    return self.takes_somehow(node, variable, dtype)
                types.append(
                    TensorType(
                        [unknown_size(k, d) if n is None else n for d, n in enumerate(shape)],
                        mine,
                        self.device,
                    )
                )
            else:
                types.append(None if x is None else constant(x).type)
        try:
            _infer(node.resolved(True), types)
        except NeedsSizes:
            return self.takes_somehow(node, variable, dtype)
        except (ShapeError, DTypeError, ValueError, TypeError, IndexError):
            return False
        return True

    def takes_somehow(self, node: SymbolNode, variable: SymbolNode, dtype: DType) -> bool:
        """The same with shapes made up: those that might fit."""
        op = node.resolved(True)
        for shapes in self.made_up(node, op):
            types = [
                None
                if x is None
                else TensorType(
                    shape, dtype if x[0] is variable else self.dtype_of(x) or float32, self.device
                )
                if isinstance(x, tuple)
                else constant(x).type
                for x, shape in zip(node.inputs, shapes, strict=True)
            ]
            try:
                _infer(op, types)
            except DTypeError:
                return False
            except (ShapeError, IndexError, ValueError, ZeroDivisionError, NotImplementedError):
                continue
            return True
        return False

    def guess(self) -> bool:
        """Operands of which nothing is known are what their operator finds likely."""
        for node in self.nodes:
            if node.op is None:
                continue
            outputs = [self.shapes.get((id(node), k)) for k in range(node.count)]
            inputs = [self.shape_of(x) for x in node.inputs]
            for operand, before, likely in zip(
                node.inputs, inputs, node.resolved(True).guess_shapes(inputs, outputs), strict=True
            ):
                if isinstance(operand, tuple) and before is None and likely is not None:
                    self.tell_shape(*operand, likely)
                    self.settle()
                    return True
        return False


def _op(node: SymbolNode) -> Op:
    assert node.op is not None
    return node.op


def _infer(op: Op, types: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
    found = op.infer(*types)
    return (found,) if isinstance(found, TensorType) else tuple(found)


def _learnable_names(node: SymbolNode) -> dict[int, str]:
    """Number of each learnable or written input that is a variable -> its name in learnable_types."""
    op = node.resolved(True)
    wanted = (*op.learnable, *op.writes)
    names = [spec.name for spec in op.inputs if not spec.variadic]
    if op.inputs and op.inputs[-1].variadic and op.inputs[-1].name in wanted:
        parts = op.learnable_parts()
        names = [*names, *parts]
        wanted = (*wanted, *parts)
    return {
        k: name
        for k, (name, x) in enumerate(zip(names, node.inputs, strict=False))
        if name in wanted and isinstance(x, tuple) and x[0].op is None
    }
