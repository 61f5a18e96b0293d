"""Operators: one class each; see weft.ops.op. ``list()`` has their names, ``get(name)`` the class.

>>> from weft import ops
>>> ops.get("relu").family
'activation'
"""

from __future__ import annotations

from weft.ops.op import Op, Runtime, op
from weft.ops.registry import get
from weft.ops.registry import names as list  # its public name

__all__ = ["Op", "Runtime", "get", "list", "op"]
