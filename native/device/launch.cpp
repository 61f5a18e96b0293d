// launch.cpp: code of a GPU, and its launches.
#include <string>

#include "device/backend.h"

namespace weft {

std::unique_ptr<DeviceFunction> GpuBackend::load(int index, std::string_view image, const char* name,
                                                 DeviceFunction facts) {
  if (facts.words > DeviceFunction::kMostWords)
    throw ValueError(std::string(name) + ": takes " + std::to_string(facts.words) +
                     " words of arguments; a launch takes " + std::to_string(DeviceFunction::kMostWords));
  auto function = std::make_unique<GpuFunction>(facts, image, name);
  function_of(gpu(index), *function);
  return function;
}

driver::Function GpuBackend::function_of(Gpu& device, const GpuFunction& function) const {
  const uint32_t context = device.contexts.load(std::memory_order_acquire);
  if (function.loaded_in.load(std::memory_order_acquire) == context) [[likely]]
    return function.function;
  const std::lock_guard guard(function.mutex);
  enter(device);
  driver::Module module = nullptr;  // stays loaded
  check(table_.load_module(&module, function.image.data()), function.name.c_str());
  check(table_.module_function(&function.function, module, function.name.c_str()), function.name.c_str());
  function.loaded_in.store(context, std::memory_order_release);
  return function.function;
}

void GpuBackend::launch(int index, void* stream, const DeviceFunction& function, unsigned blocks,
                        const uint64_t* words) {
  Gpu& device = gpu(index);
  const driver::Function code = function_of(device, static_cast<const GpuFunction&>(function));
  enter(device);
  launches.fetch_add(1, std::memory_order_relaxed);
  void* parameters[] = {const_cast<uint64_t*>(words)};  // one parameter by value
  check(
      table_.launch(code, blocks, 1, 1, function.threads, 1, 1, static_cast<unsigned>(function.shared_bytes),
                    static_cast<driver::Stream>(stream), parameters, nullptr),
      "cuLaunchKernel");
}

void GpuBackend::synchronize(int index, void* stream) {
  enter(gpu(index));
  waits.fetch_add(1, std::memory_order_relaxed);
  check(table_.synchronize(static_cast<driver::Stream>(stream)), "cuStreamSynchronize");
}

}  // namespace weft
