#include "calls/recording.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "engine/context.h"
#include "storage/runtime.h"
#include "tensor/dtype.h"

namespace weft {
namespace {

int64_t now() noexcept {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

uint32_t this_thread() noexcept {
  thread_local const auto thread = static_cast<uint32_t>(syscall(SYS_gettid));
  return thread;
}

uint64_t key_of(const Observer::Event& e, uint32_t engine) noexcept {
  return uint64_t{engine} << 48 | e.op->trace_id;
}

void add_steps(const StepLog::Closed& steps, Recording& to) {
  std::unordered_map<const Program*, uint32_t> numbers;
  to.steps.reserve(steps.spans.size());
  for (const StepLog::Span& span : steps.spans) {
    const Program::Step& step = span.program->steps[span.step];
    const auto [it, is_new] = numbers.try_emplace(span.program.get(), static_cast<uint32_t>(numbers.size()));
    if (is_new) to.programs.push_back(span.program->name);
    to.steps.push_back({span.start_ns, span.end_ns, span.bytes, span.operation, span.program->serial,
                        static_cast<uint32_t>(span.step), to.step_names.number(step.name),
                        step.where.empty() ? 0 : to.step_names.number(step.where),
                        static_cast<uint32_t>(span.thread), span.shapes, it->second});
  }
  to.step_shapes = steps.shapes;
  to.dropped += steps.dropped;
}

}  // namespace

class Recorder::Watcher final : public Observer {
 public:
  Watcher(Recorder& recorder, uint32_t engine) : recorder_(recorder), engine_(engine) {}
  void on_push(const Event& e) override { recorder_.pushed(e, engine_); }
  void on_start(const Event& e) override { recorder_.started(e, engine_); }
  void on_end(const Event& e) override { recorder_.ended(e, engine_); }
  void on_wait(std::chrono::steady_clock::time_point start) override { recorder_.waited(start); }

