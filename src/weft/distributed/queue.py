"""The communication queue: what this process exchanges by MPI, in an order that is the same on all ranks.

Invariants. (1) After init() one thread at a time calls MPI: the one that has set `_busy`. That is the queue's, a worker
of the engine whose exchange is next while the queue is idle, or a pushing thread whose arrays are ready (`run_inline`),
which hands what lasts too long to the queue's.
(2) Collectives run in the same order on all ranks. A ticket is taken when an operation is pushed to the engine, on the
thread that pushes, so tickets are in the program's order, whatever the engine's workers do. Without priorities that is
the order. A collective of a higher priority overtakes those before it once it is ready on all ranks, which the ranks
learn together: see Schedule. A ticket whose operation is skipped, because what it reads is poisoned, is run as a
failure, which the other ranks see as one. Exchanges of two ranks have none: they go on while collectives wait, in an
order that the engine keeps for each pair and tag.
(3) Each collective begins with an agreement: a reduction of a few words says whether all ranks mean the same one. So
ranks that differ in order, shape or type get an error instead of waiting for each other, and stay in step afterwards.
Programs of traces hold the token of the world (see collective.py) while they run, so what they submit comes behind
everything that was pushed before them; it carries no ticket, and is numbered as it is submitted.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from typing import Any

import numpy as np

from weft.base import events, flags
from weft.distributed.absence import absent_ranks, exchange_of, receive_text
from weft.distributed.errors import CollectiveTimeout, DistributedError
from weft.distributed.transport import Waiting, pack_text, unpack_text, wait_for

__all__ = ["GRACE_S", "Job", "Leave", "Queue", "Schedule", "process_state"]

TEXT_BYTES = 640  # of a description that is gathered when ranks disagree
SPIN_S = 500e-6  # how long an agreement is polled before the thread sleeps longer and longer between polls
MAX_SLEEP_S = 400e-6
WATCH_INTERVAL_S = 0.25  # between looks at the processes of other ranks
GRACE_S = 1.0  # between a rank's word that others have died, and the end of the job
INLINE_WAIT_S = 200e-6  # how long a pushing thread waits for other ranks before the queue's takes over,
BYTES_PER_S = 1e9  # and, if they have come, for MPI to move what is exchanged, besides
MAX_MISSES = 2  # after so many waits in vain, one after the other, it does not wait,
RETRY_EVERY = 16  # but for one exchange in so many
WINDOW = 16  # collectives behind the first one that may overtake it
# In the words of an agreement: not ready; and neutral, the words of a rank that is absent.
NOT_READY, NEUTRAL = np.iinfo("int64").max, np.iinfo("int64").min
HEADER = 4  # the words in front of those of the schedule


class Job:
    """One exchange. text: what it is, equal on all ranks; where: the user's line; work(comm, contributors): what
    follows agreement, an iterator that gives each request of MPI that has to end before it goes on, or None.

    done(error): called at the end, on the thread that has run it. point_to_point: None for a collective; for an
    exchange of two ranks a function that gives a generator, which yields while it waits. size_bytes: of this rank's
    arrays.
    priority: equal on all ranks; else the least of theirs counts. describe(absent): the text by which absent ranks take
    part, or DistributedError; None: they cannot.
    """

    def __init__(
        self,
        text: str,
        where: str,
        work: Callable[[Any, int], Iterable[Any] | None] | None,
        done: Callable[[BaseException | None], None],
        failure: str = "",
        point_to_point: Callable[[Any], Generator[None, None, None]] | None = None,
        size_bytes: int = 0,
        priority: int = 0,
        describe: Callable[[Collection[int]], str] | None = None,
    ) -> None:
        self.text, self.where, self.work, self.done = text, where, work, done
        self.describe = describe
        self.failure, self.point_to_point, self.size_bytes = failure, point_to_point, size_bytes
        self.priority = priority
        self.requested_ns = time.perf_counter_ns()
        self.began_ns = self.agreed_ns = 0  # when this rank was ready for it, when all were
        self.number = 0  # of a collective, the same on all ranks
        self.offset = 0  # how many positions before it had not been taken
        self.steps: Iterator[Any] = iter(())  # of a collective that has begun
        self.request: Any = None  # of MPI, which it waits for
        self.error: BaseException | None = None


class Leave(Job):
    """Be absent from the other ranks' collectives until all are: see absence.py.

    last_rank: then, the lowest of the ranks that were absent last.
    """

    def __init__(self, where: str, done: Callable[[BaseException | None], None]) -> None:
        super().__init__("join", where, None, done)
        self.last_rank = 0


class Schedule:
    """Collectives in the order in which the program requests them: 0, 1, ... A position is taken once.

    `base` is the first position that has not been taken. Each rank takes the same positions in the same order, so those
    relative to `base` mean the same collectives on all ranks. `words` says which of the next WINDOW are ready on this
    rank, and how urgent they are: minus the priority, or NOT_READY. Of these the ranks reduce the maximum, so a word
    that is not NOT_READY then says that a position is ready everywhere, and `best` is the same one on all ranks. None
    overtakes one of `fences`, nor do they overtake.

    >>> schedule = Schedule()
    >>> for position, priority in ((0, 0), (1, 5), (3, 7)):
    ...     schedule.jobs[position] = Job(f"{position}", "", None, print, priority=priority)
    >>> schedule.best(schedule.words())
    3
    >>> schedule.take(3).text, schedule.base, schedule.take(0).text, schedule.base
    ('3', 0, '0', 1)
    """

    def __init__(self) -> None:
        self.jobs: dict[int, Job] = {}  # that are ready
        self.base = 0
        self.fences: set[int] = set()  # that have not been taken; known before anything behind them is
        self._taken: set[int] = set()  # above base

    def words(self) -> Any:
        """Of the positions from `base`."""
        words = np.full(WINDOW, NOT_READY)
        end = min(self.base + WINDOW, *self.fences) if self.fences else self.base + WINDOW
        for position, job in self.jobs.items():
            if position < end:
                words[position - self.base] = -job.priority
        return words

    def best(self, words: Any) -> int | None:
        """The most urgent position, of those the first; None if none is ready."""
        k = int(np.argmin(words))
        return None if words[k] == NOT_READY else self.base + k

    def take(self, position: int) -> Job | None:
        """The job of a position, if it is ready."""
        job = self.jobs.pop(position, None)
        if job is not None:
            job.offset = position - self.base
            self.fences.discard(position)
            self._taken.add(position)
            while self.base in self._taken:
                self._taken.discard(self.base)
                self.base += 1
        return job


class Queue:
    """See the module. comm: an MPI communicator of its own."""

    def __init__(self, comm: Any, counters: Any, names: list[str]) -> None:
        self.comm, self.names = comm, names
        self._counters = counters  # of ranks on this host: [entered collectives, pid, ended], else None
        self._changed = threading.Condition()
        self._tickets = 0
        self._numbered, self._programs = Schedule(), Schedule()  # by tickets; of programs, which have none
        self._program_count = 0  # how many jobs of programs there were
        self._next: tuple[Schedule, int] | None = None  # what the ranks have agreed to take, if not the first
        self._unfinished: Job | None = None  # began inline, and continues on the queue's thread
        self._misses = 0  # waits in vain, see run_inline
        self._new_pairs: deque[Job] = deque()  # exchanges of two ranks
        self._pairs: list[tuple[Job, Generator[None, None, None]]] = []
        self._collective_began_s: float | None = None  # when the collective that runs now began
        self._is_moving = False  # the ranks have agreed, and MPI moves data
        self._current = ""
        self._reported = 0.0
        self._stopping = False
        self.dead = ""  # which ranks of this host have died
        self._busy = False  # a collective runs, on whichever thread
        self.count = 0
        self._hashes: dict[str, int] = {}
        # Of agreements: word, its negative, whether this rank has failed, is absent, and what could come next.
        self._words = np.zeros((2, HEADER + WINDOW), "int64")
        self._given_up: list[Any] = []  # requests that nothing waits for, with their memory
        self._specs, self._max = _specs(self._words)
        self.thread = threading.Thread(target=self._run, name="weft-communication", daemon=True)
        self.thread.start()
        self._watch = threading.Thread(target=self._watch_stalls, name="weft-stalls", daemon=True)
        self._watch.start()

    # Called by other threads.

    def ticket(self, fence: bool = False) -> int:
        """The position of an exchange in the program's order; fence: priorities change nothing about it."""
        with self._changed:
            if fence:
                self._numbered.fences.add(self._tickets)
            self._tickets += 1
            return self._tickets - 1

    def submit(self, job: Job, ticket: int | None = None, inline: bool = False) -> None:
        """Run a job when its turn comes; without a ticket, when what was submitted before has run.

        inline: if that is now, run it on this thread, which saves waking the queue's.
        """
        with self._changed:
            next_job = None
            if job.point_to_point is not None:
                self._new_pairs.append(job)
            elif ticket is None:
                self._programs.jobs[self._program_count] = job
                self._program_count += 1
            else:
                self._numbered.jobs[ticket] = job
                if inline and not (self._new_pairs or self._pairs):
                    next_job = self._take()
            if next_job is None and not self._busy:  # else the busy thread looks for more when it is done
                self._changed.notify_all()
        if next_job is not None:
            self._run_collective(next_job)

    def run_inline(self, job: Job) -> bool:
        """Run a collective whose arrays are ready on this thread, if no other one waits.

        False: nothing was done. True: it has its position in the program's order. If `job.request` is not None it has
        not ended yet: the caller must call continue_later, after which it ends on the queue's thread; so, too, if it
        raises.
        """
        with self._changed:
            others = self._busy or self._next or self._new_pairs or self._pairs or self._programs.jobs
            if others or self._stopping or self._numbered.base != self._tickets:
                return False
            self._numbered.jobs[self._tickets] = job
            self._tickets += 1
            self._numbered.take(self._numbered.base)
            self._busy = True
        # Where it does not wait it still begins here, so that other ranks, which may wait, need not do so for a thread.
        waits = self._misses < MAX_MISSES or self._misses % RETRY_EVERY == 0
        try:
            if self._advance(job, INLINE_WAIT_S if waits else 0.0):
                self._misses = 0
                self._complete(job)
            else:
                self._misses += 1
        except BaseException:  # Ctrl-C: the other ranks still wait for this one
            if job.request is None:  # it came between two requests, where there is nothing to go on from
                job.error = DistributedError(
                    f"{job.text.partition(' ')[0]}: interrupted while data was moved"
                )
                self.dead = self.dead or "this rank was interrupted in the middle of an exchange"
                self._collective_began_s, self._is_moving = None, False
                self._complete(job)
            raise
        return True

    def continue_later(self, job: Job) -> None:
        """Let the queue's thread end what run_inline has begun."""
        with self._changed:
            self._unfinished = job
            self._changed.notify_all()

    def stop(self, timeout_s: float) -> bool:
        """Run what was submitted, then end the thread; False if that takes longer."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self.thread.join(timeout_s)
        return not self.thread.is_alive()

    # Run on the queue's thread.

    def _take(self) -> Job | None:
        """The next collective, which is then under way."""
        if self._busy:
            return None
        first = self._programs if self._programs.jobs else self._numbered
        schedule, position = self._next or (first, first.base)
        job = schedule.take(position)
        if job is not None:
            self._busy, self._next = True, None
        return job

    def _run(self) -> None:
        while True:
            with self._changed:
                job, self._unfinished = self._unfinished or self._take(), None
                # While a collective runs elsewhere, that thread lets exchanges of two ranks go on.
                while job is None and (self._busy or not (self._pairs or self._new_pairs)):
                    if self._stopping and not self._busy:
                        return
                    self._changed.wait()
                    job, self._unfinished = self._unfinished or self._take(), None
                has_pairs_only = job is None
                self._busy = True
            if job is not None:
                self._run_collective(job)
            elif has_pairs_only:
                self._poll()
                with self._changed:
                    self._busy = False
                if self._pairs:
                    time.sleep(50e-6)

    def _run_collective(self, job: Job) -> None:
        """Run a collective that is under way to its end."""
        self._advance(job)
        self._complete(job)

    def _complete(self, job: Job) -> None:
        if self._new_pairs or self._pairs:
            self._poll()
        with self._changed:
            self._busy = False
            # The queue's thread is woken only if there is something for it: that costs as much as a small exchange.
            collectives = self._numbered.jobs or self._programs.jobs
            if collectives or self._new_pairs or self._pairs or self._stopping:
                self._changed.notify_all()
        self._report(job, job.error)

    def _report(self, job: Job, error: BaseException | None) -> None:
        times = (job.requested_ns, job.began_ns, job.agreed_ns, time.perf_counter_ns())
        events.exchanged(job.text, job.where, job.size_bytes, times, job.number)
        try:
            job.done(error)
        except Exception as problem:
            sys.stderr.write(f"weft: {job.text}: {problem!r}\n")

    def _poll(self) -> None:
        """Let exchanges of two ranks go on; they come between collectives, also while one waits for other ranks."""
        while self._new_pairs:
            job = self._new_pairs.popleft()
            assert job.point_to_point is not None
            job.began_ns = job.agreed_ns = time.perf_counter_ns()
            self._pairs.append((job, job.point_to_point(self.comm)))
        unfinished = []
        for job, steps in self._pairs:
            try:
                next(steps)
                unfinished.append((job, steps))
            except StopIteration:
                self._report(job, None)
            except Exception as error:
                self._report(job, error)
        self._pairs = unfinished

    def _advance(self, job: Job, max_wait_s: float = math.inf) -> bool:
        """Go on with a collective; False if MPI has kept this thread waiting, and it has not ended.

        max_wait_s: how long it waits for the other ranks; if they come within that, for what is moved as well.
        """
        if not job.number:
            self._begin(job)
        begin = time.perf_counter() if max_wait_s < math.inf else 0.0
        try:
            while True:
                if job.request is not None:
                    if max_wait_s < math.inf:
                        moving_s = job.size_bytes / BYTES_PER_S if self._is_moving and max_wait_s else 0.0
                        while not job.request.Test():
                            if time.perf_counter() - begin > max_wait_s + moving_s:
                                return False
                    elif self._is_moving:
                        wait_for(job.request)
                    else:
                        self.wait(job.request, job.text)
                    job.request = None
                job.request = next(job.steps)
        except StopIteration:
            pass
        except Exception as error:
            if job.request is not None:  # given up: MPI may still write what it was given
                self._given_up.append((job.request, self._words))
                self._words = np.zeros_like(self._words)
                self._specs, self._max = _specs(self._words)
            job.error, job.request = error, None
        self._collective_began_s, self._is_moving = None, False
        return True

    def _begin(self, job: Job) -> None:
        self._current = f"{job.text} at {job.where}" if job.where else job.text
        self._enter()
        job.began_ns = job.agreed_ns = time.perf_counter_ns()
        job.number = self.count
        job.steps = self._absent_steps(job) if isinstance(job, Leave) else self._steps(job)

    def _enter(self) -> None:
        """Count a collective."""
        self.count += 1
        self._collective_began_s, self._is_moving = time.monotonic(), False
        if self._counters is not None:
            self._counters[self.comm.rank, 0] = self.count

    def _steps(self, job: Job) -> Iterator[Any]:
        """The steps of a collective: each request of MPI that it waits for."""
        contributors = yield from self._agree(job)
        job.agreed_ns = time.perf_counter_ns()
        if job.work is not None:
            self._is_moving = True
            yield from job.work(self.comm, contributors) or ()

    def _absent_steps(self, job: Leave) -> Iterator[Any]:
        """The steps of a rank that is absent: the collectives of the others, until they are absent, too."""
        words, maxima = self._words
        size = self.comm.size
        while True:
            self._check_alive(job.text)
            words[:] = NEUTRAL
            words[3] = 1
            yield self.comm.Iallreduce(self._specs[0], self._specs[1], self._max)
            if maxima[0] == NEUTRAL:
                break
            if maxima[0] != -maxima[1] or maxima[2] > 0:
                yield from self._gather_texts(job)  # the others raise what is wrong
            else:
                absent = yield from absent_ranks(self.comm, True)
                text = yield from receive_text(self.comm, "", _first_present(absent))
                if not text:
                    yield from self._disagree(job, "a rank is absent from")
                self._is_moving = True
                yield from exchange_of(text, self.comm, size - len(absent))
            self._enter()
        mine = np.array([job.number * size + size - 1 - self.comm.rank])
        latest = np.empty_like(mine)
        yield self.comm.Iallreduce(mine, latest, self._max)
        job.last_rank = size - 1 - int(latest[0]) % size

    def _agree(self, job: Job) -> Generator[Any, None, int]:
        """Raises DistributedError, on all ranks, unless all mean the same and none has failed.

        Besides, the ranks find out together which collective comes next: see Schedule. Gives the number of ranks that
        are not absent.
        """
        self._check_alive(job.text)
        words, maxima = self._words
        word = self._hash_word(job)
        words[:HEADER] = word, -word, bool(job.failure), 0
        waiting = self._programs if self._programs.jobs else self._numbered
        has_waiting = bool(waiting.jobs)
        if has_waiting:
            with self._changed:
                words[HEADER:] = waiting.words()
        else:
            words[HEADER:] = NOT_READY
        yield self.comm.Iallreduce(self._specs[0], self._specs[1], self._max)
        if maxima[0] == -maxima[1] and not maxima[2]:
            if has_waiting and (position := waiting.best(maxima[HEADER:])) is not None:
                self._next = (waiting, position)
            return (yield from self._describe_to_absent(job)) if maxima[3] else self.comm.size
        yield from self._disagree(
            job, "a rank could not take part in" if maxima[2] else "ranks disagree about"
        )
        raise AssertionError

    def _disagree(self, job: Job, what: str) -> Generator[Any, None, None]:
        """Raises DistributedError with what each rank means; all ranks call it."""
        texts = yield from self._gather_texts(job)
        lines = "".join(f"\n  rank {rank}: {text}" for rank, text in enumerate(texts))
        raise DistributedError(f"{job.text.partition(' ')[0]}: {what} collective {self.count}:{lines}")

    def _describe_to_absent(self, job: Job) -> Generator[Any, None, int]:
        """Tell the absent ranks what they have to do; gives the number of the others."""
        absent = yield from absent_ranks(self.comm, False)
        text, reason = "", "this must be done by all"
        if job.describe is not None:
            try:
                text = job.describe(absent)
            except DistributedError as error:
                reason = str(error)
        yield from receive_text(self.comm, text, _first_present(absent))
        if not text:
            ranks = "rank " if len(absent) == 1 else "ranks "
            ranks += ", ".join(map(str, absent))
            yield from self._disagree(job, f"{reason}; {ranks} left the loop before")
        return self.comm.size - len(absent)

    def _hash_word(self, job: Job) -> int:
        """A number of what a job means, below 2^60."""
        word = self._hashes.get(job.text)
        if word is None:
            if len(self._hashes) > 4096:
                self._hashes.clear()
            word = int.from_bytes(hashlib.blake2b(job.text.encode(), digest_size=7).digest(), "big")
            self._hashes[job.text] = word
        return word * WINDOW + job.offset

    def _gather_texts(self, job: Job) -> Generator[Any, None, list[str]]:
        """The description of each rank's job, as text: no objects of Python travel between ranks."""
        where = f" at {job.where}" if job.where else ""
        text = f"failed: {job.failure}" if job.failure else f"{job.text}{where}"
        packed = np.empty((self.comm.size, TEXT_BYTES), "uint8")
        yield self.comm.Iallgather(pack_text(text, TEXT_BYTES), packed)
        return [unpack_text(row) for row in packed]

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
                Waiting.pause()
                continue
            if waited > limit:
                missing = "; ".join(self.missing()) or "ranks on other hosts did not come"
                raise CollectiveTimeout(f"{text}: not all ranks came within {limit:g} s: {missing}")
            time.sleep(sleep)
            sleep = min(sleep * 1.5, MAX_SLEEP_S)

    def _check_alive(self, text: str) -> None:
        """Raises DistributedError once a rank of this host has died: no collective ends any more."""
        if self.dead:
            raise DistributedError(f"{text.partition(' ')[0]}: {self.dead}")

    # Ranks that others wait for.

    def _look_for_dead(self) -> None:
        """Say, once, which ranks of this host have died without a word."""
        if self._counters is None or self.dead or self._stopping:
            return
        dead_ranks = [
            f"rank {rank} ({self.names[rank]}, pid {pid})"
            for rank, (_, pid, _) in enumerate(self._counters.tolist())
            if pid and rank != self.comm.rank and process_state(pid) == "gone"
        ]
        if dead_ranks:
            self.dead = f"{', '.join(dead_ranks)} has died; the job ends, go on from its last checkpoint"
            _warn(f"rank {self.comm.rank}: {self.dead}")

    def missing(self) -> list[str]:
        """The ranks on this host that have not entered the collective that this rank is in, and why, if that shows."""
        if self._counters is None:
            return []
        descriptions = []
        for rank, (entered, pid, has_ended) in enumerate(self._counters.tolist()):
            if rank == self.comm.rank or not pid:
                continue
            state = "ended" if has_ended else process_state(pid)
            if entered < self.count or state in ("stopped", "gone"):
                has = f"has entered {entered} collectives, this rank {self.count}"
                descriptions.append(f"rank {rank} ({self.names[rank]}, pid {pid}): {state}; {has}")
        return descriptions

    def other_processes(self) -> list[int]:
        """The process ids of the other ranks of this host."""
        pids = [] if self._counters is None else self._counters[:, 1].tolist()
        return [pid for rank, pid in enumerate(pids) if pid and rank != self.comm.rank]

    def _missing_text(self) -> str:
        return "; ".join(self.missing()) or "no rank on this host is behind"

    def _watch_stalls(self) -> None:
        """Name the ranks that keep this one waiting for long, and those that have died, on stderr.

        An agreement can be given up. What MPI is in the middle of cannot, so a rank that is stopped there for too long,
        or has died, ends this process, and with it the job.
        """
        period: float = flags.get("WEFT_STALL_S")
        limit: float = flags.get("WEFT_COLLECTIVE_TIMEOUT_S")
        while not self._stopping:
            time.sleep(min(max(min(period, limit) / 4, 0.05), WATCH_INTERVAL_S))
            began_s = self._collective_began_s
            now = time.monotonic()
            self._look_for_dead()
            if self.dead and began_s is not None and self._is_moving and now - began_s > GRACE_S:
                _warn(f"{self._current}: {self.dead}")
                time.sleep(GRACE_S)  # so that the others can say so, too
                os._exit(1)
            if began_s is not None and self._is_moving and now - began_s > limit:
                _warn(f"{self._current}: not all ranks came within {limit:g} s: {self._missing_text()}")
                os._exit(1)
            if began_s is None or now - max(began_s, self._reported) < period:
                continue
            self._reported = now
            waited = f"rank {self.comm.rank} has waited {now - began_s:.0f} s in {self._current}"
            _warn(f"{waited}: {self._missing_text()}")


def _first_present(absent: Collection[int]) -> int:
    return next(rank for rank in itertools.count() if rank not in absent)


def _warn(text: str) -> None:
    sys.stderr.write(f"weft: {text}\n")
    sys.stderr.flush()


def _specs(words: Any) -> tuple[Any, Any]:
    """Arrays of int64 as mpi4py takes them quickest, and the operation of agreements."""
    from mpi4py import MPI

    return [[x, x.size, MPI.INT64_T] for x in words], MPI.MAX


def process_state(pid: int) -> str:
    """The state of a process of this host, from the system."""
    if not os.path.isdir("/proc/self"):
        return "running"
    try:
        with open(f"/proc/{pid}/stat") as file:
            letter = file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"
    return {"T": "stopped", "t": "stopped", "Z": "gone", "X": "gone"}.get(letter, "running")
