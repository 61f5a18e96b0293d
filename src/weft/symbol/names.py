"""Names and attributes that symbols get by themselves: NameScope and AttrScope.

>>> import weft.symbol as sym
>>> import weft.functional as F
>>> with sym.NameScope("encoder_"), sym.AttrScope(stage="1"):
...     y = F.relu(sym.var("x"))
>>> y.name, y.attr("stage")
('encoder_relu0', '1')
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar, Token

from weft.base import process

__all__ = ["AttrScope", "NameScope", "attributes", "prefix", "scoped_name"]


class _Counter:
    """Counts the names of each kind, which begin with `begin`."""

    def __init__(self, begin: str = "") -> None:
        self.begin = begin
        self._next: dict[str, int] = {}
        self._lock = process.lock_of(self)

    def take(self, kind: str) -> int:
        with self._lock:
            number = self._next.get(kind, 0)
            self._next[kind] = number + 1
            return number


_everywhere = _Counter()
_scope: ContextVar[tuple[str, _Counter]] = ContextVar("weft_names", default=("", _everywhere))
_attrs: ContextVar[Mapping[str, str]] = ContextVar("weft_attributes", default={})  # noqa: B039 - never changed


class NameScope:
    """A prefix for the names of operators' symbols, given or not; numbers start at 0 in each scope. Nests.

    Variables made by hand keep their names, so that scopes can share them. automatic: a prefix that only names that are
    not given get. Raises TypeError for anything but a text.

    >>> import weft.symbol as sym
    >>> with NameScope("a_"), NameScope("b_"):
    ...     sym.relu(sym.var("x"), name="y").name
    'a_b_y'
    """

    def __init__(self, prefix: str = "", automatic: str = "") -> None:
        for text in (prefix, automatic):
            if not isinstance(text, str):
                raise TypeError(f"NameScope: a prefix is a text, got {text!r}")
        self.prefix = prefix
        self._counter = _Counter(automatic)
        self._tokens: list[Token[tuple[str, _Counter]]] = []

    def __enter__(self) -> NameScope:
        self._tokens.append(_scope.set((_scope.get()[0] + self.prefix, self._counter)))
        return self

    def __exit__(self, *_: object) -> None:
        _scope.reset(self._tokens.pop())


class AttrScope:
    """Attributes for all symbols made inside; inner scopes and symbols' own come first.

    Raises TypeError for values that are not texts.
    """

    def __init__(self, **attrs: str) -> None:
        self.attrs = checked(attrs)
        self._tokens: list[Token[Mapping[str, str]]] = []

    def __enter__(self) -> AttrScope:
        self._tokens.append(_attrs.set({**_attrs.get(), **self.attrs}))
        return self

    def __exit__(self, *_: object) -> None:
        _attrs.reset(self._tokens.pop())


def checked(attrs: Mapping[str, object]) -> dict[str, str]:
    """The attributes, if all are texts. Raises TypeError."""
    for key, value in attrs.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"symbol: attributes are texts, got {key!r}: {value!r}")
    return {str(key): str(value) for key, value in attrs.items()}


def attributes(attrs: Mapping[str, object] | None) -> dict[str, str]:
    """A new symbol's attributes: those of the scopes, and its own."""
    return {**_attrs.get(), **checked(attrs or {})}


def prefix() -> str:
    """The prefix that the scopes put before names."""
    return _scope.get()[0]


def scoped_name(name: str | None, kind: str) -> str:
    """The given name with the scopes' prefixes, or the next one of its kind, such as linear0.

    Raises TypeError for anything but a text that is not empty.
    """
    prefix, counter = _scope.get()
    if name is None:
        return f"{prefix}{counter.begin}{kind}{counter.take(kind)}"
    if not isinstance(name, str) or not name:
        raise TypeError(f"symbol: a name is a text that is not empty, got {name!r}")
    return prefix + name
