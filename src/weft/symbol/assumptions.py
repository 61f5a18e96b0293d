"""Default shapes and dtypes of symbols, applied one at a time after exact inference has stalled.

In this order: an input that was created automatically has the type that its operator states; a variable without an
element type is float32, or the type that its readers take instead; operands of unknown shape get the default shape of
their operator.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from weft.base.device import Device
from weft.base.dtype import DType, bool_, float32, int64
from weft.base.errors import GraphError, ShapeError
from weft.ops.shapes import Partial, shown
from weft.ops.sizes import NeedsSizes, Size, unknown_size
from weft.ops.types import TensorType
from weft.symbol.inference import UNFIT, Inference, infer
from weft.symbol.node import Entry, SymbolNode, trained

__all__ = ["inferred", "own_variables", "variable_types"]


def inferred(
    entries: Sequence[Entry],
    shapes: Mapping[str, Partial],
    dtypes: Mapping[str, DType | None],
    device: Device | None = None,
) -> Inference:
    """All that is certain or likely. See Inference."""
    known = Inference(entries, shapes, dtypes, device).run()
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
            t = known.type_of((node, 0))
            if t is None:
                raise GraphError(
                    f"{what}: the shape of the variable {node.name!r} cannot be inferred, only "
                    f"{shown(known.shape_of((node, 0)))}: pass it as {node.name}=(...), or the shapes of more variables"
                )
            found[node.name] = t
    return found


def learn(known: Inference) -> bool:
    """Tells learnable inputs and states what their operators say of them; whether that was anything new."""
    changed = False
    for node in known.nodes:
        names = own_variables(node)
        if any(known.type_of((variable, 0)) is None for variable in names):
            types = _learnable_types(known, node)
            dtype = known.dtype_of(node.inputs[0])
            for variable, name in names.items():
                changed |= _tell(known, variable, types.get(name), dtype)
            known.settle()
    return changed


def own_variables(node: SymbolNode) -> dict[SymbolNode, str]:
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
        x[0]: name
        for name, x in zip(names, node.inputs, strict=False)
        if name in wanted and isinstance(x, tuple) and x[0].op is None
    }


def _learnable_types(known: Inference, node: SymbolNode) -> dict[str, TensorType]:
    """What an operator says of its learnable inputs, by what is known of its first one."""
    first, op = node.inputs[0], node.resolved(True)
    shape = known.shape_of(first)
    x = None
    if isinstance(first, tuple) and shape is not None:
        sizes = [unknown_size(0, d) if n is None else n for d, n in enumerate(shape)]
        x = TensorType(sizes, known.dtype_of(first) or float32, known.device)
    try:
        return op.learnable_types(x, *(None,) * (len(node.inputs) - 1))
    except (NeedsSizes, ShapeError, IndexError):
        return {}


def _tell(known: Inference, variable: SymbolNode, found: TensorType | None, dtype: DType | None) -> bool:
    """dtype: of the operator's first input, which learnable ones share if it is a float and found says nothing."""
    before = known.shape_of((variable, 0)), known.dtype_of((variable, 0))
    if found is not None and before[0] is None:
        known.tell_shape(variable, 0, tuple(None if isinstance(n, Size) else n for n in found.shape))
    if dtype is not None and (found is not None or dtype.is_floating):
        known.tell_dtype(variable, 0, dtype if found is None else found.dtype)
    return before != (known.shape_of((variable, 0)), known.dtype_of((variable, 0)))


def choose_dtype(known: Inference, shaped: bool) -> bool:
    """Chooses the element type of one variable of which nobody says it; whether there was one.

    shaped: only where the shape is known, by which some readers tell numbers of classes from shares.
    """
    for node in known.nodes:
        unknown = node.op is None and known.dtype_of((node, 0)) is None
        if unknown and (known.shape_of((node, 0)) is not None or not shaped):
            known.tell_dtype(node, 0, _likely_dtype(known, node))
            known.settle()
            return True
    return False


def _likely_dtype(known: Inference, variable: SymbolNode) -> DType:
    readers = known.readers.get(id(variable), ())
    beside = [dtype for node in readers for x in node.entries if (dtype := known.dtype_of(x))]
    floats = [dtype for dtype in beside if dtype.is_floating]
    for likely in (True, False):
        for dtype in (*floats[:1], float32, int64, bool_):
            if all(_takes(known, node, variable, dtype, likely) for node in readers):
                return dtype
    return float32


def _takes(known: Inference, node: SymbolNode, variable: SymbolNode, dtype: DType, likely: bool) -> bool:
    """Whether an operator accepts a variable of this type, on shapes made up where they are not known."""

    def dtype_of(entry: Entry, other: DType) -> DType:
        return dtype if entry[0] is variable else known.dtype_of(entry) or other

    for shapes in known.made_up(node, likely):
        for other in (dtype, float32):  # of operands of which as little is known
            try:
                infer(
                    node.resolved(True), known.types(node, shapes, functools.partial(dtype_of, other=other))
                )
            except UNFIT:
                continue
            return True
    return False


def guess(known: Inference) -> bool:
    """Tells one operand of which nothing is known the shape its operator finds likely; whether there was one."""
    for node in known.nodes:
        if node.op is None:
            continue
        inputs = [known.shape_of(x) for x in node.inputs]
        outputs = [known.shape_of((node, k)) for k in range(node.count)]
        likely = node.resolved(True).guess_shapes(inputs, outputs)
        for operand, before, shape in zip(node.inputs, inputs, likely, strict=True):
            if isinstance(operand, tuple) and before is None and shape is not None:
                known.tell_shape(*operand, shape)
                known.settle()
                return True
    return False
