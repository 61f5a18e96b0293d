"""Stores in this process: kinds "local" and "device".

Their work is operators of weft on the arrays, so the engine runs it where it fits, and a trace writes it down.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar
from weakref import ref

from weft import _core, checkpoint
from weft.arrays.creation import tensor
from weft.arrays.tensor import Tensor
from weft.base.device import cpu
from weft.base.errors import DTypeError, ShapeError
from weft.distributed.compression import Codec, make_codec
from weft.engine import default_engine
from weft.gradients.gradient import no_grad
from weft.kvstore.base import Key, KVStore, check_like, new_keys, pairs_of, register, rows_of, unknown_key
from weft.optimizer.lazy import lazy_update
from weft.optimizer.optimizer import Optimizer
from weft.recording.control_flow_effects import in_graph
from weft.sparse import RowSparse

__all__ = ["LocalStore", "StoreOptimizer"]


@register("local", "device")
class LocalStore(KVStore):
    """Kinds "local": sums are made on cpu:0, and "device": where the first value is. See KVStore."""

    takes_kind: ClassVar[bool] = True

    def __init__(self, kind: str = "local") -> None:
        self.type = kind  # type: ignore[misc]
        self._stored: dict[Key, Tensor] = {}
        self._first: dict[Key, ref[Tensor]] = {}  # what was given to init
        self._updater: Callable[[Key, Any, Tensor], Any] | None = None
        self._optimizer: StoreOptimizer | None = None
        self._codec: Codec | None = None
        self._residuals: dict[tuple[Key, int], Tensor | None] = {}
        self._pushed: dict[Key, Tensor] = {}  # an element of what was pushed last, to an optimizer or updater

    def init(self, key: Key | Sequence[Key], value: Any) -> None:
        pairs = new_keys("init", list(self._stored), key, value)
        with no_grad():
            for k, (first, *_) in pairs:
                self._stored[k] = first.copy()
                self._first[k] = ref(first)
        self._make_states()

    def _checked(self, name: str, key: Any, value: Any) -> list[tuple[Key, list[Any]]]:
        pairs = pairs_of(name, key, value, needs_value=name != "pull")
        for k, values in pairs:
            if k not in self._stored:
                raise unknown_key(name, k, self._stored)
            for v in values:
                check_like(name, k, v, self._stored[k])
            if len({type(v) for v in values}) > 1:
                raise TypeError(f"{name}: the values of the key {k!r} are all Tensors or all RowSparse")
        return pairs

    # Pushing.

    def push(self, key: Key | Sequence[Key], value: Any, priority: int = 0) -> None:
        pairs = self._checked("push", key, value)
        with no_grad():
            for k, values in pairs:
                self._update(k, self._sum_values(k, values))

    def _sum_values(self, key: Key, values: list[Any]) -> Any:
        """The sum of one worker's values."""
        if isinstance(values[0], RowSparse):
            return RowSparse.summed(values)
        device = cpu(0) if self.type == "local" else values[0].device
        codec = self._codec
        total = None
        for number, x in enumerate(values):
            x = x.to_device(device)
            if codec is not None:
                x = codec.decode(codec.encode(x.reshape(-1), self._residual(key, number, x)), x.size)
                x = x.reshape(values[number].shape)
            total = x if total is None else total + x
        return total

    def _residual(self, key: Key, number: int, x: Tensor) -> Tensor | None:
        assert self._codec is not None
        if x.dtype.name != "float32":
            raise DTypeError(f"push: only float32 values are compressed, the key {key!r} has type {x.dtype}")
        if (key, number) not in self._residuals:
            if in_graph([x]):
                raise RuntimeError(
                    f"push: the key {key!r} gets {number + 1} values for the first time in a traced function, which "
                    "cannot make what compression keeps of them: push as many once before"
                )
            self._residuals[key, number] = self._codec.new_residual(x)
        return self._residuals[key, number]

    def _update(self, key: Key, pushed: Any, fresh: bool = False) -> None:
        """Update what is stored by a sum. fresh: nothing else references the array."""
        stored = self._stored[key]
        if isinstance(pushed, Tensor):
            pushed = pushed.to_device(stored.device)
        self._keep_element(key, pushed)
        if self._optimizer is not None:
            self._optimizer(key, pushed, stored)
        elif self._updater is not None:
            self._updater(key, pushed, stored)
        elif isinstance(pushed, RowSparse):
            stored[...] = 0
            stored[pushed.indices] = pushed.values
        elif fresh and not in_graph([pushed]):
            self._stored[key] = pushed
        else:
            stored[...] = pushed

    def _keep_element(self, key: Key, pushed: Any) -> None:
        """Keep an element of what is pushed: it has failed if that has, while what is stored then stays as it was."""
        self._pushed.pop(key, None)
        values = pushed.values if isinstance(pushed, RowSparse) else pushed
        updated = self._optimizer is not None or self._updater is not None
        if updated and values.size and not in_graph([values]):
            self._pushed[key] = values[(slice(0, 1),) * len(values.shape)].copy()

    def _after_push(self, key: Key, y: Tensor) -> Tensor:
        """y, which is computed from what is stored; it has failed if what was pushed last has."""
        pushed = self._pushed.get(key)
        if pushed is not None and not in_graph([]) and not default_engine()._is_ready(pushed):
            default_engine().push(lambda _: None, y.device, [pushed], [y], name="pull")
        return y

    # Pulling.

    def pull(self, key: Key | Sequence[Key], out: Any = None, priority: int = 0) -> Any:
        pairs = self._checked("pull", key, out)
        if out is None:
            outputs = [self._after_push(k, self._stored[k].copy()) for k, _ in pairs]
            return outputs if isinstance(key, list | tuple) else outputs[0]
        for k, outs in pairs:
            for y in outs:
                if isinstance(y, RowSparse):
                    raise TypeError("pull: out is a Tensor; row_sparse_pull gives rows")
                _copy(self._stored[k], y, priority)
                self._after_push(k, y)
        return out

    def row_sparse_pull(
        self, key: Key | Sequence[Key], out: Any = None, priority: int = 0, row_ids: Any = None
    ) -> Any:
        rows = [self._rows(*each) for each in rows_of(key, out, row_ids)]
        return rows if isinstance(key, list | tuple) else rows[0]

    def _rows(self, key: Key, out: Tensor | None, row_ids: Any) -> Any:
        if key not in self._stored:
            raise unknown_key("row_sparse_pull", key, self._stored)
        stored = self._stored[key]
        rows = unique_rows(row_ids, stored.shape)
        with no_grad():
            indices = self._after_push(key, tensor(rows, device=stored.device))
            if out is None:
                return RowSparse(rows, stored[indices], stored.shape)
            check_like("row_sparse_pull", key, out, stored)
            out[indices.to_device(out.device)] = stored[indices].to_device(out.device)
            return out

    # Updating.

    def set_optimizer(self, optimizer: Any) -> None:
        check_optimizer(optimizer)
        if self._optimizer is not None and self._optimizer.kind is type(optimizer):
            self._optimizer.source = optimizer
        else:
            self._optimizer = StoreOptimizer(optimizer, self._first)
        self._updater = None
        self._make_states()

    def _make_states(self) -> None:
        """Make states before the first push: a trace of that would take new ones for its own."""
        if (codec := self._codec) is not None:
            for k, stored in self._stored.items():
                if (k, 0) not in self._residuals and stored.dtype.name == "float32":
                    self._residuals[k, 0] = codec.new_residual(stored)
        if self._optimizer is not None:
            for k, stored in self._stored.items():
                self._optimizer.of(k, stored)

    def set_updater(self, updater: Callable[[Key, Any, Tensor], Any]) -> None:
        if not callable(updater):
            raise TypeError(f"set_updater: takes a function, got {type(updater).__name__}")
        self._updater, self._optimizer = updater, None

    def set_gradient_compression(self, parameters: Mapping[str, Any]) -> None:
        self._codec, self._residuals = make_codec(parameters), {}
        self._make_states()

    def save_optimizer_states(self, path: str | os.PathLike[str]) -> None:
        checkpoint.save(path, optimizer=self._need_optimizer("save_optimizer_states"))

    def load_optimizer_states(self, path: str | os.PathLike[str]) -> None:
        checkpoint.load(path, random_state=False, optimizer=self._need_optimizer("load_optimizer_states"))

    def _need_optimizer(self, name: str) -> StoreOptimizer:
        if self._optimizer is None:
            raise ValueError(f"{name}: the store has no optimizer; call set_optimizer first")
        return self._optimizer

    def is_capable(self, what: str) -> bool:
        return what in ("optimizer", "row_sparse", "compression")


