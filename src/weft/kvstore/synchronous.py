"""Kind "dist_sync": every worker has the whole store, and pushes are sums over all of them by MPI.

There is no server. A push of several keys is exchanged in buckets, in the order of the list, and each worker updates
its own copy in the same way, so the copies stay equal. Of pushes that wait for others that of the highest priority goes
first, on all ranks alike (distributed/queue.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import _core
from weft import functional as F
from weft.base.errors import DTypeError
from weft.distributed.collective import LARGE_BYTES, fail, push_exchange, type_text
from weft.distributed.compression import Codec
from weft.distributed.functions import barrier
from weft.distributed.gradients import BUCKET_BYTES, compressed_sum, reduce_into, reduce_together
from weft.distributed.parallel import broadcast_together
from weft.distributed.transport import AllGather
from weft.distributed.world import world
from weft.imperative.control_flow_effects import in_graph
from weft.imperative.creation import tensor, zeros
from weft.imperative.gradient import no_grad
from weft.imperative.tensor import Tensor
from weft.kvstore.base import Key, listed, new_keys, register
from weft.kvstore.local import LocalStore
from weft.kvstore.rows import RowSparse

__all__ = ["SynchronousStore"]

DIRECT_BYTES = 32 << 10  # up to here copies cost less than what avoids them


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
        else:
            self._push(key, value, None, priority)

    def pushpull(self, key: Key | Sequence[Key], value: Any, out: Any = None, priority: int = 0) -> Any:
        """push, then pull; out None: to the values themselves. Of plain sums out is written as they are received."""
        out = value if out is None else out
        if self.num_workers == 1:
            return super().pushpull(key, value, out, priority)
        written = self._push(key, value, out, priority)
        if not written:
            return self.pull(key, out, priority)
        for k, ys in listed("pull", key, out):
            if k not in written:
                self.pull(k, ys, priority)
        return out

    def _push(self, key: Key | Sequence[Key], value: Any, out: Any, priority: int) -> set[Key]:
        """Push, and pull some of the keys unless out is None; gives which."""
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
                into = self._received(key, pairs, out)
            dense = [(k, x) for k, x in merged if isinstance(x, Tensor)]
            begun = []
            for bucket in self._buckets(dense):
                k, x = bucket[0]
                if k in into:
                    reduce_into(x, into[k], "sum", f"push {[k]!r}", priority, LARGE_BYTES)
                else:
                    begun.append(self._exchange(bucket, codec, priority))
            for bucket, results in begun:
                for (k, _), x in zip(bucket, results(), strict=True):
                    self._update(k, x, fresh=True)
            for k, x in merged:
                if isinstance(x, RowSparse):
                    self._update(k, _every(x, f"push {k!r}{self._by()}", priority))
        return {k for k, targets in into.items() if len(targets) > 1}

    def _by(self) -> str:
        """What a sum goes to, where it is not stored: as ranks compare it."""
        if self._optimizer is not None:
            return f" by {self._optimizer.kind.__name__}"
        return "" if self._updater is None else " by an updater"

    def _stores(self) -> bool:
        """Whether a sum becomes what is stored."""
        plain = self._codec is None and self._optimizer is None and self._updater is None
        return plain and not in_graph([])

    def _received(
        self, key: Key | Sequence[Key], pairs: list[tuple[Key, list[Any]]], out: Any
    ) -> dict[Key, list[Tensor]]:
        """Where sums that are exchanged alone are received: in what is stored, and what the key is pulled to.

        Each of these is all of its memory, and has none of another key's.
        """
        found: dict[Key, list[Tensor]] = {}
        least = DIRECT_BYTES if len(pairs) == 1 else max(DIRECT_BYTES, self._bucket_bytes // 2)
        if all(xs[0].nbytes <= least for _, xs in pairs) or not self._stores():
            return found
        outs = {} if out is None else dict(self._checked("pull", key, out))
        arrays = [(k, x) for k, xs in (*pairs, *outs.items()) for x in xs if isinstance(x, Tensor)]
        for k, (x, *_) in pairs:
            stored = self._stored[k]
            if not isinstance(x, Tensor) or x.nbytes <= least:
                continue
            if stored.device is not x.device or not _core.is_contiguous(stored):
                continue
            if not _core.overwrite(stored, "push"):
                continue
            found[k] = [stored]
            y, *more = outs.get(k, [None])
            if not isinstance(y, Tensor) or more or y.device is not x.device:
                continue
            if any(other != k and _core.shares_memory(z, y) for other, z in arrays):
                continue
            if _core.overwrite(y, "pull"):
                found[k].append(y)
        return found

    def _together(self, text: str) -> Any:
        return _Together(text, self.num_workers)

    def _check_compressible(self, merged: list[tuple[Key, Any]]) -> None:
        for k, x in merged:
            if isinstance(x, Tensor) and x.dtype.name != "float32":
                raise DTypeError(
                    f"push: only float32 values are compressed, the key {k!r} has type {x.dtype}"
                )

    def _goes_alone(self, x: Any) -> bool:
        """An array of more than half a bucket is exchanged by itself: so it is not copied."""
        return bool(x.nbytes > self._bucket_bytes // 2)

    def _buckets(self, pairs: list[tuple[Key, Tensor]]) -> list[list[tuple[Key, Tensor]]]:
        found: list[list[tuple[Key, Tensor]]] = []
        for k, x in pairs:
            together = found and not self._goes_alone(x) and not self._goes_alone(found[-1][0][1])
            last = found[-1] if together else []
            room = self._bucket_bytes - sum(y.nbytes for _, y in last)
            if last and (last[0][1].dtype, last[0][1].device) == (x.dtype, x.device) and x.nbytes <= room:
                last.append((k, x))
            else:
                found.append([(k, x)])
        return found

    def _exchange(self, bucket: list[tuple[Key, Tensor]], codec: Codec | None, priority: int) -> Any:
        """Begin an exchange; gives the bucket and the function of its sums."""
        names, xs = [k for k, _ in bucket], [x for _, x in bucket]
        text = f"push {names!r}{self._by()}"
        if codec is None:
            results = reduce_together(xs, "sum", text, priority, LARGE_BYTES)
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


def _every(x: RowSparse, text: str, priority: int) -> RowSparse:
    """The sum of all workers' rows."""
    n = world().size
    counts = _behind_each_other(tensor([x.rows.size]), f"{text} numbers of rows", priority).numpy()
    most = int(counts.max())
    missing = most - x.rows.size
    rows = tensor(np.concatenate([x.rows, np.zeros(missing, "int64")]))
    padding = zeros((missing, *x.shape[1:]), dtype=x.dtype, device=x.device)
    values = F.concat([x.values, padding]) if missing else x.values
    every_row = _behind_each_other(rows, f"{text} rows", priority).numpy().reshape(n, most)
    every = _behind_each_other(values, f"{text} values", priority)
    parts = [
        RowSparse(every_row[r, : counts[r]], every[r * most : r * most + int(counts[r])], x.shape)
        for r in range(n)
    ]
    return RowSparse.summed(parts)


def _behind_each_other(x: Tensor, text: str, priority: int) -> Tensor:
    """All ranks' x, which has as many elements on each."""
    kind = ((world().size * x.shape[0], *x.shape[1:]), x.dtype, x.device)
    (found,) = push_exchange(f"{text} {type_text(x)}", AllGather(), [x], [kind], priority).outputs()
    return found
