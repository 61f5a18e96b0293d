// What tools see of a process: its record, without a language.
#include <thread>

#include "calls/recording.h"
#include "tests/calls_support.h"

using namespace weft;
using namespace weft::testing;

TEST(recorder_writes_down_operations_and_memory) {
  Arrays arrays;
  Recorder& recorder = Recorder::get();
  CHECK(!recorder.close() && !recorder.peek());
  const Tensor before = counted({5});
  wait_for(before);
  CHECK(recorder.open({arrays.engine}, true, 1000));
  CHECK(!recorder.open({arrays.engine}, true, 1000));
  Language::line = "line 3";
  context().module = 9;
  {
    const Tensor x = counted({2, 3});
    wait_for(x);
  }
  context().module = 0;
  Language::line = "line 1";
  const std::optional<Recording> half = recorder.peek();
  CHECK(half && half->operations.size() == 1);
  std::thread([] {
    Language::is_locked = false;
    const Tensor x = empty({4});
  }).join();
  const std::optional<Recording> all = recorder.close();
  CHECK(all && !recorder.close());

  CHECK_EQ(all->operations.size(), 1u);
  const OperationEvent& operation = all->operations[0];
  CHECK(operation.pushed <= operation.started && operation.started <= operation.ended && !operation.failed);
  CHECK_EQ(operation.context, 9u);
  CHECK_EQ(all->sites[operation.site - 1]->text(), std::string("line 3"));
  CHECK(!all->names.texts()[operation.name - 1].empty());

  CHECK_EQ(all->memory.size(), 4u);  // two pieces that come and go
  CHECK_EQ(all->shapes.texts(), (std::vector<std::string>{"i64[2,3]", "i64[4]"}));
  CHECK(all->memory[0].bytes == 48 && !all->memory[0].is_release && all->memory[0].site);
  CHECK(all->memory[1].is_release && all->memory[1].address == all->memory[0].address);
  CHECK(!all->memory[2].site);  // of a thread without the lock
  CHECK(std::ranges::any_of(all->held, [&](const MemoryEvent& event) {
    return event.address == reinterpret_cast<uint64_t>(before.data);
  }));
  CHECK_EQ(all->dropped, 0u);
}

TEST(recorder_counts_what_it_has_no_room_for) {
  Arrays arrays;
  CHECK(Recorder::get().open({arrays.engine}, true, 2));
  for (int k = 0; k < 3; ++k) static_cast<void>(empty({4}));
  const std::optional<Recording> all = Recorder::get().close();
  CHECK_EQ(all->memory.size(), 2u);
  CHECK_EQ(all->dropped, 4u);
  CHECK(Recorder::get().open({}, false, 2));  // it can be opened again, and has forgotten
  CHECK(Recorder::get().close()->memory.empty());
}
