"""Observers: ranges of values, from what they have seen.

>>> import numpy as np
>>> observer = MinMax()
>>> observer.update(np.array([-1., 2.], np.float32))
>>> observer.range()
(-1.0, 2.0)
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from weft import distributed
from weft import functional as F
from weft.arrays.creation import asarray, tensor

__all__ = ["Histogram", "MinMax", "MovingAverage", "Observer", "make_observer"]

BINS = 2048
CANDIDATES = 96


class Observer:
    """Base: sees arrays one by one, and says which range to quantize them in. name: of the layer, for errors."""

    def __init__(self, name: str = "observer") -> None:
        self.name, self.batches = name, 0

    def update(self, x: Any) -> None:
        """Look at one more array. Raises ValueError for values that are not finite."""
        x = asarray(x, "float32")
        if not x.size:
            return
        low, high = F.min(x).item(), F.max(x).item()  # NaN if there is one
        if not math.isfinite(low - high):
            raise ValueError(f"quantization: {self.name}: an observed activation has NaN or infinite values")
        self.batches += 1
        self.look(x, low, high)

    def look(self, x: Any, low: float, high: float) -> None:
        """Take in a tensor and its least and greatest value."""
        raise NotImplementedError

    def range(self, levels: int = 256) -> tuple[float, float]:
        """The least and the greatest value to represent by so many integers. Raises ValueError without any data."""
        if not self.batches:
            raise ValueError(
                f"quantization: {self.name}: its observer has seen no data; run calibrate with batches that reach this "
                "layer, or exclude it: overrides={" + repr(self.name) + ": None}"
            )
        return self.found(levels)

    def found(self, levels: int) -> tuple[float, float]:
        raise NotImplementedError


class MinMax(Observer):
    """The least and the greatest value of all batches, and with synchronize() of all ranks."""

    low, high = float("inf"), float("-inf")

    def look(self, x: Any, low: float, high: float) -> None:
        self.low, self.high = min(self.low, low), max(self.high, high)

    def found(self, levels: int) -> tuple[float, float]:
        return self.low, self.high

    def synchronize(self) -> None:
        """Make it the range over all ranks; each has to call it."""
        if distributed.world_size() > 1:
            ends = distributed.all_reduce(tensor([-self.low, self.high]), op="max").numpy()
            self.low, self.high = -float(ends[0]), float(ends[1])


class MovingAverage(MinMax):
    """Moving averages of each batch's least and greatest value: they move by the fraction momentum."""

    def __init__(self, name: str = "observer", momentum: float = 0.1) -> None:
        super().__init__(name)
        self.momentum = momentum

    def look(self, x: Any, low: float, high: float) -> None:
        share = 1.0 if self.batches == 1 else self.momentum
        self.low = low if share == 1.0 else self.low + share * (low - self.low)
        self.high = high if share == 1.0 else self.high + share * (high - self.high)

    def synchronize(self) -> None:
        """Make it the mean of all ranks' averages; each has to call it."""
        if distributed.world_size() > 1:
            ends = distributed.all_reduce(tensor([self.low, self.high]), op="mean").numpy()
            self.low, self.high = float(ends[0]), float(ends[1])


