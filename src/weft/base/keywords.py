"""The message for a keyword that a constructor or function does not take; see weft.base.errors.names_keywords."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

__all__ = ["unknown_argument", "unknown_keyword"]

# Keywords of other libraries, and those of weft in their place.
_ELSEWHERE = {"size": "shape", "dim": "axis", "dims": "axes", "learning_rate": "lr", "rate": "lr"}


def unknown_keyword(function: Callable[..., Any], owner: str, first: int, keyword: str) -> str:
    """The message; owner: the name that it begins with; first: the index of the first parameter that callers pass.

    >>> def uniform(low, high, shape):
    ...     pass
    >>> unknown_keyword(uniform, "uniform", 0, "size")
    'uniform: no argument size; there are: low, high, shape; did you mean shape?'
    """
    return unknown_argument(owner, keyword, list(inspect.signature(function).parameters)[first:])


def unknown_argument(owner: str, keyword: str, names: Sequence[str]) -> str:
    """That for arguments of these names."""
    advice = ""
    if keyword == "requires_grad":
        advice = "; attach the tensor to a weft.GradManager"
    elif _ELSEWHERE.get(keyword) in names:
        advice = f"; did you mean {_ELSEWHERE[keyword]}?"
    elif near := get_close_matches(keyword, names, n=1, cutoff=0.5):
        advice = f"; did you mean {near[0]}?"
    return f"{owner}: no argument {keyword}; there are: {', '.join(names)}{advice}"