class StoreOptimizer:
    """An optimizer for each key, like a given one: an updater with state.

    Learning rates are shared with the given one, so schedules of it hold here, too, also in traced steps.
    """

    def __init__(self, source: Optimizer, first: Mapping[Key, ref[Tensor]] | None = None) -> None:
        self.source, self.kind = source, type(source)
        self._first = first or {}
        self._optimizers: dict[Key, Optimizer] = {}

    def of(self, key: Key, stored: Tensor) -> Optimizer:
        """The optimizer of a key."""
        group = self._group(key)
        optimizer = self._optimizers.get(key)
        if optimizer is None:
            optimizer = self._optimizers[key] = self.kind([{"params": [stored], **group}])
        optimizer.param_groups[0].follow(group)
        return optimizer

    def _group(self, key: Key) -> Any:
        parameter = self._first[key]() if key in self._first else None
        groups = self.source.param_groups
        if parameter is not None:
            for group in groups:
                if any(p is parameter for p in group.params):
                    return group
        return groups[0]

    def __call__(self, key: Key, pushed: Any, stored: Tensor) -> None:
        optimizer = self.of(key, stored)
        if isinstance(pushed, RowSparse):
            lazy_update(optimizer, stored, pushed)
            return
        if tuple(pushed.shape) != tuple(stored.shape):
            raise ShapeError(f"push: {tuple(pushed.shape)} does not fit {tuple(stored.shape)}")
        (group,) = optimizer.param_groups
        (step_group,) = group.step_groups
        with no_grad():
            step_group.step += 1
            optimizer.update(group, step_group, [pushed])

    def state_dict(self) -> dict[str, Any]:
        """The state of each key, whose name is text here: "i:3" or "s:weight"."""
        return {
            "kind": self.kind.__name__,
            "keys": {key_text(k): optimizer.state_dict() for k, optimizer in self._optimizers.items()},
        }

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises ValueError if the state does not fit."""
        if not isinstance(state, Mapping) or state.get("kind") != self.kind.__name__:
            kind = state.get("kind") if isinstance(state, Mapping) else type(state).__name__
            raise ValueError(f"load_optimizer_states: the state is of {kind}, here {self.kind.__name__}")
        unfit = sorted(set(state["keys"]) - {key_text(k) for k in self._optimizers})
        if unfit:
            raise ValueError(f"load_optimizer_states: no key {', '.join(unfit)} here")
        for k, optimizer in self._optimizers.items():
            if key_text(k) in state["keys"]:
                optimizer.check_state_dict(state["keys"][key_text(k)])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.check_state_dict(state)
        for k, optimizer in self._optimizers.items():
            if key_text(k) in state["keys"]:
                optimizer.load_state_dict(state["keys"][key_text(k)])


def key_text(key: Key) -> str:
    """A key as text that says its type."""
    return f"i:{key}" if isinstance(key, int) else f"s:{key}"


def check_optimizer(optimizer: Any) -> None:
    """Raises TypeError unless it is one."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"set_optimizer: takes a weft.optimizer.Optimizer, got {type(optimizer).__name__}")


