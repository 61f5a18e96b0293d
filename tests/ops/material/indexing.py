"""What tests know of the operators of weft.ops.families.indexing."""

import numpy as np
from tests.ops.material import material

from weft.base.dtype import int64
from weft.base.errors import DTypeError, ShapeError
from weft.ops.families.indexing import (
    MODES,
    CheckIndices,
    Embedding,
    Gather,
    IndexGet,
    IndexPut,
    MaskedFill,
    PutAlongAxis,
    Putting,
    Take,
    TakeAlongAxis,
)
from weft.ops.samples import Sample, arrays
from weft.ops.types import TensorType


def indices(shape, size, dtype="int64"):
    """Indices into a dimension of this size."""
    return arrays(shape, low=-size, high=size - 0.001, dtype=dtype)


@material(Putting)
class _:
    def put_reference(self, y, places, updates):
        if self.mode == "set":
            y[places] = updates
        else:
            {"add": np.add, "max": np.maximum, "min": np.minimum}[self.mode].at(y, places, updates)
        return y


@material(Take)
class _:
    def reference(self, x, indices):
        return np.take(x, indices, axis=self.axis)

    def torch_reference(self, torch, x, indices):
        return x.movedim(self.axis or 0, 0)[indices].movedim(
            tuple(range(indices.ndim)), tuple(range(a := (self.axis or 0) % x.ndim, a + indices.ndim))
        )

    @classmethod
    def samples(cls):
        yield Sample(arrays((4,)), indices((3,), 4))
        yield Sample(arrays((2, 4, 3)), indices((2, 5), 4), axis=1)
        yield Sample(arrays((2, 4)), indices((), 4), axis=-1)
        yield Sample(arrays((2, 4)), indices((0,), 4), axis=0)

    @classmethod
    def errors(cls):
        yield DTypeError, "indices must be integers", Sample(arrays((4,)), arrays((3,)))
        yield ValueError, "axis must be given", Sample(arrays((4, 4)), indices((3,), 4))
        yield IndexError, "axis 2 is out of range", Sample(arrays((4, 4)), indices((3,), 4), axis=2)


@material(TakeAlongAxis)
class _:
    def reference(self, x, indices):
        axis, shape, repeated = self.shapes(TensorType(x.shape, int64), TensorType(indices.shape, int64))
        return np.take_along_axis(np.broadcast_to(x, repeated), np.broadcast_to(indices, shape), axis)

    def torch_reference(self, torch, x, indices):
        return torch.take_along_dim(x, indices % x.shape[self.axis], self.axis)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 4)), indices((2, 3), 4))
        yield Sample(arrays((4, 3)), indices((6, 3), 4), axis=0)
        yield Sample(arrays((2, 4, 3)), indices((2, 5, 3), 4, "int32"), axis=1)
        yield Sample(arrays((1, 4)), indices((3, 2), 4))
        yield Sample(arrays((3, 4)), indices((1, 2), 4))

    @classmethod
    def errors(cls):
        yield ShapeError, "as many dimensions", Sample(arrays((2, 4)), indices((3,), 4))
        yield ShapeError, "sizes but for axis 1 differ", Sample(arrays((2, 4)), indices((3, 4), 4))


@material(PutAlongAxis)
class _:
    def reference(self, x, indices, updates):
        y = np.array(x)
        axis = self.axis % y.ndim
        places = list(np.indices(indices.shape))
        places[axis] = indices
        return self.put_reference(y, tuple(places), np.broadcast_to(updates, indices.shape))

    def torch_reference(self, torch, x, indices, updates):
        modes = {"add": "sum", "max": "amax", "min": "amin"}
        places = indices % x.shape[self.axis]
        if self.mode == "set":
            return torch.scatter(x, self.axis, places, updates.expand(places.shape))
        return torch.scatter_reduce(x, self.axis, places, updates.expand(places.shape), modes[self.mode])

    @classmethod
    def samples(cls):
        for mode in MODES:
            yield Sample(
                arrays((2, 4), distinct=True),
                arrays((2, 3), values=[[0, -1, 1], [3, 2, 0]], dtype="int64"),
                arrays((2, 3)),
                mode=mode,
            )
        yield Sample(arrays((4, 3)), indices((6, 2), 4), arrays((6, 2)), axis=0, mode="add")
        yield Sample(arrays((4, 3)), indices((2, 3), 4), 2.0, axis=0)

    @classmethod
    def errors(cls):
        yield (
            ValueError,
            "mode must be one of",
            Sample(arrays((4,)), indices((2,), 4), arrays((2,)), mode="mul"),
        )
        yield (
            ShapeError,
            "indices must have 1 dimensions",
            Sample(arrays((4,)), indices((2, 2), 4), arrays((2,))),
        )
        yield ShapeError, "updates do not fit", Sample(arrays((4,)), indices((1,), 4), arrays((2,)))


def reference_places(x, axes, indices):
    """x with the indexed axes first, and the tuple that indexes them."""
    return np.moveaxis(x, axes, range(len(axes))), tuple(np.broadcast_arrays(*indices))


