"""Values that conversions create beside those that they are given."""

from __future__ import annotations

from typing import Any

from weft.ops import registry

__all__ = ["created", "numbered"]


def created(x: Any, operator: str, **attributes: Any) -> Any:
    """What an operator without inputs creates, as x is: in a graph a value of it."""
    return x.__weft_apply__(registry.get(operator), (), attributes)


def numbered(x: Any, count: int) -> Any:
    """0, 1, ... below count, int64."""
    return created(x, "stepped", shape=(int(count),))
