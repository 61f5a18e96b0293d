"""A parameter server: a part of the keys, the optimizer that updates them, and what makes it survive being killed.

It does not depend on Ray; its methods are coroutines of one event loop, so only one of them runs at a time between two
awaits. parameter_server.py makes actors of it.

Invariants. (1) An update is committed when its record is in the journal; a push is acknowledged after that, so what was
acknowledged survives. (2) A worker numbers its pushes of a key, and begins one only when the one before has been
answered, as its engine keeps them in order; records carry the numbers of what they contain, so after a restart a push
that is sent again is recognised, and applied once. (3) Which workers are there, and which barriers are over, is in the
journal, too. (4) Synchronous kinds acknowledge a push when its round is committed; a round that a killed server had not
committed is sent again as a whole. (5) A worker that cannot make a push sends a refusal in its place: the
round fails for all workers, which is in the journal as well and changes nothing, and the refusing worker's next
push of the key comes after that.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft import checkpoint
from weft.arrays.creation import asarray, tensor
from weft.arrays.tensor import Tensor
from weft.base import flags
from weft.distributed.compression import make_codec
from weft.distributed.errors import CollectiveTimeout, DistributedError
from weft.gradients.gradient import no_grad
from weft.kvstore.journal import Journal
from weft.kvstore.local import LocalStore, StoreOptimizer
from weft.optimizer.optimizer import Optimizer
from weft.sparse import RowSparse

__all__ = ["MODES", "Server", "reference_of"]

MODES = ("dist_sync_ps", "dist_async", "dist_ssp")
MAX_JOURNAL_BYTES = 256 << 20  # of records, behind which a snapshot is due
MAX_BUFFERS = 8  # for answers, of each size
Key = int | str


Pushed = tuple[Key, int, Any, Mapping[str, Any]]  # key, number, arrays, how they are encoded
Pulled = tuple[Key, Any]  # key, and the rows, or None for all


class _Refused:
    """The push of a worker that cannot take part in a round, with the reason."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Server:
    """See the module. mode: one of MODES; staleness: how far "dist_ssp" lets workers run ahead of the slowest.

    folder: for snapshot and journal; None: nothing survives. every: updates of each key between snapshots.
    """

    def __init__(
        self,
        mode: str,
        workers: int,
        folder: str | None = None,
        every: int = 200,
        staleness: int = 0,
        sync: bool = False,
    ) -> None:
        self.mode, self.workers, self.every, self.staleness = mode, workers, every, staleness
        self.store = LocalStore("local")
        self.versions: dict[Key, int] = {}  # committed updates of each key
        # The last push of a key that was applied or has failed, and why it has failed; by rank, worker and key. What
        # was before it has been answered. A rank that leaves, or comes again as another process, takes its own along.
        self.ended: dict[int, dict[str, dict[Key, tuple[int, str | None]]]] = {}
        self.clocks: dict[Key, dict[int, int]] = {}  # pushes of each rank, of each key
        self.active: dict[int, str] = {}  # rank -> the worker's identity
        self.joined: set[int] = set()  # ranks that have come, or died before they could
        self.idle: set[int] = set()  # ranks that wait in a barrier
        self.rounds: dict[Key, dict[int, tuple[str, int, Any]]] = {}  # pushes of ranks in an open round
        self.barriers: dict[int, dict[int, str]] = {}  # what each rank has called, of those that are not over
        self.disagreements: dict[int, str] = {}
        self.passed = 0  # the last barrier that all have passed
        self.updater: dict[str, Any] | None = None
        self.compression: dict[str, Any] | None = None
        self.codec: Any = None
        self.updates_since_snapshot = 0
        self.began = time.time()
        self._buffers: dict[int, list[Any]] = {}  # for answers, by their sizes
        self._changed: asyncio.Condition | None = None
        self.journal = None if folder is None else Journal(folder, sync)
        if self.journal is not None:
            self._restore(self.journal)

    # Members.

    async def join(self, rank: int, name: str) -> dict[str, Any]:
        """A worker comes, or comes again; gives the versions of all keys, and the number of the last barrier.

        One that comes again has a new name, and passes the barriers that were passed.
        """
        self._apply("member", [rank, name])
        await self._notify()
        return {"versions": dict(self.versions), "passed": self.passed}

    async def leave(self, rank: int) -> None:
        """A worker is through or dead: the others no longer wait for it."""
        self._apply("member", [rank, None])
        for key in list(self.rounds):
            self._close_round(key)
        await self._notify()

    async def rest(self, rank: int, waits: bool) -> None:
        """A worker comes to a barrier, or goes on behind it: meanwhile no worker ahead of it waits."""
        self._apply("rest", [rank, waits])
        await self._notify()

    async def barrier(self, number: int, rank: int, text: str = "barrier") -> None:
        """Returns when all active workers have called it with this number; text: what they do there.

        Raises DistributedError, for each of them, if the texts differ.
        """
        texts = self.barriers.setdefault(number, {})
        texts[rank] = text
        await self._notify()
        try:
            await self._wait(
                lambda: number <= self.passed or self._expected() <= texts.keys(),
                lambda: (text.partition(" ")[0], self._expected() - texts.keys()),
            )
        except CollectiveTimeout:
            texts.pop(rank, None)
            raise
        if number > self.passed:
            self._apply("passed", [number, _disagreement(texts) if len(set(texts.values())) > 1 else None])
        self.barriers.pop(number, None)
        if number in self.disagreements:
            raise DistributedError(self.disagreements[number])

    async def meeting(self) -> dict[int, str]:
        """The workers that wait for others in a barrier, and what they do there."""
        open_ones = (texts for number, texts in self.barriers.items() if number > self.passed)
        return {rank: text for texts in open_ones for rank, text in texts.items()}

    async def give_up(
        self, worker: str, rank: int, pushes: Sequence[tuple[Key, int]], meeting: Mapping[int, str]
    ) -> None:
        """Let rounds of pushes fail if all that they wait for are in `meeting`, where they wait for this worker."""
        for key, number in pushes:
            round_ = self.rounds.get(key, {})
            missing = self._expected() - round_.keys()
            is_open = rank in round_ and round_[rank][:2] == (worker, number)
            if is_open and missing and missing <= meeting.keys():
                for other in missing:
                    round_[other] = ("", 0, _Refused(f"waits in {meeting[other].partition(' ')[0]}"))
                self._close_round(key)
        await self._notify()

    def _expected(self) -> set[int]:
        """The ranks that rounds and barriers wait for: those that are there, and those that are still to come."""
        return set(self.active) | set(range(self.workers)) - self.joined

    def _do_member(self, value: Any) -> None:
        rank, name = value
        self.joined.add(rank)
        self.idle.discard(rank)
        if name is None or name != self.active.get(rank):  # a process may have several stores
            self.ended.pop(rank, None)
            for pushes in self.rounds.values():
                pushes.pop(rank, None)
        if name is None:
            self.active.pop(rank, None)
        else:
            self.active[rank] = name
        for clocks in self.clocks.values():
            clocks.pop(rank, None)
            if name is not None:
                clocks[rank] = max(clocks.values(), default=0)

    def _do_rest(self, value: Any) -> None:
        rank, waits = value
        if waits:
            self.idle.add(rank)
            return
        self.idle.discard(rank)
        for clocks in self.clocks.values():  # all have come to the same point
            clocks[rank] = max(clocks.values(), default=0)

    def _do_passed(self, value: Any) -> None:
        number, disagreement = value
        self.passed = max(self.passed, number)
        if disagreement is not None:
            self.disagreements[number] = disagreement

    # Keys.

    async def init(self, key: Key, like: tuple[str, tuple[int, ...]], value: Any, rank: int) -> bool:
        """The value of the first rank that is there is taken; the others, whose value is None, wait for it.

        like: the type and shape of each. Gives False if this worker has become the first one: it calls again with its
        value. Raises ValueError if the key is there and is not like that.
        """
        if value is None:
            await self._wait(
                lambda: key in self.versions or rank == min(self._expected(), default=rank),
                lambda: (f"init of {key!r}", {min(self._expected())}),
            )
            if key not in self.versions:
                return False
        elif key not in self.versions:
            self._do_init(key, value)
            self._record({"do": "init", "key": key}, [value])
            await self._notify()
        stored = self.store._stored[key]
        if (stored.dtype.name, tuple(stored.shape)) != (like[0], tuple(like[1])):
            raise ValueError(
                f"init: the key {key!r} is {stored.dtype}{list(stored.shape)} on the server, "
                f"the value {like[0]}{list(like[1])}"
            )
        return True

    async def configure(self, what: str, value: Any) -> None:
        """The updater or the compression, as plain data."""
        self._apply(what, value)

    async def exchange(
        self, worker: str, rank: int, pushes: Sequence[Pushed] = (), pulls: Sequence[Pulled] = ()
    ) -> list[Any]:
        """Make pushes, each once however often it is sent, then pulls; gives what is pulled.

        Returns when all rounds of the pushes are over; a pull of "dist_ssp" waits for the slowest workers. Raises what
        the first push that failed has raised, when all have ended; a push that is refused raises nothing.
        """
        error: Exception | None = None
        for each in pushes:
            try:
                self._accept(worker, rank, *each)
            except Exception as problem:
                error = error or problem
        if pushes:
            await self._notify()
            await self._until_ended(worker, rank, [(key, number) for key, number, *_ in pushes])
            for key, number, _, form in pushes:
                if form["kind"] != "refused":
                    error = error or self._failure(worker, rank, key, number)
        if error is not None:
            raise error
        return [await self._pull(key, rank, rows) for key, rows in pulls]

    def _accept(
        self, worker: str, rank: int, key: Key, number: int, parts: Any, form: Mapping[str, Any]
    ) -> None:
        """Apply a push, or let it take part in its round, unless that has happened before."""
        if key not in self.versions:
            raise KeyError(f"push: no key {key!r} was initialised on the server")
        if number <= self._ended(rank, worker, key)[0]:
            return
        if self.mode != "dist_sync_ps":
            self._commit(key, [(worker, number, rank)], self._decode(key, parts, form))
            return
        try:
            pushed = self._decode(key, parts, form)
        except Exception as error:
            pushed = _Refused(str(error))
        self.rounds.setdefault(key, {})[rank] = (worker, number, pushed)
        self._close_round(key)

    def _ended(self, rank: int, worker: str, key: Key) -> tuple[int, str | None]:
        """The last push of a key that has ended, and why it has failed, or None."""
        return self.ended.get(rank, {}).get(worker, {}).get(key, (0, None))

    async def _until_ended(self, worker: str, rank: int, pushes: Sequence[tuple[Key, int]]) -> None:
        """Wait for the rounds of pushes."""
        open_pushes = list(pushes)

        def is_over() -> bool:
            open_pushes[:] = [
                (key, number)
                for key, number in open_pushes
                if self.rounds.get(key, {}).get(rank, ())[:2] == (worker, number)
            ]
            return not open_pushes

        def waits_for() -> tuple[str, set[int]]:
            key, _ = open_pushes[0]
            return f"push of {key!r}", self._expected() - set(self.rounds.get(key, ()))

        try:
            await self._wait(is_over, waits_for)
        except CollectiveTimeout:
            for key, _ in open_pushes:
                self.rounds[key].pop(rank, None)
            raise

    def _failure(self, worker: str, rank: int, key: Key, number: int) -> Exception | None:
        """The error of a push whose round is over, or None."""
        last, reason = self._ended(rank, worker, key)
        if last == number and reason is not None:
            return DistributedError(reason)
        if last < number and self.mode == "dist_sync_ps" and key in self.versions:
            return DistributedError(f"push of {key!r}: the worker has left before the round was over")
        return None

    async def _pull(self, key: Key, rank: int, rows: Any = None) -> Any:
        """The stored value; waits for the slowest workers if the kind is stale synchronous."""
        if key not in self.versions:
            raise KeyError(f"pull: no key {key!r} was initialised on the server")
        if self.mode == "dist_ssp":
            await self._wait(
                lambda: not self._behind(key, rank), lambda: (f"pull of {key!r}", self._behind(key, rank))
            )
        stored = self.store._stored[key].numpy()
        return self._copy(stored) if rows is None else stored[rows]

    def _copy(self, stored: Any) -> Any:
        """A copy for an answer: the next update may already write the stored array.

        It is in memory that an earlier answer has given back: new memory takes longer than the copy.
        """
        free = self._buffers.setdefault(stored.nbytes, [])
        buffer = free.pop() if free else np.empty(stored.nbytes, "uint8")
        answer = np.asarray(_LentBuffer(buffer, free)).view(stored.dtype).reshape(stored.shape)
        np.copyto(answer, stored)
        return answer

    def _behind(self, key: Key, rank: int) -> set[int]:
        """The workers that are more than `staleness` pushes behind this one."""
        clocks = self.clocks.get(key, {})
        clock = clocks.get(rank, 0)
        return {r for r in self._expected() - self.idle if clocks.get(r, 0) < clock - self.staleness}

    async def state(self) -> dict[str, Any]:
        """For tests and people: versions, the workers present, how much is in the journal."""
        return {
            "versions": dict(self.versions),
            "active": dict(self.active),
            "records": self.journal.number if self.journal else 0,
            "pid": os.getpid(),
            "began": self.began,
        }

    async def optimizer_state(self) -> Any:
        """The optimizer's state as NumPy arrays."""
        if self.store._optimizer is None:
            raise ValueError("save_optimizer_states: the store has no optimizer; call set_optimizer first")
        return _plain(self.store._optimizer.state_dict())

    async def load_optimizer_state(self, state: Any) -> None:
        """Go on from such a state."""
        if self.store._optimizer is None:
            raise ValueError("load_optimizer_states: the store has no optimizer; call set_optimizer first")
        self.store._optimizer.load_state_dict(_tensors(state))
        self._snapshot()

    # Updates.

    def _decode(self, key: Key, parts: Any, form: Mapping[str, Any]) -> Any:
        """The pushed value for the updater, from what a worker has sent. Raises ValueError if it does not fit."""
        stored = self.store._stored[key]
        kind = form["kind"]
        if kind == "refused":
            return _Refused(form["reason"])
        if kind == "rows":
            return RowSparse(parts[0], asarray(parts[1].copy()), stored.shape)
        if kind == "compressed":
            if self.codec is None:
                raise ValueError("push: the value is compressed, but set_gradient_compression was not called")
            with no_grad():
                x = self.codec.decode([asarray(part.copy()) for part in parts], stored.size)
                return x.reshape(stored.shape)
        (value,) = parts
        if value.shape != tuple(stored.shape) or value.dtype.name != stored.dtype.name:
            raise ValueError(
                f"push: the key {key!r} is {stored.dtype}{list(stored.shape)} on the server, "
                f"the value {value.dtype.name}{list(value.shape)}"
            )
        return value

    def _close_round(self, key: Key) -> None:
        """Commit a round if all active workers have pushed."""
        pushes = self.rounds.get(key)
        if not pushes or not self._expected() <= set(pushes):
            return
        del self.rounds[key]
        ordered = sorted(pushes.items())
        values = [value for _, (*_, value) in ordered]
        pushers = [(worker, number, rank) for rank, (worker, number, _) in ordered]
        try:
            if any(isinstance(v, _Refused) for v in values):
                raise DistributedError(_refusals(key, pushes))
            if len({isinstance(v, RowSparse) for v in values}) > 1:
                raise ValueError(f"push: ranks push rows and whole arrays of the key {key!r}")
            with no_grad():
                self._commit(key, pushers, _sum(values))
        except Exception as error:
            by = [[worker, key, number, rank] for worker, number, rank in pushers]
            self._apply("failed", {"by": by, "reason": str(error)})

    def _commit(self, key: Key, pushers: Sequence[tuple[str, int, int]], pushed: Any) -> None:
        if self.mode != "dist_sync_ps" and self.updater is None:
            raise ValueError(f"push: {self.mode} needs an optimizer on the servers; call set_optimizer first")
        header = {"do": "push", "key": key, "by": [list(each) for each in pushers]}
        # Applied first: an update that fails is in no journal. Nothing else runs before the record is written.
        self._do_push(key, pushers, pushed)
        if isinstance(pushed, RowSparse):
            self._record({**header, "shape": list(pushed.shape)}, [pushed.rows, pushed.values.numpy()])
        else:
            self._record(header, [pushed.numpy() if isinstance(pushed, Tensor) else pushed])
        self.updates_since_snapshot += 1
        is_due = self.updates_since_snapshot >= self.every * max(len(self.versions), 1)
        if self.journal is not None and (is_due or self.journal.size_bytes >= MAX_JOURNAL_BYTES):
            self._snapshot()

    def _do_push(self, key: Key, pushers: Sequence[Sequence[Any]], pushed: Any) -> None:
        with no_grad():
            x = pushed
            if isinstance(pushed, np.ndarray):  # optimizers only read it; others may keep it
                x = asarray(pushed if self.store._optimizer is not None else pushed.copy())
            self.store._update(key, x)
            self.store._stored[key].wait()
        self.versions[key] += 1
        for worker, number, rank in pushers:
            self._end(worker, key, number, rank)
            clocks = self.clocks.setdefault(key, {})
            clocks[rank] = clocks.get(rank, 0) + 1

    def _end(self, worker: str, key: Key, number: int, rank: int, reason: str | None = None) -> None:
        if worker:  # not of a rank that has not pushed
            self.ended.setdefault(rank, {}).setdefault(worker, {})[key] = (number, reason)

    def _do_failed(self, value: Any) -> None:
        for worker, key, number, rank in value["by"]:
            self._end(worker, key, number, rank, value["reason"])

    def _do_init(self, key: Key, value: Any) -> None:
        self.store.init(key, asarray(np.array(value)))
        self.versions[key] = 0

    def _do_updater(self, value: Any) -> None:
        self.updater = value
        target = _import(value["name"])
        if value["kind"] == "updater":
            self.store.set_updater(target)
        else:
            self.store.set_optimizer(target([tensor([0.0])], **value["options"]))
            optimizer = self.store._optimizer
            assert optimizer is not None
            for key, options in value["keys"]:
                if key in self.store._stored:
                    group = optimizer.of(key, self.store._stored[key]).param_groups[0]
                    group.update(options)

    def _do_compression(self, value: Any) -> None:
        self.compression, self.codec = value, make_codec(value)

    # Persistence.

    def _apply(self, what: str, value: Any) -> None:
        """Make a change that is plain data, and record it: _do_member, _do_rest, ..."""
        getattr(self, f"_do_{what}")(value)
        self._record({"do": what, "value": value}, [])

    def _record(self, header: Mapping[str, Any], arrays: Sequence[Any]) -> None:
        if self.journal is not None:
            self.journal.append(header, arrays)

    def _snapshot(self) -> None:
        journal = self.journal
        if journal is None:
            return
        values = {
            "number": journal.number,
            "mode": self.mode,
            "versions": [[key, version] for key, version in self.versions.items()],
            "ended": [
                [worker, key, number, rank, reason]
                for rank, workers in self.ended.items()
                for worker, keys in workers.items()
                for key, (number, reason) in keys.items()
            ],
            "active": [[rank, name] for rank, name in self.active.items()],
            "seen": sorted(self.joined),
            "idle": sorted(self.idle),
            "passed": self.passed,
            "disagreements": [[number, text] for number, text in self.disagreements.items()],
            "clocks": [[key, [[r, n] for r, n in ranks.items()]] for key, ranks in self.clocks.items()],
            "updater": self.updater,
            "compression": self.compression,
        }
        temporary = journal.folder / f"snapshot.{os.getpid()}.new"
        checkpoint.save(temporary, values, store=_State(self.store))
        os.replace(temporary, journal.snapshot)
        journal.restart()
        self.updates_since_snapshot = 0

    def _restore(self, journal: Journal) -> None:
        number = 0
        if journal.snapshot.exists():
            state = _State(self.store)
            values = checkpoint.load(journal.snapshot, random_state=False, store=state)
            number = values["number"]
            self.versions = dict(values["versions"])
            for each in values["ended"]:
                self._end(*each)
            self.active = {rank: name for rank, name in values["active"]}  # noqa: C416
            self.joined, self.idle = set(values["seen"]), set(values["idle"])
            self.passed = values["passed"]
            self.disagreements = dict(values["disagreements"])
            self.clocks = {key: dict(ranks) for key, ranks in values["clocks"]}
            if values["compression"] is not None:
                self._do_compression(values["compression"])
            if values["updater"] is not None:
                self._do_updater(values["updater"])
            state.load_optimizer()
        for header, arrays in journal.records(number):
            self._replay(header, arrays)

    def _replay(self, header: Mapping[str, Any], arrays: list[Any]) -> None:
        match header["do"]:
            case "init":
                self._do_init(header["key"], arrays[0])
            case "push" if "shape" in header:
                rows = RowSparse(arrays[0], asarray(arrays[1].copy()), header["shape"])
                self._do_push(header["key"], header["by"], rows)
            case "push":
                self._do_push(header["key"], header["by"], arrays[0])
            case what:
                getattr(self, f"_do_{what}")(header["value"])
        self.updates_since_snapshot += 1

    # Waiting.

    def _condition(self) -> asyncio.Condition:
        if self._changed is None:
            self._changed = asyncio.Condition()
        return self._changed

    async def _notify(self) -> None:
        async with self._condition():
            self._condition().notify_all()

    async def _wait(self, is_ready: Callable[[], bool], what: Callable[[], tuple[str, set[int]]]) -> None:
        """Until ready; workers that keep others waiting for long are named on stderr.

        Raises CollectiveTimeout, which names them, too, after WEFT_COLLECTIVE_TIMEOUT_S.
        """
        period: float = flags.get("WEFT_STALL_S")
        limit: float = flags.get("WEFT_COLLECTIVE_TIMEOUT_S")
        begin = time.monotonic()
        async with self._condition():
            while not is_ready():
                waited = time.monotonic() - begin
                try:
                    await asyncio.wait_for(self._condition().wait(), max(min(period, limit - waited), 0.01))
                except TimeoutError:
                    if is_ready():
                        return
                    text, missing = what()
                    names = "; ".join(
                        f"rank {r} ({self.active.get(r, 'not there yet')})" for r in sorted(missing)
                    )
                    waited = time.monotonic() - begin
                    if waited > limit:
                        raise CollectiveTimeout(
                            f"{text}: not all workers came within {limit:g} s: {names or 'none is missing'}"
                        ) from None
                    sys.stderr.write(
                        f"weft: the server has waited {waited:.0f} s in {text} for {names or 'no worker'}\n"
                    )
                    sys.stderr.flush()


