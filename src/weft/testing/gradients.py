"""check_gradient: gradients against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.arrays.creation import asarray
from weft.arrays.tensor import Tensor
from weft.base.structure import flatten
from weft.gradients.gradient import grad
from weft.ops import registry

__all__ = ["check_gradient"]

DIRECTIONS = 64  # along which gradients of larger inputs are looked at


def check_gradient(
    f: Callable[..., Any],
    *x: Any,
    order: int = 1,
    eps: float = 1e-5,
    rtol: float = 1e-4,
    atol: float = 1e-6,
    seed: int = 0,
) -> None:
    """Raise AssertionError unless the gradient of f at x is what central differences in float64 give.

    f: of tensors to a tensor or a structure of them; must not change from call to call (fix random numbers). x: tensors
    or numbers; floats are converted to float64, others are passed on. order: 1, or 2 for the gradients of gradients as
    well. eps: the step, of which the error is the square. Every element of x is looked at if there are at most 64, else
    64 random directions. Outputs are weighted by fixed random numbers. rtol, atol: bounds of the difference.
    Raises ValueError for another order or if no argument is a float.

    >>> import weft as wf
    >>> check_gradient(lambda x, w: wf.tanh(x @ w), wf.ones((2, 3)), wf.ones((3, 2)), order=2)
    >>> class Wrong(wf.Function):
    ...     def forward(self, x):
    ...         return x * x
    ...     def backward(self, dy):
    ...         return 3 * dy
    >>> check_gradient(Wrong(), wf.tensor([1.0, 2.0]))
    Traceback (most recent call last):
        ...
    AssertionError: check_gradient: order 1, argument 0, element (0,): the gradient is ..., differences give ...
    """
    if order not in (1, 2):
        raise ValueError(f"check_gradient: order must be 1 or 2, got {order}")
    arguments = [_as_float64(each) for each in x]
    float_arguments = [k for k, each in enumerate(arguments) if _is_float(each)]
    if not float_arguments:
        raise ValueError("check_gradient: no argument is of a floating-point type")
    random = np.random.default_rng(seed)
    _check(f, arguments, float_arguments, eps, rtol, atol, random, order=1)
    if order == 2:
        first = _Weighted(f, arguments, random)
        gradients = grad(first, argnums=tuple(float_arguments))
        _check(lambda *args: gradients(*args), arguments, float_arguments, eps, rtol, atol, random, order=2)


def _is_float(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dtype.is_differentiable


def _as_float64(x: Any) -> Any:
    if isinstance(x, float | np.ndarray | np.floating | list):
        x = asarray(x)
    return x.astype("float64") if _is_float(x) else x


class _Weighted:
    """The sum of f's outputs, each element times a fixed random number."""

    def __init__(self, f: Callable[..., Any], arguments: Sequence[Any], random: Any) -> None:
        self._f = f
        outputs = self._outputs(f(*arguments))
        self._weights = [asarray(random.uniform(0.5, 1.5, y.shape)) for y in outputs]

    @staticmethod
    def _outputs(result: Any) -> list[Any]:
        return [y for y in flatten(result)[0] if _is_float(y)]

    def __call__(self, *arguments: Any) -> Any:
        total: Any = None
        for y, weights in zip(self._outputs(self._f(*arguments)), self._weights, strict=True):
            part = registry.function("sum")(y.astype("float64") * weights)
            total = part if total is None else total + part
        return total


def _check(
    f: Callable[..., Any],
    arguments: Sequence[Any],
    float_arguments: Sequence[int],
    eps: float,
    rtol: float,
    atol: float,
    random: Any,
    order: int,
) -> None:
    weighted = _Weighted(f, arguments, random)
    if not weighted._weights:
        raise AssertionError(f"check_gradient: order {order}: f gives no tensor of a floating-point type")
    gradients = grad(weighted, argnums=tuple(float_arguments))(*arguments)
    for k, gradient in zip(float_arguments, gradients, strict=True):
        x = arguments[k].numpy().astype(np.float64)
        dx = np.zeros(x.shape) if gradient is None else gradient.numpy().astype(np.float64)
        if dx.shape != x.shape:
            raise AssertionError(
                f"check_gradient: order {order}, argument {k}: the gradient has the shape {dx.shape}, x {x.shape}"
            )
        for name, direction in _directions(x, random):

            def at(step: float, k: int = k, x: Any = x, direction: Any = direction) -> float:
                moved = [*arguments]
                moved[k] = asarray(x + step * direction)
                return float(weighted(*moved).item())

            numeric = (at(eps) - at(-eps)) / (2 * eps)
            analytic = float((dx * direction).sum())
            if not abs(analytic - numeric) <= atol + rtol * max(abs(numeric), abs(analytic)):
                raise AssertionError(
                    f"check_gradient: order {order}, argument {k}, {name}: the gradient is {analytic:.9g}, "
                    f"differences give {numeric:.9g}"
                )


def _directions(x: Any, random: Any) -> list[tuple[str, Any]]:
    if x.size <= DIRECTIONS:
        directions = []
        for index in np.ndindex(x.shape):
            direction = np.zeros(x.shape)
            direction[index] = 1
            directions.append((f"element {index}", direction))
        return directions
    return [(f"direction {k}", random.standard_normal(x.shape)) for k in range(DIRECTIONS)]
