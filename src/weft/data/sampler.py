"""Samplers. The order of samples is a pure function of the epoch's number, so training can resume in an epoch."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

import numpy as np

from weft import random

__all__ = [
    "BatchSampler",
    "BucketSampler",
    "InfiniteSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "ShardedSampler",
    "WeightedSampler",
]


class IndexOrder(Sequence[int]):
    """Indices in an array of 4 or 8 bytes each; compares and iterates as a list of Python's integers."""

    __slots__ = ("indices",)
    PART = 1 << 12

    def __init__(self, indices: np.ndarray) -> None:
        small = not len(indices) or int(indices.max()) < 2**31
        self.indices = indices.astype(np.int32 if small else np.int64, copy=False)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, key: Any) -> Any:
        values = self.indices[key]
        return values.tolist() if isinstance(key, slice) else int(values)

    def __iter__(self) -> Iterator[int]:
        for begin in range(0, len(self.indices), self.PART):
            yield from self.indices[begin : begin + self.PART].tolist()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, IndexOrder):
            return np.array_equal(self.indices, other.indices)
        return list(self) == other if isinstance(other, list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self)) if len(self) <= 100 else f"[{str(self[:100])[1:-1]}, ... {len(self)} indices]"


def permutation(generator: np.random.Generator, size: int) -> np.ndarray:
    """A random order of 0 ... size-1, in 4 bytes each where they suffice."""
    if size >= 2**31:
        return generator.permutation(size)
    order = np.arange(size, dtype=np.int32)
    generator.shuffle(order)
    return order


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
        """All that the order depends on besides the epoch, as numbers and text."""
        return {}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raise what load_state_dict would raise, and change nothing."""
        if not isinstance(state, Mapping) or state.keys() != self.state_dict().keys():
            raise ValueError(
                f"load_state_dict: {type(self).__name__}: needs exactly {sorted(self.state_dict())}"
            )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the state: the orders become those of the sampler that saved it."""
        self.check_state_dict(state)


def _size(source: Sized | int) -> int:
    size = len(source) if isinstance(source, Sized) else operator.index(source)
    if size < 0:
        raise ValueError(f"Sampler: a dataset cannot have {size} samples")
    return size


