"""An optimizer whose state is divided among the ranks (ZeRO, stage 1).

Parameters are in buckets, in the order in which backward makes their gradients. A bucket's gradients are added up by
one reduce-scatter as soon as the last of them is final; each rank updates its part of the bucket, with the state of
that part alone, and the ranks gather the parts. The bytes that travel are those of an all-reduce; the memory of the
state is that of one rank divided by their number.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from weakref import ref

import numpy as np

from weft import functional as F
from weft.arrays.creation import zeros, zeros_like
from weft.arrays.tensor import Tensor, keep_gradient
from weft.distributed.collective import Pending, push_exchange, raise_failed, type_text
from weft.distributed.gradients import BUCKET_BYTES, split_flat
from weft.distributed.transport import AllGather, wide
from weft.distributed.world import world
from weft.gradients.gradient import gradients_of, no_grad, set_hook
from weft.optimizer.optimizer import Optimizer
from weft.optimizer.state import INITIAL_LR, PARAMETERS
from weft.recording.control_flow_effects import in_graph

__all__ = ["ShardedOptimizer"]


class _GatheredParts:
    """Reduce-scatter of several arrays of one type as one, filled with zeros to a multiple of the ranks; the mean."""

    def run(self, comm: Any, inputs: Any, outputs: Any) -> Iterator[Any]:
        from mpi4py import MPI

        (y,) = outputs
        direct = wide(y[:0]).dtype == y.dtype
        flat = np.zeros(y.size * comm.size, y.dtype if direct else "float32")
        offset = 0
        for x in inputs:
            np.copyto(flat[offset : offset + x.size].reshape(x.shape), x, casting="unsafe")
            offset += x.size
        target = y if direct else np.empty(y.shape, "float32")
        yield comm.Ireduce_scatter_block(flat, target, MPI.SUM)
        target *= target.dtype.type(1 / comm.size)
        if not direct:
            y[...] = target


class _Bucket:
    """Parameters of one type and device, and this rank's part of them behind each other."""

    def __init__(self, params: list[Tensor]) -> None:
        self.params = params
        self.size = sum(p.size for p in params)
        self.part = -(-self.size // world().size)
        self.shard = self.local_part(self.flat(params))
        self.gradients: dict[int, Tensor] = {}  # gradients of this backward, by id of the parameter

    def flat(self, arrays: list[Tensor]) -> Tensor:
        """Arrays behind each other, filled with zeros."""
        missing = self.part * world().size - self.size
        parts = [a.reshape(-1) for a in arrays]
        if missing:
            parts.append(zeros(missing, dtype=parts[0].dtype, device=parts[0].device))
        return F.concat(parts) if len(parts) > 1 else parts[0]

    def local_part(self, flat: Tensor) -> Tensor:
        """This rank's part, in memory of its own."""
        begin = world().rank * self.part
        return flat[begin : begin + self.part].copy()

    def refresh(self) -> None:
        """Read this rank's part from the parameters again: a checkpoint, for example, may have written them."""
        begin = world().rank * self.part
        offset = 0
        for p in self.params:
            low, high = max(begin, offset), min(begin + self.part, offset + p.size)
            if low < high:
                self.shard[low - begin : high - begin] = p.reshape(-1)[low - offset : high - offset]
            offset += p.size

    def split(self, flat: Tensor) -> list[Tensor]:
        """Views like the parameters."""
        return split_flat(flat, [p.shape for p in self.params])

    def gather(self, part: Tensor) -> Callable[[], Tensor]:
        """Begin to gather all ranks' parts."""
        n = world().size
        if n == 1:
            return lambda: part
        kind = ((n * part.size,), part.dtype, part.device)
        pending = push_exchange(f"sharded parameters {type_text(part)}", AllGather(), [part], [kind])
        return lambda: pending.outputs()[0]


class _Hook:
    """The hook of parameters: a weak reference to their optimizer, which holds them."""

    def __init__(self, optimizer: ShardedOptimizer) -> None:
        self.optimizer = ref(optimizer)

    def __call__(self, x: Tensor, dx: Tensor) -> None:
        if (optimizer := self.optimizer()) is not None:
            optimizer.receive(x, dx)

    def finish(self) -> list[tuple[Tensor, Any]]:
        """The optimizer's."""
        optimizer = self.optimizer()
        return [] if optimizer is None else optimizer.finish()


class ShardedOptimizer:
    """Any optimizer of weft.optimizer with its state divided among the ranks; the loop stays as it is.

    make: its class; options: its options, the same for all params. Parameters become rank 0's. Managers that attach
    params later exchange their gradients, as means over ranks, with this optimizer; `grad` of the parameters stays
    None. step() writes the parameters on all ranks. shards: this rank's parts, whose gradients clip_grad_norm(...,
    sharded=True) takes. Its state dictionaries are those of the plain optimizer of all params, so training goes on
    with any number of ranks, or without sharding; state_dict and load_state_dict are called on all ranks together.

    >>> import weft as wf
    >>> import weft.optimizer as optim
    >>> w = wf.tensor([1., 2.])
    >>> opt = ShardedOptimizer(optim.SGD, [w], lr=0.1)
    >>> gm = wf.GradManager().attach([w])
    >>> with gm:
    ...     gm.backward((w * w).sum())
    >>> _ = opt.step().clear_grad()
    >>> w
    tensor([0.8, 1.6], dtype=float32, device=cpu:0)
    """

    def __init__(
        self,
        make: type[Optimizer],
        params: Iterable[Tensor],
        *,
        bucket_bytes: int = BUCKET_BYTES,
        **options: Any,
    ) -> None:
        from weft.distributed.parallel import broadcast_together

        if not (isinstance(make, type) and issubclass(make, Optimizer)):
            raise TypeError(f"ShardedOptimizer: make must be a class of weft.optimizer, got {make!r}")
        if not make.elementwise:
            raise ValueError(
                f"ShardedOptimizer: {make.__name__} updates an element by what others of its parameter are, and ranks "
                "have parts of parameters; accepted are optimizers that treat elements one by one, such as AdamW"
            )
        self._shared = {"step", *make.totals}  # what all parameters of a part have together
        self.params = list(params)
        broadcast_together(self.params, "ShardedOptimizer")
        with no_grad():
            self._buckets = [_Bucket(each) for each in _make_buckets(self.params, bucket_bytes)]
        self._bucket_of = {id(p): bucket for bucket in self._buckets for p in bucket.params}
        self.inner = make([bucket.shard for bucket in self._buckets], **options)
        self._pending: list[tuple[_Bucket, Pending]] = []
        self._paused = False
        hook = _Hook(self)
        for p in self.params:
            set_hook(p, hook)

    @property
    def shards(self) -> list[Tensor]:
        """This rank's parts of the parameters."""
        return [bucket.shard for bucket in self._buckets]

    @property
    def param_groups(self) -> list[Any]:
        """The one group, of shards: for schedules, and options that change."""
        return self.inner.param_groups

    # Called by GradManager.

    def receive(self, x: Tensor, dx: Tensor) -> None:
        """A gradient is final."""
        if self._paused:
            return
        if not self._pending and not any(bucket.gradients for bucket in self._buckets) and not in_graph([]):
            raise_failed()
        (previous,) = gradients_of([x])
        if previous is not None:  # added up by this rank alone
            with no_grad():
                dx = previous + dx
            keep_gradient(x, None)
        bucket = self._bucket_of[id(x)]
        bucket.gradients[id(x)] = dx
        if len(bucket.gradients) == len(bucket.params):
            self._begin(bucket)

    def _begin(self, bucket: _Bucket) -> None:
        with no_grad():
            gradients = ((p, bucket.gradients.get(id(p))) for p in bucket.params)
            arrays = [zeros_like(p) if g is None else g for p, g in gradients]
            bucket.gradients = {}
            if world().size == 1:
                self._add(bucket, bucket.flat(arrays))
                return
            kinds = ", ".join(map(type_text, arrays))
            kind = ((bucket.part,), bucket.shard.dtype, bucket.shard.device)
            text = f"sharded gradients of {len(arrays)}: {kinds}"
            self._pending.append((bucket, push_exchange(text, _GatheredParts(), arrays, [kind])))

    def _add(self, bucket: _Bucket, gradient: Tensor) -> None:
        (previous,) = gradients_of([bucket.shard])
        keep_gradient(bucket.shard, gradient if previous is None else previous + gradient)

    def finish(self) -> list[tuple[Tensor, Any]]:
        """The parameters, without gradients of their own; called by GradManager at the end of backward."""
        if self._paused:
            return []
        for bucket in self._buckets:
            if bucket.gradients:
                self._begin(bucket)
        exchanges, self._pending = self._pending, []
        with no_grad():
            for bucket, pending in exchanges:
                self._add(bucket, pending.outputs()[0])
        return [(p, None) for p in self.params]

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward inside adds gradients up on this rank alone; the next one outside exchanges the sums."""
        was_paused, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = was_paused

    # The interface of optimizers.

    def step(self) -> ShardedOptimizer:
        """Update the parts that have a gradient, and the parameters of all ranks."""
        updated = [bucket for bucket in self._buckets if gradients_of([bucket.shard])[0] is not None]
        with no_grad():
            for bucket in updated:
                bucket.refresh()
        self.inner.step()
        with no_grad():
            gathered = [(bucket, bucket.gather(bucket.shard)) for bucket in updated]
            for bucket, flat in gathered:
                for p, new in zip(bucket.params, bucket.split(flat()), strict=True):
                    p[...] = new
        return self

    def clear_grad(self) -> ShardedOptimizer:
        """Set the gradients to None."""
        self.inner.clear_grad()
        for p in self.params:
            keep_gradient(p, None)
        return self

    def state_dict(self) -> dict[str, Any]:
        """The whole state, as the plain optimizer's: on all ranks, which all must call it."""
        local_state = self.inner.state_dict()
        numbers = {id(p): k for k, p in enumerate(self.params)}
        state: dict[str, Any] = {}
        with no_grad():
            for k, bucket in enumerate(self._buckets):
                for role in self._roles(local_state, k):
                    value = local_state["state"][f"{k}.{role}"]
                    each = [value] * len(bucket.params)
                    if role not in self._shared:
                        each = [x.copy() for x in bucket.split(bucket.gather(value)())]
                    for p, x in zip(bucket.params, each, strict=True):
                        state[f"{numbers[id(p)]}.{role}"] = x
        (group,) = local_state["groups"]
        ordered = {key: state[key] for key in sorted(state, key=lambda key: int(key.partition(".")[0]))}
        return {**local_state, "groups": [{**group, PARAMETERS: len(self.params)}], "state": ordered}

    def _roles(self, state: Mapping[str, Any], number: int) -> list[str]:
        return [key.partition(".")[2] for key in state["state"] if key.partition(".")[0] == str(number)]

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raise what load_state_dict would raise, and change nothing."""
        self.inner.check_state_dict(self._shard_state(state))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state of this optimizer with any number of ranks, or of the plain one with the same params."""
        self.inner.load_state_dict(self._shard_state(state))

    def _shard_state(self, state: Any) -> dict[str, Any]:
        has_groups = isinstance(state, Mapping) and {"groups", "state"} <= state.keys()
        if not has_groups or len(state["groups"]) != 1:
            raise ValueError(
                "load_state_dict: ShardedOptimizer: takes the state of an optimizer with one group"
            )
        (group,) = state["groups"]
        if group.get(PARAMETERS) != len(self.params):
            raise ValueError(
                f"load_state_dict: ShardedOptimizer: {group.get(PARAMETERS)} parameters, here {len(self.params)}"
            )
        numbers = {id(p): k for k, p in enumerate(self.params)}
        divided: dict[str, Any] = {}
        with no_grad():
            for k, bucket in enumerate(self._buckets):
                first = numbers[id(bucket.params[0])]
                for role in self._roles(state, first):
                    each = [state["state"][f"{numbers[id(p)]}.{role}"] for p in bucket.params]
                    if role not in self._shared:
                        for p, x in zip(bucket.params, each, strict=True):
                            if tuple(x.shape) != tuple(p.shape):
                                raise ValueError(
                                    f"load_state_dict: ShardedOptimizer: {role} of {type_text(p)} is {type_text(x)}"
                                )
                    divided[f"{k}.{role}"] = (
                        each[0] if role in self._shared else bucket.local_part(bucket.flat(each))
                    )
        count = {**group, PARAMETERS: len(self._buckets), INITIAL_LR: group.get(INITIAL_LR)}
        return {**state, "groups": [count], "state": divided}

    def __repr__(self) -> str:
        n, total = world().size, sum(math.prod(p.shape) for p in self.params)
        return f"ShardedOptimizer({self.inner!r}; {total} elements of state in {n} parts)"


def _make_buckets(params: list[Tensor], bucket_bytes: int) -> list[list[Tensor]]:
    """Buckets of one type and device each; backward comes to the last parameters first."""
    buckets: list[list[Tensor]] = []
    for p in reversed(params):
        last = buckets[-1] if buckets else []
        is_alike = bool(last) and (last[0].dtype, last[0].device) == (p.dtype, p.device)
        if is_alike and sum(q.nbytes for q in last) + p.nbytes <= bucket_bytes:
            last.append(p)
        else:
            buckets.append([p])
    return buckets
