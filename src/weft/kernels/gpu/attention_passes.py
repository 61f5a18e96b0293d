"""The passes of attention and its gradients on GPUs, and their operands: what attention_tiles makes code for."""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.record import Record
from weft.base.typing import Literal

__all__ = ["KINDS", "LOOPS", "MOVES", "SIZES", "TILE", "AttentionPass", "operands_of"]

LOOPS = ("batch", "head", "query", "key", "feature", "column", "group", "two")  # group: a head of k and v
TILE = 64
KINDS = {"y": "v", "dq": "k", "dk": "q", "dv": "dy"}  # each pass, and the rows whose weighted sums it gives
QUERY_SIDE = ("batch", "head", "query")
KEY_SIDE = ("batch", "group", "key")
MOVES = {
    **dict.fromkeys(("q", "dq"), (*QUERY_SIDE, "feature")),
    **dict.fromkeys(("k", "dk"), (*KEY_SIDE, "feature")),
    **dict.fromkeys(("v", "dv"), (*KEY_SIDE, "column")),
    **dict.fromkeys(("y", "dy"), (*QUERY_SIDE, "column")),
    **dict.fromkeys(("logs", "means"), QUERY_SIDE),
    "mask": (*QUERY_SIDE, "key"),
    "ranges": (*QUERY_SIDE, "two"),
    "slopes": ("head",),
    "words": ("two",),
}
SIZES = {name: d for d, name in enumerate(LOOPS)}

Kind = Literal["y", "dq", "dk", "dv"]


class AttentionPass(Record):
    """A pass, by what its code depends on.

    dtypes: (operand, type) of those that are there; is_capped: scores have a cap; columns: of the result that a block
    has, 16, 32, 64 or 128.
    """

    kind: Kind
    dtypes: tuple[tuple[str, str], ...]
    is_capped: bool
    columns: int

    @property
    def of_keys(self) -> bool:
        """Whether rows are keys, and the other side queries."""
        return self.kind in ("dk", "dv")


def operands_of(kind: str, options: Sequence[str]) -> list[str]:
    """The operands of a pass, in order; options: those of mask, ranges, slopes and words that there are."""
    first, last = {
        "y": (["q", "k", "v"], ["y", "logs"]),
        "dq": (["dy", "q", "k", "v"], ["y", "logs", "dq", "means"]),
        "dk": (["dy", "q", "k", "v"], ["logs", "means", "dk"]),
        "dv": (["dy", "q", "k"], ["logs", "dv"]),
    }[kind]
    return [*first, *options, *last]
