"""Averages of parameters over the steps of a training, which often predict better than the last ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from weft.arrays.creation import tensor, zeros
from weft.arrays.tensor import Tensor
from weft.base.errors import DTypeError
from weft.gradients.gradient import no_grad

__all__ = ["AveragedParameters"]


class AveragedParameters:
    """Averages of parameters, updated after each step: average += (1 - decay) (p - average), or the mean of all.

    params: tensors, as net.parameters() gives. decay: the part of the past, as 0.999; None for the equal mean of all
    updates (stochastic weight averaging). The first update copies the parameters. Averages of 16-bit parameters are
    float32. update() does not wait, and belongs into a traced step. Raises ValueError for a decay outside 0 to 1.
    Source: Polyak, Juditsky 1992; Izmailov et al. 2018, Averaging weights leads to wider optima.

    >>> import weft as wf
    >>> w = wf.tensor([0.])
    >>> average = AveragedParameters([w], decay=0.5)
    >>> for _ in range(3):
    ...     average.update()
    ...     w += 1
    >>> with average.applied():
    ...     print(w)
    tensor([1.25], dtype=float32, device=cpu:0)
    >>> w
    tensor([3.], dtype=float32, device=cpu:0)
    """

    def __init__(self, params: Iterable[Tensor], decay: float | None = 0.999) -> None:
        self.params = list(params)
        for p in self.params:
            if not isinstance(p, Tensor):
                raise TypeError(f"AveragedParameters: parameters are tensors, got {type(p).__name__}")
            if not p.dtype.is_floating:
                raise DTypeError(f"AveragedParameters: averages floating-point tensors, got {p.dtype}")
        if decay is not None and not 0 <= decay <= 1:
            raise ValueError(f"AveragedParameters: decay must be at least 0 and at most 1, got {decay}")
        self.decay = decay
        with no_grad():
            self.averages = [p.astype("float32") if p.itemsize < 4 else p.copy() for p in self.params]
            self._counts = {p.device: zeros((), dtype="int64", device=p.device) for p in self.params}

    def update(self) -> None:
        """Take the parameters as they are now into the averages."""
        with no_grad():
            parts = {}
            for device, count in self._counts.items():
                count += 1
                parts[device] = self._part(count)
            for p, average in zip(self.params, self.averages, strict=True):
                part = parts[p.device].astype(average.dtype)
                average += part * (p.astype(average.dtype) - average)

    def _part(self, count: Tensor) -> Tensor:
        """The weight of the newest parameters: 1 at first."""
        if self.decay is None:
            return 1 / count.astype("float64")
        is_first = (count == 1).astype("float64")
        return is_first + (1 - is_first) * (1 - self.decay)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Within, the parameters hold the averages; behind it what they held before.

        What is written to them within is lost.
        """
        with no_grad():
            kept = [p.copy() for p in self.params]
            self.copy_to(self.params)
        try:
            yield
        finally:
            with no_grad():
                for p, before in zip(self.params, kept, strict=True):
                    p[...] = before

    def copy_to(self, params: Iterable[Tensor]) -> None:
        """Write the averages to parameters of the same shapes, these or others."""
        with no_grad():
            for p, average in zip(params, self.averages, strict=True):
                p[...] = average.astype(p.dtype)

    def state_dict(self) -> dict[str, Any]:
        """The averages and the number of updates."""
        count = next(iter(self._counts.values())) if self._counts else tensor(0)
        return {"averages": {str(k): average for k, average in enumerate(self.averages)}, "count": count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what state_dict() gave. Everything is checked before anything is changed.

        Raises ValueError for another number of averages, or other shapes.
        """
        averages = {int(key): x for key, x in state["averages"].items()}
        if sorted(averages) != list(range(len(self.averages))):
            raise ValueError(
                f"load_state_dict: AveragedParameters: {len(averages)} averages, here {len(self.averages)}"
            )
        for k, average in enumerate(self.averages):
            if averages[k].shape != average.shape:
                raise ValueError(
                    f"load_state_dict: AveragedParameters: average {k} has the shape {averages[k].shape}, "
                    f"here {average.shape}"
                )
        with no_grad():
            for k, average in enumerate(self.averages):
                average[...] = averages[k].to_device(average.device).astype(average.dtype)
            for count in self._counts.values():
                count[...] = int(state["count"])

    def __repr__(self) -> str:
        return f"AveragedParameters({len(self.params)} parameters, decay={self.decay})"
