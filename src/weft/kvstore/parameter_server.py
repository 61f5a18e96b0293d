"""Kinds "dist_sync_ps", "dist_async" and "dist_ssp": keys are on parameter servers, which are actors of Ray.

Small arrays are whole on one server, large ones are divided among all. A push or pull is an asynchronous operation of
the engine: it begins when its arrays are ready, holds no worker while the servers work, and comes after the pushes and
pulls of its keys that this worker requested before. Keys of a list go in buckets: one operation, and one call of each
server. A pull that is requested before the push in front of it has begun goes with that: one call of the server does
both.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from weft import _core
from weft.arrays.creation import empty
from weft.arrays.tensor import Tensor
from weft.base import events, flags, process
from weft.base.errors import DTypeError, EngineError
from weft.base.users_line import users_line
from weft.distributed.collective import type_text
from weft.distributed.compression import Codec, make_codec
from weft.distributed.errors import DistributedError
from weft.distributed.gradients import BUCKET_BYTES
from weft.distributed.world import world
from weft.engine import default_engine
from weft.gradients.gradient import no_grad
from weft.kvstore.base import Key, KVStore, check_like, new_keys, pairs_of, register, rows_of, unknown_key
from weft.kvstore.local import check_optimizer, unique_rows
from weft.kvstore.pieces import DIVIDE_FROM, Piece, pieces_of
from weft.kvstore.ray_cluster import connect, job_name, server_actors
from weft.kvstore.server import MODES, Pulled, Pushed, reference_of
from weft.recording.dependence import happens_once
from weft.sparse import RowSparse

__all__ = ["ParameterServerStore"]


class _KeyState:
    """This worker's state of a key."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, pieces: list[Piece]) -> None:
        self.shape, self.dtype, self.pieces = shape, dtype, pieces
        # Keeps pushes and pulls of the key in order: pushes overwrite it and pulls change it, so that what is pulled
        # behind a push that has failed has failed as well, until the next push.
        self.turn = default_engine().new_variable()
        self.residual: list[Tensor | None] = []
        self.number = 0  # of the last push
        self.bucket: _Push | None = None  # of the last push
        self.takes_pull = False  # no pull has come behind it

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class _Push:
    """A push of some keys, which pulls of them may go with."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_begun = False
        self.pulls: set[Key] = set()
        self.answers: dict[tuple[Key, int], Any] = {}  # by key and server

    def take_along(self, key: Key) -> bool:
        """Let a pull go with the push, unless that has begun; returns whether it does."""
        with self.lock:
            if not self.is_begun:
                self.pulls.add(key)
            return not self.is_begun

    def begin(self) -> set[Key]:
        """Begin the push; returns the keys that are pulled with it."""
        with self.lock:
            self.is_begun = True
            return self.pulls


@register(*MODES)
class ParameterServerStore(KVStore):
    """Kinds of the module. See KVStore.

    dist_sync_ps: a push is the sum of all workers', applied once all have pushed. If one of them cannot push, all get
    an error. dist_async: each push is applied when it comes. dist_ssp: as dist_async, but a pull waits
    while another worker is more than `staleness` pushes of the key behind. The last two need an optimizer.
    servers: how many. snapshots: a folder for what servers survive by, which all machines of servers must see; None:
    one below the folder for temporary files. every: updates of each key between snapshots. sync: survive a power
    failure, too, which makes each update wait for the disk. big: arrays of so many elements are divided
    among all servers. The first worker's options count.
    """

    takes_kind: ClassVar[bool] = True

    def __init__(
        self,
        kind: str = "dist_async",
        *,
        servers: int = 1,
        staleness: int = 3,
        snapshots: str | os.PathLike[str] | None = None,
        every: int = 200,
        sync: bool = False,
        big: int = DIVIDE_FROM,
    ) -> None:
        for name, value, minimum in (
            ("servers", servers, 1),
            ("staleness", staleness, 0),
            ("every", every, 1),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
                raise ValueError(f"{kind}: {name} must be an integer of at least {minimum}, got {value!r}")
        self.type = kind  # type: ignore[misc]
        self._world = world()
        self._ray = connect()
        self._big = big
        job = job_name()
        folder = os.fspath(snapshots) if snapshots is not None else os.path.join(tempfile.gettempdir(), job)
        arguments = (kind, self._world.size, every, staleness, sync)
        self._servers = server_actors(job, servers, arguments, folder)
        self._worker = f"{self._world.rank}-{uuid.uuid4().hex[:12]}"
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        self._keys: dict[Key, _KeyState] = {}
        self._codec: Codec | None = None
        self._first: dict[Key, Any] = {}
        self._optimizer: Any = None
        self._calls: dict[object, tuple[_Request, int, float]] = {}  # that are under way
        name = f"{socket.gethostname()}, pid {os.getpid()}"
        self._job = job
        self._call_all("join", self._world.rank, name)
        _open.append(self)
        if len(_open) == 1:
            atexit.register(close_all)
            process.fail_at_end(lambda: bool(_unread))
        threading.Thread(target=self._watch, name="weft-servers", daemon=True).start()

    @property
    def rank(self) -> int:
        return self._world.rank

    @property
    def num_workers(self) -> int:
        return self._world.size

    # Talking to servers.

    def _call_all(self, method: str, *args: Any) -> list[Any]:
        return [self._answer(each) for each in [getattr(s, method).remote(*args) for s in self._servers]]

    def _answer(self, reference: Any) -> Any:
        """The answer of a server. Raises what it has raised."""
        try:
            return self._ray.get(reference)
        except Exception as error:
            raise _cause(error) from None

    def _call(
        self,
        request: _Request,
        server: int,
        pushes: Sequence[Pushed],
        pulls: Sequence[Pulled],
        then: Callable[[list[Any]], None],
        complete: Any,
    ) -> None:
        """Call exchange of a server; then(answers) runs when it has answered, complete(error) at the end."""
        key, began = object(), time.perf_counter_ns()
        self._calls[key] = (request, server, time.monotonic())

        def answered(future: Any) -> None:
            self._calls.pop(key, None)
            try:
                answers = future.result()
                then(answers)
            except Exception as error:
                complete(_cause(error))
            else:
                arrays = [*answers, *(x for _, _, parts, _ in pushes for x in parts)]
                times = (request.requested_ns, began, began, time.perf_counter_ns())
                size = sum(x.nbytes for x in arrays)
                events.exchanged(f"{request.text}: server {server}", request.where, size, times)
                complete()

        try:
            reference = self._servers[server].exchange.remote(self._worker, self.rank, pushes, pulls)
            reference.future().add_done_callback(answered)
        except Exception as error:
            self._calls.pop(key, None)
            complete(error)

    def _watch(self) -> None:
        """Name servers that do not answer for long, on stderr; end rounds that cannot end by themselves."""
        period: float = flags.get("WEFT_STALL_S")
        reported: dict[object, float] = {}
        while not self._is_closed.wait(min(max(period / 4, 0.05), 1.0)):
            now = time.monotonic()
            calls = dict(self._calls)
            reported = {key: when for key, when in reported.items() if key in calls}
            for key, (request, server, begin) in calls.items():
                if now - max(begin, reported.get(key, 0.0)) > period:
                    reported[key] = now
                    sys.stderr.write(
                        f"weft: rank {self.rank} has waited {now - begin:.0f} s in {request.text} for server {server}\n"
                    )
                    sys.stderr.flush()
                    if request.pushes and self.type == "dist_sync_ps":
                        self._give_up(request.pushes, server)

    def _give_up(self, pushes: Sequence[tuple[Key, int]], server: int) -> None:
        """Let rounds fail if the workers that they wait for wait in a barrier.

        They wait for this worker there, which comes to no barrier before this push has ended. So what the first server
        says of them still holds when the other one, which has the round, is queried.
        """
        with contextlib.suppress(Exception):
            meeting = self._ray.get(self._servers[0].meeting.remote())
            self._servers[server].give_up.remote(self._worker, self.rank, pushes, meeting)

    # Keys.

    def init(self, key: Key | Sequence[Key], value: Any) -> None:
        try:
            pairs = new_keys("init", list(self._keys), key, value)
            arrays = [first.numpy() for _, (first, *_) in pairs]
        except Exception as error:
            with contextlib.suppress(DistributedError):  # what the others get
                self._agree(f"init failed: {type(error).__name__}: {error}")
            raise
        self._agree("init " + "; ".join(f"{k!r} {type_text(first)}" for k, (first, *_) in pairs))
        waiting: list[Any] = []
        for (k, (first, *_)), array in zip(pairs, arrays, strict=True):
            shape = tuple(first.shape)
            state = _KeyState(shape, first.dtype, pieces_of(k, shape, len(self._servers), self._big))
            for piece in state.pieces:
                part = np.ascontiguousarray(piece.of(array))
                arguments = (k, (first.dtype.name, part.shape))
                server = self._servers[piece.server]
                value_part = part if self.rank == 0 else None
                waiting.append(
                    (server, arguments, part, server.init.remote(*arguments, value_part, self.rank))
                )
            self._keys[k] = state
            self._first[k] = first
        for server, arguments, part, reference in waiting:
            if not self._answer(reference):  # those before have died
                self._answer(server.init.remote(*arguments, part, self.rank))

    def _states_of(self, name: str, key: Any, value: Any) -> list[tuple[Key, _KeyState, list[Any]]]:
        happens_once(f"{name} talks to parameter servers")
        states = []
        for k, values in pairs_of(name, key, value, needs_value=name != "pull"):
            if k not in self._keys:
                raise unknown_key(name, k, self._keys)
            for v in values:
                check_like(name, k, v, self._keys[k])
            states.append((k, self._keys[k], values))
        return states

    def push(self, key: Key | Sequence[Key], value: Any, priority: int = 0) -> None:
        with no_grad():
            states = self._check_push(key, value)
            for bucket in _buckets(states):
                sends = [_Send(k, state, self._sends(state, values)) for k, state, values in bucket]
                self._send(sends, priority)

    def _sends(self, state: _KeyState, values: list[Any]) -> list[Sent]:
        """What goes to each server."""
        if isinstance(values[0], RowSparse):
            return self._send_rows(state, RowSparse.summed(values))
        total = values[0]
        for v in values[1:]:
            total = total + v.to_device(total.device)
        if self._codec is not None:
            return self._send_compressed(state, total)
        return [(piece, [total], piece.of, {"kind": "dense"}) for piece in state.pieces]

    def _check_push(self, key: Any, value: Any) -> list[tuple[Key, _KeyState, list[Any]]]:
        """The keys with what is pushed. If that cannot be, the other workers' pushes of these keys fail as well."""
        try:
            states = self._states_of("push", key, value)
            for k, state, values in states:
                self._check_pushed(k, state, values)
            return states
        except Exception as error:
            keys = key if isinstance(key, list | tuple) else [key]
            known = [k for k in dict.fromkeys(keys) if isinstance(k, int | str) and k in self._keys]
            refused = [
                _Send(k, self._keys[k], [(p, (), None, {}) for p in self._keys[k].pieces]) for k in known
            ]
            if refused and self.type == "dist_sync_ps":
                self._send(refused, 0, f"{type(error).__name__}: {error}")
            raise

    def _check_pushed(self, key: Key, state: _KeyState, values: list[Any]) -> None:
        if len({type(v) for v in values}) > 1:
            raise TypeError(f"push: the values of the key {key!r} are all Tensors or all RowSparse")
        if isinstance(values[0], RowSparse):
            if any(not piece.whole and not piece.by_rows for piece in state.pieces):
                raise ValueError(f"push: the key {key!r} is divided by elements and takes no rows")
        elif self._codec is not None and state.dtype.name != "float32":
            raise DTypeError(
                f"push: only float32 values are compressed, the key {key!r} has type {state.dtype}"
            )

    def _send_rows(self, state: _KeyState, x: RowSparse) -> list[Sent]:
        sends: list[Sent] = []
        for piece in state.pieces:
            low, high = np.searchsorted(x.rows, [piece.begin, piece.end])
            rows = x.rows[low:high] - piece.begin
            values = x.values[int(low) : int(high)]
            sends.append((piece, [values], None, {"kind": "rows", "rows": rows}))
        return sends

    def _send_compressed(self, state: _KeyState, x: Tensor) -> list[Sent]:
        codec = self._codec
        assert codec is not None
        flat = x.reshape(-1)
        row = x.size // max(x.shape[0], 1) if x.shape else 1
        parts = []
        for piece in state.pieces:
            scale = row if piece.by_rows else 1
            parts.append(flat if piece.whole else flat[piece.begin * scale : piece.end * scale])
        if not state.residual:
            state.residual = [codec.new_residual(part) for part in parts]
        return [
            (piece, codec.encode(part, residual), None, {"kind": "compressed"})
            for piece, part, residual in zip(state.pieces, parts, state.residual, strict=True)
        ]

    def _send(self, sends: Sequence[_Send], priority: int, refusal: str = "") -> None:
        """Push one operation that sends some keys, and ends when the servers have committed them.

        Where what it reads has failed it still runs, and sends that this worker cannot push: so the other workers get
        an error, and its next push comes behind that. refusal: why it cannot in any case.
        """
        with self._lock:
            for each in sends:
                each.state.number += 1
                each.number = each.state.number
        aliases = [_core.alias(x, keep_past=False) for each in sends for _, xs, *_ in each.sends for x in xs]
        request = _Request("push", [each.key for each in sends], [(each.key, each.number) for each in sends])
        push = _Push()

        def start(run_context: Any, on_complete: Any) -> None:
            error = run_context.error
            reason = refusal or (str(error).partition("\n")[0] or "an error" if error is not None else "")
            pulls = set() if reason else push.begin()
            if reason and self.type != "dist_sync_ps":
                on_complete()
                return
            by_server: dict[int, tuple[list[Pushed], list[Pulled]]] = {}
            arrays = iter([] if reason else [x.numpy() for x in aliases])
            for each in sends:
                for piece, xs, take, form in each.sends:
                    if reason:
                        parts, form = [], {"kind": "refused", "reason": reason}
                    else:
                        parts = [next(arrays) for _ in xs]
                        parts = [np.ascontiguousarray(part if take is None else take(part)) for part in parts]
                        parts = [form["rows"], *parts] if form["kind"] == "rows" else parts
                    pushed, pulled = by_server.setdefault(piece.server, ([], []))
                    pushed.append(
                        (each.key, each.number, parts, {k: v for k, v in form.items() if k != "rows"})
                    )
                    if each.key in pulls:
                        pulled.append((each.key, None))

            countdown = _Countdown(len(by_server), on_complete)
            for server, (pushed, pulled) in by_server.items():

                def keep(answers: list[Any], server: int = server, pulled: list[Pulled] = pulled) -> None:
                    for (key, _), answer in zip(pulled, answers, strict=True):
                        push.answers[key, server] = answer

                self._call(request, server, pushed, pulled, keep, countdown)

        turns = [each.state.turn for each in sends]
        engine = default_engine()
        engine.push_async(start, None, aliases, (), turns, priority, request.text, run_on_error=True)
        # It has failed if what it reads has: with the error of that.
        engine.push(lambda _: None, None, aliases, turns, name=request.text)
        for each in sends:
            each.state.bucket, each.state.takes_pull = push, not refusal

    def pull(self, key: Key | Sequence[Key], out: Any = None, priority: int = 0) -> Any:
        states = self._states_of("pull", key, out)
        targets = [(k, state, outs or [empty(state.shape, dtype=state.dtype)]) for k, state, outs in states]
        if any(isinstance(y, RowSparse) for *_, ys in targets for y in ys):
            raise TypeError("pull: out is a Tensor; row_sparse_pull gives rows")
        # Keys that were pushed by one operation are pulled by one: what fails has failed for all of these alone.
        by_push: dict[int, list[tuple[Key, _KeyState, list[Tensor]]]] = {}
        for each in targets:
            by_push.setdefault(id(each[1].bucket), []).append(each)
        for group in by_push.values():
            for bucket in _buckets(group):
                self._receive(bucket, priority)
        if out is not None:
            return out
        outputs = [ys[0] for *_, ys in targets]
        return outputs if isinstance(key, list | tuple) else outputs[0]

    def _receive(self, bucket: list[tuple[Key, _KeyState, list[Tensor]]], priority: int) -> None:
        request = _Request("pull", [k for k, *_ in bucket])
        answered: dict[Key, _Push] = {}
        for k, state, ys in bucket:
            for y in ys:
                _core.overwrite(y, "pull")
            if state.takes_pull and state.bucket is not None and state.bucket.take_along(k):
                answered[k] = state.bucket
            state.takes_pull = False

        def start(_: Any, on_complete: Any) -> None:
            by_server: dict[int, list[tuple[Key, Piece, list[Any]]]] = {}
            for k, state, ys in bucket:
                arrays = [y.numpy() for y in ys]
                for piece in state.pieces:
                    if k in answered:
                        piece.write(arrays, answered[k].answers.pop((k, piece.server)))
                    else:
                        by_server.setdefault(piece.server, []).append((k, piece, arrays))
            if not by_server:
                on_complete()
                return
            countdown = _Countdown(len(by_server), on_complete)
            for server, parts in by_server.items():

                def write(answers: list[Any], parts: Any = parts) -> None:
                    for (_, piece, arrays), answer in zip(parts, answers, strict=True):
                        piece.write(arrays, answer)

                self._call(request, server, (), [(k, None) for k, *_ in parts], write, countdown)

        turns, targets = [state.turn for _, state, _ in bucket], [y for *_, ys in bucket for y in ys]
        default_engine().push_async(start, None, (), turns, targets, priority, request.text)

    def row_sparse_pull(
        self, key: Key | Sequence[Key], out: Any = None, priority: int = 0, row_ids: Any = None
    ) -> Any:
        rows = [self._pull_rows(*each, priority) for each in rows_of(key, out, row_ids)]
        return rows if isinstance(key, list | tuple) else rows[0]

    def _pull_rows(self, key: Key, out: Tensor | None, row_ids: Any, priority: int) -> Any:
        happens_once("row_sparse_pull talks to parameter servers")
        if key not in self._keys:
            raise unknown_key("row_sparse_pull", key, self._keys)
        state = self._keys[key]
        rows = unique_rows(row_ids, state.shape)
        state.takes_pull = False
        values = empty((rows.size, *state.shape[1:]), dtype=state.dtype)
        request = _Request("row_sparse_pull", [key])

        def start(_: Any, on_complete: Any) -> None:
            countdown = _Countdown(len(state.pieces), on_complete)
            target = values.numpy()
            for piece in state.pieces:
                low, high = np.searchsorted(rows, [piece.begin, piece.end])

                def write(answers: list[Any], low: int = int(low), high: int = int(high)) -> None:
                    (target[low:high],) = answers

                pulls = [(key, rows[low:high] - piece.begin)]
                self._call(request, piece.server, (), pulls, write, countdown)

        default_engine().push_async(start, None, (), [state.turn], [values], priority, request.text)
        if out is None:
            return RowSparse(rows, values, state.shape)
        check_like("row_sparse_pull", key, out, state)
        with no_grad():
            out[RowSparse(rows, values, state.shape).indices] = values
        return out

    # Updating.

    def set_optimizer(self, optimizer: Any) -> None:
        check_optimizer(optimizer)
        groups = optimizer.param_groups
        keys = [
            [k, dict(group)]
            for k, first in self._first.items()
            for group in groups
            if any(p is first for p in group.params)
        ]
        value = {
            "kind": "optimizer",
            "name": reference_of(type(optimizer)),
            "options": dict(groups[0]),
            "keys": keys,
        }
        self._configure("updater", value, f"set_optimizer {value['name']}")
        self._optimizer = type(optimizer)

    def set_updater(self, updater: Callable[[Key, Any, Tensor], Any]) -> None:
        if not callable(updater):
            raise TypeError(f"set_updater: takes a function, got {type(updater).__name__}")
        name = reference_of(updater)
        self._configure("updater", {"kind": "updater", "name": name}, f"set_updater {name}")

    def set_gradient_compression(self, parameters: Mapping[str, Any]) -> None:
        self._codec = make_codec(parameters)
        for state in self._keys.values():
            state.residual = []
        parameters = self._codec.parameters
        self._configure("compression", parameters, f"set_gradient_compression {parameters}")

    def _configure(self, what: str, value: Any, text: str) -> None:
        """Rank 0 sends it to the servers; all wait until they have it."""
        self._finish()
        if self.rank == 0:
            self._call_all("configure", what, value)
        self._agree(text)

    def _finish(self) -> Exception | None:
        """Wait for all pushes and pulls; gives the first error of a last push."""
        first_error = None
        for state in self._keys.values():
            try:
                default_engine().wait_for_var(state.turn)
            except EngineError as error:
                first_error = first_error or error
        return first_error

    def barrier(self) -> None:
        error = self._finish()
        self._agree("barrier")  # the others wait there all the same
        if error is not None:
            raise error

    def _agree(self, text: str) -> None:
        """Wait until all workers do the same. Raises DistributedError, on all of them, if they do not."""
        _barriers[self._job] = _barriers.get(self._job, 0) + 1
        if self.type == "dist_ssp":
            self._call_all("rest", self.rank, True)
        try:
            self._answer(self._servers[0].barrier.remote(_barriers[self._job], self.rank, text))
        finally:
            if self.type == "dist_ssp":
                self._call_all("rest", self.rank, False)

    def save_optimizer_states(self, path: str | os.PathLike[str]) -> None:
        from weft import checkpoint

        self._finish()
        states = self._call_all("optimizer_state")
        checkpoint.save(path, optimizer=_States(states, len(self._servers)))

    def load_optimizer_states(self, path: str | os.PathLike[str]) -> None:
        from weft import checkpoint

        self._finish()
        states = _States([], len(self._servers))
        checkpoint.load(path, random_state=False, optimizer=states)
        pairs = zip(self._servers, states.states, strict=True)
        self._ray.get([server.load_optimizer_state.remote(state) for server, state in pairs])

    def server_states(self) -> list[dict[str, Any]]:
        """The state of each server: committed updates by key, workers, process id."""
        return self._call_all("state")

    def close(self) -> None:
        """Finish, and leave: the other workers wait for this one no longer. Called at the end of the program."""
        self._is_closed.set()
        servers, self._servers = self._servers, []
        if not servers or not self._ray.is_initialized():
            return
        try:
            default_engine().wait_for_all(timeout_s=flags.get("WEFT_EXIT_TIMEOUT_S"))
        except Exception as error:
            sys.stderr.write(f"weft: rank {self.rank}: {error}\n")
            _unread.append(str(error))
        self._ray.get([server.leave.remote(self.rank) for server in servers])

    def is_capable(self, what: str) -> bool:
        return what in ("optimizer", "row_sparse", "compression")


