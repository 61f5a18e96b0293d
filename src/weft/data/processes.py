"""Worker processes: for datasets and transforms that hold the GIL.

Two kinds of connections, of datagrams, so that a process that is killed leaves no half messages: to the nursery
(_nursery.py), which forks workers and reports their ends, and to each worker. Batches travel in slots: files in memory
without a name, so that nothing can be left behind. A slot is a worker's from the message that names it until the answer
has come; then the loader's, until the last array of the batch is dropped, or at once, if the batch is copied because
the loop holds many; then it is free for the same worker's next task. When a worker has ended, what it answered is read
first; what it has not answered is given to its successor.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import pickle
import resource
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from typing import Any

import numpy as np

from weft.data import _nursery
from weft.data.fetch import Fetch, FetchTask, describe
from weft.data.pool import MAX_ATTEMPTS, Options, Ticket, WorkerError

__all__ = ["ProcessPool"]

INLINE_BYTES = 1 << 13  # of a task; a longer one goes through the slot
ENDING_S = 5.0  # for the nursery, after its loader has closed the connection
REPORT_S = 1.0  # for its report about a worker whose connection is closed

PROGRAM = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from weft.data._nursery import main; main(sys.argv[2:])"
)


class _Slot:
    """Shared memory of one batch, as the loader sees it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.file = os.memfd_create("weft-batch", os.MFD_CLOEXEC)
        self.map: mmap.mmap | None = None
        self.watch: Any = None  # the weak reference to the array that holds the memory
        self.holder: Any = None  # the connection of the worker that has the file

    def write(self, content: bytes) -> None:
        if os.fstat(self.file).st_size < len(content):
            os.posix_fallocate(self.file, 0, len(content))
        os.pwrite(self.file, content, 0)

    def copy(self, size_bytes: int) -> np.ndarray:
        """The content of the slot in memory of its own."""
        return np.frombuffer(bytearray(os.pread(self.file, size_bytes, 0)), np.uint8)

    def memory(self, size_bytes: int, free: deque[_Slot], held: set[_Slot]) -> np.ndarray:
        """The slot as an array; when this array and its views are dropped it goes from `held` to `free`."""
        if self.map is None or len(self.map) != size_bytes:
            self.map = mmap.mmap(self.file, size_bytes)
        array: np.ndarray = np.frombuffer(self.map, np.uint8)

        def dropped(_: object) -> None:
            # Runs at any allocation of any thread, so it takes no lock: append is atomic.
            self.watch = None
            held.discard(self)
            free.append(self)

        held.add(self)
        self.watch = weakref.ref(array, dropped)
        return array

    def close(self) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file, self.map = -1, None

    __del__ = close


class _Worker:
    def __init__(self, number: int) -> None:
        self.number = number
        self.pid: int | None = None
        self.link: socket.socket | None = None
        self.tickets: dict[int, tuple[Ticket, _Slot]] = {}  # in the order in which it works
        self.free: deque[_Slot] = deque()
        self.is_ready = False
        self.failures = 0  # ends before it was ready
        self.exit_status: int | None = None

    def __str__(self) -> str:
        return f"worker {self.number} (process {self.pid})"


