"""Arithmetic on one element: immutable expressions over loaded elements, parameters and constants.

>>> from weft.expr.scalar import load, where
>>> x = load(0, "float32")
>>> where(x > 0, x, 0.1 * x)
where(gt(x0, 0.0), x0, mul(0.1, x0))

Equal expressions are one object, so a shared part is computed once. Every expression has a type; arithmetic needs equal
types on both sides, except that Python's numbers take that of the other side. The functions of FUNCTIONS (exp, tanh,
...) are written in simpler ones by weft.expr.functions before code is made.
"""

from __future__ import annotations

import operator
import threading
from _weakref import ref  # all that is needed of weakref, which a first result would wait for
from collections.abc import Callable, Container

from weft.base import process
from weft.base.dtype import DTYPES
from weft.base.exact import exact
from weft.base.typing import Any, ClassVar

__all__ = [
    "COMPLEX",
    "FUNCTIONS",
    "HALVES",
    "Scalar",
    "bitcast",
    "call",
    "cast",
    "complex_number",
    "conj",
    "constant",
    "fma",
    "imag",
    "index",
    "load",
    "load_at",
    "maximum",
    "minimum",
    "parameter",
    "product",
    "real",
    "repeated",
    "result",
    "state",
    "substitute",
    "walk",
    "where",
]

FLOATS = tuple(t.name for t in DTYPES if t.is_floating)
COMPLEX = {t.name: t.real.name for t in DTYPES if t.is_complex}  # the type of their parts
HALVES = tuple(t.name for t in DTYPES if t.is_floating and t.bits == 16)
SIGNED = tuple(t.name for t in DTYPES if t.kind == "int")
UNSIGNED = tuple(t.name for t in DTYPES if t.kind == "uint")
# Of a value; of a bool that is a lane of a mask.
BITS = (
    {"bool": 1}
    | {t.name: t.bits for t in DTYPES if t.is_inexact}
    | {t.name: t.bits for t in DTYPES if t.is_integer}
)

BITS_OF_INTEGERS = {name: bits for name, bits in BITS.items() if name in SIGNED + UNSIGNED or name == "bool"}

