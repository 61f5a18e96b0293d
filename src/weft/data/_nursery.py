"""The process that forks a loader's worker processes, and the workers.

Its only thread imports what the workers need, then waits: for messages of its loader ("fork a worker"), and for ends of
workers, which it reports. It is a fork server of one loader, so that it ends with it:

- The loader's end of the socket closes, for whatever reason: all workers are killed, and it leaves.
- It is killed: the kernel kills the workers (PR_SET_PDEATHSIG).

Workers are forked from a process without other threads, and before anything of the user's was unpickled: no lock, file
position or random state is shared between them. What is pickled, arrays out of band, is in one piece of shared memory;
each worker maps it privately, so a dataset of 1 GB of arrays is in memory once, whatever the number of workers.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
import select
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["MESSAGE_BYTES", "ErrorReport", "main", "read_packed", "span_of"]

MESSAGE_BYTES = 1 << 16
ALIGNMENT = 64
PR_SET_PDEATHSIG = 1
PARENT_CHECK_MS = 2000
is_worker = False  # in the nursery, too: no loader may start processes here
Spans = list[tuple[int, int]]


def span_of(offset: int, size_bytes: int) -> tuple[int, int]:
    """(begin, end) of a piece of this size, aligned, at or after offset."""
    begin = -(-offset // ALIGNMENT) * ALIGNMENT
    return begin, begin + size_bytes


def read_packed(memory: np.ndarray, offset: int, size_bytes: int) -> Any:
    """Unpickle [offset, offset + size_bytes) of shared memory; arrays of the result are views of the memory."""
    spans, body = pickle.loads(memory[offset : offset + size_bytes].data)
    return pickle.loads(body, buffers=[memory[begin:end] for begin, end in spans])


class ErrorReport:
    """An exception of a worker: the exception itself where it can be pickled, its text, and the sample's index."""

    def __init__(self, error: BaseException) -> None:
        self.text = "".join(traceback.format_exception(error)).rstrip()[-16000:]
        self.kind = type(error).__name__
        self.sample_index = getattr(error, "sample_index", None)
        self.error: bytes | None = None
        # The second: of a class whose constructor takes other arguments than it gives to that of Exception.
        for content in (
            error,
            (type(error), error.args, dict(error.__dict__)),
            (type(error), (str(error),), {}),
        ):
            try:
                packed = pickle.dumps(content)
                pickle.loads(packed)
            except Exception:  # its text is what arrives at least
                continue
            if len(packed) < 16000:
                self.error = packed
                return

    def restored(self) -> BaseException | None:
        """An exception like that of the worker, or None if its class cannot be imported here."""
        try:
            content = None if self.error is None else pickle.loads(self.error)
            if isinstance(content, tuple):
                kind, args, attributes = content
                content = kind.__new__(kind, *args)
                content.args = args
                content.__dict__.update(attributes)
        except Exception:
            return None
        return content if isinstance(content, BaseException) else None


