"""What tests know of the operators of weft.ops.families.linalg.

Samples are stacks of matrices: of one matrix, rows that are all the same would be singular.
"""

import numpy as np
from tests.ops.material import material

from weft.base.errors import DTypeError, ShapeError
from weft.ops.families.linalg import Cholesky, Eig, Eigh, Inv, LuFactor, Qr, Solve, SolveTriangular, Svd
from weft.ops.samples import Sample, arrays

REAL = ("float32", "float64")
POSITIVE = [
    [[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]],
    [[2.0, 0.5, 0.75], [0.5, 1.5, 1], [0.75, 1, 3.0]],
]
REGULAR = [
    [[2.0, 1.0, 0.5], [-1.0, 3.0, 0.25], [0.5, 0.75, 2.0]],
    [[0.25, 2.0, 0.5], [1.5, 0.5, 1], [-0.5, 1, 4.0]],
]
HALF = "takes float32 or float64 or complex types"


def positive(**options):
    return arrays((2, 3, 3), values=POSITIVE, **options)


def regular(**options):
    return arrays((2, 3, 3), values=REGULAR, **options)


def turned(x):
    return np.conj(np.swapaxes(x, -1, -2))


def in_phase(torch, vectors, wanted):
    """PyTorch's vectors, columns, each with the sign or phase that it has in an array: any is right."""
    inner = (vectors.detach().conj() * torch.tensor(wanted)).sum(-2, keepdim=True)
    return vectors * inner.sgn()


def with_phases(vectors, wanted):
    """Columns, each with the sign or phase that it has in an array, and the numbers that they are multiplied by."""
    inner = (np.conj(vectors) * wanted).sum(-2, keepdims=True)
    size = np.abs(inner)
    factors = np.where(size == 0, 1, inner / np.where(size == 0, 1, size)).astype(vectors.dtype)
    return vectors * factors, factors


def of_same_space(vectors, wanted):
    """Columns that span the same space as those of an array, turned in it to be the same."""
    return vectors @ (turned(vectors) @ wanted)


def square_errors(name):
    yield ShapeError, f"{name}: x has 2 rows, x expects 3", Sample(arrays((2, 3)))
    yield ShapeError, "at least 2 dimensions", Sample(arrays((3,)))
    yield DTypeError, HALF, Sample(arrays((2, 2), dtype="float16"))


@material(Cholesky)
class _:
    def reference(self, x):
        y = np.linalg.cholesky((x + turned(x)) / 2)
        return turned(y) if self.upper else y

    def torch_reference(self, torch, x):
        return torch.linalg.cholesky((x + x.mH) / 2, upper=self.upper)

    @classmethod
    def samples(cls):
        for upper in (False, True):
            yield Sample(positive(), upper=upper)
        yield Sample(arrays((1, 40, 40), values=np.eye(40) * 3 + 1), tolerance=3)
        yield Sample(arrays((2, 0, 0)))

    @classmethod
    def errors(cls):
        yield from square_errors("cholesky")


def lu_of(x):
    """LU factorization by elimination with partial pivoting, one matrix after the other."""
    lu = np.array(x)
    m, n = x.shape[-2:]
    pivots = np.zeros((*x.shape[:-2], min(m, n)), np.int32)
    permutation = np.zeros((*x.shape[:-2], m), np.int32)
    for index in np.ndindex(x.shape[:-2]):
        a, order = lu[index], np.arange(m)
        for k in range(min(m, n)):
            p = k + np.argmax(np.abs(a[k:, k].real) + np.abs(a[k:, k].imag))
            pivots[(*index, k)] = p
            a[[k, p]], order[[k, p]] = a[[p, k]], order[[p, k]]
            if a[k, k] != 0:
                a[k + 1 :, k] /= a[k, k]
            a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
        permutation[index] = order
    return lu, pivots, permutation


