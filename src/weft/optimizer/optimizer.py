"""The base class of optimizers: groups of parameters, the step, and the state."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from weft import _core
from weft import functional as F
from weft.arrays.creation import zeros_like
from weft.arrays.tensor import Tensor
from weft.base.errors import DTypeError, ShapeError, names_keywords
from weft.base.name_hints import add_name_hints, visible_names
from weft.gradients.gradient import forget_gradients, gradients_of, no_grad
from weft.ops import registry
from weft.optimizer.group import Option, ParameterGroup, StepGroup
from weft.optimizer.state import check, saved, write
from weft.recording.dependence import changed, depends_on
from weft.sparse import RowSparse

__all__ = ["Optimizer"]

Self = TypeVar("Self", bound="Optimizer")


class Optimizer:
    """Base of optimizers. A subclass names its options and the roles of its state, and writes update().

    params: parameters, or dictionaries {"params": parameters, option: value, ...}, whose other options are the
    defaults given to the optimizer. A step reads p.grad of every parameter that has one, and writes the parameters and
    the state in place; it does not wait. Parameters without a gradient are skipped; their updates are counted
    separately. options: name -> Option; "lr" is one of them. roles: names of the tensors kept of each parameter, as
    new_state() makes them. totals: numbers that change from step to step, for parameters that have been updated equally
    often, with their first values; update() finds each as a 0-d float64 tensor in step_group.totals. elementwise:
    whether the update treats elements one by one, so that parts of parameters can be updated alone. lazy: whether rows
    can be, of which others pause, as the update of a row reads this row alone and can begin at any step; None: as
    elementwise. A gradient may be a weft.sparse.RowSparse; then the rows that it has are updated.

    Raises TypeError for anything but tensors, or an unknown option; DTypeError for tensors of integers;
    ValueError for no parameters, for the same parameter twice, or for an option out of its range.

    >>> import weft as wf
    >>> class Signs(Optimizer):
    ...     options = {"lr": Option(0.1)}
    ...     def update(self, group, step_group, gradients):
    ...         for p, g in zip(step_group.parameters, gradients):
    ...             p -= group.rate(p.device).astype(p.dtype) * wf.sign(g)
    >>> w = wf.tensor([1., 1.])
    >>> w.grad = wf.tensor([5., -7.])
    >>> _ = Signs([w]).step()
    >>> w
    tensor([0.9, 1.1], dtype=float32, device=cpu:0)
    """

    options: ClassVar[Mapping[str, Option]]
    roles: ClassVar[Sequence[str]] = ()
    totals: ClassVar[Mapping[str, float]] = {}
    elementwise: ClassVar[bool] = True
    lazy: ClassVar[bool | None] = None

    __dir__ = visible_names

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        names_keywords(cls)

    def __init__(self, params: Iterable[Tensor | Mapping[str, Any]], **defaults: Any) -> None:
        self._defaults = {name: option.default for name, option in self.options.items()}
        self._defaults |= self._checked_options(defaults)
        self.param_groups: list[ParameterGroup] = []
        listed = self._listed(params)
        if not listed:
            hint = "a module lists tensors that were assigned as module.Parameter(x), and those of its submodules"
            if hasattr(params, "__next__"):
                hint = "a generator gives its elements once; list(net.parameters()) keeps them, or " + hint
            raise ValueError(f"{self._name}: no parameters were given\n  hint: {hint}")
        if any(isinstance(group, Mapping) for group in listed):
            for group in listed:
                self.add_param_group(group)
        else:
            self.add_param_group({"params": listed})

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _checked_options(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        for name in options:
            if name not in self.options:
                raise TypeError(f"{self._name}: no option {name!r}; there are: {', '.join(self.options)}")
        return options

    def _listed(self, params: Any) -> list[Any]:
        if isinstance(params, Tensor | Mapping) or not isinstance(params, Iterable):
            raise TypeError(
                f"{self._name}: takes several parameters, as net.parameters() gives, got {type(params).__name__}"
            )
        return list(params)

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Add a group of parameters: {"params": parameters, option: value, ...}.

        >>> import weft as wf
        >>> import weft.optimizer as optim
        >>> opt = optim.SGD([wf.zeros(2)], lr=0.1)
        >>> opt.add_param_group({"params": [wf.zeros(3)], "lr": 0.5})
        >>> [group["lr"] for group in opt.param_groups]
        [0.1, 0.5]
        """
        if not isinstance(group, Mapping) or "params" not in group:
            raise TypeError(f"{self._name}: a group is a dictionary with the key 'params'")
        params = self._listed(group["params"])
        options = self._checked_options({name: value for name, value in group.items() if name != "params"})
        self._check_parameters(params)
        new_group = ParameterGroup(self._name, params, self.options)
        for name, value in {**self._defaults, **options}.items():
            new_group[name] = value
        self.check_options(new_group)
        new_group.begin(self.roles_of(new_group), self.new_state, self.totals)
        self.param_groups.append(new_group)
        changed()

    def _check_parameters(self, params: list[Any]) -> None:
        if not params:
            raise ValueError(f"{self._name}: a group has no parameters")
        seen = {id(p) for group in self.param_groups for p in group.params}
        for p in params:
            if type(p) is not Tensor:
                raise TypeError(f"{self._name}: parameters are tensors, got {type(p).__name__}")
            if not p.dtype.is_differentiable:
                raise DTypeError(
                    f"{self._name}: only floating-point tensors can be trained: {_core.describe(p)}"
                )
            if id(p) in seen:
                raise ValueError(f"{self._name}: the parameter {_core.describe(p)} was given twice")
            seen.add(id(p))

    def check_options(self, group: ParameterGroup) -> None:
        """Raise ValueError for options that do not go together; the default accepts all."""

    def roles_of(self, group: ParameterGroup) -> Sequence[str]:
        """The roles that a group with these options needs; the default gives all."""
        return self.roles

    def new_state(self, role: str, parameter: Tensor) -> Tensor:
        """The tensor that is kept of a parameter, before the first step; the default gives zeros of its shape.

        They are float32 for 16-bit parameters, whose small summands would be lost.
        """
        return zeros_like(parameter, dtype="float32") if parameter.itemsize < 4 else zeros_like(parameter)

    def update(self, group: ParameterGroup, step_group: StepGroup, gradients: list[Tensor]) -> None:
        """Write step_group.parameters and step_group.state in place, by operators; gradients: one for each parameter.

        step_group.step is the number of this update, from 1.
        """
        raise NotImplementedError(f"{self._name}: has no update()")

    def step(self: Self) -> Self:
        """Update every parameter that has a gradient; returns the optimizer.

        Of a gradient that is a weft.sparse.RowSparse the rows that it has are updated, and their state; momentum,
        averages and weight decay of the others pause. That waits for the indices. Raises ValueError if no parameter
        has a gradient, TypeError for a RowSparse where rows cannot be updated alone, and what the update raises, such
        as ShapeError for a gradient of another shape.
        """
        depends_on(self)
        is_updated = False
        with no_grad():
            for group in self.param_groups:
                for step_group in tuple(group.step_groups):
                    is_updated |= self._step(group, step_group)
        if not is_updated:
            raise ValueError(
                f"{self._name}: step: no parameter has a gradient\n"
                "  hint: GradManager.backward comes before, of tensors that are attached"
            )
        return self

    def _step(self, group: ParameterGroup, step_group: StepGroup) -> bool:
        """Whether there was something to update."""
        all_gradients = gradients_of(step_group.parameters)
        gradients = [g for g in all_gradients if g is not None]
        if not gradients:
            return False
        if len(gradients) < len(all_gradients):
            group.step_groups.append(step_group.take([g is None for g in all_gradients]))
            changed()  # programs that count these parameters together are for the time before
        is_sparse = [not isinstance(g, Tensor) for g in gradients]
        if any(is_sparse):
            self._step_rows(group, step_group, gradients, is_sparse)
            return True
        self.count(group, step_group, self.witness(step_group, gradients))
        self.update(group, step_group, gradients)
        return True

    def _step_rows(
        self, group: ParameterGroup, step_group: StepGroup, gradients: list[Any], is_sparse: list[bool]
    ) -> None:
        """One update, of gradients of which some are of some rows."""
        for p, g, flag in zip(step_group.parameters, gradients, is_sparse, strict=True):
            if flag:
                self.check_rows(p, g)
        stored = [g.values if flag else g for g, flag in zip(gradients, is_sparse, strict=True)]
        self.count(group, step_group, self.witness(step_group, stored))
        for k, (g, flag) in enumerate(zip(gradients, is_sparse, strict=True)):
            if flag:
                self.update_rows(group, step_group, k, g)
        dense = [g for g, flag in zip(gradients, is_sparse, strict=True) if not flag]
        if dense:
            self.update(group, step_group.selected([not flag for flag in is_sparse]), dense)

    def check_rows(self, parameter: Tensor, gradient: Any) -> None:
        """Raise TypeError unless some rows of a parameter can be updated alone, and the gradient is of such.

        Also raises ShapeError for a gradient of another shape, and IndexError for a row that there is not.
        """
        if not isinstance(gradient, RowSparse):
            raise TypeError(
                f"{self._name}: step: takes gradients that are tensors or RowSparse, got {type(gradient).__name__}"
            )
        if not (self.elementwise if self.lazy is None else self.lazy):
            raise TypeError(
                f"{self._name}: step: has no update of some rows, as an element's depends on other rows or on all "
                f"steps before: p is {_core.describe(parameter)}, its gradient {gradient!r}\n"
                "  hint: p.grad = p.grad.todense() makes a dense gradient; AdamW and others update rows"
            )
        if gradient.shape != parameter.shape:
            raise ShapeError(
                f"{self._name}: step: a parameter of shape {parameter.shape} has a gradient of shape {gradient.shape}"
            )
        gradient.check()

    def update_rows(self, group: ParameterGroup, step_group: StepGroup, k: int, gradient: RowSparse) -> None:
        """Update the rows of the k-th parameter that a gradient has, and of its state, within a step that is counted.

        It waits for the indices, so that each row is updated once.
        """
        distinct = gradient.distinct()
        if not distinct.rows.size:
            return
        stored = step_group.parameters[k]
        indices = distinct.indices.to_device(stored.device)
        rows = F.take(stored, indices, axis=0)
        state = {role: [F.take(of[k], indices, axis=0)] for role, of in step_group.state.items()}
        part = StepGroup([rows], state, step_group.step, step_group.totals)
        self.update(group, part, [distinct.values.to_device(stored.device)])
        stored[indices] = rows
        for role, (updated,) in state.items():
            step_group.state[role][k][indices] = updated

    @staticmethod
    def witness(step_group: StepGroup, gradients: list[Tensor]) -> Tensor | None:
        """The smallest gradient: if it turns out to have failed, the update is left out, and must not be counted."""
        witness = gradients[0]
        for g in gradients:
            if 0 < g.size < (witness.size or sys.maxsize):
                witness = g
        return witness if witness.size and witness.device is step_group.step.device else None

    def count(self, group: ParameterGroup, step_group: StepGroup, witness: Tensor | None) -> None:
        """One more update: write step_group.step and totals, by operators that read the witness, if there is one."""
        if witness is None:
            step_group.step += 1
        else:
            registry.function("count_update")(step_group.step, witness)

    def __weft_state__(self) -> Any:
        """What programs depend on: that of the groups."""
        return [group.__weft_state__() for group in self.param_groups]

    def clear_grad(self: Self) -> Self:
        """Set the gradients of all parameters to None; returns the optimizer."""
        for group in self.param_groups:
            forget_gradients(group.params)
        return self

    def state_dict(self) -> dict[str, Any]:
        """The state that continues a training exactly: {"optimizer": name, "groups": [...], "state": {...}}.

        groups: the options of each group, and its number of parameters. state: tensors by "index of the
        parameter.role", and the number of updates as "index.step": the tensors themselves, which later steps change.

        >>> import weft as wf
        >>> import weft.optimizer as optim
        >>> state = optim.SGD([wf.zeros(2)], lr=0.1, momentum=0.9).state_dict()
        >>> state["groups"][0]["momentum"], list(state["state"])
        (0.9, ['0.momentum', '0.step'])
        """
        return {"optimizer": self._name, **saved(self.param_groups)}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raise what load_state_dict would raise, and change nothing."""
        check(self._name, self.param_groups, self.options, state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state of an optimizer of this class with parameters of the same shapes in the same order.

        Everything is checked before anything is changed. Raises ValueError that lists all that does not match.
        """
        self.check_state_dict(state)
        write(self.param_groups, state)

    def __repr__(self) -> str:
        return f"{self._name}({'; '.join(map(repr, self.param_groups))})"


add_name_hints(Optimizer, "Optimizer")
