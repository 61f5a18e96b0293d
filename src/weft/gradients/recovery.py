"""Recovers after an operation has failed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.arrays.tensor import Tensor
from weft.engine import default_engine
from weft.gradients.gradient import forget_gradients

__all__ = ["clear_errors"]


def clear_errors(*objects: Any) -> None:
    """Forget that arrays could not be written: reading them raises no error any more, and they have no ``grad``.

    objects: tensors, modules, optimizers, everything with ``state_dict()``; lists and dictionaries of them. Elements
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
    tensors = {id(x): x for each in objects for x in _tensors_of(each)}
    engine = default_engine()
    for x in tensors.values():
        engine.clear_error(x)
    forget_gradients(tensors.values())


def _tensors_of(x: Any) -> Iterator[Tensor]:
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, dict):
        for each in x.values():
            yield from _tensors_of(each)
    elif isinstance(x, list | tuple):
        for each in x:
            yield from _tensors_of(each)
    elif isinstance(x, bool | int | float | str | None):
        return
    elif hasattr(x, "state_dict"):
        yield from _tensors_of(x.state_dict())
        for more in ("buffers", "parameters"):  # also those that are not saved
            if callable(listed := getattr(x, more, None)):
                yield from listed()
        for group in getattr(x, "param_groups", ()):
            yield from group.params
    else:
        raise TypeError(f"clear_errors: takes tensors, modules and optimizers, got {type(x).__name__}")
