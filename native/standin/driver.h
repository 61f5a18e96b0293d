// What the files of the driver's functions share: the state of the process, and what every call checks first.
#pragma once

#include "standin/image.h"
#include "standin/streams.h"

#define WEFT_DRIVER extern "C" __attribute__((visibility("default"))) CUresult

// The start of a function: ends it with the result of an expression that is not success.
#define WEFT_TRY(expression)                                                                        \
  do {                                                                                              \
    if (const CUresult weft_result = (expression); weft_result != CUDA_SUCCESS) return weft_result; \
  } while (false)

namespace standin {

struct Module {
  std::unique_ptr<Image> image;
  Context* context;
};

struct Function {
  std::shared_ptr<Module> module;
  KernelFunction* kernel;
};

// What happens on the devices, for tests.
struct Counters {
  std::atomic<std::uint64_t> launches{0}, copies{0}, waits{0};
  std::atomic<std::uint64_t> skipped_wait{
      0};  // the number of the wait between streams that does nothing; 0: none
};

// The process's devices: made by cuInit, and never destroyed, since streams may run until the process ends.
struct Driver {
  Driver(int devices, std::size_t bytes, std::uint64_t seed);

  Memory memory;
  std::vector<std::unique_ptr<Context>> contexts;
  std::atomic<std::uint64_t> seed;  // of streams that are made from now on
  std::mutex mutex;
  std::uint64_t streams_made = 0;
  Handles<Stream> streams;
  Handles<Event> events;
  Handles<Module> modules;
  Handles<Function> functions;
  Counters counters;
};

// Null before cuInit, and in a forked child, where the streams' threads are not.
Driver* driver();

// CUDA_ERROR_NOT_INITIALIZED before cuInit; CUDA_ERROR_NOT_PERMITTED in a function of cuLaunchHostFunc.
CUresult check_ready();
// The same, and there has to be a current context without an error.
CUresult check_context(Context** context);
// The same, and the stream has to belong to it.
CUresult check_stream(CUstream handle, std::shared_ptr<Stream>* stream);
CUresult check_device(CUdevice device);

// Marks the thread while it runs a function of cuLaunchHostFunc.
class InHostFunction {
 public:
  InHostFunction();
  ~InHostFunction();
};

}  // namespace standin
