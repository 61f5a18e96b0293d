"""Collators that mix the samples of a batch: mixup and cutmix."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.data.collator import as_tensors, stack_samples
from weft.data.sample_context import rng

__all__ = ["CutMix", "Mixup"]


class Mixup:
    """A collator for pairs (x, label): x and labels are mixed with those of another sample of the batch.

    x: float[...]. label: an index of a class, or float[classes]. Gives (f32[n, ...], f32[n, classes]). The share of the
    other sample is drawn from Beta(alpha, alpha), once for the batch, from the batch's own stream.
    Source: Zhang, Cisse, Dauphin, Lopez-Paz 2017, mixup: Beyond Empirical Risk Minimization.

    >>> x, y = Mixup(2, alpha=1.0)([(np.zeros(1, "float32"), 0), (np.ones(1, "float32"), 1)])
    >>> bool((y.numpy().sum(axis=1) == 1).all()), x.shape
    (True, (2, 1))
    """

    def __init__(self, classes: int, alpha: float = 0.2) -> None:
        if not alpha > 0:
            raise ValueError(f"{type(self).__name__}: alpha must be greater than 0, got {alpha}")
        self.classes, self.alpha = classes, alpha

    def __call__(self, samples: list[Any]) -> Any:
        x, labels = (np.asarray(part) for part in stack_samples([tuple(sample) for sample in samples]))
        if not np.issubdtype(x.dtype, np.floating):
            raise TypeError(
                f"{type(self).__name__}: x must be of floats, after Normalize or ToFloat; got {x.dtype}"
            )
        if labels.ndim == 1:
            if len(labels) and not 0 <= labels.min() <= labels.max() < self.classes:
                raise ValueError(f"{type(self).__name__}: a label is not one of {self.classes} classes")
            labels = np.eye(self.classes, dtype=np.float32)[labels]
        generator = rng()
        share = generator.beta(self.alpha, self.alpha)
        x, share = self.mixed(x, np.roll(x, 1, axis=0), share, generator)
        mixed = share * labels + (1 - share) * np.roll(labels, 1, axis=0)
        return as_tensors((x, mixed.astype(np.float32)))

    def mixed(
        self, x: np.ndarray, other: np.ndarray, share: float, generator: np.random.Generator
    ) -> tuple[np.ndarray, float]:
        """The mixture, and the share of x in it."""
        return (share * x + (1 - share) * other).astype(x.dtype), share


class CutMix(Mixup):
    """A collator as Mixup, for pictures float[c, h, w]: a rectangle of each one comes from another of the batch.

    The labels are mixed by the rectangle's share of the area.
    Source: Yun et al. 2019, CutMix: Regularization Strategy to Train Strong Classifiers with Localizable Features.

    >>> x, label = CutMix(classes=2)([(np.zeros((1, 4, 4), "float32"), 0), (np.ones((1, 4, 4), "float32"), 1)])
    >>> x.shape, label.sum(axis=1).tolist()
    ((2, 1, 4, 4), [1.0, 1.0])
    """

    def __init__(self, classes: int, alpha: float = 1.0) -> None:
        super().__init__(classes, alpha)

    def mixed(
        self, x: np.ndarray, other: np.ndarray, share: float, generator: np.random.Generator
    ) -> tuple[np.ndarray, float]:
        h, w = x.shape[-2:]
        edge = math.sqrt(1 - share)
        middle_y, middle_x = generator.integers(h), generator.integers(w)
        top, bottom = (int(np.clip(middle_y + sign * edge * h / 2, 0, h)) for sign in (-1, 1))
        left, right = (int(np.clip(middle_x + sign * edge * w / 2, 0, w)) for sign in (-1, 1))
        x = x.copy()
        x[..., top:bottom, left:right] = other[..., top:bottom, left:right]
        return x, 1 - (bottom - top) * (right - left) / (h * w)
