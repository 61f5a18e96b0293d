"""Arrays that represent variables: the parameters of a module that is called with a symbol.

>>> import weft as wf, weft.functional as F, weft.symbol as sym
>>> w = wf.ones((3, 2))
>>> with naming(F.linear, {"w": w}):
...     y = F.linear(sym.var("x"), w, None)
>>> y.list_arguments(), y.infer_shape(x=(5, None))
(['x', 'w'], ([(5, 2), (3, 2)], [(5, 3)], []))
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any
from weakref import ref

from weft.arrays.tensor import Tensor
from weft.graph.symbols import user_line, variable
from weft.ops.node import Value
from weft.symbol.names import attributes, prefix

__all__ = ["is_naming", "naming", "variable_for"]

Variables = dict[Any, tuple[Tensor, Value]]

# By identity, as long as it lives: the variables of an owner, so that two calls of a module share its parameters.
_variables_by_owner: dict[int, tuple[ref[Any], Variables]] = {}


def _variables_of(owner: Any) -> Variables:
    key = id(owner)
    entry = _variables_by_owner.get(key)
    if entry is None or entry[0]() is not owner:
        entry = _variables_by_owner[key] = ref(owner, lambda _: _variables_by_owner.pop(key, None)), {}
    return entry[1]


class _Names:
    """The names of arrays, by identity, while their owner is called."""

    def __init__(self, owner: Any, arrays: Mapping[str, Tensor]) -> None:
        self._variables = _variables_of(owner)
        self._arrays = arrays  # kept alive, so that no other array takes the id of one
        self._names = {id(x): prefix() + name for name, x in arrays.items()}

    def variable(self, x: Tensor) -> Value | None:
        name = self._names.get(id(x))
        if name is None:
            return None
        attrs = attributes(None)
        key = (name, tuple(sorted(attrs.items())))
        array, value = self._variables.get(key, (None, None))
        if value is None or array is not x or (value.type.shape, value.type.dtype) != (x.shape, x.dtype):
            value = variable(name, attrs, x.shape, x.dtype, where=user_line())
            self._variables[key] = x, value
        return value


_current: ContextVar[_Names | None] = ContextVar("weft_parameters", default=None)


@contextlib.contextmanager
def naming(owner: Any, arrays: Mapping[str, Tensor]) -> Iterator[None]:
    """Inside, these arrays of an owner are variables of these names where they meet symbols."""
    token = _current.set(_Names(owner, arrays))
    try:
        yield
    finally:
        _current.reset(token)


def is_naming() -> bool:
    """Whether arrays have names now."""
    return _current.get() is not None


def variable_for(x: object) -> Value | None:
    """The variable that an array stands for, if any."""
    names = _current.get()
    return names.variable(x) if names is not None and isinstance(x, Tensor) else None
