"""Datasets: samples by number, or streams of samples one after the other."""

from __future__ import annotations

import bisect
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from weft.arrays.tensor import Tensor
from weft.base.errors import ShapeError

__all__ = [
    "ArrayDataset",
    "ConcatDataset",
    "Dataset",
    "MapDataset",
    "MapStream",
    "StreamDataset",
    "Subset",
    "ZipDataset",
    "split",
]


class Dataset:
    """Base of datasets with numbered samples: a subclass writes __getitem__ and __len__.

    A sample is anything that a collator puts together: numbers, arrays, tensors, text, and tuples and dictionaries of
    these.

    >>> class Squares(Dataset):
    ...     def __len__(self):
    ...         return 5
    ...     def __getitem__(self, k):
    ...         return k, k * k
    >>> Squares()[3]
    (3, 9)
    """

    def __getitem__(self, k: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: has no __getitem__()")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__}: has no __len__()")

    def __repr__(self) -> str:
        try:
            return f"{type(self).__name__}({len(self)} samples)"
        except Exception:  # in the middle of its constructor
            return f"{type(self).__name__}()"

    def gather(self, numbers: Sequence[int]) -> Any:
        """The samples of these numbers as one batch, or NotImplemented: they are then fetched one by one.

        A dataset that can do this at once is faster; used where there is neither transform nor collator.
        """
        return NotImplemented


class StreamDataset:
    """Base of datasets without numbers: a subclass writes __iter__, which begins again, in the same order, each time.

    >>> class Count(StreamDataset):
    ...     def __iter__(self):
    ...         return iter(range(3))
    >>> list(Count())
    [0, 1, 2]
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__}: has no __iter__()")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(stream)"

    def iterate(self, epoch: int) -> Iterator[Any]:
        """The samples in this epoch's order, always the same for one epoch; by default that of __iter__."""
        return iter(self)

    def shuffle(self, buffer_size: int, seed: int = 0) -> StreamDataset:
        """The samples in random order: each is drawn from a buffer of the next buffer_size ones.

        The order follows from (seed, epoch), so an epoch can be resumed. Raises ValueError for a buffer_size below 1.

        >>> order = list(MapStream(range(6)).shuffle(3, seed=1))
        >>> sorted(order), order == list(range(6))
        ([0, 1, 2, 3, 4, 5], False)
        """
        return _ShuffledStream(self, buffer_size, seed)


class MapStream(StreamDataset):
    """function(sample) for each sample of a stream; keep: leaves out those of which it is false.

    >>> list(MapStream(range(4), lambda x: 10 * x, keep=bool))
    [10, 20, 30]
    """

    def __init__(
        self,
        stream: Iterable[Any],
        function: Callable[[Any], Any] | None = None,
        keep: Callable[[Any], bool] | None = None,
    ) -> None:
        self.stream, self.function, self.keep = stream, function, keep

    def __iter__(self) -> Iterator[Any]:
        return self.iterate(0)

    def iterate(self, epoch: int) -> Iterator[Any]:
        stream = self.stream
        samples = stream.iterate(epoch) if isinstance(stream, StreamDataset) else iter(stream)
        if self.keep is not None:
            samples = filter(self.keep, samples)
        return samples if self.function is None else map(self.function, samples)


class _ShuffledStream(StreamDataset):
    """See StreamDataset.shuffle."""

    def __init__(self, stream: StreamDataset, buffer_size: int, seed: int) -> None:
        if operator.index(buffer_size) < 1:
            raise ValueError(f"shuffle: buffer_size must be at least 1, got {buffer_size}")
        self.stream, self.buffer_size, self.seed = stream, buffer_size, seed

    def __iter__(self) -> Iterator[Any]:
        return self.iterate(0)

    def iterate(self, epoch: int) -> Iterator[Any]:
        generator = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        buffer: list[Any] = []
        for sample in self.stream.iterate(epoch):
            if len(buffer) < self.buffer_size:
                buffer.append(sample)
                continue
            k = int(generator.integers(self.buffer_size))
            drawn, buffer[k] = buffer[k], sample
            yield drawn
        for k in generator.permutation(len(buffer)):
            yield buffer[k]


