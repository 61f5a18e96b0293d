"""Comparison of a state dictionary with the tensors of a module, before any of them is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from weft import _core
from weft.arrays.creation import asarray
from weft.arrays.tensor import Tensor
from weft.gradients.gradient import no_grad

__all__ = ["IncompatibleKeys", "compare", "write"]


class IncompatibleKeys(NamedTuple):
    """Names that are missing in a state, and names that the module does not have.

    >>> IncompatibleKeys(("bias",), ())
    IncompatibleKeys(missing=('bias',), unexpected=())
    """

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]


def compare(
    owner: str, targets: Mapping[str, Tensor], state: Any, strict: bool
) -> tuple[list[tuple[Tensor, Tensor]], IncompatibleKeys]:
    """(target, value) pairs to be written, and the names that have no partner.

    Raises ValueError that lists everything that does not fit; TypeError unless state is a mapping.
    """
    if not isinstance(state, Mapping):
        raise TypeError(f"load_state_dict: {owner}: takes a mapping from names, not {type(state).__name__}")
    missing = tuple(name for name in targets if name not in state)
    unexpected = tuple(str(name) for name in state if name not in targets)
    pairs: list[tuple[Tensor, Tensor]] = []
    shapes, kinds = [], []
    for name, target in targets.items():
        if name not in state:
            continue
        value = _as_tensor(state[name])
        if value is None:
            kinds.append(f"{name} is of type {type(state[name]).__name__}")
        elif value.shape != target.shape:
            shapes.append(f"{name} is {_core.describe(value)}, here {_core.describe(target)}")
        elif value.dtype is not target.dtype and not (value.dtype.is_floating and target.dtype.is_floating):
            kinds.append(f"{name} is {_core.describe(value)}, here {_core.describe(target)}")
        else:
            pairs.append((target, value))
    faults = {"of another shape": shapes, "of another kind": kinds}
    if strict:
        faults = {"missing": list(missing), "unexpected": list(unexpected), **faults}
    if any(faults.values()):
        lines = [f"\n  {fault}: {', '.join(names)}" for fault, names in faults.items() if names]
        raise ValueError(f"load_state_dict: {owner}: nothing was loaded:{''.join(lines)}")
    return pairs, IncompatibleKeys(missing, unexpected)


def _as_tensor(value: Any) -> Tensor | None:
    """A tensor, or an array as one; None for anything else."""
    if isinstance(value, Tensor):
        return value
    if not hasattr(value, "__array__"):
        return None
    try:
        return asarray(value)
    except TypeError:  # an array of objects
        return None


def write(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Each value into its target, converted to its type and brought to its device."""
    with no_grad():
        for target, value in pairs:
            target[...] = value.to_device(target.device).astype(target.dtype, copy=False)
