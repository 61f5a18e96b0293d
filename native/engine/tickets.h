// tickets.h: which work on the streams of devices an operation has to come after.
//
// An operation of a device with streams is finished for the engine when it is enqueued. A Ticket names the
// place on a stream behind its work. A variable keeps the tickets of its last write and of the reads since
// then: the stream of a later operation that conflicts waits for them, and the host waits only where it reads
// the value. Operations of the host wait for them, too, before they run: then the engine's rule holds for the
// memory as well.
//
// Why one ticket stands for all earlier writes: an operation that writes has its stream wait for the last
// write and for the reads, which have waited for the writes before them; a stream runs in order. So who waits
// for the last write has waited for all. Reads do not wait for each other, so each stream has its own place.
//
// The tickets are atomics, and their order is that of the engine: a writer is alone with the variable, and
// its tickets are stored before it is complete, so those who come later read them. Readers run together; each
// raises the place of its own stream.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>

#include "engine/parking.h"
#include "engine/ref.h"

namespace weft {

struct Access;
struct Device;
struct Doubt;
struct Op;
struct Var;

// A place on a stream; 0: none. Streams are numbered over the devices of all kinds, places from 1.
struct Ticket {
  static constexpr int kPlaceBits = 48;
  static constexpr int kStreamsOfDevice = 8;
  uint64_t word = 0;

  static Ticket of(int stream, uint64_t place) noexcept {
    return {static_cast<uint64_t>(stream) << kPlaceBits | place};
  }
  explicit operator bool() const noexcept { return word != 0; }
  int stream() const noexcept { return static_cast<int>(word >> kPlaceBits); }
  uint64_t place() const noexcept { return word & ((uint64_t{1} << kPlaceBits) - 1); }
};

// Where the memory of a variable goes with a device's context: the device by device_number, and the number of
// its context. 0: nowhere, as memory of the host.
struct ContextMemory {
  int device = 0;
  uint32_t context = 0;
};

// Asked now and then by a waiting thread, which stops when it gives true.
using GivesUp = std::function<bool()>;

// The tickets of one variable. Made when a stream uses it first.
class alignas(64) StreamUses {
 public:
  StreamUses();
  ~StreamUses();
  static constexpr size_t kStreams = 7;  // that read it between two writes, without a wait of the host

  Ticket write() const noexcept { return {write_.load(std::memory_order_acquire)}; }
  template <class F>  // f(ticket)
  void each_read(F&& f) const {
    for (const auto& read : reads_)
      if (const Ticket ticket{read.load(std::memory_order_acquire)}) f(ticket);
  }
  // The writer has waited for all reads.
  void set_write(Ticket ticket) noexcept;
  // False: there is no place for one more stream.
  bool add_read(Ticket ticket) noexcept;
  bool has_run() const noexcept;
  // What may turn out to have failed (late_checks.h); null: nothing.
  Ref<Doubt> doubt() const noexcept;
  void set_doubt(Ref<Doubt> doubt) noexcept;
  // The host waits. Raises DeviceError; false: it gave up.
  bool wait(const GivesUp& gives_up) const;

 private:
  std::atomic<uint64_t> write_{0};
  std::array<std::atomic<uint64_t>, kStreams> reads_{};
  mutable Lock doubt_lock_;
  std::atomic<bool> is_in_doubt_{false};
  Ref<Doubt> doubt_;
};

bool has_run(Ticket ticket) noexcept;
// The host waits for it, without the host language's lock. Raises DeviceError; false: it gave up.
bool wait_for(Ticket ticket, const GivesUp& gives_up = {});
// What is enqueued on the stream from now on runs after the ticket; 0, the host: waits.
void order_after(int stream, Ticket ticket);

// Around the function of an operation: what it has to come after; its own ticket for what it used. The former
// raises DeviceError if memory of an operand was lost, the latter gives the ticket, none for an operation of
// the host.
void order_streams(const Op& op);
Ticket note_streams(const Op& op);
// Whether the calling thread would wait in order_streams.
bool would_wait_for_streams(const Op& op) noexcept;
// The host waits for the last write of a variable, and unless writes_only for what reads it. Raises
// DeviceError, also if the memory was lost when its device was reset. False: it gave up.
bool wait_for_streams(const Var& var, bool writes_only, const GivesUp& gives_up = {});
// The same for a stream of another library on a device.
void order_other_stream(Device device, void* stream, const Var& var, bool writes_only);
// What is on a stream now has written the variable, which another library had.
void note_foreign_write(Var& var, int stream);
// The host waits for all streams of all devices.
bool wait_for_all_streams(const GivesUp& gives_up = {});

}  // namespace weft
