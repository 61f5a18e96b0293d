"""Loading of one batch, by any worker: its samples are read, transformed and put together.

A task holds all that the batch depends on. So any worker may take any task, twice if the first one died.
"""

from __future__ import annotations

import contextlib
import itertools
import random as python_random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from weft import random
from weft.data.collator import stack_samples
from weft.data.dataset import Dataset, StreamDataset
from weft.data.sample_context import BATCH, context, enter, leave

__all__ = ["END", "Fetch", "FetchTask", "describe"]


class FetchTask(NamedTuple):
    """One batch: its number in the epoch, from 0, and the indices of its samples; None: the next ones of a stream."""

    seed: int
    epoch: int
    number: int
    indices: list[Any] | None


class End(NamedTuple):
    """The result of a task after the last batch of a stream."""


END = End()


def describe(task: FetchTask) -> str:
    """batch 3 of epoch 0 (samples 12, 13, 14, ...)"""
    text = f"batch {task.number} of epoch {task.epoch}"
    if not task.indices:
        return text
    first_indices = ", ".join(map(str, task.indices[:4]))
    return f"{text} (samples {first_indices}{', ...' if len(task.indices) > 4 else ''})"


class Fetch:
    """Loads the batches of tasks, as structures of NumPy arrays (of tensors where samples are tensors).

    An exception of a sample leaves with the sample's index in a note and in its attribute `sample_index`.
    """

    def __init__(
        self,
        dataset: Any,
        transform: Callable[[Any], Any] | None,
        collator: Callable[[list[Any]], Any] | None,
        batch_size: int,
        drop_last: bool,
    ) -> None:
        self.dataset, self.transform, self.collator = dataset, transform, collator
        self.batch_size, self.drop_last = batch_size, drop_last
        self.is_stream = isinstance(dataset, StreamDataset)
        self._samples: Iterator[Any] | None = None
        self._epoch = self._next = 0  # what self._samples gives next
        self.can_gather = transform is None and collator is None and isinstance(dataset, Dataset)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_samples": None}

    def __call__(self, task: FetchTask) -> Any:
        try:
            return self.finish(task, self.read(task) if self.is_stream else None)
        finally:
            leave()

    def read(self, task: FetchTask) -> list[Any]:
        """The samples of a stream's batch, without the transform; those of batches between are read and dropped."""
        context.reads_stream = True
        samples: list[Any] = []
        index = task.number * self.batch_size
        try:
            if self._samples is None or self._epoch != task.epoch or self._next > task.number:
                self._samples, self._epoch, self._next = self.dataset.iterate(task.epoch), task.epoch, 0
            skipped = (task.number - self._next) * self.batch_size
            for _ in itertools.islice(self._samples, skipped):
                pass
            enter(task.seed, task.epoch, index)
            for sample in itertools.islice(self._samples, self.batch_size):
                samples.append(sample)
                index += 1
                enter(task.seed, task.epoch, index)
        except Exception as error:
            self._samples = None
            raise note_sample(error, index, task) from None
        finally:
            context.reads_stream = False
        self._next = task.number + 1
        return [] if self.drop_last and len(samples) < self.batch_size else samples

    def finish(self, task: FetchTask, samples: list[Any] | None) -> Any:
        """The batch; samples: of a stream, from read()."""
        if samples is None:
            assert task.indices is not None
            if self.can_gather:
                enter(task.seed, task.epoch, task.number, BATCH)
                batch = self.dataset.gather(task.indices)
                if batch is not NotImplemented:
                    return batch
            samples = self._fetch(task, task.indices)
        elif not samples:
            return END
        else:
            first = task.number * self.batch_size
            if self.transform is not None:
                samples = self._transform_samples(task, samples, range(first, first + len(samples)))
        enter(task.seed, task.epoch, task.number, BATCH)
        return (self.collator or stack_samples)(samples)

    def _fetch(self, task: FetchTask, indices: list[Any]) -> list[Any]:
        samples = []
        dataset, transform, seed, epoch = self.dataset, self.transform, task.seed, task.epoch
        for index in indices:
            enter(seed, epoch, index if isinstance(index, int) else hash_of(index))
            try:
                sample = dataset[index]
                samples.append(sample if transform is None else transform(sample))
            except Exception as error:
                raise note_sample(error, index, task) from None
        return samples

    def _transform_samples(self, task: FetchTask, samples: list[Any], indices: range) -> list[Any]:
        assert self.transform is not None
        outputs = []
        for index, sample in zip(indices, samples, strict=True):
            enter(task.seed, task.epoch, index)
            try:
                outputs.append(self.transform(sample))
            except Exception as error:
                raise note_sample(error, index, task) from None
        return outputs

    def seed_process(self, task: FetchTask) -> None:
        """Seed what else draws in a worker process by (seed, epoch, number of the batch)."""
        seeds = np.random.SeedSequence([task.seed, task.epoch, task.number]).generate_state(2, np.uint64)
        python_random.seed(int(seeds[0]))
        np.random.seed(int(seeds[0]) % 2**32)
        random.seed(int(seeds[1]))


def hash_of(index: Any) -> int:
    """A number of 64 bits for an index that is none, the same in every process."""
    import zlib

    text = repr(index).encode()
    return zlib.crc32(text) << 32 | zlib.adler32(text)


def note_sample(error: Exception, index: Any, task: FetchTask) -> Exception:
    """The error with the sample's index in its attribute `sample_index` and a note.

    A StopIteration, which would end the loop over batches as if there were no more, becomes a RuntimeError.
    """
    if isinstance(error, StopIteration):
        error = RuntimeError("DataLoader: loading a sample raised StopIteration")
    if not hasattr(error, "sample_index"):
        error.add_note(f"while loading sample {index}, in batch {task.number} of epoch {task.epoch}")
        with contextlib.suppress(AttributeError):  # the note has it, too
            error.sample_index = index  # type: ignore[attr-defined]
    return error
