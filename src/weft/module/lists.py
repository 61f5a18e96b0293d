"""Lists and dictionaries of modules and of parameters, which are modules themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from weft.arrays.tensor import Tensor
from weft.module.module import PARAMETER, Module, Parameter
from weft.recording.dependence import changed

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList"]


class ModuleList(Module):
    """A list of modules. A list as an attribute does the same; this one is a module, to be a child or to be printed.

    It has the methods of a list that add and read; slices are ModuleLists. It cannot be called.
    Raises TypeError for what is not a module.

    >>> import weft.module as M
    >>> layers = M.ModuleList([M.Linear(3, 4), M.ReLU()])
    >>> layers.append(M.Linear(4, 2))[-1], len(layers)
    (Linear(in_features=4, out_features=2), 3)
    >>> [name for name, _ in layers.named_parameters()]
    ['0.weight', '0.bias', '2.weight', '2.bias']
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self._items: list[Module] = []
        self.extend(modules)

    def _attributes(self) -> Iterator[tuple[str, Any]]:
        yield from ((str(k), module) for k, module in enumerate(self._items))
        yield from ((name, value) for name, value in super()._attributes() if name != "_items")

    def append(self, module: Module) -> ModuleList:
        """Add a module at the end; returns the list."""
        return self.insert(len(self._items), module)

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Add modules at the end; returns the list."""
        for module in modules:
            self.append(module)
        return self

    def insert(self, k: int, module: Module) -> ModuleList:
        """Add a module before the one with index k; returns the list."""
        self._items.insert(k, _checked(self, module))
        return self

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __getitem__(self, k: Any) -> Any:
        return ModuleList(self._items[k]) if isinstance(k, slice) else self._items[k]

    def __setitem__(self, k: int, module: Module) -> None:
        self._items[k] = _checked(self, module)

    def __delitem__(self, k: int | slice) -> None:
        del self._items[k]


class ModuleDict(Module):
    """A dictionary of modules by name. A dictionary as an attribute does the same; see ModuleList.

    Raises TypeError for what is not a module.

    >>> import weft.module as M
    >>> parts = M.ModuleDict({"head": M.Linear(3, 2)})
    >>> parts["tail"] = M.ReLU()
    >>> list(parts), "head" in parts, [name for name, _ in parts.named_parameters()]
    (['head', 'tail'], True, ['head.weight', 'head.bias'])
    """

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] = ()) -> None:
        self._items: dict[str, Module] = {}
        self.update(modules)

    def _attributes(self) -> Iterator[tuple[str, Any]]:
        yield from self._items.items()
        yield from ((name, value) for name, value in super()._attributes() if name != "_items")

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add modules by name, or replace them."""
        for name, module in dict(modules).items():
            self[name] = module

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._items.keys()

    def values(self) -> Iterable[Module]:
        """The modules."""
        return self._items.values()

    def items(self) -> Iterable[tuple[str, Module]]:
        """Names and modules."""
        return self._items.items()

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __getitem__(self, name: str) -> Any:
        return self._items[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self._items[name] = _checked(self, module)

    def __delitem__(self, name: str) -> None:
        del self._items[name]


def _checked(owner: Module, module: Any) -> Module:
    if not isinstance(module, Module):
        raise TypeError(f"{type(owner).__name__}: takes modules, got {type(module).__name__}")
    changed()
    return module


class _Parameters(Module):
    """Base: entries that are parameters. vars() has them, since a name such as "0" is no attribute of the class."""

    def _put(self, name: str, x: Any) -> None:
        marked: Any = Parameter(x)
        vars(self)[name] = marked.tensor
        self._roles[name] = PARAMETER
        changed()

    def _tensors(self) -> list[Tensor]:
        return [vars(self)[name] for name in self._roles]

    def __len__(self) -> int:
        return len(self._roles)


class ParameterDict(_Parameters):
    """A dictionary of parameters by name: each value is trained, moves and is saved with the module.

    Values are marked by themselves, and are what Parameter takes. Raises ValueError for a name with a dot.

    >>> import weft as wf
    >>> import weft.module as M
    >>> scales = M.ParameterDict({"left": wf.ones(2)})
    >>> scales["right"] = wf.zeros(2)
    >>> [name for name, _ in scales.named_parameters()], scales["left"].shape
    (['left', 'right'], (2,))
    """

    def __init__(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        for name, x in dict(parameters).items():
            self[name] = x

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._roles.keys()

    def values(self) -> list[Tensor]:
        """The parameters."""
        return self._tensors()

    def items(self) -> Iterable[tuple[str, Tensor]]:
        """Names and parameters."""
        return zip(self._roles, self._tensors(), strict=True)

    def __iter__(self) -> Iterator[str]:
        return iter(self._roles)

    def __contains__(self, name: object) -> bool:
        return name in self._roles

    def __getitem__(self, name: str) -> Tensor:
        return dict(self.items())[name]

    def __setitem__(self, name: str, x: Any) -> None:
        if "." in name or not name:
            raise ValueError(f"ParameterDict: a name must not be empty or have dots, got {name!r}")
        self._put(name, x)

    def __delitem__(self, name: str) -> None:
        del self._roles[name], vars(self)[name]
        changed()


class ParameterList(_Parameters):
    """A list of parameters: each is trained, moves and is saved with the module. See ParameterDict.

    >>> import weft as wf
    >>> import weft.module as M
    >>> scales = M.ParameterList([wf.ones(2), wf.zeros(3)]).append(wf.ones(()))
    >>> [name for name, _ in scales.named_parameters()], scales[1].shape, len(scales)
    (['0', '1', '2'], (3,), 3)
    """

    def __init__(self, parameters: Iterable[Any] = ()) -> None:
        for x in parameters:
            self.append(x)

    def append(self, x: Any) -> ParameterList:
        """Add a parameter at the end; returns the list."""
        self._put(str(len(self)), x)
        return self

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._tensors())

    def __getitem__(self, k: int) -> Tensor:
        return self._tensors()[k]

    def __setitem__(self, k: int, x: Any) -> None:
        self._put(str(range(len(self))[k]), x)
