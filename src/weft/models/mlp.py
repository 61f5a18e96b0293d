"""Linear layers with ReLU between them."""

from __future__ import annotations

from collections.abc import Sequence

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.module import Linear, Module

__all__ = ["MLP"]


class MLP(Module):
    """Linear layers of these sizes, ReLU after each but the last: a multilayer perceptron.

    forward(x): x float[..., sizes[0]] -> float[..., sizes[-1]]. Raises ValueError for fewer than two sizes.

    >>> import weft as wf
    >>> from weft import models
    >>> net = models.MLP((784, 256, 128, 10))
    >>> net(wf.zeros((32, 784))).shape, sum(p.size for p in net.parameters())
    ((32, 10), 235146)
    """

    repr_attributes = ("sizes",)

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        if len(self.sizes) < 2:
            raise ValueError(f"MLP: needs the sizes of its input and its output at least, got {self.sizes}")
        self.layers = [Linear(n, m) for n, m in zip(self.sizes, self.sizes[1:], strict=False)]

    def forward(self, x: Tensor) -> Tensor:
        *hidden, last = self.layers
        for layer in hidden:
            x = F.relu(layer(x))
        return last(x)
