"""Kernels of weft.ops.families.attention on GPUs: see attention_tiles."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

from weft import _core
from weft.expr.launches import code_for
from weft.kernels import kernel
from weft.kernels.gpu.attention_passes import LOOPS, MOVES, TILE, AttentionPass, Kind, operands_of
from weft.kernels.gpu.attention_tiles import print_pass
from weft.ops.families.attention import (
    Attention,
    ScaledDotProductAttention,
    ScaledDotProductAttentionGradient,
)
from weft.ops.families.matrix import is_matrix_float
from weft.ops.kernels import Native
from weft.ops.types import TensorType

OPTIONS = ("mask", "ranges", "slopes", "words")
SIZES = {  # where the size of each loop is found: an operand, and its dimension
    "batch": ("q", 0),
    "head": ("q", 1),
    "query": ("q", 2),
    "key": ("k", 2),
    "feature": ("q", 3),
    "group": ("k", 1),
}


def columns_of(size: Any, options: int) -> int:
    """How many columns of the result a block has, where so many options have values of their own in registers."""
    if not isinstance(size, int) or options > 3:
        return 64
    return next((n for n in (16, 32, 64) if size <= n), 128)


@functools.cache
def launches(
    kinds: tuple[Kind, ...], dtypes: tuple[tuple[str, str], ...], is_capped: bool, columns: tuple[int, int]
) -> Any:
    """The passes of these kinds; dtypes: of the kernel's operands, in order; columns: for features and for columns."""
    names = [name for name, _ in dtypes]
    types = dict(dtypes) | {"means": "float32"}
    numbers = {name: k for k, name in enumerate([*names, "means"])}
    options = [name for name in OPTIONS if name in types]
    two = ("ranges", 3) if "ranges" in types else ("words" if "words" in types else "q", 0)  # of q: not read
    sizes = SIZES | {"column": ("y", 3), "two": two}
    parts = []
    for kind in kinds:
        operands = operands_of(kind, options)
        form = AttentionPass(
            kind, tuple((name, types[name]) for name in operands), is_capped, columns[kind in ("y", "dv")]
        )
        ways = [(numbers[name], [dim_of(name, loop) for loop in LOOPS]) for name in operands]
        row = "key" if form.of_keys else "query"
        head = "group" if form.of_keys else "head"
        column = "feature" if kind in ("dq", "dk") else "column"
        tiles = [("batch", 1), (head, 1), (row, TILE), (column, form.columns)]

        def compile(
            chip: str, memory: int, is_narrow: bool, is_gated: bool, form: AttentionPass = form
        ) -> Any:
            return code_for(print_pass(form, is_narrow), chip, is_gated)

        parts.append((ways, [(LOOPS.index(loop), n) for loop, n in tiles], compile))
    loops = [(numbers[sizes[loop][0]], sizes[loop][1]) for loop in LOOPS]
    of_queries = [LOOPS.index(loop) for loop in MOVES["means"]]
    scratch = [(of_queries, "float32")] if "dq" in kinds else []
    return _core.make_thread_launches(len(names), loops, scratch, parts)


def dim_of(name: str, loop: str) -> int:
    """The dimension of an operand that moves in a loop, or -1."""
    return MOVES[name].index(loop) if loop in MOVES[name] else -1


def native(
    op: Attention, q: TensorType, kinds: tuple[Kind, ...], names: Sequence[str], outputs: int
) -> Native:
    """The kernel with operands of these names, the last ones outputs; those of OPTIONS may be missing."""
    first = len(names) - outputs

    def make(inputs: Sequence[Any], results: Sequence[Any]) -> Any:
        operands = [*inputs, *[None] * (first - len(inputs)), *results]
        by_name = {name: x for name, x in zip(names, operands, strict=True) if x is not None}
        is_capped = op.soft_cap is not None
        options = len({*OPTIONS} & by_name.keys()) + is_capped
        columns = (columns_of(by_name["q"][1][3], options), columns_of(by_name["y"][1][3], options))
        dtypes = tuple((name, x[0]) for name, x in by_name.items())
        return launches(kinds, dtypes, is_capped, columns)

    return Native(make, exact=False, numbers=op.numbers(q))


@kernel(ScaledDotProductAttention, device="gpu")
def attention(op: ScaledDotProductAttention, *inputs: TensorType | None) -> Iterator[Native]:
    padded: list[Any] = [*inputs, *[None] * (7 - len(inputs))]
    q, k, v, *optional = padded
    # Of a single query, as in decoding, nearly all of a tile would be empty.
    if is_matrix_float(q, k, v) and op.is_plain(q, k, v, *optional[:3]) and q.shape[-2] != 1:
        yield native(op, q, ("y",), ["q", "k", "v", *OPTIONS, "y", "logs"], 2)


@kernel(ScaledDotProductAttentionGradient, device="gpu")
def attention_gradient(op: ScaledDotProductAttentionGradient, *inputs: TensorType | None) -> Iterator[Native]:
    padded: list[Any] = [*inputs, *[None] * (10 - len(inputs))]
    dy, q, k, v, _, _, *optional = padded
    if is_matrix_float(dy, q, k, v) and op.is_plain(q, k, v, *optional[:3]):
        names = ["dy", "q", "k", "v", "y", "logs", *OPTIONS, "dq", "dk", "dv"]
        yield native(op, q, ("dq", "dk", "dv"), names, 3)
