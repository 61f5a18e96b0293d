// object_code.h: an object file of x86-64 in this process's memory, without a linker.
//
// The sections are copied into one piece of memory, close enough to each other for the small model; calls of
// the C library go through stubs there. Then it can be run and not written. The object is trusted, as code
// is; what does not fit raises FormatError.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace weft {

class ObjectCode {
 public:
  explicit ObjectCode(std::string_view object);
  ~ObjectCode();
  ObjectCode(const ObjectCode&) = delete;
  // Raises FormatError if there is no function of this name.
  void* find(const std::string& symbol) const;

 private:
  char* memory_ = nullptr;
  size_t size_ = 0;
  std::map<std::string, void*, std::less<>> functions_;
};

}  // namespace weft
