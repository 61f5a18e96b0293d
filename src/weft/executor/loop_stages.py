"""Splits loops into stages, so that several threads can share rows: one reduces pieces, another combines the results.

One long row is folded in pieces (`split_row`). Rows that are side by side, such as the channels of images, and on GPUs
few long rows, are gone through stage by stage (`split_stages`), each in pieces of all rows. Numbers of rows that
elements are computed with (a mean, 1 / sqrt(variance)) are then computed once for each row. On GPUs a long row is
scanned in pieces, too (`split_scan`).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from weft.base.typing import Any
from weft.expr import scalar as e
from weft.expr.kernel import Each, Fold, Once, Reduction, Scan, Store, parts

__all__ = ["split_row", "split_scan", "split_stages"]

Scalar = e.Scalar
OPERANDS = 22  # of a loop of the native core
_IDENTITY = {"sum": 0, "prod": 1}
"""What must be the start of a reduction that is begun more than once; of others, any."""
_COMBINED = {"sum": operator.add, "prod": operator.mul, "max": e.maximum, "min": e.minimum}


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


def split_scan(code: Any, kernel_of: Any) -> list[Any] | None:
    """The kernels that scan long rows in pieces, as one stage; None if they cannot be scanned so.

    ("scan", piece, part, join, types, is_reverse): part stores what each piece comes to, in these types, join what the
    pieces up to each come to; piece reads the inputs and what the pieces before it come to, and has the outputs. All go
    forward, with rows the other way round if is_reverse. Sums of float32 are handed on in float64.
    """
    match code.stages:
        case (Scan() as scan,) if _in_pieces(scan):
            pass
        case _:
            return None
    wide = {
        r.number: {"float32": "float64", "complex64": "complex128"}.get(r.value.dtype, r.value.dtype)
        if r.op == "sum"
        else r.value.dtype
        for r in scan.reductions
    }
    fold = Fold(
        tuple(Reduction(r.number, r.op, e.cast(r.value, wide[r.number]), r.start) for r in scan.reductions)
    )
    kinds = [wide[r.number] for r in scan.reductions]
    inputs, outputs = code.dtypes[: code.inputs], code.dtypes[code.inputs :]
    if max(len(inputs) + len(kinds) + len(outputs), 2 * len(kinds)) > OPERANDS:
        return None
    results = {}
    for k, r in enumerate(scan.reductions):
        so_far = _COMBINED[r.op](e.load(code.inputs + k, kinds[k]), e.result(r.number, kinds[k]))
        results[id(e.result(r.number, r.value.dtype))] = e.cast(so_far, r.value.dtype)
    stores = tuple(
        Store(s.operand, e.substitute(s.value, lambda node: results.get(id(node), node)), s.add)
        for s in scan.stores
    )
    part = code.row_of((*inputs, *kinds), (fold, _store_partials(fold)), code.inputs)
    combined = Scan(_combine_partials(fold).reductions, _store_partials(fold).stores)
    join = code.row_of((*kinds, *kinds), (combined,), len(kinds))
    piece = code.row_of(
        (*inputs, *kinds, *outputs), (Scan(fold.reductions, stores),), code.inputs + len(kinds)
    )
    return [("scan", kernel_of(piece), kernel_of(part), kernel_of(join), kinds, scan.reverse)]


def split_stages(
    code: Any, first_output: int, kernel_of: Any, in_any_order: bool = False
) -> list[Any] | None:
    """The stages as loops of their own, or None if they cannot be. first_output: the load of the first output.

    For each Fold ("fold", part, join, types of what a piece of a row comes to, types of numbers of rows, outputs): part
    reads the inputs, these outputs and the numbers of rows before it; join the pieces' results and these numbers, and
    makes new ones. For each Each or Once (name, loop, outputs), which reads the inputs, these outputs and all numbers
    of rows before it, and has all outputs. in_any_order: Folds may come behind other stages, and stages may read
    outputs that earlier ones have stored; else none do.
    """
    folds = [stage for stage in code.stages if isinstance(stage, Fold)]
    whole = in_any_order or all(isinstance(stage, Fold) for stage in code.stages[: len(folds)])
    if (
        not folds
        or not whole
        or not all(map(_in_pieces, folds))
        or not all(_is_plain(s, None if in_any_order else first_output) for s in code.stages)
    ):
        return None
    rest = [stage for stage in code.stages if not isinstance(stage, Fold)]
    numbers = iter(_numbers(folds, rest))
    inputs, results = code.dtypes[: code.inputs], code.dtypes[code.inputs :]
    loops: list[Any] = []
    row_values: list[Scalar] = []
    for stage in code.stages:
        outputs = _outputs_read(stage, first_output)
        reads = (*inputs, *(results[j] for j in outputs), *(v.dtype for v in row_values))
        read = _reader(row_values, code.inputs + len(outputs), [first_output + j for j in outputs])
        if isinstance(stage, Fold):
            kinds, new = [r.value.dtype for r in stage.reductions], next(numbers)
            part_fold = Fold(
                tuple(Reduction(r.number, r.op, read(r.value), r.start) for r in stage.reductions)
            )
            part = code.row_of((*reads, *kinds), (part_fold, _store_partials(stage)), len(reads))
            joined = (*kinds, *(v.dtype for v in row_values))
            read = _reader(row_values, len(kinds))
            stores = Once(tuple(Store(j, read(v)) for j, v in enumerate(new)))
            types = [v.dtype for v in new]
            join = code.row_of((*joined, *types), (_combine_partials(stage), stores), len(joined))
            loops.append(("fold", part, join, kinds, types, outputs))
            row_values += new
        else:
            own = type(stage)(tuple(Store(s.operand, read(s.value), s.add) for s in stage.stores))
            loop = code.row_of((*reads, *results), (own,), len(reads))
            loops.append(("each" if isinstance(stage, Each) else "once", loop, outputs))
    codes = [part for one in loops for part in one if isinstance(part, type(code))]
    if any(len(part.dtypes) > OPERANDS for part in codes):
        return None
    return [tuple(kernel_of(x) if isinstance(x, type(code)) else x for x in one) for one in loops]


def _in_pieces(fold: Fold | Scan) -> bool:
    """Whether a row may be folded or scanned in pieces, and their results in turn."""
    return all(
        r.op in ("sum", "prod", "max", "min") and _IDENTITY.get(r.op, r.start) == r.start
        for r in fold.reductions
    )


def _is_plain(stage: Any, first_output: int | None) -> bool:
    """Whether a stage has no order of positions, and reads nothing that was stored; None: or what was."""
    values = [part.value for part in parts(stage)]
    return isinstance(stage, Fold | Each | Once) and not any(
        node.op in ("load_at", "index")
        or (node.op == "load" and first_output is not None and node.value >= first_output)
        for node in e.walk(*values)
    )


def _outputs_read(stage: Any, first_output: int) -> list[int]:
    """The outputs that a stage loads."""
    nodes = e.walk(*(part.value for part in parts(stage)))
    return sorted({n.value - first_output for n in nodes if n.op == "load" and n.value >= first_output})


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


def _reader(row_values: Sequence[Scalar], first: int, loads: Sequence[int] = ()) -> Any:
    """A function that rewrites expressions to read these numbers as operands from the first one on.

    loads: operands that become those before it, in this order.
    """
    operand_of = {id(value): first + k for k, value in enumerate(row_values)}
    before = {load: first - len(loads) + k for k, load in enumerate(loads)}
    rewritten: dict[int, Scalar] = {}

    def read(node: Scalar) -> Scalar:
        new = rewritten.get(id(node))
        if new is None and id(node) in operand_of:
            new = e.load(operand_of[id(node)], node.dtype)
        elif new is None and node.op == "load" and node.value in before:
            new = e.load(before[node.value], node.dtype)
        elif new is None:
            args = tuple(map(read, node.args))
            same = all(map(operator.is_, args, node.args))
            new = node if same else Scalar(node.op, node.dtype, args, node.value)
        rewritten[id(node)] = new
        return new

    return read