@material(LuFactor)
class _:
    def reference(self, x):
        return lu_of(x)

    def torch_reference(self, torch, x):
        lu, pivots = torch.linalg.lu_factor(x)
        permutation = torch.lu_unpack(lu, pivots, unpack_data=False)[0].real.argmax(-2)
        return lu, pivots - 1, permutation.expand(x.shape[:-1])

    @classmethod
    def samples(cls):
        yield Sample(regular(), tolerance=3)
        yield Sample(arrays((2, 4, 2), distinct=True), tolerance=3, dtypes=REAL)
        yield Sample(arrays((2, 2, 4), distinct=True), tolerance=3, dtypes=REAL)
        yield Sample(arrays((2, 3, 0)))

    @classmethod
    def errors(cls):
        yield ShapeError, "at least 2 dimensions", Sample(arrays((3,)))
        yield DTypeError, HALF, Sample(arrays((2, 2), dtype="float16"))


def solution(a, b):
    return np.linalg.solve(a, b[:, None])[..., 0] if b.ndim == 1 else np.linalg.solve(a, b)


@material(Solve)
class _:
    def reference(self, a, b):
        return solution(a, b)

    @classmethod
    def samples(cls):
        yield Sample(regular(), arrays((2, 3, 2)), tolerance=5)
        yield Sample(regular(), arrays((3,)), tolerance=5)
        yield Sample(regular(), arrays((4, 1, 3, 1)), tolerance=5)
        yield Sample(regular(dtype="float32"), arrays((3, 2), dtype="float64"), tolerance=5)
        yield Sample(arrays((2, 0, 0)), arrays((2, 0, 3)))

    @classmethod
    def errors(cls):
        yield ShapeError, "a has 3 rows, b has 2", Sample(arrays((3, 3)), arrays((2, 1)))
        yield ShapeError, "a has 2 rows", Sample(arrays((2, 3)), arrays((2, 1)))
        yield DTypeError, HALF, Sample(arrays((2, 2), dtype="float16"), arrays((2,), dtype="float16"))


@material(SolveTriangular)
class _:
    def reference(self, a, b):
        triangle = np.triu(a, int(self.unit)) if self.upper else np.tril(a, -int(self.unit))
        return solution(triangle + np.eye(a.shape[-1]) * self.unit, b)

    def torch_reference(self, torch, a, b):
        columns = b[:, None] if b.ndim == 1 else b
        x = torch.linalg.solve_triangular(a, columns, upper=self.upper, unitriangular=self.unit)
        return x[..., 0] if b.ndim == 1 else x

    @classmethod
    def samples(cls):
        for upper in (False, True):
            for unit in (False, True):
                yield Sample(positive(), arrays((2, 3, 2)), upper=upper, unit=unit, tolerance=5)
        yield Sample(positive(), arrays((3,)), tolerance=5)
        yield Sample(positive(), arrays((4, 1, 3, 1)), upper=True, tolerance=5)
        yield Sample(arrays((2, 0, 0)), arrays((2, 0, 3)))

    @classmethod
    def errors(cls):
        yield from Solve.errors()


@material(Inv)
class _:
    def reference(self, x):
        return np.linalg.inv(x)

    @classmethod
    def samples(cls):
        yield Sample(regular(), tolerance=5)
        yield Sample(arrays((1, 40, 40), values=np.eye(40) * 3 + 1), tolerance=5)
        yield Sample(arrays((2, 0, 0)))

    @classmethod
    def errors(cls):
        yield from square_errors("inv")


@material(Qr)
class _:
    def reference(self, x):
        return tuple(np.linalg.qr(x, self.mode))

    @classmethod
    def samples(cls):
        for shape in ((2, 3, 3), (2, 2, 4)):
            yield Sample(arrays(shape, distinct=True), tolerance=20)
            yield Sample(arrays(shape, distinct=True), mode="complete", tolerance=20)
        yield Sample(arrays((2, 4, 2), distinct=True), tolerance=20)
        yield Sample(arrays((2, 4, 2), distinct=True), mode="complete", tolerance=20, gradient=False)
        yield Sample(arrays((2, 3, 0)), mode="complete", gradient=False)

    @classmethod
    def errors(cls):
        yield ShapeError, "at least 2 dimensions", Sample(arrays((3,)))
        yield ValueError, "mode must be 'reduced' or 'complete'", Sample(arrays((3, 3)), mode="r")


