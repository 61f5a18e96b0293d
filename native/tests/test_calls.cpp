// What calls mean, without a language: the table of plans, the tape, and the way back.
#include <thread>

#include "calls/plan_table.h"
#include "tests/calls_support.h"

using namespace weft;
using namespace weft::testing;

namespace {

// The gradients of leaves, NaN for none.
std::vector<double> gradients(const Tracked& y, const std::vector<Ref<TapeNode>>& leaves,
                              const OnFinal& on_final = {}) {
  const Tracked one = numbers({y.tensor.shape[0]}, 1);
  const Tracked* roots[] = {&y};
  const Tracked* cotangents[] = {&one};
  std::vector<TapeNode*> wanted;
  for (const Ref<TapeNode>& leaf : leaves) wanted.push_back(leaf.get());
  std::vector<double> found;
  ++context().recording_off;
  for (const std::optional<Tracked>& dx : walk_back(roots, cotangents, wanted, false, on_final))
    found.push_back(dx ? first_of(*dx) : -1);
  --context().recording_off;
  return found;
}

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST(plan_table_finds_what_was_added) {
  Arrays arrays;
  PlanTable table;
  const Ref<Plan> plan = plan_of("sum");
  CHECK(!table.find(PlanKey{1, 2}));
  table.add(PlanKey{1, 2}, plan);
  table.add(PlanKey{1, 3}, {});  // there is none for this kind
  for (int i = 0; i < 3; ++i) {
    CHECK(table.find(PlanKey{1, 2}) && *table.find(PlanKey{1, 2}) == plan);
    CHECK(table.find(PlanKey{1, 3}) && !*table.find(PlanKey{1, 3}));
    CHECK(!table.find(PlanKey{1}));
    CHECK(!table.find(PlanKey{1, 2, 0}));
  }
  table.clear();
  CHECK(!table.find(PlanKey{1, 2}));
}

TEST(plan_table_forgets_what_is_not_used) {
  Arrays arrays;
  PlanTable table;
  const Ref<Plan> plan = plan_of("sum");
  for (uint64_t k = 0; k < 5 * PlanTable::kHalf; ++k) {
    table.add(PlanKey{k, k + 1}, plan);
    CHECK(table.find(PlanKey{0, 1}));  // used again and again
    CHECK(table.size() <= 2 * PlanTable::kHalf + 1);
  }
  CHECK(!table.find(PlanKey{1, 2}));
  CHECK(table.find(PlanKey{5 * PlanTable::kHalf - 1, 5 * PlanTable::kHalf}));
}

TEST(tape_records_only_for_leaves) {
  Arrays arrays;
  const Ref<Plan> product = plan_of("product");
  Tracked x = numbers({3}, 2), y = numbers({3}, 5);
  CHECK(!call(product, x, y).node);
  const Ref<TapeNode> leaf = watch(x);
  CHECK(call(product, x, y).node);
  ++context().recording_off;
  CHECK(!call(product, x, y).node);
  --context().recording_off;
  unwatch(x, *leaf);
  CHECK(!call(product, x, y).node);
  Tracked whole(empty({3}));
  CHECK_THROWS(watch(whole), DTypeError);
}

TEST(tape_products_and_sums) {
  Arrays arrays;
  const Ref<Plan> product = plan_of("product");
  Tracked x = numbers({3}, 2), y = numbers({3}, 5);
  const std::vector<Ref<TapeNode>> leaves{watch(x), watch(y)};
  const Tracked z = call(product, call(product, x, x), call(product, x, y));  // x^3 y
  CHECK_EQ(first_of(z), 40.0);
  std::vector<size_t> finals;
  const auto found = gradients(z, leaves, [&](size_t leaf, const Tracked&) { finals.push_back(leaf); });
  CHECK_EQ(found, (std::vector<double>{3 * 4 * 5, 8}));
  std::ranges::sort(finals);
  CHECK_EQ(finals, (std::vector<size_t>{0, 1}));  // each once
}

TEST(tape_history_is_freed_by_the_way_back) {
  Arrays arrays;
  const Ref<Plan> product = plan_of("product");
  Tracked x = numbers({3}, 2);
  const Ref<TapeNode> leaf = watch(x);
  Language::line = "there.cc:3";
  const Tracked y = call(product, x, x);
  CHECK_EQ(gradients(y, {leaf}), std::vector<double>{4});
  CHECK_EQ(refusal_of([&] { gradients(y, {leaf}); }),
           std::string("product: called at there.cc:3: its history was freed by an earlier backward"));
}

TEST(tape_gradients_of_gradients) {
  Arrays arrays;
  const Ref<Plan> product = plan_of("product");
  Tracked x = numbers({3}, 2);
  const Ref<TapeNode> leaf = watch(x);
  const Tracked y = call(product, call(product, x, x), x);
  const Tracked one = numbers({3}, 1);
  const Tracked* roots[] = {&y};
  const Tracked* cotangents[] = {&one};
  TapeNode* wanted[] = {leaf.get()};
  const auto first = walk_back(roots, cotangents, wanted, true);
  CHECK_EQ(first_of(*first[0]), 12.0);
}

TEST(tape_tells_what_was_overwritten) {
  Arrays arrays;
  const Ref<Plan> product = plan_of("product");
  Tracked x = numbers({3}, 2), y = numbers({3}, 5);
  const Ref<TapeNode> leaf = watch(x);
  Language::line = "used.cc:1";
  const Tracked z = call(product, x, y);
  Language::line = "written.cc:2";
  push_fill(y.tensor, {Scalar::Kind::real, {.real = 9}});
  note_overwriting(y.tensor);
  const std::string text = refusal_of([&] { gradients(z, {leaf}); });
  CHECK(text.starts_with(
      "product: its gradient needs input 1, f64[3]@cpu:0, which has been overwritten since"));
  CHECK(text.find("used at used.cc:1\n  overwritten at written.cc:2") != std::string::npos);
}

TEST(tape_late_launches_count_as_done_before) {
  Arrays arrays;
  const Ref<Plan> product = plan_of("product");
  Tracked x = numbers({3}, 2), y = numbers({3}, 5);
  const Ref<TapeNode> leaf = watch(x);
  const Tracked z = call(product, x, y);
  const Tracked* inputs[] = {&y, &y};
  const Tensor* into[] = {&y.tensor};
  Tracked results[1];
  ++context().recording_off;
  call_checked(product, inputs, {}, into, results, true);
  CHECK_EQ(first_of(y), 25.0);
  --context().recording_off;
  CHECK_EQ(gradients(z, {leaf}), std::vector<double>{25});
  const Tracked* few[] = {&y};
  CHECK_THROWS(call_checked(product, few, {}, {}, results, false), ValueError);
}

TEST(tape_functions) {
  Arrays arrays;
  host::sum(numbers({3}, 1), numbers({3}, 1));  // makes a plan for as long as the process lasts
  const int before = Language::objects;
  {
    const Ref<Plan> product = plan_of("product");
    Tracked x = numbers({3}, 2);
    const Ref<TapeNode> leaf = watch(x);
    const Tracked y = call(product, x, x);
    Tracked z = numbers({3}, 100);
    _object* function = Language::make();
    function->function = [](std::vector<Tracked>&& cotangents) {
      CHECK_EQ(cotangents.size(), size_t{1});
      CHECK_EQ(first_of(cotangents[0]), 1.0);
      std::vector<std::optional<Tracked>> made(1);
      made[0] = numbers({3}, 10);
      return made;
    };
    const Tracked* from[] = {&y};
    Tracked* to[] = {&z};
    record_function(from, to, function);
    int visited = 0;
    const auto visit = [](_object*, void* count) { return ++*static_cast<int*>(count), 0; };
    {
      const Ref<TapeNode> node = z.node;  // kept from outside
      TapeNode::visit_functions(z.node, visit, &visited);
      CHECK_EQ(visited, 0);
    }
    TapeNode::visit_functions(z.node, visit, &visited);
    CHECK_EQ(visited, 1);
    CHECK_EQ(gradients(z, {leaf}), std::vector<double>{40});
    function->function = [](std::vector<Tracked>&&) {
      std::vector<std::optional<Tracked>> made(1);
      made[0] = numbers({2}, 10);
      return made;
    };
    CHECK_THROWS(gradients(z, {leaf}), ShapeError);
  }
  CHECK_EQ(Language::objects, before);
}

TEST(tape_long_histories_go_without_recursion) {
  Arrays arrays;
  const int before = Language::objects;
  {
    const Ref<Plan> product = plan_of("product");
    Tracked x = numbers({1}, 1), y = x;
    const Ref<TapeNode> leaf = watch(y);
    for (int i = 0; i < 50'000; ++i) y = call(product, y, x);
    CHECK_EQ(gradients(y, {leaf}), std::vector<double>{1});
    for (int i = 0; i < 50'000; ++i) y = call(product, y, x);
  }
  CHECK_EQ(Language::objects, before);
}

TEST(tape_notes_what_regions_read) {
  Arrays arrays;
  const Ref<Plan> product = plan_of("product");
  Tracked x = numbers({3}, 2), y = numbers({3}, 5);
  watch(x);
  watch(y);
  const auto reads_others = [&](const Tracked& read, const Tracked& given) {
    begin_noting();
    ++context().recording_off;
    call(product, read, read);
    --context().recording_off;
    const Tracked* known[] = {&given};
    return end_noting(known);
  };
  CHECK(!reads_others(x, x));
  CHECK(reads_others(y, x));
  CHECK(!context().noting);
  CHECK_THROWS(end_noting({}), std::logic_error);
}

TEST(context_is_the_threads_own) {
  Arrays arrays;
  ++context().recording_off;
  context().stop_epoch = 3;
  context().no_grads = 1;
  CHECK(!recording() && stopping());
  bool is_apart = false;
  std::thread([&] { is_apart = recording() && !stopping() && !context().recorder; }).join();
  CHECK(is_apart);
  --context().recording_off;
  context().stop_epoch = 0;
  context().no_grads = 0;
}

// Another thread writes while a launch runs that was put off: that stays counted.
TEST(calls_kept_counts_take_back_their_own) {
  Arrays arrays;
  Tracked x, y;
  x.tensor = counted({3});
  y.tensor = counted({3});
  const uint32_t before = x.tensor.chunk->writes.load();
  const Tracked* const inputs[] = {&x, &y};
  {
    const KeptCounts counts(inputs, {});
    x.tensor.chunk->count_write();
    x.tensor.chunk->count_write();
    std::jthread([&] { x.tensor.chunk->count_write(); }).join();
    testing::empty({2}).chunk->count_write();  // has gone when the counts are taken back
  }
  CHECK_EQ(x.tensor.chunk->writes.load(), before + 1);
  x.tensor.chunk->count_write();
  CHECK_EQ(x.tensor.chunk->writes.load(), before + 2);
}
