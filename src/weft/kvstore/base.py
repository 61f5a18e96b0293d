"""The interface of all kinds of key-value stores, the checks they share, and the table of kinds."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from weft import _core
from weft.arrays.tensor import Tensor
from weft.base.errors import DTypeError, ShapeError
from weft.sparse import RowSparse

__all__ = ["KVStore", "create", "kinds", "register"]

Key = int | str
S = TypeVar("S", bound="type[KVStore]")

_kinds: dict[str, type[KVStore]] = {}
# The modules of weft's own kinds, which are imported when a kind is first used.
_BUILTIN = {
    "local": "weft.kvstore.local",
    "device": "weft.kvstore.local",
    "dist_sync": "weft.kvstore.synchronous",
    "dist_sync_ps": "weft.kvstore.parameter_server",
    "dist_async": "weft.kvstore.parameter_server",
    "dist_ssp": "weft.kvstore.parameter_server",
}


class KVStore:
    """Base of all kinds. Keys are integers or texts, never both in one store; a list of keys takes a list of values.

    A value is a Tensor, a RowSparse, or a list of these, one from each device, which are added up. Calls return at
    once; what goes wrong later poisons the arrays, and is raised, with the line of the call, where one of them is read.
    priority: of several exchanges that could go next, the one of the highest priority does; give early layers, which
    the next step needs first, the highest.
    """

    type: ClassVar[str]

    @property
    def rank(self) -> int:
        """The number of this worker."""
        return 0

    @property
    def num_workers(self) -> int:
        """The number of workers."""
        return 1

    def init(self, key: Key | Sequence[Key], value: Any) -> None:
        """Make keys, with their first values; with several workers rank 0's are taken, and all must call it.

        Raises ValueError for a key that is there already, TypeError for keys of mixed types.
        """
        raise NotImplementedError(f"{self.type}: no init")

    def push(self, key: Key | Sequence[Key], value: Any, priority: int = 0) -> None:
        """Give the updater the sum of the values, of all workers if the kind is synchronous; without one it is stored.

        Raises KeyError for a key that was not initialised, ShapeError or DTypeError for a value unlike the first one.
        """
        raise NotImplementedError(f"{self.type}: no push")

    def pull(self, key: Key | Sequence[Key], out: Any = None, priority: int = 0) -> Any:
        """Copy what is stored to out, a Tensor or several for each key; returns out, or new arrays if it is None."""
        raise NotImplementedError(f"{self.type}: no pull")

    def pushpull(self, key: Key | Sequence[Key], value: Any, out: Any = None, priority: int = 0) -> Any:
        """push, then pull; out None: to the values themselves."""
        self.push(key, value, priority)
        return self.pull(key, value if out is None else out, priority)

    def broadcast(self, key: Key | Sequence[Key], value: Any, out: Any = None, priority: int = 0) -> Any:
        """init, then pull; out None: to the values themselves."""
        self.init(key, value)
        return self.pull(key, value if out is None else out, priority)

    def row_sparse_pull(
        self, key: Key | Sequence[Key], out: Any = None, priority: int = 0, row_ids: Any = None
    ) -> Any:
        """The rows row_ids of what is stored, each once, as a RowSparse; or written to the rows of out, a Tensor."""
        raise NotImplementedError(f"{self.type}: no row_sparse_pull")

    def set_optimizer(self, optimizer: Any) -> None:
        """Let pushes be updates by an optimizer of the same kind and options; called again, it changes the options.

        optimizer: a weft.optimizer.Optimizer. A key whose first value is one of its parameters gets the options of that
        parameter's group, other keys those of the first group.
        """
        raise NotImplementedError(f"{self.type}: no set_optimizer")

    def set_updater(self, updater: Callable[[Key, Any, Tensor], Any]) -> None:
        """Let pushes call updater(key, pushed, stored), which writes stored."""
        raise NotImplementedError(f"{self.type}: no set_updater")

    def set_gradient_compression(self, parameters: Mapping[str, Any]) -> None:
        """Compress what is pushed, which must be float32. What 2bit and topk leave out is added to the key's next push.

        parameters: {"type": "2bit", "threshold": 0.5}, {"type": "topk", "ratio": 0.01}, {"type": "fp16"} or
        {"type": "bf16"}. Raises ValueError for others.
        """
        raise NotImplementedError(f"{self.type}: no set_gradient_compression")

    def barrier(self) -> None:
        """Wait until all workers have come here, with all that this one has pushed.

        Kinds of several workers raise the error of a last push of a key that has failed.
        """

    def save_optimizer_states(self, path: str | os.PathLike[str]) -> None:
        """Write the state of the store's optimizer to a file. Raises ValueError without an optimizer."""
        raise NotImplementedError(f"{self.type}: no save_optimizer_states")

    def load_optimizer_states(self, path: str | os.PathLike[str]) -> None:
        """Go on from such a file. Raises ValueError if its keys or state do not fit."""
        raise NotImplementedError(f"{self.type}: no load_optimizer_states")

    def is_capable(self, what: str) -> bool:
        """Whether it can do something optional: "optimizer", "row_sparse", "compression"."""
        return False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.type!r}, rank {self.rank} of {self.num_workers})"


def register(*names: str) -> Callable[[S], S]:
    """A decorator that makes a subclass of KVStore a kind of these names; another one of a name takes its place.

    >>> @register("discarding")
    ... class Discarding(KVStore):
    ...     type = "discarding"
    ...     def push(self, key, value, priority=0):
    ...         pass
    >>> create("discarding").push(1, None)
    """

    def add(cls: S) -> S:
        for name in names:
            _kinds[name.lower()] = cls
        return cls

    return add


