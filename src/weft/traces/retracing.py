"""Detects functions that are traced again and again: reports what differs, and stops tracing when it no longer pays.

A program is worth its making if it runs again. One that is dropped for newer ones before it did has cost more than it
gave, and where that happens ENOUGH times in a row, further calls that no program fits run as Python.

>>> import weft as wf
>>> def f(x, scale, options): ...
>>> seen = Retracing(f)
>>> seen.meet((wf.ones((2, 3)), 1.5, {"n": 4}), {})
>>> seen.meet((wf.ones((5, 3)), 2.5, {"n": 4}), {})
>>> print(seen.reason)
x was f32[2,3]@cpu:0 and is f32[5,3]@cpu:0; trace(dynamic={"x": 0}) makes one program for all sizes of that axis
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft.arrays.tensor import Tensor, element_strides
from weft.base.structure import flatten
from weft.executor.planner import row_major
from weft.ops.sizes import input_size
from weft.ops.types import TensorType

__all__ = ["ENOUGH", "Retracing"]

TEXT = 200  # characters of comparisons that are shown
ENOUGH = 16  # programs in a row that were dropped before they ran again


class Retracing:
    """How often a function was traced in vain, and why. reason: what differed between the last two calls traced."""

    def __init__(
        self, function: Callable[..., Any], dynamic: dict[str, tuple[int, ...]] | None = None
    ) -> None:
        """dynamic: axes by argument whose sizes make no new program, but 0 and 1."""
        self.reason = "what it finds outside of its arguments changes"
        self.is_enough = False
        self._dynamic = dynamic or {}
        self._in_vain = 0
        self._last: dict[str, tuple[str, Any]] | None = None
        try:
            self._names = [
                name
                for name, p in inspect.signature(function).parameters.items()
                if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
            ]
        except (TypeError, ValueError):  # of something built in
            self._names = []

    def meet(self, args: tuple[Any, ...], kwargs: dict[str, Any], comparisons: str = "") -> None:
        """A call is traced. comparisons: of dynamic sizes, on which its graph depends."""
        now = dict(self._described(args, kwargs))
        before, self._last = self._last, now
        if before is None:
            return
        self.reason = "what it finds outside of its arguments changes"
        if comparisons:
            self.reason = f"comparisons of dynamic sizes have other results: {comparisons[:TEXT]}"
        for name, (text, shape) in now.items():
            if name not in before:
                self.reason = f"{name} is new among the arguments"
                return
            previous, previous_shape = before[name]
            if previous != text:
                self.reason = f"{name} was {previous} and is {text}; {_hint(name, previous_shape, shape)}"
                return
        if len(before) > len(now):
            self.reason = (
                f"{next(name for name in before if name not in now)} is no longer among the arguments"
            )

    def dropped(self, ran_again: bool) -> bool:
        """A program is dropped; whether it was the one too many."""
        self._in_vain = 0 if ran_again else self._in_vain + 1
        if self._in_vain < ENOUGH or self.is_enough:
            return False
        self.is_enough = True
        return True

    def _described(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[tuple[str, tuple[str, Any]]]:
        positional = [
            (self._names[k] if k < len(self._names) else f"argument {k}", x) for k, x in enumerate(args)
        ]
        for name, argument in [*positional, *kwargs.items()]:
            leaves, structure = flatten(argument)
            axes = self._dynamic.get(name, ())
            for k, leaf in enumerate(leaves):
                yield (name if structure.kind is None else f"{name}, leaf {k},"), _described(leaf, axes)


def _described(leaf: Any, dynamic: Sequence[int] = ()) -> tuple[str, Any]:
    """What of a leaf a program is for, as a text; and the shape of an array."""
    if isinstance(leaf, Tensor):
        axes = [axis % leaf.ndim for axis in dynamic if -leaf.ndim <= axis < leaf.ndim]
        shape: list[Any] = [input_size(d) if d in axes and n > 1 else n for d, n in enumerate(leaf.shape)]
        text = str(TensorType(shape, leaf.dtype, leaf.device))
        strides = element_strides(leaf)
        dense = axes or strides == row_major(leaf.shape)
        return text if dense else f"{text} with strides {strides}", tuple(map(str, shape))
    if type(leaf) is float:
        return "a float", None
    if isinstance(leaf, bool | int | str | bytes | type(None)):
        text = repr(leaf)
        return text if len(text) <= 40 else f"{text[:37]}...", None
    return f"a {type(leaf).__name__} at {id(leaf):#x}", None


def _hint(name: str, before: Any, after: Any) -> str:
    if before is None or after is None:
        return "floats and tensors make no new program"
    if len(before) == len(after) and before != after:
        axes = [d for d, (n, m) in enumerate(zip(before, after, strict=True)) if n != m]
        are_several = len(axes) > 1
        argument = name.partition(",")[0]
        axis = tuple(axes) if are_several else axes[0]
        axes_text = "those axes" if are_several else "that axis"
        return f'trace(dynamic={{"{argument}": {axis}}}) makes one program for all sizes of {axes_text}'
    return "arrays of another type, rank or layout make a new program"
