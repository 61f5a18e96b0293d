// ref.h: an intrusive reference-counted pointer, 8 bytes, safe to copy between threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace weft {

template <class T>
class Counted {
 public:
  void retain() const noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  // For a thread that finds the object in a list: false if the last reference is going just now.
  bool try_retain() const noexcept {
    uint32_t count = count_.load(std::memory_order_relaxed);
    while (count != 0 && !count_.compare_exchange_weak(count, count + 1, std::memory_order_relaxed)) {
    }
    return count != 0;
  }
  uint32_t references() const noexcept { return count_.load(std::memory_order_relaxed); }
  // acq_rel: the thread that deletes has seen all that the others did with the object.
  void release() const noexcept {
    if (count_.fetch_sub(1, std::memory_order_acq_rel) == 1) static_cast<const T*>(this)->dispose();
  }

 protected:
  void dispose() const noexcept { delete static_cast<const T*>(this); }  // T may have its own
  ~Counted() = default;

 private:
  mutable std::atomic<uint32_t> count_{0};
};

template <class T>
class Ref {
 public:
  Ref() noexcept = default;
  explicit Ref(T* p) noexcept : p_(p) {
    if (p_) p_->retain();
  }
  Ref(const Ref& o) noexcept : Ref(o.p_) {}
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  Ref& operator=(Ref o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Ref() {
    if (p_) p_->release();
  }
  T* get() const noexcept { return p_; }
  T* operator->() const noexcept { return p_; }
  T& operator*() const noexcept { return *p_; }
  explicit operator bool() const noexcept { return p_ != nullptr; }
  bool operator==(const Ref& o) const noexcept { return p_ == o.p_; }

 private:
  T* p_ = nullptr;
};

template <class T, class... Args>
Ref<T> make_ref(Args&&... args) {
  return Ref<T>(new T(std::forward<Args>(args)...));
}

}  // namespace weft
