// rows.h: walking views line by line, and choosing code by element type: what all kernels here share.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "engine/error.h"
#include "program/kernel.h"
#include "tensor/convert.h"

namespace weft {

// Calls f(std::type_identity<T>) with the element type.
template <class F>
decltype(auto) with_element(DType dtype, F&& f) {
  using Result = std::invoke_result_t<F&, std::type_identity<Bool>>;
  return [&]<size_t... i>(std::index_sequence<i...>) {
    using Function = Result (*)(F&);
    static constexpr Function kTable[] = {
        [](F& call) -> Result { return call(std::type_identity<std::tuple_element_t<i, Elements>>{}); }...};
    return kTable[static_cast<size_t>(dtype)](f);
  }(std::make_index_sequence<kDTypes>{});
}

// The same for types with an order, which complex numbers do not have.
template <class F>
decltype(auto) with_ordered(DType dtype, F&& f) {
  if (is_complex(dtype)) throw DTypeError(std::string(name_of(dtype)) + " has no order");
  return with_element(dtype, [&]<class T>(std::type_identity<T>) {
    return f(std::type_identity<std::conditional_t<is_pair<T>, double, T>>{});
  });
}

// Calls f with an unsigned integer of the element's size.
template <class F>
void with_word(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    case 8:
      return f(uint64_t{});
    default:
      return f(static_cast<unsigned __int128>(0));
  }
}

inline int64_t count_of(const View& view) {
  int64_t count = 1;
  for (int d = 0; d < view.ndim; ++d) count *= view.shape[d];
  return count;
}

// An axis given to a kernel: negative ones count from the end. A view without dimensions counts as one with a
// single dimension of size 1.
inline int axis_of(const View& view, int axis) { return axis < 0 ? axis + std::max(view.ndim, 1) : axis; }
inline int64_t size_along(const View& view, int axis) { return view.ndim ? view.shape[axis] : 1; }
inline int64_t stride_along(const View& view, int axis) { return view.ndim ? view.strides[axis] : 1; }

// Lines along `axis` of N views whose shapes agree in the other dimensions; line numbers count row-major.
template <size_t N>
class Lines {
 public:
  Lines(const std::array<const View*, N>& views, int axis) {
    const View& first = *views[0];
    for (size_t v = 0; v < N; ++v) {
      data_[v] = views[v]->data;
      length[v] = size_along(*views[v], axis);
      step[v] = stride_along(*views[v], axis);
    }
    for (int d = 0; d < first.ndim; ++d) {
      if (d == axis || first.shape[d] == 1) continue;
      sizes_[ndim_] = first.shape[d];
      count *= first.shape[d];
      for (size_t v = 0; v < N; ++v)
        moves_[v][ndim_] = views[v]->strides[d] * static_cast<int64_t>(size_of(views[v]->dtype));
      ++ndim_;
    }
  }

  // Where the line's first elements are.
  std::array<char*, N> at(int64_t line) const {
    std::array<char*, N> pointers = data_;
    for (int d = ndim_ - 1; d >= 0; --d) {
      const int64_t index = line % sizes_[d];
      line /= sizes_[d];
      for (size_t v = 0; v < N; ++v) pointers[v] += index * moves_[v][d];
    }
    return pointers;
  }

  int64_t count = 1;
  int64_t length[N], step[N];  // of a line, in elements

 private:
  std::array<char*, N> data_;
  int ndim_ = 0;
  int64_t sizes_[kMaxDims], moves_[N][kMaxDims];
};

// Elements of N views of one shape in row-major order, numbered by that order; dimensions merged where all
// views allow it.
template <size_t N>
class Flat {
 public:
  explicit Flat(const std::array<const View*, N>& views) {
    const View& first = *views[0];
    for (size_t v = 0; v < N; ++v) {
      data_[v] = views[v]->data;
      size_[v] = static_cast<int64_t>(size_of(views[v]->dtype));
    }
    for (int d = 0; d < first.ndim; ++d) {
      count *= first.shape[d];
      if (first.shape[d] != 1) add(first.shape[d], views, d);
    }
  }

  // From element `index` on, those that are contiguous: their address and number.
  int64_t run_at(int64_t index, std::array<char*, N>& pointers) const {
    pointers = data_;
    int64_t contiguous = 1;
    for (int d = ndim_ - 1; d >= 0; --d) {
      const int64_t i = index % sizes_[d];
      index /= sizes_[d];
      if (d == ndim_ - 1) contiguous = sizes_[d] - i;
      for (size_t v = 0; v < N; ++v) pointers[v] += i * steps_[v][d] * size_[v];
    }
    return contiguous;
  }
  // Of view v in a line, in elements.
  int64_t step(size_t v) const { return ndim_ ? steps_[v][ndim_ - 1] : 1; }

  // Calls body(pointers, number of the first element, elements) for the lines in [begin, end).
  template <class F>
  void for_runs(int64_t begin, int64_t end, F&& body) const {
    std::array<char*, N> pointers;
    while (begin < end) {
      const int64_t run = std::min(run_at(begin, pointers), end - begin);
      body(pointers, begin, run);
      begin += run;
    }
  }

  int64_t count = 1;

 private:
  void add(int64_t size, const std::array<const View*, N>& views, int d) {
    bool merges = ndim_ > 0;
    for (size_t v = 0; v < N; ++v) merges = merges && steps_[v][ndim_ - 1] == views[v]->strides[d] * size;
    if (!merges) sizes_[ndim_++] = 1;
    sizes_[ndim_ - 1] *= size;
    for (size_t v = 0; v < N; ++v) steps_[v][ndim_ - 1] = views[v]->strides[d];
  }

  std::array<char*, N> data_;
  std::array<int64_t, N> size_;
  int ndim_ = 0;
  int64_t sizes_[kMaxDims], steps_[N][kMaxDims];
};

// to[i] = from[indices[i]]: elements of one size, of any type; steps in elements.
template <class Word>
void gather_words(const char* from, int64_t step, const int64_t* indices, int64_t count, char* to,
                  int64_t to_step) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(Word));
  for (int64_t i = 0; i < count; ++i)
    store_as(to + i * to_step * kSize, load_as<Word>(from + indices[i] * step * kSize));
}

// Lines that a thread takes at a time, so that a piece has some `elements` of work.
inline int64_t lines_per_piece(int64_t length, int64_t elements = 16 << 10) {
  return std::max<int64_t>(1, elements / std::max<int64_t>(length, 1));
}

}  // namespace weft
