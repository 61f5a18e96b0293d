"""Pickles read without running them: plain containers, and what a table of known names rebuilds.

A pickle is a program for a stack machine, whose instruction REDUCE calls any function that the pickle names. This
machine has the instructions that data needs; a name that is not in its table is an error, and so are instructions that
would import, copy without bound, or allocate what a length in the file claims.
Source: CPython, Lib/pickletools.py, which documents the instructions.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping

from weft.base.errors import DTypeError
from weft.base.typing import Any
from weft.interop.source import FileFormatError, short

__all__ = ["Name", "Pickled", "Rebuilt", "read_pickle", "replaced"]

MAX_DEPTH = 200  # of containers in each other

_MARK = object()


class Rebuilt:
    """Base of what names in a pickle become: an object that may take a state (BUILD)."""

    def set_state(self, state: Any) -> None:
        """Take the state of the object; the base refuses any."""
        raise ValueError(f"{type(self).__name__} has a state")


class Dictionary(OrderedDict[Any, Any]):
    """An OrderedDict, whose attributes (such as _metadata) are not read."""


Rebuild = Callable[..., Any]


class Name:
    """A function or class that the pickle refers to: what REDUCE and NEWOBJ call."""

    def __init__(self, text: str, call: Rebuild) -> None:
        self.text, self.call = text, call

    def __repr__(self) -> str:
        return self.text


class Pickled:
    """The machine on some bytes. names: "module.name" -> a function, or a constant; at: where the pickle begins.

    persistent: called with what the pickle stores in the place of an object of the writer's.
    """

    def __init__(
        self,
        data: Any,
        where: str,
        names: Mapping[str, Any],
        persistent: Callable[[Any], Any] | None = None,
        at: int = 0,
    ) -> None:
        self.data, self.where, self.names, self.persistent = data, where, names, persistent
        self.at, self.begin = at, at
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.copied = 0  # elements that calls copied, so that a short pickle cannot make them again and again

    def fail(self, fact: str) -> FileFormatError:
        """The error of this pickle, to be raised."""
        return FileFormatError(f"{self.where}: pickle, byte {self.at}: {fact}")

    def load(self) -> Any:
        """The object; `at` is behind the pickle then. Raises FileFormatError."""
        try:
            while True:
                code = self.take(1)[0]
                if code == 0x2E:  # STOP
                    return self.pop()
                action = _ACTIONS.get(code)
                if action is None:
                    raise self.fail(f"instruction {bytes([code])!r} is not one of data")
                action(self)
        except (FileFormatError, DTypeError):
            raise
        except (
            ValueError,
            TypeError,
            KeyError,
            IndexError,
            AttributeError,
            OverflowError,
            struct.error,
        ) as error:
            raise self.fail(f"{type(error).__name__}: {short(str(error))}") from None

    # ---- Bytes

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if count < 0 or self.at + count > len(self.data):
            raise self.fail(f"{short(count)} bytes of {len(self.data) - self.at}")
        self.at += count
        return bytes(self.data[self.at - count : self.at])

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def line(self) -> bytes:
        """The next bytes up to a line feed, which is not in the result."""
        end = self.at
        while end < len(self.data) and self.data[end] != 0x0A:
            end += 1
            if end - self.at > 100_000:
                raise self.fail("a line of more than 100000 bytes")
        line = self.take(end - self.at)
        self.take(1)
        return line

    # ---- The stack

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise self.fail("the stack is empty")
        return self.stack.pop()

    def top(self) -> Any:
        value = self.pop()
        self.push(value)
        return value

    def items(self) -> list[Any]:
        """What is on the stack above the last mark, which goes, too."""
        at = len(self.stack) - 1
        while at >= 0 and self.stack[at] is not _MARK:
            at -= 1
        if at < 0:
            raise self.fail("no mark on the stack")
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def count_copied(self, count: int) -> None:
        """Raise FileFormatError if calls have copied more elements than the pickle has bytes, many times over."""
        self.copied += count
        if self.copied > 4 * len(self.data) + 1000:
            raise self.fail(f"calls copy {self.copied} elements")

    # ---- Objects

    def find(self, module: str, name: str) -> None:
        text = f"{module}.{name}"
        if text not in self.names:
            raise self.fail(f"refers to {short(text)}, which is not in the list of what weft rebuilds")
        known = self.names[text]
        self.push(Name(text, known) if callable(known) else known)

    def call(self, function: Any, arguments: Any) -> None:
        if not isinstance(function, Name) or not isinstance(arguments, tuple):
            raise self.fail(f"calls {short(function)}")
        for argument in arguments:
            if isinstance(argument, list | tuple | str | bytes | bytearray):
                self.count_copied(len(argument))
        self.push(function.call(*arguments))

    def build(self) -> None:
        state, value = self.pop(), self.top()
        if isinstance(value, Rebuilt):
            value.set_state(state)
        elif not isinstance(value, Dictionary):
            raise self.fail(f"{type(value).__name__} gets a state")

    def set_items(self, items: list[Any]) -> None:
        target = self.top()
        if not isinstance(target, dict) or len(items) % 2:
            raise self.fail(f"items for a {type(target).__name__}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[self.key(key)] = value

    def key(self, key: Any) -> Any:
        """A key that is cheap to hash."""
        parts = key if isinstance(key, tuple) else (key,)
        if not all(part is None or isinstance(part, str | bytes | int | float) for part in parts):
            raise self.fail(f"a key of type {type(key).__name__}")
        return key

    def append(self, items: list[Any]) -> None:
        target = self.top()
        if type(target) is not list:
            raise self.fail(f"elements for a {type(target).__name__}")
        target.extend(items)

    def remember(self, index: int) -> None:
        self.memo[index] = self.top()

    def recall(self, index: int) -> None:
        if index not in self.memo:
            raise self.fail(f"object {index} is not remembered")
        self.push(self.memo[index])

    def persist(self, key: Any) -> None:
        if self.persistent is None:
            raise self.fail("refers to an object outside of the file")
        self.push(self.persistent(key))

    def text(self, count: int, encoding: str = "utf-8") -> None:
        self.push(self.take(count).decode(encoding, "surrogatepass"))

    def pair(self) -> None:
        value, key = self.pop(), self.pop()
        self.set_items([key, value])

    def names_on_stack(self) -> None:
        name, module = self.pop(), self.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise self.fail("a name that is no text")
        self.find(module, name)

    def tuple_of(self, count: int) -> None:
        items = [self.pop() for _ in range(count)]
        self.push(tuple(reversed(items)))

    def call_on_stack(self) -> None:
        arguments, function = self.pop(), self.pop()
        self.call(function, arguments)

    def integer_line(self) -> int | bool:
        line = self.line()
        if line in (b"00", b"01"):
            return line == b"01"
        return int(line.rstrip(b"L"))


Action = Callable[[Pickled], Any]


def _dictionary(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2], strict=True))


def _checked_dictionary(machine: Pickled) -> None:
    items = machine.items()
    for key in items[::2]:
        machine.key(key)
    machine.push(_dictionary(items))


def _protocol(machine: Pickled) -> None:
    if (version := machine.number("B")) > 5:
        raise machine.fail(f"protocol {version} is newer than 5")


# Written as protocol version -> instructions; a name as pickletools has it.
_ACTIONS: dict[int, Action] = {
    code[0]: action
    for code, action in {
        b"\x80": _protocol,
        b"\x95": lambda m: m.number("Q"),  # FRAME
        b"(": lambda m: m.push(_MARK),
        b"0": lambda m: m.pop(),
        b"1": lambda m: m.items(),  # POP_MARK
        b"2": lambda m: m.push(m.top()),  # DUP
        b"N": lambda m: m.push(None),
        b"\x88": lambda m: m.push(True),
        b"\x89": lambda m: m.push(False),
        b"I": lambda m: m.push(m.integer_line()),
        b"L": lambda m: m.push(m.integer_line()),
        b"J": lambda m: m.push(m.number("i")),
        b"K": lambda m: m.push(m.number("B")),
        b"M": lambda m: m.push(m.number("H")),
        b"\x8a": lambda m: m.push(int.from_bytes(m.take(m.number("B")), "little", signed=True)),
        b"F": lambda m: m.push(float(m.line())),
        b"G": lambda m: m.push(struct.unpack(">d", m.take(8))[0]),
        b"T": lambda m: m.text(m.number("i"), "latin-1"),
        b"U": lambda m: m.text(m.number("B"), "latin-1"),
        b"V": lambda m: m.push(m.line().decode("raw-unicode-escape")),
        b"X": lambda m: m.text(m.number("I")),
        b"\x8c": lambda m: m.text(m.number("B")),
        b"\x8d": lambda m: m.text(m.number("Q")),
        b"B": lambda m: m.push(m.take(m.number("I"))),
        b"C": lambda m: m.push(m.take(m.number("B"))),
        b"\x8e": lambda m: m.push(m.take(m.number("Q"))),
        b"\x96": lambda m: m.push(bytearray(m.take(m.number("Q")))),
        b"]": lambda m: m.push([]),
        b"l": lambda m: m.push(m.items()),
        b"a": lambda m: m.append([m.pop()]),
        b"e": lambda m: m.append(m.items()),
        b")": lambda m: m.push(()),
        b"t": lambda m: m.push(tuple(m.items())),
        b"\x85": lambda m: m.tuple_of(1),
        b"\x86": lambda m: m.tuple_of(2),
        b"\x87": lambda m: m.tuple_of(3),
        b"}": lambda m: m.push({}),
        b"d": _checked_dictionary,
        b"s": Pickled.pair,
        b"u": lambda m: m.set_items(m.items()),
        b"c": lambda m: m.find(m.line().decode(), m.line().decode()),
        b"\x93": Pickled.names_on_stack,
        b"R": Pickled.call_on_stack,
        b"\x81": Pickled.call_on_stack,  # NEWOBJ
        b"b": Pickled.build,
        b"p": lambda m: m.remember(int(m.line())),
        b"q": lambda m: m.remember(m.number("B")),
        b"r": lambda m: m.remember(m.number("I")),
        b"\x94": lambda m: m.remember(len(m.memo)),
        b"g": lambda m: m.recall(int(m.line())),
        b"h": lambda m: m.recall(m.number("B")),
        b"j": lambda m: m.recall(m.number("I")),
        b"Q": lambda m: m.persist(m.pop()),
    }.items()
}


def ordered(*arguments: Any) -> Dictionary:
    """What collections.OrderedDict becomes: of pairs, as Python 2 wrote it, or empty."""
    if not arguments:
        return Dictionary()
    (pairs,) = arguments
    for key, _ in pairs:
        if not isinstance(key, str | bytes | int | float):
            raise ValueError(f"a key of type {type(key).__name__}")
    return Dictionary(pairs)


def encode(text: str, encoding: str) -> bytes:
    """What _codecs.encode becomes, by which protocol 2 stores bytes."""
    if encoding not in ("latin1", "latin-1"):
        raise ValueError(f"encoding {encoding!r}")
    return text.encode("latin-1")


PLAIN: dict[str, Any] = {
    "collections.OrderedDict": ordered,
    "_codecs.encode": encode,
    "__builtin__.bytearray": lambda *a: bytearray(_bytes_of(*a)),
    "builtins.bytearray": lambda *a: bytearray(_bytes_of(*a)),
    "__builtin__.set": lambda *a: list(*a),
    "builtins.set": lambda *a: list(*a),
}


def _bytes_of(*arguments: Any) -> bytes:
    match arguments:
        case ():
            return b""
        case (bytes() | bytearray() as data,):
            return bytes(data)
        case (str() as text, "latin-1" | "latin1"):
            return text.encode("latin-1")
    raise ValueError("bytearray of something else")


def read_pickle(
    data: Any,
    where: str,
    names: Mapping[str, Any],
    persistent: Callable[[Any], Any] | None = None,
    at: int = 0,
) -> tuple[Any, int]:
    """The object that a pickle holds, with Rebuilt objects in it, and where the next byte is. Raises FileFormatError.

    >>> import pickle
    >>> read_pickle(pickle.dumps({"a": [1, (2.5, None)]}), "x", {})[0]
    {'a': [1, (2.5, None)]}
    >>> read_pickle(pickle.dumps(print), "x", {})
    Traceback (most recent call last):
        ...
    weft.arrays.serialization.FileFormatError: x: pickle, byte 31: refers to 'builtins.print', which is not in the \
