"""Kind "dist_sync": every worker has the whole store, and pushes are sums over all of them by MPI.

There is no server. A push of several keys is exchanged in buckets, in the order of the list, and each worker updates
its own copy in the same way, so the copies stay equal. Of pushes that wait for others that of the highest priority goes
first, on all ranks alike (distributed/queue.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import functional as F
from weft.base.errors import DTypeError
from weft.distributed.collective import fail
from weft.distributed.compression import Codec
from weft.distributed.functions import all_gather, barrier
from weft.distributed.gradients import BUCKET_BYTES, compressed_sum, reduce_together
from weft.distributed.parallel import broadcast_together
from weft.distributed.world import world
from weft.imperative.creation import tensor, zeros
from weft.imperative.gradient import no_grad
from weft.imperative.tensor import Tensor
from weft.kvstore.base import Key, new_keys, register
from weft.kvstore.local import LocalStore
from weft.kvstore.rows import RowSparse

__all__ = ["SynchronousStore"]


@register("dist_sync", "dist_sync_device", "dist_device_sync")
class SynchronousStore(LocalStore):
    """Kind "dist_sync". bucket_bytes: values of one push are exchanged together up to so many bytes. See KVStore.

    All workers make the same calls with the same keys in the same order; where they do not, all get an error. Pushes of
    RowSparse wait for the numbers of rows of all workers.
    """

    def __init__(self, kind: str = "dist_sync", *, bucket_bytes: int = BUCKET_BYTES) -> None:
        super().__init__(kind)
        self._world = world()
        self._bucket_bytes = bucket_bytes

    @property
    def rank(self) -> int:
        return self._world.rank

    @property
    def num_workers(self) -> int:
        return self._world.size

    def barrier(self) -> None:
        barrier()

    def init(self, key: Key | Sequence[Key], value: Any) -> None:
        with self._together(f"init {key!r}"):
            pairs = new_keys("init", list(self._stored), key, value)
        super().init(key, value)
        if self.num_workers > 1:
            names = [k for k, _ in pairs]
            broadcast_together([self._stored[k] for k in names], f"init {names!r}")

    def push(self, key: Key | Sequence[Key], value: Any, priority: int = 0) -> None:
        if self.num_workers == 1:
            super().push(key, value, priority)
            return
        with no_grad():
            with self._together(f"push {key!r}"):
                pairs = self._checked("push", key, value)
                codec, self._codec = (
                    self._codec,
                    None,
                )  # what travels is compressed, not what is added up here
                try:
                    merged = [(k, self._merged(k, values)) for k, values in pairs]
                finally:
                    self._codec = codec
                if codec is not None:
                    self._check_compressible(merged)
            dense = [(k, x) for k, x in merged if isinstance(x, Tensor)]
            begun = [self._exchange(bucket, codec, priority) for bucket in self._buckets(dense)]
            for bucket, results in begun:
                for (k, _), x in zip(bucket, results(), strict=True):
                    self._update(k, x, fresh=True)
            for k, x in merged:
                if isinstance(x, RowSparse):
                    self._update(k, _gathered(k, x))

    def _together(self, text: str) -> Any:
        return _Together(text, self.num_workers)

    def _check_compressible(self, merged: list[tuple[Key, Any]]) -> None:
        for k, x in merged:
            if isinstance(x, Tensor) and x.dtype.name != "float32":
                raise DTypeError(
                    f"push: only float32 values are compressed, the key {k!r} has type {x.dtype}"
                )

    def _buckets(self, pairs: list[tuple[Key, Tensor]]) -> list[list[tuple[Key, Tensor]]]:
        found: list[list[tuple[Key, Tensor]]] = []
        for k, x in pairs:
            last = found[-1] if found else []
            room = self._bucket_bytes - sum(y.nbytes for _, y in last)
            if last and (last[0][1].dtype, last[0][1].device) == (x.dtype, x.device) and x.nbytes <= room:
                last.append((k, x))
            else:
                found.append([(k, x)])
        return found

    def _exchange(self, bucket: list[tuple[Key, Tensor]], codec: Codec | None, priority: int) -> Any:
        """Begin an exchange; gives the bucket and the function of its sums."""
        names, xs = [k for k, _ in bucket], [x for _, x in bucket]
        text = f"push {names!r}"
        if codec is None:
            results = reduce_together(xs, "sum", text, priority)
        else:
            own = self._codec
            assert own is not None
            results = compressed_sum(xs, [self._residual(k, 0, x) for k, x in bucket], codec, text, priority)
        return bucket, results


class _Together:
    """Around checks of arguments: where they fail on one rank, the others get an error as well."""

    def __init__(self, text: str, size: int) -> None:
        self.text, self.size = text, size

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None and self.size > 1 and isinstance(error, Exception):
            fail(self.text, f"{type(error).__name__}: {error}")


def _gathered(key: Key, x: RowSparse) -> RowSparse:
    """The sum of all workers' rows."""
    n = world().size
    counts = all_gather(tensor([x.rows.size])).numpy()
    most = int(counts.max())
    missing = most - x.rows.size
    rows = tensor(np.concatenate([x.rows, np.zeros(missing, "int64")]))
    padding = zeros((missing, *x.shape[1:]), dtype=x.dtype, device=x.device)
    values = F.concat([x.values, padding]) if missing else x.values
    every_row = all_gather(rows).numpy().reshape(n, most)
    every = all_gather(values)
    parts = [
        RowSparse(every_row[r, : counts[r]], every[r * most : r * most + int(counts[r])], x.shape)
        for r in range(n)
    ]
    return RowSparse.summed(parts)
