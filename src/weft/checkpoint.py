"""A whole training state in one file: model, optimizer, schedule, loader, random numbers, and values of your own.

The file is a safetensors file that replaces the old one atomically, as with weft.save, so the path always holds a
complete state. Everything that is not a tensor is stored in it as JSON. Nothing in a file is executed.

>>> import tempfile
>>> import weft as wf, weft.module as M, weft.optimizer as optim
>>> net = M.Linear(2, 1)
>>> opt = optim.Adam(net.parameters())
>>> with tempfile.TemporaryDirectory() as folder:
...     wf.checkpoint.save(f"{folder}/run.safetensors", {"step": 7}, model=net, optimizer=opt)
...     wf.checkpoint.load(f"{folder}/run.safetensors", model=net, optimizer=opt)
{'step': 7}
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from weft import random
from weft.arrays.serialization import FileFormatError, load_metadata
from weft.arrays.serialization import load_safetensors as load_tensors
from weft.arrays.serialization import save as save_tensors
from weft.arrays.tensor import Tensor
from weft.base.name_hints import add_hints as _add_hints

__all__ = ["Stateful", "load", "parts", "save"]

FORMAT = "weft.checkpoint"  # the key of the metadata, which holds the version
VERSION = 1
REFERENCE = "tensor:"  # the only key of an object in place of a tensor; its value is the tensor's name


class Stateful(Protocol):
    """The interface of a part of a training state. check_state_dict(state), if defined, is called before the loading.

    State is made of tensors, None, bools, numbers and text, and of lists and dictionaries with text as keys.

    >>> class Best:
    ...     value = 0.0
    ...     def state_dict(self):
    ...         return {"value": self.value}
    ...     def load_state_dict(self, state):
    ...         self.value = state["value"]
    """

    def state_dict(self) -> Mapping[str, Any]: ...

    def load_state_dict(self, state: Any) -> Any: ...


def save(path: str | os.PathLike[str], values: Mapping[str, Any] | None = None, /, **parts: Stateful) -> None:
    """Write the states of all parts, the state of weft.random, and values, into one file, which replaces path at once.

    Waits for all tensors in it. values: other values to store, such as {"step": 7}, of the types that a state may
    contain; tuples are loaded as lists. Raises TypeError for anything else, and what weft.save raises.
    """
    for name, part in parts.items():
        if not hasattr(part, "state_dict"):
            raise TypeError(
                f"checkpoint: {name} has no state_dict(): it is of type {type(part).__name__}; "
                "plain values go into the mapping that is the second argument"
            )
    states = {name: part.state_dict() for name, part in parts.items()}
    state = {"parts": states, "values": dict(values or {}), "random": random.get_state()}
    tensors: dict[str, Tensor] = {}
    names_by_id: dict[int, str] = {}
    document = {key: _as_json(each, key, tensors, names_by_id) for key, each in state.items()}
    document["checksums"] = {name: _checksum(x) for name, x in tensors.items()}
    save_tensors(path, tensors, {FORMAT: str(VERSION), "state": json.dumps(document)})


def _checksum(x: Tensor) -> int:
    """CRC-32 of the elements in row-major order."""
    return zlib.crc32(x.detach().contiguous().memory()) if x.size else 0


def parts(path: str | os.PathLike[str]) -> list[str]:
    """The names of the parts in a file. Raises FileFormatError if it is not a checkpoint, and what weft.load raises.

    >>> import tempfile
    >>> import weft as wf, weft.module as M
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     wf.checkpoint.save(f"{folder}/run.safetensors", model=M.Linear(2, 1))
    ...     parts(f"{folder}/run.safetensors")
    ['model']
    """
    return sorted(_read_state(path, f"checkpoint: {os.fsdecode(path)!r}", ())["parts"])


def load(
    path: str | os.PathLike[str], /, *, random_state: bool = True, strict: bool = True, **parts: Stateful
) -> dict[str, Any]:
    """Load the states in a file into the parts, and with random_state into weft.random; returns the values.

    The parts must be those of the file, by name; with strict=False they may be some of them, such as the model alone
    for inference: the other parts of the file are skipped. All that can be checked is checked before the first
    one is changed. Raises ValueError if the names differ or a state does not fit its part, FileFormatError if the file
    is not a checkpoint or elements differ from those that were saved (each tensor has a checksum), and what weft.load
    raises.
    """
    where = f"checkpoint: {os.fsdecode(path)!r}"
    state = _read_state(path, where, parts)
    states = state["parts"]
    if parts.keys() - states.keys() or (strict and states.keys() != parts.keys()):
        advice = "" if parts.keys() - states.keys() else "; strict=False loads some of them"
        raise ValueError(f"{where}: has the parts {_listed(states)}; given were {_listed(parts)}{advice}")
    for name, part in parts.items():
        if hasattr(part, "check_state_dict"):
            part.check_state_dict(states[name])
    before = random.get_state()
    if random_state:
        random.set_state(state["random"])
    try:
        # Those that cannot be checked come first: if one raises, nothing else has changed.
        for name, part in sorted(parts.items(), key=lambda each: hasattr(each[1], "check_state_dict")):
            part.load_state_dict(states[name])
    except BaseException:
        random.set_state(before)
        raise
    values: dict[str, Any] = state["values"]
    return values


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(names)) or "none"


def _read_state(path: str | os.PathLike[str], where: str, checked: Collection[str]) -> dict[str, Any]:
    """The whole state; checked: the parts whose tensors must have their checksums."""
    metadata = load_metadata(path)
    if metadata.get(FORMAT) != str(VERSION) or "state" not in metadata:
        raise FileFormatError(
            f"{where}: is not a checkpoint of version {VERSION}\n"
            "  hint: a file of tensors is read by weft.load, and passed to load_state_dict"
        )
    tensors = load_tensors(path)

    def resolve(content: dict[str, Any]) -> Any:
        if content.keys() != {REFERENCE}:
            return content
        name = content[REFERENCE]
        if not isinstance(name, str) or name not in tensors:
            raise FileFormatError(f"{where}: has no tensor {name!r}")
        return tensors[name]

    try:
        state = json.loads(metadata["state"], object_hook=resolve)
    except FileFormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{where}: the state is not valid JSON: {error}") from None
    if not isinstance(state, dict) or any(
        not isinstance(state.get(key), dict) for key in ("parts", "values", "random")
    ):
        raise FileFormatError(f"{where}: the state lacks parts, values or random")
    checksums = state.get("checksums", {})  # files of earlier versions have none
    for name, x in tensors.items():
        kind, _, path_of_tensor = name.partition(".")
        is_checked = kind != "parts" or path_of_tensor.partition(".")[0] in checked
        if is_checked and name in checksums and checksums[name] != _checksum(x):
            raise FileFormatError(
                f"{where}: tensor {name!r} is damaged: its elements do not have the checksum that was saved"
            )
    return state


def _as_json(value: Any, path: str, tensors: dict[str, Tensor], names_by_id: dict[int, str]) -> Any:
    """A value as JSON can hold it; tensors go into tensors, each once, under their path."""
    if isinstance(value, Tensor):
        if id(value) not in names_by_id:
            names_by_id[id(value)] = path
            tensors[path] = value
        return {REFERENCE: names_by_id[id(value)]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_as_json(each, f"{path}.{k}", tensors, names_by_id) for k, each in enumerate(value)]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or key == REFERENCE:
                raise TypeError(f"checkpoint: {path}: keys are text other than {REFERENCE!r}, got {key!r}")
        return {key: _as_json(each, f"{path}.{key}", tensors, names_by_id) for key, each in value.items()}
    raise TypeError(f"checkpoint: {path} is of type {type(value).__name__}, which a state cannot hold")


_add_hints(globals())
