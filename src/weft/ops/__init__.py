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

register_base()
_core.register(operator_function=lambda: registry.function)

__all__ = ["Op", "Runtime", "get", "list", "op"]
