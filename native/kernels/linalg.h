// linalg.h: kernels of linear algebra, on stacks of matrices: the last two axes, of float32, float64,
// complex64 or complex128. Operands have any strides; leading axes are broadcast. The addresses of LAPACK's
// routines have to be set before one is made (lapack.h). ValueError names the first matrix that has no
// result.
#pragma once

#include "program/kernel.h"

namespace weft {

// a[.., m, k], b[.., k, n] -> y[.., m, n]; accumulate: added to what y has. By BLAS.
Ref<Kernel> make_product(bool accumulate);
// x[.., n, n] -> L with L L^H = x, or U with U^H U = x, for the Hermitian part of x.
Ref<Kernel> make_cholesky(bool upper);
// x[.., m, n] -> lu[.., m, n], int32 pivots[.., min(m, n)], int32 permutation[.., m]: row k changed places
// with row pivots[k], and so row k of L U is row permutation[k] of x. A zero pivot is no error.
Ref<Kernel> make_lu_factor();
// x[.., n, n] -> y[..], the determinants.
Ref<Kernel> make_det();
// a[.., n, n], b[.., n, k] -> x[.., n, k]; vectors: b[.., n] -> x[.., n].
Ref<Kernel> make_solve(bool vectors);
Ref<Kernel> make_solve_triangular(bool upper, bool unit, bool vectors);
Ref<Kernel> make_inverse();
// x[.., m, n] -> q[.., m, k], r[.., k, n]; k is min(m, n) or m.
Ref<Kernel> make_qr();
// x[.., m, n] -> [u,] s, [vh]: u if `left`, vh if `right`; square if `full`.
Ref<Kernel> make_svd(bool full, bool left, bool right);
// x[.., n, n] -> eigenvalues[.., n] of the Hermitian part, ascending, [vectors].
Ref<Kernel> make_eigh(bool vectors);
// x[.., n, n] -> complex eigenvalues[.., n], [vectors in columns].
Ref<Kernel> make_eig(bool vectors);

}  // namespace weft
