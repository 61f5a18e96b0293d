"""What attention needs of positions: rotary embeddings, and the keys that belong to packed sequences."""

from __future__ import annotations

import math
from typing import Any

from weft.base.dtype import float32, float64, int64
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.node import constant
from weft.ops.op import Runtime, op
from weft.ops.pointwise import cast_to


@op
class RotaryEmbedding(
    Composed,
    family="rearrangement",
    rule="x[*s]: float, positions?: int, frequencies[pairs]?: float -> y[*s]: x",
):
    """Pairs of features, each rotated by an angle that grows with the position: position * base^(-2 i / d) for pair i.

    x: float[..., n, d], d even; positions: integers that fit [..., n], by default 0 ... n - 1; offset, which is given
    when it runs, is added to them. frequencies: float[d / 2], the angle of each pair for one position, in the place of
    base^(-2 i / d). layout: "halves", pair i has the features i and i + d / 2 (GPT-NeoX, Llama), or "interleaved", 2 i
    and 2 i + 1 (RoFormer, GPT-J). features: how many of the d are rotated, the first ones; by default all. Angles are
    computed in float32, of float64 in float64. Returns x's shape and dtype. Products of rotated queries and keys depend
    on the difference of their positions alone.
    Raises ShapeError for an odd number of features, less than 2 dimensions or another number of frequencies, DTypeError
    for other than floats and integer positions.
    Source: Su et al. 2021, RoFormer: Enhanced transformer with rotary position embedding.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.rotary_embedding(wf.tensor([[1., 0.], [1., 0.]]))
    tensor([[1.       , 0.       ],
            [0.5403023, 0.841471 ]], dtype=float32, device=cpu:0)
    """

    base: float = 10000.0
    layout: str = "halves"
    features: int | None = None
    offset: Runtime[int] = 0

    def check(self) -> None:
        if self.layout not in ("halves", "interleaved"):
            raise ValueError(f"{self.name}: layout must be 'halves' or 'interleaved', got {self.layout!r}")

    def decompose(self, x: Any, positions: Any = None, frequencies: Any = None) -> Any:
        if x.ndim < 2:
            raise self.fail(ShapeError, "x needs at least 2 dimensions", x=x.type)
        width = x.shape[-1] if self.features is None else self.features
        if width % 2 or width > x.shape[-1]:
            raise self.fail(ShapeError, f"{width} features cannot be rotated in pairs", x=x.type)
        if frequencies is not None and frequencies.shape != (width // 2,):
            raise self.fail(ShapeError, f"{width // 2} pairs", x=x.type, frequencies=frequencies.type)
        part = x if width == x.shape[-1] else _columns(x, 0, width)
        cosine, sine = self._angles(part, positions, frequencies)
        rotated = self._rotated(cast_to(part, cosine.dtype), cosine, sine)
        rotated = F.cast(rotated, dtype=x.dtype)
        return rotated if part is x else F.concat([rotated, _columns(x, width, x.shape[-1])], axis=-1)

    def _angles(self, x: Any, positions: Any, frequencies: Any) -> tuple[Any, Any]:
        """Cosine and sine of the angle of each position and pair, [..., n, pairs]."""
        dtype = float64 if x.dtype is float64 else float32
        pairs = x.shape[-1] // 2
        like = _columns(x, 0, pairs)
        if positions is None:
            position = F.places_like(like, axis=-2)
        else:
            position = F.expand_dims(cast_to(positions, int64), axis=-1)
        if frequencies is None:
            pair = F.cast(F.places_like(like, axis=-1), dtype=float64)
            frequencies = F.exp(pair * (-math.log(self.base) / max(pairs, 1)))
        angle = F.cast(position + self.offset, dtype=dtype) * F.cast(frequencies, dtype=dtype)
        return F.cos(angle), F.sin(angle)

    def _rotated(self, x: Any, cosine: Any, sine: Any) -> Any:
        pairs = x.shape[-1] // 2
        if self.layout == "halves":
            first, second = _columns(x, 0, pairs), _columns(x, pairs, 2 * pairs)
            return F.concat([first * cosine - second * sine, second * cosine + first * sine], axis=-1)
        split = F.reshape(x, shape=(*x.shape[:-1], pairs, 2))
        first, second = (F.squeeze(_columns(split, k, k + 1), axis=-1) for k in (0, 1))
        both = F.stack([first * cosine - second * sine, second * cosine + first * sine], axis=-1)
        return F.reshape(both, shape=x.shape)


def _columns(x: Any, start: int, stop: int) -> Any:
    return F.slice(x, starts=(start,), stops=(stop,), axes=(-1,))


@op
class PackedRanges(
    Composed, family="indexing", rule="query_starts[starts]: int, key_starts[starts]?: int -> y: int64"
):
    """The keys that each of `size` packed queries sees: those of its own sequence.

    query_starts: integers[s + 1], where each of s sequences begins, and the end of the last; key_starts: the same of
    the keys, by default query_starts. Returns int64[size, 2], the first key and the one behind the last, for `ranges`
    of scaled_dot_product_attention; 0 and 0 for a query that belongs to no sequence.
    Raises ShapeError for other than one dimension or different sizes, DTypeError for other than integers.
    Source: Dao 2023, FlashAttention-2 (sequences of different lengths).

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.packed_ranges(wf.tensor([0, 2, 3]), size=4).tolist()
    [[0, 2], [0, 2], [2, 3], [0, 0]]
    """

    size: int

    def decompose(self, query_starts: Any, key_starts: Any = None) -> Any:
        keys = query_starts if key_starts is None else key_starts
        starts, keys = cast_to(query_starts, int64), cast_to(keys, int64)
        base = F.broadcast_to(constant(0, int64), shape=(self.size,))
        segment = F.searchsorted(starts, F.places_like(base, axis=0), side="right") - 1
        last = query_starts.shape[0] - 1
        is_inside = F.logical_and(F.greater_equal(segment, 0), F.less(segment, last))
        segment = F.minimum(F.maximum(segment, 0), max(last - 1, 0))
        ends = F.stack(
            [F.take(keys, segment, axis=0), F.take(keys, F.minimum(segment + 1, last), axis=0)], axis=-1
        )
        return F.where(F.expand_dims(is_inside, axis=-1), ends, 0)


__all__ = ["PackedRanges", "RotaryEmbedding"]
