"""The sample that this thread makes: its random stream, and the memory of its batch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from weft import _core, random

__all__ = ["rng", "worker_info"]

Allocate = Callable[[tuple[int, ...], Any], np.ndarray]
SAMPLE, BATCH = 0, 1  # what an index counts: random streams of their own


class WorkerInfo(NamedTuple):
    """The worker that runs this code: its number, from 0, and how many workers its loader has."""

    number: int
    workers: int


class _Context(threading.local):
    sample: tuple[int, int, int, int] | None = None  # seed, epoch, index, SAMPLE or BATCH
    generator: np.random.Generator | None = None
    stream: Any = None
    allocate: Allocate | None = None
    worker: WorkerInfo | None = None
    reads_stream = False


context = _Context()


def enter(seed: int, epoch: int, index: int, kind: int = SAMPLE) -> None:
    """Draw from the stream of this sample (or batch) from now on, on this thread."""
    context.sample = (seed, epoch, index, kind)
    context.generator = context.stream = None


def leave() -> None:
    """Draw from weft.random again."""
    context.sample = context.generator = context.stream = None


def _sample() -> tuple[int, int, int, int]:
    return context.sample or (int(random.randint(0, 2**62)), 0, 0, SAMPLE)


def rng() -> np.random.Generator:
    """Random numbers of the sample that is being made: NumPy's Generator, seeded with (seed, epoch, index).

    For datasets, transforms and collators. What it draws does not depend on the number of workers, their mode, or
    where an epoch was resumed. In a collator the index is the batch's. Outside of a loader each call gives a new
    generator, seeded from weft.random.
    The generator is NumPy's Philox; each sample has 2**128 positions of its stream.

    >>> import weft as wf
    >>> import weft.data as data
    >>> class Noise(data.Dataset):
    ...     def __len__(self):
    ...         return 4
    ...     def __getitem__(self, k):
    ...         return data.rng().standard_normal()
    >>> one = data.DataLoader(Noise(), batch_size=4, seed=1)
    >>> two = data.DataLoader(Noise(), batch_size=4, seed=1, num_workers=2)
    >>> bool((next(iter(one)).numpy() == next(iter(two)).numpy()).all())
    True
    """
    if context.sample is not None and context.generator is not None:
        return context.generator
    seed, epoch, index, kind = _sample()
    key = np.array([seed % 2**64, epoch], np.uint64)
    counter = np.array([0, 0, index % 2**64, 2 + kind], np.uint64)
    generator = np.random.Generator(np.random.Philox(key=key, counter=counter))
    if context.sample is not None:
        context.generator = generator
    return generator


def stream() -> Any:
    """The random numbers of the sample for native transforms: a _core.SampleRandom."""
    if context.sample is not None and context.stream is not None:
        return context.stream
    seed, epoch, index, kind = _sample()
    sample_random = _core.SampleRandom(seed % 2**64, epoch, index % 2**64, kind)
    if context.sample is not None:
        context.stream = sample_random
    return sample_random


def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Uninitialised memory for the batch that is being made: in the worker's slot where it has one."""
    allocate = context.allocate
    return np.empty(shape, dtype) if allocate is None else allocate(shape, np.dtype(dtype))


def worker_info() -> WorkerInfo | None:
    """The number of the worker that runs this code, and how many there are; None outside of workers.

    None also while a stream is read: each worker gets batches of the whole stream, which therefore must not divide
    itself among them.

    >>> worker_info() is None
    True
    """
    return None if context.reads_stream else context.worker
