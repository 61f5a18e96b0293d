"""Normalization layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from weft import functional as F
from weft.arrays.creation import empty
from weft.arrays.tensor import Tensor
from weft.base.device import Device
from weft.base.dtype import DType
from weft.gradients.gradient import no_grad
from weft.module import init
from weft.module.linear import check_dims, parameter
from weft.module.module import Module

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "RMSNorm",
]


class _Scaled(Module):
    """Base: a weight, initialized with 1, and a bias, initialized with 0; or None."""

    def _make(
        self,
        shape: int | Sequence[int],
        weight: bool,
        bias: bool,
        dtype: DType | str,
        device: Device | str | None,
    ) -> None:
        self.weight = parameter(shape, dtype, device) if weight else None
        self.bias: Tensor | Any = parameter(shape, dtype, device) if bias else None

    def reset(self) -> None:
        """Restore the initial values: weight 1, bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


class _Tracking(_Scaled):
    """Base: running statistics, or None."""

    ignored_state = ("num_batches_tracked",)  # PyTorch's, which counts for a momentum of None

    def _make_statistics(
        self, num_features: int, tracked: bool, dtype: DType | str, device: Device | str | None
    ) -> None:
        self.running_mean: Tensor | None = None
        self.running_var: Tensor | None = None
        if tracked:
            self.register_buffer("running_mean", empty(num_features, dtype=dtype, device=device))
            self.register_buffer("running_var", empty(num_features, dtype=dtype, device=device))

    def reset(self) -> None:
        """Restore the initial values, with a running mean of 0 and a running variance of 1."""
        super().reset()
        if self.running_mean is not None and self.running_var is not None:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)


class _BatchNorm(_Tracking):
    dims: ClassVar[tuple[int, ...]]
    repr_attributes = ("num_features", "eps", "momentum")

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        dtype: DType | str = "float32",
        device: Device | str | None = None,
    ) -> None:
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self._make(num_features, affine, affine, dtype, device)
        self._make_statistics(num_features, track_running_stats, dtype, device)
        self.reset()

    def forward(self, x: Tensor) -> Tensor:
        check_dims(self, x, *self.dims)
        return F.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            training=self.training or self.running_mean is None,
            momentum=self.momentum,
            eps=self.eps,
        )