_open: list[ParameterServerStore] = []
_unread: list[str] = []  # errors that nothing had read when their store was closed
# How many barriers this process has come to, by job: stores of a job share its servers. A worker that is started again
# begins with none, as its script does, and those that all had passed let it through.
_barriers: dict[str, int] = {}


def close_all() -> list[str]:
    """Close all stores of this process; the errors that nothing has read, of those that were closed before, too."""
    while _open:
        _open.pop().close()
    return _unread


Sent = tuple[
    Piece, Sequence[Tensor], Any, Mapping[str, Any]
]  # arrays, what part of them, how they are encoded


class _Send:
    """The push of a key: its number, and what goes to each server."""

    def __init__(self, key: Key, state: _KeyState, sends: Sequence[Sent]) -> None:
        self.key, self.state, self.sends = key, state, sends
        self.number = 0


class _Request:
    """A push or pull: what it is, the user's line, when it was requested; pushes: their keys and numbers."""

    def __init__(self, name: str, keys: list[Key], pushes: Sequence[tuple[Key, int]] = ()) -> None:
        listing = ", ".join(map(repr, keys[:4])) + (f", and {len(keys) - 4} more" if len(keys) > 4 else "")
        self.text, self.pushes = f"{name} {listing}", pushes
        self.where, self.requested_ns = users_line(), time.perf_counter_ns()


