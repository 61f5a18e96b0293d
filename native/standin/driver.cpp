// The driver's functions for devices, contexts, modules and launches, and what tests ask beside them.
//
// WEFT_STANDIN_DEVICES: number of devices, 2. WEFT_STANDIN_MIB: memory of each, 4096. WEFT_TEST_SEED: see
// streams.h.
#include "standin/driver.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include <pthread.h>

namespace standin {
namespace {

std::atomic<Driver*> the_driver{nullptr};
thread_local Context* current[8];
thread_local int depth = 0;  // of `current`; its last one is the thread's context
thread_local bool in_host_function = false;

std::uint64_t number_of(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

Context* current_context() { return depth ? current[depth - 1] : nullptr; }

}  // namespace

Driver::Driver(int devices, std::size_t bytes, std::uint64_t seed_of_tests)
    : memory(devices, bytes), seed(seed_of_tests) {
  for (int k = 0; k < devices; ++k) contexts.push_back(std::make_unique<Context>(k));
}

Driver* driver() { return the_driver; }

CUresult check_ready() {
  if (!driver()) return CUDA_ERROR_NOT_INITIALIZED;
  return in_host_function ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

CUresult check_context(Context** context) {
  WEFT_TRY(check_ready());
  *context = current_context();
  return *context ? (*context)->error() : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult check_stream(CUstream handle, std::shared_ptr<Stream>* stream) {
  Context* context = nullptr;
  WEFT_TRY(check_context(&context));
  *stream = driver()->streams.find(handle);
  return *stream && &(*stream)->context() == context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult check_device(CUdevice device) {
  WEFT_TRY(check_ready());
  const bool exists = device >= 0 && device < static_cast<int>(driver()->contexts.size());
  return exists ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

InHostFunction::InHostFunction() { in_host_function = true; }
InHostFunction::~InHostFunction() { in_host_function = false; }

namespace {

// Everything of a device goes: what runs ends, what waits is dropped.
void reset(Context& context) {
  Driver& all = *driver();
  context.fail({CUDA_ERROR_INVALID_CONTEXT, "the context was reset"});
  for (const auto& stream : all.streams.where([&](Stream& s) { return &s.context() == &context; })) {
    all.streams.remove(stream.get());
    stream->wait();
    stream->stop();
  }
  for (const auto& module : all.modules.where([&](Module& m) { return m.context == &context; }))
    all.modules.remove(module.get());
  for (const auto& function : all.functions.where([&](Function& f) { return f.module->context == &context; }))
    all.functions.remove(function.get());
  all.memory.reset(context.device);
  context.clear();
}

struct ErrorName {
  CUresult error;
  const char *name, *text;
};
#define WEFT_ERROR(name, text) {name, #name, text}
const ErrorName kErrors[] = {
    WEFT_ERROR(CUDA_SUCCESS, "no error"),
    WEFT_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    WEFT_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    WEFT_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    WEFT_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    WEFT_ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    WEFT_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    WEFT_ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    WEFT_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    WEFT_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    WEFT_ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    WEFT_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    WEFT_ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    WEFT_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "host memory is already registered"),
    WEFT_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "host memory is not registered"),
    WEFT_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    WEFT_ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    WEFT_ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
};
#undef WEFT_ERROR

const ErrorName* named(CUresult error) {
  const auto it = std::find_if(std::begin(kErrors), std::end(kErrors),
                               [&](const ErrorName& known) { return known.error == error; });
  return it == std::end(kErrors) ? nullptr : it;
}

}  // namespace
}  // namespace standin

using namespace standin;

WEFT_DRIVER cuInit(unsigned flags) {
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  static std::mutex mutex;
  static bool forked = false;
  std::lock_guard guard(mutex);
  if (forked) return CUDA_ERROR_NOT_INITIALIZED;
  catch_faults();
  if (the_driver) return CUDA_SUCCESS;
  const auto devices = static_cast<int>(std::min<std::uint64_t>(number_of("WEFT_STANDIN_DEVICES", 2), 64));
  const std::size_t bytes = number_of("WEFT_STANDIN_MIB", 4096) << 20;
  the_driver = new Driver(devices, bytes, number_of("WEFT_TEST_SEED", 0));
  pthread_atfork(nullptr, nullptr, [] {
    the_driver = nullptr;
    forked = true;
  });
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuDriverGetVersion(int* version) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = 13000;
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuGetErrorName(CUresult error, const char** text) {
  const ErrorName* known = named(error);
  *text = known ? known->name : nullptr;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

WEFT_DRIVER cuGetErrorString(CUresult error, const char** text) {
  const ErrorName* known = named(error);
  *text = known ? known->text : nullptr;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Devices.

WEFT_DRIVER cuDeviceGetCount(int* count) {
  WEFT_TRY(check_ready());
  *count = static_cast<int>(driver()->contexts.size());
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuDeviceGet(CUdevice* device, int ordinal) {
  WEFT_TRY(check_device(ordinal));
  *device = ordinal;
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuDeviceGetName(char* name, int bytes, CUdevice device) {
  WEFT_TRY(check_device(device));
  if (bytes > 0) {
    std::strncpy(name, "stand-in", static_cast<std::size_t>(bytes));
    name[bytes - 1] = 0;
  }
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  WEFT_TRY(check_device(device));
  std::memset(uuid, 0, sizeof *uuid);
  std::memcpy(uuid->bytes, "stand-in", 8);
  uuid->bytes[15] = static_cast<unsigned char>(device);
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  WEFT_TRY(check_device(device));
  std::size_t free = 0;
  driver()->memory.info(device, &free, bytes);
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  WEFT_TRY(check_device(device));
  static const std::map<int, int> values = {
      {1, 1024},        // threads of a block
      {2, 1024},        // x
      {3, 1024},        // y
      {4, 64},          // z
      {5, 2147483647},  // blocks of a grid, x
      {6, 65535},       // y
      {7, 65535},       // z
      {8, 48 << 10},    // shared memory of a block
      {10, 32},         // warp
      {12, 65536},      // registers of a block
      {13, 1000000},    // kHz
      {16, 4},          // multiprocessors
      {33, 0},          // PCI bus
      {34, 0},          // PCI device
      {38, 1 << 20},    // bytes of the second-level cache
      {39, 2048},       // threads of a multiprocessor
      {41, 1},          // one address space for host and devices
      {50, 0},          // PCI domain
      {75, 9},          // compute capability
      {76, 0},
      {81, 228 << 10},                      // shared memory of a multiprocessor
      {82, 65536},                          // registers of a multiprocessor
      {92, 1},                              // values in memory by streams, first version of them
      {93, 1},                              // of 64 bits
      {97, static_cast<int>(kMostShared)},  // shared memory of a block, if asked for
      {102, 1},                             // virtual memory management
      {115, 0},                             // memory pools
      {122, 1},                             // values of 64 bits in memory by streams
      {123, 1},                             // waits for "none of these bits"
  };
  const auto it = values.find(attribute);
  if (it == values.end()) return CUDA_ERROR_INVALID_VALUE;
  *value = it->second;
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  WEFT_TRY(check_device(device));
  WEFT_TRY(check_device(peer));
  *can = device != peer;
  return CUDA_SUCCESS;
}

// Contexts.

WEFT_DRIVER cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  WEFT_TRY(check_device(device));
  std::lock_guard guard(driver()->mutex);
  Context* own = driver()->contexts[static_cast<std::size_t>(device)].get();
  ++own->retained;
  *context = reinterpret_cast<CUcontext>(own);
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuDevicePrimaryCtxReset_v2(CUdevice device) {
  WEFT_TRY(check_device(device));
  std::lock_guard guard(driver()->mutex);
  reset(*driver()->contexts[static_cast<std::size_t>(device)]);
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  WEFT_TRY(check_device(device));
  std::lock_guard guard(driver()->mutex);
  Context& own = *driver()->contexts[static_cast<std::size_t>(device)];
  if (!own.retained) return CUDA_ERROR_INVALID_CONTEXT;
  if (--own.retained == 0) reset(own);
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  WEFT_TRY(check_device(device));
  std::lock_guard guard(driver()->mutex);
  *flags = 0;
  *active = driver()->contexts[static_cast<std::size_t>(device)]->retained > 0;
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuCtxSetCurrent(CUcontext context) {
  WEFT_TRY(check_ready());
  auto* own = reinterpret_cast<Context*>(context);
  const auto& all = driver()->contexts;
  const bool known = std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.get() == own; });
  if (own && !known) return CUDA_ERROR_INVALID_CONTEXT;
  depth = own ? std::max(depth, 1) : 0;
  if (own) current[depth - 1] = own;
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuCtxGetCurrent(CUcontext* context) {
  WEFT_TRY(check_ready());
  *context = reinterpret_cast<CUcontext>(current_context());
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuCtxPushCurrent_v2(CUcontext context) {
  WEFT_TRY(check_ready());
  if (!context || depth == static_cast<int>(std::size(current))) return CUDA_ERROR_INVALID_CONTEXT;
  current[depth++] = reinterpret_cast<Context*>(context);
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuCtxPopCurrent_v2(CUcontext* context) {
  WEFT_TRY(check_ready());
  if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
  if (context) *context = reinterpret_cast<CUcontext>(current_context());
  --depth;
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuCtxGetDevice(CUdevice* device) {
  WEFT_TRY(check_ready());
  const Context* own = current_context();
  if (!own) return CUDA_ERROR_INVALID_CONTEXT;
  *device = own->device;
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  Context* context = nullptr;
  WEFT_TRY(check_context(&context));
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuCtxSynchronize() {
  Context* context = nullptr;
  WEFT_TRY(check_context(&context));
  for (const auto& stream : driver()->streams.where([&](Stream& s) { return &s.context() == context; }))
    stream->wait();
  return context->error();
}

WEFT_DRIVER cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  Context* context = nullptr;
  WEFT_TRY(check_context(&context));
  if (flags || !peer) return CUDA_ERROR_INVALID_VALUE;
  driver()->memory.enable_peer(context->device, reinterpret_cast<Context*>(peer)->device);
  return CUDA_SUCCESS;
}

// Modules and launches.

WEFT_DRIVER cuModuleLoadDataEx(CUmodule* handle, const void* image, unsigned count, int* options,
                               void** values) {
  Context* context = nullptr;
  WEFT_TRY(check_context(&context));
  if (!handle || !image) return CUDA_ERROR_INVALID_VALUE;
  catch_faults();  // again: others may have put handlers of their own in place
  CUresult result = CUDA_SUCCESS;
  std::string error;
  std::unique_ptr<Image> loaded = Image::load(image, &result, &error);
  constexpr int kErrorLog = 5, kErrorLogBytes = 6;
  char* log = nullptr;
  std::size_t log_bytes = 0;
  for (unsigned k = 0; k < count; ++k) {
    if (options[k] == kErrorLog) log = static_cast<char*>(values[k]);
    if (options[k] == kErrorLogBytes) log_bytes = reinterpret_cast<std::size_t>(values[k]);
  }
  if (log && log_bytes) {
    std::strncpy(log, error.c_str(), log_bytes);
    log[log_bytes - 1] = 0;
  }
  if (!loaded) return result;
  auto module = std::make_shared<Module>();
  module->image = std::move(loaded);
  module->context = context;
  *handle = reinterpret_cast<CUmodule>(driver()->modules.add(std::move(module)));
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuModuleLoadData(CUmodule* handle, const void* image) {
  return cuModuleLoadDataEx(handle, image, 0, nullptr, nullptr);
}

WEFT_DRIVER cuModuleUnload(CUmodule handle) {
  Context* context = nullptr;
  WEFT_TRY(check_context(&context));
  const auto module = driver()->modules.remove(handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto& function : driver()->functions.where([&](Function& f) { return f.module == module; }))
    driver()->functions.remove(function.get());
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuModuleGetFunction(CUfunction* handle, CUmodule module_handle, const char* name) {
  Context* context = nullptr;
  WEFT_TRY(check_context(&context));
  auto module = driver()->modules.find(module_handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  KernelFunction* kernel = module->image->find(name);
  if (!kernel) return CUDA_ERROR_NOT_FOUND;
  auto function = std::make_shared<Function>(Function{std::move(module), kernel});
  *handle = reinterpret_cast<CUfunction>(driver()->functions.add(std::move(function)));
  return CUDA_SUCCESS;
}

WEFT_DRIVER cuFuncSetAttribute(CUfunction handle, int attribute, int value) {
  Context* context = nullptr;
  WEFT_TRY(check_context(&context));
  const auto function = driver()->functions.find(handle);
  constexpr int kMostDynamicShared = 8;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute != kMostDynamicShared || value < 0 || static_cast<std::size_t>(value) > kMostShared)
    return CUDA_ERROR_INVALID_VALUE;
  function->kernel->most_shared_bytes = static_cast<std::size_t>(value);
  return CUDA_SUCCESS;
}

namespace {

// The arguments as one block: from `extra` (buffer, size), else from the only one of `parameters`.
CUresult arguments_of(const KernelFunction& kernel, void** parameters, void** extra,
                      std::vector<char>* arguments) {
  const char* from = nullptr;
  std::size_t bytes = kernel.argument_bytes;
  if (extra) {
    constexpr std::uintptr_t kEnd = 0, kBuffer = 1, kSize = 2;
    for (std::size_t k = 0; reinterpret_cast<std::uintptr_t>(extra[k]) != kEnd; k += 2) {
      const auto what = reinterpret_cast<std::uintptr_t>(extra[k]);
      if (what == kBuffer) from = static_cast<const char*>(extra[k + 1]);
      if (what == kSize) bytes = *static_cast<const std::size_t*>(extra[k + 1]);
    }
  } else if (parameters) {
    from = static_cast<const char*>(parameters[0]);
  }
  constexpr std::size_t kMost = 4096;
  if ((!from && bytes) || bytes > kMost) return CUDA_ERROR_INVALID_VALUE;
  if (kernel.argument_bytes && bytes != kernel.argument_bytes) return CUDA_ERROR_INVALID_VALUE;
  arguments->assign(from, from + bytes);
  return CUDA_SUCCESS;
}

}  // namespace

WEFT_DRIVER cuLaunchKernel(CUfunction handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                           unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                           CUstream stream_handle, void** parameters, void** extra) {
  std::shared_ptr<Stream> stream;
  WEFT_TRY(check_stream(stream_handle, &stream));
  auto function = driver()->functions.find(handle);
  if (!function || function->module->context != &stream->context()) return CUDA_ERROR_INVALID_HANDLE;
  if (grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1) return CUDA_ERROR_NOT_SUPPORTED;
  const KernelFunction& kernel = *function->kernel;
  if (!grid_x || grid_x > 0x7fffffff || !block_x || block_x > kMostThreads ||
      (kernel.threads && block_x != kernel.threads) || shared_bytes > kernel.most_shared_bytes)
    return CUDA_ERROR_INVALID_VALUE;
  auto launch = std::make_shared<Launch>(Launch{
      kernel.name, kernel.code, kernel.yields, {}, grid_x, block_x, shared_bytes, stream->context().device});
  WEFT_TRY(arguments_of(kernel, parameters, extra, &launch->arguments));
  ++driver()->counters.launches;
  stream->push(
      [launch, function](Processor& processor, Random& random) { return processor.run(*launch, random); });
  return CUDA_SUCCESS;
}

// For tests.

// What went wrong on a device, with the kernel's name; empty if nothing. The text is the calling thread's.
extern "C" __attribute__((visibility("default"))) const char* weft_standin_fault(int device) {
  static thread_local std::string* text = new std::string;
  text->clear();
  if (driver() && device >= 0 && device < static_cast<int>(driver()->contexts.size()))
    *text = driver()->contexts[static_cast<std::size_t>(device)]->text();
  return text->c_str();
}

// The numbers of launches, copies and waits between streams of the process.
extern "C" __attribute__((visibility("default"))) void weft_standin_counts(std::uint64_t* launches,
                                                                           std::uint64_t* copies,
                                                                           std::uint64_t* waits) {
  const Counters& counters = driver()->counters;
  *launches = counters.launches, *copies = counters.copies, *waits = counters.waits;
}

// The wait between streams of this number (the first one of the process is 1) will do nothing; 0: all wait.
extern "C" __attribute__((visibility("default"))) void weft_standin_skip_wait(std::uint64_t number) {
  driver()->counters.skipped_wait = number;
}

// Another seed than WEFT_TEST_SEED, for the streams that are made from now on.
extern "C" __attribute__((visibility("default"))) void weft_standin_seed(std::uint64_t seed) {
  driver()->seed = seed;
}
