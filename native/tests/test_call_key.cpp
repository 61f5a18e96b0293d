// Which plan a call asks for: keys of calls, scopes of plans.
#include "calls/call_key.h"
#include "tensor/scalar.h"
#include "tests/calls_support.h"

using namespace weft;
using namespace weft::testing;

namespace {

// Calls of an operator, with a planner that has plans for one scope and wider ones.
struct Planned {
  explicit Planned(Scope has) : has_plans_for(has) {}

  Ref<Plan> plan_for(const std::vector<Sizes>& shapes, size_t variant = 0) {
    std::vector<Tracked> arrays;
    for (const Sizes& shape : shapes) arrays.push_back(numbers(shape, 0));
    CallKey key(variant, false, arrays.size());
    std::vector<const Tracked*> pointers;
    for (const Tracked& x : arrays) {
      key.add_array(x.tensor);
      pointers.push_back(&x);
    }
    const auto ask = [&](Scope scope) {
      asked.push_back(scope);
      return scope >= has_plans_for ? plan_of("sum") : Ref<Plan>();
    };
    return find_plan(plans, key, pointers, ask, [&] { return stale; });
  }

  const Scope has_plans_for;
  PlanTable plans;
  std::vector<Scope> asked;
  bool stale = false;
};

}  // namespace

TEST(call_key_takes_the_widest_scope) {
  Arrays arrays;
  Planned aligned(Scope::aligned);
  const Ref<Plan> plan = aligned.plan_for({{3, 4}, {4}});
  CHECK(aligned.plan_for({{5, 6}, {6}}) == plan);  // all sizes
  CHECK(aligned.asked == std::vector<Scope>{Scope::aligned});
  CHECK(aligned.plan_for({{5, 6}, {1}}) != plan);  // another that is broadcast
  CHECK(aligned.plan_for({{5, 6}, {6}}, 1) != plan);
  CHECK_EQ(aligned.asked.size(), 3u);
  aligned.plan_for({{3, 4}, {4, 5}});  // not aligned: the next scope is asked
  CHECK(aligned.asked.back() == Scope::extents);
}

TEST(call_key_remembers_what_needs_more) {
  Arrays arrays;
  Planned extents(Scope::extents);
  const Ref<Plan> plan = extents.plan_for({{3, 3}, {3, 3}});
  CHECK(extents.asked == (std::vector<Scope>{Scope::aligned, Scope::extents}));
  CHECK(extents.plan_for({{7, 7}, {7, 7}}) == plan);  // the same pattern
  CHECK_EQ(extents.asked.size(), 2u);
  CHECK(extents.plan_for({{7, 8}, {7, 8}}) != plan);
  CHECK(extents.asked.back() == Scope::extents);  // aligned calls are known to need more
  CHECK_EQ(extents.asked.size(), 3u);

  Planned exact(Scope::exact);
  const Ref<Plan> three = exact.plan_for({{3}});
  CHECK(exact.plan_for({{3}}) == three);
  CHECK_EQ(exact.asked.size(), 3u);
  CHECK(exact.plan_for({{4}}) != three);
  CHECK_EQ(exact.asked.size(), 4u);
}

TEST(call_key_of_many_arrays) {
  Arrays arrays;
  Planned exact(Scope::exact);
  std::vector<Sizes> shapes(100, Sizes{2, 3});
  const Ref<Plan> plan = exact.plan_for(shapes);
  CHECK(exact.plan_for(shapes) == plan);
  shapes[99] = {3, 2};
  CHECK(exact.plan_for(shapes) != plan);
  std::vector<Sizes> different;  // too many sizes for a pattern: exact ones at once
  for (int64_t k = 0; k < 70; ++k) different.push_back({k + 2});
  exact.asked.clear();
  exact.plan_for(different);
  CHECK(exact.asked == std::vector<Scope>{Scope::exact});
}

TEST(call_key_that_went_stale_is_not_kept) {
  Arrays arrays;
  Planned aligned(Scope::aligned);
  aligned.stale = true;
  CHECK(aligned.plan_for({{3}}));
  CHECK_EQ(aligned.plans.size(), 0u);
}

TEST(call_in_place_keeps_fraction_and_sign) {
  Arrays arrays;
  const Tensor x = empty({2});
  check_fits_in_place("add", DType::bool_, x);
  check_fits_in_place("add", DType::uint8, x);
  CHECK_THROWS(check_fits_in_place("add", DType::float32, x), DTypeError);
  CHECK_THROWS(check_fits_in_place("add", DType::int8, empty({2}, DType::bool_)), DTypeError);
}

TEST(numbers_that_types_hold) {
  const auto number = [](int64_t value) { return integer(value); };
  CHECK(fits(number(127), DType::int8) && !fits(number(128), DType::int8));
  CHECK(fits(number(-128), DType::int8) && !fits(number(-129), DType::int8));
  CHECK(fits(number(255), DType::uint8) && !fits(number(256), DType::uint8));
  CHECK(!fits(number(-1), DType::uint64) && fits(number(INT64_MIN), DType::int64));
  Scalar large{Scalar::Kind::unsigned_integer, {.unsigned_integer = UINT64_MAX}};
  CHECK(fits(large, DType::uint64) && !fits(large, DType::int64) && fits(large, DType::float32));
  CHECK_EQ(real_of(large), 18446744073709551616.0);
}
