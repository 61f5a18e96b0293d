"""Which sample is being made on this thread: what its random numbers, and the memory of its batch, follow from."""

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


class _Here(threading.local):
    place: tuple[int, int, int, int] | None = None  # seed, epoch, index, SAMPLE or BATCH
    generator: np.random.Generator | None = None
    stream: Any = None
    allocate: Allocate | None = None
    worker: WorkerInfo | None = None


here = _Here()


def enter(seed: int, epoch: int, index: int, kind: int = SAMPLE) -> None:
    """Draw from the stream of this sample (or batch) from now on, on this thread."""
    here.place = (seed, epoch, index, kind)
    here.generator = here.stream = None


def leave() -> None:
    """Draw from weft.random again."""
    here.place = here.generator = here.stream = None


def _place() -> tuple[int, int, int, int]:
    return here.place or (int(random.randint(0, 2**62)), 0, 0, SAMPLE)


def rng() -> np.random.Generator:
    """Random numbers of the sample that is being made: NumPy's Generator, seeded with (seed, epoch, index).

    For datasets, transforms and collators. What it draws does not depend on the number of workers, their mode, or
    where an epoch was resumed. In a collator the index is the batch's. Outside of a loader each call gives a new
    generator, seeded from weft.random.
    By NumPy's Philox, of which each sample has 2**128 positions of its own.

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
    if here.place is not None and here.generator is not None:
        return here.generator
    seed, epoch, index, kind = _place()
    key = np.array([seed % 2**64, epoch], np.uint64)
    counter = np.array([0, 0, index % 2**64, 2 + kind], np.uint64)
    generator = np.random.Generator(np.random.Philox(key=key, counter=counter))
    if here.place is not None:
        here.generator = generator
    return generator


def stream() -> Any:
    """The same for native transforms: a _core.SampleRandom."""
    if here.place is not None and here.stream is not None:
        return here.stream
    seed, epoch, index, kind = _place()
    drawn = _core.SampleRandom(seed % 2**64, epoch, index % 2**64, kind)
    if here.place is not None:
        here.stream = drawn
    return drawn


def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Uninitialised memory for the batch that is being made: of the worker's slot where there is one."""
    allocate = here.allocate
    return np.empty(shape, dtype) if allocate is None else allocate(shape, np.dtype(dtype))


def worker_info() -> WorkerInfo | None:
    """The number of the worker that runs this code, and how many there are; None outside of workers.

    >>> worker_info() is None
    True
    """
    return here.worker
