"""What is likely of symbols where nothing is certain: assumed one thing at a time, and only if it helps.

In this order: an input that a symbol made itself is what its operator says; a variable of which nobody says the element
type is float32, or what its readers take instead; operands of which nothing is known have the shape their operator
finds likely.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from weft.base.device import Device
from weft.base.dtype import DType, bool_, float32, int64
from weft.base.errors import DTypeError, GraphError, ShapeError
from weft.graph.symbols import SymbolNode, is_partial, is_variable, trained
from weft.ops.dtypes import is_of, kinds_of
from weft.ops.node import Value
from weft.ops.shapes import Partial, shown
from weft.ops.sizes import NeedsSizes, Size
from weft.ops.types import TensorType
from weft.symbol.inference import RULES, Inference, open_type

__all__ = ["inferred", "own_variables", "variable_types"]


def inferred(
    values: Sequence[Value],
    shapes: Mapping[str, Partial],
    dtypes: Mapping[str, DType | None],
    device: Device | None = None,
) -> Inference:
    """All that is certain or likely. See Inference."""
    known = Inference(values, shapes, dtypes, device).run()
    while (
        learn(known) or choose_dtype(known, shaped=True) or guess(known) or choose_dtype(known, shaped=False)
    ):
        pass
    return known


def variable_types(known: Inference, what: str) -> dict[str, TensorType]:
    """The types of all variables. Raises GraphError if some are not known."""
    found: dict[str, TensorType] = {}
    for node in known.nodes:
        if node.op is None:
            t = known.type_of(node.outputs[0])
            if t is None:
                raise GraphError(
                    f"{what}: the shape of {node.name} is not known, only {shown(known.shape_of(node.outputs[0]))}:"
                    " give it, or more of the others"
                )
            found[node.name] = t
    return found


def learn(known: Inference) -> bool:
    """Tells learnable inputs and states what their operators say of them; whether that was anything new."""
    changed = False
    for node in known.nodes:
        names = own_variables(node)
        if any(known.type_of(variable) is None for variable in names):
            types = _learnable_types(known, node)
            dtype = known.dtype_of(node.inputs[0])
            for variable, name in names.items():
                changed |= _tell(known, variable, types.get(name), dtype)
            known.settle()
    return changed


def own_variables(node: SymbolNode) -> dict[Value, str]:
    """The variables that are learnt or written by an operator -> their names in its learnable_types."""
    if node.op is None:
        return {}
    op = trained(node.op)
    wanted = {*op.learnable, *op.writes}
    names = [spec.name for spec in op.inputs if not spec.variadic]
    if op.inputs and op.inputs[-1].variadic and op.inputs[-1].name in wanted:
        names += op.learnable_parts()
        wanted.update(op.learnable_parts())
    return {
        value: name
        for name, value in zip(names, node.inputs, strict=False)
        if name in wanted and value is not None and is_variable(value)
    }


def _learnable_types(known: Inference, node: SymbolNode) -> dict[str, TensorType]:
    """What an operator says of its learnable inputs, by what is known of its first one."""
    first, op = node.inputs[0], node.resolved(True)
    shape = known.shape_of(first)
    x = None
    if is_partial(first) and shape is not None:
        x = open_type(0, shape, known.dtype_of(first) or float32, known.device)
    try:
        return op.learnable_types(x, *(None,) * (len(node.inputs) - 1))
    except (NeedsSizes, ShapeError, IndexError):
        return {}


def _tell(known: Inference, variable: Value, found: TensorType | None, dtype: DType | None) -> bool:
    """dtype: of the operator's first input, which learnable ones share if it is a float and found says nothing."""
    before = known.shape_of(variable), known.dtype_of(variable)
    if found is not None and before[0] is None:
        known.tell_shape(variable, tuple(None if isinstance(n, Size) else n for n in found.shape))
    if dtype is not None and (found is not None or dtype.is_floating):
        known.tell_dtype(variable, dtype if found is None else found.dtype)
    return before != (known.shape_of(variable), known.dtype_of(variable))


def choose_dtype(known: Inference, shaped: bool) -> bool:
    """Chooses the dtype of one variable where it is open; whether there was one.

    shaped: only where the shape is known, by which some readers tell indices of classes from shares.
    """
    for node in known.nodes:
        value = node.outputs[0]
        unknown = node.op is None and known.dtype_of(value) is None
        if unknown and (known.shape_of(value) is not None or not shaped):
            known.tell_dtype(value, _likely_dtype(known, value))
            known.settle()
            return True
    return False


def _likely_dtype(known: Inference, variable: Value) -> DType:
    """The first likely dtype that all readers take: of the kinds that they prefer, then a float, an integer, bool."""
    readers = known.readers.get(id(variable.node), ())
    beside = [dtype for node in readers for v in node.sources if (dtype := known.dtype_of(v))]
    floats = [dtype for dtype in beside if dtype.is_floating]
    likely = [*floats[:1], float32, int64, bool_]
    for kinds in map(functools.partial(_kinds, variable=variable), readers):  # the sort is stable
        likely.sort(
            key=lambda dtype: next((k for k, kind in enumerate(kinds) if is_of(dtype, kind)), len(kinds))
        )
    return next((d for d in likely if all(_takes(known, node, variable, d) for node in readers)), float32)


def _kinds(node: SymbolNode, variable: Value) -> tuple[str, ...]:
    """The kinds of dtypes that a node's operator takes in a variable's place, the likely one first."""
    index = next(k for k, v in enumerate(node.inputs) if v is variable)
    return kinds_of(node.resolved(True), index)


def _takes(known: Inference, node: SymbolNode, variable: Value, dtype: DType) -> bool:
    """Whether an operator accepts a variable of this dtype: by its infer where ranks are known, else by its rule."""
    op = node.resolved(True)
    if (rule := RULES.get(type(op))) is not None:
        return all(
            _takes(inner, reader, formal, dtype)
            for inner, formal in rule.inside(known, node, variable)
            for reader in inner.readers.get(id(formal.node), ())
        )

    def dtype_of(value: Value, other: DType) -> DType:
        return dtype if value is variable else known.dtype_of(value) or other

    for other in (dtype, float32):  # of operands of which as little is known
        assumed = functools.partial(dtype_of, other=other)
        try:
            if known.infer_shaped(node, op, assumed) is None:
                op.infer_dtypes(*known.input_types(node, assumed, shaped=False))
        except (ShapeError, DTypeError, IndexError, ValueError):
            continue
        return True
    return False


def guess(known: Inference) -> bool:
    """Tells one operand of which nothing is known the shape its operator finds likely; whether there was one."""
    for node in known.nodes:
        if node.op is None:
            continue
        inputs = [known.shape_of(v) for v in node.inputs]
        outputs = [known.shape_of(v) for v in node.outputs]
        likely = node.resolved(True).guess_shapes(inputs, outputs)
        for value, before, shape in zip(node.inputs, inputs, likely, strict=True):
            if value is not None and is_partial(value) and before is None and shape is not None:
                known.tell_shape(value, shape)
                known.settle()
                return True
    return False
