"""Dtypes in rules of operators (weft.ops.rules): kinds of dtypes, and the terms of outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.base.dtype import DType, as_dtype
from weft.base.errors import DTypeError
from weft.base.typing import Any
from weft.ops.types import TensorType, promote

__all__ = ["WORDS", "dtype_of", "is_of", "words_of"]

WORDS = {
    "bool": "booleans",
    "int": "integers",
    "float": "floating-point types",
    "number": "numbers",
    "complex": "complex types",
}


def is_of(dtype: DType, kind: str) -> bool:
    """Whether a dtype is of a kind of rules, or the one of this name."""
    if kind not in WORDS:
        return dtype.name == kind
    if kind == "float":
        return dtype.is_floating
    if kind == "complex":
        return dtype.is_complex
    if kind == "int":
        return dtype.is_integer
    return dtype.kind == "bool" if kind == "bool" else dtype.is_floating or dtype.is_integer


def words_of(kinds: Sequence[str]) -> str:
    """Kinds in the words of errors.

    >>> words_of(("int", "float"))
    'integers or floating-point types'
    """
    return " or ".join(WORDS.get(kind, kind) for kind in kinds)


def dtype_of(term: str, op: Any, present: Sequence[TensorType], types: Mapping[str, TensorType]) -> DType:
    """What a rule's term of an output is for inputs of these types, all that are present and by name."""
    if term in types:
        return types[term].dtype
    if term == "promote":
        return promote(*present)
    wanted, to, kinds = term.partition(" to ")
    if to:
        dtype = dtype_of(wanted, op, present, types)
        if not any(is_of(dtype, kind) for kind in kinds.split("|")):
            raise op.fail(DTypeError, f"takes {words_of(kinds.split('|'))}", **types)
        return dtype
    function, bracket, names = term.removesuffix(")").partition("(")
    if function == "promote":
        return promote(*(types[name] for name in names.split() if name in types))
    if function == "accumulation":
        return dtype_of(names, op, present, types).accumulation
    if bracket:
        result: DType = getattr(op, function)(*present)
        return result
    attribute, _, otherwise = term.partition(" or ")
    value = getattr(op, attribute, None)
    if value is None and otherwise:
        return dtype_of(otherwise, op, present, types)
    return value if isinstance(value, DType) else as_dtype(term)
