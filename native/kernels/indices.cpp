// indices.cpp: the loops over index operands; several threads share them.
#include "kernels/indices.h"

#include <atomic>
#include <limits>

#include "engine/team.h"

namespace weft {
namespace {

constexpr int64_t kPiece = 16 << 10;

}  // namespace
}  // namespace weft

#define WEFT_EACH_LEVEL "kernels/indices.inc"
#include "kernels/each_level.h"

namespace weft {
namespace {

// Whether the elements follow each other in row-major order.
bool is_dense(const View& x) {
  int64_t step = 1;
  for (int d = x.ndim - 1; d >= 0; --d) {
    if (x.shape[d] != 1 && x.strides[d] != step) return false;
    step *= x.shape[d];
  }
  return true;
}

// As int64; a uint64 above the largest int64 counts as that.
void load_as_int64(const char* from, DType dtype, int64_t step, int64_t count, int64_t* to) {
  const RowFunctions load = row_functions(DType::int64, dtype);
  (step == 1 ? load.contiguous : load.strided)(reinterpret_cast<char*>(to), 1, from, step, count);
  if (dtype == DType::uint64)
    for (int64_t i = 0; i < count; ++i) to[i] = to[i] < 0 ? std::numeric_limits<int64_t>::max() : to[i];
}

bool is_row_of_int64(const char* data, DType dtype, int64_t step) {
  return dtype == DType::int64 && step == 1 && reinterpret_cast<uintptr_t>(data) % alignof(int64_t) == 0;
}

bool any_index_outside(const char* from, DType dtype, int64_t step, int64_t count, int64_t least,
                       int64_t size) {
  const auto outside = WEFT_AT_LEVEL(any_outside);
  if (is_row_of_int64(from, dtype, step))
    return outside(reinterpret_cast<const int64_t*>(from), count, least, size);
  const auto item = static_cast<int64_t>(size_of(dtype));
  int64_t items[kIndexChunk];
  for (int64_t done = 0; done < count; done += kIndexChunk) {
    const int64_t now = std::min(kIndexChunk, count - done);
    load_as_int64(from + done * step * item, dtype, step, now, items);
    if (outside(items, now, least, size)) return true;
  }
  return false;
}

// The first that is out of range, in row-major order.
[[noreturn]] void refuse(const Lines<1>& lines, DType dtype, int64_t least, int64_t size, int axis,
                         const char* function) {
  for (int64_t line = 0; line < lines.count; ++line) {
    for (int64_t i = 0; i < lines.length[0]; ++i) {
      const char* at = lines.at(line)[0] + i * lines.step[0] * static_cast<int64_t>(size_of(dtype));
      int64_t index;
      load_as_int64(at, dtype, 1, 1, &index);
      if (index >= least && index < size) continue;
      const std::string value =
          dtype == DType::uint64 ? std::to_string(load_as<uint64_t>(at)) : std::to_string(index);
      throw IndexError(std::string(function) + ": index " + value + " is out of range for axis " +
                       std::to_string(axis) + " of size " + std::to_string(size));
    }
  }
  throw IndexError(std::string(function) + ": an index changed while it was being used");
}

}  // namespace

void load_indices(const char* from, DType dtype, int64_t from_step, int64_t count, int64_t size, int64_t step,
                  int64_t* to) {
  const auto to_offsets = WEFT_AT_LEVEL(to_offsets);
  if (is_row_of_int64(from, dtype, from_step))
    return to_offsets(reinterpret_cast<const int64_t*>(from), count, size, step, to);
  const RowFunctions load = row_functions(DType::int64, dtype);
  (from_step == 1 ? load.contiguous : load.strided)(reinterpret_cast<char*>(to), 1, from, from_step, count);
  to_offsets(to, count, size, step, to);
}

void check_indices(const View& indices, int64_t size, int axis, const char* function, bool wraps) {
  const int64_t all = count_of(indices);
  if (all == 0) return;
  const int64_t least = wraps ? -size : 0;
  const int64_t one = 1;
  const View flat{indices.data, indices.dtype, 1, &all, &one};  // the same elements, where there are no gaps
  const View& items = is_dense(indices) ? flat : indices;
  const Lines<1> lines({&items}, std::max(items.ndim - 1, 0));
  const int64_t pieces = (lines.length[0] + kPiece - 1) / kPiece;
  const auto item = static_cast<int64_t>(size_of(indices.dtype));
  std::atomic<bool> bad{false};
  parallel_for(lines.count * pieces, lines_per_piece(std::min(lines.length[0], kPiece), kPiece),
               [&](int64_t begin, int64_t end) {
                 for (int64_t unit = begin; unit < end; ++unit) {
                   const int64_t start = unit % pieces * kPiece;
                   const char* from = lines.at(unit / pieces)[0] + start * lines.step[0] * item;
                   const int64_t count = std::min(kPiece, lines.length[0] - start);
                   if (any_index_outside(from, indices.dtype, lines.step[0], count, least, size))
                     bad.store(true, std::memory_order_relaxed);
                 }
               });
  if (bad.load(std::memory_order_relaxed)) refuse(lines, indices.dtype, least, size, axis, function);
}

void check_indexed(const View& x, const View* indices, const std::vector<int>& dims, const char* function) {
  for (size_t i = 0; i < dims.size(); ++i) check_indices(indices[i], x.shape[dims[i]], dims[i], function);
}

Indexed::Indexed(const View& x, const View* indices, const std::vector<int>& dims, int position,
                 const View& values)
    : points(count_of(indices[0])) {
  const auto x_size = static_cast<int64_t>(size_of(x.dtype)),
             size = static_cast<int64_t>(size_of(values.dtype));
  const int index_dims = indices[0].ndim;
  int rest = 0;
  for (int d = 0; d < x.ndim; ++d) {
    if (std::find(dims.begin(), dims.end(), d) != dims.end()) continue;
    const int at = rest < position ? rest : rest + index_dims;
    (rest < position ? before : after).add(x.shape[d], x.strides[d] * x_size, values.strides[at] * size);
    ++rest;
  }
  int64_t step[kMaxDims + 1];
  step[index_dims] = sizeof(int64_t);
  for (int d = index_dims - 1; d >= 0; --d) step[d] = step[d + 1] * indices[0].shape[d];
  for (int d = 0; d < index_dims; ++d)
    point_dims.add(indices[0].shape[d], step[d + 1], values.strides[position + d] * size);
}

namespace {

bool is_direct(const View& x, const View* indices, const std::vector<int>& dims, bool writes) {
  if (dims.size() > 1 || (writes && x.dtype == indices[0].dtype)) return false;
  int64_t before = 1;
  for (int d = 0; d < dims[0]; ++d) before *= x.shape[d];
  return before == 1 && is_dense(indices[0]);
}

}  // namespace

size_t Indexed::scratch_bytes(const View& x, const View* indices, const std::vector<int>& dims, bool writes) {
  // Dimensions of an exported program come from a file.
  const auto is_there = [&](int dim) { return dim >= 0 && dim < x.ndim; };
  if (dims.empty() || !std::ranges::all_of(dims, is_there))
    throw std::invalid_argument("indices: " + std::to_string(x.ndim) + " dimensions do not have those named");
  if (is_direct(x, indices, dims, writes)) return 0;
  return static_cast<size_t>(count_of(indices[0])) * sizeof(int64_t) * (dims.size() > 1 ? 2 : 1);
}

void Indexed::find_offsets(const View& x, const View* indices, const std::vector<int>& dims, char* scratch,
                           bool writes) {
  if (is_direct(x, indices, dims, writes)) {
    indices_ = indices[0].data;
    index_type_ = indices[0].dtype;
    size_ = x.shape[dims[0]];
    step_ = x.strides[dims[0]] * static_cast<int64_t>(size_of(x.dtype));
    return;
  }
  auto* const total = reinterpret_cast<int64_t*>(scratch);
  for (size_t i = 0; i < dims.size(); ++i) {
    int64_t* const one = i == 0 ? total : total + points;
    int64_t strides[kMaxDims];
    int64_t stride = 1;
    for (int d = indices[i].ndim - 1; d >= 0; --d) {
      strides[d] = stride;
      stride *= indices[i].shape[d];
    }
    const bool in_row = std::equal(strides, strides + indices[i].ndim, indices[i].strides);
    const bool is_direct_row = in_row && is_row_of_int64(indices[i].data, indices[i].dtype, 1);
    if (!is_direct_row)
      copy({reinterpret_cast<char*>(one), DType::int64, indices[i].ndim, indices[i].shape, strides},
           indices[i]);
    const auto* const from = is_direct_row ? reinterpret_cast<const int64_t*>(indices[i].data) : one;
    const int64_t size = x.shape[dims[i]];
    const int64_t step = x.strides[dims[i]] * static_cast<int64_t>(size_of(x.dtype));
    parallel_for(points, kPiece, [=](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        const int64_t offset = (from[p] + (from[p] < 0 ? size : 0)) * step;
        total[p] = i == 0 ? offset : total[p] + offset;
      }
    });
  }
  offsets_ = total;
}

const int64_t* Indexed::offsets(int64_t begin, int64_t count, int64_t* buffer) const {
  if (offsets_) return offsets_ + begin;
  load_indices(indices_ + begin * static_cast<int64_t>(size_of(index_type_)), index_type_, 1, count, size_,
               step_, buffer);
  return buffer;
}

std::pair<int64_t, int64_t> Indexed::bounds() const {
  if (offsets_) {
    const auto [least, most] = std::minmax_element(offsets_, offsets_ + points);
    return {*least, *most + 1};
  }
  const int64_t last = (size_ - 1) * step_;
  return {std::min<int64_t>(last, 0), std::max<int64_t>(last, 0) + 1};
}

}  // namespace weft