list of what weft rebuilds
    """
    machine = Pickled(data, where, {**PLAIN, **names}, persistent, at)
    return machine.load(), machine.at


def replaced(value: Any, replace: Callable[[Rebuilt], Any], where: str) -> Any:
    """The object with its Rebuilt parts replaced. Shared parts stay shared; raises FileFormatError for cycles."""
    results: dict[int, Any] = {}
    open_ids: set[int] = set()

    def visit(part: Any, depth: int) -> Any:
        if isinstance(part, Name):
            raise FileFormatError(f"{where}: holds the function {part.text} itself")
        if hasattr(part, "_fields"):  # of those that read tensors: a storage, or the type of one
            raise FileFormatError(f"{where}: holds a {type(part).__name__} outside of a tensor")
        if not isinstance(part, Rebuilt | dict | list | tuple):
            return part
        if id(part) in results:
            return results[id(part)]
        if id(part) in open_ids or depth > MAX_DEPTH:
            raise FileFormatError(
                f"{where}: containers are in each other more than {MAX_DEPTH} deep, or in themselves"
            )
        open_ids.add(id(part))
        result: Any
        if isinstance(part, Rebuilt):
            result = replace(part)
        elif isinstance(part, dict):
            result = {key: visit(each, depth + 1) for key, each in part.items()}
        else:
            result = type(part)([visit(each, depth + 1) for each in part])
        open_ids.discard(id(part))
        results[id(part)] = result
        return result

    return visit(value, 0)