@material(CheckIndices)
class _:
    def reference(self, x, *indices):
        return np.zeros((), np.int64)


@material(Gather)
class _:
    def reference(self, x, checked, *indices):
        if self.along:
            return np.take_along_axis(x, *indices, self.axes[0])
        return IndexGet(axes=self.axes, position=self.position).reference(x, *indices)


@material(IndexGet)
class _:
    def reference(self, x, *indices):
        moved, places = reference_places(x, self.axes, indices)
        y = moved[places]
        rank = places[0].ndim
        return np.moveaxis(y, range(rank), range(self.position, self.position + rank))

    def torch_reference(self, torch, x, *indices):
        y = x.movedim(self.axes, tuple(range(len(self.axes))))[indices]
        rank = torch.broadcast_tensors(*indices)[0].ndim
        return y.movedim(tuple(range(rank)), tuple(range(self.position, self.position + rank)))

    @classmethod
    def samples(cls):
        yield Sample(arrays((4, 3)), indices((5,), 4), indices((5,), 3), axes=(0, 1))
        yield Sample(arrays((4, 2, 3)), indices((2, 1), 4), indices((5,), 3), axes=(0, 2), position=1)
        yield Sample(arrays((4, 2, 3)), indices((2, 2), 2), axes=(1,), position=2)
        yield Sample(arrays((4, 3)), indices((0,), 4), axes=(0,))

    @classmethod
    def errors(cls):
        yield IndexError, "axis 0 is out of range", Sample(arrays(()), indices((2,), 1), axes=(0,))
        yield (
            ValueError,
            "1 index arrays for the axes (0, 1)",
            Sample(arrays((4, 3)), indices((2,), 3), axes=(0, 1)),
        )
        yield (
            ValueError,
            "position must be in 0..1",
            Sample(arrays((4, 3)), indices((2,), 3), axes=(0,), position=2),
        )


@material(IndexPut)
class _:
    def reference(self, x, updates, *indices):
        y = np.array(x)
        moved, places = reference_places(y, self.axes, indices)
        rank = places[0].ndim
        shape = np.moveaxis(moved[places], range(rank), range(self.position, self.position + rank)).shape
        full = np.broadcast_to(updates, shape)
        self.put_reference(
            moved, places, np.moveaxis(full, range(self.position, self.position + rank), range(rank))
        )
        return y

    def torch_reference(self, torch, x, updates, *indices):
        if self.mode not in ("set", "add"):
            return NotImplemented
        first = tuple(range(len(self.axes)))
        rank = torch.broadcast_tensors(*indices)[0].ndim
        shape = x.movedim(self.axes, first)[indices].shape
        there = range(self.position, self.position + rank)
        full = updates.movedim(tuple(there), tuple(range(rank))) if updates.ndim else updates
        y = torch.index_put(x.movedim(self.axes, first), indices, full.expand(shape), self.mode == "add")
        return y.movedim(first, self.axes)

    @classmethod
    def samples(cls):
        row = arrays((3,), values=[0, 2, -1], dtype="int64")
        for mode in MODES:
            yield Sample(
                arrays((4, 3), distinct=True),
                arrays((3, 3)),
                row,
                axes=(0,),
                mode=mode,
            )
        yield Sample(
            arrays((4, 2, 3)),
            arrays((2, 2, 5)),
            indices((2, 1), 4),
            indices((5,), 3),
            axes=(0, 2),
            position=1,
            mode="add",
        )
        yield Sample(arrays((4, 3)), 1.5, row, axes=(0,))

    @classmethod
    def errors(cls):
        yield (
            ShapeError,
            "updates do not fit the shape (2, 3)",
            Sample(arrays((4, 3)), arrays((4, 2, 3)), indices((2,), 4), axes=(0,)),
        )


@material(Embedding)
class _:
    def reference(self, indices, table):
        return table[indices]

    def torch_reference(self, torch, indices, table):
        return torch.nn.functional.embedding(indices % len(table), table, self.padding_idx)

    @classmethod
    def samples(cls):
        yield Sample(indices((3,), 4), arrays((4, 2)))
        yield Sample(indices((2, 5), 4, "int32"), arrays((4, 3)))
        yield Sample(indices((), 4), arrays((4, 3)), padding_idx=-1, gradient=False)

    @classmethod
    def errors(cls):
        yield DTypeError, "takes integers as indices", Sample(arrays((3,)), arrays((4, 2)))
        yield ShapeError, "table needs 2 dimensions", Sample(indices((3,), 4), arrays((4,)))


@material(MaskedFill)
class _:
    def reference(self, x, mask):
        return np.where(mask, np.asarray(self.value, np.asarray(x).dtype), x)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3)), arrays((2, 3), dtype="bool"), value=1.5)
        yield Sample(
            arrays((2, 3)),
            arrays((3,), dtype="bool"),
            value=-1e9,
            gradient=False,
            dtypes=("float32", "float64"),
        )

    @classmethod
    def errors(cls):
        yield DTypeError, "mask must be boolean", Sample(arrays((3,)), arrays((3,)), value=0.0)
