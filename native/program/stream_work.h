// stream_work.h: the steps of a program that only enqueue work on a device's stream (Kernel::enqueues).
//
// The thread that runs a program waits for them before a step that does not, and before the memory of the
// program goes. Belongs to that thread.
#pragma once

#include <utility>

#include "engine/device_kind.h"
#include "program/kernel.h"

namespace weft {

class StreamWork {
 public:
  explicit StreamWork(const RunContext& context)
      : backend_(hidden_memory_of(context.device)), context_(context) {}
  ~StreamWork() {
    if (is_pending_) [[unlikely]]
      try {
        finish();
      } catch (...) {  // another error is on its way
      }
  }
  StreamWork(const StreamWork&) = delete;

  // Before a step runs.
  void begin(const Kernel& kernel) {
    if (!backend_) [[likely]]
      return;
    if (!kernel.enqueues()) finish();
    is_pending_ = kernel.enqueues();
  }
  // All steps have run. Raises DeviceError.
  void finish() {
    if (std::exchange(is_pending_, false)) [[unlikely]]
      backend_->synchronize(context_.device.index, context_.stream);
  }

 private:
  DeviceBackend* const backend_;
  const RunContext& context_;
  bool is_pending_ = false;
};

}  // namespace weft
