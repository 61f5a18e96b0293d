// device_kind.h: the kinds of devices that there are, and the functions of one other than cpu.
//
// Kinds are added while the process runs and never taken away. Adding is serialised by a lock; reading takes
// none: an entry is filled before the number of kinds that shows it is stored (release), and a thread that
// reads it has loaded that number (acquire). cpu and gpu have their numbers from the start; gpu has no
// backend until one is added under its name.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/operation.h"
#include "engine/tickets.h"

namespace weft {

class Pages;

// Code of a device, loaded; it stays as long as the process. A block of `threads` threads does `items`
// elements or rows at a time, and takes `words` words of arguments.
struct DeviceFunction {
  static constexpr size_t kMostWords = 512;  // what a launch takes
  virtual ~DeviceFunction() = default;
  unsigned threads = 0;
  size_t shared_bytes = 0, words = 0;
  int64_t items = 1;
};

// A moment on a stream, behind what had been enqueued there.
struct StreamMark {
  virtual ~StreamMark() = default;
  virtual bool has_passed() const noexcept = 0;
  // The host waits. Raises DeviceError.
  virtual void wait() const = 0;
  // Of two marks of a device that have passed. Raises DeviceError.
  virtual double seconds_since(const StreamMark& earlier) const = 0;
};

// Sees work of streams, each piece between two calls of a thread; pieces of a thread do not overlap. op:
// whose work it is; null: of none.
class StreamWatch {
 public:
  virtual ~StreamWatch() = default;
  virtual void began(int stream, const Op* op, const Engine* engine) noexcept = 0;
  virtual void ended() noexcept = 0;
};
inline std::atomic<StreamWatch*> stream_watch{nullptr};

// What is enqueued while it lives is a piece of work; stream 0: of none.
class WatchedWork {
 public:
  WatchedWork(int stream, const Op* op, const Engine* engine) noexcept
      : watch_(stream ? stream_watch.load(std::memory_order_acquire) : nullptr) {
    if (watch_) watch_->began(stream, op, engine);
  }
  ~WatchedWork() {
    if (watch_) watch_->ended();
  }
  WatchedWork(const WatchedWork&) = delete;

 private:
  StreamWatch* const watch_;
};

// One kind of device. Where its memory is the host's, what allocates and copies its arrays is the host's,
// too.
class DeviceBackend {
 public:
  explicit DeviceBackend(std::string name) : name_(std::move(name)) {}
  virtual ~DeviceBackend() = default;
  const std::string& name() const noexcept { return name_; }
  // RunContext::stream of what runs on a queue of a device: called once for each, by the thread that pushes
  // to it first. Null: it has none.
  virtual void* stream(int index, QueueKind queue) {
    static_cast<void>(index), static_cast<void>(queue);
    return nullptr;
  }
  // Its number for tickets: device_number * Ticket::kStreamsOfDevice and what tells it from the others of the
  // device. 0: what runs on the queue has run when its function returns, and nothing of tickets is called.
  virtual int stream_number(int index, QueueKind queue) {
    static_cast<void>(index), static_cast<void>(queue);
    return 0;
  }
  // The ticket behind all that is enqueued on a stream. Waits while too many are not passed. Raises
  // DeviceError, as the following do.
  virtual Ticket record(int stream);
  // The ticket that the next `record` gives: behind all that is enqueued now.
  virtual Ticket upcoming(int stream);
  virtual bool has_run(Ticket ticket) noexcept;
  // The host waits; false: it was told to give up, which is asked now and then.
  virtual bool wait(Ticket ticket, const GivesUp& gives_up);
  // What is enqueued on the stream from now on runs after the ticket, which is of this kind.
  virtual void order(int stream, Ticket ticket);
  // The same for a stream of the device that is not the backend's.
  virtual void order_other(int index, void* stream, Ticket ticket);
  // Of each stream of all devices the newest ticket, unless it has passed.
  virtual std::vector<Ticket> newest() { return {}; }
  // Now on a stream, and what a stream is called, such as "gpu:0 compute".
  virtual std::unique_ptr<StreamMark> mark(int stream);
  virtual std::string stream_name(int stream);
  // The number of the context that a device has now, from 1: memory of an earlier one is lost.
  virtual uint32_t context_number(int index) noexcept { return static_cast<void>(index), 0; }
  // Gives the device a new context, whatever has become of the old one. No thread may use it meanwhile.
  virtual void reset(int index);

