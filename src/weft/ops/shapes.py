"""Shapes of which only a part is known, and rules that work in both directions.

A rule says which sizes of an operator's operands agree:

    x[*b,k], weight[out_features,k], bias[out_features] -> y[*b,out_features]

A name stands for a size, ``*name`` for any number of them. A size may be a product (``groups*k``), a number, or
several of these joined by "=". Names of attributes have their values, where those are not None. Operands that a rule
does not name, and dimensions of operands of unknown rank, are left as they are.

>>> known = {"x": (32, None, 784), "weight": None, "bias": None, "y": None}
>>> rule = "x[*b,k], weight[n,k], bias[n] -> y[*b,n]"
>>> solve(rule, {"n": 10}, known)
{'x': (32, None, 784), 'weight': (10, 784), 'bias': (10,), 'y': (32, None, 10)}
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from weft.base.typing import Any

__all__ = [
    "Contradiction",
    "Partial",
    "broadcast",
    "is_dense",
    "merge",
    "row_major",
    "shown",
    "sizes",
    "solve",
    "split_last",
]

Partial = tuple[int | None, ...] | None  # None: not even the rank is known; a None within: that size is not


class Contradiction(Exception):  # becomes a ShapeError of the operator
    """Two sizes that should be one differ."""


def shown(shape: Partial) -> str:
    """As errors have it.

    >>> shown((2, None)), shown(None)
    ('[2,?]', '[...]')
    """
    return "[...]" if shape is None else f"[{','.join('?' if n is None else str(n) for n in shape)}]"


def merge(a: Partial, b: Partial) -> Partial:
    """What is known from either. Raises Contradiction if they differ.

    >>> merge((2, None), (None, 3)), merge(None, (1,))
    ((2, 3), (1,))
    """
    if a is None or b is None:
        return b if a is None else a
    if len(a) != len(b):
        raise Contradiction(f"{len(a)} and {len(b)} dimensions, {shown(a)} and {shown(b)}")
    for n, m in zip(a, b, strict=True):
        if n is not None and m is not None and n != m:
            raise Contradiction(f"{n} != {m}, {shown(a)} and {shown(b)}")
    return tuple(m if n is None else n for n, m in zip(a, b, strict=True))


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements fill their memory without gaps, in whatever order of the dimensions.

    >>> is_dense((2, 3), (1, 2)), is_dense((2, 3), (0, 1)), is_dense((2, 3), (4, 1))
    (True, False, False)
    """
    step = 1
    for stride, n in sorted((s, n) for n, s in zip(shape, strides, strict=True) if n != 1):
        if stride != step:
            return False
        step *= n
    return True