class _LentBuffer:
    """Owns the memory of an array, and gives it back when the array and all views of it have gone."""

    def __init__(self, buffer: Any, free: list[Any]) -> None:
        self.buffer, self.free = buffer, free
        self.__array_interface__ = buffer.__array_interface__

    def __del__(self) -> None:
        if len(self.free) < MAX_BUFFERS:
            self.free.append(self.buffer)


class _State:
    """The content of a LocalStore, for checkpoints."""

    def __init__(self, store: LocalStore) -> None:
        self.store = store
        self.optimizer: Any = None

    def state_dict(self) -> dict[str, Any]:
        optimizer: StoreOptimizer | None = self.store._optimizer
        return {
            "keys": list(self.store._stored),
            "values": list(self.store._stored.values()),
            "optimizer": None if optimizer is None else optimizer.state_dict(),
        }

    def load_state_dict(self, state: Any) -> None:
        for key, value in zip(state["keys"], state["values"], strict=True):
            self.store.init(key, value)
        self.optimizer = state["optimizer"]

    def load_optimizer(self) -> None:
        """After the updater is known."""
        if self.optimizer is not None and self.store._optimizer is not None:
            self.store._optimizer.load_state_dict(self.optimizer)


def _disagreement(texts: Mapping[int, str]) -> str:
    """The text of an error: of what ranks have called, the first part that differs."""
    called = {rank: text.split("; ") for rank, text in sorted(texts.items())}
    parts = next(
        parts
        for parts in itertools.zip_longest(*called.values(), fillvalue="nothing more")
        if len(set(parts)) > 1
    )
    lines = "".join(f"\n  rank {rank}: {part}" for rank, part in zip(called, parts, strict=True))
    return f"{texts[min(texts)].partition(' ')[0]}: ranks disagree:{lines}"


