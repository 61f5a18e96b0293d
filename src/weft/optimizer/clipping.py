"""Gradients that are changed before a step: clipped, or centred."""

from __future__ import annotations

import math
from collections.abc import Iterable

from weft import functional as F
from weft.arrays.creation import zeros
from weft.arrays.tensor import Tensor
from weft.gradients.gradient import no_grad

__all__ = ["center_grad", "clip_grad_norm", "clip_grad_value"]


def _with_gradients(params: Tensor | Iterable[Tensor]) -> list[tuple[Tensor, Tensor]]:
    listed = [params] if isinstance(params, Tensor) else list(params)
    return [(p, g) for p in listed if (g := p.grad) is not None]


def clip_grad_norm(params: Tensor | Iterable[Tensor], max_norm: float, ord: float = 2.0) -> Tensor:
    """Multiply all gradients by max_norm / norm if their common norm is above max_norm; returns that norm, 0-d.

    ord: the order of the norm; math.inf is the greatest magnitude. Parameters without a gradient do not count. The call
    does not wait. If the norm is infinite or NaN, the gradients become 0 or NaN. Raises ValueError unless max_norm and
    ord are positive. Source: Pascanu, Mikolov, Bengio 2013, On the difficulty of training recurrent neural networks.

    >>> import weft as wf
    >>> w = wf.zeros(2)
    >>> w.grad = wf.tensor([3., 4.])
    >>> clip_grad_norm([w], 1.0).item()
    5.0
    >>> w.grad
    tensor([0.6, 0.8], dtype=float32, device=cpu:0)
    """
    if not max_norm > 0 or not ord > 0:
        raise ValueError(f"clip_grad_norm: max_norm and ord must be positive, got {max_norm} and {ord}")
    pairs = _with_gradients(params)
    if not pairs:
        return zeros(())
    device = pairs[0][1].device
    with no_grad():
        norms = [_norm(g, ord).to_device(device) for _, g in pairs]
        total = _norm(F.stack(norms), ord)
        factor = F.minimum(max_norm / total, 1.0)
        for p, g in pairs:  # not in place: gradients of two parameters can be the same memory
            p.grad = g * factor.to_device(g.device).astype(g.dtype)
    return total


def _norm(x: Tensor, ord: float) -> Tensor:
    """In float32 for 16-bit floats, whose squares overflow."""
    x = F.abs(x.astype("float32") if x.dtype.itemsize < 4 else x)
    if not x.size:
        return F.sum(x)
    if ord == math.inf:
        return F.max(x)
    return F.sqrt(F.sum(x * x)) if ord == 2 else F.pow(F.sum(F.pow(x, ord)), 1 / ord)


def clip_grad_value(params: Tensor | Iterable[Tensor], max_value: float) -> None:
    """Bring every element of the gradients within -max_value ... max_value.

    Raises ValueError unless max_value is positive.

    >>> import weft as wf
    >>> w = wf.zeros(2)
    >>> w.grad = wf.tensor([3., -0.5])
    >>> clip_grad_value([w], 1.0)
    >>> w.grad
    tensor([ 1. , -0.5], dtype=float32, device=cpu:0)
    """
    if not max_value > 0:
        raise ValueError(f"clip_grad_value: max_value must be positive, got {max_value}")
    with no_grad():
        for p, g in _with_gradients(params):
            p.grad = F.clip(g, -max_value, max_value)


def center_grad(params: Tensor | Iterable[Tensor]) -> None:
    """Take the mean over all axes but the first off each gradient of two or more dimensions.

    The others are left alone: gradient centralization is for weights [out, in, ...].
    Source: Yong, Huang, Hua, Zhang 2020, Gradient centralization.

    >>> import weft as wf
    >>> w = wf.zeros((2, 2))
    >>> w.grad = wf.tensor([[3., 1.], [4., 4.]])
    >>> center_grad([w])
    >>> w.grad.tolist()
    [[1.0, -1.0], [0.0, 0.0]]
    """
    with no_grad():
        for p, g in _with_gradients(params):
            if g.ndim > 1:
                p.grad = g - F.mean(g, axis=tuple(range(1, g.ndim)), keepdims=True)
