// Observers: what they are told, in which order, and that they can come and go.
#include <algorithm>
#include <atomic>

#include "tests/support.h"

using namespace weft;
using namespace weft::testing;

namespace {

struct Recorder : Observer {
  Log<std::string> log;
  void note(const char* what, const Event& event) {
    log.add(std::string(what) + " " + event.op->name() + (event.error ? " failed" : ""));
  }
  void on_push(const Event& event) override { note("push", event); }
  void on_start(const Event& event) override { note("start", event); }
  void on_end(const Event& event) override { note("end", event); }
};

}  // namespace

TEST(observers_see_each_operation) {
  for (const EngineKind kind : kKinds) {
    const auto recorder = std::make_shared<Recorder>();
    auto engine = make_engine(1, kind);
    Variable x(engine), y(engine);
    engine->add_observer(recorder);
    auto run = [&] { engine->wait_for_all(); };
    push(*engine, nothing, {}, {x}, "good");
    run();
    push(*engine, [](RunContext&) { throw 1; }, {}, {x}, "bad");
    CHECK_EQ(causes_of_all(*engine).size(), size_t{1});
    push(*engine, nothing, {x}, {y}, "skipped");
    run();
    push_async(*engine, [](RunContext&, const Ref<Completion>& c) { c->finish(); }, {}, {},
               {.name = "async"});
    run();
    CHECK_EQ(recorder->log.items(),
             (std::vector<std::string>{"push good", "start good", "end good", "push bad", "start bad",
                                       "end bad failed", "push skipped", "end skipped failed", "push async",
                                       "start async", "end async"}));
    engine->remove_observer(recorder.get());
    push(*engine, nothing, {}, {x}, "unseen");
    run();
    CHECK_EQ(recorder->log.size(), size_t{11});
  }
}

TEST(observers_are_told_where) {
  struct Places : Observer {
    Log<std::string> log;
    void on_start(const Event& event) override {
      log.add(std::string(queue_name(event.queue)) + " " + std::to_string(event.device.index) + " " +
              std::to_string(event.worker));
    }
  };
  const auto places = std::make_shared<Places>();
  auto engine = make_engine(1);
  engine->add_observer(places);
  push(*engine, nothing, {}, {}, {.device = {DeviceKind::cpu, 3}, .queue = QueueKind::copy});
  engine->wait_for_all();
  Op* op = make_op(nothing, {}, {}, {});
  op->cheap = true;
  engine->submit(op, {});
  engine->wait_for_all();
  CHECK_EQ(places->log.items(), (std::vector<std::string>{"copy 3 0", "compute 0 -1"}));
}

TEST(observers_see_parts_of_a_bulk) {
  const auto recorder = std::make_shared<Recorder>();
  auto engine = make_engine(1);
  engine->add_observer(recorder);
  engine->begin_bulk(2);
  push(*engine, nothing, {}, {}, "one");
  push(*engine, nothing, {}, {}, "two");
  engine->end_bulk();
  engine->stop();
  std::vector<std::string> seen;
  for (const std::string& line : recorder->log.items())
    if (!line.starts_with("push")) seen.push_back(line);
  CHECK_EQ(seen, (std::vector<std::string>{"start one", "end one", "start two", "end two"}));
}

TEST(observers_come_and_go_while_others_push) {
  struct Counter : Observer {
    std::atomic<int> starts{0}, ends{0};
    void on_start(const Event&) override { ++starts; }
    void on_end(const Event&) override { ++ends; }
  };
  const auto always = std::make_shared<Counter>();
  auto engine = make_engine(2);
  engine->add_observer(always);
  const int each = scaled(3000);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      Variable x(engine);
      for (int k = 0; k < each; ++k) push(*engine, nothing, {}, {x});
    });
  }
  for (int i = 0; i < 50; ++i) {
    const auto passing = std::make_shared<Counter>();
    engine->add_observer(passing);
    engine->remove_observer(passing.get());
  }
  for (std::jthread& thread : threads) thread.join();
  engine->stop();
  CHECK_EQ(always->starts.load(), 2 * each);
  CHECK_EQ(always->ends.load(), 2 * each);
}

TEST(observers_get_each_trace_id_once) {
  struct Ids : Observer {
    Log<uint64_t> pushed, ended;
    void on_push(const Event& event) override { pushed.add(event.op->trace_id); }
    void on_end(const Event& event) override { ended.add(event.op->trace_id); }
  };
  const auto ids = std::make_shared<Ids>();
  auto engine = make_engine(2);
  engine->add_observer(ids);
  for (int i = 0; i < 100; ++i) push(*engine, nothing, {}, {});
  engine->stop();
  std::vector<uint64_t> pushed = ids->pushed.items(), ended = ids->ended.items();
  std::sort(pushed.begin(), pushed.end());
  std::sort(ended.begin(), ended.end());
  CHECK_EQ(pushed, ended);
  CHECK(std::unique(pushed.begin(), pushed.end()) == pushed.end());
}
