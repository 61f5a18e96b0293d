"""What tests know of the operators of weft.ops.families.grouped."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import ShapeError
from weft.ops.families.grouped import GroupedMatmul
from weft.ops.samples import Array, Sample, arrays


def ends(*values):
    return Array((len(values),), dtype="int64", values=values)


@material(GroupedMatmul)
class _:
    def reference(self, a, b, ends):
        begins = [0, *ends[:-1]]
        if a.ndim == b.ndim == 2:
            parts = [a[:, i:j] @ b[i:j] for i, j in zip(begins, ends, strict=True)]
            return np.stack(parts) if parts else np.zeros((0, a.shape[0], b.shape[1]), a.dtype)
        y = np.zeros((a.shape[-2], b.shape[-1]), a.dtype)
        for k, (i, j) in enumerate(zip(begins, ends, strict=True)):
            if a.ndim == 2:
                y[i:j] = a[i:j] @ b[k]
            else:
                y[:, i:j] = a[k] @ b[:, i:j]
        return y

    @classmethod
    def samples(cls):
        yield Sample(arrays((6, 3)), arrays((3, 3, 2)), ends(2, 2, 5))
        yield Sample(arrays((2, 4, 3)), arrays((3, 5)), ends(3, 5))
        yield Sample(arrays((3, 6)), arrays((6, 2)), ends(1, 4, 4))
        yield Sample(arrays((4, 3)), arrays((1, 3, 2)), ends(4))
        yield Sample(arrays((0, 3)), arrays((2, 3, 2)), ends(0, 0))

    @classmethod
    def errors(cls):
        yield ShapeError, "do not fit 2 groups", Sample(arrays((4, 3)), arrays((3, 3, 2)), ends(1, 2))
        yield ShapeError, "takes a matrix and a stack", Sample(arrays((3,)), arrays((3, 2)), ends(1))
