"""Calls of a module whose gradients are shown to hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import _core
from weft.arrays.tensor import Tensor
from weft.base.structure import flatten
from weft.gradients.gradient import Function

__all__ = ["call_with_hooks"]

Gradients = tuple[Tensor | None, ...]
# hook(module, dx, dy): the gradients of the call's arguments and results; what it returns, unless None, replaces dx.
GradientHook = Callable[[Any, Gradients, Gradients], Any]


class _Passing(Function):
    """Its arguments; their gradients are what a function returns for the results' gradients, or those if it is None."""

    def __init__(self, change: Callable[[Gradients], Sequence[Tensor | None] | None]) -> None:
        self.change = change

    def forward(self, *x: Tensor) -> Any:
        return x[0] if len(x) == 1 else x

    def backward(self, *dy: Tensor | None) -> Any:
        changed = self.change(dy)
        return dy if changed is None else changed


def call_with_hooks(
    module: Any, hooks: Sequence[GradientHook], args: tuple[Any, ...], forward: Callable[..., Any]
) -> Any:
    """forward(*args); the hooks get the gradients of the tensors among args and of those in the result.

    Where no argument has a gradient, as in the first layer, they are called with None in its place.
    """
    places = [k for k, x in enumerate(args) if isinstance(x, Tensor)]
    has_gradient = any(_core.is_tracked(args[k]) for k in places)
    of_results: list[Gradients] = []

    def run(dx: Gradients) -> Gradients:
        if not of_results:
            raise RuntimeError(
                f"{type(module).__name__}: hooks of gradients need the backward pass in the same trace as the call"
            )
        dy = of_results.pop()
        for hook in hooks:
            replaced = hook(module, dx, dy)
            if replaced is not None:
                dx = replaced if isinstance(replaced, tuple) else (replaced,)
        return dx

    def of_result(dy: Gradients) -> None:
        of_results.append(dy)
        if not has_gradient:
            run((None,) * len(places))

    if has_gradient:
        passed = _Passing(run)(*(args[k] for k in places))
        tensors = list(passed) if isinstance(passed, tuple) else [passed]
        args = tuple(tensors.pop(0) if k in places else x for k, x in enumerate(args))
    leaves, structure = flatten(forward(*args))
    tensors = [y for y in leaves if isinstance(y, Tensor)]
    if not tensors:
        return structure.build(leaves)
    passed = _Passing(of_result)(*tensors)
    results = iter(passed if isinstance(passed, tuple) else (passed,))
    return structure.build([next(results) if isinstance(y, Tensor) else y for y in leaves])
