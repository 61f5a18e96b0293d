"""Code of native loops: equal loops share one object, and code is compiled for each memory pattern that occurs."""

from __future__ import annotations

import functools

from weft import _core
from weft.base import events
from weft.base.exact import Same
from weft.base.process import at_end
from weft.base.record import Record
from weft.base.typing import Any
from weft.expr import scalar as e
from weft.expr.kernel import Each, Fold, Kernel, Operand, Reduction, Scan, Store, parts, with_parts

__all__ = ["OUTPUTS", "LoopCode"]

Scalar = e.Scalar
GATHERS = 1 << 31  # among position_axes: LoopForm::kGathers of the native core
OUTPUTS = 1000  # load(OUTPUTS + j) is output j, while it is not known how many inputs come before it

_kernels: dict[Any, Any] = {}
at_end(_kernels.clear)  # the native core refers to functions of weft for ever, and so to this module


class LoopCode(Record):
    """A loop's code, before the memory pattern of its operands is known.

    dtypes: of inputs, then outputs. Stores in the stages count outputs from 0. row_axes: bit d is dimension d, counted
    from the last. rank: of the positions, which counts only where code reads them.
    """

    name: str
    rank: int
    dtypes: tuple[str, ...]
    stages: tuple[Any, ...]
    inputs: int
    row_axes: int
    ordered: bool

    @property
    def position_axes(self) -> int:
        """The dimensions along which code reads its position, as row_axes. If any, all keep number and order.

        GATHERS beside them: elements are read at computed positions, so tiles and results in place are out of question.
        """
        axes = 0
        for node in e.walk(*[part.value for stage in self.stages for part in parts(stage)]):
            if node.op == "index":
                axes |= 1 << self.rank - 1 - node.value
            elif node.op == "load_at":
                axes |= GATHERS
        return axes

    def native(self) -> Any:
        """The native Loop; equal codes have one, and so share their machine code."""
        position_axes = self.position_axes
        stages = tuple(map(_stage_key, self.stages))
        key = (
            self.rank if position_axes & ~GATHERS else 0,
            self.dtypes,
            stages,
            self.inputs,
            self.row_axes,
            self.ordered,
        )
        kernel = _kernels.get(key)
        if kernel is None:
            folds = self.folds
            rows, stage_loops = (
                (self.split_row(LoopCode.native), self.split_stages) if folds else (None, None)
            )
            kernel = _core.make_loop(
                len(self.dtypes),
                self.inputs,
                self.row_axes,
                position_axes,
                self.ordered,
                self.compile,
                rows,
                stage_loops,
            )
            _keep(key, kernel)
        return kernel

    def for_threads(self, is_whole: bool = True) -> Any:
        """The native ThreadLoop, which launches the code on a GPU; equal codes have one.

        is_whole: few long rows are several launches' work, whose codes are not split up further.
        """
        stages = tuple(map(_stage_key, self.stages))
        position_axes = self.position_axes
        if position_axes & GATHERS:  # strides of gathered dimensions are given for the dimensions as they are
            position_axes += (1 << self.rank) - GATHERS
        rank = self.rank if position_axes else 0
        key = ("threads", is_whole, rank, self.dtypes, stages, self.inputs, self.row_axes, self.ordered)
        kernel = _kernels.get(key)
        if kernel is None:
            from weft.expr.launches import product_operands
            from weft.expr.llvm_threads import read_again

            joins = (
                len(self.stages) == 1
                and isinstance(self.stages[0], Each)
                and not any(store.add for store in self.stages[0].stores)
            )
            kernel = _core.make_thread_loop(
                len(self.dtypes),
                self.inputs,
                self.row_axes,
                position_axes,
                self.ordered,
                joins,
                not position_axes and bool(read_again(self.stages)),
                product_operands(self.stages),
                self.compile_for_threads,
                *(self.pieces_for_threads() if is_whole and not position_axes else (None, None)),
            )
            _keep(key, kernel)
        return kernel

    def pieces_for_threads(self) -> tuple[Any, Any]:
        """What folds long rows in pieces, or else a function that makes what goes through them stage by stage.

        The native core calls that when it needs it.
        """
        if self.folds and (rows := self.split_row(LoopCode.part_for_threads)):
            return rows, None
        if self.folds:
            return None, functools.partial(LoopCode.split_stages, self, LoopCode.part_for_threads, True)
        return None, self.split_scan if isinstance(self.stages[0], Scan) else None

    def part_for_threads(self) -> Any:
        """The native ThreadLoop of a part of the work on long rows."""
        return self.for_threads(is_whole=False)

    @property
    def folds(self) -> bool:
        """Whether rows are folded first, and may be in any order."""
        return not self.position_axes & ~GATHERS and not self.ordered and isinstance(self.stages[0], Fold)

    def split_row(self, kernel_of: Any) -> Any:
        """What folds one long row in pieces, if it can be; kernel_of: makes a kernel of a code."""
        from weft.executor import loop_stages

        return loop_stages.split_row(self, kernel_of)

    def split_stages(self, kernel_of: Any = None, in_any_order: bool = False) -> Any:
        """The stages as loops of their own, if they can be; the native core calls it when it needs them."""
        from weft.executor import loop_stages

        return loop_stages.split_stages(self, OUTPUTS, kernel_of or LoopCode.native, in_any_order)

    def split_scan(self) -> Any:
        """What scans long rows in pieces on a GPU, if it can be; the native core calls it when it needs it."""
        from weft.executor import loop_stages

        return loop_stages.split_scan(self, LoopCode.part_for_threads)

    def row_of(self, dtypes: tuple[str, ...], stages: tuple[Any, ...], inputs: int) -> LoopCode:
        """A part of the work on a row, which is not split up further."""
        return LoopCode(self.name, 1, dtypes, stages, inputs, 1, True)

    def kernel(
        self, rank: int, row_rank: int, lanes: bool, tile: int, inner: str, streaming: bool = False
    ) -> Kernel:
        """The kernel for one pattern; inner: how operands move, as the native core's LoopPattern::letters says."""
        inner, length, along = _moves(inner)
        words: dict[str, Any] = {"u": "unit", "z": "zero", "a": "any", "c": "cross", "r": "reverse"}
        nodes = e.walk(*[part.value for stage in self.stages for part in parts(stage)])
        gathered = {node.value for node in nodes if node.op == "load_at"}
        operands = tuple(
            Operand(d, "step", step=ord(c) - ord("A"), along=move)
            if c.isupper()
            else Operand(d, words[c], int(k in gathered), k in gathered, along=move)
            for k, (d, c, move) in enumerate(zip(self.dtypes, inner, along, strict=True))
        )
        row_axes = self.row_axes if self.position_axes else 0
        stages = tuple(_lowered(stage, self.inputs, self.rank, row_axes) for stage in self.stages)
        if not e.COMPLEX.keys().isdisjoint(p.value.dtype for stage in self.stages for p in parts(stage)):
            stages = _with_parts_of_sums(stages)
        name = _identifier(self.name)
        cross = tile if tile >= 0 else None
        return Kernel(name, rank, operands, stages, row_rank, lanes, cross, streaming, length)

    @events.noted("compile", lambda self, *_, **__: self.name)
    def compile(
        self, rank: int, row_rank: int, lanes: bool, tile: int, inner: str, streaming: bool
    ) -> tuple[int, Any]:
        """The address of the code for one pattern, and its owner; the native core calls it for a new pattern."""
        from weft.expr.compiler import compile_kernel

        compiled = compile_kernel(self.kernel(rank, row_rank, lanes, tile, inner, streaming))
        return compiled.address, compiled

    @events.noted("compile", lambda self, *_, **__: self.name)
    def compile_for_threads(
        self,
        chip: str,
        rank: int,
        row_rank: int,
        lanes: bool,
        inner: str,
        row_bits: int,
        is_narrow: bool,
        width: int,
        pairs: tuple[int, int, int],
        is_gated: bool,
    ) -> tuple[bytes, str, int, int, int, int]:
        """Code for one pattern on a kind of GPU (weft.expr.launches); the native core calls it for a new pattern."""
        from weft.expr.launches import launched

        kernel = self.kernel(rank, row_rank, lanes, -1, inner)
        return launched(kernel, chip, row_bits, is_narrow, width, pairs, is_gated)


