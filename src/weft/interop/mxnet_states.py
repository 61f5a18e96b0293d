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
from weft.optimizer import (
    FTML,
    LAMB,
    LARS,
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    Ftrl,
    Optimizer,
    RMSprop,
    Signum,
)

__all__ = ["OptimizerStates", "load_states", "restore"]

OPTIMIZERS = (
    *("SGD", "NAG", "Signum", "FTML", "LARS", "LBSGD", "LAMB", "DCASGD", "SGLD", "Adam", "AdamW", "AdaGrad"),
    *("RMSProp", "AdaDelta", "Ftrl", "Adamax", "Nadam", "ccSGD"),
)
SCHEDULERS = ["LRScheduler", "FactorScheduler", "MultiFactorScheduler", "PolyScheduler", "CosineScheduler"]
PLAIN, NEGATED, RATED = "as it is", "negated", "holds -lr"
# For each optimizer the classes of MXNet whose states it takes, and its own names of their arrays, in MXNet's order.
RESTORED: dict[type[Optimizer], tuple[tuple[str, ...], dict[str, str]]] = {
    SGD: (("SGD", "NAG", "ccSGD"), {"momentum": RATED}),
    Adam: (("Adam",), {"m": PLAIN, "v": PLAIN}),
    AdamW: (("AdamW",), {"m": PLAIN, "v": PLAIN}),
    Adamax: (("Adamax",), {"m": PLAIN, "u": PLAIN}),
    Adagrad: (("AdaGrad",), {"v": PLAIN}),
    Adadelta: (("AdaDelta",), {"v": PLAIN, "u": PLAIN}),
    RMSprop: (("RMSProp",), {"v": PLAIN, "a": PLAIN, "m": RATED}),
    Ftrl: (("Ftrl",), {"z": PLAIN, "n": PLAIN}),
    FTML: (("FTML",), {"d": PLAIN, "v": PLAIN, "z": PLAIN}),
    LAMB: (("LAMB",), {"m": PLAIN, "v": PLAIN}),
    LARS: (("LARS",), {"m": NEGATED}),
    Signum: (("Signum",), {"m": NEGATED}),
}
COUNTING = (Adam, AdamW, Adamax, FTML, LAMB)  # whose steps depend on how many there were
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
    inputs), or by the keys of states.arrays. updates: of each parameter until now, where the file has no optimizer that
    says it; optimizers whose steps depend on it need it. Options of the optimizer stay as they are.
    The optimizers are SGD (also for NAG, with nesterov), Adam, AdamW, Adamax, Adagrad, Adadelta, RMSprop, Ftrl, FTML,
    LAMB, LARS and Signum. eps is added to a root in some of them, and under it or before a correction in MXNet, so
    steps differ by about eps. Momentum that holds -lr in MXNet is divided by it. MXNet's Nadam multiplies one schedule
    once for each parameter, which no optimizer here does.
    Raises NotImplementedError for other optimizers and for multi_precision, KeyError for a parameter without a state,
    ValueError for arrays of another shape or number, and for states of another optimizer.

    >>> import weft as wf
    >>> w = wf.zeros(2)
    >>> opt = wf.optimizer.SGD([w], lr=0.5, momentum=0.9)
    >>> restore(opt, OptimizerStates({0: wf.tensor([1.0, -2.0])}, None), [w])
    >>> opt.state_dict()["state"]["0.momentum"].tolist()
    [-2.0, 4.0]
    """
    name, attributes = type(optimizer).__name__, states.optimizer or {}
    if type(optimizer) not in RESTORED:
        known = ", ".join(cls.__name__ for cls in RESTORED)
        raise NotImplementedError(f"restore: states of {name}; there are {known}")
    classes, conversions = RESTORED[type(optimizer)]
    if attributes.get("class", classes[0]) not in classes:
        raise ValueError(
            f"restore: the file has states of {short(attributes['class'])}, {name} takes those of {', '.join(classes)}"
        )
    by_key = parameters if isinstance(parameters, Mapping) else dict(enumerate(parameters))
    keys = {id(x): key for key, x in by_key.items()}
    counts = attributes.get("_index_update_count", {})
    saved = optimizer.state_dict()
    new = dict(saved["state"])
    number = 0
    for group in optimizer.param_groups:
        lr = attributes.get("lr") if attributes.get("lr_scheduler") is None else None
        scales = {PLAIN: None, NEGATED: -1.0, RATED: -1 / (lr or group["lr"])}
        for p in group.params:
            if id(p) not in keys or keys[id(p)] not in states.arrays:
                raise KeyError(f"restore: parameter {number} of the optimizer has no state")
            key = keys[id(p)]
            arrays = _arrays_of(states.arrays[key], key)
            count = counts.get(key, updates) if isinstance(counts, dict) else updates
            if count is None and isinstance(optimizer, COUNTING):
                raise ValueError(
                    "restore: the file has no optimizer that counts updates; updates= says how many"
                )
            roles = [role for role in conversions if f"{number}.{role}" in new]
            if len(arrays) == len(roles) - 1 and roles[-1] == "m" and not group["momentum"]:
                roles.pop()  # MXNet has no array for a momentum of 0
            shapes = [new[f"{number}.{role}"].shape for role in roles]
            if [x.shape for x in arrays] != shapes:
                raise ValueError(
                    f"restore: the state of {short(key)} has arrays of {[x.shape for x in arrays]}, "
                    f"{name} needs {shapes}"
                )
            for role, x in zip(roles, arrays, strict=True):
                scale = scales[conversions[role]]
                new[f"{number}.{role}"] = x if scale is None else x * scale
            new[f"{number}.step"] = full_like(new[f"{number}.step"], count or 0)
            number += 1
    optimizer.load_state_dict({**saved, "state": new})


def _arrays_of(state: Any, key: Any) -> tuple[Tensor, ...]:
    arrays = () if state is None else state if isinstance(state, tuple) else (state,)
    if not all(isinstance(x, Tensor) for x in arrays):
        raise NotImplementedError(f"restore: the state of {short(key)} is one of multi_precision")
    return arrays
