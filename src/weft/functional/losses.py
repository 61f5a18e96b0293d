"""Losses that take functions of arrays, and are composed of operators."""

from __future__ import annotations

from collections.abc import Callable

from weft.base.typing import Any
from weft.ops import functions as F

__all__ = ["triplet_margin_with_distance_loss"]


def triplet_margin_with_distance_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    distance: Callable[[Any, Any], Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    """max(0, distance(anchor, positive) - distance(anchor, negative) + margin), for a distance of any kind.

    anchor, positive, negative: what distance takes, a function of two arrays; by default pairwise_distance; swap: the
    lesser one of the negative's distances to anchor and positive; reduction: "mean" or "sum" of all, or "none". Returns
    the distances' dtype, 0-d or of their shape. Raises ValueError for another reduction or unless margin is positive.
    Source: Schroff, Kalenichenko, Philbin 2015, FaceNet; Balntas et al. 2016 (swap).

    >>> import weft as wf
    >>> x, y = wf.zeros((1, 2)), wf.tensor([[3., 4.]])
    >>> triplet_margin_with_distance_loss(x, y, x, lambda a, b: abs(a - b).sum(axis=-1)).item()
    8.0
    """
    from weft.ops.families.loss import check_reduction

    check_reduction("triplet_margin_with_distance_loss", reduction)
    if not margin > 0:
        raise ValueError(f"triplet_margin_with_distance_loss: margin must be positive, got {margin}")
    distance = F.pairwise_distance if distance is None else distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = F.minimum(far, distance(positive, negative))
    loss = F.maximum(near - far + margin, 0.0)
    return loss if reduction == "none" else F.mean(loss) if reduction == "mean" else F.sum(loss)