class Histogram(Observer):
    """Counts of values in 2048 bins, whose range grows with the data.

    search: "percentile": the range that has that percentage of the values; "l2": the one with the least squared error;
    "kl": the one whose quantized distribution has the least Kullback-Leibler divergence. The latter two try 96 parts
    of the whole range, all at once. Zeros, which every range represents exactly, do not count for kl: what ReLU leaves
    would draw the range to them.
    Source: Migacz 2017, 8-bit inference with TensorRT (kl).

    >>> observer = Histogram(search="percentile", percentile=99.)
    >>> observer.update(np.append(np.linspace(0, 1, 1000), 50.))
    >>> observer.range()[1] < 2
    True
    """

    SEARCHES: ClassVar[tuple[str, ...]] = ("percentile", "kl", "l2")

    def __init__(self, name: str = "observer", search: str = "kl", percentile: float = 99.99) -> None:
        super().__init__(name)
        if search not in self.SEARCHES:
            raise ValueError(f"Histogram: search must be one of {', '.join(self.SEARCHES)}, got {search!r}")
        self.search, self.percentile = search, percentile
        self.low = self.high = 0.0  # zero is always representable
        self.counts = np.zeros(BINS)

    def look(self, x: Any, low: float, high: float) -> None:
        low, high = min(self.low, low), max(self.high, high)
        if low == high:
            high = low + 1e-12
        if (low, high) != (self.low, self.high):
            self._grow(low, high)
        values = x.numpy().ravel(order="K")  # in the order of memory, without a copy
        counted = values[values != 0] if self.search == "kl" else values
        self.counts += np.histogram(counted, BINS, (self.low, self.high))[0]

    def _grow(self, low: float, high: float) -> None:
        """Count in bins of a wider range; what was counted is spread evenly over the bins that it may be in."""
        edges = np.linspace(low, high, BINS + 1)
        if self.counts.any():
            before = np.linspace(self.low, self.high, BINS + 1)
            self.counts = np.diff(np.interp(edges, before, np.append(0.0, np.cumsum(self.counts))))
        self.low, self.high = low, high

    def synchronize(self) -> None:
        """Add up the counts of all ranks; each has to call it."""
        if distributed.world_size() > 1:
            ends = distributed.all_reduce(tensor([-self.low, self.high]), op="max").numpy()
            self._grow(-float(ends[0]), float(ends[1]))
            self.counts = distributed.all_reduce(tensor(self.counts)).numpy()

    def found(self, levels: int) -> tuple[float, float]:
        if self.search == "percentile":
            share = np.append(0.0, np.cumsum(self.counts)) / self.counts.sum()
            edges = np.linspace(self.low, self.high, BINS + 1)
            rest = 1 - self.percentile / 100
            outside = rest if self.low == 0 or self.high == 0 else rest / 2
            low = 0.0 if self.low == 0 else float(np.interp(outside, share, edges))
            high = 0.0 if self.high == 0 else float(np.interp(1 - outside, share, edges))
            return min(low, 0.0), max(high, 0.0)
        if not self.counts.any():
            return self.low, self.high
        parts = np.linspace(1, levels / BINS, CANDIDATES)[:, None]  # of equally good ones the widest
        ends = self.low * parts, self.high * parts
        loss = self._squared_error if self.search == "l2" else self._divergence
        best = int(np.argmin(loss(*ends, levels)))
        return float(ends[0][best, 0]), float(ends[1][best, 0])

    def _centers(self) -> Any:
        edges = np.linspace(self.low, self.high, BINS + 1)
        return (edges[1:] + edges[:-1]) / 2

    def _squared_error(self, low: Any, high: Any, levels: int) -> Any:
        """For each range (a row) the error of all values."""
        centers, step = self._centers(), (high - low) / (levels - 1)
        back = np.clip(np.round((centers - low) / step), 0, levels - 1) * step + low
        return ((centers - back) ** 2 * self.counts).sum(1)

    def _divergence(self, low: Any, high: Any, levels: int) -> Any:
        """For each range KL(p || q): p has what is outside in its outer bins, q is p averaged over each level."""
        centers, count = self._centers(), len(low)
        inside = (centers >= low) & (centers <= high)
        step = (high - low) / levels
        level = np.clip(np.floor((centers - low) / step), 0, levels - 1).astype(int)
        p = np.where(inside, self.counts, 0.0)
        first, last = inside.argmax(1), BINS - 1 - inside[:, ::-1].argmax(1)
        rows = np.arange(count)
        p[rows, first] += np.where(centers < low, self.counts, 0.0).sum(1)
        p[rows, last] += np.where(centers > high, self.counts, 0.0).sum(1)
        index = (rows[:, None] * levels + level).ravel()
        plain = np.where(inside, self.counts, 0.0)
        filled = plain > 0
        sums = np.bincount(index, plain.ravel(), count * levels)
        sizes = np.maximum(np.bincount(index, filled.ravel(), count * levels), 1)
        q = np.where(filled, (sums / sizes)[index].reshape(p.shape), 0.0)
        p = p / p.sum(1, keepdims=True)
        q = np.maximum(q / np.maximum(q.sum(1, keepdims=True), 1e-30), 1e-10)
        return np.where(p > 0, p * np.log(np.maximum(p, 1e-30) / q), 0.0).sum(1)


def make_observer(method: str, name: str, momentum: float = 0.1, percentile: float = 99.99) -> Any:
    """The observer of a QConfig.

    >>> make_observer("ema", "conv1").momentum
    0.1
    """
    if method == "min_max":
        return MinMax(name)
    if method == "ema":
        return MovingAverage(name, momentum)
    return Histogram(name, method, percentile)