def is_distinct(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether no two indices mean one element, as far as strides tell. Sizes not known to be 1 count as more than 1.

    It is so where each stride is greater than the reach of all smaller ones together, as in what is sliced and permuted
    of a row-major array.

    >>> [is_distinct(shape, strides) for shape, strides in (((2, 3), (1, 2)), ((2, 2), (2, 3)), ((2, 3), (2, 1)))]
    [True, True, False]
    """
    spans = [(n, s if s >= 0 else -s) for n, s in zip(shape, strides, strict=True)]
    several = [span for span in spans if not (isinstance(span[0], int) and span[0] == 1)]
    reach: Any = 0
    for n, s in sorted(several, key=lambda span: span[1]):
        if s <= reach:
            return False
        reach = reach + s * (n - 1)
    return True


def row_major(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Strides of a contiguous array, in elements.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    strides: list[Any] = []
    step: Any = 1
    for n in reversed(shape):
        strides.append(step)
        step = step * (max(n, 1) if isinstance(n, int) else n)
    return tuple(reversed(strides))


def split_last(shape: tuple[int | None, ...], count: int) -> tuple[Partial, tuple[int | None, ...]]:
    """A shape without its last sizes, and those. Raises Contradiction if it has fewer.

    >>> split_last((2, 3, None), 1)
    ((2, 3), (None,))
    """
    if len(shape) < count:
        raise Contradiction(f"{shown(shape)} has fewer than {count} dimensions")
    return shape[: len(shape) - count], shape[len(shape) - count :]


def sizes(prefix: str, count: int) -> str:
    """Names of several sizes in a rule.

    >>> sizes("k", 2)
    'k0,k1'
    """
    return ",".join(f"{prefix}{k}" for k in range(count))


Product = tuple[str | int, ...]
Dimension = str | tuple[Product, ...]  # "*name", or equal products


@functools.lru_cache(maxsize=512)
def _parsed(rule: str) -> tuple[tuple[str, tuple[Dimension, ...]], ...]:
    """The operands of a rule, inputs and outputs alike, with their dimensions. Raises ValueError."""
    operands = []
    for part in rule.replace("->", ",").split("]")[:-1]:
        name, bracket, dims = part.strip(", ").partition("[")
        if not bracket or not name.isidentifier():
            raise ValueError(f"no rule of shapes: {rule!r}")
        operands.append((name, tuple(_dimension(dim.strip()) for dim in dims.split(",") if dim)))
    if not operands or not rule.rstrip().endswith("]"):
        raise ValueError(f"no rule of shapes: {rule!r}")
    return tuple(operands)


def _dimension(text: str) -> Dimension:
    if text.startswith("*"):
        return text
    products = (product.split("*") for product in text.split("="))
    return tuple(tuple(int(f) if f.isdigit() else f for f in part) for part in products)


def solve(rule: str, attributes: Mapping[str, Any], shapes: Mapping[str, Partial]) -> dict[str, Partial]:
    """What a rule makes of partly known shapes, by operand. Raises Contradiction.

    attributes: values of names, where they are ints or tuples of ints.
    """
    return _Solver(rule, attributes, shapes).run()


class _Solver:
    """One rule and what is known; names of sizes map to (value, operand that it comes from)."""

    def __init__(self, rule: str, attributes: Mapping[str, Any], shapes: Mapping[str, Partial]) -> None:
        self.operands = [(name, dims) for name, dims in _parsed(rule) if name in shapes]
        self.shapes = dict(shapes)
        self.sizes: dict[str, tuple[int, str]] = {}
        self.runs: dict[str, list[int | None]] = {}
        for name, value in attributes.items():
            if isinstance(value, tuple) and all(isinstance(n, int) for n in value):
                self.runs[f"*{name}"] = list(value)
            elif isinstance(value, int) and not isinstance(value, bool):
                self.sizes[name] = (value, name)

    def run(self) -> dict[str, Partial]:
        while True:
            before = (dict(self.shapes), dict(self.sizes), {k: list(v) for k, v in self.runs.items()})
            for name, dims in self.operands:
                self.match(name, dims)
            if before == (self.shapes, self.sizes, self.runs):
                return self.shapes

    def match(self, name: str, dims: Sequence[Dimension]) -> None:
        shape = self.shapes[name]
        unknown = [d for d in dims if isinstance(d, str) and d not in self.runs]
        fixed = sum(len(self.runs[d]) if isinstance(d, str) else 1 for d in dims if d not in unknown)
        if shape is None:
            if unknown:
                return
            shape = (None,) * fixed
        elif len(unknown) > 1:
            return
        elif len(shape) < fixed or (len(shape) > fixed and not unknown):
            least = "at least " if unknown else ""
            raise Contradiction(
                f"{name} has {len(shape)} dimensions, not {least}{fixed}: it is {shown(shape)}"
            )
        elif unknown:
            self.runs[unknown[0]] = [None] * (len(shape) - fixed)
        sizes: list[int | None] = []
        for dim in dims:
            if isinstance(dim, str):
                run = self.runs[dim]
                part = shape[len(sizes) : len(sizes) + len(run)]
                for k, n in enumerate(part):
                    run[k] = self.merged(dim[1:], name, run[k], n)
                sizes.extend(run)
            else:
                sizes.append(self.size(dim, name, shape[len(sizes)]))
        self.shapes[name] = tuple(sizes)

    def merged(self, name: str, operand: str, a: int | None, b: int | None) -> int | None:
        if a is not None and b is not None and a != b:
            raise Contradiction(f"{name} is {a}, but {b} in {operand}")
        return b if a is None else a

    def size(self, products: Sequence[Product], operand: str, size: int | None) -> int | None:
        """The size that equal products give; a product with one unknown factor gives that factor."""
        for product in products:
            unknown = [f for f in product if isinstance(f, str) and f not in self.sizes]
            value = 1
            for factor in product:
                value *= factor if isinstance(factor, int) else self.sizes.get(factor, (1, ""))[0]
            if not unknown:
                if size is not None and size != value:
                    names = [f for f in product if isinstance(f, str)]
                    source = self.sizes[names[0]][1] if len(names) == 1 else ""
                    origin = f"in {source} " if source and source != names[0] else ""
                    product_text = "*".join(map(str, product))
                    raise Contradiction(f"{product_text} is {value} {origin}but {size} in {operand}")
                size = value
            elif size is not None and len(unknown) == 1 and value:
                if size % value:
                    product_text = "*".join(map(str, product))
                    raise Contradiction(
                        f"{size} in {operand} is not a multiple of {value}, as {product_text} is"
                    )
                self.sizes[unknown[0]] = (size // value, operand)
        return size


def broadcast(inputs: Sequence[Partial], output: Partial) -> tuple[list[Partial], Partial]:
    """What broadcasting says of operands and their result, both ways. Raises Contradiction.

    >>> broadcast([(None, 3), (1,)], (2, 3))
    ([(2, 3), (1,)], (2, 3))
    >>> broadcast([(None, 5), (None, 1)], None)
    ([(None, 5), (None, 1)], (None, 5))
    """
    if len(inputs) == 1:
        output = merge(inputs[0], output)
        return [output], output
    if all(shape is not None for shape in inputs):
        rank = max((len(shape) for shape in inputs if shape is not None), default=0)
        columns = (
            [shape[d] for shape in inputs if shape is not None and -d <= len(shape)] for d in range(-rank, 0)
        )
        output = merge(output, tuple(map(_meet, columns)))
    if output is None:
        return list(inputs), output
    solved = list(inputs)
    for k, shape in enumerate(inputs):
        if shape is None:
            continue
        if len(shape) > len(output):
            raise Contradiction(f"{shown(shape)} does not fit the result {shown(output)}")
        sizes = list(shape)
        for d in range(-len(shape), 0):
            full, n = output[d], shape[d]
            if n is None and full is not None:
                if full == 1 or all(
                    other is not None and (-d > len(other) or other[d] == 1)
                    for j, other in enumerate(inputs)
                    if j != k
                ):
                    sizes[d] = full
            elif n is not None and full is not None and n not in (1, full):
                raise Contradiction(f"{shown(shape)} does not fit the result {shown(output)}")
        solved[k] = tuple(sizes)
    return solved, output


def _meet(sizes: Sequence[int | None]) -> int | None:
    """The size that sizes are repeated to, None if that is open."""
    result: int | None = 1
    for n in sizes:
        if n is None:
            result = None if result == 1 else result
        elif n != 1:
            if result not in (None, 1, n):
                raise Contradiction(f"sizes {result} and {n} do not fit")
            result = n
    return result
