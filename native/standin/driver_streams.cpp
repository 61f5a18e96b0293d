// The driver's functions for streams, events, values in memory and functions of the host.
//
// There is no default stream, and every stream is CU_STREAM_NON_BLOCKING: what these would order silently is
// an error.
#include <thread>

#include "standin/driver.h"

using namespace standin;

WEFT_DRIVER cuStreamCreateWithPriority(CUstream* handle, unsigned flags, int) {
  Context* context = nullptr;
  WEFT_TRY(check_context(&context));
  constexpr unsigned kNonBlocking = 1;
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  if (flags != kNonBlocking) return CUDA_ERROR_NOT_SUPPORTED;
  std::uint64_t seed = driver()->seed;
  {
    std::lock_guard guard(driver()->mutex);
    ++driver()->streams_made;
    if (seed) seed = seed * 1000003 + driver()->streams_made;
  }
  auto stream = std::make_shared<Stream>(*context, driver()->memory, seed);
  stream->start();
  *handle = reinterpret_cast<CUstream>(driver()->streams.add(std::move(stream)));
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuStreamCreate(CUstream* handle, unsigned flags) {
  return cuStreamCreateWithPriority(handle, flags, 0);
}

// What was pushed still runs.
WEFT_DRIVER cuStreamDestroy_v2(CUstream handle) {
  WEFT_TRY(check_ready());
  const auto stream = driver()->streams.remove(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  stream->stop();
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuStreamGetCtx(CUstream handle, CUcontext* context) {
  WEFT_TRY(check_ready());
  const auto stream = driver()->streams.find(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  *context = reinterpret_cast<CUcontext>(&stream->context());
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuStreamSynchronize(CUstream handle) {
  WEFT_TRY(check_ready());
  const auto stream = driver()->streams.find(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  stream->wait();
  return stream->context().error();
}

WEFT_DRIVER cuStreamQuery(CUstream handle) {
  WEFT_TRY(check_ready());
  const auto stream = driver()->streams.find(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  const bool idle = stream->is_idle();
  WEFT_TRY(stream->context().error());
  return idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

// Events.

WEFT_DRIVER cuEventCreate(CUevent* handle, unsigned) {
  Context* context = nullptr;
  WEFT_TRY(check_context(&context));
  *handle = reinterpret_cast<CUevent>(driver()->events.add(std::make_shared<Event>()));
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuEventDestroy_v2(CUevent handle) {
  WEFT_TRY(check_ready());
  return driver()->events.remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

WEFT_DRIVER cuEventRecord(CUevent handle, CUstream stream_handle) {
  std::shared_ptr<Stream> stream;
  WEFT_TRY(check_stream(stream_handle, &stream));
  auto event = driver()->events.find(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  stream->record(std::move(event));
  return CUDA_SUCCESS;
}

namespace {

// An event's state, and the error of the context that recorded it.
CUresult state_of(Event& event, bool* reached) {
  std::lock_guard guard(event.mutex);
  *reached = event.reached >= event.recorded;
  return event.context ? event.context->error() : CUDA_SUCCESS;
}

// Whether this wait between streams is to be left out.
bool is_skipped() {
  Counters& counters = driver()->counters;
  return ++counters.waits == counters.skipped_wait;
}

// Reads or writes a value of a stream in memory: null if the address is none of the device's, nor pinned.
template <class T>
T* value_at(CUdeviceptr address, const Context& context, Fault* fault) {
  Memory& memory = driver()->memory;
  char* found = address % sizeof(T) ? nullptr : memory.find(address, sizeof(T), context.device);
  if (!found) *fault = {CUDA_ERROR_ILLEGAL_ADDRESS, "a value of a stream: " + memory.describe(address)};
  return reinterpret_cast<T*>(found);
}

template <class T>
CUresult write_value(CUstream handle, CUdeviceptr address, T value, unsigned flags) {
  std::shared_ptr<Stream> stream;
  WEFT_TRY(check_stream(handle, &stream));
  if (flags) return CUDA_ERROR_NOT_SUPPORTED;
  Context& context = stream->context();
  stream->push([address, value, &context](Processor&, Random&) {
    Fault fault;
    if (T* place = value_at<T>(address, context, &fault)) __atomic_store_n(place, value, __ATOMIC_RELEASE);
    return fault;
  });
  return CUDA_SUCCESS;
}

template <class T>
CUresult wait_value(CUstream handle, CUdeviceptr address, T value, unsigned flags) {
  std::shared_ptr<Stream> stream;
  WEFT_TRY(check_stream(handle, &stream));
  constexpr unsigned kAtLeast = 0, kEqual = 1, kAnd = 2, kNor = 3;
  if (flags > kNor) return CUDA_ERROR_NOT_SUPPORTED;
  if (is_skipped()) return CUDA_SUCCESS;
  Context& context = stream->context();
  stream->poll([=, &context] {
    Fault fault;
    const T* place = value_at<T>(address, context, &fault);
    if (!place) {
      context.fail(fault);
      return true;
    }
    const T now = __atomic_load_n(place, __ATOMIC_ACQUIRE);
    if (flags == kAtLeast) return static_cast<std::make_signed_t<T>>(now - value) >= 0;
    if (flags == kEqual) return now == value;
    if (flags == kAnd) return (now & value) != 0;
    return static_cast<T>(~(now | value)) != 0;
  });
  return CUDA_SUCCESS;
}

}  // namespace

WEFT_DRIVER cuEventQuery(CUevent handle) {
  WEFT_TRY(check_ready());
  const auto event = driver()->events.find(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  bool reached = false;
  WEFT_TRY(state_of(*event, &reached));
  return reached ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

WEFT_DRIVER cuEventSynchronize(CUevent handle) {
  WEFT_TRY(check_ready());
  const auto event = driver()->events.find(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  {
    std::unique_lock guard(event->mutex);
    event->changed.wait(guard, [&] { return event->reached >= event->recorded; });
  }
  bool reached = false;
  return state_of(*event, &reached);
}

WEFT_DRIVER cuEventElapsedTime_v2(float* ms, CUevent begin, CUevent end) {
  WEFT_TRY(check_ready());
  const auto a = driver()->events.find(begin), b = driver()->events.find(end);
  if (!a || !b) return CUDA_ERROR_INVALID_HANDLE;
  bool a_reached = false, b_reached = false;
  WEFT_TRY(state_of(*a, &a_reached));
  WEFT_TRY(state_of(*b, &b_reached));
  if (!a_reached || !b_reached) return CUDA_ERROR_NOT_READY;
  *ms = static_cast<float>(b->reached_ms - a->reached_ms);
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuEventElapsedTime(float* ms, CUevent begin, CUevent end) {
  return cuEventElapsedTime_v2(ms, begin, end);
}

WEFT_DRIVER cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned flags) {
  std::shared_ptr<Stream> stream;
  WEFT_TRY(check_stream(stream_handle, &stream));
  auto event = driver()->events.find(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (!is_skipped()) stream->wait_for(std::move(event));
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, std::uint64_t value,
                                    unsigned flags) {
  return write_value<std::uint64_t>(stream, address, value, flags);
}

WEFT_DRIVER cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, std::uint32_t value,
                                    unsigned flags) {
  return write_value<std::uint32_t>(stream, address, value, flags);
}

WEFT_DRIVER cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, std::uint64_t value,
                                   unsigned flags) {
  return wait_value<std::uint64_t>(stream, address, value, flags);
}

WEFT_DRIVER cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, std::uint32_t value,
                                   unsigned flags) {
  return wait_value<std::uint32_t>(stream, address, value, flags);
}

// As the driver, does not call the function once the context has an error.
WEFT_DRIVER cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  std::shared_ptr<Stream> stream;
  WEFT_TRY(check_stream(handle, &stream));
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  stream->push([function, data](Processor&, Random&) {
    const InHostFunction mark;
    function(data);
    return Fault();
  });
  return CUDA_SUCCESS;
}
