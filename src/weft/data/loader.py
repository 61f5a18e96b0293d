"""The loader: batches of a dataset, in an order that can be resumed in the middle."""

from __future__ import annotations

import atexit
import itertools
import operator
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sized
from typing import Any

from weft.arrays.creation import asarray
from weft.arrays.tensor import Tensor
from weft.base.device import Device, as_device
from weft.base.errors import names_keywords
from weft.data.collator import as_tensors, map_leaves
from weft.data.dataset import Dataset, MapStream, StreamDataset
from weft.data.fetch import END, End, Fetch, FetchTask
from weft.data.pool import Options, Ticket
from weft.data.processes import ProcessPool
from weft.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, check_natural
from weft.data.threads import ThreadPool
from weft.random import get_state

__all__ = ["DataLoader"]

_pools: weakref.WeakSet[Any] = weakref.WeakSet()  # pools with running workers


def _close_at_exit() -> None:
    for pool in list(_pools):
        pool.close()


atexit.register(_close_at_exit)  # after the engine's own, so before it


class Statistics:
    """Counts of a loader: batches and samples that it delivered, seconds waited for them, seconds since it began.

    "Since it began" leaves out the time between epochs.
    """

    def __init__(self) -> None:
        self.batches = self.samples = 0
        self.waited_s = self.total_s = 0.0

    @property
    def waiting_share(self) -> float:
        """The share of the loop's time that was spent waiting for batches, 0 to 1."""
        return self.waited_s / self.total_s if self.total_s else 0.0


