// runtime.h: what arrays need of the process: its engine, and the memory and random numbers of each device.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "engine/engine.h"
#include "storage/pool.h"
#include "storage/random.h"

namespace weft {

class Runtime {
 public:
  static Runtime& get() noexcept;

  // Once, before the first array; the process's own engine.
  void set_engine(std::shared_ptr<Engine> engine);
  Engine& engine() const;

  // Made at the first use; never destroyed, because arrays may outlive everything.
  Pool& pool(Device device);
  // One for each device, on streams of their own; while a thread has a stream of its own, that one.
  Generator& generator(Device device);
  Generator& devices_generator(Device device);
  static inline thread_local Generator* own_stream = nullptr;
  void seed_all(uint64_t seed);
  int used_devices() const noexcept;  // the highest index with a pool, plus 1
  void set_check(bool check) noexcept { check_ = check; }
  bool check() const noexcept { return check_; }

  static constexpr int kDevices = 64;

 private:
  Runtime() = default;
  static size_t index_of(Device device);
  std::shared_ptr<Engine> engine_;
  bool check_ = false;
  std::mutex mutex_;
  std::array<std::atomic<Pool*>, kDevices> pools_{};
  std::array<Generator, kDevices> generators_;
};

// Scratch memory of the calling thread, for as long as one function runs: grows, and is used again and again.
// At least `bytes`, aligned to Pool::kAlignment; the content is undefined. A second request within one
// function gives the same memory.
char* temp_space(Device device, size_t bytes);

}  // namespace weft
