"""Operators of users' on symbols, by name: ``weft.symbol.Custom``."""

from __future__ import annotations

from typing import Any

from weft.base.errors import GraphError
from weft.ops import registry
from weft.python_op import PythonOp
from weft.symbol.names import prefix, scoped_name
from weft.symbol.symbol import Symbol, var

__all__ = ["Custom"]


def Custom(*args: Any, op_type: str, name: str | None = None, **kwargs: Any) -> Symbol:
    """The symbol of an operator that ``wf.operator.register(op_type)`` has made, or of a PythonOp of that name.

    Inputs are given by position or name; those that are not, and auxiliary states, become variables called after the
    operator: ``fc_weight``. Parameters are given by name, as they are or as text.
    Raises GraphError if no such operator is registered, TypeError for what it does not take.

    >>> import weft as wf
    >>> import weft.symbol as sym
    >>> class Scaled(wf.operator.Operator):
    ...     def forward(self, ctx, in_data, req, out_data, aux):
    ...         self.assign(out_data[0], req[0], in_data[0].numpy() * in_data[1].numpy())
    >>> @wf.operator.register("scaled_by_weight")
    ... class ScaledProperty(wf.operator.OperatorProperty):
    ...     def list_arguments(self):
    ...         return ["data", "weight"]
    ...     def infer_shape(self, in_shapes):
    ...         return [in_shapes[0], in_shapes[0][-1:]], [in_shapes[0]], []
    ...     def create_operator(self, device):
    ...         return Scaled()
    >>> y = sym.Custom(sym.var("x"), op_type="scaled_by_weight", name="layer")
    >>> y.list_arguments(), y.infer_shape(x=(4, 3))[0]
    (['x', 'layer_weight'], [(4, 3), (3,)])
    """
    cls = registry.find(op_type) if isinstance(op_type, str) else None
    if cls is None or not issubclass(cls, PythonOp) or not cls.public:
        raise GraphError(f"Custom: no operator {op_type!r} is registered; see weft.operator.register")
    if any(isinstance(x, Symbol) for x in (*args, *kwargs.values())):
        symbol: Symbol = registry.function(op_type)(*args, name=name, **kwargs)
        return symbol
    # Nothing is given: the first input is made as the others are.
    if args:
        raise TypeError(f"Custom: expected symbols, got {type(args[0]).__name__}")
    attributes = cls.attributes_of(kwargs)
    first = cls(**{k: v for k, v in attributes.items() if k not in ("name", "attr")}).argument_names()[0]
    title = scoped_name(name, cls.name)
    whole: Symbol = registry.function(op_type)(var(f"{title}_{first}"), name=title[len(prefix()) :], **kwargs)
    return whole
