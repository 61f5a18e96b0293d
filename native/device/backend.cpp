// backend.cpp: the driver's devices, their contexts and streams; see backend.h.
#include "device/backend.h"

#include <unistd.h>

#include "engine/error.h"
#include "engine/pages.h"

namespace weft {
namespace {

constexpr unsigned kNonBlocking = 1;  // a stream does not wait for the default one
constexpr int kProcessors = 16, kCapabilityMajor = 75, kCapabilityMinor = 76;  // of CUdevice_attribute

// The process that opened the driver: a forked child has another number.
pid_t& opened_by() {
  static pid_t process = 0;
  return process;
}

std::string list_of(int count) {
  if (count == 0) return "no devices";
  return count == 1 ? "1 device, gpu:0"
                    : std::to_string(count) + " devices, gpu:0 to gpu:" + std::to_string(count - 1);
}

// "sm_90" for compute capability 9.0.
std::string chip_of(const driver::Table& table, driver::Ordinal ordinal) {
  char name[64] = {};
  driver::check(table, table.device_name(name, sizeof name, ordinal), "cuDeviceGetName");
  if (std::string_view(name) == "stand-in") return name;  // native/standin: it takes no PTX
  int major = 0, minor = 0;
  driver::check(table, table.device_attribute(&major, kCapabilityMajor, ordinal), "cuDeviceGetAttribute");
  driver::check(table, table.device_attribute(&minor, kCapabilityMinor, ordinal), "cuDeviceGetAttribute");
  return "sm_" + std::to_string(major) + std::to_string(minor);
}

DeviceBackend* open_gpus() {
  const std::lock_guard guard(lasting_fork_mutex<GpuBackend>());
  if (DeviceBackend* backend = backend_of(DeviceKind::gpu)) return backend;  // another thread was first
  auto backend = std::make_unique<GpuBackend>(driver::open_table());
  opened_by() = getpid();
  add_device_kind(std::move(backend));
  return backend_of(DeviceKind::gpu);
}

}  // namespace

void offer_gpus() noexcept { open_gpu_backend.store(open_gpus, std::memory_order_release); }

GpuBackend::GpuBackend(const driver::Table& table) : DeviceBackend("gpu"), table_(table) {
  check(table_.init(0), "cuInit");
  check(table_.device_count(&count_), "cuDeviceGetCount");
}

Gpu& GpuBackend::gpu(int index) {
  Gpu& gpu = find(index);
  if (const std::string* failure = gpu.failure.load(std::memory_order_acquire)) [[unlikely]]
    throw DeviceError(*failure);
  return gpu;
}

Gpu& GpuBackend::find(int index) {
  if (index < 0 || index >= count_ || index >= kDevicesOfKind)
    throw DeviceError("device gpu:" + std::to_string(index) + " is not available: the driver has " +
                      list_of(count_));
  if (getpid() != opened_by() && opened_by() != 0)
    throw DeviceError("device gpu:" + std::to_string(index) +
                      ": a forked process cannot use GPUs that its parent has used; start it with spawn");
  auto& slot = gpus_[static_cast<size_t>(index)];
  if (Gpu* gpu = slot.load(std::memory_order_acquire)) [[likely]]
    return *gpu;
  const std::lock_guard guard(making_);
  if (Gpu* gpu = slot.load(std::memory_order_acquire)) return *gpu;
  std::unique_ptr<Gpu> gpu = make(index);
  slot.store(gpu.get(), std::memory_order_release);
  return *gpu.release();
}

std::unique_ptr<Gpu> GpuBackend::make(int index) const {
  auto gpu = std::make_unique<Gpu>();
  gpu->index = index;
  check(table_.device_get(&gpu->ordinal, index), "cuDeviceGet");
  begin(*gpu);
  size_t bytes = 0;
  check(table_.device_total_memory(&bytes, gpu->ordinal), "cuDeviceTotalMem");
  gpu->total_bytes = bytes;
  gpu->chip = chip_of(table_, gpu->ordinal);
  check(table_.device_attribute(&gpu->processors, kProcessors, gpu->ordinal), "cuDeviceGetAttribute");
  return gpu;
}

// The context and its streams.
void GpuBackend::begin(Gpu& gpu) const {
  check(table_.retain_context(&gpu.context, gpu.ordinal), "cuDevicePrimaryCtxRetain");
  enter(gpu);
  for (int k = 0; k < Gpu::kLanes; ++k) {
    Lane& lane = gpu.lanes[static_cast<size_t>(k)];
    lane.number = device_number({DeviceKind::gpu, gpu.index}) * Ticket::kStreamsOfDevice + k;
    check(table_.create_stream(&lane.stream, kNonBlocking, k == Gpu::priority ? -1 : 0),
          "cuStreamCreateWithPriority");
  }
}

// The driver's objects of the old context have gone with it. Places that were recorded count as passed.
void GpuBackend::reset(int index) {
  Gpu& gpu = find(index);
  const std::lock_guard guard(making_);
  check(table_.reset_context(gpu.ordinal), "cuDevicePrimaryCtxReset");
  check(table_.release_context(gpu.ordinal), "cuDevicePrimaryCtxRelease");
  gpu.contexts.fetch_add(1, std::memory_order_acq_rel);
  for (Lane& lane : gpu.lanes) {
    const std::lock_guard lane_guard(lane.mutex);
    lane.events.fill(nullptr);
    lane.ordered_after.clear();
    lane.passed.store(lane.recorded.load(std::memory_order_relaxed), std::memory_order_release);
  }
  for (PinnedRing* ring : {&gpu.ring_in, &gpu.ring_out}) {
    const std::lock_guard ring_guard(ring->mutex);
    ring->pieces = {};
    ring->current = 0, ring->end = PinnedRing::kPieceBytes;
  }
  {
    const std::lock_guard notes_guard(gpu.notes.mutex);
    gpu.notes.memory = nullptr;
    gpu.notes.free.clear();
  }
  begin(gpu);
  gpu.failure.store(nullptr, std::memory_order_release);
}

uint32_t GpuBackend::context_number(int index) noexcept {
  const Gpu* gpu = gpus_[static_cast<size_t>(index)].load(std::memory_order_acquire);
  return gpu ? gpu->contexts.load(std::memory_order_acquire) : 0;
}

namespace {

thread_local Gpu* entered = nullptr;

}  // namespace

void GpuBackend::enter(Gpu& gpu) const {
  entered = &gpu;
  check(table_.set_context(gpu.context), "cuCtxSetCurrent");
}

void GpuBackend::check(driver::Result result, const char* call) const {
  if (result == driver::success) [[likely]]
    return;
  if (!entered || !driver::ends_context(result)) driver::check(table_, result, call);
  const std::string name = to_string(Device{DeviceKind::gpu, entered->index});
  const std::string* first = nullptr;
  auto text = std::make_unique<std::string>(
      "device " + name + " has failed, and its arrays are lost: " + driver::describe(table_, result, call) +
      "; wf.device.reset(\"" + name + "\") makes it usable again");
  if (entered->failure.compare_exchange_strong(first, text.get(), std::memory_order_acq_rel))
    first = text.release();  // others may read it at any time
  throw DeviceError(*first);
}

namespace {

Gpu::LaneKind lane_of(QueueKind queue) noexcept {
  switch (queue) {
    case QueueKind::copy:
      return Gpu::in;
    case QueueKind::io:
      return Gpu::io;
    case QueueKind::priority:
      return Gpu::priority;
    default:
      return Gpu::compute;
  }
}

}  // namespace

void* GpuBackend::stream(int index, QueueKind queue) { return gpu(index).lanes[lane_of(queue)].stream; }
int GpuBackend::stream_number(int index, QueueKind queue) { return find(index).lanes[lane_of(queue)].number; }

std::unique_ptr<Pages> GpuBackend::pages(int index) { return gpu_pages(*this, gpu(index)); }

}  // namespace weft
