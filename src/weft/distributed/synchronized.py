"""Batch normalization over the batches of all ranks, and clipping by the norm of gradients that ranks share."""

from __future__ import annotations

import math
from collections.abc import Iterable

from weft import functional as F
from weft.arrays.creation import zeros
from weft.arrays.tensor import Tensor
from weft.base.errors import ShapeError
from weft.distributed.functions import all_gather, all_reduce
from weft.distributed.world import world
from weft.gradients.gradient import no_grad
from weft.module.module import Module
from weft.module.normalization import BatchNorm1d, BatchNorm2d, BatchNorm3d
from weft.ops import registry
from weft.optimizer.clipping import clip_grad_norm as clip_local

__all__ = ["SyncBatchNorm", "clip_grad_norm"]


class SyncBatchNorm(BatchNorm2d):
    """Batch normalization of [n, c, ...] whose mean and variance in training are those of all ranks' batches together.

    Batches may be of different sizes. One exchange forward, of a mean, a variance and a count for each channel, and one
    backward; the parts are put together by Chan's formula, not by differences of sums of squares. At inference and of
    one rank it is BatchNorm2d, whose arguments it takes. SyncBatchNorm.convert(net) replaces the layers of a network.
    Raises ShapeError for fewer than 2 dimensions.
    Source: Chan, Golub, LeVeque 1979, Updating formulae for computing sample variances.

    >>> import weft as wf
    >>> layer = SyncBatchNorm(1)
    >>> layer(wf.tensor([[1.], [3.]])).round()
    tensor([[-1.],
            [ 1.]], dtype=float32, device=cpu:0)
    """

    dims = (2, 3, 4, 5)  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        if world().size == 1 or not (self.training or self.running_mean is None):
            return super().forward(x)
        if x.ndim < 2 or x.shape[1] != self.num_features:
            raise ShapeError(f"SyncBatchNorm: x must be [n, {self.num_features}, ...], got {tuple(x.shape)}")
        axes = (0, *range(2, x.ndim))
        shape = (1, -1, *(1 for _ in x.shape[2:]))
        wide = x.astype("float32") if x.dtype.itemsize == 2 else x
        count = math.prod(x.shape[k] for k in axes)
        mean, variance, total = self._statistics(wide, axes, shape, count)
        y = (wide - mean.reshape(shape)) * F.rsqrt(variance + self.eps).reshape(shape)
        if self.weight is not None and self.bias is not None:
            y = y * self.weight.astype(y.dtype).reshape(shape) + self.bias.astype(y.dtype).reshape(shape)
        if self.running_mean is not None and self.running_var is not None:
            with no_grad():
                step = self.momentum
                unbiased = variance * (total / F.maximum(total - 1, 1.0))
                self.running_mean += step * (mean.astype(self.running_mean.dtype) - self.running_mean)
                self.running_var += step * (unbiased.astype(self.running_var.dtype) - self.running_var)
        return y.astype(x.dtype, copy=False)

    def _statistics(
        self, x: Tensor, axes: tuple[int, ...], shape: tuple[int, ...], count: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and variance [c] over all ranks, and how many elements a channel has there, 0-d."""
        c = self.num_features
        own_mean = F.mean(x, axis=axes)
        deviation = F.sum((x - own_mean.reshape(shape)) ** 2, axis=axes)
        own_count = registry.function("filled_like")(own_mean[:1], value=1.0) * count  # which may be dynamic
        gathered = all_gather(F.concat([own_mean, deviation, own_count]).reshape(1, -1))
        counts = gathered[:, 2 * c :].detach()
        total = counts.sum()
        means = gathered[:, :c]
        mean = F.sum(means * counts, axis=0) / total
        variance = (
            F.sum(gathered[:, c : 2 * c], axis=0) + F.sum(counts * (means - mean) ** 2, axis=0)
        ) / total
        return mean, variance, total

    @classmethod
    def convert(cls, module: Module) -> Module:
        """The module, whose batch normalizations, itself if it is one, become synchronized ones in place."""
        for each in module.modules():
            if isinstance(each, BatchNorm1d | BatchNorm2d | BatchNorm3d):
                each.__class__ = cls  # the same attributes, another forward
        return module


def clip_grad_norm(
    params: Tensor | Iterable[Tensor], max_norm: float, ord: float = 2.0, *, sharded: bool = False
) -> Tensor:
    """weft.optimizer.clip_grad_norm over ranks; returns the common norm before, 0-d, the same on all ranks.

    Gradients that were exchanged are the same everywhere, and so is their norm: nothing is exchanged for it. sharded:
    each rank's gradients are other ones, parts of a whole, such as ShardedOptimizer.shards; the norm is that of all.
    Raises ValueError unless max_norm and ord are positive.

    >>> import weft as wf
    >>> w = wf.zeros(2)
    >>> w.grad = wf.tensor([3., 4.])
    >>> wf.distributed.clip_grad_norm([w], 1.0).item()
    5.0
    """
    if not sharded or world().size == 1:
        return clip_local(params, max_norm, ord)
    if not max_norm > 0 or not ord > 0:
        raise ValueError(f"clip_grad_norm: max_norm and ord must be positive, got {max_norm} and {ord}")
    all_params = [params] if isinstance(params, Tensor) else list(params)
    with_gradients = [(p, g) for p in all_params if (g := p.grad) is not None]
    with no_grad():
        if ord == math.inf:
            maxima = [F.max(F.abs(g)) for _, g in with_gradients if g.size]
            total = all_reduce(F.max(F.stack(maxima)) if maxima else zeros(()), "max")
        else:
            sums = [F.sum(F.pow(F.abs(g), ord)) for _, g in with_gradients]
            total = F.pow(all_reduce(F.sum(F.stack(sums)) if sums else zeros(())), 1 / ord)
        factor = F.minimum(max_norm / total, 1.0)
        for p, g in with_gradients:
            p.grad = g * factor.astype(g.dtype)
    return total
