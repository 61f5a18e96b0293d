"""The communication queue: what this process exchanges by MPI, in an order that is the same on all ranks.

Invariants. (1) After init() one thread at a time calls MPI: the queue's, or a worker of the engine whose exchange
is next while the queue is idle.
(2) Collectives run in the order of their tickets. A ticket is taken when an operation is pushed to the engine, on the
thread that pushes, so the order is the program's, whatever the engine's workers do. A ticket whose operation is
skipped, because what it reads is poisoned, is run as a failure, which the other ranks see as one. Exchanges of two
ranks have none: they go on while collectives wait, in an order that the engine keeps for each pair and tag.
(3) Each collective begins with an agreement: a reduction of a few words says whether all ranks mean the same one. So
ranks that differ in order, shape or type get an error instead of waiting for each other, and stay in step afterwards.
Programs of traces hold the token of the world (see collective.py) while they run, so what they submit comes behind
everything that was pushed before them; it carries no ticket.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from weft.base import events, flags
from weft.distributed.errors import CollectiveTimeout, DistributedError

__all__ = ["GRACE_S", "Job", "Queue"]

TEXT_BYTES = 640  # of a description that is gathered when ranks disagree
SPIN_S = 100e-6  # how long an agreement is polled before the thread sleeps between polls
MOST_SLEEP_S = 400e-6
LOOK_S = 0.25  # between looks at the processes of other ranks
GRACE_S = 1.0  # between a rank's word that others have died, and the end of the job


class Job:
    """One exchange. text: what it is, equal on all ranks; where: the user's line; work(comm): what follows agreement.

    done(error): called on the queue's thread at the end. between: None for a collective, else a function that gives
    a generator, which yields while it waits: an exchange of two ranks. size_bytes: of this rank's arrays.
    """

    def __init__(
        self,
        text: str,
        where: str,
        work: Callable[[Any], None] | None,
        done: Callable[[BaseException | None], None],
        failure: str = "",
        between: Callable[[Any], Generator[None, None, None]] | None = None,
        size_bytes: int = 0,
    ) -> None:
        self.text, self.where, self.work, self.done = text, where, work, done
        self.failure, self.between, self.size_bytes = failure, between, size_bytes
        self.asked_ns = time.perf_counter_ns()
        self.began_ns = self.agreed_ns = 0  # when this rank was ready for it, when all were
        self.numbered = False  # it has a ticket
        self.number = 0  # of a collective, the same on all ranks


class Queue:
    """See the module. comm: an MPI communicator of its own."""

    def __init__(self, comm: Any, counters: Any, names: list[str]) -> None:
        self.comm, self.names = comm, names
        self._counters = counters  # of ranks on this host: [entered collectives, pid, ended], else None
        self._changed = threading.Condition()
        self._jobs: dict[int, Job] = {}
        self._unnumbered: deque[Job] = deque()
        self._tickets = self._next = 0
        self._new_between: deque[Job] = deque()
        self._between: list[tuple[Job, Generator[None, None, None]]] = []
        self._since: float | None = None  # when the collective that runs now began
        self._under_way = False  # the ranks have agreed, and MPI moves data
        self._current = ""
        self._reported = 0.0
        self._stopping = False
        self.dead = ""  # which ranks of this host have died
        self._busy = False  # a collective runs, on whichever thread
        self.count = 0
        self.thread = threading.Thread(target=self._run, name="weft-communication", daemon=True)
        self.thread.start()
        self._watch = threading.Thread(target=self._watch_stalls, name="weft-stalls", daemon=True)
        self._watch.start()

    # What other threads call.

    def ticket(self) -> int:
        """The place of an exchange in the program's order."""
        with self._changed:
            self._tickets += 1
            return self._tickets - 1

    def submit(self, job: Job, ticket: int | None = None, here: bool = False) -> None:
        """Run a job when its turn comes; without a ticket, when what was submitted before has run.

        here: if that is now, run it on this thread, which saves waking the queue's.
        """
        with self._changed:
            now = here and ticket == self._next and not (self._busy or self._unnumbered or self._between)
            if now:
                self._next += 1
                self._busy = True
            elif job.between is not None:
                self._new_between.append(job)
            elif ticket is None:
                self._unnumbered.append(job)
            else:
                job.numbered = True
                self._jobs[ticket] = job
            if not now:
                self._changed.notify_all()
        if now:
            self._do(job)

    def stop(self, timeout_s: float) -> bool:
        """Run what was submitted, then end the thread; False if that takes longer."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self.thread.join(timeout_s)
        return not self.thread.is_alive()

    # What runs on the queue's thread.

    def _take(self) -> Job | None:
        """The next collective, which is then under way."""
        if self._busy:
            return None
        job = self._unnumbered.popleft() if self._unnumbered else self._jobs.pop(self._next, None)
        if job is not None:
            self._busy = True
            self._next += job.numbered
        return job

    def _run(self) -> None:
        while True:
            with self._changed:
                job = self._take()
                # While a collective runs elsewhere, that thread lets exchanges of two ranks go on.
                while job is None and (self._busy or not (self._between or self._new_between)):
                    if self._stopping and not self._busy:
                        return
                    self._changed.wait()
                    job = self._take()
                alone = job is None
                self._busy = True
            if job is not None:
                self._do(job)
            elif alone:
                self._poll()
                with self._changed:
                    self._busy = False
                if self._between:
                    time.sleep(50e-6)

    def _do(self, job: Job) -> None:
        """Run a collective that is under way."""
        error = self._collective(job)
        self._poll()
        with self._changed:
            self._busy = False
            self._changed.notify_all()
        self._finish(job, error)

    def _finish(self, job: Job, error: BaseException | None) -> None:
        times = (job.asked_ns, job.began_ns, job.agreed_ns, time.perf_counter_ns())
        events.exchanged(job.text, job.where, job.size_bytes, times, job.number)
        try:
            job.done(error)
        except Exception as problem:
            sys.stderr.write(f"weft: {job.text}: {problem!r}\n")

    def _poll(self) -> None:
        """Let exchanges of two ranks go on; they come between collectives, also while one waits for other ranks."""
        while self._new_between:
            job = self._new_between.popleft()
            assert job.between is not None
            job.began_ns = job.agreed_ns = time.perf_counter_ns()
            self._between.append((job, job.between(self.comm)))
        going = []
        for job, steps in self._between:
            try:
                next(steps)
                going.append((job, steps))
            except StopIteration:
                self._finish(job, None)
            except Exception as error:
                self._finish(job, error)
        self._between = going

    def _collective(self, job: Job) -> BaseException | None:
        self.count += 1
        self._current, self._since = f"{job.text} at {job.where}" if job.where else job.text, time.monotonic()
        if self._counters is not None:
            self._counters[self.comm.rank, 0] = self.count
        job.began_ns = job.agreed_ns = time.perf_counter_ns()
        job.number = self.count
        try:
            self._agree(job)
            job.agreed_ns = time.perf_counter_ns()
            if job.work is not None:
                self._under_way = True
                job.work(self.comm)
        except Exception as error:
            return error
        finally:
            self._since, self._under_way = None, False
        return None

    def _agree(self, job: Job) -> None:
        """Raises DistributedError, on all ranks, unless all mean the same and none has failed."""
        from mpi4py import MPI

        self._check_alive(job.text)

        word = int.from_bytes(hashlib.blake2b(job.text.encode(), digest_size=7).digest(), "big")
        mine = np.array([word, -word, bool(job.failure)], "int64")
        most = np.empty_like(mine)
        self.wait(self.comm.Iallreduce(mine, most, MPI.MAX), job.text)
        if most[0] == -most[1] and not most[2]:
            return
        said = self._gathered(job)
        lines = "".join(f"\n  rank {rank}: {text}" for rank, text in enumerate(said))
        what = job.text.partition(" ")[0]
        if most[2]:
            raise DistributedError(f"{what}: a rank could not take part in collective {self.count}:{lines}")
        raise DistributedError(f"{what}: ranks disagree about collective {self.count}:{lines}")

    def _gathered(self, job: Job) -> list[str]:
        """What each rank meant, as text: no objects of Python travel between ranks."""
        where = f" at {job.where}" if job.where else ""
        text = f"failed: {job.failure}" if job.failure else f"{job.text}{where}"
        mine = np.zeros(TEXT_BYTES, "uint8")
        data = text.encode()[:TEXT_BYTES]
        mine[: len(data)] = np.frombuffer(data, "uint8")
        every = np.empty((self.comm.size, TEXT_BYTES), "uint8")
        self.comm.Allgather(mine, every)
        return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in every]

    def wait(self, request: Any, text: str) -> None:
        """Wait for other ranks, asleep after a while. Raises CollectiveTimeout after WEFT_COLLECTIVE_TIMEOUT_S."""
        begin = time.monotonic()
        sleep = 20e-6
        limit: float = flags.get("WEFT_COLLECTIVE_TIMEOUT_S")
        while not request.Test():
            self._check_alive(text)
            self._poll()
            waited = time.monotonic() - begin
            if waited < SPIN_S:
                continue
            if waited > limit:
                missing = "; ".join(self.missing()) or "ranks on other hosts did not come"
                raise CollectiveTimeout(f"{text}: not all ranks came within {limit:g} s: {missing}")
            time.sleep(sleep)
            sleep = min(sleep * 1.5, MOST_SLEEP_S)

    def _check_alive(self, text: str) -> None:
        """Raises DistributedError once a rank of this host has died: no collective ends any more."""
        if self.dead:
            raise DistributedError(f"{text.partition(' ')[0]}: {self.dead}")

    # Ranks that others wait for.

    def _look_for_dead(self) -> None:
        """Say, once, which ranks of this host have died without a word."""
        if self._counters is None or self.dead or self._stopping:
            return
        found = [
            f"rank {rank} ({self.names[rank]}, pid {pid})"
            for rank, (_, pid, _) in enumerate(self._counters.tolist())
            if pid and rank != self.comm.rank and _state(pid) == "gone"
        ]
        if found:
            self.dead = f"{', '.join(found)} has died; the job ends, go on from its last checkpoint"
            sys.stderr.write(f"weft: rank {self.comm.rank}: {self.dead}\n")
            sys.stderr.flush()

    def missing(self) -> list[str]:
        """The ranks on this host that have not entered the collective that this rank is in, and why, if that shows."""
        if self._counters is None:
            return []
        found = []
        for rank, (entered, pid, ended) in enumerate(self._counters.tolist()):
            if rank == self.comm.rank or not pid:
                continue
            state = "ended" if ended else _state(pid)
            if entered < self.count or state in ("stopped", "gone"):
                has = f"has entered {entered} collectives, this rank {self.count}"
                found.append(f"rank {rank} ({self.names[rank]}, pid {pid}): {state}; {has}")
        return found

    def _watch_stalls(self) -> None:
        """Name the ranks that keep this one waiting for long, and those that have died, on stderr.

        An agreement can be given up. What MPI is in the middle of cannot, so a rank that is stopped there for too long,
        or has died, ends this process, and with it the job.
        """
        period: float = flags.get("WEFT_STALL_S")
        limit: float = flags.get("WEFT_COLLECTIVE_TIMEOUT_S")
        while not self._stopping:
            time.sleep(min(max(min(period, limit) / 4, 0.05), LOOK_S))
            since = self._since
            now = time.monotonic()
            self._look_for_dead()
            if self.dead and since is not None and self._under_way and now - since > GRACE_S:
                sys.stderr.write(f"weft: {self._current}: {self.dead}\n")
                sys.stderr.flush()
                time.sleep(GRACE_S)  # so that the others can say so, too
                os._exit(1)
            if since is not None and self._under_way and now - since > limit:
                missing = "; ".join(self.missing()) or "no rank on this host is behind"
                sys.stderr.write(f"weft: {self._current}: not all ranks came within {limit:g} s: {missing}\n")
                sys.stderr.flush()
                os._exit(1)
            if since is None or now - max(since, self._reported) < period:
                continue
            self._reported = now
            missing = "; ".join(self.missing()) or "no rank on this host is behind"
            sys.stderr.write(
                f"weft: rank {self.comm.rank} has waited {now - since:.0f} s in {self._current}: {missing}\n"
            )
            sys.stderr.flush()


def _state(pid: int) -> str:
    """What the system says of a process of this host."""
    if not os.path.isdir("/proc/self"):
        return "running"
    try:
        with open(f"/proc/{pid}/stat") as file:
            letter = file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"
    return {"T": "stopped", "t": "stopped", "Z": "gone", "X": "gone"}.get(letter, "running")
