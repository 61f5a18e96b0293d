// Queues and devices: priorities in each, none waits behind another, wide and narrow work take turns.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "engine/device_kind.h"
#include "tests/support.h"

using namespace weft;
using namespace weft::testing;

namespace {

constexpr QueueKind kQueues[] = {QueueKind::compute, QueueKind::wide, QueueKind::copy, QueueKind::io,
                                 QueueKind::priority};

void spin_us(int us) {
  const Deadline until = Clock::now() + std::chrono::microseconds(us);
  while (Clock::now() < until) cpu_relax();
}

}  // namespace

TEST(queues_honour_priorities) {
  for (const QueueKind queue : kQueues) {
    Gate gate;
    Log<int> order;
    auto engine = Engine::create({.workers = 1, .io_workers = 1});
    push(*engine, [&](RunContext&) { gate.pass(); }, {}, {}, {.queue = queue});
    CHECK(gate.reached());
    const int priorities[] = {0, 5, -3, 5, 0, 7, -3, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 9; ++i)
      push(*engine, [&order, i](RunContext&) { order.add(i); }, {}, {},
           {.queue = queue, .priority = priorities[i]});
    gate.open();
    engine->wait_for_all();
    CHECK_EQ(order.items(), (std::vector<int>{7, 5, 1, 3, 0, 4, 2, 6, 8}));
  }
}

namespace {

class CountingBackend final : public DeviceBackend {
 public:
  using DeviceBackend::DeviceBackend;
  void* stream(int, QueueKind) override {
    ++calls;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    return nullptr;
  }
  std::atomic<int> calls{0};
};

}  // namespace

TEST(queues_have_their_streams_made_once) {
  auto engine = make_engine(2);
  auto owned = std::make_unique<CountingBackend>("counting");
  CountingBackend& backend = *owned;
  const DeviceKind kind = add_device_kind(std::move(owned));
  for (int i = 0; i < 20; ++i) {
    backend.calls = 0;
    std::atomic<int> arrived{0};
    const auto use = [&] {
      ++arrived;
      while (arrived < 2) cpu_relax();
      push(*engine, nothing, {}, {}, {.device = {kind, i}});
    };
    std::jthread a(use), b(use);
    a.join();
    b.join();
    CHECK_EQ(backend.calls.load(), kQueueKinds);
  }
}

TEST(queues_tell_functions_where_they_run) {
  auto engine = make_engine(3);
  for (const QueueKind queue : kQueues) {
    for (const int device : {0, 1, 63}) {
      push(*engine,
           [queue, device, &engine](RunContext& context) {
             CHECK(context.queue == queue);
             CHECK((context.device == Device{DeviceKind::cpu, device}));
             CHECK(context.worker >= 0 && context.worker < 4);
             CHECK(context.engine == engine.get());
             CHECK_EQ(context.op->name(), "here");
           },
           {}, {}, {.device = {DeviceKind::cpu, device}, .queue = queue, .name = "here"});
    }
  }
  CHECK_EQ(causes_of_all(*engine), std::vector<std::string>());
}

TEST(queues_do_not_wait_behind_each_other) {
  for (const QueueKind blocked : kQueues) {
    Gate gate;
    auto engine = Engine::create({.workers = 2, .io_workers = 2});
    for (int i = 0; i < 10; ++i) push(*engine, [&](RunContext&) { gate.pass(); }, {}, {}, {.queue = blocked});
    CHECK(gate.reached(blocked == QueueKind::compute || blocked == QueueKind::io ? 2 : 1));
    std::atomic<int> ran{0};
    int expected = 0;
    for (const QueueKind queue : kQueues) {
      if (queue == blocked || (blocked == QueueKind::wide && queue == QueueKind::compute)) continue;
      for (int i = 0; i < 20; ++i, ++expected)
        push(*engine, [&](RunContext&) { ++ran; }, {}, {}, {.queue = queue});
    }
    CHECK(soon([&] { return ran == expected; }));
    gate.open();
    engine->wait_for_all();
  }
}

TEST(queues_of_devices_are_separate) {
  Gate gate;
  auto engine = make_engine(1);
  for (int device = 0; device < 4; ++device)
    push(*engine, [&](RunContext&) { gate.pass(); }, {}, {}, {.device = {DeviceKind::cpu, device}});
  CHECK(gate.reached(4));  // each on its device's only worker, all at once
  gate.open();
  engine->wait_for_all();
}

TEST(queues_use_all_their_workers) {
  Gate gate;
  auto engine = Engine::create({.workers = 5, .io_workers = 3});
  for (int i = 0; i < 5; ++i) push(*engine, [&](RunContext&) { gate.pass(); }, {}, {});
  for (int i = 0; i < 3; ++i)
    push(*engine, [&](RunContext&) { gate.pass(); }, {}, {}, {.queue = QueueKind::io});
  CHECK(gate.reached(8));
  CHECK_EQ(engine->stats().threads, uint64_t{8});
  gate.open();
  engine->wait_for_all();
}

