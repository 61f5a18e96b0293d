"""Exchanges between ranks, as operations of the engine and as steps of programs.

Outside of graphs an exchange is one asynchronous operation of the engine: it reads and writes its arrays, runs when
they are ready, holds no compute worker while it is under way, and poisons what it would have written if it fails. Where
its arrays are ready at the call and nothing else is exchanged, the calling thread begins it, and ends it, too, if the
other ranks are there: no thread has to be woken. In a graph it
is two steps, so that the work between them overlaps with it: `exchange_start` hands its arrays to the queue, and makes
the arrays of the results; `exchange_end` waits. The latter reads both, so the planner keeps their memory for the queue;
its results take the place of what the former made.

Order: programs overwrite the world's token, an array, so the recorder of traces and the planner keep their exchanges in
order without knowing what they are. Other exchanges read it, so they come before or behind a program as a whole; among
themselves the queue orders them. While a program that has failed, or may fail, has the token, they overwrite it, too.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, Protocol

from weft import _core
from weft.arrays.creation import empty
from weft.arrays.tensor import Tensor
from weft.base.device import Device
from weft.base.dtype import DType, as_dtype
from weft.base.errors import DTypeError
from weft.base.users_line import users_line
from weft.distributed.absence import describe
from weft.distributed.errors import DistributedError
from weft.distributed.queue import Job
from weft.distributed.world import world
from weft.engine import default_engine
from weft.ops import registry
from weft.ops.kernels import Native
from weft.ops.op import op
from weft.ops.types import TensorType
from weft.python_op import Form, PythonOp
from weft.recording.control_flow_effects import in_graph

__all__ = ["Pending", "PointToPoint", "push_exchange"]


class PointToPoint(Protocol):
    """An exchange of two ranks, on NumPy arrays: run is a generator that yields while it waits.

    Those of one `channel` keep their order; failed(reason) gives the message for the other rank that this one cannot
    take part. Exchanges of all ranks are of transport.Collective. The arrays of either are memory of the program in
    programs, which stays what it is until the exchange has ended.
    """

    point_to_point: bool
    channel: Any

    def run(self, comm: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any: ...

    def failed(self, reason: str) -> PointToPoint: ...


SMALL_BYTES = 1 << 20  # what the calling thread exchanges itself, if it can,
LARGE_BYTES = 4 << 20  # and where it has nothing to do meanwhile, as it has in backward

# Of exchanges in graphs: the exchange, its text, the user's line, priority.
_specs: dict[int, tuple[Any, str, str, int]] = {}
_numbers = itertools.count(1)
_under_way: dict[int, _Running] = {}
# Arrays of exchanges in a call that is being recorded, until the exchange has ended: the call runs operator by
# operator, so only Python references the memory, and an error may drop it.
_arrays_by_spec: dict[int, list[Any]] = {}


class _Running:
    """An exchange that a program has begun."""

    def __init__(self, spec: int) -> None:
        self.spec = spec
        self.ended = threading.Event()
        self.error: BaseException | None = None

    def complete(self, error: BaseException | None) -> None:
        self.error = error
        self.ended.set()
        _arrays_by_spec.pop(self.spec, None)


class Pending:
    """An exchange that was requested. outputs(): its arrays; result(): waits until it is over."""

    def __init__(self, outputs: Callable[[], list[Tensor]], future: Future[None] | None) -> None:
        self._outputs, self._future = outputs, future

    def outputs(self) -> list[Tensor]:
        """The arrays. In a graph the program waits for the exchange where this is called first."""
        return self._outputs()

    def result(self) -> None:
        """Wait for it. Raises what it raised."""
        if self._future is not None:
            self._future.result()


def push_exchange(
    text: str,
    exchange: Any,
    inputs: Sequence[Tensor],
    types: Sequence[tuple[tuple[int, ...], DType, Device]] = (),
    priority: int = 0,
    fence: bool = False,
    inline_bytes: int = SMALL_BYTES,
    into: Sequence[Tensor] = (),
) -> Pending:
    """Push an exchange. text: what every rank must say alike, the operation's name first; types: of the outputs.

    priority: of collectives that are ready the highest goes first; fence: no other one overtakes it, nor vice versa.
    inline_bytes: how much the calling thread exchanges itself, if the arrays and the other ranks are there.
    into: existing arrays, each all of its memory, as _core.overwrite has said; `exchange` gets them behind the outputs.
    Not in a graph.
    """
    current = world()
    if current.queue is None:
        raise DistributedError(
            f"{text.partition(' ')[0]}: the workers of parameter servers exchange nothing with each other; "
            "start the job with MPI (python -m weft.launch -n N)"
        )
    where = users_line()
    if in_graph(inputs):
        return _in_graph(text, exchange, inputs, types, where, priority)
    aliases = [_core.alias(x, keep_past=False) for x in inputs]
    targets = [_core.alias(y, keep_past=False) for y in into]
    outputs = [empty(shape, dtype=dtype, device=device) for shape, dtype, device in types]
    token_is_free = not getattr(exchange, "point_to_point", False) and _is_ready(current.token)
    if (
        token_is_free
        and sum(x.nbytes for x in aliases) <= inline_bytes
        and all(map(_is_ready, aliases))
        and all(_is_ready(y, to_write=True) for y in targets)
    ):
        handle = _CallerExchange()
        job = _job(text, where, exchange, aliases, outputs, targets, handle.complete)
        job.priority = priority
        try:
            is_begun = current.queue.run_inline(job)
        except BaseException:  # Ctrl-C: it continues elsewhere, or has failed, and others have `targets`
            handle.pending(job, aliases, outputs, targets)
            raise
        if is_begun:
            return handle.pending(job, aliases, outputs, targets)
    return _on_engine(text, exchange, aliases, outputs, targets, where, priority, fence, token_is_free)


def _record_failure(name: str, error: BaseException, outputs: Sequence[Tensor]) -> None:
    """Note that an exchange has failed; keep the error of one of gradients: see raise_failed."""
    world().has_failed = True
    if name in ("gradients", "sharded"):
        world().failures.append((error, outputs[0] if outputs else None))


def raise_failed() -> None:
    """Raise, once, what an exchange of gradients has raised: the optimizer that would have read them did nothing."""
    failures = world().failures
    if failures:
        raised = list(failures)
        failures.clear()
        for _, x in raised:
            with contextlib.suppress(Exception):
                default_engine().throw_if_failed(x)  # its error counts as raised
        raise raised[0][0]


def _is_ready(x: Tensor, to_write: bool = False) -> bool:
    return default_engine()._is_ready(x, to_write)


class _CallerExchange:
    """An exchange that the calling thread has begun."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ended = False
        self.error: BaseException | None = None
        self.on_complete: Any = None

    def complete(self, error: BaseException | None) -> None:
        """The exchange has ended: called by the queue."""
        with self.lock:
            self.ended, self.error = True, error
            on_complete = self.on_complete
        if on_complete is not None:
            on_complete(error)

    def start(self, _: Any, on_complete: Any) -> None:
        """The operation of the engine that lasts as long as the exchange."""
        with self.lock:
            self.on_complete = on_complete
            ended = self.ended
        if ended:
            on_complete(self.error)

    def pending(
        self, job: Job, inputs: list[Tensor], outputs: list[Tensor], targets: list[Tensor]
    ) -> Pending:
        """The caller's handle. The engine gets the exchange only if it continues, or has failed."""
        if self.ended and self.error is None:
            return Pending(lambda: outputs, None)
        current = world()
        assert current.queue is not None
        future: Future[None] = Future()
        name = job.text.partition(" ")[0]

        def complete(error: Any) -> bool:
            if error is None:
                future.set_result(None)
            else:
                _record_failure(name, error, outputs)
                future.set_exception(error)
            return not (outputs or targets)  # else what reads these raises it

        try:
            reads, writes = [*inputs, current.token], [*outputs, *targets]
            default_engine().push_async(
                self.start, None, reads, (), writes, priority=job.priority, name=name, on_done=complete
            )
        finally:
            if job.request is not None:
                current.queue.continue_later(job)
        return Pending(lambda: outputs, future)


