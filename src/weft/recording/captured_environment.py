"""Finds what a traced function may read besides its arguments: everything plain that its code can reach by a name.

The walk begins at the function and the objects among its arguments. What can be reached is found by names alone, never
by the order of instructions: a global by a name that the code loads, an attribute by a name that any code of the
program loads (or that a text which `getattr` may get spells), what is in a list or dict because the container is
reached. So `d = c; d.k`, `self.cfg.k`, properties, callables, partials and comprehensions need no rules of their own.
Functions that are reached in this way are read as well, until nothing new is found. This gives more than one call
reads, never less, with exceptions that are counted as `doubts`: a function of C that is not known to depend on its
arguments alone (a clock, a generator of random numbers), containers of very many items, names that are computed.
A program with doubts is recorded again now and then and compared (Trace).

The native core compares slots at each call with what they were (native/bindings/replay.cpp): numbers, texts and
tuples of them by value, all else by identity.
"""

from __future__ import annotations

import builtins
import collections
import dis
import functools
import gc
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

from weft import _core
from weft.base.cached import cached_property
from weft.recording.dependence import objects_in
from weft.recording.names_in_code import names_in

__all__ = ["ABSENT", "CONTENTS", "CapturedEnvironment", "captured_environment"]

ABSENT = NotImplemented  # the value of an empty Slot; the native core uses it, too
CONTENTS = ...  # the key of a Slot whose value is all that a container has in it

MOST_ITEMS = 1000  # of a container that is compared item by item
MOST_SLOTS = 2000
MOST_FUNCTIONS = 500  # of installed packages

_WEFT = str(Path(__file__).parents[1])
_LIBRARY = sysconfig.get_path("stdlib")
_PACKAGES = ("site-packages", "dist-packages")
_PLAIN = (int, float, bool, str, bytes, type(None))
# Modules of C functions and types whose results depend on their arguments; others are doubted.
_PURE = frozenset(
    ("builtins", "math", "cmath", "operator", "_operator", "itertools", "functools", "_functools")
)
_PURE |= {"collections", "_collections", "types", "typing", "_abc", "_thread", "_warnings"}
# Modules of the standard library whose objects do not change, are read by their attributes' names, or do not matter.
_INERT = _PURE | {"pathlib", "fractions", "decimal", "datetime", "enum", "re", "abc", "contextlib", "inspect"}
_INERT |= {"logging", "threading", "argparse", "dataclasses", "numbers", "uuid", "ast", "codecs", "_io", "os"}
# These take attributes by texts.
_BY_NAME = frozenset(["getattr", "hasattr", "attrgetter", "methodcaller", "__getattribute__"])
# Code with these names may go on where an attribute is missing.
_FORGIVING = frozenset(["AttributeError", "Exception", "BaseException", "suppress"])
_ALL = frozenset(["__dict__", "vars", "asdict", "astuple", "fields"])  # take all attributes
# Methods that Python calls for a program only where it makes, prints or copies objects.
_UNCALLED = frozenset(("__init__", "__new__", "__post_init__", "__del__", "__repr__", "__str__", "__dir__"))
_UNCALLED |= {"__sizeof__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__copy__"}
_UNCALLED |= {"__deepcopy__", "__init_subclass__", "__class_getitem__", "__subclasshook__"}
_WRAPPED = ("__wrapped__",)
# Descriptors of which a class answers what it holds.
_COMPARED_MEMBERS = (FunctionType, property, staticmethod, functools.cached_property, cached_property)
# Classes of the standard library, whose code is not read, that hold what the user gave them in their attributes.
_LIBRARY_OBJECTS: frozenset[Any] = frozenset(
    (
        collections.ChainMap,
        collections.UserDict,
        collections.UserList,
        collections.UserString,
        functools.partialmethod,
        type(os.environ),
    )
)

Slot = tuple[Any, Any, Any]


