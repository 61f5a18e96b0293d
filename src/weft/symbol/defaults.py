"""Defaults of types that inference leaves open: added one at a time, with inference after each.

In this order: a variable that a symbol made itself has the type that its operator gives; a variable without a dtype is
float32, or the likely dtype that its readers accept; an operand without a shape has the one that its operator guesses.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Mapping, Sequence

from weft.base.device import Device
from weft.base.dtype import DType, bool_, float32, int64
from weft.base.errors import DTypeError, GraphError, ShapeError
from weft.graph.symbols import SymbolNode, is_partial, is_variable, trained
from weft.ops.dtypes import is_of
from weft.ops.node import Value
from weft.ops.op import Op
from weft.ops.rules import kinds_of, parse
from weft.ops.shapes import Partial, shown
from weft.ops.sizes import NeedsSizes, Size
from weft.ops.types import TensorType
from weft.symbol.inference import RULES, Inference, open_type
from weft.symbol.solvers import solver_of

__all__ = ["infer_with_defaults", "learnable_variables", "variable_types"]


def infer_with_defaults(
    values: Sequence[Value],
    shapes: Mapping[str, Partial],
    dtypes: Mapping[str, DType | None],
    device: Device | None = None,
) -> Inference:
    """Inference with defaults for what it leaves open. See Inference for the arguments and errors."""
    inference = Inference(values, shapes, dtypes, device).run()
    learnable, shaped, guessed, unshaped = (Candidates(inference) for _ in range(4))
    while (
        add_learnable_types(inference, learnable)
        or add_default_dtype(inference, shaped, is_shaped=True)
        or add_default_shape(inference, guessed)
        or add_default_dtype(inference, unshaped, is_shaped=False)
    ):
        pass
    return inference


class Candidates:
    """The nodes that a rule of defaults has to look at, in their order.

    At first all; one that it has looked at in vain comes again when more becomes known of a value that it reads or
    makes, on which alone the rule depends. So the work is proportional to what becomes known, not to its square.
    """

    def __init__(self, inference: Inference) -> None:
        self._nodes = inference.nodes
        self._indices = {id(node): k for k, node in enumerate(self._nodes)}
        self._heap = list(range(len(self._nodes)))
        self._members = set(self._heap)
        inference.listeners.append(self.add)

    def add(self, node: SymbolNode) -> None:
        """Have the rule look at a node."""
        k = self._indices.get(id(node))
        if k is not None and k not in self._members:
            self._members.add(k)
            heapq.heappush(self._heap, k)

    def next(self) -> SymbolNode | None:
        """The first of them, which is none any more; None: there is none."""
        if not self._heap:
            return None
        k = heapq.heappop(self._heap)
        self._members.discard(k)
        return self._nodes[k]


def variable_types(inference: Inference, what: str) -> dict[str, TensorType]:
    """The types of all variables. Raises GraphError if some are not known."""
    types: dict[str, TensorType] = {}
    for node in inference.nodes:
        if node.op is None:
            t = inference.type_of(node.outputs[0])
            if t is None:
                raise GraphError(
                    f"{what}: the shape of the variable {node.name!r} cannot be inferred, only "
                    f"{shown(inference.shape_of(node.outputs[0]))}: pass {node.name}=(...), or more of the other shapes"
                )
            types[node.name] = t
    return types


def add_learnable_types(inference: Inference, candidates: Candidates) -> bool:
    """Add the types of learnable inputs and states by their operators; returns whether any of them was new."""
    changed = False
    while (node := candidates.next()) is not None:
        names = learnable_variables(node)
        if any(inference.type_of(variable) is None for variable in names):
            types = _learnable_types(inference, node)
            dtype = inference.dtype_of(node.inputs[0])
            for variable, name in names.items():
                changed |= _add_types(inference, node.resolved(True), name, variable, types.get(name), dtype)
            inference.settle()
    return changed


def learnable_variables(node: SymbolNode) -> dict[Value, str]:
    """The variables that an operator learns or writes -> their names in its learnable_types."""
    if node.op is None:
        return {}
    op = trained(node.op)
    written_or_learned = {*op.learnable, *op.writes}
    names = [spec.name for spec in op.inputs if not spec.variadic]
    if op.inputs and op.inputs[-1].variadic and op.inputs[-1].name in written_or_learned:
        parts = solver_of(op).learnable_parts()
        names += parts
        written_or_learned.update(parts)
    return {
        value: name
        for name, value in zip(names, node.inputs, strict=False)
        if name in written_or_learned and value is not None and is_variable(value)
    }


def _learnable_types(inference: Inference, node: SymbolNode) -> dict[str, TensorType]:
    """The types that an operator gives its learnable inputs, by what is known of its first input."""
    first, op = node.inputs[0], node.resolved(True)
    shape = inference.shape_of(first)
    x = None
    if is_partial(first) and shape is not None:
        x = open_type(0, shape, inference.dtype_of(first) or float32, inference.device)
    try:
        return op.learnable_types(x, *(None,) * (len(node.inputs) - 1))
    except (NeedsSizes, ShapeError, IndexError):
        return {}


def _add_types(
    inference: Inference, op: Op, name: str, variable: Value, t: TensorType | None, dtype: DType | None
) -> bool:
    """Add a learnable input's type; dtype: of the operator's first input, which is its own if the rule takes it.

    Returns whether anything was new.
    """
    before = inference.shape_of(variable), inference.dtype_of(variable)
    if t is not None and before[0] is None:
        inference.merge_shape(variable, tuple(None if isinstance(n, Size) else n for n in t.shape))
    if t is not None:
        dtype = t.dtype
    elif dtype is not None:
        operands = (x for x in parse(op.rule).inputs if x.name == name) if op.rule else ()
        words, kinds = next(((x.words, x.kinds) for x in operands), ((), ("float",)))
        dtype = dtype.accumulation if "wide" in words else dtype
        dtype = dtype if not kinds or is_of(dtype, kinds[0]) else None
    inference.set_dtype(variable, dtype)
    return before != (inference.shape_of(variable), inference.dtype_of(variable))


def add_default_dtype(inference: Inference, candidates: Candidates, is_shaped: bool) -> bool:
    """Add the dtype of one variable that has none; returns whether there was one.

    is_shaped: of one whose shape is known, by which some readers distinguish class indices from shares.
    """
    while (node := candidates.next()) is not None:
        value = node.outputs[0]
        unknown = node.op is None and inference.dtype_of(value) is None
        if unknown and (inference.shape_of(value) is not None or not is_shaped):
            inference.set_dtype(value, _default_dtype(inference, value))
            inference.settle()
            return True
    return False


def _default_dtype(inference: Inference, variable: Value) -> DType:
    """The first likely dtype that all readers take: of the kinds that they prefer, then a float, an integer, bool."""
    readers = inference.readers.get(id(variable.node), ())
    beside = [dtype for node in readers for v in node.sources if (dtype := inference.dtype_of(v))]
    floats = [dtype for dtype in beside if dtype.is_floating]
    likely = [*floats[:1], float32, int64, bool_]
    for kinds in map(functools.partial(_kinds, variable=variable), readers):  # the sort is stable
        likely.sort(
            key=lambda dtype: next((k for k, kind in enumerate(kinds) if is_of(dtype, kind)), len(kinds))
        )
    return next(
        (d for d in likely if all(_accepts(inference, node, variable, d) for node in readers)), float32
    )


def _kinds(node: SymbolNode, variable: Value) -> tuple[str, ...]:
    """The kinds of dtypes that a node's operator takes in a variable's place, the likely one first."""
    index = next(k for k, v in enumerate(node.inputs) if v is variable)
    return kinds_of(node.resolved(True), index)


def _accepts(inference: Inference, node: SymbolNode, variable: Value, dtype: DType) -> bool:
    """Whether an operator accepts a variable of this dtype: by its infer where ranks are known, else by its rule."""
    op = node.resolved(True)
    if (rule := RULES.get(type(op))) is not None:
        return all(
            _accepts(inner, reader, formal, dtype)
            for inner, formal in rule.inside(inference, node, variable)
            for reader in inner.readers.get(id(formal.node), ())
        )

    def dtype_of(value: Value, other: DType) -> DType:
        return dtype if value is variable else inference.dtype_of(value) or other

    for other in (dtype, float32):  # of operands of which as little is known
        assumed = functools.partial(dtype_of, other=other)
        try:
            if inference.infer_shaped(node, op, assumed) is None:
                op.infer_dtypes(*inference.input_types(node, assumed, shaped=False))
        except (ShapeError, DTypeError, IndexError, ValueError):
            continue
        return True
    return False


def add_default_shape(inference: Inference, candidates: Candidates) -> bool:
    """Add the shape that an operator guesses for one operand without a shape; returns whether there was one."""
    while (node := candidates.next()) is not None:
        if node.op is None:
            continue
        inputs = [inference.shape_of(v) for v in node.inputs]
        outputs = [inference.shape_of(v) for v in node.outputs]
        likely = solver_of(node.resolved(True)).likely_shapes(inputs, outputs)
        for value, before, shape in zip(node.inputs, inputs, likely, strict=True):
            if value is not None and is_partial(value) and before is None and shape is not None:
                inference.merge_shape(value, shape)  # so the node is a candidate again
                inference.settle()
                return True
    return False
