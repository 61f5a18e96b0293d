#include "program/step_log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <mutex>
#include <utility>

namespace weft {
namespace {

struct Spans {
  std::mutex mutex;
  std::vector<StepLog::Span> all;  // of the open log
};

Spans& spans() {
  static Spans& made = *new Spans;  // threads may still run steps when the process ends
  return made;
}

}  // namespace

bool StepLog::open() {
  const std::lock_guard lock(spans().mutex);
  return !open_.exchange(true);
}

std::vector<StepLog::Span> StepLog::close() {
  const std::lock_guard lock(spans().mutex);
  open_ = false;
  return std::exchange(spans().all, {});
}

int64_t StepLog::bytes_of(const View& x) noexcept {
  auto bytes = static_cast<int64_t>(size_of(x.dtype));
  for (int d = 0; d < x.ndim; ++d)
    if (x.strides[d] != 0 || x.shape[d] == 0) bytes *= x.shape[d];
  return bytes;
}

void StepLog::add(Span span) {
  thread_local const int64_t thread = syscall(SYS_gettid);
  span.thread = thread;
  const std::lock_guard lock(spans().mutex);
  if (is_open()) spans().all.push_back(std::move(span));
}

}  // namespace weft
