"""The exchange of gradients while backward runs: buckets that are closed in the order in which gradients become final.

A bucket is one exchange. It reads the gradients themselves and gathers them at its end, on the queue's thread, so it
waits for nothing but them; what it gives is one array, of which the new gradients are views. Backward goes through the
same program on all ranks, so buckets hold the same parameters everywhere; the agreement at each exchange checks it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import ref

import numpy as np

from weft import functional as F
from weft.arrays.creation import zeros
from weft.arrays.tensor import Tensor, keep_gradient
from weft.base.errors import DTypeError
from weft.distributed.collective import SMALL_BYTES, Pending, push_exchange, raise_failed, type_text
from weft.distributed.compression import CastCodec, Codec, make_codec
from weft.distributed.transport import (
    AllGather,
    AllReduce,
    AllToAll,
    HostReduction,
    _mpi_op,
    pieces,
    run_in_pieces,
    wide,
)
from weft.distributed.world import world
from weft.gradients.gradient import gradients_of, no_grad
from weft.recording.control_flow_effects import in_graph

__all__ = ["GradientExchange", "all_reduce_callback", "compressed_sum", "reduce_into", "reduce_together"]

BUCKET_BYTES = 4 << 20
FIRST_BYTES = 1 << 20  # of the first bucket of a backward, which begins the earlier


@dataclass(frozen=True)
class Gathered(HostReduction):
    """All-reduce of several arrays of one type as one."""

    def run(
        self, comm: Any, inputs: Sequence[Any], outputs: Sequence[Any], contributors: int
    ) -> Iterator[Any]:
        """Gather them where they are reduced: in the output, unless that is of another type than MPI adds."""
        from mpi4py import MPI

        (y,) = outputs
        direct = wide(y[:0]).dtype == y.dtype
        flat = y if direct else np.empty(y.shape, "float32")
        copied = self.copy_inputs(inputs, flat)

        def requests() -> Iterator[tuple[Any, Callable[[], None]]]:
            filled = 0
            for piece in pieces(flat.size, flat.itemsize, comm.size, self.part_bytes):
                while filled < piece.stop:
                    filled = next(copied)

                def then(part: Any = flat[piece], result: Any = y[piece]) -> None:
                    if self.op == "mean":
                        part *= part.dtype.type(1 / contributors)
                    if not direct:
                        result[...] = part

                yield comm.Iallreduce(MPI.IN_PLACE, flat[piece], _mpi_op(self.op, flat.dtype)), then

        return run_in_pieces(requests())

    @staticmethod
    def copy_inputs(inputs: Sequence[Any], flat: Any) -> Iterator[int]:
        """Copy them behind each other; gives how many elements are there after each."""
        offset = 0
        for x in inputs:
            np.copyto(flat[offset : offset + x.size].reshape(x.shape), x, casting="unsafe")
            offset += x.size
            yield offset


def split_flat(flat: Tensor, shapes: Iterable[Sequence[int]]) -> list[Tensor]:
    """Views of these shapes, behind each other in an array of one axis."""
    views, offset = [], 0
    for shape in shapes:
        size = math.prod(shape)
        views.append(flat[offset : offset + size].reshape(shape))
        offset += size
    return views


def reduce_together(
    xs: Sequence[Tensor],
    op: str,
    name: str = "all_reduce",
    priority: int = 0,
    inline_bytes: int = SMALL_BYTES,
    computing: bool = False,
    needs_all: str = "",
) -> Callable[[], list[Tensor]]:
    """Begin the all-reduce of arrays of one type and device, as one exchange; the function gives the results.

    priority, inline_bytes: see push_exchange; computing: see HostReduction; needs_all: see Collective.
    """
    kinds = ", ".join(map(type_text, xs))
    size = sum(x.size for x in xs)
    is_single = len(xs) == 1  # nothing is gathered
    types = [(tuple(xs[0].shape) if is_single else (size,), xs[0].dtype, xs[0].device)]
    if is_single:
        text = f"{name} {op}: {kinds}"
        exchange = AllReduce(needs_all, op, computing)
        return push_exchange(text, exchange, xs, types, priority, inline_bytes=inline_bytes).outputs
    text = f"{name} {op} of {len(xs)}: {kinds}"
    pending = push_exchange(
        text, Gathered(needs_all, op, computing), xs, types, priority, inline_bytes=inline_bytes
    )
    shapes = [tuple(x.shape) for x in xs]
    return lambda: split_flat(pending.outputs()[0], shapes)


def reduce_into(
    x: Tensor,
    into: Sequence[Tensor],
    op: str,
    name: str,
    priority: int = 0,
    inline_bytes: int = SMALL_BYTES,
    needs_all: str = "",
) -> None:
    """Begin reduce_together([x], ...) with existing arrays for the result.

    The first one is stored in the order of its elements. Not in a graph.
    """
    text = f"{name} {op}: {type_text(x)}"
    push_exchange(text, AllReduce(needs_all, op), [x], (), priority, inline_bytes=inline_bytes, into=into)


COMPRESSED = "what compression leaves out, such a rank never sends"


def _gathered(x: Tensor, name: str, priority: int) -> Pending:
    size = world().size
    return push_exchange(
        f"{name} {type_text(x)}",
        AllGather(COMPRESSED),
        [x],
        [((size * x.size,), x.dtype, x.device)],
        priority,
    )


def compressed_sum(
    xs: Sequence[Tensor], residuals: Sequence[Tensor | None], codec: Codec, name: str, priority: int = 0
) -> Callable[[], list[Tensor]]:
    """Begin the exchange of what a codec makes of arrays; the function returned gives the sums over ranks, float32."""
    if isinstance(codec, CastCodec):
        return _cast_sum(xs, codec, name, priority)
    parts = [codec.encode(x.reshape(-1), r) for x, r in zip(xs, residuals, strict=True)]
    columns = [F.concat([part[k] for part in parts]) for k in range(len(parts[0]))]
    kind = codec.parameters["type"]
    pending_parts = [
        _gathered(column, f"{name} {kind} part {k}", priority) for k, column in enumerate(columns)
    ]

    def results() -> list[Tensor]:
        n = world().size
        gathered = [pending.outputs()[0].reshape(n, -1) for pending in pending_parts]
        offsets = [0] * len(gathered)
        sums = []
        for x, part in zip(xs, parts, strict=True):
            total = None
            for r in range(n):
                encoded = [gathered[k][r, offsets[k] : offsets[k] + p.size] for k, p in enumerate(part)]
                decoded = codec.decode(encoded, x.size)
                total = decoded if total is None else total + decoded
            assert total is not None
            sums.append(total.reshape(x.shape))
            offsets = [o + p.size for o, p in zip(offsets, part, strict=True)]
        return sums

    return results


def _cast_sum(xs: Sequence[Tensor], codec: CastCodec, name: str, priority: int) -> Callable[[], list[Tensor]]:
    """Each rank adds one part in float32: twice the bytes of a part travel, in 16 bits each."""
    n = world().size
    flat = F.concat([x.reshape(-1) for x in xs]) if len(xs) > 1 else xs[0].reshape(-1)
    size = flat.size
    if size % n:
        flat = F.concat([flat, zeros(-size % n, dtype=flat.dtype, device=flat.device)])
    (rounded,) = codec.encode(flat, None)
    kind = (tuple(rounded.shape), rounded.dtype, rounded.device)
    text = f"{name} {codec.parameters['type']}"
    first = push_exchange(
        f"{text} parts {type_text(rounded)}", AllToAll(COMPRESSED), [rounded], [kind], priority
    )

    def results() -> list[Tensor]:
        parts = codec.decode(first.outputs(), rounded.size).reshape(n, -1)
        total = parts[0]
        for r in range(1, n):
            total = total + parts[r]
        (part,) = codec.encode(total, None)
        flat_sum = codec.decode(_gathered(part, f"{text} sums", priority).outputs(), rounded.size)
        return split_flat(flat_sum, [x.shape for x in xs])

    return results


class GradientExchange:
    """A callback of GradManager.attach: gradients become their mean, or sum, over all ranks, while backward runs.

    op: "mean" or "sum". bucket_bytes: gradients are exchanged together up to so many; those of more than half of that
    by themselves.
    compression: as set_gradient_compression's, of float32 gradients. Of one rank it does nothing.

    >>> import weft as wf
    >>> w = wf.tensor([3.])
    >>> gm = wf.GradManager().attach([w], callbacks=wf.kvstore.all_reduce())
    >>> with gm:
    ...     gm.backward((w * w).sum())
    >>> w.grad.item()
    6.0
    """

    def __init__(
        self,
        op: str = "mean",
        bucket_bytes: int = BUCKET_BYTES,
        compression: Mapping[str, Any] | None = None,
    ) -> None:
        if op not in ("mean", "sum"):
            raise ValueError(f"all_reduce: op must be 'mean' or 'sum', got {op!r}")
        if not isinstance(bucket_bytes, int) or bucket_bytes < 1:
            raise ValueError(f"all_reduce: bucket_bytes must be a positive int, got {bucket_bytes!r}")
        self.op, self.bucket_bytes = op, bucket_bytes
        self.codec = None if compression is None else make_codec(compression)
        self.exchanges = 0  # buckets that were exchanged
        self._bucket: list[tuple[Tensor, Tensor]] = []
        self._pending: list[tuple[list[Tensor], Callable[[], list[Tensor]]]] = []
        self._paused = False
        self._local: dict[int, ref[Tensor]] = {}  # tensors whose grad holds what only this rank has added
        self._residuals: dict[int, tuple[ref[Tensor], Tensor | None]] = {}
        world()  # joins the job here, not in the middle of a trace

    def attached(self, x: Tensor) -> None:
        """Make a residual; called by GradManager, as a trace would take one that is made inside for its own."""
        if self.codec is not None and world().size > 1:
            self._residual(x, self.codec)

    def __call__(self, x: Tensor, dx: Tensor) -> None:
        if world().size == 1:
            return
        if not self._pending and not self._bucket and not in_graph([]):
            raise_failed()
        if self._paused:
            self._local[id(x)] = ref(x)
            return
        if self._local.pop(id(x), None) is not None:
            (previous,) = gradients_of([x])
            if previous is not None:
                with no_grad():
                    dx = previous + dx
                keep_gradient(x, None)
        if 2 * dx.nbytes > self.bucket_bytes:  # alone, so that it is not copied; smaller ones wait for others
            self._send([(x, dx)])
            return
        if self._bucket and not self._fits(dx):
            self._close()
        self._bucket.append((x, dx))
        first = not self._pending and self.bucket_bytes > FIRST_BYTES
        if sum(g.nbytes for _, g in self._bucket) >= (FIRST_BYTES if first else self.bucket_bytes):
            self._close()

    def _fits(self, dx: Tensor) -> bool:
        first = self._bucket[0][1]
        is_alike = (dx.dtype, dx.device) == (first.dtype, first.device)
        return is_alike and sum(g.nbytes for _, g in self._bucket) + dx.nbytes <= self.bucket_bytes

    def _close(self) -> None:
        """Exchange what is in the bucket."""
        bucket, self._bucket = self._bucket, []
        if bucket:
            self._send(bucket)

    def _send(self, bucket: list[tuple[Tensor, Tensor]]) -> None:
        self.exchanges += 1
        xs, dxs = [x for x, _ in bucket], [dx for _, dx in bucket]
        with no_grad():
            if self.codec is None:
                results = reduce_together(dxs, self.op, "gradients", computing=True)
            else:
                results = self._compressed(xs, dxs, self.codec)
        self._pending.append((xs, results))

    def _compressed(self, xs: list[Tensor], dxs: list[Tensor], codec: Codec) -> Callable[[], list[Tensor]]:
        if dxs[0].dtype.name != "float32":
            raise DTypeError(f"all_reduce: only float32 gradients are compressed, got {dxs[0].dtype}")
        results = compressed_sum(dxs, [self._residual(x, codec) for x in xs], codec, "gradients")
        if self.op == "sum":
            return results
        return lambda: [dx * (1 / world().size) for dx in results()]

    def _residual(self, x: Tensor, codec: Codec) -> Tensor | None:
        key = id(x)
        if key not in self._residuals:
            forget = self._residuals
            self._residuals[key] = (ref(x, lambda _: forget.pop(key, None)), codec.new_residual(x))
        return self._residuals[key][1]

    def finish(self) -> list[tuple[Tensor, Tensor]]:
        """The tensors and their gradients; called by GradManager at the end of backward."""
        self._close()
        pending, self._pending = self._pending, []
        with no_grad():
            return [pair for xs, results in pending for pair in zip(xs, results(), strict=True)]

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, gradients are only added up on this rank; the next backward outside exchanges their sums."""
        was_paused, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = was_paused


def all_reduce_callback(
    op: str = "mean", bucket_bytes: int = BUCKET_BYTES, compression: Mapping[str, Any] | None = None
) -> GradientExchange:
    """A callback for GradManager.attach; see GradientExchange."""
    return GradientExchange(op, bucket_bytes, compression)
