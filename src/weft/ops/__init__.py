"""Operators: one class each; see weft.ops.op. ``list()`` has their names, ``get(name)`` the class.

>>> from weft import ops
>>> ops.get("relu").family
'activation'
"""

from __future__ import annotations

from weft import _core
from weft._preload import register_base
from weft.ops import registry
from weft.ops.op import Op, Runtime, op
from weft.ops.registry import get
from weft.ops.registry import names as list  # its public name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from weft.ops.foreign import ArrayMethods as ArrayMethods

__all__ = ["ArrayMethods", "Op", "Runtime", "get", "list", "op"]


def __getattr__(name: str) -> object:
    if name == "ArrayMethods":  # which few programs need
        from weft.ops.foreign import ArrayMethods

        return ArrayMethods
    from weft.base.name_hints import missing

    raise missing(__name__, name, lambda: __all__)


def _call_foreign() -> object:
    from weft.ops.foreign import call

    return call


register_base()
_core.register(call_foreign=_call_foreign, operator_function=lambda: registry.function)