class ArrayDataset(Dataset):
    """Arrays or tensors of the same first size n: sample k is the k-th slice of each, of one array just that slice.

    Their memory is shared, not copied. Raises ValueError without arrays, ShapeError if their first sizes differ.

    >>> import weft as wf
    >>> dataset = ArrayDataset(wf.zeros((3, 2)), [5, 6, 7])
    >>> dataset[1]
    (array([0., 0.], dtype=float32), np.int64(6))
    """

    def __init__(self, *arrays: Any) -> None:
        if not arrays:
            raise ValueError("ArrayDataset: no arrays were given")
        self.arrays = tuple(x.numpy() if isinstance(x, Tensor) else np.asarray(x) for x in arrays)
        shapes = [x.shape for x in self.arrays]
        if not all(shapes) or len({shape[0] for shape in shapes}) > 1:
            raise ShapeError(f"ArrayDataset: arrays need the same first size, got shapes {shapes}")

    def _slice(self, key: Any) -> Any:
        slices = tuple(x[key] for x in self.arrays)
        return slices if len(slices) > 1 else slices[0]

    def __getitem__(self, k: int) -> Any:
        return self._slice(k)

    def __len__(self) -> int:
        return len(self.arrays[0])

    def gather(self, numbers: Sequence[int]) -> Any:
        return self._slice(np.asarray(numbers, dtype=np.int64))


class ConcatDataset(Dataset):
    """Datasets one after the other. Raises ValueError without any.

    >>> both = ConcatDataset([ArrayDataset([1, 2]), ArrayDataset([3])])
    >>> len(both), int(both[2])
    (3, 3)
    """

    def __init__(self, datasets: Sequence[Dataset]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ConcatDataset: no datasets were given")
        self.ends = list(itertools.accumulate(len(each) for each in self.datasets))

    def __len__(self) -> int:
        return self.ends[-1]

    def __getitem__(self, k: int) -> Any:
        number = _in_range("ConcatDataset", k, len(self))
        which = bisect.bisect_right(self.ends, number)
        return self.datasets[which][number - (self.ends[which - 1] if which else 0)]


class Subset(Dataset):
    """Some samples of a dataset, in this order. Raises IndexError for a number that it does not have.

    >>> part = Subset(ArrayDataset([10, 20, 30]), [2, 0])
    >>> [int(part[k]) for k in range(len(part))]
    [30, 10]
    """

    def __init__(self, dataset: Dataset, numbers: Sequence[int]) -> None:
        self.dataset = dataset
        size = len(dataset)
        indices = np.asarray(numbers, np.int64).reshape(-1)
        for k in indices[(indices < -size) | (indices >= size)][:1]:
            _in_range("Subset", int(k), size)
        self.numbers = np.where(indices < 0, indices + size, indices)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, k: int) -> Any:
        return self.dataset[int(self.numbers[k])]

    def gather(self, numbers: Sequence[int]) -> Any:
        if not isinstance(self.dataset, Dataset):
            return NotImplemented
        return self.dataset.gather(self.numbers[np.asarray(numbers, np.int64)].tolist())


class ZipDataset(Dataset):
    """Tuples of the samples of several datasets of the same size. Raises ValueError for different sizes, or none.

    >>> ZipDataset(["a", "b"], [1, 2])[1]
    ('b', 2)
    """

    def __init__(self, *datasets: Any) -> None:
        self.datasets = datasets
        if len({len(each) for each in datasets}) != 1:
            raise ValueError(f"ZipDataset: datasets have sizes {[len(each) for each in datasets]}")

    def __len__(self) -> int:
        return len(self.datasets[0])

    def __getitem__(self, k: int) -> Any:
        return tuple(each[k] for each in self.datasets)


class MapDataset(Dataset):
    """function(sample) for each sample of a dataset.

    >>> MapDataset([1, 2, 3], lambda x: 10 * x)[2]
    30
    """

    def __init__(self, dataset: Any, function: Callable[[Any], Any]) -> None:
        self.dataset, self.function = dataset, function

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, k: int) -> Any:
        return self.function(self.dataset[k])


def split(dataset: Any, sizes: Sequence[float], seed: int = 0) -> list[Subset]:
    """Parts of a dataset in random order, disjoint: of these numbers of samples, or shares that sum to at most 1.

    Raises ValueError for more samples than there are. The order follows from the seed alone.

    >>> [len(part) for part in split(list(range(10)), [0.8, 0.2])]
    [8, 2]
    """
    total = len(dataset)
    if all(isinstance(size, float) for size in sizes):
        ends = [round(total * share) for share in itertools.accumulate(sizes)]
        sizes = np.diff([0, *ends]).tolist()
    counts = [operator.index(size) for size in sizes]  # type: ignore[arg-type]
    if sum(counts) > total or min(counts, default=0) < 0:
        raise ValueError(f"split: sizes {counts} of {total} samples")
    order = np.random.Generator(np.random.PCG64(seed)).permutation(total)
    return [Subset(dataset, part.tolist()) for part in np.split(order, np.cumsum(counts))[:-1]]


def _in_range(owner: str, k: int, size: int) -> int:
    """A number from 0, of one that may count from the end."""
    if not -size <= k < size:
        raise IndexError(f"{owner}: number {k} is not one of {size} samples")
    return int(k) % size
