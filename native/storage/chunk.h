// chunk.h: a piece of memory together with its engine variable: what all views of one array share.
//
// Who owns: tensors, and the operations that use it until they have finished, each hold a reference. So when
// the last one goes nothing is pending, and the memory returns at once, on the thread where that happens;
// what streams still use, when they have passed its tickets (Runtime::retire).
#pragma once

#include <atomic>
#include <cstddef>

#include "engine/context.h"
#include "engine/variable.h"
#include "storage/pool.h"

namespace weft {

class Chunk : public Var {
 public:
  // Uninitialised memory of the device's pool. Raises OutOfMemory.
  static Ref<Chunk> allocate(Device device, size_t bytes);

  // Memory of another owner; `drop(owner)` gives it back, on any thread.
  struct Foreign {
    void* data;
    size_t bytes;
    void (*drop)(void* owner) noexcept;
    void* owner;
    bool read_only = false;
    bool shared = true;  // the other side keeps using it: see `shares`
  };
  static Ref<Chunk> adopt(Device device, const Foreign& foreign);

  char* const data;
  const size_t bytes;
  const Device device;
  const bool read_only;
  // Never given twice. Those of one thread grow, and differ from all others' in the upper bits.
  const uint64_t serial;
  // The latest one given on this thread.
  static uint64_t last_serial() noexcept;
  // From watch() on, is_alive(serial) says whether the chunk is still there.
  // One more write is said.
  void count_write() {
    writes.fetch_add(1, std::memory_order_relaxed);
    if (auto* const counted = context().counted_writes) [[unlikely]]
      counted->push_back(this);
  }
  void watch();
  static bool is_alive(uint64_t serial);
  // The watched chunk of this serial; null: it is gone.
  static Ref<Chunk> find(uint64_t serial);

  // How many others use the memory without asking the engine: NumPy arrays, DLPack capsules. While there are
  // any, a thread that pushes an operation on the chunk waits for it, so that the others never see half of
  // it.
  std::atomic<uint32_t> shares{0};
  // How often it came to such a use.
  std::atomic<uint32_t> exports{0};
  // How many operations that change existing content have been pushed; `version` counts those that ran.
  std::atomic<uint32_t> writes{0};
  // How many arrays of Python show it; guarded by the GIL.
  uint32_t faces = 0;
  std::atomic<bool> saved{false};  // some gradient may read it later

 private:
  Chunk(Engine* engine, Device where, char* memory, size_t size, bool write_protected);
  static void end(const Var* var) noexcept;
  std::atomic<bool> watched_{false};

  Pool* pool_ = nullptr;
  void (*drop_)(void*) noexcept = nullptr;
  void* owner_ = nullptr;
};

}  // namespace weft