@names_keywords
class DataLoader:
    """Batches of a dataset; each iteration is one epoch, in the order that its sampler gives for that epoch.

    dataset: a Dataset, or anything with __getitem__ and __len__; or a StreamDataset, or any other iterable that begins
    again at each iter(), which has no samplers.
    batch_size: samples in a batch; the last batch is shorter, or left out with drop_last. shuffle: a RandomSampler with
    this seed, by default one drawn from weft.random. sampler: a Sampler in its place, or any iterable of indices; a
    BatchSampler decides about whole batches. transform: called with each sample. collator: makes a batch of a list of
    samples, by default collate. seed: also of what data.rng() and weft.data.transforms draw, which is a function of
    (seed, epoch, index).
    num_workers: 0, each batch is made here when it is requested. mode: "thread", where datasets and transforms release
    the GIL, as those of weft for images do; "process" for those that do not: a dataset, transform and collator that can
    be pickled. prefetch: batches that each worker makes ahead. persistent: workers stay between epochs. They end with
    the loader, or with close(), or the `with` block.
    timeout_s: the longest wait for a batch, None for any. on_error="restart": a worker that ended or hung is replaced
    and its batches are made again, up to 3 times each; "raise": WorkerError. An exception of a sample is always raised:
    with the worker's traceback and the sample's index in its text or notes.
    device: where the batches' tensors are, by default cpu:0; copies run in the engine's copy queue, ahead of the loop.
    Batches are tensors, or structures of tensors; each owns its memory, or shares that of the dataset's own batches.
    Raises ValueError for options that do not go together.

    >>> import numpy as np
    >>> from weft.data import ArrayDataset
    >>> dataset = ArrayDataset(np.arange(6))
    >>> loader = DataLoader(dataset, batch_size=2, shuffle=True, seed=0, transform=lambda x: 10 * x, num_workers=2)
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
        mode: str = "thread",
        prefetch: int = 2,
        timeout_s: float | None = None,
        persistent: bool = True,
        on_error: str = "raise",
        device: Device | str | None = None,
    ) -> None:
        if mode not in ("thread", "process"):
            raise ValueError(f"DataLoader: mode must be 'thread' or 'process', got {mode!r}")
        if operator.index(prefetch) < 1:
            raise ValueError(f"DataLoader: prefetch must be at least 1, got {prefetch}")
        if shuffle and sampler is not None:
            raise ValueError("DataLoader: shuffle and sampler both say the order; give one")
        if seed is not None and operator.index(seed) < 0:
            raise ValueError(f"DataLoader: seed must be at least 0, got {seed}")
        self.options = Options(num_workers, timeout_s, on_error)
        self.mode, self.prefetch, self.persistent = mode, operator.index(prefetch), bool(persistent)
        self.device = None if device is None else as_device(device)
        if not _has_indices(dataset) and isinstance(dataset, Iterable):
            dataset = dataset if isinstance(dataset, StreamDataset | Iterator) else MapStream(dataset)
        self.dataset, self.transform, self.collator = dataset, transform, collator
        self.batches = self._sampler(sampler, batch_size, shuffle, seed, drop_last)
        self.seed = self._choose_seed(seed)
        self._epoch = self._batch = (
            0  # of the current iteration, and the number of its batches that were delivered
        )
        self._is_running = (
            False  # whether the current iteration has started; otherwise the next one resumes it
        )
        self.stats = Statistics()
        self._local_fetch = self._fetch()  # makes batches without workers
        self._pool: ThreadPool | ProcessPool | None = None
        self._finalizer: Any = None

    def _choose_seed(self, seed: int | None) -> int:
        if seed is not None:
            return operator.index(seed)
        if isinstance(self.batches.sampler, RandomSampler):
            return self.batches.sampler.seed
        key, _, position = get_state()["cpu:0"]  # follows wf.random.seed, and takes no number of the stream
        return (key * 0x9E3779B97F4A7C15 + position) % 2**62

    def _fetch(self) -> Fetch:
        size, drop_last = self.batches.batch_size, self.batches.drop_last
        return Fetch(self.dataset, self.transform, self.collator, size, drop_last)

    def _sampler(
        self, sampler: Any, batch_size: int, shuffle: bool, seed: int | None, drop_last: bool
    ) -> BatchSampler:
        if isinstance(self.dataset, StreamDataset):
            if sampler is not None or shuffle:
                raise ValueError("DataLoader: a stream has its own order: no sampler, no shuffle")
            return BatchSampler([], batch_size, drop_last)
        if not _has_indices(self.dataset):
            type_name = type(self.dataset).__name__
            raise TypeError(f"DataLoader: takes a Dataset or a StreamDataset, got {type_name}")
        if isinstance(sampler, BatchSampler):
            if batch_size != 1 or drop_last:
                raise ValueError("DataLoader: a BatchSampler says batch_size and drop_last itself")
            return sampler
        if isinstance(sampler, Iterator):
            raise TypeError(
                f"DataLoader: the sampler is a {type(sampler).__name__}, which ends after one epoch: give a list of "
                "indices, or a Sampler"
            )
        if sampler is None:
            size = len(self.dataset)
            sampler = RandomSampler(size, seed) if shuffle else SequentialSampler(size)
        return BatchSampler(sampler, batch_size, drop_last)

    @property
    def epoch(self) -> int:
        """The number of the epoch that runs, or of the next one after the last batch was taken, from 0."""
        return self._epoch

    def __repr__(self) -> str:
        """What it loads, how much an epoch is, by whom, and where it is.

        >>> DataLoader([1, 2, 3], batch_size=2)
        DataLoader(list of 3 samples, batch_size=2, 2 batches, made by the loop; epoch 0, batch 0)
        """
        dataset, workers = self.dataset, self.options.workers
        what = repr(dataset)
        if not isinstance(dataset, Dataset | StreamDataset):
            what = f"{type(dataset).__name__} of {len(dataset)} samples"
        kind = {"thread": "threads", "process": "processes"}[self.mode]
        by = f"made by {workers} {kind}" if workers else "made by the loop"
        try:
            count = "" if isinstance(dataset, StreamDataset) else f"{len(self)} batches, "
        except TypeError:  # the sampler has no length
            count = ""
        return (
            f"DataLoader({what}, batch_size={self.batches.batch_size}, {count}{by}; "
            f"epoch {self._epoch}, batch {self._batch})"
        )

    def __len__(self) -> int:
        """Batches in an epoch. Raises TypeError for a stream."""
        if isinstance(self.dataset, StreamDataset):
            raise TypeError("DataLoader: a stream has no length")
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        if self._is_running:  # the loop left the iteration before in the middle of its epoch
            self._epoch, self._batch = self._epoch + 1, 0
        self._is_running = True
        epoch, number = self._epoch, self._batch
        batches = self._batches(self._tasks(epoch, number))
        stats, begin = self.stats, time.perf_counter()
        try:
            while True:
                start = time.perf_counter()
                batch, count = next(batches, (END, 0))
                if isinstance(batch, End):
                    break
                now = time.perf_counter()
                stats.waited_s += now - start
                stats.total_s += now - begin
                begin = now
                stats.batches += 1
                stats.samples += count
                number += 1
                if self._epoch == epoch:
                    self._batch = number  # before the yield: a state saved now goes on after this batch
                yield batch
                batch = None  # its slot is free for the next batch once the loop has dropped it
        finally:
            stats.total_s += time.perf_counter() - begin
            batches.close()
        if self._epoch == epoch:
            self._epoch, self._batch, self._is_running = epoch + 1, 0, False

    def _tasks(self, epoch: int, first: int) -> Iterator[FetchTask]:
        if isinstance(self.dataset, StreamDataset):
            for number in itertools.count(first):
                yield FetchTask(self.seed, epoch, number, None)
        for number, indices in enumerate(self.batches.order_from(epoch, first), first):
            yield FetchTask(self.seed, epoch, number, indices)

    def _count(self, task: FetchTask) -> int:
        return self.batches.batch_size if task.indices is None else len(task.indices)

    def _batches(self, tasks: Iterator[FetchTask]) -> Generator[tuple[Any, int], None, None]:
        """Each batch and its number of samples, made here or by workers."""
        if not self.options.workers:
            for task in tasks:
                yield self._to_device(self._local_fetch(task)), self._count(task)
            return
        pool = self._worker_pool()
        pending: deque[Ticket] = deque()  # requested
        on_device: deque[Any] = deque()  # finished; their copies to the device run
        try:
            for task in itertools.islice(tasks, self.prefetch * self.options.workers):
                pending.append(pool.submit(task))
            while pending or on_device:
                if self.device is not None:
                    pool.poll()
                    while pending and pending[0].done and len(on_device) < self.prefetch:
                        on_device.append(self._collect(pool, pending))
                batch, count = on_device.popleft() if on_device else self._collect(pool, pending)
                for task in itertools.islice(tasks, 1):
                    pending.append(pool.submit(task))
                yield batch, count
                del batch
        finally:
            for ticket in pending:
                pool.cancel(ticket)
            if not self.persistent:
                self.close()

    def _collect(self, pool: ThreadPool | ProcessPool, pending: deque[Ticket]) -> tuple[Any, int]:
        ticket = pending.popleft()
        return self._to_device(pool.wait(ticket)), self._count(ticket.task)

    def _worker_pool(self) -> ThreadPool | ProcessPool:
        pool = self._pool
        if pool is not None and pool.pid != os.getpid():  # a forked child starts its own workers
            pool = self._pool = None
        if pool is None:
            pool_type = ThreadPool if self.mode == "thread" else ProcessPool
            pool = self._pool = pool_type(self._fetch(), self.options)
            _pools.add(pool)
            self._finalizer = weakref.finalize(self, pool.close)
            self._finalizer.atexit = False
        return pool

    def close(self) -> None:
        """End the workers; the next iteration begins new ones. Batches that were delivered stay.

        >>> from weft.data import ArrayDataset
        >>> with DataLoader(ArrayDataset([1, 2]), num_workers=1) as loader:
        ...     [batch.item() for batch in loader]
        [1, 2]
        """
        if self._finalizer is not None:
            self._finalizer()
        self._pool = self._finalizer = None

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _to_device(self, batch: Any) -> Any:
        batch, device = as_tensors(batch), self.device
        return batch if device is None else map_leaves(batch, lambda x: asarray(x, device=device), Tensor)

    def state_dict(self) -> dict[str, Any]:
        """The position: the epoch, the number of its batches that were delivered, and what the order depends on.

        >>> from weft.data import ArrayDataset
        >>> loader = DataLoader(ArrayDataset([1, 2, 3, 4]), batch_size=2)
        >>> first = next(iter(loader))
        >>> loader.state_dict()["epoch"], loader.state_dict()["batch"]
        (0, 1)
        """
        return {
            "epoch": self._epoch,
            "batch": self._batch,
            "seed": self.seed,
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
        for name in ("epoch", "batch", "seed"):
            check_natural("DataLoader", name, state[name])
        if state["samples"] != self._samples:
            raise ValueError(
                f"load_state_dict: DataLoader: the dataset had {state['samples']} samples, here {self._samples}"
            )
        self.batches.check_state_dict(state["batches"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the next iteration where the state was saved, whatever had been prefetched.

        Transforms draw the same numbers from data.rng() as without the interruption. Of a stream the batches before are
        read again and left out. Raises ValueError if the dataset's size, the batch's size or the kind of sampler
        differs.
        """
        self.check_state_dict(state)
        self.batches.load_state_dict(state["batches"])
        self._epoch, self._batch, self._is_running = state["epoch"], state["batch"], False
        self.seed = state["seed"]


def _has_indices(dataset: Any) -> bool:
    return isinstance(dataset, Sized) and hasattr(dataset, "__getitem__")
