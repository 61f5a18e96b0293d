"""Attention: averages of values, weighted by how well queries fit keys."""

from __future__ import annotations

import math
from typing import Any

from weft.base.dtype import DType, bool_, float32, float64, int64, uint64
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.families.keyed import key_words
from weft.ops.families.matrix import is_matrix_float
from weft.ops.node import Value, constant, make_node
from weft.ops.op import Op, Runtime, op
from weft.ops.pointwise import cast_to, unbroadcast
from weft.ops.shapes import Partial
from weft.ops.types import TensorType, broadcast_shapes, is_one, promote


class Attention(Op, family="attention"):
    """Base of attention and its gradient: which keys a query sees, and what happens to scores and weights."""

    is_causal: bool = False
    scale: float | None = None
    window: tuple[int, ...] | None = None
    offset: Runtime[int] = 0
    soft_cap: float | None = None
    dropout: Runtime[float] = 0.0

    ranges = {"dropout": (0.0, 1.0)}  # noqa: RUF012

    def check(self) -> None:
        if self.window is not None and (len(self.window) != 2 or min(self.window) < -1):
            raise ValueError(f"{self.name}: window is (before, after), -1 for any number, got {self.window}")
        if self.soft_cap is not None and not self.soft_cap > 0:
            raise ValueError(f"{self.name}: soft_cap must be greater than 0, got {self.soft_cap}")

    def factor(self, q: Any) -> float:
        """What scores are multiplied by."""
        return 1 / math.sqrt(max(q.shape[-1], 1)) if self.scale is None else self.scale

    def reach(self) -> tuple[int, int]:
        """How many keys before and behind its own position a query sees; -1: all of them."""
        before, after = self.window or (-1, -1)
        return before, 0 if self.is_causal else after

    def numbers(self, q: TensorType) -> tuple[tuple[Any, str], ...]:
        """Parameters of the native kernels (native/kernels/kernels.h)."""
        before, after = self.reach()
        return (
            (self.factor(q), "float64"),
            (self.soft_cap or 0.0, "float64"),
            (before, "int64"),
            (after, "int64"),
            (self.offset, "int64"),
            (self.dropout, "float64"),
        )

    def is_plain(self, q: Any, k: Any, v: Any, mask: Any, ranges: Any, slopes: Any) -> bool:
        """Whether the native kernels take the operands: 4 dimensions, and nothing to broadcast but heads."""
        full = (*q.shape[:-1], k.shape[-2])
        return (
            q.ndim == k.ndim == v.ndim == 4
            and q.shape[0] == k.shape[0] == v.shape[0]
            and k.shape[1] == v.shape[1]
            and (q.shape[1] == k.shape[1] or shared_heads(q, k) > 1)
            and (mask is None or (mask.shape == full and mask.dtype.name in ("bool", q.dtype.name)))
            and (ranges is None or (ranges.shape == (*q.shape[:-1], 2) and ranges.dtype is int64))
            and (slopes is None or (slopes.shape == (q.shape[1],) and slopes.dtype is float32))
        )

    def scores(self, q: Any, k: Any, mask: Any, ranges: Any, slopes: Any) -> Any:
        """The scores, -inf for keys that a query does not see."""
        scores = products(q, F.matrix_transpose(k)) * self.factor(q)
        if self.soft_cap is not None:
            scores = F.tanh(scores * (1 / self.soft_cap)) * self.soft_cap
        before, after = self.reach()
        lowest = float("-inf")
        key = F.places_like(scores, axis=-1)
        own = F.places_like(scores, axis=-2) + self.offset
        if slopes is not None:
            distance = F.cast(F.abs(own - key), dtype=scores.dtype)
            wide = F.reshape(F.cast(slopes, dtype=scores.dtype), shape=(*slopes.shape, 1, 1))
            scores = scores - wide * distance
        if before != -1:
            scores = F.where(F.greater_equal(key, own - before), scores, lowest)
        if after != -1:
            scores = F.where(F.less_equal(key, own + after), scores, lowest)
        if ranges is not None:
            first, last = (F.slice(ranges, starts=(j,), stops=(j + 1,), axes=(-1,)) for j in (0, 1))
            is_seen = F.logical_and(F.greater_equal(key, first), F.less(key, last))
            scores = F.where(is_seen, scores, lowest)
        if mask is not None:
            scores = F.where(mask, scores, lowest) if mask.dtype is bool_ else scores + mask
        return scores

    def weights(self, q: Any, k: Any, mask: Any, ranges: Any, slopes: Any) -> tuple[Any, Any]:
        """The softmax of the scores, zero in rows that see nothing; the logarithms of its denominators."""
        scores, lowest = self.scores(q, k, mask, ranges, slopes), float("-inf")
        top = F.max(scores, axis=-1, keepdims=True)
        top = F.where(F.equal(top, lowest), 0.0, top)
        powers = F.exp(scores - top)
        total = F.sum(powers, axis=-1, keepdims=True)
        logs = F.squeeze(F.log(total) + top, axis=-1)
        return F.divide(powers, F.where(F.equal(total, 0.0), 1.0, total)), logs

    def kept(self, weights: Any, key: Any) -> Any:
        """What weights are multiplied by in dropout, None without a key: 0 or 1 / (1 - p).

        The items are numbered as the native kernels number them: by tiles of 64 queries and keys, transposed.
        """
        if key is None:
            return None
        *lead, n, m = weights.shape
        row, column = F.places_like(weights, axis=-2), F.places_like(weights, axis=-1)
        head: Any = 0
        for axis in range(len(lead)):
            head = head * lead[axis] + F.places_like(weights, axis=axis)
        tile = (head * ((n + 63) // 64) + F.floor_divide(row, 64)) * ((m + 63) // 64) + F.floor_divide(
            column, 64
        )
        number = (tile * 64 + F.remainder(column, 64)) * 64 + F.remainder(row, 64)
        first, second = key_words(key, weights.ndim)
        items = F.keyed_bits(first, second, F.cast(number, dtype=uint64), bits=32)
        p: Any = self.dropout
        p = constant(p, float64) if isinstance(p, int | float) else F.cast(p, dtype=float64)
        is_kept = F.greater_equal(F.cast(F.cast(items, dtype=int64), dtype=float64), F.floor(p * 2.0**32))
        return F.cast(F.where(is_kept, 1 / F.maximum(1 - p, 1e-30), 0.0), dtype=weights.dtype)


def shared_heads(q: Any, k: Any) -> int:
    """How many heads of q share one of k: 1 where sizes are equal or broadcast."""
    return shared_heads_of(q.shape, k.shape)


def shared_heads_of(q: Partial, k: Partial) -> int:
    """That of shapes of which a part is known."""
    if q is None or k is None or len(q) < 3 or len(k) < 3 or None in (q[-3], k[-3]):
        return 1
    heads: Any = q[-3]
    groups: Any = k[-3]
    is_shared = heads != groups and not is_one(groups) and not is_one(heads)
    return heads // groups if is_shared and heads % groups == 0 else 1


def products(a: Any, b: Any) -> Any:
    """a [..., h, n, d] times b [..., g, d, m], where heads of a share those of b: as more rows of each."""
    shared = shared_heads(a, b)
    if shared == 1:
        return F.matmul(a, b)
    *lead, heads, n, d = a.shape
    y = F.matmul(F.reshape(a, shape=(*lead, heads // shared, shared * n, d)), b)
    return F.reshape(y, shape=(*y.shape[:-3], heads, n, b.shape[-1]))


def summed_products(a: Any, b: Any, shared: int) -> Any:
    """a [..., h, n, m] transposed times b [..., h, n, d], summed over the heads that share one: [..., g, m, d]."""
    if shared == 1:
        return F.matmul(F.matrix_transpose(a), b)
    a, b = (
        F.reshape(x, shape=(*x.shape[:-3], x.shape[-3] // shared, shared * x.shape[-2], x.shape[-1]))
        for x in (a, b)
    )
    return F.matmul(F.matrix_transpose(a), b)


@op
class ScaledDotProductAttention(
    Attention,
    rule="q[...,queries,features]: float, k[...,keys,features]: float, v[...,keys,columns]: float, "
    "mask?: float|bool, ranges?: int, slopes?: fixed float, key? -> "
    "y[...,queries,columns]: promote(q k v), logs[...,queries]: log_dtype()",
    positional=("is_causal", "scale"),
    hidden=1,
    residuals=("logs",),
):
    """softmax(scale q k^T + mask) v, without the matrix of scores on processors.

    q: float[..., n, d]; k: float[..., m, d]; v: float[..., m, e]. Leading sizes fit by broadcasting; or the heads of k
    and v, [..., g, m, d], divide those of q, [..., h, n, d], and h / g neighbours share each (grouped queries).
    mask: fits [..., n, m] by broadcasting, booleans, true for what is seen, or numbers that are added.
    Query i has the position i + offset among the keys; offset is given when it runs. is_causal: a query sees keys up to
    its position. window: (before, after), it sees so many keys before and behind its position, -1 for all of them.
    ranges: integers that fit [..., n, 2]: a query sees keys ranges[..., 0] ... ranges[..., 1] - 1 only, such as those
    of its own sequence among packed ones (F.packed_ranges); tiles that no query sees take no time.
    slopes: float[h], with q [..., h, n, d]: slopes |distance of positions| is taken off the scores (ALiBi); they have
    no gradient. soft_cap: scores become soft_cap tanh(scores / soft_cap), before slopes and masks. dropout: the share
    of the weights that become 0, the others are divided by 1 - dropout; key: uint64[2] of weft.random.key, which says
    which; without one nothing is dropped. scale: 1 / sqrt(d) by default.
    Returns the promoted type [..., n, e]. A query that sees nothing gives 0. Of 16-bit floats sums are kept in float32.
    Raises ShapeError if sizes do not fit, DTypeError unless q, k and v are floats, ValueError for dropout outside 0..1.
    Source: Vaswani et al. 2017, Attention is all you need; Dao et al. 2022, FlashAttention (tiles); Ainslie et al.
    2023, GQA; Press, Smith, Lewis 2022, Train short, test long (slopes); Gemma team 2024, Gemma 2 (soft cap).

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.scaled_dot_product_attention(wf.zeros((1, 1, 2)), wf.ones((1, 3, 2)), wf.ones((1, 3, 1))).item()
    1.0
    >>> q, kv = wf.ones((1, 8, 5, 4)), wf.ones((1, 2, 5, 4))
    >>> F.scaled_dot_product_attention(q, kv, kv, is_causal=True, window=(2, 0), soft_cap=30.0).shape
    (1, 8, 5, 4)
    """

    def infer(
        self,
        q: TensorType,
        k: TensorType,
        v: TensorType,
        mask: TensorType | None = None,
        ranges: TensorType | None = None,
        slopes: TensorType | None = None,
        key: TensorType | None = None,
    ) -> Any:
        shared = shared_heads(q, k)
        wide = [
            x.like((*x.shape[:-3], q.shape[-3], *x.shape[-2:])) if shared > 1 and x.ndim > 2 else x
            for x in (k, v)
        ]
        y, logs = super().infer(q, *wide, mask, ranges, slopes, key)
        if shared > 1 and (v.ndim < 3 or v.shape[-3] != k.shape[-3]):
            raise self.fail(ShapeError, "k and v differ in heads", q=q, k=k, v=v)
        operands = {"mask": (mask, (*y.shape[:-1], k.shape[-2])), "ranges": (ranges, (*y.shape[:-1], 2))}
        for name, (x, full) in operands.items():
            if x is not None and broadcast_shapes(self.name, {"scores": q.like(full), name: x}) != full:
                raise self.fail(ShapeError, f"the {name} does not fit {full}", q=q, k=k, v=v, **{name: x})
        if slopes is not None and (y.ndim < 3 or slopes.shape != (y.shape[-3],)):
            raise self.fail(ShapeError, "slopes needs one element for each head of q", q=q, slopes=slopes)
        if key is not None and (key.shape != (2,) or key.dtype is not uint64):
            raise self.fail(ShapeError, "a key is uint64[2], such as weft.random.key gives", key=key)
        return y, *self.residual_types((logs,), (q, k, v, mask, ranges, slopes, key))

    def log_dtype(self, q: TensorType, k: TensorType, v: TensorType, *rest: TensorType) -> DType:
        """That of sums of exponentials."""
        return promote(q, k, v).accumulation

    def decompose(
        self,
        q: Any,
        k: Any,
        v: Any,
        mask: Any = None,
        ranges: Any = None,
        slopes: Any = None,
        key: Any = None,
    ) -> Any:
        operands = (q, k, v, mask, ranges, slopes, key)
        types: Any = [None if x is None else x.type for x in operands]
        y, log_type = self.infer(*types)
        plain = self.is_plain(q, k, v, mask, ranges, slopes)
        if is_matrix_float(q.type, k.type, v.type) and not plain and y.ndim <= 4:
            return self._by_plain(*operands)
        if q.dtype.itemsize == 2:  # scores are kept in float32
            q, k = F.cast(q, dtype=float32), F.cast(k, dtype=float32)
        weights, logs = self.weights(q, k, mask, ranges, slopes)
        kept = self.kept(weights, key)
        weights = weights if kept is None else weights * kept
        logs = F.broadcast_to(logs, shape=log_type.shape) if logs.shape != log_type.shape else logs
        return F.cast(products(weights, v), dtype=y.dtype), F.cast(logs, dtype=log_type.dtype)

    def _by_plain(self, q: Any, k: Any, v: Any, mask: Any, ranges: Any, slopes: Any, key: Any) -> Any:
        """With operands brought to 4 dimensions, as views."""
        types: Any = [None if x is None else x.type for x in (q, k, v, mask, ranges, slopes, key)]
        y = self.infer(*types)[0]
        lead = (*(1,) * (4 - y.ndim), *y.shape[:-2])
        key_lead = (lead[0], k.shape[-3]) if shared_heads(q, k) > 1 else lead
        leads = (lead, key_lead, key_lead)
        operands = [_as_shape(x, (*to, *x.shape[-2:])) for x, to in zip((q, k, v), leads, strict=True)]
        if mask is not None:
            mask = mask if mask.dtype is bool_ else F.cast(mask, dtype=q.dtype)
            mask = _as_shape(mask, (*lead, q.shape[-2], k.shape[-2]))
        if ranges is not None:
            ranges = _as_shape(cast_to(ranges, int64), (*lead, q.shape[-2], 2))
        if slopes is not None:
            slopes = cast_to(slopes, float32)
        runtime = {name: x for name in ("offset", "dropout") if isinstance(x := getattr(self, name), Value)}
        node = make_node(self.without_numbers(runtime), [*operands, mask, ranges, slopes, key], runtime)
        extra = tuple(range(4 - y.ndim))
        return tuple(F.squeeze(value, axis=extra) if extra else value for value in node.outputs)

    def vjp(
        self,
        q: Any,
        k: Any,
        v: Any,
        mask: Any,
        ranges: Any,
        slopes: Any,
        key: Any,
        y: Any,
        logs: Any,
        dy: Any,
    ) -> Any:
        if not self.is_plain(q, k, v, mask, ranges, slopes):
            return NotImplemented
        dq, dk, dv = F.scaled_dot_product_attention_gradient(
            dy, q, k, v, y, logs, mask, ranges, slopes, key, **self.values()
        )
        dmask = None
        if mask is not None and mask.dtype.is_differentiable:  # not computed unless it is read
            dscores = score_gradients(self, dy, q, k, v, mask, ranges, slopes, key)[1]
            dmask = F.cast(unbroadcast(dscores, mask), dtype=mask.dtype)
        return dq, dk, dv, dmask, None, None, None


def score_gradients(
    op: Attention, dy: Any, q: Any, k: Any, v: Any, mask: Any, ranges: Any, slopes: Any, key: Any
) -> tuple[Any, Any]:
    """The weights that values are multiplied by, and the gradient of the scores after the cap."""
    weights, _ = op.weights(q, k, mask, ranges, slopes)
    kept = op.kept(weights, key)
    cotangents = products(dy, F.matrix_transpose(v))
    cotangents = cotangents if kept is None else cotangents * kept
    dscores = weights * (cotangents - F.sum(cotangents * weights, axis=-1, keepdims=True))
    return weights if kept is None else weights * kept, dscores


def _as_shape(x: Any, shape: tuple[Any, ...]) -> Any:
    return x if x.shape == shape else F.broadcast_to(x, shape=shape)


@op
class ScaledDotProductAttentionGradient(Attention, public=False, outputs=("dq", "dk", "dv")):
    """dq, dk, dv of attention with operands of 4 dimensions, from dy, the operands, y and the hidden logs."""

    def infer(
        self,
        dy: TensorType,
        q: TensorType,
        k: TensorType,
        v: TensorType,
        y: TensorType,
        logs: TensorType,
        mask: TensorType | None = None,
        ranges: TensorType | None = None,
        slopes: TensorType | None = None,
        key: TensorType | None = None,
    ) -> Any:
        return q.like(), k.like(), v.like()

    def decompose(
        self,
        dy: Any,
        q: Any,
        k: Any,
        v: Any,
        y: Any,
        logs: Any,
        mask: Any = None,
        ranges: Any = None,
        slopes: Any = None,
        key: Any = None,
    ) -> Any:
        """All computed again from q, k, v, so that the gradient of this goes to them."""
        weights, dscores = score_gradients(self, dy, q, k, v, mask, ranges, slopes, key)
        if self.soft_cap is not None:
            share = F.tanh(products(q, F.matrix_transpose(k)) * (self.factor(q) / self.soft_cap))
            dscores = dscores * (1.0 - share * share)
        dscores, shared = dscores * self.factor(q), shared_heads(q, k)
        gradients = (
            products(dscores, k),
            summed_products(dscores, q, shared),
            summed_products(weights, dy, shared),
        )
        return tuple(F.cast(g, dtype=x.dtype) for g, x in zip(gradients, (q, k, v), strict=True))


__all__ = ["ScaledDotProductAttention", "ScaledDotProductAttentionGradient"]
