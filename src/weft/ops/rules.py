"""Rules: one line that states the shapes and dtypes of an operator's inputs and outputs.

    rule = "x[*b,k]: float, weight[n,k]: learnable float, bias[n]?: learnable float -> y[*b,n]: promote"

From it come the names of the inputs, their types checked and the outputs' types (Op.infer), unknown sizes of symbols in
both directions, and the text of errors and documentation. An operator writes an `infer` of its own only for what no
rule says: indices of axes, sizes that are computed, relations between attributes.

    rule   = input, ... -> output, ...
    input  = name [dims] ? : words kinds            each part behind the name may be left out
    output = name [dims] : dtype
    dims   = dim, ...                               none: any shape (an output's then comes from infer)
    dim    = name | number | product | dim=dim      a size; a product is ``groups*c``; "=" joins equal ones
           | *name                                  any number of sizes
           | ...                                    any number of sizes, which fit those of others by broadcasting
           | name^rank                              `rank` sizes, a number or an int of the class
           | method()^rank | *method()              sizes that a method computes from the inputs' types
    ?                                               the input may be missing
    *name                                           as an input: any number of tensors, each of which is as it says
    words  = learnable                              symbols make it as a variable that is trained
           | wide                                   that variable has the type that the first input is summed in
           | fixed                                  it has no gradient, though it is of floats
    kinds  = bool | int | float | complex | number | dtype  joined by "|", the likely one first; none: all
    dtype  = input | dtype | attribute | attribute or dtype | promote | promote(q k) | each
           | accumulation(dtype) | method() | dtype to kinds

Names that are attributes of the operator have their values where those are ints, or tuples of ints for several sizes.
``promote`` is of all inputs, ``each`` the inputs' own dtypes; a method is called with the inputs' types. Of the outputs
the last one stands for all further ones. ``dtype to kinds``: DTypeError unless the result is of these kinds.

>>> from weft.base.dtype import float32
>>> from weft.ops.registry import get
>>> x, weight = TensorType((2, 5), float32), TensorType((3, 5), float32)
>>> get("linear")().infer(x, weight)
f32[2,3]@cpu:0
>>> get("linear")().infer(x, TensorType((3, 4), float32))
Traceback (most recent call last):
    ...
weft.base.errors.ShapeError: linear: x has 5 in_features, weight expects 4: x is f32[2,5]@cpu:0, \
weight is f32[3,4]@cpu:0
>>> rule = parse("x[*b,k], weight[n,k], bias[n]? -> y[*b,n]")
>>> solve(rule, {"n": 10}, {"x": (32, None, 784), "weight": None, "bias": None, "y": None})
{'x': (32, None, 784), 'weight': (10, 784), 'bias': (10,), 'y': (32, None, 10)}
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from weft.base.dtype import DTYPES, DType
from weft.base.errors import DTypeError, ShapeError
from weft.base.record import Record
from weft.base.typing import Any
from weft.ops.dtypes import WORDS, dtype_of, is_of, words_of
from weft.ops.shapes import Contradiction, Partial, broadcast, shown
from weft.ops.sizes import Size
from weft.ops.types import TensorType, broadcast_shapes

__all__ = ["Dim", "Rule", "RuleOperand", "infer", "infer_dtypes", "kinds_of", "match", "parse", "solve"]

WORDS_OF_INPUTS = frozenset(("learnable", "wide", "fixed"))
KINDS = frozenset([*WORDS, *(dtype.name for dtype in DTYPES)])


class Dim(Record):
    """A size or several of an operand. run: the name of several; rank: how many, None: any number.

    A run that begins with "..." is those of one operand, which broadcast.
    name: of one size that is only a name; products: of another the products that it equals, each of names and numbers.
    method: what computes several.
    """

    text: str
    name: str = ""
    run: str = ""
    rank: str | int | None = None
    products: tuple[tuple[str | int, ...], ...] = ()
    method: str = ""


class RuleOperand(Record):
    """An input or output. dims None: the rule does not say its shape. dtype: an output's term.

    accepts: the names of the dtypes of its kinds.
    """

    name: str
    dims: tuple[Dim, ...] | None = None
    optional: bool = False
    variadic: bool = False
    words: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    dtype: str = ""
    accepts: frozenset[str] = frozenset()

    def text(self) -> str:
        """Its shape, as the rule has it."""
        return f"[{','.join(dim.text for dim in self.dims or ())}]"


class Rule(Record):
    """A parsed rule. names: all that sizes and ranks are called, which attributes may give."""

    text: str
    inputs: tuple[RuleOperand, ...]
    outputs: tuple[RuleOperand, ...]
    names: tuple[str, ...]


@functools.lru_cache(maxsize=512)
def parse(text: str) -> Rule:
    """A rule from its text. Raises ValueError for a text that is none.

    >>> parse("x[n,groups*c], *parts: int|float -> y[n]: promote").inputs[1].kinds
    ('int', 'float')
    >>> parse("x[n -> y")
    Traceback (most recent call last):
        ...
    ValueError: no rule of an operator: 'x[n -> y': x[n
    """
    left, arrow, right = text.partition("->")
    outputs = [_operand(part, text, True) for part in _split(right)]
    if not arrow or not outputs:
        raise ValueError(f"no rule of an operator: {text!r}: it needs '->' and an output")
    inputs = [_operand(part, text, False) for part in _split(left)]
    names: set[Any] = set()
    for operand in (*inputs, *outputs):
        for dim in operand.dims or ():
            names.update((dim.name, dim.run, dim.rank), *dim.products)
    return Rule(text, tuple(inputs), tuple(outputs), tuple([n for n in names if n and isinstance(n, str)]))


def _split(text: str) -> list[str]:
    """The parts between commas, but those in brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "[(") - (c in "])")
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts if part.strip()]


