"""The ranks of a job: this process's number among them, and what it needs to talk to them.

Started alone, a process is rank 0 of 1 and needs neither MPI nor mpi4py. Started by `python -m weft.launch -n 2` or by
mpiexec, init() joins the others; everything in weft.distributed calls it when it is first needed.

>>> from weft.distributed import rank, world_size
>>> rank(), world_size()
(0, 1)
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import socket
import sys
import threading
import time
from collections import deque
from typing import Any

import numpy as np

from weft import random
from weft.arrays.creation import zeros
from weft.base import flags, process
from weft.distributed.errors import CollectiveTimeout, DistributedError
from weft.distributed.queue import GRACE_S, Job, Queue, process_state
from weft.distributed.transport import Waiting, pack_text, unpack_text
from weft.engine import default_engine

__all__ = ["World", "init", "is_first", "known_rank", "rank", "seed", "world", "world_size"]

# One of these is set by each of the usual process managers: hydra, Open MPI, PMIx (Slurm, PRRTE).
UNDER_MPI = ("PMI_RANK", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK")
RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
EXIT_S = 20.0
END_S = 20.0  # for other ranks of the host to end before this one ends with an error
FORWARD_S = 0.2  # for mpiexec to pass on what a rank has written


class World:
    """rank, size; over MPI also the queue, and the token that orders what is exchanged on the engine.

    Workers of parameter servers have no queue: they exchange nothing with each other.
    """

    def __init__(self, rank: int, size: int, queue: Queue | None = None) -> None:
        self.rank, self.size, self.queue = rank, size, queue
        self.token: Any = zeros((), dtype="int64") if queue is not None else None
        self.token_failed = False  # it may be poisoned
        # What exchanges of gradients have raised that no result shows: an update whose gradient has failed is left out.
        self.failures: deque[tuple[BaseException, Any]] = deque(maxlen=16)  # with an array that has failed
        self.has_failed = False  # an exchange has
        self._channels: dict[Any, Any] = {}

    def channel(self, key: Any) -> Any:
        """A variable of the engine for exchanges of two ranks that keep their order."""
        if key not in self._channels:
            self._channels[key] = default_engine().new_variable()
        return self._channels[key]


_world: World | None = None
_lock = threading.Lock()


def init() -> World:
    """Join the job that this process was started in; done once, by the first call.

    Raises ImportError, with what to install, if the process was started by mpiexec and mpi4py is missing.
    """
    global _world
    if _world is None:
        with _lock:
            if _world is None:
                under_mpi = flags.get("WEFT_JOB") is None and any(name in os.environ for name in UNDER_MPI)
                size = flags.get("WEFT_WORLD_SIZE")
                _world = _join_mpi() if under_mpi else World(flags.get("WEFT_RANK"), size)
    return _world


def world() -> World:
    """The world of this process."""
    return _world or init()


def known_rank() -> int:
    """The number of this process in its job, without joining it.

    >>> known_rank()
    0
    """
    if _world is not None or flags.get("WEFT_JOB") is not None:
        return flags.get("WEFT_RANK") if _world is None else _world.rank
    return next((int(os.environ[name]) for name in RANKS if name in os.environ), 0)


def rank() -> int:
    """The number of this process among those of the job, from 0."""
    return world().rank


def world_size() -> int:
    """The number of processes of the job."""
    return world().size


def is_first() -> bool:
    """Whether this is rank 0: the one that logs and writes checkpoints."""
    return world().rank == 0


def seed(value: int, *, same: bool = False) -> None:
    """Seed weft.random: other numbers on each rank, the same ones in each run; same: the same ones on all ranks.

    Initial parameters need the same numbers on all ranks, dropout other ones.

    >>> import weft as wf
    >>> wf.distributed.seed(1)
    """
    random.seed(value if same else value * 1_000_003 + world().rank)


def _join_mpi() -> World:
    _stay_on_loopback()
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ImportError(
            "weft.distributed: this process was started by mpiexec, which needs mpi4py: pip install weft[dist]"
        ) from error
    except RuntimeError as error:  # no library of MPI could be loaded
        raise ImportError(f"weft.distributed: mpi4py finds no MPI: {error}; pip install mpich") from error
    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise DistributedError("init: this MPI does not let threads call it (MPI_THREAD_SERIALIZED)")
    comm = MPI.COMM_WORLD.Dup()
    if comm.size == 1:
        return World(0, 1)
    for stream in (sys.stdout, sys.stderr):  # mpiexec mixes what ranks write: whole lines, one at a time
        if isinstance(stream, io.TextIOWrapper) and not stream.isatty():
            stream.reconfigure(line_buffering=True, write_through=False)
    counters = _counters(MPI, comm)
    Waiting.crowded = 2 * int((counters[:, 1] > 0).sum()) > len(os.sched_getaffinity(0))
    queue = Queue(comm, counters, _hosts(comm))
    current = World(comm.rank, comm.size, queue)
    _end_all_on_errors(MPI, queue)
    atexit.register(_leave, current)
    process.fail_at_end(lambda: _has_lost_results(MPI, current))
    return current


def _stay_on_loopback() -> None:
    """Let MPI open no ports to the network where all ranks are on this machine, as hydra says."""
    local_ranks, all_ranks = os.environ.get("MPI_LOCALNRANKS"), os.environ.get("PMI_SIZE")
    if local_ranks is not None and local_ranks == all_ranks and os.path.exists("/sys/class/net/lo"):
        os.environ.setdefault("UCX_NET_DEVICES", "lo")


def _hosts(comm: Any) -> list[str]:
    packed = np.empty((comm.size, 64), "uint8")
    comm.Allgather(pack_text(socket.gethostname(), 64), packed)
    return [unpack_text(row) for row in packed]


def _counters(MPI: Any, comm: Any) -> Any:
    """An int64 array [ranks, 3] that the ranks of one host share; the rows of ranks elsewhere stay 0."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    first = node.rank == 0
    window = MPI.Win.Allocate_shared(comm.size * 3 * 8 if first else 0, 8, comm=node)
    buffer, _ = window.Shared_query(0)
    counters = np.frombuffer(buffer, "int64").reshape(comm.size, 3)
    if first:
        counters[...] = 0
    node.Barrier()
    counters[comm.rank] = (0, os.getpid(), 0)
    node.Barrier()
    _windows.append(window)
    return counters