def _on_engine(
    text: str,
    exchange: Any,
    inputs: list[Tensor],
    outputs: list[Tensor],
    targets: list[Tensor],
    where: str,
    priority: int,
    fence: bool,
    token_is_free: bool,
) -> Pending:
    """token_is_free: no program has the token, nor has it failed there."""
    current = world()
    queue = current.queue
    assert queue is not None
    point_to_point = getattr(exchange, "point_to_point", False)
    ticket = None if point_to_point else queue.ticket(fence)
    started: list[bool] = []
    future: Future[None] = Future()
    name = text.partition(" ")[0]

    def start(_: Any, on_complete: Any) -> None:
        job = _job(text, where, exchange, inputs, outputs, targets, on_complete)
        started.append(True)
        job.priority = priority
        queue.submit(job, ticket, inline=True)

    def ended(error: Any) -> bool:
        if error is not None:
            _record_failure(name, error, outputs)
        if not started:  # skipped, because something it reads has failed: the others must not wait
            reason = str(error).partition("\n")[0] or "an error"
            if point_to_point:
                queue.submit(_job(text, where, exchange.failed(reason), [], [], [], lambda _: None))
            else:
                queue.submit(Job(text, where, None, lambda _: None, reason, priority=priority), ticket)
        if error is None:
            future.set_result(None)
        else:
            current.token_failed = current.token_failed or not (point_to_point or token_is_free)
            future.set_exception(error)
        return not (outputs or targets)  # else what reads these raises it

    # What overwrites the token runs although a program has failed before, and alone. What reads it goes beside other
    # exchanges, and a program that is pushed later comes after them.
    reads, turn = inputs, [current.token]
    if point_to_point:
        reads, turn = [*inputs, current.token], [current.channel(exchange.channel)]
        if current.token_failed:
            default_engine().clear_error(current.token)
            current.token_failed = False
    elif token_is_free:
        reads, turn = [*inputs, current.token], []
    writes = [*outputs, *targets, *turn]
    default_engine().push_async(start, None, reads, (), writes, priority=priority, name=name, on_done=ended)
    return Pending(lambda: outputs, future)


