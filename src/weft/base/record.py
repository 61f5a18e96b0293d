"""Immutable values with named fields, as frozen dataclasses are, but not by text compiled at import.

That text takes longer to compile than the first addition of a process may take.

>>> class Span(Record):
...     start: int
...     step: int = 1
>>> Span(3), Span(start=3, step=2)
(Span(start=3, step=1), Span(start=3, step=2))
"""

from __future__ import annotations

from weft.base.typing import Any, ClassVar, dataclass_transform

__all__ = ["Record"]


@dataclass_transform(frozen_default=True, eq_default=False)
class Record:
    """Base: the annotated names of a class are its fields, in order, behind those of its base.

    What a class assigns to a field is its default. Two records are equal if they are one object; `check` may refuse.
    Raises TypeError if a field has no value, or is given twice, or does not exist.

    >>> class Part(Record):
    ...     number: int
    >>> Part()
    Traceback (most recent call last):
        ...
    TypeError: Part: number is missing; fields are number
    """

    _fields: ClassVar[tuple[str, ...]] = ()
    _names: ClassVar[frozenset[str]] = frozenset()
    _required: ClassVar[frozenset[str]] = frozenset()
    _is_checked: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        new_fields = [name for name, kind in cls.__annotations__.items() if not _of_class(kind)]
        cls._is_checked = cls.check is not Record.check
        cls._fields = (*(name for name in cls._fields if name not in new_fields), *new_fields)
        cls._names = frozenset(cls._fields)
        cls._required = frozenset(name for name in cls._fields if not hasattr(cls, name))

    def __init__(self, *values: Any, **keywords: Any) -> None:
        fields = vars(self)  # what is not given is found in the class
        fields.update(zip(self._fields, values, strict=False), **keywords)
        if (
            len(fields) != len(values) + len(keywords)
            or not fields.keys() <= self._names
            or not fields.keys() >= self._required
        ):
            raise self._refused(values, keywords)
        if self._is_checked:
            self.check()

    def replaced(self, **changes: Any) -> Any:
        """The same with other values for some fields.

        >>> class Step(Record):
        ...     size: int
        ...     count: int = 1
        >>> Step(3).replaced(count=2)
        Step(size=3, count=2)
        """
        return type(self)(**{**vars(self), **changes})

    def _refused(self, values: tuple[Any, ...], keywords: dict[str, Any]) -> TypeError:
        fields = self._fields
        facts = [
            *([f"takes {len(fields)} values, got {len(values)}"] if len(values) > len(fields) else []),
            *(f"has no {name}" for name in keywords if name not in fields),
            *(f"{name} is given twice" for name in fields[: len(values)] if name in keywords),
            *(f"{name} is missing" for name in sorted(self._required - vars(self).keys())),
        ]
        return TypeError(f"{type(self).__name__}: {facts[0]}; fields are {', '.join(fields)}")

    def check(self) -> None:
        """Raises ValueError for fields that cannot be; the default accepts all."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: cannot set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: cannot delete {name}")

    def __repr__(self) -> str:
        text = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{type(self).__name__}({text})"


def _of_class(annotation: Any) -> bool:
    """Whether it is ClassVar or ClassVar[...], as text or evaluated."""
    return str(annotation).partition("[")[0].rpartition(".")[2] == "ClassVar"
