// timeline.cpp: how far the streams of GPUs have come: tickets are places between events.
//
// Of a device whose context has failed or was reset all places count as passed.
//
// A stream may wait for a later place than it has to, if the event has been recorded again meanwhile. That
// cannot be a circle: what it waits for was enqueued before the wait, so follows from nothing enqueued after
// it.
#include <chrono>
#include <thread>

#include "device/backend.h"

namespace weft {
namespace {

constexpr unsigned kNoTimes = 2;  // an event without a clock
constexpr unsigned kTimes = 0;
// A thread that may give up asks for an event, at first without a pause.
constexpr auto kSpinning = std::chrono::microseconds(50), kPause = std::chrono::microseconds(20);

void raise(std::atomic<uint64_t>& place, uint64_t to) noexcept {
  uint64_t before = place.load(std::memory_order_relaxed);
  while (before < to && !place.compare_exchange_weak(before, to, std::memory_order_release)) {
  }
}

int device_of(int stream) noexcept { return stream / Ticket::kStreamsOfDevice % kDevicesOfKind; }

// An event of its own, with a time.
class GpuMark final : public StreamMark {
 public:
  GpuMark(const GpuBackend& backend, Gpu& gpu, driver::Stream stream)
      : backend_(backend), gpu_(gpu), context_(gpu.contexts.load(std::memory_order_acquire)) {
    backend_.enter(gpu_);
    backend_.check(backend_.table().create_event(&event_, kTimes), "cuEventCreate");
    const driver::Result result = backend_.table().record_event(event_, stream);
    if (result != driver::success) backend_.table().destroy_event(event_);
    backend_.check(result, "cuEventRecord");
  }
  ~GpuMark() override {
    if (is_lost()) return;
    try {
      backend_.enter(gpu_);
      backend_.table().destroy_event(event_);
    } catch (const DeviceError&) {  // its events go with it
    }
  }
  bool has_passed() const noexcept override {
    try {
      if (is_lost()) return true;
      backend_.enter(gpu_);
      return backend_.table().query_event(event_) != driver::not_ready;
    } catch (const DeviceError&) {
      return true;
    }
  }
  void wait() const override {
    require();
    backend_.check(backend_.table().synchronize_event(event_), "cuEventSynchronize");
  }
  double seconds_since(const StreamMark& earlier) const override {
    const auto& from = static_cast<const GpuMark&>(earlier);
    from.require();
    require();
    float milliseconds = 0;
    backend_.check(backend_.table().elapsed_ms(&milliseconds, from.event_, event_), "cuEventElapsedTime");
    return double{milliseconds} * 1e-3;
  }

 private:
  bool is_lost() const noexcept { return gpu_.contexts.load(std::memory_order_acquire) != context_; }
  void require() const {
    if (is_lost()) throw DeviceError("gpu:" + std::to_string(gpu_.index) + " was reset");
    backend_.enter(gpu_);
  }

