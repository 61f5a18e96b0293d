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

ABSENT = NotImplemented  # the value of a Place where there is nothing; the native core uses it, too

_WEFT = str(Path(__file__).parents[1])
_LIBRARY = sysconfig.get_path("stdlib")
_PLAIN = (int, float, bool, str, bytes, type(None))
_UNKNOWN = object()

Place = tuple[Any, Any, Any]


class CapturedEnvironment:
    """What a function depends on besides its arguments.

    places: where each thing is, and what it is: (cell, None, value), (dict or list, key, value), (object, attribute,
    value). values: the things themselves, and the objects whose methods are called. arrays: NumPy arrays among them, as
    (array, name, file, line).
    """

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.values: list[Any] = []
        self.arrays: list[tuple[Any, str, str, int]] = []

    def changed(self) -> bool:
        """Whether something is not what it was."""
        return not all(_core.is_as_it_was(*place) for place in self.places)


def captured_environment(
    function: Callable[..., Any], args: Iterable[Any] = (), kwargs: dict[str, Any] | None = None
) -> CapturedEnvironment:
    """What a call of a function depends on besides its arguments' values. args, kwargs: of the call.

    >>> rate = 0.5
    >>> captured_environment(lambda x: [rate * y for y in x]).places[-1][1:]
    ('rate', 0.5)
    """
    return _Walk(function, tuple(args), kwargs or {}).found


