"""Functions that draw random numbers and are composed of operators: on arrays, in traces and on symbols.

An operator that draws is one kernel; what surrounds the draw here are operators like any others, which fuse.
"""

from __future__ import annotations

import math

from weft.base.typing import Any
from weft.ops import functions as F

__all__ = [
    "alpha_dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "feature_alpha_dropout",
    "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
    "gumbel_softmax",
    "rrelu",
]

SELU_LEAST = -1.7580993408473766  # what selu tends to below


def _of_channels(x: Any) -> Any:
    """x [n, c, ...] with sizes 1 behind the second axis: one element for each channel."""
    return F.sum(x, axis=tuple(range(2, x.ndim)), keepdims=True) if x.ndim > 2 else x


def _ones(x: Any) -> Any:
    return F.filled_like(x, value=1.0)


def _require(name: str, x: Any, ndim: int) -> None:
    from weft.base.errors import ShapeError

    if getattr(x, "ndim", ndim) != ndim:
        raise ShapeError(f"{name}: x needs {ndim} dimensions, has {x.ndim}")


def _dropped_channels(name: str, ndim: int, x: Any, p: float, training: bool) -> Any:
    _require(name, x, ndim)
    return x * F.dropout(_ones(_of_channels(x)), p=p) if training else F.dropout(x, p=p, training=False)


def dropout1d(x: Any, p: float = 0.5, training: bool = True) -> Any:
    """Whole channels of sequences [n, c, l] zero with probability p, else x / (1 - p), if training; else x.

    x: float[n, c, l]. Raises ShapeError for other dimensions, ValueError unless p is in 0 ... 1. See dropout.
    Source: Tompson et al. 2015, Efficient object localization using convolutional networks.

    >>> import weft as wf
    >>> dropout1d(wf.ones((1, 2, 3)), 1.0).sum().item()
    0.0
    """
    return _dropped_channels("dropout1d", 3, x, p, training)


def dropout2d(x: Any, p: float = 0.5, training: bool = True) -> Any:
    """Whole channels of images [n, c, h, w] zero with probability p, else x / (1 - p), if training; else x.

    x: float[n, c, h, w]. Raises ShapeError for other dimensions, ValueError unless p is in 0 ... 1. See dropout.
    Source: Tompson et al. 2015, Efficient object localization using convolutional networks.

    >>> import weft as wf
    >>> dropout2d(wf.ones((1, 2, 3, 3)), 0.5, training=False).sum().item()
    18.0
    """
    return _dropped_channels("dropout2d", 4, x, p, training)


def dropout3d(x: Any, p: float = 0.5, training: bool = True) -> Any:
    """Whole channels of volumes [n, c, d, h, w] zero with probability p, else x / (1 - p), if training; else x.

    x: float[n, c, d, h, w]. Raises ShapeError for other dimensions, ValueError unless p is in 0 ... 1. See dropout.
    Source: Tompson et al. 2015, Efficient object localization using convolutional networks.

    >>> import weft as wf
    >>> dropout3d(wf.ones((1, 2, 1, 3, 3)), 0.0).sum().item()
    18.0
    """
    return _dropped_channels("dropout3d", 5, x, p, training)


def _alpha_dropped(x: Any, ones: Any, p: float) -> Any:
    kept = F.dropout(ones, p=p) * (1 - p)  # 1 or 0
    scale = 1 / math.sqrt((1 - p) * (1 + p * SELU_LEAST**2)) if p < 1 else 0.0
    return (x * kept + (1 - kept) * SELU_LEAST) * scale + -scale * p * SELU_LEAST


def alpha_dropout(x: Any, p: float = 0.5, training: bool = True) -> Any:
    """Elements become selu's least value with probability p, and all are scaled so that mean and variance stay.

    x: float[...] of mean 0 and variance 1, such as selu gives; if not training, x. p: 0 ... 1; 1 gives zeros. Raises
    ValueError unless p is in 0 ... 1.
    Source: Klambauer et al. 2017, Self-normalizing neural networks.

    >>> import weft as wf
    >>> alpha_dropout(wf.ones(2), 0.0)
    tensor([1., 1.], dtype=float32, device=cpu:0)
    """
    return _alpha_dropped(x, _ones(x), p) if training else F.dropout(x, p=p, training=False)


def feature_alpha_dropout(x: Any, p: float = 0.5, training: bool = True) -> Any:
    """alpha_dropout of whole channels of x [n, c, ...].

    x: float[n, c, ...]. Raises ValueError unless p is in 0 ... 1. See alpha_dropout.
    Source: Klambauer et al. 2017, Self-normalizing neural networks.

    >>> import weft as wf
    >>> feature_alpha_dropout(wf.ones((1, 2, 3)), 0.0).sum().item()
    6.0
    """
    ones = _ones(_of_channels(x))
    return _alpha_dropped(x, ones, p) if training else F.dropout(x, p=p, training=False)


