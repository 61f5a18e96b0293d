"""The state of an optimizer as a dictionary, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft import _core
from weft.arrays.tensor import Tensor
from weft.gradients.gradient import no_grad
from weft.optimizer.group import Option, ParameterGroup, StepGroup

__all__ = ["check", "saved", "write"]

STEP, PARAMETERS, INITIAL_LR = "step", "parameters", "initial_lr"


def entries(groups: Sequence[ParameterGroup]) -> Iterator[tuple[str, Tensor, StepGroup]]:
    """(key, tensor, its step group) for all state; parameters are numbered through all groups."""
    numbers: dict[int, int] = {}
    for group in groups:
        for p in group.params:
            numbers[id(p)] = len(numbers)
    sorted_entries = []
    for group in groups:
        for step_group in group.step_groups:
            for k, p in enumerate(step_group.parameters):
                tensors_by_role = {role: tensors[k] for role, tensors in step_group.state.items()}
                tensors_by_role |= step_group.totals | {STEP: step_group.step}
                sorted_entries.append((numbers[id(p)], tensors_by_role, step_group))
    sorted_entries.sort(key=lambda entry: entry[0])
    for number, tensors_by_role, step_group in sorted_entries:
        for role, x in tensors_by_role.items():
            yield f"{number}.{role}", x, step_group


def saved(groups: Sequence[ParameterGroup]) -> dict[str, Any]:
    """The options of groups, and all tensors."""
    described = [{**group, PARAMETERS: len(group.params), INITIAL_LR: group.initial_lr} for group in groups]
    return {"groups": described, "state": {key: x for key, x, _ in entries(groups)}}


def check(owner: str, groups: Sequence[ParameterGroup], options: Mapping[str, Option], state: Any) -> None:
    """Raises ValueError that lists everything in a state that does not fit; TypeError unless it is a mapping."""
    if not isinstance(state, Mapping) or not {"optimizer", "groups", "state"} <= state.keys():
        raise TypeError(f"load_state_dict: {owner}: takes what state_dict() gave")
    faults = []
    if state["optimizer"] != owner:
        faults.append(f"the state is of the optimizer {state['optimizer']!r}")
    faults += _faults_of_groups(owner, groups, options, state["groups"])
    faults += _faults_of_tensors(groups, state["state"])
    if faults:
        lines = "".join(f"\n  {fault}" for fault in faults)
        raise ValueError(f"load_state_dict: {owner}: nothing was loaded:{lines}")


def _faults_of_groups(
    owner: str, groups: Sequence[ParameterGroup], options: Mapping[str, Option], saved_groups: Any
) -> Iterator[str]:
    if not isinstance(saved_groups, list | tuple) or len(saved_groups) != len(groups):
        count = len(saved_groups) if isinstance(saved_groups, list | tuple) else type(saved_groups).__name__
        yield f"groups: {count}, here {len(groups)}"
        return
    for k, (group, values) in enumerate(zip(groups, saved_groups, strict=True)):
        expected = {*group, PARAMETERS, INITIAL_LR}
        added = {name for name in group if options[name].default is False}  # files from before may lack them
        if not isinstance(values, Mapping) or not expected - added <= set(values) <= expected:
            yield f"group {k}: needs exactly the options {', '.join(sorted(expected))}"
            continue
        if values[PARAMETERS] != len(group.params):
            yield f"group {k}: {values[PARAMETERS]} parameters, here {len(group.params)}"
        initial = values[INITIAL_LR]
        try:
            for name in group:
                options[name].checked(owner, name, values.get(name, options[name].default))
            if initial is not None:
                options["lr"].checked(owner, INITIAL_LR, initial)
        except (TypeError, ValueError) as error:
            yield f"group {k}: {error}"


def _faults_of_tensors(groups: Sequence[ParameterGroup], tensors: Any) -> Iterator[str]:
    if not isinstance(tensors, Mapping):
        yield f"state is of type {type(tensors).__name__}"
        return
    expected = {key: x for key, x, _ in entries(groups)}
    if missing := [key for key in expected if key not in tensors]:
        yield f"missing: {', '.join(missing)}"
    if unexpected := [str(key) for key in tensors if key not in expected]:
        yield f"unexpected: {', '.join(unexpected)}"
    for key, x in expected.items():
        value = tensors.get(key, x)
        if not isinstance(value, Tensor):
            yield f"{key} is of type {type(value).__name__}"
        elif (value.shape, value.dtype) != (x.shape, x.dtype):
            yield f"{key} is {_core.describe(value)}, here {_core.describe(x)}"
        elif key.endswith(f".{STEP}") and int(value) < 0:
            yield f"{key} is {int(value)}, which is not a number of steps"


def write(groups: Sequence[ParameterGroup], state: Mapping[str, Any]) -> None:
    """A checked state into groups. Waits for the numbers of steps in it."""
    tensors = state["state"]
    with no_grad():
        _divide(groups, {key: int(x) for key, x in tensors.items() if key.endswith(f".{STEP}")})
        for key, x, _ in entries(groups):
            x[...] = tensors[key].to_device(x.device)
    for group, values in zip(groups, state["groups"], strict=True):
        for name in group:
            group[name] = values.get(name, False)
        group.initial_lr = values[INITIAL_LR]


def _divide(groups: Sequence[ParameterGroup], steps: Mapping[str, int]) -> None:
    """Divide step groups whose parameters have been updated differently often."""
    of_step_group: dict[int, list[int]] = {}
    for key, _, step_group in entries(groups):
        if key in steps:
            of_step_group.setdefault(id(step_group), []).append(steps[key])
    for group in groups:
        for step_group in tuple(group.step_groups):
            counts = of_step_group[id(step_group)]
            for other in list(dict.fromkeys(counts))[1:]:
                group.step_groups.append(step_group.take([count == other for count in counts]))
                counts = [count for count in counts if count != other]
