"""Optimizers whose arguments are declared: one line each for its name, type, default, range and options.

>>> import weft as wf
>>> class Signs(Declared):
...     lr: float = option(0.1)
...     def update(self, group, step_group, gradients):
...         for p, g in zip(step_group.parameters, gradients):
...             p -= group.rate(p.device).astype(p.dtype) * wf.sign(g)
>>> w = wf.tensor([1., 1.])
>>> w.grad = wf.tensor([5., -7.])
>>> _ = Signs([w], 0.5).step()
>>> w
tensor([0.5, 1.5], dtype=float32, device=cpu:0)
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, dataclass_transform

from weft.arrays.tensor import Tensor
from weft.base.keywords import unknown_argument
from weft.optimizer.group import Option
from weft.optimizer.optimizer import Optimizer

__all__ = ["Declared", "option", "options"]

Parameters = Iterable[Tensor | Mapping[str, Any]]


class _Argument:
    """An argument of a constructor: the options that it gives, by name; "" stands for its own name."""

    def __init__(self, options: Mapping[str, Option]) -> None:
        self.options = options

    @property
    def default(self) -> Any:
        defaults = tuple(each.default for each in self.options.values())
        return defaults[0] if len(defaults) == 1 else defaults


def option(default: float | bool, low: float = 0.0, high: float = math.inf) -> Any:
    """Declare an argument that is an option of the same name; low, high: the range of its values."""
    return _Argument({"": Option(default, low, high)})


def options(**named: Option) -> Any:
    """Declare an argument that gives options of other names: a value for one, else a tuple of values."""
    return _Argument(named)


@dataclass_transform()
class _Declaring(Optimizer):
    """For type checkers, which take fields of classes below the one that is decorated; `params` is one."""


class Declared(_Declaring):
    """Base: class variables made by option() and options() are the arguments of the constructor, in their order.

    A subclass adds its own behind those of its base, and may declare one again with another default. Options of other
    names than their argument's are taken by these names, too: ``Adam(params, beta1=0.8)``.
    """

    params: Parameters
    arguments: ClassVar[Mapping[str, _Argument]] = {}
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        declared = {name: value for name, value in vars(cls).items() if isinstance(value, _Argument)}
        for name in declared:
            delattr(cls, name)
        cls.arguments = {**cls.arguments, **declared}
        if "options" not in vars(cls):
            cls.options = {
                option_name or name: each
                for name, argument in cls.arguments.items()
                for option_name, each in argument.options.items()
            }
        if "__init__" not in vars(cls):
            parameter = inspect.Parameter
            cls.__signature__ = inspect.Signature(
                [
                    parameter("params", parameter.POSITIONAL_OR_KEYWORD),
                    *(
                        parameter(name, parameter.POSITIONAL_OR_KEYWORD, default=argument.default)
                        for name, argument in cls.arguments.items()
                    ),
                ]
            )
        super().__init_subclass__(**kwargs)

    def __init__(self, params: Parameters, *args: Any, **keywords: Any) -> None:
        names = list(self.arguments)
        if len(args) > len(names):
            raise TypeError(
                f"{self._name}: takes {len(names) + 1} arguments by position, got {len(args) + 1}"
            )
        given = dict(zip(names, args, strict=False))
        if twice := given.keys() & keywords.keys():
            raise TypeError(f"{self._name}: {', '.join(sorted(twice))} given twice")
        values: dict[str, Any] = {}
        for name, value in {**given, **keywords}.items():
            if name in self.arguments:
                values |= self._options_of(name, value)
            elif name in self.options:
                values[name] = value
            else:
                raise TypeError(unknown_argument(self._name, name, ["params", *names]))
        super().__init__(params, **values)

    def _options_of(self, name: str, value: Any) -> dict[str, Any]:
        """The options that an argument of this value gives."""
        option_names = [each or name for each in self.arguments[name].options]
        if len(option_names) == 1:
            return {option_names[0]: value}
        if not isinstance(value, tuple | list) or len(value) != len(option_names):
            raise TypeError(
                f"{self._name}: {name} takes {len(option_names)} numbers, {', '.join(option_names)}, got {value!r}"
            )
        return dict(zip(option_names, value, strict=True))
