"""What tests know of the operators of weft.ops.families.matrix_functions."""

import numpy as np
from tests.ops.material import material
from tests.ops.material.linalg import HALF, REAL, lu_of, positive, regular, square_errors, turned

from weft.base.errors import DTypeError, ShapeError
from weft.ops.families.matrix_functions import (
    CholeskySolve,
    Cross,
    Det,
    Eigvals,
    Eigvalsh,
    Expm,
    Kron,
    Lstsq,
    Lu,
    MatrixNorm,
    MatrixPower,
    MatrixRank,
    MatrixTrace,
    MultiDot,
    Pinv,
    Slogdet,
    Svdvals,
)
from weft.ops.samples import Sample, arrays

FOUR = np.array([[[2.0, 1, 0.5, 0], [-1, 3, 0.25, 1], [0.5, 0.75, 2, 0], [0, 1, 0, -1]]])


@material(Det)
class _:
    def reference(self, x):
        return np.linalg.det(x)

    @classmethod
    def samples(cls):
        for n in (0, 1, 2, 3):
            yield Sample(arrays((2, n, n)), tolerance=5)
        yield Sample(arrays((1, 4, 4), values=FOUR), tolerance=5)

    @classmethod
    def errors(cls):
        yield from square_errors("det")


@material(Slogdet)
class _:
    def reference(self, x):
        return tuple(np.linalg.slogdet(x))

    @classmethod
    def samples(cls):
        yield Sample(regular(), tolerance=5)
        yield Sample(arrays((1, 4, 4), values=FOUR), tolerance=5)
        yield Sample(arrays((2, 0, 0)))
        yield Sample(arrays((2, 2, 2), values=[[[1, 2], [2, 4]], [[1, 0], [0, 1]]]), gradient=False)

    @classmethod
    def errors(cls):
        yield from square_errors("slogdet")


@material(Svdvals)
class _:
    def reference(self, x):
        return np.linalg.svd(x, compute_uv=False)

    @classmethod
    def samples(cls):
        yield Sample(regular(), tolerance=5)
        yield Sample(arrays((2, 4, 2), distinct=True), tolerance=5)
        yield Sample(arrays((2, 3, 0)))


@material(Eigvalsh)
class _:
    def reference(self, x):
        return np.linalg.eigvalsh((x + turned(x)) / 2)

    @classmethod
    def samples(cls):
        yield Sample(positive(), tolerance=5)
        yield Sample(arrays((2, 0, 0)))

    @classmethod
    def errors(cls):
        yield from square_errors("eigvalsh")


@material(Eigvals)
class _:
    def reference(self, x):
        return np.linalg.eigvals(x) + 0j

    @classmethod
    def samples(cls):
        yield Sample(positive(), tolerance=10)
        yield Sample(arrays((2, 0, 0)))

    @classmethod
    def errors(cls):
        yield from square_errors("eigvals")


@material(Lu)
class _:
    def reference(self, x):
        lu, _, permutation = lu_of(x)
        m, n = x.shape[-2:]
        k = min(m, n)
        p = np.swapaxes(np.eye(m)[permutation], -1, -2)
        return p, np.tril(lu[..., :k], -1) + np.eye(m, k), np.triu(lu[..., :k, :])

    def torch_reference(self, torch, x):
        return torch.linalg.lu(x)

    @classmethod
    def samples(cls):
        yield Sample(regular(), tolerance=3)
        for shape in ((2, 4, 2), (2, 2, 4)):
            yield Sample(arrays(shape, distinct=True), tolerance=3, dtypes=REAL)

    @classmethod
    def errors(cls):
        yield DTypeError, HALF, Sample(arrays((2, 2), dtype="float16"))


@material(CholeskySolve)
class _:
    def reference(self, b, factor):
        triangle = np.triu(factor) if self.upper else np.tril(factor)
        a = turned(triangle) @ triangle if self.upper else triangle @ turned(triangle)
        return np.linalg.solve(a, b)

    def torch_reference(self, torch, b, factor):  # whose gradient reads both triangles
        triangle = factor.triu() if self.upper else factor.tril()
        return torch.cholesky_solve(b, triangle, upper=self.upper)

    @classmethod
    def samples(cls):
        for upper in (False, True):
            yield Sample(arrays((2, 3, 2)), positive(), upper=upper, tolerance=20)
        yield Sample(arrays((4, 1, 3, 1)), positive(), tolerance=20)

    @classmethod
    def errors(cls):
        yield ShapeError, "factor expects 3", Sample(arrays((2, 1)), arrays((3, 3)))


@material(Pinv)
class _:
    def reference(self, x):
        if 0 in x.shape[-2:]:
            return np.swapaxes(x, -1, -2)
        return np.linalg.pinv(x, self.rtol if self.rtol is not None else 1e-6)

    @classmethod
    def samples(cls):
        yield Sample(regular(), tolerance=20)
        for shape in ((2, 4, 2), (2, 2, 4)):
            yield Sample(arrays(shape, distinct=True), tolerance=50)
        yield Sample(arrays((1, 2, 2), values=[[1, 0], [0, 0.01]]), rtol=0.1, gradient=False)
        yield Sample(arrays((2, 3, 0)), gradient=False)

    @classmethod
    def errors(cls):
        yield DTypeError, HALF, Sample(arrays((2, 2), dtype="float16"))


