"""Loops of different lengths on the ranks: one that has no more batches goes on to take part, with nothing."""

from __future__ import annotations

import contextlib
import tempfile
from concurrent.futures import Future
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from weft import checkpoint
from weft.arrays.creation import tensor, zeros
from weft.base.users_line import users_line
from weft.distributed.collective import fail, push_exchange
from weft.distributed.errors import DistributedError
from weft.distributed.queue import Leave
from weft.distributed.transport import Broadcast
from weft.distributed.world import world
from weft.engine import default_engine

__all__ = ["join"]


def join(*parts: checkpoint.Stateful) -> AbstractContextManager[None]:
    """Let ranks leave the loop inside after different numbers of batches, also none; all of them call it.

    A rank that comes to the end takes part in the collectives of the others until all have come there, and changes
    none of their results: sums are those of the ranks that are still in the loop, means are divided by their number.
    So each step is that of one process with the batches of these ranks; SyncBatchNorm counts their elements alone. An
    absent rank's part of all_gather and all_to_all is 0.
    Then parts, such as the module, the optimizer and its schedule, get the state (`state_dict`) of the lowest rank
    that was in the loop last. What is not passed stays as it is on each rank. Alone it does nothing.

    Where a rank must not be absent, all get a DistributedError: updates of ShardedOptimizer and of stores, compressed
    gradients, broadcasts from a rank that has left, a rank that ends outside of join. Where an exchange fails for
    another reason, such as a bad batch, the ranks in the loop get its error, and the absent ones wait for the next. If
    the loop raises, so does join, without waiting for others. Raises TypeError if a part has no state_dict.

    >>> import weft as wf
    >>> import weft.module as M
    >>> net = wf.distributed.DataParallel(M.Linear(2, 1))
    >>> gm = wf.GradManager().attach(net.parameters())
    >>> with wf.distributed.join(net):
    ...     for x in [wf.ones((4, 2))] * (1 + wf.distributed.rank()):
    ...         with gm:
    ...             gm.backward(net(x).mean())
    """
    for part in parts:
        if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
            raise TypeError(f"join: {type(part).__name__} has no state_dict() and load_state_dict()")
    return _Join(parts, users_line())


class _Join:
    """The context. where: the user's line."""

    def __init__(self, parts: tuple[checkpoint.Stateful, ...], where: str) -> None:
        self.parts, self.where = parts, where

    def __enter__(self) -> None:
        world()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        queue = world().queue
        if error is not None or world().size == 1:
            return
        if queue is None:
            raise DistributedError("join: workers of parameter servers need not wait for each other")
        with contextlib.suppress(Exception):  # what has failed is raised where it is read
            default_engine().wait_for_var(world().token)  # programs submit their exchanges as they run
        ended: Future[None] = Future()
        leave = Leave(
            self.where, lambda error: ended.set_exception(error) if error else ended.set_result(None)
        )
        queue.submit(leave, queue.ticket(fence=True))
        ended.result()
        if self.parts:
            _receive_state(self.parts, leave.last_rank)


def _receive_state(parts: tuple[checkpoint.Stateful, ...], root: int) -> None:
    """Load the root's state into the parts: a checkpoint, of which the bytes travel."""
    named: dict[str, Any] = {f"part{k}": part for k, part in enumerate(parts)}
    with tempfile.TemporaryDirectory(prefix="weft-join-") as folder:
        path = Path(folder, "state")
        data = np.empty(0, "uint8")
        if world().rank == root:
            try:
                checkpoint.save(path, **named)
            except BaseException as error:
                fail("join", f"{type(error).__name__}: {error}")
                raise
            data = np.fromfile(path, "uint8")
        size = int(_broadcast(tensor([data.size]), root).item())
        received = _broadcast(tensor(data) if world().rank == root else zeros(size, dtype="uint8"), root)
        if world().rank != root:
            received.numpy().tofile(path)
            checkpoint.load(path, random_state=False, **named)


def _broadcast(x: Any, root: int) -> Any:
    kind = (tuple(x.shape), x.dtype, x.device)
    exchange = Broadcast("all ranks receive it", root)
    return push_exchange(f"join state of {x.dtype}{x.shape}", exchange, [x], [kind]).outputs()[0]
