"""Constructors whose errors for an unknown keyword say which ones there are."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["names_keywords"]

C = TypeVar("C", bound=type)


def names_keywords(cls: C) -> C:
    """Class decorator: a TypeError for a keyword that __init__ does not take lists those that it takes.

    >>> @names_keywords
    ... class Loader:
    ...     def __init__(self, dataset, *, num_workers=0):
    ...         pass
    >>> Loader([], workers=2)
    Traceback (most recent call last):
        ...
    TypeError: Loader: no argument workers; there are: dataset, num_workers; did you mean num_workers?
    """
    plain: Callable[..., None] | None = vars(cls).get("__init__")
    if plain is None:
        return cls

    @functools.wraps(plain)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            plain(self, *args, **kwargs)
        except TypeError as problem:
            found = re.fullmatch(
                r"(.*)\.__init__\(\) got an unexpected keyword argument '(\w+)'", str(problem)
            )
            if found is None or found[1] != cls.__qualname__:
                raise
            raise TypeError(_unknown(cls, plain, found[2])) from None

    cls.__init__ = __init__  # type: ignore[misc]
    return cls


def _unknown(cls: type, function: Callable[..., Any], name: str) -> str:
    from difflib import get_close_matches

    known = list(inspect.signature(function).parameters)[1:]
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    advice = f"; did you mean {near[0]}?" if near else ""
    return f"{cls.__name__}: no argument {name}; there are: {', '.join(known)}{advice}"
