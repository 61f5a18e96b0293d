"""Worker threads: for datasets and transforms that release the GIL, as decoders and native transforms do.

A batch is an asynchronous operation of the engine's I/O queue. It lasts until a thread of the loader has made the
batch; these are threads of its own because functions of the engine may not wait for tensors, and transforms may.
Invariant: a ticket enters `waiting` before its operation is pushed, so every completion finds one. Tickets are taken
in the order of submission, under one lock, and a stream is read under that lock; so its samples are read in order.
"""

from __future__ import annotations

import _thread
import contextlib
import math
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import engine
from weft.arrays.creation import empty as empty_tensor
from weft.data.fetch import Fetch, FetchTask, describe
from weft.data.pool import MAX_ATTEMPTS, Options, Ticket, WorkerError
from weft.data.sample_context import WorkerInfo, context, leave

__all__ = ["ThreadPool"]

OWN_MEMORY_BYTES = 1 << 16  # smaller arrays come from malloc
CLOSING_S = 1.0  # for a thread that is in the middle of a batch
Complete = Callable[[Any], None]


def allocate(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Memory of weft's pool, which is used again: fresh memory would cost a page fault for every 4 KiB."""
    size_bytes = math.prod(shape) * dtype.itemsize
    if size_bytes < OWN_MEMORY_BYTES or dtype.hasobject:
        return np.empty(shape, dtype)
    memory: np.ndarray = empty_tensor((size_bytes,), "uint8").numpy()
    return memory.view(dtype).reshape(shape)


class _Shared:
    """What the threads reference: not the pool, which ends them when the loader is dropped."""

    def __init__(self, fetch: Fetch) -> None:
        self.fetch = fetch
        self.waiting: deque[Ticket] = deque()
        self.starts: queue.SimpleQueue[Complete | None] = queue.SimpleQueue()  # None: end
        self.take_lock = threading.Lock()  # a ticket; and reading a stream
        self.finish_lock = threading.Lock()  # a ticket's `done`; a worker's `complete`; `closed`
        self.is_closed = False

    def start(self, complete: Complete) -> None:
        """The engine has begun an operation: a thread makes the batch and completes it."""
        with self.finish_lock:
            if not self.is_closed:
                self.starts.put(complete)
                return
        complete(None)

    def end(self, threads: int) -> None:
        """Complete what no thread has begun, and end the threads."""
        with self.finish_lock:
            self.is_closed = True
            unstarted = []
            with contextlib.suppress(queue.Empty):
                while True:
                    unstarted.append(self.starts.get_nowait())
            for _ in range(threads):
                self.starts.put(None)
        for complete in unstarted:
            if complete is not None:
                complete(None)


class _Worker:
    def __init__(self, number: int, count: int, shared: _Shared) -> None:
        self.info = WorkerInfo(number, count)
        self.ticket: Ticket | None = None  # what it works on
        self.complete: Complete | None = None
        self.is_abandoned = False
        name = f"weft-data-{number}"
        self.thread = threading.Thread(target=_work, args=(self, shared), daemon=True, name=name)
        self.thread.start()


def _work(worker: _Worker, shared: _Shared) -> None:
    context.worker, context.allocate = worker.info, allocate
    while not worker.is_abandoned and (complete := shared.starts.get()) is not None:
        worker.complete = complete
        del complete
        _make(worker, shared)
        _complete(worker, shared)


def _complete(worker: _Worker, shared: _Shared) -> None:
    with shared.finish_lock:
        complete, worker.complete = worker.complete, None
    if complete is not None:
        complete(None)


def _make(worker: _Worker, shared: _Shared) -> None:
    samples = result = error = None
    with shared.take_lock:
        ticket = worker.ticket = shared.waiting.popleft()
        ticket.attempts += 1
        attempt = ticket.attempts
        if shared.fetch.is_stream:
            try:
                samples = shared.fetch.read(ticket.task)
            except BaseException as raised:
                error = raised
    if error is None and not ticket.cancelled:
        try:
            result = shared.fetch.finish(ticket.task, samples)
        except BaseException as raised:
            error = raised
    leave()
    if error is not None and hasattr(error, "add_note"):
        error.add_note(f"in worker thread {worker.info.number} of DataLoader")
    with shared.finish_lock:
        if ticket.attempts == attempt and not ticket.done:
            ticket.result, ticket.error, ticket.done = result, error, True
            ticket.lock.release()
        if not worker.is_abandoned:
            worker.ticket = None


class ThreadPool:
    """Threads that make batches. They begin with the first ticket."""

    def __init__(self, fetch: Fetch, options: Options) -> None:
        self.options, self.pid = options, os.getpid()
        self._shared = _Shared(fetch)
        self._workers: list[_Worker] = []

    def submit(self, task: FetchTask) -> Ticket:
        """Request a batch."""
        ticket = Ticket(task)
        ticket.lock = _thread.allocate_lock()
        ticket.lock.acquire()
        if self._shared.is_closed:
            self._shared = _Shared(self._shared.fetch)
        while len(self._workers) < self.options.workers:
            self._workers.append(_Worker(len(self._workers), self.options.workers, self._shared))
        self._shared.waiting.append(ticket)
        self._push(task)
        return ticket

    def _push(self, task: FetchTask) -> None:
        shared = self._shared
        engine.default_engine().push_async(
            lambda run_context, on_complete: shared.start(on_complete), name="load batch"
        )

    def wait(self, ticket: Ticket) -> Any:
        """The batch of a ticket. Raises what loading it raised, WorkerError if it takes longer than timeout_s."""
        timeout_s = self.options.timeout_s
        while not ticket.lock.acquire(True, 1.0 if timeout_s is None else timeout_s):
            if self._shared.is_closed:
                raise WorkerError("DataLoader: its workers were ended, by close() or an error")
            if timeout_s is not None:
                self._handle_timeout(ticket)
        ticket.lock.release()
        return ticket.take()

    def _handle_timeout(self, ticket: Ticket) -> None:
        """Take a late ticket from the thread that has it and push it again, or raise WorkerError."""
        shared = self._shared
        with shared.finish_lock:
            worker = next((each for each in self._workers if each.ticket is ticket), None)
            if ticket.done:
                return
            if worker is not None:
                worker.is_abandoned = True
        name = f"worker thread {worker.info.number}" if worker is not None else "no worker thread"
        text = f"DataLoader: {name} did not finish {describe(ticket.task)} within timeout_s={self.options.timeout_s}"
        if worker is None or self.options.on_error == "raise" or shared.fetch.is_stream:
            self.close()
            raise WorkerError(text if worker is not None else f"{text}: all work on other batches")
        _complete(worker, shared)
        if ticket.attempts >= MAX_ATTEMPTS:
            self.close()
            raise WorkerError(f"{text}, {ticket.attempts} times")
        number = worker.info.number
        shared.waiting.appendleft(ticket)
        self._push(ticket.task)
        self._workers[number] = _Worker(number, self.options.workers, shared)

    def poll(self) -> None:
        """See which batches are done; waits for none."""

    def cancel(self, ticket: Ticket) -> None:
        """The batch is not needed any more."""
        ticket.cancelled = True

    def close(self) -> None:
        """End the threads; those in the middle of a batch have CLOSING_S to finish it."""
        if self.pid != os.getpid():
            return
        workers, self._workers = self._workers, []
        shared = self._shared
        shared.end(len(workers))
        end = time.monotonic() + CLOSING_S
        for worker in workers:
            if worker.thread is not threading.current_thread():
                worker.thread.join(0 if worker.is_abandoned else max(0.0, end - time.monotonic()))
            if worker.thread.is_alive():  # its operation ends now, for those that wait for the engine
                worker.is_abandoned = True
                _complete(worker, shared)
