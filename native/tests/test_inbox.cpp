// The inbox alone: many producers, one consumer, a ring that is often full.
#include <atomic>
#include <memory>

#include "engine/inbox.h"
#include "tests/support.h"

using namespace weft;
using namespace weft::testing;

namespace {

bool try_push(Inbox& inbox, Op* op) {
  uint64_t ticket;
  return inbox.try_push(Parcel(op), ticket);
}

Op* pop(Inbox& inbox) {
  Op* op = inbox.front().op();
  if (op) inbox.pop();
  return op;
}

}  // namespace

TEST(inbox_is_first_in_first_out) {
  const auto inbox = std::make_unique<Inbox>();
  CHECK(inbox->empty());
  CHECK(pop(*inbox) == nullptr);
  std::vector<Op*> ops;
  for (uint64_t round = 0; round < 3; ++round) {
    for (uint64_t i = 0; i < Inbox::kCapacity; ++i) {
      ops.push_back(new_op(0));
      CHECK(try_push(*inbox, ops.back()));
    }
    Op* extra = new_op(0);
    CHECK(!try_push(*inbox, extra));  // full
    CHECK_EQ(inbox->tickets() - inbox->taken(), Inbox::kCapacity);
    CHECK(pop(*inbox) == ops[round * Inbox::kCapacity]);
    free_op(ops[round * Inbox::kCapacity]);
    CHECK(try_push(*inbox, extra));
    for (uint64_t i = 1; i < Inbox::kCapacity; ++i) {
      Op* op = pop(*inbox);
      CHECK(op == ops[round * Inbox::kCapacity + i]);
      free_op(op);
    }
    CHECK(pop(*inbox) == extra);
    CHECK(pop(*inbox) == nullptr);
    CHECK(inbox->empty());
    free_op(extra);
  }
}

TEST(inbox_keeps_the_order_of_each_producer_and_loses_nothing) {
  constexpr int kProducers = 4;
  const int each = scaled(100000);
  const auto inbox = std::make_unique<Inbox>();
  std::vector<std::jthread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&, p] {
      for (int i = 0; i < each; ++i) {
        Op* op = new_op(0);
        op->priority = i;  // plain fields: storing the operation must publish them
        op->size_bytes = static_cast<uint64_t>(p);
        while (!try_push(*inbox, op)) std::this_thread::yield();
      }
    });
  }
  std::vector<int> next(kProducers, 0);
  int received = 0, wrong = 0;
  while (received < kProducers * each) {
    Op* op = pop(*inbox);
    if (!op) {
      std::this_thread::yield();
      continue;
    }
    wrong += op->priority != next[op->size_bytes]++;
    ++received;
    free_op(op);
  }
  for (std::jthread& producer : producers) producer.join();
  CHECK_EQ(wrong, 0);
  CHECK(inbox->empty());
  CHECK_EQ(inbox->tickets(), inbox->taken());
}

// More operations than the ring holds, while no worker takes any: pushing threads drain it themselves.
TEST(inbox_that_is_full_does_not_stop_pushes) {
  Gate gate;
  int value = 0;
  auto engine = Engine::create({.workers = 1, .max_pending = 1u << 20});
  Variable x(engine);
  push(*engine, [&](RunContext&) { gate.pass(); }, {}, {x});
  CHECK(gate.reached());
  const int count = 3 * static_cast<int>(Inbox::kCapacity);
  for (int i = 0; i < count; ++i) push(*engine, [&](RunContext&) { ++value; }, {}, {x});
  gate.open();
  engine->wait_for_var(*x);
  CHECK_EQ(value, count);
}