 private:
  Recorder& recorder_;
  const uint32_t engine_;
};

Recorder::Recorder() {
  after_fork([](bool in_child) {
    if (!in_child) return;
    Pool::watch.store(nullptr, std::memory_order_release);  // the child's work is not written down
    get().is_open_ = false;
  });
}

Recorder& Recorder::get() {
  static auto* const recorder = new Recorder;  // for the whole process
  return *recorder;
}

bool Recorder::open(const std::vector<std::shared_ptr<Engine>>& engines, bool memory, size_t limit) {
  {
    const std::lock_guard lock(mutex_);
    if (is_open_ || !StepLog::open()) return false;
    is_open_ = true;
    limit_ = limit;
    data_ = {};
    pending_.clear();
    site_numbers_.clear();
    for (size_t k = 0; k < engines.size(); ++k)
      watchers_.push_back({engines[k], std::make_shared<Watcher>(*this, static_cast<uint32_t>(k))});
  }
  for (const auto& [engine, watcher] : watchers_) engine->add_observer(watcher);
  streams_.open(limit);
  if (!memory) return true;
  // Watched first: what is allocated in between is reported twice, and recognized by its address and time.
  Pool::watch.store(this, std::memory_order_release);
  std::vector<MemoryEvent> held;
  for (const Device device : Runtime::get().used_devices()) {
    for (const auto& [memory_held, bytes] : Runtime::get().pool(device).live_blocks()) {
      MemoryEvent event{};
      event.address = reinterpret_cast<uint64_t>(memory_held);
      event.bytes = bytes;
      event.device = static_cast<int16_t>(device.index);
      held.push_back(event);
    }
    const int64_t time = now();
    for (MemoryEvent& event : held)
      if (!event.time) event.time = time;
  }
  const std::lock_guard lock(mutex_);
  data_.held = std::move(held);
  return true;
}

std::optional<Recording> Recorder::close() {
  std::vector<Watched> watchers;
  {
    const std::lock_guard lock(mutex_);
    if (!is_open_) return std::nullopt;
    watchers.swap(watchers_);
  }
  Pool::watch.store(nullptr, std::memory_order_release);
  for (const auto& [engine, watcher] : watchers) engine->remove_observer(watcher.get());
  const StepLog::Closed steps = StepLog::close();
  uint64_t dropped = 0;
  const std::vector<StreamSpan> spans = streams_.close(dropped);
  Recording data;
  {
    const std::lock_guard lock(mutex_);
    is_open_ = false;
    data = std::exchange(data_, {});
  }
  add_steps(steps, data);
  add_streams(spans, watchers, data);
  data.dropped += dropped;
  return data;
}

std::optional<Recording> Recorder::peek() {
  const std::vector<StreamSpan> spans = streams_.peek();
  const std::lock_guard lock(mutex_);
  if (!is_open_) return std::nullopt;
  Recording data = data_;
  add_streams(spans, watchers_, data);
  return data;
}

void Recorder::add_streams(const std::vector<StreamSpan>& spans, const std::vector<Watched>& watchers,
                           Recording& to) const {
  if (spans.empty()) return;
  std::unordered_map<uint64_t, int64_t> rows;
  for (size_t k = 0; k < to.operations.size(); ++k)
    rows[uint64_t{to.operations[k].engine} << 48 | to.operations[k].id] = static_cast<int64_t>(k);
  for (const StreamSpan& span : spans) {
    const auto is_its = [&](const Watched& watched) { return watched.engine.get() == span.engine; };
    const auto engine = std::ranges::find_if(watchers, is_its);
    int64_t row = -1;
    if (span.operation && engine != watchers.end()) {
      const auto it = rows.find(static_cast<uint64_t>(engine - watchers.begin()) << 48 | span.operation);
      if (it != rows.end()) row = it->second;
    }
    to.streams.push_back({span.start, span.end, row, static_cast<uint32_t>(span.stream), 0});
    if (std::ranges::find(to.stream_names, span.stream, &std::pair<int, std::string>::first) ==
        to.stream_names.end())
      to.stream_names.emplace_back(span.stream, backend_of_stream(span.stream).stream_name(span.stream));
  }
}

void Recorder::allocated(const Pool& pool, const void* memory, size_t bytes) noexcept {
  MemoryEvent event{};
  event.bytes = bytes;
  add(event, pool, memory);
}
void Recorder::released(const Pool& pool, const void* memory) noexcept {
  MemoryEvent event{};
  event.is_release = 1;
  add(event, pool, memory);
}

// Under mutex_. A new site is stored, so its code object stays alive and no other one gets its address.
uint32_t Recorder::number_of(Site&& site) {
  if (!site.code()) return 0;
  const auto [it, is_new] = site_numbers_.try_emplace({site.code(), site.instruction()},
                                                      static_cast<uint32_t>(data_.sites.size() + 1));
  if (is_new) data_.sites.push_back(std::make_shared<const Site>(std::move(site)));
  return it->second;
}

bool Recorder::has_room() {
  if (data_.events() < limit_) return true;
  ++data_.dropped;
  return false;
}

void Recorder::pushed(const Observer::Event& e, uint32_t engine) {
  const int64_t time = now();
  const std::string name = e.op->name();
  Site site = Site::here_if_locked();
  const std::lock_guard lock(mutex_);
  if (!is_open_ || !has_room()) return;
  OperationEvent event{};
  event.id = e.op->trace_id;
  event.pushed = time;
  event.name = data_.names.number(name);
  event.site = number_of(std::move(site));
  event.context = context().module;
  event.push_thread = this_thread();
  event.queue = static_cast<uint8_t>(e.queue);
  event.device = static_cast<int16_t>(e.device.index);
  event.engine = engine;
  pending_[key_of(e, engine)] = data_.operations.size();
  data_.operations.push_back(event);
}

void Recorder::started(const Observer::Event& e, uint32_t engine) {
  const std::lock_guard lock(mutex_);
  const auto it = pending_.find(key_of(e, engine));
  if (!is_open_ || it == pending_.end()) return;
  OperationEvent& event = data_.operations[it->second];
  event.run_thread = this_thread();
  event.queue = static_cast<uint8_t>(e.queue);
  event.worker = static_cast<int8_t>(e.worker);
  event.device = static_cast<int16_t>(e.device.index);
  event.started = now();
}

void Recorder::ended(const Observer::Event& e, uint32_t engine) {
  const int64_t time = now();
  const std::lock_guard lock(mutex_);
  const auto it = pending_.find(key_of(e, engine));
  if (!is_open_ || it == pending_.end()) return;
  OperationEvent& event = data_.operations[it->second];
  event.ended = time;
  event.failed = e.error != nullptr;
  pending_.erase(it);
}

void Recorder::waited(std::chrono::steady_clock::time_point start) {
  WaitEvent event{};
  event.end = now();
  event.start = start.time_since_epoch() / std::chrono::nanoseconds(1);
  Site site = Site::here_if_locked();
  const std::lock_guard lock(mutex_);
  if (!is_open_ || !has_room()) return;
  event.site = number_of(std::move(site));
  event.context = context().module;
  event.thread = this_thread();
  data_.waits.push_back(event);
}

void Recorder::add(MemoryEvent event, const Pool& pool, const void* memory) noexcept {
  try {
    event.time = now();
    event.address = reinterpret_cast<uint64_t>(memory);
    if (const Running* here = context().running; here && here->op) event.operation = here->op->trace_id;
    Site site = event.is_release ? Site{} : Site::here_if_locked();
    std::string shape;
    if (!event.is_release && purpose.shape) {
      shape = short_name(static_cast<DType>(purpose.dtype));
      shape += '[';
      for (int d = 0; d < purpose.ndim; ++d) {
        if (d) shape += ',';
        shape += std::to_string(purpose.shape[d]);
      }
      shape += ']';
    }
    const size_t colon = pool.name().find(':');
    event.device = static_cast<int16_t>(std::stoi(pool.name().substr(colon + 1)));
    const std::lock_guard lock(mutex_);
    if (!is_open_ || !has_room()) return;
    event.site = number_of(std::move(site));
    event.context = context().module;
    event.thread = this_thread();
    event.shape = shape.empty() ? 0 : data_.shapes.number(shape);
    data_.memory.push_back(event);
  } catch (...) {  // no memory for the record: it has a gap
    const std::lock_guard lock(mutex_);
    ++data_.dropped;
  }
}

}  // namespace weft
