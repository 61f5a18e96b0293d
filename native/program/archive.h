// archive.h: values as bytes, and back: one list of members for both directions.
//
// `fields(archive, x)` hands the members of a structure to archive(...), which writes or reads them. A Reader
// checks each count against what is left, so that a damaged file cannot ask for memory; it raises
// FormatError.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "storage/random.h"
#include "tensor/dtype.h"

namespace weft {

struct FormatError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class T>
concept Plain = std::is_arithmetic_v<T> || std::is_enum_v<T>;

// How many enumerators the type of an enumerator has, which count from 0: for each type that files have.
constexpr int enumerators_like(DType) noexcept { return kDTypes; }
constexpr int enumerators_like(Draw) noexcept { return 4; }

// Tells damaged content from whole content; says nothing of who wrote it.
inline uint64_t digest_of(std::string_view bytes) noexcept {
  uint64_t digest = 0xcbf29ce484222325u ^ bytes.size();
  for (size_t k = 0; k < bytes.size(); k += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + k, std::min<size_t>(8, bytes.size() - k));
    digest = (digest ^ word) * 0x9e3779b97f4a7c15u;
    digest ^= digest >> 29;
  }
  return digest;
}

class Writer {
 public:
  static constexpr bool reads = false;
  std::string bytes;

  template <class... T>
  void operator()(const T&... values) {
    (add(values), ...);
  }

 private:
  template <Plain T>
  void add(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void add(const std::string& text) {
    add(static_cast<uint64_t>(text.size()));
    bytes += text;
  }
  template <class T>
  void add(const std::vector<T>& items) {
    add(static_cast<uint64_t>(items.size()));
    for (const T& item : items) add(item);
  }
  template <class T>
  void add(const std::optional<T>& item) {
    add(item.has_value());
    if (item) add(*item);
  }
  template <class A, class B>
  void add(const std::pair<A, B>& both) {
    add(both.first), add(both.second);
  }
  template <class T>
    requires(!Plain<T>)
  void add(const T& structure) {
    fields(*this, const_cast<T&>(structure));  // which are only read
  }
};

class Reader {
 public:
  static constexpr bool reads = true;
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  template <class... T>
  void operator()(T&... values) {
    (take(values), ...);
  }
  template <class T>
  T next() {
    T value{};
    take(value);
    return value;
  }
  size_t left() const noexcept { return left_.size(); }

 private:
  std::string_view raw(size_t size) {
    if (size > left_.size())
      throw FormatError("the file ends " + std::to_string(size - left_.size()) + " bytes too early");
    const std::string_view bytes = left_.substr(0, size);
    left_.remove_prefix(size);
    return bytes;
  }
  size_t count() {  // each item takes a byte at the least
    const auto size = next<uint64_t>();
    if (size > left_.size())
      throw FormatError(std::to_string(size) + " items, but " + std::to_string(left_.size()) +
                        " bytes are left");
    return static_cast<size_t>(size);
  }
  template <class T>
    requires std::is_arithmetic_v<T>
  void take(T& value) {
    std::memcpy(&value, raw(sizeof value).data(), sizeof value);
  }
  template <class T>
    requires std::is_enum_v<T>
  void take(T& value) {
    const auto number = next<std::underlying_type_t<T>>();
    if (number < 0 || static_cast<int64_t>(number) >= enumerators_like(T{}))
      throw FormatError("a number names none of " + std::to_string(enumerators_like(T{})) + " kinds");
    value = static_cast<T>(number);
  }
  void take(bool& value) { value = next<char>() != 0; }
  void take(std::string& text) { text = raw(count()); }
  template <class T>
  void take(std::vector<T>& items) {
    const size_t size = count();
    items.clear();
    for (size_t k = 0; k < size; ++k) items.push_back(next<T>());
  }
  template <class T>
  void take(std::optional<T>& item) {
    item.reset();
    if (next<bool>()) item = next<T>();
  }
  template <class A, class B>
  void take(std::pair<A, B>& both) {
    take(both.first), take(both.second);
  }
  template <class T>
    requires(!Plain<T>)
  void take(T& structure) {
    fields(*this, structure);
  }

  std::string_view left_;
};

}  // namespace weft
