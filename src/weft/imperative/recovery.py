"""Recovers after an operation has failed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.engine import default_engine
from weft.imperative.gradient import forget_gradients
from weft.imperative.tensor import Tensor

__all__ = ["clear_errors"]


def clear_errors(*things: Any) -> None:
    """Forget that arrays could not be written: reading them raises no error any more, and they have no ``grad``.

    things: tensors, modules, optimizers, everything with ``state_dict()``; lists and dictionaries of them. Elements
    are what they were before the operation that failed; of an array that it was to make they are undefined.
    A failed step of training needs no such call: parameters, the optimizer's state and running statistics keep what
    they had. It is for arrays that the program itself writes in place, and for gradients that are added up over
    several batches. Raises TypeError for other objects.

    >>> import weft as wf
    >>> total = wf.zeros(1)
    >>> total += wf.take(wf.ones(3), wf.tensor([7]))
    >>> try:
    ...     total.item()
    ... except IndexError:
    ...     wf.clear_errors(total)
    >>> total.item()
    0.0
    """
    found = {id(x): x for thing in things for x in _tensors_of(thing)}
    engine = default_engine()
    for x in found.values():
        engine.clear_error(x)
    forget_gradients(found.values())


def _tensors_of(thing: Any) -> Iterator[Tensor]:
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, dict):
        for each in thing.values():
            yield from _tensors_of(each)
    elif isinstance(thing, list | tuple):
        for each in thing:
            yield from _tensors_of(each)
    elif isinstance(thing, bool | int | float | str | None):
        return
    elif hasattr(thing, "state_dict"):
        yield from _tensors_of(thing.state_dict())
        for more in ("buffers", "parameters"):  # also those that are not saved
            if callable(listed := getattr(thing, more, None)):
                yield from listed()
        for group in getattr(thing, "param_groups", ()):
            yield from group.params
    else:
        raise TypeError(f"clear_errors: takes tensors, modules and optimizers, got {type(thing).__name__}")
