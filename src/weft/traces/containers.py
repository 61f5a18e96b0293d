"""Containers among the arguments of a recorded call: what the function changed in its own, the caller's get as well.

>>> from weft.base.structure import flatten
>>> mine, theirs = (([1, 2],), {}), (([1],), {})
>>> changed_containers(mine, theirs, flatten(theirs)[1]), theirs
(True, (([1, 2],), {}))
"""

from __future__ import annotations

from typing import Any

from weft.arrays.traced_float import TracedFloat
from weft.base.structure import Structure, flatten

__all__ = ["changed_containers"]


def changed_containers(inner: Any, arguments: Any, structure: Structure) -> bool:
    """Whether a call changed lists or dicts among its arguments; the caller's are then changed as well.

    The function had others, in which floats are TracedFloats.
    """
    if flatten(inner)[1] == structure and all(map(_is_same_leaf, flatten(inner)[0], flatten(arguments)[0])):
        return False
    for mine, theirs in zip(inner[0], arguments[0], strict=True):
        _write_back(mine, theirs)
    for name, theirs in arguments[1].items():
        _write_back(inner[1][name], theirs)
    return True


def _is_same_leaf(mine: Any, theirs: Any) -> bool:
    return mine is theirs or (type(mine) is TracedFloat and type(theirs) is float)


def _write_back(mine: Any, theirs: Any) -> None:
    pairs = [(mine, theirs)]
    for inner, outer in pairs:  # grows as it goes: containers before what they have
        if type(outer) is dict:
            pairs += [(inner[key], outer[key]) for key in set(inner) & set(outer)]
        elif type(outer) is list or isinstance(outer, tuple):
            pairs += zip(inner, outer, strict=False)
    for inner, outer in reversed(pairs):
        if type(outer) is list:
            outer[:] = [_as_passed(a, outer[k] if k < len(outer) else None) for k, a in enumerate(inner)]
        elif type(outer) is dict:
            items = {key: _as_passed(a, outer.get(key)) for key, a in inner.items()}
            outer.clear()
            outer.update(items)


def _as_passed(mine: Any, theirs: Any) -> Any:
    """The caller's container where the function has its counterpart, a number where it has a TracedFloat."""
    if type(mine) in (list, dict) and type(theirs) is type(mine):
        return theirs
    return mine.value if type(mine) is TracedFloat else mine