  const GpuBackend& backend_;
  Gpu& gpu_;
  const uint32_t context_;
  driver::Event event_ = nullptr;
};

}  // namespace

Lane& GpuBackend::lane(int stream) {
  return gpu(device_of(stream)).lanes[static_cast<size_t>(stream % Ticket::kStreamsOfDevice)];
}

Ticket GpuBackend::record(Gpu& device, Lane& lane) {
  enter(device);
  const std::lock_guard guard(lane.mutex);
  const uint64_t place = lane.recorded.load(std::memory_order_relaxed) + 1;
  driver::Event& event = lane.events[place % Lane::kEvents];
  if (!event) {
    check(table_.create_event(&event, kNoTimes), "cuEventCreate");
  } else if (lane.passed.load(std::memory_order_relaxed) + Lane::kEvents < place) {
    waits.fetch_add(1, std::memory_order_relaxed);
    check(table_.synchronize_event(event), "cuEventSynchronize");
    raise(lane.passed, place - Lane::kEvents);
  }
  check(table_.record_event(event, lane.stream), "cuEventRecord");
  lane.recorded.store(place, std::memory_order_release);
  return Ticket::of(lane.number, place);
}

Ticket GpuBackend::record(int stream) { return record(gpu(device_of(stream)), lane(stream)); }

Ticket GpuBackend::upcoming(int stream) {
  // The stream is in use, so its device is there; nothing is raised in a forked process, whose parent has it.
  Gpu& device = *gpus_[static_cast<size_t>(device_of(stream))].load(std::memory_order_acquire);
  const Lane& lane = device.lanes[static_cast<size_t>(stream % Ticket::kStreamsOfDevice)];
  return Ticket::of(stream, lane.recorded.load(std::memory_order_acquire) + 1);
}

driver::Event GpuBackend::event_of(Ticket ticket) {
  Gpu& device = gpu(device_of(ticket.stream()));
  Lane& from = lane(ticket.stream());
  if (from.passed.load(std::memory_order_acquire) >= ticket.place()) return nullptr;
  if (from.recorded.load(std::memory_order_acquire) < ticket.place()) record(device, from);
  enter(device);
  return from.events[ticket.place() % Lane::kEvents];
}

bool GpuBackend::has_run(Ticket ticket) noexcept {
  try {
    Gpu& device = find(device_of(ticket.stream()));  // raises in a forked process
    Lane& from = device.lanes[static_cast<size_t>(ticket.stream() % Ticket::kStreamsOfDevice)];
    if (device.failure.load(std::memory_order_acquire)) return true;
    if (from.passed.load(std::memory_order_acquire) >= ticket.place()) return true;
    if (from.recorded.load(std::memory_order_acquire) < ticket.place()) return false;
    enter(device);
    // Under the lock the event is that of the place, or the place was passed.
    const std::lock_guard guard(from.mutex);
    if (from.passed.load(std::memory_order_relaxed) >= ticket.place()) return true;
    const driver::Result result = table_.query_event(from.events[ticket.place() % Lane::kEvents]);
    if (result == driver::not_ready) return false;
    check(result, "cuEventQuery");
    raise(from.passed, ticket.place());
    return true;
  } catch (...) {  // a failure of the context has been noted
    const Gpu* device =
        gpus_[static_cast<size_t>(device_of(ticket.stream()))].load(std::memory_order_acquire);
    return device && device->failure.load(std::memory_order_acquire);
  }
}

bool GpuBackend::wait(Ticket ticket, const GivesUp& gives_up) {
  driver::Event event = event_of(ticket);
  if (!event) return true;
  waits.fetch_add(1, std::memory_order_relaxed);
  if (!gives_up) {
    check(table_.synchronize_event(event), "cuEventSynchronize");
    raise(lane(ticket.stream()).passed, ticket.place());
    return true;
  }
  const auto start = std::chrono::steady_clock::now();
  while (!has_run(ticket)) {
    if (gives_up()) return false;
    if (std::chrono::steady_clock::now() - start < kSpinning)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(kPause);
  }
  gpu(device_of(ticket.stream()));  // raises if that is because it has failed
  return true;
}

void GpuBackend::order(int stream, Ticket ticket) {
  driver::Event event = event_of(ticket);
  if (!event) return;
  Lane& to = lane(stream);
  const auto from = static_cast<size_t>(ticket.stream());
  const std::lock_guard guard(to.mutex);
  if (to.ordered_after.size() <= from) to.ordered_after.resize(from + 1);
  if (to.ordered_after[from] >= ticket.place()) return;
  orders.fetch_add(1, std::memory_order_relaxed);
  enter(gpu(device_of(stream)));
  check(table_.wait_event(to.stream, event, 0), "cuStreamWaitEvent");
  to.ordered_after[from] = ticket.place();
}

void GpuBackend::order_other(int index, void* stream, Ticket ticket) {
  driver::Event event = event_of(ticket);
  if (!event) return;
  enter(gpu(index));
  check(table_.wait_event(static_cast<driver::Stream>(stream), event, 0), "cuStreamWaitEvent");
}

std::unique_ptr<StreamMark> GpuBackend::mark(int stream) {
  return std::make_unique<GpuMark>(*this, gpu(device_of(stream)), lane(stream).stream);
}

std::string GpuBackend::stream_name(int stream) {
  constexpr const char* kNames[Gpu::kLanes] = {"compute", "io", "priority", "copies in", "copies out"};
  return to_string({DeviceKind::gpu, device_of(stream)}) + ' ' + kNames[stream % Ticket::kStreamsOfDevice];
}

std::vector<Ticket> GpuBackend::newest() {
  std::vector<Ticket> tickets;
  for (int index = 0; index < count_ && index < kDevicesOfKind; ++index) {
    Gpu* const device = gpus_[static_cast<size_t>(index)].load(std::memory_order_acquire);
    if (!device) continue;
    for (const Lane& lane : device->lanes)
      if (const uint64_t place = lane.recorded.load(std::memory_order_acquire);
          place > lane.passed.load(std::memory_order_acquire))
        tickets.push_back(Ticket::of(lane.number, place));
  }
  return tickets;
}

}  // namespace weft