def unique_rows(row_ids: Any, shape: Sequence[int]) -> Any:
    """Row numbers, each once, as NumPy's. Waits for them. Raises IndexError for a row that there is not."""
    import numpy as np

    rows = np.unique(np.asarray(row_ids.numpy() if isinstance(row_ids, Tensor) else row_ids))
    if rows.size and rows.dtype.kind not in "iu":
        raise DTypeError(f"row_sparse_pull: row_ids must be integers, got {rows.dtype}")
    rows = rows.astype("int64")
    if rows.size and not (rows[0] >= 0 and rows[-1] < shape[0]):
        wrong = rows[0] if rows[0] < 0 else rows[-1]
        raise IndexError(f"row_sparse_pull: no row {wrong} of {shape[0]}")
    return rows


def _copy(x: Tensor, y: Tensor, priority: int) -> None:
    """y[...] = x; with a priority as an operation that has one."""
    if not priority or in_graph([x]) or x.device is not y.device:
        with no_grad():
            y[...] = x.to_device(y.device)
        return

    is_whole = _core.overwrite(y, "pull")

    def run(_: Any) -> None:
        y.numpy()[...] = x.numpy()

    changed, replaced = ([], [y]) if is_whole else ([y], [])
    default_engine().push(run, y.device, [x], changed, replaced, priority, "pull", queue="copy")