class CapturedEnvironment:
    """What a function depends on besides its arguments.

    slots: each variable, item or attribute with its value: (cell, None, value), (dict or list, key, value), (object,
    attribute, value), (container, CONTENTS, (items)). values: objects that are found. arrays: NumPy arrays among them,
    as (array, name, file, line). doubts: what the slots do not cover.
    """

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.values: list[Any] = []
        self.arrays: list[tuple[Any, str, str, int]] = []
        self.doubts: dict[str, None] = {}

    def changed(self) -> bool:
        """Whether a slot has another value now."""
        return not all(_core.is_as_it_was(*slot) for slot in self.slots)

    def changed_by_itself(self) -> bool:
        """Whether the function that has just run changed what it depends on.

        What it appends to containers, such as a log, is an effect that happens when it is recorded. Where it replaces
        or removes items, such as counts, these may matter: they are doubted.
        """
        slots: list[Slot] = []
        for container, key, before in self.slots:
            if _core.is_as_it_was(container, key, before):
                slots.append((container, key, before))
            elif key is CONTENTS:
                lasting = list(_lasting_items(container, before))
                if len(lasting) * (1 + isinstance(container, dict)) < len(before):
                    self.doubts["a container in which it replaces or removes items"] = None
                slots += lasting
                if isinstance(container, dict):  # a later call reads what this one has put in
                    former = {id(key) for key in before[::2]}
                    slots += [(container, k, value) for k, value in container.items() if id(k) not in former]
            else:
                return True
        self.slots = slots
        return False


def captured_environment(
    function: Callable[..., Any], args: Iterable[Any] = (), kwargs: dict[str, Any] | None = None
) -> CapturedEnvironment:
    """What a call of a function depends on besides its arguments' values. args, kwargs: of the call.

    >>> rate = 0.5
    >>> captured_environment(lambda x: [rate * y for y in x]).slots[-1][1:]
    ('rate', 0.5)
    """
    return _Walk(function, (*args, *(kwargs or {}).values())).environment


def _lasting_items(container: Any, before: tuple[Any, ...]) -> Iterator[Slot]:
    """Of the contents of a list or dict those that are still there, each for itself."""
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(container, list):
        items = enumerate(before)
    elif isinstance(container, dict):
        items = zip(before[::2], before[1::2], strict=True)
    yield from ((container, key, value) for key, value in items if _core.is_as_it_was(container, key, value))


class _Reached:
    """An object whose attributes are looked at by name. names: those that were looked up; optional: of these, those
    for which it was recorded where they are missing.
    """

    def __init__(self, value: Any, domain: str | None, names: Iterable[str] = ()) -> None:
        self.value, self.domain = value, domain
        self.first_names, self.names, self.optional = frozenset(names), set[str](), set[str]()


