"""In which order samples come: pure functions of the epoch's number, so that an order can be had again."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any

import numpy as np

from weft import random

__all__ = ["BatchSampler", "RandomSampler", "Sampler", "SequentialSampler"]


class Sampler:
    """Base: a subclass writes order(epoch), the numbers of samples, and __len__, how many.

    The same epoch must always give the same order: that is how a loader goes on in the middle of one.

    >>> class Backwards(Sampler):
    ...     def order(self, epoch):
    ...         return range(2, -1, -1)
    ...     def __len__(self):
    ...         return 3
    >>> list(Backwards())
    [2, 1, 0]
    """

    def order(self, epoch: int) -> Iterable[Any]:
        """The numbers in this epoch's order."""
        raise NotImplementedError(f"{type(self).__name__}: has no order()")

    def __iter__(self) -> Iterator[Any]:
        return iter(self.order(0))

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__}: has no __len__()")

    def state_dict(self) -> dict[str, Any]:
        """What the order depends on but the epoch; numbers and text only."""
        return {}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raise what load_state_dict would raise, and change nothing."""
        if not isinstance(state, Mapping) or state.keys() != self.state_dict().keys():
            raise ValueError(
                f"load_state_dict: {type(self).__name__}: needs exactly {sorted(self.state_dict())}"
            )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give the orders that the sampler of this state gave."""
        self.check_state_dict(state)


def _size(source: Sized | int) -> int:
    size = len(source) if isinstance(source, Sized) else operator.index(source)
    if size < 0:
        raise ValueError(f"Sampler: a dataset cannot have {size} samples")
    return size


class SequentialSampler(Sampler):
    """0, 1, ... of a dataset, or of a number of samples.

    >>> list(SequentialSampler(3))
    [0, 1, 2]
    """

    def __init__(self, source: Sized | int) -> None:
        self.size = _size(source)

    def order(self, epoch: int) -> Iterable[int]:
        return range(self.size)

    def __len__(self) -> int:
        return self.size


class RandomSampler(Sampler):
    """All samples of a dataset in random order, another one each epoch; with replacement, each draw is independent.

    seed: decides about all epochs; by default it is drawn from weft.random, and so follows wf.random.seed. count: how
    many are drawn, by default as many as there are; more than that only with replacement.
    By NumPy's PCG64, seeded with (seed, epoch).

    >>> sampler = RandomSampler(5, seed=1)
    >>> sorted(sampler.order(0)), sampler.order(0) == sampler.order(0), sampler.order(0) == sampler.order(1)
    ([0, 1, 2, 3, 4], True, False)
    """

    def __init__(
        self,
        source: Sized | int,
        seed: int | None = None,
        replacement: bool = False,
        count: int | None = None,
    ) -> None:
        self.size = _size(source)
        self.replacement = replacement
        self.count = self.size if count is None else operator.index(count)
        if self.count < 0 or (self.count > self.size and not (replacement and self.size)):
            raise ValueError(f"RandomSampler: {self.count} of {self.size} samples cannot be drawn")
        self.seed = int(random.randint(0, 2**62)) if seed is None else operator.index(seed)
        if self.seed < 0:
            raise ValueError(f"RandomSampler: seed must be at least 0, got {seed}")

    def order(self, epoch: int) -> list[int]:
        generator = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        if self.replacement:
            return generator.integers(0, max(self.size, 1), self.count).tolist()
        return generator.permutation(self.size)[: self.count].tolist()

    def __len__(self) -> int:
        return self.count

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        super().check_state_dict(state)
        seed = state["seed"]
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise ValueError(f"load_state_dict: RandomSampler: seed must be an integer from 0, got {seed!r}")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.check_state_dict(state)
        self.seed = state["seed"]


class BatchSampler(Sampler):
    """Lists of batch_size numbers from a sampler, the last one shorter, or left out with drop_last.

    >>> list(BatchSampler(SequentialSampler(5), 2)), len(BatchSampler(SequentialSampler(5), 2, drop_last=True))
    ([[0, 1], [2, 3], [4]], 2)
    """

    def __init__(self, sampler: Sampler | Iterable[int], batch_size: int, drop_last: bool = False) -> None:
        if operator.index(batch_size) < 1:
            raise ValueError(f"BatchSampler: batch_size must be at least 1, got {batch_size}")
        self.sampler, self.batch_size, self.drop_last = sampler, operator.index(batch_size), drop_last

    def order(self, epoch: int) -> Iterator[list[int]]:
        sampler = self.sampler
        batch: list[int] = []
        for number in sampler.order(epoch) if isinstance(sampler, Sampler) else sampler:
            batch.append(int(number))
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        if not isinstance(self.sampler, Sized):
            raise TypeError(f"BatchSampler: a {type(self.sampler).__name__} has no length")
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def state_dict(self) -> dict[str, Any]:
        own = self.sampler.state_dict() if isinstance(self.sampler, Sampler) else {}
        return {"batch_size": self.batch_size, "drop_last": self.drop_last, "sampler": own}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        super().check_state_dict(state)
        for name in ("batch_size", "drop_last"):
            if state[name] != getattr(self, name):
                raise ValueError(
                    f"load_state_dict: BatchSampler: {name} was {state[name]}, here {getattr(self, name)}"
                )
        if isinstance(self.sampler, Sampler):
            self.sampler.check_state_dict(state["sampler"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.check_state_dict(state)
        if isinstance(self.sampler, Sampler):
            self.sampler.load_state_dict(state["sampler"])
