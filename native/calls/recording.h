// recording.h: what tools see of a process: operations, memory that comes and goes, waits, and steps of
// programs.
//
// One Recorder, made at the first use and never destroyed: the pool may call it after it was closed. `mutex_`
// guards all of it; nothing is called under it. Lines of code are kept as Sites, for readers of the record
// to turn into text. A thread that does not hold the language's lock has no line.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "calls/host.h"
#include "calls/stream_times.h"
#include "engine/engine.h"
#include "program/step_log.h"
#include "storage/pool.h"

namespace weft {

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

struct StreamEvent {
  int64_t start, end;
  int64_t operation;  // its number among those recorded; -1: none
  uint32_t stream, unused;
};
static_assert(sizeof(StreamEvent) == 32);

// Texts by number, from 1 on; 0 is none.
class Names {
 public:
  uint32_t number(const std::string& text) {
    const auto [it, is_new] = numbers_.try_emplace(text, static_cast<uint32_t>(texts_.size() + 1));
    if (is_new) texts_.push_back(text);
    return it->second;
  }
  const std::vector<std::string>& texts() const noexcept { return texts_; }

 private:
  std::unordered_map<std::string, uint32_t> numbers_;
  std::vector<std::string> texts_;
};

struct Recording {
  std::vector<OperationEvent> operations;
  std::vector<MemoryEvent> memory, held;  // held: what was there before
  std::vector<WaitEvent> waits;
  std::vector<StepEvent> steps;
  std::vector<StreamEvent> streams;
  std::vector<std::pair<int, std::string>> stream_names;  // by number
  Names names, shapes, step_names;
  std::vector<std::shared_ptr<const Site>> sites;  // number 1 is the first
  std::vector<std::vector<int64_t>> step_shapes;   // as StepLog::Closed has them
  std::vector<std::string> programs;
  uint64_t dropped = 0;

  size_t events() const noexcept { return operations.size() + memory.size() + waits.size(); }
};

class Recorder final : public PoolWatch {
 public:
  static Recorder& get();

  // From now on everything is written down. engines: whose operations; limit: most events. False: it is open.
  bool open(const std::vector<std::shared_ptr<Engine>>& engines, bool memory, size_t limit);
  // What was written down; none if it is not open.
  std::optional<Recording> close();
  // What has been written down of operations, memory and waits; the record goes on.
  std::optional<Recording> peek();

  void allocated(const Pool& pool, const void* memory, size_t bytes) noexcept override;
  void released(const Pool& pool, const void* memory) noexcept override;

 private:
  struct SiteHash {
    size_t operator()(const std::pair<_object*, int>& site) const noexcept {
      return reinterpret_cast<size_t>(site.first) * 31 + static_cast<size_t>(site.second);
    }
  };
  class Watcher;
  struct Watched {
    std::shared_ptr<Engine> engine;
    std::shared_ptr<Watcher> watcher;
  };

  Recorder();
  uint32_t number_of(Site&& site);
  bool has_room();
  void pushed(const Observer::Event& e, uint32_t engine);
  void started(const Observer::Event& e, uint32_t engine);
  void ended(const Observer::Event& e, uint32_t engine);
  void waited(std::chrono::steady_clock::time_point start);
  void add_streams(const std::vector<StreamSpan>& spans, const std::vector<Watched>& watchers,
                   Recording& to) const;
  void add(MemoryEvent event, const Pool& pool, const void* memory) noexcept;

  StreamTimes streams_;
  ForkMutex mutex_;
  bool is_open_ = false;
  size_t limit_ = 0;
  Recording data_;
  std::unordered_map<uint64_t, size_t> pending_;  // operations, by the engine's number and the operation's id
  std::unordered_map<std::pair<_object*, int>, uint32_t, SiteHash> site_numbers_;  // numbers of sites
  std::vector<Watched> watchers_;
};

}  // namespace weft
