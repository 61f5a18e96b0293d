"""Finds what a traced function reads beside its arguments: variables of its closure, globals, attributes, defaults.

The native core compares them at each call with what they were (native/bindings/traced.cpp): numbers and texts by
value, all else by identity. Functions found there are followed, as far as they are the user's.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from weft import _core

__all__ = ["ABSENT", "CapturedEnvironment", "captured_environment"]

ABSENT = NotImplemented  # the value of an empty Slot; the native core uses it, too

_WEFT = str(Path(__file__).parents[1])
_LIBRARY = sysconfig.get_path("stdlib")
_PLAIN = (int, float, bool, str, bytes, type(None))
_UNKNOWN = object()

Slot = tuple[Any, Any, Any]


class CapturedEnvironment:
    """What a function depends on besides its arguments.

    slots: each variable, item or attribute with its value: (cell, None, value), (dict or list, key, value), (object,
    attribute, value). values: the values, and the objects whose methods are called. arrays: NumPy arrays among them,
    as (array, name, file, line).
    """

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.values: list[Any] = []
        self.arrays: list[tuple[Any, str, str, int]] = []

    def changed(self) -> bool:
        """Whether a slot has another value now."""
        return not all(_core.is_as_it_was(*slot) for slot in self.slots)


def captured_environment(
    function: Callable[..., Any], args: Iterable[Any] = (), kwargs: dict[str, Any] | None = None
) -> CapturedEnvironment:
    """What a call of a function depends on besides its arguments' values. args, kwargs: of the call.

    >>> rate = 0.5
    >>> captured_environment(lambda x: [rate * y for y in x]).slots[-1][1:]
    ('rate', 0.5)
    """
    return _Walk(function, tuple(args), kwargs or {}).environment


class _Walk:
    """Collects CapturedEnvironment, from function to function."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.environment = CapturedEnvironment()
        self._slots: set[tuple[int, Any]] = set()
        self._visited: set[tuple[int, int]] = set()
        self._waiting: list[tuple[Any, dict[str, Any]]] = [(function, {})]
        user_function, owner = _user_function(function)
        if user_function is not None:
            positional = (*(() if owner is _UNKNOWN else (owner,)), *args)
            self._waiting = [(function, _argument_values(user_function, positional, kwargs))]
        for candidate, arguments in self._waiting:  # which grows meanwhile
            self._visit(candidate, arguments)

    def _visit(self, candidate: Any, arguments: dict[str, Any]) -> None:
        function, owner = _user_function(candidate)
        if owner is not _UNKNOWN:
            self.environment.values.append(owner)
        if function is None or (id(function), id(owner)) in self._visited:
            return
        self._visited.add((id(function), id(owner)))
        if not arguments:
            arguments = _argument_values(function, () if owner is _UNKNOWN else (owner,), {})
        self._add(function, "__defaults__", function.__defaults__)
        if function.__kwdefaults__:
            for name, value in function.__kwdefaults__.items():
                self._add(function.__kwdefaults__, name, value)
        cells = {}
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                cells[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                cells[name] = ABSENT
            self._add(cell, None, cells[name])
        self._follow(function.__code__, function.__globals__, {**arguments, **cells})

    def _add(self, container: Any, key: Any, value: Any) -> None:
        try:
            if (id(container), key) in self._slots:
                return
        except TypeError:  # a key that is not hashable
            return
        self._slots.add((id(container), key))
        self.environment.slots.append((container, key, value))
        if value is not ABSENT:
            self.environment.values.append(value)
            self._waiting.append((value, {}))

    def _follow(self, code: CodeType, names: dict[str, Any], local: dict[str, Any]) -> None:
        """Follow what the code reads: names, attributes of what they mean, and items by constants."""
        reassigned = {
            i.argval for i in dis.get_instructions(code) if i.opname in ("STORE_FAST", "DELETE_FAST")
        }
        local = {name: value for name, value in local.items() if name not in reassigned}
        loaded, item, line = _UNKNOWN, _UNKNOWN, code.co_firstlineno
        for instruction in dis.get_instructions(code):
            line = (instruction.positions.lineno if instruction.positions else None) or line
            operation, item_before, item = instruction.opname, item, _UNKNOWN
            if operation in ("LOAD_GLOBAL", "LOAD_NAME"):
                loaded = self._global(names, instruction.argval)
            elif operation in (
                "LOAD_DEREF",
                "LOAD_CLASSDEREF",
                "LOAD_FAST",
                "LOAD_FAST_CHECK",
                "LOAD_FAST_BORROW",
            ):
                loaded = local.get(instruction.argval, _UNKNOWN)
            elif operation in ("LOAD_ATTR", "LOAD_METHOD") and loaded is not _UNKNOWN:
                loaded = self._attribute(loaded, instruction.argval)
            elif operation in ("LOAD_CONST", "LOAD_SMALL_INT") and loaded is not _UNKNOWN:
                item = instruction.argval
            elif operation == "BINARY_SUBSCR" and item_before is not _UNKNOWN:
                loaded = self._item(loaded, item_before)
            else:
                loaded = _UNKNOWN
            if loaded is not _UNKNOWN and _is_numpy_array(loaded):
                self.environment.arrays.append((loaded, str(instruction.argval), code.co_filename, line))
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                self._follow(inner, names, {k: v for k, v in local.items() if k in inner.co_freevars})

    def _global(self, names: dict[str, Any], name: str) -> Any:
        value = names.get(name, ABSENT)
        self._add(names, name, value)
        return value if value is not ABSENT else getattr(builtins, name, _UNKNOWN)

    def _attribute(self, owner: Any, name: str) -> Any:
        """The attribute of an object, a class or a module that has no ``__weft_state__``; _UNKNOWN where it varies."""
        if isinstance(owner, ModuleType):
            value = vars(owner).get(name, _UNKNOWN)
            is_helper = isinstance(value, FunctionType) and not _is_installed(owner)
            if (
                is_helper
                or type(value) in _PLAIN
                or isinstance(value, _core.Tensor)
                or _is_numpy_array(value)
            ):
                self._add(vars(owner), name, value)
            return value
        if (
            hasattr(type(owner), "__weft_state__")
            or isinstance(owner, _core.Tensor)
            or _is_numpy_array(owner)
        ):
            return _UNKNOWN
        attributes = getattr(owner, "__dict__", None)
        if type(attributes) is dict and name in attributes:
            self._add(attributes, name, attributes[name])
            return attributes[name]
        if type(owner) is type or type(attributes) is dict:
            kind = owner if isinstance(owner, type) else type(owner)
            value = inspect.getattr_static(kind, name, _UNKNOWN)
            is_method = isinstance(value, FunctionType) and not _is_internal(value)
            if is_method or type(value) in _PLAIN or isinstance(value, _core.Tensor):
                self._add(kind, name, value)
                if type(attributes) is dict:  # where it would come first
                    self._add(attributes, name, ABSENT)
            if is_method and not isinstance(owner, type):
                self._waiting.append((MethodType(value, owner), {}))
            elif not is_method:
                return value
        return _UNKNOWN

    def _item(self, container: Any, key: Any) -> Any:
        try:
            if type(container) is dict or (type(container) is list and type(key) is int):
                value = container[key]
                self._add(container, key, value)
                return value
        except (LookupError, TypeError):
            pass
        return _UNKNOWN


def _user_function(target: Any) -> tuple[FunctionType | None, Any]:
    """The Python function behind a method, a wrapper or a traced function, None for weft's own; and its object."""
    while (inner := vars(target).get("__wrapped__") if hasattr(target, "__dict__") else None) is not None:
        target = inner
    owner = _UNKNOWN
    if isinstance(target, MethodType):
        target, owner = target.__func__, target.__self__
        while (inner := getattr(target, "__wrapped__", None)) is not None:
            target = inner
    return (target if isinstance(target, FunctionType) and not _is_internal(target) else None), owner


def _argument_values(function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The values of a function's parameters, as far as they are known without a call."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    standard = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    standard |= function.__kwdefaults__ or {}
    every = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    arguments = {
        **standard,
        **dict(zip(names, args, strict=False)),
        **{k: v for k, v in kwargs.items() if k in every},
    }
    # Containers are compared by their items.
    return {name: x for name, x in arguments.items() if not isinstance(x, list | tuple | dict)}


def _is_internal(function: FunctionType) -> bool:
    return function.__code__.co_filename.startswith(_WEFT)


def _is_installed(module: ModuleType) -> bool:
    """Whether a module is a library's, not the user's."""
    file = getattr(module, "__file__", None) or ""
    return not file or "site-packages" in file or file.startswith((_WEFT, _LIBRARY))


def _is_numpy_array(x: Any) -> bool:
    return hasattr(type(x), "__array_interface__") and hasattr(type(x), "__setitem__")
