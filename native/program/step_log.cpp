#include "program/step_log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/engine.h"

namespace weft {
namespace {

struct Spans {
  ForkMutex mutex;
  StepLog::Closed all;                                // of the open log
  std::unordered_map<std::string, uint32_t> numbers;  // of shapes, by their bytes
};

Spans& spans() {
  static Spans& log = *new Spans;  // threads may still run steps when the process ends
  return log;
}
[[maybe_unused]] const Spans& kAtLoad = spans();

}  // namespace

bool StepLog::open() {
  const std::lock_guard lock(spans().mutex);
  return !open_.exchange(true);
}

StepLog::Closed StepLog::close() {
  const std::lock_guard lock(spans().mutex);
  open_ = false;
  spans().numbers.clear();
  return std::exchange(spans().all, {});
}

void StepLog::add(Span span, const Shapes& shapes) {
  thread_local const int64_t thread = syscall(SYS_gettid);
  span.thread = thread;
  const Running* const here = context().running;
  if (here && here->op) span.operation = here->op->trace_id;
  Spans& log = spans();
  const std::lock_guard lock(log.mutex);
  if (!is_open()) return;
  if (log.all.spans.size() == kMost) {
    ++log.all.dropped;
    return;
  }
  const std::string key(reinterpret_cast<const char*>(shapes.numbers),
                        static_cast<size_t>(shapes.count) * sizeof(int64_t));
  const auto [it, is_new] = log.numbers.try_emplace(key, static_cast<uint32_t>(log.all.shapes.size()));
  if (is_new) log.all.shapes.emplace_back(shapes.numbers, shapes.numbers + shapes.count);
  span.shapes = it->second;
  log.all.spans.push_back(std::move(span));
}

}  // namespace weft