@material(Lstsq)
class _:
    def reference(self, a, b):
        return np.linalg.pinv(a, self.rtol if self.rtol is not None else 1e-6) @ b

    def torch_reference(self, torch, a, b):
        columns = (b[:, None] if b.ndim == 1 else b).expand(*a.shape[:-1], -1)
        x = torch.linalg.lstsq(a, columns, rcond=self.rtol).solution
        return x[..., 0] if b.ndim == 1 else x

    @classmethod
    def samples(cls):
        yield Sample(regular(), arrays((2, 3, 2)), tolerance=30)
        yield Sample(arrays((2, 4, 2), distinct=True), arrays((4,)), tolerance=80)
        yield Sample(arrays((2, 2, 4), distinct=True), arrays((2, 2, 1)), tolerance=80)

    @classmethod
    def errors(cls):
        yield ShapeError, "the rows of a and b differ", Sample(arrays((3, 2)), arrays((2, 1)))


@material(MatrixRank)
class _:
    def reference(self, x):
        s = np.linalg.svd(x, compute_uv=False)
        rtol = max(x.shape[-2:]) * 2.0**-23 if self.rtol is None else self.rtol
        return np.sum(s > rtol * s.max(-1, keepdims=True, initial=0), axis=-1)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 2, 2), values=[[[1, 2], [2, 4]], [[1, 0], [0, 1]]]))
        yield Sample(regular(), rtol=0.5)
        yield Sample(arrays((2, 3, 0)))


@material(MatrixNorm)
class _:
    def reference(self, x):
        if 0 in np.shape(x)[-2:]:  # the greatest of none is 0
            return np.zeros(np.shape(x)[:-2] + (1, 1) * self.keepdims)
        return np.linalg.norm(x, self.ord, axis=(-2, -1), keepdims=self.keepdims)

    @classmethod
    def samples(cls):
        for ord in ("fro", "nuc", 1, -1, 2, -2, float("inf"), -float("inf")):
            dtypes = None if ord == "fro" else ("float32", "float64", "complex64", "complex128")
            yield Sample(regular(), ord=ord, tolerance=5, dtypes=dtypes)
            if ord in (1, 2, float("inf")):
                yield Sample(arrays((2, 3, 0)), ord=ord, dtypes=REAL)
                yield Sample(arrays((2, 0, 3)), ord=ord, keepdims=True, dtypes=REAL)
        yield Sample(arrays((2, 3, 4), distinct=True), ord=1, keepdims=True)
        yield Sample(arrays((2, 3, 4), distinct=True), ord=2, keepdims=True, tolerance=5, dtypes=REAL)

    @classmethod
    def errors(cls):
        yield ValueError, "ord must be one of", Sample(arrays((2, 2)), ord=3)
        yield ShapeError, "at least 2 dimensions", Sample(arrays((3,)))


@material(MatrixPower)
class _:
    def reference(self, x):
        return np.linalg.matrix_power(x, self.n)

    @classmethod
    def samples(cls):
        for n in (0, 1, 2, 5):
            yield Sample(arrays((2, 3, 3), low=-1, high=1), n=n, tolerance=5)
        yield Sample(regular(), n=-3, tolerance=20, dtypes=("float32", "float64", "complex64"))

    @classmethod
    def errors(cls):
        yield ShapeError, "matrix_power: x has 2 rows", Sample(arrays((2, 3)), n=2)


@material(Expm)
class _:
    def reference(self, x):
        """By squaring the series of a small multiple."""
        small, term = np.zeros_like(x) + np.eye(x.shape[-1]), np.eye(x.shape[-1]) + np.zeros_like(x)
        for k in range(1, 20):
            term = term @ (x / 2.0**10) / k
            small = small + term
        for _ in range(10):
            small = small @ small
        return small

    def torch_reference(self, torch, x):
        return torch.linalg.matrix_exp(x)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3, 3)), tolerance=50)
        yield Sample(arrays((1, 2, 2), values=[[9.0, -9], [1, 5]]), tolerance=1e4, dtypes=REAL)
        yield Sample(arrays((2, 0, 0)))

    @classmethod
    def errors(cls):
        yield from square_errors("expm")


@material(Cross)
class _:
    def reference(self, x1, x2):
        return np.cross(x1, x2, axis=self.axis)

    @classmethod
    def samples(cls):
        yield Sample(arrays((3,)), arrays((3,)))
        yield Sample(arrays((2, 1, 3)), arrays((4, 3)))
        yield Sample(arrays((3, 2)), arrays((3, 2)), axis=0)
        yield Sample(arrays((0, 3)), arrays((0, 3)))

    @classmethod
    def errors(cls):
        yield ShapeError, "needs size 3 along axis -1", Sample(arrays((2,)), arrays((2,)))
        yield IndexError, "axis 2 is out of range", Sample(arrays((3,)), arrays((3,)), axis=2)


@material(Kron)
class _:
    def reference(self, a, b):
        return np.kron(a, b)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3)), arrays((2, 2)))
        yield Sample(arrays((2,)), arrays((2, 1, 3)))
        yield Sample(arrays(()), arrays((2,)))
        yield Sample(arrays((0, 2)), arrays((2, 2)))


@material(MultiDot)
class _:
    def reference(self, *x):
        y = x[0]
        for other in x[1:]:
            y = y @ other
        return y

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3)), arrays((3, 4)), arrays((4, 2)))
        yield Sample(arrays((3,)), arrays((3, 4)), arrays((4,)))
        yield Sample(arrays((2, 3)))

    @classmethod
    def errors(cls):
        yield ShapeError, "inner sizes differ", Sample(arrays((2, 3)), arrays((2, 3)))
        yield ShapeError, "needs 1 or 2 dimensions", Sample(arrays((2, 3, 3)), arrays((3, 3)))


@material(MatrixTrace)
class _:
    def reference(self, x):
        return np.trace(x, self.offset, axis1=-2, axis2=-1)

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3, 4)))
        yield Sample(arrays((3, 3)), offset=1)
        yield Sample(arrays((0, 3)))

    @classmethod
    def errors(cls):
        yield ShapeError, "at least 2 dimensions", Sample(arrays((3,)))
