"""Rules of dtypes: the dtypes of an operator's outputs by those of its inputs, independent of shapes.

    x: float, target: int|float, weight: float -> x

On the left the inputs that take certain kinds only: bool, int, float, number (int or float), several joined by "|", the
likely one first. On the right a term for each output, the last one for all further outputs: the name of an input, a
dtype, an attribute (``dtype or x``: x's where it is None), ``promote`` of all inputs or ``promote(q k)`` of some,
``each`` for the inputs' own, or a method of the operator that is called with the inputs' types, ``result()``.

>>> from weft.base.dtype import float32, int64
>>> from weft.ops.registry import get
>>> x, indices = TensorType((), float32), TensorType((), int64)
>>> get("topk")(k=1).infer_dtypes(x), get("take")().infer_dtypes(x, indices)
((float32, int64), (float32,))
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from weft.base.dtype import DType, as_dtype
from weft.base.errors import DTypeError
from weft.base.typing import Any
from weft.ops.types import TensorType, promote

__all__ = ["WORDS", "dtype_of", "is_of", "solve_dtypes", "words_of"]

WORDS = {
    "bool": "booleans",
    "int": "integers",
    "float": "floating-point types",
    "number": "numbers",
    "complex": "complex types",
}


@functools.lru_cache(maxsize=256)
def _parsed(rule: str) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """The kinds by the input's name, and the terms of the outputs."""
    left, _, right = rule.partition("->")
    pairs = (part.partition(":") for part in left.split(",") if part.strip())
    kinds = {name.strip(): tuple(kind.strip() for kind in text.split("|")) for name, _, text in pairs}
    if any(kind not in WORDS for accepted in kinds.values() for kind in accepted) or not right.strip():
        raise ValueError(f"no rule of dtypes: {rule!r}")
    return kinds, tuple(term.strip() for term in right.split(","))


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


def _names(op: Any, count: int) -> list[str]:
    """The names of so many inputs; those of a variadic one are all called the same."""
    names = [spec.name for spec in op.inputs]
    return [names[min(k, len(names) - 1)] for k in range(count)]


def kinds_by_dtype_rule(op: Any, index: int) -> tuple[str, ...]:
    """The kinds of dtypes that an input takes by the operator's dtype_rule, the likely one first; none: all."""
    return _parsed(op.dtype_rule)[0].get(_names(op, index + 1)[index], ()) if op.dtype_rule else ()


def solve_dtypes(op: Any, inputs: Sequence[TensorType | None]) -> tuple[DType, ...]:
    """The dtypes of an operator's outputs by its rule; of the inputs' types only dtypes and weakness are read.

    Raises DTypeError for an input that the rule does not take.
    """
    kinds, terms = _parsed(op.dtype_rule)
    types: dict[str, TensorType] = {}
    for name, t in zip(_names(op, len(inputs)), inputs, strict=True):
        if t is None:
            continue
        if name in kinds and not any(is_of(t.dtype, kind) for kind in kinds[name]):
            accepted = " or ".join(WORDS[kind] for kind in kinds[name])
            raise op.fail(DTypeError, f"{name} takes {accepted}", **{name: t})
        types.setdefault(name, t)
    present = [t for t in inputs if t is not None]
    if terms == ("each",):
        return tuple(t.dtype for t in present)
    return tuple(dtype_of(term, op, present, types) for term in terms)


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