class BatchNorm1d(_BatchNorm):
    """Batch normalization of [n, c] or [n, c, l]; see BatchNorm2d."""

    dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """(x - mean) / sqrt(variance + eps) weight + bias for each channel of images [n, c, h, w].

    In training, or without running statistics, mean and variance are those of x, and the buffers running_mean and
    running_var move towards them by the fraction momentum; else the buffers are used. weight and bias [c] are
    initialized with 1 and 0; with affine=False both are None. Raises ShapeError for other dimensions. See
    weft.functional.batch_norm.

    >>> import weft as wf
    >>> layer = BatchNorm2d(1)
    >>> layer(wf.ones((2, 1, 3, 3))).sum().item(), layer.running_mean.item()
    (0.0, 0.1...)
    """

    dims = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalization of volumes [n, c, d, h, w]; see BatchNorm2d."""

    dims = (5,)


class LayerNorm(_Scaled):
    """(x - mean) / sqrt(variance + eps) weight + bias, over the last dimensions, those of normalized_shape.

    weight and bias have that shape and are initialized with 1 and 0; bias=False leaves out the bias, affine=False both.
    See weft.functional.layer_norm.

    >>> import weft as wf
    >>> LayerNorm(2)(wf.tensor([[1., 3.], [7., 5.]])).round()
    tensor([[-1.,  1.],
            [ 1., -1.]], dtype=float32, device=cpu:0)
    """

    repr_attributes = ("normalized_shape", "eps")

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        affine: bool = True,
        bias: bool = True,
        *,
        dtype: DType | str = "float32",
        device: Device | str | None = None,
    ) -> None:
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps = shape, eps
        self._make(shape, affine, affine and bias, dtype, device)
        self.reset()

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(_Scaled):
    """x / sqrt(mean of x^2 + eps) weight, over the last dimensions; eps=None: x's machine epsilon.

    See weft.functional.rms_norm.

    >>> import weft as wf
    >>> RMSNorm(2)(wf.tensor([3., -3.])).round()
    tensor([ 1., -1.], dtype=float32, device=cpu:0)
    """

    repr_attributes = ("normalized_shape", "eps")

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        affine: bool = True,
        *,
        dtype: DType | str = "float32",
        device: Device | str | None = None,
    ) -> None:
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps = shape, eps
        self._make(shape, affine, False, dtype, device)
        self.reset()

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)


class GroupNorm(_Scaled):
    """Normalization over groups of channels of each sample [n, c, ...]; weight and bias: [c].

    Raises ValueError if the channels do not divide into groups. See weft.functional.group_norm.

    >>> import weft as wf
    >>> GroupNorm(2, 4)(wf.ones((1, 4, 5))).sum().item()
    0.0
    """

    repr_attributes = ("num_groups", "num_channels", "eps")

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        *,
        dtype: DType | str = "float32",
        device: Device | str | None = None,
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(f"GroupNorm: {num_channels} channels are not {num_groups} equal groups")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self._make(num_channels, affine, affine, dtype, device)
        self.reset()

    def forward(self, x: Tensor) -> Tensor:
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class _InstanceNorm(_Tracking):
    dims: ClassVar[int]
    repr_attributes = ("num_features", "eps")

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        affine: bool = False,
        *,
        momentum: float = 0.1,
        track_running_stats: bool = False,
        dtype: DType | str = "float32",
        device: Device | str | None = None,
    ) -> None:
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self._make(num_features, affine, affine, dtype, device)
        self._make_statistics(num_features, track_running_stats, dtype, device)
        self.reset()

    def forward(self, x: Tensor) -> Tensor:
        check_dims(self, x, self.dims)
        if self.running_mean is None or self.running_var is None:
            return F.instance_norm(x, self.weight, self.bias, self.eps)
        if not self.training:
            statistics = (self.running_mean, self.running_var)
            return F.batch_norm(x, *statistics, self.weight, self.bias, eps=self.eps)
        self._track(x, self.running_mean, self.running_var)
        return F.instance_norm(x, self.weight, self.bias, self.eps)

    def _track(self, x: Tensor, *running: Tensor) -> None:
        """Move the running statistics towards the means of the samples' own, which have no gradients."""
        with no_grad():
            axes = tuple(range(2, self.dims))
            wide = F.cast(x, dtype=running[0].dtype)
            statistics = (F.mean(wide, axis=axes), F.var(wide, axis=axes, correction=1))
            for buffer, statistic in zip(running, statistics, strict=True):
                buffer[...] = buffer + self.momentum * (F.mean(statistic, axis=0) - buffer)


class InstanceNorm1d(_InstanceNorm):
    """Normalization of each channel of each sequence [n, c, l] by itself; see InstanceNorm2d."""

    dims = 3


class InstanceNorm2d(_InstanceNorm):
    """Normalization of each channel of each image [n, c, h, w] by itself; weight and bias [c] only with affine=True.

    track_running_stats: in training the buffers running_mean and running_var [c] move by the fraction momentum towards
    the means over n of the images' means and variances (divided by h w - 1), and outside of training each channel is
    normalized by them. See weft.functional.instance_norm.

    >>> import weft as wf
    >>> layer = InstanceNorm2d(1, track_running_stats=True)
    >>> layer(wf.ones((2, 1, 3, 3))).sum().item(), layer.running_mean.item(), layer.running_var.item()
    (0.0, 0.1..., 0.8999...)
    """

    dims = 4


class InstanceNorm3d(_InstanceNorm):
    """Normalization of each channel of each volume [n, c, d, h, w] by itself; see InstanceNorm2d."""

    dims = 5