def _moves(letters: str) -> tuple[str, int, list[int | None]]:
    """Letters of the operands, the length of short rows, and each operand's steps in them.

    >>> _moves("uD3aB"), _moves("uz")
    (('uD', 3, [None, 1]), ('uz', 0, [None, None]))
    """
    at = next((k for k, c in enumerate(letters) if c.isdigit()), len(letters))
    inner, length, along = letters[:at], letters[at : at + 1], letters[at + 1 :]
    moves = [None if c == "a" else ord(c) - ord("A") for c in along]
    return inner, int(length or 0), moves or [None] * len(inner)


def _keep(key: Any, kernel: Any) -> None:
    if len(_kernels) > 8192:
        _kernels.clear()
    _kernels[key] = kernel


def _stage_key(stage: Any) -> Any:
    described = [
        (p.number, p.op, Same(p.value), p.start)
        if isinstance(p, Reduction)
        else (p.operand, Same(p.value), p.add)
        for p in parts(stage)
    ]
    return type(stage).__name__, getattr(stage, "reverse", False), tuple(described)


def _lowered(stage: Any, inputs: int, rank: int, row_axes: int) -> Any:
    """The stage with outputs numbered behind the inputs, and functions and half types in basic operations."""
    order = [d for d in range(rank) if not row_axes >> (rank - 1 - d) & 1]
    order += [d for d in range(rank) if row_axes >> (rank - 1 - d) & 1]
    loop_of = {d: k for k, d in enumerate(order)}

    def replace(part: Scalar) -> Scalar:
        if part.op == "index" and row_axes:
            return e.index(loop_of[part.value])
        if part.op == "load" and part.value >= OUTPUTS:
            return e.load(inputs + part.value - OUTPUTS, part.dtype)
        return part

    def lowered(root: Scalar) -> Scalar:
        return _expanded(e.substitute(root, replace))

    return with_parts(
        stage,
        lambda r: Reduction(r.number, r.op, lowered(r.value), r.start),
        lambda s: Store(inputs + s.operand, lowered(s.value), s.add),
    )


