"""Kernels: loops over strided operands, with arithmetic on one element inside. What they mean, not how they are run.

>>> from weft.expr.kernel import Each, Kernel, Operand, Store
>>> from weft.expr.scalar import load
>>> x, y = load(0, "float32"), load(1, "float32")
>>> add = Kernel("add", 1, (Operand("float32"),) * 3, (Each((Store(2, x + y),)),))

A kernel has `rank` loops, outermost first. The innermost `row_rank` of them make up a row; for every row the stages
run one after the other, each over the whole row: Fold reduces it to numbers, Each stores an element for every position,
Scan stores what the row comes to up to each position, Once stores after a row. So one description holds pointwise
kernels (a row of one loop, one Each), reductions (Fold, Once) and softmax (Fold, Fold, Each). Sizes, strides and
parameters are given when it runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from weft.base.record import Record
from weft.base.typing import Any, Literal
from weft.expr.scalar import BITS, Scalar, walk

__all__ = ["Chain", "Each", "Fold", "Kernel", "Once", "Operand", "Reduction", "Scan", "Stage", "Store"]

SCANS = ("sum", "prod", "max", "min")
POSITIONS = ("argmax", "argmin")
REDUCTIONS = SCANS + POSITIONS


class Operand(Record):
    """One array: the name of its element type, and what is known of its stride in the loop that becomes vectors.

    inner: "unit", one element after the other; "reverse", one element before the other; "zero", always the same one;
    "any", given when the kernel runs; "step", as many elements as step says; "cross", given when it runs, while the
    stride in the loop Kernel.cross is one element.
    gathered: how many dimensions it has besides the loops, where load_at(operand, type, *positions) reads at the loops'
    position and at computed ones; 0 if none. take(x, indices, axis) has no loop along x's axis, whose stride in the
    loop of the indices is 0, and gathered=1. is_flat: load_at has one position, which counts elements of memory, so
    that no stride is given for it.
    along: where rows have a constant length, the elements from one position of the row to the next; None: the stride
    is given when the kernel runs.
    """

    dtype: str
    inner: Literal["unit", "reverse", "zero", "any", "step", "cross"] = "unit"
    gathered: int = 0
    is_flat: bool = False
    step: int = 0
    along: int | None = None

    def check(self) -> None:
        if self.dtype not in BITS or self.inner not in ("unit", "reverse", "zero", "any", "step", "cross"):
            raise ValueError(f"operand: {self.dtype!r} or {self.inner!r} is not known")
        if (self.inner == "step") != (self.step > 1):
            raise ValueError(f"operand: {self.inner!r} with a step of {self.step}")
        if self.gathered < 0:
            raise ValueError(f"operand: gathered must be at least 0, got {self.gathered}")


class Store(Record):
    """Writes value to an operand's element at the loops' position; add: adds it to what is there (bool: or).

    at: positions in the dimensions of a gathered operand, as load_at has them; only code for threads writes there, and
    there a thread goes through the elements of a row in their order.
    """

    operand: int
    value: Scalar
    add: bool = False
    at: tuple[Scalar, ...] = ()


class Reduction(Record):
    """A row's values combined by sum, prod, max or min, from start. Later stages read it as result(number).

    Sums of float32 are kept in float64 from block to block, so that their error does not grow with the row's length.
    max and min are NaN if a value is. argmax and argmin are the position in the row, int64, of the first largest or
    smallest value, or of the first NaN if there is one; they have no start, and are 0 for an empty row. A sum of
    product(a, b) rounds with each addition, not before it.
    """

    number: int
    op: str
    value: Scalar
    start: float | int = 0

    @property
    def dtype(self) -> str:
        """The result's type."""
        return "int64" if self.op in POSITIONS else self.value.dtype


class Each(Record):
    """Stores at every position of the row; all values are computed before the first one is stored."""

    stores: tuple[Store, ...]


class Fold(Record):
    """Reduces the row, all reductions in one pass."""

    reductions: tuple[Reduction, ...]


class Scan(Record):
    """Stores at every position of the row, where result(number) is the row combined up to it and with it.

    By sum, prod, max or min, each from its start. reverse: from the row's end. Only its own stores read the results.
    Sums of float32 are carried in float64, so that their error does not grow with the row's length.
    """

    reductions: tuple[Reduction, ...]
    stores: tuple[Store, ...]
    reverse: bool = False


