"""Arrays divided by norms of themselves: rows of length one, responses of neighbouring channels; and bilinear forms."""

from __future__ import annotations

from typing import Any

from weft.base.errors import ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.families.window import Windows, windows_of
from weft.ops.op import Runtime, op
from weft.ops.pointwise import cast_to


@op
class Normalize(Composed, family="normalization", rule="x: float -> y: x", positional=("p", "axis", "eps")):
    """x / max(|x|, eps), with the p-norm along axes.

    x: float[...]; p: as vector_norm's ord; axis: an int, or several; eps: a number given when it runs. Returns x's
    shape and dtype. Raises IndexError if an axis is out of range, DTypeError for integers.
    Source: PyTorch's normalize; MXNet's L2Normalization.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.normalize(wf.tensor([[3., 4.]]))
    tensor([[0.6, 0.8]], dtype=float32, device=cpu:0)
    """

    p: float = 2.0
    axis: int | tuple[int, ...] = 1
    eps: Runtime[float] = 1e-12

    def decompose(self, x: Any) -> Any:
        y = cast_to(x, x.dtype.accumulation)
        norm = F.vector_norm(y, axis=self.axis, keepdims=True, ord=self.p)
        return cast_to(y / F.maximum(norm, self.eps), x.dtype)


@op
class LocalResponseNorm(
    Composed, family="normalization", rule="x: float -> y: x", positional=("size", "alpha", "beta", "k")
):
    """x / (k + alpha s / size)^beta, where s is the sum of the squares of `size` neighbouring channels.

    x: float[n, c, ...]; size: at least 1, of which size // 2 are before a channel; channels beyond the ends count as 0;
    alpha, beta, k: numbers given when it runs. Returns x's shape and dtype. Raises ShapeError for fewer than 3
    dimensions, ValueError for a size below 1.
    Source: Krizhevsky, Sutskever, Hinton 2012, ImageNet classification with deep convolutional neural networks.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.local_response_norm(wf.ones((1, 3, 1)), 3, alpha=3., beta=1.).reshape(-1)
    tensor([0.33333334, 0.25      , 0.33333334], dtype=float32, device=cpu:0)
    """

    size: int
    alpha: Runtime[float] = 1e-4
    beta: Runtime[float] = 0.75
    k: Runtime[float] = 1.0

    def check(self) -> None:
        if self.size < 1:
            raise ValueError(f"local_response_norm: size must be at least 1, got {self.size}")

    def decompose(self, x: Any) -> Any:
        if x.ndim < 3:
            raise self.fail(ShapeError, "x needs at least 3 dimensions", x=x.type)
        y = cast_to(x, x.dtype.accumulation)
        squares = F.moveaxis(y * y, source=1, destination=-1)
        before, after = self.size // 2, (self.size - 1) // 2
        windows = Windows((self.size,), (1,), (before,), (after,), (1,))
        total = F.sum(windows_of(squares, windows, (x.shape[1],)), axis=-1)
        total = F.moveaxis(total, source=-1, destination=1)
        return cast_to(y / F.pow(total * self.alpha * (1 / self.size) + self.k, self.beta), x.dtype)


@op
class Bilinear(
    Composed,
    family="matrix",
    rule="x1: float, x2: float, weight: learnable float, bias?: learnable float -> y: promote",
):
    """y[..., o] = sum over i, j of x1[..., i] weight[o, i, j] x2[..., j], + bias[o].

    x1: float[*b, n]; x2: float[*b, m]; weight: float[o, n, m]; bias: float[o], or None. Returns the promoted type,
    [*b, o]. Raises ShapeError if sizes do not fit, DTypeError for integers.
    Source: PyTorch's bilinear.

    >>> import weft as wf
    >>> import weft.functional as F
    >>> F.bilinear(wf.tensor([2.]), wf.tensor([3.]), wf.ones((1, 1, 1)))
    tensor([6.], dtype=float32, device=cpu:0)
    """

    def decompose(self, x1: Any, x2: Any, weight: Any, bias: Any = None) -> Any:
        self.require_ndim(3, weight=weight)
        o, n, m = map(int, weight.shape)
        if (
            min(x1.ndim, x2.ndim) < 1
            or x1.shape[:-1] != x2.shape[:-1]
            or (x1.shape[-1], x2.shape[-1]) != (n, m)
        ):
            fact = f"needs x1 [*b, {n}] and x2 [*b, {m}]"
            raise self.fail(ShapeError, fact, x1=x1.type, x2=x2.type, weight=weight.type)
        if bias is not None and tuple(bias.shape) != (o,):
            raise self.fail(ShapeError, f"bias needs {o} numbers", bias=bias.type)
        rows = F.linear(x2, F.reshape(weight, shape=(o * n, m)))
        rows = F.reshape(rows, shape=(*x2.shape[:-1], o, n))
        y = F.sum(rows * F.expand_dims(x1, axis=-2), axis=-1)
        return y if bias is None else y + bias


__all__ = ["Bilinear", "LocalResponseNorm", "Normalize"]
