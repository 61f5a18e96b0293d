// recorder.cpp: everything that the process's work consists of, written down for the profiler while it is
// open: operations of engines, memory that comes and goes, waits, and steps of programs.
//
// One Recorder, made at the first use and never destroyed: the pool may call it after it was closed. `mutex_`
// guards all of it; nothing is called under it. Lines of code are kept as code objects and turned into text
// when it is closed. A thread that does not hold the GIL has no line.
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <unordered_map>

#include "bindings/functions.h"
#include "bindings/program.h"
#include "bindings/tape.h"
#include "program/step_log.h"
#include "storage/runtime.h"

namespace weft {
namespace {

// What weft/tools/recording.py reads, byte for byte. Times are nanoseconds of Python's time.perf_counter.
struct OperationEvent {
  uint64_t id;
  int64_t pushed, started, ended;  // started, ended: 0 if that has not happened
  uint32_t name, site, context, push_thread, run_thread;
  uint8_t queue;
  int8_t worker;
  int16_t device;
  uint32_t failed, engine;
};
static_assert(sizeof(OperationEvent) == 64);
struct MemoryEvent {
  int64_t time;
  uint64_t address, bytes, operation;
  uint32_t site, context, thread, shape;
  int16_t device;
  uint16_t is_release;
  uint32_t unused;
};
static_assert(sizeof(MemoryEvent) == 56);
struct WaitEvent {
  int64_t start, end;
  uint32_t site, context, thread, unused;
};
static_assert(sizeof(WaitEvent) == 32);
struct StepEvent {
  int64_t start, end, bytes;
  uint64_t operation;
  int64_t serial;
  uint32_t step, name, where, thread, shapes, program;
};
static_assert(sizeof(StepEvent) == 64);

int64_t now() noexcept {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

uint32_t this_thread() noexcept {
  thread_local const auto thread = static_cast<uint32_t>(syscall(SYS_gettid));
  return thread;
}

// Texts by number, from 1 on; 0 is none.
class Names {
 public:
  uint32_t number(const std::string& text) {
    const auto [found, is_new] = numbers_.try_emplace(text, static_cast<uint32_t>(texts_.size() + 1));
    if (is_new) texts_.push_back(text);
    return found->second;
  }
  const std::vector<std::string>& texts() const noexcept { return texts_; }

 private:
  std::unordered_map<std::string, uint32_t> numbers_;
  std::vector<std::string> texts_;
};

class Recorder final : public PoolWatch {
 public:
  Recorder() {
    pthread_atfork([] { get().mutex_.lock(); }, [] { get().mutex_.unlock(); },
                   [] {  // the child's work is not written down
                     Pool::watch.store(nullptr, std::memory_order_release);
                     get().is_open_ = false;
                     get().mutex_.unlock();
                   });
  }
  static Recorder& get() {
    static auto* const made = new Recorder;  // for the whole process
    return *made;
  }
  // False if it is open.
  bool open(const std::vector<std::shared_ptr<Engine>>& engines, bool memory, size_t limit) {
    {
      const std::lock_guard lock(mutex_);
      if (is_open_ || !StepLog::open()) return false;
      is_open_ = true;
      limit_ = limit;
      data_ = {};
      for (size_t k = 0; k < engines.size(); ++k)
        watchers_.push_back({engines[k], std::make_shared<Watcher>(*this, static_cast<uint32_t>(k))});
    }
    for (const auto& [engine, watcher] : watchers_) engine->add_observer(watcher);
    if (memory) {
      // Watched first: what is allocated in between is told twice, and known by its address and time.
      Pool::watch.store(this, std::memory_order_release);
      std::vector<MemoryEvent> held;
      for (int k = 0; k < Runtime::get().used_devices(); ++k) {
        for (const auto& [memory_held, bytes] : Runtime::get().pool({DeviceKind::cpu, k}).live_blocks()) {
          MemoryEvent event{};
          event.address = reinterpret_cast<uint64_t>(memory_held);
          event.bytes = bytes;
          event.device = static_cast<int16_t>(k);
          held.push_back(event);
        }
        const int64_t time = now();
        for (MemoryEvent& event : held)
          if (!event.time) event.time = time;
      }
      const std::lock_guard lock(mutex_);
      data_.held = std::move(held);
    }
    return true;
  }

  nb::object close() {
    std::vector<Watched> watchers;
    {
      const std::lock_guard lock(mutex_);
      if (!is_open_) return nb::none();
      watchers.swap(watchers_);
    }
    Pool::watch.store(nullptr, std::memory_order_release);
    for (const auto& [engine, watcher] : watchers) engine->remove_observer(watcher.get());
    const StepLog::Closed steps = StepLog::close();
    Data data;
    {
      const std::lock_guard lock(mutex_);
      is_open_ = false;
      data = std::move(data_);
      data_ = {};
    }
    return as_python(data, steps);
  }

  // What has been written down of operations, memory and waits; the record goes on.
  nb::object peek() {
    Data data;
    {
      const std::lock_guard lock(mutex_);
      if (!is_open_) return nb::none();
      data = data_;
      for (const Place& place : data.places) Py_INCREF(place.code);
    }
    return as_python(data, {});
  }

  void allocated(const Pool& pool, const void* memory, size_t bytes) noexcept override {
    MemoryEvent event{};
    event.bytes = bytes;
    add(event, pool, memory);
  }
  void released(const Pool& pool, const void* memory) noexcept override {
    MemoryEvent event{};
    event.is_release = 1;
    add(event, pool, memory);
  }

 private:
  struct Place {
    PyObject* code;
    int instruction;
    bool operator==(const Place&) const = default;
  };
  struct PlaceHash {
    size_t operator()(const Place& p) const noexcept {
      return reinterpret_cast<size_t>(p.code) * 31 + static_cast<size_t>(p.instruction);
    }
  };
  struct Data {
    std::vector<OperationEvent> operations;
    std::unordered_map<uint64_t, size_t> pending;  // by the engine's number and the operation's id
    std::vector<MemoryEvent> memory, held;         // held: what was there before
    std::vector<WaitEvent> waits;
    Names names, shapes;
    std::unordered_map<Place, uint32_t, PlaceHash> sites;
    std::vector<Place> places;
    uint64_t dropped = 0;
    size_t events() const noexcept { return operations.size() + memory.size() + waits.size(); }
  };

  class Watcher final : public Observer {
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
  struct Watched {
    std::shared_ptr<Engine> engine;
    std::shared_ptr<Watcher> watcher;
  };

  static Site here() noexcept {
    if (!holds_gil_here() || python_is_ending()) return {};
    try {
      return Site::here();
    } catch (...) {
      return {};
    }
  }

  // Under mutex_. A code object that is met first gets a reference, which is given back when the text is
  // known.
  uint32_t number_of(const Site& site) {
    const Place place{site.code(), site.instruction()};
    if (!place.code) return 0;
    const auto [found, is_new] =
        data_.sites.try_emplace(place, static_cast<uint32_t>(data_.places.size() + 1));
    if (is_new) {
      Py_INCREF(place.code);
      data_.places.push_back(place);
    }
    return found->second;
  }

  bool has_room() {
    if (data_.events() < limit_) return true;
    ++data_.dropped;
    return false;
  }

  static uint64_t key(const Observer::Event& e, uint32_t engine) noexcept {
    return uint64_t{engine} << 48 | e.op->trace_id;
  }

  void pushed(const Observer::Event& e, uint32_t engine) {
    const int64_t time = now();
    const std::string name = e.op->name();
    const Site site = here();
    const std::lock_guard lock(mutex_);
    if (!is_open_ || !has_room()) return;
    OperationEvent event{};
    event.id = e.op->trace_id;
    event.pushed = time;
    event.name = data_.names.number(name);
    event.site = number_of(site);
    event.context = context().module;
    event.push_thread = this_thread();
    event.queue = static_cast<uint8_t>(e.queue);
    event.device = static_cast<int16_t>(e.device.index);
    event.engine = engine;
    data_.pending[key(e, engine)] = data_.operations.size();
    data_.operations.push_back(event);
  }
  void started(const Observer::Event& e, uint32_t engine) {
    const std::lock_guard lock(mutex_);
    const auto found = data_.pending.find(key(e, engine));
    if (!is_open_ || found == data_.pending.end()) return;
    OperationEvent& event = data_.operations[found->second];
    event.run_thread = this_thread();
    event.queue = static_cast<uint8_t>(e.queue);
    event.worker = static_cast<int8_t>(e.worker);
    event.device = static_cast<int16_t>(e.device.index);
    event.started = now();
  }
  void ended(const Observer::Event& e, uint32_t engine) {
    const int64_t time = now();
    const std::lock_guard lock(mutex_);
    const auto found = data_.pending.find(key(e, engine));
    if (!is_open_ || found == data_.pending.end()) return;
    OperationEvent& event = data_.operations[found->second];
    event.ended = time;
    event.failed = e.error != nullptr;
    data_.pending.erase(found);
  }
  void waited(std::chrono::steady_clock::time_point start) {
    WaitEvent event{};
    event.end = now();
    event.start = start.time_since_epoch() / std::chrono::nanoseconds(1);
    const Site site = here();
    const std::lock_guard lock(mutex_);
    if (!is_open_ || !has_room()) return;
    event.site = number_of(site);
    event.context = context().module;
    event.thread = this_thread();
    data_.waits.push_back(event);
  }
  void add(MemoryEvent event, const Pool& pool, const void* memory) noexcept {
    try {
      event.time = now();
      event.address = reinterpret_cast<uint64_t>(memory);
      if (running_here && running_here->op) event.operation = running_here->op->trace_id;
      const Site site = event.is_release ? Site{} : here();
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
      event.site = number_of(site);
      event.context = context().module;
      event.thread = this_thread();
      event.shape = shape.empty() ? 0 : data_.shapes.number(shape);
      data_.memory.push_back(event);
    } catch (...) {  // no memory for the record: it has a gap
      const std::lock_guard lock(mutex_);
      ++data_.dropped;
    }
  }

  template <class T>
  static nb::bytes bytes_of(const std::vector<T>& events) {
    return nb::bytes(reinterpret_cast<const char*>(events.data()), events.size() * sizeof(T));
  }

  static nb::object as_python(Data& data, const StepLog::Closed& steps) {
    nb::list names, sites, shapes, step_shapes, programs;
    Names step_names;
    std::unordered_map<const Program*, uint32_t> program_numbers;
    std::vector<StepEvent> step_events;
    step_events.reserve(steps.spans.size());
    for (const StepLog::Span& span : steps.spans) {
      const Program::Step& step = span.program->steps[span.step];
      const auto [found, is_new] =
          program_numbers.try_emplace(span.program.get(), static_cast<uint32_t>(program_numbers.size()));
      if (is_new) programs.append(from_utf8(span.program->name));
      step_events.push_back({span.start_ns, span.end_ns, span.bytes, span.operation, span.program->serial,
                             static_cast<uint32_t>(span.step), step_names.number(step.name),
                             step.where.empty() ? 0 : step_names.number(step.where),
                             static_cast<uint32_t>(span.thread), span.shapes, found->second});
    }
    for (const std::vector<int64_t>& shape : steps.shapes) {
      nb::list operands;
      for (size_t k = 0; k + 1 < shape.size();) {
        const char* dtype = short_name(static_cast<DType>(shape[k]));
        const auto ndim = static_cast<size_t>(shape[k + 1]);
        nb::list sizes;
        for (size_t d = 0; d < ndim; ++d) sizes.append(shape[k + 2 + d]);
        operands.append(nb::make_tuple(dtype, nb::tuple(sizes)));
        k += 2 + ndim;
      }
      step_shapes.append(operands);
    }
    for (const std::string& text : data.names.texts()) names.append(from_utf8(text));
    for (const std::string& text : data.shapes.texts()) shapes.append(from_utf8(text));
    nb::list step_texts;
    for (const std::string& text : step_names.texts()) step_texts.append(from_utf8(text));
    for (const Place& place : data.places) {
      sites.append(from_utf8(text_of_site(place.code, place.instruction)));
      Py_DECREF(place.code);
    }
    nb::dict result;
    result["operations"] = bytes_of(data.operations);
    result["memory"] = bytes_of(data.memory);
    result["held"] = bytes_of(data.held);
    result["waits"] = bytes_of(data.waits);
    result["steps"] = bytes_of(step_events);
    result["names"] = names;
    result["sites"] = sites;
    result["shapes"] = shapes;
    result["step_names"] = step_texts;
    result["step_shapes"] = step_shapes;
    result["programs"] = programs;
    result["dropped"] = data.dropped + steps.dropped;
    return result;
  }

  std::mutex mutex_;
  bool is_open_ = false;
  size_t limit_ = 0;
  Data data_;
  std::vector<Watched> watchers_;
};

}  // namespace

void bind_recorder(nb::module_& m) {
  // From now on everything is written down. engines: whose operations; limit: most events. False: it is
  // already.
  def(
      m, "open_recorder",
      [](nb::list engines, bool memory, size_t limit) {
        std::vector<std::shared_ptr<Engine>> cores;
        for (nb::handle engine : engines) cores.push_back(nb::cast<PyEngine&>(engine).core);
        return Recorder::get().open(cores, memory, limit);
      },
      nb::arg("engines"), nb::arg("memory") = true, nb::arg("limit") = size_t{4'000'000});
  // What was written down, as weft.tools.recording reads it; None: it is not open.
  def(m, "close_recorder", [] { return Recorder::get().close(); });
  def(m, "peek_recorder", [] { return Recorder::get().peek(); });
  // What this thread is at, for the events to come; returns what it was at.
  def(m, "set_recording_context", [](uint32_t module) { return std::exchange(context().module, module); });
  def(m, "recording_context", [] { return context().module; });
}

}  // namespace weft
