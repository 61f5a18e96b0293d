"""Finds which names a code object reads, and as what: globals, attributes, imports, texts.

Instructions are read for two refinements only: whether a name is a global or an attribute, and whether an attribute is
loaded just to be incremented. Their order is not interpreted, and one that is not known counts as every kind of use.
"""

from __future__ import annotations

import dis
import functools
from types import CodeType
from typing import NamedTuple

__all__ = ["Names", "names_in"]


class Names(NamedTuple):
    """What a code object reads by names."""

    globals: frozenset[str]
    attributes: frozenset[str]
    counted: frozenset[str]  # attributes that are read only to be incremented
    imports: frozenset[str]
    texts: frozenset[str]
    matches: bool  # whether it takes attributes by the order that a class gives them
    computes_texts: bool


_STORES = frozenset(
    ["STORE_GLOBAL", "STORE_NAME", "STORE_ATTR", "DELETE_GLOBAL", "DELETE_NAME", "DELETE_ATTR", "IMPORT_NAME"]
)
_NO_GLOBAL = _STORES | {"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"}
_NO_ATTRIBUTE = _STORES | {"LOAD_GLOBAL", "LOAD_NAME"}


_METHODS_OF_TEXTS = frozenset(name for name in vars(str) if not name.startswith("__"))


@functools.lru_cache(4096)
def names_in(code: CodeType) -> Names:
    """The names in a code object. An instruction that is not known counts as every kind of use."""
    global_names, attributes, counted, stored, imports, found = set(), set(), set(), set(), set(), set()
    matches, before, operations = "MATCH_CLASS" not in dis.opmap, "", set()
    for instruction in dis.get_instructions(code):
        operation, name = instruction.opname, instruction.argval
        if instruction.opcode in dis.hasname and isinstance(name, str):
            found.add(name)
            if operation not in _NO_GLOBAL:
                global_names.add(name)
            if operation == "LOAD_ATTR" and before == "COPY":
                counted.add(name)
            elif operation not in _NO_ATTRIBUTE:
                attributes.add(name)
            if operation == "STORE_ATTR":
                stored.add(name)
            elif operation == "IMPORT_NAME":
                imports.add(name)
        matches |= operation == "MATCH_CLASS"
        before = operation
        operations.add(operation)
    unseen = set(code.co_names) - found
    attributes |= unseen | (counted - stored)
    texts = {x for x in code.co_consts if isinstance(x, str)}
    in_tuples = {x for each in code.co_consts if isinstance(each, tuple) for x in each if isinstance(x, str)}
    if matches:
        attributes |= in_tuples
    return Names(
        frozenset(global_names | unseen),
        frozenset(attributes),
        frozenset(counted - attributes),
        frozenset(imports),
        frozenset(texts | in_tuples),
        matches,
        any(operation.startswith(("FORMAT", "BUILD_STRING")) for operation in operations)
        or ("BINARY_OP" in operations and bool(texts - {*code.co_consts[:1]}))  # a docstring is the first one
        or not _METHODS_OF_TEXTS.isdisjoint(attributes),
    )
