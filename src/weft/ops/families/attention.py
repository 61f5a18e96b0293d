"""Attention: averages of values, weighted by how well queries fit keys."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from weft.base.dtype import DType, bool_, float32
from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.families.matrix import is_matrix_float
from weft.ops.node import constant, make_node
from weft.ops.op import Op, op
from weft.ops.pointwise import unbroadcast
from weft.ops.types import TensorType, broadcast_shapes, promote


class Attention(Op, family="attention"):
    """Base of attention and its gradient: the mask and the scale."""

    is_causal: bool = False
    scale: float | None = None

    def factor(self, q: Any) -> float:
        """What scores are multiplied by."""
        return 1 / math.sqrt(max(q.shape[-1], 1)) if self.scale is None else self.scale

    def numbers(self, q: TensorType) -> tuple[tuple[Any, str], ...]:
        """Parameters of the native kernels: the scale, and how far behind its own position a query sees."""
        return ((self.factor(q), "float64"), (0, "int64"))

    def is_plain(self, q: Any, k: Any, v: Any, mask: Any) -> bool:
        """Whether the native kernels take the operands: 4 dimensions, and nothing to broadcast."""
        full = (*q.shape[:-1], k.shape[-2])
        return (
            q.ndim == 4
            and q.shape[:2] == k.shape[:2] == v.shape[:2]
            and (mask is None or (mask.shape == full and mask.dtype.name in ("bool", q.dtype.name)))
        )

    def weights(self, q: Any, k: Any, mask: Any) -> tuple[Any, Any]:
        """The softmax of the scores, zero in rows that see nothing; the logarithms of its denominators."""
        scores = F.matmul(q, F.matrix_transpose(k)) * self.factor(q)
        lowest = float("-inf")
        if mask is not None:
            scores = F.where(mask, scores, lowest) if mask.dtype is bool_ else scores + mask
        if self.is_causal:
            scores = F.causal_mask(scores)
        top = F.max(scores, axis=-1, keepdims=True)
        top = F.where(F.equal(top, lowest), 0.0, top)
        powers = F.exp(scores - top)
        total = F.sum(powers, axis=-1, keepdims=True)
        logs = F.squeeze(F.log(total) + top, axis=-1)
        return F.divide(powers, F.where(F.equal(total, 0.0), 1.0, total)), logs


@op
class CausalMask(Op, family="attention", public=False):
    """scores[..., i, j] where j <= i, else -inf."""

    value: float = float("-inf")

    def infer(self, scores: TensorType) -> TensorType:
        return scores.like()

    def kernels(self, scores: TensorType) -> Iterator[Any]:
        from weft.expr import scalar as e
        from weft.ops.kernels import pointwise_loop

        last = scores.ndim - 1
        is_seen = e.index(last) <= e.index(last - 1)
        dtype = scores.dtype.name
        yield pointwise_loop([scores], [e.where(is_seen, e.load(0, dtype), e.constant(self.value, dtype))])

    def decompose(self, scores: Any) -> Any:
        is_seen = F.less_equal(F.places_like(scores, axis=-1), F.places_like(scores, axis=-2))
        return F.where(is_seen, scores, constant(self.value, scores.dtype))

    def vjp(self, dy: Any) -> Any:
        return F.causal_mask(dy, value=0.0)


@op
class ScaledDotProductAttention(
    Attention,
    rule="q[...,queries,features]: float, k[...,keys,features]: float, v[...,keys,columns]: float, "
    "mask?: float|bool -> y[...,queries,columns]: promote(q k v), logs[...,queries]: log_dtype()",
    positional=("is_causal", "scale"),
    hidden=1,
    residuals=("logs",),
):
    """softmax(scale q k^T + mask) v.

    q: float[..., n, d]; k: float[..., m, d]; v: float[..., m, e]; mask: fits [..., n, m] by broadcasting, booleans,
    true for what is seen, or numbers that are added. is_causal: query i sees keys 0 ... i only. scale: 1 / sqrt(d) by
    default. Leading sizes fit by broadcasting. Returns the promoted type [..., n, e]. A query that sees nothing
    gives 0. Of 16-bit floats sums are kept in float32.
    Raises ShapeError if sizes do not fit, DTypeError unless all are floats.
    Source: Vaswani et al. 2017, Attention is all you need; Dao et al. 2022, FlashAttention (the tiled form).

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.scaled_dot_product_attention(wf.zeros((1, 1, 2)), wf.ones((1, 3, 2)), wf.ones((1, 3, 1))).item()
    1.0
    """

    def infer(self, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None) -> Any:
        y, logs = super().infer(q, k, v, mask)
        full = (*y.shape[:-1], k.shape[-2])
        if mask is not None and broadcast_shapes(self.name, {"scores": q.like(full), "mask": mask}) != full:
            raise self.fail(ShapeError, f"the mask does not fit {full}", q=q, k=k, v=v, mask=mask)
        return y, *self.residual_types((logs,), (q, k, v, mask))

    def log_dtype(self, q: TensorType, k: TensorType, v: TensorType, *mask: TensorType) -> DType:
        """That of sums of exponentials."""
        return promote(q, k, v).accumulation

    def decompose(self, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        y, log_type = self.infer(q.type, k.type, v.type, None if mask is None else mask.type)
        if is_matrix_float(q.type, k.type, v.type) and not self.is_plain(q, k, v, mask) and y.ndim <= 4:
            return self._by_plain(q, k, v, mask)
        if q.dtype.itemsize == 2:  # scores are kept in float32
            q, k = F.cast(q, dtype=float32), F.cast(k, dtype=float32)
        weights, logs = self.weights(q, k, mask)
        logs = F.broadcast_to(logs, shape=log_type.shape) if logs.shape != log_type.shape else logs
        return F.cast(F.matmul(weights, v), dtype=y.dtype), F.cast(logs, dtype=log_type.dtype)

    def _by_plain(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        """With operands brought to 4 dimensions, as views."""
        y = self.infer(q.type, k.type, v.type, None if mask is None else mask.type)[0]
        lead = (*(1,) * (4 - y.ndim), *y.shape[:-2])
        operands = [_as_shape(x, (*lead, *x.shape[-2:])) for x in (q, k, v)]
        if mask is not None:
            mask = mask if mask.dtype is bool_ else F.cast(mask, dtype=q.dtype)
            mask = _as_shape(mask, (*lead, q.shape[-2], k.shape[-2]))
        node = make_node(self, [*operands, mask])
        extra = tuple(range(4 - y.ndim))
        return tuple(F.squeeze(value, axis=extra) if extra else value for value in node.outputs)

    def vjp(self, q: Any, k: Any, v: Any, mask: Any, y: Any, logs: Any, dy: Any) -> Any:
        if not self.is_plain(q, k, v, mask):
            return NotImplemented
        dq, dk, dv = F.scaled_dot_product_attention_gradient(
            dy, q, k, v, y, logs, mask, is_causal=self.is_causal, scale=self.scale
        )
        dmask = None
        if mask is not None and mask.dtype.is_differentiable:  # not computed unless it is read
            weights, _ = self.weights(q, k, mask)
            cotangents = F.matmul(dy, F.matrix_transpose(v))
            full = weights * (cotangents - F.sum(cotangents * weights, axis=-1, keepdims=True))
            dmask = F.cast(unbroadcast(full, mask), dtype=mask.dtype)
        return dq, dk, dv, dmask


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
    ) -> Any:
        return q.like(), k.like(), v.like()

    def decompose(self, dy: Any, q: Any, k: Any, v: Any, y: Any, logs: Any, mask: Any = None) -> Any:
        """All computed again from q, k, v, so that the gradient of this goes to them."""
        weights, _ = self.weights(q, k, mask)
        cotangents = F.matmul(dy, F.matrix_transpose(v))
        cotangents = (
            weights * (cotangents - F.sum(cotangents * weights, axis=-1, keepdims=True)) * self.factor(q)
        )
        gradients = (
            F.matmul(cotangents, k),
            F.matmul(F.matrix_transpose(cotangents), q),
            F.matmul(F.matrix_transpose(weights), dy),
        )
        return tuple(F.cast(g, dtype=x.dtype) for g, x in zip(gradients, (q, k, v), strict=True))


__all__ = ["ScaledDotProductAttention", "ScaledDotProductAttentionGradient"]
