"""States of MXNet's optimizers, as Trainer.save_states and Module.save_optimizer_states write them; nothing is run.

Such a file is a pickle of {index of a parameter: arrays}, from a Trainer with the optimizer beside it; each array is
bytes of version 2 of the format of arrays. The optimizer's class is not needed: its attributes are read as plain data.
Source: Apache MXNet 1.9, python/mxnet/optimizer/updater.py and NDArray.__getstate__; verified against files it wrote.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

from weft.arrays.creation import full_like
from weft.arrays.tensor import Tensor
from weft.base.device import Device, as_device
from weft.base.typing import Any
from weft.interop.mxnet_params import read_array
from weft.interop.pickled import Rebuilt, read_pickle, replaced
from weft.interop.source import FileSource, MemorySource, open_source, short
from weft.optimizer import SGD, Adam, Optimizer

__all__ = ["OptimizerStates", "load_states", "restore"]

OPTIMIZERS = (
    *("SGD", "NAG", "Signum", "FTML", "LARS", "LBSGD", "LAMB", "DCASGD", "SGLD", "Adam", "AdamW", "AdaGrad"),
    *("RMSProp", "AdaDelta", "Ftrl", "Adamax", "Nadam", "ccSGD"),
)
SCHEDULERS = ["LRScheduler", "FactorScheduler", "MultiFactorScheduler", "PolyScheduler", "CosineScheduler"]
MAX_DEPTH = 8  # of objects and containers in an optimizer's attributes


class OptimizerStates(NamedTuple):
    """What a file has. arrays: by the index or name of a parameter, as the optimizer keeps them: None, one, or a tuple.

    optimizer: its attributes by name, with "class", that of MXNet; None if the file has no optimizer.
    """

    arrays: dict[Any, Any]
    optimizer: dict[str, Any] | None


class _Array(Rebuilt):
    """An NDArray in a pickle."""

    def __init__(self, *_: Any) -> None:
        self.data: bytes | None = None

    def set_state(self, state: Any) -> None:
        data = state.get("handle") if isinstance(state, dict) else None
        if not isinstance(data, bytes | bytearray):
            raise ValueError("an array without elements")
        self.data = bytes(data)


class _Object(Rebuilt):
    """An optimizer or a schedule: its class and attributes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.attributes: dict[Any, Any] = {}

    def set_state(self, state: Any) -> None:
        if not isinstance(state, dict):
            raise ValueError(f"{self.name} with attributes that are no dictionary")
        self.attributes = state


def _maker(name: str) -> Any:
    return lambda *_: _Object(name)


NAMES: dict[str, Any] = {
    **{f"mxnet.{module}.NDArray": _Array for module in ("ndarray.ndarray", "ndarray")},
    **{
        f"mxnet.{module}.{name}": _maker(name)
        for module, name in (
            *product(("optimizer.optimizer", "optimizer"), OPTIMIZERS),
            *product(("lr_scheduler",), SCHEDULERS),
        )
    },
}


def load_states(path: str | os.PathLike[str], device: Device | str | None = None) -> OptimizerStates:
    """The states in a file of Trainer.save_states, Module.save_optimizer_states or Updater.get_states.

    Nothing of the file is run: arrays, and the optimizer's numbers and texts, are read as data. device: where arrays
    go; None: the current one. `restore` gives them to an optimizer. Raises FileFormatError if the file is damaged or
    refers to anything else, such as an optimizer of the writer's own; OSError if it cannot be opened.
    Source: Apache MXNet 1.9.

    >>> import pickle, tempfile, weft as wf
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(pickle.dumps({0: None}))
    ...     file.flush()
    ...     wf.interop.mxnet.load_states(file.name)
    OptimizerStates(arrays={0: None}, optimizer=None)
    """
    where = f"mxnet.load_states: {os.fsdecode(path)!r}"
    with open_source(path, where, as_device(device)) as source:
        value, end = read_pickle(source.view(), where, NAMES)
        if end != source.size_bytes:
            raise source.fail(f"{source.size_bytes - end} bytes behind the pickle, at byte {end}")
        optimizer = None
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], _Object):
            value, optimizer = value[0], _plain(value[1], source, MAX_DEPTH)
        if not isinstance(value, dict):
            raise source.fail(f"holds {short(type(value).__name__)}, no states by parameter")
        return OptimizerStates(replaced(value, lambda part: _tensor(part, source), where), optimizer)


