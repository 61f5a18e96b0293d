"""Attributes of operators: their types, as annotations write them, and what makes values of these types.

>>> Attribute("axis", "int | None", None).convert(1.5)
Traceback (most recent call last):
    ...
TypeError
"""

from __future__ import annotations

from _weakrefset import WeakSet  # weakref itself takes a millisecond
from collections.abc import Callable, Mapping
from types import GenericAlias

from weft.base.device import Device, as_device
from weft.base.dtype import as_dtype
from weft.base.typing import Any, ClassVar
from weft.ops.sizes import Size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated, TypeVar

    T = TypeVar("T")
    C = TypeVar("C", bound=type)
    Runtime = Annotated[T, "given when it runs"]
else:

    class Runtime:
        """Marks an attribute given to the kernel when it runs, and no part of a plan's key: ``p: Runtime[float]``."""

        __class_getitem__ = classmethod(GenericAlias)


__all__ = [
    "Attribute",
    "Runtime",
    "annotation_text",
    "attribute_type",
    "converter_of",
    "declared",
    "scope_of",
]

_NOWHERE: Mapping[str, Any] = {}


class Attribute:
    """One attribute: its name, what it accepts, its default (REQUIRED: none), and whether it is a Runtime one.

    scope: what names mean where the annotation was written.
    """

    __slots__ = ("accepts", "convert", "default", "name", "runtime")

    REQUIRED: ClassVar[Any] = object()

    def __init__(self, name: str, annotation: str, default: Any, scope: Mapping[str, Any] = _NOWHERE) -> None:
        self.name, self.default, self.runtime = name, default, annotation.startswith("Runtime[")
        self.accepts = annotation[len("Runtime[") : -1] if self.runtime else annotation
        try:
            self.convert: Callable[[Any], Any] = converter_of(self.accepts, scope)
        except TypeError as problem:
            raise TypeError(f"attribute {name}: {problem}") from None

    def __repr__(self) -> str:
        default = "" if self.default is self.REQUIRED else f" = {self.default!r}"
        return f"{self.name}: {self.accepts}{default}"


def annotation_text(annotation: Any) -> str:
    """An annotation as text, whether it was evaluated or not, without the modules of its names."""
    if not isinstance(annotation, str):
        import inspect

        annotation = inspect.formatannotation(annotation)
    if "." in annotation.replace("...", ""):
        import re

        annotation = re.sub(r"\b(?:(?:[A-Za-z_]\w*|<locals>)\.)+(?=\w)", "", annotation)
    return str(annotation)


def scope_of(annotation: Any, scope: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the names in an annotation mean: one that was evaluated has the classes in it."""
    if isinstance(annotation, str):
        return scope
    classes = {annotation.__name__: annotation} if isinstance(annotation, type) else {}
    for part in getattr(annotation, "__args__", ()):
        classes.update(scope_of(part, {}))
    return classes


def _integer(value: Any) -> Any:
    if isinstance(value, Size) and value.is_dynamic:
        return value
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise TypeError
    return int(value.__index__())


def _number(value: Any) -> float | int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return float(value)  # numpy.float32 and the like
    return value


def _device(value: Any) -> Device:
    if value is None:  # the default device may change from call to call
        raise TypeError
    return as_device(value)


def _exactly(kind: type) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError
        return value

    return convert


def _several(convert: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    def convert_all(value: Any) -> tuple[Any, ...]:
        if isinstance(value, str | bytes):
            raise TypeError
        return tuple([convert(item) for item in value])

    return convert_all


def _union(converters: list[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    *first, last = converters

    def convert(value: Any) -> Any:
        for converter in first:
            try:
                return converter(value)
            except TypeError:
                continue
        return last(value)

    return convert


def _one_of(choices: tuple[Any, ...]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if not any(value == choice and type(value) is type(choice) for choice in choices):
            raise TypeError
        return value

    return convert


def _none(value: Any) -> None:
    if value is not None:
        raise TypeError


# The types of attributes: these names, those of attribute_type, ``tuple[T, ...]`` of one, ``Literal[...]`` of choices,
# and ``T | U``, of which the first that takes the value converts it.
_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "int": _integer,
    "float": _number,
    "bool": _exactly(bool),
    "str": _exactly(str),
    "DType": as_dtype,
    "Device": _device,
    "None": _none,
    "object": lambda value: value,
}


def _alternatives(text: str) -> list[str]:
    """The parts of a union, without those inside of brackets: "int | tuple[int | str, ...]" has two."""
    parts, depth = [""], 0
    for c in text:
        depth += (c == "[") - (c == "]")
        if c == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts]


def converter_of(text: str, scope: Mapping[str, Any] = _NOWHERE) -> Callable[[Any], Any]:
    """What makes a value of a type that is written as annotations write it; raises TypeError if there is none.

    scope: what names mean there. A name that it does not have is that of the last class with @attribute_type.

    >>> converter_of("int | tuple[int, ...]")([1, 2]), converter_of("tuple[tuple[int, ...], ...]")([[1], []])
    ((1, 2), ((1,), ()))
    >>> converter_of("list[int]")
    Traceback (most recent call last):
        ...
    TypeError: 'list[int]' is not an attribute type; accepted are int, float, bool, str, DType, Device, None, object, \
classes with @attribute_type, tuple[T, ...], Literal[...] and T | U
    >>> converter_of("Literal['sum', 'mean']")("mean")
    'mean'
    """
    named = scope.get(text) if text in declared else None
    if isinstance(named, type) and named in _declared_classes:
        return _exactly(named)
    if text in declared:
        return _exactly(declared[text])
    converter = _CONVERTERS.get(text) or _composed.get(text)
    if converter is None:
        parts = _alternatives(text)
        if len(parts) > 1:  # None first: other converters need not look at it
            parts.sort(key=lambda part: part != "None")
            converter = _union([converter_of(part, scope) for part in parts])
        elif text.startswith("tuple[") and text.endswith(", ...]"):
            converter = _several(converter_of(text[len("tuple[") : -len(", ...]")], scope))
        elif text.startswith("Literal[") and text.endswith("]"):
            import ast  # few operators have choices

            converter = _one_of(ast.literal_eval(f"({text[len('Literal[') : -1]},)"))
        else:
            raise TypeError(
                f"{text!r} is not an attribute type; accepted are {', '.join(_CONVERTERS)}, "
                "classes with @attribute_type, tuple[T, ...], Literal[...] and T | U"
            )
        if not any(name in text for name in declared):  # the same in every scope
            _composed[text] = converter
    return converter


_composed: dict[str, Callable[[Any], Any]] = {}
declared: dict[str, type] = {}  # the last class of each name
_declared_classes: WeakSet[Any] = WeakSet()


def attribute_type(cls: C) -> C:
    """Class decorator: attributes may be of this type, under its name. Its values are frozen, hashed and compared.

    An annotation means the class that its name has where the operator is defined, when it is defined.
    """
    declared[cls.__name__] = cls
    _declared_classes.add(cls)
    return cls