TEST(queues_start_no_thread_without_work) {
  auto engine = make_engine(8);
  Variable x(engine);
  engine->wait_for_all();
  CHECK_EQ(engine->stats().threads, uint64_t{0});
  for (int i = 0; i < 100; ++i) push(*engine, nothing, {}, {x});
  engine->wait_for_all();
  CHECK(engine->stats().threads <= 8);
}

TEST(queues_narrow_work_stands_still_during_wide_work) {
  Gate gate;
  std::atomic<int> ran{0};
  auto engine = make_engine(4);
  push(*engine, [&](RunContext&) { gate.pass(); }, {}, {}, {.queue = QueueKind::wide});
  CHECK(gate.reached());
  for (int i = 0; i < 50; ++i) push(*engine, [&](RunContext&) { ++ran; }, {}, {});
  sleep_ms(50);
  CHECK_EQ(ran.load(), 0);
  gate.open();
  engine->wait_for_all();
  CHECK_EQ(ran.load(), 50);
}

TEST(queues_wide_work_is_one_at_a_time) {
  std::atomic<int> inside{0}, most{0};
  auto engine = make_engine(4);
  for (int i = 0; i < 100; ++i) {
    push(*engine,
         [&](RunContext&) {
           most = std::max(most.load(), ++inside);
           spin_us(20);
           --inside;
         },
         {}, {}, {.queue = QueueKind::wide});
  }
  engine->wait_for_all();
  CHECK_EQ(most.load(), 1);
}

TEST(queues_wide_work_goes_beside_a_narrow_function_that_does_not_end) {
  Gate gate;
  auto engine = make_engine(2);
  Variable x(engine);
  push(*engine, [&](RunContext&) { gate.pass(); }, {}, {});
  CHECK(gate.reached());
  for (int i = 0; i < 3; ++i) push(*engine, nothing, {}, {x}, {.queue = QueueKind::wide});
  engine->wait_for_var(*x, false, in_ms(20000));
  push(*engine, nothing, {}, {x});  // nor does the narrow one stop other narrow work
  engine->wait_for_var(*x, false, in_ms(20000));
  gate.open();
  engine->wait_for_all();
}

TEST(queues_narrow_work_is_not_starved_by_wide_work) {
  std::atomic<int> wide_done{0};
  int wide_done_before = -1;
  constexpr int kWide = 150;
  auto engine = make_engine(2);
  for (int i = 0; i < kWide; ++i)
    push(*engine, [&](RunContext&) { spin_us(4000), ++wide_done; }, {}, {}, {.queue = QueueKind::wide});
  push(*engine, [&](RunContext&) { wide_done_before = wide_done; }, {}, {});
  engine->wait_for_all();
  CHECK(wide_done_before < kWide - 1);
}

TEST(queues_wide_work_is_not_starved_by_narrow_work) {
  std::atomic<int> narrow_done{0};
  int narrow_done_before = -1;
  constexpr int kNarrow = 2000;
  auto engine = make_engine(2);
  for (int i = 0; i < kNarrow; ++i) push(*engine, [&](RunContext&) { spin_us(200), ++narrow_done; }, {}, {});
  push(*engine, [&](RunContext&) { narrow_done_before = narrow_done; }, {}, {}, {.queue = QueueKind::wide});
  engine->wait_for_all();
  CHECK(narrow_done_before < kNarrow - 1);
}

TEST(queues_wide_and_narrow_work_honour_priorities_among_each_other) {
  Gate gate;
  Log<std::string> order;
  auto engine = make_engine(1);
  push(*engine, [&](RunContext&) { gate.pass(); }, {}, {}, {.queue = QueueKind::wide});
  CHECK(gate.reached());
  push(*engine, [&](RunContext&) { order.add("wide"); }, {}, {}, {.queue = QueueKind::wide});
  push(*engine, [&](RunContext&) { order.add("narrow"); }, {}, {}, {.priority = 1});
  gate.open();
  engine->wait_for_all();
  CHECK_EQ(order.items(), (std::vector<std::string>{"narrow", "wide"}));
}

TEST(queues_run_what_functions_push) {
  for (const EngineKind kind : kKinds) {
    auto engine = make_engine(2, kind);
    Variable x(engine);
    int depth = 0;
    std::function<void(RunContext&)> again = [&](RunContext& context) {
      if (++depth < 200) push(*context.engine, [&](RunContext& inner) { again(inner); }, {}, {});
    };
    push(*engine, [&](RunContext& context) { again(context); }, {}, {x});
    CHECK(soon([&] {
      engine->wait_for_all();
      return engine->stats().finished == 200;
    }));
    CHECK_EQ(depth, 200);
  }
}