def kinds() -> list[str]:
    """The names that create accepts."""
    return sorted({*_BUILTIN, *_kinds})


def create(kind: str = "local", **options: Any) -> KVStore:
    """A store: "local", "device", "dist_sync", "dist_sync_ps", "dist_async", "dist_ssp", or a kind that was registered.

    options: of the kind. Raises ValueError for an unknown kind, TypeError for an option it does not have, ImportError
    with what to install where a package is missing.
    """
    name = kind.lower() if isinstance(kind, str) else kind
    if name not in _kinds and name in _BUILTIN:
        importlib.import_module(_BUILTIN[name])
    if name not in _kinds:
        raise ValueError(f"create: kind must be one of {', '.join(map(repr, kinds()))}, got {kind!r}")
    cls: Any = _kinds[name]
    store: KVStore = cls(name, **options) if getattr(cls, "takes_kind", False) else cls(**options)
    return store


# What kinds share.


def pairs_of(name: str, key: Any, value: Any, needs_value: bool = True) -> list[tuple[Key, list[Any]]]:
    """Keys with the list of values of each, which is empty where there is none.

    Raises TypeError, also where there is none although it needs one, or ValueError for lists of different lengths.
    """
    if isinstance(key, list | tuple):
        if value is None and not needs_value:
            return [(check_key(name, k), []) for k in key]
        if not isinstance(value, list | tuple) or len(value) != len(key):
            count = len(value) if isinstance(value, list | tuple) else type(value).__name__
            raise ValueError(f"{name}: {len(key)} keys need a list of as many values, got {count}")
        if len(set(key)) != len(key):
            twice = next(k for k in key if list(key).count(k) > 1)
            raise ValueError(f"{name}: the key {twice!r} is there twice")
        return [(check_key(name, k), as_values(name, v)) for k, v in zip(key, value, strict=True)]
    return [(check_key(name, key), [] if value is None and not needs_value else as_values(name, value))]


def rows_of(key: Any, out: Any, row_ids: Any) -> list[tuple[Key, Any, Any]]:
    """Keys with the array that takes the rows, or None, and the rows of each. Raises ValueError for unequal lists."""
    many = isinstance(key, list | tuple)
    keys = list(key) if many else [key]
    outs, rows = (out, row_ids) if many else ([out], [row_ids])
    outs = [None] * len(keys) if outs is None else outs
    if rows is None or len(rows) != len(keys) or any(r is None for r in rows):
        raise ValueError("row_sparse_pull: each key needs its row_ids")
    if len(outs) != len(keys):
        raise ValueError(f"row_sparse_pull: {len(keys)} keys need a list of as many arrays, got {len(outs)}")
    return [(check_key("row_sparse_pull", k), y, r) for k, y, r in zip(keys, outs, rows, strict=True)]


def check_key(name: str, key: Any) -> Key:
    """The key. Raises TypeError if it is none."""
    if isinstance(key, bool) or not isinstance(key, int | str):
        raise TypeError(f"{name}: a key is an int or a str, got {type(key).__name__}")
    return key


def as_values(name: str, value: Any) -> list[Any]:
    """One value or several as a list. Raises TypeError for other things, ValueError for none."""
    values = list(value) if isinstance(value, list | tuple) else [value]
    if not values:
        raise ValueError(f"{name}: a key needs at least one value")
    for each in values:
        if type(each) is not Tensor and not isinstance(each, RowSparse):
            raise TypeError(f"{name}: a value is a Tensor or a RowSparse, got {type(each).__name__}")
    return values


def check_key_types(name: str, old: Iterator[Key] | Sequence[Key], new: Sequence[Key]) -> None:
    """Raises TypeError if some keys are integers and others texts."""
    type_names = {type(k).__name__ for k in [*old, *new]}
    if len(type_names) > 1:
        raise TypeError(f"{name}: the keys of a store are all int or all str, got both")


def new_keys(name: str, old: Sequence[Key], key: Any, value: Any) -> list[tuple[Key, list[Tensor]]]:
    """Keys with their first values. Raises ValueError for a key that is there, TypeError for what is not a Tensor."""
    pairs = pairs_of(name, key, value)
    check_key_types(name, old, [k for k, _ in pairs])
    for k, values in pairs:
        if k in old:
            raise ValueError(f"{name}: the key {k!r} is initialised already")
        if not values or any(type(v) is not Tensor for v in values):
            raise TypeError(f"{name}: the key {k!r} begins with a Tensor")
    return pairs


def check_like(name: str, key: Key, value: Any, stored: Any) -> None:
    """Raises ShapeError or DTypeError for a value that is not like what is stored."""
    if tuple(value.shape) != tuple(stored.shape):
        raise ShapeError(
            f"{name}: the key {key!r} has shape {tuple(stored.shape)}, the value {tuple(value.shape)}"
        )
    if value.dtype is not stored.dtype:
        dense = value.values if isinstance(value, RowSparse) else value
        raise DTypeError(
            f"{name}: the key {key!r} has type {stored.dtype}, the value is {_core.describe(dense)}"
        )


def unknown_key(name: str, key: Key, keys: Any) -> KeyError:
    """The error of a key that there is not."""
    listing = ", ".join(map(repr, list(keys)[:8])) or "none"
    more = f", and {len(keys) - 8} more" if len(keys) > 8 else ""
    return KeyError(f"{name}: no key {key!r} was initialised; there are: {listing}{more}")
