"""What tests know of the operators of weft.ops.families.diagonals."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import ShapeError
from weft.ops.families.diagonals import BlockDiag, Diag, DiagEmbed, KhatriRao, Rot90
from weft.ops.samples import Sample, arrays


@material(DiagEmbed)
class _:
    def reference(self, x):
        n, ndim = x.shape[-1] + abs(self.offset), x.ndim + 1
        y = np.zeros((*x.shape[:-1], n, n), x.dtype)
        for i in range(x.shape[-1]):
            y[..., i + max(-self.offset, 0), i + max(self.offset, 0)] = x[..., i]
        order = [self.axis1 % ndim, self.axis2 % ndim]
        return np.moveaxis(y, (-2, -1), order)

    @classmethod
    def samples(cls):
        for offset in (0, 2, -1):
            yield Sample(arrays((3,)), offset)
            yield Sample(arrays((2, 3)), offset, 0, -1)
        yield Sample(arrays((2, 4, 2)), 1, -1, 1)
        yield Sample(arrays((2, 0)))

    @classmethod
    def errors(cls):
        yield ShapeError, "needs a dimension", Sample(arrays(()))
        yield IndexError, "axis", Sample(arrays((2,)), 0, 0, 2)
        yield ValueError, "", Sample(arrays((2,)), 0, 1, 1)


@material(Diag)
class _:
    def reference(self, x):
        return np.diag(x, self.offset)

    @classmethod
    def samples(cls):
        for offset in (0, 1, -2):
            yield Sample(arrays((3,)), offset)
            yield Sample(arrays((3, 4)), offset)

    @classmethod
    def errors(cls):
        yield ShapeError, "needs 1 or 2 dimensions", Sample(arrays((1, 2, 3)))


@material(BlockDiag)
class _:
    def reference(self, *x):
        x = [np.atleast_2d(v) for v in x]
        y = np.zeros(np.sum([v.shape for v in x], axis=0), np.result_type(*x))
        row = column = 0
        for v in x:
            y[row : row + v.shape[0], column : column + v.shape[1]] = v
            row, column = row + v.shape[0], column + v.shape[1]
        return y

    def torch_reference(self, torch, *x):
        return torch.block_diag(*x)

    @classmethod
    def samples(cls):
        yield Sample([arrays((2, 3)), arrays((1, 2)), arrays((3,))])
        yield Sample([arrays((2, 0)), arrays((1, 2))])

    @classmethod
    def errors(cls):
        yield ShapeError, "takes matrices", Sample([arrays((1, 2, 3))])


@material(KhatriRao)
class _:
    def reference(self, *x):
        y = x[0]
        for v in x[1:]:
            y = np.stack([np.kron(y[:, j], v[:, j]) for j in range(y.shape[1])], axis=1)
        return y

    def torch_reference(self, torch, *x):
        return NotImplemented

    @classmethod
    def samples(cls):
        yield Sample([arrays((2, 3)), arrays((4, 3)), arrays((2, 3))])
        yield Sample([arrays((2, 2))])

    @classmethod
    def errors(cls):
        yield ShapeError, "one number of columns", Sample([arrays((2, 3)), arrays((2, 2))])


@material(Rot90)
class _:
    def reference(self, x):
        return np.rot90(x, self.k, self.axes)

    @classmethod
    def samples(cls):
        for k in (0, 1, 2, 3, -1):
            yield Sample(arrays((2, 3, 4)), k)
            yield Sample(arrays((2, 3, 4)), k, (2, 0))

    @classmethod
    def errors(cls):
        yield ValueError, "axes must be two", Sample(arrays((2, 3)), 1, (0,))
        yield IndexError, "axis", Sample(arrays((2, 3)), 1, (0, 2))
