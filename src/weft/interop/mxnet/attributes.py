"""Attributes of a node of MXNet: texts, read as what a conversion expects; those that it does not read are errors."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from weft.base.errors import GraphError
from weft.base.typing import Any
from weft.interop.source import short

__all__ = ["Attributes"]

# What says how an operator is computed, not what.
_WITHOUT_MEANING = frozenset(
    ("workspace", "cudnn_tune", "cudnn_off", "ctx", "num_args", "cudnn_algo_verbose", "name")
)
_REQUIRED: Any = object()


class Attributes:
    """The attributes of one node. about: how errors begin, with the operator and the name of the node."""

    def __init__(self, texts: Mapping[str, str], about: str) -> None:
        self.texts, self.about = dict(texts), about
        self.read: set[str] = set()

    def fail(self, fact: str) -> GraphError:
        """The error of this node, to be raised."""
        return GraphError(f"{self.about}: {fact}")

    def require_all_read(self) -> None:
        """Raise GraphError for an attribute that the conversion did not read: it may change what is computed."""
        for key, text in self.texts.items():
            if key not in self.read and key not in _WITHOUT_MEANING and not key.startswith("__"):
                raise self.fail(f"attribute {key}={short(text)} is not supported")

    def _get(self, key: str, default: Any) -> str | None:
        self.read.add(key)
        if key in self.texts:
            return self.texts[key]
        if default is _REQUIRED:
            raise self.fail(f"attribute {key} is missing")
        return None

    def _literal(self, key: str, default: Any, kinds: Any, expected: str) -> Any:
        text = self._get(key, default)
        if text is None:
            return default
        try:
            value = ast.literal_eval(re.sub(r"(\d)L\b", r"\1", text)) if len(text) < 10_000 else text
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            value = text
        if text in ("inf", "-inf", "nan"):
            value = float(text)
        if not isinstance(value, kinds):
            raise self.fail(f"attribute {key} is {short(text)}, not {expected}")
        return value

    def text(self, key: str, default: Any = _REQUIRED) -> Any:
        """A text."""
        text = self._get(key, default)
        return default if text is None else text

    def choice(self, key: str, *accepted: str) -> str:
        """One of some texts, the first one by default."""
        text: str = self.text(key, accepted[0])
        if text not in accepted:
            raise self.fail(f"attribute {key}={short(text)} is not supported; what is: {', '.join(accepted)}")
        return text

    def flag(self, key: str, default: bool) -> bool:
        """A bool: True, False, 1, 0."""
        text = self._get(key, default)
        if text is None:
            return default
        if text.lower() not in ("true", "false", "1", "0"):
            raise self.fail(f"attribute {key} is {short(text)}, neither True nor False")
        return text.lower() in ("true", "1")

    def unset(self, key: str, default: bool = False) -> None:
        """Raise GraphError unless a flag is what it is by default."""
        if self.flag(key, default) != default:
            raise self.fail(f"attribute {key}={not default} is not supported")

    def integer(self, key: str, default: Any = _REQUIRED, allows_none: bool = False) -> Any:
        """An int, or None if that is the default or allowed."""
        kinds = (int, type(None)) if default is None or allows_none else int
        return self._literal(key, default, kinds, "an integer")

    def number(self, key: str, default: Any = _REQUIRED) -> Any:
        """A float."""
        value = self._literal(
            key, default, (int, float, type(None)) if default is None else (int, float), "a number"
        )
        return value if value is None else float(value)

    def sizes(self, key: str, default: Any = _REQUIRED, allows_none: bool = False) -> Any:
        """Ints in a tuple; of one int a tuple of it. allows_none: also None among them."""
        value = self._literal(key, default, (int, tuple, list, type(None)), "integers")
        if isinstance(value, int):
            value = (value,)
        if value is None:
            return default if default is not _REQUIRED else None
        kinds = (int, type(None)) if allows_none else int
        if not all(isinstance(n, kinds) for n in value):
            raise self.fail(f"attribute {key} is {short(value)}, not integers")
        return tuple(value)

    def dtype(self, key: str = "dtype", default: Any = _REQUIRED) -> Any:
        """The name of a dtype; the default for None."""
        text = self.text(key, default)
        return default if text in (None, "None") else text
