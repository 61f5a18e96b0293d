"""Layers that are one operator of images, sequences or volumes: pooling, other sizes, places and channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.module.functions import OperatorLayer
from weft.module.module import Module

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "ChannelShuffle",
    "Fold",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
    "PixelShuffle",
    "PixelUnshuffle",
    "Unfold",
    "Upsample",
    "UpsamplingBilinear2d",
    "UpsamplingNearest2d",
]


class _MaxPool(OperatorLayer):
    def __init__(self, *args: Any, return_indices: bool = False, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.return_indices = return_indices

    def forward(self, *inputs: Tensor) -> Any:
        function = (
            getattr(F, f"{self.operator}_with_indices") if self.return_indices else getattr(F, self.operator)
        )
        return function(*inputs, **{name: getattr(self, name) for name in self._operator_attributes})


class MaxPool1d(_MaxPool, operator="max_pool1d"):
    """The greatest element of every window of a sequence. return_indices: and where
    it is, for MaxUnpool1d. See weft.functional.max_pool1d, max_pool1d_with_indices."""


class MaxPool2d(_MaxPool, operator="max_pool2d"):
    """The greatest element of every window of an image, padding=0. return_indices: and where
    it is, for MaxUnpool2d. See weft.functional.max_pool2d, max_pool2d_with_indices.

    >>> import weft as wf
    >>> MaxPool2d(2)(wf.zeros((1, 3, 8, 8))).shape
    (1, 3, 4, 4)
    """


class MaxPool3d(_MaxPool, operator="max_pool3d"):
    """The greatest element of every window of a volume. return_indices: and where
    it is, for MaxUnpool3d. See weft.functional.max_pool3d, max_pool3d_with_indices."""


class AvgPool1d(OperatorLayer, operator="avg_pool1d"):
    """The average of every window of a sequence. See weft.functional.avg_pool1d."""


class AvgPool2d(OperatorLayer, operator="avg_pool2d"):
    """The average of every window of an image, padding=0. See weft.functional.avg_pool2d."""


class AvgPool3d(OperatorLayer, operator="avg_pool3d"):
    """The average of every window of a volume. See weft.functional.avg_pool3d."""


class LPPool1d(OperatorLayer, operator="lp_pool1d"):
    """The norm_type-norm of every window of a sequence. See weft.functional.lp_pool1d."""


class LPPool2d(OperatorLayer, operator="lp_pool2d"):
    """The norm_type-norm of every window of a image. See weft.functional.lp_pool2d."""


class LPPool3d(OperatorLayer, operator="lp_pool3d"):
    """The norm_type-norm of every window of a volume. See weft.functional.lp_pool3d."""


class AdaptiveAvgPool1d(OperatorLayer, operator="adaptive_avg_pool1d"):
    """Averages over windows chosen so that the result has output_size. See weft.functional.adaptive_avg_pool1d."""


class AdaptiveAvgPool2d(OperatorLayer, operator="adaptive_avg_pool2d"):
    """Averages over windows chosen so that the result has output_size. See weft.functional.adaptive_avg_pool2d.

    >>> import weft as wf
    >>> AdaptiveAvgPool2d(1)(wf.ones((2, 3, 5, 7))).shape
    (2, 3, 1, 1)
    """


class AdaptiveAvgPool3d(OperatorLayer, operator="adaptive_avg_pool3d"):
    """Averages over windows chosen so that the result has output_size. See weft.functional.adaptive_avg_pool3d."""


class AdaptiveMaxPool1d(_MaxPool, operator="adaptive_max_pool1d"):
    """Maxima over windows chosen so that the result has output_size; return_indices: and where they are. See
    weft.functional.adaptive_max_pool1d."""


class AdaptiveMaxPool2d(_MaxPool, operator="adaptive_max_pool2d"):
    """Maxima over windows chosen so that the result has output_size; return_indices: and where they are. See
    weft.functional.adaptive_max_pool2d."""


class AdaptiveMaxPool3d(_MaxPool, operator="adaptive_max_pool3d"):
    """Maxima over windows chosen so that the result has output_size; return_indices: and where they are. See
    weft.functional.adaptive_max_pool3d."""


class MaxUnpool1d(OperatorLayer, operator="max_unpool1d"):
    """Maxima put back to where MaxPool1d with return_indices=True found them: forward(x, indices). See
    weft.functional.max_unpool1d."""


class MaxUnpool2d(OperatorLayer, operator="max_unpool2d"):
    """Maxima put back to where MaxPool2d with return_indices=True found them: forward(x, indices). See
    weft.functional.max_unpool2d."""


class MaxUnpool3d(OperatorLayer, operator="max_unpool3d"):
    """Maxima put back to where MaxPool3d with return_indices=True found them: forward(x, indices). See
    weft.functional.max_unpool3d."""


class _FractionalMaxPool(Module):
    ndim: ClassVar[int]
    repr_attributes = ("kernel_size", "output_size", "output_ratio")

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        output_size: int | Sequence[int] | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
    ) -> None:
        if (output_size is None) == (output_ratio is None):
            raise ValueError(
                f"{type(self).__name__}: needs either output_size or output_ratio, got {output_size} and {output_ratio}"
            )
        self.kernel_size, self.output_size, self.output_ratio = kernel_size, output_size, output_ratio
        self.return_indices = return_indices

    def forward(self, x: Tensor, samples: Tensor | None = None) -> Any:
        function = (
            F.fractional_max_pool2d_with_indices if self.ndim == 2 else F.fractional_max_pool3d_with_indices
        )
        y, indices = function(x, self.kernel_size, self.output_size, self.output_ratio, samples)
        return (y, indices) if self.return_indices else y


class FractionalMaxPool2d(_FractionalMaxPool):
    """Maxima of windows of images at random, uneven distances: forward(x, samples=None). return_indices: and where
    they are, for MaxUnpool2d. See weft.functional.fractional_max_pool2d.

    >>> import weft as wf
    >>> FractionalMaxPool2d(2, output_ratio=0.7)(wf.zeros((1, 3, 10, 20))).shape
    (1, 3, 7, 14)
    """

    ndim = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """Maxima of windows of volumes at random, uneven distances: forward(x, samples=None). return_indices: and where
    they are, for MaxUnpool3d. See weft.functional.fractional_max_pool3d."""

    ndim = 3


class PixelShuffle(OperatorLayer, operator="pixel_shuffle"):
    """Blocks of channels become blocks of pixels: upscale_factor. See weft.functional.pixel_shuffle."""


class PixelUnshuffle(OperatorLayer, operator="pixel_unshuffle"):
    """Blocks of pixels become channels: downscale_factor. See weft.functional.pixel_unshuffle."""


class ChannelShuffle(OperatorLayer, operator="channel_shuffle"):
    """One channel of each group in turn: groups. See weft.functional.channel_shuffle."""


class Unfold(OperatorLayer, operator="unfold"):
    """The windows of an image as columns. See weft.functional.unfold."""


class Fold(OperatorLayer, operator="fold"):
    """Columns as the windows of an image of output_size. See weft.functional.fold."""


class Upsample(OperatorLayer, operator="interpolate"):
    """Images of other sizes: size or scale_factor, mode, align_corners. See weft.functional.interpolate.

    >>> import weft as wf
    >>> Upsample(scale_factor=2, mode="bilinear")(wf.ones((1, 3, 4, 4))).shape
    (1, 3, 8, 8)
    """


class UpsamplingNearest2d(Upsample):
    """Images of other sizes by their nearest elements; size or scale_factor. See weft.functional.interpolate."""


class UpsamplingBilinear2d(Upsample):
    """Images of other sizes between their elements, with the corners in place. See weft.functional.interpolate."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes, mode="bilinear", align_corners=True)
