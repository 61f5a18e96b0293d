"""A softmax over many classes of which few are frequent."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from weft import functional as F
from weft.arrays.creation import zeros
from weft.arrays.data_dependent import flatnonzero
from weft.arrays.tensor import Tensor
from weft.base.device import Device
from weft.base.dtype import DType
from weft.base.errors import ShapeError
from weft.module.container import Sequential
from weft.module.linear import Linear
from weft.module.module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class AdaptiveLogSoftmaxWithLoss(Module):
    """A softmax over classes by frequency: the frequent ones, and clusters of rarer ones with fewer features each.

    classes are ordered by frequency; cutoffs: the first class of each cluster, rising. head is a linear layer of the
    classes below cutoffs[0] and one more result for each cluster; tail[i] are two linear layers, through in_features /
    div_value^(i + 1) features, of the classes of cluster i. head_bias: whether head has a bias.
    forward(x, target): x float[n, in_features], target int[n], or one row and 0-d. Returns (logarithms of the targets'
    probabilities [n], the mean of -these). Clusters are computed of the rows with a target among them, so the call
    waits for target, and breaks a trace; log_prob and predict do not. Raises ValueError for cutoffs that are not rising
    within 1 ... classes - 1, ShapeError for other shapes, IndexError for a target outside of 0 ... classes - 1.
    Source: Grave et al. 2016, Efficient softmax approximation for GPUs.

    >>> import weft as wf
    >>> layer = AdaptiveLogSoftmaxWithLoss(16, 100, (10, 50))
    >>> output, loss = layer(wf.ones((3, 16)), wf.tensor([0, 99, 20]))
    >>> output.shape, layer.head.weight.shape, [part[0].out_features for part in layer.tail]
    ((3,), (12, 16), [4, 1])
    """

    repr_attributes = ("in_features", "classes", "cutoffs", "div_value")

    def __init__(
        self,
        in_features: int,
        classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        *,
        dtype: DType | str = "float32",
        device: Device | str | None = None,
    ) -> None:
        ends = [*cutoffs, classes]
        if not cutoffs or cutoffs[0] < 1 or any(a >= b for a, b in itertools.pairwise(ends)):
            raise ValueError(
                f"AdaptiveLogSoftmaxWithLoss: cutoffs must rise within 1 ... {classes - 1}, got {list(cutoffs)}"
            )
        self.in_features, self.classes, self.cutoffs, self.div_value = in_features, classes, ends, div_value
        where: Any = {"dtype": dtype, "device": device}
        self.head = Linear(in_features, ends[0] + len(cutoffs), head_bias, **where)
        tail = []
        for i, (low, high) in enumerate(itertools.pairwise(ends), 1):
            inner = int(in_features // div_value**i)
            layers = Linear(in_features, inner, False, **where), Linear(inner, high - low, False, **where)
            tail.append(Sequential(*layers))
        self.tail = tail

    def forward(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        if x.ndim == 1 and target.ndim == 0:
            output, loss = self(F.expand_dims(x, axis=0), F.expand_dims(target, axis=0))
            return output[0], loss
        if x.ndim != 2 or target.shape != x.shape[:1]:
            raise ShapeError(
                f"AdaptiveLogSoftmaxWithLoss: needs x [n, {self.in_features}] and target [n], got {x.shape} and "
                f"{target.shape}"
            )
        cutoffs = self.cutoffs
        head, place, found = F.log_softmax(self.head(x), axis=1), target, 0
        output = zeros(target.shape, dtype=head.dtype, device=head.device)
        for i, (low, high, part) in enumerate(zip(cutoffs, cutoffs[1:], self.tail, strict=False)):
            is_here = F.logical_and(target >= low, target < high)
            place = F.where(is_here, cutoffs[0] + i, place)
            rows = flatnonzero(is_here)
            if rows.shape[0]:
                logs = F.log_softmax(part(F.take(x, rows, axis=0)), axis=1)
                local = F.expand_dims(F.take(target, rows, axis=0) - low, axis=1)
                each = F.squeeze(F.take_along_axis(logs, local, axis=1), axis=1)
                output = F.index_put(output, each, rows, axes=(0,), mode="add")
                found += rows.shape[0]
        if found + int(F.sum(F.logical_and(target >= 0, target < cutoffs[0]))) != target.shape[0]:
            raise IndexError(f"AdaptiveLogSoftmaxWithLoss: targets must be in 0 ... {self.classes - 1}")
        output = output + F.squeeze(F.take_along_axis(head, F.expand_dims(place, axis=1), axis=1), axis=1)
        return output, -F.mean(output)

    def log_prob(self, x: Tensor) -> Tensor:
        """The logarithms of the probabilities of all classes: [n, in_features] -> [n, classes]."""
        head, first = F.log_softmax(self.head(x), axis=1), self.cutoffs[0]
        parts = [head[:, :first]]
        for i, part in enumerate(self.tail):
            parts.append(F.log_softmax(part(x), axis=1) + head[:, first + i : first + i + 1])
        return F.concat(parts, axis=1)

    def predict(self, x: Tensor) -> Tensor:
        """The likeliest class of each row: [n, in_features] -> int64[n]."""
        return F.argmax(self.log_prob(x), axis=1)
