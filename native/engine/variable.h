// variable.h: a variable: a token for any resource, and the queue of operations that want it.
//
// The one rule (MISSION 1): of two operations on a variable of which one writes, the first pushed runs first;
// readers between two writes run together. State: either one writer is active, or `readers` readers are, or
// none; an access that comes while an earlier one still waits, waits behind it. All of it is guarded by the
// engine lock, except `version` (read at any time), `deleted` (set before, read after in one thread's order)
// and the reference count. An operation that holds a variable may touch `error` without the lock: the rule
// protects it like any other data.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/operation.h"
#include "engine/tickets.h"

namespace weft {

// Two cache lines: pushing threads read the first, the holder of the engine lock writes the second.
struct alignas(64) Var : Counted<Var> {
  using Dispose = void (*)(const Var*) noexcept;
  explicit Var(
      Engine* owner, Dispose how = [](const Var* var) noexcept { delete var; }, ContextMemory where = {})
      : engine(owner), context_memory(where), dispose_(how) {}
  ~Var() {
    if (StreamUses* const all = uses.load(std::memory_order_relaxed)) [[unlikely]]
      delete all;
  }

  Engine* const engine;
  const ContextMemory context_memory;
  std::atomic<bool> deleted{false};
  std::atomic<StreamUses*> uses{nullptr};  // owned; of what no stream has used: null

  alignas(64) Access* head = nullptr;  // oldest access that waits
  Access* tail = nullptr;
  Access* last = nullptr;  // most recently scheduled; finds a variable that an operation lists twice
  uint32_t readers = 0;
  bool writing = false;
  std::atomic<uint64_t> version{0};
  Ref<Error> error;

  bool idle() const noexcept { return !writing && readers == 0 && head == nullptr; }
  bool readable() const noexcept { return !writing && head == nullptr; }

  // A variable may be part of the object that it guards, and keep that alive: tensors' memory does
  // (storage/chunk.h).
  void dispose() const noexcept { dispose_(this); }

 private:
  const Dispose dispose_;
};
static_assert(sizeof(Var) == 128);

}  // namespace weft
