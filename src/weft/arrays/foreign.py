"""Converts other libraries' arguments of programs: arrays to Tensors, NumPy's scalars to Python's numbers.

>>> import numpy as np
>>> without_foreign("f", ([np.float32(2.0)], np.int8(3)))
([2.0], 3)
"""

from __future__ import annotations

from typing import Any

from weft.arrays.creation import asarray
from weft.arrays.tensor import Tensor
from weft.arrays.traced_float import TracedFloat
from weft.base.errors import DTypeError
from weft.base.structure import flatten

__all__ = ["without_foreign"]


def without_foreign(name: str, arguments: Any) -> Any:
    """Arguments with Tensors over the memory of other libraries' arrays, and Python's numbers for NumPy's scalars.

    Raises TypeError for arrays that weft has no type for.
    """
    leaves, structure = flatten(arguments)
    converted: dict[int, Any] = {}
    for k, leaf in enumerate(leaves):
        kind = type(leaf)
        if hasattr(kind, "__array_interface__") or hasattr(kind, "__dlpack__"):
            if isinstance(leaf, Tensor | TracedFloat):
                continue
            if id(leaf) not in converted:
                converted[id(leaf)] = _converted(name, leaf)
            leaves[k] = converted[id(leaf)]
    return structure.build(leaves)


def _converted(name: str, leaf: Any) -> Any:
    is_scalar = hasattr(leaf, "item") and not hasattr(leaf, "__setitem__")
    if is_scalar:
        value = leaf.item()
        if isinstance(value, bool | int | float | str | bytes):
            return value
    else:
        try:
            return asarray(leaf)
        except (DTypeError, BufferError, ValueError, RuntimeError) as problem:
            raise TypeError(f"{name}: an argument cannot become a Tensor: {problem}") from problem
    raise TypeError(f"{name}: a {type(leaf).__name__} cannot be an argument of a traced function")
