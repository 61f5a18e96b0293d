// runtime.h: what arrays need of the process: its engine, and the memory and random numbers of each device.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

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
  // All begin with entropy; a forked child's, too, unless these have been called.
  void seed_all(uint64_t seed);
  void set_generator(Device device, const Generator::State& state);
  // What seed_all was called with last, or seed_kind, or entropy.
  uint64_t seed() const;
  // Seeds the devices of one kind but those of these numbers, whether they are used yet or not.
  void seed_kind(DeviceKind kind, uint64_t seed, std::span<const int> without);
  std::vector<Device> used_devices() const;  // those with a pool, of all kinds
  // Gives temporary space that is not in use back to the device's pool; says whether there was any.
  bool release_temporary(Device device) noexcept;
  // How memory is given back: to its pool, else to its owner.
  struct Release {
    Pool* pool;
    void* memory;
    void (*drop)(void* owner) noexcept = nullptr;
    void* owner = nullptr;
    void operator()() const noexcept {
      if (pool)
        pool->release(memory);
      else if (drop)
        drop(owner);
    }
  };
  // Gives memory back when what streams do with it has run: at the next look.
  void retire(const Release& release, std::unique_ptr<StreamUses> uses) noexcept;
  // The look: of all devices, the host too, whose memory streams copy.
  void collect_retired() noexcept;
  // Gives a device a new context, and a pool. Its arrays are lost: each use of one raises DeviceError. Waits
  // for what is pending; no other thread may use the device meanwhile.
  void reset(Device device);
  void set_check(bool check) noexcept { check_ = check; }
  bool check() const noexcept { return check_; }

  static constexpr int kDevices = kDevicesOfKind;  // of each kind

 private:
  friend class TempSpace;
  // A large piece of temporary space: memory from the pool, which the host may not be able to touch.
  struct Piece {
    char* data;
    size_t bytes;
    Ticket used;  // of the stream that used it last
  };
  // Memory that streams still use.
  struct Retired {
    Release release;
    std::unique_ptr<StreamUses> uses;
  };
  struct RetiredList {
    ForkMutex mutex;
    std::atomic<size_t> count{0};
    std::deque<Retired> list;
  };
  static constexpr int kPieces = 16;  // of a device that wait to be used again; more go back to the pool
  // The thread that exchanges a piece for null owns it, so none waits, and a forked child finds nothing
  // locked.
  using Pieces = std::array<std::atomic<Piece*>, kPieces>;
  Runtime();
  void after_fork_in_child();
  // What the devices of one kind have.
  struct Devices {
    std::array<std::atomic<Pool*>, kDevices> pools{};
    std::array<Generator, kDevices> generators;
    std::array<Pieces, kDevices> pieces{};
  };
  void release_piece(Pool& pool, std::unique_ptr<Piece> piece) noexcept;
  // Of the device's kind: made when the first of them is used. Raises DeviceError for a device that is not
  // there.
  Devices& devices_of(Device device);
  void seed(Devices& devices, DeviceKind kind, uint64_t seed, std::span<const int> without = {});
  std::shared_ptr<Engine> engine_;
  bool check_ = false;
  std::atomic<bool> seeded_ = false;
  mutable ForkMutex mutex_;
  RetiredList retired_;
  Devices cpus_;
  std::array<std::atomic<Devices*>, kDeviceKinds> others_{};  // by kind; never destroyed
  uint64_t seed_ = 0;                                         // of kinds that are used from now on; mutex_
};

// Scratch memory for as long as one function runs, used again and again: at least `bytes`, aligned to
// Pool::kAlignment, null for 0; the content is undefined. Raises OutOfMemory.
//
// Where the host can touch the device's memory, up to kSmall bytes are the calling thread's own, and go when
// it ends. Larger pieces are the device's: one that is not in use serves the next request of about that size,
// on any thread, so that there are never more than run at the same time, and programs that run in turn share
// one. A piece that turns out too small is replaced, not kept beside the larger one.
//
// stream: whose work uses it, by number; the space may end before that has run. The next user's stream comes
// after it. 0: the host's, which waits.
class TempSpace {
 public:
  static constexpr size_t kSmall = 64 << 10;

  TempSpace(Device device, size_t bytes, int stream = 0);
  ~TempSpace();
  TempSpace(const TempSpace&) = delete;
  TempSpace& operator=(const TempSpace&) = delete;
  char* get() const noexcept { return data_; }

 private:
  bool take_thread_space();
  void take_piece(size_t bytes);

  const Device device_;
  const int stream_;
  char* data_ = nullptr;
  Runtime::Piece* piece_ = nullptr;  // null: none, or the thread's own
};

}  // namespace weft
