// scratch.h: arrays on the stack, for what is nearly always short.
#pragma once

#include <cstddef>
#include <memory>

namespace weft {

// Bytes in whole cache lines.
constexpr size_t in_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

// An array that rarely needs the heap.
template <class T, size_t kInline>
class Scratch {
 public:
  explicit Scratch(size_t size) : data_(inline_) {
    if (size <= kInline) [[likely]]
      return;
    heap_.reset(new T[size]);
    data_ = heap_.get();
  }
  T* get() noexcept { return data_; }
  T& operator[](size_t i) noexcept { return data_[i]; }

 private:
  T inline_[kInline];
  std::unique_ptr<T[]> heap_;
  T* data_;
};

}  // namespace weft
