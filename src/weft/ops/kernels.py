"""Choices of kernels that operators offer to the planner: loops for the expression compiler, and native ones.

A Loop says what happens to one element or one row; the planner adds types of operands, write modes and neighbours. A
Native kernel is made by the native core, for exact sizes or for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.base.dtype import as_dtype
from weft.base.record import Record
from weft.base.typing import Any
from weft.expr import scalar as e
from weft.expr.kernel import Each, Fold, Once, Reduction, Scan, Stage, Store
from weft.ops.types import TensorType

__all__ = [
    "Decomposed",
    "Loop",
    "Native",
    "Parts",
    "Row",
    "Several",
    "View",
    "as_stored",
    "highest",
    "lowest",
    "pointwise_loop",
    "to_accumulation",
]

Scalar = e.Scalar

ROW_MAJOR, CHANNELS_LAST, LIKE_INPUT = "row_major", "channels_last", "like_input"
LARGE = 3
ANY = "any"  # strides: those that the kernel prefers

# Numbers of a random operator's kernel: the seed, the device's stream, the first position reserved; uint64.
KEY, STREAM, OFFSET = "key", "stream", "offset"
RESERVATION = ((KEY, "uint64"), (STREAM, "uint64"), (OFFSET, "uint64"))


See = Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[tuple[Any, ...], tuple[Any, ...], Any] | None]


class Loop(Record):
    """Stages over the positions of a space, the broadcast shape of the inputs.

    In the stages load(k) is input k (one that is missing is not loaded), index(d) the position in dimension d, stores
    go to operand `inputs + j` for output j, and parameter(k) is number k of `numbers`: a size, or a Runtime attribute's
    Value. axes: those that make up a row; an output that stages store Once has size 1 there (`kept` shape; the planner
    drops these dimensions if the operator does not keep them). ordered: positions in a row count (scans, arguments of
    extremes). Later stages may load(inputs + j): output j, as it was stored.
    place: of the shape and strides of each input the shapes and strides that it has in the space, and the numbers, for
    loops that gather: load_at(k, dtype, n) reads input k n elements behind the position of the space.
    """

    inputs: int
    stages: tuple[Stage, ...]
    axes: tuple[int, ...] = ()
    numbers: tuple[Any, ...] = ()
    ordered: bool = False
    place: Callable[[Sequence[Any]], tuple[Sequence[Any], tuple[Any, ...]]] | None = None


class Native(Record):
    """A kernel of the native core. make(inputs, outputs) gives a _core.Kernel; if it cannot take these, None, or raises
    NotImplementedError, as the native core does.

    It is called with (dtype name, shape, strides in elements) for every operand, with None for an input that is missing
    and for an output that is not read, if it is one of `optional`; the kernel then does not have that operand.
    exact: made for exact sizes; else make may get Sizes, and the kernel sees them when it runs.
    order: operand numbers, outputs after inputs, in the order that the kernel expects; None: all, in order.
    numbers: Values or numbers that become its parameters, as (value, dtype name).
    KEY, STREAM and OFFSET among them stand for what was reserved for a random operator.
    contiguous: inputs that must be row-major. Kernels request scratch memory by themselves.
    layouts: preferred layouts of the outputs, for the planner to choose strides before it calls make:
    ROW_MAJOR (also where nothing is said), CHANNELS_LAST, or LIKE_INPUT: channels last if the first input's elements
    are in that order. A view, or a place that another step prescribes, comes as it is.
    in_place: (input, output) pairs that may be the same memory.
    options: keywords that make also takes: accumulate (True: adds to the output), post_ops (what else to do with the
    result before it is written, as words of weft.kernels.cpu.epilogue; their operands are more inputs).
    wide: it opens parallel regions at all sizes.
    ordered: it may have effects that others of its kind see, so these run in the program's order.
    packed: (input, axes) of inputs that make also takes with ANY for strides: the kernel then says in which layout it
    prefers the input with its axes in that order; it is called where the input is prepared once for many runs.
    """

    make: Callable[[Sequence[Any], Sequence[Any]], Any]
    exact: bool = True
    order: tuple[int, ...] | None = None
    numbers: tuple[tuple[Any, str], ...] = ()
    contiguous: tuple[int, ...] = ()
    layouts: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    in_place: tuple[tuple[int, int], ...] = ()
    wide: bool = False
    optional: tuple[int, ...] = ()
    ordered: bool = False
    packed: tuple[tuple[int, tuple[int, ...]], ...] = ()

    def offer(self, inputs: Sequence[Any], outputs: Sequence[Any], **options: Any) -> Any:
        """What make gives; None if there is no kernel for these operands."""
        try:
            return self.make(inputs, outputs, **options)
        except NotImplementedError:
            return None


class Several(Record):
    """Choices for parts of the operands, all of which run, in any order: (choice, input numbers, output numbers) each.

    One program, one push. A part's operands are its inputs and outputs, counted from 0 as if there were no others.
    """

    parts: tuple[tuple[Loop | Native, tuple[int, ...], tuple[int, ...]], ...]


class Decomposed(Record):
    """What the operator is made of on this kind of device: function(*inputs) gives Values, as Op.decompose does."""

    function: Callable[..., Any]


class View(Record):
    """The output is a view of the first input: see(shape, strides) gives its shape, strides and offset in elements.

    None means that no view shows these elements; the planner then sees a contiguous copy.
    """

    see: See


class Parts(Record):
    """The output is put together from copies: (input number, see) copies that input into see's view of the output.

    Inputs have the shape of their view, or broadcast to it; they are converted to the output's type as cast does. They
    are copied in this order: where parts overlap, the last one stays. fill: what the rest of the output is filled with,
    a number or a Runtime attribute's Value; None: the parts cover all of it. With write mode "add" parts are added, and
    fill is added to the rest. Inputs that are not parts are not read; they only lend their shape. updates: the first
    part is all of input 0, of which the others, without an element twice in one of them, may be written over it.
    """

    parts: tuple[tuple[int, See], ...]
    fill: Any = None
    updates: bool = False


def pointwise_loop(
    types: Sequence[TensorType | None], results: Sequence[Scalar], numbers: Sequence[Any] = ()
) -> Loop:
    """A Loop that stores one result for each output at every position."""
    stores = tuple([Store(len(types) + k, result) for k, result in enumerate(results)])
    return Loop(len(types), (Each(stores),), numbers=tuple(numbers))


def to_accumulation(x: Scalar) -> Scalar:
    """A scalar in the type that reductions compute in: half types as float32, bool as int64.

    >>> to_accumulation(e.load(0, "float16")).dtype
    'float32'
    """
    return e.cast(x, as_dtype(x.dtype).accumulation.name)


def as_stored(x: Scalar) -> Scalar:
    """A scalar as memory would give it back: what is in no memory between two operators is rounded all the same.

    Half types are computed in float32, and rounded where an expression says so.

    >>> as_stored(e.load(0, "float16"))
    cast[float16](cast[float32](x0))
    """
    return e.cast(e.cast(x, "float32"), x.dtype) if x.dtype in e.HALVES else x


class Row:
    """Writes a row program: what is folded, stored at every position, stored once.

    Reductions that need nothing of each other share a pass over the row.

    >>> row = Row(inputs=1)
    >>> x = e.load(0, "float32")
    >>> top = row.max(x)
    >>> powers = e.call("exp", x - top)
    >>> row.each(0, powers / row.sum(powers))
    >>> [type(stage).__name__ for stage in row.loop((1,)).stages]
    ['Fold', 'Fold', 'Each']
    """

    def __init__(self, inputs: int, numbers: Sequence[Any] = ()) -> None:
        self.inputs = inputs
        self.stages: list[Any] = []
        self.numbers = list(numbers)
        self.ordered = False
        self._count = 0
        self._stage_of: dict[int, int] = {}

    def reduce(self, op: str, value: Scalar, start: float | int = 0) -> Scalar:
        """The row's values combined by a reduction of weft.expr.kernel."""
        parts = list(e.walk(value))
        after = max((self._stage_of[part.value] for part in parts if part.op == "result"), default=-1)
        if [part for part in parts if part.op == "load" and part.value >= self.inputs]:
            after = len(self.stages) - 1  # it reads what has been stored
        number, self._count = self._count, self._count + 1
        reduction = Reduction(number, op, value, start)
        for k in range(after + 1, len(self.stages)):
            if isinstance(self.stages[k], list):
                self.stages[k].append(reduction)
                self._stage_of[number] = k
                break
        else:
            self.stages.append([reduction])
            self._stage_of[number] = len(self.stages) - 1
        if op in ("argmax", "argmin"):
            self.ordered = True
        return e.result(number, reduction.dtype)

    def stored(self, output: int, dtype: str) -> Scalar:
        """An output's element, as an earlier each() stored it: for what costs more to compute again than to load."""
        return e.load(self.inputs + output, dtype)

    def sum(self, value: Scalar) -> Scalar:
        return self.reduce("sum", value, 0)

    def dot(self, a: Scalar, b: Scalar) -> Scalar:
        """The sum of a * b, each rounded only with the sum that it is added to."""
        return self.sum(e.product(a, b))

    def prod(self, value: Scalar) -> Scalar:
        return self.reduce("prod", value, 1)

    def max(self, value: Scalar) -> Scalar:
        return self.reduce("max", value, lowest(value.dtype))

    def min(self, value: Scalar) -> Scalar:
        return self.reduce("min", value, highest(value.dtype))

    def each(self, *values: Scalar) -> None:
        """Store at every position, one value for each of the first outputs."""
        self.stages.append(Each(self._stores(0, values)))

    def once(self, first: int, *values: Scalar) -> None:
        """Store once a row, one value for each output from the first one."""
        self.stages.append(Once(self._stores(first, values)))

    def scan(self, op: str, value: Scalar, start: float | int, dtype: str, reverse: bool = False) -> None:
        """Store at every position, as dtype into the first output, the row combined up to it and with it."""
        self.ordered = True
        number, self._count = self._count, self._count + 1
        stores = self._stores(0, (e.cast(e.result(number, value.dtype), dtype),))
        self.stages.append(Scan((Reduction(number, op, value, start),), stores, reverse))

    def _stores(self, first: int, values: tuple[Scalar, ...]) -> tuple[Store, ...]:
        return tuple(Store(self.inputs + first + k, value) for k, value in enumerate(values))

    def number(self, value: Any, dtype: str) -> Scalar:
        """A size or a Runtime attribute as a scalar of this type.

        In a computation of complex numbers it is real. Sizes that floats are divided by are given when the code runs,
        also where they are known: layers of different sizes then share code. Less than LARGE is a part of a formula,
        such as the correction of a variance.
        """
        dtype = e.COMPLEX.get(dtype, dtype)
        is_size = type(value) is int and dtype in e.FLOATS and abs(value) >= LARGE
        if isinstance(value, bool | int | float) and not is_size:
            return e.constant(value, dtype)
        self.numbers.append(value)
        return e.parameter(len(self.numbers) - 1, dtype)

    def loop(self, axes: tuple[int, ...]) -> Loop:
        stages = tuple(Fold(tuple(s)) if isinstance(s, list) else s for s in self.stages)
        return Loop(self.inputs, stages, axes, tuple(self.numbers), self.ordered)


def lowest(dtype: str) -> float | int:
    """The least value of a type: where a maximum begins.

    >>> lowest("int8"), lowest("float32")
    (-128, -inf)
    """
    if dtype in e.FLOATS:
        return float("-inf")
    return 0 if dtype in e.UNSIGNED or dtype == "bool" else -(2 ** (e.BITS[dtype] - 1))


def highest(dtype: str) -> float | int:
    """The greatest value of a type.

    >>> highest("uint8")
    255
    """
    if dtype in e.FLOATS:
        return float("inf")
    is_unsigned = dtype in e.UNSIGNED or dtype == "bool"
    return 2 ** e.BITS[dtype] - 1 if is_unsigned else 2 ** (e.BITS[dtype] - 1) - 1
