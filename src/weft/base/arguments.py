"""What is wrong with the arguments of a native function: the error that its caller gets, instead of its signatures.

>>> class Function:
...     __name__ = "seek"
...     __nb_signature__ = (("def seek(self, position: int, whence: str = 'begin') -> None", None),)
>>> refusal(Function(), [None, 3], {"from_": "end"})
TypeError('seek: no argument from_; there are: position, whence')
>>> refusal(Function(), [None, "3"], {})
TypeError('seek: position must be an int, got str')
>>> refusal(Function(), [None], {})
TypeError('seek: position must be given')
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["refusal"]

WORDS = {
    "Callable": "a callable",
    "Iterable": "an iterable",
    "Operator": "an Operator",
    "object": "an object",
    "int": "an int",
    "float": "a number",
    "str": "a str",
    "bool": "a bool",
    "bytes": "bytes",
    "list": "a list",
}
# nanobind takes any object there.
UNCHECKED = ("object", "Any", "Callable", "Iterable", "Sequence", "handle", "buffer")


class _Parameter:
    def __init__(self, name: str, annotation: str, required: bool, keyword: bool) -> None:
        self.name, self.annotation, self.required, self.keyword = name, annotation, required, keyword


def refusal(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TypeError:
    """The TypeError for a call that fits no signature of a bound function; for methods, args begin with self."""
    name = _name(function, args)
    candidates = [_parameters(text) for text in _signatures(function)]
    if len(candidates) != 1 or candidates[0] is None:
        return TypeError(f"{name}: the arguments do not fit: got {_types(args, kwargs)}")
    parameters, positional = list(candidates[0]), list(args)
    if parameters and parameters[0].name == "self":
        parameters, positional = parameters[1:], positional[1:]
    return TypeError(f"{name}: {_fact(parameters, positional, kwargs)}")


def _name(function: Any, args: Sequence[Any]) -> str:
    name = getattr(function, "__name__", "")
    if not name:  # the getter or setter of an attribute
        match = re.search(r"def (\w+)", "".join(_signatures(function)))
        name = match[1] if match else "call"
    if name in ("__init__", "__new__", "__call__") and args:
        owner = args[0] if isinstance(args[0], type) else type(args[0])
        return str(owner.__name__)
    return name


def _signatures(function: Any) -> list[str]:
    return [str(each[0]) for each in getattr(function, "__nb_signature__", ())]


def _parameters(text: str) -> list[_Parameter] | None:
    """The parameters of ``def f(...) -> T``; None where that is not Python."""
    text = re.sub(r"\\\d+", "...", text.strip())  # defaults that have no text
    try:
        tree = ast.parse(f"{text.rstrip(':')}: pass")
    except SyntaxError:
        return None
    definition = tree.body[-1]
    if not isinstance(definition, ast.FunctionDef):
        return None
    arguments = definition.args
    positional = [*arguments.posonlyargs, *arguments.args]
    required_count = len(positional) - len(arguments.defaults)

    def parameter(arg: ast.arg, required: bool, keyword: bool) -> _Parameter:
        annotation = "object" if arg.annotation is None else ast.unparse(arg.annotation)
        return _Parameter(arg.arg, annotation, required, keyword)

    parameters = [parameter(arg, k < required_count, False) for k, arg in enumerate(positional)]
    if arguments.vararg is not None or arguments.kwarg is not None:
        return None
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return parameters + [parameter(arg, default is None, True) for arg, default in pairs]


def _fact(parameters: Sequence[_Parameter], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    names = [p.name for p in parameters]
    positional = [p for p in parameters if not p.keyword]
    listed = ", ".join(names) or "none"
    for key in kwargs:
        if key not in names:
            return f"no argument {key}; there are: {listed}"
    if len(args) > len(positional):
        most = f"{len(positional)} positional argument{'s' * (len(positional) != 1)}"
        return f"takes {most}, got {len(args)}; there are: {listed}"
    values = dict(zip(names, args, strict=False))
    for key, value in kwargs.items():
        if key in values:
            return f"{key} is given twice"
        values[key] = value
    missing = [p.name for p in parameters if p.required and p.name not in values]
    if missing:
        return f"{', '.join(missing)} must be given"
    for k, p in enumerate(parameters):
        if p.name in values and (requirement := _unfit(p.annotation, values[p.name])):
            subject = f"argument {k + 1}" if re.fullmatch(r"arg\d*", p.name) else p.name
            return f"{subject} {requirement}"
    return f"the arguments do not fit: got {_types(args, kwargs)}; there are: {listed}"


def _unfit(annotation: str, value: Any) -> str:
    """What an argument must be; empty where it may be this."""
    words = re.findall(r"\w+", annotation)
    if value is None:  # which nanobind takes only where it is declared
        return "" if "None" in words else f"must be {_accepted(annotation)}, got None"
    if any(word in UNCHECKED for word in words):
        return ""
    kinds = {cls.__name__ for cls in type(value).__mro__} - {"object"}
    if "int" in words and isinstance(value, int) and not isinstance(value, bool):
        limit = 1 << 31
        return f"is out of range: {value}" if not -limit <= value < limit else ""
    if kinds & set(words) or ("float" in words and isinstance(value, int)):
        return ""
    return f"must be {_accepted(annotation)}, got {type(value).__name__}"


def _accepted(annotation: str) -> str:
    """An annotation in words: "an int or None"."""
    if (items := re.fullmatch(r"[\w.]*Iterable\[(.*)\]", annotation)) is not None:
        return f"an iterable of {_accepted(items[1])}"
    unparameterized = annotation
    while (shorter := re.sub(r"\[[^\[\]]*\]", "", unparameterized)) != unparameterized:  # parameters of types
        unparameterized = shorter
    parts = [part.strip().rsplit(".", 1)[-1] for part in unparameterized.split("|")]
    return " or ".join(WORDS.get(part, part if part == "None" else f"a {part}") for part in parts)


def _types(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    listed = [type(x).__name__ for x in args] + [f"{key}: {type(x).__name__}" for key, x in kwargs.items()]
    return ", ".join(listed) or "none"