class Once(Record):
    """Stores once after the row; loads read its first element."""

    stores: tuple[Store, ...]


class Chain(Record):
    """Goes through the row in its order with numbers that it carries from position to position, and stores at each.

    state(k) is starts[k] at the first position, and what news[k] was at the one before at others; starts are computed
    at the first position. reverse: from the row's end. Only code for threads has it, a thread for each row; then all
    stages of the kernel are such.
    """

    starts: tuple[Scalar, ...]
    news: tuple[Scalar, ...]
    stores: tuple[Store, ...]
    reverse: bool = False

    def check(self) -> None:
        if [x.dtype for x in self.starts] != [x.dtype for x in self.news]:
            raise TypeError("chain: news need the types of starts")


Stage = Each | Fold | Scan | Once | Chain


def values(stage: Stage) -> tuple[Scalar, ...]:
    """What a stage computes: values of its reductions and stores, where it stores, and what it carries."""
    positions = (p for part in parts(stage) if isinstance(part, Store) for p in part.at)
    carried = (*stage.starts, *stage.news) if isinstance(stage, Chain) else ()
    return (*(part.value for part in parts(stage)), *positions, *carried)


def parts(stage: Stage) -> tuple[Reduction | Store, ...]:
    """A stage's reductions and stores, in the order they are computed."""
    reductions = stage.reductions if isinstance(stage, Fold | Scan) else ()
    return (*reductions, *(() if isinstance(stage, Fold) else stage.stores))


def with_parts(
    stage: Any, reduction: Callable[[Reduction], Reduction], store: Callable[[Store], Store]
) -> Any:
    """The stage with other reductions and stores; not for a Chain, which has more."""
    assert not isinstance(stage, Chain), "a chain's numbers would stay as they are"
    if isinstance(stage, Fold):
        return Fold(tuple(map(reduction, stage.reductions)))
    if isinstance(stage, Scan):
        return Scan(tuple(map(reduction, stage.reductions)), tuple(map(store, stage.stores)), stage.reverse)
    return type(stage)(tuple(map(store, stage.stores)))