class _Walk:
    """Collects CapturedEnvironment until nothing new is found."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.environment = CapturedEnvironment()
        self._slots: set[tuple[int, Any]] = set()
        self._kept: dict[int, Any] = {}  # what was reached, by id
        self._objects: list[_Reached] = []
        self._waiting: list[Any] = [function]
        self._codes: dict[tuple[CodeType, int], None] = {}  # in the order in which they were found
        self._of_packages = 0
        # Names of attributes that code reads, by domain: of the user's program "", or an installed package.
        self._names: dict[str, set[str]] = {"": set()}
        self._counted: set[str] = set()
        self._texts: set[str] = set()
        self._optional: set[str] = set()  # attributes that may be asked for where there are none
        self._takes_texts = self._takes_all = self._matches = self._computes_texts = False
        self._match_names: set[str] = set()
        self._arguments(arguments)
        self._run()

    def _arguments(self, values: Iterable[Any]) -> None:
        """Containers among the arguments are compared by their items; objects, which the key has, are looked into."""
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            if type(value) is list or isinstance(value, tuple):
                waiting += value
                self._find(type(value))  # a named tuple may have methods
            elif type(value) is dict:
                waiting += value.values()
            elif isinstance(value, str):
                self._texts.add(value)
            elif type(value) not in _PLAIN and not isinstance(value, _core.Tensor):
                self._waiting.append(value)

    def _run(self) -> None:
        size: tuple[int, ...] = ()
        while size != (size := self._size()) or self._waiting:
            while self._waiting:
                self._reach(self._waiting.pop())
            if self._takes_texts:
                self._names[""] |= self._texts
                if self._computes_texts:
                    self._takes_all = True
                    self._doubt("an attribute whose name is computed")
            if self._matches:
                self._names[""] |= self._match_names
            for each in tuple(self._objects):
                names = self._names[""] | self._counted | each.first_names
                if each.domain:
                    names = names | self._names.get(each.domain, set())
                if self._takes_all and each.domain == "":
                    names = names | set(
                        vars(each.value) if isinstance(each.value, type) else _attributes_of(each.value) or ()
                    )
                new = names - each.names | (names & self._optional - each.optional)
                each.names |= new
                each.optional |= new & self._optional
                if new:
                    self._look(each, new)

    def _size(self) -> tuple[int, ...]:
        return (
            len(self._codes),
            len(self._objects),
            len(self._texts) * self._takes_texts,
            len(self._match_names) * self._matches,
            self._takes_all,
            len(self._counted),
            len(self._optional),
            *map(len, self._names.values()),
        )

    # What is found.

    def _add(self, container: Any, key: Any, value: Any) -> None:
        """A slot, and what is in it."""
        slot = (id(container), key)
        try:
            if slot in self._slots:
                return
        except TypeError:  # a key that is not hashable
            return
        if len(self._slots) >= MOST_SLOTS:
            self._doubt(f"more than {MOST_SLOTS} variables, items and attributes")
            return
        self._slots.add(slot)
        self.environment.slots.append((container, key, value))
        if value is not ABSENT and key is not CONTENTS:
            self._find(value)

    def _find(self, value: Any) -> None:
        if isinstance(value, str):
            self._texts.add(value)
        elif type(value) not in _PLAIN and not isinstance(value, CodeType):
            self._waiting.append(value)

    def _doubt(self, what: str) -> None:
        self.environment.doubts[what] = None

    def _reach(self, value: Any) -> None:
        if id(value) in self._kept:
            return
        self._kept[id(value)] = value
        self.environment.values.append(value)
        kind: Any = type(value)
        if isinstance(value, _core.Tensor) or _is_numpy_array(value):
            return
        if isinstance(value, ModuleType):
            self._object(value, _domain(getattr(value, "__file__", None) or ""))
        elif isinstance(value, FunctionType):
            self._enter(value)
        elif isinstance(value, MethodType):
            self._waiting += [value.__self__, value.__func__]
        elif isinstance(value, BuiltinFunctionType):
            self._builtin(value)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, property):
            self._waiting += [f for f in (value.fget, value.fset) if f is not None]
        elif isinstance(value, staticmethod | classmethod):
            self._waiting.append(value.__func__)
        elif isinstance(value, tuple):
            self._elements(value, value)
            if kind is not tuple:
                self._instance(value)
        else:
            if isinstance(value, list | dict):
                self._contents(value, value if isinstance(value, list) else [*value.keys(), *value.values()])
            elif _is_of_c(kind) and kind.__module__.partition(".")[0] != "weft":
                self._object_of_c(value)
                return
            if kind is not list and kind is not dict:
                self._instance(value)

    def _contents(self, container: Any, items: Any) -> None:
        """A container, compared by what is in it."""
        if len(items) > 2 * MOST_ITEMS:
            self._doubt(f"a container of more than {MOST_ITEMS} items")
            return
        if isinstance(container, dict):
            items = tuple(x for item in tuple(container.items()) for x in item)
        self._add(container, CONTENTS, tuple(items))
        self._elements(container, items)

    def _elements(self, container: Any, elements: Any) -> None:
        for each in elements:
            if _is_numpy_array(each):
                file, line = next(
                    ((code.co_filename, code.co_firstlineno) for code, _ in self._codes), ("", 0)
                )
                self.environment.arrays.append(
                    (each, f"an element of a {type(container).__name__}", file, line)
                )
            self._find(each)

    def _object_of_c(self, value: Any) -> None:
        """Of a type of C: what it refers to is what it has in it."""
        if type(value).__module__ not in _PURE or isinstance(value, Iterator):
            self._doubt(f"a {type(value).__qualname__} of {type(value).__module__}")
            return
        referents = [x for x in gc.get_referents(value) if not isinstance(x, type)]
        attributes = _attributes_of(value)
        if attributes is None:
            self._contents(value, referents)
        else:  # such as functools.partial and types.SimpleNamespace: what is not an attribute stays
            self._waiting += [x for x in referents if x is not attributes and type(x) not in _PLAIN]
            self._instance(value)
        if callable(value):  # such as operator.attrgetter("rate")
            self._names[""].update(x for x in referents if isinstance(x, str))

    def _builtin(self, function: Any) -> None:
        owner = function.__self__
        module = owner.__name__ if isinstance(owner, ModuleType) else type(owner).__module__
        if not _is_known(module):
            self._doubt(f"{function.__qualname__} of {module}")
        if owner is not None and not isinstance(owner, ModuleType):
            self._find(owner)

    # Functions.

    def _enter(self, function: FunctionType) -> None:
        code = function.__code__
        domain = _domain(code.co_filename)
        if domain is None:
            module = function.__module__ or ""
            if not code.co_filename.startswith(_WEFT):
                if module not in _PURE:
                    self._library_function(function)
                # What it wraps, such as the functions that `functools.singledispatch` chooses from.
                held = [_content_of(cell) for cell in function.__closure__ or ()]
                self._waiting += [x for x in held if isinstance(x, FunctionType | MethodType | dict)]
            self._waiting += [vars(function)[name] for name in _WRAPPED if name in vars(function)]
            return
        if domain:
            self._of_packages += 1
            if self._of_packages > MOST_FUNCTIONS:
                self._doubt(f"more than {MOST_FUNCTIONS} functions of installed packages")
                return
        self._add(function, "__code__", code)  # assigned by reloaders of modules
        self._add(function, "__defaults__", function.__defaults__)
        if function.__kwdefaults__:
            self._add(function, "__kwdefaults__", function.__kwdefaults__)
        for cell in function.__closure__ or ():
            try:
                self._add(cell, None, cell.cell_contents)
            except ValueError:  # not assigned yet
                self._add(cell, None, ABSENT)
        if vars(function):
            self._object(function, domain, _WRAPPED)
        self._read(code, function.__globals__, domain)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self._note_array(cell, None, name, code)

    def _library_function(self, function: FunctionType) -> None:
        """Of the standard library or NumPy: its own code is not read, but the functions of C that it names are."""
        names = names_in(function.__code__)
        for name in names.globals:
            value = function.__globals__.get(name)
            attributes = vars(value) if isinstance(value, ModuleType) else {}
            for each in (value, *(attributes.get(attribute) for attribute in names.attributes)):
                if isinstance(each, BuiltinFunctionType):
                    self._builtin(each)

    def _read(self, code: CodeType, names: dict[str, Any], domain: str) -> None:
        """What a code object and those in it read by name."""
        if (code, id(names)) in self._codes:
            return
        self._codes[code, id(names)] = None
        found = names_in(code)
        self._names.setdefault(domain, set()).update(found.attributes)
        if not domain:
            self._counted |= found.counted
        self._matches |= found.matches
        self._computes_texts |= found.computes_texts and not domain
        if domain == "" and not _ALL.isdisjoint(found.globals | found.attributes):
            self._takes_all = True
        if domain == "" and not _FORGIVING.isdisjoint(found.globals | found.attributes):
            self._optional |= found.attributes
        if domain == "" and not _BY_NAME.isdisjoint(found.globals | found.attributes):
            self._takes_texts = True
            self._texts |= found.texts
            self._optional |= {text for text in found.texts if text.isidentifier()}
        for name in found.globals:
            value = names.get(name, ABSENT)
            self._add(names, name, value)
            if value is ABSENT and isinstance(value := getattr(builtins, name, None), BuiltinFunctionType):
                continue
            self._note_array(names, name, name, code)
        for name in found.imports:
            if (module := sys.modules.get(name)) is not None:
                self._find(module)
                if not domain:
                    self._add(sys.modules, name, module)
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                self._read(inner, names, domain)

    def _note_array(self, container: Any, key: Any, name: str, code: CodeType) -> None:
        """A NumPy array that a variable holds."""
        value = container.get(key) if isinstance(container, dict) else _content_of(container)
        if _is_numpy_array(value):
            self.environment.arrays.append((value, name, code.co_filename, _line_of(code, name)))

    # Objects and classes.

    def _object(self, value: Any, domain: str | None, names: Iterable[str] = ()) -> None:
        self._objects.append(_Reached(value, domain, names))

    def _instance(self, value: Any) -> None:
        kind: Any = type(value)
        self._object(value, _domain_of_class(kind), {*_called_by_python(kind), *_WRAPPED})
        if _LIBRARY_OBJECTS.isdisjoint(kind.__mro__):
            if _is_of_library(kind):
                self._doubt(f"a {kind.__qualname__} of {kind.__module__}")
        elif (attributes := _attributes_of(value)) is not None:
            self._look(self._objects[-1], set(attributes))
            self._objects[-1].names |= set(attributes)
        for base in kind.__mro__[1:]:
            if _is_of_c(base) and not _is_known(base.__module__):  # such as random.Random
                self._doubt(f"a {kind.__qualname__} of {kind.__module__}")
        if hasattr(kind, "__weft_state__"):  # weft uses its modules, hooks and callbacks without naming them
            self._waiting += objects_in(value.__weft_state__())

    def _class(self, kind: Any) -> None:
        if _is_of_c(kind):
            return
        domain = _domain_of_class(kind)
        if domain is None:
            return
        names = vars(kind).get("__match_args__", ())
        self._match_names |= {name for name in names if isinstance(name, str)}
        self._object(kind, domain, {*_called_by_python(kind), "__init__", "__new__", "__post_init__"})

    def _look(self, each: _Reached, names: set[str]) -> None:
        owner = each.value
        if isinstance(owner, ModuleType):
            self._look_into_module(owner, each.domain, names)
            return
        attributes = None if isinstance(owner, type) else _attributes_of(owner)
        has_state = hasattr(type(owner), "__weft_state__")
        kind: Any = owner if isinstance(owner, type) else type(owner)
        classes = [cls for cls in kind.__mro__ if cls is not object]
        if isinstance(owner, type):
            metaclass: Any = type(owner)
            classes += [cls for cls in metaclass.__mro__ if cls not in (type, object)]
        for name in names:
            if attributes is not None and name in attributes:
                value = attributes[name]
                if self._is_just_counted(name, value):
                    each.names.discard(name)
                elif has_state:
                    self._found_in_state(value)
                else:
                    self._add(attributes, name, value)
                    self._note_array_of(owner, name, value)
                continue
            is_first = True
            for cls in classes:
                if name in vars(cls):
                    self._member(owner, attributes, cls, name, is_first, has_state)
                    is_first = False
            if is_first and name in self._optional and attributes is not None:
                if not has_state:
                    self._add(attributes, name, ABSENT)
                if _domain_of_class(kind) is not None:
                    self._add(kind, name, ABSENT)

    def _is_just_counted(self, name: str, value: Any) -> bool:
        """Whether an attribute is a number that is only incremented, as far as is known by now."""
        return (
            name in self._counted
            and not any(name in names for names in self._names.values())
            and isinstance(value, int | float)
        )

    def _found_in_state(self, value: Any) -> None:
        """The value of an attribute that is part of its object's state: only what is behind it is new."""
        waiting = [value]
        while waiting:
            each = waiting.pop()
            if isinstance(each, list | tuple | dict):
                waiting += each.values() if isinstance(each, dict) else each
            else:
                self._find(each)

    def _note_array_of(self, owner: Any, name: str, value: Any) -> None:
        if _is_numpy_array(value):
            for code, _ in self._codes:
                if name in names_in(code).attributes:
                    self.environment.arrays.append((value, name, code.co_filename, _line_of(code, name)))
                    return

    def _member(
        self,
        owner: Any,
        attributes: dict[str, Any] | None,
        cls: Any,
        name: str,
        is_first: bool,
        has_state: bool,
    ) -> None:
        """An attribute that a class has."""
        value = vars(cls)[name]
        if isinstance(value, MemberDescriptorType):
            if is_first and not isinstance(owner, type) and not _is_of_c(cls):
                self._add(owner, name, getattr(owner, name, ABSENT))
            return
        if isinstance(value, MethodDescriptorType | GetSetDescriptorType):
            if not _is_known(cls.__module__):
                self._doubt(f"{cls.__qualname__}.{name} of {cls.__module__}")
            return
        if _domain_of_class(cls) is None:  # weft's, or the standard library's
            if isinstance(value, FunctionType):
                self._enter(value)
            return
        if isinstance(value, FunctionType) and _is_generated(cls, value):
            return
        kind: Any = owner if isinstance(owner, type) else type(owner)
        if not hasattr(type(value), "__get__") or isinstance(value, _COMPARED_MEMBERS):
            # Looked up from the object's class on, so that what a class in between gets is seen; what `super` finds,
            # and attributes of metaclasses, from the class that has them.
            is_looked_up = is_first and cls in kind.__mro__ and not hasattr(type(kind), name)
            self._add(
                kind if is_looked_up else cls,
                name,
                value.__func__ if isinstance(value, staticmethod) else value,
            )
        is_wrapped = isinstance(value, property | staticmethod | classmethod)
        if (
            is_first and not is_wrapped and attributes is not None and not has_state
        ):  # where it would come first
            self._add(attributes, name, ABSENT)
        if isinstance(value, functools.cached_property | cached_property):
            value = value.func
        self._find(value)

    def _look_into_module(self, module: ModuleType, domain: str | None, names: set[str]) -> None:
        attributes = vars(module)
        for name in names & attributes.keys():
            value = attributes[name]
            if domain == "":
                self._add(attributes, name, value)
            elif isinstance(value, FunctionType | BuiltinFunctionType | type | ModuleType):
                if domain or isinstance(value, BuiltinFunctionType | ModuleType) or _is_users(value):
                    self._find(value)
            elif domain or type(value) in _PLAIN or isinstance(value, _core.Tensor) or _is_numpy_array(value):
                self._add(attributes, name, value)
            elif module.__name__.partition(".")[0] != "weft":
                self._find(value)
            if _is_numpy_array(value):
                self._note_array_of(module, name, value)