def _tensor(part: Rebuilt, source: FileSource) -> Tensor:
    if not isinstance(part, _Array) or part.data is None:
        raise source.fail(f"holds {type(part).__name__} in the place of an array")
    return read_array(MemorySource(part.data, source.where, source.device))


def _plain(value: Any, source: FileSource, depth: int) -> Any:
    """Attributes as plain data."""
    if depth == 0:
        raise source.fail(f"attributes are in each other more than {MAX_DEPTH} deep")
    match value:
        case None | bool() | int() | float() | str():
            return value
        case _Object():
            return {"class": value.name, **_plain(value.attributes, source, depth - 1)}
        case dict():
            return {key: _plain(each, source, depth - 1) for key, each in value.items()}
        case list() | tuple():
            return type(value)(_plain(each, source, depth - 1) for each in value)
    raise source.fail(f"an attribute is {short(type(value).__name__)}")


def restore(
    optimizer: Optimizer,
    states: OptimizerStates,
    parameters: Sequence[Tensor] | Mapping[Any, Tensor],
    updates: int | None = None,
) -> None:
    """Give states of MXNet to an optimizer, which then goes on as MXNet's would.

    parameters: the optimizer's, in MXNet's order (those of a Trainer, or the arguments of a Module's symbol without
    inputs), or by the keys of states.arrays. SGD (and NAG as SGD with nesterov) and Adam are supported: MXNet's
    momentum, which holds -lr, becomes weft's; Adam divides by sqrt(v) + eps before its correction there, so that steps
    differ by about eps. updates: of each parameter until now, where the file has no optimizer that says it; Adam needs
    it. Options of the optimizer stay as they are. Raises NotImplementedError for other optimizers and for
    multi_precision, KeyError for a parameter without a state, ValueError for arrays of another shape or number.

    >>> import weft as wf
    >>> w = wf.zeros(2)
    >>> opt = wf.optimizer.SGD([w], lr=0.5, momentum=0.9)
    >>> restore(opt, OptimizerStates({0: wf.tensor([1.0, -2.0])}, None), [w])
    >>> opt.state_dict()["state"]["0.momentum"].tolist()
    [-2.0, 4.0]
    """
    if type(optimizer) not in (SGD, Adam):
        raise NotImplementedError(f"restore: states of {type(optimizer).__name__}; there are SGD and Adam")
    by_key = parameters if isinstance(parameters, Mapping) else dict(enumerate(parameters))
    keys = {id(x): key for key, x in by_key.items()}
    attributes = states.optimizer or {}
    counts = attributes.get("_index_update_count", {})
    saved = optimizer.state_dict()
    new = dict(saved["state"])
    number = 0
    for group in optimizer.param_groups:
        for p in group.params:
            if id(p) not in keys or keys[id(p)] not in states.arrays:
                raise KeyError(f"restore: parameter {number} of the optimizer has no state")
            key = keys[id(p)]
            arrays = states.arrays[key]
            arrays = () if arrays is None else arrays if isinstance(arrays, tuple) else (arrays,)
            if not all(isinstance(x, Tensor) for x in arrays):
                raise NotImplementedError(f"restore: the state of {short(key)} is one of multi_precision")
            if isinstance(optimizer, SGD):
                lr = attributes.get("lr") if attributes.get("lr_scheduler") is None else None
                arrays = tuple(x * (-1 / (lr or group["lr"])) for x in arrays)
            count = counts.get(key, updates) if isinstance(counts, dict) else updates
            if count is None and isinstance(optimizer, Adam):
                raise ValueError(
                    "restore: the file has no optimizer that counts updates; updates= says how many"
                )
            roles = [name for name in new if name.startswith(f"{number}.") and name != f"{number}.step"]
            if [x.shape for x in arrays] != [new[role].shape for role in roles]:
                raise ValueError(
                    f"restore: the state of {short(key)} has arrays of {[x.shape for x in arrays]}, "
                    f"{type(optimizer).__name__} needs {[new[role].shape for role in roles]}"
                )
            new |= zip(roles, arrays, strict=True)
            new[f"{number}.step"] = full_like(new[f"{number}.step"], count or 0)
            number += 1
    optimizer.load_state_dict({**saved, "state": new})