def rrelu(x: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Any:
    """x where it is positive, else a x; a: drawn from [lower, upper) for each element if training, else their middle.

    x: float[...]. Returns x's shape and dtype. Raises ValueError unless lower <= upper.
    Source: Xu et al. 2015, Empirical evaluation of rectified activations in convolutional network.

    >>> import weft as wf
    >>> rrelu(wf.tensor([-24., 2.]), 0.25, 0.75)
    tensor([-12.,   2.], dtype=float32, device=cpu:0)
    """
    if lower > upper:
        raise ValueError(f"rrelu: lower must be at most upper, got {lower} and {upper}")
    if not training:
        return F.leaky_relu(x, negative_slope=(lower + upper) / 2)
    slope = F.uniform_like(x) * (upper - lower) + lower
    return F.where(x > 0, x, x * slope)


def gumbel_softmax(x: Any, tau: float = 1.0, hard: bool = False, axis: int = -1) -> Any:
    """Samples of the categorical distribution of logits x, softened: softmax((x + Gumbel noise) / tau) along an axis.

    x: float[..., n, ...]; tau: greater than 0; hard: 1 at the greatest element and 0 elsewhere, with the gradient of
    the soft sample. Returns x's shape and dtype. Raises ValueError unless tau > 0.
    Source: Jang, Gu, Poole 2017, Categorical reparameterization with Gumbel-softmax.

    >>> import weft as wf
    >>> gumbel_softmax(wf.zeros((2, 5)), hard=True).sum(axis=-1)
    tensor([1., 1.], dtype=float32, device=cpu:0)
    """
    if not tau > 0:
        raise ValueError(f"gumbel_softmax: tau must be greater than 0, got {tau}")
    noise = -F.log(-F.log(F.uniform_like(x)))
    soft = F.softmax((x + noise) * (1 / tau), axis=axis)
    if not hard:
        return soft
    top = F.equal(F.places_like(soft, axis=axis), F.argmax(soft, axis=axis, keepdims=True))
    return F.cast(top, dtype=soft.dtype) + (soft - F.stop_gradient(soft))


def _fractional(
    ndim: int, x: Any, kernel_size: Any, output_size: Any, output_ratio: Any, samples: Any
) -> tuple[Any, Any]:
    """Maxima and their indices."""
    name = f"fractional_max_pool{ndim}d"
    _require(name, x, ndim + 2)
    if (output_size is None) == (output_ratio is None):
        raise ValueError(
            f"{name}: needs either output_size or output_ratio, got {output_size} and {output_ratio}"
        )
    if output_size is None:
        ratios = output_ratio if isinstance(output_ratio, tuple | list) else (output_ratio,) * ndim
        if len(ratios) != ndim or not all(0 < ratio < 1 for ratio in ratios):
            raise ValueError(
                f"{name}: output_ratio must be a number or {ndim}, within 0..1, got {output_ratio}"
            )
        output_size = tuple(int(n * ratio) for n, ratio in zip(x.shape[2:], ratios, strict=True))
    if samples is None:
        element = F.slice(x, starts=(0,) * ndim, stops=(1,) * ndim, axes=tuple(range(2, 2 + ndim)))
        element = F.squeeze(element, axis=tuple(range(2, 2 + ndim)))
        samples = F.uniform_like(F.stack([F.cast(element, dtype="float32")] * ndim, axis=-1))
    pool = F.fractional_pool2d if ndim == 2 else F.fractional_pool3d
    y, indices = pool(x, samples, kernel_size=kernel_size, output_size=output_size)
    return y, indices


def fractional_max_pool2d(
    x: Any, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, samples: Any = None
) -> Any:
    """Maxima of windows at uneven, random distances, so that images become smaller by any ratio.

    x: numbers [n, c, h, w]; kernel_size: an int or 2 of them; output_size: the sizes of the result, or output_ratio:
    theirs to those of x, within 0..1, rounded down; samples: float[n, c, 2], u of each channel and axis, by default
    uniform in [0, 1). Of o windows of k elements along n the one with number i begins at floor((i + u) a) - floor(u a)
    with a = (n - k) / (o - 1), the last at n - k. NaN is greater than all. Returns x's dtype [n, c, *output_size].
    Raises ShapeError if the windows do not fit, ValueError unless one of output_size and output_ratio is given.
    Source: Graham 2014, Fractional max-pooling; PyTorch's fractional_max_pool2d, whose samples are in the order w, h.

    >>> import weft as wf
    >>> fractional_max_pool2d(wf.arange(25.).reshape(1, 1, 5, 5), 2, (3, 3), samples=wf.zeros((1, 1, 2)))[0, 0, 0]
    tensor([6., 7., 9.], dtype=float32, device=cpu:0)
    """
    return _fractional(2, x, kernel_size, output_size, output_ratio, samples)[0]


def fractional_max_pool2d_with_indices(
    x: Any, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, samples: Any = None
) -> tuple[Any, Any]:
    """fractional_max_pool2d, and the index of each maximum in the flat image, int64, of equal ones the first.

    See fractional_max_pool2d for the arguments. The indices are those that max_unpool2d takes.

    >>> import weft as wf
    >>> x = wf.arange(9.).reshape(1, 1, 3, 3)
    >>> fractional_max_pool2d_with_indices(x, 2, (2, 2), samples=wf.zeros((1, 1, 2)))[1].tolist()
    [[[[4, 5], [7, 8]]]]
    """
    return _fractional(2, x, kernel_size, output_size, output_ratio, samples)


def fractional_max_pool3d(
    x: Any, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, samples: Any = None
) -> Any:
    """Maxima of windows at uneven, random distances, so that volumes become smaller by any ratio.

    x: numbers [n, c, d, h, w]; samples: float[n, c, 3]. See fractional_max_pool2d.

    >>> import weft as wf
    >>> fractional_max_pool3d(wf.ones((1, 2, 5, 5, 5)), 2, output_ratio=0.5).shape
    (1, 2, 2, 2, 2)
    """
    return _fractional(3, x, kernel_size, output_size, output_ratio, samples)[0]


def fractional_max_pool3d_with_indices(
    x: Any, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, samples: Any = None
) -> tuple[Any, Any]:
    """fractional_max_pool3d, and the index of each maximum in the flat volume, int64. See fractional_max_pool2d.

    >>> import weft as wf
    >>> [v.shape for v in fractional_max_pool3d_with_indices(wf.ones((1, 2, 5, 5, 5)), 2, 3)]
    [(1, 2, 3, 3, 3), (1, 2, 3, 3, 3)]
    """
    return _fractional(3, x, kernel_size, output_size, output_ratio, samples)