def _job(
    text: str,
    where: str,
    exchange: Any,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    targets: Sequence[Tensor],
    done: Any,
) -> Job:
    arrays, results = [x.numpy() for x in inputs], [y.numpy() for y in (*outputs, *targets)]
    return _job_on_memory(text, where, exchange, arrays, results, done, len(outputs))


def _job_on_memory(
    text: str, where: str, exchange: Any, arrays: Any, results: Any, done: Any, received: int
) -> Job:
    """received: how many of the results come from other ranks; the rest are copies."""
    size = max(sum(x.nbytes for x in arrays), sum(y.nbytes for y in results[:received]))
    if getattr(exchange, "point_to_point", False):
        run = lambda comm: exchange.run(comm, arrays, results)  # noqa: E731
        return Job(text, where, None, done, point_to_point=run, size_bytes=size)
    work = None if exchange is None else lambda comm, n: exchange.run(comm, arrays, results, n)
    return Job(
        text,
        where,
        work,
        done,
        size_bytes=size,
        describe=lambda absent: describe(exchange, arrays, results, absent),
    )


# In graphs.


def _in_graph(
    text: str, exchange: Any, inputs: Sequence[Any], types: Sequence[Any], where: str, priority: int
) -> Pending:
    spec = next(_numbers)
    _specs[spec] = (exchange, text, where, priority)
    sizes, dtypes = tuple(tuple(shape) for shape, *_ in types), tuple(dtype for _, dtype, _ in types)
    attributes = {"count": len(inputs), "spec": spec, "sizes": sizes, "types": dtypes}
    arrays = _arrays_by_spec[spec] = [*inputs]
    y = registry.function("exchange_start")(*inputs, world().token, **attributes)
    started = list(y) if isinstance(y, tuple | list) else [y]
    arrays.extend(started)
    results: list[Any] = []

    def outputs() -> list[Any]:
        if not results:
            y = registry.function("exchange_end")(*started, *inputs, **attributes)
            results.extend(y if isinstance(y, tuple | list) else [y])
        return results

    return Pending(outputs, None)


def _array(operand: tuple[int, str, tuple[int, ...], tuple[int, ...]]) -> Any:
    """A NumPy array on the memory of an operand."""
    import numpy as np

    address, name, shape, strides = operand
    dtype = np.dtype(as_dtype(name).numpy)
    words = np.dtype(f"u{dtype.itemsize}") if dtype.itemsize in (1, 2, 4, 8) else dtype
    memory = SimpleNamespace(
        __array_interface__={
            "version": 3,
            "data": (address, False),
            "typestr": words.str,
            "shape": shape,
            "strides": strides,
        }
    )
    return np.asarray(memory).view(dtype) if 0 not in shape else np.empty(shape, dtype)