def _attributes_of(value: Any) -> dict[str, Any] | None:
    attributes = getattr(value, "__dict__", None)
    return attributes if type(attributes) is dict else None


def _content_of(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _line_of(code: CodeType, name: str) -> int:
    """The first line in which a code object, or one in it, uses a name."""
    for instruction in dis.get_instructions(code):
        if instruction.argval == name and instruction.positions and instruction.positions.lineno:
            return instruction.positions.lineno
    return code.co_firstlineno


def _domain(file: str) -> str | None:
    """Whose code a file has: "": the user's; a name: an installed package; None: a library that is not followed."""
    if not file or file.startswith((_WEFT, "<frozen")):
        return None
    parts = file.split("/")
    for folder in _PACKAGES:
        if folder in parts[:-1]:
            package = parts[parts.index(folder) + 1].partition(".")[0]
            return None if package in ("numpy", "ml_dtypes") else package
    return None if file.startswith(_LIBRARY) else ""


@functools.lru_cache(4096)
def _domain_of_class(kind: Any) -> str | None:
    if _is_of_c(kind):
        return None
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    return _domain(file) if file else ""  # such as __main__ of a notebook


@functools.lru_cache(4096)
def _is_of_library(kind: Any) -> bool:
    """Whether a class of the standard library, such as ConfigParser, gives objects state that its own code reads."""
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None) or ""
    return (
        file.startswith(_LIBRARY)
        and _domain(file) is None
        and kind.__module__.partition(".")[0] not in _INERT
    )