  // Raises DeviceError unless the device is there and can be used.
  virtual void require(int index) { static_cast<void>(index); }

  // Whether the host can touch its memory. If so, nothing below is called.
  virtual bool on_host() const noexcept { return true; }
  // For the pool of a device, which asks once.
  virtual std::unique_ptr<Pages> pages(int index);
  // Bytes from the host to a device, and back; on a device or from one to another, which do not overlap. In
  // an operation of the device they are enqueued on its stream, elsewhere they have been copied when the
  // functions return; what comes to the host always has. They raise DeviceError.
  virtual void copy_in(int index, char* to, const void* from, size_t bytes);
  virtual void copy_out(int index, void* to, const char* from, size_t bytes);
  virtual void copy_within(int index, char* to, int from_index, const char* from, size_t bytes);
  // Copies up to kFetched bytes of a device behind what is on the running operation's stream: they are there
  // once its ticket has passed, until `forget`. Null: there is no room now.
  static constexpr size_t kFetched = 64;
  virtual const void* fetch_later(int index, const char* from, size_t bytes);
  virtual void forget(int index, const void* fetched) noexcept;
  // Enqueues a copy of what has been fetched by then, from this or another device of the kind.
  virtual void copy_fetched(int index, char* to, const void* fetched, size_t bytes);
  // Stores a value of `size` bytes `count` times, enqueued like a copy; false if it has no way to do that.
  virtual bool fill(int index, char* to, uint32_t value, size_t size, size_t count);

  // What code is compiled for, such as "sm_90"; its processors, each of which runs some blocks at a time.
  virtual std::string chip(int index);
  virtual int processors(int index);
  // The code of this name in an image, whose other facts are given. Raises DeviceError, and ValueError for
  // code that takes more words than there may be.
  virtual std::unique_ptr<DeviceFunction> load(int index, std::string_view image, const char* name,
                                               DeviceFunction facts);
  // Enqueues a launch of `blocks` blocks on a stream that `stream` gave; the words are read before it
  // returns.
  virtual void launch(int index, void* stream, const DeviceFunction& function, unsigned blocks,
                      const uint64_t* words);
  // Waits for all that is on a stream; of a kind without streams, for nothing. Raises DeviceError.
  virtual void synchronize(int index, void* stream) { static_cast<void>(index), static_cast<void>(stream); }

  // What has been done on devices of this kind, and brought to and from them. staged: operations that the
  // host ran on a copy of the device's memory, for want of a kernel. waits: of the host for a stream; orders:
  // of streams for streams.
  std::atomic<uint64_t> kernels{0}, copies_in{0}, copies_out{0}, bytes_in{0}, bytes_out{0}, staged{0},
      launches{0}, waits{0}, orders{0};

 private:
  const std::string name_;
};

// Raises ValueError if there is a kind of that name, or no room for one more.
DeviceKind add_device_kind(std::unique_ptr<DeviceBackend> backend);
std::optional<DeviceKind> find_device_kind(std::string_view name) noexcept;
DeviceBackend* backend_of(DeviceKind kind) noexcept;  // null: cpu, or none was added
// Adds the kind gpu when it is used first; raises DeviceError. Null: there is no code for GPUs.
inline std::atomic<DeviceBackend* (*)()> open_gpu_backend{nullptr};
// The backend that gave a stream its number.
DeviceBackend& backend_of_stream(int stream) noexcept;
// The backend of a device that is to be used; null for a cpu. Raises DeviceError if there is no such device.
DeviceBackend* require_backend(Device device);
// The backend of a device whose memory the host cannot touch, else null.
inline DeviceBackend* hidden_memory_of(Device device) noexcept {
  if (device.kind == DeviceKind::cpu) [[likely]]
    return nullptr;
  DeviceBackend* backend = backend_of(device.kind);
  return backend && !backend->on_host() ? backend : nullptr;
}

// A number for each device that can be used, counted by kinds; less than device_numbers().
inline int device_number(Device device) noexcept {
  return static_cast<int>(device.kind) * kDevicesOfKind + device.index;
}
int device_numbers() noexcept;

// Between devices of two kinds: counted by the backends.
void count_copy(Device to, Device from, uint64_t bytes) noexcept;

}  // namespace weft
