"""Groups of parameters with options of their own, and what an optimizer keeps of each parameter.

Two kinds of numbers belong to a step. Those that change from one step to the next, the learning rate and the number of
the step, live in 0-d tensors that kernels read, so that a recorded step can be replayed. The others are Python numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from weft.arrays.creation import tensor, zeros
from weft.arrays.tensor import Tensor
from weft.base.device import Device
from weft.recording.dependence import changed, happens_once, state_of

__all__ = ["Option", "ParameterGroup", "StepGroup"]


class Option:
    """One option of an optimizer: its default, and the range of its values; of a bool just the default.

    >>> Option(0.9, 0, 1).checked("SGD", "momentum", 2)
    Traceback (most recent call last):
        ...
    ValueError: SGD: momentum must be at least 0 and at most 1, got 2
    """

    def __init__(self, default: Any, low: float = 0.0, high: float = math.inf) -> None:
        self.default, self.low, self.high = default, low, high

    def checked(self, owner: str, name: str, value: Any) -> Any:
        """The value, if it is one for this option; else raises TypeError or ValueError."""
        if isinstance(self.default, bool):
            if not isinstance(value, bool):
                raise TypeError(f"{owner}: {name} must be a bool, got {value!r}")
            return value
        if isinstance(value, bool | str) or not hasattr(value, "__float__"):
            raise TypeError(f"{owner}: {name} must be a number, got {value!r}")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not self.low <= number <= self.high or number == math.inf:
            bounds = "finite" if self.high == math.inf else f"at most {self.high}"
            raise ValueError(f"{owner}: {name} must be at least {self.low} and {bounds}, got {value!r}")
        return number


class StepGroup:
    """Parameters of a group, on one device, that have been updated equally often, and what is kept of them.

    They are updated by one call. state: for each role of the update but parameter and gradient, a tensor for each
    parameter. step: how often they have been updated, an int64 in a 0-d tensor. totals: other numbers that all of them
    share, each a float64 in a 0-d tensor.
    """

    def __init__(
        self,
        parameters: list[Tensor],
        state: dict[str, list[Tensor]],
        step: Tensor,
        totals: dict[str, Tensor],
    ) -> None:
        self.parameters, self.state, self.step, self.totals = parameters, state, step, totals

    @classmethod
    def new(
        cls,
        parameters: list[Tensor],
        roles: Sequence[str],
        new_state: Callable[[str, Tensor], Tensor],
        totals: Mapping[str, float],
    ) -> StepGroup:
        """Before the first step."""
        device = parameters[0].device
        return cls(
            parameters,
            {role: [new_state(role, p) for p in parameters] for role in roles},
            zeros((), dtype="int64", device=device),
            {name: tensor(value, dtype="float64", device=device) for name, value in totals.items()},
        )

    def selected(self, selection: Sequence[bool]) -> StepGroup:
        """The selected parameters and their state, the same tensors, with the same step counter."""

        def part(tensors: list[Tensor]) -> list[Tensor]:
            return [x for x, flag in zip(tensors, selection, strict=True) if flag]

        state = {role: part(of) for role, of in self.state.items()}
        return StepGroup(part(self.parameters), state, self.step, self.totals)

    def take(self, selection: Sequence[bool]) -> StepGroup:
        """The selected parameters as a step group of their own, with their own step counter; the others stay."""

        def part(tensors: list[Tensor], is_selected: bool) -> list[Tensor]:
            return [x for x, flag in zip(tensors, selection, strict=True) if flag is is_selected]

        selected = StepGroup(
            part(self.parameters, True),
            {role: part(of, True) for role, of in self.state.items()},
            self.step.copy(),
            {name: total.copy() for name, total in self.totals.items()},
        )
        self.parameters = part(self.parameters, False)
        self.state = {role: part(of, False) for role, of in self.state.items()}
        return selected


class ParameterGroup(MutableMapping[str, Any]):
    """Parameters that are updated with the same options: group["lr"] = 0.1 changes one, at any time.

    params: the parameters, in the order they were given. Made by optimizers. Raises KeyError for an option that the
    optimizer does not have, ValueError for a value out of its range; options cannot be deleted.

    >>> import weft as wf
    >>> import weft.optimizer as optim
    >>> opt = optim.SGD([wf.zeros(2)], lr=0.1)
    >>> group = opt.param_groups[0]
    >>> group["lr"] = 0.01
    >>> dict(group)["lr"], len(group.params)
    (0.01, 1)
    """

    def __init__(self, owner: str, params: list[Tensor], options: Mapping[str, Option]) -> None:
        self.params = params
        self.initial_lr: float | None = None  # what schedules begin from, once there is one
        self._owner, self._options = owner, options
        self._values: dict[str, Any] = {}
        self._rates: dict[Device, Tensor] = {}
        self.step_groups: list[StepGroup] = []

    def begin(
        self,
        roles: Sequence[str],
        new_state: Callable[[str, Tensor], Tensor],
        totals: Mapping[str, float],
    ) -> None:
        """Make what is kept of the parameters; done by optimizers, once the options are there."""
        by_device: dict[Device, list[Tensor]] = {}
        for p in self.params:
            by_device.setdefault(p.device, []).append(p)
        self.step_groups = [StepGroup.new(of, roles, new_state, totals) for of in by_device.values()]
        # Now, not at the first step: a trace of that would take it for a constant.
        self._rates = {d: tensor(self._values["lr"], dtype="float64", device=d) for d in by_device}

    def rate(self, device: Device) -> Tensor:
        """The learning rate as a 0-d tensor, which changes with group["lr"]; device: one of a parameter."""
        return self._rates[device]

    def follow(self, other: ParameterGroup) -> None:
        """Use other's learning rates from now on, on the devices that it has, and its other options as they are now."""
        self._rates |= {d: rate for d, rate in other._rates.items() if d in self._rates}
        differ = self.constants() != other.constants()
        self._values.update(other._values)
        if differ:
            changed()

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self._options:
            raise KeyError(f"{self._owner}: no option {name!r}; there are: {', '.join(self._options)}")
        value = self._options[name].checked(self._owner, name, value)
        if name == "lr":
            happens_once("a learning rate was set, which is a number of Python")
        self._values[name] = value
        if name == "lr":
            for rate in self._rates.values():
                rate[...] = self._values["lr"]
        else:
            changed()

    def __weft_state__(self) -> Any:
        """What programs depend on: all options but the learning rate, which they read, and the step groups."""
        return state_of((self.constants(), [step_group.parameters for step_group in self.step_groups]))

    def constants(self) -> dict[str, Any]:
        """The options that an update gets as numbers: all but the learning rate."""
        return {name: value for name, value in self._values.items() if name != "lr"}

    def __getitem__(self, name: str) -> Any:
        if name == "params":
            return self.params
        if name not in self._values:
            raise KeyError(f"{self._owner}: no option {name!r}; there are: params, {', '.join(self._values)}")
        return self._values[name]

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"{self._owner}: the option {name!r} cannot be deleted")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self._values.items())
        return f"{len(self.params)} parameters: {options}"