class _Step(PythonOp, public=False):
    """Base of the two steps. Their kernels see the program's memory, of which they keep nothing."""

    count: int  # of inputs
    spec: int
    sizes: tuple[tuple[int, ...], ...]
    types: tuple[DType, ...]

    def vjp(self, x: Any, y: Any, dy: Any) -> Any:
        return ([None] * len(x),)  # collectives have gradients of their own, see functions.py

    def on_memory(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Run the step, on NumPy arrays."""
        raise NotImplementedError

    def kernels(self, *x: TensorType | None) -> Iterator[Native]:
        def function(inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            self.on_memory([_array(each) for each in inputs], [_array(each) for each in outputs])

        yield Native(
            lambda inputs, outputs: _core.kernel_python(function, len(inputs), len(outputs), memory=True),
            ordered=True,
            in_place=self.in_place_pairs(),
        )

    def in_place_pairs(self) -> tuple[tuple[int, int], ...]:
        """Inputs and the outputs that may be in their place."""
        return ()


@op
class ExchangeStart(_Step):
    """Hands its arguments to the communication queue. Gives the number of the exchange, int64[1], and what it writes.

    The token comes last; its new content is what orders exchanges.
    """

    def form(self) -> Form:
        outputs = 1 + len(self.sizes)
        return Form([f"x{k}" for k in range(self.count)], ["token"], outputs, outputs)

    def shapes(self, known: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        return [*known, ()], [(1,), *self.sizes]

    def dtypes(self, known: Sequence[DType | None]) -> tuple[Sequence[Any], Sequence[Any]]:
        return super().dtypes(known)[0], ["int64", *self.types]

    def on_memory(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        exchange, text, where, priority = _specs[self.spec]
        *arrays, token = inputs
        number, *results, new_token = outputs
        queue = world().queue
        assert queue is not None
        running = _Running(self.spec)
        number[0] = next(_numbers)
        new_token[...] = token
        _under_way[int(number[0])] = running
        job = _job_on_memory(text, where, exchange, arrays, results, running.complete, len(results))
        job.priority = priority
        queue.submit(job)


@op
class ExchangeEnd(_Step):
    """Waits for the exchange of this number; gives its results.

    Inputs: the outputs of exchange_start, then its inputs, which are read until now.
    """

    def form(self) -> Form:
        names = [f"y{k}" for k in range(len(self.sizes))] + [f"x{k}" for k in range(self.count)]
        return Form(["number", *names], [], len(self.sizes), len(self.sizes))

    def shapes(self, known: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        return [(1,), *self.sizes, *known[1 + len(self.sizes) :]], self.sizes

    def dtypes(self, known: Sequence[DType | None]) -> tuple[Sequence[Any], Sequence[Any]]:
        return super().dtypes(known)[0], self.types

    def in_place_pairs(self) -> tuple[tuple[int, int], ...]:
        return tuple((1 + k, k) for k in range(len(self.sizes)))

    def on_memory(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        running = _under_way.pop(int(inputs[0][0]))
        running.ended.wait()
        if running.error is not None:
            raise running.error
        for y, received in zip(outputs, inputs[1:], strict=False):
            if y.ctypes.data != received.ctypes.data:
                y[...] = received


def wait_for_all_started() -> None:
    """Wait for all exchanges that programs have begun: their memory is about to be reused."""
    for running in list(_under_way.values()):
        running.ended.wait()


_core.on_abandoned(wait_for_all_started)


def fail(text: str, reason: str) -> None:
    """Make the other ranks' next collective an error that says why this rank cannot take part."""
    queue = world().queue
    assert queue is not None
    ticket = queue.ticket()
    queue.submit(Job(text, users_line(), None, lambda _: None, failure=reason), ticket)


def type_text(x: Any) -> str:
    """The type of an array as ranks compare it; devices may differ."""
    return f"{x.dtype}[{','.join(map(str, x.shape))}]"


def check_numbers(name: str, x: Any) -> None:
    """Raises TypeError, or DTypeError for bools, which cannot be added."""
    if not isinstance(x, Tensor) and not hasattr(x, "__weft_apply__"):
        raise TypeError(f"{name}: takes a Tensor, got {type(x).__name__}")
    if not (x.dtype.is_floating or x.dtype.is_integer):
        raise DTypeError(f"{name}: takes numbers, got {x.dtype}")
