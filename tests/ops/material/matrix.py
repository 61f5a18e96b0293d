"""What tests know of the operators of weft.ops.families.matrix."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import DTypeError, ShapeError
from weft.ops.families.matrix import Dot, Einsum, Linear, Matmul, Outer, Tensordot, Vecdot
from weft.ops.samples import Sample, arrays


@material(Dot)
class _:
    def reference(self, x1, x2):
        product = x1 * x2
        return np.sum(product, axis=self.axes(np.ndim(product)), dtype=product.dtype)


@material(Vecdot)
class _:
    def reference(self, x1, x2):
        product = np.conj(x1) * x2
        return np.sum(product, axis=self.axes(np.ndim(product)), dtype=product.dtype)

    @classmethod
    def samples(cls):
        yield Sample(arrays((3,)), arrays((3,)))
        yield Sample(arrays((2, 3)), arrays((3,)))
        yield Sample(arrays((2, 1, 3)), arrays((4, 3)))
        yield Sample(arrays((3, 2)), arrays((3, 2)), axis=-2)
        yield Sample(arrays((2, 0)), arrays((2, 0)))
        yield Sample(arrays((4,), dtype="int32"), arrays((4,), dtype="int64"))

    @classmethod
    def errors(cls):
        yield ShapeError, "vecdot: sizes differ, 3 != 4", Sample(arrays((3,)), arrays((4,)))
        yield IndexError, "vecdot: both need axis 0", Sample(arrays((3,)), arrays((3,)), axis=0)


@material(Matmul)
class _:
    def reference(self, a, b):
        return np.matmul(a, b)

    @classmethod
    def samples(cls):
        for a, b in (
            ((2, 3), (3, 4)),
            ((1,), (1,)),
            ((1,), (1, 1)),
            ((3,), (3,)),
            ((3,), (3, 2)),
            ((2, 3), (3,)),
            ((5, 2, 3), (3, 2)),
            ((2, 3), (5, 3, 2)),
            ((5, 1, 2, 3), (4, 3, 1)),
            ((3,), (2, 3, 4)),
            ((2, 4, 3), (3,)),
            ((2, 0), (0, 3)),
            ((0, 2), (2, 3)),
            ((0,), (0,)),
            ((2, 0), (0,)),
            ((0,), (0, 2)),
            ((0, 0), (0, 0)),
            ((2, 0, 3), (3, 2)),
            ((0, 2, 3), (3, 2)),
        ):
            yield Sample(arrays(a), arrays(b))
        yield Sample(arrays((2, 3), dtype="int8"), arrays((3, 2), dtype="int32"))
        yield Sample(arrays((2, 3), dtype="bfloat16"), arrays((3, 2), dtype="float32"), gradient=False)

    @classmethod
    def errors(cls):
        yield (
            ShapeError,
            "matmul: inner sizes differ, 3 != 4: a is f32[2,3]",
            Sample(arrays((2, 3)), arrays((4, 2))),
        )
        yield ShapeError, "leading sizes (2,) and (3,)", Sample(arrays((2, 3, 3)), arrays((3, 3, 2)))
        yield ShapeError, "at least 1 dimension", Sample(arrays(()), arrays((2,)))
        yield DTypeError, "takes numbers", Sample(arrays((2,), dtype="bool"), arrays((2,), dtype="bool"))


@material(Linear)
class _:
    def reference(self, x, weight, bias=None):
        y = np.matmul(x, weight.T)
        return y if bias is None else y + bias

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3)), arrays((4, 3)), arrays((4,)))
        yield Sample(arrays((2, 3)), arrays((4, 3)))
        yield Sample(arrays((5, 2, 3)), arrays((4, 3)), arrays((4,)))
        yield Sample(arrays((3,)), arrays((4, 3)), arrays((4,)))
        yield Sample(arrays((1, 1, 3)), arrays((4, 3)))
        yield Sample(arrays((0, 3)), arrays((4, 3)), arrays((4,)), out_features=4)
        yield Sample(arrays((0, 3)), arrays((0, 3)))
        yield Sample(arrays((2, 0)), arrays((3, 0)), arrays((3,)))

    @classmethod
    def errors(cls):
        yield (
            ShapeError,
            "linear: x has 3 in_features, weight expects 2",
            Sample(arrays((2, 3)), arrays((4, 2))),
        )
        yield (
            ShapeError,
            "weight has 4 out_features, bias expects 3",
            Sample(arrays((2, 3)), arrays((4, 3)), arrays((3,))),
        )
        yield (
            ShapeError,
            "weight has 4 out_features, out_features is 5",
            Sample(arrays((2, 3)), arrays((4, 3)), out_features=5),
        )


@material(Outer)
class _:
    def reference(self, x1, x2):
        return np.multiply.outer(x1, x2)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2,)), arrays((3,)))
        yield Sample(arrays((0,)), arrays((3,)))

    @classmethod
    def errors(cls):
        yield ShapeError, "outer: x1 needs 1 dimension", Sample(arrays((2, 1)), arrays((3,)))


@material(Tensordot)
class _:
    def reference(self, x1, x2):
        axes = self.axes
        return np.tensordot(x1, x2, axes)

    def torch_reference(self, torch, x1, x2):
        return torch.tensordot(x1, x2, dims=self.axes)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3, 4)), arrays((3, 4, 5)))
        yield Sample(arrays((2, 3)), arrays((4,)), axes=0)
        yield Sample(arrays((2, 3, 4)), arrays((4, 3, 5)), axes=((1, -1), (1, 0)))
        yield Sample(arrays((2, 3)), arrays((2, 3)), axes=2)

    @classmethod
    def errors(cls):
        yield (
            ShapeError,
            "sizes differ, 3 of axis 1 != 2 of axis 0",
            Sample(arrays((2, 3)), arrays((2, 3)), axes=1),
        )
        yield ValueError, "two tuples", Sample(arrays((2, 3)), arrays((2, 3)), axes=((0,), (0, 1)))


@material(Einsum)
class _:
    def reference(self, *x):
        return np.einsum(self.equation, *x)

    def torch_reference(self, torch, *x):
        return torch.einsum(self.equation, *x)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3)), arrays((3, 4)), equation="ij,jk->ik")
        yield Sample(arrays((2, 3)), arrays((3, 4)), equation="ij, jk")
        yield Sample(arrays((2, 3)), equation="ij->ji")
        yield Sample(arrays((2, 3)), equation="ij->")
        yield Sample(arrays((2, 3)), arrays((4,)), equation="ij,k->kji")
        yield Sample(arrays((5, 2, 3)), arrays((5, 3, 4)), equation="bij,bjk->bik")
        yield Sample(arrays((5, 2, 3)), arrays((3, 4)), equation="...ij,...jk->...ik")
        yield Sample(arrays((2, 3)), arrays((3, 4)), arrays((4, 2)), equation="ij,jk,kl->il")
        yield Sample(arrays((2, 3)), arrays((3, 4)), arrays((4,)), equation="ij,jk,k->i")
        yield Sample(arrays((2, 3)), arrays((3,)), arrays((2,)), arrays((4,)), equation="ij,j,i,k->k")
        yield Sample(arrays((2, 3, 4)), arrays((2, 4)), equation="abc,ac->b")
        yield Sample(arrays((2, 3)), arrays((2, 3)), equation="ij,ij->i")
        yield Sample(arrays((3, 3)), equation="ii")
        yield Sample(arrays((3, 2, 3)), arrays((2, 3)), equation="iji,ji->ij")

    @classmethod
    def errors(cls):
        yield (
            ShapeError,
            "sizes of 'j' differ, 3 != 4",
            Sample(arrays((2, 3)), arrays((4, 2)), equation="ij,jk->ik"),
        )
        yield ValueError, "1 operands for 2", Sample(arrays((2, 3)), equation="ij,jk->ik")
        yield ValueError, "must consist of", Sample(arrays((2, 3)), equation="i1->i")
        yield ValueError, "has a new one", Sample(arrays((2, 3)), equation="ij->k")