class _Walk:
    """Collects CapturedEnvironment, from function to function."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.found = CapturedEnvironment()
        self._places: set[tuple[int, Any]] = set()
        self._seen: set[tuple[int, int]] = set()
        self._waiting: list[tuple[Any, dict[str, Any]]] = [(function, {})]
        plain, owner = _plain(function)
        if plain is not None:
            given = (*(() if owner is _UNKNOWN else (owner,)), *args)
            self._waiting = [(function, _bound(plain, given, kwargs))]
        for each, arguments in self._waiting:  # which grows meanwhile
            self._visit(each, arguments)

    def _visit(self, thing: Any, arguments: dict[str, Any]) -> None:
        function, owner = _plain(thing)
        if owner is not _UNKNOWN:
            self.found.values.append(owner)
        if function is None or (id(function), id(owner)) in self._seen:
            return
        self._seen.add((id(function), id(owner)))
        if not arguments:
            arguments = _bound(function, () if owner is _UNKNOWN else (owner,), {})
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
        self._read(function.__code__, function.__globals__, {**arguments, **cells})

    def _add(self, place: Any, key: Any, value: Any) -> None:
        try:
            known = (id(place), key) in self._places
        except TypeError:  # a key that cannot be one
            return
        if known:
            return
        self._places.add((id(place), key))
        self.found.places.append((place, key, value))
        if value is not ABSENT:
            self.found.values.append(value)
            self._waiting.append((value, {}))

    def _read(self, code: CodeType, names: dict[str, Any], local: dict[str, Any]) -> None:
        """Follow what the code reads: names, attributes of what they mean, and items by constants."""
        stored = {i.argval for i in dis.get_instructions(code) if i.opname in ("STORE_FAST", "DELETE_FAST")}
        local = {name: value for name, value in local.items() if name not in stored}
        here, item, line = _UNKNOWN, _UNKNOWN, code.co_firstlineno
        for each in dis.get_instructions(code):
            line = (each.positions.lineno if each.positions else None) or line
            operation, item_before, item = each.opname, item, _UNKNOWN
            if operation in ("LOAD_GLOBAL", "LOAD_NAME"):
                here = self._global(names, each.argval)
            elif operation in (
                "LOAD_DEREF",
                "LOAD_CLASSDEREF",
                "LOAD_FAST",
                "LOAD_FAST_CHECK",
                "LOAD_FAST_BORROW",
            ):
                here = local.get(each.argval, _UNKNOWN)
            elif operation in ("LOAD_ATTR", "LOAD_METHOD") and here is not _UNKNOWN:
                here = self._attribute(here, each.argval)
            elif operation in ("LOAD_CONST", "LOAD_SMALL_INT") and here is not _UNKNOWN:
                item = each.argval
            elif operation == "BINARY_SUBSCR" and item_before is not _UNKNOWN:
                here = self._item(here, item_before)
            else:
                here = _UNKNOWN
            if here is not _UNKNOWN and _is_numpy_array(here):
                self.found.arrays.append((here, str(each.argval), code.co_filename, line))
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                self._read(inner, names, {k: v for k, v in local.items() if k in inner.co_freevars})

    def _global(self, names: dict[str, Any], name: str) -> Any:
        value = names.get(name, ABSENT)
        self._add(names, name, value)
        return value if value is not ABSENT else getattr(builtins, name, _UNKNOWN)

    def _attribute(self, thing: Any, name: str) -> Any:
        """Of an object, a class or a module that does not look after itself."""
        if isinstance(thing, ModuleType):
            value = vars(thing).get(name, _UNKNOWN)
            is_helper = isinstance(value, FunctionType) and not _is_installed(thing)
            if (
                is_helper
                or type(value) in _PLAIN
                or isinstance(value, _core.Tensor)
                or _is_numpy_array(value)
            ):
                self._add(vars(thing), name, value)
            return value
        if (
            hasattr(type(thing), "__weft_state__")
            or isinstance(thing, _core.Tensor)
            or _is_numpy_array(thing)
        ):
            return _UNKNOWN
        own = getattr(thing, "__dict__", None)
        if type(own) is dict and name in own:
            self._add(own, name, own[name])
            return own[name]
        if type(thing) is type or type(own) is dict:
            kind = thing if isinstance(thing, type) else type(thing)
            value = inspect.getattr_static(kind, name, _UNKNOWN)
            is_method = isinstance(value, FunctionType) and not _is_own(value)
            if is_method or type(value) in _PLAIN or isinstance(value, _core.Tensor):
                self._add(kind, name, value)
                if type(own) is dict:  # where it would come first
                    self._add(own, name, ABSENT)
            if is_method and not isinstance(thing, type):
                self._waiting.append((MethodType(value, thing), {}))
            elif not is_method:
                return value
        return _UNKNOWN

    def _item(self, thing: Any, key: Any) -> Any:
        try:
            if type(thing) is dict or (type(thing) is list and type(key) is int):
                value = thing[key]
                self._add(thing, key, value)
                return value
        except (LookupError, TypeError):
            pass
        return _UNKNOWN


def _plain(thing: Any) -> tuple[FunctionType | None, Any]:
    """The function of Python's that a method, a wrapper or a traced function is, None for weft's own; its object."""
    while (inner := vars(thing).get("__wrapped__") if hasattr(thing, "__dict__") else None) is not None:
        thing = inner
    owner = _UNKNOWN
    if isinstance(thing, MethodType):
        thing, owner = thing.__func__, thing.__self__
        while (inner := getattr(thing, "__wrapped__", None)) is not None:
            thing = inner
    return (thing if isinstance(thing, FunctionType) and not _is_own(thing) else None), owner


def _bound(function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Which argument is what, as far as that is known without a call."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    standard = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    standard |= function.__kwdefaults__ or {}
    every = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    given = {
        **standard,
        **dict(zip(names, args, strict=False)),
        **{k: v for k, v in kwargs.items() if k in every},
    }
    return {
        name: x for name, x in given.items() if not isinstance(x, list | tuple | dict)
    }  # known by their items


def _is_own(function: FunctionType) -> bool:
    return function.__code__.co_filename.startswith(_WEFT)


def _is_installed(module: ModuleType) -> bool:
    """Whether a module is a library's, not the user's."""
    file = getattr(module, "__file__", None) or ""
    return not file or "site-packages" in file or file.startswith((_WEFT, _LIBRARY))


def _is_numpy_array(thing: Any) -> bool:
    return hasattr(type(thing), "__array_interface__") and hasattr(type(thing), "__setitem__")