# What code generators must know, by number of operands. Comparisons give bool; the rest the type of their operands.
UNARY = ("neg", "abs", "sqrt", "rint", "floor", "ceil", "trunc", "not")
SHIFTS = ("shl", "shr")
LOGICAL = ("and", "or", "xor")
ARITHMETIC = ("add", "sub", "mul", "product", "div", "rem", "minimum", "maximum", "copysign")
BINARY = ARITHMETIC + LOGICAL + SHIFTS
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
LEAVES = ("constant", "load", "load_at", "parameter", "index", "result", "state")
FLOATS_ONLY = ("sqrt", "rint", "floor", "ceil", "trunc", "copysign", "product")
BITWISE = ("not", *LOGICAL, *SHIFTS)
# Of complex numbers: their parts, the number of two parts, and what else they have (weft.expr.functions.complex_parts).
PARTS = ("real", "imag")
OF_COMPLEX = (
    *("neg", "add", "sub", "mul", "product", "div", "sqrt", "rsqrt", "pow"),
    *("exp", "expm1", "log", "log1p", "log2", "log10"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
)
# What weft.expr.functions writes in terms of those.
FUNCTIONS = (
    "exp",
    "expm1",
    "exp2",
    "log",
    "log1p",
    "log2",
    "log10",
    "tanh",
    "sigmoid",
    "erf",
    "erfc",
    "erfinv",
    "gamma",
    "lgamma",
    "digamma",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "atan2",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
    "pow",
    "rsqrt",
    "cbrt",
)


def _unary_operator(op: str) -> Callable[[Any], Scalar]:
    return lambda a: _unary(op, a)


def _binary_operators(op: str) -> tuple[Callable[[Any, Any], Scalar], Callable[[Any, Any], Scalar]]:
    """The methods of an expression on the left, and on the right of something else."""
    return lambda a, b: _binary(op, a, b), lambda b, a: _binary(op, a, b)


def _comparison(op: str) -> Callable[[Any, Any], Scalar]:
    return lambda a, b: _compare(op, a, b)


class Scalar:
    """One expression: an operation, its operands, and for leaves what they stand for. Made by this module's functions.

    op: a name of UNARY, BINARY, COMPARISONS, FUNCTIONS, PARTS or LEAVES, or where, fma, cast, bitcast, conj, or complex
    (the number of two parts), or repeated. dtype: the name of its type. args: the operands. value: the number of a
    constant, operand, parameter, dimension, result or state, or what is repeated.
    """

    __slots__ = ("__weakref__", "args", "dtype", "op", "value")

    op: str
    dtype: str
    args: tuple[Scalar, ...]
    value: Any

    # The operands of a key live as long as its expression, so their ids are theirs. Nothing is allocated under the
    # lock: a garbage collection there could run a finalizer that waits for a thread that compiles.
    _interned: ClassVar[dict[tuple[Any, ...], ref[Scalar]]] = {}
    _lock: ClassVar[threading.RLock] = process.guard(threading.RLock())  # an interrupt may come back here

    def __new__(cls, op: str, dtype: str, args: tuple[Scalar, ...] = (), value: Any = None) -> Scalar:
        key = (op, dtype, tuple(map(id, args)), exact(value))
        known = cls._interned.get(key)
        expression = None if known is None else known()
        if expression is None:
            if dtype not in BITS:
                raise ValueError(f"no type {dtype!r}; there are: {', '.join(BITS)}")
            new = object.__new__(cls)
            for field, content in (("op", op), ("dtype", dtype), ("args", args), ("value", value)):
                object.__setattr__(new, field, content)
            reference = ref(new, lambda own: cls._forget(key, own))
            with cls._lock:
                known = cls._interned.get(key)
                expression = None if known is None else known()
                if expression is None:
                    cls._interned[key] = reference
                    expression = new
        return expression

    @classmethod
    def _forget(cls, key: tuple[Any, ...], reference: ref[Scalar]) -> None:
        with cls._lock:
            if cls._interned.get(key) is reference:  # else an equal one was made meanwhile
                del cls._interned[key]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"expressions are immutable: cannot set {name}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Scalar, (self.op, self.dtype, self.args, self.value)

    def __repr__(self) -> str:
        if self.op == "constant":
            return repr(self.value)
        if self.op in LEAVES:
            letter = {
                "load": "x",
                "load_at": "at",
                "parameter": "p",
                "index": "i",
                "result": "r",
                "state": "s",
            }[self.op]
            inside = f"({', '.join(map(repr, self.args))})" if self.args else ""
            return f"{letter}{self.value}{inside}"
        name = f"{self.op}[{self.dtype}]" if self.op in ("cast", "bitcast") else self.op
        return f"{name}({', '.join(map(repr, self.args))})"

    takes_complex: ClassVar[bool] = True  # beside it Python's complex numbers stay numbers

    def __bool__(self) -> bool:
        raise TypeError(
            f"the truth of {self!r} is not known before it is computed; use where(condition, a, b)"
        )

    def __hash__(self) -> int:
        return id(self)

    def __weft_apply__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Scalar:
        """What a function of operators does that is called with an expression: the same on one element."""
        value: Scalar = op.on_elements(args, kwargs)
        return value

    # Arithmetic. Comparison by == builds an expression, too: use `is` to compare expressions. Shifts are by less than
    # the type's bits; the result of more is not defined. >> is arithmetic for signed integers, else logical.

    __neg__, __abs__, __invert__ = _unary_operator("neg"), _unary_operator("abs"), _unary_operator("not")
    __add__, __radd__ = _binary_operators("add")
    __sub__, __rsub__ = _binary_operators("sub")
    __mul__, __rmul__ = _binary_operators("mul")
    __truediv__, __rtruediv__ = _binary_operators("div")
    __mod__, __rmod__ = _binary_operators("rem")
    __pow__, __rpow__ = _binary_operators("pow")
    __and__, __rand__ = _binary_operators("and")
    __or__, __ror__ = _binary_operators("or")
    __xor__, __rxor__ = _binary_operators("xor")
    __lshift__, __rlshift__ = _binary_operators("shl")
    __rshift__, __rrshift__ = _binary_operators("shr")
    __lt__, __le__ = _comparison("lt"), _comparison("le")
    __gt__, __ge__ = _comparison("gt"), _comparison("ge")
    __eq__, __ne__ = _comparison("eq"), _comparison("ne")  # type: ignore[assignment]


Number = Scalar | int | float | bool | complex


def constant(value: int | float | bool | complex, dtype: str) -> Scalar:
    """A number of this type; floats are rounded to it when code is made.

    Raises OverflowError for integers that it cannot hold, ValueError for an unknown type.

    >>> constant(2, "float32").value
    2.0
    """
    if dtype in COMPLEX:
        return Scalar("constant", dtype, (), complex(value))
    if isinstance(value, complex):
        raise TypeError(f"{value} is not of type {dtype}")
    if dtype == "bool":
        return Scalar("constant", dtype, (), bool(value))
    if dtype in FLOATS or dtype not in BITS:  # no type at all: refused
        return Scalar("constant", dtype, (), float(value))
    least, most = (
        (0, 2 ** BITS[dtype]) if dtype in UNSIGNED else (-(2 ** (BITS[dtype] - 1)), 2 ** (BITS[dtype] - 1))
    )
    if not least <= int(value) < most:
        raise OverflowError(f"{value} is out of bounds for {dtype}")
    return Scalar("constant", dtype, (), int(value))


def load(operand: int, dtype: str) -> Scalar:
    """The element of an operand at the loops' current position."""
    return Scalar("load", dtype, (), operand)


def load_at(operand: int, dtype: str, *position: Scalar) -> Scalar:
    """The element at the loops' position and at computed ones, an int64 for each dimension that is gathered.

    The caller ensures that a position is within bounds: where() wraps negative ones, minimum() and maximum()
    keep any within.
    """
    if any(part.dtype != "int64" for part in position):
        raise TypeError(f"load_at: positions must be int64, got {', '.join(part.dtype for part in position)}")
    return Scalar("load_at", dtype, position, operand)


def parameter(number: int, dtype: str) -> Scalar:
    """A number given when the kernel runs."""
    if number < 0:
        raise ValueError(f"parameter: the number must be at least 0, got {number}")
    if dtype in COMPLEX:
        raise TypeError("parameter: complex numbers are operands; a parameter is one word")
    return Scalar("parameter", dtype, (), number)


def index(dimension: int) -> Scalar:
    """The position of the loops in a dimension, int64."""
    return Scalar("index", "int64", (), dimension)


def result(number: int, dtype: str) -> Scalar:
    """What an earlier reduction of the kernel found for the current row."""
    return Scalar("result", dtype, (), number)


def state(number: int, dtype: str) -> Scalar:
    """Inside of what `repeated` does in a turn, or a Chain at a position: a value that it begins with."""
    return Scalar("state", dtype, (), number)


def repeated(starts: tuple[Scalar, ...], news: tuple[Scalar, ...], done: Scalar, which: int = 0) -> Scalar:
    """A loop of at least one turn: new value number `which` of the turn in which `done` holds.

    state(k) is starts[k] in the first turn, what news[k] was after it in the next one. news and done, in basic
    operations, are made of states and constants alone: what else they need is a start. Only code for threads has such
    loops. Values of one loop share it.

    >>> n = state(0, "int64")
    >>> repeated((load(0, "int64"),), (n * 2,), n * 2 > 100)
    repeated(x0)
    """
    if [x.dtype for x in starts] != [x.dtype for x in news] or done.dtype != "bool":
        raise TypeError("repeated: news need the types of starts, and done is a bool")
    leaves = {node.op for node in walk(*news, done) if node.op in LEAVES}
    if not leaves <= {"constant", "state"}:
        raise ValueError(f"repeated: news and done are made of states and constants, not of {leaves}")
    return Scalar("repeated", starts[which].dtype, starts, (news, done, which))


def _lift(value: Any, like: Scalar) -> Scalar:
    if isinstance(value, Scalar):
        return value
    if not isinstance(value, (bool, int, float)) and not (
        isinstance(value, complex) and like.dtype in COMPLEX
    ):
        raise TypeError(f"expected an expression or a number, got {type(value).__name__}")
    if isinstance(value, float) and like.dtype in BITS_OF_INTEGERS and not value.is_integer():
        raise TypeError(f"{value} is not of type {like.dtype}")
    return constant(value, like.dtype)


def _pair(op: str, a: Any, b: Any) -> tuple[Scalar, Scalar]:
    if not isinstance(a, Scalar) and not isinstance(b, Scalar):
        raise TypeError(f"{op}: at least one operand must be an expression")
    first = a if isinstance(a, Scalar) else _lift(a, b)
    second = b if isinstance(b, Scalar) else _lift(b, first)
    if COMPLEX.get(first.dtype) == second.dtype:  # a real number beside a complex one
        second = cast(second, first.dtype)
    elif COMPLEX.get(second.dtype) == first.dtype:
        first = cast(first, second.dtype)
    if first.dtype != second.dtype:
        raise TypeError(f"{op}: {first.dtype} and {second.dtype} differ; cast one of them")
    return first, second


def _accepted(op: str, dtype: str) -> str:
    if (
        (op in FLOATS_ONLY + FUNCTIONS and dtype not in FLOATS and dtype not in COMPLEX)
        or (op in BITWISE and dtype in FLOATS)
        or (dtype in COMPLEX and op not in OF_COMPLEX)
        or (dtype == "bool" and op not in ("not", *LOGICAL, "minimum", "maximum"))
    ):
        raise TypeError(f"{op} is not defined for {dtype}")
    return dtype


def _unary(op: str, a: Scalar) -> Scalar:
    if op == "abs" and a.dtype in COMPLEX:
        return Scalar(op, COMPLEX[a.dtype], (a,))
    return Scalar(op, _accepted(op, a.dtype), (a,))


def _binary(op: str, a: Any, b: Any) -> Scalar:
    pair = _pair(op, a, b)
    return Scalar(op, _accepted(op, pair[0].dtype), pair)


def _compare(op: str, a: Any, b: Any) -> Scalar:
    pair = _pair(op, a, b)
    if pair[0].dtype in COMPLEX and op not in ("eq", "ne"):
        raise TypeError(f"{op}: complex numbers have no order")
    return Scalar(op, "bool", pair)


def real(a: Scalar) -> Scalar:
    """The real part; a real number itself.

    >>> real(load(0, "complex64")), real(load(0, "float32"))
    (real(x0), x0)
    """
    return _part("real", a)


def imag(a: Scalar) -> Scalar:
    """The imaginary part; of a real number 0."""
    return _part("imag", a)


def _part(op: str, a: Scalar) -> Scalar:
    if a.dtype not in COMPLEX:
        return a if op == "real" else constant(0, a.dtype)
    return a.args[op == "imag"] if a.op == "complex" else Scalar(op, COMPLEX[a.dtype], (a,))


def conj(a: Scalar) -> Scalar:
    """The complex conjugate; a real number itself."""
    if a.op == "conj":
        return a.args[0]
    if a.op == "constant" and a.dtype in COMPLEX:
        return constant(a.value.conjugate(), a.dtype)
    if a.op == "cast" and a.args[0].dtype not in COMPLEX:
        return a
    return Scalar("conj", a.dtype, (a,)) if a.dtype in COMPLEX else a


def complex_number(re: Scalar, im: Scalar) -> Scalar:
    """The complex number of two parts, float32 or float64.

    >>> complex_number(load(0, "float32"), load(1, "float32")).dtype
    'complex64'
    """
    dtype = next((name for name, part in COMPLEX.items() if part == re.dtype == im.dtype), None)
    if dtype is None:
        raise TypeError(f"complex: needs two parts of float32 or of float64, got {re.dtype} and {im.dtype}")
    if re.op == "real" and im.op == "imag" and re.args == im.args:
        return re.args[0]
    return Scalar("complex", dtype, (re, im))


def minimum(a: Number, b: Number) -> Scalar:
    """The smaller one; NaN if one is NaN."""
    return _binary("minimum", a, b)


def maximum(a: Number, b: Number) -> Scalar:
    """The larger one; NaN if one is NaN."""
    return _binary("maximum", a, b)


def fma(a: Number, b: Number, c: Number) -> Scalar:
    """a * b + c, rounded once. Floats; of complex numbers as a * b + c is.

    >>> fma(load(0, "float32"), 2, 1)
    fma(x0, 2.0, 1.0)
    """
    first = next((value for value in (a, b, c) if isinstance(value, Scalar)), None)
    if first is not None and first.dtype in COMPLEX:
        return _binary("add", _binary("mul", a, b), c)
    if first is None or first.dtype not in FLOATS:
        raise TypeError(f"fma: needs floats, got {a!r}, {b!r}, {c!r}")
    args = tuple(_pair("fma", first, value)[1] for value in (a, b, c))
    return Scalar("fma", first.dtype, args)


def product(a: Number, b: Number) -> Scalar:
    """a * b, which a sum of floats adds unrounded: one instruction, where the processor has it.

    Anywhere else it is a * b. An operator says so of its own sums, which are then the same in whatever kernel they run.

    >>> product(load(0, "float32"), 2)
    product(x0, 2.0)
    """
    first, second = _pair("product", a, b)
    return Scalar(
        "product" if first.dtype in FLOATS or first.dtype in COMPLEX else "mul",
        _accepted("mul", first.dtype),
        (first, second),
    )


def where(condition: Scalar, a: Number, b: Number) -> Scalar:
    """a where the condition holds, else b. Both are computed."""
    if not isinstance(condition, Scalar) or condition.dtype != "bool":
        raise TypeError(f"where: the condition must be an expression of type bool, got {condition!r}")
    pair = _pair("where", a, b)
    return Scalar("where", pair[0].dtype, (condition, *pair))


def cast(a: Scalar, dtype: str) -> Scalar:
    """The same number as another type, as native/tensor/convert.h converts it; of a complex one the real part."""
    return a if a.dtype == dtype else Scalar("cast", dtype, (a,))


def bitcast(a: Scalar, dtype: str) -> Scalar:
    """The same bits as another type of the same size."""
    if BITS[a.dtype] != BITS.get(dtype, BITS[a.dtype]):
        raise TypeError(f"bitcast: {a.dtype} and {dtype} differ in size")
    if not COMPLEX.keys().isdisjoint((a.dtype, dtype)) and a.dtype != dtype:
        raise TypeError(f"bitcast: {a.dtype} and {dtype} differ in their number of parts")
    return a if a.dtype == dtype else Scalar("bitcast", dtype, (a,))


def call(name: str, *args: Number) -> Scalar:
    """A function of FUNCTIONS, UNARY or BINARY by name.

    >>> call("exp", load(0, "float32"))
    exp(x0)
    """
    if name not in FUNCTIONS and name not in UNARY and name not in BINARY:
        raise ValueError(f"no function {name!r}; there are: {', '.join(FUNCTIONS + UNARY + BINARY)}")
    count = 2 if name in BINARY or name in ("pow", "atan2") else 1
    if len(args) != count:
        raise TypeError(f"{name}: takes {count} operands, got {len(args)}")
    if count == 1:
        if not isinstance(args[0], Scalar):
            raise TypeError(f"{name}: expected an expression, got {type(args[0]).__name__}")
        return _unary(name, args[0])
    return _binary(name, *args)


def walk(*roots: Scalar, skipped: Container[int] = ()) -> list[Scalar]:
    """Every expression below the roots once, operands before what uses them.

    skipped: the ids of expressions that are left out, and with them what nothing else uses.
    """
    visited: set[int] = set()
    ordered: list[Scalar] = []
    stack: list[Any] = [*reversed(roots)]
    while stack:
        node = stack.pop()
        if node is None:  # the operands of the next one are through
            ordered.append(stack.pop())
        elif id(node) not in visited and id(node) not in skipped:
            visited.add(id(node))
            if node.args:
                stack += (node, None, *reversed(node.args))
            else:
                ordered.append(node)
    return ordered


def substitute(
    root: Scalar,
    replace: Callable[[Scalar], Scalar],
    rebuilt: dict[int, Scalar] | None = None,
    only_leaves: bool = False,
) -> Scalar:
    """The expression rebuilt again from its leaves up, each part p as replace(p).

    rebuilt: the new parts by the id of the old ones, for expressions that have parts in common; it is added to.
    only_leaves: replace gives all other parts back as they are.
    """
    rebuilt = {} if rebuilt is None else rebuilt
    for node in walk(root, skipped=rebuilt):
        args = tuple(map(rebuilt.__getitem__, map(id, node.args)))
        same = all(map(operator.is_, args, node.args))
        part = node if same else Scalar(node.op, node.dtype, args, node.value)
        rebuilt[id(node)] = part if only_leaves and args else replace(part)
    return rebuilt[id(root)]
