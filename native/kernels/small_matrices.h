// small_matrices.h: factorizations of stacks of small real matrices, as many at a time as a vector has lanes.
//
// A library's call takes longer than the arithmetic of a 4 x 4 matrix; here 100,000 of them are a loop over
// vectors without branches, but for rows that change places.
#pragma once

#include "kernels/matrices.h"

namespace weft::small {

inline constexpr int kLargest = 32;  // rows; a factorization of 16 floats in each element then fits the cache

// Whether a stack of `count` matrices of n rows and `columns` columns in all is computed here.
constexpr bool takes(int64_t count, int64_t n, int64_t columns) {
  return count > 1 && n > 0 && n <= kLargest && columns <= 2 * kLargest;
}

// Each for T float or double, and the matrices [begin, end).
template <class T>
void cholesky(const Stack& x, const Stack& y, bool upper, int64_t begin, int64_t end, Failure& failure);
template <class T>
void lu_factor(const Stack& x, const Stack& lu, const Stack& pivots, int64_t begin, int64_t end);
// b: null for the identity.
template <class T>
void solve(const Stack& a, const Stack* b, const Stack& x, int64_t begin, int64_t end, Failure& failure);
template <class T>
void solve_triangular(const Stack& a, const Stack& b, const Stack& x, bool upper, bool unit, int64_t begin,
                      int64_t end);

}  // namespace weft::small
