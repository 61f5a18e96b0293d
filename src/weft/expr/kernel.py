"""Kernels: loops over strided operands, with arithmetic on one element inside. What they mean, not how they are run.

>>> from weft.expr.kernel import Each, Kernel, Operand, Store
>>> from weft.expr.scalar import load
>>> x, y = load(0, "float32"), load(1, "float32")
>>> add = Kernel("add", 1, (Operand("float32"),) * 3, (Each((Store(2, x + y),)),))

A kernel has `rank` loops, outermost first. The innermost `row_rank` of them make up a row; for every row the stages
run one after the other, each over the whole row: Fold reduces it to numbers, Each stores an element for every position,
Once stores after a row. So one description holds pointwise kernels (a row of one loop, one Each), reductions (Fold,
Once) and softmax (Fold, Fold, Each). Sizes, strides and parameters are given when it runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from weft.expr.scalar import BITS, Scalar, walk

__all__ = ["Each", "Fold", "Kernel", "Once", "Operand", "Reduction", "Stage", "Store"]

REDUCTIONS = ("sum", "prod", "max", "min")


@dataclass(frozen=True)
class Operand:
    """One array: the name of its element type, and what is known of its stride in the loop that becomes vectors.

    inner: "unit", one element after the other; "zero", always the same one; "any", given when the kernel runs.
    """

    dtype: str
    inner: Literal["unit", "zero", "any"] = "unit"

    def __post_init__(self) -> None:
        if self.dtype not in BITS or self.inner not in ("unit", "zero", "any"):
            raise ValueError(f"operand: {self.dtype!r} or {self.inner!r} is not known")


@dataclass(frozen=True, eq=False)
class Store:
    """Writes value to an operand's element at the loops' position; add: adds it to what is there (bool: or)."""

    operand: int
    value: Scalar
    add: bool = False


@dataclass(frozen=True, eq=False)
class Reduction:
    """A row's values combined by sum, prod, max or min, from start. Later stages read it as result(number).

    Sums of float32 are kept in float64 from block to block, so that their error does not grow with the row's length.
    max and min are NaN if a value is.
    """

    number: int
    op: str
    value: Scalar
    start: float | int


@dataclass(frozen=True, eq=False)
class Each:
    """Stores at every position of the row; all values are computed before the first one is stored."""

    stores: tuple[Store, ...]


@dataclass(frozen=True, eq=False)
class Fold:
    """Reduces the row, all reductions in one pass."""

    reductions: tuple[Reduction, ...]


@dataclass(frozen=True, eq=False)
class Once:
    """Stores once after the row; loads read its first element."""

    stores: tuple[Store, ...]


Stage = Each | Fold | Once


@dataclass(frozen=True, eq=False)
class Kernel:
    """A name (letters, digits and _), its loops, operands and stages; see the module.

    lanes: which loop becomes vectors: the innermost one, or with lanes the last before the row, for rows whose elements
    lie far apart while neighbouring rows lie side by side. The result is the same.
    Raises ValueError if a part names an operand, dimension or result that does not exist, or types do not fit.
    """

    name: str
    rank: int
    operands: tuple[Operand, ...]
    stages: tuple[Stage, ...]
    row_rank: int = 1
    lanes: bool = False

    def __post_init__(self) -> None:
        if not (self.name.isidentifier() and self.name.isascii()):
            raise ValueError(f"kernel: the name must be an identifier, got {self.name!r}")
        if not 1 <= self.row_rank <= self.rank:
            raise ValueError(f"{self.name}: row_rank must be in 1..{self.rank}, got {self.row_rank}")
        if self.lanes and self.row_rank == self.rank:
            raise ValueError(f"{self.name}: lanes needs a loop before the row")
        found: dict[int, str] = {}
        for stage in self.stages:
            parts = stage.reductions if isinstance(stage, Fold) else stage.stores
            for part in parts:
                self._check(part.value, found)
            if isinstance(stage, Fold):
                for reduction in stage.reductions:
                    if reduction.op not in REDUCTIONS:
                        raise ValueError(
                            f"{self.name}: no reduction {reduction.op!r}; there are: {', '.join(REDUCTIONS)}"
                        )
                    if reduction.value.dtype in ("bool", "float16", "bfloat16"):
                        raise ValueError(
                            f"{self.name}: cannot reduce {reduction.value.dtype}; cast it to a wider type"
                        )
                    found[reduction.number] = reduction.value.dtype
            else:
                for store in stage.stores:
                    wanted = self._operand(store.operand).dtype
                    if store.value.dtype != wanted:
                        raise ValueError(
                            f"{self.name}: stores {store.value.dtype} into operand {store.operand}, {wanted}"
                        )

    def _operand(self, number: int) -> Operand:
        if not 0 <= number < len(self.operands):
            raise ValueError(f"{self.name}: there is no operand {number}")
        return self.operands[number]

    def _check(self, value: Scalar, found: dict[int, str]) -> None:
        for node in walk(value):
            if node.op in ("load", "load_at") and self._operand(node.value).dtype != node.dtype:
                raise ValueError(
                    f"{self.name}: operand {node.value} is {self.operands[node.value].dtype}, not {node.dtype}"
                )
            if node.op == "load_at" and len(node.args) != self.rank:
                raise ValueError(f"{self.name}: load_at needs {self.rank} positions, got {len(node.args)}")
            if node.op == "index" and not 0 <= node.value < self.rank:
                raise ValueError(f"{self.name}: there is no dimension {node.value}")
            if node.op == "result" and found.get(node.value) != node.dtype:
                raise ValueError(
                    f"{self.name}: result {node.value} is {found.get(node.value, 'not there yet')}, not {node.dtype}"
                )