def _operand(part: str, rule: str, is_output: bool) -> RuleOperand:
    head, _, tail = part.partition(":")
    head = head.strip()
    optional = head.endswith("?")
    name, bracket, dims = head.removesuffix("?").partition("[")
    words = tail.split()
    kinds = () if is_output or not words or words[-1] in WORDS_OF_INPUTS else tuple(words.pop().split("|"))
    if (
        not name.removeprefix("*").isidentifier()
        or (bracket and (not dims.endswith("]") or "]" in dims[:-1] or "[" in dims))
        or not KINDS.issuperset(kinds)
        or not (is_output or WORDS_OF_INPUTS.issuperset(words))
    ):
        raise ValueError(f"no rule of an operator: {rule!r}: {part}")
    return RuleOperand(
        name.removeprefix("*"),
        tuple([_broadcast(name) if dim == "..." else _dim(dim) for dim in _split(dims[:-1])])
        if bracket
        else None,
        optional,
        name.startswith("*"),
        () if is_output else tuple(words),
        kinds,
        " ".join(words) if is_output else "",
        _accepted(kinds) if kinds else frozenset(),
    )


@functools.lru_cache(maxsize=64)
def _accepted(kinds: tuple[str, ...]) -> frozenset[str]:
    """The names of the dtypes of some kinds."""
    return frozenset([dtype.name for dtype in DTYPES for kind in kinds if is_of(dtype, kind)])


def _broadcast(operand: str) -> Dim:
    """The sizes of an operand that broadcast: its own, which broadcasting relates to those of others."""
    return Dim("...", run=f"...{operand}")


@functools.lru_cache(maxsize=512)
def _dim(text: str) -> Dim:
    if text.isidentifier():
        return Dim(text, text)
    run, caret, rank = text.removeprefix("*").partition("^")
    if text.startswith("*") or caret:
        method = run.removesuffix("()") if run.endswith("()") else ""
        return Dim(text, "", run, (int(rank) if rank.isdigit() else rank) if caret else None, (), method)
    products = [product.split("*") for product in text.split("=")]
    return Dim(
        text, products=tuple([tuple([int(f) if f.isdigit() else f for f in part]) for part in products])
    )


# Outputs from inputs.


def infer(op: Any, types: Sequence[TensorType | None]) -> TensorType | tuple[TensorType, ...]:
    """The outputs' types by the operator's rule. Raises DTypeError, ShapeError."""
    rule = parse(op.rule)
    dtypes = infer_dtypes(op, types)
    solution = _matched(op, rule, types)
    present = [t for t in types if t is not None]
    strong = [t for t in present if not t.weak] or present
    outputs = [
        strong[0].like(solution.shape_of(operand, op, types), dtype)
        for operand, dtype in zip(rule.outputs, dtypes, strict=True)
    ]
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def match(op: Any, types: Sequence[TensorType | None]) -> tuple[DType, ...]:
    """The outputs' dtypes, for an infer that computes their shapes; the inputs' types are checked by the rule."""
    dtypes = infer_dtypes(op, types)
    _matched(op, parse(op.rule), types)
    return dtypes


