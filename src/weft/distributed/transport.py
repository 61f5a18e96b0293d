"""Exchanges over MPI: each on NumPy arrays, after the ranks have agreed.

They are iterators that give each request of MPI that has to end before they can continue, so that another thread can
continue them.

Arrays that are only moved travel as bytes, so every type can. Arrays that are added travel as MPI's types; 16-bit
floats, which MPI does not have, are added in float32.
"""

from __future__ import annotations

import functools
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from weft.distributed.errors import DistributedError

__all__ = [
    "AllGather",
    "AllReduce",
    "AllToAll",
    "Broadcast",
    "Collective",
    "Receive",
    "ReduceScatter",
    "Send",
    "Waiting",
    "pack_text",
    "pieces",
    "run_in_pieces",
    "unpack_text",
    "wait_for",
]

HEADER_BYTES = 256
PART_BYTES = 256 << 10  # what each rank adds up of a piece,
COMPUTING_BYTES = 8 << 20  # and where it computes meanwhile: it may come late to each piece
MAX_IN_FLIGHT = 2  # pieces that MPI moves at a time
SLEEP_S = 20e-6  # between polls on a crowded host, while other threads need the core
LATE_S = 50e-6  # a thread that gave way for so long has not been alone on its core,
BUSY_S = 0.05  # and is taken not to be for so long


class Waiting:
    """Waiting for MPI. crowded: the ranks of this host have fewer than two cores each."""

    crowded = False
    busy_until = 0.0  # other threads need this thread's core

    @classmethod
    def pause(cls) -> None:
        """Yield the core to other threads before MPI is polled again, or sleep, if there have been any.

        Giving way costs nothing on a core of one's own. On one that another thread computes on it lasts as long as the
        system lets that run, milliseconds; from a sleep a thread comes back at once.
        """
        begin = time.perf_counter()
        if begin < cls.busy_until or not hasattr(os, "sched_yield"):
            time.sleep(SLEEP_S)
            return
        os.sched_yield()
        if time.perf_counter() - begin > LATE_S:
            cls.busy_until = begin + BUSY_S


def wait_for(request: Any) -> None:
    """Wait for MPI to end an exchange that all ranks have begun.

    MPI waits by polling, without the GIL. Where this thread may share a core with what computes, it pauses between
    polls: else it takes the time that the other rank's half of the exchange needs.
    """
    if not Waiting.crowded:
        request.Wait()
        return
    while not request.Test():
        Waiting.pause()


def _bytes(x: Any) -> Any:
    """A dense array as bytes."""
    return np.ascontiguousarray(x).reshape(-1).view("uint8")


@functools.cache
def _mpi_op(name: str, dtype: Any = None) -> Any:
    """MPI's operator; the sum of bools is their logical or, as in NumPy."""
    from mpi4py import MPI

    if name == "sum" and dtype == np.dtype("bool"):
        return MPI.LOR
    return {"sum": MPI.SUM, "mean": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN, "prod": MPI.PROD}[name]


def wide(x: Any) -> Any:
    """x, or in float32 if it is a 16-bit float."""
    return x.astype("float32") if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x


