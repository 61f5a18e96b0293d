"""The base of metrics, and averages."""

from __future__ import annotations

from typing import Any

from weft import _core
from weft import functional as F
from weft.arrays.creation import asarray
from weft.arrays.tensor import Tensor
from weft.base.errors import ShapeError
from weft.gradients.gradient import no_grad

__all__ = ["Mean", "MeanSquaredError", "Metric"]


class Metric:
    """Base: a subclass writes reset(), add() and compute(). What add() does is not recorded for gradients.

    >>> class Count(Metric):
    ...     def reset(self):
    ...         self.count = 0
    ...     def add(self, x):
    ...         self.count += len(x)
    ...     def compute(self):
    ...         return self.count
    >>> metric = Count()
    >>> metric.update([1, 2, 3])
    >>> metric.compute()
    3
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start over."""
        raise NotImplementedError(f"{type(self).__name__}: has no reset()")

    def add(self, *args: Any) -> None:
        """Take in a batch."""
        raise NotImplementedError(f"{type(self).__name__}: has no add()")

    def update(self, *args: Any) -> None:
        """Take in a batch; nothing is waited for."""
        with no_grad():
            self.add(*args)
        self._updates = self.__dict__.get("_updates", 0) + 1

    def __repr__(self) -> str:
        """Its options and how often it was updated; the number is not computed, as that waits.

        >>> Mean()
        Mean(0 updates)
        """
        options = [
            f"{k}={v!r}" for k, v in vars(self).items() if k[0] != "_" and isinstance(v, int | float | str)
        ]
        count = f"{self.__dict__.get('_updates', 0)} updates"
        return f"{type(self).__name__}({', '.join([*options, count])})"

    def compute(self) -> Any:
        """The number, of all batches since reset(); waits for them."""
        raise NotImplementedError(f"{type(self).__name__}: has no compute()")


class Sum:
    """A sum that tensors are added to: on the device of the first, in float64 or int64."""

    def __init__(self) -> None:
        self.total: Tensor | None = None

    def add(self, x: Tensor) -> None:
        """Add all elements."""
        kind = "float64" if x.dtype.is_floating else "int64"
        total = F.sum(x.astype(kind))
        self.total = total if self.total is None else self.total + total.to_device(self.total.device)

    def item(self) -> float:
        """The sum, 0 at first."""
        return 0.0 if self.total is None else float(self.total.item())


class Mean(Metric):
    """The mean of numbers, such as losses: update(value, weight=1), value a number, a tensor or a list.

    Each element counts weight times. NaN before the first.

    >>> import weft as wf
    >>> loss = Mean()
    >>> loss.update(wf.tensor(2.0), 3)
    >>> loss.update(wf.tensor(6.0), 1)
    >>> loss.compute()
    3.0
    """

    def reset(self) -> None:
        self._sum, self._number, self._weight = Sum(), 0.0, 0.0

    def add(self, value: Tensor | float, weight: float = 1.0) -> None:
        if not isinstance(value, int | float):
            value = asarray(value)
            self._sum.add(value.astype("float64") * weight)
            self._weight += weight * value.size
        else:
            self._number += value * weight
            self._weight += weight

    def compute(self) -> float:
        if not self._weight:
            return float("nan")
        return (self._sum.item() + self._number) / self._weight


class MeanSquaredError(Metric):
    """The mean of (x - target)^2 over all elements: update(x, target). NaN before the first.

    Raises ShapeError if the shapes differ.

    >>> import weft as wf
    >>> error = MeanSquaredError()
    >>> error.update(wf.tensor([1., 2.]), wf.tensor([1., 4.]))
    >>> error.compute()
    2.0
    """

    def reset(self) -> None:
        self._mean = Mean()

    def add(self, x: Tensor, target: Tensor) -> None:
        x, target = asarray(x), asarray(target)
        if x.shape != target.shape:
            listed = f"x is {_core.describe(x)}, target is {_core.describe(target)}"
            raise ShapeError(f"MeanSquaredError: shapes differ: {listed}")
        apart = x.astype("float64") - target.astype("float64")
        self._mean.add(apart * apart)

    def compute(self) -> float:
        return self._mean.compute()