@material(Svd)
class _:
    def reference(self, x):
        """By the transpose, as the kernel computes it: so signs are the same."""
        u, s, vh = np.linalg.svd(np.swapaxes(x, -1, -2), self.full_matrices)
        return np.swapaxes(vh, -1, -2), s, np.swapaxes(u, -1, -2)

    def in_reference_form(self, got, want):
        """A vector and its partner have one sign; of full matrices, the vectors beyond the values any basis."""
        (u, s, vh), k = got, got[1].shape[-1]
        u, vh = u.copy(), vh.copy()
        u[..., :k], factors = with_phases(u[..., :k], want[0][..., :k])
        vh[..., :k, :] *= turned(factors)
        u[..., k:] = of_same_space(u[..., k:], want[0][..., k:])
        vh[..., k:, :] = turned(of_same_space(turned(vh[..., k:, :]), turned(want[2][..., k:, :])))
        return u, s, vh

    def torch_reference(self, torch, x):
        if self.full_matrices and x.shape[-1] != x.shape[-2]:
            return NotImplemented  # some vectors are any basis of what is left
        u, s, vh = torch.linalg.svd(x, full_matrices=self.full_matrices)
        wanted_u, _, wanted_vh = self.reference(x.detach().numpy())
        return in_phase(torch, u, wanted_u), s, in_phase(torch, vh.mT, wanted_vh.swapaxes(-1, -2)).mT

    @classmethod
    def samples(cls):
        yield Sample(regular(), tolerance=20, dtypes=REAL)
        for shape in ((2, 4, 2), (2, 2, 4)):
            yield Sample(arrays(shape, distinct=True), tolerance=30, full_matrices=False, dtypes=REAL)
            yield Sample(arrays(shape, distinct=True), tolerance=30, dtypes=REAL, gradient=False)
        yield Sample(arrays((2, 3, 0)), gradient=False)

    @classmethod
    def errors(cls):
        yield ShapeError, "at least 2 dimensions", Sample(arrays((3,)))
        yield DTypeError, HALF, Sample(arrays((2, 2), dtype="bfloat16"))


@material(Eigh)
class _:
    def reference(self, x):
        """Of the conjugate's upper triangle, as the kernel computes it: so signs are the same."""
        values, vectors = np.linalg.eigh(np.conj(x + turned(x)) / 2, "U")
        return values, np.conj(vectors)

    def in_reference_form(self, got, want):
        return got[0], with_phases(got[1], want[1])[0]

    def torch_reference(self, torch, x):
        values, vectors = torch.linalg.eigh((x + x.mH) / 2)
        return values, in_phase(torch, vectors, self.reference(x.detach().numpy())[1])

    @classmethod
    def samples(cls):
        yield Sample(positive(), tolerance=20, dtypes=REAL)
        yield Sample(arrays((2, 0, 0)))

    @classmethod
    def errors(cls):
        yield from square_errors("eigh")


@material(Eig)
class _:
    def reference(self, x):
        values, vectors = np.linalg.eig(x)
        return values + 0j, vectors + 0j

    def in_reference_form(self, got, want):
        """Values in the reference's order."""
        values, vectors = (np.zeros_like(x) for x in got)
        for index in np.ndindex(values.shape[:-1]):
            left = [*range(values.shape[-1])]
            for k, wanted in enumerate(want[0][index]):
                j = left.pop(np.argmin([abs(got[0][index][i] - wanted) for i in left]))
                values[index][k], vectors[index][:, k] = got[0][index][j], got[1][index][:, j]
        return values, with_phases(vectors, want[1])[0]

    def torch_reference(self, torch, x):
        values, vectors = torch.linalg.eig(x)
        return values, in_phase(torch, vectors, self.reference(x.detach().numpy())[1])

    @classmethod
    def samples(cls):
        """Of one precision, as signs may differ between precisions."""
        yield Sample(positive(), tolerance=20, gradient=False, dtypes=("float64", "complex128"))
        yield Sample(arrays((2, 0, 0)), gradient=False)

    @classmethod
    def errors(cls):
        yield from square_errors("eig")