def pieces(size: int, itemsize: int, ranks: int, part_bytes: int) -> Iterator[slice]:
    """Slices of the pieces in which elements are reduced: each stays in the caches of the cores.

    Each rank adds up its part of a piece, and pieces grow with their number, so that messages stay as long.

    >>> list(pieces(300_000, 4, 2, 256 << 10))
    [slice(0, 131072, None), slice(131072, 262144, None), slice(262144, 300000, None)]
    >>> list(pieces(0, 4, 2, 256 << 10))
    [slice(0, 0, None)]
    """
    step = max(1, part_bytes * ranks // itemsize)
    for begin in range(0, max(size, 1), step):
        yield slice(begin, min(begin + step, size))


def run_in_pieces(requests: Iterable[tuple[Any, Callable[[], None]]]) -> Iterator[Any]:
    """An exchange of several requests: (request, what to do when it has ended). A few are under way at a time.

    So MPI moves one piece while the next one is made, or something is done with the one before, which the cache holds.
    """
    under_way: deque[tuple[Any, Callable[[], None]]] = deque()
    for each in requests:
        under_way.append(each)
        if len(under_way) == MAX_IN_FLIGHT:
            request, then = under_way.popleft()
            yield request
            then()
    for request, then in under_way:
        yield request
        then()


@dataclass(frozen=True)
class Collective:
    """An exchange of all ranks: `run` gives each request of MPI that has to end before it goes on.

    Its fields are numbers and texts, so that a rank that has left its loop (see absence.py) can make the same one and
    take part with arrays that `neutral` has filled. needs_all: why no rank may be absent; empty: it may.
    contributors: the number of ranks that are not absent.
    """

    kinds: ClassVar[dict[str, type[Collective]]] = {}

    needs_all: str = ""

    def __init_subclass__(cls) -> None:
        Collective.kinds[cls.__name__] = cls

    def run(
        self, comm: Any, inputs: Sequence[Any], outputs: Sequence[Any], contributors: int
    ) -> Iterator[Any]:
        raise NotImplementedError

    def neutral(self, x: Any) -> None:
        """Fill an input so that it changes no other rank's result, where that is possible."""
        x[...] = 0

    def why_not_without(self, absent: Collection[int]) -> str:
        """Why these ranks may not be absent; empty: they may."""
        return self.needs_all


@dataclass(frozen=True)
class HostReduction(Collective):
    """Elements of all ranks are reduced to one; "mean" is over those that contribute.

    computing: this rank computes meanwhile.
    """

    op: str = "sum"
    computing: bool = False

    @property
    def part_bytes(self) -> int:
        """What each rank reduces of a piece."""
        return COMPUTING_BYTES if self.computing else PART_BYTES

    def neutral(self, x: Any) -> None:
        if self.op == "prod":
            x[...] = 1
        elif self.op in ("sum", "mean"):
            x[...] = 0
        elif x.dtype.kind in "iu":
            limits = np.iinfo(x.dtype)
            x[...] = limits.min if self.op == "max" else limits.max
        else:
            x[...] = -np.inf if self.op == "max" else np.inf


@dataclass(frozen=True)
class AllReduce(HostReduction):
    """One array, in pieces. A second output is written as well: each piece while the cache holds it."""

    def run(
        self, comm: Any, inputs: Sequence[Any], outputs: Sequence[Any], contributors: int
    ) -> Iterator[Any]:
        (x,), (y, *outs) = inputs, outputs
        dense = np.ascontiguousarray(x)
        if x.nbytes <= self.part_bytes:  # one piece, with as little of Python as there can be
            request, target = self._begin(comm, dense, y)
            yield request
            self._end(target, y, contributors)
            for out in outs:
                out[...] = y
            return
        dense, flat = dense.reshape(-1), y.reshape(-1)  # results are dense
        by_pieces = [
            out.reshape(-1) for out in outs if out.flags.c_contiguous and _can_copy_by_pieces(out, x)
        ]

        def requests() -> Iterator[tuple[Any, Callable[[], None]]]:
            for piece in pieces(flat.size, flat.itemsize, comm.size, self.part_bytes):
                request, target = self._begin(comm, dense[piece], flat[piece])

                def then(target: Any = target, piece: slice = piece) -> None:
                    self._end(target, flat[piece], contributors)
                    for out in by_pieces:
                        out[piece] = flat[piece]

                yield request, then

        yield from run_in_pieces(requests())
        if not by_pieces:
            for out in outs:
                out[...] = y

    def _begin(self, comm: Any, x: Any, y: Any) -> tuple[Any, Any]:
        """A request of MPI, and the array that it writes: y, unless that is of another type than MPI adds."""
        x = wide(x)
        target = y if x.dtype == y.dtype else np.empty(x.shape, x.dtype)
        return comm.Iallreduce(x, target, _mpi_op(self.op, x.dtype)), target

    def _end(self, target: Any, y: Any, contributors: int) -> None:
        if self.op == "mean":
            target *= target.dtype.type(1 / contributors)
        if target.dtype != y.dtype:
            y[...] = target


def _can_copy_by_pieces(x: Any, y: Any) -> bool:
    """Whether a piece of x can be written without changing another piece of y."""
    if not np.may_share_memory(x, y):
        return True
    return bool(x.ctypes.data == y.ctypes.data and x.strides == y.strides)


@dataclass(frozen=True)
class Broadcast(Collective):
    """From root."""

    root: int = 0

    def why_not_without(self, absent: Collection[int]) -> str:
        return self.needs_all or (f"the array is that of rank {self.root}" if self.root in absent else "")

    def run(
        self, comm: Any, inputs: Sequence[Any], outputs: Sequence[Any], contributors: int
    ) -> Iterator[Any]:
        (x,), (y,) = inputs, outputs
        if comm.rank == self.root:
            y[...] = x
        yield comm.Ibcast(y.reshape(-1).view("uint8"), self.root)


@dataclass(frozen=True)
class AllGather(Collective):
    """Behind each other."""

    def run(
        self, comm: Any, inputs: Sequence[Any], outputs: Sequence[Any], contributors: int
    ) -> Iterator[Any]:
        (x,), (y,) = inputs, outputs
        yield comm.Iallgather(_bytes(x), y.reshape(-1).view("uint8"))


@dataclass(frozen=True)
class ReduceScatter(Collective):
    """The sum, each rank its part."""

    def run(
        self, comm: Any, inputs: Sequence[Any], outputs: Sequence[Any], contributors: int
    ) -> Iterator[Any]:
        (x,), (y,) = inputs, outputs
        source = np.ascontiguousarray(wide(x))
        target = y if source.dtype == y.dtype else np.empty(y.shape, source.dtype)
        yield comm.Ireduce_scatter_block(source, target, _mpi_op("sum"))
        if target is not y:
            y[...] = target


@dataclass(frozen=True)
class AllToAll(Collective):
    """Parts by rank."""

    def run(
        self, comm: Any, inputs: Sequence[Any], outputs: Sequence[Any], contributors: int
    ) -> Iterator[Any]:
        (x,), (y,) = inputs, outputs
        yield comm.Ialltoall(_bytes(x), y.reshape(-1).view("uint8"))


def pack_text(text: str, size_bytes: int = HEADER_BYTES) -> Any:
    """A text as an array of so many bytes, cut off or filled with zeros."""
    packed = np.zeros(size_bytes, "uint8")
    data = text.encode()[:size_bytes]
    packed[: len(data)] = np.frombuffer(data, "uint8")
    return packed


def unpack_text(packed: Any) -> str:
    """The text of such an array."""
    return bytes(packed).rstrip(b"\0").decode(errors="replace")


class Send:
    """To one rank: a header with shape and type, its answer, then the array."""

    point_to_point = True

    def __init__(self, to: int, tag: int, described: str) -> None:
        self.to, self.tag, self.described = to, tag, described
        self.channel = ("send", to, tag)

    def failed(self, reason: str) -> Send:
        """The message to send instead."""
        return Send(self.to, self.tag, f"nothing: {reason}")

    def run(self, comm: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Generator[None, None, None]:
        answer = np.zeros(HEADER_BYTES, "uint8")
        sending = comm.Isend(pack_text(self.described), self.to, 3 * self.tag)
        receiving = comm.Irecv(answer, self.to, 3 * self.tag + 1)
        while not (sending.Test() and receiving.Test()):
            yield
        if unpack_text(answer) != self.described:
            raise DistributedError(
                f"send: to rank {self.to}: sends {self.described}, it expects {unpack_text(answer)}"
            )
        data = _bytes(inputs[0])
        payload = comm.Isend(data, self.to, 3 * self.tag + 2)
        while not payload.Test():
            yield
        outputs[0][...] = 0


class Receive:
    """From one rank."""

    point_to_point = True

    def __init__(self, source: int, tag: int, described: str) -> None:
        self.source, self.tag, self.described = source, tag, described
        self.channel = ("recv", source, tag)

    def failed(self, reason: str) -> Receive:
        """The exchange to run instead."""
        return Receive(self.source, self.tag, f"nothing: {reason}")

    def run(self, comm: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Generator[None, None, None]:
        header = np.zeros(HEADER_BYTES, "uint8")
        receiving = comm.Irecv(header, self.source, 3 * self.tag)
        while not receiving.Test():
            yield
        answering = comm.Isend(pack_text(self.described), self.source, 3 * self.tag + 1)
        while not answering.Test():
            yield
        if unpack_text(header) != self.described:
            raise DistributedError(
                f"recv: from rank {self.source}: expects {self.described}, it sends {unpack_text(header)}"
            )
        payload = comm.Irecv(outputs[0].reshape(-1).view("uint8"), self.source, 3 * self.tag + 2)
        while not payload.Test():
            yield
