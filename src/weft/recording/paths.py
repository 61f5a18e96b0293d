"""Finds the path of the module that a line runs in from Python's frames, so that calls of modules need not record it.

What a trace writes down carries it: the line of a node is then a Line, a str with the path of the module. Records of
calls for gradients carry the number of the path, which the way back sets for what it computes.
"""

from __future__ import annotations

import sys
import types
import weakref
from typing import Any

from weft import _core
from weft.base import flags

__all__ = [
    "Line",
    "known_paths",
    "located",
    "module_calls",
    "number_here",
    "number_of",
    "path_of",
    "path_with",
    "report",
]

module_calls: set[types.CodeType] = (
    set()
)  # of functions whose `self` is a module that runs as long as they do
_numbers: dict[str, int] = {"": 0}  # of paths
_paths: list[str] = [""]  # by number
_names: weakref.WeakKeyDictionary[Any, dict[int, str]] = weakref.WeakKeyDictionary()


class Line(str):
    """A line of the user's code, ``file:line``, and the path of the module that it ran in, "" outside of all.

    >>> Line("train.py:3").module
    ''
    """

    module: str = ""


def located(where: str) -> str:
    """The line, with the module that the calling thread is in, or that what backward computes belongs to."""
    path = _paths[_core.recording_context()] or _path_here()
    if not path:
        return where
    line = Line(where)
    line.module = path
    return line


def _path_here() -> str:
    """The path of the module that the calling thread is in, from its frames; "" outside of all."""
    modules = _running(sys._getframe(2))
    return path_of(modules) if modules else ""


def _running(frame: types.FrameType | None) -> list[Any]:
    """The modules whose calls these frames are in, the outermost first."""
    modules = []
    while frame is not None:
        if frame.f_code in module_calls:
            modules.append(frame.f_locals["self"])
        frame = frame.f_back
    return modules[::-1]


_OWN = __file__.removesuffix("recording/paths.py")


def report(problem: BaseException) -> None:
    """Called where an exception leaves a module's call: the innermost adds a note with the module's path.

    The package's own frames leave the traceback, unless WEFT_DEBUG is set.
    """
    if not hasattr(problem, "weft_module"):
        modules = _running(sys._getframe(1))
        path, options = path_of(modules), modules[-1].extra_repr()
        problem.weft_module = path  # type: ignore[attr-defined]
        problem.add_note(f"in {path}: {type(modules[-1]).__name__}({options})")
    if not flags.get("WEFT_DEBUG"):
        entries = []
        entry = problem.__traceback__
        while entry is not None:
            if not entry.tb_frame.f_code.co_filename.startswith(_OWN):
                entries.append(entry)
            entry = entry.tb_next
        traceback: types.TracebackType | None = None
        for entry in reversed(entries):
            traceback = types.TracebackType(traceback, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
        problem.__traceback__ = traceback


def number_of(path: str) -> int:
    """The number of a path, for _core.set_recording_context.

    >>> number_of(""), path_with(number_of("Net.first"))
    (0, 'Net.first')
    """
    number = _numbers.setdefault(path, len(_numbers))
    if number == len(_paths):
        _paths.append(path)
    return number


def number_here() -> int:
    """The number of the path of the calling thread's current module; native code calls it while a trace records."""
    return number_of(_path_here())


def path_with(number: int) -> str:
    """The path that has this number."""
    return _paths[number]


def known_paths() -> list[str]:
    """All paths, by their numbers."""
    return list(_paths)


def path_of(modules: list[Any]) -> str:
    """The path of the last of these modules, each called by the one before: the class of the first, then names.

    One that the module before does not contain begins a path of its own, behind a slash.
    """
    root: Any = None
    path = prefix = ""
    names: dict[int, str] = {}
    for module in modules:
        name = names.get(id(module))
        if name is None and root is not None:  # it may have been added since
            names = _names_in(root, renew=True)
            name = names.get(id(module))
        if name is None:
            root, name = module, ""
            prefix = f"{path}/{type(module).__name__}" if path else type(module).__name__
            names = _names_in(root)
        path = f"{prefix}.{name}" if name else prefix
    return path


def _names_in(root: Any, renew: bool = False) -> dict[int, str]:
    names = None if renew else _names.get(root)
    if names is None:
        names = _names[root] = {id(module): name for name, module in root.named_modules()}
    return names