def _refusals(key: Key, pushes: Mapping[int, tuple[str, int, Any]]) -> str:
    """The text of an error: which ranks could not take part in a round."""
    values = [(rank, value) for rank, (*_, value) in sorted(pushes.items())]
    lines = "".join(f"\n  rank {rank}: {v.reason}" for rank, v in values if isinstance(v, _Refused))
    return f"push of {key!r}: a rank could not take part:{lines}"


def _sum(values: Sequence[Any]) -> Any:
    """In the order of ranks."""
    if isinstance(values[0], RowSparse):
        return RowSparse.summed(values)
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.numpy().copy()
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return asarray(value.copy())
    if isinstance(value, Mapping):
        return {key: _tensors(each) for key, each in value.items()}
    return [_tensors(each) for each in value] if isinstance(value, list | tuple) else value


def _import(name: str) -> Any:
    module, _, path = name.partition(":")
    target: Any = importlib.import_module(module)
    for part in path.split("."):
        target = getattr(target, part)
    return target


def reference_of(thing: Any) -> str:
    """ "module:name" of a class or function that a server can import. Raises ValueError if it cannot."""
    module, name = getattr(thing, "__module__", ""), getattr(thing, "__qualname__", "")
    if not module or module == "__main__" or "<" in name:
        raise ValueError(
            f"set_updater: servers import what they call, so that they can go on after a restart: "
            f"{name or thing!r} must be at the top of a module, not of the script"
        )
    if isinstance(thing, type) and not issubclass(thing, Optimizer):
        raise TypeError(f"set_optimizer: {name} is not an optimizer")
    return f"{module}:{name}"
