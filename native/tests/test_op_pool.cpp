// The pool of blocks: every size, and blocks that wander between threads.
#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include <pthread.h>

#include "tests/support.h"

using namespace weft;
using namespace weft::testing;

namespace {

// Fills the operation to the brim, so that blocks that overlap are found.
Op* filled(size_t accesses, uint64_t mark) {
  Op* op = new_op(accesses);
  CHECK(op->access_room >= accesses);
  CHECK_EQ(reinterpret_cast<uintptr_t>(op) % 64, uintptr_t{0});
  for (size_t i = 0; i < accesses; ++i) op->add(reinterpret_cast<Var*>(mark), Mode::read);
  op->size_bytes = mark;
  std::fill(std::begin(op->storage), std::end(op->storage), static_cast<unsigned char>(mark));
  return op;
}

bool intact(Op& op) {
  for (size_t i = 0; i < op.access_count; ++i)
    if (op.accesses()[i].var != reinterpret_cast<Var*>(op.size_bytes)) return false;
  return std::all_of(std::begin(op.storage), std::end(op.storage),
                     [&](unsigned char byte) { return byte == static_cast<unsigned char>(op.size_bytes); });
}

// Each thread that comes must find the blocks that those before it left.
TEST(op_pool_does_not_grow_with_threads_that_come_and_go) {
  std::mutex mutex;
  std::set<const Op*> seen;
  for (int round = 0; round < scaled(200); ++round) {
    std::barrier together(8);
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&] {
        together.arrive_and_wait();
        std::vector<Op*> ops;
        for (int i = 0; i < 10; ++i) ops.push_back(new_op(1));
        {
          const std::lock_guard guard(mutex);
          seen.insert(ops.begin(), ops.end());
        }
        together.arrive_and_wait();
        for (Op* op : ops) free_op(op);
      });
    }
  }
  CHECK(seen.size() < 8 * 4 * 30 * 4);
}

}  // namespace

TEST(op_pool_all_sizes) {
  std::vector<Op*> ops;
  for (int round = 0; round < 3; ++round) {
    for (size_t accesses = 0; accesses < 70; ++accesses) ops.push_back(filled(accesses, accesses + 1));
    for (const size_t accesses : {100, 1000, 65535, 65536, 200000}) ops.push_back(filled(accesses, accesses));
    for (Op* op : ops) {
      CHECK(intact(*op));
      free_op(op);
    }
    ops.clear();
  }
  CHECK_THROWS(new_op(size_t{1} << 31), EngineMisuse);
}

// More variables than 16 bits count: errors come from the first that was read, also behind those.
TEST(op_pool_an_operation_with_many_variables) {
  auto engine = make_engine();
  std::vector<Variable> many = make_variables(engine, 70000);
  Variable out(engine);
  push(*engine, [](RunContext&) { throw 1; }, {}, {many[69999]}, "late");
  Variable written(engine);
  push(*engine, [](RunContext&) { throw 1; }, {}, {written}, "written");
  std::vector<Var*> reads, writes{&*written, &*out};
  for (Variable& x : many) reads.push_back(&*x);
  engine->push(nothing, reads, writes, PushOptions{.name = "all"});
  CHECK_EQ(cause_of(*engine, *out), "late");
}

namespace {
pthread_key_t at_exit_of_thread;
std::atomic<int> broken_at_exit{0};
}  // namespace