class Kernel(Record):
    """A name (letters, digits and _), its loops, operands and stages; see the module.

    lanes: which loop becomes vectors: the innermost one, or with lanes the last before the row, for rows whose elements
    are far apart while neighbouring rows are side by side. The result is the same.
    cross: a loop before the innermost one in which some operands have one element after the other ("cross"), while
    others have in the innermost one: these two loops run in tiles, and operands are transposed on the way. Only for
    one Each of rows of one loop, where no "cross" operand is gathered. The order of positions is undefined.
    streaming: results that only one Each stores, and nothing loads, are stored past the cache, in whole lines of it.
    The caller aligns them to 64 bytes at every turn of the other loops. Ignored if cross is given.
    length: of all rows, if they are short and it is constant; 0: it is given when the kernel runs. Needs lanes.
    Raises ValueError if a part names an operand, dimension or result that does not exist, or types do not fit.
    """

    name: str
    rank: int
    operands: tuple[Operand, ...]
    stages: tuple[Stage, ...]
    row_rank: int = 1
    lanes: bool = False
    cross: int | None = None
    streaming: bool = False
    length: int = 0

    @property
    def only_stored(self) -> frozenset[int]:
        """The operands that one Each stores, once, and that nothing else touches."""
        computed = [value for stage in self.stages for value in values(stage)]
        read = {node.value for node in walk(*computed) if node.op in ("load", "load_at")}
        stores = [(stage, part) for stage in self.stages for part in parts(stage) if isinstance(part, Store)]
        count = Counter(store.operand for _, store in stores)
        return frozenset(
            store.operand
            for stage, store in stores
            if isinstance(stage, Each)
            and not store.add
            and store.operand not in read
            and count[store.operand] == 1
        )

    @property
    def streaming_operands(self) -> frozenset[int]:
        """The operands that are written with streaming stores whatever their sizes are."""
        if not self.streaming or self.cross is not None:
            return frozenset()
        return frozenset(k for k in self.only_stored if self.operands[k].inner == "unit")

    @property
    def indexed(self) -> frozenset[int]:
        """The loops whose position index() reads: a caller that splits one of them would have it start at 0 again."""
        computed = (value for stage in self.stages for value in values(stage))
        return frozenset(node.value for node in walk(*computed) if node.op == "index")

    @property
    def is_serial(self) -> bool:
        """Whether a thread goes through each row in its order: it stores at computed positions, or carries numbers."""
        return any(
            isinstance(stage, Chain) or any(isinstance(p, Store) and p.at for p in parts(stage))
            for stage in self.stages
        )

    def check(self) -> None:
        if not (self.name.isidentifier() and self.name.isascii()):
            raise ValueError(f"kernel: the name must be an identifier, got {self.name!r}")
        if not 1 <= self.row_rank <= self.rank:
            raise ValueError(f"{self.name}: row_rank must be in 1..{self.rank}, got {self.row_rank}")
        if self.lanes and self.row_rank == self.rank:
            raise ValueError(f"{self.name}: lanes needs a loop before the row")
        if self.length and not (self.lanes and self.row_rank == 1):
            raise ValueError(f"{self.name}: a constant length is for lanes, and rows of one loop")
        self._check_cross()
        result_types: dict[int, str] = {}
        for stage in self.stages:
            before = dict(result_types)
            if isinstance(stage, Chain):
                for value in (*stage.starts, *stage.news):
                    self._check(value, result_types)
            for part in parts(stage):
                self._check(part.value, before if isinstance(part, Reduction) else result_types)
                if isinstance(part, Store):
                    self._check_store(part)
                    for position in part.at:
                        self._check(position, result_types)
                else:
                    self._check_reduction(part, SCANS if isinstance(stage, Scan) else REDUCTIONS)
                    if part.number in result_types:
                        raise ValueError(f"{self.name}: there are two results {part.number}")
                    result_types[part.number] = part.dtype
            if isinstance(stage, Scan):
                result_types = before

    def _check_cross(self) -> None:
        crossing = [operand for operand in self.operands if operand.inner == "cross"]
        if self.cross is None:
            if crossing:
                raise ValueError(f"{self.name}: an operand is 'cross', but no loop is")
            return
        if not 0 <= self.cross < self.rank - 1:
            raise ValueError(f"{self.name}: cross must be a loop before the innermost one, got {self.cross}")
        plain = len(self.stages) == 1 and isinstance(self.stages[0], Each)
        if not plain or self.row_rank != 1 or self.lanes or any(operand.gathered for operand in crossing):
            raise ValueError(
                f"{self.name}: cross is for one Each of rows of one loop, without gathered operands"
            )

    def _check_store(self, store: Store) -> None:
        operand = self._operand(store.operand)
        if store.value.dtype != operand.dtype:
            raise ValueError(
                f"{self.name}: stores {store.value.dtype} into operand {store.operand}, {operand.dtype}"
            )
        if operand.gathered != len(store.at):
            raise ValueError(
                f"{self.name}: a store into operand {store.operand} needs {operand.gathered} positions, "
                f"got {len(store.at)}"
            )

    def _check_reduction(self, reduction: Reduction, accepted: tuple[str, ...]) -> None:
        if reduction.op not in accepted:
            raise ValueError(f"{self.name}: no reduction {reduction.op!r}; there are: {', '.join(accepted)}")
        if reduction.value.dtype in ("bool", "float16", "bfloat16"):
            raise ValueError(f"{self.name}: cannot reduce {reduction.value.dtype}; cast it to a wider type")

    def _operand(self, number: int) -> Operand:
        if not 0 <= number < len(self.operands):
            raise ValueError(f"{self.name}: there is no operand {number}")
        return self.operands[number]

    def _check(self, value: Scalar, result_types: dict[int, str]) -> None:
        for node in walk(value):
            if node.op in ("load", "load_at") and self._operand(node.value).dtype != node.dtype:
                raise ValueError(
                    f"{self.name}: operand {node.value} is {self.operands[node.value].dtype}, not {node.dtype}"
                )
            if node.op == "load_at" and len(node.args) != (expected := self.operands[node.value].gathered):
                raise ValueError(f"{self.name}: load_at needs {expected} positions, got {len(node.args)}")
            if node.op == "index" and not 0 <= node.value < self.rank:
                raise ValueError(f"{self.name}: there is no dimension {node.value}")
            if node.op == "result" and result_types.get(node.value) != node.dtype:
                dtype = result_types.get(node.value, "not there yet")
                raise ValueError(f"{self.name}: result {node.value} is {dtype}, not {node.dtype}")