def infer_dtypes(op: Any, types: Sequence[TensorType | None]) -> tuple[DType, ...]:
    """The outputs' dtypes; of the inputs' types only dtypes and weakness are read. Raises DTypeError."""
    rule = parse(op.rule)
    named: dict[str, TensorType] = {}
    for k, t in enumerate(types):
        if t is None:
            continue
        operand = rule.inputs[min(k, len(rule.inputs) - 1)]
        if operand.kinds and t.dtype.name not in operand.accepts:
            hint = (
                f"\n  hint: {operand.name}.astype('float32') converts it"
                if operand.kinds == ("float",)
                else ""
            )
            fact = f"takes {words_of(operand.kinds)} as {operand.name}"
            raise DTypeError(f"{op.fail(DTypeError, fact, **{operand.name: t})}{hint}")
        named.setdefault(operand.name, t)
    present = [t for t in types if t is not None]
    if rule.outputs[-1].dtype == "each":
        return tuple(t.dtype for t in present)
    return tuple(
        [
            named[o.dtype].dtype if o.dtype in named else dtype_of(o.dtype, op, present, named)
            for o in rule.outputs
        ]
    )


def kinds_of(op: Any, index: int) -> tuple[str, ...]:
    """The kinds of dtypes that an input takes, the likely one first; none if it takes all."""
    inputs = parse(op.rule).inputs if op.rule else ()
    return inputs[min(index, len(inputs) - 1)].kinds if inputs else ()


def _matched(op: Any, rule: Rule, types: Sequence[TensorType | None]) -> _Solution:
    solution = _Solution({name: getattr(op, name, None) for name in rule.names})
    try:
        for k, t in enumerate(types):
            operand = rule.inputs[min(k, len(rule.inputs) - 1)]
            if t is not None and operand.dims is not None:
                solution.match(operand, t.shape)
    except Contradiction as wrong:
        operands = {o.name: t for o, t in zip(rule.inputs, types, strict=False) if t is not None}
        raise op.fail(ShapeError, str(wrong), **operands) from None
    return solution


# Both ways.


def solve(rule: Rule, values: Mapping[str, Any], shapes: Mapping[str, Partial]) -> dict[str, Partial]:
    """What a rule makes of partly known shapes, by operand; those that it does not name are left as they are.

    values: of attributes, by name. Raises Contradiction.
    """
    solution = _Solution(values)
    solved = dict(shapes)
    operands = [o for o in (*rule.inputs, *rule.outputs) if o.dims is not None and o.name in solved]
    before = None
    while before != (before := (dict(solved), solution.facts())):
        for operand in operands:
            solved[operand.name] = solution.match(operand, solved[operand.name])
        solution.broadcast(rule)
    return solved


