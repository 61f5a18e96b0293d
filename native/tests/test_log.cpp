// Lazy evaluation without a language: what is put off, when it is done, and by which program.
#include "tests/calls_support.h"

using namespace weft;
using namespace weft::testing;

namespace {

// Meanwhile this thread's operations are put off.
class PutOff {
 public:
  explicit PutOff(weft::Log& log) : before_(std::exchange(context().recorder, &log)) {}
  ~PutOff() { context().recorder = before_; }
  PutOff(const PutOff&) = delete;

 private:
  ArrayRecorder* const before_;
};

// A log of a target that makes programs of the last operation of each segment, a sum.
struct Lazy {
  explicit Lazy(bool watched = false) : log(target, watched) {
    Language::program_of = [this](const LoggedSegment& segment) -> LoggedProgram {
      CHECK(segment.target == target);
      asked.push_back(segment.operations.size());
      if (segment.live_serials.empty()) return {};
      const LoggedOperation& sum = segment.operations.back();
      return {plan_of("sum into"), {sum.arrays[0].x, sum.arrays[1].x, sum.results[0]->x}, {}};
    };
  }
  ~Lazy() {
    Language::program_of = {};
    release_now(target);
  }
  _object* const target = Language::make();
  weft::Log log;
  std::vector<size_t> asked;  // numbers of operations
};

}  // namespace

TEST(log_runs_equal_segments_by_one_program) {
  Arrays arrays;
  Lazy lazy;
  const Ref<Plan> sum = plan_of("sum");
  for (const double value : {1.0, 2.0, 3.0}) {
    const Tracked a = numbers({3}, value), b = numbers({3}, 10);
    lazy.log.flush();
    Tracked y;
    {
      const PutOff off(lazy.log);
      y = call(sum, a, b);
    }
    lazy.log.flush();
    CHECK_EQ(first_of(y), value + 10);
  }
  CHECK_EQ(lazy.asked, std::vector<size_t>{1});
  CHECK_EQ(lazy.log.segments(), 3u);
  const Tracked a = numbers({4}, 1), b = numbers({4}, 2);  // other sizes are other words
  lazy.log.flush();
  Tracked y;
  {
    const PutOff off(lazy.log);
    y = call(sum, a, b);
  }
  lazy.log.flush();
  CHECK_EQ(first_of(y), 3.0);
  CHECK_EQ(lazy.asked.size(), 2u);
}

TEST(log_ends_a_segment_where_somebody_looks) {
  Arrays arrays;
  Lazy lazy(true);
  const Ref<Plan> sum = plan_of("sum");
  const Tracked a = numbers({3}, 1), b = numbers({3}, 2);
  lazy.log.flush();
  const int breaks = Language::breaks;
  const PutOff off(lazy.log);
  const Tracked y = call(sum, a, b);
  CHECK_EQ(lazy.log.segments(), 0u);
  CHECK_EQ(first_of(y), 3.0);
  CHECK_EQ(lazy.log.segments(), 1u);
  CHECK_EQ(Language::breaks, breaks + 1);
  CHECK_EQ(first_of(y), 3.0);  // nothing of it waits any more
  CHECK_EQ(Language::breaks, breaks + 1);
}

TEST(log_computes_nothing_that_is_not_held) {
  Arrays arrays;
  Lazy lazy;
  const Ref<Plan> sum = plan_of("sum");
  const Tracked a = numbers({3}, 1), b = numbers({3}, 2), large = numbers({64 << 10}, 1);
  lazy.log.flush();
  uint64_t serial = 0;
  {
    const PutOff off(lazy.log);
    call(sum, a, b);
    serial = call(sum, large, large).tensor.chunk->serial;
  }
  CHECK(!Chunk::is_alive(serial));  // the log keeps no large memory
  const uint64_t kernels = Program::kernels.load();
  lazy.log.flush();
  CHECK_EQ(lazy.asked, std::vector<size_t>{2});
  CHECK_EQ(Program::kernels.load(), kernels);
  CHECK_EQ(lazy.log.unseen_bytes(), uint64_t{3 + (64 << 10)} * 8);
}

TEST(log_tells_what_was_put_off) {
  Arrays arrays;
  Lazy lazy;
  std::vector<LoggedOperation> told;
  std::vector<std::string> sites;
  Language::program_of = [&](const LoggedSegment& segment) -> LoggedProgram {
    told = segment.operations;
    for (LoggedOperation& each : told) {
      sites.push_back(each.site->text());
      each.site = nullptr;
    }
    return {};
  };
  const Tensor x = empty({2, 3}), y = empty({2, 3});
  lazy.log.flush();
  Language::line = "line 5";
  {
    const PutOff off(lazy.log);
    push_fill(x, integer(7));
    push_copy(y, x);
    push_range(x, integer(2), integer(3));
    push_normal(empty({2}, DType::float64), 0.5, 2);
  }
  CHECK_EQ(x.chunk->writes.load(), 2u);  // as if they had been written
  lazy.log.flush();
  Language::line = "line 1";
  using Kind = LoggedOperation::Kind;
  CHECK_EQ(told.size(), 4u);
  CHECK(told[0].kind == Kind::fill && told[0].numbers[0].integer == 7);
  CHECK(told[1].kind == Kind::copy && told[1].arrays[0].serial == x.chunk->serial);
  CHECK(told[1].results[0]->serial == y.chunk->serial && told[1].results[0]->x.data == y.data);
  CHECK_EQ(describe(told[1].results[0]->x.dims()), std::string("(2, 3)"));
  CHECK(told[2].kind == Kind::range && told[2].numbers[0].integer == 2 && told[2].numbers[1].integer == 3);
  CHECK(told[3].kind == Kind::draw && told[3].draw == Draw::normal);
  CHECK(told[3].numbers[0].real == 0.5 && told[3].numbers[1].origin == 2);  // inputs of the program
  CHECK_EQ(sites, std::vector<std::string>(4, "line 5"));
}

TEST(log_lets_pass_what_no_graph_describes) {
  Arrays arrays;
  Lazy lazy;
  const Ref<Plan> sum = plan_of("sum");
  const Tracked a = numbers({3}, 1), b = numbers({3}, 2), x = numbers({6}, 4);
  const int64_t four[] = {4}, one[] = {1};
  lazy.log.flush();
  const PutOff off(lazy.log);
  const Tracked y = call(sum, a, b);
  const Tracked low(x.tensor.window(0, four, one)), high(x.tensor.window(2, four, one));
  const Tracked z = call(sum, low, high);  // they overlap in part: done at once
  CHECK_EQ(lazy.log.segments(), 1u);       // after what came before
  CHECK_EQ(first_of(z), 8.0);
  CHECK_EQ(first_of(y), 3.0);
  CHECK_EQ(lazy.asked, std::vector<size_t>{1});
  // Memory seen as another type begins a segment.
  const Tracked again = call(sum, a, b);
  Tensor bits = a.tensor;
  bits.dtype = DType::int64;
  push_fill(bits, integer(0));
  CHECK_EQ(lazy.log.segments(), 2u);
  CHECK_EQ(first_of(again), 3.0);
}