def check_natural(owner: str, name: str, value: Any) -> None:
    """Raise ValueError unless a value of a state is an integer from 0."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"load_state_dict: {owner}: {name} must be an integer from 0, got {value!r}")


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


class _Seeded(Sampler):
    """A sampler whose orders follow from a seed, which is its state."""

    seed: int

    def _set_seed(self, seed: int | None) -> None:
        self.seed = int(random.randint(0, 2**62)) if seed is None else operator.index(seed)
        if self.seed < 0:
            raise ValueError(f"{type(self).__name__}: seed must be at least 0, got {seed}")

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        super().check_state_dict(state)
        check_natural(type(self).__name__, "seed", state["seed"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.check_state_dict(state)
        self.seed = state["seed"]


class RandomSampler(_Seeded):
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
        self._set_seed(seed)

    def order(self, epoch: int) -> IndexOrder:
        generator = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        if self.replacement:
            return IndexOrder(generator.integers(0, max(self.size, 1), self.count))
        return IndexOrder(permutation(generator, self.size)[: self.count])

    def __len__(self) -> int:
        return self.count


class WeightedSampler(_Seeded):
    """Indices drawn with probabilities in proportion to `weights`, independently: one may come several times.

    count: how many are drawn in an epoch, by default as many as there are weights. seed: as for RandomSampler.
    Raises ValueError for weights that are negative, not finite, or all 0.

    >>> sampler = WeightedSampler([0.0, 1.0, 3.0], count=1000, seed=0)
    >>> list(sampler.order(0)).count(0), 700 < list(sampler.order(0)).count(2) < 800
    (0, True)
    """

    def __init__(self, weights: Sequence[float], count: int | None = None, seed: int | None = None) -> None:
        array = np.asarray(weights, np.float64)
        if array.ndim != 1 or not np.all(np.isfinite(array)) or np.any(array < 0) or not array.sum() > 0:
            raise ValueError("WeightedSampler: weights must be finite and at least 0, and some greater")
        self.bounds = np.cumsum(array)
        self.count = len(array) if count is None else operator.index(count)
        if self.count < 0:
            raise ValueError(f"WeightedSampler: count must be at least 0, got {count}")
        self._set_seed(seed)

    def order(self, epoch: int) -> IndexOrder:
        points = np.random.Generator(np.random.PCG64([self.seed, epoch])).random(self.count)
        indices = np.searchsorted(self.bounds, points * self.bounds[-1], side="right")
        last = np.searchsorted(
            self.bounds, self.bounds[-1], side="left"
        )  # the last index with a weight above 0
        return IndexOrder(np.minimum(indices, last))

    def __len__(self) -> int:
        return self.count


class WrappingSampler(Sampler):
    """A sampler that changes the order of another one, whose state is its own."""

    sampler: Sampler

    def state_dict(self) -> dict[str, Any]:
        return {"sampler": self.sampler.state_dict()}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        super().check_state_dict(state)
        self.sampler.check_state_dict(state["sampler"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.check_state_dict(state)
        self.sampler.load_state_dict(state["sampler"])


class InfiniteSampler(WrappingSampler):
    """The orders of another sampler's epochs one after the other, without end: for training by steps.

    A loader with it has no length, and one epoch that goes on until the loop leaves it.

    >>> import itertools
    >>> list(itertools.islice(InfiniteSampler(SequentialSampler(2)).order(0), 5))
    [0, 1, 0, 1, 0]
    """

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler

    def order(self, epoch: int) -> Iterator[int]:
        for number in itertools.count(epoch):
            is_empty = True
            for index in self.sampler.order(number):
                is_empty = False
                yield index
            if is_empty:
                raise ValueError("InfiniteSampler: the sampler's order is empty")

    def __len__(self) -> int:
        raise TypeError("InfiniteSampler: has no length")


class ShardedSampler(WrappingSampler):
    """One part of another sampler's order: indices part_index, part_index + num_parts, ... of it. For several ranks.

    The sampler must give the same order on all ranks: give a RandomSampler the same seed on each. uneven, for an order
    that num_parts does not divide: "pad" gives every part the same number, some indices of the order's beginning twice;
    "drop" leaves the rest out; "keep" gives each index once, and the parts differ in length by at most 1.
    Raises ValueError for a part_index that is not one of the parts.

    >>> [list(ShardedSampler(SequentialSampler(5), 2, k)) for k in range(2)]
    [[0, 2, 4], [1, 3, 0]]
    >>> [list(ShardedSampler(SequentialSampler(5), 2, k, uneven="keep")) for k in range(2)]
    [[0, 2, 4], [1, 3]]
    """

    def __init__(self, sampler: Sampler, num_parts: int, part_index: int, uneven: str = "pad") -> None:
        if not 0 <= operator.index(part_index) < operator.index(num_parts):
            raise ValueError(f"ShardedSampler: part_index {part_index} is not one of {num_parts} parts")
        if uneven not in ("pad", "drop", "keep"):
            raise ValueError(f"ShardedSampler: uneven must be 'pad', 'drop' or 'keep', got {uneven!r}")
        self.sampler, self.num_parts, self.part_index, self.uneven = sampler, num_parts, part_index, uneven

    def order(self, epoch: int) -> Any:
        order = self.sampler.order(epoch)
        if not isinstance(order, range | IndexOrder | list):
            order = list(order)
        size, count = len(order), len(self)
        part = order[self.part_index :: self.num_parts][:count]
        if len(part) < count:  # "pad": one index is missing, which comes from the order's beginning
            part = [*part, order[(self.part_index + len(part) * self.num_parts) % size]]
        return part

    def __len__(self) -> int:
        size = len(self.sampler)
        if self.uneven == "keep":
            return len(range(self.part_index, size, self.num_parts))
        return size // self.num_parts if self.uneven == "drop" else -(-size // self.num_parts)


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
        batch: list[Any] = []
        for index in sampler.order(epoch) if isinstance(sampler, Sampler) else sampler:
            batch.append(index if isinstance(index, str) else int(index))
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def order_from(self, epoch: int, start: int) -> Iterator[list[int]]:
        """The batches of order(epoch) from number `start` on, without making those before where that can be."""
        order = None
        if type(self).order is BatchSampler.order and isinstance(self.sampler, Sampler):
            order = self.sampler.order(epoch)
        if not isinstance(order, range | IndexOrder):
            yield from itertools.islice(self.order(epoch), start, None)
            return
        size = self.batch_size
        for begin in range(start * size, len(order), size):
            batch = list(order[begin : begin + size])
            if len(batch) == size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        if not isinstance(self.sampler, Sized):
            raise TypeError(f"BatchSampler: a {type(self.sampler).__name__} has no length")
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def state_dict(self) -> dict[str, Any]:
        sampler_state = self.sampler.state_dict() if isinstance(self.sampler, Sampler) else {}
        return {"batch_size": self.batch_size, "drop_last": self.drop_last, "sampler": sampler_state}

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


class BucketSampler(BatchSampler):
    """Batches of samples of similar length, in random order: less padding.

    lengths: one number for each sample. boundaries: upper ends of the buckets, ascending, each exclusive; the last
    bucket takes the rest. By default ten buckets of about as many samples each. A batch has samples of one bucket.
    Each epoch has another order, of samples in a bucket and of batches, from the seed.

    >>> sampler = BucketSampler([1, 9, 2, 8, 1, 9], batch_size=2, boundaries=[5], seed=0)
    >>> [len({k in (1, 3, 5) for k in batch}) for batch in sampler.order(0)]
    [1, 1, 1, 1]
    """

    def __init__(
        self,
        lengths: Sequence[int],
        batch_size: int,
        *,
        boundaries: Sequence[float] | None = None,
        seed: int | None = None,
        drop_last: bool = False,
    ) -> None:
        sizes = np.asarray(lengths)
        if sizes.ndim != 1:
            raise ValueError(
                f"BucketSampler: lengths must be one number for each sample, got shape {sizes.shape}"
            )
        super().__init__(RandomSampler(len(sizes), seed), batch_size, drop_last)
        ends = np.unique(np.quantile(sizes, np.arange(1, 10) / 10)) if len(sizes) else np.empty(0)
        if boundaries is not None:
            ends = np.asarray(boundaries, np.float64)
        if np.any(np.diff(ends) <= 0):
            raise ValueError(f"BucketSampler: boundaries must ascend, got {ends.tolist()}")
        self.buckets = np.digitize(sizes, ends)
        counts = np.bincount(self.buckets)
        whole, rest = counts // self.batch_size, (counts % self.batch_size > 0) & (not drop_last)
        self.count = int(whole.sum() + rest.sum())

    def order(self, epoch: int) -> Iterator[list[int]]:
        assert isinstance(self.sampler, RandomSampler)
        order = self.sampler.order(epoch).indices
        order = order[np.argsort(self.buckets[order], kind="stable")]
        ends = np.cumsum(np.bincount(self.buckets))
        spans = []
        for begin, end in zip(np.r_[0, ends[:-1]], ends, strict=True):
            spans += [(k, min(k + self.batch_size, end)) for k in range(begin, end, self.batch_size)]
        if self.drop_last:
            spans = [(begin, end) for begin, end in spans if end - begin == self.batch_size]
        generator = np.random.Generator(np.random.PCG64([self.sampler.seed, epoch, 1]))
        for k in generator.permutation(len(spans)):
            yield order[slice(*spans[k])].tolist()

    def __len__(self) -> int:
        return self.count