@functools.lru_cache(4096)
def _called_by_python(kind: Any) -> frozenset[str]:
    """Methods that are called without being named: of Python's protocols, and what a library's base class calls."""
    found = set()
    theirs = [cls for cls in kind.__mro__ if _domain_of_class(cls) is None and cls is not object]
    for cls in kind.__mro__:
        if _domain_of_class(cls) is None:
            continue
        for name in vars(cls):
            is_protocol = name.startswith("__") and name.endswith("__")
            if (is_protocol and name not in _UNCALLED) or any(name in vars(base) for base in theirs):
                found.add(name)
    return frozenset(found - _UNCALLED - {"__module__", "__dict__", "__weakref__", "__doc__", "__hash__"})


def _is_generated(kind: type, function: FunctionType) -> bool:
    """Whether dataclasses made a method, which reads every field."""
    return "__dataclass_fields__" in vars(kind) and function.__code__.co_filename == "<string>"


@functools.lru_cache(4096)
def _is_of_c(kind: Any) -> bool:
    """Whether a class is made by C, not by a class statement."""
    if not kind.__flags__ & 1 << 9 or kind.__flags__ & 1 << 8:  # no heap type, or an immutable one
        return True
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return kind.__module__ in sys.builtin_module_names or bool(file and file.endswith(".so"))


def _is_known(module: str) -> bool:
    """Whether what a module's functions of C return depends on their arguments, as far as a program matters."""
    return module in _PURE or module.partition(".")[0] == "weft"


def _is_users(value: Any) -> bool:
    code = getattr(value, "__code__", None)
    return code is not None and _domain(code.co_filename) is not None


def _is_numpy_array(x: Any) -> bool:
    return hasattr(type(x), "__array_interface__") and hasattr(type(x), "__setitem__")