class Slot:
    """Shared memory of one batch, as a worker sees it. Grows; both sides map the file again then."""

    def __init__(self, file: int) -> None:
        self.file = file
        self.size_bytes = os.fstat(file).st_size
        self._map()

    def _map(self) -> None:
        self.memory = np.empty(0, np.uint8)
        if self.size_bytes:
            self.memory = np.frombuffer(mmap.mmap(self.file, self.size_bytes), np.uint8)
        self.address = self.memory.__array_interface__["data"][0]
        self.end = 0

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An array in the slot; outside of it while the slot is too small, which write() corrects."""
        size_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        begin, end = span_of(self.end, size_bytes)
        if end > self.size_bytes or dtype.hasobject or not size_bytes:
            return np.empty(shape, dtype)
        self.end = end
        return self.memory[begin:end].view(dtype).reshape(shape)

    def write(self, batch: Any) -> tuple[int, int]:
        """Pickle the batch into the slot, its arrays as they are. Returns where the pickle is: (offset, bytes)."""
        buffers: list[pickle.PickleBuffer] = []
        body = pickle.dumps(batch, protocol=5, buffer_callback=buffers.append)
        raw = [np.frombuffer(each.raw(), np.uint8) for each in buffers]
        spans: Spans = []
        used, copies = self.end, []
        for array in raw:
            offset = array.__array_interface__["data"][0] - self.address
            if array.size and offset >= 0 and offset + array.size <= self.size_bytes:
                spans.append((offset, offset + array.size))
            else:
                begin, used = span_of(used, array.size)
                spans.append((begin, used))
                copies.append((begin, array))
        packed = pickle.dumps((spans, body))
        offset, end = span_of(used, len(packed))
        if end > self.size_bytes:
            self._grow(end)
        for begin, array in copies:
            self.memory[begin : begin + array.size] = array
        self.memory[offset:end] = np.frombuffer(packed, np.uint8)
        return offset, len(packed)

    def _grow(self, size_bytes: int) -> None:
        new_size_bytes = -(-(size_bytes + size_bytes // 8) // (1 << 16)) << 16
        os.posix_fallocate(self.file, 0, new_size_bytes)  # an error here, not SIGBUS later
        self.size_bytes = new_size_bytes
        self._map()


class _Unpickler(pickle.Unpickler):
    """Finds what was defined in the program's main module, which was imported under another name."""

    def find_class(self, module: str, name: str) -> Any:
        is_main = module == "__main__" and "__mp_main__" in sys.modules
        return super().find_class("__mp_main__" if is_main else module, name)


def load_payload(file: int) -> Any:
    """Read what the loader packed for its workers; arrays are private views of the shared memory."""
    import io

    memory = np.frombuffer(mmap.mmap(file, 0, flags=mmap.MAP_PRIVATE), np.uint8)
    size_bytes = int(memory[:8].view(np.int64)[0])
    spans, body = pickle.loads(memory[8 : 8 + size_bytes].data)
    return _Unpickler(io.BytesIO(body), buffers=[memory[begin:end] for begin, end in spans]).load()


def pack_payload(value: Any) -> tuple[int, bool]:
    """(file descriptor of shared memory, whether the main module is needed) for load_payload()."""
    buffers: list[pickle.PickleBuffer] = []
    body = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    raw = [each.raw() for each in buffers]

    def header(first: int) -> tuple[bytes, Spans]:
        spans, end = [], first
        for each in raw:
            begin, end = span_of(end, each.nbytes)
            spans.append((begin, end))
        return pickle.dumps((spans, body)), spans

    packed, spans = header(0)
    packed, spans = header(16 + len(packed) + 9 * 2 * len(spans))  # larger offsets take a few bytes more
    file = os.memfd_create("weft-data", os.MFD_CLOEXEC)
    try:
        total = max([8 + len(packed), *(end for _, end in spans)])
        os.posix_fallocate(file, 0, total)
        # Written, not mapped: the memory of a large dataset would count twice here.
        pieces = [(0, memoryview(np.int64(len(packed)).tobytes() + packed))]
        pieces += [(begin, each) for (begin, _), each in zip(spans, raw, strict=True)]
        for begin, each in pieces:
            offset = 0
            while offset < each.nbytes:
                offset += os.pwrite(file, each[offset:], begin + offset)
    except BaseException:
        os.close(file)
        raise
    return file, b"__main__" in body


# -- the worker --


