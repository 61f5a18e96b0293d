"""Operators on parts of an array by offset, sizes and strides, which represent all kinds of views in a graph.

Offsets and strides count elements of x as if it were row-major.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from weft.base.errors import ShapeError
from weft.base.typing import Any
from weft.ops import functions as F
from weft.ops.families.creation import Stepped
from weft.ops.kernels import Parts, View
from weft.ops.op import Op, op
from weft.ops.shapes import is_distinct
from weft.ops.types import TensorType


class Strided(Op, family="shape", rule="x -> y: x", public=False):
    """Base: a window of x, element i... of which is x's element offset + sum of i * strides."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    def check(self) -> None:
        if len(self.shape) != len(self.strides):
            raise ShapeError(f"{self.name}: {len(self.shape)} sizes, but {len(self.strides)} strides")

    def require_inside(self, x: TensorType) -> None:
        """Raise ShapeError if the window reaches beyond x."""
        if 0 in self.shape:
            return
        steps = [(n - 1, s) for n, s in zip(self.shape, self.strides, strict=True)]
        low = self.offset + sum(n * s for n, s in steps if s < 0)
        high = self.offset + sum(n * s for n, s in steps if s > 0)
        if low < 0 or high >= x.size:
            raise self.fail(ShapeError, f"elements {low}..{high} are not inside", x=x)

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> Any:
        """The window of an array with these strides; None if it is not row-major."""
        step = 1
        for n, s in zip(reversed(shape), reversed(strides), strict=True):
            if n != 1 and s != step:
                return None
            step *= n
        return self.shape, self.strides, self.offset

    def distinct(self) -> bool:
        """Whether no element of x is in the window twice, as far as is known."""
        return is_distinct(self.shape, self.strides)


@op
class AsStrided(Strided, primitive=True):
    """A window of x."""

    def infer(self, x: TensorType) -> TensorType:
        self.require_inside(x)
        return x.like(self.shape)

    def kernels(self, x: TensorType) -> Iterator[View]:
        yield View(self.see)

    def vjp(self, x: Any, dy: Any) -> Any:
        zeros = F.multiply(x, 0)
        if self.distinct():
            return F.put_strided(zeros, dy, **self.values())
        # Elements that are in the window several times collect several gradients.
        indices: Any = self.offset
        for d, (n, s) in enumerate(zip(self.shape, self.strides, strict=True)):
            column = (n,) + (1,) * (len(self.shape) - 1 - d)
            steps = dy.__weft_apply__(Stepped, (), {"shape": column, "step": s})
            indices = F.add(steps, indices)
        flat = F.index_put(F.reshape(zeros, shape=(-1,)), dy, indices, axes=(0,), position=0, mode="add")
        return F.reshape(flat, shape=x.shape)


@op
class PutStrided(Strided, primitive=True, fitted=("value",)):
    """x, but the elements of a window are those of value, converted to x's type."""

    def infer(self, x: TensorType, value: TensorType) -> TensorType:
        self.require_inside(x)
        if value.shape != self.shape:
            raise self.fail(ShapeError, f"value does not fit the shape {self.shape}", x=x, value=value)
        return x.like()

    def kernels(self, x: TensorType, value: TensorType) -> Iterator[Parts]:
        yield Parts(((0, lambda shape, strides: (shape, strides, 0)), (1, self.see)), updates=self.distinct())

    def vjp(self, x: Any, value: Any, dy: Any) -> Any:
        if not self.distinct():
            raise NotImplementedError(f"{self.name}: no gradient where an element is written twice")
        dx = F.put_strided(dy, F.multiply(value, 0), **self.values())
        if not value.dtype.is_differentiable:
            return dx, None
        return dx, F.cast(F.as_strided(dy, **self.values()), dtype=value.dtype)


@op
class Assemble(Op, family="shape", primitive=True, public=False):
    """Zeros of a shape, with each part in its window; no element is in two.

    sizes, strides, offsets: of the windows.
    """

    shape: tuple[int, ...]
    sizes: tuple[tuple[int, ...], ...]
    strides: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]

    def infer(self, *part: TensorType) -> TensorType:
        counts = {len(part), len(self.sizes), len(self.strides), len(self.offsets)}
        if len(counts) > 1 or not part:
            raise ShapeError(f"{self.name}: {len(part)} parts, but {len(self.offsets)} windows")
        full_type = part[0].like(self.shape)
        for x, window in zip(part, self.windows(), strict=True):
            window.check()
            window.require_inside(full_type)
            if x.shape != window.shape:
                raise self.fail(ShapeError, f"a part does not fit the shape {window.shape}", part=x)
        return full_type

    def windows(self) -> list[AsStrided]:
        """The view of the result that each part is."""
        parts = zip(self.sizes, self.strides, self.offsets, strict=True)
        return [AsStrided(shape=n, strides=s, offset=offset) for n, s, offset in parts]

    def kernels(self, *part: TensorType) -> Iterator[Parts]:
        full = sum(map(math.prod, self.sizes)) == math.prod(self.shape)
        views = tuple((k, view.see) for k, view in enumerate(self.windows()))
        yield Parts(views, fill=None if full else 0)

    def vjp(self, part: Any, dy: Any) -> Any:
        return [F.as_strided(dy, **view.values()) for view in self.windows()]
