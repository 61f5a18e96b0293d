"""Dispatches calls on other libraries' array types to their `__weft_function__`.

    def __weft_function__(self, op, args, attributes): ...

op: the operator with its attributes; args: one entry for each of its inputs, in order, None for one that is missing;
attributes: the operator's attributes by name. The result is what the caller gets, or NotImplemented.

Which object is called follows NumPy's `__array_function__` (NEP 18): each type once, for the first of its objects; a
type of higher `__weft_priority__` (0 by default) before one of lower, a subclass before what it inherits from, else
from left to right. If all decline, the operator is run as what it decomposes to, each part of which is a call again;
so a type needs rules for primitives only. A primitive that all decline raises TypeError.

>>> class Named:
...     def __init__(self, name): self.name = name
...     def __weft_function__(self, op, args, attributes): return f"{op.name} of {self.name}"
>>> import weft.functional as F
>>> F.softmax(Named("x"), axis=0)
'softmax of x'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft import _core
from weft.base.dtype import as_dtype
from weft.ops import registry
from weft.ops.node import Node, Value, add_operators, constant, input_value, method_of
from weft.ops.op import Op
from weft.ops.types import TensorType

if TYPE_CHECKING:
    from weft.ops.array_methods import Methods

    _Methods = Methods[Any]
else:
    _Methods = object

__all__ = ["ArrayMethods", "call", "decomposed", "is_foreign", "owners"]

NAME = "__weft_function__"


def is_foreign(x: Any) -> bool:
    """Whether an object's type decides what operators make of it.

    >>> is_foreign(1.0)
    False
    """
    return hasattr(type(x), NAME)


def owners(args: Sequence[Any]) -> list[Any]:
    """The objects to call, in order: one of each type."""
    objects: list[Any] = []
    for x in args:
        kind = type(x)
        if not hasattr(kind, NAME) or any(type(other) is kind for other in objects):
            continue
        index = next((k for k, other in enumerate(objects) if issubclass(kind, type(other))), len(objects))
        objects.insert(index, x)
    objects.sort(key=lambda x: -getattr(type(x), "__weft_priority__", 0))  # stable
    return objects


def call(op: Op, args: tuple[Any, ...]) -> Any:
    """What an operator gives on inputs of which some are foreign; called by the native core."""
    objects = owners(args)
    attributes = op.values()
    for x in objects:
        result = getattr(type(x), NAME)(x, op, args, attributes)
        if result is not NotImplemented:
            return result
    return decomposed(op, args, [type(x).__name__ for x in objects])


def decomposed(op: Op, args: Sequence[Any], declined: Sequence[str] = ()) -> Any:
    """An operator as calls of what it decomposes to.

    Raises TypeError for a primitive, and for objects without a shape and a dtype.
    """
    values = [_stand_in(op, x) for x in args]
    parts: Any = NotImplemented
    if type(op).decompose is not Op.decompose:
        parts = _core.below_layers(op.decompose, *values)
    if parts is NotImplemented:
        reason = f"{' and '.join(declined)} declined it, and " if declined else ""
        raise TypeError(f"{op.name}: {reason}as a primitive it has no decomposition for these operands")
    results = list(parts) if isinstance(parts, tuple | list) else [parts]
    visible = results[: len(results) - op.hidden]
    objects: dict[int, Any] = {id(v): x for v, x in zip(values, args, strict=True) if v is not None}
    types = [None if v is None else v.type for v in values]
    for result in visible:
        _compute(result.node, objects, op, types)
    outputs = [objects[id(v)] for v in visible]
    return outputs[0] if len(outputs) == 1 and not op.outputs[0].startswith("*") else tuple(outputs)


def _stand_in(op: Op, x: Any) -> Value | None:
    if x is None or isinstance(x, Value):
        return x
    if isinstance(x, bool | int | float):
        return constant(x)
    try:
        kind = TensorType(tuple(x.shape), as_dtype(x.dtype), getattr(x, "device", None))
    except AttributeError as missing:
        raise TypeError(
            f"{op.name}: to be decomposed, a {type(x).__name__} needs shape and dtype: {missing}"
        ) from None
    return input_value(kind)


def _compute(root: Node, objects: dict[int, Any], op: Op, types: Sequence[Any]) -> None:
    """Call the operators of nodes, those that the root reads first, with the objects of values by id."""
    stack = [root]
    while stack:
        node = stack[-1]
        if all(id(v) in objects for v in node.outputs[: _visible(node)]):
            stack.pop()
            continue
        reads = [v for v in (*node.inputs, *node.runtime.values()) if v is not None]
        waiting = [v.node for v in reads if id(v) not in objects]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        if node.op is None:
            objects[id(node.outputs[0])] = _number(node)
            continue
        if node.op == op and [None if v is None else v.type for v in node.inputs] == types:
            raise TypeError(f"{op.name}: decomposes to itself")
        node_op = node.op.with_runtime({name: objects[id(v)] for name, v in node.runtime.items()})
        result = node_op(*(None if v is None else objects[id(v)] for v in node.inputs))
        results = result if isinstance(result, tuple) else (result,)
        objects.update((id(v), x) for v, x in zip(node.outputs, results, strict=False))


def _visible(node: Node) -> int:
    return len(node.outputs) - (0 if node.op is None else node.op.hidden)


def _number(node: Node) -> Any:
    """A constant of a decomposition: a Python number, or an array of no dimensions where its type counts."""
    kind = node.outputs[0].type
    if kind.weak:
        return node.value
    return registry.function("full")(shape=(), value=node.value, dtype=kind.dtype, device=kind.device)


class ArrayMethods(_Methods):
    """Mixin for types with `__weft_function__`: Python's operators and the methods that arrays have.

    >>> class Named(ArrayMethods):
    ...     def __init__(self, name): self.name = name
    ...     def __weft_function__(self, op, args, attributes): return f"{op.name} {attributes}"
    >>> 1 + Named("x"), Named("x").sum(axis=0)
    ('add {}', "sum {'dtype': None, 'axis': 0, 'keepdims': False}")
    """

    __array_ufunc__ = None  # NumPy's arrays and scalars leave operators to the object

    def __getattr__(self, name: str) -> Any:
        method = method_of(self, name)
        if method is None:
            raise AttributeError(f"a {type(self).__name__} has no attribute {name!r}")
        return method


add_operators(ArrayMethods)
