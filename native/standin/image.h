// Images of kernels for the stand-in: object files (ELF, x86-64, relocatable) as LLVM's emit_object gives
// them, which cuModuleLoadData links here, as a driver takes PTX or a cubin. So an image is bytes, may lie in
// a cache on disk, and takes the same way through a backend as the real ones.
//
// A kernel is void NAME(void* arguments), a function of the object; a global constant NAME.argument_bytes
// (i64) says how many bytes its arguments take. It may call what function_for_kernels knows. It has no
// variables that are written.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "standin/blocks.h"

namespace standin {

struct KernelFunction {
  std::string name;
  Code code;
  std::size_t argument_bytes = 0, threads = 0;  // of an image without the constants: 0
  bool yields;
  std::size_t most_shared_bytes = 48 << 10;  // until cuFuncSetAttribute raises it
};

class Image {
 public:
  // Null if the bytes are no image; then error says why.
  static std::unique_ptr<Image> load(const void* bytes, CUresult* result, std::string* error);
  ~Image();
  KernelFunction* find(const std::string& name);

 private:
  Image() = default;
  char* memory_ = nullptr;
  std::size_t memory_bytes_ = 0;
  std::map<std::string, KernelFunction> functions_;
};

}  // namespace standin
