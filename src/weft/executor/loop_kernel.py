"""Loops of the native core: equal ones are one object; code is compiled for the patterns that turn up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import _core
from weft.expr import scalar as e
from weft.expr.functions import expand
from weft.expr.kernel import Fold, Kernel, Once, Operand, Reduction, Scan, Store, parts

__all__ = ["OUTPUTS", "loop_kernel", "with_parts"]

Scalar = e.Scalar
OUTPUTS = 1000  # load(OUTPUTS + j) is output j, while it is not known how many inputs come before it


def with_parts(
    stage: Any, reduction: Callable[[Reduction], Reduction], store: Callable[[Store], Store]
) -> Any:
    """The stage with other reductions and stores."""
    if isinstance(stage, Fold):
        return Fold(tuple(map(reduction, stage.reductions)))
    if isinstance(stage, Scan):
        return Scan(tuple(map(reduction, stage.reductions)), tuple(map(store, stage.stores)), stage.reverse)
    return type(stage)(tuple(map(store, stage.stores)))


_kernels: dict[Any, Any] = {}


def loop_kernel(
    name: str,
    rank: int,
    dtypes: Sequence[str],
    stages: Sequence[Any],
    inputs: int,
    row_axes: int,
    ordered: bool,
) -> Any:
    """The native Loop of these stages; equal ones are one object, and share their compiled code.

    Stores in the stages count outputs from 0. row_axes: bit d is dimension d, counted from the last.
    """
    fixed = any(node.op == "index" for stage in stages for p in parts(stage) for node in e.walk(p.value))
    key = (rank if fixed else 0, tuple(dtypes), tuple(map(_stage_key, stages)), inputs, row_axes, ordered)
    found = _kernels.get(key)
    if found is None:
        prepared = [_prepared(stage, inputs, rank, row_axes if fixed else 0) for stage in stages]
        compile_ = _Compile(name, tuple(dtypes), tuple(prepared))
        split = None if fixed or ordered else _split(name, dtypes, stages, inputs)
        found = _core.make_loop(len(dtypes), inputs, row_axes, fixed, ordered, compile_, split)
        if len(_kernels) > 8192:
            _kernels.clear()
        _kernels[key] = found
    return found


_IDENTITY = {"sum": 0, "prod": 1}
"""What must be the start of a reduction that is begun more than once; of others, any."""


def _split(name: str, dtypes: Sequence[str], stages: Sequence[Any], inputs: int) -> Any:
    """The two Loops that fold one long row in pieces, and the types of what a piece comes to; None if it cannot be.

    For one Fold, and results that are stored once and need nothing else of the row.
    """
    match stages:
        case [Fold(reductions=reductions), Once(stores=stores)]:
            pass
        case _:
            return None
    if any(r.op not in ("sum", "prod", "max", "min") for r in reductions) or any(
        _IDENTITY.get(r.op, r.start) != r.start for r in reductions
    ):
        return None
    if any(node.op == "load" for store in stores for node in e.walk(store.value)):
        return None
    found = [r.value.dtype for r in reductions]
    kept = Once(
        tuple(Store(j, e.result(r.number, t)) for j, (r, t) in enumerate(zip(reductions, found, strict=True)))
    )
    again = Fold(
        tuple(
            Reduction(r.number, r.op, e.load(j, t), r.start)
            for j, (r, t) in enumerate(zip(reductions, found, strict=True))
        )
    )
    part = loop_kernel(name, 1, [*dtypes[:inputs], *found], [stages[0], kept], inputs, 1, True)
    join = loop_kernel(name, 1, [*found, *dtypes[inputs:]], [again, stages[1]], len(found), 1, True)
    return part, join, found


def _stage_key(stage: Any) -> Any:
    described = tuple(
        (p.number, p.op, _Same(p.value), p.start)
        if isinstance(p, Reduction)
        else (p.operand, _Same(p.value), p.add)
        for p in parts(stage)
    )
    return type(stage).__name__, getattr(stage, "reverse", False), described


class _Same:
    """A Scalar as a key: equal expressions are one object, and their == builds another expression."""

    __slots__ = ("scalar",)

    def __init__(self, scalar: Scalar) -> None:
        self.scalar = scalar

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.scalar is self.scalar

    def __hash__(self) -> int:
        return id(self.scalar)


def _prepared(stage: Any, inputs: int, rank: int, row_axes: int) -> Any:
    """The stage with outputs behind the inputs, and functions and half types written in what code is made of."""
    order = [d for d in range(rank) if not row_axes >> (rank - 1 - d) & 1]
    order += [d for d in range(rank) if row_axes >> (rank - 1 - d) & 1]
    place = {d: k for k, d in enumerate(order)}

    def position(part: Scalar) -> Scalar:
        if part.op == "index" and row_axes:
            return e.index(place[part.value])
        if part.op == "load" and part.value >= OUTPUTS:
            return e.load(inputs + part.value - OUTPUTS, part.dtype)
        return part

    def finished(root: Scalar) -> Scalar:
        return expand(e.substitute(root, position))

    return with_parts(
        stage,
        lambda r: Reduction(r.number, r.op, finished(r.value), r.start),
        lambda s: Store(inputs + s.operand, finished(s.value), s.add),
    )


class _Compile:
    """Makes a Loop's code for one pattern: what the native core calls when it meets a new one."""

    def __init__(self, name: str, dtypes: tuple[str, ...], stages: tuple[Any, ...]) -> None:
        self.name, self.dtypes, self.stages = name, dtypes, stages

    def __call__(self, rank: int, row_rank: int, lanes: bool, tile: int, inner: str) -> tuple[int, Any]:
        from weft.expr.compiler import compile_kernel

        words: dict[str, Any] = {"u": "unit", "z": "zero", "a": "any", "c": "cross"}
        operands = tuple(Operand(d, words[c]) for d, c in zip(self.dtypes, inner, strict=True))
        kernel = Kernel(
            _identifier(self.name), rank, operands, self.stages, row_rank, lanes, tile if tile >= 0 else None
        )
        made = compile_kernel(kernel)
        return made.address, made


def _identifier(name: str) -> str:
    """A symbol for the code. Not the name alone: compiled code calls C functions of names such as fmod."""
    return "loop_" + "".join(c if c.isalnum() and c.isascii() else "_" for c in name)
