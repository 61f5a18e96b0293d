// backend.h: GPUs as a kind of device: their contexts, streams, memory and copies, through the driver's
// functions.
//
// The backend is made when the first GPU is used, a device when it is used, and neither is ever destroyed:
// arrays may outlive everything. Any thread may call; devices are found without a lock, and made under one.
// The context of a device is made current on each thread that calls the driver for it. After a fork the child
// has no GPU: every call raises DeviceError, and memory is not given back, since the driver's state belongs
// to the parent.
//
// A device whose context has failed stays where it is: every use raises DeviceError with the first failure,
// and its places count as passed, so that nothing waits. `reset` makes a new context. Places go on where they
// were.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/driver.h"
#include "engine/device_kind.h"
#include "engine/fork.h"

namespace weft {

// Pinned memory of the host, through which copies from and to other memory go: some pieces, used in turn,
// each by several small copies.
class PinnedRing {
 public:
  static constexpr size_t kPieceBytes = 4 << 20;
  static constexpr size_t kPieces = 4;
  struct Piece {
    char* memory = nullptr;
    driver::Event used = nullptr;  // the copies that use it have run
    bool is_busy = false;
    int stream = 0;  // the one that uses it
  };
  ForkMutex mutex;  // held for a whole copy
  std::array<Piece, kPieces> pieces;
  size_t current = 0,
         end = kPieceBytes;  // of copies to the device: the latest piece, and how much of it is used
};

// Pinned places for what is read later.
struct PinnedNotes {
  static constexpr size_t kMost = 512;
  ForkMutex mutex;
  char* memory = nullptr;
  std::vector<uint16_t> free;  // numbers of places
};

// One stream, and how far it has come: the event of place k is the one of number k % kEvents. So at most as
// many places are ahead of the device: `record` waits for the oldest before it uses its event again.
struct Lane {
  static constexpr uint64_t kEvents = 512;
  int number = 0;  // of tickets
  driver::Stream stream = nullptr;
  std::atomic<uint64_t> recorded{0};  // the newest place; raised under the lock
  std::atomic<uint64_t> passed{0};    // a place that the device has passed; only raised
  ForkMutex mutex;
  std::array<driver::Event, kEvents> events{};
  std::vector<uint64_t> ordered_after;  // by number of the stream: the newest place that it waits for
};

// One GPU. Constant once it has been made, but for the rings; a reset changes the context and the streams,
// while nothing uses them.
struct Gpu {
  int index;
  driver::Ordinal ordinal;
  driver::Context context;
  uint64_t total_bytes;
  std::string chip;  // what code is compiled for: "sm_90" or so, "stand-in"
  int processors;
  std::atomic<uint32_t> contexts{1};                 // that it has had
  std::atomic<const std::string*> failure{nullptr};  // of the context; texts are kept
  // Of the queues compute (which is that of wide, too: one kernel fills a device), io and priority; of copies
  // from the host, and to it.
  enum LaneKind : int { compute, io, priority, in, out, kLanes };
  std::array<Lane, kLanes> lanes;
  PinnedRing ring_in, ring_out;
  PinnedNotes notes;
};

// Code and its image, which is loaded again after a reset.
struct GpuFunction final : DeviceFunction {
  GpuFunction(DeviceFunction facts, std::string_view code, std::string called)
      : DeviceFunction(facts), image(code), name(std::move(called)) {}
  const std::string image, name;
  mutable ForkMutex mutex;
  mutable std::atomic<uint32_t> loaded_in{0};  // the number of the context
  mutable driver::Function function = nullptr;
};

class GpuBackend final : public DeviceBackend {
 public:
  explicit GpuBackend(const driver::Table& table);

  // How many the driver has.
  int count() const noexcept { return count_; }
  // Raises DeviceError if it is not there, or cannot be used.
  Gpu& gpu(int index);
  const driver::Table& table() const noexcept { return table_; }
  // Makes the device's context the calling thread's.
  void enter(Gpu& gpu) const;
  // Raises DeviceError unless the call succeeded. What ends the context is the failure of the device entered
  // last.
  void check(driver::Result result, const char* call) const;

  void require(int index) override { gpu(index); }
  void* stream(int index, QueueKind queue) override;
  int stream_number(int index, QueueKind queue) override;
  Ticket record(int stream) override;
  Ticket upcoming(int stream) override;
  bool has_run(Ticket ticket) noexcept override;
  bool wait(Ticket ticket, const GivesUp& gives_up) override;
  void order(int stream, Ticket ticket) override;
  void order_other(int index, void* stream, Ticket ticket) override;
  std::vector<Ticket> newest() override;
  std::unique_ptr<StreamMark> mark(int stream) override;
  std::string stream_name(int stream) override;
  uint32_t context_number(int index) noexcept override;
  void reset(int index) override;
  bool on_host() const noexcept override { return false; }
  std::unique_ptr<Pages> pages(int index) override;
  void copy_in(int index, char* to, const void* from, size_t bytes) override;
  void copy_out(int index, void* to, const char* from, size_t bytes) override;
  void copy_within(int index, char* to, int from_index, const char* from, size_t bytes) override;
  const void* fetch_later(int index, const char* from, size_t bytes) override;
  void forget(int index, const void* fetched) noexcept override;
  void copy_fetched(int index, char* to, const void* fetched, size_t bytes) override;
  bool fill(int index, char* to, uint32_t value, size_t size, size_t count) override;
  std::string chip(int index) override { return find(index).chip; }
  int processors(int index) override { return find(index).processors; }
  std::unique_ptr<DeviceFunction> load(int index, std::string_view image, const char* name,
                                       DeviceFunction facts) override;
  void launch(int index, void* stream, const DeviceFunction& function, unsigned blocks,
              const uint64_t* words) override;
  void synchronize(int index, void* stream) override;

 private:
  std::unique_ptr<Gpu> make(int index) const;
  void begin(Gpu& gpu) const;
  // As gpu(), whether its context has failed or not.
  Gpu& find(int index);
  driver::Function function_of(Gpu& device, const GpuFunction& function) const;
  // A piece, which no copy uses any more.
  PinnedRing::Piece& free_piece(PinnedRing& ring, size_t k) const;
  Lane& lane(int stream);
  Ticket record(Gpu& device, Lane& lane);
  // The event of a ticket; null: the host knows that it was passed.
  driver::Event event_of(Ticket ticket);
  // Where a copy of a device goes: the stream of the operation that the calling thread runs there, else a
  // lane of the device, behind what the operation comes after; then the host has to wait for it.
  struct Way {
    Lane& lane;
    bool waits;
  };
  Way way(Gpu& device, Gpu::LaneKind otherwise);
  void leave(const Way& way);
  WatchedWork watch(const Way& way);

  const driver::Table table_;
  int count_ = 0;
  ForkMutex making_;
  std::array<std::atomic<Gpu*>, kDevicesOfKind> gpus_{};
};

// Has the first use of a GPU open the driver.
void offer_gpus() noexcept;
// The pages of a device; memory.cpp.
std::unique_ptr<Pages> gpu_pages(GpuBackend& backend, Gpu& gpu);

}  // namespace weft