// A destructor of a pthread key runs after the thread's variables have gone, and may use the engine.
TEST(op_pool_used_after_the_variables_of_a_thread_have_gone) {
  pthread_key_create(&at_exit_of_thread, [](void*) {
    std::vector<Op*> ops;
    for (size_t i = 0; i < 100; ++i) ops.push_back(filled(i % 40, i + 1));
    for (int round = 0; round < 20; ++round) {
      for (Op*& op : ops) {
        broken_at_exit += !intact(*op);
        const size_t room = op->access_count;
        free_op(op);
        op = filled(room, reinterpret_cast<uintptr_t>(&ops) + room);
      }
      if (round % 10 == 0) std::this_thread::yield();  // each may wait for busy threads of other programs
    }
    for (Op* op : ops) free_op(op);
  });
  std::atomic<bool> enough{false};
  std::atomic<int> broken{0};
  std::vector<std::jthread> busy;
  for (int t = 0; t < 2; ++t)
    busy.emplace_back([&] {
      std::vector<Op*> ops;
      while (!enough) {
        for (size_t i = 0; i < 100; ++i) ops.push_back(filled(i % 40, i + 1));
        for (Op* op : ops) {
          broken += !intact(*op);
          free_op(op);
        }
        ops.clear();
      }
    });
  for (int i = 0; i < scaled(200); ++i)
    std::jthread([] {
      pthread_setspecific(at_exit_of_thread, &at_exit_of_thread);
      for (Op* op : {filled(1, 1), filled(5, 1), filled(20, 1)}) free_op(op);
    }).join();
  enough = true;
  busy.clear();
  CHECK_EQ(broken.load() + broken_at_exit.load(), 0);
}

TEST(op_pool_reuses_blocks) {
  std::vector<Op*> first, second;
  for (int i = 0; i < 1000; ++i) first.push_back(new_op(3));
  for (Op* op : first) free_op(op);
  for (int i = 0; i < 1000; ++i) second.push_back(new_op(3));
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  std::vector<Op*> common;
  std::set_intersection(first.begin(), first.end(), second.begin(), second.end(), std::back_inserter(common));
  for (Op* op : second) free_op(op);
  CHECK(common.size() >= 900);
}

TEST(op_pool_freed_on_other_threads) {
  const int rounds = scaled(20000);
  std::mutex mutex;
  std::deque<Op*> shared;
  std::atomic<int> broken{0}, producing{2};
  auto produce = [&](uint64_t start) {
    Random random(start);
    for (int i = 0; i < rounds; ++i) {
      Op* op = filled(static_cast<size_t>(random.below(random.chance(5) ? 60 : 20)), random.next() | 1);
      const std::lock_guard guard(mutex);
      shared.push_back(op);
    }
    --producing;
  };
  auto consume = [&] {
    for (;;) {
      const bool last = producing == 0;
      Op* op = nullptr;
      {
        const std::lock_guard guard(mutex);
        if (!shared.empty()) {
          op = shared.front();
          shared.pop_front();
        }
      }
      if (op) {
        broken += !intact(*op);
        free_op(op);
      } else if (last) {
        return;
      } else {
        std::this_thread::yield();
      }
    }
  };
  std::vector<std::jthread> threads;
  for (uint64_t i = 0; i < 2; ++i) threads.emplace_back(produce, seed() + i);
  for (int i = 0; i < 2; ++i) threads.emplace_back(consume);
  for (std::jthread& thread : threads) thread.join();
  CHECK_EQ(broken.load(), 0);
}

TEST(op_pool_survives_threads_that_end) {
  std::vector<Op*> ops;
  for (int round = 0; round < 50; ++round) {
    std::jthread([&] {
      for (Op* op : ops) free_op(op);
      ops.clear();
      for (size_t i = 0; i < 100; ++i) ops.push_back(filled(i % 40, i + 1));
    }).join();
    for (Op* op : ops) CHECK(intact(*op));
  }
  for (Op* op : ops) free_op(op);
}

TEST(op_pool_function_objects_of_all_sizes) {
  auto engine = make_engine();
  Variable x(engine);
  const auto token = std::make_shared<int>(0);
  auto push_sized = [&](auto size) {
    std::array<char, decltype(size)::value> padding{};
    push(*engine, [token, padding](RunContext&) { *token += static_cast<int>(padding.size()); }, {}, {x});
  };
  push_sized(std::integral_constant<size_t, 1>());
  push_sized(std::integral_constant<size_t, 24>());
  push_sized(std::integral_constant<size_t, 48>());
  push_sized(std::integral_constant<size_t, 64>());
  push_sized(std::integral_constant<size_t, 1000>());
  engine->wait_for_var(*x);
  engine->stop();
  CHECK_EQ(*token, 1 + 24 + 48 + 64 + 1000);
  CHECK_EQ(token.use_count(), 1L);
}
