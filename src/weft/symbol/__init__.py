"""Symbols: programs composed before their arrays are known, and the executors that run them.

>>> import weft.symbol as sym
>>> import weft.functional as F
>>> y = F.softmax(F.linear(sym.var("data"), out_features=10, name="fc"))
>>> exe = y.simple_bind(data=(2, 4))
>>> exe.forward()[0].shape
(2, 10)

Every operator can also be called as ``sym.relu(...)``; so can those that have no array among their arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import arrays as _arrays  # noqa: F401 - so that functions can be planned
from weft.control_flow import cond, foreach, while_loop
from weft.ops import registry as _registry
from weft.symbol.compose import compose as _compose
from weft.symbol.creation import arange, eye, linspace, normal, randint, uniform
from weft.symbol.custom import Custom
from weft.symbol.executor import Executor
from weft.symbol.names import AttrScope, NameScope
from weft.symbol.symbol import Symbol, from_json, full, group, load, ones, var, zeros

__all__ = [
    "AttrScope",
    "Custom",
    "Executor",
    "NameScope",
    "Symbol",
    "arange",
    "cond",
    "eye",
    "foreach",
    "from_json",
    "full",
    "group",
    "linspace",
    "load",
    "normal",
    "ones",
    "randint",
    "uniform",
    "var",
    "while_loop",
    "zeros",
]


def __getattr__(name: str) -> Callable[..., Symbol]:
    if name.startswith("_") or name not in _registry.public_names():
        from weft.base.name_hints import missing

        raise missing(__name__, name, __dir__)

    def function(*args: Any, **kwargs: Any) -> Symbol:
        cls = _registry.get(name)
        if any(isinstance(x, Symbol) for x in (*args, *kwargs.values())):
            symbol: Symbol = _registry.function(name)(*args, **kwargs)
            return symbol
        return Symbol(_compose(cls, args, kwargs))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The symbol of weft.functional.{name}; name= and attr= are its own."
    return function


def __dir__() -> list[str]:
    return sorted({*__all__, *_registry.public_names()})
