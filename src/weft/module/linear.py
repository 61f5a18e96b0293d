"""Linear layers and tables."""

from __future__ import annotations

import math
import threading
from typing import Any

from weft import _core
from weft import functional as F
from weft.arrays.creation import empty
from weft.arrays.tensor import Tensor
from weft.base.device import Device
from weft.base.dtype import DType, float64
from weft.base.errors import ShapeError
from weft.base.users_line import warn_at_users_line
from weft.module import init
from weft.module.module import Module, Parameter

__all__ = [
    "Bilinear",
    "Embedding",
    "EmbeddingBag",
    "Linear",
    "check_dims",
    "hint_at_float64",
    "parameter",
    "uniform_fan_in_",
]


def check_dims(layer: Module, x: Any, *accepted: int) -> None:
    """Raises ShapeError unless x has so many dimensions; a symbol's are not known yet."""
    if getattr(x, "ndim", accepted[0]) not in accepted:
        listed = " or ".join(map(str, accepted))
        raise ShapeError(f"{type(layer).__name__}: needs {listed} dimensions: x is {_core.describe(x)}")


def parameter(shape: Any, dtype: DType | str, device: Device | str | None) -> Tensor:
    """A Parameter whose elements reset() will write."""
    init.count_elements(shape)
    return Parameter(empty(shape, dtype=dtype, device=device))


_hinted = threading.Event()  # set once the hint has been given


def hint_at_float64(layer: Module, x: Any, weight: Tensor) -> None:
    """Warn, once in a process, if data of float64 makes a layer of another type compute in float64."""
    if weight.dtype is float64 or _hinted.is_set():
        return
    _hinted.set()
    operand = _core.describe(x) if type(x) is Tensor else f"{x.dtype}{list(x.shape)}"
    text = (
        f"{type(layer).__name__}: x is {operand} and the weight {_core.describe(weight)}: from here on the network "
        "computes in float64, which takes more than twice the time; x.astype('float32') keeps float32 "
        "(this hint is given once)"
    )
    warn_at_users_line(text)


def uniform_fan_in_(fan_in: int, *parameters: Tensor | None) -> None:
    """Evenly within 1 / sqrt(fan_in) of 0: the default of layers that are linear in their inputs.

    Source: LeCun, Bottou, Orr, Müller 1998, Efficient BackProp, with a third of its variance, as is usual today.
    """
    bound = 1 / math.sqrt(max(fan_in, 1))
    for x in parameters:
        if x is not None:
            init.uniform_(x, -bound, bound)


class Linear(Module):
    """x weight^T + bias, for x [..., in_features]; weight: [out_features, in_features], bias: [out_features] or None.

    Both are initialized uniformly within 1 / sqrt(in_features). See weft.functional.linear.

    >>> import weft as wf
    >>> layer = Linear(4, 3)
    >>> layer(wf.zeros((2, 5, 4))).shape, layer.weight.shape
    ((2, 5, 3), (3, 4))
    """

    repr_attributes = ("in_features", "out_features")

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        dtype: DType | str = "float32",
        device: Device | str | None = None,
    ) -> None:
        self.in_features, self.out_features = in_features, out_features
        self.weight = parameter((out_features, in_features), dtype, device)
        self.bias: Tensor | Any = parameter(out_features, dtype, device) if bias else None
        self.reset()

    def reset(self) -> None:
        """Draw new initial values."""
        uniform_fan_in_(self.in_features, self.weight, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        y = F.linear(x, self.weight, self.bias)
        if getattr(y, "dtype", None) is float64:
            hint_at_float64(self, x, self.weight)
        return y


class Embedding(Module):
    """Rows of weight [num_embeddings, embedding_dim] at integers [...]; they are initialized normally distributed.

    padding_idx: the index of a row that is initialized with zeros and whose gradient is zero. See
    weft.functional.embedding.

    >>> import weft as wf
    >>> Embedding(10, 4, padding_idx=0)(wf.tensor([[0, 9]]))[0, 0]
    tensor([0., 0., 0., 0.], dtype=float32, device=cpu:0)
    """

    repr_attributes = ("num_embeddings", "embedding_dim", "padding_idx")

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        dtype: DType | str = "float32",
        device: Device | str | None = None,
    ) -> None:
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise IndexError(f"Embedding: padding_idx {padding_idx} is not one of {num_embeddings} rows")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx
        self.weight = parameter((num_embeddings, embedding_dim), dtype, device)
        self.reset()

    def reset(self) -> None:
        """Draw new initial values."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            init.zeros_(self.weight[self.padding_idx])

    def forward(self, indices: Tensor) -> Tensor:
        return F.embedding(indices, self.weight, self.padding_idx)


class EmbeddingBag(Embedding):
    """Sums, averages or maxima of rows of weight [num_embeddings, embedding_dim]; mode: "sum", "mean" or "max".

    forward(indices, offsets=None, weights=None): indices [n, k], or [k] with the offsets [n] of the bags. Returns
    [n, embedding_dim]. See weft.functional.embedding_bag.

    >>> import weft as wf
    >>> EmbeddingBag(10, 4)(wf.tensor([[0, 9], [1, 1]])).shape
    (2, 4)
    """

    repr_attributes = ("num_embeddings", "embedding_dim", "mode")

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        mode: str = "mean",
        *,
        dtype: DType | str = "float32",
        device: Device | str | None = None,
    ) -> None:
        if mode not in ("sum", "mean", "max"):
            raise ValueError(f"EmbeddingBag: mode must be sum, mean or max, got {mode!r}")
        super().__init__(num_embeddings, embedding_dim, dtype=dtype, device=device)
        self.mode = mode

    def forward(
        self, indices: Tensor, offsets: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        return F.embedding_bag(indices, self.weight, offsets, weights, self.mode)


class Bilinear(Module):
    """x1 weight x2 + bias for x1 [..., in1_features] and x2 [..., in2_features]; weight: [out_features, in1, in2].

    Both are initialized uniformly within 1 / sqrt(in1_features). See weft.functional.bilinear.

    >>> import weft as wf
    >>> Bilinear(2, 3, 4)(wf.zeros((5, 2)), wf.zeros((5, 3))).shape
    (5, 4)
    """

    repr_attributes = ("in1_features", "in2_features", "out_features")

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        *,
        dtype: DType | str = "float32",
        device: Device | str | None = None,
    ) -> None:
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = parameter((out_features, in1_features, in2_features), dtype, device)
        self.bias: Tensor | Any = parameter(out_features, dtype, device) if bias else None
        self.reset()

    def reset(self) -> None:
        """Draw new initial values."""
        uniform_fan_in_(self.in1_features, self.weight, self.bias)

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.bilinear(x1, x2, self.weight, self.bias)
