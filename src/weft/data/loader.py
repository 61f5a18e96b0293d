"""The loader: batches of a dataset, in an order that can be taken up again in the middle."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

from weft.data.collator import as_tensors, collate
from weft.data.dataset import Dataset, StreamDataset
from weft.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

__all__ = ["DataLoader"]


class DataLoader:
    """Batches of a dataset; each iteration is one epoch, in the order that its sampler gives for that epoch.

    dataset: a Dataset, or anything with __getitem__ and __len__; a StreamDataset, which has no samplers.
    batch_size: samples in a batch; the last batch is shorter, or left out with drop_last. shuffle: a RandomSampler with
    this seed, by default one drawn from weft.random. sampler: a Sampler in its place, or any iterable of numbers; a
    BatchSampler decides about whole batches. transform: called with each sample. collator: makes a batch of a list of
    samples, by default collate. num_workers: 0, all is done here when a batch is asked for.
    Batches are tensors, or structures of tensors.
    Raises ValueError for options that do not go together, NotImplementedError for workers.

    >>> import numpy as np
    >>> from weft.data import ArrayDataset
    >>> dataset = ArrayDataset(np.arange(6))
    >>> loader = DataLoader(dataset, batch_size=2, shuffle=True, seed=0, transform=lambda x: 10 * x)
    >>> len(loader), sorted(int(x) for batch in loader for x in batch)
    (3, [0, 10, 20, 30, 40, 50])
    """

    def __init__(
        self,
        dataset: Any,
        sampler: Sampler | Iterable[int] | None = None,
        *,
        batch_size: int = 1,
        shuffle: bool = False,
        seed: int | None = None,
        drop_last: bool = False,
        transform: Callable[[Any], Any] | None = None,
        collator: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
    ) -> None:
        if num_workers:
            raise NotImplementedError(
                f"DataLoader: num_workers={num_workers}: there are no worker processes so far; 0 loads in this one"
            )
        if shuffle and sampler is not None:
            raise ValueError("DataLoader: shuffle and sampler both say the order; give one")
        if seed is not None and not shuffle:
            raise ValueError("DataLoader: seed goes with shuffle")
        self.dataset, self.transform, self.collator = dataset, transform, collator
        self.batches = self._sampler(sampler, batch_size, shuffle, seed, drop_last)
        self._epoch = self._batch = 0  # of the current iteration; how many of its batches were given
        self._begun = False  # by the current iteration, which otherwise is one to be taken up

    def _sampler(
        self, sampler: Any, batch_size: int, shuffle: bool, seed: int | None, drop_last: bool
    ) -> BatchSampler:
        if isinstance(self.dataset, StreamDataset):
            if sampler is not None or shuffle:
                raise ValueError("DataLoader: a stream has its own order: no sampler, no shuffle")
            return BatchSampler([], batch_size, drop_last)
        if not isinstance(self.dataset, Sized) or not hasattr(self.dataset, "__getitem__"):
            what = type(self.dataset).__name__
            raise TypeError(f"DataLoader: takes a Dataset or a StreamDataset, got {what}")
        if isinstance(sampler, BatchSampler):
            if batch_size != 1 or drop_last:
                raise ValueError("DataLoader: a BatchSampler says batch_size and drop_last itself")
            return sampler
        if sampler is None:
            size = len(self.dataset)
            sampler = RandomSampler(size, seed) if shuffle else SequentialSampler(size)
        return BatchSampler(sampler, batch_size, drop_last)

    @property
    def epoch(self) -> int:
        """The number of the epoch that runs, or of the next one after the last batch was taken, from 0."""
        return self._epoch

    def __len__(self) -> int:
        """Batches in an epoch. Raises TypeError for a stream."""
        if isinstance(self.dataset, StreamDataset):
            raise TypeError("DataLoader: a stream has no length")
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        if self._begun:  # the one before was left in its middle
            self._epoch, self._batch = self._epoch + 1, 0
        self._begun = True
        epoch, taken = self._epoch, self._batch
        for batch in itertools.islice(self._lists(epoch), taken, None):
            taken += 1
            if self._epoch == epoch:
                self._batch = taken  # before it is given: a state taken now goes on after it
            yield self._load(batch)
        if self._epoch == epoch:
            self._epoch, self._batch, self._begun = epoch + 1, 0, False

    def _lists(self, epoch: int) -> Iterator[list[Any]]:
        """Numbers of samples, batch by batch; of a stream the samples."""
        if not isinstance(self.dataset, StreamDataset):
            yield from self.batches.order(epoch)
            return
        samples = iter(self.dataset)
        while batch := list(itertools.islice(samples, self.batches.batch_size)):
            if len(batch) == self.batches.batch_size or not self.batches.drop_last:
                yield batch

    def _load(self, batch: Sequence[Any]) -> Any:
        if isinstance(self.dataset, StreamDataset):
            samples = list(batch)
        else:
            if self.transform is None and self.collator is None and isinstance(self.dataset, Dataset):
                whole = self.dataset.gather(batch)
                if whole is not NotImplemented:
                    return as_tensors(whole)
            samples = [self.dataset[k] for k in batch]
        if self.transform is not None:
            samples = [self.transform(each) for each in samples]
        return as_tensors((self.collator or collate)(samples))

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is: the epoch, how many of its batches were given, and what the order depends on.

        >>> from weft.data import ArrayDataset
        >>> loader = DataLoader(ArrayDataset([1, 2, 3, 4]), batch_size=2)
        >>> first = next(iter(loader))
        >>> loader.state_dict()["epoch"], loader.state_dict()["batch"]
        (0, 1)
        """
        return {
            "epoch": self._epoch,
            "batch": self._batch,
            "samples": self._samples,
            "batches": self.batches.state_dict(),
        }

    @property
    def _samples(self) -> int | None:
        return None if isinstance(self.dataset, StreamDataset) else len(self.dataset)

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raise what load_state_dict would raise, and change nothing."""
        if not isinstance(state, Mapping) or state.keys() != self.state_dict().keys():
            raise TypeError("load_state_dict: DataLoader: takes what state_dict() gave")
        for name in ("epoch", "batch"):
            value = state[name]
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(
                    f"load_state_dict: DataLoader: {name} must be an integer from 0, got {value!r}"
                )
        if state["samples"] != self._samples:
            raise ValueError(
                f"load_state_dict: DataLoader: the dataset had {state['samples']} samples, here {self._samples}"
            )
        self.batches.check_state_dict(state["batches"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration goes on where the state was taken; transforms' own randomness is not part of it.

        Of a stream the batches before are read again and left out. Raises ValueError if the dataset's size, the
        batch's size or the kind of sampler differs.
        """
        self.check_state_dict(state)
        self.batches.load_state_dict(state["batches"])
        self._epoch, self._batch, self._begun = state["epoch"], state["batch"], False
