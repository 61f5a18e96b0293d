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
from weft.arrays.creation import tensor, zeros
from weft.arrays.tensor import Tensor
from weft.base.errors import DTypeError, EngineError
from weft.distributed.collective import LARGE_BYTES, fail, push_exchange, type_text
from weft.distributed.compression import Codec
from weft.distributed.functions import barrier
from weft.distributed.gradients import BUCKET_BYTES, compressed_sum, reduce_into, reduce_together
from weft.distributed.parallel import broadcast_together
from weft.distributed.transport import AllGather
from weft.distributed.world import world
from weft.engine import default_engine
from weft.gradients.gradient import no_grad
from weft.kvstore.base import Key, new_keys, pairs_of, register
from weft.kvstore.local import LocalStore
from weft.recording.control_flow_effects import in_graph
from weft.sparse import RowSparse

__all__ = ["SynchronousStore"]

DIRECT_BYTES = 32 << 10  # up to here copies cost less than what avoids them
COPIES = (
    "each rank updates its copy of the store; push zeros"  # why none may leave its loop: see distributed.join
)


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
        """See KVStore. Raises the error of a last push of a key, or of an init, that has failed."""
        error: EngineError | None = None
        for x in (*self._stored.values(), *self._pushed.values()):
            try:
                default_engine().wait_for_var(x, writes_only=True)
            except EngineError as failure:
                error = error or failure
        barrier()  # the others wait there all the same
        if error is not None:
            raise error

    def init(self, key: Key | Sequence[Key], value: Any) -> None:
        with _Agreement(self.num_workers, f"init {key!r}"):
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
        pulled = self._push(key, value, out, priority)
        if not pulled:
            return self.pull(key, out, priority)
        for k, ys in pairs_of("pull", key, out):
            if k not in pulled:
                self.pull(k, ys, priority)
        return out

    def _push(self, key: Key | Sequence[Key], value: Any, out: Any, priority: int) -> set[Key]:
        """Push, and pull some of the keys unless out is None; gives which."""
        with no_grad():
            with _Agreement(self.num_workers, f"push {key!r}"):
                pairs = self._checked("push", key, value)
                # What is exchanged is compressed, not the values that are added up on this rank.
                codec, self._codec = self._codec, None
                try:
                    merged = [(k, self._sum_values(k, values)) for k, values in pairs]
                finally:
                    self._codec = codec
                if codec is not None:
                    self._check_compressible(merged)
                targets = self._targets(key, pairs, out)
            dense = [(k, x) for k, x in merged if isinstance(x, Tensor)]
            exchanges = []
            for bucket in self._buckets(dense):
                k, x = bucket[0]
                if k in targets:
                    reduce_into(x, targets[k], "sum", f"push {[k]!r}", priority, LARGE_BYTES, COPIES)
                else:
                    exchanges.append(self._exchange(bucket, codec, priority))
            for bucket, results in exchanges:
                for (k, _), x in zip(bucket, results(), strict=True):
                    self._update(k, x, fresh=True)
            for k, x in merged:
                if isinstance(x, RowSparse):
                    self._update(k, _sum_rows(x, f"push {k!r}{self._updater_text()}", priority))
        return {k for k, arrays in targets.items() if len(arrays) > 1}

    def _updater_text(self) -> str:
        """The receiver of a sum that is not stored, as text that ranks compare."""
        if self._optimizer is not None:
            return f" by {self._optimizer.kind.__name__}"
        return "" if self._updater is None else " by an updater"

    def _is_stored(self) -> bool:
        """Whether a sum becomes what is stored."""
        plain = self._codec is None and self._optimizer is None and self._updater is None
        return plain and not in_graph([])

    def _targets(
        self, key: Key | Sequence[Key], pairs: list[tuple[Key, list[Any]]], out: Any
    ) -> dict[Key, list[Tensor]]:
        """Arrays that receive sums which are exchanged alone: the stored one, and the one that the key is pulled to.

        Each of them is all of its memory, which it shares with no other key.
        """
        targets: dict[Key, list[Tensor]] = {}
        least = DIRECT_BYTES if len(pairs) == 1 else max(DIRECT_BYTES, self._bucket_bytes // 2)
        if all(xs[0].nbytes <= least for _, xs in pairs) or not self._is_stored():
            return targets
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
            targets[k] = [stored]
            y, *more = outs.get(k, [None])
            if not isinstance(y, Tensor) or more or y.device is not x.device:
                continue
            if any(other != k and _core.shares_memory(z, y) for other, z in arrays):
                continue
            if _core.overwrite(y, "pull"):
                targets[k].append(y)
        return targets

    def _check_compressible(self, merged: list[tuple[Key, Any]]) -> None:
        for k, x in merged:
            if isinstance(x, Tensor) and x.dtype.name != "float32":
                raise DTypeError(
                    f"push: only float32 values are compressed, the key {k!r} has type {x.dtype}"
                )

    def _is_exchanged_alone(self, x: Any) -> bool:
        """An array of more than half a bucket is exchanged by itself: so it is not copied."""
        return bool(x.nbytes > self._bucket_bytes // 2)

    def _buckets(self, pairs: list[tuple[Key, Tensor]]) -> list[list[tuple[Key, Tensor]]]:
        buckets: list[list[tuple[Key, Tensor]]] = []
        for k, x in pairs:
            last = buckets[-1] if buckets else []
            if last and (self._is_exchanged_alone(x) or self._is_exchanged_alone(last[0][1])):
                last = []
            room = self._bucket_bytes - sum(y.nbytes for _, y in last)
            if last and (last[0][1].dtype, last[0][1].device) == (x.dtype, x.device) and x.nbytes <= room:
                last.append((k, x))
            else:
                buckets.append([(k, x)])
        return buckets

    def _exchange(self, bucket: list[tuple[Key, Tensor]], codec: Codec | None, priority: int) -> Any:
        """Begin an exchange; gives the bucket and the function of its sums."""
        names, xs = [k for k, _ in bucket], [x for _, x in bucket]
        text = f"push {names!r}{self._updater_text()}"
        if codec is None:
            results = reduce_together(xs, "sum", text, priority, LARGE_BYTES, needs_all=COPIES)
        else:
            results = compressed_sum(xs, [self._residual(k, 0, x) for k, x in bucket], codec, text, priority)
        return bucket, results


class _Agreement:
    """Around checks of arguments: where they fail on one rank, the others get an error as well."""

    def __init__(self, size: int, text: str) -> None:
        self.size, self.text = size, text

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None and self.size > 1 and isinstance(error, Exception):
            fail(self.text, f"{type(error).__name__}: {error}")


def _sum_rows(x: RowSparse, text: str, priority: int) -> RowSparse:
    """The sum of all workers' rows."""
    n = world().size
    counts = _gather_rows(tensor([x.rows.size]), f"{text} numbers of rows", priority).numpy()
    width = int(counts.max())
    missing = width - x.rows.size
    rows = tensor(np.concatenate([x.rows, np.zeros(missing, "int64")]))
    padding = zeros((missing, *x.shape[1:]), dtype=x.dtype, device=x.device)
    values = F.concat([x.values, padding]) if missing else x.values
    gathered_rows = _gather_rows(rows, f"{text} rows", priority).numpy().reshape(n, width)
    gathered = _gather_rows(values, f"{text} values", priority)
    parts = [
        RowSparse(gathered_rows[r, : counts[r]], gathered[r * width : r * width + int(counts[r])], x.shape)
        for r in range(n)
    ]
    return RowSparse.summed(parts)


def _gather_rows(x: Tensor, text: str, priority: int) -> Tensor:
    """All ranks' x, which has as many elements on each."""
    kind = ((world().size * x.shape[0], *x.shape[1:]), x.dtype, x.device)
    (gathered,) = push_exchange(f"{text} {type_text(x)}", AllGather(COPIES), [x], [kind], priority).outputs()
    return gathered
