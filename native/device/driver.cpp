// driver.cpp: opening the driver's library; see driver.h.
#include "device/driver.h"

#include <dlfcn.h>

#include <cstdlib>

#include "engine/error.h"

namespace weft::driver {
namespace {

template <class F>
void find(void* library, const char* path, const char* symbol, F*& function) {
  function = reinterpret_cast<F*>(dlsym(library, symbol));
  if (!function)
    throw DeviceError(std::string("the driver ") + path + " has no function " + symbol +
                      "; weft needs that of CUDA 12.0 or newer");
}

std::string text_of(Result (*function)(Result, const char**), Result result) {
  const char* text = nullptr;
  return function && function(result, &text) == success && text ? text : std::string();
}

}  // namespace

Table open_table() {
  const char* path = std::getenv("WEFT_GPU_DRIVER");
  const bool is_chosen = path && *path;
  if (!is_chosen) path = "libcuda.so.1";
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    throw DeviceError(std::string("there is no driver: ") + (reason ? reason : path) +
                      (is_chosen ? " (named by WEFT_GPU_DRIVER)" : ""));
  }
  Table table;
#define WEFT_FIND(member, symbol, parameters) find(library, path, #symbol, table.member);
  WEFT_DRIVER_FUNCTIONS(WEFT_FIND)
#undef WEFT_FIND
  return table;
}

std::string describe(const Table& table, Result result, const char* call) {
  std::string name = text_of(table.error_name, result);
  const std::string description = text_of(table.error_string, result);
  if (name.empty()) name = "error " + std::to_string(static_cast<int>(result));
  return std::string("gpu: ") + call + ": " + name + (description.empty() ? "" : ": " + description);
}

bool ends_context(Result result) noexcept {
  switch (static_cast<int>(result)) {
    case 214:  // an error of the memory that could not be corrected
    case 220:  // of NVLink
    case 226:  // contained
    case 700:  // an illegal address
    case 702:  // a kernel ran too long
    case 709:  // the context was destroyed
    case 710:  // an assertion of a kernel
    case 714:  // the hardware's stack
    case 715:  // an illegal instruction
    case 716:  // a misaligned address
    case 717:  // an address of another space
    case 718:  // an invalid program counter
    case 719:  // another failure of a launch
      return true;
    default:
      return false;
  }
}

void check(const Table& table, Result result, const char* call) {
  if (result != success) throw DeviceError(describe(table, result, call));
}

}  // namespace weft::driver