def work(link: socket.socket, payload: int, number: int, workers: int) -> None:
    """Serve a loader until it closes the link."""
    from weft.arrays.tensor import Tensor
    from weft.data.collator import map_leaves
    from weft.data.sample_context import WorkerInfo, context

    context.worker = WorkerInfo(number, workers)
    slots: dict[int, Slot] = {}
    try:
        fetch = load_payload(payload)
    except BaseException as error:
        link.send(pickle.dumps(("failed", None, ErrorReport(error))))
        return
    os.close(payload)
    link.send(pickle.dumps(("ready", None, None)))
    while True:
        message, files, _, _ = socket.recv_fds(link, MESSAGE_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        if not message:
            return
        ticket, which, task, task_bytes = pickle.loads(message)
        if files:
            slots[which] = Slot(files[0])
        slot = slots[which]
        if slot.size_bytes != os.fstat(slot.file).st_size:
            slot = slots[which] = Slot(slot.file)
        if task is None:
            task = pickle.loads(bytes(slot.memory[:task_bytes]))
        slot.end = 0
        context.allocate = slot.allocate
        batch = None
        try:
            fetch.seed_process(task)
            batch = map_leaves(fetch(task), lambda x: x.numpy(), Tensor)
            answer: tuple[str, Any, Any] = ("batch", ticket, (*slot.write(batch), slot.size_bytes))
        except BaseException as error:
            answer = ("error", ticket, ErrorReport(error))
        del batch
        link.send(pickle.dumps(answer))


# -- the nursery --


class Nursery:
    def __init__(self, link: socket.socket, payload: int) -> None:
        self.link, self.payload, self.parent = link, payload, os.getppid()
        self.workers: dict[int, tuple[int, int]] = {}  # pidfd -> number, pid
        self.poll = select.poll()
        self.poll.register(link, select.POLLIN)

    def run(self) -> None:
        while os.getppid() == self.parent:  # a child of the loader's process may hold the connection open
            for file, _ in self.poll.poll(PARENT_CHECK_MS):
                if file != self.link.fileno():
                    self.report_exit(file)
                elif not self.handle_message():
                    return

    def handle_message(self) -> bool:
        message, files, _, _ = socket.recv_fds(self.link, MESSAGE_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        if not message:
            return False
        what, *values = pickle.loads(message)
        if what == "fork":
            self.fork(files[0], *values)
        elif tuple(values) in self.workers.values():  # "kill", one that was not reaped yet
            os.kill(values[1], signal.SIGKILL)
        return True

    def fork(self, file: int, number: int, count: int) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
                self.link.close()
                for pidfd in self.workers:
                    os.close(pidfd)
                if os.getppid() == parent:
                    with socket.socket(fileno=file) as link:
                        work(link, self.payload, number, count)
                status = 0
            except (BrokenPipeError, ConnectionResetError):
                status = 0  # the loader has gone
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(file)
        pidfd = os.pidfd_open(pid)
        self.workers[pidfd] = number, pid
        self.poll.register(pidfd, select.POLLIN)
        self.link.send(pickle.dumps(("forked", number, pid)))

    def report_exit(self, pidfd: int) -> None:
        number, pid = self.workers.pop(pidfd)
        self.poll.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        self.link.send(pickle.dumps(("ended", number, (pid, os.waitstatus_to_exitcode(status)))))

    def kill_all(self) -> None:
        for _, pid in self.workers.values():
            os.kill(pid, signal.SIGKILL)
        for _, pid in self.workers.values():
            os.waitpid(pid, 0)


def main(arguments: Sequence[str]) -> None:
    """Serve the loader at the other end of the socket arguments[0]."""
    global is_worker
    is_worker = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the loader's to handle
    link, payload = socket.socket(fileno=int(arguments[0])), int(arguments[1])
    nursery = Nursery(link, payload)
    try:
        preparation = pickle.loads(link.recv(1 << 20))
        try:
            if preparation:
                from multiprocessing import spawn

                spawn.prepare(preparation)
        except BaseException as error:
            link.send(pickle.dumps(("failed", None, ErrorReport(error))))
            return
        link.send(pickle.dumps(("prepared", None, os.getpid())))
        nursery.run()
    except (BrokenPipeError, ConnectionResetError, EOFError):
        pass  # the loader has gone
    finally:
        nursery.kill_all()