_windows: list[Any] = []


def _end_all_on_errors(MPI: Any, queue: Queue) -> None:
    """An exception that ends this rank ends the job, as the others would wait for it."""
    previous_hook = sys.excepthook

    def hook(kind: Any, error: Any, trace: Any) -> None:
        previous_hook(kind, error, trace)
        sys.stderr.write(f"weft: rank {MPI.COMM_WORLD.rank} ends the job because of this error\n")
        if queue.dead:
            time.sleep(GRACE_S)  # the other ranks find out by themselves
        _abort(MPI)

    sys.excepthook = hook


def _abort(MPI: Any) -> None:
    """End the job, after mpiexec has had time to pass on what was written: it drops what is in its pipes then."""
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(FORWARD_S)
    MPI.COMM_WORLD.Abort(1)


def _leave(current: World) -> None:
    """Come to an end together: a rank that still exchanges something meanwhile gets an error for it, and no wait."""
    queue = current.queue
    assert queue is not None
    with contextlib.suppress(Exception):  # not wait_for_all, which would take for seen what it raises
        default_engine().wait_for_var(current.token, timeout_s=flags.get("WEFT_EXIT_TIMEOUT_S"))
    for failure, x in current.failures:
        sys.stderr.write(
            f"weft: rank {current.rank}: an update was left out, as its exchange failed: {failure}\n"
        )
        with contextlib.suppress(Exception):
            default_engine().throw_if_failed(x)  # written once
    while (error := _say_goodbye(queue)) is not None:
        sys.stderr.write(f"weft: rank {current.rank} has come to its end before others: {error}\n")
        if isinstance(error, CollectiveTimeout) or queue.dead:
            from mpi4py import MPI

            time.sleep(GRACE_S if queue.dead else 0)
            _abort(MPI)
    queue.stop(EXIT_S)


def _has_lost_results(MPI: Any, current: World) -> bool:
    """Whether this rank ends with status 1, for the job: the lowest whose exchange failed where nothing raised that.

    The others end with 0 before it: mpiexec kills those that are still ending once one has ended with an error.
    """
    assert current.queue is not None
    has_lost = bool(current.failures) or (current.has_failed and bool(process.unseen_failures))
    if current.queue.dead:
        return has_lost
    lowest = MPI.COMM_WORLD.allreduce(current.rank if has_lost else current.size, op=MPI.MIN)
    if lowest == current.size:
        return False
    others = current.queue.other_processes()
    MPI.Finalize()  # the process ends at once where there are failures
    end = time.monotonic() + END_S
    while (
        current.rank == lowest
        and time.monotonic() < end
        and any(process_state(pid) != "gone" for pid in others)
    ):
        time.sleep(0.02)
    return current.rank == lowest


def _say_goodbye(queue: Queue) -> BaseException | None:
    ended = threading.Event()
    failures: list[BaseException | None] = []

    def complete(error: BaseException | None) -> None:
        failures.append(error)
        ended.set()

    queue.submit(Job("end of the program", "", None, complete), queue.ticket(fence=True))
    ended.wait()
    return failures[0]