class _Solution:
    """What is known of the sizes of a rule.

    sizes: by name the size, the operand that it comes from ("": an attribute), and the factor that the operand has it
    with there, as a number and as text.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.sizes: dict[str, tuple[Any, str, Any, str]] = {}
        self.runs: dict[str, list[Any]] = {}
        self.sources: dict[str, str] = {}  # of runs
        for name, value in values.items():
            if type(value) is tuple:
                self.runs[name] = list(value)
            elif value is not None and type(value) is not bool and isinstance(value, int | Size):
                self.sizes[name] = (value, "", 1, "")

    def facts(self) -> Any:
        """What was found, to be compared."""
        return dict(self.sizes), {name: list(run) for name, run in self.runs.items()}

    def match(self, operand: RuleOperand, shape: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        """What is known of an operand's shape; the sizes learn from it. Raises Contradiction."""
        open_run, fixed = "", 0
        assert operand.dims is not None
        for dim in operand.dims:
            if dim.run and dim.run not in self.runs:
                if dim.rank is not None:
                    rank = dim.rank if isinstance(dim.rank, int) else self.sizes[dim.rank][0]
                    self.runs[dim.run] = [None] * rank
                elif open_run:
                    return shape
                else:
                    open_run = dim.run
                    continue
            fixed += len(self.runs[dim.run]) if dim.run else 1
        if shape is None:
            if open_run:
                return None
            shape = (None,) * fixed
        if len(shape) < fixed or (len(shape) > fixed and not open_run):
            least, s = "at least " if open_run else "", "s" * (fixed != 1)
            raise Contradiction(
                f"{operand.name} needs {least}{fixed} dimension{s}, {operand.text()}, it has {len(shape)}"
            )
        if open_run:
            self.runs[open_run] = [None] * (len(shape) - fixed)
        sizes: list[Any] = []
        for dim in operand.dims:
            if dim.run:
                sizes.extend(
                    self.run(dim.run, operand, shape[len(sizes) : len(sizes) + len(self.runs[dim.run])])
                )
                continue
            size = shape[len(sizes)]
            if dim.name and dim.name not in self.sizes:
                if size is not None:
                    self.sizes[dim.name] = (size, operand.name, 1, "")
            elif not dim.name or self.sizes[dim.name][0] is not size:
                size = self.size(dim.products or ((dim.name,),), operand.name, size)
            sizes.append(size)
        return tuple(sizes)

    def broadcast(self, rule: Rule) -> None:
        """Relate the leading sizes of operands that broadcast."""
        names = [d.run for o in rule.inputs for d in o.dims or () if d.text == "..."]
        results = [d.run for o in rule.outputs for d in o.dims or () if d.text == "..."]
        if names and results:
            known = [tuple(self.runs[name]) if name in self.runs else None for name in (*names, results[0])]
            inputs, output = broadcast(known[:-1], known[-1])
            for name, shape in zip((*names, results[0]), (*inputs, output), strict=True):
                if shape is not None:
                    self.runs[name] = list(shape)

    def run(self, name: str, operand: RuleOperand, part: Sequence[Any]) -> Sequence[Any]:
        """What is known of several sizes, given what an operand has."""
        known = self.runs[name]
        for k, (a, b) in enumerate(zip(known, part, strict=True)):
            if a is None:
                known[k] = b
                self.sources[name] = operand.name
            elif b is not None and a is not b and a != b:
                source = self.sources.get(name)
                other = (
                    f"which is {shown(tuple(known))}" if source is None else f"{source} {shown(tuple(known))}"
                )
                raise Contradiction(f"{operand.name} has {shown(tuple(part))} for {name}, {other}")
        return known

    def size(self, products: Sequence[tuple[str | int, ...]], operand: str, size: Any) -> Any:
        """What is known of a size that equals products; a product with one unknown factor gives that factor."""
        for product in products:
            value, unknown = 1, ""
            for factor in product:
                if isinstance(factor, int):
                    value = value * factor
                elif factor in self.sizes:
                    value = self.sizes[factor][0] * value
                elif unknown:
                    break
                else:
                    unknown = factor
            else:
                if not unknown:
                    if size is None:
                        size = value
                    elif size is not value and size != value:
                        raise Contradiction(self._difference(product, operand, size, value))
                elif size is not None:
                    if not (type(value) is int and value == 1) and (not value or size % value):
                        raise Contradiction(
                            f"{operand} has {size} {unknown}, not a multiple of {_others(product, unknown)}={value}"
                        )
                    self.sizes[unknown] = (size // value, operand, value, _others(product, unknown))
        return size

    def _difference(self, product: tuple[str | int, ...], operand: str, size: Any, value: Any) -> str:
        """Two sizes that should be one, with the words of the rule."""
        if len(product) > 1 or isinstance(product[0], int):
            text = "*".join(map(str, product))
            if text == str(value):
                return f"{operand} has size {size}, not {value}"
            return f"{operand} has {size} for {text}, which is {value}"
        name = product[0]
        _, source, factor, others = self.sizes[name]
        if not source:
            return f"{operand} has {size} {name}, {name} is {value}"
        note = f" ({others}={factor})" if others else ""
        return f"{source} has {value * factor} {name}, {operand} expects {size * factor}{note}"

    def shape_of(self, operand: RuleOperand, op: Any, types: Sequence[TensorType | None]) -> tuple[Any, ...]:
        """The shape of an output, all of whose sizes are known."""
        if operand.dims is None:
            raise NotImplementedError(
                f"{op.name}: its rule does not say the shape of {operand.name}: {op.rule}"
            )
        shape: list[Any] = []
        for dim in operand.dims:
            if dim.text == "...":
                named = zip(parse(op.rule).inputs, types, strict=False)
                leads = {
                    o.name: t.like(self.runs[f"...{o.name}"])
                    for o, t in named
                    if t and f"...{o.name}" in self.runs
                }
                shape.extend(broadcast_shapes(op.name, leads))
            elif dim.method:
                shape.extend(getattr(op, dim.method)(*types))
            elif dim.run:
                shape.extend(self.runs[dim.run])
            elif dim.name:
                shape.append(self.sizes[dim.name][0])
            else:
                shape.append(self.size(dim.products, operand.name, None))
        return tuple(shape)


def _others(product: tuple[str | int, ...], name: str) -> str:
    """A product without one of its factors."""
    return "*".join(str(factor) for factor in product if factor != name)
