// kernels.h: the kernels of this folder: what neither oneDNN nor the expression compiler covers.
//
// Each takes operands of any strides; sizes come with the call, so one kernel serves all shapes. Axes may be
// negative. Operands are listed inputs first; shapes and types are the caller's to have checked, values
// (indices) are checked here, before anything is written.
#pragma once

#include <string>
#include <vector>

#include "program/kernel.h"
#include "storage/random.h"

namespace weft {

// x of a device -> y of another: a copy.
Ref<Kernel> make_transfer(Device to, Device from);

// x -> values, and or int64 indices, of x's shape. Always stable; NaN is last in both directions. In sorted
// values without indices -0 comes before 0.
Ref<Kernel> make_sort(int axis, bool descending, bool values, bool indices);
// x -> values, int64 indices: the first k of the order along the axis, k being their size there. Among equals
// the lower index wins; NaN counts as the largest.
Ref<Kernel> make_topk(int axis, bool largest);

// Indices are of any integer type; negative ones count from the end; IndexError for those out of range.

// x, indices, -> y: y[.., j, ..] = x[.., indices[.., j, ..], ..]; y has the shape of indices, and so has x in
// the other dimensions (strides of 0 where it is broadcast).
Ref<Kernel> make_take_along_axis(int axis);
// x, indices, updates -> y: y = x, then y[.., indices[.., j, ..], ..] is combined with updates[.., j, ..], in
// the order of j. y may be the same memory as x. Indices and updates have one shape, which in the other
// dimensions is at most y's. Updates are converted to y's type: sums of float16 may be kept in float32.
enum class Combine : uint8_t { set, add, max, min };
Ref<Kernel> make_scatter(int axis, Combine mode);
// x, indices... -> y: y[before.., points.., after..] = x[.., i0, .., i1, ..]. `dims`: which dimensions of x
// are indexed, by as many index arrays of one shape, whose dimensions are in y at `position`.
Ref<Kernel> make_index_get(std::vector<int> dims, int position);
// x, indices..., updates -> y: y = x, then the elements that make_index_get would read are combined with
// updates, in row-major order of the points. y may be the same memory as x.
Ref<Kernel> make_index_put(std::vector<int> dims, int position, Combine mode);

// x[n] of any integer type -> int64 y[length]: how often each number 0 ... length - 1 occurs; negative ones
// count from the end.
Ref<Kernel> make_bincount();

// softmax(q k^T * scale + mask) v for q[b,h,n,d], k[b,h,m,d], v[b,h,m,e] of float32, bfloat16 or float16.
//   q, k, v, [mask] -> y[b,h,n,e], float32 logs[b,h,n]
//   dy, q, k, v, [options], y, logs -> dq, dk, dv
// with heads of k and v (b,g) that divide those of q, and these in the place of [options], as far as the form
// has them:
//   mask [b,h,n,m] (strides of 0 where it is broadcast): bool, true for what is seen, or numbers that are
//   added ranges int64[b,h,n,2]: a query sees keys ranges[..,0] ... ranges[..,1] - 1 only slopes float32[h]:
//   slope * |i + offset - j| is taken off the scores words uint64[2]: key and stream of the bits that say
//   which weights are dropped
// A query that sees nothing gives 0 and the logarithm -inf. Parameters: scale, cap (float64; 0: none),
// before, after, offset (int64): query i is at i + offset and sees so many keys before and behind it, -1:
// all; p (float64): the share that is dropped.
struct AttentionForm {
  bool mask = false, ranges = false, slopes = false, dropout = false;
};
Ref<Kernel> make_attention(const AttentionForm& form);
Ref<Kernel> make_attention_backward(const AttentionForm& form);

// x -> y, [mask]: y = x / (1 - p) with probability 1 - p, else 0; mask (bool or uint8): what was kept. x of
// any float type. Parameters: key, stream, offset (uint64) of blocks_for(Draw::bits, uint32, count) reserved
// positions, p (float64, in [0, 1]). The same reservation drops the same elements: applied to dy, the kernel
// is its own gradient, and no mask need be kept.
Ref<Kernel> make_dropout(bool mask);
// p (float, broadcast) -> y of any type: 1 with probability p, else 0. Parameters: key, stream, offset of as
// many positions.
Ref<Kernel> make_bernoulli();
// x -> y: the slices along the first dimension in random order. Parameters: key, stream, offset of
// blocks_for(Draw::bits, uint64, x.shape[0]) positions.
Ref<Kernel> make_permutation();
// -> y: random numbers, as storage/random.h defines them. Parameters: key, stream, offset, and the limits or
// mean and deviation: float64, of integers int64.
Ref<Kernel> make_random_fill(Draw kind);
// Distributions that are drawn by rejection, from uint64 bits of each element or row (distributions.cpp);
// types of other operands are any. gamma: alpha, bits -> y; gamma_slope: alpha, y -> dy/dalpha; poisson:
// rate, bits -> y; binomial: trials, p, bits -> y, all of one shape. multinomial: trials[.., 1], p[.., k],
// bits[.., 1] -> y[.., k].
enum class Distribution : uint8_t { gamma, gamma_slope, poisson, binomial, multinomial };
Ref<Kernel> make_distribution(Distribution distribution);
// () -> int64 words[2], int64 position: where the kernel's reservation of a random stream begins.
Ref<Kernel> make_position();
// A random kernel of so many inputs, outputs and parameters, which draws from where two more inputs say:
// int64 words[2], the key and the stream, and int64 position of no dimensions, to which `offset` is added.
// Its recipe begins with kDrawn and that of the kernel.
inline constexpr const char* kDrawn = "drawn";
Ref<Kernel> make_drawn(Ref<Kernel> kernel, int inputs, int outputs, int parameters, int64_t offset);

// Masks are of any type: true is what is not 0. Where a size depends on the mask, the caller has counted, and
// ValueError says that the numbers differ.
// x -> number of true elements, of any shape of one element.
Ref<Kernel> make_count_nonzero();
// x -> int64 [number, ndim] (of any strides): the indices of true elements, in row-major order.
Ref<Kernel> make_nonzero();
// x, mask -> y[number]: elements of x where the mask of the same shape is true, in row-major order.
Ref<Kernel> make_masked_select();
// x, mask, values[number] -> y: x with the elements where the mask is true replaced, in row-major order. y
// may be the same memory as x; a stride of 0 puts one value everywhere. One type for x, values and y.
Ref<Kernel> make_masked_assign();

// indices of each axis -> int64 0, of no dimensions. Parameters: the axes' sizes (int64). IndexError for an
// index outside of -size..size-1; `function` is whose it is.
Ref<Kernel> make_check_indices(std::string function, std::vector<int> axes);
// labels -> int64 y of their shape. Parameters: classes, ignored (int64). IndexError for a label that is
// neither in 0..classes-1 nor `ignored`; `function` is whose it is.
Ref<Kernel> make_check_labels(std::string function);
// sorted[.., n], values[.., m] -> int64[.., m]: where each value would be inserted along the last axis,
// before (or behind, if `right`) its equals. One type; sorted ascending, NaN last. One line for all values:
// strides 0.
Ref<Kernel> make_searchsorted(bool right);
// x f32[n], residual f32[n] -> uint8[4 * ceil(n / 16)], what is left f32[n], which may be where the residual
// is.
Ref<Kernel> make_two_bits(float threshold);
// x f32[.., k], weight uint8[n, k / 2] of pairs of 4 bits, scale f32[n, groups], bias f32[n] if there is one
// -> y f32[.., n], all row-major: x times the transposed weight.
Ref<Kernel> make_grouped_linear(bool bias);
// x -> y, complex: the Fourier transform along `axes`, which are negative, of `sizes` points; inverse:
// without a with exp(+...). What comes out is times `factor`. Raises ValueError unless takes_points(sizes).
bool takes_points(int64_t n);  // short lines whose size has no large prime factor
Ref<Kernel> make_fourier(std::vector<int> axes, std::vector<int64_t> sizes, bool inverse, double factor);
// Of n real numbers along an axis, their first n / 2 + 1 frequencies; inverse: the other way round.
Ref<Kernel> make_real_fourier(int axis, int64_t n, bool inverse, double factor);
// x[n] -> values[n], first[n], inverse[n], counts[n], number: the different elements, ascending, each with
// its first index and how often it occurs; for each element of x, which of them it is; and how many there
// are. Only the first `number` entries of values, first and counts are written. All but values are int64.
Ref<Kernel> make_unique_kernel();

}  // namespace weft
