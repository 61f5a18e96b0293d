"""The views that basic keys (numbers, slices, new dimensions) mean, and writing to them and where masks are true."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.base.dtype import bool_
from weft.base.errors import DTypeError, ShapeError
from weft.ops import functions as F
from weft.ops.composed import Composed
from weft.ops.families.shape import Viewing
from weft.ops.kernels import Parts
from weft.ops.op import Op, op
from weft.ops.pointwise import unbroadcast
from weft.ops.types import TensorType, broadcast_shapes

Items = tuple[Any, ...]


def see_items(
    items: Items, shape: tuple[Any, ...], strides: tuple[Any, ...]
) -> tuple[tuple[Any, ...], tuple[Any, ...], Any]:
    """The geometry of a view: for every dimension an int, or (start, count, step); None: a new one of size 1."""
    sizes: list[Any] = []
    steps: list[Any] = []
    offset: Any = 0
    dimensions = iter(zip(shape, strides, strict=True))
    for item in items:
        if item is None:
            sizes.append(1)
            steps.append(0)
            continue
        _, stride = next(dimensions)
        if isinstance(item, tuple):
            start, count, step = item
            offset = offset + stride * start
            sizes.append(count)
            steps.append(stride * step)
        else:
            offset = offset + stride * item
    return tuple(sizes), tuple(steps), offset


@op
class BasicIndex(Viewing, public=False):
    """The view that a basic key means.

    items: for every dimension an int >= 0 or (start, count, step); None: a new one.
    """

    items: object

    def see(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        items: Any = self.items
        return see_items(items, shape, strides)


@op
class BasicPut(Op, rule="x, value -> y: x", primitive=True, public=False, fitted=("value",)):
    """x, but the elements of the view that a basic key means are those of value, repeated and converted to x's type.

    items: as basic_index's.
    """

    items: object

    def infer(self, x: TensorType, value: TensorType) -> TensorType:
        items: Any = self.items
        shape = see_items(items, x.shape, (0,) * x.ndim)[0]
        if broadcast_shapes(self.name, {"x[key]": x.like(shape), "value": value}) != shape:
            raise self.fail(ShapeError, f"value does not fit the shape {shape}", x=x, value=value)
        return x.like()

    def kernels(self, x: TensorType, value: TensorType) -> Iterator[Parts]:
        items: Any = self.items
        base = (0, lambda shape, strides: (shape, strides, 0))
        yield Parts((base, (1, lambda shape, strides: see_items(items, shape, strides))), updates=True)

    def vjp(self, x: Any, value: Any, dy: Any) -> Any:
        dx = F.basic_put(dy, 0, items=self.items)
        if not value.dtype.is_differentiable or value.type.weak:  # takes no gradient
            return dx, None
        return dx, F.cast(unbroadcast(F.basic_index(dy, items=self.items), value), dtype=value.dtype)


@op
class MaskedPut(
    Composed, rule="x, value, mask: bool -> y: x", family="indexing", public=False, fitted=("value",)
):
    """x, but its slices where a mask of the leading axes is true are value, repeated and converted to x's type."""

    def decompose(self, x: Any, value: Any, mask: Any) -> Any:
        if value.dtype.is_complex and not x.dtype.is_complex and x.dtype is not bool_:
            raise self.fail(DTypeError, "x has no imaginary parts", x=x.type, value=value.type)
        mask = F.reshape(mask, shape=(*mask.shape, *(1,) * (x.ndim - mask.ndim)))
        return F.where(mask, F.cast(value, dtype=x.dtype), x)