def _buckets(
    states: Sequence[tuple[Key, _KeyState, list[Any]]],
) -> list[list[tuple[Key, _KeyState, list[Any]]]]:
    """The keys of a list, in its order, as parts of at most BUCKET_BYTES, or of a single key."""
    buckets: list[list[tuple[Key, _KeyState, list[Any]]]] = []
    room = 0
    for each in states:
        room -= each[1].nbytes
        if not buckets or room < 0:
            buckets.append([])
            room = BUCKET_BYTES - each[1].nbytes
        buckets[-1].append(each)
    return buckets


class _Countdown:
    """Completes an operation when so many parts have; with the first error there was."""

    def __init__(self, count: int, on_complete: Any) -> None:
        self.remaining, self.on_complete = count, on_complete
        self.error: BaseException | None = None
        self.lock = threading.Lock()

    def __call__(self, error: BaseException | None = None) -> None:
        with self.lock:
            self.remaining -= 1
            self.error = self.error or error
            ends = self.remaining == 0
        if ends:
            self.on_complete(self.error)


class _States:
    """The optimizer states of all servers, for a file."""

    def __init__(self, states: list[Any], servers: int) -> None:
        self.states, self.servers = states, servers

    def state_dict(self) -> dict[str, Any]:
        from weft.kvstore.server import _tensors

        return {"servers": _tensors(self.states)}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises ValueError if the file is of another number of servers."""
        if len(state["servers"]) != self.servers:
            raise ValueError(
                f"load_optimizer_states: of {len(state['servers'])} servers, here {self.servers}"
            )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        from weft.kvstore.server import _plain

        self.states = _plain(state["servers"])


def _cause(error: BaseException) -> BaseException:
    """The error that a server raised, without Ray's own frames."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, BaseException) else error