IMAGINARY = 1 << 16  # result(n + IMAGINARY) is the imaginary part of a sum n of complex numbers


def _with_parts_of_sums(stages: tuple[Any, ...]) -> tuple[Any, ...]:
    """The stages with two real sums for each sum of complex numbers: these become vectors."""
    reductions = [p for stage in stages for p in parts(stage) if isinstance(p, Reduction)]
    sums = {r.number for r in reductions if r.op == "sum" and r.value.dtype in e.COMPLEX}

    def replace(node: Scalar) -> Scalar:
        if node.op == "result" and node.value in sums:
            kind = e.COMPLEX[node.dtype]
            return e.complex_number(e.result(node.value, kind), e.result(node.value + IMAGINARY, kind))
        if node.op in ("real", "imag"):
            return e.real(node.args[0]) if node.op == "real" else e.imag(node.args[0])
        return node

    def in_two(r: Reduction) -> tuple[Reduction, ...]:
        if r.number not in sums:
            return (r,)
        start = complex(r.start)
        return (
            Reduction(r.number, "sum", e.real(r.value), start.real),
            Reduction(r.number + IMAGINARY, "sum", e.imag(r.value), start.imag),
        )

    def split(stage: Any) -> Any:
        stage = with_parts(
            stage,
            lambda r: Reduction(r.number, r.op, e.substitute(r.value, replace), r.start),
            lambda s: Store(s.operand, e.substitute(s.value, replace), s.add),
        )
        if isinstance(stage, Fold):
            return Fold(tuple(part for r in stage.reductions for part in in_two(r)))
        if isinstance(stage, Scan):
            return Scan(
                tuple(part for r in stage.reductions for part in in_two(r)), stage.stores, stage.reverse
            )
        return stage

    return tuple(map(split, stages))


def _expanded(root: Scalar) -> Scalar:
    """The expression in basic operations only, which most of the first expressions of a process are."""
    nodes = e.walk(root)
    if all(n.op not in e.FUNCTIONS and n.dtype not in e.HALVES and n.dtype not in e.COMPLEX for n in nodes):
        return root
    from weft.expr.functions import expand

    return expand(root)


def _identifier(name: str) -> str:
    """A symbol for the code. Not the name alone: compiled code calls C functions of names such as fmod."""
    return "loop_" + "".join(c if c.isalnum() and c.isascii() else "_" for c in name)
