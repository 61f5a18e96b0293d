"""A module trained by several processes, each on its own part of every batch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft.arrays.tensor import Tensor
from weft.distributed.collective import push_exchange, type_text
from weft.distributed.gradients import BUCKET_BYTES, GradientExchange
from weft.distributed.transport import Broadcast
from weft.distributed.world import world
from weft.gradients.gradient import no_grad, set_hook
from weft.module.module import Module

__all__ = ["DataParallel", "broadcast_state"]


def broadcast_state(module: Module, root: int = 0) -> None:
    """Give all ranks the root's parameters and buffers."""
    broadcast_together(
        [x for _, x in [*module.named_parameters(), *module.named_buffers()]], "broadcast_state", root
    )


def broadcast_together(arrays: Sequence[Tensor], name: str, root: int = 0) -> None:
    """Write the root's content of arrays on all ranks; name: what this is for, for errors."""
    if world().size == 1:
        return
    with no_grad():
        for k, x in enumerate(arrays):
            kind = (tuple(x.shape), x.dtype, x.device)
            text = f"{name}: array {k} of {len(arrays)}: {type_text(x)}"
            x[...] = push_exchange(text, Broadcast("all ranks receive it", root), [x], [kind]).outputs()[0]


class DataParallel(Module):
    """A module whose gradients become the mean over all ranks, in any GradManager that attaches its parameters later.

    Parameters and buffers begin as rank 0's. Each rank calls it on its own part of the batch; if parts are equal, the
    mean of the ranks' mean losses is that of the whole batch. The loop stays as it is. bucket_bytes, compression: as
    weft.kvstore.all_reduce's. Parameters that a backward does not reach are not exchanged, so all ranks must reach the
    same ones.

    >>> import weft as wf
    >>> import weft.module as M
    >>> net = wf.distributed.DataParallel(M.Linear(2, 1))
    >>> gm = wf.GradManager().attach(net.parameters())
    >>> with gm:
    ...     gm.backward(net(wf.ones((4, 2))).mean())
    """

    def __init__(
        self,
        module: Module,
        bucket_bytes: int = BUCKET_BYTES,
        compression: Mapping[str, Any] | None = None,
    ) -> None:
        self.module = module
        self.exchange = GradientExchange("mean", bucket_bytes, compression)
        broadcast_state(module)
        for p in module.parameters():
            set_hook(p, self.exchange)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward inside adds gradients up on this rank alone; the next one outside exchanges the sums.

        For batches that are taken in several steps: all but the last go inside.
        """
        with self.exchange.paused():
            yield
