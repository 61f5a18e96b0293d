// cache.h: a cache of made kernels by request; the least recently used are dropped first.
//
// Thread-safe. A kernel is made outside the lock, so two threads that request it at once may both make one;
// the first to be entered is what both get. Kernels that are dropped live on while they are referenced.
#pragma once

#include <functional>
#include <string>

#include "onednn/kernels.h"
#include "program/archive.h"

namespace weft::onednn {

// A request as bytes: equal requests, and only those, have equal keys. `recipe` is the same for other
// processes (stored.cpp reads it): there a layout is not a number, but the operand of the request that chose
// it.
class Key {
 public:
  explicit Key(const char* kind) { *this << std::string(kind); }

  template <class T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  Key& operator<<(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    recipe_(value);
    return *this;
  }
  Key& operator<<(const std::string& text) {
    *this << text.size();
    bytes_ += text;
    recipe_.bytes += text;
    return *this;
  }
  template <class T>
  Key& operator<<(const std::vector<T>& items) {
    *this << items.size();
    for (const T& item : items) *this << item;
    return *this;
  }
  template <class T>
  Key& operator<<(const std::optional<T>& item) {
    *this << item.has_value();
    if (item) *this << *item;
    return *this;
  }
  Key& operator<<(const Geometry& x) {
    if (x.layout) {
      *this << 'l';
      const auto id = id_of(*x.layout);
      bytes_.append(reinterpret_cast<const char*>(&id), sizeof id);
      const LayoutOrigin origin = origin_of(*x.layout);
      has_recipe_ &= !origin.recipe.empty();
      recipe_(origin.recipe, origin.operand);
      return *this;
    }
    return *this << (x.any ? 'a' : 's') << x.dtype << x.shape << x.strides;
  }
  Key& operator<<(const PostOp& op) {
    *this << op.kind << op.alpha << op.beta;
    return op.has_operand() ? *this << op.operand : *this;
  }
  Key& operator<<(const Window& w) {
    return *this << w.stride << w.dilation << w.padding_low << w.padding_high;
  }
  const std::string& bytes() const noexcept { return bytes_; }
  // Empty: the request has a layout of unknown origin.
  std::string recipe() const { return has_recipe_ ? recipe_.bytes : std::string(); }

 private:
  std::string bytes_;
  Writer recipe_;
  bool has_recipe_ = true;
};

// `make`'s oneDNN errors become ours; `what` opens their text. Layouts that the request holds keep their
// numbers for as long as the kernel is kept, because its steps hold them.
KernelRef cached(const Key& key, const char* what, const std::function<KernelRef()>& make);

}  // namespace weft::onednn
