// launch.cpp: code of a GPU, and its launches.
#include <string>

#include "device/backend.h"

namespace weft {

std::unique_ptr<DeviceFunction> GpuBackend::load(int index, std::string_view image, const char* name,
                                                 DeviceFunction facts) {
  if (facts.words > DeviceFunction::kMostWords)
    throw ValueError(std::string(name) + ": takes " + std::to_string(facts.words) +
                     " words of arguments; a launch takes " + std::to_string(DeviceFunction::kMostWords));
  enter(gpu(index));
  driver::Module module = nullptr;  // stays loaded
  check(table_.load_module(&module, image.data()), name);
  driver::Function function = nullptr;
  check(table_.module_function(&function, module, name), name);
  facts.handle = function;
  return std::make_unique<DeviceFunction>(facts);
}

void GpuBackend::launch(int index, void* stream, const DeviceFunction& function, unsigned blocks,
                        const uint64_t* words) {
  enter(gpu(index));
  launches.fetch_add(1, std::memory_order_relaxed);
  void* parameters[] = {const_cast<uint64_t*>(words)};  // one parameter by value
  check(table_.launch(static_cast<driver::Function>(function.handle), blocks, 1, 1, function.threads, 1, 1,
                      static_cast<unsigned>(function.shared_bytes), static_cast<driver::Stream>(stream),
                      parameters, nullptr),
        "cuLaunchKernel");
}

void GpuBackend::synchronize(int index, void* stream) {
  enter(gpu(index));
  waits.fetch_add(1, std::memory_order_relaxed);
  check(table_.synchronize(static_cast<driver::Stream>(stream)), "cuStreamSynchronize");
}

}  // namespace weft
