"""What tests know of the operators of weft.ops.families.shape."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import ShapeError
from weft.ops.families.shape import (
    END,
    BroadcastLike,
    BroadcastTo,
    Diagonal,
    ExpandDims,
    Flatten,
    Flip,
    MatrixTranspose,
    Moveaxis,
    PermuteDims,
    Reshape,
    Slice,
    Squeeze,
    Swapaxes,
    ViewGradient,
)
from weft.ops.samples import Sample, arrays
from weft.ops.types import normalize_axes


@material(ViewGradient)
class _:
    def reference(self, dy, x):
        of = self.of
        z = np.zeros(np.shape(x), dy.dtype)
        shape, strides, offset = of.see(z.shape, tuple(s // z.itemsize for s in z.strides))
        if z.size:
            start = z.reshape(-1)[offset:]
            np.lib.stride_tricks.as_strided(start, shape, [n * z.itemsize for n in strides])[...] = dy
        return z


@material(PermuteDims)
class _:
    def reference(self, x):
        return np.transpose(x, self.axes)

    def torch_reference(self, torch, x):
        return torch.permute(x, self.axes)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3, 4)), axes=(2, 0, 1))
        yield Sample(arrays((2, 3)), axes=(-1, 0))
        yield Sample(arrays(()), axes=())

    @classmethod
    def errors(cls):
        yield ShapeError, "axes (0, 0) are not a permutation of the 2", Sample(arrays((2, 3)), axes=(0, 0))


@material(ExpandDims)
class _:
    def reference(self, x):
        return np.expand_dims(x, self.axis)

    def torch_reference(self, torch, x):
        return torch.unsqueeze(x, self.axis) if isinstance(self.axis, int) else NotImplemented

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3)), axis=1)
        yield Sample(arrays((2, 3)), axis=(0, -1))
        yield Sample(arrays(()), axis=0)

    @classmethod
    def errors(cls):
        yield IndexError, "expand_dims: axis 3", Sample(arrays((2, 3)), axis=3)


@material(Squeeze)
class _:
    def reference(self, x):
        return np.squeeze(x, self.axis)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 1, 3)), axis=1)
        yield Sample(arrays((1, 2, 1)), axis=(0, -1))

    @classmethod
    def errors(cls):
        yield ShapeError, "squeeze: size 3 of axis 1 is not 1", Sample(arrays((2, 3)), axis=1)
        yield IndexError, "squeeze: axis 2", Sample(arrays((2, 3)), axis=2)


@material(Reshape)
class _:
    def reference(self, x):
        return np.reshape(x, self.shape)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 6)), shape=(3, -1))
        yield Sample(arrays((2, 6)), shape=(2, 3, 2))
        yield Sample(arrays(()), shape=(1, 1))
        yield Sample(arrays((0, 3)), shape=(3, 0, 2))

    @classmethod
    def errors(cls):
        yield ShapeError, "reshape: 6 elements do not fit", Sample(arrays((2, 3)), shape=(4, -1))


@material(BroadcastTo)
class _:
    def reference(self, x):
        return np.broadcast_to(x, self.shape)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 1)), shape=(3, 2, 4))
        yield Sample(arrays(()), shape=(2,))
        yield Sample(arrays((1, 3)), shape=(0, 3))

    @classmethod
    def errors(cls):
        yield ShapeError, "broadcast_to: x does not fit (3,)", Sample(arrays((2,)), shape=(3,))


@material(BroadcastLike)
class _:
    def reference(self, a, x):
        return np.broadcast_to(a, x.shape)


@material(Swapaxes)
class _:
    def reference(self, x):
        return np.swapaxes(x, self.axis1, self.axis2)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3, 4)), 0, -1)
        yield Sample(arrays((2, 3)), axis1=1, axis2=1)

    @classmethod
    def errors(cls):
        yield IndexError, "swapaxes: axis 2", Sample(arrays((2, 3)), 0, 2)


@material(MatrixTranspose)
class _:
    def reference(self, x):
        return np.swapaxes(x, -1, -2)

    def torch_reference(self, torch, x):
        return x.mT

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3, 4)))
        yield Sample(arrays((2, 0)))

    @classmethod
    def errors(cls):
        yield ShapeError, "matrix_transpose: needs at least 2", Sample(arrays((2,)))


@material(Moveaxis)
class _:
    def reference(self, x):
        return np.moveaxis(x, self.source, self.destination)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3, 4)), 0, -1)
        yield Sample(arrays((2, 3, 4)), source=(0, -1), destination=(1, 0))

    @classmethod
    def errors(cls):
        yield IndexError, "moveaxis: axis 2", Sample(arrays((2, 3)), 2, 0)
        yield ValueError, "differ in number", Sample(arrays((2, 3)), (0, 1), 0)


@material(Flatten)
class _:
    def reference(self, x):
        return np.reshape(x, self._shape(np.shape(x)))

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3, 4)))
        yield Sample(arrays((2, 3, 4)), 1)
        yield Sample(arrays((2, 3, 4)), start_axis=0, end_axis=1)
        yield Sample(arrays(()))
        yield Sample(arrays((2, 0, 4)), 1)

    @classmethod
    def errors(cls):
        yield IndexError, "flatten: axis 2", Sample(arrays((2, 3)), 2)
        yield ValueError, "end_axis 0 comes before", Sample(arrays((2, 3)), 1, 0)


@material(Flip)
class _:
    def reference(self, x):
        return np.flip(x, self.axis)

    def torch_reference(self, torch, x):
        return torch.flip(x, normalize_axes(self.name, self.axis, x.ndim))

    @classmethod
    def samples(cls):
        for axis in (None, 0, -1, (0, 2), ()):
            yield Sample(arrays((2, 3, 4)), axis=axis)
        yield Sample(arrays(()))
        yield Sample(arrays((0, 2)))

    @classmethod
    def errors(cls):
        yield IndexError, "flip: axis 2", Sample(arrays((2, 3)), axis=2)


@material(Slice)
class _:
    def reference(self, x):
        where = [slice(None)] * np.ndim(x)
        assert self.steps is not None
        assert self.axes is not None
        for start, stop, step, axis in zip(self.starts, self.stops, self.steps, self.axes, strict=True):
            where[axis] = slice(start, stop, step)
        return np.asarray(x)[tuple(where)]

    @classmethod
    def samples(cls):
        yield Sample(arrays((5, 4)), (1,), (-1,))
        yield Sample(arrays((5, 4)), (4, 0), (-(2**62), END), (-2, 3))
        yield Sample(arrays((5, 4)), starts=(1,), stops=(END,), axes=(-1,))
        yield Sample(arrays((5, 4)), (3,), (1,))
        yield Sample(arrays((5, 4)), (-9,), (2,))
        yield Sample(arrays(()), (), ())

    @classmethod
    def errors(cls):
        yield IndexError, "slice: axis 2", Sample(arrays((2, 3)), (0,), (1,), axes=(2,))
        yield ValueError, "must not be 0", Sample(arrays((2, 3)), (0,), (1,), (0,))
        yield ValueError, "differ in number", Sample(arrays((2, 3)), (0, 1), (1,))


@material(Diagonal)
class _:
    def reference(self, x):
        return np.diagonal(x, self.offset, self.axis1, self.axis2)

    def torch_reference(self, torch, x):
        return torch.diagonal(x, self.offset, self.axis1, self.axis2)

    @classmethod
    def samples(cls):
        for offset in (0, 1, -1, 7):
            yield Sample(arrays((3, 4)), offset)
        yield Sample(arrays((2, 3, 4)), axis1=-1, axis2=0, offset=1)

    @classmethod
    def errors(cls):
        yield IndexError, "diagonal: axis 1 is out of range", Sample(arrays((2,)))
        yield ValueError, "diagonal: an axis is named twice", Sample(arrays((2, 3)), 0, 0, 0)
