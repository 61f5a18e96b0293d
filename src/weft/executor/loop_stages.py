"""Splits loops into stages, so that several threads can share rows: one reduces pieces, another combines the results.

One long row is folded in pieces (`split_row`). Rows that are side by side, such as the channels of images, are gone
through stage by stage (`split_stages`), each in pieces of all rows. Numbers of rows that elements are computed with (a
mean, 1 / sqrt(variance)) are then computed once for each row.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from weft.base.typing import Any
from weft.expr import scalar as e
from weft.expr.kernel import Each, Fold, Once, Reduction, Store, parts

__all__ = ["split_row", "split_stages"]

Scalar = e.Scalar
OPERANDS = 22  # of a loop of the native core
_IDENTITY = {"sum": 0, "prod": 1}
"""What must be the start of a reduction that is begun more than once; of others, any."""


def split_row(code: Any, kernel_of: Any) -> Any:
    """The two kernels that fold one long row in pieces, and the types of what a piece comes to; None if it cannot be.

    For one Fold, and results that are stored once and need nothing else of the row.
    """
    match code.stages:
        case (Fold() as fold, Once(stores=stores)):
            pass
        case _:
            return None
    if not _in_pieces(fold) or any(node.op == "load" for store in stores for node in e.walk(store.value)):
        return None
    kinds = [r.value.dtype for r in fold.reductions]
    inputs, outputs = code.dtypes[: code.inputs], code.dtypes[code.inputs :]
    if len(kinds) + max(len(inputs), len(outputs)) > OPERANDS:
        return None
    part = code.row_of((*inputs, *kinds), (fold, _store_partials(fold)), code.inputs)
    join = code.row_of((*kinds, *outputs), (_combine_partials(fold), code.stages[1]), len(kinds))
    return kernel_of(part), kernel_of(join), kinds


def split_stages(code: Any, first_output: int) -> list[Any] | None:
    """The stages as Loops of their own, or None if they cannot be. first_output: the load of the first output.

    For each Fold ("fold", part, join, types of what a piece of a row comes to, types of numbers of rows): part reads
    the inputs and the numbers of rows before it; join the pieces' results and these numbers, and makes new ones. Then
    for each Each or Once (name, loop), which reads the inputs and all numbers of rows, and has all outputs.
    """
    folds = [stage for stage in code.stages if isinstance(stage, Fold)]
    rest = code.stages[len(folds) :]
    whole = all(isinstance(stage, Fold) for stage in code.stages[: len(folds)])
    if (
        not folds
        or not whole
        or not all(map(_in_pieces, folds))
        or not all(_is_plain(s, first_output) for s in code.stages)
    ):
        return None
    numbers = _numbers(folds, rest)
    inputs, outputs = code.dtypes[: code.inputs], code.dtypes[code.inputs :]
    loops: list[Any] = []
    row_values: list[Scalar] = []
    for fold, new in zip(folds, numbers, strict=True):
        kinds = [r.value.dtype for r in fold.reductions]
        reads = (*inputs, *(v.dtype for v in row_values))
        read = _reader(row_values, code.inputs)
        part_fold = Fold(tuple(Reduction(r.number, r.op, read(r.value), r.start) for r in fold.reductions))
        part = code.row_of((*reads, *kinds), (part_fold, _store_partials(fold)), len(reads))
        joined = (*kinds, *(v.dtype for v in row_values))
        read = _reader(row_values, len(kinds))
        stores = Once(tuple(Store(j, read(v)) for j, v in enumerate(new)))
        types = [v.dtype for v in new]
        join = code.row_of((*joined, *types), (_combine_partials(fold), stores), len(joined))
        if max(len(part.dtypes), len(join.dtypes)) > OPERANDS:
            return None
        loops.append(("fold", part.native(), join.native(), kinds, types))
        row_values += new
    reads = (*inputs, *(v.dtype for v in row_values))
    read = _reader(row_values, code.inputs)
    for stage in rest:
        stores = type(stage)(tuple(Store(s.operand, read(s.value), s.add) for s in stage.stores))
        loop = code.row_of((*reads, *outputs), (stores,), len(reads))
        if len(loop.dtypes) > OPERANDS:
            return None
        loops.append(("each" if isinstance(stage, Each) else "once", loop.native()))
    return loops


def _in_pieces(fold: Fold) -> bool:
    """Whether a row may be folded in pieces, and their results in turn."""
    return all(
        r.op in ("sum", "prod", "max", "min") and _IDENTITY.get(r.op, r.start) == r.start
        for r in fold.reductions
    )


def _is_plain(stage: Any, first_output: int) -> bool:
    """Whether a stage has no order of positions, and reads nothing that was stored."""
    values = [part.value for part in parts(stage)]
    return isinstance(stage, Fold | Each | Once) and not any(
        node.op in ("load_at", "index") or (node.op == "load" and node.value >= first_output)
        for node in e.walk(*values)
    )


def _store_partials(fold: Fold) -> Once:
    """Stores the results of a piece."""
    return Once(tuple(Store(j, e.result(r.number, r.value.dtype)) for j, r in enumerate(fold.reductions)))


def _combine_partials(fold: Fold) -> Fold:
    """Folds the results of pieces."""
    return Fold(
        tuple(
            Reduction(r.number, r.op, e.load(j, r.value.dtype), r.start)
            for j, r in enumerate(fold.reductions)
        )
    )


def _numbers(folds: Sequence[Fold], rest: Sequence[Any]) -> list[list[Scalar]]:
    """For each Fold, the numbers of rows that later stages read and that can be computed when it is done.

    The largest expressions that read results and no elements.
    """
    fold_of = {r.number: k for k, fold in enumerate(folds) for r in fold.reductions}
    needed: list[dict[int, Scalar]] = [{} for _ in folds]
    last_fold: dict[
        int, int
    ] = {}  # the last_fold Fold that an expression of numbers alone needs, by id; -1: none

    def need(node: Scalar) -> None:
        if last_fold.get(id(node), -1) >= 0:
            needed[last_fold[id(node)]][id(node)] = node

    for stage in (*folds, *rest):
        roots = [part.value for part in parts(stage)]
        for node in e.walk(*roots):
            if node.op == "result":
                last_fold[id(node)] = fold_of[node.value]
            elif node.op != "load" and all(id(arg) in last_fold for arg in node.args):
                last_fold[id(node)] = max((last_fold[id(arg)] for arg in node.args), default=-1)
            else:
                for arg in node.args:
                    need(arg)
        for root in roots:
            need(root)
    for k in reversed(range(len(folds))):  # what a number is computed from of earlier Folds
        for value in list(needed[k].values()):
            for node in e.walk(value):
                if node.op == "result" and last_fold[id(node)] < k:
                    need(node)
    return [list(numbers.values()) for numbers in needed]


def _reader(row_values: Sequence[Scalar], first: int) -> Any:
    """A function that rewrites expressions to read these numbers as operands from the first one on."""
    operand_of = {id(value): first + k for k, value in enumerate(row_values)}
    rewritten: dict[int, Scalar] = {}

    def read(node: Scalar) -> Scalar:
        new = rewritten.get(id(node))
        if new is None and id(node) in operand_of:
            new = e.load(operand_of[id(node)], node.dtype)
        elif new is None:
            args = tuple(map(read, node.args))
            same = all(map(operator.is_, args, node.args))
            new = node if same else Scalar(node.op, node.dtype, args, node.value)
        rewritten[id(node)] = new
        return new

    return read
