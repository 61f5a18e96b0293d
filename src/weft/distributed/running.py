"""Samples and checkpoints of a job of several ranks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from weft import checkpoint
from weft.data.sampler import Sampler, WrappingSampler
from weft.distributed.functions import barrier
from weft.distributed.world import world

__all__ = ["RankSampler", "load_checkpoint", "save_checkpoint"]


class RankSampler(WrappingSampler):
    """This rank's share of another sampler's order: every world_size-th sample, from the rank-th on.

    All ranks get equally many: the first samples of the epoch come twice if the number cannot be divided, or with
    drop_last the last ones not at all. The sampler must give all ranks the same order, so it needs a seed. Its state is
    that of the whole order, so training goes on with another number of ranks.

    >>> from weft.data import RandomSampler
    >>> sorted(RankSampler(RandomSampler(4, seed=1)))
    [0, 1, 2, 3]
    """

    def __init__(self, sampler: Sampler, drop_last: bool = False) -> None:
        self.sampler, self.drop_last = sampler, drop_last

    def order(self, epoch: int) -> Sequence[Any]:
        n, rank = world().size, world().rank
        whole = list(self.sampler.order(epoch))
        if self.drop_last:
            whole = whole[: len(whole) // n * n]
        elif whole and len(whole) % n:
            missing = -len(whole) % n
            whole += (whole * -(-missing // len(whole)))[:missing]
        return whole[rank::n]

    def __len__(self) -> int:
        n = world().size
        return len(self.sampler) // n if self.drop_last else -(-len(self.sampler) // n)

    def state_dict(self) -> dict[str, Any]:
        return {"drop_last": self.drop_last, **super().state_dict()}


class _SavedState:
    """A part of a checkpoint whose state was made before."""

    def __init__(self, state: Any) -> None:
        self.state = state

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        raise AssertionError("only written")


def save_checkpoint(
    path: str | os.PathLike[str], values: Mapping[str, Any] | None = None, /, **parts: Any
) -> None:
    """weft.checkpoint.save for all ranks, which all must call: rank 0 writes one file, and all wait until it is there.

    Parts whose state is divided, such as ShardedOptimizer, are put together, so that the file is for any number of
    ranks. The state of weft.random is rank 0's. Raises what weft.checkpoint.save raises; other ranks, EngineError.
    """
    states = {name: part.state_dict() for name, part in parts.items()}
    if world().rank == 0:
        try:
            checkpoint.save(path, values, **{name: _SavedState(state) for name, state in states.items()})
        except BaseException as error:
            if world().size > 1:
                from weft.distributed.collective import fail

                fail("save_checkpoint", f"{type(error).__name__}: {error}")
            raise
    barrier()


def load_checkpoint(path: str | os.PathLike[str], /, **parts: Any) -> dict[str, Any]:
    """weft.checkpoint.load on every rank; returns the values. Rank 0 also gets the state of weft.random.

    Other ranks keep their own random numbers: call weft.distributed.seed before.
    """
    return checkpoint.load(path, random_state=world().rank == 0, **parts)