class ProcessPool:
    """Processes that make batches. They begin with the first ticket. One thread at a time may call."""

    def __init__(self, fetch: Fetch, options: Options) -> None:
        self.options, self.pid = options, os.getpid()
        self._fetch = fetch
        self._workers: list[_Worker] = []
        self._nursery: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._selector: selectors.BaseSelector | None = None
        self._payload = -1
        self._next_ticket = self._next_slot = self._nursery_failures = 0
        self._lock = threading.RLock()
        # Slots of batches that the loop holds. Each has two file descriptors: beyond a share of what the process may
        # open a batch is copied to memory of its own.
        self._held: set[_Slot] = set()
        self._max_held = max(4, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8)

    # -- beginning and end --

    def _start(self) -> None:
        if _nursery.is_worker:
            raise RuntimeError(
                "DataLoader: worker processes cannot start worker processes. If this program's main module makes a "
                "loader, put that under: if __name__ == '__main__':"
            )
        self._selector = selectors.DefaultSelector()
        try:
            self._payload, needs_main = _nursery.pack_payload(self._fetch)
        except Exception as error:
            self.close()
            raise TypeError(
                f"DataLoader: {error}: worker processes need a dataset, transform and collator that can be pickled; "
                "define them at the top of a module, or use mode='thread'"
            ) from error
        try:
            self._start_nursery(needs_main)
        except BaseException:
            self.close()
            raise

    def _start_nursery(self, needs_main: bool) -> None:
        preparation: dict[str, Any] = {}
        if needs_main:
            from multiprocessing import spawn

            available = spawn.get_preparation_data("weft.data")
            keys = ("sys_path", "sys_argv", "orig_dir", "dir", "init_main_from_name", "init_main_from_path")
            preparation = {key: available[key] for key in keys if key in available}
        local, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = local
        path = [each or os.getcwd() for each in sys.path]
        environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **os.environ}
        with remote:
            self._nursery = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, json.dumps(path), str(remote.fileno()), str(self._payload)],
                pass_fds=[remote.fileno(), self._payload],
                stdin=subprocess.DEVNULL,
                env=environment,
            )
        answer = b""
        with contextlib.suppress(ConnectionError):  # it has ended
            local.send(pickle.dumps(preparation))
            answer = local.recv(_nursery.MESSAGE_BYTES)
        if not answer:
            local.close()
            text = f"DataLoader: the process that forks workers {_exit_text(self._nursery.wait())} before it was ready"
            self._nursery_failures += 1
            if self.options.on_error == "raise":
                raise WorkerError(text)
            if self._nursery_failures >= MAX_ATTEMPTS:
                raise WorkerError(f"{text}, {self._nursery_failures} times")
            self._start_nursery(needs_main)
            return
        kind, _, value = pickle.loads(answer)
        if kind == "failed":
            raise _as_exception(value, "the process that forks workers", "importing the main module")
        assert self._selector is not None
        self._selector.register(local, selectors.EVENT_READ, None)
        for number in range(self.options.workers):
            self._workers.append(_Worker(number))
            self._fork(self._workers[-1])

    def _fork(self, worker: _Worker) -> None:
        assert self._control is not None
        assert self._selector is not None
        local, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        worker.link, worker.is_ready, worker.pid, worker.exit_status = local, False, None, None
        self._selector.register(local, selectors.EVENT_READ, worker)
        with remote:
            message = pickle.dumps(("fork", worker.number, self.options.workers))
            with contextlib.suppress(
                ConnectionError
            ):  # the nursery has ended, which the selector reports next
                socket.send_fds(self._control, [message], [remote.fileno()])

    def close(self) -> None:
        """End all processes. Batches that were delivered stay."""
        if self.pid != os.getpid():  # a forked child: all of this is its parent's
            return
        with self._lock:
            for worker in self._workers:
                if worker.link is not None:
                    worker.link.close()
                for _, slot in worker.tickets.values():
                    slot.close()
                for slot in worker.free:
                    slot.close()
            if self._control is not None:
                self._control.close()
            if self._nursery is not None:
                try:
                    self._nursery.wait(ENDING_S)
                except subprocess.TimeoutExpired:
                    self._nursery.kill()
                    self._nursery.wait()
            if self._selector is not None:
                self._selector.close()
            if self._payload >= 0:
                os.close(self._payload)
            self._workers, self._control, self._nursery, self._selector = [], None, None, None
            self._payload = -1

    # -- batches --

    def submit(self, task: FetchTask) -> Ticket:
        """Request a batch, from the worker with the fewest tickets."""
        with self._lock:
            if self._nursery is None:
                self._start()
            ticket = Ticket(task)
            self._assign(ticket)
            return ticket

    def _assign(self, ticket: Ticket) -> None:
        worker = min(self._workers, key=lambda each: len(each.tickets))
        slot = self._slot(worker)
        number, self._next_ticket = self._next_ticket, self._next_ticket + 1
        worker.tickets[number] = ticket, slot
        self._send(worker, number, ticket, slot)

    def _slot(self, worker: _Worker) -> _Slot:
        free = worker.free
        while len(free) > len(worker.tickets) + 2:
            free.popleft().close()  # the loop held many batches, and has dropped them
        if free:
            return free.pop()
        self._next_slot += 1
        return _Slot(self._next_slot)

    def _send(self, worker: _Worker, number: int, ticket: Ticket, slot: _Slot) -> None:
        assert worker.link is not None
        task: FetchTask | None = ticket.task
        content = pickle.dumps(task)
        size_bytes = 0
        if len(content) > INLINE_BYTES:
            slot.write(content)
            task, size_bytes = None, len(content)
        message = pickle.dumps((number, slot.number, task, size_bytes))
        try:
            if slot.holder is worker.link:
                worker.link.send(message)
            else:
                socket.send_fds(worker.link, [message], [slot.file])
                slot.holder = worker.link
        except (BrokenPipeError, ConnectionResetError):
            pass  # the worker has ended, which the selector reports next

    def wait(self, ticket: Ticket) -> Any:
        """The batch of a ticket. Raises what loading it raised, WorkerError for a worker that ended or hangs."""
        with self._lock:
            begin = time.monotonic()
            try:
                while not ticket.done:
                    if self._selector is None:
                        raise WorkerError("DataLoader: its workers were ended, by close() or an error")
                    left_s = None
                    if self.options.timeout_s is not None:
                        left_s = begin + self.options.timeout_s - time.monotonic()
                        if left_s <= 0:
                            self._handle_timeout(ticket)
                            begin = time.monotonic()
                            continue
                    self._receive(left_s)
                return ticket.take()
            except BaseException:  # also Ctrl-C, after which messages may be half handled
                self.close()
                raise

    def poll(self) -> None:
        """See which batches are done; waits for none."""
        with self._lock:
            if self._selector is not None:
                self._receive(0)

    def cancel(self, ticket: Ticket) -> None:
        """The batch is not needed any more: its slot is free as soon as the worker has answered."""
        ticket.cancelled, ticket.result, ticket.error = True, None, None

    def _receive(self, timeout_s: float | None) -> None:
        assert self._selector is not None
        selector = self._selector
        for key, _ in selector.select(timeout_s):
            if self._selector is not selector:  # all have begun again
                return
            if key.data is None:
                self._receive_from_nursery()
            elif key.fileobj is key.data.link:
                self._receive_from(key.data)

    def _messages(self, link: socket.socket) -> tuple[list[Any], bool]:
        """The messages that have arrived, and whether the other end is closed."""
        messages: list[Any] = []
        while True:
            try:
                message = link.recv(_nursery.MESSAGE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return messages, False
            except ConnectionResetError:
                return messages, True
            if not message:
                return messages, True
            messages.append(pickle.loads(message))

    def _receive_from(self, worker: _Worker) -> None:
        assert worker.link is not None
        messages, closed = self._messages(worker.link)
        for kind, number, value in messages:
            if kind == "ready":
                worker.is_ready, worker.failures = True, 0
            elif kind == "failed":
                raise _as_exception(value, str(worker), "unpickling what it loads from")
            else:
                self._complete(worker, *worker.tickets.pop(number), kind, value)
        if closed:
            self._handle_exit(worker)

    def _complete(self, worker: _Worker, ticket: Ticket, slot: _Slot, kind: str, value: Any) -> None:
        if ticket.cancelled:
            worker.free.append(slot)
        elif kind == "batch":
            self._nursery_failures = 0
            offset, packed_bytes, size_bytes = value
            if len(self._held) < self._max_held:
                memory = slot.memory(size_bytes, worker.free, self._held)
            else:
                memory = slot.copy(size_bytes)
                worker.free.append(slot)
            ticket.result = _nursery.read_packed(memory, offset, packed_bytes)
        else:
            worker.free.append(slot)
            ticket.error = _as_exception(value, str(worker), f"loading {describe(ticket.task)}")
        ticket.done = True

    def _receive_from_nursery(self) -> None:
        assert self._control is not None
        messages, closed = self._messages(self._control)
        for kind, number, value in messages:
            if kind == "forked":
                self._workers[number].pid = value
            else:
                pid, status = value
                worker = self._workers[number]
                if worker.pid == pid and worker.link is not None:
                    worker.exit_status = status
                    # What it answered before; its end, if nothing else holds the connection.
                    self._receive_from(worker)
                    if worker.exit_status is not None and worker.pid == pid:
                        self._handle_exit(worker)
        if closed:
            self._restart_nursery()

    def _restart_nursery(self) -> None:
        """The workers ended with the nursery: start it again, and assign the unanswered tickets again."""
        assert self._nursery is not None
        text = f"DataLoader: the process that forks workers {_exit_text(self._nursery.wait())}"
        if self.options.on_error == "raise":
            raise WorkerError(text)
        self._nursery_failures += 1
        if self._nursery_failures >= MAX_ATTEMPTS:
            raise WorkerError(f"{text}, {self._nursery_failures} times")
        tickets = []
        for worker in self._workers:
            if worker.link is not None:
                self._drain(worker)
            tickets += [ticket for ticket, _ in worker.tickets.values() if not ticket.cancelled]
        self.close()
        self._start()
        for ticket in sorted(tickets, key=lambda each: each.task.number):
            self._assign(ticket)

    def _drain(self, worker: _Worker) -> None:
        assert worker.link is not None
        for kind, number, value in self._messages(worker.link)[0]:
            if kind in ("batch", "error"):
                self._complete(worker, *worker.tickets.pop(number), kind, value)

    def _handle_exit(self, worker: _Worker) -> None:
        """A worker has ended, and all its answers are read: raise an error that names it, or replace it."""
        assert worker.link is not None
        assert self._selector is not None
        link, worker.link = worker.link, None
        self._selector.unregister(link)
        link.close()
        if worker.exit_status is None and self._await_report(worker):
            self._restart_nursery()
            return
        head = next(iter(worker.tickets.values()), None)
        what = f"while loading {describe(head[0].task)}" if head else "between batches"
        if not worker.is_ready:
            what = "before it was ready"
        text = f"DataLoader: {worker} {_exit_text(worker.exit_status)} {what}"
        if self.options.on_error == "raise":
            raise WorkerError(text)
        if not worker.is_ready:
            worker.failures += 1
            if worker.failures >= MAX_ATTEMPTS:
                raise WorkerError(f"{text}, {worker.failures} times")
        elif head is not None:
            head[0].attempts += 1
            if head[0].attempts >= MAX_ATTEMPTS:
                raise WorkerError(f"{text}, and so did {MAX_ATTEMPTS - 1} workers before it")
        self._replace(worker)

    def _replace(self, worker: _Worker) -> None:
        tickets, worker.tickets = worker.tickets, {}
        self._fork(worker)
        for number, (ticket, slot) in tickets.items():
            if ticket.cancelled:
                worker.free.append(slot)
            else:
                worker.tickets[number] = ticket, slot
                self._send(worker, number, ticket, slot)

    def _await_report(self, worker: _Worker) -> bool:
        """The nursery's report of how it ended, which comes at about the same time. True: the nursery has ended."""
        assert self._control is not None
        end = time.monotonic() + REPORT_S
        others = []
        waiting = selectors.DefaultSelector()
        waiting.register(self._control, selectors.EVENT_READ)
        with waiting:
            while worker.exit_status is None and (left_s := end - time.monotonic()) > 0:
                if not waiting.select(left_s):
                    break
                messages, closed = self._messages(self._control)
                for kind, number, value in messages:
                    if kind == "forked":
                        self._workers[number].pid = value
                    elif number == worker.number and worker.pid == value[0]:
                        worker.exit_status = value[1]
                    else:
                        others.append((number, value))
                if closed:
                    return True
        for number, (pid, status) in others:
            if self._workers[number].pid == pid:
                self._workers[number].exit_status = status  # its connection reports the rest
        return False

    def _handle_timeout(self, ticket: Ticket) -> None:
        """The worker that has the ticket did not answer in time."""
        worker = next(each for each in self._workers if any(t is ticket for t, _ in each.tickets.values()))
        head = next(iter(worker.tickets.values()))[0]
        what = f"finish {describe(head.task)}" if worker.is_ready else "start"
        text = f"DataLoader: {worker} did not {what} within timeout_s={self.options.timeout_s}"
        if self.options.on_error == "raise":
            raise WorkerError(text)
        if worker.pid is None:
            self._receive(ENDING_S)
        if worker.pid is None:
            raise WorkerError(f"{text}, and neither did the process that forks workers")
        assert self._control is not None
        pid = worker.pid
        self._control.send(pickle.dumps(("kill", worker.number, pid)))
        end = time.monotonic() + ENDING_S
        while worker.pid == pid and not ticket.done:
            if time.monotonic() > end:
                raise WorkerError(f"{text}, nor end when it was killed")
            self._receive(end - time.monotonic())


def _exit_text(status: int | None) -> str:
    if status is None:
        return "ended"
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def _as_exception(report: Any, worker: str, doing: str) -> Exception:
    """An exception like the worker's own: of its type too, if that can be; its text has the worker's traceback."""
    where = f", sample {report.sample_index}" if report.sample_index is not None else ""
    text = f"DataLoader: {worker} raised {report.kind} while {doing}{where}:\n{report.text}"
    original = report.restored()
    error: Exception = WorkerError(text)
    if isinstance(original, Exception) and not isinstance(original, WorkerError):
        try:
            kind: Any = type(
                report.kind, (_WorkerException, type(original)), {"__module__": type(original).__module__}
            )
            error = type(original).__new__(kind, text)
            error.args = (text,)
            error.__cause__ = original
        except TypeError:  # an exception class that does not allow it
            error = WorkerError(text)
    if isinstance(original, KeyboardInterrupt | SystemExit):
        error.__cause__ = original
    error.sample_index = report.sample_index  # type: ignore[attr-defined]
    return error


class _WorkerException(WorkerError):
    __slots__ = ()

    def __init__(self, *_: object) -> None:
        pass

    def __str__(self) -> str:
        return str(self.args[0])
