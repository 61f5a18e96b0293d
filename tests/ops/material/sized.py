"""What tests know of the operators of weft.ops.families.sized."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import DTypeError, ShapeError
from weft.ops.families.sized import Argwhere, MaskedSelect, RepeatEach, UniqueAll
from weft.ops.samples import Array, Sample, arrays

MASK = Array((3, 4), values=np.arange(12).reshape(3, 4) % 3 != 1, dtype="bool")


def sized(x, size, fill):
    """The first `size` rows of x, and fill behind them."""
    return np.concatenate([x[:size], np.full((max(size - len(x), 0), *x.shape[1:]), fill, x.dtype)])


def torch_sized(torch, x, size, fill):
    return torch.cat([x[:size], x.new_full((max(size - len(x), 0), *x.shape[1:]), fill)])


@material(Argwhere)
class _:
    def reference(self, x):
        return sized(np.argwhere(x), self.size, self.fill_value)

    def torch_reference(self, torch, x):
        return torch_sized(torch, torch.argwhere(x), self.size, self.fill_value)

    @classmethod
    def samples(cls):
        x = Array((3, 4), values=np.arange(12).reshape(3, 4) % 3)
        for size in (0, 5, 8, 11):
            yield Sample(x, size)
        yield Sample(Array((5,), values=(0, 1, 0, np.nan, -0.0), dtype="float32"), 4, -1)
        yield Sample(arrays((2, 0, 3)), 2, 7)
        yield Sample(MASK, 3)
        yield Sample(Array((), values=1), 2)

    @classmethod
    def errors(cls):
        yield ValueError, "size must be at least 0", Sample(arrays((2,)), -1)
        yield TypeError, "size must be given", Sample(arrays((2,)))


@material(MaskedSelect)
class _:
    def reference(self, x, mask):
        x, mask = np.broadcast_arrays(x, mask)
        return sized(x[mask], self.size, self.fill_value)

    def torch_reference(self, torch, x, mask):
        return torch_sized(torch, torch.masked_select(x, mask), self.size, self.fill_value)

    @classmethod
    def samples(cls):
        for size in (0, 5, 8, 10):
            yield Sample(arrays((3, 4)), MASK, size)
        yield Sample(arrays((4,)), MASK, 9, 1.0)
        yield Sample(arrays((0, 2)), Array((0, 2), dtype="bool"), 2, 1.0)
        yield Sample(arrays(()), Array((), values=True, dtype="bool"), 2)

    @classmethod
    def errors(cls):
        yield ShapeError, "masked_select", Sample(arrays((3,)), MASK, 2)
        yield DTypeError, "mask", Sample(arrays((3, 4)), arrays((3, 4)), 2)


@material(UniqueAll)
class _:
    def reference(self, x):
        every = {"return_index": True, "return_inverse": True, "return_counts": True, "equal_nan": False}
        values, indices, inverse, counts = np.unique(x, **every)
        fill = self.fill_value if self.fill_value is not None else values[0] if len(values) else 0
        first = indices[0] if len(indices) else 0
        parts = (sized(values, self.size, fill), sized(indices, self.size, first))
        return *parts, inverse.reshape(x.shape), sized(counts, self.size, 0)

    @classmethod
    def samples(cls):
        x = Array((3, 4), values=(np.arange(12).reshape(3, 4) * 5) % 7 - 3)
        exact = tuple(name for name in ("float32", "float64", "bfloat16", "int8", "int64"))
        for size in (0, 3, 7, 9):
            yield Sample(x, size, dtypes=exact, gradient=False)  # of equal elements one has it all
        yield Sample(x, 9, 2, dtypes=exact, gradient=False)
        yield Sample(Array((2, 3), distinct=True), 6, dtypes=("float32", "float64"))
        yield Sample(Array((2, 3), distinct=True), 8, 0.5, dtypes=("float32", "float64"))
        yield Sample(Array((4,), values=(np.nan, 0.0, -0.0, np.nan), dtype="float64"), 4, gradient=False)
        yield Sample(arrays((2, 0)), 2, 3.0, dtypes=exact)
        yield Sample(arrays(()), 2, dtypes=exact)
        yield Sample(MASK, 2)

    @classmethod
    def errors(cls):
        yield ShapeError, "need fill_value", Sample(arrays((0,)), 2)
        yield DTypeError, "no order", Sample(arrays((2,), dtype="complex64"), 2)


@material(RepeatEach)
class _:
    def reference(self, x, repeats):
        x = x.reshape(-1) if self.axis is None else x
        axis = (self.axis or 0) % x.ndim
        index = np.repeat(np.arange(x.shape[axis]), np.broadcast_to(repeats, x.shape[axis : axis + 1]))
        return np.take(x, sized(index, self.size, x.shape[axis] - 1), axis=axis)

    @classmethod
    def samples(cls):
        repeats = Array((3,), values=(2, 0, 1), dtype="int64")
        for size in (0, 2, 3, 5):
            yield Sample(arrays((3, 2)), repeats, size, 0)
        yield Sample(arrays((2, 3)), repeats, 3, -1)
        yield Sample(arrays((2, 2)), Array((1,), values=(3,), dtype="int32"), 12)
        yield Sample(arrays((2,)), Array((), values=2, dtype="uint8"), 4, 0)
        yield Sample(arrays((0, 2)), Array((0,), dtype="int64"), 0, 0)

    @classmethod
    def errors(cls):
        repeats = Array((2,), values=(1, 1), dtype="int64")
        yield ShapeError, "needs 3 repeats, or one", Sample(arrays((3,)), repeats, 3, 0)
        yield ShapeError, "nothing to repeat", Sample(arrays((0,)), Array((0,), dtype="int64"), 1, 0)
