// A random program on an engine, and the serial run that it must equal.
//
// Each step is drawn, given to the engine and interpreted at once by the oracle, in the order of pushing.
// What the operations compute lies in plain memory: a missing order is a data race, which ThreadSanitizer
// reports, and gives wrong values, which `finish` finds.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>

#include "tests/support.h"

namespace weft::testing {

// A thread that finishes asynchronous operations, in an order of its own.
class Completer {
 public:
  explicit Completer(uint64_t start) : random_(start), thread_([this] { run(); }) {}
  ~Completer() {
    {
      const std::lock_guard guard(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void add(std::function<void()> job) {
    {
      const std::lock_guard guard(mutex_);
      jobs_.push_back(std::move(job));
    }
    changed_.notify_all();
  }

 private:
  void run() {
    std::unique_lock guard(mutex_);
    for (;;) {
      changed_.wait(guard, [&] { return ended_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const auto chosen = jobs_.begin() + random_.below(static_cast<int>(jobs_.size()));
      std::function<void()> job = std::move(*chosen);
      jobs_.erase(chosen);
      guard.unlock();
      job();
      job = nullptr;  // may drop a Completion, and with that run what depends on it
      guard.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool ended_ = false;
  Random random_;
  std::thread thread_;
};

// A failure, as the oracle knows it.
struct Cause {
  std::string operation;
  bool handled = false;
};

// A variable, what it stands for, and what the oracle expects of both.
struct Cell {
  static constexpr int kWriter = 1 << 16;

  Ref<Var> var;
  uint64_t value = 0;
  std::atomic<int> inside{0};  // readers, plus kWriter for each writer; relaxed, so that it orders nothing
  uint64_t seen_at_the_end = 0;
  bool ended = false;

  uint64_t expected = 0;
  uint64_t version = 0;
  std::shared_ptr<Cause> error;
  bool deleted = false;
  bool deleted_with_function = false;
};

struct Use {
  Cell* cell;
  Mode mode;
};

inline uint64_t mix(uint64_t hash, uint64_t value) { return Random(hash * 31 + value).next(); }

// What an operation computes: each written value becomes a hash of all that the operation may read.
struct Body {
  uint64_t salt;
  std::vector<Use> uses;  // each variable once

  template <class Value>
  void compute(Value&& value) const {
    uint64_t hash = salt;
    for (const Use& use : uses)
      if (use.mode != Mode::overwrite) hash = mix(hash, value(*use.cell));
    uint64_t place = 0;
    for (const Use& use : uses)
      if (use.mode != Mode::read) value(*use.cell) = mix(hash, ++place);
  }

  void run(std::atomic<int>& violations) const {
    for (const Use& use : uses) {
      const int mine = use.mode == Mode::read ? 1 : Cell::kWriter;
      const int others = use.cell->inside.fetch_add(mine, std::memory_order_relaxed);
      if (use.mode == Mode::read ? others >= Cell::kWriter : others != 0) violations.fetch_add(1);
    }
    compute([](Cell& cell) -> uint64_t& { return cell.value; });
    for (const Use& use : uses)
      use.cell->inside.fetch_sub(use.mode == Mode::read ? 1 : Cell::kWriter, std::memory_order_relaxed);
  }
};

struct ProgramOptions {
  uint64_t seed = 0;
  int variables = 100;
  bool alone = true;  // no other program uses the engine: then wait_for_all and stop are steps, too
};

class Program {
 public:
  Program(std::shared_ptr<Engine> engine, const ProgramOptions& options)
      : engine_(std::move(engine)), options_(options), random_(options.seed), completer_(options.seed + 1) {
    for (int i = 0; i < options.variables; ++i) live_.push_back(new_cell());
  }

  int steps() const { return steps_; }

  // Not safe from several threads at once: they take turns.
  void step() {
    if (poisoned() > heal_at_) return heal();
    const int kind = random_.below(1000);
    if (kind < 600) return push_task(false);
    if (kind < 680) return push_task(true);
    if (kind < 770) return push_async();
    if (kind < 860) return push_operator();
    if (kind < 920 && !in_bulk_) return bulk();
    if (kind < 945) return clear_error(*pick());
    if (kind < 970) return delete_variable();
    if (kind < 995 || !options_.alone || in_bulk_) return wait_for_var(*pick());
    if (kind < 998) return wait_for_all();
    engine_->stop();
    CHECK_THROWS(push(*engine_, nothing, {}, {}), EngineMisuse);
    engine_->start();
  }

  // Everything has been pushed: compares values, versions and errors.
  void finish() {
    for (Cell* cell : live_) wait_for_var(*cell);
    if (options_.alone) finish_alone();
    for (Cell* cell : live_) end(*cell, false);
    engine_->wait_for_all();
    CHECK_EQ(violations_.load(), 0);
    for (const Cell& cell : cells_) {
      CHECK_EQ(cell.value, cell.expected);
      CHECK_EQ(cell.var->version.load(), cell.version);
      CHECK_EQ(cell.ended, cell.deleted_with_function);
      if (cell.ended) CHECK_EQ(cell.seen_at_the_end, cell.expected);
    }
    operators_.clear();
  }

  // Names of the failures that are to be reported once, besides those that earlier waits for all have
  // reported.
  std::vector<std::string> unreported() const {
    std::vector<std::string> names = late_;
    for (const auto& cause : causes_)
      if (!cause->handled) names.push_back(cause->operation);
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  enum class Ending { done, std_exception, number, odd };
  enum class AsyncEnding { at_once, later, twice, later_error, dropped, throws, done_then_throws };
  struct Odd {};
  struct Accesses {
    std::vector<Cell*> writes, overwrites, reads;
  };
  struct Reusable {
    std::shared_ptr<Operator> op;
    std::shared_ptr<Body> body;
    const char* name;
    bool fails;
  };

  Cell* new_cell() {
    Cell& cell = cells_.emplace_back();
    cell.var = engine_->new_variable();
    return &cell;
  }
  Cell* pick() { return live_[static_cast<size_t>(random_.below(static_cast<int>(live_.size())))]; }
  int poisoned() const {
    return static_cast<int>(
        std::count_if(live_.begin(), live_.end(), [](Cell* cell) { return cell->error != nullptr; }));
  }
  const char* new_name(const char* kind) {
    return names_.emplace_back(kind + std::to_string(names_.size())).c_str();
  }

  PushOptions draw_options() {
    PushOptions options;
    if (random_.chance(50)) options.queue = static_cast<QueueKind>(random_.below(kQueueKinds));
    if (random_.chance(30)) options.priority = random_.between(-2, 2);
    if (random_.chance(20)) options.size_bytes = static_cast<uint64_t>(random_.below(1 << 20));
    options.device.index = random_.chance(25) ? 1 : 0;
    return options;
  }

  Accesses draw_accesses() {
    const bool distinct = random_.chance(80);
    std::vector<Cell*> taken;
    auto draw = [&] {
      Cell* cell = pick();
      while (distinct && std::find(taken.begin(), taken.end(), cell) != taken.end()) cell = pick();
      taken.push_back(cell);
      return cell;
    };
    Accesses result;
    const int most = std::min(19, options_.variables - 3);
    for (int i = random_.between(1, 3); i > 0; --i)
      (random_.chance(25) ? result.overwrites : result.writes).push_back(draw());
    for (int i = random_.between(2, most); i > 0; --i) result.reads.push_back(draw());
    return result;
  }

  // What the accesses come to when a variable is listed twice: the write wins.
  std::shared_ptr<Body> make_body(const Accesses& accesses) {
    auto body = std::make_shared<Body>();
    body->salt = random_.next();
    auto add = [&](Cell* cell, Mode mode) {
      for (Use& use : body->uses) {
        if (use.cell != cell) continue;
        if (use.mode == Mode::overwrite && mode == Mode::read) use.mode = Mode::write;
        return;
      }
      body->uses.push_back({cell, mode});
    };
    for (Cell* cell : accesses.writes) add(cell, Mode::write);
    for (Cell* cell : accesses.overwrites) add(cell, Mode::overwrite);
    for (Cell* cell : accesses.reads) add(cell, Mode::read);
    return body;
  }

  template <class F>
  Op* make(F&& fn, const Accesses& accesses, const char* name) {
    Op* op = new_op(accesses.writes.size() + accesses.overwrites.size() + accesses.reads.size());
    for (Cell* cell : accesses.writes) op->add(cell->var.get(), Mode::write);
    for (Cell* cell : accesses.overwrites) op->add(cell->var.get(), Mode::overwrite);
    for (Cell* cell : accesses.reads) op->add(cell->var.get(), Mode::read);
    op->emplace(std::forward<F>(fn), name);
    return op;
  }

  // The oracle: runs the operation here and now.
  void interpret(const Body& body, const char* name, bool fails) {
    ++steps_;
    std::shared_ptr<Cause> cause;
    for (const Mode mode : {Mode::read, Mode::write}) {
      for (const Use& use : body.uses)
        if (use.mode == mode && !cause) cause = use.cell->error;
    }
    const bool skipped = cause != nullptr;
    if (!skipped) {
      body.compute([](Cell& cell) -> uint64_t& { return cell.expected; });
      if (fails) causes_.push_back(cause = std::make_shared<Cause>(Cause{name}));
    }
    for (const Use& use : body.uses) {
      if (use.mode == Mode::read) continue;
      Cell& cell = *use.cell;
      if (!skipped) ++cell.version;
      if (cause ? !cell.error : use.mode == Mode::overwrite) cell.error = cause;
    }
  }

  Ending draw_ending() {
    return random_.chance(98) ? Ending::done : static_cast<Ending>(random_.between(1, 3));
  }

  // The function of a task.
  auto task(std::shared_ptr<Body> body, Ending ending) {
    return [this, body = std::move(body), ending](RunContext&) {
      body->run(violations_);
      switch (ending) {
        case Ending::done:
          return;
        case Ending::std_exception:
          throw std::runtime_error("as drawn");
        case Ending::number:
          throw 42;
        case Ending::odd:
          throw Odd();
      }
    };
  }

  // The function of an asynchronous operation.
  auto async_task(std::shared_ptr<Body> body, AsyncEnding ending) {
    return [this, body = std::move(body), ending](RunContext& context) {
      Ref<Completion> completion(context.completion);
      if (ending == AsyncEnding::throws) {
        body->run(violations_);
        throw std::runtime_error("before on_complete");
      }
      if (ending == AsyncEnding::at_once || ending == AsyncEnding::done_then_throws) {
        body->run(violations_);
        completion->finish();
        if (ending == AsyncEnding::at_once) return;
        throw std::runtime_error("after on_complete");
      }
      completer_.add([this, body, ending, completion = std::move(completion)]() mutable {
        body->run(violations_);
        if (ending == AsyncEnding::dropped) return;
        const bool first = completion->finish(ending == AsyncEnding::later_error ? make_ref<Error>("as drawn")
                                                                                 : Ref<Error>());
        const bool second = ending == AsyncEnding::twice && completion->finish();
        if (!first || second) violations_.fetch_add(1);
      });
    };
  }

  static bool fails(AsyncEnding ending) {
    return ending == AsyncEnding::later_error || ending == AsyncEnding::dropped ||
           ending == AsyncEnding::throws;
  }
  AsyncEnding draw_async_ending() {
    if (random_.chance(80)) return static_cast<AsyncEnding>(random_.below(3));
    return random_.chance(60) ? AsyncEnding::later : static_cast<AsyncEnding>(random_.between(3, 6));
  }

  void push_task(bool cheap) {
    const Accesses accesses = draw_accesses();
    const auto body = make_body(accesses);
    const Ending ending = draw_ending();
    const char* name = new_name(cheap ? "cheap" : "task");
    Op* op = make(task(body, ending), accesses, name);
    op->cheap = cheap;
    interpret(*body, name, ending != Ending::done);
    engine_->submit(op, draw_options());
  }

  void push_async() {
    const Accesses accesses = draw_accesses();
    const auto body = make_body(accesses);
    const AsyncEnding ending = draw_async_ending();
    const char* name = new_name("async");
    Op* op = make(async_task(body, ending), accesses, name);
    op->kind = OpKind::async;
    interpret_async(*body, name, ending);
    engine_->submit(op, draw_options());
  }

  void interpret_async(const Body& body, const char* name, AsyncEnding ending) {
    const uint64_t version = body.uses.front().cell->version;  // of a written variable: shows whether it ran
    interpret(body, name, fails(ending));
    const bool ran = body.uses.front().cell->version != version;
    if (ran && ending == AsyncEnding::done_then_throws) late_.emplace_back(name);
  }

  void push_operator() {
    if (operators_.size() < 10) return new_operator();
    const auto chosen = operators_.begin() + random_.below(static_cast<int>(operators_.size()));
    const Reusable& reusable = *chosen;
    const bool alive = std::none_of(reusable.body->uses.begin(), reusable.body->uses.end(),
                                    [](const Use& use) { return use.cell->deleted; });
    if (!alive) {
      CHECK_THROWS(engine_->submit(*reusable.op, draw_options()), EngineMisuse);
    } else if (random_.chance(95)) {
      interpret(*reusable.body, reusable.name, reusable.fails);
      engine_->submit(*reusable.op, draw_options());
      return;
    }
    Engine::delete_operator(*reusable.op);
    CHECK_THROWS(engine_->submit(*reusable.op, draw_options()), EngineMisuse);
    operators_.erase(chosen);
  }

  void new_operator() {
    const Accesses accesses = draw_accesses();
    Reusable made{{}, make_body(accesses), new_name("operator"), random_.chance(10)};
    Op* plan;
    if (random_.chance(30)) {
      plan = make(async_task(made.body, made.fails ? AsyncEnding::later_error : AsyncEnding::later), accesses,
                  made.name);
      plan->kind = OpKind::async;
    } else {
      plan = make(task(made.body, made.fails ? Ending::number : Ending::done), accesses, made.name);
      plan->cheap = random_.chance(30);
    }
    made.op = engine_->new_operator(plan, QueueKind::compute);
    operators_.push_back(std::move(made));
  }

  void bulk() {
    engine_->begin_bulk(random_.between(1, 16));
    in_bulk_ = true;
    PushOptions same;
    for (int i = random_.between(1, 24); i > 0; --i) {
      if (random_.chance(10)) {
        step();
        continue;
      }
      const Accesses accesses = draw_accesses();
      const auto body = make_body(accesses);
      const Ending ending = draw_ending();
      const char* name = new_name("bulk");
      interpret(*body, name, ending != Ending::done);
      engine_->submit(make(task(body, ending), accesses, name), same);
    }
    in_bulk_ = false;
    engine_->end_bulk();
  }

  void clear_error(Cell& cell) {
    ++steps_;
    if (cell.error) cell.error->handled = true;
    cell.error = nullptr;
    engine_->clear_error(*cell.var);
  }

  // Poison spreads faster than single steps take it away.
  void heal() {
    heal_at_ = random_.between(2, 40);
    for (Cell* cell : live_) {
      if (!cell->error) continue;
      if (random_.chance(50)) {
        clear_error(*cell);
        continue;
      }
      Accesses accesses;
      accesses.overwrites.push_back(cell);
      const auto body = make_body(accesses);
      const char* name = new_name("heal");
      interpret(*body, name, false);
      engine_->submit(make(task(body, Ending::done), accesses, name), draw_options());
    }
  }

  void end(Cell& cell, bool with_function) {
    ++steps_;
    cell.deleted = true;
    cell.deleted_with_function = with_function;
    if (!with_function) return engine_->delete_variable(cell.var);
    auto last = [&cell](RunContext&) {
      cell.seen_at_the_end = cell.value;
      cell.ended = true;
    };
    Op* op = new_op(1);
    op->emplace(last, "last");
    engine_->delete_variable(cell.var, op, draw_options());
  }

  void delete_variable() {
    Cell*& slot = live_[static_cast<size_t>(random_.below(static_cast<int>(live_.size())))];
    end(*slot, random_.chance(50));
    if (random_.chance(20)) CHECK_THROWS(engine_->delete_variable(slot->var), EngineMisuse);
    slot = new_cell();
  }

  void wait_for_var(Cell& cell) {
    CHECK_EQ(cause_of(*engine_, *cell.var, random_.chance(50)), cell.error ? cell.error->operation : "");
    CHECK_EQ(cell.value, cell.expected);
    CHECK_EQ(cell.var->version.load(), cell.version);
  }

  void wait_for_all() {
    for (const std::string& name : causes_of_all(*engine_)) ++reported_[name];
    for (const auto& cause : std::exchange(causes_, {}))
      if (!cause->handled) ++expected_reports_[cause->operation];
    for (Cell* cell : live_) {
      CHECK_EQ(cell->value, cell->expected);
      CHECK_EQ(cell->var->version.load(), cell->version);
    }
  }

  void finish_alone() {
    wait_for_all();
    engine_->stop();  // a function that threw after on_complete has been reported then
    const Stats stats = engine_->stats();
    CHECK_EQ(stats.pushed, stats.finished);
    CHECK_EQ(stats.pending + stats.running + stats.async_outstanding + stats.threads, uint64_t{0});
    wait_for_all();
    for (const std::string& name : late_) ++expected_reports_[name];
    CHECK(reported_ == expected_reports_);
    engine_->start();
  }

  const std::shared_ptr<Engine> engine_;
  const ProgramOptions options_;
  Random random_;
  int steps_ = 0;
  int heal_at_ = 10;
  bool in_bulk_ = false;
  std::atomic<int> violations_{0};
  std::deque<Cell> cells_;  // all that there ever were
  std::vector<Cell*> live_;
  std::deque<std::string> names_;
  std::vector<Reusable> operators_;
  std::vector<std::shared_ptr<Cause>> causes_;
  std::vector<std::string> late_;  // of functions that threw after on_complete
  std::map<std::string, int> reported_, expected_reports_;
  Completer completer_;
};

}  // namespace weft::testing
